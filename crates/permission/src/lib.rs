//! Permissions: ordered rules, and verdicts on the access requests of tool calls.
//!
//! Judging is pure; [`evaluate`](mod@evaluate) never asks the user. Only
//! `crates/session/src/turn/authorize.rs` asks.
//!
//! A tool states its [`AccessRequest`]s before it acts. A request is judged by the agent's rules,
//! then by the session's, then by the user's grants; a grant never overrides a deny.
//!
//! A command line is judged by the programs it runs: `shell` parses it into
//! [`shell::CommandUnit`]s, and each of them has to pass. Nothing in this crate starts a program or
//! changes the disk; `shell` and `locate` only read the disk, to resolve paths and program names.

pub mod account;
pub mod approve;
pub mod arity;
pub mod check;
mod command_request;
mod command_rules;
pub mod credentials;
mod decide;
mod delegate;
pub mod evaluate;
mod examples;
mod excluded;
pub mod explain;
mod file_use;
mod first_word;
pub mod guarantee;
mod hardlinks;
mod inner_index;
pub mod invariants;
mod key_index;
pub mod keys;
pub mod lint;
pub mod locate;
pub mod more_permissive;
pub mod path_gate;
mod path_request;
mod path_use;
pub mod pattern_index;
pub mod plan;
mod posture;
pub mod protected;
pub mod remedy;
pub mod rule;
mod rule_entry;
mod rule_index;
mod rule_list;
pub mod search_filter;
pub mod shell;
mod special_paths;
mod unconfined;
mod unparsed;
pub mod url;
pub mod url_verdict;
pub mod wildcard;
pub mod wording;
mod written_line;

#[cfg(any(test, feature = "testing"))]
#[cfg(unix)]
pub mod testing;

#[cfg(test)]
#[cfg(unix)]
mod case_tables;
#[cfg(test)]
#[cfg(unix)]
mod git_config_attacks;
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

pub use command_request::command_request;
pub use delegate::delegate_in;
pub use evaluate::evaluate;
pub use guarantee::SandboxGuarantee;
pub use more_permissive::find_more_permissive;
pub use path_use::{OutsidePath, PathUse};
pub use rule::{Action, Rule, Rules};

use base::approvals::Approvals;
use base::environment::Environment;
use base::worktree::Worktree;
use transcript::Change;

/// A kind of use of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Lists names and sizes.
    List,
    Read,
    /// Creates, changes or removes the file.
    Edit,
}

/// An access request: one permission that a tool call needs.
#[derive(Debug, Clone, Default)]
pub struct AccessRequest {
    /// The key of the permission: `edit`, `bash`, `external_directory`, the name of a tool …
    pub permission: String,
    /// The objects of the request, one entry per path, command or address; `*` if there is nothing
    /// to name. Each is judged, and the strictest verdict counts.
    pub patterns: Vec<String>,
    /// For a path outside of the project: its absolute path, with which absolute patterns are
    /// compared.
    pub absolute_path: Option<String>,
    /// True if a path outside of the project is only read or listed, so that a grant of reading is
    /// enough.
    pub only_reads: bool,
    /// The patterns that "always" would allow from now on, exactly as shown to the user. If empty,
    /// "always" is not offered.
    pub always: Vec<String>,
    /// The reason why "always" is not offered.
    pub why_not_always: Option<String>,
    /// True if "always" grants reading in the directories outside of the project, as for a file,
    /// instead of the command. Only for a command line that only reads.
    pub grants_reading: bool,
    /// The minimum verdict, which no rule can weaken, with its reason: a deny under every rule set,
    /// or a question about something that could not be analysed.
    pub minimum: Option<(Action, String)>,
    /// The reason why a hook requires a question: no rule, grant or sandbox answers it.
    pub hook_question: Option<String>,
    /// The reason why every part of a command line that is not known to be harmless is asked about,
    /// even if a rule allows it. Set if an agent only reads and no sandbox enforces that.
    pub why_only_harmless: Option<String>,
    /// The guarantee of the sandbox that was found for this command; for a file, the guarantee of
    /// the sandbox of commands.
    pub guarantee: SandboxGuarantee,
    /// True if a sandbox confines the call to the project, without network, and the user wants no
    /// question in that case: see [`approve`].
    pub is_isolated: bool,
    pub effect: RequestEffect,
    /// True if it leaves the project for a temporary file of the user's own, or a directory of such
    /// files.
    pub is_temporary: bool,
    /// True if it leaves the project only in case the shell has changed to an unexpected directory.
    pub is_conditional: bool,
    /// The changes to show with the question.
    pub changes: Vec<Arc<Change>>,
    /// The analysis of the command line, if the request is about one: its units are judged, and
    /// `patterns` is for display only.
    pub command: Option<Arc<shell::CommandAnalysis>>,
    /// The verdict of the command's plan, reused if the policy is still the same.
    pub planned_verdict: Option<Arc<plan::PlannedVerdict>>,
    /// A description of the restrictions that the operating system puts on the command.
    pub sandbox: Option<String>,
    /// The effects that these restrictions permit, in a few words.
    pub sandbox_effect: Option<String>,
    /// The address that redirected to the requested one.
    pub redirected_from: Option<String>,
    /// The use of a file that this request is about, for people. Requests with the same use are
    /// asked about together.
    pub file: Option<FileUse>,
    /// Facts for the editor to show, and for people to match their own policies on.
    pub metadata: Map<String, Value>,
}

