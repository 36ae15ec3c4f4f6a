//! Screens of `adjutant run` and `adjutant trust` on a pseudo-terminal, and their output in pipes.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::termios::LocalModes;
use serde_json::{Value, json};

use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::project::Project;
use crate::pty;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 50] = [
    ("run leaves its answer and no spinner", answer),
    ("conversation has one prompt after another", conversation),
    ("conversation begins with a prompt and anew", chat),
    ("conversation begins with a command", command_first),
    (
        "conversation without a message is not continued",
        empty_conversation,
    ),
    (
        "conversation ends with the refused calls of all turns",
        refused_in_conversation,
    ),
    ("strict run is no conversation", strict),
    ("prompt is recalled, completed and continued", typed_prompts),
    ("answer fits the terminal's width", widths),
    ("paragraph and table appear before their end", streamed),
    ("text that was shown stays in its place", grown),
    ("narrower window keeps nothing of the spinner", narrowed),
    ("keys typed next to the spinner leave nothing", typed),
    ("line typed before a question is no answer", typed_ahead),
    (
        "line typed before a command's question is no answer",
        typed_ahead_of_commands,
    ),
    ("answer is edited with the arrow keys", edited),
    ("answer to a command is edited", edited_in_commands),
    ("pasted lines are one answer", pasted),
    ("Ctrl-C clears the answer", cleared),
    ("secret is edited without being shown", secret),
    (
        "Ctrl-C at a secret restores the terminal",
        interrupted_secret,
    ),
    (
        "signal at a question restores the terminal",
        signalled_questions,
    ),
    (
        "all of a question is on the terminal that answers",
        whole_question,
    ),
    ("Ctrl-Z keeps the answer for later", suspended),
    ("interrupt leaves one line", interrupted),
    ("running call shows its time and last lines", timed),
    ("subagent's calls are indented", subagent),
    ("plain terminal gets the facts in ASCII lines", plain),
    ("question shows the command", question),
    ("question fits the terminal", fitted_question),
    ("question with choices takes no wrong number", choices),
    ("earlier session looks as its run", shown_again),
    ("end of the input leaves the question's line", ended_input),
    ("long change is viewed before it is allowed", viewed),
    ("spinner says what the model does", activities),
    ("one answer settles the other questions", settled),
    ("colours appear only if wanted", colours),
    ("list of models is short at a terminal", models),
    ("long output names the place of its lines", long_output),
    ("pipe gets the answer only", piped),
    ("reader that has stopped keeps no run", stopped_reader),
    ("failure is repeated without its text", retried),
    ("answer that broke off begins anew", broken_off),
    ("sessions continue", continued),
    ("prompt carries its attachments", attached),
    ("trust is asked for at a terminal only", trust),
    (
        "changed script is viewed before it is trusted",
        changed_script,
    ),
    ("files are viewed before a project is trusted", viewed_files),
    ("deletion is asked for at a terminal only", deletion),
    ("undo of the last session is asked for", undo_asked),
];

const ROWS: u16 = 40;
const COLUMNS: u16 = 100;

/// A program on a terminal of its own.
struct Terminal {
    child: Child,
    ours: File,
    pieces: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    fn start(command: Command) -> Self {
        Self::with_columns(command, COLUMNS)
    }

    fn with_columns(command: Command, columns: u16) -> Self {
        Self::with_size(command, ROWS, columns)
    }

    fn with_size(command: Command, rows: u16, columns: u16) -> Self {
        let (child, ours) = pty::spawn(command, rows, columns);
        let mut reader = ours.try_clone().unwrap();
        let (sender, pieces) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let [rows, columns] = [rows, columns].map(|n| NonZero::new(n).unwrap());
        Self {
            child,
            ours,
            pieces,
            screen: vt100::Parser::new(rows, columns, 0),
        }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen shows this.
    fn wait(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the screen shows this, as `is_shown` decides.
    fn wait_until(&mut self, text: &str, is_shown: impl Fn(&str) -> bool) {
        let late = Instant::now() + RESPONSE_TIMEOUT;
        while !is_shown(&self.text()) {
            match self
                .pieces
                .recv_timeout(late.saturating_duration_since(Instant::now()))
            {
                Ok(piece) => self.screen.process(&piece),
                Err(_) => panic!("{text:?} never came:\n{}", self.text()),
            }
        }
    }

    /// Makes the window narrower, while the program is stopped. Like most terminals, it wraps the
    /// lines that are too long now, and the cursor stays at its character.
    fn narrow(&mut self, columns: u16) {
        const MARK: &str = "\u{7}all is drawn\u{7}";
        let program = Pid::from_child(&self.child);
        rustix::process::kill_process(program, Signal::STOP).unwrap();
        let stopped = rustix::process::waitpid(Some(program), WaitOptions::UNTRACED);
        assert!(stopped.unwrap().unwrap().1.stopped());
        pty::write_to_screen(&self.ours, MARK);
        let mut drawn = Vec::new();
        while !drawn.ends_with(MARK.as_bytes()) {
            drawn.extend(self.pieces.recv_timeout(RESPONSE_TIMEOUT).unwrap());
        }
        drawn.truncate(drawn.len() - MARK.len());
        self.screen.process(&drawn);
        let before = self.screen.screen();
        let (row, column) = before.cursor_position();
        let [rows, width] = [ROWS, columns].map(|n| NonZero::new(n).unwrap());
        let mut after = vt100::Parser::new(rows, width, 0);
        let mut cursor = (0, 0);
        for (at, line) in (0..).zip(before.rows(0, COLUMNS)) {
            if at > 0 {
                after.process(b"\r\n");
            }
            if at == row {
                assert_eq!(column, 0, "the cursor is not at the beginning of a line");
                cursor = after.screen().cursor_position();
            }
            if at > row && line.trim_end().is_empty() {
                break;
            }
            after.process(line.as_bytes());
        }
        after.process(format!("\u{1b}[{};{}H", cursor.0 + 1, cursor.1 + 1).as_bytes());
        self.screen = after;
        pty::resize(&self.ours, ROWS, columns);
        rustix::process::kill_process(program, Signal::CONT).unwrap();
    }

    fn enter(&mut self, text: &str) {
        self.press(&format!("{text}\n"));
    }

    /// Answers a question with choices once it is shown: keys typed before it are discarded.
    fn answer(&mut self, text: &str) {
        self.wait_until("a question", |screen| screen.trim_end().ends_with("?]"));
        self.enter(text);
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end; gives the exit code and the screen.
    fn end(mut self) -> (Option<i32>, String) {
        while let Ok(piece) = self.pieces.recv_timeout(RESPONSE_TIMEOUT) {
            self.screen.process(&piece);
        }
        let text = self.text();
        let spinner = |c: char| ('\u{2800}'..='\u{28ff}').contains(&c);
        assert!(
            !text.contains(spinner),
            "the spinner has left something:\n{text}"
        );
        let status = self.child.wait().unwrap();
        (status.code(), text)
    }
}

fn adjutant(project: &Project, args: &[&str]) -> Command {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(args).current_dir(project.cwd());
    command
}

fn fixture(script: &str, settings: &Value) -> (Model, Project) {
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), settings);
    (model, project)
}

/// Returns the line of a screen that holds these words.
fn line<'s>(screen: &'s str, text: &str) -> &'s str {
    screen
        .lines()
        .find(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no {text:?} in\n{screen}"))
}

fn answer() {
    let (_model, project) = fixture(
        "text: Let me see.\ncall bash {\"command\":\"echo begun; echo why >&2; exit 7\"}\n---\n\
         call write {\"filePath\":\"a.txt\",\"content\":\"new line\\n\"}\n---\n\
         call todowrite {\"todos\":[{\"content\":\"look\",\"status\":\"completed\",\"priority\":\"high\"},{\"content\":\"mend\",\"status\":\"in_progress\",\"priority\":\"high\"}]}\n---\n\
         text: \"# Done\\n\\nIt is **all** in `a.txt`, [here](https://x.example).\\n\"",
        &json!({}),
    );
    let (code, screen) = Terminal::start(adjutant(&project, &["run", "Do it."])).end();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(
        line(&screen, "exit 7"),
        "✗ echo begun; echo why >&2; exit 7 (exit code 7)"
    );
    assert!(screen.contains("    begun\n    why\n"), "{screen}");
    assert_eq!(line(&screen, "Write"), "• Write a.txt");
    assert!(
        screen.contains("    a.txt +1 -0\n    1 +new line\n"),
        "{screen}"
    );
    let list = "• Todo list: 1 of 2 open\n  [x] look\n  [>] mend\n\nDone\n";
    assert!(screen.contains(list), "{screen}");
    assert_eq!(
        line(&screen, "all in"),
        "It is all in a.txt, here (https://x.example)."
    );
    assert!(screen.starts_with("session ses_"), "{screen}");
}

