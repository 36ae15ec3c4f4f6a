//! `/undo` takes back what its own session's calls and programs wrote, and nothing that others
//! wrote meanwhile: the user, another session, another process.
//!
//! `ADJUTANT_UNDOS=10x80` sets the number of processes in one project, and of the undos of each.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{only, sandbox_report, why};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 45] = [
    ("user's concurrent changes are preserved (bwrap)", || {
        users_concurrent_changes_are_preserved("bwrap")
    }),
    ("user's concurrent changes are preserved (landlock)", || {
        users_concurrent_changes_are_preserved("landlock")
    }),
    (
        "user's changes after a call of the same step are preserved (bwrap)",
        || users_later_changes_are_preserved("bwrap"),
    ),
    (
        "user's changes after a call of the same step are preserved (landlock)",
        || users_later_changes_are_preserved("landlock"),
    ),
    ("another session's changes are preserved (bwrap)", || {
        another_sessions_changes_are_preserved("bwrap")
    }),
    ("another session's changes are preserved (landlock)", || {
        another_sessions_changes_are_preserved("landlock")
    }),
    ("another process's changes are preserved (bwrap)", || {
        another_processes_changes_are_preserved("bwrap")
    }),
    ("another process's changes are preserved (landlock)", || {
        another_processes_changes_are_preserved("landlock")
    }),
    ("background job's changes are undone (bwrap)", || {
        background_jobs_changes_are_undone("bwrap")
    }),
    ("background job's changes are undone (landlock)", || {
        background_jobs_changes_are_undone("landlock")
    }),
    (
        "background job's changes after an undo remain changes of the session (bwrap)",
        || background_jobs_changes_after_an_undo_remain("bwrap"),
    ),
    (
        "background job's changes after an undo remain changes of the session (landlock)",
        || background_jobs_changes_after_an_undo_remain("landlock"),
    ),
    (
        "background job's write precedes that of a later call (bwrap)",
        || background_jobs_write_precedes_that_of_a_later_call("bwrap", false),
    ),
    (
        "background job's write precedes that of a later call (landlock)",
        || background_jobs_write_precedes_that_of_a_later_call("landlock", false),
    ),
    (
        "deleted background job's write precedes that of a later call (bwrap)",
        || background_jobs_write_precedes_that_of_a_later_call("bwrap", true),
    ),
    (
        "deleted background job's write precedes that of a later call (landlock)",
        || background_jobs_write_precedes_that_of_a_later_call("landlock", true),
    ),
    (
        "background job's write is between those of two calls (bwrap)",
        || background_jobs_write_is_between_those_of_two_calls("bwrap", false),
    ),
    (
        "background job's write is between those of two calls (landlock)",
        || background_jobs_write_is_between_those_of_two_calls("landlock", false),
    ),
    (
        "deleted background job's write is between those of two calls (bwrap)",
        || background_jobs_write_is_between_those_of_two_calls("bwrap", true),
    ),
    (
        "deleted background job's write is between those of two calls (landlock)",
        || background_jobs_write_is_between_those_of_two_calls("landlock", true),
    ),
    (
        "user's save of a file that a running command has written is preserved (bwrap)",
        || users_save_during_a_command_is_preserved("bwrap"),
    ),
    (
        "user's save of a file that a running command has written is preserved (landlock)",
        || users_save_during_a_command_is_preserved("landlock"),
    ),
    (
        "file whose time the command sets later is restored (bwrap)",
        || file_whose_time_the_command_sets_later_is_restored("bwrap"),
    ),
    (
        "file whose time the command sets later is restored (landlock)",
        || file_whose_time_the_command_sets_later_is_restored("landlock"),
    ),
    (
        "another session's write to the same file is preserved (bwrap)",
        || another_sessions_write_to_the_same_file_is_preserved("bwrap"),
    ),
    (
        "another session's write to the same file is preserved (landlock)",
        || another_sessions_write_to_the_same_file_is_preserved("landlock"),
    ),
    (
        "another session's edit of the same file is preserved (bwrap)",
        || another_sessions_edit_of_the_same_file_is_preserved("bwrap"),
    ),
    (
        "another session's edit of the same file is preserved (landlock)",
        || another_sessions_edit_of_the_same_file_is_preserved("landlock"),
    ),
    (
        "another process's write to the same file is preserved (bwrap)",
        || another_processes_write_to_the_same_file_is_preserved("bwrap"),
    ),
    (
        "another process's write to the same file is preserved (landlock)",
        || another_processes_write_to_the_same_file_is_preserved("landlock"),
    ),
    (
        "user's save of a background job's file is preserved (bwrap)",
        || users_save_of_a_background_jobs_file_is_preserved("bwrap"),
    ),
    (
        "user's save of a background job's file is preserved (landlock)",
        || users_save_of_a_background_jobs_file_is_preserved("landlock"),
    ),
    (
        "user's save of an edited file during the rest of the call is preserved (bwrap)",
        || users_save_during_the_rest_of_an_edit_is_preserved("bwrap"),
    ),
    (
        "user's save of an edited file during the rest of the call is preserved (landlock)",
        || users_save_during_the_rest_of_an_edit_is_preserved("landlock"),
    ),
    (
        "files that foreign programs write during a command are asked about (bwrap)",
        || files_that_foreign_programs_write_are_asked_about("bwrap"),
    ),
    (
        "files that foreign programs write during a command are asked about (landlock)",
        || files_that_foreign_programs_write_are_asked_about("landlock"),
    ),
    (
        "changes of access control lists are listed as not recorded (bwrap)",
        || changes_of_access_control_lists_are_listed("bwrap"),
    ),
    (
        "changes of access control lists are listed as not recorded (landlock)",
        || changes_of_access_control_lists_are_listed("landlock"),
    ),
    (
        "daemon that outlives a killed adjutant can write (landlock)",
        daemon_that_outlives_a_killed_adjutant_can_write_landlock,
    ),
    ("programs end with a killed adjutant (bwrap)", || {
        programs_end_with_a_killed_adjutant("bwrap")
    }),
    ("programs end with a killed adjutant (landlock)", || {
        programs_end_with_a_killed_adjutant("landlock")
    }),
    ("programs end with a killed adjutant (none)", || {
        programs_end_with_a_killed_adjutant("none")
    }),
    (
        "changes without reports are asked about (none)",
        changes_without_reports_are_asked_about_none,
    ),
    ("many processes undo only their own files (bwrap)", || {
        many_processes_undo_only_their_own_files("bwrap")
    }),
    (
        "many processes undo only their own files (landlock)",
        || many_processes_undo_only_their_own_files("landlock"),
    ),
];