/// The effect of a request, as far as approvals depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestEffect {
    /// The effect follows from the permission and the analysis.
    #[default]
    Stated,
    /// Changes a file of the project, as a command could.
    ChangesProject,
    /// Unknown: it is a tool of an MCP server.
    Unknown,
}

/// A use of a file as text: "write `/etc/hosts`, which is outside the project".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUse {
    /// The use, as an infinitive without "to": "write", "look into".
    pub verb: &'static str,
    /// Relative to the project, or absolute.
    pub name: String,
    /// The peculiarity of the file for this request, as a clause that "which" begins.
    pub which: Option<String>,
}

impl FileUse {
    /// Returns whether both are about the same use of the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.verb, &self.name) == (other.verb, &other.name)
    }
}

impl AccessRequest {
    pub fn new(permission: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self {
            permission: permission.into(),
            patterns: vec![pattern.into()],
            ..Self::default()
        }
    }

    /// Returns the permission of the grants that "always" would store.
    pub fn granted_permission(&self) -> &str {
        if self.grants_reading || self.only_reads && self.permission == rule::OUTSIDE {
            rule::READING_OUTSIDE
        } else {
            &self.permission
        }
    }

    /// Adds a pattern that "always" would grant.
    #[must_use]
    pub fn always(mut self, pattern: impl Into<String>) -> Self {
        self.always.push(pattern.into());
        self
    }
}

/// The verdict on an access request, with the reasons for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub action: Action,
    /// The pattern of the request that decided, the strictest one if there are several.
    pub pattern: String,
    /// The rule that decided; `None` if no rule matched (which asks), or if a grant or a minimum
    /// verdict decided.
    pub rule: Option<Rule>,
    /// The reason, for people, if no rule decided.
    pub reason: Option<String>,
    /// True if it is denied because the agent only reads, and not by a rule.
    pub is_by_posture: bool,
    /// For a question: the reasons to ask in addition to the rule or reason that decided.
    pub further_reasons: Vec<AskReason>,
    /// For a command line: every command found in it, with its own verdict.
    pub units: Vec<UnitVerdict>,
    /// True if every part of a command line is known to be read-only, so that a sandbox may run it
    /// without a question. False for all other requests.
    pub is_proven_read_only: bool,
}

impl Verdict {
    /// Returns the verdict after a hook, or an effect that no sandbox prevents, has required a
    /// question for this reason. A deny remains.
    #[must_use]
    pub fn with_reason_to_ask(self, why: &str) -> Self {
        if self.action == Action::Deny {
            return self;
        }
        let mut also = self.further_reasons;
        if self.action == Action::Ask {
            let decided = AskReason {
                rule: self.rule,
                reason: self.reason,
            };
            also.insert(0, decided);
        }
        Self {
            action: Action::Ask,
            rule: None,
            reason: Some(why.to_owned()),
            further_reasons: also,
            ..self
        }
    }
}

impl Verdict {
    fn allowed(pattern: &str) -> Self {
        Self {
            action: Action::Allow,
            pattern: pattern.to_owned(),
            rule: None,
            reason: None,
            is_by_posture: false,
            further_reasons: vec![],
            units: vec![],
            is_proven_read_only: false,
        }
    }
}

/// A reason to ask: a rule, a reason for people, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskReason {
    pub rule: Option<Rule>,
    pub reason: Option<String>,
}

impl AskReason {
    fn because(reason: impl Into<String>) -> Self {
        Self {
            rule: None,
            reason: Some(reason.into()),
        }
    }
}

/// The verdict on one part of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitVerdict {
    /// The source text of the part.
    pub text: String,
    /// The program it starts, if known; `None` for assignments and redirections.
    pub program: Option<String>,
    /// The number of wrappers around it (`sudo`, `xargs`, `sh -c` …).
    pub layer: usize,
    pub action: Action,
    /// The rule that decided, if one did.
    pub rule: Option<Rule>,
    pub reason: Option<String>,
    /// True if it is denied because the agent only reads, and not by a rule.
    pub is_by_posture: bool,
    /// For a question: the reasons to ask in addition to the rule or reason that decided.
    pub further_reasons: Vec<AskReason>,
    /// True if it is known to change nothing.
    pub is_read_only: bool,
}

