//! Sessions in which plugins let subagents work: children of the plugins' session. A prompt for one
//! takes the same path as the `task` tool, so that it has the permissions of a subagent of the
//! running turn and counts against the turn's budget.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use base::environment::Environment;
use base::id::{CallId, MessageId, SessionId};
use base::lock::lock;
use base::text;
use events::{
    LiveFacts, SessionRequest, SessionRequestSender, SpawnSubagent, SubagentEnd, SubagentReport,
};
use permission::rule::modern;
use permission::{Action, Rule, Rules};
use tools::registry::find_properties;
use transcript::ModelRef;

/// The number of sessions that the plugins of one host may have.
const MAX_SESSIONS: usize = 50;
/// The number of them that may work at once, and the number of prompts for them per prompt of the
/// user.
const MAX_CONCURRENT: u32 = 4;
const MAX_PROMPTS: u32 = 20;
/// The longest prompt, in bytes.
const MAX_PROMPT_BYTES: usize = 100_000;

/// The operations that a plugin may perform on its session.
pub trait SessionControl: Send + Sync + std::fmt::Debug {
    /// Stops the running turn and drops waiting prompts.
    fn cancel(&self);
    fn rename(&self, title: &str);
    /// Stops a running subagent. Returns `false` if there is none.
    fn stop(&self, child: &SessionId) -> bool;
}

/// The parts of a running turn that plugins may use, from one step to the next.
#[derive(Debug, Clone)]
pub struct PluginTurnAccess {
    /// Closed when the turn has ended.
    pub requests: SessionRequestSender,
    /// The subagents that the current agent may use without a question.
    pub agents: Vec<String>,
    /// The model for agents that name none.
    pub model: ModelRef,
    /// The rules of the turn, whose denials apply to subagents as well.
    pub rules: Rules,
}

/// The parts of their session that plugins may use.
#[derive(Debug, Default)]
pub(super) struct PluginAccess {
    // A leaf lock around a value.
    turn: Mutex<Option<PluginTurnAccess>>,
    pub(super) control: OnceLock<Box<dyn SessionControl>>,
    working: AtomicU32,
    prompted: AtomicU32,
}

impl PluginAccess {
    pub(super) fn set_turn_access(&self, turn: Option<PluginTurnAccess>) {
        *lock(&self.turn) = turn;
    }

    /// Resets the number of prompts, after a prompt of the user.
    pub(super) fn renew(&self) {
        self.prompted.store(0, Ordering::Relaxed);
    }

    /// Returns whether a subagent works for a plugin.
    pub(super) fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }

    /// Returns access to the turn for one more prompt.
    fn turn(&self) -> Result<(PluginTurnAccess, WorkingGuard<'_>), String> {
        let Some(turn) = lock(&self.turn).clone() else {
            return Err("no turn is running, and a plugin begins none".into());
        };
        let at_work = WorkingGuard(&self.working);
        if self.working.fetch_add(1, Ordering::Relaxed) >= MAX_CONCURRENT {
            return Err(format!(
                "{MAX_CONCURRENT} subagents of plugins are already running; wait for one of them"
            ));
        }
        if self.prompted.fetch_add(1, Ordering::Relaxed) >= MAX_PROMPTS {
            return Err(format!(
                "plugins have given subagents {MAX_PROMPTS} prompts since the user's last one"
            ));
        }
        Ok((turn, at_work))
    }
}

/// A subagent at work, counted until the guard is dropped.
struct WorkingGuard<'a>(&'a AtomicU32);

impl Drop for WorkingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sessions that the plugins of one host have, by id.
#[derive(Debug, Default)]
pub(super) struct Subagents(Mutex<BTreeMap<String, PluginSession>>);

#[derive(Debug, Default)]
struct PluginSession {
    title: String,
    /// Whether it was prompted, so that its session is stored.
    begun: bool,
    busy: bool,
    /// Texts at the beginning of its next prompt.
    notes: Vec<String>,
    /// Its messages, as OpenCode's client shows them.
    messages: Vec<Value>,
}

/// The request in a prompt of a plugin.
struct PromptRequest {
    words: String,
    agent: Option<String>,
    model: Option<ModelRef>,
    /// Denials of the tools that the prompt disables.
    denied: Rules,
}

