//! Effects of programs, and the context in which they are determined.

use crate::shell::expand::{Arg, ShellState, StdinSource, Value};
use crate::shell::unit::Effect;
use crate::{Access, Action};

/// One effect, or possible effect, of a program.
#[derive(Debug)]
pub(crate) enum ProgramEffect {
    CommandUnit(UnitEffect),
    Path(PathEffect),
    Shell(ShellEffect),
    Run(RunEffect),
}

/// An effect that concerns only the unit.
#[derive(Debug)]
pub(crate) enum UnitEffect {
    /// The effect on the disk, at least.
    Effect(Effect),
    /// One of these words begins a program.
    Tails(Vec<Arg>),
    /// Program text in another language, to be searched for denied commands.
    ForeignCode(String),
    /// Unsets a variable.
    Unset(Arg),
    /// Starts an alias of git or a program named `git-…`.
    Words(Vec<Arg>),
    Danger(String),
    Opaque(String),
    /// Sets a variable that changes the code or settings that programs load, but starts nothing by
    /// itself.
    Prefixed(String),
    /// Has an unknown effect that no sandbox prevents.
    AtStake(String),
    /// A specific deny rule may apply to it.
    MayBeDenied(String),
    /// No rule about a specific command may allow it.
    Broad(String),
    /// Its verdict is at least this action, whatever the rules say.
    Minimum(Action, String),
    /// Uses unknown files, which is asked about under any rules.
    Unknown(String),
    Secret(String, String),
    Carrier,
    Network,
    Destroys,
}

/// A use of paths, or of an address.
#[derive(Debug)]
pub(crate) enum PathEffect {
    Use(Access, Arg),
    /// Removes or moves a file or link itself; the second value is the target of a move.
    Entry(Arg, Option<Arg>),
    /// Copies or links sources to a target; `keeps_links` means that links stay links.
    Copy {
        from: Vec<Arg>,
        to: Arg,
        link: bool,
        keeps_links: bool,
    },
    /// Copies directories recursively.
    CopyTree {
        from: Vec<Arg>,
        to: Arg,
    },
    /// Changes the files that these patches name.
    Patches(Vec<Arg>),
    /// Removes or changes files recursively; the flag asks about unknown words.
    Lost(Vec<Arg>, bool),
    /// Reads a directory recursively.
    Below(Arg, NameSelection),
    /// Creates files here with unknown names.
    Unpacks,
    /// May create a link at this path.
    Link(Arg),
    /// Changes files that were selected by name.
    ChangesPicked(PickedFiles),
    /// Words of which any may lead out of the project; `None` means all its words.
    Leaving(Option<Vec<Arg>>),
    /// The paths among git's words.
    GitPaths(Vec<Arg>),
    /// Its only destination on the network: `curl https://host`, `git push origin`.
    Reaches(String),
}

/// A change of the state of the shell, or of the directory and variables of the programs that it
/// runs.
#[derive(Debug)]
pub(crate) enum ShellEffect {
    /// Changes to a directory for the following effects.
    Enter(Arg),
    /// Changes to the home directory.
    Home,
    /// Changes to an unknown directory.
    UnknownDirectory,
    /// Makes `..` the parent of a link's target from this point on.
    Physical,
    /// Assigns a value to a variable of this shell, or the integer attribute.
    Assign(String, Value),
    Integer(String),
    /// Evaluates a text as arithmetic.
    Computes(String),
    /// The reason why later commands may not mean what is written.
    Changed(String),
    /// Sets a variable for the program it runs.
    Variable(String),
}

/// A program or text that is run.
#[derive(Debug)]
pub(crate) enum RunEffect {
    /// Runs a program; with the flag, it may also not run.
    Run(Vec<Arg>, bool),
    /// Runs a program on files that were selected by name.
    RunOn(Vec<Arg>, PickedFiles),
    /// Runs a text as shell input; with the flag, it may also not run.
    Text(Arg, bool),
    /// Runs a text in this shell, now or later.
    Here(Arg),
    Later(Arg),
    /// Joins words and passes them to a shell, or evaluates them in this one.
    Shell(Vec<Arg>),
    Eval(Vec<Arg>),
    /// A shell among these words runs on another system.
    RemoteShell(Vec<Arg>),
    /// Words of an unknown program; `None` means all its words.
    UnknownProgram(Option<Vec<Arg>>),
    /// Works in a repository, whose settings may make this git command start programs.
    Repository {
        command: String,
        args: Vec<Arg>,
    },
}

impl From<UnitEffect> for ProgramEffect {
    fn from(effect: UnitEffect) -> Self {
        Self::CommandUnit(effect)
    }
}

impl From<PathEffect> for ProgramEffect {
    fn from(effect: PathEffect) -> Self {
        Self::Path(effect)
    }
}

impl From<ShellEffect> for ProgramEffect {
    fn from(effect: ShellEffect) -> Self {
        Self::Shell(effect)
    }
}

impl From<RunEffect> for ProgramEffect {
    fn from(effect: RunEffect) -> Self {
        Self::Run(effect)
    }
}

/// A selection of the names below a directory that are read.
#[derive(Debug, Default)]
pub(crate) struct NameSelection {
    pub(crate) only: Vec<Arg>,
    pub(crate) not: Vec<Arg>,
}

/// Files below some directories whose names match one of the patterns. No pattern matches a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PickedFiles {
    pub(crate) below: Vec<Arg>,
    pub(crate) names: Vec<Arg>,
}

/// The context of a command.
#[derive(Debug)]
pub(crate) struct CommandContext<'s> {
    /// The state of the shell after the preceding commands.
    pub(crate) state: &'s ShellState,
    pub(crate) input: StdinSource,
    /// The names that come through the pipe were selected by a pattern that matches no secret.
    pub(crate) picked: bool,
}
