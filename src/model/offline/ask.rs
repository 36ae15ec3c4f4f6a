//! Questions: search, read the best places, quote them.

use serde_json::json;

use super::answer::{cited, count, named, not_done};
use super::blocks::{self, Extract};
use super::desk::{Desk, Waits, Wanted};
use super::order::Question;
use super::places::{self, Hit, Place, Weights, Window};
use super::view::Done;
use super::words::{Terms, quoted};

/// How many places are read, and shown at most.
const MOST_PLACES: usize = 4;

/// Answers a question.
pub(super) fn answer(desk: &mut Desk<'_>, question: &Question) -> Waits<String> {
    investigate(desk, question, false)
}

/// Makes a plan for something this model cannot do, and does the part it can: finding the places.
pub(super) fn plan(desk: &mut Desk<'_>, goal: &str, question: &Question) -> Waits<String> {
    let about = Terms::of(&question.plain, &question.literals);
    let about = if about.is_empty() { "it".to_owned() } else { about.listed() };
    let entries = [
        format!("Find the code about {about}"),
        "Read the places that matter".to_owned(),
        "Decide what changes where".to_owned(),
        format!("Make the change: {}", super::sentence::clip(goal, 80)),
        "Run the tests and read the diff".to_owned(),
    ];
    desk.plan(entries.iter().cloned());
    desk.mark(0, "in_progress");
    // That the change itself is left to others is said with the plan.
    let question = Question { work: false, ..question.clone() };
    let found = investigate(desk, &question, true)?;
    desk.mark(0, "completed");
    desk.mark(1, "completed");
    desk.show_plan("")?;
    let list: Vec<String> = entries.iter().zip(1..).map(|(entry, n)| format!("{n}. {entry}")).collect();
    Ok(format!(
        "The plan:\n\n{}\n\nThe first two steps are done; the others need a model that understands code, or you.\n\n{found}",
        list.join("\n")
    ))
}

fn investigate(desk: &mut Desk<'_>, question: &Question, planned: bool) -> Waits<String> {
    if question.overview && question.paths.is_empty() && desk.view.attached.is_empty() {
        return overview(desk);
    }
    let terms = Terms::of(&question.plain, &question.literals);
    if terms.is_empty() && question.paths.is_empty() && desk.view.attached.is_empty() {
        return Ok("I found no word in that to search for. Name a thing in the code, a file or a text, for example: \
                   where is `main` defined?"
            .to_owned());
    }
    let mut seen = look(desk, question, &terms)?;
    if planned {
        desk.mark(0, "completed");
        desk.mark(1, "in_progress");
    }
    if !terms.is_empty() {
        read_best(desk, question, &terms, &mut seen)?;
    }
    Ok(compose(desk, question, &terms, &seen))
}

/// What has been looked at.
#[derive(Debug, Default)]
struct Seen {
    hits: Vec<Hit>,
    files: Vec<String>,
    windows: Vec<Window>,
    /// Files named in the question or attached to it: by position in `windows`.
    asked: usize,
    /// What could not be done.
    failures: Vec<String>,
    /// How many reads were made for the answer.
    reads: usize,
}

