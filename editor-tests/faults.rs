//! Rows of the fault catalogue that need processes: killed writers, full disks, vanished clients.
//!
//! The killed writers are this same program, started again with [`WRITER`] set. Rows that kill
//! hundreds of agents run in a shorter form, unless `ADJUTANT_FAULTS=all` is set, as `.ci/run`
//! does.
//!
//! | row | what | where |
//! |---|---|---|
//! | FD01, FD03, FD10, FD17 | killed writers, agents and migrations, two writers | here |
//! | FD05 | a flush fails once (where there is strace), and for good | here, `faults/large.rs` |
//! | FD06 | a full disk, by a limit on files, and a small real one | here, `faults/large.rs` |
//! | FD07 | no directory for data | `connection/no-home.md`, `connection/read-only-home.md` |
//! | FD04 | power cuts | `crates/store/src/sqlite/power.rs` |
//! | FD02, FD08, FD09, FD11, FD12, FD15 | prefixes, damage, foreign files, networks, clocks, readers | `crates/store/src/sqlite/faults.rs` |
//! | FD13, FD14, FD16 | long sessions, long outputs, loose permissions | `faults/large.rs`; times: `bench/store.rs` |
//! | FD18 | unreadable and partly readable sessions | `faults/unreadable.rs` |
//! | FW01, FW02, FW08, FW10 | killed and refused edits, undo beside a user, killed undos | `faults/edits.rs` |
//! | FW03, FW04, FW05, FW07 | files that change meanwhile, line ends, encodings, more than words | `crates/tools/src/faults.rs` |
//! | FW06 | a naive reference | `crates/textedit/src/replace.rs` |
//! | FW09 | undo twice, after a restart, without snapshots | `crates/session/src/revert/tests.rs`, `sessions/undo-restart.md` |
//! | FC01, FC02, FC03 | vanished editors, signals, closed outputs | here, `faults/ends.rs` |
//! | FC04, FC05 | lines of noise, files of JSON | `wire.rs` |
//! | FC06 | a panic in a handler | `protocol/src/table.rs` |

mod edits;
mod ends;
mod files;
mod hostile;
mod large;
mod leases;
mod offsets;
mod soak;
mod storm;
mod unreadable;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base::environment::Timestamp;
use base::id::{MessageId, PartId, SessionId};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde_json::{Value, json};
use store::{Error, Record, Store};
use transcript::{Content, Message, ModelRef, Part, Role, Text, User};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::parallel::run_in_parallel;
use crate::project::Project;
use crate::runtime::block_on;

