//! Tools that run commands, and their sandbox, output and terminal.

pub mod background_jobs;
pub mod bash;
pub mod bash_output;
pub mod bash_stop;
pub(crate) mod captured_output;
pub mod control_files;
pub(crate) mod exit_status;
pub mod sandboxing;
pub mod scratch;
pub mod terminal_emulator;
pub(crate) mod writable_paths;
