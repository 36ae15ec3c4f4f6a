//! Who can be asked, as a session sees it: the present registry and the user's own default.

use std::sync::Arc;

use tokio::sync::watch;

use providers::registry::{NotFound, Registry};
use providers::{Model, Provider};
use transcript::ModelRef;

/// The models of a session. The registry behind it may be replaced: a server on this machine is
/// found some time after the session was opened.
#[derive(Clone)]
pub struct Models {
    registry: watch::Receiver<Arc<Registry>>,
    preferred: Option<ModelRef>,
    recent: Arc<[ModelRef]>,
}

impl Models {
    /// Models from a registry, with the default the settings name and what was chosen in this
    /// project before, the newest first.
    pub fn new(registry: watch::Receiver<Arc<Registry>>, preferred: Option<ModelRef>, recent: Arc<[ModelRef]>) -> Self {
        Self { registry, preferred, recent }
    }

    /// What was chosen in this project before, the newest first.
    pub fn recent(&self) -> &Arc<[ModelRef]> {
        &self.recent
    }

    /// A model and how to ask it.
    ///
    /// # Errors
    /// [`NotFound`], with the nearest names.
    pub fn find(&self, wanted: &ModelRef) -> Result<(Arc<Model>, Arc<dyn Provider>), NotFound> {
        self.registry.borrow().find(wanted)
    }

    pub fn all(&self) -> Vec<Arc<Model>> {
        self.registry.borrow().models()
    }

    /// Whether somebody may be asked besides the offline model.
    pub fn is_anybody_there(&self) -> bool {
        let registry = self.registry.borrow();
        registry.may_lend() || registry.models().iter().any(|model| model.id.provider != Registry::OFFLINE)
    }

    /// Waits until there are others than before. False when there will be none any more.
    pub async fn changed(&mut self) -> bool {
        self.registry.changed().await.is_ok()
    }

    /// A small model beside this one, if one is known.
    pub fn small(&self, beside: &ModelRef) -> Option<ModelRef> {
        self.registry.borrow().small_model(beside)
    }

    /// The model for those who did not choose: the settings', else the one chosen last in this
    /// project that is still there, else the best there is.
    pub fn default_model(&self) -> ModelRef {
        let chosen = || self.recent.iter().find(|model| self.find(model).is_ok()).cloned();
        let best = || self.registry.borrow().default_model().id.clone();
        self.preferred.clone().or_else(chosen).unwrap_or_else(best)
    }
}
