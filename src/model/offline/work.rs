//! Plain orders, carried out.

use serde_json::json;

use super::answer::{count, dedented, fenced, is_denial, language, not_done};
use super::desk::{Desk, Waits};
use super::order::{Item, Order};
use super::places::{self, Window};
use super::sentence::clip;
use super::words::quoted;

/// What came of an order.
pub(super) struct Report {
    /// For the user: Markdown.
    pub(super) text: String,
    /// Whether it was done.
    pub(super) done: bool,
}

fn done(text: String) -> Report {
    Report { text, done: true }
}

fn undone(text: String) -> Report {
    Report { text, done: false }
}

/// Works off the orders one after the other; the first that fails ends it, because the later ones
/// were given in the belief that it would not.
pub(super) fn orders(desk: &mut Desk<'_>, items: &[Item], planned: bool) -> Waits<String> {
    if planned {
        desk.plan(items.iter().map(|item| item.words.clone()));
    }
    let mut texts = Vec::new();
    let mut stopped_at = None;
    for (at, item) in items.iter().enumerate() {
        desk.mark(at, "in_progress");
        let report = order(desk, &item.order)?;
        texts.push(report.text);
        if !report.done {
            stopped_at = Some(at);
            break;
        }
        desk.mark(at, "completed");
    }
    if let Some(stopped_at) = stopped_at {
        for at in stopped_at..items.len() {
            desk.mark(at, "cancelled");
        }
        let left: Vec<&str> = items[stopped_at + 1..].iter().map(|item| item.words.as_str()).collect();
        if !left.is_empty() {
            texts.push(format!("I stopped there. Not begun: {}.", left.join("; ")));
        }
    }
    desk.show_plan("")?;
    Ok(texts.join("\n\n"))
}

fn order(desk: &mut Desk<'_>, order: &Order) -> Waits<Report> {
    match order {
        Order::Read { path, lines } => read(desk, path, *lines),
        Order::List { path } => list(desk, path.as_deref()),
        Order::Glob { pattern, path } => glob(desk, pattern, path.as_deref()),
        Order::Search { text, path } => search(desk, text, path.as_deref()),
        Order::Run { command } => run(desk, command),
        Order::Replace { old, new, path, once } => replace(desk, old, new, path, *once),
        Order::Create { path, content, overwrite } => create(desk, path, content, *overwrite),
        Order::Append { path, text } => append(desk, path, text),
        Order::Ask(question) => Ok(done(super::ask::answer(desk, question)?)),
        Order::Unclear(say) => Ok(undone(format!("I need to know more for that: {say}."))),
    }
}

/// How many lines of a file go into an answer when nobody said which.
const PREVIEW: usize = 40;
/// How many at most.
const MOST_LINES: usize = 200;

fn read(desk: &mut Desk<'_>, path: &str, lines: Option<(u64, u64)>) -> Waits<Report> {
    let arguments = |path: &str| match lines {
        Some((first, last)) => json!({"filePath": path, "offset": first, "limit": last - first + 1}),
        None => json!({"filePath": path}),
    };
    let shown = quoted(path);
    let mut result = desk.call(&format!("Reading {shown}."), "read", arguments(path))?;
    let mut moved = String::new();
    if result.failed && !result.missing && !is_denial(&result.text) && desk.offers("glob") {
        // "read wildcard.rs" names a file somewhere below.
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
        let pattern = json!({"pattern": format!("**/{name}*")});
        let found = desk.call(&format!("There is no {shown} here; looking for it elsewhere."), "glob", pattern)?;
        let candidates = if found.failed { Vec::new() } else { places::paths(&found.text) };
        let shortest = candidates.iter().min_by_key(|candidate| (candidate.len(), (*candidate).clone()));
        if let Some(other) = shortest {
            moved = format!("There is no {shown}, but there is `{}`. ", desk.view.relative(other));
            result = desk.call("", "read", arguments(other))?;
        }
    }
    if result.failed {
        return Ok(undone(not_done(&format!("reading {shown}"), &result)));
    }
    let Some(window) = Window::of_read(&result.text) else {
        // A directory, an image: what read says is the answer.
        let entries =
            result.text.split_once("<entries>").map(|(_, rest)| rest.split("</entries>").next().unwrap_or(rest));
        let text = clip_lines(entries.unwrap_or(&result.text).trim(), PREVIEW);
        return Ok(done(format!("{moved}{shown}:\n\n{}", fenced("", &text))));
    };
    let path = desk.view.relative(if window.path.is_empty() { path } else { &window.path });
    let (Some((first, _)), Some((last, _))) = (window.lines.first(), window.lines.last()) else {
        return Ok(done(format!("{moved}{} is empty.", quoted(&path))));
    };
    let most = if lines.is_some() { MOST_LINES } else { PREVIEW };
    let part = &window.lines[..window.lines.len().min(most)];
    let part_last = part.last().map_or(*last, |(line, _)| *line);
    let total = window.total.map_or_else(String::new, |total| format!(" of {total}"));
    let head = if *first == 1 && part_last == *last && window.whole {
        format!("{moved}`{path}`, {}:", count(part.len(), "line"))
    } else {
        format!("{moved}`{path}:{first}`, lines {first}–{part_last}{total}:")
    };
    let text: Vec<String> = part.iter().map(|(_, text)| clip(text, 300)).collect();
    Ok(done(format!("{head}\n\n{}", fenced(language(&path), &text.join("\n")))))
}

