//! What the operating system forbids a command, beyond what the rules ask about.
//!
//! Rules come first, this is the second lock: it never turns a deny into a yes. What
//! it can do is tried and not assumed (`sandbox/probe.rs`, `sandbox/trial.rs`): a process of ours is put into it and does the
//! forbidden things in a directory of its own; whoever can still do them is in no sandbox. That
//! happens once per process and level, when the first command needs it. A command that is known to change
//! nothing gets Landlock alone, where that keeps everything that can be kept of one that only reads.
//!
//! | mechanism | how | what it leaves open |
//! |---|---|---|
//! | bubblewrap | `bwrap` on `PATH`: everything is mounted read-only but what may be written; the command sees no process but its own; inside, what follows as well | reading; new files below a writable directory, whatever their name |
//! | Landlock with seccomp | our own program, started in between, gives up its capabilities, locks itself up and becomes the command | reading; files below a writable directory cannot be excepted; before Linux 6.12, signals |
//! | Seatbelt | `sandbox-exec` of macOS | reading, signals |
//!
//! `ADJUTANT_SANDBOX_DISABLE=bwrap,landlock,seatbelt` leaves mechanisms out. It can only ever lower
//! what is claimed.

mod bubblewrap;
mod calls;
mod inside;
mod probe;
pub mod process;
mod restrict;
mod seatbelt;
mod trial;
mod writes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::process::Program;
use base::environment::Environment;

pub use calls::applied;
pub use inside::confined;
pub use writes::{PendingWrite, WriteObserver};

/// Names mechanisms that are left out, with commas between them.
pub const DISABLE: &str = "ADJUTANT_SANDBOX_DISABLE";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Nothing but its own short-lived files.
    ReadOnly,
    /// The project and what building it needs.
    WorkspaceWrite,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// `bwrap`.
    Bubblewrap,
    /// Landlock and seccomp.
    Landlock,
    /// `sandbox-exec`.
    Seatbelt,
}

impl Mechanism {
    /// As it is written in [`DISABLE`].
    pub fn key(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPolicy {
    pub level: Level,
    /// Whether it may use the network.
    pub network: bool,
    /// What it may write below; symlinks resolved. What does not exist is left out.
    pub writable: Vec<PathBuf>,
    /// What it may not write although it lies below one of these. Not every mechanism can do that.
    pub protected: Vec<PathBuf>,
    /// What is not there for it, symlinks resolved. Only bubblewrap and Seatbelt can do that.
    pub hidden: Vec<PathBuf>,
    /// What is there all the same, although it lies below one of these.
    pub shown: Vec<PathBuf>,
    /// Root works with files of other users, and keeps the capabilities for that.
    pub foreign: bool,
}

/// What was found out about a level, by trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenSandbox {
    pub level: Level,
    /// What keeps it; none: nothing does.
    pub mechanism: Option<Mechanism>,
    /// The network can be cut off.
    pub offline: bool,
    /// Files below a writable directory can be excepted.
    pub control: bool,
    /// Modes and times of files outside cannot be changed either.
    pub modes: bool,
    /// Neither adjutant nor any other process outside can be signalled.
    pub signals: bool,
    /// Landlock holds as well, inside another mechanism.
    pub landlock: bool,
    /// What a command writes is reported before it does.
    pub reported: bool,
    /// What was tried before, and why it does not hold.
    pub failed: Vec<(Mechanism, String)>,
}

impl ProvenSandbox {
    pub fn none(level: Level, failed: Vec<(Mechanism, String)>) -> Self {
        Self {
            level,
            mechanism: None,
            offline: false,
            control: false,
            modes: false,
            signals: false,
            landlock: false,
            reported: false,
            failed,
        }
    }

    /// Whether it does what is asked of it, be it with the network or without.
    pub fn keeps(&self, network: bool) -> bool {
        self.mechanism.is_some() && (network || self.offline)
    }

    /// Whether it keeps everything that it is for: the network can be cut off, modes of files outside stay, and so
    /// does what decides what runs.
    pub fn is_whole(&self) -> bool {
        let control = self.control || self.level == Level::ReadOnly;
        self.mechanism.is_some() && self.offline && self.modes && control
    }

