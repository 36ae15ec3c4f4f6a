//! A conversation that moves to another server when its server is lost or stops. The bridge records
//! the messages between client and server that this takes: the client's `initialize`, the endpoints
//! that it has set, its open sessions, its unanswered requests, and the updates it was shown.
//! Supports only version 1 of the protocol.
//!
//! No message is repeated: of a session that is loaded again, the client is shown only the part
//! that it has not seen; and each prompt has an idempotency key, by which the next server knows
//! whether it has begun or ended.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use protocol::acp::CANCEL_REQUEST;
use protocol::rpc::{self, Error as RpcError, Id, RpcMessage, code};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::command_lists::CommandLists;
use super::repeated::{LastText, RepeatedAnswer, RepeatedPiece};
use super::rewrite::{Members, with_id, with_key, with_own, with_update};
use acp_server::meta::{AWAITS_LEASE, HANDED_OVER, IN_USE, META_KEY, UNPROMPTED};
use acp_server::options::MODEL;
use base::text;
use project::command;
use session::builtin::BuiltinName;

/// The notification of other keys and logins. It has the members of the answer to `auth/status`.
const ACCOUNTS_UPDATE: &str = "auth/status_update";

/// The maximum number of servers that get the same prompt: the prompt may be the reason why they
/// were lost.
const MAX_SERVERS: u32 = 5;

/// The recorded state of a conversation between a client and its servers.
#[derive(Debug)]
pub(super) struct CarriedConversation {
    /// The unique prefix of the idempotency keys.
    name: String,
    prompts: u64,
    /// The params of `initialize`.
    initialize: Option<Box<RawValue>>,
    /// A server has answered `initialize` with a supported version.
    is_supported: bool,
    /// The last accepted change of each provider's endpoint.
    endpoints: BTreeMap<String, EndpointChange>,
    /// The number of changes of endpoints that the client has requested.
    changes: u64,
    /// The keys and logins of which the client was last informed; `None` if it has not asked.
    accounts: Option<Value>,
    /// The sessions that the client has open.
    sessions: BTreeMap<String, OpenSession>,
    /// The messages and calls shown in each session by id, including subagents' sessions.
    shown: HashMap<String, HashMap<String, Shown>>,
    /// The text shown last in each session, and its comparison with the repeated answer.
    last: HashMap<String, LastText>,
    repeated: HashMap<String, RepeatedAnswer>,
    commands: CommandLists,
    /// The client's unanswered requests, in order.
    unanswered: Vec<ClientRequest>,
    /// The ids of the server's unanswered requests: the id that the client knows, and the server's
    /// id.
    questions: HashMap<String, String>,
    /// The number of earlier servers. The requests of different servers may have equal ids.
    servers: u32,
    /// The number of requests made by the bridge itself.
    own_requests: u64,
}

/// A change of a provider's endpoint.
#[derive(Debug, Clone)]
struct EndpointChange {
    /// The number of the request among the changes.
    number: u64,
    method: String,
    params: Members,
}

#[derive(Debug, Default)]
struct OpenSession {
    /// The params to load it.
    params: Members,
    /// Its model as `provider/model`, if a server has named it.
    model: Option<String>,
    /// The choices made, with their methods, while the session has no prompt: until then it is not
    /// stored.
    unstored_choices: Option<Vec<(String, Members)>>,
}

#[derive(Debug, Clone, Copy)]
enum Shown {
    /// The number of characters of a message.
    Text(usize),
    /// A call, and whether it has ended.
    Call(bool),
}

#[derive(Debug)]
struct ClientRequest {
    id: Id,
    line: Bytes,
    /// The server has handed the turn over to another one.
    handed_over: bool,
    /// The number of servers that got the request.
    attempts: u32,
    kind: RequestKind,
}

#[derive(Debug)]
enum RequestKind {
    Initialize,
    /// Opens a session with these params: a new one, or a stored one.
    Opening {
        params: Members,
        new: bool,
    },
    /// Chooses a mode or another option of a session by this method.
    Choosing {
        session: String,
        method: String,
        choice: Members,
    },
    /// Changes the endpoint of a provider.
    Endpoint {
        provider: String,
        change: EndpointChange,
    },
    /// Asks for the keys and logins.
    Accounts,
    /// Closes the session with this id.
    Closing(String),
    Prompt {
        session: String,
        /// The user has cancelled it.
        cancelled: bool,
        /// It is a built-in command. The history does not show whether one was carried out.
        is_builtin: bool,
    },
    Anything,
}

/// The members of an update that are needed here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    session_id: String,
    #[serde(borrow)]
    update: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownUpdate {
    session_update: String,
    message_id: Option<String>,
    tool_call_id: Option<String>,
    status: Option<String>,
    content: Option<Value>,
    available_commands: Option<Value>,
}

/// The options of a session, in a response or an update.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownOptions {
    #[serde(default)]
    config_options: Vec<Value>,
}

impl ShownOptions {
    /// Returns the model that is chosen.
    fn model(self) -> Option<String> {
        let mut options = self.config_options.into_iter();
        let model = options.find(|option| option["id"] == MODEL)?;
        model["currentValue"].as_str().map(str::to_owned)
    }
}

impl ShownUpdate {
    fn read(params: &str) -> Option<(String, Self)> {
        let update: Update<'_> = serde_json::from_str(params).ok()?;
        Some((
            update.session_id,
            serde_json::from_str(update.update.get()).ok()?,
        ))
    }

    fn is_text(&self) -> bool {
        matches!(
            &*self.session_update,
            "agent_message_chunk" | "agent_thought_chunk"
        )
    }

