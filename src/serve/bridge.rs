//! From an editor that only starts programs to a server: standard input and output on one side, a WebSocket on the
//! other. Where the socket breaks it is opened again, and what has not come is sent once more; nothing is sent twice.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use protocol::lines::{BadLine, LINE_CAP, Line, Outbox};
use protocol::rpc::{self, Error as RpcError, Id};
use reqwest::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use reqwest::{Client, StatusCode, Upgraded};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use super::resume::RECEIVED;
use super::streams::CONNECTION_ID;
use super::tally::MessageTally;
use super::websocket::{self, Halves, PING};

/// How often a server is tried that does not answer at first.
const FIRST_TRIES: u32 = 4;

/// How long a server is tried that has answered before.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// After so many messages the server is told how many have come.
const TELL: u64 = 64;

/// A connection to a server, as `adjutant connect` has it.
pub struct Bridge {
    client: Client,
    url: String,
    token: Option<HeaderValue>,
    /// The connection, once there is one.
    id: Option<HeaderValue>,
    /// The server counts messages, so that a broken connection can be resumed.
    resumes: bool,
    tally: MessageTally,
}

/// Why a bridge ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The server does not answer.
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    /// It does not answer as a server of ours does.
    #[error("{url} refuses: {why}")]
    Refused { url: String, why: String },
    /// It has ended the connection.
    #[error("the server has ended the connection{0}")]
    Ended(String),
    /// The connection broke and cannot be resumed.
    #[error("the connection broke, and {0}; start again and load the session")]
    Lost(String),
}

/// What is to follow when a socket has ended.
enum SocketEnd {
    /// The editor has nothing more to say.
    Done,
    Broken,
    Closed(String),
}

impl Bridge {
    /// One that has not been opened.
    pub fn new(client: Client, url: String, token: Option<HeaderValue>) -> Self {
        Self { client, url, token, id: None, resumes: false, tally: MessageTally::counting() }
    }

