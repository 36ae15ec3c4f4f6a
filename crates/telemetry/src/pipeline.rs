//! Batches of finished spans, and the histograms, on their way to a collector. The SDK has a thread
//! for each of the two; nothing here waits for them but the end of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::metrics::{Counter, Histogram, MeterProvider};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};

use super::client::CollectorClient;
use super::turns::{Finished, FinishedSpan, Measurement};
use base::environment::{Environment, Timestamp};
use config::settings::TelemetrySettings;

const NAME: &str = "adjutant";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The boundaries of the conventions for numbers of tokens.
const TOKEN_BOUNDARIES: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The boundaries of the conventions for times, in seconds, with further ones for turns.
const SECOND_BOUNDARIES: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36,
];

/// The way of finished spans and measurements to a collector.
pub(crate) struct Pipeline {
    spans: Option<BatchSpanProcessor>,
    meters: Option<SdkMeterProvider>,
    instruments: Option<Instruments>,
    scope: InstrumentationScope,
}

struct Instruments {
    tokens: Histogram<u64>,
    request: Histogram<f64>,
    first_chunk: Histogram<f64>,
    turn: Histogram<f64>,
    tool: Histogram<f64>,
    cost: Counter<f64>,
}

impl Pipeline {
    /// Starts the exporters. Nothing is connected before there is something to send.
    ///
    /// # Errors
    /// The settings or variables cannot be used; the message is for the user.
    pub(crate) fn new(
        environment: &Environment,
        settings: &TelemetrySettings,
    ) -> Result<Self, String> {
        let client = Arc::new(CollectorClient::new(environment));
        // The exporter decodes `%41` in them, as it does in the standard variable.
        let literal = |(name, value): &(String, String)| (name.clone(), value.replace('%', "%25"));
        let headers: HashMap<String, String> = settings.headers.iter().map(literal).collect();
        let address = |path: &str| {
            let base = settings.endpoint.as_deref()?;
            Some(format!("{}/{path}", base.trim_end_matches('/')))
        };
        let resource = resource(environment);
        let is_wanted = |variable: &str| environment.var(variable) != Some("none");
        let failed = |e: &dyn std::error::Error| format!("traces and metrics are not sent: {e}");
        let spans = if is_wanted("OTEL_TRACES_EXPORTER") {
            let mut exporter = SpanExporter::builder()
                .with_http()
                .with_shared_http_client(client.clone())
                .with_headers(headers.clone())
                .with_retry_policy(RetryPolicy::disabled())
                .with_protocol(Protocol::HttpBinary);
            if let Some(address) = address("v1/traces") {
                exporter = exporter.with_endpoint(address);
            }
            let exporter = exporter.build().map_err(|e| failed(&e))?;
            let mut processor = BatchSpanProcessor::builder(exporter).build();
            processor.set_resource(&resource);
            Some(processor)
        } else {
            None
        };
        let meters = if is_wanted("OTEL_METRICS_EXPORTER") {
            let mut exporter = MetricExporter::builder()
                .with_http()
                .with_shared_http_client(client)
                .with_headers(headers)
                .with_retry_policy(RetryPolicy::disabled())
                .with_protocol(Protocol::HttpBinary);
            if let Some(address) = address("v1/metrics") {
                exporter = exporter.with_endpoint(address);
            }
            let exporter = exporter.build().map_err(|e| failed(&e))?;
            let reader = PeriodicReader::builder(exporter).build();
            let meters = SdkMeterProvider::builder()
                .with_resource(resource)
                .with_reader(reader)
                .build();
            Some(meters)
        } else {
            None
        };
        Ok(Self {
            spans,
            instruments: meters.as_ref().map(instruments),
            meters,
            scope: scope(),
        })
    }

    /// Adds a span or a measurement. Never waits; drops it if too much waits already.
    pub(crate) fn record(&self, finished: Finished) {
        match finished {
            Finished::Span(span) => {
                if let Some(spans) = &self.spans
                    && let Some(data) = span_data(span, self.scope.clone())
                    && data.span_context.is_sampled()
                {
                    spans.on_end(data);
                }
            }
            Finished::Measurement(measurement) => {
                if let Some(instruments) = &self.instruments {
                    instruments.record(measurement);
                }
            }
        }
    }

