//! Copies of sessions with new ids, one message at a time: forks, and imports whose id is taken.
//! Pure except for the ids.

use std::collections::HashMap;

use super::{Record, StreamedSession, TitleSource};
use base::environment::Environment;
use base::id::{CallId, MessageId, PartId, SessionId};
use transcript::{Content, Message, Role};

/// Copies a session's history, agent, model and plan into a new one. Permissions belong to the
/// project and the agent, and therefore apply to the copy.
pub fn forked(from: impl Into<StreamedSession>, environment: &Environment) -> StreamedSession {
    let from = from.into();
    let title = from.record.title.as_deref().map(fork_title);
    let record = Record {
        title_source: if title.is_some() {
            TitleSource::User
        } else {
            TitleSource::Words
        },
        title,
        ..from.record.clone().copied(environment.now())
    };
    // Undone messages are not part of the copied conversation.
    let hidden = from.record.undone.last().map(|undone| undone.from.clone());
    renamed(
        from.map_messages_while(record, move |message| {
            if Some(&message.id) == hidden.as_ref() {
                None
            } else {
                Some(message)
            }
        }),
        environment,
    )
}

/// Copies a session with new ids throughout.
pub fn renamed(from: impl Into<StreamedSession>, environment: &Environment) -> StreamedSession {
    let from = from.into();
    let mut record = Record {
        id: SessionId::new(environment.fresh(SessionId::PREFIX)),
        ..from.record.clone()
    };
    let mut names: HashMap<MessageId, MessageId> = HashMap::new();
    // The record precedes the messages that it names.
    let undone = record.undone.iter_mut().map(|undone| &mut undone.from);
    let logged = record
        .file_log
        .iter_mut()
        .filter_map(|entry| entry.after.as_mut());
    for id in undone.chain(logged) {
        let fresh = || MessageId::new(environment.fresh(MessageId::PREFIX));
        *id = names.entry(id.clone()).or_insert_with(fresh).clone();
    }
    let environment = environment.clone();
    from.map_messages_while(record, move |mut message| {
        let fresh = || MessageId::new(environment.fresh(MessageId::PREFIX));
        message.id = names
            .entry(message.id.clone())
            .or_insert_with(fresh)
            .clone();
        for part in &mut message.parts {
            part.id = PartId::new(environment.fresh(PartId::PREFIX));
            match &mut part.content {
                Content::Tool(call) => {
                    call.call = CallId::new(environment.fresh(CallId::PREFIX));
                }
                // It may be a later message.
                Content::Patch {
                    late: Some(late), ..
                } => {
                    let after = names.entry(late.after.clone()).or_insert_with(fresh);
                    late.after = after.clone();
                }
                _ => {}
            }
        }
        // The other references point to earlier messages only.
        replace_references(&mut message, &|old| names.get(old).unwrap_or(old).clone());
        Some(message)
    })
}

/// Replaces the message ids that a message refers to.
fn replace_references(message: &mut Message, new: &dyn Fn(&MessageId) -> MessageId) {
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

/// Returns "X (fork #1)" for "X", and "X (fork #4)" for "X (fork #3)".
fn fork_title(title: &str) -> String {
    let numbered = title
        .strip_suffix(')')
        .and_then(|rest| rest.rsplit_once(" (fork #"));
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
        for (title, fork) in [
            ("A", "A (fork #1)"),
            ("A (fork #1)", "A (fork #2)"),
            ("A (fork #x)", "A (fork #x) (fork #1)"),
        ] {
            assert_eq!(fork_title(title), fork);
        }
    }
}
