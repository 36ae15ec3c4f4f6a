//! `bash`: runs a command line.
//!
//! Each call is a fresh shell, without start-up files and without anyone to answer it. Output goes
//! to the editor while it comes, a few times a second. Memory holds the beginning and the end of
//! it; the whole text is in a file when it is long. The call ends when the shell does, even if
//! something it started keeps the pipe open; such things live on until the process ends
//! ([`crate::process::sweep`]), except that a timeout or a cancel ends everything.
//!
//! A command may also be left in the background, at once or when its time is over ([`super::jobs`]).

use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitStatus;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until};

use super::confinement::Lock;
use super::jobs::{self, Running, changed_note, last_words};
use super::path::{Access, Found, Resolved, resolve};
use super::printed::{Kept, Printed};
use super::truncate::Keep;
use super::watch::Watch;
use super::{Context, Description, Failure, Output, Tool};
use crate::event::{CallUpdate, Event, Exit, Kind, Severity};
use crate::permission::{Need, Place, command_need};
use crate::process::{GIT_HELD, Program, Wiring, find};
use crate::text::{self, Lossy};

/// How long a command may run where the model does not say, in milliseconds.
const LIMIT: u64 = 120_000;
/// What a program can be given as one argument on Linux has fewer bytes than this.
const LONGEST: usize = 128 << 10;
/// How often the editor hears of new output.
const BEAT: Duration = Duration::from_millis(100);
/// The most output of one beat that the editor gets; of more, the end.
const PIECE: usize = 32 << 10;
/// How long a command may take to end when its time is over.
const GRACE: Duration = Duration::from_secs(2);
/// The same when the user is waiting.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// See the module.
pub struct Bash;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The command line
    pub command: String,
    /// Milliseconds before it is ended (default 120000, in the background none)
    pub timeout: Option<u64>,
    /// Leave it running in the background and return at once
    pub run_in_background: Option<bool>,
    /// At its timeout, leave it running in the background instead of ending it
    pub keep_on_timeout: Option<bool>,
    /// Directory to run in (default: the working directory)
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
    lock: Lock,
}

