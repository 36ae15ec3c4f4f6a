//! Checks of the documentation pages: the README is short, every link has a target, every named
//! command exists, every example of settings is understood, and every message exists.

use std::fs;
use std::path::{Path, PathBuf};

use base::environment::Environment;
use base::worktree::Worktree;
use config::problem::ProblemSeverity;

/// The longest README, in bytes. Further text belongs in the `README.md` of a folder.
const MAX_README_BYTES: usize = 10_000;

/// Folders with Markdown for tests and models, which are not pages about adjutant.
const MATERIAL: &[&str] = &[
    "crates/mcp/src",
    "crates/tools/src",
    "editor-tests/fixtures",
    "prompts",
    "src/cli/terminal/markdown",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every Markdown file of the repository, with its path relative to the root.
fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let short = path.strip_prefix(root()).unwrap().to_owned();
            if path.is_dir() {
                let skipped = ["target", ".git", "node_modules", "corpus"]
                    .iter()
                    .any(|skipped| name == *skipped);
                if !skipped && !MATERIAL.iter().any(|material| short == Path::new(material)) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push((short, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(found.len() > 100, "the pages are not where they should be");
    found
}

/// Returns the pages of the manual.
pub(super) fn manual() -> impl Iterator<Item = (PathBuf, String)> {
    pages()
        .into_iter()
        .filter(|(page, _)| page.starts_with("docs"))
}

/// Returns the lines outside fenced blocks, and those inside with the language of their block.
fn split(text: &str) -> (Vec<&str>, Vec<(&str, &str)>) {
    let mut prose = Vec::new();
    let mut fenced = Vec::new();
    let mut language = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(name), None) => language = Some(name.trim()),
            (None, Some(language)) => fenced.push((language, line)),
            (None, None) => prose.push(line),
        }
    }
    (prose, fenced)
}

/// Returns the code spans of a line, without their backticks, and the line without them.
pub(super) fn spans(line: &str) -> (Vec<&str>, String) {
    let mut spans = Vec::new();
    let mut rest = line;
    let mut plain = String::new();
    while let Some(at) = rest.find('`') {
        let marks = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
        let before = &rest[..at];
        let after = &rest[at + marks..];
        let Some(end) = after.find(&rest[at..at + marks]) else {
            break;
        };
        plain.push_str(before);
        spans.push(after[..end].trim());
        rest = &after[end + marks..];
    }
    plain.push_str(rest);
    (spans, plain)
}

/// Returns the anchor of a heading, as on GitHub.
fn anchor(heading: &str) -> String {
    let letters = heading
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters.collect::<String>().to_lowercase().replace(' ', "-")
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let (prose, _) = split(text);
    let headings = prose
        .iter()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#'));
    headings.map(anchor).any(|anchor| anchor == wanted)
}

/// Returns the link targets within the repository: `](path)`, `](path#heading)`, `](#heading)`.
fn links(line: &str) -> Vec<String> {
    let (_, plain) = spans(line);
    let starts = plain.match_indices("](").map(|(at, mark)| at + mark.len());
    let targets = starts.filter_map(|at| {
        plain[at..]
            .split_once(')')
            .map(|(target, _)| target.to_owned())
    });
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

#[test]
fn readme_is_short() {
    let bytes = fs::read(root().join("README.md")).unwrap().len();
    assert!(
        bytes < MAX_README_BYTES,
        "README.md has {bytes} bytes; {MAX_README_BYTES} are allowed"
    );
}

#[test]
fn map_names_every_crate() {
    let map = include_str!("../crates.md");
    let entries = fs::read_dir(root().join("crates")).unwrap().flatten();
    let folders = entries.filter(|entry| entry.path().join("Cargo.toml").exists());
    let names = folders.map(|entry| entry.file_name().to_string_lossy().replace('-', "_"));
    let others = ["adjutant", "protocol", "prompts"].map(str::to_owned);
    let is_missing = |name: &String| {
        !map.contains(&format!("[`{name}`]")) || !map.contains(&format!("]: ../{name}/index.html"))
    };
    let missing: Vec<String> = names.chain(others).filter(is_missing).collect();
    assert!(missing.is_empty(), "src/crates.md lacks {missing:?}");
}

#[test]
fn every_link_has_a_target() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for link in split(&text).0.iter().flat_map(|line| links(line)) {
            let (path, heading) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(path, h)| (path, Some(h)));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.with_file_name("").join(path)
            };
            let target = root().join(target);
            let found = target.exists()
                && heading.is_none_or(|heading| {
                    fs::read_to_string(&target).is_ok_and(|text| has_anchor(&text, heading))
                });
            if !found {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "links that lead nowhere:\n{}",
        wrong.join("\n")
    );
}

/// Returns paragraphs, rows and list items, each as one line.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut open = false;
    for line in split(text).0 {
        let start = line.trim_start();
        let item = start
            .split_once(". ")
            .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        let begins = item || start.starts_with(['|', '-', '#']) || start.starts_with("**");
        match units.last_mut() {
            Some(unit) if open && !begins => *unit = format!("{unit} {start}"),
            _ => units.push(start.to_owned()),
        }
        open = !start.is_empty();
    }
    units
}

