//! The extensions of a session that users write: hooks (commands that run on an event, `hook` in the
//! settings), custom tools and plugins. [`Extensions`] is the entry point: the session and its turns call
//! it at each hook event and act on the combined answer, a [`hook_outcome::HookOutcome`]. Permission rules
//! take precedence over that answer.
//!
//! - Hooks: [`hook_event`] is the input of a command, `command` runs it in the sandbox of the agent's
//!   commands, [`hook_outcome`] combines the answers.
//! - Custom tools and plugins are JavaScript. `host` is the process that runs them, in the same
//!   sandbox; [`runtime`] finds Bun, Node or Deno; [`load`] starts one host for the user's files and
//!   one for the project's, so that neither can act as the other; [`scripts`] restarts a host that
//!   has ended.
//! - `tool` gives a custom tool the interface of the built-in ones. `plugin` runs OpenCode's hooks;
//!   `transform` and [`opencode_format`] convert the conversation to its format; `feed` sends it events.
//! - `client` answers the calls of a plugin; [`subagents`] and [`login`] need the session.
//! - [`packages`] installs plugins from npm on request; [`inventory`] and [`usage_stats`] are
//!   shown by `adjutant extensions`.
//!
//! All data that a hook or a host sends is untrusted. Nothing of a project runs before the user trusts the
//! project, and no extension can allow a call that a rule denies.

pub mod hook_event;
pub mod hook_outcome;
pub mod inventory;
pub mod login;
pub mod opencode_format;
pub mod packages;
pub mod runtime;
pub mod scripts;
pub mod subagents;
pub mod usage_stats;

mod client;
mod command;
mod conversation;
mod feed;
mod host;
mod lint;
pub mod load;
mod plugin;
mod tool;
mod transform;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use self::hook_event::HookEvent;
use self::hook_outcome::{HookAnswer, HookOutcome};
use self::scripts::Scripts;
use base::lock::lock;
use base::text;
use config::Settings;
use config::script::{ScriptEntry, ScriptKind};
use config::settings::{HookEntry, HookPoint};
use events::bus::Publisher;
use events::{Event, Severity};
use permission::wildcard;
use providers::{Model, Request};
use tools::edits::edit::{EditTool, MULTIEDIT};
use tools::files::read::ReadTool;
use tools::{Failure, Tool, ToolContext};
use transcript::ModelRef;

/// The maximum length of a hook's notice, in characters.
const MAX_NOTICE_CHARS: usize = 1_000;

/// The extensions of one session.
#[derive(Debug, Default)]
pub struct Extensions {
    /// The hooks of the session's start have run.
    is_started: AtomicBool,
    // A leaf lock.
    /// The failures that were reported, so that each is reported once.
    reported: Mutex<BTreeSet<String>>,
    /// Custom tools and plugins.
    pub scripts: Arc<Scripts>,
}

/// A text for the model, as plugins have changed or added it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedText {
    pub text: String,
    /// The text is for the model only, and is not shown to the user.
    pub is_for_model_only: bool,
}

/// Returns whether any hook or plugin may handle this event. Cheap if there are none.
pub fn has_handler(settings: &Settings, on: HookPoint) -> bool {
    !settings.scripts.is_empty() || settings.hooks.iter().any(|hook| hook.on == on)
}

/// Returns whether a hook or plugin might change the arguments of a call of a tool.
pub fn may_change_arguments(settings: &Settings, tool: &str) -> bool {
    let is_plugin = |script: &ScriptEntry| script.kind == ScriptKind::Plugin;
    let may_change = |hook: &HookEntry| hook.on == HookPoint::ToolBefore && names_tool(hook, tool);
    settings.scripts.iter().any(is_plugin) || settings.hooks.iter().any(may_change)
}

