//! How large functions and files may be, that no two files of a room know each other, that whatever is
//! public is used, that a name stands for one thing, and that a doc comment says more than the name below it.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, module_of, own_text, sources, used};

/// Longest function and longest file, in lines, without unit tests.
const FUNCTION: usize = 80;
const FILE: usize = 600;

/// How the tests of a file begin.
const TESTS: &str = "mod tests {";

/// Names that each file of a folder gives to the same part of itself, so that the file says whose it is.
const PARTS: &[(&str, &str)] = &[
    // As `std::io::Error`: the errors of a module.
    ("Error", ""),
    // `Tool::Input` and `Tool::Ready`: what a model sends, and what is made of it before it is allowed.
    ("Input", "tool/"),
    ("Ready", "tool/"),
    // What clap reads of a subcommand: its options, its own subcommands, and the options of the one that lists.
    ("Args", "cli/"),
    ("Verb", "cli/"),
    ("Listing", "cli/"),
    // What each version of ACP has shown already.
    ("ShownCalls", "editor/v"),
    ("ShownState", "editor/v"),
];

/// Words that say nothing in a doc comment.
const SMALL_WORDS: &[&str] = &[
    "a", "an", "and", "any", "are", "all", "as", "at", "be", "been", "by", "each", "every", "for", "from", "had",
    "has", "have", "how", "in", "is", "it", "its", "new", "of", "on", "one", "or", "own", "somebody", "someone",
    "such", "that", "the", "them", "there", "these", "they", "thing", "this", "those", "to", "was", "were", "what",
    "whatever", "when", "where", "whether", "which", "who", "whoever", "with",
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
            matches!(word, "async" | "const" | "default" | "extern" | "\"C\"" | "pub" | "unsafe")
                || (word.starts_with("pub(") && word.ends_with(')'))
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

/// Every file of ours, from the root, without its unit tests: those of the program seen from outside count.
fn measured() -> Vec<(String, String)> {
    let own = files().iter().map(|file| (format!("src/{}", file.path.display()), own_text(file, TESTS).to_owned()));
    let beside = ["protocol/src", "editor-tests"].into_iter().flat_map(|folder| {
        let text = |text: String| text.split(TESTS).next().unwrap_or_default().to_owned();
        sources(folder).into_iter().map(move |(path, all)| (format!("{folder}/{}", path.display()), text(all)))
    });
    own.chain(beside).collect()
}

#[test]
fn functions_are_read_in_one_glance() {
    let long = measured().into_iter().flat_map(|(path, text)| {
        let long = functions(&text).into_iter().filter(|(_, lines)| *lines > FUNCTION);
        long.map(|(name, lines)| format!("{path}: {name}: {lines}")).collect::<Vec<_>>()
    });
    let long: Vec<String> = long.collect();
    assert!(long.is_empty(), "longer than {FUNCTION} lines:\n{}", long.join("\n"));
}

#[test]
fn files_hold_one_noun() {
    let lines = measured().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long: Vec<String> =
        lines.filter(|(_, lines)| *lines > FILE).map(|(path, lines)| format!("{path}: {lines}")).collect();
    assert!(long.is_empty(), "longer than {FILE} lines without their tests:\n{}", long.join("\n"));
}

/// What is measured is laid out by rustfmt, but for tables, and stands before the tests, which are the end of a file.
#[test]
fn nothing_hides_from_being_measured() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| file.module != "tidy") {
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let below = lines.get(at + 1).copied().unwrap_or_default().trim_start();
            if line.contains("rustfmt::skip") && !["const ", "static "].iter().any(|table| below.starts_with(table)) {
                wrong.push(format!("src/{}:{}: rustfmt is kept from more than a table", file.path.display(), at + 1));
            }
        }
        let Some(at) = lines.iter().position(|line| line.ends_with(TESTS)) else { continue };
        let indent = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
        let end = lines[at..].iter().position(|line| *line == format!("{indent}}}")).unwrap_or_default() + at;
        let mut attributes = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("#["));
        if !attributes.any(|line| line.contains("cfg(") && line.contains("test")) {
            wrong.push(format!("src/{}:{}: these tests are part of the program", file.path.display(), at + 1));
        }
        if lines[end + 1..].iter().any(|line| !line.trim().is_empty() && line.trim() != "}") {
            wrong.push(format!("src/{}:{}: something stands below the tests", file.path.display(), end + 1));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The types that a text declares, and whether other files can name them.
fn types(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let (public, code) = match code.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => (true, rest.split_once(") ").map_or("", |(_, rest)| rest)),
            Some(rest) => (true, rest.trim_start()),
            None => (false, code),
        };
        let Some((kind, rest)) = code.split_once(' ') else { continue };
        // `type` in a trait or an `impl` has the name that the trait gave it.
        let declared =
            matches!(kind, "struct" | "enum" | "trait" | "union") || kind == "type" && !line.starts_with(' ');
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if declared && end > 0 {
            found.push((&rest[..end], public));
        }
    }
    found
}

