//! `apply_patch`: changes several files by one patch, all of them or none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::aliases::Aliases;
use super::document::{Document, facts, target};
use super::language::Check;
use super::nearest::numbered;
use super::patch::{Error, Hunk, Section, apply, parse};
use super::{CallDescription, Failure, Offer, Tool, ToolContext, ToolOutput};
use crate::event::{Location, ToolKind};
use crate::message::Change;
use crate::permission::Need;
use crate::text;

#[derive(Default)]
pub struct ApplyPatchTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The whole patch, from *** Begin Patch to *** End Patch
    pub patch_text: String,
}

/// Every file of the patch, verified.
#[derive(Debug)]
pub struct Ready {
    steps: Vec<PatchStep>,
}

#[derive(Debug)]
struct PatchStep {
    document: Document,
    /// Its new text; none removes it.
    new: Option<String>,
    /// For a renamed file: the name it had.
    from: Option<String>,
    /// It has another name now.
    moved: bool,
    change: Change,
    /// For the model: how hunks were found.
    remarks: Vec<String>,
}

impl PatchStep {
    fn new(document: Document, new: Option<String>, change: Change) -> Self {
        Self { document, new, from: None, moved: false, change, remarks: Vec::new() }
    }
}

impl Tool for ApplyPatchTool {
    const NAME: &'static str = "apply_patch";
    const DESCRIPTION: &'static str = include_str!("../../prompts/tool/apply_patch.md");
    const KIND: ToolKind = ToolKind::Edit;
    const CONCURRENT: bool = false;
    const PERMISSION: &'static str = "edit";
    const OFFER: Offer = Offer::PatchModels;
    const ALIASES: Aliases = Aliases {
        also: &["patch", "applydiff"],
        says: &[],
        fields: &[("patchText", &["patch", "input", "diff", "content", "text"])],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let sections = parse(&input.patch_text).unwrap_or_default();
        let paths = sections.iter().map(|section| match section {
            Section::Add { path, .. } | Section::Delete { path } => path,
            Section::Update { path, to, .. } => to.as_ref().unwrap_or(path),
        });
        let paths: Vec<PathBuf> = paths.map(|path| crate::worktree::normal(&context.absolute(path))).collect();
        let title = match &paths[..] {
            [] => "Patch".to_owned(),
            [one] => format!("Patch {}", context.relative(one)),
            [first, rest @ ..] => format!("Patch {} and {} more", context.relative(first), rest.len()),
        };
        let locations = paths.into_iter().map(|path| Location { path, line: None }).collect();
        CallDescription { title: text::title(&title), locations }
    }

    async fn prepare(&self, input: Input, context: &ToolContext) -> Result<(Vec<Need>, Ready), Failure> {
        let failed = |why: String| Failure::Tell(format!("apply_patch verification failed: {why}"));
        let sections = parse(&input.patch_text).map_err(|e| failed(e.to_string()))?;
        let mut steps: Vec<PatchStep> = Vec::new();
        // Everything that is in the way is told at once.
        let mut wrong: Vec<String> = Vec::new();
        for section in sections {
            match verify(section, &mut steps, context).await {
                Ok(()) => {}
                Err(Failure::Tell(why)) => wrong.push(why),
                Err(failure) => return Err(failure),
            }
        }
        if !wrong.is_empty() {
            wrong.push("Nothing was changed: all of a patch is applied, or nothing.".into());
            return Err(failed(wrong.join("\n\n")));
        }
        let ready = Ready { steps };
        Ok((ready.needs(), ready))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.apply(&context).await
    }
}

impl Ready {
    /// New texts for files that are there.
    pub(super) fn of(replaced: Vec<(Document, String)>) -> Self {
        let step = |(document, new): (Document, String)| {
            let change = document.change(&new);
            PatchStep::new(document, Some(new), change)
        };
        Self { steps: replaced.into_iter().map(step).collect() }
    }