/// Checks that every path in backticks exists, and that a function (`name()`) or a constant for
/// extenders is in a source file named in the same paragraph. `x` is a placeholder for a name.
#[test]
fn every_named_file_and_function_exists() {
    let mut wrong = Vec::new();
    let mut paths = 0;
    let mut functions = 0;
    let ours = |page: &Path| !page.starts_with("editor-tests") || page.ends_with("README.md");
    for (page, text) in pages()
        .into_iter()
        .filter(|(page, _)| ours(page) && !page.ends_with("CHANGELOG.md"))
    {
        for unit in units(&text) {
            let (spans, _) = spans(&unit);
            let folders = [
                "src/",
                "crates/",
                "protocol/",
                "prompts/",
                "editor-tests/",
                ".ci/",
                ".github/",
            ];
            let is_path = |span: &&&str| folders.iter().any(|folder| span.starts_with(folder));
            let named = spans
                .iter()
                .filter(is_path)
                .filter(|span| !span.contains(['*', '<', '…', ' ', '{']));
            let named: Vec<&Path> = named.map(|span| Path::new(*span)).collect();
            let named = named
                .into_iter()
                .filter(|path| path.file_stem().is_some_and(|stem| stem != "x"));
            let mut sources = String::new();
            for path in named {
                paths += 1;
                match root().join(path) {
                    path if path.is_file() => {
                        sources.push_str(&fs::read_to_string(path).unwrap_or_default())
                    }
                    path if path.is_dir() => {}
                    _ => wrong.push(format!("{}: {}", page.display(), path.display())),
                }
            }
            if sources.is_empty() {
                continue;
            }
            for name in spans.iter().filter_map(|span| span.strip_suffix("()")) {
                functions += 1;
                let name = format!("fn {}", name.rsplit("::").next().unwrap_or(name));
                if !sources.contains(&format!("{name}(")) && !sources.contains(&format!("{name}<"))
                {
                    wrong.push(format!("{}: {name}() in {unit}", page.display()));
                }
            }
            // On other pages, a name in capitals is an environment variable.
            let constant = |span: &&&str| {
                span.len() > 2 && span.bytes().all(|c| c.is_ascii_uppercase() || c == b'_')
            };
            if !page.ends_with("CONTRIBUTING.md") {
                continue;
            }
            for name in spans
                .iter()
                .filter(constant)
                .filter(|name| !sources.contains(**name))
            {
                wrong.push(format!("{}: {name} in {unit}", page.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "named, and not there:\n{}",
        wrong.join("\n")
    );
    assert!(paths > 100 && functions > 30, "{paths} {functions}");
}

/// Transcripts run the commands that they name; all other pages only name them.
#[test]
fn every_named_command_exists() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let is_for_readers =
        |page: &Path| !page.starts_with("editor-tests") || page.ends_with("README.md");
    for (page, text) in pages().into_iter().filter(|(page, _)| is_for_readers(page)) {
        let (prose, fenced) = split(&text);
        let shell = fenced
            .iter()
            .filter(|(language, _)| *language == "sh")
            .map(|(_, line)| line.trim());
        let named = prose.iter().flat_map(|line| spans(line).0).chain(shell);
        for line in named.filter(|line| *line == "adjutant" || line.starts_with("adjutant ")) {
            count += 1;
            if let Err(why) = crate::cli::understands(&words(line)) {
                wrong.push(format!("{}: `{line}`: {why}", page.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "commands that do not exist:\n{}",
        wrong.join("\n")
    );
    assert!(count > 20, "{count}");
}

/// Returns the fenced blocks of a text: their language and their contents.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(language) => {
                is_open = !is_open;
                if is_open {
                    found.push((language.trim(), String::new()));
                }
            }
            None if is_open => {
                let block = found.last_mut().unwrap();
                block.1.push_str(line);
                block.1.push('\n');
            }
            None => {}
        }
    }
    found
}

/// Settings that a page shows are understood without an error or a warning, as a user's own.
#[test]
fn every_example_of_settings_is_understood() {
    // The top-level keys of files that belong to other programs: editors, and a list of skills on
    // the web.
    let foreign = ["agent_servers", "acp.agents"];
    let index_of_skills = r#"{"skills": [{"name""#;
    let mut wrong = Vec::new();
    let mut count = 0;
    let is_manual = |page: &Path| page.starts_with("docs") || page == Path::new("README.md");
    for (page, text) in pages().into_iter().filter(|(page, _)| is_manual(page)) {
        for (_, block) in blocks(&text)
            .into_iter()
            .filter(|(language, _)| ["json", "jsonc"].contains(language))
        {
            let is_foreign = foreign.iter().any(|key| block.contains(key));
            if is_foreign || block.starts_with(index_of_skills) {
                continue;
            }
            count += 1;
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home");
            let own = home.join(".config/adjutant");
            fs::create_dir_all(&own).unwrap();
            fs::create_dir(dir.path().join("project")).unwrap();
            fs::write(own.join("adjutant.jsonc"), &block).unwrap();
            let home_variable = ("HOME".to_owned(), home.display().to_string());
            let named = block.split("{env:").skip(1).filter_map(|rest| {
                let (name, _) = rest.split_once('}')?;
                Some((name.to_owned(), "value".to_owned()))
            });
            let environment = Environment::from_vars(named.chain([home_variable]).collect());
            let project = dir.path().join("project");
            let worktree = Worktree::find(&project, &[], Some(&home));
            let loaded = config::load(&environment, &worktree, &project);
            wrong.extend(
                loaded
                    .problems
                    .iter()
                    .filter(|problem| problem.severity >= ProblemSeverity::Warning)
                    .map(|problem| {
                        format!(
                            "{}: {}: {}\n{block}",
                            page.display(),
                            problem.key,
                            problem.message
                        )
                    }),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10, "{count}");
}

/// An agent's file that a page shows is read by the program's own reader.
#[test]
fn every_example_of_an_agent_is_understood() {
    let mut count = 0;
    for (page, text) in manual() {
        let examples = blocks(&text).into_iter();
        for (_, block) in examples.filter(|(language, _)| *language == "markdown") {
            count += 1;
            let page = page.display();
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home");
            let agents = home.join(".config/adjutant/agents");
            let project = dir.path().join("project");
            fs::create_dir_all(&agents).unwrap();
            fs::create_dir(&project).unwrap();
            fs::write(agents.join("example.md"), &block).unwrap();
            let home_variable = ("HOME".to_owned(), home.display().to_string());
            let environment = Environment::from_vars([home_variable].into_iter().collect());
            let worktree = Worktree::find(&project, &[], Some(&home));
            let loaded = config::load(&environment, &worktree, &project);
            assert!(
                loaded.problems.is_empty(),
                "{page}: {:?}\n{block}",
                loaded.problems
            );
            let agents = loaded.settings.agents.iter();
            let names: Vec<&str> = agents.map(|agent| agent.name.as_str()).collect();
            assert_eq!(names, ["example"], "{page}");
        }
    }
    assert!(count > 0);
}

/// A message that the page about troubleshooting explains is one that the program prints.
#[test]
fn every_explained_message_exists() {
    let mut sources = String::new();
    let mut folders: Vec<PathBuf> = ["src", "crates", "protocol", "prompts"]
        .map(|folder| root().join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "rs" || extension == "md")
            {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    // A text that continues on the next line.
    let mut pieces = sources.split("\\\n");
    let mut joined = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        joined.push_str(piece.trim_start());
    }
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let mut count = 0;
    for heading in page.lines().filter(|line| line.starts_with("### `")) {
        // An error of the operating system is not ours.
        if heading.contains("No such file or directory") {
            continue;
        }
        for part in spans(heading).0[0].split('…').map(str::trim) {
            count += 1;
            assert!(joined.contains(part), "no message contains {part:?}");
        }
    }
    assert!(count > 8, "{count}");
}

/// Splits a command line as a shell would, as far as pages need it: quotes, and the `\|` of a
/// table.
pub(crate) fn words(line: &str) -> Vec<String> {
    let line = line
        .split(" #")
        .next()
        .unwrap_or_default()
        .replace("\\|", "|");
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            (letter, Some(mark)) if letter == mark => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            // The rest belongs to the shell or to another program.
            ('<' | '>' | '|', None) => break,
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[test]
fn links_spans_anchors_and_words_are_parsed() {
    let line = "see `a](b)`, [c](d.md#e-f) and [g](https://h), [i](#j) ``k`l``";
    assert_eq!(links(line), ["d.md#e-f", "#j"]);
    assert_eq!(spans(line).0, ["a](b)", "k`l"]);
    assert_eq!(anchor(" Who may wait for what"), "who-may-wait-for-what");
    assert!(
        has_anchor("```\n# no\n```\n## A `b`, c\n", "a-b-c")
            && !has_anchor("```\n# no\n```\n", "no")
    );
    assert_eq!(
        words("adjutant x 'git log \\| sh' \"a b\"  --c # d"),
        ["adjutant", "x", "git log | sh", "a b", "--c"]
    );
    assert_eq!(words("adjutant x < a | b"), ["adjutant", "x"]);
    assert!(crate::cli::understands(&words("adjutant sessions export ID --format html")).is_ok());
    assert!(crate::cli::understands(&words("adjutant sessions exprot ID")).is_err());
    assert!(crate::cli::understands(&words("adjutant run --no-such x")).is_err());
}

/// A transcript must be valid on every machine: the paths of the checkout and of temporary files
/// are replaced by names such as `${ADJUTANT}` and `${TMP}`.
#[test]
fn transcript_contains_no_path_of_a_machine() {
    let own = ["/target/debug/", "/target/release/", "/tmp/adjutant-"];
    let is_output = |language: &str| language.starts_with("agent") || language == "terminal";
    for (page, text) in pages() {
        for (_, line) in split(&text)
            .1
            .into_iter()
            .filter(|(language, _)| is_output(language))
        {
            assert!(
                !own.iter().any(|own| line.contains(own)),
                "{}: {line}",
                page.display()
            );
        }
    }
}
