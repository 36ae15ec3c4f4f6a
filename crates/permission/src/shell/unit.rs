//! The result of an analysis: the commands of a line with their effects.

use std::path::PathBuf;

use crate::{Action, PathUse, arity};

#[derive(Debug, Clone, Default)]
pub struct CommandAnalysis {
    pub text: String,
    /// The commands and redirections, in the order in which they were found.
    pub units: Vec<CommandUnit>,
    /// The reason why the line as a whole could not be analysed; then it is at least asked about.
    pub opaque: Option<String>,
    /// Some parts were not analysed, so the line may use paths or programs that are not in `units`.
    pub unseen: bool,
    /// Texts that were too long or could not be parsed, to be searched for denied commands.
    pub unread: Vec<String>,
}

/// The known effect of a unit on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Effect {
    /// Known to change nothing.
    Reads,
    #[default]
    Unproven,
    /// Known to change something.
    Writes,
}

/// One command or redirection of a line.
#[derive(Debug, Clone, Default)]
pub struct CommandUnit {
    pub text: String,
    /// The program as written; `None` for assignments, redirections and conditions.
    pub program: Option<String>,
    /// Whether the name means the program that is usually called so: no function, and no file of
    /// the project.
    pub is_usual: bool,
    /// Whether its standard input is a pipe, a file or a text.
    pub has_input: bool,
    /// The number of programs around it.
    pub layer: usize,
    /// Runs only through an option of another program, perhaps never.
    pub carried: bool,
    /// Its words joined by single spaces, for comparison with rules that allow. Unknown words are
    /// [`UNKNOWN`](crate::wildcard::UNKNOWN).
    pub normal: String,
    /// The words of `normal` one by one; empty without a program.
    pub argv: Vec<String>,
    /// Further spellings, for rules that deny or ask.
    pub names: Vec<String>,
    /// The reason why only the catch-all may allow it, but no rule about a specific command.
    pub catch_all_only: Option<String>,
    /// The reason why no rule about a name allows it, only one with its path or its exact words:
    /// its program is a file of the project, or was not found.
    pub foreign: Option<String>,
    /// Options that change the effect of the program. A specific rule has to name them.
    pub dangers: Vec<String>,
    /// The reason why it could not be analysed: not even the catch-all allows it.
    pub opaque: Option<String>,
    /// `opaque` is set only because of a variable that is set for it and by itself starts nothing.
    pub prefixed: bool,
    /// The reason why it may run something that a rule denies. The catch-all allows it only if no
    /// rule denies any command.
    pub may_be_denied: Option<String>,
    /// Program text among its arguments, to be searched for the names of denied programs.
    pub texts: Vec<String>,
    /// Words of which one, unknown which, begins a program. For rules that deny or ask, each counts
    /// together with the words after it.
    pub tails: Vec<String>,
    /// Words of an unknown program, which may start any of them.
    pub words: Vec<String>,
    /// Its effect on the disk.
    pub effect: Effect,
    /// Writes only plan files.
    pub plans_only: bool,
    /// Removes or overwrites data that cannot be recovered.
    pub destroys: bool,
    pub network: bool,
    /// Its only destination on the network, in the form that "always" stores: `curl https://host`.
    pub destination: Option<String>,
    /// The preceding words of the program that runs it by its name: `npx `, `uv run `.
    pub runner: Option<String>,
    /// Its program runs other programs or program text.
    pub carrier: bool,
    /// The paths it uses.
    pub touches: Vec<PathUse>,
    /// The directories of the project that it lists or changes to.
    pub listed: Vec<PathBuf>,
    /// Paths it changes that were not located because there are too many, as they were written.
    pub unseen: Vec<String>,
    /// The minimum verdict under any rules, with its reason.
    pub minimum: Option<(Action, String)>,
    /// The first reason to ask that no sandbox answers, because the effect is not prevented. The
    /// other reasons are unknowns.
    pub at_stake: Option<String>,
}

impl CommandUnit {
    /// Returns its only destination on the network, if its program is the system's and no option
    /// changes its effect.
    pub fn only_destination(&self) -> Option<&str> {
        if self.foreign.is_some() || !self.dangers.is_empty() {
            return None;
        }
        self.destination.as_deref()
    }

    /// Returns whether it starts or uses a container, whose writes are done by a service and cannot
    /// be analysed.
    pub fn runs_in_container(&self) -> bool {
        arity::runs_in_container(&self.normal.split(' ').collect::<Vec<_>>())
    }

    pub(super) fn effect_at_least(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
    }

    pub(super) fn set_may_be_denied(&mut self, reason: &str) {
        self.may_be_denied.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that its effect is unknown.
    pub(super) fn set_opaque(&mut self, reason: &str) {
        self.prefixed = false;
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that a variable is set for it that changes the code or settings it loads.
    pub(super) fn set_prefixed(&mut self, reason: &str) {
        self.prefixed |= self.opaque.is_none();
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that it may have an effect that no sandbox prevents.
    pub(super) fn set_at_stake(&mut self, reason: &str) {
        self.set_opaque(reason);
        self.at_stake.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that it uses unknown files, which asks under any rules.
    pub(super) fn ask_about_unknown_files(&mut self, reason: &str) {
        self.raise(Action::Ask, reason);
    }

    pub(super) fn add_danger(&mut self, option: &str) {
        self.dangers.push(option.to_owned());
    }

    /// Sets a minimum verdict, in any sandbox.
    pub(super) fn set_minimum(&mut self, action: Action, reason: &str) {
        self.raise(action, reason);
        self.at_stake.get_or_insert_with(|| reason.to_owned());
    }

    fn raise(&mut self, action: Action, reason: &str) {
        if self
            .minimum
            .as_ref()
            .is_none_or(|(minimum, _)| *minimum < action)
        {
            self.minimum = Some((action, reason.to_owned()));
        }
    }

    /// Records that it reads a secret that has no path.
    pub(super) fn add_secret(&mut self, shown: &str, reason: &str) {
        self.touches.push(PathUse {
            minimum: Some((Action::Ask, reason.to_owned())),
            ..PathUse::new("read", shown)
        });
    }
}
