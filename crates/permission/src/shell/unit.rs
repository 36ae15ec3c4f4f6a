//! What comes out of a command line: everything in it that acts.

use crate::{Action, Need, arity};

#[derive(Debug, Clone, Default)]
pub struct JudgedLine {
    pub text: String,
    /// Everything in it that acts, in the order it was found.
    pub units: Vec<Unit>,
    /// Why the line as a whole could not be understood; then it is asked about at least.
    pub opaque: Option<String>,
    /// Parts of it were not looked at, so that what it names is not known.
    pub unseen: bool,
    /// Texts in it that were too long to be taken apart or could not be read, to be searched for what is denied.
    pub unread: Vec<String>,
}

/// What a unit does to the disk, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Effect {
    /// It is known to change nothing.
    Reads,
    #[default]
    Unproven,
    /// It is known to change something.
    Writes,
}

/// One thing a command line does.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    pub text: String,
    /// The program as it is named; none for assignments, redirections, conditions.
    pub program: Option<String>,
    /// Inside how many other programs it runs.
    pub layer: usize,
    /// It runs only through an option of another program, perhaps never.
    pub carried: bool,
    /// Its words joined by one blank each; words that are not known are
    /// [`UNKNOWN`](crate::wildcard::UNKNOWN). What rules that allow are compared with.
    pub normal: String,
    /// Further spellings of it, for rules that deny or ask.
    pub names: Vec<String>,
    /// Why no rule about a specific command may allow it; only the catch-all may.
    pub broad_only: Option<String>,
    /// Its program is a file of the project, or not found: no rule about a name allows it, only one
    /// that gives its path, or the exact words. Why.
    pub foreign: Option<String>,
    /// Options that change what the program does: a specific rule has to name them.
    pub dangers: Vec<String>,
    /// Why it could not be understood: not even the catch-all allows it.
    pub opaque: Option<String>,
    /// It could be understood but for a variable that is set for it and starts nothing by itself.
    pub prefixed: bool,
    /// Why it may run something that a rule denies: the catch-all allows it only where nothing is
    /// denied.
    pub doubt: Option<String>,
    /// Program text it was given, to be searched for the names of denied programs.
    pub texts: Vec<String>,
    /// Words one of which begins a program, nobody knows which: each, with those after it, counts for
    /// rules that deny or ask.
    pub tails: Vec<String>,
    /// Words of a program that is not known well enough to say which of them it starts, if any.
    pub words: Vec<String>,
    /// What it does to the disk.
    pub effect: Effect,
    /// All that it writes are plan files.
    pub plans_only: bool,
    /// It removes or overwrites without return.
    pub destroys: bool,
    pub network: bool,
    /// Where it goes on the network and nowhere else, in the words that "always" stores: `curl https://host`.
    pub reach: Option<String>,
    /// The words before it of the program that runs it by its name: `npx `, `uv run `.
    pub runner: Option<String>,
    /// Its program runs other programs or program text.
    pub carrier: bool,
    /// The paths it uses, as needs of their own.
    pub touches: Vec<Need>,
    /// Paths it changes that were not looked up, because there are too many: as they were written.
    pub unseen: Vec<String>,
    /// The least verdict under any rules.
    pub floor: Option<(Action, String)>,
    /// Of the reasons above that ask, the first that no sandbox answers: there is something at stake that it does not
    /// hold. The others say that something is not known.
    pub at_stake: Option<String>,
}

impl Unit {
    /// Where it goes on the network and nowhere else, if its program is the system's and no option changes what it does.
    pub fn place_reached(&self) -> Option<&str> {
        self.reach.as_deref().filter(|_| self.foreign.is_none() && self.dangers.is_empty())
    }

    /// Whether it starts or uses a container, so that a service writes what nobody here sees.
    pub fn runs_in_container(&self) -> bool {
        arity::runs_in_container(&self.normal.split(' ').collect::<Vec<_>>())
    }

    pub(super) fn effect_at_least(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
    }

    pub(super) fn doubt(&mut self, reason: &str) {
        self.doubt.get_or_insert_with(|| reason.to_owned());
    }

    /// Notes that what it does cannot be told.
    pub(super) fn opaque(&mut self, reason: &str) {
        self.prefixed = false;
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Notes that a variable is set for it which changes what it loads or reads.
    pub(super) fn prefixed(&mut self, reason: &str) {
        self.prefixed |= self.opaque.is_none();
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Notes that it may do something that no sandbox holds.
    pub(super) fn at_stake(&mut self, reason: &str) {
        self.opaque(reason);
        self.at_stake.get_or_insert_with(|| reason.to_owned());
    }

    /// Asks about it under any rules, because which files it uses cannot be told.
    pub(super) fn unknown(&mut self, reason: &str) {
        self.raise(Action::Ask, reason);
    }

    pub(super) fn danger(&mut self, option: &str) {
        self.dangers.push(option.to_owned());
    }

    /// Asks about it or denies it under any rules, and in any sandbox.
    pub(super) fn floor(&mut self, action: Action, reason: &str) {
        self.raise(action, reason);
        self.at_stake.get_or_insert_with(|| reason.to_owned());
    }

    fn raise(&mut self, action: Action, reason: &str) {
        if self.floor.as_ref().is_none_or(|(least, _)| *least < action) {
            self.floor = Some((action, reason.to_owned()));
        }
    }
    /// Notes that it reads a secret that has no path of its own.
    pub(super) fn secret(&mut self, shown: &str, reason: &str) {
        let mut need = Need::new("read", shown);
        need.floor = Some((Action::Ask, reason.to_owned()));
        self.touches.push(need);
    }
}
