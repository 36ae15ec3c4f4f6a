//! Searching: which sessions may have the words is asked of the index (`words.rs`), and these are read.
//!
//! Of what is not in the index nobody knows, so it is read as well, and a search finds what it would find without. Words
//! that most sessions have are found in the newest ones: these are looked at first, one after the other, so that the
//! index need not name all the others.

use futures_util::{StreamExt, stream};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::DatabaseFault;
use super::grams::Grams;
use super::keeper::Keeper;
use super::read::{ListValues, SqlParams, record};
use crate::{Error, ListQuery, Record, SearchCut, SearchHit, SearchPage, search};

/// How many sessions are read at a time.
const READ_AT_ONCE: usize = 4;

/// How many of the newest sessions are looked at before the index is asked about all.
const NEWEST: usize = 64;

/// How many sessions are listed at a time.
const LISTED: usize = 100;

/// Whether a session `s` is not in the index and nobody has it.
const IS_UNINDEXED: &str =
    "EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.instance IS NULL AND l.unsearched)";

/// Those of the sessions `$1` that may have the words: each is looked at by itself (`OFFSET 0`), for there may be no end
/// of others.
pub(super) const AMONG: &str =
    "SELECT s.id, EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.instance IS NULL AND l.unsearched)
    FROM unnest($1::text[]) AS s(id)
    WHERE EXISTS (SELECT 1 FROM lease l WHERE l.session = s.id AND l.unsearched)
        OR EXISTS (SELECT 1 FROM (SELECT w.grams FROM word w WHERE w.session = s.id OFFSET 0) own
            WHERE own.grams IS NULL OR own.grams @> $2::smallint[])";

/// The query for a page of those that may have the words: with what a list is ([`super::read::page`]), and `$8`. Each
/// way to be one of them is a question of its own: of words that many have, the newest sessions are looked at until there
/// are enough, of others those that the index names.
pub(super) fn candidates(query: &ListQuery) -> String {
    let place = match (&query.cwd, query.is_project) {
        (None, _) => "",
        (Some(_), false) => " AND (cwd = $4 OR project = $5)",
        (Some(_), true) => " AND (cwd = $4 OR project = $5 OR starts_with(cwd, $6) OR starts_with(project, $7))",
    };
    let aside = super::read::aside(query);
    let part = |sessions: &str| {
        format!(
            "(SELECT data, updated, id FROM session
              WHERE shown{place}{aside} AND (updated, id) < ($1, $2) AND id IN (SELECT session FROM {sessions})
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

impl Keeper {
    pub(super) async fn search(
        &self,
        query: ListQuery,
        words: &str,
        limit: usize,
    ) -> Result<SearchPage, DatabaseFault> {
        let words = search::wanted(words);
        if words.is_empty() {
            return Ok(SearchPage::default());
        }
        match Grams::wanted(&words) {
            Some(grams) => self.search_indexed(query, &words, &grams, limit).await,
            None => self.search_newest(query, &words, limit).await,
        }
    }

    /// Reads one session after the other, the newest first, as many as somebody may wait for.
    async fn search_newest(
        &self,
        query: ListQuery,
        words: &[String],
        limit: usize,
    ) -> Result<SearchPage, DatabaseFault> {
        let (mut page, mut sessions) = (SearchPage::default(), 0);
        let mut query = ListQuery { limit: LISTED, ..query };
        while page.hits.len() < limit {
            let listed = self.list(&query).await?;
            sessions += listed.sessions.len();
            page.hits.extend(self.read_hits(listed.sessions, words, limit - page.hits.len()).await);
            let Some(last) = listed.next else { break };
            if sessions >= search::MAX_UNAIDED && page.hits.len() < limit {
                page.cut = Some(SearchCut { sessions, oldest: last.updated });
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
        let newest = self.list(&ListQuery { limit: NEWEST, ..query.clone() }).await?;
        let ids: Vec<&str> = newest.sessions.iter().map(|record| record.id.as_str()).collect();
        let among = self.rows(AMONG, &[(&ids, Type::TEXT_ARRAY), (&grams, Type::INT2_ARRAY)]).await?;
        page.unindexed += unindexed(&among)?;
        let among = among.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<String>, DatabaseFault>>()?;
        let is_among = |record: &Record| among.iter().any(|id| id == record.id.as_str());
        let records = newest.sessions.into_iter().filter(is_among).collect();
        page.hits = self.read_hits(records, words, limit).await;
        let mut query = ListQuery { limit: LISTED, after: newest.next, ..query };
        while query.after.is_some() && page.hits.len() < limit {
            let values = ListValues::of(&query);
            let mut values = values.all();
            values.push((&grams as &(dyn ToSql + Sync), Type::INT2_ARRAY));
            let values: SqlParams<'_> = &values;
            let rows = self.rows(&candidates(&query), values).await?;
            let records = rows.iter().map(record).collect::<Result<Vec<Record>, DatabaseFault>>()?;
            let listed = query.page(records);
            page.unindexed += unindexed(&rows[..listed.sessions.len()])?;
            page.hits.extend(self.read_hits(listed.sessions, words, limit - page.hits.len()).await);
            query.after = listed.next;
        }
        Ok(page)
    }

    /// Reads sessions, several at a time, until enough have the words.
    async fn read_hits(&self, records: Vec<Record>, words: &[String], limit: usize) -> Vec<SearchHit> {
        let looked = records.into_iter().map(|record| async move {
            let read = match self.history(&record.id, false).await {
                Ok(Some(found)) => Ok(found.stored),
                Ok(None) => Err(Error::NotFound(record.id.clone())),
                Err(fault) => Err(fault.into()),
            };
            search::looked(&record, read, words)
        });
        let hits = stream::iter(looked).buffered(READ_AT_ONCE).filter_map(std::future::ready);
        hits.take(limit).collect().await
    }
}

/// How many of these are not in the index and nobody has them.
fn unindexed(rows: &[Row]) -> Result<usize, DatabaseFault> {
    let each = rows.iter().map(|row| Ok(usize::from(row.try_get::<_, bool>(1)?)));
    each.sum::<Result<usize, DatabaseFault>>()
}
