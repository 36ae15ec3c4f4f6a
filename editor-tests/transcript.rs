//! A transcript is a page to be read: prose, and fenced blocks that are acted out in their order.
//!
//! | block | what it is |
//! |---|---|
//! | `fixture` | a folder of `fixtures/` is copied into the project |
//! | `files` | files of the project; `=== path` begins each (`~/path` for the home). `files git` commits them |
//! | `config` | `opencode.json` of the project; `config home` is merged into the user's |
//! | `environment` | `NAME=value`, or `NAME` alone to take it away |
//! | `web` | what the pretended web says (see `web.rs`); `${WEB}` is its address |
//! | `model` | what the pretended provider says (see `model.rs`); without one, adjutant is on its own |
//! | `editor` | what the editor says: JSON, one message per line, and actions, which begin with `#` |
//! | `terminal` | commands, each after `$ `, and what they print; see `terminal.rs` |
//! | `agent` | what must come out, one message per line; `agent unordered` where calls run side by side |
//!
//! JSON lines are literal, but that `"jsonrpc":"2.0"` is left out on both sides (a line that begins
//! with `raw ` is sent as it is), and that names stand for what differs from run to run:
//! `${SESSION}`, `${SESSION2}`, `${CWD}`, `${HOME}`, `${TMP}`, `${ASK}` (the id of the agent's newest
//! request), `${MCP}` (the program of `mcp.rs`, with `--mcp-server`), `‹call1›`, `‹part1›`, `‹ask1›`, `‹time›`. In `agent` lines `…` stands for anything: a value, a piece
//! of a string, the other members of an object (`"…":"…"`), the rest of an array.
//!
//! Every block of the editor's waits until each of its requests is answered, unless it is marked
//! `editor unanswered`. Chunks of one message that follow each other are shown as one, because how
//! many there are is a matter of luck. What may come at any time
//! ([`ASIDE`]) is shown only on pages that mention it, and in no order with the rest.
//!
//! An editor that offers files (`# open a session with fs`) answers requests about them by itself: with
//! what is on the disk, or with what a `# hold path "text"` has put on its screen.
//! One that speaks version 2 says so (`# open a session in version 2`), where the page's environment allows it;
//! what its terminals print is shown as text.
//! One that has forms (`# open a session with forms`, `… with forms and addresses`) fills them in when told to
//! (`# answer form {…}`).
//!
//! `BLESS=1` writes what came out into the `agent` blocks; lines that still match stay as they are.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::{Editor, PATIENCE};
use crate::laws::Laws;
use crate::model::{self, Model};
use crate::names::Names;
use crate::project::Project;
use crate::terminal;
use crate::web::Web;

/// What may come at any time: updates that say something about the session, not the turn; reads of
/// buffers, of which there may be as many as it takes; withdrawn questions.
const ASIDE: &[&str] = &[
    "available_commands_update",
    "session_info_update",
    "usage_update",
    "config_option_update",
    "current_mode_update",
    "fs/read_text_file",
    "$/cancel_request",
];

/// How long nothing must be heard before a blessed block is over.
const SILENCE: Duration = Duration::from_millis(500);

/// A page.
pub struct Transcript {
    path: PathBuf,
    pieces: Vec<Piece>,
    text: String,
}

