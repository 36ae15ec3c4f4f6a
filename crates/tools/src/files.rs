//! Tools that read and search files, with paths, encodings and access to the file system.

pub(crate) mod buffer;
pub mod disk;
pub mod encoding;
pub mod glob;
pub mod grep;
pub mod hidden;
pub mod loaded_instructions;
pub mod path;
pub(crate) mod pattern;
pub mod pdf;
pub mod read;
pub mod read_tracker;
pub mod rooted_fs;
pub mod search;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<read::ReadTool>(),
    properties::<glob::GlobTool>(),
    properties::<grep::GrepTool>(),
];
