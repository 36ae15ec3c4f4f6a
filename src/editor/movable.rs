//! A view whose questions can be asked elsewhere: they fail as if the connection had ended when the session goes on
//! in another one.

use std::path::PathBuf;

use protocol::rpc::CallError;
use tokio_util::sync::CancellationToken;

use super::face::{Asked, Asking, Form, FormAnswer, Lines, Picked, Setting, State, View};
use crate::event::Event;
use crate::id::SessionId;

/// Such a view.
pub struct Movable {
    view: Box<dyn View>,
    moved: CancellationToken,
}

impl Movable {
    /// What it asks fails when `moved` ends.
    pub fn new(view: Box<dyn View>, moved: CancellationToken) -> Self {
        Self { view, moved }
    }

    fn until<T: Send + 'static>(&self, asking: Asking<T>) -> Asking<T> {
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

impl View for Movable {
    fn event(&mut self, session: &SessionId, event: &Event, out: &mut Lines) {
        self.view.event(session, event, out);
    }

    fn settings(&mut self, session: &SessionId, settings: Vec<Setting>, out: &mut Lines) {
        self.view.settings(session, settings, out);
    }

    fn state(&mut self, session: &SessionId, state: &State, out: &mut Lines) {
        self.view.state(session, state, out);
    }

    fn ask(&mut self, session: &SessionId, asked: Asked) -> Asking<Option<Picked>> {
        let asking = self.view.ask(session, asked);
        self.until(asking)
    }

    fn fill(&mut self, session: &SessionId, form: Form) -> Asking<FormAnswer> {
        let asking = self.view.fill(session, form);
        self.until(asking)
    }

    fn read(&mut self, session: &SessionId, path: PathBuf) -> Asking<String> {
        let asking = self.view.read(session, path);
        self.until(asking)
    }

    fn write(&mut self, session: &SessionId, path: PathBuf, text: String) -> Asking<()> {
        let asking = self.view.write(session, path, text);
        self.until(asking)
    }
}
