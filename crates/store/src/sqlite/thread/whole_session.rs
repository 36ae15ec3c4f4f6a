//! Operations on a whole session: create, load, import, change its record, delete.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::super::fill::IndexFill;
use super::super::search_index;
use super::Thread;
use crate::job::StoreJob;
use crate::sqlite::background_writer::{ImportJob, ImportResult};
use crate::sqlite::session::{self, IndexUpdate};
use crate::sqlite::{beginning, peek, read_out, salvage};
use crate::write::SessionWrite;
use crate::{
    Error, LoadOptions, Record, RecordChange, ReplySender, StoredSession, StreamedSession,
    TitleSource,
};
use base::id::SessionId;

/// The message for a file that has fewer messages than the index knows of.
const NEWEST_MISSING: &str = "The newest part of this session is missing: its write-ahead log was removed or emptied, or an older copy of its file was put in its place.";

/// The number of the last message if there is none.
const NONE_YET: i64 = 0;

impl Thread {
    pub(super) fn create(&mut self, record: &Record) -> Result<(), Error> {
        self.lock(&record.id)?;
        self.created.insert(record.id.clone(), record.clone());
        Ok(())
    }

    /// Returns a session's record from memory or the index, and the number of the last message.
    /// Returns `None` if the index cannot be read: the session's file still can.
    pub(super) fn known_record(&mut self, session: &SessionId) -> Option<(Record, i64)> {
        if let Some(record) = self.created.get(session) {
            return Some((record.clone(), NONE_YET));
        }
        self.with_index(|index| index.get(session))
            .unwrap_or_else(|e| {
                tracing::warn!("reading without the index: {e}");
                None
            })
    }

    /// Reads a session and holds it open.
    pub(super) fn load(
        &mut self,
        session: &SessionId,
        options: LoadOptions,
    ) -> Result<(StoredSession, usize), Error> {
        let LoadOptions {
            without_old_results,
            fallback_record,
            first_messages: wanted,
        } = options;
        let (known, messages) = self
            .known_record(session)
            .map_or((None, NONE_YET), |(known, last)| (Some(known), last));
        let path = session::path(&self.dir, session);
        let (is_there, empty) = match std::fs::symlink_metadata(&path) {
            Ok(meta) => (
                true,
                meta.is_file() && meta.len() == 0 && !self.open.contains(session),
            ),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (false, true),
            Err(e) => return Err(super::super::unwritable_file(&path)(e)),
        };
        // The log of a missing file may be a remnant of a deleted session.
        let has_log = salvage::has_log(&path) && (is_there || known.is_some());
        let fallback = if is_there {
            fallback_record.map(|record| *record)
        } else {
            None
        };
        let identified = known.clone().or(fallback);
        if empty && !has_log && messages == NONE_YET && (known.is_some() || identified.is_none()) {
            return self.load_empty(session, known);
        }
        self.lock(session)?;
        let torn = if empty || self.open.contains(session) {
            None
        } else {
            salvage::torn_log(&path)
        };
        let read = if empty {
            // A file that was removed while it was open accepts no writes.
            self.open.remove(session);
            let reason = if is_there {
                "it is empty"
            } else {
                "it is gone"
            };
            Err(session::damaged(session, &path, reason.into()))
        } else {
            self.send_beginning(session, wanted);
            self.read(session, known.clone(), without_old_results)
                .map_err(|e| match e {
                    Error::NotFound(_) if torn.is_some() => {
                        session::damaged(session, &path, peek::TORN_LOG.into())
                    }
                    e => e,
                })
        };
        let (mut stored, messages_without_results) = match read {
            Err(damaged @ Error::Damaged { .. }) => {
                self.open.remove(session);
                (
                    salvage::salvage(&self.dir, session, identified, damaged)?,
                    0,
                )
            }
            read => read?,
        };
        stored.damage.extend(torn);
        self.compare(session, stored, known.as_ref(), messages)
            .map(|stored| (stored, messages_without_results))
    }

    /// Loads a session that has no message and no file.
    fn load_empty(
        &mut self,
        session: &SessionId,
        known: Option<Record>,
    ) -> Result<(StoredSession, usize), Error> {
        let record = known.ok_or_else(|| Error::NotFound(session.clone()))?;
        self.lock(session)?;
        // A file that was removed while it was open accepts no writes.
        self.open.remove(session);
        self.created.insert(session.clone(), record.clone());
        Ok((
            StoredSession {
                record,
                messages: Vec::new(),
                damage: Vec::new(),
            },
            0,
        ))
    }

