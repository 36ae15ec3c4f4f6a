//! Starts programs, waits for them and ends them. No other module does.
//!
//! A [`Program`] describes the program to start, and a [`Child`] is a running one.
//!
//! Every program gets its own session (and so a process group, and no controlling terminal, so that
//! it cannot ask for a password unseen), `/dev/null` or a pipe as stdin, and its own pipes for
//! output, never those of this process. Dropping a [`Child`] kills its group.
//!
//! Programs that leave their group (`setsid`) are found on Linux by the mark in their environment
//! and by their parents, both from `/proc`; elsewhere only the group is ended. [`end_own_programs`]
//! ends all of them at the end of this process. If it is ended by SIGKILL, another process does
//! that, which is started with the first command (`writes/listener_holder.rs`; Linux).

mod process_tree;
mod program_slots;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessSession};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

pub use self::process_tree::{MARK, is_started_by_adjutant, set_process_name};
use self::process_tree::{ProcessStat, family, processes};
pub use self::program_slots::{ProgramOwner, ProgramSlot, slot};
use base::environment::Environment;
use base::lock::lock;
use base::open_files::SessionFiles;
use base::process::await_ends;

/// The time that killed processes have to end.
const KILL_TIMEOUT: Duration = Duration::from_millis(250);

/// A lock that is held while a program is started: for reading, or for writing if a descriptor is
/// passed to it, which no other program started at that moment may inherit.
static STARTING: RwLock<()> = RwLock::new(());

/// True if this process has started a program. If not, there is nothing to end at its end.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The share of a program in the limit on open files of this process, held until it is dropped.
#[derive(Debug)]
enum ProgramFiles {
    /// One of the slots for programs that end soon.
    Slot(#[expect(dead_code, reason = "held")] ProgramSlot),
    /// A share for a program that lasts as long as its session.
    Lasting(#[expect(dead_code, reason = "held")] SessionFiles),
}

/// Gives a program the original limit on open files. The program may already be running by then;
/// programs that can set [`base::open_files::of_programs`] themselves do so.
#[cfg(target_os = "linux")]
fn lower_files(pid: Pid) {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

    if let Some(before) = base::open_files::of_programs() {
        let limit = Rlimit {
            current: Some(before),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        // A program that has already ended does not need it.
        prlimit(Some(pid), Resource::Nofile, limit).ok();
    }
}

/// Does nothing: only Linux can change the limits of another process.
#[cfg(not(target_os = "linux"))]
fn lower_files(_pid: Pid) {}

/// A program that can be started, with its arguments, directory and environment.
#[derive(Debug, Clone)]
pub struct Program {
    path: OsString,
    args: Vec<OsString>,
    cwd: PathBuf,
    env: BTreeMap<OsString, OsString>,
    /// The owner of the slot that it runs in.
    owner: ProgramOwner,
    /// True if the first process only guards the others, which end with it.
    is_guarded: bool,
    /// True if it begins a session (`setsid`) itself, before anything else.
    begins_session: bool,
    /// A descriptor that it inherits under the same number, once.
    passed: Option<Arc<Mutex<Option<OwnedFd>>>>,
    /// A descriptor that it inherits under the same number, and that stays open here.
    inherited: Option<Arc<OwnedFd>>,
}

/// The requested size of an output pipe, in bytes: the maximum for ordinary users.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1 << 20;

/// The use of a program's stdout and stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioMode {
    /// One pipe for both, in the order of writing: [`Child::output`]. Stdin is empty.
    Merged,
    /// Three pipes: [`Child::streams`].
    Separate,
}

/// The result of a program that has ended.
#[derive(Debug, Clone)]
pub struct ProgramOutput {
    /// The exit code or signal.
    pub status: ExitStatus,
    /// The bytes written to stdout.
    pub stdout: Vec<u8>,
    /// The bytes written to stderr.
    pub stderr: Vec<u8>,
}

impl Program {
    /// Creates a program by its path, or by its name to look it up in the `PATH` of `env`.
    pub fn new(
        path: impl Into<OsString>,
        cwd: impl Into<PathBuf>,
        env: BTreeMap<OsString, OsString>,
    ) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env,
            owner: ProgramOwner::ADJUTANT,
            is_guarded: false,
            begins_session: false,
            passed: None,
            inherited: None,
        }
    }

