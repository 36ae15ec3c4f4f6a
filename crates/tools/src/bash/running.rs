//! A command that runs, followed until its call is over, and how it ends.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::super::exit_status::ending;
use super::super::jobs::last_words;
use super::super::live::{LiveOutput, due};
use super::super::printed::{CapturedOutput, ShownOutput};
use super::super::{Failure, ToolContext};
use super::shell_line::noted;
use events::ProgramExit;
use sandbox::process::Child;

/// How long a command may take to end when its time is over.
const GRACE: Duration = Duration::from_secs(2);
/// The same when the user is waiting.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// How long a command is watched before it is left in the background.
const WATCHED: Duration = Duration::from_secs(1);
/// It has said its first words when it has printed nothing for so long after them.
const QUIET: Duration = Duration::from_millis(300);
/// How many pieces of 64 KiB are still read of what was printed before a cancel.
const DRAINED: usize = 64;
/// How often it is looked whether a shell is done but for what it has started with `&`.
const LOOK: Duration = Duration::from_millis(20);

/// What is to become of a command.
pub(super) struct CommandOptions {
    pub(super) limit: Option<Duration>,
    pub(super) background: bool,
    pub(super) keep: bool,
    /// Where its shell notes the exit code when all that is left to do is to wait for what it has started.
    pub(super) note: Option<PathBuf>,
}

pub(super) struct RunningCommand {
    pub(super) child: Child,
    pub(super) pipe: pipe::Receiver,
    pub(super) open: bool,
    pub(super) printed: CapturedOutput,
    pub(super) live: LiveOutput,
    pub(super) keeping: OutputKeeping,
}

/// When what a command has printed is kept, for whoever finds it cut off: not often, and in all not much more than what
/// was printed. Each time all that is to be shown of it is written.
#[derive(Default)]
pub(super) struct OutputKeeping {
    /// When it was kept last, or the command has printed for the first time since.
    last: Option<Instant>,
    /// How many bytes were printed since, and kept then.
    news: usize,
    size: usize,
}

impl OutputKeeping {
    /// After how long the first words are kept, and more where as much was printed as is written again.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The same where only little was printed since.
    const LONG_INTERVAL: Duration = Duration::from_secs(30);

    fn take(&mut self, bytes: usize) {
        self.news += bytes;
        self.last.get_or_insert_with(Instant::now);
    }

    /// When it is to be kept again. `None` if there is nothing new.
    fn next(&self) -> Option<Instant> {
        let interval = if self.news >= self.size { Self::INTERVAL } else { Self::LONG_INTERVAL };
        self.last.filter(|_| self.news > 0).map(|last| last + interval)
    }

    fn keep(&mut self, printed: &CapturedOutput, context: &ToolContext) {
        let ShownOutput { text, hint, .. } = printed.kept();
        let text = context.session.mark.data(text);
        let text = hint.map_or(text.clone(), |hint| format!("{text}\n\n{hint}"));
        (self.last, self.news, self.size) = (Some(Instant::now()), 0, text.len());
        context.call.facts.print(text.into());
    }
}

