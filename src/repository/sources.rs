//! Rules about sources that the compiler and clippy cannot check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The beginning of a file's unit tests.
pub(super) const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Files that create files for other readers, or open existing ones: in projects, which users
/// share, manual pages, and to try a sandbox.
const OPENERS: &[&str] = &[
    "base/src/environment.rs",
    "src/cli/agents.rs",
    "src/cli/pages.rs",
    // Stores nothing.
    "sandbox/src/launcher.rs",
    "sandbox/src/probe.rs",
    "sandbox/src/trial.rs",
    "store/src/sqlite/index.rs",
    "store/src/sqlite/session.rs",
    "store/src/sqlite/takeover.rs",
    "tools/src/process/control_files.rs",
];

/// A source file.
pub(super) struct File {
    /// Its path from the root of the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Returns the source files of all crates but those of the checks themselves, read once.
pub(super) fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
        let mut files = sources(&["src", "protocol", "crates"]);
        files.retain(|file| !file.path.starts_with("src/repository"));
        files
    });
    &FILES
}

/// Returns the Rust files below folders of the repository, sorted.
fn sources(folders: &[&str]) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let skipped = path.ends_with("target") || path.ends_with("fixtures");
            if path.is_dir() && !skipped {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(File {
                    path: path.strip_prefix(root).unwrap().to_owned(),
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 5, "the sources of {folders:?} are not there");
    found
}

/// Returns whether a module is declared for tests only.
fn is_test_module(path: &Path) -> bool {
    let (Some(name), Some(folder)) = (
        path.file_stem().and_then(|name| name.to_str()),
        path.parent(),
    ) else {
        return false;
    };
    let parent = if folder.ends_with("src") {
        folder.join("lib.rs")
    } else {
        folder.with_extension("rs")
    };
    let Some(parent) = files().iter().find(|file| file.path == parent) else {
        return false;
    };
    let declarations =
        ["", "pub ", "pub(crate) ", "pub(super) "].map(|public| format!("{public}mod {name};"));
    let lines: Vec<&str> = parent.text.lines().map(str::trim).collect();
    let Some(at) = lines
        .iter()
        .position(|line| declarations.iter().any(|declaration| declaration == line))
    else {
        return false;
    };
    let mut attributes = lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#["));
    attributes.any(|line| line.contains("cfg(") && line.contains("test"))
}

/// Returns the text of a file before its unit tests; nothing of a file that contains only tests.
pub(super) fn without_tests<'f>(file: &'f File, tests: &str) -> &'f str {
    if file.path.ancestors().any(is_test_module) {
        return "";
    }
    file.text.split(tests).next().unwrap_or_default()
}

/// Returns the texts of the program's source files, without tests.
pub(super) fn texts_of_program() -> impl Iterator<Item = &'static str> {
    files().iter().map(|file| without_tests(file, TESTS))
}

/// Returns the lines of code that meet a condition, with their locations, in all files except
/// `excepted`.
fn violations(excepted: &[&str], tests: &str, meets: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for file in files() {
        if excepted.iter().any(|path| file.path.ends_with(path)) {
            continue;
        }
        for (number, line) in without_tests(file, tests).lines().enumerate() {
            if !line.trim_start().starts_with("//") && meets(line) {
                found.push(format!(
                    "{}:{}: {}",
                    file.path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    found
}

/// Files that adjutant stores are readable by their owner only. Clippy's `disallowed-methods` would
/// apply to tests as well, which create files in some hundred places.
#[test]
fn stored_file_is_opened_as_private_file() {
    let calls = [
        "File::create",
        "fs::write(",
        "File::options()",
        "OpenOptions::",
    ];
    let wrong = violations(OPENERS, "#[cfg(test)]", |line| {
        calls.iter().any(|call| line.contains(call))
    });
    assert!(
        wrong.is_empty(),
        "use base::environment::private_file instead:\n{}",
        wrong.join("\n")
    );
}

/// The names used in code, without declarations, and the names after a point or `::`, such as
/// methods.
#[derive(Default)]
struct Names<'t> {
    used: BTreeSet<&'t str>,
    called: BTreeSet<&'t str>,
}

impl<'t> Names<'t> {
    fn read(&mut self, text: &'t str) {
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let mut at = 0;
            for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
                let before = line[..at].trim_end();
                at += word.len();
                at += line[at..].chars().next().map_or(0, char::len_utf8);
                if word.is_empty() || before.ends_with("fn") {
                    continue;
                }
                self.used.insert(word);
                if before.ends_with(['.', ':']) {
                    self.called.insert(word);
                }
            }
        }
    }
}

/// Returns the name of the function that a line declares with `pub`. The compiler finds functions of
/// narrower visibility that nothing calls.
fn public_function(line: &str) -> Option<&str> {
    let (words, rest) = line.trim_start().split_once("fn ")?;
    let mut words = words.split_whitespace();
    let public = words.next() == Some("pub");
    let plain = words.all(|word| matches!(word, "async" | "const" | "unsafe"));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (public && plain).then_some(&rest[..end])
}

/// Benchmarks and tests of the whole program count as callers.
#[test]
fn public_function_is_used_outside_of_tests() {
    let tests_of_the_program = sources(&["editor-tests"]);
    let mut names = Names::default();
    files()
        .iter()
        .for_each(|file| names.read(without_tests(file, TESTS)));
    tests_of_the_program
        .iter()
        .for_each(|file| names.read(&file.text));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in files() {
        let lines: Vec<&str> = without_tests(file, TESTS).lines().collect();
        for (at, name) in lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| Some((at, public_function(line)?)))
        {
            seen += 1;
            let mut attributes = lines[..at]
                .iter()
                .rev()
                .take_while(|line| line.trim_start().starts_with("#["));
            let tested = attributes.any(|line| line.contains("cfg(") && line.contains("test"));
            let first = lines[at].split_once('(').map_or("", |(_, first)| first);
            let first = if first.is_empty() {
                lines[at + 1].trim_start()
            } else {
                first
            };
            let method = ["self", "&self", "mut self", "&mut self"]
                .iter()
                .any(|own| first.starts_with(own));
            let used = if method {
                names.called.contains(name)
            } else {
                names.used.contains(name)
            };
            if !used && !tested {
                wrong.push(format!("{}:{}: {name}", file.path.display(), at + 1));
            }
        }
    }
    assert!(seen > 1_000, "{seen}");
    assert!(
        wrong.is_empty(),
        "public functions without a caller outside of tests (`#[cfg(test)]`):\n{}",
        wrong.join("\n")
    );
}
