//! Tool calls as `tool_call` and `tool_call_update`, for both live and replayed events.
//!
//! In version 1 every update replaces the whole content of a call, so [`ToolCallViews`] remembers
//! the content until the call has ended. Some clients show the content of a call only from
//! `tool_call_update`, so the first of these repeats the content of `tool_call`.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::acp::v1;
use serde_json::{Map, Value, json};

use super::content::encode_file;
use crate::meta::{LINES_BEFORE, with_member};
use crate::tool_call_view::{
    self, RawText, ShownCall, ShownTerminals, TerminalOutput, ToolCallContent,
};
use base::id::{CallId, SessionId};
use events::{CallUpdate, Location, ProgramExit, Progress, ToolKind};

/// The calls of a session that the client was sent, with the content of those that have not ended.
#[derive(Debug, Default)]
pub(super) struct ToolCallViews {
    /// The client shows terminals whose output is sent in `_meta` (Zed's convention).
    shows_terminals: bool,
    shown_terminals: Arc<ShownTerminals>,
    raw_text: RawText,
    all: HashMap<CallId, ShownCall>,
}

impl ToolCallViews {
    pub(super) fn new(shows_terminals: bool, raw_text: RawText) -> Self {
        Self {
            shows_terminals,
            shown_terminals: Arc::default(),
            raw_text,
            all: HashMap::new(),
        }
    }

    pub(super) fn set_shown_terminals(&mut self, shown_terminals: Arc<ShownTerminals>) {
        self.shown_terminals = shown_terminals;
    }

    /// Returns the updates for a change of a call.
    pub(super) fn updates(&mut self, update: &CallUpdate) -> Vec<v1::SessionUpdate> {
        let Some(id) = &update.call else {
            return vec![];
        };
        let first = !update.earlier && !self.all.contains_key(id);
        let call = self.all.entry(id.clone()).or_default();
        if let Some(kind) = update.kind {
            call.kind = kind;
            // A client creates a terminal only with a new call.
            let can_be_shown = first || self.shown_terminals.has(id);
            call.has_terminal = self.shows_terminals && kind == ToolKind::Execute && can_be_shown;
        }
        let mut changed = call.apply_update(update);
        let has_ended = update.progress.is_some_and(Progress::is_over);
        changed |= std::mem::take(&mut call.holds_changes)
            || call.take_replaced_question(has_ended)
            || (has_ended && call.has_terminal);
        // A question has the same changes, and clients show it without the call.
        if changed && call.hold_changes(update) {
            changed = false;
        }
        let mut out = Vec::new();
        let mut fields = fields(update);
        let name = call.take_new_name(update);
        if first {
            if call.has_terminal {
                self.shown_terminals.add(id);
            }
            out.push(v1::SessionUpdate::ToolCall(first_update(
                id, update, &fields, call,
            )));
            fields.title = None;
            fields.name = None;
            fields.kind = None;
            if !has_ended && !changed {
                return out;
            }
        } else {
            // A field that has not changed is not sent again.
            fields.name = name;
            if update.earlier {
                fields.kind = None;
            }
        }
        if changed {
            let content = call.content();
            if let Some(raw) = &mut fields.raw_output {
                let texts: Vec<&str> = content.iter().filter_map(ToolCallContent::text).collect();
                self.raw_text.adapt(raw, &texts);
            }
            fields.content = Some(encode_contents(content, id));
        }
        let had_output = update.earlier || call.has_output_in_terminal();
        if call.has_terminal
            && let Some(output) = call.terminal_output(update, has_ended)
        {
            let data = match output {
                TerminalOutput::Whole(data) if had_output => format!("{CLEAR_TERMINAL}{data}"),
                TerminalOutput::Whole(data) | TerminalOutput::More(data) => data.to_owned(),
            };
            let data = json!({ "terminal_id": id.as_str(), "data": data });
            out.push(with_meta(
                id,
                v1::ToolCallUpdateFields::new(),
                meta("terminal_output", data),
            ));
        }
        if has_ended {
            let ended = if call.has_terminal {
                call.take_terminal_exit(update)
            } else {
                None
            };
            let exit = ended.map(|ProgramExit { code, signal }| {
                meta(
                    "terminal_exit",
                    json!({ "terminal_id": id.as_str(), "exit_code": code, "signal": signal }),
                )
            });
            let cancelled = update.progress == Some(Progress::Cancelled);
            let cancelled = cancelled.then(|| with_member(CANCELLED, Value::Bool(true)));
            let meta: v1::Meta = exit.into_iter().chain(cancelled).flatten().collect();
            out.push(with_meta(id, fields, meta));
            // The id stays known, so that a late change is sent as an update; the content is
            // dropped.
            call.clear_ended();
            self.shown_terminals.remove_ended(id, update);
        } else if fields != v1::ToolCallUpdateFields::new() {
            out.push(with_meta(id, fields, v1::Meta::new()));
        }
        out
    }

    /// Returns the update with which a call refers to the session of the subagent that it has
    /// started.
    pub(super) fn link_session(
        &mut self,
        id: &CallId,
        session: &SessionId,
    ) -> Option<v1::SessionUpdate> {
        let call = self.all.get_mut(id)?;
        if !call.link_session(session) {
            return None;
        }
        let fields = v1::ToolCallUpdateFields::new().content(encode_contents(call.content(), id));
        Some(with_meta(id, fields, v1::Meta::new()))
    }

