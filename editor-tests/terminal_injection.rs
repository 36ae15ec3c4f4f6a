//! Terminal injection: hostile text from every source, through every command that shows something,
//! on a pseudo-terminal and in a pipe. Also the modes of stored files, which only their owner may
//! read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};

use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::project::Project;
use crate::pty;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 5] = [
    (
        "hostile text is escaped on terminals and in pipes",
        hostile_text_is_escaped_on_terminals_and_in_pipes,
    ),
    ("run's output is escaped", runs_output_is_escaped),
    ("answer in a pipe is exact", answer_in_a_pipe_is_exact),
    (
        "stored files are readable by their owner only, whatever the umask",
        stored_files_are_readable_by_their_owner_only_whatever_the_umask,
    ),
    (
        "only regular files of a sensible size are imported",
        only_regular_files_of_a_sensible_size_are_imported,
    ),
];

/// A title, the clipboard, a colour, a question to the terminal, the same by a C1 code, directions,
/// a character without width, a tag, erasing, a line break of that kind, and a line that overwrites
/// itself. No `/`, because it is a file's name too.
const HOSTILE: &str = "zqx\x1b]0;t\x07\x1b]52;c;aGk=\x07\x1b[45m\x1b[6n\u{9b}5n\u{9d}0;t\u{9c}\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{7f}\u{85}\x08¶\r¶";

/// Returns the first sequence of an output that a terminal would act on or hide. On a terminal
/// these are allowed: cursor movements of the spinner, our colours and weights, and `\r\n`.
fn dirty(output: &[u8], terminal: bool) -> Option<String> {
    let text = match std::str::from_utf8(output) {
        Ok(text) => text.to_owned(),
        Err(e) => return Some(e.to_string()),
    };
    if text.contains("¶\r¶") {
        return Some("a line writes over itself".into());
    }
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if terminal && let Some(after) = ours(rest) {
            rest = after;
            continue;
        }
        let fine = matches!(c, '\n' | '\t') || (terminal && c == '\r');
        if !fine && base::text::is_hidden(c) {
            return Some(format!(
                "{c:?} in {:?}",
                rest.chars().take(60).collect::<String>()
            ));
        }
        rest = &rest[c.len_utf8()..];
    }
    None
}

/// The ends of the sequences that begin or end one of our styles.
const OUR_STYLES: [&str; 11] = [
    "0m", "1m", "2m", "3m", "4m", "31m", "32m", "33m", "34m", "35m", "36m",
];

/// Returns the text after one of our own sequences: those of the spinner and of an edited answer,
/// which erase the rest of the screen or of a line, go up or right, and have pasted text marked;
/// and those that begin or end one of our styles.
fn ours(text: &str) -> Option<&str> {
    let sequence = text.strip_prefix("\x1b[")?;
    if let Some(rest) = OUR_STYLES.iter().find_map(|s| sequence.strip_prefix(s)) {
        return Some(rest);
    }
    ["J", "K", "A", "C", "?2004h", "?2004l"]
        .iter()
        .find_map(|s| sequence.strip_prefix(s))
}

/// The time without output after which a program on a terminal waits for a line.
const QUIET_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};

/// Runs a command on a terminal of its own, where these lines are typed (the first answers whether
/// the project is trusted, where something asks that); gives all that came out of it.
fn on_terminal(command: Command, typed: &str) -> Vec<u8> {
    let (mut child, mut ours) = pty::spawn(command, 50, 1000);
    // A line is typed when nothing more comes, because lines typed before a question do not answer
    // it. Then the input ends: a question too many is not waited for.
    let mut lines: VecDeque<String> = typed.split_inclusive('\n').map(str::to_owned).collect();
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || {
        let mut output = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let mut waiting = [PollFd::new(&ours, PollFlags::IN)];
            if rustix::event::poll(&mut waiting, Some(&QUIET_INTERVAL)) == Ok(0) {
                let line = lines.pop_front().unwrap_or_else(|| "\x04".to_owned());
                if ours.write_all(line.as_bytes()).is_err() {
                    break;
                }
                continue;
            }
            // The end of a terminal is an error.
            match ours.read(&mut buffer) {
                Ok(n @ 1..) => output.extend_from_slice(&buffer[..n]),
                _ => break,
            }
        }
        tx.send(output)
    });
    let output = rx.recv_timeout(RESPONSE_TIMEOUT);
    if output.is_err() {
        child.kill().ok();
    }
    child.wait().unwrap();
    output.expect("the terminal never ended")
}

fn adjutant(project: &Project, args: &[&str]) -> Command {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(args).current_dir(project.cwd());
    command
}

