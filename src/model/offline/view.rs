//! What a request says, as far as the offline model looks at it: the user's last prompt, what was
//! attached to it, the calls made since, and where we are.

use serde_json::Value;

use super::places::Window;
use crate::model::Request;
use crate::model::request::{Input, Message, Output};
use crate::text::mark::without_notes;

/// A request, read.
#[derive(Debug, Default)]
pub(super) struct View {
    /// What the user asked last, without reminders and attachments.
    pub(super) prompt: String,
    /// Files that came with the prompt, already readable.
    pub(super) attached: Vec<Window>,
    /// Names of attachments that this model cannot take.
    pub(super) unreadable: Vec<String>,
    /// What the user said while the prompt was worked on, oldest first.
    pub(super) meanwhile: Vec<String>,
    /// The steps made since the prompt, oldest first; each is the calls of one answer.
    pub(super) steps: Vec<Vec<Done>>,
    /// The session's directory, without a slash at the end.
    pub(super) cwd: Option<String>,
    /// What may be called.
    pub(super) tools: Vec<String>,
    /// Whether nothing was answered in this session before the prompt.
    pub(super) first: bool,
}

/// A call and its result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Done {
    /// The tool.
    pub(super) name: String,
    /// What it was given.
    pub(super) arguments: Value,
    /// What it said.
    pub(super) text: String,
    /// Whether it failed or was refused.
    pub(super) failed: bool,
    /// It was not called at all, because it is not offered.
    pub(super) missing: bool,
}

impl View {
    /// Reads a request.
    pub(super) fn of(request: &Request) -> Self {
        let mut view = Self {
            cwd: request.system.iter().find_map(|block| working_directory(block)),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            ..Self::default()
        };
        let mut prompt_at = None;
        for (at, message) in request.messages.iter().enumerate().rev() {
            if let Message::User(blocks) = message {
                let said = read_user(blocks, view.cwd.as_deref());
                if !said.words.is_empty() || !said.attached.is_empty() {
                    (view.prompt, view.attached, view.unreadable) = (said.words, said.attached, said.unreadable);
                    prompt_at = Some(at);
                    break;
                }
            }
        }
        let (before, since) = request.messages.split_at(prompt_at.unwrap_or(request.messages.len()));
        view.meanwhile = since.iter().skip(1).flat_map(spoken_meanwhile).collect();
        let words = |output: &Output| matches!(output, Output::Text { text, .. } if !text.trim().is_empty());
        view.first = !before.iter().any(|m| matches!(m, Message::Assistant(outputs) if outputs.iter().any(words)));
        view.steps = steps(since);
        view
    }

    /// A path for people: relative to the session's directory where it lies inside.
    pub(super) fn relative(&self, path: &str) -> String {
        relative(path, self.cwd.as_deref())
    }
}

fn relative(path: &str, cwd: Option<&str>) -> String {
    let path = path.replace('\\', "/");
    let inside = cwd.and_then(|cwd| {
        let cwd = cwd.replace('\\', "/");
        Some(path.strip_prefix(cwd.as_str())?.strip_prefix('/')?.to_owned())
    });
    let path = inside.unwrap_or(path);
    path.strip_prefix("./").map(str::to_owned).unwrap_or(path)
}

fn steps(messages: &[Message]) -> Vec<Vec<Done>> {
    let mut steps = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let Message::Assistant(outputs) = message else { continue };
        let results = messages[at..].iter().find_map(|m| match m {
            Message::Results(results) => Some(results.as_slice()),
            _ => None,
        });
        let mut step = Vec::new();
        for output in outputs {
            let Output::Call { id, name, arguments, .. } = output else { continue };
            let result = results.unwrap_or_default().iter().find(|result| result.id == *id);
            step.push(Done {
                name: name.clone(),
                arguments: Value::clone(arguments),
                text: result.map_or_else(|| "There is no result.".to_owned(), |result| result.text.to_string()),
                failed: result.is_none_or(|result| result.failed),
                missing: false,
            });
        }
        if !step.is_empty() {
            steps.push(step);
        }
    }
    steps
}

/// The line of the environment block that names the session's directory.
fn working_directory(block: &str) -> Option<String> {
    let line = block.lines().find_map(|line| line.trim().strip_prefix("Working directory:"))?;
    let path = line.trim().trim_matches('`').trim_end_matches('/');
    (!path.is_empty()).then(|| path.to_owned())
}

/// What the user said in one message.
#[derive(Debug, Default)]
struct Said {
    /// Their own words; a file that was mentioned or attached stands in its place by its path.
    words: String,
    attached: Vec<Window>,
    unreadable: Vec<String>,
}

/// Tells apart what is in a message of the user's.
fn read_user(blocks: &[Input], cwd: Option<&str>) -> Said {
    let mut said = Said::default();
    // An editor cuts a sentence where a file is mentioned in it: such pieces belong on one line.
    let mut glue = "\n";
    for block in blocks {
        let Input::Text(text) = block else { continue };
        let text = without_notes(text);
        let text = text.trim();
        if text.is_empty() || is_notice(text) {
            continue;
        }
        if let Some(window) = Window::of_read(text) {
            said.attached.push(window);
            continue;
        }
        let window = attached(text).map(|window| Window { path: relative(&window.path, cwd), ..window });
        let mention =
            window.as_ref().map(|window| window.path.clone()).or_else(|| Some(relative(&mentioned(text)?, cwd)));
        if let Some(path) = mention {
            said.attached.extend(window);
            // At the end of a message the files follow, that the sentence speaks of as "this".
            let path = if path.contains(char::is_whitespace) { format!("`{path}`") } else { path };
            push(&mut said.words, " ", &path);
            glue = " ";
        } else if let Some(name) = unreadable(text) {
            said.unreadable.push(name);
        } else {
            push(&mut said.words, glue, text);
            glue = "\n";
        }
    }
    said
}

