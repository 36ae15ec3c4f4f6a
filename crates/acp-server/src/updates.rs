//! Sends a session's messages to the client, in its protocol version.

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
use super::{elicit, files, form, permission_request};
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

/// A request that the client is working on. Yields the message if the connection ended before the
/// answer.
type EditorWork = Pin<Box<dyn Future<Output = Option<TurnMessage>> + Send>>;

/// A task concurrent with the updates: a question or a file request that the client is working on.
type ClientTask = Pin<Box<dyn Future<Output = ClientTaskEnd> + Send>>;

/// The end of a task concurrent with the updates.
struct ClientTaskEnd {
    /// The number of the question about a call that was answered or withdrawn.
    question: Option<u64>,
    /// The message, if the connection ended before its answer.
    back: Option<TurnMessage>,
}

/// The prefix of ids for messages that are not part of the history.
const ASIDE: &str = "aside";

/// Sends the updates of a session.
pub struct UpdateSender {
    server: Arc<Server>,
    session: SessionHandle,
    view: Box<dyn SessionView>,
    calls: FuturesUnordered<ClientTask>,
    waits: Waits,
    lines: UpdateLines,
    /// Cancelled when open questions move to another connection.
    moved: CancellationToken,
    unanswered: Vec<TurnMessage>,
    /// The turn that is shown, for the list of commands.
    turn: Option<TurnGuard>,
}

/// Tracks whether the whole turn waits for the user. A call waits while a question about it is
/// open, and works from then on, because its own next update may take a while.
#[derive(Debug, Default)]
pub struct Waits {
    /// A turn runs, and its end has not been reported.
    runs: bool,
    /// The last report was that the whole turn waits.
    reported: bool,
    /// The open questions about calls.
    questions: Vec<OpenQuestion>,
    /// The number of questions so far.
    question_count: u64,
    working: Vec<CallId>,
    /// The calls whose subagents have reported that all of their work waits for the user: only
    /// clients that show the sessions of subagents get such reports.
    waiting: Vec<CallId>,
}

#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    call: CallId,
    /// A subagent made the call, so the call that started the subagent waits as well.
    within: bool,
}

impl Waits {
    /// Returns whether the whole turn waits: a subagent has asked in each of the working calls that
    /// has not reported that it waits.
    fn all(&self) -> bool {
        let within = self
            .questions
            .iter()
            .filter(|question| question.within)
            .map(|question| &question.call);
        let is_asked = !self.questions.is_empty() || !self.waiting.is_empty();
        is_asked && self.working.len() <= within.collect::<BTreeSet<_>>().len()
    }

    /// Returns the last reported state of the turn.
    fn state(&self) -> SessionActivity {
        if self.reported {
            SessionActivity::Waiting
        } else {
            SessionActivity::Running
        }
    }

    /// Records that a turn has begun.
    fn begin(&mut self) {
        *self = Self {
            runs: true,
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
            reported: false,
            questions: Vec::new(),
            ..taken
        }
    }