    /// Sends the first messages of a session, while the rest of it is still to be read.
    fn send_beginning(
        &mut self,
        session: &SessionId,
        wanted: Option<oneshot::Sender<StoredSession>>,
    ) {
        let Some(wanted) = wanted else { return };
        // Damage is reported when the whole file is read.
        let first = self
            .open_file(session, false)
            .ok()
            .and_then(|file| beginning::read(file.db()));
        if let Some(first) = first {
            // The receiver may have been cancelled.
            wanted.send(first).ok();
        }
    }

    fn read(
        &mut self,
        session: &SessionId,
        fallback: Option<Record>,
        without_old_results: bool,
    ) -> Result<(StoredSession, usize), Error> {
        self.open_file(session, false).and_then(|file| {
            let read = file.read(fallback.clone(), without_old_results)?;
            file.remember(fallback)
                .inspect_err(|e| tracing::warn!("{e}"))
                .ok(); // it can be read all the same
            Ok(read)
        })
    }

    /// Compares the loaded session with the index, and updates the index.
    fn compare(
        &mut self,
        session: &SessionId,
        mut stored: StoredSession,
        known: Option<&Record>,
        messages: i64,
    ) -> Result<StoredSession, Error> {
        let here = match self.open.get(session) {
            Some(file) => file.messages()?,
            // The file was rebuilt from its readable parts.
            None => i64::try_from(stored.messages.len()).unwrap_or(i64::MAX),
        };
        if here < messages && stored.damage.is_empty() {
            stored.damage.push(NEWEST_MISSING.into());
        }
        if known != Some(&stored.record) || here != messages {
            self.update_index(&IndexUpdate {
                record: stored.record.clone(),
                messages: here,
            });
        }
        Ok(stored)
    }

    pub(super) fn has(&mut self, session: &SessionId) -> Result<bool, Error> {
        Ok(session::path(&self.dir, session).exists() || self.known_record(session).is_some())
    }

    /// Reads a session that may be open in another process, without opening it here.
    pub(super) fn peek(&mut self, session: &SessionId) -> Result<StoredSession, Error> {
        let (known, before) = self
            .known_record(session)
            .map_or((None, NONE_YET), |(known, last)| (Some(known), last));
        if let Some(file) = self.open.get(session) {
            return file.load(known);
        }
        let mut stored = match (peek::peek(&self.dir, session, known.clone()), known) {
            // It has no prompt yet, or its file is missing.
            (Err(Error::NotFound(_)), Some(record)) => StoredSession {
                record,
                messages: Vec::new(),
                damage: Vec::new(),
            },
            (read, _) => read?,
        };
        // Another process may have added or removed messages in the meantime.
        let messages = before.min(
            self.known_record(session)
                .map_or(NONE_YET, |(_, last)| last),
        );
        let here = i64::try_from(stored.messages.len()).unwrap_or(i64::MAX);
        if here < messages && stored.damage.is_empty() {
            let path = session::path(&self.dir, session);
            stored.damage.push(match here {
                NONE_YET => {
                    format!(
                        "The file of this session is empty or missing, so its messages are lost: {}.",
                        path.display()
                    )
                }
                _ => NEWEST_MISSING.into(),
            });
        }
        Ok(stored)
    }

    /// Reads the present state of a session, one message at a time if its file permits that.
    pub(super) fn read_out(&mut self, session: &SessionId) -> Result<StreamedSession, Error> {
        let (known, before) = self
            .known_record(session)
            .map_or((None, NONE_YET), |(known, last)| (Some(known), last));
        if self.open.get(session).is_none()
            && let Some((feed, last)) = read_out::open(&self.dir, session)
            && (known.is_none() || last >= before)
        {
            return Ok(feed);
        }
        self.peek(session).map(StreamedSession::from)
    }

    /// Starts to store a complete new session, which stays closed. It is written on a thread of its
    /// own, because it can be long.
    pub(super) fn import(&mut self, feed: StreamedSession, reply: ReplySender<()>) {
        if let Err(e) = self.begin_import(&feed.record.id) {
            drop(reply.send(Err(e)));
            return;
        }
        self.in_background.insert(feed.record.id.clone());
        let job = ImportJob {
            dir: self.dir.clone(),
            session: feed,
            reply,
        };
        if let Err(job) = self.background_writer.start_import(job) {
            // No thread could be started.
            self.finish_import(job.run());
        }
    }

    fn begin_import(&mut self, id: &SessionId) -> Result<(), Error> {
        let taken = session::path(&self.dir, id).exists() || self.known_record(id).is_some();
        if taken || self.locks.contains_key(id) {
            return Err(Error::AlreadyExists(id.clone()));
        }
        self.lock(id)
    }

    pub(super) fn finish_import(&mut self, imported: ImportResult) {
        let id = &imported.session;
        self.in_background.remove(id);
        self.release(id);
        let result = imported.update.map(|update| self.update_index(&update));
        if result.is_err() {
            session::remove_files(&session::path(&self.dir, id)).ok();
        }
        if let Some(reply) = imported.reply {
            drop(reply.send(result));
        }
    }

