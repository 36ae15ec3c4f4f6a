//! The client of a run: shows updates and answers requests.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anstyle::Style;
use protocol::acp::v1;
use protocol::table::{self, RequestContext};
use tokio::sync::oneshot;

use super::keyboard::{Introduction, Keyboard, LineCheck};
use super::{Args, OutputFormat};
use crate::cli::call_view::{
    CallOutput, EndedCall, MAX_GOOD_OUTPUT_LINES, MAX_OUTPUT_LINES, ShownLines,
};
use crate::cli::form::{self, Field, FieldAnswer, FieldReply};
use crate::cli::refused::{self, RefusedCall};
use crate::cli::reply::{self, TypedReply};
use crate::cli::terminal;
use crate::cli::terminal::format_duration;
use crate::cli::terminal::line_aids::LineAids;
use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::style::{BAD, FAINT, STRONG};
use crate::cli::terminal::styled::{MAX_CHANGE_LINES, MAX_SPARED_LINES, Palette, Styled};
use crate::cli::trust::{fitted_question, view_name, whole_file};
use acp_server::meta::{
    COMMENT, COMPACTED, DETAILS, LINES_BEFORE, WHY_NOT_ALWAYS, member, with_member,
};
use acp_server::options::MODEL;
use acp_server::permission_request::YES;
use acp_server::view::parse_retry_notice;
use base::environment::Environment;
use base::lock::lock;
use base::text;
use base::text::diff::LineDiff;
use providers::local;
use providers::registry::Registry;
use tools::denial_message::YOU_REJECTED;
use tools::failure_text;
use transcript::{CallFacts, ExitCode, ModelRef};

/// The lines of a question about trust in addition to its text and changes: the title with the line
/// before it, the answers, and the line that is typed.
const TRUST_ANSWER_LINES: usize = 7;

/// The activity before the model answers: it may load, think without showing it, or be busy.
const WAITING: &str = "waiting for the model";

/// The time after which a running call is named, if there is no spinner.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest time of the model's reasoning that is shown.
const MIN_SHOWN_REASONING: Duration = Duration::from_secs(2);

/// The longest duration of a call that is not printed after its title.
const MAX_UNSHOWN_DURATION: Duration = Duration::from_secs(1);

/// The source of the answers to permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerPolicy {
    /// The user, or a refusal if no user can be asked.
    User,
    /// `--allow`: each request is allowed.
    AllowAll,
    /// `--deny`: each request is refused.
    DenyAll,
}

impl AnswerPolicy {
    fn new(args: &Args) -> Self {
        if args.allow {
            Self::AllowAll
        } else if args.deny {
            Self::DenyAll
        } else {
            Self::User
        }
    }
}

/// The ACP client of a run.
pub(super) struct Client {
    format: OutputFormat,
    /// Whether only a structured result is printed, instead of text.
    has_schema: bool,
    /// True if notes are printed.
    has_notes: bool,
    answer_policy: AnswerPolicy,
    /// Whether commands that are named to the user need the id of the session: it need not be the
    /// last one of the project of the working directory.
    names_session: bool,
    /// Whether the session is in another database than that of the settings.
    has_other_store: bool,
    /// The directory of the run.
    directory: PathBuf,
    /// Whether the turn ended because something was rejected; then the last text is not an answer.
    is_rejected: AtomicBool,
    pub(super) screen: Arc<Screen>,
    keyboard: Keyboard,
    // A std mutex: a leaf lock, never held across an await.
    progress: Mutex<RunProgress>,
    /// The last call that the user has rejected in this turn without a reason. A std mutex, as for
    /// the progress.
    rejected: Arc<Mutex<Option<String>>>,
    /// The config options of a conversation, if the session has changed them.
    options: Mutex<Option<Vec<v1::SessionConfigOption>>>,
    /// The names of the session's commands, as it has reported them last.
    commands: Mutex<Vec<String>>,
}

#[derive(Default)]
struct RunProgress {
    /// The message of the last text.
    message: Option<v1::MessageId>,
    /// The text since the last call, if text is held back until it is known to be the answer.
    text: String,
    /// The text before the last call, which is the answer if no other text follows the call.
    earlier_text: String,
    /// The calls in progress.
    calls: HashMap<v1::ToolCallId, CallProgress>,
    /// The todo list that a call in progress has set.
    plan: Option<(v1::ToolCallId, v1::Plan)>,
    /// True if the last output is a call, after which a blank line separates the text that follows.
    follows_call: bool,
    /// The beginning of the reasoning that the model is at.
    thinking_since: Option<Instant>,
    /// Whether there was text since the last call.
    has_answer: bool,
    /// The text since the last call, if only a result is printed.
    answer: String,
    /// The beginning of an answer whose request failed and is repeated.
    broken_answer: String,
    /// The message of the last text of `answer`.
    answer_message: Option<v1::MessageId>,
    /// The calls that were refused without asking.
    refused: Vec<RefusedCall>,
    /// The background jobs that are running.
    background: BTreeSet<String>,
    /// The sessions of subagents.
    subagents: HashMap<v1::SessionId, SubagentTask>,
    /// The session whose call was shown last.
    shown: Option<v1::SessionId>,
    /// The failed requests since the model's last answer, if no note about them was printed.
    retries: usize,
    /// The cause of the last failed request.
    retry_cause: String,
    /// The model that was shown last, or the default of the settings, which is not shown.
    model: Option<ModelRef>,
    /// True when the prompt is about to be sent; before that, no model is shown.
    has_begun: bool,
    /// The command that shows the whole output of a call, until it was named.
    full_output_hint: Option<String>,
}

/// The task of a subagent.
#[derive(Clone)]
struct SubagentTask {
    title: String,
    /// The call that started it.
    call: v1::ToolCallId,
    /// The session of that call.
    parent: v1::SessionId,
    /// The number of sessions above it.
    depth: usize,
}

/// A call in progress.
struct CallProgress {
    title: String,
    kind: v1::ToolKind,
    changes: Vec<v1::Diff>,
    /// The files that it is about.
    files: Vec<PathBuf>,
    /// The changes that its question has shown and the user has accepted.
    accepted: Vec<v1::Diff>,
    begun: Instant,
    waiting: WaitingTime,
    /// True if the user was asked about it.
    was_asked: bool,
    /// True if it runs: it is not waiting for an answer any more.
    is_running: bool,
    /// The remark shown at its end if the user refused it, or no user could be asked.
    refused: Option<String>,
}

/// The time for which a call has waited for answers of the user. Its questions may overlap, because
/// subagents ask independently.
#[derive(Debug, Default)]
struct WaitingTime {
    /// The time of the questions that are closed.
    closed: Duration,
    open_questions: usize,
    /// The time at which the first of the open questions was asked.
    open_since: Option<Instant>,
}

impl WaitingTime {
    fn begin(&mut self, now: Instant) {
        self.open_questions += 1;
        self.open_since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.open_questions = self.open_questions.saturating_sub(1);
        if self.open_questions == 0
            && let Some(since) = self.open_since.take()
        {
            self.closed += now.saturating_duration_since(since);
        }
    }

    /// Returns the whole time, with that of questions that are still open: a call that is cancelled
    /// may end before its question is withdrawn.
    fn until(&self, now: Instant) -> Duration {
        let open = self
            .open_since
            .map(|since| now.saturating_duration_since(since));
        self.closed + open.unwrap_or_default()
    }
}

impl Client {
    pub(super) fn new(args: &Args, environment: &Environment) -> Self {
        let is_text = args.format == OutputFormat::Text;
        let shows_calls = is_text && !args.quiet;
        let screen = Arc::new(Screen::new(is_text, shows_calls, environment));
        Self {
            format: args.format,
            has_schema: args.schema.is_some(),
            has_notes: !args.quiet,
            answer_policy: AnswerPolicy::new(args),
            names_session: args.session.is_some()
                || args.store.is_some()
                || args.cwd.as_path() != Path::new("."),
            has_other_store: args.store.is_some(),
            directory: args.cwd.canonicalize().unwrap_or_default(),
            is_rejected: AtomicBool::new(false),
            keyboard: Keyboard::new(screen.clone()),
            screen,
            rejected: Arc::default(),
            options: Mutex::default(),
            commands: Mutex::default(),
            progress: Mutex::new(RunProgress {
                full_output_hint: Some("adjutant sessions show --full".to_owned()),
                ..RunProgress::default()
            }),
        }
    }

    /// Returns whether there is a user who can be asked.
    pub(super) fn can_ask_user(&self) -> bool {
        self.format == OutputFormat::Text
            && self.answer_policy == AnswerPolicy::User
            && terminal::question::has_user()
    }

    /// Returns whether the calls of subagents are shown.
    pub(super) fn shows_subagents(&self) -> bool {
        self.screen.shows_calls()
    }

