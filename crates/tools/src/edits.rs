//! Tools that change files. Their operations on a text are in the crate `textedit`.

pub mod apply_patch;
pub mod document;
pub mod edit;
pub mod write;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<edit::EditTool>(),
    properties::<write::WriteTool>(),
    properties::<apply_patch::ApplyPatchTool>(),
];
