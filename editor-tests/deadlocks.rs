//! Every pair of activities that wait: for the client to read, for its answer, for the store, for
//! the end of a turn. Two sessions do one of them each, concurrently, with a client that reads
//! slowly, stops for a while, or writes slowly. Both must complete, and other requests must be
//! answered in the meantime.
//!
//! Plain `cargo test` tries those pairs in which one session has much to show and another one waits
//! for answers, twice each; `ADJUTANT_FAULTS=all` every pair in one more way, and
//! `ADJUTANT_WAITS=n` every pair in every way, n times.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::id::SessionId;
use serde_json::{Value, json};

use crate::editor::{Editor, ReadPace};
use crate::model::{self, Model};
use crate::parallel::{repetitions, run_in_parallel};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 2] = [
    (
        "every pair of activities completes",
        every_pair_of_activities_completes,
    ),
    (
        "many concurrent questions are answered",
        many_concurrent_questions_are_answered,
    ),
];

/// The longest silence of an agent whose client reads.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Its long history is shown.
    Load,
    /// Many words.
    Words,
    /// Files come through the editor.
    Read,
    /// Files go through the editor.
    Write,
    /// The user is asked, again and again.
    Permission,
    /// The model asks the user.
    Question,
    /// A command prints.
    Terminal,
    /// A turn is cancelled in the middle of its words.
    Cancel,
    /// The mode is changed, again and again.
    Mode,
    List,
    New,
    /// A session is closed in the middle of its words.
    Close,
    /// A long session is forked, and the fork deleted.
    Fork,
}

const ACTIVITIES: [Activity; 13] = [
    Activity::Load,
    Activity::Words,
    Activity::Read,
    Activity::Write,
    Activity::Permission,
    Activity::Question,
    Activity::Terminal,
    Activity::Cancel,
    Activity::Mode,
    Activity::List,
    Activity::New,
    Activity::Close,
    Activity::Fork,
];

/// The pace at which the client reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientPace {
    Full,
    /// 4 MB a second.
    Slow,
    /// 64 kB a second.
    Trickle,
    /// Half a second of nothing, several times.
    Pause,
    /// It writes in small pieces.
    SlowSpeech,
    /// It writes in small pieces, and reads 1 MB a second.
    SlowBoth,
    /// It neither reads nor speaks for a while, in turns of random lengths.
    Fits,
}

const MANNERS: [ClientPace; 7] = [
    ClientPace::Full,
    ClientPace::Slow,
    ClientPace::Trickle,
    ClientPace::Pause,
    ClientPace::SlowSpeech,
    ClientPace::SlowBoth,
    ClientPace::Fits,
];