/// Prompts are typed one after the other. A typo is reported, a failed or interrupted turn ends
/// nothing, and Ctrl-D ends all.
fn conversation() {
    let (_model, project) = fixture(
        "text: One.\n---\nsees: First\nsees: Second\ncall bash {\"command\":\"echo two\"}\n---\ntext: Two.\n---\nhang",
        &json!({}),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run"]));
    terminal.wait("/help lists the commands.\n\n> ");
    terminal.enter("");
    terminal.wait("> \n> ");
    terminal.enter("First");
    terminal.wait("One.\n\n> ");
    terminal.enter("Second");
    terminal.wait("• echo two\n    two\n\nTwo.\n\n> ");
    terminal.enter("/udno");
    terminal.wait("sent as text.\n\n> ");
    terminal.enter("/mode plan");
    terminal.wait("The mode is now plan.\n\nplan> ");
    terminal.enter("/mode");
    terminal.wait("The mode is plan. /mode NAME chooses another one: build, plan\n\nplan> ");
    terminal.enter("/exti");
    terminal.wait("no command /exti. Did you mean /exit? With a space before it, it is sent as text.\n\nplan> ");
    terminal.enter("/vim");
    terminal.wait("no command /vim. /help lists the commands. With a space before it, it is sent as\ntext.\n\nplan> ");
    terminal.enter("/mode nonsense");
    terminal.wait("there are: build, plan\n\nplan> ");
    terminal.enter("Third");
    terminal.wait("waiting for the model");
    // A prompt that is typed while a turn runs is the next one.
    terminal.enter("/status");
    interrupt(&terminal, Signal::INT);
    terminal.wait("interrupted\n\nplan> ");
    terminal.wait_until("the status", |screen| {
        screen.contains("plan> /status\n") && screen.trim_end().ends_with("\nplan>")
    });
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let last = screen.trim_end().lines().next_back().unwrap_or_default();
    assert_eq!(
        last, "`adjutant chat -c` continues this conversation.",
        "{screen}"
    );
    assert!(!screen.contains("withdrawn"), "{screen}");
    assert_eq!(sessions(&project), 1);
}

/// A conversation may begin with a prompt, go on with another session, and end with an interrupt.
fn chat() {
    let script = "sees: Begin.\ntext: One.\n---\nsees: Anew.\nsees not: Begin.\ntext: Two.";
    let (_model, project) = fixture(script, &json!({}));
    let mut command = adjutant(&project, &["chat", "Begin."]);
    // The signal goes to the group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut terminal = Terminal::start(command);
    let ours = terminal.ours.try_clone().unwrap();
    terminal.wait("> Begin.\n");
    terminal.wait("One.\n\n> ");
    terminal.enter("/new");
    terminal.wait_until("another session", |screen| {
        screen.contains(
            "> /new\nA new conversation begins; the one before it is saved.\nsession ses_",
        ) && screen.trim_end().ends_with("\n>")
    });
    terminal.enter("Anew.");
    terminal.wait("Two.\n\n> ");
    terminal.press("half a line\u{3}");
    terminal.press("\u{3}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(!screen.contains("withdrawn"), "{screen}");
    assert_eq!(sessions(&project), 2);
    let modes = rustix::termios::tcgetattr(&ours).unwrap().local_modes;
    assert!(
        modes.contains(LocalModes::ICANON | LocalModes::ECHO),
        "{modes:?}"
    );
    // Without a terminal there is no conversation.
    let output = adjutant(&project, &["chat"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("needs a terminal"),
        "{output:?}"
    );
}

/// The first line may be a command of the conversation, which is not stored as a prompt. The files
/// wait for a prompt, which may begin with a path. Another session than the last one is named by its
/// id.
fn command_first() {
    let script = "sees: from the note\ntext: One.\n---\nsees: Second\ntext: Two.";
    let (_model, project) = fixture(script, &json!({}));
    project.write("note.txt", "from the note\n");
    let (code, screen) = Terminal::start(adjutant(&project, &["chat", "/exit"])).end();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(sessions(&project), 0);
    let args = ["chat", "-f", "note.txt", "/mode plan"];
    let mut terminal = Terminal::start(adjutant(&project, &args));
    terminal.wait("> /mode plan\nThe mode is now plan.\n\nplan> ");
    terminal.enter("/etc/hostname says what?");
    terminal.wait("One.\n\nplan> ");
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let id = screen.split_whitespace().find(|w| w.starts_with("ses_"));
    let id = id.unwrap_or_default();
    let mut terminal = Terminal::start(adjutant(&project, &["chat", "-s", id]));
    terminal.wait("One.\n\nplan> ");
    terminal.press("\u{1b}[A\u{1b}[A");
    terminal.wait("plan> /etc/hostname says what?");
    terminal.press("\u{3}");
    terminal.enter("Second");
    terminal.wait("Two.\n\nplan> ");
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains(&format!("`adjutant chat -s {id}` continues")),
        "{screen}"
    );
}

/// A session without a message is deleted, so it is not named at the end.
fn empty_conversation() {
    let (_model, project) = fixture("text: One.", &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run"]));
    terminal.wait("/help lists the commands.\n\n> ");
    terminal.enter("/help");
    terminal.wait("/exit ends.\n\n> ");
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains("continues this"), "{screen}");
    assert_eq!(sessions(&project), 0);
}

/// A call that was refused in an earlier turn is in the list at the end.
fn refused_in_conversation() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"curl example.org\"}\n---\ntext: One.\n---\ntext: Two.",
        &json!({"permission": {"bash": {"curl *": "ask"}}}),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "--chat", "--deny"]));
    terminal.wait("/help lists the commands.\n\n> ");
    terminal.enter("First");
    terminal.wait("One.\n\n> ");
    terminal.enter("Second");
    terminal.wait("Two.\n\n> ");
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let list = screen.split("adjutant: 1 call was not allowed:\n").nth(1);
    let first = list
        .and_then(|list| list.lines().next())
        .unwrap_or_default();
    assert!(first.starts_with("  curl example.org ("), "{screen}");
}

/// A conversation has no answer that an exit code could be about.
fn strict() {
    let (_model, project) = fixture("", &json!({}));
    for (args, expected) in [
        (&["run", "--strict"][..], "the prompt is empty"),
        (&["run", "--chat", "--strict"], "cannot be used with"),
    ] {
        let (code, screen) = Terminal::start(adjutant(&project, args)).end();
        assert_eq!(code, Some(2), "{args:?}: {screen}");
        assert!(screen.contains(expected), "{args:?}: {screen}");
    }
}

/// Keys recall the prompts of the conversation and of earlier ones in the project, and complete
/// commands and files; a backslash continues the line.
fn typed_prompts() {
    let script = "sees: see @src/calc.py\ntext: One.\n---\nsees: line one\nsees not: \\\ntext: Two.\n---\nsees: line two\ntext: Three.";
    let (_model, project) = fixture(script, &json!({}));
    project.write("src/calc.py", "pass\n");
    let mut terminal = Terminal::start(adjutant(&project, &["chat"]));
    terminal.wait("commands.\n\n> ");
    // A subagent is offered next to the directory.
    terminal.press("see @s\t");
    terminal.wait("\n@scout  @src/");
    terminal.press("r\t");
    terminal.wait("> see @src/");
    terminal.press("c\t");
    terminal.wait("> see @src/calc.py ");
    terminal.enter("");
    terminal.wait("One.\n\n> ");
    terminal.press("/st\t");
    terminal.wait("> /status ");
    terminal.press("\u{3}/e\t");
    terminal.wait("> /e\neffort  exit  export");
    terminal.press("\u{3}line one\\\n");
    terminal.wait_until("the first line", |screen| screen.ends_with("> line one"));
    terminal.enter("line two");
    terminal.wait("> line one\nline two\n");
    terminal.wait("Two.\n\n> ");
    terminal.press("\u{4}");
    assert_eq!(terminal.end().0, Some(0));
    // The conversation is continued after its last exchange, with the same prompts.
    let mut terminal = Terminal::start(adjutant(&project, &["chat", "-c"]));
    terminal.wait("continues \"");
    terminal.wait(", with bench/bench-model\n\n> line one\nline two\n\nTwo.\n\n> ");
    terminal.press("\u{1b}[A");
    terminal.wait("> line one\nline two");
    terminal.press("\u{3}\u{12}calc");
    terminal.wait("> see @src/calc.py \nsearch earlier prompts: calc");
    terminal.press("\u{7}\u{1b}[A");
    terminal.wait("> line one\nline two");
    terminal.enter("");
    terminal.wait("Three.\n\n> ");
    terminal.press("\u{4}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains("search"), "{screen}");
}

/// A gateway has hundreds of models. A pipe gets all of them.
fn models() {
    let mut project = Project::new();
    project.set("OPENROUTER_API_KEY", Some("a-key"));
    let (code, screen) = Terminal::start(adjutant(&project, &["models"])).end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.starts_with("openrouter (OpenRouter): key from"),
        "{screen}"
    );
    assert!(
        line(&screen, "more:").ends_with("more: `adjutant models openrouter`"),
        "{screen}"
    );
    assert!(line(&screen, "*  ").contains('T'), "{screen}");
    let output = adjutant(&project, &["models"]).output().unwrap();
    let whole = String::from_utf8(output.stdout).unwrap();
    let count = whole.lines().count();
    assert!(count > 100 && !whole.contains(" more: "), "{count} lines");
}

/// The answer arrives in pieces; a call before it has a title that is wider than the terminal.
fn widths() {
    let answer = "1. One **item** that is longer than forty columns are.\n2. Two\n\n\
        | Name | Size | Remark of some length |\n|---|---:|---|\n| a | 10 | the first of both, and longer than forty |\n\n\
        ```rust\nlet a = 5;\n```\n\nEnd.";
    let pieces: Vec<String> = answer
        .split_inclusive(' ')
        .map(|piece| format!("text: {}", json!(piece)))
        .collect();
    let script = format!(
        "call bash {{\"command\":\"echo {}\"}}\n---\n{}",
        "long ".repeat(40).trim_end(),
        pieces.join("\n")
    );
    let narrow = "1. One item that is longer than forty\n   columns are.\n2. Two\n\n\
        Name  Size  Remark of some length\n────  ────  ────────────────────────────\n\
        a       10  the first of both, and\n            longer than forty\n\n    let a = 5;\n\nEnd.";
    let wide = "1. One item that is longer than forty columns are.\n2. Two\n\n\
        Name  Size  Remark of some length\n────  ────  ────────────────────────────────────────\n\
        a       10  the first of both, and longer than forty\n\n    let a = 5;\n\nEnd.";
    for (columns, expected) in [(40, narrow), (80, wide), (120, wide)] {
        let (_model, project) = fixture(&script, &json!({}));
        let command = adjutant(&project, &["run", "Do it."]);
        let (code, screen) = Terminal::with_columns(command, columns).end();
        let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
        let screen = lines.join("\n");
        assert_eq!(code, Some(0), "{screen}");
        assert!(screen.contains(expected), "{columns}:\n{screen}");
    }
}

