//! Connects a client that only starts programs to a server: standard input and output on one side,
//! a WebSocket on the other. If the socket breaks, it is opened again, and unacknowledged messages
//! are sent once more; no message is sent twice. If the server no longer knows the connection, or
//! stops, the conversation moves to another server; see `failover.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{Sink, SinkExt, StreamExt};
use protocol::lines::{Line, MAX_LINE_BYTES, Outbox};
use protocol::rpc::{self, Error as RpcError, Id, RpcMessage};
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
use super::resend_buffer::MessageTally;
use super::resume::RECEIVED;
use super::streams::CONNECTION_ID;
use super::waiting_lines::WaitingLines;
use super::websocket::{self, Halves, PING_INTERVAL};

/// The number of attempts to reach a server that has never answered.
const MAX_FIRST_ATTEMPTS: u32 = 6;

/// The time during which a server is tried that has answered before.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3600);

/// The maximum pause between two attempts. With [`UNKNOWN_TIMEOUT`] it is less than a second, in
/// which a conversation continues on a server that is back.
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// The time limit of one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The time after the first answer that the connection is unknown during which it is tried further:
/// another server behind the same address may know it. A bound in time, because fast servers
/// answer many attempts before the one that knows the connection is reached.
const UNKNOWN_TIMEOUT: Duration = Duration::from_millis(250);

/// The number of these answers before which the conversation does not move: on a slow link the time
/// is that of a single attempt.
const MIN_UNKNOWN_ANSWERS: u32 = 4;

/// The pause between these attempts. It does not grow: the servers answer.
const UNKNOWN_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The time limit for opening a session on the next server: a lost server holds the session until
/// its lease expires.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause before the session is opened again.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The minimum lifetime of a connection that counts as established.
const MIN_LIFETIME: Duration = Duration::from_secs(5);

/// The number of consecutive short connections after which the next attempt waits for
/// [`MIN_LIFETIME`]. Earlier attempts follow quickly, so that a server that is back is noticed.
const MAX_SHORT_CONNECTIONS: u32 = 20;

/// The maximum size in bytes of the client messages that are read while the server is behind with
/// acknowledgements: a cancellation may be among them.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// The client's side of a connection to a server, for `adjutant connect`.
pub struct Bridge {
    client: Client,
    url: String,
    token: Option<HeaderValue>,
    /// The id of the connection, once there is one.
    id: Option<HeaderValue>,
    /// The server counts messages, so that a broken connection can be resumed.
    resumes: bool,
    /// A server has answered once: from then on it is tried for [`RECONNECT_TIMEOUT`].
    opened: bool,
    /// The number of consecutive connections that were shorter than [`MIN_LIFETIME`].
    short: u32,
    tally: MessageTally,
    /// The client's messages that are not sent yet, because too many are unacknowledged.
    waiting: WaitingLines,
    conversation: CarriedConversation,
    /// The client's unanswered requests, unless the conversation records them.
    unanswered: Vec<Id>,
}

/// The reason why a bridge ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The server does not answer.
    #[error("{url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    /// The server's answer is not that of an adjutant server.
    #[error("{url} refuses: {why}")]
    Refused { url: String, why: String },
    /// The server has ended the connection.
    #[error("the server has ended the connection{0}")]
    Ended(String),
    /// The connection broke and cannot be resumed.
    #[error("the connection broke, and {0}; start again and load the session")]
    Lost(String),
}

/// The end of a socket.
enum SocketEnd {
    /// The client's input has ended.
    Done,
    Broken,
    /// The server has ended the connection: the reason, and whether the server stops.
    Closed(String, bool),
}

/// The socket broke, or is treated as broken.
struct Broken;

/// The reason why a server does not continue a conversation.
enum RestoreError {
    Broken,
    /// The server refuses something without which nothing can be carried on.
    Refused(String),
}

impl From<Broken> for RestoreError {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

impl Bridge {
    /// Creates a bridge without a connection.
    pub fn new(client: Client, url: String, token: Option<HeaderValue>) -> Self {
        let conversation = CarriedConversation::new(format!("{:032x}", fastrand::u128(..)));
        let tally = MessageTally::counting();
        let waiting = WaitingLines::default();
        Self {
            client,
            url,
            token,
            id: None,
            resumes: false,
            opened: false,
            short: 0,
            tally,
            waiting,
            conversation,
            unanswered: Vec::new(),
        }
    }