fn every_pair_of_activities_completes() {
    let whole: usize = std::env::var("ADJUTANT_WAITS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(0);
    let mut rounds = Vec::new();
    let mut number = 0;
    for (at, one) in ACTIVITIES.into_iter().enumerate() {
        for other in ACTIVITIES.into_iter().skip(at) {
            number += 1;
            for (index, manner) in MANNERS.into_iter().enumerate() {
                let much = matches!(one, Activity::Load | Activity::Words);
                let usual = much && matches!(other, Activity::Read | Activity::Permission);
                let usual = usual && matches!(manner, ClientPace::Slow | ClientPace::Pause);
                // Whether a wait meets another one is a matter of moments.
                rounds.extend(std::iter::repeat_n(
                    (one, other, manner),
                    if usual && whole == 0 { 2 } else { 0 },
                ));
                if whole > 0 || (repetitions(1, 0) == 1 && number % MANNERS.len() == index) {
                    rounds.push((one, other, manner));
                }
            }
        }
    }
    let tried = rounds.len() * whole.max(1);
    let wedged = Mutex::new(Vec::new());
    run_in_parallel(tried, |number| {
        let (one, other, manner) = rounds[number % rounds.len()];
        if let Err(why) = round([one, other], manner) {
            wedged
                .lock()
                .unwrap()
                .push(format!("{one:?} and {other:?}, {manner:?}: {why}"));
        }
    });
    let wedged = wedged.into_inner().unwrap();
    assert!(
        wedged.is_empty(),
        "{} of {tried}:\n{}",
        wedged.len(),
        wedged.join("\n")
    );
}

/// Hundreds of identical calls in one answer, each of which is asked about.
fn many_concurrent_questions_are_answered() {
    let calls = repetitions(2_000, 500);
    // Long enough that they do not all fit into the queue to the client.
    let call = format!("call list {}\n", json!({ "path": "./".repeat(500) }));
    let script = "in: Begin.\n".to_owned() + &call.repeat(calls) + "---\nin: Begin.\ntext: Done.\n";
    let model = Model::unwatched(model::script(&script).unwrap());
    let project = Project::new();
    project.provider(
        &model.base(),
        &roomy(json!({ "read": "allow", "list": "allow", "doom_loop": "ask" })),
    );
    let mut fixture = Fixture::new(&project);
    let session = fixture.open();
    fixture.manner(ClientPace::Slow);
    fixture.prompt(&session, "Begin.");
    if let Err(why) = fixture.until_all_is_answered(ClientPace::Slow) {
        panic!("{why}");
    }
    let asked = fixture
        .asked
        .get("session/request_permission")
        .copied()
        .unwrap_or_default();
    assert!(asked >= calls - 3, "{asked} questions about {calls} calls");
}

/// Settings with these rules, and a window in which nothing has to be summarised.
fn roomy(rules: Value) -> Value {
    let models = json!({ "bench-model": { "limit": { "context": 100_000_000, "output": 8_000 } } });
    json!({ "permission": rules, "provider": { "bench": { "models": models } } })
}

/// Runs two activities at once; `Err` is the reason of a failure.
fn round(both: [Activity; 2], manner: ClientPace) -> Result<(), String> {
    // More than the pipe and the queue hold, several times over; a trickle takes its time. In long
    // runs the size is random, so that waits meet at other places each time.
    let much = if std::env::var_os("ADJUTANT_WAITS").is_some() {
        fastrand::usize(1..=6)
    } else {
        6
    };
    let scale = if manner == ClientPace::Trickle {
        1
    } else {
        much
    };
    let words = ["Begin with one.", "Begin with the other."];
    let script: String = both
        .iter()
        .zip(words)
        .map(|(activity, words)| activity.script(words, scale))
        .collect();
    let model = Model::unwatched(model::script(&script).unwrap());
    let project = Project::new();
    let rules = json!({ "bash": "allow", "edit": "allow", "question": "allow", "doom_loop": "allow",
        "read": { "*": "allow", "*.asked": "ask" } });
    project.provider(&model.base(), &roomy(rules));
    let data = project.path("~/.local/share/adjutant");
    for (at, _) in both
        .iter()
        .enumerate()
        .filter(|(_, activity)| matches!(activity, Activity::Load | Activity::Fork))
    {
        crate::history::long(&data, &project.cwd(), &loaded(at), 200 * scale, 8_000);
    }
    for file in 0..10 {
        project.write(&format!("f{file}.txt"), "what is saved\n");
        project.write(&format!("f{file}.asked"), "what is saved\n");
    }
    let mut fixture = Fixture::new(&project);
    let sessions: Vec<String> = both.iter().map(|_| fixture.open()).collect();
    fixture.manner(manner);
    for (at, activity) in both.into_iter().enumerate() {
        fixture.begin(activity, &sessions[at], words[at], &loaded(at));
    }
    fixture.until_all_is_answered(manner)?;
    // No other request waits for ever, and the next one works.
    fixture.open_later();
    fixture.until_all_is_answered(manner)?;
    let exit = fixture.editor.finish();
    if exit.status.is_none_or(|status| !status.success()) {
        return Err(format!(
            "it did not leave: {:?} {}",
            exit.status, exit.stderr
        ));
    }
    Ok(())
}

/// Returns the bytes per second of a trickle; random if `ADJUTANT_WAITS` is set.
fn trickle() -> usize {
    if std::env::var_os("ADJUTANT_WAITS").is_some() {
        (64 << 10) << fastrand::u32(0..4)
    } else {
        64 << 10
    }
}

fn loaded(at: usize) -> SessionId {
    SessionId::new(format!("ses_0000000{at}"))
}

impl Activity {
    /// Returns the model's script for a session that begins with these words.
    fn script(self, text: &str, scale: usize) -> String {
        let mut script = String::new();
        let mut answer = |lines: String| writeln!(script, "in: {text}\n{lines}\n---").unwrap();
        let piece = format!("text: {}\n", "word ".repeat(3_000));
        match self {
            Self::Words => answer(piece.repeat(15 * scale)),
            Self::Cancel | Self::Close => answer(piece.repeat(15 * scale) + "hang"),
            // Concurrent calls of one answer: some of them wait for the client, others have ended
            // and are reported meanwhile.
            Self::Read | Self::Permission => {
                let end = if self == Self::Read { "txt" } else { "asked" };
                for step in 0..scale {
                    let file = |n: usize| {
                        format!(
                            "call read {{\"filePath\":\"f{}.{end}\"}}\n",
                            (n + step) % 10
                        )
                    };
                    let list = |n: usize| format!("call glob {{\"pattern\":\"{step}{n}*\"}}\n");
                    answer(
                        (0..10)
                            .map(|n| file(n) + &list(n) + &list(n + 10))
                            .collect(),
                    );
                }
                answer("text: Done.".into());
            }
            Self::Write => {
                let content = "line\n".repeat(8_000);
                for step in 0..scale {
                    let call = |n| json!({ "filePath": format!("new-{step}-{n}-{}.txt", text.len()), "content": content });
                    answer(
                        (0..3)
                            .map(|n| format!("call write {}\n", call(n)))
                            .collect(),
                    );
                }
                answer("text: Done.".into());
            }
            Self::Question => {
                let question = json!({ "questions": [{ "question": "Which?", "header": "Which",
                    "options": [{ "label": "This", "description": "x".repeat(2_000) }, { "label": "That", "description": "" }] }] });
                for _ in 0..3 * scale {
                    answer(format!("call question {question}"));
                }
                answer("text: Done.".into());
            }
            Self::Terminal => {
                let lines = 6_000 * scale;
                answer(format!(
                    "call bash {}",
                    json!({ "command": format!("seq -f %060.0f {lines}") })
                ));
                answer("text: Done.".into());
            }
            Self::Load | Self::Mode | Self::List | Self::New | Self::Fork => {}
        }
        script.truncate(script.rfind("---").unwrap_or_default());
        if script.is_empty() {
            script
        } else {
            script + "---\n"
        }
    }
}

/// A client that answers every request and lists its open requests.
struct Fixture<'a> {
    project: &'a Project,
    editor: Editor,
    next: u64,
    waiting: BTreeMap<u64, String>,
    /// Number of requests from the agent, by method.
    asked: BTreeMap<String, usize>,
    /// Sessions of which the turn is to be cancelled when its first words come.
    to_cancel: BTreeSet<String>,
    /// The same, for sessions that are to be closed.
    to_close: BTreeSet<String>,
    slow_speech: bool,
}

