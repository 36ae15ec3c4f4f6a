//! The list of files that git keeps, as far as it names other repositories.

use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The largest list that is read, in bytes: about a million files.
const LARGEST: u64 = 128 << 20;

const BROKEN: &str = "its form is not known";

/// The directories below the working tree that the index takes for repositories of their own.
/// `hash` is the length of an object's name in bytes.
///
/// # Errors
/// Why it cannot be said.
pub(super) fn links(dir: &Path, hash: usize) -> Result<Vec<PathBuf>, &'static str> {
    let Some(bytes) = read(&dir.join("index"))? else { return Ok(vec![]) };
    let (mut links, rest) = entries(&bytes, hash).ok_or(BROKEN)?;
    let base = shared(rest, hash).ok_or(BROKEN)?.map(|base| dir.join(format!("sharedindex.{base}")));
    if let Some(bytes) = base.map_or(Ok(None), |base| read(&base))? {
        links.extend(entries(&bytes, hash).ok_or(BROKEN)?.0);
    }
    if links.iter().any(|link| link.as_os_str().is_empty() || link.is_absolute()) { Err(BROKEN) } else { Ok(links) }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, &'static str> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= LARGEST => {}
        Ok(_) => return Err("it is too large, or no file"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err("the system does not let it be read"),
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|_| "the system does not let it be read")?;
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|_| "the system does not let it be read")?;
    Ok(Some(bytes))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(four)).ok()
}

/// The entries that are repositories, and what follows all entries.
fn entries(bytes: &[u8], hash: usize) -> Option<(Vec<PathBuf>, &[u8])> {
    /// Sizes, times and owner before the object's name, and where in them the mode stands.
    const STAT: usize = 40;
    const MODE: usize = 24;
    let version = number(bytes, 4)?;
    if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let mut links = vec![];
    let mut name: Vec<u8> = vec![];
    let mut at = 12;
    for _ in 0..number(bytes, 8)? {
        let start = at;
        let link = number(bytes, at + MODE)? & 0o170_000 == 0o160_000;
        let flags = at + STAT + hash;
        // A bit of the first byte of the flags says that two more follow.
        at = flags + if bytes.get(flags)? & 0x40 == 0 { 2 } else { 4 };
        if version == 4 {
            let cut = variable(bytes, &mut at)?;
            name.truncate(name.len().checked_sub(cut)?);
        } else {
            name.clear();
        }
        let length = bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[at..at + length]);
        at += length + 1;
        if version != 4 {
            at = start + (at - start).next_multiple_of(8);
        }
        if link {
            links.push(PathBuf::from(std::ffi::OsString::from_vec(name.clone())));
        }
    }
    Some((links, bytes.get(at..)?))
}

/// A number of any length, seven bits to a byte.
fn variable(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut next = || {
        let byte = bytes.get(*at).copied();
        *at += 1;
        byte
    };
    let mut byte = next()?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        byte = next()?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 127);
    }
    Some(value)
}

/// The name of the index this one is the difference to, if it is one.
fn shared(mut rest: &[u8], hash: usize) -> Option<Option<String>> {
    while rest.len() > hash {
        let size = number(rest, 4)?;
        let body = rest.get(8..8 + size)?;
        if rest.starts_with(b"link") {
            let base = body.get(..hash)?;
            return Some(Some(base.iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        rest = &rest[8 + size..];
    }
    // The sum of everything before it ends the file.
    (rest.len() == hash).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the index is made by git itself")]
    fn repositories_are_found_in_every_form_of_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut git = std::process::Command::new("git");
            git.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", dir.path());
            let ran = git.env("GIT_CONFIG_NOSYSTEM", "1").args(args).current_dir(dir.path()).output().unwrap();
            assert!(ran.status.success(), "{args:?}: {ran:?}");
        };
        for (format, hash, zeros) in [("sha1", 20, "1".repeat(40)), ("sha256", 32, "1".repeat(64))] {
            git(&["init", "-q", "--object-format", format, format]);
            let link = |name: &str| format!("160000,{zeros},{name}");
            let within = |args: &[&str]| git(&[&["-C", format][..], args].concat());
            std::fs::write(dir.path().join(format).join("a file.txt"), "a").unwrap();
            within(&["add", "a file.txt"]);
            assert_eq!(links(&dir.path().join(format).join(".git"), hash), Ok(vec![]));
            for name in ["sub/one", "sub/one-more", "z"] {
                within(&["update-index", "--add", "--cacheinfo", &link(name)]);
            }
            let wanted = ["sub/one", "sub/one-more", "z"].map(PathBuf::from);
            let found = || {
                let mut links = links(&dir.path().join(format).join(".git"), hash).unwrap();
                links.sort();
                links.dedup();
                links
            };
            for version in ["2", "4", "2"] {
                within(&["update-index", "--index-version", version]);
                assert_eq!(found(), wanted, "{format} {version}");
            }
            within(&["update-index", "--split-index"]);
            assert_eq!(found(), wanted, "{format} split");
            let index = dir.path().join(format).join(".git/index");
            let whole = std::fs::read(&index).unwrap();
            std::fs::write(&index, &whole[..whole.len() / 2]).unwrap();
            assert!(links(&dir.path().join(format).join(".git"), hash).is_err());
        }
        assert_eq!(links(dir.path(), 20), Ok(vec![]));
    }
}
