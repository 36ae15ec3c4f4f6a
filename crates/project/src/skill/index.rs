//! Skills from the web: an index says which there are, with the files of each. What is fetched is kept in the cache,
//! a folder for each address and in it one for each skill, and read from there like any other. Reading and writing
//! only; somebody else fetches.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use base::environment::{Environment, private_dir, private_note};
use base::text;

/// How much is taken from one address: skills, files of one, bytes of a file, of a skill, of all.
const SKILLS: usize = 200;
const FILES: usize = 100;
pub const LARGEST: usize = 1 << 20;
pub const SKILL: usize = 8 << 20;
pub const ALTOGETHER: usize = 32 << 20;

/// The longest part of a path, in bytes, and how many a path has at most.
const PART: usize = 100;
const PARTS: usize = 8;

/// What says what is kept of an address; no skill is called so.
const KEPT: &str = ".index.json";

/// A skill as an index names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedSkill {
    pub name: String,
    pub files: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// What an index says, as far as it can be taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SkillIndex {
    pub skills: Vec<IndexedSkill>,
    /// What is not taken, and why.
    pub refused: Vec<String>,
}

impl SkillIndex {
    /// Reads an index.
    ///
    /// # Errors
    /// Where it is none.
    pub fn read(words: &[u8]) -> Result<Self, String> {
        let whole: Value = serde_json::from_slice(words).map_err(|e| format!("the index is not JSON ({e})"))?;
        let list = whole.get("skills").and_then(Value::as_array);
        let list = list.ok_or_else(|| "the index has no list of skills".to_owned())?;
        let (mut index, mut names) = (Self::default(), BTreeSet::new());
        for entry in list {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
            match skill(entry) {
                _ if index.skills.len() == SKILLS => {
                    index.refused.push(format!("only {SKILLS} skills are taken"));
                    break;
                }
                // Where names differ only in case one folder would hold both.
                Ok(skill) if !names.insert(skill.name.to_lowercase()) => {
                    index.refused.push(format!("{} is named twice", skill.name));
                }
                Ok(skill) => index.skills.push(skill),
                Err(why) => index.refused.push(format!("\"{}\" {why}", text::title(name))),
            }
        }
        Ok(index)
    }
}

/// A skill of an index, if it can be kept.
fn skill(entry: &Value) -> Result<IndexedSkill, String> {
    let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !is_part(&name) {
        return Err("cannot be the name of a folder".into());
    }
    let files = entry.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let files: Vec<String> = files.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if !files.iter().any(|file| file == super::FILE) {
        return Err(format!("has no {}", super::FILE));
    }
    if files.len() > FILES {
        return Err(format!("has more than {FILES} files"));
    }
    let paths: BTreeSet<String> = files.iter().map(|file| file.to_lowercase()).collect();
    // One path may not be a file and a folder at once.
    let beneath = |file: &str| file.match_indices('/').any(|(at, _)| paths.contains(&file[..at]));
    if let Some(bad) = files.iter().find(|file| !is_path(file) || beneath(&file.to_lowercase())) {
        return Err(format!("has a file named \"{}\"", text::title(bad)));
    }
    if paths.len() != files.len() {
        return Err("names a file twice".into());
    }
    let version = entry.get("version").and_then(|version| match version {
        Value::String(words) => Some(words.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    Ok(IndexedSkill { name, files, version })
}

/// Whether this may be the name of a file or a folder on any system, and leads nowhere else.
fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "._- ()+@,".contains(c);
    let stem = part.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let device = ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || stem
            .strip_prefix("com")
            .or_else(|| stem.strip_prefix("lpt"))
            .is_some_and(|n| matches!(n.as_bytes(), [b'0'..=b'9']));
    !part.is_empty()
        && part.len() <= PART
        && part.chars().all(plain)
        && !part.starts_with(['.', ' ', '-'])
        && !part.ends_with(['.', ' '])
        && !device
}

fn is_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    parts.len() <= PARTS && parts.into_iter().all(is_part)
}

/// Where what comes from an address is kept.
pub fn kept(environment: &Environment, address: &str) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, address.as_bytes());
    let name = text::hex(&digest.as_ref()[..16]);
    environment.dirs.cache.join("skills").join(name)
}

