//! Adds instruction files (such as `AGENTS.md`) of the directories in which the model works to the
//! results of calls. Each is added once, to the first result that shows a file below its directory,
//! or of a call that runs there. A change below the directory of a file that the model has not seen
//! is not made before it has.
//!
//! Of the concurrent calls of a message, only the first to claim a file adds it.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::{ToolContext, ToolOutput};
use base::lock::lock;
use base::text::mark::ReminderMark;
use events::{Event, Severity};
use permission::search_filter::SearchFilter;
use project::instruction::{self, InstructionText};
use transcript::CallFacts;

/// Instruction files for all but the first of a result's paths may add one part in this number of
/// the maximum bytes of a result: a search may show files of many directories.
const RESULT_PARTS: usize = 4;

/// A path that a call has shown, changed or worked in; absolute, in the session's spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TouchedPath {
    File(PathBuf),
    Directory(PathBuf),
}

impl TouchedPath {
    /// Returns the directory whose instructions apply.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::File(path) => path.parent(),
            Self::Directory(path) => Some(path),
        }
    }

    /// Returns whether this is the file of that path, whose text needs no second copy.
    fn is_file(&self, path: &Path) -> bool {
        matches!(self, Self::File(own) if own == path)
    }
}

/// The instruction files in the model's context, for the calls of one message. The mutex is a leaf
/// lock around two sets.
#[derive(Debug, Default)]
pub struct LoadedInstructions(Mutex<LoadedFiles>);

/// The instruction files that need not be added.
#[derive(Debug, Default)]
struct LoadedFiles {
    /// The files that the model had seen when it wrote the message, or that it wrote in it.
    seen: HashSet<PathBuf>,
    /// The files that results of the message add.
    claimed: HashSet<PathBuf>,
}

impl LoadedInstructions {
    /// Returns the state at the beginning of a message that the model wrote after it had `seen`
    /// these files.
    pub fn new(seen: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(Mutex::new(LoadedFiles {
            seen: seen.into_iter().collect(),
            claimed: HashSet::new(),
        }))
    }

    /// Claims a file; returns false if the model has it, or gets it with another result.
    fn claim(&self, path: &Path) -> bool {
        let mut loaded = lock(&self.0);
        !loaded.seen.contains(path) && loaded.claimed.insert(path.to_path_buf())
    }

    /// Returns whether the model has the file, or gets it with a result of the message.
    fn is_taken(&self, path: &Path) -> bool {
        let loaded = lock(&self.0);
        loaded.seen.contains(path) || loaded.claimed.contains(path)
    }

    /// Returns whether the model had the file when it wrote the message.
    fn is_seen(&self, path: &Path) -> bool {
        lock(&self.0).seen.contains(path)
    }

    /// Records a file that the model has written. Returns false if it is recorded already.
    fn record_written(&self, path: &Path) -> bool {
        lock(&self.0).seen.insert(path.to_path_buf())
    }
}

/// The problems of instruction files that the user has been notified of, for a session. The mutex
/// is a leaf lock around a set.
#[derive(Debug, Default)]
pub struct NotifiedProblems(Mutex<BTreeSet<String>>);

impl NotifiedProblems {
    /// Notifies the user of those problems that are new.
    async fn notify(&self, problems: Vec<config::Problem>, context: &ToolContext) {
        for title in problems.iter().map(ToString::to_string) {
            if !lock(&self.0).insert(title.clone()) {
                continue;
            }
            context
                .client
                .event_sender
                .event(Event::Notice {
                    severity: Severity::Warning,
                    title,
                    details: None,
                })
                .await;
        }
    }
}

