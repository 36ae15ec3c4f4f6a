//! Where a session's messages become lines for the editor, in whichever version it speaks.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::face::{SessionActivity, SessionView, UpdateLines};
use super::movable::Movable;
use super::options;
use super::server::Server;
use super::{ask, elicit, files, form};
use base::id::{CallId, MessageId, SessionId};
use events::{Event, Progress, Severity, TurnMessage};
use providers::offline::CONNECT;
use session::Handle;

/// Something the editor is working on: a question comes back when the connection has ended before its answer.
type EditorWork = Pin<Box<dyn Future<Output = Option<TurnMessage>> + Send>>;

/// What is done beside the flow of updates: questions and files the editor is working on.
type Beside = Pin<Box<dyn Future<Output = BesideEnd> + Send>>;

/// The end of something that was done beside the flow of updates.
struct BesideEnd {
    /// The number of the question about a call that is over: answered, or withdrawn.
    question: Option<u64>,
    /// The question itself, where the connection has ended before its answer.
    back: Option<TurnMessage>,
}

/// What the names begin with under which messages go that belong to no part of the history.
const ASIDE: &str = "aside";

/// Where a session's messages become lines for the editor.
pub struct UpdateSender {
    server: Arc<Server>,
    session: Handle,
    view: Box<dyn SessionView>,
    calls: FuturesUnordered<Beside>,
    waits: Waits,
    lines: UpdateLines,
    /// Ends when what was asked is to be asked elsewhere.
    moved: CancellationToken,
    unanswered: Vec<TurnMessage>,
}

/// Whether all that a turn does waits for the user. A call waits while a question about it is open, and works from then
/// on: it may be a while until it says something itself.
#[derive(Debug, Default)]
struct Waits {
    /// A turn runs, and its end has not been told.
    runs: bool,
    /// It was told last that everything waits.
    told: bool,
    /// The questions about calls that are open.
    questions: Vec<OpenQuestion>,
    /// How many there were.
    asked: u64,
    working: Vec<CallId>,
}

#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    call: CallId,
    /// A subagent made the call: the one which set it to work waits as well.
    within: bool,
}

impl Waits {
    /// Whether everything waits: each call at work is one whose subagent has asked.
    fn all(&self) -> bool {
        let within = self.questions.iter().filter(|question| question.within).map(|question| &question.call);
        !self.questions.is_empty() && self.working.len() <= within.collect::<BTreeSet<_>>().len()
    }

    /// A turn has begun.
    fn begin(&mut self) {
        *self = Self { runs: true, asked: self.asked, ..Self::default() };
    }

    /// Something is asked about a call: the question's number.
    fn ask(&mut self, call: &CallId, within: bool) -> u64 {
        self.working.retain(|working| working != call);
        self.asked += 1;
        self.questions.push(OpenQuestion { number: self.asked, call: call.clone(), within });
        self.asked
    }

    /// A question is over. Says whether its call works again; one that has said so itself, or has ended, is not asked
    /// about any more.
    fn over(&mut self, number: u64) -> bool {
        let Some(at) = self.questions.iter().position(|question| question.number == number) else { return false };
        let OpenQuestion { call, .. } = self.questions.remove(at);
        let works = self.questions.iter().all(|question| question.call != call);
        if works {
            self.working.push(call);
        }
        works
    }

    /// Takes note of what a call does. Says whether that is worth telling: what was cancelled ends with the turn.
    fn heard(&mut self, event: &Event) -> bool {
        let Event::Call(update) = event else { return false };
        let (Some(id), Some(progress)) = (&update.call, update.progress) else { return false };
        self.questions.retain(|question| question.call != *id || progress == Progress::Pending);
        self.working.retain(|working| working != id);
        if progress == Progress::Running {
            self.working.push(id.clone());
        }
        progress != Progress::Cancelled
    }
}

/// A view of a session; where the session can go on in another connection, so can what it asks.
fn view(server: &Arc<Server>, moved: &CancellationToken) -> Box<dyn SessionView> {
    let mut view = server.view();
    view.name_asides(server.shared.environment.fresh(ASIDE));
    match server.hosted() {
        None => view,
        Some(_) => Box::new(Movable::new(view, moved.clone())),
    }
}

/// Shows a session that is being opened.
pub struct OpeningUpdates {
    server: Arc<Server>,
    view: Box<dyn SessionView>,
    moved: CancellationToken,
}

impl OpeningUpdates {
    pub fn new(server: &Arc<Server>) -> Self {
        let moved = CancellationToken::new();
        Self { server: server.clone(), view: view(server, &moved), moved }
    }

