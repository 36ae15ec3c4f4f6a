//! Titles of sessions. At first the title is taken from the first prompt; a little later it is
//! replaced by the title agent's. A title given by the user is never replaced.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::fallback_title::fallback_title;
use crate::turn::trace::{self, RequestPurpose};
use crate::turn::{History, TurnContext, hooks};
use base::task::JoinHandle;
use project::agent::Agent;
use providers::registry::Registry;
use providers::request::{BodyCache, ModelInput, ModelMessage, ModelParams};
use providers::{Delta, Error, Model, Provider, Request, optional_fields};
use transcript::{Content, Message};

/// The time limit of the title agent. No client waits for it.
const TITLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The part of the first prompt for the title agent, in bytes.
const MAX_MATERIAL_BYTES: usize = 8 << 10;

/// The part of a prompt in which a title is searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 2 << 10;

/// The limit of the answer; reasoning models need more tokens than a title has.
const MAX_OUTPUT_TOKENS: u64 = 2_000;

/// Returns a title taken from the first prompt of a history; `None` if that has no text.
pub fn fallback_of_history(history: &History) -> Option<String> {
    from_prompt(history.messages.iter().find(|m| m.user().is_some())?)
}

/// Returns a title taken from a prompt; `None` if that has no text.
pub(super) fn from_prompt(prompt: &Message) -> Option<String> {
    let title = fallback_title(&prompt.visible_beginning(MAX_SEARCHED_BYTES));
    (!title.is_empty()).then_some(title)
}

/// The title agent's work for one session.
#[derive(Default)]
pub(super) struct TitleTask {
    task: Option<JoinHandle<Option<String>>>,
    is_requested: bool,
    /// The answer, until it is applied.
    pub(super) answered: Option<String>,
}

impl TitleTask {
    pub(super) fn request(&mut self, turn: &TurnContext, history: &History) {
        if !self.is_requested {
            self.task = start(turn, history);
            self.is_requested = self.task.is_some();
        }
    }

    /// Waits for the answer; for ever if there is no request.
    pub(super) async fn answer(&mut self) -> Option<String> {
        let Some(task) = &mut self.task else {
            return std::future::pending().await;
        };
        let title = task.await.unwrap_or_default();
        self.task = None;
        title
    }