/// Returns whether a hook might refuse a call of a tool on this subject, or ask about it.
pub fn may_refuse(settings: &Settings, agent: &str, tool: &str, subject: &str) -> bool {
    let can_refuse =
        |hook: &HookEntry| matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission);
    settings
        .hooks
        .iter()
        .filter(|hook| can_refuse(hook))
        .any(|hook| {
            let mut hook_event = HookEvent::new(hook.on, agent);
            hook_event.tool = Some(tool.to_owned());
            hook_event.subjects.push(subject.to_owned());
            applies_to(hook, &hook_event)
        })
}

impl Extensions {
    /// Creates the extensions of a session. Plugins may receive the events of the publisher.
    pub fn new(publisher: Publisher) -> Self {
        Self {
            scripts: Arc::new(Scripts::new(publisher)),
            ..Self::default()
        }
    }

    /// Marks the session as begun. Returns `true` the first time; then the caller runs the hooks of
    /// the session's start.
    pub fn begin_session(&self) -> bool {
        !self.is_started.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the session has begun.
    pub fn has_begun(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Runs all hooks on an event, one after the other in the order of the settings, then those of
    /// plugins, and returns the combined answer. The first refusal ends it. A failing hook is
    /// reported once. If it could have refused a call, the user is asked instead.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn run_hooks(
        &self,
        mut hook_event: HookEvent,
        context: &ToolContext,
    ) -> Result<HookOutcome, Failure> {
        let mut hook_outcome = HookOutcome::default();
        let on = hook_event.on;
        let settings = context.project.settings.clone();
        for hook in settings.hooks.iter().filter(|hook| hook.on == on) {
            if !applies_to(hook, &hook_event) {
                continue;
            }
            for file in command::files(hook, &hook_event) {
                let began = Instant::now();
                let answered = command::run(hook, &hook_event, file.as_deref(), context).await?;
                let took = began.elapsed();
                let name = format!("hook {}", hook.name);
                self.scripts
                    .count_call(&name, took, answered.as_ref().err().cloned());
                let answer = match answered {
                    Ok(answer) => answer,
                    Err(why) => self.handle_failure(hook, &why, context).await,
                };
                tracing::info!(
                    "hook {} on {} took {took:?}: {}",
                    hook.name,
                    hook.on.as_str(),
                    answer.summary()
                );
                if let Some(notice) = &answer.notice {
                    let title = text::cut_chars(
                        &format!("{}: {}", hook.name, notice.trim()),
                        MAX_NOTICE_CHARS,
                    );
                    send_notice(Severity::Info, title, context).await;
                }
                if let Some(input) = &answer.input {
                    hook_event.set("input", input.clone());
                }
                hook_outcome.add(answer, hook);
                if hook_outcome.deny.is_some() {
                    return Ok(hook_outcome);
                }
            }
        }
        if !settings.scripts.is_empty() {
            hook_outcome.merge(plugin::run_hooks(&self.scripts, &hook_event, context).await?);
        }
        Ok(hook_outcome)
    }

    /// Returns a prompt's texts as plugins have changed them, followed by texts that they have added.
    /// Returns `None` if they change nothing.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn change_prompt(
        &self,
        model: &ModelRef,
        texts: &[String],
        context: &ToolContext,
    ) -> Result<Option<Vec<ChangedText>>, Failure> {
        let input = json!({
            "sessionID": context.session.id.as_str(), "agent": context.call.agent, "messageID": "msg",
            "model": { "providerID": model.provider, "modelID": model.model }, "variant": model.effort,
        });
        plugin::change_texts(&self.scripts, ("chat.message", input), texts, context).await
    }

    /// Returns the texts of a slash command as plugins have changed them, like
    /// [`Extensions::change_prompt`].
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn change_command(
        &self,
        (name, arguments): (&str, &str),
        texts: &[String],
        context: &ToolContext,
    ) -> Result<Option<Vec<ChangedText>>, Failure> {
        let input = json!({ "command": name, "arguments": arguments, "sessionID": context.session.id.as_str() });
        plugin::change_texts(
            &self.scripts,
            ("command.execute.before", input),
            texts,
            context,
        )
        .await
    }

