//! `todoread`: returns the present plan.

use schemars::JsonSchema;
use serde::Deserialize;

use super::aliases::Aliases;
use super::{Availability, CallDescription, Failure, Tool, ToolContext, ToolOutput};
use events::ToolKind;
use permission::AccessRequest;
use transcript::{Todo, TodoStatus};

#[derive(Default)]
pub struct TodoreadTool;

/// The tool has no arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {}

impl Tool for TodoreadTool {
    const NAME: &'static str = "todoread";
    const DESCRIPTION: &'static str = include_str!("todoread.md");
    const KIND: ToolKind = ToolKind::Think;
    const CONCURRENT: bool = true;
    const OFFER: Availability = Availability::Unlisted;
    const ALIASES: Aliases = Aliases {
        also: &["readtodos", "gettodos", "listtodos"],
        says: &[],
        fields: &[],
    };
    type Input = Input;
    type Ready = ();

    fn describe(_: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: "Read the todo list".into(),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        _: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, ()), Failure> {
        Ok((vec![AccessRequest::new("todoread", "*").always("*")], ()))
    }

    async fn run(&self, (): (), context: ToolContext) -> Result<ToolOutput, Failure> {
        let todos = context.session.todos.get();
        let line = |todo: &Todo| {
            let status = match todo.status {
                TodoStatus::Pending => "pending",
                TodoStatus::InProgress => "in_progress",
                TodoStatus::Completed => "completed",
                TodoStatus::Cancelled => "cancelled",
            };
            format!("- [{status}] {}", todo.content)
        };
        let lines: Vec<String> = todos.iter().map(line).collect();
        let text = if lines.is_empty() {
            "The todo list is empty.".to_owned()
        } else {
            lines.join("\n")
        };
        Ok(super::todowrite::output(&todos, text))
    }
}
