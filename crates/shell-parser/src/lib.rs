//! A parser of bash command lines that agrees with bash, or refuses.
//!
//! It accepts the part of bash that `GRAMMAR.md` specifies, in which every construct has exactly
//! one meaning; everything else is [`Unreadable`]. Every byte of a line is accounted for, or the
//! line is refused. Tests compare the parser with bash itself: see `differential`.
//!
//! ```
//! use shell_parser::syntax::ShellCommandKind;
//!
//! let script = shell_parser::parse("cd /tmp && rm -rf \"$x\"", 0)?;
//! let last = &script.list[1];
//! assert!(last.is_conditional, "runs only if cd succeeds");
//! assert!(matches!(last.commands[0].kind, ShellCommandKind::Simple { .. }));
//! assert!(shell_parser::parse("echo 'unclosed", 0).is_err());
//! # Ok::<(), shell_parser::Unreadable>(())
//! ```
//!
//! The parser is recursive, with a depth limit far below the stack of a thread, and never
//! backtracks over more than a token.

mod commands;
#[cfg(test)]
mod differential;
mod heredoc;
mod simple;
pub mod syntax;
#[cfg(test)]
mod tests;
mod words;

use std::ops::Range;

pub use syntax::Unreadable;

use syntax::{Heredoc, Inline, Item, List, Script, ShellCommand, ShellCommandKind};

/// The maximum nesting of constructs. People stop at ten.
pub const MAX_DEPTH: usize = 48;

/// The maximum number of simple commands, assignments, redirections and backticks in one text. More
/// are not judged one by one.
const MAX_COMMANDS: usize = 1_000;

/// The result of parsing a part of a text.
type Read<T> = Result<T, Unreadable>;

/// Words that are not a program's name at the beginning of a command in bash.
const RESERVED: [&str; 23] = [
    "!", "[[", "]]", "{", "}", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "time", "until", "while", "((",
];

/// Reserved words that end a list.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Parses a script. `depth` is the number of texts around it, such as `eval` or backticks.
///
/// # Errors
/// A text that is not bash, or outside of the grammar; a quote or bracket that is not closed; a
/// text nested too deeply, or with too many commands.
pub fn parse(source: &str, depth: usize) -> Read<Script> {
    read(&mut Parser::new(source, depth))
}

/// Parses as many whole items of a list as possible from a text that cannot be parsed completely,
/// and returns them with the rest of the text. Returns `None` if the text can be parsed completely.
pub fn parse_prefix(source: &str) -> Option<(Script, &str)> {
    let mut parser = Parser::new(source, 0);
    read(&mut parser).err()?;
    let (start, rest) = source.split_at_checked(parser.whole)?;
    Some((parse(start, 0).ok()?, rest))
}

/// Removes leading reserved words from a text.
pub fn without_reserved(mut text: &str) -> &str {
    while let Some((word, rest)) = text.split_once([' ', '\t', '\n'])
        && RESERVED.contains(&word)
    {
        text = rest.trim_start();
    }
    text
}

/// Returns the part of a script's text at a range, without blanks around it.
pub fn slice<'s>(script: &'s Script, range: &Range<usize>) -> &'s str {
    script.source.get(range.clone()).unwrap_or_default().trim()
}

/// Parses the whole text.
fn read(parser: &mut Parser<'_>) -> Read<Script> {
    let source = parser.source;
    // bash stops at the NUL, and uses the others internally to mark quoted text.
    if source.contains(['\0', '\u{1}', '\u{7f}']) {
        return Err(Unreadable::Syntax);
    }
    let list = parser.list()?;
    if parser.at < parser.text.len() {
        return Err(Unreadable::Syntax);
    }
    if parser.waits() {
        return Err(Unreadable::Unclosed);
    }
    let heredocs = std::mem::take(&mut parser.heredocs);
    Ok(Script {
        source: source.to_owned(),
        list,
        pieces: vec![],
        heredocs,
    })
}

