//! `todowrite`: maintains the todo list that the editor shows as its plan.
//!
//! The model writes the complete list each time. Without arguments, as models send to `todoread`
//! from habit, it returns the list as it is.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::Aliases;
use crate::{CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput, input_schema};
use events::{Event, ToolKind};
use permission::AccessRequest;
use transcript::{Call, Todo, TodoStatus};

#[derive(Default)]
pub struct TodowriteTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    #[schemars(required)]
    pub todos: Option<Vec<Todo>>,
}

/// The arguments of a call that only reads.
#[derive(JsonSchema)]
struct NoArguments {}

impl Tool for TodowriteTool {
    const NAME: &'static str = "todowrite";
    const DESCRIPTION: &'static str = include_str!("todowrite.md");
    const KIND: ToolKind = ToolKind::Think;
    const CONCURRENT: bool = false;
    const KEEPS_INPUT: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> =
        Some(PermissionKey::acting("Updating the todo list."));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "writetodos",
            "updatetodos",
            "updateplan",
            "settodos",
            "todo",
            "todoread",
            "readtodos",
            "gettodos",
            "listtodos",
        ],
        field_values: &[],
        fields: &[
            ("todos", &["todolist", "items", "tasks", "plan", "list"]),
            (
                "content",
                &["task", "title", "text", "step", "todo", "description"],
            ),
            ("status", &["state"]),
        ],
    };
    type Input = Input;
    /// The new list; `None` to read it.
    type Ready = Option<Vec<Todo>>;

    fn other_form(fields: &Map<String, Value>) -> Option<Value> {
        fields.is_empty().then(input_schema::<NoArguments>)
    }

    fn is_concurrent(input: &Input, _: &ToolContext) -> bool {
        input.todos.is_none()
    }

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        let title = match &input.todos {
            Some(todos) => title(todos),
            None => "Read the todo list".to_owned(),
        };
        CallDescription {
            title,
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Self::Ready), Failure> {
        let Some(todos) = input.todos else {
            let request = AccessRequest::new("todoread", "*").always("*");
            return Ok((vec![request], None));
        };
        if let Some(n) = todos.iter().position(|todo| todo.content.trim().is_empty()) {
            return Err(Failure::ForModel(format!("todos[{n}].content is empty.")));
        }
        let request = AccessRequest::new("todowrite", "*").always("*");
        Ok((vec![request], Some(todos)))
    }

    async fn run(&self, todos: Self::Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let Some(todos) = todos else {
            let todos = context.session.todos.get();
            return Ok(output(&todos, listed(&todos)));
        };
        context.session.todos.set(todos.clone());
        context
            .client
            .event_sender
            .event(Event::Plan(todos.clone()))
            .await;
        Ok(output(&todos, summary(&todos)))
    }
}

/// Returns whether a call writes the list, which is the plan.
pub fn sets_plan(call: &Call) -> bool {
    call.tool == TodowriteTool::NAME && call.input.get("todos").is_some()
}

fn title(todos: &[Todo]) -> String {
    let open = todos
        .iter()
        .filter(|todo| !matches!(todo.status, TodoStatus::Completed | TodoStatus::Cancelled))
        .count();
    match (open, todos.len()) {
        (_, 0) => "Todo list: empty".to_owned(),
        (0, all) => format!("Todo list: all {all} done"),
        (open, all) => format!("Todo list: {open} of {all} open"),
    }
}

/// Returns the result for a todo list: `text` for the model, the whole list for the editor.
fn output(todos: &[Todo], text: String) -> ToolOutput {
    let metadata = Map::from_iter([(
        "todos".to_owned(),
        serde_json::to_value(todos).unwrap_or(Value::Null),
    )]);
    ToolOutput {
        title: title(todos),
        metadata,
        ..ToolOutput::text(text)
    }
}

/// Returns the entries of a todo list as text for the model.
fn listed(todos: &[Todo]) -> String {
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
    if lines.is_empty() {
        "The todo list is empty.".to_owned()
    } else {
        lines.join("\n")
    }
}

/// Summarises the progress of a list in a line; the model has written the list and needs no more.
fn summary(todos: &[Todo]) -> String {
    let states = [
        (TodoStatus::Completed, "completed"),
        (TodoStatus::InProgress, "in progress"),
        (TodoStatus::Pending, "pending"),
        (TodoStatus::Cancelled, "cancelled"),
    ];
    let counted = states.into_iter().filter_map(|(status, words)| {
        let n = todos.iter().filter(|todo| todo.status == status).count();
        (n > 0).then(|| format!("{n} {words}"))
    });
    let counted: Vec<String> = counted.collect();
    if counted.is_empty() {
        "The todo list is empty.".into()
    } else {
        format!("Todo list updated: {}.", counted.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::erase;
    use crate::test::{TestProject, call};
    use events::TurnMessage;

    #[tokio::test]
    async fn plan_is_stored_and_shown() {
        let fixture = TestProject::new();
        let (context, mut up) = fixture.listened();
        let todos = json!([
            {"content": "one", "status": "completed", "priority": "high", "id": "1", "notes": null},
            {"content": "two", "status": "in_progress"},
        ]);
        let (_, output) = call(&erase(TodowriteTool), json!({"todos": todos}), &context)
            .await
            .unwrap();
        assert_eq!(output.title, "Todo list: 1 of 2 open");
        assert_eq!(
            output.text,
            "Todo list updated: 1 completed, 1 in progress."
        );
        assert!(
            matches!(up.try_recv(), Ok(TurnMessage::Event(Event::Plan(plan))) if plan.len() == 2)
        );
        let (_, again) = call(&erase(TodowriteTool), json!({}), &context)
            .await
            .unwrap();
        assert_eq!(
            (again.text.as_str(), again.metadata),
            ("- [completed] one\n- [in_progress] two", output.metadata)
        );
        let wrong = json!({"todos": [{"content": "x", "status": "done"}]});
        let failure = call(&erase(TodowriteTool), wrong, &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("todos[0].status"), "{failure}");
        assert_eq!(context.session.todos.get().len(), 2);
    }
}
