//! `bash_output`: returns the output of a background command since the last read, and whether the
//! command still runs. On request it first waits for matching output or the end.
//!
//! Limits: eight commands at once for each session, 256 MiB of output stored for each.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::{Aliases, JOB_ID_FIELDS};
use crate::files::pattern::{MatchOptions, SearchPattern};
use crate::process::background_jobs::{JobOutput, WaitFor};
use crate::truncate::{self, KeepEnd};
use crate::{CallDescription, Failure, Tool, ToolContext, ToolOutput};
use base::text;
use config::settings::OutputLimits;
use events::{ProgramExit, ToolKind};
use permission::AccessRequest;
use transcript::CallFacts;

/// The maximum wait, in milliseconds.
const MAX_WAIT_MS: u64 = 600_000;
/// The default wait for matching output, in milliseconds.
const DEFAULT_WAIT_MS: u64 = 30_000;

#[derive(Default)]
pub struct BashOutputTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub bash_id: String,
    /// Milliseconds to wait at most, for until or the end
    pub wait: Option<u64>,
    /// Regular expression to wait for in new output
    pub until: Option<String>,
}

/// The checked arguments.
pub struct Ready {
    id: String,
    wait: Duration,
    until: WaitFor,
    /// The pattern as the model wrote it.
    pattern: Option<String>,
}

impl Tool for BashOutputTool {
    const NAME: &'static str = "bash_output";
    const DESCRIPTION: &'static str = include_str!("bash_output.md");
    const KIND: ToolKind = ToolKind::Read;
    const CONCURRENT: bool = true;
    const PERMISSION: &'static str = "bash";
    const ALIASES: Aliases = Aliases {
        tool_names: &["getoutput", "shelloutput", "readoutput", "taskoutput"],
        field_values: &[],
        fields: &[("bash_id", JOB_ID_FIELDS)],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: text::title(&format!("Output of {}", input.bash_id)),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let pattern = input.until.filter(|pattern| !pattern.is_empty());
        let until = match &pattern {
            None => WaitFor::End,
            Some(pattern) => WaitFor::Output(Box::new(SearchPattern::new(
                "until",
                pattern,
                MatchOptions::default(),
            )?)),
        };
        let wait = input
            .wait
            .unwrap_or(if pattern.is_some() {
                DEFAULT_WAIT_MS
            } else {
                0
            })
            .min(MAX_WAIT_MS);
        Ok((
            Vec::new(),
            Ready {
                id: input.bash_id,
                wait: Duration::from_millis(wait),
                until,
                pattern,
            },
        ))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let Ready {
            id,
            wait,
            until,
            pattern,
        } = ready;
        let reading = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
            reading = context.session.jobs.read(&id, wait, &until) => reading.map_err(Failure::ForModel)?,
        };
        let missed = match pattern {
            Some(pattern) if !reading.came => Some(match &reading.how {
                Some(_) => format!("`{pattern}` did not appear before it ended."),
                None => format!("`{pattern}` did not appear within {} ms.", wait.as_millis()),
            }),
            _ => None,
        };
        Ok(output(id, reading, missed, context.limits))
    }
}

/// Formats the result for the model and for people. `missed` is a note on a pattern that did not
/// appear.
fn output(
    id: String,
    reading: JobOutput,
    missed: Option<String>,
    limits: OutputLimits,
) -> ToolOutput {
    let JobOutput {
        text,
        skipped,
        how,
        code,
        notes,
        whole,
        ..
    } = reading;
    let has_new_information = !text.is_empty() || how.is_some();
    let cut = truncate::cut(&text, limits, KeepEnd::Tail);
    let skipped = skipped + u64::try_from(text.len() - cut.shown.len()).unwrap_or_default();
    let shown = if text.trim().is_empty() {
        "(nothing new)".to_owned()
    } else {
        cut.shown
    };
    let before = if skipped > 0 {
        format!("...{skipped} bytes not shown...\n\n")
    } else {
        String::new()
    };
    let state = match &how {
        None if skipped > 0 => format!("{id} is running. {whole}"),
        None => format!("{id} is running."),
        Some(how) => format!("{id} has ended: {how}. {whole}"),
    };
    let note = missed
        .into_iter()
        .chain([state])
        .chain(notes)
        .collect::<Vec<_>>()
        .join("\n");
    let metadata = Map::from_iter([
        ("bash_id".to_owned(), Value::String(id)),
        ("running".to_owned(), Value::Bool(how.is_none())),
    ]);
    // Another call after new output is not a repetition.
    let facts = CallFacts {
        has_new_information: Some(has_new_information),
        exit: Some(ProgramExit { code, signal: None }),
        ..CallFacts::default()
    };
    ToolOutput {
        text: format!("{before}{shown}"),
        note,
        display: Some(shown),
        cut: true,
        keep: KeepEnd::Tail,
        facts,
        metadata,
        ..ToolOutput::default()
    }
}
