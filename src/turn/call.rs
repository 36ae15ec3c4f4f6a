//! The calls of a step: doom check, find the tool, prepare, permission, run, cut, record. The only
//! place that asks the user whether a call may go on.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::doom::Repeats;
use super::frame::Frame;
use super::witness::Witness;
use super::{History, Scope, doom, next, remind, view};
use crate::agent::Agent;
use crate::event::{Answer, Ask, CallUpdate, Event, Exit, Facts, Kind, Progress, Up};
use crate::id::{CallId, MessageId, PartId};
use crate::message::{Call, CallState, Completed, Content, Finish, Message, Part};
use crate::permission::explain::{explain, unit_line};
use crate::permission::{Action, Denial, Need, Place, Policy, Verdict, evaluate, settles};
use crate::tool::claims::Claims;
use crate::tool::{AnyTool, Context, Failure, Order, Output, Run, accept, refusal, truncate};

/// The most bytes a call's arguments may have.
const ARGUMENTS_LIMIT: usize = 8 << 20;

/// How long a tool may take to end after a cancel.
const GRACE: Duration = Duration::from_millis(200);

/// What becomes of a call that was still waiting for its turn, or for an answer, at a cancel.
const NOT_BEGUN: &str = "The call was not made: the user cancelled the turn before it began.";

/// Makes the calls of a message, side by side where the tools allow it, and puts the results into
/// the message. After a cancel every call has ended, and is marked as failed where it did not
/// complete.
pub async fn make(history: &History, scope: &Scope, frame: &Frame, message: &mut Message, witness: &Witness) {
    let id = message.id.clone();
    let claims = Arc::new(claims(history, scope));
    let mut waiting: VecDeque<(usize, One<'_>)> = VecDeque::new();
    let mut earlier: Vec<(String, Arc<Value>)> = Vec::new();
    for (place, part) in message.parts.iter().enumerate() {
        let Content::Tool(call) = &part.content else {
            continue;
        };
        if call.state != CallState::Pending {
            continue;
        }
        let Meant { call, tool, notes, wrong, kind } = meant(frame, call.clone());
        let same = |(tool, input): &&(String, Arc<Value>)| *tool == call.tool && *input == call.input;
        let here = u32::try_from(earlier.iter().rev().take_while(same).count()).unwrap_or(u32::MAX);
        let unbroken = here as usize == earlier.len();
        let before = if unbroken { doom::repeats(history, &call.tool, &call.input) } else { Repeats::default() };
        earlier.push((call.tool.clone(), call.input.clone()));
        let repeats = Repeats { calls: here + before.calls, ..before };
        let (message, part, claims, facts) = (&id, part.id.clone(), claims.clone(), Facts::default());
        let one = One {
            scope,
            frame,
            witness,
            message,
            part,
            call,
            tool,
            notes,
            wrong,
            kind,
            claims,
            order: None,
            facts,
            repeats,
        };
        waiting.push_back((place, one));
    }
    let several = waiting.len() > 1;
    let beside = |one: &One<'_>| {
        let judged = |tool: &Arc<dyn AnyTool>| tool.beside(&one.call.input, &one.context());
        one.tool.as_ref().is_none_or(|tool| if several { judged(tool) } else { tool.concurrent() })
    };
    let besides: Vec<bool> = waiting.iter().map(|(_, one)| beside(one)).collect();
    let commands = waiting.iter().filter(|(_, one)| one.call.kind == Kind::Execute).count();
    if commands > 1 {
        let order = in_words(&besides);
        for ((n, beside), (_, one)) in besides.iter().enumerate().zip(&mut waiting) {
            let words = format!("Calls of this message ran in this order: {order}. This is call {}.", n + 1);
            one.order = Some(Order { words, beside: *beside });
        }
    }
    let mut besides = VecDeque::from(besides);
    let mut running = FuturesUnordered::new();
    let mut alone = false;
    loop {
        while let Some(beside) = besides.front().copied().filter(|_| !waiting.is_empty()) {
            if !(running.is_empty() || (beside && !alone)) {
                break;
            }
            alone = !beside;
            besides.pop_front();
            if let Some((place, one)) = waiting.pop_front() {
                running.push(async move { (place, one.make().await) });
            }
        }
        match running.next().await {
            Some((place, call)) => {
                let rejected = next::rejected(&call.state) && !scope.settings.experimental.continue_loop_on_deny;
                message.parts[place].content = Content::Tool(call);
                if rejected {
                    // The turn ends here: what has not begun will not.
                    waiting.clear();
                }
            }
            None => break,
        }
    }
    drop(running);
    abandon(scope, message, "The call was not made: the user rejected another one.").await;
}

