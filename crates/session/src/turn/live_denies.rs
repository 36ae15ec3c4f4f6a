//! Deny rules that are written while a turn runs. Settings apply from the next prompt on, but the
//! user's denies apply from the next call on, and to a call whose permission question is open.
//!
//! Files that become invalid in the meantime lift no rule: the denies of their last valid version
//! remain, and those that can be read from the invalid version are added.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::TurnContext;
use base::environment::Environment;
use base::lock::locked;
use base::worktree::Worktree;
use config::{self, ConfigFingerprint, Problem};
use permission::rule::BUILT_IN;
use permission::{AccessRequest, Action, Denial, Rules, evaluate};
use project::agent::{Agent, Agents};
use tools::{Failure, denial_message};

/// The interval of checks for changed files while no question is open.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

struct SettingsSource {
    environment: Environment,
    worktree: Arc<Worktree>,
    cwd: PathBuf,
}

/// The settings files as they were read for a turn, and their changes since.
#[derive(Debug)]
pub struct DenyWatcher {
    known: Arc<[Problem]>,
    later: Mutex<LaterSettings>,
}

#[derive(Debug)]
struct LaterSettings {
    checked: Instant,
    fingerprint: Arc<ConfigFingerprint>,
    /// The agents whose denies apply in addition to those of the turn's beginning.
    forbidding: Vec<Arc<Agents>>,
}

/// The number of different versions of invalid files that are stored separately.
const MAX_READINGS: usize = 16;

/// Adds the agents of an invalid version to those whose denies apply.
pub fn forbid(forbidding: &mut Vec<Arc<Agents>>, partial: Arc<Agents>) {
    if forbidding.contains(&partial) {
        return;
    }
    if forbidding.len() < MAX_READINGS {
        forbidding.push(partial);
    } else if let Some(last) = forbidding.last_mut() {
        *last = Arc::new(last.with_denies_of(&partial, |_| true));
    }
}

impl DenyWatcher {
    /// Records the files as they were read. `known` are their problems, `forbidding` the
    /// readable agents of invalid files whose earlier version is in force.
    pub fn new(
        fingerprint: Arc<ConfigFingerprint>,
        known: Arc<[Problem]>,
        forbidding: Vec<Arc<Agents>>,
    ) -> Self {
        Self {
            known,
            later: Mutex::new(LaterSettings {
                checked: Instant::now(),
                fingerprint,
                forbidding,
            }),
        }
    }

    /// Returns the agents whose denies apply in addition to those of the turn's beginning.
    pub fn forbidding(&self) -> Vec<Arc<Agents>> {
        locked(&self.later).forbidding.clone()
    }

    /// Returns whether a file has changed since it was read. Costs one query of each file's
    /// metadata.
    pub fn is_stale(&self) -> bool {
        let fingerprint = locked(&self.later).fingerprint.clone();
        fingerprint.is_stale()
    }

    fn is_due(&self) -> bool {
        let mut later = locked(&self.later);
        let due = later.checked.elapsed() >= CHECK_INTERVAL;
        if due {
            later.checked = Instant::now();
        }
        due
    }

    /// Returns the agents whose denies apply now. Reads the files if one has changed.
    fn look(&self, source: &SettingsSource) -> Vec<Arc<Agents>> {
        let (fingerprint, mut forbidding) = {
            let later = locked(&self.later);
            (later.fingerprint.clone(), later.forbidding.clone())
        };
        if !fingerprint.is_stale() {
            return forbidding;
        }
        let loaded = config::load(&source.environment, &source.worktree, &source.cwd);
        let agents =
            Arc::new(Agents::build(&loaded.settings, &source.environment, &source.worktree).0);
        if loaded.errors_since(&self.known).next().is_some() {
            forbid(&mut forbidding, agents);
        } else {
            forbidding = vec![agents];
        }
        let mut later = locked(&self.later);
        later.fingerprint = Arc::new(loaded.fingerprint);
        later.forbidding = forbidding.clone();
        forbidding
    }
}

/// Refuses an access that the settings deny by now. With `at_once`, checks the files even if the
/// interval has not passed.
pub(super) async fn forbidden(
    turn: &TurnContext,
    agent: &Agent,
    request: &AccessRequest,
    at_once: bool,
) -> Result<(), Failure> {
    let read = turn.project.read.clone();
    let forbidding = if at_once || read.is_due() {
        let source = SettingsSource {
            environment: turn.session.environment.clone(),
            worktree: turn.project.context.worktree.clone(),
            cwd: turn.project.context.cwd.clone(),
        };
        base::task::spawn_blocking(move || read.look(&source))
            .await
            .unwrap_or_default()
    } else {
        read.forbidding()
    };
    for agents in forbidding {
        let Some(now) = agents.get(&agent.name) else {
            continue;
        };
        let verdict = evaluate(&now.rules, &Rules::default(), request);
        // The unreadable part of an invalid file might lift a built-in rule.
        let by_user = verdict
            .rule
            .as_ref()
            .is_none_or(|rule| rule.source != BUILT_IN);
        if verdict.action == Action::Deny && by_user {
            return Err(Failure::Denied(Denial::Rule(denial_message::explain(
                &verdict, request, &now.rules,
            ))));
        }
    }
    Ok(())
}
