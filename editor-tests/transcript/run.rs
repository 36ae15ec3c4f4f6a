//! A running page: the messages of its client and of the agent, and the ends of its requests.

mod actions;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::buffers::Buffers;
use super::compare::{ReceivedLine, by_call, claim, difference, joined, matches, printed, prints};
use super::replayed::ShownCalls;
use super::{ASIDE, SILENCE_TIMEOUT, fill_paths, own};
use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::editor_servers::EditorServers;
use crate::invariants::Invariants;
use crate::model::Model;
use crate::placeholders::Placeholders;
use crate::project::Project;
use crate::replay_as_v2;
use crate::web::Web;

/// Placeholders of the first two child sessions of a page.
const CHILDREN: [&str; 2] = ["${SESSION2}", "${SESSION3}"];

/// Placeholders of the questions about the first two calls; of concurrent calls either may ask
/// first.
const QUESTIONS: [&str; 2] = ["‹ask1›", "‹ask2›"];

/// Returns a text in which the two have each other's name.
fn exchanged(text: &str, [one, other]: [&str; 2]) -> String {
    text.split(one)
        .map(|piece| piece.replace(other, one))
        .collect::<Vec<_>>()
        .join(other)
}

/// A page in progress.
pub(super) struct Run {
    pub(super) project: Project,
    model: Option<Model>,
    web: Option<Web>,
    editor: Option<Editor>,
    invariants: Invariants,
    /// The calls that were shown, which a load must show again.
    shown: ShownCalls,
    pub(super) names: Placeholders,
    /// Kinds of updates that are not shown.
    aside: Vec<&'static str>,
    /// Members of results and updates that are not shown.
    aside_members: Vec<&'static str>,
    /// Heard, and not yet expected by any block.
    received: Vec<ReceivedLine>,
    /// All received lines, as text, and the position from which `# wait for` searches.
    log: Vec<String>,
    looked: usize,
    /// The agent's requests without an answer: method, id.
    asks: VecDeque<(String, Value)>,
    newest_ask: Option<Value>,
    /// The session a request of the editor's was about, by its id.
    about: BTreeMap<String, String>,
    file_limit: Option<u64>,
    buffers: Buffers,
    editor_servers: EditorServers,
    problems: Vec<String>,
    /// Speaks version 2, whatever the page does.
    second: bool,
    /// The ids of prompts.
    prompts: Vec<Value>,
}

impl Run {
    pub(super) fn new(
        project: Project,
        model: Option<Model>,
        web: Option<Web>,
        aside: Vec<&'static str>,
        second: bool,
    ) -> Self {
        let mut names = Placeholders::new(&project);
        names.fix(env!("CARGO_BIN_EXE_adjutant"), "${ADJUTANT}");
        names.fix(&own("${MCP}"), "${MCP}");
        if let Some(model) = &model {
            names.fix(&model.base(), "${MODEL}");
        }
        if let Some(web) = &web {
            names.fix(&web.base(), "${WEB}");
            names.fix(&web.behind("localhost"), "localhost:${PORT}");
        }
        Self {
            project,
            model,
            web,
            editor: None,
            invariants: Invariants::default(),
            shown: ShownCalls::default(),
            names,
            aside,
            aside_members: Vec::new(),
            received: Vec::new(),
            log: Vec::new(),
            looked: 0,
            asks: VecDeque::new(),
            newest_ask: None,
            about: BTreeMap::new(),
            file_limit: None,
            buffers: Buffers::default(),
            editor_servers: EditorServers::default(),
            problems: Vec::new(),
            second,
            prompts: Vec::new(),
        }
    }

    /// Does not show these members of results and updates.
    pub(super) fn without(mut self, members: Vec<&'static str>) -> Self {
        self.aside_members = members;
        self
    }

    fn editor(&mut self) -> &mut Editor {
        let project = &self.project;
        let limit = self.file_limit;
        self.editor.get_or_insert_with(|| match limit {
            Some(kib) => Editor::start_with_small_files(project, kib),
            None => Editor::start(project),
        })
    }

