//! A fixture for tests of tools: a project, a directory outside it, a fake editor.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::scratch;
use crate::{
    AnyTool, CallContext, ClientContext, Failure, FileCapabilities, ProjectContext, SessionContext,
    ToolContext, ToolOutput,
};
use base::channel::Receiver;
use base::environment::Environment;
use base::id::{CallId, SessionId};
use base::text::mark::ReminderMark;
use base::worktree::Worktree;
use config::settings::OutputLimits;
use events::{EventSender, NotWritten, TurnMessage};
use permission::{AccessRequest, PermissionContext, Policy, rule};

pub(super) struct TestProject {
    _dir: TempDir,
    root: PathBuf,
}

/// The fake editor's reaction to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EditorReply {
    Saves,
    Refuses,
    Declines,
    /// Reports success without writing.
    Lies,
    Formats,
}

#[derive(Clone, Default)]
pub(super) struct FakeEditor {
    buffers: Arc<Mutex<HashMap<PathBuf, String>>>,
    saved: Arc<Mutex<usize>>,
    read: Arc<Mutex<usize>>,
}

impl FakeEditor {
    pub(super) fn type_into(&self, path: &Path, text: &str) {
        self.buffers
            .lock()
            .unwrap()
            .insert(path.into(), text.into());
    }

    pub(super) fn saved(&self) -> usize {
        *self.saved.lock().unwrap()
    }

    /// Returns the number of files that were read through it.
    pub(super) fn read(&self) -> usize {
        *self.read.lock().unwrap()
    }

    fn answer(&self, up: TurnMessage, way: EditorReply) {
        match up {
            TurnMessage::Read(read) => {
                *self.read.lock().unwrap() += 1;
                let buffer = self.buffers.lock().unwrap().get(&read.path).cloned();
                let text = buffer
                    .or_else(|| std::fs::read_to_string(&read.path).ok())
                    .unwrap_or_default();
                read.reply.send(Ok(text)).ok();
            }
            TurnMessage::Write(write) => {
                let answer = match way {
                    EditorReply::Refuses => Err(NotWritten::Unknown),
                    EditorReply::Declines => Err(NotWritten::Refused("the file is locked".into())),
                    EditorReply::Lies => Ok(()),
                    EditorReply::Saves | EditorReply::Formats => {
                        let tail = if way == EditorReply::Formats {
                            "// formatted\n"
                        } else {
                            ""
                        };
                        std::fs::write(&write.path, format!("{}{tail}", write.text)).unwrap();
                        self.buffers.lock().unwrap().remove(&write.path);
                        *self.saved.lock().unwrap() += 1;
                        Ok(())
                    }
                };
                write.reply.send(answer).ok();
            }
            _ => {}
        }
    }
}

impl TestProject {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["project", "outside", "home"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let fixture = Self { _dir: dir, root };
        std::fs::create_dir(fixture.cwd().join(".git")).unwrap();
        fixture
    }

    pub(super) fn cwd(&self) -> PathBuf {
        self.root.join("project")
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(super) fn write(&self, path: &str, text: impl AsRef<str>) {
        self.write_bytes(path, text.as_ref().as_bytes());
    }

    pub(super) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.cwd().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.cwd().join(path)).unwrap()
    }

    /// Returns a context whose events are dropped.
    pub(super) fn context(&self) -> ToolContext {
        self.listened().0
    }

    pub(super) fn listened(&self) -> (ToolContext, Receiver<TurnMessage>) {
        let vars = BTreeMap::from([
            ("HOME".to_owned(), self.home().display().to_string()),
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ]);
        let worktree = Arc::new(Worktree::find(&self.cwd(), &[], None));
        let environment = Environment::from_vars(vars);
        let rules = rule::base(
            &environment.dirs.data,
            Path::new("/scratch"),
            &[] as &[PathBuf],
        );
        let context = PermissionContext::new(&environment, &worktree, &self.cwd());
        let policy = Policy {
            rules,
            context,
            ..Policy::default()
        };
        listened(environment, worktree, policy)
    }

    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    pub(super) fn with_editor(&self, way: EditorReply) -> (ToolContext, FakeEditor) {
        let (mut context, mut up) = self.listened();
        context.client.files = FileCapabilities {
            read: true,
            write: true,
        };
        let editor = FakeEditor::default();
        let answering = editor.clone();
        tokio::spawn(async move {
            while let Some(up) = up.recv().await {
                answering.answer(up, way);
            }
        });
        (context, editor)
    }
}

/// Returns a context with this policy, whose events are dropped.
pub(super) fn context_in(policy: Policy) -> ToolContext {
    let PermissionContext { root, home, .. } = &policy.context;
    let home = home.as_ref().unwrap().display().to_string();
    let environment = Environment::from_vars(BTreeMap::from([("HOME".to_owned(), home)]));
    let worktree = Worktree {
        root: root.clone(),
        git: true,
        extra: vec![],
    };
    listened(environment, Arc::new(worktree), policy).0
}

fn listened(
    environment: Environment,
    worktree: Arc<Worktree>,
    mut policy: Policy,
) -> (ToolContext, Receiver<TurnMessage>) {
    let (event_sender, up) = EventSender::new();
    let id = SessionId::new("ses_test");
    let scratch = || scratch::directory(&environment, id.as_str());
    policy.context.scratch_dir.get_or_insert_with(scratch);
    let context = ToolContext {
        call: CallContext {
            id: CallId::new(format!("call_{}", policy.context.cwd.display())),
            message: None,
            order_note: None,
            agent: "build".into(),
            can_explore: false,
            variables: Vec::new(),
            facts: events::LiveFacts::default(),
            instructions: Arc::default(),
            write_observer: None,
            edit_observer: None,
            analysis: Default::default(),
            trace: None,
        },
        session: Arc::new(SessionContext {
            id,
            mark: ReminderMark::default(),
            seen: Arc::default(),
            todos: Arc::default(),
            jobs: Arc::default(),
            formatters: Arc::default(),
            instruction_problems: Arc::default(),
            language: Arc::new(lsp::SessionServers::new(&Arc::default())),
            exec: Arc::default(),
        }),
        project: Arc::new(ProjectContext {
            cwd: policy.context.cwd.clone(),
            worktree,
            environment,
            settings: Arc::default(),
        }),
        client: ClientContext {
            event_sender,
            session_requests: tokio::sync::mpsc::channel(1).0,
            files: FileCapabilities::default(),
        },
        policy: Arc::new(policy),
        sandbox_choice: crate::process::sandboxing::SandboxChoice::none(&Environment::from_vars(
            BTreeMap::new(),
        )),
        cancelled: CancellationToken::new(),
        limits: OutputLimits::default(),
    };
    (context, up)
}

/// Prepares and runs a call as if everything were allowed, and records its result as seen by the
/// model.
pub(super) async fn call(
    tool: &Arc<dyn AnyTool>,
    input: Value,
    context: &ToolContext,
) -> Result<(Vec<AccessRequest>, ToolOutput), Failure> {
    let prepared = tool.prepare(input, context).await?;
    let output = (prepared.run)(context.clone()).await?;
    context.session.seen.record_shown(&output.text);
    Ok((prepared.requests, output))
}