    /// Creates a program that adjutant itself needs, such as git, with the whole environment of
    /// this process.
    pub fn with_environment(path: &str, cwd: &Path, environment: &Environment) -> Self {
        let env = environment
            .vars()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self::new(path, cwd, env)
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: Into<OsString>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the owner of the slot that it runs in.
    #[must_use]
    pub fn owned_by(self, owner: ProgramOwner) -> Self {
        Self { owner, ..self }
    }

    /// Has another program start it. That one gets `args`, then this program with its own
    /// arguments.
    #[must_use]
    pub fn started_by(self, path: impl Into<OsString>, args: Vec<OsString>) -> Self {
        let args = args
            .into_iter()
            .chain([self.path])
            .chain(self.args)
            .collect();
        Self {
            path: path.into(),
            args,
            ..self
        }
    }

    /// Has a guard start it, whose end also ends this program and all that it started.
    #[must_use]
    pub fn guarded_by(self, path: impl Into<OsString>, args: Vec<OsString>) -> Self {
        Self {
            is_guarded: true,
            ..self.started_by(path, args)
        }
    }

    /// Declares that the program begins a session itself, before anything else. Then it can be
    /// started without copying this process, which takes a millisecond or more with much memory in
    /// use.
    #[must_use]
    pub fn begins_session(self) -> Self {
        Self {
            begins_session: true,
            ..self
        }
    }

    /// Passes a descriptor on to the program, under its present number. It is closed here after the
    /// start, even if the start fails.
    #[must_use]
    pub fn passing(self, descriptor: OwnedFd) -> Self {
        Self {
            passed: Some(Arc::new(Mutex::new(Some(descriptor)))),
            ..self
        }
    }

    /// Lets the program inherit a descriptor under its present number. It stays open here, and no
    /// other program inherits it.
    #[must_use]
    pub fn with_descriptor(self, descriptor: Arc<OwnedFd>) -> Self {
        Self {
            inherited: Some(descriptor),
            ..self
        }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets an environment variable, unless it has a value.
    #[must_use]
    pub fn env_if_unset(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.entry(name.into()).or_insert_with(|| value.into());
        self
    }

    /// Starts the program. `work` names its purpose in the mark by which [`end_own_programs`] and
    /// [`Child::kill`] find its processes.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn start(&self, mode: StdioMode, work: &str) -> io::Result<Child> {
        let mark = format!("{}:{work}", std::process::id());
        let mut output = None;
        let stdio = match mode {
            StdioMode::Merged => {
                let (reader, writer) = io::pipe()?;
                // A larger pipe allows larger reads. The system may have no memory for it.
                #[cfg(target_os = "linux")]
                rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES).ok();
                output = Some(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?);
                [
                    Stdio::null(),
                    Stdio::from(writer.try_clone()?),
                    Stdio::from(writer),
                ]
            }
            StdioMode::Separate => [Stdio::piped(), Stdio::piped(), Stdio::piped()],
        };
        let [stdin, stdout, stderr] = stdio;
        let mut command = CommandWrap::with_new(&self.path, |command| {
            command
                .args(&self.args)
                .current_dir(&self.cwd)
                .env_clear()
                .envs(&self.env)
                .env(MARK, &mark);
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            if self.begins_session && self.is_guarded {
                // The guard stays outside; only the program that it starts begins a session.
                command.process_group(0);
            }
        });
        // Any work between fork and exec makes the standard library copy the process.
        if !self.begins_session {
            command.wrap(ProcessSession);
        }
        command.wrap(KillOnDrop);
        STARTED.store(true, Ordering::Relaxed);
        let passed = self.passed.as_ref().and_then(|passed| lock(passed).take());
        // The command owns copies of the pipe's writing end, so it is dropped with this thread's
        // work; otherwise the output would never end.
        let inherited = self.inherited.clone();
        let child = on_lasting_thread(move || spawn(command, passed, inherited.as_deref()))??;
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        group.inspect(|pid| lower_files(*pid));
        Ok(Child {
            child,
            group,
            is_guarded: self.is_guarded,
            output,
            mark,
            ended: None,
            files: None,
        })
    }

