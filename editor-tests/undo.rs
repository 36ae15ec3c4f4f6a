//! `/undo` takes back what its own session's calls and programs wrote, and nothing that others wrote meanwhile: the
//! user, another session, another process.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::{Value, json};

use crate::editor::PATIENCE;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{only, told, why};
use crate::talk::Talk;

/// A name and what to do.
pub const ALL: [(&str, fn()); 12] = [
    ("what the user wrote meanwhile stays (bwrap)", || the_user_writes_meanwhile("bwrap")),
    ("what the user wrote meanwhile stays (landlock)", || the_user_writes_meanwhile("landlock")),
    ("what the user saves after a call of the same step stays (bwrap)", || the_user_writes_after_a_call("bwrap")),
    ("what the user saves after a call of the same step stays (landlock)", || the_user_writes_after_a_call("landlock")),
    ("what another session wrote meanwhile stays (bwrap)", || another_session_writes_meanwhile("bwrap")),
    ("what another session wrote meanwhile stays (landlock)", || another_session_writes_meanwhile("landlock")),
    ("what another process wrote meanwhile stays (bwrap)", || another_process_writes_meanwhile("bwrap")),
    ("what another process wrote meanwhile stays (landlock)", || another_process_writes_meanwhile("landlock")),
    ("what goes on in the background is undone as well (bwrap)", || a_background_job_writes_later("bwrap")),
    ("what goes on in the background is undone as well (landlock)", || a_background_job_writes_later("landlock")),
    ("a daemon that outlives a killed adjutant can write (landlock)", a_daemon_outlives_adjutant),
    ("without reports the user is asked (none)", what_is_not_reported_is_asked),
];

/// What a command waits for, so that others can act meanwhile.
const GATE: &str = "gate";
const SECOND_GATE: &str = "second-gate";

