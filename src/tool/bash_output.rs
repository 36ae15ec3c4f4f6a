//! `bash_output`: what a command in the background has printed since it was read last, and whether it
//! still runs; where that is asked for, once it has printed what is waited for, or has ended.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jobs::{Reading, Until};
use super::pattern::{Pattern, Style};
use super::truncate::{self, Keep, Limits};
use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::permission::Need;
use crate::text;

/// The longest wait, in milliseconds.
const LONGEST: u64 = 600_000;
/// How long output is waited for where the model does not say, in milliseconds.
const PATIENCE: u64 = 30_000;

/// The key in the metadata that says that there was something new: to look again is no repetition.
pub const NEWS: &str = "news";

/// See the module.
pub struct BashOutput;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The id of the command
    pub bash_id: String,
    /// Milliseconds to wait at most, for until or its end
    pub wait: Option<u64>,
    /// Regular expression to wait for in new output
    pub until: Option<String>,
}

/// What is read, and what is waited for.
pub struct Ready {
    id: String,
    wait: Duration,
    until: Until,
    /// As the model wrote it.
    pattern: Option<String>,
}

impl Tool for BashOutput {
    const NAME: &'static str = "bash_output";
    const KIND: Kind = Kind::Read;
    const CONCURRENT: bool = true;
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, _: &Context) -> Description {
        Description { title: text::title(&format!("Output of {}", input.bash_id)), locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, _: &Context) -> Result<(Vec<Need>, Ready), Failure> {
        let pattern = input.until.filter(|pattern| !pattern.is_empty());
        let until = match &pattern {
            None => Until::End,
            Some(pattern) => Until::Output(Box::new(Pattern::new("until", pattern, Style::default())?)),
        };
        let wait = input.wait.unwrap_or(if pattern.is_some() { PATIENCE } else { 0 }).min(LONGEST);
        Ok((Vec::new(), Ready { id: input.bash_id, wait: Duration::from_millis(wait), until, pattern }))
    }

    async fn run(&self, ready: Ready, context: Context) -> Result<Output, Failure> {
        let Ready { id, wait, until, pattern } = ready;
        let reading = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
            reading = context.jobs.read(&id, wait, &until) => reading.map_err(Failure::Tell)?,
        };
        let missed = pattern.filter(|_| !reading.came).map(|pattern| match &reading.how {
            Some(_) => format!("`{pattern}` did not come before its end."),
            None => format!("`{pattern}` did not come within {} ms.", wait.as_millis()),
        });
        Ok(output(id, reading, missed, context.limits))
    }
}

fn output(id: String, reading: Reading, missed: Option<String>, limits: Limits) -> Output {
    let Reading { text, skipped, how, code, notes, whole, .. } = reading;
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
    let told = missed.into_iter().chain([state]).chain(notes).collect::<Vec<_>>().join("\n");
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