/// The state of parsing one text.
struct Parser<'s> {
    /// The bytes of `source`.
    text: &'s [u8],
    source: &'s str,
    /// The position of the next byte.
    at: usize,
    /// The number of constructs and texts around the position, at most [`MAX_DEPTH`].
    depth: usize,
    /// The number of simple commands that may still follow.
    commands: usize,
    /// The number of open `$(` and `<(`.
    inline: usize,
    /// True if it is in an arithmetic expression, in which bash also counts brackets within the
    /// words of parameters.
    sum: bool,
    /// The depth of the text itself.
    base: usize,
    /// The end of the last whole item of the text's own list.
    whole: usize,
    /// The here-documents so far, those without a body included.
    heredocs: Vec<Heredoc>,
}

/// Returns whether a byte ends a word unless it is quoted.
fn meta(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')'
    )
}

/// Returns whether the name of a variable can begin with a byte.
fn name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// Returns whether the name of a variable can contain a byte after the first one.
fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns whether bash recognises a reserved word after a command: after a compound command that
/// ends with a reserved word, but not after a redirection.
fn ends_itself(command: &ShellCommand) -> bool {
    command.redirects.is_empty()
        && match &command.kind {
            ShellCommandKind::Simple { .. } => false,
            ShellCommandKind::Function { body, .. } | ShellCommandKind::Coprocess { body, .. } => {
                ends_itself(body)
            }
            _ => true,
        }
}

impl<'s> Parser<'s> {
    fn new(source: &'s str, depth: usize) -> Self {
        Self {
            text: source.as_bytes(),
            source,
            at: 0,
            depth,
            commands: MAX_COMMANDS,
            inline: 0,
            sum: false,
            base: depth,
            whole: 0,
            heredocs: vec![],
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next_is(&self, wanted: &str) -> bool {
        self.text[self.at..].starts_with(wanted.as_bytes())
    }

    /// Consumes a text if it comes next. Returns whether it does.
    fn eat(&mut self, wanted: &str) -> bool {
        let same = self.next_is(wanted);
        self.at += if same { wanted.len() } else { 0 };
        same
    }

    /// Consumes a text that has to come next.
    fn expect(&mut self, wanted: &str) -> Read<()> {
        if self.eat(wanted) {
            Ok(())
        } else {
            Err(Unreadable::Syntax)
        }
    }

    /// Consumes bytes while they satisfy `kind`.
    fn run(&mut self, kind: impl Fn(u8) -> bool) -> &'s str {
        let start = self.at;
        while self.peek().is_some_and(&kind) {
            self.at += 1;
        }
        &self.source[start..self.at]
    }

    /// Consumes the next character.
    fn letter(&mut self) -> Read<&'s str> {
        let letter = self.source[self.at..]
            .chars()
            .next()
            .ok_or(Unreadable::Unclosed)?;
        let start = self.at;
        self.at += letter.len_utf8();
        Ok(&self.source[start..self.at])
    }

    /// Returns whether a reserved word comes next, as a separate word.
    fn word_is(&self, wanted: &str) -> bool {
        let rest = self
            .source
            .get(self.at + wanted.len()..)
            .unwrap_or_default();
        let process = rest.starts_with("<(") || rest.starts_with(">(");
        self.next_is(wanted) && rest.bytes().next().is_none_or(meta) && !process
    }

    /// Consumes a reserved word if it comes next. Returns whether it does.
    fn eat_word(&mut self, wanted: &str) -> bool {
        self.word_is(wanted) && self.eat(wanted)
    }

    /// Counts one of the commands, assignments, redirections or backticks that [`MAX_COMMANDS`]
    /// limits.
    fn one_command(&mut self) -> Read<()> {
        self.commands = self.commands.checked_sub(1).ok_or(Unreadable::TooMany)?;
        Ok(())
    }

