//! What is asked beside the conversation: a title for it, a summary of it. Both are made of the
//! conversation's own words.

use std::collections::{BTreeMap, BTreeSet};

use super::path::looks_like_path;
use super::sentence::clip;
use crate::model::Request;
use crate::model::request::{Input, Message, Output};
use crate::text::mark::without_notes;

/// What a request without tools is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A title.
    Title,
    /// A summary to go on from.
    Summary,
    /// Two sentences about what was changed.
    Changes,
}

/// Whether a request is no turn, but asks for a title or a summary: it offers no tools, nothing
/// was called, and the first words of its instructions say so.
pub(super) fn side(request: &Request) -> Option<Side> {
    let called = |message: &Message| match message {
        Message::Assistant(outputs) => outputs.iter().any(|output| matches!(output, Output::Call { .. })),
        Message::Results(_) => true,
        Message::User(_) => false,
    };
    let last_user = request.messages.iter().rposition(|message| matches!(message, Message::User(_))).unwrap_or(0);
    if !request.tools.is_empty() || request.messages.iter().skip(last_user).any(called) {
        return None;
    }
    // Only the first words: the prompts of agents speak of titles and summaries further down.
    let head: String = request.system.concat().to_lowercase().chars().take(200).collect();
    let template =
        user_text(request).last().is_some_and(|text| text.contains("Next Move") && text.contains("Work State"));
    let (title, summary) = (head.find("title"), head.find("summar"));
    match (title, summary) {
        _ if template => Some(Side::Summary),
        (Some(title), summary) if summary.is_none_or(|summary| title < summary) => Some(Side::Title),
        _ if head.contains("pull request") => Some(Side::Changes),
        (_, Some(_)) => Some(Side::Summary),
        _ => None,
    }
}

fn user_text(request: &Request) -> Vec<String> {
    let words = |input: &Input| match input {
        Input::Text(text) => Some(without_notes(text)),
        Input::File(_) => None,
    };
    let texts = request.messages.iter().filter_map(|message| match message {
        Message::User(blocks) => Some(blocks.iter().filter_map(words).collect::<Vec<_>>().join("\n")),
        _ => None,
    });
    texts.filter(|text| !text.trim().is_empty()).collect()
}

/// A title for the conversation in a title request.
pub(super) fn title_of(request: &Request) -> String {
    let texts = user_text(request);
    let is_instruction = |line: &str| {
        let line = line.trim().to_lowercase();
        line.starts_with("generate a title")
            || line.starts_with("write a title")
            || (line.contains("title") && line.ends_with(':'))
    };
    let mut own =
        texts.iter().map(|text| text.lines().filter(|line| !is_instruction(line)).collect::<Vec<_>>().join("\n"));
    let first = own.find(|text| !text.trim().is_empty()).unwrap_or_default();
    let title = title(&first);
    if title.is_empty() { "New session".to_owned() } else { title }
}

/// The longest title, in characters.
const LONGEST_TITLE: usize = 50;