    /// One line for people and models: what holds, and what does not.
    pub fn words(&self, network: bool) -> String {
        let Some(mechanism) = self.mechanism else {
            return "none: it could do what you can do".into();
        };
        let mut text = format!("{}, {}", mechanism.key(), self.level.as_str());
        text.push_str(match (network, self.offline) {
            (true, _) if self.level == Level::ReadOnly => ", network open",
            (true, _) => ", network and local services open",
            (false, true) => ", no network",
            (false, false) => ", network open although it should not be",
        });
        if self.level == Level::WorkspaceWrite && !self.control {
            text.push_str(", control files not protected");
        }
        if !self.modes {
            text.push_str(", file modes open");
        }
        if !self.signals {
            text.push_str(", signals to other processes open");
        }
        text.push_str(", reads open");
        text
    }

    pub fn reasons(&self) -> String {
        let reasons: Vec<String> = self.failed.iter().map(|(what, why)| format!("{}: {why}", what.key())).collect();
        if reasons.is_empty() { "nothing of the kind is known for this system".into() } else { reasons.join("; ") }
    }
}

/// The sandboxes of this system, tried when they are first needed.
#[derive(Debug)]
pub struct Sandbox {
    /// Our own program; none where it is not known (in tests of the library).
    program: Option<PathBuf>,
    /// The same as a file, opened when its path is gone or open to commands.
    opened: OnceLock<Option<std::fs::File>>,
    /// The `bwrap` that was tried: no other one is started in its place.
    bwrap: OnceLock<Option<PathBuf>>,
    environment: Environment,
    read_only: OnceCell<Arc<ProvenSandbox>>,
    workspace_write: OnceCell<Arc<ProvenSandbox>>,
    light: OnceCell<Option<Arc<ProvenSandbox>>>,
    #[cfg(target_os = "linux")]
    holder: Arc<writes::ListenerHolder>,
}

impl Sandbox {
    pub fn new(environment: &Environment) -> Arc<Self> {
        Arc::new(Self {
            program: environment.program.clone(),
            opened: OnceLock::new(),
            bwrap: OnceLock::new(),
            environment: environment.clone(),
            read_only: OnceCell::new(),
            workspace_write: OnceCell::new(),
            light: OnceCell::new(),
            #[cfg(target_os = "linux")]
            holder: Arc::new(writes::ListenerHolder::new()),
        })
    }

    /// What holds at a level. The first call takes some milliseconds for trying it out.
    pub async fn held(&self, level: Level) -> Arc<ProvenSandbox> {
        let cell = match level {
            Level::ReadOnly => &self.read_only,
            Level::WorkspaceWrite => &self.workspace_write,
        };
        cell.get_or_init(|| async {
            let held = probe::probe(self, level).await;
            tracing::info!("sandbox, {}: {}; not: {}", level.as_str(), held.words(false), held.reasons());
            Arc::new(held)
        })
        .await
        .clone()
    }

    /// What holds for a command that is known to change nothing: Landlock by itself where it keeps all that can be
    /// kept of one that only reads, for it costs a third of what bubblewrap does; else what holds read-only. What
    /// bubblewrap adds is that other processes are not seen.
    pub async fn light(&self) -> Arc<ProvenSandbox> {
        let alone = self.light.get_or_init(|| async { probe::landlock(self).await.map(Arc::new) }).await;
        match alone {
            Some(alone) => alone.clone(),
            None => self.held(Level::ReadOnly).await,
        }
    }

    /// What holds at a level, where that was found out already.
    pub fn known(&self, level: Level) -> Option<&ProvenSandbox> {
        let cell = match level {
            Level::ReadOnly => &self.read_only,
            Level::WorkspaceWrite => &self.workspace_write,
        };
        cell.get().map(|held| &**held)
    }

    /// The mechanisms of this kind of system, best first.
    fn mechanisms(&self) -> Vec<Mechanism> {
        if cfg!(target_os = "macos") {
            vec![Mechanism::Seatbelt]
        } else if !cfg!(target_os = "linux") {
            vec![]
        } else {
            vec![Mechanism::Bubblewrap, Mechanism::Landlock]
        }
    }

