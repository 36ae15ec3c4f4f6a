//! Input lines that the ACP server must survive: every row of `data/jsonrpc_cases.csv`, checked
//! against its `required` column. After each row, a request with an id of its own is sent: its
//! answer shows that the stream continues, and that everything before it has arrived.
//!
//! Rows that are conversations (S…) are pages, which contain a line "Wire cases: …". Rows that need
//! more than a page (a client that does not read, ten thousand messages) are in `conversations.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::project::Project;

const ROWS: &str = include_str!("data/jsonrpc_cases.csv");

/// The id of the row that must be sent before `initialize`.
const BEFORE_INITIALIZE: &str = "RX05";

/// The limit of the growth of memory during a line of 40 MiB, which is longer than the server
/// accepts (32 MiB, `MAX_LINE_BYTES`).
const MAX_GROWTH: u64 = 48 << 20;

/// A row.
#[derive(Debug, Clone)]
pub struct Row {
    /// `RJ02`
    pub id: String,
    /// `parse`, `envelope`, `routing`, `params`, `flow`, `conversation`
    pub group: String,
    description: String,
    bytes: Vec<u8>,
    required: String,
}

/// Returns all rows.
pub fn rows() -> Vec<Row> {
    let mut rows = csv(ROWS).into_iter();
    let head = rows.next().unwrap();
    assert_eq!(
        head[..6],
        [
            "id",
            "group",
            "description",
            "bytes_json_latin1",
            "total_bytes",
            "required"
        ]
    );
    rows.map(|row| Row {
        bytes: bytes(&row[0], &row[3], &row[4]),
        id: row[0].clone(),
        group: row[1].clone(),
        description: row[2].clone(),
        required: row[5].clone(),
    })
    .collect()
}

/// Meaning of a row's `required` column.
#[derive(Debug, PartialEq)]
struct Required {
    /// The accepted error codes; if empty, a result is required.
    codes: Vec<i64>,
    /// Ids as JSON text, any of which will do; empty: any.
    ids: Vec<String>,
    /// Smallest and largest number of answers.
    count: (usize, usize),
}

fn required(text: &str) -> Required {
    // Remarks do not matter: "(one or two lines)" is handled below.
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "/;,()".contains(c))
        .filter(|w| !w.is_empty())
        .collect();
    let codes = words
        .iter()
        .filter_map(|word| word.parse().ok())
        .filter(|code| *code <= -32000)
        .collect();
    let mut ids = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let after = |before: &[&str]| at > 0 && before.contains(&words[at - 1]);
        if after(&["id"]) || after(&["echo"]) || *word == "null" {
            ids.push((*word).to_owned());
        }
    }
    let count = match words.as_slice() {
        ["silence", ..] => (0, 0),
        ["two", "answers", ..] => (2, 2),
        _ if text.contains("silence (") => (0, 1),
        _ if text.contains("(one or two lines)") => (1, 2),
        _ => (1, 1),
    };
    Required { codes, ids, count }
}

