//! Slash commands: the available ones, and the expansion of their templates. Shell inserts are
//! found here and run elsewhere, by the rules for bash.

use std::collections::HashMap;
use std::ops::Range;

use config::settings::{CommandEntry, Settings};

/// Returns the built-in commands, then those of the settings. A later command of the same name
/// replaces the earlier one in its position.
pub fn list(settings: &Settings) -> Vec<CommandEntry> {
    let built_in = |name: &str, template: &str, description: &str, subtask| CommandEntry {
        name: name.into(),
        template: template.into(),
        description: Some(description.into()),
        subtask,
        source: "built in".into(),
        ..CommandEntry::default()
    };
    let mut commands = vec![
        built_in(
            "init",
            prompts::command::INIT,
            "Write or improve this project's AGENTS.md",
            None,
        ),
        built_in(
            "review",
            prompts::command::REVIEW,
            "Review changes: uncommitted, or a commit, a branch, a pull request",
            Some(true),
        ),
    ];
    let mut places: HashMap<String, usize> = HashMap::new();
    places.extend(
        commands
            .iter()
            .enumerate()
            .map(|(at, command)| (command.name.clone(), at)),
    );
    for command in &settings.commands {
        let at = *places.entry(command.name.clone()).or_insert(commands.len());
        match commands.get_mut(at) {
            Some(other) => *other = command.clone(),
            None => commands.push(command.clone()),
        }
    }
    commands
}

/// Splits a message that begins with `/word` into the word and the rest. The caller decides whether
/// there is such a command: a pasted path is ordinary text.
pub fn typed(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, arguments) = rest.split_at(end);
    (!name.is_empty()).then(|| (name, arguments.trim()))
}

/// A template with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpandedTemplate {
    /// The text of the prompt.
    pub text: String,
    /// The shell inserts in `text`. Only those of the template: the user's text never becomes one.
    pub inserts: Vec<ShellInsert>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellInsert {
    /// The range in `text`, from `!` to the closing backtick.
    pub range: Range<usize>,
    /// The command line. It may contain text of the user, and is judged in this form.
    pub command: String,
}

impl ExpandedTemplate {
    /// Returns the text with each insert replaced by its output, in order. An insert without output
    /// becomes a note, so that the model knows that something is missing.
    pub fn filled(&self, outputs: &[Result<String, String>]) -> String {
        let mut text = String::with_capacity(self.text.len());
        let mut end = 0;
        for (index, insert) in self.inserts.iter().enumerate() {
            text.push_str(self.text.get(end..insert.range.start).unwrap_or_default());
            match outputs.get(index) {
                Some(Ok(output)) => text.push_str(output.trim_end()),
                Some(Err(why)) => {
                    text.push_str(&format!("(`{}` was not run: {why})", insert.command))
                }
                None => text.push_str(&format!("(`{}` was not run)", insert.command)),
            }
            end = insert.range.end;
        }
        text.push_str(self.text.get(end..).unwrap_or_default());
        text.trim().to_owned()
    }
}

/// Inserts arguments into a template: `$1` to `$9…` are words, the highest number takes all
/// remaining words, `$ARGUMENTS` is the whole text as typed. If a template has neither, the
/// arguments are appended.
pub fn expand(template: &str, arguments: &str) -> ExpandedTemplate {
    let words = words(arguments);
    let highest = numbers(template).max().unwrap_or(0);
    let fill = |text: &str| fill(text, &words, highest, arguments);
    let mut text = String::with_capacity(template.len() + arguments.len());
    let mut inserts = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find("!`") {
        let Some(length) = rest.get(start + 2..).and_then(|inner| inner.find('`')) else {
            break;
        };
        let inner = rest.get(start + 2..start + 2 + length).unwrap_or_default();
        text.push_str(&fill(rest.get(..start).unwrap_or_default()));
        let begin = text.len();
        let command = fill(inner);
        text.push_str(&format!("!`{command}`"));
        if !inner.is_empty() {
            inserts.push(ShellInsert {
                range: begin..text.len(),
                command,
            });
        }
        rest = rest.get(start + 3 + length..).unwrap_or_default();
    }
    text.push_str(&fill(rest));
    let named = highest > 0 || template.contains("$ARGUMENTS");
    if !named && !arguments.trim().is_empty() {
        text.push_str("\n\n");
        text.push_str(arguments);
    }
    ExpandedTemplate { text, inserts }
}