    fn disabled(&self, mechanism: Mechanism) -> bool {
        let off = self.environment.var(DISABLE).unwrap_or_default();
        off.split([',', ' ']).any(|word| word.eq_ignore_ascii_case(mechanism.key()))
    }

    /// Returns our own program: by a descriptor that is passed on, because nobody else may follow
    /// `/proc/<our id>/exe`, if an update has removed it or commands could put another one in its place.
    fn own(&self, writable: &[PathBuf]) -> Option<PathBuf> {
        use std::os::fd::AsRawFd;
        let program = self.program.as_ref()?;
        if program.exists() && !is_below(program, writable) {
            return Some(program.clone());
        }
        let open = || {
            let file = std::fs::File::open("/proc/self/exe").ok()?;
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).ok()?;
            Some(file)
        };
        let file = self.opened.get_or_init(open).as_ref()?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }

    /// Returns the program as it must be started to be confined; as it is if nothing holds. On Linux it
    /// ends with this process, also when that is killed.
    ///
    /// # Errors
    /// What the sandbox that was proved needs and is not there any more: the program must not be started.
    pub fn wrap(
        &self,
        held: &ProvenSandbox,
        policy: &SandboxPolicy,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        let bare = inside::Orders { parent: own_id(), ..inside::Orders::default() };
        self.wrapped(held, policy, bare, observer.filter(|_| held.reported), program)
    }

    fn wrapped(
        &self,
        held: &ProvenSandbox,
        policy: &SandboxPolicy,
        mut orders: inside::Orders,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        let Some(own) = self.own(&policy.writable) else {
            return match held.mechanism {
                Some(_) => Err("adjutant's own program, which confines commands, is gone".into()),
                None => Ok(program),
            };
        };
        let read_only = policy.level == Level::ReadOnly;
        // Landlock keeps tracing to what the command itself has started.
        let trace = held.landlock && !read_only;
        let seccomp = calls::Seccomp { read_only, network: policy.network, trace };
        orders.foreign = policy.foreign;
        orders.session = held.mechanism != Some(Mechanism::Seatbelt);
        let program = match observer {
            Some(observer) => self.watched(held, &own, observer, &mut orders, program)?,
            None => program,
        };
        Ok(match held.mechanism {
            Some(Mechanism::Landlock) => {
                orders.seccomp = Some(seccomp);
                orders.lock = Some(policy.writable.clone());
                program.behind(own, orders.args()).begins_session()
            }
            Some(Mechanism::Bubblewrap) => {
                orders.seccomp = Some(seccomp);
                orders.lock = held.landlock.then(|| policy.writable.clone());
                (orders.parent, orders.watched) = (None, true);
                let bwrap = self.tried_bwrap(&policy.writable)?;
                let args = bubblewrap::args(policy, privileged(), held.landlock);
                program.behind(own, orders.args()).begins_session().guarded_by(bwrap, args)
            }
            Some(Mechanism::Seatbelt) => program.behind("/usr/bin/sandbox-exec", seatbelt::args(policy)),
            None if cfg!(target_os = "linux") => program.behind(own, orders.args()).begins_session(),
            None => program,
        })
    }

    /// Returns the file that `bwrap` meant on `PATH` when it was first looked for, links followed.
    fn bwrap(&self) -> Option<&PathBuf> {
        let find = || base::executable::find("bwrap", self.environment.path());
        self.bwrap.get_or_init(|| find().and_then(|path| std::fs::canonicalize(path).ok())).as_ref()
    }

    /// The same, if it can still be started and no command could have written it.
    fn tried_bwrap(&self, writable: &[PathBuf]) -> Result<&PathBuf, String> {
        let bwrap = self.bwrap().ok_or("there is no bwrap on PATH")?;
        if is_below(bwrap, writable) {
            return Err(format!("{} lies where commands may write", bwrap.display()));
        }
        if !base::executable::is_executable(bwrap) {
            return Err(format!("{} is gone", bwrap.display()));
        }
        Ok(bwrap)
    }