/// Runs the rows of a group against one process that is already initialized (or not, for the rows
/// about that).
pub fn run(group: &str) {
    let project = Project::new();
    let mut editor = Editor::start(&project);
    if !matches!(group, "parse" | "envelope") {
        editor.send(r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":1}}"#);
        assert!(
            editor
                .receive(RESPONSE_TIMEOUT)
                .unwrap()
                .contains(r#""id":"hello""#)
        );
    }
    let mut problems = Vec::new();
    for row in rows()
        .into_iter()
        .filter(|row| row.group == group && row.id != BEFORE_INITIALIZE)
    {
        problems.extend(run_row(&mut editor, &row, 1));
    }
    problems.extend(editor.finish().problems(0));
    if group == "flow" {
        let mut fresh = Editor::start(&project);
        let row = rows()
            .into_iter()
            .find(|row| row.id == BEFORE_INITIALIZE)
            .unwrap();
        problems.extend(run_row(&mut fresh, &row, 1));
        problems.extend(fresh.finish().problems(0));
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Runs the same rows with a client that speaks version 2, translated into it. Each row about the
/// handshake runs in a process of its own.
pub fn run_v2(group: &str) {
    let mut project = Project::new();
    project.set("ADJUTANT_ACP_V2", Some("1"));
    let mut editor = Editor::start(&project);
    editor.send(
        r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":2,"info":{"name":"e","version":"1"}}}"#,
    );
    assert!(
        editor
            .receive(RESPONSE_TIMEOUT)
            .unwrap()
            .contains(r#""protocolVersion":2"#)
    );
    let mut problems = Vec::new();
    for mut row in rows().into_iter().filter(|row| row.group == group) {
        let text = String::from_utf8_lossy(&row.bytes);
        if text.contains(r#""initialize""#) || row.id == BEFORE_INITIALIZE {
            let mut fresh = Editor::start(&project);
            problems.extend(run_row(&mut fresh, &row, 2));
            problems.extend(fresh.finish().problems(0));
            continue;
        }
        let in_other_words = match &*row.id {
            "RP19" => Some(text.replace("session/load", "session/resume")),
            "RP20" => Some(
                text.replace("session/set_mode", "session/set_config_option")
                    .replace(
                        r#""modeId""#,
                        r#""configId": "mode", "type": "id", "value""#,
                    ),
            ),
            "RP21" => Some(text.replace("authenticate", "auth/login")),
            _ => None,
        };
        if let Some(words) = in_other_words {
            assert_ne!(
                words, text,
                "{} has changed: its translation does not apply",
                row.id
            );
            row.bytes = words.into_bytes();
        }
        problems.extend(run_row(&mut editor, &row, 2));
    }
    problems.extend(editor.finish().problems(0));
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Checks every method in the protocol's own table, in each version: a served one is known, another
/// one is refused.
pub fn method_table_matches_server() {
    let page = include_str!("../protocol/README.md");
    let table = page
        .split_once("<!-- acp:begin")
        .unwrap()
        .1
        .split_once("<!-- acp:end")
        .unwrap()
        .0;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() > 30, "the table is read wrong");
    for version in ["1", "2"] {
        let mut project = Project::new();
        project.set("ADJUTANT_ACP_V2", Some("1"));
        let mut editor = Editor::start(&project);
        let hello = serde_json::json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize",
            "params": {"protocolVersion": version.parse::<u32>().unwrap(), "info": {"name": "e", "version": "1"}}});
        editor.send(&hello.to_string());
        editor.receive(RESPONSE_TIMEOUT).unwrap();
        for row in rows.iter().filter(|row| row[3].starts_with("editor")) {
            let method = row[1].trim_matches('`').replace('*', "list");
            // They have no answer.
            if matches!(
                &*method,
                "session/cancel" | "$/cancel_request" | "mcp/message"
            ) {
                continue;
            }
            let here = row[2].contains(version);
            let served = row[4] == "served";
            editor.send(
                &serde_json::json!({"jsonrpc": "2.0", "id": method, "method": method, "params": [1]}).to_string(),
            );
            let answer: Value =
                serde_json::from_str(&editor.receive(RESPONSE_TIMEOUT).unwrap()).unwrap();
            assert_eq!(answer["id"], *method, "{answer}");
            let known = answer["error"]["code"] != -32601;
            let right = if served {
                known == here
            } else {
                !answer["error"].is_null()
            };
            assert!(right, "version {version}: {row:?}: {answer}");
        }
        let problems = editor.finish().problems(0);
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }
}

/// `latest`: the newest version that is spoken.
fn run_row(editor: &mut Editor, row: &Row, latest: u64) -> Vec<String> {
    let before = memory(editor.pid());
    editor.write(&row.bytes);
    let fence = format!("after {}", row.id);
    editor.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"{fence}","method":"_after"}}"#
    ));
    let mut answers = Vec::new();
    let mut fenced = false;
    let counts = expected_counts(&row.id);
    let wanted = counts.as_ref().map_or_else(
        || required(&row.required).count.0,
        |counts| counts.values().sum(),
    );
    // An answer that takes its time may come after the fence.
    while !fenced || answers.len() < wanted {
        let Some(line) = editor.receive(RESPONSE_TIMEOUT) else {
            return vec![format!(
                "{}: the stream ended or stalled after {} answers",
                row.id,
                answers.len()
            )];
        };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            return vec![format!("{}: not JSON: {line}", row.id)];
        };
        if message["id"] == fence.as_str() {
            fenced = true;
        } else {
            answers.push((message, line));
        }
    }
    let judged = match counts {
        Some(counts) => judge_many(&answers, counts),
        None => judge(&answers, &required(&row.required)),
    };
    let mut problems: Vec<String> = judged
        .into_iter()
        .map(|what| {
            format!(
                "{} {} (required: {}): {what}",
                row.id, row.description, row.required
            )
        })
        .collect();
    if row.id == "RP06"
        && answers
            .iter()
            .any(|(answer, _)| answer["result"]["protocolVersion"] != latest)
    {
        problems.push(format!(
            "RP06: the answer is not the latest supported version: {answers:?}"
        ));
    }
    if row.id == "RX04" && memory(editor.pid()).saturating_sub(before) > MAX_GROWTH {
        problems.push("RX04: the memory grew with the line".into());
    }
    problems
}

fn judge(answers: &[(Value, String)], required: &Required) -> Vec<String> {
    let mut problems = Vec::new();
    let (least, most) = required.count;
    if !(least..=most).contains(&answers.len()) {
        problems.push(format!("{} answers: {answers:?}", answers.len()));
    }
    for (answer, line) in answers {
        let code = answer["error"]["code"].as_i64();
        let is_accepted = match code {
            Some(code) => required.codes.contains(&code),
            None => required.codes.is_empty() && answer.get("result").is_some(),
        };
        if !is_accepted {
            problems.push(format!("code {code:?}: {line}"));
        }
        // Compared as text: 9007199254740993 must not have become a float.
        if !required.ids.is_empty()
            && !required
                .ids
                .iter()
                .any(|id| line.contains(&format!("\"id\":{id},")))
        {
            problems.push(format!("id: {line}"));
        }
    }
    problems
}