impl PromptRequest {
    fn of(body: &Value, notes: Vec<String>) -> Self {
        let system = body
            .get("system")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let words: Vec<String> = notes
            .into_iter()
            .chain(system)
            .chain(Some(prompt_text(body)))
            .collect();
        let part = body
            .get("parts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut named = part.filter(|part| part.get("type").is_some_and(|kind| kind == "agent"));
        let agent = body
            .get("agent")
            .or_else(|| named.next()?.get("name"))
            .and_then(Value::as_str);
        let word = |key: &str| {
            body.pointer(&format!("/model/{key}"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let model = word("providerID").zip(word("modelID"));
        let tools = body
            .get("tools")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let taken = tools
            .filter(|(_, on)| on.as_bool() == Some(false))
            .map(|(name, _)| Rule {
                permission: find_properties(name)
                    .map(|tool| tool.permission)
                    .or_else(|| modern(name))
                    .unwrap_or(name)
                    .to_owned(),
                pattern: "*".into(),
                action: Action::Deny,
                source: "the prompt of a plugin".into(),
            });
        Self {
            words: words
                .into_iter()
                .filter(|words| !words.trim().is_empty())
                .collect::<Vec<_>>()
                .join("\n\n"),
            agent: agent.map(str::to_owned),
            model: model.map(|(provider, model)| ModelRef {
                provider,
                model,
                effort: None,
            }),
            denied: taken.collect(),
        }
    }
}

/// Returns the texts of a prompt.
pub(super) fn prompt_text(body: &Value) -> String {
    let parts = body
        .get("parts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    parts
        .filter_map(|part| part.get("text")?.as_str())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Returns the subagent that answers: the requested one, otherwise `general`.
fn chosen(agents: &[String], wanted: Option<&str>) -> Result<String, String> {
    let wanted = wanted.unwrap_or("general");
    match agents.iter().find(|agent| *agent == wanted) {
        Some(agent) => Ok(agent.clone()),
        None if agents.is_empty() => {
            Err("the current agent may not start a subagent without a question".into())
        }
        None => Err(format!(
            "there is no subagent {} that may be used without a question; there are: {}",
            text::title(wanted),
            agents.join(", ")
        )),
    }
}

impl Subagents {
    /// Creates a session, before its first prompt.
    pub(super) fn create(&self, id: &str, title: &str) -> Result<(), String> {
        let mut all = lock(&self.0);
        if all.len() >= MAX_SESSIONS {
            return Err(format!(
                "plugins have {MAX_SESSIONS} sessions already; delete one"
            ));
        }
        all.insert(
            id.to_owned(),
            PluginSession {
                title: text::cut_chars(&text::title(title), 100),
                ..PluginSession::default()
            },
        );
        Ok(())
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        lock(&self.0).contains_key(id)
    }

    /// Returns the ids with their titles, in the order of ids.
    pub(super) fn list(&self) -> Vec<(String, String)> {
        lock(&self.0)
            .iter()
            .map(|(id, child)| (id.clone(), child.title.clone()))
            .collect()
    }

    pub(super) fn title(&self, id: &str) -> String {
        lock(&self.0)
            .get(id)
            .map(|child| child.title.clone())
            .unwrap_or_default()
    }

    pub(super) fn rename(&self, id: &str, title: &str) {
        if let Some(child) = lock(&self.0).get_mut(id) {
            child.title = text::cut_chars(&text::title(title), 100);
        }
    }

    pub(super) fn busy(&self) -> Vec<String> {
        lock(&self.0)
            .iter()
            .filter(|(_, child)| child.busy)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Returns the last messages of a session, at most `limit` of them.
    pub(super) fn messages(&self, id: &str, limit: usize) -> Value {
        let all = lock(&self.0);
        let messages = all
            .get(id)
            .map(|child| child.messages.as_slice())
            .unwrap_or_default();
        messages[messages.len().saturating_sub(limit)..]
            .iter()
            .cloned()
            .collect()
    }

    /// Removes a session from the list. Its stored history remains.
    pub(super) fn forget(&self, id: &str) -> bool {
        lock(&self.0).remove(id).is_some()
    }

    /// Adds a text to the beginning of its next prompt.
    pub(super) fn add_note(&self, id: &str, text: String) -> Result<(), String> {
        let mut all = lock(&self.0);
        let child = all.get_mut(id).ok_or("there is no such session")?;
        if child.notes.iter().map(String::len).sum::<usize>() + text.len() > MAX_PROMPT_BYTES {
            return Err("too many texts are queued for the model".into());
        }
        child.notes.push(text);
        Ok(())
    }

    /// Sends a prompt to a subagent, and returns its last message. `file` is the plugin.
    pub(super) async fn prompt(
        &self,
        (id, file): (&str, &str),
        body: &Value,
        access: &PluginAccess,
        environment: &Environment,
    ) -> Result<Value, String> {
        let (turn, _at_work) = access.turn()?;
        let fresh = |prefix: &str| environment.fresh(prefix);
        let (wanted, agent, title, begun) = {
            let mut all = lock(&self.0);
            let child = all.get_mut(id).ok_or("there is no such session")?;
            if child.busy {
                return Err("the session works on another prompt".into());
            }
            let wanted = PromptRequest::of(body, child.notes.clone());
            let agent = chosen(&turn.agents, wanted.agent.as_deref())?;
            if wanted.words.trim().is_empty() || wanted.words.len() > MAX_PROMPT_BYTES {
                return Err(format!(
                    "a prompt must be a text of at most {MAX_PROMPT_BYTES} bytes"
                ));
            }
            child.notes.clear();
            child.busy = true;
            child
                .messages
                .push(shown(id, &fresh(MessageId::PREFIX), "user", &wanted.words));
            (wanted, agent, child.title.clone(), child.begun)
        };
        let own = SessionId::new(id);
        let what = if title.is_empty() {
            "Task"
        } else {
            title.as_str()
        };
        let (reply, answer) = oneshot::channel();
        let spawn = SpawnSubagent {
            call: CallId::new(fresh(CallId::PREFIX)),
            facts: LiveFacts::default(),
            shown: Some(text::title(&format!("{agent}: {what} ({file})"))),
            agent: agent.clone(),
            description: title,
            prompt: wanted.words,
            files: Vec::new(),
            wanted: wanted.model,
            session: (!begun).then(|| own.clone()),
            resume: begun.then_some(own),
            model: turn.model,
            rules: turn.rules.then(&wanted.denied),
            reply,
        };
        drop(
            turn.requests
                .send(SessionRequest::Spawn(Box::new(spawn)))
                .await,
        );
        let answer = answer.await;
        let mut all = lock(&self.0);
        let Some(child) = all.get_mut(id) else {
            return Err("the session was deleted".into());
        };
        child.busy = false;
        match answer {
            Ok(Ok(report)) => {
                child.begun = true;
                let message = answered(id, &fresh(MessageId::PREFIX), &agent, report);
                child.messages.push(message.clone());
                Ok(message)
            }
            Ok(Err(why)) => Err(why),
            Err(_) => {
                // It is unknown whether the subagent had begun.
                all.remove(id);
                Err("the turn has ended".into())
            }
        }
    }
}

fn shown(session: &str, id: &str, role: &str, text: &str) -> Value {
    let part = json!({ "id": format!("prt_{id}"), "sessionID": session, "messageID": id, "type": "text", "text": text });
    json!({ "info": { "id": id, "sessionID": session, "role": role, "time": { "created": 0 } }, "parts": [part] })
}

/// Returns the report of a subagent as a message.
fn answered(session: &str, id: &str, agent: &str, report: SubagentReport) -> Value {
    let mut message = shown(session, id, "assistant", &report.text);
    let info = &mut message["info"];
    info["agent"] = agent.into();
    info["mode"] = agent.into();
    info["providerID"] = report.model.provider.into();
    info["modelID"] = report.model.model.into();
    info["time"]["completed"] = 0.into();
    let failed = match report.end {
        SubagentEnd::Done => None,
        SubagentEnd::Cancelled => Some(("MessageAbortedError", "it was stopped".to_owned())),
        SubagentEnd::Rejected(what) => Some(("UnknownError", format!("the user rejected {what}"))),
        SubagentEnd::Failed(why) => Some(("UnknownError", why)),
    };
    if let Some((name, why)) = failed {
        info["error"] = json!({ "name": name, "data": { "message": why } });
    }
    message
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn turn_access(agents: &[&str]) -> (PluginTurnAccess, mpsc::Receiver<SessionRequest>) {
        let (requests, received) = mpsc::channel(4);
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        let agents = agents.iter().map(|agent| (*agent).to_owned()).collect();
        (
            PluginTurnAccess {
                requests,
                agents,
                model,
                rules: Rules::default(),
            },
            received,
        )
    }

    fn spawned(request: Option<SessionRequest>) -> Box<SpawnSubagent> {
        match request {
            Some(SessionRequest::Spawn(spawn)) => spawn,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requested_subagent_is_used_if_allowed() {
        let agents = ["explore".to_owned(), "general".to_owned()];
        assert_eq!(chosen(&agents, None).as_deref(), Ok("general"));
        assert_eq!(chosen(&agents, Some("explore")).as_deref(), Ok("explore"));
        assert!(
            chosen(&agents, Some("build"))
                .unwrap_err()
                .contains("explore, general")
        );
        assert!(
            chosen(&[], None)
                .unwrap_err()
                .contains("a subagent without a question")
        );
    }

    #[tokio::test]
    async fn session_is_prompted_and_resumed() {
        let home = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        let subagents = Subagents::default();
        let access = PluginAccess::default();
        subagents.create("ses_a", "Look").unwrap();
        let body = json!({
            "system": "Be brief.", "tools": { "bash": false, "read": true },
            "parts": [{ "type": "text", "text": "Look." }, { "type": "agent", "name": "explore" }],
        });
        let prompt = |body: Value| {
            let subagents = &subagents;
            let access = &access;
            let environment = &environment;
            async move {
                subagents
                    .prompt(("ses_a", "p.js"), &body, access, environment)
                    .await
            }
        };
        assert!(
            prompt(body.clone())
                .await
                .unwrap_err()
                .contains("no turn is running")
        );
        let (turn, mut received) = turn_access(&["explore", "general"]);
        access.set_turn_access(Some(turn));
        subagents.add_note("ses_a", "Before.".into()).unwrap();
        let (answer, ()) = tokio::join!(prompt(body), async {
            let spawn = spawned(received.recv().await);
            assert_eq!(spawn.prompt, "Before.\n\nBe brief.\n\nLook.");
            assert_eq!(
                (spawn.agent.as_str(), spawn.resume.is_none()),
                ("explore", true)
            );
            assert_eq!(spawn.session.as_ref().map(SessionId::as_str), Some("ses_a"));
            assert_eq!(spawn.shown.as_deref(), Some("explore: Look (p.js)"));
            assert_eq!(spawn.rules.len(), 1, "{:?}", spawn.rules);
            assert!(access.is_working());
            let model = spawn.model.clone();
            let report = SubagentReport {
                session: SessionId::new("ses_a"),
                model,
                text: "Seen.".into(),
                calls: String::new(),
                end: SubagentEnd::Done,
            };
            spawn.reply.send(Ok(report)).unwrap();
        });
        assert_eq!(answer.unwrap()["parts"][0]["text"], "Seen.");
        assert!(!access.is_working());
        assert_eq!(subagents.messages("ses_a", 10).as_array().unwrap().len(), 2);
        let again = json!({ "parts": [{ "type": "text", "text": "More." }] });
        let (answer, ()) = tokio::join!(prompt(again.clone()), async {
            let spawn = spawned(received.recv().await);
            assert_eq!(
                (spawn.session.is_none(), spawn.resume.is_some()),
                (true, true)
            );
            assert_eq!(spawn.agent, "general");
            spawn
                .reply
                .send(Err("There is no more money.".into()))
                .unwrap();
        });
        assert!(answer.unwrap_err().contains("no more money"));
        for _ in 2..MAX_PROMPTS {
            let (_, ()) = tokio::join!(prompt(again.clone()), async {
                spawned(received.recv().await)
                    .reply
                    .send(Err("no".into()))
                    .unwrap();
            });
        }
        assert!(
            prompt(again.clone())
                .await
                .unwrap_err()
                .contains("20 prompts")
        );
        access.renew();
        drop(received);
        assert!(
            prompt(again)
                .await
                .unwrap_err()
                .contains("the turn has ended")
        );
        assert!(!subagents.knows("ses_a"));
    }
}