    /// Has what a program writes reported. Where programs may outlive this process, another one keeps their listeners;
    /// if that cannot be started, nothing is reported.
    #[cfg(target_os = "linux")]
    fn watched(
        &self,
        held: &ProvenSandbox,
        own: &Path,
        observer: Arc<dyn WriteObserver>,
        orders: &mut inside::Orders,
        program: Program,
    ) -> Result<Program, String> {
        use std::os::fd::AsRawFd;
        // A trial leaves nothing behind.
        let outlives = held.mechanism == Some(Mechanism::Landlock) && orders.trial.is_none();
        let keep = |socket| {
            let orders = inside::Orders { hold: Some(socket), session: true, ..inside::Orders::default() };
            Program::new(own, "/", std::collections::BTreeMap::new()).args(orders.args()).begins_session()
        };
        if outlives && let Err(e) = self.holder.start(keep) {
            tracing::warn!("what commands write is not reported, because nothing would answer after our end: {e}");
            observer.refused();
            return Ok(program);
        }
        let holder = outlives.then(|| self.holder.clone());
        let socket = writes::watch(observer, holder).map_err(|e| format!("what it writes cannot be seen: {e}"))?;
        orders.report = Some(socket.as_raw_fd());
        Ok(program.passing(socket))
    }

    #[cfg(not(target_os = "linux"))]
    fn watched(
        &self,
        _: &ProvenSandbox,
        _: &Path,
        _: Arc<dyn WriteObserver>,
        _: &mut inside::Orders,
        program: Program,
    ) -> Result<Program, String> {
        Ok(program)
    }
}

/// Whether a path lies below one of these.
fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

/// Keeps other processes of the same user from reading this one's variables, memory and open files, on
/// Linux. There are no core dumps of it then. What it starts is not kept.
pub fn conceal() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!("this process can be read by others: {e}");
    }
}

/// Whether this process may mount. Root in a container may not, and has to try it in a user namespace
/// like everybody else.
fn privileged() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::thread::capabilities(None)
        .is_ok_and(|has| has.effective.contains(rustix::thread::CapabilitySet::SYS_ADMIN));
    #[cfg(not(target_os = "linux"))]
    false
}

fn own_id() -> Option<u32> {
    Some(std::process::id())
}

