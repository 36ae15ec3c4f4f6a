//! `adjutant sessions show`: at a terminal the conversation as its runs have shown it, in a pipe as
//! Markdown or JSON.

use std::borrow::Cow;
use std::path::Path;

use anstyle::Style;

use super::document;
use crate::cli::call_view::{
    CallOutput, EndedCall, MAX_GOOD_OUTPUT_LINES, MAX_OUTPUT_LINES, ShownLines, push_lines,
};
use crate::cli::terminal;
use crate::cli::terminal::style::{BAD, FAINT};
use crate::cli::terminal::styled::{MAX_CHANGE_LINES, Palette, Styled};
use base::environment::Environment;
use base::id::SessionId;
use export::conversation::{self, CallDetail, ConversationPart};
use store::{Store, StoredSession};
use tools::denial_message::NOT_ALLOWED;
use tools::failure_text::for_user;
use transcript::{Call, CallState, ToolKind};

/// Prints a session. `is_full`: with all lines of outputs and changes.
pub(super) async fn show(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    is_full: bool,
    json: bool,
) -> anyhow::Result<u8> {
    let stored = store.peek(id).await?;
    let children = store.children(id).await?;
    if json {
        let document = document::conversation(&stored, &children);
        terminal::json(&serde_json::to_string_pretty(&document)?);
        return Ok(0);
    }
    if terminal::is_watched() {
        let palette = terminal::palette(environment);
        terminal::show(&rendered(&stored, &children, palette, is_full));
        return Ok(0);
    }
    let detail = if is_full {
        CallDetail::Full
    } else {
        CallDetail::Results
    };
    terminal::say(&conversation::markdown(&stored, &children, detail));
    Ok(0)
}

/// Renders a session. `is_full`: outputs and changes have all their lines.
fn rendered(
    stored: &StoredSession,
    children: &[SessionId],
    palette: Palette,
    is_full: bool,
) -> Styled {
    let root = &stored.record.cwd;
    let mut hint = Some(format!(
        "adjutant sessions show --full {}",
        stored.record.id
    ));
    let mut out = Styled::default();
    let mut text = String::new();
    let mut follows_call = false;
    for part in conversation::parts(stored, children) {
        match part {
            ConversationPart::Text(more) | ConversationPart::Answer(more) => {
                text.push_str(&more);
            }
            ConversationPart::Prompt(typed) => {
                push_text(&std::mem::take(&mut text), palette, &mut out);
                out.push(&Palette::plain("\n"));
                let lines = palette.lines(&typed, |_line| Style::new());
                out.push(&lines.wrapped_to_terminal());
                follows_call = false;
            }
            ConversationPart::Call(call) => {
                if !text.is_empty() || !follows_call {
                    push_text(&std::mem::take(&mut text), palette, &mut out);
                    out.push(&Palette::plain("\n"));
                }
                follows_call = true;
                push_call(call, root, palette, is_full, &mut hint, &mut out);
            }
        }
    }
    push_text(&text, palette, &mut out);
    out
}

/// Appends Markdown, after a blank line unless it is the beginning.
fn push_text(text: &str, palette: Palette, out: &mut Styled) {
    if text.trim().is_empty() {
        return;
    }
    if !out.as_str().is_empty() {
        out.push(&Palette::plain("\n"));
    }
    out.push(&palette.markdown(text.trim_start_matches('\n'), 0));
}

fn push_call(
    call: &Call,
    root: &Path,
    palette: Palette,
    is_full: bool,
    hint: &mut Option<String>,
    out: &mut Styled,
) {
    let has_failed = conversation::has_failed(call);
    let failure = match conversation::ending(call) {
        ending if ending.is_empty() || ending == conversation::FAILED => None,
        ending if matches!(call.state, CallState::Completed(_)) => Some((BAD, ending)),
        ending => Some((FAINT, ending)),
    };
    let is_command = call.kind == ToolKind::Execute;
    let (printed, shown) = match &call.state {
        CallState::Completed(done) if is_command => {
            let limit = if has_failed {
                MAX_OUTPUT_LINES
            } else {
                MAX_GOOD_OUTPUT_LINES
            };
            let printed = done.display.as_deref().unwrap_or(&done.output);
            (Some(printed.into()), ShownLines::Last(limit))
        }
        CallState::Completed(_) => (conversation::answers(call).map(Cow::from), ShownLines::All),
        CallState::Failed { error, .. } if is_full => {
            (Some(Cow::from(error.as_str())), ShownLines::All)
        }
        CallState::Failed { error, .. } if is_command && !error.starts_with(NOT_ALLOWED) => (
            Some(Cow::from(error.as_str())),
            ShownLines::Last(MAX_OUTPUT_LINES),
        ),
        CallState::Failed { error, .. } => (
            Some(for_user(error).into()),
            ShownLines::First(MAX_OUTPUT_LINES),
        ),
        CallState::Running { printed, .. } => (
            printed.as_deref().map(Cow::from),
            ShownLines::Last(MAX_OUTPUT_LINES),
        ),
        CallState::Pending => (None, ShownLines::All),
    };
    let command = conversation::command(call).map(str::trim);
    let (title, script) = match command {
        Some(command) if command.contains('\n') => (call.title.as_str(), command),
        Some(command) => (command, ""),
        None => (call.title.as_str(), ""),
    };
    let ended = EndedCall {
        title,
        has_failed,
        failure,
        time: None,
        output: None,
    };
    let mut shown_call = ended.render(palette, hint);
    if is_full {
        let lines: Vec<&str> = script.lines().collect();
        push_lines(palette, Style::new(), &lines, &mut shown_call);
    }
    if let Some(text) = printed {
        let output = CallOutput {
            text: &text,
            shown: if is_full { ShownLines::All } else { shown },
            whole: None,
        };
        output.push(palette, hint, &mut shown_call);
    }
    out.push(&shown_call.wrapped_to_terminal());
    out.push(&Palette::plain("\n"));
    let CallState::Completed(done) = &call.state else {
        return;
    };
    let limit = if is_full {
        usize::MAX
    } else {
        MAX_CHANGE_LINES
    };
    for change in &done.changes {
        let path = Path::new(&change.path);
        let path = path.strip_prefix(root).unwrap_or(path);
        let path = path.display().to_string();
        out.push(&palette.change(&path, &change.lines(), 4, limit));
    }
}