/// A type that other files can name has its name alone; only what is private in each file may be called the same.
#[test]
fn a_name_stands_for_one_thing() {
    let wire = sources("protocol/src");
    let wire = wire.iter().map(|(path, text)| (format!("protocol/{}", path.display()), text.as_str()));
    let own = files().iter().map(|file| (file.path.display().to_string(), own_text(file, TESTS)));
    let mut named: BTreeMap<&str, BTreeMap<String, bool>> = BTreeMap::new();
    for (path, text) in own.chain(wire) {
        for (name, public) in types(text.split(TESTS).next().unwrap_or_default()) {
            let part = PARTS.iter().find(|(part, folder)| *part == name && path.starts_with(folder));
            let place = part.map_or(path.clone(), |(_, folder)| format!("each file of {folder}"));
            *named.entry(name).or_default().entry(place).or_default() |= public;
        }
    }
    assert!(named.len() > 500, "{}", named.len());
    let twice = named.iter().filter(|(_, places)| places.len() > 1 && places.values().any(|public| *public));
    let twice: Vec<String> = twice
        .map(|(name, places)| format!("{name}: {}", places.keys().cloned().collect::<Vec<_>>().join(", ")))
        .collect();
    assert!(twice.is_empty(), "these names stand for several things:\n{}", twice.join("\n"));
}

#[test]
fn types_are_read_as_they_stand() {
    let text = "pub struct A<'a> {\n    x: u8,\n}\nimpl T for A {\n    type Out = B;\n}\n    pub(in crate::x) enum C {}\n\
                type D = A;\n// struct E\npublic struct F;\nlet kind = \"struct G\";\npub trait H: I {\n";
    assert_eq!(types(text), [("A", true), ("C", true), ("D", false), ("H", true)]);
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
    let outside = sources("editor-tests");
    let mut names = Names::default();
    files().iter().for_each(|file| names.read(own_text(file, TESTS)));
    outside.iter().for_each(|(_, text)| names.read(text));
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

/// Whether a doc comment says nothing that the declaration it is about does not say: by names or by types.
fn repeats(comment: &str, declared: &str) -> bool {
    let (said, known) = (stems(comment), stems(declared.split('"').next().unwrap_or_default()));
    // What has code in it shows a shape.
    !comment.contains(['`', '/']) && said.iter().all(|word| known.contains(word))
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
        ("The calls of a step.", "calls: Vec<StepCall>,", true),
        ("What it is.", "kind: Kind,", true),
        ("Where there is a name.", "name: Option<String>,", true),
        ("In bytes.", "limit: usize,", false),
        ("A newer version wrote it.", "#[error(\"a newer version wrote it\")]", false),
        ("`end`.", "fn end() {", false),
    ];
    for (comment, declared, expected) in table {
        assert_eq!(repeats(comment, declared), expected, "{comment}");
    }
    let declared = ["pub fn a(x: u8)", "    pub(in crate::x) async fn b<T>(x: T)", "fn c()", "/// pub fn d()"];
    assert_eq!(declared.map(public_function), [Some("a"), Some("b"), None, None]);
}