/// In which order calls run, by whether each may run beside its neighbours.
fn in_words(besides: &[bool]) -> String {
    let mut groups: Vec<(bool, Vec<String>)> = Vec::new();
    for (n, beside) in (1..).zip(besides) {
        match groups.last_mut().filter(|(open, _)| *open && *beside) {
            Some((_, group)) => group.push(n.to_string()),
            None => groups.push((*beside, vec![n.to_string()])),
        }
    }
    let one = |(_, group): (bool, Vec<String>)| match &group[..] {
        [first, .., last] => format!("{first} to {last} side by side"),
        _ => group.concat(),
    };
    groups.into_iter().map(one).collect::<Vec<_>>().join(", then ")
}

/// Marks calls that will not be made as failed.
pub async fn abandon(scope: &Scope, message: &mut Message, why: &str) {
    for place in 0..message.parts.len() {
        if matches!(&message.parts[place].content, Content::Tool(call) if call.state == CallState::Pending) {
            fail(scope, message, place, why).await;
        }
    }
}

async fn fail(scope: &Scope, message: &mut Message, place: usize, why: &str) {
    let Content::Tool(call) = &mut message.parts[place].content else { return };
    call.state = CallState::Failed { error: why.to_owned(), metadata: Map::new() };
    let output = Some(why.to_owned());
    let update = CallUpdate { progress: Some(Progress::Failed), output, ..CallUpdate::of(&call.call) };
    scope.record.part(&message.id, &message.parts[place]).await;
    scope.outlet.event(Event::Call(Box::new(update))).await;
}

/// Of an answer that did not come to its own end, the calls that were cut: the last one, if nothing follows it, and
/// those whose arguments are no whole object. They are answered instead of made; what was complete before them is
/// made. An answer is cut at the output limit, or by a filter.
pub async fn set_aside(scope: &Scope, message: &mut Message, finish: Finish) {
    let why = match finish {
        Finish::Length => {
            "The answer was cut off at the output limit inside this call. It was not run; send it in smaller parts."
        }
        Finish::Refusal => "A content filter stopped the answer inside this call. It was not run.",
        Finish::Stop | Finish::ToolCalls | Finish::Other => return,
    };
    let empty = |part: &Part| matches!(&part.content, Content::Text(text) if text.text.trim().is_empty());
    let last = message.parts.iter().rposition(|part| !empty(part));
    let cut = |place: usize, part: &Part| match &part.content {
        Content::Tool(call) if call.state == CallState::Pending => Some(place) == last || call.input.is_string(),
        _ => false,
    };
    let places: Vec<usize> = (0..message.parts.len()).filter(|place| cut(*place, &message.parts[*place])).collect();
    for place in places {
        fail(scope, message, place, why).await;
    }
}

/// What becomes of a call that was found unfinished on disk.
pub fn interrupted(call: &Call) -> Option<CallState> {
    let error = match call.state {
        CallState::Pending => "The call was interrupted before it began.",
        CallState::Running { .. } => super::request::INTERRUPTED,
        CallState::Completed(_) | CallState::Failed { .. } => return None,
    };
    let mut metadata = match &call.state {
        CallState::Running { metadata } => metadata.clone(),
        _ => Map::new(),
    };
    if call.state != CallState::Pending {
        metadata.insert(remind::INTERRUPTED.to_owned(), Value::Bool(true));
    }
    Some(CallState::Failed { error: error.into(), metadata })
}

/// A call as it is meant.
struct Meant {
    call: Call,
    /// None where the model was offered no such tool.
    tool: Option<Arc<dyn AnyTool>>,
    /// What the model should know about that.
    notes: Vec<String>,
    /// Why the arguments are none.
    wrong: Option<String>,
    /// Its kind of work, where another one was announced.
    kind: Option<Kind>,
}

