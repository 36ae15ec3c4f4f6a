//! Calls as cards: pure, live and replayed alike.
//!
//! ACP v1 shows a call as a card whose content is replaced as a whole by every update, so [`ShownCalls`]
//! remembers what a card holds until the call has ended. Some editors render the body of a call
//! only from `tool_call_update`: what the first `tool_call` carried is repeated there.
//!
//! Where the editor shows terminals, the card of a command has one from its first update to its last:
//! what replaced it would be all that is seen.

use std::collections::HashMap;

use protocol::acp::v1;
use serde_json::{Map, Value, json};

use super::prompt::own;
use super::update::block;
use crate::event::{CallUpdate, Kind, ProgramExit, Progress};
use crate::id::CallId;
use crate::message::{Change, File};
use crate::text as words;

/// What has been shown of the calls that are not over yet.
#[derive(Debug, Default)]
pub struct ShownCalls {
    /// The editor shows terminals of ours, fed through `_meta` (Zed's convention).
    terminals: bool,
    all: HashMap<CallId, ShownCall>,
}

#[derive(Debug, Default, Clone)]
struct ShownCall {
    kind: Kind,
    terminal: bool,
    /// Something was printed there.
    fed: bool,
    /// How the program in it ended: told with the end of the call.
    exit: Option<ProgramExit>,
    /// A question stands where the content was.
    asked: bool,
    progress: Option<Progress>,
    changes: Vec<Change>,
    output: Option<String>,
    /// What a running program printed last, where there is no terminal to show it.
    tail: String,
    attachments: Vec<File>,
    /// What is to be known about it, where the editor has no better place.
    note: Option<String>,
}

/// A line to the editor stays below 1 MiB, which the weakest reader takes. So much of it may be, as
/// JSON: the arguments or the result of a call, the change of its files.
const RAW: usize = 128 << 10;
const CHANGES: usize = 500 << 10;

/// How much of a result stands beside its content once more, in bytes: for editors that show nothing else.
const RESULT: usize = 16 << 10;

/// How much of a running program's output is shown where there is no terminal.
const TAIL: usize = 8 << 10;

impl ShownCalls {
    /// Nothing shown yet.
    pub fn new(terminals: bool) -> Self {
        Self { terminals, all: HashMap::new() }
    }

    /// The updates that show news about a call. `noticed`: what there is to be known about it was said elsewhere.
    pub fn updates(&mut self, update: &CallUpdate, noticed: bool) -> Vec<v1::SessionUpdate> {
        let Some(id) = &update.call else { return vec![] };
        let first = !update.earlier && !self.all.contains_key(id);
        let card = self.all.entry(id.clone()).or_default();
        if let Some(kind) = update.kind {
            card.kind = kind;
            // The terminal of an earlier turn's call was closed with it.
            card.terminal = self.terminals && kind == Kind::Execute && !update.earlier;
        }
        let mut changed = card.take(update);
        if let Some(note) = update.note.as_ref().filter(|_| !noticed) {
            card.note = Some(words::sentences([note.title.as_str(), note.details.as_deref().unwrap_or_default()]));
            changed = true;
        }
        let over = update.progress.is_some_and(Progress::is_over);
        // What a question has replaced is put back.
        changed |= std::mem::take(&mut card.asked) || (over && card.terminal);
        let mut out = Vec::new();
        let mut fields = fields(update);
        if first {
            out.push(v1::SessionUpdate::ToolCall(announced(id, update, &fields, card)));
            fields.title = None;
            fields.name = None;
            fields.kind = None;
            if !over && !changed {
                return out;
            }
        } else {
            // QuestionReply once, on the first sight.
            fields.name = None;
            fields.kind = fields.kind.filter(|_| !update.earlier);
        }
        if changed {
            fields.content = Some(card.content(id));
        }
        if card.terminal
            && let Some(data) = card.printed(update, over)
        {
            card.fed = true;
            let data = json!({ "terminal_id": id.as_str(), "data": data });
            out.push(with_meta(id, v1::ToolCallUpdateFields::new(), meta("terminal_output", data)));
        }
        if over {
            // A command that was refused or cancelled has a terminal as well, which must not stay open.
            let nothing = ProgramExit { code: None, signal: None };
            let ended = card.terminal.then(|| card.exit.take().unwrap_or(nothing));
            let exit = ended.map(|ProgramExit { code, signal }| {
                meta("terminal_exit", json!({ "terminal_id": id.as_str(), "exit_code": code, "signal": signal }))
            });
            let cancelled = update.progress == Some(Progress::Cancelled);
            let cancelled = cancelled.then(|| own(CANCELLED, Value::Bool(true)));
            let meta: v1::Meta = exit.into_iter().chain(cancelled).flatten().collect();
            out.push(with_meta(id, fields, meta));
            // The id stays known, so that a late word about it is an update; what it held is let go.
            self.all.insert(id.clone(), ShownCall::default());
        } else if fields != v1::ToolCallUpdateFields::new() {
            out.push(with_meta(id, fields, v1::Meta::new()));
        }
        out
    }

