//! Formatters, which the user has configured to run over every file that a tool has written.
//!
//! They change the file itself, one after the other, each in the sandbox of the agent's commands
//! and for at most ten seconds. A failure is reported to the model with the call, and to the user
//! once. The user may save the file while a formatter waits or runs, so that the text before it is
//! only restored if the file has no text any more; everything else stays, and is reported.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use base::task::spawn_blocking;

use crate::files::disk;
use crate::process::program_slot::slot;
use crate::process::terminal_emulator::TerminalScreen;
use crate::{Failure, ToolContext};
use base::child_environment::GIT_UNTRUSTED;
use base::lock::lock;
use base::text;
use config::Settings;
use config::formatter::{FormatterEntry, FormatterRun};
use events::{Event, Severity};
use sandbox::process::{Program, ProgramOutput};

/// The maximum duration of a formatter.
const FORMATTER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum bytes of a formatter's message in a report.
const MAX_MESSAGE_BYTES: usize = 600;

/// The names of the formatters that the user was notified of, for a session. The mutex is a leaf
/// lock around a set.
#[derive(Debug, Default)]
pub struct NotifiedFormatters(Mutex<BTreeSet<String>>);

/// Returns whether any formatter of the settings is for files of that name.
pub fn has_formatter(settings: &Settings, path: &Path) -> bool {
    settings.formatters.iter().any(|entry| entry.is_for(path))
}

/// Runs the formatters over a file. Returns notes for the model on failures.
///
/// # Errors
/// `Cancelled` if the user cancels in the meantime.
pub async fn format(real: &Path, context: &ToolContext) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for entry in context
        .project
        .settings
        .formatters
        .iter()
        .filter(|entry| entry.is_for(real))
    {
        if let Some(why) = run_formatter(entry.clone(), real, context).await? {
            let title = format!("The formatter {} {why}.", entry.name);
            if lock(&context.session.formatters.0).insert(entry.name.clone()) {
                let notice = Event::Notice {
                    severity: Severity::Warning,
                    title: title.clone(),
                    details: None,
                };
                context.client.event_sender.event(notice).await;
            }
            notes.push(title);
        }
    }
    Ok(notes)
}

/// Runs a formatter. Returns `None` on success, or if there is nothing to run; otherwise the end of
/// a sentence that begins with its name.
async fn run_formatter(
    entry: FormatterEntry,
    real: &Path,
    context: &ToolContext,
) -> Result<Option<String>, Failure> {
    let root = context.project.worktree.root.clone();
    let environment = context.project.environment.clone();
    let file = real.to_owned();
    let found = spawn_blocking(move || entry.run(&file, &root, &environment)).await;
    let run = match found {
        Ok(Ok(Some(run))) => run,
        Ok(Ok(None)) => return Ok(None),
        Ok(Err(missing)) => {
            return Ok(Some(format!(
                "was not run: {} is not installed",
                text::escaped(&missing.program)
            )));
        }
        Err(e) => {
            return Err(Failure::Broken(format!(
                "formatters could not be looked for: {e}"
            )));
        }
    };
    if run.of_project && !context.sandbox_choice.trusted {
        return Ok(Some(
            "was not run: it would run code of this project, which is not trusted; `adjutant trust` shows it"
                .to_owned(),
        ));
    }
    let program = match prepare(&run, context).await? {
        Ok(program) => program,
        Err(why) => return Ok(Some(why)),
    };
    let slot = slot(context, Failure::Cancelled).await?;
    // Read after everything that waits: the user may have saved the file in the meantime.
    let before = disk::read(real).ok();
    let ran = tokio::select! {
        ran = program.run_in(slot, FORMATTER_TIMEOUT) => ran,
        () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
    };
    let is_destroyed = is_destroyed(real, before.as_deref().unwrap_or_default());
    let mut why = match (failure(ran), is_destroyed) {
        (None, false) => return Ok(None),
        (None, true) => "failed: it left an empty or unreadable file".to_owned(),
        (Some(why), _) => why,
    };
    if !is_destroyed {
        if disk::read(real).ok() != before {
            why.push_str("; the file keeps what was written to it meanwhile");
        }
        return Ok(Some(why));
    }
    if let Some(before) = before
        && let Err(e) = disk::write(real, &before)
    {
        return Err(Failure::Broken(format!(
            "the result of a formatter in {} could not be repaired: {e}",
            real.display()
        )));
    }
    Ok(Some(why))
}