    /// Returns whether notes are left out (`--quiet`, in text format).
    pub(super) fn is_quiet(&self) -> bool {
        !self.has_notes && self.format == OutputFormat::Text
    }

    /// Returns whether the next command is named if the run ends early.
    pub(super) fn shows_hints(&self) -> bool {
        self.screen.shows_calls() && self.screen.is_read()
    }

    /// Hides the calls and questions that an interrupt ends, if the run ends with a line about it.
    pub(super) fn interrupt(&self) {
        if self.shows_hints() {
            self.screen.interrupt();
        }
    }

    /// Returns whether a request was refused.
    pub(super) fn has_refused(&self) -> bool {
        !self.progress().refused.is_empty()
    }

    /// Returns whether the model has written text after its last call.
    pub(super) fn has_answer(&self) -> bool {
        self.progress().has_answer
    }

    /// Returns the text after the last call.
    pub(super) fn answer(&self) -> String {
        self.progress().answer.clone()
    }

    /// Returns the text after the last call of a run that has failed: as much of it as has arrived in
    /// the last attempt with any.
    pub(super) fn unfinished_answer(&self) -> String {
        let progress = self.progress();
        if progress.answer.is_empty() {
            return progress.broken_answer.clone();
        }
        progress.answer.clone()
    }

    /// Returns the calls that were refused without asking.
    pub(super) fn refused(&self) -> Vec<RefusedCall> {
        self.progress().refused.clone()
    }

    /// Records that the turn ended because something was rejected.
    pub(super) fn record_rejection(&self) {
        self.is_rejected.store(true, Ordering::Relaxed);
    }

    /// Prints the id of the session, and its model unless that is the default of the settings.
    pub(super) fn begin(
        &self,
        session: &v1::SessionId,
        default_model: Option<ModelRef>,
        options: &[v1::SessionConfigOption],
    ) {
        if self.format != OutputFormat::Text {
            return;
        }
        let mut progress = self.progress();
        progress.model = default_model;
        progress.has_begun = true;
        if self.names_session {
            progress.full_output_hint = Some(format!("{} --full", self.showing_command(session)));
        }
        drop(progress);
        if self.has_notes {
            let line = format!("session {session}");
            self.screen.message(&self.screen.aside.line(FAINT, &line));
        }
        self.show_model(options);
    }

    /// Shows that the model is awaited.
    pub(super) fn wait_for_model(&self) {
        if self.format == OutputFormat::Text {
            self.screen.show_activity(WAITING);
        }
    }

    /// Prints the id of another session of a conversation, and its model if that is another one.
    pub(super) fn introduce(&self, session: &v1::SessionId, options: &[v1::SessionConfigOption]) {
        self.hint(&format!("session {session}"));
        self.show_model(options);
        let mut progress = self.progress();
        // They ended with the session that was closed.
        progress.background.clear();
        if self.names_session {
            progress.full_output_hint = Some(format!("{} --full", self.showing_command(session)));
        }
        drop(progress);
        *lock(&self.options) = None;
    }

    /// Takes the config options as the session has reported them since the last call.
    pub(super) fn take_options(&self) -> Option<Vec<v1::SessionConfigOption>> {
        lock(&self.options).take()
    }

    /// Returns the names of the session's commands.
    pub(super) fn commands(&self) -> Vec<String> {
        lock(&self.commands).clone()
    }

    /// Returns the command that shows the session.
    fn showing_command(&self, session: &v1::SessionId) -> String {
        let mut command = "adjutant sessions show".to_owned();
        if self.names_session {
            command.push_str(&format!(" {session}"));
        }
        command
    }

    /// Returns the command that continues the conversation later.
    pub(super) fn continuing_command(&self, session: &v1::SessionId) -> String {
        match (self.names_session, self.has_other_store) {
            (false, _) => "adjutant chat -c".to_owned(),
            (true, false) => format!("adjutant chat -s {session}"),
            // The address of a database may have a password.
            (true, true) => format!("adjutant chat --store URL -s {session}"),
        }
    }

    /// Prints a line that a user needs only once, unless notes are left out.
    pub(super) fn hint(&self, text: &str) {
        if self.has_notes {
            self.screen.message(&self.screen.aside.line(FAINT, text));
        }
    }

    /// Prints an error that does not end a conversation.
    pub(super) fn error(&self, text: &str) {
        self.screen.print_note(&terminal::error_line(text));
    }

    /// Asks for the next prompt of a conversation; returns `None` at the end of the input. `mode` is
    /// named unless it is the usual one.
    pub(super) async fn next_prompt(&self, mode: Option<&str>, aids: LineAids) -> Option<String> {
        let mode = text::escaped(mode.unwrap_or_default());
        let mark = self.screen.aside.styled(STRONG, &format!("{mode}> "));
        let mut question = Palette::plain("\n");
        question.push(&mark);
        let check: LineCheck = Box::new(move |line| line.trim().is_empty().then(|| mark.clone()));
        self.keyboard.ask_for_prompt(question, check, aids).await
    }

    /// Shows the first prompt of a conversation as if it had been typed. Nothing is shown with
    /// `--quiet`.
    pub(super) fn show_prompt(&self, prompt: &str) {
        if !self.has_notes {
            return;
        }
        let palette = self.screen.aside;
        let mut shown = Palette::plain("\n");
        shown.push(&palette.styled(STRONG, "> "));
        shown.push(&Palette::plain(prompt));
        self.screen.message(&shown);
    }

    /// Shows the end of the conversation that is continued: its last prompt, and the last lines of
    /// the answer. Nothing is shown with `--quiet`.
    pub(super) fn show_last_exchange(&self, session: &v1::SessionId, prompt: &str, answer: &str) {
        const MAX_LINES: usize = 12;
        const MAX_PROMPT_LINES: usize = 6;
        if !self.has_notes {
            return;
        }
        let first: Vec<&str> = prompt.lines().take(MAX_PROMPT_LINES).collect();
        self.show_prompt(&first.join("\n"));
        let hidden = prompt.lines().count() - first.len();
        if hidden > 0 {
            self.hint(&format!("… {} more", text::count(hidden, "line")));
        }
        self.screen.message(&Palette::plain(""));
        let rendered = self.screen.aside.markdown(answer.trim(), 0);
        let lines: Vec<&str> = rendered.as_str().lines().collect();
        let hidden = lines.len().saturating_sub(MAX_LINES);
        if hidden > 0 {
            let line = format!(
                "… {} before; `{}` has all",
                text::count(hidden, "line"),
                self.showing_command(session)
            );
            self.hint(&line);
        }
        self.screen.message(&rendered.last_lines(MAX_LINES));
    }

    /// Begins a turn of a conversation: the state of the turn before it is forgotten, except for the
    /// calls that were refused, which are listed at the end.
    pub(super) fn begin_turn(&self) {
        let mut progress = self.progress();
        let RunProgress {
            refused,
            background,
            subagents,
            shown,
            model,
            has_begun,
            full_output_hint,
            ..
        } = std::mem::take(&mut *progress);
        *progress = RunProgress {
            refused,
            background,
            subagents,
            shown,
            model,
            has_begun,
            full_output_hint,
            ..RunProgress::default()
        };
        drop(progress);
        self.is_rejected.store(false, Ordering::Relaxed);
        *lock(&self.rejected) = None;
        self.wait_for_model();
    }

    /// Ends a turn of a conversation: nothing is awaited until the next prompt.
    pub(super) fn end_turn(&self) {
        self.screen.end_turn();
    }

    /// Prints the reason for an incomplete answer in a conversation.
    pub(super) fn report_end(&self, reason: v1::StopReason) {
        match reason {
            v1::StopReason::Cancelled => self.screen.print_note("interrupted"),
            v1::StopReason::MaxTokens => {
                self.error(&format!("the answer is incomplete: {}", super::CUT_OFF));
            }
            _ => {}
        }
    }

    /// Prints the model of a session's config options, unless it is the one that was shown last.
    /// The offline model introduces itself.
    fn show_model(&self, options: &[v1::SessionConfigOption]) {
        let of_model = options.iter().find(|option| *option.id.0 == *MODEL);
        let Some(v1::SessionConfigKind::Select(choice)) = of_model.map(|option| &option.kind)
        else {
            return;
        };
        let Some(model) = ModelRef::parse(&choice.current_value.0) else {
            return;
        };
        let mut progress = self.progress();
        let is_offline = model.provider == Registry::OFFLINE;
        let is_shown = progress
            .model
            .as_ref()
            .is_some_and(|shown| local::is_same_model(shown, &model));
        if !self.has_notes || !progress.has_begun || is_offline || is_shown {
            return;
        }
        progress.model = Some(model.clone());
        drop(progress);
        let line = format!("model {model}");
        self.screen.message(&self.screen.aside.line(FAINT, &line));
    }

