//! Compiles the launcher, which the library contains (Linux).

#![expect(
    clippy::disallowed_methods,
    reason = "cargo gives a build script its input in variables, and this one starts the compiler"
)]

#[path = "launcher/flags.rs"]
mod flags;

use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=launcher/flags.rs");
    println!("cargo::rerun-if-changed=launcher/main.rs");
    println!("cargo::rerun-if-changed=src/launcher.rs");
    let variable = |name: &str| std::env::var(name).map_err(|e| format!("{name}: {e}"));
    if variable("CARGO_CFG_TARGET_OS")? != "linux" {
        return Ok(());
    }
    let output = PathBuf::from(variable("OUT_DIR")?).join("launcher");
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "launcher",
            "launcher/main.rs",
        ])
        .args(["--target", &variable("TARGET")?])
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "lto=fat",
            "-C",
            "codegen-units=1",
            "--cap-lints",
            "allow",
        ]);
    if let Ok(linker) = variable("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    let given = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let given: Vec<&str> = given.split('\u{1f}').collect();
    rustc.args(flags::shared(&given));
    let status = rustc
        .arg("-o")
        .arg(&output)
        .status()
        .map_err(|e| format!("the compiler of the launcher cannot be started: {e}"))?;
    if !status.success() {
        return Err(format!("the launcher was not compiled: {status}"));
    }
    Ok(())
}