/// The first look: the files that were named, lines, and names of files; all side by side.
fn look(desk: &mut Desk<'_>, question: &Question, terms: &Terms) -> Waits<Seen> {
    let mut seen = Seen { windows: desk.view.attached.clone(), ..Seen::default() };
    let is_attached = |path: &&String| !desk.view.attached.iter().any(|window| window.path.ends_with(path.as_str()));
    let named: Vec<&String> = question.paths.iter().filter(is_attached).collect();
    let mut wanted: Vec<Wanted> = named.iter().map(|path| ("read", json!({"filePath": path}))).collect();
    let reads = wanted.len();
    if !terms.is_empty() {
        let (precise, broad) = (terms.precise(), terms.broad(false));
        if precise != broad {
            wanted.push(("grep", json!({"pattern": precise})));
        }
        wanted.push(("grep", json!({"pattern": broad})));
        wanted.extend(terms.names().map(|pattern| ("glob", json!({"pattern": pattern}))));
    }
    if wanted.is_empty() {
        seen.asked = seen.windows.len();
        return Ok(seen);
    }
    let (thought, text) = intent(question, terms, &named);
    let mut missing_paths = Vec::new();
    for (at, done) in desk.step(&thought, &text, wanted)?.into_iter().enumerate() {
        if at < reads {
            match Window::of_read(&done.text).filter(|_| !done.failed) {
                Some(window) => seen.windows.push(window),
                None => {
                    if let Some(path) = named.get(at) {
                        missing_paths.push((*path, done));
                    }
                }
            }
        } else {
            note(&mut seen, terms, done);
        }
    }
    elsewhere(desk, missing_paths, &mut seen)?;
    seen.asked = seen.windows.len();
    let nothing = seen.hits.is_empty() && seen.windows.is_empty();
    let (narrow, wide) = (terms.broad(false), terms.broad(true));
    if nothing && narrow != wide && !terms.is_empty() {
        let text = "Nothing has these words; trying related ones.";
        let done = desk.call(text, "grep", json!({"pattern": wide}))?;
        note(&mut seen, terms, done);
    }
    Ok(seen)
}

/// Files that are not where the question says: looked for by name, and read where found.
fn elsewhere(desk: &mut Desk<'_>, missing: Vec<(&String, Done)>, seen: &mut Seen) -> Waits<()> {
    let Some(((path, failed), others)) = missing.split_first() else { return Ok(()) };
    for (path, done) in others {
        seen.failures.push(not_done(&format!("reading {}", quoted(path)), done));
    }
    if super::answer::is_denial(&failed.text) || failed.missing {
        seen.failures.push(not_done(&format!("reading {}", quoted(path)), failed));
        return Ok(());
    }
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    let text = format!("There is no {} here; looking for it elsewhere.", quoted(path));
    let found = desk.call(&text, "glob", json!({"pattern": format!("**/{name}*")}))?;
    let files = if found.failed { Vec::new() } else { places::paths(&found.text) };
    match files.iter().min_by_key(|file| (file.len(), (*file).clone())) {
        Some(file) => {
            let done = desk.call("", "read", json!({"filePath": file}))?;
            seen.windows.extend(Window::of_read(&done.text).filter(|_| !done.failed));
        }
        None => seen.failures.push(format!("There is no file {}.", quoted(path))),
    }
    Ok(())
}

fn note(seen: &mut Seen, terms: &Terms, done: Done) {
    if done.failed {
        seen.failures.push(not_done("searching", &done));
        return;
    }
    if done.name == "grep" {
        for hit in places::hits(&done.text) {
            // A short word may have been found inside of another one.
            let found = terms.found(&hit.text);
            let lower = hit.text.to_lowercase();
            let is_literal = terms.literals.iter().any(|literal| lower.contains(&literal.to_lowercase()));
            if (found.kin != 0 || is_literal)
                && !seen.hits.iter().any(|known| known.path == hit.path && known.line == hit.line)
            {
                seen.hits.push(hit);
            }
        }
    } else {
        seen.files.extend(places::paths(&done.text));
    }
}

fn intent(question: &Question, terms: &Terms, named: &[&String]) -> (String, String) {
    let files: Vec<String> = named.iter().map(|path| quoted(path)).collect();
    let mut text = String::new();
    if !files.is_empty() {
        text.push_str(&format!("Reading {}. ", files.join(", ")));
    }
    if !terms.is_empty() {
        text.push_str(&format!("Looking for {} in the code and in the names of files.", terms.listed()));
    }
    let mut thought = String::new();
    if !terms.is_empty() {
        thought = format!(
            "The words that matter in “{}” are {}. First the lines that have several of them or define something named \
             after them, and the files named after them; then I read the best places.",
            question.text,
            terms.listed()
        );
    }
    (thought, text.trim_end().to_owned())
}