    /// Prints the answer if it was held back, and the background jobs that end with the run. The
    /// answer is the last text; a failed run has none.
    pub(super) fn end(&self, failed: bool) {
        self.screen.finish();
        let RunProgress {
            text,
            earlier_text,
            background,
            refused,
            ..
        } = std::mem::take(&mut *self.progress());
        if self.format != OutputFormat::Text {
            return self.print_refused(&refused);
        }
        // The text before a call was shown with it.
        let (narration, answer) = match text.trim() {
            _ if failed => (text, String::new()),
            "" => (String::new(), earlier_text),
            // The rejection is reported by the client, so the text after it is not an answer.
            _ if self.is_rejected.load(Ordering::Relaxed) => (text, earlier_text),
            _ => (String::new(), text),
        };
        self.narrate(&narration);
        if !answer.is_empty() {
            self.screen.words(&answer);
        }
        self.screen.end_line();
        // The user may expect background jobs to continue.
        if !background.is_empty() {
            let ids: Vec<String> = background.into_iter().collect();
            self.print_note(&format!(
                "background commands end with this run: {}",
                ids.join(", ")
            ));
        }
        self.print_refused(&refused);
    }

    /// Prints a notice as a note. The notice of a failed request is printed even with `--quiet`,
    /// once for each cause, and shown next to the spinner until the retry.
    fn notice(&self, text: &str) {
        let Some((wait, cause)) = parse_retry_notice(text) else {
            // After a call of a prompt it is a notice, after one of an answer a part of the answer.
            if text.starts_with(YOU_REJECTED) && self.has_notes {
                return self.screen.print_note(text);
            }
            return self.print_note(text);
        };
        // The beginning of the failed answer ends here: the next attempt begins anew.
        self.screen.end_line();
        let unfinished = std::mem::take(&mut self.progress().text);
        if self.screen.shows_calls() {
            self.narrate(&unfinished);
        }
        if let Some(cause) = cause {
            let mut progress = self.progress();
            progress.retry_cause = cause.to_owned();
        }
        // Next to the spinner, the cause is shown with the time that is left.
        if self.screen.turns() {
            let mut progress = self.progress();
            progress.retries += 1;
            let cause = progress.retry_cause.clone();
            drop(progress);
            return self.screen.retrying(WAITING, &cause, wait);
        }
        if !self.has_notes && cause.is_some() {
            self.screen.print_note(text);
        } else {
            self.print_note(text);
        }
    }

    /// Prints the number of failed requests and their cause once the model answers. A run that fails
    /// ends with its error.
    fn report_retries(&self, update: &v1::SessionUpdate) {
        if !matches!(
            update,
            v1::SessionUpdate::AgentMessageChunk(_)
                | v1::SessionUpdate::AgentThoughtChunk(_)
                | v1::SessionUpdate::ToolCall(_)
        ) {
            return;
        }
        let mut progress = self.progress();
        let retries = std::mem::take(&mut progress.retries);
        let cause = progress.retry_cause.clone();
        drop(progress);
        if retries > 0 {
            self.print_note(&format!(
                "{cause} It answered after {}.",
                if retries == 1 {
                    "another try".to_owned()
                } else {
                    format!("{retries} more tries")
                }
            ));
        }
    }

    /// Prints a note on standard error, unless notes are left out.
    fn print_note(&self, text: &str) {
        if self.has_notes {
            self.screen.print_note(&format!("note: {text}"));
        }
    }

    /// Lists the calls that were refused because no user could be asked.
    fn print_refused(&self, refused: &[RefusedCall]) {
        if self.can_ask_user() {
            return;
        }
        if let Some(list) = refused::listed(refused) {
            self.screen.print_note(&list);
        }
    }

    /// Handles `session/update`.
    pub(super) fn update(client: &Arc<Self>, note: v1::SessionNotification) {
        let subagent = client.progress().subagents.get(&note.session_id).cloned();
        if let Some(task) = subagent {
            return client.subagent_update(&note.session_id, &task, note.update);
        }
        client.record_answer(&note.update);
        client.report_retry(&note.update);
        if client.format != OutputFormat::Text {
            return;
        }
        client.report_retries(&note.update);
        client.time_reasoning(&note.update);
        match note.update {
            v1::SessionUpdate::AgentThoughtChunk(_) => client.show_model_activity("thinking"),
            v1::SessionUpdate::AgentMessageChunk(_) if client.has_schema => {
                client.show_model_activity("answering")
            }
            v1::SessionUpdate::AgentMessageChunk(chunk) => {
                client.add_text(chunk);
                client.show_model_activity("answering");
            }
            v1::SessionUpdate::ToolCall(call) => {
                Self::announce_later(client, call.tool_call_id.clone());
                client.call(call);
            }
            v1::SessionUpdate::ToolCallUpdate(update) => {
                client.tool_call_update(&note.session_id, update)
            }
            v1::SessionUpdate::Plan(plan) => client.plan(plan),
            v1::SessionUpdate::ConfigOptionUpdate(update) => {
                client.show_model(&update.config_options);
                *lock(&client.options) = Some(update.config_options);
            }
            v1::SessionUpdate::AvailableCommandsUpdate(update) => {
                let names = update.available_commands.into_iter();
                *lock(&client.commands) = names.map(|command| command.name).collect();
            }
            v1::SessionUpdate::Notice(notice) => {
                client.notice(&notice_text(&notice));
            }
            // One with text begins the summary anew.
            v1::SessionUpdate::CompactionUpdate(update)
                if update.status == v1::CompactionStatus::InProgress
                    && update.summary.is_undefined() =>
            {
                client.print_note("summarising the conversation to free context");
            }
            v1::SessionUpdate::CompactionUpdate(update)
                if update.status == v1::CompactionStatus::Completed =>
            {
                client.print_note(&summarised(&update));
            }
            _ => {}
        }
    }

    /// Shows the calls and notices of a subagent. Its text is for the agent that started it.
    fn subagent_update(
        &self,
        session: &v1::SessionId,
        task: &SubagentTask,
        update: v1::SessionUpdate,
    ) {
        match update {
            v1::SessionUpdate::ToolCall(call) => self.begin_call(call),
            v1::SessionUpdate::ToolCallUpdate(update) => self.tool_call_update(session, update),
            v1::SessionUpdate::Notice(notice) => {
                self.print_note(&format!("{}: {}", task.title, notice_text(&notice)));
            }
            _ => {}
        }
    }

    /// Shows the activity of the model, unless a call runs in the meantime.
    fn show_model_activity(&self, activity: &str) {
        if self.progress().calls.is_empty() {
            self.screen.show_activity(activity);
        }
    }

    /// Records whether there is an answer.
    fn record_answer(&self, update: &v1::SessionUpdate) {
        match update {
            v1::SessionUpdate::ToolCall(_) => {
                let mut progress = self.progress();
                progress.has_answer = false;
                progress.answer.clear();
                progress.broken_answer.clear();
            }
            v1::SessionUpdate::AgentMessageChunk(chunk) => {
                if self.format == OutputFormat::Result {
                    self.progress().add_to_answer(chunk);
                }
                let has_text = matches!(&chunk.content, v1::ContentBlock::Text(text) if !text.text.trim().is_empty());
                self.progress().has_answer |= has_text;
            }
            // A failed request is repeated, and its answer with it.
            v1::SessionUpdate::Notice(notice)
                if parse_retry_notice(&notice_text(notice)).is_some() =>
            {
                let mut progress = self.progress();
                progress.has_answer = false;
                let begun = std::mem::take(&mut progress.answer);
                if !begun.is_empty() {
                    progress.broken_answer = begun;
                }
            }
            _ => {}
        }
    }

    /// Prints the notice of a failed request if only a result is printed, which may be minutes away.
    fn report_retry(&self, update: &v1::SessionUpdate) {
        if self.format != OutputFormat::Result {
            return;
        }
        if let v1::SessionUpdate::Notice(notice) = update {
            let text = notice_text(notice);
            if parse_retry_notice(&text).is_some() {
                self.print_note(&text);
            }
        }
    }

    /// Measures the time of the model's reasoning, and prints it when something else follows.
    fn time_reasoning(&self, update: &v1::SessionUpdate) {
        let mut progress = self.progress();
        match update {
            v1::SessionUpdate::AgentThoughtChunk(_) => {
                progress.thinking_since.get_or_insert_with(Instant::now);
                return;
            }
            v1::SessionUpdate::AgentMessageChunk(_) | v1::SessionUpdate::ToolCall(_) => {}
            _ => return,
        }
        let elapsed = progress.thinking_since.take().map(|since| since.elapsed());
        drop(progress);
        if let Some(elapsed) = elapsed
            && elapsed >= MIN_SHOWN_REASONING
            && self.shows_hints()
        {
            let line = format!("thought for {}", format_duration(elapsed));
            self.screen.end_line();
            self.screen.message(&self.screen.aside.line(FAINT, &line));
        }
    }

