//! The client's side of a run: shows what comes, answers what is asked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anstyle::Style;
use protocol::acp::v1;
use protocol::table::{Cx, Reply};

use super::keyboard::Keyboard;
use super::{Args, OutputFormat};
use crate::cli::form;
use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::{BAD, FAINT, GOOD, Palette, STRONG, Styled};
use crate::editor::ask::YES;
use crate::editor::meta::{WORDS, own};
use crate::environment::Environment;
use crate::lock::locked;
use crate::message::CallFacts;
use crate::text;

/// How many lines of a failed command are shown: the last ones.
const LAST: usize = 10;

/// Prints what comes, answers what is asked.
pub(super) struct Client {
    format: OutputFormat,
    /// Words are not printed: a result is.
    silent: bool,
    allow: bool,
    deny: bool,
    /// Something was asked for and rejected.
    rejected: AtomicBool,
    pub(super) screen: Arc<Screen>,
    keyboard: Keyboard,
    // A std mutex: a leaf, never held across an await.
    told: Mutex<RunProgress>,
}

#[derive(Default)]
struct RunProgress {
    /// The message whose words came last.
    message: Option<v1::MessageId>,
    /// Where nobody watches: the words since the last call, and those before it. One of them is the answer.
    words: String,
    before: String,
    /// The calls that are not over: their titles, and what they change.
    calls: HashMap<v1::ToolCallId, (String, Vec<v1::Diff>)>,
    /// What runs in the background.
    background: BTreeSet<String>,
}

impl Client {
    pub(super) fn new(args: &Args, environment: &Environment) -> Self {
        let screen = Arc::new(Screen::new(args.format == OutputFormat::Json, environment));
        Self {
            format: args.format,
            silent: args.schema.is_some(),
            allow: args.allow,
            deny: args.deny,
            rejected: AtomicBool::new(false),
            keyboard: Keyboard::new(screen.clone()),
            screen,
            told: Mutex::default(),
        }
    }

    /// Whether somebody is there who can be asked.
    pub(super) fn person(&self) -> bool {
        self.format == OutputFormat::Text && !self.allow && !self.deny && io::stdin().is_terminal()
    }

