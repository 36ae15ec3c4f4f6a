//! The export of traces and metrics in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// Traces and metrics for a collector of OpenTelemetry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// Send traces and metrics. Default: false.
    pub enabled: Option<bool>,
    /// Address of the collector, to which `/v1/traces` and `/v1/metrics` are added. Default:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://localhost:4318`.
    pub endpoint: Option<String>,
    /// Headers of every request, in addition to `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Option<Ordered<String>>,
    /// Send prompts, answers, and the arguments and results of calls as well. Default: false.
    pub content: Option<bool>,
}
