//! `adjutant sessions --running`, `wait` and `cancel`: sessions on other hosts.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::json;

use super::ProjectSessions;
use crate::cli::refused;
use crate::cli::work::PromptAnswer;
use base::environment::Environment;
use base::id::SessionId;
use store::{Store, TaskState};

/// The interval of checking whether a prompt is answered.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Prints the sessions that a host works on, or that wait for one.
pub(super) async fn running(
    store: &Store,
    environment: &Environment,
    all: bool,
    json: bool,
) -> anyhow::Result<u8> {
    let busy = store.list_busy_sessions().await?;
    let here = if all {
        None
    } else {
        Some(ProjectSessions::of(store, Path::new("."), environment).await?)
    };
    let mut lines = Vec::new();
    let mut entries = Vec::new();
    for session in busy {
        // A session that is created and not yet written has no record.
        let record = store
            .peek(&session.session)
            .await
            .ok()
            .map(|stored| stored.record);
        if here
            .as_ref()
            .is_some_and(|here| !record.as_ref().is_some_and(|record| here.has(record)))
        {
            continue;
        }
        let state = session.state.map_or("open", TaskState::as_str);
        let title = record.as_ref().and_then(|record| record.title.clone());
        let (host, pid) = session
            .host
            .clone()
            .map_or((None, None), |(host, pid)| (Some(host), Some(pid)));
        let cwd = record.map(|record| record.cwd);
        entries.push(
            json!({ "id": session.session, "state": state, "host": host, "pid": pid, "tries": session.tries,
                "title": title, "cwd": cwd }),
        );
        let host = session
            .host
            .map_or_else(|| "-".to_owned(), |(host, pid)| format!("{host} ({pid})"));
        let title = title.unwrap_or_else(|| "(no title)".into());
        lines.push(format!("{}  {state}  {host}  {title}", session.session));
    }
    if json {
        crate::cli::terminal::json(&serde_json::to_string_pretty(&entries)?);
        return Ok(0);
    }
    for line in &lines {
        crate::cli::say(line);
    }
    if lines.is_empty() {
        crate::cli::say(if all {
            "Nothing runs."
        } else {
            "Nothing is running in this project; --all includes every project."
        });
    }
    Ok(0)
}

/// Waits until a prompt is answered, and prints the answer. With `strict`, a refused call has an
/// exit code of its own.
pub(super) async fn wait(store: &Store, session: &SessionId, strict: bool) -> anyhow::Result<u8> {
    loop {
        let Some(task) = store.task_status(session).await? else {
            bail!("no prompt of session {session} was queued in the store");
        };
        if !task.state.is_over() {
            tokio::time::sleep(POLL_INTERVAL).await; // the store does not notify about answers
            continue;
        }
        let answer: Option<PromptAnswer> = task
            .outcome
            .as_deref()
            .and_then(|outcome| serde_json::from_str(outcome).ok());
        let answer = answer.unwrap_or_default();
        let refused = refused::listed(&answer.refused);
        let code = if strict && refused.is_some() && answer.code == 0 {
            5
        } else {
            answer.code
        };
        if let Some(list) = refused {
            crate::cli::terminal::print_note(&list);
        }
        return match (task.state, answer.result) {
            (TaskState::Failed, _) => Err(anyhow!("{}", answer.text)),
            (TaskState::Cancelled, _) => {
                crate::cli::terminal::print_note("It was cancelled.");
                Ok(130)
            }
            (_, Some(result)) => {
                crate::cli::terminal::json(&format!("{result:#}"));
                Ok(code)
            }
            (_, None) => {
                crate::cli::say(&answer.text);
                Ok(code)
            }
        };
    }
}

/// Cancels a prompt that runs or waits.
pub(super) async fn cancel(store: &Store, session: &SessionId) -> anyhow::Result<u8> {
    let was_cancelled = store.cancel_task(session).await?;
    crate::cli::say(&if was_cancelled {
        format!("cancelled {session}")
    } else {
        format!("Nothing is running in {session}.")
    });
    Ok(u8::from(!was_cancelled))
}
