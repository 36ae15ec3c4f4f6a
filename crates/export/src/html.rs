//! Renders a session as one page, readable without network or scripts, in light and dark. All text
//! of the session is escaped, and the page's content security policy blocks anything that escaping
//! missed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};
use similar::ChangeTag;

use super::chart::{self, UsageStep};
use super::conversation::{ending, exit, has_failed};
use super::{markdown, undone_note, visible};
use base::environment::Timestamp;
use base::text;
use store::StoredSession;
use transcript::{
    Assistant, Call, CallState, Change, Content, File, Message, ModelRef, Part, Role, ToolKind,
};

/// The longest output of a call, in bytes, because the page is for reading.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// The largest file that is compared line by line, in bytes.
const MAX_COMPARED_BYTES: usize = 1 << 20;

/// The largest picture in the page, in bytes of base64.
const MAX_PICTURE_BYTES: usize = 4 << 20;

/// Escapes text for HTML, in content and attributes.
struct Esc<'a>(&'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Control characters, including those of terminal colours, do not belong in a page.
                '\n' | '\t' => f.write_char(letter)?,
                c if c.is_control() => {}
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Appends to a page. Writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => { write!($out, $($arg)*).ok() };
}

/// Returns the page of a session, with a note in place of undone turns. `subagents` are the sessions
/// that its calls started, and those that theirs did; the page names the command that exports any
/// other. `home` is written as `~` in paths.
pub fn page(stored: StoredSession, subagents: Vec<StoredSession>, home: Option<&str>) -> String {
    let undone = undone_note(&stored);
    let stored = &visible(stored);
    let title = stored
        .record
        .title
        .as_deref()
        .unwrap_or("A session without a title");
    let mut out = String::new();
    put!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<div class=\"page\">\n",
        Esc(title),
        include_str!("page.css")
    );
    head(&mut out, stored, title, home);
    let mut main = String::new();
    if let Some(note) = undone {
        put!(
            main,
            "<div class=\"note words\">{}</div>\n",
            markdown::html(&note)
        );
    }
    let mut index = String::new();
    let mut numbers = Numbers {
        root: format!("{}/", stored.record.cwd.display()),
        subagents: subagents.into_iter().map(visible).collect(),
        ..Numbers::default()
    };
    for message in &stored.messages {
        match &message.role {
            Role::User(_) => user(&mut main, &mut index, message, &mut numbers),
            Role::Assistant(assistant) => {
                answer(&mut main, &mut index, message, assistant, &mut numbers)
            }
        }
    }
    if numbers.turns > 0 {
        main.push_str("</section>\n");
    }
    put!(
        out,
        "<main>\n{main}</main>\n<nav aria-label=\"Timeline\">\n<h2>Timeline</h2>\n<ol>\n{index}</ol>\n"
    );
    files(&mut out, stored, home);
    put!(
        out,
        "</nav>\n<footer>Session <span class=\"mono\">{}</span>, exported by adjutant {}.</footer>\n</div>\n</body>\n</html>\n",
        Esc(stored.record.id.as_str()),
        env!("CARGO_PKG_VERSION")
    );
    // Bidirectional controls would show something other than the actual text.
    text::shown(&out).into_owned()
}

/// The numbers of link targets.
#[derive(Default)]
struct Numbers {
    turns: usize,
    calls: usize,
    began: Timestamp,
    /// The agent and the model of the last answer in the turn.
    speaker: Option<(String, ModelRef)>,
    /// The prefix of the project's paths.
    root: String,
    /// The sessions of subagents that are not in the page yet: each is shown once.
    subagents: Vec<StoredSession>,
}

fn steps(stored: &StoredSession) -> Vec<UsageStep> {
    let step = |message: &Message| {
        let assistant = message.assistant()?;
        let usage = assistant.usage;
        Some(UsageStep {
            input: usage.input + usage.cache_write,
            cached: usage.cache_read,
            output: usage.output + usage.reasoning,
            cost: assistant.cost,
        })
    };
    stored.messages.iter().filter_map(step).collect()
}

