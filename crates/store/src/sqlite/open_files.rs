//! The open session files, ordered by their last use.
//!
//! Opening a file for each write costs seven times as much as leaving it open, so all files in use
//! stay open, within the process's limit of descriptors. An open file takes memory, so only a few
//! of those that have not been used for a while stay open.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::session::SessionFile;
use base::id::SessionId;
use base::open_files::{self, SessionFiles};

/// The time for which a file counts as in use: longer than the pause between two deltas of an
/// answer, or two calls of a turn.
const IN_USE_TIME: Duration = Duration::from_secs(60);

/// The maximum number of files that stay open although they are not in use.
const MAX_IDLE_FILES: usize = 64;

/// The number of descriptors of an open session file: the file and its log.
const FILES_PER_OPEN_SESSION: u64 = 2;

/// The limits of the number of open session files; each of them takes memory.
const MIN_OPEN_FILES: usize = 2;
const MAX_OPEN_FILES: usize = 4096;

#[derive(Default)]
pub(super) struct OpenFiles {
    files: HashMap<SessionId, OpenFile>,
    /// The session of each use, by the number of the use: the least recently used file comes first.
    order: BTreeMap<u64, SessionId>,
    uses: u64,
}

struct OpenFile {
    file: SessionFile,
    _files: SessionFiles,
    use_number: u64,
    used: Instant,
}

impl OpenFiles {
    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.files.contains_key(session)
    }

    pub(super) fn get(&self, session: &SessionId) -> Option<&SessionFile> {
        self.files.get(session).map(|open| &open.file)
    }

    pub(super) fn get_mut(&mut self, session: &SessionId) -> Option<&mut SessionFile> {
        self.files.get_mut(session).map(|open| &mut open.file)
    }

    /// Adds a file that was used just now.
    pub(super) fn insert(&mut self, session: SessionId, file: SessionFile, now: Instant) {
        self.remove(&session);
        self.uses += 1;
        self.order.insert(self.uses, session.clone());
        self.files.insert(
            session,
            OpenFile {
                file,
                _files: SessionFiles::cached(FILES_PER_OPEN_SESSION),
                use_number: self.uses,
                used: now,
            },
        );
    }

    pub(super) fn remove(&mut self, session: &SessionId) -> Option<SessionFile> {
        let open = self.files.remove(session)?;
        self.order.remove(&open.use_number);
        Some(open.file)
    }

    /// Closes the least recently used files until the sessions of this process have no more
    /// descriptors than their share, and only a few files are open that are not in use.
    pub(super) fn close_beyond_share(&mut self, now: Instant) {
        let surplus = open_files::surplus().div_ceil(FILES_PER_OPEN_SESSION);
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        let max_open = self.files.len().saturating_sub(surplus);
        self.close_surplus(max_open.clamp(MIN_OPEN_FILES, MAX_OPEN_FILES), now);
    }

    /// Closes the least recently used files until at most `max_open` are open, and only a few that
    /// are not in use.
    fn close_surplus(&mut self, max_open: usize, now: Instant) {
        while let Some((_, oldest)) = self.order.first_key_value() {
            let is_idle = self
                .files
                .get(oldest)
                .is_none_or(|open| now.saturating_duration_since(open.used) >= IN_USE_TIME);
            let allowed = if is_idle {
                max_open.min(MAX_IDLE_FILES)
            } else {
                max_open
            };
            if self.files.len() <= allowed {
                return;
            }
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_surplus_leaves_files_in_use_and_a_few_others() {
        let dir = tempfile::tempdir().unwrap();
        let id = |n: usize| SessionId::new(format!("ses_{n:08}"));
        let mut open = OpenFiles::default();
        let started = Instant::now();
        let fill = |open: &mut OpenFiles, numbers: std::ops::Range<usize>, at: Instant| {
            for n in numbers {
                open.insert(
                    id(n),
                    SessionFile::open(dir.path(), &id(n), true).unwrap(),
                    at,
                );
            }
        };
        fill(&mut open, 0..100, started);
        open.close_surplus(1000, started);
        assert_eq!(open.files.len(), 100, "all of them are in use");
        // The first file is used again, and is the last to be closed.
        let first = open.remove(&id(0)).unwrap();
        let later = started + IN_USE_TIME;
        open.insert(id(0), first, later);
        open.close_surplus(1000, later);
        assert_eq!(
            (open.files.len(), open.order.len()),
            (MAX_IDLE_FILES, MAX_IDLE_FILES)
        );
        assert!(open.contains(&id(0)) && !open.contains(&id(36)) && open.contains(&id(37)));
        fill(&mut open, 100..103, later);
        open.close_surplus(3, later);
        assert_eq!(
            open.order.values().cloned().collect::<Vec<_>>(),
            [id(100), id(101), id(102)]
        );
    }
}
