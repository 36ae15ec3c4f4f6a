//! Who can be asked while a server works for a call.

use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use base::id::CallId;
use events::{
    CallUpdate, FormPage, FormReply, FormRequest, Outlet, PermissionReply, PermissionRequest, Progress, Sample,
    SampleRequest, SessionRequest, SessionRequestSender, ToolKind, TurnMessage,
};
use permission::wording::Wording;
use tools::ToolContext;

/// The way to the user of one call.
#[derive(Clone)]
pub(super) struct Asker {
    pub call: CallId,
    pub outlet: Outlet,
    pub cancelled: CancellationToken,
    /// The way to the session, which has a model.
    requests: SessionRequestSender,
}

impl Asker {
    pub(super) fn of(context: &ToolContext) -> Self {
        let (outlet, cancelled) = (context.client.outlet.clone(), context.cancelled.clone());
        let requests = context.client.session_requests.clone();
        Self { call: context.call.id.clone(), outlet, cancelled, requests }
    }

    /// Of somebody without a session: who hears what comes up answers.
    pub(super) fn alone(outlet: Outlet, cancelled: CancellationToken) -> Self {
        let requests = tokio::sync::mpsc::channel(1).0;
        Self { call: CallId::new("call"), outlet, cancelled, requests }
    }

    /// Puts a page, or an address, before the user. Dropping this withdraws it.
    pub(super) async fn form(
        &self,
        who: String,
        message: String,
        asks: FormPage,
        finished: Option<oneshot::Receiver<()>>,
    ) -> FormReply {
        tokio::select! {
            said = form(&self.outlet, Some(self.call.clone()), (who, message), asks, finished) => said,
            () = self.cancelled.cancelled() => FormReply::Cancelled,
        }
    }

    /// Asks the user for a plain yes to something that costs, which is theirs to give each time.
    /// `wants` says what is wanted, from its verb on; `quote` is shown as it is.
    pub(super) async fn permit(&self, title: String, input: Value, wants: String, quote: String) -> bool {
        let (reply, said) = oneshot::channel();
        let show = CallUpdate {
            title: Some(title),
            kind: Some(ToolKind::Other),
            progress: Some(Progress::Pending),
            input: Some(input),
            ..CallUpdate::of(&self.call)
        };
        let call = self.call.clone();
        let asked = PermissionRequest {
            call,
            show,
            wording: Wording { verb: wants, quote: Some(quote), ..Wording::default() },
            details: vec!["No \"always\": it costs money each time.".to_owned()],
            unattended: None,
            always: None,
            agent: None,
            session: None,
            reply,
        };
        if !self.outlet.send(TurnMessage::AskPermission(Box::new(asked))).await {
            return false;
        }
        tokio::select! {
            said = said => matches!(said, Ok(PermissionReply::Once)),
            () = self.cancelled.cancelled() => false,
        }
    }

    /// Has the session's model asked.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn sample(
        &self,
        wanted: impl FnOnce(oneshot::Sender<Result<Sample, String>>) -> SampleRequest,
    ) -> Result<Sample, String> {
        let none = || "there is no model to ask now".to_owned();
        let (reply, said) = oneshot::channel();
        let asked = SessionRequest::Sample(Box::new(wanted(reply)));
        self.requests.send(asked).await.map_err(|_| none())?;
        tokio::select! {
            said = said => said.unwrap_or_else(|_| Err(none())),
            () = self.cancelled.cancelled() => Err("cancelled".to_owned()),
        }
    }
}

/// Puts a page, or an address, before the user. Dropping this withdraws it.
pub(super) async fn form(
    outlet: &Outlet,
    call: Option<CallId>,
    (who, message): (String, String),
    asks: FormPage,
    finished: Option<oneshot::Receiver<()>>,
) -> FormReply {
    let (reply, said) = oneshot::channel();
    let asked = FormRequest { call, session: None, who, message, asks, finished, reply };
    if !outlet.send(TurnMessage::AskForm(Box::new(asked))).await {
        return FormReply::Unshown;
    }
    // Nobody took it: there is no way to show it.
    said.await.unwrap_or(FormReply::Unshown)
}
