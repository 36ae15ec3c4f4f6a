//! Tool calls as `tool_call_update` and terminals as `terminal_update`, for both live and replayed
//! events.
//!
//! In version 2 an absent field is unchanged, and an update with an unknown id creates a call or a
//! terminal. A command has a terminal with the same id from its first update on.

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

/// The calls of a session that the client was sent, with the content of those that have not ended.
#[derive(Debug, Default)]
pub(super) struct ToolCallViews {
    all: HashMap<CallId, ShownCall>,
}

impl ToolCallViews {
    /// Adds the updates for a change of a call.
    pub(super) fn updates(&mut self, update: &CallUpdate, out: &mut Vec<v2::SessionUpdate>) {
        let Some(id) = &update.call else { return };
        let is_first = !self.all.contains_key(id);
        let call = self.all.entry(id.clone()).or_default();
        if let Some(kind) = update.kind {
            call.kind = kind;
            call.has_terminal = kind == ToolKind::Execute;
        }
        let mut has_changed = call.apply_update(update) | std::mem::take(&mut call.holds_changes);
        // The question that may follow shows these changes, so they are held back.
        if has_changed && call.hold_changes(update) {
            has_changed = false;
        }
        let is_over = update.progress.is_some_and(Progress::is_over);
        has_changed |= is_first || (is_over && call.has_terminal);
        if call.has_terminal {
            out.extend(first_terminal_update(id, update));
        }
        let mut out_call = fields(id, update, is_first, call.take_new_name(update));
        let shown = call.content();
        // A new call has no content until an update sets it.
        if has_changed && !call.holds_changes && !(is_first && shown.is_empty()) {
            out_call = out_call.content(encode_contents(shown, id));
        }
        if call.has_terminal
            && let Some(output) = call.terminal_output(update, is_over)
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
        if is_over
            && call.has_terminal
            && let Some(ProgramExit { code, signal }) = call.take_terminal_exit(update)
        {
            let exit = v2::TerminalExitStatus::new()
                .exit_code(code.map(i64::from))
                .signal(signal);
            out.push(terminal(
                v2::TerminalUpdate::new(id.share()).exit_status(exit),
            ));
        }
        if out_call != v2::ToolCallUpdate::new(id.share()) {
            out.push(v2::SessionUpdate::ToolCallUpdate(out_call));
        }
        if is_over {
            // The id stays known, so that a late change does not send the kind again; the content
            // is dropped.
            call.clear_ended();
        }
    }

    /// Returns the update with which a call refers to the session of the subagent that it has
    /// started.
    pub(super) fn link_session(
        &mut self,
        id: &CallId,
        session: &SessionId,
    ) -> Option<v2::SessionUpdate> {
        let call = self.all.get_mut(id)?;
        if !call.link_session(session) {
            return None;
        }
        let update = v2::ToolCallUpdate::new(id.share());
        let update = update.content(encode_contents(call.content(), id));
        Some(v2::SessionUpdate::ToolCallUpdate(update))
    }

    /// Returns the call of a question, with the change that the user is asked to allow. The
    /// changes are sent with the call only when it ends.
    pub(super) fn question(&mut self, show: &CallUpdate) -> Option<v2::ToolCallUpdate> {
        let id = show.call.as_ref()?;
        let mut call = self.all.get(id).cloned().unwrap_or_default();
        if let Some(call) = self.all.get_mut(id) {
            call.holds_changes = false;
        }
        call.apply_question(show);
        let out_call = fields(
            id,
            &CallUpdate {
                output: None,
                metadata: None,
                ..show.clone()
            },
            true,
            show.tool.clone(),
        );
        let changes = call.changes();
        Some(if changes.is_empty() {
            out_call
        } else {
            out_call.content(encode_contents(changes, id))
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
/// only in the first update.
fn fields(
    id: &CallId,
    update: &CallUpdate,
    is_first: bool,
    name: Option<String>,
) -> v2::ToolCallUpdate {
    let locations = update.locations.as_ref().map(|locations| {
        let encode_location = |location: &events::Location| {
            v2::ToolCallLocation::new(location.path.clone()).line(location.line)
        };
        locations.iter().map(encode_location).collect::<Vec<_>>()
    });
    let sent_kind = if is_first || !update.earlier {
        update.kind
    } else {
        None
    };
    v2::ToolCallUpdate::new(id.share())
        .title(maybe_undefined(update.title.clone()))
        .name(maybe_undefined(name))
        .kind(maybe_undefined(sent_kind.map(kind)))
        .status(maybe_undefined(update.progress.map(status)))
        .locations(maybe_undefined(locations))
        .raw_input(maybe_undefined(tool_call_view::raw_input(update)))
        .raw_output(maybe_undefined(tool_call_view::raw_output(update)))
}

/// Returns an undefined field for `None`: an absent field is unchanged.
fn maybe_undefined<T>(value: Option<T>) -> protocol::acp::MaybeUndefined<T> {
    value.map_or(
        protocol::acp::MaybeUndefined::Undefined,
        protocol::acp::MaybeUndefined::Value,
    )
}

/// Encodes the content of a call. Consecutive changes become one diff.
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
