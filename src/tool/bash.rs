//! `bash`: runs a command line.
//!
//! Each call is a fresh shell, without start-up files and without anyone to answer it. Output goes
//! to the editor while it comes, a few times a second. Memory holds the beginning and the end of
//! it; the whole text is in a file when it is long. A timeout or a cancel ends everything.
//!
//! A call ends with its shell. What the shell leaves running is not let go of: it becomes a command in
//! the background ([`super::jobs`]), with a name. So does a command that was meant for it, once it has been
//! watched for its first words or an early end, and one whose time is over, if that is wanted.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::confinement::{Confinement, Lock, scratch};
use super::jobs::{self, Running, changed_note, last_words};
use super::live::Live;
use super::path::{Access, Found, Resolved, resolve};
use super::printed::{Kept, Printed};
use super::truncate::Keep;
use super::watch::Watch;
use super::{Context, Description, Failure, Output, Tool};
use crate::environment::private_dir;
use crate::event::{Event, Exit, Kind, Severity};
use crate::permission::{Need, Place, Rules, command_need, evaluate};
use crate::process::{Child, GIT_HELD, Program, Wiring, find};
use crate::text;

/// How long a command may run where the model does not say, in milliseconds.
const LIMIT: u64 = 120_000;
/// What a program can be given as one argument on Linux has fewer bytes than this.
const LONGEST: usize = 128 << 10;
/// How long a command may take to end when its time is over.
const GRACE: Duration = Duration::from_secs(2);
/// The same when the user is waiting.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// How long a command is watched before it is left in the background.
const WATCHED: Duration = Duration::from_secs(1);
/// It has said its first words when it has printed nothing for so long after them.
const QUIET: Duration = Duration::from_millis(300);
/// How often it is looked whether a shell is done but for what it has started with `&`.
const LOOK: Duration = Duration::from_millis(20);

/// See the module.
pub struct Bash;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The command line
    pub command: String,
    /// Milliseconds before it is ended (default 120000, in the background none)
    pub timeout: Option<u64>,
    /// Leave it running in the background
    pub run_in_background: Option<bool>,
    /// At its timeout, leave it running instead
    pub keep_on_timeout: Option<bool>,
    /// Directory to run in
    pub workdir: Option<String>,
    /// What it does, in a few words
    pub description: Option<String>,
}

/// A command and where it runs.
#[derive(Debug)]
pub struct Ready {
    command: String,
    limit: Option<Duration>,
    background: bool,
    keep: bool,
    place: Resolved,
    /// Where bash is; never a file of the project.
    bash: Option<PathBuf>,
    confinement: Confinement,
    lock: Lock,
}

impl Tool for Bash {
    const NAME: &'static str = "bash";
    const KIND: Kind = Kind::Execute;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = Ready;

    fn beside(input: &Input, context: &Context) -> bool {
        let Ok(place) = resolve(context, input.workdir.as_deref().unwrap_or("."), Access::List) else { return false };
        let judged = Place { cwd: place.real.path, ..context.policy.place.clone() };
        input.run_in_background != Some(true) && only_reads(&command_need(&input.command, &judged))
    }

