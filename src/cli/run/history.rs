//! The prompts that were typed in earlier conversations of a project, for the keys that recall them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::environment::{Environment, private_dir, private_log_at};
use base::file::open_regular;
use serde::{Deserialize, Serialize};

/// The most prompts of a project that can be recalled.
const MAX_PROMPTS: usize = 1_000;
/// The size above which the older half of the file is deleted, and the size of the part that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// A longer prompt is not stored: it was pasted.
const MAX_STORED_BYTES: usize = 16 << 10;

/// A line of the file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPrompt {
    /// The root of the project.
    project: PathBuf,
    prompt: String,
}

/// The prompts of a project, and the file that has those of all projects. The file is in the data
/// directory, which agents cannot read.
#[derive(Debug)]
pub(super) struct PromptHistory {
    project: PathBuf,
    file: PathBuf,
    /// Oldest first.
    prompts: Vec<String>,
    /// The last prompt of the project in the file.
    last_stored: Option<String>,
}

impl PromptHistory {
    /// Reads the prompts of a project. A file that cannot be read counts as empty. Blocks on file
    /// access.
    pub(super) fn read(project: &Path, environment: &Environment) -> Self {
        let file = environment.dirs.data.join("prompts.jsonl");
        let stored = read_last_lines(&file, MAX_FILE_BYTES).unwrap_or_default();
        let mut history = Self {
            project: project.to_owned(),
            file,
            prompts: Vec::new(),
            last_stored: None,
        };
        for line in stored.split(|byte| *byte == b'\n') {
            let stored: Result<StoredPrompt, _> = serde_json::from_slice(line);
            if let Ok(stored) = stored
                && stored.project == history.project
            {
                history.remember(&stored.prompt);
            }
        }
        history.last_stored = history.prompts.last().cloned();
        history
    }

    /// Returns the prompts, oldest first.
    pub(super) fn prompts(&self) -> Arc<[String]> {
        self.prompts.as_slice().into()
    }

    /// Adds a line for this conversation, unless it repeats the last one.
    pub(super) fn remember(&mut self, line: &str) {
        if line.is_empty() || self.prompts.last().is_some_and(|last| last == line) {
            return;
        }
        if self.prompts.len() == MAX_PROMPTS {
            self.prompts.remove(0);
        }
        self.prompts.push(line.to_owned());
    }

    /// Adds a prompt to the file for later conversations, unless it repeats the last one there.
    /// Blocks on file access.
    pub(super) fn store(&mut self, prompt: &str) {
        let is_repeated = self.last_stored.as_deref() == Some(prompt);
        if prompt.is_empty() || is_repeated || prompt.len() > MAX_STORED_BYTES {
            return;
        }
        match self.append(prompt) {
            Ok(()) => self.last_stored = Some(prompt.to_owned()),
            Err(e) => tracing::info!("a prompt is not stored for later conversations: {e}"),
        }
    }

    fn append(&self, prompt: &str) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        private_dir(directory)?;
        let stored = StoredPrompt {
            project: self.project.clone(),
            prompt: prompt.to_owned(),
        };
        let mut line = serde_json::to_vec(&stored)?;
        line.push(b'\n');
        // Another conversation must not add to a file that is being replaced.
        let lock = private_log_at(&directory.join("prompts.lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
        let mut file = private_log_at(&self.file)?;
        file.write_all(&line)?;
        if file.metadata()?.len() > MAX_FILE_BYTES {
            let newer = read_last_lines(&self.file, MAX_FILE_BYTES / 2)?;
            // It is private, and replaces the file at once, so that a reader finds a whole one.
            let mut replacement = tempfile::NamedTempFile::new_in(directory)?;
            replacement.write_all(&newer)?;
            replacement.persist(&self.file)?;
        }
        Ok(())
    }
}

/// Reads the whole lines in the last `max_bytes` of a file.
fn read_last_lines(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut file: File = open_regular(path)?;
    let skipped = file.metadata()?.len().saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    if skipped > 0 {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..end.map_or(bytes.len(), |end| end + 1));
    }
    Ok(bytes)
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
            history.remember(prompt);
            history.store(prompt);
        }
        history.remember("/exit");
        assert_eq!(history.prompts, ["first", "two\nlines", "/exit"]);
        PromptHistory::read(Path::new("/other"), &environment).store("of the other");
        let again = PromptHistory::read(one, &environment);
        assert_eq!(again.prompts, ["first", "two\nlines"]);
        // An agent cannot read the data directory.
        let file = environment.dirs.data.join("prompts.jsonl");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(file).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn full_file_is_replaced_by_its_newer_half() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path());
        let path = environment.dirs.data.join("prompts.jsonl");
        let mut history = PromptHistory::read(Path::new("/one"), &environment);
        history.store("first");
        let before = File::open(&path).unwrap();
        for number in 0..200 {
            history.store(&format!("{number} {}", "x".repeat(10_000)));
        }
        let size = std::fs::metadata(&path).unwrap().len();
        assert!((MAX_FILE_BYTES / 4..=MAX_FILE_BYTES).contains(&size));
        let again = PromptHistory::read(Path::new("/one"), &environment);
        assert!(again.prompts.last().unwrap().starts_with("199 "));
        // Another process may be reading it.
        assert!(before.metadata().unwrap().len() > MAX_FILE_BYTES);
    }

    #[test]
    fn prompts_of_two_conversations_are_stored() {
        let home = tempfile::tempdir().unwrap();
        let environment = environment(home.path());
        std::thread::scope(|scope| {
            for project in ["/one", "/other"] {
                let mut history = PromptHistory::read(Path::new(project), &environment);
                scope.spawn(move || {
                    for number in 0..200 {
                        history.store(&format!("{number} {}", "x".repeat(10_000)));
                    }
                });
            }
        });
        let stored = std::fs::read(environment.dirs.data.join("prompts.jsonl")).unwrap();
        assert!(stored.len() > 400_000, "{}", stored.len());
        let mut lines = stored.split_inclusive(|byte| *byte == b'\n');
        assert!(lines.all(|line| serde_json::from_slice::<StoredPrompt>(line).is_ok()));
    }

    #[test]
    fn end_of_a_large_file_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\nthree\n").unwrap();
        for (max, expected) in [(7, "three\n"), (3, ""), (14, "one\ntwo\nthree\n")] {
            let read = read_last_lines(file.path(), max).unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), expected, "{max}");
        }
    }
}
