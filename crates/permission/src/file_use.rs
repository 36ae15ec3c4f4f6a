//! What is to be done with a file, in words for the user: "write `/etc/hosts`, which is outside the project".

use std::path::Path;

use super::protected::{self, Protected};
use super::{Access, PermissionContext};
use base::text::is_odd;

/// A working directory that is no project, because everything of the user's lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundedRoot {
    /// `/`, or another directory above the home directory.
    Above,
    Home,
}

impl UnboundedRoot {
    /// The root of a place where it is none that could be a project.
    pub(super) fn of(place: &PermissionContext) -> Self {
        if place.home.as_ref() == Some(&place.root) { Self::Home } else { Self::Above }
    }
}

/// What is done with a file.
pub(super) fn verb(access: Access, protected: Option<Protected>) -> &'static str {
    match access {
        Access::List => "look into",
        Access::Read => "read",
        Access::Edit if protected == Some(Protected::Control) => "change",
        Access::Edit => "write",
    }
}

/// That a file is in no project, as a clause that "which" begins.
pub(super) fn why_outside(unbounded: Option<UnboundedRoot>) -> &'static str {
    match unbounded {
        None => "is outside the project",
        Some(UnboundedRoot::Home) => {
            "is in no project: the working directory is your home directory, whose files are all asked about"
        }
        Some(UnboundedRoot::Above) => {
            "is in no project: your home directory lies below the working directory, whose files are all asked about"
        }
    }
}

/// What makes a file special, as a clause that "which" begins. `path` is relative to the project where it lies in it;
/// `shared`: it has a second name.
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
        None if path.to_string_lossy().chars().any(is_odd) => Some("has characters in its name that cannot be seen"),
        None => None,
    }
}
