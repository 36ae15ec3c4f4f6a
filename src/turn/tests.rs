//! Whole turns with a scripted model, a temporary store and a clock that does not wait. The
//! expectation is the list of events as text.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::models::Models;
use super::record::Recorder;
use super::{Background, Choice, History, Outcome, Permissions, SessionResources, TurnContext, Workspace, mend, run};
use crate::agent::registry::Agents;
use crate::config::settings::Settings;
use crate::environment::Environment;
use crate::event::{Event, Outlet, PermissionReply, Progress, Status, TurnMessage};
use crate::id::{CallId, SessionId};
use crate::message::{CallState, Content, Fault, FaultKind, Finish, Message, ModelRef, Role, Text, Usage, User};
use crate::model::catalog::Catalog;
use crate::model::http::HttpClient;
use crate::model::registry::{Registry, Sources};
use crate::model::request;
use crate::model::scripted::{Scripted, ScriptedAnswer};
use crate::model::{Delta, Error};
use crate::permission::grants::Grants;
use crate::permission::{Action, Denial, Rules};
use crate::snapshot::Tracker;
use crate::store::{Record, Store, StoredSession};
use crate::system::Surroundings;
use crate::text::mark::ReminderMark;
use crate::tool;
use crate::worktree::Worktree;

/// Read once: it is large.
static CATALOG: OnceLock<Arc<Catalog>> = OnceLock::new();

/// A session with a scripted model in a directory of its own.
pub(crate) struct Stage {
    dir: tempfile::TempDir,
    pub(crate) model: Arc<Scripted>,
    pub(crate) settings: Settings,
    history: History,
    pub(crate) cancelled: CancellationToken,
    answers: Vec<PermissionReply>,
    spoken: watch::Receiver<bool>,
    mark: ReminderMark,
    /// Cancel when an event with this text comes.
    pub(crate) cancel_at: Option<&'static str>,
    /// What becomes of the files is recorded.
    pub(crate) tracked: bool,
}

/// Where a flush waits for no disk, if there is such a place: many turns are played.
fn fast() -> std::path::PathBuf {
    let memory = std::path::Path::new("/dev/shm");
    let usable = tempfile::tempfile_in(memory).is_ok();
    if usable { memory.into() } else { std::env::temp_dir() }
}

/// What a turn came to.
pub(crate) struct Played {
    pub(crate) events: Vec<String>,
    pub(crate) outcome: Outcome,
    pub(crate) history: History,
    /// Calls that were announced, and whose end was never told.
    pub(crate) open: Vec<CallId>,
    /// Questions that still wait for an answer.
    pub(crate) asking: usize,
    /// What is kept of the turn, and of its subagents'.
    pub(crate) kept: Vec<StoredSession>,
}

impl Played {
    /// Whatever happened, nothing is left open: every call has ended, for the editor, in memory and in
    /// the store, which has what is in memory; nobody is asked any more.
    pub(crate) fn is_settled(&self, name: &str) {
        assert_eq!((&self.open, self.asking), (&vec![], 0), "{name}: {:#?}", self.events);
        let over = |state: &CallState| matches!(state, CallState::Completed(_) | CallState::Failed { .. });
        for call in self.history.messages.iter().flat_map(Message::calls) {
            assert!(over(&call.state), "{name}: {call:?}");
        }
        for (n, stored) in self.kept.iter().enumerate() {
            let mut kept = History::from(stored.messages.clone());
            assert_eq!(mend::mend(&mut kept), vec![], "{name}: session {n}");
            assert_eq!(stored.damage, Vec::<String>::new(), "{name}: session {n}");
            for summary in kept.messages.iter().filter(|m| m.compaction().is_some()) {
                let made = |m: &Message| m.is_summary() && m.assistant().is_some_and(|a| a.parent == summary.id);
                assert!(kept.messages.iter().any(made), "{name}: a summary without words");
            }
        }
        let mut kept = History::from(self.kept[0].messages.clone());
        super::release::release(&mut kept);
        for message in &mut kept.messages {
            // An edit that was announced and changed nothing.
            message.parts.retain(|part| !matches!(&part.content, Content::Patch { files, .. } if files.is_empty()));
        }
        let mut here = History::from(self.history.messages.clone());
        here.messages.drain(..here.messages.len() - kept.messages.len());
        assert_eq!(kept, here, "{name}");
    }
}

/// Every call of every request is followed by exactly one result.
pub(crate) fn paired(asked: &[Arc<request::Request>]) {
    for request in asked {
        for (n, message) in request.messages.iter().enumerate() {
            let request::ModelMessage::Assistant(outputs) = message else { continue };
            let calls: Vec<_> = outputs
                .iter()
                .filter_map(|output| match output {
                    request::ModelOutput::Call { id, .. } => Some(id),
                    _ => None,
                })
                .collect();
            if calls.is_empty() {
                continue;
            }
            let Some(request::ModelMessage::Results(results)) = request.messages.get(n + 1) else {
                panic!("calls without results");
            };
            assert_eq!(calls, results.iter().map(|result| &result.id).collect::<Vec<_>>());
        }
    }
}