    /// Sends the rest. Returns whether that took no longer than `most`.
    pub(crate) async fn finish(self: Arc<Self>, most: Duration) -> bool {
        let same = self.clone();
        let spans = base::task::spawn_blocking(move || {
            // A failure was logged by the client.
            if let Some(spans) = &same.spans {
                spans.shutdown_with_timeout(most).ok();
            }
        });
        let meters = base::task::spawn_blocking(move || {
            if let Some(meters) = &self.meters {
                meters.shutdown_with_timeout(most).ok();
            }
        });
        let both = async {
            spans.await.ok();
            meters.await.ok();
        };
        tokio::time::timeout(most, both).await.is_ok()
    }
}

impl Instruments {
    fn record(&self, measurement: Measurement) {
        match measurement {
            Measurement::Tokens(count, attributes) => self.tokens.record(count, &attributes),
            Measurement::Request(seconds, attributes) => self.request.record(seconds, &attributes),
            Measurement::FirstChunk(seconds, attributes) => {
                self.first_chunk.record(seconds, &attributes);
            }
            Measurement::Turn(seconds, attributes) => self.turn.record(seconds, &attributes),
            Measurement::Tool(seconds, attributes) => self.tool.record(seconds, &attributes),
            Measurement::Cost(dollars, attributes) => self.cost.add(dollars, &attributes),
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(NAME)
        .with_version(VERSION)
        .build()
}

/// Returns the description of this process, with the attributes in the standard variables.
fn resource(environment: &Environment) -> Resource {
    let is_named = environment
        .var("OTEL_SERVICE_NAME")
        .is_some_and(|name| !name.is_empty())
        || environment
            .var("OTEL_RESOURCE_ATTRIBUTES")
            .is_some_and(|text| {
                text.split(',')
                    .any(|pair| pair.trim().starts_with("service.name="))
            });
    let builder = Resource::builder().with_attribute(KeyValue::new("service.version", VERSION));
    if is_named {
        builder.build()
    } else {
        builder.with_service_name(NAME).build()
    }
}

fn instruments(meters: &SdkMeterProvider) -> Instruments {
    let meter = meters.meter_with_scope(scope());
    let seconds = |name: &'static str, description: &'static str| {
        meter
            .f64_histogram(name)
            .with_unit("s")
            .with_description(description)
            .with_boundaries(SECOND_BOUNDARIES.to_vec())
            .build()
    };
    Instruments {
        tokens: meter
            .u64_histogram("gen_ai.client.token.usage")
            .with_unit("{token}")
            .with_description("Input and output tokens of requests")
            .with_boundaries(TOKEN_BOUNDARIES.to_vec())
            .build(),
        request: seconds(
            "gen_ai.client.operation.duration",
            "Duration of requests to models",
        ),
        first_chunk: seconds(
            "gen_ai.client.operation.time_to_first_chunk",
            "Time until the first piece of an answer",
        ),
        turn: seconds("gen_ai.invoke_agent.duration", "Duration of turns"),
        tool: seconds("gen_ai.execute_tool.duration", "Duration of calls"),
        cost: meter
            .f64_counter("adjutant.cost")
            .with_unit("{USD}")
            .with_description("Cost of requests whose price is known")
            .build(),
    }
}

/// Returns a span in the form of the SDK; `None` if its ids are damaged.
fn span_data(span: FinishedSpan, instrumentation_scope: InstrumentationScope) -> Option<SpanData> {
    let span_context = SpanContext::new(
        TraceId::from_hex(span.trace.trace_id()).ok()?,
        SpanId::from_hex(span.trace.span_id()).ok()?,
        TraceFlags::new(span.trace.flags()),
        false,
        span.trace
            .tracestate()
            .and_then(|state| state.parse::<TraceState>().ok())
            .unwrap_or_default(),
    );
    let parent = span
        .parent
        .as_deref()
        .and_then(|parent| SpanId::from_hex(parent).ok());
    Some(SpanData {
        span_context,
        parent_span_id: parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: span.kind,
        name: span.name.into(),
        start_time: time(span.start),
        end_time: time(span.end.max(span.start)),
        status: span.error.map_or(Status::Unset, Status::error),
        attributes: span.attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        instrumentation_scope,
    })
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.0)
}