    /// Applies the changes of plugins to a request.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn change_request(
        &self,
        request: &mut Request,
        context: &ToolContext,
    ) -> Result<(), Failure> {
        plugin::change_request(&self.scripts, request, context).await
    }

    /// Returns whether plugins let a turn continue automatically after compaction.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn continues_after_compaction(
        &self,
        model: &Model,
        overflow: bool,
        context: &ToolContext,
    ) -> Result<bool, Failure> {
        plugin::continues_after_compaction(&self.scripts, model, overflow, context).await
    }

    /// Returns the model that plugins choose for small tasks next to this main model; `None` if they
    /// choose none.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn small_model(
        &self,
        main_model: &ModelRef,
        context: &ToolContext,
    ) -> Result<Option<ModelRef>, Failure> {
        plugin::small_model(&self.scripts, main_model, context).await
    }

    /// Returns the environment variables that plugins add to a command.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn command_variables(
        &self,
        context: &ToolContext,
    ) -> Result<Vec<(String, String)>, Failure> {
        plugin::command_variables(&self.scripts, context).await
    }

    /// Returns a complete text of the model as plugins have changed it, or `None` if they do not
    /// change it. `ids` are those of the message and the part.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn change_answer(
        &self,
        ids: (&str, &str),
        text: &str,
        context: &ToolContext,
    ) -> Result<Option<String>, Failure> {
        plugin::change_answer(&self.scripts, ids, text, context).await
    }

    /// Handles a failed hook: notifies the user once. Returns an answer in place of the hook's, which
    /// asks the user if the hook could have refused the call.
    async fn handle_failure(
        &self,
        hook: &HookEntry,
        why: &str,
        context: &ToolContext,
    ) -> HookAnswer {
        let title = format!("The hook {} failed: {why}.", text::title(&hook.name));
        if lock(&self.reported).insert(title.clone()) {
            let shown = format!("{title} It is configured in {}.", hook.source);
            send_notice(Severity::Warning, shown, context).await;
        }
        let could_refuse = matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission);
        let ask = could_refuse.then(|| {
            format!(
                "the hook {}, which could have refused it, failed",
                text::title(&hook.name)
            )
        });
        HookAnswer {
            ask,
            ..HookAnswer::default()
        }
    }
}

/// Sends a notice to the user. Its first line is the title.
async fn send_notice(severity: Severity, title: String, context: &ToolContext) {
    let (title, _) = text::visible(&title);
    let (first, rest) = title.split_once('\n').unwrap_or((&title, ""));
    let details = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    context
        .client
        .event_sender
        .event(Event::Notice {
            severity,
            title: first.to_owned(),
            details,
        })
        .await;
}

/// Returns whether a hook applies to an event. A `multiedit` is an `edit`, too, and reading a
/// directory is a `list`.
fn applies_to(hook: &HookEntry, hook_event: &HookEvent) -> bool {
    let tool = hook_event.tool.as_deref().unwrap_or_default();
    let is_listing = || hook_event.files.iter().any(|path| path.is_dir());
    let is_selected = !hook.on.is_about_a_call()
        || names_tool(hook, tool)
        || tool == MULTIEDIT && names_tool(hook, EditTool::NAME)
        || tool == ReadTool::NAME && names_tool(hook, "list") && is_listing();
    let matches = |pattern: &String| hook_event.is_about(pattern);
    is_selected && hook.pattern.as_ref().is_none_or(matches)
}

/// Returns whether the tools that a hook is for include this one.
fn names_tool(hook: &HookEntry, tool: &str) -> bool {
    let is_listed = |pattern: &String| wildcard::matches(pattern, tool);
    hook.tools.is_empty() || hook.tools.iter().any(is_listed)
}

