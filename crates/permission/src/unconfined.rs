//! Searches command lines for effects that no sandbox prevents.
//!
//! The text of a line that could not be analysed is searched for programs whose work is done
//! outside the sandbox (by a service, as another user, on another machine), for losses that cannot
//! be recovered, and for secrets and control files.

use super::SandboxGuarantee;
use super::delegate::{AMBIGUOUS, DELEGATES, base_name};
use super::protected::Protected;
use super::shell::{self, CommandUnit};

/// Programs that fetch from another machine, in addition to those known to use the network.
const FETCHERS: &[&str] = &[
    "aria2c", "aws", "az", "fetch", "ftp", "gcloud", "gh", "glab", "gsutil", "http", "https",
    "lftp", "lynx", "nc", "ncat", "netcat", "rclone", "rsync", "s3cmd", "socat", "telnet", "w3m",
    "xh",
];

/// An effect that no sandbox prevents.
#[derive(Debug)]
pub(super) struct UnconfinedEffect {
    /// The reason to ask about it.
    pub(super) reason: String,
    /// True if it is the use of a file.
    pub(super) names_file: bool,
}

impl UnconfinedEffect {
    fn of_program(reason: String) -> Self {
        Self {
            reason,
            names_file: false,
        }
    }

    /// Returns the reason as one about the line around a part.
    pub(super) fn of_line(&self) -> String {
        match self.reason.strip_prefix("its text ") {
            Some(rest) => format!("the line {rest}"),
            None => self.reason.clone(),
        }
    }
}

/// Returns the reason to ask about a line, or a part of one, although its unknowns are confined:
/// the text names something that the sandbox does not prevent. `is_unparsed` means that there may
/// be commands that are not in `units`.
pub(super) fn unconfined_effect_in(
    text: &str,
    units: &[CommandUnit],
    is_unparsed: bool,
    guarantee: SandboxGuarantee,
) -> Option<UnconfinedEffect> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let delegate = words
        .iter()
        .find(|word| DELEGATES.contains(word) && !AMBIGUOUS.contains(word));
    if let Some(name) = delegate {
        return Some(UnconfinedEffect::of_program(format!(
            "its text names {name}, whose work is done outside the sandbox"
        )));
    }
    if let Some(effect) = units.iter().find_map(|unit| fetched_program(units, unit)) {
        return Some(effect);
    }
    let secrets_visible = match guarantee {
        SandboxGuarantee::ReadOnly { hides_secrets, .. } => !hides_secrets,
        _ => true,
    };
    let file = if secrets_visible {
        shell::protected_in(text, true)
    } else {
        None
    };
    let writes = matches!(guarantee, SandboxGuarantee::Workspace { .. });
    let keeps_modes = match guarantee {
        SandboxGuarantee::Workspace {
            protects_modes: keeps_modes,
            ..
        } => keeps_modes,
        _ => true,
    };
    match file {
        Some((path, Protected::Secret)) => {
            return Some(UnconfinedEffect {
                reason: format!("its text names {path}, which may hold keys or passwords"),
                names_file: true,
            });
        }
        Some((path, _)) if writes => {
            return Some(UnconfinedEffect {
                reason: format!("its text names {path}, which determines what runs here"),
                names_file: true,
            });
        }
        _ => {}
    }
    if writes && let Some(what) = lossy_git_command(&words) {
        return Some(UnconfinedEffect::of_program(format!(
            "its text names {what}, whose effect cannot be undone"
        )));
    }
    if keeps_modes || !units.iter().any(is_unanalysed) && !is_unparsed {
        return None;
    }
    let name = words
        .iter()
        .find(|word| ["chmod", "chown", "chgrp", "touch"].contains(word))?;
    Some(UnconfinedEffect::of_program(format!(
        "its text names {name}, and the sandbox does not protect the permission bits of files outside"
    )))
}

/// Returns the effect of a part that is not analysed in a line that fetches something.
pub(super) fn fetched_program(
    units: &[CommandUnit],
    unit: &CommandUnit,
) -> Option<UnconfinedEffect> {
    let is_possible = is_unanalysed(unit) && units.iter().any(is_fetcher);
    is_possible
        .then(|| UnconfinedEffect::of_program("what it fetches may be run at once".to_owned()))
}

fn is_fetcher(unit: &CommandUnit) -> bool {
    unit.uses_network
        || unit
            .program
            .as_deref()
            .is_some_and(|program| FETCHERS.contains(&base_name(program)))
}

fn is_unanalysed(unit: &CommandUnit) -> bool {
    unit.opaque.is_some() && !unit.is_opaque_by_variable
}

/// Returns the git command among the words that loses uncommitted work or commits.
fn lossy_git_command(words: &[&str]) -> Option<&'static str> {
    if !words.contains(&"git") {
        return None;
    }
    // In any order, because a word may be assigned to a variable before it is used.
    let both = |command: &str, options: &[&str]| {
        words.contains(&command) && words.iter().any(|word| options.contains(word))
    };
    let is_forced = || {
        words
            .iter()
            .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('f'))
    };
    let discards_all = || {
        words.windows(3).any(|words| {
            ["checkout", "restore"].contains(&words[0])
                && (words[1] == "." || words[1] == "--" && words[2] == ".")
        })
    };
    if both("reset", &["--hard", "--merge", "--keep"]) {
        Some("git reset")
    } else if words.contains(&"clean") && (is_forced() || words.contains(&"--force")) {
        Some("git clean")
    } else if both("stash", &["drop", "clear"]) {
        Some("git stash drop")
    } else if both("reflog", &["expire", "delete"]) {
        Some("git reflog expire")
    } else if words
        .iter()
        .any(|word| ["filter-branch", "filter-repo"].contains(word))
    {
        Some("git filter-branch")
    } else if both("update-ref", &["-d", "--delete"]) {
        Some("git update-ref")
    } else if ["checkout", "switch", "restore"]
        .iter()
        .any(|name| both(name, &["-f", "--force", "--discard-changes"]))
        || discards_all()
    {
        Some("git checkout")
    } else if both(
        "push",
        &[
            "-f",
            "--force",
            "--force-with-lease",
            "--delete",
            "--mirror",
        ],
    ) {
        Some("git push")
    } else {
        None
    }
}
