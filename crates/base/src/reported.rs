//! The notices that a project's sessions have shown, so that each start does not repeat them: one
//! is shown again after a day, and when it had gone in the meantime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::{Environment, Timestamp, private_dir, write_private_file};

/// The time after which a notice is shown again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The maximum number of subjects of projects that are remembered. A project may have several.
const MAX_PROJECTS: usize = 1_000;

/// For each [`key`] the texts of its notices, with the time when each was shown.
type Reported = BTreeMap<String, BTreeMap<String, Timestamp>>;

fn file(environment: &Environment) -> PathBuf {
    environment.dirs.state.join("reported.json")
}

/// Returns the key of a project's notices on a subject.
fn key(subject: &str, root: &Path) -> String {
    format!("{subject} {}", root.display())
}

/// Returns those of `texts` that were shown within a day. Blocks on file access.
pub fn shown_recently(
    environment: &Environment,
    root: &Path,
    subject: &str,
    texts: &[String],
) -> BTreeSet<String> {
    let mut all = read(&file(environment));
    let before = all.remove(&key(subject, root)).unwrap_or_default();
    updated(&before, texts, environment.now()).1
}

/// Returns those of `texts` that were shown within a day, and remembers the others as shown now. An
/// earlier text that is not among `texts` is forgotten. `subject` separates notices of different
/// kinds. Blocks on file access; a file that cannot be read counts as empty, and one that cannot be
/// written is left as it is.
pub fn shown_before(
    environment: &Environment,
    root: &Path,
    subject: &str,
    texts: &[String],
) -> BTreeSet<String> {
    let path = file(environment);
    let mut all = read(&path);
    let key = key(subject, root);
    let before = all.get(&key).cloned().unwrap_or_default();
    let now = environment.now();
    let (current, recent) = updated(&before, texts, now);
    if current == before {
        return recent;
    }
    if current.is_empty() {
        all.remove(&key);
    } else {
        all.insert(key, current);
    }
    all.retain(|_, texts| texts.values().any(|at| is_recent(*at, now)));
    while all.len() > MAX_PROJECTS {
        all.pop_first();
    }
    let written = private_dir(&environment.dirs.state)
        .and_then(|()| write_private_file(&path, &serde_json::to_vec(&all).unwrap_or_default()));
    if let Err(e) = written {
        tracing::info!("notices that were shown are not remembered: {e}");
    }
    recent
}

fn read(path: &Path) -> Reported {
    let text = crate::file::read_small(path, MAX_FILE_BYTES).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let interval = u64::try_from(REPEAT_INTERVAL.as_millis()).unwrap_or(u64::MAX);
    now.0.abs_diff(at.0) < interval
}

/// Returns the texts with the times when each is last shown, and those that are not shown now.
fn updated(
    before: &BTreeMap<String, Timestamp>,
    texts: &[String],
    now: Timestamp,
) -> (BTreeMap<String, Timestamp>, BTreeSet<String>) {
    let mut current = BTreeMap::new();
    let mut recent = BTreeSet::new();
    for text in texts {
        let shown = before.get(text).filter(|at| is_recent(**at, now));
        if shown.is_some() {
            recent.insert(text.clone());
        }
        current.insert(text.clone(), shown.copied().unwrap_or(now));
    }
    (current, recent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_is_shown_again_after_a_day_or_when_it_had_gone() {
        const HOUR: u64 = 60 * 60 * 1_000;
        let mut shown = BTreeMap::new();
        let mut at = |hour: u64, texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let (current, recent) = updated(&shown, &texts, Timestamp(1 + hour * HOUR));
            shown = current;
            let due: Vec<String> = texts
                .into_iter()
                .filter(|text| !recent.contains(text))
                .collect();
            due.join(" ")
        };
        assert_eq!(at(0, &["a", "b"]), "a b");
        assert_eq!(at(1, &["a", "b"]), "");
        assert_eq!(at(2, &["b", "c"]), "c");
        assert_eq!(at(3, &["a", "b", "c"]), "a");
        // Later sessions do not postpone it.
        assert_eq!(at(23, &["b"]), "");
        assert_eq!(at(24, &["b"]), "b");
    }

    #[test]
    fn projects_and_subjects_are_remembered_apart() {
        let home = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        let shown = |root: &str, subject: &str| {
            let texts = ["a".to_owned()];
            !shown_before(&environment, Path::new(root), subject, &texts).is_empty()
        };
        let looked = || {
            let texts = ["a".to_owned()];
            !shown_recently(&environment, Path::new("/p"), "settings", &texts).is_empty()
        };
        // Looking is not showing.
        assert!(!looked());
        assert!(!looked());
        assert!(!shown("/p", "settings"));
        assert!(looked());
        assert!(shown("/p", "settings"));
        assert!(!shown("/q", "settings"));
        assert!(!shown("/p", "trust"));
        assert!(shown("/p", "settings"));
    }
}
