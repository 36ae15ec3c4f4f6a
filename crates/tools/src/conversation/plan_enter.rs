//! `plan_enter`: asks the user to switch to plan mode before the work begins.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::aliases::Aliases;
use crate::conversation::plan_exit::switch_agent;
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::text;
use events::ToolKind;
use permission::{AccessRequest, Action};

/// The maximum length of the shown reason, in characters.
const MAX_REASON_CHARS: usize = 500;

#[derive(Default)]
pub struct PlanEnterTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The reason, in a sentence, for the user
    pub reason: String,
}

impl Tool for PlanEnterTool {
    const NAME: &'static str = "plan_enter";
    const DESCRIPTION: &'static str = include_str!("plan_enter.md");
    const KIND: ToolKind = ToolKind::SwitchMode;
    const CONCURRENT: bool = false;
    const AVAILABILITY: Availability = Availability::ByName;
    const PERMISSION_KEY: Option<PermissionKey> =
        Some(PermissionKey::acting("Proposing to switch to planning."));
    const ALIASES: Aliases = Aliases {
        tool_names: &["enterplanmode", "enterplan"],
        field_values: &[],
        fields: &[],
    };
    type Input = Input;
    type Ready = ();
    const REJECTED: Option<&'static str> = Some(
        "The user does not want a plan first. Continue with the task without one; do not ask again.",
    );

    fn describe(_: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: "Plan first".into(),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, ()), Failure> {
        let reason = text::cut_chars(input.reason.trim(), MAX_REASON_CHARS);
        let question =
            format!("Switch to plan mode, where nothing is changed, and plan first? {reason}");
        // The user decides, whatever the rules allow.
        let request = AccessRequest {
            minimum: Some((Action::Ask, question.trim_end().into())),
            ..AccessRequest::new(Self::NAME, "*")
        };
        Ok((vec![request], ()))
    }

    async fn run(&self, (): (), context: ToolContext) -> Result<ToolOutput, Failure> {
        let agent = switch_agent("plan", &context).await?;
        Ok(ToolOutput::text(format!(
            "The user wants a plan first. The session is in {agent} mode now: make the plan."
        )))
    }
}
