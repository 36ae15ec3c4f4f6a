//! What an editor shows after a conversation, and after the same conversation was loaded again, is the
//! same: random histories, live and replayed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 1] = [("live and replayed end in the same state", same_state)];

/// Histories per seed.
const HISTORIES: usize = 8;

/// What an editor holds of a session.
#[derive(Debug, Default, PartialEq)]
struct State {
    /// What was said, in the order it began, by the id of the message.
    said: Vec<(String, String, String)>,
    calls: BTreeMap<String, Map<String, Value>>,
    plan: Value,
}

impl State {
    fn take(&mut self, update: &Value) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        match kind {
            "agent_message_chunk" | "agent_thought_chunk" => {
                let id = update["messageId"].as_str().unwrap_or_default();
                let text = update["content"]["text"].as_str().unwrap_or_default();
                match self.said.iter_mut().find(|(_, known, _)| known == id) {
                    Some((_, _, all)) => all.push_str(text),
                    None => self.said.push((kind.into(), id.into(), text.into())),
                }
            }
            "tool_call" | "tool_call_update" => {
                let call = self.calls.entry(update["toolCallId"].to_string()).or_default();
                for (key, value) in update.as_object().into_iter().flatten() {
                    // How a call came to its end is a matter of its time.
                    if !matches!(key.as_str(), "sessionUpdate" | "_meta") {
                        call.insert(key.clone(), value.clone());
                    }
                }
            }
            "plan" => self.plan = update["entries"].clone(),
            _ => {}
        }
    }
}

/// Answers of a model: words, reasoning, calls that succeed and calls that fail.
fn script(random: &mut fastrand::Rng, turns: usize) -> String {
    let mut script = String::new();
    for turn in 0..turns {
        for step in 0..random.usize(1..4) {
            if random.bool() {
                writeln!(script, "reasoning: I wonder about {turn} and {step}.").unwrap();
            }
            writeln!(script, "text: Step {step} of {turn}:").unwrap();
            writeln!(script, "text: {}", "more words, ".repeat(random.usize(0..40))).unwrap();
            for _ in 0..random.usize(1..4) {
                let (tool, input) = match random.u8(..6) {
                    0 => ("read", json!({ "filePath": "notes.txt" })),
                    1 => ("read", json!({ "filePath": "missing.txt" })),
                    2 => ("bash", json!({ "command": format!("echo {turn} {step}; exit {}", random.u8(..2)) })),
                    3 => ("write", json!({ "filePath": format!("new-{turn}-{step}.txt"), "content": "a\nb\n" })),
                    4 => ("glob", json!({ "pattern": "*.txt" })),
                    _ => {
                        let todo = json!({ "content": format!("Do {turn}"), "status": "pending", "priority": "high" });
                        ("todowrite", json!({ "todos": [todo] }))
                    }
                };
                writeln!(script, "call {tool} {input}").unwrap();
            }
            script.push_str("---\n");
        }
        writeln!(script, "text: Turn {turn} is over.\n---").unwrap();
    }
    script.trim_end().trim_end_matches("---").to_owned()
}

fn same_state() {
    for seed in [5, fastrand::u64(..)] {
        let mut random = fastrand::Rng::with_seed(seed);
        for history in 0..HISTORIES {
            let turns = random.usize(1..4);
            let model = Model::start(model::script(&script(&mut random, turns)).unwrap());
            let project = Project::new();
            project.provider(
                &model.base(),
                &json!({ "permission": { "bash": "allow", "edit": "allow", "doom_loop": "allow" } }),
            );
            project.write("notes.txt", "one\ntwo\nthree\n");
            let mut talk = Talk::new(project);
            let session = talk.open();
            let mut live = State::default();
            for turn in 0..turns as u64 {
                talk.prompt(10 + turn, &session, &format!("Turn {turn}"));
                let (answer, updates) = talk.answer(10 + turn);
                assert_eq!(answer["result"]["stopReason"], "end_turn", "seed {seed}, {history}: {answer}");
                updates.iter().for_each(|update| live.take(update));
            }
            let cwd = talk.project.cwd();
            talk.request(50, "session/load", &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
            let (answer, updates) = talk.answer(50);
            assert!(answer.get("result").is_some(), "seed {seed}, {history}: {answer}");
            let mut replayed = State::default();
            updates.iter().for_each(|update| replayed.take(update));
            assert_eq!(replayed, live, "seed {seed}, history {history}");
            talk.leave();
            assert_eq!(model.problems(), Vec::<String>::new());
        }
    }
}