/// Returns the number of answers with each id and code, for a row that requires many.
fn expected_counts(row: &str) -> Option<BTreeMap<(String, i64), usize>> {
    match row {
        "RJ24" => Some(BTreeMap::from([
            (("null".into(), -32700), 100),
            (("911".into(), -32601), 1),
        ])),
        "RX02" => Some(
            (20_000..21_000)
                .map(|id: u32| ((id.to_string(), -32601), 1))
                .collect(),
        ),
        _ => None,
    }
}

fn judge_many(answers: &[(Value, String)], wanted: BTreeMap<(String, i64), usize>) -> Vec<String> {
    let mut received = BTreeMap::new();
    for (answer, _) in answers {
        *received
            .entry((
                answer["id"].to_string(),
                answer["error"]["code"].as_i64().unwrap_or_default(),
            ))
            .or_default() += 1;
    }
    if received == wanted {
        Vec::new()
    } else {
        vec![format!(
            "{} different answers, of {}",
            received.len(),
            wanted.len()
        )]
    }
}

/// Returns the resident memory in bytes.
pub fn memory(pid: i32) -> u64 {
    memory_figure(pid, "VmRSS:")
}

/// Returns the most resident memory so far, in bytes.
#[cfg(target_os = "linux")]
pub fn peak_memory(pid: i32) -> u64 {
    memory_figure(pid, "VmHWM:")
}

fn memory_figure(pid: i32, name: &str) -> u64 {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))
        .unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap_or_default()
        << 10
}

/// Returns the bytes of a row. Long rows are truncated in the table and reconstructed here.
fn bytes(id: &str, column: &str, total: &str) -> Vec<u8> {
    if column.is_empty() {
        return Vec::new();
    }
    let text: String = serde_json::from_str(column).unwrap();
    let mut bytes: Vec<u8> = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    let total: usize = total.parse().unwrap();
    if bytes.len() < total {
        bytes = match id {
            "RJ15" => {
                let depth = 200;
                let head = &text[..text.find('[').unwrap()];
                format!("{head}{}{}}}\n", "[".repeat(depth), "]".repeat(depth)).into_bytes()
            }
            "RJ16" => format!("{}{}\n", "[".repeat(100_000), "]".repeat(100_000)).into_bytes(),
            "RX02" => (20_000..21_000)
                .map(|id| format!("{{\"jsonrpc\": \"2.0\", \"id\": {id}, \"method\": \"nope\"}}\n"))
                .collect::<String>()
                .into_bytes(),
            "RX03" | "RX04" => {
                let end = b"\"}}\n";
                bytes.resize(total - end.len(), b'x');
                bytes.extend_from_slice(end);
                bytes
            }
            _ => panic!("{id} is truncated, and no rule reconstructs it"),
        };
    }
    assert_eq!(bytes.len(), total, "{id}");
    bytes
}

/// Parses comma-separated values with quotes (RFC 4180).
pub fn csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => field.push(letters.next().unwrap()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            '\r' if !quoted => {}
            letter => field.push(letter),
        }
    }
    rows
}

/// Tests the parser of the `required` column.
pub fn test_required_parser() {
    type Case = (
        &'static str,
        &'static [i64],
        &'static [&'static str],
        (usize, usize),
    );
    let table: &[Case] = &[
        ("-32700 id null", &[-32700], &["null"], (1, 1)),
        (
            "-32700 id null (one or two lines)",
            &[-32700],
            &["null"],
            (1, 2),
        ),
        ("-32700 or -32601, no crash", &[-32700, -32601], &[], (1, 1)),
        ("silence", &[], &[], (0, 0)),
        (
            "-32600 id 914 (or null)",
            &[-32600],
            &["914", "null"],
            (1, 1),
        ),
        (
            "-32600 id 917/null or silence (response-shaped)",
            &[-32600],
            &["917", "null"],
            (0, 1),
        ),
        (
            "-32600 id null or echo 1.5",
            &[-32600],
            &["null", "1.5"],
            (1, 1),
        ),
        ("-32601 id -7", &[-32601], &["-7"], (1, 1)),
        (
            "two answers -32601, both id 925",
            &[-32601],
            &["925"],
            (2, 2),
        ),
        ("result id 943", &[], &["943"], (1, 1)),
        (
            "-32002 id 956; no path is touched",
            &[-32002],
            &["956"],
            (1, 1),
        ),
        ("-32600/-32602, no crash", &[-32600, -32602], &[], (1, 1)),
    ];
    for (text, codes, ids, count) in table {
        let wanted = Required {
            codes: codes.to_vec(),
            ids: ids.iter().map(ToString::to_string).collect(),
            count: *count,
        };
        assert_eq!(required(text), wanted, "{text}");
    }
}
