//! What a command can still do in a sandbox, tried from outside: through the real binary, with every
//! mechanism this system has, and with none.
//!
//! What is expected follows from what `adjutant doctor` tells: where it claims a mechanism, the
//! forbidden acts must fail; where it claims none, the questions must say so. So these tests hold on
//! any system, and a claim that is not kept fails them.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::PATIENCE;
use crate::model::{self, Model};
use crate::program::says;
use crate::project::Project;
use crate::talk::Talk;

/// A name and what to do.
pub const ALL: [(&str, fn()); 16] = [
    ("a planner writes nothing (bwrap)", || a_planner_writes_nothing("bwrap")),
    ("a planner writes nothing (landlock)", || a_planner_writes_nothing("landlock")),
    ("a planner's command in the background writes nothing", a_command_in_the_background),
    ("an unattended planner is asked nothing needless", an_unattended_planner),
    ("what a sandbox holds is not asked where that is chosen", what_a_sandbox_holds_is_not_asked),
    ("a builder stays in the project (bwrap)", || a_builder_stays_in_the_project("bwrap")),
    ("a builder stays in the project (landlock)", || a_builder_stays_in_the_project("landlock")),
    ("the network is open when it is told to be", the_network_is_open),
    ("without a sandbox a planner asks", without_a_sandbox_a_planner_asks),
    ("what is required and not there", what_is_required_and_not_there),
    ("what changes nothing cannot", what_changes_nothing_cannot),
    ("a command has a session of its own", a_command_has_a_session_of_its_own),
    ("a command ends with adjutant", a_command_ends_with_adjutant),
    ("a guarded command has its time", a_guarded_command_has_its_time),
    ("doctor says what does not work", doctor_says_what_does_not_work),
    ("doctor claims nothing that is left out", doctor_claims_nothing_that_is_left_out),
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
    let others: Vec<&str> = MECHANISMS.into_iter().filter(|other| *other != mechanism).collect();
    project.set("ADJUTANT_SANDBOX_DISABLE", Some(&others.join(",")));
}

/// What `adjutant doctor` tells about the sandbox at a level.
pub fn told(project: &Project, level: &str) -> Value {
    let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let output = doctor.args(["doctor", "--json"]).current_dir(project.cwd()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    report["sandbox"][level].clone()
}

/// A mechanism that does not hold must be said not to, with the reason.
pub fn why(told: &Value, mechanism: &str) {
    assert_eq!(told["told"], "none: it could do what you can do");
    let failed = told["failed"].as_array().unwrap().iter().find(|failed| failed["mechanism"] == mechanism);
    assert!(failed.is_some_and(|failed| !failed["why"].as_str().unwrap().contains("left out")), "{told}");
}

/// A directory that is no temporary one, where this machine has one to write in: whoever runs this
/// without being root may have nothing but their home.
pub fn elsewhere() -> Option<tempfile::TempDir> {
    let places = [env!("CARGO_TARGET_TMPDIR"), "/opt", "/srv", "/var/lib", env!("CARGO_MANIFEST_DIR")];
    let temporary =
        |place: &PathBuf| ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|tmp| Path::new(place).starts_with(tmp));
    let places = places.iter().map(PathBuf::from).chain(std::env::home_dir());
    places.filter(|place| !temporary(place)).find_map(|place| tempfile::tempdir_in(place).ok())
}

/// One prompt during which every question is answered with yes: the questions, the updates.
pub fn turn(talk: &mut Talk, session: &str, mode: &str) -> (Vec<Value>, Vec<Value>) {
    talk.request(2, "session/set_mode", &json!({ "sessionId": session, "modeId": mode }));
    talk.answer(2);
    talk.prompt(3, session, "Go.");
    let (mut questions, mut updates) = (Vec::new(), Vec::new());
    loop {
        let message = talk.hear();
        if message["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            talk.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome }));
            questions.push(message["params"].clone());
        } else if message["id"] == 3 {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return (questions, updates);
        } else {
            updates.push(message["params"]["update"].clone());
        }
    }
}

