//! Downloaded skills: an index lists them with their files. Fetched skills are stored in the cache,
//! in a directory for each address and one for each skill, and read from there like any other. This
//! module only reads and writes; another one fetches.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use base::environment::{Environment, private_dir, write_private_file};
use base::text;

/// The limits of one address: skills, files of one skill, bytes of a file, of a skill, of all.
const MAX_SKILLS: usize = 200;
const MAX_FILES: usize = 100;
pub const MAX_FILE_BYTES: usize = 1 << 20;
pub const SKILL: usize = 8 << 20;
pub const MAX_TOTAL_BYTES: usize = 32 << 20;

/// The maximum length of a path component in bytes, and of a path in components.
const MAX_PART_BYTES: usize = 100;
const MAX_PARTS: usize = 8;

/// The file that records the stored skills of an address; no skill can have this name.
const RECORD_FILE: &str = ".index.json";

/// A skill in an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedSkill {
    pub name: String,
    pub files: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The usable part of an index.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SkillIndex {
    pub skills: Vec<IndexedSkill>,
    /// The parts that are not used, with the reason.
    pub refused: Vec<String>,
}

impl SkillIndex {
    /// Parses an index.
    ///
    /// # Errors
    /// If it is not an index.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let whole: Value =
            serde_json::from_slice(bytes).map_err(|e| format!("the index is not JSON ({e})"))?;
        let list = whole.get("skills").and_then(Value::as_array);
        let list = list.ok_or_else(|| "the index has no list of skills".to_owned())?;
        let mut index = Self::default();
        let mut names = BTreeSet::new();
        for entry in list {
            let name = entry
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            match skill(entry) {
                _ if index.skills.len() == MAX_SKILLS => {
                    index
                        .refused
                        .push(format!("only {MAX_SKILLS} skills are taken"));
                    break;
                }
                // On some file systems, names that differ only in case are one directory.
                Ok(skill) if !names.insert(skill.name.to_lowercase()) => {
                    index.refused.push(format!("{} is named twice", skill.name));
                }
                Ok(skill) => index.skills.push(skill),
                Err(why) => index
                    .refused
                    .push(format!("\"{}\" {why}", text::title(name))),
            }
        }
        Ok(index)
    }
}

/// Parses a skill of an index. Returns the reason if it cannot be stored.
fn skill(entry: &Value) -> Result<IndexedSkill, String> {
    let name = entry
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !is_part(&name) {
        return Err("cannot be the name of a folder".into());
    }
    let files = entry
        .get("files")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let files: Vec<String> = files
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if !files.iter().any(|file| file == super::FILE) {
        return Err(format!("has no {}", super::FILE));
    }
    if files.len() > MAX_FILES {
        return Err(format!("has more than {MAX_FILES} files"));
    }
    let paths: BTreeSet<String> = files.iter().map(|file| file.to_lowercase()).collect();
    // A path may not be a file and a directory at once.
    let beneath = |file: &str| {
        file.match_indices('/')
            .any(|(at, _)| paths.contains(&file[..at]))
    };
    if let Some(bad) = files
        .iter()
        .find(|file| !is_path(file) || beneath(&file.to_lowercase()))
    {
        return Err(format!("has a file named \"{}\"", text::title(bad)));
    }
    if paths.len() != files.len() {
        return Err("names a file twice".into());
    }
    let version = entry.get("version").and_then(|version| match version {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    Ok(IndexedSkill {
        name,
        files,
        version,
    })
}

/// Returns whether this can be the name of a file or a directory on any system, and leads nowhere
/// else.
fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._- ()+@,".contains(c);
    let stem = part
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let device = ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || stem
            .strip_prefix("com")
            .or_else(|| stem.strip_prefix("lpt"))
            .is_some_and(|n| matches!(n.as_bytes(), [b'0'..=b'9']));
    !part.is_empty()
        && part.len() <= MAX_PART_BYTES
        && part.chars().all(plain)
        && !part.starts_with(['.', ' ', '-'])
        && !part.ends_with(['.', ' '])
        && !device
}

fn is_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    parts.len() <= MAX_PARTS && parts.into_iter().all(is_part)
}

/// Returns the directory of the skills of an address.
pub fn cache_dir(environment: &Environment, address: &str) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, address.as_bytes());
    let name = text::hex(&digest.as_ref()[..16]);
    environment.dirs.cache.join("skills").join(name)
}

