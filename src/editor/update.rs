//! Event → session/update: pure, the only place, live and replay alike.
//!
//! ACP v1 shows a call as a card whose content is replaced as a whole by every update, so [`Seen`]
//! remembers what a card holds until the call has ended. Some editors render the body of a call
//! only from `tool_call_update`: what the first `tool_call` carried is repeated there.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::acp::{self, v1};
use protocol::rpc::{self, Peer};
use serde_json::{Map, Value, json};

use crate::event::{
    About, Activity, CallUpdate, Compaction, Event, Exit, Kind, Progress, Severity, Status, Stop, Subagent, UserPiece,
};
use crate::id::{CallId, SessionId};
use crate::message::{Change, File, Priority, Todo, TodoStatus};

/// What the editor can show beyond the basics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shows {
    /// Terminals of ours, fed through `_meta` (Zed's convention).
    pub terminals: bool,
    /// Notices.
    pub notices: bool,
    /// Compactions.
    pub compaction: bool,
    /// Subagents, as sessions.
    pub subagents: bool,
}

/// What has been shown of the calls that are not over yet.
#[derive(Debug, Default)]
pub struct Seen {
    shows: Shows,
    cards: HashMap<CallId, Card>,
    /// Numbers the messages that belong to no part.
    asides: u32,
}

#[derive(Debug, Default, Clone)]
struct Card {
    kind: Kind,
    terminal: bool,
    failed: bool,
    changes: Vec<Change>,
    output: Option<String>,
    /// What a running program printed last, where there is no terminal to show it.
    tail: String,
    attachments: Vec<File>,
}

/// A line to the editor stays below 1 MiB, which the weakest reader takes. So much of it may be, as
/// JSON: a piece of text (which may be six times as long once escaped), the arguments or the result of
/// a call, the change of its files, an attachment.
const PIECE: usize = 128 << 10;
const RAW: usize = 128 << 10;
const CHANGES: usize = 500 << 10;
const ATTACHED: usize = 500 << 10;

/// How much of a running program's output is shown where there is no terminal.
const TAIL: usize = 8 << 10;

impl Seen {
    /// Nothing shown yet.
    pub fn new(shows: Shows) -> Self {
        Self { shows, ..Self::default() }
    }
}

/// Sends an update. Waits only while the editor does not read.
pub async fn send(peer: &Peer, session: &SessionId, update: v1::SessionUpdate) {
    let note = v1::SessionNotification::new(session.share(), update);
    peer.notify(<v1::SessionNotification as acp::Method>::NAME, &acp::Explicit(note)).await;
}

/// The updates that show an event.
pub fn updates(event: &Event, seen: &mut Seen) -> Vec<v1::SessionUpdate> {
    use v1::SessionUpdate as U;
    match event {
        Event::User { message, piece: UserPiece::Text(text) } => {
            chunks(text, &message.share()).map(U::UserMessageChunk).collect()
        }
        Event::User { message, piece: UserPiece::File(file) } => {
            let id = v1::MessageId::new(message.share());
            vec![U::UserMessageChunk(v1::ContentChunk::new(block(file)).message_id(id))]
        }
        Event::Text { part, delta } => chunks(delta, &part.share()).map(U::AgentMessageChunk).collect(),
        Event::Thought { part, delta } => chunks(delta, &part.share()).map(U::AgentThoughtChunk).collect(),
        Event::Call(update) => call(update, seen),
        Event::Plan(todos) => vec![U::Plan(v1::Plan::new(todos.iter().filter_map(entry).collect()))],
        Event::Mode(mode) => vec![U::CurrentModeUpdate(v1::CurrentModeUpdate::new(mode.clone()))],
        // What the options are now is the session's to say; see `prompt.rs`.
        Event::Options => vec![],
        Event::Commands(commands) => {
            let one = |command: &crate::event::Command| {
                let input = command.hint.as_ref().map(|hint| {
                    v1::AvailableCommandInput::Unstructured(v1::UnstructuredCommandInput::new(hint.as_str()))
                });
                v1::AvailableCommand::new(command.name.as_str(), command.description.as_str()).input(input)
            };
            vec![U::AvailableCommandsUpdate(v1::AvailableCommandsUpdate::new(commands.iter().map(one).collect()))]
        }
        Event::Info { title, updated } => {
            let mut info = v1::SessionInfoUpdate::new().updated_at(updated.iso());
            if let Some(title) = title {
                info = info.title(title.clone());
            }
            vec![U::SessionInfoUpdate(info)]
        }
        Event::Usage { used, size, cost } => {
            let cost = cost.map(|amount| v1::Cost::new(amount, "USD"));
            vec![U::UsageUpdate(v1::UsageUpdate::new(*used, *size).cost(cost))]
        }
        Event::Notice { severity, title, details } => vec![notice(*severity, title, details.as_deref(), seen)],
        Event::Compaction { id, auto, state } => compaction(&id.share(), *auto, state, seen),
        Event::Status(Status::Retrying { attempt, limit, wait, cause, .. }) => {
            let stop = if cause.ends_with(['.', '!', '?']) { "" } else { "." };
            let seconds = wait.as_millis().div_ceil(1000);
            let title = format!("{cause}{stop} Retrying in {seconds} s ({attempt}/{limit}).");
            vec![notice(Severity::Warning, &title, None, seen)]
        }
        Event::Status(Status::Busy | Status::Compacting | Status::Idle) => vec![],
        Event::Subagent(subagent) => vec![U::SubagentUpdate(self::subagent(subagent))],
        Event::Told { message, sender, text } => {
            let message = v1::SessionMessage::new(message.share());
            let message = message.sender_session_id(v1::SessionId::new(sender.share()));
            vec![U::SessionMessage(message.content(chunked(text)))]
        }
        // Sent to the session it happened in; see `prompt.rs`.
        Event::Within { .. } => vec![],
    }
}

