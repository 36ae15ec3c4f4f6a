//! `bash_output`: what a command in the background has printed since it was read last, and whether it
//! still runs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jobs::Reading;
use super::truncate::{self, Keep, Limits};
use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::permission::Need;
use crate::text;

/// The longest wait, in milliseconds.
const LONGEST: u64 = 600_000;

/// The key in the metadata that says that there was something new: to look again is no repetition.
pub const NEWS: &str = "news";

/// See the module.
pub struct BashOutput;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The id of the command
    pub bash_id: String,
    /// Milliseconds to wait for its end first (default 0, at most 600000)
    pub wait: Option<u64>,
}

impl Tool for BashOutput {
    const NAME: &'static str = "bash_output";
    const KIND: Kind = Kind::Read;
    const CONCURRENT: bool = true;
    type Input = Input;
    type Ready = Input;

    fn describe(input: &Input, _: &Context) -> Description {
        Description { title: text::title(&format!("Output of {}", input.bash_id)), locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, _: &Context) -> Result<(Vec<Need>, Input), Failure> {
        Ok((Vec::new(), input))
    }

    async fn run(&self, input: Input, context: Context) -> Result<Output, Failure> {
        let wait = Duration::from_millis(input.wait.unwrap_or_default().min(LONGEST));
        let reading = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
            reading = context.jobs.read(&input.bash_id, wait) => reading.map_err(Failure::Tell)?,
        };
        Ok(output(input.bash_id, reading, context.limits))
    }
}

fn output(id: String, reading: Reading, limits: Limits) -> Output {
    let Reading { text, skipped, how, code, notes, whole } = reading;
    let news = !text.is_empty() || how.is_some();
    let cut = truncate::cut(&text, limits, Keep::Tail);
    let skipped = skipped + u64::try_from(text.len() - cut.shown.len()).unwrap_or_default();
    let shown = if text.trim().is_empty() { "(nothing new)".to_owned() } else { cut.shown };
    let before = if skipped > 0 { format!("...{skipped} bytes not shown...\n\n") } else { String::new() };
    let state = match &how {
        None if skipped > 0 => format!("{id} is running. {whole}"),
        None => format!("{id} is running."),
        Some(how) => format!("{id} has ended: {how}. {whole}"),
    };
    let told = std::iter::once(state).chain(notes).collect::<Vec<_>>().join("\n");
    let metadata = Map::from_iter([
        ("bash_id".to_owned(), Value::String(id)),
        (NEWS.to_owned(), Value::Bool(news)),
        ("running".to_owned(), Value::Bool(how.is_none())),
        ("exit".to_owned(), code.map_or(Value::Null, Value::from)),
    ]);
    Output {
        text: format!("{before}{shown}"),
        note: told,
        display: Some(shown),
        cut: true,
        keep: Keep::Tail,
        metadata,
        ..Output::default()
    }
}