    /// Records a question about a call, and returns the question's number.
    fn open_question(&mut self, call: &CallId, within: bool) -> u64 {
        self.working.retain(|working| working != call);
        self.question_count += 1;
        self.questions.push(OpenQuestion {
            number: self.question_count,
            call: call.clone(),
            within,
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
            self.working.push(call);
        }
        works
    }

    /// Records an event of the turn. Returns whether the state may have to be reported.
    fn record_event(&mut self, event: &Event) -> bool {
        match event {
            Event::Call(update) => self.heard_call(update),
            Event::Subagent(subagent) => self.heard_subagent(subagent),
            _ => false,
        }
    }

    /// Records an update of a call. Cancelled calls end with the turn, so that the state need not
    /// be reported.
    fn heard_call(&mut self, update: &CallUpdate) -> bool {
        let (Some(id), Some(progress)) = (&update.call, update.progress) else {
            return false;
        };
        self.questions
            .retain(|question| question.call != *id || progress == Progress::Pending);
        self.working.retain(|working| working != id);
        self.waiting.retain(|waiting| waiting != id);
        if progress == Progress::Running {
            self.working.push(id.clone());
        }
        progress != Progress::Cancelled
    }

    /// Records the state of a subagent, which is that of the call that started it.
    fn heard_subagent(&mut self, subagent: &Subagent) -> bool {
        let Some(state) = &subagent.state else {
            return false;
        };
        let call = &subagent.call;
        let waited = self.waiting.contains(call);
        if *state == SubagentState::Waiting {
            self.working.retain(|working| working != call);
            if !waited {
                self.waiting.push(call.clone());
            }
            return true;
        }
        if waited {
            self.waiting.retain(|waiting| waiting != call);
            self.working.push(call.clone());
        }
        waited && *state != SubagentState::Over(SubagentStop::Cancelled)
    }
}

/// Creates the view of a session. If the session can move to another connection, so can its
/// questions.
fn view(
    server: &Arc<Server>,
    shown_terminals: Arc<ShownTerminals>,
    moved: &CancellationToken,
) -> Box<dyn SessionView> {
    let mut view = server.view();
    view.set_shown_terminals(shown_terminals);
    view.set_out_of_turn_prefix(server.shared.environment.fresh(ASIDE));
    match server.hosted() {
        None => view,
        Some(_) => Box::new(TransferableView::new(view, moved.clone())),
    }
}

/// Sends the updates of a session that is being opened.
pub struct OpeningUpdates {
    server: Arc<Server>,
    view: Box<dyn SessionView>,
    moved: CancellationToken,
}

impl OpeningUpdates {
    pub fn new(server: &Arc<Server>, shown_terminals: Arc<ShownTerminals>) -> Self {
        let moved = CancellationToken::new();
        Self {
            server: server.clone(),
            view: view(server, shown_terminals, &moved),
            moved,
        }
    }

    /// Sends an event. Blocks only if the outbox is full because the client does not read.
    pub async fn event(&mut self, session: &SessionId, event: &Event) {
        let mut lines = UpdateLines::new();
        self.view.encode_event(session, event, &mut lines);
        for line in lines {
            self.server.peer.outbox().send(line).await;
        }
    }

