//! The models that were chosen in a project, the newest first ([`RecentModels`]). The next session of
//! the project begins with the first one, unless the settings name another.

use base::worktree::Worktree;
use providers::registry::Registry;
use store::{Error, Store};
use transcript::ModelRef;

/// Returns the name of a project in a store: the same on every machine if machines share the store.
pub async fn project_name(store: &Store, worktree: &Worktree) -> String {
    if store.is_shared().await {
        worktree.shared_name()
    } else {
        worktree.root.display().to_string()
    }
}

/// The maximum number of stored models of a project.
const MAX_MODELS: usize = 5;

/// The stored list of the models that were chosen in a project.
#[derive(Debug, Clone)]
pub struct RecentModels {
    store: Store,
    project: String,
}

impl RecentModels {
    pub fn new(store: &Store, project: String) -> Self {
        Self {
            store: store.clone(),
            project,
        }
    }

    /// Returns the stored models; an empty list if they cannot be read.
    pub async fn read(&self) -> Vec<ModelRef> {
        self.store.recent_models(&self.project).await
    }

    /// Puts a chosen model at the head of the stored list.
    ///
    /// # Errors
    /// The store's; the stored models are then unchanged.
    pub async fn store_choice(&self, model: &ModelRef) -> Result<(), Error> {
        // Models for tests and replays are not offered to the next session.
        if [Registry::OFFLINE, ModelRef::REPLAY].contains(&model.provider.as_str()) {
            return Ok(());
        }
        let mut models = self.read().await;
        models.retain(|known| (&known.provider, &known.model) != (&model.provider, &model.model));
        models.insert(0, model.clone());
        models.truncate(MAX_MODELS);
        self.store.set_recent_models(&self.project, models).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn newest_model_comes_first_and_projects_are_separate() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::start(home.path());
        let one = RecentModels::new(&store, "/a".into());
        let other = RecentModels::new(&store, "/b".into());
        let model = |text: &str, effort: Option<&str>| ModelRef {
            effort: effort.map(str::to_owned),
            ..ModelRef::parse(text).unwrap()
        };
        for name in [
            "p/1",
            "p/2",
            "p/3",
            "p/4",
            "p/5",
            "p/6",
            "offline/offline",
            "replay:/x",
        ] {
            one.store_choice(&model(name, None)).await.unwrap();
        }
        one.store_choice(&model("p/3", Some("high"))).await.unwrap();
        let names: Vec<_> = one.read().await.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["p/3", "p/6", "p/5", "p/4", "p/2"]);
        assert_eq!(one.read().await[0].effort.as_deref(), Some("high"));
        assert_eq!(other.read().await, []);
        for file in std::fs::read_dir(home.path().join("projects"))
            .unwrap()
            .flatten()
        {
            std::fs::write(file.path(), "damaged").unwrap();
        }
        assert_eq!(one.read().await, []);
    }
}
