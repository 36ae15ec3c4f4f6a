//! The models that are available to a session: the present registry and the user's default.

use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::watch;

use crate::models::ModelSources;
use base::lock::lock;
use config::settings::Settings;
use project::agent::{Agent, ModelFamily};
use providers::editor_endpoints::EditorEndpoints;
use providers::local;
use providers::registry::{ModelNotFound, Registry};
use providers::{Model, Provider};
use transcript::ModelRef;

/// The models of a session. The registry may be replaced: a model server on this machine is found
/// some time after the session was opened.
#[derive(Clone)]
pub struct Models {
    registry: watch::Receiver<Arc<Registry>>,
    configured_default: Option<ModelRef>,
    recent: Arc<[ModelRef]>,
    source: Option<Arc<SessionRegistry>>,
}

/// The registry of a session's models, with what it is made of. The only one to replace it.
pub(crate) struct SessionRegistry {
    sources: Arc<ModelSources>,
    // Held while files are read, so that the registry is always that of the last inputs, but never
    // across an await.
    inputs: Mutex<SessionInputs>,
    registry: watch::Sender<Arc<Registry>>,
    /// Closed when the first search for model servers on this machine is over, however it ends.
    first_search: OnceLock<watch::Receiver<()>>,
}

/// The inputs of a session's registry.
#[derive(Clone)]
struct SessionInputs {
    settings: Arc<Settings>,
    endpoints: EditorEndpoints,
}

impl SessionRegistry {
    /// Brings the models together. Reads files.
    pub(crate) fn new(
        sources: Arc<ModelSources>,
        settings: Arc<Settings>,
        endpoints: EditorEndpoints,
    ) -> Self {
        let registry = sources.with_editor_endpoints(&settings, &endpoints);
        Self {
            sources,
            inputs: Mutex::new(SessionInputs {
                settings,
                endpoints,
            }),
            registry: watch::channel(Arc::new(registry)).0,
            first_search: OnceLock::new(),
        }
    }

    pub(crate) fn sources(&self) -> &Arc<ModelSources> {
        &self.sources
    }

    pub(crate) fn current(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Returns the models with the default of the settings, and the models chosen in this project
    /// before, the newest first.
    pub(crate) fn models(
        self: &Arc<Self>,
        preferred: Option<ModelRef>,
        recent: Arc<[ModelRef]>,
    ) -> Models {
        Models {
            source: Some(self.clone()),
            ..Models::new(self.registry.subscribe(), preferred, recent)
        }
    }

    /// Brings the models of other settings together. Blocks on file access.
    pub(crate) fn use_settings(&self, settings: Arc<Settings>) {
        let mut inputs = lock(&self.inputs);
        inputs.settings = settings;
        self.rebuild(&inputs);
    }

    /// Brings the models together with the endpoints that the editor has set by now, if they are
    /// others; `None` changes nothing. Blocks on file access.
    pub(crate) fn use_endpoints(&self, endpoints: impl FnOnce() -> Option<EditorEndpoints>) {
        let mut inputs = lock(&self.inputs);
        if let Some(endpoints) = endpoints()
            && inputs.endpoints != endpoints
        {
            inputs.endpoints = endpoints;
            self.rebuild(&inputs);
        }
    }

    fn rebuild(&self, inputs: &SessionInputs) {
        let registry = self
            .sources
            .with_editor_endpoints(&inputs.settings, &inputs.endpoints);
        self.registry.send_replace(Arc::new(registry));
    }

    /// Begins the first search for model servers on this machine; the returned future completes it.
    pub(crate) fn first_search(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let (end, receiver) = watch::channel(());
        self.first_search.set(receiver).ok();
        async move {
            self.search().await;
            drop(end);
        }
    }

    /// Asks all model servers on this machine. The result is dropped if the registry has been
    /// replaced in the meantime: it may be that of newer settings.
    pub(crate) async fn search(&self) {
        let before = self.current();
        let SessionInputs {
            settings,
            endpoints,
        } = lock(&self.inputs).clone();
        let Some(found) = self.sources.with_local(&settings, &endpoints).await else {
            return;
        };
        self.registry.send_if_modified(|current| {
            let is_same = Arc::ptr_eq(current, &before);
            if is_same {
                *current = Arc::new(found);
            }
            is_same
        });
    }
}

/// Returns the model that a name means which is not complete: the newest one of a family, such as
/// `sonnet` or `anthropic/sonnet`, of the named provider, or else of that of the default model, or
/// else of another provider; or the only model of that name.
pub fn named_model(name: &str, registry: &Registry, default: &ModelRef) -> Option<ModelRef> {
    let (provider, word) = match name.split_once('/') {
        Some((provider, word)) => (Some(provider), word),
        None => (None, name),
    };
    let of_family = || {
        let family = ModelFamily::parse(&word.to_lowercase())?;
        let newest = |provider: &str| registry.newest(provider, family.as_str());
        match provider {
            Some(provider) => newest(provider),
            None => newest(&default.provider).or_else(|| {
                let mut providers = registry.providers().iter();
                providers.find_map(|facts| newest(&facts.id))
            }),
        }
    };
    of_family().or_else(|| registry.only_named(name))
}

impl Models {
    /// Combines a registry with the default model of the settings, and the models chosen in
    /// this project before, the newest first.
    pub fn new(
        registry: watch::Receiver<Arc<Registry>>,
        preferred: Option<ModelRef>,
        recent: Arc<[ModelRef]>,
    ) -> Self {
        Self {
            registry,
            configured_default: preferred,
            recent,
            source: None,
        }
    }

