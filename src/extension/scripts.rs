//! The custom tools and plugins of one session: their host is started when they are first wanted, started again
//! when it has broken off, and rests when that happens too often.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client::{Ears, Knowledge, Teller, seen_settings};
use super::host::{PluginHost, STAND_IN};
use super::tally::Tallies;
use super::tool::{CustomTool, Home};
use crate::config::Settings;
use crate::config::contribution::Contribution;
use crate::config::script::{self, HOOKS, ScriptEntry, ScriptKind};
use crate::event::{Event, Severity};
use crate::lock::locked;
use crate::message::Message;
use crate::permission::Rules;
use crate::text;
use crate::tool::registry::find_properties;
use crate::tool::{AnyTool, BoxFuture, Failure, ToolContext};

/// How long a plugin may take for one hook, and all files for being loaded.
const HOOK: Duration = Duration::from_secs(5);
const LOAD: Duration = Duration::from_secs(45);
/// How much longer the host may take than what runs in it.
const GRACE: Duration = Duration::from_secs(2);
/// After how many breakdowns in a row it rests, and for how long.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(5 * 60);
/// The most notices that wait to be told.
const NEWS: usize = 20;

/// The scripts of one session and of its subagents.
#[derive(Debug, Default)]
pub struct Scripts {
    // Leaf locks: around a pointer, lists and maps.
    now: Mutex<Option<Arc<Generation>>>,
    news: Mutex<Vec<Event>>,
    told: Mutex<BTreeSet<String>>,
    tally: Mutex<Tallies>,
    /// The system prompt as hooks have made it of the same words before.
    prompts: Mutex<BTreeMap<Vec<String>, Vec<String>>>,
    /// Breakdowns since the last success, and when the last one was.
    failures: Mutex<(u32, Option<Instant>)>,
    /// Plugins are loaded, and none of their functions is called.
    compiles: bool,
    /// What plugins may ask for.
    knowledge: Arc<Knowledge>,
}

/// The host for one state of the files.
struct Generation {
    scripts: Vec<ScriptEntry>,
    cell: OnceCell<Result<Arc<LoadedScripts>, String>>,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

/// What has been loaded, and where it runs.
pub(super) struct LoadedScripts {
    host: Arc<PluginHost>,
    tools: Vec<CustomTool>,
    /// Which files hook into which hook.
    hooks: BTreeMap<String, Vec<String>>,
    /// What could not be loaded: file, words, stack.
    errors: Vec<(String, String, String)>,
    runtime: String,
    /// What plugins add to the settings.
    added: Vec<Contribution>,
}

/// What is known of the scripts, for people.
#[derive(Debug, Default)]
pub struct ScriptReport {
    /// What runs them: `Node 20.20.2`.
    pub runtime: String,
    /// Tools by name, with their files.
    pub tools: Vec<(String, String)>,
    /// Hooks, with the files that hook into them.
    pub hooks: BTreeMap<String, Vec<String>>,
    /// Files that could not be loaded, with why and where.
    pub errors: Vec<(String, String, String)>,
}

/// What became of a hook.
#[derive(Debug, Default)]
pub(super) struct HookRun {
    /// As the plugins left it.
    pub(super) output: Value,
    /// A plugin that threw, and what.
    pub(super) threw: Option<(String, String)>,
    /// Nobody knows what the plugins would have said.
    pub(super) unknown: Option<String>,
    /// The files of plugins that changed the output.
    pub(super) changed: Vec<String>,
}

impl Scripts {
    /// To see whether the files load: no function of a plugin is called.
    pub fn compiling() -> Self {
        Self { compiles: true, ..Self::default() }
    }

    /// Makes ready for a turn: loads what is there and new. Costs nothing where there is nothing.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn greet(self: &Arc<Self>, context: &ToolContext) -> Result<(), Failure> {
        if context.project.settings.scripts.is_empty() && locked(&self.now).is_none() {
            return Ok(());
        }
        if let Err(why) = self.loaded(context).await? {
            let title = format!("Custom tools and plugins are not loaded: {}.", why.trim_end_matches('.'));
            self.tell(Severity::Warning, title, None);
        }
        self.flush(context).await;
        Ok(())
    }

