//! Restrictions that the operating system enforces on a command, in addition to the permission
//! rules.
//!
//! The rules are evaluated first; a sandbox never turns a deny into an allow. Its effect is
//! measured, not assumed (`probe.rs`, `trial.rs`): a process of adjutant is started in it and
//! attempts the forbidden operations in a directory made for that. A mechanism in which it succeeds
//! is not used. This happens once per process and level, when the first command needs it. A command
//! that is known to be read-only runs under Landlock alone, if Landlock enforces everything that
//! can be enforced on a command that only reads.
//!
//! | mechanism | method | not restricted |
//! |---|---|---|
//! | bubblewrap | `bwrap` on `PATH`: mounts everything read-only except writable paths; the command sees only its own processes; Landlock and seccomp apply inside as well | reading; new files of any name below a writable directory |
//! | Landlock with seccomp | a launcher is started first (`launcher.rs`), drops its capabilities, restricts itself and then executes the command | reading; files below a writable directory cannot be protected; before Linux 6.12, signals |
//! | Seatbelt | `sandbox-exec` of macOS | reading, signals |
//!
//! `ADJUTANT_SANDBOX_DISABLE=bwrap,landlock,seatbelt` disables mechanisms. It can only ever reduce
//! the guarantees.

#[cfg(target_os = "linux")]
mod bubblewrap;
mod calls;
mod inside;
#[cfg(target_os = "linux")]
mod launcher;
#[cfg(target_os = "linux")]
mod launcher_in_memory;
mod probe;
pub mod process;
mod seatbelt;
mod trial;
mod writes;

/// The compiler flags of the launcher: a part of the build script, included here for its tests.
#[cfg(test)]
#[path = "../launcher/flags.rs"]
mod launcher_flags;

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

#[cfg(target_os = "linux")]
use crate::launcher::Step;
#[cfg(target_os = "linux")]
use crate::launcher_in_memory::LauncherInMemory;
use crate::process::{Program, ProgramOwner};
use base::environment::Environment;

pub use calls::is_sandboxed;
pub use inside::run_hidden_subcommand;
pub use writes::{PendingWrite, WriteObserver, has_writer};

/// The variable that names disabled mechanisms, separated by commas.
pub const DISABLED_MECHANISMS_VARIABLE: &str = "ADJUTANT_SANDBOX_DISABLE";

/// The files that a sandboxed command may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Only its own short-lived files.
    ReadOnly,
    /// The project, and the files that building it needs.
    WorkspaceWrite,
}

impl Level {
    /// Returns the name in settings and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
        }
    }
}

/// A way in which the system enforces a sandbox.
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
    /// Returns the name in [`DISABLED_MECHANISMS_VARIABLE`].
    pub fn key(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
        }
    }
}

/// The restrictions on one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPolicy {
    pub level: Level,
    /// True if it may use the network.
    pub network: bool,
    /// Writable files and directories with everything below them; symlinks are resolved. Paths that
    /// do not exist are left out.
    pub writable: Vec<PathBuf>,
    /// Exceptions below `writable`. Not every mechanism can enforce them.
    pub protected: Vec<PathBuf>,
    /// Paths that the command cannot see; symlinks are resolved. Only bubblewrap and Seatbelt can
    /// hide paths.
    pub hidden: Vec<PathBuf>,
    /// Exceptions below `hidden`.
    pub shown: Vec<PathBuf>,
    /// True if adjutant runs as root and works with files of other users: the command keeps the
    /// capabilities for that.
    pub has_foreign_files: bool,
}

/// The guarantees of a level, as confirmed by a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenSandbox {
    pub level: Level,
    /// The mechanism that enforces them; `None` if there is none.
    pub mechanism: Option<Mechanism>,
    /// True if the network can be blocked.
    pub blocks_network: bool,
    /// True if files below a writable directory can be protected, such as control files.
    pub protects_control_files: bool,
    /// True if modes and times of files outside `writable` are protected too.
    pub protects_modes: bool,
    /// True if neither adjutant nor any other process outside can be signalled.
    pub blocks_signals: bool,
    /// True if Landlock also works inside another mechanism.
    pub includes_landlock: bool,
    /// True if writes of a command are reported before they happen.
    pub reports_writes: bool,
    /// True if adjutant's own executable starts the commands, because the launcher in memory cannot
    /// be executed inside.
    pub needs_executable: bool,
    /// Mechanisms that were tried before, with the reasons why they are not used.
    pub failed: Vec<(Mechanism, String)>,
}