fn head(out: &mut String, stored: &StoredSession, title: &str, home: Option<&str>) {
    let record = &stored.record;
    put!(out, "<header>\n<h1>{}</h1>\n<p class=\"meta\">", Esc(title));
    let cwd = short_path(&record.cwd.display().to_string(), home);
    put!(
        out,
        "<span class=\"mono\">{}</span><span class=\"mono\">{}</span><span>{}</span>",
        Esc(record.id.as_str()),
        Esc(&cwd),
        moment(record.created)
    );
    let models = stored
        .messages
        .iter()
        .filter_map(|m| Some(m.assistant()?.model.to_string()));
    let models: std::collections::BTreeSet<String> = models.collect();
    for model in models {
        put!(out, "<span>{}</span>", Esc(&model));
    }
    out.push_str("</p>\n");
    if let Some(summary) = record.description() {
        put!(
            out,
            "<section class=\"words\" aria-label=\"Summary\">{}</section>\n",
            markdown::html(summary)
        );
    }
    let prompts = stored.messages.iter().filter(|m| is_from_user(m)).count();
    let calls = stored
        .messages
        .iter()
        .map(|m| m.calls().count())
        .sum::<usize>();
    let steps = steps(stored);
    let (read, written) = steps
        .iter()
        .fold((0, 0), |(r, w), s| (r + s.input + s.cached, w + s.output));
    let counted =
        |count: usize, one, many| (count.to_string(), if count == 1 { one } else { many });
    let mut facts = vec![
        counted(prompts, "prompt", "prompts"),
        counted(steps.len(), "step", "steps"),
        counted(calls, "tool call", "tool calls"),
    ];
    if read + written > 0 {
        facts.push((chart::short(read), "tokens in"));
        facts.push((chart::short(written), "tokens out"));
    }
    if let Some(cost) = record.cost {
        facts.push((chart::money(cost), "cost"));
    }
    if let (Some(first), Some(last)) = (stored.messages.first(), stored.messages.last()) {
        let end = last
            .assistant()
            .and_then(|a| a.completed)
            .unwrap_or(last.created);
        if let Some(span) = span(first.created, end) {
            facts.push((span, "from first to last"));
        }
    }
    out.push_str("<ul class=\"facts\">");
    for (number, name) in facts {
        put!(out, "<li><b>{}</b><small>{name}</small></li>", Esc(&number));
    }
    out.push_str("</ul>\n");
    let chart = chart::chart(&steps);
    if !chart.is_empty() {
        let cost = if record.cost.is_some() {
            "<span><i class=\"cost\"></i>cost so far</span>"
        } else {
            ""
        };
        put!(
            out,
            "<div class=\"figure\"><p class=\"legend\"><span><i class=\"cached\"></i>from the cache</span>\
             <span><i class=\"input\"></i>input</span><span><i class=\"output\"></i>output</span>{cost}</p>{chart}</div>\n"
        );
    }
    for damage in &stored.damage {
        put!(out, "<p class=\"note bad\">{}</p>\n", Esc(damage));
    }
    out.push_str("</header>\n");
}

/// Returns whether the message is from the user, rather than from the program on the user's behalf.
fn is_from_user(message: &Message) -> bool {
    let shown = |part: &Part| match &part.content {
        Content::Text(text) => !text.synthetic,
        Content::File(_) => true,
        _ => false,
    };
    message.user().is_some() && message.parts.iter().any(shown)
}

fn user(main: &mut String, index: &mut String, message: &Message, numbers: &mut Numbers) {
    if !is_from_user(message) {
        return;
    }
    if numbers.turns > 0 {
        main.push_str("</section>\n");
    }
    numbers.turns += 1;
    numbers.began = message.created;
    numbers.speaker = None;
    let n = numbers.turns;
    let words = message.visible_text();
    let line = text::title(
        words
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("(attached)"),
    );
    put!(
        index,
        "<li class=\"prompt\"><a href=\"#turn-{n}\">{}</a><small>{}</small></li>\n",
        Esc(&line),
        moment(message.created)
    );
    put!(
        main,
        "<section class=\"turn\" id=\"turn-{n}\">\n<div class=\"user\"><p class=\"who\"><b>You</b>{}</p>",
        moment(message.created)
    );
    for part in &message.parts {
        match &part.content {
            Content::Text(text) if !text.synthetic => {
                put!(
                    main,
                    "<div class=\"typed\">{}</div>",
                    Esc(text::without_blank_ends(&text.for_display()))
                );
            }
            Content::File(file) => attached(main, file),
            _ => {}
        }
    }
    main.push_str("</div>\n");
}

