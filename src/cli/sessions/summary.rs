//! `adjutant sessions summary`: a description of the work of a session, for a pull request.

use anyhow::bail;

use crate::cli::model_request::{self, ModelQuestion};
use crate::cli::project_context::ProjectContext;
use crate::cli::{say, terminal};
use base::environment::Environment;
use base::id::SessionId;
use base::text;
use export::conversation::{self, CallDetail};
use providers::registry::Registry;
use store::{RecordChange, SessionSummary, Store, StoredSession};
use transcript::ModelRef;

/// The agent that writes the description.
const AGENT: &str = "summary";

/// The largest description that is stored, in bytes.
const MAX_STORED_BYTES: usize = 4_000;

/// The largest part of the record that is sent, from its beginning and from its end, in bytes.
const MAX_BEGINNING_BYTES: usize = 20_000;
const MAX_END_BYTES: usize = 100_000;

/// Prints a description of a session, written by the agent `summary`, and stores it for lists and
/// exports.
pub(in crate::cli) async fn summary(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
) -> anyhow::Result<u8> {
    let mut stored = export::visible(store.peek(id).await?);
    // The model describes the session anew.
    stored.record.summary = None;
    let undos = stored.record.undos();
    if stored.messages.is_empty() {
        bail!("session {id} has no messages");
    }
    let directory = if stored.record.cwd.is_dir() {
        stored.record.cwd.as_path()
    } else {
        std::path::Path::new(".")
    };
    let here = ProjectContext::read(directory, environment)?;
    let Some(agent) = here.agents.get(AGENT) else {
        bail!("the agent \"{AGENT}\" is disabled in the settings");
    };
    let settings = &here.loaded.settings;
    let registry = model_request::registry(settings, environment).await;
    let last = last_model(&stored);
    let near = last
        .filter(|model| registry.find(model).is_ok())
        .or_else(|| settings.model.clone())
        .unwrap_or_else(|| registry.default_model().id.clone());
    let own = agent.model.clone().or_else(|| {
        let family = agent.family?;
        registry.newest(&near.provider, family.as_str())
    });
    let wanted = own.unwrap_or(near);
    if wanted.provider == Registry::OFFLINE {
        bail!(
            "no model is connected, and the offline model cannot write summaries; `adjutant models` lists what can be connected"
        );
    }
    let (model, provider) = registry.find(&wanted)?;
    let question = ModelQuestion {
        system: agent.prompt.as_deref().unwrap_or_default().to_owned(),
        text: material(&conversation::markdown(&stored, &[], CallDetail::Titles)),
        temperature: agent.temperature.unwrap_or(0.3),
        name: "sessions-summary",
    };
    let answer = model_request::send(&model, provider.as_ref(), question).await?;
    let answer = answer
        .rsplit_once("</think>")
        .map_or(answer.as_str(), |(_, rest)| rest)
        .trim();
    if answer.is_empty() {
        bail!(
            "{wanted} wrote nothing; try again, or choose another model with agent.{AGENT}.model"
        );
    }
    say(answer);
    let summary = SessionSummary {
        text: Some(text::head(answer, MAX_STORED_BYTES).to_owned()),
        written: environment.now(),
    };
    let change = RecordChange::Summary {
        summary: summary.clone(),
        undos,
    };
    let why = match store.change_record(id, change).await {
        Ok(record) if record.summary.as_ref() == Some(&summary) => return Ok(0),
        Ok(_) => "something was undone meanwhile; run the command again".to_owned(),
        Err(e) => e.to_string(),
    };
    terminal::print_note(&format!(
        "lists and exports do not show this summary, because it was not saved: {why}"
    ));
    Ok(0)
}

/// Returns the model that answered last.
fn last_model(stored: &StoredSession) -> Option<ModelRef> {
    let mut answers = stored.messages.iter().rev();
    let model = answers.find_map(|message| Some(message.assistant()?.model.clone()))?;
    Some(ModelRef {
        effort: None,
        ..model
    })
}

/// Returns the record of a session without its middle, if it is long.
fn material(record: &str) -> String {
    let beginning = text::head(record, MAX_BEGINNING_BYTES);
    let rest = &record[beginning.len()..];
    let end = text::tail(rest, MAX_END_BYTES);
    if end.len() == rest.len() {
        return record.to_owned();
    }
    format!("{beginning}\n\n[…]\n\n{end}")
}
