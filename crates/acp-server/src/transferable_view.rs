//! [`TransferableView`], a view for sessions that can move to another connection. When a session
//! moves, the open questions fail as if the connection had ended, so that they are asked again there.

use std::path::PathBuf;

use protocol::rpc::CallError;
use tokio_util::sync::CancellationToken;

use super::account_reports::Account;
use super::view::{
    ChoiceRequest, ClientReply, ConfigOption, Form, FormAnswer, PickedAnswer, SessionActivity,
    SessionView, UpdateLines,
};
use base::id::SessionId;
use events::Event;

/// A view whose open questions fail once its session moves to another connection.
pub struct TransferableView {
    view: Box<dyn SessionView>,
    transfer: CancellationToken,
}

impl TransferableView {
    /// Wraps a view. Its open questions fail when `transfer` is cancelled.
    pub fn new(view: Box<dyn SessionView>, transfer: CancellationToken) -> Self {
        Self { view, transfer }
    }

    /// Returns a reply that fails when the session moves.
    fn until_transfer<T: Send + 'static>(&self, client_reply: ClientReply<T>) -> ClientReply<T> {
        let transfer = self.transfer.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = client_reply => answer,
                () = transfer.cancelled() => Err(CallError::Closed),
            }
        })
    }
}

impl SessionView for TransferableView {
    fn encode_event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines) {
        self.view.encode_event(session, event, out);
    }

    fn encode_auth_status(&self, accounts: Vec<Account>) -> Vec<u8> {
        self.view.encode_auth_status(accounts)
    }

    fn encode_config_options(
        &mut self,
        session: &SessionId,
        config_options: Vec<ConfigOption>,
        out: &mut UpdateLines,
    ) {
        self.view
            .encode_config_options(session, config_options, out);
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
        choice: ChoiceRequest,
    ) -> ClientReply<Option<PickedAnswer>> {
        let client_reply = self.view.request_permission(session, choice);
        self.until_transfer(client_reply)
    }

    fn request_form(&mut self, session: &SessionId, form: Form) -> ClientReply<FormAnswer> {
        let client_reply = self.view.request_form(session, form);
        self.until_transfer(client_reply)
    }

    fn read_file(&mut self, session: &SessionId, path: PathBuf) -> ClientReply<String> {
        let client_reply = self.view.read_file(session, path);
        self.until_transfer(client_reply)
    }

    fn write_file(&mut self, session: &SessionId, path: PathBuf, text: String) -> ClientReply<()> {
        let client_reply = self.view.write_file(session, path, text);
        self.until_transfer(client_reply)
    }
}