impl ProvenSandbox {
    /// Returns a sandbox without any restriction.
    pub fn none(level: Level, failed: Vec<(Mechanism, String)>) -> Self {
        Self {
            level,
            mechanism: None,
            blocks_network: false,
            protects_control_files: false,
            protects_modes: false,
            blocks_signals: false,
            includes_landlock: false,
            reports_writes: false,
            needs_executable: false,
            failed,
        }
    }

    /// Returns whether the sandbox is effective for a command with or without network access.
    pub fn is_effective(&self, network: bool) -> bool {
        self.mechanism.is_some() && (network || self.blocks_network)
    }

    /// Returns whether the sandbox gives all guarantees of its level: it can block the network, and
    /// protects modes of files outside and control files.
    pub fn is_complete(&self) -> bool {
        let control = self.protects_control_files || self.level == Level::ReadOnly;
        self.mechanism.is_some() && self.blocks_network && self.protects_modes && control
    }

    /// Returns one line for users and models: the mechanism, and everything that it does not
    /// restrict.
    pub fn describe_restrictions(&self, network: bool) -> String {
        let Some(mechanism) = self.mechanism else {
            return "none: commands could do whatever you can do".into();
        };
        let mut text = format!("{}, {}", mechanism.key(), self.level.as_str());
        text.push_str(match (network, self.blocks_network) {
            (true, _) if self.level == Level::ReadOnly => ", network allowed",
            (true, _) => ", network and local services allowed",
            (false, true) => ", no network",
            (false, false) => ", network not blocked",
        });
        if self.level == Level::WorkspaceWrite && !self.protects_control_files {
            text.push_str(", control files not protected");
        }
        if !self.protects_modes {
            text.push_str(", permission bits not protected");
        }
        if !self.blocks_signals {
            text.push_str(", other processes can be signalled");
        }
        text.push_str(", all files readable");
        text
    }

    /// Returns one line with the reasons why no mechanism, or no better one, is used.
    pub fn reasons(&self) -> String {
        let reasons: Vec<String> = self
            .failed
            .iter()
            .map(|(mechanism, why)| format!("{}: {why}", mechanism.key()))
            .collect();
        if reasons.is_empty() {
            "no sandbox is supported on this system".into()
        } else {
            reasons.join("; ")
        }
    }
}

/// The sandboxes of this system for the programs of one user, each tried when it is first needed.
#[derive(Debug)]
pub struct Sandbox {
    /// The owner of the programs.
    owner: ProgramOwner,
    /// The executable of adjutant; `None` if it is unknown (in tests of the library).
    program: Option<PathBuf>,
    /// The executable as an open file, used if its path is gone or writable by commands.
    opened: OnceLock<Option<std::fs::File>>,
    /// The `bwrap` that was tried. No other one is started in its place.
    bwrap: OnceLock<Option<PathBuf>>,
    environment: Environment,
    /// The launcher of commands; `None` if it cannot be executed from memory.
    #[cfg(target_os = "linux")]
    launcher: OnceCell<Option<LauncherInMemory>>,
    read_only: OnceCell<Arc<ProvenSandbox>>,
    workspace_write: OnceCell<Arc<ProvenSandbox>>,
    /// The guarantees of Landlock alone, for commands that only read.
    landlock_only: OnceCell<Option<Arc<ProvenSandbox>>>,
}

/// The reason why a program is started in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To run a command.
    Command,
    /// To attempt forbidden operations.
    Trial,
}

impl Sandbox {
    pub fn new(environment: &Environment) -> Arc<Self> {
        Arc::new(Self {
            owner: ProgramOwner::of_user(),
            program: environment.program.clone(),
            opened: OnceLock::new(),
            bwrap: OnceLock::new(),
            environment: environment.clone(),
            #[cfg(target_os = "linux")]
            launcher: OnceCell::new(),
            read_only: OnceCell::new(),
            workspace_write: OnceCell::new(),
            landlock_only: OnceCell::new(),
        })
    }