    /// Carries messages until the client's input ends. `tell` receives progress messages for the
    /// user. If the bridge ends before, the client's requests are answered with the error.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub async fn run(
        mut self,
        mut lines: mpsc::Receiver<Line>,
        outbox: &Outbox,
        tell: impl Fn(&str),
    ) -> Result<(), BridgeError> {
        let done = self.carry_all(&mut lines, outbox, tell).await;
        if let Err(e) = &done {
            self.answer_all(&mut lines, outbox, &e.to_string()).await;
        }
        done
    }

    /// Answers each request of the client that has arrived and has no answer.
    async fn answer_all(&mut self, lines: &mut mpsc::Receiver<Line>, outbox: &Outbox, why: &str) {
        for line in self.conversation.end(why) {
            outbox.send(line.into()).await;
        }
        let error = RpcError::internal(why);
        for id in std::mem::take(&mut self.unanswered) {
            outbox.send(rpc::failure(&id, &error)).await;
        }
        let mut unsent = std::mem::take(&mut self.waiting.lines);
        while let Ok(line) = lines.try_recv() {
            unsent.extend(message(line).ok());
        }
        for line in unsent {
            let read = std::str::from_utf8(&line).ok().map(rpc::read);
            if let Some(Ok(RpcMessage::Request { id, .. })) = read {
                outbox.send(rpc::failure(&id, &error)).await;
            }
        }
    }

    async fn carry_all(
        &mut self,
        lines: &mut mpsc::Receiver<Line>,
        outbox: &Outbox,
        tell: impl Fn(&str),
    ) -> Result<(), BridgeError> {
        let (mut socket, mut again) = self.open(&tell).await?;
        loop {
            let began = Instant::now();
            let ended = self.carry(socket, again, lines, outbox).await;
            let moves = self.resumes && self.conversation.can_move();
            let stops = match ended {
                SocketEnd::Done => return Ok(()),
                SocketEnd::Closed(_, true) if moves => true,
                SocketEnd::Closed(why, _) => return Err(BridgeError::Ended(why)),
                SocketEnd::Broken if !self.resumes => {
                    return Err(BridgeError::Lost(
                        "this server does not let connections be resumed".into(),
                    ));
                }
                SocketEnd::Broken => false,
            };
            (socket, again) = tokio::select! {
                next = self.next(stops, began, outbox, &tell) => next?,
                () = gone(lines) => return Ok(()),
            };
        }
    }

