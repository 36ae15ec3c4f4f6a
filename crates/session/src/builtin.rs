//! Built-in commands, which the session carries out itself (`carry_out`). A command waits in the
//! queue of prompts and runs like a short turn: its output is sent as text, and it can be cancelled.
//! The typed text does not become part of the history.
//!
//! To add one: a [`BuiltinName`], its line in [`BuiltinName::ALL`], its arm in
//! [`BuiltinName::can_be_skill`], and its arm in `answer_page`, which returns its answer. A command that
//! acts on the conversation has its arm in `carry_out` instead, and is listed in the last arm of
//! `answer_page`.

use super::revert::{self, RestoreContext, RevertHints, RevertPoint};
use super::{changes, diff, exports, pages, title};
use base::task::spawn_blocking;

use crate::turn::{
    History, TurnContext, TurnOutcome, compact, jobs, late_changes, run, size, step_context,
};
use base::environment::Environment;
use base::id::PartId;
use base::text;
use events::{Event, Status};
use permission::account::AccountProperty;
use providers::auth::Auth;
use store::{Record, TitleSource, visible};
use tools::todowrite::sets_plan;
use transcript::Message;

/// The answer if the settings disable snapshots.
const SNAPSHOTS_OFF: &str =
    "Changes to files are not recorded here: the setting `snapshot` is off.";

/// The name of a built-in command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinName {
    /// Undoes the last turn.
    Undo,
    /// Redoes the last undone turn.
    Redo,
    /// Shows the file changes of the session.
    Diff,
    /// Summarises the conversation.
    Compact,
    /// Shows or ends background jobs.
    Jobs,
    /// Describes the session.
    Status,
    /// Switches to the agent that plans.
    Plan,
    /// Sets the session's title.
    Rename,
    /// Shows the conversation as Markdown, or writes it to a file.
    Export,
    /// Shows the grants.
    Permissions,
    /// Shows the MCP servers.
    Mcp,
    /// Shows the skills.
    Skills,
    /// Deletes the stored keys of providers.
    Logout,
    /// Shows a prepared answer: advice about a command of other programs, or about a misspelt one.
    PreparedAnswer,
}

/// A command of other programs for which adjutant has another way. It is not listed.
pub(super) struct ForeignCommand {
    pub(super) names: &'static [&'static str],
    /// True if a single word after it is its argument. After the others it begins a prompt:
    /// `/new feature`.
    pub(super) takes_word: bool,
    /// The way to do it here.
    pub(super) answer: &'static str,
}

pub(super) const FOREIGN_COMMANDS: &[ForeignCommand] = &[
    ForeignCommand {
        names: &["clear", "new", "reset"],
        takes_word: false,
        answer: "An empty conversation is a new session: open one in your editor; at a terminal, each `adjutant run` without `-c` begins one. `/compact` summarises the present one.",
    },
    ForeignCommand {
        names: &["model", "models"],
        takes_word: true,
        answer: "Choose the model in your editor, or with `adjutant run -m PROVIDER/MODEL`; `adjutant models` lists them, `adjutant config set model PROVIDER/MODEL` changes the default.",
    },
    ForeignCommand {
        names: &["mode", "modes", "agent", "agents"],
        takes_word: true,
        answer: "Choose the mode in your editor, or with `adjutant run --mode NAME`; `adjutant agents` lists them.",
    },
    ForeignCommand {
        names: &["exit", "quit", "q"],
        takes_word: false,
        answer: "Nothing needs to be ended: close the session in your editor; `adjutant run` exits after each answer.",
    },
    ForeignCommand {
        names: &["login"],
        takes_word: true,
        answer: "Log in at a terminal with `adjutant auth login PROVIDER`; `adjutant auth list` shows the keys and logins.",
    },
    ForeignCommand {
        names: &["resume", "continue", "sessions", "history"],
        takes_word: false,
        answer: "Choose an earlier session in your editor, or continue it with `adjutant run -c \"PROMPT\"`, or `-s ID`; `adjutant sessions` lists them.",
    },
    ForeignCommand {
        names: &["cost", "usage", "stats"],
        takes_word: false,
        answer: "`/status` shows the cost of this session, `adjutant stats` the tokens and the cost of all.",
    },
    ForeignCommand {
        names: &["config", "settings"],
        takes_word: false,
        answer: "`adjutant config` shows the settings and their files, `adjutant config edit` opens your own.",
    },
    ForeignCommand {
        names: &["doctor"],
        takes_word: false,
        answer: "`adjutant doctor` checks what works on this machine.",
    },
];