/// Reads the places that the search makes likely.
fn read_best(desk: &mut Desk<'_>, question: &Question, terms: &Terms, seen: &mut Seen) -> Waits<()> {
    let weights = Weights::of(terms, &seen.hits);
    let ranked = places::rank(terms, &weights, &seen.hits, &seen.files, question.prose, MOST_PLACES + 2);
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut ranges: Vec<(String, u64, u64)> = Vec::new();
    for Place { path, lines: (first, last), .. } in ranked {
        // Enough before it for the comment and the head of what it stands in, enough after it for the rest.
        let offset = first.saturating_sub(15).max(1);
        let end = (last + 40).min(offset + 200);
        let known = seen.windows.iter().any(|window| {
            desk.view.relative(&window.path) == desk.view.relative(&path)
                && window.lines.iter().any(|(line, _)| *line == first)
        });
        let overlaps = ranges.iter().any(|(other, from, to)| *other == path && first >= *from && first <= *to);
        if known || overlaps || wanted.len() >= MOST_PLACES {
            continue;
        }
        wanted.push(("read", json!({"filePath": path, "offset": offset, "limit": end - offset + 1})));
        ranges.push((path, offset, end));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let lines = count(seen.hits.len(), "line");
    let text = format!(
        "Found {lines}; reading {}.",
        if wanted.len() == 1 { "the best place".into() } else { format!("the {} best places", wanted.len()) }
    );
    for (done, (path, ..)) in desk.step("", &text, wanted)?.into_iter().zip(ranges) {
        match Window::of_read(&done.text).filter(|_| !done.failed) {
            Some(window) => {
                seen.reads += 1;
                seen.windows.push(Window { path: path.clone(), ..window });
            }
            None if done.missing => {}
            None => seen.failures.push(not_done(&format!("reading {}", quoted(&desk.view.relative(&path))), &done)),
        }
    }
    Ok(())
}

/// The answer from what was seen.
fn compose(desk: &Desk<'_>, question: &Question, terms: &Terms, seen: &Seen) -> String {
    let view = desk.view;
    let weights = Weights::of(terms, &seen.hits);
    let mut paragraphs: Vec<String> = Vec::new();
    for window in &seen.windows[..seen.asked] {
        paragraphs.push(about_file(desk, window));
    }
    let mut extracts: Vec<Extract> = Vec::new();
    if !terms.is_empty() {
        for (at, window) in seen.windows.iter().enumerate() {
            // What the user put on the table counts more than what was found by searching.
            let bonus = if at < seen.asked { 2.0 } else { 1.0 };
            let found = blocks::extracts(window, terms, &weights, question, 2);
            extracts.extend(found.into_iter().map(|extract| Extract { score: extract.score * bonus, ..extract }));
        }
    }
    extracts.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)).then(a.line.cmp(&b.line)));
    let best = extracts.first().map_or(0.0, |extract| extract.score);
    let mut shown: Vec<&Extract> = Vec::new();
    for extract in &extracts {
        let path = view.relative(&extract.path);
        let twice = shown.iter().any(|other| {
            view.relative(&other.path) == path
                && other.lines.iter().any(|(line, _)| extract.lines.iter().any(|(l, _)| l == line))
        });
        if !twice && shown.len() < MOST_PLACES && extract.score >= 0.35 * best {
            shown.push(extract);
        }
    }
    match shown.first() {
        Some(first) => {
            paragraphs.push(headline(desk, question, terms, first));
            paragraphs.extend(shown.iter().zip(1..).map(|(extract, number)| cited(view, number, extract)));
        }
        None if !seen.hits.is_empty() && seen.reads == 0 => paragraphs.push(lines_only(desk, terms, seen)),
        None if paragraphs.is_empty() => paragraphs.push(nothing(terms, seen)),
        None => {}
    }
    if let Some(files) = mentions(desk, question, seen).filter(|_| !shown.is_empty()) {
        paragraphs.push(files);
    }
    paragraphs
        .extend(seen.failures.iter().filter(|_| !shown.is_empty() || !seen.hits.is_empty() || seen.asked > 0).cloned());
    if !shown.is_empty() && !seen.hits.is_empty() {
        let mut files: Vec<&str> = seen.hits.iter().map(|hit| hit.path.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        let lines = count(seen.hits.len(), "line");
        let reads = if seen.reads > 0 { format!("; read {}", count(seen.reads, "place")) } else { String::new() };
        paragraphs.push(format!("Searched for {}: {lines} in {}{reads}.", terms.listed(), count(files.len(), "file")));
    }
    paragraphs.join("\n\n")
}

