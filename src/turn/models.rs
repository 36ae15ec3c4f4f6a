//! Who can be asked, as a session sees it: the present registry and the user's own default.

use std::sync::Arc;

use tokio::sync::watch;

use crate::message::ModelRef;
use crate::model::registry::{NotFound, Registry};
use crate::model::{Model, Provider};

/// The models of a session. The registry behind it may be replaced: a server on this machine is
/// found some time after the session was opened.
#[derive(Clone)]
pub struct Models {
    registry: watch::Receiver<Arc<Registry>>,
    preferred: Option<ModelRef>,
}

impl Models {
    /// Models from a registry, with the default the settings name.
    pub fn new(registry: watch::Receiver<Arc<Registry>>, preferred: Option<ModelRef>) -> Self {
        Self { registry, preferred }
    }

    /// A model and how to ask it.
    ///
    /// # Errors
    /// [`NotFound`], with the nearest names.
    pub fn find(&self, wanted: &ModelRef) -> Result<(Arc<Model>, Arc<dyn Provider>), NotFound> {
        self.registry.borrow().find(wanted)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Model>> {
        self.registry.borrow().models()
    }

    /// Waits until there are others than before. False when there will be none any more.
    pub async fn changed(&mut self) -> bool {
        self.registry.changed().await.is_ok()
    }

    /// The model for those who did not choose: the settings', else the best there is.
    pub fn default_model(&self) -> ModelRef {
        self.preferred.clone().unwrap_or_else(|| self.registry.borrow().default_model().id.clone())
    }
}
