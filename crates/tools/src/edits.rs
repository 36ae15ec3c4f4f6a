//! Tools that change files, with search, replacement and patches.

pub mod apply_patch;
pub mod document;
pub mod edit;
pub(crate) mod indent;
pub(crate) mod merge;
pub(crate) mod near_match;
pub mod patch;
pub mod replace;
pub(crate) mod unicode_folding;
pub mod write;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<edit::EditTool>(),
    properties::<write::WriteTool>(),
    properties::<apply_patch::ApplyPatchTool>(),
];
