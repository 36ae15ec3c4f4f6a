//! [`UpdateSender`] sends the events of a session to its client as updates, in the client's protocol
//! version, and forwards the session's questions and file requests. [`OpeningUpdates`] does the same
//! while the session is being opened. [`TurnWaits`] tracks whether the whole turn waits for the user.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::command_list::{CommandList, TurnGuard};
use super::server::Server;
use super::tool_call_view::ShownTerminals;
use super::transferable_view::TransferableView;
use super::view::{SessionActivity, SessionView, UpdateLines};
use super::{files, form_request, permission_request, question_request};
use super::{login, options};
use base::id::{CallId, MessageId, SessionId};
use base::reported;
use events::{
    CallUpdate, Event, Progress, Severity, Subagent, SubagentState, SubagentStop, TurnMessage,
};
use providers::local;
use providers::offline::CONNECT_NOTICE;
use providers::registry::Registry;
use session::SessionHandle;

/// A pending request to the client. Returns the message that requested it if the connection ended
/// before the answer.
type PendingRequest = Pin<Box<dyn Future<Output = Option<TurnMessage>> + Send>>;

/// A question or a file request that the client is working on, concurrently with the updates.
type ClientTask = Pin<Box<dyn Future<Output = ClientTaskEnd> + Send>>;

/// The end of a [`ClientTask`].
struct ClientTaskEnd {
    /// The number of the question, if the task was a question about a call.
    question: Option<u64>,
    /// The message that requested the task, if the connection ended before the answer.
    unanswered: Option<TurnMessage>,
}

/// The prefix of ids for messages that are not part of the history.
const OUT_OF_TURN_PREFIX: &str = "aside";

/// Sends the updates of a session to its client.
pub struct UpdateSender {
    server: Arc<Server>,
    session: SessionHandle,
    view: Box<dyn SessionView>,
    client_tasks: FuturesUnordered<ClientTask>,
    waits: TurnWaits,
    /// Encoded updates that are not sent yet.
    lines: UpdateLines,
    /// Cancelled when open questions move to another connection.
    transfer: CancellationToken,
    /// The questions whose connection ended before the answer.
    unanswered: Vec<TurnMessage>,
    /// Set while a turn is shown, so that no list of commands is sent.
    turn: Option<TurnGuard>,
}

/// Tracks whether the whole turn waits for the user. A call waits while a question about it is
/// open. After the answer it is treated as working, because its own next update may take a while.
#[derive(Debug, Default)]
pub struct TurnWaits {
    /// A turn runs, and its end has not been reported.
    is_running: bool,
    /// The last report was that the whole turn waits.
    is_reported_waiting: bool,
    /// The open questions about calls.
    questions: Vec<OpenQuestion>,
    /// The number of questions so far.
    question_count: u64,
    working_calls: Vec<CallId>,
    /// The calls whose subagents have reported that all of their work waits for the user. Only
    /// clients that show the sessions of subagents get such reports.
    waiting_calls: Vec<CallId>,
}

/// A question about a call that the user has not answered.
#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    call: CallId,
    /// A subagent asks. `call` is the call that started it, which continues to work.
    is_by_subagent: bool,
}

impl TurnWaits {
    /// Returns whether the whole turn waits: something waits, and in each of the calls that still
    /// work, a subagent has asked.
    fn is_all_waiting(&self) -> bool {
        let asked_by_subagents: BTreeSet<&CallId> = self
            .questions
            .iter()
            .filter(|question| question.is_by_subagent)
            .map(|question| &question.call)
            .collect();
        let is_anything_waiting = !self.questions.is_empty() || !self.waiting_calls.is_empty();
        is_anything_waiting && self.working_calls.len() <= asked_by_subagents.len()
    }

    /// Returns the last reported activity of the turn.
    fn reported_activity(&self) -> SessionActivity {
        if self.is_reported_waiting {
            SessionActivity::Waiting
        } else {
            SessionActivity::Running
        }
    }

    /// Records that a turn has begun.
    fn begin(&mut self) {
        *self = Self {
            is_running: true,
            question_count: self.question_count,
            ..Self::default()
        };
    }

