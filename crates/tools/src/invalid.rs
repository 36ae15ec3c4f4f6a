//! `invalid`: replaces a call that cannot be run. Never offered to a model.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Availability, CallDescription, Failure, Tool, ToolContext, ToolOutput};
use base::text;
use events::ToolKind;
use permission::AccessRequest;

#[derive(Default)]
pub struct InvalidTool;

/// The invalid call.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The name that was called
    pub tool: String,
    /// The reason it cannot be run
    pub error: String,
}

impl Tool for InvalidTool {
    const NAME: &'static str = "invalid";
    const DESCRIPTION: &'static str = include_str!("invalid.md");
    const KIND: ToolKind = ToolKind::Other;
    const CONCURRENT: bool = true;
    const AVAILABILITY: Availability = Availability::PerStep;
    type Input = Input;
    type Ready = Input;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: text::title(&format!("Invalid call of {}", input.tool)),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Input), Failure> {
        Ok((Vec::new(), input))
    }

    async fn run(&self, input: Input, _: ToolContext) -> Result<ToolOutput, Failure> {
        Err(Failure::ForModel(format!(
            "The call of {} could not be run: {}",
            text::escaped(&input.tool),
            input.error
        )))
    }
}
