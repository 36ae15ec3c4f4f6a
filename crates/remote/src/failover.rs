//! A conversation that goes on on another server, where the one it was begun on is lost or stops. The bridge notes what
//! its editor and the server say to each other, as far as it takes: how the editor introduced itself, which sessions
//! are open, what is not answered yet, and what was shown. Only version 1 of the protocol is understood here.
//!
//! Nothing is said twice: an editor is shown of a session that was loaded again what it has not seen, and a prompt has
//! an idempotency key, by which the other server knows whether it has begun, or ended.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use protocol::acp::CANCEL_REQUEST;
use protocol::rpc::{self, Error as RpcError, Id, RpcMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::repeated::{LastText, RepeatedAnswer, RepeatedPiece};
use super::rewrite::{Members, with_id, with_key, with_own, with_update};
use acp_server::meta::{HANDED_OVER, OWN, UNSAID};
use project::command;
use session::builtin::BuiltinName;

/// A prompt is given to so many servers: it may be what they were lost of.
const SERVERS: u32 = 5;

/// What an editor and a server have said to each other.
#[derive(Debug)]
pub(super) struct CarriedConversation {
    /// Begins the idempotency keys: nobody else's do.
    name: String,
    prompts: u64,
    /// The parameters of `initialize`.
    hello: Option<Box<RawValue>>,
    /// It was answered, in a version that is understood here.
    agreed: bool,
    /// The sessions that the editor has open.
    sessions: BTreeMap<String, OpenSession>,
    /// What the editor was shown in each, by the ids of messages and calls; of subagents' sessions too.
    shown: HashMap<String, HashMap<String, Shown>>,
    /// The text that was shown last in each session, and what is made again of such a one.
    last: HashMap<String, LastText>,
    repeated: HashMap<String, RepeatedAnswer>,
    /// Requests of the editor's that are not answered, in their order.
    unanswered: Vec<EditorRequest>,
    /// The ids of the server's requests that are not answered: as the editor knows them, and as the server does.
    questions: HashMap<String, String>,
    /// How many servers there were before this one. Requests of the next one may have the same ids.
    servers: u32,
    /// How many requests were made here.
    made: u64,
}

#[derive(Debug, Default)]
struct OpenSession {
    /// What it takes to load it.
    place: Members,
    /// Until something was said in it, it is kept nowhere, and what was chosen in it, with the methods.
    fresh: Option<Vec<(String, Members)>>,
}

#[derive(Debug, Clone, Copy)]
enum Shown {
    /// So many characters of a message.
    Words(usize),
    /// A call, and whether it has ended.
    Call(bool),
}

#[derive(Debug)]
struct EditorRequest {
    id: Id,
    line: Bytes,
    /// The server has given it up, for another one.
    handed_over: bool,
    /// How many servers were asked it.
    asked: u32,
    about: RequestKind,
}

#[derive(Debug)]
enum RequestKind {
    Initialize,
    /// It opens a session with these parameters: a new one, or one that is kept.
    Opening {
        place: Members,
        new: bool,
    },
    /// It chooses the mode of a session, or another of its options, by this method.
    Choosing {
        session: String,
        method: String,
        choice: Members,
    },
    /// It closes the session of this id.
    Closing(String),
    Prompt {
        session: String,
        /// The user does not want it any more.
        cancelled: bool,
        /// It is an order to the session, of which no history says whether it was carried out.
        order: bool,
    },
    Anything,
}

/// What is looked at in an update.
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
}

impl ShownUpdate {
    fn read(params: &str) -> Option<(String, Self)> {
        let update: Update<'_> = serde_json::from_str(params).ok()?;
        Some((update.session_id, serde_json::from_str(update.update.get()).ok()?))
    }

    fn is_words(&self) -> bool {
        matches!(&*self.session_update, "agent_message_chunk" | "agent_thought_chunk")
    }

