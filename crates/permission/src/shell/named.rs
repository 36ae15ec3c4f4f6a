//! The words of a command line before it runs, for callers that need the files it names.

use shell_parser::syntax;
use syntax::{Body, List, Operator, Piece, Script, ShellCommand, ShellCommandKind, Word};

/// The maximum number of words that one word with braces may become.
const MAX_ALTERNATIVES: usize = 64;

/// A word of a command, which may name a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The word without quotes, and without computed parts.
    pub text: String,
    /// True if `*` and `?` in the text are wildcards for file names.
    pub is_pattern: bool,
    /// True if the text lacks a part that is computed at run time.
    pub is_computed: bool,
    /// True if it is the target of a redirection that writes.
    pub is_written: bool,
}

#[derive(Clone)]
enum NameToken {
    Text(String),
    Glob(char),
    Brace(char),
    Computed,
}

/// A command of a line.
pub(crate) struct NamedCommand<'s> {
    /// The command as it is written.
    pub(crate) text: &'s str,
    /// Its words, and the files in its redirections.
    pub(crate) names: Vec<Name>,
}

/// Returns the commands of a line, including nested ones, each with the files in its redirections.
/// `None` if the line cannot be parsed.
pub fn commands(text: &str) -> Option<Vec<Vec<Name>>> {
    let script = shell_parser::parse(text, 0).ok()?;
    let commands = named_commands(&script).into_iter();
    Some(commands.map(|command| command.names).collect())
}

/// Returns the commands of a script, including nested ones.
pub(crate) fn named_commands(script: &Script) -> Vec<NamedCommand<'_>> {
    let mut found = vec![];
    of_script(script, &mut found);
    found
}

fn of_script<'s>(script: &'s Script, found: &mut Vec<NamedCommand<'s>>) {
    of_list(script, &script.list, found);
    within(script, &script.pieces, found);
    for body in script
        .heredocs
        .iter()
        .filter_map(|heredoc| heredoc.body.as_ref())
    {
        of_script(body, found);
    }
}

fn of_list<'s>(script: &'s Script, list: &'s List, found: &mut Vec<NamedCommand<'s>>) {
    for command in list.iter().flat_map(|item| &item.commands) {
        of_command(script, command, found);
    }
}

fn of_command<'s>(
    script: &'s Script,
    command: &'s ShellCommand,
    found: &mut Vec<NamedCommand<'s>>,
) {
    let mut names = vec![];
    let mut add = |words: &'s [Word], found: &mut Vec<NamedCommand<'s>>| {
        for word in words {
            within(script, &word.pieces, found);
            names.extend(expanded(word));
            names.extend(word.array.iter().flat_map(expanded));
        }
    };
    match &command.kind {
        ShellCommandKind::Simple { assigns, words } => {
            add(words, found);
            for assign in assigns {
                // A computed value of a variable names no file yet.
                if expanded(&assign.value).iter().any(|name| name.is_computed) {
                    within(script, &assign.value.pieces, found);
                } else {
                    add(std::slice::from_ref(&assign.value), found);
                }
                add(assign.array.as_deref().unwrap_or_default(), found);
                within(script, &assign.subscript, found);
            }
        }
        ShellCommandKind::Group(list) | ShellCommandKind::Subshell(list) => {
            of_list(script, list, found)
        }
        ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
            lists.iter().for_each(|list| of_list(script, list, found))
        }
        ShellCommandKind::For { words, body, .. } => {
            add(words.as_deref().unwrap_or_default(), found);
            of_list(script, body, found);
        }
        ShellCommandKind::Arithmetic(pieces) => within(script, pieces, found),
        ShellCommandKind::ArithmeticFor { head, body } => {
            within(script, head, found);
            of_list(script, body, found);
        }
        ShellCommandKind::Case { word, arms } => {
            add(std::slice::from_ref(word), found);
            arms.iter()
                .for_each(|(_, list)| of_list(script, list, found));
        }
        ShellCommandKind::Condition(words) => add(words, found),
        ShellCommandKind::Function { body, .. } | ShellCommandKind::Coprocess { body, .. } => {
            of_command(script, body, found)
        }
    }
    for redirect in &command.redirects {
        if redirect.operator == Operator::HereDoc {
            continue;
        }
        let is_written = matches!(redirect.operator, Operator::Write | Operator::Duplicate);
        within(script, &redirect.target.pieces, found);
        names.extend(
            expanded(&redirect.target)
                .into_iter()
                .map(|name| Name { is_written, ..name }),
        );
    }
    if !names.is_empty() {
        let text = shell_parser::slice(script, &command.range);
        found.push(NamedCommand { text, names });
    }
}