/// Takes a call as it is meant: by the names that tools and arguments have elsewhere. From here on it is
/// that call: what is judged, shown, run and kept is one.
fn meant(frame: &Frame, mut call: Call) -> Meant {
    let (mut notes, mut wrong, announced) = (Vec::new(), None, call.kind);
    if let Value::String(raw) = &*call.input {
        match accept::arguments(&call.tool, raw) {
            Ok(input) => call.input = Arc::new(input),
            Err(why) => wrong = Some(why),
        }
    }
    let tool = accept::named(&frame.tools, &call.tool, &call.input);
    if let Some(tool) = &tool {
        if wrong.is_none()
            && let Ok(accepted) = tool.accept(Value::clone(&call.input))
        {
            notes = accepted.notes;
            if accepted.input != *call.input {
                call.input = Arc::new(accepted.input);
            }
        }
        if tool.name() != call.tool {
            if !tool.name().eq_ignore_ascii_case(&call.tool) {
                notes.push(format!("The tool {} is named {} here.", crate::text::title(&call.tool), tool.name()));
            }
            call.tool = tool.name().to_owned();
            call.kind = tool.kind();
        }
    }
    let kind = Some(call.kind).filter(|kind| *kind != announced);
    Meant { call, tool, notes, wrong, kind }
}

/// The instruction files that the model has in front of it: in the system prompt, and in the results
/// of earlier calls that it still sees.
fn claims(history: &History, scope: &Scope) -> Claims {
    let prompted = scope.background.instructions.iter().filter_map(|entry| entry.path.clone());
    let seen = view::view(history).messages;
    let loaded = seen.into_iter().flat_map(Message::calls).filter_map(|call| match &call.state {
        CallState::Completed(done) if done.cleared.is_none() => done.metadata.get(Claims::LOADED)?.as_array(),
        _ => None,
    });
    Claims::new(prompted.chain(loaded.flatten().filter_map(Value::as_str).map(PathBuf::from)))
}

/// One call on its way.
struct One<'a> {
    scope: &'a Scope,
    frame: &'a Frame,
    witness: &'a Witness,
    message: &'a MessageId,
    part: PartId,
    call: Call,
    tool: Option<Arc<dyn AnyTool>>,
    notes: Vec<String>,
    wrong: Option<String>,
    kind: Option<Kind>,
    claims: Arc<Claims>,
    order: Option<Order>,
    facts: Facts,
    repeats: Repeats,
}

