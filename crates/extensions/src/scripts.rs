//! The custom tools and plugins of one session. Their host is started at the first use and
//! restarted after it has broken off, and paused if that happens too often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client::{Notifier, PluginHandlers, PluginPrompt, SessionState};
use super::feed::Feed;
use super::host::{PluginHost, ScriptOrigin};
use super::lint::MistypedPart;
use super::load::{self, LoadPurpose, LoadedScripts, LostPlugin};
use super::shapes::MessageContext;
use super::subagents::{PluginTurnAccess, SessionControl, Subagents};
use super::tool::{CustomTool, Home};
use super::usage_stats::Tallies;
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
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);
/// The time that the host has in addition to the limit of the code in it.
const HOST_GRACE: Duration = Duration::from_secs(2);
/// The number of failures in a row after which it is paused, and the duration of the pause.
const MAX_FAILURES: u32 = 3;
const FAILURE_PAUSE: Duration = Duration::from_secs(5 * 60);
/// The reason why there is no host for scripts that were removed.
const REMOVED_SCRIPT: &str = "they are gone from the settings";
/// The number of notices that may wait to be sent.
const MAX_NOTICES: usize = 20;

/// The scripts of one session and of its subagents.
#[derive(Debug, Default)]
pub struct Scripts {
    /// The user's own scripts, and the project's.
    sides: [OriginScripts; 2],
    // Leaf locks around lists and maps.
    notices: Mutex<Vec<Event>>,
    reported: Mutex<BTreeSet<String>>,
    tally: Mutex<Tallies>,
    /// The system prompt that hooks have produced from the same input before.
    prompts: Mutex<BTreeMap<Vec<String>, Vec<String>>>,
    /// Whether plugins are only loaded, and none of their functions is called.
    compiles: bool,
    /// The state that plugins may ask for.
    session_state: Arc<SessionState>,
    /// The events of the session; `None` if nothing but the files is looked at.
    publisher: Option<Publisher>,
}

/// The scripts of one origin.
#[derive(Debug, Default)]
struct OriginScripts {
    // Leaf locks around a pointer and a counter.
    now: Mutex<Option<Arc<Generation>>>,
    /// The failures since the last success, and the time of the last one.
    failures: Mutex<(u32, Option<Instant>)>,
}

/// The host for one state of the files.
struct Generation {
    scripts: Vec<ScriptEntry>,
    cell: OnceCell<Result<Arc<LoadedScripts>, NotLoaded>>,
}

/// The reason why a host did not start, and the plugins that are lost with it.
#[derive(Debug, Clone)]
struct NotLoaded {
    why: String,
    lost: Vec<LostPlugin>,
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
    /// The runtime: `Node 20.20.2`.
    pub runtime: String,
    /// The tools by name, with their files.
    pub tools: Vec<(String, String)>,
    /// The hooks, with the files that handle them.
    pub hooks: BTreeMap<String, Vec<String>>,
    /// The files that could not be loaded, with the message and the stack.
    pub errors: Vec<(String, String, String)>,
    /// The hooks and tools that have no effect because of their type.
    pub wrong: Vec<MistypedPart>,
    /// The programs that cannot run extensions, and why.
    pub unable: Vec<String>,
}

/// The outcome of a hook.
#[derive(Debug, Default)]
pub(super) struct HookRun {
    /// The output after all plugins.
    pub(super) output: Value,
    /// The plugin that threw, with its message.
    pub(super) thrown_error: Option<(String, String)>,
    /// The reason why the plugins' answer is unknown.
    pub(super) unknown: Option<String>,
    /// The files of plugins that changed the output.
    pub(super) changed: Vec<String>,
    /// Whether a plugin of the project is among them.
    pub(super) by_project: bool,
}

impl HookRun {
    /// Adds the outcome of the next host.
    fn then(self, next: Self) -> Self {
        Self {
            output: next.output,
            thrown_error: self.thrown_error.or(next.thrown_error),
            unknown: self.unknown.or(next.unknown),
            changed: self.changed.into_iter().chain(next.changed).collect(),
            by_project: self.by_project || next.by_project,
        }
    }
}

