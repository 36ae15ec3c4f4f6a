//! Tool calls as `tool_call_update`, terminals as `terminal_update`, for live and replayed events
//! alike.
//!
//! An absent field is unchanged, and an unknown id creates a call or a terminal. A command has a
//! terminal of the same id from its first update on.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use protocol::acp::v2;
use serde_json::Value;

use super::content::encode_file;
use super::diff::diff;
use crate::tool_call_view::{self, ShownCall, TerminalOutput, ToolCallContent};
use base::id::{CallId, SessionId};
use events::{CallUpdate, ProgramExit, Progress, ToolKind};
use transcript::Change;

/// The state of the calls that have not ended.
#[derive(Debug, Default)]
pub(super) struct ToolCallViews {
    all: HashMap<CallId, ShownCall>,
}

impl ToolCallViews {
    /// Adds the updates for a change of a call.
    pub(super) fn updates(&mut self, update: &CallUpdate, out: &mut Vec<v2::SessionUpdate>) {
        let Some(id) = &update.call else { return };
        let first = !self.all.contains_key(id);
        let card = self.all.entry(id.clone()).or_default();
        if let Some(kind) = update.kind {
            card.kind = kind;
            card.terminal = kind == ToolKind::Execute;
        }
        let mut changed = card.apply_update(update) | std::mem::take(&mut card.holds_changes);
        // A question has the same changes.
        if changed && card.hold_changes(update) {
            changed = false;
        }
        let over = update.progress.is_some_and(Progress::is_over);
        changed |= first || (over && card.terminal);
        if card.terminal {
            out.extend(first_terminal_update(id, update));
        }
        let mut call = fields(id, update, first, card.new_name(update));
        let shown = card.content();
        // A new call has no content until an update sets it.
        if changed && !card.holds_changes && !(first && shown.is_empty()) {
            call = call.content(encode_contents(shown, id));
        }
        if card.terminal
            && let Some(output) = card.terminal_output(update, over)
        {
            out.push(match output {
                TerminalOutput::More(data) => v2::SessionUpdate::TerminalOutputChunk(
                    v2::TerminalOutputChunk::new(id.share(), BASE64.encode(data)),
                ),
                TerminalOutput::Whole(data) => terminal(
                    v2::TerminalUpdate::new(id.share())
                        .output(v2::TerminalOutput::new(BASE64.encode(data))),
                ),
            });
        }
        if over
            && card.terminal
            && let Some(ProgramExit { code, signal }) = card.terminal_exit(update)
        {
            let exit = v2::TerminalExitStatus::new()
                .exit_code(code.map(i64::from))
                .signal(signal);
            out.push(terminal(
                v2::TerminalUpdate::new(id.share()).exit_status(exit),
            ));
        }
        if call != v2::ToolCallUpdate::new(id.share()) {
            out.push(v2::SessionUpdate::ToolCallUpdate(call));
        }
        if over {
            // The id stays known, so that a late change does not send the kind again; the content
            // is dropped.
            card.end();
        }
    }

    /// Returns the update with which a call refers to the session of the subagent that it has
    /// started.
    pub(super) fn link_session(
        &mut self,
        call: &CallId,
        session: &SessionId,
    ) -> Option<v2::SessionUpdate> {
        let card = self.all.get_mut(call)?;
        if !card.link_session(session) {
            return None;
        }
        let update = v2::ToolCallUpdate::new(call.share());
        let update = update.content(encode_contents(card.content(), call));
        Some(v2::SessionUpdate::ToolCallUpdate(update))
    }

    /// Returns the call of a question, with the change that the user is asked to allow. The call
    /// does not show it again until it ends.
    pub(super) fn question(&mut self, show: &CallUpdate) -> Option<v2::ToolCallUpdate> {
        let id = show.call.as_ref()?;
        let mut card = self.all.get(id).cloned().unwrap_or_default();
        if let Some(card) = self.all.get_mut(id) {
            card.holds_changes = false;
        }
        card.apply_question(show);
        let call = fields(
            id,
            &CallUpdate {
                output: None,
                metadata: None,
                ..show.clone()
            },
            true,
            show.tool.clone(),
        );
        let changes = card.changes();
        Some(if changes.is_empty() {
            call
        } else {
            call.content(encode_contents(changes, id))
        })
    }
}