/// A line of a paragraph is shown while the paragraph still grows, and the words of the next line
/// above the spinner.
fn streamed() {
    let (_model, project) = fixture("text: \"A few words \"\nhang", &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("A few words");
    terminal.wait("answering");
    interrupt(&terminal, Signal::INT);
    let (_, screen) = terminal.end();
    assert_eq!(screen.matches("A few words").count(), 1, "{screen}");
    // Characters of two columns.
    let (_model, project) = fixture(
        "text: \"First.\\n\\n中文字符也應該正確換行。 \"\ntext: \"It is so.\"",
        &json!({}),
    );
    let (_, screen) = Terminal::start(adjutant(&project, &["run", "Do it."])).end();
    assert_eq!(
        screen.matches("中文字符也應該正確換行。 It is so.").count(),
        1,
        "{screen}"
    );
    let rows: String = (1..=6).map(|n| format!("| file {n} | of it |\n")).collect();
    let table = format!("| Name | Use |\n|---|---|\n{rows}");
    let (_model, project) = fixture(&format!("text: {}\nhang", json!(table)), &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("file 5     of it");
    terminal.wait("answering");
    interrupt(&terminal, Signal::INT);
    let (_, screen) = terminal.end();
    assert_eq!(screen.matches("of it").count(), 6, "{screen}");
    let words = "word ".repeat(30);
    let (_model, project) = fixture(&format!("text: {}\nhang", json!(words)), &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait(["word"; 20].join(" ").as_str());
    interrupt(&terminal, Signal::INT);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert_eq!(screen.matches("word").count(), 30, "{screen}");
}

/// Whatever is shown of an answer in small pieces stays where it is, also while the terminal is in
/// the middle of a drawing.
fn grown() {
    const ALL_ROWS: u16 = 300;
    const PIECE_CHARS: usize = 9;
    let answers = [
        include_str!("../src/cli/terminal/markdown/answer.md"),
        include_str!("../src/cli/terminal/markdown/lines.md"),
    ];
    for (answer, columns) in [(answers[0], 40), (answers[0], 80), (answers[1], 80)] {
        let all: Vec<char> = answer.chars().collect();
        let pieces = all.chunks(PIECE_CHARS).map(|piece| {
            let piece: String = piece.iter().collect();
            format!("text: {}\n", json!(piece))
        });
        let (_model, project) = fixture(&pieces.collect::<String>(), &json!({}));
        let command = adjutant(&project, &["run", "Do it."]);
        let mut terminal = Terminal::with_size(command, ALL_ROWS, columns);
        let mut shown = String::new();
        let mut growths = 0;
        while let Ok(piece) = terminal.pieces.recv_timeout(RESPONSE_TIMEOUT) {
            terminal.screen.process(&piece);
            let now = terminal.text();
            assert!(now.starts_with(&shown), "{now}\n--- not after:\n{shown}");
            let lines: Vec<&str> = now.trim_end().lines().collect();
            let is_spinner =
                |line: &&&str| line.starts_with(|c| ('\u{2800}'..='\u{28ff}').contains(&c));
            if let Some((last, above)) = lines.split_last()
                && is_spinner(&last)
            {
                let above = above.join("\n").trim_end().to_owned();
                growths += usize::from(above != shown);
                shown = above;
            }
        }
        assert!(growths > 0, "{columns} columns: nothing was drawn");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
    }
}

/// A spinner and a line of the answer that are wider than the new window.
fn narrowed() {
    let command = "until [ -e go ]; do sleep 0.1; done # with the words of sixty columns";
    let script = format!(
        "call bash {}\n---\ntext: Done.",
        json!({ "command": command })
    );
    let (_model, project) = fixture(&script, &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait(&format!("running {command}"));
    terminal.narrow(40);
    terminal.wait("running until [ -e go ]; do");
    terminal.wait("…, ");
    assert_eq!(
        terminal.text().matches("running").count(),
        1,
        "{}",
        terminal.text()
    );
    project.write("go", "");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(screen.matches("running").count(), 0, "{screen}");
    let (_model, project) = fixture(
        "text: \"The words of an answer of more than forty columns. \"\nhang",
        &json!({}),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("answering");
    terminal.wait("forty columns.");
    terminal.narrow(20);
    interrupt(&terminal, Signal::INT);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert_eq!(screen.matches("The words of an").count(), 1, "{screen}");
    assert!(!screen.contains("answering"), "{screen}");
}

fn interrupt(terminal: &Terminal, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(&terminal.child), signal).unwrap();
}

/// However the run ends, the keys typed meanwhile are not on the screen, and the terminal is as
/// before.
fn typed() {
    let echoes = |terminal: &File| {
        let modes = rustix::termios::tcgetattr(terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO) && modes.contains(LocalModes::ECHOCTL)
    };
    for (signal, expected) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ] {
        let (_model, project) = fixture("hang", &json!({}));
        let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
        let ours = terminal.ours.try_clone().unwrap();
        terminal.wait("waiting for the model");
        assert!(!echoes(&ours), "{signal:?}");
        terminal.enter("qqq");
        pty::wait_for_input(&ours);
        interrupt(&terminal, signal);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(expected), "{screen}");
        assert!(!screen.contains("qq") && !screen.contains("^C"), "{screen}");
        assert!(echoes(&ours), "{signal:?}");
        let shown: Vec<&str> = screen
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let next = "interrupted; `adjutant run -c \"PROMPT\"` continues the session";
        if signal == Signal::INT {
            assert!(shown.len() == 2 && shown[1].trim_end() == next, "{screen}");
        }
    }
}

/// An interrupt leaves the line of a call that has run, with its output, or whose question was open,
/// and the way to go on.
fn interrupted() {
    let ask = json!({ "permission": { "bash": { "*": "ask" } } });
    let script = "call bash {\"command\":\"echo begun; sleep 600\"}";
    let call = "✗ echo begun; sleep 600 (cancelled)";
    for (settings, shown, has_run) in [
        (ask, "any other text rejects", false),
        (json!({}), "  begun", true),
    ] {
        let (_model, project) = fixture(script, &settings);
        let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
        terminal.wait(shown);
        interrupt(&terminal, Signal::INT);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(130), "{screen}");
        assert!(!screen.contains("withdrawn"), "{screen}");
        let mut last = screen
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let next = "interrupted; `adjutant run -c \"PROMPT\"` continues the session";
        assert_eq!(last.next_back(), Some(next), "{screen}");
        if has_run {
            assert_eq!(last.next_back(), Some("begun"), "{screen}");
        }
        let line = last.next_back().unwrap_or_default();
        assert!(line.starts_with(call), "{screen}");
    }
}

/// A line that is typed before a question does not answer it, and the question is on the terminal
/// that answers, wherever the output goes.
fn typed_ahead() {
    let script = "call bash {\"command\":\"cat gate\"}\n---\ncall bash {\"command\":\"touch approved\"}\n---\ntext: So be it.";
    let settings = json!({ "permission": { "bash": { "*": "allow", "touch *": "ask" } } });
    for variables in [&[][..], &[("TERM", "dumb")], &[("NO_COLOR", "1")]] {
        for streams in ["", ">out", "2>err", ">out 2>err", "<\"$(tty)\" >out 2>err"] {
            let (_model, project) = fixture(script, &settings);
            project.shell("mkfifo gate");
            let mut command = project.command("sh");
            command
                .args(["-c", &format!("exec \"$0\" run 'Do it.' {streams}")])
                .arg(env!("CARGO_BIN_EXE_adjutant"))
                .current_dir(project.cwd())
                .envs(variables.iter().copied());
            let mut terminal = Terminal::start(command);
            let ours = terminal.ours.try_clone().unwrap();
            // Opens once the command waits.
            let gate = File::options().write(true).open(project.path("gate"));
            terminal.enter("y");
            pty::wait_for_input(&ours);
            drop(gate.unwrap());
            terminal.wait("any other text rejects");
            // A line that had been read as the answer would have ended the question by now.
            terminal.enter("?");
            terminal.wait("n  rejects it and stops the turn");
            terminal.answer("n");
            let (code, screen) = terminal.end();
            assert_eq!(code, Some(5), "{variables:?} {streams}: {screen}");
            assert!(!project.path("approved").exists(), "{screen}");
        }
    }
    // Lines of a pipe answer nothing.
    for variables in [&[][..], &[("TERM", "dumb")]] {
        let (_model, project) = fixture(
            "call bash {\"command\":\"touch approved\"}\n---\ntext: So be it.",
            &settings,
        );
        let mut command = project.command("sh");
        command
            .args(["-c", "echo y | \"$0\" run 'Do it.'"])
            .arg(env!("CARGO_BIN_EXE_adjutant"))
            .current_dir(project.cwd())
            .envs(variables.iter().copied());
        let (code, screen) = Terminal::start(command).end();
        assert_eq!(code, Some(0), "{screen}");
        assert!(screen.contains("no user to ask"), "{screen}");
        assert!(!project.path("approved").exists(), "{screen}");
    }
}

/// Other commands ask on the terminal that answers, too, and take no line that was typed before.
fn typed_ahead_of_commands() {
    let (_model, project) = fixture("text: One.", &json!({}));
    let first = adjutant(&project, &["run", "First"]).output().unwrap();
    assert!(first.status.success(), "{first:?}");
    for streams in ["", "2>err"] {
        let mut command = project.command("sh");
        command
            .args([
                "-c",
                &format!("cat gate; exec \"$0\" sessions delete last {streams}"),
            ])
            .arg(env!("CARGO_BIN_EXE_adjutant"))
            .current_dir(project.cwd())
            .env("TERM", "dumb");
        project.shell("rm -f gate; mkfifo gate");
        let mut terminal = Terminal::start(command);
        let ours = terminal.ours.try_clone().unwrap();
        let gate = File::options().write(true).open(project.path("gate"));
        terminal.enter("y");
        pty::wait_for_input(&ours);
        drop(gate.unwrap());
        terminal.wait("Delete 1 session? [y/N/?]");
        terminal.enter("?");
        terminal.wait("y  deletes");
        terminal.answer("n");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(1), "{streams}: {screen}");
        assert!(screen.contains("Nothing was deleted."), "{screen}");
        assert_eq!(sessions(&project), 1);
    }
}

