//! What git does besides what its words say: what a repository's settings make it start, and the paths
//! among its words.

use super::Unit;
use super::expand::Arg;
use super::state::State;
use super::walk::Walk;
use crate::permission::paths::Access;
use crate::permission::protected;

/// Options before the subcommand that take the next word.
const GLOBAL: [&str; 8] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env"];

/// Where the subcommand stands among git's words.
pub(super) fn subcommand(args: &[Arg]) -> usize {
    let mut at = 0;
    while let Some(arg) = args.get(at)
        && arg.prefix().starts_with('-')
    {
        at += 1 + usize::from(GLOBAL.iter().any(|option| arg.is(option)));
    }
    at
}

impl Walk<'_> {
    /// The files among git's words: outside the project they need permission; secrets are secrets in
    /// every revision.
    pub(super) fn git_paths(&mut self, args: &[Arg], unit: &mut Unit, state: &State) {
        for arg in args {
            let Some(text) = arg.text() else { continue };
            let path = text.rsplit(':').next().unwrap_or(text);
            let name = path.rsplit('/').next().unwrap_or(path);
            if !text.starts_with('-') && protected::secret_name(name) && !text.contains(' ') && !text.contains("://") {
                Self::secret(unit, path, &format!("{path} may hold keys or passwords"));
            }
            // `-O/a/file`: the value of a letter.
            let text = match text.strip_prefix('-') {
                Some(rest) if rest.get(1..).is_some_and(|value| value.starts_with(['/', '.'])) => &rest[1..],
                _ => text,
            };
            let outside = text.starts_with('/') || text.starts_with("../") || text == "..";
            if outside || text.starts_with("file://") {
                self.touch_text(Access::List, text, unit, state);
            } else if let Some((option, value)) = text.split_once('=')
                && option.starts_with('-')
                && value.starts_with(['/', '.'])
                && !value.contains(' ')
            {
                let value = value.to_owned();
                self.touch_text(Access::List, &value, unit, state);
            }
        }
    }
}
