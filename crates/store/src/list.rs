//! Lists of sessions, page by page: queries and results.

use std::path::PathBuf;

use super::Record;
use base::environment::Timestamp;
use base::id::SessionId;

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// The start of the next page, if there is one.
    pub next: Option<ListCursor>,
    /// Set while the list is being rebuilt: more sessions will be in it.
    pub filling: Option<ListFilling>,
    /// The files of sessions that cannot be identified: they are in no list.
    pub unreadable: Vec<PathBuf>,
}

/// A position in a list: after this time and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// The last session's `updated`.
    pub updated: Timestamp,
    /// The last session's id.
    pub id: SessionId,
}

/// The progress of filling a list that was lost, or to whose directory files were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListFilling {
    /// The number of sessions that have been added.
    pub added: usize,
    /// The number of sessions to add, including those that have been added; 0 while it is not
    /// known.
    pub total: usize,
}

/// A query for sessions that have a message or a title chosen by the user; children are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// The working directory; `None` for all.
    pub cwd: Option<PathBuf>,
    /// The name of that directory on every machine that shares the store; `None` if the store is
    /// not shared.
    pub shared_name: Option<String>,
    /// True to list the sessions in the directories below `cwd` too.
    pub is_recursive: bool,
    /// True to list only archived sessions, false for only the others; `None` for both.
    pub archived: Option<bool>,
    /// The position before the page; `None` for the first page.
    pub after: Option<ListCursor>,
    /// The maximum number of sessions in the page.
    pub limit: usize,
}

impl ListQuery {
    /// Makes a page of up to `limit + 1` records, newest first.
    pub(super) fn page(&self, mut sessions: Vec<Record>) -> SessionPage {
        let has_more = sessions.len() > self.limit;
        sessions.truncate(self.limit);
        let mut next = None;
        if has_more && let Some(last) = sessions.last() {
            next = Some(ListCursor {
                updated: last.updated,
                id: last.id.clone(),
            });
        }
        SessionPage {
            sessions,
            next,
            filling: None,
            unreadable: Vec::new(),
        }
    }

    /// Returns the position before which the page starts, as integer and text for SQL.
    pub(super) fn start(&self) -> (i64, String) {
        match &self.after {
            Some(cursor) => (
                i64::try_from(cursor.updated.0).unwrap_or(i64::MAX),
                cursor.id.to_string(),
            ),
            None => (i64::MAX, LAST_ID.to_owned()),
        }
    }

    /// Returns the number of records to read: one more than the page has, to detect a next page.
    pub(super) fn rows(&self) -> i64 {
        i64::try_from(self.limit)
            .unwrap_or(i64::MAX - 1)
            .saturating_add(1)
    }
}

/// A text that is greater than any id.
pub(super) const LAST_ID: &str = "\u{10ffff}";
