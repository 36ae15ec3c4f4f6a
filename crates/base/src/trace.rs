//! Trace contexts of the W3C, as requests carry them in `_meta`: `traceparent`, `tracestate` and
//! `baggage`.
//!
//! The ids of our own spans are computed from the ids of their subjects: a call and a server that
//! it calls name the same span without shared state.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Once;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Environment;

/// The longest `tracestate` that is passed on, in bytes.
const MAX_STATE_BYTES: usize = 512;

/// The longest `baggage` that is passed on, in bytes: the minimum that its specification demands.
const MAX_BAGGAGE_BYTES: usize = 8192;

/// The flag of a `traceparent` for a recorded trace.
const SAMPLED: u8 = 1;

/// A place in a trace: a span that others can be below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// `00-<trace>-<span>-<flags>`.
    traceparent: String,
    /// The state of tracing systems, passed on unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    /// The data of applications, passed on unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    baggage: Option<String>,
}

impl TraceContext {
    /// Reads the context from a `_meta`. As the specification demands, one that is malformed counts
    /// as none.
    pub fn read(meta: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str, most: usize| {
            let text = meta.get(key)?.as_str()?.trim();
            let is_fit = !text.is_empty()
                && text.len() <= most
                && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            is_fit.then(|| text.to_owned())
        };
        Some(Self {
            traceparent: parent(meta.get("traceparent")?.as_str()?)?,
            tracestate: text("tracestate", MAX_STATE_BYTES),
            baggage: text("baggage", MAX_BAGGAGE_BYTES),
        })
    }

    /// Begins a trace with the span of `subject`, an id.
    pub fn root(subject: &str) -> Self {
        let trace = format!(
            "{}{}",
            hash("trace", subject),
            hash("trace, continued", subject)
        );
        Self {
            traceparent: format!("00-{trace}-{}-{SAMPLED:02x}", span(subject)),
            tracestate: None,
            baggage: None,
        }
    }

    /// Returns the span of `subject`, an id, in the same trace.
    #[must_use]
    pub fn child(&self, subject: &str) -> Self {
        Self {
            traceparent: format!(
                "00-{}-{}-{:02x}",
                self.trace_id(),
                span(subject),
                self.flags()
            ),
            ..self.clone()
        }
    }

    /// Returns the id of the trace: 32 hexadecimal digits, or nothing if the context is damaged.
    pub fn trace_id(&self) -> &str {
        self.traceparent.get(3..35).unwrap_or_default()
    }

    /// Returns the id of the span: 16 hexadecimal digits, or nothing if the context is damaged.
    pub fn span_id(&self) -> &str {
        self.traceparent.get(36..52).unwrap_or_default()
    }

    /// Returns the flags, or 0 if the context is damaged.
    pub fn flags(&self) -> u8 {
        let digits = self.traceparent.get(53..55).unwrap_or_default();
        u8::from_str_radix(digits, 16).unwrap_or_default()
    }

    /// Returns the same context, in a trace that is recorded or not.
    fn marked(self, is_sampled: bool) -> Self {
        let flags = (self.flags() & !SAMPLED) | u8::from(is_sampled);
        Self {
            traceparent: format!("00-{}-{}-{flags:02x}", self.trace_id(), self.span_id()),
            ..self
        }
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns the members of a `_meta` that passes the context on.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [
            ("tracestate", self.tracestate.as_deref()),
            ("baggage", self.baggage.as_deref()),
        ];
        std::iter::once(("traceparent", self.traceparent.as_str())).chain(
            optional
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?))),
        )
    }
}

/// The traces that are recorded, as the variables `OTEL_TRACES_SAMPLER` and
/// `OTEL_TRACES_SAMPLER_ARG` determine them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// True if the decision of the client counts, if there is one.
    follows_parent: bool,
    /// The share of the other traces that is recorded, from 0 to 1.
    ratio: f64,
}

impl Default for Sampler {
    /// Creates the sampler of a process without these variables.
    fn default() -> Self {
        Self {
            follows_parent: true,
            ratio: 1.0,
        }
    }
}

