//! What users and projects hook into a session without writing Rust: commands that run when something
//! happens in it (`hook` in the settings). What they answer is an [`advice::Advice`]; the turn and the
//! session ask for it and act on it, and the rules stay above it.

pub mod advice;
pub mod login;
pub mod moment;
pub mod scripts;
pub mod subagents;
pub mod survey;
pub mod tally;

mod client;
mod command;
mod conversation;
mod host;
mod load;
mod plugin;
mod tool;
mod transform;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use self::advice::{Advice, HookAnswer};
use self::moment::Moment;
use self::scripts::Scripts;
use base::lock::locked;
use base::text;
use config::Settings;
use config::settings::{HookEntry, HookPoint};
use events::{Event, Severity};
use permission::{shell, wildcard};
use providers::{Model, Request};
use tools::{Failure, ToolContext};
use transcript::ModelRef;

/// The longest notice of a hook's, in characters.
const NOTICE: usize = 1_000;

/// What hooks into one session.
#[derive(Debug, Default)]
pub struct Extensions {
    /// The hooks of the session's start have run.
    started: AtomicBool,
    /// What did not work and was told: each once. A std mutex: a leaf around a set.
    told: Mutex<BTreeSet<String>>,
    /// Custom tools and plugins.
    pub scripts: Arc<Scripts>,
}

/// Whether anything hooks into what happens there. Costs a look at a list that is nearly always empty.
pub fn any(settings: &Settings, on: HookPoint) -> bool {
    !settings.scripts.is_empty() || settings.hooks.iter().any(|hook| hook.on == on)
}

/// Whether a hook might refuse a call of a tool about this, or ask about it.
pub fn guards(settings: &Settings, agent: &str, tool: &str, subject: &str) -> bool {
    let guard = |hook: &HookEntry| matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission);
    settings.hooks.iter().filter(|hook| guard(hook)).any(|hook| {
        let mut moment = Moment::new(hook.on, agent);
        moment.tool = Some(tool.to_owned());
        moment.subjects.push(subject.to_owned());
        fits(hook, &moment)
    })
}

impl Extensions {
    /// Says that the session begins; true the first time.
    pub fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::Relaxed)
    }

    /// Whether the session has begun.
    pub fn has_begun(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Asks everything that hooks into this moment, one after the other, in the order of the settings. The first
    /// refusal is the last word. One that fails is told once, and where it could have refused a call the user
    /// is asked instead.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn ask(&self, mut moment: Moment, context: &ToolContext) -> Result<Advice, Failure> {
        let mut advice = Advice::default();
        let (on, settings) = (moment.on, context.project.settings.clone());
        for hook in settings.hooks.iter().filter(|hook| hook.on == on) {
            if !fits(hook, &moment) {
                continue;
            }
            for file in command::files(hook, &moment) {
                let began = Instant::now();
                let answered = command::run(hook, &moment, file.as_deref(), context).await?;
                let took = began.elapsed();
                let name = format!("hook {}", hook.name);
                self.scripts.counted(&name, took, answered.as_ref().err().cloned());
                let answer = match answered {
                    Ok(answer) => answer,
                    Err(why) => self.failed(hook, &why, context).await,
                };
                tracing::info!("hook {} on {} took {took:?}: {}", hook.name, hook.on.as_str(), answer.summary());
                if let Some(words) = &answer.notice {
                    let title = text::cut_chars(&format!("{}: {}", hook.name, words.trim()), NOTICE);
                    notice(Severity::Info, title, context).await;
                }
                if let Some(input) = &answer.input {
                    moment.set("input", input.clone());
                }
                advice.take(answer, hook);
                if advice.deny.is_some() {
                    return Ok(advice);
                }
            }
        }
        if !settings.scripts.is_empty() {
            advice.join(plugin::ask(&self.scripts, &moment, context).await?);
        }
        Ok(advice)
    }

    /// A prompt's texts as plugins leave them; none where they leave them as they are.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn prompt(
        &self,
        model: &ModelRef,
        said: &[String],
        context: &ToolContext,
    ) -> Result<Option<Vec<(String, bool)>>, Failure> {
        let input = json!({
            "sessionID": context.session.id.as_str(), "agent": context.call.agent, "messageID": "msg",
            "model": { "providerID": model.provider, "modelID": model.model }, "variant": model.effort,
        });
        plugin::texts_of(&self.scripts, ("chat.message", input), said, context).await
    }

    /// What a `/word` stands for, as plugins leave it; none where they leave it as it is.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn command(
        &self,
        (name, arguments): (&str, &str),
        said: &[String],
        context: &ToolContext,
    ) -> Result<Option<Vec<(String, bool)>>, Failure> {
        let input = json!({ "command": name, "arguments": arguments, "sessionID": context.session.id.as_str() });
        plugin::texts_of(&self.scripts, ("command.execute.before", input), said, context).await
    }

    /// A request as plugins want it.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn request(&self, request: &mut Request, context: &ToolContext) -> Result<(), Failure> {
        plugin::request(&self.scripts, request, context).await
    }

    /// Whether plugins let a turn go on by itself once its history was summarised.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn goes_on(&self, model: &Model, overflow: bool, context: &ToolContext) -> Result<bool, Failure> {
        plugin::goes_on(&self.scripts, model, overflow, context).await
    }

    /// The model that plugins want for small work beside this one; none where they name none.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn small_model(&self, beside: &ModelRef, context: &ToolContext) -> Result<Option<ModelRef>, Failure> {
        plugin::small_model(&self.scripts, beside, context).await
    }

    /// The variables that plugins give a command.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn variables(&self, context: &ToolContext) -> Result<Vec<(String, String)>, Failure> {
        plugin::variables(&self.scripts, context).await
    }

    /// Words of the model as plugins want them kept; none where they leave them as they are. `at` names the message
    /// and the part.
    ///
    /// # Errors
    /// When the user cancels meanwhile.
    pub async fn complete(
        &self,
        at: (&str, &str),
        words: &str,
        context: &ToolContext,
    ) -> Result<Option<String>, Failure> {
        plugin::complete(&self.scripts, at, words, context).await
    }

    /// A hook that did not work: the user hears of it once, and decides in its place.
    async fn failed(&self, hook: &HookEntry, why: &str, context: &ToolContext) -> HookAnswer {
        let title = format!("The hook {} failed: {why}.", text::title(&hook.name));
        if locked(&self.told).insert(title.clone()) {
            let shown = format!("{title} It is configured in {}.", hook.source);
            notice(Severity::Warning, shown, context).await;
        }
        let asks = matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission);
        let ask = asks.then(|| format!("the hook {} failed, which might have refused it", text::title(&hook.name)));
        HookAnswer { ask, ..HookAnswer::default() }
    }
}

