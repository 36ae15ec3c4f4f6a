//! Completions of a prompt that is typed in a conversation: commands, their values, and files after
//! an `@`.

use std::fs;
use std::path::{Path, PathBuf};

use base::text::mention::mentions;

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
    /// The subagents that a prompt can name.
    pub(super) agents: Vec<String>,
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
                    is_cut: false,
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
                    is_cut: false,
                };
            }
        }
        self.complete_path(before).unwrap_or_default()
    }

    fn complete_path(&self, before: &str) -> Option<Completions> {
        let start = mention_start(before)?;
        let typed = before[start..].strip_prefix('@')?;
        let typed = typed.strip_prefix('"').unwrap_or(typed);
        let (directory, beginning) = match typed.rfind('/') {
            Some(slash) => typed.split_at(slash + 1),
            None => ("", typed),
        };
        let path = match directory.strip_prefix("~/") {
            Some(rest) => self.home.as_ref()?.join(rest),
            None => self.directory.join(directory),
        };
        let entries = Entries::read(&path, beginning, MAX_ENTRIES);
        let mut words: Vec<String> = entries
            .names
            .iter()
            .filter_map(|name| mention(&format!("{directory}{name}")))
            .collect();
        if directory.is_empty() && before[start..].starts_with(&format!("@{typed}")) {
            let named = beginning_with(&self.agents, typed).into_iter();
            words.extend(named.map(|name| format!("@{name}")));
        }
        words.sort();
        Some(Completions {
            start,
            words,
            is_cut: entries.is_cut,
        })
    }
}

/// The entries of a directory whose names begin with a text.
#[derive(Debug, PartialEq, Eq)]
struct Entries {
    /// The names as a prompt writes them: those of directories end in a slash.
    names: Vec<String>,
    /// True if the directory has more entries than were looked at.
    is_cut: bool,
}

impl Entries {
    fn read(directory: &Path, beginning: &str, max: usize) -> Self {
        let mut entries = fs::read_dir(directory).into_iter().flatten();
        let names = entries.by_ref().take(max).filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let name = name.to_str().filter(|name| is_offered(name, beginning))?;
            let end = if is_directory(&entry) { "/" } else { "" };
            Some(format!("{name}{end}"))
        });
        Self {
            names: names.collect(),
            is_cut: entries.next().is_some(),
        }
    }
}

fn is_offered(name: &str, beginning: &str) -> bool {
    // As in a shell, hidden files are for those who ask for them.
    let is_hidden = name.starts_with('.') && !beginning.starts_with('.');
    name.starts_with(beginning) && !is_hidden && !name.chars().any(char::is_control)
}

fn is_directory(entry: &fs::DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
        kind => kind.is_ok_and(|kind| kind.is_dir()),
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

/// Writes a path as a mention, in quotes if it is read as another path without them. The quotes of a
/// directory stay open. `None` for a path that cannot be mentioned.
fn mention(path: &str) -> Option<String> {
    // In a directory, a file follows.
    let is_directory = path.ends_with('/');
    let file = if is_directory { "x" } else { "" };
    let is_read = |text: &str| {
        let read = mentions(text);
        let first = read.first().and_then(|mention| mention.spellings().next());
        read.len() == 1 && first == Some(&*format!("{path}{file}"))
    };
    if is_read(&format!("@{path}{file}")) {
        return Some(format!("@{path}"));
    }
    let is_read_in_quotes = is_read(&format!("@\"{path}{file}\""));
    let end = if is_directory { "" } else { "\"" };
    is_read_in_quotes.then(|| format!("@\"{path}{end}"))
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
        for file in [
            "src/calc.py",
            "src/main.py",
            ".env",
            "my notes/a b.txt",
            "logo@2x.png",
            "a,b.txt",
            "say \"hi\".txt",
        ] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let known = PromptNames {
            commands: names(&["undo", "status", "export", "exit"]),
            values: vec![(&["mode", "agent"], names(&["build", "plan"]))],
            agents: names(&["general", "scout"]),
            directory: directory.path().to_owned(),
            home: Some(directory.path().join("src")),
        };
        let table: [(&str, usize, &[&str]); 24] = [
            ("/u", 1, &["undo"]),
            ("/ex", 1, &["exit", "export"]),
            ("/nope", 1, &[]),
            ("/mode ", 6, &["build", "plan"]),
            ("/agent p", 7, &["plan"]),
            ("/undo f", 0, &[]),
            ("see /u", 0, &[]),
            ("@s", 0, &["@scout", "@src/"]),
            ("ask @gen", 4, &["@general"]),
            ("ask @\"gen", 4, &[]),
            ("ask @./gen", 4, &[]),
            ("see @src/c", 4, &["@src/calc.py"]),
            ("see @src/", 4, &["@src/calc.py", "@src/main.py"]),
            (
                "see @",
                4,
                &[
                    "@\"a,b.txt\"",
                    "@\"logo@2x.png\"",
                    "@\"my notes/",
                    "@general",
                    "@scout",
                    "@src/",
                ],
            ),
            ("see @lo", 4, &["@\"logo@2x.png\""]),
            ("see @logo@", 4, &["@\"logo@2x.png\""]),
            ("@a,", 0, &["@\"a,b.txt\""]),
            ("@@s", 0, &[]),
            ("@say", 0, &[]),
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
                is_cut: false,
            };
            assert_eq!(known.complete(before), expected, "{before}");
        }
    }

    #[test]
    fn cut_listing_is_known() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["one.txt", "two.txt"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(directory.path(), directory.path().join("link")).unwrap();
        assert!(Entries::read(directory.path(), "", 2).is_cut);
        let whole = Entries::read(directory.path(), "l", 3);
        let expected = Entries {
            names: vec!["link/".to_owned()],
            is_cut: false,
        };
        assert_eq!(whole, expected);
    }
}
