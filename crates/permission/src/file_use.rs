//! Uses of files as text for the user: "write `/etc/hosts`, which is outside the project".

use std::path::Path;

use super::protected::{self, Protected};
use super::{Access, PermissionContext};
use base::text::is_deceptive;

/// A working directory that is too broad to be a project, because all files of the user lie below
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundedRoot {
    /// `/`, or another directory above the home directory.
    Above,
    Home,
}

impl UnboundedRoot {
    /// Classifies the root of a context that is too broad to be a project.
    pub(super) fn of(context: &PermissionContext) -> Self {
        if context.home.as_ref() == Some(&context.root) {
            Self::Home
        } else {
            Self::Above
        }
    }
}

/// Returns the verb for a use of a file.
pub(super) fn verb(access: Access, protected: Option<Protected>) -> &'static str {
    match access {
        Access::List => "look into",
        Access::Read => "read",
        Access::Edit if protected == Some(Protected::Control) => "change",
        Access::Edit => "write",
    }
}

/// Returns a clause, to follow "which", that the file is in no project.
pub(super) fn why_outside(unbounded: Option<UnboundedRoot>) -> &'static str {
    match unbounded {
        None => "is outside the project",
        Some(UnboundedRoot::Home) => {
            "is not in a project: the working directory is your home directory, so adjutant asks about all its files"
        }
        Some(UnboundedRoot::Above) => {
            "is not in a project: your home directory is below the working directory, so adjutant asks about all its files"
        }
    }
}

/// Returns the peculiarity of a file, as a clause that "which" begins.
///
/// `path` is relative to the project if it lies in it; `shared` is true if it has a second name.
pub(super) fn why_special(
    access: Access,
    protected: Option<Protected>,
    path: &Path,
    shared: bool,
) -> Option<&'static str> {
    match protected {
        Some(Protected::Own) => None,
        Some(Protected::Secret) => Some("may hold keys"),
        _ if access != Access::Edit => None,
        Some(Protected::Control) => Some(protected::effect(path)),
        None if shared => Some("has a second name elsewhere (a hard link)"),
        None if path.to_string_lossy().chars().any(is_deceptive) => {
            Some("has invisible characters in its name")
        }
        None => None,
    }
}