/// Arrow keys and the like edit an answer, and the screen shows the text that is sent.
fn edited() {
    let left = "\u{1b}[D";
    let shown = "n, use the new branch";
    for (columns, variables) in [(100, &[][..]), (40, &[]), (100, &[("NO_COLOR", "1")])] {
        let (_model, project) = fixture(
            "call bash {\"command\":\"touch x\"}\n---\nsees: use the new branch\ntext: So be it.",
            &json!({ "permission": { "bash": "ask" } }),
        );
        let mut command = adjutant(&project, &["run", "Do it."]);
        command.envs(variables.iter().copied());
        let mut terminal = Terminal::with_columns(command, columns);
        terminal.wait("any other text rejects");
        terminal.press(&format!("n, use the branch{}new ", left.repeat(6)));
        terminal.wait(shown);
        terminal.press("\r");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        let words: Vec<&str> = screen.split_whitespace().collect();
        assert!(
            words
                .join(" ")
                .contains("the agent gets: use the new branch"),
            "{screen}"
        );
        assert!(line(&screen, shown).ends_with(shown), "{screen}");
    }
    // A question of the model: an answer longer than a row, with characters of two columns.
    let (_model, project) = fixture(
        "call question {\"questions\":[{\"question\":\"Which name?\",\"header\":\"Name\",\"options\":[{\"label\":\"A\",\"description\":\"a\"},{\"label\":\"B\",\"description\":\"b\"}]}]}\n---\n\
         sees: 漢字 and enough other words to fill the row\ntext: So be it.",
        &json!({}),
    );
    let mut terminal = Terminal::with_columns(adjutant(&project, &["run", "Do it."]), 40);
    terminal.wait("? explains\n> ");
    terminal.press("字 and enough other words to fill the row\u{1}漢");
    terminal.wait("> 漢字 and enough other words to fill th\ne row");
    terminal.press("\u{5}x\u{7f}\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
}

/// A pasted text of several lines is one answer, and approves nothing, whether the terminal marks it
/// or not.
fn pasted() {
    for (name, variables, typed) in [
        ("marked", &[][..], "\u{1b}[200~use\r\ry\r\u{1b}[201~"),
        ("not marked", &[], "use\ry\ry"),
        ("without keys", &[("TERM", "dumb")], "use\ny\ny"),
    ] {
        let (_model, project) = fixture(
            "call bash {\"command\":\"touch x\"}\n---\nsees: use\ntext: So be it.",
            &json!({ "permission": { "bash": "ask" } }),
        );
        let mut command = adjutant(&project, &["run", "Do it."]);
        command.envs(variables.iter().copied());
        let mut terminal = Terminal::start(command);
        terminal.wait("any other text rejects");
        terminal.press(typed);
        terminal.wait("use");
        terminal.press("\n");
        terminal.wait("This rejects the call and tells the agent: use");
        terminal.press("\n");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{name}: {screen}");
        assert!(!project.path("x").exists(), "{name}: {screen}");
    }
}

/// Ctrl-C clears the line, and ends the run on an empty one; the terminal is as before.
fn cleared() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"touch x\"}",
        &json!({ "permission": { "bash": "ask" } }),
    );
    let mut command = adjutant(&project, &["run", "Do it."]);
    // The signal goes to the group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut terminal = Terminal::start(command);
    let ours = terminal.ours.try_clone().unwrap();
    let before = rustix::termios::tcgetattr(&ours).unwrap().local_modes;
    terminal.wait("any other text rejects");
    terminal.press("yes and more");
    terminal.wait("yes and more");
    terminal.press("\u{3}");
    terminal.press("?\n");
    terminal.wait("n  rejects it and stops the turn");
    assert!(!terminal.text().contains("yes and"), "{}", terminal.text());
    terminal.press("\u{3}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(
        screen.contains("interrupted; `adjutant run -c \"PROMPT\"`"),
        "{screen}"
    );
    let after = rustix::termios::tcgetattr(&ours).unwrap().local_modes;
    assert!(
        after.contains(LocalModes::ICANON | LocalModes::ECHO),
        "{before:?} {after:?}"
    );
    assert!(!project.path("x").exists(), "{screen}");
}

/// Ctrl-Z stops the run with the terminal as before; afterwards, the question and the answer are
/// shown again, and the answer can be edited.
fn suspended() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"touch x\"}\n---\nsees: use the new branch\ntext: So be it.",
        &json!({ "permission": { "bash": "ask" } }),
    );
    let mut command = adjutant(&project, &["run", "Do it."]);
    // The signal goes to the group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut terminal = Terminal::start(command);
    let program = Pid::from_child(&terminal.child);
    let ours = terminal.ours.try_clone().unwrap();
    terminal.wait("any other text rejects");
    terminal.press("n, use the branch");
    terminal.wait("n, use the branch");
    terminal.press("\u{1a}");
    let stopped = rustix::process::waitpid(Some(program), WaitOptions::UNTRACED);
    assert!(stopped.unwrap().unwrap().1.stopped());
    let modes = rustix::termios::tcgetattr(&ours).unwrap().local_modes;
    assert!(
        modes.contains(LocalModes::ICANON | LocalModes::ECHO),
        "{modes:?}"
    );
    pty::write_to_screen(&ours, "\r\n[1]+ Stopped\r\n");
    rustix::process::kill_process(program, Signal::CONT).unwrap();
    terminal.wait("[1]+ Stopped");
    terminal.press(&format!("{}new \r", "\u{1b}[D".repeat(6)));
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let again = screen.split("[1]+ Stopped").nth(1).unwrap();
    assert!(again.contains("n, use the new branch"), "{screen}");
}

/// Other commands let an answer be edited, too.
fn edited_in_commands() {
    let (_model, project) = fixture("text: One.", &json!({}));
    let first = adjutant(&project, &["run", "First"]).output().unwrap();
    assert!(first.status.success(), "{first:?}");
    let mut terminal = Terminal::start(adjutant(&project, &["sessions", "delete", "last"]));
    terminal.wait("Delete 1 session? [y/N/?] ");
    terminal.press("o\u{1}n\u{1b}[C\u{1b}[A\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    assert_eq!(line(&screen, "[y/N/?]"), "Delete 1 session? [y/N/?] no");
    assert_eq!(sessions(&project), 1);
}

/// A secret is edited with the usual keys, and none of it is on the screen.
fn secret() {
    for variables in [&[][..], &[("TERM", "dumb")]] {
        let (_model, project) = fixture("text: One.", &json!({}));
        let mut command = adjutant(&project, &["auth", "login", "bench"]);
        command.envs(variables.iter().copied());
        let mut terminal = Terminal::start(command);
        terminal.wait("Key for bench: ");
        terminal.press("xkez\u{1b}[Dy\u{1b}[C\u{7f}\u{1b}[A\u{1b}[Hmy-\u{1b}[3~\r");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{variables:?}: {screen}");
        assert_eq!(line(&screen, "Key for bench:").trim_end(), "Key for bench:");
        let stored = project.path("~/.local/share/adjutant/auth.json");
        let stored: Value =
            serde_json::from_str(&std::fs::read_to_string(stored).unwrap()).unwrap();
        assert_eq!(stored["bench"]["key"], "my-key", "{variables:?}: {screen}");
    }
    // Lines that are pasted at once are no key, and none of them is left for the shell.
    let (_model, project) = fixture("text: One.", &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["auth", "login", "bench"]));
    terminal.wait("Key for bench: ");
    terminal.press("one\rtwo\r");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(1), "{screen}");
    assert!(screen.contains("several lines were pasted"), "{screen}");
    assert!(!screen.contains("two"), "{screen}");
    assert!(!project.path("~/.local/share/adjutant/auth.json").exists());
    // After a line that is too long, the terminal marks no paste that the shell would read.
    let mut terminal = Terminal::start(adjutant(&project, &["auth", "login", "bench"]));
    terminal.wait("Key for bench: ");
    terminal.press(&"a".repeat(65 << 10));
    terminal.press("\r");
    terminal.wait("longer than 64 KiB");
    terminal.press("my-key\r");
    terminal.wait("saved in");
    let marks_pastes = terminal.screen.screen().bracketed_paste();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!marks_pastes, "{screen}");
}

/// Ctrl-C ends the command at once, whatever was typed, and the terminal is as before; the keys that
/// would stop the command or let it write its memory to a file are no part of a secret.
fn interrupted_secret() {
    for typed in ["", "a-key", "a\u{1a}\u{1c}key"] {
        let (_model, project) = fixture("text: One.", &json!({}));
        let mut command = adjutant(&project, &["auth", "login", "bench"]);
        // The signal goes to the group.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut terminal = Terminal::start(command);
        let ours = terminal.ours.try_clone().unwrap();
        terminal.wait("Key for bench: ");
        let modes = || rustix::termios::tcgetattr(&ours).unwrap().local_modes;
        assert!(!modes().contains(LocalModes::ECHO), "{:?}", modes());
        terminal.press(typed);
        terminal.press("\u{3}");
        let (code, screen) = terminal.end();
        // A signal ended it.
        assert_eq!(code, None, "{typed:?}: {screen}");
        let echoed = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(modes().contains(echoed), "{typed:?}: {:?}", modes());
        assert!(!screen.contains("key"), "{typed:?}: {screen}");
        assert!(!project.path("~/.local/share/adjutant/auth.json").exists());
    }
}

/// A signal that ends a command at its question leaves the terminal as it was.
fn signalled_questions() {
    let (_model, project) = fixture("text: One.", &json!({}));
    let first = adjutant(&project, &["run", "First"]).output().unwrap();
    assert!(first.status.success(), "{first:?}");
    for (words, question) in [
        (&["sessions", "delete", "last"][..], "[y/N/?] "),
        (&["auth", "login", "bench"], "Key for bench: "),
    ] {
        for (signal, expected) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
            let mut terminal = Terminal::start(adjutant(&project, words));
            let ours = terminal.ours.try_clone().unwrap();
            terminal.wait(question);
            let modes = || rustix::termios::tcgetattr(&ours).unwrap().local_modes;
            assert!(!modes().contains(LocalModes::ICANON), "{words:?}");
            interrupt(&terminal, signal);
            let (code, screen) = terminal.end();
            assert_eq!(code, Some(expected), "{words:?}: {screen}");
            let usual = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            assert!(modes().contains(usual), "{words:?}: {:?}", modes());
        }
    }
}

