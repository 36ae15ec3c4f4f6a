//! `write`: creates a file or replaces its content, unless the file has changed since the model
//! read it.
//!
//! Limits: 64 MiB.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::{Aliases, FieldValue, PATH_FIELDS};
use crate::diagnostics::Check;
use crate::edits::document::{Document, facts, target_to_write, written_facts};
use crate::edits::edit::describe;
use crate::{Availability, CallDescription, Failure, Tool, ToolContext, ToolOutput};
use events::ToolKind;
use permission::AccessRequest;
use transcript::Change;

#[derive(Default)]
pub struct WriteTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Path of the file
    pub file_path: String,
    pub content: String,
}

/// A checked write; exactly the shown change is made.
#[derive(Debug)]
pub struct Ready {
    document: Document,
    change: Change,
    /// Facts on the change.
    facts: Map<String, Value>,
}

impl Tool for WriteTool {
    const NAME: &'static str = "write";
    const DESCRIPTION: &'static str = include_str!("write.md");
    const KIND: ToolKind = ToolKind::Edit;
    const CONCURRENT: bool = false;
    const PERMISSION: &'static str = "edit";
    const AVAILABILITY: Availability = Availability::OtherModels;
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "create",
            "writefile",
            "createfile",
            "writetofile",
            "filewrite",
            "savefile",
            "newfile",
            "strreplaceeditor",
            "strreplacebasededittool",
        ],
        field_values: &[FieldValue::ignored("command", "create")],
        fields: &[
            ("filePath", PATH_FIELDS),
            (
                "content",
                &[
                    "contents",
                    "text",
                    "filetext",
                    "data",
                    "filecontent",
                    "body",
                ],
            ),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        describe("Write", &input.file_path, context)
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let mut document = target_to_write(context, &input.file_path).await?;
        document.check_whole(context)?;
        let change = document.change(document.replacement(&input.content).into())?;
        let facts = facts(&change);
        let requests = document.requests_with(&change, facts.clone());
        let ready = Ready {
            document,
            change,
            facts,
        };
        Ok((requests, ready))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let Ready {
            document,
            mut change,
            facts,
        } = ready;
        let check = Check::before(vec![document.planned(Some(&change.new))], &context).await;
        document.check_unchanged(&context).await?;
        let written = document.write(&change.new, &context).await?;
        let found = check
            .after(
                &[(document.path.real.path.clone(), written.text.clone())],
                &context,
            )
            .await;
        let done = std::iter::once("File written.".to_owned());
        let text = done.chain(written.notes).collect::<Vec<_>>().join("\n");
        let mut metadata = written_facts(&mut change, written.text, facts);
        metadata.insert("exists".into(), Value::Bool(document.exists));
        let mut output = ToolOutput {
            metadata,
            locations: vec![document.location(&change.new)],
            changes: vec![change],
            ..ToolOutput::text(text)
        };
        found.join(&mut output);
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::erase;
    use crate::test::{TestProject, call};

    #[tokio::test]
    async fn files_are_created_and_replaced() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let tool = erase(WriteTool);
        let (requests, output) = call(
            &tool,
            json!({"filePath": "a/b/c.txt", "content": "x\n"}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(fixture.read("a/b/c.txt"), b"x\n");
        assert_eq!(output.text, "File written.");
        assert_eq!(
            (
                requests[0].patterns[0].as_str(),
                output.changes[0].old.as_deref()
            ),
            ("a/b/c.txt", None)
        );
        fixture.write("old", "\u{feff}1\r\n2\r\n");
        let input = json!({"filePath": "old", "content": "3\n4\n"});
        let failure = call(&tool, input.clone(), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("old exists, and was not read in this session")
                && failure.contains("\n1: 1\n2: 2\n"),
            "{failure}"
        );
        let (_, output) = call(&tool, input, &context).await.unwrap();
        assert_eq!(fixture.read("old"), "\u{feff}3\r\n4\r\n".as_bytes());
        assert_eq!(output.changes[0].old.as_deref(), Some("1\r\n2\r\n"));
        let failure = call(&tool, json!({"filePath": "a", "content": ""}), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("is a directory"), "{failure}");
        let failure = call(&tool, json!({"filePath": "nope/", "content": ""}), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("ends with a slash"), "{failure}");
    }
}
