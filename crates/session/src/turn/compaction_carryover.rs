//! State that a summary must not lose: the plan mode, the todo list, the loaded skills and
//! instruction files, the background jobs. It is stored next to the summary, in the message that
//! requested the summary.

use std::path::{Path, PathBuf};

use super::step_context::StepContext;
use super::{History, TurnContext, jobs, remind, tool_context};
use permission::search_filter::SearchFilter;
use project::instruction::{self, InstructionText};
use project::skill::Skill;
use tools::Tool as _;
use tools::conversation::skill::SkillTool;
use transcript::{CallState, Compaction, Content, Message, Text, Todo, TodoStatus};

/// The size of skills and instruction files together, in bytes. Those that do not fit are only
/// named.
const MAX_CARRIED_BYTES: usize = 64 << 10;

/// Bytes of carried text for each free token. Fewer than a token usually has.
const BYTES_PER_TOKEN: u64 = 3;

#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Adjutant's own notes.
    notes: Vec<String>,
    skills: Vec<String>,
    loaded: Vec<PathBuf>,
    /// The texts of skills and instruction files.
    texts: Vec<String>,
    /// The names of those that do not fit.
    left_out: Vec<String>,
}

/// Returns the instruction files that visible results of a message contain: of the model's calls,
/// and of those that were made for a prompt.
pub(super) fn loaded_by(message: &Message) -> impl Iterator<Item = &PathBuf> {
    let facts = message
        .answer()
        .iter()
        .filter_map(|part| match &part.content {
            Content::Tool(call) => Some(&call.state),
            _ => None,
        })
        .filter_map(|state| match state {
            CallState::Completed(done) if done.cleared.is_some() => None,
            state => state.facts(),
        });
    facts.flat_map(|facts| &facts.loaded)
}

/// Collects the state from messages that are summarised, of at most this many tokens.
pub(super) async fn collect(
    messages: &History,
    turn: &TurnContext,
    step: &StepContext,
    available: u64,
) -> Carried {
    let mut skills = Vec::new();
    let mut loaded = Vec::new();
    for message in &messages.messages {
        if let Some(Compaction {
            skills: before,
            loaded: files,
            ..
        }) = message.compaction()
        {
            skills.extend(before.iter().cloned());
            loaded.extend(files.iter().cloned());
        }
        loaded.extend(loaded_by(message).cloned());
        for call in message.calls() {
            if matches!(call.state, CallState::Completed(_))
                && call.tool == SkillTool::NAME
                && let Some(name) = call.input.get("name").and_then(|name| name.as_str())
            {
                skills.push(name.trim().to_owned());
            }
        }
    }
    let known = turn.project.system_prompt_parts.skills.clone();
    let mut available = usize::try_from(available * BYTES_PER_TOKEN)
        .unwrap_or(usize::MAX)
        .min(MAX_CARRIED_BYTES);
    let own = [
        remind::mode(&step.agent.name).map(str::to_owned),
        todo_note(&turn.session.shared.todos.get(), available / 2),
        jobs::running_jobs_note(turn),
    ];
    let notes: Vec<String> = own.into_iter().flatten().collect();
    available = available.saturating_sub(notes.iter().map(String::len).sum());
    let filter = SearchFilter::new(&tool_context::policy(turn, step));
    let environment = turn.session.common.environment.clone();
    let worktree = turn.project.context.worktree.clone();
    let read = move || {
        read_texts(
            unique_by_last(skills),
            unique_by_last(loaded),
            |path| {
                instruction::reread(path, &environment, &worktree, &filter)
                    .map(|entry| InstructionText::block(&entry))
            },
            |name| known.get(name).map(Skill::loaded),
            available,
        )
    };
    let mut carried = base::task::spawn_blocking(read).await.unwrap_or_default();
    carried.notes = notes;
    for text in &mut carried.texts {
        *text = turn.session.mark.quoted(text);
    }
    carried
}

/// Removes duplicates, and sorts by the last occurrence.
fn unique_by_last<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut unique: Vec<T> = Vec::new();
    for item in all.into_iter().rev() {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique.reverse();
    unique
}

/// Reads the present texts of skills and instruction files, the latest first, as far as they
/// fit.
fn read_texts(
    skills: Vec<String>,
    loaded: Vec<PathBuf>,
    instructions: impl Fn(&Path) -> Option<String>,
    skill: impl Fn(&str) -> Option<String>,
    available: usize,
) -> Carried {
    let mut carried = Carried::default();
    let mut left = available;
    let mut take = |text: String, name: String| {
        if text.len() <= left {
            left -= text.len();
            carried.texts.push(text);
            true
        } else {
            carried.left_out.push(name);
            false
        }
    };
    for path in loaded.into_iter().rev() {
        // A file that is deleted or denied no longer applies.
        if instructions(&path).is_some_and(|text| take(text, path.display().to_string())) {
            carried.loaded.push(path);
        }
    }
    for name in skills.into_iter().rev() {
        if skill(&name).is_some_and(|text| take(text, format!("the skill {name}"))) {
            carried.skills.push(name);
        }
    }
    carried
}