/// The text above a form and the reason of a question are on the terminal that answers, too.
fn whole_question() {
    let mine = std::env::current_exe().unwrap();
    let server = json!({ "mine": { "type": "local", "command": [mine, "--mcp-server"] } });
    let on_terminal = |project: &Project, line: &str| {
        let mut command = project.command("sh");
        command
            .args(["-c", &format!("exec \"$0\" {line} 2>err")])
            .arg(env!("CARGO_BIN_EXE_adjutant"))
            .current_dir(project.cwd());
        Terminal::start(command)
    };
    let (_model, project) = fixture(
        "call mine_ask {}\n---\nsees: Ann\ntext: So be it.",
        &json!({ "permission": { "mine_*": "allow" }, "mcp": server }),
    );
    let mut terminal = on_terminal(&project, "run 'Do it.'");
    terminal.wait("> ");
    assert!(
        terminal.text().contains("Who is it for?"),
        "{}",
        terminal.text()
    );
    terminal.enter("Ann");
    terminal.wait("large");
    terminal.enter("small");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(screen.matches("Who is it for?").count(), 1, "{screen}");

    let (_model, project) = fixture(
        "text: One.",
        &json!({ "permission": { "mine_*": "dney" }, "mcp": server }),
    );
    let mut terminal = on_terminal(&project, "mcp call mine say '{\"text\": \"hello\"}'");
    terminal.wait("? [y/N/?] ");
    let reason = "note: mine_say: settings that could not be used may deny it";
    assert!(terminal.text().contains(reason), "{}", terminal.text());
    terminal.enter("y");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("\nhello"), "{screen}");
    let errors = std::fs::read_to_string(project.path("err")).unwrap();
    assert!(!errors.contains("note: mine_say"), "{errors}");
}

fn timed() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"seq 20 24; until [ -e go ]; do sleep 0.1; done; seq 9\"}\n---\ntext: Done.",
        &json!({}),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("running seq 20 24; until [ -e go ]; do sleep 0.1; done; seq 9");
    terminal.wait("    22\n    23\n    24");
    terminal.wait(", 4 s");
    project.write("go", "");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let title = line(&screen, "until").trim_end();
    let time = title.strip_prefix("• seq 20 24; until [ -e go ]; do sleep 0.1; done; seq 9 (");
    assert!(time.is_some_and(|time| time.ends_with(" s)")), "{screen}");
    assert!(
        screen.contains(
            "    … 11 lines before; `adjutant sessions show --full` has all\n    7\n    8\n    9\n"
        ),
        "{screen}"
    );
    assert!(!screen.contains("    24"), "{screen}");
}

/// Of a long output the last lines are shown, and the place of the others: in the export of the
/// session, or in a file if the result is cut. The last lines are those of the program, even if the
/// raw output ends before them.
fn long_output() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"seq 5\"}\n---\ncall bash {\"command\":\"seq 8\"}\n---\n\
         call bash {\"command\":\"seq 6\"}\n---\ncall bash {\"command\":\"printf 'a\\\\tbc\\\\n'\"}\n---\n\
         call bash {\"command\":\"seq 1000000 1001900\"}\n---\n\
         call bash {\"command\":\"seq 1000000 1009000\"}\n---\ntext: Done.",
        &json!({}),
    );
    let (code, screen) = Terminal::start(adjutant(&project, &["run", "Do it."])).end();
    assert_eq!(code, Some(0), "{screen}");
    for expected in [
        // A line about a few lines would hardly be shorter.
        "• seq 5\n    1\n    2\n    3\n    4\n    5\n",
        "    … 5 lines before; `adjutant sessions show --full` has all\n    6\n    7\n    8\n",
        "    a       bc\n",
        "• seq 6\n    1\n    2\n    3\n    4\n    5\n    6\n",
        "    … 1898 lines before\n    1001898\n    1001899\n    1001900\n",
        "    1008998\n    1008999\n    1009000\n",
    ] {
        assert!(screen.contains(expected), "{screen}");
    }
    let unwrapped: String = screen.split_whitespace().collect();
    let file = unwrapped.split_once("…alllines:").unwrap().1;
    let (path, _) = file.split_once("1008998").unwrap();
    assert!(path.contains("/tool-output/tool_"), "{screen}");
}

fn subagent() {
    for columns in [40, 80, 120] {
        let (_model, project) = fixture(
            "in: Delegate.\ncall task {\"description\":\"look\",\"prompt\":\"Look here.\",\"subagent_type\":\"general\"}\n---\n\
             in: Look here.\ntext: I look.\ncall bash {\"command\":\"echo found\"}\n---\n\
             in: Look here.\ntext: It is there.\n---\n\
             in: Delegate.\nsees: It is there.\ntext: Done.",
            &json!({}),
        );
        let command = adjutant(&project, &["run", "Delegate."]);
        let (code, screen) = Terminal::with_columns(command, columns).end();
        assert_eq!(code, Some(0), "{screen}");
        assert!(
            screen.contains("▸ general: look\n  • echo found\n      found\n• general: look\n"),
            "{columns}:\n{screen}"
        );
        assert!(!screen.contains("I look."), "{screen}");
    }
}

fn plain() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"echo begun\"}\n---\ncall bash {\"command\":\"exit 3\"}\n---\ntext: \"- It is **all**\\n- there\"",
        &json!({}),
    );
    let mut command = adjutant(&project, &["run", "Do it."]);
    command.env("TERM", "dumb").env("LANG", "C");
    let (code, screen) = Terminal::start(command).end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.is_ascii(), "{screen}");
    let lines: Vec<&str> = screen.lines().skip(1).map(str::trim_end).collect();
    let expected = [
        "* echo begun",
        "    begun",
        "x exit 3 (exit code 3)",
        "",
        "- It is all",
        "- there",
    ];
    assert!(lines.starts_with(&expected), "{screen}");
}

fn question() {
    let script = "call bash {\"command\":\"touch 'a*b' && ls *\"}\n---\ntext: So be it.";
    let settings = json!({ "permission": { "bash": { "*": "ask" } } });
    let (_model, project) = fixture(script, &settings);
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("any other text rejects");
    let screen = terminal.text();
    let shown: Vec<&str> = screen
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let from = shown
        .iter()
        .position(|line| line.starts_with("? "))
        .unwrap_or_else(|| panic!("{screen}"));
    assert_eq!(shown[from], "? touch 'a*b' && ls *", "{screen}");
    assert_eq!(
        shown[from + 1],
        "  The agent wants to run this command.",
        "{screen}"
    );
    assert_eq!(
        screen.matches("touch 'a*b' && ls *").count(),
        1,
        "the command is shown once:\n{screen}"
    );
    assert!(
        screen.contains("  y  Allow once\n") && screen.contains("  n  Reject\n"),
        "{screen}"
    );
    // Invalid answers do not count; there is no "always" here.
    terminal.enter("?");
    terminal.wait("`adjutant permissions explain COMMAND` names the rule");
    terminal.wait("n  rejects it and stops the turn");
    terminal.answer("A");
    terminal.wait("\"Always\" is not offered: ");
    terminal.answer("");
    terminal.wait("Answer y or n; ? explains.");
    terminal.answer("yse");
    terminal.wait("This rejects the call and tells the agent: yse");
    terminal.enter("OK");
    let (code, screen) = terminal.end();
    assert_eq!(
        (code, project.cwd().join("a*b").exists()),
        (Some(0), true),
        "{screen}"
    );
    // "n" is no, and so are other words, which the model gets.
    let (_model, project) = fixture(
        &format!(
            "{}\n---\nsees: elsewhere\ntext: So be it.",
            script.split("\n---").next().unwrap()
        ),
        &settings,
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("any other text rejects");
    terminal.enter("elsewhere");
    terminal.wait("This rejects the call and tells the agent: elsewhere");
    terminal.enter("");
    let (code, screen) = terminal.end();
    assert_eq!(
        (code, project.cwd().join("a*b").exists()),
        (Some(0), false),
        "{screen}"
    );
    let (_model, project) = fixture("call bash {\"command\":\"touch x\"}", &settings);
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("any other text rejects");
    terminal.enter("N");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(5), "{screen}");
    assert!(
        screen.contains("You rejected touch x, so I stopped here"),
        "{screen}"
    );
    assert!(
        screen.contains("✗ touch x (rejected)\n")
            && screen
                .trim_end()
                .ends_with("Answer with `adjutant run -c \"PROMPT\"`."),
        "{screen}"
    );
}

/// A long command is wrapped, and a long change is cut, so that the answers
/// are on the screen too.
fn fitted_question() {
    let command = "cargo test --workspace --all-targets && git push origin main --force-with-lease";
    let call = json!({ "command": command });
    let script = format!("call bash {call}\n---\nsees: no pushing\ntext: So be it.");
    let settings = json!({ "permission": { "bash": "ask", "edit": "ask" } });
    let narrow =
        "? cargo test --workspace --all-targets\n  && git push origin main\n  --force-with-lease\n";
    let middle =
        "? cargo test --workspace --all-targets && git push origin main\n  --force-with-lease\n";
    for (columns, expected) in [
        (40, narrow.to_owned()),
        (80, middle.to_owned()),
        (120, format!("? {command}\n")),
    ] {
        let (_model, project) = fixture(&script, &settings);
        let command = adjutant(&project, &["run", "Do it."]);
        let mut terminal = Terminal::with_columns(command, columns);
        terminal.wait("[y/n/?]");
        let screen = terminal.text();
        assert!(screen.contains(&expected), "{columns}:\n{screen}");
        terminal.enter("n, no pushing");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        let words: Vec<&str> = screen.split_whitespace().collect();
        let words = words.join(" ");
        assert!(
            words.contains("(rejected; the agent gets: no pushing)"),
            "{screen}"
        );
    }
    let text: String = (1..=90).map(|n| format!("\tline {n}\n")).collect();
    let call = json!({ "filePath": "long.txt", "content": text });
    for columns in [40, 80, 120] {
        let (_model, project) = fixture(&format!("call write {call}"), &settings);
        let command = adjutant(&project, &["run", "Do it."]);
        let mut terminal = Terminal::with_columns(command, columns);
        terminal.wait("[y/a/v/n/?]");
        let screen = terminal.text();
        assert!(
            screen.starts_with("session "),
            "the question fits:\n{screen}"
        );
        assert!(screen.contains("   1 +        line 1\n"), "{screen}");
        assert!(screen.contains(" more lines\n"), "{screen}");
        terminal.enter("n");
        terminal.end();
    }
}

