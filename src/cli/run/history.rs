//! The prompts that were typed in earlier conversations of a project, for the keys that recall them.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::environment::{Environment, private_dir, private_log_at, write_private_file};
use base::file::read_small;
use serde::{Deserialize, Serialize};

/// The most prompts of a project that can be recalled.
const MAX_PROMPTS: usize = 1_000;
/// The size at which the older half of the file is deleted.
const MAX_FILE_BYTES: usize = 1 << 20;
/// A longer prompt is not stored: it was pasted.
const MAX_STORED_BYTES: usize = 16 << 10;
/// The largest file that is read; other processes may add to a full one.
const MAX_READ_BYTES: u64 = 8 << 20;

/// A line of the file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPrompt {
    /// The root of the project.
    project: PathBuf,
    prompt: String,
}

/// The prompts of a project, and the file in the state directory that has those of all projects. The
/// file is private, as the sessions are.
#[derive(Debug)]
pub(super) struct PromptHistory {
    project: PathBuf,
    file: PathBuf,
    /// Oldest first.
    prompts: Vec<String>,
}

impl PromptHistory {
    /// Reads the prompts of a project. A file that cannot be read counts as empty. Blocks on file
    /// access.
    pub(super) fn read(project: &Path, environment: &Environment) -> Self {
        let file = environment.dirs.state.join("prompts.jsonl");
        let stored = read_small(&file, MAX_READ_BYTES).unwrap_or_default();
        let mut history = Self {
            project: project.to_owned(),
            file,
            prompts: Vec::new(),
        };
        for line in stored.split(|byte| *byte == b'\n') {
            let stored: Result<StoredPrompt, _> = serde_json::from_slice(line);
            if let Ok(stored) = stored
                && stored.project == history.project
            {
                history.push(stored.prompt);
            }
        }
        history
    }

    /// Returns the prompts, oldest first.
    pub(super) fn prompts(&self) -> Arc<[String]> {
        self.prompts.as_slice().into()
    }

    /// Adds a prompt, also to the file. A prompt that repeats the last one is not added. Blocks on
    /// file access.
    pub(super) fn add(&mut self, prompt: &str) {
        if !self.push(prompt.to_owned()) || prompt.len() > MAX_STORED_BYTES {
            return;
        }
        if let Err(e) = self.store(prompt) {
            tracing::info!("a prompt is not stored for later conversations: {e}");
        }
    }

    fn push(&mut self, prompt: String) -> bool {
        if prompt.is_empty() || self.prompts.last() == Some(&prompt) {
            return false;
        }
        if self.prompts.len() == MAX_PROMPTS {
            self.prompts.remove(0);
        }
        self.prompts.push(prompt);
        true
    }

    fn store(&self, prompt: &str) -> io::Result<()> {
        if let Some(directory) = self.file.parent() {
            private_dir(directory)?;
        }
        let stored = StoredPrompt {
            project: self.project.clone(),
            prompt: prompt.to_owned(),
        };
        let mut line = serde_json::to_vec(&stored)?;
        line.push(b'\n');
        let mut file = private_log_at(&self.file)?;
        // One write, so that the lines of several processes do not mix.
        file.write_all(&line)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if size > MAX_FILE_BYTES {
            let all = read_small(&self.file, MAX_READ_BYTES)?;
            write_private_file(&self.file, newer_half(&all))?;
        }
        Ok(())
    }
}

/// Returns the whole lines of the second half of a file.
fn newer_half(all: &[u8]) -> &[u8] {
    let half = &all[all.len() / 2..];
    let end = half.iter().position(|byte| *byte == b'\n');
    end.map_or(&[], |end| &half[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(directory: &Path) -> Environment {
        let home = directory.to_string_lossy().into_owned();
        Environment::from_vars([("HOME".to_owned(), home)].into())
    }

    #[test]
    fn prompts_of_a_project_are_read_again() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path());
        let one = Path::new("/one");
        let mut history = PromptHistory::read(one, &environment);
        for prompt in ["first", "two\nlines", "two\nlines", ""] {
            history.add(prompt);
        }
        PromptHistory::read(Path::new("/other"), &environment).add("of the other");
        let again = PromptHistory::read(one, &environment);
        assert_eq!(again.prompts, ["first", "two\nlines"]);
        let file = environment.dirs.state.join("prompts.jsonl");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(file).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn file_has_a_size() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path());
        let mut history = PromptHistory::read(Path::new("/one"), &environment);
        for number in 0..200 {
            history.add(&format!("{number} {}", "x".repeat(10_000)));
        }
        let file = environment.dirs.state.join("prompts.jsonl");
        assert!(std::fs::metadata(file).unwrap().len() <= (MAX_FILE_BYTES as u64));
        let again = PromptHistory::read(Path::new("/one"), &environment);
        assert!(again.prompts.last().unwrap().starts_with("199 "));
    }

    #[test]
    fn half_begins_with_a_line() {
        assert_eq!(newer_half(b"one\ntwo\nthree\n"), b"three\n");
        assert_eq!(newer_half(b"one line"), b"");
    }
}