/// Returns the address of a file below the directory of the index. `None` if the address is
/// invalid.
pub fn address_of(address: &str, below: &[&str]) -> Option<String> {
    let mut url = reqwest::Url::parse(address).ok()?;
    let mut path = url.path_segments_mut().ok()?;
    path.pop_if_empty();
    below
        .iter()
        .flat_map(|part| part.split('/'))
        .for_each(|part| {
            path.push(part);
        });
    drop(path);
    Some(url.into())
}

/// Returns the skills that are stored as the index describes them: with the same version, and with
/// all their files.
pub fn current(dir: &Path, index: &SkillIndex) -> BTreeSet<String> {
    let before = std::fs::read(dir.join(RECORD_FILE)).ok();
    let before: Vec<IndexedSkill> = before
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let before: BTreeMap<&str, &IndexedSkill> = before
        .iter()
        .map(|skill| (skill.name.as_str(), skill))
        .collect();
    let holds = |skill: &&IndexedSkill| {
        before.get(skill.name.as_str()) == Some(skill)
            && skill
                .files
                .iter()
                .all(|file| dir.join(&skill.name).join(file).is_file())
    };
    index
        .skills
        .iter()
        .filter(holds)
        .map(|skill| skill.name.clone())
        .collect()
}

/// A fetched skill: its name, and its files by their relative paths.
pub type FetchedSkill = (String, Vec<(String, Vec<u8>)>);