    /// What is loaded, as far as it is there already.
    fn current(&self) -> Option<Arc<LoadedScripts>> {
        let generation = locked(&self.now).clone()?;
        generation.cell.get()?.as_ref().ok().cloned()
    }

    /// The host for the files as they are now.
    fn generation(&self, settings: &Settings) -> Result<Option<Arc<Generation>>, String> {
        let mut now = locked(&self.now);
        if settings.scripts.is_empty() {
            *now = None;
            return Ok(None);
        }
        if let Some(generation) = now.as_ref().filter(|now| now.scripts == settings.scripts) {
            match generation.cell.get() {
                Some(Ok(loaded)) if loaded.host.is_gone() => {
                    let mut failures = locked(&self.failures);
                    let (count, since) = *failures;
                    let rests = count >= FAILURES && since.is_some_and(|since| since.elapsed() < REST);
                    if !rests {
                        *failures = (if count >= FAILURES { 1 } else { count + 1 }, Some(Instant::now()));
                    }
                    if failures.0 >= FAILURES {
                        return Err(format!("what runs them broke off {FAILURES} times in a row and is paused"));
                    }
                }
                _ => return Ok(Some(generation.clone())),
            }
        }
        let fresh = Arc::new(Generation { scripts: settings.scripts.clone(), cell: OnceCell::new() });
        *now = Some(fresh.clone());
        Ok(Some(fresh))
    }

    /// What is loaded; it is loaded where it is not. Errors of a kind that stay are given as words.
    pub(super) async fn loaded(
        self: &Arc<Self>,
        context: &ToolContext,
    ) -> Result<Result<Arc<LoadedScripts>, String>, Failure> {
        let generation = match self.generation(&context.project.settings) {
            Ok(Some(generation)) => generation,
            Ok(None) => return Ok(Err("they are gone from the settings".into())),
            Err(why) => return Ok(Err(why)),
        };
        let load = async {
            match self.load(&generation.scripts, context).await {
                Ok(loaded) => Ok(Ok(Arc::new(loaded))),
                Err(Failure::Tell(why)) => Ok(Err(why)),
                Err(failure) => Err(failure),
            }
        };
        let loaded = tokio::select! {
            loaded = generation.cell.get_or_try_init(|| load) => loaded?.clone(),
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        Ok(loaded)
    }

    async fn load(self: &Arc<Self>, scripts: &[ScriptEntry], context: &ToolContext) -> Result<LoadedScripts, Failure> {
        let own: Weak<Self> = Arc::downgrade(self);
        let teller: Weak<dyn Teller> = own;
        let ears = Ears {
            teller,
            knowledge: self.knowledge.clone(),
            session: context.session.id.to_string(),
            directory: context.project.cwd.clone(),
            worktree: context.project.worktree.root.clone(),
            settings: context.project.settings.clone(),
            environment: context.project.environment.clone(),
            todos: context.session.todos.clone(),
        };
        let host = PluginHost::start(context, Arc::new(ears)).await?;
        let mut files = Vec::new();
        for script in scripts {
            let manifest = script.path.join("package.json");
            let file = if script.package { &manifest } else { &script.path };
            if script::stamp(file) != script.stamp {
                let title = format!("{} has changed since it was looked at, so it is not loaded now.", script.name);
                self.tell(Severity::Warning, title, None);
                continue;
            }
            let kind = if script.kind == ScriptKind::Tool { "tool" } else { "plugin" };
            files.push(json!({
                "id": script.name, "kind": kind, "path": script.path, "package": script.package, "options": script.options,
            }));
        }
        let root = &context.project.worktree.root;
        // What strips types is looked for where nothing of an untrusted project is.
        let trusted = context.project.settings.trusted;
        let places = context.project.settings.directories.iter().filter(|dir| trusted || !dir.project);
        let own = Some(root).filter(|_| trusted);
        let bases: Vec<PathBuf> = places.map(|dir| dir.path.clone()).chain(own.cloned()).collect();
        let params = json!({
            "directory": context.project.cwd, "worktree": root, "files": files, "bases": bases,
            "project": { "id": root, "worktree": root, "vcs": root.join(".git").exists().then_some("git"), "time": { "created": 0 } },
            "config": seen_settings(&context.project.settings), "standIn": STAND_IN, "check": self.compiles,
        });
        let loaded = host.request("load", params, LOAD).await.map_err(|e| Failure::Tell(e.to_string()))?;
        let list = |key: &str| loaded.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let words = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut hooks, mut added) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
        for one in list("hooks") {
            let file = words(&one, "file");
            let names = one.get("names").and_then(Value::as_array).cloned().unwrap_or_default();
            for name in names.iter().filter_map(Value::as_str) {
                hooks.entry(name.to_owned()).or_default().push(file.clone());
            }
            let changes = one.get("added").cloned().unwrap_or_default();
            let project = scripts.iter().any(|script| script.name == file && script.project);
            let (contribution, dropped) = Contribution::of(&file, project, &changes);
            added.extend(contribution);
            if !dropped.is_empty() {
                let (file, keys) = (text::title(&file), text::title(&dropped.join(", ")));
                let title = format!("The plugin {file} may not set {keys}: put it into the settings yourself.");
                self.tell(Severity::Info, title, None);
            }
        }
        let errors: Vec<_> =
            list("errors").iter().map(|e| (words(e, "file"), words(e, "message"), words(e, "stack"))).collect();
        for (file, why, stack) in &errors {
            self.counted(file, Duration::ZERO, Some(why.clone()));
            let title = format!("{} could not be loaded: {}", text::title(file), text::title(why));
            self.tell(Severity::Warning, title, Some(stack.clone()));
        }
        self.tell_unused(&hooks);
        let own: Weak<Self> = Arc::downgrade(self);
        let home: Weak<dyn Home> = own;
        let tools = list("tools").iter().filter_map(|said| CustomTool::of(said, &home)).collect();
        let tools = self.named(tools, &context.project.settings);
        tracing::info!("extensions are loaded with {}", words(&loaded, "runtime"));
        Ok(LoadedScripts { host, tools, hooks, errors, runtime: words(&loaded, "runtime"), added })
    }

