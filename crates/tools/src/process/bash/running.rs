//! The execution of a command until the end of its call.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::shell_line::read_exit_code;
use crate::live::{LiveOutput, due};
use crate::process::background_jobs::drain_pipe;
use crate::process::captured_output::{CapturedOutput, ShownOutput};
use crate::process::exit_status::ending;
use crate::{Failure, ToolContext, WholeOutput};
use events::ProgramExit;
use sandbox::process::Child;

/// The maximum time for a command to end after its time limit.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The maximum time for a command to end when the user waits.
const CANCEL_GRACE: Duration = Duration::from_millis(50);
/// The time for which a command is observed before it is left in the background.
const OBSERVATION_TIME: Duration = Duration::from_secs(1);
/// The time without output after which the first output of a command is complete.
const QUIET_TIME: Duration = Duration::from_millis(300);
/// The maximum number of 64 KiB pieces that are read without waiting at the end of a call.
const MAX_DRAINED_PIECES: usize = 64;
/// The interval for checking whether a shell has ended except for commands that it has started with
/// `&`.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The options of a command.
pub(super) struct CommandOptions {
    /// The timeout; `None` for no limit.
    pub(super) limit: Option<Duration>,
    /// True if the command is started for the background.
    pub(super) background: bool,
    /// True if the command continues in the background at its timeout.
    pub(super) keep: bool,
    /// The file to which the shell writes its exit code before it waits for its background
    /// commands; `None` if it does not wait.
    pub(super) exit_code_file: Option<PathBuf>,
}

/// A command whose call has not ended.
pub(super) struct RunningCommand {
    pub(super) child: Child,
    pub(super) pipe: pipe::Receiver,
    /// True if the pipe is still open.
    pub(super) open: bool,
    /// The output so far, for the model.
    pub(super) printed: CapturedOutput,
    /// The output on its way to the client.
    pub(super) live: LiveOutput,
    pub(super) keeping: OutputKeeping,
}

/// The schedule for storing a command's output in case the call is interrupted. Each time the whole
/// shown output is stored, so the schedule limits the total to not much more than was printed.
#[derive(Default)]
pub(super) struct OutputKeeping {
    /// The time when it was last stored, or of the first output since the start.
    last: Option<Instant>,
    /// The number of bytes printed since then.
    new_bytes: usize,
    /// The number of bytes stored then.
    stored_bytes: usize,
}

impl OutputKeeping {
    /// The interval for the first output, and if at least as much was printed since as was stored.
    const INTERVAL: Duration = Duration::from_secs(1);
    /// The interval if less was printed.
    const LONG_INTERVAL: Duration = Duration::from_secs(30);

    /// Counts new output.
    fn count(&mut self, bytes: usize) {
        self.new_bytes += bytes;
        self.last.get_or_insert_with(Instant::now);
    }

    /// Returns the time at which to store next. `None` if there is no new output.
    fn next(&self) -> Option<Instant> {
        let interval = if self.new_bytes >= self.stored_bytes {
            Self::INTERVAL
        } else {
            Self::LONG_INTERVAL
        };
        if self.new_bytes == 0 {
            return None;
        }
        self.last.map(|last| last + interval)
    }

    /// Stores the shown output in the facts of the call.
    fn store(&mut self, printed: &CapturedOutput, context: &ToolContext) {
        let ShownOutput { text, hint, .. } = printed.shown_output();
        let text = context.session.mark.data(text);
        let text = hint.map_or(text.clone(), |hint| format!("{text}\n\n{hint}"));
        self.last = Some(Instant::now());
        self.new_bytes = 0;
        self.stored_bytes = text.len();
        context.call.facts.print(text.into());
    }
}

