//! Guards that were trusted and do not hold any more: hooks and plugins that could refuse a call, and that have changed
//! since, are gone, or guard nothing now. Until the user has answered, they stand among the hooks as ones that wait, so
//! that every call which they covered is asked about. What they covered is recorded with the user's answer: what the
//! project's files say today may cover less.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, TrustEntry, TrustItem, TrustKind};
use crate::file::HookConfig;
use crate::hook::{self, HookEntry, HookFormat, HookPoint};
use crate::node::{ConfigOrigin, Layer, Node, SourceLocation};
use crate::problem::{Problem, ProblemCode};
use crate::script::{ScriptEntry, ScriptKind};

/// What becomes of the calls that a lost guard covered.
const UNTIL_ANSWERED: &str = "until you answer, every call that it covered is asked about";

/// Hooks of a plugin that can refuse a call.
const REFUSING: [&str; 3] = ["tool.execute.before", "permission.ask", "everything"];

/// A hook or plugin that could refuse calls when the user trusted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedGuard {
    /// The key of its item: `hook.guard`, or the file of a plugin.
    pub key: String,
    /// A file of the project said so.
    pub project: bool,
    /// Only what would be asked about, instead of every call.
    #[serde(default)]
    pub only_questions: bool,
    /// The tools it covered, as wildcards; none: all.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub pattern: Option<String>,
    /// The file where it was written, as it is shown to people.
    pub file: String,
    #[serde(default)]
    pub line: u32,
    #[serde(default)]
    pub column: u32,
}

/// A guard that does not hold any more.
pub(crate) struct LostGuard {
    /// What it covered. `None` if it is the user's own: that stands among the hooks already.
    pub(crate) hook: Option<HookEntry>,
    pub(crate) problem: Problem,
    /// It is still written somewhere, differently.
    pub(crate) is_changed: bool,
}

/// Returns what of the items guards calls. `tree` is what all layers say.
pub(crate) fn guards(items: &[TrustItem], tree: &Node, scripts: &[ScriptEntry]) -> Vec<TrustedGuard> {
    items.iter().filter_map(|item| guard(item, tree, scripts)).collect()
}

/// Finds the guards that the user had trusted and is to be asked about again. `now` are those that there are today,
/// `before` what was answered last.
pub(crate) fn lost(
    items: &[TrustItem],
    digest: &str,
    now: &[TrustedGuard],
    before: Option<&TrustEntry>,
) -> Vec<LostGuard> {
    let Some(before) = before.filter(|entry| entry.decision == Decision::Trusted && entry.digest != digest) else {
        return Vec::new();
    };
    // Answers of an earlier version have no list of guards.
    let recorded = match before.guards.is_empty() {
        true => before.items.iter().filter_map(|line| recorded_in(line)).collect(),
        false => before.guards.clone(),
    };
    recorded.iter().filter_map(|guard| loss(guard, items, now)).collect()
}

/// Describes what became of a guard. `None` if it was the user's own and is not the project's to change.
fn loss(guard: &TrustedGuard, items: &[TrustItem], now: &[TrustedGuard]) -> Option<LostGuard> {
    let item = items.iter().find(|item| {
        let can_guard = matches!(item.kind, TrustKind::Hook | TrustKind::Extension);
        can_guard && item.key == guard.key && item.place.origin.project == guard.project
    });
    let place = match item {
        Some(item) => item.place.clone(),
        None if guard.project => guard.place(),
        None => return None,
    };
    let text = match item {
        Some(_) if now.iter().any(|now| now.key == guard.key) => {
            "this guard does not hold, because something of this project has changed since you trusted it"
        }
        Some(_) => "this guard, which you trusted, can refuse no call any more",
        None => "this guard, which you trusted, is gone or switched off",
    };
    let text = format!("{text}; {UNTIL_ANSWERED}");
    let problem = Problem::warning(ProblemCode::LostGuard, &place, guard.key.as_str(), text)
        .hint("`adjutant trust` shows what waits for your answer");
    let why = if item.is_some() { hook::UNTRUSTED } else { hook::GONE };
    let hook = guard.project.then(|| guard.waiting(&place, why));
    Some(LostGuard { hook, problem, is_changed: item.is_some() })
}

