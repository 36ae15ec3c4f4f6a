//! Search: the index (`search_index.rs`) yields the sessions that may contain the words, and these
//! are read.
//!
//! Sessions that are not in the index are read as well, so that a search finds the same as without
//! it. Words that most sessions contain are found in the newest ones: these are checked first, one
//! by one, so that the index need not list all the others.

use futures_util::{StreamExt, stream};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::DatabaseFault;
use super::queries::{PageParams, SqlParams, record};
use super::trigrams::Trigrams;
use super::worker::Worker;
use crate::{Error, ListQuery, Record, SearchCut, SearchHit, SearchPage, search};

/// The number of sessions that are read concurrently.
const CONCURRENT_READS: usize = 4;

/// The number of the newest sessions that are checked before the index is queried about all.
const MAX_NEWEST_CHECKED: usize = 64;

/// The number of sessions that are listed at a time.
const LIST_CHUNK: usize = 100;

/// The condition that a session `s` is not in the index and has no owner.
const IS_UNINDEXED: &str =
    "EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.instance IS NULL AND l.unsearched)";

/// Yields those of the sessions `$1` that may contain the words. Each is checked separately
/// (`OFFSET 0`), because the number of others is unlimited.
pub(super) const CANDIDATES_AMONG: &str =
    "SELECT s.id, EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.instance IS NULL AND l.unsearched)
    FROM unnest($1::text[]) AS s(id)
    WHERE EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.unsearched)
        OR EXISTS (SELECT 1 FROM (SELECT w.grams FROM word w WHERE w.session = s.id OFFSET 0) own
            WHERE own.grams IS NULL OR own.grams @> $2::smallint[])";

/// Builds the query of a page of sessions that may contain the words, with the parameters of a list
/// ([`super::queries::page_sql`]) and `$8`. Each reason to be a candidate is a subquery of its own:
/// for frequent words, the newest sessions are scanned until there are enough; for rare ones, those
/// that the index yields are read.
pub(super) fn candidates(query: &ListQuery) -> String {
    let scope = match (&query.cwd, query.is_recursive) {
        (None, _) => "",
        (Some(_), false) => " AND (cwd = $4 OR project = $5)",
        (Some(_), true) => {
            " AND (cwd = $4 OR project = $5 OR starts_with(cwd, $6) OR starts_with(project, $7))"
        }
    };
    let archived = super::queries::archived_condition(query);
    let part = |sessions: &str| {
        format!(
            "(SELECT data, updated, id FROM session
              WHERE shown{scope}{archived} AND (updated, id) < ($1, $2) AND id IN (SELECT session FROM {sessions})
              ORDER BY updated DESC, id DESC LIMIT $3)"
        )
    };
    format!(
        "SELECT DISTINCT ON (updated, id) data, {IS_UNINDEXED} FROM ({} UNION ALL {} UNION ALL {}) s
         ORDER BY updated DESC, id DESC LIMIT $3",
        part("word WHERE grams @> $8::smallint[]"),
        part("word WHERE grams IS NULL"),
        part("lease WHERE unsearched")
    )
}

impl Worker {
    pub(super) async fn search(
        &self,
        query: ListQuery,
        words: &str,
        limit: usize,
    ) -> Result<SearchPage, DatabaseFault> {
        let words = search::split_words(words);
        if words.is_empty() {
            return Ok(SearchPage::default());
        }
        match Trigrams::wanted(&words) {
            Some(grams) => self.search_indexed(query, &words, &grams, limit).await,
            None => self.search_newest(query, &words, limit).await,
        }
    }

    /// Reads sessions one by one, newest first, up to the maximum that a user can be expected to
    /// wait for.
    async fn search_newest(
        &self,
        query: ListQuery,
        words: &[String],
        limit: usize,
    ) -> Result<SearchPage, DatabaseFault> {
        let mut page = SearchPage::default();
        let mut sessions = 0;
        let mut query = ListQuery {
            limit: LIST_CHUNK,
            ..query
        };
        while page.hits.len() < limit {
            let listed = self.list(&query).await?;
            sessions += listed.sessions.len();
            page.hits.extend(
                self.read_hits(listed.sessions, words, limit - page.hits.len())
                    .await,
            );
            let Some(last) = listed.next else { break };
            if sessions >= search::MAX_UNINDEXED_READS && page.hits.len() < limit {
                page.cut = Some(SearchCut {
                    sessions,
                    oldest: last.updated,
                });
                break;
            }
            query.after = Some(last);
        }
        Ok(page)
    }

    async fn search_indexed(
        &self,
        query: ListQuery,
        words: &[String],
        grams: &[i16],
        limit: usize,
    ) -> Result<SearchPage, DatabaseFault> {
        let mut page = SearchPage::default();
        let newest = self
            .list(&ListQuery {
                limit: MAX_NEWEST_CHECKED,
                ..query.clone()
            })
            .await?;
        let ids: Vec<&str> = newest
            .sessions
            .iter()
            .map(|record| record.id.as_str())
            .collect();
        let among = self
            .execute(
                CANDIDATES_AMONG,
                &[(&ids, Type::TEXT_ARRAY), (&grams, Type::INT2_ARRAY)],
            )
            .await?;
        page.unindexed += unindexed(&among)?;
        let among = among
            .iter()
            .map(|row| Ok(row.try_get(0)?))
            .collect::<Result<Vec<String>, DatabaseFault>>()?;
        let is_among = |record: &Record| among.iter().any(|id| id == record.id.as_str());
        let records = newest.sessions.into_iter().filter(is_among).collect();
        page.hits = self.read_hits(records, words, limit).await;
        let mut query = ListQuery {
            limit: LIST_CHUNK,
            after: newest.next,
            ..query
        };
        while query.after.is_some() && page.hits.len() < limit {
            let values = PageParams::of(&query);
            let mut values = values.all();
            values.push((&grams as &(dyn ToSql + Sync), Type::INT2_ARRAY));
            let values: SqlParams<'_> = &values;
            let rows = self.execute(&candidates(&query), values).await?;
            let records = rows
                .iter()
                .map(record)
                .collect::<Result<Vec<Record>, DatabaseFault>>()?;
            let listed = query.page(records);
            page.unindexed += unindexed(&rows[..listed.sessions.len()])?;
            page.hits.extend(
                self.read_hits(listed.sessions, words, limit - page.hits.len())
                    .await,
            );
            query.after = listed.next;
        }
        Ok(page)
    }

    /// Reads sessions concurrently, until enough contain the words.
    async fn read_hits(
        &self,
        records: Vec<Record>,
        words: &[String],
        limit: usize,
    ) -> Vec<SearchHit> {
        let looked = records.into_iter().map(|record| async move {
            let read = match self.history(&record.id, false).await {
                Ok(Some(found)) => Ok(found.stored),
                Ok(None) => Err(Error::NotFound(record.id.clone())),
                Err(fault) => Err(fault.into()),
            };
            search::search_session(&record, read, words)
        });
        let hits = stream::iter(looked)
            .buffered(CONCURRENT_READS)
            .filter_map(std::future::ready);
        hits.take(limit).collect().await
    }
}

/// Returns the number of rows whose session is not in the index and has no owner.
fn unindexed(rows: &[Row]) -> Result<usize, DatabaseFault> {
    let each = rows
        .iter()
        .map(|row| Ok(usize::from(row.try_get::<_, bool>(1)?)));
    each.sum::<Result<usize, DatabaseFault>>()
}