    /// Carries messages until the editor has nothing more to say. `tell` is told what somebody should know meanwhile.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub async fn run(
        mut self,
        mut lines: mpsc::Receiver<Line>,
        outbox: &Outbox,
        tell: impl Fn(&str),
    ) -> Result<(), BridgeError> {
        let (mut socket, mut again) = self.open(&tell).await?;
        loop {
            let ended = self.carry(socket, again, &mut lines, outbox).await;
            match ended {
                SocketEnd::Done => return Ok(()),
                SocketEnd::Closed(why) => return Err(BridgeError::Ended(why)),
                SocketEnd::Broken if !self.resumes => {
                    return Err(BridgeError::Lost("this server does not let connections be resumed".into()));
                }
                SocketEnd::Broken => tell("the connection broke; connecting again"),
            }
            (socket, again) = self.open(&tell).await?;
            tell("connected again");
        }
    }

    /// Opens a socket, however often that takes.
    async fn open(&mut self, tell: impl Fn(&str)) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let began = tokio::time::Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let why = match tokio::time::timeout(ANSWER, self.once()).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(BridgeError::Unreachable { why, .. })) => why,
                Ok(Err(e)) => return Err(e),
                Err(_) => "it does not answer".to_owned(),
            };
            let over = if self.id.is_none() { tries >= FIRST_TRIES } else { began.elapsed() > PATIENCE };
            if over {
                return Err(BridgeError::Unreachable { url: self.url.clone(), why });
            }
            if tries == 1 {
                tell(&format!("{} does not answer ({why}); trying again", self.url));
            }
            let pause = Duration::from_millis(100) * 2_u32.saturating_pow(tries.min(8));
            tokio::time::sleep(pause.min(PAUSE)).await; // the pause between two tries
        }
    }

    async fn once(&mut self) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let mut key = [0; 16];
        let url = self.url.clone();
        let refused = |why: String| BridgeError::Refused { url: url.clone(), why };
        SystemRandom::new().fill(&mut key).map_err(|_| refused("there are no random numbers here".into()))?;
        let key = BASE64.encode(key);
        let mut request = self
            .client
            .get(&self.url)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &key)
            .header(RECEIVED, self.tally.heard);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(id) = &self.id {
            request = request.header(CONNECTION_ID, id);
        }
        let unreachable = |why: String| BridgeError::Unreachable { url: url.clone(), why };
        let response = request.send().await.map_err(|e| unreachable(reason(&e)))?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let words = response.text().await.unwrap_or_default();
            let words = crate::text::title(words.trim());
            return Err(match status {
                StatusCode::NOT_FOUND | StatusCode::CONFLICT if self.id.is_some() => {
                    BridgeError::Lost(format!("the server does not know it any more ({words})"))
                }
                // It may be another one soon: one that stops, or a proxy without anybody behind it.
                _ if status.is_server_error() => unreachable(format!("{status}: {words}")),
                _ => refused(format!("{status}: {words}")),
            });
        }
        if !websocket::is_answer(response.headers(), &key) {
            return Err(refused("what answers does not speak WebSocket".into()));
        }
        let again = self.agreed(response.headers())?;
        let io = response.upgrade().await.map_err(|e| unreachable(reason(&e)))?;
        Ok((websocket::opened(io, LINE_CAP).await, again))
    }

    /// Takes note of what the server says of the connection: what it has not heard is to be sent again.
    fn agreed(&mut self, headers: &HeaderMap) -> Result<Vec<Bytes>, BridgeError> {
        let received = headers.get(RECEIVED).and_then(|count| count.to_str().ok()?.parse::<u64>().ok());
        if self.id.is_none() {
            self.id = headers.get(CONNECTION_ID).cloned();
            self.resumes = received.is_some() && self.id.is_some();
            self.tally.counts = self.resumes;
        }
        let lost = || BridgeError::Lost("the server has received other messages than were sent".into());
        self.tally.missing(received.unwrap_or_default()).ok_or_else(lost)
    }

    async fn carry(
        &mut self,
        (mut sink, mut stream): Halves<Upgraded>,
        again: Vec<Bytes>,
        lines: &mut mpsc::Receiver<Line>,
        outbox: &Outbox,
    ) -> SocketEnd {
        for message in again {
            if websocket::send_one(&mut sink, message).await.is_err() {
                return SocketEnd::Broken;
            }
        }
        let mut ping = tokio::time::interval(PING);
        ping.tick().await;
        let mut heard = tokio::time::Instant::now();
        loop {
            let sent = tokio::select! {
                message = stream.next() => match message {
                    Some(Ok(message)) => {
                        heard = tokio::time::Instant::now();
                        match self.hear(message, outbox).await {
                            None => Ok(()),
                            Some(Heard::Closed(why)) => return SocketEnd::Closed(why),
                            Some(Heard::Many) => sink.send(Message::Ping(self.tally.ping())).await,
                        }
                    }
                    Some(Err(_)) | None => return SocketEnd::Broken,
                },
                line = lines.recv(), if !self.tally.is_full() => match line {
                    None => {
                        sink.send(Message::Close(None)).await.ok();
                        return SocketEnd::Done;
                    }
                    Some(line) => match message(line) {
                        Ok(text) => {
                            self.tally.sent(&text);
                            websocket::send_one(&mut sink, text).await
                        }
                        Err(answer) => {
                            outbox.push(&answer);
                            Ok(())
                        }
                    },
                },
                _ = ping.tick() => {
                    if heard.elapsed() > PING * 3 {
                        return SocketEnd::Broken;
                    }
                    sink.send(Message::Ping(self.tally.ping())).await
                }
                () = outbox.broken() => return SocketEnd::Done,
            };
            if sent.is_err() {
                return SocketEnd::Broken;
            }
        }
    }

    /// Takes a message of the server.
    async fn hear(&mut self, message: Message, outbox: &Outbox) -> Option<Heard> {
        match message {
            Message::Text(text) => {
                outbox.send(text.as_bytes().to_vec()).await;
                self.tally.heard += 1;
                self.tally.heard.is_multiple_of(TELL).then_some(Heard::Many)
            }
            Message::Ping(payload) => {
                self.tally.pinged(&payload);
                None
            }
            Message::Close(frame) => {
                let why = frame.filter(|frame| !frame.reason.is_empty());
                Some(Heard::Closed(
                    why.map(|frame| format!(": {}", crate::text::title(&frame.reason))).unwrap_or_default(),
                ))
            }
            _ => None,
        }
    }
}

/// What a message of the server asks of the bridge.
enum Heard {
    Closed(String),
    /// Many have come since the server was told how many.
    Many,
}

/// A line of the editor as a message; the answer to one that is none.
fn message(line: Line) -> Result<Bytes, Vec<u8>> {
    match line {
        Line::Text(text) => Ok(text),
        Line::Bad(bad) => {
            let error = match bad {
                BadLine::TooLong => RpcError::invalid_request(bad.to_string()),
                BadLine::NotUtf8 => RpcError::new(rpc::code::PARSE, "Parse error").details(bad.to_string()),
            };
            Err(rpc::failure(&Id::null(), &error))
        }
    }
}

/// The innermost reason, which says most.
fn reason(error: &reqwest::Error) -> String {
    let mut at: &dyn std::error::Error = error;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}
