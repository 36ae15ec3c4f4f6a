//! Tool calls as the client shows them, in all protocol versions. [`ShownCall`] holds the state of one
//! call until it has ended, and builds its content ([`ToolCallContent`]), which each version encodes with
//! its own types. [`ShownTerminals`] records the terminals that a client shows.
//!
//! If the client shows terminals, a command has one from its first update to its last, because a client
//! replaces the content of a call by that of each update.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::{Map, Value, json};

use super::markdown::{code_block, inline_code};
use base::id::{CallId, SessionId};
use base::lock::lock;
use base::text;
use events::{CallUpdate, ProgramExit, Progress, ToolKind};
use tools::diagnostics::DIAGNOSTICS_KEY;
use tools::process::terminal_emulator::rendered;
use transcript::{CallFacts, Change, ExitCode, File};

// The limits below keep a line shorter than 1 MiB, the limit of the most restricted client. A chunk
// of text is up to six times as long as JSON.

/// The maximum size of the arguments or the result of a call, in bytes as JSON.
const MAX_RAW_BYTES: usize = 128 << 10;
/// The maximum size of the file changes of a call, in bytes as JSON.
const MAX_CHANGES_BYTES: usize = 500 << 10;
/// The maximum length of a chunk of text, in bytes.
pub const MAX_CHUNK_BYTES: usize = 128 << 10;
/// The maximum length of an attachment, in bytes as it is encoded.
pub const MAX_ATTACHED_BYTES: usize = 500 << 10;

/// The maximum length of a result's text in the raw output, in bytes, for clients that show only
/// that.
const MAX_RAW_TEXT_BYTES: usize = 16 << 10;

/// The maximum size as JSON of the text in a raw output that repeats the content.
const MAX_TEXT_BYTES: usize = MAX_RAW_BYTES;

/// The maximum length of a running program's output in bytes, if there is no terminal.
const MAX_TAIL_BYTES: usize = 8 << 10;

/// The maximum length in bytes of a terminal's output that is compared with the stored output.
const MAX_COMPARED_BYTES: usize = 64 << 10;

/// Returns the text of a message to a subagent, cut to [`MAX_CHUNK_BYTES`]. A note with the size of
/// the omitted rest is appended.
pub fn subagent_message_text(text: &str) -> Cow<'_, str> {
    let head = text::head(text, MAX_CHUNK_BYTES);
    let rest = text.len() - head.len();
    if rest == 0 {
        return head.into();
    }
    format!("{head}…\n\n[{rest} more bytes of this message are not shown here. The subagent has received all of it.]").into()
}

/// The terminals of a session that the client of one connection shows and that can still change, by
/// the call that they belong to.
#[derive(Debug, Default)]
pub struct ShownTerminals(Mutex<HashSet<CallId>>);

impl ShownTerminals {
    /// Records that the terminal of a call was sent to the client.
    pub fn add(&self, call: &CallId) {
        lock(&self.0).insert(call.clone());
    }

    /// Removes the terminal of a call that has ended. If the command continues in the background, the
    /// terminal stays, because it changes again when that command ends.
    pub fn remove_ended(&self, call: &CallId, update: &CallUpdate) {
        if !continues_in_background(update) {
            lock(&self.0).remove(call);
        }
    }

    /// Returns whether the client shows the terminal of a call.
    pub fn has(&self, call: &CallId) -> bool {
        lock(&self.0).contains(call)
    }
}

/// Returns whether the command of a call that has ended continues in the background.
fn continues_in_background(update: &CallUpdate) -> bool {
    has_fact(update, CallFacts::BACKGROUND) && !has_fact(update, CallFacts::ENDED)
}

fn has_fact(update: &CallUpdate, fact: &str) -> bool {
    let facts = update.metadata.as_ref();
    facts.is_some_and(|facts| facts.contains_key(fact))
}