    /// Whether something was asked for and rejected.
    pub(super) fn was_rejected(&self) -> bool {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Says which session it is, and shows that work has begun.
    pub(super) fn begin(&self, session: &v1::SessionId) {
        if self.format == OutputFormat::Text {
            self.screen.beside(&self.screen.aside.line(FAINT, &format!("session {session}")));
            self.screen.doing("thinking");
        }
    }

    /// Prints the answer where it has been held back, and says what ends with the run. The answer is what
    /// was said last; where the run has failed there is none.
    pub(super) fn end(&self, failed: bool) {
        self.screen.finish();
        if self.format == OutputFormat::Json {
            return;
        }
        let (words, before, background) = {
            let told = &mut *self.told();
            (std::mem::take(&mut told.words), std::mem::take(&mut told.before), std::mem::take(&mut told.background))
        };
        let (narration, answer) = if words.trim().is_empty() { (String::new(), before) } else { (before, words) };
        self.narrate(&narration);
        if failed {
            self.narrate(&answer);
        } else if !answer.is_empty() {
            self.screen.words(&answer);
        }
        self.screen.end_line();
        // Somebody may have hoped that it would go on.
        if !background.is_empty() {
            let ids: Vec<String> = background.into_iter().collect();
            self.screen.aside(&format!("note: what runs in the background ends with this run: {}", ids.join(", ")));
        }
    }

    /// session/update.
    pub(super) fn update(client: &Arc<Self>, note: v1::SessionNotification) {
        if client.format == OutputFormat::Json {
            return;
        }
        match note.update {
            v1::SessionUpdate::AgentMessageChunk(_) if client.silent => {}
            v1::SessionUpdate::AgentMessageChunk(chunk) => client.words(chunk),
            v1::SessionUpdate::ToolCall(call) => client.call(call),
            v1::SessionUpdate::ToolCallUpdate(update) => client.news(update),
            v1::SessionUpdate::Notice(notice) => {
                let all = text::sentences([notice.title.as_str(), notice.description.as_deref().unwrap_or_default()]);
                client.screen.aside(&format!("note: {all}"));
            }
            v1::SessionUpdate::CompactionUpdate(update) if update.status == v1::CompactionStatus::InProgress => {
                client.screen.aside("note: summarising the conversation to make room");
            }
            _ => {}
        }
    }

    /// More of what the model says: shown as it comes where somebody watches, else held back until it is
    /// known whether it is the answer.
    fn words(&self, chunk: v1::ContentChunk) {
        let v1::ContentBlock::Text(text) = chunk.content else { return };
        let mut told = self.told();
        let another = told.message.is_some() && told.message != chunk.message_id;
        told.message = chunk.message_id;
        if self.screen.is_watched() {
            drop(told);
            if another {
                self.screen.paragraph();
            }
            return self.screen.words(&text.text);
        }
        if another && !told.words.is_empty() {
            let end = if told.words.ends_with('\n') { "\n" } else { "\n\n" };
            told.words.push_str(end);
        }
        told.words.push_str(&text.text);
    }

    /// Words that are not the answer.
    fn narrate(&self, words: &str) {
        let words = words.trim();
        if !words.is_empty() {
            self.screen.aside(words);
        }
    }

    /// A new call: what was said before it was no answer, unless nothing follows.
    fn call(&self, call: v1::ToolCall) {
        let mut told = self.told();
        if !told.words.trim().is_empty() {
            let earlier = std::mem::take(&mut told.words);
            let earlier = std::mem::replace(&mut told.before, earlier);
            told.message = None;
            self.narrate(&earlier);
        }
        let diffs = diffs(&call.content);
        told.calls.insert(call.tool_call_id, (call.title.clone(), diffs));
        drop(told);
        self.screen.end_line();
        self.screen.doing(&call.title);
    }

    fn news(&self, update: v1::ToolCallUpdate) {
        let fields = update.fields;
        let mut told = self.told();
        if let Some(facts) = &fields.raw_output
            && let Some(id) = facts[CallFacts::BACKGROUND].as_str()
        {
            if facts[CallFacts::ENDED].is_null() {
                told.background.insert(id.to_owned());
            } else {
                told.background.remove(id);
            }
        }
        let Some((title, changes)) = told.calls.get_mut(&update.tool_call_id) else { return };
        if let Some(new) = fields.title {
            *title = new;
        }
        if let Some(new) = fields.content.as_deref().map(diffs).filter(|diffs| !diffs.is_empty()) {
            *changes = new;
        }
        let failed = match fields.status {
            Some(v1::ToolCallStatus::Completed) => false,
            Some(v1::ToolCallStatus::Failed) => true,
            _ => return,
        };
        let Some((title, changes)) = told.calls.remove(&update.tool_call_id) else { return };
        drop(told);
        if self.screen.shows_calls() {
            let output = fields.raw_output.unwrap_or_default();
            self.screen.beside(&self.over(&title, &changes, failed, &output));
            self.screen.doing("thinking");
        }
    }

    /// A call that is over: what it did, and what of it is worth a look.
    fn over(&self, title: &str, changes: &[v1::Diff], failed: bool, output: &serde_json::Value) -> Styled {
        let palette = self.screen.aside;
        let mut out = palette.styled(if failed { BAD } else { GOOD }, if failed { "✗ " } else { "• " });
        out.push(&palette.line(Style::new(), title));
        if failed {
            if let Some(code) = output["exit"].as_i64() {
                out.push(&palette.line(BAD, &format!(" (exit code {code})")));
            }
            let lines: Vec<&str> = output["output"].as_str().unwrap_or_default().trim_end().lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(LAST)) {
                out.push(&Palette::plain("\n    "));
                out.push(&palette.line(FAINT, line));
            }
            return out;
        }
        for diff in changes {
            let (path, old) = (diff.path.display().to_string(), diff.old_text.as_deref().unwrap_or_default());
            out.push(&Palette::plain("\n"));
            out.push(&palette.change(&path, old, &diff.new_text, 4));
        }
        out
    }

    /// session/request_permission.
    pub(super) fn permit(
        client: &Arc<Self>,
        cx: Cx,
        request: v1::RequestPermissionRequest,
    ) -> Reply<v1::RequestPermissionResponse> {
        use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let client = client.clone();
        Reply::later(async move {
            // A question about the session, whose answer is kept: only a person can give it.
            let kept = request.options.iter().any(|option| *option.option_id.0 == *YES);
            let person = client.format == OutputFormat::Text && io::stdin().is_terminal();
            let mut said = None;
            let mut is_withdrawn = false;
            let asked = if kept && (client.allow || client.deny || !person) {
                None
            } else if client.allow {
                Some(AllowOnce)
            } else if client.deny || !person {
                Some(RejectOnce)
            } else {
                let answer = tokio::select! {
                    answer = client.ask(&request) => answer,
                    // The question was withdrawn. Whoever types now types for nobody.
                    () = cx.cancelled.cancelled() => {
                        is_withdrawn = true;
                        None
                    }
                };
                answer.map(|(kind, words)| {
                    said = words.filter(|_| !kept);
                    kind
                })
            };
            let chosen = request.options.iter().find(|option| Some(option.kind) == asked);
            // What was withdrawn was settled by another answer, or ended with its turn.
            if !kept && !is_withdrawn && said.is_none() && !matches!(asked, Some(AllowOnce | AllowAlways)) {
                client.rejected.store(true, Ordering::Relaxed);
                let title = request.tool_call.fields.title.clone().unwrap_or_default();
                client.screen.aside(&format!("rejected: {title}"));
            }
            Ok(v1::RequestPermissionResponse::new(match chosen {
                Some(option) => {
                    let meta = said.map(|words| own(WORDS, words.into()));
                    let chosen = v1::SelectedPermissionOutcome::new(option.option_id.clone()).meta(meta);
                    v1::RequestPermissionOutcome::Selected(chosen)
                }
                None => v1::RequestPermissionOutcome::Cancelled,
            }))
        })
    }

