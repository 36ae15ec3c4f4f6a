//! What the settings forbid by now, though the turn began before. Settings hold from the next prompt on; what the user
//! denies holds from the next call on, and for the call that a question was open about.
//!
//! Files that break meanwhile lift nothing: what they denied when they were last whole stays denied, and so does what
//! can be read of them now.

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
use permission::{Action, Denial, Need, Rules, evaluate};
use project::agent::{Agent, Agents};
use tools::{Failure, refusal};

/// How often the files are looked at while no question is open.
const EVERY: Duration = Duration::from_secs(1);

struct SettingsSource {
    environment: Environment,
    worktree: Arc<Worktree>,
    cwd: PathBuf,
}

/// The files of the settings as they were read for a turn, and what they say since.
#[derive(Debug)]
pub struct SettingsRead {
    known: Arc<[Problem]>,
    later: Mutex<Later>,
}

#[derive(Debug)]
struct Later {
    looked: Instant,
    fingerprint: Arc<ConfigFingerprint>,
    /// The agents whose denies hold besides those that the turn began with.
    forbidding: Vec<Arc<Agents>>,
}

/// How many readings of broken files are told apart.
const MAX_READINGS: usize = 16;

/// Adds what could be read of broken files to what forbids already.
pub fn forbid(forbidding: &mut Vec<Arc<Agents>>, partial: Arc<Agents>) {
    if forbidding.contains(&partial) {
        return;
    }
    if forbidding.len() < MAX_READINGS {
        forbidding.push(partial);
    } else if let Some(last) = forbidding.last_mut() {
        *last = Arc::new(last.denying_as(&partial, |_| true));
    }
}

impl SettingsRead {
    /// As they looked when they were read. `known` is what was wrong with them, `forbidding` what could be read of files
    /// that are broken and in whose place the earlier settings are kept.
    pub fn new(fingerprint: Arc<ConfigFingerprint>, known: Arc<[Problem]>, forbidding: Vec<Arc<Agents>>) -> Self {
        Self { known, later: Mutex::new(Later { looked: Instant::now(), fingerprint, forbidding }) }
    }

    /// The agents whose denies hold besides those that the turn began with.
    pub fn forbidding(&self) -> Vec<Arc<Agents>> {
        locked(&self.later).forbidding.clone()
    }

    fn is_due(&self) -> bool {
        let mut later = locked(&self.later);
        let due = later.looked.elapsed() >= EVERY;
        if due {
            later.looked = Instant::now();
        }
        due
    }

    /// Returns whose denies hold by now. Reads files if one has changed.
    fn look(&self, place: &SettingsSource) -> Vec<Arc<Agents>> {
        let (fingerprint, mut forbidding) = {
            let later = locked(&self.later);
            (later.fingerprint.clone(), later.forbidding.clone())
        };
        if !fingerprint.is_stale() {
            return forbidding;
        }
        let loaded = config::load(&place.environment, &place.worktree, &place.cwd);
        let agents = Arc::new(Agents::build(&loaded.settings, &place.environment, &place.worktree).0);
        if loaded.errors_since(&self.known).next().is_some() {
            forbid(&mut forbidding, agents);
        } else {
            forbidding = vec![agents];
        }
        let mut later = locked(&self.later);
        (later.fingerprint, later.forbidding) = (Arc::new(loaded.fingerprint), forbidding.clone());
        forbidding
    }
}

/// Refuses what the settings deny by now. `at_once`: looks at the files whenever that was last done.
pub(super) async fn forbidden(scope: &TurnContext, agent: &Agent, need: &Need, at_once: bool) -> Result<(), Failure> {
    let read = scope.project.read.clone();
    let forbidding = if at_once || read.is_due() {
        let (worktree, cwd) = (scope.project.worktree.clone(), scope.project.cwd.clone());
        let place = SettingsSource { environment: scope.environment.clone(), worktree, cwd };
        base::task::spawn_blocking(move || read.look(&place)).await.unwrap_or_default()
    } else {
        read.forbidding()
    };
    for agents in forbidding {
        let Some(now) = agents.get(&agent.name) else { continue };
        let verdict = evaluate(&now.rules, &Rules::default(), need);
        // What the file that is broken would lift of the program's own rules is not known.
        let by_user = verdict.rule.as_ref().is_none_or(|rule| rule.source != BUILT_IN);
        if verdict.action == Action::Deny && by_user {
            return Err(Failure::Denied(Denial::Rule(refusal::words(&verdict, need, &now.rules))));
        }
    }
    Ok(())
}