    /// Takes the state of the turn for another client, which is asked the open questions again.
    fn take(&mut self) -> Self {
        let question_count = self.question_count;
        let taken = std::mem::replace(
            self,
            Self {
                question_count,
                ..Self::default()
            },
        );
        Self {
            is_reported_waiting: false,
            questions: Vec::new(),
            ..taken
        }
    }

    /// Records a question about a call, and returns the question's number.
    fn open_question(&mut self, call: &CallId, is_by_subagent: bool) -> u64 {
        self.working_calls.retain(|working| working != call);
        self.question_count += 1;
        self.questions.push(OpenQuestion {
            number: self.question_count,
            call: call.clone(),
            is_by_subagent,
        });
        self.question_count
    }

    /// Records the end of a question. Returns whether its call works again; `false` if the call has
    /// already reported that, or has ended.
    fn close_question(&mut self, number: u64) -> bool {
        let Some(at) = self
            .questions
            .iter()
            .position(|question| question.number == number)
        else {
            return false;
        };
        let OpenQuestion { call, .. } = self.questions.remove(at);
        let works = self.questions.iter().all(|question| question.call != call);
        if works {
            self.working_calls.push(call);
        }
        works
    }

    /// Records an event of the turn. Returns whether the state may have to be reported.
    fn record_event(&mut self, event: &Event) -> bool {
        match event {
            Event::Call(update) => self.record_call(update),
            Event::Subagent(subagent) => self.record_subagent(subagent),
            _ => false,
        }
    }

    /// Records an update of a call. Cancelled calls end with the turn, so that the state need not
    /// be reported.
    fn record_call(&mut self, update: &CallUpdate) -> bool {
        let (Some(id), Some(progress)) = (&update.call, update.progress) else {
            return false;
        };
        self.questions
            .retain(|question| question.call != *id || progress == Progress::Pending);
        self.working_calls.retain(|working| working != id);
        self.waiting_calls.retain(|waiting| waiting != id);
        if progress == Progress::Running {
            self.working_calls.push(id.clone());
        }
        progress != Progress::Cancelled
    }

    /// Records the state of a subagent, which is that of the call that started it.
    fn record_subagent(&mut self, subagent: &Subagent) -> bool {
        let Some(state) = &subagent.state else {
            return false;
        };
        let call = &subagent.call;
        let waited = self.waiting_calls.contains(call);
        if *state == SubagentState::Waiting {
            self.working_calls.retain(|working| working != call);
            if !waited {
                self.waiting_calls.push(call.clone());
            }
            return true;
        }
        if waited {
            self.waiting_calls.retain(|waiting| waiting != call);
            self.working_calls.push(call.clone());
        }
        waited && *state != SubagentState::Over(SubagentStop::Cancelled)
    }
}

/// Creates the view of a session. If the session can move to another connection, open questions
/// fail when `transfer` is cancelled, so that they can be asked again there.
fn new_view(
    server: &Arc<Server>,
    shown_terminals: Arc<ShownTerminals>,
    transfer: &CancellationToken,
) -> Box<dyn SessionView> {
    let mut view = server.new_view();
    view.set_shown_terminals(shown_terminals);
    view.set_out_of_turn_prefix(server.shared.environment.fresh(OUT_OF_TURN_PREFIX));
    match server.user_sessions() {
        None => view,
        Some(_) => Box::new(TransferableView::new(view, transfer.clone())),
    }
}

/// Sends the updates of a session while it is being opened.
pub struct OpeningUpdates {
    server: Arc<Server>,
    view: Box<dyn SessionView>,
    transfer: CancellationToken,
}

impl OpeningUpdates {
    pub fn new(server: &Arc<Server>, shown_terminals: Arc<ShownTerminals>) -> Self {
        let transfer = CancellationToken::new();
        Self {
            server: server.clone(),
            view: new_view(server, shown_terminals, &transfer),
            transfer,
        }
    }

