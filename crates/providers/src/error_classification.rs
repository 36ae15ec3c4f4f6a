//! Maps the errors of providers to [`Error`]: HTTP responses that are no answers
//! ([`classify_response`]), and error objects inside of an answer ([`classify_event`]).
//!
//! Providers agree neither on codes nor on statuses (a conversation that is too long is a 400, a
//! 413, a 422 or an event inside a 200), so phrases of the text are as important as the numbers.
//! The message of the resulting error names the provider, the status and the reason.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::Error;
use base::environment::Timestamp;

/// A requested wait that is longer than this is stated in the message, because the user will not
/// wait for it.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(60);
/// The maximum length of the reason in a message, in characters.
const MAX_REASON_CHARS: usize = 600;

/// The phrase before the target in the message about a redirect.
pub(crate) const REDIRECT_PHRASE: &str = ": it redirects to ";

/// Returns the error of an HTTP response that is not an answer. `server_name` is the provider's
/// display name; `now` is needed for a `retry-after` date.
pub fn classify_response(
    server_name: &str,
    status: u16,
    headers: &HeaderMap,
    body: &str,
    now: Timestamp,
) -> Error {
    let error = ErrorBody::read(body);
    let wait = requested_wait(headers, &error.body, now);
    let phrase = reqwest::StatusCode::from_u16(status)
        .ok()
        .and_then(|s| s.canonical_reason());
    let mut reason = error.reason(body);
    // Some servers only repeat the phrase of the status.
    if phrase.is_some_and(|phrase| phrase.eq_ignore_ascii_case(reason.trim_end_matches('.'))) {
        reason.clear();
    }
    let head = match phrase {
        Some(phrase) => format!("{server_name} answered {status} {phrase}"),
        None => format!("{server_name} answered {status}"),
    };
    let mut message = if reason.is_empty() {
        format!("{head}.")
    } else {
        format!("{head}: {}", sentence(&reason))
    };
    if error.is_html {
        message = match status {
            401 | 403 => format!(
                "{head} with a web page: a gateway or proxy in between blocked the request."
            ),
            _ => format!("{head} with a web page instead of an answer: {reason}"),
        };
    }
    if (300..400).contains(&status) {
        let target = headers
            .get("location")
            .and_then(|v| v.to_str().ok())
            .unwrap_or("another address");
        let message = format!("{head}{REDIRECT_PHRASE}{target}.");
        return Error::BadRequest(message);
    }
    if let Some(requested) = wait.filter(|wait| *wait > MIN_REPORTED_WAIT) {
        message = format!("{message} It asks to wait {}.", format_wait(requested));
    }
    classify(&ErrorHints {
        status: Some(status),
        wait,
        ..error.hints(&reason)
    })
    .into_error(message, wait)
}

