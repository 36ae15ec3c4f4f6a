//! Access to the user and the model, for requests that a server makes during a call.

use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use base::id::CallId;
use events::{
    CallUpdate, EventSender, FormPage, FormReply, FormRequest, PermissionReply, PermissionRequest,
    Progress, Sample, SampleRequest, SessionRequest, SessionRequestSender, ToolKind, TurnMessage,
};
use permission::wording::QuestionWording;
use tools::ToolContext;

/// The connection to the user of one call.
#[derive(Clone)]
pub(super) struct Asker {
    pub call: CallId,
    pub event_sender: EventSender,
    pub cancelled: CancellationToken,
    /// The requests to the session, which has a model.
    requests: SessionRequestSender,
}

impl Asker {
    pub(super) fn for_tool_call(context: &ToolContext) -> Self {
        Self {
            call: context.call.id.clone(),
            event_sender: context.client.event_sender.clone(),
            cancelled: context.cancelled.clone(),
            requests: context.client.session_requests.clone(),
        }
    }

    /// Returns an asker without a session: the receiver of the event sender answers, and there is
    /// no model.
    pub(super) fn without_session(event_sender: EventSender, cancelled: CancellationToken) -> Self {
        let requests = tokio::sync::mpsc::channel(1).0;
        Self {
            call: CallId::new("call"),
            event_sender,
            cancelled,
            requests,
        }
    }

    /// Shows a form or a URL to the user. Dropping the future withdraws it.
    pub(super) async fn show_form(
        &self,
        requester: String,
        message: String,
        page: FormPage,
        finished: Option<oneshot::Receiver<()>>,
    ) -> FormReply {
        tokio::select! {
            reply = show_form(&self.event_sender, Some(self.call.clone()), (requester, message), page, finished) => reply,
            () = self.cancelled.cancelled() => FormReply::Cancelled,
        }
    }

    /// Asks the user to permit something that costs money. "Always" is not offered. `wants`
    /// describes the request, starting with its verb; `quote` is shown verbatim.
    pub(super) async fn permit(
        &self,
        title: String,
        input: Value,
        wants: String,
        quote: String,
    ) -> bool {
        let (reply, answer) = oneshot::channel();
        let show = CallUpdate {
            title: Some(title),
            kind: Some(ToolKind::Other),
            progress: Some(Progress::Pending),
            input: Some(input),
            ..CallUpdate::of(&self.call)
        };
        let call = self.call.clone();
        let request = PermissionRequest {
            call,
            show,
            wording: QuestionWording {
                action: wants,
                quote: Some(quote),
                ..QuestionWording::default()
            },
            details: Vec::new(),
            sandbox: None,
            unattended: None,
            always: None,
            why_not_always: Some("it costs money each time".to_owned()),
            agent: None,
            session: None,
            reply,
        };
        if !self
            .event_sender
            .send(TurnMessage::AskPermission(Box::new(request)))
            .await
        {
            return false;
        }
        tokio::select! {
            answer = answer => matches!(answer, Ok(PermissionReply::Once)),
            () = self.cancelled.cancelled() => false,
        }
    }

    /// Sends a request to the session's model.
    ///
    /// # Errors
    /// Returns the reason if there is no answer.
    pub(super) async fn sample(
        &self,
        wanted: impl FnOnce(oneshot::Sender<Result<Sample, String>>) -> SampleRequest,
    ) -> Result<Sample, String> {
        let unavailable = || "there is no model to ask now".to_owned();
        let (reply, answer) = oneshot::channel();
        let request = SessionRequest::Sample(Box::new(wanted(reply)));
        self.requests
            .send(request)
            .await
            .map_err(|_| unavailable())?;
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| Err(unavailable())),
            () = self.cancelled.cancelled() => Err("cancelled".to_owned()),
        }
    }
}

/// Shows a form or a URL to the user. Dropping the future withdraws it.
pub(super) async fn show_form(
    event_sender: &EventSender,
    call: Option<CallId>,
    (requester, message): (String, String),
    page: FormPage,
    finished: Option<oneshot::Receiver<()>>,
) -> FormReply {
    let (reply, answer) = oneshot::channel();
    let request = FormRequest {
        call,
        session: None,
        requester,
        message,
        page,
        finished,
        reply,
    };
    if !event_sender
        .send(TurnMessage::AskForm(Box::new(request)))
        .await
    {
        return FormReply::NotShown;
    }
    // A dropped sender means that the form cannot be shown.
    answer.await.unwrap_or(FormReply::NotShown)
}
