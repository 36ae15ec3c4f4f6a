//! Background jobs: commands that continue after their call has ended. Each has an id and a task of
//! its own, and ends with the session at the latest. A cancel of the turn does not end them,
//! because they are meant to outlive it.
//!
//! A job has ended when its shell has ended and no process that it started is left or could still
//! print.
//!
//! Memory holds both ends of a job's output and the unread part; a file holds the whole output. An
//! ended job remains readable until enough others have ended after it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use grep_matcher::Matcher;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::files::pattern::SearchPattern;
use crate::live::TerminalTail;
use crate::process::captured_output::CapturedOutput;
use crate::process::control_files::ControlFiles;
use crate::process::exit_status::ending;
use crate::process::sandboxing::CommandSandbox;
use base::id::CallId;
use base::lock::lock;
use base::open_files::{PER_PROGRAM, SessionFiles};
use base::text;
use base::worktree::Worktree;
use events::ProgramExit;
use sandbox::process::Child;
use transcript::CallFacts;

/// The maximum number of running jobs of a session.
pub const MAX_RUNNING: usize = 8;
/// The maximum number of ended jobs that remain readable.
const MAX_ENDED: usize = 8;
/// The maximum time for a job to end when it is stopped.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The maximum time for a job to end at the end of the session.
const SESSION_END_GRACE: Duration = Duration::from_millis(50);
/// The maximum time to read output after the end of the shell.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of bytes that are read before a pause. No call waits for a job that prints without
/// end, so it must not take time from calls that do wait.
const MAX_BURST_BYTES: usize = 1 << 20;
/// The pause after so many bytes.
const BURST_PAUSE: Duration = Duration::from_millis(50);
/// The interval for checking whether processes that a shell has left behind are still running;
/// there is no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A command that is handed over to the background.
pub(crate) struct DetachedCommand {
    pub(crate) child: Child,
    pub(crate) pipe: pipe::Receiver,
    /// True if the pipe is still open.
    pub(crate) open: bool,
    /// The output so far, for the model.
    pub(crate) printed: CapturedOutput,
    /// The output so far as a terminal gets it.
    pub(crate) tail: TerminalTail,
    pub(crate) sandbox: CommandSandbox,
    /// The control files before the command.
    pub(crate) watch: ControlFiles,
    pub(crate) worktree: Arc<Worktree>,
    /// The time after which it is ended; `None` for no limit.
    pub(crate) limit: Option<Duration>,
}

/// A job that has ended.
#[derive(Debug, Clone)]
pub struct EndedJob {
    pub id: String,
    /// The call that left it in the background.
    pub call: CallId,
    pub command: String,
    /// The kind of its end, in a few words: "exit code 1".
    pub how: String,
    /// Its exit code, if it has one.
    pub code: Option<i32>,
    /// The file with its whole output; `None` if it could not be stored.
    pub path: Option<PathBuf>,
    /// The end of its output, in at most `MAX_TAIL_BYTES`.
    pub tail: String,
    /// True if its output has more than `tail`.
    pub is_cut: bool,
    /// The end of its output as a terminal gets it, if that has colours.
    pub coloured: Option<String>,
    /// The facts with which its call was shown as completed.
    pub facts: CallFacts,
    /// True if the model knows of the end already, by a result.
    pub is_known_to_model: bool,
}

/// The condition that a call waits for.
#[derive(Debug)]
pub(crate) enum WaitFor {
    /// The end of the job.
    End,
    /// New output that contains a line with this pattern.
    Output(Box<SearchPattern>),
}

/// The new output of a job.
pub(crate) struct JobOutput {
    pub(crate) text: String,
    /// True if the awaited condition was met.
    pub(crate) came: bool,
    /// The unread bytes that no longer fit in memory.
    pub(crate) skipped: u64,
    /// The kind of its end; `None` while it runs.
    pub(crate) how: Option<String>,
    /// Its exit code, if it has ended with one.
    pub(crate) code: Option<i32>,
    /// Notes for the model on its end.
    pub(crate) notes: Vec<String>,
    /// A sentence on the file with its whole output.
    pub(crate) whole: String,
}

/// A job, until it is removed from the list some time after its end.
struct RunningJob {
    id: String,
    /// The call that left it in the background.
    call: CallId,
    command: String,
    /// Cancelled when the job is to be ended, for the reason in [`JobProgress::halt`].
    stop: CancellationToken,
    /// Cancelled when the job has ended.
    over: CancellationToken,
    /// Notified of new output.
    printed: Notify,
    // A leaf lock, never held across an await.
    state: Mutex<JobProgress>,
}

