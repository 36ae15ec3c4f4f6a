//! Commands in the background: each has an id, is followed by a task of its own, and ends with the
//! session at the latest. A cancel of the turn does not end them: they were started to outlive it.
//!
//! One has ended when its shell has and nothing is left of what that started, or could still print.
//!
//! Of what one prints, memory holds both ends and what was not read yet, a file holds all of it. Once
//! it has ended it stays readable, until enough others have ended after it.

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

use super::confinement::CommandSandbox;
use super::exit_status::ending;
use super::pattern::SearchPattern;
use super::printed::CapturedOutput;
use super::watch::ControlFiles;
use base::id::CallId;
use base::lock::locked;
use base::text;
use base::worktree::Worktree;
use events::ProgramExit;
use sandbox::process::Child;

/// How many may run at once in a session.
pub const MOST: usize = 8;
/// How many that have ended are kept to be read.
const KEPT: usize = 8;
/// How long one may take to end when it is stopped.
const GRACE: Duration = Duration::from_secs(2);
/// The same at the end of the session.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// How long output may still come when the shell has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// One that floods is read no faster than so many bytes in so long: nobody waits for it, and it must
/// not take the time of those somebody waits for.
const BURST: usize = 1 << 20;
const PAUSE: Duration = Duration::from_millis(50);
/// How often it is looked whether what a shell has left behind is still there. Nobody tells.
const LOOK: Duration = Duration::from_millis(250);

