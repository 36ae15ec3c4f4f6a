//! The uses of paths, as facts on which rules decide.

use std::path::PathBuf;

use super::{Action, FileUse};

/// A use of paths by a tool call or a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathUse {
    /// The permission that it needs: `read`, `edit` or `external_directory`.
    pub permission: &'static str,
    /// The names of the paths. Each is judged, and the strictest verdict counts.
    pub patterns: Vec<String>,
    /// The absolute path of the one path that is used, if it lies outside of the project. Rules
    /// with an absolute pattern are compared with it.
    pub absolute: Option<String>,
    /// Its pattern names the one path that is used, or the directory of a path outside of the
    /// project. The others stand for a link itself, for a secret without a path, or for a sample of
    /// the files below a directory.
    pub names_path: bool,
    /// The minimum verdict, which no rule can weaken, with its reason.
    pub minimum: Option<(Action, String)>,
    /// Leaves the project only to read or list.
    pub only_reads: bool,
    /// Changes a file of the project.
    pub changes_project: bool,
    /// Leaves the project only if the shell has changed to an unexpected directory by then.
    pub is_conditional: bool,
    /// Leaves the project for a temporary file of the user's own, or a directory of such files.
    pub temporary: bool,
    /// The path for which it leaves the project.
    pub outside: Option<OutsidePath>,
    /// The use of one file as text, for people.
    pub file: Option<FileUse>,
}

/// A path outside of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsidePath {
    pub path: PathBuf,
    /// The parent directory of the path, or the path itself if it is a directory.
    pub folder: PathBuf,
}

impl PathUse {
    pub(super) fn new(permission: &'static str, pattern: impl Into<String>) -> Self {
        Self {
            permission,
            patterns: vec![pattern.into()],
            ..Self::default()
        }
    }
}
