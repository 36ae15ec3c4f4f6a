//! Renders a session as Markdown: prompts, answers, and calls.

use std::path::Path;

use crate::markdown::{push_block, verbatim, verbatim_line, with_lower_headings};
use crate::undone_note;
use base::environment::Timestamp;
use base::id::SessionId;
use base::text;
use store::StoredSession;
use transcript::{
    Call, CallFacts, CallState, Change, Completed, Content, FailureCause, Message, Part, Role,
    ToolKind,
};

/// The lines shown of the output of a command that succeeded, from its end.
const MAX_OUTPUT_LINES: usize = 3;
/// The lines shown of the output of a call that failed, from its end.
const MAX_FAILED_OUTPUT_LINES: usize = 10;
/// The lines shown of the change of a file.
const MAX_CHANGE_LINES: usize = 40;
/// The hidden lines that are shown all the same: a line about them would not be shorter.
const MAX_SPARED_LINES: usize = 2;

/// The end of a call with an error.
pub const FAILED: &str = "failed";

/// The details of the calls in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDetail {
    /// The titles, and how they have ended.
    Titles,
    /// Whole commands, the ends of outputs and the changes of files, as a run shows them.
    Results,
    /// The same with all lines, as an export has them.
    Full,
}

impl CallDetail {
    /// Returns the number of lines shown of a text that is usually cut to `limit` lines.
    fn limit(self, limit: usize) -> usize {
        match self {
            Self::Titles | Self::Results => limit,
            Self::Full => usize::MAX,
        }
    }
}

/// A part of a conversation.
#[derive(Debug)]
pub enum ConversationPart<'a> {
    /// Markdown, which begins with a blank line.
    Text(String),
    /// The same, as a model wrote it.
    Answer(String),
    /// A prompt as it was typed, which is not Markdown.
    Prompt(String),
    Call(&'a Call),
}

/// Returns the Markdown of a session, with a note in place of undone turns. `children` are the
/// sessions of its subagents.
pub fn markdown(stored: &StoredSession, children: &[SessionId], detail: CallDetail) -> String {
    let calls = CallList {
        detail,
        root: &stored.record.cwd,
    };
    let mut out = String::new();
    // Calls that follow each other are one list.
    let mut is_list = false;
    for part in parts(stored, children) {
        match part {
            ConversationPart::Text(text) => {
                out.push_str(&text);
                is_list = false;
            }
            ConversationPart::Answer(text) => {
                out.push_str(&with_lower_headings(&text));
                is_list = false;
            }
            ConversationPart::Prompt(text) => {
                out += &format!("\n{}\n", verbatim(&text));
                is_list = false;
            }
            ConversationPart::Call(call) => {
                if !std::mem::replace(&mut is_list, true) {
                    out.push('\n');
                }
                calls.push_call(call, &mut out);
            }
        }
    }
    out
}

/// Returns the parts of a session: its title, prompts, answers and calls.
pub fn parts<'a>(stored: &'a StoredSession, children: &[SessionId]) -> Vec<ConversationPart<'a>> {
    let record = &stored.record;
    let mut head = format!(
        "# {}\n\n{}  {}  {}\n",
        verbatim_line(record.title.as_deref().unwrap_or("(no title)")),
        record.id,
        minute(record.updated),
        record.cwd.display()
    );
    if let Some(summary) = record.description() {
        head += &format!("\n## Summary\n\n{}\n", summary.trim());
    }
    for damage in &stored.damage {
        head += &format!("\n> {damage}\n");
    }
    if let Some(note) = undone_note(stored) {
        head += &format!("\n> {note}\n");
    }
    let mut out = vec![ConversationPart::Text(head)];
    let shown = store::visible(&stored.messages, &stored.record.undone);
    let mut speaker = String::new();
    for message in stored.messages.iter().take(shown) {
        let next = match &message.role {
            Role::User(_) => "You".to_owned(),
            Role::Assistant(assistant) => format!("Assistant ({})", assistant.model),
        };
        let mut parts: Vec<ConversationPart<'_>> = message
            .parts
            .iter()
            .filter_map(|part| conversation_part(message, part))
            .collect();
        if let Some(fault) = message.assistant().and_then(|said| said.fault.as_ref()) {
            parts.push(ConversationPart::Text(format!("\n> {}\n", fault.message)));
        }
        if parts.is_empty() {
            continue;
        }
        // The steps of a turn are one answer.
        if next != speaker || message.user().is_some() {
            out.push(ConversationPart::Text(format!("\n## {next}\n")));
            speaker = next;
        }
        out.extend(parts);
    }
    for child in children {
        out.push(ConversationPart::Text(format!("\nDelegated: {child}\n")));
    }
    out
}