fn answer(
    main: &mut String,
    index: &mut String,
    message: &Message,
    assistant: &Assistant,
    numbers: &mut Numbers,
) {
    let speaks = message
        .parts
        .iter()
        .any(|p| matches!(&p.content, Content::Text(t) if !t.text.trim().is_empty()));
    let speaker = (assistant.agent.clone(), assistant.model.clone());
    if speaks && numbers.speaker.as_ref() != Some(&speaker) {
        numbers.speaker = Some(speaker);
        put!(
            main,
            "<p class=\"who\"><b>Assistant</b><span>{}</span><span>{}</span>",
            Esc(&assistant.agent),
            Esc(&assistant.model.to_string()),
        );
        if let Some(span) = span(numbers.began, message.created) {
            put!(main, "<span>after {span}</span>");
        }
        main.push_str("</p>");
    }
    for part in &message.parts {
        match &part.content {
            Content::Text(text) if !text.synthetic && !text.text.trim().is_empty() => {
                put!(
                    main,
                    "<div class=\"said words\">{}</div>\n",
                    markdown::html(&text.text)
                );
            }
            Content::Reasoning(reasoning) if !reasoning.text.trim().is_empty() => {
                let words = markdown::html(&reasoning.text);
                put!(
                    main,
                    "<details class=\"thought\"><summary>Thought</summary><div class=\"words\">{words}</div></details>\n"
                );
            }
            Content::Tool(one) => {
                numbers.calls += 1;
                put!(
                    index,
                    "<li class=\"step {}\"><i class=\"dot\"></i><a href=\"#call-{}\">{}{}</a></li>\n",
                    class(one),
                    numbers.calls,
                    if has_failed(one) { "✗ " } else { "" },
                    Esc(&title(one))
                );
                call(main, index, one, numbers);
            }
            Content::File(file) => attached(main, file),
            Content::Compaction { .. } => main
                .push_str("<p class=\"note\">The conversation before this was summarised.</p>\n"),
            Content::Retry { attempt, reason } => {
                put!(
                    main,
                    "<p class=\"note\">Attempt {attempt} failed: {}</p>\n",
                    Esc(reason)
                );
            }
            _ => {}
        }
    }
    if let Some(fault) = &assistant.fault {
        let advice = fault.advice.as_deref().unwrap_or_default();
        put!(
            main,
            "<p class=\"note bad\">{} {}</p>\n",
            Esc(&fault.message),
            Esc(advice)
        );
    }
}

