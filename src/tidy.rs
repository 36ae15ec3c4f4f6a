//! The rules of this house, as tests. What a reader may rely on everywhere is checked here, so that
//! nobody has to remember it.

mod pages;
mod shape;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// How far from the disk each module stands. A module may only `use crate::` what stands strictly
/// lower; files of one folder are one module.
const RANKS: &[(u32, &[&str])] = &[
    (0, &["id", "lock", "task", "text", "prompts", "channel", "approvals", "file", "executable", "open_files"]),
    (1, &["environment", "git"]),
    (2, &["message", "variables"]),
    (3, &["process"]),
    (4, &["sandbox", "worktree", "store", "snapshot"]),
    (5, &["permission"]),
    (6, &["config"]),
    (7, &["model", "grants"]),
    (8, &["export", "agent", "skill", "command", "instruction", "event", "lsp", "picture"]),
    (9, &["tool", "system"]),
    (10, &["mcp", "extension"]),
    (11, &["turn"]),
    (12, &["session"]),
    (13, &["editor"]),
    (14, &["serve"]),
    (15, &["cli", "main"]),
];

/// Where the words of the protocol may be spoken.
const DOOR: &[&str] = &["editor", "serve", "cli", "main"];

/// Words that name nothing.
const EMPTY_WORDS: &[&str] = &[
    "util", "utils", "helper", "helpers", "common", "core", "manager", "handler", "handlers", "service", "types",
    "misc",
];

struct File {
    path: PathBuf,
    /// `editor` for both `editor.rs` and `editor/update.rs`.
    module: String,
    text: String,
}

/// Every source file, read once.
fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(read_files);
    &FILES
}

fn read_files() -> Vec<File> {
    let file = |(path, text): (PathBuf, String)| {
        let first = path.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        File { path, module: first.trim_end_matches(".rs").to_owned(), text }
    };
    sources("src").into_iter().map(file).collect()
}

/// The Rust files below a folder of the repository, sorted, with their paths there.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            // Built there, or material of tests.
            let foreign = ["target", "fixtures"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !foreign {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.len() > 5, "the sources of {folder} are not where they should be");
    found
}

fn rank(module: &str) -> Option<u32> {
    RANKS.iter().find(|(_, modules)| modules.contains(&module)).map(|(rank, _)| *rank)
}