    /// Adds text of the model. It is shown immediately on a terminal, and otherwise held back until
    /// it is known to be the answer.
    fn add_text(&self, chunk: v1::ContentChunk) {
        let v1::ContentBlock::Text(text) = chunk.content else {
            return;
        };
        let mut progress = self.progress();
        let is_blank = text.text.trim().is_empty();
        let follows_call = !is_blank && std::mem::take(&mut progress.follows_call);
        let is_other_message = progress.message.is_some() && progress.message != chunk.message_id;
        let another = follows_call || is_other_message;
        progress.message = chunk.message_id;
        if self.screen.is_watched() {
            drop(progress);
            if another {
                self.screen.paragraph();
            }
            return self.screen.words(&text.text);
        }
        if another && !progress.text.is_empty() {
            let end = if progress.text.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            progress.text.push_str(end);
        }
        progress.text.push_str(&text.text);
    }

    /// Prints text that is not the answer.
    fn narrate(&self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.screen.print_note(text);
        }
    }

    /// Begins a call. The text before it is shown with it. It is also the answer, if no other text
    /// follows.
    fn call(&self, call: v1::ToolCall) {
        let mut progress = self.progress();
        let mut narration = String::new();
        if !progress.text.trim().is_empty() {
            narration = std::mem::take(&mut progress.text);
            progress.earlier_text.clone_from(&narration);
            progress.message = None;
        }
        drop(progress);
        if self.screen.shows_calls() {
            self.narrate(&narration);
        }
        self.begin_call(call);
    }

    /// Names a call that runs for long, if there is no spinner.
    fn announce_later(client: &Arc<Self>, id: v1::ToolCallId) {
        if client.screen.turns() || !client.screen.shows_calls() {
            return;
        }
        let client = client.clone();
        base::task::spawn(async move {
            tokio::time::sleep(ANNOUNCE_TIMEOUT).await;
            let progress = client.progress();
            let Some(call) = progress.calls.get(&id) else {
                return;
            };
            let activity = activity(call.kind, &call.title);
            drop(progress);
            let palette = client.screen.aside;
            client.screen.message(&palette.line(FAINT, &activity));
        });
    }

    /// Records a call in progress, and shows it next to the spinner.
    fn begin_call(&self, call: v1::ToolCall) {
        let begun = CallProgress {
            title: call.title.clone(),
            kind: call.kind,
            changes: diffs(&call.content),
            files: call
                .locations
                .iter()
                .map(|location| location.path.clone())
                .collect(),
            accepted: Vec::new(),
            begun: Instant::now(),
            waiting: WaitingTime::default(),
            was_asked: false,
            is_running: false,
            refused: None,
        };
        self.progress().calls.insert(call.tool_call_id, begun);
        self.screen.end_line();
        self.screen.show_activity(&activity(call.kind, &call.title));
    }

    /// Shows an update of a call, and its result when it has ended.
    fn tool_call_update(&self, session: &v1::SessionId, update: v1::ToolCallUpdate) {
        let fields = update.fields;
        let mut progress = self.progress();
        if let Some(facts) = &fields.raw_output
            && let Some(id) = facts[CallFacts::BACKGROUND].as_str()
        {
            if facts[CallFacts::ENDED].is_null() {
                progress.background.insert(id.to_owned());
            } else {
                progress.background.remove(id);
            }
        }
        let depth = progress.subagents.get(session).map_or(0, |task| task.depth);
        let Some(call) = progress.calls.get_mut(&update.tool_call_id) else {
            return;
        };
        if let Some(new) = fields.title {
            call.title = new;
        }
        call.is_running |= fields.status == Some(v1::ToolCallStatus::InProgress);
        if let Some(new) = fields
            .content
            .as_deref()
            .map(diffs)
            .filter(|diffs| !diffs.is_empty())
        {
            call.changes = new;
        }
        let activity = activity(call.kind, &call.title);
        let is_command = call.kind == v1::ToolKind::Execute;
        if let Some(child) = fields
            .raw_output
            .as_ref()
            .and_then(|facts| facts[CallFacts::CHILD].as_str())
        {
            let task = SubagentTask {
                title: call.title.clone(),
                call: update.tool_call_id.clone(),
                parent: session.clone(),
                depth: depth + 1,
            };
            let child = v1::SessionId::new(child.to_owned());
            progress.subagents.insert(child, task);
        }
        let failed = match fields.status {
            Some(v1::ToolCallStatus::Completed) => false,
            Some(v1::ToolCallStatus::Failed) => true,
            _ => {
                drop(progress);
                self.screen.show_activity(&activity);
                if is_command
                    && let Some(printed) = fields.content.as_deref().and_then(program_output)
                {
                    self.screen.show_printed(&activity, printed);
                }
                return;
            }
        };
        let Some(call) = progress.calls.remove(&update.tool_call_id) else {
            return;
        };
        let next = progress
            .calls
            .values()
            .max_by_key(|call| call.begun)
            .map_or_else(
                || WAITING.to_owned(),
                |call| self::activity(call.kind, &call.title),
            );
        let plan = progress
            .plan
            .take_if(|(call, _)| *call == update.tool_call_id);
        let is_interrupted = failed && self.screen.is_interrupted();
        // The last line of the run states the reason for these failures.
        if is_interrupted && !call.is_running && !call.was_asked {
            return;
        }
        drop(progress);
        self.screen.show_printed(&activity, "");
        let printed = fields.content.as_deref().and_then(program_output);
        let output = fields.raw_output.unwrap_or_default();
        // A raw output has only the beginning of a long text.
        let raw = output["output"].as_str();
        let printed = match (printed, raw.filter(|_raw| !is_interrupted)) {
            (Some(printed), _) => Cow::Borrowed(printed),
            (None, Some(error)) if failed => Cow::Owned(failure_text::for_user(error)),
            (None, raw) => Cow::Borrowed(raw.unwrap_or_default()),
        };
        // A call that was refused without a user is reported already.
        let mut is_reported = call.refused.is_some() && !self.can_ask_user();
        if !self.shows_hints()
            && failed
            && call.refused.is_none()
            && let Some(denial) = refused::denial(&call.title, output["output"].as_str())
        {
            self.screen.print_note(&denial);
            is_reported = true;
        }
        if self.screen.shows_calls() && !is_reported {
            let heading = self.progress().heading(session);
            let palette = self.screen.aside;
            let mut shown = Styled::default();
            if let Some(task) = heading {
                let mark = palette.mark("▸ ", "> ");
                let line = format!("{mark}{}", task.title);
                shown.push(&palette.line(FAINT, &line).indented(2 * (task.depth - 1)));
                shown.push(&Palette::plain("\n"));
            }
            let ended = self.describe_finished_call(&call, failed, &output, &printed);
            shown.push(&ended.indented(2 * depth));
            self.screen.message(&shown);
            if let Some((_, plan)) = plan {
                self.show_todos(&plan);
            }
            self.progress().follows_call = self.shows_hints();
        }
        self.screen.show_activity(&next);
    }

    /// Returns a path relative to the directory of the run, if it is in it.
    fn shown_path(&self, path: &Path) -> String {
        let shown = path.strip_prefix(&self.directory).unwrap_or(path);
        shown.display().to_string()
    }

    /// Shows the list of todos below the line of the call that has set it, which is its title.
    fn plan(&self, plan: v1::Plan) {
        if !self.screen.shows_calls() {
            return;
        }
        let mut progress = self.progress();
        let latest = progress.calls.iter().max_by_key(|(_, call)| call.begun);
        if let Some(call) = latest.map(|(id, _)| id.clone()) {
            progress.plan = Some((call, plan));
            return;
        }
        drop(progress);
        self.screen.end_line();
        self.show_todos(&plan);
    }

    fn show_todos(&self, plan: &v1::Plan) {
        let palette = self.screen.aside;
        for entry in &plan.entries {
            let mark = match entry.status {
                v1::PlanEntryStatus::Completed => "  [x] ",
                v1::PlanEntryStatus::InProgress => "  [>] ",
                _ => "  [ ] ",
            };
            let line = format!("{mark}{}", entry.content);
            self.screen.message(&palette.line(Style::new(), &line));
        }
    }

    /// Describes a finished call, with its changes or the end of its output.
    fn describe_finished_call(
        &self,
        call: &CallProgress,
        failed: bool,
        output: &serde_json::Value,
        printed: &str,
    ) -> Styled {
        let palette = self.screen.aside;
        let now = Instant::now();
        let waited = call.waiting.until(now);
        let elapsed = now
            .saturating_duration_since(call.begun)
            .saturating_sub(waited);
        let refused = call.refused.as_ref().filter(|_refused| failed);
        let failure = match refused {
            Some(refused) => Some((FAINT, refused.clone())),
            None if failed && self.screen.is_interrupted() => Some((FAINT, "cancelled".to_owned())),
            None if failed => exit_code(output).map(|code| (BAD, format!("exit code {code}"))),
            None => None,
        };
        let is_command = call.kind == v1::ToolKind::Execute;
        let shown = if refused.is_some() {
            None
        } else if failed && is_command {
            Some(ShownLines::Last(MAX_OUTPUT_LINES))
        } else if failed {
            Some(ShownLines::First(MAX_OUTPUT_LINES))
        } else if is_command {
            Some(ShownLines::Last(MAX_GOOD_OUTPUT_LINES))
        } else if output[CallFacts::ANSWERS].is_array() {
            Some(ShownLines::All)
        } else {
            None
        };
        let ended = EndedCall {
            title: &call.title,
            has_failed: failed,
            failure,
            time: (elapsed > MAX_UNSHOWN_DURATION && refused.is_none()).then_some(elapsed),
            output: shown.map(|shown| CallOutput {
                text: printed,
                shown,
                whole: output[CallFacts::OUTPUT_PATH].as_str().map(Path::new),
            }),
        };
        let mut hint = self.progress().full_output_hint.take();
        let mut out = ended.render(palette, &mut hint);
        self.progress().full_output_hint = hint;
        if failed {
            return out;
        }
        // A hook or a formatter may have changed the accepted text.
        for diff in call
            .changes
            .iter()
            .filter(|diff| !call.accepted.iter().any(|seen| is_same_change(seen, diff)))
        {
            out.push(&Palette::plain("\n"));
            out.push(&self.change(diff, 4, MAX_CHANGE_LINES));
        }
        out
    }

    /// Renders the change of one file.
    fn change(&self, diff: &v1::Diff, indent: usize, limit: usize) -> Styled {
        let old = diff.old_text.as_deref().unwrap_or_default();
        let before = member(diff.meta.as_ref(), LINES_BEFORE);
        let count = |of: &str| {
            let lines = before.and_then(|before| before[of].as_u64());
            usize::try_from(lines.unwrap_or_default()).unwrap_or_default()
        };
        let lines = LineDiff::of_parts(old, &diff.new_text, (count("old"), count("new")));
        let path = self.shown_path(&diff.path);
        self.screen.aside.change(&path, &lines, indent, limit)
    }

    /// Handles `session/request_permission`.
    pub(super) fn request_permission(
        client: &Arc<Self>,
        cx: RequestContext,
        request: v1::RequestPermissionRequest,
    ) -> table::Reply<v1::RequestPermissionResponse> {
        use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let client = client.clone();
        table::Reply::later(async move {
            // A question about the session, whose answer is stored. Only a user can answer it.
            let is_stored = request
                .options
                .iter()
                .any(|option| *option.option_id.0 == *YES);
            let has_user = client.format == OutputFormat::Text && terminal::question::has_user();
            let waiting =
                client.begin_waiting(&request.session_id, Some(&request.tool_call.tool_call_id));
            let mut comment = None;
            let mut is_withdrawn = false;
            let kind = match client.answer_policy {
                AnswerPolicy::User if has_user => {
                    client.record_question(&request);
                    let answer = tokio::select! {
                        answer = client.ask(&request) => answer,
                        // The question was withdrawn, so a line typed now answers nothing.
                        () = cx.cancelled.cancelled() => {
                            is_withdrawn = true;
                            None
                        }
                    };
                    answer.map(|(kind, reason)| {
                        comment = if is_stored { None } else { reason };
                        kind
                    })
                }
                _ if is_stored => None,
                AnswerPolicy::AllowAll => Some(AllowOnce),
                AnswerPolicy::User | AnswerPolicy::DenyAll => Some(RejectOnce),
            };
            let is_allowed = matches!(kind, Some(AllowOnce | AllowAlways));
            client.end_waiting(&waiting);
            if is_allowed && client.answer_policy != AnswerPolicy::AllowAll {
                let shown = request.tool_call.fields.content.as_deref();
                let shown = shown.map(diffs).unwrap_or_default();
                if let Some(call) = client
                    .progress()
                    .calls
                    .get_mut(&request.tool_call.tool_call_id)
                {
                    call.accepted = shown;
                }
            }
            let chosen = request
                .options
                .iter()
                .find(|option| Some(option.kind) == kind);
            if !is_stored && !is_withdrawn && !is_allowed {
                let remark = match &comment {
                    Some(comment) => format!("rejected; the agent gets: {comment}"),
                    None if client.can_ask_user() => "rejected".to_owned(),
                    None => "not allowed".to_owned(),
                };
                if let Some(call) = client
                    .progress()
                    .calls
                    .get_mut(&request.tool_call.tool_call_id)
                {
                    call.refused = Some(remark);
                }
            }
            if let Some(AllowAlways) = kind
                && !is_stored
                && let Some(receipt) = grant_receipt(&request)
            {
                client.hint(&receipt);
            }
            // A withdrawn question was decided by another answer, or ended with its turn.
            if !is_stored && !is_withdrawn && comment.is_none() && !is_allowed {
                let refused = RefusedCall::new(&request);
                if !client.can_ask_user() {
                    let because = if client.answer_policy == AnswerPolicy::DenyAll {
                        "as --deny says"
                    } else {
                        "no user to ask"
                    };
                    client.screen.print_note(&refused.message(because));
                }
                client.progress().refused.push(refused);
            }
            Ok(v1::RequestPermissionResponse::new(match chosen {
                Some(option) => {
                    let meta = comment.map(|comment| with_member(COMMENT, comment.into()));
                    let chosen =
                        v1::SelectedPermissionOutcome::new(option.option_id.clone()).meta(meta);
                    v1::RequestPermissionOutcome::Selected(chosen)
                }
                None => v1::RequestPermissionOutcome::Cancelled,
            }))
        })
    }

    /// Handles `elicitation/create`.
    pub(super) fn create_elicitation(
        client: &Arc<Self>,
        cx: RequestContext,
        request: v1::CreateElicitationRequest,
    ) -> table::Reply<v1::CreateElicitationResponse> {
        let client = client.clone();
        table::Reply::later(async move {
            let waiting = match request.scope() {
                v1::ElicitationScope::Session(scope) => {
                    client.begin_waiting(&scope.session_id, scope.tool_call_id.as_ref())
                }
                _ => Vec::new(),
            };
            let answer = tokio::select! {
                answer = client.ask_form(&request) => answer,
                () = cx.cancelled.cancelled() => None,
            };
            client.end_waiting(&waiting);
            if answer.is_none() && client.can_ask_user() && !cx.cancelled.is_cancelled() {
                client.record_unanswered(&request);
            }
            Ok(v1::CreateElicitationResponse::new(match answer {
                Some(content) => v1::ElicitationAction::Accept(
                    v1::ElicitationAcceptAction::new().content(content),
                ),
                None => v1::ElicitationAction::Cancel,
            }))
        })
    }

    /// Records that the user is asked about a call.
    fn record_question(&self, request: &v1::RequestPermissionRequest) {
        let id = &request.tool_call.tool_call_id;
        if let Some(call) = self.progress().calls.get_mut(id) {
            call.was_asked = true;
        }
    }

    /// Starts the waiting time of a call that asks the user, and of the calls that started its
    /// session. Returns these calls.
    fn begin_waiting(
        &self,
        session: &v1::SessionId,
        call: Option<&v1::ToolCallId>,
    ) -> Vec<v1::ToolCallId> {
        let mut progress = self.progress();
        let mut calls: Vec<v1::ToolCallId> = call.cloned().into_iter().collect();
        let mut session = session;
        while let Some(task) = progress.subagents.get(session) {
            calls.push(task.call.clone());
            session = &task.parent;
        }
        let now = Instant::now();
        for id in &calls {
            if let Some(call) = progress.calls.get_mut(id) {
                call.waiting.begin(now);
            }
        }
        calls
    }

    /// Records that the user has answered a question of these calls, or that it was withdrawn.
    fn end_waiting(&self, calls: &[v1::ToolCallId]) {
        let mut progress = self.progress();
        let now = Instant::now();
        for id in calls {
            if let Some(call) = progress.calls.get_mut(id) {
                call.waiting.end(now);
            }
        }
    }

    /// Records that the input ended at the questions of a call, whose error text is only for the
    /// model.
    fn record_unanswered(&self, request: &v1::CreateElicitationRequest) {
        if let v1::ElicitationMode::Form(_) = &request.mode
            && let v1::ElicitationScope::Session(scope) = request.scope()
            && let Some(id) = &scope.tool_call_id
            && let Some(call) = self.progress().calls.get_mut(id)
        {
            call.refused = Some("not answered".to_owned());
        }
    }

    /// Asks the user the questions of a form. Returns `None` at the end of the input.
    async fn ask_form(
        &self,
        request: &v1::CreateElicitationRequest,
    ) -> Option<BTreeMap<String, v1::ElicitationContentValue>> {
        let mut content = BTreeMap::new();
        if let v1::ElicitationMode::Url(visit) = &request.mode {
            let message = text::shown(&request.message);
            let url = text::shown(&visit.url);
            let question = format!(
                "\n? {message}\n  {url}\nOpen it in a browser, then answer y (n to decline, ? explains)> "
            );
            let explained = "y: you have opened the address and done what it asks. n: you decline.";
            return self
                .ask_yes_no(&question, explained)
                .await?
                .then_some(content);
        }
        let fields = form::fields(request)?;
        if fields.is_empty() {
            let question = format!("\n? {} (y/n/?)> ", text::shown(&request.message));
            let explained = "y: you agree. n: you decline.";
            return self
                .ask_yes_no(&question, explained)
                .await?
                .then_some(content);
        }
        let count = fields.len();
        let message = request.message.trim();
        // The message of a single question is in its field already.
        let is_in_field = count == 1 && fields.iter().any(|field| field.question.contains(message));
        let mut introduction = String::new();
        if !is_in_field && !message.is_empty() {
            introduction = format!("{message}\n\n");
        }
        for (number, mut field) in (1..).zip(fields) {
            if count > 1 {
                field.number(number, count);
            }
            field
                .question
                .insert_str(0, &std::mem::take(&mut introduction));
            content.extend(self.field(field).await?);
        }
        Some(content)
    }

    /// Asks for the value of one field. A line that may be a mistake is sent only once an empty
    /// line confirms it.
    async fn field(&self, field: Field) -> Option<FieldAnswer> {
        let text = format!("\n{}{}> ", field.question, field.legend);
        let question = Palette::plain(&text);
        let mut unlikely = None;
        let (sender, answer) = oneshot::channel();
        let mut sender = Some(sender);
        let check: LineCheck = Box::new(move |line| {
            let put = match (field.read(line), unlikely.take()) {
                // An empty line confirms, even in a field that must not be empty.
                (_, Some(put)) if line.trim().is_empty() => put,
                (FieldReply::Answer(put), _) => put,
                (FieldReply::Again(why), _) => {
                    return Some(Palette::plain(&format!("{why}\n> ")));
                }
                (FieldReply::Unlikely(why, put), _) => {
                    unlikely = Some(put);
                    return Some(Palette::plain(&format!("{why}\n> ")));
                }
            };
            if let Some(sender) = sender.take() {
                // The receiver may be dropped.
                sender.send(put).ok();
            }
            None
        });
        self.keyboard.ask(question, check).await?;
        answer.await.ok()
    }

    /// Asks at the terminal. A refusal may include the user's message to the model.
    async fn ask(
        &self,
        request: &v1::RequestPermissionRequest,
    ) -> Option<(v1::PermissionOptionKind, Option<String>)> {
        use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let has = |kind| request.options.iter().any(|option| option.kind == kind);
        let answers = PermissionAnswers {
            once: has(AllowOnce),
            always: has(AllowAlways),
        };
        let yes = if answers.once { AllowOnce } else { AllowAlways };
        let mut question = if answers.once {
            self.question(request)
        } else {
            self.trust_question(request)
        };
        let (whole, whole_name) = if answers.once {
            (self.whole_question(request), self.view_name(request))
        } else {
            (
                self.trusted_parts(request),
                view_name(self.is_list_complete(request)),
            )
        };
        let prompt = answers.prompt(whole.is_some());
        let mut choices = self.choices(request, answers, whole.is_some().then_some(whole_name));
        choices.push(&Palette::plain(&prompt));
        question.push(&choices);
        let names: Vec<String> = request
            .options
            .iter()
            .map(|option| option.name.clone())
            .collect();
        let is_command = self
            .progress()
            .calls
            .get(&request.tool_call.tool_call_id)
            .is_some_and(|call| call.kind == v1::ToolKind::Execute);
        let why_not_always = member(request.meta.as_ref(), WHY_NOT_ALWAYS)
            .and_then(serde_json::Value::as_str)
            .map(|why| {
                let why = text::escaped(why);
                if is_command {
                    format!("{why}; `adjutant permissions explain COMMAND` says whether a setting can allow it")
                } else {
                    why
                }
            });
        let explained = explained_question(request, is_command);
        // Any other text is sent with a refusal, after an empty line confirms it.
        let mut instead: Option<String> = None;
        let (last, taken) = oneshot::channel();
        let mut last = Some(last);
        let rejected = self.rejected.clone();
        let title = request.tool_call.fields.title.clone().unwrap_or_default();
        let title = text::title(&title);
        let check: LineCheck = Box::new(move |line| {
            if matches!(line.trim().to_lowercase().as_str(), "v" | "view") {
                instead = None;
                let Some(mut again) = whole.clone() else {
                    let nothing = format!("  There is no more to view.\n{prompt}");
                    return Some(Palette::plain(&nothing));
                };
                again.push(&choices);
                return Some(again);
            }
            let answer = match reply::read(line) {
                TypedReply::Yes => (yes, None),
                TypedReply::Always if answers.always => (AllowAlways, None),
                TypedReply::No => (RejectOnce, None),
                TypedReply::NoBecause(reason) if answers.once => {
                    (RejectOnce, Some(reason.to_owned()))
                }
                TypedReply::Nothing if instead.is_some() => (RejectOnce, instead.take()),
                TypedReply::Words(text) if answers.once => {
                    let again = format!(
                        "  This rejects the call and tells the agent: {}\n  Press Enter to send it, or answer again\n{prompt}",
                        text::escaped(text)
                    );
                    instead = Some(text.to_owned());
                    return Some(Palette::plain(&again));
                }
                other => {
                    instead = None;
                    let again = answers.again(
                        other,
                        &names,
                        &explained,
                        why_not_always.as_deref(),
                        whole.is_some(),
                    );
                    return Some(Palette::plain(&again));
                }
            };
            if answers.once && answer == (RejectOnce, None) {
                *lock(&rejected) = Some(title.clone());
            }
            if let Some(last) = last.take() {
                // The receiver may be dropped.
                last.send(answer).ok();
            }
            None
        });
        self.keyboard
            .ask_after(self.introduction(), question, check)
            .await?;
        taken.await.ok()
    }

    /// Returns the choices of a question, a line each. `view`: the name of the one that shows more.
    fn choices(
        &self,
        request: &v1::RequestPermissionRequest,
        answers: PermissionAnswers,
        view: Option<&str>,
    ) -> Styled {
        use v1::PermissionOptionKind::{AllowAlways, AllowOnce};
        let yes = if answers.once { AllowOnce } else { AllowAlways };
        let mut choices = Styled::default();
        for option in &request.options {
            let key = match option.kind {
                kind if kind == yes => "y",
                AllowAlways => "a",
                _ => "n",
            };
            self.push_key(&mut choices, key);
            choices.push(&self.screen.aside.line(Style::new(), &option.name));
            if key == "n" && !answers.once {
                choices.push(&Palette::plain(" (never: `adjutant trust --no`)"));
            }
            choices.push(&Palette::plain("\n"));
        }
        if let Some(view) = view {
            self.push_key(&mut choices, "v");
            choices.push(&Palette::plain(&format!("{view}\n")));
        }
        choices.push(&Palette::plain(if answers.once {
            "  ?  Explain; any other text rejects\n"
        } else {
            "  ?  Explain\n"
        }));
        choices
    }

    /// Returns the line before a question that follows a rejection in the same turn.
    fn introduction(&self) -> Introduction {
        let rejected = self.rejected.clone();
        let palette = self.screen.aside;
        Box::new(move || match lock(&rejected).as_deref() {
            Some(title) => {
                let line = format!("\n{title} was rejected. The message has another call:");
                palette.lines(&line, |_| FAINT)
            }
            None => Styled::default(),
        })
    }

    /// Begins the line of an answer with its key.
    fn push_key(&self, line: &mut Styled, key: &str) {
        line.push(&Palette::plain("  "));
        line.push(&self.screen.aside.styled(STRONG, key));
        line.push(&Palette::plain("  "));
    }

    /// Asks for yes or no; `None` at the end of the input.
    async fn ask_yes_no(&self, question: &str, explained: &'static str) -> Option<bool> {
        let again = question.trim_start_matches('\n').to_owned();
        let check: LineCheck = Box::new(move |line| {
            let message = match reply::read(line) {
                TypedReply::Yes | TypedReply::No => return None,
                TypedReply::Explain => explained,
                _ => "Answer y or n; ? explains.",
            };
            Some(Palette::plain(&format!("{message}\n{again}")))
        });
        let line = self.keyboard.ask(Palette::plain(question), check).await?;
        Some(reply::read(&line) == TypedReply::Yes)
    }

    /// Returns the question, with the complete contents of the call.
    fn question(&self, request: &v1::RequestPermissionRequest) -> Styled {
        let palette = self.screen.aside;
        let mut question = Palette::plain("\n");
        let contents = request.tool_call.fields.content.iter().flatten();
        // A command that the question quotes in full is shown only there.
        let whole = contents.clone().any(|content| {
            matches!(content, v1::ToolCallContent::Content(content)
            if matches!(&content.content, v1::ContentBlock::Text(text) if text.text.starts_with("```sh\n")))
        });
        let title = if whole {
            None
        } else {
            request.tool_call.fields.title.as_deref()
        };
        let title = title.unwrap_or("Run this?");
        question.push(&palette.line(STRONG, &format!("? {title}")));
        question.push(&Palette::plain("\n"));
        let limit = change_limit(contents.clone());
        for content in contents {
            match content {
                v1::ToolCallContent::Diff(diff) => {
                    question.push(&self.change(diff, 2, limit));
                }
                v1::ToolCallContent::Content(content) => {
                    if let v1::ContentBlock::Text(text) = &content.content {
                        let text = shortened_command(&text.text, limit);
                        question.push(&palette.question(&text, 2));
                    }
                }
                _ => {}
            }
        }
        question
    }

    /// Names the answer that shows all of a question.
    fn view_name(&self, request: &v1::RequestPermissionRequest) -> &'static str {
        let mut contents = request.tool_call.fields.content.iter().flatten();
        if contents.any(|content| matches!(content, v1::ToolCallContent::Diff(_))) {
            "View the whole change"
        } else {
            "View the whole command"
        }
    }

    /// Returns the question about trust, as far as it fits the terminal.
    fn trust_question(&self, request: &v1::RequestPermissionRequest) -> Styled {
        let palette = self.screen.aside;
        let mut question = Palette::plain("\n");
        let title = request.tool_call.fields.title.as_deref();
        question.push(&palette.line(STRONG, &format!("? {}", title.unwrap_or_default())));
        question.push(&Palette::plain("\n"));
        let text = self.fitted(&question_text(request));
        question.push(&text);
        let changes = self.file_changes(request);
        let height = |part: &Styled| part.as_str().lines().count();
        let room =
            terminal::rows().map_or(usize::MAX, |rows| rows.saturating_sub(TRUST_ANSWER_LINES));
        if height(&text) + height(&changes) <= room {
            question.push(&changes);
        }
        question
    }

    /// Returns the changes of files in a question about trust.
    fn file_changes(&self, request: &v1::RequestPermissionRequest) -> Styled {
        let mut all = Styled::default();
        for content in request.tool_call.fields.content.iter().flatten() {
            if let v1::ToolCallContent::Diff(diff) = content {
                all.push(&self.change(diff, 2, usize::MAX));
            }
        }
        all
    }

    /// Renders the text of a question about trust, as far as it fits the terminal.
    fn fitted(&self, text: &str) -> Styled {
        fitted_question(text, self.screen.aside, 2, TRUST_ANSWER_LINES)
    }

    /// Returns all lines of a change or a command of which the question shows only the first ones.
    /// `None` if it shows all.
    fn whole_question(&self, request: &v1::RequestPermissionRequest) -> Option<Styled> {
        let palette = self.screen.aside;
        let contents = request.tool_call.fields.content.iter().flatten();
        let limit = change_limit(contents.clone());
        let mut is_cut = false;
        let mut whole = Styled::default();
        for content in contents {
            match content {
                v1::ToolCallContent::Diff(diff) => {
                    let all = self.change(diff, 2, usize::MAX);
                    is_cut |= all != self.change(diff, 2, limit);
                    whole.push(&all);
                }
                v1::ToolCallContent::Content(content) => {
                    if let v1::ContentBlock::Text(text) = &content.content
                        && let Some((command, _)) = split_command(&text.text)
                    {
                        is_cut |= shortened_command(&text.text, limit) != text.text;
                        whole.push(&palette.question(command, 2));
                    }
                }
                _ => {}
            }
        }
        is_cut.then_some(whole)
    }

    /// Returns everything that a question about trust is about: all entries, the changes, and the
    /// files that would run. `None` if the question shows all of it.
    fn trusted_parts(&self, request: &v1::RequestPermissionRequest) -> Option<Styled> {
        let palette = self.screen.aside;
        let contents = request.tool_call.fields.content.iter().flatten();
        let changes: Vec<&v1::Diff> = contents
            .filter_map(|content| match content {
                v1::ToolCallContent::Diff(diff) => Some(diff),
                _ => None,
            })
            .collect();
        let text = question_text(request);
        let list = trust_entries(request);
        let is_listed = self.is_list_complete(request);
        let progress = self.progress();
        let call = progress.calls.get(&request.tool_call.tool_call_id);
        let mut files = call.map(|call| call.files.clone()).unwrap_or_default();
        drop(progress);
        files.retain(|file| changes.iter().all(|diff| diff.path != *file));
        if is_listed && changes.is_empty() && files.is_empty() {
            return None;
        }
        let mut whole = Styled::default();
        if !is_listed {
            for part in [&text, &list] {
                whole.push(&palette.question(part, 2));
                whole.push(&Palette::plain("\n"));
            }
        }
        whole.push(&self.file_changes(request));
        for file in files {
            whole.push(&whole_file(&file, &self.directory, palette, 2));
        }
        Some(whole)
    }

    /// Returns whether a question about trust shows everything that the project would run.
    fn is_list_complete(&self, request: &v1::RequestPermissionRequest) -> bool {
        let text = question_text(request);
        let list = trust_entries(request);
        list.lines().all(|entry| text.contains(entry))
            && self.fitted(&text) == self.screen.aside.question(&text, 2)
    }

    fn progress(&self) -> MutexGuard<'_, RunProgress> {
        lock(&self.progress)
    }
}

