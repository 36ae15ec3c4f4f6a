//! Where in the code something is: reading what grep and read print, and ranking it.
//!
//! Ranking happens twice. First here, over the lines grep found, to decide what to read; then in
//! `blocks`, over the functions, types and sections in what was read, to decide what to show.

use std::collections::BTreeMap;

use super::blocks::{definition, file_stem, is_prose};
use super::words::{Found, Term, Terms};

/// A line that grep found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    /// The file, as grep printed it.
    pub(super) path: String,
    /// Counted from 1.
    pub(super) line: u64,
    /// The line.
    pub(super) text: String,
}

/// Reads what the grep tool prints: `path:`, then `  Line n: text` for each match.
pub(super) fn hits(output: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut path: Option<&str> = None;
    for line in output.lines() {
        if let Some((number, text)) = line.strip_prefix("  Line ").and_then(|rest| rest.split_once(':')) {
            if let (Some(path), Ok(line)) = (path, number.trim().parse()) {
                hits.push(Hit { path: path.to_owned(), line, text: text.strip_prefix(' ').unwrap_or(text).to_owned() });
            }
        } else if !line.starts_with([' ', '(']) && line.len() > 1 {
            // Of a file with many matches it says how many are shown.
            let named = line.strip_suffix(':');
            let bare = named.and_then(|line| line.strip_suffix(')')?.rsplit_once(" ("));
            let part = bare.filter(|(_, part)| part.contains(" of "));
            path = part.map(|(path, _)| path).or(named).or(path);
        }
    }
    hits
}

/// Reads what the glob tool prints: one path a line.
pub(super) fn paths(output: &str) -> Vec<String> {
    let is_path = |line: &&str| !line.is_empty() && !line.starts_with("No files match ");
    // What is said of the paths stands after them.
    let lines = output.lines().map(str::trim).take_while(|line| !line.starts_with('('));
    lines.filter(is_path).map(str::to_owned).collect()
}

/// Lines of a file that were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Window {
    /// The file, as it was asked for.
    pub(super) path: String,
    /// Numbers, counted from 1, and texts.
    pub(super) lines: Vec<(u64, String)>,
    /// How many lines the file has, where read said so.
    pub(super) total: Option<u64>,
    /// The whole file is here, and no line of it is cut.
    pub(super) whole: bool,
}

impl Window {
    /// Reads what the read tool prints; none when there is no file's content in it.
    pub(super) fn of_read(output: &str) -> Option<Self> {
        let path = between(output, "<path>", "</path>")?.trim().to_owned();
        let (_, content) = output.split_once("<content>")?;
        let content = content.rsplit_once("</content>").map_or(content, |(content, _)| content);
        let mut window = Self { path, ..Self::default() };
        let mut notes = String::new();
        for line in content.lines() {
            let numbered = line.split_once(':').and_then(|(n, text)| Some((n.trim().parse::<u64>().ok()?, text)));
            match numbered {
                Some((number, text)) if notes.is_empty() => {
                    window.lines.push((number, text.strip_prefix(' ').unwrap_or(text).to_owned()));
                }
                _ if line.starts_with('(') => notes.push_str(line),
                _ => {}
            }
        }
        window.total = ["total ", " of "].iter().find_map(|before| {
            let (_, after) = notes.split_once(before)?;
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        let cut = content.contains("; read on with offset=");
        let from_start = window.lines.first().is_none_or(|(number, _)| *number == 1);
        window.whole = from_start && notes.contains("End of file") && !cut;
        Some(window)
    }

    /// The text, with a newline after every line.
    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inside, _)| inside)
}

/// How much a file is worth for its place in the project: sources before tests before what nobody
/// wrote by hand.
pub(super) fn worth(path: &str, terms: &Terms, prose: bool) -> f64 {
    let path = path.replace('\\', "/").to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    let under = |dirs: &[&str]| {
        dirs.iter().any(|dir| path.contains(&format!("/{dir}/")) || path.starts_with(&format!("{dir}/")))
    };
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[
        ".lock",
        ".min.js",
        ".min.css",
        ".map",
        ".svg",
        ".snap",
        ".csv",
        ".log",
        "-lock.json",
        "-lock.yaml",
        ".sum",
        ".pem",
    ]) || under(&[
        "node_modules",
        "vendor",
        "third_party",
        "dist",
        "target",
        ".venv",
        "site-packages",
        "generated",
        "__pycache__",
    ]) {
        return 0.05;
    }
    let asks_for_tests = terms.terms.iter().any(|term| term.stem == "test");
    let is_test = under(&["test", "tests", "spec", "__tests__", "testdata", "fixtures", "editor-tests"])
        || ends(&[
            "_test.go",
            "_test.py",
            ".test.ts",
            ".test.js",
            ".spec.ts",
            ".spec.js",
            ".test.tsx",
            "_test.rs",
            "tests.rs",
        ])
        || name.starts_with("test_");
    if is_test && !asks_for_tests {
        return 0.45;
    }
    let is_prose = ends(&[".md", ".rst", ".txt", ".adoc", ".mdx", ".html"]) || under(&["docs", "doc"]);
    match (is_prose, prose) {
        (true, true) => 1.2,
        (true, false) => 0.5,
        _ if ends(&[".json", ".yaml", ".yml", ".xml", ".jsonl"]) => 0.6,
        _ => 1.0,
    }
}