/// Names, which begin with the row's id, and functions of the tests.
pub const ALL: [(&str, fn()); 31] = [
    (
        "FD01 killed writer leaves a readable session",
        fd01_killed_writer_leaves_a_readable_session,
    ),
    (
        "FD03 agent killed at any step loses no reported message",
        fd03_agent_killed_at_any_step_loses_no_reported_message,
    ),
    (
        "FD05 failed flush is reported",
        fd05_failed_flush_is_reported,
    ),
    (
        "FD05 store without working flushes reports each loss",
        large::fd05_store_without_working_flushes_reports_each_loss,
    ),
    (
        "FD06 full disk leaves a readable session",
        fd06_full_disk_leaves_a_readable_session,
    ),
    (
        "FD06 full small disk recovers",
        large::fd06_full_small_disk_recovers,
    ),
    (
        "FD10 second writer is locked out",
        fd10_second_writer_is_locked_out,
    ),
    ("FD13 long session works", large::fd13_long_session_works),
    (
        "FD14 large output of a command is bounded",
        large::fd14_large_output_of_a_command_is_bounded,
    ),
    (
        "FD16 stored files are readable by their owner only",
        large::fd16_stored_files_are_readable_by_their_owner_only,
    ),
    (
        "FD17 killed migration is repeated",
        fd17_killed_migration_is_repeated,
    ),
    (
        "FD18 unreadable session is reported",
        unreadable::fd18_unreadable_session_is_reported,
    ),
    (
        "FW01 killed edit leaves whole files",
        edits::fw01_killed_edit_leaves_whole_files,
    ),
    (
        "FW01 agent killed during an edit leaves whole files",
        edits::fw01_agent_killed_during_an_edit_leaves_whole_files,
    ),
    (
        "FW02 refused write is reported",
        edits::fw02_refused_write_is_reported,
    ),
    (
        "FW08 undo preserves a user's changes",
        edits::fw08_undo_preserves_a_users_changes,
    ),
    (
        "FW10 killed undo is completed",
        edits::fw10_killed_undo_is_completed,
    ),
    (
        "FC01 agent exits after its client",
        fc01_agent_exits_after_its_client,
    ),
    (
        "FC02 signal ends the agent in every state",
        ends::fc02_signal_ends_the_agent_in_every_state,
    ),
    (
        "FC03 closed output does not hang the agent",
        ends::fc03_closed_output_does_not_hang_the_agent,
    ),
    ("FM05 agent leaves no process", fm05_agent_leaves_no_process),
    (
        "random kills lose nothing reported",
        storm::random_kills_lose_nothing_reported,
    ),
    (
        "provider that fails at any byte gets one answer",
        offsets::provider_that_fails_at_any_byte_gets_one_answer,
    ),
    (
        "endless answers are bounded",
        hostile::endless_answers_are_bounded,
    ),
    (
        "random client and random model get valid answers",
        soak::random_client_and_random_model_get_valid_answers,
    ),
    (
        "few open files serve many sessions",
        files::few_open_files_serve_many_sessions,
    ),
    (
        "MCP server without files is started later",
        files::server_without_files_is_started_later,
    ),
    (
        "limit on open files is raised for adjutant only",
        files::limit_on_open_files_is_raised_for_adjutant_only,
    ),
    (
        "killed owner in a database loses nothing acknowledged",
        leases::killed_owner_in_a_database_loses_nothing_acknowledged,
    ),
    (
        "owner stopped for longer than its lease writes nothing",
        leases::owner_stopped_for_longer_than_its_lease_writes_nothing,
    ),
    (
        "database restarted in a turn is used again",
        leases::database_restarted_in_a_turn_is_used_again,
    ),
];

/// Set for a process that only writes: its task, and the directory.
const WRITER: &str = "ADJUTANT_TEST_WRITER";

/// Runs the writer's task and exits, if this process is a writer.
pub fn write_if_asked() {
    let Some(task) = std::env::var(WRITER).ok() else {
        return;
    };
    let (what, rest) = task.split_once(' ').unwrap();
    let (id, dir) = rest.split_once(' ').unwrap();
    match what {
        "overwrite" => edits::overwrite(Path::new(dir)),
        "write-without" => {
            edits::write_without(id, Path::new(dir));
            std::process::exit(0);
        }
        _ => {}
    }
    block_on(async {
        let store = leases::store(dir);
        let id = SessionId::new(id);
        match what {
            "append" => append(&store, &id, usize::MAX).await,
            "some" => append(&store, &id, 12).await,
            "five-hundred" => append(&store, &id, 500).await,
            "open" => {
                tell("open");
                let loaded = store.load(&id).await;
                tell(if loaded.is_ok() { "loaded" } else { "failed" });
            }
            "until-full" => until_full(&store, &id).await,
            "fill-disk" => large::fill_disk(&store, &id, Path::new(dir)).await,
            what if what.starts_with("flushless-") => {
                let after = what.trim_start_matches("flushless-").parse().unwrap();
                large::append_without_flushes(&store, &id, after).await;
            }
            _ => panic!("a writer that {what}s?"),
        }
        store.stop().await;
    });
    std::process::exit(0);
}

/// One line for who started this writer. It is lost when that one is gone.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

fn stored_message(number: usize) -> Message {
    let model = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    let text = format!("number {number} {}", "x".repeat(number * 37 % 900));
    Message {
        id: MessageId::new(format!("msg_{number:08}")),
        created: Timestamp(1),
        role: Role::User(User {
            agent: "build".into(),
            model,
        }),
        parts: vec![Part {
            id: PartId::new(format!("prt_{number:08}")),
            content: Content::Text(Text {
                text: text.into(),
                ..Text::default()
            }),
        }],
    }
}