/// The answers that a question offers.
#[derive(Debug, Clone, Copy)]
struct PermissionAnswers {
    once: bool,
    always: bool,
}

impl PermissionAnswers {
    /// Returns the keys of the answers, except for the one that rejects. `is_cut`: the question
    /// does not show the whole change.
    fn keys(self, is_cut: bool) -> Vec<&'static str> {
        let mut keys = vec!["y"];
        if self.once && self.always {
            keys.push("a");
        }
        if is_cut {
            keys.push("v");
        }
        keys
    }

    /// Returns the text before the typed line. There is no default answer, so no key is in upper
    /// case.
    fn prompt(self, is_cut: bool) -> String {
        format!("[{}/n/?] ", self.keys(is_cut).join("/"))
    }

    /// Names the answers in one line.
    fn short(self, is_cut: bool) -> String {
        format!("Answer {} or n; ? explains.", self.keys(is_cut).join(", "))
    }

    /// Returns the text after a line that is not an answer. `names` are those of the options,
    /// `explained` the facts on the question, `why_not_always` the reason why one is missing.
    fn again(
        self,
        reply: TypedReply<'_>,
        names: &[String],
        explained: &[String],
        why_not_always: Option<&str>,
        is_cut: bool,
    ) -> String {
        let mut lines = Vec::new();
        match reply {
            TypedReply::Explain if self.once => {
                lines.extend_from_slice(explained);
                lines.push("y  allows it once".to_owned());
                if self.always {
                    lines.push("a  allows what it names in this project from now on".to_owned());
                }
                lines.push("n  rejects it and stops the turn".to_owned());
                lines.push(
                    "n REASON  rejects it; the agent gets the reason and continues".to_owned(),
                );
                if is_cut {
                    lines.push("v  shows all lines, and asks again".to_owned());
                }
                lines.push("any other text  is a reason, once you confirm it".to_owned());
                lines.push("Ctrl-C  stops the run".to_owned());
            }
            TypedReply::Explain => {
                let [yes, no] = [0, 1].map(|at| names.get(at).map_or("", String::as_str));
                lines.push(format!("y  {yes}: the answer is stored for this project"));
                lines.push(format!(
                    "n  {no}: you are asked again once any of this changes; `adjutant trust --no` never asks"
                ));
                if is_cut {
                    lines.push("v  shows the files that would run, and asks again".to_owned());
                }
            }
            TypedReply::Always => lines.push(match why_not_always {
                Some(why) => format!("\"Always\" is not offered: {why}."),
                None => "\"Always\" is not offered here.".to_owned(),
            }),
            _ => lines.push(self.short(is_cut)),
        }
        format!("  {}\n{}", lines.join("\n  "), self.prompt(is_cut))
    }
}