/// Adds to a result the instructions that apply to its paths, and records those that the call
/// itself has shown or written. Blocks on file access.
pub async fn add(output: &mut ToolOutput, context: &ToolContext) {
    let touched = std::mem::take(&mut output.touched);
    let instructions = &context.call.instructions;
    let written = output
        .changes
        .iter()
        .filter(|change| change.old.is_none() && !change.deleted)
        .map(|change| PathBuf::from(&change.path))
        .filter(|path| {
            instruction::has_instruction_name(path) && instructions.record_written(path)
        });
    output.facts.loaded.extend(written);
    if output.shows_whole_file
        && let [TouchedPath::File(path)] = &touched[..]
        && instruction::has_instruction_name(path)
        && instructions.claim(path)
    {
        output.facts.loaded.push(path.clone());
    }
    let mut available = context.limits.bytes / RESULT_PARTS;
    let mut asked: HashSet<PathBuf> = HashSet::new();
    let mut left_out: HashSet<PathBuf> = HashSet::new();
    let mut taken: Vec<InstructionText> = Vec::new();
    for (index, path) in touched.iter().enumerate() {
        let Some(dir) = path.directory() else {
            continue;
        };
        if !asked.insert(dir.to_path_buf()) {
            continue;
        }
        let is_known = |candidate: &Path| {
            path.is_file(candidate)
                || left_out.contains(candidate)
                || instructions.is_taken(candidate)
        };
        for entry in applicable(dir, context, &is_known).await {
            let source = PathBuf::from(&entry.source);
            if index > 0 && entry.text.len() > available {
                left_out.insert(source);
                continue;
            }
            available = available.saturating_sub(entry.text.len());
            if instructions.claim(&source) {
                taken.push(entry);
            }
        }
    }
    if taken.is_empty() {
        return;
    }
    output.instructions = ProjectInstructions::new(&taken, context);
    output.facts.loaded.extend(sources(taken));
}

/// Instruction files as a result shows them: introduced by adjutant's own note, outside of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProjectInstructions {
    /// The introduction, for adjutant's note to the model.
    pub introduction: String,
    /// The text of the files, by the project's authors.
    pub text: String,
}