    /// Waits only while the editor does not read.
    pub async fn event(&mut self, session: &SessionId, event: &Event) {
        let mut lines = UpdateLines::new();
        self.view.event(session, event, &mut lines);
        for line in lines {
            self.server.peer.outbox().send(line).await;
        }
    }

    /// Goes on with the session, which is open.
    pub fn open(self, session: &Handle) -> UpdateSender {
        let Self { server, view, moved } = self;
        let calls = FuturesUnordered::new();
        let waits = Waits::default();
        let session = session.clone();
        let lines = UpdateLines::new();
        let unanswered = Vec::new();
        UpdateSender { server, session, view, calls, waits, lines, moved, unanswered }
    }
}

impl UpdateSender {
    /// One that has shown nothing yet.
    pub fn new(server: &Arc<Server>, session: &Handle) -> Self {
        OpeningUpdates::new(server).open(session)
    }

    /// Whether this process is about to stop, and turns end at their next step.
    pub fn is_leaving(&self) -> bool {
        self.server.shared.leaving.is_cancelled()
    }

    /// Shows the rest to another editor. What it has missed comes first; see [`UpdateSender::ask_again`].
    pub async fn move_to(&mut self, server: &Arc<Server>) {
        self.moved.cancel();
        while !self.calls.is_empty() {
            self.answered().await;
        }
        self.moved = CancellationToken::new();
        (self.view, self.server) = (view(server, &self.moved), server.clone());
        self.lines.clear();
    }

    /// Shows what is kept of the session, up to a message.
    pub async fn replay(&mut self, until: Option<&MessageId>) {
        let exposed = self.server.capabilities().shows.subagents;
        match self.server.shared.clone().review(&self.session, until, exposed).await {
            Ok(mut replay) => {
                while let Some(event) = replay.next().await {
                    self.event(event).await;
                }
            }
            Err(e) => tracing::error!("session {} cannot be shown: {e}", self.session.id),
        }
    }

    /// Asks what came back once more.
    pub async fn ask_again(&mut self) {
        for question in std::mem::take(&mut self.unanswered) {
            self.ask(question);
        }
        self.tell_work().await;
    }

    /// How many questions wait for another editor.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Whether something is being done beside the flow of updates.
    pub fn is_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Waits until something of that has come to an end. Says whether a call works again that the user was asked
    /// about: that is to be told with [`UpdateSender::tell_work`], for this may be dropped at any time.
    pub async fn answered(&mut self) -> bool {
        let Some(BesideEnd { question, back }) = self.calls.next().await else { return false };
        match (back, question) {
            (Some(back), _) => {
                // Where nobody can come back, whoever asked hears that there is no answer.
                self.unanswered.extend(Some(back).filter(|_| self.server.hosted().is_some()));
                false
            }
            (None, Some(question)) => self.waits.over(question),
            (None, None) => false,
        }
    }

    /// Tells whether the turn works or waits, where that has changed.
    pub async fn tell_work(&mut self) {
        self.work();
        self.flush().await;
    }

    /// Withdraws the questions that nobody waits for any more, in the order in which they were given up.
    pub fn withdraw(&mut self) {
        self.unanswered.clear();
        while let Some(Some(_)) = self.calls.next().now_or_never() {}
    }

    /// Tells that a turn has begun.
    pub async fn begin(&mut self) {
        self.waits.begin();
        self.state(SessionActivity::Running).await;
    }

    /// Tells what the session does.
    pub async fn state(&mut self, state: SessionActivity) {
        if matches!(state, SessionActivity::Idle(_)) {
            self.waits.runs = false;
        }
        self.view.state(&self.session.id, &state, &mut self.lines);
        self.flush().await;
    }

    /// Says whether the turn works or waits, where that has changed.
    fn work(&mut self) {
        let waits = self.waits.all();
        if self.waits.runs && waits != self.waits.told {
            self.waits.told = waits;
            let state = if waits { SessionActivity::Waiting } else { SessionActivity::Running };
            self.view.state(&self.session.id, &state, &mut self.lines);
        }
    }

    /// What is said at the beginning of a session's first turn: the commands once more, for editors
    /// that missed them, and what is not as the user may expect.
    pub async fn greet(&mut self) {
        let Some(notices) = self.session.greeting().map(<[Event]>::to_vec) else {
            return;
        };
        let project = self.session.project();
        if self.server.capabilities().misses_commands {
            self.event(Event::Commands(self.session.commands())).await;
        }
        if !project.models.is_anybody_there() {
            let (title, details) = CONNECT.trim().split_once('\n').unwrap_or((CONNECT, ""));
            let (title, details) = (title.to_owned(), Some(details.to_owned()));
            self.event(Event::Notice { severity: Severity::Info, title, details }).await;
        }
        for notice in notices {
            self.event(notice).await;
        }
    }

