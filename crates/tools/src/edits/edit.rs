//! `edit`: replaces an exact, unique match in a file; with `replaceAll` every match, and it reports
//! matches inside longer words. An approximate match is refused in a file that has changed since
//! the model read it.
//!
//! Limits: 64 MiB.
//!
//! Models that send several replacements from habit get all of them or none.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::{
    Aliases, FieldValue, NEW_TEXT_FIELDS, OLD_TEXT_FIELDS, PATH_FIELDS, REPLACE_ALL_FIELDS,
};
use crate::diagnostics::Check;
use crate::edits::document::{Document, facts, target, target_to_write, written_facts};
use crate::{
    Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput,
    input_schema,
};
use base::text;
use events::{Location, ToolKind};
use permission::AccessRequest;
use textedit::near_match::numbered;
use textedit::replace::{Error, Replacement, list, remark, replace};
use transcript::Change;

/// The names of the field `edits` in other agents.
const EDITS_FIELDS: &[&str] = &["changes", "replacements", "operations"];

/// The name of an edit with several replacements in other agents. Hooks and plugins know it by this
/// name.
pub const MULTIEDIT: &str = "multiedit";

/// Returns whether accepted arguments of `edit` are in the form with several replacements.
pub fn has_several_edits(input: &Value) -> bool {
    input.get("edits").is_some()
}

#[derive(Default)]
pub struct EditTool;

/// The arguments in one of two forms, of which only the first is offered.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Input {
    One(OneEdit),
    Several(SeveralEdits),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OneEdit {
    /// Path of the file
    pub file_path: String,
    pub old_string: String,
    pub new_string: String,
    /// Replace every occurrence
    pub replace_all: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeveralEdits {
    /// Path of the file
    pub file_path: String,
    /// Applied in order, each to the result of the previous one
    pub edits: Vec<EditEntry>,
}

/// One replacement of several.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EditEntry {
    pub old_string: String,
    pub new_string: String,
    pub replace_all: Option<bool>,
}

impl JsonSchema for Input {
    fn schema_name() -> Cow<'static, str> {
        OneEdit::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        OneEdit::json_schema(generator)
    }
}

impl Input {
    fn file_path(&self) -> &str {
        match self {
            Self::One(edit) => &edit.file_path,
            Self::Several(edits) => &edits.file_path,
        }
    }
}

/// A checked edit; exactly the shown change is made.
#[derive(Debug)]
pub struct Ready {
    pub(crate) document: Document,
    pub(crate) change: Change,
    /// Facts on the change.
    facts: Map<String, Value>,
    /// The result for the model: the number of replacements and their lines.
    pub(crate) done: String,
    /// Notes for the model on the changes and on inexact matches.
    pub(crate) remarks: Vec<String>,
}

impl Tool for EditTool {
    const NAME: &'static str = "edit";
    const DESCRIPTION: &'static str = include_str!("edit.md");
    const KIND: ToolKind = ToolKind::Edit;
    const CONCURRENT: bool = false;
    const AVAILABILITY: Availability = Availability::OtherModels;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::acting(
        "Changing files with edit, multiedit, write and apply_patch; patterns are paths.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "strreplace",
            "strreplaceeditor",
            "strreplacebasededittool",
            "replace",
            "replaceinfile",
            "searchreplace",
            "editfile",
            "fileedit",
            "stringreplace",
            MULTIEDIT,
            "multieditfile",
            "multistrreplace",
        ],
        field_values: &[FieldValue::ignored("command", "strreplace")],
        fields: &[
            ("filePath", PATH_FIELDS),
            ("oldString", OLD_TEXT_FIELDS),
            ("newString", NEW_TEXT_FIELDS),
            ("replaceAll", REPLACE_ALL_FIELDS),
            ("edits", EDITS_FIELDS),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        describe("Edit", input.file_path(), context)
    }