impl RunningCommand {
    /// Runs the command until the end of its call. Returns the command with the reason for that
    /// end.
    ///
    /// # Errors
    /// A cancellation with the output so far, and an internal error.
    pub(super) async fn follow(
        mut self,
        plan: &CommandOptions,
        context: &ToolContext,
    ) -> Result<(CommandEnd, Self), Failure> {
        let started = Instant::now();
        let far = started + Duration::from_secs(60 * 60 * 24 * 365);
        // A limit that the clock cannot represent is not a limit.
        let deadline = plan
            .limit
            .and_then(|limit| started.checked_add(limit))
            .map_or(far, |at| at.min(far));
        // The end of the observation, after which the call waits for nothing else.
        let mut observed_until = plan.background.then_some(started + OBSERVATION_TIME);
        let mut left = None;
        let mut quiet = far;
        let mut look = started;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let update_at = self.live.next_update();
            tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    let cut_off = self.cut_off();
                    self.child.kill(CANCEL_GRACE).await;
                    return Err(cut_off);
                }
                () = sleep_until(deadline), if left.is_none() => {
                    if plan.keep && context.session.jobs.check_capacity().is_ok() {
                        return Ok((CommandEnd::Kept(BackgroundedAt::Limit(plan.limit.unwrap_or_default())), self));
                    }
                    tokio::select! {
                        () = self.child.kill(STOP_GRACE) => {}
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
                    // The background commands have ended in time to be part of this call.
                    let left = left.or_else(|| plan.exit_code_file.as_deref().and_then(read_exit_code));
                    return Ok((left.map_or(CommandEnd::Status(status), |code| CommandEnd::Done(code, status)), self));
                }
                () = sleep_until(observed_until.unwrap_or(far).min(quiet)), if observed_until.is_some() => {
                    // Output that came in time may be unread if the machine is busy.
                    self.read_available();
                    return Ok((left.map_or(CommandEnd::Kept(BackgroundedAt::Start), CommandEnd::Left), self));
                }
                () = sleep_until(look), if left.is_none() && plan.exit_code_file.is_some() => {
                    look = Instant::now() + POLL_INTERVAL;
                    left = plan.exit_code_file.as_deref().and_then(read_exit_code);
                    if left.is_some() {
                        quiet = Instant::now() + QUIET_TIME;
                        observed_until = Some(quiet.max(started + OBSERVATION_TIME));
                    }
                }
                () = due(self.keeping.next()), if self.keeping.next().is_some() => {
                    self.keeping.store(&self.printed, context);
                }
                () = self.live.await_sent(), if self.live.sending.is_some() => {}
                () = due(update_at), if self.live.can_start_sending() => self.live.start_sending(),
                // Last, because a flood always has more to read, and its output must be shown
                // in the meantime.
                read = self.pipe.read(&mut buffer), if self.open => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(n) => {
                        // The command has a thread of its own, so a flood is read until the pipe is
                        // empty; cancellation and time limits are checked after each piece.
                        self.push_bytes(&buffer[..n]);
                        quiet = Instant::now() + QUIET_TIME;
                    }
                },
            }
        }
    }

    /// Adds output.
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.printed.push_bytes(bytes);
        self.live.push_bytes(bytes);
        self.keeping.count(bytes.len());
    }

    /// Reads the output that is in the pipe, without waiting for more.
    fn read_available(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..MAX_DRAINED_PIECES {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.push_bytes(&buffer[..n]),
            }
        }
    }

    /// Returns the failure after a cancel, with the output so far. Called before the shell is
    /// killed, so that its own message is not included.
    fn cut_off(&mut self) -> Failure {
        self.read_available();
        self.printed.end();
        let shown = self.printed.shown_output();
        if shown.text.trim().is_empty() {
            return Failure::Cancelled;
        }
        let is_cut = shown.hint.is_some();
        Failure::CutOff {
            text: shown.text,
            coloured: self.live.tail().coloured(),
            whole: is_cut.then(|| WholeOutput {
                location: self.printed.location(),
                path: shown.path,
            }),
        }
    }

    /// Reads the rest of the pipe after the end of the shell.
    ///
    /// # Errors
    /// A cancellation with the output so far.
    pub(super) async fn drain_pipe(&mut self, context: &ToolContext) -> Result<(), Failure> {
        if !self.open {
            return Ok(());
        }
        let mut buffer = vec![0; 64 << 10];
        let Self {
            pipe,
            open,
            printed,
            live,
            ..
        } = self;
        let take = |bytes: &[u8]| {
            printed.push_bytes(bytes);
            live.push_bytes(bytes);
        };
        tokio::select! {
            biased;
            () = context.cancelled.cancelled() => {}
            held = drain_pipe(pipe, &mut buffer, take) => {
                *open = held;
                return Ok(());
            }
        }
        let cut_off = self.cut_off();
        self.child.kill(Duration::ZERO).await;
        Err(cut_off)
    }
}