impl Stage {
    pub(crate) fn new(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self {
            dir: tempfile::tempdir_in(fast()).unwrap(),
            model: Scripted::new(scripts),
            settings: Settings::default(),
            history: History::default(),
            cancelled: CancellationToken::new(),
            answers: Vec::new(),
            spoken: watch::channel(false).1,
            mark: ReminderMark::default(),
            cancel_at: None,
            tracked: false,
        }
    }

    /// With rules after the built-in ones.
    pub(crate) fn rules(mut self, rules: &[(&str, &str, Action)]) -> Self {
        self.settings.permission = Rules::built_in(rules);
        self
    }

    pub(crate) fn answering(mut self, answers: impl IntoIterator<Item = PermissionReply>) -> Self {
        self.answers = answers.into_iter().collect();
        self
    }

    pub(crate) async fn play(&mut self, prompt: &str) -> Played {
        self.play_with(prompt, |_, history, scope| Box::pin(run::run(history, scope))).await
    }

    /// Plays a turn that is run this way.
    pub(crate) async fn play_with(
        &mut self,
        prompt: &str,
        run: impl FnOnce(Environment, History, TurnContext) -> Pin<Box<dyn Future<Output = (History, Outcome)> + Send>>,
    ) -> Played {
        let home = self.dir.path().display().to_string();
        let environment = Environment::from_vars([("HOME".to_owned(), home)].into());
        let cwd = self.dir.path().join("work");
        std::fs::create_dir_all(&cwd).unwrap();
        let cwd = std::fs::canonicalize(cwd).unwrap();
        let worktree = Worktree { root: cwd.clone(), git: false, extra: vec![] };
        let store = Store::start(&environment.dirs.data);
        let session = SessionId::new(environment.fresh(SessionId::PREFIX));
        let settings = Arc::new(self.settings.clone());
        let registry = Registry::new(Sources {
            configured: vec![],
            local: vec![],
            catalog: CATALOG.get_or_init(|| Arc::new(Catalog::bundled())),
            disabled: &[],
            enabled: None,
            everything: false,
            auth: &Default::default(),
            environment: &environment,
            client: Arc::new(HttpClient::new(&environment)),
            offline: self.model.clone(),
        });
        let (agents, _) = Agents::build(&settings, &environment, &worktree);
        let (outlet, events) = Outlet::narrow();
        let scope = TurnContext {
            session: session.clone(),
            mark: self.mark.clone(),
            permissions: Permissions {
                grants: Grants::open("project", &environment, &store).await,
                inherited: Rules::default(),
                confinement: tool::confinement::Confinement::none(&environment),
                attended: true,
                chosen: watch::channel(Choice::of("build", None)).1,
            },
            resources: SessionResources {
                extensions: Arc::default(),
                servers: {
                    let client = Arc::new(HttpClient::new(&environment));
                    Arc::new(crate::mcp::McpServers::new(
                        (&cwd, &[]),
                        &environment,
                        &settings,
                        client,
                        crate::mcp::ForSession::default(),
                    ))
                },
                seen: Arc::default(),
                todos: Arc::new(tool::todos::Todos::new(vec![])),
                jobs: Arc::default(),
                formatters: Arc::default(),
                language: Arc::new(crate::lsp::SessionServers::new(&Arc::default())),
                exec: Arc::default(),
                files: tool::FileCapabilities::default(),
                snapshots: self.tracked.then(|| Arc::new(Tracker::new(&environment.dirs.data, &cwd, None))),
            },
            project: Workspace {
                cwd: cwd.clone(),
                roots: Arc::new([]),
                settings,
                agents: Arc::new(agents),
                read: Arc::new(super::later::SettingsRead::new(Arc::default())),
                models: Models::new(watch::channel(Arc::new(registry)).1, None, Arc::default()),
                tools: Arc::new(tool::registry::ToolRegistry::built_in()),
                background: Arc::new(Background {
                    surroundings: Surroundings::new(&cwd, &worktree, environment.now()),
                    references: vec![],
                    instructions: vec![],
                    skills: Arc::default(),
                }),
                worktree: Arc::new(worktree),
            },
            choice: watch::channel(Choice { steers: true, ..Choice::of("build", None) }).1,
            exposed: false,
            words: None,
            record: Recorder::new(store.clone(), session.clone()),
            cancelled: self.cancelled.clone(),
            leaving: CancellationToken::new(),
            spoken: self.spoken.clone(),
            outlet,
            session_requests: mpsc::channel(1).0,
            depth: 0,
            spent: Arc::default(),
            budget: Arc::default(),
            environment,
        };
        store.create(&Record::new(session.clone(), cwd.clone(), scope.now())).await.unwrap();
        let mut history = std::mem::take(&mut self.history);
        let content = Content::Text(Text { text: prompt.into(), ..Text::default() });
        let model = ModelRef { provider: "offline".into(), model: "offline".into(), effort: None };
        history.messages.push(Message {
            id: scope.message_id(),
            created: scope.now(),
            role: Role::User(User { agent: "build".into(), model }),
            parts: vec![scope.part(content)],
        });
        scope.record.whole(&history.messages[history.messages.len() - 1]).await;
        let cancel = (self.cancel_at, self.cancelled.clone(), self.model.clone());
        let watching = watch(events, cancel, std::mem::take(&mut self.answers));
        let environment = scope.environment.clone();
        let ((history, outcome), watched) = tokio::join!(run(environment, history, scope), watching);
        self.history = history.clone();
        let Watched { events, open, asking } = watched;
        let asking = asking.iter().filter(|reply| !reply.is_closed()).count();
        let mut kept = Vec::new();
        let mut sessions = vec![session];
        while let Some(session) = sessions.pop() {
            sessions.extend(store.children(&session).await.unwrap());
            kept.push(store.peek(&session).await.unwrap());
        }
        store.stop().await;
        Played { events, outcome, history, open, asking, kept }
    }
}

