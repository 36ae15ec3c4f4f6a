//! What the user has said about projects, kept in the user's own data directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Decision, Review};
use crate::environment::{Environment, Timestamp, private_dir};

/// What the user said about projects, in the user's own data directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    path: PathBuf,
    entries: BTreeMap<String, TrustEntry>,
}

/// What the user said about one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustEntry {
    pub decision: Decision,
    pub digest: String,
    pub at: Timestamp,
    /// What it was about, a line each, for listing.
    #[serde(default)]
    pub items: Vec<String>,
}

impl TrustStore {
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("trust.json")
    }

    /// Where nothing is said any more.
    pub fn taken_back(now: Timestamp) -> TrustEntry {
        TrustEntry { decision: Decision::Unasked, digest: String::new(), at: now, items: Vec::new() }
    }

    /// Reads it. What cannot be read counts as nothing said.
    pub fn open(environment: &Environment) -> Self {
        let path = Self::path(environment);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Self { entries: serde_json::from_str(&text).unwrap_or_default(), path }
    }

    /// What was said about exactly this.
    pub fn decision(&self, root: &Path, digest: &str) -> Decision {
        match self.entries.get(&key(root)) {
            Some(entry) if entry.digest == digest => entry.decision,
            _ => Decision::Unasked,
        }
    }

    /// What was said about a project, whatever it was about.
    pub fn entry(&self, root: &Path) -> Option<&TrustEntry> {
        self.entries.get(&key(root))
    }

    /// Keeps what was said on another machine; nothing any more, where it was taken back there.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn take(&mut self, root: &Path, entry: TrustEntry) -> io::Result<()> {
        if entry.decision == Decision::Unasked {
            return self.revoke(root).map(drop);
        }
        if self.entry(root) == Some(&entry) {
            return Ok(());
        }
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Keeps what the user said.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn decide(&mut self, root: &Path, review: &Review, yes: bool, now: Timestamp) -> io::Result<()> {
        let entry = TrustEntry {
            decision: if yes { Decision::Trusted } else { Decision::Refused },
            digest: review.digest.clone(),
            at: now,
            items: review.items.iter().map(ToString::to_string).collect(),
        };
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Forgets what was said about a project. Says whether there was anything.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn revoke(&mut self, root: &Path) -> io::Result<bool> {
        let was = self.entries.remove(&key(root)).is_some();
        if was {
            self.write()?;
        }
        Ok(was)
    }

    /// Everything that was said, by project.
    pub fn list(&self) -> impl Iterator<Item = (&str, &TrustEntry)> {
        self.entries.iter().map(|(root, entry)| (root.as_str(), entry))
    }

    fn write(&self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut file, &self.entries)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

fn key(root: &Path) -> String {
    std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf()).display().to_string()
}
