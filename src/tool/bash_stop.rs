//! `bash_stop`: ends a command in the background, and everything it started.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::permission::Need;
use crate::text;

/// See the module.
pub struct BashStop;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The id of the command
    pub bash_id: String,
}

impl Tool for BashStop {
    const NAME: &'static str = "bash_stop";
    const KIND: Kind = Kind::Other;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = Input;

    fn describe(input: &Input, _: &Context) -> Description {
        Description { title: text::title(&format!("Stop {}", input.bash_id)), locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, _: &Context) -> Result<(Vec<Need>, Input), Failure> {
        Ok((Vec::new(), input))
    }

    async fn run(&self, input: Input, context: Context) -> Result<Output, Failure> {
        let id = input.bash_id;
        let how = context.jobs.stop(&id, "stopped by bash_stop").await.map_err(Failure::Tell)?;
        context.jobs.heard(&id);
        let text = format!("{id} has ended: {how}.");
        Ok(Output { metadata: Map::from_iter([("bash_id".to_owned(), Value::String(id))]), ..Output::text(text) })
    }
}