/// Words in pieces that make no line too long.
fn chunks<'a>(text: &'a str, message: &'a Arc<str>) -> impl Iterator<Item = v1::ContentChunk> + use<'a> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, more) = rest.split_at(rest.floor_char_boundary(PIECE).max(1));
        rest = more;
        Some(v1::ContentChunk::new(piece.into()).message_id(v1::MessageId::new(message.clone())))
    })
}

/// Words as the content of one message.
fn chunked(text: &str) -> Vec<v1::ContentBlock> {
    vec![v1::ContentBlock::from(crate::text::head(text, PIECE))]
}

/// A subagent's session: the user may stop it while it works, and nothing else.
fn subagent(subagent: &Subagent) -> v1::SubagentUpdate {
    let reason = |stop: &Stop| match stop {
        Stop::Done => v1::IdleStopReason::EndTurn,
        Stop::Cancelled => v1::IdleStopReason::Cancelled,
        Stop::Refused => v1::IdleStopReason::Refusal,
        Stop::MaxTokens => v1::IdleStopReason::MaxTokens,
        Stop::StepLimit => v1::IdleStopReason::MaxTurnRequests,
        Stop::Failed(why) => {
            let error = v1::Error::new(rpc::code::INTERNAL, why.as_str());
            v1::IdleStopReason::Error(v1::ErrorStopReason::new().error(error))
        }
    };
    let state = |activity: &Activity| match activity {
        Activity::Working => v1::StateUpdate::Running(v1::RunningStateUpdate::new()),
        Activity::Waiting => v1::StateUpdate::RequiresAction(v1::RequiresActionStateUpdate::new()),
        Activity::Over(stop) => v1::StateUpdate::Idle(v1::IdleStateUpdate::new().stop_reason(reason(stop))),
    };
    let mut update = v1::SubagentUpdate::new(subagent.session.share());
    if let Some(About { title, agent, stoppable }) = &subagent.about {
        let cancel = stoppable.then(v1::SessionCancelCapabilities::new);
        let may = v1::SubagentSessionCapabilities::new().cancel(cancel);
        update = update.title(title.clone()).description(agent.clone()).capabilities(may);
    }
    match &subagent.state {
        Some(activity) => update.state(state(activity)),
        None => update,
    }
}

