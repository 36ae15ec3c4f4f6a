//! The language servers of the files that tools read and change. There are none if the settings have
//! no language servers or the project is not trusted, since servers run its code.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::scratch;
use crate::{Failure, ToolContext};
use base::child_environment::GIT_UNTRUSTED;
use base::task::spawn_blocking;
use base::text;
use events::{Event, Severity};
use lsp::{LspClient, ServerHandle, Unavailable};
use sandbox::process::Program;

/// The maximum time to wait for a server's start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a file that is sent to a server, in bytes.
pub(super) const MAX_FILE_BYTES: usize = 2 << 20;

/// Returns whether files may have language servers: they are enabled, and the project is trusted.
pub fn is_available(settings: &config::Settings) -> bool {
    settings.trusted && !settings.language_servers.is_empty()
}

/// Returns the servers for a file, and starts them if necessary. `real` is its path with symlinks
/// resolved. Notifies the user once of each that is missing or cannot be started.
pub(super) async fn servers(real: &Path, context: &ToolContext) -> Vec<Arc<ServerHandle>> {
    let settings = &context.project.settings;
    if !context.sandbox_choice.trusted
        || !settings
            .language_servers
            .iter()
            .any(|entry| entry.is_for(real))
    {
        return Vec::new();
    }
    let tree = &context.project.worktree;
    let roots = std::iter::once(&tree.root).chain(&tree.extra);
    let Some(root) = roots
        .filter(|root| real.starts_with(root))
        .max_by_key(|root| root.as_os_str().len())
    else {
        return Vec::new();
    };
    let entries: Vec<_> = settings
        .language_servers
        .iter()
        .filter(|entry| entry.is_for(real))
        .cloned()
        .collect();
    let file = real.to_owned();
    let root = root.clone();
    let environment = context.project.environment.clone();
    let found = spawn_blocking(move || {
        entries
            .iter()
            .map(|entry| entry.run(&file, &root, &environment))
            .collect::<Vec<_>>()
    });
    let mut all = Vec::new();
    for run in found.await.unwrap_or_default() {
        match run {
            Ok(None) => {}
            Ok(Some(run)) => match context.sandbox_choice.prepare(context).await {
                Ok(mut sandbox) => {
                    // Several sessions share the server, so it gets none of their directories.
                    sandbox.scratch =
                        scratch::directory(&context.project.environment, "language servers");
                    let confined = format!(
                        "{:?}, {:?}",
                        context.sandbox_choice.reads_only(),
                        sandbox.restrictions
                    );
                    let program = || {
                        let mut env = settings
                            .variables
                            .for_model_program(&context.project.environment);
                        if !context.sandbox_choice.trusted {
                            env.extend(
                                GIT_UNTRUSTED.map(|(name, value)| (name.into(), value.into())),
                            );
                        }
                        env.extend(
                            run.environment
                                .iter()
                                .map(|(name, value)| (name.into(), value.into())),
                        );
                        let (program, arguments) = &run.command;
                        let program = Program::new(program, &run.root, env).args(arguments);
                        context
                            .sandbox_choice
                            .enter_shared(&sandbox, context, program)
                    };
                    match context.session.language.get(&run, &confined, program) {
                        Ok(server) => all.push(server),
                        Err(why) => notify_unstarted(&run.name, why, context).await,
                    }
                }
                Err(why) => notify_unstarted(&run.name, why, context).await,
            },
            Err(missing) => {
                let program = text::escaped(&missing.program);
                let install = missing
                    .install
                    .map(|how| format!("The usual way to install it: {how}"));
                let title = format!(
                    "There is no language server {}: no program {program}.",
                    missing.name
                );
                notify_once(context, title, install).await;
            }
        }
    }
    all
}

/// Notifies the user once that a server was not started, with the reason.
async fn notify_unstarted(name: &str, why: Failure, context: &ToolContext) {
    notify_once(
        context,
        format!("The language server {name} was not started: {why}"),
        None,
    )
    .await;
}

/// Notifies the user, once per session.
async fn notify_once(context: &ToolContext, title: String, details: Option<String>) {
    if context.session.language.record_notice(&title) {
        context
            .client
            .event_sender
            .event(Event::Notice {
                severity: Severity::Warning,
                title,
                details,
            })
            .await;
    }
}

/// Returns the connection to the server, and waits for its start until `until`. Notifies the user
/// if the server does not work.
///
/// # Errors
/// The reason why there is no connection, for the model.
pub(super) async fn peer(
    server: &ServerHandle,
    until: Instant,
    context: &ToolContext,
) -> Result<Arc<LspClient>, String> {
    match server.peer(until).await {
        Ok(peer) => Ok(peer),
        Err(Unavailable::Starting) => Err(format!("{} is still starting", server.name())),
        Err(Unavailable::Failed(failure)) => {
            let what = if failure.is_paused {
                "failed repeatedly and is paused"
            } else {
                "does not work"
            };
            let stderr = Some(failure.stderr.trim()).filter(|stderr| stderr.lines().count() > 1);
            let details = stderr
                .map(|stderr| format!("It wrote:\n{}", text::escaped(stderr).replace("\\n", "\n")));
            let title = format!(
                "The language server {} {what}: {}.",
                server.name(),
                failure.why.trim_end_matches('.')
            );
            notify_once(context, title, details).await;
            Err(format!("{} {what}: {}", server.name(), failure.why))
        }
    }
}

/// Opens a file in its servers, in the background, because a change or a request may follow.
pub(super) async fn open_in_background(real: &Path, text: &str, context: &ToolContext) {
    if text.len() > MAX_FILE_BYTES {
        return;
    }
    for server in servers(real, context).await {
        let path = real.to_owned();
        let text = text.to_owned();
        // The task holds nothing of the turn, which may end before it.
        base::task::spawn(async move {
            if let Ok(peer) = server.peer(Instant::now() + START_TIMEOUT).await {
                peer.show(&path, &text);
            }
        });
    }
}

/// Returns the error of a tool that needs a server if the file `shown` has none.
pub(super) fn no_server(shown: &str) -> Failure {
    Failure::ForModel(format!(
        "There is no language server for {shown}. Use grep and read."
    ))
}
