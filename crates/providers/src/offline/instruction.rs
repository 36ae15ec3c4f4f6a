//! Parses the prompt and carries out simple instructions: list, run, replace and create
//! ([`carry_out`]). Also formats files and outputs for the answer.

use std::path::Path;

use serde_json::json;

use super::turn::{OfflineResult, OfflineTurn, PlannedCall, unable};
use base::text::cut_chars;

/// The maximum number of lines of a file or an output that an answer shows.
const MAX_LINES: usize = 40;

/// A word of a prompt, or the content of backticks, quotation marks or a fence.
#[derive(Debug, Clone, Copy)]
pub(super) struct InstructionToken<'a> {
    pub(super) text: &'a str,
    /// True if the text was in backticks, quotation marks or a fence.
    pub(super) quoted: bool,
}

/// Splits a prompt into tokens, without the punctuation after them.
pub(super) fn tokenize(prompt: &str) -> Vec<InstructionToken<'_>> {
    /// The punctuation after a word. An exclamation mark may belong to the word (`macro_rules!`).
    const AFTER_WORD: [char; 5] = [',', ';', ':', '?', '.'];
    /// The punctuation after a quotation, and after an exclamation mark that belongs to a word.
    const AFTER_QUOTATION: [char; 6] = [',', ';', ':', '?', '.', '!'];
    let mut tokens = Vec::new();
    let mut rest = prompt.trim_start();
    while !rest.is_empty() {
        let quotation = ["```", "`", "\"", "'"].into_iter().find_map(|mark| {
            let (text, after) = rest.strip_prefix(mark)?.split_once(mark)?;
            Some((mark, text, after))
        });
        let (text, after) = match quotation {
            // The first line of a fence contains the language.
            Some(("```", text, after)) => {
                (text.split_once('\n').map_or(text, |(_, text)| text), after)
            }
            Some((_, text, after)) => (text, after),
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        let bare = text.trim_end_matches(AFTER_WORD);
        let quoted = quotation.is_some();
        tokens.push(InstructionToken {
            text: if quoted || bare.is_empty() {
                text
            } else {
                bare
            },
            quoted,
        });
        rest = after.trim_start_matches(AFTER_QUOTATION).trim_start();
    }
    tokens
}

impl InstructionToken<'_> {
    /// True if the token is one of the words in `list`, which are separated by spaces, and is not
    /// quoted.
    pub(super) fn is_one_of(&self, list: &str) -> bool {
        !self.quoted
            && list
                .split(' ')
                .any(|word| word.eq_ignore_ascii_case(self.text))
    }

    /// True if the token looks like a path: it contains a slash, or a dot with an extension of at
    /// most 4 bytes, and neither whitespace nor `*`, `(` or `:`.
    pub(super) fn is_path(&self) -> bool {
        let has_extension = |(stem, extension): (&str, &str)| {
            // "e.g" is not a file.
            stem.len() + extension.len() >= 3 && extension.len() <= 4
        };
        let has_form =
            self.text.contains('/') || self.text.rsplit_once('.').is_some_and(has_extension);
        has_form
            && !self
                .text
                .contains(|c: char| c.is_whitespace() || "*(:".contains(c))
    }
}

/// Carries out the instruction in the prompt, and returns the text of the answer. A prompt without
/// an instruction is passed to `answer`, as a question.
pub(super) fn carry_out(
    turn: &OfflineTurn<'_>,
    answer: impl FnOnce(&OfflineTurn<'_>, &[InstructionToken<'_>]) -> OfflineResult<String>,
) -> OfflineResult<String> {
    const FILLERS: &str = "please now can could you me the a file files command in";
    let tokens = tokenize(&turn.prompt);
    let significant: Vec<&InstructionToken<'_>> = tokens
        .iter()
        .filter(|token| !token.is_one_of(FILLERS))
        .collect();
    let texts: Vec<&str> = significant.iter().map(|token| token.text).collect();
    let verb = match significant.first() {
        Some(verb) if !verb.quoted => verb.text.to_lowercase(),
        _ => String::new(),
    };
    match (verb.as_str(), texts.get(1..).unwrap_or_default()) {
        ("list" | "ls", []) => read(turn, "."),
        ("list" | "ls", [path]) => read(turn, path),
        ("run", [command]) if significant[1].quoted => run(turn, command),
        // In single quotation marks, because a shell would execute backticks in a command line.
        ("run", _) => Err(unable(
            "Put the command in quotation marks: `run 'cargo test'`.",
        )),
        ("replace" | "change", [old, "with" | "by" | "to", new, path]) => {
            replace(turn, old, new, path)
        }
        ("create" | "write", [path, "with" | "containing", content]) => create(turn, path, content),
        _ => answer(turn, &tokens),
    }
}