    /// Returns the call of a question with its full content, because clients show it without the
    /// call or in its place. `text` is Markdown.
    pub(super) fn question(&mut self, show: &CallUpdate, text: &str) -> v1::ToolCallUpdate {
        let id = show.call.clone().unwrap_or_else(|| CallId::new(""));
        let mut call = self.all.get(&id).cloned().unwrap_or_default();
        if let Some(call) = self.all.get_mut(&id) {
            call.shows_question = true;
            call.holds_changes = false;
        }
        call.apply_question(show);
        let mut fields = fields(show);
        fields.raw_output = None;
        let text = ToolCallContent::Text(text.to_owned());
        let mut content = call.changes();
        if show.kind == Some(ToolKind::Other) {
            // The answer is about the whole project, of which the changes are only a part.
            content.insert(0, text);
        } else {
            // The change comes first: some clients show nothing else.
            content.push(text);
        }
        if call.has_terminal {
            content.push(ToolCallContent::Terminal);
        }
        fields.content = Some(encode_contents(content, &id));
        v1::ToolCallUpdate::new(id.share(), fields)
    }
}

/// In the last update of a call, in `_meta.adjutant`: the user cancelled it. ACP v1 has no status
/// for that.
const CANCELLED: &str = "cancelled";

/// The control sequences that empty a terminal: the cursor to its beginning, the screen, and the
/// lines above it.
const CLEAR_TERMINAL: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// Encodes the first update of a call.
fn first_update(
    id: &CallId,
    update: &CallUpdate,
    fields: &v1::ToolCallUpdateFields,
    shown: &ShownCall,
) -> v1::ToolCall {
    let title = update.title.clone().unwrap_or_default();
    let mut call = v1::ToolCall::new(id.share(), title)
        .kind(kind(shown.kind))
        .status(v1::ToolCallStatus::Pending);
    call.name.clone_from(&update.tool);
    call.locations = fields.locations.clone().unwrap_or_default();
    call.raw_input.clone_from(&fields.raw_input);
    if !shown.holds_changes {
        call.content = encode_contents(shown.content(), id);
    }
    if shown.has_terminal {
        call.meta = Some(meta("terminal_info", json!({ "terminal_id": id.as_str() })));
    }
    call
}

fn meta(key: &str, value: Value) -> v1::Meta {
    Map::from_iter([(key.to_owned(), value)])
}

fn with_meta(id: &CallId, fields: v1::ToolCallUpdateFields, meta: v1::Meta) -> v1::SessionUpdate {
    let mut update = v1::ToolCallUpdate::new(id.share(), fields);
    update.meta = Some(meta).filter(|meta| !meta.is_empty());
    v1::SessionUpdate::ToolCallUpdate(update)
}

/// Returns all fields of an update except the content.
fn fields(update: &CallUpdate) -> v1::ToolCallUpdateFields {
    let mut fields = v1::ToolCallUpdateFields::new();
    fields.title.clone_from(&update.title);
    fields.name.clone_from(&update.tool);
    fields.kind = update.kind.map(kind);
    fields.status = update.progress.map(status);
    fields.raw_input = tool_call_view::raw_input(update);
    fields.raw_output = tool_call_view::raw_output(update);
    fields.locations = update.locations.as_ref().map(|locations| {
        let encode_location = |location: &Location| {
            v1::ToolCallLocation::new(location.path.clone()).line(location.line)
        };
        locations.iter().map(encode_location).collect()
    });
    fields
}

/// Returns the metadata of a change whose texts are a part of their file.
fn lines_before(part: transcript::LineOffsets) -> v1::Meta {
    with_member(LINES_BEFORE, json!({ "old": part.old, "new": part.new }))
}

/// Encodes the content of a call.
fn encode_contents(pieces: Vec<ToolCallContent<'_>>, id: &CallId) -> Vec<v1::ToolCallContent> {
    let encode_piece = |piece| match piece {
        // A version 1 diff cannot express a deletion: it would look like an empty new file.
        ToolCallContent::Change(change) if change.deleted && change.old.is_none() => {
            let text = format!(
                "{} is removed. It is not text, or too large to be shown.",
                change.path
            );
            v1::ToolCallContent::from(v1::ContentBlock::from(text))
        }
        ToolCallContent::Change(change) => {
            let diff = v1::Diff::new(change.path.as_str(), change.new.as_str())
                .old_text(change.old.as_deref().map(str::to_owned))
                .meta(change.part.map(lines_before));
            v1::ToolCallContent::Diff(diff)
        }
        ToolCallContent::Text(text) => v1::ToolCallContent::from(v1::ContentBlock::from(text)),
        ToolCallContent::File(file) => v1::ToolCallContent::from(encode_file(file)),
        ToolCallContent::Terminal => v1::ToolCallContent::Terminal(v1::Terminal::new(id.share())),
        ToolCallContent::Session(session) => {
            v1::ToolCallContent::Session(v1::SessionReference::new(session.share()))
        }
    };
    pieces.into_iter().map(encode_piece).collect()
}

fn kind(kind: ToolKind) -> v1::ToolKind {
    match kind {
        ToolKind::Read => v1::ToolKind::Read,
        ToolKind::Edit => v1::ToolKind::Edit,
        ToolKind::Delete => v1::ToolKind::Delete,
        ToolKind::Move => v1::ToolKind::Move,
        ToolKind::Search => v1::ToolKind::Search,
        ToolKind::Execute => v1::ToolKind::Execute,
        ToolKind::Think => v1::ToolKind::Think,
        ToolKind::Fetch => v1::ToolKind::Fetch,
        ToolKind::SwitchMode => v1::ToolKind::SwitchMode,
        ToolKind::Other => v1::ToolKind::Other,
    }
}

fn status(progress: Progress) -> v1::ToolCallStatus {
    match progress {
        Progress::Pending => v1::ToolCallStatus::Pending,
        Progress::Running => v1::ToolCallStatus::InProgress,
        Progress::Completed => v1::ToolCallStatus::Completed,
        Progress::Failed | Progress::Cancelled => v1::ToolCallStatus::Failed,
    }
}
