//! How large functions and files may be, and that no two files of a room know each other. What was there
//! before these rules is listed by its name: nothing may be added to the lists, and what has shrunk is
//! taken out of them.

use std::collections::BTreeSet;

use super::{File, TABLES, files, module_of, own_text, used};

/// Longest function and longest file, in lines. What holds a table of data is listed for good.
const FUNCTION: usize = 80;
const FILE: usize = 600;

/// Functions that are longer.
const LONG_FUNCTIONS: &[&str] = &[
    "config/declare.rs: fit",
    "config/layers.rs: read",
    "config/resolve.rs: settings",
    "config/trust.rs: needs",
    "permission/shell/judge/languages.rs: sed_deeds",
];

/// Files that are longer.
const LONG_FILES: &[&str] = &["turn/call.rs"];

/// Files that reach themselves through the files they use. A module and its children may know each other.
const CIRCLES: &[&str] = &[
    "model/body.rs",
    "model/http.rs",
    "model/request.rs",
    "model/tape.rs",
    "model/wire.rs",
    "permission/evaluate.rs",
    "permission/paths.rs",
    "permission/shell/judge.rs",
    "permission/unread.rs",
    "permission/url.rs",
    "sandbox/inside.rs",
    "sandbox/probe.rs",
    "tool/accept.rs",
    "tool/registry.rs",
    "turn/release.rs",
    "turn/run.rs",
    "turn/subtask.rs",
];

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
        let end = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(length) = lines[at..].iter().position(|line| *line == end) {
            found.push((name, length + 1));
        }
    }
    found
}

/// What differs from a list: what is new among `found`, and what is listed and is no longer so.
fn differences(found: impl IntoIterator<Item = String>, listed: &[&str]) -> Vec<String> {
    let found: BTreeSet<String> = found.into_iter().collect();
    let gone = listed.iter().filter(|one| !found.contains(**one)).map(|one| format!("no longer: {one}"));
    found.iter().filter(|one| !listed.contains(&one.as_str())).cloned().chain(gone).collect()
}

#[test]
fn functions_are_read_in_one_glance() {
    let all = files();
    let long = all.iter().flat_map(|file| {
        let long = functions(own_text(file, "#[cfg(test)]\nmod ")).into_iter().filter(|(_, lines)| *lines > FUNCTION);
        long.map(|(name, _)| format!("{}: {name}", file.path.display())).collect::<Vec<_>>()
    });
    let long = differences(long, LONG_FUNCTIONS);
    assert!(long.is_empty(), "longer than {FUNCTION} lines:\n{}", long.join("\n"));
}

#[test]
fn files_hold_one_noun() {
    let table = |file: &File| TABLES.iter().any(|table| file.path.ends_with(table));
    let all = files();
    let long = all.iter().filter(|file| own_text(file, "#[cfg(test)]\nmod ").lines().count() > FILE && !table(file));
    let long = differences(long.map(|file| file.path.display().to_string()), LONG_FILES);
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
    let circles = uses.iter().filter(|(own, _)| reaches(own)).map(|(own, _)| own.join("/") + ".rs");
    let circles = differences(circles, CIRCLES);
    assert!(circles.is_empty(), "these use files that use them:\n{}", circles.join("\n"));
}

#[test]
fn functions_are_measured_as_they_stand() {
    let text = "impl X {\n    pub(super) async fn one(&self) {\n        if a {\n        }\n    }\n\n    fn two() {}\n}\n\
                /// A fn that is none.\nfn three(\n    a: u8,\n) {\n}\n";
    assert_eq!(functions(text), [("one".to_owned(), 4), ("three".to_owned(), 4)]);
}
