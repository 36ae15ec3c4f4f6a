//! The first messages of a session's file, to be shown while the rest is read.

use rusqlite::{Connection, Row};

use super::session;
use crate::StoredSession;
use crate::assembly::Assembly;

/// The maximum numbers of messages and parts that are read, and the maximum size of the parts in
/// bytes.
const MAX_MESSAGES: usize = 16;
const MAX_PARTS: usize = 64;
const MAX_BYTES: usize = 256 * 1024;

/// Reads the record and the first messages with their parts, as far as the parts are stored in the
/// same order. Returns `None` if any of it is unreadable or altered.
pub(super) fn read(db: &Connection) -> Option<StoredSession> {
    let record = session::read_record(db).ok()??;
    let mut query = db
        .prepare("SELECT seq, id, data, crc FROM message ORDER BY seq")
        .ok()?;
    let mut found = query.query([]).ok()?;
    let mut rows = Vec::with_capacity(MAX_MESSAGES);
    let mut order = RowOrder::default();
    while rows.len() < MAX_MESSAGES
        && let Some(row) = found.next().ok()?
    {
        order.follows(row)?;
        rows.push(session::message(row)?);
    }
    let known: Vec<String> = rows.iter().map(|(id, _)| id.clone()).collect();
    let mut assembly = Assembly::begin(None, rows, Some(record))?;
    let mut query = db
        .prepare("SELECT seq, id, message, data, crc FROM part ORDER BY seq")
        .ok()?;
    let mut found = query.query([]).ok()?;
    let mut parts = 0;
    let mut bytes = 0;
    // The number of messages with all their parts; the limits may end within one.
    let mut whole = known.len();
    let mut order = RowOrder::default();
    while let Some(row) = found.next().ok()? {
        order.follows(row)?;
        let (id, message, json) = session::part(row)?;
        let Some(index) = known.iter().position(|known| *known == message) else {
            break;
        };
        parts += 1;
        bytes += json.len();
        if parts > MAX_PARTS || bytes > MAX_BYTES {
            whole = index;
            break;
        }
        assembly.part(&id, &message, &json, 0);
    }
    let mut stored = assembly.end();
    stored.messages.truncate(whole);
    stored.damage.is_empty().then_some(stored)
}

/// A check that each row occurs once and in order. A damaged file may yield the rows of a page
/// twice.
#[derive(Default)]
struct RowOrder {
    last: Option<i64>,
}

impl RowOrder {
    /// Accepts the next row. Returns `None` if it does not follow the last one.
    fn follows(&mut self, row: &Row<'_>) -> Option<()> {
        let number: i64 = row.get(0).ok()?;
        let last = self.last.replace(number);
        last.is_none_or(|last| last < number).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::{entries, id};
    use super::super::session::SessionFile;
    use super::*;
    use crate::tests::message;
    use crate::write::SessionWrite;
    use transcript::Message;

    fn written_file(dir: &std::path::Path, entries: &[SessionWrite]) -> SessionFile {
        let mut file = SessionFile::open(dir, &id(), true).unwrap();
        file.write(entries, true).unwrap();
        drop(file);
        SessionFile::open(dir, &id(), false).unwrap()
    }

    fn found(file: &SessionFile) -> Option<Vec<Message>> {
        read(file.db()).map(|stored| stored.messages)
    }

    #[test]
    fn beginning_within_limits_is_read_whole() {
        let short = |n: usize| message(&format!("m{n:02}"), &["one", "two"]);
        let many: Vec<Message> = (0..40).map(short).collect();
        let long = |n: usize| {
            message(
                &format!("l{n:02}"),
                &["one", &"x".repeat(MAX_BYTES * 3 / 4)],
            )
        };
        let in_parts = message("p00", &["one"; MAX_PARTS + 1]);
        let table = [
            ("nothing", vec![], 0),
            ("all", many[..3].to_vec(), 3),
            ("as many as are read", many.clone(), MAX_MESSAGES),
            ("a long one", vec![short(0), long(1), short(2)], 3),
            (
                "two long ones",
                vec![short(0), long(1), long(2), short(3)],
                2,
            ),
            ("many parts", vec![short(0), in_parts, short(2)], 1),
        ];
        for (name, messages, whole) in table {
            let dir = tempfile::tempdir().unwrap();
            let file = written_file(dir.path(), &entries(&messages));
            assert_eq!(found(&file).as_deref(), Some(&messages[..whole]), "{name}");
        }
    }

    #[test]
    fn altered_beginning_is_not_read() {
        let messages: Vec<Message> = (0..40)
            .map(|n| message(&format!("m{n:02}"), &["one"]))
            .collect();
        let table = [
            ("UPDATE part SET data = 'x' WHERE id = 'm01-0'", false),
            ("UPDATE message SET data = 'x' WHERE id = 'm01'", false),
            ("UPDATE session SET data = 'x'", false),
            (
                "UPDATE part SET data = '{}', crc = -1 WHERE id = 'm01-0'",
                false,
            ),
            ("UPDATE part SET data = 'x' WHERE id = 'm39-0'", true),
        ];
        for (sql, is_read) in table {
            let dir = tempfile::tempdir().unwrap();
            let file = written_file(dir.path(), &entries(&messages));
            file.db().execute_batch(sql).unwrap();
            assert_eq!(found(&file).is_some(), is_read, "{sql}");
        }
    }

    /// Measures the work by the bytes that the thread reads, not by a clock.
    #[cfg(target_os = "linux")]
    #[test]
    fn beginning_of_long_session_costs_the_same() {
        let bytes = || {
            let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
            text.lines()
                .find_map(|line| line.strip_prefix("rchar: "))
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let counted = [100, 1_000].map(|n| {
            let mut random = fastrand::Rng::with_seed(1);
            // Random text cannot be compressed.
            let words = std::iter::repeat_with(|| format!("{:016x}", random.u64(..)))
                .take(n * 60)
                .collect::<Vec<_>>();
            let messages: Vec<Message> = words
                .chunks(60)
                .enumerate()
                .map(|(n, words)| message(&format!("m{n:04}"), &[&words.concat()]))
                .collect();
            let dir = tempfile::tempdir().unwrap();
            let file = written_file(dir.path(), &entries(&messages));
            let before = bytes();
            assert_eq!(found(&file).as_deref(), Some(&messages[..MAX_MESSAGES]));
            let beginning = bytes() - before;
            file.load(None).unwrap();
            (beginning, bytes() - before)
        });
        let [(few, of_few), (many, of_many)] = counted;
        assert!(
            of_many > 5 * of_few,
            "all of it: {of_few} and {of_many} bytes"
        );
        assert!(
            many < 2 * few && 5 * many < of_many,
            "the beginning: {few} and {many} bytes of {of_many}"
        );
    }
}
