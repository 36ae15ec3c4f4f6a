//! Offers a login at an MCP server to the user, as a link in the client. This process receives the
//! browser's callback, and the session has the server's tools from the next step on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::asker;
use super::credential_store::StoredLogin;
use super::login;
use base::text;
use config::settings::OAuth;
use events::{EventSender, FormPage, FormReply};
use providers::http::HttpClient;

/// A login that is offered to the user, with everything that it needs.
pub(super) struct LoginPrompt {
    pub name: String,
    pub url: String,
    pub oauth: OAuth,
    pub stored: StoredLogin,
    pub client: Arc<HttpClient>,
    /// True if the login was offered. Reset if the client cannot show it.
    pub is_offered: Arc<AtomicBool>,
    pub stop: CancellationToken,
}

impl LoginPrompt {
    /// Offers the login at most once, and completes it if the user agrees.
    pub(super) fn send(self, event_sender: &EventSender) {
        if !self.is_offered.swap(true, Ordering::Relaxed) {
            let event_sender = event_sender.clone();
            base::task::spawn(async move {
                let stop = self.stop.clone();
                tokio::select! {
                    () = self.run(event_sender) => {}
                    () = stop.cancelled() => {}
                }
            });
        }
    }

    async fn run(self, event_sender: EventSender) {
        let Self {
            name,
            url,
            oauth,
            stored,
            client,
            is_offered,
            ..
        } = self;
        let (found, mut address) = mpsc::unbounded_channel();
        let show = move |address: &str| drop(found.send(address.to_owned()));
        let login = login::log_in(&name, &url, &oauth, &stored, &client, show);
        tokio::pin!(login);
        let failed = |why: &str| tracing::info!("the login at the MCP server {name} failed: {why}");
        let address = tokio::select! {
            done = &mut login => return failed(&done.err().unwrap_or_default()),
            Some(address) = address.recv() => address,
        };
        let requester = format!("The MCP server {}", text::title(&name));
        let message = "It needs a login. Open this link to log in with your browser.".to_owned();
        let (login_done, finished) = oneshot::channel();
        let page = FormPage::Url(address);
        let shown = Box::pin(async move {
            asker::show_form(
                &event_sender,
                None,
                (requester, message),
                page,
                Some(finished),
            )
            .await
        });
        let mut shown = Some(shown);
        loop {
            tokio::select! {
                done = &mut login => match done {
                    Ok(()) => {
                        tracing::info!("logged in at the MCP server {name}");
                        // The client may still show the page.
                        login_done.send(()).ok();
                        return;
                    }
                    Err(why) => return failed(&why),
                },
                reply = async { match &mut shown { Some(shown) => shown.await, None => std::future::pending().await } } => {
                    shown = None;
                    match reply {
                        FormReply::Accepted(_) => {}
                        FormReply::NotShown => return is_offered.store(false, Ordering::Relaxed),
                        FormReply::Declined | FormReply::Cancelled => return,
                    }
                }
            }
        }
    }
}