    fn text(&self) -> &str {
        self.content
            .as_ref()
            .and_then(|content| content["text"].as_str())
            .unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed" | "failed"))
    }
}

impl CarriedConversation {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            prompts: 0,
            initialize: None,
            is_supported: false,
            endpoints: BTreeMap::new(),
            changes: 0,
            accounts: None,
            sessions: BTreeMap::new(),
            shown: HashMap::new(),
            last: HashMap::new(),
            repeated: HashMap::new(),
            commands: CommandLists::default(),
            unanswered: Vec::new(),
            questions: HashMap::new(),
            servers: 0,
            own_requests: 0,
        }
    }

    /// Returns whether the conversation can move to another server.
    pub(super) fn can_move(&self) -> bool {
        self.is_supported
    }

    /// Records a line of the client. Returns the line to be sent to the server, if any.
    pub(super) fn on_client_line(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(Ok(message)) = std::str::from_utf8(&line).ok().map(rpc::read) else {
            return Some(line);
        };
        match message {
            RpcMessage::Request { id, method, params } => {
                let (kind, keyed) = self.classify(&method, params, &line);
                let line = keyed.unwrap_or_else(|| line.clone());
                self.unanswered.push(ClientRequest {
                    id,
                    line: line.clone(),
                    handed_over: false,
                    attempts: 1,
                    kind,
                });
                Some(line)
            }
            RpcMessage::Notification { method, params } => {
                if ["session/cancel", CANCEL_REQUEST].contains(&&*method) {
                    self.cancel(params);
                }
                Some(line)
            }
            RpcMessage::Response { id, .. } => match self.questions.remove(id) {
                Some(theirs) if theirs == id => Some(line),
                Some(theirs) => with_id(&line, &theirs),
                // It answers a question of an earlier server.
                None => (self.servers == 0).then_some(line),
            },
        }
    }

    fn classify(
        &mut self,
        method: &str,
        params: &str,
        line: &Bytes,
    ) -> (RequestKind, Option<Bytes>) {
        let members = || serde_json::from_str::<Members>(params).unwrap_or_default();
        let kind = match method {
            "initialize" => {
                self.initialize = RawValue::from_string(params.to_owned()).ok();
                RequestKind::Initialize
            }
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                let params = members();
                if matches!(method, "session/load" | "session/resume")
                    && let Some(session) = session(&params)
                {
                    self.commands.forget(&session);
                }
                RequestKind::Opening {
                    params,
                    new: method == "session/new",
                }
            }
            "session/set_mode" | "session/set_config_option" => {
                let choice = members();
                match session(&choice) {
                    Some(session) => RequestKind::Choosing {
                        session,
                        method: method.to_owned(),
                        choice,
                    },
                    None => RequestKind::Anything,
                }
            }
            "providers/set" | "providers/disable" => {
                let params = members();
                match provider(&params) {
                    Some(provider) => {
                        self.changes += 1;
                        let change = EndpointChange {
                            number: self.changes,
                            method: method.to_owned(),
                            params,
                        };
                        RequestKind::Endpoint { provider, change }
                    }
                    None => RequestKind::Anything,
                }
            }
            "auth/status" => RequestKind::Accounts,
            "session/close" | "session/delete" => match session(&members()) {
                Some(session) => RequestKind::Closing(session),
                None => RequestKind::Anything,
            },
            // Other versions answer prompts differently, and their sessions do not move.
            "session/prompt" if self.is_supported => match session(&members()) {
                Some(session) => {
                    self.prompts += 1;
                    let key = format!("{}-{}", self.name, self.prompts);
                    let is_builtin = is_builtin(params);
                    return (
                        RequestKind::Prompt {
                            session,
                            cancelled: false,
                            is_builtin,
                        },
                        with_key(line, &key),
                    );
                }
                None => RequestKind::Anything,
            },
            _ => RequestKind::Anything,
        };
        (kind, None)
    }

    /// Records that the user has cancelled the prompts of a session, or the one with the given
    /// request id.
    fn cancel(&mut self, params: &str) {
        let params = serde_json::from_str::<Members>(params).unwrap_or_default();
        let session = session(&params);
        let id = params.get("requestId").map(|id| id.get());
        for request in &mut self.unanswered {
            if let RequestKind::Prompt {
                session: of,
                cancelled,
                ..
            } = &mut request.kind
                && (Some(&*of) == session.as_ref() || Some(request.id.as_str()) == id)
            {
                *cancelled = true;
            }
        }
    }

    /// Records a line of the server. Returns the line to be sent to the client, if any.
    pub(super) fn on_server_line(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(Ok(message)) = std::str::from_utf8(&line).ok().map(rpc::read) else {
            return Some(line);
        };
        match message {
            RpcMessage::Response { id, outcome } => {
                let at = self
                    .unanswered
                    .iter()
                    .position(|request| request.id.as_str() == id);
                let Some(at) = at else { return Some(line) };
                let handed_over = match &outcome {
                    Ok(result) => serde_json::from_str(result)
                        .is_ok_and(|result: Value| is_handed_over(&result["_meta"])),
                    Err(error) => error.data.as_ref().is_some_and(is_handed_over),
                };
                if handed_over && matches!(self.unanswered[at].kind, RequestKind::Prompt { .. }) {
                    self.unanswered[at].handed_over = true;
                    return None;
                }
                let result = outcome.ok().map(str::to_owned);
                let ClientRequest { kind, .. } = self.unanswered.remove(at);
                if let RequestKind::Prompt { session, .. } = &kind {
                    self.last.remove(session);
                    self.repeated.remove(session);
                }
                self.record_result(kind, result.as_deref());
                Some(line)
            }
            RpcMessage::Request { id, .. } => {
                let shown = self.shown_id(id.as_str());
                let renamed = if shown == id.as_str() {
                    Some(line.clone())
                } else {
                    with_id(&line, &shown)
                };
                self.questions.insert(shown, id.as_str().to_owned());
                renamed
            }
            RpcMessage::Notification { method, params } if method == CANCEL_REQUEST => {
                let request = serde_json::from_str::<Members>(params)
                    .ok()
                    .and_then(|mut all| all.remove("requestId"));
                let shown = request.map(|id| self.shown_id(id.get()))?;
                self.questions.remove(&shown);
                Some(cancelled(&shown))
            }
            RpcMessage::Notification { method, params } if method == "session/update" => {
                self.shown(params);
                self.as_shown(line.clone(), params)
            }
            RpcMessage::Notification { method, params } => {
                if method == ACCOUNTS_UPDATE {
                    self.accounts = serde_json::from_str(params).ok();
                }
                Some(line)
            }
        }
    }

    /// Returns an update as the client is to see it now, if at all.
    fn as_shown(&mut self, line: Bytes, params: &str) -> Option<Bytes> {
        if !self.is_supported {
            return Some(line);
        }
        let Some((session, update)) = ShownUpdate::read(params) else {
            return Some(line);
        };
        match update.available_commands {
            Some(list) => {
                let is_waiting = self.is_waiting(&session);
                self.commands.receive(session, list, line, is_waiting)
            }
            None => self.without_repetition(line, session, &update),
        }
    }

    /// Returns an update without the repeated part of an interrupted answer.
    fn without_repetition(
        &mut self,
        line: Bytes,
        session: String,
        update: &ShownUpdate,
    ) -> Option<Bytes> {
        let id = match &update.message_id {
            // The message with the reason of an interruption follows the answer.
            Some(id)
                if update.session_update == "agent_message_chunk" && !id.ends_with("-fault") =>
            {
                id
            }
            Some(_) if update.is_text() => return Some(line),
            _ => {
                if update.tool_call_id.is_some() || update.session_update == "user_message_chunk" {
                    self.last.remove(&session);
                    self.repeated.remove(&session);
                }
                return Some(line);
            }
        };
        let piece = self
            .repeated
            .get_mut(&session)
            .map(|answer| answer.hear(id, update.text()));
        let (id, text, line) = match piece {
            None | Some(RepeatedPiece::Pass) => (id.clone(), update.text().to_owned(), Some(line)),
            Some(RepeatedPiece::Seen) => return None,
            Some(RepeatedPiece::Instead(id, text)) => {
                let content = json!({ "type": "text", "text": text });
                let line = with_update(
                    &line,
                    &[("messageId", id.clone().into()), ("content", content)],
                );
                (id, text, line)
            }
        };
        let last = LastText::shown(self.last.remove(&session), &id, &text);
        self.last.extend(last.map(|last| (session, last)));
        line
    }

    /// Returns the id by which the client knows a request of the server.
    fn shown_id(&self, theirs: &str) -> String {
        if self.servers == 0 {
            theirs.to_owned()
        } else {
            json!(format!("{}:{theirs}", self.servers)).to_string()
        }
    }

    fn record_result(&mut self, kind: RequestKind, result: Option<&str>) {
        let Some(result) = result else { return };
        match kind {
            RequestKind::Initialize => {
                let version = |result: Value| result["protocolVersion"] == 1;
                self.is_supported = serde_json::from_str(result).is_ok_and(version);
            }
            RequestKind::Opening { mut params, new } => {
                let new_id = serde_json::from_str::<Members>(result)
                    .ok()
                    .and_then(|mut all| all.remove("sessionId"));
                if let Some(new_id) = new_id {
                    params.insert("sessionId".into(), new_id);
                }
                if let Some(id) = session(&params) {
                    let model = serde_json::from_str::<ShownOptions>(result).ok();
                    self.sessions.insert(
                        id,
                        OpenSession {
                            params,
                            model: model.and_then(ShownOptions::model),
                            unstored_choices: new.then(Vec::new),
                        },
                    );
                }
            }
            RequestKind::Choosing {
                session,
                method,
                choice,
            } => {
                self.record_model(&session, result);
                let unstored_choices = self
                    .sessions
                    .get_mut(&session)
                    .and_then(|session| session.unstored_choices.as_mut());
                // The last choice replaces earlier ones.
                if let Some(unstored_choices) = unstored_choices {
                    unstored_choices.retain(|(other, before)| {
                        *other != method || option(before) != option(&choice)
                    });
                    unstored_choices.push((method, choice));
                }
            }
            RequestKind::Endpoint { provider, change } => {
                let before = self.endpoints.get(&provider);
                if before.is_none_or(|before| before.number < change.number) {
                    self.endpoints.insert(provider, change);
                }
            }
            RequestKind::Accounts => self.accounts = serde_json::from_str(result).ok(),
            RequestKind::Closing(session) => self.forget(&session),
            RequestKind::Prompt { .. } | RequestKind::Anything => {}
        }
    }

    fn shown(&mut self, params: &str) {
        if !self.is_supported {
            return;
        }
        let Some((session, update)) = ShownUpdate::read(params) else {
            return;
        };
        if update.session_update == "config_option_update" {
            return self.record_options(params);
        }
        if update.tool_call_id.is_none() && !update.is_text() {
            return;
        }
        if let Some(open) = self.sessions.get_mut(&session) {
            open.unstored_choices = None;
        }
        // The updates of a load precede its response.
        let shown = self.shown.entry(session).or_default();
        if let Some(id) = &update.tool_call_id {
            let ended = matches!(shown.get(id), Some(Shown::Call(true))) || update.has_ended();
            shown.insert(id.clone(), Shown::Call(ended));
        } else if let Some(id) = &update.message_id {
            let before = if let Some(Shown::Text(before)) = shown.get(id) {
                *before
            } else {
                0
            };
            shown.insert(
                id.clone(),
                Shown::Text(before + update.text().chars().count()),
            );
        }
    }

    /// Records the model of a session, if the options that a server has sent contain it.
    fn record_model(&mut self, session: &str, options: &str) {
        let model = serde_json::from_str::<ShownOptions>(options)
            .ok()
            .and_then(ShownOptions::model);
        if let (Some(open), Some(model)) = (self.sessions.get_mut(session), model) {
            open.model = Some(model);
        }
    }

    /// Records the model in an update of a session's options.
    fn record_options(&mut self, params: &str) {
        if let Ok(Update { session_id, update }) = serde_json::from_str(params) {
            self.record_model(&session_id, update.get());
        }
    }

    fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
        self.shown.remove(session);
        self.last.remove(session);
        self.repeated.remove(session);
        self.commands.forget(session);
    }

    /// Returns whether the server has handed over all running prompts of this client.
    pub(super) fn has_handed_over_prompts(&self) -> bool {
        let mut prompts = self
            .unanswered
            .iter()
            .filter(|request| matches!(request.kind, RequestKind::Prompt { .. }))
            .peekable();
        prompts.peek().is_some() && prompts.all(|request| request.handed_over)
    }

    /// Leaves a server that is lost or stops. Returns the cancellations of its questions for the
    /// client, because no server will receive the answers.
    pub(super) fn leave(&mut self) -> Vec<Bytes> {
        self.servers += 1;
        std::mem::take(&mut self.questions)
            .into_keys()
            .map(|id| cancelled(&id))
            .collect()
    }

    /// Creates a request of the bridge itself: its id, and its line.
    fn request(&mut self, method: &str, params: &impl serde::Serialize) -> (String, Bytes) {
        self.own_requests += 1;
        let id = json!(format!("{}/{}", self.name, self.own_requests));
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (id.to_string(), line.to_string().into())
    }

    /// Creates the `initialize` request for another server: its id, and its line.
    pub(super) fn introduction(&mut self) -> (String, Bytes) {
        let initialize = self.initialize.clone();
        self.request("initialize", &initialize)
    }

    /// Creates the requests that repeat the changes of endpoints: each with its provider, its id,
    /// and its line.
    pub(super) fn endpoints(&mut self) -> Vec<(String, (String, Bytes))> {
        let changes = self.endpoints.clone();
        changes
            .into_iter()
            .map(|(provider, change)| (provider, self.request(&change.method, &change.params)))
            .collect()
    }

    /// Creates the request that disables a provider: its id, and its line.
    pub(super) fn disable(&mut self, provider: &str) -> (String, Bytes) {
        self.request("providers/disable", &json!({ "providerId": provider }))
    }

    /// Returns why a session cannot be carried on, if its model belongs to one of these providers,
    /// which have lost their endpoints, or is unknown.
    pub(super) fn lost_model(
        &self,
        session: &str,
        unset: &BTreeMap<String, String>,
    ) -> Option<String> {
        let model = self
            .sessions
            .get(session)
            .and_then(|open| open.model.as_deref());
        let (provider, why) = match model.and_then(|model| model.split_once('/')) {
            Some((provider, _)) => unset.get_key_value(provider)?,
            None => unset.first_key_value()?,
        };
        Some(format!(
            "the server refuses the endpoint of the model provider \"{provider}\" that the editor has set: {why}"
        ))
    }

    /// Creates the request for the keys and logins of another server, if the client has asked for
    /// those of an earlier one: its id, and its line. The server then reports changes of them.
    pub(super) fn accounts(&mut self) -> Option<(String, Bytes)> {
        self.accounts
            .is_some()
            .then(|| self.request("auth/status", &json!({})))
    }

    /// Returns the notification for the client if another server has other keys and logins.
    pub(super) fn other_accounts(&mut self, result: &str) -> Option<Bytes> {
        let now: Value = serde_json::from_str(result).ok()?;
        if self.accounts.as_ref() == Some(&now) {
            return None;
        }
        let update = json!({ "jsonrpc": "2.0", "method": ACCOUNTS_UPDATE, "params": now });
        self.accounts = Some(now);
        Some(update.to_string().into())
    }

    /// Returns the sessions that the client has open.
    pub(super) fn sessions(&self) -> Vec<String> {
        self.sessions.keys().cloned().collect()
    }

    /// Creates the request that loads a session: its id, and its line.
    pub(super) fn load(&mut self, session: &str) -> (String, Bytes) {
        let open = self.sessions.get(session);
        let mut params = open.map(|open| open.params.clone()).unwrap_or_default();
        if open.is_some_and(|open| open.unstored_choices.is_some()) {
            with_own(&mut params, UNPROMPTED, true);
        }
        // A second load would take the session over from a client that has opened it in the
        // meantime, which is right only for a turn of this client.
        if !self.is_waiting(session) {
            with_own(&mut params, AWAITS_LEASE, true);
        }
        self.request("session/load", &params)
    }

    /// Creates the requests that repeat the choices in a session that is not stored: their ids, and
    /// their lines.
    pub(super) fn choices(&mut self, session: &str) -> Vec<(String, Bytes)> {
        let unstored_choices = self
            .sessions
            .get(session)
            .and_then(|open| open.unstored_choices.clone())
            .unwrap_or_default();
        unstored_choices
            .into_iter()
            .map(|(method, choice)| self.request(&method, &choice))
            .collect()
    }

    /// Returns whether an update may be part of the history of a session that is being loaded, or
    /// of its subagents.
    pub(super) fn is_replay(&self, params: &str, loaded: &str) -> bool {
        let Some((session, update)) = ShownUpdate::read(params) else {
            return false;
        };
        let is_history = update.available_commands.is_none();
        is_history && (session == loaded || !self.sessions.contains_key(&session))
    }

    /// Returns whether a prompt of a session is unanswered.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        has_prompt(&self.unanswered, id)
    }

    /// Returns whether the load of a session that was refused with this error is repeated.
    pub(super) fn repeats_load(&self, session: &str, error: &RpcError) -> bool {
        let data = error.data.as_ref();
        // An earlier load may go on, whose connection broke while it awaited the end of a lease.
        let is_in_use = data.is_some_and(|data| data[META_KEY][IN_USE] == true);
        // A second request takes the session over from another connection, which is right only for
        // a turn of this client.
        is_in_use || error.code == code::INTERNAL && self.is_waiting(session)
    }

    /// Takes the lists of commands that were held until prompts are answered, and now are to be
    /// sent to the client.
    pub(super) fn due_command_lists(&mut self) -> Vec<Bytes> {
        let unanswered = &self.unanswered;
        self.commands
            .take_due(|session| has_prompt(unanswered, session))
    }

    /// Returns the updates of a loaded session, and of its subagents, that the client has not seen.
    /// They can only belong to the last turn. No update is returned for a session in which the
    /// client was shown nothing, because it is unknown which part it missed.
    pub(super) fn missed_updates(&self, replay: Vec<Bytes>) -> Vec<Bytes> {
        let mut counts: HashMap<(String, String), usize> = HashMap::new();
        let mut missed: Vec<(String, Bytes)> = Vec::new();
        for line in replay {
            let update = match std::str::from_utf8(&line).ok().map(rpc::read) {
                Some(Ok(RpcMessage::Notification { params, .. })) => ShownUpdate::read(params),
                _ => None,
            };
            let Some((session, update)) = update else {
                continue;
            };
            let Some(shown) = self.shown.get(&session).filter(|shown| !shown.is_empty()) else {
                continue;
            };
            if update.session_update == "user_message_chunk" {
                missed.retain(|(of, _)| *of != session);
                continue;
            }
            let message_id = if update.is_text() {
                update.message_id.as_ref()
            } else {
                None
            };
            let id = message_id.or(update.tool_call_id.as_ref());
            let line = match id.and_then(|id| Some((id, shown.get(id)?))) {
                None => Some(line),
                Some((_, Shown::Call(true))) => None,
                Some((_, Shown::Call(false))) => {
                    with_update(&line, &[("sessionUpdate", "tool_call_update".into())])
                }
                Some((id, Shown::Text(seen))) => {
                    let text = update.text();
                    let passed = counts.entry((session.clone(), id.clone())).or_default();
                    let rest: String = text.chars().skip(seen.saturating_sub(*passed)).collect();
                    *passed += text.chars().count();
                    let content = json!({ "type": "text", "text": rest });
                    if rest.is_empty() {
                        None
                    } else {
                        with_update(&line, &[("content", content)])
                    }
                }
            };
            missed.extend(line.map(|line| (session, line)));
        }
        missed.into_iter().map(|(_, line)| line).collect()
    }

    /// Forgets a session that cannot be loaded. Returns the error responses for its prompts, or if
    /// there are none, a message in the session.
    pub(super) fn give_up(&mut self, id: &str, why: &str) -> Vec<Bytes> {
        self.forget(id);
        let is_lost = |request: &mut ClientRequest| matches!(&request.kind, RequestKind::Prompt { session, .. } if session == id);
        let error = format!("the server was lost, and session {id} cannot be opened: {why}");
        let failure = RpcError::internal(&error);
        let mut lines: Vec<Bytes> = self
            .unanswered
            .extract_if(.., is_lost)
            .map(|request| rpc::failure(&request.id, &failure).into())
            .collect();
        if lines.is_empty() {
            self.own_requests += 1;
            let message_id = format!("{}/{}", self.name, self.own_requests);
            let text = format!("{}.", text::capitalised(&error));
            lines.push(message(id, &message_id, &text));
        }
        lines
    }

    /// Ends the conversation. Returns the error responses for all requests.
    pub(super) fn end(&mut self, why: &str) -> Vec<Bytes> {
        let error = RpcError::internal(why);
        let all = self.unanswered.drain(..);
        all.map(|request| rpc::failure(&request.id, &error).into())
            .collect()
    }

    /// Returns the lines to be sent again to the server, and the responses to the client for
    /// prompts that end here: cancelled ones, those that too many servers got, and built-in
    /// commands that may have been carried out, because they must not run twice.
    pub(super) fn lines_to_resend(&mut self) -> (Vec<Bytes>, Vec<Bytes>) {
        let mut sent = Vec::new();
        let ends_here = |request: &mut ClientRequest| match &request.kind {
            RequestKind::Prompt {
                cancelled,
                is_builtin,
                ..
            } => {
                *cancelled
                    || (*is_builtin && !request.handed_over)
                    || request.attempts >= MAX_SERVERS
            }
            _ => false,
        };
        let lost = RpcError::internal(
            "the server was lost while it carried this out; check what it did before you send it again",
        );
        let mut responses = Vec::new();
        for request in self.unanswered.extract_if(.., ends_here) {
            responses.push(match request.kind {
                RequestKind::Prompt { session, cancelled: true, .. } => {
                    // The next server may run the turn already.
                    sent.push(
                        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }),
                    );
                    rpc::success(&request.id, r#"{"stopReason":"cancelled"}"#).into()
                }
                _ => rpc::failure(&request.id, &lost).into(),
            });
        }
        let mut sent: Vec<Bytes> = sent.iter().map(|line| line.to_string().into()).collect();
        for request in &mut self.unanswered {
            request.handed_over = false;
            request.attempts += 1;
            if let RequestKind::Prompt { session, .. } = &request.kind
                && let Some(last) = self.last.get(session)
            {
                self.repeated
                    .insert(session.clone(), RepeatedAnswer::new(last.clone()));
            }
            sent.push(request.line.clone());
        }
        (sent, responses)
    }
}