impl RunningCommand {
    /// Follows it until its call is over.
    pub(super) async fn follow(
        mut self,
        plan: &CommandOptions,
        context: &ToolContext,
    ) -> Result<(CommandEnd, Self), Failure> {
        let begun = Instant::now();
        let far = begun + Duration::from_secs(60 * 60 * 24 * 365);
        // A limit beyond what the clock can count is no limit.
        let deadline = plan.limit.and_then(|limit| begun.checked_add(limit)).map_or(far, |at| at.min(far));
        // Until when it is watched, once its call waits for nothing else.
        let mut watched = plan.background.then_some(begun + WATCHED);
        let mut left = None;
        let mut quiet = far;
        let mut look = begun;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let beat = self.live.next_beat();
            tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    let cut_off = self.cut_off();
                    self.child.kill(SHORT_GRACE).await;
                    return Err(cut_off);
                }
                () = sleep_until(deadline), if left.is_none() => {
                    if plan.keep && context.session.jobs.room().is_ok() {
                        return Ok((CommandEnd::Kept(BackgroundedAt::Limit(plan.limit.unwrap_or_default())), self));
                    }
                    tokio::select! {
                        () = self.child.kill(GRACE) => {}
                        () = context.cancelled.cancelled() => {}
                    }
                    if context.cancelled.is_cancelled() {
                        self.child.kill(Duration::ZERO).await;
                        return Err(self.cut_off());
                    }
                    return Ok((CommandEnd::Timeout(plan.limit.unwrap_or_default()), self));
                }
                status = self.child.wait() => {
                    let status = status
                        .map_err(|e| Failure::Broken(format!("the shell could not be waited for: {e}")))?;
                    // What it was waiting for has ended in time to be part of this call.
                    let left = left.or_else(|| plan.note.as_deref().and_then(noted));
                    return Ok((left.map_or(CommandEnd::Status(status), |code| CommandEnd::Done(code, status)), self));
                }
                () = sleep_until(watched.unwrap_or(far).min(quiet)), if watched.is_some() => {
                    return Ok((left.map_or(CommandEnd::Kept(BackgroundedAt::Start), CommandEnd::Left), self));
                }
                () = sleep_until(look), if left.is_none() && plan.note.is_some() => {
                    look = Instant::now() + LOOK;
                    left = plan.note.as_deref().and_then(noted);
                    if left.is_some() {
                        quiet = Instant::now() + QUIET;
                        watched = Some(quiet.max(begun + WATCHED));
                    }
                }
                () = due(self.keeping.next()), if self.keeping.next().is_some() => {
                    self.keeping.keep(&self.printed, context);
                }
                () = self.live.sent(), if self.live.sending.is_some() => {}
                () = due(beat), if self.live.has_news() => self.live.send(),
                // Last: there is always more to read of a flood, and what it shows is to be seen meanwhile.
                read = self.pipe.read(&mut buffer), if self.open => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(n) => {
                        // This runs on a thread of its own: a flood is read until the pipe is empty, and a cancel and
                        // the clock are looked at after each piece.
                        self.take(&buffer[..n]);
                        quiet = Instant::now() + QUIET;
                    }
                },
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.printed.take(bytes);
        self.live.take(bytes);
        self.keeping.take(bytes.len());
    }

    /// How it ends at a cancel: with what it has printed until then, before its shell is told to end and says so.
    fn cut_off(&mut self) -> Failure {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..DRAINED {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.take(&buffer[..n]),
            }
        }
        self.printed.end();
        let text = self.printed.kept().text;
        if text.trim().is_empty() { Failure::Cancelled } else { Failure::CutOff(text) }
    }

    /// What is still in the pipe when the shell has ended.
    pub(super) async fn last_words(&mut self, context: &ToolContext) -> Result<(), Failure> {
        if !self.open {
            return Ok(());
        }
        let mut buffer = vec![0; 64 << 10];
        let Self { pipe, open, printed, live, .. } = self;
        let take = |bytes: &[u8]| {
            printed.take(bytes);
            live.take(bytes);
        };
        tokio::select! {
            biased;
            () = context.cancelled.cancelled() => {}
            held = last_words(pipe, &mut buffer, take) => {
                *open = held;
                return Ok(());
            }
        }
        let cut_off = self.cut_off();
        self.child.kill(Duration::ZERO).await;
        Err(cut_off)
    }
}

pub(super) enum CommandEnd {
    Status(ExitStatus),
    /// Its shell was done with this code, and what it had started has ended as well.
    Done(i32, ExitStatus),
    Timeout(Duration),
    /// Its shell is done with this code, and waits for what it has started.
    Left(i32),
    /// It goes on in the background.
    Kept(BackgroundedAt),
}

/// Since when a command is in the background.
pub(super) enum BackgroundedAt {
    Start,
    Limit(Duration),
}

impl CommandEnd {
    pub(super) fn exit(&self) -> Option<ProgramExit> {
        match self {
            Self::Status(status) => Some(ending(*status).1),
            Self::Done(code, _) | Self::Left(code) => Some(ProgramExit { code: Some(*code), signal: None }),
            Self::Timeout(_) => Some(ProgramExit { code: None, signal: Some("SIGTERM".into()) }),
            Self::Kept(_) => None,
        }
    }

    /// What goes on in the background, and under which name.
    pub(super) fn stays(&self, id: &str) -> String {
        match self {
            Self::Kept(BackgroundedAt::Limit(limit)) => {
                format!("After {} ms it goes on in the background as {id}.", limit.as_millis())
            }
            Self::Kept(BackgroundedAt::Start) => format!("Running in the background as {id}."),
            _ => format!("What it started is still running, in the background as {id}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;

    /// Half an hour of a command that prints a little every 50 ms, and of one that floods.
    #[tokio::test(start_paused = true)]
    async fn output_kept_costs_not_much_more_than_was_printed() {
        let stage = TestProject::new();
        let context = stage.context();
        for piece in [20, 2_000, 60_000] {
            let mut printed = CapturedOutput::new(context.limits, context.project.environment.clone());
            let mut keeping = OutputKeeping::default();
            let line = "x".repeat(piece - 1) + "\n";
            let (mut all, mut kept, mut times, begun) = (0, 0, 0, Instant::now());
            let mut longest = Duration::ZERO;
            while begun.elapsed() < Duration::from_secs(300) {
                tokio::time::advance(Duration::from_millis(50)).await;
                printed.take(line.as_bytes());
                keeping.take(line.len());
                all += line.len();
                longest = longest.max(keeping.last.unwrap().elapsed());
                if keeping.next().is_some_and(|next| next <= Instant::now()) {
                    keeping.keep(&printed, &context);
                    (kept, times) = (kept + keeping.size, times + 1);
                }
            }
            let bound = all + context.limits.bytes * 300 / 30;
            assert!((1..=300).contains(&times) && kept <= bound, "{times} times {kept} of {all}");
            assert!(longest <= OutputKeeping::LONG_INTERVAL + Duration::from_millis(50), "{longest:?}");
        }
    }
}
