//! Whole sessions under new names: forks, and imports whose name is taken. Pure but for the ids.

use std::collections::HashMap;

use super::{Record, StoredSession, TitleSource, visible};
use crate::environment::Environment;
use crate::id::{CallId, MessageId, PartId, SessionId};
use crate::message::{Content, Message, Role};

/// A session that begins with another one's history: same words, agent, model, plan and permissions
/// (those belong to the project and the agent), names of its own.
pub fn forked(from: &StoredSession, environment: &Environment) -> StoredSession {
    let now = environment.now();
    let mut fork = renamed(from, environment);
    // What is undone is not part of the conversation that goes on.
    fork.messages.truncate(visible(&fork.messages, &fork.record.undone));
    let title = from.record.title.as_deref().map(fork_title);
    fork.record = Record {
        titled: if title.is_some() { TitleSource::User } else { TitleSource::Words },
        title,
        parent: None,
        depth: 0,
        created: now,
        updated: now,
        undone_cost: None,
        undone: Vec::new(),
        past_undos: Vec::new(),
        ..fork.record
    };
    fork
}

/// The same session with fresh ids throughout.
pub fn renamed(from: &StoredSession, environment: &Environment) -> StoredSession {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut messages = from.messages.clone();
    for message in &mut messages {
        let id = environment.fresh(MessageId::PREFIX);
        names.insert(message.id.to_string(), id.clone());
        message.id = MessageId::new(id);
        for part in &mut message.parts {
            part.id = PartId::new(environment.fresh(PartId::PREFIX));
            if let Content::Tool(call) = &mut part.content {
                call.call = CallId::new(environment.fresh(CallId::PREFIX));
            }
        }
    }
    let new = |old: &MessageId| names.get(old.as_str()).map_or_else(|| old.clone(), |new| MessageId::new(new.as_str()));
    messages.iter_mut().for_each(|message| point(message, &new));
    let id = SessionId::new(environment.fresh(SessionId::PREFIX));
    let mut record = Record { id, ..from.record.clone() };
    record.undone.iter_mut().for_each(|undone| undone.from = new(&undone.from));
    StoredSession { record, messages, damage: Vec::new() }
}

/// Lets a message's references follow.
fn point(message: &mut Message, new: &dyn Fn(&MessageId) -> MessageId) {
    if let Role::Assistant(assistant) = &mut message.role {
        assistant.parent = new(&assistant.parent);
    }
    for part in &mut message.parts {
        if let Content::Compaction(compaction) = &mut part.content
            && let Some(tail) = &mut compaction.tail
        {
            *tail = new(tail);
        }
    }
}

/// "X (fork #1)"; the fork of "X (fork #3)" is "X (fork #4)".
fn fork_title(title: &str) -> String {
    let numbered = title.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (fork #"));
    match numbered.and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?))) {
        Some((name, n)) => format!("{name} (fork #{})", n.saturating_add(1)),
        None => format!("{title} (fork #1)"),
    }
}

#[cfg(test)]
mod tests {
    use super::fork_title;

    #[test]
    fn forks_are_numbered() {
        for (title, fork) in
            [("A", "A (fork #1)"), ("A (fork #1)", "A (fork #2)"), ("A (fork #x)", "A (fork #x) (fork #1)")]
        {
            assert_eq!(fork_title(title), fork);
        }
    }
}