impl RunProgress {
    /// Adds a piece of text to the answer. Messages are paragraphs of it.
    fn add_to_answer(&mut self, chunk: &v1::ContentChunk) {
        let v1::ContentBlock::Text(text) = &chunk.content else {
            return;
        };
        let is_another = self.answer_message != chunk.message_id;
        if is_another && !self.answer.is_empty() && !self.answer.ends_with("\n\n") {
            let end = if self.answer.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            self.answer.push_str(end);
        }
        self.answer_message.clone_from(&chunk.message_id);
        self.answer.push_str(&text.text);
    }

    /// Returns the task to name before a call of a session, unless the last call shown was one of
    /// the same session.
    fn heading(&mut self, session: &v1::SessionId) -> Option<SubagentTask> {
        let last = self.shown.replace(session.clone());
        if last.as_ref() == Some(session) {
            return None;
        }
        self.subagents.get(session).cloned()
    }
}

/// Returns the text that a program printed, which is a block of code in the content of its call.
fn program_output(content: &[v1::ToolCallContent]) -> Option<&str> {
    const MIN_FENCE: usize = 3;
    content.iter().find_map(|content| {
        let v1::ToolCallContent::Content(content) = content else {
            return None;
        };
        let v1::ContentBlock::Text(text) = &content.content else {
            return None;
        };
        let text = text.text.as_str();
        let fence = &text[..text.len() - text.trim_start_matches('`').len()];
        if fence.len() < MIN_FENCE {
            return None;
        }
        text.strip_prefix(fence)?
            .strip_prefix('\n')?
            .strip_suffix(fence)
    })
}

