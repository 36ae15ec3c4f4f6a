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
use base::lock::lock;
use base::worktree::Worktree;
use config::{self, ConfigFingerprint, Problem};
use permission::rule::BUILT_IN;
use permission::{AccessRequest, Action, Denial, Rules, evaluate};
use project::agent::{Agent, Agents};
use tools::{Failure, denial_message};
use transcript::ModelRef;

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
    known_problems: Arc<[Problem]>,
    latest: Mutex<LatestSettings>,
}

#[derive(Debug)]
struct LatestSettings {
    checked: Instant,
    fingerprint: Arc<ConfigFingerprint>,
    /// The agents whose denies apply in addition to those of the turn's beginning.
    denying_agents: Vec<Arc<Agents>>,
}

/// The number of different versions of invalid files that are stored separately.
const MAX_READINGS: usize = 16;

/// Adds the agents of an invalid version to those whose denies apply.
pub fn add_denying_agents(forbidding: &mut Vec<Arc<Agents>>, partial: Arc<Agents>) {
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
            known_problems: known,
            latest: Mutex::new(LatestSettings {
                checked: Instant::now(),
                fingerprint,
                denying_agents: forbidding,
            }),
        }
    }

    /// Returns the problem of a model that the settings name and that cannot be used.
    pub fn problem_of_model(&self, model: &ModelRef) -> Option<&Problem> {
        self.known_problems
            .iter()
            .find(|problem| problem.is_about_model(model))
    }

    /// Returns the agents whose denies apply in addition to those of the turn's beginning.
    pub fn denying_agents(&self) -> Vec<Arc<Agents>> {
        lock(&self.latest).denying_agents.clone()
    }

    /// True if a file has changed since it was read. Costs one query of each file's
    /// metadata.
    pub fn is_stale(&self) -> bool {
        let fingerprint = lock(&self.latest).fingerprint.clone();
        fingerprint.is_stale()
    }

    fn is_due(&self) -> bool {
        let mut later = lock(&self.latest);
        let due = later.checked.elapsed() >= CHECK_INTERVAL;
        if due {
            later.checked = Instant::now();
        }
        due
    }

    /// Returns the agents whose denies apply now. Reads the files if one has changed.
    fn reload(&self, source: &SettingsSource) -> Vec<Arc<Agents>> {
        let (fingerprint, mut forbidding) = {
            let later = lock(&self.latest);
            (later.fingerprint.clone(), later.denying_agents.clone())
        };
        if !fingerprint.is_stale() {
            return forbidding;
        }
        let loaded = config::load(&source.environment, &source.worktree, &source.cwd);
        let agents =
            Arc::new(Agents::build(&loaded.settings, &source.environment, &source.worktree).0);
        if loaded.errors_since(&self.known_problems).next().is_some() {
            add_denying_agents(&mut forbidding, agents);
        } else {
            forbidding = vec![agents];
        }
        let mut later = lock(&self.latest);
        later.fingerprint = Arc::new(loaded.fingerprint);
        later.denying_agents = forbidding.clone();
        forbidding
    }
}

/// The agents whose denies were checked for an access request, and do not deny it.
#[derive(Debug, Clone, Default)]
pub(super) struct PassedDenies(Vec<Arc<Agents>>);

impl PassedDenies {
    /// True if these agents were checked. They are the same ones as long as no file changes.
    fn contains(&self, agents: &Arc<Agents>) -> bool {
        self.0.iter().any(|passed| Arc::ptr_eq(passed, agents))
    }
}

/// Refuses an access that the settings deny by now, as far as the files were checked within the
/// interval.
pub(super) async fn check(
    turn: &TurnContext,
    agent: &Agent,
    request: &AccessRequest,
) -> Result<PassedDenies, Failure> {
    let read = &turn.project.deny_watcher;
    let forbidding = if read.is_due() {
        current_denying_agents(turn).await
    } else {
        read.denying_agents()
    };
    refuse(&forbidding, &PassedDenies::default(), agent, request)?;
    Ok(PassedDenies(forbidding))
}

/// Refuses accesses that have passed earlier checks if the settings have come to deny one of them
/// since.
pub(super) async fn check_all<'r>(
    turn: &TurnContext,
    agent: &Agent,
    accesses: impl Iterator<Item = (&'r AccessRequest, &'r PassedDenies)>,
) -> Result<(), Failure> {
    let forbidding = current_denying_agents(turn).await;
    for (request, passed) in accesses {
        refuse(&forbidding, passed, agent, request)?;
    }
    Ok(())
}

/// Returns the agents whose denies apply now, after a look at the files.
async fn current_denying_agents(turn: &TurnContext) -> Vec<Arc<Agents>> {
    let source = SettingsSource {
        environment: turn.session.common.environment.clone(),
        worktree: turn.project.context.worktree.clone(),
        cwd: turn.project.context.cwd.clone(),
    };
    let read = turn.project.deny_watcher.clone();
    base::task::spawn_blocking(move || read.reload(&source))
        .await
        .unwrap_or_else(|_| turn.project.deny_watcher.denying_agents())
}

/// Refuses an access that one of these agents denies, apart from those that were checked before.
fn refuse(
    forbidding: &[Arc<Agents>],
    passed: &PassedDenies,
    agent: &Agent,
    request: &AccessRequest,
) -> Result<(), Failure> {
    for agents in forbidding {
        if passed.contains(agents) {
            continue;
        }
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

#[cfg(test)]
mod tests {
    use super::super::TurnOutcome;
    use super::super::tests::Fixture;
    use super::*;
    use config::Settings;
    use permission::Rule;

    #[tokio::test]
    async fn access_is_judged_once_for_each_version_of_the_settings() {
        let mut fixture = Fixture::new([]);
        let played = fixture.play_with("go", |_, history, turn| {
            Box::pin(async move {
                let agents = |action| {
                    let rule = Rule {
                        permission: "edit".into(),
                        pattern: "*.txt".into(),
                        action,
                        source: "test".into(),
                    };
                    let settings = Settings {
                        permission: [rule].into_iter().collect(),
                        ..Settings::default()
                    };
                    let worktree = &turn.project.context.worktree;
                    Arc::new(Agents::build(&settings, &turn.session.common.environment, worktree).0)
                };
                let allows = agents(Action::Allow);
                let denies = agents(Action::Deny);
                let same_denies = agents(Action::Deny);
                // The agents that were checked, those that apply now; whether the access is refused.
                let table = [
                    (vec![], vec![], false),
                    (vec![], vec![&allows], false),
                    (vec![], vec![&denies], true),
                    (vec![], vec![&allows, &denies], true),
                    (vec![&allows], vec![&allows, &denies], true),
                    (vec![&allows], vec![&denies], true),
                    // It has passed these, which are not asked again.
                    (vec![&denies], vec![&denies], false),
                    (vec![&denies], vec![&same_denies], true),
                ];
                let agent = turn.project.agents.get("build").unwrap();
                let request = AccessRequest::new("edit", "a.txt");
                for (passed, present, is_refused) in table {
                    let all = |agents: &[&Arc<Agents>]| -> Vec<Arc<Agents>> {
                        agents.iter().map(|agents| Arc::clone(agents)).collect()
                    };
                    let result = refuse(
                        &all(&present),
                        &PassedDenies(all(&passed)),
                        &agent,
                        &request,
                    );
                    assert_eq!(result.is_err(), is_refused, "{passed:?} {present:?}");
                }
                (history, TurnOutcome::Ended)
            })
        });
        assert_eq!(played.await.outcome, TurnOutcome::Ended);
    }
}
