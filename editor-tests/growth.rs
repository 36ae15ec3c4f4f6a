//! Costs that must grow in proportion to the input, counted without a clock: the bytes that a
//! process reads and writes, the number of calls, and its memory, at two sizes. `bench/growth.py`
//! measures the same in milliseconds.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;

use base::id::SessionId;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};

use crate::client::Client;
use crate::history;
use crate::model::{Model, script};
use crate::project::Project;
use crate::wire::{memory, peak_memory};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 6] = [
    (
        "session's start reads in proportion to its settings",
        sessions_start_reads_in_proportion_to_its_settings,
    ),
    (
        "session's load reads in proportion to its history",
        sessions_load_reads_in_proportion_to_its_history,
    ),
    (
        "page of a list reads no other session",
        page_of_a_list_reads_no_other_session,
    ),
    (
        "search reads no other session",
        search_reads_no_other_session,
    ),
    (
        "closed sessions take little memory",
        closed_sessions_take_little_memory,
    ),
    (
        "edit of a large file takes less than three times its size",
        edit_of_a_large_file_takes_less_than_three_times_its_size,
    ),
];

/// The smaller number of things, and the factor to the larger one.
const FEW: usize = 100;
const TIMES: usize = 5;

/// The share that may be counted beyond that, in per cent.
const MARGIN: u64 = 15;

/// Random variation in calls: parallel work, such as trying the sandbox, ends earlier or later.
const CHANCE: u64 = 1_500;

/// The bytes of such a call.
const CHANCE_BYTES: u64 = 64;

/// Number of runs; the one with the least parallel work counts.
const RUNS: usize = 2;

/// Reads and writes of a process since it began.
#[derive(Debug, Clone, Copy)]
struct Counted {
    calls: u64,
    bytes: u64,
}

impl Counted {
    fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let number = |key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap();
            line.trim_start_matches(':').trim().parse::<u64>().unwrap()
        };
        Self {
            calls: number("syscr") + number("syscw"),
            bytes: number("rchar") + number("wchar"),
        }
    }

    /// Returns the counts of the run with the least parallel work.
    fn least(run: impl Fn() -> Self) -> Self {
        let runs = (0..RUNS).map(|_| run());
        runs.reduce(|one, other| Self {
            calls: one.calls.min(other.calls),
            bytes: one.bytes.min(other.bytes),
        })
        .unwrap()
    }

    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Checks that the additional cost of `many` is at most its share of the additional cost of `few`,
/// plus `chance` calls.
fn check(name: &str, [none, few, many]: [Counted; 3], chance: u64) {
    let times = u64::try_from(TIMES).unwrap();
    for (what, none, few, many) in [
        ("calls", none.calls, few.calls, many.calls),
        ("bytes", none.bytes, few.bytes, many.bytes),
    ] {
        let few = few.saturating_sub(none);
        let many = many.saturating_sub(none);
        let chance = if what == "bytes" {
            CHANCE * CHANCE_BYTES
        } else {
            chance
        };
        let most = few * times * (100 + MARGIN) / 100 + chance;
        assert!(
            many <= most,
            "{name}: some take {few} {what} more than none, and {times} times as many take {many}"
        );
    }
}

/// Files of a project with so many of something, and the user's settings.
type Scene = fn(&Project, usize) -> Value;

const SCENES: [(&str, Scene); 7] = [
    ("skills", |project, count| {
        for at in 0..count {
            let text = format!(
                "---\nname: skill-{at}\ndescription: The skill with number {at}.\n---\nDo it.\n"
            );
            project.write(
                &format!("~/.config/adjutant/skill/skill-{at}/SKILL.md"),
                &text,
            );
        }
        json!({})
    }),
    ("agents", |project, count| {
        for at in 0..count {
            let text = format!(
                "---\ndescription: Agent {at}.\npermission:\n  edit: deny\n---\nIt reviews.\n"
            );
            project.write(&format!("~/.config/adjutant/agent/agent-{at}.md"), &text);
        }
        json!({})
    }),
    ("commands", |project, count| {
        for at in 0..count {
            project.write(
                &format!("~/.config/adjutant/command/command-{at}.md"),
                &format!("Do number {at}.\n"),
            );
        }
        json!({})
    }),
    ("instructions", |project, count| {
        let name = |at| format!("docs/rule-{at}.md");
        (0..count).for_each(|at| project.write(&name(at), &format!("Rule {at}: do not.\n")));
        json!({ "instructions": (0..count).map(name).collect::<Vec<_>>() })
    }),
    ("rules", |_, count| {
        let rule = |at| {
            (
                format!("tool{at} *"),
                json!(["allow", "ask", "deny"][at % 3]),
            )
        };
        json!({ "permission": { "bash": (0..count).map(rule).collect::<serde_json::Map<_, _>>() } })
    }),
    ("formatters", |_, count| {
        let one = |at| {
            (
                format!("own-{at}"),
                json!({ "command": ["true", "$FILE"], "extensions": [format!(".k{at}")] }),
            )
        };
        json!({ "formatter": (0..count).map(one).collect::<serde_json::Map<_, _>>() })
    }),
    ("language servers", |_, count| {
        let one = |at| {
            (
                format!("own-{at}"),
                json!({ "command": ["true", "-"], "extensions": [format!(".k{at}")] }),
            )
        };
        json!({ "lsp": (0..count).map(one).collect::<serde_json::Map<_, _>>() })
    }),
];

