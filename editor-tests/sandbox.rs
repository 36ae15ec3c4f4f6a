//! Capabilities of a command in a sandbox, tested from outside: through the real binary, with every
//! mechanism that this system has, and with none.
//!
//! The expectations follow from the report of `adjutant doctor`: with a claimed mechanism the
//! forbidden acts must fail; without one the questions must mention it. So these tests hold on any
//! system, and fail if a claim is false.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::program::stdout_of;
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 17] = [
    ("planner writes nothing (bwrap)", || {
        planner_writes_nothing("bwrap")
    }),
    ("planner writes nothing (landlock)", || {
        planner_writes_nothing("landlock")
    }),
    (
        "planner's background command writes nothing",
        planners_background_command_writes_nothing,
    ),
    (
        "planner asks only about commands that may change something",
        planner_asks_only_about_commands_that_may_change_something,
    ),
    (
        "approvals sandboxed skips questions that the sandbox contains",
        approvals_sandboxed_skips_questions_that_the_sandbox_contains,
    ),
    ("builder writes in the project only (bwrap)", || {
        builder_writes_in_project_only("bwrap")
    }),
    ("builder writes in the project only (landlock)", || {
        builder_writes_in_project_only("landlock")
    }),
    (
        "network is open if the settings allow it",
        network_is_open_if_the_settings_allow_it,
    ),
    (
        "absent sandbox makes a planner ask",
        absent_sandbox_makes_a_planner_ask,
    ),
    (
        "missing required sandbox refuses commands",
        missing_required_sandbox_refuses_commands,
    ),
    (
        "harmless command cannot change anything",
        harmless_command_cannot_change_anything,
    ),
    (
        "command has its own process session",
        command_has_its_own_process_session,
    ),
    ("command ends with adjutant", command_ends_with_adjutant),
    (
        "command in bubblewrap gets SIGTERM first",
        command_in_bubblewrap_gets_sigterm_first,
    ),
    (
        "doctor reports failed mechanisms",
        doctor_reports_failed_mechanisms,
    ),
    (
        "doctor claims no disabled mechanism",
        doctor_claims_no_disabled_mechanism,
    ),
    (
        "bubblewrap works without the launcher in memory",
        bubblewrap_works_without_the_launcher_in_memory,
    ),
];

const MECHANISMS: [&str; 2] = ["bwrap", "landlock"];

/// Everything a read-only command must not do, by a redirection, a program, a subprocess, and a
/// process that has left its family; and every way to the network a shell has. Waits for the last.
const ATTACK: &str = r#"
echo redirected > redirected
touch touched
sh -c 'sh -c "echo deep > deep"'
(setsid sh -c 'setsid sh -c "echo forked > forked; echo end > $TMPDIR/end"' &)
echo appended >> victim
true > victim
chmod 777 victim
touch -d 2001-01-01 victim
ln victim linked
ln -s victim symbolic
mv victim moved
rm -f victim
mkdir directory
echo home > "$HOME/home"
echo tmp > TEMPORARY/tmp
bash -c 'echo x > /dev/tcp/127.0.0.1/PORT'
bash -c 'echo x > /dev/udp/127.0.0.1/PORT'
while [ ! -e "$TMPDIR/end" ]; do sleep 0.01; done
echo all tried
"#;

/// Leaves only one mechanism.
pub fn only(project: &mut Project, mechanism: &str) {
    let others: Vec<&str> = MECHANISMS
        .into_iter()
        .filter(|other| *other != mechanism)
        .collect();
    project.set("ADJUTANT_SANDBOX_DISABLE", Some(&others.join(",")));
}

/// Returns the report of `adjutant doctor` on the sandbox at a level.
pub fn sandbox_report(project: &Project, level: &str) -> Value {
    let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let output = doctor
        .args(["doctor", "--json"])
        .current_dir(project.cwd())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    report["sandbox"][level].clone()
}

/// Checks that a failed mechanism is reported with its reason.
pub fn why(told: &Value, mechanism: &str) {
    assert_eq!(told["told"], "none: commands could do whatever you can do");
    let failed = told["failed"]
        .as_array()
        .unwrap()
        .iter()
        .find(|failed| failed["mechanism"] == mechanism);
    assert!(
        failed.is_some_and(|failed| !failed["why"].as_str().unwrap().contains("left out")),
        "{told}"
    );
}

