//! Calls as cards, in whichever version: what a card holds until its call has ended.
//!
//! Where the editor shows terminals, the card of a command has one from its first update to its last:
//! what replaced it would be all that is seen.

use serde_json::{Map, Value};

use super::markdown::fenced;
use base::text;
use events::{CallUpdate, ProgramExit, Progress, ToolKind};
use tools::language::DIAGNOSTICS;
use transcript::{CallFacts, Change, File};

/// A line to the editor stays below 1 MiB, which the weakest reader takes. So much of it may be, as
/// JSON: the arguments or the result of a call, the change of its files, a piece of text (which may be six
/// times as long as JSON once escaped), an attachment.
const RAW: usize = 128 << 10;
const CHANGES: usize = 500 << 10;
pub const PIECE: usize = 128 << 10;
pub const ATTACHED: usize = 500 << 10;

/// How much of a result stands beside its content once more, in bytes: for editors that show nothing else.
const RESULT: usize = 16 << 10;

/// How much of a running program's output is shown where there is no terminal.
const TAIL: usize = 8 << 10;

#[derive(Debug, Default, Clone)]
pub struct ShownCall {
    /// What kind of work it is.
    pub kind: ToolKind,
    /// The editor shows a terminal for it.
    pub terminal: bool,
    pub fed: bool,
    /// How the program in it ended: told with the end of the call.
    pub exit: Option<ProgramExit>,
    /// The limit that ended the command, in milliseconds.
    time_limit: Option<u64>,
    /// A question stands where the content was.
    pub asked: bool,
    progress: Option<Progress>,
    changes: Vec<Change>,
    /// Which errors the changes have introduced, as far as somebody knows: Markdown.
    errors: Option<String>,
    output: Option<String>,
    /// What a running program printed last, where there is no terminal to show it.
    tail: String,
    attachments: Vec<File>,
}

/// Errors by file, one line each, as they are kept with a call.
fn errors_in(files: &Map<String, Value>) -> String {
    let mut lines = Vec::new();
    for (file, errors) in files {
        for error in errors.as_array().into_iter().flatten() {
            let start =
                |key: &str| error.pointer(&format!("/range/start/{key}")).and_then(Value::as_u64).unwrap_or(0) + 1;
            let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
            let place = format!("{file}:{}:{}", start("line"), start("character"));
            lines.push(format!("- {}: {}", text::escaped(&place), text::title(message)));
        }
    }
    if lines.is_empty() { String::new() } else { format!("Errors since this change:\n\n{}", lines.join("\n")) }
}

