//! `bash`: runs a command in a new shell.
//!
//! Limits: 2 minutes unless the model requests more; if the output is long, only its end is
//! shown.
//!
//! Each call is a new shell, without start-up files and without input. Output is sent to the editor
//! while it comes, a few times per second. Memory holds the beginning and the end of it; long
//! output is stored in a file. A timeout or a cancel ends all processes.
//!
//! A call ends with its shell. Processes that the shell leaves behind become a background command
//! ([`crate::process::background_jobs`]) with an id. So does a command that was started for the
//! background, after it has been observed for its first output or an early end, and a command that
//! exceeds its timeout, if that is requested.

mod running;
mod shell_line;
mod terminal;
mod timeout;

use std::path::PathBuf;
use std::time::Duration;

use running::{BackgroundedAt, CommandEnd, CommandOptions, OutputKeeping, RunningCommand};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use shell_line::{
    MAX_ARGUMENT_BYTES, exit_code_file, hiding_filter, line_of_arguments, with_waiting_shell,
};
use terminal::needs_terminal;

use crate::aliases::Aliases;
use crate::files::loaded_instructions::TouchedPath;
use crate::files::path::{Access, PathKind, ResolvedPath, in_session_spelling, resolve};
use crate::live::LiveOutput;
use crate::process::background_jobs::{DetachedCommand, changed_note};
use crate::process::captured_output::{CapturedOutput, ShownOutput};
use crate::process::control_files::ControlFiles;
use crate::process::exit_status::ending;
use crate::process::program_slot::slot;
use crate::process::sandboxing::{CommandSandbox, SandboxChoice};
use crate::scratch;
use crate::truncate::KeepEnd;
use crate::{CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::child_environment::GIT_UNTRUSTED;
use base::executable::find;
use base::text;
use events::{Event, ProgramExit, Severity, ToolKind};
use permission::plan::{CommandLine, PlannedSandbox, may_start_background, plan_command};
use permission::shell::CommandAnalysis;
use permission::{AccessRequest, PermissionContext};
use sandbox::process::{Program, StdioMode};
use transcript::{BackgroundJob, CallFacts, ExitCode, JobState};

/// The default timeout of a command, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

#[derive(Default)]
pub struct BashTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub command: String,
    /// Limit in milliseconds (default 120000, in the background none)
    pub timeout: Option<u64>,
    // The same with an explicit unit, from habit; present if it is less than a second.
    #[schemars(skip)]
    pub timeout_ms: Option<u64>,
    pub run_in_background: Option<bool>,
    /// At the timeout, leave it running in the background
    pub keep_on_timeout: Option<bool>,
    /// Directory to run in
    pub workdir: Option<String>,
    // For people, who see it with the arguments.
    pub description: Option<String>,
}

/// A command with its directory and sandbox.
#[derive(Debug)]
pub struct Ready {
    command: String,
    /// The timeout; `None` for no limit.
    limit: Option<Duration>,
    /// True if it is started for the background.
    background: bool,
    /// True if it continues in the background at its timeout.
    keep: bool,
    /// Its directory.
    path: ResolvedPath,
    /// The path of bash, never a file of the project; `None` if there is none, so that `/bin/sh` is
    /// used.
    bash: Option<PathBuf>,
    sandbox_choice: SandboxChoice,
    sandbox: CommandSandbox,
    /// The paths of the project that it works with.
    touched: Vec<TouchedPath>,
}