/// Returns the exit code of a call that has one.
fn exit_code(output: &serde_json::Value) -> Option<ExitCode> {
    let code = output["exit"].as_i64()?;
    Some(ExitCode(i32::try_from(code).ok()?))
}

/// Describes the effect of a compaction.
fn summarised(update: &v1::CompactionUpdate) -> String {
    let sizes = member(update.meta.value(), COMPACTED);
    let size = |name: &str| sizes.and_then(|sizes| sizes[name].as_u64());
    match (size("before"), size("after")) {
        (Some(before @ 1..), Some(after)) => format!(
            "summarised: {} → about {} tokens",
            text::thousands(before),
            text::thousands(after)
        ),
        _ => "summarised".to_owned(),
    }
}

/// Returns the text of a notice in one line.
fn notice_text(notice: &v1::Notice) -> String {
    text::sentences([
        notice.title.as_str(),
        notice.description.as_deref().unwrap_or_default(),
    ])
}

/// Describes a running call.
fn activity(kind: v1::ToolKind, title: &str) -> String {
    match kind {
        v1::ToolKind::Execute => format!("running {title}"),
        _ => title.to_owned(),
    }
}

/// Returns the number of lines of each change in a question, so that a terminal shows the whole
/// question.
fn change_limit<'a>(contents: impl Iterator<Item = &'a v1::ToolCallContent>) -> usize {
    /// The other lines of a question, and those of a terminal too narrow for its sentences.
    const OTHER_LINES: usize = 18;
    const NARROW: usize = 60;
    const OTHER_NARROW_LINES: usize = 24;
    const MIN_LINES: usize = 5;
    let changes = contents.filter(|content| matches!(content, v1::ToolCallContent::Diff(_)));
    let changes = changes.count().max(1);
    let Some(rows) = terminal::rows() else {
        return MAX_CHANGE_LINES;
    };
    let others = if terminal::columns() < NARROW {
        OTHER_NARROW_LINES
    } else {
        OTHER_LINES
    };
    let room = rows.saturating_sub(others) / changes;
    room.clamp(MIN_LINES, MAX_CHANGE_LINES)
}