impl TrustedGuard {
    /// Where it was written when it was trusted.
    fn place(&self) -> SourceLocation {
        let origin = ConfigOrigin { name: self.file.clone(), path: None, layer: Layer::Project, project: self.project };
        SourceLocation { origin: origin.into(), line: self.line, column: self.column }
    }

    /// Returns it as a hook that covers the same calls and does not run.
    fn waiting(&self, place: &SourceLocation, why: &'static str) -> HookEntry {
        HookEntry {
            name: self.key.strip_prefix("hook.").unwrap_or(&self.key).to_owned(),
            on: if self.only_questions { HookPoint::Permission } else { HookPoint::ToolBefore },
            tools: self.tools.clone(),
            pattern: self.pattern.clone(),
            command: vec![self.file.clone()],
            limit: Duration::ZERO,
            environment: Vec::new(),
            format: HookFormat::default(),
            withheld: Some(why),
            project: self.project,
            source: place.short(),
        }
    }
}

/// Returns what an item guards. `None` if it cannot refuse a call.
fn guard(item: &TrustItem, tree: &Node, scripts: &[ScriptEntry]) -> Option<TrustedGuard> {
    let covers_all = TrustedGuard {
        key: item.key.clone(),
        project: item.place.origin.project,
        only_questions: false,
        tools: Vec::new(),
        pattern: None,
        file: item.place.origin.name.clone(),
        line: item.place.line,
        column: item.place.column,
    };
    match item.kind {
        TrustKind::Hook => {
            let name = item.key.strip_prefix("hook.")?;
            let written: HookConfig = crate::decode::decode(tree.at(&["hook", name])?).ok()?;
            let hook = hook::entry(name.to_owned(), written, covers_all.project, item.place.short()).ok()??;
            let can_refuse = matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission);
            let only_questions = hook.on == HookPoint::Permission;
            can_refuse.then_some(TrustedGuard {
                only_questions,
                tools: hook.tools,
                pattern: hook.pattern,
                ..covers_all
            })
        }
        TrustKind::Extension => {
            let is_plugin = |script: &ScriptEntry| script.name == item.key && script.kind == ScriptKind::Plugin;
            let can_refuse = REFUSING.iter().any(|hook| item.detail.contains(hook));
            (can_refuse && scripts.iter().any(is_plugin)).then_some(covers_all)
        }
        _ => None,
    }
}

/// Reads a guard from the line that describes it in an answer. It covers every call: its tools cannot be told from its
/// pattern there.
fn recorded_in(line: &str) -> Option<TrustedGuard> {
    let line = line.split("; not covered: ").next()?;
    let (line, place) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (kind, rest) = [TrustKind::Hook, TrustKind::Extension]
        .into_iter()
        .find_map(|kind| Some((kind, line.strip_prefix(kind.as_str())?.strip_prefix(' ')?)))?;
    let (key, only_questions) = match kind {
        TrustKind::Hook => {
            let before = rest.split_once(": on tool.before").map(|(key, _)| (key, false));
            before.or_else(|| rest.split_once(": on permission").map(|(key, _)| (key, true)))?
        }
        _ => {
            let (key, detail) = rest.split_once(": is loaded, and ")?;
            REFUSING.iter().any(|hook| detail.contains(hook)).then_some((key, false))?
        }
    };
    let (file, line) = match place.rsplit_once(':') {
        Some((file, line)) if line.parse::<u32>().is_ok() => (file, line.parse().unwrap_or_default()),
        _ => (place, 0),
    };
    Some(TrustedGuard {
        key: key.to_owned(),
        project: !place.starts_with(['~', '/']),
        only_questions,
        tools: Vec::new(),
        pattern: None,
        file: file.to_owned(),
        line,
        column: u32::from(line > 0),
    })
}
