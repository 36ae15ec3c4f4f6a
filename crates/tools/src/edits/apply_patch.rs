//! `apply_patch`: changes several files by one patch, all of them or none; removes and moves files
//! of any kind and size, except links. Offered instead of `edit` and `write` to the GPT models that
//! were trained on it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::aliases::Aliases;
use crate::diagnostics::{Check, PlannedChange};
use crate::edits::document::{
    Document, WrittenText, facts, target, target_by_name, target_to_write,
};
use crate::files::disk::SetAside;
use crate::{Availability, CallDescription, Failure, Tool, ToolContext, ToolOutput};
use base::text;
use base::text::shared::SharedText;
use events::{Location, ToolKind};
use permission::AccessRequest;
use textedit::near_match::numbered;
use textedit::patch::{Error, Hunk, Section, apply, parse};
use transcript::Change;

#[derive(Default)]
pub struct ApplyPatchTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The whole patch, from *** Begin Patch to *** End Patch
    pub patch_text: String,
}

/// The verified changes of all files of the patch.
#[derive(Debug)]
pub struct Ready {
    steps: Vec<PatchStep>,
}

/// The verified change of one file.
#[derive(Debug)]
struct PatchStep {
    /// The file under its new name.
    document: Document,
    /// Its new text; `None` if it is removed, or moved unchanged.
    new: Option<SharedText>,
    /// The file under its old name, if it is moved.
    from: Option<Document>,
    change: Change,
    /// Notes for the model on inexact matches of hunks.
    remarks: Vec<String>,
}

/// A completed step, with the information that is needed to undo it.
enum StepDone {
    /// The written text.
    Written(SharedText),
    /// Moved, with the text if a new one was written.
    Moved(Option<SharedText>),
    /// Removed, with the file under its temporary name. `None` for the last step, which need not be
    /// undone, because nothing can fail after it.
    Removed(Option<SetAside>),
}

impl PatchStep {
    fn new(document: Document, new: Option<SharedText>, change: Change) -> Self {
        Self {
            document,
            new,
            from: None,
            change,
            remarks: Vec::new(),
        }
    }

    /// Returns whether the step removes its file.
    fn removes(&self) -> bool {
        self.new.is_none() && self.from.is_none()
    }

    /// Returns the file under each of its names.
    fn documents(&self) -> impl Iterator<Item = &Document> {
        std::iter::once(&self.document).chain(&self.from)
    }

    fn requests(&self) -> Vec<AccessRequest> {
        let mut requests = self.document.requests(&self.change);
        let Some(from) = &self.from else {
            return requests;
        };
        // Undo would remove the file from its new name and could not restore it under the old one.
        // Without the change, undo leaves the file and reports that the content under the old name
        // was not stored.
        if !from.can_be_restored()
            && let Some(edit) = requests.last_mut()
        {
            edit.changes.clear();
        }
        requests.extend(from.requests(&from.deletion()));
        requests
    }

    /// Returns the changes for language servers; none for a file that is not text.
    fn planned(&self) -> Vec<PlannedChange> {
        let Some(from) = &self.from else {
            return self
                .document
                .is_text()
                .then(|| self.document.planned(self.new.as_ref()))
                .into_iter()
                .collect();
        };
        if !from.is_text() {
            return Vec::new();
        }
        let new = self.new.as_ref().unwrap_or(&from.text);
        vec![self.document.planned(Some(new)), from.planned(None)]
    }

    /// Performs the step unless its files have changed while earlier ones waited for formatters and
    /// the editor. Returns the completed step, and the content if it was written.
    async fn attempt(
        &self,
        is_first: bool,
        is_last: bool,
        context: &ToolContext,
    ) -> Result<(StepDone, Option<WrittenText>), Failure> {
        if !is_first {
            for document in self.documents() {
                document.check_unchanged(context).await?;
            }
        }
        self.perform(is_last, context).await
    }

    /// Performs the step, see [`PatchStep::attempt`].
    async fn perform(
        &self,
        is_last: bool,
        context: &ToolContext,
    ) -> Result<(StepDone, Option<WrittenText>), Failure> {
        let document = &self.document;
        match (&self.from, &self.new) {
            (None, Some(new)) => {
                let written = document.write(new, context).await?;
                Ok((StepDone::Written(written.text.clone()), Some(written)))
            }
            (None, None) if is_last => document
                .remove(context)
                .map(|()| (StepDone::Removed(None), None)),
            (None, None) => Ok((StepDone::Removed(Some(document.set_aside(context)?)), None)),
            (Some(from), new) => {
                from.rename(document, context)?;
                let Some(new) = new else {
                    return Ok((StepDone::Moved(None), None));
                };
                match document.write(new, context).await {
                    Ok(written) => Ok((StepDone::Moved(Some(written.text.clone())), Some(written))),
                    Err(failure) => Err(match from.rename_back(document, context) {
                        Ok(()) => failure,
                        Err(e) => Failure::ForModel(format!(
                            "{failure} {} is called {} now, because {e}.",
                            from.path.shown, document.path.shown
                        )),
                    }),
                }
            }
        }
    }