    /// Continues with the session after it is open.
    pub fn open(self, session: &SessionHandle) -> UpdateSender {
        let Self {
            server,
            view,
            moved,
        } = self;
        let calls = FuturesUnordered::new();
        let waits = Waits::default();
        let session = session.clone();
        let lines = UpdateLines::new();
        let unanswered = Vec::new();
        UpdateSender {
            server,
            session,
            view,
            calls,
            waits,
            lines,
            moved,
            unanswered,
            turn: None,
        }
    }
}

/// Returns the notice that only the offline model is there, with the server that does not run, if
/// it is due: if no session of the directory has shown it today, or if there was another model in
/// the meantime. A chosen model that is missing is reported by its turn instead.
async fn missing_models(server: &Server, session: &SessionHandle) -> Option<String> {
    let is_missing = !session.project().models.may_have_online_model()
        && options::current_model(session).provider == Registry::OFFLINE;
    let is_quiet = server.capabilities().quiet;
    let environment = server.shared.environment.clone();
    let cwd = session.cwd.clone();
    let notice = base::task::spawn_blocking(move || {
        let notice = is_missing.then(|| {
            let stopped = local::explain_stopped_server(&environment).unwrap_or_default();
            format!("{CONNECT_NOTICE}{stopped}")
        });
        // A client that shows no notices has not shown this one.
        if is_quiet {
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
        OpeningUpdates::new(server, shown_terminals).open(session)
    }

    /// Returns whether this process is about to stop, so that turns end at their next step.
    pub fn is_leaving(&self) -> bool {
        self.server.shared.exit_requested.is_cancelled()
    }

    /// Moves to another client. The caller sends it the missed events first; see
    /// [`UpdateSender::ask_again`]. Returns the state of the turn, without its open questions.
    pub async fn move_to(&mut self, server: &Arc<Server>) -> Waits {
        self.moved.cancel();
        while !self.calls.is_empty() {
            self.wait_for_answer().await;
        }
        self.moved = CancellationToken::new();
        let shown_terminals = server.shown_terminals(self.session.id.as_str());
        self.view = view(server, shown_terminals, &self.moved);
        self.server = server.clone();
        if self.turn.is_some() {
            self.turn = Some(self.commands().begin().await);
        }
        self.lines.clear();
        self.waits.take()
    }

    /// Shows the stored history of the session, message to a message. Returns whether all of it was
    /// shown.
    pub async fn replay(&mut self, until: Option<&MessageId>) -> bool {
        let shows_subagents = self.server.capabilities().shows.subagents;
        match self
            .server
            .shared
            .clone()
            .review(&self.session, until, shows_subagents)
            .await
        {
            Ok(mut replay) => {
                while let Some(event) = replay.next().await {
                    self.event(event).await;
                }
                true
            }
            Err(e) => {
                tracing::error!("session {} cannot be shown: {e}", self.session.id);
                false
            }
        }
    }

    /// Reports the end of a replay that the client has requested, and after it the state of the
    /// turn that runs.
    pub async fn replayed(&mut self) {
        self.view
            .encode_replay_end(&self.session.id, &mut self.lines);
        if self.waits.runs {
            let state = self.waits.state();
            self.view
                .encode_activity(&self.session.id, &state, &mut self.lines);
        }
        self.flush().await;
    }

    /// Asks the returned questions again.
    pub async fn ask_again(&mut self) {
        for question in std::mem::take(&mut self.unanswered) {
            self.start_request(question);
        }
        self.report_activity().await;
    }

    /// Returns the number of questions that wait for another client.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Returns whether a task concurrent with the updates is running.
    pub fn is_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Waits until a concurrent task has ended. Returns whether a call works again after a
    /// question; the caller then reports it by [`UpdateSender::report_activity`], because this
    /// future may be dropped at any time.
    pub async fn wait_for_answer(&mut self) -> bool {
        let Some(ClientTaskEnd { question, back }) = self.calls.next().await else {
            return false;
        };
        match (back, question) {
            (Some(back), _) => {
                // If no client can reconnect, dropping the message tells the turn that there is no
                // answer.
                if self.server.hosted().is_some() {
                    self.unanswered.push(back);
                }
                false
            }
            (None, Some(question)) => self.waits.close_question(question),
            (None, None) => false,
        }
    }

    /// Reports whether the turn works or waits, if that has changed.
    pub async fn report_activity(&mut self) {
        self.work();
        self.flush().await;
    }

    /// Withdraws the questions whose receivers are dropped, in the order in which they were
    /// dropped.
    pub fn withdraw(&mut self) {
        self.unanswered.clear();
        while let Some(Some(_)) = self.calls.next().now_or_never() {}
    }

    /// Reports that a turn has begun.
    pub async fn begin(&mut self) {
        self.waits.begin();
        self.report_running().await;
    }

    /// Reports a turn that has begun for another client, in the state that it has reached.
    pub async fn resume(&mut self, waits: Waits) {
        self.waits = waits;
        self.report_running().await;
    }

    async fn report_running(&mut self) {
        self.turn = Some(self.commands().begin().await);
        self.state(SessionActivity::Running).await;
    }

    /// Takes the turn that is shown, which then lasts until the guard is dropped.
    pub fn take_turn(&mut self) -> Option<TurnGuard> {
        self.turn.take()
    }

    /// Reports the activity of the session.
    pub async fn state(&mut self, state: SessionActivity) {
        if matches!(state, SessionActivity::Idle(_)) {
            self.waits.runs = false;
        }
        self.view
            .encode_activity(&self.session.id, &state, &mut self.lines);
        self.flush().await;
        if matches!(state, SessionActivity::Idle(_)) {
            self.turn = None;
        }
    }

    /// Returns the commands that this connection's client has been sent.
    fn commands(&self) -> Arc<CommandList> {
        self.server
            .live(self.session.id.as_str())
            .map(|live| live.commands)
            .unwrap_or_default()
    }

    /// Sends the commands if they have changed and no turn runs, or the client has none yet.
    pub async fn offer_commands(&mut self) {
        // A session that is being opened again has no client until then.
        let Ok(live) = self.server.live(self.session.id.as_str()) else {
            return;
        };
        let _sending = live.commands.lock().await;
        let list = self.session.commands();
        if live.commands.can_send() && live.commands.update(&list) {
            self.event(Event::Commands(list)).await;
        }
    }

    /// Sends the commands before the first turn that a client is shown, if they have not been sent
    /// yet.
    pub async fn offer_first_commands(&mut self) {
        if self.server.capabilities().misses_commands && !self.commands().is_sent() {
            self.offer_commands().await;
        }
    }

    /// Encodes whether the turn works or waits, if that has changed.
    fn work(&mut self) {
        let waits = self.waits.all();
        if self.waits.runs && waits != self.waits.reported {
            self.waits.reported = waits;
            let state = self.waits.state();
            self.view
                .encode_activity(&self.session.id, &state, &mut self.lines);
        }
    }

    /// Sends the notices at the beginning of a session's first turn: conditions that the user may
    /// not expect.
    pub async fn send_initial_notices(&mut self) {
        let Some(notices) = self.session.take_initial_notices().map(<[Event]>::to_vec) else {
            return;
        };
        if let Some(text) = missing_models(&self.server, &self.session).await {
            let (title, details) = text.trim().split_once('\n').unwrap_or((&text, ""));
            let notice = Event::Notice {
                severity: Severity::Info,
                title: title.to_owned(),
                details: Some(details.to_owned()),
            };
            self.event(notice).await;
        }
        for notice in notices {
            self.event(notice).await;
        }
    }

    /// Shows messages in order. Consecutive deltas of one part are merged.
    pub async fn show(&mut self, batch: &mut Vec<TurnMessage>) {
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
                    self.event(event).await;
                }
                message => {
                    self.start_request(message);
                    self.report_activity().await;
                }
            }
        }
    }

