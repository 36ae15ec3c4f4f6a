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
    /// One of these words may begin a program.
    MayStartProgram(Vec<Arg>),
    /// Program text in another language, to be searched for denied commands.
    ForeignCode(String),
    /// Unsets a variable.
    Unset(Arg),
    /// Starts an alias of git or a program named `git-…`.
    GitSubcommand(Vec<Arg>),
    /// The option, which a specific rule has to name.
    DangerousOption(String),
    /// The reason why the command cannot be analysed.
    Opaque(String),
    /// Sets a variable that changes the code or settings that programs load, but starts nothing by
    /// itself.
    CodeVariable(String),
    /// Has an unknown effect that no sandbox prevents.
    NotPreventedBySandbox(String),
    /// A specific deny rule may apply to it.
    MayBeDenied(String),
    /// No rule about a specific command may allow it.
    CatchAllOnly(String),
    /// Its verdict is at least this action, whatever the rules say.
    Minimum(Action, String),
    /// Uses unknown files, which is asked about under any rules.
    Unknown(String),
    /// Uses a file with secrets: the file as shown, and the reason.
    Secret(String, String),
    /// Runs other programs.
    RunsOtherPrograms,
    /// Uses the network.
    Network,
    /// Destroys work that cannot be recovered.
    Destroys,
}

/// A use of paths, or of an address.
#[derive(Debug)]
pub(crate) enum PathEffect {
    Use(Access, Arg),
    /// Removes or moves a file or link itself; the second value is the target of a move.
    Entry(Arg, Option<Arg>),
    /// Copies or links sources to a target; `keeps_links` is true if links stay links.
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
    /// Removes or changes files recursively; if `asks_if_unknown` is set, adjutant asks about paths
    /// that are not known.
    ChangeTree {
        paths: Vec<Arg>,
        asks_if_unknown: bool,
    },
    /// Reads a directory recursively.
    ReadTree(Arg, NameSelection),
    /// Creates files here with unknown names.
    Unpacks,
    /// May create a link at this path.
    Link(Arg),
    /// Changes files that were selected by name.
    ChangesSelected(SelectedFiles),
    /// Any of these words may be a path outside the project; `None` means all its words.
    MayLeaveProject(Option<Vec<Arg>>),
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
    /// Assigns a value to a variable of this shell.
    Assign(String, Value),
    /// Gives a variable the integer attribute.
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
    /// Runs a program; if `is_conditional` is set, perhaps not.
    Run {
        words: Vec<Arg>,
        is_conditional: bool,
    },
    /// Runs a program on files that were selected by name.
    RunOn(Vec<Arg>, SelectedFiles),
    /// Runs a text as shell input; if `is_conditional` is set, perhaps not.
    Text { text: Arg, is_conditional: bool },
    /// Runs a text in this shell, now.
    TextInThisShell(Arg),
    /// Runs a text in this shell, later.
    DeferredText(Arg),
    /// Joins words and passes them to a shell.
    Shell(Vec<Arg>),
    /// Joins words and evaluates them in this shell.
    Eval(Vec<Arg>),
    /// A shell among these words runs on another system.
    RemoteShell(Vec<Arg>),
    /// Words of an unknown program; `None` means all its words.
    UnknownProgram(Option<Vec<Arg>>),
    /// Works in a repository, whose settings may make this git command start programs.
    Repository { command: String, args: Vec<Arg> },
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

/// Files in some directories, at any depth, whose names match one of the patterns. No pattern
/// matches a file that holds secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedFiles {
    pub(crate) directories: Vec<Arg>,
    pub(crate) patterns: Vec<Arg>,
}

/// The context of a command.
#[derive(Debug)]
pub(crate) struct CommandContext<'s> {
    /// The state of the shell after the preceding commands.
    pub(crate) state: &'s ShellState,
    pub(crate) input: StdinSource,
    /// The names that come through the pipe were selected by a pattern that matches no secret.
    pub(crate) has_selected_names: bool,
}