    /// What it takes: leaving the project is judged first, then file by file, one file per question.
    pub(super) fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for step in &self.steps {
            for need in step.document.needs(&step.change) {
                let known = |seen: &Need| seen.permission == "external_directory" && seen.patterns == need.patterns;
                if !needs.iter().any(|seen| need.permission == "external_directory" && known(seen)) {
                    needs.push(need);
                }
            }
        }
        needs.sort_by_key(|need| need.permission != "external_directory");
        needs
    }

    /// Writes what was shown: all files, or none.
    pub(super) async fn apply(mut self, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let ready = &mut self;
        for step in &ready.steps {
            step.document.check_unchanged(context).await?;
        }
        let planned = ready.steps.iter().map(|step| step.document.planned(step.new.as_deref())).collect();
        let check = Check::before(planned, context).await;
        let (mut notes, mut texts) = (Vec::new(), Vec::new());
        for n in 0..ready.steps.len() {
            let step = &mut ready.steps[n];
            let done = match &step.new {
                Some(new) => step.document.write(new, context).await.map(Some),
                None => step.document.remove(context).map(|()| None),
            };
            match done {
                Ok(None) => {}
                Ok(Some(written)) => {
                    notes.extend(written.notes.iter().map(|note| format!("{}: {note}", step.document.place.shown)));
                    texts.push((step.document.place.real.path.clone(), written.text.clone()));
                    step.change.new = written.text;
                }
                Err(failure) => return Err(undo(&ready.steps[..n], failure, context).await),
            }
        }
        let found = check.after(&texts, context).await;
        let mut output = report(self.steps, notes);
        found.join(&mut output);
        Ok(output)
    }
}

/// Reads one section's files and computes what they will be. Later sections see what earlier ones
/// did.
async fn verify(section: Section, steps: &mut Vec<PatchStep>, context: &ToolContext) -> Result<(), Failure> {
    match section {
        Section::Add { path, text } => {
            let mut document = target(context, &path).await?;
            if let Some(step) = earlier(steps, &document) {
                // Removed above, and made anew.
                if step.new.is_some() || step.moved {
                    return Err(twice(&document));
                }
                step.change = step.document.change(&text);
                step.new = Some(text);
                return Ok(());
            }
            // Over an existing file it is a replacement, and needs what a replacement needs.
            document.check_whole(context)?;
            let change = document.change(&text);
            steps.push(PatchStep::new(document, Some(text), change));
        }
        Section::Delete { path } => {
            let document = existing(context, &path).await?;
            if earlier(steps, &document).is_some() {
                return Err(twice(&document));
            }
            let change = document.deletion();
            steps.push(PatchStep::new(document, None, change));
        }
        Section::Update { path, to, hunks } => {
            let document = target(context, &path).await?;
            if let Some(step) = earlier(steps, &document) {
                let Some(text) = step.new.clone().filter(|_| to.is_none() && step.from.is_none()) else {
                    return Err(twice(&document));
                };
                let (text, remarks) = changed(&step.document, &text, &hunks, context)?;
                step.change = step.document.change(&text);
                step.new = Some(text);
                step.remarks.extend(remarks);
                return Ok(());
            }
            let mut document = existing(context, &path).await?;
            let shown = document.place.shown.clone();
            let note = document.check_quoted(context)?;
            let (text, remarks) = changed(&document, &document.text, &hunks, context)?;
            let remarks: Vec<String> = note.into_iter().chain(remarks).collect();
            let Some(to) = to else {
                let change = document.change(&text);
                steps.push(PatchStep { remarks, ..PatchStep::new(document, Some(text), change) });
                return Ok(());
            };
            let moved = target(context, &to).await?;
            if moved.place.real.path == document.place.real.path {
                return Err(Failure::Tell(format!("{shown} cannot be moved to itself.")));
            }
            if moved.exists {
                return Err(Failure::Tell(format!(
                    "{} exists already; {shown} cannot be moved there.",
                    moved.place.shown
                )));
            }
            if earlier(steps, &moved).is_some() {
                return Err(twice(&moved));
            }
            // A byte order mark moves with the text.
            let whole = document.with_mark(&text);
            let change = moved.change(&text);
            steps.push(PatchStep { from: Some(shown), remarks, ..PatchStep::new(moved, Some(whole), change) });
            let change = document.deletion();
            steps.push(PatchStep { moved: true, ..PatchStep::new(document, None, change) });
        }
    }
    Ok(())
}

