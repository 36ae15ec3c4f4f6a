//! Statistics of the hooks, tools and plugins of a project: how often and how long they ran, and their last
//! error. A session adds them to a file of the project when it ends; `adjutant extensions` shows them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::environment::{Environment, private_dir, write_private_file};

/// The maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The statistics of one extension.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageStats {
    pub calls: u64,
    /// The total duration of all calls.
    pub spent: Duration,
    /// The last error.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The plugin changes the system prompt each time although nothing else has changed, so that no
    /// provider can cache it.
    #[serde(default, rename = "wavers")]
    pub has_unstable_prompt: bool,
}

/// Statistics of a project's extensions, by `hook NAME` for a hook and by the file's name otherwise.
pub type UsageByName = BTreeMap<String, UsageStats>;

/// Returns the path of a project's statistics.
fn stats_file(environment: &Environment, root: &Path) -> PathBuf {
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

/// Reads the statistics of a project; none if there are none or the file is unreadable.
pub fn read(environment: &Environment, root: &Path) -> UsageByName {
    let path = stats_file(environment, root);
    let text = base::file::read_small(&path, MAX_FILE_BYTES).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Adds to the stored statistics. Blocks. If two processes write at once, one of the additions may
/// be lost.
pub fn add(environment: &Environment, root: &Path, more: UsageByName) {
    if more.is_empty() {
        return;
    }
    let mut all = read(environment, root);
    for (name, stats) in more {
        let known = all.entry(name).or_default();
        known.calls += stats.calls;
        known.spent += stats.spent;
        known.has_unstable_prompt |= stats.has_unstable_prompt;
        known.last_error = stats.last_error.or(known.last_error.take());
    }
    let path = stats_file(environment, root);
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
        let usage = |calls, error: Option<&str>| {
            let stats = UsageStats {
                calls,
                spent: Duration::from_millis(calls),
                last_error: error.map(str::to_owned),
                has_unstable_prompt: false,
            };
            UsageByName::from([("a".to_owned(), stats)])
        };
        assert!(read(&environment, root).is_empty());
        add(&environment, root, usage(2, Some("no")));
        add(&environment, root, usage(3, None));
        let wanted = UsageStats {
            calls: 5,
            spent: Duration::from_millis(5),
            last_error: Some("no".into()),
            has_unstable_prompt: false,
        };
        assert_eq!(read(&environment, root)["a"], wanted);
        assert!(read(&environment, Path::new("/q")).is_empty());
    }
}