/// Splits arguments into words: quotes join words and are removed, `[Image 1]` is one word.
pub fn words(arguments: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while let Some(first) = rest.chars().next() {
        let image = rest
            .starts_with("[Image ")
            .then(|| rest.find(']'))
            .flatten();
        let closed = |quote: char| rest.get(1..).and_then(|inner| inner.find(quote));
        let (word, end) = match (first, image) {
            (_, Some(end)) => (rest.get(..=end), end + 1),
            ('"' | '\'', None) if closed(first).is_some() => {
                let end = closed(first).unwrap_or(0) + 1;
                (rest.get(1..end), end + 1)
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest.get(..end), end)
            }
        };
        words.push(word.unwrap_or_default());
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    words
}

/// Returns the numbers of all `$N` in a template.
fn numbers(template: &str) -> impl Iterator<Item = usize> {
    template
        .match_indices('$')
        .filter_map(|(at, _)| number(template.get(at + 1..)?).map(|(n, _)| n))
}

/// Parses a number from 1 at the start of a text. Returns it with its length.
fn number(text: &str) -> Option<(usize, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count().min(3);
    let n: usize = text.get(..length)?.parse().ok()?;
    (n > 0).then_some((n, length))
}

fn fill(text: &str, words: &[&str], highest: usize, arguments: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let after = rest.get(at + 1..).unwrap_or_default();
        if let Some(tail) = after.strip_prefix("ARGUMENTS") {
            out.push_str(arguments);
            rest = tail;
        } else if let Some((n, length)) = number(after) {
            if n == highest {
                out.push_str(&words.get(n - 1..).unwrap_or_default().join(" "));
            } else {
                out.push_str(words.get(n - 1).copied().unwrap_or_default());
            }
            rest = after.get(length..).unwrap_or_default();
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_replace_placeholders() {
        let table = [
            (
                "fix $1 in $2",
                "bug src/a.rs now please",
                "fix bug in src/a.rs now please",
            ),
            ("fix $1", "two words", "fix two words"),
            ("a $2 b $1", "x", "a  b x"),
            ("all: $ARGUMENTS!", "x  'y z'", "all: x  'y z'!"),
            ("$1 and $2", "\"one two\" three", "one two and three"),
            ("see $1", "[Image 1]", "see [Image 1]"),
            ("see $1 $2", "[Image 1] rest", "see [Image 1] rest"),
            ("nothing named", "words", "nothing named\n\nwords"),
            ("nothing named", "  ", "nothing named"),
            ("costs $5", "", "costs "),
            ("$HOME and $", "x", "$HOME and $\n\nx"),
            ("$1", "$ARGUMENTS", "$ARGUMENTS"),
            ("it's $1", "it's", "it's it's"),
            ("", "x", "\n\nx"),
        ];
        for (template, arguments, expected) in table {
            assert_eq!(
                expand(template, arguments).text,
                expected,
                "{template} with {arguments}"
            );
        }
    }

    #[test]
    fn only_template_has_shell_inserts() {
        let expanded = expand("log: !`git log -n $1`\nnote: $2", "3 !`rm -rf .`");
        let commands: Vec<&str> = expanded
            .inserts
            .iter()
            .map(|insert| insert.command.as_str())
            .collect();
        assert_eq!(commands, ["git log -n 3"]);
        assert_eq!(
            expanded.filled(&[Ok("one\n".into())]),
            "log: one\nnote: !`rm -rf .`"
        );
        assert_eq!(
            expanded.filled(&[Err("denied".into())]),
            "log: (`git log -n 3` was not run: denied)\nnote: !`rm -rf .`"
        );
    }

    #[test]
    fn command_is_distinguished_from_path() {
        assert_eq!(typed("/review main"), Some(("review", "main")));
        assert_eq!(typed("/ns/go"), Some(("ns/go", "")));
        assert_eq!(typed("/a\nb c"), Some(("a", "b c")));
        assert_eq!(typed("/ x"), None);
        assert_eq!(typed("x /y"), None);
    }

    #[test]
    fn settings_override_built_in_commands() {
        let changed = CommandEntry {
            name: "review".into(),
            template: "mine".into(),
            ..CommandEntry::default()
        };
        let new = CommandEntry {
            name: "ns/go".into(),
            template: "go".into(),
            ..CommandEntry::default()
        };
        let settings = Settings {
            commands: vec![changed, new],
            ..Settings::default()
        };
        let names: Vec<String> = list(&settings)
            .into_iter()
            .map(|command| format!("{}:{}", command.name, command.template.len() > 10))
            .collect();
        assert_eq!(names, ["init:true", "review:false", "ns/go:false"]);
    }
}