    /// Aborts the request.
    pub(super) fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Starts the title agent in the background, with its own model, or else a small one, or else the
/// session's. Returns `None` if titles are disabled, or only the offline model is available. A
/// failure is only logged.
fn start(turn: &TurnContext, history: &History) -> Option<JoinHandle<Option<String>>> {
    let agent = turn.project.agents.get("title")?;
    if turn
        .session
        .common
        .environment
        .setting("DISABLE_TITLES")
        .is_some_and(|v| !matches!(v, "0" | "false"))
    {
        return None;
    }
    let current = history
        .messages
        .iter()
        .rev()
        .find_map(|m| Some(m.assistant()?.model.clone()))?;
    let chosen = turn
        .project
        .models
        .of_agent(&agent, &current)
        .or_else(|| turn.project.context.settings.small_model.clone());
    let wanted = chosen
        .or_else(|| turn.project.models.small(&current))
        .unwrap_or_else(|| current.clone());
    if wanted.provider == Registry::OFFLINE {
        return None;
    }
    let (model, provider) = match turn.project.models.find(&wanted) {
        Ok(found) => found,
        Err(e) => {
            tracing::info!("no model for titles: {e}");
            return None;
        }
    };
    let first = history.messages.iter().find(|m| m.user().is_some())?;
    // Plugins do not replace a model that the user has chosen.
    let open = agent.model.is_none()
        && agent.family.is_none()
        && turn.project.context.settings.small_model.is_none();
    let own = turn.clone();
    let mut request = Request {
        system: vec![agent.prompt.as_deref().unwrap_or_default().to_owned()],
        messages: vec![ModelMessage::User(vec![ModelInput::Text(
            material(first)?.into(),
        )])],
        tools: Vec::new(),
        must_call: false,
        params: params(&agent, &model),
        session: format!("{}-title", turn.session.id),
        body_cache: BodyCache::default(),
        model,
    };
    Some(base::task::spawn(async move {
        let mut provider = provider;
        if open
            && let Some(small) = hooks::small_model(&own, &current).await
            && let Ok(found) = own.project.models.find(&small)
        {
            (request.model, provider) = found;
            request.params = params(&agent, &request.model);
        }
        let answer = async {
            loop {
                let error = match read_text(&own, provider.as_ref(), &request).await {
                    Ok(text) => return Ok(text),
                    Err(error) => error,
                };
                match optional_fields::rejected_field(&error, &request.params.omitted) {
                    Some(field) => request.params.omitted.push(field),
                    None => return Err(error),
                }
            }
        };
        match tokio::time::timeout(TITLE_TIMEOUT, answer).await {
            Ok(Ok(text)) => extract_title(&text),
            Ok(Err(e)) => {
                tracing::info!("no title: {e}");
                None
            }
            Err(_) => {
                tracing::info!("no title within {TITLE_TIMEOUT:?}");
                None
            }
        }
    }))
}

/// Returns the parameters of a request for a title. A title needs no thought, unless the user
/// chose an effort for the agent.
fn params(agent: &Agent, model: &Model) -> ModelParams {
    let has_own_effort = agent
        .model
        .as_ref()
        .is_some_and(|model| model.effort.is_some());
    ModelParams {
        temperature: if model.temperature {
            agent.temperature
        } else {
            None
        },
        top_p: agent.top_p,
        max_output: model.max_output().min(MAX_OUTPUT_TOKENS),
        options: agent.options.clone(),
        least_effort: !has_own_effort,
        ..ModelParams::default()
    }
}

/// Reads the text of an answer.
async fn read_text(
    turn: &TurnContext,
    provider: &dyn Provider,
    request: &Request,
) -> Result<String, Error> {
    let answer = provider.stream(Arc::new(request.clone()));
    let mut answer = trace::observe_answer(turn, &request.model, RequestPurpose::Title, answer);
    let mut text = String::new();
    while let Some(delta) = answer.next().await {
        if let Delta::Text { text: more, .. } = delta? {
            text.push_str(&more);
        }
    }
    Ok(text)
}

/// Returns the first prompt as the title agent's input.
fn material(message: &Message) -> Option<String> {
    let mut text = message.visible_beginning(MAX_MATERIAL_BYTES);
    for part in &message.parts {
        if let Content::File(file) = &part.content {
            let name = file
                .name
                .as_deref()
                .or(file.uri.as_deref())
                .unwrap_or(&file.mime);
            text.push_str(&format!("\n[attached: {}]", base::text::title(name)));
        }
    }
    (!text.trim().is_empty()).then_some(text)
}

/// Normalises a title: one line, at most 100 characters.
pub fn tidy(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    base::text::cut_chars(&base::text::title(&words.join(" ")), 100)
}

/// Extracts the title from an answer.
fn extract_title(answer: &str) -> Option<String> {
    let mut text = answer;
    while let Some((_, rest)) = text.split_once("</think>") {
        text = rest;
    }
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && *line != "<think>")?;
    let mut line = match line.split_once(' ') {
        Some((marks, heading)) if marks.trim_matches('#').is_empty() => heading,
        _ => line,
    };
    loop {
        let plain = unquoted(line.trim_end_matches('.').trim());
        if plain == line {
            break;
        }
        line = plain;
    }
    let title = tidy(line);
    (!title.is_empty()).then_some(title)
}

/// Removes the quotation marks around a text. Marks that belong to a part of it remain.
fn unquoted(text: &str) -> &str {
    const PAIRS: [(&str, &str); 7] = [
        ("**", "**"),
        ("*", "*"),
        ("\"", "\""),
        ("'", "'"),
        ("`", "`"),
        ("“", "”"),
        ("「", "」"),
    ];
    let inside = PAIRS.iter().find_map(|(open, close)| {
        let inside = text.strip_prefix(open)?.strip_suffix(close)?;
        (!inside.contains(open) && !inside.contains(close)).then_some(inside)
    });
    inside.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::extract_title;

    #[test]
    fn title_is_one_plain_line() {
        for (answer, title) in [
            (
                "Wildcards in permission rules",
                Some("Wildcards in permission rules"),
            ),
            (
                "<think>\nhm\n</think>\n\n\"Fix the build.\"\nBecause it is broken.",
                Some("Fix the build"),
            ),
            ("## `Retry` logic", Some("`Retry` logic")),
            ("#12: fix the parser", Some("#12: fix the parser")),
            ("**“Fix the build.”**", Some("Fix the build")),
            ("`a` and `b`", Some("`a` and `b`")),
            ("Rename `old`", Some("Rename `old`")),
            ("'t Hooft", Some("'t Hooft")),
            ("\n \n", None),
            ("<think>\nand no end", Some("and no end")),
        ] {
            assert_eq!(extract_title(answer).as_deref(), title, "{answer}");
        }
    }
}