    /// Undoes the step.
    ///
    /// # Errors
    /// A description of the files that could not be restored.
    async fn undo(&self, done: StepDone, context: &ToolContext) -> Result<(), String> {
        let shown = &self.document.path.shown;
        match (done, &self.from) {
            (StepDone::Removed(None), _) => Ok(()),
            (StepDone::Removed(Some(aside)), _) => self
                .document
                .put_back(aside, context)
                .map_err(|why| format!("{shown} ({why})")),
            (StepDone::Written(text) | StepDone::Moved(Some(text)), _)
                if !self.document.has_written(&text) =>
            {
                Err(format!(
                    "{shown} (something else has written it since then)"
                ))
            }
            (StepDone::Moved(rewritten), Some(from)) => {
                let named = &from.path.shown;
                from.rename_back(&self.document, context)
                    .map_err(|e| format!("{named} (it is called {shown} now, because {e})"))?;
                if rewritten.is_some() {
                    from.restore(context).await.map_err(|_| named.clone())
                } else {
                    Ok(())
                }
            }
            (StepDone::Written(_) | StepDone::Moved(_), _) => self
                .document
                .restore(context)
                .await
                .map_err(|_| shown.clone()),
        }
    }
}

impl Tool for ApplyPatchTool {
    const NAME: &'static str = "apply_patch";
    const DESCRIPTION: &'static str = include_str!("apply_patch.md");
    const KIND: ToolKind = ToolKind::Edit;
    const CONCURRENT: bool = false;
    const PERMISSION: &'static str = "edit";
    const AVAILABILITY: Availability = Availability::PatchModels;
    const ALIASES: Aliases = Aliases {
        tool_names: &["patch", "applydiff"],
        field_values: &[],
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
        let paths: Vec<PathBuf> = paths
            .map(|path| base::worktree::normal(&context.absolute(path)))
            .collect();
        let title = match (&paths[..], &sections[..]) {
            ([], _) => "Patch".to_owned(),
            // A file that is not text has no diff, so only the title shows the request.
            ([one], [Section::Delete { .. }]) => format!("Delete {}", context.relative(one)),
            (
                [one],
                [
                    Section::Update {
                        path, to: Some(_), ..
                    },
                ],
            ) => {
                let from = base::worktree::normal(&context.absolute(path));
                format!(
                    "Move {} to {}",
                    context.relative(&from),
                    context.relative(one)
                )
            }
            ([one], _) => format!("Patch {}", context.relative(one)),
            ([first, rest @ ..], _) => {
                format!("Patch {} and {} more", context.relative(first), rest.len())
            }
        };
        let locations = paths
            .into_iter()
            .map(|path| Location { path, line: None })
            .collect();
        CallDescription {
            title: text::title(&title),
            locations,
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let sections = parse(&input.patch_text).map_err(|e| verification_failed(&e.to_string()))?;
        let mut steps: Vec<PatchStep> = Vec::new();
        // All problems are reported at once.
        let mut wrong: Vec<String> = Vec::new();
        for section in sections {
            match verify(section, &mut steps, context).await {
                Ok(()) => {}
                Err(Failure::ForModel(why)) => wrong.push(why),
                Err(failure) => return Err(failure),
            }
        }
        if !wrong.is_empty() {
            wrong.push("Nothing was changed: all of a patch is applied, or nothing.".into());
            return Err(verification_failed(&wrong.join("\n\n")));
        }
        let ready = Ready { steps };
        Ok((ready.requests(), ready))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.apply(&context).await
    }
}

/// Returns the error for a patch that cannot be applied.
fn verification_failed(why: &str) -> Failure {
    Failure::ForModel(format!("apply_patch verification failed: {why}"))
}

impl Ready {
    /// Returns the changes that replace the texts of existing files by new ones.
    ///
    /// # Errors
    /// A message for the model if a text cannot be written in the encoding of its file.
    pub(crate) fn of(replaced: Vec<(Document, String)>) -> Result<Self, Failure> {
        let step = |(document, new): (Document, String)| {
            let new = SharedText::from(new);
            let change = document.change(new.clone())?;
            Ok(PatchStep::new(document, Some(new), change))
        };
        let steps: Result<_, Failure> = replaced.into_iter().map(step).collect();
        Ok(Self { steps: steps? })
    }

    /// Returns the access requests: first those for leaving the project, then one per file.
    pub(crate) fn requests(&self) -> Vec<AccessRequest> {
        let mut requests: Vec<AccessRequest> = Vec::new();
        for step in &self.steps {
            for request in step.requests() {
                let known = |seen: &AccessRequest| {
                    seen.permission == "external_directory"
                        && seen.patterns == request.patterns
                        && seen.only_reads == request.only_reads
                };
                if !requests
                    .iter()
                    .any(|seen| request.permission == "external_directory" && known(seen))
                {
                    requests.push(request);
                }
            }
        }
        requests.sort_by_key(|request| request.permission != "external_directory");
        requests
    }

