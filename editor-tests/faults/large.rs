//! Large inputs and small resources: long sessions, long outputs, small disks, loose permissions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use base::id::SessionId;
use serde_json::{Value, json};
use store::Store;

use super::{Writer, acknowledged, append, keep, memory_directory, stored_count, tell};
use crate::client::Client;
use crate::editor::Editor;
use crate::long_run::proc;
use crate::model::{self, Model};
use crate::parallel::run_in_parallel;
use crate::project::Project;
use crate::runtime::block_on;

/// Appends messages, and from the n-th flush on every flush fails.
pub(super) async fn append_without_flushes(store: &Store, id: &SessionId, after: usize) {
    append(store, id, after).await;
    super::forbid(
        &[(libc::SYS_fdatasync, None), (libc::SYS_fsync, None)],
        libc::EIO,
    );
    for number in after..after + 6 {
        match keep(store, id, number).await {
            Ok(()) => tell(&format!("{number}")),
            Err(e) => tell(&format!("lost {number}: {e}")),
        }
    }
}

/// FD05: fails every flush from the n-th on. Nothing is reported as safe that is not, the process
/// lives, and earlier data is intact.
pub(super) fn fd05_store_without_working_flushes_reports_each_loss() {
    run_in_parallel(40, |after| {
        let dir = memory_directory();
        let mut writer = Writer::start(&format!("flushless-{after}"), "ses_00000001", dir.path());
        let text = writer.rest();
        let safe = acknowledged(&text);
        assert_eq!(safe, after.checked_sub(1), "after {after} flushes: {text}");
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("lost "))
                .count(),
            6,
            "{text}"
        );
        assert!(
            stored_count(dir.path(), "ses_00000001") >= after,
            "after {after} flushes: {text}"
        );
    });
}

/// Fills a small disk with a session, then frees space, and loads the session.
pub(super) async fn fill_disk(store: &Store, id: &SessionId, dir: &Path) {
    fs::write(dir.join("filler"), vec![0_u8; 160 << 10]).unwrap();
    append(store, id, 60).await;
    fs::remove_file(dir.join("filler")).unwrap();
    match keep(store, id, 60).await {
        Ok(()) => tell("recovered"),
        Err(e) => tell(&format!("not recovered: {e}")),
    }
    store.stop().await;
    // This disk is not visible to other processes.
    let stored = Store::start(dir).load(id).await.unwrap();
    tell(&format!(
        "kept {} {:?}",
        stored.messages.len(),
        stored.damage
    ));
}