/// The current state of a tool call as the client shows it.
#[derive(Debug, Default, Clone)]
pub struct ShownCall {
    /// The kind of the tool.
    pub kind: ToolKind,
    /// The name of the tool that the client knows.
    name: Option<String>,
    /// The client shows a terminal for the call.
    pub has_terminal: bool,
    /// The beginning of the output in the terminal, at least [`MAX_COMPARED_BYTES`] long if it is cut.
    terminal_text: String,
    /// The exit status of the command, which is sent with the end of the call.
    pub exit: Option<ProgramExit>,
    /// The time limit that ended the command, in milliseconds; `None` if none did.
    time_limit: Option<u64>,
    /// A question replaces the content at present.
    pub shows_question: bool,
    /// The file changes of the call are not sent yet, because a question that shows them may follow
    /// at once.
    pub holds_changes: bool,
    progress: Option<Progress>,
    /// The file changes.
    changes: Vec<Change>,
    /// The errors that the changes have introduced, if known, as Markdown.
    errors: Option<String>,
    /// The text of the result; `None` before the call has one.
    output: Option<String>,
    /// The path of the file with the output, if a part of it is not shown.
    output_file: Option<String>,
    /// The last output of a running program, if there is no terminal to show it.
    tail: String,
    attachments: Vec<File>,
    /// The session of the subagent that the call has started, if the client shows it.
    session: Option<SessionId>,
}

/// Formats the stored errors of a call by file, one line each.
fn format_errors(files: &Map<String, Value>) -> String {
    let mut lines = Vec::new();
    for (file, errors) in files {
        for error in errors.as_array().into_iter().flatten() {
            let start = |key: &str| {
                error
                    .pointer(&format!("/range/start/{key}"))
                    .and_then(Value::as_u64)
                    .unwrap_or(0)
                    + 1
            };
            let message = error
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let location = format!("{file}:{}:{}", start("line"), start("character"));
            lines.push(format!(
                "- {}: {}",
                text::escaped(&location),
                text::title(message)
            ));
        }
    }
    if lines.is_empty() {
        String::new()
    } else {
        format!("Errors since this change:\n\n{}", lines.join("\n"))
    }
}

/// A part of the content of a call.
#[derive(Debug)]
pub enum ToolCallContent<'a> {
    /// A change of a file.
    Change(&'a Change),
    /// Markdown.
    Text(String),
    /// An attachment.
    File(&'a File),
    /// The terminal of the call.
    Terminal,
    /// A link to the session of the subagent that the call has started.
    Session(&'a SessionId),
}

/// Output for a terminal.
#[derive(Debug)]
pub enum TerminalOutput<'a> {
    /// Text that is appended to the output in the terminal.
    More(&'a str),
    /// The whole output, which replaces the output in the terminal.
    Whole(&'a str),
}

impl ToolCallContent<'_> {
    /// Returns the Markdown of a text; `None` for other content.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Change(_) | Self::File(_) | Self::Terminal | Self::Session(_) => None,
        }
    }
}