    fn other_form(fields: &Map<String, Value>) -> Option<Value> {
        let is_several = |name: &String| name == "edits" || EDITS_FIELDS.contains(&name.as_str());
        fields
            .keys()
            .any(is_several)
            .then(input_schema::<SeveralEdits>)
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let path = input.file_path().to_owned();
        let edits = match input {
            Input::One(edit) => vec![EditEntry {
                old_string: edit.old_string,
                new_string: edit.new_string,
                replace_all: edit.replace_all,
            }],
            Input::Several(SeveralEdits { edits, .. }) => edits,
        };
        if edits.is_empty() {
            return Err(Failure::for_model(
                "edits is empty; there is nothing to change.",
            ));
        }
        let piece = |edit: EditEntry| EditPiece {
            from: edit.old_string,
            to: edit.new_string,
            all: edit.replace_all.unwrap_or(false),
        };
        let pieces: Vec<EditPiece> = edits.into_iter().map(piece).collect();
        let creates = pieces.first().is_some_and(|piece| piece.from.is_empty());
        let document = if creates {
            target_to_write(context, &path).await?
        } else {
            target(context, &path).await?
        };
        prepare_edits(document, pieces, context).await
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.write(&context).await
    }
}

/// Returns the title and the location of a call that works on one file, such as "Edit src/lib.rs".
pub(crate) fn describe(verb: &str, path: &str, context: &ToolContext) -> CallDescription {
    let path = context.absolute(path);
    CallDescription {
        title: text::title(&format!("{verb} {}", context.relative(&path))),
        locations: vec![Location {
            path: base::worktree::normal(&path),
            line: None,
        }],
    }
}

/// One replacement of a call.
#[derive(Debug)]
struct EditPiece {
    /// The text to replace; empty to create a file.
    from: String,
    /// The new text.
    to: String,
    /// True if all occurrences are replaced, instead of the only one.
    all: bool,
}

/// Computes all replacements in a document, one after the other, or none.
async fn prepare_edits(
    mut document: Document,
    pieces: Vec<EditPiece>,
    context: &ToolContext,
) -> Result<(Vec<AccessRequest>, Ready), Failure> {
    if !document.exists && pieces.first().is_some_and(|piece| !piece.from.is_empty()) {
        return Err(document.missing(context).await);
    }
    // The search can take long for large texts; a call is prepared on a thread that may block.
    let EditResult { new, done, remarks } = apply_all(&mut document, &pieces, context)?;
    let change = document.change(new.into())?;
    let facts = facts(&change);
    let requests = document.requests_with(&change, facts.clone());
    let ready = Ready {
        document,
        change,
        facts,
        done,
        remarks,
    };
    Ok((requests, ready))
}

/// The result of all replacements of a call.
struct EditResult {
    /// The text after them.
    new: String,
    /// See [`Ready::done`].
    done: String,
    /// See [`Ready::remarks`].
    remarks: Vec<String>,
}

