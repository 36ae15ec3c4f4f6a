//! A kill storm: random activity in several sessions, a kill -9 at a random moment, and again.
//! Everything that was reported to the client or answered by then must be there when the sessions
//! are loaded: calls (those of commands too) with their reported state, titles, modes, options and
//! plans; deleted sessions are gone, others are whole.
//!
//! `ADJUTANT_STORM=n` kills n times; `ADJUTANT_STORM_SEED` begins with another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::model::{self, Model};
use crate::parallel::{repetitions, run_in_parallel};
use crate::project::Project;

/// Kills per project.
const GENERATIONS: usize = 10;

const MODES: [&str; 2] = ["build", "plan"];
const MODELS: [&str; 2] = ["bench/bench-model", "bench/other-model"];

pub fn random_kills_lose_nothing_reported() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
    };
    let kills = number("ADJUTANT_STORM").unwrap_or(repetitions(100, 10));
    let first = number("ADJUTANT_STORM_SEED").unwrap_or(1);
    let lost = Mutex::new(Vec::new());
    run_in_parallel(kills.div_ceil(GENERATIONS), |at| {
        let found = Storm::new(first + at).run(GENERATIONS.min(kills));
        lost.lock().unwrap().extend(found);
    });
    let lost = lost.into_inner().unwrap();
    assert!(
        lost.is_empty(),
        "{} in {kills} kills:\n{}",
        lost.len(),
        lost.join("\n")
    );
}

/// A value that was reported or confirmed, and the requests since.
#[derive(Debug, Clone, Default)]
struct Chosen {
    told: Option<String>,
    asked: Vec<String>,
}

impl Chosen {
    fn allows(&self, now: Option<&str>) -> bool {
        self.told.is_none()
            || self.told.as_deref() == now
            || self.asked.iter().any(|asked| Some(asked.as_str()) == now)
    }

    /// Returns the position of a value among the unanswered requests, from 1; 0 if it is none of
    /// them.
    fn rank(&self, now: Option<&str>) -> usize {
        self.asked
            .iter()
            .position(|asked| Some(asked.as_str()) == now)
            .map_or(0, |at| at + 1)
    }

    /// Records an answer: earlier requests are settled. A later answer to one of them changes
    /// nothing.
    fn answered(&mut self, value: &str) {
        if let Some(at) = self.asked.iter().position(|asked| asked == value) {
            self.asked.drain(..=at);
            self.told = Some(value.to_owned());
        }
    }

    fn settle(&mut self, now: Option<&str>) {
        *self = Self {
            told: now.map(str::to_owned),
            asked: Vec::new(),
        };
    }
}

/// The client's knowledge of a session.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The first words of its conversation.
    words: String,
    title: Chosen,
    /// The title was the user's.
    own_title: bool,
    mode: Chosen,
    model: Chosen,
    steer: Chosen,
    /// The number of the last plan.
    plan: usize,
    /// State by id.
    calls: BTreeMap<String, String>,
    /// Prompts that were answered in words.
    answered: usize,
    delete_asked: bool,
}

enum Asked {
    /// A new session, or a fork, with its first prompt: the original may be deleted before the
    /// answer.
    Open(String),
    Prompt(String, bool),
    Title(String, String),
    Mode(String, String),
    Model(String, String),
    Steer(String, String),
    Delete(String),
    Other,
}

struct Storm {
    seed: usize,
    random: Rng,
    project: Arc<Project>,
    model: Model,
    known: BTreeMap<String, Known>,
    gone: BTreeSet<String>,
    made: usize,
    plans: usize,
    editor: Option<Editor>,
    next: u64,
    waiting: BTreeMap<u64, Asked>,
    lost: Vec<String>,
    generation: usize,
}

