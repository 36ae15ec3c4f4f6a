//! The user's answers about projects, stored in the user's own data directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::covered::CoveredItem;
use super::{Decision, Review};
use crate::node::{ConfigOrigin, Layer, SourceLocation};
use crate::problem::{Problem, ProblemCode};
use crate::reader::plain;
use base::environment::{Environment, Timestamp, private_dir};

/// The maximum size of the file of answers.
const MAX_BYTES: u64 = 16 << 20;

/// The maximum number of unreadable files of answers that are preserved.
const MAX_MOVED_COPIES: usize = 1_000;

/// The user's answers about projects, in the user's own data directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    path: PathBuf,
    entries: BTreeMap<String, TrustEntry>,
    /// The reason why the file cannot be read.
    unread: Option<UnreadableAnswers>,
}

/// The reason why the answers cannot be read, with the location in the file.
#[derive(Debug, Clone)]
struct UnreadableAnswers {
    code: ProblemCode,
    line: u32,
    column: u32,
    reason: String,
}

/// The user's answer about one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustEntry {
    pub decision: Decision,
    pub digest: String,
    pub at: Timestamp,
    /// The items that the answer is about, one line each, for listing.
    #[serde(default)]
    pub items: Vec<String>,
    /// The packages that were named as plugins and were not installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The hooks and plugins among the items that could refuse calls.
    #[serde(default)]
    pub guards: Vec<TrustedGuard>,
    /// The parts of the items that the answer covers; empty in older files, and if they are large.
    #[serde(default)]
    pub covered: Vec<CoveredItem>,
    /// The digest of later items about which the user answered "not now". The answer above stays,
    /// because changes and lost guards are determined by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postponed: Option<String>,
}

/// A hook or plugin that could refuse calls when the user trusted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedGuard {
    /// The key of its item: `hook.guard`, or the file of a plugin.
    pub key: String,
    /// True if it was written in a file of the project.
    pub project: bool,
    /// True if it covers only calls that would be asked about, instead of every call.
    #[serde(default)]
    pub only_questions: bool,
    /// The tools that it covered, as wildcards; all if empty.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub pattern: Option<String>,
    /// The displayed path of the file that contained it.
    pub file: String,
    #[serde(default)]
    pub line: u32,
    #[serde(default)]
    pub column: u32,
}

