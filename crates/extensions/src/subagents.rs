//! `Subagents`, the sessions in which plugins let subagents work; they are children of the plugins'
//! session. A prompt for one takes the same path as the `task` tool, so that it has the permissions of a
//! subagent of the running turn and counts towards the turn's budget. `PluginAccess` is the access to
//! that turn.

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

/// The maximum number of sessions that the plugins of one host have.
const MAX_SESSIONS: usize = 50;
/// The maximum number of subagents of plugins that work at once.
const MAX_CONCURRENT: u32 = 4;
/// The maximum number of prompts for subagents after each prompt of the user.
const MAX_PROMPTS: u32 = 20;
/// The maximum length of a prompt, in bytes.
const MAX_PROMPT_BYTES: usize = 100_000;

/// The operations that a plugin may perform on its session.
pub trait SessionControl: Send + Sync + std::fmt::Debug {
    /// Stops the running turn and drops waiting prompts.
    fn cancel(&self);
    /// Renames the session.
    fn rename(&self, title: &str);
    /// Stops a running subagent. Returns `false` if there is none.
    fn stop(&self, child: &SessionId) -> bool;
}

/// The parts of a running turn that plugins may use.
#[derive(Debug, Clone)]
pub struct PluginTurnAccess {
    /// Sends requests to the session. Closed when the turn has ended.
    pub requests: SessionRequestSender,
    /// The subagents that the current agent may use without a question.
    pub agents: Vec<String>,
    /// The model for agents that name none.
    pub model: ModelRef,
    /// The rules of the turn, whose denials apply to subagents as well.
    pub rules: Rules,
}

/// The access of plugins to their session and its running turn.
#[derive(Debug, Default)]
pub(super) struct PluginAccess {
    // A leaf lock around a value.
    /// The running turn, if there is one.
    turn: Mutex<Option<PluginTurnAccess>>,
    pub(super) control: OnceLock<Box<dyn SessionControl>>,
    /// The number of subagents that work for plugins.
    working: AtomicU32,
    /// The number of prompts since the user's last one.
    prompts: AtomicU32,
}

impl PluginAccess {
    /// Sets the running turn; `None` at its end.
    pub(super) fn set_turn_access(&self, turn: Option<PluginTurnAccess>) {
        *lock(&self.turn) = turn;
    }

    /// Resets the number of prompts, after a prompt of the user.
    pub(super) fn reset_prompt_count(&self) {
        self.prompts.store(0, Ordering::Relaxed);
    }

    /// Returns whether a subagent works for a plugin.
    pub(super) fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }

    /// Counts one more prompt, and returns access to the turn. The subagent counts as working until
    /// the guard is dropped.
    ///
    /// # Errors
    /// No turn runs, or a limit is reached.
    fn begin_prompt(&self) -> Result<(PluginTurnAccess, WorkingGuard<'_>), String> {
        let Some(turn) = lock(&self.turn).clone() else {
            return Err("no turn is running, and a plugin begins none".into());
        };
        let guard = WorkingGuard(&self.working);
        if self.working.fetch_add(1, Ordering::Relaxed) >= MAX_CONCURRENT {
            return Err(format!(
                "{MAX_CONCURRENT} subagents of plugins are already running; wait for one of them"
            ));
        }
        if self.prompts.fetch_add(1, Ordering::Relaxed) >= MAX_PROMPTS {
            return Err(format!(
                "plugins have given subagents {MAX_PROMPTS} prompts since the user's last one"
            ));
        }
        Ok((turn, guard))
    }
}

/// Counts a subagent as working until this is dropped.
struct WorkingGuard<'a>(&'a AtomicU32);

impl Drop for WorkingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sessions that the plugins of one host have, by id.
#[derive(Debug, Default)]
pub(super) struct Subagents(Mutex<BTreeMap<String, PluginSession>>);

/// A session in which a subagent works for a plugin.
#[derive(Debug, Default)]
struct PluginSession {
    title: String,
    /// The subagent was prompted, so its session is stored.
    is_stored: bool,
    /// The subagent works on a prompt.
    is_busy: bool,
    /// Texts for the beginning of the next prompt.
    notes: Vec<String>,
    /// Its messages, as OpenCode's client shows them.
    messages: Vec<Value>,
}

/// A decoded prompt of a plugin.
struct PromptRequest {
    /// The whole text of the prompt.
    text: String,
    /// The requested agent, if any.
    agent: Option<String>,
    /// The requested model, if any.
    model: Option<ModelRef>,
    /// Denials of the tools that the prompt disables.
    denied: Rules,
}