/// The address of a file below that of the index's folder; none where the address is none.
pub fn address_of(address: &str, below: &[&str]) -> Option<String> {
    let mut url = reqwest::Url::parse(address).ok()?;
    let mut path = url.path_segments_mut().ok()?;
    path.pop_if_empty();
    below.iter().flat_map(|part| part.split('/')).for_each(|part| {
        path.push(part);
    });
    drop(path);
    Some(url.into())
}

/// Which of these skills are kept as the index has them: of the same version, and with all files where it names
/// none.
pub fn current(dir: &Path, index: &SkillIndex) -> BTreeSet<String> {
    let before = std::fs::read(dir.join(KEPT)).ok();
    let before: Vec<IndexedSkill> = before.and_then(|words| serde_json::from_slice(&words).ok()).unwrap_or_default();
    let before: BTreeMap<&str, &IndexedSkill> = before.iter().map(|skill| (skill.name.as_str(), skill)).collect();
    let holds = |skill: &&IndexedSkill| {
        before.get(skill.name.as_str()) == Some(skill)
            && skill.files.iter().all(|file| dir.join(&skill.name).join(file).is_file())
    };
    index.skills.iter().filter(holds).map(|skill| skill.name.clone()).collect()
}

/// A skill that was fetched: its name, and its files by their paths in it.
pub type FetchedSkill = (String, Vec<(String, Vec<u8>)>);