/// Returns a directory outside of the temporary ones, if this machine has a writable one: an
/// ordinary user may have only their home.
pub fn elsewhere() -> Option<tempfile::TempDir> {
    let places = [
        env!("CARGO_TARGET_TMPDIR"),
        "/opt",
        "/srv",
        "/var/lib",
        env!("CARGO_MANIFEST_DIR"),
    ];
    let temporary = |dir: &PathBuf| {
        ["/tmp", "/var/tmp", "/dev/shm"]
            .iter()
            .any(|tmp| Path::new(dir).starts_with(tmp))
    };
    let places = places.iter().map(PathBuf::from).chain(std::env::home_dir());
    places
        .filter(|dir| !temporary(dir))
        .find_map(|dir| tempfile::tempdir_in(dir).ok())
}

/// One prompt during which every question is answered with yes: the questions, the updates.
pub fn turn(client: &mut Client, session: &str, mode: &str) -> (Vec<Value>, Vec<Value>) {
    client.request(
        2,
        "session/set_mode",
        &json!({ "sessionId": session, "modeId": mode }),
    );
    client.answer(2);
    client.prompt(3, session, "Go.");
    let mut questions = Vec::new();
    let mut updates = Vec::new();
    loop {
        let message = client.receive();
        if message["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            client.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome }));
            questions.push(message["params"].clone());
        } else if message["id"] == 3 {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return (questions, updates);
        } else {
            updates.push(message["params"]["update"].clone());
        }
    }
}

/// Returns a project with these settings of the user, and a model that runs one command.
fn fixture(settings: &Value, command: &str) -> (Project, Model) {
    let call = json!({ "command": command, "description": "Run" });
    let model =
        Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.")).unwrap());
    let project = Project::new();
    project.provider(&model.base(), settings);
    (project, model)
}

pub fn words(updates: &[Value]) -> String {
    updates
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the notices.
fn asides(updates: &[Value]) -> Vec<&str> {
    let thoughts = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "agent_thought_chunk");
    thoughts
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

/// Returns whether a text occurs once among the notices, and in no tool call.
fn is_noticed_once(updates: &[Value], text: &str) -> bool {
    let mut cards = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "tool_call_update");
    let asides = asides(updates);
    asides.iter().filter(|aside| aside.contains(text)).count() == 1
        && !cards.any(|update| update["content"].to_string().contains(text))
}

/// Names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into())
        .collect();
    names.sort();
    names
}

/// Ears on one port of this machine, of both kinds.
struct SharedPace(TcpListener, UdpSocket);

impl SharedPace {
    fn open() -> (Self, u16) {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        (Self(tcp, udp), port)
    }

    fn received(&self) -> (bool, bool) {
        let nothing = |e: std::io::Error| assert_eq!(e.kind(), ErrorKind::WouldBlock);
        (
            self.0.accept().map_err(nothing).is_ok(),
            self.1.recv(&mut [0; 9]).map_err(nothing).is_ok(),
        )
    }
}