/// Computes all replacements in the text of a document.
fn apply_all(
    document: &mut Document,
    pieces: &[EditPiece],
    context: &ToolContext,
) -> Result<EditResult, Failure> {
    let shown = document.path.shown.clone();
    let single = pieces.len() == 1;
    let which = |n: usize| {
        if single {
            String::new()
        } else {
            format!("Edit {} of {}: ", n + 1, pieces.len())
        }
    };
    // The text after the replacements so far.
    let mut new: Option<String> = None;
    let mut remarks = Vec::new();
    let mut failed = Vec::new();
    if document.exists && pieces.first().is_some_and(|piece| !piece.from.is_empty()) {
        remarks.extend(document.check_quoted(context)?);
    }
    let mut made = 0;
    let mut done = "File created.".to_owned();
    for (n, wanted) in pieces.iter().enumerate() {
        if n == 0 && !document.exists && wanted.from.is_empty() {
            new = Some(wanted.to.clone());
            made += 1;
            continue;
        }
        let now = new.as_deref().unwrap_or(&document.text);
        match apply_one(document, now, wanted, context) {
            Ok(replaced) => {
                made += replaced.lines.len();
                let at = match (&replaced.lines[..], wanted.all) {
                    (all, true) => format!(
                        "{} replaced, at lines {}.",
                        text::count(all.len(), "place"),
                        list(all)
                    ),
                    (lines, false) => format!("Edit applied at line {}.", list(lines)),
                };
                if single {
                    done = at;
                } else if wanted.all {
                    remarks.push(format!("{}{at}", which(n)));
                }
                if wanted.all && replaced.fuzzy.is_none() {
                    let inside = inside_words(now, &wanted.from);
                    remarks.extend(inside.map(|inside| format!("{}{inside}", which(n))));
                }
                remarks.extend(remark(&replaced).map(|remark| format!("{}{remark}", which(n))));
                if replaced.fuzzy.is_some() {
                    for (first, last) in replaced.now.iter().take(3) {
                        remarks.push(format!(
                            "The lines as they are now:\n{}",
                            numbered(&replaced.text, *first, *last)
                        ));
                    }
                }
                new = Some(replaced.text);
            }
            Err(Failure::ForModel(why)) => failed.push(format!("{}{why}", which(n))),
            Err(failure) => return Err(failure),
        }
    }
    if !failed.is_empty() {
        if !single {
            let fit = pieces.len() - failed.len();
            let others = if fit == 0 {
                String::new()
            } else {
                format!(", although {} fit", text::count(fit, "edit"))
            };
            failed.push(format!(
                "Nothing was changed{others}: all edits of a call are made, or none."
            ));
        }
        return Err(Failure::ForModel(failed.join("\n\n")));
    }
    let new = new.unwrap_or_default();
    if document.exists && document.text == *new {
        return Err(Failure::ForModel(format!(
            "The edits leave {shown} as it is; there is nothing to write."
        )));
    }
    if !single {
        done = format!(
            "{} applied, {} in all.",
            text::count(pieces.len(), "edit"),
            text::count(made, "replacement")
        );
    }
    Ok(EditResult { new, done, remarks })
}

/// Describes, for the model, the occurrences of `from` that are parts of longer words, such as
/// `cat` in `category`; `None` if there are none.
fn inside_words(text: &str, from: &str) -> Option<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let opens = from.starts_with(is_word);
    let closes = from.ends_with(is_word);
    let mut lines = Vec::new();
    let mut example = None;
    let mut line = 1;
    let mut counted = 0;
    for (at, _) in text.match_indices(from) {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..at]).count();
        counted = at;
        let end = at + from.len();
        let before = &text[..at];
        let after = &text[end..];
        if !(opens && before.ends_with(is_word) || closes && after.starts_with(is_word)) {
            continue;
        }
        lines.push(line);
        // Once: the word may be as long as the file.
        example.get_or_insert_with(|| {
            let start = before.trim_end_matches(is_word).len();
            let stop = end + after.len() - after.trim_start_matches(is_word).len();
            &text[start..stop]
        });
    }
    let example = text::title(example?);
    Some(format!(
        "{} of these {} inside longer words, such as `{example}`, at lines {}. Check that you meant to change them.",
        lines.len(),
        if lines.len() == 1 { "was" } else { "were" },
        list(&lines)
    ))
}

/// Computes one replacement in `now`, the result of the previous ones.
fn apply_one(
    document: &Document,
    now: &str,
    EditPiece { from, to, all }: &EditPiece,
    context: &ToolContext,
) -> Result<Replacement, Failure> {
    let shown = &document.path.shown;
    if from.is_empty() {
        return Err(Failure::ForModel(format!(
            "oldString is empty, but {shown} exists. Name the text to replace, or use the write tool to replace the whole file."
        )));
    }
    let replaced = replace(now, from, to, *all).map_err(|e| {
        let more = match e {
            Error::Missing => format!("\n{}", document.nearest(now, from, context)),
            Error::TooLarge(first, last) => format!("\n{}", numbered(now, first, last)),
            _ => String::new(),
        };
        Failure::ForModel(format!("{e} ({shown}){more}"))
    })?;
    if let Some(fuzzy) = &replaced.fuzzy {
        document.check_piece(now, context, fuzzy)?;
    }
    Ok(replaced)
}

