//! Queries outside the write batches: sessions, lists, and the data of projects, with the few
//! writes of that data.

use std::path::PathBuf;

use futures_util::{TryStreamExt, pin_mut};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::fault::DatabaseFault;
use super::leased::decoded;
use super::worker::Worker;
use crate::assembly::Assembly;
use crate::list::LAST_ID;
use crate::{
    BackendState, Error, Grant, ListQuery, Record, SessionPage, StoredGrants, StoredSession,
};
use base::environment::Timestamp;
use base::id::{PartId, SessionId};
use transcript::{ModelRef, Part};

/// The parameters of a statement.
pub(super) type SqlParams<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// Yields rows of four kinds, in order: the record (0), messages (1), parts (2), and the size of
/// the stored contents (3, in `seq`).
const HISTORY: &str = "SELECT 0 AS kind, 0::bigint AS seq, id, '' AS message, data FROM session WHERE id = $1
    UNION ALL SELECT 1, seq, id, '', data FROM message WHERE session = $1
    UNION ALL SELECT 2, seq, id, message, data FROM part WHERE session = $1
    UNION ALL SELECT 3, coalesce(sum(length(data)), 0)::bigint, '', '', '='::bytea FROM content WHERE session = $1
    ORDER BY kind, seq";

/// Yields the listed sessions with ids from `$1` up to but excluding `$2`, at most `$3`.
pub(super) const IDS_WITH_PREFIX: &str =
    "SELECT id FROM session WHERE shown AND id >= $1 AND id < $2 ORDER BY id LIMIT $3";

/// Yields the listed sessions that precede and follow each of `$1` in the order of their ids.
pub(super) const NEIGHBOURS: &str = "SELECT next.id FROM unnest($1::text[]) AS own(id), LATERAL (
        (SELECT s.id FROM session s WHERE s.shown AND s.id < own.id ORDER BY s.id DESC LIMIT 1)
        UNION ALL
        (SELECT s.id FROM session s WHERE s.shown AND s.id > own.id ORDER BY s.id LIMIT 1)) next";

pub(super) const CHILDREN: &str = "SELECT id FROM session WHERE parent = $1 ORDER BY id";

const RECORD_ROW: i32 = 0;
const MESSAGE_ROW: i32 = 1;
const CONTENT_SIZE_ROW: i32 = 3;

/// Yields the sessions that have no message, no title chosen by the user and no pending prompt.
pub(super) const NEVER_PROMPTED: &str = "SELECT data FROM session s WHERE NOT said AND NOT named
    AND NOT EXISTS (SELECT 1 FROM task t WHERE t.session = s.id AND t.state IN ('waiting', 'running'))";

/// A session that was read.
pub(super) struct LoadedSession {
    pub(super) stored: StoredSession,
    /// The number of leading messages whose calls were read without their results.
    pub(super) messages_without_results: usize,
    /// The highest sequence number of its messages and parts.
    pub(super) last_seq: i64,
    /// The size of its stored contents, in bytes.
    pub(super) content_bytes: usize,
}

/// The properties of a session, without its messages.
pub(super) struct SessionProperties {
    pub(super) record: Record,
    pub(super) has_messages: bool,
    pub(super) last_seq: i64,
    /// The size of its stored contents, in bytes.
    pub(super) content_bytes: usize,
}

impl Worker {
    /// Runs a statement with a timeout, and returns its rows.
    pub(super) async fn execute(
        &self,
        sql: &str,
        values: SqlParams<'_>,
    ) -> Result<Vec<Row>, DatabaseFault> {
        let open = self.connection.open().await?;
        self.connection
            .run(open.client.query_typed(sql, values))
            .await
    }