    /// Sends an event. Blocks only if the outbox is full because the client does not read.
    pub async fn send_event(&mut self, session: &SessionId, event: &Event) {
        let mut lines = UpdateLines::new();
        self.view.encode_event(session, event, &mut lines);
        for line in lines {
            self.server.peer.outbox().send(line).await;
        }
    }

    /// Returns the sender for the session after it was opened.
    pub fn into_sender(self, session: &SessionHandle) -> UpdateSender {
        let Self {
            server,
            view,
            transfer,
        } = self;
        UpdateSender {
            server,
            session: session.clone(),
            view,
            client_tasks: FuturesUnordered::new(),
            waits: TurnWaits::default(),
            lines: UpdateLines::new(),
            transfer,
            unanswered: Vec::new(),
            turn: None,
        }
    }
}

/// Returns the notice that only the offline model is available, with the local model server that
/// does not run, if there is one. Returns `None` if there is another model, or if a session of the
/// directory has shown the notice today and there was no other model in the meantime. A chosen
/// model that is missing is reported by its turn instead.
async fn offline_only_notice(server: &Server, session: &SessionHandle) -> Option<String> {
    let is_missing = !session.project().models.may_have_online_model()
        && options::current_model(session).provider == Registry::OFFLINE;
    let hides_notices = server.capabilities().hides_notices;
    let environment = server.shared.environment.clone();
    let cwd = session.cwd.clone();
    let notice = base::task::spawn_blocking(move || {
        let notice = is_missing.then(|| {
            let stopped = local::explain_stopped_server(&environment).unwrap_or_default();
            format!("{CONNECT_NOTICE}{stopped}")
        });
        // A client that shows no notices has not shown this one.
        if hides_notices {
            return notice;
        }
        let shown = reported::shown_before(&environment, &cwd, "models", notice.as_slice());
        if shown.is_empty() { notice } else { None }
    });
    notice.await.unwrap_or_default()
}

impl UpdateSender {
    /// Creates a sender that has shown nothing yet.
    pub fn new(server: &Arc<Server>, session: &SessionHandle) -> Self {
        let shown_terminals = server.shown_terminals(session.id.as_str());
        OpeningUpdates::new(server, shown_terminals).into_sender(session)
    }

    /// Returns whether this process is about to stop, so that turns end at their next step.
    pub fn is_shutting_down(&self) -> bool {
        self.server.shared.exit_requested.is_cancelled()
    }

    /// Moves to the client of another connection. Returns the waits of the turn without its open
    /// questions. The caller sends the client the events that it has missed, and then calls
    /// [`UpdateSender::ask_unanswered_again`].
    pub async fn move_to(&mut self, server: &Arc<Server>) -> TurnWaits {
        self.transfer.cancel();
        while !self.client_tasks.is_empty() {
            self.wait_for_answer().await;
        }
        self.transfer = CancellationToken::new();
        let shown_terminals = server.shown_terminals(self.session.id.as_str());
        self.view = new_view(server, shown_terminals, &self.transfer);
        self.server = server.clone();
        if self.turn.is_some() {
            self.turn = Some(self.commands().begin_turn().await);
        }
        self.lines.clear();
        self.waits.take()
    }

    /// Sends the stored history of the session, up to the message `until` if one is named. Returns
    /// `false` if the history cannot be read.
    pub async fn send_history(&mut self, until: Option<&MessageId>) -> bool {
        let shows_subagents = self.server.capabilities().display.subagents;
        match self
            .server
            .shared
            .clone()
            .review(&self.session, until, shows_subagents)
            .await
        {
            Ok(mut replay) => {
                while let Some(event) = replay.next().await {
                    self.send_event(event).await;
                }
                true
            }
            Err(e) => {
                tracing::error!("session {} cannot be shown: {e}", self.session.id);
                false
            }
        }
    }

    /// Reports the end of the history that the client has requested, and then the activity of the
    /// turn if one runs.
    pub async fn finish_history(&mut self) {
        self.view
            .encode_replay_end(&self.session.id, &mut self.lines);
        if self.waits.is_running {
            let state = self.waits.reported_activity();
            self.view
                .encode_activity(&self.session.id, &state, &mut self.lines);
        }
        self.flush().await;
    }