fn within<'s>(script: &'s Script, pieces: &'s [Piece], found: &mut Vec<NamedCommand<'s>>) {
    for piece in pieces {
        match piece {
            Piece::Command {
                body: Body::Inline(inline),
                ..
            }
            | Piece::Process(inline) => of_list(script, &inline.list, found),
            Piece::Command {
                body: Body::Apart(script),
                ..
            } => of_script(script, found),
            Piece::Parameter { inner, .. } | Piece::Arithmetic(inner) => {
                within(script, inner, found)
            }
            Piece::Text(_)
            | Piece::Quoted(_)
            | Piece::Glob(_)
            | Piece::Brace(_)
            | Piece::Tilde(_) => {}
        }
    }
}

/// Expands a word to one name, or to one for each alternative in its braces.
fn expanded(word: &Word) -> Vec<Name> {
    let tokens: Vec<NameToken> = word
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) | Piece::Quoted(text) => NameToken::Text(text.clone()),
            Piece::Glob(glob) => NameToken::Glob(*glob),
            Piece::Brace(brace) => NameToken::Brace(*brace),
            // Relative paths start in the initial directory.
            Piece::Parameter {
                before: None,
                name,
                operator,
                ..
            } if name == "PWD" && operator.is_empty() => NameToken::Text(".".into()),
            _ => NameToken::Computed,
        })
        .collect();
    let mut all = vec![];
    alternatives(tokens, &mut all);
    all.iter().map(|tokens| name(tokens)).collect()
}

fn alternatives(tokens: Vec<NameToken>, found: &mut Vec<Vec<NameToken>>) {
    if found.len() >= MAX_ALTERNATIVES {
        return;
    }
    let Some((open, commas, close)) = group(&tokens) else {
        return found.push(tokens);
    };
    let mut start = open + 1;
    for end in commas.into_iter().chain([close]) {
        let parts = [
            tokens.get(..open),
            tokens.get(start..end),
            tokens.get(close + 1..),
        ];
        alternatives(
            parts.into_iter().flatten().flatten().cloned().collect(),
            found,
        );
        start = end + 1;
    }
}

/// Returns the positions of the first braces with several alternatives: the opening brace, the
/// commas, the closing brace.
fn group(tokens: &[NameToken]) -> Option<(usize, Vec<usize>, usize)> {
    let opens = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| matches!(token, NameToken::Brace('{')));
    opens.map(|(at, _)| at).find_map(|open| {
        let mut depth = 0_usize;
        let mut commas = vec![];
        for (at, token) in tokens.iter().enumerate().skip(open) {
            match token {
                NameToken::Brace('{') => depth += 1,
                NameToken::Brace('}') if depth == 1 => {
                    return (!commas.is_empty()).then_some((open, commas, at));
                }
                NameToken::Brace('}') => depth -= 1,
                NameToken::Brace(_) if depth == 1 => commas.push(at),
                _ => {}
            }
        }
        None
    })
}

fn name(tokens: &[NameToken]) -> Name {
    let mut name = Name {
        text: String::new(),
        is_pattern: false,
        is_computed: false,
        is_written: false,
    };
    // Within a character class, which becomes `*`.
    let mut in_class = false;
    // Within a range in braces, which becomes `*` as well.
    let mut in_range = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            NameToken::Text(text) if in_class => {
                let rest = text.split_once(']').map(|(_, rest)| rest);
                in_class = rest.is_none();
                name.text.push_str(rest.unwrap_or_default());
            }
            NameToken::Text(_) if in_range => {}
            NameToken::Text(text) => name.text.push_str(text),
            NameToken::Glob(_) if in_class || in_range => {}
            NameToken::Glob(glob) => {
                in_class = *glob == '[';
                name.is_pattern = true;
                name.text.push(if in_class { '*' } else { *glob });
            }
            NameToken::Brace('{') if matches!(tokens.get(at + 1), Some(NameToken::Text(text)) if text.contains("..")) =>
            {
                in_range = true;
                name.is_pattern = true;
                name.text.push('*');
            }
            NameToken::Brace('}') if in_range => in_range = false,
            NameToken::Brace(brace) => name.text.push(*brace),
            NameToken::Computed => name.is_computed = true,
        }
    }
    name
}
