//! Records the traffic with providers, for bug reports and tests.
//!
//! With `ADJUTANT_RECORD=dir`, every exchange is written to a file `0001.jsonl`, `0002.jsonl` … in
//! that directory: the request, then the response, chunk by chunk, one `RecordLine` per line. Keys
//! are left out: only harmless headers are written, URLs lose their query, and the key itself is
//! replaced everywhere. The text of the conversation is recorded unchanged.
//!
//! [`super::replay`] replays such a directory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::wire_format::HttpCall;
use super::{Error, Model};
use crate::entry::Rates;
use crate::secret::{Secret, without_secrets};
use base::environment::{Environment, private_dir, private_file};
use base::lock::lock;
use transcript::ModelRef;

/// The headers that are recorded; all others may contain keys.
const RECORDED_HEADERS: &[&str] = &[
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "content-encoding",
    "retry-after",
    "retry-after-ms",
    "request-id",
    "x-request-id",
    "user-agent",
];

/// One line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RecordLine {
    /// The request, always the first line; `asked` in files.
    #[serde(rename = "asked")]
    Request(Box<RecordedRequest>),
    /// The status and headers of the response; before all of its data.
    #[serde(rename = "came")]
    Response {
        status: u16,
        headers: Vec<(String, String)>,
    },
    /// A chunk of the response.
    Text(String),
    /// A chunk of the response that is not valid UTF-8 on its own, in Base64.
    Bytes(String),
    /// An error: the connection broke, or could not be made.
    #[serde(rename = "broken")]
    Failure(String),
    End,
}

/// The request of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedRequest {
    /// The version of adjutant.
    adjutant: String,
    /// The name of the wire format.
    pub(super) wire: String,
    /// The provider's display name.
    pub(super) provider: String,
    pub(super) model: RecordedModel,
    /// The URL without its query.
    url: String,
    /// The harmless headers: name, value.
    headers: Vec<(String, String)>,
    pub(super) body: Box<RawValue>,
}

/// The properties of a model that affect the encoding of requests and the display; see [`Model`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RecordedModel {
    id: String,
    name: String,
    api_id: String,
    context: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    /// The rates: input, output, cache read, cache write.
    price: Option<[f64; 4]>,
    images: bool,
    pdf: bool,
    audio: bool,
    tools: bool,
    reasoning: bool,
    temperature: bool,
}

impl RecordedModel {
    fn from_model(model: &Model) -> Self {
        let rates = |rates: Rates| {
            [
                rates.input,
                rates.output,
                rates.cache_read,
                rates.cache_write,
            ]
        };
        Self {
            id: model.id.to_string(),
            name: model.name.clone(),
            api_id: model.api_id.clone(),
            context: model.context,
            input: model.input,
            output: model.output,
            price: model.price.as_ref().map(|price| rates(price.base)),
            images: model.images.is_supported(),
            pdf: model.pdf,
            audio: model.audio,
            tools: model.tools,
            reasoning: model.reasoning,
            temperature: model.temperature,
        }
    }

    /// Converts the properties to those of the model with this id.
    pub(super) fn into_model(self, id: ModelRef) -> Model {
        let rates = |[input, output, read, write]: [f64; 4]| {
            Rates::new(input, output, Some(read), Some(write)).into()
        };
        Model {
            name: self.name,
            provider_name: "Replay".into(),
            api_id: self.api_id,
            context: self.context,
            input: self.input,
            output: self.output,
            price: self.price.map(rates),
            images: self.images.into(),
            pdf: self.pdf,
            audio: self.audio,
            tools: self.tools,
            reasoning: self.reasoning,
            temperature: self.temperature,
            ..Model::unknown(id)
        }
    }
}

/// The recording of one exchange. Data is appended as it arrives, so that a crash loses none that
/// arrived before it.
pub struct Recording {
    // A leaf lock around a file; never held across an await.
    file: Mutex<File>,
    /// The keys to redact.
    keys: Vec<Secret>,
}

impl Recording {
    /// Starts a recording with its request. `None` unless `ADJUTANT_RECORD` is set, or if no file
    /// can be created. `wire` is the name of the wire format, `provider` the provider's display
    /// name; `keys` are redacted.
    pub fn start(
        environment: &Environment,
        wire: &str,
        provider: &str,
        model: &Model,
        call: &HttpCall,
        keys: &[Secret],
    ) -> Option<Arc<Self>> {
        let dir = PathBuf::from(environment.var("ADJUTANT_RECORD")?);
        match Self::open(&dir) {
            Ok(file) => {
                let recording = Self {
                    file: Mutex::new(file),
                    keys: keys.to_vec(),
                };
                let body = String::from_utf8_lossy(&call.body).into_owned();
                let body = RawValue::from_string(recording.redact(&body))
                    .or_else(|_| RawValue::from_string("null".into()));
                let headers = call
                    .headers
                    .iter()
                    .filter(|(name, _)| is_recorded_header(name))
                    .map(|(name, value)| (name.clone(), recording.redact(value)))
                    .collect();
                recording.write(&RecordLine::Request(Box::new(RecordedRequest {
                    adjutant: env!("CARGO_PKG_VERSION").into(),
                    wire: wire.into(),
                    provider: provider.into(),
                    model: RecordedModel::from_model(model),
                    url: call.url.split(['?', '#']).next().unwrap_or_default().into(),
                    headers,
                    body: body.ok()?,
                })));
                Some(Arc::new(recording))
            }
            Err(e) => {
                tracing::error!(
                    "ADJUTANT_RECORD names {}, where nothing can be written: {e}",
                    dir.display()
                );
                None
            }
        }
    }

