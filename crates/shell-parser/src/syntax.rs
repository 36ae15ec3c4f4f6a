//! The syntax tree of a command line. Words keep the distinctions that matter for judging: quoted,
//! pattern, computed.

use std::ops::Range;

/// A separately parsed text: a line, or the text of backticks, `eval` or a here-document.
#[derive(Debug, Default)]
pub struct Script {
    /// The text that the ranges in `list` refer to.
    pub source: String,
    pub list: List,
    /// The pieces of a here-document's body, which is text and no list.
    pub pieces: Vec<Piece>,
    pub heredocs: Vec<Heredoc>,
}

/// A list of pipelines.
pub type List = Vec<Item>;

/// A pipeline of a list.
#[derive(Debug)]
pub struct Item {
    /// The commands, in order; never empty.
    pub commands: Vec<ShellCommand>,
    /// True if `&` follows.
    pub background: bool,
    /// True if it runs only if the preceding item ended accordingly (`&&`, `||`).
    pub is_conditional: bool,
}

/// A command of a pipeline, with its redirections.
#[derive(Debug)]
pub struct ShellCommand {
    pub kind: ShellCommandKind,
    pub redirects: Vec<Redirect>,
    pub range: Range<usize>,
}

/// A simple command, or one of the compound commands.
#[derive(Debug)]
pub enum ShellCommandKind {
    /// Assignments, or a program, function or builtin with its arguments.
    Simple {
        /// The assignments before the first word.
        assigns: Vec<Assign>,
        /// The name of the program and its arguments; empty for assignments or redirections alone.
        words: Vec<Word>,
    },
    /// `{ …; }`
    Group(List),
    /// `(…)`
    Subshell(List),
    /// `if`: conditions and bodies, each of which may run.
    Branches(Vec<List>),
    /// `while`, `until`: condition and body.
    Loop(Vec<List>),
    /// `for` and `select`.
    For {
        name: String,
        /// The values of the variable; `None` for the positional parameters.
        words: Option<Vec<Word>>,
        body: List,
    },
    /// `((…))`
    Arithmetic(Vec<Piece>),
    /// `for ((…))`
    ArithmeticFor { head: Vec<Piece>, body: List },
    /// `case`
    Case {
        word: Word,
        /// The patterns and the body of each branch.
        arms: Vec<(Vec<Word>, List)>,
    },
    /// `[[ … ]]`, with its words and operators as written.
    Condition(Vec<Word>),
    /// The definition of a function.
    Function {
        name: String,
        body: Box<ShellCommand>,
    },
    /// `coproc`
    Coprocess {
        /// The array that gets the descriptors; `None` for bash's default.
        name: Option<String>,
        body: Box<ShellCommand>,
    },
}

/// An assignment to a variable, before a command or alone.
#[derive(Debug)]
pub struct Assign {
    pub name: String,
    /// The subscript as arithmetic; empty if there is none.
    pub subscript: Vec<Piece>,
    /// True if it appends to the value: `+=`.
    pub append: bool,
    /// The value; without pieces if it is an array.
    pub value: Word,
    /// The elements of `x=(a b)`.
    pub array: Option<Vec<Word>>,
}

/// A word before its expansion.
#[derive(Debug, Default)]
pub struct Word {
    pub pieces: Vec<Piece>,
    pub range: Range<usize>,
    /// The elements of an array in the words of `declare` and similar builtins.
    pub array: Vec<Word>,
}

/// A part of a word.
#[derive(Debug)]
pub enum Piece {
    /// Unquoted literal text.
    Text(String),
    /// Quoted literal text.
    Quoted(String),
    /// `*`, `?` or `[`, unquoted.
    Glob(char),
    /// `{`, `,` or `}`, unquoted.
    Brace(char),
    /// `~`, `~name` at the start of a word, with the name, which may be empty.
    Tilde(String),
    /// `$name`, `${…}`
    Parameter {
        /// The character before the name: `#` for a length, `!` for indirection.
        before: Option<char>,
        name: String,
        /// The text between the name and the closing brace, including its words.
        operator: String,
        /// The subscript as arithmetic, and the pieces of the operator's word; an offset is
        /// arithmetic too.
        inner: Vec<Piece>,
        /// True if its value is not split into words.
        quoted: bool,
    },
    /// `$(…)`, or backticks.
    Command {
        body: Body,
        /// True if its output is not split into words.
        quoted: bool,
    },
    /// Arithmetic, a subscript or an offset: bash evaluates the resulting text.
    Arithmetic(Vec<Piece>),
    /// `<(…)`, `>(…)`.
    Process(Inline),
}

/// The commands of a substitution.
#[derive(Debug)]
pub enum Body {
    /// `$(…)`: part of the same text.
    Inline(Inline),
    /// Backticks, which are unescaped first and thus a separate text.
    Apart(Box<Script>),
}

/// A list within a word.
#[derive(Debug)]
pub struct Inline {
    pub list: List,
    /// The range from the sign to the closing bracket.
    pub range: Range<usize>,
}

/// A redirection.
#[derive(Debug)]
pub struct Redirect {
    pub operator: Operator,
    pub target: Word,
    /// `{name}>`: the variable that gets the descriptor.
    pub variable: Option<String>,
    /// The index in [`Script::heredocs`], if it is a here-document.
    pub heredoc: Option<usize>,
    /// Empty for the redirection that `|&` adds.
    pub range: Range<usize>,
}

/// The operator of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
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

/// A here-document.
#[derive(Debug)]
pub struct Heredoc {
    pub delimiter: String,
    /// True if the delimiter is quoted: then the body is plain text.
    pub quoted: bool,
    /// True if tabs at the beginning of lines are removed: `<<-`.
    pub strip: bool,
    /// `None` until the line after the command has been parsed.
    pub body: Option<Script>,
}

/// The reason why a text could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it is not bash, or not in the part of bash that is read here")]
    Syntax,
    #[error("a quote or bracket is not closed")]
    Unclosed,
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("it holds too many commands to judge")]
    TooMany,
}
