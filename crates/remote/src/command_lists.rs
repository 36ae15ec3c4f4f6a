//! The lists of commands that servers send in the sessions of a client. A server to which a session
//! moves knows neither the list that the client has, nor the answer that it is being shown.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;

/// The lists of commands of the client's sessions, by session.
#[derive(Debug, Default)]
pub(super) struct CommandLists(HashMap<String, SessionCommands>);

#[derive(Debug)]
struct SessionCommands {
    /// The list that the client has.
    shown: Value,
    /// A different list, with its line, that is held until the client's prompts are answered.
    held: Option<(Value, Bytes)>,
}

impl CommandLists {
    /// Records a list that a server has sent in a session. Returns its line if the client is to get
    /// it now: not if the client has an equal list, and not within an answer, which some clients
    /// show as ended then.
    pub(super) fn receive(
        &mut self,
        session: String,
        list: Value,
        line: Bytes,
        is_waiting: bool,
    ) -> Option<Bytes> {
        let Some(commands) = self.0.get_mut(&session) else {
            // A server sends the first list before the first answer.
            let first = SessionCommands {
                shown: list,
                held: None,
            };
            self.0.insert(session, first);
            return Some(line);
        };
        commands.held = None;
        if commands.shown == list {
            return None;
        }
        if is_waiting {
            commands.held = Some((list, line));
            return None;
        }
        commands.shown = list;
        Some(line)
    }

    /// Takes the lines with the held lists of sessions that wait for no answer.
    pub(super) fn take_due(&mut self, is_waiting: impl Fn(&str) -> bool) -> Vec<Bytes> {
        let mut due = Vec::new();
        for (session, commands) in &mut self.0 {
            if commands.held.is_none() || is_waiting(session) {
                continue;
            }
            if let Some((list, line)) = commands.held.take() {
                commands.shown = list;
                due.push(line);
            }
        }
        due
    }

    /// Forgets the list of a session that is closed, or that the client opens again: it then gets
    /// the list again.
    pub(super) fn forget(&mut self, session: &str) {
        self.0.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives the list with one command. Returns whether the client gets it now.
    fn receives(lists: &mut CommandLists, name: &'static str, is_waiting: bool) -> bool {
        let line = Bytes::from_static(name.as_bytes());
        let passed = lists.receive("s".into(), name.into(), line.clone(), is_waiting);
        assert!(passed.is_none() || passed == Some(line));
        passed.is_some()
    }

    #[test]
    fn different_list_waits_for_the_end_of_the_answer() {
        // The lists received while the client waits for an answer, after it got the list `a`, and
        // the list that it gets afterwards.
        for (received, due) in [
            (&["a"][..], None),
            (&["b"], Some("b")),
            (&["b", "c"], Some("c")),
            (&["b", "a"], None),
        ] {
            let mut lists = CommandLists::default();
            assert!(receives(&mut lists, "a", true), "the client has no list");
            for list in received {
                assert!(!receives(&mut lists, list, true), "{received:?}");
            }
            assert_eq!(lists.take_due(|_| true), Vec::<Bytes>::new());
            let taken = lists.take_due(|_| false);
            assert_eq!(taken, Vec::from_iter(due), "{received:?}");
            assert_eq!(lists.take_due(|_| false), Vec::<Bytes>::new());
            let has = due.unwrap_or("a");
            assert!(!receives(&mut lists, has, false), "{received:?}");
            assert!(receives(&mut lists, "d", false), "{received:?}");
        }
    }

    #[test]
    fn list_of_a_session_that_is_opened_again_is_sent_again() {
        let mut lists = CommandLists::default();
        assert!(receives(&mut lists, "a", false));
        lists.forget("s");
        assert!(receives(&mut lists, "a", false));
    }
}