    /// Returns the guarantees of a level. The first call takes some milliseconds, for a trial.
    pub async fn guarantees_of(&self, level: Level) -> Arc<ProvenSandbox> {
        let cell = self.cell(level);
        cell.get_or_init(|| async {
            let proven = probe::probe(self, level).await;
            tracing::info!(
                "sandbox, {}: {}; not: {}",
                level.as_str(),
                proven.describe_restrictions(false),
                proven.reasons()
            );
            Arc::new(proven)
        })
        .await
        .clone()
    }

    /// Returns the owner of the programs of this user.
    pub fn owner(&self) -> ProgramOwner {
        self.owner
    }

    /// Returns the environment of the user.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the guarantees for a command that is known to be read-only.
    ///
    /// This is Landlock alone, if it enforces everything that can be enforced on a command that
    /// only reads, because it costs a third of bubblewrap, whose only addition is to hide other
    /// processes. Otherwise it is the read-only level.
    pub async fn read_only_guarantees(&self) -> Arc<ProvenSandbox> {
        let landlock = self
            .landlock_only
            .get_or_init(|| async { probe::landlock(self).await.map(Arc::new) })
            .await;
        match landlock {
            Some(landlock) => landlock.clone(),
            None => self.guarantees_of(Level::ReadOnly).await,
        }
    }

    /// Returns the guarantees of a level; `None` if it was not tried yet.
    pub fn known(&self, level: Level) -> Option<&ProvenSandbox> {
        self.cell(level).get().map(|proven| &**proven)
    }

    /// Returns the cell for the guarantees of a level.
    fn cell(&self, level: Level) -> &OnceCell<Arc<ProvenSandbox>> {
        match level {
            Level::ReadOnly => &self.read_only,
            Level::WorkspaceWrite => &self.workspace_write,
        }
    }

    /// Returns the mechanisms of this operating system, best first.
    fn mechanisms(&self) -> Vec<Mechanism> {
        if cfg!(target_os = "macos") {
            vec![Mechanism::Seatbelt]
        } else if !cfg!(target_os = "linux") {
            vec![]
        } else {
            vec![Mechanism::Bubblewrap, Mechanism::Landlock]
        }
    }

    /// Returns whether the user has disabled a mechanism.
    fn is_disabled(&self, mechanism: Mechanism) -> bool {
        let disabled = self
            .environment
            .var(DISABLED_MECHANISMS_VARIABLE)
            .unwrap_or_default();
        disabled
            .split([',', ' '])
            .any(|word| word.eq_ignore_ascii_case(mechanism.key()))
    }

