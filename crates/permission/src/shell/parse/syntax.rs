//! The syntax tree of a command line. Words keep the distinctions that matter for judging: quoted,
//! pattern, computed.

use std::ops::Range;

/// A separately parsed text: a line, or the text of backticks, `eval` or a here-document.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The text that the ranges in `list` refer to.
    pub(crate) source: String,
    pub(crate) list: List,
    /// The pieces of a here-document's body, which is text and no list.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) heredocs: Vec<Heredoc>,
}

pub(crate) type List = Vec<Item>;

/// A pipeline of a list.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) commands: Vec<ShellCommand>,
    pub(crate) background: bool,
    /// Runs only if the preceding item ended accordingly (`&&`, `||`).
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
    /// `for` and `select`; without words, over the positional parameters.
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
    /// The elements of an array in the words of `declare` and similar builtins.
    pub(crate) array: Vec<Word>,
}

#[derive(Debug)]
pub(crate) enum Piece {
    /// Unquoted literal text.
    Text(String),
    /// Quoted literal text.
    Quoted(String),
    /// `*`, `?` or `[`, unquoted.
    Glob(char),
    /// `{`, `,` or `}`, unquoted.
    Brace(char),
    /// `~`, `~name` at the start of a word.
    Tilde(String),
    Parameter {
        /// The character before the name: `#` for a length, `!` for indirection.
        before: Option<char>,
        name: String,
        /// The text between the name and the closing brace, including its words.
        operator: String,
        /// The subscript as arithmetic, and the pieces of the operator's word; an offset is
        /// arithmetic too.
        inner: Vec<Piece>,
        quoted: bool,
    },
    Command {
        body: Body,
        quoted: bool,
    },
    /// Arithmetic, a subscript or an offset: bash evaluates the resulting text.
    Arithmetic(Vec<Piece>),
    /// `<(…)`, `>(…)`.
    Process(Inline),
}

#[derive(Debug)]
pub(crate) enum Body {
    /// `$(…)`: part of the same text.
    Inline(Inline),
    /// Backticks, which are unescaped first and thus a separate text.
    Apart(Box<Script>),
}

/// A list within a word.
#[derive(Debug)]
pub(crate) struct Inline {
    pub(crate) list: List,
    /// The range from the sign to the closing bracket.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests print words with"))]
    pub(crate) range: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) operator: Operator,
    pub(crate) target: Word,
    /// `{name}>`: the variable that gets the descriptor.
    pub(crate) variable: Option<String>,
    /// The index of the here-document.
    pub(crate) heredoc: Option<usize>,
    /// Empty for the redirection that `|&` adds.
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
    /// `None` until the line after the command has been parsed.
    pub(crate) body: Option<Script>,
}

/// The reason why a text could not be parsed.
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