    /// Shows what has come up, in order. Words of one part that wait together go out together.
    pub async fn show(&mut self, batch: &mut Vec<TurnMessage>) {
        self.kept(batch).await;
        let mut ups = batch.drain(..).peekable();
        while let Some(up) = ups.next() {
            match up {
                TurnMessage::Event(mut event) => {
                    while let Some(TurnMessage::Event(next)) = ups.peek()
                        && event.absorb(next)
                    {
                        ups.next();
                    }
                    self.event(event).await;
                }
                up => {
                    self.ask(up);
                    self.tell_work().await;
                }
            }
        }
    }

    /// Begins what the editor does for a turn, beside the flow of updates.
    fn ask(&mut self, up: TurnMessage) {
        let (own, view) = (&self.session.id, self.view.as_mut());
        let (question, work): (Option<u64>, EditorWork) = match up {
            TurnMessage::Event(_) => return,
            TurnMessage::AskPermission(asked) => {
                let number = self.waits.ask(&asked.call, asked.agent.is_some());
                let session = asked.session.as_ref().unwrap_or(own);
                let asking = ask::ask(view.ask(session, ask::question(&asked)), *asked);
                (Some(number), asking.map(|back| Some(TurnMessage::AskPermission(Box::new(back?)))).boxed())
            }
            TurnMessage::Confirm(asked) => {
                let number = self.waits.ask(&asked.call, false);
                let asking = ask::choose(view.ask(own, ask::choice(&asked)), *asked);
                (Some(number), asking.map(|back| Some(TurnMessage::Confirm(Box::new(back?)))).boxed())
            }
            TurnMessage::AskQuestions(asked) => {
                let way = form::way(own, &asked, self.server.capabilities().forms, view);
                // What cannot be shown waits for nobody.
                let shown = !matches!(way, form::QuestionPrompt::None);
                let number = shown.then(|| self.waits.ask(&asked.call, false));
                let asking = form::inquire(way, *asked);
                (number, asking.map(|back| Some(TurnMessage::AskQuestions(Box::new(back?)))).boxed())
            }
            TurnMessage::AskForm(mut asked) => {
                let way = elicit::way(own, &mut asked, &self.server.capabilities(), view);
                let shown = !matches!(way, elicit::FormPrompt::None);
                let call = asked.call.as_ref().filter(|_| shown);
                let number = call.map(|call| self.waits.ask(call, asked.session.is_some()));
                let asking = elicit::elicit(way, *asked);
                (number, asking.map(|back| Some(TurnMessage::AskForm(Box::new(back?)))).boxed())
            }
            TurnMessage::Read(file) => {
                let reading = files::read(view.read(own, file.path), file.reply);
                (None, reading.map(|()| None).boxed())
            }
            TurnMessage::Write(file) => {
                let writing = files::write(view.write(own, file.path, file.text), file.reply);
                (None, writing.map(|()| None).boxed())
            }
        };
        self.calls.push(work.map(move |back| BesideEnd { question, back }).boxed());
    }

    /// Waits until what is told of now survives the end of the process. It was written before it came up;
    /// of words that grow, the store has nearly all.
    async fn kept(&mut self, batch: &[TurnMessage]) {
        let mut sessions: Vec<SessionId> = Vec::new();
        for up in batch {
            let (session, event) = match up {
                TurnMessage::Event(Event::Within { session, event }) => (session, &**event),
                TurnMessage::Event(event) => (&self.session.id, event),
                _ => continue,
            };
            if event.is_kept() && !sessions.contains(session) {
                sessions.push(session.clone());
            }
        }
        for session in sessions {
            self.server.shared.store.handed_over(&session).await;
        }
    }

    pub async fn event(&mut self, event: Event) {
        let switched = matches!(event, Event::Mode(_) | Event::Options);
        match &event {
            Event::Within { session, event } => self.view.event(session, event, &mut self.lines),
            event => {
                if self.waits.heard(event) {
                    self.work();
                }
                self.view.event(&self.session.id, event, &mut self.lines);
            }
        }
        if switched {
            let settings = options::settings(&self.server, &self.session);
            self.view.settings(&self.session.id, settings, &mut self.lines);
        }
        self.flush().await;
    }

    /// Shows what can be chosen, as it will be.
    pub async fn settings(&mut self) {
        let settings = options::settings(&self.server, &self.session);
        self.view.settings(&self.session.id, settings, &mut self.lines);
        self.flush().await;
    }

    /// Waits only while the editor does not read.
    async fn flush(&mut self) {
        for line in self.lines.drain(..) {
            self.server.peer.outbox().send(line).await;
        }
    }
}