impl Ready {
    /// Writes the shown change, unless the file has changed since.
    pub(crate) async fn write(mut self, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let planned = self.document.planned(Some(&self.change.new));
        let check = Check::before(vec![planned], context).await;
        self.document.check_unchanged(context).await?;
        let written = self.document.write(&self.change.new, context).await?;
        let found = check
            .after(
                &[(self.document.path.real.path.clone(), written.text.clone())],
                context,
            )
            .await;
        self.remarks.extend(written.notes);
        let metadata = written_facts(&mut self.change, written.text, self.facts);
        let text = std::iter::once(self.done)
            .chain(self.remarks)
            .collect::<Vec<_>>()
            .join("\n");
        let mut output = ToolOutput {
            metadata,
            locations: vec![self.document.location(&self.change.new)],
            changes: vec![self.change],
            ..ToolOutput::text(text)
        };
        found.join(&mut output);
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::erase;
    use crate::files::read;
    use crate::test::{TestProject, call};

    async fn edit(
        context: &ToolContext,
        input: Value,
    ) -> Result<(Vec<AccessRequest>, ToolOutput), Failure> {
        call(&erase(EditTool), input, context).await
    }

    async fn look(context: &ToolContext, path: &str) {
        call(&erase(read::ReadTool), json!({"filePath": path}), context)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn exact_quote_may_be_changed_unread() {
        let fixture = TestProject::new();
        fixture.write("f", "a\nb\n");
        let context = fixture.context();
        let input = json!({"filePath": "f", "oldString": "b", "newString": "c"});
        let (requests, output) = edit(&context, input.clone()).await.unwrap();
        assert_eq!(fixture.read("f"), b"a\nc\n");
        assert_eq!(
            (
                requests[0].permission.as_str(),
                &requests[0].patterns[..],
                &requests[0].always[..]
            ),
            ("edit", &["f".to_owned()][..], &["f".to_owned()][..])
        );
        assert_eq!(*requests[0].changes[0], output.changes[0]);
        assert_eq!(output.text, "Edit applied at line 2.");
        assert_eq!(output.locations[0].line, Some(2));
        assert_eq!(output.metadata["additions"], 1);
        // The edit of a changed file is made, and the change is reported once.
        look(&context, "f").await;
        fixture.write("f", "a\nb\nuser\n");
        let (_, output) = edit(&context, input.clone()).await.unwrap();
        assert_eq!(fixture.read("f"), b"a\nc\nuser\n");
        assert_eq!(
            output.text,
            "Edit applied at line 2.\nf had changed since you last saw it (by the user, the editor or a command):\n- c\n+ 2: b\n+ 3: user"
        );
        let (_, output) = edit(
            &context,
            json!({"filePath": "f", "oldString": "c", "newString": "d"}),
        )
        .await
        .unwrap();
        assert_eq!(output.text, "Edit applied at line 2.");
        // With several occurrences the quote is ambiguous, unless all are replaced.
        fixture.write("g", "x\nx\n");
        let twice = json!({"filePath": "g", "oldString": "x", "newString": "y"});
        assert!(
            edit(&context, twice)
                .await
                .unwrap_err()
                .to_string()
                .contains("at lines 1, 2")
        );
        let all = json!({"filePath": "g", "oldString": "x", "newString": "y", "replaceAll": true});
        let (_, output) = edit(&context, all).await.unwrap();
        assert_eq!(output.text, "2 places replaced, at lines 1, 2.");
    }

    #[test]
    fn replacements_inside_longer_words_are_reported() {
        let table = [
            ("cat\na cat\n", "cat", None),
            (
                "cat\ncategory\nconcat(cat)\n",
                "cat",
                Some((
                    "2 of these were inside longer words, such as `category`",
                    "2, 3",
                )),
            ),
            (
                "my_cat",
                "cat",
                Some(("1 of these was inside longer words, such as `my_cat`", "1")),
            ),
            ("a.b.c", ".b", None),
            ("a.bc", ".b", Some(("such as `a.bc`", "1"))),
            ("(x)(x)", "(x)", None),
        ];
        for (text, from, expected) in table {
            let found = inside_words(text, from);
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            if let (Some(found), Some((what, lines))) = (found, expected) {
                assert!(
                    found.contains(what) && found.contains(&format!("at lines {lines}.")),
                    "{found}"
                );
            }
        }
    }

    #[tokio::test]
    async fn inexact_quote_must_have_been_shown() {
        let fixture = TestProject::new();
        fixture.write("f", "fn a() {\n\tone();\n\ttwo();\n}\n");
        let context = fixture.context();
        let input = json!({"filePath": "f", "oldString": "    one();\n    two();", "newString": "    one();\n    2();"});
        let failure = edit(&context, input.clone()).await.unwrap_err().to_string();
        assert!(
            failure.contains("was not shown in this session")
                && failure.contains("2: \tone();\n3: \ttwo();"),
            "{failure}"
        );
        assert!(failure.contains("tabs where you wrote spaces"), "{failure}");
        // The first attempt has shown it.
        let (_, output) = edit(&context, input).await.unwrap();
        assert_eq!(fixture.read("f"), b"fn a() {\n\tone();\n\t2();\n}\n");
        assert!(
            output
                .text
                .ends_with("The lines as they are now:\n2: \tone();\n3: \t2();"),
            "{}",
            output.text
        );
        // The output of a command counts like that of `read`.
        fixture.write("g", "\tx();\n");
        context.session.seen.record_shown("$ cat g\n\tx();\n");
        edit(
            &context,
            json!({"filePath": "g", "oldString": "    x();", "newString": "    y();"}),
        )
        .await
        .unwrap();
        assert_eq!(fixture.read("g"), b"\ty();\n");
    }

    #[tokio::test]
    async fn file_that_needs_permission_is_read_first() {
        let fixture = TestProject::new();
        fixture.write(".env", "KEY=1\n");
        let context = fixture.context();
        for (from, to) in [("KEY=1", "KEY=2"), ("KEY = 1", "KEY=2"), ("other", "x")] {
            let failure = edit(
                &context,
                json!({"filePath": ".env", "oldString": from, "newString": to}),
            )
            .await;
            let failure = failure.unwrap_err().to_string();
            assert_eq!(
                failure,
                ".env has not been read in this session. Read it with the read tool first, then write the edit against what it contains."
            );
        }
        look(&context, ".env").await;
        fixture.write(".env", "KEY=1\nMORE=secret\n");
        let failure = edit(
            &context,
            json!({"filePath": ".env", "oldString": "KEY=1", "newString": "x"}),
        )
        .await;
        let failure = failure.unwrap_err().to_string();
        assert!(
            failure.contains("has changed since it was read") && !failure.contains("secret"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn near_miss_is_shown_with_its_differences() {
        let fixture = TestProject::new();
        fixture.write("f", "one\n\nfn two() {\n    let x = 11;\n}\n");
        let context = fixture.context();
        let miss = json!({"filePath": "f", "oldString": "fn two() {\n    let x = 12;\n}", "newString": ""});
        let failure = edit(&context, miss).await.unwrap_err().to_string();
        assert_eq!(
            failure,
            "Could not find oldString in the file. (f)\nThe closest place is at lines 3-5:\n2: \n3: fn two() {\n4:     let x = 11;\n5: }\nWhat differs:\n- line 4: the file has `    let x = 11;`, you wrote `    let x = 12;`"
        );
        let miss = json!({"filePath": "f", "oldString": "nothing like it", "newString": ""});
        let failure = edit(&context, miss).await.unwrap_err().to_string();
        assert!(
            failure.contains("This is all of the file:\n1: one\n"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn only_the_shown_change_is_written() {
        let fixture = TestProject::new();
        fixture.write("f", "a\n");
        std::fs::write(fixture.outside().join("f"), "a\n").unwrap();
        let context = fixture.context();
        look(&context, "f").await;
        let tool = erase(EditTool);
        let input = json!({"filePath": "f", "oldString": "a", "newString": "b"});
        for swap in ["content", "link", "gone"] {
            fixture.write("f", "a\n");
            let prepared = tool.prepare(input.clone(), &context).await.unwrap();
            std::fs::remove_file(fixture.cwd().join("f")).unwrap();
            match swap {
                "content" => fixture.write("f", "user\n"),
                "link" => {
                    std::os::unix::fs::symlink(fixture.outside().join("f"), fixture.cwd().join("f"))
                        .unwrap()
                }
                _ => {}
            }
            let failure = (prepared.run)(context.clone())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains("changed while you were being asked")
                    || failure.contains("moved or replaced"),
                "{swap}: {failure}"
            );
            std::fs::remove_file(fixture.cwd().join("f")).ok();
        }
        assert_eq!(std::fs::read(fixture.outside().join("f")).unwrap(), b"a\n");
    }

    #[tokio::test]
    async fn edit_preserves_encoding_and_line_ends() {
        let fixtures: &[(&[u8], &[u8])] = &[
            (b"a\nold\nb\n", b"a\nnew\nb\n"),
            (b"a\r\nold\r\nb\r\n", b"a\r\nnew\r\nb\r\n"),
            (b"a\r\nold\nb\r\n", b"a\r\nnew\nb\r\n"),
            (b"a\nold\r\nb", b"a\nnew\r\nb"),
            (b"a\rold\rb", b"a\rnew\rb"),
            (b"old", b"new"),
            (b"\xef\xbb\xbfold\r\n", b"\xef\xbb\xbfnew\r\n"),
            (b"\xef\xbb\xbfa\nold", b"\xef\xbb\xbfa\nnew"),
            ("ä old 🎉\n".as_bytes(), "ä new 🎉\n".as_bytes()),
            (b"\xff\xfeo\0l\0d\0", b"\xff\xfen\0e\0w\0"),
            (b"\xfe\xff\0o\0l\0d", b"\xfe\xff\0n\0e\0w"),
            (b"caf\xe9 old\n", b"caf\xe9 new\n"),
            (b"\x82\xb1\x82\xf1 old\n", b"\x82\xb1\x82\xf1 new\n"),
            // A byte that is not UTF-8, and a NUL, in a text.
            (b"old \xff\n", b"new \xff\n"),
            (b"old\0bin", b"new\0bin"),
        ];
        for (before, after) in fixtures {
            let fixture = TestProject::new();
            fixture.write_bytes("f", before);
            let context = fixture.context();
            call(&erase(read::ReadTool), json!({"filePath": "f"}), &context)
                .await
                .ok();
            let result = edit(
                &context,
                json!({"filePath": "f", "oldString": "old", "newString": "new"}),
            )
            .await;
            assert!(result.is_ok(), "{before:?} {result:?}");
            assert_eq!(fixture.read("f"), *after, "{before:?}");
        }
    }

    #[tokio::test]
    async fn edit_creates_files_and_preserves_modes_and_links() {
        use std::os::unix::fs::PermissionsExt;
        let fixture = TestProject::new();
        let context = fixture.context();
        let (requests, output) = edit(
            &context,
            json!({"filePath": "new/dir/f", "oldString": "", "newString": "x\n"}),
        )
        .await
        .unwrap();
        assert_eq!(fixture.read("new/dir/f"), b"x\n");
        assert_eq!(requests[0].changes[0].old, None);
        assert_eq!(
            output.changes[0].path,
            fixture.cwd().join("new/dir/f").display().to_string()
        );
        let failure = edit(
            &context,
            json!({"filePath": "new/dir/f", "oldString": "", "newString": "y"}),
        )
        .await
        .unwrap_err()
        .to_string();
        assert!(failure.contains("write tool"), "{failure}");
        let failure = edit(
            &context,
            json!({"filePath": "none", "oldString": "a", "newString": "y"}),
        )
        .await
        .unwrap_err()
        .to_string();
        assert_eq!(failure, "File none not found.");
        let failure = edit(
            &context,
            json!({"filePath": "new", "oldString": "a", "newString": "y"}),
        )
        .await
        .unwrap_err()
        .to_string();
        assert!(failure.contains("is a directory"), "{failure}");

        fixture.write("run.sh", "#!/bin/sh\n");
        std::fs::set_permissions(
            fixture.cwd().join("run.sh"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        std::os::unix::fs::symlink("run.sh", fixture.cwd().join("link")).unwrap();
        look(&context, "link").await;
        let (requests, _) = edit(
            &context,
            json!({"filePath": "link", "oldString": "/bin/sh", "newString": "/bin/bash"}),
        )
        .await
        .unwrap();
        assert_eq!(requests[0].patterns, ["run.sh"]);
        assert_eq!(fixture.read("run.sh"), b"#!/bin/bash\n");
        assert!(
            std::fs::symlink_metadata(fixture.cwd().join("link"))
                .unwrap()
                .is_symlink()
        );
        assert_eq!(
            std::fs::metadata(fixture.cwd().join("run.sh"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o755
        );

        std::fs::write(fixture.outside().join("o"), "o\n").unwrap();
        let outside = fixture.outside().join("o").display().to_string();
        look(&context, &outside).await;
        let (requests, _) = edit(
            &context,
            json!({"filePath": outside, "oldString": "o", "newString": "p"}),
        )
        .await
        .unwrap();
        let asked: Vec<&str> = requests
            .iter()
            .map(|request| request.permission.as_str())
            .collect();
        assert_eq!(asked, ["external_directory", "edit"]);
    }

    #[tokio::test]
    async fn edits_apply_all_or_none() {
        let fixture = TestProject::new();
        fixture.write("f", "a\nb\nc\n");
        let context = fixture.context();
        call(&erase(read::ReadTool), json!({"filePath": "f"}), &context)
            .await
            .unwrap();
        let edits = json!([{"oldString": "nope", "newString": "y"}, {"oldString": "a", "newString": "A"}, {"oldString": "no", "newString": "x"}]);
        let failure = call(
            &erase(EditTool),
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
        assert_eq!(fixture.read("f"), b"a\nb\nc\n");
        let edits = json!([{"oldString": "a", "newString": "A"}, {"oldString": "A\nb", "newString": "A\nB"}]);
        let (_, output) = call(
            &erase(EditTool),
            json!({"filePath": "f", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(fixture.read("f"), b"A\nB\nc\n");
        assert_eq!(output.text, "2 edits applied, 2 replacements in all.");
        let edits = json!([{"oldString": "A", "newString": "x"}, {"oldString": "c", "newString": "x"}, {"oldString": "x", "newString": "y", "replaceAll": true}]);
        let (_, output) = call(
            &erase(EditTool),
            json!({"filePath": "f", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(
            output.text,
            "3 edits applied, 4 replacements in all.\nEdit 3 of 3: 2 places replaced, at lines 1, 3."
        );
        let edits = json!([{"oldString": "", "newString": "one\n"}, {"oldString": "one", "newString": "two"}]);
        call(
            &erase(EditTool),
            json!({"filePath": "n", "edits": edits}),
            &context,
        )
        .await
        .unwrap();
        assert_eq!(fixture.read("n"), b"two\n");
    }
}