/// Something said beside the conversation: a notice where the editor knows them, else a thought,
/// which every editor shows and none takes for the answer.
fn notice(severity: Severity, title: &str, details: Option<&str>, seen: &mut Seen) -> v1::SessionUpdate {
    if seen.shows.notices {
        let severity = match severity {
            Severity::Info => v1::NoticeSeverity::Info,
            Severity::Warning => v1::NoticeSeverity::Warning,
            Severity::Error => v1::NoticeSeverity::Error,
        };
        let notice = v1::Notice::new(severity, crate::text::title(title));
        return v1::SessionUpdate::Notice(
            notice.description(details.map(|details| crate::text::shown(details).into_owned())),
        );
    }
    seen.asides += 1;
    let text = match details {
        Some(details) => format!("{title} {details}\n\n"),
        None => format!("{title}\n\n"),
    };
    let chunk = v1::ContentChunk::new((&*crate::text::shown(&text)).into())
        .message_id(v1::MessageId::new(format!("aside-{}", seen.asides)));
    v1::SessionUpdate::AgentThoughtChunk(chunk)
}

/// A compaction: an entry of its own where the editor knows them, else a word beside the conversation
/// when it begins and a line when it is done. The line is an answer where the user asked for it, and a
/// thought where nobody did.
fn compaction(id: &Arc<str>, auto: bool, state: &Compaction, seen: &mut Seen) -> Vec<v1::SessionUpdate> {
    if !seen.shows.compaction {
        let line = match state {
            // What takes a while is not to look like silence.
            Compaction::InProgress => {
                return vec![notice(Severity::Info, "Summarising the conversation to make room.", None, seen)];
            }
            Compaction::Completed { before, after, .. } => {
                let (before, after) = (crate::text::thousands(*before), crate::text::thousands(*after));
                format!("Compacted the conversation: {before} → about {after} tokens.\n\n")
            }
            // The turn ends with the failure, and says why.
            Compaction::Failed(_) | Compaction::Cancelled => return vec![],
        };
        let kind = if auto { v1::SessionUpdate::AgentThoughtChunk } else { v1::SessionUpdate::AgentMessageChunk };
        return chunks(&line, id).map(kind).collect();
    }
    let update = |status| v1::CompactionUpdate::new(id.to_string(), status);
    let update = match state {
        Compaction::InProgress => update(v1::CompactionStatus::InProgress),
        Compaction::Completed { summary, .. } => {
            update(v1::CompactionStatus::Completed).summary(vec![v1::ContentBlock::from(summary.as_str())])
        }
        Compaction::Failed(why) => update(v1::CompactionStatus::Failed).error(why.clone()),
        Compaction::Cancelled => update(v1::CompactionStatus::Cancelled),
    };
    vec![v1::SessionUpdate::CompactionUpdate(update)]
}

fn entry(todo: &Todo) -> Option<v1::PlanEntry> {
    let priority = match todo.priority {
        Priority::High => v1::PlanEntryPriority::High,
        Priority::Medium => v1::PlanEntryPriority::Medium,
        Priority::Low => v1::PlanEntryPriority::Low,
    };
    let status = match todo.status {
        TodoStatus::Pending => v1::PlanEntryStatus::Pending,
        TodoStatus::InProgress => v1::PlanEntryStatus::InProgress,
        TodoStatus::Completed => v1::PlanEntryStatus::Completed,
        // v1 has no word for it; what is no longer needed is no longer part of the plan.
        TodoStatus::Cancelled => return None,
    };
    Some(v1::PlanEntry::new(todo.content.as_str(), priority, status))
}