fn list(desk: &mut Desk<'_>, path: Option<&str>) -> Waits<Report> {
    let shown = path.map_or_else(|| "the working directory".to_owned(), quoted);
    let result = if desk.offers("list") {
        let arguments = path.map_or_else(|| json!({}), |path| json!({"path": path}));
        desk.call(&format!("Listing {shown}."), "list", arguments)?
    } else {
        let path = path.map(str::to_owned).or_else(|| desk.view.cwd.clone()).unwrap_or_else(|| ".".into());
        desk.call(&format!("Listing {shown}."), "read", json!({"filePath": path}))?
    };
    if result.failed {
        return Ok(undone(not_done(&format!("listing {shown}"), &result)));
    }
    Ok(done(format!("In {shown}:\n\n{}", fenced("", &clip_lines(result.text.trim_end(), 80)))))
}

fn glob(desk: &mut Desk<'_>, pattern: &str, path: Option<&str>) -> Waits<Report> {
    let shown = quoted(pattern);
    let mut arguments = json!({"pattern": pattern});
    if let Some(path) = path {
        arguments["path"] = path.into();
    }
    let result = desk.call(&format!("Looking for files that match {shown}."), "glob", arguments)?;
    if result.failed {
        return Ok(undone(not_done(&format!("looking for {shown}"), &result)));
    }
    let files = places::paths(&result.text);
    if files.is_empty() {
        return Ok(done(format!("No file matches {shown}.")));
    }
    let more = if files.len() > 30 { format!("\n- … and {} more", files.len() - 30) } else { String::new() };
    let entries: Vec<String> =
        files.iter().take(30).map(|file| format!("- {}", quoted(&desk.view.relative(file)))).collect();
    let verb = if files.len() == 1 { "matches" } else { "match" };
    Ok(done(format!("{} {verb} {shown}:\n\n{}{more}", count(files.len(), "file"), entries.join("\n"))))
}

fn search(desk: &mut Desk<'_>, text: &str, path: Option<&str>) -> Waits<Report> {
    let shown = quoted(text);
    let mut arguments = json!({"pattern": super::words::escape(text)});
    let mut place = String::new();
    if let Some(path) = path {
        arguments["path"] = path.into();
        place = format!(" in {}", quoted(path));
    }
    let mut result = desk.call(&format!("Searching for {shown}{place}."), "grep", arguments.clone())?;
    let mut note = "";
    if !result.failed && places::hits(&result.text).is_empty() {
        arguments["pattern"] = format!("(?i){}", super::words::escape(text)).into();
        result = desk.call("Nothing is spelt like that; trying without regard to case.", "grep", arguments)?;
        note = " (in another spelling of upper and lower case)";
    }
    if result.failed {
        return Ok(undone(not_done(&format!("searching for {shown}"), &result)));
    }
    let hits = places::hits(&result.text);
    if hits.is_empty() {
        return Ok(done(format!("{shown} does not occur{place}.")));
    }
    let mut files: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    files.dedup();
    let entry = |hit: &places::Hit| {
        let line = clip(hit.text.trim(), 140);
        let line = if line.is_empty() { String::new() } else { format!(": {}", quoted(&line)) };
        format!("- `{}:{}`{line}", desk.view.relative(&hit.path), hit.line)
    };
    let entries: Vec<String> = hits.iter().take(25).map(entry).collect();
    let more = if hits.len() > 25 { format!("\n- … and {} more", hits.len() - 25) } else { String::new() };
    let counted = format!("{} in {}", count(hits.len(), "line"), count(files.len(), "file"));
    Ok(done(format!("{shown}{note} — {counted}{place}:\n\n{}{more}", entries.join("\n"))))
}