/// A project with files of the user's, and a gate. None where the mechanism does not hold on this machine.
fn stage(mechanism: &str, script: &str) -> Option<(Project, Model)> {
    let model = Model::start(model::script(script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    if mechanism == "none" {
        project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    } else {
        only(&mut project, mechanism);
        let told = told(&project, "workspaceWrite");
        if told["mechanism"].is_null() {
            why(&told, mechanism);
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
    format!("call bash {}", json!({ "command": command, "description": "Run" }))
}

/// Waits until a command stands at the gate, and opens it when `act` is done.
fn meanwhile(project: &Project, gate: &str, act: impl FnOnce()) {
    let gate = fs::OpenOptions::new().write(true).open(project.path(gate)).unwrap();
    act();
    drop(gate);
}

fn ended(talk: &mut Talk, id: u64) {
    let (answer, _) = talk.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
}

/// Says an order, and gives what is answered.
fn said(talk: &mut Talk, id: u64, session: &str, order: &str) -> String {
    talk.prompt(id, session, order);
    let (_, updates) = talk.answer(id);
    let chunk = |update: &Value| {
        let is_answer = update["sessionUpdate"] == "agent_message_chunk";
        update["content"]["text"].as_str().filter(|_| is_answer).map(str::to_owned)
    };
    updates.iter().filter_map(chunk).collect()
}

fn holds(project: &Project, name: &str) -> Option<String> {
    fs::read_to_string(project.path(name)).ok()
}

fn the_user_writes_meanwhile(mechanism: &str) {
    let command = format!("cat {GATE}; echo a > a.txt; echo more >> user.txt; mkdir d && mv a.txt d/b.txt");
    let Some((project, model)) = stage(mechanism, &format!("{}\n---\ntext: Done.", call(&command))) else { return };
    project.write("own.txt", "mine\n");
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Go.");
    let project = talk.project.clone();
    meanwhile(&project, GATE, || {
        project.write("own.txt", "edited\n");
        project.write("notes.txt", "new\n");
    });
    ended(&mut talk, 2);
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\nmore\n"));
    assert_eq!(holds(&project, "d/b.txt").as_deref(), Some("a\n"));
    let answer = said(&mut talk, 3, &session, "/undo");
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\n"), "{answer}");
    assert_eq!(holds(&project, "d/b.txt"), None, "{answer}");
    assert_eq!(holds(&project, "own.txt").as_deref(), Some("edited\n"), "{answer}");
    assert_eq!(holds(&project, "notes.txt").as_deref(), Some("new\n"), "{answer}");
    assert!(!answer.contains("own.txt") && !answer.contains("notes.txt"), "{answer}");
    said(&mut talk, 4, &session, "/redo");
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("old\nmore\n"));
    assert_eq!(holds(&project, "d/b.txt").as_deref(), Some("a\n"));
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// One step has written two files, and still runs when the user saves both.
fn the_user_writes_after_a_call(mechanism: &str) {
    let edit = format!("call write {}", json!({ "filePath": "new.txt", "content": "ours\n" }));
    let (command, waits) = (call("echo ours > user.txt; echo ours > kept.txt"), call(&format!("cat {GATE}")));
    let script = format!("{edit}\n{command}\n{waits}\n---\ntext: Done.");
    let Some((project, model)) = stage(mechanism, &script) else { return };
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Go.");
    let project = talk.project.clone();
    meanwhile(&project, GATE, || {
        assert_eq!(holds(&project, "new.txt").as_deref(), Some("ours\n"));
        project.write("new.txt", "the user's\n");
        project.write("user.txt", "the user's\n");
    });
    ended(&mut talk, 2);
    let answer = said(&mut talk, 3, &session, "/undo");
    assert_eq!(holds(&project, "new.txt").as_deref(), Some("the user's\n"), "{answer}");
    assert_eq!(holds(&project, "user.txt").as_deref(), Some("the user's\n"), "{answer}");
    assert_eq!(holds(&project, "kept.txt"), None, "{answer}");
    assert!(answer.contains("`new.txt`: it has changed since"), "{answer}");
    assert!(answer.contains("`user.txt`: it has changed since"), "{answer}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Two turns at once in one project: the first waits while the second one writes.
fn another_session_writes_meanwhile(mechanism: &str) {
    let first = call(&format!("cat {GATE}; echo one > one.txt"));
    let script = format!("{first}\n---\n{}\n---\ntext: Done.\n---\ntext: Done.", call("echo two > two.txt"));
    let Some((project, model)) = stage(mechanism, &script) else { return };
    let mut talk = Talk::new(project);
    let project = talk.project.clone();
    let one = talk.open();
    let two = talk.open();
    talk.prompt(2, &one, "Go.");
    meanwhile(&project, GATE, || {
        talk.prompt(3, &two, "Go.");
        ended(&mut talk, 3);
    });
    ended(&mut talk, 2);
    let answer = said(&mut talk, 4, &one, "/undo");
    assert_eq!((holds(&project, "one.txt"), holds(&project, "two.txt").as_deref()), (None, Some("two\n")), "{answer}");
    let answer = said(&mut talk, 5, &two, "/undo");
    assert_eq!(holds(&project, "two.txt"), None, "{answer}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn another_process_writes_meanwhile(mechanism: &str) {
    let first = call(&format!("cat {GATE}; echo one > one.txt"));
    let script = format!("{first}\n---\n{}\n---\ntext: Done.\n---\ntext: Done.", call("echo two > two.txt"));
    let Some((project, model)) = stage(mechanism, &script) else { return };
    let project = Arc::new(project);
    let (mut here, mut there) = (Talk::new(project.clone()), Talk::new(project.clone()));
    let (one, two) = (here.open(), there.open());
    here.prompt(2, &one, "Go.");
    meanwhile(&project, GATE, || {
        there.prompt(2, &two, "Go.");
        ended(&mut there, 2);
    });
    ended(&mut here, 2);
    let answer = said(&mut here, 3, &one, "/undo");
    assert_eq!((holds(&project, "one.txt"), holds(&project, "two.txt").as_deref()), (None, Some("two\n")), "{answer}");
    let answer = said(&mut there, 3, &two, "/undo");
    assert_eq!(holds(&project, "two.txt"), None, "{answer}");
    here.leave();
    there.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// What a command in the background writes after its turn belongs to the turn that started it.
fn a_background_job_writes_later(mechanism: &str) {
    let command = format!("cat {GATE}; echo late > late.txt; cat {SECOND_GATE}");
    let call = format!("call bash {}", json!({ "command": command, "description": "Run", "run_in_background": true }));
    let Some((project, model)) = stage(mechanism, &format!("{call}\n---\ntext: Done.")) else { return };
    let mut talk = Talk::new(project);
    let project = talk.project.clone();
    let session = talk.open();
    talk.prompt(2, &session, "Go.");
    ended(&mut talk, 2);
    meanwhile(&project, GATE, || project.write("notes.txt", "new\n"));
    // It stands at the second gate when it has written.
    meanwhile(&project, SECOND_GATE, || {
        let answer = said(&mut talk, 3, &session, "/undo");
        assert_eq!(holds(&project, "late.txt"), None, "{answer}");
        assert_eq!(holds(&project, "notes.txt").as_deref(), Some("new\n"), "{answer}");
    });
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Adjutant is killed while a program that left its command still runs: a process of ours answers in its place, and
/// ends with the program.
fn a_daemon_outlives_adjutant() {
    let daemon = format!("cat {GATE}; echo late > late.txt; mv late.txt later.txt; echo written > {SECOND_GATE}");
    let command = format!("echo first > first.txt; setsid sh -c '{daemon}' > /dev/null 2>&1 &");
    let Some((project, model)) = stage("landlock", &format!("{}\n---\ntext: Done.", call(&command))) else { return };
    let mut talk = Talk::new(project);
    let project = talk.project.clone();
    let session = talk.open();
    talk.prompt(2, &session, "Go.");
    ended(&mut talk, 2);
    let holder = holder_of(talk.editor.pid()).expect("nobody holds the listener");
    meanwhile(&project, GATE, || {
        talk.editor.signal(Signal::KILL);
        talk.lost();
    });
    let (written, heard) = std::sync::mpsc::channel();
    let gate = project.path(SECOND_GATE);
    std::thread::spawn(move || written.send(fs::read_to_string(gate).unwrap()));
    assert_eq!(heard.recv_timeout(PATIENCE).as_deref(), Ok("written\n"), "the daemon could not write");
    assert_eq!(holds(&project, "later.txt").as_deref(), Some("late\n"));
    let mut end = [PollFd::new(&holder, PollFlags::IN)];
    let patience = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap(), tv_nsec: 0 };
    assert_eq!(poll(&mut end, Some(&patience)), Ok(1), "the holder did not end");
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// The process that holds the listeners of an adjutant's commands.
fn holder_of(adjutant: i32) -> Option<OwnedFd> {
    // The system lists the programs that each thread has started.
    let threads = fs::read_dir(format!("/proc/{adjutant}/task")).ok()?.flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = children.collect();
    let mut children = children.split_whitespace();
    let holds =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("\"hold\":"));
    let pid = children.find(holds)?.parse().ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Without reports of the system, files that changed meanwhile may be anybody's: they are named, and set back only
/// by force.
fn what_is_not_reported_is_asked() {
    let command = format!("cat {GATE}; echo a > a.txt");
    let Some((project, model)) = stage("none", &format!("{}\n---\ntext: Done.", call(&command))) else { return };
    let mut talk = Talk::new(project);
    let project = talk.project.clone();
    let session = talk.open();
    talk.prompt(2, &session, "Go.");
    meanwhile(&project, GATE, || project.write("notes.txt", "new\n"));
    ended(&mut talk, 2);
    let answer = said(&mut talk, 3, &session, "/undo");
    assert_eq!(holds(&project, "a.txt").as_deref(), Some("a\n"), "{answer}");
    assert_eq!(holds(&project, "notes.txt").as_deref(), Some("new\n"), "{answer}");
    assert!(answer.contains("a.txt") && answer.contains("notes.txt") && answer.contains("/undo force"), "{answer}");
    let answer = said(&mut talk, 4, &session, "/undo force");
    assert_eq!(holds(&project, "a.txt"), None, "{answer}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}
