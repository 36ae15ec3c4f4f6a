//! From an editor that only starts programs to a server: standard input and output on one side, a WebSocket on the
//! other. Where the socket breaks it is opened again, and what has not come is sent once more; nothing is sent twice.
//! Where the server does not know the connection any more, or stops, it goes on on whichever server answers then: see
//! `serve/failover.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Sink, SinkExt, StreamExt};
use protocol::lines::{LINE_CAP, Line, Outbox};
use protocol::rpc::{self, Error as RpcError, Id, RpcMessage, code};
use reqwest::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use reqwest::{Client, StatusCode, Upgraded};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::failover::CarriedConversation;
use super::mailbox::Shape;
use super::resume::RECEIVED;
use super::streams::CONNECTION_ID;
use super::tally::MessageTally;
use super::waiting_lines::WaitingLines;
use super::websocket::{self, Halves, PING};

/// How often a server is tried that does not answer at first.
const FIRST_TRIES: u32 = 4;

/// How long a server is tried that has answered before.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The longest pause between two tries: a server that is back is noticed within a second.
const PAUSE: Duration = Duration::from_millis(800);

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// How often a connection is asked for that the server does not know: another one behind the same address may.
const ASKED_FOR: u32 = 3;

/// How long the next server may take to open a session: whoever was lost holds it until its lease has run out.
const OPENING: Duration = Duration::from_secs(60);

/// The pause before that is tried again.
const OPENING_PAUSE: Duration = Duration::from_millis(500);

/// A connection that was carried for less did not go on.
const CARRIED: Duration = Duration::from_secs(5);

/// So many connections in a row that were carried for less are followed by another one as soon as a server that is
/// back should be noticed. A server that ends each more often is asked only every [`CARRIED`].
const SHORT_IN_A_ROW: u32 = 20;

/// How much of the editor's is read while the server has not said that what was sent has come, in bytes: a cancel may be
/// among it.
const WAITING_BYTES: usize = 16 << 20;

/// A connection to a server, as `adjutant connect` has it.
pub struct Bridge {
    client: Client,
    url: String,
    token: Option<HeaderValue>,
    /// The connection, once there is one.
    id: Option<HeaderValue>,
    /// The server counts messages, so that a broken connection can be resumed.
    resumes: bool,
    /// A server has answered once: from then on it is tried for [`PATIENCE`].
    opened: bool,
    /// How many connections in a row were carried for less than [`CARRIED`].
    short: u32,
    tally: MessageTally,
    /// What the editor has said and was not sent yet, because too much is on its way.
    waiting: WaitingLines,
    conversation: CarriedConversation,
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
    /// The server has ended the connection: why, and whether it is about to stop.
    Closed(String, bool),
}

/// A socket broke, or is taken for broken.
struct Broken;