async fn keep(store: &Store, id: &SessionId, number: usize) -> Result<(), Error> {
    let message = stored_message(number);
    store.write_message(id, &message).await;
    store.write_part(id, &message.id, &message.parts[0]).await;
    store.flush(id).await
}

/// Appends messages and prints the number of each that is safe, or that it is lost.
async fn append(store: &Store, id: &SessionId, count: usize) {
    let first = match store.load(id).await {
        // A message without its part was not safe: it is written again.
        Ok(stored) => stored
            .messages
            .iter()
            .take_while(|message| !message.parts.is_empty())
            .count(),
        Err(Error::NotFound(_)) => {
            let created = store
                .create(&Record::new(id.clone(), "/w".into(), Timestamp(1)))
                .await;
            tell(if created.is_ok() {
                "created"
            } else {
                "not created"
            });
            store
                .write_record(&Record::new(id.clone(), "/w".into(), Timestamp(1)))
                .await;
            0
        }
        Err(e) => {
            for _ in 0..count.min(500) {
                match store.load(id).await {
                    Err(Error::Locked { .. }) => tell("locked"),
                    // The first one has ended meanwhile.
                    Ok(_) => return tell("ready"),
                    Err(other) => panic!("{e}, then {other}"),
                }
            }
            return;
        }
    };
    tell("ready");
    for number in (first..).take(count) {
        match keep(store, id, number).await {
            Ok(()) => tell(&format!("{number}")),
            Err(_) => tell(&format!("lost {number}")),
        }
    }
}

/// Appends until the disk is full, then frees space and continues.
async fn until_full(store: &Store, id: &SessionId) {
    append(store, id, 40).await;
    let all = getrlimit(Resource::Fsize).maximum;
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: all,
            maximum: all,
        },
    )
    .unwrap();
    // Whatever could not be written is written first.
    match keep(store, id, 40).await {
        Ok(()) => tell("recovered"),
        Err(e) => tell(&format!("not recovered: {e}")),
    }
}

struct Writer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn start(what: &str, id: &str, dir: &Path) -> Self {
        Self::run(
            Command::new(std::env::current_exe().unwrap()),
            what,
            id,
            dir,
        )
    }

    fn run(mut command: Command, what: &str, id: &str, dir: &Path) -> Self {
        command.env(WRITER, format!("{what} {id} {}", dir.display()));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn until(&mut self, text: &str) {
        let mut line = String::new();
        while line.trim() != text {
            line.clear();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return;
            }
        }
    }

    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.rest()
    }

    /// Returns the output until the process ends. Panics with the process.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let mut complaints = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut complaints)
            .unwrap();
        self.child.wait().unwrap();
        assert!(!complaints.contains("panicked"), "{complaints}");
        text
    }
}

/// Returns the highest number that was printed as safe, on a whole line.
fn acknowledged(text: &str) -> Option<usize> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.parse().ok()).max()
}

/// Returns a directory in memory, if possible: the process is killed, not the disk.
fn memory_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Returns the number of stored messages that have their parts; each must equal the expected one,
/// or have no parts yet.
fn stored_count(dir: &Path, id: &str) -> usize {
    let stored = block_on(async {
        let store = Store::start(dir);
        let stored = store.load(&SessionId::new(id)).await;
        store.stop().await;
        stored
    });
    match stored {
        Ok(stored) => {
            for (number, message) in stored.messages.iter().enumerate() {
                let expected = stored_message(number);
                let begun = message.id == expected.id && message.parts.is_empty();
                assert!(*message == expected || begun, "{number} is {message:?}");
            }
            stored
                .messages
                .iter()
                .filter(|message| !message.parts.is_empty())
                .count()
        }
        Err(Error::NotFound(_)) => 0,
        Err(e) => panic!("{e}"),
    }
}

