//! What is asked about a session as a whole: to make it, read it, take it in, change its record, remove it.

use super::Thread;
use crate::id::SessionId;
use crate::store::sqlite::session::{self, IndexUpdate};
use crate::store::sqlite::{peek, salvage};
use crate::store::write::SessionWrite;
use crate::store::{Error, Record, RecordChange, StoredSession, TitleSource};

/// The number of the last message where there is none.
const NONE_YET: i64 = 0;

impl Thread {
    pub(super) fn create(&mut self, record: &Record) -> Result<(), Error> {
        self.hold(&record.id)?;
        self.created.insert(record.id.clone(), record.clone());
        Ok(())
    }

    /// What is known of a session beside its file, and the number of the last message in that; a store
    /// without an index can still be read.
    pub(super) fn known(&mut self, session: &SessionId) -> Option<(Record, i64)> {
        if let Some(record) = self.created.get(session) {
            return Some((record.clone(), NONE_YET));
        }
        self.indexed(|index| index.get(session)).unwrap_or_else(|e| {
            tracing::warn!("reading without the index: {e}");
            None
        })
    }

    pub(super) fn load(&mut self, session: &SessionId, lean: bool) -> Result<(StoredSession, usize), Error> {
        let (known, messages) = self.known(session).map_or((None, NONE_YET), |(known, last)| (Some(known), last));
        let path = session::path(&self.dir, session);
        let empty = match std::fs::symlink_metadata(&path) {
            Ok(meta) => meta.is_file() && meta.len() == 0 && !self.open.contains_key(session),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
            Err(e) => return Err(Error::Unwritable(e.to_string())),
        };
        if empty {
            let record = known.ok_or_else(|| Error::NotFound(session.clone()))?;
            self.hold(session)?;
            // A file that is open and was removed takes nothing any more.
            self.open.remove(session);
            let mut damage = Vec::new();
            if messages > NONE_YET {
                // Told once: from here on it is a session without a message.
                damage.push(format!(
                    "The file of this session is empty or gone, and what was said in it with it: {}.",
                    path.display()
                ));
                self.indexed(|index| index.put(&record, NONE_YET)).ok();
            }
            self.created.insert(session.clone(), record.clone());
            return Ok((StoredSession { record, messages: Vec::new(), damage }, 0));
        }
        self.hold(session)?;
        let torn = if self.open.contains_key(session) { None } else { salvage::torn_log(&path) };
        let fallback = known.clone();
        let read = self.file(session, false).and_then(|file| {
            let read = file.read(fallback.clone(), lean)?;
            file.remember(fallback).inspect_err(|e| tracing::warn!("{e}")).ok(); // it can be read all the same
            Ok(read)
        });
        let (mut stored, cold) = match read {
            Err(damaged @ Error::Damaged { .. }) => {
                self.open.remove(session);
                (salvage::salvage(&self.dir, session, known.clone(), damaged)?, 0)
            }
            read => read?,
        };
        stored.damage.extend(torn);
        let here = match self.open.get(session) {
            Some(file) => file.messages()?,
            // Made anew of what could be read.
            None => i64::try_from(stored.messages.len()).unwrap_or(i64::MAX),
        };
        if here < messages && stored.damage.is_empty() {
            stored.damage.push(
                "The newest part of this session is missing: its write-ahead log was removed or emptied, or an older copy of its file was put in its place.".into(),
            );
        }
        if known.as_ref() != Some(&stored.record) || here != messages {
            self.note(&IndexUpdate { record: stored.record.clone(), messages: here });
        }
        Ok((stored, cold))
    }

    pub(super) fn has(&mut self, session: &SessionId) -> Result<bool, Error> {
        Ok(session::path(&self.dir, session).exists() || self.known(session).is_some())
    }

    /// Reads a session that may be open elsewhere, and stays closed here.
    pub(super) fn peek(&mut self, session: &SessionId) -> Result<StoredSession, Error> {
        let known = self.known(session).map(|(record, _)| record);
        if let Some(file) = self.open.get(session) {
            return file.load(known);
        }
        match (peek::peek(&self.dir, session, known.clone()), known) {
            // Never prompted.
            (Err(Error::NotFound(_)), Some(record)) => {
                Ok(StoredSession { record, messages: Vec::new(), damage: Vec::new() })
            }
            (read, _) => read,
        }
    }

    /// Keeps a whole session that is not here yet. It stays closed.
    pub(super) fn import(&mut self, stored: &StoredSession) -> Result<(), Error> {
        let id = &stored.record.id;
        let taken = session::path(&self.dir, id).exists() || self.known(id).is_some();
        if taken || self.locks.contains_key(id) {
            return Err(Error::Taken(id.clone()));
        }
        self.hold(id)?;
        let written = self.file(id, true).and_then(|file| file.write(&SessionWrite::of(stored), true));
        self.release(id);
        match written {
            Ok(kept) => {
                if let Some(kept) = kept {
                    self.note(&kept);
                }
                Ok(())
            }
            Err(e) => {
                session::remove_files(&session::path(&self.dir, id)).ok();
                Err(e)
            }
        }
    }

    pub(super) fn change(&mut self, session: &SessionId, amend: RecordChange) -> Result<Record, Error> {
        let ours = self.locks.contains_key(session);
        let changed = self.load(session, true).and_then(|(stored, _)| {
            let mut record = stored.record;
            // Its file may be gone, or not made yet: the change is to be kept all the same.
            let file = self.file(session, true)?;
            file.remember(Some(record.clone()))?;
            let kept = file.write(&[SessionWrite::Amend(amend.clone())], true)?;
            self.created.remove(session);
            amend.apply(&mut record);
            if let Some(kept) = kept {
                self.note(&kept);
            }
            Ok(record)
        });
        if !ours {
            self.release(session);
        }
        changed
    }

    pub(super) fn delete(&mut self, session: &SessionId) -> Result<(), Error> {
        for child in self.complete(|index| index.children(session))? {
            self.delete(&child)?;
        }
        self.remove(session)
    }

    /// Removes a session in which nothing was ever said and to which its user gave no title. Says whether it was
    /// such a one.
    pub(super) fn leave(&mut self, session: &SessionId) -> Result<bool, Error> {
        if !session::path(&self.dir, session).exists() {
            return Ok(false); // it goes when it is let go of
        }
        let file = self.file(session, false)?;
        if file.messages()? > NONE_YET || file.record()?.is_none_or(|record| record.titled == TitleSource::User) {
            return Ok(false);
        }
        self.remove(session).map(|()| true)
    }

    /// Removes a session that is not open here; where `unsaid` says so only one that [`Self::leave`] removes.
    pub(super) fn discard(&mut self, session: &SessionId, unsaid: bool) -> Result<bool, Error> {
        if self.locks.contains_key(session) {
            return Ok(false);
        }
        if !unsaid {
            return self.delete(session).map(|()| true);
        }
        let left = self.leave(session);
        self.release(session);
        left
    }

    fn remove(&mut self, session: &SessionId) -> Result<(), Error> {
        // One that is open elsewhere is not ours to remove; a damaged one may go.
        self.hold(session)?;
        let path = session::path(&self.dir, session);
        self.open.remove(session);
        self.created.remove(session);
        self.unwritten.remove(session);
        // The index first: who is killed in between leaves a whole session that is found again, not a
        // name with nothing behind it.
        let gone = self.indexed(|index| index.remove(session)).and_then(|()| session::remove_files(&path));
        self.release(session);
        gone
    }
}