/// Keeps what was fetched: each skill at once, and none that the index does not name any more. `here` are those
/// that are there, by their files.
///
/// # Errors
/// Where it cannot be written.
pub fn keep(dir: &Path, index: &SkillIndex, fetched: Vec<FetchedSkill>) -> io::Result<()> {
    private_dir(dir)?;
    let current = current(dir, index);
    for (name, files) in &fetched {
        let new = tempfile::Builder::new().prefix(".new-").tempdir_in(dir)?;
        for (path, bytes) in files {
            let path = new.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
            private_note(&path, bytes)?;
        }
        let place = dir.join(name);
        let old = tempfile::Builder::new().prefix(".old-").tempdir_in(dir)?;
        if place.exists() {
            std::fs::rename(&place, old.path().join("old"))?;
        }
        match std::fs::rename(new.path(), &place) {
            Err(_) if place.is_dir() => {} // another session was faster
            renamed => renamed?,
        }
    }
    let named = |name: &str| index.skills.iter().any(|skill| skill.name == name);
    for entry in std::fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !named(&name) {
            std::fs::remove_dir_all(entry.path()).ok(); // the next look finds it again
        }
    }
    let there =
        |skill: &&IndexedSkill| current.contains(&skill.name) || fetched.iter().any(|(name, _)| *name == skill.name);
    let there: Vec<&IndexedSkill> = index.skills.iter().filter(there).collect();
    let words = serde_json::to_vec(&there)?;
    if std::fs::read(dir.join(KEPT)).is_ok_and(|before| before == words) {
        return Ok(());
    }
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(&words)?;
    file.persist(dir.join(KEPT)).map(drop).map_err(|e| e.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_what_can_be_kept() {
        let table = [
            (r#"{"name":"a","files":["SKILL.md"]}"#, Ok(("a", None))),
            (r#"{"name":"a b-1","files":["SKILL.md","scripts/run.sh"],"version":"2"}"#, Ok(("a b-1", Some("2")))),
            (r#"{"name":"a","files":["SKILL.md"],"version":3}"#, Ok(("a", Some("3")))),
            (r#"{"name":"../a","files":["SKILL.md"]}"#, Err("\"../a\" cannot be the name of a folder")),
            (r#"{"name":"a/b","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"name":"a\\b","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"name":".a","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"name":"nul.x","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"name":"com1","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"name":"a\u202e","files":["SKILL.md"]}"#, Err("cannot be the name of a folder")),
            (r#"{"files":["SKILL.md"]}"#, Err("\"\" cannot be the name of a folder")),
            (r#"{"name":"a"}"#, Err("\"a\" has no SKILL.md")),
            (r#"{"name":"a","files":["x/SKILL.md"]}"#, Err("\"a\" has no SKILL.md")),
            (r#"{"name":"a","files":["SKILL.md","../../x"]}"#, Err("\"a\" has a file named \"../../x\"")),
            (r#"{"name":"a","files":["SKILL.md","/etc/x"]}"#, Err("has a file named")),
            (r#"{"name":"a","files":["SKILL.md","x//y"]}"#, Err("has a file named")),
            (r#"{"name":"a","files":["SKILL.md",".git/config"]}"#, Err("has a file named")),
            (r#"{"name":"a","files":["SKILL.md","x","X/y"]}"#, Err("has a file named")),
            (r#"{"name":"a","files":["SKILL.md","skill.md"]}"#, Err("names a file twice")),
        ];
        for (entry, wanted) in table {
            let index = SkillIndex::read(format!(r#"{{"skills":[{entry}]}}"#).as_bytes()).unwrap();
            match wanted {
                Ok((name, version)) => {
                    assert!(index.refused.is_empty(), "{entry}: {:?}", index.refused);
                    let skill = &index.skills[0];
                    assert_eq!((skill.name.as_str(), skill.version.as_deref()), (name, version));
                }
                Err(why) => {
                    assert!(index.skills.is_empty(), "{entry}");
                    assert!(index.refused[0].contains(why), "{entry}: {:?}", index.refused);
                }
            }
        }
        let twice = br#"{"skills":[{"name":"a","files":["SKILL.md"]},{"name":"A","files":["SKILL.md"]}]}"#;
        assert_eq!(SkillIndex::read(twice).unwrap().refused, ["A is named twice"]);
        for none in ["", "[]", "<html>", r#"{"skills":{}}"#] {
            assert!(SkillIndex::read(none.as_bytes()).is_err(), "{none}");
        }
    }

    #[test]
    fn files_lie_below_the_index() {
        let table = [
            ("https://a.example/skills", "https://a.example/skills/a%20b/scripts/x.sh"),
            ("https://a.example/skills/", "https://a.example/skills/a%20b/scripts/x.sh"),
            ("https://a.example", "https://a.example/a%20b/scripts/x.sh"),
            ("https://a.example/s?key=1", "https://a.example/s/a%20b/scripts/x.sh?key=1"),
        ];
        for (address, wanted) in table {
            assert_eq!(address_of(address, &["a b", "scripts/x.sh"]).as_deref(), Some(wanted));
        }
        assert_eq!(address_of("data:x", &["a"]), None);
    }

    #[test]
    fn what_has_changed_is_fetched_again_and_what_is_gone_goes() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("skills");
        let one = |name: &str, version: Option<&str>| IndexedSkill {
            name: name.to_owned(),
            files: vec!["SKILL.md".into(), "x/y.txt".into()],
            version: version.map(str::to_owned),
        };
        let index = |skills: &[IndexedSkill]| SkillIndex { skills: skills.to_vec(), refused: Vec::new() };
        let fetched = |name: &str, words: &str| {
            let file = |path: &str| (path.to_owned(), words.as_bytes().to_vec());
            vec![(name.to_owned(), vec![file("SKILL.md"), file("x/y.txt")])]
        };
        let words = |path: &str| std::fs::read_to_string(dir.join(path)).ok();
        let first = index(&[one("a", Some("1")), one("b", None)]);
        assert!(current(&dir, &first).is_empty());
        keep(&dir, &first, fetched("a", "old")).unwrap();
        // The other could not be fetched.
        assert_eq!(current(&dir, &first), BTreeSet::from(["a".to_owned()]));
        keep(&dir, &first, fetched("b", "b")).unwrap();
        assert_eq!(current(&dir, &first).len(), 2);
        let next = index(&[one("a", Some("2")), one("b", None)]);
        assert_eq!(current(&dir, &next), BTreeSet::from(["b".to_owned()]));
        keep(&dir, &next, fetched("a", "new")).unwrap();
        assert_eq!(words("a/x/y.txt").as_deref(), Some("new"));
        keep(&dir, &index(&[one("a", Some("2"))]), Vec::new()).unwrap();
        assert_eq!((words("a/SKILL.md").as_deref(), words("b/SKILL.md")), (Some("new"), None));
        assert!(std::fs::read_dir(&dir).unwrap().flatten().all(|entry| {
            let name = entry.file_name();
            name == "a" || name == KEPT
        }));
        std::fs::remove_file(dir.join("a/x/y.txt")).unwrap();
        assert!(current(&dir, &index(&[one("a", Some("2"))])).is_empty(), "a file is missing");
    }
}