impl PromptRequest {
    /// Decodes a prompt. The notes are put before its text.
    fn decode(body: &Value, notes: Vec<String>) -> Self {
        let system = body
            .get("system")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let texts: Vec<String> = notes
            .into_iter()
            .chain(system)
            .chain(Some(prompt_text(body)))
            .collect();
        let parts = body
            .get("parts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut agents = parts.filter(|part| part.get("type").is_some_and(|kind| kind == "agent"));
        let agent = body
            .get("agent")
            .or_else(|| agents.next()?.get("name"))
            .and_then(Value::as_str);
        let model_part = |key: &str| {
            body.pointer(&format!("/model/{key}"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let model = model_part("providerID").zip(model_part("modelID"));
        let tools = body
            .get("tools")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let denied = tools
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
            text: texts
                .into_iter()
                .filter(|text| !text.trim().is_empty())
                .collect::<Vec<_>>()
                .join("\n\n"),
            agent: agent.map(str::to_owned),
            model: model.map(|(provider, model)| ModelRef {
                provider,
                model,
                effort: None,
            }),
            denied: denied.collect(),
        }
    }
}

/// Returns the text of a prompt: the texts of its parts.
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

/// Returns the name of the subagent for a prompt: the requested one, otherwise `general`.
///
/// # Errors
/// The subagent is not among those that may be used without a question.
fn choose_agent(agents: &[String], wanted: Option<&str>) -> Result<String, String> {
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

    /// Returns whether a session is one of a plugin.
    pub(super) fn contains(&self, id: &str) -> bool {
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

    /// Returns the ids of the sessions that work on a prompt.
    pub(super) fn busy_ids(&self) -> Vec<String> {
        lock(&self.0)
            .iter()
            .filter(|(_, child)| child.is_busy)
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

    /// Removes a session from the list. Its stored history remains. Returns `false` if it is not in the
    /// list.
    pub(super) fn remove(&self, id: &str) -> bool {
        lock(&self.0).remove(id).is_some()
    }

    /// Adds a text to the beginning of the next prompt in a session.
    pub(super) fn add_note(&self, id: &str, text: String) -> Result<(), String> {
        let mut all = lock(&self.0);
        let child = all.get_mut(id).ok_or("there is no such session")?;
        if child.notes.iter().map(String::len).sum::<usize>() + text.len() > MAX_PROMPT_BYTES {
            return Err("too many texts are queued for the model".into());
        }
        child.notes.push(text);
        Ok(())
    }

    /// Sends a prompt to a subagent, and returns its last message. `file` is the name of the plugin.
    ///
    /// # Errors
    /// The prompt is invalid, a limit is reached, or the subagent has failed.
    pub(super) async fn prompt(
        &self,
        (id, file): (&str, &str),
        body: &Value,
        access: &PluginAccess,
        environment: &Environment,
    ) -> Result<Value, String> {
        let (turn, _guard) = access.begin_prompt()?;
        let fresh = |prefix: &str| environment.fresh(prefix);
        let (request, agent, title, is_stored) = {
            let mut all = lock(&self.0);
            let child = all.get_mut(id).ok_or("there is no such session")?;
            if child.is_busy {
                return Err("the session works on another prompt".into());
            }
            let request = PromptRequest::decode(body, child.notes.clone());
            let agent = choose_agent(&turn.agents, request.agent.as_deref())?;
            if request.text.trim().is_empty() || request.text.len() > MAX_PROMPT_BYTES {
                return Err(format!(
                    "a prompt must be a text of at most {MAX_PROMPT_BYTES} bytes"
                ));
            }
            child.notes.clear();
            child.is_busy = true;
            child.messages.push(encode_message(
                id,
                &fresh(MessageId::PREFIX),
                "user",
                &request.text,
            ));
            (request, agent, child.title.clone(), child.is_stored)
        };
        let child_id = SessionId::new(id);
        let task = if title.is_empty() {
            "Task"
        } else {
            title.as_str()
        };
        let (reply, answer) = oneshot::channel();
        let spawn = SpawnSubagent {
            call: CallId::new(fresh(CallId::PREFIX)),
            facts: LiveFacts::default(),
            shown: Some(text::title(&format!("{agent}: {task} ({file})"))),
            agent: agent.clone(),
            description: title,
            prompt: request.text,
            files: Vec::new(),
            wanted: request.model,
            session: (!is_stored).then(|| child_id.clone()),
            resume: is_stored.then_some(child_id),
            model: turn.model,
            rules: turn.rules.then(&request.denied),
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
        child.is_busy = false;
        match answer {
            Ok(Ok(report)) => {
                child.is_stored = true;
                let message = encode_report(id, &fresh(MessageId::PREFIX), &agent, report);
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

/// Encodes a message with one text, as OpenCode's client shows it.
fn encode_message(session: &str, id: &str, role: &str, text: &str) -> Value {
    let part = json!({ "id": format!("prt_{id}"), "sessionID": session, "messageID": id, "type": "text", "text": text });
    json!({ "info": { "id": id, "sessionID": session, "role": role, "time": { "created": 0 } }, "parts": [part] })
}

/// Encodes the report of a subagent as a message.
fn encode_report(session: &str, id: &str, agent: &str, report: SubagentReport) -> Value {
    let mut message = encode_message(session, id, "assistant", &report.text);
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
        assert_eq!(choose_agent(&agents, None).as_deref(), Ok("general"));
        assert_eq!(
            choose_agent(&agents, Some("explore")).as_deref(),
            Ok("explore")
        );
        assert!(
            choose_agent(&agents, Some("build"))
                .unwrap_err()
                .contains("explore, general")
        );
        assert!(
            choose_agent(&[], None)
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
        access.reset_prompt_count();
        drop(received);
        assert!(
            prompt(again)
                .await
                .unwrap_err()
                .contains("the turn has ended")
        );
        assert!(!subagents.contains("ses_a"));
    }
}