fn planner_writes_nothing(mechanism: &str) {
    let (pace, port) = SharedPace::open();
    let (mut project, model) = fixture(
        &json!({ "sandbox": { "unattended": false } }),
        "sh attack.sh",
    );
    only(&mut project, mechanism);
    let temporary = project.path("tmp:.").display().to_string();
    project.write(
        "attack.sh",
        &ATTACK
            .replace("PORT", &port.to_string())
            .replace("TEMPORARY", &temporary),
    );
    project.write("victim", "untouched");
    let victim = project.path("victim");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&victim).unwrap().modified().unwrap();
    let report = sandbox_report(&project, "readOnly");
    if report["mechanism"].is_null() {
        return why(&report, mechanism);
    }
    assert_eq!(report["mechanism"], mechanism);
    let mut client = Client::new(project);
    let session = client.open();
    let (questions, updates) = turn(&mut client, &session, "plan");
    let text = words(&updates);
    assert!(text.contains("all tried"), "{text}");
    assert_eq!(questions.len(), 1, "{text}");
    // Stated in the question, therefore in no notice, and in the result.
    let report = report["told"].as_str().unwrap();
    assert!(
        report.contains("read-only") && report.contains("no network"),
        "{report}"
    );
    let question = questions[0]["toolCall"]["content"].to_string();
    assert!(
        question.contains(&format!("Sandbox: {report}.")),
        "{question}"
    );
    assert_eq!(asides(&updates), Vec::<&str>::new());
    assert!(
        text.contains(&format!("\"sandbox\":\"{report}\"")),
        "{text}"
    );
    let project = client.leave();
    assert_eq!(names(&project.cwd()), ["attack.sh", "victim"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    let after = fs::metadata(&victim).unwrap();
    assert_eq!(
        (
            after.permissions().mode() & 0o777,
            after.modified().unwrap()
        ),
        (0o640, before)
    );
    assert!(!project.path("~/home").exists());
    assert_eq!(names(&project.path("tmp:.")), Vec::<String>::new());
    assert_eq!(pace.received(), (false, false));
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Runs a planner's command in the background: the sandbox is the same.
fn planners_background_command_writes_nothing() {
    let call = json!({ "command": "sh attack.sh", "run_in_background": true });
    let read = json!({ "bash_id": "bash_1", "wait": 60_000 });
    let script =
        format!("call bash {call}\n---\ncall bash_output {read}\n---\nsees: tried\ntext: Done.");
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.provider(
        &model.base(),
        &json!({ "sandbox": { "unattended": false } }),
    );
    project.write("attack.sh", "echo x > written\necho tried\n");
    let held = !sandbox_report(&project, "readOnly")["mechanism"].is_null();
    let mut client = Client::new(project);
    let session = client.open();
    let (questions, updates) = turn(&mut client, &session, "plan");
    assert_eq!(questions.len(), 1, "{}", words(&updates));
    let project = client.leave();
    assert_eq!(
        project.path("written").exists(),
        !held,
        "{}",
        words(&updates)
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Runs a planner's commands: one that can change nothing runs without a question; one that a rule
/// asks about, or may cover, and one that reads secrets are asked about.
fn planner_asks_only_about_commands_that_may_change_something() {
    let probe = Project::new();
    probe.settings(&json!({ "sandbox": "auto" }));
    let held = !sandbox_report(&probe, "readOnly")["mechanism"].is_null();
    // The command, how many questions there are in a sandbox, what the model hears.
    let table = [
        ("sh free.sh", 0, "I ran, and wrote nothing"),
        ("ls && sh free.sh | cat", 0, "I ran, and wrote nothing"),
        ("sh asked.sh", 1, "asked"),
        ("sh denied.sh", 0, "Not allowed"),
        // Where something is denied, a script could do just that.
        ("sh free.sh; true denied", 1, "I ran, and wrote nothing"),
        ("cat .env", 1, "KEY"),
        ("$(cat which.txt) free.sh", 1, "I ran, and wrote nothing"),
    ];
    for (command, questions, received) in table {
        for sandbox in [true, false] {
            let denied = if command.contains("denied") {
                "deny"
            } else {
                "ask"
            };
            let rules = json!({ "sh asked.sh": "ask", "sh denied.sh": denied });
            let settings = json!({ "sandbox": "auto", "permission": { "bash": rules } });
            let (mut project, model) = fixture(&settings, command);
            project.write(
                "free.sh",
                "echo x > made; [ -e made ] || echo I ran, and wrote nothing\n",
            );
            project.write("asked.sh", "echo asked\n");
            project.write("denied.sh", "echo I ran\n");
            project.write(".env", "KEY=1\n");
            project.write("which.txt", "sh\n");
            if !sandbox {
                project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
            }
            let mut client = Client::new(project);
            let session = client.open();
            let (asked, updates) = turn(&mut client, &session, "plan");
            let sees = model.requests().last().unwrap().to_string();
            if sandbox && held {
                assert_eq!(asked.len(), questions, "{command}: {}", words(&updates));
                assert!(sees.contains(received), "{command}: {sees}");
            } else {
                assert_eq!(
                    asked.len(),
                    usize::from(command != "sh denied.sh"),
                    "{command}: {}",
                    words(&updates)
                );
            }
            client.leave();
            assert_eq!(model.problems(), Vec::<String>::new());
        }
    }
}

/// Sets approvals to `sandboxed`: a rule's question is skipped in a tested sandbox, where the
/// command has no network. Risks that the sandbox does not contain are asked about. Without a
/// sandbox the option is not offered.
fn approvals_sandboxed_skips_questions_that_the_sandbox_contains() {
    let probe = Project::new();
    probe.settings(&json!({ "sandbox": "auto" }));
    let report = sandbox_report(&probe, "workspaceWrite");
    let whole = report["whole"] == json!(true);
    let explained = stdout_of(
        &probe,
        &[
            "permissions",
            "explain",
            "--approvals",
            "sandboxed",
            "mkdir made",
        ],
    );
    let holds = if whole {
        "  approvals: sandboxed"
    } else {
        "  approvals: sandboxed, but no sandbox that contains all commands is available here"
    };
    assert!(explained.lines().any(|line| line == holds), "{explained}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let bash = |command: &str| format!("bash {}", json!({ "command": command }));
    // The call, how many questions, what the model hears.
    let table = [
        ("build", bash("sh free.sh"), 0, "I ran"),
        ("build", bash("echo x > made && cat made"), 0, "x"),
        ("build", bash("bash net.sh; echo tried"), 0, "tried"),
        ("build", bash("cat .env"), 1, "KEY"),
        ("build", bash("cat /etc/hostname; echo seen"), 1, "seen"),
        (
            "build",
            bash("echo x > .git/hooks/pre-commit; echo tried"),
            1,
            "tried",
        ),
        ("build", bash("$(cat which.txt) free.sh"), 1, "I ran"),
        ("build", bash("rm free.sh"), 0, "Not allowed"),
        (
            "build",
            "write {\"filePath\":\"new.txt\",\"content\":\"new\"}".into(),
            0,
            "new.txt",
        ),
        (
            "build",
            "write {\"filePath\":\".envrc\",\"content\":\"new\"}".into(),
            1,
            ".envrc",
        ),
        ("plan", bash("sh free.sh"), 0, "I ran"),
        ("plan", bash("touch made"), 0, "Not allowed"),
    ];
    for (mode, call, questions, received) in table {
        // Where something is denied, a script could do just that.
        let rm = if call.contains("rm free") {
            "deny"
        } else {
            "ask"
        };
        let settings = json!({ "sandbox": "auto", "permission": { "edit": "ask", "bash": { "*": "ask", "rm *": rm } } });
        let model = Model::start(model::script(&format!("call {call}\n---\ntext: Done.")).unwrap());
        let project = Project::new();
        project.provider(&model.base(), &settings);
        project.write("free.sh", "echo I ran\n");
        project.write("net.sh", &format!("echo x > /dev/tcp/127.0.0.1/{port}\n"));
        project.write(".env", "KEY=1\n");
        project.write("which.txt", "sh\n");
        project.git();
        let mut client = Client::new(project);
        let session = client.open();
        let choice = json!({ "sessionId": session, "configId": "approvals", "value": "sandboxed" });
        client.request(4, "session/set_config_option", &choice);
        let (chosen, _) = client.answer(4);
        assert_eq!(chosen.get("error").is_none(), whole, "{report}: {chosen}");
        let (asked, updates) = turn(&mut client, &session, mode);
        let sees = model.requests().last().unwrap().to_string();
        let questions = if whole || received == "Not allowed" {
            questions
        } else {
            1
        };
        assert_eq!(asked.len(), questions, "{call}: {}", words(&updates));
        assert!(sees.contains(received), "{call}: {sees}");
        assert!(
            !whole
                || listener
                    .accept()
                    .is_err_and(|e| e.kind() == ErrorKind::WouldBlock),
            "{call}"
        );
        client.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

fn builder_writes_in_project_only(mechanism: &str) {
    // The project lies below a temporary directory, which a builder may write.
    let outside = elsewhere();
    let out = outside
        .as_ref()
        .map_or("/usr".into(), |dir| dir.path().display().to_string());
    let script = "
echo made > made; chmod +x made; mkdir -p deep/down; echo x > TEMPORARY/temporary; echo own > $TMPDIR/own; ls -ld $TMPDIR
echo out > OUTSIDE/made
mv made.sh OUTSIDE/moved
echo hook > .git/hooks/pre-commit
false
";
    let (mut project, model) = fixture(&json!({ "sandbox": "auto" }), "sh made.sh");
    only(&mut project, mechanism);
    let temporary = project.path("tmp:.").display().to_string();
    project.write(
        "made.sh",
        &script
            .replace("OUTSIDE", &out)
            .replace("TEMPORARY", &temporary),
    );
    project.git();
    let hook = project.path(".git/hooks/pre-commit");
    let report = sandbox_report(&project, "workspaceWrite");
    if report["mechanism"].is_null() {
        return why(&report, mechanism);
    }
    let mut client = Client::new(project);
    let session = client.open();
    let (questions, updates) = turn(&mut client, &session, "build");
    let text = words(&updates);
    assert!(questions.is_empty(), "{questions:?}");
    let report = report["told"].as_str().unwrap();
    let open = report.contains("control files not protected");
    let asides = asides(&updates);
    assert!(
        is_noticed_once(&updates, &format!("Commands run in a sandbox: {report}.")),
        "{updates:#?}"
    );
    assert_eq!(asides.len(), 1 + usize::from(open), "{asides:?}");
    assert!(
        !open
            || asides[1].contains(
                "changed control files, which determine what runs on this machine: .git/hooks/pre-commit"
            )
    );
    let project = client.leave();
    if let Some(outside) = &outside {
        assert_eq!(names(outside.path()), Vec::<String>::new());
    }
    for path in ["made", "deep/down", "tmp:temporary", "made.sh"] {
        assert!(project.path(path).exists(), "{path}\n{text}");
    }
    // Its private directory is readable by its owner only, and is removed with the session.
    assert!(text.contains("drwx------"), "{text}");
    assert_eq!(names(&project.path("tmp:.")), ["temporary"]);
    // Either it cannot be changed, or the change is seen.
    assert_eq!(hook.exists(), open, "{report}");
    let sees = model.requests().last().unwrap().to_string();
    assert_eq!(
        sees.contains(
            "It changed control files, which determine what runs on this machine: .git/hooks/pre-commit"
        ),
        open
    );
    // It failed, and its output looks like the effect of a sandbox.
    assert!(
        sees.contains("The sandbox may have caused the failure")
            && sees.contains("It was not run outside the sandbox"),
        "{sees}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn network_is_open_if_the_settings_allow_it() {
    let (pace, port) = SharedPace::open();
    let script = format!("echo x > /dev/tcp/127.0.0.1/{port}; echo x > /dev/udp/127.0.0.1/{port}");
    let sandbox = json!({ "sandbox": { "network": true } });
    for (mode, level) in [("build", "workspaceWrite"), ("plan", "readOnly")] {
        let (project, model) = fixture(&sandbox, "bash talk.sh");
        project.write("talk.sh", &script);
        let report = sandbox_report(&project, level);
        assert!(
            report["mechanism"].is_null() || report["told"].as_str().unwrap().contains(", network"),
            "{report}"
        );
        let mut client = Client::new(project);
        let session = client.open();
        let (_, updates) = turn(&mut client, &session, mode);
        assert_eq!(pace.received(), (true, true), "{mode}: {}", words(&updates));
        client.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

/// Disables the sandbox: a planner's command that is not known to be harmless is asked about, even
/// if a rule allows it.
fn absent_sandbox_makes_a_planner_ask() {
    let rule = json!({ "sandbox": "auto", "agent": { "plan": { "permission": { "bash": { "sh look.sh": "allow" } } } } });
    for (command, asked) in [("sh look.sh", 1), ("ls", 0)] {
        let (mut project, model) = fixture(&rule, command);
        project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
        project.write("look.sh", "echo looked\n");
        let mut client = Client::new(project);
        let session = client.open();
        let (questions, updates) = turn(&mut client, &session, "plan");
        assert_eq!(questions.len(), asked, "{command}");
        for question in &questions {
            let text = question["toolCall"]["content"].to_string();
            assert!(
                text.contains("this command is not known to be harmless"),
                "{text}"
            );
            assert!(
                text.contains("Sandbox: none: commands could do whatever you can do."),
                "{text}"
            );
        }
        assert!(
            is_noticed_once(&updates, "without a sandbox")
                && is_noticed_once(&updates, "left out by"),
            "{updates:#?}"
        );
        client.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

fn missing_required_sandbox_refuses_commands() {
    let (mut project, model) = fixture(&json!({ "sandbox": "required" }), "touch made");
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let mut client = Client::new(project);
    let session = client.open();
    turn(&mut client, &session, "build");
    let project = client.leave();
    assert!(!project.path("made").exists());
    let sees = model.requests().last().unwrap().to_string();
    assert!(
        sees.contains(
            "The settings require a sandbox for commands, and this system has none that meets them"
        ),
        "{sees}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Runs a known-harmless command: it cannot change anything, whatever its agent may do. Landlock
/// alone is used if it has every guarantee, which takes a third of the time.
fn harmless_command_cannot_change_anything() {
    let table = [
        ("landlock", "cat file", "landlock, read-only"),
        ("", "cat file", "read-only, no network"),
        ("bwrap", "cat file", "bwrap, read-only"),
        ("", "cat file > copy", "workspace-write"),
    ];
    for (mechanism, command, expected) in table {
        let (mut project, _model) = fixture(&json!({ "sandbox": "auto" }), command);
        project.write("file", "seen");
        if !mechanism.is_empty() {
            only(&mut project, mechanism);
        }
        let reads = sandbox_report(&project, "readOnly");
        let writes = sandbox_report(&project, "workspaceWrite");
        if reads["mechanism"].is_null()
            || writes["mechanism"].is_null()
            || reads["whole"] != json!(true)
        {
            continue;
        }
        let mut client = Client::new(project);
        let session = client.open();
        let (_, updates) = turn(&mut client, &session, "build");
        let text = updates
            .iter()
            .find_map(|update| update["rawOutput"]["sandbox"].as_str().map(str::to_owned));
        assert!(
            text.as_deref().unwrap_or_default().contains(expected),
            "{mechanism}, {command}: {text:?}"
        );
        drop(client.leave());
    }
}

/// Checks with every mechanism that a command has its own session: so it has no terminal, and all
/// its processes can be ended together. The command prints its process id and its session's.
fn command_has_its_own_process_session() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let look = "read -r id name state parent group session rest < /proc/self/stat; echo own-$((id - session)); : > made";
    for (sandbox, mechanism) in [("off", ""), ("auto", "bwrap"), ("auto", "landlock")] {
        let (mut project, _model) = fixture(&json!({ "sandbox": sandbox }), look);
        only(&mut project, mechanism);
        if !mechanism.is_empty()
            && sandbox_report(&project, "workspaceWrite")["mechanism"] != mechanism
        {
            continue;
        }
        let mut client = Client::new(project);
        let session = client.open();
        let (_, updates) = turn(&mut client, &session, "build");
        assert!(
            words(&updates).contains("own-0"),
            "{mechanism}: {updates:?}"
        );
        drop(client.leave());
    }
}

/// Kills adjutant, which then can end nothing itself.
fn command_ends_with_adjutant() {
    if !cfg!(target_os = "linux") {
        return;
    }
    for (sandbox, mechanism) in [("off", ""), ("auto", "bwrap"), ("auto", "landlock")] {
        // Left processes end as well if the sandbox can do it.
        let command = if mechanism == "bwrap" {
            "sleep 1000 & echo be''gun; wait"
        } else {
            "echo be''gun; exec sleep 1000"
        };
        let (mut project, _model) = fixture(&json!({ "sandbox": sandbox }), command);
        only(&mut project, mechanism);
        if mechanism == "bwrap"
            && sandbox_report(&project, "workspaceWrite")["mechanism"] != "bwrap"
        {
            continue;
        }
        let mut client = Client::new(project);
        let session = client.open();
        client.prompt(3, &session, "Go.");
        while !client.receive().to_string().contains("begun") {}
        client.editor.signal(Signal::KILL);
        let project = client.lost();
        let left = project.left_after(RESPONSE_TIMEOUT, |_| true);
        assert!(left.is_empty(), "{mechanism}: still there: {left:?}");
    }
}

/// Ends a command in bubblewrap: it gets SIGTERM first, and its left processes continue.
fn command_in_bubblewrap_gets_sigterm_first() {
    let asked = json!({ "command": "trap 'echo asked > asked; exit 0' TERM; echo begun; sleep 1000 & wait", "timeout": 1000 });
    let left = json!({ "command": "sleep 1000 & echo left" });
    let script = format!("call bash {asked}\n---\ncall bash {left}\n---\ntext: Done.");
    let model = Model::start(model::script(&script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    only(&mut project, "bwrap");
    if sandbox_report(&project, "workspaceWrite")["mechanism"] != "bwrap" {
        return;
    }
    let mut client = Client::new(project);
    let session = client.open();
    let (_, updates) = turn(&mut client, &session, "build");
    assert!(
        words(&updates).contains("still running, in the background as bash_1."),
        "{}",
        words(&updates)
    );
    let project = client.leave();
    assert_eq!(
        fs::read_to_string(project.path("asked")).unwrap(),
        "asked\n"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn doctor_reports_failed_mechanisms() {
    let doctor = |project: &Project| {
        let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
        let output = doctor
            .arg("doctor")
            .current_dir(project.cwd())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let mut project = Project::new();
    project.settings(&Value::Null);
    project.set("GH_TOKEN", Some("a-value"));
    project.set("MY_ROOT", Some("/x"));
    let (code, text) = doctor(&project);
    assert!(
        text.contains("GH_TOKEN") && text.contains("MY_ROOT") && !text.contains("a-value"),
        "{text}"
    );
    assert_eq!(code, Some(0), "{text}");
    let works = text.contains("Everything works.") || text.contains("Works; not found: ");
    assert!(works && text.contains("off in the settings"), "{text}");
    // Without git, bash and bubblewrap.
    project.set("PATH", Some("/proc/nobody"));
    let (code, text) = doctor(&project);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.ends_with("\nWorks; not found: git, bash, bwrap.\n"),
        "{text}"
    );
    let mut project = Project::new();
    project.settings(&json!({ "sandbox": "required", "modle": "a/b", "snapshot": "perhaps" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let (code, text) = doctor(&project);
    assert_eq!(code, Some(1), "{text}");
    for wanted in [
        "a sandbox is required and none works for read-only commands",
        "1 error in the settings: see `adjutant config check`",
    ] {
        let broken = text.split_once("Does not work:").unwrap().1;
        assert!(broken.contains(wanted), "{wanted}\n{text}");
    }
}

fn doctor_claims_no_disabled_mechanism() {
    let mut project = Project::new();
    project.settings(&json!({ "sandbox": "auto" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap, landlock seatbelt"));
    for level in ["readOnly", "workspaceWrite"] {
        let report = sandbox_report(&project, level);
        assert!(report["mechanism"].is_null(), "{report}");
        assert_eq!(
            report["told"],
            "none: commands could do whatever you can do"
        );
        assert!(
            report["failed"][0]["why"]
                .as_str()
                .unwrap()
                .contains("left out by ADJUTANT_SANDBOX_DISABLE"),
            "{report}"
        );
    }
    // A program that calls itself bwrap and confines nothing is found out.
    replace_bwrap(
        &mut project,
        "while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"",
    );
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("landlock"));
    for level in ["readOnly", "workspaceWrite"] {
        let report = sandbox_report(&project, level);
        assert!(report["mechanism"].is_null(), "{report}");
        assert!(
            report["failed"]
                .to_string()
                .contains("files outside could be changed"),
            "{report}"
        );
    }
}

/// Puts a script in place of `bwrap`.
fn replace_bwrap(project: &mut Project, script: &str) {
    project.write("tmp:bin/bwrap", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(
        project.path("tmp:bin/bwrap"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let path = format!(
        "{}:{}",
        project.path("tmp:bin").display(),
        std::env::var("PATH").unwrap()
    );
    project.set("PATH", Some(&path));
}

/// Executes adjutant's own executable in bubblewrap, because a program in memory cannot be executed
/// there.
fn bubblewrap_works_without_the_launcher_in_memory() {
    let mut project = Project::new();
    project.settings(&json!({ "sandbox": "auto" }));
    if sandbox_report(&project, "workspaceWrite")["mechanism"] != "bwrap" {
        eprintln!("skipped: bubblewrap does not work here");
        return;
    }
    replace_bwrap(
        &mut project,
        "for word; do case $word in /proc/self/fd/*) echo none in memory >&2; exit 1;; esac; done\n\
         PATH=${PATH#*:} exec bwrap \"$@\"",
    );
    for level in ["readOnly", "workspaceWrite"] {
        let told = sandbox_report(&project, level);
        assert_eq!(told["mechanism"], "bwrap", "{told}");
    }
}