/// A title from a prompt's own words: at most 50 characters, one line, no Markdown; empty
/// when there is no word in it. Pure.
pub fn title(prompt: &str) -> String {
    const POLITE: &[&str] = &[
        "please ",
        "can you ",
        "could you ",
        "would you ",
        "i want you to ",
        "i'd like you to ",
        "i would like to ",
        "i want to ",
        "help me to ",
        "help me ",
        "let's ",
        "hey ",
        "hi ",
        "hello ",
        "hi, ",
        "hello, ",
        "hey, ",
        "ok ",
        "now ",
        "so ",
    ];
    let prompt = without_notes(prompt);
    let mut fence = false;
    let mut line = "";
    for candidate in prompt.lines() {
        if candidate.trim_start().starts_with("```") {
            fence = !fence;
        } else if !fence && candidate.chars().any(char::is_alphanumeric) {
            line = candidate;
            break;
        }
    }
    let plain: String = line.chars().filter(|c| !"`*\"#<>[]".contains(*c) && !c.is_control()).collect();
    let mut text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    text = text.trim_start_matches(['-', '>', ' ', '/', '@']).to_owned();
    while let Some(rest) = POLITE.iter().find_map(|start| {
        let head = text.get(..start.len())?;
        (head.eq_ignore_ascii_case(start) && text.len() > start.len())
            .then(|| text[start.len()..].trim_start().to_owned())
    }) {
        text = rest;
    }
    let sentence = text.find(". ").filter(|at| *at >= 8).map_or(text.as_str(), |at| &text[..at]);
    let mut title = String::new();
    for word in sentence.split(' ') {
        let more = if title.is_empty() { 0 } else { 1 };
        if title.chars().count() + more + word.chars().count() > LONGEST_TITLE {
            break;
        }
        if more == 1 {
            title.push(' ');
        }
        title.push_str(word);
    }
    if title.is_empty() {
        title = clip(sentence, LONGEST_TITLE);
    }
    let cut = title.len() < sentence.len();
    let title = title.trim_end_matches(['.', ',', ';', ':', '?', '!', ' ', '-']);
    // A title that was cut should not end in "the".
    let mut words: Vec<&str> = title.split(' ').collect();
    while cut
        && words.len() > 2
        && words.last().is_some_and(|word| word.len() <= 4 && super::words::is_stop(&word.to_lowercase()))
    {
        words.pop();
    }
    let title = words.join(" ");
    let mut chars = title.chars();
    match chars.next() {
        Some(first) if title.chars().any(char::is_alphanumeric) => {
            let mut raised: String = first.to_uppercase().collect();
            // A name in code keeps its spelling.
            let first_word = title.split(' ').next().unwrap_or_default();
            let is_name =
                first_word.contains(['_', '.', '/', ':']) || first_word.chars().skip(1).any(char::is_uppercase);
            if is_name || raised.chars().count() != 1 {
                raised = first.to_string();
            }
            raised.push_str(chars.as_str());
            raised
        }
        _ => String::new(),
    }
}

/// Who says a line of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    User,
    Model,
    Tool,
}

/// What is kept of a conversation.
#[derive(Debug, Default)]
struct Kept {
    asked: Vec<String>,
    said: Vec<String>,
    done: Vec<String>,
    failed: Vec<String>,
    files: BTreeMap<String, usize>,
    changed: BTreeSet<String>,
    /// The sections of an earlier summary, by heading.
    earlier: BTreeMap<String, Vec<String>>,
}

/// The summary of the conversation in a compaction request, in the sections that are asked for.
pub(super) fn summary_of(request: &Request) -> String {
    Kept::of(request).write()
}

/// What was changed in a conversation, in the first person.
pub(super) fn changes_of(request: &Request) -> String {
    let kept = Kept::of(request);
    let asked = kept.asked.first().map_or_else(|| "the request".to_owned(), |asked| format!("“{}”", clip(asked, 120)));
    if kept.done.is_empty() {
        return format!("I answered {asked} and changed nothing.");
    }
    let files: Vec<String> = kept.changed.iter().take(6).map(|path| super::words::quoted(path)).collect();
    match files.is_empty() {
        true => format!("I ran {} for {asked}.", super::answer::count(kept.done.len(), "command")),
        false => format!("I changed {} for {asked}.", files.join(", ")),
    }
}

impl Kept {
    fn of(request: &Request) -> Self {
        let mut kept = Self::default();
        for message in &request.messages {
            match message {
                Message::User(blocks) => {
                    for block in blocks {
                        if let Input::Text(text) = block {
                            kept.transcript(&without_notes(text));
                        }
                    }
                }
                Message::Assistant(outputs) => {
                    for output in outputs {
                        match output {
                            Output::Text { text, .. } => kept.line(Voice::Model, text),
                            Output::Call { name, arguments, .. } => kept.call(name, &arguments.to_string()),
                            Output::Reasoning { .. } => {}
                        }
                    }
                }
                Message::Results(results) => {
                    for result in results.iter().filter(|result| result.failed) {
                        kept.failed.push(clip(result.text.lines().next().unwrap_or_default(), 200));
                    }
                }
            }
        }
        kept
    }

