//! `todoread`: the plan as it stands.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::message::{Todo, TodoStatus};
use crate::permission::Need;

/// See the module.
pub struct Todoread;

/// Nothing.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {}

impl Tool for Todoread {
    const NAME: &'static str = "todoread";
    const KIND: Kind = Kind::Think;
    const CONCURRENT: bool = true;
    type Input = Input;
    type Ready = ();

    fn describe(_: &Input, _: &Context) -> Description {
        Description { title: "Read the todo list".into(), locations: Vec::new() }
    }

    async fn prepare(&self, _: Input, _: &Context) -> Result<(Vec<Need>, ()), Failure> {
        Ok((vec![Need::new("todoread", "*").always("*")], ()))
    }

    async fn run(&self, (): (), context: Context) -> Result<Output, Failure> {
        let todos = context.todos.get();
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
        let text = if lines.is_empty() { "There is no plan.".to_owned() } else { lines.join("\n") };
        Ok(super::todowrite::output(&todos, text))
    }
}