    /// Reads a whole session, possibly without the results of calls that no model will see.
    /// Returns `None` if there is no such session.
    pub(super) async fn history(
        &self,
        session: &SessionId,
        without_old_results: bool,
    ) -> Result<Option<LoadedSession>, DatabaseFault> {
        let id = session.as_str();
        let open = self.connection.open().await?;
        let rows = self
            .connection
            .run(open.client.query_typed_raw(HISTORY, [(id, Type::TEXT)]))
            .await?;
        pin_mut!(rows);
        let mut record = None;
        let mut messages = Vec::new();
        let mut parts = Vec::new();
        let mut last = 0;
        let mut contents = 0;
        let mut altered = Vec::new();
        while let Some(row) = self.connection.run(rows.try_next()).await? {
            let kind: i32 = row.try_get(0)?;
            let seq: i64 = row.try_get(1)?;
            let id: String = row.try_get(2)?;
            if kind == CONTENT_SIZE_ROW {
                contents = usize::try_from(seq).unwrap_or(usize::MAX);
                continue;
            }
            last = last.max(seq);
            match (kind, decoded(row.try_get(4)?)) {
                (RECORD_ROW, json) => record = json,
                (MESSAGE_ROW, Some(json)) => messages.push((id, json)),
                (_, Some(json)) => parts.push((id, row.try_get::<_, String>(3)?, json)),
                (_, None) => altered.push(format!("{id} is damaged")),
            }
        }
        if record.is_none() && messages.is_empty() {
            return Ok(None);
        }
        let fallback = Record::new(session.clone(), PathBuf::from("/"), Timestamp(0));
        let Some(mut assembly) = Assembly::begin(record, messages, Some(fallback)) else {
            return Ok(None);
        };
        let mut messages_without_results = 0;
        if without_old_results && let Some(parent) = assembly.summarised().cloned() {
            let own: Vec<String> = parts
                .iter()
                .filter(|(_, message, _)| message == parent.as_str())
                .map(|(.., json)| json.clone())
                .collect();
            messages_without_results = assembly.messages_without_results(&parent, &own);
        }
        for (id, message, json) in parts {
            assembly.part(&id, &message, &json, messages_without_results);
        }
        let mut stored = assembly.end();
        stored.damage.extend(altered);
        Ok(Some(LoadedSession {
            stored,
            messages_without_results,
            last_seq: last,
            content_bytes: contents,
        }))
    }

    /// Returns the properties of a session; `None` if it does not exist.
    pub(super) async fn properties(
        &self,
        session: &SessionId,
    ) -> Result<Option<SessionProperties>, DatabaseFault> {
        let sql = "SELECT data, said, greatest(
                coalesce((SELECT max(seq) FROM message m WHERE m.session = $1), 0),
                coalesce((SELECT max(seq) FROM part p WHERE p.session = $1), 0)),
                (SELECT coalesce(sum(length(data)), 0)::bigint FROM content c WHERE c.session = $1)
            FROM session WHERE id = $1";
        let id = session.as_str();
        let rows = self.execute(sql, &[(&id, Type::TEXT)]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let contents = usize::try_from(row.try_get::<_, i64>(3)?).unwrap_or(usize::MAX);
        Ok(Some(SessionProperties {
            record: record(row)?,
            has_messages: row.try_get(1)?,
            last_seq: row.try_get(2)?,
            content_bytes: contents,
        }))
    }

    /// Returns the parts in the order of `ids`, without those that are missing or damaged.
    pub(super) async fn parts(
        &self,
        session: &SessionId,
        ids: &[PartId],
    ) -> Result<Vec<Part>, DatabaseFault> {
        let sql = "SELECT id, data FROM part WHERE session = $1 AND id = ANY($2)";
        let wanted: Vec<&str> = ids.iter().map(PartId::as_str).collect();
        let id = session.as_str();
        let rows = self
            .execute(sql, &[(&id, Type::TEXT), (&wanted, Type::TEXT_ARRAY)])
            .await?;
        let read = |wanted: &PartId| {
            let row = rows.iter().find(|row| {
                row.try_get::<_, &str>(0)
                    .is_ok_and(|id| id == wanted.as_str())
            })?;
            serde_json::from_str(&decoded(row.try_get(1).ok()?)?).ok()
        };
        Ok(ids.iter().filter_map(read).collect())
    }

    pub(super) async fn list(&self, query: &ListQuery) -> Result<SessionPage, DatabaseFault> {
        let rows = self
            .execute(&page_sql(query), &PageParams::of(query).all())
            .await?;
        let sessions = rows
            .iter()
            .map(record)
            .collect::<Result<Vec<Record>, DatabaseFault>>()?;
        Ok(query.page(sessions))
    }

