//! How large functions and files may be, that no two files of a room know each other, that whatever is
//! public is used, and that a doc comment says more than the name below it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{File, TABLES, files, module_of, own_text, used};

/// Longest function and longest file, in lines, without tests.
const FUNCTION: usize = 80;
const FILE: usize = 600;

/// How the tests of a file begin.
const TESTS: &str = "mod tests {";

/// Words that say nothing in a doc comment.
const SMALL_WORDS: &[&str] = &[
    "a", "an", "and", "are", "all", "as", "at", "be", "by", "for", "from", "how", "in", "is", "it", "its", "of", "on",
    "one", "or", "that", "the", "this", "to", "what", "whether", "which", "with",
];

/// Where doc comments are shown to people, as help or as the documentation of settings.
const SHOWN: &[&str] = &["cli", "config/file"];

/// The functions of a text as rustfmt lays them out: the name, and how many lines there are of it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((words, rest)) = code.split_once("fn ") else { continue };
        let declared = words.split_whitespace().all(|word| {
            matches!(word, "async" | "const" | "unsafe" | "pub") || (word.starts_with("pub(") && word.ends_with(')'))
        });
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !declared || name.is_empty() {
            continue;
        }
        // Without a body, or with one in the same line.
        let head = lines[at..].iter().find(|line| line.ends_with(['{', '}', ';']));
        if head.is_none_or(|head| !head.ends_with('{')) {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(length) = lines[at..].iter().position(|line| *line == end) {
            found.push((name, length + 1));
        }
    }
    found
}

#[test]
fn functions_are_read_in_one_glance() {
    let long = files().iter().flat_map(|file| {
        let long = functions(own_text(file, TESTS)).into_iter().filter(|(_, lines)| *lines > FUNCTION);
        long.map(|(name, lines)| format!("{}: {name}: {lines}", file.path.display())).collect::<Vec<_>>()
    });
    let long: Vec<String> = long.collect();
    assert!(long.is_empty(), "longer than {FUNCTION} lines:\n{}", long.join("\n"));
}

#[test]
fn files_hold_one_noun() {
    let table = |file: &&File| TABLES.iter().any(|table| file.path.ends_with(table));
    let lines = files().iter().filter(|file| !table(file)).map(|file| (file, own_text(file, TESTS).lines().count()));
    let long: Vec<String> = lines
        .filter(|(_, lines)| *lines > FILE)
        .map(|(file, lines)| format!("{}: {lines}", file.path.display()))
        .collect();
    assert!(long.is_empty(), "longer than {FILE} lines without their tests:\n{}", long.join("\n"));
}

