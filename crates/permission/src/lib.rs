//! What is allowed. Rules are ordered and pure; [`evaluate`](mod@evaluate) judges, and asks nobody. Asking is
//! done in one place only, `turn/permit.rs`.
//!
//! A tool names its [`Need`]s before it acts. A need is judged by the agent's rules, then by the
//! session's, then by what the user has granted — and a grant never beats a deny.
//!
//! A command line is judged by what it runs: `shell` takes it apart into [`shell::Unit`]s, and every
//! unit has to pass. Nothing in this folder starts a program or changes the disk; `shell` and
//! `paths` look at it, to see where a path really leads and which file a program's name means.

pub mod account;
pub mod approve;
pub mod arity;
pub mod check;
mod command_rules;
pub mod credentials;
mod decide;
pub mod evaluate;
mod examples;
pub mod explain;
mod file_use;
mod first_word;
pub mod guarantee;
mod hardlinks;
mod key_index;
pub mod laws;
pub mod laxer;
pub mod lint;
pub mod path_gate;
pub mod paths;
pub mod pattern_index;
mod places;
mod posture;
pub mod protected;
pub mod rule;
mod rule_entry;
mod rule_index;
mod rule_list;
pub mod shell;
pub mod sight;
mod unheld;
mod unread;
pub mod url;
pub mod wildcard;
pub mod wording;

#[cfg(any(test, feature = "testing"))]
#[cfg(unix)]
pub mod testing;

#[cfg(test)]
#[cfg(unix)]
mod accomplices;
#[cfg(test)]
#[cfg(unix)]
mod cases;
#[cfg(test)]
#[cfg(unix)]
mod many_rules;
#[cfg(test)]
#[cfg(unix)]
mod properties;
#[cfg(test)]
#[cfg(unix)]
mod wrappers;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

pub use approve::judge;
pub use evaluate::evaluate;
pub use guarantee::SandboxGuarantee;
pub use laxer::laxer;
pub use rule::{Action, Rule, Rules};
pub use shell::command_need;

use base::approvals::Approvals;
use base::environment::Environment;
use base::worktree::Worktree;
use transcript::Change;

/// What is done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Its names and sizes are looked at.
    List,
    Read,
    /// It is created, changed or removed.
    Edit,
}

/// Something a tool call needs to be allowed to do.
#[derive(Debug, Clone, Default)]
pub struct Need {
    /// The permission's key: `edit`, `bash`, `external_directory`, a tool's name …
    pub permission: String,
    /// What it touches, one entry per path, command or address; each is judged, the strictest
    /// verdict counts. `*` where there is nothing to name.
    pub patterns: Vec<String>,
    /// What "always" would allow from now on, one pattern each, exactly as it is shown. Empty: no
    /// "always" is offered.
    pub always: Vec<String>,
    /// Why nothing could be named there.
    pub once: Option<String>,
    /// The least the verdict may be whatever the rules say, with the reason: a deny under every rule
    /// set, or a question about something that could not be understood.
    pub floor: Option<(Action, String)>,
    /// For a command line where nothing but the rules keeps it from changing things: why everything
    /// in it that is not known to be harmless is asked about, even where a rule allows it.
    pub unproven: Option<String>,
    /// What the sandbox that was found keeps the command from; of a file, what it keeps commands from.
    pub guarantee: SandboxGuarantee,
    /// The system keeps it within the project and from the network, or could, and the user wants no
    /// question then: see [`approve`].
    pub held: bool,
    /// It changes a file of the project, as a command could.
    pub within: bool,
    /// It leaves the project for a short-lived file of the user's own, or a directory of such.
    pub temporary: bool,
    /// It leaves the project only if the shell is in another directory by then than it may be.
    pub perhaps: bool,
    /// Nobody here knows what it does: a tool of a server's.
    pub unknown: bool,
    /// It goes on with what was allowed a moment ago, so that nobody is asked again: only a deny
    /// counts.
    pub agreed: bool,
    /// The change to be shown with the question.
    pub changes: Vec<Arc<Change>>,
    /// What a command line does, where the need is one: then `patterns` is for show, and its units
    /// are judged instead.
    pub command: Option<Arc<shell::JudgedLine>>,
    /// What the system keeps the command from, in words.
    pub sandbox: Option<String>,
    /// The address that led to this one.
    pub origin: Option<String>,
    /// The use of a file that it is about, for people. Needs with the same are asked about together.
    pub file: Option<FileUse>,
    /// Facts for the editor to show, and for people to match their own policies on.
    pub metadata: Map<String, Value>,
}

/// What is to be done with a file, in words: "write `/etc/hosts`, which is outside the project".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse {
    pub verb: &'static str,
    /// Relative to the project, or absolute.
    pub name: String,
    /// What makes it special to this need, as a clause that "which" begins.
    pub which: Option<String>,
}

impl FileUse {
    /// Whether they are about the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.verb, &self.name) == (other.verb, &other.name)
    }
}

impl Need {
    pub fn new(permission: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self { permission: permission.into(), patterns: vec![pattern.into()], ..Self::default() }
    }