/// Splits the text of a question about a command after the block of code that has it.
fn split_command(text: &str) -> Option<(&str, &str)> {
    const FENCE: &str = "\n```\n";
    if !text.starts_with("```sh\n") {
        return None;
    }
    let end = text.find(FENCE)? + FENCE.len();
    Some(text.split_at(end))
}

/// Returns the text of a question with only the first lines of a command that has more than `limit`.
fn shortened_command(text: &str, limit: usize) -> Cow<'_, str> {
    let Some((command, rest)) = split_command(text) else {
        return Cow::Borrowed(text);
    };
    // The fences have a line each.
    let hidden = command.lines().count().saturating_sub(limit + 2);
    if hidden <= MAX_SPARED_LINES {
        return Cow::Borrowed(text);
    }
    let first: Vec<&str> = command.lines().take(limit + 1).collect();
    Cow::Owned(format!(
        "{}\n```\n\n… {}\n{rest}",
        first.join("\n"),
        text::count(hidden, "more line")
    ))
}

/// Returns the grant that "always" would store.
fn offered_grant(request: &v1::RequestPermissionRequest) -> Option<&serde_json::Value> {
    let details = member(request.meta.as_ref(), DETAILS)?;
    details.get("always").filter(|grant| grant.is_object())
}

/// Describes the command that takes back a grant.
fn revoking_commands(grant: &serde_json::Value) -> String {
    let names = grant["permissions"].as_array().into_iter().flatten();
    let commands = names
        .filter_map(serde_json::Value::as_str)
        .map(|name| format!("`adjutant permissions revoke {}`", text::escaped(name)));
    commands.collect::<Vec<_>>().join(" and ")
}

/// Describes the grant that the user has just stored.
fn grant_receipt(request: &v1::RequestPermissionRequest) -> Option<String> {
    let grant = offered_grant(request)?;
    Some(format!(
        "stored for the agent {} in this project: always allow {}; {} takes it back",
        text::escaped(grant["agent"].as_str()?),
        text::escaped(grant["text"].as_str()?),
        revoking_commands(grant)
    ))
}

/// Returns the facts on a question that are shown on request, a line each.
fn explained_question(request: &v1::RequestPermissionRequest, is_command: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let details = member(request.meta.as_ref(), DETAILS);
    if let Some(sandbox) = details.and_then(|details| details["sandbox"].as_str()) {
        lines.push(format!("Sandbox: {}.", text::escaped(sandbox)));
    }
    if let Some(grant) = offered_grant(request) {
        lines.push(format!(
            "\"Always\" stores, for the agent {} in this project: allow {}. {} takes it back.",
            text::escaped(grant["agent"].as_str().unwrap_or_default()),
            text::escaped(grant["text"].as_str().unwrap_or_default()),
            revoking_commands(grant)
        ));
    }
    if is_command {
        lines.push(
            "`adjutant permissions explain COMMAND` names the rule that decides, and a setting that would change it."
                .to_owned(),
        );
    }
    lines
}

/// Returns the text of a question.
fn question_text(request: &v1::RequestPermissionRequest) -> String {
    let contents = request.tool_call.fields.content.iter().flatten();
    let texts = contents.filter_map(|content| match content {
        v1::ToolCallContent::Content(content) => match &content.content {
            v1::ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        },
        _ => None,
    });
    texts.collect()
}

/// Returns everything that a project needs trust for, as a list.
fn trust_entries(request: &v1::RequestPermissionRequest) -> String {
    let input = request.tool_call.fields.raw_input.as_ref();
    let entries = input.and_then(|input| input["wants"].as_array());
    entries
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .map(|entry| format!("- {}\n", text::escaped(entry)))
        .collect()
}

/// Returns whether two changes of a file are shown with the same lines.
fn is_same_change(one: &v1::Diff, other: &v1::Diff) -> bool {
    (&one.path, &one.old_text, &one.new_text) == (&other.path, &other.old_text, &other.new_text)
}

fn diffs(content: &[v1::ToolCallContent]) -> Vec<v1::Diff> {
    let diff = |content: &v1::ToolCallContent| match content {
        v1::ToolCallContent::Diff(diff) => Some(diff.clone()),
        _ => None,
    };
    content.iter().filter_map(diff).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_time_includes_open_questions_and_counts_overlaps_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut waiting = WaitingTime::default();
        assert_eq!(waiting.until(at(9)), Duration::ZERO);
        waiting.begin(at(10));
        assert_eq!(waiting.until(at(13)), Duration::from_secs(3));
        waiting.begin(at(14));
        waiting.end(at(16));
        assert_eq!(waiting.until(at(17)), Duration::from_secs(7));
        waiting.end(at(20));
        assert_eq!(waiting.until(at(99)), Duration::from_secs(10));
        waiting.begin(at(100));
        waiting.end(at(101));
        assert_eq!(waiting.until(at(200)), Duration::from_secs(11));
    }
}