impl ShownCall {
    /// Applies an update to the state of the call. Returns whether its content has changed.
    pub fn apply_update(&mut self, update: &CallUpdate) -> bool {
        let mut changed = false;
        self.progress = update.progress.or(self.progress);
        if let Some(changes) = &update.changes {
            changed |= self.changes != *changes;
            self.changes.clone_from(changes);
        }
        if let Some(errors) = update
            .metadata
            .as_ref()
            .and_then(|facts| facts.get(DIAGNOSTICS_KEY)?.as_object())
        {
            self.errors = Some(format_errors(errors)).filter(|errors| !errors.is_empty());
            changed = true;
        }
        if let Some(output) = &update.output {
            self.output = Some(output.clone());
            self.tail.clear();
            changed = true;
        }
        if let Some(path) = update.metadata.as_ref().and_then(output_file) {
            self.output_file = Some(path.to_owned());
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
        if let Some(limit) = update
            .metadata
            .as_ref()
            .and_then(|facts| facts.get(CallFacts::TIME_LIMIT)?.as_u64())
        {
            self.time_limit = Some(limit);
            changed = true;
        }
        if let Some(stream) = &update.stream
            && !self.has_terminal
        {
            self.tail.push_str(stream);
            if self.tail.len() > MAX_TAIL_BYTES {
                let surplus = self.tail.len() - text::tail_lines(&self.tail, MAX_TAIL_BYTES).len();
                self.tail.drain(..surplus);
            }
            changed = true;
        }
        changed
    }

    /// Returns the name of the tool if the client does not know it yet, and records that it knows it
    /// now. That is so at the first update, and when the name that the model wrote is corrected.
    pub fn take_new_name(&mut self, update: &CallUpdate) -> Option<String> {
        let name = update
            .tool
            .as_ref()
            .filter(|name| self.name.as_ref() != Some(name))?;
        self.name = Some(name.clone());
        Some(name.clone())
    }

    /// Returns the exit status for the terminal of a call that has ended. It is empty if no command
    /// ran, because a terminal must not stay open. Returns `None` if the command continues in the
    /// background.
    pub fn take_terminal_exit(&mut self, update: &CallUpdate) -> Option<ProgramExit> {
        if continues_in_background(update) {
            return None;
        }
        Some(self.exit.take().unwrap_or_default())
    }

    /// Drops the content of a call that has ended. The name stays, so that a late change does not
    /// send it again.
    pub fn clear_ended(&mut self) {
        *self = Self {
            name: self.name.take(),
            ..Self::default()
        };
    }

    /// Decides whether to hold back the file changes of an update until the next update, because a
    /// question that shows them may follow: the call does not run yet, and has no result. Returns
    /// whether they are held back.
    pub fn hold_changes(&mut self, update: &CallUpdate) -> bool {
        let is_before = matches!(self.progress, None | Some(Progress::Pending));
        let has_result = update.output.is_some() || update.stream.is_some();
        self.holds_changes = is_before && !has_result && !self.changes.is_empty();
        self.holds_changes
    }

    /// Returns whether the content of a question has to be replaced by that of the call now, and
    /// records that it is. File changes are the same in both, so if there are any, the text of the
    /// question remains below them until the call `has_ended`.
    pub fn take_replaced_question(&mut self, has_ended: bool) -> bool {
        let is_due = has_ended || self.changes.is_empty();
        is_due && std::mem::take(&mut self.shows_question)
    }

    /// Applies the update with which a question shows its call, without a result.
    pub fn apply_question(&mut self, update: &CallUpdate) {
        self.apply_update(update);
        self.output = None;
    }

    /// Returns the output to be written to the terminal. While the command runs, that is the new
    /// output. When the call `has_ended`, it is all of the output if the terminal shows something
    /// other than a replay would, because a part was skipped or is not stored.
    pub fn terminal_output<'a>(
        &mut self,
        update: &'a CallUpdate,
        has_ended: bool,
    ) -> Option<TerminalOutput<'a>> {
        if let Some(stream) = &update.stream {
            if self.terminal_text.len() <= MAX_COMPARED_BYTES {
                self.terminal_text.push_str(stream);
            }
            return Some(TerminalOutput::More(stream));
        }
        if !has_ended {
            return None;
        }
        let output = update.output.as_deref()?;
        let plain = if self.is_program_output() {
            output
        } else {
            self.output_before_cancel(output)?
        };
        let whole = update.coloured.as_deref().unwrap_or(plain);
        // The output in the terminal of an earlier call is no longer known.
        let is_shown = !update.earlier
            && self.terminal_text.len() <= MAX_COMPARED_BYTES
            && self.terminal_text.trim_end_matches('\n') == whole.trim_end_matches('\n');
        if is_shown {
            return None;
        }
        whole.clone_into(&mut self.terminal_text);
        Some(TerminalOutput::Whole(whole))
    }

    /// Returns whether the terminal shows any output.
    pub fn has_output_in_terminal(&self) -> bool {
        !self.terminal_text.is_empty()
    }

    /// Returns whether the output is that of a program that ran.
    fn is_program_output(&self) -> bool {
        self.exit.is_some() || self.progress == Some(Progress::Completed)
    }

    /// Returns the output of a cancelled command without the reason of its end, which follows the
    /// output after an empty line. Returns `None` if there was no output.
    fn output_before_cancel<'a>(&self, output: &'a str) -> Option<&'a str> {
        if self.progress != Some(Progress::Cancelled) {
            return None;
        }
        let (printed, _) = output.rsplit_once("\n\n")?;
        (!printed.is_empty()).then_some(printed)
    }

    /// Links the call to the session of its subagent, which the client knows. Returns whether the
    /// content has changed; a call that does not run gets no link.
    pub fn link_session(&mut self, session: &SessionId) -> bool {
        let runs = matches!(self.progress, Some(Progress::Pending | Progress::Running));
        if !runs || self.session.as_ref() == Some(session) {
            return false;
        }
        self.session = Some(session.clone());
        true
    }

    /// Returns the content of the call in its present state.
    pub fn content(&self) -> Vec<ToolCallContent<'_>> {
        let mut out = self.changes();
        out.extend(self.session.as_ref().map(ToolCallContent::Session));
        let failed = matches!(self.progress, Some(Progress::Failed | Progress::Cancelled));
        if self.has_terminal {
            out.push(ToolCallContent::Terminal);
        }
        let text_content = |text: &str| ToolCallContent::Text(text.to_owned());
        match (&self.output, self.kind) {
            // A terminal shows the exit status, but not that a time limit was reached.
            (Some(_), _) if self.has_terminal && self.is_program_output() => {
                out.extend(self.time_limit.and(self.exit_message()))
            }
            (Some(output), ToolKind::Execute) if self.is_program_output() => {
                out.extend(code_block_content(output));
                out.extend(self.exit_message());
            }
            (Some(output), ToolKind::Execute) if self.progress == Some(Progress::Cancelled) => {
                let (printed, reason) = output.rsplit_once("\n\n").unwrap_or(("", output));
                if !self.has_terminal {
                    out.extend(code_block_content(printed));
                }
                out.push(text_content(reason));
            }
            // The reason of a failure is plain text.
            (Some(output), _) if failed => out.push(text_content(output)),
            (Some(_), _) if self.has_terminal => {}
            // The change is shown instead.
            (Some(_), ToolKind::Edit) if !self.changes.is_empty() => {
                out.extend(self.errors.as_deref().map(text_content))
            }
            (Some(output), ToolKind::Execute | ToolKind::Read | ToolKind::Search) => {
                out.extend(code_block_content(output))
            }
            (Some(output), _) if !output.is_empty() => out.push(text_content(output)),
            _ => out.extend(code_block_content(&rendered(&self.tail))),
        }
        if let Some(path) = &self.output_file {
            let path = inline_code(&text::escaped(path));
            out.push(ToolCallContent::Text(format!(
                "More of the output is in {path}."
            )));
        }
        out.extend(self.attachments.iter().map(ToolCallContent::File));
        out
    }

    /// Describes the exit status or the time limit that ended the command. Returns `None` if the
    /// command succeeded, or its exit status is unknown.
    fn exit_message(&self) -> Option<ToolCallContent<'_>> {
        let text = match (self.time_limit, self.exit.as_ref()?) {
            (Some(limit), _) => format!("Ended at its time limit of {limit} ms."),
            (None, ProgramExit { code: Some(0), .. }) => return None,
            (
                None,
                ProgramExit {
                    code: Some(code), ..
                },
            ) => format!("Exit code {}.", ExitCode(*code)),
            (None, ProgramExit { signal, .. }) => {
                format!("Ended by {}.", signal.as_deref().unwrap_or("a signal"))
            }
        };
        Some(ToolCallContent::Text(text))
    }

    /// Returns the file changes. Those that do not fit into a line are replaced by a sentence.
    pub fn changes(&self) -> Vec<ToolCallContent<'_>> {
        let mut free_bytes = MAX_CHANGES_BYTES;
        let fit_change = |change| match free_bytes.checked_sub(json_len_of_change(change)) {
            Some(left) => {
                free_bytes = left;
                ToolCallContent::Change(change)
            }
            None => {
                ToolCallContent::Text(format!("{} is too large to show the change.", change.path))
            }
        };
        self.changes.iter().map(fit_change).collect()
    }
}