    /// Asks the questions again that were unanswered when their connection ended.
    pub async fn ask_unanswered_again(&mut self) {
        for question in std::mem::take(&mut self.unanswered) {
            self.start_request(question);
        }
        self.report_activity().await;
    }

    /// Returns the number of questions that wait for another client.
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// Returns whether the client is working on a question or a file request.
    pub fn has_pending_requests(&self) -> bool {
        !self.client_tasks.is_empty()
    }

    /// Waits until the client has answered a question or a file request. Returns `true` if a call
    /// works again after a question. The caller then calls [`UpdateSender::report_activity`]; this
    /// function does not, because its future may be dropped at any time.
    pub async fn wait_for_answer(&mut self) -> bool {
        let Some(end) = self.client_tasks.next().await else {
            return false;
        };
        if let Some(message) = end.unanswered {
            // If no client can reconnect, dropping the message tells the turn that there is no
            // answer.
            if self.server.user_sessions().is_some() {
                self.unanswered.push(message);
            }
            return false;
        }
        match end.question {
            Some(question) => self.waits.close_question(question),
            None => false,
        }
    }

    /// Reports whether the turn works or waits, if that has changed.
    pub async fn report_activity(&mut self) {
        self.encode_changed_activity();
        self.flush().await;
    }

    /// Withdraws the questions whose receivers are dropped, in the order in which they were
    /// dropped.
    pub fn withdraw_questions(&mut self) {
        self.unanswered.clear();
        while let Some(Some(_)) = self.client_tasks.next().now_or_never() {}
    }

    /// Reports that a turn has begun.
    pub async fn begin_turn(&mut self) {
        self.waits.begin();
        self.report_running().await;
    }

    /// Reports a turn that has begun on another connection. `waits` is the state that it has
    /// reached.
    pub async fn resume_turn(&mut self, waits: TurnWaits) {
        self.waits = waits;
        self.report_running().await;
    }

    async fn report_running(&mut self) {
        self.turn = Some(self.commands().begin_turn().await);
        self.send_activity(SessionActivity::Running).await;
    }

    /// Takes the guard of the turn that is shown. No list of commands is sent until the guard is
    /// dropped.
    pub fn take_turn_guard(&mut self) -> Option<TurnGuard> {
        self.turn.take()
    }

    /// Reports an activity of the session.
    pub async fn send_activity(&mut self, activity: SessionActivity) {
        let is_idle = matches!(activity, SessionActivity::Idle(_));
        if is_idle {
            self.waits.is_running = false;
        }
        self.view
            .encode_activity(&self.session.id, &activity, &mut self.lines);
        self.flush().await;
        if is_idle {
            self.turn = None;
        }
    }

    /// Returns the commands that were sent to this connection's client.
    fn commands(&self) -> Arc<CommandList> {
        self.server
            .live_session(self.session.id.as_str())
            .map(|live| live.commands)
            .unwrap_or_default()
    }

    /// Sends the list of commands if it has changed and no turn runs, or if the client has none yet.
    pub async fn send_changed_commands(&mut self) {
        // A session that is being opened again has no client until then.
        let Ok(live) = self.server.live_session(self.session.id.as_str()) else {
            return;
        };
        let _sending = live.commands.lock().await;
        let list = self.session.commands();
        if live.commands.can_send() && live.commands.record(&list) {
            self.send_event(Event::Commands(list)).await;
        }
    }

    /// Sends the list of commands before the first turn of a client that may have missed it, unless
    /// it was sent since.
    pub async fn send_first_commands(&mut self) {
        if self.server.capabilities().may_miss_commands && !self.commands().is_sent() {
            self.send_changed_commands().await;
        }
    }

    /// Encodes whether the turn works or waits, if that has changed since the last report.
    fn encode_changed_activity(&mut self) {
        let waits = self.waits.is_all_waiting();
        if self.waits.is_running && waits != self.waits.is_reported_waiting {
            self.waits.is_reported_waiting = waits;
            let state = self.waits.reported_activity();
            self.view
                .encode_activity(&self.session.id, &state, &mut self.lines);
        }
    }

