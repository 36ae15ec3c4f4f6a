//! `todowrite`: the model writes its complete plan.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::aliases::Aliases;
use super::{CallDescription, Failure, Tool, ToolContext, ToolOutput};
use events::{Event, ToolKind};
use permission::AccessRequest;
use transcript::{Todo, TodoStatus};

#[derive(Default)]
pub struct TodowriteTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub todos: Vec<Todo>,
}

impl Tool for TodowriteTool {
    const NAME: &'static str = "todowrite";
    const DESCRIPTION: &'static str = include_str!("todowrite.md");
    const KIND: ToolKind = ToolKind::Think;
    const CONCURRENT: bool = false;
    const KEEPS_INPUT: bool = true;
    const ALIASES: Aliases = Aliases {
        also: &[
            "writetodos",
            "updatetodos",
            "updateplan",
            "settodos",
            "todo",
        ],
        says: &[],
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
    type Ready = Vec<Todo>;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: title(&input.todos),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Vec<Todo>), Failure> {
        if let Some(n) = input
            .todos
            .iter()
            .position(|todo| todo.content.trim().is_empty())
        {
            return Err(Failure::ForModel(format!("todos[{n}].content is empty.")));
        }
        Ok((
            vec![AccessRequest::new("todowrite", "*").always("*")],
            input.todos,
        ))
    }

    async fn run(&self, todos: Vec<Todo>, context: ToolContext) -> Result<ToolOutput, Failure> {
        context.session.todos.set(todos.clone());
        context
            .client
            .outlet
            .event(Event::Plan(todos.clone()))
            .await;
        Ok(output(&todos, standing(&todos)))
    }
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
pub(super) fn output(todos: &[Todo], text: String) -> ToolOutput {
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

/// Summarises the progress of a list in a line; the model has written the list and needs no more.
fn standing(todos: &[Todo]) -> String {
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

    use super::super::test::{TestProject, call};
    use super::super::{erase, todoread};
    use super::*;
    use events::TurnMessage;

    #[tokio::test]
    async fn plan_is_stored_and_shown() {
        let stage = TestProject::new();
        let (context, mut up) = stage.listened();
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
        let (_, again) = call(&erase(todoread::TodoreadTool), json!({}), &context)
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