    /// Creates the next unused file, safe against concurrent recordings.
    fn open(dir: &Path) -> io::Result<File> {
        // The permissions of an existing directory stay: it may be `/tmp`.
        if !dir.is_dir() {
            private_dir(dir)?;
        }
        let taken = std::fs::read_dir(dir)?.count();
        let mut number = taken + 1;
        loop {
            let path = dir.join(format!("{number:04}.jsonl"));
            match private_file().append(true).create_new(true).open(path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                done => return done,
            }
        }
    }

    /// Records the status and the harmless headers of the response.
    pub fn record_status(&self, status: u16, headers: &HeaderMap) {
        let recorded = headers
            .iter()
            .filter(|(name, _)| is_recorded_header(name.as_str()));
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = recorded
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        self.write(&RecordLine::Response { status, headers });
    }

    /// Records a chunk of the response.
    pub fn record_bytes(&self, bytes: &[u8]) {
        self.write(&match std::str::from_utf8(bytes) {
            Ok(text) => RecordLine::Text(self.redact(text)),
            Err(_) => RecordLine::Bytes(STANDARD.encode(bytes)),
        });
    }

    /// Records that the connection broke, or could not be made.
    pub fn record_failure(&self, e: &Error) {
        self.write(&RecordLine::Failure(self.redact(&e.to_string())));
    }

    /// Records the regular end of the response.
    pub fn record_end(&self) {
        self.write(&RecordLine::End);
    }

    fn redact(&self, text: &str) -> String {
        without_secrets(text, &self.keys)
    }

    fn write(&self, line: &RecordLine) {
        let mut file = lock(&self.file);
        let written = serde_json::to_string(line)
            .map_err(io::Error::other)
            .and_then(|text| writeln!(file, "{text}"));
        if let Err(e) = written {
            tracing::error!("a recording cannot be written: {e}");
        }
    }
}

fn is_recorded_header(name: &str) -> bool {
    RECORDED_HEADERS
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Recordings are attached to bug reports and replayed by later versions, so their names stay.
    #[test]
    fn recorded_lines_have_these_names() {
        let request = RecordedRequest {
            adjutant: "1.0.0".into(),
            wire: "chat".into(),
            provider: "local".into(),
            model: RecordedModel {
                id: "local/m".into(),
                price: Some([1.0, 2.0, 3.0, 4.0]),
                ..RecordedModel::default()
            },
            url: "http://localhost/v1".into(),
            headers: vec![("accept".into(), "*/*".into())],
            body: RawValue::from_string("{}".into()).unwrap(),
        };
        let table = [
            (
                "request",
                RecordLine::Request(Box::new(request)),
                json!({"asked": {
                    "adjutant": "1.0.0",
                    "wire": "chat",
                    "provider": "local",
                    "model": {
                        "id": "local/m",
                        "name": "",
                        "apiId": "",
                        "context": null,
                        "input": null,
                        "output": null,
                        "price": [1.0, 2.0, 3.0, 4.0],
                        "images": false,
                        "pdf": false,
                        "audio": false,
                        "tools": false,
                        "reasoning": false,
                        "temperature": false,
                    },
                    "url": "http://localhost/v1",
                    "headers": [["accept", "*/*"]],
                    "body": {},
                }}),
            ),
            (
                "status",
                RecordLine::Response {
                    status: 200,
                    headers: Vec::new(),
                },
                json!({"came": {"status": 200, "headers": []}}),
            ),
            ("text", RecordLine::Text("a".into()), json!({"text": "a"})),
            (
                "bytes",
                RecordLine::Bytes("/w==".into()),
                json!({"bytes": "/w=="}),
            ),
            (
                "error",
                RecordLine::Failure("reset".into()),
                json!({"broken": "reset"}),
            ),
            ("end", RecordLine::End, json!("end")),
        ];
        for (name, line, expected) in table {
            let written = serde_json::to_string(&line).unwrap();
            let value: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(value, expected, "{name}");
            assert!(
                serde_json::from_str::<RecordLine>(&written).is_ok(),
                "{name}"
            );
        }
    }
}