/// Returns the first update of a terminal, when the command is known.
fn first_terminal_update(id: &CallId, update: &CallUpdate) -> Option<v2::SessionUpdate> {
    let command = update
        .input
        .as_ref()?
        .get("command")
        .and_then(Value::as_str)?;
    Some(terminal(
        v2::TerminalUpdate::new(id.share()).command(command.to_owned()),
    ))
}

fn terminal(update: v2::TerminalUpdate) -> v2::SessionUpdate {
    v2::SessionUpdate::TerminalUpdate(update)
}

/// Returns all fields of an update except the content. The kind of an earlier turn's call is sent
/// only in the `first` update.
fn fields(
    id: &CallId,
    update: &CallUpdate,
    first: bool,
    name: Option<String>,
) -> v2::ToolCallUpdate {
    let locations = update.locations.as_ref().map(|locations| {
        let encode_location = |location: &events::Location| {
            v2::ToolCallLocation::new(location.path.clone()).line(location.line)
        };
        locations.iter().map(encode_location).collect::<Vec<_>>()
    });
    let sent_kind = if first || !update.earlier {
        update.kind
    } else {
        None
    };
    v2::ToolCallUpdate::new(id.share())
        .title(defined(update.title.clone()))
        .name(defined(name))
        .kind(defined(sent_kind.map(kind)))
        .status(defined(update.progress.map(status)))
        .locations(defined(locations))
        .raw_input(defined(tool_call_view::input(update)))
        .raw_output(defined(tool_call_view::result(update)))
}

/// Returns an undefined field for `None`: an absent field is unchanged.
fn defined<T>(value: Option<T>) -> protocol::acp::MaybeUndefined<T> {
    value.map_or(
        protocol::acp::MaybeUndefined::Undefined,
        protocol::acp::MaybeUndefined::Value,
    )
}

/// Encodes the content of a card. Consecutive changes become one diff.
fn encode_contents(pieces: Vec<ToolCallContent<'_>>, id: &CallId) -> Vec<v2::ToolCallContent> {
    let mut out = Vec::new();
    let mut changes: Vec<&Change> = Vec::new();
    for piece in pieces {
        let next = match piece {
            ToolCallContent::Change(change) => {
                changes.push(change);
                continue;
            }
            ToolCallContent::Text(text) => content_block(v2::ContentBlock::from(text)),
            ToolCallContent::File(file) => content_block(encode_file(file)),
            ToolCallContent::Terminal => {
                v2::ToolCallContent::Terminal(v2::Terminal::new(id.share()))
            }
            ToolCallContent::Session(session) => {
                v2::ToolCallContent::Session(v2::SessionReference::new(session.share()))
            }
        };
        out.extend(take_diff(&mut changes));
        out.push(next);
    }
    out.extend(take_diff(&mut changes));
    out
}

fn take_diff(changes: &mut Vec<&Change>) -> Option<v2::ToolCallContent> {
    let all = std::mem::take(changes);
    (!all.is_empty()).then(|| v2::ToolCallContent::Diff(diff(&all)))
}

fn content_block(block: v2::ContentBlock) -> v2::ToolCallContent {
    v2::ToolCallContent::Content(Box::new(v2::Content::new(block)))
}

fn kind(kind: ToolKind) -> v2::ToolKind {
    match kind {
        ToolKind::Read => v2::ToolKind::Read,
        ToolKind::Edit => v2::ToolKind::Edit,
        ToolKind::Delete => v2::ToolKind::Delete,
        ToolKind::Move => v2::ToolKind::Move,
        ToolKind::Search => v2::ToolKind::Search,
        ToolKind::Execute => v2::ToolKind::Execute,
        ToolKind::Think => v2::ToolKind::Think,
        ToolKind::Fetch => v2::ToolKind::Fetch,
        ToolKind::SwitchMode => v2::ToolKind::SwitchMode,
        ToolKind::Other => v2::ToolKind::Other,
    }
}

fn status(progress: Progress) -> v2::ToolCallStatus {
    match progress {
        Progress::Pending => v2::ToolCallStatus::Pending,
        Progress::Running => v2::ToolCallStatus::InProgress,
        Progress::Completed => v2::ToolCallStatus::Completed,
        Progress::Failed => v2::ToolCallStatus::Failed,
        Progress::Cancelled => v2::ToolCallStatus::Cancelled,
    }
}
