//! The shape of a command line, as bash reads it. Words keep what matters for judging: what is
//! quoted, what is a pattern, what is computed.

use std::ops::Range;

/// A text that was parsed on its own: the line, the text of a back-tick, of `eval`, of a here-doc.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The text the ranges in `list` point into.
    pub(crate) source: String,
    pub(crate) list: List,
    /// For a here-doc's body, which is text and no list.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) heredocs: Vec<Heredoc>,
}

pub(crate) type List = Vec<Item>;

/// One pipeline of a list.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) commands: Vec<ShellCommand>,
    pub(crate) background: bool,
    /// It runs only if what stands before it ended as it should (`&&`, `||`).
    pub(crate) perhaps: bool,
}

#[derive(Debug)]
pub(crate) struct ShellCommand {
    pub(crate) kind: ShellCommandKind,
    pub(crate) redirects: Vec<Redirect>,
    pub(crate) range: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum ShellCommandKind {
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
        body: Box<ShellCommand>,
    },
    Coprocess {
        /// The array that gets the descriptors.
        name: Option<String>,
        body: Box<ShellCommand>,
    },
}

#[derive(Debug)]
pub(crate) struct Assign {
    pub(crate) name: String,
    pub(crate) subscript: Vec<Piece>,
    pub(crate) append: bool,
    pub(crate) value: Word,
    /// The elements of `x=(a b)`.
    pub(crate) array: Option<Vec<Word>>,
}

#[derive(Debug, Default)]
pub(crate) struct Word {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) range: Range<usize>,
    /// The elements of an array given to `declare` and its like.
    pub(crate) array: Vec<Word>,
}

#[derive(Debug)]
pub(crate) enum Piece {
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
        /// What stands before the name: `#` for a length, `!` for a name that a variable holds.
        before: Option<char>,
        name: String,
        /// What stands between the name and the closing brace, the words in it included.
        operator: String,
        /// The subscript, as a sum, and the pieces of the operator's word; an offset is a sum too.
        inner: Vec<Piece>,
        quoted: bool,
    },
    Command {
        body: Body,
        quoted: bool,
    },
    /// A sum, a subscript, an offset: bash computes with what it becomes.
    Arithmetic(Vec<Piece>),
    /// `<(…)`, `>(…)`.
    Process(Inline),
}

#[derive(Debug)]
pub(crate) enum Body {
    /// `$(…)`: part of the same text.
    Inline(Inline),
    /// Back-ticks: unescaped first, so a text of its own.
    Apart(Box<Script>),
}

/// A list within a word.
#[derive(Debug)]
pub(crate) struct Inline {
    pub(crate) list: List,
    /// From its sign to its closing bracket.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests print words with"))]
    pub(crate) range: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) operator: Operator,
    pub(crate) target: Word,
    /// `{name}>`: the variable that gets the descriptor.
    pub(crate) variable: Option<String>,
    /// The index of the here-doc.
    pub(crate) heredoc: Option<usize>,
    /// Empty for what `|&` adds.
    pub(crate) range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
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
pub(crate) struct Heredoc {
    pub(crate) delimiter: String,
    pub(crate) quoted: bool,
    pub(crate) strip: bool,
    /// None until the line after the command was read.
    pub(crate) body: Option<Script>,
}

/// Why a text could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it is not bash, or not in the part of bash that is read here")]
    Syntax,
    #[error("a quote or bracket is not closed")]
    Unclosed,
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("it holds too many commands to judge")]
    TooMany,
}
