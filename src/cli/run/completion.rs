//! Completions of a prompt that is typed in a conversation: commands, their values, and files after
//! an `@`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::terminal::line_aids::Completions;

/// The most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The names that a prompt may contain.
#[derive(Debug, Default)]
pub(super) struct PromptNames {
    /// The commands, without the slash.
    pub(super) commands: Vec<String>,
    /// The values of each command that chooses one.
    pub(super) values: Vec<(&'static [&'static str], Vec<String>)>,
    /// The directory in which paths begin.
    pub(super) directory: PathBuf,
    pub(super) home: Option<PathBuf>,
}

impl PromptNames {
    /// Completes the word at the end of a text.
    pub(super) fn complete(&self, before: &str) -> Completions {
        if let Some(typed) = before.strip_prefix('/') {
            let Some((command, value)) = typed.split_once(' ') else {
                let names = beginning_with(&self.commands, typed);
                return Completions {
                    start: 1,
                    words: names,
                };
            };
            let of_command = self
                .values
                .iter()
                .find(|(names, _)| names.contains(&command));
            if let Some((_, values)) = of_command {
                return Completions {
                    start: before.len() - value.len(),
                    words: beginning_with(values, value),
                };
            }
        }
        self.complete_path(before).unwrap_or_default()
    }

    fn complete_path(&self, before: &str) -> Option<Completions> {
        let start = mention_start(before)?;
        let typed = before[start..]
            .trim_start_matches('@')
            .trim_start_matches('"');
        let (directory, beginning) = match typed.rfind('/') {
            Some(slash) => typed.split_at(slash + 1),
            None => ("", typed),
        };
        let mut words: Vec<String> = self
            .entries(directory)
            .into_iter()
            .filter(|name| name.starts_with(beginning))
            // As in a shell, hidden files are for those who ask for them.
            .filter(|name| beginning.starts_with('.') || !name.starts_with('.'))
            .map(|name| mention(&format!("{directory}{name}")))
            .collect();
        words.sort();
        Some(Completions { start, words })
    }

    /// Returns the names in a directory as a prompt writes it. Those of directories end in a slash.
    fn entries(&self, directory: &str) -> Vec<String> {
        let path = match directory.strip_prefix("~/") {
            Some(rest) => match &self.home {
                Some(home) => home.join(rest),
                None => return Vec::new(),
            },
            None => self.directory.join(directory),
        };
        let entries = fs::read_dir(path).into_iter().flatten();
        entries
            .take(MAX_ENTRIES)
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().into_string().ok()?;
                let is_shown = !name.chars().any(char::is_control) && !name.contains('"');
                let end = if Path::is_dir(&entry.path()) { "/" } else { "" };
                is_shown.then(|| format!("{name}{end}"))
            })
            .collect()
    }
}

fn beginning_with(names: &[String], beginning: &str) -> Vec<String> {
    let mut found: Vec<String> = names
        .iter()
        .filter(|name| name.starts_with(beginning))
        .cloned()
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the offset of the `@` before the path that ends a text.
fn mention_start(before: &str) -> Option<usize> {
    let is_at_word = |at: usize| at == 0 || before[..at].ends_with(char::is_whitespace);
    if let Some(at) = before.rfind("@\"")
        && is_at_word(at)
        && !before[at + 2..].contains('"')
    {
        return Some(at);
    }
    let word = before.rfind(char::is_whitespace);
    let start = word.map_or(0, |at| {
        at + before[at..].chars().next().map_or(0, char::len_utf8)
    });
    before[start..].starts_with('@').then_some(start)
}

/// Writes a path as a mention. The quotes of a directory stay open.
fn mention(path: &str) -> String {
    let needs_quotes = path.contains(char::is_whitespace);
    match (needs_quotes, path.ends_with('/')) {
        (false, _) => format!("@{path}"),
        (true, true) => format!("@\"{path}"),
        (true, false) => format!("@\"{path}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["src", "my notes"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        for file in ["src/calc.py", "src/main.py", ".env", "my notes/a b.txt"] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let known = PromptNames {
            commands: names(&["undo", "status", "export", "exit"]),
            values: vec![(&["mode", "agent"], names(&["build", "plan"]))],
            directory: directory.path().to_owned(),
            home: Some(directory.path().join("src")),
        };
        let table: [(&str, usize, &[&str]); 16] = [
            ("/u", 1, &["undo"]),
            ("/ex", 1, &["exit", "export"]),
            ("/nope", 1, &[]),
            ("/mode ", 6, &["build", "plan"]),
            ("/agent p", 7, &["plan"]),
            ("/undo f", 0, &[]),
            ("see /u", 0, &[]),
            ("@s", 0, &["@src/"]),
            ("see @src/c", 4, &["@src/calc.py"]),
            ("see @src/", 4, &["@src/calc.py", "@src/main.py"]),
            ("see @", 4, &["@\"my notes/", "@src/"]),
            ("see @.", 4, &["@.env"]),
            ("@\"my notes/a", 0, &["@\"my notes/a b.txt\""]),
            ("@\"my notes/a b.txt\" and", 0, &[]),
            ("see @~/c", 4, &["@~/calc.py"]),
            ("mail@s", 0, &[]),
        ];
        for (before, start, words) in table {
            let expected = Completions {
                start,
                words: names(words),
            };
            assert_eq!(known.complete(before), expected, "{before}");
        }
    }
}
