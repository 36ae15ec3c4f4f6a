//! Runs the command of one hook, in the sandbox of the agent's commands.

use std::path::{Path, PathBuf};

use super::hook_event::HookEvent;
use super::hook_outcome::HookAnswer;
use base::child_environment::GIT_UNTRUSTED;
use config::settings::{HookEntry, HookFormat};
use sandbox::process::Program;
use tools::{Failure, ToolContext};

/// The maximum output of a hook, in bytes.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// The placeholder of a file in a command.
const FILE: &str = "$FILE";

/// Returns the files that a hook runs for, one after the other. A hook whose command names no file
/// runs once, with `None`.
pub(super) fn files(hook: &HookEntry, hook_event: &HookEvent) -> Vec<Option<PathBuf>> {
    if hook.command.iter().any(|word| word.contains(FILE)) {
        hook_event.files.iter().cloned().map(Some).collect()
    } else {
        vec![None]
    }
}

/// Runs the command of a hook, and returns its answer, or the reason why it has none. The reason
/// completes the sentence "it failed: ".
///
/// # Errors
/// Returns [`Failure::Cancelled`] if the user cancels.
pub(super) async fn run(
    hook: &HookEntry,
    hook_event: &HookEvent,
    file: Option<&Path>,
    context: &ToolContext,
) -> Result<Result<HookAnswer, String>, Failure> {
    if let Some(why) = hook.withheld {
        return Ok(Err(why.into()));
    }
    let sandbox_choice = context.sandbox_choice.without_notices();
    let sandbox = match sandbox_choice.prepare(context).await {
        Ok(sandbox) => sandbox,
        Err(Failure::ForModel(why)) => return Ok(Err(why.trim_end_matches('.').to_owned())),
        Err(failure) => return Err(failure),
    };
    let mut env = context
        .project
        .settings
        .variables
        .for_model_program(&context.project.environment);
    if !context.sandbox_choice.trusted {
        env.extend(GIT_UNTRUSTED.map(|(name, value)| (name.into(), value.into())));
    }
    if hook.format == HookFormat::Claude {
        env.insert(
            "CLAUDE_PROJECT_DIR".into(),
            context.project.worktree.root.clone().into(),
        );
    }
    env.extend(
        hook.environment
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let with_file = |word: &String| match file {
        Some(file) => word.replace(FILE, &file.display().to_string()),
        None => word.clone(),
    };
    let mut words = hook.command.iter().map(with_file);
    let program = words.next().unwrap_or_default();
    // A program given with a path starts at the project's root, regardless of the session's
    // directory.
    let program = if program.contains('/') {
        context.project.worktree.root.join(program).into_os_string()
    } else {
        program.into()
    };
    let program = Program::new(program, &context.project.cwd, env).args(words);
    let program = match sandbox_choice.enter(&sandbox, context, program) {
        Ok(program) => program,
        Err(why) => return Ok(Err(why.to_string().trim_end_matches('.').to_owned())),
    };
    let event = format!("{}\n", hook_event.payload(hook, context));
    let ran = tokio::select! {
        ran = program.run_with_input(event.as_bytes(), MAX_OUTPUT_BYTES, hook.limit) => ran,
        () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
    };
    Ok(match ran {
        Ok(ran) => HookAnswer::decode(hook, ran.status, &ran.stdout, &ran.stderr),
        Err(e) => Err(match e.kind() {
            std::io::ErrorKind::TimedOut => {
                format!("it took longer than {} ms", hook.limit.as_millis())
            }
            std::io::ErrorKind::FileTooLarge => {
                format!("it printed more than {} KiB", MAX_OUTPUT_BYTES >> 10)
            }
            std::io::ErrorKind::NotFound => {
                format!(
                    "there is no program {}",
                    base::text::title(hook.command.first().map_or("", String::as_str))
                )
            }
            _ => e.to_string(),
        }),
    })
}