impl TrustStore {
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("trust.json")
    }

    /// Returns the entry of a revoked answer.
    pub fn revoked(now: Timestamp) -> TrustEntry {
        TrustEntry {
            decision: Decision::Unasked,
            digest: String::new(),
            at: now,
            items: Vec::new(),
            packages: Vec::new(),
            guards: Vec::new(),
            covered: Vec::new(),
            postponed: None,
        }
    }

    /// Returns whether the user's answer about a project lets these packages be fetched.
    pub fn allows_fetching(&self, root: &Path, specs: &[String]) -> bool {
        self.entry(root).is_some_and(|entry| {
            entry.decision == Decision::Trusted
                && specs.iter().all(|spec| entry.packages.contains(spec))
        })
    }

    /// Reads the answers. A file that cannot be read counts as empty and is reported as a problem.
    pub fn open(environment: &Environment) -> Self {
        let path = Self::path(environment);
        match read(&path) {
            Ok(entries) => Self {
                path,
                entries,
                unread: None,
            },
            Err(unread) => Self {
                path,
                entries: BTreeMap::new(),
                unread: Some(unread),
            },
        }
    }

    /// Returns the problem of an unreadable file. `shown` is the displayed path of the file.
    pub fn problem(&self, shown: String) -> Option<Problem> {
        let unread = self.unread.as_ref()?;
        let origin = ConfigOrigin {
            name: shown,
            path: Some(self.path.clone()),
            layer: Layer::Global,
            project: false,
        };
        let location = SourceLocation {
            line: unread.line,
            column: unread.column,
            ..SourceLocation::whole_text(&origin.into())
        };
        let text = format!(
            "your answers about projects cannot be read: {}; guards that you trusted may be off",
            unread.reason
        );
        Some(
            Problem::warning(unread.code, &location, "", text)
                .hint("repair this file, or answer again: `adjutant trust`"),
        )
    }

    /// Returns the path to which an unreadable file of answers is moved before the next answer is
    /// written.
    pub fn moved_copy(&self) -> Option<PathBuf> {
        self.unread.as_ref()?;
        let names = (1..MAX_MOVED_COPIES).map(|number| match number {
            1 => "trust.json.unreadable".to_owned(),
            _ => format!("trust.json.unreadable-{number}"),
        });
        names
            .map(|name| self.path.with_file_name(name))
            .find(|path| path.symlink_metadata().is_err())
    }

    /// Returns the decision about the items of this digest. Trust covers exactly these; a refusal
    /// covers later ones as well.
    pub fn decision(&self, root: &Path, digest: &str) -> Decision {
        let Some(entry) = self.entry(root) else {
            return Decision::Unasked;
        };
        match entry.decision {
            Decision::Refused => Decision::Refused,
            Decision::Trusted if entry.digest == digest => Decision::Trusted,
            _ if entry.postponed.as_deref() == Some(digest) => Decision::Postponed,
            _ => Decision::Unasked,
        }
    }

    /// Returns the answer about a project, whatever its items were.
    pub fn entry(&self, root: &Path) -> Option<&TrustEntry> {
        self.entries.get(&key(root))
    }

    /// Stores an answer from another machine; removes the local one if it was revoked there. "Not
    /// now" is an answer of this machine.
    ///
    /// # Errors
    /// If the file cannot be written, or cannot be read: only the user replaces an unreadable file.
    pub fn take(&mut self, root: &Path, mut entry: TrustEntry) -> io::Result<()> {
        let _lock = self.lock()?;
        self.check_readable()?;
        let own = self.entry(root);
        entry.postponed = own.and_then(|own| own.postponed.clone());
        if entry.decision == Decision::Unasked {
            return match own.map(|own| own.decision) {
                None | Some(Decision::Unasked) => Ok(()),
                Some(_) => self.remove(root).map(drop),
            };
        }
        if self.entry(root) == Some(&entry) {
            return Ok(());
        }
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Stores the user's answer. An unreadable file of answers is moved to [`Self::moved_copy`]
    /// first.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn decide(
        &mut self,
        root: &Path,
        review: &Review,
        yes: bool,
        now: Timestamp,
    ) -> io::Result<()> {
        let entry = TrustEntry {
            decision: if yes {
                Decision::Trusted
            } else {
                Decision::Refused
            },
            digest: review.digest.clone(),
            at: now,
            items: review.items.iter().map(ToString::to_string).collect(),
            packages: review.not_installed.clone(),
            guards: review.guards.clone(),
            covered: CoveredItem::of_all(&review.items),
            postponed: None,
        };
        let _lock = self.lock()?;
        self.replace_unreadable()?;
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Stores that the user answered "not now" about these items. An earlier answer stays, as does
    /// its effect on the items that it covers.
    ///
    /// # Errors
    /// If the file cannot be written, or cannot be read: the answers in it are still in effect.
    pub fn postpone(&mut self, root: &Path, review: &Review, now: Timestamp) -> io::Result<()> {
        let _lock = self.lock()?;
        self.check_readable()?;
        let entry = self
            .entries
            .entry(key(root))
            .or_insert_with(|| Self::revoked(now));
        entry.postponed = Some(review.digest.clone());
        self.write()
    }

    /// Removes the answer about a project. Returns whether there was one.
    ///
    /// # Errors
    /// If the file cannot be written or read.
    pub fn revoke(&mut self, root: &Path) -> io::Result<bool> {
        let _lock = self.lock()?;
        self.check_readable()?;
        self.remove(root)
    }

    fn remove(&mut self, root: &Path) -> io::Result<bool> {
        let existed = self.entries.remove(&key(root)).is_some();
        if existed {
            self.write()?;
        }
        Ok(existed)
    }

    /// Returns all answers by project.
    pub fn list(&self) -> impl Iterator<Item = (&str, &TrustEntry)> {
        self.entries
            .iter()
            .map(|(root, entry)| (root.as_str(), entry))
    }

    /// Locks the answers against other processes, and reads them again: another process may have
    /// written an answer since.
    fn lock(&mut self) -> io::Result<std::fs::File> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let lock = std::fs::File::open(dir)?;
        lock.lock()?;
        (self.entries, self.unread) = match read(&self.path) {
            Ok(entries) => (entries, None),
            Err(unread) => (BTreeMap::new(), Some(unread)),
        };
        Ok(lock)
    }

    /// Moves an unreadable file aside, so that the user's answer begins a new one.
    fn replace_unreadable(&mut self) -> io::Result<()> {
        if let Some(moved_copy) = self.moved_copy() {
            std::fs::rename(&self.path, moved_copy)?;
            self.unread = None;
        }
        self.check_readable()
    }

    fn check_readable(&self) -> io::Result<()> {
        let Some(unread) = &self.unread else {
            return Ok(());
        };
        let location = if unread.line == 0 {
            String::new()
        } else {
            format!(":{}:{}", unread.line, unread.column)
        };
        Err(io::Error::other(format!(
            "{}{location} cannot be read: {}",
            self.path.display(),
            unread.reason
        )))
    }

    fn write(&mut self) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(&self.entries)?;
        // A larger file would not be read again, and the texts only show later changes.
        if bytes.len() as u64 > MAX_BYTES {
            self.entries
                .values_mut()
                .flat_map(|entry| entry.covered.iter_mut())
                .for_each(CoveredItem::forget_texts);
            bytes = serde_json::to_vec_pretty(&self.entries)?;
        }
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

/// Reads all answers; none if there is no file.
fn read(path: &Path) -> Result<BTreeMap<String, TrustEntry>, UnreadableAnswers> {
    let unreadable = |reason: String| UnreadableAnswers {
        code: ProblemCode::Unreadable,
        line: 0,
        column: 0,
        reason,
    };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(_) if path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) => {
            return Err(unreadable(
                "it is a link to something that cannot be reached".into(),
            ));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(unreadable(plain(&e))),
    };
    // Reading a pipe would block until its writer closes it.
    if !meta.is_file() {
        return Err(unreadable("it is not a file".into()));
    }
    if meta.len() > MAX_BYTES {
        return Err(unreadable(format!(
            "it is larger than {} MiB",
            MAX_BYTES >> 20
        )));
    }
    let bytes = base::file::read_small(path, MAX_BYTES).map_err(|e| unreadable(plain(&e)))?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let line = number(e.line());
        let column = number(e.column().max(1));
        let text = e.to_string();
        let reason = text
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned();
        UnreadableAnswers {
            code: ProblemCode::Syntax,
            line,
            column,
            reason,
        }
    })
}

fn key(root: &Path) -> String {
    std::fs::canonicalize(root)
        .unwrap_or_else(|_| root.to_path_buf())
        .display()
        .to_string()
}