    /// A transcript as text: lines that name who speaks, then what they say. Where nobody is named,
    /// the user speaks.
    fn transcript(&mut self, text: &str) {
        let mut voice = Voice::User;
        let mut section: Option<String> = None;
        let marked = text.lines().any(|line| marker(line).is_some());
        let inside =
            ["conversation", "transcript", "history"].iter().find_map(|tag| between(text, tag)).unwrap_or(text);
        let earlier = ["prior-summary", "previous-summary", "summary", "prior_summary", "previous_summary"];
        if let Some(summary) = earlier.iter().find_map(|tag| between(text, tag)) {
            for line in summary.lines() {
                if let Some(heading) = line.trim().strip_prefix("## ").or_else(|| line.trim().strip_prefix("### ")) {
                    section = Some(heading.trim().to_lowercase());
                } else if let (Some(section), Some(bullet)) = (&section, line.trim().strip_prefix("- "))
                    && bullet != "(none)"
                {
                    self.earlier.entry(section.clone()).or_default().push(bullet.to_owned());
                }
            }
        }
        for line in inside.lines() {
            if let Some((speaker, rest)) = marker(line) {
                voice = speaker;
                if !rest.is_empty() {
                    self.line(voice, rest);
                }
            } else if marked || inside.len() == text.len() {
                self.line(voice, line);
            }
        }
    }

    fn line(&mut self, voice: Voice, line: &str) {
        let line = line.trim();
        let furniture = line.is_empty()
            || line.starts_with('<')
            || line.starts_with("```")
            || !line.chars().any(char::is_alphanumeric);
        for token in line.split(|c: char| c.is_whitespace() || "`\"'(),;".contains(c)) {
            let token = token.trim_end_matches(['.', ':']);
            let path = token.split(':').next().unwrap_or(token);
            if looks_like_path(path) && path.len() < 200 {
                *self.files.entry(path.to_owned()).or_default() += 1;
            }
        }
        if furniture {
            return;
        }
        match voice {
            Voice::User => self.asked.push(clip(line, 300)),
            Voice::Model => self.said.push(clip(line, 300)),
            Voice::Tool => {
                let lower = line.to_lowercase();
                if lower.contains("error") || lower.contains("failed") || lower.contains("rejected") {
                    self.failed.push(clip(line, 200));
                } else if let Some((name, arguments)) = line.split_once([' ', ':', '(']) {
                    self.call(name, arguments);
                }
            }
        }
    }

    fn call(&mut self, name: &str, arguments: &str) {
        if ["edit", "write", "multiedit", "apply_patch", "bash"].contains(&name) {
            self.done.push(clip(&format!("{name} {arguments}"), 160));
        }
        let named = arguments
            .split(|c: char| c.is_whitespace() || "\"',{}[]".contains(c))
            .filter(|token| looks_like_path(token));
        if name != "bash" && self.done.last().is_some_and(|done| done.starts_with(name)) {
            self.changed.extend(named.take(1).map(str::to_owned));
        }
        self.line_paths(arguments);
    }

    fn line_paths(&mut self, text: &str) {
        for token in text.split(|c: char| c.is_whitespace() || "\"',{}[]".contains(c)) {
            if looks_like_path(token) && token.len() < 200 {
                *self.files.entry(token.to_owned()).or_default() += 1;
            }
        }
    }

