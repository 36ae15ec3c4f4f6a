//! Lists of sessions, page by page: what is asked for, and what comes back.

use std::path::{Path, PathBuf};

use super::job::StoreJob;
use super::{Error, Record, Store};
use base::environment::Timestamp;
use base::id::SessionId;

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// Where the next page starts, if there is one.
    pub next: Option<ListCursor>,
    /// The list is being made again, and more sessions will be in it.
    pub filling: Option<ListFilling>,
    /// The files that hold a session and do not say which: they are in no list.
    pub unreadable: Vec<PathBuf>,
}

/// A place in a listing: after this moment and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// The last session's `updated`.
    pub updated: Timestamp,
    /// The last session's id.
    pub id: SessionId,
}

/// How far a list is filled that was lost, or that files were put beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListFilling {
    /// How many sessions have been taken in.
    pub taken: usize,
    /// How many were to be taken in; none while that is not known.
    pub unknown: usize,
}

/// A question for sessions: those with a message or with a title of their user's, children left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// The directory they work in; `None` for all.
    pub cwd: Option<PathBuf>,
    /// What that directory is called on every machine.
    pub place: Option<String>,
    /// Whether those in directories below it are listed as well.
    pub is_project: bool,
    /// Only those that are put aside, or only those that are not.
    pub archived: Option<bool>,
    /// Where the page begins.
    pub after: Option<ListCursor>,
    pub limit: usize,
}

impl ListQuery {
    /// Makes a page of up to `limit + 1` records, newest first.
    pub(super) fn page(&self, mut sessions: Vec<Record>) -> SessionPage {
        let more = sessions.len() > self.limit;
        sessions.truncate(self.limit);
        let last = sessions.last().filter(|_| more);
        let next = last.map(|last| ListCursor { updated: last.updated, id: last.id.clone() });
        SessionPage { sessions, next, filling: None, unreadable: Vec::new() }
    }

    /// The place before which it begins, as numbers and letters are ordered.
    pub(super) fn start(&self) -> (i64, String) {
        match &self.after {
            Some(cursor) => (i64::try_from(cursor.updated.0).unwrap_or(i64::MAX), cursor.id.to_string()),
            None => (i64::MAX, LAST_ID.to_owned()),
        }
    }

    /// How many records are read: one more than are listed says whether there is another page.
    pub(super) fn rows(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX - 1).saturating_add(1)
    }
}

/// Greater than any id.
pub(super) const LAST_ID: &str = "\u{10ffff}";

impl Store {
    /// Lists sessions, newest first: those with a message or with a title of their user's, children left out.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn list(
        &self,
        cwd: Option<&Path>,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<SessionPage, Error> {
        self.list_where(ListQuery { cwd: cwd.map(Path::to_path_buf), after, limit, ..ListQuery::default() }).await
    }

    /// Lists the sessions that are asked for, newest first.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn list_where(&self, query: ListQuery) -> Result<SessionPage, Error> {
        let query = Box::new(query);
        self.ask(|reply| StoreJob::List { query, reply }).await.map_err(Error::of_list)
    }

    /// Returns the listed sessions whose ids begin so, up to `limit`.
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn beginning_with(&self, beginning: &str, limit: usize) -> Result<Vec<SessionId>, Error> {
        let beginning = beginning.to_owned();
        self.ask(|reply| StoreJob::Beginning { beginning, limit, reply }).await.map_err(Error::of_list)
    }

    /// Waits until the list has all sessions: see [`SessionPage::filling`].
    ///
    /// # Errors
    /// As [`Store::list`].
    pub async fn filled(&self) -> Result<(), Error> {
        // Once more for a list that turned out to be damaged: it is made again by whoever asks next.
        for _ in 0..2 {
            self.ask(|reply| StoreJob::Filled { reply }).await.map_err(Error::of_list)?;
        }
        Ok(())
    }
}
