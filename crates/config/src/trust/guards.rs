//! Trusted guards that are no longer in force: hooks and plugins that could refuse a call and have
//! changed, disappeared, or lost their effect since. Until the user answers, they are listed as
//! withheld hooks, so that every call that they covered is asked about. Their coverage is recorded
//! with the user's answer, because the project's present files may cover less.

use std::time::Duration;

use super::{Decision, TrustEntry, TrustItem, TrustKind, TrustedGuard};
use crate::file::HookConfig;
use crate::hook::{self, HookEntry, HookFormat, HookPoint};
use crate::node::{ConfigOrigin, Layer, Node, SourceLocation};
use crate::problem::{Problem, ProblemCode};
use crate::script::{ScriptEntry, ScriptKind};

/// The consequence for the calls that a lost guard covered.
const UNTIL_ANSWERED: &str = "until you answer, every call that it covered is asked about";

/// Hooks of a plugin that can refuse a call.
const REFUSING: [&str; 3] = ["tool.execute.before", "permission.ask", "everything"];

/// A guard that is no longer in force.
pub(crate) struct LostGuard {
    /// A withheld hook with the same coverage. `None` for the user's own guard, which is among the
    /// hooks already.
    pub(crate) hook: Option<HookEntry>,
    pub(crate) problem: Problem,
    /// True if it still exists in a changed form.
    pub(crate) is_changed: bool,
}

/// Returns the items that guard calls. `tree` is the joined settings of all layers.
pub(crate) fn guards(
    items: &[TrustItem],
    tree: &Node,
    scripts: &[ScriptEntry],
) -> Vec<TrustedGuard> {
    items
        .iter()
        .filter_map(|item| guard(item, tree, scripts))
        .collect()
}

/// Finds the trusted guards that need a new answer. `now` are the present guards, `before` is the
/// last answer.
pub(crate) fn lost(
    items: &[TrustItem],
    digest: &str,
    now: &[TrustedGuard],
    before: Option<&TrustEntry>,
) -> Vec<LostGuard> {
    let Some(before) =
        before.filter(|entry| entry.decision == Decision::Trusted && entry.digest != digest)
    else {
        return Vec::new();
    };
    // Answers of an earlier version have no list of guards.
    let recorded: Vec<TrustedGuard> = if before.guards.is_empty() {
        before
            .items
            .iter()
            .filter_map(|line| recorded_in(line))
            .collect()
    } else {
        before.guards.clone()
    };
    recorded
        .iter()
        .filter_map(|guard| loss(guard, items, now))
        .collect()
}

/// Describes the loss of a guard. `None` for the user's own guard if it is gone: a project did not
/// remove it.
fn loss(guard: &TrustedGuard, items: &[TrustItem], now: &[TrustedGuard]) -> Option<LostGuard> {
    let item = items.iter().find(|item| {
        let can_guard = matches!(item.kind, TrustKind::Hook | TrustKind::Extension);
        can_guard && item.key == guard.key && item.location.origin.project == guard.project
    });
    let location = match item {
        Some(item) => item.location.clone(),
        None if guard.project => guard.location(),
        None => return None,
    };
    let text = match item {
        Some(_) if now.iter().any(|now| now.key == guard.key) => {
            "this guard does not hold, because something of this project has changed since you trusted it"
        }
        Some(_) => "this guard, which you trusted, can no longer refuse a call",
        None => "this guard, which you trusted, is gone or switched off",
    };
    let text = format!("{text}; {UNTIL_ANSWERED}");
    let problem = Problem::warning(ProblemCode::LostGuard, &location, guard.key.as_str(), text)
        .hint("`adjutant trust` shows what waits for your answer");
    let why = if item.is_some() {
        hook::UNTRUSTED_PROJECT
    } else {
        hook::MISSING_GUARD
    };
    let hook = guard.project.then(|| guard.waiting(&location, why));
    Some(LostGuard {
        hook,
        problem,
        is_changed: item.is_some(),
    })
}

