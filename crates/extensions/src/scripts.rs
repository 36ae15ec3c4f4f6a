//! [`Scripts`], the custom tools and plugins of one session. It starts their hosts at the first use, one for
//! each origin, restarts a host that has ended, and pauses it if that happens too often. It runs the hooks
//! of the plugins, and is their connection to the session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client::{Notifier, PluginHandlers, PluginPrompt, SessionState};
use super::feed::EventFeed;
use super::host::{PluginHost, ScriptOrigin};
use super::lint::MistypedPart;
use super::load::{self, LoadFailure, LoadPurpose, LoadedScripts, MissingGuard};
use super::opencode_format::MessageContext;
use super::subagents::{PluginTurnAccess, SessionControl, Subagents};
use super::tool::{CustomTool, HostProvider};
use super::usage_stats::UsageByName;
use base::lock::lock;
use base::text;
use config::Settings;
use config::contribution::Contribution;
use config::script::{GUARDS, ScriptEntry};
use events::bus::{EventFilter, Publisher};
use events::{Event, Severity};
use permission::Rules;
use tools::registry::find_properties;
use tools::{AnyTool, BoxFuture, Failure, PARTIAL_KEYS, ToolContext};
use transcript::Message;

/// The time limit of one plugin for one hook.
const HOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for handlers of a turn's end, which may add a prompt to continue with.
const TURN_END_TIMEOUT: Duration = Duration::from_millis(100);
/// The time that the host has in addition to the limit of the code in it.
const HOST_GRACE: Duration = Duration::from_secs(2);
/// The number of failures in a row after which a host is paused.
const MAX_FAILURES: u32 = 3;
/// The duration of that pause.
const FAILURE_PAUSE: Duration = Duration::from_secs(5 * 60);
/// The reason why there is no host for scripts that were removed.
const REMOVED_SCRIPT: &str = "they are gone from the settings";
/// The maximum number of notices that wait to be sent.
const MAX_NOTICES: usize = 20;

/// The scripts of one session and of its subagents.
#[derive(Debug, Default)]
pub struct Scripts {
    /// The user's own scripts, and the project's.
    by_origin: [OriginScripts; 2],
    // Leaf locks around lists and maps.
    /// Notices that are not sent yet.
    notices: Mutex<Vec<Event>>,
    /// The titles of all notices so far, so that each is sent once.
    reported: Mutex<BTreeSet<String>>,
    /// The statistics since they were last taken.
    usage: Mutex<UsageByName>,
    /// The system prompts that hooks have produced, by the prompt that they got.
    system_prompts: Mutex<BTreeMap<Vec<String>, Vec<String>>>,
    /// Plugins are only loaded, and none of their functions is called.
    is_check: bool,
    /// The state of the session that plugins read and change.
    session_state: Arc<SessionState>,
    /// The source of the events of the session; `None` outside of a session.
    publisher: Option<Publisher>,
}

/// The scripts of one origin.
#[derive(Debug, Default)]
struct OriginScripts {
    // Leaf locks around a pointer and a counter.
    /// The host for the current state of the files; `None` before the first use.
    current: Mutex<Option<Arc<Generation>>>,
    /// The failures since the last success, and the time of the last one.
    failures: Mutex<(u32, Option<Instant>)>,
}

/// The host for one state of the files.
struct Generation {
    scripts: Vec<ScriptEntry>,
    /// Empty while the scripts are being loaded.
    loaded: OnceCell<Result<Arc<LoadedScripts>, NotLoaded>>,
}

/// The reason why a host did not start, and its plugins that might have refused calls.
#[derive(Debug, Clone)]
struct NotLoaded {
    why: String,
    missing_guards: Vec<MissingGuard>,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("scripts", &self.scripts.len())
            .finish_non_exhaustive()
    }
}

/// The inventory of scripts, for display.
#[derive(Debug, Default)]
pub struct ScriptReport {
    /// The name and version of the runtime, such as `Node 20.20.2`; empty if none was started.
    pub runtime: String,
    /// The names of the tools, each with the name of its file.
    pub tools: Vec<(String, String)>,
    /// The names of the hooks, with the names of the files that handle them.
    pub hooks: BTreeMap<String, Vec<String>>,
    pub failures: Vec<LoadFailure>,
    /// The hooks and tools that have no effect because of their type.
    pub mistyped: Vec<MistypedPart>,
    /// The runtimes that cannot run extensions, each with the reason.
    pub unusable_runtimes: Vec<String>,
}