fn fd01_killed_writer_leaves_a_readable_session() {
    // Fifty sessions, each written to by twenty processes one after the other.
    run_in_parallel(50, |number| {
        let dir = memory_directory();
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut safe = 0;
        for _ in 0..20 {
            let mut writer = Writer::start("append", "ses_00000001", dir.path());
            writer.until("ready");
            thread::sleep(Duration::from_micros(random.u64(..20_000))); // the moment of the kill
            let last = acknowledged(&writer.kill()).map_or(0, |last| last + 1);
            safe = safe.max(last);
            let kept = stored_count(dir.path(), "ses_00000001");
            assert!(kept >= safe, "{kept} of {safe} that were acknowledged");
            safe = kept;
        }
    });
}

/// Kills the agent after each prefix of a conversation: 25 moments, eight times each.
#[expect(clippy::too_many_lines, reason = "a table")]
fn fd03_agent_killed_at_any_step_loses_no_reported_message() {
    const MOMENTS: usize = 25;
    const TIMES: usize = 8;
    run_in_parallel(MOMENTS * TIMES, |number| {
        let moment = number / TIMES;
        let time = number % TIMES;
        let call = |n: u32| {
            format!(
                "call bash {}\n",
                json!({ "command": format!("echo {n} >> marks") })
            )
        };
        let script = format!(
            "text: First.\n{}---\ntext: Second.\n{}---\ntext: Third.\n---\n{}---\ntext: Fourth.\n---\ntext: After.\n",
            call(1),
            call(2),
            call(3)
        );
        let model = Model::start(model::script(&script).unwrap());
        let project = Arc::new(Project::new());
        project.provider(
            &model.base(),
            &json!({ "permission": { "bash": "allow", "edit": "allow" } }),
        );
        let mut client = Client::new(project.clone());
        let session = client.open();
        // The session is stored from its first change on.
        client.request(
            9,
            "session/set_mode",
            &json!({ "sessionId": session, "modeId": "build" }),
        );
        client.answer(9);
        client.prompt(2, &session, "Make two marks.");
        let mut received = Vec::new();
        let mut asked = 1;
        while received.len() < moment {
            let message = client.receive();
            if message["id"] == 2 && asked == 1 {
                asked = 2;
                client.prompt(3, &session, "And a third.");
            } else if message["id"] == 3 {
                break;
            }
            received.push(message);
        }
        thread::sleep(Duration::from_micros(time as u64 * 700)); // the moment of the kill
        client.editor.signal(Signal::KILL);
        let gone = client.editor.finish();
        received.extend(
            gone.lines
                .iter()
                .filter_map(|line| serde_json::from_str(line).ok()),
        );
        let marks = || {
            std::fs::read_to_string(project.path("marks"))
                .unwrap_or_default()
                .lines()
                .count()
        };
        let before = marks();
        drop(client);

        let mut again = Client::new(project.clone());
        let cwd = project.cwd();
        again.request(
            2,
            "session/load",
            &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
        );
        let (answer, updates) = again.answer(2);
        assert!(
            answer.get("result").is_some(),
            "moment {moment}, time {time}: {answer}"
        );
        let prompts = updates
            .iter()
            .filter(|update| update["sessionUpdate"] == "user_message_chunk")
            .count();
        let shown = |received: &Value| {
            received["params"]["update"]["sessionUpdate"] == "agent_message_chunk"
        };
        // An update of a turn was shown, so its prompt is stored.
        assert!(
            prompts >= usize::from(received.iter().any(shown)),
            "moment {moment}, time {time}: a prompt was lost"
        );
        let done = |n: usize| {
            received
                .iter()
                .any(|received| received["id"] == n && received.get("result").is_some())
        };
        assert!(
            prompts > usize::from(done(2) && done(3)) || !done(2),
            "moment {moment}, time {time}"
        );
        // A call that was running has ended, and is not reported as done.
        let mut calls = BTreeMap::new();
        for update in updates
            .iter()
            .filter(|update| update.get("toolCallId").is_some())
        {
            let status = calls
                .entry(update["toolCallId"].to_string())
                .or_insert(Value::Null);
            if let Some(now) = update.get("status") {
                *status = now.clone();
            }
        }
        let over = |status: &Value| status == "completed" || status == "failed";
        assert!(
            calls.values().all(over),
            "moment {moment}, time {time}: {updates:?}"
        );
        let done_calls = calls
            .values()
            .filter(|status| *status == "completed")
            .count();
        assert!(
            done_calls <= before,
            "moment {moment}, time {time}: a call is said to be done that was not"
        );
        assert_eq!(
            marks(),
            before,
            "moment {moment}, time {time}: something ran again by itself"
        );
        drop(again.leave());
        let marks = std::fs::read_to_string(project.path("marks")).unwrap_or_default();
        for n in 1..=3 {
            assert!(
                marks.lines().filter(|line| *line == n.to_string()).count() <= 1,
                "{n} ran twice: {marks:?}"
            );
        }
    });
}