impl Carried {
    /// Adds the names of the carried skills and files to a compaction.
    pub(super) fn add_names_to(&mut self, compaction: Compaction) -> Compaction {
        let skills = std::mem::take(&mut self.skills);
        let loaded = std::mem::take(&mut self.loaded);
        Compaction {
            skills,
            loaded,
            ..compaction
        }
    }

    /// Returns the notes that follow the compaction. Texts by others are outside of them.
    pub(super) fn into_notes(self) -> Vec<Content> {
        let mut content: Vec<Content> = self.notes.iter().map(|note| remind::note(note)).collect();
        if !self.left_out.is_empty() {
            content.push(remind::note(&format!(
                "There is no room for {}. Load it again where you need it.",
                self.left_out.join(", ")
            )));
        }
        if !self.texts.is_empty() {
            content.push(remind::note(prompts::reminder::LOADED));
            let texts = Text {
                text: self.texts.join("\n\n").into(),
                synthetic: true,
                ..Text::default()
            };
            content.push(Content::Text(texts));
        }
        content
    }
}

/// Returns the note with the todo list. If the list is longer than `available` bytes, it has the open
/// entries that fit.
fn todo_note(todos: &[Todo], available: usize) -> Option<String> {
    let list = serde_json::to_string(todos).ok()?;
    if todos.is_empty() {
        return None;
    }
    if list.len() <= available {
        return Some(format!("{}\n\n{list}", prompts::reminder::TODOS));
    }
    let mut left = available;
    let is_open =
        |todo: &&Todo| matches!(todo.status, TodoStatus::Pending | TodoStatus::InProgress);
    let mut fits = |entry: &String| {
        let rest = left.checked_sub(entry.len() + 1);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let entries: Vec<String> = todos
        .iter()
        .filter(is_open)
        .filter_map(|todo| serde_json::to_string(todo).ok())
        .take_while(|entry| fits(entry))
        .collect();
    Some(format!(
        "{}\n\n[{}]\n\n{} of its entries are left out here.",
        prompts::reminder::TODOS,
        entries.join(","),
        todos.len() - entries.len()
    ))
}

/// Returns the instruction files that were carried over with the summary that the model sees.
pub(super) fn loaded_files(summary: Option<(&Message, &Message)>) -> impl Iterator<Item = PathBuf> {
    let compaction = summary.and_then(|(asked, _)| asked.compaction());
    compaction
        .into_iter()
        .flat_map(|compaction| compaction.loaded.iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn todo_list_has_what_fits() {
        let todo = |content: &str, status: TodoStatus| Todo {
            content: content.into(),
            status,
            priority: transcript::Priority::Medium,
        };
        let todos = [
            todo(&"x".repeat(400), TodoStatus::Completed),
            todo("one", TodoStatus::InProgress),
            todo("two", TodoStatus::Pending),
            todo(&"y".repeat(400), TodoStatus::Pending),
        ];
        assert_eq!(todo_note(&[], 10), None);
        let whole = todo_note(&todos, 10_000).unwrap();
        assert!(whole.contains("xxx") && whole.ends_with(']'), "{whole}");
        let part = todo_note(&todos, 300).unwrap();
        assert!(part.contains("one") && part.contains("two"), "{part}");
        assert!(
            part.ends_with("2 of its entries are left out here."),
            "{part}"
        );
        assert!(!part.contains("xxx") && !part.contains("yyy"), "{part}");
        let none = todo_note(&todos, 0).unwrap();
        assert!(
            none.ends_with("4 of its entries are left out here."),
            "{none}"
        );
    }

    #[test]
    fn latest_texts_are_carried_as_far_as_they_fit() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: usize| {
            let path = dir.path().join(name);
            std::fs::write(&path, "x".repeat(bytes)).unwrap();
            path
        };
        let old = file("old", 9_000);
        let new = file("new", 500);
        let gone = dir.path().join("gone");
        let skill =
            |name: &str| (name != "removed").then(|| format!("<skill_content name=\"{name}\">"));
        let skills = unique_by_last(vec![
            "a".to_owned(),
            "b".to_owned(),
            "a".to_owned(),
            "removed".to_owned(),
        ]);
        assert_eq!(skills, ["b", "a", "removed"]);
        let instructions = |path: &Path| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(format!("Instructions from: {}\n{text}", path.display()))
        };
        let loaded = vec![old.clone(), new.clone(), gone];
        let carried = read_texts(skills, loaded, instructions, skill, 2_000);
        assert_eq!(carried.loaded, vec![new]);
        assert_eq!(carried.skills, vec!["a".to_owned(), "b".to_owned()]);
        let all = carried.texts.join("\n");
        assert!(all.contains("Instructions from: "), "{all}");
        assert!(all.contains("<skill_content name=\"a\">"), "{all}");
        assert_eq!(carried.left_out, [old.display().to_string()]);
    }
}