/// Returns the path of the file with the whole output of a call, if the result has only a part of it.
fn output_file(facts: &Map<String, Value>) -> Option<&str> {
    let is_cut = facts.get(CallFacts::TRUNCATED) == Some(&Value::Bool(true));
    let path = facts.get(CallFacts::OUTPUT_PATH)?.as_str()?;
    is_cut.then_some(path)
}

/// Returns a text as a code block; `None` if it is empty.
fn code_block_content<'a>(text: &str) -> Option<ToolCallContent<'a>> {
    (!text.is_empty()).then(|| ToolCallContent::Text(code_block("", text)))
}

/// Returns the arguments of a call for ACP's `rawInput`; `None` if they are too long to be sent.
pub fn raw_input(update: &CallUpdate) -> Option<Value> {
    update
        .input
        .as_ref()
        .filter(|input| input.is_object() && is_short(input))
        .cloned()
}

/// The key of the text in a raw output, the same as OpenCode's.
pub const OUTPUT: &str = "output";

/// Returns the metadata of a result for ACP's `rawOutput`, with the beginning of its text as
/// `output`, because some clients show metadata without that key as JSON. The exit code is in
/// `metadata` as well, as in OpenCode. Returns `None` if there is nothing, or too much, to
/// send.
pub fn raw_output(update: &CallUpdate) -> Option<Value> {
    let mut facts = update.metadata.clone().unwrap_or_default();
    if let Some(exit) = facts.get(CallFacts::EXIT).cloned() {
        facts.insert("metadata".to_owned(), json!({ CallFacts::EXIT: exit }));
    }
    if let Some(output) = update.output.as_ref().filter(|output| !output.is_empty()) {
        let beginning = cut_to_whole_lines(text::head(output, MAX_RAW_TEXT_BYTES), output);
        let more = if beginning.len() < output.len() {
            "\n…"
        } else {
            ""
        };
        facts.insert(OUTPUT.to_owned(), format!("{beginning}{more}").into());
    }
    (!facts.is_empty())
        .then_some(Value::Object(facts))
        .filter(is_short)
}