/// The outcome of a hook that plugins handle.
#[derive(Debug, Default)]
pub(super) struct HookRun {
    /// The output after all plugins.
    pub(super) output: Value,
    /// The plugin that threw an error to refuse a call, with the message of the error.
    pub(super) thrown_error: Option<(String, String)>,
    /// The reason why the answer of a plugin is unknown.
    pub(super) unknown: Option<String>,
    /// The files of plugins that changed the output.
    pub(super) changed: Vec<String>,
    /// A plugin of the project is among them.
    pub(super) is_changed_by_project: bool,
}

impl HookRun {
    /// Adds the outcome of the next host.
    fn then(self, next: Self) -> Self {
        Self {
            output: next.output,
            thrown_error: self.thrown_error.or(next.thrown_error),
            unknown: self.unknown.or(next.unknown),
            changed: self.changed.into_iter().chain(next.changed).collect(),
            is_changed_by_project: self.is_changed_by_project || next.is_changed_by_project,
        }
    }
}

impl Scripts {
    /// Creates the scripts of a session. Plugins may receive the events of the publisher.
    pub fn new(publisher: Publisher) -> Self {
        Self {
            publisher: Some(publisher),
            ..Self::default()
        }
    }

    /// Creates scripts that are only checked for loading: no function of a plugin is called.
    pub fn for_check() -> Self {
        Self {
            is_check: true,
            ..Self::default()
        }
    }