    /// Applies the shown changes: all or none.
    pub(crate) async fn apply(mut self, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let planned = self.steps.iter().flat_map(PatchStep::planned).collect();
        let check = Check::before(planned, context).await;
        for document in self.steps.iter().flat_map(PatchStep::documents) {
            document.check_unchanged(context).await?;
        }
        let mut notes = Vec::new();
        let mut texts = Vec::new();
        // Removals come last, so that a removed file has its temporary name only for a moment.
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|n| self.steps[*n].removes());
        let mut done = Vec::new();
        for n in order {
            let is_last = done.len() + 1 == self.steps.len();
            let step = &mut self.steps[n];
            let is_first = done.is_empty();
            let written = match step.attempt(is_first, is_last, context).await {
                Ok((how, written)) => {
                    done.push((n, how));
                    written
                }
                Err(failure) => return Err(undo(&self.steps, done, failure, context).await),
            };
            let real = || step.document.path.real.path.clone();
            if let Some(written) = written {
                notes.extend(
                    written
                        .notes
                        .iter()
                        .map(|note| format!("{}: {note}", step.document.path.shown)),
                );
                texts.push((real(), written.text.clone()));
                step.change.new = written.text;
            } else if let Some(from) = step.from.as_ref().filter(|from| from.is_text()) {
                texts.push((real(), from.text.clone()));
            }
        }
        for (n, done) in done {
            if let StepDone::Removed(Some(aside)) = done
                && let Err(e) = aside.remove()
            {
                let shown = &self.steps[n].document.path.shown;
                notes.push(format!(
                    "{shown}: its earlier content could not be removed, and remains next to it: {e}."
                ));
            }
        }
        let found = check.after(&texts, context).await;
        let mut output = report(self.steps, notes);
        found.join(&mut output);
        Ok(output)
    }
}

/// Reads the files of a section, computes their new content, and adds it to `steps`. Later sections
/// see the results of earlier ones.
async fn verify(
    section: Section,
    steps: &mut Vec<PatchStep>,
    context: &ToolContext,
) -> Result<(), Failure> {
    match section {
        Section::Add { path, text } => {
            let mut document = target_to_write(context, &path).await?;
            let text = SharedText::from(document.replacement(&text));
            if let Some(step) = earlier(steps, &document) {
                // Removed by an earlier section, and created again.
                if !step.removes() {
                    return Err(twice(&document));
                }
                step.change = step.document.change(text.clone())?;
                step.new = Some(text);
                return Ok(());
            }
            // An existing file is replaced, so the checks of a replacement apply.
            document.check_whole(context)?;
            let change = document.change(text.clone())?;
            steps.push(PatchStep::new(document, Some(text), change));
        }
        Section::Delete { path } => {
            let mut document = existing(target_by_name(context, &path).await?, context).await?;
            if earlier(steps, &document).is_some() {
                return Err(twice(&document));
            }
            document.check_removable(context)?;
            let change = document.deletion();
            steps.push(PatchStep::new(document, None, change));
        }
        Section::Update {
            path,
            to: Some(to),
            hunks,
        } => {
            let step = verify_move(&path, &to, &hunks, steps, context).await?;
            steps.push(step);
        }
        Section::Update {
            path,
            to: None,
            hunks,
        } => {
            let document = target(context, &path).await?;
            if let Some(step) = earlier(steps, &document) {
                if step.from.is_some() {
                    return Err(twice(&document));
                }
                let Some(text) = step.new.clone() else {
                    return Err(twice(&document));
                };
                let (text, remarks) = apply_hunks(&step.document, &text, &hunks, context)?;
                step.change = step.document.change(text.clone())?;
                step.new = Some(text);
                step.remarks.extend(remarks);
                return Ok(());
            }
            let mut document = existing(document, context).await?;
            let note = document.check_quoted(context)?;
            let (text, remarks) = apply_hunks(&document, &document.text, &hunks, context)?;
            let remarks = note.into_iter().chain(remarks).collect();
            let change = document.change(text.clone())?;
            steps.push(PatchStep {
                remarks,
                ..PatchStep::new(document, Some(text), change)
            });
        }
    }
    Ok(())
}

/// Prepares the move of a file, possibly with changes. Without changes its content does not matter.
async fn verify_move(
    path: &str,
    to: &str,
    hunks: &[Hunk],
    steps: &mut [PatchStep],
    context: &ToolContext,
) -> Result<PatchStep, Failure> {
    let mut document = target_by_name(context, path).await?;
    if !hunks.is_empty() && !document.is_text() {
        // Reports why it cannot be changed.
        document = target(context, path).await?;
    }
    if earlier(steps, &document).is_some() {
        return Err(twice(&document));
    }
    let mut document = existing(document, context).await?;
    let shown = document.path.shown.clone();
    let note = document.check_movable(context)?;
    let (text, remarks) = apply_hunks(&document, &document.text, hunks, context)?;
    let remarks = note.into_iter().chain(remarks).collect();
    let there = target_by_name(context, to).await?;
    if there.path.real.path == document.path.real.path {
        return Err(Failure::ForModel(format!(
            "{shown} cannot be moved to itself."
        )));
    }
    if there.exists {
        return Err(Failure::ForModel(format!(
            "{} exists already; {shown} cannot be moved there.",
            there.path.shown
        )));
    }
    if earlier(steps, &there).is_some() {
        return Err(twice(&there));
    }
    let there = there.for_moved(&document);
    let change = there.change(text.clone())?;
    // Unsaved changes of the editor are written to the new name.
    let new = (!text.is_same(&document.text) || document.is_unsaved()).then_some(text);
    Ok(PatchStep {
        from: Some(document),
        remarks,
        ..PatchStep::new(there, new, change)
    })
}