/// The modules a text names with `crate::`, and the lines. Comments may name anything: a link to a
/// higher module is no dependency.
fn named(text: &str) -> Vec<(usize, String)> {
    let code = |line: &str| if line.trim_start().starts_with("//") { String::new() } else { line.to_owned() };
    let text: Vec<String> = text.lines().map(code).collect();
    let text = text.join("\n");
    let mut found = Vec::new();
    for (at, path) in text.match_indices("crate::") {
        let line = text[..at].lines().count().max(1);
        let mut name = |item: &str| {
            let item = item.trim();
            let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
            if end > 0 && &item[..end] != "self" {
                found.push((line, item[..end].to_owned()));
            }
        };
        let rest = &text[at + path.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            name(rest);
            continue;
        };
        // `{a::{b, c}, d}`: what stands at the outermost level of the list.
        let (mut depth, mut start) = (0, 0);
        for (at, letter) in list.char_indices() {
            match letter {
                '{' => depth += 1,
                ',' if depth == 0 => {
                    name(&list[start..at]);
                    start = at + 1;
                }
                '}' if depth == 0 => {
                    name(&list[start..at]);
                    break;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

#[test]
fn calls_go_down() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !matches!(file.module.as_str(), "lib" | "tidy")) {
        let Some(own) = rank(&file.module) else {
            wrong.push(format!("src/{}: {} has no rank; give it one in tidy.rs", file.path.display(), file.module));
            continue;
        };
        for (line, name) in named(&file.text).into_iter().filter(|(_, name)| *name != file.module) {
            // `crate::Name`: a macro or a re-export of lib.rs, which has none.
            let lower = rank(&name).is_some_and(|rank| rank < own);
            if !lower {
                wrong.push(format!("src/{}:{line}: {} may not use crate::{name}", file.path.display(), file.module));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The layers that judge a command line, in `permission/shell`, and which of them each may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("names", &[]),
    ("unit", &[]),
    ("device", &["unit"]),
    // What a line names, for who asks which files it runs.
    ("named", &["parse"]),
    ("parse", &[]),
    ("expand", &["names", "parse"]),
    ("programs", &["names", "unit", "device", "expand"]),
    ("disk", &["names", "unit", "device", "expand"]),
    ("analyze", &["names", "unit", "device", "parse", "expand", "programs", "disk"]),
];

/// The modules that a file names, of its own room and others, as paths of names: in its `use` lines and
/// wherever else a path begins with `crate::` or `super::`.
fn used(file: &File, modules: &[Vec<String>]) -> Vec<Vec<String>> {
    let own = module_of(&file.path);
    let mut found = vec![];
    for path in paths(own_text(file, "mod tests {")) {
        let mut names: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut at: Vec<String> = if names.first() == Some(&"super") { own.clone() } else { vec![] };
        while names.first() == Some(&"super") {
            names.remove(0);
            at.pop();
        }
        at.extend(names.into_iter().skip_while(|name| *name == "crate").map(str::to_owned));
        // As much of it as is a module; the rest names what stands in it.
        while !at.is_empty() && !modules.contains(&at) {
            at.pop();
        }
        if at.len() >= 2 && at != own {
            found.push(at);
        }
    }
    found
}

/// The paths in a text that begin with `crate::` or `super::`, comments and `pub(in …)` apart.
fn paths(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = vec![];
    let begins = |text: &str| text.starts_with("crate::") || text.starts_with("super::");
    let mut rest = code.as_str();
    while let Some(at) = rest.find("crate::").into_iter().chain(rest.find("super::")).min() {
        let (before, path) = rest.split_at(at);
        let imported = before.ends_with("use ");
        let end = match imported {
            true => path.find(';'),
            false => path.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':')),
        };
        let (path, after) = path.split_at(end.unwrap_or(path.len()));
        let other = before.ends_with("in ") || before.ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
        match imported {
            true => found.extend(spread(path).into_iter().filter(|path| begins(path))),
            false if !other => found.push(path.trim_end_matches(':').to_owned()),
            false => {}
        }
        rest = after;
    }
    found
}

/// `permission/shell/analyze/run.rs` is `permission::shell::analyze::run`.
fn module_of(path: &Path) -> Vec<String> {
    path.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect()
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn spread(paths: &str) -> Vec<String> {
    let Some((start, rest)) = paths.split_once('{') else { return vec![paths.trim().to_owned()] };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut all, mut depth, mut from) = (vec![], 0_usize, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[from..at].trim();
                all.extend(
                    spread(part).into_iter().filter(|_| !part.is_empty()).map(|end| format!("{}{end}", start.trim())),
                );
                from = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// A command line is parsed, expanded, judged and looked up by layers that do not know who asks them,
/// and no two files of them know each other, a module and its children apart.
#[test]
fn the_arrows_between_the_layers_of_the_shell_go_one_way() {
    let all = files();
    let own: Vec<&File> = all.iter().filter(|file| file.path.starts_with("permission/shell")).collect();
    let modules: Vec<Vec<String>> = all.iter().map(|file| module_of(&file.path)).collect();
    let uses: Vec<(Vec<String>, Vec<Vec<String>>)> =
        own.iter().map(|file| (module_of(&file.path), used(file, &modules))).collect();
    assert!(uses.len() > 30 && uses.iter().flat_map(|(_, used)| used).count() > 60, "{uses:?}");
    let mut wrong = vec![];
    for (from, to) in uses.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        let Some((layer, may)) = LAYERS.iter().find(|(layer, _)| from[2] == *layer) else {
            wrong.push(format!("{} is of no layer", from.join("::")));
            continue;
        };
        match to.get(2) {
            Some(other) if to[1] == "shell" && (other == layer || may.contains(&other.as_str())) => {}
            // What stands in the room above them, the walls of it and what is below it.
            _ if to[0] != "permission" || !["shell", "evaluate", "laxer"].contains(&to[1].as_str()) => {}
            _ => wrong.push(format!("{} may not use {}", from.join("::"), to.join("::"))),
        }
    }
    // Whoever is reached from what a file uses may not use that file.
    let related = |a: &[String], b: &[String]| a.starts_with(b) || b.starts_with(a);
    for (from, _) in &uses {
        let mut seen: Vec<&[String]> = vec![from];
        let mut at = 0;
        while let Some(one) = seen.get(at).copied() {
            at += 1;
            for to in uses.iter().filter(|(name, _)| name == one).flat_map(|(_, used)| used) {
                if related(one, to) {
                    continue;
                }
                if to == from {
                    wrong.push(format!("{} and {} use each other", from.join("::"), one.join("::")));
                }
                if !seen.contains(&to.as_slice()) {
                    seen.push(to);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    // The judge looks nothing up and starts nothing; what is expanded is not looked up either.
    for file in own.iter().filter(|file| ["programs", "expand"].contains(&module_of(&file.path)[2].as_str())) {
        for word in ["std::fs", "PermissionContext"] {
            assert!(!file.text.contains(word), "src/{}: {word}", file.path.display());
        }
    }
}

#[test]
fn imports_in_braces_are_spread() {
    assert_eq!(spread("super::{a, b::{C, d::E}, f}"), ["super::a", "super::b::C", "super::b::d::E", "super::f"]);
    assert_eq!(spread(" crate::x::Y "), ["crate::x::Y"]);
    let text = "use super::{a, b::{C,\n  D}};\n// super::no\npub(in crate::no) fn f(x: &super::e::G) {\n    crate::h::i(x.super_no());\n    $crate::no!(); self::crate_::no\n}\n";
    assert_eq!(paths(text), ["super::a", "super::b::C", "super::b::D", "super::e::G", "crate::h::i"]);
}

#[test]
fn every_module_that_stands_is_in_the_table_once() {
    let mut all: Vec<&str> = RANKS.iter().flat_map(|(_, modules)| modules.iter().copied()).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn the_protocol_stays_at_the_door() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !DOOR.contains(&file.module.as_str()) && file.module != "tidy") {
        for (number, line) in file.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            if line.contains("protocol::") || line.contains("agent_client_protocol") {
                wrong.push(format!("src/{}:{}: {}", file.path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "words of the protocol beyond the door:\n{}", wrong.join("\n"));
}

#[test]
fn work_is_boxed_before_a_task_is_made_of_it() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !["task", "tidy"].contains(&file.module.as_str())) {
        for (number, line) in own_text(file, "#[cfg(test)]\nmod tests {").lines().enumerate() {
            let past = ["tokio::spawn", "tokio::task::spawn"].iter().any(|word| line.contains(word))
                || line.contains("use tokio::task::") && line.contains("spawn");
            // What a thread of its own does is not sent to another.
            if past && !line.contains("spawn_local(") && !line.trim_start().starts_with("//") {
                wrong.push(format!("src/{}:{}: {}", file.path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "tasks made past task.rs, which compiles them once:\n{}", wrong.join("\n"));
}

/// Where something is written to standard output or error: the terminal's file, and the child of ours
/// that becomes a command or tries a sandbox, which writes into our pipe.
const WRITERS: &[&str] =
    &["cli/terminal.rs", "cli/terminal/screen.rs", "sandbox/trial.rs", "sandbox/inside.rs", "tidy.rs"];

/// Words that open another way to a terminal.
const WRITES: &[&str] = &[
    "io::stdout",
    "io::stderr",
    "print!(",
    "println!(",
    "clippy::print_std",
    "e.print()",
    ".print_help()",
    ".print_long_help()",
    "ProgressBar",
    "dup2_std",
];

#[test]
fn there_is_one_way_to_a_terminal() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !WRITERS.iter().any(|writer| file.path.ends_with(writer))) {
        // Unit tests may print: nobody but who runs them sees it.
        let own = own_text(file, "#[cfg(test)]\nmod tests {");
        for (number, line) in own.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let imported = line.starts_with("use ") && (line.contains("stdout") || line.contains("stderr"));
            if imported || WRITES.iter().any(|word| line.contains(word)) {
                wrong.push(format!("src/{}:{}: {}", file.path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "shown past cli/terminal.rs, which cleans it:\n{}", wrong.join("\n"));
}

/// Who opens files in other ways: for the user, who shares projects with others; to try a sandbox; what
/// is there already.
const OPENERS: &[&str] = &[
    "environment.rs",
    "cli/agents.rs",
    "sandbox/probe.rs",
    "sandbox/trial.rs",
    "store/sqlite/index.rs",
    "store/sqlite/session.rs",
    "store/sqlite/takeover.rs",
    "tidy.rs",
    "tool/watch.rs",
];

/// The text of a file up to its tests; nothing of a file that is there for tests alone, or below such a one.
fn own_text<'f>(file: &'f File, tests: &str) -> &'f str {
    let all = files();
    let only_tested = |path: &Path| {
        let (Some(name), Some(above)) = (path.file_stem().and_then(|name| name.to_str()), path.parent()) else {
            return false;
        };
        let parent = match above.as_os_str().is_empty() {
            true => PathBuf::from("lib.rs"),
            false => above.with_extension("rs"),
        };
        let parent = all.iter().find(|file| file.path == parent);
        let declared = ["", "pub ", "pub(crate) ", "pub(super) "].map(|public| format!("{public}mod {name};"));
        parent.is_some_and(|parent| {
            let lines: Vec<&str> = parent.text.lines().map(str::trim).collect();
            let at = lines.iter().position(|line| declared.iter().any(|mine| mine == line));
            at.is_some_and(|at| {
                lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).any(|line| *line == "#[cfg(test)]")
            })
        })
    };
    if file.path.ancestors().any(only_tested) { "" } else { file.text.split(tests).next().unwrap_or_default() }
}

#[test]
fn what_we_keep_is_made_for_its_owner_alone() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| !OPENERS.iter().any(|opener| file.path.ends_with(opener))) {
        let own = own_text(file, "#[cfg(test)]");
        for (number, line) in own.lines().enumerate() {
            if ["File::create", "fs::write(", "File::options()", "OpenOptions::"].iter().any(|word| line.contains(word))
            {
                wrong.push(format!("src/{}:{}: {}", file.path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "files opened past environment::private_file:\n{}", wrong.join("\n"));
}

#[test]
fn names_say_something() {
    let empty = |file: &&File| {
        let names = file.path.iter().map(|name| name.to_string_lossy().trim_end_matches(".rs").to_owned());
        names
            .flat_map(|name| name.split('_').map(str::to_owned).collect::<Vec<_>>())
            .any(|word| EMPTY_WORDS.contains(&word.as_str()))
    };
    let empty: Vec<_> = files().iter().filter(empty).map(|file| file.path.display().to_string()).collect();
    assert!(empty.is_empty(), "these names say nothing: {empty:?}");
}

#[test]
fn a_folder_has_its_noun_beside_it() {
    let files = files();
    let folders = files.iter().filter_map(|file| file.path.parent().filter(|folder| !folder.as_os_str().is_empty()));
    let missing: Vec<_> =
        folders.filter(|folder| !files.iter().any(|file| file.path == folder.with_extension("rs"))).collect();
    assert!(missing.is_empty(), "no x.rs beside x/: {missing:?}");
}

#[test]
fn imports_are_read_as_they_are_written() {
    let text = "use crate::{id::{X, Y}, text,\n  event::Z,\n};\n// crate::cli\nlet x = crate::model::Y;\n/// [`crate::session`]\n";
    let names: Vec<_> = named(text).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    assert_eq!(names, ["1 id", "1 text", "1 event", "5 model"]);
}