    /// Returns the path of adjutant's executable.
    ///
    /// If an update has removed it, or commands could replace it, this is an inherited descriptor,
    /// because other processes cannot follow `/proc/<our id>/exe`.
    fn executable(&self, writable: &[PathBuf]) -> Option<PathBuf> {
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

    /// Wraps a program so that it starts in a sandbox; without a mechanism it stays unrestricted.
    /// On Linux it ends with this process, even if that is killed.
    ///
    /// # Errors
    /// If something that the proven sandbox needs is gone. The program must not be started then.
    pub fn wrap(
        &self,
        proven: &ProvenSandbox,
        policy: &SandboxPolicy,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        let observer = if proven.reports_writes {
            observer
        } else {
            None
        };
        self.wrapped(proven, policy, Purpose::Command, observer, program)
    }

    /// Does the same as [`Self::wrap`] for a purpose.
    fn wrapped(
        &self,
        proven: &ProvenSandbox,
        policy: &SandboxPolicy,
        purpose: Purpose,
        observer: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        let Some(executable) = self.executable(&policy.writable) else {
            return match proven.mechanism {
                Some(_) => Err(
                    "the executable of adjutant, which restricts commands, no longer exists".into(),
                ),
                None => Ok(program),
            };
        };
        if proven.mechanism == Some(Mechanism::Seatbelt) {
            return Ok(program.started_by("/usr/bin/sandbox-exec", seatbelt::args(policy)));
        }
        self.launched(executable, proven, policy, purpose, observer, program)
    }

    /// Has the launcher start a program, in the sandboxes of Linux.
    #[cfg(target_os = "linux")]
    fn launched(
        &self,
        executable: PathBuf,
        proven: &ProvenSandbox,
        policy: &SandboxPolicy,
        purpose: Purpose,
        observer: Option<Arc<dyn WriteObserver>>,
        mut program: Program,
    ) -> Result<Program, String> {
        use std::os::fd::AsRawFd;
        // Bubblewrap is the guard: its end also ends the program and everything that it started.
        let is_guarded = proven.mechanism == Some(Mechanism::Bubblewrap);
        let read_only = policy.level == Level::ReadOnly;
        let is_command = purpose == Purpose::Command;
        // A trial leaves no processes behind.
        let is_held = is_command && Self::start_holder(&executable);
        let may_outlive = is_command && !is_guarded;
        let mut steps = vec![Step::BeginSession];
        if is_guarded {
            steps.push(Step::AwaitGuard);
        } else if is_command {
            steps.push(Step::EndWith(std::process::id()));
        }
        steps.extend(base::open_files::of_programs().map(Step::LimitFiles));
        if proven.mechanism.is_some() {
            steps.push(Step::DropCapabilities(policy.has_foreign_files));
        }
        if proven.includes_landlock || proven.mechanism == Some(Mechanism::Landlock) {
            steps.extend(policy.writable.iter().cloned().map(Step::AllowWrites));
            steps.push(Step::RestrictWrites(read_only));
        }
        let mut steps: Vec<OsString> = steps.iter().map(Step::to_argument).collect();
        if proven.mechanism.is_some() {
            steps.extend(calls::steps(calls::Seccomp {
                read_only,
                network: policy.network,
                // Landlock restricts tracing to processes that the command itself has started.
                trace: proven.includes_landlock && !read_only,
            })?);
        }
        match observer {
            // Nothing would answer the reports of a program that continues.
            Some(observer) if (may_outlive && !is_held) || !writes::kernel::has_known_reports() => {
                observer.refused();
            }
            Some(observer) => {
                let holder = may_outlive.then_some(&writes::HOLDER);
                let socket = writes::watch(observer, holder)
                    .map_err(|e| format!("its writes cannot be observed: {e}"))?;
                let report = Step::Report(socket.as_raw_fd(), writes::filter::program());
                steps.push(report.to_argument());
                program = program.passing(socket);
            }
            None => {}
        }
        let launched = match self.launcher.get() {
            Some(Some(launcher)) if !proven.needs_executable => launcher.start(steps, program),
            _ => {
                let subcommand = OsString::from(inside::LAUNCH);
                let args = std::iter::once(subcommand).chain(launcher::arguments(steps));
                program.started_by(executable, args.collect())
            }
        };
        let launched = launched.begins_session();
        if !is_guarded {
            return Ok(launched);
        }
        let bwrap = self.tried_bwrap(&policy.writable)?;
        let args = bubblewrap::args(policy, can_mount(), proven.includes_landlock);
        Ok(launched.guarded_by(bwrap, args))
    }

    #[cfg(not(target_os = "linux"))]
    fn launched(
        &self,
        _: PathBuf,
        proven: &ProvenSandbox,
        _: &SandboxPolicy,
        _: Purpose,
        _: Option<Arc<dyn WriteObserver>>,
        program: Program,
    ) -> Result<Program, String> {
        match proven.mechanism {
            Some(mechanism) => Err(format!("{} is part of Linux", mechanism.key())),
            None => Ok(program),
        }
    }

    /// Prepares the launcher in memory, if such files can be executed.
    async fn prepare_launcher(&self) {
        #[cfg(target_os = "linux")]
        self.launcher
            .get_or_init(|| async {
                match LauncherInMemory::prepare(self.owner).await {
                    Ok(launcher) => Some(launcher),
                    Err(e) => {
                        tracing::info!("adjutant's own executable starts commands: {e}");
                        None
                    }
                }
            })
            .await;
    }

    /// Returns whether commands can be started by the launcher in memory.
    #[cfg(target_os = "linux")]
    fn has_launcher_in_memory(&self) -> bool {
        matches!(self.launcher.get(), Some(Some(_)))
    }

    #[cfg(not(target_os = "linux"))]
    fn has_launcher_in_memory(&self) -> bool {
        false
    }

    /// Returns the path of the first `bwrap` on `PATH`, with links resolved, as found by the first
    /// call.
    fn bwrap(&self) -> Option<&PathBuf> {
        let find = || base::executable::find("bwrap", self.environment.path());
        self.bwrap
            .get_or_init(|| find().and_then(|path| std::fs::canonicalize(path).ok()))
            .as_ref()
    }

    /// Returns the path of `bwrap`, if it is still executable and no command could have written it.
    #[cfg(target_os = "linux")]
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

    /// Starts the process that ends programs, and answers their reports of writes, when this
    /// process has been killed. Returns whether it runs.
    #[cfg(target_os = "linux")]
    fn start_holder(executable: &Path) -> bool {
        let holder_program = |socket| {
            let hold = inside::HolderSpec {
                socket,
                adjutant: std::process::id(),
            };
            Program::new(executable, "/", std::collections::BTreeMap::new())
                .args(inside::holder_args(&hold))
                .begins_session()
        };
        let started = writes::HOLDER.start(holder_program);
        if let Err(e) = &started {
            tracing::warn!("if adjutant is killed, programs of its commands may continue: {e}");
        }
        started.is_ok()
    }
}

/// Returns whether a path is one of the roots or below one.
fn is_below(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

/// Keeps other processes of the same user from reading the environment variables, memory and open
/// files of this process, on Linux. Disables core dumps. Child processes are not protected.
pub fn protect_process_memory() {
    #[cfg(target_os = "linux")]
    if let Err(e) =
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        tracing::warn!("this process can be read by others: {e}");
    }
}

/// Returns whether this process may mount. Root in a container may not, and needs a user namespace
/// like every other user.
#[cfg(target_os = "linux")]
fn can_mount() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|has| {
        has.effective
            .contains(rustix::thread::CapabilitySet::SYS_ADMIN)
    })
}