    /// Connects again: to the same server, or to another one if it stops or no longer knows the
    /// connection.
    async fn next(
        &mut self,
        stops: bool,
        carried: Instant,
        outbox: &Outbox,
        tell: &impl Fn(&str),
    ) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let ended = Instant::now();
        if stops {
            tell("the server stops; continuing on another one");
        } else {
            tell("the connection broke; connecting again");
            match self.open(tell).await {
                Err(BridgeError::Lost(_)) if self.conversation.can_move() => {}
                opened => {
                    return opened.inspect(|_| tell("connected again"));
                }
            }
        }
        let lifetime = ended.duration_since(carried);
        Ok((
            self.go_on((ended, lifetime), outbox, tell).await?,
            Vec::new(),
        ))
    }

    /// Moves the conversation to another server, after a connection that `ended` after its
    /// `lifetime`.
    async fn go_on(
        &mut self,
        (ended, lifetime): (Instant, Duration),
        outbox: &Outbox,
        tell: &impl Fn(&str),
    ) -> Result<Halves<Upgraded>, BridgeError> {
        self.short = if lifetime < MIN_LIFETIME {
            self.short + 1
        } else {
            0
        };
        // Limits the rate of attempts at a server that ends every connection. The attempts to resume
        // the connection count as part of the pause.
        tokio::time::sleep_until(ended + pause_after_short(self.short)).await;
        let began = Instant::now();
        let mut refused = String::new();
        loop {
            for line in self.conversation.leave() {
                outbox.send(line.into()).await;
            }
            self.id = None;
            self.tally = MessageTally::counting();
            let (mut socket, _) = self.open(tell).await?;
            match self.restore_conversation(&mut socket, outbox, tell).await {
                Ok(()) => {
                    tell("connected again, to another server");
                    return Ok(socket);
                }
                Err(RestoreError::Refused(why)) if why != refused => {
                    tell(&format!("this server cannot continue it: {why}"));
                    refused = why;
                }
                Err(RestoreError::Refused(_) | RestoreError::Broken) => {}
            }
            if began.elapsed() > RECONNECT_TIMEOUT {
                let why = if refused.is_empty() {
                    refused
                } else {
                    format!(": {refused}")
                };
                return Err(BridgeError::Lost(format!(
                    "no other server continues it{why}"
                )));
            }
            tokio::time::sleep(OPEN_RETRY_INTERVAL).await;
        }
    }

    /// Introduces the client to a server, sets its endpoints and loads its sessions there, and
    /// sends its unanswered requests again.
    async fn restore_conversation(
        &mut self,
        socket: &mut Halves<Upgraded>,
        outbox: &Outbox,
        tell: &impl Fn(&str),
    ) -> Result<(), RestoreError> {
        let initialize = self.conversation.introduction();
        self.request(socket, initialize, None, outbox)
            .await?
            .map_err(|e| RestoreError::Refused(details(&e)))?;
        // Before the sessions: their requests must not go elsewhere, with other keys.
        let unset = self.set_endpoints(socket, outbox).await?;
        for (provider, why) in &unset {
            tell(&format!(
                "the model provider \"{provider}\" cannot be used on this server: {why}"
            ));
        }
        // A server that refuses it has no keys that the client may know.
        if let Some(question) = self.conversation.accounts()
            && let Ok(state) = self.request(socket, question, None, outbox).await?
            && let Some(line) = self.conversation.other_accounts(&state)
        {
            outbox.send(line.into()).await;
        }
        // Sessions with an unanswered prompt come first: when the lost server has released them, it
        // has released the others too.
        let mut sessions = self.conversation.sessions();
        sessions.sort_by_key(|session| !self.conversation.is_waiting(session));
        for session in sessions {
            if let Some(why) = self.conversation.lost_model(&session, &unset) {
                tell(&format!("session {session} does not continue: {why}"));
                for line in self.conversation.give_up(&session, &why) {
                    outbox.send(line.into()).await;
                }
                continue;
            }
            let began = Instant::now();
            loop {
                let load = self.conversation.load(&session);
                let mut replay = Vec::new();
                let lines = match self
                    .request(socket, load, Some((&session, &mut replay)), outbox)
                    .await?
                {
                    Ok(_) => match self.choose(socket, &session, outbox).await? {
                        Ok(()) => self.conversation.missed_updates(replay),
                        // In another mode the agent might do more than the user wants.
                        Err(e) => self.conversation.give_up(&session, &details(&e)),
                    },
                    Err(e)
                        if self.conversation.repeats_load(&session, &e)
                            && began.elapsed() <= OPEN_TIMEOUT =>
                    {
                        tokio::time::sleep(OPEN_RETRY_INTERVAL).await;
                        continue;
                    }
                    Err(e) => self.conversation.give_up(&session, &details(&e)),
                };
                for line in lines {
                    self.show(line, outbox).await;
                }
                break;
            }
        }
        let (again, responses) = self.conversation.lines_to_resend();
        let lists = self.conversation.due_command_lists();
        for line in responses.into_iter().chain(lists) {
            outbox.send(line.into()).await;
        }
        for line in again {
            self.send(socket, line).await?;
        }
        Ok(())
    }

    /// Repeats the changes of endpoints on a server. A provider whose endpoint it refuses is
    /// disabled there. Returns these providers with the reasons.
    ///
    /// # Errors
    /// The server refuses that too, so that it might ask the provider at another address.
    async fn set_endpoints(
        &mut self,
        socket: &mut Halves<Upgraded>,
        outbox: &Outbox,
    ) -> Result<BTreeMap<String, String>, RestoreError> {
        let mut unset = BTreeMap::new();
        for (provider, change) in self.conversation.endpoints() {
            let Err(refused) = self.request(socket, change, None, outbox).await? else {
                continue;
            };
            let disable = self.conversation.disable(&provider);
            self.request(socket, disable, None, outbox)
                .await?
                .map_err(|e| RestoreError::Refused(details(&e)))?;
            unset.insert(provider, details(&refused));
        }
        Ok(unset)
    }

    /// Repeats the choices in a session that was created again.
    async fn choose(
        &mut self,
        socket: &mut Halves<Upgraded>,
        session: &str,
        outbox: &Outbox,
    ) -> Result<Result<(), RpcError>, Broken> {
        for choice in self.conversation.choices(session) {
            if let Err(e) = self.request(socket, choice, None, outbox).await? {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Sends a request of the bridge itself, and returns the result. Collects the updates of
    /// sessions that are being loaded in `replay`, and forwards all other messages to the client.
    async fn request(
        &mut self,
        socket: &mut Halves<Upgraded>,
        (id, request): (String, Bytes),
        mut replay: Option<(&str, &mut Vec<Bytes>)>,
        outbox: &Outbox,
    ) -> Result<Result<String, RpcError>, Broken> {
        self.send(socket, request).await?;
        let mut silent = Instant::now() + OPEN_TIMEOUT;
        loop {
            let message = tokio::time::timeout_at(silent, socket.1.next())
                .await
                .map_err(|_| Broken)?;
            let text = match message {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Ping(payload))) => {
                    self.tally.pinged(&payload);
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Broken),
                Some(Ok(_)) => continue,
            };
            silent = Instant::now() + OPEN_TIMEOUT;
            if self.tally.record_received(text.len()) {
                socket
                    .0
                    .send(Message::Ping(self.tally.ping()))
                    .await
                    .map_err(|_| Broken)?;
            }
            match std::str::from_utf8(&text).ok().map(rpc::read) {
                Some(Ok(RpcMessage::Response {
                    id: answered,
                    outcome,
                })) if answered == id => {
                    return Ok(outcome.map(str::to_owned));
                }
                Some(Ok(RpcMessage::Notification { method, params }))
                    if method == "session/update" =>
                {
                    if let Some((session, replay)) = &mut replay
                        && self.conversation.is_replay(params, session)
                    {
                        replay.push(text);
                        continue;
                    }
                }
                _ => {}
            }
            self.show(text, outbox).await;
        }
    }

    /// Shows a line of the server to the client, and the lists of commands that were held until
    /// then.
    async fn show(&mut self, line: Bytes, outbox: &Outbox) {
        if let Some(line) = self.conversation.on_server_line(line) {
            outbox.send(line.into()).await;
        }
        for line in self.conversation.due_command_lists() {
            outbox.send(line.into()).await;
        }
    }

    async fn send(&mut self, socket: &mut Halves<Upgraded>, line: Bytes) -> Result<(), Broken> {
        self.tally.sent(&line);
        websocket::send_one(&mut socket.0, line)
            .await
            .map_err(|_| Broken)
    }

    /// Opens a socket, with as many attempts as allowed. Returns it with the messages to be sent
    /// again.
    async fn open(
        &mut self,
        tell: impl Fn(&str),
    ) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let began = Instant::now();
        let mut tries = 0;
        let mut unknown = UnknownAnswers::default();
        loop {
            tries += 1;
            let mut pause = pause_after(tries);
            let why = match tokio::time::timeout(CONNECT_TIMEOUT, self.once()).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(BridgeError::Unreachable { why, .. })) => why,
                Ok(Err(BridgeError::Lost(why))) if unknown.asks_again(Instant::now()) => {
                    pause = UNKNOWN_RETRY_INTERVAL;
                    why
                }
                Ok(Err(e)) => return Err(e),
                Err(_) => "it does not answer".to_owned(),
            };
            let over = if self.opened {
                began.elapsed() > RECONNECT_TIMEOUT
            } else {
                tries >= MAX_FIRST_ATTEMPTS
            };
            if over {
                return Err(BridgeError::Unreachable {
                    url: self.url.clone(),
                    why,
                });
            }
            if tries == 1 {
                tell(&format!(
                    "{} does not answer ({why}); trying again",
                    self.url
                ));
            }
            tokio::time::sleep(pause).await; // the pause between two tries
        }
    }

    async fn once(&mut self) -> Result<(Halves<Upgraded>, Vec<Bytes>), BridgeError> {
        let mut key = [0; 16];
        let url = self.url.clone();
        let refused = |why: String| BridgeError::Refused {
            url: url.clone(),
            why,
        };
        SystemRandom::new()
            .fill(&mut key)
            .map_err(|_| refused("the system provides no random numbers".into()))?;
        let key = BASE64.encode(key);
        let mut request = self
            .client
            .get(&self.url)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", &key)
            .header(RECEIVED, self.tally.received);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(id) = &self.id {
            request = request.header(CONNECTION_ID, id);
        }
        let unreachable = |why: String| BridgeError::Unreachable {
            url: url.clone(),
            why,
        };
        let response = request.send().await.map_err(|e| unreachable(reason(&e)))?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = response.text().await.unwrap_or_default();
            let body = base::text::title(body.trim());
            return Err(match status {
                StatusCode::NOT_FOUND | StatusCode::CONFLICT if self.id.is_some() => {
                    BridgeError::Lost(format!("the server no longer knows it ({body})"))
                }
                // Another server may answer soon: this one stops, or a proxy has no server at
                // present.
                _ if status.is_server_error() => unreachable(format!("{status}: {body}")),
                _ => refused(format!("{status}: {body}")),
            });
        }
        if !websocket::is_answer(response.headers(), &key) {
            return Err(refused("the other side does not speak WebSocket".into()));
        }
        let again = self.read_connection_headers(response.headers())?;
        let io = response
            .upgrade()
            .await
            .map_err(|e| unreachable(reason(&e)))?;
        Ok((websocket::opened(io, MAX_LINE_BYTES).await, again))
    }

    /// Reads the server's headers about the connection. Returns the messages that it has not
    /// received.
    fn read_connection_headers(&mut self, headers: &HeaderMap) -> Result<Vec<Bytes>, BridgeError> {
        let received = headers
            .get(RECEIVED)
            .and_then(|count| count.to_str().ok()?.parse::<u64>().ok());
        if self.id.is_none() {
            self.id = headers.get(CONNECTION_ID).cloned();
            self.resumes = received.is_some() && self.id.is_some();
            self.tally.counts = self.resumes;
            self.opened = true;
        }
        let lost =
            || BridgeError::Lost("the server has received messages that were not sent".into());
        self.tally
            .missing(received.unwrap_or_default())
            .ok_or_else(lost)
    }

    /// Returns whether the conversation records the messages. It continues to do so on a server
    /// that cannot resume connections, if an earlier one could.
    fn is_recorded(&self) -> bool {
        self.resumes || self.conversation.can_move()
    }

    /// Records a line of the client. Returns the line to be sent, if any.
    fn record_client_line(&mut self, line: Bytes) -> Option<Bytes> {
        if self.is_recorded() {
            return self.conversation.on_client_line(line);
        }
        let read = std::str::from_utf8(&line).ok().map(rpc::read);
        if let Some(Ok(RpcMessage::Request { id, .. })) = read {
            self.unanswered.push(id);
        }
        Some(line)
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
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.tick().await;
        let mut heard = Instant::now();
        loop {
            let sent = tokio::select! {
                message = stream.next() => match message {
                    Some(Ok(message)) => {
                        heard = Instant::now();
                        match self.hear(message, outbox).await {
                            None => Ok(()),
                            Some(MessageEffect::Closed(why, stops)) => return SocketEnd::Closed(why, stops),
                            Some(MessageEffect::Again) => return SocketEnd::Broken,
                            Some(MessageEffect::Many) => sink.send(Message::Ping(self.tally.ping())).await,
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
                    // The input has ended; the waiting lines are sent first.
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
                    if heard.elapsed() > PING_INTERVAL * 3 {
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

    /// Returns whether more of the client's input is read, given the lines that wait.
    fn takes_more(&self) -> bool {
        let waits_within_limit = self.tally.is_full() && self.waiting.bytes < MAX_WAITING_BYTES;
        !self.tally.is_full() && self.waiting.is_empty() || waits_within_limit
    }

    /// Sends a line of the client.
    async fn pass_on<S: Sink<Message, Error = WebSocketError> + Unpin>(
        &mut self,
        sink: &mut S,
        line: Option<Bytes>,
    ) -> Result<(), WebSocketError> {
        let Some(text) = line.and_then(|line| self.record_client_line(line)) else {
            return Ok(());
        };
        self.tally.sent(&text);
        websocket::send_one(sink, text).await
    }

    /// Handles a message of the server.
    async fn hear(&mut self, message: Message, outbox: &Outbox) -> Option<MessageEffect> {
        match message {
            Message::Text(text) => {
                let line = Bytes::from(text);
                let bytes = line.len();
                if self.is_recorded() {
                    self.show(line, outbox).await;
                } else {
                    let read = std::str::from_utf8(&line).ok().map(rpc::read);
                    if let Some(Ok(RpcMessage::Response { id, .. })) = read {
                        self.unanswered.retain(|request| request.as_str() != id);
                    }
                    outbox.send(line.into()).await;
                }
                let many = self.tally.record_received(bytes);
                if self.conversation.has_handed_over_prompts() {
                    return Some(MessageEffect::Closed(String::new(), true));
                }
                many.then_some(MessageEffect::Many)
            }
            Message::Ping(payload) => {
                self.tally.pinged(&payload);
                None
            }
            Message::Close(frame)
                if frame
                    .as_ref()
                    .is_some_and(|frame| frame.code == CloseCode::Again) =>
            {
                Some(MessageEffect::Again)
            }
            Message::Close(frame) => {
                let stops = frame
                    .as_ref()
                    .is_some_and(|frame| frame.code == CloseCode::Restart);
                let why = frame.filter(|frame| !frame.reason.is_empty());
                let why = why
                    .map(|frame| format!(": {}", base::text::title(&frame.reason)))
                    .unwrap_or_default();
                Some(MessageEffect::Closed(why, stops))
            }
            _ => None,
        }
    }
}

/// Returns whether a line is sent before those that wait: a cancellation is, unless its target is
/// among them.
fn overtakes(line: &[u8], waiting: &VecDeque<Bytes>) -> bool {
    let Some(shape) = Shape::of(line) else {
        return false;
    };
    let mut others = waiting.iter().filter_map(|line| Shape::of(line));
    match shape.method.as_deref() {
        Some("session/cancel") => {
            let session = shape.session();
            session.is_some() && others.all(|other| other.session() != session)
        }
        Some("$/cancel_request") => {
            let cancelled = shape.cancelled();
            cancelled.is_some()
                && others.all(|other| other.id.map(RawValue::get) != cancelled.as_deref())
        }
        _ => false,
    }
}

/// Waits until the client's input has ended.
async fn gone(lines: &mpsc::Receiver<Line>) {
    while !(lines.is_closed() && lines.is_empty()) {
        tokio::time::sleep(OPEN_RETRY_INTERVAL).await; // a closed channel gives no notification
    }
}

/// The consequence of a server's message for the bridge.
enum MessageEffect {
    /// The server has ended the connection, as in [`SocketEnd::Closed`].
    Closed(String, bool),
    /// The server cannot take the last message at the moment, and expects it again.
    Again,
    /// An acknowledgement is due.
    Many,
}

/// The answers of a server that it does not know the connection.
#[derive(Default)]
struct UnknownAnswers {
    /// The time of the first one.
    first: Option<Instant>,
    number: u32,
}

impl UnknownAnswers {
    /// Records an answer at this time. Returns whether the connection is tried again, or the
    /// conversation moves to a new one.
    fn asks_again(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        self.number += 1;
        now.duration_since(first) < UNKNOWN_TIMEOUT || self.number < MIN_UNKNOWN_ANSWERS
    }
}

/// Returns a client's line as a message, or the error response for one that is not. If the line is
/// a response that is too long, the server waits for it, and gets an error in its place.
fn message(line: Line) -> Result<Bytes, Vec<u8>> {
    let bad = match line {
        Line::Text(text) => return Ok(text),
        Line::Bad(bad) => bad,
    };
    match rpc::read_bad(&bad) {
        Ok(RpcMessage::Response {
            id,
            outcome: Err(error),
        }) => Ok(rpc::failure(&Id::parse(id).unwrap_or_else(Id::null), &error).into()),
        Ok(_) => Err(rpc::failure(
            &Id::null(),
            &RpcError::invalid_request(bad.to_string()),
        )),
        Err(invalid) => Err(rpc::failure(&invalid.id, &invalid.error)),
    }
}

/// Returns the pause after a number of failed attempts.
fn pause_after(tries: u32) -> Duration {
    (Duration::from_millis(100) * 2_u32.saturating_pow(tries.min(8))).min(MAX_PAUSE)
}

/// Returns the pause after a number of consecutive short connections.
fn pause_after_short(short: u32) -> Duration {
    match short {
        0 => Duration::ZERO,
        1..=MAX_SHORT_CONNECTIONS => pause_after(short),
        _ => MIN_LIFETIME,
    }
}

/// Returns the reason why a server refuses a request.
fn details(error: &RpcError) -> String {
    let details = error
        .data
        .as_ref()
        .and_then(|data| data["details"].as_str());
    details.unwrap_or(&error.message).to_owned()
}

/// Returns the innermost cause, which is the most specific.
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
    fn pause_is_below_one_second_when_server_is_back() {
        let pauses: Vec<Duration> = (1..1000).map(pause_after).collect();
        assert!(
            pauses[0] < Duration::from_millis(300) && pauses.is_sorted(),
            "{:?}",
            &pauses[..8]
        );
        let longest = pauses.last().copied().unwrap_or_default();
        // A server that was restarted does not know the connection. The rest of the second is for
        // the handshakes and the sessions.
        let longest = longest + UNKNOWN_TIMEOUT + UNKNOWN_RETRY_INTERVAL;
        assert!(longest <= Duration::from_millis(600), "{longest:?}");
    }

    #[test]
    fn unknown_connection_is_tried_for_a_time_and_a_number_of_attempts() {
        let begin = Instant::now();
        let mut unknown = UnknownAnswers::default();
        assert!((0..1000).all(|_| unknown.asks_again(begin)));
        let last = UNKNOWN_TIMEOUT.saturating_sub(Duration::from_millis(1));
        assert!(unknown.asks_again(begin + last));
        assert!(!unknown.asks_again(begin + UNKNOWN_TIMEOUT));
        // On a slow link the time ends before the second answer.
        let mut slow = UnknownAnswers::default();
        let answers: Vec<bool> = (0..5)
            .map(|number| slow.asks_again(begin + UNKNOWN_TIMEOUT * 2 * number))
            .collect();
        assert_eq!(answers, [true, true, true, false, false]);
    }

    #[test]
    fn server_that_ends_every_connection_is_tried_rarely() {
        // One restart, or several in a minute, are noticed within a second.
        assert!((0..=10).all(|short| pause_after_short(short) < Duration::from_secs(1)));
        assert_eq!(pause_after_short(0), Duration::ZERO);
        let hour: Vec<Duration> = (1..730).map(pause_after_short).collect();
        assert!(hour.is_sorted() && hour.iter().sum::<Duration>() > Duration::from_secs(3500));
    }

    #[test]
    fn cancellation_overtakes_all_but_its_target() {
        let line = |text: &'static str| Bytes::from_static(text.as_bytes());
        let waiting = VecDeque::from([
            line(r#"{"id":2,"method":"session/prompt","params":{"sessionId":"a","prompt":[]}}"#),
            line(r#"{"id":"x","method":"session/list","params":{}}"#),
        ]);
        for (cancel, goes_first) in [
            (
                r#"{"method":"session/cancel","params":{"sessionId":"a"}}"#,
                false,
            ),
            (
                r#"{"method":"session/cancel","params":{"sessionId":"b"}}"#,
                true,
            ),
            (r#"{"method":"session/cancel","params":{}}"#, false),
            (
                r#"{"method":"$/cancel_request","params":{"requestId":2}}"#,
                false,
            ),
            (
                r#"{"method":"$/cancel_request","params":{"requestId":"x"}}"#,
                false,
            ),
            (
                r#"{"method":"$/cancel_request","params":{"requestId":1}}"#,
                true,
            ),
            (
                r#"{"id":3,"method":"session/prompt","params":{"sessionId":"b","prompt":[]}}"#,
                false,
            ),
            ("not a message", false),
        ] {
            assert_eq!(
                overtakes(cancel.as_bytes(), &waiting),
                goes_first,
                "{cancel}"
            );
        }
    }
}