fn call(update: &CallUpdate, seen: &mut Seen) -> Vec<v1::SessionUpdate> {
    let Some(id) = &update.call else {
        return vec![];
    };
    let shows = seen.shows;
    let first = !update.earlier && !seen.cards.contains_key(id);
    let card = seen.cards.entry(id.clone()).or_default();
    if let Some(kind) = update.kind {
        card.kind = kind;
        // The terminal of an earlier turn's call was closed with it.
        card.terminal = shows.terminals && kind == Kind::Execute && !update.earlier;
    }
    let content_changed = card.take(update);
    let mut out = Vec::new();
    let over = matches!(update.progress, Some(Progress::Completed | Progress::Failed));
    let mut fields = fields(update);
    if first {
        let title = update.title.clone().unwrap_or_default();
        let mut call = v1::ToolCall::new(id.share(), title).kind(kind(card.kind)).status(v1::ToolCallStatus::Pending);
        call.name.clone_from(&update.tool);
        call.locations = fields.locations.clone().unwrap_or_default();
        call.raw_input.clone_from(&fields.raw_input);
        call.content = card.content(id);
        if card.terminal {
            call.meta = Some(meta("terminal_info", json!({ "terminal_id": id.as_str() })));
        }
        out.push(v1::SessionUpdate::ToolCall(call));
        fields.title = None;
        fields.name = None;
        fields.kind = None;
        if !over && !content_changed {
            return out;
        }
    } else {
        // Said once, on the first sight.
        fields.name = None;
        fields.kind = fields.kind.filter(|_| !update.earlier);
    }
    if content_changed {
        fields.content = Some(card.content(id));
    }
    if card.terminal {
        if let Some(data) = &update.stream {
            let data = json!({ "terminal_id": id.as_str(), "data": data });
            out.push(with_meta(id, v1::ToolCallUpdateFields::new(), "terminal_output", data));
        }
        // A command that was refused or cancelled has a terminal as well, which must not stay open.
        let nothing = Exit { code: None, signal: None };
        if let Some(Exit { code, signal }) = update.exit.as_ref().or(over.then_some(&nothing)) {
            if first && let Some(output) = &update.output {
                let data = json!({ "terminal_id": id.as_str(), "data": output });
                out.push(with_meta(id, v1::ToolCallUpdateFields::new(), "terminal_output", data));
            }
            let data = json!({ "terminal_id": id.as_str(), "exit_code": code, "signal": signal });
            out.push(with_meta(id, fields, "terminal_exit", data));
            seen.cards.insert(id.clone(), Card::default());
            return out;
        }
    }
    if fields != v1::ToolCallUpdateFields::new() {
        out.push(v1::SessionUpdate::ToolCallUpdate(v1::ToolCallUpdate::new(id.share(), fields)));
    }
    if over {
        // The id stays known, so that a late word about it is an update; what it held is let go.
        seen.cards.insert(id.clone(), Card::default());
    }
    out
}

fn meta(key: &str, value: Value) -> v1::Meta {
    Map::from_iter([(key.to_owned(), value)])
}

fn with_meta(id: &CallId, fields: v1::ToolCallUpdateFields, key: &str, value: Value) -> v1::SessionUpdate {
    let mut update = v1::ToolCallUpdate::new(id.share(), fields);
    update.meta = Some(meta(key, value));
    v1::SessionUpdate::ToolCallUpdate(update)
}

