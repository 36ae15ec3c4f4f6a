//! What the settings forbid by now, though the turn began before. Settings hold from the next prompt on; what the user
//! denies holds from the next call on, and for the call that a question was open about.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::TurnContext;
use crate::agent::{Agent, Agents};
use crate::config::{self, ConfigFingerprint};
use crate::environment::Environment;
use crate::lock::locked;
use crate::permission::{Action, Denial, Need, Rules, evaluate};
use crate::tool::{Failure, refusal};
use crate::worktree::Worktree;

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
    later: Mutex<Later>,
}

#[derive(Debug)]
struct Later {
    looked: Instant,
    fingerprint: Arc<ConfigFingerprint>,
    /// Who there is by now; none as long as nothing has changed.
    agents: Option<Arc<Agents>>,
}

impl SettingsRead {
    /// As they looked when they were read.
    pub fn new(fingerprint: Arc<ConfigFingerprint>) -> Self {
        Self { later: Mutex::new(Later { looked: Instant::now(), fingerprint, agents: None }) }
    }

    fn is_due(&self) -> bool {
        let mut later = locked(&self.later);
        let due = later.looked.elapsed() >= EVERY;
        if due {
            later.looked = Instant::now();
        }
        due
    }

    /// Who there is, where a file has changed. Reads files.
    fn look(&self, place: &SettingsSource) -> Option<Arc<Agents>> {
        let (fingerprint, agents) = {
            let later = locked(&self.later);
            (later.fingerprint.clone(), later.agents.clone())
        };
        if !fingerprint.is_stale() {
            return agents;
        }
        let loaded = config::load(&place.environment, &place.worktree, &place.cwd);
        let agents = Some(Arc::new(Agents::build(&loaded.settings, &place.environment, &place.worktree).0));
        let mut later = locked(&self.later);
        (later.fingerprint, later.agents) = (Arc::new(loaded.fingerprint), agents.clone());
        agents
    }
}

/// Refuses what the settings deny by now. `at_once`: looks at the files whenever that was last done.
pub(super) async fn forbidden(scope: &TurnContext, agent: &Agent, need: &Need, at_once: bool) -> Result<(), Failure> {
    let read = scope.project.read.clone();
    let agents = if at_once || read.is_due() {
        let (worktree, cwd) = (scope.project.worktree.clone(), scope.project.cwd.clone());
        let place = SettingsSource { environment: scope.environment.clone(), worktree, cwd };
        crate::task::spawn_blocking(move || read.look(&place)).await.unwrap_or_default()
    } else {
        locked(&read.later).agents.clone()
    };
    let Some(now) = agents.and_then(|agents| agents.get(&agent.name)) else { return Ok(()) };
    let verdict = evaluate(&now.rules, &Rules::default(), need);
    if verdict.action != Action::Deny {
        return Ok(());
    }
    Err(Failure::Denied(Denial::Rule(refusal::words(&verdict, need, &now.rules))))
}
