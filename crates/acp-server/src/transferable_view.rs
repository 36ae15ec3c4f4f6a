//! A view whose open questions can move to another connection: when the session moves there, they
//! fail as if this connection had ended.

use std::path::PathBuf;

use protocol::rpc::CallError;
use tokio_util::sync::CancellationToken;

use super::login::Account;
use super::view::{
    ChoiceRequest, ClientReply, ConfigOption, Form, FormAnswer, PickedAnswer, SessionActivity,
    SessionView, UpdateLines,
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

    fn until<T: Send + 'static>(&self, asking: ClientReply<T>) -> ClientReply<T> {
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
    fn encode_event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines) {
        self.view.encode_event(session, event, out);
    }

    fn encode_auth_status(&self, known: Vec<Account>) -> Vec<u8> {
        self.view.encode_auth_status(known)
    }

    fn encode_config_options(
        &mut self,
        session: &SessionId,
        settings: Vec<ConfigOption>,
        out: &mut UpdateLines,
    ) {
        self.view.encode_config_options(session, settings, out);
    }

    fn encode_activity(
        &mut self,
        session: &SessionId,
        state: &SessionActivity,
        out: &mut UpdateLines,
    ) {
        self.view.encode_activity(session, state, out);
    }

    fn encode_replay_end(&mut self, session: &SessionId, out: &mut UpdateLines) {
        self.view.encode_replay_end(session, out);
    }

    fn request_permission(
        &mut self,
        session: &SessionId,
        asked: ChoiceRequest,
    ) -> ClientReply<Option<PickedAnswer>> {
        let asking = self.view.request_permission(session, asked);
        self.until(asking)
    }

    fn request_form(&mut self, session: &SessionId, form: Form) -> ClientReply<FormAnswer> {
        let asking = self.view.request_form(session, form);
        self.until(asking)
    }

    fn read_file(&mut self, session: &SessionId, path: PathBuf) -> ClientReply<String> {
        let asking = self.view.read_file(session, path);
        self.until(asking)
    }

    fn write_file(&mut self, session: &SessionId, path: PathBuf, text: String) -> ClientReply<()> {
        let asking = self.view.write_file(session, path, text);
        self.until(asking)
    }
}
