//! Catastrophic losses, which are denied or at least asked about under every rule set: a deny for
//! commands that no user intends (the whole disk), a question for those that a user may intend (the
//! home directory, the whole project, the history).

use std::path::{Path, PathBuf};

use super::Disk;
use crate::shell::expand::{Arg, ShellState};
use crate::shell::names::among;
use crate::shell::unit::CommandUnit;
use crate::{Action, PermissionContext};
use base::worktree::normal;

/// The loss if a path is removed with everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    /// Nothing that needs a question under every rule set.
    Little,
    /// Much, which is asked about: the home directory, the project, the history … The text names it.
    Much(&'static str),
    /// The whole disk, which is denied.
    Everything,
}

impl Disk<'_> {
    /// Judges a recursive removal.
    pub(crate) fn judge_removal(
        &mut self,
        operands: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
        unknown: bool,
    ) {
        for arg in operands {
            let (texts, is_pattern) = match (arg.texts(), arg.pattern()) {
                (Some(texts), _) => (texts.to_vec(), false),
                (None, Some(pattern)) => (vec![pattern.to_owned()], true),
                (None, None) => {
                    let reason = format!(
                        "what {} names is not known; if it is empty, that could be everything",
                        arg.raw
                    );
                    if unknown {
                        unit.set_minimum(Action::Ask, &reason);
                    } else {
                        // No sandbox protects the project's own files.
                        unit.unconfined_effect.get_or_insert(reason);
                    }
                    continue;
                }
            };
            for text in texts {
                // `*` and `x/*` match all entries of a directory, which amounts to the directory
                // itself.
                let stripped = text
                    .trim_end_matches(['*', '?', '.', '[', ']', '!'])
                    .to_owned();
                let text = match (is_pattern, stripped.is_empty()) {
                    (false, _) => text,
                    (true, true) => ".".into(),
                    (true, false) => stripped,
                };
                if is_pattern && !text.ends_with('/') && text != "." {
                    continue;
                }
                if !arg.is_literal && !is_pattern && text.is_empty() {
                    unit.set_minimum(Action::Ask, "what it removes is not known");
                }
                match self.greatest_loss(&text, state) {
                    Loss::Everything => {
                        unit.set_minimum(Action::Deny, "it would destroy the whole disk")
                    }
                    Loss::Much(what) => {
                        unit.set_minimum(Action::Ask, &format!("{} is {what}", shown(&text)))
                    }
                    Loss::Little => {}
                }
            }
        }
    }

    fn greatest_loss(&mut self, text: &str, state: &ShellState) -> Loss {
        let from: Vec<PathBuf> = if state.cwd.is_empty() {
            vec![PathBuf::from("/")]
        } else {
            state.cwd.clone()
        };
        let mut worst = Loss::Little;
        for cwd in from {
            let plain = normal(&cwd.join(text));
            let found = self.losses.get(&plain).copied().unwrap_or_else(|| {
                let real = plain.canonicalize().unwrap_or_else(|_| plain.clone());
                loss(self.context, &plain).max(loss(self.context, &real))
            });
            self.losses.insert(plain, found);
            worst = worst.max(found);
        }
        worst
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() {
        "\"\"".into()
    } else {
        text.to_owned()
    }
}

fn loss(context: &PermissionContext, path: &Path) -> Loss {
    const SYSTEM: &str = "bin boot dev etc home lib lib64 opt proc root run sbin srv sys usr var Users System Library Applications";
    if path.parent().is_none() {
        return Loss::Everything;
    }
    if context
        .home
        .as_ref()
        .is_some_and(|home| home.starts_with(path))
    {
        return Loss::Much("the home directory");
    }
    if path.parent() == Some(Path::new("/"))
        && path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| among(SYSTEM, name))
    {
        return Loss::Much("a directory of the system");
    }
    if context.root.starts_with(path)
        || context.extra_dirs.iter().any(|dir| dir.starts_with(path))
        || context.cwd.starts_with(path)
    {
        return Loss::Much("the whole project");
    }
    if path
        .file_name()
        .is_some_and(|name| name.eq_ignore_ascii_case(".git"))
    {
        return Loss::Much("the history of a repository");
    }
    Loss::Little
}