    /// A question about a call, complete in itself: editors show it without the card, or in its place.
    /// `text` is Markdown.
    pub fn question(&mut self, show: &CallUpdate, text: &str) -> v1::ToolCallUpdate {
        let id = show.call.clone().unwrap_or_else(|| CallId::new(""));
        let mut card = self.all.get(&id).cloned().unwrap_or_default();
        if let Some(card) = self.all.get_mut(&id) {
            card.asked = true;
        }
        card.take(show);
        card.output = None;
        let mut fields = fields(show);
        fields.raw_output = None;
        // The change first: some editors look at nothing else.
        let mut content = card.changes();
        content.push(content_of(text));
        if card.terminal {
            content.push(terminal(&id));
        }
        fields.content = Some(content);
        v1::ToolCallUpdate::new(id.share(), fields)
    }
}

/// In the last update of a call, in `_meta.adjutant`: the user stopped it. ACP v1 has no status for that.
const CANCELLED: &str = "cancelled";

fn announced(id: &CallId, update: &CallUpdate, fields: &v1::ToolCallUpdateFields, card: &ShownCall) -> v1::ToolCall {
    let title = update.title.clone().unwrap_or_default();
    let mut call = v1::ToolCall::new(id.share(), title).kind(kind(card.kind)).status(v1::ToolCallStatus::Pending);
    call.name.clone_from(&update.tool);
    call.locations = fields.locations.clone().unwrap_or_default();
    call.raw_input.clone_from(&fields.raw_input);
    call.content = card.content(id);
    if card.terminal {
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

/// Everything of an update but its content.
fn fields(update: &CallUpdate) -> v1::ToolCallUpdateFields {
    let mut fields = v1::ToolCallUpdateFields::new();
    fields.title.clone_from(&update.title);
    fields.name.clone_from(&update.tool);
    fields.kind = update.kind.map(kind);
    fields.status = update.progress.map(status);
    fields.raw_input = update.input.clone().filter(Value::is_object).filter(|input| size(input) < RAW);
    fields.raw_output = result(update).filter(|result| size(result) < RAW);
    fields.locations = update.locations.as_ref().map(|locations| {
        let one =
            |location: &crate::event::Location| v1::ToolCallLocation::new(location.path.clone()).line(location.line);
        locations.iter().map(one).collect()
    });
    fields
}

/// The facts of a result, and the beginning of its text as `output`: what else has no such key is shown as JSON
/// by some editors.
fn result(update: &CallUpdate) -> Option<Value> {
    let mut facts = update.metadata.clone().unwrap_or_default();
    if let Some(output) = update.output.as_ref().filter(|output| !output.is_empty()) {
        let begun = words::head(output, RESULT);
        let more = if begun.len() < output.len() { "\n…" } else { "" };
        facts.insert("output".to_owned(), format!("{begun}{more}").into());
    }
    (!facts.is_empty()).then_some(Value::Object(facts))
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

impl ShownCall {
    /// Takes over what is new. Says whether the content is another one now.
    fn take(&mut self, update: &CallUpdate) -> bool {
        let mut changed = false;
        self.progress = update.progress.or(self.progress);
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
        if let Some(exit) = &update.exit {
            self.exit = Some(exit.clone());
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

    /// What a terminal is to be given: what has just been printed, or at the end all that ever was.
    fn printed<'a>(&self, update: &'a CallUpdate, over: bool) -> Option<&'a String> {
        let all = update.output.as_ref().filter(|output| over && self.ran() && !self.fed && !output.is_empty());
        update.stream.as_ref().or(all)
    }

    /// Whether its output is what a program printed.
    fn ran(&self) -> bool {
        self.exit.is_some() || self.progress == Some(Progress::Completed)
    }

    fn content(&self, id: &CallId) -> Vec<v1::ToolCallContent> {
        let mut out = self.changes();
        let failed = matches!(self.progress, Some(Progress::Failed | Progress::Cancelled));
        if self.terminal {
            out.push(terminal(id));
        }
        match (&self.output, self.kind) {
            (Some(_), _) if self.terminal && self.ran() => {}
            (Some(output), Kind::Execute) if self.ran() => out.extend(fenced_content(output)),
            // Why it failed is said in plain words.
            (Some(output), _) if failed => out.push(content_of(output)),
            (Some(_), _) if self.terminal => {}
            // The change says it all.
            (Some(_), Kind::Edit) if !self.changes.is_empty() => {}
            (Some(output), Kind::Execute | Kind::Read | Kind::Search) => out.extend(fenced_content(output)),
            (Some(output), _) if !output.is_empty() => out.push(content_of(output)),
            _ => out.extend(fenced_content(&self.tail)),
        }
        out.extend(self.attachments.iter().map(|file| v1::ToolCallContent::from(block(file))));
        out.extend(self.note.as_deref().map(content_of));
        out
    }

    fn changes(&self) -> Vec<v1::ToolCallContent> {
        let mut room = CHANGES;
        let one = |change: &Change| {
            let needed = change.old.as_deref().map_or(0, escaped) + escaped(&change.new);
            if let Some(left) = room.checked_sub(needed) {
                room = left;
            } else {
                return content_of(&format!("{} is too large to show the change.", change.path));
            }
            let diff = v1::Diff::new(change.path.as_str(), change.new.as_str()).old_text(change.old.clone());
            v1::ToolCallContent::Diff(diff)
        };
        self.changes.iter().map(one).collect()
    }
}

fn terminal(id: &CallId) -> v1::ToolCallContent {
    v1::ToolCallContent::Terminal(v1::Terminal::new(id.share()))
}

fn content_of(text: &str) -> v1::ToolCallContent {
    v1::ToolCallContent::from(v1::ContentBlock::from(text))
}

fn fenced_content(text: &str) -> Option<v1::ToolCallContent> {
    (!text.is_empty()).then(|| content_of(&fenced("", text)))
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

/// Text as a block of code in a language, with a fence that nothing in it closes.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// A sentence as Markdown that shows it as it is: marks that could pair, or begin something, are escaped.
pub(super) fn plainly(sentence: &str) -> String {
    let pairs = |mark: char| sentence.matches(mark).count() > 1;
    let mut out = String::with_capacity(sentence.len());
    for c in sentence.chars() {
        if matches!(c, '<' | '[' | '\\') || (matches!(c, '*' | '_' | '`' | '~') && pairs(c)) {
            out.push('\\');
        }
        out.push(c);
    }
    out
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
        Progress::Failed | Progress::Cancelled => v1::ToolCallStatus::Failed,
    }
}