/// Makes one call and returns its output. `activity` and `subject` are the text before the call:
/// `Reading`, `src/lib.rs`.
fn call_tool(
    turn: &OfflineTurn<'_>,
    activity: &str,
    subject: &str,
    call: PlannedCall,
) -> OfflineResult<String> {
    let outputs = turn.calls(format!("{activity} {subject}."), vec![call])?;
    Ok(outputs.concat())
}

/// Reads a file or a directory with the tool `read`, and returns its beginning as Markdown.
pub(super) fn read(turn: &OfflineTurn<'_>, path: &str) -> OfflineResult<String> {
    let heading = code_span(path);
    // With the full stop of the sentence, `.` would look like `..`.
    let subject = if path == "." {
        "this directory"
    } else {
        heading.as_str()
    };
    let call = ("read", json!({"filePath": path}));
    let output = call_tool(turn, "Reading", subject, call)?;
    Ok(format!(
        "{heading}:\n\n{}",
        fenced(path, &content_lines(&output))
    ))
}

fn run(turn: &OfflineTurn<'_>, command: &str) -> OfflineResult<String> {
    let heading = code_span(command);
    let call = ("bash", json!({"command": command}));
    let output = call_tool(turn, "Running", &heading, call)?;
    // The note about a nonzero exit code is for models.
    let lines = output.trim_end().lines();
    let lines: Vec<&str> = lines
        .filter(|line| !line.contains("system-reminder"))
        .collect();
    Ok(format!("{heading}:\n\n{}", fenced("", &lines)))
}

fn replace(turn: &OfflineTurn<'_>, old: &str, new: &str, path: &str) -> OfflineResult<String> {
    // `edit` requires that the file has been read.
    read(turn, path)?;
    let subject = format!(
        "{} with {} in {}",
        code_span(old),
        code_span(new),
        code_span(path)
    );
    let arguments =
        json!({"filePath": path, "oldString": old, "newString": new, "replaceAll": true});
    call_tool(turn, "Replacing", &subject, ("edit", arguments))?;
    Ok(format!("Done: replaced {subject}."))
}

fn create(turn: &OfflineTurn<'_>, path: &str, content: &str) -> OfflineResult<String> {
    let content = format!("{}\n", content.trim_end_matches('\n'));
    let arguments = json!({"filePath": path, "content": content});
    call_tool(turn, "Writing", &code_span(path), ("write", arguments))?;
    Ok(format!("Done: wrote {}.", code_span(path)))
}

/// Returns the lines of the file without their numbers, or the entries of the directory, in the
/// output of the tool `read`; all lines of any other output.
pub(super) fn content_lines(output: &str) -> Vec<&str> {
    let (body, is_file) = if let Some((_, lines)) = output.split_once("<content>\n") {
        (lines, true)
    } else if let Some((_, entries)) = output.split_once("<entries>\n") {
        (entries, false)
    } else {
        return output.lines().collect();
    };
    // A blank line and the count follow.
    let lines = body.lines().take_while(|line| !line.is_empty());
    lines
        .map(|line| match line.split_once(": ") {
            Some((_, text)) if is_file => text,
            _ => line,
        })
        .collect()
}

/// Returns a code span.
pub(super) fn code_span(text: &str) -> String {
    let text = text.replace('\n', " ");
    if !text.contains('`') {
        return format!("`{text}`");
    }
    let mut delimiter = "``".to_owned();
    while text.contains(&delimiter) {
        delimiter.push('`');
    }
    format!("{delimiter} {text} {delimiter}")
}

/// Returns a fenced block with the first lines, in the language of the file at `path`.
pub(super) fn fenced(path: &str, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines.iter().take(MAX_LINES) {
        text += &format!("{}\n", cut_chars(line, 300));
    }
    if lines.len() > MAX_LINES {
        text.push('…');
    }
    let text = text.trim_end();
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let extension = Path::new(path).extension().unwrap_or_default();
    format!("{fence}{}\n{text}\n{fence}", extension.display())
}
