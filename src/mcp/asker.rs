//! Who can be asked while a server works for a call.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::event::{FormPage, FormReply, FormRequest, Outlet, TurnMessage};
use crate::id::CallId;
use crate::tool::ToolContext;

/// The way to the user of one call.
#[derive(Clone)]
pub(super) struct Asker {
    pub call: CallId,
    pub outlet: Outlet,
    pub cancelled: CancellationToken,
}

impl Asker {
    pub(super) fn of(context: &ToolContext) -> Self {
        let (outlet, cancelled) = (context.client.outlet.clone(), context.cancelled.clone());
        Self { call: context.call.id.clone(), outlet, cancelled }
    }

    /// Puts a page, or an address, before the user. Dropping this withdraws it.
    pub(super) async fn form(&self, who: String, message: String, asks: FormPage) -> FormReply {
        let (reply, said) = oneshot::channel();
        let asked = FormRequest { call: self.call.clone(), session: None, who, message, asks, reply };
        if !self.outlet.send(TurnMessage::AskForm(Box::new(asked))).await {
            return FormReply::Cancelled;
        }
        tokio::select! {
            // Nobody took it: there is no way to show it.
            said = said => said.unwrap_or(FormReply::Unshown),
            () = self.cancelled.cancelled() => FormReply::Cancelled,
        }
    }
}