impl Tool for BashTool {
    const NAME: &'static str = "bash";
    const DESCRIPTION: &'static str = include_str!("bash.md");
    const KIND: ToolKind = ToolKind::Execute;
    const CONCURRENT: bool = false;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::reading(
        "Running commands; patterns are command lines, judged one command at a time.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "shell",
            "sh",
            "run",
            "runcommand",
            "execute",
            "executecommand",
            "exec",
            "execcommand",
            "terminal",
            "runterminalcmd",
            "runinterminal",
            "runshellcommand",
            "localshell",
            "command",
            "cmd",
        ],
        field_values: &[],
        fields: &[
            (
                "command",
                &[
                    "cmd",
                    "script",
                    "commandline",
                    "shellcommand",
                    "input",
                    "code",
                ],
            ),
            (
                "workdir",
                &["cwd", "dir", "directory", "workingdirectory", "workingdir"],
            ),
            ("run_in_background", &["background", "isbackground"]),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn other_form(fields: &Map<String, Value>) -> Option<Value> {
        timeout::other_form(fields, crate::input_schema::<Input>)
    }

    fn repair(fields: &mut Map<String, Value>, notes: &mut Vec<String>) {
        if let Some(line) = fields.get("command").and_then(line_of_arguments) {
            fields.insert("command".into(), Value::String(line));
        }
        timeout::repair(fields, notes);
    }

    fn is_concurrent(input: &Input, context: &ToolContext) -> bool {
        let directory = directory(input, context);
        directory.is_ok_and(|directory| {
            let line = command_line(input, &permission_context(&directory, context), context);
            line.sandbox() == PlannedSandbox::Harmless
        })
    }

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        let title = match input.run_in_background {
            Some(true) => format!("{} &", text::command_title(&input.command)),
            _ => text::command_title(&input.command),
        };
        CallDescription {
            title,
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        if input.command.trim().is_empty() {
            return Err(Failure::for_model("command is empty."));
        }
        if input.command.contains('\0') {
            return Err(Failure::for_model(
                "command contains a NUL character, which no argument can contain.",
            ));
        }
        if cfg!(target_os = "linux") && input.command.len() >= MAX_ARGUMENT_BYTES {
            return Err(Failure::ForModel(format!(
                "command has {} bytes; the limit is {MAX_ARGUMENT_BYTES}. Write it to a file, and run that.",
                input.command.len()
            )));
        }
        let timeout = input.timeout.or(input.timeout_ms);
        if timeout == Some(0) {
            return Err(Failure::for_model(
                "timeout is 0. Send the limit in milliseconds.",
            ));
        }
        let background = input.run_in_background == Some(true);
        if background {
            context
                .session
                .jobs
                .check_capacity()
                .map_err(Failure::ForModel)?;
        }
        let resolved_path = directory(&input, context)?;
        if resolved_path.real.kind != PathKind::Directory {
            return Err(Failure::ForModel(format!(
                "workdir is not a directory: {}",
                resolved_path.shown
            )));
        }
        let judged = permission_context(&resolved_path, context);
        let line = command_line(&input, &judged, context);
        if let Some(reason) = needs_terminal(&line.analysis) {
            return Err(Failure::ForModel(reason));
        }
        let sandbox_choice = context.sandbox_choice.for_command(line.sandbox());
        let (sandbox, capabilities) = sandbox_choice.prepare_for_command(&line, context).await?;
        let plan = plan_command(line, &context.policy, capabilities);
        sandbox_choice
            .announce(&sandbox, plan.needs_question(), context)
            .await;
        let sandbox = sandbox.planned(plan.sandbox);
        let touched = touched(&resolved_path, &plan.analysis, context);
        let mut request = plan.request;
        request.sandbox.clone_from(&sandbox.restrictions);
        request.sandbox_effect = sandbox.describe_effect(&plan.analysis, &judged);
        request
            .metadata
            .insert("command".into(), Value::String(input.command.clone()));
        request.metadata.insert(
            "workdir".into(),
            Value::String(resolved_path.path.display().to_string()),
        );
        let mut requests = resolved_path.requests(Access::List, request);
        // A command may change the directory that it starts in.
        let only_reads = plan.analysis.is_read_only();
        requests
            .iter_mut()
            .for_each(|request| request.only_reads &= only_reads);
        let limit = timeout
            .or_else(|| (!background).then_some(DEFAULT_TIMEOUT_MS))
            .map(Duration::from_millis);
        let keep = input.keep_on_timeout == Some(true);
        let bash = find("bash", judged.system_path());
        Ok((
            requests,
            Ready {
                command: input.command,
                limit,
                background,
                keep,
                path: resolved_path,
                bash,
                sandbox_choice,
                sandbox,
                touched,
            },
        ))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        if ready.background {
            // Other jobs may have been started while the user was asked.
            context
                .session
                .jobs
                .check_capacity()
                .map_err(Failure::ForModel)?;
        }
        let (begun, exit_code_file, watch) = start(&ready, &context).await?;
        let Ready {
            command,
            limit,
            background,
            keep,
            sandbox,
            touched,
            ..
        } = ready;
        let plan = CommandOptions {
            limit,
            background,
            keep,
            exit_code_file,
        };
        let followed = begun.follow(&plan, &context).await;
        if let Some(file) = &plan.exit_code_file {
            // The file may not exist.
            std::fs::remove_file(file).ok();
        }
        let (end, mut begun) = followed?;
        let exit = end.exit();
        let stays = match &end {
            CommandEnd::Kept(_) | CommandEnd::Left(_) => true,
            CommandEnd::Status(_) => {
                begun.drain_pipe(&context).await?;
                begun.open || begun.child.has_running_descendants()
            }
            CommandEnd::Timeout(_) | CommandEnd::Done(..) => {
                begun.drain_pipe(&context).await?;
                false
            }
        };
        let mut result_notes = ResultNotes {
            background: None,
            filter: hiding_filter(&command),
            notes: Vec::new(),
            sandbox: sandbox.restrictions.clone(),
            touched,
            coloured: None,
        };
        if background && !stays && !matches!(end, CommandEnd::Timeout(_)) {
            result_notes
                .notes
                .push("It has already ended; nothing runs in the background.".into());
        }
        result_notes.notes.extend(context.call.order_note.clone());
        let RunningCommand {
            child,
            pipe,
            open,
            mut printed,
            mut live,
            ..
        } = begun;
        if stays {
            let shown = printed.shown_output();
            let is_started = matches!(end, CommandEnd::Kept(BackgroundedAt::Start));
            let spent = if is_started { limit } else { None };
            let running = DetachedCommand {
                child,
                pipe,
                open,
                printed,
                tail: live.tail().clone(),
                sandbox,
                watch,
                worktree: context.project.worktree.clone(),
                limit: spent,
            };
            let (id, path) = context
                .session
                .jobs
                .add(running, &command, &context.call.id);
            let words = end.describe_background(&id);
            let apart = if shown.text.is_empty() { "" } else { "\n" };
            live.push_bytes(format!("{apart}{words}\n").as_bytes());
            result_notes.coloured = live.tail().coloured();
            live.finish_or_cancel(exit.clone(), &context).await;
            result_notes.background = Some((id, words, path));
            return Ok(output(shown, &end, exit, result_notes));
        }
        printed.end();
        // A client that does not read must not keep the slot from other programs.
        drop((child, pipe));
        result_notes.coloured = live.tail().coloured();
        // The editor gets the last output even if it is slow, unless the user cancels.
        live.finish_or_cancel(exit.clone(), &context).await;
        let shown = printed.shown_output();
        if exit.as_ref().is_none_or(|exit| exit.code != Some(0)) {
            let missed =
                sandbox.hidden_path_hint(&shown.text, &command, &context.project.environment);
            result_notes
                .notes
                .extend(missed.or_else(|| sandbox.explain_failure(&shown.text)));
        }
        let changed = watch.changes(&context.project.worktree);
        if !changed.is_empty() {
            result_notes.notes.push(changed_note(&changed));
            warn_of_changed_control_files(&changed, &context).await;
        }
        Ok(output(shown, &end, exit, result_notes))
    }
}

/// Notifies the user that a command has changed control files.
async fn warn_of_changed_control_files(changed: &[String], context: &ToolContext) {
    let title = format!(
        "A command changed control files, which determine what runs on this machine: {}.",
        changed.join(", ")
    );
    context
        .client
        .event_sender
        .event(Event::Notice {
            severity: Severity::Warning,
            title,
            details: None,
        })
        .await;
}

/// Starts the shell when a slot is free. Also returns the file for its exit code, if it may have to
/// wait for background commands, and the state of the control files before it.
async fn start(
    ready: &Ready,
    context: &ToolContext,
) -> Result<(RunningCommand, Option<PathBuf>, ControlFiles), Failure> {
    let slot = slot(context, Failure::NotBegun).await?;
    let Ready {
        command,
        path: resolved_path,
        bash,
        sandbox_choice,
        sandbox,
        ..
    } = ready;
    resolved_path.check_unchanged()?;
    let mut env = context
        .project
        .settings
        .variables
        .for_model_program(&context.project.environment);
    if !context.sandbox_choice.trusted {
        env.extend(GIT_UNTRUSTED.map(|(name, value)| (name.into(), value.into())));
    }
    env.extend(
        context
            .call
            .variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    if sandbox_choice.reads_only() {
        // In a read-only sandbox, fetched objects could not be stored.
        env.insert("GIT_NO_LAZY_FETCH".into(), "1".into());
    }
    let work = context.call.id.as_str();
    let is_waiting = bash.is_some() && may_start_background(command);
    let note = if is_waiting {
        exit_code_file(&sandbox.scratch, work)
    } else {
        None
    };
    let line = note
        .as_deref()
        .and_then(|note| with_waiting_shell(command, note))
        .unwrap_or_else(|| command.clone());
    let (shell, args) = match bash {
        Some(bash) => (bash.clone(), &["--noprofile", "--norc", "-c"][..]),
        None => ("/bin/sh".into(), &["-c"][..]),
    };
    let program = Program::new(shell, &resolved_path.real.path, env)
        .args(args.iter().copied().chain([line.as_str()]));
    let program = match context.session.exec.split_first() {
        Some((before, words)) => {
            let own = |word: &String| {
                let word = word.replace("{session}", context.session.id.as_str());
                word.replace("{cwd}", &resolved_path.real.path.to_string_lossy())
                    .into()
            };
            program.started_by(own(before), words.iter().map(own).collect())
        }
        None => program,
    };
    let program =
        sandbox_choice.enter(sandbox, context, program.env("PWD", &resolved_path.path))?;
    // After the sandbox has created the paths that it protects, and before the command runs.
    let watch = ControlFiles::read(&context.project.worktree);
    let mut child = program.start(StdioMode::Merged, work).map_err(|e| {
        Failure::ForModel(format!(
            "The shell could not be started in {}: {e}.",
            resolved_path.shown
        ))
    })?;
    child.occupy(slot);
    let Some(pipe) = child.output.take() else {
        return Err(Failure::Broken("the shell has no output".into()));
    };
    let printed = CapturedOutput::new(context.limits, context.project.environment.clone());
    Ok((
        RunningCommand {
            child,
            pipe,
            open: true,
            printed,
            live: LiveOutput::new(context),
            keeping: OutputKeeping::default(),
        },
        note,
        watch,
    ))
}

/// Resolves the directory of a command.
fn directory(input: &Input, context: &ToolContext) -> Result<ResolvedPath, Failure> {
    let workdir = input.workdir.as_deref().unwrap_or(".");
    resolve(context, workdir, Access::List)
}

/// Returns the context in which a command in this directory is judged.
fn permission_context(resolved_path: &ResolvedPath, context: &ToolContext) -> PermissionContext {
    PermissionContext {
        cwd: resolved_path.real.path.clone(),
        // The directory is determined anew: an earlier call may have removed the usual one, and the
        // command gets another one then.
        scratch_dir: Some(scratch::directory(
            &context.project.environment,
            context.session.id.as_str(),
        )),
        ..context.policy.context.clone()
    }
}

/// Returns the analysed command line.
fn command_line(
    input: &Input,
    permission_context: &PermissionContext,
    context: &ToolContext,
) -> CommandLine {
    let analysis = context.call.analysis.of(&input.command, permission_context);
    CommandLine::new(analysis, input.run_in_background == Some(true))
}

/// Returns the paths of the project that a command works with, as far as its line shows: its
/// directory, those that it lists or changes to, and the files that it uses.
fn touched(
    resolved_path: &ResolvedPath,
    analysis: &CommandAnalysis,
    context: &ToolContext,
) -> Vec<TouchedPath> {
    let mut touched = vec![TouchedPath::Directory(resolved_path.path.clone())];
    for unit in &analysis.units {
        let listed = unit.listed_dirs.iter();
        touched
            .extend(listed.map(|path| TouchedPath::Directory(in_session_spelling(context, path))));
        let files = unit
            .path_uses
            .iter()
            .filter(|path_use| matches!(path_use.permission, "read" | "edit"))
            .flat_map(|path_use| &path_use.patterns);
        let root = &context.project.worktree.root;
        touched.extend(
            files.map(|name| TouchedPath::File(in_session_spelling(context, &root.join(name)))),
        );
    }
    touched
}

/// The parts of a result in addition to the output for the model.
struct ResultNotes {
    /// The id of the background job, its description, and the file with its output; `None` if
    /// nothing continues in the background.
    background: Option<(String, String, Option<PathBuf>)>,
    /// The program at the end of the pipeline, if it hides the exit code of the others.
    filter: Option<&'static str>,
    /// Further notes for the model.
    notes: Vec<String>,
    /// The restrictions of the sandbox, for people; `None` without one.
    sandbox: Option<String>,
    touched: Vec<TouchedPath>,
    /// The output with its colours, if it has any.
    coloured: Option<String>,
}

/// Formats the result for the model and for people.
fn output(
    shown: ShownOutput,
    end: &CommandEnd,
    exit: Option<ProgramExit>,
    result_notes: ResultNotes,
) -> ToolOutput {
    let printed = !shown.text.trim().is_empty();
    let mut display = shown.text.clone();
    let text = match (printed, end) {
        (true, _) => shown.text,
        (false, CommandEnd::Kept(_)) => "(no output yet)".to_owned(),
        (false, _) => "(no output)".to_owned(),
    };
    let mut notes: Vec<String> = shown.hint.into_iter().collect();
    match (end, &exit) {
        (CommandEnd::Timeout(limit), _) => notes.push(format!(
            "The command was terminated at its timeout of {} ms. If it needs longer, run it again with a larger timeout; if it does not end, with run_in_background.",
            limit.as_millis()
        )),
        (_, Some(ProgramExit { code: Some(code), .. })) => {
            notes.push(match result_notes.filter {
                Some(filter) => format!("Exit code: {code} ({filter}'s; that of the command before it is unknown)"),
                None => format!("Exit code: {}", ExitCode(*code)),
            });
        }
        (_, Some(ProgramExit { signal, .. })) => notes.push(format!("Ended by {}", signal.as_deref().unwrap_or("a signal"))),
        (_, None) => {}
    }
    if let CommandEnd::Done(_, status) = end {
        notes.push(format!(
            "The commands it started with & have ended: {}.",
            ending(*status).0
        ));
    }
    let mut metadata = Map::new();
    if let CommandEnd::Timeout(limit) = end {
        metadata.insert(
            CallFacts::TIME_LIMIT.into(),
            u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).into(),
        );
    }
    let mut facts = CallFacts {
        sandbox: result_notes.sandbox,
        output_path: shown.path,
        ..CallFacts::default()
    };
    if let Some(exit) = exit {
        metadata.insert(
            CallFacts::TRUNCATED.into(),
            Value::Bool(facts.output_path.is_some()),
        );
        facts.exit = Some(exit);
    }
    if let Some((id, words, all)) = result_notes.background {
        notes.push(format!(
            "{words} You will be notified when it ends. bash_output reads its output, bash_stop ends it."
        ));
        let before = if printed {
            format!("{}\n\n", display.trim_end_matches('\n'))
        } else {
            String::new()
        };
        display = format!("{before}{words}");
        facts.job = Some(BackgroundJob {
            id,
            state: JobState::Running,
        });
        facts.output_path = all.or(facts.output_path);
    }
    notes.extend(result_notes.notes);
    ToolOutput {
        text,
        note: notes.join("\n"),
        display: Some(display),
        cut: true,
        keep: KeepEnd::Tail,
        facts,
        metadata,
        touched: result_notes.touched,
        coloured: result_notes.coloured,
        ..ToolOutput::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::erase;
    use crate::live::{TRIMMED_BYTES, UPDATE_INTERVAL};
    use crate::test::{TestProject, call};
    use base::channel::Receiver;
    use events::{Event, TurnMessage};

    async fn bash(context: &ToolContext, input: Value) -> Result<ToolOutput, Failure> {
        Ok(call(&erase(BashTool), input, context).await?.1)
    }

    /// Returns the events for the editor: the stream, the number of pieces, the exit.
    async fn received_stream(
        mut up: Receiver<TurnMessage>,
    ) -> (String, usize, Option<ProgramExit>) {
        let mut text = String::new();
        let mut pieces = 0;
        let mut exit = None;
        while let Some(up) = up.recv().await {
            if let TurnMessage::Event(Event::Call(update)) = up {
                pieces += usize::from(update.stream.is_some());
                text.push_str(update.stream.as_deref().unwrap_or_default());
                exit = update.exit.or(exit);
            }
        }
        (text, pieces, exit)
    }

    /// Returns the result for the model, without the tags of the note.
    fn text_of(output: &ToolOutput) -> String {
        format!("{}\n\n{}", output.text.trim_end_matches('\n'), output.note)
    }

    #[tokio::test]
    async fn commands_run_with_output_and_exit_code() {
        let fixture = TestProject::new();
        fixture.write("sub/f", "");
        let context = fixture.context();
        let table = [
            (
                json!({"command": "echo a; echo b >&2; echo c"}),
                "a\nb\nc\n\nExit code: 0",
                json!(0),
            ),
            (
                json!({"command": "exit 3"}),
                "(no output)\n\nExit code: 3",
                json!(3),
            ),
            (
                json!({"command": "kill -9 $$"}),
                "(no output)\n\nEnded by SIGKILL",
                json!(null),
            ),
            (
                json!({"command": "sh -c 'kill -TERM $$'; exit $?"}),
                "Exit code: 143 (SIGTERM)",
                json!(143),
            ),
            (
                json!({"command": "ls", "workdir": "sub", "description": "Lists"}),
                "f\n\nExit code: 0",
                json!(0),
            ),
            (
                json!({"command": "cat; echo $PAGER $GIT_TERMINAL_PROMPT $TERM"}),
                "cat 0 dumb\n\nExit code: 0",
                json!(0),
            ),
            (
                json!({"command": "printf '\\xff\\xc3'"}),
                "\u{fffd}\u{fffd}\n\nExit code: 0",
                json!(0),
            ),
            (
                json!({"command": ": < /dev/tty || echo none"}),
                "none\n",
                json!(0),
            ),
        ];
        for (input, text, exit) in table {
            let output = bash(&context, input.clone()).await.unwrap();
            assert!(
                text_of(&output).contains(text),
                "{input}: {}",
                text_of(&output)
            );
            assert_eq!(output.facts.to_json()["exit"], exit, "{input}");
        }
        let rebase = "git init -q r && cd r && export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=a \
            GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=a@b && git commit -q --allow-empty -m a && \
            git commit -q --allow-empty -m b && git rebase -i HEAD~1; echo code $?";
        let output = bash(&context, json!({"command": rebase})).await.unwrap();
        assert!(
            text_of(&output).contains("code 1") && !text_of(&output).contains("Successfully"),
            "{}",
            text_of(&output)
        );
        for (input, why) in [
            (json!({"command": " "}), "empty"),
            (json!({"command": "a\0b"}), "NUL"),
            #[cfg(target_os = "linux")]
            (
                json!({"command": "a".repeat(1 << 20)}),
                "Write it to a file",
            ),
            (json!({"command": "ls", "timeout": 0}), "timeout is 0"),
            (json!({"command": "ls", "timeout": -1}), "timeout"),
            (
                json!({"command": "ls", "workdir": "sub/f"}),
                "not a directory",
            ),
            (
                json!({"command": "ls", "workdir": "none"}),
                "not a directory",
            ),
        ] {
            let failure = bash(&context, input.clone()).await.unwrap_err().to_string();
            assert!(failure.contains(why), "{input}: {failure}");
        }
        let outside = fixture.outside().display().to_string();
        let (requests, _) = call(
            &erase(BashTool),
            json!({"command": "pwd", "workdir": outside}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(requests[0].permission, "external_directory");
        assert!(requests.iter().any(|request| request.permission == "bash"));
    }

    #[tokio::test]
    async fn output_is_streamed_to_the_editor() {
        let fixture = TestProject::new();
        let (context, mut up) = fixture.listened();
        // The command continues only after its first output was received.
        let script = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second; exit 4";
        let cwd = fixture.cwd().to_path_buf();
        let listener = base::task::spawn(async move {
            let Some(TurnMessage::Event(Event::Call(update))) = up.recv().await else {
                panic!()
            };
            assert_eq!(update.stream.as_deref(), Some("first\n"));
            std::fs::write(cwd.join("go"), "").unwrap();
            received_stream(up).await
        });
        bash(&context, json!({"command": script})).await.unwrap();
        drop(context);
        let (text, _, exit) = listener.await.unwrap();
        assert_eq!(
            (text.as_str(), exit.and_then(|exit| exit.code)),
            ("second\n", Some(4))
        );
    }

    #[tokio::test]
    async fn command_is_terminated_at_its_timeout() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let began = Instant::now();
        let input =
            json!({"command": "trap '' TERM; echo so far; sleep 70 & sleep 71", "timeout": 1});
        let output = bash(&context, input).await.unwrap();
        assert!(
            text_of(&output)
                .starts_with("so far\n\nThe command was terminated at its timeout of 1000 ms."),
            "{}",
            text_of(&output)
        );
        assert_eq!(output.facts.exit.unwrap().code, None);
        assert!(
            began.elapsed() < Duration::from_millis(4_000),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test]
    async fn cancel_ends_all_processes_at_once() {
        let fixture = TestProject::new();
        let (context, mut up) = fixture.listened();
        let command = "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ > pid; echo ready; sleep 72\" & wait";
        let prepared = erase(BashTool)
            .prepare(json!({"command": command}), &context)
            .await
            .unwrap();
        let running = base::task::spawn((prepared.run)(context.clone()));
        let Some(TurnMessage::Event(Event::Call(update))) = up.recv().await else {
            panic!()
        };
        assert_eq!(update.stream.as_deref(), Some("ready\n"));
        let began = Instant::now();
        context.cancelled.cancel();
        assert!(
            matches!(running.await.unwrap(), Err(Failure::CutOff { text, .. }) if text == "ready\n")
        );
        assert!(
            began.elapsed() < Duration::from_millis(600),
            "{:?}",
            began.elapsed()
        );
        let pid = String::from_utf8(fixture.read("pid")).unwrap();
        // Gone, or a zombie until init reaps it.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
            .unwrap_or_else(|_| ") Z".into());
        assert!(stat.contains(") Z") || stat.contains(") X"), "{stat}");
    }

    #[tokio::test]
    async fn grandchild_with_open_pipe_does_not_delay_the_result() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let began = Instant::now();
        let output = bash(&context, json!({"command": "sleep 20 & echo done"}))
            .await
            .unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        assert!(
            output.text.contains("done\n")
                && output
                    .note
                    .contains("still running, in the background as bash_1."),
            "{}",
            output.text
        );
        assert_eq!(context.session.jobs.running().len(), 1);
        context
            .session
            .jobs
            .stop("bash_1", "stopped")
            .await
            .unwrap();
        let began = Instant::now();
        let output = bash(&context, json!({"command": "echo x | (sleep 0.1; cat)"}))
            .await
            .unwrap();
        assert!(
            output.text.starts_with("x\n") && !output.note.contains("background"),
            "{}",
            output.text
        );
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    /// Processes that are left behind in any way can continue to print, and their end is noticed.
    #[tokio::test]
    async fn processes_left_behind_become_a_background_job() {
        let fixture = TestProject::new();
        let late = "while [ ! -e go ]; do sleep 0.01; done; echo late; echo later >&2; exit 5";
        let table = [
            (
                format!("({late}) & echo now"),
                "exit code 5",
                "late\nlater\n",
            ),
            (
                format!("(({late}) & echo now); true"),
                "exit code 0",
                "late\nlater\n",
            ),
            (
                format!("({late}) & disown; echo now"),
                "exit code 0",
                "late\nlater\n",
            ),
            (
                format!("trap 'echo bye' EXIT; ({late}) & echo now"),
                "exit code 0",
                "late\nlater\n",
            ),
            (
                format!("set -eux; ({late}) & echo now"),
                "exit code 5",
                "late",
            ),
            (format!("({late}) >log 2>&1 & echo now"), "exit code 5", ""),
            (
                format!("({late}; sleep 1) & ({late}) & echo now; false"),
                "exit code 5",
                "late\nlater\n",
            ),
        ];
        for (n, (command, how, printed)) in (1..).zip(table) {
            let context = fixture.context();
            std::fs::remove_file(fixture.cwd().join("go")).ok();
            let output = bash(&context, json!({"command": command})).await.unwrap();
            assert!(
                output.text.contains("now\n")
                    && output.note.contains("in the background as bash_1."),
                "{}",
                output.text
            );
            assert_eq!(
                output.facts.exit.unwrap().code,
                Some(i32::from(n == 7)),
                "{command}"
            );
            assert_eq!(output.facts.job.unwrap().id, "bash_1");
            fixture.write("go", "");
            let reading = context
                .session
                .jobs
                .read(
                    "bash_1",
                    Duration::from_secs(20),
                    &crate::process::background_jobs::WaitFor::End,
                )
                .await
                .unwrap();
            assert_eq!(reading.how.as_deref(), Some(how), "{command}");
            assert!(
                reading.text.contains(printed) && !reading.text.contains("now\n"),
                "{command}: {}",
                reading.text
            );
        }
        // A command that has ended by then is not in the background.
        let context = fixture.context();
        let command = "(echo a; exit 4) & while kill -0 $! 2>/dev/null; do :; done; echo b";
        let output = bash(&context, json!({"command": command})).await.unwrap();
        assert!(
            output.note.lines().any(|line| line == "Exit code: 0"),
            "{}",
            output.text
        );
        assert!(context.session.jobs.running().is_empty());
        let scratch = scratch::directory(&context.project.environment, context.session.id.as_str());
        assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn read_only_commands_are_concurrent() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let table = [
            (json!({"command": "cat a; ls -la | head"}), true),
            (
                json!({"command": "git status --short && git log --oneline -3"}),
                true,
            ),
            (json!({"command": "touch a"}), false),
            (json!({"command": "ls > a"}), false),
            (json!({"command": "ls & cat a"}), false),
            (json!({"command": "ls", "run_in_background": true}), false),
            (json!({"command": "make test"}), false),
            (json!({"command": "ls $(rm a)"}), false),
        ];
        for (input, beside) in table {
            assert_eq!(
                erase(BashTool).is_concurrent(&input, &context),
                beside,
                "{input}"
            );
        }
    }

    #[tokio::test]
    async fn flood_of_output_is_bounded() {
        let fixture = TestProject::new();
        let table = [
            (
                "head -c 20000000 /dev/zero | tr '\\0' 'é'; echo END",
                20_000_004,
                "END",
            ),
            ("seq 1000000", 6_888_896, "1000000"),
            ("seq 3000", 13_893, "3000"),
        ];
        for (command, bytes, last) in table {
            let (context, up) = fixture.listened();
            let listener = base::task::spawn(received_stream(up));
            let began = Instant::now();
            let output = bash(&context, json!({"command": command})).await.unwrap();
            drop(context);
            let (streamed, pieces, _) = listener.await.unwrap();
            let beats =
                usize::try_from(began.elapsed().as_millis() / UPDATE_INTERVAL.as_millis()).unwrap();
            assert!(pieces <= beats + 2, "{pieces} in {beats} beats");
            assert!(streamed.len() <= pieces * (2 * TRIMMED_BYTES + 100));
            assert!(
                output.text.len() < (50 << 10) + 1_000,
                "{}",
                output.text.len()
            );
            assert!(output.text.lines().count() < 2_020);
            assert!(
                output.text.contains(" bytes truncated...") && output.text.contains(last),
                "{command}"
            );
            let path = output.facts.output_path.as_ref().unwrap().to_str().unwrap();
            assert_eq!(std::fs::metadata(path).unwrap().len(), bytes, "{command}");
        }
    }
}