/// The names of the command that lists all commands.
pub(super) const HELP: [&str; 2] = ["help", "?"];

/// The agent that `/plan` switches to.
pub(super) const PLANNER: &str = "plan";

impl BuiltinName {
    /// The listed commands, in order: variant, name, description, hint for arguments.
    ///
    /// The commands that act on the conversation are always listed, even if there is nothing to
    /// undo or no command in the background: that changes with every turn, and a client that keeps
    /// only the first list would lack them. [`CommandConditions`] hides others that do not apply to the
    /// project.
    ///
    /// [`CommandConditions`]: super::commands::CommandConditions
    pub const ALL: &[(Self, &str, &str, Option<&str>)] = &[
        (
            Self::Undo,
            "undo",
            "Undo the last turn, including its changes to files",
            Some("force"),
        ),
        (
            Self::Redo,
            "redo",
            "Restore what was undone; after your next prompt, only its files",
            None,
        ),
        (
            Self::Compact,
            "compact",
            "Summarise the conversation to free context",
            Some("what to preserve"),
        ),
        (
            Self::Jobs,
            "jobs",
            "Show background commands, or end them",
            Some("stop bash_1, stop all"),
        ),
        (
            Self::Diff,
            "diff",
            "Show what this session changed in the files",
            None,
        ),
        (
            Self::Status,
            "status",
            "Show mode, model, context, cost, sandbox and servers",
            None,
        ),
        (
            Self::Plan,
            PLANNER,
            "Switch to the plan mode, and begin a task there",
            Some("task"),
        ),
        (
            Self::Rename,
            "rename",
            "Give the session a title",
            Some("title"),
        ),
        (
            Self::Export,
            "export",
            "Show the conversation as Markdown, or write it to a new file",
            Some("file.md, file.html or file.json"),
        ),
        (
            Self::Permissions,
            "permissions",
            "Show what was granted with \"always\"",
            None,
        ),
        (Self::Mcp, "mcp", "Show the MCP servers", None),
        (Self::Skills, "skills", "Show the skills", None),
        (
            Self::Logout,
            "logout",
            "Delete stored keys and logins of providers",
            Some("a provider, or all"),
        ),
    ];
}

impl BuiltinName {
    /// True if a skill of the same name replaces it. The commands that act on the conversation are
    /// always available.
    pub fn can_be_skill(self) -> bool {
        match self {
            Self::Undo | Self::Redo | Self::Diff | Self::Compact | Self::Jobs => false,
            Self::Status
            | Self::Plan
            | Self::Rename
            | Self::Export
            | Self::Permissions
            | Self::Mcp
            | Self::Skills
            | Self::Logout
            | Self::PreparedAnswer => true,
        }
    }
}

/// A built-in command as the user typed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltinCommand {
    pub name: BuiltinName,
    /// The text after the name; of [`BuiltinName::PreparedAnswer`] the answer.
    pub arguments: String,
}

/// The context of a built-in command, lent to it by the session.
pub(super) struct BuiltinContext<'a> {
    pub(super) history: &'a mut History,
    /// The session's record; written back afterwards.
    pub(super) record: &'a mut Record,
    /// The context of the command; its event sender and its cancellation token belong to the command
    /// only.
    pub(super) turn: &'a TurnContext,
}

/// Carries out a built-in command, and shows its answer.
pub(super) async fn carry_out(command: &BuiltinCommand, mut cx: BuiltinContext<'_>) -> TurnOutcome {
    let turn = cx.turn;
    if turn.cancelled.is_cancelled() {
        return TurnOutcome::Cancelled;
    }
    turn.event_sender.event(Event::Status(Status::Busy)).await;
    late_changes::collect(cx.history, &turn.session).await;
    late_changes::log_changes_of_deleted_steps(cx.record, &turn.session);
    let outcome = match command.name {
        BuiltinName::Compact => compact(&mut cx, &command.arguments).await,
        BuiltinName::Undo => {
            let text = undo(&mut cx, &command.arguments).await;
            send_text(turn, text).await;
            TurnOutcome::Ended
        }
        BuiltinName::Redo => {
            let text = redo(&mut cx).await;
            send_text(turn, text).await;
            TurnOutcome::Ended
        }
        BuiltinName::Jobs => {
            let text = jobs_page(turn, &command.arguments).await;
            send_text(turn, text).await;
            TurnOutcome::Ended
        }
        BuiltinName::Diff => {
            send_text(turn, diff_page(&cx).await).await;
            TurnOutcome::Ended
        }
        word => {
            let answer = answer_page(word, &command.arguments, &mut cx).await;
            let outcome = if answer.is_ok() {
                TurnOutcome::Ended
            } else {
                TurnOutcome::NotDone
            };
            send_text(turn, answer.unwrap_or_else(|why| why)).await;
            outcome
        }
    };
    turn.event_sender.event(Event::Status(Status::Idle)).await;
    if turn.cancelled.is_cancelled() {
        TurnOutcome::Cancelled
    } else {
        outcome
    }
}