    fn describe(input: &Input, _: &Context) -> Description {
        let title = match input.run_in_background {
            Some(true) => text::title(&format!("{} &", input.command)),
            _ => text::title(&input.command),
        };
        Description { title, locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, context: &Context) -> Result<(Vec<Need>, Ready), Failure> {
        if input.command.trim().is_empty() {
            return Err(Failure::tell("command is empty."));
        }
        if input.command.contains('\0') {
            return Err(Failure::tell("command contains a NUL character; no program can be given that."));
        }
        if cfg!(target_os = "linux") && input.command.len() >= LONGEST {
            return Err(Failure::Tell(format!(
                "command has {} bytes; no program can be given {LONGEST} or more. Write it to a file, and run that.",
                input.command.len()
            )));
        }
        if input.timeout == Some(0) {
            return Err(Failure::tell("Invalid timeout value: 0. It is in milliseconds."));
        }
        let background = input.run_in_background == Some(true);
        if background {
            context.jobs.room().map_err(Failure::Tell)?;
        }
        let place = resolve(context, input.workdir.as_deref().unwrap_or("."), Access::List)?;
        if place.real.found != Found::Directory {
            return Err(Failure::Tell(format!("workdir is not a directory: {}", place.shown)));
        }
        let judged = Place {
            scratch: Some(scratch(context)),
            trusted: context.confinement.trusted,
            cwd: place.real.path.clone(),
            ..context.policy.place.clone()
        };
        let mut need = command_need(&input.command, &judged);
        // Beside others it changes nothing, whatever the agent may do.
        let beside = context.order.as_ref().is_some_and(|order| order.beside) && only_reads(&need);
        let confinement = if beside { context.confinement.reading() } else { context.confinement.clone() };
        let lock = confinement.lock(context).await?;
        need.unproven.clone_from(&lock.unproven);
        need.kept = lock.kept;
        if let Some(words) = &lock.words {
            need.metadata.insert("sandbox".into(), Value::String(words.clone()));
        }
        need.metadata.insert("command".into(), Value::String(input.command.clone()));
        need.metadata.insert("workdir".into(), Value::String(place.path.display().to_string()));
        let needs = place.needs(Access::List, need);
        let limit = input.timeout.or_else(|| (!background).then_some(LIMIT)).map(Duration::from_millis);
        let keep = input.keep_on_timeout == Some(true);
        let bash = find("bash", judged.system_path());
        Ok((needs, Ready { command: input.command, limit, background, keep, place, bash, confinement, lock }))
    }

    async fn run(&self, ready: Ready, context: Context) -> Result<Output, Failure> {
        let Ready { command, limit, background, keep, place, bash, confinement, lock } = ready;
        place.still()?;
        if background {
            // Others may have been started while the user was asked.
            context.jobs.room().map_err(Failure::Tell)?;
        }
        let mut env = context.settings.variables.tame(&context.environment);
        if !context.confinement.trusted {
            env.extend(GIT_HELD.map(|(name, value)| (name.into(), value.into())));
        }
        if confinement.reads_only() {
            // What it fetches could not be kept.
            env.insert("GIT_NO_LAZY_FETCH".into(), "1".into());
        }
        let work = context.call.as_str();
        let note = bash.as_ref().filter(|_| starts_others(&command)).and_then(|_| notebook(&lock.scratch, work));
        let line = note.as_deref().and_then(|note| staying(&command, note)).unwrap_or_else(|| command.clone());
        let (shell, args) = match bash {
            Some(bash) => (bash, &["--noprofile", "--norc", "-c"][..]),
            None => ("/bin/sh".into(), &["-c"][..]),
        };
        let program = Program::new(shell, &place.real.path, env).args(args.iter().copied().chain([line.as_str()]));
        let program = confinement.enter(&lock, &context, program.env("PWD", &place.path));
        let watch = Watch::look(&context.worktree);
        let mut child = program
            .start(Wiring::Together, work)
            .map_err(|e| Failure::Tell(format!("The shell could not be started in {}: {e}.", place.shown)))?;
        let Some(pipe) = child.output.take() else {
            return Err(Failure::Broken("the shell has no output".into()));
        };
        let printed = Printed::new(context.limits, context.environment.clone());
        let begun = Begun { child, pipe, open: true, printed, live: Live::new(&context) };
        let plan = Plan { limit, background, keep, note };
        let followed = begun.follow(&plan, &context).await;
        if let Some(note) = &plan.note {
            // It may never have been written.
            std::fs::remove_file(note).ok();
        }
        let (end, mut begun) = followed?;
        let exit = end.exit();
        let stays = match &end {
            End::Kept(_) | End::Left(_) => true,
            End::Status(_) => {
                begun.last_words(&context).await?;
                begun.open || begun.child.left_something()
            }
            End::Timeout(_) | End::Done(..) => {
                begun.last_words(&context).await?;
                false
            }
        };
        let mut told = Told { background: None, notes: Vec::new(), sandbox: lock.words.clone() };
        if background && !stays && !matches!(end, End::Timeout(_)) {
            told.notes.push("It has ended already: nothing runs in the background.".into());
        }
        told.notes.extend(context.order.as_ref().map(|order| order.words.clone()));
        let Begun { child, pipe, open, mut printed, mut live } = begun;
        if stays {
            let kept = printed.kept();
            let spent = limit.filter(|_| matches!(end, End::Kept(Since::Start)));
            let worktree = context.worktree.clone();
            let running = Running { child, pipe, open, printed, lock, watch, worktree, limit: spent };
            let (id, path) = context.jobs.add(running, &command, &context.call);
            let words = end.stays(&id);
            let apart = if kept.text.is_empty() { "" } else { "\n" };
            live.take(format!("{apart}{words}\n").as_bytes());
            live.over(exit.clone(), &context).await;
            told.background = Some((id, words, path));
            return Ok(output(kept, &end, exit, told));
        }
        printed.end();
        // The editor gets the last words even when it is slow, unless the user gives up.
        live.over(exit.clone(), &context).await;
        let kept = printed.kept();
        if exit.as_ref().is_none_or(|exit| exit.code != Some(0)) {
            told.notes.extend(lock.blame(&kept.text));
        }
        let changed = watch.changes(&context.worktree);
        if !changed.is_empty() {
            told.notes.push(changed_note(&changed));
            let title = format!("A command changed what decides what runs on this machine: {}.", changed.join(", "));
            context.outlet.event(Event::Notice { severity: Severity::Warning, title, details: None }).await;
        }
        Ok(output(kept, &end, exit, told))
    }
}

/// What is to become of a command.
struct Plan {
    limit: Option<Duration>,
    background: bool,
    keep: bool,
    /// Where its shell notes the exit code when all that is left to do is to wait for what it has started.
    note: Option<PathBuf>,
}

/// A command that runs.
struct Begun {
    child: Child,
    pipe: pipe::Receiver,
    open: bool,
    printed: Printed,
    live: Live,
}

impl Begun {
    /// Follows it until its call is over.
    async fn follow(mut self, plan: &Plan, context: &Context) -> Result<(End, Self), Failure> {
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
                    self.child.kill(SHORT_GRACE).await;
                    return Err(Failure::Cancelled);
                }
                () = sleep_until(deadline), if left.is_none() => {
                    if plan.keep && context.jobs.room().is_ok() {
                        return Ok((End::Kept(Since::Limit(plan.limit.unwrap_or_default())), self));
                    }
                    tokio::select! {
                        () = self.child.kill(GRACE) => {}
                        () = context.cancelled.cancelled() => {}
                    }
                    if context.cancelled.is_cancelled() {
                        self.child.kill(Duration::ZERO).await;
                        return Err(Failure::Cancelled);
                    }
                    return Ok((End::Timeout(plan.limit.unwrap_or_default()), self));
                }
                status = self.child.wait() => {
                    let status = status
                        .map_err(|e| Failure::Broken(format!("the shell could not be waited for: {e}")))?;
                    // What it was waiting for has ended in time to be part of this call.
                    let left = left.or_else(|| plan.note.as_deref().and_then(noted));
                    return Ok((left.map_or(End::Status(status), |code| End::Done(code, status)), self));
                }
                () = sleep_until(watched.unwrap_or(far).min(quiet)), if watched.is_some() => {
                    return Ok((left.map_or(End::Kept(Since::Start), End::Left), self));
                }
                () = sleep_until(look), if left.is_none() && plan.note.is_some() => {
                    look = Instant::now() + LOOK;
                    left = plan.note.as_deref().and_then(noted);
                    if left.is_some() {
                        quiet = Instant::now() + QUIET;
                        watched = Some(quiet.max(begun + WATCHED));
                    }
                }
                read = self.pipe.read(&mut buffer), if self.open => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(n) => {
                        self.take(&buffer[..n]);
                        quiet = Instant::now() + QUIET;
                    }
                },
                () = self.live.sent(), if self.live.sending.is_some() => {}
                () = sleep_until(beat), if self.live.has_news() => self.live.send(),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.printed.take(bytes);
        self.live.take(bytes);
    }

    /// What is still in the pipe when the shell has ended.
    async fn last_words(&mut self, context: &Context) -> Result<(), Failure> {
        if !self.open {
            return Ok(());
        }
        let mut buffer = vec![0; 64 << 10];
        let Self { child, pipe, open, printed, live } = self;
        let take = |bytes: &[u8]| {
            printed.take(bytes);
            live.take(bytes);
        };
        tokio::select! {
            biased;
            () = context.cancelled.cancelled() => {
                child.kill(Duration::ZERO).await;
                Err(Failure::Cancelled)
            }
            held = last_words(pipe, &mut buffer, take) => {
                *open = held;
                Ok(())
            }
        }
    }
}