enum Piece {
    Prose(String),
    Block { info: String, body: String, line: usize },
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
                    let body: Vec<_> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                    pieces.push(Piece::Block { info: info.into(), body: body.join("\n"), line: number + 1 });
                }
            }
        }
        Self { path: path.into(), pieces, text }
    }

    /// The rows of `data/jsonrpc_cases.csv` that this page is about.
    pub fn cases(&self) -> Vec<String> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("Wire cases: "));
        lines.flat_map(|line| line.trim_end_matches('.').split(", ").map(str::to_owned)).collect()
    }

    /// Acts it out.
    ///
    /// # Errors
    /// Everything that was not as the page, or the laws, say.
    pub fn run(mut self, bless: bool) -> Result<(), String> {
        let mut project = Project::new();
        let mut script = Vec::new();
        let mut has_model = false;
        let mut user = Value::Null;
        let web = self.pieces.iter().find_map(|piece| match piece {
            Piece::Block { info, body, .. } if info == "web" => Some(Web::start(body)),
            _ => None,
        });
        let web_filled = |text: &str| web.as_ref().map_or(text.to_owned(), |web| web.fill(text));
        for piece in &self.pieces {
            let Piece::Block { info, body, line } = piece else { continue };
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
                    user = serde_json::from_str(&web_filled(&own(body))).map_err(|e| format!("line {line}: {e}"))?
                }
                "environment" => {
                    for variable in body.lines() {
                        let (name, value) = variable.split_once('=').map_or((variable, None), |(n, v)| (n, Some(v)));
                        let value = value.map(|value| fill_paths(&project, value));
                        project.set(name, value.as_deref());
                    }
                }
                "model" => {
                    has_model = true;
                    script.extend(model::script(&web_filled(body)).map_err(|e| format!("line {line}: {e}"))?);
                }
                "editor" | "editor unanswered" | "agent" | "agent unordered" => {}
                // Any other language is part of the prose.
                _ => {}
            }
        }
        let model = has_model.then(|| Model::start(script));
        match &model {
            Some(model) => project.provider(&model.base(), &user),
            None if user.is_object() => project.settings(&user),
            None => {}
        }
        let aside = ASIDE.iter().copied().filter(|kind| !self.text.contains(kind)).collect();
        let mut run = Run::new(project, model, web, aside);
        let mut blessed = Vec::new();
        for piece in &self.pieces {
            let Piece::Block { info, body, line } = piece else { continue };
            let place = |e| format!("{}:{line}: {e}", self.path.display());
            match info.as_str() {
                "editor" | "editor unanswered" => run.editor_block(body, info == "editor").map_err(place)?,
                "agent" | "agent unordered" => {
                    let unordered = info.ends_with("unordered");
                    if bless {
                        blessed.push(run.bless(body, unordered));
                    } else {
                        run.agent_block(body, unordered).map_err(place)?;
                    }
                }
                "terminal" => {
                    run.settled().map_err(place)?;
                    let text = terminal::run(body, &run.project, &mut run.names, bless).map_err(place)?;
                    if bless {
                        blessed.push(text);
                    }
                }
                _ => {}
            }
        }
        let problems = run.end(bless);
        if bless && self.rewrite(blessed) {
            fs::write(&self.path, &self.text).unwrap();
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    fn rewrite(&mut self, blessed: Vec<String>) -> bool {
        let mut blessed = blessed.into_iter();
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Prose(line) => writeln!(text, "{line}").unwrap(),
                Piece::Block { info, body, .. } => {
                    let new = if info.starts_with("agent") || info == "terminal" { blessed.next() } else { None };
                    let body = new.as_ref().unwrap_or(body);
                    let end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
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
                let text = &mut current.as_mut().expect("a files block begins with === path").1;
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

/// A text with the path of the pretended MCP server in it.
fn own(text: &str) -> String {
    text.replace("${MCP}", &std::env::current_exe().unwrap().display().to_string())
}

fn fill_paths(project: &Project, text: &str) -> String {
    project.names().iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, path))
}

/// What the first two children of a page's session are called.
const CHILDREN: [&str; 2] = ["${SESSION2}", "${SESSION3}"];

/// A text in which the two have each other's name.
fn exchanged(text: &str) -> String {
    let [one, other] = CHILDREN;
    text.split(one).map(|piece| piece.replace(other, one)).collect::<Vec<_>>().join(other)
}

/// A line the agent has said, with names in it.
#[derive(Clone)]
struct Heard {
    value: Value,
    stream: String,
}

/// What the editor has on its screen; it answers requests about files by itself.
#[derive(Default)]
struct Buffers {
    /// Texts that differ from what is on the disk.
    texts: BTreeMap<PathBuf, String>,
    refuse_writes: bool,
}

impl Buffers {
    fn answer(&mut self, method: &str, params: &Value) -> Option<Value> {
        let path = PathBuf::from(params["path"].as_str().unwrap_or_default());
        match method {
            "fs/read_text_file" => {
                let text = self.texts.get(&path).cloned().or_else(|| fs::read_to_string(&path).ok());
                Some(match text {
                    Some(text) => json!({ "result": { "content": text } }),
                    None => json!({ "error": { "code": -32002, "message": "Resource not found" } }),
                })
            }
            "fs/write_text_file" if self.refuse_writes => {
                Some(json!({ "error": { "code": -32603, "message": "the buffer is read-only" } }))
            }
            "fs/write_text_file" => {
                let text = params["content"].as_str().unwrap_or_default();
                self.texts.remove(&path);
                Some(match fs::write(&path, text) {
                    Ok(()) => json!({ "result": null }),
                    Err(e) => json!({ "error": { "code": -32603, "message": e.to_string() } }),
                })
            }
            _ => None,
        }
    }
}

/// A page in progress.
struct Run {
    project: Project,
    model: Option<Model>,
    web: Option<Web>,
    editor: Option<Editor>,
    laws: Laws,
    names: Names,
    /// Kinds of updates that are not shown.
    aside: Vec<&'static str>,
    /// Heard, and not yet expected by any block.
    heard: Vec<Heard>,
    /// All of what was heard, as text; where `# wait for` goes on looking.
    log: Vec<String>,
    looked: usize,
    /// The agent's requests without an answer: method, id.
    asks: VecDeque<(String, Value)>,
    newest_ask: Option<Value>,
    /// The session a request of the editor's was about, by its id.
    about: BTreeMap<String, String>,
    file_limit: Option<u64>,
    buffers: Buffers,
    problems: Vec<String>,
}

impl Run {
    fn new(project: Project, model: Option<Model>, web: Option<Web>, aside: Vec<&'static str>) -> Self {
        let mut names = Names::new(&project);
        names.fix(env!("CARGO_BIN_EXE_adjutant"), "${ADJUTANT}");
        names.fix(&own("${MCP}"), "${MCP}");
        if let Some(model) = &model {
            names.fix(&model.base(), "${MODEL}");
        }
        if let Some(web) = &web {
            names.fix(&web.base(), "${WEB}");
            names.fix(&web.behind("localhost"), "localhost:${PORT}");
        }
        Self {
            project,
            model,
            web,
            editor: None,
            laws: Laws::default(),
            names,
            aside,
            heard: Vec::new(),
            log: Vec::new(),
            looked: 0,
            asks: VecDeque::new(),
            newest_ask: None,
            about: BTreeMap::new(),
            file_limit: None,
            buffers: Buffers::default(),
            problems: Vec::new(),
        }
    }

    fn editor(&mut self) -> &mut Editor {
        let (project, limit) = (&self.project, self.file_limit);
        self.editor.get_or_insert_with(|| match limit {
            Some(kib) => Editor::start_with_small_files(project, kib),
            None => Editor::start(project),
        })
    }

    fn editor_block(&mut self, body: &str, wait: bool) -> Result<(), String> {
        self.looked = self.log.len();
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix("# ") {
                Some(action) => self.act(action).map_err(|e| format!("{line}: {e}"))?,
                None => {
                    let line = self.fill(line)?;
                    let line = match line.strip_prefix("raw ") {
                        Some(raw) => raw.to_owned(),
                        None => line.replacen('{', r#"{"jsonrpc":"2.0","#, 1),
                    };
                    self.say(&line);
                }
            }
        }
        if wait { self.settled() } else { Ok(()) }
    }

    fn say(&mut self, line: &str) {
        if let Ok(message) = serde_json::from_str::<Value>(line)
            && let Some(session) = message["params"]["sessionId"].as_str()
        {
            self.about.insert(message["id"].to_string(), self.names.shorten(session));
        }
        self.laws.editor_says(line);
        self.editor().say(line);
    }

    /// Puts what they stand for in the place of names; a session that is still being made is
    /// waited for.
    fn fill(&mut self, line: &str) -> Result<String, String> {
        let mut line = fill_paths(&self.project, line);
        if let Some(web) = &self.web {
            line = web.fill(&own(&line));
        }
        if line.contains("${ASK}") {
            let ask = self.newest_ask.clone().ok_or("the agent has not asked anything")?;
            line = line.replace("${ASK}", &ask.to_string());
        }
        while let Some(at) = line.find("${SESSION") {
            let name = &line[at..=at + line[at..].find('}').ok_or("a name without an end")?];
            let name = name.to_owned();
            self.until(&format!("a session for {name}"), |run| run.names.meaning(&name).is_some())?;
            line = line.replace(&name, &self.names.meaning(&name).unwrap_or_default());
        }
        while let Some((before, rest)) = line.split_once('‹') {
            let (name, after) = rest.split_once('›').ok_or("a name without an end")?;
            let id =
                self.names.meaning(&format!("‹{name}›")).ok_or_else(|| format!("nothing was called {name} yet"))?;
            line = format!("{before}{id}{after}");
        }
        Ok(line)
    }

    fn act(&mut self, action: &str) -> Result<(), String> {
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        match (word, rest) {
            ("open", rest) => self.open(rest),
            ("wait", "for all answers") => self.settled(),
            ("wait", rest) => {
                let words = self.fill(rest.strip_prefix("for ").ok_or("wait for what?")?)?;
                let words = self.names.shorten(&words);
                self.until(&words, |run| run.find(&words))
            }
            ("answer", rest) => {
                let (method, answer) = rest.split_once(' ').ok_or("answer what?")?;
                self.answer(method, answer)
            }
            ("hold", rest) => {
                let (path, text) = rest.split_once(' ').ok_or("hold x \"…\"")?;
                let text = serde_json::from_str(text).map_err(|e| e.to_string())?;
                self.buffers.texts.insert(self.project.path(path), text);
                Ok(())
            }
            ("refuse", "writes") => {
                self.buffers.refuse_writes = true;
                Ok(())
            }
            ("let", "the model go on") => {
                self.model.as_ref().ok_or("there is no model")?.go_on();
                Ok(())
            }
            ("mode", "changes the system prompt") => {
                self.model.as_ref().ok_or("there is no model")?.mode_changed();
                Ok(())
            }
            ("files", rest) => {
                let kib = rest.strip_prefix("may grow to ").and_then(|rest| rest.strip_suffix(" KiB"));
                self.file_limit = Some(kib.and_then(|kib| kib.parse().ok()).ok_or("files may grow to N KiB")?);
                Ok(())
            }
            ("close", "stdin") => {
                self.editor().close_stdin();
                self.settled()?;
                self.leave();
                Ok(())
            }
            ("restart", "") => {
                self.settled()?;
                self.leave();
                Ok(())
            }
            ("kill", "-9") => {
                self.editor().signal(Signal::KILL);
                self.drain();
                // Who is killed this way cannot see to its children; the test does.
                self.project.end_leftovers();
                self.begin_again();
                Ok(())
            }
            ("signal", "TERM") => {
                self.editor().signal(Signal::TERM);
                self.drain();
                self.leave_with(128 + Signal::TERM.as_raw());
                Ok(())
            }
            ("write", rest) => {
                let (path, text) =
                    rest.strip_prefix("file ").and_then(|r| r.split_once(' ')).ok_or("write file x \"…\"")?;
                let text: String = serde_json::from_str(text).map_err(|e| e.to_string())?;
                self.project.write(path, &text);
                Ok(())
            }
            ("remove", rest) => {
                let done = match rest.strip_prefix("directory ") {
                    Some(path) => fs::remove_dir_all(self.project.path(path)),
                    None => fs::remove_file(self.project.path(rest.strip_prefix("file ").ok_or("remove file x")?)),
                };
                done.map_err(|e| e.to_string())
            }
            ("link", rest) => {
                // What stands there is put aside, as somebody would who wants to lead astray.
                let (path, target) = rest.split_once(" to ").ok_or("link x to y")?;
                let (path, target) = (self.project.path(path), self.project.path(target));
                fs::create_dir_all(path.parent().ok_or("link what?")?).map_err(|e| e.to_string())?;
                if path.exists() {
                    fs::rename(&path, path.with_extension("aside")).map_err(|e| e.to_string())?;
                }
                std::os::unix::fs::symlink(target, path).map_err(|e| e.to_string())
            }
            ("spoil", rest) => self.spoil(rest),
            ("file", rest) if rest.ends_with(" appears") => {
                let path = self.project.path(rest.trim_end_matches(" appears"));
                let end = Instant::now() + PATIENCE;
                while !path.exists() {
                    if Instant::now() > end {
                        return Err("waited in vain".into());
                    }
                    // Nobody announces a file.
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            }
            ("nothing", "runs") => {
                self.settled()?;
                let mut left = self.project.leftovers();
                left.retain(|line| !line.starts_with(env!("CARGO_BIN_EXE_adjutant")));
                if left.is_empty() { Ok(()) } else { Err(format!("there is still {left:?}")) }
            }
            ("file", rest) => {
                self.settled()?;
                let (path, rest) = rest.split_once(' ').ok_or("file x is \"…\"")?;
                let text = fs::read_to_string(self.project.path(path)).map_err(|e| format!("{path}: {e}"))?;
                let (verb, wanted) = rest.split_once(' ').ok_or("file x is \"…\"")?;
                let wanted: String = serde_json::from_str(wanted).map_err(|e| e.to_string())?;
                let fits = if verb == "is" { text == wanted } else { text.contains(&wanted) };
                if fits { Ok(()) } else { Err(format!("it is {text:?}")) }
            }
            ("no", rest) => {
                self.settled()?;
                let path = self.project.path(rest.strip_prefix("file ").ok_or("no file x")?);
                if path.exists() { Err("it is there".into()) } else { Ok(()) }
            }
            _ => Err("the editor cannot do this".into()),
        }
    }

    /// `open a session`, with the handshake before it where none has been made. What comes back is
    /// checked like everything else, but not shown.
    fn open(&mut self, how: &str) -> Result<(), String> {
        self.settled()?;
        let before = self.heard.len();
        let files = how.contains("with fs");
        let fs = json!({ "readTextFile": files, "writeTextFile": files });
        let mut capabilities = json!({ "fs": fs });
        if how.contains("with forms") {
            capabilities["elicitation"] = json!({ "form": {} });
            if how.contains("and addresses") {
                capabilities["elicitation"]["url"] = json!({});
            }
        }
        let params = if how.contains("in version 2") {
            capabilities.as_object_mut().ok_or("no capabilities")?.shift_remove("fs");
            json!({ "protocolVersion": 2, "capabilities": capabilities, "info": { "name": "page", "version": "1" } })
        } else {
            json!({ "protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": { "name": "page", "version": "1" } })
        };
        let initialize = json!({ "jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params });
        let connect = how.starts_with("a connection");
        if self.editor.is_none() || connect {
            self.say(&initialize.to_string());
            self.settled()?;
        }
        if !connect {
            let inside = how.strip_prefix("a session in ").filter(|inside| !inside.starts_with("version "));
            let inside = inside.unwrap_or_default();
            let cwd = self.project.cwd().join(inside);
            let cwd = cwd.display().to_string();
            let params = json!({ "cwd": cwd.trim_end_matches('/'), "mcpServers": [] });
            let new = json!({ "jsonrpc": "2.0", "id": "open", "method": "session/new", "params": params });
            self.say(&new.to_string());
            self.settled()?;
        }
        for line in self.heard.split_off(before) {
            if line.value.get("error").is_some() {
                return Err(line.value.to_string());
            }
        }
        Ok(())
    }

    /// Answers the agent's oldest open request of a kind.
    fn answer(&mut self, method: &str, answer: &str) -> Result<(), String> {
        let name = match method {
            "permission" => "session/request_permission",
            "form" => "elicitation/create",
            method => method,
        };
        let name = name.to_owned();
        self.until(&format!("a request {name}"), |run| run.asks.iter().any(|(method, _)| *method == name))?;
        let at = self.asks.iter().position(|(method, _)| *method == name).unwrap_or_default();
        let Some((_, id)) = self.asks.remove(at) else { return Err("no such request".into()) };
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| format!("{text}: {e}"));
        let reply = match answer.strip_prefix("error ") {
            Some(error) => json!({ "jsonrpc": "2.0", "id": id, "error": parse(error)? }),
            None => {
                let result = match (method, answer) {
                    ("permission", "cancelled") => json!({ "outcome": { "outcome": "cancelled" } }),
                    ("permission", option) if !option.starts_with('{') => {
                        json!({ "outcome": { "outcome": "selected", "optionId": option } })
                    }
                    (_, "null") => Value::Null,
                    (_, result) => parse(result)?,
                };
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            }
        };
        self.say(&reply.to_string());
        Ok(())
    }

    /// Does something unkind to what adjutant has stored: `the sessions`, or `the version`.
    fn spoil(&mut self, what: &str) -> Result<(), String> {
        self.settled()?;
        self.leave();
        let data = self.project.path("~/.local/share/adjutant");
        crate::spoil::spoil(&data, what)
    }

    /// Looks for words in what was heard and not looked at before.
    fn find(&mut self, words: &str) -> bool {
        match self.log[self.looked..].iter().position(|line| line.contains(words)) {
            Some(at) => {
                self.looked += at + 1;
                true
            }
            None => false,
        }
    }

    /// Listens until every request of the editor's has its answer.
    fn settled(&mut self) -> Result<(), String> {
        if self.editor.is_none() {
            return Ok(());
        }
        self.until("all answers", |run| !run.laws.waiting())
            .map_err(|e| format!("{e}; still open: {:?}", self.laws.waiting_for()))
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            let patience = end.saturating_duration_since(Instant::now());
            let Some(line) = self.editor().hear(patience) else {
                let last: Vec<_> = self.log.iter().rev().take(6).rev().cloned().collect();
                let state = self.model.as_ref().map(Model::problems).unwrap_or_default();
                return Err(format!(
                    "waited in vain for {what}; the last lines were\n  {}\n{state:?}",
                    last.join("\n  ")
                ));
            };
            self.take(&line);
        }
        Ok(())
    }

    /// Listens until the agent has nothing more to say.
    fn drain(&mut self) {
        while let Some(line) = self.editor().hear(PATIENCE) {
            self.take(&line);
        }
    }

    fn take(&mut self, line: &str) {
        let Some(message) = self.laws.agent_says(line) else { return };
        if message["method"].is_string()
            && let Some(id) = message.get("id")
        {
            self.names.ask(id);
            self.newest_ask = Some(id.clone());
            let method = message["method"].as_str().unwrap_or_default();
            match self.buffers.answer(method, &message["params"]) {
                Some(mut reply) => {
                    reply["jsonrpc"] = "2.0".into();
                    reply["id"] = id.clone();
                    self.say(&reply.to_string());
                }
                None => self.asks.push_back((method.into(), id.clone())),
            }
        }
        let text = self.names.shorten(line);
        self.log.push(text.clone());
        let Ok(mut value) = serde_json::from_str::<Value>(&text) else { return };
        if let Some(members) = value.as_object_mut() {
            members.shift_remove("jsonrpc");
        }
        self.names.tidy(&mut value);
        printed(&mut value);
        let update = &value["params"]["update"];
        let kind = update["sessionUpdate"].as_str().or(value["method"].as_str()).unwrap_or_default();
        if self.aside.contains(&kind) {
            return;
        }
        let stream = self.stream(&value);
        if kind == "tool_call_update" && matches!(update["status"].as_str(), Some("completed" | "failed")) {
            // How much of it was seen while it ran is a matter of luck; the end has it all.
            let of_call = |heard: &Heard| heard.value["params"]["update"]["toolCallId"] == update["toolCallId"];
            self.heard.retain(|heard| !(of_call(heard) && prints(&heard.value["params"]["update"])));
        }
        if let Some(last) = self.heard.iter_mut().rev().find(|heard| heard.stream == stream) {
            if kind == "available_commands_update" && last.value == value {
                return;
            }
            if joined(&mut last.value, &value) {
                return;
            }
        }
        self.heard.push(Heard { value, stream });
    }

    /// Lines of one stream must come in the order of the page: a session, or everything that is
    /// about no session; updates about a session may come at any time.
    fn stream(&self, value: &Value) -> String {
        let update =
            value["params"]["update"]["sessionUpdate"].as_str().or(value["method"].as_str()).unwrap_or_default();
        let session = value["params"]["sessionId"].as_str().or(value["result"]["sessionId"].as_str());
        let session = session.map(str::to_owned).or_else(|| self.about.get(&value["id"].to_string()).cloned());
        let session = session.unwrap_or_default();
        if ASIDE.contains(&update) { format!("{session} {update}") } else { session }
    }

    fn expected(&self, body: &str) -> Result<Vec<Heard>, String> {
        let line = |line: &str| {
            let value = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
            let stream = self.stream(&value);
            Ok(Heard { value, stream })
        };
        body.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
    }

    fn agent_block(&mut self, body: &str, unordered: bool) -> Result<(), String> {
        let mut expected = self.expected(body)?;
        // Which of two children that are made side by side is named first is a matter of luck.
        let mut swapped = self.expected(&exchanged(body))?;
        if unordered {
            by_call(&mut expected);
            by_call(&mut swapped);
        }
        let twins = unordered && CHILDREN.iter().all(|child| body.contains(child));
        let mut exchange = false;
        let mut claims = |heard: &[Heard]| {
            claim(&expected, heard, unordered).or_else(|| {
                let claimed = twins.then(|| claim(&swapped, heard, unordered))?;
                exchange = claimed.is_some();
                claimed
            })
        };
        let mut claimed = claims(&self.heard);
        let end = Instant::now() + PATIENCE;
        while claimed.is_none() {
            // Once enough lines are there and do not fit, a short while is left for lines that
            // are still growing; then it is a failure.
            let enough = self.heard.len() >= expected.len();
            let patience = end.saturating_duration_since(Instant::now());
            let patience = if enough { patience.min(SILENCE) } else { patience };
            let line = self.editor.as_ref().and_then(|editor| editor.hear(patience));
            let Some(line) = line else {
                return Err(format!("what came out is not what must:\n{}", difference(&expected, &self.heard)));
            };
            self.take(&line);
            claimed = claims(&self.heard);
        }
        for at in claimed.unwrap_or_default().into_iter().rev() {
            self.heard.remove(at);
        }
        if exchange {
            self.names.exchange(CHILDREN);
            for heard in &mut self.heard {
                heard.value = serde_json::from_str(&exchanged(&heard.value.to_string())).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    fn bless(&mut self, old: &str, unordered: bool) -> String {
        while let Some(line) = self.editor.as_ref().and_then(|editor| editor.hear(SILENCE)) {
            self.take(&line);
        }
        let mut heard = std::mem::take(&mut self.heard);
        if unordered {
            by_call(&mut heard);
        }
        let mut old: VecDeque<(String, Value)> =
            old.lines().filter_map(|line| Some((line.to_owned(), serde_json::from_str(line).ok()?))).collect();
        let mut text = String::new();
        for Heard { value, .. } in heard {
            let kept = old.iter().position(|(_, old)| matches(old, &value));
            let line = match kept {
                Some(at) => old.drain(..=at).next_back().map(|(line, _)| line).unwrap_or_default(),
                None => value.to_string(),
            };
            writeln!(text, "{line}").unwrap();
        }
        text
    }

    /// Sees the process off.
    fn leave(&mut self) {
        self.leave_with(0);
    }

    fn leave_with(&mut self, code: i32) {
        let Some(mut editor) = self.editor.take() else { return };
        let farewell = editor.finish();
        for line in &farewell.lines {
            self.take(line);
        }
        self.problems.extend(farewell.problems(code));
        let open = self.laws.waiting_for();
        if !open.is_empty() {
            self.problems.push(format!("never answered: {open:?}"));
        }
        self.begin_again();
    }

    /// Another process, another handshake.
    fn begin_again(&mut self) {
        self.editor = None;
        self.asks.clear();
        let laws = std::mem::take(&mut self.laws);
        self.problems.extend(laws.problems().iter().cloned());
    }

    fn end(mut self, bless: bool) -> Vec<String> {
        self.leave();
        if !bless {
            self.problems.extend(self.heard.iter().map(|heard| format!("unexpected: {}", heard.value)));
        }
        self.problems.extend(self.model.as_ref().map(Model::problems).unwrap_or_default());
        // A process that was killed a moment ago may still be seen for a moment.
        let left = self.project.left_after(Duration::from_millis(500), |_| true);
        self.problems.extend(left.into_iter().map(|line| format!("a process is left over: {line}")));
        self.problems
    }
}

/// Whether `next` only adds to `last`: text of the same message, or more of what a running call
/// prints.
fn joined(last: &mut Value, next: &Value) -> bool {
    let (was, is) = (&last["params"]["update"], &next["params"]["update"]);
    let same = |member: &str| was[member] == is[member];
    match is["sessionUpdate"].as_str() {
        Some("agent_message_chunk" | "agent_thought_chunk")
            if same("sessionUpdate")
                && same("messageId")
                && was["content"]["type"] == "text"
                && is["content"]["type"] == "text" =>
        {
            let text = format!(
                "{}{}",
                was["content"]["text"].as_str().unwrap_or(""),
                is["content"]["text"].as_str().unwrap_or("")
            );
            last["params"]["update"]["content"]["text"] = text.into();
            true
        }
        Some("tool_call_update") if same("sessionUpdate") && same("toolCallId") && prints(was) && prints(is) => {
            *last = next.clone();
            true
        }
        Some("terminal_output_chunk") if same("sessionUpdate") && same("terminalId") => {
            let text = format!("{}{}", was["data"].as_str().unwrap_or(""), is["data"].as_str().unwrap_or(""));
            last["params"]["update"]["data"] = text.into();
            true
        }
        _ => false,
    }
}

/// Shows the bytes of a terminal as text.
fn printed(value: &mut Value) {
    for at in ["/params/update/data", "/params/update/output/data"] {
        if value["params"]["update"]["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("terminal_"))
            && let Some(data) = value.pointer_mut(at)
        {
            let bytes = BASE64.decode(data.as_str().unwrap_or_default()).expect("base64");
            *data = String::from_utf8_lossy(&bytes).into_owned().into();
        }
    }
}

/// News of a running call that say nothing but what it printed so far.
fn prints(update: &Value) -> bool {
    let running = update["sessionUpdate"] == "tool_call_update" && update["status"].is_null();
    let same = update["rawOutput"].as_object().is_none_or(|raw| raw.keys().all(|key| key == "output"));
    let news = |key: &String| !matches!(key.as_str(), "sessionUpdate" | "toolCallId" | "content" | "rawOutput");
    let members = update.as_object();
    running && update["content"].is_array() && same && members.is_some_and(|members| !members.keys().any(news))
}

/// The places of the lines that the expected ones are, if they are there.
fn claim(expected: &[Heard], heard: &[Heard], unordered: bool) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut streams: Vec<&str> = expected.iter().map(|line| line.stream.as_str()).collect();
    streams.sort_unstable();
    streams.dedup();
    for stream in streams {
        let wanted: Vec<_> = expected.iter().filter(|line| line.stream == stream).cloned().collect();
        let of_stream = heard.iter().enumerate().filter(|(_, line)| line.stream == stream);
        let (at, mut lines): (Vec<usize>, Vec<Heard>) =
            of_stream.take(wanted.len()).map(|(at, h)| (at, h.clone())).unzip();
        if unordered {
            by_call(&mut lines);
        }
        if lines.len() < wanted.len() || !wanted.iter().zip(&lines).all(|(w, l)| matches(&w.value, &l.value)) {
            return None;
        }
        places.extend(at);
    }
    places.sort_unstable();
    Some(places)
}

/// Sorts each unbroken run of lines about calls by call: how the lines of calls that run side by
/// side interleave is a matter of luck, what is said of each is not.
fn by_call(lines: &mut [Heard]) {
    let call = |line: &Heard| {
        let params = &line.value["params"];
        let id = params["update"]["toolCallId"].as_str().or(params["toolCall"]["toolCallId"].as_str());
        let id = id.or(params["update"]["terminalId"].as_str());
        id.map(|id| (id.len(), id.to_owned()))
    };
    for run in lines.chunk_by_mut(|a, b| call(a).is_some() && call(b).is_some()) {
        run.sort_by_key(call);
    }
}

/// Whether a line is as expected; `…` stands for anything.
fn matches(expected: &Value, heard: &Value) -> bool {
    match (expected, heard) {
        (Value::String(pattern), _) if pattern == "…" => true,
        (Value::String(pattern), Value::String(text)) if pattern.contains('…') => {
            let pieces: Vec<&str> = pattern.split('…').collect();
            let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
            let Some(middle) = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
            let mut rest = middle;
            pieces[1..pieces.len() - 1].iter().all(|piece| match rest.split_once(piece) {
                Some((_, after)) => {
                    rest = after;
                    true
                }
                None => false,
            })
        }
        (Value::Object(expected), Value::Object(heard)) => {
            let open = expected.contains_key("…");
            expected.iter().filter(|(key, _)| *key != "…").all(|(k, e)| heard.get(k).is_some_and(|h| matches(e, h)))
                && (open || heard.keys().all(|key| expected.contains_key(key)))
        }
        (Value::Array(expected), Value::Array(heard)) => {
            let (expected, open) = match expected.split_last() {
                Some((Value::String(last), before)) if last == "…" => (before, true),
                _ => (expected.as_slice(), false),
            };
            (open && heard.len() >= expected.len() || heard.len() == expected.len())
                && expected.iter().zip(heard).all(|(e, h)| matches(e, h))
        }
        (expected, heard) => expected == heard,
    }
}

fn difference(expected: &[Heard], heard: &[Heard]) -> String {
    let mut text = String::new();
    for at in 0..expected.len().max(heard.len()) {
        match (expected.get(at), heard.get(at)) {
            (Some(e), Some(h)) if matches(&e.value, &h.value) => writeln!(text, "    {}", h.value).unwrap(),
            (e, h) => {
                e.iter().for_each(|e| writeln!(text, "  - {}", e.value).unwrap());
                h.iter().for_each(|h| writeln!(text, "  + {}", h.value).unwrap());
            }
        }
    }
    text
}

/// Tests of this file's own judgement.
pub fn own_tests() {
    let table = [
        (r#"{"a":"…"}"#, r#"{"a":[1]}"#, true),
        (r#"{"a":"x…z"}"#, r#"{"a":"xyz"}"#, true),
        (r#"{"a":"x…z"}"#, r#"{"a":"xy"}"#, false),
        (r#"{"a":"…b…d…"}"#, r#"{"a":"abcde"}"#, true),
        (r#"{"a":"…d…b…"}"#, r#"{"a":"abcde"}"#, false),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        (r#"{"a":1,"…":"…"}"#, r#"{"a":1,"b":2}"#, true),
        (r#"[1,"…"]"#, "[1,2,3]", true),
        (r#"[1,"…"]"#, "[2,2,3]", false),
        ("[1,2]", "[1,2,3]", false),
    ];
    for (expected, heard, fits) in table {
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(matches(&parse(expected), &parse(heard)), fits, "{expected} {heard}");
    }
}
