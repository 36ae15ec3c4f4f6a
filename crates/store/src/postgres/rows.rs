//! The statement that writes rows, the only one that is prepared.

use tokio_postgres::types::Type;

/// Writes rows of any sessions whose lease still has the given epoch, and returns these sessions.
/// The leases stay locked until the end of the transaction.
pub(super) const ROWS: &str = "WITH fence AS (
        SELECT l.session FROM lease l
        JOIN unnest($1::text[], $2::bigint[]) AS mine(session, epoch)
            ON l.session = mine.session AND l.epoch = mine.epoch
        FOR UPDATE OF l),
    sessions AS (
        INSERT INTO session (id, cwd, parent, updated, archived, shown, said, named, data, project)
        SELECT r.* FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::boolean[], $8::boolean[],
                $9::boolean[], $10::boolean[], $11::bytea[], $24::text[])
            AS r(id, cwd, parent, updated, archived, shown, said, named, data, project)
        JOIN fence f ON f.session = r.id
        ON CONFLICT (id) DO UPDATE SET cwd = excluded.cwd, project = excluded.project, parent = excluded.parent, updated = excluded.updated,
            archived = excluded.archived, shown = excluded.shown, said = excluded.said, named = excluded.named,
            data = excluded.data),
    messages AS (
        INSERT INTO message (session, seq, id, data)
        SELECT r.* FROM unnest($12::text[], $13::bigint[], $14::text[], $15::bytea[]) AS r(session, seq, id, data)
        JOIN fence f ON f.session = r.session
        ON CONFLICT (session, id) DO UPDATE SET data = excluded.data),
    parts AS (
        INSERT INTO part (session, seq, id, message, data)
        SELECT r.* FROM unnest($16::text[], $17::bigint[], $18::text[], $19::text[], $20::bytea[])
            AS r(session, seq, id, message, data)
        JOIN fence f ON f.session = r.session
        ON CONFLICT (session, id) DO UPDATE SET data = excluded.data),
    contents AS (
        INSERT INTO content (session, name, data)
        SELECT r.* FROM unnest($21::text[], $22::text[], $23::bytea[]) AS r(session, name, data)
        JOIN fence f ON f.session = r.session
        ON CONFLICT (session, name) DO UPDATE SET data = excluded.data),
    unsearched AS (
        UPDATE lease l SET searched = NULL FROM fence f WHERE l.session = f.session AND l.searched IS NOT NULL)
    SELECT session FROM fence";

pub(super) const TYPES: [Type; 24] = [
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::BOOL_ARRAY,
    Type::BOOL_ARRAY,
    Type::BOOL_ARRAY,
    Type::BOOL_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TEXT_ARRAY,
];