/// What of these exists, with symlinks resolved, each once.
pub fn existing(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in paths.into_iter().filter_map(|path| std::fs::canonicalize(path).ok()) {
        if path.parent().is_some() && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Returns the directories in which programs write short-lived files.
pub fn temporary(environment: &Environment) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into();
    paths.push(environment.tmp());
    paths
}

/// Where short-lived files are written and where the usual tools keep what they fetched: what
/// building a project needs besides the project. Our own cache is not among them.
pub fn outskirts(environment: &Environment) -> Vec<PathBuf> {
    let mut paths = temporary(environment);
    let Some(home) = &environment.home else { return paths };
    const CACHES: &[&str] = &[
        ".npm",
        ".pnpm-store",
        ".local/share/pnpm/store",
        ".yarn/cache",
        ".yarn/berry",
        ".bun/install/cache",
        ".cargo/registry",
        ".cargo/git",
        ".cargo/.package-cache",
        ".cargo/.package-cache-mutate",
        ".cargo/.global-cache",
        ".gradle",
        ".m2/repository",
        ".ivy2",
        ".sbt",
        ".nuget/packages",
        ".pub-cache",
        ".composer/cache",
        ".gem",
        ".hex",
        ".mix",
        "go/pkg",
        "Library/Caches",
    ];
    paths.extend(CACHES.iter().map(|name| home.join(name)));
    let own = environment.dirs.cache.as_path();
    let cache = own.parent().map_or_else(|| home.join(".cache"), Path::to_path_buf);
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.extend(entries.filter(|path| path != own));
    paths
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(mechanism: Option<Mechanism>) -> ProvenSandbox {
        let level = Level::WorkspaceWrite;
        ProvenSandbox {
            level,
            mechanism,
            offline: true,
            control: false,
            modes: false,
            signals: true,
            landlock: true,
            reported: false,
            failed: vec![],
        }
    }

    #[test]
    fn what_holds_is_said_in_full() {
        let table = [
            (held(None), true, "none: it could do what you can do"),
            (
                held(Some(Mechanism::Landlock)),
                true,
                "landlock, workspace-write, network and local services open, control files not protected, file modes open, reads open",
            ),
            (
                ProvenSandbox { level: Level::ReadOnly, modes: true, ..held(Some(Mechanism::Bubblewrap)) },
                false,
                "bwrap, read-only, no network, reads open",
            ),
            (
                ProvenSandbox { offline: false, control: true, modes: true, ..held(Some(Mechanism::Seatbelt)) },
                false,
                "seatbelt, workspace-write, network open although it should not be, reads open",
            ),
        ];
        for (held, network, text) in table {
            assert_eq!(held.words(network), text);
        }
        assert!(!held(None).keeps(true));
        assert!(held(Some(Mechanism::Landlock)).keeps(false));
        assert!(!ProvenSandbox { offline: false, ..held(Some(Mechanism::Landlock)) }.keeps(false));
    }

    #[test]
    fn our_own_cache_is_no_cache_of_the_projects() {
        let home = tempfile::tempdir().unwrap();
        for name in [".cache/adjutant", ".cache/pip", ".npm"] {
            std::fs::create_dir_all(home.path().join(name)).unwrap();
        }
        let home = std::fs::canonicalize(home.path()).unwrap();
        let vars = [("HOME".to_owned(), home.display().to_string())].into();
        let found = existing(outskirts(&Environment::from_vars(vars)));
        assert!(found.contains(&home.join(".npm")) && found.contains(&home.join(".cache/pip")), "{found:?}");
        assert!(!found.contains(&home.join(".cache")) && !found.contains(&home.join(".cache/adjutant")), "{found:?}");
        assert_eq!(existing(["/".into(), "/no such".into()]), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_proved_sandbox_is_never_left_out() {
        let bin = tempfile::tempdir().unwrap();
        let home = bin.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let vars = [("HOME".to_owned(), home.display().to_string()), ("PATH".into(), bin.path().display().to_string())];
        let mut environment = Environment::from_vars(vars.into());
        let program = || Program::new("true", "/", std::collections::BTreeMap::new());
        let policy = |writable: &[&Path]| SandboxPolicy {
            level: Level::WorkspaceWrite,
            network: true,
            writable: writable.iter().map(|path| path.to_path_buf()).collect(),
            protected: vec![],
            hidden: vec![],
            shown: vec![],
            foreign: false,
        };
        let start = |environment: &Environment, mechanism, writable: &[&Path]| {
            Sandbox::new(environment).wrap(&held(mechanism), &policy(writable), None, program()).map(drop)
        };
        // Nothing to put in between: only what is claimed to be confined is not started.
        assert!(start(&environment, Some(Mechanism::Landlock), &[]).unwrap_err().contains("is gone"));
        assert_eq!(start(&environment, None, &[]), Ok(()));
        environment.program = Some("/bin/true".into());
        assert_eq!(start(&environment, Some(Mechanism::Landlock), &[]), Ok(()));
        assert!(start(&environment, Some(Mechanism::Bubblewrap), &[]).unwrap_err().contains("no bwrap on PATH"));
        std::fs::copy("/bin/true", bin.path().join("bwrap")).unwrap();
        assert_eq!(start(&environment, Some(Mechanism::Bubblewrap), &[]), Ok(()));
        let real = std::fs::canonicalize(bin.path()).unwrap();
        let open = start(&environment, Some(Mechanism::Bubblewrap), &[real.as_path()]);
        assert!(open.unwrap_err().contains("where commands may write"));
    }

    #[tokio::test]
    async fn without_a_program_to_put_in_between_nothing_is_claimed() {
        let vars = [("HOME".to_owned(), std::env::temp_dir().display().to_string())].into();
        let sandbox = Sandbox::new(&Environment::from_vars(vars));
        let held = sandbox.held(Level::ReadOnly).await;
        assert_eq!(held.mechanism, None);
    }
}