/// A question with choices: a number that is not there is not sent, and the time of the user is not
/// that of the call. The long option is wrapped next to its text.
fn choices() {
    let form = json!({ "questions": [
        { "header": "Store", "question": "Which store?", "options": [
            { "label": "SQLite", "description": "one file, no server, and good enough for a single machine" },
            { "label": "PostgreSQL", "description": "a server" } ] },
        { "header": "Parts", "question": "Which parts?", "multiple": true, "options": [
            { "label": "Search", "description": "of text" }, { "label": "Export", "description": "as HTML" } ] } ] });
    let script = format!("call question {form}\n---\nsees: SQLite\nsees: Export\ntext: So be it.");
    let (model, project) = fixture(&script, &json!({}));
    let mut terminal = Terminal::with_columns(adjutant(&project, &["run", "Do it."]), 40);
    terminal.wait("? explains");
    let screen = terminal.text();
    assert!(screen.contains("? 1 of 2: Which store?\n"), "{screen}");
    assert!(
        screen.contains(
            "  1  SQLite: one file, no server, and\n     good enough for a single machine\n"
        ),
        "{screen}"
    );
    terminal.enter("?");
    terminal.wait("any other text  is your own answer");
    terminal.enter("9");
    terminal.wait("There is no choice 9: answer 1 or 2.");
    terminal.enter("y");
    terminal.wait("\"y\" is none of the choices: 1 or 2.");
    terminal.enter("postgres");
    terminal.wait("Taken as: PostgreSQL.");
    terminal.enter("sqlite");
    terminal.wait("? 2 of 2: Which parts?");
    terminal.enter("1,7");
    terminal.wait("There is no choice 7: answer 1 or 2.");
    terminal.enter("1, and docs");
    terminal.wait("Taken as: Search, with your comment:");
    thread::sleep(Duration::from_millis(1100)); // the time that the user takes
    terminal.enter("1 2");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(!screen.contains(" s)"), "{screen}");
    assert!(
        screen
            .contains("• Store, Parts\n    Store: SQLite\n    Parts: Search, Export\n\nSo be it."),
        "{screen}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
    let document = adjutant(&project, &["sessions", "show", "--json"])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(
        document["messages"][1]["calls"][0]["answers"],
        json!([["SQLite"], ["Search", "Export"]])
    );
}

/// The calls of an earlier session look as in its run, and with all lines if they are wanted.
fn shown_again() {
    let script = format!(
        "call write {{\"filePath\":\"big.txt\",\"content\":\"new\\n\"}}\n---\n\
         call write {{\"filePath\":\"a.txt\",\"content\":\"new line\\n\"}}\n---\n\
         call bash {{\"command\":\"exit 7\"}}\n---\ncall bash {}\n---\n\
         call bash {{\"command\":\"curl example.org\"}}\n---\ntext: Done.",
        json!({ "command": "cat > b <<EOF\none\ntwo\nEOF\nseq 9" })
    );
    let denies = json!({ "permission": { "bash": { "curl *": "deny" } } });
    let (_model, project) = fixture(&script, &denies);
    project.write("big.txt", &"a line\n".repeat(100));
    let typed = "Do it in __init__.py.\n    # include <a*b*c>";
    let (code, run) = Terminal::start(adjutant(&project, &["run", typed])).end();
    assert_eq!(code, Some(0), "{run}");
    let (code, list) = Terminal::start(adjutant(&project, &["sessions"])).end();
    assert_eq!(code, Some(0), "{list}");
    let head: Vec<&str> = line(&list, "session").split_whitespace().collect();
    assert_eq!(
        head,
        ["session", "last", "used", "changed", "title"],
        "{list}"
    );
    assert!(line(&list, "Do it").contains("2 files"), "{list}");
    let (code, shown) = Terminal::start(adjutant(&project, &["sessions", "show"])).end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(&format!("\n{typed}\n")), "{shown}");
    for screen in [&run, &shown] {
        for part in [
            "✗ Write big.txt\n    big.txt exists, and was not read in this session, so it was not replaced.\n• Write",
            "• Write a.txt\n    a.txt +1 -0\n    1 +new line\n✗ exit 7 (exit code 7)\n",
            "• cat > b <<EOF … (5 lines)\n    … 6 lines before; `adjutant sessions show --full",
            " has all\n    7\n    8\n    9\n✗ curl example.org\n    Not allowed: ",
            " bash curl example.org.\n\nDone.",
        ] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
    }
    let (code, full) = Terminal::start(adjutant(&project, &["sessions", "show", "--full"])).end();
    assert_eq!(code, Some(0), "{full}");
    let part = "    cat > b <<EOF\n    one\n    two\n    EOF\n    seq 9\n    1\n    2\n";
    assert!(
        full.contains(part) && !full.contains("lines before"),
        "{full}"
    );
    // The advice to the model is in the whole text only.
    for advice in ["send the call again", "Do not try to work around this."] {
        assert!(full.contains(advice), "{full}");
        assert!(!shown.contains(advice), "{shown}");
    }
    let (_, found) = Terminal::start(adjutant(&project, &["sessions", "search", "DONE"])).end();
    assert!(found.contains("1 message: Done."), "{found}");
}

/// The end of the input rejects, and leaves the question's line; notices do not come between a
/// question and its answer.
fn ended_input() {
    let (_model, project) = fixture(
        "call bash {\"command\":\"touch x\"}",
        &json!({ "permission": { "bash": { "*": "ask" } } }),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("any other text rejects");
    terminal.ours.write_all(b"\x04").unwrap();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(5), "{screen}");
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    assert!(
        lines
            .windows(2)
            .any(|pair| pair == ["[y/a/n/?]", "✗ touch x (rejected)"]),
        "{screen}"
    );
    let form = json!({ "questions": [{ "header": "Store", "question": "Which store?" }] });
    for columns in [40, 80, 120] {
        let script = format!("call question {form}\n---\ntext: So be it.");
        let (_model, project) = fixture(&script, &json!({}));
        let command = adjutant(&project, &["run", "Do it."]);
        let mut terminal = Terminal::with_columns(command, columns);
        terminal.wait("Which store?");
        terminal.wait("> ");
        terminal.ours.write_all(b"\x04").unwrap();
        let (_, screen) = terminal.end();
        assert!(screen.contains(" (not answered)\n"), "{screen}");
        assert!(!screen.contains("dismissed"), "{screen}");
    }
}