fn sessions_start_reads_in_proportion_to_its_settings() {
    for (name, scene) in SCENES {
        let counted = [0, FEW, FEW * TIMES].map(|count| {
            Counted::least(|| {
                let project = Project::new();
                let settings = scene(&project, count);
                project.settings(&settings);
                let mut client = Client::new(project);
                let before = Counted::of(client.editor.pid());
                client.open();
                let counted = Counted::of(client.editor.pid()).since(before);
                client.leave();
                counted
            })
        });
        check(name, counted, CHANCE);
    }
}

fn sessions_load_reads_in_proportion_to_its_history() {
    let id = SessionId::new("ses_0000000000000001aaaaaaaaaa");
    // The results of calls of the last hundred messages are read with them, and those before one
    // batch after the other.
    let counted = [2, 4 * FEW, 4 * FEW * TIMES].map(|more| {
        let messages = 100 + more;
        let project = Project::new();
        history::long(
            &project.path("~/.local/share/adjutant"),
            &project.cwd(),
            &id,
            messages,
            500,
        );
        let mut client = Client::new(project);
        let before = Counted::of(client.editor.pid());
        let cwd = client.project.cwd();
        client.request(
            1,
            "session/load",
            &json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] }),
        );
        let (answer, updates) = client.answer(1);
        assert!(answer.get("error").is_none(), "{answer}");
        let said = updates
            .iter()
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        let said: Vec<&str> = said
            .filter_map(|update| update["content"]["text"].as_str())
            .collect();
        let summary = messages - 99;
        let answers = (1..messages).step_by(2).filter(|at| *at != summary);
        let expected: Vec<String> = answers
            .map(|at| format!("In message {at} there is nothing new."))
            .collect();
        assert!(said == expected, "each is told once and in order: {said:?}");
        let counted = Counted::of(client.editor.pid()).since(before);
        client.leave();
        counted
    });
    // As many updates are written at once as there are: on a busy machine each in a call of its
    // own.
    check(
        "messages",
        counted,
        CHANCE + u64::try_from(4 * FEW * TIMES).unwrap(),
    );
}

/// The maximum number of bytes that are read for another session: its rows of the index, of which a
/// read has several. Its file is larger.
const MAX_BYTES_PER_OTHER_SESSION: u64 = 2_048;

/// Checks the cost of the same work with `sessions` sessions and with [`TIMES`] as many.
fn check_other_sessions(name: &str, sessions: usize, [few, many]: [Counted; 2]) {
    let more = u64::try_from(sessions * (TIMES - 1)).unwrap();
    for (what, few, many, each) in [
        ("calls", few.calls, many.calls, more / 2),
        (
            "bytes",
            few.bytes,
            many.bytes,
            more * MAX_BYTES_PER_OTHER_SESSION,
        ),
    ] {
        assert!(
            many <= few + each,
            "{name}: {few} {what}, with {more} sessions more {many}"
        );
    }
}

/// The first list of a process and the next page, from an index that another process has filled.
/// The process also compares the index with the names of the files, in the background: it reads the
/// rows of the index, of which a read has several.
fn page_of_a_list_reads_no_other_session() {
    let counted = [3 * FEW, 3 * FEW * TIMES].map(|count| {
        let project = Arc::new(Project::new());
        let data = project.path("~/.local/share/adjutant");
        history::many(&data, &project.cwd(), count);
        // Ends with 1, because it finds nothing.
        let filling = project
            .command(env!("CARGO_BIN_EXE_adjutant"))
            .args(["sessions", "search", "nothing-of-this-kind"])
            .current_dir(project.cwd())
            .output()
            .unwrap();
        assert_eq!(filling.status.code(), Some(1), "{filling:?}");
        Counted::least(|| {
            let mut client = Client::new(project.clone());
            let before = Counted::of(client.editor.pid());
            let mut cursor = None;
            for id in 1..3 {
                let mut page = json!({ "cwd": client.project.cwd() });
                if let Some(cursor) = cursor {
                    page["cursor"] = cursor;
                }
                client.request(id, "session/list", &page);
                let (answer, _) = client.answer(id);
                let result = &answer["result"];
                assert!(
                    !result["sessions"].as_array().unwrap().is_empty(),
                    "{answer}"
                );
                cursor = Some(result["nextCursor"].clone());
                assert!(cursor.as_ref().is_some_and(Value::is_string), "{answer}");
            }
            let counted = Counted::of(client.editor.pid()).since(before);
            client.leave();
            counted
        })
    });
    check_other_sessions("two pages", 3 * FEW, counted);
}

