//! State that a summary must not lose: the plan mode, the todo list, the loaded skills and
//! instruction files, the background jobs. It is stored next to the summary, in the message that
//! requested the summary.

use std::path::{Path, PathBuf};

use super::{History, TurnContext, jobs, remind, tool_context};
use permission::search_filter::SearchFilter;
use project::agent::Agent;
use project::instruction::{self, InstructionText};
use project::skill::Skill;
use tools::Tool as _;
use tools::skill::SkillTool;
use transcript::{CallState, Compaction, Message};

/// The size of skills and instruction files together, in bytes. Those that do not fit are only
/// named.
const MAX_CARRIED_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Carried {
    skills: Vec<String>,
    loaded: Vec<PathBuf>,
    texts: Vec<String>,
}

/// Collects the state from messages that are summarised. A request may have `usable` tokens.
pub(super) async fn carried(
    messages: &History,
    scope: &TurnContext,
    agent: &Agent,
    usable: u64,
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
        loaded.extend(super::call::loaded_by(message).cloned());
        for call in message.calls() {
            if matches!(call.state, CallState::Completed(_))
                && call.tool == SkillTool::NAME
                && let Some(name) = call.input.get("name").and_then(|name| name.as_str())
            {
                skills.push(name.trim().to_owned());
            }
        }
    }
    let known = scope.project.background.skills.clone();
    // A token has at least two bytes.
    let room = usize::try_from(usable / 2)
        .unwrap_or(usize::MAX)
        .min(MAX_CARRIED_BYTES);
    let sight = SearchFilter::new(&tool_context::policy(scope, agent));
    let environment = scope.environment.clone();
    let worktree = scope.project.worktree.clone();
    let read = move || {
        texts(
            once(skills),
            once(loaded),
            |path| {
                instruction::reread(path, &environment, &worktree, &sight)
                    .map(|entry| InstructionText::block(&entry))
            },
            |name| known.get(name).map(Skill::loaded),
            room,
        )
    };
    let mut carried = base::task::spawn_blocking(read).await.unwrap_or_default();
    for text in &mut carried.texts {
        *text = scope.mark.data(std::mem::take(text));
    }
    carried
}

/// Removes duplicates, and sorts by the last occurrence.
fn once<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut unique: Vec<T> = Vec::new();
    for one in all.into_iter().rev() {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique.reverse();
    unique
}

/// Reads the present texts of skills and instruction files, the latest first, as far as there is
/// room.
fn texts(
    skills: Vec<String>,
    loaded: Vec<PathBuf>,
    instructions: impl Fn(&Path) -> Option<String>,
    skill: impl Fn(&str) -> Option<String>,
    room: usize,
) -> Carried {
    let mut carried = Carried::default();
    let mut left = room;
    let mut named = Vec::new();
    let mut take = |text: String, name: String| {
        if text.len() <= left {
            left -= text.len();
            carried.texts.push(text);
            true
        } else {
            named.push(name);
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
    if !named.is_empty() {
        carried.texts.push(format!(
            "There is no room for {}. Load it again where you need it.",
            named.join(", ")
        ));
    }
    carried
}

impl Carried {
    /// Adds the names of the carried skills and files to a compaction.
    pub(super) fn in_compaction(&mut self, compaction: Compaction) -> Compaction {
        let skills = std::mem::take(&mut self.skills);
        let loaded = std::mem::take(&mut self.loaded);
        Compaction {
            skills,
            loaded,
            ..compaction
        }
    }

    /// Returns the notes that follow the compaction.
    pub(super) fn notes(self, scope: &TurnContext, agent: &str) -> Vec<String> {
        let mut notes: Vec<String> = remind::mode(agent).map(str::to_owned).into_iter().collect();
        let todos = scope.resources.todos.get();
        if !todos.is_empty()
            && let Ok(list) = serde_json::to_string(&todos)
        {
            notes.push(format!("{}\n\n{list}", prompts::reminder::TODOS));
        }
        if !self.texts.is_empty() {
            notes.push(format!(
                "{}\n\n{}",
                prompts::reminder::LOADED,
                self.texts.join("\n\n")
            ));
        }
        notes.extend(jobs::running(scope));
        notes
    }
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
        let skills = once(vec![
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
        let carried = texts(skills, loaded, instructions, skill, 2_000);
        assert_eq!(carried.loaded, vec![new]);
        assert_eq!(carried.skills, vec!["a".to_owned(), "b".to_owned()]);
        let all = carried.texts.join("\n");
        assert!(all.contains("Instructions from: "), "{all}");
        assert!(all.contains("<skill_content name=\"a\">"), "{all}");
        assert!(all.ends_with(&format!(
            "There is no room for {}. Load it again where you need it.",
            old.display()
        )));
    }
}