fn call(out: &mut String, index: &mut String, call: &Call, numbers: &mut Numbers) {
    let number = numbers.calls;
    let (state, output, changes, attachments): (_, _, &[Change], &[File]) = match &call.state {
        CallState::Completed(done) => {
            let output = done.display.as_deref().unwrap_or(&done.output);
            (exit(done), output, &done.changes, &done.attachments)
        }
        CallState::Failed { error, .. } => (ending(call), error.as_str(), &[], &[]),
        CallState::Running { printed, .. } => (
            "interrupted".to_owned(),
            printed.as_deref().unwrap_or_default(),
            &[],
            &[],
        ),
        CallState::Pending => ("not begun".to_owned(), "", &[], &[]),
    };
    // Changes are open, because readers look for them; everything else opens on request.
    let open = if changes.is_empty() { "" } else { " open" };
    put!(
        out,
        "<details class=\"call {}\" id=\"call-{number}\"{open}><summary><i class=\"dot\"></i><span class=\"what\">{}</span>",
        class(call),
        Esc(&title(call))
    );
    let (added, removed) = changes
        .iter()
        .map(lines)
        .fold((0, 0), |(a, r), (b, s)| (a + b, r + s));
    if !changes.is_empty() {
        put!(
            out,
            "<span class=\"count\"><ins>+{added}</ins> <del>−{removed}</del></span>"
        );
    }
    put!(
        out,
        "<span class=\"state\">{state}</span></summary><div class=\"in\">"
    );
    for change in changes {
        diff(out, change, &numbers.root);
    }
    let todos = todos(call);
    let shown = todos.is_none() && changes.is_empty() || call.kind == ToolKind::Execute;
    if let Some(todos) = &todos {
        out.push_str(todos);
    }
    if let Some((path, old, new)) = replacement(call)
        && changes.is_empty()
    {
        intended_change(
            out,
            path.strip_prefix(&*numbers.root).unwrap_or(path),
            old,
            new,
        );
    } else if shown && call.input.as_object().is_none_or(|input| !input.is_empty()) {
        put!(
            out,
            "<h4>{}</h4><pre>{}</pre>",
            input_heading(call),
            Esc(&input(call))
        );
    }
    if !output.trim().is_empty() && (shown || matches!(call.state, CallState::Failed { .. })) {
        let cut = output.floor_char_boundary(MAX_OUTPUT_BYTES);
        let rest = output.len() - cut;
        put!(out, "<h4>Result</h4><pre>{}", Esc(output[..cut].trim_end()));
        if rest > 0 {
            put!(out, "\n… and {}", text::count(rest, "more byte"));
        }
        out.push_str("</pre>");
    }
    for file in attachments {
        attached(out, file);
    }
    if let CallState::Completed(done) = &call.state
        && let Some(child) = &done.facts.child
    {
        let found = numbers
            .subagents
            .iter()
            .position(|stored| stored.record.id == child.session);
        match found {
            Some(found) => {
                let stored = numbers.subagents.swap_remove(found);
                subagent(out, index, &stored, numbers);
            }
            None => {
                put!(
                    out,
                    "<p class=\"attached\">The subagent's own session: <code>adjutant sessions export {} -o subagent.html</code></p>",
                    Esc(child.session.as_str())
                );
            }
        }
    }
    out.push_str("</div></details>\n");
}

/// Appends the answers and calls of a subagent, folded.
fn subagent(out: &mut String, index: &mut String, stored: &StoredSession, numbers: &mut Numbers) {
    let calls: usize = stored.messages.iter().map(|m| m.calls().count()).sum();
    put!(
        out,
        "<details class=\"subagent\"><summary>The subagent's session: {}</summary>\n",
        text::count(calls, "tool call")
    );
    let speaker = numbers.speaker.take();
    let began = numbers.began;
    for message in &stored.messages {
        match message.assistant() {
            Some(assistant) => answer(out, index, message, assistant, numbers),
            None => numbers.began = message.created,
        }
    }
    numbers.speaker = speaker;
    numbers.began = began;
    out.push_str("</details>\n");
}

/// Returns the to-do list that a call writes, as a list; `None` for any other call.
fn todos(call: &Call) -> Option<String> {
    let input = call.input.as_object()?;
    // A call with other arguments is that of another tool.
    if input.len() != 1 {
        return None;
    }
    let todos = input.get("todos")?.as_array()?;
    let mut out = String::from("<ul class=\"todos\">");
    for todo in todos {
        let words = todo.get("content")?.as_str()?;
        let status = todo.get("status")?.as_str()?;
        let mark = match status {
            "completed" => "☑",
            "in_progress" => "◐",
            "cancelled" => "☒",
            _ => "☐",
        };
        put!(
            out,
            "<li title=\"{}\">{mark} {}</li>",
            Esc(&status.replace('_', " ")),
            Esc(words)
        );
    }
    out.push_str("</ul>");
    Some(out)
}

/// Returns the heading of a call's arguments.
fn input_heading(call: &Call) -> &'static str {
    let has_command = call.input.get("command").is_some();
    if call.kind == ToolKind::Execute && has_command {
        return "Command";
    }
    match call.input.as_object().and_then(questions) {
        Some(_) => "Questions",
        None => "Arguments",
    }
}