    pub(super) async fn beginning_with(
        &self,
        beginning: &str,
        limit: usize,
    ) -> Result<Vec<SessionId>, DatabaseFault> {
        let end = format!("{beginning}{LAST_ID}");
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self
            .execute(
                IDS_WITH_PREFIX,
                &[
                    (&beginning, Type::TEXT),
                    (&end, Type::TEXT),
                    (&limit, Type::INT8),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| Ok(SessionId::new(row.try_get::<_, String>(0)?)))
            .collect()
    }

    pub(super) async fn neighbours(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<SessionId>, DatabaseFault> {
        let ids: Vec<&str> = sessions.iter().map(SessionId::as_str).collect();
        let rows = self
            .execute(NEIGHBOURS, &[(&ids, Type::TEXT_ARRAY)])
            .await?;
        rows.iter()
            .map(|row| Ok(SessionId::new(row.try_get::<_, String>(0)?)))
            .collect()
    }

    pub(super) async fn children(
        &self,
        session: &SessionId,
    ) -> Result<Vec<SessionId>, DatabaseFault> {
        let id = session.as_str();
        let rows = self.execute(CHILDREN, &[(&id, Type::TEXT)]).await?;
        rows.iter()
            .map(|row| Ok(SessionId::new(row.try_get::<_, String>(0)?)))
            .collect()
    }

    /// Deletes the owners that ended a day ago, with their leases of sessions that do not exist.
    pub(super) async fn delete_dead_owners(&self) -> Result<(), DatabaseFault> {
        let sql = "WITH old AS (DELETE FROM owner WHERE until < now() - interval '1 day' RETURNING instance)
            DELETE FROM lease l USING old o
            WHERE l.instance = o.instance AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = l.session)";
        self.execute(sql, &[]).await.map(drop)
    }

    /// Returns the sessions that have no message, no title chosen by the user and no pending
    /// prompt.
    pub(super) async fn empty_sessions(&self) -> Result<Vec<Record>, DatabaseFault> {
        let rows = self.execute(NEVER_PROMPTED, &[]).await?;
        rows.iter().map(record).collect()
    }

    pub(super) async fn grants(
        &self,
        project: Option<String>,
    ) -> Result<StoredGrants, DatabaseFault> {
        let sql = "SELECT project, agent, permission, pattern, given FROM allowed
            WHERE $1::text IS NULL OR project = $1
            ORDER BY project, agent, given, permission, pattern";
        let rows = self.execute(sql, &[(&project, Type::TEXT)]).await?;
        let grant = |row: &Row| {
            Ok(Grant {
                project: row.try_get(0)?,
                agent: row.try_get(1)?,
                permission: row.try_get(2)?,
                pattern: row.try_get(3)?,
                granted_at: Timestamp(u64::try_from(row.try_get::<_, i64>(4)?).unwrap_or_default()),
            })
        };
        let grants = rows
            .iter()
            .map(grant)
            .collect::<Result<_, DatabaseFault>>()?;
        Ok(StoredGrants {
            grants,
            damaged_index: None,
        })
    }

    pub(super) async fn grant(&self, grant: &Grant) -> Result<(), DatabaseFault> {
        let sql = "INSERT INTO allowed (project, agent, permission, pattern, given) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (project, agent, permission, pattern) DO UPDATE SET given = excluded.given";
        let given = i64::try_from(grant.granted_at.0).unwrap_or(i64::MAX);
        let values: SqlParams<'_> = &[
            (&grant.project, Type::TEXT),
            (&grant.agent, Type::TEXT),
            (&grant.permission, Type::TEXT),
            (&grant.pattern, Type::TEXT),
            (&given, Type::INT8),
        ];
        self.execute(sql, values).await.map(drop)
    }