fn run(desk: &mut Desk<'_>, command: &str) -> Waits<Report> {
    let shown = quoted(command);
    let arguments = json!({"command": command, "description": clip(&format!("Run {command}"), 80)});
    let result = desk.call(&format!("Running {shown}."), "bash", arguments)?;
    if result.failed {
        return Ok(undone(not_done(&format!("running {shown}"), &result)));
    }
    let (output, exit) = match noted(&result.text) {
        Some((output, note)) => (output, Some(note)),
        None => (result.text.as_str(), None),
    };
    let output = output.trim();
    // "Exit code: 1", "Ended by SIGKILL" … : whatever is not a success is said, and stops the orders.
    let trouble = exit
        .map(|notes| notes.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|notes| !notes.starts_with("Exit code: 0"));
    let head = match &trouble {
        Some(notes) => format!("{shown} did not succeed ({})", notes.trim_end_matches('.')),
        None => format!("{shown} ran"),
    };
    let text = if output.is_empty() || output == "(no output)" {
        format!("{head} and printed nothing.")
    } else {
        format!("{head}. What it printed:\n\n{}", fenced("", &clip_lines(output, PREVIEW)))
    };
    Ok(Report { text, done: trouble.is_none() })
}

/// What a command printed, and the note below it.
fn noted(result: &str) -> Option<(&str, &str)> {
    let (output, note) = result.rsplit_once("<system-reminder mark=")?;
    let (_, note) = note.split_once('>')?;
    Some((output, note.split("</system-reminder>").next()?.trim()))
}

fn replace(desk: &mut Desk<'_>, old: &str, new: &str, path: &str, once: bool) -> Waits<Report> {
    let what = format!("replacing {} with {} in {}", quoted(old), quoted(new), quoted(path));
    if !desk.offers("edit") {
        let mode = "the `edit` tool is not offered in this mode. Choose a mode that may edit, then ask again";
        return Ok(undone(format!("Not done: {what}, because {mode}.")));
    }
    if old == new {
        return Ok(undone(format!("Not done: {what} would change nothing, because both texts are the same.")));
    }
    let seen =
        desk.call(&format!("Reading {} before I change it.", quoted(path)), "read", json!({"filePath": path}))?;
    if seen.failed {
        return Ok(undone(not_done(&format!("reading {} before changing it", quoted(path)), &seen)));
    }
    let Some(window) = Window::of_read(&seen.text) else {
        return Ok(undone(format!("Not done: {what}, because {} is not a text file.", quoted(path))));
    };
    let text = window.text();
    let found = text.matches(old).count();
    if found == 0 && window.whole {
        let length = count(window.lines.len(), "line");
        return Ok(undone(format!(
            "Not done: {} does not occur in {} (I read all {length}).",
            quoted(old),
            quoted(path)
        )));
    }
    let (mut before, mut after, mut all) = (old.to_owned(), new.to_owned(), found > 1);
    if once && found > 1 {
        let Some(context) = first_alone(&text, old) else {
            return Ok(undone(format!(
                "Not done: {what}, because I cannot tell the first of {found} places from the others."
            )));
        };
        (before, after, all) = (context.clone(), context.replacen(old, new, 1), false);
    }
    let mut arguments = json!({"filePath": path, "oldString": before, "newString": after});
    if all {
        arguments["replaceAll"] = true.into();
    }
    let lines: Vec<u64> = window.lines.iter().filter(|(_, line)| line.contains(old)).map(|(line, _)| *line).collect();
    let places = lines.iter().take(6).map(u64::to_string).collect::<Vec<_>>().join(", ");
    let intent = match lines.as_slice() {
        [] => format!("Replacing {} with {}.", quoted(old), quoted(new)),
        [one] => format!("It stands in line {one}. Replacing it."),
        _ if once => format!("It stands in {} lines ({places}). Replacing the first.", lines.len()),
        _ => format!("It stands in {} lines ({places}). Replacing all of them.", lines.len()),
    };
    let result = desk.call(&intent, "edit", arguments)?;
    if result.failed {
        return Ok(undone(not_done(&what, &result)));
    }
    let times = match (all, found) {
        (true, 2) => ", twice".to_owned(),
        (true, n) => format!(", {n} times"),
        _ => String::new(),
    };
    let place = lines.first().map_or_else(|| quoted(path), |line| format!("`{}:{line}`", desk.view.relative(path)));
    Ok(done(format!(
        "Done: {} is now {} in {place}{times}.",
        quoted(old),
        if new.is_empty() { "gone".into() } else { quoted(new) }
    )))
}

