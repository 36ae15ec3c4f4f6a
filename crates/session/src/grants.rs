//! Permissions that the user has granted with "always". [`Grants`] holds those of one project as allow
//! rules per agent, shared by all sessions of the project in this process, and stores new ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use base::environment::Environment;
use base::lock::lock;
use permission::{Action, Rule, Rules};
use store::{Grant, Store, StoredGrants};

/// The grants of one project.
#[derive(Debug)]
pub struct Grants {
    project: String,
    environment: Environment,
    store: Store,
    /// Allow rules by agent.
    rules_by_agent: watch::Sender<HashMap<String, Rules>>,
    /// The path of the damaged index in which earlier grants were lost, until a session reports
    /// it.
    damaged_index: Mutex<Option<String>>,
}

impl Grants {
    /// Reads the stored grants of a project.
    pub async fn open(project: &str, environment: &Environment, store: &Store) -> Arc<Self> {
        let stored = store.grants(project).await.unwrap_or_else(|e| {
            tracing::warn!("earlier grants are not known: {e}");
            StoredGrants::default()
        });
        Arc::new(Self {
            project: project.into(),
            environment: environment.clone(),
            store: store.clone(),
            rules_by_agent: watch::Sender::new(group_by_agent(stored.grants)),
            damaged_index: Mutex::new(stored.damaged_index),
        })
    }

    /// Takes the path of the damaged index in which earlier grants were lost, for a notice to
    /// the user.
    pub fn take_damaged_index(&self) -> Option<String> {
        lock(&self.damaged_index).take()
    }

    /// Returns the grants of one agent as allow rules.
    pub fn for_agent(&self, agent: &str) -> Rules {
        self.rules_by_agent
            .borrow()
            .get(agent)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the grants of all agents, by the agents' names.
    pub fn all(&self) -> Vec<(String, Rules)> {
        let held = self.rules_by_agent.borrow();
        let mut all: Vec<(String, Rules)> = held
            .iter()
            .map(|(agent, rules)| (agent.clone(), rules.clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Grants patterns to an agent, and stores the grants. Open questions of the project are notified
    /// and may be answered by them.
    pub async fn add(&self, agent: &str, permission: &str, patterns: &[String]) {
        for pattern in patterns {
            let grant = Grant {
                project: self.project.clone(),
                agent: agent.into(),
                permission: permission.into(),
                pattern: pattern.clone(),
                granted_at: self.environment.now(),
            };
            if let Err(e) = self.store.add_grant(&grant).await {
                tracing::warn!("a grant applies to this process only: {e}");
            }
            self.rules_by_agent.send_modify(|held| {
                held.entry(grant.agent.clone())
                    .or_default()
                    .extend([allow_rule(grant)])
            });
        }
    }

    /// Returns a receiver that is notified of new grants.
    pub fn changes(&self) -> watch::Receiver<HashMap<String, Rules>> {
        self.rules_by_agent.subscribe()
    }
}

fn group_by_agent(grants: Vec<Grant>) -> HashMap<String, Rules> {
    let mut held: HashMap<String, Vec<Rule>> = HashMap::new();
    for grant in grants {
        held.entry(grant.agent.clone())
            .or_default()
            .push(allow_rule(grant));
    }
    held.into_iter()
        .map(|(agent, rules)| (agent, rules.into()))
        .collect()
}

fn allow_rule(grant: Grant) -> Rule {
    Rule {
        permission: grant.permission,
        pattern: grant.pattern,
        action: Action::Allow,
        source: "granted".into(),
    }
}