#[test]
fn no_two_files_of_a_room_know_each_other() {
    let all = files();
    let modules: Vec<Vec<String>> = all.iter().map(|file| module_of(&file.path)).collect();
    let uses: Vec<(Vec<String>, Vec<Vec<String>>)> = all
        .iter()
        .filter(|file| file.module != "tidy")
        .map(|file| {
            let own = module_of(&file.path);
            let mut used = used(file, &modules);
            used.retain(|other| other[0] == own[0] && !own.starts_with(other) && !other.starts_with(&own));
            (own, used)
        })
        .collect();
    assert!(uses.iter().flat_map(|(_, used)| used).count() > 100, "{uses:?}");
    let reaches = |from: &[String]| {
        let mut seen: BTreeSet<&[String]> = BTreeSet::new();
        let mut next = vec![from];
        while let Some(one) = next.pop() {
            for to in uses.iter().filter(|(name, _)| name == one).flat_map(|(_, used)| used) {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen.contains(from)
    };
    let circles: Vec<String> =
        uses.iter().filter(|(own, _)| reaches(own)).map(|(own, _)| own.join("/") + ".rs").collect();
    assert!(circles.is_empty(), "these use files that use them:\n{}", circles.join("\n"));
}

#[test]
fn functions_are_measured_as_they_stand() {
    let text = "trait Y {\n    fn none(\n        &self,\n    );\n}\nimpl X {\n    pub(super) async fn one(&self) {\n        if a {\n        }\n    }\n\n    fn two() {}\n}\n\
                /// A fn that is none.\nfn three(\n    a: u8,\n) {\n}\n";
    assert_eq!(functions(text), [("one".to_owned(), 4), ("three".to_owned(), 4)]);
}

/// What code names, declarations apart, and what it names behind a point or `::`, as methods are.
#[derive(Default)]
struct Names<'t> {
    used: BTreeSet<&'t str>,
    called: BTreeSet<&'t str>,
}

impl<'t> Names<'t> {
    fn read(&mut self, text: &'t str) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
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

/// The names of what a line declares with `pub`, or with `pub(…)`: of a function, if it is one.
fn public_function(line: &str) -> Option<&str> {
    let (words, rest) = line.trim_start().split_once("fn ")?;
    let mut words = words.split_whitespace();
    let public = words.next().is_some_and(|word| word == "pub" || word.starts_with("pub("));
    // `pub(in crate::x)` is two words.
    let plain = words.all(|word| matches!(word, "async" | "const" | "unsafe") || word.ends_with(')'));
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (public && plain).then_some(&rest[..end])
}

/// Benchmarks and the tests of the whole program use the library as others would.
#[test]
fn what_is_public_is_used_outside_of_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("editor-tests");
    let mut outside = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                outside.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut names = Names::default();
    files().iter().for_each(|file| names.read(own_text(file, TESTS)));
    outside.iter().for_each(|text| names.read(text));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in files() {
        let lines: Vec<&str> = own_text(file, TESTS).lines().collect();
        for (at, name) in lines.iter().enumerate().filter_map(|(at, line)| Some((at, public_function(line)?))) {
            seen += 1;
            let mut attributes = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
            let tested = attributes.any(|line| line.trim() == "#[cfg(test)]");
            let first = lines[at].split_once('(').map_or("", |(_, first)| first);
            let first = if first.is_empty() { lines[at + 1].trim_start() } else { first };
            let method = ["self", "&self", "mut self", "&mut self"].iter().any(|own| first.starts_with(own));
            let used = if method { names.called.contains(name) } else { names.used.contains(name) };
            if !used && !tested {
                wrong.push(format!("src/{}:{}: {name}", file.path.display(), at + 1));
            }
        }
    }
    assert!(seen > 1_000, "{seen}");
    assert!(wrong.is_empty(), "nobody calls these, or only tests do (`#[cfg(test)]`):\n{}", wrong.join("\n"));
}

/// The words of a name or a sentence, without their endings.
fn stems(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in text.chars() {
        if !letter.is_alphanumeric() || (before.is_lowercase() && letter.is_uppercase()) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().unwrap().extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty() && !SMALL_WORDS.contains(&word.as_str()));
    let stem = |word: String| {
        let ending =
            ["ing", "ed", "es", "s", "e"].iter().find(|end| word.ends_with(*end) && word.len() > end.len() + 2);
        ending.map_or(word.clone(), |end| word[..word.len() - end.len()].to_owned())
    };
    words.into_iter().map(stem).collect()
}

/// Whether a doc comment says nothing that the name of what it is about does not say.
fn repeats(comment: &str, declared: &str) -> bool {
    let words = ["pub", "fn", "struct", "enum", "trait", "const", "static", "type", "mod", "async", "unsafe"];
    let own = |word: &&str| !words.contains(word) && !word.starts_with("pub(") && *word != "crate" && *word != "super";
    let name = declared.split_whitespace().find(own).unwrap_or_default();
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let (said, known) = (stems(comment), stems(name));
    // What has code in it shows a shape.
    !said.is_empty() && !comment.contains(['`', '/']) && said.iter().all(|word| known.contains(word))
}

#[test]
fn a_doc_comment_says_more_than_the_name() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !SHOWN.iter().any(|shown| file.path.to_string_lossy().starts_with(shown)))
    {
        let lines: Vec<&str> = own_text(file, TESTS).lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            // One line and a sentence: what has no full stop is the description of a tool's field.
            let Some(comment) = line.strip_prefix("/// ").filter(|comment| comment.ends_with('.')) else { continue };
            let long = (at > 0 && lines[at - 1].starts_with("///")) || lines[at + 1].starts_with("///");
            let declared = lines[at + 1..].iter().find(|line| !line.starts_with("#[")).copied().unwrap_or_default();
            if !long && repeats(comment, declared) {
                wrong.push(format!("src/{}:{}: {comment}", file.path.display(), at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "these say what the name says:\n{}", wrong.join("\n"));
}

#[test]
fn what_repeats_a_name_is_found() {
    let table = [
        ("The calls of a step.", "step_calls: Vec<Call>,", true),
        ("A hunk that is placed.", "struct PlacedHunk<'a> {", true),
        ("Ends it.", "pub(super) fn end(&self) {", true),
        ("The calls of a step, oldest first.", "step_calls: Vec<Call>,", false),
        ("In bytes.", "limit: usize,", false),
        ("`end`.", "fn end() {", false),
    ];
    for (comment, declared, expected) in table {
        assert_eq!(repeats(comment, declared), expected, "{comment}");
    }
    let declared = ["pub fn a(x: u8)", "    pub(in crate::x) async fn b<T>(x: T)", "fn c()", "/// pub fn d()"];
    assert_eq!(declared.map(public_function), [Some("a"), Some("b"), None, None]);
}
