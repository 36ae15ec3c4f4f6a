//! `plan_enter`: asks the user whether to plan first, and switches to the planning agent.

use schemars::JsonSchema;
use serde::Deserialize;

use super::plan_exit::switch;
use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::permission::{Action, Need};
use crate::text;

/// How much of the reason is shown, in characters.
const REASON: usize = 500;

/// See the module.
pub struct PlanEnter;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Why a plan is worth it, for the user, in a sentence
    pub reason: String,
}

impl Tool for PlanEnter {
    const NAME: &'static str = "plan_enter";
    const KIND: Kind = Kind::SwitchMode;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = ();

    fn describe(_: &Input, _: &Context) -> Description {
        Description { title: "Plan first".into(), locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, _: &Context) -> Result<(Vec<Need>, ()), Failure> {
        let reason = text::cut_chars(input.reason.trim(), REASON);
        let question = format!("Switch to plan mode, where nothing is changed, and plan first? {reason}");
        // Whatever the rules allow: it is the user who decides.
        let need = Need { floor: Some((Action::Ask, question.trim_end().into())), ..Need::new(Self::NAME, "*") };
        Ok((vec![need], ()))
    }

    async fn run(&self, (): (), context: Context) -> Result<Output, Failure> {
        let agent = switch("plan", &context).await?;
        Ok(Output::text(format!("The user wants a plan first. {agent} speaks from here on.")))
    }
}
