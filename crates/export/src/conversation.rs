//! Renders a session as Markdown: prompts, answers, and the titles of calls.

use base::environment::Timestamp;
use base::id::SessionId;
use store::StoredSession;
use transcript::{CallState, Content, Message, Role};

/// Returns the Markdown of a session. `children` are the sessions of its subagents.
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
    for message in &stored.messages {
        let mut text = parts(message);
        match &message.role {
            Role::User(_) if !text.is_empty() => out += &format!("\n## You\n{text}"),
            Role::Assistant(assistant) => {
                if let Some(fault) = &assistant.fault {
                    text += &format!("\n> {}\n", fault.message);
                }
                out += &text;
            }
            Role::User(_) => {}
        }
    }
    for child in children {
        out += &format!("\nDelegated: {child}\n");
    }
    out
}

fn parts(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        match &part.content {
            Content::Text(words) if !words.synthetic && !words.text.trim().is_empty() => {
                text += &format!("\n{}\n", words.for_display().trim());
            }
            Content::Tool(call) => {
                let state = match &call.state {
                    CallState::Completed(_) => "",
                    CallState::Failed { .. } => " — failed",
                    CallState::Pending | CallState::Running { .. } => " — not ended",
                };
                text += &format!("\n- {}{state}\n", call.title);
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
            _ => {}
        }
    }
    text
}

/// Formats a time to the minute, in UTC.
pub fn minute(at: Timestamp) -> String {
    at.iso()
        .replace('T', " ")
        .get(..16)
        .unwrap_or_default()
        .to_owned()
}