/// A command as it is handed over.
pub(super) struct DetachedCommand {
    pub(super) child: Child,
    pub(super) pipe: pipe::Receiver,
    pub(super) open: bool,
    pub(super) printed: CapturedOutput,
    pub(super) lock: CommandSandbox,
    pub(super) watch: ControlFiles,
    pub(super) worktree: Arc<Worktree>,
    /// When it is ended, if there is a limit.
    pub(super) limit: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct EndedJob {
    pub id: String,
    /// The call that left it in the background.
    pub call: CallId,
    pub command: String,
    /// In a few words: "exit code 1".
    pub how: String,
    /// Its exit code, where it has one.
    pub code: Option<i32>,
    /// The file that holds all it printed.
    pub path: Option<PathBuf>,
    /// The end of what it printed.
    pub tail: String,
    /// The model has been told already, by a result.
    pub heard: bool,
}

#[derive(Debug)]
pub(super) enum WaitFor {
    End,
    /// New output with this in a line.
    Output(Box<SearchPattern>),
}

/// What is new of a command.
pub(super) struct JobOutput {
    pub(super) text: String,
    /// What was waited for has come.
    pub(super) came: bool,
    /// Bytes that came and were not kept in memory.
    pub(super) skipped: u64,
    /// How it ended; none while it runs.
    pub(super) how: Option<String>,
    pub(super) code: Option<i32>,
    pub(super) notes: Vec<String>,
    /// The file with all of its output.
    pub(super) whole: String,
}

struct RunningJob {
    id: String,
    call: CallId,
    command: String,
    /// To be ended; [`JobProgress::halt`] says why.
    stop: CancellationToken,
    over: CancellationToken,
    printed: Notify,
    // A leaf: never held across an await.
    state: Mutex<JobProgress>,
}

struct JobProgress {
    printed: CapturedOutput,
    /// What cannot change any more, and came since it was read last.
    fresh: VecDeque<u8>,
    /// What could still change when it was read last, as it was then.
    seen: Vec<u8>,
    skipped: u64,
    /// Why it is being ended, and how long it may take.
    halt: Option<(&'static str, Duration)>,
    end: Option<(String, ProgramExit)>,
    notes: Vec<String>,
    heard: bool,
    settled: bool,
    /// The call that started it has been shown as done.
    announced: bool,
    shown: bool,
    noticed: bool,
}

/// The commands a session has in the background.
pub struct Jobs {
    // A leaf lock around a list.
    jobs: Mutex<Vec<Arc<RunningJob>>>,
    next: AtomicU32,
    tasks: TaskTracker,
    news: Arc<Notify>,
    untold: AtomicBool,
    /// Whoever forgets to end them has them ended.
    all: CancellationToken,
    _end: DropGuard,
}

impl Default for Jobs {
    fn default() -> Self {
        Self::after(0)
    }
}

impl Jobs {
    /// Nothing runs; the ids begin after this number.
    pub fn after(last: u32) -> Self {
        let all = CancellationToken::new();
        Self {
            jobs: Mutex::default(),
            next: AtomicU32::new(last),
            tasks: TaskTracker::new(),
            news: Arc::default(),
            // What was left behind in an earlier process may be to be told.
            untold: AtomicBool::new(true),
            _end: all.clone().drop_guard(),
            all,
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<RunningJob>>> {
        locked(&self.jobs)
    }

    pub fn number(id: &str) -> Option<u32> {
        id.strip_prefix("bash_")?.parse().ok()
    }

    /// Whether one more may be started.
    ///
    /// # Errors
    /// To the model: what runs already.
    pub fn room(&self) -> Result<(), String> {
        let running = self.running();
        if running.len() < MOST {
            return Ok(());
        }
        let lines: Vec<String> = running.iter().map(|(id, command)| format!("- {id}: {command}")).collect();
        Err(format!(
            "{MOST} commands run in the background already, and no more may. End one with bash_stop, or run this in the foreground.\n{}",
            lines.join("\n")
        ))
    }

    /// What runs: ids and command lines, the latter on one line.
    pub fn running(&self) -> Vec<(String, String)> {
        let list = self.list();
        let alive = list.iter().filter(|job| job.state().end.is_none());
        alive.map(|job| (job.id.clone(), text::title(&job.command))).collect()
    }

    /// All of them, for people: id, command line, how it ended.
    pub fn all(&self) -> Vec<(String, String, Option<String>)> {
        let one = |job: &Arc<RunningJob>| {
            let how = job.state().end.as_ref().map(|(how, _)| how.clone());
            (job.id.clone(), text::title(&job.command), how)
        };
        self.list().iter().map(one).collect()
    }

    /// Takes a command over. Gives its id and the file that holds all it prints.
    pub(super) fn add(&self, mut running: DetachedCommand, command: &str, call: &CallId) -> (String, Option<PathBuf>) {
        let id = format!("bash_{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        running.printed.file_all();
        let path = running.printed.path();
        let DetachedCommand { child, pipe, open, printed, lock, watch, worktree, limit } = running;
        let state = JobProgress {
            // The call that leaves it here has shown what there is.
            seen: printed.live(),
            printed,
            fresh: VecDeque::new(),
            skipped: 0,
            halt: None,
            end: None,
            notes: Vec::new(),
            heard: false,
            settled: false,
            announced: false,
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
            if ended >= KEPT
                && let Some(oldest) = list.iter().position(|job| job.over.is_cancelled() && job.state().settled)
            {
                list.remove(oldest);
            }
            list.push(job.clone());
        }
        let follow = JobFollower { job, child, pipe, open, lock, watch, worktree, limit };
        let news = self.news.clone();
        // What it prints may be a flood.
        let followed = base::task::on_threads(async move {
            follow.run().await;
            news.notify_one();
        });
        base::task::spawn_in(&self.tasks, followed);
        (id, path)
    }

    fn find(&self, id: &str) -> Result<Arc<RunningJob>, String> {
        let list = self.list();
        if let Some(job) = list.iter().find(|job| job.id == id) {
            return Ok(job.clone());
        }
        let id = text::title(id);
        let known: Vec<&str> = list.iter().map(|job| job.id.as_str()).collect();
        Err(match known.is_empty() {
            true => format!("There is no command \"{id}\" in the background; there is none at all."),
            false => format!("There is no command \"{id}\" in the background. There are: {}.", known.join(", ")),
        })
    }

    /// What a command has printed since it was read last. Waits for its end, or for what is asked for, but
    /// not longer than `wait`.
    ///
    /// # Errors
    /// To the model, when there is none of that id.
    pub(super) async fn read(&self, id: &str, wait: Duration, until: &WaitFor) -> Result<JobOutput, String> {
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

    /// Ends a command and everything it started, for this reason.
    ///
    /// # Errors
    /// To whoever asked, when there is none of that id.
    pub async fn stop(&self, id: &str, why: &'static str) -> Result<String, String> {
        let job = self.find(id)?;
        job.state().halt.get_or_insert((why, GRACE));
        job.stop.cancel();
        job.over.cancelled().await;
        let how = job.state().end.as_ref().map(|(how, _)| how.clone());
        Ok(how.unwrap_or_default())
    }

    /// The model has been told by a result how a command ended.
    pub(super) fn heard(&self, id: &str) {
        if let Ok(job) = self.find(id) {
            job.state().heard = true;
        }
    }

    /// Ends all of them, and what they left running: the session ends.
    pub async fn end(&self) {
        let jobs = self.list().clone();
        for job in &jobs {
            job.state().halt.get_or_insert(("ended with the session", SHORT_GRACE));
        }
        self.all.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until one has ended that nobody has been told of.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Whether the history may hold an end that the model was not told. Says so once.
    pub fn untold(&self) -> bool {
        self.untold.swap(false, Ordering::Relaxed)
    }

    fn ended(&self, take: impl Fn(&mut JobProgress) -> bool) -> Vec<EndedJob> {
        let list = self.list();
        list.iter()
            .filter_map(|job| {
                let mut state = job.state();
                let (how, exit) = state.end.clone().filter(|_| take(&mut state))?;
                let tail = text::tail(&state.printed.kept().text, TAIL).to_owned();
                Some(EndedJob {
                    id: job.id.clone(),
                    call: job.call.clone(),
                    command: job.command.clone(),
                    how,
                    code: exit.code,
                    path: state.printed.path(),
                    tail,
                    heard: state.heard,
                })
            })
            .collect()
    }

    /// Those that have ended since this was asked last, for the history.
    pub fn unsettled(&self) -> Vec<EndedJob> {
        let ended = self.ended(|state| !std::mem::replace(&mut state.settled, true));
        if !ended.is_empty() {
            self.untold.store(true, Ordering::Relaxed);
        }
        ended
    }

    /// A call has been shown as done: what it started may be shown as ended from here on.
    pub fn announced(&self, call: &CallId) {
        for job in self.list().iter().filter(|job| job.call == *call) {
            let mut state = job.state();
            state.announced = true;
            if state.end.is_some() {
                self.news.notify_one();
            }
        }
    }

    /// Those whose end the editor has not seen in their calls.
    pub fn unshown(&self) -> Vec<EndedJob> {
        self.ended(|state| {
            state.noticed |= state.announced;
            state.announced && !std::mem::replace(&mut state.shown, true)
        })
    }

    /// Those of whose end the editor knows nothing.
    pub fn unnoticed(&self) -> Vec<EndedJob> {
        self.ended(|state| !std::mem::replace(&mut state.noticed, true))
    }
}

/// How much of what one printed is shown in its call when it has ended.
const TAIL: usize = 8 << 10;

impl RunningJob {
    fn take(&self, bytes: &[u8]) {
        self.state().take(bytes);
        self.printed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, JobProgress> {
        locked(&self.state)
    }

    /// Whether what somebody waits for has come.
    fn shows(&self, until: &WaitFor) -> bool {
        match until {
            WaitFor::End => self.state().end.is_some(),
            WaitFor::Output(pattern) => {
                // Whoever takes what it prints does not wait for the pattern.
                let news = self.state().news();
                news.split(|byte| *byte == b'\n')
                    .any(|line| !line.is_empty() && pattern.matcher.is_match(line).unwrap_or_default())
            }
        }
    }

    fn read(&self) -> JobOutput {
        let mut state = self.state();
        let mut news = state.news();
        // An unfinished character is no news yet.
        if let Some(e) = std::str::from_utf8(&news).err().filter(|e| e.error_len().is_none() && state.end.is_none()) {
            news.truncate(e.valid_up_to());
        }
        state.fresh.clear();
        state.seen = state.printed.live();
        state.heard |= state.end.is_some();
        JobOutput {
            text: String::from_utf8_lossy(&news).into_owned(),
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
    fn take(&mut self, bytes: &[u8]) {
        let done = self.printed.take(bytes);
        self.add(&done);
    }

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

    /// What was not read yet: of what could still change at the last time, the lines that did.
    fn news(&self) -> Vec<u8> {
        let mut news: Vec<u8> = self.fresh.iter().copied().collect();
        news.extend(self.printed.live());
        let same = lines(&news).zip(lines(&self.seen)).take_while(|(new, old)| new == old);
        let known: usize = same.map(|(line, _)| line.len()).sum();
        news.drain(..known);
        news
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// A command on its way to its end.
struct JobFollower {
    job: Arc<RunningJob>,
    child: Child,
    pipe: pipe::Receiver,
    open: bool,
    lock: CommandSandbox,
    watch: ControlFiles,
    worktree: Arc<Worktree>,
    limit: Option<Duration>,
}

impl JobFollower {
    async fn run(mut self) {
        let job = self.job.clone();
        // A limit beyond what the clock can count is no limit.
        let deadline = self.limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut buffer = vec![0; 64 << 10];
        let (mut burst, mut go_on) = (0, Instant::now());
        let mut shell = None;
        let mut look = Instant::now();
        let (how, exit) = loop {
            let paused = burst >= BURST;
            tokio::select! {
                biased;
                () = job.stop.cancelled() => {
                    let (why, grace) = job.state().halt.unwrap_or(("ended with the session", SHORT_GRACE));
                    self.child.kill(grace).await;
                    break (why.to_owned(), ProgramExit { code: None, signal: Some("SIGTERM".into()) });
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.child.kill(GRACE).await;
                    let limit = self.limit.unwrap_or_default().as_millis();
                    let how = format!("terminated after exceeding its timeout of {limit} ms");
                    break (how, ProgramExit { code: None, signal: Some("SIGTERM".into()) });
                }
                status = self.child.wait(), if shell.is_none() => {
                    shell = Some(match status {
                        Ok(status) => ending(status),
                        Err(e) => (format!("it could not be waited for: {e}"), ProgramExit { code: None, signal: None }),
                    });
                    if self.open {
                        let take = |bytes: &[u8]| job.take(bytes);
                        tokio::select! {
                            open = last_words(&mut self.pipe, &mut buffer, take) => self.open = open,
                            () = job.stop.cancelled() => {}
                        }
                    }
                }
                // What it has left behind goes on, and may print on.
                () = sleep_until(look), if shell.is_some() && !self.open => {
                    look = Instant::now() + LOOK;
                    if !self.child.left_something()
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
                        go_on = Instant::now() + PAUSE;
                        job.take(&buffer[..n]);
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
            notes.splice(0..0, self.lock.blame(&state.printed.kept().text));
        }
        state.notes = notes;
        state.end = Some((how, exit));
        drop(state);
        job.over.cancel();
    }
}

/// For the model: what a command changed that the system could not protect.
pub(super) fn changed_note(changed: &[String]) -> String {
    format!("It changed files that decide what runs on this machine: {}. Tell the user.", changed.join(", "))
}

/// Reads what is still in the pipe of a command that has ended. Whatever holds it open, without a word
/// or without an end, is not waited for; says whether something does.
pub(super) async fn last_words(pipe: &mut pipe::Receiver, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> bool {
    let patience = Instant::now() + LAST_WORDS;
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