/// Runs it on a terminal and in a pipe; both must be clean, and both must have shown something of
/// the hostile words.
fn check(project: &Project, args: &[&str], typed: &str) {
    let on_terminal = on_terminal(adjutant(project, args), typed);
    let piped = adjutant(project, args).output().unwrap();
    for (stream, output, terminal) in [
        ("a terminal", &on_terminal, true),
        ("stdout", &piped.stdout, false),
        ("stderr", &piped.stderr, false),
    ] {
        let wrong = dirty(output, terminal);
        assert!(
            wrong.is_none(),
            "{args:?} on {stream}: {}\n{:?}",
            wrong.unwrap(),
            String::from_utf8_lossy(output)
        );
    }
    for output in [on_terminal, [piped.stdout, piped.stderr].concat()] {
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(
            text.contains("zqx"),
            "{args:?} showed nothing of it: {text:?}"
        );
    }
}

/// Returns a project in which everything that has a name or a description is hostile.
fn hostile(base: &str) -> Project {
    let project = Project::new();
    project.provider(
        base,
        &json!({
            HOSTILE: 1,
            "model": "bench/bench-model",
            "permission": { "bash": { "*": "ask", format!("echo {HOSTILE}"): "allow" } },
            "agent": { "zqx": { "description": HOSTILE, "mode": "all", "prompt": HOSTILE }, HOSTILE: { "description": "x" } },
            "command": { HOSTILE: { "template": HOSTILE, "description": HOSTILE } },
            "mcp": { "loud": { "type": "local", "command": ["sh", "-c", "printf '%s' \"$SAID\" >&2; exit 1"], "environment": { "SAID": HOSTILE } } },
            "provider": {
                "bench": { "name": HOSTILE, "models": { HOSTILE: { "name": HOSTILE } } },
                HOSTILE: { "name": HOSTILE, "npm": "@ai-sdk/openai-compatible", "models": { HOSTILE: {} },
                    "options": { "baseURL": "http://127.0.0.1:9/v1", "apiKey": "k" } },
            },
        }),
    );
    let trap = json!({
        "mcp": { HOSTILE: { "type": "local", "command": ["sh", "-c", HOSTILE] } },
        "permission": { "bash": { format!("touch {HOSTILE}"): "allow" } },
    });
    project.write("opencode.json", &trap.to_string());
    fs::write(project.cwd().join(HOSTILE), format!("{HOSTILE}\n")).unwrap();
    project
}