/// Returns the file, the old and the new text of a call that replaces a text.
fn replacement(call: &Call) -> Option<(&str, &str, &str)> {
    // Other arguments are not hidden.
    if call.input.as_object()?.len() > 3 {
        return None;
    }
    let argument = |name: &str| call.input.get(name)?.as_str();
    Some((
        argument("filePath")?,
        argument("oldString")?,
        argument("newString")?,
    ))
}

/// Shows a replacement that was not made. The numbers of its lines are not known.
fn intended_change(out: &mut String, path: &str, old: &str, new: &str) {
    put!(
        out,
        "<p class=\"file mono\">{}</p><pre class=\"diff\">",
        Esc(path)
    );
    for (class, sign, text) in [("d", '-', old), ("a", '+', new)] {
        for line in text.lines() {
            put!(
                out,
                "<span class=\"{class}\"><i></i>{sign} {}</span>",
                Esc(line)
            );
        }
    }
    out.push_str("</pre>");
}

/// Returns the questions of a call with their choices. `None` if it asks none.
fn questions(input: &Map<String, Value>) -> Option<String> {
    // A call with other arguments is that of another tool.
    let questions = input.get("questions")?.as_array()?;
    if input.len() != 1 || questions.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    for question in questions {
        lines.push(question.get("question")?.as_str()?.to_owned());
        let options = question.get("options").and_then(Value::as_array);
        for option in options.into_iter().flatten() {
            let label = option.get("label")?.as_str()?;
            let description = option.get("description").and_then(Value::as_str);
            lines.push(match description {
                Some(description) if !description.is_empty() => {
                    format!("  - {label}: {description}")
                }
                _ => format!("  - {label}"),
            });
        }
    }
    Some(lines.join("\n"))
}

