//! `/export`: shows the conversation as Markdown, or writes it to a new file. It asks for no permission,
//! because the user has typed the path, and it overwrites nothing.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::turn::{TurnContext, step_context};
use base::environment::Environment;
use base::task::spawn_blocking;
use base::text;
use export::conversation::{self, CallDetail};
use export::{Format, file, html, json};
use permission::account::AccountProperty;
use permission::locate::{self, DirectoryCache, PathRefusal};
use permission::rule::BUILT_IN;
use permission::{Access, Action, PermissionContext, Rules, evaluate};
use store::StoredSession;

/// The maximum size of a conversation that is shown.
const MAX_SHOWN_BYTES: usize = 64 << 10;

/// Carries out `/export` with its argument, and returns the answer.
///
/// # Errors
/// The reason why nothing was exported.
pub(super) async fn export(turn: &TurnContext, rest: &str) -> Result<String, String> {
    let permission = turn
        .session
        .permissions
        .account
        .check(AccountProperty::ExportedFiles);
    if let Err(why) = permission
        && !rest.is_empty()
    {
        return Err(format!(
            "{why} `/export` without a file shows the conversation here."
        ));
    }
    let stored = match turn.session.recorder.read_session().await {
        Ok(stored) => stored,
        Err(e) => return Err(format!("The conversation could not be read: {e}.")),
    };
    if stored.messages.is_empty() {
        return Err("There is nothing to export yet.".into());
    }
    if rest.is_empty() {
        let answer = spawn_blocking(move || {
            conversation_or_advice(&conversation::markdown(&stored, &[], CallDetail::Titles))
        });
        return answer
            .await
            .map_err(|e| format!("The conversation could not be shown: {e}."));
    }
    let environment = turn.session.common.environment.clone();
    let path = target_path(rest, &turn.project.context.cwd, environment.home.as_deref());
    let name = text::escaped(&path.display().to_string());
    let format =
        file::format(&path, &name).map_err(|why| format!("Nothing was exported: {why}."))?;
    if let Some(why) = denial_reason(turn, &path) {
        return Err(format!("Nothing was exported: {why}."));
    }
    let written = spawn_blocking(move || write(stored, &path, format, &environment)).await;
    match written.map_err(io::Error::other).flatten() {
        Ok(bytes) => Ok(format!(
            "Exported the conversation to {}.",
            file::written(format, &name, bytes)
        )),
        Err(e) => Err(format!(
            "Nothing was exported: {}.",
            file::reason(&e, &name)
        )),
    }
}

/// Returns the conversation as an answer. If it is too long for that, advises to write it to a file.
fn conversation_or_advice(markdown: &str) -> String {
    if markdown.len() <= MAX_SHOWN_BYTES {
        return text::shown(markdown).into_owned();
    }
    format!(
        "The conversation has {} KiB, which is too long to be shown here; `/export FILE` writes it to a new file.",
        markdown.len() >> 10
    )
}

/// Returns the reason why the user's rules, or the restrictions of this session, deny a change of the
/// file; `None` if they allow it. Built-in rules are ignored, because they restrict only the model.
fn denial_reason(turn: &TurnContext, path: &Path) -> Option<String> {
    let agent = match step_context::chosen_agent(turn) {
        Ok(agent) => agent,
        Err(fault) => return Some(fault.message.trim_end_matches('.').to_owned()),
    };
    let context = PermissionContext::new(
        &turn.session.common.environment,
        &turn.project.context.worktree,
        &turn.project.context.cwd,
    );
    let mut directories = DirectoryCache::default();
    let text = path.to_string_lossy();
    let located = match locate::locate_literal(&text, &context.cwd, &context, &mut directories) {
        Ok(located) => located,
        // No file can be created there, which is reported with its own words.
        Err(PathRefusal::NotDirectory(_) | PathRefusal::Missing(_)) => return None,
        Err(e) => return Some(e.to_string().trim_end_matches('.').to_owned()),
    };
    located.requests(Access::Edit).iter().find_map(|request| {
        let verdict = evaluate(&agent.rules, &Rules::default(), request);
        let rule = verdict.rule.filter(|rule| rule.source != BUILT_IN)?;
        (verdict.action == Action::Deny)
            .then(|| format!("the rule {} denies it", permission::explain::written(&rule)))
    })
}

/// Returns the file that an argument names: with or without quotes, relative to the session's
/// directory, with `~` for the home directory.
fn target_path(rest: &str, cwd: &Path, home: Option<&Path>) -> PathBuf {
    let unquoted = ['"', '\'']
        .into_iter()
        .find_map(|quote| rest.strip_prefix(quote)?.strip_suffix(quote));
    let name = unquoted.unwrap_or(rest);
    match (name.strip_prefix("~/"), home) {
        (Some(below), Some(home)) => home.join(below),
        _ => cwd.join(name),
    }
}

/// Writes a session to a file that does not exist, and returns its size in bytes. A file that could
/// not be written as a whole is removed.
fn write(
    stored: StoredSession,
    path: &Path,
    format: Format,
    environment: &Environment,
) -> io::Result<u64> {
    let file = file::create(path)?;
    let mut out = BufWriter::new(file);
    let written = match format {
        Format::Json => json::export(stored.into(), &mut out).map_err(io::Error::other),
        Format::Html => {
            let home = environment
                .home
                .as_ref()
                .map(|home| home.display().to_string());
            out.write_all(html::page(stored, Vec::new(), home.as_deref()).as_bytes())
        }
        Format::Markdown => {
            out.write_all(conversation::markdown(&stored, &[], CallDetail::Full).as_bytes())
        }
    };
    let written = written
        .and_then(|()| out.flush())
        .and_then(|()| Ok(out.get_ref().metadata()?.len()));
    if written.is_err() {
        std::fs::remove_file(path).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_names_a_file() {
        let home = Path::new("/home/a");
        for (rest, wanted) in [
            ("notes.md", "/w/notes.md"),
            ("my notes.md", "/w/my notes.md"),
            ("\"my notes.md\"", "/w/my notes.md"),
            ("'a'", "/w/a"),
            ("\"", "/w/\""),
            ("/tmp/a.html", "/tmp/a.html"),
            ("~/a.json", "/home/a/a.json"),
            ("~a", "/w/~a"),
        ] {
            assert_eq!(
                target_path(rest, Path::new("/w"), Some(home)),
                Path::new(wanted),
                "{rest}"
            );
        }
    }

    #[test]
    fn long_conversation_is_not_shown() {
        assert_eq!(conversation_or_advice("# A"), "# A");
        let long = conversation_or_advice(&"a".repeat(MAX_SHOWN_BYTES + 1));
        assert!(
            long.contains("has 64 KiB") && long.contains("`/export FILE`"),
            "{long}"
        );
    }
}