    /// Says what "always" would grant.
    #[must_use]
    pub fn always(mut self, pattern: impl Into<String>) -> Self {
        self.always.push(pattern.into());
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub action: Action,
    pub pattern: String,
    /// The rule that decided; none when nothing matched (which asks) or a grant or a floor decided.
    pub rule: Option<Rule>,
    /// Why, for a person, where it was no rule.
    pub reason: Option<String>,
    /// For a command line: everything that was found in it, each with its own judgement.
    pub units: Vec<UnitVerdict>,
    /// For a command line: every part is known to change nothing, so that a sandbox may let it run
    /// without asking. False for everything else.
    pub proven_read_only: bool,
}

impl Verdict {
    fn allowed(what: &str) -> Self {
        let (pattern, rule, reason, units) = (what.to_owned(), None, None, vec![]);
        Self { action: Action::Allow, pattern, rule, reason, units, proven_read_only: false }
    }
}

/// The judgement over one part of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitVerdict {
    /// The part as it was written.
    pub text: String,
    /// The program it starts, as far as it is known; none for assignments and redirections.
    pub program: Option<String>,
    /// Inside how many wrappers it runs (`sudo`, `xargs`, `sh -c` …).
    pub layer: usize,
    pub action: Action,
    /// The rule that decided, if one did.
    pub rule: Option<Rule>,
    pub reason: Option<String>,
    /// It is known to change nothing.
    pub read_only: bool,
}

/// What an agent may do, and where it is judged: the same for its tools, for its commands and for
/// who asks what would become of them.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub rules: Rules,
    pub grants: Rules,
    /// How much of the rest is asked.
    pub approvals: Approvals,
    /// Hosts of this machine and network that may be fetched from.
    pub private: Vec<String>,
    pub place: PermissionContext,
    /// What the sandbox guarantees, for who asks what would become of something.
    pub guarantee: SandboxGuarantee,
    /// It holds without network whatever runs in it.
    pub sandboxed: bool,
    /// Why everything is asked that may be denied in settings that could not be read.
    pub doubt: Option<String>,
}

impl Policy {
    pub fn judge(&self, need: &Need) -> Verdict {
        approve::judge_in_doubt(self.doubt.as_deref(), self.approvals, &self.rules, &self.grants, need)
    }

    /// A need as the sandbox would hold it, where there is one.
    #[must_use]
    pub fn as_held(&self, need: Need) -> Need {
        let need = Need { guarantee: self.guarantee, ..need };
        if self.sandboxed { approve::held(need) } else { need }
    }
}

/// Where a command or a path is judged. Absolute paths throughout.
#[derive(Debug, Clone, Default)]
pub struct PermissionContext {
    /// Where the command starts; relative paths start here.
    pub cwd: PathBuf,
    /// The project; rules about paths are relative to it. Symlinks resolved.
    pub root: PathBuf,
    /// Further directories that belong to the session. Symlinks resolved.
    pub extra: Vec<PathBuf>,
    pub home: Option<PathBuf>,
    /// The directories of `PATH`.
    pub path: Vec<PathBuf>,
    /// Entries of the user's `PATH` that commands do not get, because they are relative.
    pub path_left_out: Arc<[PathBuf]>,
    /// The session's own directory for short-lived files, which needs no permission.
    pub scratch: Option<PathBuf>,
    /// The system's directories for short-lived files. Symlinks resolved.
    pub temporary: Arc<[PathBuf]>,
    /// Our data directory: keys and sessions are in it.
    pub data: PathBuf,
    /// Our own program, where it is known.
    pub program: Option<PathBuf>,
    /// The user trusts this project: what its git configuration starts is known to them.
    pub trusted: bool,
}

impl PermissionContext {
    pub fn new(environment: &Environment, worktree: &Worktree, cwd: &Path) -> Self {
        // What is compared with where paths really lead is resolved as well.
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        Self {
            cwd: cwd.into(),
            root: worktree.root.clone(),
            extra: worktree.extra.clone(),
            home: environment.home.as_deref().map(real),
            path: environment.path(),
            path_left_out: environment.path_left_out.clone(),
            scratch: None,
            temporary: sandbox::existing(sandbox::temporary(environment)).into(),
            data: real(&environment.dirs.data),
            program: environment.program.clone(),
            trusted: false,
        }
    }

    /// Whether a program there is not the system's: it is the project's or the session's, or anybody
    /// may have put it there.
    pub fn is_open(&self, path: &Path) -> bool {
        self.is_open_among(path, &mut HashMap::new())
    }

    /// The same, of several paths: what is known of a directory is not asked for again.
    fn is_open_among(&self, path: &Path, known: &mut HashMap<PathBuf, bool>) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let own = std::iter::once(&self.root).chain(&self.extra).chain(&self.scratch).chain([&self.cwd]);
        let anybody = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o002 != 0);
        let mut anybody = |path: &Path| match known.get(path) {
            Some(open) => *open,
            None => *known.entry(path.to_owned()).or_insert(anybody(path)),
        };
        let mut own = own.into_iter();
        own.any(|dir| dir.parent().is_some() && path.starts_with(dir)) || path.ancestors().any(&mut anybody)
    }

    /// The directories of `PATH`, and whether each is the project's, the session's or anybody's.
    pub fn path_dirs(&self) -> impl Iterator<Item = (&PathBuf, bool)> {
        let mut known = HashMap::new();
        self.path.iter().map(move |dir| {
            let real = std::fs::canonicalize(dir).ok().filter(|real| real != dir);
            let mut open = |dir: &Path| self.is_open_among(dir, &mut known);
            (dir, open(dir) || real.is_some_and(|real| open(&real)))
        })
    }

    /// The directories of `PATH` that are the system's.
    pub fn system_path(&self) -> impl Iterator<Item = &PathBuf> {
        self.path_dirs().filter(|(_, open)| !open).map(|(dir, _)| dir)
    }
}

/// Why a call was not made, addressed to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// A rule forbids it; the turn goes on.
    #[error("{0}")]
    Rule(String),
    /// It is asked about, and nobody can be asked; the turn goes on.
    #[error("{0}")]
    Unanswered(String),
    /// The user said no; the turn ends.
    #[error("The user rejected this tool call. It was not run, and nothing has changed.")]
    Rejected,
    /// The user said no and said why; the turn goes on.
    #[error("The user rejected this tool call and said: {0}")]
    Corrected(String),
}