    fn send(&mut self, line: &str) {
        let translated = match serde_json::from_str::<Value>(line) {
            Ok(mut message) if self.second => {
                if message["method"] == "session/prompt" {
                    self.prompts.push(message["id"].clone());
                }
                replay_as_v2::translated(&mut message);
                message.to_string()
            }
            _ => line.to_owned(),
        };
        let line = &*translated;
        if let Ok(message) = serde_json::from_str::<Value>(line)
            && let Some(session) = message["params"]["sessionId"].as_str()
        {
            self.about
                .insert(message["id"].to_string(), self.names.shorten(session));
        }
        if line.contains("mcpServers")
            && let Ok(message) = serde_json::from_str(line)
        {
            self.editor_servers.observe_client(&message);
        }
        self.invariants.observe_client(line);
        if !self.second
            && let Ok(message) = serde_json::from_str(line)
        {
            self.shown.observe_client(&message);
        }
        self.editor().send(line);
    }

    /// Replaces placeholders by their values; waits for a session that is still being created.
    fn fill(&mut self, line: &str) -> Result<String, String> {
        let mut line = fill_paths(&self.project, line);
        if let Some(model) = &self.model {
            line = line.replace("${MODEL}", &model.base());
        }
        if let Some(web) = &self.web {
            line = web.fill(&own(&line));
        }
        if line.contains("${ASK}") {
            let ask = self
                .newest_ask
                .clone()
                .ok_or("the agent has not asked anything")?;
            line = line.replace("${ASK}", &ask.to_string());
        }
        while let Some(at) = line.find("${SESSION") {
            let name = &line[at..=at + line[at..].find('}').ok_or("a name without an end")?];
            let name = name.to_owned();
            self.until(&format!("a session for {name}"), |run| {
                run.names.meaning(&name).is_some()
            })?;
            line = line.replace(&name, &self.names.meaning(&name).unwrap_or_default());
        }
        while let Some((before, rest)) = line.split_once('‹') {
            let (name, after) = rest.split_once('›').ok_or("a name without an end")?;
            let id = self
                .names
                .meaning(&format!("‹{name}›"))
                .ok_or_else(|| format!("nothing was called {name} yet"))?;
            line = format!("{before}{id}{after}");
        }
        Ok(line)
    }

    /// Listens until every request of the editor's has its answer.
    pub(super) fn settled(&mut self) -> Result<(), String> {
        if self.editor.is_none() {
            return Ok(());
        }
        self.until("all answers", |run| !run.invariants.waiting())
            .map_err(|e| format!("{e}; still open: {:?}", self.invariants.waiting_for()))
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        let end = Instant::now() + RESPONSE_TIMEOUT;
        while !done(self) {
            let timeout = end.saturating_duration_since(Instant::now());
            let Some(line) = self.editor().receive(timeout) else {
                let last: Vec<_> = self.log.iter().rev().take(6).rev().cloned().collect();
                let state = self.model.as_ref().map(Model::problems).unwrap_or_default();
                return Err(format!(
                    "waited in vain for {what}; the last lines were\n  {}\n{state:?}",
                    last.join("\n  ")
                ));
            };
            self.take(&line);
        }
        Ok(())
    }

    /// Listens until the agent has nothing more to say.
    fn drain(&mut self) {
        while let Some(line) = self.editor().receive(RESPONSE_TIMEOUT) {
            self.take(&line);
        }
    }