/// How a call ends.
enum End {
    /// With its shell.
    Status(ExitStatus),
    /// Its shell was done with this code, and what it had started has ended as well.
    Done(i32, ExitStatus),
    Timeout(Duration),
    /// Its shell is done with this code, and waits for what it has started.
    Left(i32),
    /// It goes on in the background.
    Kept(Since),
}

/// Since when a command is in the background.
enum Since {
    Start,
    Limit(Duration),
}

impl End {
    fn exit(&self) -> Option<Exit> {
        match self {
            Self::Status(status) => Some(ending(*status).1),
            Self::Done(code, _) | Self::Left(code) => Some(Exit { code: Some(*code), signal: None }),
            Self::Timeout(_) => Some(Exit { code: None, signal: Some("SIGTERM".into()) }),
            Self::Kept(_) => None,
        }
    }

    /// What goes on in the background, and under which name.
    fn stays(&self, id: &str) -> String {
        match self {
            Self::Kept(Since::Limit(limit)) => {
                format!("After {} ms it goes on in the background as {id}.", limit.as_millis())
            }
            Self::Kept(Since::Start) => format!("Running in the background as {id}."),
            _ => format!("What it started is still running, in the background as {id}."),
        }
    }
}

/// Whether a command line is known to change nothing, and to end with its shell.
fn only_reads(need: &Need) -> bool {
    let verdict = evaluate(&Rules::default(), &Rules::default(), need);
    verdict.proven_read_only && !need.command.as_ref().is_some_and(|line| starts_others(&line.text))
}

