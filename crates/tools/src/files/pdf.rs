//! Extracts the text of PDFs for models that do not accept PDFs, if Poppler's `pdftotext` is
//! installed. It runs in the sandbox of read-only commands.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::ToolContext;
use base::child_environment::GIT_UNTRUSTED;
use base::text;
use sandbox::process::Program;
use transcript::File;

const PROGRAM: &str = "pdftotext";

/// The maximum duration of the conversion.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of bytes of its output.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// Returns the text of a PDF for the model, or the reason why there is none. Returns `None` for
/// other files, without `pdftotext` or a sandbox for it, and if the user cancels.
pub async fn text_or_reason(file: &File, context: &ToolContext) -> Option<String> {
    if file.mime != "application/pdf" || file.is_rejected {
        return None;
    }
    let data = file.data.as_ref()?;
    let environment = &context.project.environment;
    let program = base::executable::find(PROGRAM, environment.path())?;
    let name = text::title(
        file.name
            .as_deref()
            .or(file.uri.as_deref())
            .unwrap_or("The PDF"),
    );
    let bytes = STANDARD.decode(data.trim_ascii()).ok()?;
    let sandbox_choice = context.sandbox_choice.reading().without_notices();
    let sandbox = sandbox_choice.prepare(context).await.ok()?;
    let mut env = context
        .project
        .settings
        .variables
        .for_model_program(environment);
    env.extend(GIT_UNTRUSTED.map(|(name, value)| (name.into(), value.into())));
    // It needs nothing of the project, so it does not run there.
    let program =
        Program::new(program, "/", env).args(["-q", "-layout", "-enc", "UTF-8", "-", "-"]);
    let program = sandbox_choice.enter(&sandbox, context, program).ok()?;
    let ran = tokio::select! {
        ran = program.run_with_input(&bytes, MAX_OUTPUT_BYTES, CONVERSION_TIMEOUT) => ran,
        () = context.cancelled.cancelled() => return None,
    };
    let text = match ran {
        Ok(ran) if ran.status.success() => String::from_utf8_lossy(&ran.stdout).into_owned(),
        Ok(ran) => {
            let why = text::title(String::from_utf8_lossy(&ran.stderr).trim());
            return Some(format!(
                "[{name} is a PDF whose text {PROGRAM} could not extract: {why}]"
            ));
        }
        Err(e) => {
            return Some(format!(
                "[{name} is a PDF whose text {PROGRAM} could not extract: {e}]"
            ));
        }
    };
    let (text, _) = text::visible(text.trim());
    if text.trim().is_empty() {
        return Some(format!(
            "[{name} is a PDF without text, perhaps a scan; this model cannot read it]"
        ));
    }
    let head = text::head(&text, context.limits.bytes);
    let rest = match text.len() - head.len() {
        0 => String::new(),
        more => format!("\n[{more} more bytes are left out; run {PROGRAM} to read them]"),
    };
    Some(format!(
        "[{name} is a PDF; this is its text, by {PROGRAM}]\n{head}{rest}"
    ))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::test::TestProject;

    fn set_path(context: &mut ToolContext, path: &str) {
        let project = Arc::make_mut(&mut context.project);
        project.environment = project.environment.with("PATH", path);
    }

    #[tokio::test]
    async fn pdf_is_converted_to_text() {
        let file = |mime: &str| File {
            mime: mime.into(),
            name: Some("a.pdf".into()),
            uri: None,
            data: Some(STANDARD.encode("%PDF-1.7")),
            is_rejected: false,
        };
        let table = [
            (
                "cat; echo ' and more'",
                "[a.pdf is a PDF; this is its text, by pdftotext]\n%PDF-1.7 and more",
            ),
            (
                "echo",
                "[a.pdf is a PDF without text, perhaps a scan; this model cannot read it]",
            ),
            (
                "echo 'no good' >&2; exit 1",
                "[a.pdf is a PDF whose text pdftotext could not extract: no good]",
            ),
        ];
        for (script, wanted) in table {
            let fixture = TestProject::new();
            let mut context = fixture.context();
            let path = fixture.cwd().join(PROGRAM);
            fixture.write(PROGRAM, format!("#!/bin/sh\n{script}\n"));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let dirs = format!("{}:/usr/bin:/bin", fixture.cwd().display());
            set_path(&mut context, &dirs);
            assert_eq!(
                text_or_reason(&file("application/pdf"), &context)
                    .await
                    .as_deref(),
                Some(wanted)
            );
            assert_eq!(text_or_reason(&file("image/png"), &context).await, None);
            let nothing = fixture.cwd().join("no-programs").display().to_string();
            set_path(&mut context, &nothing);
            assert_eq!(
                text_or_reason(&file("application/pdf"), &context).await,
                None
            );
        }
    }
}