impl<'a> Fixture<'a> {
    fn new(project: &'a Project) -> Self {
        let (waiting, asked, to_cancel, to_close) = Default::default();
        let editor = Editor::start(project);
        let mut fixture = Self {
            project,
            editor,
            next: 0,
            waiting,
            asked,
            to_cancel,
            to_close,
            slow_speech: false,
        };
        let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "elicitation": { "form": {} },
            "_meta": { "terminal_output": true } });
        fixture.request(
            "initialize",
            &json!({ "protocolVersion": 1, "clientCapabilities": can }),
        );
        fixture.until_all_is_answered(ClientPace::Full).unwrap();
        fixture
    }

    fn open(&mut self) -> String {
        let id = self.open_later();
        while let Some(message) = self.receive() {
            if message["id"] == id && message.get("method").is_none() {
                self.waiting.remove(&id);
                return message["result"]["sessionId"].as_str().unwrap().to_owned();
            }
        }
        panic!("no session is opened");
    }

    fn open_later(&mut self) -> u64 {
        let cwd = self.project.cwd();
        self.request("session/new", &json!({ "cwd": cwd, "mcpServers": [] }))
    }

    fn manner(&mut self, manner: ClientPace) {
        self.slow_speech = matches!(manner, ClientPace::SlowSpeech | ClientPace::SlowBoth);
        self.editor.set_read_pace(match manner {
            ClientPace::Full | ClientPace::SlowSpeech | ClientPace::Pause | ClientPace::Fits => {
                ReadPace::All
            }
            ClientPace::SlowBoth => ReadPace::Rate(1 << 20),
            ClientPace::Slow => ReadPace::Rate(4 << 20),
            ClientPace::Trickle => ReadPace::Rate(trickle()),
        });
    }

    fn begin(&mut self, activity: Activity, session: &str, text: &str, long: &SessionId) {
        let cwd = self.project.cwd();
        match activity {
            Activity::Load => {
                self.request(
                    "session/load",
                    &json!({ "sessionId": long, "cwd": cwd, "mcpServers": [] }),
                );
            }
            Activity::Mode => {
                for n in 0..30 {
                    let mode = ["plan", "build"][n % 2];
                    self.request(
                        "session/set_mode",
                        &json!({ "sessionId": session, "modeId": mode }),
                    );
                }
            }
            Activity::List => {
                for _ in 0..30 {
                    self.request("session/list", &json!({}));
                }
            }
            Activity::New => {
                for _ in 0..5 {
                    self.open_later();
                }
            }
            Activity::Fork => {
                self.request(
                    "session/fork",
                    &json!({ "sessionId": long, "cwd": cwd, "mcpServers": [] }),
                );
            }
            Activity::Cancel => {
                self.to_cancel.insert(session.to_owned());
                self.prompt(session, text);
            }
            Activity::Close => {
                self.to_close.insert(session.to_owned());
                self.prompt(session, text);
            }
            _ => self.prompt(session, text),
        }
    }

    fn prompt(&mut self, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        );
    }

    fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.waiting.insert(id, method.to_owned());
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    fn send(&mut self, message: &Value) {
        let line = message.to_string() + "\n";
        if !self.slow_speech {
            return self.editor.write(line.as_bytes());
        }
        for piece in line.as_bytes().chunks(1 << 10) {
            self.editor.write(piece);
            std::thread::sleep(Duration::from_millis(1)); // it speaks slowly
        }
    }

    /// Hears and answers until nothing is waited for any more.
    fn until_all_is_answered(&mut self, manner: ClientPace) -> Result<(), String> {
        let start = Instant::now();
        let mut received = 0;
        while !self.waiting.is_empty() {
            let Some(message) = self.receive() else {
                let after = start.elapsed();
                return Err(format!(
                    "nothing comes any more after {received} lines and {after:?}; open: {:?}",
                    self.waiting
                ));
            };
            received += 1;
            // Again and again: some of it is in the middle of something.
            if manner == ClientPace::Pause && received % 150 == 40 && received < 1_000 {
                self.editor.set_read_pace(ReadPace::Nothing);
                std::thread::sleep(Duration::from_millis(500)); // it does something else
                self.editor.set_read_pace(ReadPace::All);
            }
            if manner == ClientPace::Fits && received < 2_000 && fastrand::u32(..60) == 0 {
                self.slow_speech = fastrand::bool();
                let rate = [
                    ReadPace::Nothing,
                    ReadPace::Rate(16 << 10),
                    ReadPace::Rate(2 << 20),
                ][fastrand::usize(..3)];
                self.editor.set_read_pace(rate);
                std::thread::sleep(Duration::from_millis(fastrand::u64(..150))); // it does something else
                self.editor.set_read_pace(ReadPace::All);
            }
            if message.get("method").is_none()
                && let Some(id) = message["id"].as_u64()
            {
                let method = self
                    .waiting
                    .remove(&id)
                    .ok_or_else(|| format!("not asked for: {message}"))?;
                if message.get("result").is_none() {
                    return Err(format!("{method}: {message}"));
                }
                if method == "session/fork" {
                    self.request(
                        "session/delete",
                        &json!({ "sessionId": message["result"]["sessionId"] }),
                    );
                }
            }
        }
        Ok(())
    }

    /// Receives the next line, and answers requests.
    fn receive(&mut self) -> Option<Value> {
        let line = self.editor.receive(SILENCE_TIMEOUT)?;
        let message: Value = serde_json::from_str(&line).unwrap();
        let session = message["params"]["sessionId"].as_str().unwrap_or_default();
        if message["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
            if self.to_cancel.remove(session) {
                self.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
            }
            if self.to_close.remove(session) {
                self.request("session/close", &json!({ "sessionId": session }));
            }
        }
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
            return Some(message);
        };
        *self.asked.entry(method.to_owned()).or_default() += 1;
        let result = match method {
            "session/request_permission" => {
                json!({ "outcome": { "outcome": "selected", "optionId": "once" } })
            }
            "fs/read_text_file" => json!({ "content": "what is not saved yet\n".repeat(500) }),
            "elicitation/create" => {
                json!({ "action": "accept", "content": { "question1": "This" } })
            }
            _ => json!({}),
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        Some(message)
    }
}