/// A change that is too long for the question can be seen before it is allowed.
fn viewed() {
    let text: String = (1..=50).map(|n| format!("line {n}\n")).collect();
    let call = json!({ "filePath": "long.txt", "content": text });
    let (_model, project) = fixture(
        &format!("call write {call}\n---\ntext: Written."),
        &json!({ "permission": { "edit": "ask" } }),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("v  View the whole change");
    assert!(!terminal.text().contains("line 50"));
    terminal.enter("");
    terminal.wait("Answer y, a, v or n; ? explains.");
    terminal.enter("v");
    // The choices come again after it.
    terminal.wait_until("the choices", |screen| {
        let after = screen.split_once("50 +line 50");
        after.is_some_and(|(_, after)| after.contains("y  Allow once"))
    });
    terminal.enter("y");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    // In the question and in the view, but not again with the finished call.
    assert_eq!(screen.matches("49 +line 49").count(), 1, "{screen}");

    let lines: String = (1..=60).map(|n| format!("line {n}\n")).collect();
    let call = json!({ "command": format!("cat > long.txt <<EOF\n{lines}EOF") });
    let (_model, project) = fixture(
        &format!("call bash {call}\n---\ntext: Written."),
        &json!({ "permission": { "bash": "ask" } }),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("v  View the whole command");
    let screen = terminal.text();
    assert!(
        screen.starts_with("session ") && !screen.contains("line 60"),
        "the question fits:\n{screen}"
    );
    terminal.enter("v");
    terminal.wait("line 60");
    terminal.answer("y");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
}

/// The spinner names the activity of the model.
fn activities() {
    let (_model, project) = fixture("reasoning: Hm.\ntext: \"It is there. \"\nhang", &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("answering");
    interrupt(&terminal, Signal::INT);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    let answer = screen.find("It is there.");
    let next = screen.find("interrupted; `adjutant run -c \"PROMPT\"`");
    assert!(answer.is_some() && answer < next, "{screen}");

    // The time of long reasoning remains.
    let script = "reasoning: Hm.\npause\ntext: It is there.";
    let (model, project) = fixture(script, &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("thinking, 2 s");
    model.resume();
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(line(&screen, "thought for ").ends_with(" s"), "{screen}");

    let busy = "status 503 retry-after 30 {\"error\":{\"message\":\"overloaded\"}}";
    let (_model, project) = fixture(busy, &json!({}));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("overloaded");
    terminal.wait("retrying in ");
    interrupt(&terminal, Signal::INT);
    terminal.end();
}

/// Two calls of one step ask about the same. "Always" answers both, and neither was rejected.
fn settled() {
    let script = "call bash {\"command\":\"touch a\"}\ncall bash {\"command\":\"touch b\"}\n---\ntext: So be it.";
    let (_model, project) = fixture(script, &json!({ "permission": { "bash": { "*": "ask" } } }));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("any other text rejects");
    terminal.enter("?");
    terminal.wait("\"Always\" stores, for the agent build in this project: allow commands");
    terminal.answer("a");
    let (code, screen) = terminal.end();
    let receipt =
        "stored for the agent build in this project: always allow commands that begin with touch";
    assert!(screen.contains(receipt), "{screen}");
    assert!(
        screen.contains("`adjutant permissions revoke bash`"),
        "{screen}"
    );
    let made = ["a", "b"].map(|name| project.cwd().join(name).exists());
    assert_eq!((code, made), (Some(0), [true, true]), "{screen}");
    assert!(!screen.contains("rejected"), "{screen}");
    let explained = adjutant(&project, &["permissions", "explain", "touch c"])
        .output()
        .unwrap();
    let explained = text(&explained.stdout);
    assert!(
        explained.starts_with("allowed without asking: touch c\n  why: you allowed this before"),
        "{explained}"
    );

    // A rejection does not answer the other question, which mentions it.
    let (_model, project) = fixture(
        "call bash {\"command\":\"echo one\"}\ncall bash {\"command\":\"ls none\"}",
        &json!({ "permission": { "bash": { "*": "ask" } } }),
    );
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("? echo one");
    terminal.answer("n");
    terminal.wait("echo one was rejected. The message has another call:");
    terminal.wait("? ls none");
    terminal.answer("n");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(5), "{screen}");
}

fn colours() {
    for (variable, wanted) in [("SOMETHING", true), ("NO_COLOR", false)] {
        let (_model, project) = fixture("text: \"It is **all** in `x` there.\\n\"", &json!({}));
        let mut command = adjutant(&project, &["run", "Do it."]);
        command.env(variable, "1");
        let mut terminal = Terminal::start(command);
        terminal.wait("there.");
        let screen = terminal.screen.screen();
        let row = (0..ROWS)
            .find(|row| {
                screen
                    .contents_between(*row, 0, *row, COLUMNS)
                    .contains("there.")
            })
            .unwrap();
        let bold = (0..COLUMNS)
            .filter(|column| screen.cell(row, *column).is_some_and(vt100::Cell::bold))
            .count();
        let is_coloured = (0..COLUMNS).any(|column| {
            let cell = screen.cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        });
        assert_eq!((bold, is_coloured), (3, wanted), "{variable}");
        terminal.end();
    }
    // In a pipe only if they are asked for, and never in an answer.
    for (variables, wanted) in [
        (&[][..], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("FORCE_COLOR", "1")], true),
        (&[("FORCE_COLOR", "1"), ("NO_COLOR", "1")], false),
    ] {
        let (_model, project) = fixture("text: \"It is **all** there.\"", &json!({}));
        let run = |words: &[&str]| {
            let mut command = adjutant(&project, words);
            text(
                &command
                    .envs(variables.iter().copied())
                    .output()
                    .unwrap()
                    .stdout,
            )
        };
        for words in [&["permissions", "explain", "ls"][..], &["run", "--help"]] {
            let is_coloured = run(words).contains("\u{1b}[");
            assert_eq!(is_coloured, wanted, "{words:?} {variables:?}");
        }
        assert_eq!(run(&["run", "Do it."]), "It is **all** there.\n");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns standard error without the line that names the session, and the session.
fn stderr_without_session(output: &Output) -> (String, String) {
    let stderr = text(&output.stderr);
    let (session, rest) = stderr.split_once('\n').unwrap_or_default();
    (
        rest.to_owned(),
        session
            .strip_prefix("session ")
            .unwrap_or_default()
            .to_owned(),
    )
}

/// Ends a run whose answer is not read any more, although the pipe is open.
fn stopped_reader() {
    let long = "words ".repeat(100_000);
    let (_model, project) = fixture(&format!("text: {long}"), &json!({}));
    let mut run = adjutant(&project, &["run", "-q", "Do it."])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut unread = run.stdout.take().unwrap();
    unread.read_exact(&mut [0]).unwrap();
    rustix::process::kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

fn piped() {
    let long = "words ".repeat(60);
    let (_model, project) = fixture(
        &format!(
            "text: Let me see.\ncall bash {{\"command\":\"echo one\"}}\n---\ntext: One more look.\ncall bash {{\"command\":\"echo two; exit 3\"}}\n---\ntext: \"**It** is\\u001b[1m {long}\""
        ),
        &json!({}),
    );
    let output = adjutant(&project, &["run", "Do it."]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("**It** is\u{1b}[1m {long}\n"));
    assert_eq!(
        stderr_without_session(&output).0,
        "Let me see.\n• echo one\n    one\nOne more look.\n✗ echo two; exit 3 (exit code 3)\n    two\n"
    );
    // A question without a user is refused to the model, which continues.
    let refused = "text: Let me see.\ncall read {\"filePath\":\"/etc/hostname\"}\n---\nsees: no user is present\ntext: I could not look.";
    for (strict, code) in [
        (&["run", "Do it."][..], 0),
        (&["run", "--strict", "Do it."], 5),
    ] {
        let (_model, project) = fixture(refused, &json!({}));
        let output = adjutant(&project, strict).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(code), "I could not look.\n"),
            "{output:?}"
        );
        let (stderr, _) = stderr_without_session(&output);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(
            lines,
            [
                "Let me see.",
                "not allowed, no user to ask: Read /etc/hostname (outside the project); --allow permits it",
                "adjutant: 1 call was not allowed:",
                "  Read /etc/hostname (outside the project)",
                "    permitted by --allow, or in the settings by {\"permission\":{\"external_directory\":{\"/etc/*\":\"allow\"}}}",
            ],
            "{stderr}"
        );
    }
    // A call that a rule denies is reported.
    let (_model, project) = fixture(
        "call bash {\"command\":\"rm x\"}\n---\nsees: Not allowed\ntext: I may not.",
        &json!({ "permission": { "bash": { "rm *": "deny" } } }),
    );
    let output = adjutant(&project, &["run", "-q", "Do it."])
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("not allowed: rm x: the rule \"bash\": { \"rm *\": \"deny\" } ("),
        "{stderr}"
    );
    assert!(!stderr.contains("work around"), "{stderr}");
    // A repetition ends the turn: the text before it is the answer.
    let (_model, project) = fixture(
        "text: It is so.\ncall read {\"filePath\":\"/etc/hostname\"}\n---\ncall read {\"filePath\":\"/etc/hostname\"}\n---\ncall read {\"filePath\":\"/etc/hostname\"}",
        &json!({}),
    );
    let output = adjutant(&project, &["run", "--deny", "Do it."])
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(5), "It is so.\n"),
        "{output:?}"
    );
    assert!(
        text(&output.stderr).contains("not allowed, as --deny says: Read /etc/hostname"),
        "{output:?}"
    );
    // A failure has no answer.
    let (_model, project) = fixture(
        "text: It is so.\ncall bash {\"command\":\"ls\"}\n---\nstatus 400 {\"error\":{\"message\":\"no such thing\"}}",
        &json!({}),
    );
    let output = adjutant(&project, &["run", "Do it."]).output().unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(1), ""),
        "{output:?}"
    );
}

/// The cause of repeated failures is printed once, also without notes.
fn retried() {
    let busy = "status 503 retry-after 0 {\"error\":{\"message\":\"overloaded\"}}";
    for (args, lines) in [
        (&["run", "Do it."][..], ["note: ", "note: The same error. "]),
        (&["run", "-q", "Do it."], ["", ""]),
    ] {
        let (_model, project) = fixture(
            &format!("{busy}\n---\n{busy}\n---\ntext: Done."),
            &json!({}),
        );
        let output = adjutant(&project, args).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(text(&output.stdout), "Done.\n", "{stderr}");
        assert_eq!(stderr.matches("overloaded").count(), 1, "{stderr}");
        let retries: Vec<&str> = stderr
            .lines()
            .filter(|line| line.contains("Retrying in"))
            .collect();
        let [first, same] = lines;
        assert!(retries[0].starts_with(first), "{stderr}");
        assert_eq!(
            retries.len(),
            if same.is_empty() { 1 } else { 2 },
            "{stderr}"
        );
        assert!(
            retries.last().is_some_and(|last| last.starts_with(same)),
            "{stderr}"
        );
    }
}

/// The beginning of an answer whose connection broke is shown above the notice, rows of a table
/// included, and is no part of the answer in a pipe, in JSON and in the stored session.
fn broken_off() {
    let whole = "| n | m |\\n|---|---|\\n| first | second |\\n| third | fourth |";
    let script =
        format!("text: \"| n | m |\\n|---|---|\\n| first |\"\ncut\n---\ntext: \"{whole}\"");
    let (_model, project) = fixture(&script, &json!({}));
    let (code, screen) = Terminal::start(adjutant(&project, &["run", "Do it."])).end();
    assert_eq!(code, Some(0), "{screen}");
    let at = |text: &str| {
        screen
            .find(text)
            .unwrap_or_else(|| panic!("{text}:\n{screen}"))
    };
    let notice = at("closed before the end of the answer");
    assert!(at("first") < notice, "{screen}");
    assert!(at("fourth") > notice, "{screen}");
    assert_eq!(screen.matches("fourth").count(), 1, "{screen}");

    let answer = whole.replace("\\n", "\n");
    for args in [
        &["run", "-q", "Do it."][..],
        &["run", "--format", "result", "Do it."],
    ] {
        let (_model, project) = fixture(&script, &json!({}));
        let output = adjutant(&project, args).output().unwrap();
        let printed = text(&output.stdout);
        let printed = match serde_json::from_str::<Value>(&printed) {
            Ok(result) => result["answer"].as_str().unwrap().to_owned(),
            Err(_) => printed,
        };
        assert_eq!(printed.trim_end(), answer, "{args:?}: {output:?}");
    }
}