    /// Sends the notices at the beginning of a session's first turn, about conditions that the user
    /// may not expect. Does nothing in later turns.
    pub async fn send_initial_notices(&mut self) {
        let Some(notices) = self.session.take_initial_notices().map(<[Event]>::to_vec) else {
            return;
        };
        if let Some(text) = offline_only_notice(&self.server, &self.session).await {
            let (title, details) = text.trim().split_once('\n').unwrap_or((&text, ""));
            let notice = Event::Notice {
                severity: Severity::Info,
                title: title.to_owned(),
                details: Some(details.to_owned()),
            };
            self.send_event(notice).await;
        }
        for notice in notices {
            self.send_event(notice).await;
        }
    }

    /// Sends the messages of a turn in order. Consecutive deltas of one part are merged.
    pub async fn send_batch(&mut self, batch: &mut Vec<TurnMessage>) {
        self.wait_until_saved(batch).await;
        let mut messages = batch.drain(..).peekable();
        while let Some(message) = messages.next() {
            match message {
                TurnMessage::Event(mut event) => {
                    while let Some(TurnMessage::Event(next)) = messages.peek()
                        && event.absorb(next)
                    {
                        messages.next();
                    }
                    self.send_event(event).await;
                }
                message => {
                    self.start_request(message);
                    self.report_activity().await;
                }
            }
        }
    }

