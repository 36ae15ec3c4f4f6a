//! Checks that a client shows the same after a conversation and after loading it again: random
//! histories of turns, undone and redone ones, summaries and forks, live and replayed. The files
//! match the last state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::model::{self, Model};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 1] = [(
    "replayed session equals the live one",
    replayed_session_equals_the_live_one,
)];

/// Histories per seed.
const HISTORIES: usize = 8;

/// A client's view of a session.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    /// Messages in the order in which they began: kind, id, text.
    messages: Vec<(String, String, String)>,
    calls: BTreeMap<String, Map<String, Value>>,
    plan: Value,
}

impl State {
    fn take(&mut self, update: &Value) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        match kind {
            "agent_message_chunk" | "agent_thought_chunk" => {
                let id = update["messageId"].as_str().unwrap_or_default();
                // Notices appear once only.
                if id.starts_with("aside_") {
                    return;
                }
                let text = update["content"]["text"].as_str().unwrap_or_default();
                match self.messages.iter_mut().find(|(_, known, _)| known == id) {
                    Some((_, _, all)) => all.push_str(text),
                    None => self.messages.push((kind.into(), id.into(), text.into())),
                }
            }
            "tool_call" | "tool_call_update" => {
                let call = self
                    .calls
                    .entry(update["toolCallId"].to_string())
                    .or_default();
                for (key, value) in update.as_object().into_iter().flatten() {
                    // The metadata tells how a call ended while it ran.
                    if !matches!(key.as_str(), "sessionUpdate" | "_meta") {
                        call.insert(key.clone(), value.clone());
                    }
                }
            }
            // No plan and an empty one look the same.
            "plan" => {
                self.plan = update["entries"]
                    .as_array()
                    .filter(|plan| !plan.is_empty())
                    .cloned()
                    .into()
            }
            _ => {}
        }
    }

    fn of<'a>(updates: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut state = Self::default();
        updates.into_iter().for_each(|update| state.take(update));
        state
    }

    /// Returns the state without ids, which differ in a fork.
    fn without_ids(&self) -> Self {
        let messages = self
            .messages
            .iter()
            .map(|(kind, _, text)| (kind.clone(), String::new(), text.clone()))
            .collect();
        // Ids are in the order of the calls, here and there.
        let mut calls: BTreeMap<String, Map<String, Value>> = self
            .calls
            .values()
            .enumerate()
            .map(|(n, call)| (format!("{n:04}"), call.clone()))
            .collect();
        for call in calls.values_mut() {
            call.remove("toolCallId");
        }
        Self {
            messages,
            calls,
            plan: self.plan.clone(),
        }
    }

    /// Returns the files it has written.
    fn files(&self) -> BTreeSet<String> {
        let done = |call: &&Map<String, Value>| {
            call.get("status")
                .is_some_and(|status| status == "completed")
        };
        let written = self
            .calls
            .values()
            .filter(done)
            .filter_map(|call| call.get("rawInput")?["content"].as_str());
        written.map(str::to_owned).collect()
    }
}

/// An action of the user.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Say,
    Undo,
    Redo,
    Compact,
}

/// Returns random acts, of which the first is a prompt.
fn acts(random: &mut fastrand::Rng) -> Vec<Act> {
    let mut acts = vec![Act::Say];
    // Counted like the session does, so that a summary is requested only if there are turns.
    let mut visible = 1;
    let mut hidden = 0;
    for _ in 0..random.usize(1..7) {
        let act = match random.u8(..8) {
            0..=2 => Act::Say,
            3 | 4 => Act::Undo,
            // A change that was undone before the conversation continued would return without its
            // turn.
            5 | 6 if hidden > 0 => Act::Redo,
            _ if visible > 0 && acts.last() == Some(&Act::Say) => Act::Compact,
            _ => Act::Say,
        };
        match act {
            Act::Say => (visible, hidden) = (visible + 1, 0),
            Act::Compact => hidden = 0,
            Act::Undo if visible > 0 => (visible, hidden) = (visible - 1, hidden + 1),
            Act::Redo if hidden > 0 => (visible, hidden) = (visible + 1, hidden - 1),
            Act::Undo | Act::Redo => {}
        }
        acts.push(act);
    }
    acts
}

