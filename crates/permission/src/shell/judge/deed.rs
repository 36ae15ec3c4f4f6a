//! What a program may do, and what it sees when it does it.

use crate::shell::expand::{Arg, ShellState, StdinSource, Value};
use crate::shell::unit::Effect;
use crate::{Access, Action};

/// One thing a program does or may do.
#[derive(Debug)]
pub(crate) enum Deed {
    /// What it does to the disk, at least.
    Effect(Effect),
    Use(Access, Arg),
    /// A file or link that is removed or moved itself; where it is moved to.
    Entry(Arg, Option<Arg>),
    /// Sources, the target, and whether links stay links.
    Copy {
        from: Vec<Arg>,
        to: Arg,
        link: bool,
        keeps: bool,
    },
    /// Directories are copied with all that lies below them.
    CopyTree {
        from: Vec<Arg>,
        to: Arg,
    },
    /// What these patches name is changed.
    Patches(Vec<Arg>),
    /// What is removed or changed with all that lies below it; whether unknown words are asked about.
    Lost(Vec<Arg>, bool),
    /// A directory is read to its bottom.
    Below(Arg, Picks),
    /// It makes files here whose names nobody sees.
    Unpacks,
    /// It may make a link, here or there.
    Link(Arg),
    /// It goes to a directory; what follows happens there.
    Enter(Arg),
    /// It goes to the home directory, or one nobody knows.
    Home,
    Astray,
    /// `..` is above what a link leads to from now on.
    Physical,
    /// A variable of this shell gets a value, or the integer attribute.
    Assign(String, Value),
    Integer(String),
    /// It computes with a text.
    Computes(String),
    /// Why later commands may not mean what they say.
    Changed(String),
    /// It runs a program; whether perhaps only.
    Run(Vec<Arg>, bool),
    /// It runs a program on files that were picked by their names.
    RunOn(Vec<Arg>, PickedFiles),
    /// It changes files that were picked by their names.
    ChangesPicked(PickedFiles),
    /// It runs a text as shell input; whether perhaps only.
    Text(Arg, bool),
    /// It runs a text in this shell, now or later.
    Here(Arg),
    Later(Arg),
    /// It joins words and hands them to a shell, or to this one.
    Shell(Vec<Arg>),
    Eval(Vec<Arg>),
    /// One of these words begins a program.
    Tails(Vec<Arg>),
    /// A shell among these words runs somewhere else.
    Away(Vec<Arg>),
    /// Text in another language: searched for what is denied.
    Told(String),
    /// Words of a program nobody knows; none: all its words.
    Stranger(Option<Vec<Arg>>),
    /// Words any of which may lead out of the project; none: all its words.
    Leaving(Option<Vec<Arg>>),
    /// A variable that is set for what runs.
    Variable(String),
    /// A variable that is taken away.
    Unset(Arg),
    /// What the repository's settings make this command of git start.
    Repository {
        command: String,
        args: Vec<Arg>,
    },
    /// The paths among git's words.
    GitPaths(Vec<Arg>),
    /// It starts an alias of git or a program called `git-…`.
    Words(Vec<Arg>),
    Danger(String),
    Opaque(String),
    /// A variable is set that changes what programs load or read, and starts nothing by itself.
    Prefixed(String),
    /// What it does cannot be told, and no sandbox holds what it may do.
    AtStake(String),
    Doubt(String),
    /// No rule about a specific command may allow it.
    Broad(String),
    Floor(Action, String),
    /// Which files it uses is not known, which is asked about under any rules.
    Unknown(String),
    Secret(String, String),
    Carrier,
    Network,
    /// The one place on the network that it goes to: `curl https://host`, `git push origin`.
    Reaches(String),
    Destroys,
}

/// Of the names below a directory, those that are looked at and those that are not.
#[derive(Debug, Default)]
pub(crate) struct Picks {
    pub(crate) only: Vec<Arg>,
    pub(crate) not: Vec<Arg>,
}

/// Files below some directories, whose names fit one of the patterns, none of which fits a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PickedFiles {
    pub(crate) below: Vec<Arg>,
    pub(crate) names: Vec<Arg>,
}

/// What a program sees of its place.
#[derive(Debug)]
pub(crate) struct CommandContext<'s> {
    /// What came before in this shell.
    pub(crate) state: &'s ShellState,
    pub(crate) input: StdinSource,
    /// The names that come through the pipe were picked by a pattern that fits no secret.
    pub(crate) picked: bool,
}
