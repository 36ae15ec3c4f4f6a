//! Tools that read pages and search the web.

pub mod webfetch;
pub mod websearch;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<webfetch::WebfetchTool>(),
    properties::<websearch::WebsearchTool>(),
];
