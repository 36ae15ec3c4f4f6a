//! The fixture of turn tests: a scripted model, a temporary store, and the results of a turn.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::grants::Grants;
use crate::turn::left_out_tools::LeftOutNotice;
use crate::turn::live_denies::DenyWatcher;
use crate::turn::models::Models;
use crate::turn::record::Recorder;
use crate::turn::{
    CommonContext, History, Permissions, SessionChoices, SessionContext, SessionProject,
    SystemPromptParts, TurnContext, TurnOutcome, UnrecordedCost, recover, run,
};
use base::approvals::Approvals;
use base::environment::Environment;
use base::id::{CallId, SessionId};
use base::text::mark::ReminderMark;
use base::worktree::Worktree;
use config::settings::Settings;
use events::{Event, EventSender, PermissionReply, Progress, Status, TurnMessage};
use permission::account::AccountAccess;
use permission::{Action, Rules};
use project::agent::registry::Agents;
use project::system::Surroundings;
use providers::Delta;
use providers::catalog::Catalog;
use providers::editor_endpoints::EditorEndpoints;
use providers::http::HttpClient;
use providers::registry::{Registry, RegistrySources};
use providers::request;
use providers::scripted::{ScriptedAnswer, ScriptedProvider};
use snapshot::Tracker;
use store::{Record, Store, StoredSession};
use tools::ProjectContext;
use transcript::{CallState, Content, Finish, Message, ModelRef, Role, Text, Usage, User};

/// The bundled catalogue, read once because it is large.
static CATALOG: OnceLock<Arc<Catalog>> = OnceLock::new();

/// A session with a scripted model in a directory of its own.
pub(crate) struct Fixture {
    pub(super) dir: tempfile::TempDir,
    pub(crate) model: Arc<ScriptedProvider>,
    pub(crate) settings: Settings,
    history: History,
    pub(crate) cancelled: CancellationToken,
    answers: Vec<PermissionReply>,
    pub(super) has_steering_message: watch::Receiver<bool>,
    mark: ReminderMark,
    /// Cancels the turn at the first event that contains this text.
    pub(crate) cancel_at: Option<&'static str>,
    /// True if file changes are recorded.
    pub(crate) tracked: bool,
    /// True if a user is present to answer questions.
    pub(crate) attended: bool,
}

/// Returns a directory in memory if there is one, because flushes are slow on a disk and many turns
/// are played.
fn fast_directory() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    let usable = tempfile::tempfile_in(memory).is_ok();
    if usable {
        memory.into()
    } else {
        std::env::temp_dir()
    }
}

/// The results of a turn.
pub(crate) struct Played {
    pub(crate) events: Vec<String>,
    pub(crate) outcome: TurnOutcome,
    pub(crate) history: History,
    /// Calls that were announced but did not end.
    pub(crate) open: Vec<CallId>,
    /// The number of unanswered questions.
    pub(crate) open_questions: usize,
    /// The stored sessions of the turn and of its subagents.
    pub(crate) stored: Vec<StoredSession>,
}

impl Played {
    /// Asserts that no state is open: every call has ended, in the client, in memory and in the
    /// store, which has the same history as the memory; no question is open.
    pub(crate) fn assert_complete(&self, name: &str) {
        assert_eq!(
            (&self.open, self.open_questions),
            (&vec![], 0),
            "{name}: {:#?}",
            self.events
        );
        let over =
            |state: &CallState| matches!(state, CallState::Completed(_) | CallState::Failed { .. });
        for call in self.history.messages.iter().flat_map(Message::calls) {
            assert!(over(&call.state), "{name}: {call:?}");
        }
        for (n, stored) in self.stored.iter().enumerate() {
            let mut history = History::from(stored.messages.clone());
            assert_eq!(
                recover::recover(&mut history),
                vec![],
                "{name}: session {n}"
            );
            assert_eq!(stored.damage, Vec::<String>::new(), "{name}: session {n}");
            for compaction in history.messages.iter().filter(|m| m.compaction().is_some()) {
                let is_its_summary = |m: &Message| {
                    m.is_summary() && m.assistant().is_some_and(|a| a.parent == compaction.id)
                };
                assert!(
                    history.messages.iter().any(is_its_summary),
                    "{name}: a compaction without a summary"
                );
            }
        }
        let mut stored = History::from(self.stored[0].messages.clone());
        crate::turn::evict::evict_stored(&mut stored);
        for message in &mut stored.messages {
            // An edit that was announced but changed no file.
            message.parts.retain(
                |part| !matches!(&part.content, Content::Patch { files, .. } if files.is_empty()),
            );
        }
        let mut here = History::from(self.history.messages.clone());
        here.messages
            .drain(..here.messages.len() - stored.messages.len());
        assert_eq!(stored, here, "{name}");
    }
}

/// Asserts that every call of every request is followed by exactly one result.
pub(crate) fn paired(asked: &[Arc<request::Request>]) {
    for request in asked {
        for (n, message) in request.messages.iter().enumerate() {
            let request::ModelMessage::Assistant(outputs) = message else {
                continue;
            };
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
            assert_eq!(
                calls,
                results.iter().map(|result| &result.id).collect::<Vec<_>>()
            );
        }
    }
}