impl TrustedGuard {
    /// Returns the location where it was written when it was trusted.
    fn location(&self) -> SourceLocation {
        let origin = ConfigOrigin {
            name: self.file.clone(),
            path: None,
            layer: Layer::Project,
            project: self.project,
        };
        SourceLocation {
            origin: origin.into(),
            line: self.line,
            column: self.column,
        }
    }

    /// Returns a withheld hook that covers the same calls.
    fn waiting(&self, location: &SourceLocation, why: &'static str) -> HookEntry {
        HookEntry {
            name: self
                .key
                .strip_prefix("hook.")
                .unwrap_or(&self.key)
                .to_owned(),
            on: if self.only_questions {
                HookPoint::Permission
            } else {
                HookPoint::ToolBefore
            },
            tools: self.tools.clone(),
            pattern: self.pattern.clone(),
            command: vec![self.file.clone()],
            limit: Duration::ZERO,
            environment: Vec::new(),
            format: HookFormat::default(),
            withheld: Some(why),
            project: self.project,
            source: location.short(),
        }
    }
}

/// Returns the guard that an item is. `None` if the item cannot refuse a call.
fn guard(item: &TrustItem, tree: &Node, scripts: &[ScriptEntry]) -> Option<TrustedGuard> {
    let covers_all = TrustedGuard {
        key: item.key.clone(),
        project: item.location.origin.project,
        only_questions: false,
        tools: Vec::new(),
        pattern: None,
        file: item.location.origin.name.clone(),
        line: item.location.line,
        column: item.location.column,
    };
    match item.kind {
        TrustKind::Hook => {
            let name = item.key.strip_prefix("hook.")?;
            let written: HookConfig = crate::decode::decode(tree.at(&["hook", name])?).ok()?;
            let hook = hook::entry(
                name.to_owned(),
                written,
                covers_all.project,
                item.location.short(),
            )
            .ok()??;
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
            let names_guard = REFUSING.iter().any(|hook| item.detail.contains(hook));
            // The detail has only hooks that the plugin's own file mentions.
            let can_refuse = |script: &ScriptEntry| {
                script.name == item.key
                    && script.kind == ScriptKind::Plugin
                    && (names_guard || !script.guards().is_empty())
            };
            scripts.iter().any(can_refuse).then_some(covers_all)
        }
        _ => None,
    }
}

/// Reads a guard from its line in an answer. The result covers every call, because the line does
/// not distinguish tools from patterns.
fn recorded_in(line: &str) -> Option<TrustedGuard> {
    let line = line.split("; not covered: ").next()?;
    let (line, location) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (kind, rest) = [TrustKind::Hook, TrustKind::Extension]
        .into_iter()
        .find_map(|kind| Some((kind, line.strip_prefix(kind.as_str())?.strip_prefix(' ')?)))?;
    let (key, only_questions) = match kind {
        TrustKind::Hook => {
            let before = rest
                .split_once(": on tool.before")
                .map(|(key, _)| (key, false));
            before.or_else(|| {
                rest.split_once(": on permission")
                    .map(|(key, _)| (key, true))
            })?
        }
        _ => {
            let (key, detail) = rest.split_once(": is loaded, and ")?;
            REFUSING
                .iter()
                .any(|hook| detail.contains(hook))
                .then_some((key, false))?
        }
    };
    let (file, line) = match location.rsplit_once(':') {
        Some((file, line)) if line.parse::<u32>().is_ok() => {
            (file, line.parse().unwrap_or_default())
        }
        _ => (location, 0),
    };
    Some(TrustedGuard {
        key: key.to_owned(),
        project: !location.starts_with(['~', '/']),
        only_questions,
        tools: Vec::new(),
        pattern: None,
        file: file.to_owned(),
        line,
        column: u32::from(line > 0),
    })
}