#[derive(Default)]
struct Watched {
    events: Vec<String>,
    open: Vec<CallId>,
    asking: Vec<oneshot::Sender<PermissionReply>>,
}

async fn watch(
    mut events: crate::channel::Receiver<TurnMessage>,
    (cancel_at, cancelled, model): (Option<&str>, CancellationToken, Arc<Scripted>),
    answers: Vec<PermissionReply>,
) -> Watched {
    let mut answers = answers.into_iter();
    let mut seen = Watched::default();
    while let Some(up) = events.recv().await {
        let line = match up {
            TurnMessage::Event(event) => {
                if let Event::Call(update) = &event
                    && let Some(call) = &update.call
                {
                    let over = update.progress.is_some_and(Progress::is_over);
                    seen.open.retain(|open| open != call);
                    seen.open.extend((!over).then(|| call.clone()));
                }
                show(&event)
            }
            TurnMessage::AskPermission(ask) => {
                let line = format!("ask: {}", ask.show.title.clone().unwrap_or_default());
                match answers.next() {
                    Some(answer) => drop(ask.reply.send(answer)),
                    // Held open: the user is thinking.
                    None => seen.asking.push(ask.reply),
                }
                Some(line)
            }
            other => Some(format!("{other:?}")),
        };
        let Some(line) = line else { continue };
        if cancel_at.is_some_and(|text| line.contains(text)) {
            // What follows the event has begun.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            // Where the model is asked after it, as for a summary, the store's own thread is waited for first.
            let patience = Instant::now() + Duration::from_secs(20);
            while model.left() > 0 && Instant::now() < patience {
                tokio::task::yield_now().await;
            }
            cancelled.cancel();
        }
        seen.events.push(line);
    }
    seen
}

fn show(event: &Event) -> Option<String> {
    Some(match event {
        Event::Text { delta, .. } => format!("text: {delta}"),
        Event::Thought { delta, .. } => format!("thought: {delta}"),
        Event::Call(update) => match (update.progress, &update.output) {
            (Some(Progress::Pending), _) => format!("call: {}", update.tool.clone().unwrap_or_default()),
            (Some(Progress::Running), _) => "running".into(),
            (Some(Progress::Completed), Some(output)) => format!("done: {}", output.lines().next().unwrap_or_default()),
            (Some(Progress::Failed), Some(output)) => format!("failed: {output}"),
            (None, Some(output)) => format!("told: {}|", output.replace('\n', " | ")),
            _ => format!("shown: {}", update.title.clone()?),
        },
        Event::Status(Status::Retrying { attempt, cause, .. }) => format!("retry {attempt}: {cause}"),
        Event::Usage { .. } | Event::Status(_) => return None,
        other => format!("{other:?}"),
    })
}