fn push(words: &mut String, glue: &str, more: &str) {
    if !words.is_empty() {
        words.push_str(glue);
    }
    words.push_str(more);
}

/// Sentences that the program says in the user's place.
fn is_notice(text: &str) -> bool {
    const NOTICES: &[&str] = &[
        "Called the Read tool",
        "Reading MCP resource",
        "Attached media from tool result",
        "The conversation so far was summarised",
        "What did we do so far?",
    ];
    NOTICES.iter().any(|notice| text.starts_with(notice))
}

/// The words for an attachment that the model does not take: its name.
fn unreadable(text: &str) -> Option<String> {
    let name = match text.strip_prefix("ERROR: \"") {
        Some(rest) => rest.split_once("\" ").filter(|(_, rest)| rest.contains("attached"))?.0,
        None => text.strip_prefix('[')?.split_once(" is attached, but ")?.0,
    };
    Some(name.rsplit_once(" (").map_or(name, |(name, _)| name).to_owned())
}

/// A file that was mentioned and not sent along: `[The user refers to a.rs: file:///p/a.rs]`.
fn mentioned(text: &str) -> Option<String> {
    let (name, uri) = text.strip_prefix("[The user refers to ")?.strip_suffix(']')?.split_once(": ")?;
    let path = uri.strip_prefix("file://").map(unescaped)?;
    (!name.is_empty() && !path.is_empty()).then_some(path)
}

/// A text that the editor sent with the prompt: between `<attached uri="…">` and its end, or below
/// a line with `[path]` or `[path:line]`.
fn attached(text: &str) -> Option<Window> {
    let (head, body) = text.split_once('\n')?;
    let (name, body) = match head.trim().strip_prefix("<attached uri=\"") {
        Some(rest) => (rest.strip_suffix("\">")?, body.trim_end().strip_suffix("</attached>")?),
        None => {
            let name = head.trim().strip_prefix('[')?.strip_suffix(']')?;
            let is_path = (name.contains('/') || name.contains('.')) && !name.contains(' ');
            (is_path.then_some(name)?, body)
        }
    };
    let (path, line) = match name.rsplit_once("#L").or_else(|| name.rsplit_once(':')) {
        Some((path, lines)) => {
            let first: String = lines.chars().take_while(char::is_ascii_digit).collect();
            first.parse().map_or((name, 1), |line: u64| (path, line.max(1)))
        }
        None => (name, 1),
    };
    Some(Window {
        path: path.strip_prefix("file://").map_or_else(|| path.to_owned(), unescaped),
        lines: body.lines().zip(line..).map(|(text, n)| (n, text.to_owned())).collect(),
        total: None,
        whole: false,
    })
}

/// A path as it stands in a URI: `%20` is a space.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the user said while a turn ran: it arrives as a reminder that begins with this sentence.
fn spoken_meanwhile(message: &Message) -> Vec<String> {
    let Message::User(blocks) = message else { return Vec::new() };
    let spoken = |input: &Input| match input {
        Input::Text(text) => {
            let (_, rest) = text.split_once("The user sent the following message while you were working.")?;
            let (_, words) = rest.split_once('\n')?;
            let words = words.split("</system-reminder>").next().unwrap_or(words).trim();
            (!words.is_empty()).then(|| words.to_owned())
        }
        Input::File(_) => None,
    };
    blocks.iter().filter_map(spoken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_told_from_words() {
        let blocks = [
            Input::Text("what is this?".into()),
            Input::Text("Called the Read tool with the following input: {}".into()),
            Input::Text("<path>/p/a.rs</path>\n<type>file</type>\n<content>\n1: fn a() {}\n</content>".into()),
            Input::Text("[src/b.rs:7]\nlet b = 1;".into()),
            Input::Text("<system-reminder>you are in plan mode</system-reminder>".into()),
            Input::Text("<attached uri=\"file:///p/c.rs#L3:9\">\nc();\n</attached>".into()),
            Input::Text("[The user refers to d e.rs: file:///p/d%20e.rs]".into()),
            Input::Text("[x.png (image/png) is attached, but Offline cannot read that. Tell the user.]".into()),
            Input::Text("ERROR: \"y.pdf\" could not be attached: this model does not take PDF input.".into()),
            Input::Text("now".into()),
        ];
        let said = read_user(&blocks, Some("/p"));
        assert_eq!(said.words, "what is this? src/b.rs c.rs `d e.rs` now");
        assert_eq!(said.unreadable, ["x.png", "y.pdf"]);
        let seen: Vec<String> = said.attached.iter().map(|w| format!("{} {:?}", w.path, w.lines)).collect();
        assert_eq!(seen, [r#"/p/a.rs [(1, "fn a() {}")]"#, r#"src/b.rs [(7, "let b = 1;")]"#, r#"c.rs [(3, "c();")]"#]);
    }

    #[test]
    fn the_working_directory() {
        for (block, expected) in [
            ("x\n<env>\n  Working directory: /home/me/p/\n</env>", Some("/home/me/p")),
            ("Working directory:", None),
            ("nothing", None),
        ] {
            assert_eq!(working_directory(block).as_deref(), expected, "{block}");
        }
    }
}