/// A project whose user says this in the settings, and a model that runs one command.
fn stage(settings: &Value, command: &str) -> (Project, Model) {
    let call = json!({ "command": command, "description": "Run" });
    let model = Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.")).unwrap());
    let project = Project::new();
    project.provider(&model.base(), settings);
    (project, model)
}

pub fn words(updates: &[Value]) -> String {
    updates.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What was said beside the conversation.
fn asides(updates: &[Value]) -> Vec<&str> {
    let thoughts = updates.iter().filter(|update| update["sessionUpdate"] == "agent_thought_chunk");
    thoughts.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// Whether something is said once beside the conversation, and on no card.
fn is_told(updates: &[Value], words: &str) -> bool {
    let mut cards = updates.iter().filter(|update| update["sessionUpdate"] == "tool_call_update");
    let asides = asides(updates);
    asides.iter().filter(|aside| aside.contains(words)).count() == 1
        && !cards.any(|update| update["content"].to_string().contains(words))
}

/// Names in a directory.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// Ears on one port of this machine, of both kinds.
struct Ears(TcpListener, UdpSocket);

impl Ears {
    fn open() -> (Self, u16) {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        (Self(tcp, udp), port)
    }

    fn heard(&self) -> (bool, bool) {
        let nothing = |e: std::io::Error| assert_eq!(e.kind(), ErrorKind::WouldBlock);
        (self.0.accept().map_err(nothing).is_ok(), self.1.recv(&mut [0; 9]).map_err(nothing).is_ok())
    }
}

fn a_planner_writes_nothing(mechanism: &str) {
    let (ears, port) = Ears::open();
    let (mut project, model) = stage(&json!({ "sandbox": { "unattended": false } }), "sh attack.sh");
    only(&mut project, mechanism);
    let temporary = project.path("tmp:.").display().to_string();
    project.write("attack.sh", &ATTACK.replace("PORT", &port.to_string()).replace("TEMPORARY", &temporary));
    project.write("victim", "untouched");
    let victim = project.path("victim");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&victim).unwrap().modified().unwrap();
    let told = told(&project, "readOnly");
    if told["mechanism"].is_null() {
        return why(&told, mechanism);
    }
    assert_eq!(told["mechanism"], mechanism);
    let mut talk = Talk::new(project);
    let session = talk.open();
    let (questions, updates) = turn(&mut talk, &session, "plan");
    let said = words(&updates);
    assert!(said.contains("all tried"), "{said}");
    assert_eq!(questions.len(), 1, "{said}");
    // Told in the question, once beside the conversation, and in the result.
    let told = told["told"].as_str().unwrap();
    assert!(told.contains("read-only") && told.contains("no network"), "{told}");
    let question = questions[0]["toolCall"]["content"].to_string();
    assert!(question.contains(&format!("Sandbox: {told}.")), "{question}");
    assert!(is_told(&updates, &format!("Commands run in a sandbox: {told}.")), "{updates:#?}");
    assert!(said.contains(&format!("\"sandbox\":\"{told}\"")), "{said}");
    let project = talk.leave();
    assert_eq!(names(&project.cwd()), ["attack.sh", "victim"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    let after = fs::metadata(&victim).unwrap();
    assert_eq!((after.permissions().mode() & 0o777, after.modified().unwrap()), (0o640, before));
    assert!(!project.path("~/home").exists());
    assert_eq!(names(&project.path("tmp:.")), Vec::<String>::new());
    assert_eq!(ears.heard(), (false, false));
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Where nobody waits for a command, the sandbox is the same.
fn a_command_in_the_background() {
    let call = json!({ "command": "sh attack.sh", "run_in_background": true });
    let read = json!({ "bash_id": "bash_1", "wait": 60_000 });
    let script = format!("call bash {call}\n---\ncall bash_output {read}\n---\nsees: tried\ntext: Done.");
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": { "unattended": false } }));
    project.write("attack.sh", "echo x > written\necho tried\n");
    let held = !told(&project, "readOnly")["mechanism"].is_null();
    let mut talk = Talk::new(project);
    let session = talk.open();
    let (questions, updates) = turn(&mut talk, &session, "plan");
    assert_eq!(questions.len(), 1, "{}", words(&updates));
    let project = talk.leave();
    assert_eq!(project.path("written").exists(), !held, "{}", words(&updates));
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// What can change nothing runs without a question; what a rule asks about or may mean and what reads secrets does
/// not.
fn an_unattended_planner() {
    let probe = Project::new();
    probe.settings(&json!({ "sandbox": "auto" }));
    let held = !told(&probe, "readOnly")["mechanism"].is_null();
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
    for (command, questions, heard) in table {
        for sandbox in [true, false] {
            let denied = if command.contains("denied") { "deny" } else { "ask" };
            let rules = json!({ "sh asked.sh": "ask", "sh denied.sh": denied });
            let settings = json!({ "sandbox": "auto", "permission": { "bash": rules } });
            let (mut project, model) = stage(&settings, command);
            project.write("free.sh", "echo x > made; [ -e made ] || echo I ran, and wrote nothing\n");
            project.write("asked.sh", "echo asked\n");
            project.write("denied.sh", "echo I ran\n");
            project.write(".env", "KEY=1\n");
            project.write("which.txt", "sh\n");
            if !sandbox {
                project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
            }
            let mut talk = Talk::new(project);
            let session = talk.open();
            let (asked, updates) = turn(&mut talk, &session, "plan");
            let sees = model.requests().last().unwrap().to_string();
            if sandbox && held {
                assert_eq!(asked.len(), questions, "{command}: {}", words(&updates));
                assert!(sees.contains(heard), "{command}: {sees}");
            } else {
                assert_eq!(asked.len(), usize::from(command != "sh denied.sh"), "{command}: {}", words(&updates));
            }
            talk.leave();
            assert_eq!(model.problems(), Vec::<String>::new());
        }
    }
}

/// With approvals at `sandboxed` a rule's question is not asked where a sandbox was tried that holds: the command
/// has no network then. What the sandbox leaves open is asked all the same. Elsewhere the choice is not offered.
fn what_a_sandbox_holds_is_not_asked() {
    let probe = Project::new();
    probe.settings(&json!({ "sandbox": "auto" }));
    let told = told(&probe, "workspaceWrite");
    let whole = told["whole"] == json!(true);
    let explained = says(&probe, &["permissions", "explain", "--approvals", "sandboxed", "mkdir made"]);
    let holds = if whole { "approvals: sandboxed" } else { "approvals: sandboxed, but no sandbox holds here" };
    assert_eq!(explained.lines().next(), Some(holds));
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
        ("build", bash("echo x > .git/hooks/pre-commit; echo tried"), 1, "tried"),
        ("build", bash("$(cat which.txt) free.sh"), 1, "I ran"),
        ("build", bash("rm free.sh"), 0, "Not allowed"),
        ("build", "write {\"filePath\":\"new.txt\",\"content\":\"new\"}".into(), 0, "new.txt"),
        ("build", "write {\"filePath\":\".envrc\",\"content\":\"new\"}".into(), 1, ".envrc"),
        ("plan", bash("sh free.sh"), 0, "I ran"),
        ("plan", bash("touch made"), 0, "Not allowed"),
    ];
    for (mode, call, questions, heard) in table {
        // Where something is denied, a script could do just that.
        let rm = if call.contains("rm free") { "deny" } else { "ask" };
        let settings =
            json!({ "sandbox": "auto", "permission": { "edit": "ask", "bash": { "*": "ask", "rm *": rm } } });
        let model = Model::start(model::script(&format!("call {call}\n---\ntext: Done.")).unwrap());
        let project = Project::new();
        project.provider(&model.base(), &settings);
        project.write("free.sh", "echo I ran\n");
        project.write("net.sh", &format!("echo x > /dev/tcp/127.0.0.1/{port}\n"));
        project.write(".env", "KEY=1\n");
        project.write("which.txt", "sh\n");
        project.git();
        let mut talk = Talk::new(project);
        let session = talk.open();
        let choice = json!({ "sessionId": session, "configId": "approvals", "value": "sandboxed" });
        talk.request(4, "session/set_config_option", &choice);
        let (chosen, _) = talk.answer(4);
        assert_eq!(chosen.get("error").is_none(), whole, "{told}: {chosen}");
        let (asked, updates) = turn(&mut talk, &session, mode);
        let sees = model.requests().last().unwrap().to_string();
        let questions = if whole || heard == "Not allowed" { questions } else { 1 };
        assert_eq!(asked.len(), questions, "{call}: {}", words(&updates));
        assert!(sees.contains(heard), "{call}: {sees}");
        assert!(!whole || listener.accept().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "{call}");
        talk.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

fn a_builder_stays_in_the_project(mechanism: &str) {
    // The project lies below a temporary directory, which a builder may write.
    let outside = elsewhere();
    let out = outside.as_ref().map_or("/usr".into(), |dir| dir.path().display().to_string());
    let script = "
echo made > made; chmod +x made; mkdir -p deep/down; echo x > TEMPORARY/temporary; echo own > $TMPDIR/own; ls -ld $TMPDIR
echo out > OUTSIDE/made
mv made.sh OUTSIDE/moved
echo hook > .git/hooks/pre-commit
false
";
    let (mut project, model) = stage(&json!({ "sandbox": "auto" }), "sh made.sh");
    only(&mut project, mechanism);
    let temporary = project.path("tmp:.").display().to_string();
    project.write("made.sh", &script.replace("OUTSIDE", &out).replace("TEMPORARY", &temporary));
    project.git();
    let hook = project.path(".git/hooks/pre-commit");
    let told = told(&project, "workspaceWrite");
    if told["mechanism"].is_null() {
        return why(&told, mechanism);
    }
    let mut talk = Talk::new(project);
    let session = talk.open();
    let (questions, updates) = turn(&mut talk, &session, "build");
    let said = words(&updates);
    assert!(questions.is_empty(), "{questions:?}");
    let told = told["told"].as_str().unwrap();
    let open = told.contains("control files not protected");
    let asides = asides(&updates);
    assert!(is_told(&updates, &format!("Commands run in a sandbox: {told}.")), "{updates:#?}");
    assert_eq!(asides.len(), 1 + usize::from(open), "{asides:?}");
    assert!(!open || asides[1].contains("changed files that decide what runs on this machine: .git/hooks/pre-commit"));
    let project = talk.leave();
    if let Some(outside) = &outside {
        assert_eq!(names(outside.path()), Vec::<String>::new());
    }
    for path in ["made", "deep/down", "tmp:temporary", "made.sh"] {
        assert!(project.path(path).exists(), "{path}\n{said}");
    }
    // What it has to itself is its owner's alone, and gone with the session.
    assert!(said.contains("drwx------"), "{said}");
    assert_eq!(names(&project.path("tmp:.")), ["temporary"]);
    // Either it cannot be changed, or the change is seen.
    assert_eq!(hook.exists(), open, "{told}");
    let sees = model.requests().last().unwrap().to_string();
    assert_eq!(sees.contains("It changed files that decide what runs on this machine: .git/hooks/pre-commit"), open);
    // It failed, and what it says is what a sandbox makes programs say.
    assert!(sees.contains("It may have failed because of its sandbox") && sees.contains("not tried outside"), "{sees}");
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn the_network_is_open() {
    let (ears, port) = Ears::open();
    let script = format!("echo x > /dev/tcp/127.0.0.1/{port}; echo x > /dev/udp/127.0.0.1/{port}");
    let sandbox = json!({ "sandbox": { "network": true } });
    for (mode, level) in [("build", "workspaceWrite"), ("plan", "readOnly")] {
        let (project, model) = stage(&sandbox, "bash talk.sh");
        project.write("talk.sh", &script);
        let told = told(&project, level);
        assert!(told["mechanism"].is_null() || told["told"].as_str().unwrap().contains(" open, "), "{told}");
        let mut talk = Talk::new(project);
        let session = talk.open();
        let (_, updates) = turn(&mut talk, &session, mode);
        assert_eq!(ears.heard(), (true, true), "{mode}: {}", words(&updates));
        talk.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

/// Where nothing sees to it that a planner changes nothing, what is not known to be harmless is asked
/// about, even where a rule allows it.
fn without_a_sandbox_a_planner_asks() {
    let rule =
        json!({ "sandbox": "auto", "agent": { "plan": { "permission": { "bash": { "sh look.sh": "allow" } } } } });
    for (command, asked) in [("sh look.sh", 1), ("ls", 0)] {
        let (mut project, model) = stage(&rule, command);
        project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
        project.write("look.sh", "echo looked\n");
        let mut talk = Talk::new(project);
        let session = talk.open();
        let (questions, updates) = turn(&mut talk, &session, "plan");
        assert_eq!(questions.len(), asked, "{command}");
        for question in &questions {
            let text = question["toolCall"]["content"].to_string();
            assert!(text.contains("this is not known to be harmless"), "{text}");
            assert!(text.contains("Sandbox: none: it could do what you can do."), "{text}");
        }
        assert!(is_told(&updates, "without a sandbox") && is_told(&updates, "left out by"), "{updates:#?}");
        talk.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    }
}

fn what_is_required_and_not_there() {
    let (mut project, model) = stage(&json!({ "sandbox": "required" }), "touch made");
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let mut talk = Talk::new(project);
    let session = talk.open();
    turn(&mut talk, &session, "build");
    let project = talk.leave();
    assert!(!project.path("made").exists());
    let sees = model.requests().last().unwrap().to_string();
    assert!(
        sees.contains("The settings require a sandbox for commands, and none that does what they ask for holds here"),
        "{sees}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A command that is known to change nothing runs where nothing can be changed, whatever its agent may do: with
/// Landlock alone where that keeps everything, which takes a third of the time.
fn what_changes_nothing_cannot() {
    let table = [
        ("landlock", "cat file", "landlock, read-only"),
        ("", "cat file", "read-only, no network"),
        ("bwrap", "cat file", "bwrap, read-only"),
        ("", "cat file > copy", "workspace-write"),
    ];
    for (mechanism, command, expected) in table {
        let (mut project, _model) = stage(&json!({ "sandbox": "auto" }), command);
        project.write("file", "seen");
        if !mechanism.is_empty() {
            only(&mut project, mechanism);
        }
        let (reads, writes) = (told(&project, "readOnly"), told(&project, "workspaceWrite"));
        if reads["mechanism"].is_null() || writes["mechanism"].is_null() || reads["whole"] != json!(true) {
            continue;
        }
        let mut talk = Talk::new(project);
        let session = talk.open();
        let (_, updates) = turn(&mut talk, &session, "build");
        let said = updates.iter().find_map(|update| update["rawOutput"]["sandbox"].as_str().map(str::to_owned));
        assert!(said.as_deref().unwrap_or_default().contains(expected), "{mechanism}, {command}: {said:?}");
        drop(talk.leave());
    }
}

/// Whatever keeps it: so it has no terminal, and all it starts can be ended together. Its number, and its session's.
fn a_command_has_a_session_of_its_own() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let look =
        "read -r id name state parent group session rest < /proc/self/stat; echo own-$((id - session)); : > made";
    for (sandbox, mechanism) in [("off", ""), ("auto", "bwrap"), ("auto", "landlock")] {
        let (mut project, _model) = stage(&json!({ "sandbox": sandbox }), look);
        only(&mut project, mechanism);
        if !mechanism.is_empty() && told(&project, "workspaceWrite")["mechanism"] != mechanism {
            continue;
        }
        let mut talk = Talk::new(project);
        let session = talk.open();
        let (_, updates) = turn(&mut talk, &session, "build");
        assert!(words(&updates).contains("own-0"), "{mechanism}: {updates:?}");
        drop(talk.leave());
    }
}

/// Also when it is killed and can end nothing itself.
fn a_command_ends_with_adjutant() {
    if !cfg!(target_os = "linux") {
        return;
    }
    for (sandbox, mechanism) in [("off", ""), ("auto", "bwrap"), ("auto", "landlock")] {
        // What is left behind ends as well where the sandbox sees to it.
        let command =
            if mechanism == "bwrap" { "sleep 1000 & echo be''gun; wait" } else { "echo be''gun; exec sleep 1000" };
        let (mut project, _model) = stage(&json!({ "sandbox": sandbox }), command);
        only(&mut project, mechanism);
        if mechanism == "bwrap" && told(&project, "workspaceWrite")["mechanism"] != "bwrap" {
            continue;
        }
        let mut talk = Talk::new(project);
        let session = talk.open();
        talk.prompt(3, &session, "Go.");
        while !talk.hear().to_string().contains("begun") {}
        talk.editor.signal(Signal::KILL);
        let project = talk.lost();
        let left = project.left_after(PATIENCE, |_| true);
        assert!(left.is_empty(), "{mechanism}: still there: {left:?}");
    }
}

/// Under bubblewrap too a command that is ended is asked first, and what one leaves behind goes on.
fn a_guarded_command_has_its_time() {
    let asked =
        json!({ "command": "trap 'echo asked > asked; exit 0' TERM; echo begun; sleep 1000 & wait", "timeout": 500 });
    let left = json!({ "command": "sleep 1000 & echo left" });
    let script = format!("call bash {asked}\n---\ncall bash {left}\n---\ntext: Done.");
    let model = Model::start(model::script(&script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    only(&mut project, "bwrap");
    if told(&project, "workspaceWrite")["mechanism"] != "bwrap" {
        return;
    }
    let mut talk = Talk::new(project);
    let session = talk.open();
    let (_, updates) = turn(&mut talk, &session, "build");
    assert!(words(&updates).contains("still running, in the background as bash_1."), "{}", words(&updates));
    let project = talk.leave();
    assert_eq!(fs::read_to_string(project.path("asked")).unwrap(), "asked\n");
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn doctor_says_what_does_not_work() {
    let doctor = |project: &Project| {
        let mut doctor = project.command(env!("CARGO_BIN_EXE_adjutant"));
        let output = doctor.arg("doctor").current_dir(project.cwd()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let mut project = Project::new();
    project.settings(&Value::Null);
    project.set("GH_TOKEN", Some("a-value"));
    project.set("MY_ROOT", Some("/x"));
    let (code, text) = doctor(&project);
    assert!(text.contains("GH_TOKEN") && text.contains("MY_ROOT") && !text.contains("a-value"), "{text}");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Everything works.") && text.contains("off, by the settings"), "{text}");
    let mut project = Project::new();
    project.settings(&json!({ "sandbox": "required", "modle": "a/b", "snapshot": "perhaps" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let (code, text) = doctor(&project);
    assert_eq!(code, Some(1), "{text}");
    for wanted in [
        "a sandbox is required and none holds for read-only commands",
        "1 error in the settings: see `adjutant config check`",
    ] {
        let broken = text.split_once("Does not work:").unwrap().1;
        assert!(broken.contains(wanted), "{wanted}\n{text}");
    }
}

fn doctor_claims_nothing_that_is_left_out() {
    let mut project = Project::new();
    project.settings(&json!({ "sandbox": "auto" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap, landlock seatbelt"));
    for level in ["readOnly", "workspaceWrite"] {
        let told = told(&project, level);
        assert!(told["mechanism"].is_null(), "{told}");
        assert_eq!(told["told"], "none: it could do what you can do");
        assert!(told["failed"][0]["why"].as_str().unwrap().contains("left out by ADJUTANT_SANDBOX_DISABLE"), "{told}");
    }
    // A program that calls itself bwrap and confines nothing is found out.
    project.write("tmp:bin/bwrap", "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift; \"$@\"\n");
    fs::set_permissions(project.path("tmp:bin/bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", project.path("tmp:bin").display(), std::env::var("PATH").unwrap());
    project.set("PATH", Some(&path));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("landlock"));
    for level in ["readOnly", "workspaceWrite"] {
        let told = told(&project, level);
        assert!(told["mechanism"].is_null(), "{told}");
        assert!(told["failed"].to_string().contains("files outside could be changed"), "{told}");
    }
}
