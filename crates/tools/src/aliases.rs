//! The names that tools and their fields have in other agents, and that models use from habit.

/// The names that models use for a tool and its fields, in lower case without separators, as
/// [`crate::argument_repair`] compares them.
#[derive(Clone, Debug)]
pub struct Aliases {
    /// Names of the tool.
    pub tool_names: &'static [&'static str],
    /// Fields of other agents' tools that are removed from the arguments if they have one of these
    /// values. They select one of several operations of a tool, or request the default behaviour.
    pub field_values: &'static [FieldValue],
    /// The fields, each with its names in other agents.
    pub fields: &'static [(&'static str, &'static [&'static str])],
}

/// A value of a field that only other agents' tools have.
#[derive(Clone, Debug)]
pub struct FieldValue {
    pub(super) field: &'static str,
    /// The value; `*` matches any value.
    pub(super) value: &'static str,
    /// The boolean field of the tool that it sets to true; `None` if it means nothing to the tool.
    pub(super) sets: Option<&'static str>,
}

impl FieldValue {
    /// Returns a value that is removed without a replacement.
    pub(super) const fn ignored(field: &'static str, value: &'static str) -> Self {
        Self {
            field,
            value,
            sets: None,
        }
    }

    /// Returns a value that sets the boolean field `sets` of the tool.
    pub(super) const fn setting(
        field: &'static str,
        value: &'static str,
        sets: &'static str,
    ) -> Self {
        Self {
            field,
            value,
            sets: Some(sets),
        }
    }
}

impl Aliases {
    pub const NONE: Self = Self {
        tool_names: &[],
        field_values: &[],
        fields: &[],
    };
}

// Names of frequent fields: the path of a file, the directory of a search, the replaced text, and
// so on.

pub(super) const PATH_FIELDS: &[&str] = &[
    "path",
    "file",
    "filename",
    "filepath",
    "targetfile",
    "absolutepath",
    "relativepath",
    "uri",
];
pub(super) const SEARCH_DIRECTORY_FIELDS: &[&str] = &[
    "directory",
    "dir",
    "folder",
    "root",
    "searchpath",
    "dirpath",
    "directorypath",
    "cwd",
];
pub(super) const OLD_TEXT_FIELDS: &[&str] = &[
    "oldstr",
    "old",
    "oldtext",
    "oldcontent",
    "search",
    "find",
    "searchstring",
    "originaltext",
];
pub(super) const NEW_TEXT_FIELDS: &[&str] = &[
    "newstr",
    "new",
    "newtext",
    "newcontent",
    "replace",
    "replacement",
    "replacewith",
    "replacestring",
];
pub(super) const REPLACE_ALL_FIELDS: &[&str] =
    &["all", "global", "replaceallmatches", "allowmultiple"];
pub(super) const JOB_ID_FIELDS: &[&str] =
    &["id", "shellid", "jobid", "taskid", "commandid", "processid"];