impl Sampler {
    /// Reads the variables. An unknown sampler counts as none, and an invalid share as 1, as the
    /// specification demands.
    pub fn of(environment: &Environment) -> Self {
        let name = environment.var("OTEL_TRACES_SAMPLER").unwrap_or_default();
        let name = name.trim().to_ascii_lowercase();
        let own = name.strip_prefix("parentbased_");
        let share = || {
            let share = environment.var("OTEL_TRACES_SAMPLER_ARG")?.trim();
            let share: f64 = share.parse().ok()?;
            (0.0..=1.0).contains(&share).then_some(share)
        };
        let ratio = match own.unwrap_or(&name) {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share().unwrap_or(1.0),
            "" => return Self::default(),
            _ => {
                // Each turn reads the variables, and the process cannot change them.
                static WARNED: Once = Once::new();
                WARNED.call_once(|| {
                    tracing::warn!("OTEL_TRACES_SAMPLER is not a known sampler, and is ignored");
                });
                return Self::default();
            }
        };
        Self {
            follows_parent: own.is_some(),
            ratio,
        }
    }

    /// Returns a place in a trace with the decision whether the trace is recorded.
    #[must_use]
    pub fn sampled(self, context: TraceContext, parent: Option<&TraceContext>) -> TraceContext {
        let is_sampled = match parent {
            Some(parent) if self.follows_parent => parent.flags() & SAMPLED != 0,
            _ => self.takes(context.trace_id()),
        };
        context.marked(is_sampled)
    }

    /// Returns whether a trace is in the share: decided by its id, so that all programs which take
    /// part in the trace agree.
    fn takes(self, trace: &str) -> bool {
        let last = trace.get(16..).unwrap_or_default();
        let number = u64::from_str_radix(last, 16).unwrap_or_default() >> 1;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the last bits of an id do not matter for a share"
        )]
        let limit = (self.ratio * (1_u64 << 63) as f64) as u64;
        number < limit
    }
}

/// Returns a `traceparent` in the format of version 00, or `None` if it is malformed. A later
/// version may add fields at the end, which are dropped.
fn parent(text: &str) -> Option<String> {
    let mut fields = text.trim().split('-');
    let mut field = |length: usize| {
        let field = fields.next()?;
        let is_hex = field
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (field.len() == length && is_hex).then_some(field)
    };
    let version = field(2)?;
    let trace = field(32)?;
    let span = field(16)?;
    let flags = field(2)?;
    let is_whole = version != "00" || fields.next().is_none();
    let is_set = |id: &str| id.bytes().any(|byte| byte != b'0');
    (version != "ff" && is_whole && is_set(trace) && is_set(span))
        .then(|| format!("00-{trace}-{span}-{flags}"))
}

/// Returns the id of the span of `subject`.
fn span(subject: &str) -> String {
    hash("span", subject)
}

