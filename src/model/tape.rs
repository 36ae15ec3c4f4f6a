//! Traffic with providers, written down and played back: for bug reports, and for tests of what a
//! real provider once said.
//!
//! With `ADJUTANT_RECORD=dir` every exchange becomes a file `0001.jsonl`, `0002.jsonl` … in that
//! directory: what was asked, then what came, piece by piece. Keys are left out: of the request's
//! headers only harmless ones are written, addresses lose their query, and the key itself is
//! replaced wherever it stands. What was said in the conversation is in it as it was said.
//!
//! The model `replay:dir` answers from such a directory, without key or network: the exchange with
//! the same request, else the next one that was not played yet.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::http::{self, RequestTimeouts};
use super::wire::{Call, Knobs, Target};
use super::{Answer, Error, Model, Provider, Request, classify, platform};
use crate::config::settings::{Rates, Secret};
use crate::environment::{Environment, Timestamp, private_dir, private_file};
use crate::lock::locked;
use crate::message::ModelRef;

/// Headers worth keeping; all others may hold keys.
const HARMLESS: &[&str] = &[
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

/// A line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RecordLine {
    /// What was asked.
    Asked(Box<RecordedRequest>),
    /// What came, first of all.
    Came { status: u16, headers: Vec<(String, String)> },
    /// A piece of the answer.
    Text(String),
    /// A piece of the answer that is no text by itself.
    Bytes(String),
    /// The connection broke, or none could be made.
    Broken(String),
    /// The answer was over.
    End,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedRequest {
    adjutant: String,
    wire: String,
    provider: String,
    model: RecordedModel,
    url: String,
    headers: Vec<(String, String)>,
    body: Box<RawValue>,
}

/// What of a model has a part in what the user sees.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RecordedModel {
    id: String,
    name: String,
    api_id: String,
    context: Option<u64>,
    input: Option<u64>,
    output: Option<u64>,
    /// Input, output, cache read, cache write.
    price: Option<[f64; 4]>,
    images: bool,
    pdf: bool,
    tools: bool,
    reasoning: bool,
    temperature: bool,
}

impl RecordedModel {
    fn of(model: &Model) -> Self {
        let rates = |rates: Rates| [rates.input, rates.output, rates.cache_read, rates.cache_write];
        Self {
            id: model.id.to_string(),
            name: model.name.clone(),
            api_id: model.api_id.clone(),
            context: model.context,
            input: model.input,
            output: model.output,
            price: model.price.as_ref().map(|price| rates(price.base)),
            images: model.images,
            pdf: model.pdf,
            tools: model.tools,
            reasoning: model.reasoning,
            temperature: model.temperature,
        }
    }

    fn model(self, id: ModelRef) -> Model {
        let rates = |[input, output, read, write]: [f64; 4]| Rates::new(input, output, Some(read), Some(write)).into();
        Model {
            name: self.name,
            provider_name: "Replay".into(),
            api_id: self.api_id,
            context: self.context,
            input: self.input,
            output: self.output,
            price: self.price.map(rates),
            images: self.images,
            pdf: self.pdf,
            tools: self.tools,
            reasoning: self.reasoning,
            temperature: self.temperature,
            ..Model::unknown(id)
        }
    }
}

/// One exchange that is being written down. Files are short and appended to as the answer comes: who
/// records wants to know what came before a crash.
pub struct Tape {
    // A leaf lock around a file; never held across an await.
    file: Mutex<File>,
    key: Option<Secret>,
}

impl Tape {
    /// Begins one, where the user wants that.
    pub fn begin(
        environment: &Environment,
        wire: &str,
        provider: &str,
        model: &Model,
        call: &Call,
        key: Option<&Secret>,
    ) -> Option<Arc<Self>> {
        let dir = PathBuf::from(environment.var("ADJUTANT_RECORD")?);
        match Self::open(&dir) {
            Ok(file) => {
                let tape = Self { file: Mutex::new(file), key: key.cloned() };
                let body = String::from_utf8_lossy(&call.body).into_owned();
                let body = RawValue::from_string(tape.clean(&body)).or_else(|_| RawValue::from_string("null".into()));
                let headers = call.headers.iter().filter(|(name, _)| is_harmless(name)).cloned().collect();
                tape.write(&RecordLine::Asked(Box::new(RecordedRequest {
                    adjutant: env!("CARGO_PKG_VERSION").into(),
                    wire: wire.into(),
                    provider: provider.into(),
                    model: RecordedModel::of(model),
                    url: call.url.split(['?', '#']).next().unwrap_or_default().into(),
                    headers,
                    body: body.ok()?,
                })));
                Some(Arc::new(tape))
            }
            Err(e) => {
                tracing::error!("ADJUTANT_RECORD names {}, where nothing can be written: {e}", dir.display());
                None
            }
        }
    }