async fn notice(severity: Severity, title: String, context: &ToolContext) {
    let (title, _) = text::visible(&title);
    let (first, rest) = title.split_once('\n').unwrap_or((&title, ""));
    let details = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    context.client.outlet.event(Event::Notice { severity, title: first.to_owned(), details }).await;
}

/// Whether a hook is for what happens.
fn fits(hook: &HookEntry, moment: &Moment) -> bool {
    let tool = moment.tool.as_deref().unwrap_or_default();
    let named = !hook.on.is_about_a_call()
        || hook.tools.is_empty()
        || hook.tools.iter().any(|pattern| wildcard::matches(pattern, tool));
    let about = |pattern: &String| moment.subjects.iter().any(|subject| concerns(pattern, subject));
    named && hook.pattern.as_ref().is_none_or(about)
}

/// Whether a text, or a command in it, is what a pattern names: `cd x && git commit` has a `git commit *`.
fn concerns(pattern: &str, subject: &str) -> bool {
    if wildcard::matches_folded(pattern, subject.trim()) {
        return true;
    }
    let words = |names: Vec<shell::Name>| names.into_iter().map(|name| name.text).collect::<Vec<_>>().join(" ");
    shell::commands(subject).unwrap_or_default().into_iter().any(|one| wildcard::matches_folded(pattern, &words(one)))
}

/// What every event says first.
pub(crate) fn head(hook: &HookEntry, moment: &Moment, context: &ToolContext) -> Vec<(&'static str, Value)> {
    vec![
        ("event", hook.on.as_str().into()),
        ("hook", hook.name.as_str().into()),
        ("session", context.session.id.as_str().into()),
        ("directory", context.project.cwd.display().to_string().into()),
        ("project", context.project.worktree.root.display().to_string().into()),
        ("agent", moment.agent.as_str().into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::HookFormat;

    #[test]
    fn what_a_hook_may_refuse() {
        let hook = |on: HookPoint, tools: &[&str], pattern: Option<&str>| {
            let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
            let hooks = vec![HookEntry {
                name: "h".into(),
                on,
                tools,
                pattern: pattern.map(str::to_owned),
                command: vec!["x".into()],
                limit: std::time::Duration::from_secs(1),
                environment: Vec::new(),
                format: HookFormat::Adjutant,
                withheld: None,
                project: false,
                source: String::new(),
            }];
            guards(&Settings { hooks, ..Settings::default() }, "build", "task", "general")
        };
        assert!(hook(HookPoint::ToolBefore, &[], None));
        assert!(hook(HookPoint::Permission, &["ta*"], Some("gen*")));
        assert!(!hook(HookPoint::ToolBefore, &["bash"], None));
        assert!(!hook(HookPoint::ToolBefore, &[], Some("explore")));
        assert!(!hook(HookPoint::ToolAfter, &[], None));
    }

    #[test]
    fn what_a_pattern_is_about() {
        let table = [
            ("git commit *", "git commit -m x", true),
            ("git commit *", "cd a && git commit", true),
            ("git commit *", "echo 'git commit'", false),
            ("git commit *", "GIT_X=1 git commit -a | cat", true),
            ("src/*.rs", "src/a.rs", true),
            ("*.rs", "src/a.ts", false),
        ];
        for (pattern, subject, wanted) in table {
            assert_eq!(concerns(pattern, subject), wanted, "{pattern} {subject}");
        }
    }
}