/// Applies hunks to a text of a document. Also returns notes for the model on inexact matches.
fn apply_hunks(
    document: &Document,
    text: &SharedText,
    hunks: &[Hunk],
    context: &ToolContext,
) -> Result<(SharedText, Vec<String>), Failure> {
    if hunks.is_empty() {
        return Ok((text.clone(), Vec::new()));
    }
    let shown = &document.path.shown;
    let applied = apply(text, hunks, shown).map_err(|wrong| {
        let messages = wrong.iter().map(|e| match e {
            Error::LinesNotFound { lines: old, .. } => {
                format!("{e}\n{}", document.nearest(text, old, context))
            }
            Error::AnchorsNotFound { anchors: head, .. } => {
                format!("{e}\n{}", document.nearest(text, head, context))
            }
            _ => e.to_string(),
        });
        Failure::ForModel(messages.collect::<Vec<_>>().join("\n\n"))
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
            fuzzy.strategy,
            numbered(&applied.text, *first, *last)
        ));
    }
    Ok((applied.text.into(), remarks))
}

/// Returns the document if its file exists, otherwise an error for the model.
async fn existing(document: Document, context: &ToolContext) -> Result<Document, Failure> {
    if document.exists {
        Ok(document)
    } else {
        Err(document.missing(context).await)
    }
}

/// Returns the step of an earlier section for the same file.
fn earlier<'a>(steps: &'a mut [PatchStep], document: &Document) -> Option<&'a mut PatchStep> {
    let same = |other: &Document| other.path.real.path == document.path.real.path;
    steps.iter_mut().find(|step| step.documents().any(same))
}

/// Returns the error for a file that sections change in ways that cannot be combined.
fn twice(document: &Document) -> Failure {
    Failure::ForModel(format!(
        "{} appears more than once, in ways that do not go together; put all its changes into one section.",
        document.path.shown
    ))
}

/// Undoes the completed steps, given by their indices, after a failure. Returns the failure with a
/// note on the other files.
async fn undo(
    steps: &[PatchStep],
    done: Vec<(usize, StepDone)>,
    failure: Failure,
    context: &ToolContext,
) -> Failure {
    let mut left = Vec::new();
    for (n, done) in done.into_iter().rev() {
        left.extend(steps[n].undo(done, context).await.err());
    }
    match (left.is_empty(), &failure) {
        (true, Failure::ForModel(why)) => Failure::ForModel(format!(
            "{why} The other files of the patch are as they were, too."
        )),
        (true, _) => failure,
        (false, _) => Failure::ForModel(format!(
            "{failure} These files were changed already and could not be restored: {}.",
            left.join(", ")
        )),
    }
}