/// How much a path speaks for itself: 1 for each term in the file's name, a third for one in a
/// directory's name.
fn name_score(path: &str, terms: &Terms) -> f64 {
    let path = path.replace('\\', "/");
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path.as_str()));
    let directory: String = directory.rsplit('/').take(2).collect::<Vec<_>>().join(" ");
    let name = terms.found(name);
    let directory = terms.found(&directory).own & !name.own;
    let kin = name.kin & !name.own;
    f64::from(name.own.count_ones()) + f64::from(kin.count_ones()) / 2.0 + f64::from(directory.count_ones()) / 3.0
}

/// How much each term is worth: rare ones more than common ones.
#[derive(Debug, Clone)]
pub(super) struct Weights(Vec<f64>);

impl Weights {
    /// Weighs the terms by how many of the found lines have them.
    pub(super) fn of(terms: &Terms, hits: &[Hit]) -> Self {
        let mut counts = vec![0.0; terms.terms.len()];
        for hit in hits {
            let found = terms.found(&hit.text).own;
            for (at, count) in counts.iter_mut().enumerate() {
                if found >> at & 1 == 1 {
                    *count += 1.0;
                }
            }
        }
        let all = hits.len() as f64 + 1.0;
        let weigh = |(count, term): (f64, &Term)| {
            let rare = (1.0 + all / (1.0 + count)).ln().clamp(0.4, 3.0);
            if term.weak { rare / 3.0 } else { rare }
        };
        Self(counts.into_iter().zip(&terms.terms).map(weigh).collect())
    }

    /// What a find is worth: own words whole, related words a third.
    pub(super) fn sum(&self, found: &Found) -> f64 {
        let mut sum = 0.0;
        for (at, weight) in self.0.iter().enumerate() {
            if found.own >> at & 1 == 1 {
                sum += weight;
            } else if found.kin >> at & 1 == 1 {
                sum += weight / 3.0;
            }
        }
        sum
    }
}

/// How much more a file is worth whose whole name was asked for.
const SAMENESS: f64 = 12.0;

/// Lines worth reading.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    /// The file, as grep or glob printed it.
    pub(super) path: String,
    /// The first and the last line of interest, counted from 1.
    pub(super) lines: (u64, u64),
    /// More is better.
    pub(super) score: f64,
}

/// Lines further apart than this are different places.
const GAP: u64 = 25;

/// The places worth reading, best first: at most `most`, at most two of one file.
pub(super) fn rank(
    terms: &Terms,
    weights: &Weights,
    hits: &[Hit],
    files: &[String],
    prose: bool,
    most: usize,
) -> Vec<Place> {
    let mut by_file: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    for hit in hits {
        by_file.entry(&hit.path).or_default().insert(hit.line, &hit.text);
    }
    let mut places: Vec<Place> = Vec::new();
    for (path, lines) in &by_file {
        let factor = worth(path, terms, prose) * (1.0 + 0.5 * name_score(path, terms));
        let mut cluster: Vec<(u64, &str)> = Vec::new();
        for (line, text) in lines {
            if cluster.last().is_some_and(|(last, _)| line - last > GAP) {
                places.push(place(path, &cluster, terms, weights, factor));
                cluster.clear();
            }
            cluster.push((*line, text));
        }
        if !cluster.is_empty() {
            places.push(place(path, &cluster, terms, weights, factor));
        }
    }
    for path in files {
        // A file that is only named after the words: its beginning says what it is for.
        let named = name_score(path, terms);
        if named >= 1.0 && !by_file.contains_key(path.as_str()) {
            let stem = file_stem(path);
            let own = terms.found(&stem).own.count_ones() as usize;
            // Named after nothing else, it is about just that: grep shows only so many lines, the
            // newest first, and may have had none left for it.
            let whole = if own >= stem.split(['_', '-', '.']).count() { SAMENESS } else { 1.0 };
            places.push(Place { path: path.clone(), lines: (1, 1), score: named * whole * worth(path, terms, prose) });
        }
    }
    places.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)).then(a.lines.cmp(&b.lines)));
    let mut chosen: Vec<Place> = Vec::new();
    for place in places {
        let same = chosen.iter().filter(|other| other.path == place.path).count();
        if chosen.len() < most && same < 2 {
            chosen.push(place);
        }
    }
    chosen
}