/// Cuts the beginning of a text after its last whole line, unless it has none.
fn cut_to_whole_lines<'a>(beginning: &'a str, all: &str) -> &'a str {
    let is_cut = beginning.len() < all.len() && !all[beginning.len()..].starts_with('\n');
    match beginning.rfind('\n') {
        Some(end) if is_cut && end > 0 => &beginning[..end],
        _ => beginning,
    }
}

/// The text in the raw outputs of a client. Some clients print it in addition to the content, so that
/// the user would read the result twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RawText {
    /// The text of the result, for clients that show it only if there is no content.
    #[default]
    Result,
    /// The text of the content, for acpx, which prints equal texts once.
    Content,
    /// No text, for acpbox, which appends the content to it.
    Nothing,
}

impl RawText {
    /// Returns the text for a client with this name.
    pub fn of_client(name: &str) -> Self {
        match name {
            "acpx" => Self::Content,
            "acpbox" => Self::Nothing,
            _ => Self::Result,
        }
    }

    /// Adapts a raw output to the client. `texts` are those of the content that is sent with it.
    pub fn adapt(self, raw: &mut Value, texts: &[&str]) {
        let Some(raw) = raw.as_object_mut() else {
            return;
        };
        let text = match self {
            Self::Result => return,
            _ if texts.is_empty() => return,
            // A part of the text would be printed in addition to the content.
            Self::Content
                if texts.iter().map(|text| json_len(text) + 4).sum::<usize>() > MAX_TEXT_BYTES =>
            {
                String::new()
            }
            Self::Content => texts.join("\n\n"),
            Self::Nothing => String::new(),
        };
        raw.insert(OUTPUT.to_owned(), text.into());
    }
}

