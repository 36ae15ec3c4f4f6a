//! The only place that starts a program.
//!
//! Every program gets a session of its own (and so a process group, and no controlling terminal:
//! nothing can ask for a password behind our back), `/dev/null` or a pipe as stdin, pipes of its own
//! for its output, never ours. Dropping a [`Child`] kills its group.
//!
//! Programs that leave their group (`setsid`) are found on Linux by the mark in their environment
//! and by their parents, both from `/proc`; elsewhere only the group is ended. After a SIGKILL of this
//! process its children finish by themselves, unless they were started through `sandbox.rs`, which
//! binds them to our life on Linux; [`sweep`] ends everything on every other way out.

mod family;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessSession};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

pub use self::family::{MARK, be_known, is_ours};
use self::family::{ProcessStat, family, processes};
use base::environment::Environment;
use base::lock::locked;
use base::open_files;

/// Held while a program is started: for reading, or for writing if a descriptor is passed on to it, which nothing
/// else that is started at that moment may get.
static STARTING: RwLock<()> = RwLock::new(());

/// Whether this process has started a program: if not, there is nothing to look for at its end.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Gives a program the limit on open files that we had. It may have begun by then: what can do so sets
/// [`open_files::of_programs`] by itself.
fn lower_files(pid: Pid) {
    #[cfg(target_os = "linux")]
    if let Some(before) = open_files::of_programs() {
        let limit = Rlimit { current: Some(before), maximum: getrlimit(Resource::Nofile).maximum };
        // One that has ended already has no use for it.
        rustix::process::prlimit(Some(pid), Resource::Nofile, limit).ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pid;
}

#[derive(Debug, Clone)]
pub struct Program {
    path: OsString,
    args: Vec<OsString>,
    cwd: PathBuf,
    env: BTreeMap<OsString, OsString>,
    /// The first process only watches over the others, which end with it.
    guarded: bool,
    /// It begins a session by itself, before anything else.
    begins_session: bool,
    /// A descriptor that it gets under the same number, once.
    passed: Option<Arc<Mutex<Option<OwnedFd>>>>,
}

/// The room of a pipe that a program prints to, in bytes: the most that an ordinary user may ask for.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// What is done with a program's stdout and stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioMode {
    /// Both into one pipe, in the order they are written: [`Child::output`]. Stdin is empty.
    Merged,
    /// Three pipes: [`Child::streams`].
    Separate,
}

#[derive(Debug, Clone)]
pub struct ProgramOutput {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
}

