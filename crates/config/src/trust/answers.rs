//! What the user has said about projects, kept in the user's own data directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::guards::TrustedGuard;
use super::{Decision, Review};
use crate::disk::plain;
use crate::node::{ConfigOrigin, Layer, SourceLocation};
use crate::problem::{Problem, ProblemCode};
use base::environment::{Environment, Timestamp, private_dir};

/// The largest file of answers that is read.
const LARGEST: u64 = 16 << 20;

/// How many unreadable files of answers are kept beside the one that is in use.
const MAX_ASIDE: usize = 1_000;

/// What the user said about projects, in the user's own data directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    path: PathBuf,
    entries: BTreeMap<String, TrustEntry>,
    /// The reason the file cannot be read.
    unread: Option<Unread>,
}

/// The reason the answers cannot be read, with the place in the file.
#[derive(Debug, Clone)]
struct Unread {
    code: ProblemCode,
    line: u32,
    column: u32,
    why: String,
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
    /// The hooks and plugins among it that could refuse calls.
    #[serde(default)]
    pub guards: Vec<TrustedGuard>,
}

impl TrustStore {
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("trust.json")
    }

    /// Where nothing is said any more.
    pub fn taken_back(now: Timestamp) -> TrustEntry {
        TrustEntry {
            decision: Decision::Unasked,
            digest: String::new(),
            at: now,
            items: Vec::new(),
            guards: Vec::new(),
        }
    }

    /// Reads it. What cannot be read counts as nothing said, and is told as a problem.
    pub fn open(environment: &Environment) -> Self {
        let path = Self::path(environment);
        match read(&path) {
            Ok(entries) => Self { path, entries, unread: None },
            Err(unread) => Self { path, entries: BTreeMap::new(), unread: Some(unread) },
        }
    }

    /// Returns why the answers cannot be read. `shown` is what the file is called for people.
    pub fn problem(&self, shown: String) -> Option<Problem> {
        let unread = self.unread.as_ref()?;
        let origin = ConfigOrigin { name: shown, path: Some(self.path.clone()), layer: Layer::Global, project: false };
        let place =
            SourceLocation { line: unread.line, column: unread.column, ..SourceLocation::whole(&origin.into()) };
        let text =
            format!("your answers about projects cannot be read: {}; guards that you trusted may be off", unread.why);
        Some(
            Problem::warning(unread.code, &place, "", text).hint("repair this file, or answer again: `adjutant trust`"),
        )
    }

    /// Returns where an unreadable file of answers is moved before the next answer is written.
    pub fn aside(&self) -> Option<PathBuf> {
        self.unread.as_ref()?;
        let names = (1..MAX_ASIDE).map(|number| match number {
            1 => "trust.json.unreadable".to_owned(),
            _ => format!("trust.json.unreadable-{number}"),
        });
        names.map(|name| self.path.with_file_name(name)).find(|path| path.symlink_metadata().is_err())
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
    /// Where it cannot be written, or not be read: only the user replaces what cannot be read.
    pub fn take(&mut self, root: &Path, entry: TrustEntry) -> io::Result<()> {
        self.readable()?;
        if entry.decision == Decision::Unasked {
            return self.revoke(root).map(drop);
        }
        if self.entry(root) == Some(&entry) {
            return Ok(());
        }
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Keeps what the user said. A file of answers that cannot be read is moved to [`Self::aside`] first.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn decide(&mut self, root: &Path, review: &Review, yes: bool, now: Timestamp) -> io::Result<()> {
        let entry = TrustEntry {
            decision: if yes { Decision::Trusted } else { Decision::Refused },
            digest: review.digest.clone(),
            at: now,
            items: review.items.iter().map(ToString::to_string).collect(),
            guards: review.guards.clone(),
        };
        if let Some(aside) = self.aside() {
            std::fs::rename(&self.path, aside)?;
            self.unread = None;
        }
        self.readable()?;
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Forgets what was said about a project. Says whether there was anything.
    ///
    /// # Errors
    /// Where it cannot be written, or not be read.
    pub fn revoke(&mut self, root: &Path) -> io::Result<bool> {
        self.readable()?;
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

    fn readable(&self) -> io::Result<()> {
        let Some(unread) = &self.unread else { return Ok(()) };
        let place = if unread.line == 0 { String::new() } else { format!(":{}:{}", unread.line, unread.column) };
        Err(io::Error::other(format!("{}{place} cannot be read: {}", self.path.display(), unread.why)))
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

/// Reads all answers; none if there is no file.
fn read(path: &Path) -> Result<BTreeMap<String, TrustEntry>, Unread> {
    let unreadable = |why: String| Unread { code: ProblemCode::Unreadable, line: 0, column: 0, why };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(_) if path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) => {
            return Err(unreadable("it is a link to something that cannot be reached".into()));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(unreadable(plain(&e))),
    };
    // Reading a pipe would wait for its writer.
    if !meta.is_file() {
        return Err(unreadable("it is not a file".into()));
    }
    if meta.len() > LARGEST {
        return Err(unreadable(format!("it has more than {} MiB", LARGEST >> 20)));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(plain(&e)))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let (line, column) = (number(e.line()), number(e.column().max(1)));
        let text = e.to_string();
        let why = text.split(" at line ").next().unwrap_or_default().to_owned();
        Unread { code: ProblemCode::Syntax, line, column, why }
    })
}

fn key(root: &Path) -> String {
    std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf()).display().to_string()
}
