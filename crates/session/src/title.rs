//! What a session is called. At once: a few words of its first prompt. A little later: what the title agent
//! makes of it. What the user calls it stays.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::first_words::first_words;
use crate::turn::{History, TurnContext, hooks};
use base::task::JoinHandle;
use providers::registry::Registry;
use providers::request::{BodyCache, ModelInput, ModelMessage, ModelParams};
use providers::{Delta, Request};
use transcript::{Content, Message};

/// How long a title may take. Nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much of the first prompt is enough for the title agent, in bytes.
const ENOUGH: usize = 8 << 10;

/// How much of a prompt is looked at for its first words, in bytes.
const NAMES: usize = 2 << 10;

/// Tokens for the answer; models that think first need more than a title has.
const TOKENS: u64 = 2_000;

/// A title out of the user's own words; none while a history holds none.
pub fn title(history: &History) -> Option<String> {
    words(history.messages.iter().find(|m| m.user().is_some())?)
}

/// A title out of the words of a prompt; none where it has none.
pub(super) fn words(prompt: &Message) -> Option<String> {
    let title = first_words(&prompt.visible_beginning(NAMES));
    (!title.is_empty()).then_some(title)
}

/// What the title agent does for one session.
#[derive(Default)]
pub(super) struct Titling {
    task: Option<JoinHandle<Option<String>>>,
    asked: bool,
    /// Its answer, as long as nobody has taken it.
    pub(super) answered: Option<String>,
}

impl Titling {
    pub(super) fn ask(&mut self, scope: &TurnContext, history: &History) {
        if !self.asked {
            self.task = ask(scope, history);
            self.asked = self.task.is_some();
        }
    }

    /// Waits for its answer; for ever where nothing was asked.
    pub(super) async fn answer(&mut self) -> Option<String> {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let title = task.await.unwrap_or_default();
        self.task = None;
        title
    }

    /// Nobody wants its answer any more.
    pub(super) fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Asks the title agent, beside everything else: its own model, a small one, else the session's. None where
/// the settings have disabled it, or nobody but the offline model is there. A failure is in the log and
/// nowhere else.
fn ask(scope: &TurnContext, history: &History) -> Option<JoinHandle<Option<String>>> {
    let agent = scope.project.agents.get("title")?;
    if scope.environment.setting("DISABLE_TITLES").is_some_and(|v| !matches!(v, "0" | "false")) {
        return None;
    }
    let current = history.messages.iter().rev().find_map(|m| Some(m.assistant()?.model.clone()))?;
    let chosen = agent.model.clone().or_else(|| scope.project.settings.small_model.clone());
    let wanted = chosen.or_else(|| scope.project.models.small(&current)).unwrap_or_else(|| current.clone());
    if wanted.provider == Registry::OFFLINE {
        return None;
    }
    let (model, provider) = match scope.project.models.find(&wanted) {
        Ok(found) => found,
        Err(e) => {
            tracing::info!("no model for titles: {e}");
            return None;
        }
    };
    let first = history.messages.iter().find(|m| m.user().is_some())?;
    // What the user has chosen, plugins do not change.
    let open = agent.model.is_none() && scope.project.settings.small_model.is_none();
    let (own, beside) = (scope.clone(), current);
    let mut request = Request {
        system: vec![agent.prompt.as_deref().unwrap_or_default().to_owned()],
        messages: vec![ModelMessage::User(vec![ModelInput::Text(material(first)?.into())])],
        tools: Vec::new(),
        must_call: false,
        params: ModelParams {
            temperature: agent.temperature.filter(|_| model.temperature),
            top_p: agent.top_p,
            max_output: model.max_output().min(TOKENS),
            options: agent.options.clone(),
            headers: Vec::new(),
            search: false,
        },
        session: format!("{}-title", scope.session),
        body_cache: BodyCache::default(),
        model,
    };
    Some(base::task::spawn(async move {
        let mut provider = provider;
        if open
            && let Some(small) = hooks::small_model(&own, &beside).await
            && let Ok(found) = own.project.models.find(&small)
        {
            (request.model, provider) = found;
            request.params.max_output = request.model.max_output().min(TOKENS);
        }
        let answer = async {
            let mut answer = provider.ask(Arc::new(request));
            let mut text = String::new();
            while let Some(delta) = answer.next().await {
                match delta {
                    Ok(Delta::Text { text: more, .. }) => text.push_str(&more),
                    Ok(_) => {}
                    Err(e) => return Err(e.to_string()),
                }
            }
            Ok(text)
        };
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(text)) => clean(&text),
            Ok(Err(e)) => {
                tracing::info!("no title: {e}");
                None
            }
            Err(_) => {
                tracing::info!("no title within {PATIENCE:?}");
                None
            }
        }
    }))
}

/// The first prompt, as material.
fn material(message: &Message) -> Option<String> {
    let mut text = message.visible_beginning(ENOUGH);
    for part in &message.parts {
        if let Content::File(file) = &part.content {
            let name = file.name.as_deref().or(file.uri.as_deref()).unwrap_or(&file.mime);
            text.push_str(&format!("\n[attached: {}]", base::text::title(name)));
        }
    }
    (!text.trim().is_empty()).then_some(text)
}

/// A title as it is kept: one line, not too long.
pub fn tidy(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    base::text::cut_chars(&base::text::title(&words.join(" ")), 100)
}

/// What of an answer is the title.
fn clean(answer: &str) -> Option<String> {
    let mut text = answer;
    while let Some((_, rest)) = text.split_once("</think>") {
        text = rest;
    }
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && *line != "<think>")?;
    let line = line.trim_start_matches('#').trim_matches(['"', '\'', '`', '*', ' ', '“', '”', '「', '」']);
    let line = line.trim_end_matches('.');
    let title = tidy(line);
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_title_is_one_plain_line() {
        for (answer, title) in [
            ("Wildcards in permission rules", Some("Wildcards in permission rules")),
            ("<think>\nhm\n</think>\n\n\"Fix the build.\"\nBecause it is broken.", Some("Fix the build")),
            ("## `Retry` logic", Some("Retry` logic")),
            ("\n \n", None),
            ("<think>\nand no end", Some("and no end")),
        ] {
            assert_eq!(clean(answer).as_deref(), title, "{answer}");
        }
    }
}