/// Carries out a command whose answer is a page of text.
///
/// # Errors
/// The reason why the command did nothing.
async fn answer_page(
    word: BuiltinName,
    rest: &str,
    cx: &mut BuiltinContext<'_>,
) -> Result<String, String> {
    let turn = cx.turn;
    let text = match word {
        BuiltinName::Status => pages::status(cx.history, cx.record, turn).await,
        BuiltinName::Plan => return plan_page(turn),
        BuiltinName::Rename => rename(cx, rest).await,
        BuiltinName::Export => return exports::export(turn, rest).await,
        BuiltinName::Permissions => pages::permissions(turn),
        BuiltinName::Mcp => pages::servers(turn),
        BuiltinName::Skills => pages::skills(turn),
        BuiltinName::Logout => return log_out(turn, rest).await,
        BuiltinName::PreparedAnswer => rest.to_owned(),
        BuiltinName::Undo
        | BuiltinName::Redo
        | BuiltinName::Diff
        | BuiltinName::Compact
        | BuiltinName::Jobs => String::new(),
    };
    Ok(text)
}

/// Returns the answer to `/plan`, after the session has switched to the mode.
///
/// # Errors
/// If there is no such mode.
fn plan_page(turn: &TurnContext) -> Result<String, String> {
    if turn.choice.borrow().agent == PLANNER {
        // No promise about its rules: settings may change them.
        return Ok("The mode is now plan.".into());
    }
    let modes = turn.project.agents.modes();
    let names: Vec<&str> = modes.iter().map(|mode| mode.name.as_str()).collect();
    Err(format!(
        "There is no mode \"{PLANNER}\" here, so nothing was sent; there are: {}.",
        names.join(", ")
    ))
}

/// Sets the title that the user has given, or shows the present one.
async fn rename(cx: &mut BuiltinContext<'_>, rest: &str) -> String {
    let title = title::tidy(rest);
    if title.is_empty() {
        return match &cx.record.title {
            Some(title) => format!(
                "The title is \"{}\"; `/rename TITLE` sets another one.",
                text::escaped(title)
            ),
            None => "There is no title yet; `/rename TITLE` sets one.".into(),
        };
    }
    cx.record.title = Some(title.clone());
    cx.record.title_source = TitleSource::User;
    let updated = cx.record.updated;
    let answer = format!("The title is now \"{}\".", text::escaped(&title));
    let title = Some(title);
    cx.turn
        .event_sender
        .event(Event::Info { title, updated })
        .await;
    answer
}

/// Deletes a stored key or login, or all of them, unless other users share them. Without an argument,
/// only lists them, because a deleted key cannot be restored.
///
/// # Errors
/// The reason why nothing was deleted, although it was asked for.
async fn log_out(turn: &TurnContext, rest: &str) -> Result<String, String> {
    turn.session
        .permissions
        .account
        .check(AccountProperty::ProviderKeys)?;
    let environment = turn.session.common.environment.clone();
    let chosen = rest.to_owned();
    let result = spawn_blocking(move || delete_keys(&environment, &chosen));
    let result = result.await.map_err(std::io::Error::other).flatten();
    turn.event_sender.event(Event::Logins).await;
    result.unwrap_or_else(|e| Err(format!("The stored keys could not be deleted: {e}.")))
}

