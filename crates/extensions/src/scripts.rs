//! The custom tools and plugins of one session: their host is started when they are first wanted, started again
//! when it has broken off, and rests when that happens too often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client::{Ears, Knowledge, PluginPrompt, Teller};
use super::host::{PluginHost, ScriptOrigin};
use super::load::{self, LoadPurpose, LoadedScripts};
use super::subagents::{SessionDoor, Subagents, TurnLoan};
use super::tally::Tallies;
use super::tool::{CustomTool, Home};
use base::lock::locked;
use base::text;
use config::Settings;
use config::contribution::Contribution;
use config::script::ScriptEntry;
use events::{Event, Severity};
use permission::Rules;
use tools::registry::find_properties;
use tools::{AnyTool, BoxFuture, Failure, ToolContext};
use transcript::Message;

/// How long a plugin may take for one hook.
const HOOK: Duration = Duration::from_secs(5);
/// How long the handlers of a turn's end are waited for, whose words it may go on with.
const SETTLED: Duration = Duration::from_millis(100);
/// How much longer the host may take than what runs in it.
const GRACE: Duration = Duration::from_secs(2);
/// After how many breakdowns in a row it rests, and for how long.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(5 * 60);
/// Why there is no host for what is not there any more.
const GONE: &str = "they are gone from the settings";
/// The most notices that wait to be told.
const NEWS: usize = 20;

/// The scripts of one session and of its subagents.
#[derive(Debug, Default)]
pub struct Scripts {
    /// The user's own, and the project's.
    sides: [Side; 2],
    // Leaf locks: around lists and maps.
    news: Mutex<Vec<Event>>,
    told: Mutex<BTreeSet<String>>,
    tally: Mutex<Tallies>,
    /// The system prompt as hooks have made it of the same words before.
    prompts: Mutex<BTreeMap<Vec<String>, Vec<String>>>,
    /// Plugins are loaded, and none of their functions is called.
    compiles: bool,
    /// What plugins may ask for.
    knowledge: Arc<Knowledge>,
}

/// The scripts of one origin.
#[derive(Debug, Default)]
struct Side {
    // Leaf locks: around a pointer, and a count.
    now: Mutex<Option<Arc<Generation>>>,
    /// Breakdowns since the last success, and when the last one was.
    failures: Mutex<(u32, Option<Instant>)>,
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
    /// One of those came with the project.
    pub(super) by_project: bool,
}

