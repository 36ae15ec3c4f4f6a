//! Traces and metrics of sessions, sent to a collector over OTLP.
//!
//! An observer of the event bus ([`events::bus`]) follows the sessions of a process and makes spans
//! and measurements of their events (`turns`), in the terms of OpenTelemetry's semantic
//! conventions for generative AI. It adds nothing to a turn but the events. `pipeline` sends
//! them in batches, on threads of the SDK, and drops those that cannot be sent.
//!
//! It depends on [`config`] for the settings of the export, and on [`providers`] for an HTTP client
//! that uses the same proxies and certificates as the requests to models.

mod attributes;
mod client;
mod pipeline;
mod turns;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use base::environment::Environment;
use base::lock::lock;
use base::task::JoinHandle;
use base::trace::Sampler;
use config::settings::TelemetrySettings;
use events::bus::{EventBus, EventFilter, Subscription};
use pipeline::Pipeline;
use turns::Turns;

/// The time that the last batch may take when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The export of traces and metrics of one process.
pub struct Telemetry {
    environment: Environment,
    // A leaf lock around the parts that start with the first session.
    running: Mutex<Option<Running>>,
}

/// The parts of an export that has started.
struct Running {
    pipeline: Arc<Pipeline>,
    ending: CancellationToken,
    observers: Vec<JoinHandle<()>>,
}

impl Telemetry {
    pub fn new(environment: &Environment) -> Arc<Self> {
        Arc::new(Self {
            environment: environment.clone(),
            running: Mutex::default(),
        })
    }

    /// Exports the events of a bus from now on, if the settings request it. Does nothing the second
    /// time. Returns the reason why it is impossible, for the user.
    pub fn observe(&self, settings: &TelemetrySettings, bus: &EventBus) -> Option<String> {
        let is_disabled = self
            .environment
            .var("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if !settings.enabled || is_disabled {
            return None;
        }
        let mut running = lock(&self.running);
        if bus.is_traced() {
            return None;
        }
        if running.is_none() {
            let pipeline = match Pipeline::new(&self.environment, settings) {
                Ok(pipeline) => Arc::new(pipeline),
                Err(why) => return Some(why),
            };
            *running = Some(Running {
                pipeline,
                ending: CancellationToken::new(),
                observers: Vec::new(),
            });
        }
        if let Some(running) = running.as_mut() {
            let subscription = bus.subscribe(EventFilter {
                traces: true,
                ..EventFilter::default()
            });
            running.observers.push(base::task::spawn(follow(
                subscription,
                running.pipeline.clone(),
                running.ending.clone(),
                (settings.content, self.environment.clone()),
            )));
        }
        None
    }

    /// Sends the rest, for a limited time, because the process is exiting.
    pub async fn finish(&self) {
        let Some(running) = lock(&self.running).take() else {
            return;
        };
        running.ending.cancel();
        for observer in running.observers {
            observer.await.ok();
        }
        if !running.pipeline.finish(FLUSH_TIMEOUT).await {
            tracing::warn!("the last traces and metrics could not be sent in time");
        }
    }
}

/// Makes spans and measurements of events until the process ends. `content`: of contents too.
async fn follow(
    mut events: Subscription,
    pipeline: Arc<Pipeline>,
    ending: CancellationToken,
    (content, environment): (bool, Environment),
) {
    let mut turns = Turns::new(content, Sampler::of(&environment));
    loop {
        let is_over = tokio::select! {
            () = events.ready() => false,
            () = ending.cancelled() => true,
        };
        while let Some(event) = events.try_next_event() {
            for finished in turns.record(&event) {
                pipeline.record(finished);
            }
        }
        if is_over {
            for finished in turns.cut_off(environment.now()) {
                pipeline.record(finished);
            }
            return;
        }
    }
}
