//! `multiedit`: several replacements in one file, all of them or none.

use schemars::JsonSchema;
use serde::Deserialize;

use super::document::target;
use super::edit::{Ready, describe, ready};
use super::{Context, Description, Failure, Output, Tool};
use crate::event::Kind;
use crate::permission::Need;
use crate::text;

/// See the module.
pub struct Multiedit;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Path of the file
    pub file_path: String,
    /// Applied in order, each to the result of the one before
    pub edits: Vec<Piece>,
}

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Piece {
    /// The text to replace
    pub old_string: String,
    /// The text to put there
    pub new_string: String,
    /// Replace every occurrence
    pub replace_all: Option<bool>,
}

impl Tool for Multiedit {
    const NAME: &'static str = "multiedit";
    const KIND: Kind = Kind::Edit;
    const CONCURRENT: bool = false;
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &Context) -> Description {
        describe("Edit", &input.file_path, context)
    }

    async fn prepare(&self, input: Input, context: &Context) -> Result<(Vec<Need>, Ready), Failure> {
        let document = target(context, &input.file_path).await?;
        if input.edits.is_empty() {
            return Err(Failure::tell("edits is empty; there is nothing to change."));
        }
        let pieces: Vec<_> = input
            .edits
            .iter()
            .map(|edit| (&*edit.old_string, &*edit.new_string, edit.replace_all.unwrap_or(false)))
            .collect();
        let (needs, mut ready) = ready(document, &pieces, context)?;
        ready.remarks.insert(0, format!("{} made.", text::count(pieces.len(), "replacement")));
        Ok((needs, ready))
    }

    async fn run(&self, ready: Ready, context: Context) -> Result<Output, Failure> {
        ready.write("Edits applied successfully.", &context).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test::{Stage, call};
    use super::super::{erase, read};
    use super::*;

    #[tokio::test]
    async fn all_or_none() {
        let stage = Stage::new();
        stage.write("f", "a\nb\nc\n");
        let context = stage.context();
        call(&erase(read::Read), json!({"filePath": "f"}), &context).await.unwrap();
        let edits = json!([{"oldString": "a", "newString": "A"}, {"oldString": "nope", "newString": "x"}]);
        let failure =
            call(&erase(Multiedit), json!({"filePath": "f", "edits": edits}), &context).await.unwrap_err().to_string();
        assert!(failure.starts_with("Edit 2 of 2: Could not find oldString"), "{failure}");
        assert_eq!(stage.read("f"), b"a\nb\nc\n");
        let edits = json!([{"oldString": "a", "newString": "A"}, {"oldString": "A\nb", "newString": "A\nB"}]);
        let (_, output) = call(&erase(Multiedit), json!({"filePath": "f", "edits": edits}), &context).await.unwrap();
        assert_eq!(stage.read("f"), b"A\nB\nc\n");
        assert_eq!(output.text, "Edits applied successfully.\n2 replacements made.");
        let edits = json!([{"oldString": "", "newString": "one\n"}, {"oldString": "one", "newString": "two"}]);
        call(&erase(Multiedit), json!({"filePath": "n", "edits": edits}), &context).await.unwrap();
        assert_eq!(stage.read("n"), b"two\n");
    }
}