/// Formats the result for the model and for people.
fn report(steps: Vec<PatchStep>, notes: Vec<String>) -> ToolOutput {
    let mut lines = vec!["Success. Updated the following files:".to_owned()];
    let mut files = Vec::new();
    let mut locations = Vec::new();
    let mut diffs = String::new();
    let mut remarks = Vec::new();
    for step in &steps {
        let shown = &step.document.path.shown;
        let kind = match (&step.from, &step.new) {
            (Some(_), _) => "move",
            (None, None) => "delete",
            (None, Some(_)) if step.document.exists => "update",
            (None, Some(_)) => "add",
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
        let before = step.from.as_ref().unwrap_or(&step.document);
        file.insert(
            "relativePath".into(),
            Value::String(before.path.shown.clone()),
        );
        file.insert("type".into(), Value::String(kind.into()));
        if step.from.is_some() {
            file.insert("movePath".into(), Value::String(shown.clone()));
        }
        files.push(Value::Object(file));
        locations.push(
            step.document
                .location(step.new.as_deref().unwrap_or_default()),
        );
    }
    lines.extend(remarks);
    lines.extend(notes);
    let metadata = match json!({ "files": files, "diff": text::head(&diffs, 64 << 10) }) {
        Value::Object(facts) => facts,
        _ => Map::new(),
    };
    let each = |step: PatchStep| [Some(step.change), step.from.map(|from| from.deletion())];
    let changes = steps.into_iter().flat_map(each).flatten();
    let changes: BTreeMap<String, Change> = changes
        .map(|change| (change.path.clone(), change))
        .collect();
    ToolOutput {
        metadata,
        locations,
        changes: changes.into_values().collect(),
        ..ToolOutput::text(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;
    use crate::erase;
    use crate::files::read;
    use crate::test::{EditorReply, TestProject, call};

    fn patch(body: &str) -> Value {
        json!({ "patchText": format!("*** Begin Patch\n{body}\n*** End Patch\n") })
    }

    async fn look(context: &ToolContext, paths: &[&str]) {
        for path in paths {
            call(&erase(read::ReadTool), json!({ "filePath": path }), context)
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn patch_changes_all_its_files() {
        let fixture = TestProject::new();
        fixture.write("up.txt", "a\nb\n");
        fixture.write("old/name.txt", "\u{feff}x\r\ny\r\n");
        fixture.write("gone.txt", "z\n");
        let context = fixture.context();
        look(&context, &["up.txt", "old/name.txt", "gone.txt"]).await;
        let body = "*** Update File: up.txt\n@@\n a\n-b\n+B\n*** Add File: new/dir/n.txt\n+n\n*** Update File: old/name.txt\n*** Move to: moved.txt\n@@\n-y\n+Y\n*** Delete File: gone.txt";
        let (requests, output) = call(&erase(ApplyPatchTool), patch(body), &context)
            .await
            .unwrap();
        assert_eq!(fixture.read("up.txt"), b"a\nB\n");
        assert_eq!(fixture.read("new/dir/n.txt"), b"n\n");
        assert_eq!(fixture.read("moved.txt"), "\u{feff}x\r\nY\r\n".as_bytes());
        assert!(
            !fixture.cwd().join("old/name.txt").exists()
                && !fixture.cwd().join("gone.txt").exists()
        );
        assert_eq!(
            output.text,
            "Success. Updated the following files:\nM up.txt\nA new/dir/n.txt\nM moved.txt\nD gone.txt"
        );
        let asked: Vec<_> = requests
            .iter()
            .map(|request| (request.patterns[0].as_str(), request.changes.len()))
            .collect();
        assert_eq!(
            asked,
            [
                ("up.txt", 1),
                ("new/dir/n.txt", 1),
                ("moved.txt", 1),
                ("old/name.txt", 1),
                ("gone.txt", 1)
            ]
        );
        assert_eq!(output.changes.len(), 5);
        let description =
            ApplyPatchTool::describe(&serde_json::from_value(patch(body)).unwrap(), &context);
        assert_eq!(
            (description.title.as_str(), description.locations.len()),
            ("Patch up.txt and 3 more", 4)
        );
    }

    #[tokio::test]
    async fn patch_with_one_misfit_changes_nothing() {
        let fixture = TestProject::new();
        fixture.write("a", "1\n");
        fixture.write("b", "2\n");
        fixture.write("unread", "3\n\tthree\n");
        std::fs::write(fixture.outside().join("o"), "4\n").unwrap();
        let context = fixture.context();
        look(&context, &["a", "b"]).await;
        let good = "*** Update File: a\n@@\n-1\n+one\n";
        let table = [
            (
                "*** Update File: b\n@@\n-nope\n+x",
                "Failed to find expected lines in b",
            ),
            ("*** Update File: unread\n@@\n-    three\n+x", "2: \tthree"),
            ("*** Add File: unread\n+x", "was not read in this session"),
            ("*** Delete File: none", "File none not found"),
            ("*** Delete File: a", "more than once"),
            (
                "*** Update File: a\n@@\n-1\n+two",
                "Failed to find expected lines in a",
            ),
            (
                "*** Update File: b\n@@\n-2 or\n+x\n*** Update File: none\n@@\n-x\n+y",
                "b:\n2 or\nThe closest place is at lines 1-1:\n1: 2\nWhat differs:\n- line 1: the file has `2`, you wrote `2 or`\n\nFile none not found.\n\nNothing was changed",
            ),
            ("*** Update File: b\n*** Move to: a\n", "exists already"),
            ("nonsense", "Invalid patch format"),
        ];
        for (bad, why) in table {
            let failure = call(
                &erase(ApplyPatchTool),
                patch(&format!("{good}{bad}")),
                &context,
            )
            .await
            .unwrap_err()
            .to_string();
            assert!(
                failure.starts_with("apply_patch verification failed: ") && failure.contains(why),
                "{bad}: {failure}"
            );
            assert_eq!(
                (fixture.read("a"), fixture.read("b")),
                (b"1\n".to_vec(), b"2\n".to_vec())
            );
        }
        let outside = fixture.outside().join("n").display().to_string();
        let body = format!("{good}*** Add File: {outside}\n+x");
        let prepared = erase(ApplyPatchTool)
            .prepare(patch(&body), &context)
            .await
            .unwrap();
        let asked: Vec<&str> = prepared
            .requests
            .iter()
            .map(|request| request.permission.as_str())
            .collect();
        assert_eq!(asked, ["external_directory", "edit", "edit"]);
    }

    #[tokio::test]
    async fn sections_of_one_file_combine_and_only_removal_requires_reading() {
        let fixture = TestProject::new();
        fixture.write("a", "1\n2\n3\n");
        fixture.write("b", "x\n");
        fixture.write("c", "\tif x {\n\t\ty();\n\t}\n");
        let context = fixture.context();
        context.session.seen.record_shown("\t\ty();");
        look(&context, &["b"]).await;
        let body = "*** Update File: a\n@@\n-3\n+three\n*** Delete File: b\n*** Update File: a\n@@\n-1\n+one\n*** Add File: b\n+new\n*** Update File: c\n@@\n-        y();\n+        y();\n+        z();";
        let (_, output) = call(&erase(ApplyPatchTool), patch(body), &context)
            .await
            .unwrap();
        assert_eq!(
            (fixture.read("a"), fixture.read("b")),
            (b"one\n2\nthree\n".to_vec(), b"new\n".to_vec())
        );
        assert_eq!(fixture.read("c"), b"\tif x {\n\t\ty();\n\t\tz();\n\t}\n");
        assert_eq!(
            output.text,
            "Success. Updated the following files:\nM a\nM b\nM c\nc: lines of a hunk were not in it exactly; they were found ignoring spaces around lines. It has tabs where you wrote spaces. The lines as they are now:\n2: \t\ty();\n3: \t\tz();"
        );
        look(&context, &["c"]).await;
        call(
            &erase(ApplyPatchTool),
            patch("*** Delete File: c"),
            &context,
        )
        .await
        .unwrap();
        assert!(!fixture.cwd().join("c").exists());
    }

    fn set_mode(fixture: &TestProject, name: &str, mode: u32) {
        std::fs::set_permissions(
            fixture.cwd().join(name),
            std::fs::Permissions::from_mode(mode),
        )
        .unwrap();
    }

    /// Returns the metadata of a file.
    fn mode(fixture: &TestProject, name: &str) -> u32 {
        std::fs::symlink_metadata(fixture.cwd().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    }

    #[tokio::test]
    async fn moved_file_keeps_its_mode_also_after_rollback() {
        for way in [None, Some(EditorReply::Saves), Some(EditorReply::Lies)] {
            let fixture = TestProject::new();
            fixture.write("run.sh", "echo 1\n");
            fixture.write("private", "2\n");
            for name in ["gone", "stays"] {
                fixture.write(name, "3\n");
            }
            let (context, editor) = match way {
                Some(way) => fixture.with_editor(way),
                None => (fixture.context(), Default::default()),
            };
            set_mode(&fixture, "run.sh", 0o755);
            set_mode(&fixture, "private", 0o600);
            set_mode(&fixture, "gone", 0o640);
            look(&context, &["gone", "stays"]).await;
            let body = "*** Delete File: gone\n*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-echo 1\n+echo one\n*** Update File: private\n*** Move to: kept\n*** Delete File: stays";
            let prepared = erase(ApplyPatchTool)
                .prepare(patch(body), &context)
                .await
                .unwrap();
            set_mode(&fixture, "stays", 0o444);
            let failure = (prepared.run)(context.clone())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.ends_with("read-only. The other files of the patch are as they were, too."),
                "{failure}"
            );
            for (name, was, text) in [
                ("run.sh", 0o755, "echo 1\n"),
                ("private", 0o600, "2\n"),
                ("gone", 0o640, "3\n"),
                ("stays", 0o444, "3\n"),
            ] {
                assert_eq!(
                    (mode(&fixture, name), fixture.read(name)),
                    (was, text.into()),
                    "{way:?} {name}"
                );
            }
            let left: Vec<_> = std::fs::read_dir(fixture.cwd())
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            assert_eq!(left.len(), 6, "{left:?}");
            set_mode(&fixture, "stays", 0o644);
            // Unsaved text is moved too.
            let unsaved = way == Some(EditorReply::Saves);
            if unsaved {
                editor.type_into(&fixture.cwd().join("private"), "unsaved\n");
            }
            let (_, output) = call(&erase(ApplyPatchTool), patch(body), &context)
                .await
                .unwrap();
            assert!(
                output
                    .text
                    .ends_with("\nD gone\nM bin/run.sh\nM kept\nD stays"),
                "{}",
                output.text
            );
            assert_eq!(
                (mode(&fixture, "bin/run.sh"), fixture.read("bin/run.sh")),
                (0o755, b"echo one\n".to_vec()),
                "{way:?}"
            );
            let kept = if unsaved { "unsaved\n" } else { "2\n" };
            assert_eq!(
                (mode(&fixture, "kept"), fixture.read("kept")),
                (0o600, kept.into()),
                "{way:?}"
            );
            // The file was not read under either name.
            let failure = call(
                &erase(ApplyPatchTool),
                patch("*** Add File: kept\n+x"),
                &context,
            )
            .await
            .unwrap_err();
            assert!(
                failure.to_string().contains("was not read in this session"),
                "{failure}"
            );
            let left: Vec<_> = std::fs::read_dir(fixture.cwd())
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            assert_eq!(left.len(), 3, "{left:?}");
        }
    }

    #[tokio::test]
    async fn binary_file_is_removed_and_moved_unchanged() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let large = || {
            std::fs::File::create(fixture.cwd().join("large"))
                .unwrap()
                .set_len(crate::files::disk::MAX_FILE_BYTES + 1)
        };
        let files: [(&str, &[u8]); 3] = [
            ("control", b"\x01\x02\x03\xff"),
            ("utf32", b"\xff\xfe\0\0a\0\0\0"),
            ("nul", b"a\0\xffb"),
        ];
        for (name, bytes) in files {
            fixture.write_bytes(name, bytes);
            set_mode(&fixture, name, 0o750);
            let body = format!("*** Update File: {name}\n*** Move to: to/{name}");
            let (requests, output) = call(&erase(ApplyPatchTool), patch(&body), &context)
                .await
                .unwrap();
            assert_eq!(
                (
                    fixture.read(&format!("to/{name}")),
                    mode(&fixture, &format!("to/{name}"))
                ),
                (bytes.to_vec(), 0o750)
            );
            assert!(!fixture.cwd().join(name).exists());
            assert_eq!(
                output.text,
                format!("Success. Updated the following files:\nM to/{name}")
            );
            // Both names are judged and recorded for undo, neither of them with a text.
            let requested: Vec<_> = requests
                .iter()
                .map(|request| (&*request.patterns[0], &request.changes[..]))
                .collect();
            let [(to, [new]), (from, [old])] = &requested[..] else {
                panic!("{requested:?}")
            };
            assert_eq!((*to, *from), (&*format!("to/{name}"), name));
            assert_eq!(
                (new.old.as_deref(), &*new.new, new.deleted),
                (None, "", false)
            );
            assert_eq!(
                (old.old.as_deref(), &*old.new, old.deleted),
                (None, "", true)
            );
            let body = format!("*** Delete File: to/{name}");
            let description =
                ApplyPatchTool::describe(&serde_json::from_value(patch(&body)).unwrap(), &context);
            assert_eq!(description.title, format!("Delete to/{name}"));
            let (requests, output) = call(&erase(ApplyPatchTool), patch(&body), &context)
                .await
                .unwrap();
            assert!(!fixture.cwd().join("to").join(name).exists());
            assert_eq!(*requests[0].changes[0], output.changes[0]);
        }
        large().unwrap();
        let body = "*** Update File: large\n*** Move to: to/large";
        let (requests, _) = call(&erase(ApplyPatchTool), patch(body), &context)
            .await
            .unwrap();
        assert_eq!(
            std::fs::metadata(fixture.cwd().join("to/large"))
                .unwrap()
                .len(),
            crate::files::disk::MAX_FILE_BYTES + 1
        );
        // Undo cannot restore the file under its old name, so it must not remove it under the new
        // one.
        let requested: Vec<_> = requests
            .iter()
            .map(|request| (&*request.patterns[0], request.changes.len()))
            .collect();
        assert_eq!(requested, [("to/large", 0), ("large", 1)]);
        call(
            &erase(ApplyPatchTool),
            patch("*** Delete File: to/large"),
            &context,
        )
        .await
        .unwrap();
        assert!(!fixture.cwd().join("to/large").exists());
    }

    #[tokio::test]
    async fn binary_file_is_not_touched_if_it_differs_from_what_was_shown() {
        let fixture = TestProject::new();
        let context = fixture.context();
        fixture.write_bytes("blob", b"\0\xe9\n");
        fixture.write_bytes("there", b"\0\xff");
        fixture.write_bytes("tls.key", b"\0\xff");
        let table = [
            (
                "*** Update File: blob\n*** Move to: new\n@@\n-a\n+b",
                "blob is a binary file",
            ),
            ("*** Update File: blob\n@@\n-a\n+b", "blob is a binary file"),
            ("*** Add File: blob\n+b", "blob is a binary file"),
            (
                "*** Update File: blob\n*** Move to: there",
                "there exists already; blob cannot be moved there.",
            ),
            // Under another name it could be read without asking.
            (
                "*** Update File: tls.key\n*** Move to: tls.txt",
                "tls.key is not read without asking, and it is no text",
            ),
            (
                "*** Delete File: blob\n*** Update File: blob\n*** Move to: new",
                "more than once",
            ),
            (
                "*** Update File: blob\n*** Move to: new\n*** Add File: new\n+x",
                "more than once",
            ),
        ];
        for (body, why) in table {
            let failure = call(&erase(ApplyPatchTool), patch(body), &context)
                .await
                .unwrap_err()
                .to_string();
            assert!(failure.contains(why), "{body}: {failure}");
        }
        for body in [
            "*** Delete File: blob",
            "*** Update File: blob\n*** Move to: new",
        ] {
            fixture.write_bytes("blob", b"\0\xe9\n");
            let prepared = erase(ApplyPatchTool)
                .prepare(patch(body), &context)
                .await
                .unwrap();
            fixture.write_bytes("blob", b"\0\xe9\nmore\n");
            let failure = (prepared.run)(context.clone())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains("changed while you were being asked"),
                "{body}: {failure}"
            );
            assert_eq!(fixture.read("blob"), b"\0\xe9\nmore\n");
        }
    }

    #[tokio::test]
    async fn delete_of_unseen_content_shows_it_first() {
        let fixture = TestProject::new();
        let context = fixture.context();
        for name in ["unread", "read", "changed"] {
            fixture.write(name, format!("{name}\n"));
        }
        look(&context, &["read", "changed"]).await;
        fixture.write("changed", "changed\nand the user's\n");
        call(
            &erase(ApplyPatchTool),
            patch("*** Delete File: read"),
            &context,
        )
        .await
        .unwrap();
        for (name, why, content) in [
            (
                "unread",
                "unread exists, and was not read in this session, so it was not removed.",
                "1: unread",
            ),
            (
                "changed",
                "changed has changed since it was read",
                "2: and the user's",
            ),
        ] {
            let body = format!("*** Delete File: {name}");
            let failure = call(&erase(ApplyPatchTool), patch(&body), &context)
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains(why) && failure.contains(content),
                "{name}: {failure}"
            );
            assert!(
                failure.contains("send the call again") && fixture.cwd().join(name).exists(),
                "{name}: {failure}"
            );
            // The first attempt has shown it.
            call(&erase(ApplyPatchTool), patch(&body), &context)
                .await
                .unwrap();
            assert!(!fixture.cwd().join(name).exists());
        }
    }

    #[tokio::test]
    async fn links_are_not_moved_or_removed_as_their_targets() {
        use std::os::unix::fs::symlink;
        let fixture = TestProject::new();
        let context = fixture.context();
        fixture.write("src/f", "a\n");
        std::fs::write(fixture.outside().join("o"), "a\n").unwrap();
        symlink("src/f", fixture.cwd().join("link")).unwrap();
        symlink("src", fixture.cwd().join("in")).unwrap();
        symlink("nowhere", fixture.cwd().join("dangling")).unwrap();
        symlink(fixture.outside().join("o"), fixture.cwd().join("out")).unwrap();
        let address = format!("file://{}/link", fixture.cwd().display());
        let table = [
            (
                "*** Delete File: link".to_owned(),
                "link is a link that leads to src/f.",
            ),
            (
                "*** Delete File: ./in/../link".to_owned(),
                "is a link that leads to src/f.",
            ),
            (
                "*** Delete File: dangling".to_owned(),
                "dangling is a link that leads to nowhere.",
            ),
            (
                "*** Delete File: in".to_owned(),
                "in is a link that leads to src.",
            ),
            (
                "*** Delete File: out".to_owned(),
                "out is a link that leads to ../outside/o.",
            ),
            (
                format!("*** Delete File: {address}"),
                "leads to src/f. A patch",
            ),
            (
                "*** Update File: link\n*** Move to: new".to_owned(),
                "link is a link that leads to src/f.",
            ),
            (
                "*** Update File: link\n*** Move to: new\n@@\n-a\n+b".to_owned(),
                "link is a link that leads to src/f.",
            ),
            (
                "*** Update File: src/f\n*** Move to: dangling".to_owned(),
                "dangling is a link that leads to nowhere.",
            ),
            (
                "*** Update File: src/f\n*** Move to: link".to_owned(),
                "link is a link that leads to src/f.",
            ),
        ];
        for (body, why) in table {
            let failure = call(&erase(ApplyPatchTool), patch(&body), &context)
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains(why) && failure.contains("by their own names only"),
                "{body}: {failure}"
            );
        }
        assert_eq!(
            (fixture.read("link"), fixture.read("out")),
            (b"a\n".to_vec(), b"a\n".to_vec())
        );
        // A link to a directory may be part of the path of a file. A change through a link applies
        // to the file.
        look(&context, &["out", "src/f"]).await;
        call(
            &erase(ApplyPatchTool),
            patch("*** Update File: in/f\n*** Move to: in/g"),
            &context,
        )
        .await
        .unwrap();
        call(
            &erase(ApplyPatchTool),
            patch("*** Update File: out\n@@\n-a\n+b"),
            &context,
        )
        .await
        .unwrap();
        call(
            &erase(ApplyPatchTool),
            patch("*** Delete File: in/g"),
            &context,
        )
        .await
        .unwrap();
        assert!(!fixture.cwd().join("src/f").exists() && !fixture.cwd().join("src/g").exists());
        assert_eq!(std::fs::read(fixture.outside().join("o")).unwrap(), b"b\n");
    }

    #[tokio::test]
    async fn replaced_file_keeps_its_line_ends() {
        let fixture = TestProject::new();
        let context = fixture.context();
        fixture.write("windows", "\u{feff}a\r\nb\r\n");
        fixture.write("anew", "a\r\n");
        look(&context, &["windows", "anew"]).await;
        let body = "*** Add File: windows\n+c\n+d\n*** Delete File: anew\n*** Add File: anew\n+e\n*** Add File: fresh\n+f";
        let (requests, _) = call(&erase(ApplyPatchTool), patch(body), &context)
            .await
            .unwrap();
        assert_eq!(fixture.read("windows"), "\u{feff}c\r\nd\r\n".as_bytes());
        assert_eq!(
            (fixture.read("anew"), fixture.read("fresh")),
            (b"e\r\n".to_vec(), b"f\n".to_vec())
        );
        assert_eq!(requests[0].changes[0].new, "c\r\nd\r\n");
    }

    #[tokio::test]
    async fn failing_write_undoes_the_others() {
        let fixture = TestProject::new();
        fixture.write("a", "1\n");
        fixture.write("dir/b", "2\n");
        for way in [None, Some(EditorReply::Saves)] {
            let context = way.map_or_else(|| fixture.context(), |way| fixture.with_editor(way).0);
            look(&context, &["a", "dir/b"]).await;
            let body =
                "*** Update File: a\n@@\n-1\n+one\n*** Add File: c\n+new\n*** Delete File: dir/b";
            let prepared = erase(ApplyPatchTool)
                .prepare(patch(body), &context)
                .await
                .unwrap();
            set_mode(&fixture, "dir/b", 0o444);
            let failure = (prepared.run)(context.clone())
                .await
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains("Cannot delete dir/b: it is read-only")
                    && failure.contains("as they were"),
                "{failure}"
            );
            assert_eq!(
                (fixture.read("a"), fixture.read("dir/b")),
                (b"1\n".to_vec(), b"2\n".to_vec())
            );
            assert!(!fixture.cwd().join("c").exists());
            set_mode(&fixture, "dir/b", 0o644);
        }
    }
}
