//! `multiedit`: several replacements in one file, all of them or none.

use schemars::JsonSchema;
use serde::Deserialize;

use super::aliases::{ALL, Aliases, NEW, OLD, PATH};
use super::document::target;
use super::edit::{EditPiece, Ready, describe, ready};
use super::{CallDescription, Failure, Offer, Tool, ToolContext, ToolOutput};
use events::ToolKind;
use permission::Need;

#[derive(Default)]
pub struct MultieditTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    pub file_path: String,
    /// Applied in order, each to the result of the one before
    pub edits: Vec<EditEntry>,
}

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditEntry {
    /// The text to replace
    pub old_string: String,
    /// The text to put there
    pub new_string: String,
    /// Replace every occurrence
    pub replace_all: Option<bool>,
}

impl Tool for MultieditTool {
    const NAME: &'static str = "multiedit";
    const DESCRIPTION: &'static str = prompts::tool::MULTIEDIT;
    const KIND: ToolKind = ToolKind::Edit;
    const CONCURRENT: bool = false;
    const PERMISSION: &'static str = "edit";
    const OFFER: Offer = Offer::Unlisted;
    const ALIASES: Aliases = Aliases {
        also: &["multieditfile", "editfile", "multistrreplace"],
        says: &[],
        fields: &[
            ("filePath", PATH),
            ("edits", &["changes", "replacements", "operations"]),
            ("oldString", OLD),
            ("newString", NEW),
            ("replaceAll", ALL),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        describe("Edit", &input.file_path, context)
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<Need>, Ready), Failure> {
        let document = target(context, &input.file_path).await?;
        if input.edits.is_empty() {
            return Err(Failure::tell("edits is empty; there is nothing to change."));
        }
        let edits = input.edits.into_iter();
        let piece = |edit: EditEntry| EditPiece {
            from: edit.old_string,
            to: edit.new_string,
            all: edit.replace_all.unwrap_or(false),
        };
        ready(document, edits.map(piece).collect(), context).await
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.write("Edits applied successfully.", &context).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test::{TestProject, call};
    use super::super::{erase, read};
    use super::*;

    #[tokio::test]
    async fn edits_apply_all_or_none() {
        let stage = TestProject::new();
        stage.write("f", "a\nb\nc\n");
        let context = stage.context();
        call(&erase(read::ReadTool), json!({"filePath": "f"}), &context)
            .await
            .unwrap();
        let edits = json!([{"oldString": "nope", "newString": "y"}, {"oldString": "a", "newString": "A"}, {"oldString": "no", "newString": "x"}]);
        let failure = call(
            &erase(MultieditTool),
            json!({"filePath": "f", "edits": edits}),
            &context,
        )
        .await
        .unwrap_err()
        .to_string();
        assert!(
            failure.starts_with("Edit 1 of 3: Could not find oldString"),
            "{failure}"
        );
        assert!(
            failure.contains("\n\nEdit 3 of 3: Could not find oldString"),
            "{failure}"
        );
        assert!(
            failure.ends_with("\n\nNothing was changed, although 1 edit fit: all edits of a call are made, or none."),
            "{failure}"
        );
        assert_eq!(stage.read("f"), b"a\nb\nc\n");
        let edits = json!([{"oldString": "a", "newString": "A"}, {"oldString": "A\nb", "newString": "A\nB"}]);
        let (_, output) = call(
            &erase(MultieditTool),
            json!({"filePath": "f", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(stage.read("f"), b"A\nB\nc\n");
        assert_eq!(
            output.text,
            "Edits applied successfully.\n2 edits made, 2 replacements in all."
        );
        let edits = json!([{"oldString": "A", "newString": "x"}, {"oldString": "c", "newString": "x"}, {"oldString": "x", "newString": "y", "replaceAll": true}]);
        let (_, output) = call(
            &erase(MultieditTool),
            json!({"filePath": "f", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(
            output.text,
            "Edits applied successfully.\n3 edits made, 4 replacements in all.\nEdit 3 of 3: 2 places replaced, at lines 1, 3."
        );
        let edits = json!([{"oldString": "", "newString": "one\n"}, {"oldString": "one", "newString": "two"}]);
        call(
            &erase(MultieditTool),
            json!({"filePath": "n", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(stage.read("n"), b"two\n");
    }
}
