//! The names of tools and their fields in other agents.

/// The names that models use for a tool and its fields, in the form that `folded` returns.
#[derive(Clone, Debug)]
pub struct Aliases {
    pub tool_names: &'static [&'static str],
    /// Fields of other tools with one of their values, or `*` for any. They select one of several
    /// operations of a tool, or ask for the default behaviour; with a third entry, that field of
    /// ours is set to true.
    pub field_values: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// The fields, each with its names in other agents.
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

impl Aliases {
    pub const NONE: Self = Self {
        tool_names: &[],
        field_values: &[],
        fields: &[],
    };
}

pub(super) const PATH: &[&str] = &[
    "path",
    "file",
    "filename",
    "filepath",
    "targetfile",
    "absolutepath",
    "relativepath",
    "uri",
];
pub(super) const FOLDER: &[&str] = &[
    "directory",
    "dir",
    "folder",
    "root",
    "searchpath",
    "dirpath",
    "directorypath",
    "cwd",
];
pub(super) const OLD: &[&str] = &[
    "oldstr",
    "old",
    "oldtext",
    "oldcontent",
    "search",
    "find",
    "searchstring",
    "originaltext",
];
pub(super) const NEW: &[&str] = &[
    "newstr",
    "new",
    "newtext",
    "newcontent",
    "replace",
    "replacement",
    "replacewith",
    "replacestring",
];
pub(super) const ALL: &[&str] = &["all", "global", "replaceallmatches", "allowmultiple"];
pub(super) const JOB: &[&str] = &["id", "shellid", "jobid", "taskid", "commandid", "processid"];