    /// Says which hooks of plugins nothing follows from.
    fn tell_unused(&self, hooks: &BTreeMap<String, Vec<String>>) {
        let mut unused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, files) in hooks.iter().filter(|(name, _)| !HOOKS.contains(&name.as_str())) {
            for file in files.iter().filter(|_| name.contains('.')) {
                unused.entry(file).or_default().push(name);
            }
        }
        for (file, names) in unused {
            let (file, names) = (text::title(file), text::title(&names.join(", ")));
            self.tell(Severity::Info, format!("The plugin {file} hooks into {names}, which has no effect here."), None);
        }
    }

    /// Tools under names that are free: one of a tool of ours only where the settings say so.
    fn named(&self, tools: Vec<CustomTool>, settings: &Settings) -> Vec<CustomTool> {
        let mut taken = BTreeSet::new();
        let one = |mut tool: CustomTool| {
            if find_properties(&tool.name).is_some() && !settings.replace_tools.contains(&tool.name) {
                let own = std::mem::take(&mut tool.name);
                tool.name = format!("custom_{own}");
                let title = format!(
                    "The tool {own} of {} is called {} here: {own} is one of adjutant's own. `replace_tools` in your settings lets it take its place.",
                    text::title(&tool.file),
                    tool.name
                );
                self.tell(Severity::Info, title, None);
            }
            // Of two the later one counts, as in OpenCode.
            tool
        };
        let mut all: Vec<CustomTool> = tools.into_iter().map(one).collect();
        all.reverse();
        all.retain(|tool| !tool.name.is_empty() && taken.insert(tool.name.clone()));
        all.reverse();
        all
    }

    /// The tools that are loaded, as far as these rules do not hide them.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let Some(loaded) = self.current() else { return Vec::new() };
        let tools = loaded.tools.iter().filter(|tool| !rules.hides(tool.permission()));
        tools.map(|tool| Arc::new(tool.clone()) as Arc<dyn AnyTool>).collect()
    }

    /// What the plugins that are loaded add to the settings.
    pub fn added(&self) -> Vec<Contribution> {
        self.current().map(|loaded| loaded.added.clone()).unwrap_or_default()
    }

    /// Whether any plugin hooks into this. Nothing is started for the answer.
    pub fn hangs_into(&self, name: &str) -> bool {
        self.current().is_some_and(|loaded| loaded.hooks.contains_key(name))
    }

    /// Runs a hook of all plugins, one after the other. None where nobody hooks into it.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub(super) async fn hook(
        self: &Arc<Self>,
        name: &str,
        input: Value,
        output: Value,
        context: &ToolContext,
    ) -> Result<Option<HookRun>, Failure> {
        if context.project.settings.scripts.is_empty() || !self.hangs_into(name) {
            return Ok(None);
        }
        let loaded = match self.loaded(context).await? {
            Ok(loaded) => loaded,
            Err(why) => return Ok(Some(HookRun { unknown: Some(why), output, ..HookRun::default() })),
        };
        let Some(files) = loaded.hooks.get(name) else { return Ok(None) };
        let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let limit = HOOK.saturating_mul(count) + GRACE;
        let millis = u64::try_from(HOOK.as_millis()).unwrap_or(u64::MAX);
        let params = json!({ "name": name, "input": input, "output": output, "limit": millis });
        let answer = tokio::select! {
            answer = loaded.host.request("hook", params, limit) => answer,
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        let run = match answer {
            Ok(answer) => {
                self.worked();
                self.ran(name, &answer)
            }
            Err(e) => {
                let title = format!("Plugins failed in {name}: {e}.");
                for file in files {
                    self.counted(file, Duration::ZERO, Some(e.to_string()));
                }
                self.tell(Severity::Warning, title, None);
                HookRun { unknown: Some(e.to_string()), output, ..HookRun::default() }
            }
        };
        self.flush(context).await;
        Ok(Some(run))
    }

    /// What the host says of a hook that ran.
    fn ran(&self, name: &str, answer: &Value) -> HookRun {
        let mut run = HookRun { output: answer.get("output").cloned().unwrap_or_default(), ..HookRun::default() };
        for one in answer.get("ran").and_then(Value::as_array).into_iter().flatten() {
            let file = one.get("file").and_then(Value::as_str).unwrap_or_default();
            let spent = Duration::from_secs_f64(
                one.get("ms").and_then(Value::as_f64).unwrap_or_default().clamp(0.0, 1e9) / 1e3,
            );
            let words = |at: &str| one.pointer(at).and_then(Value::as_str).map(str::to_owned);
            let error = words("/error/message");
            self.counted(file, spent, error.clone());
            if one.get("changed").and_then(Value::as_bool) == Some(true) {
                tracing::info!("the plugin {} has changed {name}", text::title(file));
                run.changed.push(file.to_owned());
            }
            let Some(error) = error else { continue };
            let late = one.get("late").and_then(Value::as_bool) == Some(true);
            if name == "tool.execute.before" && !late {
                run.threw = Some((file.to_owned(), error));
                continue;
            }
            if late && name == "tool.execute.before" {
                run.unknown = Some(format!("the plugin {} {error}", text::title(file)));
            }
            let title = format!("The plugin {} failed in {name}: {}", text::title(file), text::title(&error));
            self.tell(Severity::Warning, title, words("/error/stack"));
        }
        run
    }

    /// Keeps what of the conversation plugins may ask for. Costs nothing where there are none.
    pub fn remember(&self, session: &str, history: &[Message], busy: bool) {
        if self.current().is_some() {
            locked(&self.knowledge.conversation).update(session, history);
            *locked(&self.knowledge.busy) = busy;
        }
    }

    /// What plugins want the model told with this prompt.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.knowledge.notes))
    }

    /// Tells plugins of an event of OpenCode's kind. Nobody waits for them.
    pub async fn event(&self, kind: &str, properties: Value) {
        let listens = *locked(&self.knowledge.listens);
        let Some(loaded) = self.current().filter(|loaded| listens || loaded.hooks.contains_key("event")) else {
            return;
        };
        let params = json!({ "event": { "type": kind, "properties": properties } });
        // A host that reads nothing is found out by who asks it something.
        tokio::time::timeout(GRACE, loaded.host.tell("event", params)).await.ok();
    }

    /// Keeps what the system prompt was made into. Says whether hooks make something else of the same words than
    /// before.
    pub(super) fn wavers(&self, before: &[String], after: &[String]) -> bool {
        /// More prompts than any session has.
        const MOST: usize = 64;
        let mut prompts = locked(&self.prompts);
        if prompts.len() >= MOST {
            prompts.clear();
        }
        let known = prompts.insert(before.to_vec(), after.to_vec());
        known.is_some_and(|known| known != after)
    }

    /// Counts what a file has done.
    pub(super) fn counted(&self, file: &str, spent: Duration, error: Option<String>) {
        let mut tally = locked(&self.tally);
        let one = tally.entry(file.to_owned()).or_default();
        one.calls += 1;
        one.spent += spent;
        one.last_error = error.or(one.last_error.take());
    }

    /// A file changes the system prompt each time although nothing else has changed.
    pub(super) fn wavered(&self, file: &str) {
        locked(&self.tally).entry(file.to_owned()).or_default().wavers = true;
    }

    /// The host has done something well.
    fn worked(&self) {
        *locked(&self.failures) = (0, None);
    }

    /// What hooks and files have done since they were taken last.
    pub fn take_tallies(&self) -> Tallies {
        std::mem::take(&mut *locked(&self.tally))
    }

    /// Something the user should hear, once.
    pub(super) fn tell(&self, severity: Severity, title: String, details: Option<String>) {
        if !locked(&self.told).insert(title.clone()) {
            return;
        }
        let mut news = locked(&self.news);
        if news.len() < NEWS {
            let (title, _) = text::visible(&title);
            let details =
                details.map(|details| text::visible(&details).0).filter(|details| details.trim().contains('\n'));
            news.push(Event::Notice { severity, title, details });
        }
    }

    /// Tells what waits to be told.
    pub async fn flush(&self, context: &ToolContext) {
        let news = std::mem::take(&mut *locked(&self.news));
        for notice in news {
            context.client.outlet.event(notice).await;
        }
    }

    /// What is loaded, for people.
    ///
    /// # Errors
    /// Why nothing is.
    pub async fn report(self: &Arc<Self>, context: &ToolContext) -> Result<ScriptReport, String> {
        let loaded = self.loaded(context).await.map_err(|e| e.to_string())??;
        Ok(ScriptReport {
            runtime: loaded.runtime.clone(),
            tools: loaded.tools.iter().map(|tool| (tool.name.clone(), tool.file.clone())).collect(),
            hooks: loaded.hooks.clone(),
            errors: loaded.errors.clone(),
        })
    }

    pub async fn end(&self) {
        let generation = locked(&self.now).take();
        if let Some(Ok(loaded)) = generation.as_ref().and_then(|generation| generation.cell.get()) {
            loaded.host.end();
            loaded.host.gone().await;
        }
    }
}

impl Teller for Scripts {
    fn tell(&self, severity: Severity, title: String, details: Option<String>) {
        Scripts::tell(self, severity, title, details);
    }

    fn failed(&self, file: &str, why: String) {
        self.counted(file, Duration::ZERO, Some(why));
    }
}

impl Home for Scripts {
    fn host<'a>(
        self: Arc<Self>,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Result<Arc<PluginHost>, String>, Failure>> {
        Box::pin(async move { Ok(self.loaded(context).await?.map(|loaded| loaded.host.clone())) })
    }

    fn called(&self, file: &str, spent: Duration, error: Option<String>) {
        if error.is_none() {
            self.worked();
        }
        self.counted(file, spent, error);
    }
}