impl Program {
    /// A program by its path, or by its name if it is to be looked for in the `PATH` of `env`.
    pub fn new(path: impl Into<OsString>, cwd: impl Into<PathBuf>, env: BTreeMap<OsString, OsString>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            env,
            guarded: false,
            begins_session: false,
            passed: None,
        }
    }

    #[must_use]
    pub fn args<I: Into<OsString>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Has another program start it: that one gets `args`, then this one with its own.
    #[must_use]
    pub fn behind(self, path: impl Into<OsString>, args: Vec<OsString>) -> Self {
        let args = args.into_iter().chain([self.path]).chain(self.args).collect();
        Self { path: path.into(), args, ..self }
    }

    /// Has a program start it that ends it, and all it started, when it is ended itself.
    #[must_use]
    pub fn guarded_by(self, path: impl Into<OsString>, args: Vec<OsString>) -> Self {
        Self { guarded: true, ..self.behind(path, args) }
    }

    /// It begins a session by itself, before anything else. So it can be started without a copy of this process,
    /// which takes a millisecond and more of memory that is much in use.
    #[must_use]
    pub fn begins_session(self) -> Self {
        Self { begins_session: true, ..self }
    }

    /// Passes a descriptor on to it, under the number it has here. It is closed here when the program was started, or
    /// will not be.
    #[must_use]
    pub fn passing(self, descriptor: OwnedFd) -> Self {
        Self { passed: Some(Arc::new(Mutex::new(Some(descriptor)))), ..self }
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets a variable that has no value yet.
    #[must_use]
    pub fn env_if_unset(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.entry(name.into()).or_insert_with(|| value.into());
        self
    }

    /// Starts it. `work` names what it is for; [`sweep`] and [`Child::kill`] find it by that.
    ///
    /// # Errors
    /// The system's, when it cannot be started.
    pub fn start(&self, wiring: StdioMode, work: &str) -> io::Result<Child> {
        let mark = format!("{}:{work}", std::process::id());
        let mut together = None;
        let stdio = match wiring {
            StdioMode::Merged => {
                let (reader, writer) = io::pipe()?;
                // What prints much is read in larger pieces. The system may have no room for that.
                #[cfg(target_os = "linux")]
                rustix::pipe::fcntl_setpipe_size(&reader, PIPE).ok();
                together = Some(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?);
                [Stdio::null(), Stdio::from(writer.try_clone()?), Stdio::from(writer)]
            }
            StdioMode::Separate => [Stdio::piped(), Stdio::piped(), Stdio::piped()],
        };
        let [stdin, stdout, stderr] = stdio;
        let mut command = CommandWrap::with_new(&self.path, |command| {
            command.args(&self.args).current_dir(&self.cwd).env_clear().envs(&self.env).env(MARK, &mark);
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            if self.begins_session && self.guarded {
                // Only what its guard starts begins one.
                command.process_group(0);
            }
        });
        // Whatever has to be done between fork and exec makes the standard library copy the process.
        if !self.begins_session {
            command.wrap(ProcessSession);
        }
        command.wrap(KillOnDrop);
        STARTED.store(true, Ordering::Relaxed);
        let passed = self.passed.as_ref().and_then(|passed| locked(passed).take());
        // The command holds our copies of the pipe's writing end, and ends with this; with them it would never end.
        let child = on_lasting_thread(move || spawn(command, passed))??;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        group.inspect(|pid| lower_files(*pid));
        Ok(Child { child, group, guarded: self.guarded, output: together, mark, ended: None })
    }

    /// Starts it so that it outlives this process: it has no pipes, and nothing here ends it, now or later. It begins a
    /// session by itself.
    ///
    /// # Errors
    /// The system's, when it cannot be started.
    pub fn start_apart(&self) -> io::Result<()> {
        let command = CommandWrap::with_new(&self.path, |command| {
            command.args(&self.args).current_dir(&self.cwd).env_clear().envs(&self.env);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        });
        let passed = self.passed.as_ref().and_then(|passed| locked(passed).take());
        on_lasting_thread(move || spawn(command, passed).map(drop))?
    }

    /// Why it cannot be started, and what to do, for a person.
    pub fn unstarted(&self, e: &io::Error) -> String {
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

    /// Runs it to its end and collects what it writes, at most 64 MiB of either stream. For programs
    /// of ours, such as git; killed after `limit`.
    ///
    /// # Errors
    /// The system's; `TimedOut` after `limit`, `FileTooLarge` for more output than that.
    pub async fn run(&self, limit: Duration) -> io::Result<ProgramOutput> {
        const MOST: u64 = 64 << 20;
        let mut child = self.start(StdioMode::Separate, "own")?;
        let (stdin, stdout, stderr) = child.streams();
        drop(stdin);
        let work = async {
            let (stdout, stderr) = tokio::try_join!(whole(stdout, MOST), whole(stderr, MOST))?;
            Ok(ProgramOutput { status: child.wait().await?, stdout, stderr })
        };
        match tokio::time::timeout(limit, work).await {
            Ok(ran) => ran,
            Err(_) => {
                child.kill(Duration::ZERO).await;
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Runs it to its end with `input` on its stdin, which it need not read, and collects what it writes, at
    /// most `most` bytes of either stream. What it leaves running is ended with it.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub async fn answer(&self, input: &[u8], most: u64, limit: Duration) -> io::Result<ProgramOutput> {
        let mut child = self.start(StdioMode::Separate, "hook")?;
        let answered = tokio::time::timeout(limit, talk(&mut child, input, most)).await;
        if !matches!(answered, Ok(Ok(_))) || child.left_something() {
            child.kill(Duration::ZERO).await;
        }
        answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Does it on a thread that lives as long as this process. The system binds a program whose life is bound to ours to the
/// life of the thread that has started it, and the threads on which tools work end when there is nothing to do.
fn on_lasting_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    type Starts = Box<dyn FnOnce() + Send>;
    static STARTER: Mutex<Option<mpsc::Sender<Starts>>> = Mutex::new(None);
    #[cfg(target_os = "linux")]
    if rustix::thread::gettid() == rustix::process::getpid() {
        return Ok(work());
    }
    let (reply, done) = mpsc::sync_channel(1);
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let starts: Starts = Box::new(move || {
        let _entered = runtime.enter();
        reply.send(work()).ok();
    });
    {
        let mut starter = locked(&STARTER);
        let sender = match starter.take() {
            Some(sender) => sender,
            None => {
                let (sender, waiting) = mpsc::channel::<Starts>();
                // A start that panics ends nothing else: programs end with the thread that started them.
                let run = move || waiting.iter().for_each(|starts| drop(catch_unwind(AssertUnwindSafe(starts))));
                std::thread::Builder::new().name("starter".into()).spawn(run)?;
                sender
            }
        };
        // One whose thread has ended is not kept: the next one makes another.
        if sender.send(starts).is_ok() {
            *starter = Some(sender);
        }
    }
    done.recv().map_err(io::Error::other)
}

/// Starts a program. A descriptor stays open in it, and in no other.
fn spawn(mut command: CommandWrap, passed: Option<OwnedFd>) -> io::Result<Box<dyn ChildWrapper>> {
    let Some(passed) = passed else {
        let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        return command.spawn();
    };
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    rustix::io::fcntl_setfd(passed.as_fd(), rustix::io::FdFlags::empty())?;
    let started = command.spawn();
    // Closed before another program may be started.
    drop(passed);
    started
}

/// Gives a child its input and takes what it writes until it has ended.
async fn talk(child: &mut Child, input: &[u8], most: u64) -> io::Result<ProgramOutput> {
    /// How long what it leaves behind may hold its pipes.
    const GRACE: Duration = Duration::from_millis(200);
    let (stdin, stdout, stderr) = child.streams();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // Whoever does not read it has no use for it.
            stdin.write_all(input).await.ok();
        }
        Ok(())
    };
    let reading = async { tokio::try_join!(whole(stdout, most), whole(stderr, most), feed) };
    let mut reading = std::pin::pin!(reading);
    let early = tokio::select! {
        read = &mut reading => Some(read?),
        status = child.wait() => status.map(|_| None)?,
    };
    let (stdout, stderr, ()) = match early {
        Some(read) => read,
        None => match tokio::time::timeout(GRACE, &mut reading).await {
            Ok(read) => read?,
            Err(_) => {
                child.kill(Duration::ZERO).await;
                reading.await?
            }
        },
    };
    Ok(ProgramOutput { status: child.wait().await?, stdout, stderr })
}

async fn whole(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let read = from.take(most + 1).read_to_end(&mut bytes).await?;
        if u64::try_from(read).unwrap_or(u64::MAX) > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    Ok(bytes)
}

/// Runs a program of ours (git, for instance) with our whole environment and collects its output.
///
/// # Errors
/// As [`Program::run`].
pub async fn run(
    program: &str,
    args: &[&str],
    cwd: &Path,
    env: &[(&str, &str)],
    environment: &Environment,
    limit: Duration,
) -> io::Result<ProgramOutput> {
    let all = environment.vars().chain(env.iter().copied());
    let env = all.map(|(name, value)| (name.into(), value.into())).collect();
    Program::new(program, cwd, env).args(args.iter().copied()).run(limit).await
}

#[derive(Debug)]
pub struct Child {
    child: Box<dyn ChildWrapper>,
    group: Option<Pid>,
    guarded: bool,
    /// What it writes, for [`StdioMode::Merged`].
    pub output: Option<pipe::Receiver>,
    mark: String,
    ended: Option<ExitStatus>,
}

/// The three pipes of a child.
pub type Streams =
    (Option<tokio::process::ChildStdin>, Option<tokio::process::ChildStdout>, Option<tokio::process::ChildStderr>);

impl Child {
    /// Takes its pipes, for [`StdioMode::Separate`]; each can be taken once.
    pub fn streams(&mut self) -> Streams {
        (self.child.stdin().take(), self.child.stdout().take(), self.child.stderr().take())
    }

    /// Waits for its end. What it started may live on. May be dropped and called again.
    ///
    /// # Errors
    /// The system's.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = self.child.inner_mut().wait().await?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Whether something it started is still running. The dead that nobody has taken note of do not
    /// count, where that can be seen.
    pub fn left_something(&self) -> bool {
        if self.guarded && self.ended.is_some() {
            return false;
        }
        let Some(group) = self.group.filter(|group| rustix::process::test_kill_process_group(*group).is_ok()) else {
            return false;
        };
        let mut all = processes().filter_map(ProcessStat::look).peekable();
        all.peek().is_none() || all.any(|process| process.group == group.as_raw_nonzero().get() && !process.dead)
    }

    /// Ends it and everything it started: asks, and after `grace` (or at once, for zero) does not
    /// ask any more. All of it is dead when this returns, or cannot be killed.
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
        // Whatever was being started while the signals went out, and whatever takes a moment to
        // die: these are not our children, so nobody tells us when they are gone.
        for _ in 0..50 {
            if self.signal(Signal::KILL).await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tracing::warn!("something that a child started cannot be killed");
    }

    /// Signals the group and what has left it; returns how many there were.
    async fn signal(&self, signal: Signal) -> usize {
        let (group, mark) = (self.group, self.mark.clone());
        // Asking the guard to end would be no question to the others.
        let spared = group.filter(|_| self.guarded && signal == Signal::TERM);
        let work = move || {
            let family = family(group, |value| value == mark.as_bytes());
            if let Some(group) = group.filter(|_| spared.is_none()) {
                rustix::process::kill_process_group(group, signal).ok();
            }
            for process in family.iter().filter(|process| Some(**process) != spared) {
                rustix::process::kill_process(*process, signal).ok();
            }
            family.len()
        };
        base::task::spawn_blocking(work).await.unwrap_or_else(|e| {
            tracing::warn!("looking for a child's family failed: {e}");
            0
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Only if nobody has waited for it: after that the number may belong to someone else.
        if let (Some(group), None) = (self.group, self.ended) {
            rustix::process::kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// Kills everything that programs started by this process have left running. For the end of the
/// process; blocks for some milliseconds.
pub fn sweep() {
    if !STARTED.load(Ordering::Relaxed) {
        return;
    }
    let ours = format!("{}:", std::process::id());
    for process in family(None, |value| value.starts_with(ours.as_bytes())) {
        rustix::process::kill_process(process, Signal::KILL).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::variables::Variables;

    /// Surroundings with a home that goes when the test does.
    fn environment() -> (Environment, tempfile::TempDir) {
        let home = tempfile::tempdir().unwrap();
        let vars = BTreeMap::from([
            ("HOME".to_owned(), home.path().display().to_string()),
            ("PATH".into(), "/usr/bin:/bin".into()),
        ]);
        (Environment::from_vars(vars), home)
    }

    #[tokio::test]
    async fn output_is_collected() {
        let (environment, _home) = environment();
        let limit = Duration::from_secs(20);
        let ran = run("sh", &["-c", "echo a; echo b >&2; exit 3"], Path::new("/"), &[("X", "y")], &environment, limit)
            .await
            .unwrap();
        assert_eq!((ran.status.code(), &ran.stdout[..], &ran.stderr[..]), (Some(3), &b"a\n"[..], &b"b\n"[..]));
        let slow = run("sleep", &["60"], Path::new("/"), &[], &environment, Duration::from_millis(50)).await;
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let missing = run("no-such-program-here", &[], Path::new("/"), &[], &environment, limit).await;
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_program_answers_what_it_is_given() {
        let (environment, _home) = environment();
        let env = Variables::default().tame(&environment);
        let answer = async |script: &str, input: &[u8], limit: u64| {
            let program = Program::new("sh", "/", env.clone()).args(["-c", script]);
            program.answer(input, 1_000, Duration::from_millis(limit)).await.map(|ran| (ran.status.code(), ran.stdout))
        };
        let large = vec![b'x'; 1 << 20];
        let began = Instant::now();
        assert_eq!(answer("cat; exit 2", b"hello", 9_000).await.unwrap(), (Some(2), b"hello".to_vec()));
        assert_eq!(answer("wc -c | tr -d ' \\n'", &large, 9_000).await.unwrap(), (Some(0), b"1048576".to_vec()));
        // Nobody has to read it, and what stays behind holds nobody up.
        assert_eq!(answer("echo a; sleep 66 &", &large, 9_000).await.unwrap(), (Some(0), b"a\n".to_vec()));
        assert_eq!(answer("sleep 67", b"", 50).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(answer("yes", b"", 9_000).await.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn the_whole_family_dies() {
        let script = "trap '' TERM; sleep 61 & setsid sleep 62 & (setsid sleep 63 &) ; env -i setsid sleep 64 & echo ready; wait";
        let (environment, _home) = environment();
        let program = Program::new("bash", "/", Variables::default().tame(&environment)).args(["-c", script]);
        let mut child = program.start(StdioMode::Merged, "family").unwrap();
        let mut output = child.output.take().unwrap();
        let mut text = [0; 6];
        output.read_exact(&mut text).await.unwrap();
        let mark = child.mark.clone();
        let group = child.group;
        let began = Instant::now();
        child.kill(Duration::from_millis(50)).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(!child.left_something());
        // The dead may be waiting for init to take note of them; their environment is empty then.
        assert_eq!(family(group, |value| value == mark.as_bytes()), []);
    }

    #[tokio::test]
    async fn a_dropped_child_is_killed() {
        let (environment, _home) = environment();
        let program = Program::new("sh", "/", Variables::default().tame(&environment)).args(["-c", "sleep 65 & wait"]);
        let mut child = program.start(StdioMode::Merged, "dropped").unwrap();
        let mut output = child.output.take().unwrap();
        drop(child);
        // Both held the pipe; it ends when both are gone.
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), output.read_to_end(&mut rest)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn there_is_no_terminal() {
        let limit = Duration::from_secs(20);
        let (environment, _home) = environment();
        let ran = run("sh", &["-c", "cat; : < /dev/tty"], Path::new("/"), &[], &environment, limit).await.unwrap();
        assert!(!ran.status.success());
    }
}
