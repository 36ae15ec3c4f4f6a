//! Transcripts: pages of prose and fenced blocks, which are executed in their order.
//!
//! | block | what it is |
//! |---|---|
//! | `fixture` | a folder of `fixtures/` is copied into the project |
//! | `files` | files of the project; `=== path` begins each (`~/path` for the home). `files git` commits them |
//! | `config` | `opencode.json` of the project; `config home` is merged into the user's |
//! | `environment` | `NAME=value`, or `NAME` alone to take it away |
//! | `web` | what the mock web server serves (see `web.rs`); `${WEB}` is its address |
//! | `model` | what the mock provider answers (see `model.rs`), whose address is `${MODEL}`; without one there is only the offline model |
//! | `editor` | messages of the client: JSON, one message per line, and actions, which begin with `#` |
//! | `terminal` | commands, each after `$ `, and what they print; see `terminal.rs` |
//! | `agent` | what must come out, in the short form of `short_form.rs` or one JSON message per line; `agent unordered` for concurrent calls |
//!
//! JSON lines are literal, except that `"jsonrpc":"2.0"` is omitted on both sides (a line that
//! begins with `raw ` is sent unchanged), and that placeholders replace values that differ from run
//! to run: `${SESSION}`, `${SESSION2}`, `${CWD}`, `${HOME}`, `${TMP}`, `${ASK}` (the id of the
//! agent's newest request), `${MCP}` (the program of `mcp.rs`, with `--mcp-server`, and of
//! `language.rs`), `‹call1›`, `‹part1›`, `‹ask1›`, `‹time›`. In `agent` lines `…` matches anything:
//! a value, a piece of a string, the other members of an object (`"…":"…"`), the rest of an array.
//!
//! Every `editor` block waits until each of its requests is answered, unless it is marked
//! `editor unanswered`. Consecutive chunks of one message are shown as one, because their number is
//! random. Messages that may come at any time ([`ASIDE`]) are shown only on pages that mention
//! them, and in no order with the rest; so are some members ([`ASIDE_MEMBERS`]).
//!
//! A client that offers files (`# open a session with fs`) answers requests about them
//! automatically: with the text on the disk, or with the buffer that `# hold path "text"` has
//! opened. A client that gives a session MCP servers of the type `acp` answers requests to them
//! automatically; see `editor_servers.rs`. A client of version 2 (`# open a session in version 2`)
//! needs a page whose environment allows it; the output of its terminals is shown as text. A client
//! with forms (`# open a session with forms`, `… with forms and addresses`) answers them on
//! `# answer form {…}`.
//!
//! `BLESS=1` writes the output into the `agent` blocks, in the short form unless the page is about
//! the wire; messages that still match stay as they are.

mod buffers;
mod compare;
mod replayed;
mod run;
mod short_form;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::model::{self, Model};
use crate::project::Project;
use crate::terminal;
use crate::web::Web;
use run::Run;

/// Tests of this module's own judgement.
pub fn own_tests() {
    compare::own_tests();
    replayed::own_tests();
    short_form::own_tests();
}

/// Messages that may come at any time: updates about the session, not the turn; reads of buffers,
/// any number of them; requests to servers in the client; withdrawn questions.
const ASIDE: &[&str] = &[
    "available_commands_update",
    "session_info_update",
    "usage_update",
    "config_option_update",
    "current_mode_update",
    "fs/read_text_file",
    "mcp/message",
    "$/cancel_request",
];

/// Members that are shown only on pages that mention a word, in the results of requests and in
/// updates.
const ASIDE_MEMBERS: &[(&str, &str)] = &[("totalTokens", "usage"), ("availableModels", "models")];

/// The silence after which a blessed block ends.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(500);

/// A page.
pub struct Transcript {
    path: PathBuf,
    pieces: Vec<Piece>,
    text: String,
}

enum Piece {
    Prose(String),
    Block {
        info: String,
        body: String,
        line: usize,
    },
}