impl Storm {
    fn new(seed: usize) -> Self {
        let model = Model::unwatched(Vec::new());
        let project = Project::new();
        let limit = json!({ "limit": { "context": 10_000_000, "output": 8_000 } });
        let models = json!({ "bench-model": limit, "other-model": limit });
        let rules = json!({ "bash": "allow", "edit": "allow", "doom_loop": "allow" });
        let command = json!({ "look": { "template": "Look: !`echo looked` and @a.txt" } });
        project.provider(
            &model.base(),
            &json!({ "permission": rules, "command": command, "provider": { "bench": { "models": models } } }),
        );
        project.write("a.txt", "a\n");
        Self {
            seed,
            random: Rng::with_seed(seed as u64),
            project: Arc::new(project),
            model,
            known: BTreeMap::new(),
            gone: BTreeSet::new(),
            made: 0,
            plans: 0,
            editor: None,
            next: 0,
            waiting: BTreeMap::new(),
            lost: Vec::new(),
            generation: 0,
        }
    }

    fn run(mut self, generations: usize) -> Vec<String> {
        for generation in 0..=generations {
            self.generation = generation;
            self.start();
            self.check();
            if generation < generations {
                self.act();
                self.kill();
            }
        }
        self.lost
    }

    fn wrong(&mut self, what: String) {
        self.lost.push(format!(
            "seed {}, kill {}: {what}",
            self.seed, self.generation
        ));
    }

    fn start(&mut self) {
        self.editor = Some(Editor::start(&self.project));
        self.waiting.clear();
        let id = self.ask(Asked::Other, "initialize", &json!({ "protocolVersion": 1 }));
        self.answer(id);
    }

    /// Kills the agent, and reads its remaining output.
    fn kill(&mut self) {
        thread::sleep(Duration::from_micros(
            self.random.u64(..2_000) * u64::from(self.random.bool()),
        )); // the moment of the kill
        let Some(mut editor) = self.editor.take() else {
            return;
        };
        editor.signal(Signal::KILL);
        for line in editor.finish().lines {
            if let Ok(message) = serde_json::from_str(&line) {
                self.received(&message);
            }
        }
        self.project.end_leftovers();
    }

    fn ask(&mut self, asked: Asked, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.waiting.insert(id, asked);
        let line =
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        if let Some(editor) = &mut self.editor {
            editor.send(&line);
        }
        id
    }

    fn receive(&mut self, timeout: Duration) -> Option<Value> {
        let line = self.editor.as_ref()?.receive(timeout)?;
        let message: Value = serde_json::from_str(&line).ok()?;
        self.received(&message);
        Some(message)
    }

    fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut updates = Vec::new();
        loop {
            let Some(message) = self.receive(RESPONSE_TIMEOUT) else {
                self.wrong(format!("no answer to request {id}"));
                return (Value::Null, updates);
            };
            if message["id"] == id && message.get("method").is_none() {
                return (message, updates);
            }
            updates.push(message["params"].clone());
        }
    }

    /// Records an update.
    fn received(&mut self, message: &Value) {
        if message.get("method").is_none() {
            let asked = message["id"]
                .as_u64()
                .and_then(|id| self.waiting.remove(&id));
            if message.get("result").is_some()
                && let Some(asked) = asked
            {
                self.answered(asked, &message["result"]);
            }
            return;
        }
        let session = &message["params"]["sessionId"];
        let update = &message["params"]["update"];
        let Some(known) = session
            .as_str()
            .and_then(|session| self.known.get_mut(session))
        else {
            return;
        };
        if let Some(call) = update["toolCallId"].as_str() {
            let state = known
                .calls
                .entry(call.to_owned())
                .or_insert_with(|| "pending".into());
            if let Some(now) = update["status"].as_str() {
                now.clone_into(state);
            }
        }
        match update["sessionUpdate"].as_str() {
            Some("session_info_update") => {
                if !known.own_title
                    && let Some(title) = update["title"].as_str()
                {
                    known.title.told = Some(title.to_owned());
                }
            }
            Some("plan") => known.plan = known.plan.max(plan(update)),
            Some("current_mode_update") => {
                if let Some(mode) = update["currentModeId"].as_str() {
                    known.mode.told = Some(mode.to_owned());
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, asked: Asked, result: &Value) {
        let opened = result["sessionId"].as_str().map(str::to_owned);
        match asked {
            Asked::Open(words) => {
                let Some(id) = opened else { return };
                self.known.insert(
                    id,
                    Known {
                        words,
                        ..Known::default()
                    },
                );
            }
            Asked::Prompt(session, words) => {
                if let Some(known) = self.known.get_mut(&session) {
                    // A prompt that a deletion cancelled before it began is not stored.
                    known.answered += usize::from(words && result["stopReason"] == "end_turn");
                }
            }
            Asked::Title(session, title) => {
                if let Some(known) = self.known.get_mut(&session) {
                    known.title.answered(&title);
                    known.own_title = true;
                }
            }
            Asked::Mode(session, mode) => {
                if let Some(known) = self.known.get_mut(&session) {
                    known.mode.answered(&mode);
                }
            }
            Asked::Model(session, model) => {
                if let Some(known) = self.known.get_mut(&session) {
                    known.model.answered(&model);
                }
            }
            Asked::Steer(session, steer) => {
                if let Some(known) = self.known.get_mut(&session) {
                    known.steer.answered(&steer);
                }
            }
            Asked::Delete(session) => {
                self.known.remove(&session);
                self.gone.insert(session);
            }
            Asked::Other => {}
        }
    }

    /// Does things until a random number of lines has come.
    fn act(&mut self) {
        let words: Vec<String> = self
            .known
            .values()
            .map(|known| known.words.clone())
            .collect();
        let coming = (self.made..self.made + 6).map(|n| format!("Session {n} begins."));
        let script: String = words
            .into_iter()
            .chain(coming)
            .map(|words| self.script(&words))
            .collect();
        self.model.send(model::script(&script).unwrap());
        let mut lines = self.random.usize(2..160);
        let mut actions = self.random.usize(1..25);
        while lines > 0 {
            while actions > 0 && self.waiting.len() < 4 {
                self.act_once();
                actions -= 1;
            }
            match self.receive(Duration::from_millis(300)) {
                Some(_) => lines -= 1,
                None if actions == 0 => return,
                None => {}
            }
        }
    }

    fn script(&mut self, text: &str) -> String {
        let mut script = String::new();
        for step in 0..8 {
            script += &format!("in: {text}\n");
            script += &match self.random.usize(..7) {
                0 => "text: Fine.\n".to_owned(),
                1 => format!(
                    "text: {}\n",
                    "many words ".repeat(self.random.usize(1..4_000))
                ),
                2 => (0..self.random.usize(1..6))
                    .map(|n| format!("call bash {{\"command\":\"echo {n}\"}}\n"))
                    .collect(),
                3 => "text: Let me see.\ncall read {\"filePath\":\"a.txt\"}\n".to_owned(),
                4 => {
                    self.plans += 1;
                    let todos =
                        json!([{ "content": format!("plan {}", self.plans), "status": "pending" }]);
                    format!("call todowrite {}\n", json!({ "todos": todos }))
                }
                5 => format!(
                    "call write {{\"filePath\":\"w{step}.txt\",\"content\":\"{step}\\n\"}}\n"
                ),
                _ => "call list {}\ncall bash {\"command\":\"sleep 0.05\"}\n".to_owned(),
            };
            script += "---\n";
        }
        script
    }

    fn act_once(&mut self) {
        let all: Vec<String> = self
            .known
            .keys()
            .filter(|id| !self.known[*id].delete_asked)
            .cloned()
            .collect();
        let Some(session) = self.random.choice(&all).cloned() else {
            return self.open();
        };
        let text = |words: &str| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": words }] });
        match self.random.usize(..20) {
            0 if all.len() < 5 => self.open(),
            1 if all.len() < 5 => {
                let cwd = self.project.cwd();
                let params = json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] });
                let words = self.known[&session].words.clone();
                self.ask(Asked::Open(words), "session/fork", &params);
            }
            2 => {
                self.ask(
                    Asked::Prompt(session.clone(), false),
                    "session/prompt",
                    &text("/compact"),
                );
            }
            3 if all.len() > 2 => {
                self.known.get_mut(&session).unwrap().delete_asked = true;
                self.ask(
                    Asked::Delete(session.clone()),
                    "session/delete",
                    &json!({ "sessionId": session }),
                );
            }
            4..=6 => {
                let title = format!("Title {}", self.random.u32(..));
                self.known
                    .get_mut(&session)
                    .unwrap()
                    .title
                    .asked
                    .push(title.clone());
                let params = json!({ "sessionId": session, "title": title });
                self.ask(
                    Asked::Title(session.clone(), title),
                    "session/set_title",
                    &params,
                );
            }
            7..=9 => {
                let mode = self.random.choice(MODES).unwrap_or_default().to_owned();
                self.known
                    .get_mut(&session)
                    .unwrap()
                    .mode
                    .asked
                    .push(mode.clone());
                let params = json!({ "sessionId": session, "modeId": mode });
                self.ask(
                    Asked::Mode(session.clone(), mode),
                    "session/set_mode",
                    &params,
                );
            }
            10..=11 => {
                let model = self.random.choice(MODELS).unwrap_or_default().to_owned();
                self.known
                    .get_mut(&session)
                    .unwrap()
                    .model
                    .asked
                    .push(model.clone());
                let params = json!({ "sessionId": session, "configId": "model", "value": model });
                self.ask(
                    Asked::Model(session.clone(), model),
                    "session/set_config_option",
                    &params,
                );
            }
            12 => {
                let steer = self
                    .random
                    .choice(["on", "off"])
                    .unwrap_or_default()
                    .to_owned();
                self.known
                    .get_mut(&session)
                    .unwrap()
                    .steer
                    .asked
                    .push(steer.clone());
                let params = json!({ "sessionId": session, "configId": "steer", "value": steer });
                self.ask(
                    Asked::Steer(session.clone(), steer),
                    "session/set_config_option",
                    &params,
                );
            }
            13 if self.known[&session].answered > 0 => {
                self.ask(
                    Asked::Prompt(session.clone(), true),
                    "session/prompt",
                    &text("/look"),
                );
            }
            _ => {
                let words = self.known[&session].words.clone();
                self.ask(
                    Asked::Prompt(session.clone(), true),
                    "session/prompt",
                    &text(&words),
                );
            }
        }
    }

    fn open(&mut self) {
        let cwd = self.project.cwd();
        let text = format!("Session {} begins.", self.made);
        self.made += 1;
        self.ask(
            Asked::Open(text),
            "session/new",
            &json!({ "cwd": cwd, "mcpServers": [] }),
        );
    }

    /// Checks that everything reported to the client is stored.
    fn check(&mut self) {
        let id = self.ask(Asked::Other, "session/list", &json!({}));
        let list = self.answer(id).0;
        let listed: BTreeMap<String, Value> = list["result"]["sessions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|session| {
                (
                    session["sessionId"].as_str().unwrap_or_default().to_owned(),
                    session["title"].clone(),
                )
            })
            .collect();
        for gone in self
            .gone
            .clone()
            .iter()
            .filter(|gone| listed.contains_key(*gone))
        {
            self.wrong(format!("{gone} was deleted, and is listed"));
        }
        for (session, before) in self.known.clone() {
            let title = listed.get(&session);
            // Without a message and a title of the user's it is not listed; its options are there.
            let shown = before.answered > 0
                || before.plan > 0
                || !before.calls.is_empty()
                || before.own_title;
            let chosen = [&before.mode, &before.model, &before.steer]
                .iter()
                .any(|chosen| chosen.told.is_some());
            if title.is_none() && shown && !before.delete_asked {
                self.wrong(format!("{session} is not listed any more: {before:?}"));
            }
            if title.is_none() && (!chosen || before.delete_asked) {
                self.known.remove(&session);
                continue;
            }
            self.check_session(&session, &before, title.and_then(Value::as_str));
        }
    }

    fn check_session(&mut self, session: &str, before: &Known, title: Option<&str>) {
        let titled = if before.own_title {
            before.title.allows(title)
        } else {
            before.title.told.is_none() || title.is_some()
        };
        if !titled {
            self.wrong(format!(
                "{session} has the title {title:?}: {:?}",
                before.title
            ));
        }
        let cwd = self.project.cwd();
        let id = self.ask(
            Asked::Other,
            "session/load",
            &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
        );
        let (answer, updates) = self.answer(id);
        let result = &answer["result"];
        if result.is_null() {
            self.wrong(format!("{session} cannot be loaded: {answer}"));
            self.known.remove(session);
            return;
        }
        let mode = result["modes"]["currentModeId"].as_str();
        if !before.mode.allows(mode) {
            self.wrong(format!(
                "{session} has the mode {mode:?}: {:?}",
                before.mode
            ));
        }
        let option = |id: &str| {
            let options = result["configOptions"].as_array().into_iter().flatten();
            options
                .filter(|option| option["id"] == id)
                .find_map(|option| option["currentValue"].as_str())
        };
        let model = option("model");
        let steer = option("steer");
        if !before.steer.allows(steer) {
            self.wrong(format!("{session} steers: {steer:?}: {:?}", before.steer));
        }
        if !before.model.allows(model) {
            self.wrong(format!(
                "{session} has the model {model:?}: {:?}",
                before.model
            ));
        }
        let updates: Vec<&Value> = updates
            .iter()
            .filter(|params| params["sessionId"] == session)
            .map(|params| &params["update"])
            .collect();
        let planned = updates
            .iter()
            .map(|update| plan(update))
            .max()
            .unwrap_or_default();
        if planned < before.plan {
            self.wrong(format!(
                "{session} has plan {planned}, and plan {} was told",
                before.plan
            ));
        }
        let mut prompts = BTreeSet::new();
        let mut calls: BTreeMap<&str, &str> = BTreeMap::new();
        for update in &updates {
            if update["sessionUpdate"] == "user_message_chunk" {
                prompts.insert(update["messageId"].to_string());
            }
            if let Some(call) = update["toolCallId"].as_str() {
                let state = calls.entry(call).or_default();
                *state = update["status"].as_str().unwrap_or(state);
            }
        }
        if prompts.len() < before.answered {
            self.wrong(format!(
                "{session} has {} prompts of {} that were answered",
                prompts.len(),
                before.answered
            ));
        }
        for (call, told) in &before.calls {
            let now = calls.get(call.as_str()).copied();
            let over = matches!(told.as_str(), "completed" | "failed");
            if now.is_none() || (over && now != Some(told.as_str())) {
                self.wrong(format!(
                    "{session}: the call {call} was told to be {told}, and is {now:?}"
                ));
            }
        }
        // An unconfirmed title may be stored in the session only; from now on the list has it too.
        let infos = updates
            .iter()
            .rev()
            .filter(|update| update["sessionUpdate"] == "session_info_update");
        let shown = infos.filter_map(|info| info["title"].as_str()).next();
        if before.own_title && !before.title.allows(shown) {
            self.wrong(format!(
                "{session} is loaded with the title {shown:?}: {:?}",
                before.title
            ));
        }
        // A list may be behind its sessions, never before them.
        if before.own_title && before.title.rank(title) > before.title.rank(shown) {
            self.wrong(format!(
                "{session} is listed as {title:?}, and loaded with the title {shown:?}"
            ));
        }
        if let Some(known) = self.known.get_mut(session) {
            known
                .title
                .settle(if before.own_title { shown } else { title });
            known.mode.settle(mode);
            known.model.settle(model);
            known.steer.settle(steer);
            known.delete_asked = false;
        }
    }
}

/// Returns the number of the plan in an update; 0 if there is none.
fn plan(update: &Value) -> usize {
    let first = update["entries"][0]["content"]
        .as_str()
        .and_then(|text| text.strip_prefix("plan "));
    first
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}
