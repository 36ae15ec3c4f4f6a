//! Expansion of words: their values if they are certain, otherwise the certain beginning.
//!
//! Substitutions are not run here; they are returned as [`Finding`]s in their order, and the caller
//! analyses them.

mod arg;
mod arithmetic;
mod braces;
mod state;
mod variables;

use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

pub(super) use arg::Arg;
use arg::{Values, WordCount};
pub(super) use arithmetic::holds_code;
pub(super) use state::{
    Directories, ShellState, StdinSource, Value, WrittenFunction, apply_loop_effects, may_move,
    merge_paths,
};
pub use variables::variable_danger;
pub(super) use variables::{harmless, is_quiet};

use shell_parser::syntax;
use syntax::{Body, List, Piece, Script, Word};

/// The maximum number of words that the braces of one line may become.
const MAX_BRACE_WORDS: usize = 2_048;

/// The state of the expansion of a whole line.
#[derive(Debug, Default)]
pub(super) struct Expander<'p> {
    home: Option<&'p Path>,
    /// The value of `TMPDIR`.
    tmp: Option<&'p Path>,
    /// The number of words that the line's braces became.
    brace_words: usize,
    /// Variables that get the integer attribute anywhere in the line.
    integer_variables: HashSet<String>,
    /// Variables that get an unknown value anywhere in the line.
    unknown_variables: HashSet<String>,
    /// True if a variable gets text that runs a command when bash evaluates it in arithmetic.
    has_code_variable: bool,
}

/// A result of expanding words, in their order.
#[derive(Debug)]
pub(super) enum Finding<'s> {
    /// Commands that run in a subshell.
    Runs {
        script: &'s Script,
        list: &'s List,
        state: Box<ShellState>,
        /// They read or write another program's pipe: `<(…)`, `>(…)`.
        piped: bool,
    },
    /// The reason why the whole line cannot be judged.
    Opaque(String),
}

/// An expansion of words of one text.
#[derive(Debug)]
pub(super) struct Expansion<'e, 's, 'p> {
    line: &'e mut Expander<'p>,
    script: &'s Script,
    state: &'e mut ShellState,
    found: Vec<Finding<'s>>,
}

impl<'p> Expander<'p> {
    pub(super) fn new(home: Option<&'p Path>, tmp: Option<&'p Path>) -> Self {
        Self {
            home,
            tmp,
            ..Self::default()
        }
    }

    /// Expands words of a text. The caller has to process the findings before it continues.
    pub(super) fn expand<'s, T>(
        &mut self,
        script: &'s Script,
        state: &mut ShellState,
        read: impl FnOnce(&mut Expansion<'_, 's, 'p>) -> T,
    ) -> (T, Vec<Finding<'s>>) {
        let mut expansion = Expansion {
            line: self,
            script,
            state,
            found: vec![],
        };
        let read = read(&mut expansion);
        (read, expansion.found)
    }
}

/// A piece of a word after expansion of its substitutions.
#[derive(Debug, Clone)]
enum ExpandedPiece {
    Text(String),
    Glob(char),
    Brace(char),
    Values(Vec<String>),
    /// An unknown value that stays a single word.
    Unknown,
    /// An unknown value that is split into words.
    Words,
}

impl<'s> Expansion<'_, 's, '_> {
    fn set_opaque(&mut self, reason: &str) {
        self.found.push(Finding::Opaque(reason.to_owned()));
    }

    fn runs(&mut self, script: &'s Script, list: &'s List, piped: bool) {
        let state = Box::new(self.state.clone());
        self.found.push(Finding::Runs {
            script,
            list,
            state,
            piped,
        });
    }

    /// Expands a word of a command, which may become several.
    pub(super) fn word(&mut self, word: &'s Word, args: &mut Vec<Arg>) {
        for element in &word.array {
            self.word(element, &mut vec![]);
        }
        self.split(word, args);
    }

    /// Expands a word that stays a single word: the value of an assignment, the target of a
    /// redirection.
    pub(super) fn single(&mut self, word: &'s Word) -> Arg {
        let raw = shell_parser::slice(self.script, &word.range).into();
        let parts = self.parts(&word.pieces, false);
        let literal = literal(&word.pieces);
        let unbraced = |part: ExpandedPiece| match part {
            ExpandedPiece::Brace(c) => ExpandedPiece::Text(c.to_string()),
            part => part,
        };
        let parts: Vec<ExpandedPiece> = parts.into_iter().map(unbraced).collect();
        Arg {
            raw,
            values: Rc::new(values(&parts)),
            is_literal: literal,
            spread: WordCount::One,
        }
    }

