//! What tools and their fields are called elsewhere.

/// What models have been seen to call a tool and its fields. All names as `folded` leaves them.
#[derive(Debug)]
pub struct Aliases {
    pub also: &'static [&'static str],
    /// Fields of other tools with a word that they may hold: they say which of several tools in one is meant, or
    /// what holds here anyway; or they stand for a field of ours that is then true.
    pub says: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// The fields, each with what it is called elsewhere.
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

impl Aliases {
    pub const NONE: Self = Self { also: &[], says: &[], fields: &[] };
}

pub(super) const PATH: &[&str] =
    &["path", "file", "filename", "filepath", "targetfile", "absolutepath", "relativepath", "uri"];
pub(super) const FOLDER: &[&str] =
    &["directory", "dir", "folder", "root", "searchpath", "dirpath", "directorypath", "cwd"];
pub(super) const OLD: &[&str] =
    &["oldstr", "old", "oldtext", "oldcontent", "search", "find", "searchstring", "originaltext"];
pub(super) const NEW: &[&str] =
    &["newstr", "new", "newtext", "newcontent", "replace", "replacement", "replacewith", "replacestring"];
pub(super) const ALL: &[&str] = &["all", "global", "replaceallmatches", "allowmultiple"];
pub(super) const JOB: &[&str] = &["id", "shellid", "jobid", "taskid", "commandid", "processid"];