/// Returns the existing paths among these, with symlinks resolved and without duplicates.
pub fn existing(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut existing: Vec<PathBuf> = Vec::new();
    for path in paths
        .into_iter()
        .filter_map(|path| std::fs::canonicalize(path).ok())
    {
        if path.parent().is_some() && !existing.contains(&path) {
            existing.push(path);
        }
    }
    existing
}

/// Returns the directories in which programs write short-lived files.
pub fn temporary_directories(environment: &Environment) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into();
    paths.push(environment.tmp());
    paths
}

/// Returns the directories outside the project that building it needs: those for short-lived files,
/// and the caches of common tools, except for adjutant's own cache.
pub fn build_directories(environment: &Environment) -> Vec<PathBuf> {
    let mut paths = temporary_directories(environment);
    let Some(home) = &environment.home else {
        return paths;
    };
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
    let own_cache = environment.dirs.cache.as_path();
    let cache = own_cache
        .parent()
        .map_or_else(|| home.join(".cache"), Path::to_path_buf);
    let entries = std::fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    paths.extend(entries.filter(|path| path != own_cache));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(mechanism: Option<Mechanism>) -> ProvenSandbox {
        let level = Level::WorkspaceWrite;
        ProvenSandbox {
            level,
            mechanism,
            blocks_network: true,
            protects_control_files: false,
            protects_modes: false,
            blocks_signals: true,
            includes_landlock: true,
            reports_writes: false,
            needs_executable: false,
            failed: vec![],
        }
    }

    #[test]
    fn description_names_everything_unrestricted() {
        let table = [
            (
                proven(None),
                true,
                "none: commands could do whatever you can do",
            ),
            (
                proven(Some(Mechanism::Landlock)),
                true,
                "landlock, workspace-write, network and local services allowed, control files not protected, permission bits not protected, all files readable",
            ),
            (
                ProvenSandbox {
                    level: Level::ReadOnly,
                    protects_modes: true,
                    ..proven(Some(Mechanism::Bubblewrap))
                },
                false,
                "bwrap, read-only, no network, all files readable",
            ),
            (
                ProvenSandbox {
                    blocks_network: false,
                    protects_control_files: true,
                    protects_modes: true,
                    ..proven(Some(Mechanism::Seatbelt))
                },
                false,
                "seatbelt, workspace-write, network not blocked, all files readable",
            ),
        ];
        for (proven, network, text) in table {
            assert_eq!(proven.describe_restrictions(network), text);
        }
        assert!(!proven(None).is_effective(true));
        assert!(proven(Some(Mechanism::Landlock)).is_effective(false));
        assert!(
            !ProvenSandbox {
                blocks_network: false,
                ..proven(Some(Mechanism::Landlock))
            }
            .is_effective(false)
        );
    }

    #[test]
    fn build_directories_exclude_own_cache() {
        let home = tempfile::tempdir().unwrap();
        for name in [".cache/adjutant", ".cache/pip", ".npm"] {
            std::fs::create_dir_all(home.path().join(name)).unwrap();
        }
        let home = std::fs::canonicalize(home.path()).unwrap();
        let vars = [("HOME".to_owned(), home.display().to_string())].into();
        let found = existing(build_directories(&Environment::from_vars(vars)));
        assert!(
            found.contains(&home.join(".npm")) && found.contains(&home.join(".cache/pip")),
            "{found:?}"
        );
        assert!(
            !found.contains(&home.join(".cache")) && !found.contains(&home.join(".cache/adjutant")),
            "{found:?}"
        );
        assert_eq!(
            existing(["/".into(), "/no such".into()]),
            Vec::<PathBuf>::new()
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn program_is_not_started_without_its_proven_sandbox() {
        let bin = tempfile::tempdir().unwrap();
        let home = bin.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let vars = [
            ("HOME".to_owned(), home.display().to_string()),
            ("PATH".into(), bin.path().display().to_string()),
        ];
        let mut environment = Environment::from_vars(vars.into());
        let program = || Program::new("true", "/", std::collections::BTreeMap::new());
        let policy = |writable: &[&Path]| SandboxPolicy {
            level: Level::WorkspaceWrite,
            network: true,
            writable: writable.iter().map(|path| path.to_path_buf()).collect(),
            protected: vec![],
            hidden: vec![],
            shown: vec![],
            has_foreign_files: false,
        };
        let start = |environment: &Environment, mechanism, writable: &[&Path]| {
            Sandbox::new(environment)
                .wrap(&proven(mechanism), &policy(writable), None, program())
                .map(drop)
        };
        // Without adjutant's executable, only a program without a sandbox can be started.
        assert!(
            start(&environment, Some(Mechanism::Landlock), &[])
                .unwrap_err()
                .contains("no longer exists")
        );
        assert_eq!(start(&environment, None, &[]), Ok(()));
        environment.program = Some("/bin/true".into());
        assert_eq!(start(&environment, Some(Mechanism::Landlock), &[]), Ok(()));
        assert!(
            start(&environment, Some(Mechanism::Bubblewrap), &[])
                .unwrap_err()
                .contains("no bwrap on PATH")
        );
        std::fs::copy("/bin/true", bin.path().join("bwrap")).unwrap();
        assert_eq!(
            start(&environment, Some(Mechanism::Bubblewrap), &[]),
            Ok(())
        );
        let real = std::fs::canonicalize(bin.path()).unwrap();
        let open = start(&environment, Some(Mechanism::Bubblewrap), &[real.as_path()]);
        assert!(open.unwrap_err().contains("where commands may write"));
    }

    #[tokio::test]
    async fn sandbox_without_executable_has_no_mechanism() {
        let vars = [(
            "HOME".to_owned(),
            std::env::temp_dir().display().to_string(),
        )]
        .into();
        let sandbox = Sandbox::new(&Environment::from_vars(vars));
        let proven = sandbox.guarantees_of(Level::ReadOnly).await;
        assert_eq!(proven.mechanism, None);
    }
}