/// Returns the arguments in a readable form.
fn input(call: &Call) -> String {
    match &*call.input {
        Value::String(raw) => raw.clone(),
        Value::Object(input) => {
            if call.kind == ToolKind::Execute
                && let Some(Value::String(command)) = input.get("command")
            {
                return format!("$ {command}");
            }
            if let Some(questions) = questions(input) {
                return questions;
            }
            let line = |(key, value): (&String, &Value)| match value {
                Value::String(text) if text.contains('\n') => format!("{key}:\n{text}"),
                Value::String(text) => format!("{key}: {text}"),
                value => format!("{key}: {value}"),
            };
            input.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

fn class(call: &Call) -> String {
    let kind = match call.kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode | ToolKind::Other => "other",
    };
    let state = match &call.state {
        _ if has_failed(call) => " failed",
        CallState::Running { .. } | CallState::Pending => " open",
        CallState::Completed(_) | CallState::Failed { .. } => "",
    };
    format!("{kind}{state}")
}

fn title(call: &Call) -> String {
    if call.title.is_empty() {
        call.tool.clone()
    } else {
        call.title.clone()
    }
}

/// Returns the numbers of added and removed lines.
fn lines(change: &Change) -> (usize, usize) {
    let old = change.old.as_deref().unwrap_or_default();
    if old.len() > MAX_COMPARED_BYTES || change.new.len() > MAX_COMPARED_BYTES {
        return (change.new.lines().count(), old.lines().count());
    }
    change.lines().count()
}

/// Returns the lines added to a file and removed from it by all its changes together; if only parts
/// are known, the sums over the changes.
fn sum(changes: &[&Change]) -> (usize, usize) {
    match changes {
        [first, .., last] if changes.iter().all(|change| change.part.is_none()) => lines(&Change {
            old: first.old.clone(),
            ..(*last).clone()
        }),
        _ => changes
            .iter()
            .map(|change| lines(change))
            .fold((0, 0), |(a, b), (c, d)| (a + c, b + d)),
    }
}

fn diff(out: &mut String, change: &Change, root: &str) {
    let old = change.old.as_deref().unwrap_or_default();
    put!(
        out,
        "<p class=\"file mono\">{}{}</p>",
        Esc(change.path.strip_prefix(root).unwrap_or(&change.path)),
        if change.old.is_none() { " (new)" } else { "" }
    );
    if old.len() > MAX_COMPARED_BYTES || change.new.len() > MAX_COMPARED_BYTES {
        out.push_str("<p class=\"attached\">Too large to be shown line by line.</p>");
        return;
    }
    let diff = change.lines();
    let before = change.part.unwrap_or_default();
    out.push_str("<pre class=\"diff\">");
    for (n, group) in diff.groups().iter().enumerate() {
        if n > 0 {
            out.push_str("<span class=\"h\"><i>⋯</i></span>");
        }
        for line in group.iter().flat_map(|op| diff.changes(op)) {
            let (class, sign) = match line.tag() {
                ChangeTag::Delete => ("d", "-"),
                ChangeTag::Insert => ("a", "+"),
                ChangeTag::Equal => ("", " "),
            };
            let number = match (line.new_index(), line.old_index()) {
                (Some(new), _) => before.new + new + 1,
                (None, old) => before.old + old.map_or(0, |old| old + 1),
            };
            let text = line.value().trim_end_matches(['\n', '\r']);
            put!(
                out,
                "<span class=\"{class}\"><i>{number}</i>{sign} {}</span>",
                Esc(text)
            );
        }
    }
    out.push_str("</pre>");
}

fn attached(out: &mut String, file: &File) {
    let name = file
        .name
        .as_deref()
        .or(file.uri.as_deref())
        .unwrap_or(&file.mime);
    put!(out, "<p class=\"attached\">Attached: {}", Esc(name));
    let picture = matches!(
        file.mime.as_str(),
        "image/png" | "image/jpeg" | "image/gif" | "image/webp"
    );
    let base64 = |data: &&String| {
        data.len() <= MAX_PICTURE_BYTES
            && data
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
    };
    if picture && let Some(data) = file.data.as_ref().filter(base64) {
        put!(
            out,
            "<img alt=\"{}\" src=\"data:{};base64,{data}\">",
            Esc(name),
            file.mime
        );
    }
    out.push_str("</p>");
}

/// Writes the list of changed files, with their total changes.
fn files(out: &mut String, stored: &StoredSession, home: Option<&str>) {
    let mut changed: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    for call in stored.messages.iter().flat_map(Message::calls) {
        if let CallState::Completed(done) = &call.state {
            for change in &done.changes {
                changed.entry(&change.path).or_default().push(change);
            }
        }
    }
    if changed.is_empty() {
        return;
    }
    let root = format!("{}/", stored.record.cwd.display());
    out.push_str("<div class=\"files\"><h2>Files changed</h2>\n<ul>\n");
    for (path, changes) in changed {
        let (added, removed) = sum(&changes);
        let shown = path
            .strip_prefix(&root)
            .map_or_else(|| short_path(path, home), str::to_owned);
        put!(
            out,
            "<li><span class=\"mono\"><bdi>{}</bdi></span><span class=\"stat\"><ins>+{added}</ins> <del>−{removed}</del></span></li>\n",
            Esc(&shown)
        );
    }
    out.push_str("</ul></div>\n");
}

fn short_path(path: &str, home: Option<&str>) -> String {
    match home
        .and_then(|home| path.strip_prefix(home))
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        Some(rest) => format!("~{rest}"),
        None => path.to_owned(),
    }
}

fn moment(at: Timestamp) -> String {
    let iso = at.iso();
    let text = iso.trim_end_matches('Z').replace('T', " ");
    format!(
        "<time datetime=\"{iso}\">{} UTC</time>",
        text.get(..19).unwrap_or(&text)
    )
}

/// Formats a duration of at least a second.
fn span(from: Timestamp, to: Timestamp) -> Option<String> {
    let seconds = to.0.saturating_sub(from.0) / 1000;
    let text = match seconds {
        0 => return None,
        1..90 => format!("{seconds} s"),
        90..5_400 => format!("{} min", (seconds + 30) / 60),
        5_400..129_600 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    };
    Some(text)
}