/// Every command that shows something.
fn hostile_text_is_escaped_on_terminals_and_in_pipes() {
    let read = json!({ "filePath": HOSTILE });
    // A file of such a name is not written.
    let write = json!({ "filePath": "plain.txt", "content": format!("{HOSTILE}\nmore\n") });
    let words = serde_json::to_string(HOSTILE).unwrap();
    let script = format!("call read {read}\n---\ncall write {write}\n---\ntext: {words}");
    let model = Model::start(model::script(&script).unwrap());
    let project = hostile(&model.base());
    let output = adjutant(&project, &["run", "--allow", &format!("{HOSTILE} please")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // On a terminal, the exact output of a pipe is escaped as well.
    let patch = on_terminal(adjutant(&project, &["sessions", "diff", "last"]), "");
    assert_eq!(dirty(&patch, true), None);
    assert!(String::from_utf8_lossy(&patch).contains("zqx"));
    let piped = adjutant(&project, &["sessions", "diff", "last"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(piped.stdout)
            .unwrap()
            .contains("+zqx\x1b]0;t\x07\x1b]52;c;aGk=\x07")
    );
    let schema = format!("{HOSTILE}.json");
    let known = format!("{HOSTILE}/m");
    let explained = format!("cat {HOSTILE} | sh");
    let table: &[&[&str]] = &[
        &["sessions"],
        &["sessions", "list", "--all"],
        &["sessions", "list", "--json"],
        &["sessions", "search", "zqx"],
        &["sessions", "show", "last"],
        &["sessions", "show", HOSTILE],
        &["sessions", "export", "last"],
        &["sessions", "export", "last", "--format", "html"],
        &["sessions", "delete", HOSTILE],
        &["sessions", "import", &schema],
        &["agents"],
        &["agents", "show", "zqx"],
        &["agents", "show", HOSTILE],
        &["config"],
        &["config", "check"],
        &["permissions", "explain", &explained],
        &["permissions", "explain", "--agent", HOSTILE, "ls"],
        &["permissions", "revoke", HOSTILE, HOSTILE],
        &["models"],
        &["models", "--json"],
        &["models", HOSTILE],
        &["doctor"],
        &["doctor", "--json"],
        &["auth"],
        &["auth", "login", HOSTILE],
        &["auth", "logout", HOSTILE],
        &["trust"],
        &["trust", "--no"],
        &["trust", "--list"],
        &["trust", HOSTILE],
        &[HOSTILE],
        &["sessions", HOSTILE],
        &["run", &format!("--{HOSTILE}"), "x"],
        &["run", "--cwd", HOSTILE, "x"],
        &["run", "--mode", HOSTILE, "x"],
        &["run", "--model", &known, "x"],
        &["run", "--schema", &schema, "x"],
    ];
    let shown_by = |args: &[&str]| {
        !matches!(
            args,
            ["permissions", "revoke", ..] | ["doctor", ..] | ["auth", "login", ..]
        )
    };
    for args in table {
        let typed = if args.first() == Some(&"trust") {
            "n\n"
        } else {
            ""
        };
        if shown_by(args) {
            check(&project, args, typed);
        } else {
            let output = on_terminal(adjutant(&project, args), typed);
            assert_eq!(dirty(&output, true), None, "{args:?}");
        }
    }
    let mut judge = adjutant(&project, &["permissions", "check"]);
    let mut judge = judge
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let question = json!({ "id": HOSTILE, "bash": explained });
    writeln!(judge.stdin.take().unwrap(), "{question}").unwrap();
    let answer = judge.wait_with_output().unwrap().stdout;
    assert_eq!(dirty(&answer, false), None);
    assert_eq!(
        serde_json::from_slice::<Value>(&answer).unwrap()["id"],
        HOSTILE
    );
    for log in fs::read_dir(project.path("~/.local/state/adjutant/log"))
        .into_iter()
        .flatten()
        .flatten()
    {
        assert_eq!(
            dirty(&fs::read(log.path()).unwrap(), false),
            None,
            "{:?}",
            log.path()
        );
    }
}

/// Words of the model in whatever pieces, titles of calls, questions, the provider's and the
/// servers' complaints.
fn runs_output_is_escaped() {
    let words = serde_json::to_string(HOSTILE).unwrap();
    let letters: Vec<String> = HOSTILE
        .chars()
        .map(|c| format!("text: {}", json!(c.to_string())))
        .collect();
    let bash = json!({ "command": format!("printf '%s' '{HOSTILE}'"), "description": HOSTILE });
    let question = json!({ "questions": [{ "question": HOSTILE, "header": HOSTILE, "options": [{ "label": HOSTILE, "description": HOSTILE }, { "label": "b", "description": "" }] }] });
    let refused = json!({ "error": { "message": HOSTILE } });
    let table = [
        (format!("text: {words}"), &[][..], ""),
        (letters.join("\n"), &["--deny"], ""),
        (
            format!("call bash {bash}\n---\ntext: {words}"),
            &["--allow"],
            "",
        ),
        (
            format!("call bash {bash}\n---\ntext: {words}"),
            &["--deny"],
            "",
        ),
        (
            format!("call bash {bash}\n---\ntext: {words}"),
            &[],
            "n\nn\n",
        ),
        (format!("call {HOSTILE} {{}}\n---\ntext: {words}"), &[], ""),
        (
            format!("call question {question}\n---\ntext: {words}"),
            &[],
            "n\n1\n",
        ),
        (format!("status 400 {refused}"), &[], ""),
        (
            format!("whole text/html <html>{}", HOSTILE.replace('\r', "")),
            &[],
            "",
        ),
        (format!("text: {words}"), &["--format", "json"], ""),
    ];
    for (script, args, typed) in table {
        let model = Model::start(model::script(&script).unwrap());
        let project = hostile(&model.base());
        let args = [&["run"], args, &["Do it."]].concat();
        let output = on_terminal(
            adjutant(&project, &args),
            if typed.is_empty() { "n\n" } else { typed },
        );
        let wrong = dirty(&output, true);
        let text = String::from_utf8_lossy(&output);
        assert!(
            wrong.is_none(),
            "{script} {args:?}: {}\n{text:?}",
            wrong.unwrap()
        );
        assert!(text.contains("zqx"), "{script} {args:?}: {text:?}");
        // In a pipe, the answer is exact; standard error is clean.
        let model = Model::start(model::script(&script).unwrap());
        let project = hostile(&model.base());
        let output = adjutant(&project, &args).output().unwrap();
        assert_eq!(dirty(&output.stderr, false), None, "{script} {args:?}");
        if args.contains(&"json") {
            assert_eq!(dirty(&output.stdout, false), None, "{script}");
        }
    }
}

/// Checks that a pipe gets the model's exact text.
fn answer_in_a_pipe_is_exact() {
    let model = Model::start(
        model::script(&format!(
            "text: {}",
            serde_json::to_string(HOSTILE).unwrap()
        ))
        .unwrap(),
    );
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    let output = adjutant(&project, &["run", "Say it."]).output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{HOSTILE}\n")
    );
}

/// Sessions, records, logs, keys, long results, snapshots, exports.
fn stored_files_are_readable_by_their_owner_only_whatever_the_umask() {
    for umask in ["000", "022", "077"] {
        let script = "call bash {\"command\":\"seq 30000\"}\n---\ncall write {\"filePath\":\"made\",\"content\":\"x\"}\n---\ntext: Done.";
        let model = Model::start(model::script(script).unwrap());
        let project = Project::new();
        project.provider(&model.base(), &json!({ "permission": "allow" }));
        project.git();
        let line = format!(
            "umask {umask}; export ADJUTANT_LOG=debug ADJUTANT_RECORD=$HOME/tapes PATH={}:$PATH; adjutant run 'Count.' >&2; \
             adjutant sessions export last -o ~/over.md; \
             adjutant sessions export last -o ~/kept.json; adjutant sessions import ~/kept.json; echo a-key | adjutant auth login bench; \
             mkdir ~/mine; chmod 755 ~/mine; ADJUTANT_RECORD=$HOME/mine adjutant run again 2>&1 || true",
            Path::new(env!("CARGO_BIN_EXE_adjutant"))
                .parent()
                .unwrap()
                .display()
        );
        project.shell(&line);
        let mut files = Vec::new();
        let home = project.path("~/");
        let ours =
            [".local", ".cache", "tapes", "kept.json", "over.md"].map(|name| home.join(name));
        let mut left: Vec<_> = ours.into_iter().filter(|path| path.exists()).collect();
        while let Some(path) = left.pop() {
            let data = fs::symlink_metadata(&path).unwrap();
            let mode = data.permissions().mode() & 0o777;
            let wanted = if data.is_dir() { 0o700 } else { 0o600 };
            // Files that are never written again may have a stricter mode.
            assert_eq!(
                mode & !wanted,
                0,
                "umask {umask}: {} is {mode:o}",
                path.display()
            );
            if data.is_dir() {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .flatten()
                        .map(|entry| entry.path()),
                );
            } else {
                files.push(path.strip_prefix(&home).unwrap().display().to_string());
            }
        }
        for kind in [
            ".db",
            "tapes/",
            ".log",
            "tool-output/",
            "auth.json",
            "kept.json",
            "snapshots/",
        ] {
            assert!(
                files.iter().any(|file| file.contains(kind)),
                "umask {umask}: nothing of {kind} in {files:?}"
            );
        }
        // A directory of the user's own stays as it was; the project's files follow the umask.
        assert_eq!(
            fs::metadata(home.join("mine"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o755
        );
        let made = fs::metadata(project.path("made"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(made, 0o666 & !u32::from_str_radix(umask, 8).unwrap());
    }
}

/// Checks that imports that would block, never end, or fill the memory are refused at once.
fn only_regular_files_of_a_sensible_size_are_imported() {
    let model = Model::start(model::script("text: Hello.").unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    project.shell("mkfifo pipe; mkdir folder; truncate -s 300M large; ln -s /dev/zero zero; printf '\\377' > bytes");
    assert!(
        adjutant(&project, &["run", "Hello?"])
            .output()
            .unwrap()
            .status
            .success()
    );
    let table = [
        ("pipe", "pipe cannot be read: it is not a regular file"),
        ("folder", "folder has no sessions of OpenCode"),
        (
            "/dev/zero",
            "/dev/zero cannot be read: it is not a regular file",
        ),
        ("zero", "zero cannot be read: it is not a regular file"),
        // adjutant's own format is read a message at a time, at any size; other formats are not.
        ("large", "large is larger than 256 MiB"),
        ("bytes", "this is not an exported session"),
        ("absent", "absent cannot be read"),
    ];
    for (file, told) in table {
        let output = adjutant(&project, &["sessions", "import", file])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && stderr.contains(told),
            "{file}: {output:?}"
        );
    }
    let mut endless = adjutant(&project, &["sessions", "import", "-"]);
    let output = endless
        .stdin(File::open(project.path("large")).unwrap())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("standard input is larger than 256 MiB"),
        "{output:?}"
    );
    let typed = "adjutant sessions export last -o kept.json; ln -s kept.json link; adjutant sessions import link; adjutant sessions import - <kept.json";
    let path = format!(
        "PATH={}:$PATH",
        Path::new(env!("CARGO_BIN_EXE_adjutant"))
            .parent()
            .unwrap()
            .display()
    );
    assert_eq!(
        project
            .shell(&format!("export {path}; {typed}"))
            .matches("imported ")
            .count(),
        2
    );
}