    /// elicitation/create.
    pub(super) fn inquire(
        client: &Arc<Self>,
        cx: Cx,
        request: v1::CreateElicitationRequest,
    ) -> Reply<v1::CreateElicitationResponse> {
        let client = client.clone();
        Reply::later(async move {
            let answer = tokio::select! {
                answer = client.fill(&request) => answer,
                () = cx.cancelled.cancelled() => None,
            };
            Ok(v1::CreateElicitationResponse::new(match answer {
                Some(content) => v1::ElicitationAction::Accept(v1::ElicitationAcceptAction::new().content(content)),
                None => v1::ElicitationAction::Cancel,
            }))
        })
    }

    /// Asks what a form asks; none where the input ends.
    async fn fill(
        &self,
        request: &v1::CreateElicitationRequest,
    ) -> Option<BTreeMap<String, v1::ElicitationContentValue>> {
        let mut content = BTreeMap::new();
        if let v1::ElicitationMode::Url(visit) = &request.mode {
            let (message, url) = (text::shown(&request.message), text::shown(&visit.url));
            let question = format!("\n? {message}\n  {url}\nOpen it in a browser, then answer y (n to decline)> ");
            let line = self.keyboard.ask(Palette::plain(&question)).await?;
            return matches!(line.trim(), "y" | "yes").then_some(content);
        }
        let fields = form::fields(request)?;
        if fields.is_empty() {
            let question = format!("\n? {} (y/n)> ", text::shown(&request.message));
            let line = self.keyboard.ask(Palette::plain(&question)).await?;
            return matches!(line.trim(), "y" | "yes").then_some(content);
        }
        // One question stands in its own field.
        if fields.len() > 1 || !fields.iter().any(|field| field.words.contains(request.message.trim())) {
            self.screen.aside(&request.message);
        }
        for field in fields {
            let line = self.keyboard.ask(Palette::plain(&format!("\n{}> ", field.words))).await?;
            field.take(&line, &mut content);
        }
        Some(content)
    }

    /// Asks at the terminal. Beside a no may stand what the user said instead.
    async fn ask(&self, request: &v1::RequestPermissionRequest) -> Option<(v1::PermissionOptionKind, Option<String>)> {
        use v1::PermissionOptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let once = request.options.iter().any(|option| option.kind == AllowOnce);
        let yes = if once { AllowOnce } else { AllowAlways };
        let mut words = self.question(request);
        for option in &request.options {
            let key = match option.kind {
                kind if kind == yes => "y",
                AllowAlways => "a",
                _ => "n",
            };
            words.push(&self.screen.aside.styled(STRONG, &format!("  {key}  ")));
            words.push(&self.screen.aside.line(Style::new(), &option.name));
            words.push(&Palette::plain("\n"));
        }
        words.push(&Palette::plain(if once { "  or what to do instead\n> " } else { "> " }));
        Some(match self.keyboard.ask(words).await?.trim() {
            "y" | "yes" => (yes, None),
            "a" | "always" => (AllowAlways, None),
            "" | "n" | "no" => (RejectOnce, None),
            words => (RejectOnce, Some(words.to_owned())),
        })
    }

    /// What is asked, and all there is to see of it.
    fn question(&self, request: &v1::RequestPermissionRequest) -> Styled {
        let palette = self.screen.aside;
        let mut words = Palette::plain("\n");
        let title = request.tool_call.fields.title.as_deref().unwrap_or_default();
        words.push(&palette.line(STRONG, &format!("? {title}")));
        words.push(&Palette::plain("\n"));
        for content in request.tool_call.fields.content.iter().flatten() {
            match content {
                v1::ToolCallContent::Diff(diff) => {
                    let old = diff.old_text.as_deref().unwrap_or_default();
                    words.push(&palette.change(&diff.path.display().to_string(), old, &diff.new_text, 2));
                }
                v1::ToolCallContent::Content(content) => {
                    if let v1::ContentBlock::Text(text) = &content.content {
                        words.push(&palette.markdown(&text.text, 2));
                    }
                }
                _ => {}
            }
        }
        words
    }

    fn told(&self) -> MutexGuard<'_, RunProgress> {
        locked(&self.told)
    }
}

fn diffs(content: &[v1::ToolCallContent]) -> Vec<v1::Diff> {
    let one = |content: &v1::ToolCallContent| match content {
        v1::ToolCallContent::Diff(diff) => Some(diff.clone()),
        _ => None,
    };
    content.iter().filter_map(one).collect()
}