fn place(path: &str, cluster: &[(u64, &str)], terms: &Terms, weights: &Weights, factor: f64) -> Place {
    let mut all = Found::default();
    let mut best: f64 = 0.0;
    for (_, text) in cluster {
        let found = terms.found(text);
        let mut score = weights.sum(&found) + found.pairs as f64 * 2.0;
        score += literal_score(text, terms);
        if let Some(definition) = definition(text, is_prose(path)) {
            let named = terms.found(&definition.name);
            let under = terms.found(&format!("{} {}", file_stem(path), definition.name));
            score += 2.0 * weights.sum(&named) + (named.pairs + under.pairs).min(2) as f64 * 3.0;
        } else if is_import(text) {
            score *= 0.2;
        }
        best = best.max(score);
        all.own |= found.own;
        all.kin |= found.kin;
    }
    let density = (cluster.len() as f64).ln_1p() * 0.3;
    let lines = (cluster.first().map_or(1, |(line, _)| *line), cluster.last().map_or(1, |(line, _)| *line));
    Place { path: path.to_owned(), lines, score: (best + weights.sum(&all) + density) * factor }
}

pub(super) fn literal_score(text: &str, terms: &Terms) -> f64 {
    let whole = terms.literals.iter().filter(|literal| text.contains(literal.as_str())).count();
    whole as f64 * 3.0
}

pub(super) fn is_import(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").unwrap_or(line);
    ["use ", "import ", "from ", "#include", "require", "mod ", "package ", "using "]
        .iter()
        .any(|start| line.starts_with(start))
        && !line.contains('{')
        || line.starts_with("use ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grep_output() {
        let output = "Found 9 matches in 3 files; 3 are shown, those of the newest files\n\n/p/a.rs (2 of 4):\n  Line 3: fn a() {\n\n  Line 10:     b: c\n\nC:\\x\\b.rs:\n  Line 1: x\n\nMatches not shown:\n  /p/c.rs: 3\n\n(Use a more specific path, include or pattern, or filesOnly.)";
        let found: Vec<String> =
            hits(output).iter().map(|hit| format!("{}|{}|{}", hit.path, hit.line, hit.text)).collect();
        assert_eq!(found, ["/p/a.rs|3|fn a() {", "/p/a.rs|10|    b: c", "C:\\x\\b.rs|1|x"]);
        assert!(hits("No matches for `a:b` in 3 files.").is_empty());
        let listed =
            "/p/a\n/p/b\n\n(The 2 newest of 3 files. By directory:\n  /p: 3\nUse a more specific path or pattern.)";
        assert_eq!(paths(listed), ["/p/a", "/p/b"]);
        assert!(paths("No files match `x`. What git ignores is left out.").is_empty());
    }

    #[test]
    fn a_file_named_by_the_question_is_read_even_when_grep_had_no_line_left_for_it() {
        let terms = Terms::of("where is the wildcard of a rule matched?", &[]);
        let hit = |line: u64| Hit {
            path: format!("/p/r{}.rs", line % 7),
            line,
            text: "    let rule = next_rule(list);".into(),
        };
        let hits: Vec<Hit> = (1..100).map(|n| hit(n * 50)).collect();
        let weights = Weights::of(&terms, &hits);
        let places =
            rank(&terms, &weights, &hits, &["/p/wildcard.rs".into(), "/p/wildcard_notes_old.rs".into()], false, 4);
        let paths: Vec<&str> = places.iter().map(|place| place.path.as_str()).collect();
        assert!(paths.contains(&"/p/wildcard.rs"), "{paths:?}");
    }

    #[test]
    fn read_output() {
        let output = "<path>/p/a.rs</path>\n<type>file</type>\n<content>\n9: a: b\n10: \n11: (x)\n\n(Showing lines 9-11 of 40. Use offset=12 to continue.)\n</content>";
        let window = Window::of_read(output).unwrap();
        assert_eq!(window.lines, [(9, "a: b".into()), (10, String::new()), (11, "(x)".into())]);
        assert_eq!((window.total, window.whole), (Some(40), false));
        let whole =
            Window::of_read("<path>a</path>\n<content>\n1: x\n\n(End of file - total 1 lines)\n</content>").unwrap();
        assert_eq!((whole.total, whole.whole, whole.text().as_str()), (Some(1), true, "x\n"));
        assert_eq!(Window::of_read("File not found: a"), None);
    }

    #[test]
    fn sources_come_first() {
        let terms = Terms::of("where is the lock?", &[]);
        let order = ["src/lock.rs", "docs/lock.md", "src/lock_test.rs", "Cargo.lock"];
        let worths: Vec<f64> = order.iter().map(|path| worth(path, &terms, false)).collect();
        assert!(worths.windows(2).all(|pair| pair[0] > pair[1]), "{worths:?}");
    }
}