/// Applies hunks to a text; with what the model is to know of how they were found.
fn changed(
    document: &Document,
    text: &str,
    hunks: &[Hunk],
    context: &ToolContext,
) -> Result<(String, Vec<String>), Failure> {
    let shown = &document.place.shown;
    let applied = apply(text, hunks, shown).map_err(|wrong| {
        let told = wrong.iter().map(|e| match e {
            Error::Lines(old, _) => format!("{e}\n{}", document.nearest(text, old, context)),
            Error::Context(head, _) => format!("{e}\n{}", document.nearest(text, head, context)),
            _ => e.to_string(),
        });
        Failure::Tell(told.collect::<Vec<_>>().join("\n\n"))
    })?;
    let mut remarks = Vec::new();
    for (fuzzy, (first, last)) in applied.fuzzy.iter().zip(&applied.now) {
        document.check_piece(text, context, fuzzy)?;
        let differs = if fuzzy.differences.is_empty() {
            String::new()
        } else {
            format!(" It has {}.", fuzzy.differences.join("; "))
        };
        remarks.push(format!(
            "{shown}: lines of a hunk were not in it exactly; they were found {}.{differs} The lines as they are now:\n{}",
            fuzzy.way,
            numbered(&applied.text, *first, *last)
        ));
    }
    Ok((applied.text, remarks))
}

async fn existing(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    let document = target(context, path).await?;
    if !document.exists {
        return Err(document.missing(context).await);
    }
    Ok(document)
}

/// The step that an earlier section has made for the same file.
fn earlier<'a>(steps: &'a mut [PatchStep], document: &Document) -> Option<&'a mut PatchStep> {
    steps.iter_mut().find(|step| step.document.place.real.path == document.place.real.path)
}

fn twice(document: &Document) -> Failure {
    Failure::Tell(format!(
        "{} appears more than once, in ways that do not go together; put all its changes into one section.",
        document.place.shown
    ))
}

/// Takes back what was written before a step failed.
async fn undo(done: &[PatchStep], failure: Failure, context: &ToolContext) -> Failure {
    let mut left = Vec::new();
    for step in done.iter().rev() {
        if step.document.restore(context).await.is_err() {
            left.push(step.document.place.shown.clone());
        }
    }
    match (left.is_empty(), &failure) {
        (true, Failure::Tell(why)) => {
            Failure::Tell(format!("{why} The other files of the patch are as they were, too."))
        }
        (true, _) => failure,
        (false, _) => Failure::Tell(format!(
            "{failure} These files were changed already and could not be restored: {}.",
            left.join(", ")
        )),
    }
}