/// Returns whether a prompt of a session is among the requests.
fn has_prompt(requests: &[ClientRequest], id: &str) -> bool {
    let is_prompt = |request: &ClientRequest| matches!(&request.kind, RequestKind::Prompt { session, .. } if session == id);
    requests.iter().any(is_prompt)
}

/// Returns a message of the agent in a session.
fn message(session: &str, message_id: &str, text: &str) -> Bytes {
    let content = json!({ "type": "text", "text": format!("{text}\n\n") });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": content });
    let params = json!({ "sessionId": session, "update": update });
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
        .to_string()
        .into()
}

/// Returns whether a prompt is a built-in command.
fn is_builtin(params: &str) -> bool {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let word = params["prompt"][0]["text"]
        .as_str()
        .and_then(|text| command::typed(text.trim()));
    word.is_some_and(|(name, _)| BuiltinName::ALL.iter().any(|(_, known, ..)| *known == name))
}

/// Returns the option that a choice is about; `None` for the mode.
fn option(choice: &Members) -> Option<&str> {
    choice.get("configId").map(|id| id.get())
}

/// Returns the session id in params.
fn session(params: &Members) -> Option<String> {
    serde_json::from_str(params.get("sessionId")?.get()).ok()
}

/// Returns the provider's id in params.
fn provider(params: &Members) -> Option<String> {
    serde_json::from_str(params.get("providerId")?.get()).ok()
}