/// A search for a word that no session has, after earlier searches have filled its index.
fn search_reads_no_other_session() {
    let counted = [FEW, FEW * TIMES].map(|count| {
        let project = Project::new();
        let data = project.path("~/.local/share/adjutant");
        history::many(&data, &project.cwd(), count);
        let indexed = || {
            let index = rusqlite::Connection::open(data.join("search.db")).unwrap();
            let sql = "SELECT count(*) FROM session WHERE is_current = 1";
            index
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        let mut before = 0;
        while before < i64::try_from(count).unwrap() {
            search(&project);
            let after = indexed();
            assert!(after > before, "{after} sessions are indexed");
            before = after;
        }
        Counted::least(|| search(&project))
    });
    check_other_sessions("a search", FEW, counted);
}

/// Counts the reads and writes of a search that finds nothing.
fn search(project: &Project) -> Counted {
    let mut process = project
        .command(env!("CARGO_BIN_EXE_adjutant"))
        .args(["sessions", "search", "nothing-of-this-kind"])
        .current_dir(project.cwd())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(process.id()).unwrap();
    // The counts of a process that has ended exist until it is waited for.
    waitid(
        WaitId::Pid(Pid::from_raw(pid).unwrap()),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )
    .unwrap();
    let counted = Counted::of(pid);
    assert_eq!(process.wait().unwrap().code(), Some(1));
    counted
}

/// Opens and closes sessions, one after the other. The first ones fill what the process keeps for
/// all of them.
fn closed_sessions_take_little_memory() {
    const MAX_BYTES_PER_SESSION: u64 = 8 << 10;
    let mut client = Client::new(Project::new());
    let cwd = client.project.cwd();
    let mut id = 1;
    let mut open_and_close = |client: &mut Client, count: usize| {
        for _ in 0..count {
            client.request(id, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
            let (answer, _) = client.answer(id);
            let session = answer["result"]["sessionId"].clone();
            client.request(id + 1, "session/close", &json!({ "sessionId": session }));
            let (answer, _) = client.answer(id + 1);
            assert!(answer.get("error").is_none(), "{answer}");
            id += 2;
        }
        memory(client.editor.pid())
    };
    let before = open_and_close(&mut client, 2 * FEW);
    let after = open_and_close(&mut client, FEW * TIMES);
    client.leave();
    let sessions = u64::try_from(FEW * TIMES).unwrap();
    let each = after.saturating_sub(before) / sessions;
    assert!(
        each <= MAX_BYTES_PER_SESSION,
        "{sessions} closed sessions take {each} bytes each"
    );
}

/// Edits a line of a file that has been read before, with undo. The edit needs the old text and the
/// new one.
fn edit_of_a_large_file_takes_less_than_three_times_its_size() {
    const BYTES: u64 = 32 << 20;
    let line = "a line of the file, and some words to make it as long as lines are, of which the last is: ";
    let lines = usize::try_from(BYTES).unwrap() / (line.len() + 8);
    let text: String = (0..lines).map(|at| format!("{line}{at:07}\n")).collect();
    let old = format!("{line}{:07}", lines / 2);
    let new = "another line";
    let read = json!({ "filePath": "large.txt", "limit": 10 });
    let edit = json!({ "filePath": "large.txt", "oldString": old, "newString": new });
    let answers = format!("call read {read}\n---\ncall edit {edit}\n---\ntext: Done.\n");
    let model = Model::start(script(&answers).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "permission": "allow" }));
    project.write("large.txt", &text);
    let mut client = Client::new(project);
    let session = client.open();
    let before = memory(client.editor.pid());
    client.prompt(2, &session, "Edit it.");
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    let took = peak_memory(client.editor.pid()) - before;
    let written = fs::read_to_string(client.project.path("large.txt")).unwrap();
    assert!(written == text.replace(&old, new));
    client.prompt(3, &session, "/undo");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    let project = client.leave();
    assert!(fs::read_to_string(project.path("large.txt")).unwrap() == text);
    assert!(
        took < 3 * BYTES,
        "an edit of {} MiB took {} MiB",
        BYTES >> 20,
        took >> 20
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}
