//! Simple commands: assignments, words, redirections.

use std::ops::Range;

use super::syntax::{
    Assign, Operator, Piece, Redirect, ShellCommand, ShellCommandKind, Unreadable, Word,
};
use super::{Parser, RESERVED, Read, meta, name_byte, name_start};

/// Builtins whose words may be assignments of arrays.
pub(super) const DECLARES: [&str; 5] = ["declare", "typeset", "local", "export", "readonly"];

/// The signs of redirections. One that another begins with comes after it.
const OPERATORS: [(&str, Operator); 11] = [
    ("&>>", Operator::Write),
    ("&>", Operator::Write),
    ("<<<", Operator::HereString),
    ("<<", Operator::HereDoc),
    ("<>", Operator::ReadWrite),
    ("<&", Operator::DuplicateIn),
    ("<", Operator::Read),
    (">>", Operator::Write),
    (">|", Operator::Write),
    (">&", Operator::Duplicate),
    (">", Operator::Write),
];

impl Parser<'_> {
    /// Parses a simple command, or a function definition without `function`.
    pub(super) fn simple(&mut self) -> Read<ShellCommand> {
        self.one_command()?;
        let start = self.at;
        let mut assigns = vec![];
        let mut words = Vec::<Word>::new();
        let mut redirects = vec![];
        let mut declares = false;
        // bash recognises no array after a redirection, nor after `<(…)`, which starts like one.
        let mut arrays = true;
        let mut end = start;
        loop {
            self.blank()?;
            let from = self.at;
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                arrays = false;
            } else if self.at_end() {
                break;
            } else if words.is_empty()
                && let Some(assign) = self.assign()?
            {
                if assign.array.is_some() && !arrays {
                    return Err(Unreadable::Syntax);
                }
                self.one_command()?;
                assigns.push(assign);
            } else if declares && let Some(assign) = self.assign()? {
                if assign.array.is_some() && !arrays {
                    return Err(Unreadable::Syntax);
                }
                words.push(declared(assign, from..self.at));
            } else {
                arrays &= !self.process_next();
                let word = self.word()?;
                let text = &self.source[word.range.clone()];
                if words.is_empty() {
                    declares = DECLARES.contains(&text);
                    if RESERVED.contains(&text) {
                        return Err(Unreadable::Syntax);
                    }
                    if self.peek() == Some(b'(') && assigns.is_empty() && redirects.is_empty() {
                        let name = text.to_owned();
                        self.at += 1;
                        return self.function(name, start);
                    }
                }
                words.push(word);
            }
            end = self.at;
        }
        if assigns.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(Unreadable::Syntax);
        }
        Ok(ShellCommand {
            kind: ShellCommandKind::Simple { assigns, words },
            redirects,
            range: start..end,
        })
    }

    /// Parses a function definition after `NAME(`.
    fn function(&mut self, name: String, start: usize) -> Read<ShellCommand> {
        self.blank()?;
        self.expect(")")?;
        let kind = self.function_body(name)?;
        Ok(ShellCommand {
            kind,
            redirects: vec![],
            range: start..self.at,
        })
    }

    /// Returns whether no further word follows.
    pub(super) fn at_end(&self) -> bool {
        self.peek()
            .is_none_or(|byte| meta(byte) && !self.process_next())
    }

    /// Returns whether `<(` or `>(` comes next.
    pub(super) fn process_next(&self) -> bool {
        self.next_is("<(") || self.next_is(">(")
    }

    /// Parses `NAME=…`, `NAME+=…`, `NAME[…]=…`. Returns `None` if no assignment comes next.
    fn assign(&mut self) -> Read<Option<Assign>> {
        let start = self.at;
        if !self.peek().is_some_and(name_start) {
            return Ok(None);
        }
        let name = self.run(name_byte).to_owned();
        // bash does not split the text in a bracket after a name, whether or not `=` follows.
        let subscript = if self.eat("[") {
            self.arithmetic("]")?
        } else {
            vec![]
        };
        let signed = self.text[..self.at].ends_with(b"]");
        let append = self.eat("+=");
        if !append && !self.eat("=") {
            self.at = start;
            return if signed {
                Err(Unreadable::Syntax)
            } else {
                Ok(None)
            };
        }
        let at = self.at;
        if self.eat("(") {
            let array = Some(self.array()?);
            let value = Word {
                range: at..self.at,
                ..Word::default()
            };
            return Ok(Some(Assign {
                name,
                subscript,
                append,
                value,
                array,
            }));
        }
        let value = self.maybe_word()?;
        Ok(Some(Assign {
            name,
            subscript,
            append,
            value,
            array: None,
        }))
    }

    /// Parses the elements of `x=(…)` after the bracket. bash evaluates a key as arithmetic.
    fn array(&mut self) -> Read<Vec<Word>> {
        // Within a substitution, bash reads an escaped quote here as an open one.
        if self.waits() || self.inline > 0 {
            return Err(Unreadable::Syntax);
        }
        let mut words = vec![];
        loop {
            self.linebreak()?;
            if self.eat(")") {
                // Text directly after the bracket is part of the word.
                let close = self
                    .peek()
                    .is_some_and(|byte| !meta(byte) || matches!(byte, b'(' | b'<' | b'>'));
                return if close {
                    Err(Unreadable::Syntax)
                } else {
                    Ok(words)
                };
            }
            if self.at_end() {
                return Err(Unreadable::Syntax);
            }
            let start = self.at;
            let mut key = vec![];
            if self.eat("[") {
                key.push(Piece::Arithmetic(self.arithmetic("]")?));
                self.expect("=")?;
            }
            let mut word = if key.is_empty() {
                self.word()?
            } else {
                self.maybe_word()?
            };
            word.pieces.splice(..0, key);
            word.range.start = start;
            words.push(word);
        }
    }

    /// Parses `{name}`, the variable before a redirection. Returns `None` if it does not come next.
    fn descriptor(&mut self) -> Option<String> {
        let start = self.at;
        let name = if self.eat("{") {
            self.run(name_byte).to_owned()
        } else {
            String::new()
        };
        if name.bytes().next().is_some_and(name_start) && self.eat("}") {
            return Some(name);
        }
        self.at = start;
        None
    }

    /// Parses a redirection, with the number or the variable before it. Returns `None` if none
    /// comes next.
    pub(super) fn redirect(&mut self) -> Read<Option<Redirect>> {
        let start = self.at;
        let variable = self.descriptor();
        let digits = if variable.is_none() {
            self.run(|byte| byte.is_ascii_digit()).len()
        } else {
            0
        };
        let bare = self.at == start;
        let found = OPERATORS
            .iter()
            .find(|(text, _)| self.next_is(text) && (bare || !text.starts_with('&')));
        if self.process_next() {
            self.at = start;
            return Ok(None);
        }
        let Some((sign, operator)) = found else {
            self.at = start;
            return Ok(None);
        };
        // A longer number may not be a descriptor for bash.
        if digits > 4 {
            return Err(Unreadable::Syntax);
        }
        self.at += sign.len();
        self.one_command()?;
        if *operator == Operator::HereDoc {
            return Ok(Some(Redirect {
                variable,
                ..self.heredoc(start)?
            }));
        }
        self.blank()?;
        if self.at_end() {
            return Err(Unreadable::Syntax);
        }
        let copies = matches!(operator, Operator::Duplicate | Operator::DuplicateIn);
        let first = self.peek();
        let target = self.word()?;
        // `>&-x` closes a descriptor, and `x` is a word; `>&x-` moves one; `>&2x` is a file.
        let text = &self.source[target.range.clone()];
        let descriptor =
            text == "-" || (text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit()));
        let special =
            first.is_some_and(|byte| byte == b'-' || byte.is_ascii_digit()) || text.ends_with('-');
        // After nothing but redirections, bash reads `a=b` as an assignment and refuses it as a
        // target.
        if (copies && special && !descriptor) || (*sign == "&>>" && is_assignment(text)) {
            return Err(Unreadable::Syntax);
        }
        Ok(Some(Redirect {
            operator: *operator,
            target,
            variable,
            heredoc: None,
            range: start..self.at,
        }))
    }
}

/// Returns whether a word begins like an assignment: `a=`, `a+=` or `a[`.
fn is_assignment(word: &str) -> bool {
    let rest =
        word.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    rest.len() < word.len() && (rest.starts_with(['=', '[']) || rest.starts_with("+="))
}

/// Converts an assignment among the words of `declare` and similar builtins to a word.
fn declared(assign: Assign, range: Range<usize>) -> Word {
    let Assign {
        name,
        subscript,
        append,
        value,
        array,
    } = assign;
    let mut pieces = vec![Piece::Text(name)];
    if !subscript.is_empty() {
        pieces.push(Piece::Arithmetic(subscript));
    }
    pieces.push(Piece::Text(if append { "+=" } else { "=" }.into()));
    pieces.extend(value.pieces);
    Word {
        pieces,
        range,
        array: array.unwrap_or_default(),
    }
}
