//! The requests for lists of sessions to a store.

use std::path::Path;

use super::job::StoreJob;
use super::{Error, ListCursor, ListQuery, SessionPage, Store};
use base::id::SessionId;

impl Store {
    /// Lists sessions that have a message or a title chosen by the user, newest first; children are
    /// left out.
    ///
    /// # Errors
    /// Returns [`Error::ListFailed`] if no index is available.
    pub async fn list(
        &self,
        cwd: Option<&Path>,
        after: Option<ListCursor>,
        limit: usize,
    ) -> Result<SessionPage, Error> {
        self.list_where(ListQuery {
            cwd: cwd.map(Path::to_path_buf),
            after,
            limit,
            ..ListQuery::default()
        })
        .await
    }

    /// Lists the sessions that match the query, newest first.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub async fn list_where(&self, query: ListQuery) -> Result<SessionPage, Error> {
        let query = Box::new(query);
        self.request(|reply| StoreJob::List { query, reply })
            .await
            .map_err(Error::into_list_error)
    }

    /// Returns the listed sessions whose ids begin with `beginning`, at most `limit`.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub async fn list_with_prefix(
        &self,
        beginning: &str,
        limit: usize,
    ) -> Result<Vec<SessionId>, Error> {
        let beginning = beginning.to_owned();
        self.request(|reply| StoreJob::Beginning {
            beginning,
            limit,
            reply,
        })
        .await
        .map_err(Error::into_list_error)
    }

    /// Returns the listed sessions that precede and follow each of these in the order of their ids.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub async fn list_neighbours(&self, sessions: Vec<SessionId>) -> Result<Vec<SessionId>, Error> {
        self.request(|reply| StoreJob::Neighbours { sessions, reply })
            .await
            .map_err(Error::into_list_error)
    }

    /// Waits until the list has all sessions: see [`SessionPage::filling`].
    ///
    /// # Errors
    /// See [`Store::list`].
    pub async fn wait_until_filled(&self) -> Result<(), Error> {
        // A list that turns out to be damaged is rebuilt by the next query, so wait twice.
        for _ in 0..2 {
            self.request(|reply| StoreJob::Filled { reply })
                .await
                .map_err(Error::into_list_error)?;
        }
        Ok(())
    }
}