/// Returns the model's script: text, reasoning, calls that succeed and calls that fail; summaries.
fn script(random: &mut fastrand::Rng, acts: &[Act]) -> String {
    let mut script = String::new();
    for (turn, act) in acts.iter().enumerate() {
        match act {
            Act::Say => {}
            Act::Compact => {
                writeln!(script, "without tools\ntext: ## Objective\ntext: Go on after {turn}.\nusage 500 20\n---")
                    .unwrap();
                continue;
            }
            Act::Undo | Act::Redo => continue,
        }
        for step in 0..random.usize(1..4) {
            if random.bool() {
                writeln!(script, "reasoning: I wonder about {turn} and {step}.").unwrap();
            }
            writeln!(script, "text: Step {step} of {turn}:").unwrap();
            writeln!(
                script,
                "text: {}",
                "more words, ".repeat(random.usize(0..40))
            )
            .unwrap();
            for call in 0..random.usize(1..4) {
                let (tool, input) = match random.u8(..6) {
                    0 => ("read", json!({ "filePath": "notes.txt" })),
                    1 => ("read", json!({ "filePath": "missing.txt" })),
                    2 => (
                        "bash",
                        json!({ "command": format!("echo {turn} {step}; exit {}", random.u8(..2)) }),
                    ),
                    3 => {
                        let name = format!("new-{turn}-{step}-{call}");
                        (
                            "write",
                            json!({ "filePath": format!("{name}.txt"), "content": name }),
                        )
                    }
                    4 => ("glob", json!({ "pattern": "notes.*" })),
                    _ => {
                        let todo = json!({ "content": format!("Do {turn}"), "status": "pending", "priority": "high" });
                        ("todowrite", json!({ "todos": [todo] }))
                    }
                };
                writeln!(script, "call {tool} {input}").unwrap();
            }
            script.push_str("---\n");
        }
        // Long enough for any summary to be shorter.
        let words = "It went well. ".repeat(200);
        writeln!(script, "text: {words}\ntext: Turn {turn} is over.\n---").unwrap();
    }
    script.trim_end().trim_end_matches("---").to_owned()
}

fn load(client: &mut Client, id: u64, method: &str, session: &str) -> (Value, State) {
    let cwd = client.project.cwd();
    client.request(
        id,
        method,
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    let (answer, updates) = client.answer(id);
    (answer, State::of(&updates))
}

fn replayed_session_equals_the_live_one() {
    for seed in [5, fastrand::u64(..)] {
        let mut random = fastrand::Rng::with_seed(seed);
        for history in 0..HISTORIES {
            let acts = acts(&mut random);
            let case = format!("seed {seed}, history {history}: {acts:?}");
            let model = Model::unwatched(model::script(&script(&mut random, &acts)).unwrap());
            let project = Project::new();
            project.provider(
                &model.base(),
                &json!({ "permission": { "bash": "allow", "edit": "allow", "doom_loop": "allow" } }),
            );
            project.write("notes.txt", "one\ntwo\nthree\n");
            let mut client = Client::new(project);
            let session = client.open();
            let (mut visible, mut hidden): (Vec<Vec<Value>>, Vec<Vec<Value>>) = Default::default();
            for (number, act) in acts.iter().enumerate() {
                let words = match act {
                    Act::Say => format!("Turn {number}"),
                    Act::Undo => "/undo".into(),
                    Act::Redo => "/redo".into(),
                    Act::Compact => "/compact".into(),
                };
                let id = 10 + number as u64;
                client.prompt(id, &session, &words);
                let (answer, updates) = client.answer(id);
                // A summary does not shorten a short conversation; then nothing changes, and that
                // is reported.
                let in_vain =
                    *act == Act::Compact && answer.to_string().contains("would not be shorter");
                assert!(
                    in_vain || answer["result"]["stopReason"] == "end_turn",
                    "{case}: {answer}"
                );
                match act {
                    Act::Compact if in_vain => hidden.clear(),
                    Act::Say => {
                        hidden.clear();
                        visible.push(updates);
                    }
                    Act::Compact => {
                        hidden.clear();
                        let mut messages = updates
                            .iter()
                            .filter_map(|update| update["content"]["text"].as_str());
                        assert!(
                            messages.any(|text| text.starts_with("Compacted")),
                            "{case}: {updates:?}"
                        );
                        visible.last_mut().unwrap().extend(updates);
                    }
                    Act::Undo => hidden.extend(visible.pop()),
                    Act::Redo => visible.extend(hidden.pop()),
                }
            }
            let live = State::of(visible.iter().flatten());
            let (answer, replayed) = load(&mut client, 50, "session/load", &session);
            assert!(answer.get("result").is_some(), "{case}: {answer}");
            assert_eq!(replayed, live, "{case}");
            let files = std::fs::read_dir(client.project.cwd()).unwrap().flatten();
            let names = files.map(|file| file.file_name().into_string().unwrap());
            let written: BTreeSet<String> = names
                .filter_map(|name| Some(name.strip_suffix(".txt")?.to_owned()))
                .filter(|name| name != "notes")
                .collect();
            assert_eq!(written, live.files(), "{case}");

            let (answer, _) = load(&mut client, 51, "session/fork", &session);
            let fork = answer["result"]["sessionId"]
                .as_str()
                .unwrap_or_else(|| panic!("{case}: {answer}"))
                .to_owned();
            let (_, forked) = load(&mut client, 52, "session/load", &fork);
            assert_eq!(forked.without_ids(), live.without_ids(), "{case}");
            client.leave();
        }
    }
}
