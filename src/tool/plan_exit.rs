//! `plan_exit`: asks the user whether to carry out the plan, and switches to the building agent.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::path::{Access, Found, resolve};
use super::{Context, Description, Failure, Output, Tool};
use crate::event::{Errand, Kind, Location, Switch};
use crate::permission::{Action, Need};
use crate::text;

/// How much of the plan is shown with the question, in bytes.
const SHOWN: usize = 16 << 10;

/// See the module.
pub struct PlanExit;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The file the plan is in, if there is one
    pub plan: Option<String>,
}

impl Tool for PlanExit {
    const NAME: &'static str = "plan_exit";
    const KIND: Kind = Kind::SwitchMode;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = Option<String>;

    fn describe(input: &Input, context: &Context) -> Description {
        let path: Option<PathBuf> = input.plan.as_deref().map(|plan| context.absolute(plan));
        let locations = path.into_iter().map(|path| Location { path, line: None }).collect();
        Description { title: "Carry out the plan".into(), locations }
    }

    async fn prepare(&self, input: Input, context: &Context) -> Result<(Vec<Need>, Option<String>), Failure> {
        let mut question = "The plan is ready. Leave plan mode and carry it out?".to_owned();
        let mut needs = Vec::new();
        let mut need = Need::new(Self::NAME, "*");
        let mut plan = None;
        if let Some(named) = input.plan.as_deref().filter(|named| !named.trim().is_empty()) {
            let place = resolve(context, named, Access::Read)?;
            if place.real.found != Found::File {
                return Err(Failure::Tell(format!(
                    "{} is not a file. Name the file the plan is in, or none.",
                    place.shown
                )));
            }
            let path = place.real.path.clone();
            let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
            let bytes = match read {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(e)) => return Err(Failure::Tell(format!("{} cannot be read: {e}.", place.shown))),
                Err(e) => return Err(Failure::Broken(e.to_string())),
            };
            let words = String::from_utf8_lossy(&bytes);
            question.push_str(&format!("\n\n{}:\n\n{}", place.shown, text::head(&words, SHOWN).trim_end()));
            if words.len() > SHOWN {
                question.push_str(&format!("\n\n...{} bytes more.", words.len() - SHOWN));
            }
            need.metadata.insert("plan".into(), Value::String(place.path.display().to_string()));
            plan = Some(place.shown.clone());
            needs.extend(place.real.needs(Access::Read));
        }
        // Whatever the rules allow: it is the user who decides.
        need.floor = Some((Action::Ask, question));
        needs.push(need);
        Ok((needs, plan))
    }

    async fn run(&self, plan: Option<String>, context: Context) -> Result<Output, Failure> {
        let agent = switch("build", &context).await?;
        let plan = plan.map(|plan| format!(" in {plan}")).unwrap_or_default();
        Ok(Output::text(format!("The user has approved the plan{plan}. {agent} speaks from here on: carry it out.")))
    }
}

/// Lets another agent speak from the next step on; gives back who it is.
pub(super) async fn switch(agent: &str, context: &Context) -> Result<String, Failure> {
    let (reply, answer) = oneshot::channel();
    let sent = context.errands.send(Errand::Switch(Switch { agent: agent.into(), reply })).await.is_ok();
    match answer.await {
        Ok(Some(agent)) => Ok(agent),
        Ok(None) => Err(Failure::tell("The mode cannot be changed here. Tell the user to change it.")),
        Err(_) if sent && context.cancelled.is_cancelled() => Err(Failure::Cancelled),
        Err(_) => Err(Failure::Broken("the session does not answer".into())),
    }
}