    fn write(&self) -> String {
        let old = |heading: &str| self.earlier.get(heading).cloned().unwrap_or_default();
        let first = self.asked.first().cloned();
        let objective = if old("objective").is_empty() { first.into_iter().collect() } else { old("objective") };
        let mut details = old("important details");
        details.extend(self.asked.iter().skip(1).rev().take(12).rev().map(|asked| format!("The user said: {asked}")));
        let mut completed = old("completed");
        completed.extend(self.done.iter().rev().take(15).rev().cloned());
        let active: Vec<String> = self.said.last().cloned().into_iter().collect();
        let blocked: Vec<String> = self.failed.iter().rev().take(5).rev().cloned().collect();
        let next: Vec<String> = self.asked.last().map(|asked| format!("Go on with: {asked}")).into_iter().collect();
        let mut files: Vec<(&String, &usize)> = self.files.iter().collect();
        files.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let mut paths = old("relevant files");
        for (path, _) in files.into_iter().take(15) {
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        let sections = [
            ("## Objective", objective),
            ("## Important Details", details),
            ("## Work State\n\n### Completed", completed),
            ("### Active", active),
            ("### Blocked", blocked),
            ("## Next Move", next),
            ("## Relevant Files", paths),
        ];
        let written = sections.iter().map(|(heading, bullets)| format!("{heading}\n\n{}", list(bullets)));
        written.collect::<Vec<_>>().join("\n\n")
    }
}

fn list(bullets: &[String]) -> String {
    if bullets.is_empty() {
        return "- (none)".to_owned();
    }
    let mut seen: Vec<String> = Vec::new();
    for bullet in bullets {
        let line = format!("- {}", bullet.split_whitespace().collect::<Vec<_>>().join(" "));
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    seen.join("\n")
}

fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    rest.split_once(&format!("</{tag}>")).map(|(inside, _)| inside)
}

/// A line that names who speaks: `User: x`, `[user]`, `## Assistant`, `<tool>` and the like.
fn marker(line: &str) -> Option<(Voice, &str)> {
    let line = line.trim();
    let bare = line.trim_start_matches(['#', '[', '<', '*', ' ']);
    let length = bare.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(bare.len());
    let (word, after) = bare.split_at(length);
    let decorated = bare.len() < line.len();
    let voice = match word.to_ascii_lowercase().as_str() {
        "user" | "human" => Voice::User,
        "assistant" | "model" | "agent" => Voice::Model,
        "tool" | "result" | "call" => Voice::Tool,
        _ => return None,
    };
    let rest = after.trim_start_matches([']', '>', '*', ' ']);
    let says = rest.strip_prefix(':');
    match says {
        Some(says) => Some((voice, says.trim_start_matches('*').trim())),
        None if decorated && (rest.is_empty() || after.starts_with([']', '>', '*'])) => Some((voice, rest.trim())),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        let table = [
            ("where are session ids made?", "Where are session ids made"),
            ("Please, could you fix the bug?", "Please, could you fix the bug"),
            ("please can you fix the **parser** in `src/a.rs`?", "Fix the parser in src/a.rs"),
            ("\n\n```rust\nfn a() {}\n```\nexplain this", "Explain this"),
            ("", ""),
            ("   \n***\n", ""),
            ("<system-reminder>plan</system-reminder>hello", "Hello"),
            ("src/main.rs", "src/main.rs"),
            ("Fix it. And then something else entirely.", "Fix it. And then something else entirely"),
            ("Rework the store. And then something else.", "Rework the store"),
            (
                "why does the permission question not appear in the editor when a subagent runs",
                "Why does the permission question not appear",
            ),
        ];
        for (prompt, expected) in table {
            assert_eq!(title(prompt), expected, "{prompt}");
        }
        assert_eq!(title(&"x".repeat(200)).chars().count(), 50);
    }

    #[test]
    fn who_speaks() {
        assert_eq!(marker("User: hello"), Some((Voice::User, "hello")));
        assert_eq!(marker("[assistant]"), Some((Voice::Model, "")));
        assert_eq!(marker("## Tool: bash ls"), Some((Voice::Tool, "bash ls")));
        assert_eq!(marker("**User:** hi"), Some((Voice::User, "hi")));
        assert_eq!(marker("users are people"), None);
        assert_eq!(marker("the user: me"), None);
    }
}