fn headline(desk: &Desk<'_>, question: &Question, terms: &Terms, first: &Extract) -> String {
    let place = format!("`{}:{}`", desk.view.relative(&first.path), first.line);
    let mut sentence = match &first.what {
        Some(what) if first.inside => format!("The best match is {place}, in {}", named(what)),
        Some(what) => format!("The best match is {} at {place}", named(what)),
        None => format!("The best match is {place}"),
    };
    match &first.says {
        Some(says) => sentence.push_str(&format!(". Its comment says: “{}”", says.trim_end())),
        None => sentence.push('.'),
    }
    if question.work {
        return format!(
            "I cannot make a change that has to be thought up: that needs a real model. But these are the places about {}. {sentence}",
            terms.listed()
        );
    }
    sentence
}

/// What a file is, in its author's words, and what it defines.
fn about_file(desk: &Desk<'_>, window: &Window) -> String {
    let path = desk.view.relative(&window.path);
    let length = match window.total {
        Some(total) => format!(" ({total} lines)"),
        None => String::new(),
    };
    let mut text = match blocks::opening(window) {
        Some((line, words)) => format!("`{path}`{length} begins with (`{path}:{line}`): “{words}”"),
        None => format!("`{path}`{length} does not say what it is for."),
    };
    let outline = blocks::outline(window, 14);
    if !outline.is_empty() {
        let has = if blocks::is_prose(&path) { "Its sections:" } else { "It defines:" };
        text.push_str(&format!("\n\n{has}\n"));
        for (line, what) in outline {
            text.push_str(&format!("\n- `{path}:{line}` {}", named(&what)));
        }
    }
    text
}

/// For "which files": the files, by how many lines in them match.
fn mentions(desk: &Desk<'_>, question: &Question, seen: &Seen) -> Option<String> {
    let lower = question.plain.to_lowercase();
    let asked = lower.starts_with("which files") || lower.starts_with("what files") || lower.starts_with("which file");
    if !asked || seen.hits.is_empty() {
        return None;
    }
    let mut files: Vec<(&str, u64, usize)> = Vec::new();
    for hit in &seen.hits {
        match files.iter_mut().find(|(path, ..)| *path == hit.path) {
            Some((_, first, lines)) => (*first, *lines) = ((*first).min(hit.line), *lines + 1),
            None => files.push((&hit.path, hit.line, 1)),
        }
    }
    files.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(b.0)));
    let entry = |(path, line, lines): &(&str, u64, usize)| {
        format!("- `{}:{line}` ({})", desk.view.relative(path), count(*lines, "line"))
    };
    let entries: Vec<String> = files.iter().take(12).map(entry).collect();
    Some(format!("All files with these words:\n\n{}", entries.join("\n")))
}

/// Where nothing could be read: the lines that the search gave.
fn lines_only(desk: &Desk<'_>, terms: &Terms, seen: &Seen) -> String {
    let weights = Weights::of(terms, &seen.hits);
    let ranked = places::rank(terms, &weights, &seen.hits, &[], false, 8);
    let mut text = format!("I could only search, not read. The lines about {}, best first:\n", terms.listed());
    for place in ranked {
        let line = seen.hits.iter().find(|hit| hit.path == place.path && hit.line == place.lines.0);
        let words =
            line.map_or_else(String::new, |hit| format!(": {}", quoted(&super::sentence::clip(hit.text.trim(), 140))));
        text.push_str(&format!("\n- `{}:{}`{words}", desk.view.relative(&place.path), place.lines.0));
    }
    text
}