    pub(super) async fn revoke(&self, grant: &Grant) -> Result<(), DatabaseFault> {
        let sql = "DELETE FROM allowed WHERE project = $1 AND agent = $2 AND permission = $3 AND pattern = $4";
        let values: SqlParams<'_> = &[
            (&grant.project, Type::TEXT),
            (&grant.agent, Type::TEXT),
            (&grant.permission, Type::TEXT),
            (&grant.pattern, Type::TEXT),
        ];
        self.execute(sql, values).await.map(drop)
    }

    pub(super) async fn recent_models(
        &self,
        project: &str,
    ) -> Result<Vec<ModelRef>, DatabaseFault> {
        let rows = self
            .execute(
                "SELECT models FROM chosen WHERE project = $1",
                &[(&project, Type::TEXT)],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(Vec::new());
        };
        Ok(serde_json::from_str(row.try_get(0)?).unwrap_or_default())
    }

    pub(super) async fn set_recent_models(
        &self,
        project: &str,
        models: &[ModelRef],
    ) -> Result<(), DatabaseFault> {
        let sql = "INSERT INTO chosen (project, models) VALUES ($1, $2)
            ON CONFLICT (project) DO UPDATE SET models = excluded.models";
        let models = serde_json::to_string(models).unwrap_or_default();
        self.execute(sql, &[(&project, Type::TEXT), (&models, Type::TEXT)])
            .await
            .map(drop)
    }

    /// Returns the stored contents with these names, each once; a copy of `session` is preferred to
    /// that of another one.
    pub(super) async fn contents(
        &self,
        session: &SessionId,
        names: &[String],
    ) -> Result<Vec<(String, Vec<u8>)>, DatabaseFault> {
        let sql = "SELECT DISTINCT ON (name) name, data FROM content WHERE name = ANY($2)
            ORDER BY name, session <> $1";
        let id = session.as_str();
        let rows = self
            .execute(sql, &[(&id, Type::TEXT), (&names, Type::TEXT_ARRAY)])
            .await?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect()
    }

    /// Copies the contents of a session to a copy of it.
    pub(super) async fn copy_contents(
        &self,
        original: &SessionId,
        copy: &SessionId,
    ) -> Result<(), DatabaseFault> {
        let sql = "INSERT INTO content (session, name, data) SELECT $2, name, data FROM content WHERE session = $1
            ON CONFLICT (session, name) DO NOTHING";
        let of = original.as_str();
        let id = copy.as_str();
        self.execute(sql, &[(&of, Type::TEXT), (&id, Type::TEXT)])
            .await
            .map(drop)
    }

    /// Stores the decision about a project.
    pub(super) async fn store_trust(
        &self,
        project: &str,
        entry: &str,
    ) -> Result<(), DatabaseFault> {
        let sql = "INSERT INTO trust (project, entry) VALUES ($1, $2)
            ON CONFLICT (project) DO UPDATE SET entry = excluded.entry";
        self.execute(sql, &[(&project, Type::TEXT), (&entry, Type::TEXT)])
            .await
            .map(drop)
    }

    /// Returns the decision about a project.
    pub(super) async fn read_trust(&self, project: &str) -> Result<Option<String>, DatabaseFault> {
        let rows = self
            .execute(
                "SELECT entry FROM trust WHERE project = $1",
                &[(&project, Type::TEXT)],
            )
            .await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    pub(super) async fn backend_state(&self) -> BackendState {
        let mut state = BackendState {
            kind: "PostgreSQL",
            location: self.display_address.clone(),
            details: Vec::new(),
            problem: None,
        };
        let address = match self.connection.address() {
            Ok(address) => address,
            Err(e) => {
                return BackendState {
                    problem: Some(e.to_string()),
                    ..state
                };
            }
        };
        state
            .details
            .push(format!("namespace {}", address.namespace));
        state.details.push(
            if address.privacy == super::address::Privacy::Plain {
                "no TLS"
            } else {
                "TLS"
            }
            .into(),
        );
        state
            .details
            .push("keys, logins and plans stay on this machine".into());
        match self.execute("SHOW server_version", &[]).await {
            Ok(rows) => {
                let version = rows
                    .first()
                    .and_then(|row| row.try_get::<_, String>(0).ok())
                    .unwrap_or_default();
                state.details.push(format!("server {version}"));
            }
            Err(fault) => state.problem = Some(Error::from(fault).to_string()),
        }
        state
    }
}

/// The parameters of the query for a page.
pub(super) struct PageParams {
    updated: i64,
    id: String,
    rows: i64,
    cwd: Option<String>,
    shared_name: Option<String>,
    below: Option<String>,
    /// The prefix of the shared names of directories below `shared_name`; the separator is `//`.
    shared_name_prefix: Option<String>,
}

