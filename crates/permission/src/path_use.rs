//! The uses of paths: facts about a call or a command, which rules then judge.

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
    pub absolute_path: Option<String>,
    /// True if the pattern names the one path that is used, or the directory of a path outside of
    /// the project. False if it stands for a link itself, a secret without a path, or a sample of
    /// the files below a directory.
    pub names_path: bool,
    /// The minimum verdict, which no rule can weaken, with its reason.
    pub minimum: Option<(Action, String)>,
    /// True if it leaves the project only to read or list.
    pub only_reads: bool,
    /// True if it changes a file of the project.
    pub changes_project: bool,
    /// True if it leaves the project only in case the shell has changed to an unexpected directory.
    pub is_conditional: bool,
    /// True if it leaves the project for a temporary file of the user's own, or a directory of such
    /// files.
    pub is_temporary: bool,
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
