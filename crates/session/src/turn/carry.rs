//! What a summary must not lose: that the model plans, its todo list, the skills and the instruction files it
//! has loaded, what runs in the background. It stands beside the summary, in the message that asked for that.

use std::path::{Path, PathBuf};

use super::{History, TurnContext, jobs, remind};
use project::instruction::InstructionText;
use project::skill::Skill;
use tools::Tool as _;
use tools::skill::SkillTool;
use transcript::{CallState, Compaction, Message};

/// What skills and instruction files may take together, in bytes. What does not fit is named.
const LARGEST: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Carried {
    skills: Vec<String>,
    loaded: Vec<PathBuf>,
    texts: Vec<String>,
}

/// What of these messages, which are summarised, holds on. A request may take `usable` tokens.
pub(super) async fn carried(messages: &History, scope: &TurnContext, usable: u64) -> Carried {
    let (mut skills, mut loaded) = (Vec::new(), Vec::new());
    for message in &messages.messages {
        if let Some(Compaction { skills: before, loaded: files, .. }) = message.compaction() {
            skills.extend(before.iter().cloned());
            loaded.extend(files.iter().cloned());
        }
        for call in message.calls() {
            let CallState::Completed(done) = &call.state else { continue };
            loaded.extend(done.facts.loaded.iter().cloned());
            if call.tool == SkillTool::NAME
                && let Some(name) = call.input.get("name").and_then(|name| name.as_str())
            {
                skills.push(name.trim().to_owned());
            }
        }
    }
    let known = scope.project.background.skills.clone();
    // A token is two bytes at the least.
    let room = usize::try_from(usable / 2).unwrap_or(usize::MAX).min(LARGEST);
    let read = move || texts(once(skills), once(loaded), |name| known.get(name).map(Skill::loaded), room);
    let mut carried = base::task::spawn_blocking(read).await.unwrap_or_default();
    for text in &mut carried.texts {
        *text = scope.mark.data(std::mem::take(text));
    }
    carried
}

/// Each one once, in the order of its last mention.
fn once<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all.into_iter().rev() {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept.reverse();
    kept
}

/// What was loaded, as it is now: the latest first, as far as there is room.
fn texts(skills: Vec<String>, loaded: Vec<PathBuf>, skill: impl Fn(&str) -> Option<String>, room: usize) -> Carried {
    let mut carried = Carried::default();
    let (mut left, mut named) = (room, Vec::new());
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
        // What is gone by now does not hold any more.
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
        carried.texts.push(format!("There is no room for {}. Load it again where you need it.", named.join(", ")));
    }
    carried
}

fn instructions(path: &Path) -> Option<String> {
    let text = base::file::read_regular_text(path).ok()?;
    let source = path.display().to_string();
    Some(InstructionText { source, path: Some(path.to_owned()), text }.block())
}

impl Carried {
    /// The compaction that says what is carried on.
    pub(super) fn in_compaction(&mut self, compaction: Compaction) -> Compaction {
        let (skills, loaded) = (std::mem::take(&mut self.skills), std::mem::take(&mut self.loaded));
        Compaction { skills, loaded, ..compaction }
    }

    /// The notes that stand beside the summary.
    pub(super) fn notes(self, scope: &TurnContext, agent: &str) -> Vec<String> {
        let mut notes: Vec<String> = remind::mode(agent).map(str::to_owned).into_iter().collect();
        let todos = scope.resources.todos.get();
        if !todos.is_empty()
            && let Ok(list) = serde_json::to_string(&todos)
        {
            notes.push(format!("{}\n\n{list}", prompts::reminder::TODOS));
        }
        if !self.texts.is_empty() {
            notes.push(format!("{}\n\n{}", prompts::reminder::LOADED, self.texts.join("\n\n")));
        }
        notes.extend(jobs::running(scope));
        notes
    }
}

/// The instruction files that stand beside the summary a model sees.
pub(super) fn beside(summary: Option<(&Message, &Message)>) -> impl Iterator<Item = PathBuf> {
    let compaction = summary.and_then(|(asked, _)| asked.compaction());
    compaction.into_iter().flat_map(|compaction| compaction.loaded.iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_carried_on_as_far_as_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: usize| {
            let path = dir.path().join(name);
            std::fs::write(&path, "x".repeat(bytes)).unwrap();
            path
        };
        let (old, new, gone) = (file("old", 9_000), file("new", 500), dir.path().join("gone"));
        let skill = |name: &str| (name != "removed").then(|| format!("<skill_content name=\"{name}\">"));
        let skills = once(vec!["a".to_owned(), "b".to_owned(), "a".to_owned(), "removed".to_owned()]);
        assert_eq!(skills, ["b", "a", "removed"]);
        let carried = texts(skills, vec![old.clone(), new.clone(), gone], skill, 2_000);
        assert_eq!((&carried.loaded, &carried.skills), (&vec![new], &vec!["a".to_owned(), "b".to_owned()]));
        let all = carried.texts.join("\n");
        assert!(all.contains("Instructions from: ") && all.contains("<skill_content name=\"a\">"), "{all}");
        assert!(all.ends_with(&format!("There is no room for {}. Load it again where you need it.", old.display())));
    }
}