/// The permissions of an agent and the surroundings they apply in. Its tools, its commands and
/// queries about permissions all use the same.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The rules of the agent and the session.
    pub rules: Rules,
    /// The grants of the user ("always").
    pub grants: Rules,
    /// Rules of the session that ask, whatever the other rules and the grants allow.
    pub ask_rules: Rules,
    /// The user's choice of how many questions are asked.
    pub approvals: Approvals,
    /// Hosts of this machine and network that may be fetched from.
    pub private_hosts: Arc<[String]>,
    pub context: PermissionContext,
    /// The capabilities of the agent's sandbox, for queries about files.
    pub sandbox: plan::SandboxCapabilities,
    /// The reason to ask about everything that unreadable settings may have denied.
    pub unreadable_settings: Option<String>,
}

/// The surroundings in which a command or a path is judged. All paths are absolute.
#[derive(Debug, Clone, Default)]
pub struct PermissionContext {
    /// The directory in which the command starts; relative paths are relative to it.
    pub cwd: PathBuf,
    /// The project; rules about paths are relative to it. Symlinks resolved.
    pub root: PathBuf,
    /// Further directories that belong to the session. Symlinks resolved.
    pub extra_dirs: Vec<PathBuf>,
    pub home: Option<PathBuf>,
    /// The directories of `PATH`.
    pub path: Vec<PathBuf>,
    /// Entries of the user's `PATH` that commands do not get, because they are relative.
    pub path_left_out: Arc<[PathBuf]>,
    /// The session's own directory for temporary files, which needs no permission.
    pub scratch_dir: Option<PathBuf>,
    /// The system's directories for temporary files. Symlinks resolved.
    pub temporary_dirs: Arc<[PathBuf]>,
    /// Our data directory, which holds keys and sessions.
    pub data_dir: PathBuf,
    /// Our own executable, if known.
    pub program: Option<PathBuf>,
    /// True if the user trusts this project, and thus the programs that its git configuration
    /// starts.
    pub is_trusted: bool,
}

impl PermissionContext {
    pub fn new(environment: &Environment, worktree: &Worktree, cwd: &Path) -> Self {
        Self {
            cwd: cwd.into(),
            root: worktree.root.clone(),
            extra_dirs: worktree.extra.clone(),
            // Resolved, because they are compared with resolved paths.
            home: environment.home.as_deref().map(resolved),
            path: environment.path(),
            path_left_out: environment.path_left_out.clone(),
            scratch_dir: None,
            temporary_dirs: sandbox::existing(sandbox::temporary_directories(environment)).into(),
            data_dir: resolved(&environment.dirs.data),
            program: environment.program.clone(),
            is_trusted: false,
        }
    }

    /// Returns whether a program at this path is not the system's: it lies in the project or the
    /// session's directories, or any user may have put it there.
    pub fn is_open(&self, path: &Path) -> bool {
        self.is_open_among(path, &mut HashMap::new())
    }

    /// Judges as [`Self::is_open`] does, and remembers in `known` which directories any user may
    /// write.
    fn is_open_among(&self, path: &Path, known: &mut HashMap<PathBuf, bool>) -> bool {
        let session_dirs = std::iter::once(&self.root)
            .chain(&self.extra_dirs)
            .chain(&self.scratch_dir)
            .chain([&self.cwd]);
        let in_session_dir = session_dirs
            .into_iter()
            .any(|dir| dir.parent().is_some() && path.starts_with(dir));
        if in_session_dir {
            return true;
        }
        path.ancestors().any(|dir| match known.get(dir) {
            Some(writable) => *writable,
            None => *known
                .entry(dir.to_owned())
                .or_insert(is_world_writable(dir)),
        })
    }

    /// Returns the directories of `PATH`, each with `true` if it is [open](Self::is_open).
    pub fn path_dirs(&self) -> impl Iterator<Item = (&PathBuf, bool)> {
        let mut known = HashMap::new();
        self.path.iter().map(move |dir| {
            let real = std::fs::canonicalize(dir).ok().filter(|real| real != dir);
            let is_open = self.is_open_among(dir, &mut known)
                || real.is_some_and(|real| self.is_open_among(&real, &mut known));
            (dir, is_open)
        })
    }

    /// Returns the directories of `PATH` that are the system's.
    pub fn system_path(&self) -> impl Iterator<Item = &PathBuf> {
        self.path_dirs()
            .filter(|(_, open)| !open)
            .map(|(dir, _)| dir)
    }
}

fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

fn is_world_writable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o002 != 0)
}

/// The reason why a call was not made, addressed to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// A rule forbids it; the turn continues.
    #[error("{0}")]
    Rule(String),
    /// Needs the user's consent, and no user can be asked; the turn continues.
    #[error("{0}")]
    Unanswered(String),
    /// The user rejected it; the turn ends.
    #[error("The user rejected this tool call. It was not run, and nothing has changed.")]
    Rejected,
    /// The user rejected it with an explanation; the turn continues.
    #[error("The user rejected this tool call and said: {0}")]
    Corrected(String),
}