/// FD06: fills a real disk, of 448 KiB in memory. (64 KiB would be too small for the empty
/// databases.)
pub(super) fn fd06_full_small_disk_recovers() {
    let dir = memory_directory();
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=448k none \"$1\" && exec \"$0\"";
    command
        .args(["-Urm", "/bin/sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path());
    let tried = Command::new("unshare")
        .args(["-Urm", "/bin/sh", "-c", "mount -t tmpfs none /mnt"])
        .output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return; // no rights to make a disk here
    }
    let text = Writer::run(command, "fill-disk", "ses_00000001", dir.path()).rest();
    let lost = text
        .lines()
        .filter(|line| line.starts_with("lost "))
        .count();
    assert!(lost > 0, "the disk was never full: {text}");
    assert!(
        text.contains("recovered") && !text.contains("not recovered"),
        "{text}"
    );
    assert!(text.contains("kept 61 "), "{text}");
}

/// FD14: a command prints 100 MB: on one line, in a million lines, in no letters at all.
pub(super) fn fd14_large_output_of_a_command_is_bounded() {
    const PRINTED_BYTES: u64 = 100_000_000;
    let ways = [
        (
            "one line",
            format!("head -c {PRINTED_BYTES} /dev/zero | tr '\\0' x"),
        ),
        (
            "lines",
            format!(
                "yes 'a line with an umlaut: \u{fc}, and some more words to make it one hundred bytes long, all in all, here' | head -c {PRINTED_BYTES}"
            ),
        ),
        (
            "binary",
            format!(
                "if [ -x \"$(command -v openssl)\" ]; then openssl enc -aes-128-ctr -nosalt -K 0 -iv 0 -in /dev/zero 2>/dev/null; else cat /dev/urandom; fi | head -c {PRINTED_BYTES}"
            ),
        ),
    ];
    for (what, line) in ways {
        let call = json!({ "command": line, "timeout": 120_000 });
        let model =
            Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.\n")).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
        let mut client = Client::new(project.clone());
        let session = client.open();
        let before = most(client.editor.pid());
        let start = Instant::now();
        client.prompt(2, &session, "Print it.");
        let (answer, updates) = client.answer(2);
        let took = start.elapsed();
        assert_eq!(
            answer["result"]["stopReason"], "end_turn",
            "{what}: {answer}"
        );
        let grown = most(client.editor.pid()).saturating_sub(before) >> 20;
        assert!(grown <= 64, "{what}: grown by {grown} MiB");
        let news = updates
            .iter()
            .filter(|update| update["sessionUpdate"] == "tool_call_update")
            .count();
        let most_news = 8 + usize::try_from(took.as_millis()).unwrap() / 50;
        assert!(news <= most_news, "{what}: {news} updates in {took:?}");
        // A flood is seen while it comes, not when it is over.
        assert!(
            news as u64 >= 3 * took.as_secs(),
            "{what}: {news} updates in {took:?}"
        );
        let done = updates
            .iter()
            .rfind(|update| update["status"] == "completed")
            .unwrap();
        let shown = done["content"][0]["content"]["text"].as_str().unwrap();
        // All output was read, and little of it is shown, with the path and the size of the rest.
        assert!(
            shown.len() < 200_000,
            "{what}: {} bytes are shown",
            shown.len()
        );
        assert!(
            shown.contains("truncated") || shown.contains("left out"),
            "{what}: {shown}"
        );
        let filed = fs::read_dir(project.path("~/.local/share/adjutant/tool-output"))
            .unwrap()
            .flatten()
            .next()
            .unwrap();
        assert!(filed.metadata().unwrap().len() >= 1 << 20, "{what}");
        client.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

/// Returns the most memory a process had at any time.
fn most(pid: i32) -> u64 {
    let status = fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap_or_default()
        << 10
}

/// FD16: no other user can read anything, whatever the umask and whatever was there before.
pub(super) fn fd16_stored_files_are_readable_by_their_owner_only() {
    for case in ["umask 000", "umask 022", "loose before"] {
        let script = "call read {\"filePath\":\"a.txt\"}\n---\ncall bash {\"command\":\"seq 100000; touch made\"}\n---\ntext: Done.\n---\ntext: Again.\n";
        let model = Model::start(model::script(script).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
        project.write("a.txt", "a\n");
        let umask = if case == "umask 000" { "000" } else { "022" };
        let login = || {
            let mut login = project.command("/bin/sh");
            let line = format!("umask {umask}; echo a-secret-key | exec \"$0\" auth login mistral");
            login
                .args(["-c", &line])
                .arg(env!("CARGO_BIN_EXE_adjutant"));
            assert!(login.output().unwrap().status.success());
        };
        login();
        let start = || {
            Client::of(
                project.clone(),
                Editor::start_through(&project, &format!("umask {umask}")),
            )
        };
        let mut client = start();
        let session = client.open();
        client.prompt(2, &session, "Do it.");
        assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
        let data = project.path("~/.local/share/adjutant");
        let mut warned = true;
        if case == "loose before" {
            client.leave();
            each(&data, &mut |path, is_dir| {
                fs::set_permissions(
                    path,
                    fs::Permissions::from_mode(if is_dir { 0o755 } else { 0o644 }),
                )
                .unwrap();
            });
            login();
            client = start();
            let load = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
            client.request(2, "session/load", &load);
            assert!(client.answer(2).0.get("result").is_some());
            client.prompt(3, &session, "Again.");
            client.answer(3);
            let logs = fs::read_dir(project.path("~/.local/state/adjutant/log"))
                .into_iter()
                .flatten()
                .flatten();
            warned = logs
                .flat_map(|log| fs::read_to_string(log.path()))
                .any(|log| log.contains("could be read by others"));
        }
        assert!(warned, "nobody was told");
        let mut seen = 0;
        each(&data, &mut |path, is_dir| {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let wanted = if is_dir { 0o700 } else { 0o600 };
            // Files below a private directory are out of reach, whatever their mode.
            let reachable = path
                .ancestors()
                .skip(1)
                .take_while(|dir| dir.starts_with(&data))
                .all(|dir| fs::metadata(dir).unwrap().permissions().mode() & 0o077 != 0);
            let ours = case != "loose before" || reachable || path.ends_with("auth.json");
            assert!(
                mode == wanted || !ours,
                "{case}: {} is {mode:o}",
                path.display()
            );
            assert!(
                mode & 0o077 == 0 || !reachable,
                "{case}: {} can be read",
                path.display()
            );
            seen += 1;
        });
        assert!(seen > 8, "{case}: {seen}");
        client.leave();
    }
}

fn each(dir: &Path, work: &mut dyn FnMut(&Path, bool)) {
    work(dir, true);
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            each(&entry.path(), work);
        } else {
            work(&entry.path(), false);
        }
    }
}

/// FD13: ten thousand messages with 200 MB of output. How long anything takes is a benchmark's
/// question; here it is how much is held, and that a list reads none of it.
pub(super) fn fd13_long_session_works() {
    let project = Arc::new(Project::new());
    project.settings(&Value::Null);
    let data = project.path("~/.local/share/adjutant");
    let id = SessionId::new("ses_00000001");
    crate::history::long(&data, &project.cwd(), &id, 10_000, 20_000);
    let mut client = Client::new(project.clone());
    client.open();
    let before = most(client.editor.pid());
    let load = |method: &str, number: u64, client: &mut Client| {
        let params = json!({ "sessionId": id.as_str(), "cwd": project.cwd(), "mcpServers": [] });
        client.request(number, method, &params);
        let mut calls = 0;
        loop {
            let received = client.receive();
            calls += usize::from(received["params"]["update"]["sessionUpdate"] == "tool_call");
            if received["id"] == number {
                assert!(received.get("result").is_some(), "{received}");
                return calls;
            }
        }
    };
    assert_eq!(load("session/resume", 2, &mut client), 0);
    let resumed = most(client.editor.pid()).saturating_sub(before) >> 20;
    assert!(resumed <= 100, "resumed: grown by {resumed} MiB");
    assert_eq!(load("session/load", 3, &mut client), 4_999);
    let loaded = most(client.editor.pid()).saturating_sub(before) >> 20;
    assert!(loaded <= 100, "loaded: grown by {loaded} MiB");
    client.leave();
    // A list needs none of it.
    let file = data.join("sessions").join(format!("{id}.db"));
    fs::rename(&file, data.join("elsewhere")).unwrap();
    let page = block_on(async { Store::start(&data).list(None, None, 100).await }).unwrap();
    assert!(page.sessions.iter().any(|record| record.id == id));
}
