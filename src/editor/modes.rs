//! Visible primary agents as modes.

use std::sync::Arc;

use protocol::acp::v1;
use protocol::table::{Cx, Reply};

use super::error::Refusal;
use super::options;
use super::server::{ChoiceReply, Server};
use crate::session::Handle;
use crate::session::handle::SavedReceiver;

/// The modes of a session, for the editor.
pub fn modes(session: &Handle) -> v1::SessionModeState {
    let one = |agent: &Arc<crate::agent::Agent>| {
        let mode = v1::SessionMode::new(agent.name.clone(), crate::text::capitalised(&agent.name));
        match &agent.description {
            Some(text) => mode.description(crate::text::shown(text).into_owned()),
            None => mode,
        }
    };
    let available = session.project().agents.modes_with(&session.choice().agent).iter().map(one).collect();
    v1::SessionModeState::new(session.choice().agent, available)
}

/// session/set_mode. Takes effect at the next step, also while a turn runs.
pub fn set_mode(server: &Arc<Server>, cx: Cx, request: v1::SetSessionModeRequest) -> Reply<v1::SetSessionModeResponse> {
    let (own, id) = (server.clone(), request.session_id.0.clone());
    server.when_open(&id, move || {
        let session = own.session(&request.session_id.0)?;
        let written = choose(&session, &request.mode_id.0)?;
        let mode = Some(request.mode_id.0.to_string());
        cx.after(options::announce_options(own, session.clone(), mode));
        Ok(ChoiceReply { response: v1::SetSessionModeResponse::default(), kept: Some((session, written)) })
    })
}

/// Chooses a mode, if there is such a one.
///
/// # Errors
/// [`Refusal::Invalid`], naming the modes there are.
pub fn choose(session: &Handle, mode: &str) -> Result<SavedReceiver, Refusal> {
    let modes = session.project().agents.modes();
    if !session.project().agents.get(mode).is_some_and(|agent| agent.can_lead()) {
        let names: Vec<&str> = modes.iter().map(|agent| agent.name.as_str()).collect();
        return Err(Refusal::Invalid(format!("there is no such mode; there are: {}", names.join(", "))));
    }
    Ok(session.choose_agent(mode)?)
}
