//! [`Inventory`], the hooks, custom tools and plugins of a project for the command line, with the problems of
//! those that do not load or have no effect.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::lint;
use super::load::{self, LoadFailure};
use super::scripts::{ScriptReport, Scripts};
use super::usage_stats::{UsageByName, UsageStats};
use base::child_environment::shown_arguments;
use base::environment::Environment;
use base::id::{CallId, SessionId};
use base::listing::EntryState;
use base::text;
use base::worktree::Worktree;
use config::node::SourceLocation;
use config::script::{HOOKS, ScriptEntry, ScriptKind};
use config::settings::HookEntry;
use config::trust::{Review, TrustKind};
use config::{Problem, ProblemCode, Settings};
use events::{EventSender, LiveFacts};
use lsp::SessionServers;
use permission::Policy;
use sandbox::Sandbox;
use tools::process::sandboxing::SandboxChoice;
use tools::scratch;
use tools::{
    CallContext, ClientContext, FileCapabilities, ProjectContext, SessionContext, ToolContext,
};

/// The inventory of custom tools and plugins.
#[derive(Debug, Default)]
pub struct Inventory {
    pub report: ScriptReport,
    /// The reason why none of them was loaded; `None` if at least one was.
    pub failure: Option<String>,
}

/// Loads the custom tools and plugins of the settings once, as a session would, and returns their
/// inventory. The settings have files of a project only if it is trusted. With [`Scripts::for_check`],
/// none of their functions is called.
pub async fn load_inventory(
    scripts: Scripts,
    settings: &Arc<Settings>,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> Inventory {
    if settings.scripts.is_empty() {
        return Inventory::default();
    }
    let context = context_without_session(settings, environment, worktree, cwd);
    let scripts = Arc::new(scripts);
    let inventory = match scripts.report(&context).await {
        Ok(report) => Inventory {
            report,
            failure: None,
        },
        Err(why) => Inventory {
            failure: Some(why),
            ..Inventory::default()
        },
    };
    scripts.end().await;
    // The session existed only for the inventory.
    scratch::remove(&scratch::directory(
        environment,
        context.session.id.as_str(),
    ));
    inventory
}

/// Returns a tool context with a new session id and without a client.
pub(super) fn context_without_session(
    settings: &Arc<Settings>,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> ToolContext {
    let sandbox_choice = SandboxChoice::new(&Sandbox::new(environment));
    ToolContext {
        call: CallContext {
            id: CallId::new(environment.fresh(CallId::PREFIX)),
            message: None,
            order_note: None,
            agent: "build".into(),
            can_explore: false,
            variables: Vec::new(),
            facts: LiveFacts::default(),
            instructions: Arc::default(),
            write_observer: None,
            edit_observer: None,
            analysis: Default::default(),
            trace: None,
        },
        session: Arc::new(SessionContext {
            id: SessionId::new(environment.fresh(SessionId::PREFIX)),
            mark: Default::default(),
            seen: Arc::default(),
            todos: Arc::default(),
            jobs: Arc::default(),
            formatters: Arc::default(),
            instruction_problems: Arc::default(),
            language: Arc::new(SessionServers::new(&Arc::default())),
            exec: Arc::default(),
        }),
        project: Arc::new(ProjectContext {
            cwd: cwd.to_owned(),
            worktree: Arc::new(worktree.clone()),
            environment: environment.clone(),
            settings: settings.clone(),
        }),
        client: ClientContext {
            event_sender: EventSender::new().0,
            session_requests: mpsc::channel(1).0,
            files: FileCapabilities::default(),
        },
        policy: Arc::new(Policy::default()),
        sandbox_choice: sandbox_choice.for_agent(&Policy::default().rules, settings),
        limits: settings.tool_output,
        cancelled: CancellationToken::new(),
    }
}

/// Returns the files that do not load as problems of the settings.
pub fn problems(settings: &Settings, inventory: &Inventory) -> Vec<Problem> {
    let describe = |script: &ScriptEntry| {
        let failed = inventory
            .report
            .failures
            .iter()
            .find(|failure| failure.file == script.name);
        let (why, stack) = failed
            .map(|failure| (&failure.message, failure.stack.as_str()))
            .or(inventory.failure.as_ref().map(|why| (why, "")))?;
        let line =
            line_in_stack(stack, &script.path).filter(|line| !why.contains(&format!(":{line}")));
        let at = SourceLocation {
            line: line.unwrap_or(script.location.line),
            column: u32::from(line.is_some()),
            ..script.location.clone()
        };
        let key = if script.location.line > 0 {
            "plugin"
        } else {
            ""
        };
        Some(Problem::error(
            ProblemCode::Syntax,
            &at,
            key,
            format!("this does not load: {}", load::displayed_reason(why)),
        ))
    };
    let mut problems: Vec<Problem> = settings.scripts.iter().filter_map(describe).collect();
    for script in &settings.scripts {
        let own = if script.kind == ScriptKind::Plugin && !script.package {
            hook_problems(&script.path, &script.location)
        } else {
            Vec::new()
        };
        let is_known = |part: &str| own.iter().any(|known| known.key == part);
        let others = loaded_problems(script, &inventory.report, is_known);
        problems.extend(own);
        problems.extend(others);
    }
    problems
}

/// Returns problems for the hooks without effect of plugins that wait for trust, as far as their
/// source shows them. The plugins are not loaded.
pub fn withheld_problems(trust: &Review) -> Vec<Problem> {
    let waiting = trust
        .withheld(TrustKind::Extension)
        // The functions of a custom tool are not hooks.
        .filter(|item| item.script == Some(ScriptKind::Plugin));
    let files =
        waiting.filter_map(|item| Some((item.location.origin.path.clone()?, &item.location)));
    files
        // Others are named in the settings, which have another text.
        .filter(|(_, location)| location.line == 0)
        .flat_map(|(path, location)| hook_problems(&path, location))
        .collect()
}

/// Returns problems for the hooks of a plugin that have no effect, as far as its source shows them.
/// `location` is its entry in the settings, or the file itself (line 0).
fn hook_problems(path: &Path, location: &SourceLocation) -> Vec<Problem> {
    const MAX_BYTES: u64 = 1 << 20;
    let source = base::file::read_small_text(path, MAX_BYTES).unwrap_or_default();
    let describe = |mistake: lint::HookMistake| {
        let at = if location.line == 0 {
            SourceLocation {
                line: mistake.line,
                column: 1,
                ..location.clone()
            }
        } else {
            location.clone()
        };
        let problem = Problem::warning(ProblemCode::NoEffect, &at, &mistake.hook, mistake.message);
        with_hint(problem, mistake.suggestion)
    };
    lint::find_mistakes(&source)
        .into_iter()
        .map(describe)
        .collect()
}

/// Returns problems for the hooks and tools of a loaded script that have no effect, except those that
/// are reported already (`is_known`).
fn loaded_problems(
    script: &ScriptEntry,
    report: &ScriptReport,
    is_known: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let of_script = |file: &String| *file == script.name;
    // If the settings name a plugin, the location is in the settings, so the text names the plugin.
    let (key, prefix) = if script.location.line > 0 {
        ("plugin", format!("{}: ", text::title(&script.name)))
    } else {
        ("", String::new())
    };
    let problem = |text: String| {
        Problem::warning(
            ProblemCode::NoEffect,
            &script.location,
            key,
            format!("{prefix}{text}"),
        )
    };
    let mistyped = report
        .mistyped
        .iter()
        .filter(|part| of_script(&part.file) && !is_known(&part.name))
        .map(|part| {
            problem(format!(
                "{} {}",
                text::title(&part.display_name()),
                part.mistake()
            ))
        });
    let has_no_effect = |(hook, files): &(&String, &Vec<String>)| {
        !HOOKS.contains(&hook.as_str()) && files.iter().any(of_script) && !is_known(hook)
    };
    let unknown = report.hooks.iter().filter(has_no_effect);
    let unknown = unknown.map(|(hook, _)| {
        let hook_name = text::title(hook);
        let found = problem(format!("there is no hook {hook_name}, so it is not called"));
        with_hint(found, lint::nearest_hook(hook))
    });
    mistyped.chain(unknown).collect()
}

fn with_hint(problem: Problem, suggestion: Option<&str>) -> Problem {
    match suggestion {
        Some(name) => problem.hint(format!("did you mean \"{name}\"?")),
        None => problem,
    }
}

/// Returns the line of a file that an error is about: the first position in it that the stack
/// names.
fn line_in_stack(stack: &str, path: &Path) -> Option<u32> {
    let (_, rest) = stack.split_once(&format!("{}:", path.display()))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// An entry of the list of extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedExtension {
    /// `hook`, `tool` or `plugin`.
    pub kind: &'static str,
    pub name: String,
    pub state: EntryState,
    /// A description of its effect with its statistics, or the reason for its state.
    pub about: String,
}

/// Lists the hooks, tools and plugins of the settings with their states.
pub fn list_extensions(
    settings: &Settings,
    inventory: &Inventory,
    usage: &UsageByName,
) -> Vec<ListedExtension> {
    let hooks = settings.hooks.iter().map(|hook| hook_entry(hook, usage));
    let scripts = settings
        .scripts
        .iter()
        .map(|script| script_entry(script, inventory, usage));
    hooks.chain(scripts).collect()
}

fn hook_entry(hook: &HookEntry, usage: &UsageByName) -> ListedExtension {
    let tools = if hook.tools.is_empty() {
        String::new()
    } else {
        format!(" {}", hook.tools.join("|"))
    };
    let pattern = hook
        .pattern
        .as_ref()
        .map(|pattern| format!(" {pattern}"))
        .unwrap_or_default();
    let stats = usage.get(&format!("hook {}", hook.name));
    ListedExtension {
        kind: "hook",
        name: hook.name.clone(),
        state: if hook.withheld.is_some() {
            EntryState::WaitsForTrust
        } else {
            EntryState::Active
        },
        about: format!(
            "on {}{tools}{pattern}: {} ({}){}",
            hook.on.as_str(),
            shown_arguments(&hook.command, "***").join(" "),
            hook.source,
            stats.map(describe_stats).unwrap_or_default()
        ),
    }
}

fn script_entry(
    script: &ScriptEntry,
    inventory: &Inventory,
    usage: &UsageByName,
) -> ListedExtension {
    let failed = inventory
        .report
        .failures
        .iter()
        .find(|failure| failure.file == script.name);
    let tools: Vec<&str> = inventory
        .report
        .tools
        .iter()
        .filter(|(_, file)| *file == script.name)
        .map(|(tool, _)| tool.as_str())
        .collect();
    let hooks = inventory
        .report
        .hooks
        .iter()
        .filter(|(_, files)| files.contains(&script.name));
    let hooks: Vec<&str> = hooks.map(|(hook, _)| hook.as_str()).collect();
    let mut about = Vec::new();
    if !tools.is_empty() {
        about.push(format!("tools {}", tools.join(", ")));
    }
    if !hooks.is_empty() {
        about.push(format!("hooks {}", hooks.join(", ")));
    }
    let mistyped = inventory
        .report
        .mistyped
        .iter()
        .filter(|part| part.file == script.name);
    about.extend(mistyped.map(|part| format!("{} {}", part.display_name(), part.mistake())));
    let (state, about) = match (failed, &inventory.failure) {
        (Some(LoadFailure { message: why, .. }), _) | (None, Some(why)) => {
            (EntryState::Failed, why.clone())
        }
        (None, None) if about.is_empty() => {
            (EntryState::Active, "loaded, but has no hooks".to_owned())
        }
        (None, None) => (EntryState::Active, about.join("; ")),
    };
    let version = script
        .record
        .as_ref()
        .map(|record| format!("; {}", record.summary()))
        .unwrap_or_default();
    let described_stats = usage.get(&script.name).map(|stats| {
        let last_error = stats.last_error.clone().filter(|error| *error != about);
        describe_stats(&UsageStats {
            last_error,
            ..stats.clone()
        })
    });
    ListedExtension {
        kind: script.kind.as_str(),
        name: script.name.clone(),
        state,
        about: format!("{about}{version}{}", described_stats.unwrap_or_default()),
    }
}

/// Describes the statistics of one extension, for display.
fn describe_stats(stats: &UsageStats) -> String {
    let mean = stats.spent.as_secs_f64() * 1e3
        / f64::from(u32::try_from(stats.calls.max(1)).unwrap_or(u32::MAX));
    let error = stats
        .last_error
        .as_ref()
        .map(|error| format!(", last error: {error}"))
        .unwrap_or_default();
    let count = usize::try_from(stats.calls).unwrap_or(usize::MAX);
    format!("; {}, {mean:.1} ms each{error}", text::count(count, "call"))
}

/// Returns the JSON of `adjutant extensions --json`.
pub fn to_json(settings: &Settings, inventory: &Inventory, usage: &UsageByName) -> Value {
    let stats_of = |name: &str| {
        let stats = usage.get(name).cloned().unwrap_or_default();
        json!({ "calls": stats.calls, "milliseconds": stats.spent.as_secs_f64() * 1e3, "lastError": stats.last_error })
    };
    let hooks = settings.hooks.iter().map(|hook| {
        json!({
            "name": hook.name, "on": hook.on.as_str(), "tools": hook.tools, "pattern": hook.pattern,
            "command": hook.command, "source": hook.source, "project": hook.project,
            "done": stats_of(&format!("hook {}", hook.name)),
        })
    });
    let scripts = settings.scripts.iter().map(|script| {
        let own = |files: &Vec<String>| files.contains(&script.name);
        let tools = inventory.report.tools.iter().filter(|(_, file)| *file == script.name).map(|(tool, _)| tool);
        let hooks = inventory.report.hooks.iter().filter(|(_, files)| own(files)).map(|(hook, _)| hook);
        let failed = inventory.report.failures.iter().find(|failure| failure.file == script.name);
        json!({
            "kind": script.kind.as_str(), "name": script.name,
            "path": script.path, "project": script.project, "done": stats_of(&script.name),
            "tools": tools.collect::<Vec<_>>(), "hooks": hooks.collect::<Vec<_>>(),
            "error": failed.map(|failure| &failure.message).or(inventory.failure.as_ref()), "stack": failed.map(|failure| &failure.stack),
        })
    });
    json!({
        "runtime": Some(&inventory.report.runtime).filter(|runtime| !runtime.is_empty()),
        "hooks": hooks.collect::<Vec<_>>(), "scripts": scripts.collect::<Vec<_>>(),
    })
}