/// Deletes the `chosen` key or login, or `all`, and returns the answer. The inner error is the answer if
/// there is no such key, the outer one a failure of the disk. Blocks on file access.
fn delete_keys(environment: &Environment, chosen: &str) -> std::io::Result<Result<String, String>> {
    let stored = Auth::stored_providers(environment);
    if stored.is_empty() {
        let none = "No keys or logins are stored. Keys in variables and settings are not changed.";
        let is_list = chosen.is_empty() || chosen == "all";
        return Ok(if is_list {
            Ok(none.into())
        } else {
            Err(none.into())
        });
    }
    let names = text::title(&stored.join(", "));
    if chosen == "all" {
        Auth::remove_all(environment)?;
        return Ok(Ok(format!(
            "Deleted the stored keys and logins: {names}. Keys in variables and settings remain."
        )));
    }
    if chosen.is_empty() || !stored.iter().any(|name| name == chosen) {
        let problem = if chosen.is_empty() {
            String::new()
        } else {
            format!("No key of \"{}\" is stored. ", text::title(chosen))
        };
        let list = format!(
            "{problem}Stored keys and logins: {names}. `/logout PROVIDER` deletes one, `/logout all` all of them."
        );
        return Ok(if chosen.is_empty() {
            Ok(list)
        } else {
            Err(list)
        });
    }
    Auth::store(&Auth::path(environment), chosen, None)?;
    Ok(Ok(format!(
        "Deleted the stored key or login of {}. Keys in variables and settings remain.",
        text::title(chosen)
    )))
}

async fn compact(cx: &mut BuiltinContext<'_>, rest: &str) -> TurnOutcome {
    let turn = cx.turn;
    // As with a prompt, undone turns are deleted.
    revert::delete_undone_turns(cx.history, cx.record, &turn.session.recorder).await;
    if compact::has_messages_since_summary(cx.history) {
        let focus = if rest.is_empty() {
            None
        } else {
            Some(rest.to_owned())
        };
        return run::summarise(cx.history, turn, focus).await;
    }
    let text = if cx.history.messages.is_empty() {
        "There is nothing to summarise yet."
    } else {
        "There is nothing new since the conversation was summarised."
    };
    send_text(turn, text.into()).await;
    TurnOutcome::Ended
}

async fn undo(cx: &mut BuiltinContext<'_>, rest: &str) -> String {
    let force = match rest {
        "" => false,
        "force" => true,
        _ => {
            return "`/undo` undoes the last turn; `/undo force` also restores files that have changed since.".into();
        }
    };
    let Some(restore) = restore_context(cx.turn) else {
        return SNAPSHOTS_OFF.into();
    };
    let messages = &cx.history.messages;
    let recorder = &cx.turn.session.recorder;
    match revert::undo(
        messages,
        cx.record,
        recorder,
        &restore,
        &RevertPoint::LastTurn,
        force,
    )
    .await
    {
        Ok(report) => {
            show_plan(cx).await;
            show_usage(cx).await;
            let note = if cx.turn.project.context.settings.general.snapshot {
                String::new()
            } else {
                format!("\n\n{SNAPSHOTS_OFF}")
            };
            let phrases = RevertHints {
                force: "`/undo force` restores those as well.".into(),
                retry: "`/undo force` tries again.".into(),
                redo: "`/redo` restores everything; after your next prompt, only the files.".into(),
            };
            report.undo_text(&cx.turn.project.context.worktree, &phrases)
                + &still_running(cx)
                + &note
        }
        Err(nothing) => nothing.to_string(),
    }
}

/// Returns a text about running background jobs of undone turns; empty if there are none. An undo does
/// not end them, because a redo could not restart them.
fn still_running(cx: &BuiltinContext<'_>) -> String {
    let messages = &cx.history.messages;
    let hidden = messages
        .get(visible(messages, &cx.record.undone)..)
        .unwrap_or_default();
    let running = jobs::running_jobs(hidden, cx.turn);
    let line = |(id, command): &(String, String)| {
        format!(
            "\n- `{}`: `/jobs stop {id}` ends it",
            command.replace('`', "'")
        )
    };
    match &running[..] {
        [] => String::new(),
        running => format!(
            "\n\nStill running in the background:{}",
            running.iter().map(line).collect::<String>()
        ),
    }
}

async fn redo(cx: &mut BuiltinContext<'_>) -> String {
    let Some(restore) = restore_context(cx.turn) else {
        return SNAPSHOTS_OFF.into();
    };
    match revert::redo(
        &cx.history.messages,
        cx.record,
        &cx.turn.session.recorder,
        &restore,
    )
    .await
    {
        Ok(report) => {
            show_plan(cx).await;
            show_usage(cx).await;
            report.redo_text()
        }
        Err(nothing) => nothing.to_string(),
    }
}