    fn split(&mut self, word: &'s Word, args: &mut Vec<Arg>) {
        let raw = shell_parser::slice(self.script, &word.range);
        // Most words are a single text.
        if let [Piece::Text(text) | Piece::Quoted(text)] = word.pieces.as_slice() {
            let values = Rc::new(Values::Exact(text.clone()));
            args.push(Arg {
                raw: raw.into(),
                values,
                is_literal: true,
                spread: WordCount::One,
            });
            return;
        }
        let mut parts = self.parts(&word.pieces, true);
        let literal = literal(&word.pieces);
        // An unquoted variable alone is split at blanks.
        if let [ExpandedPiece::Values(texts)] = parts.as_slice()
            && let [Piece::Parameter { quoted: false, .. }] = word.pieces.as_slice()
            && let [text] = texts.as_slice()
        {
            for field in text
                .split([' ', '\t', '\n'])
                .filter(|field| !field.is_empty())
            {
                let values = if field.contains(['*', '?', '[']) {
                    Values::Pattern(field.to_owned())
                } else {
                    Values::Exact(field.to_owned())
                };
                args.push(Arg {
                    raw: field.into(),
                    values: Rc::new(values),
                    is_literal: false,
                    spread: WordCount::One,
                });
            }
            return;
        }
        if vanishes(&parts)
            && word
                .pieces
                .iter()
                .any(|piece| matches!(piece, Piece::Parameter { quoted: false, .. }))
        {
            parts = vec![ExpandedPiece::Words];
        }
        if !parts
            .iter()
            .any(|part| matches!(part, ExpandedPiece::Brace(_)))
        {
            args.push(Arg {
                raw: raw.into(),
                values: Rc::new(values(&parts)),
                is_literal: literal,
                spread: spread(&parts),
            });
            return;
        }
        let words = if self.line.brace_words < MAX_BRACE_WORDS {
            braces::braces(&parts)
        } else {
            None
        };
        match words {
            Some(words) => {
                self.line.brace_words += words.len() - 1;
                let many = words.len() > 1;
                for parts in words {
                    let spread = if vanishes(&parts) {
                        WordCount::Words
                    } else {
                        spread(&parts)
                    };
                    let values = values(&parts);
                    let raw = match (&values, many) {
                        (Values::Exact(text), true) => text.as_str().into(),
                        _ => raw.into(),
                    };
                    args.push(Arg {
                        raw,
                        values: Rc::new(values),
                        is_literal: literal,
                        spread,
                    });
                }
            }
            None => args.push(Arg {
                is_literal: false,
                ..Arg::unknown(raw)
            }),
        }
    }

    /// Expands the body of a here-document.
    pub(super) fn body(&mut self, pieces: &'s [Piece]) {
        self.parts(pieces, false);
    }

    /// Expands pieces. With `splits`, an unquoted value is split at blanks and matched against file
    /// names.
    fn parts(&mut self, pieces: &'s [Piece], splits: bool) -> Vec<ExpandedPiece> {
        let mut parts = vec![];
        for piece in pieces {
            parts.push(match piece {
                Piece::Text(text) | Piece::Quoted(text) => ExpandedPiece::Text(text.clone()),
                Piece::Glob(c) => ExpandedPiece::Glob(*c),
                Piece::Brace(c) => ExpandedPiece::Brace(*c),
                Piece::Tilde(user) => self.expand_tilde(user),
                Piece::Parameter {
                    before,
                    name,
                    operator,
                    inner,
                    quoted,
                } => {
                    let part = self.parameter(*before, name, operator, inner);
                    match part {
                        ExpandedPiece::Values(texts)
                            if splits
                                && !quoted
                                && (pieces.len() > 1 || texts.len() > 1)
                                && texts.iter().any(|text| breaks(text)) =>
                        {
                            ExpandedPiece::Words
                        }
                        ExpandedPiece::Unknown
                            if splits
                                && (!quoted || is_list(piece))
                                && !is_number(*before, name, operator, self.state) =>
                        {
                            ExpandedPiece::Words
                        }
                        part => part,
                    }
                }
                Piece::Command { body, quoted } => {
                    self.command(body);
                    if splits && !quoted {
                        ExpandedPiece::Words
                    } else {
                        ExpandedPiece::Unknown
                    }
                }
                Piece::Arithmetic(inner) => {
                    self.arithmetic(inner);
                    ExpandedPiece::Unknown
                }
                Piece::Process(inline) => {
                    self.runs(self.script, &inline.list, true);
                    ExpandedPiece::Text("/dev/fd/63".into())
                }
            });
        }
        parts
    }

    fn command(&mut self, body: &'s Body) {
        match body {
            Body::Inline(inline) => self.runs(self.script, &inline.list, false),
            Body::Apart(script) => self.runs(script, &script.list, false),
        }
    }

    fn expand_tilde(&self, user: &str) -> ExpandedPiece {
        match (user, self.line.home) {
            ("", Some(home)) if !self.state.assigned("HOME") => {
                ExpandedPiece::Text(home.display().to_string())
            }
            // The home directories of other users are not looked up; for an unknown user the text
            // stays unchanged.
            _ => ExpandedPiece::Unknown,
        }
    }

