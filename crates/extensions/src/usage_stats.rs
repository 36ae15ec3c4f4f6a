//! Statistics of the hooks, tools and plugins of a project, stored at the end of a session for
//! `adjutant extensions`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::environment::{Environment, private_dir, write_private_file};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The statistics of one extension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub calls: u64,
    pub spent: Duration,
    /// The last error.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Whether it changes the system prompt each time although nothing else has changed, so that no
    /// provider's cache applies.
    #[serde(default, rename = "wavers")]
    pub has_unstable_prompt: bool,
}

/// Statistics by the name of the hook or the file.
pub type Tallies = BTreeMap<String, Tally>;

/// Returns the path of a project's statistics.
fn file(environment: &Environment, root: &Path) -> PathBuf {
    let name = ring::digest::digest(&ring::digest::SHA256, root.as_os_str().as_encoded_bytes());
    let name: String = name
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    environment
        .dirs
        .data
        .join("extensions")
        .join(format!("{name}.json"))
}

/// Reads the statistics of a project.
pub fn read(environment: &Environment, root: &Path) -> Tallies {
    let path = file(environment, root);
    let text = base::file::read_small(&path, MAX_FILE_BYTES).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Adds to the stored statistics. Blocks. If two processes write at once, one of the additions may
/// be lost.
pub fn add(environment: &Environment, root: &Path, more: Tallies) {
    if more.is_empty() {
        return;
    }
    let mut all = read(environment, root);
    for (name, tally) in more {
        let known = all.entry(name).or_default();
        known.calls += tally.calls;
        known.spent += tally.spent;
        known.has_unstable_prompt |= tally.has_unstable_prompt;
        known.last_error = tally.last_error.or(known.last_error.take());
    }
    let path = file(environment, root);
    let written = path.parent().map_or(Ok(()), private_dir);
    let written = written
        .and_then(|()| write_private_file(&path, &serde_json::to_vec(&all).unwrap_or_default()));
    if let Err(e) = written {
        tracing::info!("the statistics of extensions are not saved: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_statistics_are_summed() {
        let home = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        let root = Path::new("/p");
        let tallies = |calls, error: Option<&str>| {
            let tally = Tally {
                calls,
                spent: Duration::from_millis(calls),
                last_error: error.map(str::to_owned),
                has_unstable_prompt: false,
            };
            Tallies::from([("a".to_owned(), tally)])
        };
        assert!(read(&environment, root).is_empty());
        add(&environment, root, tallies(2, Some("no")));
        add(&environment, root, tallies(3, None));
        let wanted = Tally {
            calls: 5,
            spent: Duration::from_millis(5),
            last_error: Some("no".into()),
            has_unstable_prompt: false,
        };
        assert_eq!(read(&environment, root)["a"], wanted);
        assert!(read(&environment, Path::new("/q")).is_empty());
    }
}
