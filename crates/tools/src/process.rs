//! Tools that run commands, and their sandbox, output and terminal.

pub mod background_jobs;
pub mod bash;
pub mod bash_output;
pub mod bash_stop;
pub(crate) mod captured_output;
pub mod control_files;
pub(crate) mod exit_status;
pub(crate) mod program_slot;
pub mod sandboxing;
pub mod terminal_emulator;
pub mod writable_paths;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<bash::BashTool>(),
    properties::<bash_output::BashOutputTool>(),
    properties::<bash_stop::BashStopTool>(),
];