impl PageParams {
    pub(super) fn of(query: &ListQuery) -> Self {
        let (updated, id) = query.start();
        let rows = query.rows();
        let cwd = query
            .cwd
            .as_ref()
            .map(|cwd| cwd.to_string_lossy().into_owned());
        let below = cwd
            .as_ref()
            .map(|cwd| format!("{}/", cwd.trim_end_matches('/')));
        let shared_name_prefix = query.shared_name.as_ref().map(|name| format!("{name}//"));
        Self {
            updated,
            id,
            rows,
            cwd,
            shared_name: query.shared_name.clone(),
            below,
            shared_name_prefix,
        }
    }

    /// Returns `$1` to `$7`.
    pub(super) fn all(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        vec![
            (&self.updated, Type::INT8),
            (&self.id, Type::TEXT),
            (&self.rows, Type::INT8),
            (&self.cwd, Type::TEXT),
            (&self.shared_name, Type::TEXT),
            (&self.below, Type::TEXT),
            (&self.shared_name_prefix, Type::TEXT),
        ]
    }
}

/// Returns the SQL condition for the query's archive filter, with a leading `AND`; empty if there
/// is none.
pub(super) fn archived_condition(query: &ListQuery) -> &'static str {
    match query.archived {
        None => "",
        Some(true) => " AND archived",
        Some(false) => " AND NOT archived",
    }
}

/// Builds the query of a page: at most `$3` sessions that are older than the position (`$1` time,
/// `$2` id). If the query names a directory, only those whose `cwd` is `$4` or whose `project` is
/// `$5`; for a whole project also those below (`$6`, `$7`).
///
/// As many sessions as the page may have are read of each directory and each name, in the order of
/// an index, and the newest of them are returned. A session that is found by both is read twice.
pub(super) fn page_sql(query: &ListQuery) -> String {
    let archived = archived_condition(query);
    let part = |wanted: &str| {
        format!(
            "SELECT data, updated, id FROM session WHERE shown{wanted}{archived} AND (updated, id) < ($1, $2)
             ORDER BY updated DESC, id DESC LIMIT $3"
        )
    };
    if query.cwd.is_none() {
        return part("");
    }
    let newest = |parts: &str| {
        format!(
            "SELECT DISTINCT ON (updated, id) data FROM ({parts}) page ORDER BY updated DESC, id DESC LIMIT $3"
        )
    };
    if !query.is_recursive {
        return newest(&format!(
            "({}) UNION ALL ({})",
            part(" AND cwd = $4"),
            part(" AND project = $5")
        ));
    }
    let here = part(" AND cwd = one.name");
    let elsewhere = part(" AND project = one.name");
    let of_each = |names: &str, part: &str| {
        format!("SELECT found.* FROM ({names}) one (name), LATERAL ({part}) found")
    };
    let directories = "SELECT $4 UNION SELECT name FROM directory WHERE starts_with(name, $6)";
    let places = "SELECT $5 UNION SELECT name FROM place WHERE starts_with(name, $7)";
    format!(
        "WITH RECURSIVE {}, {} {}",
        distinct_values_cte("directory", "cwd", "$6"),
        distinct_values_cte("place", "project", "$7"),
        newest(&format!(
            "{} UNION ALL {}",
            of_each(directories, &here),
            of_each(places, &elsewhere)
        ))
    )
}

/// Builds a recursive query of the distinct values of a column that start with `prefix`, and the
/// first value after them. Each costs one index lookup, however many rows have it.
fn distinct_values_cte(table: &str, column: &str, prefix: &str) -> String {
    let first = |wanted: &str| {
        format!("SELECT {column} FROM session WHERE shown AND {wanted} ORDER BY {column} LIMIT 1")
    };
    let least = first(&format!("{column} >= {prefix}"));
    let next = first(&format!("{column} > one.name"));
    format!(
        "{table} (name) AS (({least}) UNION ALL
            SELECT ({next}) FROM {table} one WHERE starts_with(one.name, {prefix}))"
    )
}

pub(super) fn record(row: &Row) -> Result<Record, DatabaseFault> {
    let json = decoded(row.try_get(0)?);
    let read = json.and_then(|json| serde_json::from_str(&json).ok());
    read.ok_or_else(|| DatabaseFault::Refused("a session's record is damaged".into()))
}