/// Returns whether a file has lost its text: it is missing, not UTF-8, or empty although its text
/// `before` was not blank. Any other text may be one that the user has saved.
pub fn is_destroyed(real: &Path, before: &[u8]) -> bool {
    match disk::read(real) {
        Ok(bytes) if bytes.is_empty() => !before.trim_ascii().is_empty(),
        Ok(bytes) => std::str::from_utf8(&bytes).is_err(),
        Err(e) => matches!(e, disk::Error::Missing),
    }
}

/// Prepares the program to be run in its sandbox. The inner error is the reason why it cannot be
/// run, as the end of a sentence that begins with the formatter's name.
async fn prepare(
    run: &FormatterRun,
    context: &ToolContext,
) -> Result<Result<Program, String>, Failure> {
    let sandbox = match context.sandbox_choice.prepare(context).await {
        Ok(sandbox) => sandbox,
        Err(Failure::ForModel(why)) => {
            return Ok(Err(format!("was not run: {}", why.trim_end_matches('.'))));
        }
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
    env.extend(
        run.environment
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let (program, arguments) = &run.command;
    let program = Program::new(
        program,
        run.folder.as_ref().unwrap_or(&context.project.cwd),
        env,
    )
    .args(arguments);
    let entered = context.sandbox_choice.enter(&sandbox, context, program);
    Ok(entered.map_err(|why| format!("was not run: {}", why.to_string().trim_end_matches('.'))))
}

/// Returns the reason if a formatter failed, as the end of a sentence that begins with its name.
fn failure(ran: io::Result<ProgramOutput>) -> Option<String> {
    match ran {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let message = if output.stderr.trim_ascii().is_empty() {
                &output.stdout
            } else {
                &output.stderr
            };
            let mut screen = TerminalScreen::default();
            let message = [
                screen.push_bytes(&message[..message.len().min(4 * MAX_MESSAGE_BYTES)]),
                screen.end(),
            ]
            .concat();
            let (message, _) = text::visible(&String::from_utf8_lossy(&message));
            let message = text::head(message.trim(), MAX_MESSAGE_BYTES);
            let code = output
                .status
                .code()
                .map_or_else(|| "a signal".into(), |code| format!("exit code {code}"));
            Some(if message.is_empty() {
                format!("failed: {code}")
            } else {
                format!("failed: {code}: {}", message.trim_end_matches('.'))
            })
        }
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Some(format!(
            "failed: it took longer than {} seconds",
            FORMATTER_TIMEOUT.as_secs()
        )),
        Err(e) => Some(format!("failed: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::edits::apply_patch;
    use crate::edits::edit;
    use crate::edits::write;
    use crate::erase;
    use crate::test::{EditorReply, TestProject, call};
    use config::formatter::from_json;

    fn with(context: &mut ToolContext, written: serde_json::Value) {
        let formatters = from_json(written).unwrap();
        Arc::make_mut(&mut context.project).settings = Arc::new(Settings {
            formatters,
            ..Settings::default()
        });
    }

    fn large() -> serde_json::Value {
        json!({"large": {"command": ["sed", "-i", "s/[a-z]/\\U&/g", "$FILE"], "extensions": [".x"]}})
    }

    #[tokio::test]
    async fn formatted_text_is_the_written_text() {
        let fixture = TestProject::new();
        let mut context = fixture.context();
        with(&mut context, large());
        fixture.write("a.x", "ONE\r\n");
        let input = json!({"filePath": "a.x", "oldString": "ONE", "newString": "two"});
        let (requests, output) = call(&erase(edit::EditTool), input, &context).await.unwrap();
        assert_eq!(fixture.read("a.x"), b"TWO\r\n");
        assert_eq!(
            (
                requests[0].changes[0].new.as_str(),
                output.changes[0].new.as_str()
            ),
            ("two\r\n", "TWO\r\n")
        );
        assert!(
            output
                .text
                .ends_with("A formatter then changed the file:\n- two\n+ 1: TWO"),
            "{}",
            output.text
        );
        let again = json!({"filePath": "a.x", "content": "Four\n"});
        let failure = call(&erase(write::WriteTool), again.clone(), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("was not read"),
            "nobody has read all of it: {failure}"
        );
        call(&erase(write::WriteTool), again.clone(), &context)
            .await
            .unwrap();
        call(&erase(write::WriteTool), again, &context)
            .await
            .unwrap();
        let patch = "*** Begin Patch\n*** Add File: n.x\n+n\n*** Update File: a.x\n@@\n-FOUR\n+five\n*** End Patch";
        let (_, output) = call(
            &erase(apply_patch::ApplyPatchTool),
            json!({"patchText": patch}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(
            (fixture.read("n.x"), fixture.read("a.x")),
            (b"N\n".to_vec(), b"FIVE\r\n".to_vec())
        );
        assert!(
            output.text.contains("a.x: A formatter then changed"),
            "{}",
            output.text
        );
    }

    #[tokio::test]
    async fn editor_gets_the_formatted_text_once() {
        let fixture = TestProject::new();
        fixture.write("a.x", "OLD\n");
        let (mut context, editor) = fixture.with_editor(EditorReply::Saves);
        with(&mut context, large());
        editor.type_into(&fixture.cwd().join("a.x"), "OLD\nunsaved\n");
        let input = json!({"filePath": "a.x", "oldString": "OLD", "newString": "new"});
        let (_, output) = call(&erase(edit::EditTool), input, &context).await.unwrap();
        assert_eq!(
            (fixture.read("a.x"), editor.saved()),
            (b"NEW\nUNSAVED\n".to_vec(), 1)
        );
        assert_eq!(output.changes[0].new, "NEW\nUNSAVED\n");
        // A write that the editor refuses leaves the disk unchanged.
        let (mut context, _) = fixture.with_editor(EditorReply::Declines);
        with(&mut context, large());
        let input = json!({"filePath": "a.x", "oldString": "NEW", "newString": "other"});
        let failure = call(&erase(edit::EditTool), input, &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("the editor refused"), "{failure}");
        assert_eq!(fixture.read("a.x"), b"NEW\nUNSAVED\n");
    }

    #[tokio::test]
    async fn project_formatter_does_not_run_without_trust() {
        let fixture = TestProject::new();
        fixture.write("package.json", r#"{"dependencies": {"prettier": "3"}}"#);
        fixture.write("node_modules/.bin/prettier", "#!/bin/sh\necho run > ran\n");
        let program = fixture.cwd().join("node_modules/.bin/prettier");
        std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let mut context = fixture.context();
        with(&mut context, json!(true));
        let input = json!({"filePath": "a.ts", "content": "a\n"});
        let (_, output) = call(&erase(write::WriteTool), input, &context)
            .await
            .unwrap();
        assert!(
            output
                .text
                .contains("prettier was not run: it would run code of this project"),
            "{}",
            output.text
        );
        assert!(!fixture.cwd().join("ran").exists());
        context.sandbox_choice.trusted = true;
        let input = json!({"filePath": "b.ts", "content": "a\n"});
        let (_, output) = call(&erase(write::WriteTool), input, &context)
            .await
            .unwrap();
        assert_eq!(
            (output.text.as_str(), fixture.read("ran")),
            ("File written.", b"run\n".to_vec())
        );
    }

    #[tokio::test]
    async fn text_saved_while_a_formatter_runs_stays() {
        // The formatter waits until the test has acted as the user.
        let command = |action: &str| {
            let script = format!("echo > began; while [ ! -e go ]; do sleep 0.01; done; {action}");
            json!({"slow": {"command": ["sh", "-c", script, "sh", "$FILE"], "extensions": [".x"]}})
        };
        let kept = "slow failed: exit code 3; the file keeps what was written to it meanwhile.";
        let table = [
            ("exit 3", Some("saved\n"), "saved\n", kept),
            ("echo half > \"$1\"; exit 3", None, "half\n", kept),
            ("exit 3", None, "written\n", "slow failed: exit code 3."),
            (
                ": > \"$1\"; exit 3",
                None,
                "written\n",
                "slow failed: exit code 3.",
            ),
            ("rm \"$1\"", None, "written\n", "empty or unreadable file."),
            (
                "printf '\\377' > \"$1\"",
                Some("saved\n"),
                "written\n",
                "empty or unreadable file.",
            ),
        ];
        for (action, saved, expected, message) in table {
            let fixture = TestProject::new();
            let mut context = fixture.context();
            with(&mut context, command(action));
            let input = json!({"filePath": "a.x", "content": "written\n"});
            let tool = erase(write::WriteTool);
            let user = async {
                while !fixture.cwd().join("began").exists() {
                    tokio::task::yield_now().await;
                }
                if let Some(saved) = saved {
                    fixture.write("a.x", saved);
                }
                fixture.write("go", "");
            };
            let (output, ()) = tokio::join!(call(&tool, input, &context), user);
            let (_, output) = output.unwrap();
            assert_eq!(fixture.read("a.x"), expected.as_bytes(), "{action}");
            assert!(output.text.contains(message), "{action}: {}", output.text);
        }
    }

    #[tokio::test]
    async fn text_saved_before_a_cancel_stays() {
        for (saved, expected) in [(None, "old\n"), (Some("saved\n"), "saved\n")] {
            let fixture = TestProject::new();
            fixture.write("a.x", "old\n");
            let mut context = fixture.context();
            with(
                &mut context,
                json!({"slow": {"command": ["sh", "-c", "echo > began; sleep 60"], "extensions": [".x"]}}),
            );
            let tool = erase(edit::EditTool);
            let user = async {
                while !fixture.cwd().join("began").exists() {
                    tokio::task::yield_now().await;
                }
                if let Some(saved) = saved {
                    fixture.write("a.x", saved);
                }
                context.cancelled.cancel();
            };
            let input = json!({"filePath": "a.x", "oldString": "old", "newString": "new"});
            let (ended, ()) = tokio::join!(call(&tool, input, &context), user);
            assert!(ended.is_err());
            assert_eq!(fixture.read("a.x"), expected.as_bytes(), "{saved:?}");
        }
    }

    #[tokio::test]
    async fn patch_does_not_overwrite_a_file_saved_during_a_formatter() {
        let fixture = TestProject::new();
        fixture.write("a.x", "a\n");
        fixture.write("b", "b\n");
        let mut context = fixture.context();
        with(
            &mut context,
            json!({"slow": {"command": ["sh", "-c", "echo > began; while [ ! -e go ]; do sleep 0.01; done"], "extensions": [".x"]}}),
        );
        let patch = "*** Begin Patch\n*** Update File: a.x\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n*** End Patch";
        let tool = erase(apply_patch::ApplyPatchTool);
        let user = async {
            while !fixture.cwd().join("began").exists() {
                tokio::task::yield_now().await;
            }
            fixture.write("b", "saved\n");
            fixture.write("go", "");
        };
        let (ended, ()) = tokio::join!(call(&tool, json!({"patchText": patch}), &context), user);
        let why = ended.unwrap_err().to_string();
        assert!(why.contains("b changed while"), "{why}");
        assert_eq!(
            (fixture.read("a.x"), fixture.read("b")),
            (b"a\n".to_vec(), b"saved\n".to_vec())
        );
    }
}