/// The first place of a text with as many lines around it as make it unique.
fn first_alone(text: &str, old: &str) -> Option<String> {
    let at = text.find(old)?;
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let mut end = at + old.len();
    for _ in 0..10 {
        end += text[end..].find('\n').unwrap_or(text.len() - end);
        let context = &text[start..end];
        if text.matches(context).count() == 1 {
            return Some(context.to_owned());
        }
        if end >= text.len() {
            return None;
        }
        end += 1;
    }
    None
}

fn create(desk: &mut Desk<'_>, path: &str, content: &str, overwrite: bool) -> Waits<Report> {
    let shown = quoted(path);
    let what = format!("writing {shown}");
    if !desk.offers("write") {
        let mode = "the `write` tool is not offered in this mode. Choose a mode that may edit, then ask again";
        return Ok(undone(format!("Not done: {what}, because {mode}.")));
    }
    let arguments = json!({"filePath": path, "content": content});
    if overwrite {
        let seen = desk.call(&format!("Reading {shown} before I overwrite it."), "read", json!({"filePath": path}))?;
        if seen.failed && is_denial(&seen.text) {
            return Ok(undone(not_done(&what, &seen)));
        }
    }
    let result = desk.call(&format!("Writing {shown}."), "write", arguments)?;
    if result.failed {
        let exists = !is_denial(&result.text) && !result.missing && result.text.to_lowercase().contains("read");
        if exists && !overwrite {
            return Ok(undone(format!(
                "Not done: {shown} exists already, and I was asked to create it. To replace it, say: overwrite {shown} with …"
            )));
        }
        return Ok(undone(not_done(&what, &result)));
    }
    Ok(done(format!("Done: {shown} now has {}.", count(content.lines().count(), "line"))))
}

fn append(desk: &mut Desk<'_>, path: &str, text: &str) -> Waits<Report> {
    let shown = quoted(path);
    let what = format!("adding to {shown}");
    if !desk.offers("write") {
        let mode = "the `write` tool is not offered in this mode. Choose a mode that may edit, then ask again";
        return Ok(undone(format!("Not done: {what}, because {mode}.")));
    }
    let seen = desk.call(&format!("Reading {shown} before I add to it."), "read", json!({"filePath": path}))?;
    if seen.failed {
        return Ok(undone(not_done(&format!("reading {shown} before adding to it"), &seen)));
    }
    let Some(window) = Window::of_read(&seen.text).filter(|window| window.whole) else {
        return Ok(undone(format!("Not done: {what}, because I cannot see the whole file and would lose the rest.")));
    };
    let content = format!("{}{text}", window.text());
    let result = desk.call(
        &format!("Adding {} at the end.", count(text.lines().count(), "line")),
        "write",
        json!({"filePath": path, "content": content}),
    )?;
    if result.failed {
        return Ok(undone(not_done(&what, &result)));
    }
    Ok(done(format!("Done: added to the end of {shown}:\n\n{}", fenced(language(path), &dedented(&numbered(text))))))
}

fn numbered(text: &str) -> Vec<(u64, String)> {
    text.lines().zip(1..).map(|(text, line)| (line, text.to_owned())).collect()
}

/// The first and the last lines of a long text, with a note between them.
fn clip_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= most {
        return lines.iter().map(|line| clip(line, 300)).collect::<Vec<_>>().join("\n");
    }
    let (head, tail) = (most / 3, most - most / 3);
    let cut = lines.len() - head - tail;
    let mut kept: Vec<String> = lines[..head].iter().map(|line| clip(line, 300)).collect();
    kept.push(format!("… {} …", count(cut, "line")));
    kept.extend(lines[lines.len() - tail..].iter().map(|line| clip(line, 300)));
    kept.join("\n")
}