    fn words(&self) -> &str {
        self.content.as_ref().and_then(|content| content["text"].as_str()).unwrap_or_default()
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
            hello: None,
            agreed: false,
            sessions: BTreeMap::new(),
            shown: HashMap::new(),
            last: HashMap::new(),
            repeated: HashMap::new(),
            unanswered: Vec::new(),
            questions: HashMap::new(),
            servers: 0,
            made: 0,
        }
    }

    /// Whether it can go on on another server.
    pub(super) fn can_move(&self) -> bool {
        self.agreed
    }

    /// Takes note of a line of the editor's; what is to be sent for it, if anything.
    pub(super) fn said(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(Ok(message)) = std::str::from_utf8(&line).ok().map(rpc::read) else { return Some(line) };
        match message {
            RpcMessage::Request { id, method, params } => {
                let (about, keyed) = self.about(&method, params, &line);
                let line = keyed.unwrap_or_else(|| line.clone());
                self.unanswered.push(EditorRequest { id, line: line.clone(), handed_over: false, asked: 1, about });
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
                // It answers a server that is gone.
                None => (self.servers == 0).then_some(line),
            },
        }
    }

    fn about(&mut self, method: &str, params: &str, line: &Bytes) -> (RequestKind, Option<Bytes>) {
        let members = || serde_json::from_str::<Members>(params).unwrap_or_default();
        let about = match method {
            "initialize" => {
                self.hello = RawValue::from_string(params.to_owned()).ok();
                RequestKind::Initialize
            }
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                RequestKind::Opening { place: members(), new: method == "session/new" }
            }
            "session/set_mode" | "session/set_config_option" => {
                let choice = members();
                match session(&choice) {
                    Some(session) => RequestKind::Choosing { session, method: method.to_owned(), choice },
                    None => RequestKind::Anything,
                }
            }
            "session/close" | "session/delete" => match session(&members()) {
                Some(session) => RequestKind::Closing(session),
                None => RequestKind::Anything,
            },
            // In another version prompts are answered otherwise, and the session goes nowhere.
            "session/prompt" if self.agreed => match session(&members()) {
                Some(session) => {
                    self.prompts += 1;
                    let key = format!("{}-{}", self.name, self.prompts);
                    let order = is_order(params);
                    return (RequestKind::Prompt { session, cancelled: false, order }, with_key(line, &key));
                }
                None => RequestKind::Anything,
            },
            _ => RequestKind::Anything,
        };
        (about, None)
    }

    /// The user does not want a prompt any more: those of a session, or the one that a request's id names.
    fn cancel(&mut self, params: &str) {
        let params = serde_json::from_str::<Members>(params).unwrap_or_default();
        let (session, id) = (session(&params), params.get("requestId").map(|id| id.get()));
        for request in &mut self.unanswered {
            if let RequestKind::Prompt { session: of, cancelled, .. } = &mut request.about
                && (Some(&*of) == session.as_ref() || Some(request.id.as_str()) == id)
            {
                *cancelled = true;
            }
        }
    }

    /// Takes note of a line of the server's; what the editor is to be told, if anything.
    pub(super) fn heard(&mut self, line: Bytes) -> Option<Bytes> {
        let Some(Ok(message)) = std::str::from_utf8(&line).ok().map(rpc::read) else { return Some(line) };
        match message {
            RpcMessage::Response { id, outcome } => {
                let at = self.unanswered.iter().position(|request| request.id.as_str() == id);
                let Some(at) = at else { return Some(line) };
                let handed_over = match &outcome {
                    Ok(result) => serde_json::from_str(result).is_ok_and(|result: Value| given_up(&result["_meta"])),
                    Err(error) => error.data.as_ref().is_some_and(given_up),
                };
                if handed_over && matches!(self.unanswered[at].about, RequestKind::Prompt { .. }) {
                    self.unanswered[at].handed_over = true;
                    return None;
                }
                let result = outcome.ok().map(str::to_owned);
                let EditorRequest { about, .. } = self.unanswered.remove(at);
                if let RequestKind::Prompt { session, .. } = &about {
                    self.last.remove(session);
                    self.repeated.remove(session);
                }
                self.answered(about, result.as_deref());
                Some(line)
            }
            RpcMessage::Request { id, .. } => {
                let shown = self.shown_id(id.as_str());
                let told = if shown == id.as_str() { Some(line.clone()) } else { with_id(&line, &shown) };
                self.questions.insert(shown, id.as_str().to_owned());
                told
            }
            RpcMessage::Notification { method, params } if method == CANCEL_REQUEST => {
                let request = serde_json::from_str::<Members>(params).ok().and_then(|mut all| all.remove("requestId"));
                let shown = request.map(|id| self.shown_id(id.get()))?;
                self.questions.remove(&shown);
                Some(cancelled(&shown))
            }
            RpcMessage::Notification { method, params } if method == "session/update" => {
                self.shown(params);
                self.once(line.clone(), params)
            }
            RpcMessage::Notification { .. } => Some(line),
        }
    }

    /// An update as the editor is to see it: what is made again of an answer that was cut off is not shown twice.
    fn once(&mut self, line: Bytes, params: &str) -> Option<Bytes> {
        let Some((session, update)) = ShownUpdate::read(params).filter(|_| self.agreed) else { return Some(line) };
        let id = match &update.message_id {
            // Why an answer is not whole follows it.
            Some(id) if update.session_update == "agent_message_chunk" && !id.ends_with("-fault") => id,
            Some(_) if update.is_words() => return Some(line),
            _ => {
                if update.tool_call_id.is_some() || update.session_update == "user_message_chunk" {
                    self.last.remove(&session);
                    self.repeated.remove(&session);
                }
                return Some(line);
            }
        };
        let piece = self.repeated.get_mut(&session).map(|answer| answer.hear(id, update.words()));
        let (id, text, line) = match piece {
            None | Some(RepeatedPiece::Pass) => (id.clone(), update.words().to_owned(), Some(line)),
            Some(RepeatedPiece::Seen) => return None,
            Some(RepeatedPiece::Instead(id, text)) => {
                let content = json!({ "type": "text", "text": text });
                let line = with_update(&line, &[("messageId", id.clone().into()), ("content", content)]);
                (id, text, line)
            }
        };
        let last = LastText::shown(self.last.remove(&session), &id, &text);
        self.last.extend(last.map(|last| (session, last)));
        line
    }

    /// What the editor knows a request of the server's by.
    fn shown_id(&self, theirs: &str) -> String {
        if self.servers == 0 { theirs.to_owned() } else { json!(format!("{}:{theirs}", self.servers)).to_string() }
    }

    fn answered(&mut self, about: RequestKind, result: Option<&str>) {
        let Some(result) = result else { return };
        match about {
            RequestKind::Initialize => {
                let version = |result: Value| result["protocolVersion"] == 1;
                self.agreed = serde_json::from_str(result).is_ok_and(version);
            }
            RequestKind::Opening { mut place, new } => {
                let fresh = serde_json::from_str::<Members>(result).ok().and_then(|mut all| all.remove("sessionId"));
                if let Some(fresh) = fresh {
                    place.insert("sessionId".into(), fresh);
                }
                if let Some(id) = session(&place) {
                    self.sessions.insert(id, OpenSession { place, fresh: new.then(Vec::new) });
                }
            }
            RequestKind::Choosing { session, method, choice } => {
                let fresh = self.sessions.get_mut(&session).and_then(|session| session.fresh.as_mut());
                // The last one counts.
                if let Some(fresh) = fresh {
                    fresh.retain(|(other, before)| *other != method || option(before) != option(&choice));
                    fresh.push((method, choice));
                }
            }
            RequestKind::Closing(session) => self.forget(&session),
            RequestKind::Prompt { .. } | RequestKind::Anything => {}
        }
    }

    fn shown(&mut self, params: &str) {
        if !self.agreed {
            return;
        }
        let Some((session, update)) = ShownUpdate::read(params) else { return };
        if update.tool_call_id.is_none() && !update.is_words() {
            return;
        }
        if let Some(open) = self.sessions.get_mut(&session) {
            open.fresh = None;
        }
        // It comes before the answer to a load.
        let shown = self.shown.entry(session).or_default();
        if let Some(id) = &update.tool_call_id {
            let ended = matches!(shown.get(id), Some(Shown::Call(true))) || update.has_ended();
            shown.insert(id.clone(), Shown::Call(ended));
        } else if let Some(id) = update.message_id.as_ref().filter(|_| update.is_words()) {
            let before = if let Some(Shown::Words(before)) = shown.get(id) { *before } else { 0 };
            shown.insert(id.clone(), Shown::Words(before + update.words().chars().count()));
        }
    }

    fn forget(&mut self, session: &str) {
        self.sessions.remove(session);
        self.shown.remove(session);
        self.last.remove(session);
        self.repeated.remove(session);
    }

    /// Whether the server has given up all that it works on for this editor.
    pub(super) fn is_sent_away(&self) -> bool {
        let mut prompts =
            self.unanswered.iter().filter(|request| matches!(request.about, RequestKind::Prompt { .. })).peekable();
        prompts.peek().is_some() && prompts.all(|request| request.handed_over)
    }

    /// The server is lost, or stops: what the editor is told of its questions, which nobody will hear the answers to.
    pub(super) fn leave(&mut self) -> Vec<Bytes> {
        self.servers += 1;
        std::mem::take(&mut self.questions).into_keys().map(|id| cancelled(&id)).collect()
    }

    /// A request of our own: its id, and its line.
    fn request(&mut self, method: &str, params: &impl serde::Serialize) -> (String, Bytes) {
        self.made += 1;
        let id = json!(format!("{}/{}", self.name, self.made));
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (id.to_string(), line.to_string().into())
    }

    /// Introduces the editor to another server: the request's id, and its line.
    pub(super) fn introduction(&mut self) -> (String, Bytes) {
        let hello = self.hello.clone();
        self.request("initialize", &hello)
    }

    /// The sessions that the editor has open.
    pub(super) fn sessions(&self) -> Vec<String> {
        self.sessions.keys().cloned().collect()
    }

    /// Loads a session: the request's id, and its line.
    pub(super) fn load(&mut self, session: &str) -> (String, Bytes) {
        let open = self.sessions.get(session);
        let mut place = open.map(|open| open.place.clone()).unwrap_or_default();
        if open.is_some_and(|open| open.fresh.is_some()) {
            with_own(&mut place, UNSAID, true);
        }
        self.request("session/load", &place)
    }

    /// Chooses once more what was chosen in a session that is kept nowhere: the requests' ids, and their lines.
    pub(super) fn choices(&mut self, session: &str) -> Vec<(String, Bytes)> {
        let fresh = self.sessions.get(session).and_then(|open| open.fresh.clone()).unwrap_or_default();
        fresh.into_iter().map(|(method, choice)| self.request(&method, &choice)).collect()
    }

    /// Whether an update may be of what was said before, while a session is loaded: of that, or of its subagents'.
    pub(super) fn is_replay(&self, params: &str, loaded: &str) -> bool {
        let session = serde_json::from_str::<Update<'_>>(params).map(|update| update.session_id);
        session.is_ok_and(|session| session == loaded || !self.sessions.contains_key(&session))
    }

    /// Whether something was asked in a session that is not answered.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        let about =
            |request: &EditorRequest| matches!(&request.about, RequestKind::Prompt { session, .. } if session == id);
        self.unanswered.iter().any(about)
    }

    /// Of what a server shows of a session that it loads, and of its subagents', what the editor has not seen. That can
    /// only be of the last turn. Where it was shown nothing of a session, nobody knows where that begins.
    pub(super) fn missed(&self, replay: Vec<Bytes>) -> Vec<Bytes> {
        let mut counts: HashMap<(String, String), usize> = HashMap::new();
        let mut missed: Vec<(String, Bytes)> = Vec::new();
        for line in replay {
            let update = match std::str::from_utf8(&line).ok().map(rpc::read) {
                Some(Ok(RpcMessage::Notification { params, .. })) => ShownUpdate::read(params),
                _ => None,
            };
            let Some((session, update)) = update else { continue };
            let Some(shown) = self.shown.get(&session).filter(|shown| !shown.is_empty()) else { continue };
            if update.session_update == "user_message_chunk" {
                missed.retain(|(of, _)| *of != session);
                continue;
            }
            let id = update.message_id.as_ref().filter(|_| update.is_words()).or(update.tool_call_id.as_ref());
            let line = match id.and_then(|id| Some((id, shown.get(id)?))) {
                None => Some(line),
                Some((_, Shown::Call(true))) => None,
                Some((_, Shown::Call(false))) => with_update(&line, &[("sessionUpdate", "tool_call_update".into())]),
                Some((id, Shown::Words(seen))) => {
                    let words = update.words();
                    let passed = counts.entry((session.clone(), id.clone())).or_default();
                    let rest: String = words.chars().skip(seen.saturating_sub(*passed)).collect();
                    *passed += words.chars().count();
                    let content = json!({ "type": "text", "text": rest });
                    if rest.is_empty() { None } else { with_update(&line, &[("content", content)]) }
                }
            };
            missed.extend(line.map(|line| (session, line)));
        }
        missed.into_iter().map(|(_, line)| line).collect()
    }

    /// A session that cannot be loaded is not the editor's any more: what it is told for the prompts in it.
    pub(super) fn give_up(&mut self, id: &str, why: &str) -> Vec<Bytes> {
        self.forget(id);
        let lost = |request: &mut EditorRequest| matches!(&request.about, RequestKind::Prompt { session, .. } if session == id);
        let error = RpcError::internal(format!("the server was lost, and session {id} cannot be opened: {why}"));
        self.unanswered.extract_if(.., lost).map(|request| rpc::failure(&request.id, &error).into()).collect()
    }

    /// What is to be asked once more, and what the editor is told for prompts that it has cancelled, and for orders
    /// that may have been carried out: twice, they do something else.
    pub(super) fn again(&mut self) -> (Vec<Bytes>, Vec<Bytes>) {
        let mut sent = Vec::new();
        let settled = |request: &mut EditorRequest| match &request.about {
            RequestKind::Prompt { cancelled, order, .. } => {
                *cancelled || (*order && !request.handed_over) || request.asked >= SERVERS
            }
            _ => false,
        };
        let lost = RpcError::internal(
            "the server was lost while it carried this out; look what it did before you send it again",
        );
        let mut told = Vec::new();
        for request in self.unanswered.extract_if(.., settled) {
            told.push(match request.about {
                RequestKind::Prompt { session, cancelled: true, .. } => {
                    // The turn may run there.
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
            request.asked += 1;
            if let RequestKind::Prompt { session, .. } = &request.about
                && let Some(last) = self.last.get(session)
            {
                self.repeated.insert(session.clone(), RepeatedAnswer::new(last.clone()));
            }
            sent.push(request.line.clone());
        }
        (sent, told)
    }
}

/// Whether a prompt is one of the words that a session carries out by itself.
fn is_order(params: &str) -> bool {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let word = params["prompt"][0]["text"].as_str().and_then(|text| command::typed(text.trim()));
    word.is_some_and(|(name, _)| BuiltinName::ALL.iter().any(|(_, known, ..)| *known == name))
}

/// The option that a choice is of; none for the mode.
fn option(choice: &Members) -> Option<&str> {
    choice.get("configId").map(|id| id.get())
}

/// The session that parameters name.
fn session(params: &Members) -> Option<String> {
    serde_json::from_str(params.get("sessionId")?.get()).ok()
}

fn given_up(meta: &Value) -> bool {
    meta[OWN][HANDED_OVER] == true
}

fn cancelled(request: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCEL_REQUEST}","params":{{"requestId":{request}}}}}"#).into()
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
        line(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } }))
    }

    fn words(id: &str, words: &str) -> Bytes {
        update(
            &json!({ "sessionUpdate": "agent_message_chunk", "messageId": id, "content": { "type": "text", "text": words } }),
        )
    }

    fn call(kind: &str, id: &str, status: &str) -> Bytes {
        update(&json!({ "sessionUpdate": kind, "toolCallId": id, "status": status }))
    }

    /// One that has an open session and a prompt.
    fn begun() -> CarriedConversation {
        let mut talk = CarriedConversation::new("n".into());
        let said = [
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1, "clientInfo": {} } }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } }),
        ];
        for message in &said {
            assert_eq!(talk.said(line(message)), Some(line(message)));
        }
        assert!(!talk.can_move());
        talk.heard(line(&json!({ "jsonrpc": "2.0", "id": 0, "result": { "protocolVersion": 1 } }))).unwrap();
        talk.heard(line(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "s" } }))).unwrap();
        let prompt = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt",
            "params": { "sessionId": "s", "prompt": [], "_meta": { "theirs": 1.0 } } });
        let sent = text(&talk.said(line(&prompt)).unwrap());
        assert_eq!(sent["params"]["_meta"], json!({ "theirs": 1.0, "adjutant": { "idempotencyKey": "n-1" } }));
        talk
    }

    #[test]
    fn answer_cut_off_and_made_again_is_shown_once() {
        let mut talk = begun();
        talk.heard(words("p", "Once up")).unwrap();
        talk.leave();
        // The store had kept more of it than was shown.
        for line in talk.missed(vec![words("p", "Once upon"), words("p-fault", "(interrupted)")]) {
            talk.heard(line).unwrap();
        }
        talk.again();
        assert_eq!(talk.heard(words("q", "Once ")), None);
        let shown = text(&talk.heard(words("q", "upon a time")).unwrap())["params"]["update"].clone();
        assert_eq!((&shown["messageId"], &shown["content"]["text"]), (&json!("p"), &json!(" a time")));
        // And once more, after which another answer comes.
        talk.leave();
        talk.again();
        assert_eq!(talk.heard(words("r", "Once upon a time")), None);
        let shown = text(&talk.heard(words("r", ", long ago")).unwrap())["params"]["update"].clone();
        assert_eq!((&shown["messageId"], &shown["content"]["text"]), (&json!("p"), &json!(", long ago")));
        let call = call("tool_call", "c", "pending");
        assert_eq!(talk.heard(call.clone()), Some(call));
        assert_eq!(talk.heard(words("s", "Once upon")), Some(words("s", "Once upon")));
    }

    #[test]
    fn what_was_said_is_said_again() {
        let mut talk = begun();
        talk.heard(words("p", "Hello")).unwrap();
        let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "session/request_permission", "params": {} });
        assert_eq!(talk.heard(line(&question)), Some(line(&question)));
        assert!(talk.can_move());
        let told = talk.leave();
        assert_eq!(told.iter().map(text).collect::<Vec<_>>()[0]["params"], json!({ "requestId": 0 }));
        // Whoever answers the old question now is not heard.
        assert_eq!(talk.said(line(&json!({ "jsonrpc": "2.0", "id": 0, "result": {} }))), None);
        let (id, hello) = talk.introduction();
        assert_eq!((id, text(&hello)["params"]["protocolVersion"].clone()), ("\"n/1\"".to_owned(), json!(1)));
        assert_eq!(talk.sessions(), ["s"]);
        let (_, load) = talk.load("s");
        assert_eq!(text(&load)["params"], json!({ "sessionId": "s", "cwd": "/w", "mcpServers": [] }));
        let (again, told) = talk.again();
        assert_eq!((again.len(), told.len()), (1, 0));
        assert_eq!(text(&again[0])["params"]["_meta"]["adjutant"]["idempotencyKey"], "n-1");
        // The other server's questions have ids of their own, and its answers theirs.
        let asked = talk.heard(line(&question)).unwrap();
        assert_eq!(text(&asked)["id"], "1:0");
        let answer = talk.said(line(&json!({ "jsonrpc": "2.0", "id": "1:0", "result": {} }))).unwrap();
        assert_eq!(text(&answer)["id"], 0);
        let done = line(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "end_turn" } }));
        assert_eq!(talk.heard(done.clone()), Some(done));
        assert_eq!(talk.again().0, Vec::<Bytes>::new());
    }

    #[test]
    fn what_was_seen_is_not_shown_again() {
        let mut talk = begun();
        for seen in [
            words("a", "Hé"),
            words("a", "llo"),
            call("tool_call", "c", "pending"),
            call("tool_call", "d", "completed"),
        ] {
            talk.heard(seen).unwrap();
        }
        let mine =
            || update(&json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "Hi" } }));
        let replay = vec![
            mine(),
            words("old", "Before."),
            mine(),
            words("a", "Héllo, you"),
            call("tool_call", "c", "completed"),
            call("tool_call", "d", "completed"),
            call("tool_call", "e", "completed"),
            words("b", "Bye."),
        ];
        let missed: Vec<Value> =
            talk.missed(replay).iter().map(|line| text(line)["params"]["update"].clone()).collect();
        let seen: Vec<(&str, &str)> = missed
            .iter()
            .map(|update| {
                let id = update["toolCallId"].as_str().or(update["content"]["text"].as_str()).unwrap();
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
        assert_eq!(begun().missed(vec![mine(), words("old", "Before.")]), Vec::<Bytes>::new());
    }

    #[test]
    fn a_prompt_that_is_handed_over_is_not_answered_yet() {
        let mut talk = begun();
        let moved = json!({ "jsonrpc": "2.0", "id": 2, "result":
            { "stopReason": "cancelled", "_meta": { "adjutant": { "handedOver": true } } } });
        assert!(!talk.is_sent_away());
        assert_eq!(talk.heard(line(&moved)), None);
        assert!(talk.is_sent_away());
        talk.leave();
        assert_eq!(talk.again().0.len(), 1);
        assert!(!talk.is_sent_away());
        let refused = json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": -32603, "message": "It stops.", "data":
            { "adjutant": { "handedOver": true } } } });
        assert_eq!(talk.heard(line(&refused)), None);
        assert!(talk.is_sent_away());
        // The user has cancelled it meanwhile.
        talk.said(line(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "s" } })))
            .unwrap();
        let (again, told) = talk.again();
        assert_eq!(text(&again[0])["method"], "session/cancel");
        assert_eq!(
            (again.len(), text(&told[0])),
            (1, json!({ "jsonrpc": "2.0", "id": 2, "result": { "stopReason": "cancelled" } }))
        );
        // Whether an order was carried out, nobody knows.
        let mut talk = begun();
        let undo = json!({ "jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params":
            { "sessionId": "s", "prompt": [{ "type": "text", "text": "/undo" }] } });
        talk.said(line(&undo)).unwrap();
        let (again, told) = talk.again();
        assert_eq!((again.len(), text(&told[0])["id"].clone()), (1, json!(3)));
        assert!(text(&told[0])["error"].to_string().contains("before you send it again"), "{told:?}");
        let lost = begun().give_up("s", "it is gone");
        assert!(text(&lost[0])["error"].to_string().contains("it is gone"), "{lost:?}");
    }
}
