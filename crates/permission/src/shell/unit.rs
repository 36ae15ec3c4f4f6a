//! The result of an analysis: a [`CommandAnalysis`] with one [`CommandUnit`] for each command or
//! redirection of the line.
//!
//! `analyze` fills the units in, and `evaluate` judges them. A field of type `Option<String>` is a
//! reason, for people; `None` means that the reason does not apply.

use std::path::PathBuf;

use crate::{Action, PathUse, arity};

/// A command line with its units, and the reasons why it is not completely known.
#[derive(Debug, Clone, Default)]
pub struct CommandAnalysis {
    pub text: String,
    /// The commands and redirections, in the order in which they were found.
    pub units: Vec<CommandUnit>,
    /// The reason why the line as a whole could not be analysed; then it is at least asked about.
    pub opaque: Option<String>,
    /// True if some parts were not analysed: the line may use paths or programs that are not in
    /// `units`.
    pub is_incomplete: bool,
    /// Texts that were too long or could not be parsed, to be searched for denied commands.
    pub unparsed_texts: Vec<String>,
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
    /// True if the name means the usual program of that name, not a function or a file of the
    /// project.
    pub is_usual: bool,
    /// True if its standard input is a pipe, a file or a text.
    pub has_input: bool,
    /// The number of programs that run it, one inside the other: 1 for `rm` in `sudo rm x`.
    pub layer: usize,
    /// True if it runs only through an option of another program, perhaps never.
    pub is_conditional: bool,
    /// Its words joined by single spaces, for comparison with rules that allow. Unknown words are
    /// [`UNKNOWN`](crate::wildcard::UNKNOWN).
    pub normalized: String,
    /// The words of `normal` one by one; empty without a program.
    pub argv: Vec<String>,
    /// Further spellings of `normalized`, for rules that deny or ask.
    pub other_spellings: Vec<String>,
    /// The reason why only the catch-all may allow it, but no rule about a specific command.
    pub catch_all_only: Option<String>,
    /// The reason why no rule about a name allows it, only one with its path or its exact words:
    /// its program is a file of the project, or was not found.
    pub untrusted_program: Option<String>,
    /// Options that change the effect of the program. A specific rule has to name them.
    pub dangerous_options: Vec<String>,
    /// The reason why it could not be analysed: not even the catch-all allows it.
    pub opaque: Option<String>,
    /// True if `opaque` is set only because the line sets a variable for this command that changes
    /// the code or settings it loads.
    pub is_opaque_by_variable: bool,
    /// The reason why it may run something that a rule denies. The catch-all allows it only if no
    /// rule denies any command.
    pub may_be_denied: Option<String>,
    /// Program text among its arguments, to be searched for the names of denied programs.
    pub foreign_code: Vec<String>,
    /// Words of which one, unknown which, begins a program. For rules that deny or ask, each counts
    /// together with the words after it.
    pub possible_starts: Vec<String>,
    /// Words of an unknown program, which may start any of them.
    pub unknown_program_words: Vec<String>,
    /// Its effect on the disk.
    pub effect: Effect,
    /// True if it writes only plan files.
    pub writes_only_plans: bool,
    /// True if it removes or overwrites data that cannot be recovered.
    pub destroys: bool,
    pub uses_network: bool,
    /// Its only destination on the network, in the form that "always" stores: `curl https://host`.
    pub destination: Option<String>,
    /// The words before it, of a program that runs others by their name: `npx `, `uv run `. They
    /// end with a space.
    pub runner: Option<String>,
    /// True if its program runs other programs or program text.
    pub runs_other_programs: bool,
    /// The uses of paths, each with the permission that it needs.
    pub path_uses: Vec<PathUse>,
    /// The directories of the project that it lists or changes to.
    pub listed_dirs: Vec<PathBuf>,
    /// Paths it changes that were not located because there are too many, as they were written.
    pub unlocated_paths: Vec<String>,
    /// The minimum verdict under any rules, with its reason.
    pub minimum: Option<(Action, String)>,
    /// The first effect that no sandbox prevents, as a reason to ask. A sandbox answers all other
    /// reasons, which are unknowns.
    pub unconfined_effect: Option<String>,
}

impl CommandUnit {
    /// Returns its only destination on the network, if its program is the system's and no option
    /// changes its effect.
    pub fn only_destination(&self) -> Option<&str> {
        if self.untrusted_program.is_some() || !self.dangerous_options.is_empty() {
            return None;
        }
        self.destination.as_deref()
    }

    /// Returns whether it starts or uses a container, whose writes are done by a service and cannot
    /// be analysed.
    pub fn runs_in_container(&self) -> bool {
        arity::runs_in_container(&self.normalized.split(' ').collect::<Vec<_>>())
    }

    pub(super) fn effect_at_least(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
    }

    pub(super) fn set_may_be_denied(&mut self, reason: &str) {
        self.may_be_denied.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that its effect is unknown.
    pub(super) fn set_opaque(&mut self, reason: &str) {
        self.is_opaque_by_variable = false;
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that a variable is set for it that changes the code or settings it loads.
    pub(super) fn set_opaque_by_variable(&mut self, reason: &str) {
        self.is_opaque_by_variable |= self.opaque.is_none();
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Records that it may have an effect which no sandbox prevents.
    pub(super) fn set_unconfined_effect(&mut self, reason: &str) {
        self.set_opaque(reason);
        self.unconfined_effect
            .get_or_insert_with(|| reason.to_owned());
    }

    /// Records that it uses unknown files, which asks under any rules.
    pub(super) fn ask_about_unknown_files(&mut self, reason: &str) {
        self.raise(Action::Ask, reason);
    }

    pub(super) fn add_dangerous_option(&mut self, option: &str) {
        self.dangerous_options.push(option.to_owned());
    }

    /// Sets a minimum verdict, in any sandbox.
    pub(super) fn set_minimum(&mut self, action: Action, reason: &str) {
        self.raise(action, reason);
        self.unconfined_effect
            .get_or_insert_with(|| reason.to_owned());
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
        self.path_uses.push(PathUse {
            minimum: Some((Action::Ask, reason.to_owned())),
            ..PathUse::new("read", shown)
        });
    }
}