    /// Parses a construct one level deeper. Fails at the maximum depth.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return Err(Unreadable::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, continued lines and a comment.
    fn blank(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.next_is("\\\n") => self.continued()?,
                Some(b'#') => {
                    self.run(|byte| byte != b'\n');
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Skips line continuations. The characters around them must not join to form an operator.
    fn continued(&mut self) -> Read<()> {
        let before = operator_byte(
            self.at
                .checked_sub(1)
                .and_then(|at| self.text.get(at))
                .copied(),
        );
        while self.eat("\\\n") {}
        if before.is_some()
            && (operator_byte(self.peek()).is_some() || matches!(before, Some(b'<' | b'>')))
        {
            return Err(Unreadable::Syntax);
        }
        Ok(())
    }

    /// Skips blanks, comments and newlines with the here-documents that follow them.
    fn linebreak(&mut self) -> Read<()> {
        loop {
            self.blank()?;
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// Returns whether the end of a list comes next: the end of the text, a closing bracket, the
    /// end of a branch of `case`, or one of [`CLOSERS`].
    fn at_stop(&self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => self.next_is(";;") || self.next_is(";&"),
            Some(b't' | b'e' | b'f' | b'd' | b'}') => CLOSERS.iter().any(|word| self.word_is(word)),
            Some(_) => false,
        }
    }

    /// Parses a list up to its end, which is not consumed.
    fn list(&mut self) -> Read<List> {
        let mut items = vec![];
        let mut is_conditional = false;
        loop {
            if self.depth == self.base && !is_conditional {
                self.whole = self.at;
            }
            self.linebreak()?;
            if self.at_stop() {
                return if is_conditional {
                    Err(Unreadable::Syntax)
                } else {
                    Ok(items)
                };
            }
            let commands = self.nested(Self::pipeline)?;
            // A compound command may be followed by the reserved word that closes the one around
            // it: `{ (ls) }`.
            let closed = commands.last().is_some_and(ends_itself);
            items.push(Item {
                commands,
                background: false,
                is_conditional,
            });
            self.blank()?;
            is_conditional = self.eat("&&") || self.eat("||");
            if is_conditional || self.peek() == Some(b'\n') {
                continue;
            }
            match self.peek() {
                None | Some(b')') => return Ok(items),
                Some(b';') if self.at_stop() => return Ok(items),
                Some(b';') => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    items
                        .iter_mut()
                        .rev()
                        .take(1)
                        .for_each(|item| item.background = true);
                }
                _ if closed && self.at_stop() => return Ok(items),
                _ => return Err(Unreadable::Syntax),
            }
        }
    }

    /// Parses a list that must not be empty.
    fn some_list(&mut self) -> Read<List> {
        let list = self.nested(Self::list)?;
        if list.is_empty() {
            Err(Unreadable::Syntax)
        } else {
            Ok(list)
        }
    }

    /// Parses the list of `$(…)` or `<(…)` after the opening bracket. `start` is the position of
    /// the sign.
    ///
    /// No here-document may be pending on either side: versions of bash disagree about the start of
    /// its body if a substitution comes first.
    fn inline(&mut self, start: usize) -> Read<Inline> {
        self.no_pending_heredoc()?;
        self.inline += 1;
        let sum = std::mem::take(&mut self.sum);
        let list = self.nested(Self::list)?;
        self.sum = sum;
        self.inline -= 1;
        self.expect(")")?;
        self.no_pending_heredoc()?;
        Ok(Inline {
            list,
            range: start..self.at,
        })
    }

    /// Fails if the body of a here-document has still to come.
    fn no_pending_heredoc(&self) -> Read<()> {
        if self.waits() {
            Err(Unreadable::Syntax)
        } else {
            Ok(())
        }
    }
}

fn operator_byte(byte: Option<u8>) -> Option<u8> {
    byte.filter(|byte| !matches!(byte, b' ' | b'\t' | b'\n') && meta(*byte))
}