    fn take(&mut self, line: &str) {
        let Some(message) = self.invariants.observe_agent(line) else {
            return;
        };
        if message["method"] == "$/cancel_request" {
            self.editor_servers
                .cancelled(&message["params"]["requestId"]);
        }
        let to_server = message["method"] == "mcp/message";
        if to_server && let Some(id) = message.get("id") {
            if !self.aside.contains(&"mcp/message") {
                self.names.ask(id);
            }
            for mut reply in self.editor_servers.answer(id, &message["params"]) {
                reply["jsonrpc"] = "2.0".into();
                self.send(&reply.to_string());
            }
        }
        self.problems.extend(self.shown.observe_agent(&message));
        if message["method"].is_string()
            && !to_server
            && let Some(id) = message.get("id")
        {
            self.names.ask(id);
            self.newest_ask = Some(id.clone());
            let method = message["method"].as_str().unwrap_or_default();
            match self.buffers.answer(method, &message["params"]) {
                Some(mut reply) => {
                    reply["jsonrpc"] = "2.0".into();
                    reply["id"] = id.clone();
                    self.send(&reply.to_string());
                }
                None => self.asks.push_back((method.into(), id.clone())),
            }
        }
        let text = self.names.shorten(line);
        self.log.push(text.clone());
        let Ok(mut value) = serde_json::from_str::<Value>(&text) else {
            return;
        };
        if let Some(members) = value.as_object_mut() {
            members.shift_remove("jsonrpc");
        }
        self.names.tidy(&mut value);
        printed(&mut value);
        for at in ["/result", "/params/update"] {
            if let Some(members) = value.pointer_mut(at).and_then(Value::as_object_mut) {
                for member in &self.aside_members {
                    members.shift_remove(*member);
                }
            }
        }
        let update = &value["params"]["update"];
        let kind = update["sessionUpdate"]
            .as_str()
            .or(value["method"].as_str())
            .unwrap_or_default();
        if self.aside.contains(&kind) {
            return;
        }
        let stream = self.stream(&value);
        if kind == "tool_call_update"
            && matches!(update["status"].as_str(), Some("completed" | "failed"))
        {
            // How much of it was seen while it ran is a matter of luck; the end has it all.
            let of_call = |received: &ReceivedLine| {
                received.value["params"]["update"]["toolCallId"] == update["toolCallId"]
            };
            self.received.retain(|received| {
                !(of_call(received) && prints(&received.value["params"]["update"]))
            });
        }
        let mut received = self.received.iter_mut().rev();
        let last = received.find(|received| received.stream == stream);
        if last.is_some_and(|last| joined(&mut last.value, &value)) {
            return;
        }
        self.received.push(ReceivedLine { value, stream });
    }

    /// Lines of one stream must come in the order of the page: a session, or everything that is
    /// about no session; updates about a session may come at any time.
    fn stream(&self, value: &Value) -> String {
        let update = value["params"]["update"]["sessionUpdate"]
            .as_str()
            .or(value["method"].as_str())
            .unwrap_or_default();
        let session = value["params"]["sessionId"]
            .as_str()
            .or(value["result"]["sessionId"].as_str());
        let session = session
            .map(str::to_owned)
            .or_else(|| self.about.get(&value["id"].to_string()).cloned());
        let session = session.unwrap_or_default();
        if ASIDE.contains(&update) {
            format!("{session} {update}")
        } else {
            session
        }
    }

    fn expected(&self, body: &str) -> Result<Vec<ReceivedLine>, String> {
        let line = |line: &str| {
            let value = serde_json::from_str(line).map_err(|e| format!("{line}: {e}"))?;
            let stream = self.stream(&value);
            Ok(ReceivedLine { value, stream })
        };
        body.lines()
            .filter(|line| !line.trim().is_empty())
            .map(line)
            .collect()
    }