/// Lists the background jobs, or ends some of them.
async fn jobs_page(turn: &TurnContext, rest: &str) -> String {
    const USER: &str = "stopped by the user";
    let all = turn.session.shared.jobs.all();
    match rest.split_whitespace().collect::<Vec<_>>()[..] {
        [] if all.is_empty() => "There are no background commands.".into(),
        [] => {
            let line = |(id, command, how): &(String, String, Option<String>)| {
                format!(
                    "- {id} `{command}`: {}",
                    how.as_deref().unwrap_or("running")
                )
            };
            all.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        ["stop", "all"] => {
            let running = turn.session.shared.jobs.running();
            if running.is_empty() {
                return "No background command is running.".into();
            }
            let ended = futures_util::future::join_all(
                running
                    .iter()
                    .map(|(id, _)| turn.session.shared.jobs.stop(id, USER)),
            );
            format!("{} ended.", text::count(ended.await.len(), "command"))
        }
        ["stop", id] => match turn.session.shared.jobs.stop(id, USER).await {
            Ok(how) => format!("{id} has ended: {how}."),
            Err(why) => why,
        },
        _ => {
            "`/jobs` shows background commands; `/jobs stop bash_1` and `/jobs stop all` end them."
                .into()
        }
    }
}

/// Shows the present plan, if the session ever had one.
async fn show_plan(cx: &BuiltinContext<'_>) {
    let planned = cx
        .history
        .messages
        .iter()
        .flat_map(Message::calls)
        .any(sets_plan);
    if planned {
        cx.turn
            .event_sender
            .event(Event::Plan(cx.record.todos.clone()))
            .await;
    }
}

/// Sends the present size of the context and the cost. Hidden messages count for the cost, but not for
/// the size.
async fn show_usage(cx: &mut BuiltinContext<'_>) {
    let turn = cx.turn;
    let model = step_context::chosen_agent(turn).ok().and_then(|agent| {
        turn.project
            .models
            .find(&step_context::chosen_model(turn, &agent))
            .ok()
    });
    let Some((model, _)) = model else { return };
    let history = &mut *cx.history;
    let cost = history.cost();
    if size::used_tokens(history).is_none() {
        // No usage was reported so far, and none was shown.
        return;
    }
    let hidden = history
        .messages
        .split_off(visible(&history.messages, &cx.record.undone));
    let used = size::used_tokens(history).unwrap_or_default();
    history.messages.extend(hidden);
    turn.event_sender
        .event(Event::Usage {
            used,
            size: model.window(),
            cost,
        })
        .await;
}

/// Returns the means to undo and redo file changes; `None` if file contents are not recorded.
fn restore_context(turn: &TurnContext) -> Option<RestoreContext> {
    let agent = step_context::chosen_agent(turn).ok()?;
    let editor = crate::turn::tool_context::call_context(turn, &agent, &turn.new_call_id());
    Some(RestoreContext {
        tracker: turn.session.common.snapshots.clone()?,
        worktree: turn.project.context.worktree.clone(),
        editor: Some(editor),
    })
}

/// Returns the file changes of the session as Markdown.
async fn diff_page(cx: &BuiltinContext<'_>) -> String {
    let turn = cx.turn;
    let Some(tracker) = turn.session.common.snapshots.clone() else {
        return SNAPSHOTS_OFF.into();
    };
    let runs = changes::session_changes(&cx.history.messages, cx.record);
    let worktree = turn.project.context.worktree.clone();
    if runs.is_empty() && !turn.project.context.settings.general.snapshot {
        return SNAPSHOTS_OFF.into();
    }
    turn.session.recorder.fetch_contents(&tracker, &runs).await;
    let read =
        spawn_blocking(move || diff::markdown(&diff::compute_diffs(&runs, &tracker, &worktree)));
    tokio::select! {
        shown = read => shown.unwrap_or_else(|e| format!("The changes could not be compared: {e}.")),
        () = turn.cancelled.cancelled() => String::new(),
    }
}

/// Sends a text to the user that no model will see.
pub(super) async fn send_text(turn: &TurnContext, text: String) {
    let part = PartId::new(turn.session.common.environment.fresh(PartId::PREFIX));
    turn.event_sender
        .event(Event::Text { part, delta: text })
        .await;
}