/// Returns the last prompt, and the text of its answer after the last call.
pub fn last_exchange(stored: &StoredSession) -> Option<(String, String)> {
    let shown = store::visible(&stored.messages, &stored.record.undone);
    let mut last: Option<(String, String)> = None;
    for message in stored.messages.iter().take(shown) {
        let parts = message.parts.iter();
        for part in parts.filter_map(|part| conversation_part(message, part)) {
            match (part, &mut last) {
                (ConversationPart::Prompt(prompt), _) => last = Some((prompt, String::new())),
                (ConversationPart::Call(_), Some((_, answer))) => answer.clear(),
                (
                    ConversationPart::Text(more) | ConversationPart::Answer(more),
                    Some((_, answer)),
                ) => answer.push_str(&more),
                _ => {}
            }
        }
    }
    last
}

/// Returns a part of a message as it is shown, if it is.
fn conversation_part<'a>(message: &Message, part: &'a Part) -> Option<ConversationPart<'a>> {
    match &part.content {
        Content::Text(words) if !words.synthetic && !words.text.trim().is_empty() => {
            let words = words.for_display();
            if message.user().is_some() {
                let typed = text::without_blank_ends(&words);
                return Some(ConversationPart::Prompt(typed.to_owned()));
            }
            Some(ConversationPart::Answer(format!("\n{}\n", words.trim())))
        }
        Content::Tool(call) => Some(ConversationPart::Call(call)),
        Content::File(file) => {
            let name = file.name.as_deref().or(file.uri.as_deref());
            let name = name.unwrap_or(&file.mime);
            Some(ConversationPart::Text(format!("\n(attached: {name})\n")))
        }
        _ => None,
    }
}

/// The form of the calls in a conversation.
struct CallList<'a> {
    detail: CallDetail,
    /// The directory that paths are relative to.
    root: &'a Path,
}

impl CallList<'_> {
    /// Appends a call as an item of a list.
    fn push_call(&self, call: &Call, text: &mut String) {
        let state = ending(call);
        let separator = if state.is_empty() { "" } else { " — " };
        let command = match self.detail {
            CallDetail::Titles => None,
            CallDetail::Results | CallDetail::Full => command(call),
        };
        // A command of several lines is no inline code.
        let is_long = command.is_some_and(|command| command.trim_end().contains('\n'));
        let title = match command {
            Some(command) if !is_long => code(command.trim_end()),
            _ => title(call),
        };
        let mark = if has_failed(call) { "✗ " } else { "" };
        *text += &format!("- {mark}{title}{separator}{state}\n");
        if let Some(answers) = answers(call) {
            push_item_block("text", answers, text);
        }
        if self.detail == CallDetail::Titles {
            return;
        }
        if is_long && let Some(command) = command {
            push_item_block("sh", command, text);
        }
        match &call.state {
            CallState::Completed(done) => {
                if call.kind == ToolKind::Execute {
                    let limit = if exit(done).is_empty() {
                        MAX_OUTPUT_LINES
                    } else {
                        MAX_FAILED_OUTPUT_LINES
                    };
                    let printed = done.display.as_deref().unwrap_or(&done.output);
                    push_end(printed, self.detail.limit(limit), text);
                }
                for change in &done.changes {
                    self.push_change(change, text);
                }
            }
            CallState::Failed { error, .. } => {
                push_end(error, self.detail.limit(MAX_FAILED_OUTPUT_LINES), text);
            }
            CallState::Running { printed, .. } => {
                let printed = printed.as_deref().unwrap_or_default();
                push_end(printed, self.detail.limit(MAX_FAILED_OUTPUT_LINES), text);
            }
            CallState::Pending => {}
        }
    }

    /// Appends the change of a file as a patch.
    fn push_change(&self, change: &Change, text: &mut String) {
        let path = Path::new(&change.path);
        let path = path
            .strip_prefix(self.root)
            .unwrap_or(path)
            .display()
            .to_string();
        let path = path.trim_start_matches('/');
        let from = match change.old {
            Some(_) => format!("a/{path}"),
            None => "/dev/null".to_owned(),
        };
        let unified = change.lines().unified(Some((&from, &format!("b/{path}"))));
        let mut lines: Vec<&str> = unified.lines().collect();
        if lines.is_empty() {
            return;
        }
        let limit = self.detail.limit(MAX_CHANGE_LINES);
        let hidden = lines.len().saturating_sub(limit);
        let more = format!("… {}", text::count(hidden, "more line"));
        if hidden > MAX_SPARED_LINES {
            lines.truncate(limit);
            lines.push(&more);
        }
        push_item_block("diff", &lines.join("\n"), text);
    }
}