/// Returns the error of an error object inside of an answer.
pub fn classify_event(server_name: &str, error: &Value) -> Error {
    let parsed = ErrorBody {
        body: error.clone(),
        is_html: false,
    };
    let reason = parsed.reason("");
    let hints = parsed.hints(&reason);
    let message = match (&reason, hints.codes.first()) {
        (reason, _) if !reason.is_empty() => {
            format!("{server_name} broke off: {}", sentence(reason))
        }
        (_, Some(code)) => format!("{server_name} broke off: {}", sentence(code)),
        _ => format!("{server_name} broke off without a reason."),
    };
    // A number in the `code` of an event is the HTTP status that the error would have had.
    let status = hints
        .codes
        .iter()
        .find_map(|code| code.parse().ok())
        .filter(|n| (400..600).contains(n));
    let wait = requested_wait(&HeaderMap::new(), error, Timestamp::default());
    classify(&ErrorHints {
        status,
        wait,
        ..hints
    })
    .into_error(message, wait)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorKind {
    Overflow,
    Image,
    Auth,
    Quota,
    RateLimited,
    Overloaded,
    Filtered,
    BadRequest,
    Network,
}

impl ErrorKind {
    fn into_error(self, message: String, retry_after: Option<Duration>) -> Error {
        match self {
            Self::Overflow => Error::ContextOverflow(message),
            Self::Image => Error::ImageRejected(message),
            Self::Auth => Error::Auth(message),
            Self::Quota => Error::Quota(message),
            Self::RateLimited => Error::RateLimited {
                message,
                retry_after,
            },
            Self::Overloaded => Error::Overloaded {
                message,
                retry_after,
            },
            Self::Filtered => Error::ContentFiltered(message),
            Self::BadRequest => Error::BadRequest(message),
            Self::Network => Error::Network(message),
        }
    }
}

/// The facts of a response that determine the kind of its error.
#[derive(Default)]
struct ErrorHints {
    /// The HTTP status; `None` inside of an answer.
    status: Option<u16>,
    /// All codes and types in the body, in lower case.
    codes: Vec<String>,
    /// The text, in lower case.
    text: String,
    /// The wait that the provider requests.
    wait: Option<Duration>,
}

impl ErrorHints {
    fn has_any_code(&self, any: &[&str]) -> bool {
        self.codes.iter().any(|code| any.contains(&code.as_str()))
    }

    fn contains_any(&self, any: &[&str]) -> bool {
        any.iter().any(|part| self.text.contains(part))
    }
}

/// Phrases of errors about a conversation that is too long, from the providers' documentation and
/// from users' reports.
const OVERFLOW_PHRASES: &[&str] = &[
    "prompt is too long",
    "input is too long",
    "maximum context length",
    "context length exceeded",
    "context_length_exceeded",
    "exceeds the context window",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the model's context",
    "context window exceeds limit",
    "context window is too small",
    "exceeds the maximum number of tokens",
    "input token count",
    "maximum prompt length",
    "reduce the length of the messages",
    "reduce the length of the input",
    "greater than the context length",
    "larger than the maximum context",
    "exceeded model token limit",
    "too many tokens in prompt",
    "request_too_large",
    "model_context_window_exceeded",
    "too large for model with",
    "tokens exceed the configured limit",
    "prompt token count of",
    "range of input length should be",
    "n_ctx",
];

/// True if a text states that the request has too many tokens. It must contain words for the input,
/// for its size, and for an excess; so messages about the length of the answer or of a field do not
/// match.
fn is_too_long(text: &str) -> bool {
    let tokens: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let has_word = |any: &[&str]| tokens.iter().any(|token| any.contains(token));
    let contains = |any: &[&str]| any.iter().any(|part| text.contains(part));
    let names_input = has_word(&[
        "prompt",
        "prompts",
        "input",
        "inputs",
        "context",
        "conversation",
        "sequence",
    ]) || contains(&["model length", "model's length", "total number of tokens"]);
    let names_size = has_word(&["token", "tokens", "context", "window"])
        || (has_word(&["prompt"]) && has_word(&["length"]));
    let names_excess = contains(&[
        "exceed",
        "longer than",
        "larger than",
        "greater than",
        "more than the",
        "too long",
        "too large",
        "too many tokens",
        "must be <=",
        "must be less",
        "must have less",
        "must have at most",
        "overflow",
        "over the limit",
        "over the maximum",
        "does not fit",
        "do not fit",
        "doesn't fit",
        "maximum model length",
    ]);
    // Validation errors about a parameter begin like this.
    names_input && names_size && names_excess && !contains(&["should be", "should have"])
}

/// Phrases of errors about an exhausted quota or account.
const QUOTA_PHRASES: &[&str] = &[
    "insufficient_quota",
    "exceeded your current quota",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
    "insufficient funds",
    "requires more credits",
    "billing hard limit",
    "billing_not_active",
    "payment required",
    "freeusagelimiterror",
    "gousagelimiterror",
    "usage_not_included",
    "monthly usage limit",
    "spending limit",
    "arrears",
];

/// Phrases of errors of a server that accepts the same request later.
const BUSY_PHRASES: &[&str] = &[
    "overloaded",
    "service unavailable",
    "service is temporarily unavailable",
    "temporarily unavailable",
    "at capacity",
    "try again later",
    "please retry",
    "retry your request",
];

/// Phrases of errors about a failure of the server itself. They are ignored if the status rejects
/// the request (4xx): then they only name the part of the server that rejects it.
const BROKEN_PHRASES: &[&str] = &[
    "internal server error",
    "internal error",
    "server error",
    "bad gateway",
    "gateway timeout",
    "upstream connect",
    "provider returned error",
];

/// Phrases of errors of a content filter.
const FILTER_PHRASES: &[&str] = &[
    "content management policy",
    "content filtering policy",
    "content_policy_violation",
    "content_filter",
    "responsibleaipolicyviolation",
    "safety reasons",
    "data_inspection_failed",
];

/// Phrases of errors about a rejected image.
const IMAGE_PHRASES: &[&str] = &[
    "could not process image",
    "unable to process input image",
    "unable to process image",
    "failed to process image",
    "image does not match the provided media type",
    "image was specified using the image/",
    "invalid image",
    "unsupported image",
    "image is not valid",
    "not a valid image",
    "image exceeds",
    "image dimensions exceed",
    "image size exceeds",
    "image too large",
    "image is too large",
    "image_parse_error",
    "invalid_image",
    "image data you provided does not represent a valid image",
    "support image input",
    "support image_url",
    "support image inputs",
    "support images",
    "support vision",
    "image input is not",
    "image inputs are not",
    "images are not supported",
    "image_url is only supported",
    "unknown variant `image_url`",
    "not a multimodal model",
    "multimodal input is not",
    "does not support multimodal",
];

fn classify(hints: &ErrorHints) -> ErrorKind {
    let may_concern_content = !matches!(hints.status, Some(401 | 403 | 408 | 429));
    if may_concern_content && hints.contains_any(IMAGE_PHRASES) {
        ErrorKind::Image
    } else {
        classify_without_images(hints)
    }
}

fn classify_without_images(hints: &ErrorHints) -> ErrorKind {
    let status = hints.status.unwrap_or(0);
    let rate = hints.has_any_code(&[
        "rate_limit_exceeded",
        "rate_limit_error",
        "too_many_requests",
        "throttlingexception",
    ]) || hints.contains_any(&[
        "rate limit",
        "rate_limit",
        "too many requests",
        "requests per minute",
        "tokens per minute",
    ]);
    let overflow_code = hints.has_any_code(&[
        "context_length_exceeded",
        "model_context_window_exceeded",
        "request_too_large",
        "exceed_context_size_error",
    ]);
    if overflow_code
        || status == 413
        || (status != 429
            && !rate
            && status < 500
            && (hints.contains_any(OVERFLOW_PHRASES) || is_too_long(&hints.text)))
    {
        return ErrorKind::Overflow;
    }
    let quota = status == 402
        || hints.has_any_code(&[
            "insufficient_quota",
            "billing_error",
            "billing_not_active",
            "freeusagelimiterror",
            "gousagelimiterror",
        ])
        || hints.contains_any(QUOTA_PHRASES);
    // Google reports "exceeded your current quota" for a quota per minute too, and then the
    // time of a retry. The code of OpenAI has one meaning, whatever the headers say.
    let is_used_up = hints.has_any_code(&["insufficient_quota", "billing_not_active"]);
    if is_used_up || quota && !(status == 429 && hints.wait.is_some()) {
        return ErrorKind::Quota;
    }
    if hints.contains_any(FILTER_PHRASES)
        || hints.has_any_code(&["content_filter", "content_policy_violation", "refusal"])
    {
        return ErrorKind::Filtered;
    }
    match status {
        401 | 403 => return ErrorKind::Auth,
        407 => return ErrorKind::Network,
        429 => return ErrorKind::RateLimited,
        408 | 425 | 500.. => return ErrorKind::Overloaded,
        _ => {}
    }
    if rate || hints.has_any_code(&["resource_exhausted"]) {
        return ErrorKind::RateLimited;
    }
    let auth = hints.has_any_code(&[
        "authentication_error",
        "permission_error",
        "invalid_api_key",
        "unauthenticated",
        "permission_denied",
    ]) || hints.contains_any(&[
        "api key not valid",
        "invalid api key",
        "incorrect api key",
        "invalid_api_key",
        "no api key",
    ]);
    if auth {
        return ErrorKind::Auth;
    }
    // Ollama and others have `api_error` for invalid requests as well, with their status.
    let is_rejected = (400..500).contains(&status);
    let busy = hints.has_any_code(&["overloaded_error", "unavailable", "server_is_overloaded"])
        || !is_rejected
            && hints.has_any_code(&["api_error", "server_error", "internal", "timeout_error"]);
    if status == 0 {
        // Inside an answer the request was already accepted, so it is not invalid, unless a code
        // states it.
        let bad = hints.has_any_code(&[
            "invalid_request_error",
            "invalid_prompt",
            "invalid_argument",
            "not_found_error",
            "model_not_found",
        ]);
        return if bad && !busy {
            ErrorKind::BadRequest
        } else {
            ErrorKind::Overloaded
        };
    }
    let says_busy =
        hints.contains_any(BUSY_PHRASES) || !is_rejected && hints.contains_any(BROKEN_PHRASES);
    if busy || says_busy && status != 404 {
        ErrorKind::Overloaded
    } else {
        ErrorKind::BadRequest
    }
}

/// The body of an error response.
struct ErrorBody {
    /// The parsed JSON; `null` if it is something else.
    body: Value,
    is_html: bool,
}

impl ErrorBody {
    fn read(body: &str) -> Self {
        let is_html = body.trim_start().starts_with('<');
        let parsed = if is_html {
            Value::Null
        } else {
            serde_json::from_str(body).unwrap_or(Value::Null)
        };
        // Gemini wraps its errors in a list.
        let parsed = match parsed {
            Value::Array(mut list) if !list.is_empty() => list.swap_remove(0),
            other => other,
        };
        Self {
            body: parsed,
            is_html,
        }
    }

    /// Returns the object that contains the message.
    fn inner(&self) -> &Value {
        match self.body.get("error") {
            Some(inner @ Value::Object(_)) => inner,
            _ => &self.body,
        }
    }

    /// Returns the provider's message, shortened; `raw` is the text of the body, which is used if
    /// no message is found in it.
    fn reason(&self, raw: &str) -> String {
        let inner = self.inner();
        // OpenRouter puts the error of the upstream provider into `metadata.raw`.
        let upstream = inner
            .pointer("/metadata/raw")
            .and_then(Value::as_str)
            .map(|raw| {
                let reason = Self::read(raw).reason(raw);
                if reason.is_empty() {
                    raw.to_owned()
                } else {
                    reason
                }
            });
        let direct = [
            "message",
            "msg",
            "detail",
            "error_description",
            "error",
            "reason",
            "errorMessage",
        ]
        .iter()
        .find_map(|key| inner.get(key).and_then(text_of))
        .or_else(|| inner.pointer("/errors/0/message").and_then(text_of))
        .or_else(|| inner.pointer("/detail/0").and_then(validation_message))
        .or_else(|| inner.as_str().map(str::to_owned));
        let direct = direct.map(|direct| with_tool(direct, inner));
        let text = match (direct, upstream) {
            (Some(direct), Some(upstream)) => format!("{direct} ({upstream})"),
            (Some(reason), None) | (None, Some(reason)) => reason,
            (None, None) if self.is_html => excerpt(raw.as_bytes()),
            (None, None) => raw.trim().to_owned(),
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        shortened(&text, MAX_REASON_CHARS)
    }

    /// Returns the codes and the text for the classification.
    fn hints(&self, reason: &str) -> ErrorHints {
        let inner = self.inner();
        let codes = ["code", "type", "status", "reason", "__type"]
            .iter()
            .flat_map(|key| [inner.get(key), self.body.get(key)])
            .flatten()
            .filter_map(|value| match value {
                Value::String(s) => Some(s.to_lowercase()),
                Value::Number(n) => Some(n.to_string()),
                _ => None,
            })
            .filter(|code| code != "error")
            .collect::<Vec<_>>();
        let text = format!("{} {}", reason.to_lowercase(), codes.join(" "));
        ErrorHints {
            status: None,
            codes,
            text,
            wait: None,
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(s) if !s.trim().is_empty() => Some(s.clone()),
        Value::Object(_) => value.get("message").and_then(text_of),
        _ => None,
    }
}

/// Returns the message of an item of FastAPI's list of validation errors, with the path of the
/// field before it.
fn validation_message(detail: &Value) -> Option<String> {
    let text = detail.get("msg").and_then(text_of)?;
    let steps = detail.get("loc").and_then(Value::as_array);
    let steps = steps.into_iter().flatten().filter_map(|step| match step {
        Value::String(name) => Some(name.clone()),
        Value::Number(index) => Some(index.to_string()),
        _ => None,
    });
    let path = steps.collect::<Vec<_>>().join(".");
    Some(if path.is_empty() {
        text
    } else {
        format!("{path}: {text}")
    })
}

/// Adds the name of the parameter that is wrong to the message of an error, if the parameter is a
/// declared tool.
fn with_tool(message: String, error: &Value) -> String {
    let param = error.get("param").and_then(Value::as_str);
    match param.filter(|param| param.starts_with("tools") || param.starts_with("functions")) {
        Some(param) if !message.contains(param) => {
            format!("{} ({param})", message.trim_end_matches('.'))
        }
        _ => message,
    }
}

/// Returns the wait that the provider requests: `retry-after-ms`, `retry-after` in seconds or as a
/// date, Gemini's `retryDelay`. `None` for a time in the past and for invalid values.
fn requested_wait(headers: &HeaderMap, body: &Value, now: Timestamp) -> Option<Duration> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    let found = header("retry-after-ms")
        .and_then(finite_number)
        .map(|ms| ms / 1000.0)
        .or_else(|| header("retry-after").and_then(finite_number))
        .or_else(|| {
            let date = header("retry-after")?;
            let at = jiff::fmt::rfc2822::parse(date)
                .ok()?
                .timestamp()
                .as_millisecond();
            Some((at as f64 - now.0 as f64) / 1000.0)
        })
        .or_else(|| {
            let details = body
                .pointer("/error/details")
                .or_else(|| body.get("details"))?
                .as_array()?;
            let delay = details.iter().find_map(|d| d.get("retryDelay"))?.as_str()?;
            finite_number(delay.strip_suffix('s')?)
        })?;
    (found > 0.0).then(|| Duration::from_secs_f64(found.min(1e9)))
}

fn finite_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

fn format_wait(wait: Duration) -> String {
    let minutes = wait.as_secs().div_ceil(60);
    match minutes {
        0..=119 => format!("{minutes} minutes"),
        120..=2879 => format!("{} hours", minutes.div_ceil(60)),
        _ => format!("{} days", minutes.div_ceil(1440)),
    }
}

fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the first 200 bytes of unexpected data, escaped for display.
pub fn excerpt(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(200)];
    let text = String::from_utf8_lossy(cut);
    let more = if bytes.len() > cut.len() { "…" } else { "" };
    format!("\"{}{more}\"", text.trim().escape_debug())
}

#[cfg(test)]
mod tests;