/// Everything of an update but its content.
fn fields(update: &CallUpdate) -> v1::ToolCallUpdateFields {
    let mut fields = v1::ToolCallUpdateFields::new();
    fields.title.clone_from(&update.title);
    fields.name.clone_from(&update.tool);
    fields.kind = update.kind.map(kind);
    fields.status = update.progress.map(status);
    fields.raw_input = update.input.clone().filter(Value::is_object).filter(|input| size(input) < RAW);
    fields.raw_output = update.metadata.clone().filter(|m| !m.is_empty()).map(Value::Object).filter(|v| size(v) < RAW);
    fields.locations = update.locations.as_ref().map(|locations| {
        let one =
            |location: &crate::event::Location| v1::ToolCallLocation::new(location.path.clone()).line(location.line);
        locations.iter().map(one).collect()
    });
    fields
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// A question about a call, complete in itself: editors show it without the card.
pub fn question(show: &CallUpdate, reason: &str, seen: &Seen) -> v1::ToolCallUpdate {
    let id = show.call.as_ref().map_or_else(|| "".into(), CallId::share);
    let mut card = show.call.as_ref().and_then(|call| seen.cards.get(call)).cloned().unwrap_or_default();
    card.terminal = false;
    card.take(show);
    card.output = None;
    let mut fields = fields(show);
    fields.raw_output = None;
    // The change first: some editors look at nothing else.
    let mut content = card.changes();
    content.push(text(reason));
    fields.content = Some(content);
    v1::ToolCallUpdate::new(id, fields)
}

impl Card {
    /// Takes over what is new. Says whether the content is another one now.
    fn take(&mut self, update: &CallUpdate) -> bool {
        let mut changed = false;
        self.failed |= update.progress == Some(Progress::Failed);
        if let Some(changes) = &update.changes {
            changed |= self.changes != *changes;
            self.changes.clone_from(changes);
        }
        if let Some(output) = &update.output {
            self.output = Some(output.clone());
            self.tail.clear();
            changed = true;
        }
        if let Some(attachments) = &update.attachments {
            self.attachments.clone_from(attachments);
            changed = true;
        }
        if let Some(stream) = update.stream.as_ref().filter(|_| !self.terminal) {
            self.tail.push_str(stream);
            if self.tail.len() > TAIL {
                let from = self.tail.ceil_char_boundary(self.tail.len() - TAIL);
                self.tail.drain(..from);
            }
            changed = true;
        }
        changed
    }

    fn content(&self, id: &CallId) -> Vec<v1::ToolCallContent> {
        let mut out = self.changes();
        if self.terminal {
            out.push(v1::ToolCallContent::Terminal(v1::Terminal::new(id.share())));
            if let Some(output) = self.output.as_ref().filter(|_| self.failed) {
                out.push(text(output));
            }
            return out;
        }
        match (&self.output, self.kind) {
            // Why it failed is said in plain words.
            (Some(output), _) if self.failed => out.push(text(output)),
            // The change says it all.
            (Some(_), Kind::Edit) if !self.changes.is_empty() => {}
            (Some(output), Kind::Execute | Kind::Read | Kind::Search) if !output.is_empty() => {
                out.push(text(&fenced(output)))
            }
            (Some(output), _) if !output.is_empty() => out.push(text(output)),
            _ if !self.tail.is_empty() => out.push(text(&fenced(&self.tail))),
            _ => {}
        }
        out.extend(self.attachments.iter().map(|file| v1::ToolCallContent::from(block(file))));
        out
    }

    fn changes(&self) -> Vec<v1::ToolCallContent> {
        let mut room = CHANGES;
        let one = |change: &Change| {
            let needed = change.old.as_deref().map_or(0, escaped) + escaped(&change.new);
            if let Some(left) = room.checked_sub(needed) {
                room = left;
            } else {
                return text(&format!("{} is too large to show the change.", change.path));
            }
            let diff = v1::Diff::new(change.path.as_str(), change.new.as_str()).old_text(change.old.clone());
            v1::ToolCallContent::Diff(diff)
        };
        self.changes.iter().map(one).collect()
    }
}

fn text(text: &str) -> v1::ToolCallContent {
    v1::ToolCallContent::from(v1::ContentBlock::from(text))
}

/// How long a text is as JSON.
fn escaped(text: &str) -> usize {
    let one = |b: u8| match b {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(one).sum()
}

/// Text as a code block, with a fence that nothing in it closes.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

fn block(file: &File) -> v1::ContentBlock {
    let name = || file.name.clone().or_else(|| file.uri.clone()).unwrap_or_else(|| file.mime.clone());
    match (&file.data, &file.uri) {
        (Some(data), _) if data.len() > ATTACHED => v1::ContentBlock::from(format!("[{} is attached]", name())),
        (Some(data), uri) if file.mime.starts_with("image/") => {
            v1::ContentBlock::Image(v1::ImageContent::new(data.as_str(), file.mime.as_str()).uri(uri.clone()))
        }
        (Some(_), _) => v1::ContentBlock::from(format!("[{} is attached]", name())),
        (None, Some(uri)) => v1::ContentBlock::ResourceLink(v1::ResourceLink::new(name(), uri.as_str())),
        (None, None) => v1::ContentBlock::from(format!("[{}]", name())),
    }
}

fn kind(kind: Kind) -> v1::ToolKind {
    match kind {
        Kind::Read => v1::ToolKind::Read,
        Kind::Edit => v1::ToolKind::Edit,
        Kind::Delete => v1::ToolKind::Delete,
        Kind::Move => v1::ToolKind::Move,
        Kind::Search => v1::ToolKind::Search,
        Kind::Execute => v1::ToolKind::Execute,
        Kind::Think => v1::ToolKind::Think,
        Kind::Fetch => v1::ToolKind::Fetch,
        Kind::SwitchMode => v1::ToolKind::SwitchMode,
        Kind::Other => v1::ToolKind::Other,
    }
}

fn status(progress: Progress) -> v1::ToolCallStatus {
    match progress {
        Progress::Pending => v1::ToolCallStatus::Pending,
        Progress::Running => v1::ToolCallStatus::InProgress,
        Progress::Completed => v1::ToolCallStatus::Completed,
        Progress::Failed => v1::ToolCallStatus::Failed,
    }
}