/// Returns the fields that the input of a hook has for every event.
pub(crate) fn common_fields(
    hook: &HookEntry,
    hook_event: &HookEvent,
    context: &ToolContext,
) -> Vec<(&'static str, Value)> {
    vec![
        ("event", hook.on.as_str().into()),
        ("hook", hook.name.as_str().into()),
        ("session", context.session.id.as_str().into()),
        (
            "directory",
            context.project.cwd.display().to_string().into(),
        ),
        (
            "project",
            context.project.worktree.root.display().to_string().into(),
        ),
        ("agent", hook_event.agent.as_str().into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::HookFormat;

    fn settings_with_hook(on: HookPoint, tools: &[&str], pattern: Option<&str>) -> Settings {
        let hook = HookEntry {
            name: "h".into(),
            on,
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            pattern: pattern.map(str::to_owned),
            command: vec!["x".into()],
            limit: std::time::Duration::from_secs(1),
            environment: Vec::new(),
            format: HookFormat::Adjutant,
            withheld: None,
            project: false,
            source: String::new(),
        };
        Settings {
            hooks: vec![hook],
            ..Settings::default()
        }
    }

    #[test]
    fn hook_before_calls_of_a_tool_may_change_their_arguments() {
        let table = [
            (HookPoint::ToolBefore, &[][..], None, true),
            (HookPoint::ToolBefore, &["read", "ba*"], None, true),
            (HookPoint::ToolBefore, &["bash"], Some("git *"), true),
            (HookPoint::ToolBefore, &["edit"], None, false),
            (HookPoint::Permission, &["bash"], None, false),
            (HookPoint::ToolAfter, &["bash"], None, false),
        ];
        for (on, tools, pattern, wanted) in table {
            let settings = settings_with_hook(on, tools, pattern);
            let found = may_change_arguments(&settings, "bash");
            assert_eq!(found, wanted, "{on:?} {tools:?} {pattern:?}");
        }
        assert!(!may_change_arguments(&Settings::default(), "bash"));
    }

    #[test]
    fn hook_guards_matching_calls_before_they_run() {
        let guarded = |on: HookPoint, tools: &[&str], pattern: Option<&str>, tool: &str| {
            let settings = settings_with_hook(on, tools, pattern);
            may_refuse(&settings, "build", tool, "general")
        };
        let hook = |on: HookPoint, tools: &[&str], pattern: Option<&str>| {
            guarded(on, tools, pattern, "task")
        };
        assert!(hook(HookPoint::ToolBefore, &[], None));
        assert!(hook(HookPoint::Permission, &["ta*"], Some("gen*")));
        assert!(!hook(HookPoint::ToolBefore, &["bash"], None));
        assert!(!hook(HookPoint::ToolBefore, &[], Some("explore")));
        assert!(!hook(HookPoint::ToolAfter, &[], None));
        for (pattern, tool, wanted) in [
            ("multiedit", MULTIEDIT, true),
            ("multi*", MULTIEDIT, true),
            ("edit", MULTIEDIT, true),
            ("edit", "edit", true),
            ("multiedit", "edit", false),
            ("run", "bash", false),
        ] {
            let found = guarded(HookPoint::ToolBefore, &[pattern], None, tool);
            assert_eq!(found, wanted, "{pattern} {tool}");
        }
    }

    #[test]
    fn pattern_matches_a_text_or_a_command_in_it() {
        let table = [
            ("git commit *", "git commit -m x", true),
            ("git commit *", "cd a && git commit", true),
            ("git commit *", "echo 'git commit'", false),
            ("git commit *", "GIT_X=1 git commit -a | cat", true),
            ("src/*.rs", "src/a.rs", true),
            ("*.rs", "src/a.ts", false),
        ];
        for (pattern, subject, wanted) in table {
            let mut hook_event = HookEvent::new(HookPoint::ToolBefore, "build");
            hook_event.subjects.push(subject.to_owned());
            assert_eq!(hook_event.is_about(pattern), wanted, "{pattern} {subject}");
        }
    }
}