impl One<'_> {
    async fn make(mut self) -> Call {
        let made = self.attempt().await;
        let mut update = CallUpdate::of(&self.call.call);
        match made {
            Ok(mut output) => {
                let mut metadata = self.facts.all();
                metadata.append(&mut output.metadata);
                output.metadata = metadata;
                if !output.title.is_empty() {
                    self.call.title = crate::text::title(&output.title);
                    update.title = Some(self.call.title.clone());
                }
                if !output.locations.is_empty() {
                    self.call.locations.clone_from(&output.locations);
                    update.locations = Some(output.locations);
                }
                update.progress = Some(Progress::Completed);
                update.output = Some(output.display.clone().unwrap_or_else(|| output.text.clone()));
                update.exit = exit(&output.metadata);
                update.metadata = Some(output.metadata.clone());
                update.attachments = (!output.attachments.is_empty()).then(|| output.attachments.clone());
                update.changes = (!output.changes.is_empty()).then(|| output.changes.clone());
                self.call.state = CallState::Completed(Completed {
                    output: output.text.into(),
                    display: output.display,
                    metadata: output.metadata,
                    changes: output.changes,
                    attachments: output.attachments,
                    cleared: None,
                });
            }
            Err(failure) => {
                let mut metadata = self.facts.all();
                let error = match failure {
                    Failure::Tell(text) => truncate::failure(text, &self.context()),
                    Failure::Denied(denial) => {
                        if denial == Denial::Rejected {
                            metadata.insert(next::REJECTED.into(), Value::Bool(true));
                        }
                        denial.to_string()
                    }
                    Failure::Stopped(text) => {
                        metadata.insert(next::REJECTED.into(), Value::Bool(true));
                        text
                    }
                    // What never ran took no effect.
                    Failure::Cancelled if !matches!(self.call.state, CallState::Running { .. }) => NOT_BEGUN.into(),
                    Failure::Cancelled => {
                        metadata.insert(remind::INTERRUPTED.into(), Value::Bool(true));
                        "The user cancelled the turn before the call ended.".into()
                    }
                    Failure::Further(_) => "The call did not come to its end.".into(),
                    Failure::Broken(cause) => {
                        tracing::error!("{} failed: {cause}", self.call.tool);
                        format!("The tool failed: {cause}")
                    }
                };
                update.progress = Some(Progress::Failed);
                update.output = Some(error.clone());
                self.scope.seen.show(&error);
                self.call.state = CallState::Failed { error, metadata };
            }
        }
        self.save().await;
        self.scope.outlet.event(Event::Call(Box::new(update))).await;
        self.scope.jobs.announced(&self.call.call);
        self.call
    }

    async fn save(&self) {
        let part = Part { id: self.part.clone(), content: Content::Tool(self.call.clone()) };
        self.scope.record.part(self.message, &part).await;
    }

    async fn attempt(&mut self) -> Result<Output, Failure> {
        if self.scope.cancelled.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let Some(tool) = self.tool.clone() else {
            self.show(None).await;
            return Err(Failure::Tell(accept::unknown(&self.frame.tools, &self.call.tool)));
        };
        if let Some(why) = self.wrong.take() {
            self.show(None).await;
            return Err(Failure::Tell(format!(
                "The arguments of {} are not a JSON object ({why}). It takes {}. Write the call again.",
                self.call.tool,
                accept::wanted(&tool.schema())
            )));
        }
        let context = self.context();
        if let Some(description) = tool.describe(&self.call.input, &context) {
            self.call.title = crate::text::title(&description.title);
            self.call.locations = description.locations;
        }
        if self.call.input.to_string().len() > ARGUMENTS_LIMIT {
            return Err(Failure::tell("The arguments are larger than 8 MiB. Do it in smaller pieces."));
        }
        let prepared = tokio::select! {
            biased;
            () = self.scope.cancelled.cancelled() => Err(Failure::Cancelled),
            prepared = caught(tool.prepare(Value::clone(&self.call.input), &context)) => prepared,
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                self.show(None).await;
                return Err(failure);
            }
        };
        self.show(Some(&prepared.needs)).await;
        if self.repeats.is_loop() {
            let need = Need::new("doom_loop", &self.call.tool).always(&self.call.tool);
            let reason = self.repeats.reason(&self.call.tool);
            self.permit(&need, Some(reason)).await?;
        }
        for need in &prepared.needs {
            self.permit(need, None).await?;
        }
        self.witness.before(self.scope, self.call.kind, tool.name(), &prepared.needs).await;
        if self.scope.cancelled.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        self.call.state = CallState::Running { metadata: self.facts.all() };
        self.save().await;
        if self.call.kind.acts()
            && let Err(e) = self.scope.record.flush().await
        {
            tracing::warn!("acting although the call could not be recorded: {e}");
        }
        let update = CallUpdate { progress: Some(Progress::Running), ..CallUpdate::of(&self.call.call) };
        self.scope.outlet.event(Event::Call(Box::new(update))).await;
        // What a command changes in files that are as the model knows them, the agent has changed.
        let sweeps = super::witness::sweeps(self.call.kind, tool.name());
        let before = if sweeps { known(&context).await } else { Vec::new() };
        let done = self.further(prepared.run, &context).await;
        adopt(before, &context).await;
        done
    }

    /// Runs, as often as something further has to be allowed.
    async fn further(&mut self, mut run: Run, context: &Context) -> Result<Output, Failure> {
        loop {
            match self.run(run, context).await {
                Ok(mut output) => {
                    if !self.notes.is_empty() {
                        output.text.push_str(&format!("\n\n({})", self.notes.join(" ")));
                    }
                    let output = truncate::finish(output, context);
                    context.seen.show(&output.text);
                    return Ok(output);
                }
                Err(Failure::Further(further)) => {
                    for need in &further.needs {
                        self.permit(need, None).await?;
                    }
                    run = further.run;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn run(&mut self, run: Run, context: &Context) -> Result<Output, Failure> {
        let (scope, facts) = (self.scope, self.facts.clone());
        // Tools watch for the cancel themselves; one that does not is left behind.
        let mut left_behind = std::pin::pin!(async {
            scope.cancelled.cancelled().await;
            tokio::time::sleep(GRACE).await; // the grace a tool has to clean up
        });
        let mut output = std::pin::pin!(caught(run(context.clone())));
        loop {
            tokio::select! {
                output = &mut output => return output,
                () = &mut left_behind => return Err(Failure::Cancelled),
                // Kept at once: whoever finds the call cut off can tell from it where to go on.
                () = facts.news() => {
                    self.call.state = CallState::Running { metadata: facts.all() };
                    self.save().await;
                }
            }
        }
    }

    /// Tells what the call is, as far as it is known now.
    async fn show(&self, needs: Option<&[Need]>) {
        let changes: Vec<_> = needs.into_iter().flatten().flat_map(|need| need.changes.clone()).collect();
        let update = CallUpdate {
            title: Some(self.call.title.clone()),
            kind: self.kind,
            input: self.call.input.is_object().then(|| Value::clone(&self.call.input)),
            locations: (!self.call.locations.is_empty()).then(|| self.call.locations.clone()),
            changes: (!changes.is_empty()).then_some(changes),
            ..CallUpdate::of(&self.call.call)
        };
        self.save().await;
        self.scope.outlet.event(Event::Call(Box::new(update))).await;
    }

    /// Judges a need, and asks where the rules say so.
    async fn permit(&self, need: &Need, reason: Option<String>) -> Result<(), Failure> {
        permit(self.scope, &self.frame.agent, &self.call, need, reason).await
    }

    fn context(&self) -> Context {
        let context = context(self.scope, &self.frame.agent, &self.call.call);
        // A single result never fills a small window: a quarter of what is usable, at four bytes a token.
        let usable = self.frame.model.usable(self.scope.settings.compaction.reserved);
        let bytes = context.limits.bytes.min(usize::try_from(usable).unwrap_or(usize::MAX));
        let limits = truncate::Limits { bytes, ..context.limits };
        let order = self.order.clone();
        Context { claims: self.claims.clone(), order, facts: self.facts.clone(), limits, ..context }
    }
}

/// The files that are as the model knows them.
async fn known(context: &Context) -> Vec<PathBuf> {
    let seen = context.seen.clone();
    tokio::task::spawn_blocking(move || seen.as_known()).await.unwrap_or_default()
}

/// What has changed in these files since is the agent's own change.
async fn adopt(files: Vec<PathBuf>, context: &Context) {
    if files.is_empty() {
        return;
    }
    let seen = context.seen.clone();
    if let Err(e) = tokio::task::spawn_blocking(move || seen.adopt(files)).await {
        tracing::warn!("what a command has changed was not looked at: {e}");
    }
}

/// Judges a need, and asks where the rules say so.
pub(super) async fn permit(
    scope: &Scope,
    agent: &Agent,
    call: &Call,
    need: &Need,
    reason: Option<String>,
) -> Result<(), Failure> {
    let judge = || evaluate(&agent.rules, &scope.grants.of(&agent.name), need);
    // Subscribed before judging: a grant given in between is not missed.
    let mut changes = scope.grants.changes();
    let verdict = judge();
    tracing::info!("for {}: {}", agent.name, explain(&verdict, need, &agent.rules));
    match verdict.action {
        Action::Allow => return Ok(()),
        Action::Deny => return Err(Failure::Denied(Denial::Rule(refusal::words(&verdict, need, &agent.rules)))),
        Action::Ask if need.agreed => return Ok(()),
        Action::Ask => {}
    }
    // What the user is asked about is kept first: the process may not live to hear the answer.
    if let Err(e) = scope.record.flush().await {
        tracing::warn!("asking although the call could not be recorded: {e}");
    }
    let (reply, mut answer) = oneshot::channel();
    let lasting = settles(&agent.rules, &scope.grants.of(&agent.name), need);
    let ask = Ask {
        call: call.call.clone(),
        show: question(call, need),
        reason: reason.unwrap_or_else(|| asks(need, &verdict)),
        always: lasting.then(|| shown(need)),
        agent: None,
        session: None,
        reply,
    };
    if !scope.outlet.send(Up::Ask(Box::new(ask))).await {
        return Err(Failure::Cancelled);
    }
    loop {
        tokio::select! {
            biased;
            () = scope.cancelled.cancelled() => return Err(Failure::Cancelled),
            answer = &mut answer => return match answer {
                Ok(Answer::Once) => Ok(()),
                Ok(Answer::Always) => {
                    scope.grants.give(&agent.name, &need.permission, &need.always).await;
                    Ok(())
                }
                Ok(Answer::No(denial)) => Err(Failure::Denied(denial)),
                // The editor went away, or answered with an error: that is no approval.
                Err(_) => Err(Failure::Denied(Denial::Rejected)),
            },
            Ok(()) = changes.changed() => {
                if judge().action == Action::Allow {
                    return Ok(());
                }
            }
        }
    }
}

/// The call as the question shows it: complete, because some editors show nothing else.
fn question(call: &Call, need: &Need) -> CallUpdate {
    CallUpdate {
        title: Some(call.title.clone()),
        tool: Some(call.tool.clone()),
        kind: Some(call.kind),
        progress: Some(Progress::Pending),
        input: call.input.is_object().then(|| Value::clone(&call.input)),
        locations: (!call.locations.is_empty()).then(|| call.locations.clone()),
        changes: (!need.changes.is_empty()).then(|| need.changes.clone()),
        metadata: (!need.metadata.is_empty()).then(|| need.metadata.clone()),
        ..CallUpdate::of(&call.call)
    }
}

/// What an agent's tools and commands are judged by.
fn policy(scope: &Scope, agent: &Agent) -> Policy {
    let data = &scope.environment.dirs.data;
    let scratch = Some(data.join("scratch").join(scope.session.as_str()));
    let trusted = scope.settings.trusted;
    Policy {
        rules: agent.rules.clone(),
        grants: scope.grants.of(&agent.name),
        private: scope.settings.webfetch_private.clone(),
        place: Place { scratch, trusted, ..Place::new(&scope.environment, &scope.worktree, &scope.cwd) },
    }
}

/// What the tool of a call may use.
pub fn context(scope: &Scope, agent: &Agent, call: &CallId) -> Context {
    Context {
        session: scope.session.clone(),
        mark: scope.mark.clone(),
        call: call.clone(),
        order: None,
        facts: Facts::default(),
        cwd: scope.cwd.clone(),
        roots: scope.roots.clone(),
        worktree: scope.worktree.clone(),
        environment: scope.environment.clone(),
        policy: Arc::new(policy(scope, agent)),
        cancelled: scope.cancelled.clone(),
        outlet: scope.outlet.clone(),
        errands: scope.errands.clone(),
        seen: scope.seen.clone(),
        todos: scope.todos.clone(),
        jobs: scope.jobs.clone(),
        claims: Arc::default(),
        files: scope.files,
        confinement: scope.confinement.for_agent(&agent.rules, &scope.settings),
        settings: scope.settings.clone(),
        limits: truncate::Limits { lines: scope.settings.tool_output.lines, bytes: scope.settings.tool_output.bytes },
    }
}

/// A tool that panics fails its call, not the session.
pub(super) async fn caught<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let panicked = |_| Failure::Broken("it ended unexpectedly; the log says more".into());
    AssertUnwindSafe(work).catch_unwind().await.map_err(panicked)?
}

pub(super) fn exit(metadata: &Map<String, Value>) -> Option<Exit> {
    let code = metadata.get("exit")?;
    let signal = metadata.get("signal").and_then(Value::as_str).map(str::to_owned);
    Some(Exit { code: code.as_i64().and_then(|code| i32::try_from(code).ok()), signal })
}

/// For the user: what is asked for, and which part of a command makes it a question.
fn asks(need: &Need, verdict: &Verdict) -> String {
    let mut text = match &verdict.reason {
        Some(reason) => reason.clone(),
        None => format!("asks for {}: {}", need.permission, need.patterns.join(", ")),
    };
    let asked = verdict.units.iter().filter(|unit| unit.action == Action::Ask);
    for unit in asked.filter(|_| verdict.units.len() > 1) {
        text.push('\n');
        text.push_str(&unit_line(unit));
    }
    if let Some(from) = need.metadata.get("from").and_then(Value::as_str) {
        text.push_str(&format!("\n{from} leads there."));
    }
    if let Some(sandbox) = need.metadata.get("sandbox").and_then(Value::as_str) {
        text.push_str(&format!("\nSandbox: {sandbox}."));
    }
    text
}

/// What "always" would store, in the words it is stored in.
fn shown(need: &Need) -> String {
    need.always.iter().map(|pattern| format!("{} {pattern}", need.permission)).collect::<Vec<_>>().join(", ")
}