impl Fixture {
    pub(crate) fn new(scripts: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self {
            dir: tempfile::tempdir_in(fast_directory()).unwrap(),
            model: ScriptedProvider::new(scripts),
            settings: Settings::default(),
            history: History::default(),
            cancelled: CancellationToken::new(),
            answers: Vec::new(),
            has_steering_message: watch::channel(false).1,
            mark: ReminderMark::default(),
            cancel_at: None,
            tracked: false,
            attended: true,
        }
    }

    /// Adds rules after the built-in ones.
    pub(crate) fn rules(mut self, rules: &[(&str, &str, Action)]) -> Self {
        self.settings.permission = Rules::built_in(rules);
        self
    }

    pub(crate) fn answering(mut self, answers: impl IntoIterator<Item = PermissionReply>) -> Self {
        self.answers = answers.into_iter().collect();
        self
    }

    pub(crate) async fn play(&mut self, prompt: &str) -> Played {
        self.play_with(prompt, |_, history, turn| Box::pin(run::run(history, turn)))
            .await
    }

    /// Returns the context of a turn, without MCP servers, skills and instructions.
    async fn context(
        &self,
        environment: Environment,
        cwd: &Path,
        store: &Store,
        event_sender: EventSender,
    ) -> TurnContext {
        let worktree = Arc::new(Worktree {
            root: cwd.to_owned(),
            git: false,
            extra: vec![],
        });
        let session = SessionId::new(environment.fresh(SessionId::PREFIX));
        let settings = Arc::new(self.settings.clone());
        let registry = Registry::new(RegistrySources {
            configured: vec![],
            local: vec![],
            catalog: CATALOG.get_or_init(|| Arc::new(Catalog::bundled())),
            disabled: &[],
            enabled: None,
            includes_keyless: false,
            auth: &Default::default(),
            environment: &environment,
            client: Arc::new(HttpClient::new(&environment)),
            public_client: Arc::new(HttpClient::new(&environment)),
            editor: &EditorEndpoints::default(),
            offline: self.model.clone(),
        });
        let (agents, _) = Agents::build(&settings, &environment, &worktree);
        let common = CommonContext {
            environment: environment.clone(),
            additional_directories: Arc::new([]),
            tools: Arc::new(tools::registry::ToolRegistry::built_in()),
            servers: {
                let client = Arc::new(HttpClient::new(&environment));
                Arc::new(mcp::McpServers::new(
                    (cwd, &[]),
                    &environment,
                    &settings,
                    client,
                    mcp::McpSessionOptions::default(),
                ))
            },
            extensions: Arc::default(),
            snapshots: self
                .tracked
                .then(|| Arc::new(Tracker::new(&environment.dirs.data, cwd, None))),
            refused_tools: Arc::default(),
            file_capabilities: tools::FileCapabilities::default(),
            shows_subagents: false,
            shows_notices: true,
            system_prompt_addition: None,
            exit_requested: CancellationToken::new(),
        };
        let context = SessionContext {
            common: Arc::new(common),
            id: session.clone(),
            mark: self.mark.clone(),
            depth: 0,
            permissions: Permissions {
                grants: Grants::open("project", &environment, store).await,
                inherited: Rules::default(),
                ask_rules: Rules::default(),
                sandbox_choice: tools::process::sandboxing::SandboxChoice::none(&environment),
                attended: self.attended,
                account: AccountAccess::default(),
                chosen: watch::channel(SessionChoices::of("build", None)).1,
                min_approvals: Approvals::Sandboxed,
            },
            shared: Arc::new(tools::SessionContext {
                id: session.clone(),
                mark: self.mark.clone(),
                seen: Arc::default(),
                todos: Arc::new(tools::todos::Todos::new(vec![])),
                jobs: Arc::default(),
                formatters: Arc::default(),
                instruction_problems: Arc::default(),
                language: Arc::new(lsp::SessionServers::new(&Arc::default())),
                exec: Arc::default(),
            }),
            recorder: Recorder::new(store.clone(), session),
            has_steering_message: self.has_steering_message.clone(),
            left_out_tools: LeftOutNotice::default(),
            late_changes: Arc::default(),
            unrecorded_cost: UnrecordedCost::default(),
            child_changes: Arc::default(),
            parent_changes: None,
        };
        TurnContext {
            session: Arc::new(context),
            project: Arc::new(SessionProject {
                context: Arc::new(ProjectContext {
                    cwd: cwd.to_owned(),
                    worktree: worktree.clone(),
                    environment: environment.clone(),
                    settings,
                }),
                agents: Arc::new(agents),
                deny_watcher: Arc::new(DenyWatcher::new(
                    Arc::default(),
                    Arc::default(),
                    Vec::new(),
                )),
                models: Models::new(watch::channel(Arc::new(registry)).1, None, Arc::default()),
                system_prompt_parts: Arc::new(SystemPromptParts {
                    surroundings: Surroundings::new(cwd, &worktree, environment.now()),
                    references: vec![],
                    instructions: vec![],
                    skills: Arc::default(),
                }),
            }),
            choice: watch::channel(SessionChoices {
                default_steer: true,
                ..SessionChoices::of("build", None)
            })
            .1,
            cancelled: self.cancelled.clone(),
            event_sender,
            session_requests: mpsc::channel(1).0,
            budget: Arc::default(),
            trace: None,
        }
    }