impl Transcript {
    /// Reads a page.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut pieces = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            match line.strip_prefix("```") {
                None => pieces.push(Piece::Prose(line.to_owned())),
                Some(info) => {
                    let body: Vec<_> = lines
                        .by_ref()
                        .map(|(_, line)| line)
                        .take_while(|line| *line != "```")
                        .collect();
                    pieces.push(Piece::Block {
                        info: info.into(),
                        body: body.join("\n"),
                        line: number + 1,
                    });
                }
            }
        }
        Self {
            path: path.into(),
            pieces,
            text,
        }
    }

    /// Returns the rows of `data/jsonrpc_cases.csv` that this page is about.
    pub fn cases(&self) -> Vec<String> {
        let lines = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("Wire cases: "));
        lines
            .flat_map(|line| line.trim_end_matches('.').split(", ").map(str::to_owned))
            .collect()
    }

    /// Acts it out.
    ///
    /// # Errors
    /// Everything that was not as the page, or the invariants, require.
    pub fn run(self, bless: bool) -> Result<(), String> {
        self.act_out(bless, false)
    }

    /// Acts it out with an editor that speaks version 2; see `replay_as_v2.rs`.
    ///
    /// # Errors
    /// Everything that was not as the invariants require, or comes to something else than the page.
    pub fn run_second(self) -> Result<(), String> {
        self.act_out(false, true)
    }

    /// Returns the project, the provider and the web that the page describes.
    fn prepare(&self, second: bool) -> Result<Run, String> {
        let mut project = Project::new();
        // The restrictions of a sandbox differ from machine to machine; `sandbox.rs` tests them.
        project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
        if second {
            project.set("ADJUTANT_ACP_V2", Some("1"));
        }
        let mut script = Vec::new();
        let mut has_model = false;
        let mut user = Value::Null;
        let web = self.pieces.iter().find_map(|piece| match piece {
            Piece::Block { info, body, .. } if info == "web" => Some(Web::start(body)),
            _ => None,
        });
        let web_filled = |text: &str| web.as_ref().map_or(text.to_owned(), |web| web.fill(text));
        for piece in &self.pieces {
            let Piece::Block { info, body, line } = piece else {
                continue;
            };
            match info.as_str() {
                "files" | "files git" => {
                    files(&project, body);
                    if info == "files git" {
                        project.git();
                    }
                }
                "fixture" => project.fixture(body.trim()),
                "config" => project.write("opencode.json", &web_filled(&own(body))),
                "config home" => {
                    user = serde_json::from_str(&web_filled(&own(body)))
                        .map_err(|e| format!("line {line}: {e}"))?
                }
                "environment" => {
                    for variable in body.lines() {
                        let (name, value) = variable
                            .split_once('=')
                            .map_or((variable, None), |(n, v)| (n, Some(v)));
                        let value = value.map(|value| fill_paths(&project, value));
                        project.set(name, value.as_deref());
                    }
                }
                "model" => {
                    has_model = true;
                    script.extend(
                        model::script(&web_filled(body))
                            .map_err(|e| format!("line {line}: {e}"))?,
                    );
                }
                "editor" | "editor unanswered" | "agent" | "agent unordered" => {}
                // Any other language is part of the prose.
                _ => {}
            }
        }
        let model = has_model.then(|| Model::start(script));
        match &model {
            Some(model) => {
                let user = user.to_string().replace("${MODEL}", &model.base());
                let user = serde_json::from_str(&user).map_err(|e| e.to_string())?;
                project.provider(&model.base(), &user);
            }
            None if user.is_object() => project.settings(&user),
            None => {}
        }
        let aside = ASIDE
            .iter()
            .copied()
            .filter(|kind| !self.text.contains(kind))
            .collect();
        let aside_members = ASIDE_MEMBERS
            .iter()
            .filter(|(word, _)| !self.text.contains(word))
            .map(|(_, member)| *member)
            .collect();
        Ok(Run::new(project, model, web, aside, second).without(aside_members))
    }

    fn act_out(mut self, bless: bool, second: bool) -> Result<(), String> {
        let mut run = self.prepare(second)?;
        let mut lines = Vec::new();
        let mut blessed = Vec::new();
        for piece in &self.pieces {
            let Piece::Block { info, body, line } = piece else {
                continue;
            };
            let located = |e| format!("{}:{line}: {e}", self.path.display());
            match info.as_str() {
                "editor" | "editor unanswered" => {
                    run.editor_block(body, info == "editor").map_err(located)?
                }
                "agent" | "agent unordered" => {
                    let unordered = info.ends_with("unordered");
                    let body = &short_form::expand(body).map_err(located)?;
                    if second {
                        let line = |line| {
                            serde_json::from_str::<Value>(line)
                                .map_err(|e| located(format!("{line}: {e}")))
                        };
                        lines.extend(
                            body.lines()
                                .filter(|line| !line.trim().is_empty())
                                .map(line)
                                .collect::<Result<Vec<_>, _>>()?,
                        );
                    } else if bless {
                        let messages = run.bless(body, unordered);
                        blessed.push(self.written(&messages));
                    } else {
                        run.agent_block(body, unordered).map_err(located)?;
                    }
                }
                "terminal" => {
                    run.settled().map_err(located)?;
                    let text = terminal::run(body, &run.project, &mut run.names, bless)
                        .map_err(located)?;
                    if bless {
                        blessed.push(text);
                    }
                }
                _ => {}
            }
        }
        let problems = if second {
            run.end_second(&lines)
        } else {
            run.end(bless)
        };
        if bless && self.rewrite(blessed) {
            fs::write(&self.path, &self.text).unwrap();
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }

    /// Returns messages in the form that the page has.
    fn written(&self, messages: &str) -> String {
        if self.is_about_the_wire() {
            messages.to_owned()
        } else {
            short_form::shorten(messages)
        }
    }

    /// Pages about the wire show each message as it is.
    fn is_about_the_wire(&self) -> bool {
        !self.cases().is_empty()
    }

    /// Checks that the page's `agent` blocks are in their short form, or writes them so.
    ///
    /// # Errors
    /// A block in another form.
    pub fn check_form(mut self, bless: bool) -> Result<(), String> {
        let mut written = Vec::new();
        for piece in &self.pieces {
            let Piece::Block { info, body, line } = piece else {
                continue;
            };
            if info == "terminal" {
                written.push(body.clone());
            }
            if !info.starts_with("agent") {
                continue;
            }
            let location = format!("{}:{line}", self.path.display());
            let messages = short_form::expand(body).map_err(|e| format!("{location}: {e}"))?;
            let form = self.written(&messages);
            if !bless && form.trim_end() != body.trim_end() {
                return Err(format!(
                    "{location}: not in the short form; BLESS=1 writes it"
                ));
            }
            written.push(form);
        }
        if self.rewrite(written) {
            fs::write(&self.path, &self.text).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn rewrite(&mut self, blessed: Vec<String>) -> bool {
        let mut blessed = blessed.into_iter();
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Prose(line) => writeln!(text, "{line}").unwrap(),
                Piece::Block { info, body, .. } => {
                    let new = if info.starts_with("agent") || info == "terminal" {
                        blessed.next()
                    } else {
                        None
                    };
                    let body = new.as_ref().unwrap_or(body);
                    let end = if body.is_empty() || body.ends_with('\n') {
                        ""
                    } else {
                        "\n"
                    };
                    write!(text, "```{info}\n{body}{end}```\n").unwrap();
                }
            }
        }
        let changed = text != self.text;
        self.text = text;
        changed
    }
}

/// Writes the files of a `files` block.
pub fn files(project: &Project, body: &str) {
    let mut current: Option<(&str, String)> = None;
    for line in body.lines().map(Some).chain([None]) {
        match line.map(|line| line.strip_prefix("=== ").ok_or(line)) {
            Some(Err(line)) => {
                let text = &mut current
                    .as_mut()
                    .expect("a files block begins with === path")
                    .1;
                writeln!(text, "{line}").unwrap();
            }
            next => {
                if let Some((path, text)) = current.take() {
                    project.write(path, &text);
                }
                current = next.and_then(Result::ok).map(|path| (path, String::new()));
            }
        }
    }
}

/// Returns a text with the path of the mock MCP server in it.
fn own(text: &str) -> String {
    text.replace(
        "${MCP}",
        &std::env::current_exe().unwrap().display().to_string(),
    )
}

fn fill_paths(project: &Project, text: &str) -> String {
    project
        .names()
        .iter()
        .fold(text.to_owned(), |text, (name, path)| {
            text.replace(name, path)
        })
}