/// A piece of what a card shows.
#[derive(Debug)]
pub enum CardPart<'a> {
    Change(&'a Change),
    /// Markdown.
    Words(String),
    File(&'a File),
    Terminal,
}

impl ShownCall {
    /// Takes over what is new. Says whether the content is another one now.
    pub fn take(&mut self, update: &CallUpdate) -> bool {
        let mut changed = false;
        self.progress = update.progress.or(self.progress);
        if let Some(changes) = &update.changes {
            changed |= self.changes != *changes;
            self.changes.clone_from(changes);
        }
        if let Some(errors) = update.metadata.as_ref().and_then(|facts| facts.get(DIAGNOSTICS)?.as_object()) {
            self.errors = Some(errors_in(errors)).filter(|errors| !errors.is_empty());
            changed = true;
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
            changed = true;
        }
        if let Some(limit) = update.metadata.as_ref().and_then(|facts| facts.get(CallFacts::TIME_LIMIT)?.as_u64()) {
            self.time_limit = Some(limit);
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

    /// Takes over what a question shows, beside which no result stands.
    pub fn ask(&mut self, show: &CallUpdate) {
        self.take(show);
        self.output = None;
    }

    /// What a terminal is to be given: what has just been printed, or at the end all that ever was.
    pub fn printed<'a>(&self, update: &'a CallUpdate, over: bool) -> Option<&'a String> {
        let all = update.output.as_ref().filter(|output| over && self.ran() && !self.fed && !output.is_empty());
        update.stream.as_ref().or(all)
    }

    /// Whether its output is what a program printed.
    fn ran(&self) -> bool {
        self.exit.is_some() || self.progress == Some(Progress::Completed)
    }

    pub fn content(&self) -> Vec<CardPart<'_>> {
        let mut out = self.changes();
        let failed = matches!(self.progress, Some(Progress::Failed | Progress::Cancelled));
        if self.terminal {
            out.push(CardPart::Terminal);
        }
        let words = |text: &str| CardPart::Words(text.to_owned());
        match (&self.output, self.kind) {
            // A terminal shows how it ended, but not that this was a limit.
            (Some(_), _) if self.terminal && self.ran() => out.extend(self.time_limit.and(self.ending())),
            (Some(output), ToolKind::Execute) if self.ran() => {
                out.extend(code(output));
                out.extend(self.ending());
            }
            (Some(output), ToolKind::Execute) if self.progress == Some(Progress::Cancelled) => {
                let (printed, how) = output.rsplit_once("\n\n").unwrap_or(("", output));
                out.extend(code(printed).filter(|_| !(self.terminal && self.fed)));
                out.push(words(how));
            }
            // Why it failed is said in plain words.
            (Some(output), _) if failed => out.push(words(output)),
            (Some(_), _) if self.terminal => {}
            // The change says it all.
            (Some(_), ToolKind::Edit) if !self.changes.is_empty() => out.extend(self.errors.as_deref().map(words)),
            (Some(output), ToolKind::Execute | ToolKind::Read | ToolKind::Search) => out.extend(code(output)),
            (Some(output), _) if !output.is_empty() => out.push(words(output)),
            _ => out.extend(code(&self.tail)),
        }
        out.extend(self.attachments.iter().map(CardPart::File));
        out
    }

    /// How a command ended, unless it went well.
    fn ending(&self) -> Option<CardPart<'_>> {
        let text = match (self.time_limit, self.exit.as_ref()?) {
            (Some(limit), _) => format!("Ended at its time limit of {limit} ms."),
            (None, ProgramExit { code: Some(0), .. }) => return None,
            (None, ProgramExit { code: Some(code), .. }) => format!("Exit code {code}."),
            (None, ProgramExit { signal, .. }) => format!("Ended by {}.", signal.as_deref().unwrap_or("a signal")),
        };
        Some(CardPart::Words(text))
    }

    /// The changes of files, as far as they make no line too long.
    pub fn changes(&self) -> Vec<CardPart<'_>> {
        let mut room = CHANGES;
        let one = |change| match room.checked_sub(needed(change)) {
            Some(left) => {
                room = left;
                CardPart::Change(change)
            }
            None => CardPart::Words(format!("{} is too large to show the change.", change.path)),
        };
        self.changes.iter().map(one).collect()
    }
}

fn code<'a>(text: &str) -> Option<CardPart<'a>> {
    (!text.is_empty()).then(|| CardPart::Words(fenced("", text)))
}

/// The arguments of a call, as far as they are to be sent.
pub fn input(update: &CallUpdate) -> Option<Value> {
    update.input.as_ref().filter(|input| input.is_object() && is_short(input)).cloned()
}

/// The facts of a result, and the beginning of its text as `output`: what else has no such key is shown as JSON
/// by some editors.
pub fn result(update: &CallUpdate) -> Option<Value> {
    let mut facts = update.metadata.clone().unwrap_or_default();
    if let Some(output) = update.output.as_ref().filter(|output| !output.is_empty()) {
        let begun = text::head(output, RESULT);
        let more = if begun.len() < output.len() { "\n…" } else { "" };
        facts.insert("output".to_owned(), format!("{begun}{more}").into());
    }
    (!facts.is_empty()).then_some(Value::Object(facts)).filter(is_short)
}

/// Whether a value is short enough to be sent. Of one that is not, no more is looked at than would be.
fn is_short(value: &Value) -> bool {
    !text::is_longer(value, RAW) && value.to_string().len() < RAW
}

/// How long a change is as JSON.
fn needed(change: &Change) -> usize {
    change.old.as_deref().map_or(0, escaped) + escaped(&change.new)
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
