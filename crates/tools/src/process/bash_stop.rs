//! `bash_stop`: stops a background command, and everything it started.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::{Aliases, JOB_ID_FIELDS};
use crate::{CallDescription, Failure, Tool, ToolContext, ToolOutput};
use base::text;
use events::ToolKind;
use permission::AccessRequest;

#[derive(Default)]
pub struct BashStopTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub bash_id: String,
}

impl Tool for BashStopTool {
    const NAME: &'static str = "bash_stop";
    const DESCRIPTION: &'static str = include_str!("bash_stop.md");
    const KIND: ToolKind = ToolKind::Other;
    const CONCURRENT: bool = false;
    const PERMISSION: &'static str = "bash";
    const ALIASES: Aliases = Aliases {
        tool_names: &["killshell", "killbash", "kill", "taskstop"],
        field_values: &[],
        fields: &[("bash_id", JOB_ID_FIELDS)],
    };
    type Input = Input;
    type Ready = Input;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: text::title(&format!("Stop {}", input.bash_id)),
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

    async fn run(&self, input: Input, context: ToolContext) -> Result<ToolOutput, Failure> {
        let id = input.bash_id;
        let how = context
            .session
            .jobs
            .stop(&id, "stopped by bash_stop")
            .await
            .map_err(Failure::ForModel)?;
        context.session.jobs.mark_reported(&id);
        let text = format!("{id} has ended: {how}.");
        Ok(ToolOutput {
            metadata: Map::from_iter([("bash_id".to_owned(), Value::String(id))]),
            ..ToolOutput::text(text)
        })
    }
}
