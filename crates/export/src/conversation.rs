//! Renders a session as Markdown: prompts, answers, and the titles of calls.

use crate::html::exit;
use crate::undone_note;
use base::environment::Timestamp;
use base::id::SessionId;
use store::StoredSession;
use transcript::{Call, CallState, Content, Message, Role, ToolKind};

/// Returns the Markdown of a session, with a note in place of undone turns. `children` are the
/// sessions of its subagents.
pub fn markdown(stored: &StoredSession, children: &[SessionId]) -> String {
    let record = &stored.record;
    let mut out = format!(
        "# {}\n\n{}  {}  {}\n",
        record.title.as_deref().unwrap_or("(no title)"),
        record.id,
        minute(record.updated),
        record.cwd.display()
    );
    if let Some(summary) = record.description() {
        out += &format!("\n## Summary\n\n{}\n", summary.trim());
    }
    for damage in &stored.damage {
        out += &format!("\n> {damage}\n");
    }
    if let Some(note) = undone_note(stored) {
        out += &format!("\n> {note}\n");
    }
    let shown = store::visible(&stored.messages, &stored.record.undone);
    let mut speaker = String::new();
    // True if the last part was a call, so that the next call belongs to the same list.
    let mut is_list = false;
    for message in stored.messages.iter().take(shown) {
        let next = match &message.role {
            Role::User(_) => "You".to_owned(),
            Role::Assistant(assistant) => format!("Assistant ({})", assistant.model),
        };
        // The steps of a turn are one answer.
        let begins = next != speaker || message.user().is_some();
        let mut is_still_list = is_list && !begins;
        let mut text = parts(message, &mut is_still_list);
        if let Some(fault) = message.assistant().and_then(|answer| answer.fault.as_ref()) {
            text += &format!("\n> {}\n", fault.message);
            is_still_list = false;
        }
        if text.is_empty() {
            continue;
        }
        is_list = is_still_list;
        if begins {
            out += &format!("\n## {next}\n");
            speaker = next;
        }
        out += &text;
    }
    for child in children {
        out += &format!("\nDelegated: {child}\n");
    }
    out
}

/// Returns the Markdown of a message. `is_list` is whether the part before it was a call, and
/// afterwards whether its last part was one.
fn parts(message: &Message, is_list: &mut bool) -> String {
    let mut text = String::new();
    for part in &message.parts {
        // Calls that follow each other are one list.
        let was_list = std::mem::take(is_list);
        match &part.content {
            Content::Text(words) if !words.synthetic && !words.text.trim().is_empty() => {
                text += &format!("\n{}\n", words.for_display().trim());
            }
            Content::Tool(call) => {
                let state = match &call.state {
                    CallState::Completed(done) => exit(done),
                    CallState::Failed { .. } => "failed".to_owned(),
                    CallState::Pending | CallState::Running { .. } => "not ended".to_owned(),
                };
                let separator = if state.is_empty() { "" } else { " — " };
                if !was_list {
                    text.push('\n');
                }
                text += &format!("- {}{separator}{state}\n", title(call));
                *is_list = true;
            }
            Content::File(file) => {
                text += &format!(
                    "\n(attached: {})\n",
                    file.name
                        .as_deref()
                        .or(file.uri.as_deref())
                        .unwrap_or(&file.mime)
                );
            }
            // They have no text here, and separate nothing.
            _ => *is_list = was_list,
        }
    }
    text
}

/// Returns the title of a call; that of a command is code, in which nothing is markup.
fn title(call: &Call) -> String {
    if call.kind == ToolKind::Execute && !call.title.contains('`') {
        return format!("`{}`", call.title);
    }
    call.title.clone()
}

/// Formats a time to the minute, in UTC.
pub fn minute(at: Timestamp) -> String {
    at.iso()
        .replace('T', " ")
        .get(..16)
        .unwrap_or_default()
        .to_owned()
}