    /// The next file that is not there yet, whoever else is recording.
    fn open(dir: &Path) -> io::Result<File> {
        // One that the user has made stays as it is: it may be `/tmp`.
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

    /// What came first.
    pub fn came(&self, status: u16, headers: &HeaderMap) {
        let kept = headers.iter().filter(|(name, _)| is_harmless(name.as_str()));
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = kept.map(|(name, value)| (name.to_string(), text(value))).collect();
        self.write(&RecordLine::Came { status, headers });
    }

    /// A piece of the answer.
    pub fn piece(&self, bytes: &[u8]) {
        self.write(&match std::str::from_utf8(bytes) {
            Ok(text) => RecordLine::Text(self.clean(text)),
            Err(_) => RecordLine::Bytes(STANDARD.encode(bytes)),
        });
    }

    /// The connection broke, or none could be made.
    pub fn broke(&self, e: &Error) {
        self.write(&RecordLine::Broken(self.clean(&e.to_string())));
    }

    /// The answer was over.
    pub fn ended(&self) {
        self.write(&RecordLine::End);
    }

    fn clean(&self, text: &str) -> String {
        match self.key.as_ref().map(Secret::expose).filter(|key| key.len() >= 6) {
            Some(key) => text.replace(key, "[key]"),
            None => text.to_owned(),
        }
    }

    fn write(&self, line: &RecordLine) {
        let mut file = locked(&self.file);
        let written = serde_json::to_string(line).map_err(io::Error::other).and_then(|text| writeln!(file, "{text}"));
        if let Err(e) = written {
            tracing::error!("a recording cannot be written: {e}");
        }
    }
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A directory of recordings, as someone who can be asked.
pub struct Replay {
    dir: PathBuf,
    // A leaf lock around what was not played yet; none before the first request.
    left: Mutex<Option<VecDeque<Exchange>>>,
}

/// A file, read.
struct Exchange {
    asked: Box<RecordedRequest>,
    lines: Vec<RecordLine>,
}

impl Replay {
    /// Plays what is in a directory.
    pub fn new(dir: &Path) -> Arc<Self> {
        Arc::new(Self { dir: dir.into(), left: Mutex::new(None) })
    }

    /// The model that was recorded.
    pub fn model(&self, id: &ModelRef) -> Model {
        let first = self.with(|left| left.front().map(|exchange| exchange.asked.model.clone()));
        first.flatten().map_or_else(|| Model::unknown(id.clone()), |facts| facts.model(id.clone()))
    }

    /// Does something with what is left; none where nothing can be read.
    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<Exchange>) -> T) -> Option<T> {
        let mut left = locked(&self.left);
        if left.is_none() {
            *left = read(&self.dir).ok();
        }
        left.as_mut().map(work)
    }

    /// The exchange for a request.
    fn next(&self, request: &Request) -> Result<Exchange, Error> {
        let missing = |what: &str| {
            let dir = self.dir.display();
            Error::BadRequest(format!("{what} in {dir}. ADJUTANT_RECORD=dir writes what `replay:dir` plays."))
        };
        let found = self.with(|left| {
            let same = |exchange: &Exchange| {
                let wire = platform::wire(&exchange.asked.wire)?;
                let model = Arc::new(exchange.asked.model.clone().model(request.model.id.clone()));
                let request = Request { model, ..request.clone() };
                let call = wire.encode(&request, &Target::default(), &Knobs::default()).ok()?;
                (conversation(&call.body)? == conversation(exchange.asked.body.get().as_bytes())?).then_some(())
            };
            let at = left.iter().position(|exchange| same(exchange).is_some()).unwrap_or(0);
            left.remove(at)
        });
        match found {
            None => Err(missing("There are no recordings")),
            Some(None) => Err(missing("Everything has been played")),
            Some(Some(exchange)) => Ok(exchange),
        }
    }
}

/// The part of a body that makes one request differ from another.
fn conversation(body: &[u8]) -> Option<serde_json::Value> {
    let mut body: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
    ["messages", "input", "contents"].iter().find_map(|name| body.remove(*name))
}

fn read(dir: &Path) -> io::Result<VecDeque<Exchange>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    let exchange = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let mut lines = text.lines().map_while(|line| serde_json::from_str(line).ok());
        match lines.next()? {
            RecordLine::Asked(asked) => Some(Exchange { asked, lines: lines.collect() }),
            _ => None,
        }
    };
    Ok(paths.iter().filter_map(exchange).collect())
}

impl Provider for Arc<Replay> {
    fn ask(&self, request: Arc<Request>) -> Answer {
        match self.next(&request) {
            Ok(exchange) => exchange.play(),
            Err(e) => Box::pin(futures_util::stream::iter([Err(e)])),
        }
    }
}

impl Exchange {
    fn play(self) -> Answer {
        let fail = |e: Error| -> Answer { Box::pin(futures_util::stream::iter([Err(e)])) };
        let name = self.asked.provider;
        let Some(wire) = platform::wire(&self.asked.wire) else {
            return fail(Error::BadRequest(format!("A wire \"{}\" is not spoken here.", self.asked.wire)));
        };
        let (mut status, mut headers) = (None, HeaderMap::new());
        let mut pieces: Vec<Result<Bytes, Error>> = Vec::new();
        for line in self.lines {
            match line {
                RecordLine::Asked(_) | RecordLine::End => {}
                RecordLine::Came { status: code, headers: named } => {
                    status = Some(code);
                    let named = named.iter().filter_map(|(name, value)| {
                        Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?))
                    });
                    headers = named.collect();
                }
                RecordLine::Text(text) => pieces.push(Ok(text.into())),
                RecordLine::Bytes(text) => pieces.push(
                    STANDARD
                        .decode(text)
                        .map(Bytes::from)
                        .map_err(|e| Error::Garbled(format!("The recording is damaged: {e}."))),
                ),
                RecordLine::Broken(why) => pieces.push(Err(Error::Network(why))),
            }
        }
        match status {
            None => fail(match pieces.pop() {
                Some(Err(e)) => e,
                _ => Error::Network(format!("{name} was not reached when this was recorded.")),
            }),
            Some(200..=299) => {
                let target = Target { name: name.clone(), ..Target::default() };
                let bytes = futures_util::stream::iter(pieces).boxed();
                http::read(name.into(), bytes, wire.decoder(&target), RequestTimeouts::default())
            }
            Some(code) => {
                let body: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
                fail(classify::reply(&name, code, &headers, &String::from_utf8_lossy(&body), Timestamp::default()))
            }
        }
    }
}
