//! Invariants that hold in version 2 of the protocol only; `invariants.rs` delegates to them once
//! version 2 is negotiated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use agent_client_protocol_schema::v2;
use jsonschema::Validator;
use schemars::schema_for;
use serde_json::Value;

use crate::invariants::agent_messages;

/// Schemas of the agent's messages: see [`agent_messages`].
pub static SCHEMAS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    agent_messages([
        schema_for!(v2::AgentRequest),
        schema_for!(v2::AgentNotification),
        schema_for!(v2::AgentResponse),
        schema_for!(v2::CancelRequestNotification),
        schema_for!(v2::Error),
    ])
});

/// Updates of a turn: they come while the session works, or while it is replayed.
const OF_A_TURN: &[&str] = &[
    "user_message",
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call_update",
    "terminal_update",
    "terminal_output_chunk",
    "plan_update",
    "session_message",
];

/// The watcher of one connection in version 2.
#[derive(Default)]
pub struct InvariantsV2 {
    /// State of each session: `running`, `requires_action`, `idle`.
    states: BTreeMap<String, String>,
    /// Prompts that are in the conversation and whose turn has not ended, per session.
    turns: BTreeMap<String, usize>,
    /// Status of every call, per session.
    calls: BTreeMap<(String, String), String>,
    terminals: BTreeSet<(String, String)>,
    /// Ends of replays, and states after the last of them, since a session was resumed.
    replayed: BTreeMap<String, (usize, usize)>,
}

impl InvariantsV2 {
    /// Returns whether a turn has not ended yet.
    pub fn works(&self) -> bool {
        self.turns.values().any(|turns| *turns > 0)
    }

    /// Returns whether the state of a session that was sent last is one of a turn.
    pub fn is_running(&self, session: &str) -> bool {
        self.states
            .get(session)
            .is_some_and(|state| state != "idle")
    }

    /// Records that a prompt is in the conversation.
    pub fn inserted(&mut self, session: &str) {
        *self.turns.entry(session.into()).or_default() += 1;
    }

    /// Checks that a session was resumed as requested: with one end of a replay, or none, and a
    /// state after it.
    ///
    /// # Errors
    /// The violation.
    pub fn resumed(&mut self, session: &str, wanted: bool) -> Result<(), String> {
        let (ends, states) = self.replayed.remove(session).unwrap_or_default();
        if ends != usize::from(wanted) {
            return Err(format!("{ends} ends of a replay before the response"));
        }
        if states == 0 {
            return Err("no state between the replay and the response".into());
        }
        Ok(())
    }

    /// Checks an update of the agent. `root`: the session itself, or the one that a subagent works
    /// for in the end. `replays`: the client waits for it to be resumed.
    ///
    /// # Errors
    /// The violation.
    pub fn update(
        &mut self,
        (session, root): (&str, &str),
        update: &Value,
        replays: bool,
    ) -> Result<(), String> {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        let is_child = session != root;
        if kind == "state_update" {
            if let Some((_, states)) = self.replayed.get_mut(session) {
                *states += 1;
            } else if replays {
                self.replayed.insert(session.into(), (0, 1));
            }
            return self.state(session, update, replays);
        }
        if kind == "replay_complete" {
            if !replays || is_child {
                return Err("the end of a replay that was not requested".into());
            }
            let (ends, states) = self.replayed.entry(session.into()).or_default();
            *ends += 1;
            *states = 0;
            return Ok(());
        }
        if OF_A_TURN.contains(&kind)
            && self.replayed.get(root).is_some_and(|(ends, _)| *ends > 0)
            && replays
            && !self.turns.contains_key(root)
        {
            return Err("history after the end of its replay".into());
        }
        let works = self.is_running(session);
        if OF_A_TURN.contains(&kind) && !works && !replays {
            return Err("a turn speaks although the session is idle".into());
        }
        // A question before the prompt is part of the conversation is a call; text is an answer to
        // it.
        let inserted = self.turns.get(root).is_some_and(|turns| *turns > 0);
        if kind.starts_with("agent_") && !inserted && !replays {
            return Err("the agent speaks before the prompt is part of the conversation".into());
        }
        let key = |member: &str| {
            (
                session.to_owned(),
                update[member].as_str().unwrap_or_default().to_owned(),
            )
        };
        match kind {
            "tool_call_update" => {
                for member in ["rawInput", "rawOutput"] {
                    if update.get(member).is_some_and(|value| !value.is_object()) {
                        return Err(format!("{member} is no object"));
                    }
                }
                let status = update["status"].as_str();
                let before = self.calls.get(&key("toolCallId")).map(String::as_str);
                let over = matches!(before, Some("completed" | "failed" | "cancelled"));
                if over && !replays && matches!(status, Some("pending" | "in_progress")) {
                    return Err("a call that had ended goes on".into());
                }
                if before.is_none() || status.is_some() {
                    self.calls
                        .insert(key("toolCallId"), status.unwrap_or("pending").into());
                }
                Ok(())
            }
            "terminal_update" => {
                self.terminals.insert(key("terminalId"));
                Ok(())
            }
            "terminal_output_chunk" if !self.terminals.contains(&key("terminalId")) => {
                Err("output of a terminal that was never begun".into())
            }
            _ => Ok(()),
        }
    }

    fn state(&mut self, session: &str, update: &Value, replays: bool) -> Result<(), String> {
        let state = update["state"].as_str().unwrap_or_default();
        let before = self.states.insert(session.into(), state.into());
        if state != "idle" {
            return Ok(());
        }
        if update["stopReason"].is_null() {
            return if replays {
                Ok(())
            } else {
                Err("a turn ends without a reason".into())
            };
        }
        // A replay has only the end of a subagent's turn.
        if !replays && before.as_deref().is_none_or(|before| before == "idle") {
            return Err("a turn ends that had not begun".into());
        }
        if let Some(turns) = self.turns.get_mut(session) {
            *turns = turns.saturating_sub(1);
        }
        let open = |status: &String| matches!(status.as_str(), "pending" | "in_progress");
        let open: Vec<_> = self
            .calls
            .iter()
            .filter(|((of, _), status)| of == session && open(status))
            .collect();
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "calls are left open at the end of the turn: {open:?}"
            ))
        }
    }

    /// Checks a permission request of the agent.
    ///
    /// # Errors
    /// The violation.
    pub fn permission(&self, session: &str, params: &Value) -> Result<(), String> {
        if params["title"].as_str().is_none_or(str::is_empty)
            || params["description"].as_str().is_none_or(str::is_empty)
        {
            return Err("a permission request wants a title and a description".into());
        }
        let call = params["subject"]["toolCall"]["toolCallId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !self.calls.contains_key(&(session.to_owned(), call)) {
            return Err("permission is asked for a call that was never announced".into());
        }
        Ok(())
    }
}