impl Bridge {
    /// One that has not been opened.
    pub fn new(client: Client, url: String, token: Option<HeaderValue>) -> Self {
        let conversation = CarriedConversation::new(format!("{:032x}", fastrand::u128(..)));
        let tally = MessageTally::counting();
        let waiting = WaitingLines::default();
        Self { client, url, token, id: None, resumes: false, opened: false, short: 0, tally, waiting, conversation }
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
            let began = Instant::now();
            let ended = self.carry(socket, again, &mut lines, outbox).await;
            let moves = self.resumes && self.conversation.can_move();
            let stops = match ended {
                SocketEnd::Done => return Ok(()),
                SocketEnd::Closed(_, true) if moves => true,
                SocketEnd::Closed(why, _) => return Err(BridgeError::Ended(why)),
                SocketEnd::Broken if !self.resumes => {
                    return Err(BridgeError::Lost("this server does not let connections be resumed".into()));
                }
                SocketEnd::Broken => false,
            };
            (socket, again) = tokio::select! {
                next = self.next(stops, began, outbox, &tell) => next?,
                () = gone(&lines) => return Ok(()),
            };
        }
    }

    /// Connects again, to the same server or, where that stops or does not know the connection any more, another one.
    async fn next(
        &mut self,
        stops: bool,
        carried: Instant,
        outbox: &Outbox,
        tell: &impl Fn(&str),
    ) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        if stops {
            tell("the server stops; going on on another one");
        } else {
            tell("the connection broke; connecting again");
            match self.open(tell).await {
                Err(BridgeError::Lost(_)) if self.conversation.can_move() => {}
                opened => {
                    return opened.inspect(|_| tell("connected again"));
                }
            }
        }
        Ok((self.go_on(carried, outbox, tell).await?, Vec::new()))
    }

    /// Goes on with the conversation on whichever server answers.
    async fn go_on(
        &mut self,
        carried: Instant,
        outbox: &Outbox,
        tell: &impl Fn(&str),
    ) -> Result<Halves<Upgraded>, BridgeError> {
        self.short = if carried.elapsed() < CARRIED { self.short + 1 } else { 0 };
        // Nobody is to be asked without a pause for what nobody can give.
        tokio::time::sleep(pause_after_short(self.short)).await;
        let began = Instant::now();
        loop {
            for line in self.conversation.leave() {
                outbox.send(line.into()).await;
            }
            (self.id, self.tally) = (None, MessageTally::counting());
            let (mut socket, _) = self.open(tell).await?;
            match self.settle(&mut socket, outbox).await {
                Ok(()) => {
                    tell("connected again, to another server");
                    return Ok(socket);
                }
                Err(Broken) if began.elapsed() > PATIENCE => {
                    return Err(BridgeError::Lost("no other server goes on with it".into()));
                }
                Err(Broken) => tokio::time::sleep(OPENING_PAUSE).await,
            }
        }
    }

    /// Introduces the editor to a server, loads its sessions there, and asks once more what was not answered.
    async fn settle(&mut self, socket: &mut Halves<Upgraded>, outbox: &Outbox) -> Result<(), Broken> {
        let hello = self.conversation.introduction();
        self.ask(socket, hello, None, outbox).await?.map_err(|_| Broken)?;
        // By the time that whoever was lost has let go of those, it has let go of the others.
        let mut sessions = self.conversation.sessions();
        sessions.sort_by_key(|session| !self.conversation.is_waiting(session));
        for session in sessions {
            let began = Instant::now();
            loop {
                let (load, mut replay) = (self.conversation.load(&session), Vec::new());
                let told = match self.ask(socket, load, Some((&session, &mut replay)), outbox).await? {
                    Ok(()) => match self.choose(socket, &session, outbox).await? {
                        Ok(()) => self.conversation.missed(replay),
                        // In another mode it may do more than its user wants.
                        Err(e) => self.conversation.give_up(&session, &e.message),
                    },
                    // To ask twice is to take it from whoever has it, which is right only for a turn of ours.
                    Err(e) if e.code != code::INTERNAL || !self.conversation.is_waiting(&session) => {
                        self.conversation.give_up(&session, &e.message)
                    }
                    Err(e) if began.elapsed() > OPENING => self.conversation.give_up(&session, &e.message),
                    Err(_) => {
                        tokio::time::sleep(OPENING_PAUSE).await;
                        continue;
                    }
                };
                for line in told.into_iter().filter_map(|line| self.conversation.heard(line)) {
                    outbox.send(line.into()).await;
                }
                break;
            }
        }
        let (again, told) = self.conversation.again();
        for line in told {
            outbox.send(line.into()).await;
        }
        for line in again {
            self.send(socket, line).await?;
        }
        Ok(())
    }

    /// Chooses in a session that has begun anew what was chosen in it before.
    async fn choose(
        &mut self,
        socket: &mut Halves<Upgraded>,
        session: &str,
        outbox: &Outbox,
    ) -> Result<Result<(), RpcError>, Broken> {
        for choice in self.conversation.choices(session) {
            if let Err(e) = self.ask(socket, choice, None, outbox).await? {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Asks the server something of our own, and waits for the answer. What is shown of sessions meanwhile is kept
    /// in `replay`; everything else is the editor's.
    async fn ask(
        &mut self,
        socket: &mut Halves<Upgraded>,
        (id, request): (String, Bytes),
        mut replay: Option<(&str, &mut Vec<Bytes>)>,
        outbox: &Outbox,
    ) -> Result<Result<(), RpcError>, Broken> {
        self.send(socket, request).await?;
        let mut silent = Instant::now() + OPENING;
        loop {
            let message = tokio::time::timeout_at(silent, socket.1.next()).await.map_err(|_| Broken)?;
            let text = match message {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Ping(payload))) => {
                    self.tally.pinged(&payload);
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Broken),
                Some(Ok(_)) => continue,
            };
            silent = Instant::now() + OPENING;
            if self.tally.hear(text.len()) {
                socket.0.send(Message::Ping(self.tally.ping())).await.map_err(|_| Broken)?;
            }
            match std::str::from_utf8(&text).ok().map(rpc::read) {
                Some(Ok(RpcMessage::Response { id: answered, outcome })) if answered == id => {
                    return Ok(outcome.map(drop));
                }
                Some(Ok(RpcMessage::Notification { method, params })) if method == "session/update" => {
                    if let Some((session, replay)) = &mut replay
                        && self.conversation.is_replay(params, session)
                    {
                        replay.push(text);
                        continue;
                    }
                }
                _ => {}
            }
            if let Some(line) = self.conversation.heard(text) {
                outbox.send(line.into()).await;
            }
        }
    }

    async fn send(&mut self, socket: &mut Halves<Upgraded>, line: Bytes) -> Result<(), Broken> {
        self.tally.sent(&line);
        websocket::send_one(&mut socket.0, line).await.map_err(|_| Broken)
    }

    /// Opens a socket, however often that takes.
    async fn open(&mut self, tell: impl Fn(&str)) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let began = Instant::now();
        let (mut tries, mut unknown) = (0, 0);
        loop {
            tries += 1;
            let why = match tokio::time::timeout(ANSWER, self.once()).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(BridgeError::Unreachable { why, .. })) => why,
                Ok(Err(BridgeError::Lost(why))) if unknown < ASKED_FOR => {
                    unknown += 1;
                    why
                }
                Ok(Err(e)) => return Err(e),
                Err(_) => "it does not answer".to_owned(),
            };
            let over = if self.opened { began.elapsed() > PATIENCE } else { tries >= FIRST_TRIES };
            if over {
                return Err(BridgeError::Unreachable { url: self.url.clone(), why });
            }
            if tries == 1 {
                tell(&format!("{} does not answer ({why}); trying again", self.url));
            }
            tokio::time::sleep(pause_after(tries)).await; // the pause between two tries
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
            let words = base::text::title(words.trim());
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
            self.opened = true;
        }
        let lost = || BridgeError::Lost("the server has received other messages than were sent".into());
        self.tally.missing(received.unwrap_or_default()).ok_or_else(lost)
    }

    /// Takes note of a line of the editor's; what is to be sent for it.
    fn noted(&mut self, line: Bytes) -> Option<Bytes> {
        if self.resumes { self.conversation.said(line) } else { Some(line) }
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
        let mut heard = Instant::now();
        loop {
            let sent = tokio::select! {
                message = stream.next() => match message {
                    Some(Ok(message)) => {
                        heard = Instant::now();
                        match self.hear(message, outbox).await {
                            None => Ok(()),
                            Some(Heard::Closed(why, stops)) => return SocketEnd::Closed(why, stops),
                            Some(Heard::Again) => return SocketEnd::Broken,
                            Some(Heard::Many) => sink.send(Message::Ping(self.tally.ping())).await,
                        }
                    }
                    Some(Err(_)) | None => return SocketEnd::Broken,
                },
                () = std::future::ready(()), if !self.tally.is_full() && !self.waiting.is_empty() => {
                    let first = self.waiting.pop_front();
                    self.pass_on(&mut sink, first).await
                }
                line = lines.recv(), if self.takes_more() => match line.map(message) {
                    None if self.waiting.is_empty() => {
                        sink.send(Message::Close(None)).await.ok();
                        return SocketEnd::Done;
                    }
                    // Nothing more comes; what waits is sent first.
                    None => {
                        while let Some(first) = self.waiting.pop_front() {
                            if self.pass_on(&mut sink, Some(first)).await.is_err() {
                                return SocketEnd::Broken;
                            }
                        }
                        Ok(())
                    }
                    Some(Ok(text)) if self.tally.is_full() && !overtakes(&text, &self.waiting.lines) => {
                        self.waiting.push_back(text);
                        Ok(())
                    }
                    Some(Ok(text)) => self.pass_on(&mut sink, Some(text)).await,
                    Some(Err(answer)) => {
                        outbox.push(&answer);
                        Ok(())
                    }
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

    /// Whether more of the editor's is read: of what waits there may be so much.
    fn takes_more(&self) -> bool {
        !self.tally.is_full() && self.waiting.is_empty() || self.tally.is_full() && self.waiting.bytes < WAITING_BYTES
    }

    /// Sends a line of the editor's.
    async fn pass_on<S: Sink<Message, Error = WebSocketError> + Unpin>(
        &mut self,
        sink: &mut S,
        line: Option<Bytes>,
    ) -> Result<(), WebSocketError> {
        let Some(text) = line.and_then(|line| self.noted(line)) else { return Ok(()) };
        self.tally.sent(&text);
        websocket::send_one(sink, text).await
    }

    /// Takes a message of the server.
    async fn hear(&mut self, message: Message, outbox: &Outbox) -> Option<Heard> {
        match message {
            Message::Text(text) => {
                let line = Bytes::from(text);
                let bytes = line.len();
                let line = if self.resumes { self.conversation.heard(line) } else { Some(line) };
                if let Some(line) = line {
                    outbox.send(line.into()).await;
                }
                let many = self.tally.hear(bytes);
                if self.conversation.is_sent_away() {
                    return Some(Heard::Closed(String::new(), true));
                }
                many.then_some(Heard::Many)
            }
            Message::Ping(payload) => {
                self.tally.pinged(&payload);
                None
            }
            Message::Close(frame) if frame.as_ref().is_some_and(|frame| frame.code == CloseCode::Again) => {
                Some(Heard::Again)
            }
            Message::Close(frame) => {
                let stops = frame.as_ref().is_some_and(|frame| frame.code == CloseCode::Restart);
                let why = frame.filter(|frame| !frame.reason.is_empty());
                let why = why.map(|frame| format!(": {}", base::text::title(&frame.reason))).unwrap_or_default();
                Some(Heard::Closed(why, stops))
            }
            _ => None,
        }
    }
}

/// Whether a line is sent before those that wait: a cancel is, unless what it cancels is among them.
fn overtakes(line: &[u8], waiting: &VecDeque<Bytes>) -> bool {
    let Some(shape) = Shape::of(line) else { return false };
    let mut others = waiting.iter().filter_map(|line| Shape::of(line));
    match shape.method.as_deref() {
        Some("session/cancel") => {
            let session = shape.session();
            session.is_some() && others.all(|other| other.session() != session)
        }
        Some("$/cancel_request") => {
            let cancelled = shape.cancelled();
            cancelled.is_some() && others.all(|other| other.id.map(RawValue::get) != cancelled.as_deref())
        }
        _ => false,
    }
}

/// Waits until the editor says nothing any more.
async fn gone(lines: &mpsc::Receiver<Line>) {
    while !(lines.is_closed() && lines.is_empty()) {
        tokio::time::sleep(OPENING_PAUSE).await; // nobody is told of that
    }
}

/// What a message of the server asks of the bridge.
enum Heard {
    /// As [`SocketEnd::Closed`].
    Closed(String, bool),
    /// The server has no room at the moment, and wants the last message again.
    Again,
    /// Many have come since the server was told how many.
    Many,
}

/// A line of the editor as a message; the answer to one that is none. The server waits for a response that is too
/// long to be sent: it gets the reason in its place.
fn message(line: Line) -> Result<Bytes, Vec<u8>> {
    let bad = match line {
        Line::Text(text) => return Ok(text),
        Line::Bad(bad) => bad,
    };
    match rpc::read_bad(&bad) {
        Ok(RpcMessage::Response { id, outcome: Err(error) }) => {
            Ok(rpc::failure(&Id::parse(id).unwrap_or_else(Id::null), &error).into())
        }
        Ok(_) => Err(rpc::failure(&Id::null(), &RpcError::invalid_request(bad.to_string()))),
        Err(invalid) => Err(rpc::failure(&invalid.id, &invalid.error)),
    }
}

/// The pause after so many tries in vain.
fn pause_after(tries: u32) -> Duration {
    (Duration::from_millis(100) * 2_u32.saturating_pow(tries.min(8))).min(PAUSE)
}

/// The pause after so many connections in a row that did not go on.
fn pause_after_short(short: u32) -> Duration {
    match short {
        0 => Duration::ZERO,
        1..=SHORT_IN_A_ROW => pause_after(short),
        _ => CARRIED,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_never_longer_than_a_second_once_the_server_is_back() {
        let pauses: Vec<Duration> = (1..1000).map(pause_after).collect();
        assert!(pauses[0] < Duration::from_millis(300) && pauses.is_sorted(), "{:?}", &pauses[..8]);
        let longest = pauses.last().copied().unwrap_or_default();
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }

    #[test]
    fn server_that_ends_each_connection_is_not_hammered() {
        // One restart, or several in a minute, are noticed within a second.
        assert!((0..=10).all(|short| pause_after_short(short) < Duration::from_secs(1)));
        assert_eq!(pause_after_short(0), Duration::ZERO);
        let hour: Vec<Duration> = (1..730).map(pause_after_short).collect();
        assert!(hour.is_sorted() && hour.iter().sum::<Duration>() > Duration::from_secs(3500));
    }

    #[test]
    fn a_cancel_overtakes_all_but_what_it_cancels() {
        let line = |text: &'static str| Bytes::from_static(text.as_bytes());
        let waiting = VecDeque::from([
            line(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"a","prompt":[]}}"#),
            line(r#"{"id":"x","method":"session/list","params":{}}"#),
        ]);
        for (cancel, goes_first) in [
            (r#"{"method":"session/cancel","params":{"sessionId":"a"}}"#, false),
            (r#"{"method":"session/cancel","params":{"sessionId":"b"}}"#, true),
            (r#"{"method":"session/cancel","params":{}}"#, false),
            (r#"{"method":"$/cancel_request","params":{"requestId":2}}"#, false),
            (r#"{"method":"$/cancel_request","params":{"requestId":"x"}}"#, false),
            (r#"{"method":"$/cancel_request","params":{"requestId":1}}"#, true),
            (r#"{"id":3,"method":"session/prompt","params":{"sessionId":"b","prompt":[]}}"#, false),
            ("not a message", false),
        ] {
            assert_eq!(overtakes(cancel.as_bytes(), &waiting), goes_first, "{cancel}");
        }
    }
}
