//! The export of traces and metrics, or the notice that this program is built without it.

#[cfg(feature = "telemetry")]
use std::sync::Arc;

use base::environment::Environment;
use session::{Sessions, StartTelemetry};
#[cfg(feature = "telemetry")]
use telemetry::Telemetry;

/// The export of a process, which starts with the first session whose settings request it.
pub(super) struct TelemetryExport {
    #[cfg(feature = "telemetry")]
    telemetry: Arc<Telemetry>,
}

#[cfg(feature = "telemetry")]
impl TelemetryExport {
    pub(super) fn new(environment: &Environment) -> Self {
        Self {
            telemetry: Telemetry::new(environment),
        }
    }

    /// Returns the function that starts the export.
    pub(super) fn start(&self) -> StartTelemetry {
        let telemetry = self.telemetry.clone();
        Arc::new(move |settings, bus| telemetry.observe(settings, bus))
    }

    /// Sends the rest. Called when all sessions have ended.
    pub(super) async fn finish(&self) {
        self.telemetry.finish().await;
    }
}

#[cfg(not(feature = "telemetry"))]
impl TelemetryExport {
    pub(super) fn new(_: &Environment) -> Self {
        Self {}
    }

    pub(super) fn start(&self) -> StartTelemetry {
        std::sync::Arc::new(|settings, _| {
            settings.enabled.then(|| {
                "The settings turn telemetry on, but this adjutant is built without it.".to_owned()
            })
        })
    }

    pub(super) async fn finish(&self) {}
}

impl TelemetryExport {
    /// Exports the sessions of a process.
    pub(super) fn watch(&self, sessions: &Sessions) {
        // The only place that sets it.
        sessions.telemetry.set(self.start()).ok();
    }
}