    /// Prepares a turn: loads new scripts. Does nothing if there are none.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn prepare_turn(self: &Arc<Self>, context: &ToolContext) -> Result<(), Failure> {
        let origins = ScriptOrigin::ALL.into_iter().filter(|origin| {
            let scripts = &context.project.settings.scripts;
            scripts.iter().any(|script| origin.includes(script))
                || lock(&self.origin_scripts(*origin).current).is_some()
        });
        let load = async |origin| (origin, self.loaded(origin, context).await);
        let all = join_all(origins.map(load)).await;
        if all.is_empty() {
            return Ok(());
        }
        // The reason is mostly the same for both origins, for example if there is no runtime.
        let mut by_reason = BTreeMap::<String, Vec<MissingGuard>>::new();
        for (origin, loaded) in all {
            if let Err(why) = loaded?
                && why != REMOVED_SCRIPT
            {
                let guards = by_reason.entry(why).or_default();
                guards.extend(self.missing_guards_of(origin));
            }
        }
        for (why, guards) in by_reason {
            let title = format!(
                "Custom tools and plugins are not loaded: {}.{}",
                why.trim_end_matches('.'),
                load::describe_missing_guards(&guards)
            );
            self.notify(Severity::Warning, title, None);
        }
        self.send_notices(context).await;
        Ok(())
    }

    fn origin_scripts(&self, origin: ScriptOrigin) -> &OriginScripts {
        let [own, project] = &self.by_origin;
        if origin == ScriptOrigin::User {
            own
        } else {
            project
        }
    }

    /// Returns the scripts of one origin, if they are loaded already.
    fn loaded_of(&self, origin: ScriptOrigin) -> Option<Arc<LoadedScripts>> {
        let generation = lock(&self.origin_scripts(origin).current).clone()?;
        generation.loaded.get()?.as_ref().ok().cloned()
    }

    /// Returns whether one origin's scripts are being loaded, for the first time or again after their
    /// host has ended. Until then it is unknown which calls they refuse.
    fn is_loading(&self, origin: ScriptOrigin) -> bool {
        lock(&self.origin_scripts(origin).current)
            .as_ref()
            .is_some_and(|generation| generation.loaded.get().is_none())
    }

    /// Returns the plugins of one origin that are not loaded and that might have refused calls.
    fn missing_guards_of(&self, origin: ScriptOrigin) -> Vec<MissingGuard> {
        let generation = lock(&self.origin_scripts(origin).current).clone();
        match generation
            .as_ref()
            .and_then(|generation| generation.loaded.get())
        {
            Some(Ok(loaded)) => loaded.missing_guards.clone(),
            Some(Err(not_loaded)) => not_loaded.missing_guards.clone(),
            None => Vec::new(),
        }
    }

    /// Returns the scripts that are loaded already.
    fn all_loaded(&self) -> impl Iterator<Item = Arc<LoadedScripts>> + '_ {
        ScriptOrigin::ALL
            .into_iter()
            .filter_map(|origin| self.loaded_of(origin))
    }

    /// Returns the host for the current state of the files, which may still have to be loaded.
    /// Returns `None` if there are no files.
    ///
    /// # Errors
    /// The host has failed too often and is paused.
    fn generation(
        &self,
        origin: ScriptOrigin,
        settings: &Settings,
    ) -> Result<Option<Arc<Generation>>, String> {
        let scripts_of_origin = self.origin_scripts(origin);
        let scripts = || {
            settings
                .scripts
                .iter()
                .filter(|script| origin.includes(script))
        };
        let mut current = lock(&scripts_of_origin.current);
        if scripts().next().is_none() {
            *current = None;
            return Ok(None);
        }
        if let Some(generation) = current
            .as_ref()
            .filter(|current| current.scripts.iter().eq(scripts()))
        {
            match generation.loaded.get() {
                Some(Ok(loaded)) if loaded.host.has_ended() => {
                    let mut failures = lock(&scripts_of_origin.failures);
                    let (count, since) = *failures;
                    let is_paused = count >= MAX_FAILURES
                        && since.is_some_and(|since| since.elapsed() < FAILURE_PAUSE);
                    if !is_paused {
                        let next = if count >= MAX_FAILURES { 1 } else { count + 1 };
                        *failures = (next, Some(Instant::now()));
                    }
                    if failures.0 >= MAX_FAILURES {
                        return Err(format!(
                            "the runtime of extensions failed {MAX_FAILURES} times in a row and is paused"
                        ));
                    }
                }
                _ => return Ok(Some(generation.clone())),
            }
        }
        let fresh = Arc::new(Generation {
            scripts: scripts().cloned().collect(),
            loaded: OnceCell::new(),
        });
        *current = Some(fresh.clone());
        Ok(Some(fresh))
    }

    /// Returns the scripts of one origin, and loads them if needed. Returns the reason if they cannot
    /// be loaded.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels, or another failure that may not occur
    /// again.
    async fn loaded(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        context: &ToolContext,
    ) -> Result<Result<Arc<LoadedScripts>, String>, Failure> {
        let generation = match self.generation(origin, &context.project.settings) {
            Ok(Some(generation)) => generation,
            Ok(None) => return Ok(Err(REMOVED_SCRIPT.into())),
            Err(why) => return Ok(Err(why)),
        };
        let load = async {
            match self.load(origin, &generation.scripts, context).await {
                Ok(loaded) => Ok(Ok(Arc::new(loaded))),
                Err(Failure::ForModel(why)) => {
                    let missing_guards = load::missing_guards(generation.scripts.iter()).await;
                    Ok(Err(NotLoaded {
                        why,
                        missing_guards,
                    }))
                }
                Err(failure) => Err(failure),
            }
        };
        let loaded = tokio::select! {
            loaded = generation.loaded.get_or_try_init(|| load) => loaded?.clone(),
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        Ok(loaded.map_err(|not_loaded| not_loaded.why))
    }

    /// Starts the host of one origin and loads its scripts.
    async fn load(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        scripts: &[ScriptEntry],
        context: &ToolContext,
    ) -> Result<LoadedScripts, Failure> {
        let notifier: Weak<dyn Notifier> = Arc::<Self>::downgrade(self);
        let host_provider: Weak<dyn HostProvider> = Arc::<Self>::downgrade(self);
        let handlers = PluginHandlers {
            notifier,
            session_state: self.session_state.clone(),
            session: context.session.id.to_string(),
            directory: context.project.cwd.clone(),
            worktree: context.project.worktree.root.clone(),
            settings: context.project.settings.clone(),
            environment: context.project.environment.clone(),
            todos: context.session.todos.clone(),
            is_users_host: origin == ScriptOrigin::User,
            subagents: Subagents::default(),
        };
        let purpose = if self.is_check {
            LoadPurpose::Check
        } else {
            LoadPurpose::Session
        };
        let mut loaded = load::load(
            (scripts, origin),
            purpose,
            Arc::new(handlers),
            (&**self, &host_provider),
            context,
        )
        .await?;
        loaded.tools = self.with_free_names(loaded.tools, &context.project.settings);
        self.start_event_feed(&loaded);
        Ok(loaded)
    }

    /// Renames tools that have the name of a built-in one, unless the settings let them replace it. Of
    /// two tools with the same name, the later one is returned, as in OpenCode.
    fn with_free_names(&self, tools: Vec<CustomTool>, settings: &Settings) -> Vec<CustomTool> {
        let mut taken = BTreeSet::new();
        let name = |mut tool: CustomTool| {
            // The permission of a custom tool is its name, so it must not be that of a built-in
            // tool.
            let is_own = find_properties(&tool.name).is_some()
                || PARTIAL_KEYS
                    .iter()
                    .any(|(key, _)| *key == tool.name.as_str());
            if is_own && !settings.general.replace_tools.contains(&tool.name) {
                let own = std::mem::take(&mut tool.name);
                tool.name = format!("custom_{own}");
                let title = format!(
                    "The tool {own} of {} is called {} here: {own} is one of adjutant's own. `replace_tools` in your settings lets it take its place.",
                    text::title(&tool.file),
                    tool.name
                );
                self.notify(Severity::Info, title, None);
            }
            tool
        };
        let mut all: Vec<CustomTool> = tools.into_iter().map(name).collect();
        all.reverse();
        all.retain(|tool| !tool.name.is_empty() && taken.insert(tool.name.clone()));
        all.reverse();
        all
    }

    /// Returns the loaded tools that the rules do not hide. Of two with the same name, the
    /// project's is used.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let mut all: Vec<CustomTool> = Vec::new();
        for loaded in self.all_loaded() {
            all.retain(|tool| loaded.tools.iter().all(|later| later.name != tool.name));
            all.extend(loaded.tools.iter().cloned());
        }
        let shown = all
            .into_iter()
            .filter(|tool| !rules.hides(tool.permission()));
        shown
            .map(|tool| Arc::new(tool) as Arc<dyn AnyTool>)
            .collect()
    }

    /// Returns the additions of loaded plugins to the settings.
    pub fn contributions(&self) -> Vec<Contribution> {
        self.all_loaded()
            .flat_map(|loaded| loaded.contributions.clone())
            .collect()
    }

    /// Returns whether any loaded plugin handles this hook. Starts nothing.
    pub fn handles_hook(&self, name: &str) -> bool {
        self.all_loaded()
            .any(|loaded| loaded.hooks.contains_key(name))
    }

    /// Runs a hook of all plugins, one after the other, the user's own first. Returns `None` if no
    /// plugin handles it.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub(super) async fn run_hook(
        self: &Arc<Self>,
        name: &str,
        input: Value,
        mut output: Value,
        context: &ToolContext,
    ) -> Result<Option<HookRun>, Failure> {
        let scripts = &context.project.settings.scripts;
        let mut all: Option<HookRun> = None;
        for origin in ScriptOrigin::ALL {
            let is_handled = self
                .loaded_of(origin)
                .is_some_and(|loaded| loaded.hooks.contains_key(name));
            let must_run = is_handled
                || load::find_missing_guard(&self.missing_guards_of(origin), name).is_some()
                || (GUARDS.contains(&name) && self.is_loading(origin));
            if !must_run || !scripts.iter().any(|script| origin.includes(script)) {
                continue;
            }
            let before = all.as_mut().map_or_else(
                || std::mem::take(&mut output),
                |run| std::mem::take(&mut run.output),
            );
            let run = self
                .run_hook_of_origin(origin, (name, &input), before, context)
                .await?;
            let is_refused = run.thrown_error.is_some();
            all = Some(match all {
                Some(before) => before.then(run),
                None => run,
            });
            if is_refused {
                break;
            }
        }
        if all.is_some() {
            self.send_notices(context).await;
        }
        Ok(all)
    }

    /// Runs a hook of the plugins of one origin.
    async fn run_hook_of_origin(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        (name, input): (&str, &Value),
        output: Value,
        context: &ToolContext,
    ) -> Result<HookRun, Failure> {
        let loaded = match self.loaded(origin, context).await? {
            Ok(loaded) => loaded,
            Err(why) => {
                return Ok(HookRun {
                    unknown: Some(why),
                    output,
                    ..HookRun::default()
                });
            }
        };
        let missing = load::find_missing_guard(&loaded.missing_guards, name)
            .map(|plugin| format!("the plugin {} is not loaded", text::title(plugin)));
        let Some(files) = loaded.hooks.get(name) else {
            return Ok(HookRun {
                unknown: missing,
                output,
                ..HookRun::default()
            });
        };
        let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let limit = HOOK_TIMEOUT.saturating_mul(count) + HOST_GRACE;
        let millis = u64::try_from(HOOK_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let params = json!({ "name": name, "input": input, "output": output, "limit": millis });
        let answer = tokio::select! {
            answer = loaded.host.request("hook", params, limit) => answer,
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        Ok(match answer {
            Ok(answer) => {
                self.reset_failures(origin);
                let run = self.decode_hook_run(name, &answer, origin);
                HookRun {
                    unknown: run.unknown.clone().or(missing),
                    ..run
                }
            }
            Err(e) => {
                let title = format!("Plugins failed in {name}: {e}.");
                for file in files {
                    self.count_call(file, Duration::ZERO, Some(e.to_string()));
                }
                self.notify(Severity::Warning, title, None);
                HookRun {
                    unknown: Some(e.to_string()),
                    output,
                    ..HookRun::default()
                }
            }
        })
    }

    /// Decodes the host's answer to a hook, counts the calls, and reports errors of plugins.
    fn decode_hook_run(&self, name: &str, answer: &Value, origin: ScriptOrigin) -> HookRun {
        let mut run = HookRun {
            output: answer.get("output").cloned().unwrap_or_default(),
            ..HookRun::default()
        };
        for one in answer
            .get("ran")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let file = one.get("file").and_then(Value::as_str).unwrap_or_default();
            let spent = Duration::from_secs_f64(
                one.get("ms")
                    .and_then(Value::as_f64)
                    .unwrap_or_default()
                    .clamp(0.0, 1e9)
                    / 1e3,
            );
            let text_at = |pointer: &str| {
                one.pointer(pointer)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            let error = text_at("/error/message");
            self.count_call(file, spent, error.clone());
            if one.get("changed").and_then(Value::as_bool) == Some(true) {
                tracing::info!("the plugin {} has changed {name}", text::title(file));
                run.changed.push(file.to_owned());
                run.is_changed_by_project |= origin == ScriptOrigin::Project;
            }
            let Some(error) = error else { continue };
            let late = one.get("late").and_then(Value::as_bool) == Some(true);
            if name == "tool.execute.before" && !late {
                run.thrown_error = Some((file.to_owned(), error));
                continue;
            }
            if late && name == "tool.execute.before" {
                run.unknown = Some(format!("the plugin {} {error}", text::title(file)));
            }
            let title = format!(
                "The plugin {} failed in {name}: {}",
                text::title(file),
                text::title(&error)
            );
            self.notify(Severity::Warning, title, text_at("/error/stack"));
        }
        run
    }

    /// Updates the conversation and the status that plugins may ask for. Does nothing if no plugin is
    /// loaded.
    pub fn update_conversation(
        &self,
        context: &MessageContext<'_>,
        history: &[Message],
        busy: bool,
    ) {
        if self.all_loaded().next().is_some() {
            lock(&self.session_state.conversation).update(context, history);
            self.set_status(busy.then(|| json!({ "type": "busy" })));
        }
    }

    /// Sets the state of the session for plugins that ask; `None` if it is idle.
    pub fn set_status(&self, status: Option<Value>) {
        *lock(&self.session_state.status) = status;
    }

    /// Gives plugins access to a running turn; `None` at its end. Does nothing if no plugin is loaded.
    pub fn set_turn_access(&self, turn: impl FnOnce() -> Option<PluginTurnAccess>) {
        if self.all_loaded().next().is_some() {
            self.session_state.access.set_turn_access(turn());
        }
    }

    /// Gives plugins the operations of the session. Later calls do nothing.
    pub fn set_control(&self, control: Box<dyn SessionControl>) {
        // A second connection would be the same.
        self.session_state.access.control.set(control).ok();
    }

    /// Returns the notes of plugins to be added to this prompt of the user.
    pub fn take_notes(&self) -> Vec<String> {
        self.session_state.access.reset_prompt_count();
        std::mem::take(&mut *lock(&self.session_state.notes))
    }

    /// Returns the prompts of plugins with which the model is to continue.
    pub fn take_prompts(&self) -> Vec<PluginPrompt> {
        std::mem::take(&mut *lock(&self.session_state.prompts))
    }

    /// Waits until the plugins have handled the end of a turn, up to `TURN_END_TIMEOUT`. Returns
    /// whether they have added a prompt to continue with.
    pub async fn await_added_prompt(&self) -> bool {
        let limit = u64::try_from(TURN_END_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        for loaded in self.all_loaded() {
            let Some(feed) = loaded.feed.get() else {
                continue;
            };
            let received = tokio::time::timeout(TURN_END_TIMEOUT, feed.wait_until_sent()).await;
            if received.is_ok() {
                loaded
                    .host
                    .await_handled_events(json!({ "limit": limit }), HOST_GRACE)
                    .await;
            }
        }
        !lock(&self.session_state.prompts).is_empty()
    }

    /// Starts to send the events of the session to a host, if one of its plugins subscribes to them.
    fn start_event_feed(&self, loaded: &LoadedScripts) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        if !*lock(&self.session_state.has_subscriber) && !loaded.hooks.contains_key("event") {
            return;
        }
        let filter = EventFilter {
            session: Some(publisher.session.clone()),
            roots: None,
            traces: false,
        };
        loaded
            .feed
            .get_or_init(|| EventFeed::start(publisher.bus().subscribe(filter), &loaded.host));
    }

    /// Sends an event in OpenCode's format to the plugins only.
    pub fn send_event(&self, kind: &'static str, properties: &Value) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        for loaded in self.all_loaded() {
            if let Some(feed) = loaded.feed.get() {
                feed.push(publisher.event(kind, None, properties.clone()));
            }
        }
    }

    /// Records the system prompt `after` that hooks have produced from `before`. Returns whether they
    /// have produced a different one from it before.
    pub(super) fn record_system_prompt(&self, before: &[String], after: &[String]) -> bool {
        /// A limit that no session reaches.
        const MAX_PROMPTS: usize = 64;
        let mut prompts = lock(&self.system_prompts);
        if prompts.len() >= MAX_PROMPTS {
            prompts.clear();
        }
        let known = prompts.insert(before.to_vec(), after.to_vec());
        known.is_some_and(|known| known != after)
    }

    /// Counts a call in the statistics of a hook or a file.
    pub(super) fn count_call(&self, file: &str, spent: Duration, error: Option<String>) {
        let mut usage = lock(&self.usage);
        let stats = usage.entry(file.to_owned()).or_default();
        stats.calls += 1;
        stats.spent += spent;
        stats.last_error = error.or(stats.last_error.take());
    }

    /// Records that a file changes the system prompt each time although nothing else has changed.
    pub(super) fn record_unstable_prompt(&self, file: &str) {
        lock(&self.usage)
            .entry(file.to_owned())
            .or_default()
            .has_unstable_prompt = true;
    }

    /// Resets the number of failures, after a success of a host.
    fn reset_failures(&self, origin: ScriptOrigin) {
        *lock(&self.origin_scripts(origin).failures) = (0, None);
    }

    /// Returns the statistics of hooks and files since the last call.
    pub fn take_usage(&self) -> UsageByName {
        std::mem::take(&mut *lock(&self.usage))
    }

    /// Queues a notice for the user. A notice with the same title is sent once.
    pub(super) fn notify(&self, severity: Severity, title: String, details: Option<String>) {
        if !lock(&self.reported).insert(title.clone()) {
            return;
        }
        let mut notices = lock(&self.notices);
        if notices.len() < MAX_NOTICES {
            let (title, _) = text::visible(&title);
            let details = details
                .map(|details| text::visible(&details).0)
                .filter(|details| details.trim().contains('\n'));
            notices.push(Event::Notice {
                severity,
                title,
                details,
            });
        }
    }

    /// Sends the queued notices.
    pub async fn send_notices(&self, context: &ToolContext) {
        let notices = std::mem::take(&mut *lock(&self.notices));
        for notice in notices {
            context.client.event_sender.event(notice).await;
        }
    }

    /// Loads all scripts, and returns their inventory for display.
    ///
    /// # Errors
    /// Returns the reason why none of them could be loaded.
    pub async fn report(self: &Arc<Self>, context: &ToolContext) -> Result<ScriptReport, String> {
        let scripts = &context.project.settings.scripts;
        let mut report = ScriptReport::default();
        let mut is_any_loaded = false;
        let mut reasons = Vec::new();
        for origin in ScriptOrigin::ALL
            .into_iter()
            .filter(|origin| scripts.iter().any(|script| origin.includes(script)))
        {
            let loaded = match self
                .loaded(origin, context)
                .await
                .map_err(|e| e.to_string())?
            {
                Ok(loaded) => loaded,
                Err(why) => {
                    let own = scripts.iter().filter(|script| origin.includes(script));
                    report.failures.extend(own.map(|script| LoadFailure {
                        file: script.name.clone(),
                        message: why.clone(),
                        stack: String::new(),
                    }));
                    reasons.push(why);
                    continue;
                }
            };
            is_any_loaded = true;
            report.runtime.clone_from(&loaded.runtime);
            report.tools.extend(
                loaded
                    .tools
                    .iter()
                    .map(|tool| (tool.name.clone(), tool.file.clone())),
            );
            for (name, files) in &loaded.hooks {
                report
                    .hooks
                    .entry(name.clone())
                    .or_default()
                    .extend(files.iter().cloned());
            }
            report.failures.extend(loaded.failures.iter().cloned());
            report.mistyped.extend(loaded.mistyped.iter().cloned());
            report
                .unusable_runtimes
                .clone_from(&loaded.unusable_runtimes);
        }
        match reasons.pop() {
            Some(why) if !is_any_loaded => Err(why),
            _ => Ok(report),
        }
    }

    /// Ends the hosts.
    pub async fn end(&self) {
        for scripts_of_origin in &self.by_origin {
            let generation = lock(&scripts_of_origin.current).take();
            if let Some(Ok(loaded)) = generation
                .as_ref()
                .and_then(|generation| generation.loaded.get())
            {
                loaded.host.end();
                loaded.host.wait_until_ended().await;
            }
        }
    }
}

impl Notifier for Scripts {
    fn notify(&self, severity: Severity, title: String, details: Option<String>) {
        Scripts::notify(self, severity, title, details);
    }

    fn record_failure(&self, file: &str, why: String) {
        self.count_call(file, Duration::ZERO, Some(why));
    }

    fn send_event(&self, kind: &'static str, properties: &Value) {
        Scripts::send_event(self, kind, properties);
    }

    fn start_event_feeds(&self) {
        for loaded in self.all_loaded() {
            self.start_event_feed(&loaded);
        }
    }
}

impl HostProvider for Scripts {
    fn host<'a>(
        self: Arc<Self>,
        origin: ScriptOrigin,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Result<Arc<PluginHost>, String>, Failure>> {
        Box::pin(async move {
            Ok(self
                .loaded(origin, context)
                .await?
                .map(|loaded| loaded.host.clone()))
        })
    }

    fn count_tool_call(
        &self,
        (origin, file): (ScriptOrigin, &str),
        spent: Duration,
        error: Option<String>,
    ) {
        if error.is_none() {
            self.reset_failures(origin);
        }
        self.count_call(file, spent, error);
    }

    fn has_working_subagent(&self) -> bool {
        self.session_state.access.is_working()
    }
}