/// Returns the user's answers to the questions of a call, one in each line.
pub fn answers(call: &Call) -> Option<&str> {
    let CallState::Completed(done) = &call.state else {
        return None;
    };
    if !done.facts.details.contains_key(CallFacts::ANSWERS) {
        return None;
    }
    done.display.as_deref()
}

/// Returns whether a call has ended without success.
pub fn has_failed(call: &Call) -> bool {
    match &call.state {
        CallState::Completed(done) => !exit(done).is_empty(),
        CallState::Failed { .. } => true,
        CallState::Running { .. } | CallState::Pending => false,
    }
}

/// Describes the end of a call in a word or two; empty if it succeeded.
pub fn ending(call: &Call) -> String {
    /// The beginning of the error of a call that the user rejected with a reason, which the model
    /// got.
    const REJECTION: &str = "The user rejected this tool call";
    let state = match &call.state {
        CallState::Completed(done) => return exit(done),
        CallState::Failed { cause, error, .. } => match cause {
            FailureCause::Rejected => "rejected",
            FailureCause::Unanswered => "not allowed: no user to ask",
            FailureCause::Cancelled => "cancelled",
            FailureCause::ProcessEnded => "interrupted",
            FailureCause::NotBegun => "not begun",
            FailureCause::Error if error.starts_with(REJECTION) => "rejected",
            FailureCause::Error => FAILED,
        },
        CallState::Pending | CallState::Running { .. } => "not ended",
    };
    state.to_owned()
}

/// Describes an unsuccessful end of a command; empty for any other call.
pub(crate) fn exit(done: &Completed) -> String {
    let Some(exit) = &done.facts.exit else {
        return String::new();
    };
    match (exit.code, &exit.signal) {
        (Some(0), _) | (None, None) => String::new(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
    }
}

/// Returns the whole command line of a call that runs one.
pub fn command(call: &Call) -> Option<&str> {
    if call.kind != ToolKind::Execute {
        return None;
    }
    call.input.get("command")?.as_str()
}

/// Appends the last lines of a text, and the number of the others.
fn push_end(printed: &str, limit: usize, text: &mut String) {
    let lines: Vec<&str> = printed.trim_end().lines().collect();
    if lines.is_empty() {
        return;
    }
    let hidden = lines.len().saturating_sub(limit);
    let hidden = if hidden <= MAX_SPARED_LINES {
        0
    } else {
        hidden
    };
    let mut shown = lines[hidden..].join("\n");
    if hidden > 0 {
        shown = format!("… {} before\n{shown}", text::count(hidden, "line"));
    }
    push_item_block("text", &shown, text);
}

/// Appends a block of code to an item of a list.
fn push_item_block(language: &str, block: &str, text: &mut String) {
    text.push('\n');
    push_block(language, block, "  ", text);
}

/// Returns the title of a call; that of a command is code, in which nothing is markup.
fn title(call: &Call) -> String {
    if call.kind == ToolKind::Execute {
        return code(&call.title);
    }
    call.title.clone()
}

/// Returns a text as inline code, with delimiters longer than any run of backticks in it.
fn code(text: &str) -> String {
    let runs = text.split(|c| c != '`').map(str::len);
    let mark = "`".repeat(runs.max().unwrap_or_default() + 1);
    let is_inside = text.starts_with('`') || text.ends_with('`');
    let blank = if is_inside { " " } else { "" };
    format!("{mark}{blank}{text}{blank}{mark}")
}

/// Formats a time to the minute, in UTC.
pub fn minute(at: Timestamp) -> String {
    at.iso()
        .replace('T', " ")
        .get(..16)
        .unwrap_or_default()
        .to_owned()
}