    fn parameter(
        &mut self,
        before: Option<char>,
        name: &str,
        operator: &str,
        inner: &'s [Piece],
    ) -> ExpandedPiece {
        // Substitutions inside run whether or not their value is used.
        self.parts(inner, false);
        if operator.ends_with("@P") {
            self.set_opaque("`@P` runs the text of a variable");
        } else if before == Some('!')
            && !(operator.ends_with('*') || operator.ends_with("@]") || operator == "@")
        {
            self.set_opaque("`${!…}` reads a variable whose name is computed");
        }
        if operator.starts_with(['=']) || operator.starts_with(":=") {
            self.assigned_by_expansion(name);
        }
        if before.is_some() || !operator.is_empty() {
            return ExpandedPiece::Unknown;
        }
        match self.state.value(name) {
            Some(Value::Known(texts)) => ExpandedPiece::Values(texts.clone()),
            Some(_) => ExpandedPiece::Unknown,
            None => match (name, self.line.home, self.line.tmp) {
                ("HOME", Some(home), _) => ExpandedPiece::Values(vec![home.display().to_string()]),
                ("TMPDIR", _, Some(tmp)) => ExpandedPiece::Values(vec![tmp.display().to_string()]),
                ("PWD", ..) if self.state.cwd.len() == 1 => {
                    ExpandedPiece::Values(vec![self.state.cwd[0].display().to_string()])
                }
                _ => ExpandedPiece::Unknown,
            },
        }
    }
}

/// Returns whether an unquoted value would become several words or a pattern.
fn breaks(text: &str) -> bool {
    text.contains([' ', '\t', '\n', '*', '?', '['])
}

/// Returns whether a parameter is a number, which is never split.
fn is_number(before: Option<char>, name: &str, operator: &str, state: &ShellState) -> bool {
    let is_plain = before.is_none() && operator.is_empty();
    before == Some('#')
        || is_plain
            && (["?", "#", "$", "!"].contains(&name)
                || matches!(state.value(name), Some(Value::Harmless)))
}

/// Returns whether a parameter may become several words although it is quoted: `"$@"`, `"${a[@]}"`,
/// or one that contains such a parameter.
fn is_list(piece: &Piece) -> bool {
    let Piece::Parameter {
        name,
        operator,
        inner,
        ..
    } = piece
    else {
        return false;
    };
    name == "@" || operator.contains("[@]") || operator.ends_with('@') || inner.iter().any(is_list)
}

/// Returns whether an unquoted word may become no word at all.
fn vanishes(parts: &[ExpandedPiece]) -> bool {
    parts.iter().all(
        |part| matches!(part, ExpandedPiece::Values(texts) if texts.iter().any(String::is_empty)),
    )
}

fn spread(parts: &[ExpandedPiece]) -> WordCount {
    if parts
        .iter()
        .any(|part| matches!(part, ExpandedPiece::Words))
    {
        WordCount::Words
    } else {
        WordCount::One
    }
}

fn literal(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| {
        matches!(
            piece,
            Piece::Text(_) | Piece::Quoted(_) | Piece::Brace(_) | Piece::Tilde(_)
        )
    })
}

fn values(parts: &[ExpandedPiece]) -> Values {
    let pattern = parts
        .iter()
        .any(|part| matches!(part, ExpandedPiece::Glob(_)));
    let mut texts = vec![String::new()];
    for part in parts {
        match part {
            ExpandedPiece::Text(text) if pattern => {
                for c in text.chars() {
                    if matches!(c, '*' | '?' | '[' | '\\') {
                        texts[0].push('\\');
                    }
                    texts[0].push(c);
                }
            }
            ExpandedPiece::Text(text) => texts.iter_mut().for_each(|all| all.push_str(text)),
            ExpandedPiece::Glob(c) | ExpandedPiece::Brace(c) => {
                texts.iter_mut().for_each(|all| all.push(*c))
            }
            ExpandedPiece::Values(values)
                if !pattern && texts.len() * values.len() <= 64 && !values.is_empty() =>
            {
                texts = texts
                    .iter()
                    .flat_map(|all| values.iter().map(move |value| format!("{all}{value}")))
                    .collect();
            }
            ExpandedPiece::Values(_) | ExpandedPiece::Unknown | ExpandedPiece::Words => {
                let prefix = if texts.len() == 1 {
                    texts.remove(0)
                } else {
                    String::new()
                };
                let prefix = if pattern {
                    prefix[..prefix.find(['*', '?', '[', '\\']).unwrap_or(prefix.len())].to_owned()
                } else {
                    prefix
                };
                return Values::Unknown(prefix);
            }
        }
    }
    texts.sort();
    texts.dedup();
    match texts.len() {
        1 if pattern => Values::Pattern(texts.remove(0)),
        1 => Values::Exact(texts.remove(0)),
        _ => Values::OneOf(texts),
    }
}