impl Scripts {
    /// Returns the scripts of a session whose events they may receive.
    pub fn of(publisher: Publisher) -> Self {
        Self {
            publisher: Some(publisher),
            ..Self::default()
        }
    }

    /// Returns scripts that are only checked for loading: no function of a plugin is called.
    pub fn compiling() -> Self {
        Self {
            compiles: true,
            ..Self::default()
        }
    }

    /// Prepares a turn: loads new scripts. Does nothing if there are none.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub async fn prepare_turn(self: &Arc<Self>, context: &ToolContext) -> Result<(), Failure> {
        let there = ScriptOrigin::ALL.into_iter().filter(|origin| {
            let scripts = &context.project.settings.scripts;
            scripts.iter().any(|script| origin.covers(script))
                || lock(&self.side(*origin).now).is_some()
        });
        let load = async |origin| (origin, self.loaded(origin, context).await);
        let all = join_all(there.map(load)).await;
        if all.is_empty() {
            return Ok(());
        }
        // Mostly the same for both origins, for example if there is no program to run them.
        let mut by_reason = BTreeMap::<String, Vec<LostPlugin>>::new();
        for (origin, loaded) in all {
            if let Err(why) = loaded?
                && why != REMOVED_SCRIPT
            {
                let lost = by_reason.entry(why).or_default();
                lost.extend(self.lost_of(origin));
            }
        }
        for (why, lost) in by_reason {
            let title = format!(
                "Custom tools and plugins are not loaded: {}.{}",
                why.trim_end_matches('.'),
                load::describe_lost_calls(&lost)
            );
            self.notify(Severity::Warning, title, None);
        }
        self.flush(context).await;
        Ok(())
    }

    fn side(&self, origin: ScriptOrigin) -> &OriginScripts {
        let [own, project] = &self.sides;
        if origin == ScriptOrigin::Own {
            own
        } else {
            project
        }
    }

    /// Returns the scripts of one origin, if they are loaded already.
    fn loaded_of(&self, origin: ScriptOrigin) -> Option<Arc<LoadedScripts>> {
        let generation = lock(&self.side(origin).now).clone()?;
        generation.cell.get()?.as_ref().ok().cloned()
    }

    /// Returns whether the loading of one origin's scripts has begun and not ended, for example
    /// again after their host broke off. Which calls they refuse is not known before.
    fn is_loading(&self, origin: ScriptOrigin) -> bool {
        lock(&self.side(origin).now)
            .as_ref()
            .is_some_and(|generation| generation.cell.get().is_none())
    }

    /// Returns the plugins of one origin that are not loaded and that might have refused calls.
    fn lost_of(&self, origin: ScriptOrigin) -> Vec<LostPlugin> {
        let generation = lock(&self.side(origin).now).clone();
        match generation
            .as_ref()
            .and_then(|generation| generation.cell.get())
        {
            Some(Ok(loaded)) => loaded.lost.clone(),
            Some(Err(not_loaded)) => not_loaded.lost.clone(),
            None => Vec::new(),
        }
    }

    /// Returns the scripts that are loaded already.
    fn current(&self) -> impl Iterator<Item = Arc<LoadedScripts>> + '_ {
        ScriptOrigin::ALL
            .into_iter()
            .filter_map(|origin| self.loaded_of(origin))
    }

    /// Returns the host for the current state of the files.
    fn generation(
        &self,
        origin: ScriptOrigin,
        settings: &Settings,
    ) -> Result<Option<Arc<Generation>>, String> {
        let side = self.side(origin);
        let wanted = || {
            settings
                .scripts
                .iter()
                .filter(|script| origin.covers(script))
        };
        let mut now = lock(&side.now);
        if wanted().next().is_none() {
            *now = None;
            return Ok(None);
        }
        if let Some(generation) = now.as_ref().filter(|now| now.scripts.iter().eq(wanted())) {
            match generation.cell.get() {
                Some(Ok(loaded)) if loaded.host.is_gone() => {
                    let mut failures = lock(&side.failures);
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
            scripts: wanted().cloned().collect(),
            cell: OnceCell::new(),
        });
        *now = Some(fresh.clone());
        Ok(Some(fresh))
    }

    /// Returns the scripts of one origin, and loads them if needed. Permanent errors are returned
    /// as text.
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
                    let lost = load::lost_plugins(generation.scripts.iter()).await;
                    Ok(Err(NotLoaded { why, lost }))
                }
                Err(failure) => Err(failure),
            }
        };
        let loaded = tokio::select! {
            loaded = generation.cell.get_or_try_init(|| load) => loaded?.clone(),
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        Ok(loaded.map_err(|not_loaded| not_loaded.why))
    }

    async fn load(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        scripts: &[ScriptEntry],
        context: &ToolContext,
    ) -> Result<LoadedScripts, Failure> {
        let notifier: Weak<dyn Notifier> = Arc::<Self>::downgrade(self);
        let home: Weak<dyn Home> = Arc::<Self>::downgrade(self);
        let handlers = PluginHandlers {
            notifier,
            session_state: self.session_state.clone(),
            session: context.session.id.to_string(),
            directory: context.project.cwd.clone(),
            worktree: context.project.worktree.root.clone(),
            settings: context.project.settings.clone(),
            environment: context.project.environment.clone(),
            todos: context.session.todos.clone(),
            own: origin == ScriptOrigin::Own,
            subagents: Subagents::default(),
        };
        let purpose = if self.compiles {
            LoadPurpose::Check
        } else {
            LoadPurpose::Session
        };
        let mut loaded = load::load(
            (scripts, origin),
            purpose,
            Arc::new(handlers),
            (&**self, &home),
            context,
        )
        .await?;
        loaded.tools = self.named(loaded.tools, &context.project.settings);
        self.feed(&loaded);
        Ok(loaded)
    }

    /// Gives tools names that are free. A custom tool replaces a built-in one only if the settings
    /// allow it.
    fn named(&self, tools: Vec<CustomTool>, settings: &Settings) -> Vec<CustomTool> {
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
            // Of two with the same name, the later one is used, as in OpenCode.
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
        for loaded in self.current() {
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
    pub fn added(&self) -> Vec<Contribution> {
        self.current()
            .flat_map(|loaded| loaded.added.clone())
            .collect()
    }

    /// Returns whether any loaded plugin handles this hook. Starts nothing.
    pub fn handles_hook(&self, name: &str) -> bool {
        self.current().any(|loaded| loaded.hooks.contains_key(name))
    }

    /// Runs a hook of all plugins, one after the other, the user's own first. Returns `None` if no
    /// plugin handles it.
    ///
    /// # Errors
    /// Returns [`Failure::Cancelled`] if the user cancels.
    pub(super) async fn hook(
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
            let hangs = is_handled
                || load::lost_guard(&self.lost_of(origin), name).is_some()
                || (GUARDS.contains(&name) && self.is_loading(origin));
            if !hangs || !scripts.iter().any(|script| origin.covers(script)) {
                continue;
            }
            let before = all.as_mut().map_or_else(
                || std::mem::take(&mut output),
                |run| std::mem::take(&mut run.output),
            );
            let run = self
                .hook_of(origin, (name, &input), before, context)
                .await?;
            let ends = run.thrown_error.is_some();
            all = Some(match all {
                Some(before) => before.then(run),
                None => run,
            });
            if ends {
                break;
            }
        }
        if all.is_some() {
            self.flush(context).await;
        }
        Ok(all)
    }

    /// Runs a hook of the plugins of one origin.
    async fn hook_of(
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
        let lost = load::lost_guard(&loaded.lost, name)
            .map(|plugin| format!("the plugin {} is not loaded", text::title(plugin)));
        let Some(files) = loaded.hooks.get(name) else {
            return Ok(HookRun {
                unknown: lost,
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
                self.worked(origin);
                let run = self.ran(name, &answer, origin);
                HookRun {
                    unknown: run.unknown.clone().or(lost),
                    ..run
                }
            }
            Err(e) => {
                let title = format!("Plugins failed in {name}: {e}.");
                for file in files {
                    self.counted(file, Duration::ZERO, Some(e.to_string()));
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

    /// Reads the host's answer about a hook that ran.
    fn ran(&self, name: &str, answer: &Value, origin: ScriptOrigin) -> HookRun {
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
            let words = |at: &str| one.pointer(at).and_then(Value::as_str).map(str::to_owned);
            let error = words("/error/message");
            self.counted(file, spent, error.clone());
            if one.get("changed").and_then(Value::as_bool) == Some(true) {
                tracing::info!("the plugin {} has changed {name}", text::title(file));
                run.changed.push(file.to_owned());
                run.by_project |= origin == ScriptOrigin::Project;
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
            self.notify(Severity::Warning, title, words("/error/stack"));
        }
        run
    }

    /// Stores the part of the conversation that plugins may ask for. Does nothing if there are
    /// none.
    pub fn remember(&self, context: &MessageContext<'_>, history: &[Message], busy: bool) {
        if self.current().next().is_some() {
            lock(&self.session_state.conversation).update(context, history);
            self.set_status(busy.then(|| json!({ "type": "busy" })));
        }
    }

    /// Sets the state of the session for plugins that ask; `None` if it is idle.
    pub fn set_status(&self, status: Option<Value>) {
        *lock(&self.session_state.status) = status;
    }

    /// Gives plugins access to a running turn; `None` ends it. Does nothing if there are none.
    pub fn set_turn_access(&self, turn: impl FnOnce() -> Option<PluginTurnAccess>) {
        if self.current().next().is_some() {
            self.session_state.access.set_turn_access(turn());
        }
    }

    /// Connects plugins to the operations of the session, once.
    pub fn opens(&self, control: Box<dyn SessionControl>) {
        // A second connection would be the same.
        self.session_state.access.control.set(control).ok();
    }

    /// Returns the notes of plugins to be added to this prompt of the user.
    pub fn take_notes(&self) -> Vec<String> {
        self.session_state.access.renew();
        std::mem::take(&mut *lock(&self.session_state.notes))
    }

    /// Returns the prompts of plugins with which the model is to continue.
    pub fn take_prompts(&self) -> Vec<PluginPrompt> {
        std::mem::take(&mut *lock(&self.session_state.prompts))
    }

    /// Returns whether plugins have added a prompt, after their handlers of the turn's end have
    /// run. Handlers that take longer than the limit are not waited for.
    pub async fn wants_more(&self) -> bool {
        let limit = u64::try_from(SETTLE_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        for loaded in self.current() {
            let Some(feed) = loaded.feed.get() else {
                continue;
            };
            let received = tokio::time::timeout(SETTLE_TIMEOUT, feed.drained()).await;
            if received.is_ok() {
                loaded
                    .host
                    .await_handled_events(json!({ "limit": limit }), HOST_GRACE)
                    .await;
            }
        }
        !lock(&self.session_state.prompts).is_empty()
    }

    /// Sends events to a host from now on, if a plugin of it receives them.
    fn feed(&self, loaded: &LoadedScripts) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        if !*lock(&self.session_state.listens) && !loaded.hooks.contains_key("event") {
            return;
        }
        let filter = EventFilter {
            session: Some(publisher.session.clone()),
            roots: None,
            traces: false,
        };
        loaded
            .feed
            .get_or_init(|| Feed::start(publisher.bus().subscribe(filter), &loaded.host));
    }

    /// Sends an event in OpenCode's format to the plugins only.
    pub fn event(&self, kind: &'static str, properties: &Value) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        for loaded in self.current() {
            if let Some(feed) = loaded.feed.get() {
                feed.push(publisher.event(kind, None, properties.clone()));
            }
        }
    }

    /// Records the system prompt that hooks have produced. Returns whether the same input has
    /// produced something else before.
    pub(super) fn record_system_prompt(&self, before: &[String], after: &[String]) -> bool {
        /// A limit that no session reaches.
        const MAX_PROMPTS: usize = 64;
        let mut prompts = lock(&self.prompts);
        if prompts.len() >= MAX_PROMPTS {
            prompts.clear();
        }
        let known = prompts.insert(before.to_vec(), after.to_vec());
        known.is_some_and(|known| known != after)
    }

    /// Counts a call of a file.
    pub(super) fn counted(&self, file: &str, spent: Duration, error: Option<String>) {
        let mut tally = lock(&self.tally);
        let one = tally.entry(file.to_owned()).or_default();
        one.calls += 1;
        one.spent += spent;
        one.last_error = error.or(one.last_error.take());
    }

    /// Records that a file changes the system prompt each time although nothing else has changed.
    pub(super) fn record_unstable_prompt(&self, file: &str) {
        lock(&self.tally)
            .entry(file.to_owned())
            .or_default()
            .has_unstable_prompt = true;
    }

    /// Records a success of a host.
    fn worked(&self, origin: ScriptOrigin) {
        *lock(&self.side(origin).failures) = (0, None);
    }

    /// Returns the statistics of hooks and files since the last call.
    pub fn take_tallies(&self) -> Tallies {
        std::mem::take(&mut *lock(&self.tally))
    }

    /// Queues a notice for the user. Each notice is sent once.
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
    pub async fn flush(&self, context: &ToolContext) {
        let notices = std::mem::take(&mut *lock(&self.notices));
        for notice in notices {
            context.client.event_sender.event(notice).await;
        }
    }

    /// Returns the inventory of loaded scripts, for display.
    ///
    /// # Errors
    /// Returns the reason why nothing is loaded.
    pub async fn report(self: &Arc<Self>, context: &ToolContext) -> Result<ScriptReport, String> {
        let scripts = &context.project.settings.scripts;
        let mut report = ScriptReport::default();
        let mut any = false;
        let mut whys = Vec::new();
        for origin in ScriptOrigin::ALL
            .into_iter()
            .filter(|origin| scripts.iter().any(|script| origin.covers(script)))
        {
            let loaded = match self
                .loaded(origin, context)
                .await
                .map_err(|e| e.to_string())?
            {
                Ok(loaded) => loaded,
                Err(why) => {
                    let own = scripts.iter().filter(|script| origin.covers(script));
                    report.errors.extend(
                        own.map(|script| (script.name.clone(), why.clone(), String::new())),
                    );
                    whys.push(why);
                    continue;
                }
            };
            any = true;
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
            report.errors.extend(loaded.errors.iter().cloned());
            report.wrong.extend(loaded.wrong.iter().cloned());
            report.unable.clone_from(&loaded.unable);
        }
        match whys.pop() {
            Some(why) if !any => Err(why),
            _ => Ok(report),
        }
    }

    /// Ends the hosts.
    pub async fn end(&self) {
        for side in &self.sides {
            let generation = lock(&side.now).take();
            if let Some(Ok(loaded)) = generation
                .as_ref()
                .and_then(|generation| generation.cell.get())
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

    fn failed(&self, file: &str, why: String) {
        self.counted(file, Duration::ZERO, Some(why));
    }

    fn happened(&self, kind: &'static str, properties: &Value) {
        self.event(kind, properties);
    }

    fn listens(&self) {
        for loaded in self.current() {
            self.feed(&loaded);
        }
    }
}

impl Home for Scripts {
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

    fn called(&self, (origin, file): (ScriptOrigin, &str), spent: Duration, error: Option<String>) {
        if error.is_none() {
            self.worked(origin);
        }
        self.counted(file, spent, error);
    }

    fn has_subagent_at_work(&self) -> bool {
        self.session_state.access.is_working()
    }
}