/// The output and the end of a job, and the use that was made of them.
struct JobProgress {
    /// The output, for the model.
    printed: CapturedOutput,
    /// The end of the output as a terminal gets it.
    tail: TerminalTail,
    /// Unread output that cannot change any more.
    fresh: VecDeque<u8>,
    /// The output that could still change at the last read, in its state then.
    seen: Vec<u8>,
    /// The number of unread bytes that no longer fit in memory.
    skipped: u64,
    /// The reason for which it is being ended, and the time it may take.
    halt: Option<(&'static str, Duration)>,
    /// The kind of its end, in a few words, and its exit status; `None` while it runs.
    end: Option<(String, ProgramExit)>,
    /// Notes for the model on its end.
    notes: Vec<String>,
    /// True if a result has reported its end to the model.
    is_known_to_model: bool,
    /// True if its end was returned for the history.
    is_recorded: bool,
    /// The facts with which the call that started it was shown as completed; `None` before.
    announced: Option<CallFacts>,
    /// True if the editor was shown its end in its call.
    shown: bool,
    /// True if the editor was notified of its end.
    noticed: bool,
}

/// The background jobs of a session.
pub struct Jobs {
    // A leaf lock around a list.
    jobs: Mutex<Vec<Arc<RunningJob>>>,
    /// The number of the last id.
    last: AtomicU32,
    tasks: TaskTracker,
    /// Notified of the end of a job.
    job_ended: Arc<Notify>,
    /// True if the history may contain an end that the model does not know of.
    has_unknown_end: AtomicBool,
    /// Cancelled when the jobs are dropped without `end`.
    all: CancellationToken,
    /// Cancels `all` when it is dropped.
    _end: DropGuard,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::after(0)
    }
}