    pub(super) fn change(
        &mut self,
        session: &SessionId,
        amend: RecordChange,
    ) -> Result<Record, Error> {
        let was_owned = self.locks.contains_key(session);
        let changed = self
            .load(
                session,
                LoadOptions {
                    without_old_results: true,
                    ..LoadOptions::default()
                },
            )
            .and_then(|(stored, _)| {
                let mut record = stored.record;
                // The file may be missing, or not created yet; the change must be saved in any
                // case.
                self.mark_written(session);
                let file = self.open_file(session, true)?;
                file.remember(Some(record.clone()))?;
                let update = file.write(&[SessionWrite::Amend(amend.clone())], true)?;
                self.created.remove(session);
                amend.apply(&mut record);
                if let Some(update) = update {
                    self.update_index(&update);
                }
                Ok(record)
            });
        if !was_owned {
            self.release(session);
        }
        changed
    }

    pub(super) fn delete(&mut self, session: &SessionId) -> Result<(), Error> {
        // The scan may end between the two queries, so its state is read before the first one.
        let running = self.running_fill()?;
        for child in self.with_complete_index(|index| index.children(session))? {
            self.delete(&child)?;
        }
        self.remove(session)?;
        if let Some(fill) = running {
            self.delete_later_children(session, &fill);
        }
        Ok(())
    }

    /// Deletes the children of a deleted session, unless they are open.
    pub(super) fn delete_orphans(&mut self, session: &SessionId) -> Result<(), Error> {
        if session::path(&self.dir, session).exists() {
            return Ok(()); // it was imported again
        }
        for child in self.with_complete_index(|index| index.children(session))? {
            self.delete_if_not_open(&child, false)?;
        }
        Ok(())
    }

    /// Returns the scan that may still add sessions to the index.
    fn running_fill(&mut self) -> Result<Option<Arc<IndexFill>>, Error> {
        let fill = self.with_complete_index(|index| Ok(index.fill()))?;
        Ok(fill.filter(|fill| !fill.is_over()))
    }

    /// Schedules the deletion of children that `fill` has not added to the index yet.
    fn delete_later_children(&self, session: &SessionId, fill: &IndexFill) {
        let jobs = self.background_writer.jobs();
        let session = session.clone();
        fill.when_over(move || {
            if let Some(jobs) = jobs.upgrade() {
                // No caller waits for it.
                jobs.put(StoreJob::DeleteOrphans { session });
            }
        });
    }

    /// Deletes a session that has no message and no title chosen by the user. Returns true if it
    /// was deleted.
    pub(super) fn leave(&mut self, session: &SessionId) -> Result<bool, Error> {
        if !session::path(&self.dir, session).exists() {
            return Ok(false); // it is dropped when it is released
        }
        let file = self.open_file(session, false)?;
        if file.messages()? > NONE_YET
            || file
                .record()?
                .is_none_or(|record| record.title_source == TitleSource::User)
        {
            return Ok(false);
        }
        self.remove(session).map(|()| true)
    }

    /// Deletes a session that is not open here; if `only_if_empty`, only one that [`Self::leave`]
    /// deletes.
    pub(super) fn delete_if_not_open(
        &mut self,
        session: &SessionId,
        only_if_empty: bool,
    ) -> Result<bool, Error> {
        if self.locks.contains_key(session) {
            return Ok(false);
        }
        if !only_if_empty {
            return self.delete(session).map(|()| true);
        }
        let left = self.leave(session);
        self.release(session);
        left
    }

    fn remove(&mut self, session: &SessionId) -> Result<(), Error> {
        // A session that is open in another process must not be deleted; a damaged one can be.
        self.lock(session)?;
        let path = session::path(&self.dir, session);
        self.open.remove(session);
        self.created.remove(session);
        self.unwritten.remove(session);
        // The index comes first: if the process is killed in between, a complete session is left,
        // which is found again, and not an entry without a file.
        let gone = self
            .with_index(|index| index.remove(session))
            .and_then(|()| session::remove_files(&path));
        // The process that fills the index may have read the file in the meantime.
        let gone = gone.and_then(|()| self.with_index(|index| index.remove(session)));
        // The search index must forget the session too, even if the deletion failed.
        let unindexed = self
            .search_index()
            .and_then(|index| index.map_or(Ok(()), |index| index.remove(session)));
        if let Err(e) = unindexed {
            tracing::warn!("the search index cannot be written to ({e}), and is removed");
            self.search_index = None;
            search_index::discard(&self.dir)?;
        }
        self.release(session);
        gone
    }
}