impl HookRun {
    /// This, and then what those of the next host made of it.
    fn then(self, next: Self) -> Self {
        Self {
            output: next.output,
            threw: self.threw.or(next.threw),
            unknown: self.unknown.or(next.unknown),
            changed: self.changed.into_iter().chain(next.changed).collect(),
            by_project: self.by_project || next.by_project,
        }
    }
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
        let there = ScriptOrigin::ALL.into_iter().filter(|origin| {
            let scripts = &context.project.settings.scripts;
            scripts.iter().any(|script| origin.covers(script)) || locked(&self.side(*origin).now).is_some()
        });
        let all = join_all(there.map(|origin| self.loaded(origin, context))).await;
        if all.is_empty() {
            return Ok(());
        }
        for loaded in all {
            if let Err(Some(why)) = loaded?.map_err(|why| Some(why).filter(|why| *why != GONE)) {
                let title = format!("Custom tools and plugins are not loaded: {}.", why.trim_end_matches('.'));
                self.tell(Severity::Warning, title, None);
            }
        }
        self.flush(context).await;
        Ok(())
    }

    fn side(&self, origin: ScriptOrigin) -> &Side {
        let [own, project] = &self.sides;
        if origin == ScriptOrigin::Own { own } else { project }
    }

    /// What is loaded of one origin, as far as it is there already.
    fn loaded_of(&self, origin: ScriptOrigin) -> Option<Arc<LoadedScripts>> {
        let generation = locked(&self.side(origin).now).clone()?;
        generation.cell.get()?.as_ref().ok().cloned()
    }

    /// What is loaded, as far as it is there already.
    fn current(&self) -> impl Iterator<Item = Arc<LoadedScripts>> + '_ {
        ScriptOrigin::ALL.into_iter().filter_map(|origin| self.loaded_of(origin))
    }

    /// The host for the files as they are now.
    fn generation(&self, origin: ScriptOrigin, settings: &Settings) -> Result<Option<Arc<Generation>>, String> {
        let side = self.side(origin);
        let wanted = || settings.scripts.iter().filter(|script| origin.covers(script));
        let mut now = locked(&side.now);
        if wanted().next().is_none() {
            *now = None;
            return Ok(None);
        }
        if let Some(generation) = now.as_ref().filter(|now| now.scripts.iter().eq(wanted())) {
            match generation.cell.get() {
                Some(Ok(loaded)) if loaded.host.is_gone() => {
                    let mut failures = locked(&side.failures);
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
        let fresh = Arc::new(Generation { scripts: wanted().cloned().collect(), cell: OnceCell::new() });
        *now = Some(fresh.clone());
        Ok(Some(fresh))
    }

    /// What is loaded of one origin; it is loaded where it is not. Errors of a kind that stay are given as words.
    async fn loaded(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        context: &ToolContext,
    ) -> Result<Result<Arc<LoadedScripts>, String>, Failure> {
        let generation = match self.generation(origin, &context.project.settings) {
            Ok(Some(generation)) => generation,
            Ok(None) => return Ok(Err(GONE.into())),
            Err(why) => return Ok(Err(why)),
        };
        let load = async {
            match self.load(origin, &generation.scripts, context).await {
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

    async fn load(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        scripts: &[ScriptEntry],
        context: &ToolContext,
    ) -> Result<LoadedScripts, Failure> {
        let teller: Weak<dyn Teller> = Arc::<Self>::downgrade(self);
        let home: Weak<dyn Home> = Arc::<Self>::downgrade(self);
        let ears = Ears {
            teller,
            knowledge: self.knowledge.clone(),
            session: context.session.id.to_string(),
            directory: context.project.cwd.clone(),
            worktree: context.project.worktree.root.clone(),
            settings: context.project.settings.clone(),
            environment: context.project.environment.clone(),
            todos: context.session.todos.clone(),
            own: origin == ScriptOrigin::Own,
            subagents: Subagents::default(),
        };
        let purpose = if self.compiles { LoadPurpose::Check } else { LoadPurpose::Session };
        let mut loaded = load::load((scripts, origin), purpose, Arc::new(ears), (&**self, &home), context).await?;
        loaded.tools = self.named(loaded.tools, &context.project.settings);
        Ok(loaded)
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

    /// The tools that are loaded, as far as these rules do not hide them. Of two of a name the project's counts.
    pub fn tools(&self, rules: &Rules) -> Vec<Arc<dyn AnyTool>> {
        let mut all: Vec<CustomTool> = Vec::new();
        for loaded in self.current() {
            all.retain(|tool| loaded.tools.iter().all(|later| later.name != tool.name));
            all.extend(loaded.tools.iter().cloned());
        }
        let shown = all.into_iter().filter(|tool| !rules.hides(tool.permission()));
        shown.map(|tool| Arc::new(tool) as Arc<dyn AnyTool>).collect()
    }

    /// What the plugins that are loaded add to the settings.
    pub fn added(&self) -> Vec<Contribution> {
        self.current().flat_map(|loaded| loaded.added.clone()).collect()
    }

    /// Whether any plugin hooks into this. Nothing is started for the answer.
    pub fn hangs_into(&self, name: &str) -> bool {
        self.current().any(|loaded| loaded.hooks.contains_key(name))
    }

    /// Runs a hook of all plugins, one after the other, the user's own first. None where nobody hooks into it.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
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
            let hangs = self.loaded_of(origin).is_some_and(|loaded| loaded.hooks.contains_key(name));
            if !hangs || !scripts.iter().any(|script| origin.covers(script)) {
                continue;
            }
            let before =
                all.as_mut().map_or_else(|| std::mem::take(&mut output), |run| std::mem::take(&mut run.output));
            let run = self.hook_of(origin, (name, &input), before, context).await?;
            let ends = run.threw.is_some();
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

    /// The same for those of one origin.
    async fn hook_of(
        self: &Arc<Self>,
        origin: ScriptOrigin,
        (name, input): (&str, &Value),
        output: Value,
        context: &ToolContext,
    ) -> Result<HookRun, Failure> {
        let loaded = match self.loaded(origin, context).await? {
            Ok(loaded) => loaded,
            Err(why) => return Ok(HookRun { unknown: Some(why), output, ..HookRun::default() }),
        };
        let Some(files) = loaded.hooks.get(name) else { return Ok(HookRun { output, ..HookRun::default() }) };
        let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
        let limit = HOOK.saturating_mul(count) + GRACE;
        let millis = u64::try_from(HOOK.as_millis()).unwrap_or(u64::MAX);
        let params = json!({ "name": name, "input": input, "output": output, "limit": millis });
        let answer = tokio::select! {
            answer = loaded.host.request("hook", params, limit) => answer,
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        Ok(match answer {
            Ok(answer) => {
                self.worked(origin);
                self.ran(name, &answer, origin)
            }
            Err(e) => {
                let title = format!("Plugins failed in {name}: {e}.");
                for file in files {
                    self.counted(file, Duration::ZERO, Some(e.to_string()));
                }
                self.tell(Severity::Warning, title, None);
                HookRun { unknown: Some(e.to_string()), output, ..HookRun::default() }
            }
        })
    }

    /// What the host says of a hook that ran.
    fn ran(&self, name: &str, answer: &Value, origin: ScriptOrigin) -> HookRun {
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
                run.by_project |= origin == ScriptOrigin::Project;
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
        if self.current().next().is_some() {
            locked(&self.knowledge.conversation).update(session, history);
            *locked(&self.knowledge.busy) = busy;
        }
    }

    /// What a running turn lends to plugins; none takes it back. Costs nothing where there are none.
    pub fn lend(&self, turn: impl FnOnce() -> Option<TurnLoan>) {
        if self.current().next().is_some() {
            self.knowledge.loans.lend(turn());
        }
    }

    /// Lets plugins ask for what the session does. Once.
    pub fn opens(&self, door: Box<dyn SessionDoor>) {
        // A second one would be the same.
        self.knowledge.loans.door.set(door).ok();
    }

    /// What plugins want the model told with this prompt of the user's.
    pub fn take_notes(&self) -> Vec<String> {
        self.knowledge.loans.renew();
        std::mem::take(&mut *locked(&self.knowledge.notes))
    }

    /// What plugins want the model to go on with.
    pub fn take_prompts(&self) -> Vec<PluginPrompt> {
        std::mem::take(&mut *locked(&self.knowledge.prompts))
    }

    /// Whether plugins want the model to go on with something, once they have heard of the turn's end. Handlers that
    /// take longer are not waited for.
    pub async fn wants_more(&self) -> bool {
        let limit = u64::try_from(SETTLED.as_millis()).unwrap_or(u64::MAX);
        for loaded in self.current().filter(|loaded| self.hears(loaded)) {
            loaded.host.settled(json!({ "limit": limit }), GRACE).await;
        }
        !locked(&self.knowledge.prompts).is_empty()
    }

    fn hears(&self, loaded: &LoadedScripts) -> bool {
        *locked(&self.knowledge.listens) || loaded.hooks.contains_key("event")
    }

    /// Tells plugins of an event of OpenCode's kind. Nobody waits for them.
    pub async fn event(&self, kind: &str, properties: Value) {
        for loaded in self.current().filter(|loaded| self.hears(loaded)) {
            let params = json!({ "event": { "type": kind, "properties": properties } });
            // A host that reads nothing is found out by who asks it something.
            tokio::time::timeout(GRACE, loaded.host.tell("event", params)).await.ok();
        }
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

    /// A host has done something well.
    fn worked(&self, origin: ScriptOrigin) {
        *locked(&self.side(origin).failures) = (0, None);
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
        let scripts = &context.project.settings.scripts;
        let mut report = ScriptReport::default();
        let (mut any, mut whys) = (false, Vec::new());
        for origin in ScriptOrigin::ALL.into_iter().filter(|origin| scripts.iter().any(|script| origin.covers(script)))
        {
            let loaded = match self.loaded(origin, context).await.map_err(|e| e.to_string())? {
                Ok(loaded) => loaded,
                Err(why) => {
                    let own = scripts.iter().filter(|script| origin.covers(script));
                    report.errors.extend(own.map(|script| (script.name.clone(), why.clone(), String::new())));
                    whys.push(why);
                    continue;
                }
            };
            any = true;
            report.runtime.clone_from(&loaded.runtime);
            report.tools.extend(loaded.tools.iter().map(|tool| (tool.name.clone(), tool.file.clone())));
            for (name, files) in &loaded.hooks {
                report.hooks.entry(name.clone()).or_default().extend(files.iter().cloned());
            }
            report.errors.extend(loaded.errors.iter().cloned());
        }
        match whys.pop() {
            Some(why) if !any => Err(why),
            _ => Ok(report),
        }
    }

    /// Ends the hosts.
    pub async fn end(&self) {
        for side in &self.sides {
            let generation = locked(&side.now).take();
            if let Some(Ok(loaded)) = generation.as_ref().and_then(|generation| generation.cell.get()) {
                loaded.host.end();
                loaded.host.gone().await;
            }
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

    fn happened(self: Arc<Self>, kind: &'static str, properties: Value) {
        base::task::spawn(async move { self.event(kind, properties).await });
    }
}

impl Home for Scripts {
    fn host<'a>(
        self: Arc<Self>,
        origin: ScriptOrigin,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Result<Arc<PluginHost>, String>, Failure>> {
        Box::pin(async move { Ok(self.loaded(origin, context).await?.map(|loaded| loaded.host.clone())) })
    }

    fn called(&self, (origin, file): (ScriptOrigin, &str), spent: Duration, error: Option<String>) {
        if error.is_none() {
            self.worked(origin);
        }
        self.counted(file, spent, error);
    }

    fn has_subagent_at_work(&self) -> bool {
        self.knowledge.loans.is_working()
    }
}