impl Jobs {
    /// Returns an empty list whose ids begin after this number.
    pub fn after(last: u32) -> Self {
        let all = CancellationToken::new();
        Self {
            jobs: Mutex::default(),
            last: AtomicU32::new(last),
            tasks: TaskTracker::new(),
            job_ended: Arc::default(),
            // Jobs of an earlier process may have ended without the model's knowledge.
            has_unknown_end: AtomicBool::new(true),
            _end: all.clone().drop_guard(),
            all,
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<RunningJob>>> {
        lock(&self.jobs)
    }

    /// Returns the number in an id; `None` if it is not the id of a job.
    pub fn number(id: &str) -> Option<u32> {
        id.strip_prefix("bash_")?.parse().ok()
    }

    /// Checks that another job may be started.
    ///
    /// # Errors
    /// A message for the model that lists the running jobs.
    pub fn check_capacity(&self) -> Result<(), String> {
        let running = self.running();
        if running.len() < MAX_RUNNING {
            return Ok(());
        }
        let lines: Vec<String> = running
            .iter()
            .map(|(id, command)| format!("- {id}: {command}"))
            .collect();
        Err(format!(
            "{MAX_RUNNING} commands are already running in the background, which is the limit. End one with bash_stop, or run this in the foreground.\n{}",
            lines.join("\n")
        ))
    }

    /// Returns the ids and command lines of the running jobs, the latter as one line.
    pub fn running(&self) -> Vec<(String, String)> {
        let list = self.list();
        let alive = list.iter().filter(|job| job.state().end.is_none());
        alive
            .map(|job| (job.id.clone(), text::title(&job.command)))
            .collect()
    }

    /// Returns id, command line and end of all jobs, for people. The end is `None` while a job
    /// runs.
    pub fn all(&self) -> Vec<(String, String, Option<String>)> {
        self.list().iter().map(|job| job.summary()).collect()
    }

    /// Takes over a command of a call. Returns its id and the path of the file with its output, if
    /// that could be created.
    pub(crate) fn add(
        &self,
        mut running: DetachedCommand,
        command: &str,
        call: &CallId,
    ) -> (String, Option<PathBuf>) {
        let id = format!("bash_{}", self.last.fetch_add(1, Ordering::Relaxed) + 1);
        running.printed.move_to_file();
        running
            .child
            .outlast(SessionFiles::take_unconditionally(PER_PROGRAM));
        let path = running.printed.path();
        let DetachedCommand {
            child,
            pipe,
            open,
            printed,
            tail,
            sandbox,
            watch,
            worktree,
            limit,
        } = running;
        let state = JobProgress {
            // The call that leaves it here has shown the output so far.
            seen: printed.live(),
            printed,
            tail,
            fresh: VecDeque::new(),
            skipped: 0,
            halt: None,
            end: None,
            notes: Vec::new(),
            is_known_to_model: false,
            is_recorded: false,
            announced: None,
            shown: false,
            noticed: false,
        };
        let job = Arc::new(RunningJob {
            id: id.clone(),
            call: call.clone(),
            command: command.to_owned(),
            stop: self.all.child_token(),
            over: CancellationToken::new(),
            printed: Notify::new(),
            state: Mutex::new(state),
        });
        {
            let mut list = self.list();
            let ended = list.iter().filter(|job| job.state().end.is_some()).count();
            if ended >= MAX_ENDED
                && let Some(oldest) = list
                    .iter()
                    .position(|job| job.over.is_cancelled() && job.state().is_recorded)
            {
                list.remove(oldest);
            }
            list.push(job.clone());
        }
        let follow = JobFollower {
            job,
            child,
            pipe,
            open,
            sandbox,
            watch,
            worktree,
            limit,
        };
        let job_ended = self.job_ended.clone();
        // On threads of its own, because its output may be a flood.
        let followed = base::task::poll_on_blocking_threads(async move {
            follow.run(&job_ended).await;
        });
        base::task::spawn_in(&self.tasks, followed);
        (id, path)
    }

    /// Returns whether there is no job, running or readable.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Returns whether there is a job with this id, running or readable.
    pub fn has(&self, id: &str) -> bool {
        self.list().iter().any(|job| job.id == id)
    }

    /// Records that the editor has been shown the history, with the end of the jobs that have it
    /// there.
    pub fn mark_recorded_as_shown(&self) {
        for job in self.list().iter() {
            let mut state = job.state();
            if state.is_recorded {
                state.shown = true;
                state.noticed = true;
            }
        }
    }

    /// Returns the job with this id, otherwise a message for the model with the known ids.
    fn find(&self, id: &str) -> Result<Arc<RunningJob>, String> {
        let list = self.list();
        if let Some(job) = list.iter().find(|job| job.id == id) {
            return Ok(job.clone());
        }
        let id = text::title(id);
        let known: Vec<&str> = list.iter().map(|job| job.id.as_str()).collect();
        Err(if known.is_empty() {
            format!("There is no background command \"{id}\"; there are none.")
        } else {
            format!(
                "There is no background command \"{id}\". There are: {}.",
                known.join(", ")
            )
        })
    }

    /// Returns the output since the last read. Waits for the condition `until` or the job's end,
    /// but not longer than `wait`.
    ///
    /// # Errors
    /// A message for the model if there is no job with this id.
    pub(crate) async fn read(
        &self,
        id: &str,
        wait: Duration,
        until: &WaitFor,
    ) -> Result<JobOutput, String> {
        let job = self.find(id)?;
        let waiting = async {
            loop {
                let printed = job.printed.notified();
                if job.shows(until) {
                    return;
                }
                tokio::select! {
                    () = job.over.cancelled() => return,
                    () = printed => {}
                }
            }
        };
        tokio::time::timeout(wait, waiting).await.ok();
        let came = job.shows(until);
        Ok(JobOutput { came, ..job.read() })
    }

    /// Ends a job and all its processes. `why` describes the end, for instance "terminated".
    /// Returns the description of the end, which is another one if the job had ended before.
    ///
    /// # Errors
    /// A message for the caller if there is no job with this id.
    pub async fn stop(&self, id: &str, why: &'static str) -> Result<String, String> {
        let job = self.find(id)?;
        job.state().halt.get_or_insert((why, STOP_GRACE));
        job.stop.cancel();
        job.over.cancelled().await;
        let how = job.state().end.as_ref().map(|(how, _)| how.clone());
        Ok(how.unwrap_or_default())
    }

    /// Records that the model knows by a result how a job ended.
    pub(crate) fn mark_reported(&self, id: &str) {
        if let Ok(job) = self.find(id) {
            job.state().is_known_to_model = true;
        }
    }

    /// Ends all jobs and their processes at the end of the session.
    pub async fn end(&self) {
        let jobs = self.list().clone();
        for job in &jobs {
            job.state()
                .halt
                .get_or_insert(("ended with the session", SESSION_END_GRACE));
        }
        self.all.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits for the end of a job that has not been reported.
    pub async fn await_end(&self) {
        self.job_ended.notified().await;
    }

    /// Returns whether the history may contain an end that the model does not know of. Returns true
    /// only once.
    pub fn take_unknown_end(&self) -> bool {
        self.has_unknown_end.swap(false, Ordering::Relaxed)
    }

    /// Returns the ended jobs for which `take` is true.
    fn ended(&self, take: impl Fn(&mut JobProgress) -> bool) -> Vec<EndedJob> {
        let list = self.list();
        list.iter()
            .filter_map(|job| {
                let mut state = job.state();
                if state.end.is_none() || !take(&mut state) {
                    return None;
                }
                let (how, exit) = state.end.clone()?;
                let shown = state.printed.shown_output();
                let tail = text::tail_lines(&shown.text, MAX_TAIL_BYTES).to_owned();
                let is_cut = shown.hint.is_some() || tail.len() < shown.text.len();
                Some(EndedJob {
                    id: job.id.clone(),
                    call: job.call.clone(),
                    command: job.command.clone(),
                    how,
                    code: exit.code,
                    path: state.printed.path(),
                    tail,
                    is_cut,
                    coloured: state.tail.coloured(),
                    facts: state.announced.clone().unwrap_or_default(),
                    is_known_to_model: state.is_known_to_model,
                })
            })
            .collect()
    }

    /// Returns the jobs that have ended since the last call, for the history.
    pub fn take_unrecorded_ends(&self) -> Vec<EndedJob> {
        let ended = self.ended(|state| !std::mem::replace(&mut state.is_recorded, true));
        if !ended.is_empty() {
            self.has_unknown_end.store(true, Ordering::Relaxed);
        }
        ended
    }

    /// Records that a call was shown as completed with these facts, so that its job may be shown as
    /// ended.
    pub fn announced(&self, call: &CallId, facts: &CallFacts) {
        for job in self.list().iter().filter(|job| job.call == *call) {
            let mut state = job.state();
            state.announced = Some(facts.clone());
            if state.end.is_some() {
                self.job_ended.notify_one();
            }
        }
    }

    /// Returns the jobs whose end the editor has not been shown in their calls.
    pub fn unshown(&self) -> Vec<EndedJob> {
        self.ended(|state| {
            state.noticed |= state.announced.is_some();
            state.announced.is_some() && !std::mem::replace(&mut state.shown, true)
        })
    }

    /// Returns the jobs whose end the editor has not been notified of.
    pub fn unnoticed(&self) -> Vec<EndedJob> {
        self.ended(|state| !std::mem::replace(&mut state.noticed, true))
    }
}

/// The maximum bytes of an ended job's output that are shown in its call.
const MAX_TAIL_BYTES: usize = 8 << 10;

impl RunningJob {
    /// Returns id, command line and end, for people.
    fn summary(&self) -> (String, String, Option<String>) {
        let how = self.state().end.as_ref().map(|(how, _)| how.clone());
        (self.id.clone(), text::command_title(&self.command), how)
    }

    /// Adds output, and wakes the calls that wait for it.
    fn push_bytes(&self, bytes: &[u8]) {
        self.state().push_bytes(bytes);
        self.printed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, JobProgress> {
        lock(&self.state)
    }

    /// Returns whether the awaited condition is met.
    fn shows(&self, until: &WaitFor) -> bool {
        match until {
            WaitFor::End => self.state().end.is_some(),
            WaitFor::Output(pattern) => {
                // The lock is not held while the pattern is matched.
                let output = self.state().unread_output();
                output.split(|byte| *byte == b'\n').any(|line| {
                    !line.is_empty() && pattern.matcher.is_match(line).unwrap_or_default()
                })
            }
        }
    }

    /// Returns the unread output, which is read then.
    fn read(&self) -> JobOutput {
        let mut state = self.state();
        let mut output = state.unread_output();
        // An incomplete character is not returned yet.
        if let Some(e) = std::str::from_utf8(&output)
            .err()
            .filter(|e| e.error_len().is_none() && state.end.is_none())
        {
            output.truncate(e.valid_up_to());
        }
        state.fresh.clear();
        state.seen = state.printed.live();
        state.is_known_to_model |= state.end.is_some();
        JobOutput {
            text: String::from_utf8_lossy(&output).into_owned(),
            came: true,
            skipped: std::mem::take(&mut state.skipped),
            how: state.end.as_ref().map(|(how, _)| how.clone()),
            code: state.end.as_ref().and_then(|(_, exit)| exit.code),
            notes: state.notes.clone(),
            whole: state.printed.whole(),
        }
    }
}

impl JobProgress {
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.tail.push_bytes(bytes);
        let done = self.printed.push_bytes(bytes);
        self.add(&done);
    }

    /// Adds unread output that cannot change any more. Drops the oldest beyond the limit.
    fn add(&mut self, done: &[u8]) {
        let most = self.printed.limits().bytes;
        self.fresh.extend(done);
        let over = self.fresh.len().saturating_sub(most);
        if over > 0 {
            self.fresh.drain(..over);
            self.seen.clear();
            self.skipped += u64::try_from(over).unwrap_or_default();
        }
    }

    /// Returns the unread output: of the output that could change at the last read, only the lines
    /// that have changed.
    fn unread_output(&self) -> Vec<u8> {
        let mut output: Vec<u8> = self.fresh.iter().copied().collect();
        output.extend(self.printed.live());
        let same = lines(&output)
            .zip(lines(&self.seen))
            .take_while(|(new, old)| new == old);
        let known: usize = same.map(|(line, _)| line.len()).sum();
        output.drain(..known);
        output
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// A task that runs a job until its end.
struct JobFollower {
    job: Arc<RunningJob>,
    child: Child,
    pipe: pipe::Receiver,
    open: bool,
    sandbox: CommandSandbox,
    watch: ControlFiles,
    worktree: Arc<Worktree>,
    limit: Option<Duration>,
}

impl JobFollower {
    /// Runs the job until its end. Notifies `job_ended` then.
    async fn run(mut self, job_ended: &Notify) {
        let job = self.job.clone();
        // A limit that the clock cannot represent is not a limit.
        let deadline = self
            .limit
            .and_then(|limit| Instant::now().checked_add(limit));
        let mut buffer = vec![0; 64 << 10];
        let mut burst = 0;
        let mut go_on = Instant::now();
        let mut shell = None;
        let mut look = Instant::now();
        let (how, exit) = loop {
            let paused = burst >= MAX_BURST_BYTES;
            tokio::select! {
                biased;
                () = job.stop.cancelled() => {
                    let (why, grace) = job.state().halt.unwrap_or(("ended with the session", SESSION_END_GRACE));
                    self.child.kill(grace).await;
                    break (why.to_owned(), ProgramExit { code: None, signal: Some("SIGTERM".into()) });
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.child.kill(STOP_GRACE).await;
                    let limit = self.limit.unwrap_or_default().as_millis();
                    let how = format!("terminated at its timeout of {limit} ms");
                    break (how, ProgramExit { code: None, signal: Some("SIGTERM".into()) });
                }
                status = self.child.wait(), if shell.is_none() => {
                    shell = Some(match status {
                        Ok(status) => ending(status),
                        Err(e) => (format!("it could not be waited for: {e}"), ProgramExit { code: None, signal: None }),
                    });
                    if self.open {
                        let take = |bytes: &[u8]| job.push_bytes(bytes);
                        tokio::select! {
                            open = drain_pipe(&mut self.pipe, &mut buffer, take) => self.open = open,
                            () = job.stop.cancelled() => {}
                        }
                    }
                }
                // Processes that the shell has left behind continue, and may print.
                () = sleep_until(look), if shell.is_some() && !self.open => {
                    look = Instant::now() + POLL_INTERVAL;
                    if !self.child.has_running_descendants()
                        && let Some(shell) = shell.take()
                    {
                        break shell;
                    }
                }
                () = sleep_until(go_on), if paused => burst = 0,
                read = self.pipe.read(&mut buffer), if self.open && !paused => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(n) => {
                        burst += n;
                        go_on = Instant::now() + BURST_PAUSE;
                        job.push_bytes(&buffer[..n]);
                    }
                },
            }
        };
        let mut notes = Vec::new();
        let changed = self.watch.changes(&self.worktree);
        if !changed.is_empty() {
            notes.push(changed_note(&changed));
        }
        let mut state = job.state();
        let rest = state.printed.end();
        state.add(&rest);
        if exit.code != Some(0) {
            notes.splice(
                0..0,
                self.sandbox
                    .explain_failure(&state.printed.shown_output().text),
            );
        }
        state.notes = notes;
        state.end = Some((how, exit));
        drop(state);
        // First, so that the end is shown in its own call before the calls that wait for it
        // complete.
        job_ended.notify_one();
        job.over.cancel();
    }
}

/// Returns the note to the model on control files that a command has changed, because the system
/// could not protect them.
pub(crate) fn changed_note(changed: &[String]) -> String {
    format!(
        "It changed control files, which determine what runs on this machine: {}. Tell the user.",
        changed.join(", ")
    )
}

/// Reads the rest of the pipe of a command that has ended. Does not wait for a process that keeps
/// the pipe open without output or prints without end. Returns whether the pipe is still open.
pub(crate) async fn drain_pipe(
    pipe: &mut pipe::Receiver,
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8]),
) -> bool {
    let patience = Instant::now() + DRAIN_TIMEOUT;
    while Instant::now() < patience {
        let read = tokio::select! {
            biased;
            read = pipe.read(buffer) => read,
            () = sleep_until(patience) => return true,
        };
        match read {
            Ok(0) | Err(_) => return false,
            Ok(n) => take(&buffer[..n]),
        }
    }
    true
}