/// Returns 16 hexadecimal digits, not all of them zero.
fn hash(purpose: &str, subject: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (purpose, subject).hash(&mut hasher);
    format!("{:016x}", hasher.finish().max(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn malformed_traceparent_counts_as_none() {
        let zeros = "0".repeat(32);
        let table = [
            ("usual", format!("00-{TRACE}-{SPAN}-01"), true),
            ("not sampled", format!("00-{TRACE}-{SPAN}-00"), true),
            (
                "of a later version",
                format!("cc-{TRACE}-{SPAN}-01-what-else"),
                true,
            ),
            (
                "with more than version 00 has",
                format!("00-{TRACE}-{SPAN}-01-x"),
                false,
            ),
            (
                "of the forbidden version",
                format!("ff-{TRACE}-{SPAN}-01"),
                false,
            ),
            (
                "in capitals",
                format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
                false,
            ),
            ("of no trace", format!("00-{zeros}-{SPAN}-01"), false),
            (
                "of no span",
                format!("00-{TRACE}-{}-01", &zeros[..16]),
                false,
            ),
            ("cut off", format!("00-{TRACE}-{SPAN}"), false),
            ("not ASCII", format!("00-{TRACE}-{SPAN}-ü"), false),
            ("empty", String::new(), false),
        ];
        for (name, text, is_valid) in table {
            let meta = json!({ "traceparent": text });
            let read = TraceContext::read(meta.as_object().unwrap());
            assert_eq!(read.is_some(), is_valid, "{name}");
            assert!(read.is_none_or(|read| read.trace_id() == TRACE), "{name}");
        }
        assert_eq!(
            TraceContext::read(json!({ "traceparent": 7 }).as_object().unwrap()),
            None
        );
    }

    #[test]
    fn child_has_the_trace_and_a_span_of_its_own() {
        let meta = json!({
            "traceparent": format!("00-{TRACE}-{SPAN}-00"), "tracestate": "a=1", "baggage": "b=2",
            "requestId": "r",
        });
        let parent = TraceContext::read(meta.as_object().unwrap()).unwrap();
        assert_eq!((parent.span_id(), parent.flags()), (SPAN, 0));
        let child = parent.child("call_1");
        assert_eq!((child.trace_id(), child.flags()), (TRACE, 0));
        assert_ne!(child.span_id(), SPAN);
        assert_eq!(
            child.span_id(),
            parent.child("call_2").child("call_1").span_id()
        );
        let members: Vec<_> = child.members().map(|(key, _)| key).collect();
        assert_eq!(members, ["traceparent", "tracestate", "baggage"]);
        let root = TraceContext::root("msg_1");
        assert_eq!((root.trace_id().len(), root.flags()), (32, SAMPLED));
        assert_ne!(root.trace_id(), TraceContext::root("msg_2").trace_id());
    }

    #[test]
    fn sampler_decides_which_traces_are_recorded() {
        let parent = |flags: &str| {
            let meta = json!({ "traceparent": format!("00-{TRACE}-{SPAN}-{flags}") });
            TraceContext::read(meta.as_object().unwrap())
        };
        // The last half of this trace's id is 0.64 of the largest.
        let yes = parent("01");
        let no = parent("00");
        for (sampler, share, of_none, of_sampled, of_dropped) in [
            ("", "", true, true, false),
            ("always_on", "", true, true, true),
            ("always_off", "", false, false, false),
            ("Traceidratio", "0.7", true, true, true),
            ("traceidratio", "0.6", false, false, false),
            ("traceidratio", "2", true, true, true),
            ("traceidratio", "", true, true, true),
            ("parentbased_always_on", "", true, true, false),
            ("parentbased_always_off", "", false, true, false),
            ("parentbased_traceidratio", "0.6", false, true, false),
            ("parentbased_traceidratio", "0.7", true, true, false),
            ("jaeger_remote", "", true, true, false),
        ] {
            let vars = [
                ("OTEL_TRACES_SAMPLER".to_owned(), sampler.to_owned()),
                ("OTEL_TRACES_SAMPLER_ARG".to_owned(), share.to_owned()),
            ];
            let sampler = Sampler::of(&Environment::from_vars(vars.into()));
            let is_sampled = |parent: Option<&TraceContext>| {
                let context = yes.clone().expect("a place in the trace").child("msg_1");
                let context = sampler.sampled(context, parent);
                assert_eq!(context.trace_id(), TRACE);
                context.flags() == SAMPLED
            };
            assert_eq!(
                [
                    is_sampled(None),
                    is_sampled(yes.as_ref()),
                    is_sampled(no.as_ref())
                ],
                [of_none, of_sampled, of_dropped],
                "{vars:?}",
                vars = (sampler, share)
            );
        }
    }

    #[test]
    fn stored_context_that_is_damaged_has_no_ids() {
        let damaged: TraceContext = serde_json::from_value(json!({ "traceparent": "0é" })).unwrap();
        assert_eq!(
            (damaged.trace_id(), damaged.span_id(), damaged.flags()),
            ("", "", 0)
        );
    }
}