/// The pipe that a command waits for, so that others can act in the meantime.
const GATE: &str = "gate";
const SECOND_GATE: &str = "second-gate";

/// Returns a project with files of the user's, and a gate; `None` if this machine lacks the
/// mechanism.
fn fixture(mechanism: &str, script: &str) -> Option<(Project, Model)> {
    let model = Model::start(model::script(script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    if mechanism == "none" {
        project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    } else {
        only(&mut project, mechanism);
        let report = sandbox_report(&project, "workspaceWrite");
        if report["mechanism"].is_null() {
            why(&report, mechanism);
            return None;
        }
    }
    project.write("user.txt", "old\n");
    project.git();
    for gate in [GATE, SECOND_GATE] {
        nix::unistd::mkfifo(&project.path(gate), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    Some((project, model))
}

fn call(command: &str) -> String {
    format!(
        "call bash {}",
        json!({ "command": command, "description": "Run" })
    )
}

/// Waits until a command waits at the gate, and opens the gate after `act`.
fn meanwhile(project: &Project, gate: &str, act: impl FnOnce()) {
    let gate = fs::OpenOptions::new()
        .write(true)
        .open(project.path(gate))
        .unwrap();
    act();
    drop(gate);
}

fn ended(client: &mut Client, id: u64) {
    let (answer, _) = client.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

/// Runs a built-in command and returns its answer.
fn run_built_in_command(client: &mut Client, id: u64, session: &str, order: &str) -> String {
    client.prompt(id, session, order);
    let (_, updates) = client.answer(id);
    let chunk = |update: &Value| {
        let is_answer = update["sessionUpdate"] == "agent_message_chunk";
        if !is_answer {
            return None;
        }
        update["content"]["text"].as_str().map(str::to_owned)
    };
    updates.iter().filter_map(chunk).collect()
}

fn holds(project: &Project, name: &str) -> Option<String> {
    fs::read_to_string(project.path(name)).ok()
}

fn users_concurrent_changes_are_preserved(mechanism: &str) {
    let command =
        format!("cat {GATE}; echo a > a.txt; echo more >> user.txt; mkdir d && mv a.txt d/b.txt");
    let Some((project, model)) =
        fixture(mechanism, &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    project.write("own.txt", "mine\n");
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Go.");
    let project = client.project.clone();
    meanwhile(&project, GATE, || {
        project.write("own.txt", "edited\n");
        project.write("notes.txt", "new\n");
    });
    ended(&mut client, 2);
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\nmore\n"));
    assert_eq!(holds(&project, "d/b.txt").as_deref(), Some("a\n"));
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("old\n"),
        "{answer}"
    );
    assert_eq!(holds(&project, "d/b.txt"), None, "{answer}");
    assert_eq!(
        holds(&project, "own.txt").as_deref(),
        Some("edited\n"),
        "{answer}"
    );
    assert_eq!(
        holds(&project, "notes.txt").as_deref(),
        Some("new\n"),
        "{answer}"
    );
    assert!(
        !answer.contains("own.txt") && !answer.contains("notes.txt"),
        "{answer}"
    );
    run_built_in_command(&mut client, 4, &session, "/redo");
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\nmore\n"));
    assert_eq!(holds(&project, "d/b.txt").as_deref(), Some("a\n"));
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// One step has written two files, and still runs when the user saves both.
fn users_later_changes_are_preserved(mechanism: &str) {
    let edit = format!(
        "call write {}",
        json!({ "filePath": "new.txt", "content": "ours\n" })
    );
    let command = call("echo ours > user.txt; echo ours > kept.txt");
    let waits = call(&format!("cat {GATE}"));
    let script = format!("{edit}\n{command}\n{waits}\n---\ntext: Done.");
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Go.");
    let project = client.project.clone();
    meanwhile(&project, GATE, || {
        assert_eq!(holds(&project, "new.txt").as_deref(), Some("ours\n"));
        project.write("new.txt", "the user's\n");
        project.write("user.txt", "the user's\n");
    });
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    assert_eq!(
        holds(&project, "new.txt").as_deref(),
        Some("the user's\n"),
        "{answer}"
    );
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("the user's\n"),
        "{answer}"
    );
    assert_eq!(holds(&project, "kept.txt"), None, "{answer}");
    assert!(
        answer.contains("`new.txt`: it has changed since"),
        "{answer}"
    );
    assert!(
        answer.contains("`user.txt`: it has changed since"),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Two turns at once in one project: the first waits while the second one writes.
fn another_sessions_changes_are_preserved(mechanism: &str) {
    let first = call(&format!("cat {GATE}; echo one > one.txt"));
    let script = format!(
        "{first}\n---\n{}\n---\ntext: Done.\n---\ntext: Done.",
        call("echo two > two.txt")
    );
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let first = client.open();
    let two = client.open();
    client.prompt(2, &first, "Go.");
    meanwhile(&project, GATE, || {
        client.prompt(3, &two, "Go.");
        ended(&mut client, 3);
    });
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 4, &first, "/undo");
    assert_eq!(
        (
            holds(&project, "one.txt"),
            holds(&project, "two.txt").as_deref()
        ),
        (None, Some("two\n")),
        "{answer}"
    );
    let answer = run_built_in_command(&mut client, 5, &two, "/undo");
    assert_eq!(holds(&project, "two.txt"), None, "{answer}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn another_processes_changes_are_preserved(mechanism: &str) {
    let first = call(&format!("cat {GATE}; echo one > one.txt"));
    let script = format!(
        "{first}\n---\n{}\n---\ntext: Done.\n---\ntext: Done.",
        call("echo two > two.txt")
    );
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let project = Arc::new(project);
    let mut here = Client::new(project.clone());
    let mut there = Client::new(project.clone());
    let first = here.open();
    let two = there.open();
    here.prompt(2, &first, "Go.");
    meanwhile(&project, GATE, || {
        there.prompt(2, &two, "Go.");
        ended(&mut there, 2);
    });
    ended(&mut here, 2);
    let answer = run_built_in_command(&mut here, 3, &first, "/undo");
    assert_eq!(
        (
            holds(&project, "one.txt"),
            holds(&project, "two.txt").as_deref()
        ),
        (None, Some("two\n")),
        "{answer}"
    );
    let answer = run_built_in_command(&mut there, 3, &two, "/undo");
    assert_eq!(holds(&project, "two.txt"), None, "{answer}");
    here.leave();
    there.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Checks that later writes of a background command belong to the turn that started it.
fn background_jobs_changes_are_undone(mechanism: &str) {
    let command = format!("cat {GATE}; echo late > late.txt; cat {SECOND_GATE}");
    let call = format!(
        "call bash {}",
        json!({ "command": command, "description": "Run", "run_in_background": true })
    );
    let Some((project, model)) = fixture(mechanism, &format!("{call}\n---\ntext: Done.")) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    ended(&mut client, 2);
    meanwhile(&project, GATE, || project.write("notes.txt", "new\n"));
    // It waits at the second gate after its write.
    meanwhile(&project, SECOND_GATE, || {
        let answer = run_built_in_command(&mut client, 3, &session, "/undo");
        assert_eq!(holds(&project, "late.txt"), None, "{answer}");
        assert_eq!(
            holds(&project, "notes.txt").as_deref(),
            Some("new\n"),
            "{answer}"
        );
    });
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A background job writes before an undo of its turn, after it, and after the next prompt, which
/// deletes the turn's messages.
fn background_jobs_changes_after_an_undo_remain(mechanism: &str) {
    let command = format!(
        "cat {GATE}; echo one > job.txt; cat {SECOND_GATE}; echo two > job.txt; cat {GATE}; echo three > job.txt; cat {SECOND_GATE}"
    );
    let call = format!(
        "call bash {}",
        json!({ "command": command, "description": "Run", "run_in_background": true })
    );
    let script = format!("{call}\n---\ntext: Done.\n---\ntext: Fine.");
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    ended(&mut client, 2);
    meanwhile(&project, GATE, || {});
    meanwhile(&project, SECOND_GATE, || {
        let answer = run_built_in_command(&mut client, 3, &session, "/undo");
        assert_eq!(holds(&project, "job.txt"), None, "{answer}");
        let diff = run_built_in_command(&mut client, 4, &session, "/diff");
        assert!(diff.contains("not changed any files"), "{diff}");
    });
    meanwhile(&project, GATE, || {
        let diff = run_built_in_command(&mut client, 5, &session, "/diff");
        assert!(diff.contains("--- /dev/null\n+++ b/job.txt"), "{diff}");
        assert!(diff.contains("+two"), "{diff}");
        client.prompt(6, &session, "Go on.");
        ended(&mut client, 6);
        let diff = run_built_in_command(&mut client, 7, &session, "/diff");
        assert!(diff.contains("+two"), "{diff}");
    });
    meanwhile(&project, SECOND_GATE, || {
        let diff = run_built_in_command(&mut client, 8, &session, "/diff");
        assert!(diff.contains("--- /dev/null\n+++ b/job.txt"), "{diff}");
        assert!(diff.contains("+three"), "{diff}");
    });
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A background job writes a file while the model writes a call that changes the same file. The job
/// belongs to the same turn, or to one that was undone and deleted.
fn background_jobs_write_precedes_that_of_a_later_call(mechanism: &str, is_deleted: bool) {
    let command = format!("cat {GATE}; echo two > user.txt; cat {SECOND_GATE}");
    let job = format!(
        "call bash {}",
        json!({ "command": command, "description": "Run", "run_in_background": true })
    );
    let end_of_turn = if is_deleted { "text: Done.\n---\n" } else { "" };
    let change = call("echo three > user.txt");
    let script = format!("{job}\n---\n{end_of_turn}text: Wait.\npause\n{change}\n---\ntext: Done.");
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    if is_deleted {
        ended(&mut client, 2);
        run_built_in_command(&mut client, 3, &session, "/undo");
        client.prompt(2, &session, "Go on.");
    }
    while client.receive()["params"]["update"]["content"]["text"] != "Wait." {}
    meanwhile(&project, GATE, || {});
    meanwhile(&project, SECOND_GATE, || {
        model.resume();
        ended(&mut client, 2);
        let diff = run_built_in_command(&mut client, 4, &session, "/diff");
        assert!(diff.contains("-old\n+three\n"), "{diff}");
        let answer = run_built_in_command(&mut client, 5, &session, "/undo");
        let wanted = if is_deleted { "two\n" } else { "old\n" };
        assert_eq!(
            holds(&project, "user.txt").as_deref(),
            Some(wanted),
            "{answer}"
        );
    });
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A background job writes a file between two calls of one answer that change the same file. The
/// job belongs to the same turn, or to one that was undone and deleted.
fn background_jobs_write_is_between_those_of_two_calls(mechanism: &str, is_deleted: bool) {
    let command = format!("cat {GATE}; echo two > user.txt; echo > {SECOND_GATE}");
    let job = format!(
        "call bash {}",
        json!({ "command": command, "description": "Run", "run_in_background": true })
    );
    let first = call(&format!("echo one > user.txt; echo > {GATE}"));
    let second = call(&format!("cat {SECOND_GATE}; echo three > user.txt"));
    let end_of_turn = if is_deleted { "text: Done.\n---\n" } else { "" };
    let script = format!("{job}\n---\n{end_of_turn}{first}\n{second}\n---\ntext: Done.");
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    if is_deleted {
        ended(&mut client, 2);
        run_built_in_command(&mut client, 3, &session, "/undo");
        client.prompt(2, &session, "Go on.");
    }
    ended(&mut client, 2);
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("three\n"));
    let diff = run_built_in_command(&mut client, 4, &session, "/diff");
    assert!(diff.contains("changed 1 file, +1 −1"), "{diff}");
    assert!(diff.contains("-old\n+three\n"), "{diff}");
    let answer = run_built_in_command(&mut client, 5, &session, "/undo");
    let wanted = if is_deleted { "two\n" } else { "old\n" };
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some(wanted),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Makes adjutant log which files their writers have closed.
fn log_closed_files(project: &mut Project) {
    project.set("ADJUTANT_LOG", Some("snapshot=debug"));
}

/// Waits until adjutant has noticed so many times that a file is no longer being written.
fn await_closed(project: &Project, name: &str, times: usize) {
    let wanted = format!("{name} was closed by its writers");
    let end = Instant::now() + RESPONSE_TIMEOUT;
    let logged = || {
        let days = fs::read_dir(project.path("~/.local/state/adjutant/log"))
            .into_iter()
            .flatten();
        days.map(|day| fs::read_to_string(day.unwrap().path()).unwrap_or_default())
            .map(|log| log.matches(&wanted).count())
            .sum::<usize>()
    };
    while logged() < times {
        assert!(Instant::now() < end, "{name} is not closed {times} times");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command has written a file, and only opened another one for writing. The user saves both
/// before the command ends.
fn users_save_during_a_command_is_preserved(mechanism: &str) {
    let command =
        format!("echo ours > user.txt; : >> opened.txt; echo ours > kept.txt; cat {GATE}");
    let Some((mut project, model)) =
        fixture(mechanism, &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    log_closed_files(&mut project);
    project.write("opened.txt", "old\n");
    let opened = fs::File::open(project.path("opened.txt")).unwrap();
    opened.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Go.");
    let project = client.project.clone();
    meanwhile(&project, GATE, || {
        await_closed(&project, "user.txt", 1);
        await_closed(&project, "opened.txt", 1);
        project.write("user.txt", "the user's\n");
        project.write("opened.txt", "the user's\n");
    });
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    for name in ["user.txt", "opened.txt"] {
        assert_eq!(
            holds(&project, name).as_deref(),
            Some("the user's\n"),
            "{answer}"
        );
    }
    assert_eq!(holds(&project, "kept.txt"), None, "{answer}");
    assert!(
        answer.contains("`user.txt`: another program may have changed it while a command ran"),
        "{answer}"
    );
    let answer = run_built_in_command(&mut client, 4, &session, "/undo force");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("old\n"),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A command sets the time of two files that it has written and closed. The user saves one of them
/// after that.
fn file_whose_time_the_command_sets_later_is_restored(mechanism: &str) {
    // With `-h`, touch does not open the file.
    let command = format!(
        "echo ours > user.txt; echo ours > saved.txt; cat {GATE}; \
         touch -h -d @0 user.txt saved.txt; cat {SECOND_GATE}"
    );
    let Some((mut project, model)) =
        fixture(mechanism, &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    log_closed_files(&mut project);
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Go.");
    let project = client.project.clone();
    meanwhile(&project, GATE, || {
        await_closed(&project, "user.txt", 1);
        await_closed(&project, "saved.txt", 1);
    });
    meanwhile(&project, SECOND_GATE, || {
        await_closed(&project, "saved.txt", 2);
        project.write("saved.txt", "the user's\n");
    });
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("old\n"),
        "{answer}"
    );
    assert_eq!(
        holds(&project, "saved.txt").as_deref(),
        Some("the user's\n"),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A call has edited a file, and still waits for the formatter of another one when the user saves
/// the first.
fn users_save_during_the_rest_of_an_edit_is_preserved(mechanism: &str) {
    let patch = "*** Begin Patch\n*** Update File: user.txt\n@@\n-old\n+ours\n\
        *** Add File: b.slow\n+ours\n*** End Patch";
    let script = format!(
        "call read {}\n---\ncall apply_patch {}\n---\ntext: Done.",
        json!({ "filePath": "user.txt" }),
        json!({ "patchText": patch })
    );
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let formatter =
        json!({ "command": ["sh", "-c", format!("cat {GATE}"), "$FILE"], "extensions": [".slow"] });
    project.provider(
        &model.base(),
        &json!({ "sandbox": "auto", "formatter": { "slow": formatter } }),
    );
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Go.");
    let project = client.project.clone();
    meanwhile(&project, GATE, || {
        assert_eq!(holds(&project, "user.txt").as_deref(), Some("ours\n"));
        project.write("user.txt", "the user's\n");
    });
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("the user's\n"),
        "{answer}"
    );
    assert_eq!(holds(&project, "b.slow"), None, "{answer}");
    assert!(
        answer.contains("`user.txt`: it has changed since"),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Two sessions of one process, of which the second one changes a file between the first one's
/// write and the end of its command.
fn another_sessions_write_to_the_same_file_is_preserved(mechanism: &str) {
    another_sessions_change_is_preserved(mechanism, &call("echo two > user.txt"));
}

fn another_sessions_edit_of_the_same_file_is_preserved(mechanism: &str) {
    let edit = json!({ "filePath": "user.txt", "oldString": "one", "newString": "two" });
    let read = json!({ "filePath": "user.txt" });
    another_sessions_change_is_preserved(
        mechanism,
        &format!("call read {read}\n---\ncall edit {edit}"),
    );
}

fn another_sessions_change_is_preserved(mechanism: &str, change: &str) {
    let first = call(&format!("echo one > user.txt; cat {GATE}"));
    let script = format!("{first}\n---\n{change}\n---\ntext: Done.\n---\ntext: Done.");
    let Some((project, model)) = fixture(mechanism, &script) else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let first = client.open();
    let second = client.open();
    client.prompt(2, &first, "Go.");
    meanwhile(&project, GATE, || {
        client.prompt(3, &second, "Go.");
        ended(&mut client, 3);
    });
    ended(&mut client, 2);
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("two\n"));
    let answer = run_built_in_command(&mut client, 4, &first, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("two\n"),
        "{answer}"
    );
    assert!(
        answer.contains("`user.txt`: it has changed since"),
        "{answer}"
    );
    let answer = run_built_in_command(&mut client, 5, &second, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("one\n"),
        "{answer}"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn another_processes_write_to_the_same_file_is_preserved(mechanism: &str) {
    let first = call(&format!("echo one > user.txt; cat {GATE}"));
    let second = call("echo two > user.txt");
    let script = format!("{first}\n---\n{second}\n---\ntext: Done.\n---\ntext: Done.");
    let Some((mut project, model)) = fixture(mechanism, &script) else {
        return;
    };
    log_closed_files(&mut project);
    let project = Arc::new(project);
    let mut here = Client::new(project.clone());
    let mut there = Client::new(project.clone());
    let first = here.open();
    let second = there.open();
    here.prompt(2, &first, "Go.");
    meanwhile(&project, GATE, || {
        await_closed(&project, "user.txt", 1);
        there.prompt(2, &second, "Go.");
        ended(&mut there, 2);
    });
    ended(&mut here, 2);
    let answer = run_built_in_command(&mut here, 3, &first, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("two\n"),
        "{answer}"
    );
    let answer = run_built_in_command(&mut there, 3, &second, "/undo");
    assert_eq!(
        holds(&project, "user.txt").as_deref(),
        Some("one\n"),
        "{answer}"
    );
    here.leave();
    there.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A background job writes a file after its turn. The user saves it, and undoes the turn while the
/// job still runs.
fn users_save_of_a_background_jobs_file_is_preserved(mechanism: &str) {
    let command = format!("cat {GATE}; echo late > late.txt; cat {SECOND_GATE}");
    let call = format!(
        "call bash {}",
        json!({ "command": command, "description": "Run", "run_in_background": true })
    );
    let Some((mut project, model)) = fixture(mechanism, &format!("{call}\n---\ntext: Done."))
    else {
        return;
    };
    log_closed_files(&mut project);
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    ended(&mut client, 2);
    meanwhile(&project, GATE, || {});
    meanwhile(&project, SECOND_GATE, || {
        await_closed(&project, "late.txt", 1);
        project.write("late.txt", "the user's\n");
        let answer = run_built_in_command(&mut client, 3, &session, "/undo");
        assert_eq!(
            holds(&project, "late.txt").as_deref(),
            Some("the user's\n"),
            "{answer}"
        );
        assert!(answer.contains("`late.txt`"), "{answer}");
    });
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A write by a program that adjutant has not started.
type ForeignWrite = Box<dyn FnOnce()>;

/// Prepares a foreign program that has a file open, and returns its write.
type ForeignWriter = fn(&Path) -> ForeignWrite;

/// Foreign writers, by the names of their files. Each writes after the command has closed the file.
const FOREIGN_WRITERS: [(&str, ForeignWriter); 7] = [
    ("held.txt", |path| {
        let mut file = fs::File::options().append(true).open(path).unwrap();
        Box::new(move || file.write_all(b"theirs\n").unwrap())
    }),
    ("inherited.txt", |path| {
        let file = fs::File::options().append(true).open(path).unwrap();
        let script = "read -r line; echo theirs";
        waiting_program(Command::new("sh").args(["-c", script]).stdout(file))
    }),
    // The page is mapped for writing already, so the second write changes no metadata.
    ("mapped.txt", |path| {
        let script = "import mmap, sys
file = open(sys.argv[1], 'r+b')
memory = mmap.mmap(file.fileno(), 0)
memory[0:4] = b'mine'
print(flush=True)
sys.stdin.readline()
memory[0:4] = b'them'";
        waiting_program(Command::new("python3").args(["-c", script]).arg(path))
    }),
    // It cannot be known that nothing was written through a mapping.
    ("unwritten.txt", |path| {
        let file = fs::File::options().append(true).open(path).unwrap();
        Box::new(move || drop(file))
    }),
    ("replaced.txt", |path| {
        let path = path.to_owned();
        let fresh = path.with_extension("new");
        fs::write(&fresh, "theirs\n").unwrap();
        Box::new(move || fs::rename(fresh, path).unwrap())
    }),
    ("opened-later.txt", |path| {
        let path = path.to_owned();
        Box::new(move || fs::write(path, "them\n").unwrap())
    }),
    ("truncated.txt", |path| {
        let path = path.to_owned();
        Box::new(move || {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(2).unwrap();
        })
    }),
];

/// Starts a program that writes when it has read a line, and ends then.
fn waiting_program(command: &mut Command) -> ForeignWrite {
    let is_python = command.get_program() == "python3";
    if is_python {
        command.stdout(Stdio::piped());
    }
    let mut program = command.stdin(Stdio::piped()).spawn().unwrap();
    if let Some(output) = program.stdout.take() {
        let mut line = String::new();
        std::io::BufReader::new(output)
            .read_line(&mut line)
            .unwrap();
    }
    Box::new(move || {
        program.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(program.wait().unwrap().success());
    })
}

/// Foreign programs write files that a running command has written and closed. A program of the
/// command has inherited the descriptor of another file.
fn files_that_foreign_programs_write_are_asked_about(mechanism: &str) {
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    let writers = || {
        FOREIGN_WRITERS
            .iter()
            .filter(|(name, _)| *name != "mapped.txt" || has_python)
    };
    let names: Vec<&str> = writers().map(|(name, _)| *name).collect();
    // Without truncation, the pages of a mapping remain.
    let command = format!(
        "for file in {}; do echo ours 1<> $file; done; \
         sh -c 'sh -c \"cat {SECOND_GATE}; echo late\" &' > own.txt; cat {GATE}",
        names.join(" ")
    );
    let Some((mut project, model)) =
        fixture(mechanism, &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    log_closed_files(&mut project);
    names.iter().for_each(|name| project.write(name, "mine\n"));
    let project = Arc::new(project);
    let writes: Vec<ForeignWrite> = writers()
        .map(|(name, prepare)| prepare(&project.path(name)))
        .collect();
    let mut client = Client::new(project.clone());
    let session = client.open();
    client.prompt(2, &session, "Go.");
    meanwhile(&project, GATE, || {
        names
            .iter()
            .for_each(|name| await_closed(&project, name, 1));
        writes.into_iter().for_each(|write| write());
        meanwhile(&project, SECOND_GATE, || {});
        let end = Instant::now() + RESPONSE_TIMEOUT;
        while holds(&project, "own.txt").as_deref() != Some("late\n") {
            assert!(Instant::now() < end, "own.txt is not written");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    ended(&mut client, 2);
    let present: Vec<Option<String>> = names.iter().map(|name| holds(&project, name)).collect();
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    for (name, present) in names.into_iter().zip(present) {
        let wanted = format!("`{name}`: another program may have changed it while a command ran");
        assert!(answer.contains(&wanted), "{answer}");
        assert_eq!(holds(&project, name), present, "{answer}");
    }
    assert_eq!(holds(&project, "own.txt"), None, "{answer}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A command gives a user access to a file and to a directory. It does the same with a new file by
/// its descriptor, and sets another attribute of the first.
fn changes_of_access_control_lists_are_listed(mechanism: &str) {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let script = "import os, struct
entries = [(1, 6, -1), (2, 4, 1000), (4, 4, -1), (16, 4, -1), (32, 4, -1)]
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.mkdir('folder')
for name in ['user.txt', 'folder']: os.setxattr(name, 'system.posix_acl_access', acl)
file = open('copied.txt', 'w')
os.setxattr(file.fileno(), 'system.posix_acl_access', acl)
os.setxattr('user.txt', 'user.comment', b'x')
";
    let command = format!("python3 -c \"{script}\"; echo new > user.txt");
    let Some((project, model)) =
        fixture(mechanism, &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    let wanted = "Not recorded, so not restored:\n\
        - `folder`: its access control list\n- `user.txt`: its access control list\n";
    assert!(answer.contains(wanted), "{answer}");
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\n"));
    assert_eq!(holds(&project, "copied.txt"), None, "{answer}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Adjutant is killed while a program that hides from it still runs: a process of ours answers in
/// its place, and ends with the program.
fn daemon_that_outlives_a_killed_adjutant_can_write_landlock() {
    let daemon = format!(
        "cat {GATE}; echo late > late.txt; mv late.txt later.txt; echo written > {SECOND_GATE}"
    );
    let command = format!(
        "echo first > first.txt; env -u ADJUTANT_CHILD setsid sh -c '{daemon}' > /dev/null 2>&1 &"
    );
    let Some((project, model)) =
        fixture("landlock", &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    ended(&mut client, 2);
    let holder = holder_of(client.editor.pid()).expect("nobody holds the listener");
    meanwhile(&project, GATE, || {
        client.editor.signal(Signal::KILL);
        client.lost();
    });
    let (written, received) = std::sync::mpsc::channel();
    let gate = project.path(SECOND_GATE);
    std::thread::spawn(move || written.send(fs::read_to_string(gate).unwrap()));
    assert_eq!(
        received.recv_timeout(RESPONSE_TIMEOUT).as_deref(),
        Ok("written\n"),
        "the daemon could not write"
    );
    assert_eq!(holds(&project, "later.txt").as_deref(), Some("late\n"));
    let mut end = [PollFd::new(&holder, PollFlags::IN)];
    assert_eq!(
        poll(&mut end, Some(&timeout())),
        Ok(1),
        "the holder did not end"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Adjutant is killed while a command runs: nothing of it continues, neither the programs of its
/// shell nor one that has left its session. Both commands write, one of them only to its output.
fn programs_end_with_a_killed_adjutant(mechanism: &str) {
    let commands = [
        format!("cat {GATE} | cat; echo over"),
        format!("echo a > a.txt; setsid cat {GATE} > b.txt & cat {GATE} | cat"),
    ];
    for command in commands {
        let Some((project, model)) = fixture(mechanism, &call(&command)) else {
            return;
        };
        let mut client = Client::new(project);
        let project = client.project.clone();
        let session = client.open();
        client.prompt(2, &session, "Go.");
        // Opening waits for a reader.
        let gate = fs::OpenOptions::new()
            .write(true)
            .open(project.path(GATE))
            .unwrap();
        client.editor.signal(Signal::KILL);
        client.lost();
        let mut readers = [PollFd::new(&gate, PollFlags::empty())];
        assert_eq!(
            poll(&mut readers, Some(&timeout())),
            Ok(1),
            "{command} continues"
        );
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

fn timeout() -> Timespec {
    Timespec {
        tv_sec: i64::try_from(RESPONSE_TIMEOUT.as_secs()).unwrap(),
        tv_nsec: 0,
    }
}

/// Returns the process that holds the listeners of an adjutant's commands.
fn holder_of(adjutant: i32) -> Option<OwnedFd> {
    // The system lists the programs that each thread has started.
    let threads = fs::read_dir(format!("/proc/{adjutant}/task"))
        .ok()?
        .flatten();
    let children =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let mut children = children.split_whitespace();
    let holds = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("confined-holder"))
    };
    let pid = children.find(holds)?.parse().ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Without reports of the system, files that changed meanwhile may be anybody's: they are named,
/// and set back only by force.
fn changes_without_reports_are_asked_about_none() {
    let command = format!("cat {GATE}; echo a > a.txt");
    let Some((project, model)) = fixture("none", &format!("{}\n---\ntext: Done.", call(&command)))
    else {
        return;
    };
    let mut client = Client::new(project);
    let project = client.project.clone();
    let session = client.open();
    client.prompt(2, &session, "Go.");
    meanwhile(&project, GATE, || project.write("notes.txt", "new\n"));
    ended(&mut client, 2);
    let answer = run_built_in_command(&mut client, 3, &session, "/undo");
    assert_eq!(holds(&project, "a.txt").as_deref(), Some("a\n"), "{answer}");
    assert_eq!(
        holds(&project, "notes.txt").as_deref(),
        Some("new\n"),
        "{answer}"
    );
    assert!(
        answer.contains("a.txt") && answer.contains("notes.txt") && answer.contains("/undo force"),
        "{answer}"
    );
    let answer = run_built_in_command(&mut client, 4, &session, "/undo force");
    assert_eq!(holds(&project, "a.txt"), None, "{answer}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Several processes work in one project at once. Each writes a file and keeps it, writes another
/// one and undoes that, again and again.
fn many_processes_undo_only_their_own_files(mechanism: &str) {
    let numbers = std::env::var("ADJUTANT_UNDOS").unwrap_or_else(|_| "4x8".to_owned());
    let (processes, undos) = numbers.split_once('x').unwrap();
    let processes: usize = processes.parse().unwrap();
    let undos: usize = undos.parse().unwrap();
    let Some((project, script)) = fixture(mechanism, "") else {
        return;
    };
    drop(script);
    // Each prompt is the name of the file.
    let model = Model::answering_with(|request| {
        let messages = request["messages"].as_array().unwrap();
        let has_result = messages.last().is_some_and(|last| last["role"] == "tool");
        if has_result {
            return model::script("text: Done.").unwrap();
        }
        let prompt = messages.iter().rfind(|message| message["role"] == "user");
        let prompt = prompt.unwrap()["content"].to_string();
        let name = prompt.split("file-").last().unwrap();
        let name: String = name
            .chars()
            .take_while(|c| "-_".contains(*c) || c.is_alphanumeric())
            .collect();
        model::script(&call(&format!(
            "echo first > file-{name}; echo {name} > file-{name}"
        )))
        .unwrap()
    });
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    let project = Arc::new(project);
    let left = std::thread::scope(|scope| {
        let run = |process: usize| {
            let mut client = Client::new(project.clone());
            let session = client.open();
            let mut left = Vec::new();
            for number in 0..undos {
                let id = 10 * u64::try_from(number).unwrap() + 10;
                let [kept, undone] =
                    ["kept", "undone"].map(|kind| format!("file-{kind}-{process}-{number}"));
                client.prompt(id, &session, &kept);
                ended(&mut client, id);
                client.prompt(id + 1, &session, &undone);
                ended(&mut client, id + 1);
                assert!(holds(&project, &undone).is_some());
                let answer = run_built_in_command(&mut client, id + 2, &session, "/undo");
                if holds(&project, &undone).is_some() {
                    left.push(answer);
                }
            }
            client.leave();
            left
        };
        let running: Vec<_> = (0..processes)
            .map(|process| scope.spawn(move || run(process)))
            .collect();
        running
            .into_iter()
            .flat_map(|process| process.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(left, Vec::<String>::new(), "of {}", processes * undos);
    for process in 0..processes {
        for number in 0..undos {
            let name = format!("kept-{process}-{number}");
            let content = holds(&project, &format!("file-{name}"));
            assert_eq!(content, Some(format!("{name}\n")));
        }
    }
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\n"));
}