/// Fails the n-th flush of a thread, once. Data that was not safe is not reported as safe; the
/// store continues. A file is created by its own thread, with a few flushes: if one of those fails,
/// it fails each time.
fn fd05_failed_flush_is_reported() {
    const MAKING: usize = 4;
    let works = Command::new("strace")
        .args(["-f", "-e", "trace=none", "true"])
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        return;
    }
    run_in_parallel(40, |number| {
        let dir = memory_directory();
        let mut command = Command::new("strace");
        let inject = format!("inject=fdatasync,fsync:error=EIO:when={}", number + 1);
        command.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fdatasync,fsync",
            "-e",
            &inject,
        ]);
        command.arg(std::env::current_exe().unwrap());
        let mut writer = Writer::run(command, "some", "ses_00000001", dir.path());
        let text = writer.rest();
        let safe = acknowledged(&text);
        assert!(
            safe.is_some() || number < MAKING,
            "after flush {number} failed nothing was safe any more: {text}"
        );
        match safe {
            Some(safe) => assert!(
                stored_count(dir.path(), "ses_00000001") > safe,
                "flush {number}: {text}"
            ),
            None => assert_eq!(text.matches("lost").count(), 12, "flush {number}: {text}"),
        }
    });
}

/// Limits files to n × 512 bytes, for every n: data reported as safe is safe, and nothing is
/// missing once there is space again.
fn fd06_full_disk_leaves_a_readable_session() {
    run_in_parallel(400, |blocks| {
        let dir = memory_directory();
        let mut command = Command::new("/bin/sh");
        let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\"");
        command
            .arg("-c")
            .arg(script)
            .arg(std::env::current_exe().unwrap());
        let mut writer = Writer::run(command, "until-full", "ses_00000001", dir.path());
        let text = writer.rest();
        let kept = stored_count(dir.path(), "ses_00000001");
        assert!(
            kept > acknowledged(&text).unwrap_or(0) || !text.contains('\n'),
            "{blocks} blocks: {kept} kept of {text}"
        );
        assert!(
            text.contains("recovered") && !text.contains("not recovered"),
            "{blocks} blocks: {text}"
        );
        assert_eq!(kept, 41, "{blocks} blocks: {text}");
    });
}

fn fd10_second_writer_is_locked_out() {
    let dir = memory_directory();
    // One session: one process writes, the other is refused, five hundred times.
    let mut first = Writer::start("five-hundred", "ses_00000001", dir.path());
    first.until("ready");
    let mut second = Writer::start("five-hundred", "ses_00000001", dir.path());
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| second.rest());
        (first.rest(), other.join().unwrap())
    });
    assert_eq!(acknowledged(&one), Some(499), "{other}");
    // The second was locked out as long as the first was there; it may have come after it.
    assert!(
        other.lines().all(|line| line == "locked") || other.contains("ready"),
        "{other}"
    );
    assert!(stored_count(dir.path(), "ses_00000001") >= 500);
    // Two sessions in one store: neither waits for the other.
    let mut writers =
        ["ses_00000002", "ses_00000003"].map(|id| Writer::start("five-hundred", id, dir.path()));
    for writer in &mut writers {
        assert_eq!(acknowledged(&writer.rest()), Some(499));
    }
    for id in ["ses_00000002", "ses_00000003"] {
        assert_eq!(stored_count(dir.path(), id), 500);
    }
}