fn sessions(project: &Project) -> usize {
    let output = adjutant(project, &["sessions", "--all", "--json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list.as_array().unwrap().len()
}

fn continued() {
    let (model, project) = fixture(
        "text: First.\n---\nsees: Remember 7\ntext: Second.\n---\nsees: Remember 7\ntext: Third.\n---\nsees: Remember 7\ntext: Fourth.",
        &json!({}),
    );
    let run = |args: &[&str]| {
        let output = adjutant(&project, &[&["run"], args].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        (text(&output.stdout), stderr_without_session(&output).1)
    };
    let (_, first) = run(&["Remember 7."]);
    assert!(first.starts_with("ses_"), "{first}");
    assert_eq!(
        run(&["-c", "And now?"]),
        ("Second.\n".to_owned(), first.clone())
    );
    assert_eq!(
        run(&["--session", &first[..first.len() - 2], "And now?"]),
        ("Third.\n".to_owned(), first.clone())
    );
    let (answer, copy) = run(&["--continue", "--fork", "And now?"]);
    assert_eq!(
        (answer.as_str(), copy != first, sessions(&project)),
        ("Fourth.\n", true, 2)
    );
    assert_eq!(model.problems(), Vec::<String>::new());
    // A mistake in a command line is reported at once, and leaves nothing behind.
    let table: [(&[&str], &str); 9] = [
        (
            &["--mode", "nope", "Hello"],
            "there is no mode \"nope\"; there are: build, plan",
        ),
        (
            &["--model", "nope/x", "Hello"],
            "there is no model \"nope/x\" here, and no provider \"nope\".",
        ),
        (
            &["--schema", "gone.json", "Hello"],
            "--schema: gone.json cannot be read",
        ),
        (&["--cwd", "gone", "Hello"], "--cwd: gone cannot be entered"),
        (
            &["--fork", "Hello"],
            "--fork copies a session: name it with --session, or use --continue",
        ),
        (
            &[""],
            "the prompt is empty; say what to do: adjutant run \"PROMPT\"",
        ),
        (&[], "the prompt is empty"),
        (&["-f", "gone.txt", "Hello"], "gone.txt cannot be read"),
        (&["--nope", "Hello"], "run has no option --nope"),
    ];
    for (args, words) in table {
        let output = adjutant(&project, &[&["run"], args].concat())
            .output()
            .unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(2), ""),
            "{args:?}: {output:?}"
        );
        assert!(text(&output.stderr).contains(words), "{args:?}: {output:?}");
    }
    assert_eq!(sessions(&project), 2);
}

fn attached() {
    let (model, project) = fixture(
        "sees: the lines that follow\nsees: 1 2 3\nsees: let a = 5;\nsees: src/b.rs\nhas: data:image/png;base64,iVBORw0K\ntext: Seen.\n---\nsees: all of it\ntext: Seen.",
        &json!({ "provider": { "bench": { "models": { "bench-model": {
            "modalities": { "input": ["text", "image"], "output": ["text"] }, "attachment": true } } } } }),
    );
    project.write("a.rs", "let a = 5;\n");
    project.write("src/b.rs", "let b = 6;\n");
    let picture = base64::engine::general_purpose::STANDARD
        .decode(crate::mcp::TINY)
        .unwrap();
    std::fs::write(project.path("p.png"), picture).unwrap();
    let with_input = |args: &[&str], text: &str| {
        let mut child = adjutant(&project, &[&["run"], args].concat());
        let child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    };
    let output = with_input(
        &[
            "-f",
            "a.rs",
            "-f",
            "p.png",
            "Read @src/b.rs, and the lines that follow:",
        ],
        "1 2 3\n",
    );
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "Seen.\n"),
        "{output:?}"
    );
    let output = with_input(&[], "This is all of it.\n");
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "Seen.\n"),
        "{output:?}"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
    let shown = text(
        &adjutant(&project, &["sessions", "show", "last"])
            .output()
            .unwrap()
            .stdout,
    );
    assert!(!shown.contains("<attached"), "{shown}");
    let nothing = with_input(&["-"], " \n \n");
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}

fn trust() {
    let project = Project::new();
    project.settings(&json!({ "permission": { "bash": "ask" } }));
    project.write(
        "opencode.json",
        &json!({ "permission": { "bash": { "echo *": "allow" } } }).to_string(),
    );
    let piped = |args: &[&str]| {
        let output = adjutant(&project, &[&["trust"], args].concat())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let (code, output) = piped(&[]);
    assert!(
        code == Some(1) && output.contains("Not decided yet: these are off."),
        "{output}"
    );
    // A no at the terminal is for these items only.
    for (typed, words, later) in [
        ("N", "Not trusted for now: you are asked again", 0),
        ("Ok", "Trusted. You are asked again", 0),
    ] {
        piped(&["--revoke"]);
        let mut terminal = Terminal::start(adjutant(&project, &["trust"]));
        terminal.wait("[y/n/?]");
        terminal.enter("what?");
        terminal.wait("Answer y or n; ? explains.");
        terminal.enter(typed);
        let (ended, screen) = terminal.end();
        assert!(
            ended == Some(0) && screen.contains(words),
            "{typed}: {screen}"
        );
        assert_eq!(piped(&[]).0, Some(later), "{typed}");
    }
    assert!(
        piped(&["--no"])
            .1
            .contains("Not trusted: these are off, and you are not asked again.")
    );
    assert_eq!(piped(&[]).0, Some(0));
    assert!(piped(&["--yes"]).1.contains("Trusted. You are asked again"));
}

fn changed_script() {
    let project = Project::new();
    let hook =
        json!({ "hook": { "check": { "on": "tool.before", "command": ["sh", "check.sh"] } } });
    project.write("adjutant.json", &hook.to_string());
    project.write("check.sh", "exit 0\n");
    let trusted = adjutant(&project, &["trust", "--yes"]).output().unwrap();
    assert!(trusted.status.success(), "{}", text(&trusted.stdout));
    project.write("check.sh", "exit 2\n");
    let mut terminal = Terminal::start(adjutant(&project, &["trust"]));
    terminal.wait("[y/v/n/?]");
    terminal.enter("v");
    terminal.wait("1 +exit 2");
    terminal.answer("n");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("check.sh +1 -1\n  1 -exit 0\n  1 +exit 2\n"),
        "{screen}"
    );
}

/// The files that a project would run are viewed before the first answer, in `trust` and in a run.
fn viewed_files() {
    let (_model, project) = fixture("text: Done.", &json!({}));
    let hook =
        json!({ "hook": { "check": { "on": "tool.before", "command": ["sh", "check.sh"] } } });
    project.write("adjutant.json", &hook.to_string());
    project.write("check.sh", "exit 0\n");
    let mut terminal = Terminal::start(adjutant(&project, &["trust"]));
    terminal.wait("[y/v/n/?]");
    terminal.enter("v");
    terminal.wait("  check.sh (1 line)\n  1  exit 0\n");
    terminal.answer("n");
    assert_eq!(terminal.end().0, Some(0));
    let revoked = adjutant(&project, &["trust", "--revoke"]).output().unwrap();
    assert!(revoked.status.success(), "{}", text(&revoked.stdout));
    let mut terminal = Terminal::start(adjutant(&project, &["run", "Do it."]));
    terminal.wait("v  View the files that would run");
    terminal.enter("v");
    terminal.wait("  check.sh (1 line)\n  1  exit 0\n");
    terminal.answer("n");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
}

fn deletion() {
    let script = "text: One.\n---\ntext: Two.\n---\ntext: Three.\n---\ntext: Four.";
    let (_model, project) = fixture(script, &json!({}));
    let piped = |words: &[&str]| {
        let output = adjutant(&project, words).output().unwrap();
        (output.status.code(), text(&output.stdout))
    };
    for prompt in ["First", "Second"] {
        assert_eq!(piped(&["run", prompt]).0, Some(0));
    }
    let count = || {
        let list: Value = serde_json::from_str(&piped(&["sessions", "--json"]).1).unwrap();
        list.as_array().unwrap().len()
    };
    for words in [
        &["sessions", "delete", "last"][..],
        &["sessions", "prune", "--days", "0"],
    ] {
        let mut terminal = Terminal::start(adjutant(&project, words));
        terminal.wait("[y/N/?]");
        terminal.enter("");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(1), "{screen}");
        assert!(
            screen.contains("Second") && screen.contains("Nothing was deleted."),
            "{screen}"
        );
        assert_eq!(count(), 2, "{words:?}");
    }
    let mut terminal = Terminal::start(adjutant(&project, &["sessions", "delete", "last"]));
    terminal.wait("Delete 1 session? [y/N/?]");
    terminal.enter("y");
    let (code, screen) = terminal.end();
    assert_eq!((code, count()), (Some(0), 1), "{screen}");
    // A script is not asked, and neither is a user with `--yes`.
    let yes = Terminal::start(adjutant(&project, &["sessions", "delete", "--yes", "last"])).end();
    assert_eq!((yes.0, count()), (Some(0), 0), "{}", yes.1);
    assert_eq!(piped(&["sessions", "prune", "--days", "0"]).0, Some(0));
    // A session that was not listed is not deleted.
    assert_eq!(piped(&["run", "Third"]).0, Some(0));
    let mut terminal = Terminal::start(adjutant(&project, &["sessions", "prune", "--days", "0"]));
    terminal.wait("Delete 1 session? [y/N/?]");
    assert_eq!(piped(&["run", "Fourth"]).0, Some(0));
    terminal.enter("y");
    let (code, screen) = terminal.end();
    assert!(
        code == Some(0) && screen.contains("deleted 1 session"),
        "{screen}"
    );
    let left = piped(&["sessions", "--json"]).1;
    assert!(left.contains("Fourth") && !left.contains("Third"), "{left}");
}

/// The last session may be another one than the user means, so its undo is asked for at a terminal.
fn undo_asked() {
    let script = "call write {\"filePath\":\"a.txt\",\"content\":\"a\\n\"}\n---\ntext: Written.";
    let (_model, project) = fixture(script, &json!({}));
    let run = adjutant(&project, &["run", "Write a.txt"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let file = project.cwd().join("a.txt");
    let mut terminal = Terminal::start(adjutant(&project, &["sessions", "revert"]));
    terminal.wait("Undo its last turn, \"Write a.txt\", with its changes to files? [y/N/?]");
    terminal.enter("");
    let (code, screen) = terminal.end();
    assert!(
        code == Some(1) && screen.contains("Nothing was undone.") && file.exists(),
        "{screen}"
    );
    let yes = adjutant(&project, &["sessions", "revert", "--yes"]);
    let (code, screen) = Terminal::start(yes).end();
    assert!(code == Some(0) && !file.exists(), "{screen}");
    assert!(screen.contains("\n• removed a.txt\n"), "{screen}");
    // `/plan` alone would leave an empty session, which is not stored.
    let plan = adjutant(&project, &["run", "/plan"]).output().unwrap();
    assert_eq!(plan.status.code(), Some(2), "{plan:?}");
    assert!(text(&plan.stderr).contains("add the task"), "{plan:?}");
}