/// Stores fetched skills, each atomically, and removes those that the index no longer has.
///
/// # Errors
/// If a file cannot be written.
pub fn keep(dir: &Path, index: &SkillIndex, fetched: Vec<FetchedSkill>) -> io::Result<()> {
    private_dir(dir)?;
    let current = current(dir, index);
    for (name, files) in &fetched {
        let new = tempfile::Builder::new().prefix(".new-").tempdir_in(dir)?;
        for (path, bytes) in files {
            let path = new.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
            write_private_file(&path, bytes)?;
        }
        let target = dir.join(name);
        let old = tempfile::Builder::new().prefix(".old-").tempdir_in(dir)?;
        if target.exists() {
            std::fs::rename(&target, old.path().join("old"))?;
        }
        match std::fs::rename(new.path(), &target) {
            Err(_) if target.is_dir() => {} // another session was faster
            renamed => renamed?,
        }
    }
    let named = |name: &str| index.skills.iter().any(|skill| skill.name == name);
    for entry in std::fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !named(&name) {
            std::fs::remove_dir_all(entry.path()).ok(); // it is removed the next time
        }
    }
    let is_stored = |skill: &&IndexedSkill| {
        current.contains(&skill.name) || fetched.iter().any(|(name, _)| *name == skill.name)
    };
    let stored: Vec<&IndexedSkill> = index.skills.iter().filter(is_stored).collect();
    let record = serde_json::to_vec(&stored)?;
    if std::fs::read(dir.join(RECORD_FILE)).is_ok_and(|before| before == record) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&record)?;
    file.persist(dir.join(RECORD_FILE))
        .map(drop)
        .map_err(|e| e.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_entry_is_accepted_only_if_it_can_be_stored() {
        let table = [
            (r#"{"name":"a","files":["SKILL.md"]}"#, Ok(("a", None))),
            (
                r#"{"name":"a b-1","files":["SKILL.md","scripts/run.sh"],"version":"2"}"#,
                Ok(("a b-1", Some("2"))),
            ),
            (
                r#"{"name":"a","files":["SKILL.md"],"version":3}"#,
                Ok(("a", Some("3"))),
            ),
            (
                r#"{"name":"../a","files":["SKILL.md"]}"#,
                Err("\"../a\" cannot be the name of a folder"),
            ),
            (
                r#"{"name":"a/b","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"name":"a\\b","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"name":".a","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"name":"nul.x","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"name":"com1","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"name":"a\u202e","files":["SKILL.md"]}"#,
                Err("cannot be the name of a folder"),
            ),
            (
                r#"{"files":["SKILL.md"]}"#,
                Err("\"\" cannot be the name of a folder"),
            ),
            (r#"{"name":"a"}"#, Err("\"a\" has no SKILL.md")),
            (
                r#"{"name":"a","files":["x/SKILL.md"]}"#,
                Err("\"a\" has no SKILL.md"),
            ),
            (
                r#"{"name":"a","files":["SKILL.md","../../x"]}"#,
                Err("\"a\" has a file named \"../../x\""),
            ),
            (
                r#"{"name":"a","files":["SKILL.md","/etc/x"]}"#,
                Err("has a file named"),
            ),
            (
                r#"{"name":"a","files":["SKILL.md","x//y"]}"#,
                Err("has a file named"),
            ),
            (
                r#"{"name":"a","files":["SKILL.md",".git/config"]}"#,
                Err("has a file named"),
            ),
            (
                r#"{"name":"a","files":["SKILL.md","x","X/y"]}"#,
                Err("has a file named"),
            ),
            (
                r#"{"name":"a","files":["SKILL.md","skill.md"]}"#,
                Err("names a file twice"),
            ),
        ];
        for (entry, wanted) in table {
            let index = SkillIndex::read(format!(r#"{{"skills":[{entry}]}}"#).as_bytes()).unwrap();
            match wanted {
                Ok((name, version)) => {
                    assert!(index.refused.is_empty(), "{entry}: {:?}", index.refused);
                    let skill = &index.skills[0];
                    assert_eq!(
                        (skill.name.as_str(), skill.version.as_deref()),
                        (name, version)
                    );
                }
                Err(why) => {
                    assert!(index.skills.is_empty(), "{entry}");
                    assert!(
                        index.refused[0].contains(why),
                        "{entry}: {:?}",
                        index.refused
                    );
                }
            }
        }
        let twice =
            br#"{"skills":[{"name":"a","files":["SKILL.md"]},{"name":"A","files":["SKILL.md"]}]}"#;
        assert_eq!(
            SkillIndex::read(twice).unwrap().refused,
            ["A is named twice"]
        );
        for none in ["", "[]", "<html>", r#"{"skills":{}}"#] {
            assert!(SkillIndex::read(none.as_bytes()).is_err(), "{none}");
        }
    }

    #[test]
    fn file_addresses_are_below_index() {
        let table = [
            (
                "https://a.example/skills",
                "https://a.example/skills/a%20b/scripts/x.sh",
            ),
            (
                "https://a.example/skills/",
                "https://a.example/skills/a%20b/scripts/x.sh",
            ),
            ("https://a.example", "https://a.example/a%20b/scripts/x.sh"),
            (
                "https://a.example/s?key=1",
                "https://a.example/s/a%20b/scripts/x.sh?key=1",
            ),
        ];
        for (address, wanted) in table {
            assert_eq!(
                address_of(address, &["a b", "scripts/x.sh"]).as_deref(),
                Some(wanted)
            );
        }
        assert_eq!(address_of("data:x", &["a"]), None);
    }

    #[test]
    fn changed_skill_is_fetched_again_and_dropped_one_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("skills");
        let indexed = |name: &str, version: Option<&str>| IndexedSkill {
            name: name.to_owned(),
            files: vec!["SKILL.md".into(), "x/y.txt".into()],
            version: version.map(str::to_owned),
        };
        let index = |skills: &[IndexedSkill]| SkillIndex {
            skills: skills.to_vec(),
            refused: Vec::new(),
        };
        let fetched = |name: &str, text: &str| {
            let file = |path: &str| (path.to_owned(), text.as_bytes().to_vec());
            vec![(name.to_owned(), vec![file("SKILL.md"), file("x/y.txt")])]
        };
        let text = |path: &str| std::fs::read_to_string(dir.join(path)).ok();
        let first = index(&[indexed("a", Some("1")), indexed("b", None)]);
        assert!(current(&dir, &first).is_empty());
        keep(&dir, &first, fetched("a", "old")).unwrap();
        // The other skill could not be fetched.
        assert_eq!(current(&dir, &first), BTreeSet::from(["a".to_owned()]));
        keep(&dir, &first, fetched("b", "b")).unwrap();
        assert_eq!(current(&dir, &first).len(), 2);
        let next = index(&[indexed("a", Some("2")), indexed("b", None)]);
        assert_eq!(current(&dir, &next), BTreeSet::from(["b".to_owned()]));
        keep(&dir, &next, fetched("a", "new")).unwrap();
        assert_eq!(text("a/x/y.txt").as_deref(), Some("new"));
        keep(&dir, &index(&[indexed("a", Some("2"))]), Vec::new()).unwrap();
        assert_eq!(
            (text("a/SKILL.md").as_deref(), text("b/SKILL.md")),
            (Some("new"), None)
        );
        assert!(std::fs::read_dir(&dir).unwrap().flatten().all(|entry| {
            let name = entry.file_name();
            name == "a" || name == RECORD_FILE
        }));
        std::fs::remove_file(dir.join("a/x/y.txt")).unwrap();
        assert!(
            current(&dir, &index(&[indexed("a", Some("2"))])).is_empty(),
            "a file is missing"
        );
    }
}