    pub(super) fn agent_block(&mut self, body: &str, unordered: bool) -> Result<(), String> {
        let mut expected = self.expected(body)?;
        // Which of two that are made side by side is named first is a matter of luck.
        let mut swapped = Vec::new();
        for twins in [CHILDREN, QUESTIONS] {
            if unordered && twins.iter().all(|twin| body.contains(twin)) {
                // The editor answers the first that comes, whichever it is about: then the second
                // is withdrawn.
                let is_withdrawn = |line: &str| line.contains("$/cancel_request");
                let swap = |line: &str| {
                    if is_withdrawn(line) {
                        line.to_owned()
                    } else {
                        exchanged(line, twins)
                    }
                };
                let by_arrival = body.lines().map(swap).collect::<Vec<_>>().join("\n");
                for body in [exchanged(body, twins), by_arrival] {
                    let mut lines = self.expected(&body)?;
                    by_call(&mut lines);
                    swapped.push((twins, lines));
                }
            }
        }
        if unordered {
            by_call(&mut expected);
        }
        let mut exchange = None;
        let mut claims = |received: &[ReceivedLine]| {
            claim(&expected, received, unordered).or_else(|| {
                swapped.iter().find_map(|(twins, lines)| {
                    let claimed = claim(lines, received, unordered)?;
                    exchange = Some(*twins);
                    Some(claimed)
                })
            })
        };
        let mut claimed = claims(&self.received);
        let end = Instant::now() + RESPONSE_TIMEOUT;
        while claimed.is_none() {
            // Once enough lines are there and do not fit, a short while is left for lines that
            // are still growing; then it is a failure.
            let enough = self.received.len() >= expected.len();
            let timeout = end.saturating_duration_since(Instant::now());
            let timeout = if enough {
                timeout.min(SILENCE_TIMEOUT)
            } else {
                timeout
            };
            let line = self
                .editor
                .as_ref()
                .and_then(|editor| editor.receive(timeout));
            let Some(line) = line else {
                let mut received = self.received.clone();
                if unordered {
                    by_call(&mut received);
                }
                return Err(format!(
                    "what came out is not what must:\n{}",
                    difference(&expected, &received)
                ));
            };
            self.take(&line);
            claimed = claims(&self.received);
        }
        for at in claimed.unwrap_or_default().into_iter().rev() {
            self.received.remove(at);
        }
        if let Some(twins) = exchange {
            self.names.exchange(twins);
            for received in &mut self.received {
                let text = exchanged(&received.value.to_string(), twins);
                received.value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    pub(super) fn bless(&mut self, old: &str, unordered: bool) -> String {
        while let Some(line) = self
            .editor
            .as_ref()
            .and_then(|editor| editor.receive(SILENCE_TIMEOUT))
        {
            self.take(&line);
        }
        let mut received = std::mem::take(&mut self.received);
        if unordered {
            by_call(&mut received);
        }
        let mut old: VecDeque<(String, Value)> = old
            .lines()
            .filter_map(|line| Some((line.to_owned(), serde_json::from_str(line).ok()?)))
            .collect();
        let mut text = String::new();
        for ReceivedLine { value, .. } in received {
            let kept = old.iter().position(|(_, old)| matches(old, &value));
            let line = match kept {
                Some(at) => old
                    .drain(..=at)
                    .next_back()
                    .map(|(line, _)| line)
                    .unwrap_or_default(),
                None => value.to_string(),
            };
            writeln!(text, "{line}").unwrap();
        }
        text
    }

    /// Sees the process off.
    fn leave(&mut self) {
        self.leave_with(0);
    }

    fn leave_with(&mut self, code: i32) {
        let Some(mut editor) = self.editor.take() else {
            return;
        };
        let exit = editor.finish();
        for line in &exit.lines {
            self.take(line);
        }
        self.problems.extend(exit.problems(code));
        let open = self.invariants.waiting_for();
        if !open.is_empty() {
            self.problems.push(format!("never answered: {open:?}"));
        }
        self.begin_again();
    }

    /// Another process, another handshake.
    fn begin_again(&mut self) {
        self.editor = None;
        self.asks.clear();
        self.shown.forget_pending();
        self.editor_servers = EditorServers::default();
        let invariants = std::mem::take(&mut self.invariants);
        self.problems.extend(invariants.problems().iter().cloned());
    }

    /// The end of a page that was acted out in version 2.
    pub(super) fn end_second(mut self, lines: &[Value]) -> Vec<String> {
        self.leave();
        let received: Vec<Value> = std::mem::take(&mut self.received)
            .into_iter()
            .map(|received| received.value)
            .collect();
        let page = replay_as_v2::summary(lines, &self.prompts);
        let received = replay_as_v2::summary(&received, &self.prompts);
        self.problems
            .extend(replay_as_v2::differences(&page, &received));
        self.end(false)
    }

    pub(super) fn end(mut self, bless: bool) -> Vec<String> {
        self.leave();
        if !bless {
            self.problems.extend(
                self.received
                    .iter()
                    .map(|received| format!("unexpected: {}", received.value)),
            );
        }
        self.problems
            .extend(self.model.as_ref().map(Model::problems).unwrap_or_default());
        // A process that was killed a moment ago may still be seen for a moment.
        let left = self
            .project
            .left_after(Duration::from_millis(500), |_| true);
        self.problems.extend(
            left.into_iter()
                .map(|line| format!("a process is left over: {line}")),
        );
        self.problems
    }
}
