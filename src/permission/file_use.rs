//! What is to be done with a file, in words for the user: "write `/etc/hosts`, which is outside the project".

use std::path::Path;

use super::paths::{Located, roots};
use super::protected::{self, Protected};
use super::{Access, FileUse, PermissionContext};
use crate::text::is_odd;

/// A working directory that is no project, because everything of the user's lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundedRoot {
    /// `/`, or another directory above the home directory.
    Above,
    Home,
}

impl UnboundedRoot {
    pub(super) fn of(path: &Path, place: &PermissionContext) -> Option<Self> {
        if !path.starts_with(&place.root) || roots(place).any(|root| *root == place.root) {
            return None;
        }
        Some(if place.home.as_ref() == Some(&place.root) { Self::Home } else { Self::Above })
    }
}

impl Located {
    pub(super) fn in_use(&self, access: Access) -> FileUse {
        let verb = match access {
            Access::List => "look into",
            Access::Read => "read",
            Access::Edit if self.protected == Some(Protected::Control) => "change",
            Access::Edit => "write",
        };
        let name = if self.inside { self.relative.clone() } else { self.path.display().to_string() };
        FileUse { verb, name, which: None }
    }

    pub(super) fn why_outside(&self) -> &'static str {
        match self.unbounded {
            None => "is outside the project",
            Some(UnboundedRoot::Home) => {
                "is in no project: the working directory is your home directory, whose files are all asked about"
            }
            Some(UnboundedRoot::Above) => {
                "is in no project: your home directory lies below the working directory, whose files are all asked about"
            }
        }
    }

    /// What makes the file special, as a clause that "which" begins.
    pub(super) fn why_special(&self, access: Access) -> Option<String> {
        let clause = match self.protected {
            Some(Protected::Own) => return None,
            Some(Protected::Secret) => "may hold keys",
            _ if access != Access::Edit => return None,
            Some(Protected::Control) if self.inside => protected::effect(Path::new(&self.relative)),
            Some(Protected::Control) => protected::effect(&self.path),
            None if self.shared => "has a second name elsewhere (a hard link)",
            None if self.relative.chars().any(is_odd) => "has characters in its name that cannot be seen",
            None => return None,
        };
        Some(clause.to_owned())
    }
}