impl Tool for Bash {
    const NAME: &'static str = "bash";
    const KIND: Kind = Kind::Execute;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = Ready;

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
        let confinement = &context.confinement;
        let lock = confinement.lock(context).await?;
        let judged = Place {
            scratch: Some(lock.scratch.clone()),
            trusted: confinement.trusted,
            cwd: place.real.path.clone(),
            ..context.policy.place.clone()
        };
        let mut need = command_need(&input.command, &judged);
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
        Ok((needs, Ready { command: input.command, limit, background, keep, place, bash, lock }))
    }

    async fn run(&self, ready: Ready, context: Context) -> Result<Output, Failure> {
        let Ready { command, limit, background, keep, place, bash, lock } = ready;
        place.still()?;
        if background {
            // Others may have been started while the user was asked.
            context.jobs.room().map_err(Failure::Tell)?;
        }
        let mut env = context.settings.variables.tame(&context.environment);
        if !context.confinement.trusted {
            env.extend(GIT_HELD.map(|(name, value)| (name.into(), value.into())));
        }
        if context.confinement.reads_only() {
            // What it fetches could not be kept.
            env.insert("GIT_NO_LAZY_FETCH".into(), "1".into());
        }
        let work = context.call.as_str();
        let (shell, args) = match bash {
            Some(bash) => (bash, &["--noprofile", "--norc", "-c"][..]),
            None => ("/bin/sh".into(), &["-c"][..]),
        };
        let program = Program::new(shell, &place.real.path, env).args(args.iter().copied().chain([command.as_str()]));
        let program = context.confinement.enter(&lock, &context, program.env("PWD", &place.path));
        let watch = Watch::look(&context.worktree);
        let mut child = program
            .start(Wiring::Together, work)
            .map_err(|e| Failure::Tell(format!("The shell could not be started in {}: {e}.", place.shown)))?;
        let Some(mut pipe) = child.output.take() else {
            return Err(Failure::Broken("the shell has no output".into()));
        };

        let mut taken = Printed::new(context.limits, context.environment.clone());
        if background {
            let worktree = context.worktree.clone();
            let running = Running { child, pipe, open: true, printed: taken, lock, watch, worktree, limit };
            let sandbox = running.lock.words.clone();
            let (id, path) = context.jobs.add(running, &command, &context.call);
            let words = format!("Running in the background as {id}.");
            // Where the editor shows a terminal, it would be an empty one.
            let stream = Some(format!("{words}\n"));
            context.progress(CallUpdate { stream, ..CallUpdate::default() }).await;
            return Ok(left(&id, words, None, path, sandbox));
        }
        let limit = limit.unwrap_or(Duration::from_millis(LIMIT));
        let mut live = Live::new(&context);
        // A limit beyond what the clock can count is no limit.
        let far = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365);
        let deadline = Instant::now().checked_add(limit).unwrap_or(far).min(far);
        let mut buffer = vec![0; 64 << 10];
        let mut open = true;
        let end = loop {
            let beat = live.next_beat();
            tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    child.kill(SHORT_GRACE).await;
                    return Err(Failure::Cancelled);
                }
                () = sleep_until(deadline) => {
                    if keep && context.jobs.room().is_ok() {
                        break End::Kept;
                    }
                    tokio::select! {
                        () = child.kill(GRACE) => {}
                        () = context.cancelled.cancelled() => {}
                    }
                    if context.cancelled.is_cancelled() {
                        child.kill(Duration::ZERO).await;
                        return Err(Failure::Cancelled);
                    }
                    break End::Timeout;
                }
                status = child.wait() => match status {
                    Ok(status) => break End::Status(status),
                    Err(e) => return Err(Failure::Broken(format!("the shell could not be waited for: {e}"))),
                },
                read = pipe.read(&mut buffer), if open => match read {
                    Ok(0) | Err(_) => open = false,
                    Ok(n) => {
                        taken.take(&buffer[..n]);
                        live.take(&buffer[..n]);
                    }
                },
                () = live.sent(), if live.sending.is_some() => {}
                () = sleep_until(beat), if live.has_news() => live.send(),
            }
        };
        if let End::Kept = end {
            let worktree = context.worktree.clone();
            let so_far = taken.kept().text;
            let running = Running { child, pipe, open, printed: taken, lock, watch, worktree, limit: None };
            let sandbox = running.lock.words.clone();
            let (id, path) = context.jobs.add(running, &command, &context.call);
            let words = format!("After {} ms it goes on in the background as {id}.", limit.as_millis());
            live.take(format!("\n{words}\n").as_bytes());
            tokio::select! {
                () = live.finish(None) => {}
                () = context.cancelled.cancelled() => {}
            }
            return Ok(left(&id, words, Some(so_far), path, sandbox));
        }
        if open {
            let take = |bytes: &[u8]| {
                taken.take(bytes);
                live.take(bytes);
            };
            tokio::select! {
                biased;
                () = context.cancelled.cancelled() => {
                    child.kill(Duration::ZERO).await;
                    return Err(Failure::Cancelled);
                }
                () = last_words(&mut pipe, &mut buffer, take) => {}
            }
        }
        let exit = end.exit();
        // The editor gets the last words even when it is slow, unless the user gives up.
        tokio::select! {
            () = live.finish(Some(exit.clone())) => {}
            () = context.cancelled.cancelled() => {}
        }
        let background = child.left_something();
        let taken = taken.kept();
        let mut notes = Vec::new();
        if exit.code != Some(0) {
            notes.extend(lock.blame(&taken.text));
        }
        let changed = watch.changes(&context.worktree);
        if !changed.is_empty() {
            notes.push(changed_note(&changed));
            let title = format!("A command changed what decides what runs on this machine: {}.", changed.join(", "));
            context.outlet.event(Event::Notice { severity: Severity::Warning, title, details: None }).await;
        }
        Ok(output(taken, &end, exit, limit, background, notes, lock.words))
    }
}

enum End {
    Status(ExitStatus),
    Timeout,
    /// It goes on in the background.
    Kept,
}