    /// Starts the program so that it outlives this process: it has no pipes, and this process never
    /// ends it. It begins a session itself.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn start_detached(&self) -> io::Result<()> {
        let command = CommandWrap::with_new(&self.path, |command| {
            command
                .args(&self.args)
                .current_dir(&self.cwd)
                .env_clear()
                .envs(&self.env);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        });
        let passed = self.passed.as_ref().and_then(|passed| lock(passed).take());
        on_lasting_thread(move || spawn(command, passed, None).map(drop))?
    }

    /// Returns the reason why the program cannot be started, with advice for the user.
    pub fn explain_start_error(&self, e: &io::Error) -> String {
        let name = self.path.display();
        match e.kind() {
            io::ErrorKind::NotFound if !self.cwd.is_dir() => {
                format!("its directory {} does not exist", self.cwd.display())
            }
            io::ErrorKind::NotFound if Path::new(&self.path).components().count() > 1 => {
                format!("there is no program {name}")
            }
            io::ErrorKind::NotFound => {
                format!("there is no program {name} on PATH; install it, or give its whole path")
            }
            io::ErrorKind::PermissionDenied => format!("{name} cannot be executed: {e}"),
            _ => format!("it cannot be started: {e}"),
        }
    }

    /// Runs the program to its end, and collects its output, at most 64 MiB of either stream. It is
    /// killed after `limit`. For programs that adjutant itself needs, such as git.
    ///
    /// # Errors
    /// Errors of the system; `TimedOut` after `limit`, in which the wait for a slot is not counted;
    /// `FileTooLarge` for more output.
    pub async fn run(&self, limit: Duration) -> io::Result<ProgramOutput> {
        self.run_in(slot(self.owner).await?, limit).await
    }

    /// Does the same as [`Program::run`], in a slot that the caller already has.
    ///
    /// # Errors
    /// Same as [`Program::run`].
    pub async fn run_in(&self, slot: ProgramSlot, limit: Duration) -> io::Result<ProgramOutput> {
        const MAX_OUTPUT_BYTES: u64 = 64 << 20;
        let mut child = self.start(StdioMode::Separate, "own")?;
        child.occupy(slot);
        let (stdin, stdout, stderr) = child.streams();
        drop(stdin);
        let work = async {
            let (stdout, stderr) = tokio::try_join!(
                read_all(stdout, MAX_OUTPUT_BYTES),
                read_all(stderr, MAX_OUTPUT_BYTES)
            )?;
            Ok(ProgramOutput {
                status: child.wait().await?,
                stdout,
                stderr,
            })
        };
        match tokio::time::timeout(limit, work).await {
            Ok(ran) => ran,
            Err(_) => {
                child.kill(Duration::ZERO).await;
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Runs the program to its end with `input` on its stdin, which it need not read, and collects
    /// its output, at most `max_bytes` of either stream. Processes that it leaves running are
    /// ended.
    ///
    /// # Errors
    /// Same as [`Program::run`].
    pub async fn run_with_input(
        &self,
        input: &[u8],
        max_bytes: u64,
        limit: Duration,
    ) -> io::Result<ProgramOutput> {
        let slot = slot(self.owner).await?;
        let mut child = self.start(StdioMode::Separate, "hook")?;
        child.occupy(slot);
        let answered = tokio::time::timeout(limit, talk(&mut child, input, max_bytes)).await;
        if !matches!(answered, Ok(Ok(_))) || child.has_running_descendants() {
            child.kill(Duration::ZERO).await;
        }
        answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Runs work on a thread that lives as long as this process.
///
/// The system binds a program to the life of the thread that started it, if the program is bound to
/// this process, and the threads of tools end when they are idle.
fn on_lasting_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    type StartRequest = Box<dyn FnOnce() + Send>;
    static STARTER: Mutex<Option<mpsc::Sender<StartRequest>>> = Mutex::new(None);
    #[cfg(target_os = "linux")]
    if rustix::thread::gettid() == rustix::process::getpid() {
        return Ok(work());
    }
    let (reply, done) = mpsc::sync_channel(1);
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let request: StartRequest = Box::new(move || {
        let _entered = runtime.enter();
        reply.send(work()).ok();
    });
    {
        let mut starter = lock(&STARTER);
        let sender = match starter.take() {
            Some(sender) => sender,
            None => {
                let (sender, waiting) = mpsc::channel::<StartRequest>();
                // A panicking start must not end the thread, because that would end other programs.
                let run = move || {
                    waiting
                        .iter()
                        .for_each(|request| drop(catch_unwind(AssertUnwindSafe(request))))
                };
                std::thread::Builder::new()
                    .name("starter".into())
                    .spawn(run)?;
                sender
            }
        };
        // If the thread has ended, the next call starts another.
        if sender.send(request).is_ok() {
            *starter = Some(sender);
        }
    }
    done.recv().map_err(io::Error::other)
}

/// Starts a program. The passed and the inherited descriptor stay open in it, and in no other
/// program.
fn spawn(
    mut command: CommandWrap,
    passed: Option<OwnedFd>,
    inherited: Option<&OwnedFd>,
) -> io::Result<Box<dyn ChildWrapper>> {
    if passed.is_none() && inherited.is_none() {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        return command.spawn();
    }
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    for descriptor in passed.iter().chain(inherited) {
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    let started = command.spawn();
    // Both before another program may be started.
    drop(passed);
    if let Some(inherited) = inherited {
        fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    }
    started
}

/// Writes a child's input, and reads its output until it has ended.
async fn talk(child: &mut Child, input: &[u8], max_bytes: u64) -> io::Result<ProgramOutput> {
    /// The time that remaining processes may keep the pipes open after the program has ended.
    const PIPE_GRACE: Duration = Duration::from_millis(200);
    let (stdin, stdout, stderr) = child.streams();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program need not read its input.
            stdin.write_all(input).await.ok();
        }
        Ok(())
    };
    let reading = async {
        tokio::try_join!(
            read_all(stdout, max_bytes),
            read_all(stderr, max_bytes),
            feed
        )
    };
    let mut reading = std::pin::pin!(reading);
    let early = tokio::select! {
        read = &mut reading => Some(read?),
        status = child.wait() => status.map(|_| None)?,
    };
    let (stdout, stderr, ()) = match early {
        Some(read) => read,
        None => match tokio::time::timeout(PIPE_GRACE, &mut reading).await {
            Ok(read) => read?,
            Err(_) => {
                child.kill(Duration::ZERO).await;
                reading.await?
            }
        },
    };
    Ok(ProgramOutput {
        status: child.wait().await?,
        stdout,
        stderr,
    })
}

/// Reads a stream to its end. Returns `FileTooLarge` if it has more than `max_bytes`.
async fn read_all(from: Option<impl AsyncRead + Unpin>, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let read = from.take(max_bytes + 1).read_to_end(&mut bytes).await?;
        if u64::try_from(read).unwrap_or(u64::MAX) > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(bytes)
}

/// A running program. Dropping it kills its group, unless it has ended.
#[derive(Debug)]
pub struct Child {
    child: Box<dyn ChildWrapper>,
    /// The process group, whose id is that of the program; `None` if it ended at once.
    group: Option<Pid>,
    /// True if a guard started it: see [`Program::guarded_by`].
    is_guarded: bool,
    /// The output, for [`StdioMode::Merged`].
    pub output: Option<pipe::Receiver>,
    /// The value of [`MARK`] in its environment.
    mark: String,
    /// Its exit status, once it was waited for.
    ended: Option<ExitStatus>,
    /// Its share in the limit on open files.
    files: Option<ProgramFiles>,
}

/// The pipes of a child's stdin, stdout and stderr.
pub type Streams = (
    Option<tokio::process::ChildStdin>,
    Option<tokio::process::ChildStdout>,
    Option<tokio::process::ChildStderr>,
);

impl Child {
    /// Keeps a slot until the program is dropped.
    pub fn occupy(&mut self, slot: ProgramSlot) {
        self.files = Some(ProgramFiles::Slot(slot));
    }

    /// Declares that the program continues for as long as its session, which needs `files` for it
    /// instead of a slot.
    pub fn outlast(&mut self, files: SessionFiles) {
        self.files = Some(ProgramFiles::Lasting(files));
    }

    /// Takes the pipes, for [`StdioMode::Separate`]. Each can be taken once.
    pub fn streams(&mut self) -> Streams {
        (
            self.child.stdin().take(),
            self.child.stdout().take(),
            self.child.stderr().take(),
        )
    }

    /// Waits for the end of the program, but not of processes that it started, and returns its exit
    /// status. May be cancelled and called again.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = self.child.inner_mut().wait().await?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Returns whether a process that it started is still running. Zombies do not count, if the
    /// system shows them as such.
    pub fn has_running_descendants(&self) -> bool {
        if self.is_guarded && self.ended.is_some() {
            return false;
        }
        let Some(group) = self.group else {
            return false;
        };
        if rustix::process::test_kill_process_group(group).is_err() {
            return false;
        }
        let mut all = processes().filter_map(ProcessStat::read).peekable();
        all.peek().is_none()
            || all.any(|process| process.group == group.as_raw_nonzero().get() && !process.is_dead)
    }

    /// Ends the program and everything it started, with SIGTERM, and with SIGKILL after `grace` (or
    /// at once if it is zero). When this returns, all processes have ended, or cannot be killed.
    pub async fn kill(&mut self, grace: Duration) {
        if !grace.is_zero() {
            self.signal(Signal::TERM).await;
            let deadline = Instant::now() + grace;
            timeout_at(deadline, self.wait()).await.ok();
        }
        self.signal(Signal::KILL).await;
        if let Err(e) = self.wait().await {
            tracing::warn!("a killed child could not be waited for: {e}");
        }
        // Processes may have been started while the signals were sent.
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            let family = self.signal(Signal::KILL).await;
            if family.is_empty() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return tracing::warn!("something that a child started cannot be killed");
            }
            let ends = move || await_ends(&family, left);
            base::task::spawn_blocking(ends).await.ok();
        }
    }

    /// Signals the group and the processes that have left it. Returns the living processes of both.
    async fn signal(&self, signal: Signal) -> Vec<Pid> {
        let group = self.group;
        let mark = self.mark.clone();
        // SIGTERM to the guard would kill the others at once.
        let spared = if self.is_guarded && signal == Signal::TERM {
            group
        } else {
            None
        };
        let work = move || {
            let family = family(group, |value| value == mark.as_bytes());
            if let Some(group) = group
                && spared.is_none()
            {
                rustix::process::kill_process_group(group, signal).ok();
            }
            for process in family.iter().filter(|process| Some(**process) != spared) {
                rustix::process::kill_process(*process, signal).ok();
            }
            family
        };
        base::task::spawn_blocking(work).await.unwrap_or_else(|e| {
            tracing::warn!("looking for a child's family failed: {e}");
            Vec::new()
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If the program was waited for, its id may belong to another process by now.
        if let (Some(group), None) = (self.group, self.ended) {
            rustix::process::kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// Kills all processes that programs of this process have left running. To be called at the end of
/// the process; blocks for some milliseconds.
pub fn end_own_programs() {
    if STARTED.load(Ordering::Relaxed) {
        kill_programs_of(std::process::id());
    }
}

/// Kills all processes that programs of another process of adjutant have left running, and returns
/// when they have ended, or cannot be killed.
#[cfg(target_os = "linux")]
pub(crate) fn end_programs_of(adjutant: u32) {
    // Processes may be started while others are killed.
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let family = kill_programs_of(adjutant);
        let left = deadline.saturating_duration_since(Instant::now());
        if family.is_empty() || left.is_zero() {
            return;
        }
        await_ends(&family, left);
    }
}

/// Kills the processes that carry the mark of a process of adjutant, and returns them.
fn kill_programs_of(adjutant: u32) -> Vec<Pid> {
    let programs = programs_of(adjutant);
    for process in &programs {
        rustix::process::kill_process(*process, Signal::KILL).ok();
    }
    programs
}

/// Returns the living processes that carry the mark of a process of adjutant.
fn programs_of(adjutant: u32) -> Vec<Pid> {
    let mark = format!("{adjutant}:");
    family(None, |value| value.starts_with(mark.as_bytes()))
}

/// Returns the ids of the living processes that programs of this process have started, and of these
/// programs (Linux); elsewhere the result is empty.
pub fn programs() -> Vec<u32> {
    let programs = programs_of(std::process::id()).into_iter();
    programs
        .map(|program| program.as_raw_nonzero().get().unsigned_abs())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::child_environment::Variables;

    /// Returns an environment whose home directory is removed with the guard.
    fn environment() -> (Environment, tempfile::TempDir) {
        let home = tempfile::tempdir().unwrap();
        let vars = BTreeMap::from([
            ("HOME".to_owned(), home.path().display().to_string()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ]);
        (Environment::from_vars(vars), home)
    }

    #[tokio::test]
    async fn run_collects_output() {
        let (environment, _home) = environment();
        let limit = Duration::from_secs(20);
        let program = |name| Program::with_environment(name, Path::new("/"), &environment);
        let script = program("sh").args(["-c", "echo a; echo b >&2; exit 3"]);
        let ran = script.run(limit).await.unwrap();
        assert_eq!(ran.status.code(), Some(3));
        assert_eq!(ran.stdout, b"a\n");
        assert_eq!(ran.stderr, b"b\n");
        let slow = program("sleep")
            .args(["60"])
            .run(Duration::from_millis(50))
            .await;
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let missing = program("no-such-program-here").run(limit).await;
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn answer_collects_output_for_input() {
        let (environment, _home) = environment();
        let env = Variables::default().for_model_program(&environment);
        let run_script = async |script: &str, input: &[u8], limit: u64| {
            let program = Program::new("sh", "/", env.clone()).args(["-c", script]);
            program
                .run_with_input(input, 1_000, Duration::from_millis(limit))
                .await
                .map(|ran| (ran.status.code(), ran.stdout))
        };
        let large = vec![b'x'; 1 << 20];
        let began = Instant::now();
        assert_eq!(
            run_script("cat; exit 2", b"hello", 9_000).await.unwrap(),
            (Some(2), b"hello".to_vec())
        );
        assert_eq!(
            run_script("wc -c | tr -d ' \\n'", &large, 9_000)
                .await
                .unwrap(),
            (Some(0), b"1048576".to_vec())
        );
        // Input may stay unread, and remaining processes do not delay the answer.
        assert_eq!(
            run_script("echo a; sleep 66 &", &large, 9_000)
                .await
                .unwrap(),
            (Some(0), b"a\n".to_vec())
        );
        assert_eq!(
            run_script("sleep 67", b"", 50).await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(
            run_script("yes", b"", 9_000).await.unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test]
    async fn kill_ends_all_descendants() {
        let script = "trap '' TERM; sleep 61 & setsid sleep 62 & (setsid sleep 63 &) ; env -i setsid sleep 64 & echo ready; wait";
        let (environment, _home) = environment();
        let program = Program::new(
            "bash",
            "/",
            Variables::default().for_model_program(&environment),
        )
        .args(["-c", script]);
        let mut child = program.start(StdioMode::Merged, "family").unwrap();
        let mut output = child.output.take().unwrap();
        let mut text = [0; 6];
        output.read_exact(&mut text).await.unwrap();
        let mark = child.mark.clone();
        let group = child.group;
        let began = Instant::now();
        child.kill(Duration::from_millis(50)).await;
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        assert!(!child.has_running_descendants());
        // Zombies may be waiting for init; their environment is empty then.
        assert_eq!(family(group, |value| value == mark.as_bytes()), []);
    }

    #[tokio::test]
    async fn dropped_child_is_killed() {
        let (environment, _home) = environment();
        let program = Program::new(
            "sh",
            "/",
            Variables::default().for_model_program(&environment),
        )
        .args(["-c", "sleep 65 & wait"]);
        let mut child = program.start(StdioMode::Merged, "dropped").unwrap();
        let mut output = child.output.take().unwrap();
        drop(child);
        // Both processes have the pipe open; it ends when both have ended.
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), output.read_to_end(&mut rest))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn program_has_no_terminal() {
        let limit = Duration::from_secs(20);
        let (environment, _home) = environment();
        let program = Program::with_environment("sh", Path::new("/"), &environment);
        let program = program.args(["-c", "cat; : < /dev/tty"]);
        let ran = program.run(limit).await.unwrap();
        assert!(!ran.status.success());
    }
}
