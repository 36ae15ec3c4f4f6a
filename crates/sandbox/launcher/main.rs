//! The launcher as a program of its own, which `build.rs` compiles.

#[path = "../src/launcher.rs"]
mod launcher;

fn main() -> std::process::ExitCode {
    launcher::launch(std::env::args_os().skip(1))
}