    /// Starts a task for a request to the client, concurrent with the updates.
    fn start_request(&mut self, message: TurnMessage) {
        let own = &self.session.id;
        let view = self.view.as_mut();
        let (question, work): (Option<u64>, EditorWork) = match message {
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
                        permission_request::permission_choice(&request),
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
                let prompt =
                    form::send_questions(own, &request, self.server.capabilities().forms, view);
                // A question that cannot be shown keeps no call waiting.
                let shown = !matches!(prompt, form::QuestionPrompt::None);
                let number = shown.then(|| self.waits.open_question(&request.call, false));
                let interaction = form::await_answers(prompt, *request);
                (
                    number,
                    interaction
                        .map(|back| Some(TurnMessage::AskQuestions(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::AskForm(mut request) => {
                let delivery =
                    elicit::send_form(own, &mut request, &self.server.capabilities(), view);
                let shown = !matches!(delivery, elicit::FormDelivery::Unsupported);
                let is_own = request.session.is_none();
                let call = if shown && is_own {
                    request.call.as_ref()
                } else {
                    None
                };
                let number = call.map(|call| self.waits.open_question(call, false));
                let interaction = elicit::await_form_reply(delivery, *request);
                (
                    number,
                    interaction
                        .map(|back| Some(TurnMessage::AskForm(Box::new(back?))))
                        .boxed(),
                )
            }
            TurnMessage::Read(file) => {
                let reading = files::read(view.read_file(own, file.path), file.reply);
                (None, reading.map(|()| None).boxed())
            }
            TurnMessage::Write(file) => {
                let writing = files::write(view.write_file(own, file.path, file.text), file.reply);
                (None, writing.map(|()| None).boxed())
            }
        };
        self.calls.push(
            work.map(move |back| ClientTaskEnd { question, back })
                .boxed(),
        );
    }

    /// Waits until the events in the batch would survive the end of the process. They were given to
    /// the store before they arrived here; of growing text, the store has nearly all.
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

    pub async fn event(&mut self, event: Event) {
        let switched = matches!(event, Event::Mode(_) | Event::Options);
        let is_login = matches!(event, Event::Logins);
        match &event {
            Event::InChildSession { session, event } => {
                self.view.encode_event(session, event, &mut self.lines)
            }
            event => {
                if self.waits.record_event(event) {
                    self.work();
                }
                self.view
                    .encode_event(&self.session.id, event, &mut self.lines);
            }
        }
        if is_login {
            base::task::spawn_in(
                &self.server.shared.tasks,
                login::update(self.server.clone()),
            );
        }
        if switched {
            let settings = options::settings(&self.server, &self.session);
            self.view
                .encode_config_options(&self.session.id, settings, &mut self.lines);
        }
        self.flush().await;
    }

    /// Sends the config options, with pending choices applied.
    pub async fn settings(&mut self) {
        let settings = options::settings(&self.server, &self.session);
        self.view
            .encode_config_options(&self.session.id, settings, &mut self.lines);
        self.flush().await;
    }

    /// Sends the lines. Blocks only if the outbox is full because the client does not read.
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
            let mut before = Waits::default();
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
            assert_eq!(before.all(), waits, "{name}");
            before.reported = before.all();
            let mut after = before.take();
            assert!(!before.all(), "{name}: a replay reports nothing");
            assert!(after.runs && !after.reported, "{name}");
            for id in asked {
                after.open_question(&CallId::new(*id), false);
            }
            assert_eq!(after.all(), waits, "{name}");
        }
    }
}