fn is_handed_over(meta: &Value) -> bool {
    meta[META_KEY][HANDED_OVER] == true
}

fn cancelled(request: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCEL_REQUEST}","params":{{"requestId":{request}}}}}"#)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Bytes) -> Value {
        serde_json::from_slice(line).unwrap()
    }

    fn line(value: &Value) -> Bytes {
        value.to_string().into()
    }

    fn update(update: &Value) -> Bytes {
        line(
            &json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } }),
        )
    }

    fn message_chunk(id: &str, text: &str) -> Bytes {
        update(
            &json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "content": { "type": "text", "text": text } }),
        )
    }

    fn call(kind: &str, id: &str, status: &str) -> Bytes {
        update(&json!({ "sessionUpdate": kind, "toolCallId": id, "status": status }))
    }

    /// Returns a conversation with an open session and a prompt.
    fn conversation_with_prompt() -> CarriedConversation {
        let mut conversation = CarriedConversation::new("n".into());
        let messages = [
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1, "clientInfo": {} } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } }),
        ];
        for message in &messages {
            assert_eq!(
                conversation.on_client_line(line(message)),
                Some(line(message))
            );
        }
        assert!(!conversation.can_move());
        conversation
            .on_server_line(line(
                &json!({ "jsonrpc": "2.0", "id": 0, "result": { "protocolVersion": 1 } }),
            ))
            .unwrap();
        conversation
            .on_server_line(line(
                &json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "s" } }),
            ))
            .unwrap();
        let prompt = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt",
            "params": { "sessionId": "s", "prompt": [], "_meta": { "theirs": 1.0 } } });
        let sent = text(&conversation.on_client_line(line(&prompt)).unwrap());
        assert_eq!(
            sent["params"]["_meta"],
            json!({ "theirs": 1.0, "adjutant": { "idempotencyKey": "n-1" } })
        );
        conversation
    }

    #[test]
    fn repeated_answer_is_shown_once() {
        let mut conversation = conversation_with_prompt();
        conversation
            .on_server_line(message_chunk("p", "Once up"))
            .unwrap();
        conversation.leave();
        // The store has more of the answer than was shown.
        for line in conversation.missed_updates(vec![
            message_chunk("p", "Once upon"),
            message_chunk("p-fault", "(interrupted)"),
        ]) {
            conversation.on_server_line(line).unwrap();
        }
        conversation.lines_to_resend();
        assert_eq!(
            conversation.on_server_line(message_chunk("q", "Once ")),
            None
        );
        let shown = text(
            &conversation
                .on_server_line(message_chunk("q", "upon a time"))
                .unwrap(),
        )["params"]["update"]
            .clone();
        assert_eq!(
            (&shown["messageId"], &shown["content"]["text"]),
            (&json!("p"), &json!(" a time"))
        );
        // The answer is repeated again, and another one follows.
        conversation.leave();
        conversation.lines_to_resend();
        assert_eq!(
            conversation.on_server_line(message_chunk("r", "Once upon a time")),
            None
        );
        let shown = text(
            &conversation
                .on_server_line(message_chunk("r", ", long ago"))
                .unwrap(),
        )["params"]["update"]
            .clone();
        assert_eq!(
            (&shown["messageId"], &shown["content"]["text"]),
            (&json!("p"), &json!(", long ago"))
        );
        let call = call("tool_call", "c", "pending");
        assert_eq!(conversation.on_server_line(call.clone()), Some(call));
        assert_eq!(
            conversation.on_server_line(message_chunk("s", "Once upon")),
            Some(message_chunk("s", "Once upon"))
        );
    }

    #[test]
    fn unanswered_requests_are_sent_again() {
        let mut conversation = conversation_with_prompt();
        conversation
            .on_server_line(message_chunk("p", "Hello"))
            .unwrap();
        let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {} });
        assert_eq!(
            conversation.on_server_line(line(&question)),
            Some(line(&question))
        );
        assert!(conversation.can_move());
        let cancellations = conversation.leave();
        assert_eq!(
            cancellations.iter().map(text).collect::<Vec<_>>()[0]["params"],
            json!({ "requestId": 0 })
        );
        // A late answer to the old question is dropped.
        assert_eq!(
            conversation.on_client_line(line(&json!({ "jsonrpc": "2.0", "id": 0, "result": {} }))),
            None
        );
        let (id, hello) = conversation.introduction();
        assert_eq!(
            (id, text(&hello)["params"]["protocolVersion"].clone()),
            ("\"n/1\"".to_owned(), json!(1))
        );
        assert_eq!(conversation.sessions(), ["s"]);
        let (_, load) = conversation.load("s");
        assert_eq!(
            text(&load)["params"],
            json!({ "sessionId": "s", "cwd": "/w", "mcpServers": [] })
        );
        let (again, responses) = conversation.lines_to_resend();
        assert_eq!((again.len(), responses.len()), (1, 0));
        assert_eq!(
            text(&again[0])["params"]["_meta"]["adjutant"]["idempotencyKey"],
            "n-1"
        );
        // The next server's questions get ids of their own, which are mapped back in the answers.
        let renamed = conversation.on_server_line(line(&question)).unwrap();
        assert_eq!(text(&renamed)["id"], "1:0");
        let answer = conversation
            .on_client_line(line(
                &json!({ "jsonrpc": "2.0", "id": "1:0", "result": {} }),
            ))
            .unwrap();
        assert_eq!(text(&answer)["id"], 0);
        let done =
            line(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } }));
        assert_eq!(conversation.on_server_line(done.clone()), Some(done));
        assert_eq!(conversation.lines_to_resend().0, Vec::<Bytes>::new());
        // Without a prompt that waits, the session is not taken over: its lease is awaited.
        let (_, load) = conversation.load("s");
        assert_eq!(
            text(&load)["params"]["_meta"]["adjutant"],
            json!({ "awaitsLease": true })
        );
    }

    #[test]
    fn refused_load_is_repeated_unless_it_would_take_an_idle_session_over() {
        let mut conversation = conversation_with_prompt();
        let locked = RpcError::internal("it is open in another process");
        let invalid = RpcError::invalid_params("it belongs to another directory");
        let in_use = RpcError::invalid_params("it is in use")
            .data(json!({ "details": "it is in use", META_KEY: { IN_USE: true } }));
        let repeated = |conversation: &CarriedConversation| {
            [&locked, &invalid, &in_use].map(|error| conversation.repeats_load("s", error))
        };
        assert_eq!(repeated(&conversation), [true, false, true]);
        conversation
            .on_server_line(line(
                &json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } }),
            ))
            .unwrap();
        assert_eq!(repeated(&conversation), [false, false, true]);
    }

    #[test]
    fn endpoints_are_set_again() {
        let mut conversation = conversation_with_prompt();
        let request = |id: u64, method: &str, params: Value| {
            line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
        };
        let set = |base: &str| json!({ "providerId": "a", "apiType": "openai", "baseUrl": base });
        let disable = |provider: &str| json!({ "providerId": provider });
        for change in [
            request(3, "providers/set", set("http://one.example")),
            request(4, "providers/set", set("http://two.example")),
            request(5, "providers/disable", disable("b")),
            request(6, "providers/disable", disable("a")),
        ] {
            assert_eq!(conversation.on_client_line(change.clone()), Some(change));
        }
        let done = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        let refused =
            json!({ "jsonrpc": "2.0", "id": 6, "error": { "code": -32602, "message": "no" } });
        // The later of two changes may be answered first.
        for answer in [done(4), done(3), done(5), refused] {
            conversation.on_server_line(line(&answer)).unwrap();
        }
        conversation.leave();
        let again: Vec<Value> = conversation
            .endpoints()
            .iter()
            .map(|(_, (_, line))| text(line))
            .collect();
        assert_eq!(again.len(), 2);
        assert_eq!(again[0]["method"], "providers/set");
        assert_eq!(again[0]["params"], set("http://two.example"));
        assert_eq!(again[1]["method"], "providers/disable");
        assert_eq!(again[1]["params"], disable("b"));
    }

    #[test]
    fn keys_and_logins_of_the_next_server_are_reported() {
        let mut conversation = conversation_with_prompt();
        assert_eq!(conversation.accounts(), None, "the client has not asked");
        let request = json!({ "jsonrpc": "2.0", "id": 3, "method": "auth/status", "params": {} });
        conversation.on_client_line(line(&request)).unwrap();
        let state =
            |label: &str| json!({ "state": "authenticated", "accounts": [{ "label": label }] });
        let answer = json!({ "jsonrpc": "2.0", "id": 3, "result": state("a") });
        conversation.on_server_line(line(&answer)).unwrap();
        conversation.leave();
        let (_, again) = conversation.accounts().unwrap();
        assert_eq!(text(&again)["method"], "auth/status");
        assert_eq!(conversation.other_accounts(&state("a").to_string()), None);
        let update = conversation
            .other_accounts(&state("b").to_string())
            .unwrap();
        assert_eq!(text(&update)["method"], "auth/status_update");
        assert_eq!(text(&update)["params"], state("b"));
        let update =
            json!({ "jsonrpc": "2.0", "method": "auth/status_update", "params": state("c") });
        assert_eq!(
            conversation.on_server_line(line(&update)),
            Some(line(&update))
        );
        assert_eq!(conversation.other_accounts(&state("c").to_string()), None);
    }

    #[test]
    fn session_without_prompts_that_cannot_be_opened_gets_a_message_of_its_own() {
        let mut talk = CarriedConversation::new("n".into());
        let ids: Vec<Value> = ["s", "t"]
            .map(|session| {
                let lines = talk.give_up(session, "it is gone");
                let update = text(&lines[0])["params"]["update"].clone();
                let shown = update["content"]["text"].as_str().unwrap();
                assert!(
                    shown.contains(&format!("session {session} cannot be opened: it is gone")),
                    "{shown}"
                );
                update["messageId"].clone()
            })
            .into();
        assert!(ids.iter().all(Value::is_string), "{ids:?}");
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn updates_seen_before_are_not_shown_again() {
        let mut conversation = conversation_with_prompt();
        for seen in [
            message_chunk("a", "Hé"),
            message_chunk("a", "llo"),
            call("tool_call", "c", "pending"),
            call("tool_call", "d", "completed"),
        ] {
            conversation.on_server_line(seen).unwrap();
        }
        let mine = || {
            update(
                &json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "Hi" } }),
            )
        };
        let replay = vec![
            mine(),
            message_chunk("old", "Before."),
            mine(),
            message_chunk("a", "Héllo, you"),
            call("tool_call", "c", "completed"),
            call("tool_call", "d", "completed"),
            call("tool_call", "e", "completed"),
            message_chunk("b", "Bye."),
        ];
        let missed: Vec<Value> = conversation
            .missed_updates(replay)
            .iter()
            .map(|line| text(line)["params"]["update"].clone())
            .collect();
        let seen: Vec<(&str, &str)> = missed
            .iter()
            .map(|update| {
                let id = update["toolCallId"]
                    .as_str()
                    .or(update["content"]["text"].as_str())
                    .unwrap();
                (update["sessionUpdate"].as_str().unwrap(), id)
            })
            .collect();
        let wanted = [
            ("agent_message_chunk", ", you"),
            ("tool_call_update", "c"),
            ("tool_call", "e"),
            ("agent_message_chunk", "Bye."),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(
            conversation_with_prompt()
                .missed_updates(vec![mine(), message_chunk("old", "Before.")]),
            Vec::<Bytes>::new()
        );
    }

    #[test]
    fn handed_over_prompt_is_not_answered_yet() {
        let mut conversation = conversation_with_prompt();
        let moved = json!({ "jsonrpc": "2.0", "id": 2, "result":
            { "stopReason": "cancelled", "_meta": { "adjutant": { "handedOver": true } } } });
        assert!(!conversation.has_handed_over_prompts());
        assert_eq!(conversation.on_server_line(line(&moved)), None);
        assert!(conversation.has_handed_over_prompts());
        conversation.leave();
        assert_eq!(conversation.lines_to_resend().0.len(), 1);
        assert!(!conversation.has_handed_over_prompts());
        let refused = json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": -32603, "message": "It stops.", "data":
            { "adjutant": { "handedOver": true } } } });
        assert_eq!(conversation.on_server_line(line(&refused)), None);
        assert!(conversation.has_handed_over_prompts());
        // The user has cancelled it in the meantime.
        conversation.on_client_line(line(
            &json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } }),
        ))
        .unwrap();
        let (again, responses) = conversation.lines_to_resend();
        assert_eq!(text(&again[0])["method"], "session/cancel");
        assert_eq!(
            (again.len(), text(&responses[0])),
            (
                1,
                json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "cancelled" } })
            )
        );
        // It is unknown whether a built-in command was carried out.
        let mut conversation = conversation_with_prompt();
        let undo = json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params":
            { "sessionId": "s", "prompt": [{ "type": "text", "text": "/undo" }] } });
        conversation.on_client_line(line(&undo)).unwrap();
        let (again, responses) = conversation.lines_to_resend();
        assert_eq!(
            (again.len(), text(&responses[0])["id"].clone()),
            (1, json!(3))
        );
        assert!(
            text(&responses[0])["error"]
                .to_string()
                .contains("before you send it again"),
            "{responses:?}"
        );
        let mut given_up = conversation_with_prompt();
        let lost = given_up.give_up("s", "it is gone");
        assert!(
            text(&lost[0])["error"].to_string().contains("it is gone"),
            "{lost:?}"
        );
        // Without a prompt that waits, the client gets a message in the session.
        let lost = given_up.give_up("s", "it is gone");
        let update = &text(&lost[0])["params"];
        assert_eq!(
            (&update["sessionId"], &update["update"]["content"]["text"]),
            (
                &json!("s"),
                &json!("The server was lost, and session s cannot be opened: it is gone.\n\n")
            )
        );
        let ended = conversation_with_prompt().end("no server answers");
        assert_eq!(
            (ended.len(), &text(&ended[0])["error"]["data"]["details"]),
            (1, &json!("no server answers"))
        );
    }
}