    /// Sends a request to the client, and waits for the answer concurrently with the updates.
    fn start_request(&mut self, message: TurnMessage) {
        let own = &self.session.id;
        let view = self.view.as_mut();
        let (question, request): (Option<u64>, PendingRequest) = match message {
            TurnMessage::Event(_) => return,
            TurnMessage::AskPermission(request) => {
                // A subagent whose session is shown reports itself that it waits.
                let number = request.session.is_none().then(|| {
                    self.waits
                        .open_question(&request.call, request.agent.is_some())
                });
                let session = request.session.as_ref().unwrap_or(own);
                let interaction = permission_request::await_permission(
                    view.request_permission(
                        session,
                        permission_request::permission_choice(
                            &request,
                            self.server.capabilities().asks_for_details,
                        ),
                    ),
                    *request,
                );
                (
                    number,
                    interaction
                        .map(|back| Some(TurnMessage::AskPermission(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::Confirm(confirmation) => {
                let number = self.waits.open_question(&confirmation.call, false);
                let interaction = permission_request::await_confirmation(
                    view.request_permission(
                        own,
                        permission_request::confirmation_choice(&confirmation),
                    ),
                    *confirmation,
                );
                (
                    Some(number),
                    interaction
                        .map(|back| Some(TurnMessage::Confirm(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::AskQuestions(request) => {
                let delivery = question_request::send_questions(
                    own,
                    &request,
                    self.server.capabilities().forms,
                    view,
                );
                // A question that cannot be shown keeps no call waiting.
                let shown = !matches!(delivery, question_request::QuestionDelivery::Unsupported);
                let number = shown.then(|| self.waits.open_question(&request.call, false));
                let interaction = question_request::await_answers(delivery, *request);
                (
                    number,
                    interaction
                        .map(|back| Some(TurnMessage::AskQuestions(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::AskForm(mut request) => {
                let delivery =
                    form_request::send_form(own, &mut request, &self.server.capabilities(), view);
                let shown = !matches!(delivery, form_request::FormDelivery::Unsupported);
                let is_own = request.session.is_none();
                let call = if shown && is_own {
                    request.call.as_ref()
                } else {
                    None
                };
                let number = call.map(|call| self.waits.open_question(call, false));
                let interaction = form_request::await_form_reply(delivery, *request);
                (
                    number,
                    interaction
                        .map(|back| Some(TurnMessage::AskForm(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::Read(file) => {
                let reading = files::await_read(view.read_file(own, file.path), file.reply);
                (None, reading.map(|()| None).boxed())
            }
            TurnMessage::Write(file) => {
                let writing =
                    files::await_write(view.write_file(own, file.path, file.text), file.reply);
                (None, writing.map(|()| None).boxed())
            }
        };
        self.client_tasks.push(
            request
                .map(move |unanswered| ClientTaskEnd {
                    question,
                    unanswered,
                })
                .boxed(),
        );
    }

    /// Waits until the events in the batch would survive the end of the process. They were given to
    /// the store before they arrived here. Of a text that is still growing, the store may lack the
    /// end.
    async fn wait_until_saved(&mut self, batch: &[TurnMessage]) {
        let mut sessions: Vec<SessionId> = Vec::new();
        for message in batch {
            let (session, event) = match message {
                TurnMessage::Event(Event::InChildSession { session, event }) => (session, &**event),
                TurnMessage::Event(event) => (&self.session.id, event),
                _ => continue,
            };
            if event.is_stored() && !sessions.contains(session) {
                sessions.push(session.clone());
            }
        }
        for session in sessions {
            self.server.shared.store.await_written(&session).await;
        }
    }

    /// Sends an event, with the updates that follow from it: the activity of the turn, the config
    /// options, the logins.
    pub async fn send_event(&mut self, event: Event) {
        let changes_options = matches!(event, Event::Mode(_) | Event::Options);
        let is_login = matches!(event, Event::Logins);
        match &event {
            Event::InChildSession { session, event } => {
                self.view.encode_event(session, event, &mut self.lines)
            }
            event => {
                if self.waits.record_event(event) {
                    self.encode_changed_activity();
                }
                self.view
                    .encode_event(&self.session.id, event, &mut self.lines);
            }
        }
        if is_login {
            base::task::spawn_in(
                &self.server.shared.tasks,
                login::send_changed_accounts(self.server.clone()),
            );
        }
        if changes_options {
            self.encode_config_options();
        }
        self.flush().await;
    }

    /// Sends the config options, with pending choices applied.
    pub async fn send_config_options(&mut self) {
        self.encode_config_options();
        self.flush().await;
    }

    fn encode_config_options(&mut self) {
        let options = options::config_options(&self.server, &self.session);
        self.view
            .encode_config_options(&self.session.id, options, &mut self.lines);
    }

    /// Sends the encoded lines. Blocks only if the outbox is full because the client does not read.
    async fn flush(&mut self) {
        for line in self.lines.drain(..) {
            self.server.peer.outbox().send(line).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_of_another_client_waits_as_before() {
        let call = |id: &str, progress: Progress| {
            Event::Call(Box::new(CallUpdate {
                call: Some(CallId::new(id)),
                progress: Some(progress),
                ..CallUpdate::default()
            }))
        };
        // The calls that run, those whose subagents wait, those with open questions, and whether
        // the turn waits after these are asked again.
        for (name, running, waiting, asked, waits) in [
            ("a question", &["a"][..], &[][..], &["a"][..], true),
            ("a subagent's question", &["a"], &["a"], &[], true),
            ("a question next to work", &["a", "b"], &[], &["a"], false),
            ("only work", &["a"], &[], &[], false),
            ("both", &["a", "b"], &["a"], &["b"], true),
        ] {
            let mut before = TurnWaits::default();
            before.begin();
            for id in running {
                before.record_event(&call(id, Progress::Running));
            }
            for id in waiting {
                before.record_event(&Event::Subagent(Box::new(Subagent {
                    session: SessionId::new("ses_00000001"),
                    call: CallId::new(*id),
                    info: None,
                    state: Some(SubagentState::Waiting),
                })));
            }
            for id in asked {
                before.open_question(&CallId::new(*id), false);
            }
            assert_eq!(before.is_all_waiting(), waits, "{name}");
            before.is_reported_waiting = before.is_all_waiting();
            let mut after = before.take();
            assert!(!before.is_all_waiting(), "{name}: a replay reports nothing");
            assert!(after.is_running && !after.is_reported_waiting, "{name}");
            for id in asked {
                after.open_question(&CallId::new(*id), false);
            }
            assert_eq!(after.is_all_waiting(), waits, "{name}");
        }
    }
}