    /// Plays a turn with the function `run`.
    pub(crate) async fn play_with(
        &mut self,
        prompt: &str,
        run: impl FnOnce(
            Environment,
            History,
            TurnContext,
        ) -> Pin<Box<dyn Future<Output = (History, TurnOutcome)> + Send>>,
    ) -> Played {
        let home = self.dir.path().display().to_string();
        let environment = Environment::from_vars([("HOME".to_owned(), home)].into());
        let cwd = self.dir.path().join("work");
        std::fs::create_dir_all(&cwd).unwrap();
        let cwd = std::fs::canonicalize(cwd).unwrap();
        let store = Store::start(&environment.dirs.data);
        let (event_sender, events) = EventSender::narrow();
        let turn = self.context(environment, &cwd, &store, event_sender).await;
        let session = turn.session.id.clone();
        store
            .create(&Record::new(session.clone(), cwd.clone(), turn.now()))
            .await
            .unwrap();
        let mut history = std::mem::take(&mut self.history);
        let content = Content::Text(Text {
            text: prompt.into(),
            ..Text::default()
        });
        let model = ModelRef {
            provider: "offline".into(),
            model: "offline".into(),
            effort: None,
        };
        history.messages.push(Message {
            id: turn.new_message_id(),
            created: turn.now(),
            role: Role::User(User {
                agent: "build".into(),
                model,
            }),
            parts: vec![turn.new_part(content)],
        });
        turn.session
            .recorder
            .store_message(&history.messages[history.messages.len() - 1])
            .await;
        let cancel = (self.cancel_at, self.cancelled.clone(), self.model.clone());
        let watching = watch(events, cancel, std::mem::take(&mut self.answers));
        let environment = turn.session.common.environment.clone();
        let ((history, outcome), watched) = tokio::join!(run(environment, history, turn), watching);
        self.history = history.clone();
        let Watched {
            events,
            open,
            open_questions,
        } = watched;
        let open_questions = open_questions
            .iter()
            .filter(|reply| !reply.is_closed())
            .count();
        let mut stored = Vec::new();
        let mut sessions = vec![session];
        while let Some(session) = sessions.pop() {
            sessions.extend(store.children(&session).await.unwrap());
            stored.push(store.peek(&session).await.unwrap());
        }
        store.stop().await;
        Played {
            events,
            outcome,
            history,
            open,
            open_questions,
            stored,
        }
    }
}

#[derive(Default)]
struct Watched {
    events: Vec<String>,
    open: Vec<CallId>,
    open_questions: Vec<oneshot::Sender<PermissionReply>>,
}

async fn watch(
    mut events: base::channel::Receiver<TurnMessage>,
    (cancel_at, cancelled, model): (Option<&str>, CancellationToken, Arc<ScriptedProvider>),
    answers: Vec<PermissionReply>,
) -> Watched {
    let mut answers = answers.into_iter();
    let mut seen = Watched::default();
    while let Some(message) = events.recv().await {
        let line = match message {
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
                    // Never answered, as by a user who has not decided.
                    None => seen.open_questions.push(ask.reply),
                }
                Some(line)
            }
            other => Some(format!("{other:?}")),
        };
        let Some(line) = line else { continue };
        if cancel_at.is_some_and(|text| line.contains(text)) {
            // Gives the turn time to begin the work that follows the event.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            // If the model is asked next, as for a summary, the store's own thread must
            // have finished first.
            let deadline = Instant::now() + Duration::from_secs(20);
            while model.left() > 0 && Instant::now() < deadline {
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
            (Some(Progress::Pending), _) => {
                format!("call: {}", update.tool.clone().unwrap_or_default())
            }
            (Some(Progress::Running), _) => "running".into(),
            (Some(Progress::Completed), Some(output)) => {
                format!("done: {}", output.lines().next().unwrap_or_default())
            }
            (Some(Progress::Failed), Some(output)) => format!("failed: {output}"),
            (None, Some(output)) => format!("told: {}|", output.replace('\n', " | ")),
            _ => format!("shown: {}", update.title.clone()?),
        },
        Event::Status(Status::Retrying { attempt, cause, .. }) => {
            format!("retry {attempt}: {cause}")
        }
        Event::Usage { .. } | Event::Status(_) => return None,
        other => format!("{other:?}"),
    })
}

/// Returns a step with a long text and a call, which reports a full window.
pub(crate) fn full() -> ScriptedAnswer {
    ScriptedAnswer::from_iter([
        Delta::Text {
            index: 1,
            text: "Once upon a time. ".repeat(200),
        },
        Delta::Call {
            index: 0,
            id: None,
            name: "list".into(),
        },
        Delta::Usage(Usage {
            input: 97_000,
            ..Usage::default()
        }),
        Delta::Finish(Finish::ToolCalls),
    ])
}