fn report(steps: Vec<PatchStep>, notes: Vec<String>) -> ToolOutput {
    let mut lines = vec!["Success. Updated the following files:".to_owned()];
    let (mut files, mut locations, mut diffs) = (Vec::new(), Vec::new(), String::new());
    let mut remarks = Vec::new();
    for step in &steps {
        let shown = &step.document.place.shown;
        let kind = match (&step.new, &step.from) {
            (None, _) if step.moved => continue,
            (None, _) => "delete",
            (Some(_), Some(_)) => "move",
            (Some(_), None) if step.document.exists => "update",
            (Some(_), None) => "add",
        };
        let letter = match kind {
            "delete" => 'D',
            "add" => 'A',
            _ => 'M',
        };
        lines.push(format!("{letter} {shown}"));
        remarks.extend(step.remarks.iter().cloned());
        let mut file = facts(&step.change);
        if let Some(Value::String(diff)) = file.remove("diff") {
            diffs.push_str(&diff);
        }
        file.insert("relativePath".into(), Value::String(step.from.clone().unwrap_or_else(|| shown.clone())));
        file.insert("type".into(), Value::String(kind.into()));
        if step.from.is_some() {
            file.insert("movePath".into(), Value::String(shown.clone()));
        }
        files.push(Value::Object(file));
        locations.push(step.document.location(step.new.as_deref().unwrap_or_default()));
    }
    lines.extend(remarks);
    lines.extend(notes);
    let metadata = match json!({ "files": files, "diff": text::head(&diffs, 64 << 10) }) {
        Value::Object(facts) => facts,
        _ => Map::new(),
    };
    let changes = steps.into_iter().map(|step| (step.change.path.clone(), step.change)).collect::<BTreeMap<_, _>>();
    ToolOutput { metadata, locations, changes: changes.into_values().collect(), ..ToolOutput::text(lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test::{EditorReply, TestProject, call};
    use super::super::{erase, read};
    use super::*;

    fn patch(body: &str) -> Value {
        json!({ "patchText": format!("*** Begin Patch\n{body}\n*** End Patch\n") })
    }

    async fn look(context: &ToolContext, paths: &[&str]) {
        for path in paths {
            call(&erase(read::ReadTool), json!({ "filePath": path }), context).await.unwrap();
        }
    }

    #[tokio::test]
    async fn all_files_of_a_patch_change() {
        let stage = TestProject::new();
        stage.write("up.txt", "a\nb\n");
        stage.write("old/name.txt", "\u{feff}x\r\ny\r\n");
        stage.write("gone.txt", "z\n");
        let context = stage.context();
        look(&context, &["up.txt", "old/name.txt", "gone.txt"]).await;
        let body = "*** Update File: up.txt\n@@\n a\n-b\n+B\n*** Add File: new/dir/n.txt\n+n\n*** Update File: old/name.txt\n*** Move to: moved.txt\n@@\n-y\n+Y\n*** Delete File: gone.txt";
        let (needs, output) = call(&erase(ApplyPatchTool), patch(body), &context).await.unwrap();
        assert_eq!(stage.read("up.txt"), b"a\nB\n");
        assert_eq!(stage.read("new/dir/n.txt"), b"n\n");
        assert_eq!(stage.read("moved.txt"), "\u{feff}x\r\nY\r\n".as_bytes());
        assert!(!stage.cwd().join("old/name.txt").exists() && !stage.cwd().join("gone.txt").exists());
        assert_eq!(
            output.text,
            "Success. Updated the following files:\nM up.txt\nA new/dir/n.txt\nM moved.txt\nD gone.txt"
        );
        let asked: Vec<_> = needs.iter().map(|need| (need.patterns[0].as_str(), need.changes.len())).collect();
        assert_eq!(
            asked,
            [("up.txt", 1), ("new/dir/n.txt", 1), ("moved.txt", 1), ("old/name.txt", 1), ("gone.txt", 1)]
        );
        assert_eq!(output.changes.len(), 5);
        let description = ApplyPatchTool::describe(&serde_json::from_value(patch(body)).unwrap(), &context);
        assert_eq!((description.title.as_str(), description.locations.len()), ("Patch up.txt and 3 more", 4));
    }

    #[tokio::test]
    async fn none_of_them_changes_when_one_does_not_fit() {
        let stage = TestProject::new();
        stage.write("a", "1\n");
        stage.write("b", "2\n");
        stage.write("unread", "3\n\tthree\n");
        std::fs::write(stage.outside().join("o"), "4\n").unwrap();
        let context = stage.context();
        look(&context, &["a", "b"]).await;
        let good = "*** Update File: a\n@@\n-1\n+one\n";
        let table = [
            ("*** Update File: b\n@@\n-nope\n+x", "Failed to find expected lines in b"),
            ("*** Update File: unread\n@@\n-    three\n+x", "2: \tthree"),
            ("*** Add File: unread\n+x", "was not read in this session"),
            ("*** Delete File: none", "File none not found"),
            ("*** Delete File: a", "more than once"),
            ("*** Update File: a\n@@\n-1\n+two", "Failed to find expected lines in a"),
            (
                "*** Update File: b\n@@\n-2 or\n+x\n*** Update File: none\n@@\n-x\n+y",
                "b:\n2 or\nThe closest place is at lines 1-1:\n1: 2\nWhat differs:\n- line 1: the file has `2`, you wrote `2 or`\n\nFile none not found.\n\nNothing was changed",
            ),
            ("*** Update File: b\n*** Move to: a\n", "exists already"),
            ("nonsense", "Invalid patch format"),
        ];
        for (bad, why) in table {
            let failure =
                call(&erase(ApplyPatchTool), patch(&format!("{good}{bad}")), &context).await.unwrap_err().to_string();
            assert!(
                failure.starts_with("apply_patch verification failed: ") && failure.contains(why),
                "{bad}: {failure}"
            );
            assert_eq!((stage.read("a"), stage.read("b")), (b"1\n".to_vec(), b"2\n".to_vec()));
        }
        let outside = stage.outside().join("n").display().to_string();
        let body = format!("{good}*** Add File: {outside}\n+x");
        let prepared = erase(ApplyPatchTool).prepare(patch(&body), &context).await.unwrap();
        let asked: Vec<&str> = prepared.needs.iter().map(|need| need.permission.as_str()).collect();
        assert_eq!(asked, ["external_directory", "edit", "edit"]);
    }

    #[tokio::test]
    async fn sections_of_one_file_go_together_and_nothing_has_to_be_read_before() {
        let stage = TestProject::new();
        stage.write("a", "1\n2\n3\n");
        stage.write("b", "x\n");
        stage.write("c", "\tif x {\n\t\ty();\n\t}\n");
        let context = stage.context();
        context.session.seen.show("\t\ty();");
        let body = "*** Update File: a\n@@\n-3\n+three\n*** Delete File: b\n*** Update File: a\n@@\n-1\n+one\n*** Add File: b\n+new\n*** Update File: c\n@@\n-        y();\n+        y();\n+        z();";
        let (_, output) = call(&erase(ApplyPatchTool), patch(body), &context).await.unwrap();
        assert_eq!((stage.read("a"), stage.read("b")), (b"one\n2\nthree\n".to_vec(), b"new\n".to_vec()));
        assert_eq!(stage.read("c"), b"\tif x {\n\t\ty();\n\t\tz();\n\t}\n");
        assert_eq!(
            output.text,
            "Success. Updated the following files:\nM a\nM b\nM c\nc: lines of a hunk were not in it exactly; they were found ignoring spaces around lines. It has tabs where you wrote spaces. The lines as they are now:\n2: \t\ty();\n3: \t\tz();"
        );
        call(&erase(ApplyPatchTool), patch("*** Delete File: c"), &context).await.unwrap();
        assert!(!stage.cwd().join("c").exists());
    }

    #[tokio::test]
    async fn a_failing_write_takes_back_the_others() {
        use std::os::unix::fs::PermissionsExt;
        let stage = TestProject::new();
        stage.write("a", "1\n");
        stage.write("dir/b", "2\n");
        for way in [None, Some(EditorReply::Saves)] {
            let context = way.map_or_else(|| stage.context(), |way| stage.with_editor(way).0);
            look(&context, &["a", "dir/b"]).await;
            let body = "*** Update File: a\n@@\n-1\n+one\n*** Add File: c\n+new\n*** Delete File: dir/b";
            let prepared = erase(ApplyPatchTool).prepare(patch(body), &context).await.unwrap();
            std::fs::set_permissions(stage.cwd().join("dir/b"), std::fs::Permissions::from_mode(0o444)).unwrap();
            let failure = (prepared.run)(context.clone()).await.unwrap_err().to_string();
            assert!(
                failure.contains("Cannot delete dir/b: it is read-only") && failure.contains("as they were"),
                "{failure}"
            );
            assert_eq!((stage.read("a"), stage.read("dir/b")), (b"1\n".to_vec(), b"2\n".to_vec()));
            assert!(!stage.cwd().join("c").exists());
            std::fs::set_permissions(stage.cwd().join("dir/b"), std::fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
}
