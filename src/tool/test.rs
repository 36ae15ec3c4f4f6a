//! A stage for the tests of tools: a project, a directory outside of it, a pretended editor.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{AnyTool, Context, Failure, Files, Output, seen, todos, truncate};
use crate::channel::Receiver;
use crate::environment::Environment;
use crate::event::{Outlet, Up};
use crate::id::{CallId, SessionId};
use crate::permission::{Need, Place, Policy, rule};
use crate::worktree::Worktree;

pub(super) struct Stage {
    _dir: TempDir,
    root: PathBuf,
}

/// How the pretended editor takes a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Saves,
    Refuses,
    /// Says yes, does nothing.
    Lies,
    Formats,
}

#[derive(Clone, Default)]
pub(super) struct Editor {
    buffers: Arc<Mutex<HashMap<PathBuf, String>>>,
    saved: Arc<Mutex<usize>>,
}

impl Editor {
    pub(super) fn type_into(&self, path: &Path, text: &str) {
        self.buffers.lock().unwrap().insert(path.into(), text.into());
    }

    pub(super) fn saved(&self) -> usize {
        *self.saved.lock().unwrap()
    }

    fn answer(&self, up: Up, way: Way) {
        match up {
            Up::Read(read) => {
                let buffer = self.buffers.lock().unwrap().get(&read.path).cloned();
                let text = buffer.or_else(|| std::fs::read_to_string(&read.path).ok()).unwrap_or_default();
                read.reply.send(Ok(text)).ok();
            }
            Up::Write(write) => {
                let answer = match way {
                    Way::Refuses => Err("not in this workspace".into()),
                    Way::Lies => Ok(()),
                    Way::Saves | Way::Formats => {
                        let tail = if way == Way::Formats { "// formatted\n" } else { "" };
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

impl Stage {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["project", "outside", "home"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let stage = Self { _dir: dir, root };
        std::fs::create_dir(stage.cwd().join(".git")).unwrap();
        stage
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

    /// A context whose events nobody hears.
    pub(super) fn context(&self) -> Context {
        self.listened().0
    }

    pub(super) fn listened(&self) -> (Context, Receiver<Up>) {
        let vars = BTreeMap::from([
            ("HOME".to_owned(), self.home().display().to_string()),
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ]);
        let worktree = Arc::new(Worktree::find(&self.cwd(), &[], None));
        let environment = Environment::from_vars(vars);
        let rules = rule::base(&environment.dirs.data, Path::new("/scratch"), &[] as &[PathBuf]);
        let place = Place::new(&environment, &worktree, &self.cwd());
        let policy = Policy { rules, place, ..Policy::default() };
        listened(environment, worktree, policy)
    }

    pub(super) fn with_editor(&self, way: Way) -> (Context, Editor) {
        let (mut context, mut up) = self.listened();
        context.files = Files { read: true, write: true };
        let editor = Editor::default();
        let answering = editor.clone();
        tokio::spawn(async move {
            while let Some(up) = up.recv().await {
                answering.answer(up, way);
            }
        });
        (context, editor)
    }
}

/// A context where these rules hold; nobody hears its events.
pub(super) fn context_in(policy: Policy) -> Context {
    let Place { root, home, .. } = &policy.place;
    let home = home.as_ref().unwrap().display().to_string();
    let environment = Environment::from_vars(BTreeMap::from([("HOME".to_owned(), home)]));
    let worktree = Worktree { root: root.clone(), git: true, extra: vec![] };
    listened(environment, Arc::new(worktree), policy).0
}

fn listened(environment: Environment, worktree: Arc<Worktree>, policy: Policy) -> (Context, Receiver<Up>) {
    let (outlet, up) = Outlet::new();
    let context = Context {
        session: SessionId::new("ses_test"),
        mark: crate::text::mark::Mark::default(),
        call: CallId::new(format!("call_{}", policy.place.cwd.display())),
        cwd: policy.place.cwd.clone(),
        roots: Arc::new([]),
        worktree,
        environment,
        policy: Arc::new(policy),
        cancelled: CancellationToken::new(),
        outlet,
        errands: tokio::sync::mpsc::channel(1).0,
        seen: Arc::new(seen::Seen::default()),
        todos: Arc::new(todos::Todos::default()),
        jobs: Arc::default(),
        order: None,
        facts: crate::event::Facts::default(),
        claims: Arc::default(),
        files: Files::default(),
        confinement: super::confinement::Confinement::none(&Environment::from_vars(BTreeMap::new())),
        settings: Arc::default(),
        limits: truncate::Limits::default(),
    };
    (context, up)
}

/// Prepares and runs, as if everything were allowed; the model sees what comes of it.
pub(super) async fn call(
    tool: &Arc<dyn AnyTool>,
    input: Value,
    context: &Context,
) -> Result<(Vec<Need>, Output), Failure> {
    let prepared = tool.prepare(input, context).await?;
    let output = (prepared.run)(context.clone()).await?;
    context.seen.show(&output.text);
    Ok((prepared.needs, output))
}
