//! The file formats, as numbered steps. A released step is never changed. A database of a newer
//! format is refused, never downgraded.

use std::sync::LazyLock;

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

/// The format of a session's file.
pub(super) static SESSION: LazyLock<Migrations<'static>> = LazyLock::new(|| {
    let first = M::up(
        "CREATE TABLE session (one INTEGER PRIMARY KEY CHECK (one = 1), data TEXT NOT NULL, flushed INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE message (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, data TEXT NOT NULL);
         CREATE TABLE part (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, message TEXT NOT NULL, data TEXT NOT NULL);",
    );
    // SQLite does not detect a flipped bit in a text. Older entries have no checksum, which is
    // marked by -1, because a damaged entry may have NULL.
    let checksums = M::up(
        "ALTER TABLE session ADD COLUMN crc INTEGER;
         ALTER TABLE message ADD COLUMN crc INTEGER;
         ALTER TABLE part ADD COLUMN crc INTEGER;
         UPDATE session SET crc = -1;
         UPDATE message SET crc = -1;
         UPDATE part SET crc = -1;",
    );
    // Long entries are compressed from this format on, which older versions cannot read.
    let packed = M::up("SELECT 1;");
    Migrations::new(vec![first, checksums, packed])
});

/// Returns an empty session file of the newest format. Returns `None` if it cannot be created in
/// memory.
pub(super) fn empty_session() -> Option<&'static [u8]> {
    static EMPTY: LazyLock<rusqlite::Result<Vec<u8>>> = LazyLock::new(|| {
        let mut db = Connection::open_in_memory()?;
        SESSION
            .to_latest(&mut db)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        Ok(db.serialize("main")?.to_vec())
    });
    EMPTY
        .as_deref()
        .inspect_err(|e| tracing::warn!("no empty session in memory: {e}"))
        .ok()
}

pub(super) const SESSION_FORMAT: i64 = 3;

pub(super) const INDEX_FORMAT: i64 = 4;

pub(super) static INDEX: LazyLock<Migrations<'static>> = LazyLock::new(|| {
    let first = M::up(
        "CREATE TABLE session (id TEXT PRIMARY KEY, cwd TEXT NOT NULL, parent TEXT, updated INTEGER NOT NULL, data TEXT NOT NULL) WITHOUT ROWID;
         CREATE INDEX session_by_time ON session (updated DESC, id DESC);
         CREATE INDEX session_by_cwd ON session (cwd, updated DESC, id DESC);
         CREATE INDEX session_by_parent ON session (parent);
         CREATE TABLE grant_ (project TEXT NOT NULL, agent TEXT NOT NULL, permission TEXT NOT NULL, pattern TEXT NOT NULL, given INTEGER NOT NULL,
             PRIMARY KEY (project, agent, permission, pattern)) WITHOUT ROWID;",
    );
    // Adds the number of the last message in the session's file, and a checksum of the whole row.
    let checked = M::up(
        "ALTER TABLE session ADD COLUMN messages INTEGER NOT NULL DEFAULT 0;
         ALTER TABLE session ADD COLUMN crc INTEGER NOT NULL DEFAULT -1;",
    );
    // A flipped bit in a grant would allow something that the user was not shown.
    let checked_grants = M::up("ALTER TABLE grant_ ADD COLUMN crc INTEGER NOT NULL DEFAULT -1;");
    // A search then need not look at each session and its file.
    let changes = M::up(
        "CREATE TABLE written_session (id TEXT PRIMARY KEY) WITHOUT ROWID;
         CREATE TABLE survey (one INTEGER PRIMARY KEY CHECK (one = 1), modified INTEGER NOT NULL);",
    );
    Migrations::new(vec![first, checked, checked_grants, changes])
});

#[cfg(test)]
mod tests {
    #[test]
    fn the_steps_are_valid_sql() {
        super::SESSION.validate().unwrap();
        super::INDEX.validate().unwrap();
    }
}
