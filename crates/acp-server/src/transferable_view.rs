//! A view whose open questions can move to another connection: when the session moves there, they
//! fail as if this connection had ended.

use std::path::PathBuf;

use protocol::rpc::CallError;
use tokio_util::sync::CancellationToken;

use super::login::Account;
use super::view::{
    ChoiceRequest, EditorAnswer, Form, FormAnswer, PickedAnswer, SessionActivity, SessionView,
    Setting, UpdateLines,
};
use base::id::SessionId;
use events::Event;

pub struct Movable {
    view: Box<dyn SessionView>,
    moved: CancellationToken,
}

impl Movable {
    /// Wraps a view. Its open questions fail when `moved` is cancelled.
    pub fn new(view: Box<dyn SessionView>, moved: CancellationToken) -> Self {
        Self { view, moved }
    }

    fn until<T: Send + 'static>(&self, asking: EditorAnswer<T>) -> EditorAnswer<T> {
        let moved = self.moved.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = asking => answer,
                () = moved.cancelled() => Err(CallError::Closed),
            }
        })
    }
}

impl SessionView for Movable {
    fn event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines) {
        self.view.event(session, event, out);
    }

    fn accounts(&self, known: Vec<Account>) -> Vec<u8> {
        self.view.accounts(known)
    }

    fn settings(&mut self, session: &SessionId, settings: Vec<Setting>, out: &mut UpdateLines) {
        self.view.settings(session, settings, out);
    }

    fn state(&mut self, session: &SessionId, state: &SessionActivity, out: &mut UpdateLines) {
        self.view.state(session, state, out);
    }

    fn replayed(&mut self, session: &SessionId, out: &mut UpdateLines) {
        self.view.replayed(session, out);
    }

    fn ask(
        &mut self,
        session: &SessionId,
        asked: ChoiceRequest,
    ) -> EditorAnswer<Option<PickedAnswer>> {
        let asking = self.view.ask(session, asked);
        self.until(asking)
    }

    fn fill(&mut self, session: &SessionId, form: Form) -> EditorAnswer<FormAnswer> {
        let asking = self.view.fill(session, form);
        self.until(asking)
    }

    fn read(&mut self, session: &SessionId, path: PathBuf) -> EditorAnswer<String> {
        let asking = self.view.read(session, path);
        self.until(asking)
    }

    fn write(&mut self, session: &SessionId, path: PathBuf, text: String) -> EditorAnswer<()> {
        let asking = self.view.write(session, path, text);
        self.until(asking)
    }
}