fn fd17_killed_migration_is_repeated() {
    let sql = include_str!("fixtures/store/format-1.sql");
    let id = "ses_019e2b8fd2c80001abcdefghij";
    let pattern = memory_directory();
    let old: PathBuf = pattern.path().join("old.db");
    let database = rusqlite::Connection::open(&old).unwrap();
    database.execute_batch(sql).unwrap();
    drop(database);
    run_in_parallel(200, |number| {
        let dir = memory_directory();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        std::fs::copy(&old, dir.path().join("sessions").join(format!("{id}.db"))).unwrap();
        let mut writer = Writer::start("open", id, dir.path());
        writer.until("open");
        thread::sleep(Duration::from_micros(number as u64 * 60)); // the moment of the kill
        writer.kill();
        let stored =
            block_on(async { Store::start(dir.path()).load(&SessionId::new(id)).await }).unwrap();
        // Half a page of the log may have been written: it is cut off and reported.
        let other: Vec<_> = stored
            .damage
            .iter()
            .filter(|line| !line.contains("not whole and are cut off"))
            .collect();
        assert_eq!(
            (stored.messages.len(), other),
            (3, Vec::new()),
            "killed after {number} × 60 µs"
        );
    });
}

/// Ends the client while the agent is idle, in a turn, waits for an answer, or loads a session: the
/// agent exits.
fn fc01_agent_exits_after_its_client() {
    run_in_parallel(40, |number| {
        let state = ends::STATES[number % 4];
        let mut fixture = ends::Fixture::new(state);
        let gone = fixture.client.editor.finish();
        assert_eq!(gone.problems(0), Vec::<String>::new(), "{state:?}");
        assert!(
            fixture.is_left_clean(),
            "{state:?}: {:?}",
            fixture.project.leftovers()
        );
    });
}

/// Takes calls of the system from this process: they fail with an error from now on, where an
/// argument has certain bits, if one is named.
fn forbid(calls: &[(i64, Option<(u8, u64)>)], errno: i32) {
    let having = |(argument, bits): &(u8, u64)| {
        let masked = SeccompCmpOp::MaskedEq(*bits);
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, masked, *bits).unwrap()
    };
    let rule = |having: SeccompCondition| SeccompRule::new(vec![having]).unwrap();
    let rules = calls
        .iter()
        .map(|(call, bits)| (*call, bits.iter().map(having).map(rule).collect()));
    refuse(rules.collect(), errno);
}

/// Does the same for calls whose first argument is above a number.
fn forbid_above(call: i64, number: u64, errno: i32) {
    let above =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Gt, number).unwrap();
    refuse(
        [(call, vec![SeccompRule::new(vec![above]).unwrap()])].into(),
        errno,
    );
}

fn refuse(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) {
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let error = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, machine).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter_all_threads(&program).unwrap();
}

/// Children that fork, hide in sessions of their own and ignore signals; the agent ends in five
/// ways.
fn fm05_agent_leaves_no_process() {
    const WAYS: [&str; 5] = ["end of input", "TERM", "KILL", "cancel", "time"];
    run_in_parallel(WAYS.len() * 20, |number| {
        let way = WAYS[number % WAYS.len()];
        let limit = if way == "time" { 1_000 } else { 60_000 };
        let command = "trap '' TERM; sh -c 'trap \"\" TERM; sleep 60 & sleep 60' & sleep 60 & echo begun; wait";
        let call = json!({ "command": command, "timeout": limit });
        let model =
            Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.\n")).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
        let mut client = Client::new(project.clone());
        let session = client.open();
        client.prompt(2, &session, "Run it.");
        while !client.receive().to_string().contains("begun") {}
        match way {
            "TERM" => client.editor.signal(Signal::TERM),
            "KILL" => client.editor.signal(Signal::KILL),
            "cancel" => {
                client
                    .send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
                assert_eq!(client.answer(2).0["result"]["stopReason"], "cancelled");
            }
            "time" => drop(client.answer(2)),
            _ => {}
        }
        client.editor.finish();
        // A killed agent can end nothing itself: another process does, which takes a moment.
        // Outside Linux there is none.
        let left = project.left_after(RESPONSE_TIMEOUT, |_| {
            way != "KILL" || cfg!(target_os = "linux")
        });
        project.end_leftovers();
        assert!(left.is_empty(), "{way}: {left:?}");
    });
}