impl End {
    fn exit(&self) -> Exit {
        match self {
            Self::Status(status) => ending(*status).1,
            Self::Timeout => Exit { code: None, signal: Some("SIGTERM".into()) },
            Self::Kept => Exit { code: None, signal: None },
        }
    }
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

/// The result of a command that goes on in the background.
fn left(id: &str, words: String, so_far: Option<String>, path: Option<PathBuf>, sandbox: Option<String>) -> Output {
    let metadata = [
        Some((jobs::ID.to_owned(), Value::String(id.to_owned()))),
        path.map(|path| ("outputPath".to_owned(), Value::String(path.display().to_string()))),
        sandbox.map(|words| ("sandbox".to_owned(), Value::String(words))),
    ];
    let before = so_far.filter(|text| !text.trim().is_empty());
    let before = before.map(|text| format!("{}\n\n", text.trim_end_matches('\n'))).unwrap_or_default();
    Output {
        text: before.clone(),
        note: format!("{words} You will be told when it ends. bash_output reads what it prints, bash_stop ends it."),
        display: Some(format!("{before}{words}")),
        cut: true,
        keep: Keep::Tail,
        metadata: metadata.into_iter().flatten().collect(),
        ..Output::default()
    }
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

fn output(
    taken: Kept,
    end: &End,
    exit: Exit,
    limit: Duration,
    background: bool,
    more: Vec<String>,
    sandbox: Option<String>,
) -> Output {
    let display = taken.text.clone();
    let text = if taken.text.trim().is_empty() { "(no output)".to_owned() } else { taken.text };
    let mut notes: Vec<String> = taken.hint.into_iter().collect();
    match (end, exit.code, &exit.signal) {
        (End::Timeout, ..) => notes.push(format!(
            "The command was terminated after exceeding its timeout of {} ms. If it needs longer, call it again with a larger timeout.",
            limit.as_millis()
        )),
        (_, Some(code), _) => notes.push(format!("Exit code: {code}")),
        (_, None, signal) => notes.push(format!("Ended by {}", signal.as_deref().unwrap_or("a signal"))),
    }
    if background && matches!(end, End::Status(_)) {
        notes.push("Processes it started are still running in the background.".into());
    }
    notes.extend(more);
    let metadata = Map::from_iter([
        ("exit".to_owned(), exit.code.map_or(Value::Null, Value::from)),
        ("truncated".to_owned(), Value::Bool(taken.path.is_some())),
    ]);
    let path = taken.path.map(|path| ("outputPath".to_owned(), Value::String(path.display().to_string())));
    let sandbox = sandbox.map(|words| ("sandbox".to_owned(), Value::String(words)));
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

type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Output on its way to the editor. While one piece is being sent, the next one gathers; an editor
/// that does not read holds up neither the command nor its end.
struct Live {
    context: Context,
    lossy: Lossy,
    news: String,
    skipped: usize,
    last: Option<Instant>,
    sending: Option<Sending>,
}

impl Live {
    fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            lossy: Lossy::default(),
            news: String::new(),
            skipped: 0,
            last: None,
            sending: None,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.news.push_str(&self.lossy.push(bytes));
        if self.news.len() > 2 * PIECE {
            let kept = text::tail(&self.news, PIECE).to_owned();
            self.skipped += self.news.len() - kept.len();
            self.news = kept;
        }
    }

    fn has_news(&self) -> bool {
        self.sending.is_none() && !self.news.is_empty()
    }

    fn next_beat(&self) -> Instant {
        self.last.map_or_else(Instant::now, |last| last + BEAT)
    }

    fn piece(&mut self) -> Option<String> {
        let news = std::mem::take(&mut self.news);
        let skipped = std::mem::take(&mut self.skipped);
        match (news.is_empty(), skipped) {
            (true, _) => None,
            (false, 0) => Some(news),
            (false, skipped) => Some(format!("\n...{skipped} bytes not shown...\n{news}")),
        }
    }

    fn send(&mut self) {
        self.last = Some(Instant::now());
        if let Some(stream) = self.piece() {
            let context = self.context.clone();
            self.sending = Some(Box::pin(async move {
                context.progress(CallUpdate { stream: Some(stream), ..CallUpdate::default() }).await;
            }));
        }
    }

    async fn sent(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.await;
            self.sending = None;
        }
    }

    async fn finish(mut self, exit: Option<Exit>) {
        self.sent().await;
        let end = self.lossy.end();
        self.news.push_str(&end);
        let stream = self.piece();
        self.context.progress(CallUpdate { stream, exit, ..CallUpdate::default() }).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::erase;
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
            output.text.contains("done\n") && output.note.contains("still running in the background"),
            "{}",
            output.text
        );
        let began = Instant::now();
        let output = bash(&context, json!({"command": "echo x | (sleep 0.1; cat)"})).await.unwrap();
        assert!(output.text.starts_with("x\n") && !output.note.contains("background"), "{}", output.text);
        assert!(began.elapsed() < Duration::from_secs(2));
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