impl ProjectInstructions {
    fn new(entries: &[InstructionText], context: &ToolContext) -> Self {
        let dirs: Vec<String> = entries
            .iter()
            .map(|entry| {
                let source = Path::new(&entry.source);
                let dir = source.parent().unwrap_or(source);
                base::text::escaped(&context.relative(dir))
            })
            .collect();
        Self {
            introduction: format!("The project's instructions for {} follow.", dirs.join(", ")),
            text: blocks(entries),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the text for the model, which has neither the session's mark nor tags of notes.
    pub fn quoted(&self, mark: &ReminderMark) -> String {
        mark.quoted(&self.text)
    }
}

/// The reason why a change has to wait: instructions apply that the model has not seen.
#[derive(Debug, Default, PartialEq)]
pub struct UnseenInstructions {
    /// The instruction files.
    pub files: Vec<PathBuf>,
    /// The instructions that no other result of the message has.
    pub instructions: ProjectInstructions,
    /// The facts of the call that returns them.
    pub facts: CallFacts,
}

/// Returns the instructions that apply to changes of these files and that the model has not seen;
/// `None` if there are none. Blocks on file access.
pub async fn unseen(paths: &[PathBuf], context: &ToolContext) -> Option<UnseenInstructions> {
    let instructions = &context.call.instructions;
    let mut found: Vec<InstructionText> = Vec::new();
    for path in paths {
        let Some(dir) = path.parent() else {
            continue;
        };
        let is_known = |candidate: &Path| {
            candidate == path
                || instructions.is_seen(candidate)
                || found
                    .iter()
                    .any(|entry| Path::new(&entry.source) == candidate)
        };
        let more = applicable(dir, context, &is_known).await;
        found.extend(more);
    }
    if found.is_empty() {
        return None;
    }
    let files = found.iter().map(|entry| (&entry.source).into()).collect();
    found.retain(|entry| instructions.claim(Path::new(&entry.source)));
    let instructions = ProjectInstructions::new(&found, context);
    let facts = CallFacts {
        loaded: sources(found).collect(),
        // The call may be sent again as it is, which is not a repetition.
        has_new_information: Some(true),
        ..CallFacts::default()
    };
    Some(UnseenInstructions {
        files,
        instructions,
        facts,
    })
}

impl UnseenInstructions {
    /// Returns the answer to a change that is not made because of them.
    pub fn refusal(&self, context: &ToolContext) -> String {
        let names: Vec<String> = self
            .files
            .iter()
            .map(|path| base::text::escaped(&context.relative(path)))
            .collect();
        let argument = if self.instructions.is_empty() {
            "They come with another result of this message."
        } else {
            "They follow."
        };
        format!(
            "Nothing was changed yet, because instructions apply here that you had not seen ({}). {argument} If the call agrees with them, send it again as it is.",
            names.join(", ")
        )
    }
}

/// Returns the instructions that apply in a directory, except those for which `is_known` is true.
/// Notifies the user of files that are not read.
async fn applicable(
    dir: &Path,
    context: &ToolContext,
    is_known: &(dyn Fn(&Path) -> bool + Sync),
) -> Vec<InstructionText> {
    let found = instruction::instructions_in(
        dir,
        &context.project.cwd,
        &context.project.environment,
        &context.project.worktree,
        &SearchFilter::new(&context.policy),
        &|path| is_known(path),
    );
    context
        .session
        .instruction_problems
        .notify(found.problems, context)
        .await;
    found.entries
}

fn blocks(entries: &[InstructionText]) -> String {
    let blocks: Vec<String> = entries.iter().map(InstructionText::block).collect();
    blocks.join("\n\n")
}

fn sources(entries: Vec<InstructionText>) -> impl Iterator<Item = PathBuf> {
    entries.into_iter().map(|entry| entry.source.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;

    fn fixture() -> TestProject {
        let fixture = TestProject::new();
        for (path, text) in [
            ("AGENTS.md", "root"),
            ("web/AGENTS.md", "web rules"),
            ("web/forms/CLAUDE.md", "form rules"),
            ("api/AGENTS.md", "api rules"),
            ("web/forms/a.js", ""),
        ] {
            fixture.write(path, text);
        }
        fixture
    }

    fn context(fixture: &TestProject, seen: &[&str]) -> ToolContext {
        let mut context = fixture.context();
        let seen = seen.iter().map(|path| fixture.cwd().join(path));
        context.call.instructions = std::sync::Arc::new(LoadedInstructions::new(seen));
        context
    }

    #[tokio::test]
    async fn results_bring_each_instruction_file_once() {
        let fixture = fixture();
        let file = |path: &str| TouchedPath::File(fixture.cwd().join(path));
        let dir = |path: &str| TouchedPath::Directory(fixture.cwd().join(path));
        // The files that the model has seen, the touched paths, the files that come.
        let table: [(&[&str], Vec<TouchedPath>, &[&str]); 8] = [
            (&[], vec![file("x.js")], &[]),
            (&[], vec![file("web/x.js")], &["web/AGENTS.md"]),
            (&[], vec![dir("web")], &["web/AGENTS.md"]),
            (&[], vec![file("web/AGENTS.md")], &[]),
            (
                &[],
                vec![
                    file("web/forms/a.js"),
                    file("web/forms/b.js"),
                    file("api/c"),
                ],
                &["web/forms/CLAUDE.md", "web/AGENTS.md", "api/AGENTS.md"],
            ),
            (
                &["web/AGENTS.md"],
                vec![file("web/forms/a.js")],
                &["web/forms/CLAUDE.md"],
            ),
            (&["web/AGENTS.md"], vec![dir("web")], &[]),
            (&[], vec![file("../outside/a"), dir("new/deep")], &[]),
        ];
        for (seen, touched, expected) in table {
            let context = context(&fixture, seen);
            let shown = format!("{touched:?}");
            let mut output = ToolOutput {
                touched,
                note: "Exit code: 1".into(),
                ..ToolOutput::default()
            };
            add(&mut output, &context).await;
            let expected: Vec<PathBuf> = expected
                .iter()
                .map(|path| fixture.cwd().join(path))
                .collect();
            assert_eq!(output.facts.loaded, expected, "{shown}");
            let instructions = &output.instructions;
            let blocks = instructions.text.matches("Instructions from: ").count();
            assert_eq!(blocks, expected.len(), "{shown}: {}", instructions.text);
            assert_eq!(output.note, "Exit code: 1");
            let mut again = ToolOutput {
                touched: vec![file("web/forms/a.js"), file("web/x.js"), file("api/c")],
                ..ToolOutput::default()
            };
            add(&mut again, &context).await;
            let twice = expected
                .iter()
                .filter(|path| again.facts.loaded.contains(path));
            assert_eq!(twice.count(), 0, "{shown}");
        }
    }

    #[tokio::test]
    async fn wide_search_brings_what_fits() {
        let fixture = TestProject::new();
        let long = "x".repeat(1_000);
        for name in ["a", "b", "c", "d"] {
            fixture.write(&format!("{name}/AGENTS.md"), &long);
        }
        fixture.write("e/AGENTS.md", "short");
        let mut context = fixture.context();
        context.limits.bytes = 8_200;
        let mut output = ToolOutput {
            touched: ["a", "b", "c", "d", "e"]
                .iter()
                .map(|name| TouchedPath::File(fixture.cwd().join(name).join("f")))
                .collect(),
            ..ToolOutput::default()
        };
        add(&mut output, &context).await;
        let loaded: Vec<String> = output
            .facts
            .loaded
            .iter()
            .map(|path| context.relative(path))
            .collect();
        assert_eq!(loaded, ["a/AGENTS.md", "b/AGENTS.md", "e/AGENTS.md"]);
    }

    #[tokio::test]
    async fn change_waits_until_instructions_are_seen() {
        let fixture = fixture();
        let path = |path: &str| fixture.cwd().join(path);
        let unseen_of = async |context: &ToolContext, paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(|name| path(name)).collect();
            unseen(&paths, context).await
        };
        let context = context(&fixture, &["web/AGENTS.md"]);
        for free in [&["x"][..], &["web/a"], &["web/AGENTS.md"], &["new/a"], &[]] {
            assert_eq!(unseen_of(&context, free).await, None, "{free:?}");
        }
        let found = unseen_of(&context, &["web/a", "web/forms/a.js", "api/new/b"])
            .await
            .unwrap();
        assert_eq!(
            found.files,
            [path("web/forms/CLAUDE.md"), path("api/AGENTS.md")]
        );
        assert_eq!(found.facts.loaded, found.files);
        let text = &found.instructions.text;
        assert!(text.contains("form rules") && text.contains("api rules"));
        assert_eq!(
            found.instructions.introduction,
            "The project's instructions for web/forms, api follow."
        );
        assert!(
            found
                .refusal(&context)
                .contains("(web/forms/CLAUDE.md, api/AGENTS.md). They follow.")
        );
        // The model has still not seen them: they are on their way.
        let other = unseen_of(&context, &["api/c"]).await.unwrap();
        assert!(other.instructions.is_empty() && other.facts.loaded.is_empty());
        assert!(other.refusal(&context).contains("with another result"));
    }

    #[tokio::test]
    async fn file_that_the_model_wrote_is_seen() {
        let fixture = fixture();
        let context = context(&fixture, &[]);
        let change = |old: Option<&str>| transcript::Change {
            path: fixture.cwd().join("api/AGENTS.md").display().to_string(),
            old: old.map(Into::into),
            new: "mine".into(),
            deleted: false,
            part: None,
        };
        let paths = [fixture.cwd().join("api/a")];
        let mut output = ToolOutput {
            changes: vec![change(Some("theirs"))],
            ..ToolOutput::default()
        };
        add(&mut output, &context).await;
        assert!(output.facts.loaded.is_empty());
        output.changes = vec![change(None)];
        add(&mut output, &context).await;
        assert_eq!(output.facts.loaded, [fixture.cwd().join("api/AGENTS.md")]);
        assert_eq!(unseen(&paths, &context).await, None);
    }
}
