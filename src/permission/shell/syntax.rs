//! The shape of a command line, as bash reads it. Words keep what matters for judging: what is
//! quoted, what is a pattern, what is computed.

use std::ops::Range;

/// A text that was parsed on its own: the line, the text of a back-tick, of `eval`, of a here-doc.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The text the ranges in `list` point into.
    pub(super) source: String,
    pub(super) list: List,
    /// For a here-doc's body, which is text and no list.
    pub(super) pieces: Vec<Piece>,
    pub(super) heredocs: Vec<Heredoc>,
}

pub(super) type List = Vec<Item>;

/// One pipeline of a list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) commands: Vec<Command>,
    pub(super) background: bool,
    /// It runs only if what stands before it ended as it should (`&&`, `||`).
    pub(super) perhaps: bool,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) kind: Kind,
    pub(super) redirects: Vec<Redirect>,
    pub(super) range: Range<usize>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Simple {
        assigns: Vec<Assign>,
        words: Vec<Word>,
    },
    Group(List),
    Subshell(List),
    /// `if`: conditions and bodies, each of which may run.
    Branches(Vec<List>),
    /// `while`, `until`: condition and body.
    Loop(Vec<List>),
    /// `for` and `select`; without words it goes over the positional parameters.
    For {
        name: String,
        words: Option<Vec<Word>>,
        body: List,
    },
    Arithmetic(Vec<Piece>),
    ArithmeticFor {
        head: Vec<Piece>,
        body: List,
    },
    Case {
        word: Word,
        arms: Vec<(Vec<Word>, List)>,
    },
    Condition(Vec<Word>),
    Function {
        name: String,
        body: Box<Command>,
    },
    Coprocess(Box<Command>),
}

#[derive(Debug)]
pub(super) struct Assign {
    pub(super) name: String,
    pub(super) subscript: Vec<Piece>,
    pub(super) append: bool,
    pub(super) value: Word,
    /// The elements of `x=(a b)`.
    pub(super) array: Option<Vec<Word>>,
}

#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
    pub(super) range: Range<usize>,
    /// The elements of an array given to `declare` and its like.
    pub(super) array: Vec<Word>,
}

#[derive(Debug)]
pub(super) enum Piece {
    /// Letters that mean themselves and were not quoted.
    Text(String),
    /// Letters that mean themselves because they were quoted.
    Quoted(String),
    /// `*`, `?` or `[`, unquoted.
    Glob(char),
    /// `{`, `,` or `}`, unquoted.
    Brace(char),
    /// `~`, `~name` at the start of a word.
    Tilde(String),
    Parameter {
        name: String,
        /// What stands between the name and the closing brace, the words in it apart.
        operator: String,
        /// Pieces of the operator's word, of a subscript, of an offset.
        inner: Vec<Piece>,
        quoted: bool,
    },
    Command(Body),
    Arithmetic(Vec<Piece>),
    /// `<(…)`, `>(…)`.
    Process(List),
}

#[derive(Debug)]
pub(super) enum Body {
    /// `$(…)`: part of the same text.
    Inline(List),
    /// Back-ticks: unescaped first, so a text of its own.
    Apart(Box<Script>),
}

#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) operator: Operator,
    pub(super) target: Word,
    /// The index of the here-doc.
    pub(super) heredoc: Option<usize>,
    pub(super) range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Read,
    Write,
    ReadWrite,
    HereDoc,
    HereString,
    /// `>&`: a descriptor, or a file in the old spelling.
    Duplicate,
    /// `<&`
    DuplicateIn,
}

#[derive(Debug)]
pub(super) struct Heredoc {
    pub(super) delimiter: String,
    pub(super) quoted: bool,
    pub(super) strip: bool,
    /// None until the line after the command was read.
    pub(super) body: Option<Script>,
}

/// Why a text could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is not valid bash")]
    Syntax,
    #[error("a quote or bracket is not closed")]
    Unclosed,
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("it holds too many commands to judge")]
    TooMany,
}