/// The reason for the end of a call.
pub(super) enum CommandEnd {
    /// The shell ended, and had not waited for background commands.
    Status(ExitStatus),
    /// The command ended with this code, and the shell after its background commands, with the
    /// status of the last of them.
    Done(i32, ExitStatus),
    /// The command was terminated at this timeout.
    Timeout(Duration),
    /// The command ended with this code, and the shell waits for its background commands.
    Left(i32),
    /// The command continues in the background.
    Kept(BackgroundedAt),
}

/// The time from which a command is in the background.
pub(super) enum BackgroundedAt {
    Start,
    /// Its timeout.
    Limit(Duration),
}

impl CommandEnd {
    /// Returns the exit status to show; `None` if the command continues.
    pub(super) fn exit(&self) -> Option<ProgramExit> {
        match self {
            Self::Status(status) => Some(ending(*status).1),
            Self::Done(code, _) | Self::Left(code) => Some(ProgramExit {
                code: Some(*code),
                signal: None,
            }),
            Self::Timeout(_) => Some(ProgramExit {
                code: None,
                signal: Some("SIGTERM".into()),
            }),
            Self::Kept(_) => None,
        }
    }

    /// Describes what continues in the background, and under which id.
    pub(super) fn describe_background(&self, id: &str) -> String {
        match self {
            Self::Kept(BackgroundedAt::Limit(limit)) => {
                format!(
                    "After {} ms it continues in the background as {id}.",
                    limit.as_millis()
                )
            }
            Self::Kept(BackgroundedAt::Start) => format!("Running in the background as {id}."),
            _ => format!("Commands it started are still running, in the background as {id}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;

    /// Five minutes of a command that prints a little every 50 ms, and of one that floods.
    #[tokio::test(start_paused = true)]
    async fn stored_output_is_bounded_by_printed_output() {
        let fixture = TestProject::new();
        let context = fixture.context();
        for piece in [20, 2_000, 60_000] {
            let mut printed =
                CapturedOutput::new(context.limits, context.project.environment.clone());
            let mut keeping = OutputKeeping::default();
            let line = "x".repeat(piece - 1) + "\n";
            let mut all = 0;
            let mut stored = 0;
            let mut times = 0;
            let started = Instant::now();
            let mut longest = Duration::ZERO;
            while started.elapsed() < Duration::from_secs(300) {
                tokio::time::advance(Duration::from_millis(50)).await;
                printed.push_bytes(line.as_bytes());
                keeping.count(line.len());
                all += line.len();
                longest = longest.max(keeping.last.unwrap().elapsed());
                if keeping.next().is_some_and(|next| next <= Instant::now()) {
                    keeping.store(&printed, &context);
                    stored += keeping.stored_bytes;
                    times += 1;
                }
            }
            let bound = all + context.limits.bytes * 300 / 30;
            assert!(
                (1..=300).contains(&times) && stored <= bound,
                "{times} times {stored} of {all}"
            );
            assert!(
                longest <= OutputKeeping::LONG_INTERVAL + Duration::from_millis(50),
                "{longest:?}"
            );
        }
    }
}