/// Whether a command line may start something with `&`; where it stands in quotes it does no harm to think so.
fn starts_others(command: &str) -> bool {
    let bytes = command.as_bytes();
    memchr::memchr_iter(b'&', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\')) && !matches!(after, Some(b'&' | b'>'))
    })
}

/// Where a shell may note its exit code; none where that cannot be written into a command line as it is.
fn notebook(scratch: &Path, work: &str) -> Option<PathBuf> {
    private_dir(scratch).ok()?;
    let path = scratch.join(format!("exit-{}", text::plain(work)));
    let plain = |c: char| c.is_alphanumeric() || " /._-+@=,".contains(c);
    path.to_str().filter(|path| path.chars().all(plain))?;
    Some(path)
}

/// The command line for a shell that outlives what it has started: at its end it notes its exit code, and
/// waits. Its own end is that of what it started last. Some sandboxes end everything with their shell.
///
/// Nothing of this is done where the command sets a trap for the end itself, or becomes another program.
fn staying(command: &str, note: &Path) -> Option<String> {
    let note = note.to_str()?;
    let last = r#"{ c=$?; set +ex; } 2>/dev/null; [ "$(jobs -rp)" ] || exit $c; "#;
    let wait = "wait $!; c=$?; wait; exit $c";
    let line = format!("trap '{last}{{ echo $c >|\"{note}\"; }} 2>/dev/null || exit $c; {wait}' EXIT; {command}");
    // It must still be given as one argument.
    (line.len() < LONGEST).then_some(line)
}