/// Returns whether a value is short enough to be sent. Stops reading a longer value at the limit.
fn is_short(value: &Value) -> bool {
    !text::is_longer(value, MAX_RAW_BYTES) && value.to_string().len() < MAX_RAW_BYTES
}

/// Returns the length of a change as JSON.
fn json_len_of_change(change: &Change) -> usize {
    change.old.as_deref().map_or(0, json_len) + json_len(&change.new)
}

/// Returns the length of a text as JSON.
fn json_len(text: &str) -> usize {
    let byte_len = |b: u8| match b {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte_len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_message_ends_with_the_size_of_the_rest() {
        let whole = "é".repeat(MAX_CHUNK_BYTES / 2);
        assert!(subagent_message_text(&whole) == whole);
        let shown = subagent_message_text(&format!("a{whole}")).into_owned();
        let beginning = &whole[..MAX_CHUNK_BYTES - 2];
        assert!(shown.starts_with(&format!("a{beginning}…\n\n[2 more bytes")));
        assert!(shown.len() < MAX_CHUNK_BYTES + 200);
    }

    #[test]
    fn terminal_can_change_until_its_background_command_ends() {
        for (facts, remains) in [
            (json!({}), false),
            (json!({ "background": "bash_1" }), true),
            (
                json!({ "background": "bash_1", "ended": "exit code 0" }),
                false,
            ),
        ] {
            let call = CallId::new("c");
            let update = CallUpdate {
                metadata: facts.as_object().cloned(),
                ..CallUpdate::default()
            };
            let terminals = ShownTerminals::default();
            terminals.add(&call);
            terminals.remove_ended(&call, &update);
            assert_eq!(terminals.has(&call), remains, "{facts}");
        }
    }

    #[test]
    fn raw_text_is_adapted_to_clients_that_print_it_with_the_content() {
        let texts = ["```\na\n```", "Exit code 3."];
        for (name, texts, wanted) in [
            ("zed", &texts[..], "a\n"),
            ("acpx", &texts[..], "```\na\n```\n\nExit code 3."),
            ("acpbox", &texts[..], ""),
            ("acpx", &[], "a\n"),
            ("acpbox", &[], "a\n"),
        ] {
            let mut raw = json!({ "exit": 3, "output": "a\n" });
            RawText::of_client(name).adapt(&mut raw, texts);
            assert_eq!(raw, json!({ "exit": 3, "output": wanted }), "{name}");
        }
        let long = "\n".repeat(MAX_TEXT_BYTES);
        let mut raw = json!({ "output": "a\n" });
        RawText::Content.adapt(&mut raw, &[&long]);
        assert_eq!(raw, json!({ "output": "" }));
    }

    #[test]
    fn beginning_ends_with_a_whole_line() {
        for (beginning, all, wanted) in [
            ("ab\ncd", "ab\ncdef\n", "ab"),
            ("ab\ncd", "ab\ncd\nef", "ab\ncd"),
            ("ab\ncd", "ab\ncd", "ab\ncd"),
            ("abcd", "abcdef", "abcd"),
            ("\nab", "\nabc", "\nab"),
        ] {
            assert_eq!(cut_to_whole_lines(beginning, all), wanted, "{all:?}");
        }
    }
}
