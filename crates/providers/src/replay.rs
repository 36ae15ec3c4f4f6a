//! The model `replay:dir` ([`ReplayProvider`]), which answers from a directory of recordings
//! ([`super::recording`]), without key or network.
//!
//! A request is answered with the recorded answer to the same conversation, otherwise with the next
//! recording that was not replayed yet. Each recording is replayed once.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::http::{self, RequestTimeouts};
use super::recording::{RecordLine, RecordedRequest};
use super::request_target::{RequestOptions, RequestTarget};
use super::{AnswerStream, Error, Model, Provider, Request, error_classification, platform};
use base::environment::Timestamp;
use base::lock::lock;
use transcript::ModelRef;

/// A provider that replays a directory of recordings.
pub struct ReplayProvider {
    dir: PathBuf,
    // A leaf lock around the exchanges that were not replayed yet; `None` before the first request.
    remaining: Mutex<Option<VecDeque<Exchange>>>,
}

/// A recorded exchange.
struct Exchange {
    request: Box<RecordedRequest>,
    /// The lines after the request.
    lines: Vec<RecordLine>,
}

impl ReplayProvider {
    /// Creates a provider that replays the recordings in a directory.
    pub fn new(dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            dir: dir.into(),
            remaining: Mutex::new(None),
        })
    }

    /// Returns the model of the next recording, under the given id; a model with default properties
    /// if there is none.
    pub fn model(&self, id: &ModelRef) -> Model {
        let first = self.with_remaining(|remaining| {
            remaining
                .front()
                .map(|exchange| exchange.request.model.clone())
        });
        first.flatten().map_or_else(
            || Model::unknown(id.clone()),
            |facts| facts.into_model(id.clone()),
        )
    }

    /// Calls `work` with the remaining exchanges; returns `None` if they cannot be read.
    fn with_remaining<T>(&self, work: impl FnOnce(&mut VecDeque<Exchange>) -> T) -> Option<T> {
        let mut remaining = lock(&self.remaining);
        if remaining.is_none() {
            *remaining = read_exchanges(&self.dir).ok();
        }
        remaining.as_mut().map(work)
    }

    /// Removes and returns the exchange that answers a request.
    ///
    /// # Errors
    /// There are no recordings, or all have been replayed.
    fn take_exchange(&self, request: &Request) -> Result<Exchange, Error> {
        let missing = |what: &str| {
            let dir = self.dir.display();
            Error::BadRequest(format!(
                "{what} in {dir}. ADJUTANT_RECORD=dir writes what `replay:dir` plays."
            ))
        };
        let found = self.with_remaining(|remaining| {
            let is_same_conversation = |exchange: &Exchange| {
                let wire = platform::find_wire_format(&exchange.request.wire)?;
                let model = Arc::new(
                    exchange
                        .request
                        .model
                        .clone()
                        .into_model(request.model.id.clone()),
                );
                let request = Request {
                    model,
                    ..request.clone()
                };
                let call = wire
                    .encode(
                        &request,
                        &RequestTarget::default(),
                        &RequestOptions::default(),
                    )
                    .ok()?;
                let recorded = conversation(exchange.request.body.get().as_bytes())?;
                Some(conversation(&call.body)? == recorded)
            };
            let at = remaining
                .iter()
                .position(|exchange| is_same_conversation(exchange) == Some(true))
                .unwrap_or(0);
            remaining.remove(at)
        });
        match found {
            None => Err(missing("There are no recordings")),
            Some(None) => Err(missing("Everything has been played")),
            Some(Some(exchange)) => Ok(exchange),
        }
    }
}

/// Returns the conversation in the body of a request; `None` if it has none.
fn conversation(body: &[u8]) -> Option<serde_json::Value> {
    let mut body: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
    ["messages", "input", "contents"]
        .iter()
        .find_map(|name| body.remove(*name))
}

/// Reads the recordings of a directory, in the order of their names. Invalid files are left out.
fn read_exchanges(dir: &Path) -> io::Result<VecDeque<Exchange>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
    });
    paths.sort();
    let exchange = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let mut lines = text
            .lines()
            .map_while(|line| serde_json::from_str(line).ok());
        match lines.next()? {
            RecordLine::Request(request) => Some(Exchange {
                request,
                lines: lines.collect(),
            }),
            _ => None,
        }
    };
    Ok(paths.iter().filter_map(exchange).collect())
}

impl Provider for Arc<ReplayProvider> {
    fn stream(&self, request: Arc<Request>) -> AnswerStream {
        match self.take_exchange(&request) {
            Ok(exchange) => exchange.play(),
            Err(e) => Box::pin(futures_util::stream::iter([Err(e)])),
        }
    }
}

impl Exchange {
    /// Returns the recorded answer, or the recorded error.
    fn play(self) -> AnswerStream {
        let fail = |e: Error| -> AnswerStream { Box::pin(futures_util::stream::iter([Err(e)])) };
        let name = self.request.provider;
        let Some(wire) = platform::find_wire_format(&self.request.wire) else {
            return fail(Error::BadRequest(format!(
                "The wire \"{}\" is not supported.",
                self.request.wire
            )));
        };
        let mut status = None;
        let mut headers = HeaderMap::new();
        let mut pieces: Vec<Result<Bytes, Error>> = Vec::new();
        for line in self.lines {
            match line {
                RecordLine::Request(_) | RecordLine::End => {}
                RecordLine::Response {
                    status: code,
                    headers: named,
                } => {
                    status = Some(code);
                    let named = named.iter().filter_map(|(name, value)| {
                        Some((
                            name.parse::<HeaderName>().ok()?,
                            value.parse::<HeaderValue>().ok()?,
                        ))
                    });
                    headers = named.collect();
                }
                RecordLine::Text(text) => pieces.push(Ok(text.into())),
                RecordLine::Bytes(text) => {
                    pieces.push(STANDARD.decode(text).map(Bytes::from).map_err(|e| {
                        Error::InvalidAnswer(format!("The recording is damaged: {e}."))
                    }))
                }
                RecordLine::Failure(why) => pieces.push(Err(Error::Network(why))),
            }
        }
        match status {
            None => fail(match pieces.pop() {
                Some(Err(e)) => e,
                _ => Error::Network(format!("{name} was not reached when this was recorded.")),
            }),
            Some(200..=299) => {
                let target = RequestTarget {
                    name: name.clone(),
                    ..RequestTarget::default()
                };
                let bytes = futures_util::stream::iter(pieces).boxed();
                http::decode_recorded(
                    name.into(),
                    bytes,
                    wire.decoder(&target),
                    RequestTimeouts::default(),
                )
            }
            Some(code) => {
                let body: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
                fail(error_classification::classify_response(
                    &name,
                    code,
                    &headers,
                    &String::from_utf8_lossy(&body),
                    Timestamp::default(),
                ))
            }
        }
    }
}