    /// Prepares a model of a server on this machine for requests: asks the servers again if the
    /// model is unknown, and loads it if its context window is only known then.
    pub async fn prepare(&self, wanted: &ModelRef) {
        let Some(source) = &self.source else {
            return;
        };
        match self.find(wanted) {
            Err(_) if local::is_known(&wanted.provider) => source.search().await,
            Ok((model, _)) if self.must_be_loaded(&model) => {
                if source.sources.lacks_context_window(&model.id) {
                    return;
                }
                let is_loaded = source.sources.load_local(&model).await;
                source.search().await;
                let again = self.find(wanted);
                if is_loaded && again.is_ok_and(|(model, _)| self.must_be_loaded(&model)) {
                    source.sources.add_windowless(&model.id);
                }
            }
            _ => {}
        }
    }

    /// True if a search after loading a model would find its context window. A provider of
    /// the settings is never replaced by one that is found, and one at an endpoint of the editor's
    /// is not on this machine.
    fn must_be_loaded(&self, model: &Model) -> bool {
        model.editor_address.is_none()
            && local::must_be_loaded(&model.id, model.context)
            && self.registry.borrow().is_local_server(&model.id.provider)
    }

    /// Uses the endpoints that the editor has set by now, from the next request on; `None` changes
    /// nothing. Blocks on file access.
    pub fn use_endpoints(&self, endpoints: impl FnOnce() -> Option<EditorEndpoints>) {
        if let Some(source) = &self.source {
            source.use_endpoints(endpoints);
        }
    }

    /// Returns the models chosen in this project before, the newest first.
    pub fn recent(&self) -> &Arc<[ModelRef]> {
        &self.recent
    }

    /// Returns a model and its provider.
    ///
    /// # Errors
    /// [`ModelNotFound`], with the nearest names.
    pub fn find(
        &self,
        wanted: &ModelRef,
    ) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelNotFound> {
        self.registry.borrow().find(wanted)
    }

    /// Returns the models with a name like a text, as [`Registry::nearest`].
    pub fn nearest(&self, name: &str) -> Vec<String> {
        self.registry.borrow().nearest(name)
    }

    /// Returns the reason why the models with this in their names cannot be used, if they are those of
    /// a maker without a key, and the remedy.
    pub fn obstacle_to_named(&self, word: &str) -> Option<String> {
        self.registry.borrow().obstacle_to_named(word)
    }

    pub fn all(&self) -> Vec<Arc<Model>> {
        self.registry.borrow().models()
    }

    /// True if there may be a model in addition to the offline one.
    pub fn may_have_online_model(&self) -> bool {
        let registry = self.registry.borrow();
        registry.may_have_plugin_models() || !registry.is_offline_only()
    }

    /// Waits for the first search for model servers on this machine, if it still runs.
    pub async fn await_first_search(&self) {
        let search = self.source.as_ref().and_then(|it| it.first_search.get());
        if let Some(mut end) = search.cloned() {
            // An error is the end.
            end.changed().await.ok();
        }
    }

    /// Waits until the models change. Returns `false` if they cannot change any more.
    pub async fn await_change(&mut self) -> bool {
        self.registry.changed().await.is_ok()
    }

    /// Returns a small model for tasks next to the current one, if one is known.
    pub fn small(&self, current: &ModelRef) -> Option<ModelRef> {
        self.registry.borrow().small_model(current)
    }

    /// Returns the model that an agent uses if the user has chosen none: its own one, or the newest
    /// one of its family from the provider of `near`. `None` if the agent leaves the choice open.
    pub fn of_agent(&self, agent: &Agent, near: &ModelRef) -> Option<ModelRef> {
        agent
            .model
            .clone()
            .or_else(|| self.of_family(agent.family?, near))
    }

    /// Returns the newest model of a family from the provider of `near`.
    pub fn of_family(&self, family: ModelFamily, near: &ModelRef) -> Option<ModelRef> {
        self.registry
            .borrow()
            .newest(&near.provider, family.as_str())
    }

    /// Returns the model that a name means: see [`named_model`].
    pub fn named(&self, name: &str) -> Option<ModelRef> {
        named_model(name, &self.registry.borrow(), &self.default_model())
    }

    /// Returns the default model: that of the settings, or else the available one that was
    /// chosen last in this project, or else the best one.
    pub fn default_model(&self) -> ModelRef {
        let chosen = || {
            self.recent
                .iter()
                .find(|model| self.find(model).is_ok())
                .cloned()
        };
        let best = || self.registry.borrow().default_model().id.clone();
        self.configured_default
            .clone()
            .or_else(chosen)
            .unwrap_or_else(best)
    }
}