#[tokio::test(start_paused = true)]
async fn words_are_told_as_they_come() {
    let mut stage = Stage::new([ScriptedAnswer::text("hello")]);
    let played = stage.play("hi").await;
    assert_eq!(played.events, ["text: hello"]);
    assert_eq!(played.outcome, Outcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_announced_shown_run_and_answered() {
    let mut stage = Stage::new([ScriptedAnswer::calls(&[("list", json!({}))]), ScriptedAnswer::text("empty")]);
    let played = stage.play("look").await;
    let expected = ["call: list", "shown: List .", "running"];
    assert_eq!(played.events[..3], expected);
    assert!(played.events[3].starts_with("done: "), "{:?}", played.events);
    assert_eq!(played.events[4..], ["text: empty"]);
    assert_eq!(stage.model.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_request_begins_with_the_one_before_and_pairs_its_calls() {
    let mut stage = Stage::new([
        ScriptedAnswer::calls(&[("list", json!({})), ("nosuch", json!({})), ("read", json!({"filePath": "missing"}))]),
        ScriptedAnswer::text("done"),
        ScriptedAnswer::text("again"),
    ]);
    stage.play("look").await;
    stage.play("and now?").await;
    let asked = stage.model.asked();
    for pair in asked.windows(2) {
        assert_eq!(pair[1].messages[..pair[0].messages.len()], pair[0].messages[..]);
        // Each turn of a stage has a session of its own, and so another scratch directory.
        let system = |n: usize| pair[n].system.iter().map(|block| block.split("/scratch/").next()).collect::<Vec<_>>();
        assert_eq!(system(1), system(0));
        assert_eq!(pair[1].tools, pair[0].tools);
    }
    paired(&asked);
    assert_eq!(stage.model.follows(), [false, true, false], "what was written is kept from step to step, not longer");
}

#[tokio::test(start_paused = true)]
async fn what_the_model_got_wrong_it_is_told() {
    let broken = ScriptedAnswer::from_iter([
        Delta::Call { index: 0, id: None, name: "read".into() },
        Delta::Arguments { index: 0, json: "{\"filePath\":".into() },
        Delta::Finish(Finish::ToolCalls),
    ]);
    let mut stage = Stage::new([broken, ScriptedAnswer::calls(&[("fly", json!({}))]), ScriptedAnswer::text("sorry")]);
    let played = stage.play("go").await;
    let told: Vec<_> = played.events.iter().filter(|e| e.starts_with("failed")).collect();
    assert!(told[0].contains("not a JSON object"), "{told:?}");
    assert!(told[1].contains("no tool named \"fly\"") && told[1].contains("bash"), "{told:?}");
    assert_eq!(played.outcome, Outcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_repeated_and_left_out_of_the_next_request() {
    let limited = Error::RateLimited { message: "slow down".into(), after: Some(Duration::from_secs(12)) };
    let mut stage = Stage::new([
        ScriptedAnswer::text("half an ans").then_fails(limited),
        ScriptedAnswer::text("whole answer"),
        ScriptedAnswer::text("yes"),
    ]);
    let before = tokio::time::Instant::now();
    let played = stage.play("hi").await;
    assert_eq!(before.elapsed().as_secs(), 12);
    assert_eq!(played.events, ["text: half an ans", "retry 1: slow down", "text: whole answer"]);
    stage.play("sure?").await;
    let request::ModelMessage::Assistant(said) = &stage.model.asked()[2].messages[1] else { panic!("an answer") };
    assert_eq!(said.len(), 1, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_remains_is_a_fault_with_advice() {
    let mut stage = Stage::new([ScriptedAnswer::fails(Error::Auth("the key is wrong".into()))]);
    let Outcome::Failed(fault) = stage.play("hi").await.outcome else { panic!("a fault") };
    assert_eq!(fault.kind, FaultKind::Auth);
    assert!(fault.advice.is_some());
    let mut stage = Stage::new((0..6).map(|_| ScriptedAnswer::fails(Error::Network("reset".into()))));
    let played = stage.play("hi").await;
    assert_eq!(played.events.len(), 5, "five repetitions are told: {:?}", played.events);
    assert!(matches!(played.outcome, Outcome::Failed(_)));
    assert_eq!(stage.model.left(), 0);
    // The session can be used afterwards, and the model sees a valid conversation.
    stage.model = Scripted::new([ScriptedAnswer::text("back")]);
    assert_eq!(stage.play("again").await.outcome, Outcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn no_tool_runs_for_an_answer_that_broke_off() {
    let cut =
        ScriptedAnswer::calls(&[("bash", json!({"command": "touch ran"}))]).then_fails(Error::Network("reset".into()));
    let mut stage = Stage::new([cut, ScriptedAnswer::text("never mind")]);
    let played = stage.play("go").await;
    assert!(!stage.dir.path().join("work/ran").exists());
    assert_eq!(played.outcome, Outcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_every_wait() {
    let ask = [("bash", "*", Action::Ask)];
    let command = |command: &str| ScriptedAnswer::calls(&[("bash", json!({ "command": command }))]);
    let refused = ScriptedAnswer::fails(Error::Network("reset".into()));
    let table: [(&str, Stage, &'static str); 6] = [
        ("the stream", Stage::new([ScriptedAnswer::text("one").then_hangs()]), "one"),
        ("the backoff", Stage::new([ScriptedAnswer::fails(Error::Network("reset".into()))]), "retry"),
        ("the question", Stage::new([command("echo hi")]).rules(&ask), "ask"),
        ("the tool", Stage::new([command("sleep 600")]), "running"),
        ("the summary", Stage::new([full(), ScriptedAnswer::silence()]), "InProgress"),
        ("the summary's backoff", Stage::new([full(), refused]), "retry"),
    ];
    for (name, mut stage, at) in table {
        stage.cancel_at = Some(at);
        let played = stage.play("go").await;
        assert_eq!(played.outcome, Outcome::Cancelled, "{name}");
        played.is_settled(name);
        for call in played.history.messages.iter().flat_map(Message::calls) {
            let done = call.tool == "list";
            assert_eq!(matches!(call.state, CallState::Failed { .. }), !done, "{name}: {:?}", call.state);
        }
        assert!(played.history.messages.iter().all(|m| m.compaction().is_none()), "{name}");
        assert_eq!(stage.model.left(), 0, "{name}");
        // The next prompt works.
        stage.cancel_at = None;
        stage.cancelled = CancellationToken::new();
        let summary = name.starts_with("the summary").then(|| ScriptedAnswer::text("## Objective"));
        stage.model = Scripted::new(summary.into_iter().chain([ScriptedAnswer::text("fine")]));
        assert_eq!(stage.play("and now?").await.outcome, Outcome::Ended, "{name}");
    }
}

// Real time: a paused clock runs ahead of a real process, into its time limit.
#[tokio::test]
async fn answers_to_questions_decide() {
    let ask = [("bash", "*", Action::Ask)];
    let scripts = || [ScriptedAnswer::calls(&[("bash", json!({"command": "echo hi"}))]), ScriptedAnswer::text("ok")];
    let mut once = Stage::new(scripts()).rules(&ask).answering([PermissionReply::Once]);
    assert!(once.play("go").await.events.contains(&"done: hi".to_owned()));
    let mut no = Stage::new(scripts()).rules(&ask).answering([PermissionReply::No(Denial::Rejected)]);
    let played = no.play("go").await;
    assert_eq!((played.outcome, no.model.left()), (Outcome::Ended, 1), "a rejection ends the turn");
    let words = Denial::Corrected("use ls".into());
    let mut corrected = Stage::new(scripts()).rules(&ask).answering([PermissionReply::No(words)]);
    let played = corrected.play("go").await;
    assert_eq!((played.outcome, corrected.model.left()), (Outcome::Ended, 0), "words go to the model");
    assert!(played.events.iter().any(|e| e.contains("use ls")), "{:?}", played.events);
    let mut denied = Stage::new(scripts()).rules(&[("bash", "*", Action::Allow), ("bash", "echo *", Action::Deny)]);
    let played = denied.play("go").await;
    assert!(played.events.iter().any(|e| e.starts_with("failed: Not allowed")), "{:?}", played.events);
    assert_eq!(denied.model.left(), 0, "a denial by rule goes to the model");
}

#[tokio::test(start_paused = true)]
async fn the_third_identical_call_asks() {
    let call = || ScriptedAnswer::calls(&[("list", json!({}))]);
    let mut stage =
        Stage::new([call(), call(), call(), ScriptedAnswer::text("enough")]).answering([PermissionReply::Once]);
    let played = stage.play("loop").await;
    assert_eq!(played.events.iter().filter(|e| e.starts_with("ask")).count(), 1, "{:?}", played.events);
    assert_eq!(played.outcome, Outcome::Ended);
}

#[tokio::test(start_paused = true)]
async fn the_step_limit_is_hard() {
    let call = |n: u32| ScriptedAnswer::calls(&[("list", json!({ "path": format!("{n}") }))]);
    let mut stage = Stage::new([call(0), ScriptedAnswer::text("had to stop")]);
    stage.settings.agents =
        vec![crate::config::settings::AgentEntry { name: "build".into(), steps: Some(2), ..Default::default() }];
    let played = stage.play("go").await;
    assert_eq!(played.outcome, Outcome::Ended);
    let last = &stage.model.asked()[1];
    assert!(last.tools.is_empty(), "no tools on the last step");
    assert_eq!(stage.model.left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_model_is_asked_once_more_and_never_ends_in_silence() {
    let nothing = || ScriptedAnswer::from_iter([Delta::Finish(Finish::Stop)]);
    let mut stage = Stage::new([nothing(), nothing()]);
    let played = stage.play("hi").await;
    assert_eq!(played.outcome, Outcome::Ended);
    assert!(played.events.last().is_some_and(|e| e.starts_with("text: (The model")), "{:?}", played.events);
    let mut stage = Stage::new([nothing(), ScriptedAnswer::text("here I am")]);
    assert!(stage.play("hi").await.events.contains(&"text: here I am".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn stop_reasons() {
    let ends = |finish| ScriptedAnswer::from_iter([Delta::Text { index: 0, text: "x".into() }, Delta::Finish(finish)]);
    for (finish, outcome) in [
        (Finish::Length, Outcome::MaxTokens),
        (Finish::Refusal, Outcome::Refused),
        (Finish::Other, Outcome::Ended),
        (Finish::Stop, Outcome::Ended),
    ] {
        // What is cut off at the output limit goes on at first, and so does what stops for no known reason.
        let answers = match finish {
            Finish::Length => 3,
            Finish::Other => 2,
            _ => 1,
        };
        let mut stage = Stage::new((0..answers).map(|_| ends(finish)));
        assert_eq!(stage.play("hi").await.outcome, outcome, "{finish:?}");
    }
}

/// What a limit or a filter cut off is answered and not run, what was complete before it runs, and the turn goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_off_is_not_run() {
    let list = |path: &str| ("list", json!({ "path": path }));
    let words = Delta::Text { index: 9, text: "and so on".into() };
    // Whether the first and the second call have run.
    let table = [
        (ScriptedAnswer::calls(&[list(".")]), vec![false]),
        (ScriptedAnswer::calls(&[list("."), list("src")]), vec![true, false]),
        (ScriptedAnswer::calls(&[list(".")]).then(words), vec![true]),
    ];
    for finish in [Finish::Length, Finish::Refusal] {
        for (script, ran) in table.clone() {
            let mut stage = Stage::new([script.then_ends(finish), ScriptedAnswer::text("done")]);
            std::fs::create_dir(stage.dir.path().join("src")).unwrap();
            let played = stage.play("go").await;
            assert_eq!(played.outcome, Outcome::Ended);
            let calls: Vec<&crate::message::Call> = played.history.messages.iter().flat_map(Message::calls).collect();
            let found: Vec<bool> = calls.iter().map(|call| matches!(call.state, CallState::Completed(_))).collect();
            assert_eq!(found, ran, "{finish:?} {calls:?}");
            for call in calls {
                if let CallState::Failed { error, .. } = &call.state {
                    assert!(error.contains("not run"), "{error}");
                }
            }
            paired(&stage.model.asked());
        }
    }
}

/// A step with a story and a call, after which the window is full.
pub(crate) fn full() -> ScriptedAnswer {
    ScriptedAnswer::from_iter([
        Delta::Text { index: 1, text: "Once upon a time. ".repeat(200) },
        Delta::Call { index: 0, id: None, name: "list".into() },
        Delta::Usage(Usage { input: 97_000, ..Usage::default() }),
        Delta::Finish(Finish::ToolCalls),
    ])
}

/// A step that lists the directory, and fills the window as far as `tokens`.
fn filling(tokens: u64, path: &str) -> ScriptedAnswer {
    ScriptedAnswer::from_iter([
        Delta::Call { index: 0, id: None, name: "list".into() },
        Delta::Arguments { index: 0, json: json!({ "path": path }).to_string() },
        Delta::Usage(Usage { input: tokens, ..Usage::default() }),
        Delta::Finish(Finish::ToolCalls),
    ])
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_asked_for_again_and_then_the_turn_fails_with_the_history_as_it_was() {
    let bad = [
        ScriptedAnswer::text(" "),
        ScriptedAnswer::calls(&[("bash", json!({}))]),
        ScriptedAnswer::text(&"x".repeat(400_000)),
        ScriptedAnswer::from_iter([Delta::Text { index: 0, text: "a".into() }, Delta::Finish(Finish::Length)]),
        ScriptedAnswer::from_iter([Delta::Text { index: 0, text: "a".into() }, Delta::Finish(Finish::Refusal)]),
    ];
    for script in bad {
        let tries = [script.clone(), script.clone(), script];
        let mut stage = Stage::new([filling(97_000, ".")].into_iter().chain(tries));
        let played = stage.play("go").await;
        assert!(
            matches!(&played.outcome, Outcome::Failed(fault) if fault.message.contains("is unchanged")),
            "{:?}",
            played.outcome
        );
        assert_eq!((stage.model.left(), played.history.messages.len()), (0, 2), "{:?}", played.events);
        assert!(played.events.last().is_some_and(|e| e.contains("Failed")), "{:?}", played.events);
    }
}

/// It would be too late to say that there was little to summarise; but it must not be a burden.
#[tokio::test(start_paused = true)]
async fn a_summary_that_was_asked_for_may_be_longer_than_what_it_replaces_but_not_long() {
    for (words, good) in
        [("## Objective\n\n- to say hello, and nothing else that anybody knows of", true), (LONG, false)]
    {
        let words = words.repeat(if good { 1 } else { 1_000 });
        let mut stage = Stage::new([ScriptedAnswer::text("hello"), ScriptedAnswer::text(&words)]);
        let before = stage.play("hi").await.history;
        let played = stage.play_with("/compact", |_, mut history, scope| {
            Box::pin(async move {
                // The order itself is no message.
                history.messages.pop();
                let outcome = run::summarise(&mut history, &scope, None).await;
                (history, outcome)
            })
        });
        let played = played.await;
        assert_eq!(played.outcome == Outcome::Ended, good, "{:?}", played.outcome);
        assert_eq!(played.history == before, !good);
    }
}

const LONG: &str = "and so on and on ";

#[tokio::test(start_paused = true)]
async fn a_summary_that_does_not_fit_is_asked_for_with_less() {
    let overflow = || ScriptedAnswer::fails(Error::ContextOverflow("too long".into()));
    let long = ScriptedAnswer::text(&"long story ".repeat(40_000));
    let mut stage =
        Stage::new([long, overflow(), overflow(), ScriptedAnswer::text("## Objective"), ScriptedAnswer::text("on")]);
    stage.play("tell").await;
    let played = stage.play("go on").await;
    assert_eq!(played.outcome, Outcome::Ended);
    let asked = stage.model.asked();
    let size = |n: usize| super::size::request(&asked[n]);
    assert!(size(3) < size(2) * 2 / 3, "{} {}", size(2), size(3));
    let mut stage = Stage::new([
        ScriptedAnswer::text(&"long story ".repeat(40_000)),
        overflow(),
        overflow(),
        overflow(),
        overflow(),
    ]);
    stage.play("tell").await;
    let Outcome::Failed(fault) = stage.play("go on").await.outcome else { panic!("a fault") };
    assert_eq!((fault.kind, stage.model.left()), (FaultKind::ContextOverflow, 0), "{}", fault.message);
}

#[tokio::test(start_paused = true)]
async fn old_output_goes_before_anything_is_summarised() {
    let large = |n: u32| ScriptedAnswer::calls(&[("bash", json!({ "command": format!("printf %040000d {n}") }))]);
    let mut stage = Stage::new((0..8).map(large).chain([ScriptedAnswer::text("printed")]));
    tokio::time::resume();
    stage.play("print").await;
    let cleared = |played: &Played| {
        let calls = played.history.messages.iter().flat_map(Message::calls);
        calls.filter(|call| matches!(&call.state, CallState::Completed(done) if done.cleared.is_some())).count()
    };
    for (n, expected) in [(1, 0), (2, 5), (3, 5)] {
        stage.model = Scripted::new([ScriptedAnswer::text("yes")]);
        let played = stage.play("and?").await;
        assert_eq!(cleared(&played), expected, "after {n} more turns");
    }
    stage.model = Scripted::new([ScriptedAnswer::text("yes")]);
    stage.play("and?").await;
    let text = format!("{:?}", stage.model.asked()[0].messages);
    assert_eq!(text.matches("[Old tool result content cleared]").count(), 5);
}

#[tokio::test(start_paused = true)]
async fn who_wants_no_compaction_gets_none() {
    let mut stage = Stage::new([filling(97_000, "."), ScriptedAnswer::text("done")]);
    stage.settings.compaction.auto = false;
    assert_eq!(stage.play("go").await.outcome, Outcome::Ended);
    stage.model = Scripted::new([ScriptedAnswer::fails(Error::ContextOverflow("too long".into()))]);
    assert!(matches!(stage.play("on").await.outcome, Outcome::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn words_meanwhile_are_heard_between_two_steps() {
    let look = || ScriptedAnswer::calls(&[("list", json!({}))]);
    let mut stage = Stage::new([look(), ScriptedAnswer::text("done")]);
    stage.spoken = watch::channel(true).1;
    let played = stage.play("go").await;
    assert_eq!((played.outcome, stage.model.left()), (Outcome::Steered, 1), "after the step, with its results");
    let mut stage = Stage::new([ScriptedAnswer::text("done")]);
    stage.spoken = watch::channel(true).1;
    assert_eq!(stage.play("go").await.outcome, Outcome::Ended, "an answer that is complete is the end");
}

#[tokio::test(start_paused = true)]
async fn what_was_interrupted_is_said_once() {
    let mut stage = Stage::new([ScriptedAnswer::calls(&[("bash", json!({"command": "sleep 600"}))])]);
    stage.cancel_at = Some("running");
    stage.play("wait").await;
    stage.cancel_at = None;
    stage.cancelled = CancellationToken::new();
    stage.model = Scripted::new([ScriptedAnswer::text("fine"), ScriptedAnswer::text("fine")]);
    stage.play("and now?").await;
    stage.play("and then?").await;
    let asked = stage.model.asked();
    let last = |n: usize| format!("{:?}", asked[n].messages.last());
    assert!(last(0).contains("was interrupted") && last(0).contains("sleep 600"), "{}", last(0));
    assert!(!last(1).contains("was interrupted"), "{}", last(1));
}

/// In real time: the disk is waited for.
#[tokio::test]
async fn what_was_shown_is_kept_although_the_model_falls_silent() {
    let mut stage = Stage::new([ScriptedAnswer::text("half an answer").then_hangs()]);
    let played = stage.play_with("go", |environment, history, scope| {
        Box::pin(async move {
            let (store, session) = (Store::start(&environment.dirs.data), scope.session.clone());
            let kept = async {
                let says = |stored: &StoredSession| {
                    stored.messages.last().is_some_and(|m| m.visible_text() == "half an answer")
                };
                while !store.peek(&session).await.is_ok_and(|stored| says(&stored)) {
                    tokio::time::sleep(Duration::from_millis(10)).await; // looks again
                }
            };
            // As if the process had been killed then.
            let done = tokio::select! {
                done = run::run(history, scope) => done,
                kept = tokio::time::timeout(Duration::from_secs(20), kept) => {
                    let outcome = if kept.is_ok() { Outcome::Cancelled } else { Outcome::Ended };
                    (History::default(), outcome)
                }
            };
            store.stop().await;
            done
        })
    });
    assert_eq!(played.await.outcome, Outcome::Cancelled);
}

/// However a turn ends, nothing of it is left open, and the next one works.
#[tokio::test(start_paused = true)]
async fn every_exit_leaves_a_session_that_goes_on() {
    let call = || ScriptedAnswer::calls(&[("list", json!({})), ("nosuch", json!({}))]);
    let end = |finish| ScriptedAnswer::from_iter([Delta::Text { index: 0, text: "x".into() }, Delta::Finish(finish)]);
    let fails = |error: Error| ScriptedAnswer::fails(error);
    let network = || fails(Error::Network("reset".into()));
    let overflow = || fails(Error::ContextOverflow("too long".into()));
    let steps = |stage: Stage, most: u32| {
        let mut stage = stage;
        let entry =
            crate::config::settings::AgentEntry { name: "build".into(), steps: Some(most), ..Default::default() };
        stage.settings.agents = vec![entry];
        stage
    };
    let spoken = |mut stage: Stage| {
        stage.spoken = watch::channel(true).1;
        stage
    };
    let failed = |kind: FaultKind| Fault { kind, message: String::new(), advice: None };
    let ask = [("list", "*", Action::Ask)];
    let no = || [PermissionReply::No(Denial::Rejected)];
    let table: Vec<(&str, Stage, Outcome)> = vec![
        ("done", Stage::new([call(), ScriptedAnswer::text("done")]), Outcome::Ended),
        ("cancelled before it began", Stage::new([]), Outcome::Cancelled),
        ("refused", Stage::new([call(), end(Finish::Refusal)]), Outcome::Refused),
        ("output limit, once", Stage::new([call(), end(Finish::Length), ScriptedAnswer::text("done")]), Outcome::Ended),
        (
            "output limit",
            Stage::new(std::iter::once(call()).chain((0..3).map(|_| end(Finish::Length)))),
            Outcome::MaxTokens,
        ),
        (
            "output limit in every call",
            Stage::new((0..3).map(|_| call().then_ends(Finish::Length))),
            Outcome::MaxTokens,
        ),
        ("a filter in every call", Stage::new((0..3).map(|_| call().then_ends(Finish::Refusal))), Outcome::Refused),
        ("rejected", Stage::new([call()]).rules(&ask).answering(no()), Outcome::Ended),
        ("steered", spoken(Stage::new([call()])), Outcome::Steered),
        ("step limit", steps(Stage::new([call(), call()]), 2), Outcome::StepLimit),
        ("wrong key", Stage::new([call(), fails(Error::Auth("no".into()))]), Outcome::Failed(failed(FaultKind::Auth))),
        ("retries", Stage::new((0..6).map(|_| network())), Outcome::Failed(failed(FaultKind::Provider))),
        (
            "retries half-way",
            Stage::new((0..6).map(|_| call().then_fails(Error::Network("reset".into())))),
            Outcome::Failed(failed(FaultKind::Provider)),
        ),
        (
            "overflow, and the summary does not help",
            Stage::new([call(), overflow(), ScriptedAnswer::text("## Objective"), overflow()]),
            Outcome::Failed(failed(FaultKind::ContextOverflow)),
        ),
        (
            "a summary that fails",
            Stage::new([full(), end(Finish::Refusal), end(Finish::Refusal), end(Finish::Refusal)]),
            Outcome::Failed(failed(FaultKind::Provider)),
        ),
    ];
    for (name, mut stage, expected) in table {
        if expected == Outcome::Cancelled {
            stage.cancelled.cancel();
        }
        let played = stage.play("go").await;
        match (&played.outcome, &expected) {
            (Outcome::Failed(found), Outcome::Failed(expected)) => assert_eq!(found.kind, expected.kind, "{name}"),
            (found, expected) => assert_eq!(found, expected, "{name}"),
        }
        assert_eq!(stage.model.left(), 0, "{name}");
        played.is_settled(name);
        stage.cancelled = CancellationToken::new();
        stage.spoken = watch::channel(false).1;
        // Where the window is full, the first of these is a summary.
        stage.model = Scripted::new([ScriptedAnswer::text("## Objective"), ScriptedAnswer::text("fine")]);
        let played = stage.play("and now?").await;
        assert_eq!(played.outcome, Outcome::Ended, "{name}");
        played.is_settled(name);
        paired(&stage.model.asked());
    }
}