fn nothing(terms: &Terms, seen: &Seen) -> String {
    if let Some(failure) = seen.failures.first() {
        return failure.clone();
    }
    format!(
        "I found nothing. I searched the contents and the names of all files in the project for {} and for related words. \
         I only compare words, so ask with a word that stands in the code, or name a file.",
        terms.listed()
    )
}

/// "What is this?": the README, the manifest, the directory.
fn overview(desk: &mut Desk<'_>) -> Waits<String> {
    let pattern = "{README*,readme*,Readme*,Cargo.toml,package.json,pyproject.toml,go.mod,CMakeLists.txt,pom.xml,composer.json,Gemfile}";
    let mut wanted: Vec<Wanted> = vec![("glob", json!({"pattern": pattern}))];
    if desk.offers("list") {
        wanted.push(("list", json!({})));
    }
    let thought = "The question is about the project as a whole: the README and the manifest say most about that.";
    let first = desk.step(thought, "Looking at the project's README, manifest and top directory.", wanted)?;
    let mut files = first.first().filter(|done| !done.failed).map(|done| places::paths(&done.text)).unwrap_or_default();
    files.sort_by_key(|path| (path.matches(['/', '\\']).count(), path.clone()));
    let readme = files.iter().find(|path| blocks::is_prose(path));
    let depth = |path: &String| path.matches(['/', '\\']).count();
    let least = files.first().map_or(0, depth);
    let manifest = files.iter().find(|path| !blocks::is_prose(path) && depth(path) <= least + 1);
    let wanted: Vec<Wanted> = [readme, manifest]
        .into_iter()
        .flatten()
        .map(|path| ("read", json!({"filePath": path, "limit": 200})))
        .collect();
    let mut paragraphs = Vec::new();
    let mut failures = Vec::new();
    if !wanted.is_empty() {
        for done in desk.step("", "Reading what the project says about itself.", wanted)? {
            match Window::of_read(&done.text).filter(|_| !done.failed) {
                Some(window) if blocks::is_prose(&window.path) => paragraphs.push(about_file(desk, &window)),
                Some(window) => paragraphs.extend(manifest_says(desk, &window)),
                None => failures.push(not_done("reading", &done)),
            }
        }
    }
    if let Some(listing) = first.get(1).filter(|done| !done.failed) {
        // The tree is indented by two spaces a level, below a first line with the directory itself.
        let top: Vec<&str> =
            listing.text.lines().filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' '))).collect();
        let lines: Vec<&str> = if top.is_empty() { listing.text.lines().collect() } else { top };
        let more = if lines.len() > 40 { format!("\n… and {} more", lines.len() - 40) } else { String::new() };
        let shown = lines.iter().take(40).copied().collect::<Vec<_>>().join("\n");
        paragraphs.push(format!("At the top:\n\n{}", super::answer::fenced("", &format!("{shown}{more}"))));
    }
    if paragraphs.is_empty() {
        failures.extend(first.iter().filter(|done| done.failed).map(|done| not_done("looking around", done)).take(1));
    }
    if paragraphs.is_empty() && failures.is_empty() {
        paragraphs.push("I found neither a README nor a manifest that would say what this is. Ask about a thing in the code, or name a file.".into());
    }
    paragraphs.extend(failures);
    Ok(paragraphs.join("\n\n"))
}

/// The lines of a manifest that name and describe the project.
fn manifest_says(desk: &Desk<'_>, window: &Window) -> Option<String> {
    let path = desk.view.relative(&window.path);
    let keys = ["name", "description", "version", "module"];
    let is_fact = |(_, text): &&(u64, String)| {
        let key: String = text.trim().trim_start_matches('"').chars().take_while(|c| c.is_ascii_alphabetic()).collect();
        keys.contains(&key.as_str()) && (text.contains('=') || text.contains(':') || key == "module")
    };
    let facts: Vec<String> = window
        .lines
        .iter()
        .filter(is_fact)
        .take(3)
        .map(|(line, text)| format!("- `{path}:{line}` {}", quoted(text.trim().trim_end_matches(','))))
        .collect();
    (!facts.is_empty()).then(|| format!("The manifest says:\n\n{}", facts.join("\n")))
}