/// The exit code a shell has noted.
fn noted(note: &Path) -> Option<i32> {
    std::fs::read_to_string(note).ok()?.strip_suffix('\n')?.parse().ok()
}

/// How a shell ended, in words and in numbers.
pub(super) fn ending(status: ExitStatus) -> (String, Exit) {
    use std::os::unix::process::ExitStatusExt;
    let exit = Exit { code: status.code(), signal: status.signal().map(signal_name) };
    let how = match (exit.code, &exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("ended by {}", signal.as_deref().unwrap_or("a signal")),
    };
    (how, exit)
}

fn signal_name(number: i32) -> String {
    let names = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (13, "PIPE"),
        (14, "ALRM"),
        (15, "TERM"),
    ];
    names
        .iter()
        .find(|(n, _)| *n == number)
        .map_or_else(|| format!("signal {number}"), |(_, name)| format!("SIG{name}"))
}

/// What the model is told besides the output.
struct Told {
    /// The id of what goes on, what it is, and the file that holds all it prints.
    background: Option<(String, String, Option<PathBuf>)>,
    notes: Vec<String>,
    sandbox: Option<String>,
}

fn output(kept: Kept, end: &End, exit: Option<Exit>, told: Told) -> Output {
    let printed = !kept.text.trim().is_empty();
    let mut display = kept.text.clone();
    let text = match (printed, end) {
        (true, _) => kept.text,
        (false, End::Kept(_)) => "(no output yet)".to_owned(),
        (false, _) => "(no output)".to_owned(),
    };
    let mut notes: Vec<String> = kept.hint.into_iter().collect();
    match (end, &exit) {
        (End::Timeout(limit), _) => notes.push(format!(
            "The command was terminated after exceeding its timeout of {} ms. If it needs longer, call it again with a larger timeout; if it does not end by itself, with run_in_background.",
            limit.as_millis()
        )),
        (_, Some(Exit { code: Some(code), .. })) => notes.push(format!("Exit code: {code}")),
        (_, Some(Exit { signal, .. })) => notes.push(format!("Ended by {}", signal.as_deref().unwrap_or("a signal"))),
        (_, None) => {}
    }
    if let End::Done(_, status) = end {
        notes.push(format!("What it started with & has ended: {}.", ending(*status).0));
    }
    let mut metadata = Map::new();
    if let Some(exit) = exit {
        metadata.insert("exit".into(), exit.code.map_or(Value::Null, Value::from));
        metadata.insert("truncated".into(), Value::Bool(kept.path.is_some()));
    }
    let mut path = kept.path;
    if let Some((id, words, all)) = told.background {
        notes.push(format!(
            "{words} You will be told when it ends. bash_output reads what it prints, bash_stop ends it."
        ));
        let before = if printed { format!("{}\n\n", display.trim_end_matches('\n')) } else { String::new() };
        display = format!("{before}{words}");
        metadata.insert(jobs::ID.into(), Value::String(id));
        path = all.or(path);
    }
    notes.extend(told.notes);
    let path = path.map(|path| ("outputPath".to_owned(), Value::String(path.display().to_string())));
    let sandbox = told.sandbox.map(|words| ("sandbox".to_owned(), Value::String(words)));
    Output {
        text,
        note: notes.join("\n"),
        display: Some(display),
        cut: true,
        keep: Keep::Tail,
        metadata: metadata.into_iter().chain(path).chain(sandbox).collect(),
        ..Output::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::erase;
    use super::super::live::{BEAT, PIECE};
    use super::super::test::{Stage, call};
    use super::*;
    use crate::channel::Receiver;
    use crate::event::{Event, Up};

    async fn bash(context: &Context, input: Value) -> Result<Output, Failure> {
        Ok(call(&erase(Bash), input, context).await?.1)
    }

    /// What the editor heard: the stream, the number of pieces, the exit.
    async fn heard(mut up: Receiver<Up>) -> (String, usize, Option<Exit>) {
        let (mut text, mut pieces, mut exit) = (String::new(), 0, None);
        while let Some(up) = up.recv().await {
            if let Up::Event(Event::Call(update)) = up {
                pieces += usize::from(update.stream.is_some());
                text.push_str(update.stream.as_deref().unwrap_or_default());
                exit = update.exit.or(exit);
            }
        }
        (text, pieces, exit)
    }

    /// What the model reads, without the tags of the note.
    fn said(output: &Output) -> String {
        format!("{}\n\n{}", output.text.trim_end_matches('\n'), output.note)
    }

    #[tokio::test]
    async fn commands_run() {
        let stage = Stage::new();
        stage.write("sub/f", "");
        let context = stage.context();
        let table = [
            (json!({"command": "echo a; echo b >&2; echo c"}), "a\nb\nc\n\nExit code: 0", json!(0)),
            (json!({"command": "exit 3"}), "(no output)\n\nExit code: 3", json!(3)),
            (json!({"command": "kill -9 $$"}), "(no output)\n\nEnded by SIGKILL", json!(null)),
            (json!({"command": "ls", "workdir": "sub", "description": "Lists"}), "f\n\nExit code: 0", json!(0)),
            (json!({"command": "cat; echo $PAGER $GIT_TERMINAL_PROMPT $TERM"}), "cat 0 dumb\n\nExit code: 0", json!(0)),
            (json!({"command": "printf '\\xff\\xc3'"}), "\u{fffd}\u{fffd}\n\nExit code: 0", json!(0)),
            (json!({"command": ": < /dev/tty || echo none"}), "none\n", json!(0)),
        ];
        for (input, text, exit) in table {
            let output = bash(&context, input.clone()).await.unwrap();
            assert!(said(&output).contains(text), "{input}: {}", said(&output));
            assert_eq!(output.metadata["exit"], exit, "{input}");
        }
        for (input, why) in [
            (json!({"command": " "}), "empty"),
            (json!({"command": "a\0b"}), "NUL"),
            #[cfg(target_os = "linux")]
            (json!({"command": "a".repeat(1 << 20)}), "Write it to a file"),
            (json!({"command": "ls", "timeout": 0}), "Invalid timeout"),
            (json!({"command": "ls", "timeout": -1}), "timeout"),
            (json!({"command": "ls", "workdir": "sub/f"}), "not a directory"),
            (json!({"command": "ls", "workdir": "none"}), "not a directory"),
        ] {
            let failure = bash(&context, input.clone()).await.unwrap_err().to_string();
            assert!(failure.contains(why), "{input}: {failure}");
        }
        let outside = stage.outside().display().to_string();
        let (needs, _) = call(&erase(Bash), json!({"command": "pwd", "workdir": outside}), &context).await.unwrap();
        assert_eq!(needs[0].permission, "external_directory");
        assert!(needs.iter().any(|need| need.permission == "bash"));
    }

    #[tokio::test]
    async fn the_editor_hears_it_as_it_comes() {
        let stage = Stage::new();
        let (context, mut up) = stage.listened();
        // The command goes on only after its first words were heard.
        let script = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second; exit 4";
        let cwd = stage.cwd().to_path_buf();
        let listener = tokio::spawn(async move {
            let Some(Up::Event(Event::Call(update))) = up.recv().await else { panic!() };
            assert_eq!(update.stream.as_deref(), Some("first\n"));
            std::fs::write(cwd.join("go"), "").unwrap();
            heard(up).await
        });
        bash(&context, json!({"command": script})).await.unwrap();
        drop(context);
        let (text, _, exit) = listener.await.unwrap();
        assert_eq!((text.as_str(), exit.and_then(|exit| exit.code)), ("second\n", Some(4)));
    }

    #[tokio::test]
    async fn time_runs_out() {
        let stage = Stage::new();
        let context = stage.context();
        let began = Instant::now();
        let input = json!({"command": "trap '' TERM; echo so far; sleep 70 & sleep 71", "timeout": 200});
        let output = bash(&context, input).await.unwrap();
        assert!(
            said(&output).starts_with("so far\n\nThe command was terminated after exceeding its timeout of 200 ms."),
            "{}",
            said(&output)
        );
        assert_eq!(output.metadata["exit"], Value::Null);
        assert!(began.elapsed() < Duration::from_millis(3_200), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_cancel_ends_everything_at_once() {
        let stage = Stage::new();
        let (context, mut up) = stage.listened();
        let command = "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ > pid; echo ready; sleep 72\" & wait";
        let prepared = erase(Bash).prepare(json!({"command": command}), &context).await.unwrap();
        let running = tokio::spawn((prepared.run)(context.clone()));
        let Some(Up::Event(Event::Call(update))) = up.recv().await else { panic!() };
        assert_eq!(update.stream.as_deref(), Some("ready\n"));
        let began = Instant::now();
        context.cancelled.cancel();
        assert!(matches!(running.await.unwrap(), Err(Failure::Cancelled)));
        assert!(began.elapsed() < Duration::from_millis(600), "{:?}", began.elapsed());
        let pid = String::from_utf8(stage.read("pid")).unwrap();
        // Gone, or dead and waiting for init.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_else(|_| ") Z".into());
        assert!(stat.contains(") Z") || stat.contains(") X"), "{stat}");
    }

    #[tokio::test]
    async fn a_grandchild_with_the_pipe_does_not_hold_it_up() {
        let stage = Stage::new();
        let context = stage.context();
        let began = Instant::now();
        let output = bash(&context, json!({"command": "sleep 20 & echo done"})).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(
            output.text.contains("done\n") && output.note.contains("still running, in the background as bash_1."),
            "{}",
            output.text
        );
        assert_eq!(context.jobs.running().len(), 1);
        context.jobs.stop("bash_1", "stopped").await.unwrap();
        let began = Instant::now();
        let output = bash(&context, json!({"command": "echo x | (sleep 0.1; cat)"})).await.unwrap();
        assert!(output.text.starts_with("x\n") && !output.note.contains("background"), "{}", output.text);
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    /// However something is left behind, it can go on printing, and its end is known.
    #[tokio::test]
    async fn what_is_left_behind_has_a_name() {
        let stage = Stage::new();
        let late = "while [ ! -e go ]; do sleep 0.01; done; echo late; echo later >&2; exit 5";
        let table = [
            (format!("({late}) & echo now"), "exit code 5", "late\nlater\n"),
            (format!("(({late}) & echo now); true"), "exit code 0", "late\nlater\n"),
            (format!("({late}) & disown; echo now"), "exit code 0", "late\nlater\n"),
            (format!("trap 'echo bye' EXIT; ({late}) & echo now"), "exit code 0", "late\nlater\n"),
            (format!("set -eux; ({late}) & echo now"), "exit code 5", "late"),
            (format!("({late}) >log 2>&1 & echo now"), "exit code 5", ""),
            (format!("({late}; sleep 1) & ({late}) & echo now; false"), "exit code 5", "late\nlater\n"),
        ];
        for (n, (command, how, printed)) in (1..).zip(table) {
            let context = stage.context();
            std::fs::remove_file(stage.cwd().join("go")).ok();
            let output = bash(&context, json!({"command": command})).await.unwrap();
            assert!(
                output.text.contains("now\n") && output.note.contains("in the background as bash_1."),
                "{}",
                output.text
            );
            assert_eq!(output.metadata["exit"], i32::from(n == 7), "{command}");
            assert_eq!(output.metadata[jobs::ID], "bash_1");
            stage.write("go", "");
            let reading = context.jobs.read("bash_1", Duration::from_secs(20), &jobs::Until::End).await.unwrap();
            assert_eq!(reading.how.as_deref(), Some(how), "{command}");
            assert!(reading.text.contains(printed) && !reading.text.contains("now\n"), "{command}: {}", reading.text);
        }
        // What has ended by then is no more in the background.
        let context = stage.context();
        let output = bash(&context, json!({"command": "(echo a; exit 4) & echo b"})).await.unwrap();
        assert!(output.note.lines().any(|line| line == "Exit code: 0"), "{}", output.text);
        assert!(context.jobs.running().is_empty());
        let scratch = scratch(&context);
        assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0);
    }

    #[test]
    fn ampersands_that_start_something() {
        for (command, starts) in [
            ("a &", true),
            ("a & b", true),
            ("a&b", true),
            ("a >x 2>&1 &", true),
            ("a && b", false),
            ("a 2>&1", false),
            ("a &>x", false),
            ("a |& b", false),
            ("a <&3", false),
            ("a \\& b", false),
            ("a", false),
        ] {
            assert_eq!(starts_others(command), starts, "{command}");
        }
        let note = Path::new("/a b/exit-call_1");
        assert!(staying("a &", note).unwrap().ends_with("' EXIT; a &"));
        assert_eq!(staying(&"a".repeat(LONGEST - 10), note), None);
    }

    #[tokio::test]
    async fn what_only_reads_runs_beside_others() {
        let stage = Stage::new();
        let context = stage.context();
        let table = [
            (json!({"command": "cat a; ls -la | head"}), true),
            (json!({"command": "git status --short && git log --oneline -3"}), true),
            (json!({"command": "touch a"}), false),
            (json!({"command": "ls > a"}), false),
            (json!({"command": "ls & cat a"}), false),
            (json!({"command": "ls", "run_in_background": true}), false),
            (json!({"command": "make test"}), false),
            (json!({"command": "ls $(rm a)"}), false),
        ];
        for (input, beside) in table {
            assert_eq!(erase(Bash).beside(&input, &context), beside, "{input}");
        }
    }

    #[tokio::test]
    async fn floods_are_bounded() {
        let stage = Stage::new();
        let table = [
            ("head -c 20000000 /dev/zero | tr '\\0' 'é'; echo END", 20_000_004, "END"),
            ("seq 1000000", 6_888_896, "1000000"),
            ("seq 3000", 13_893, "3000"),
        ];
        for (command, bytes, last) in table {
            let (context, up) = stage.listened();
            let listener = tokio::spawn(heard(up));
            let began = Instant::now();
            let output = bash(&context, json!({"command": command})).await.unwrap();
            drop(context);
            let (streamed, pieces, _) = listener.await.unwrap();
            let beats = usize::try_from(began.elapsed().as_millis() / BEAT.as_millis()).unwrap();
            assert!(pieces <= beats + 2, "{pieces} in {beats} beats");
            assert!(streamed.len() <= pieces * (2 * PIECE + 100));
            assert!(output.text.len() < (50 << 10) + 1_000, "{}", output.text.len());
            assert!(output.text.lines().count() < 2_020);
            assert!(output.text.contains(" bytes truncated...") && output.text.contains(last), "{command}");
            let path = output.metadata["outputPath"].as_str().unwrap();
            assert_eq!(std::fs::metadata(path).unwrap().len(), bytes, "{command}");
        }
    }
}
