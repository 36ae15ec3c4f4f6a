//! How the program is linked on Linux.
//!
//! To a fixed address: else 82,000 addresses in its tables have to be set at every start, which takes a millisecond and
//! makes a megabyte of it this process's own; and each command in a sandbox starts it once more. Stack, heap and
//! libraries stay where chance puts them.
//!
//! And with its functions in the order in which they are first used: see `editor-tests/bench/order.py`. Names of
//! functions that are not there any more do no harm.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script of the target by variables")]

use std::path::Path;
use std::process::Command;

const ORDER: &str = "editor-tests/bench/order.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    // The static binaries of a release get `-C relocation-model=static`, and an order of their own.
    if variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
        let order = Path::new(&variable("CARGO_MANIFEST_DIR")).join(ORDER);
        if variable("PROFILE") == "release" && order.exists() && linker_takes_an_order() {
            println!("cargo::rustc-link-arg-bins=-Wl,--symbol-ordering-file={}", order.display());
            println!("cargo::rustc-link-arg-bins=-Wl,--no-warn-symbol-ordering");
        }
    }
}

/// Whether it is the linker that comes with Rust, and nobody has asked for another one.
fn linker_takes_an_order() -> bool {
    let target = variable("TARGET");
    let chosen = ["RUSTC_LINKER", "CARGO_ENCODED_RUSTFLAGS"].iter().any(|name| !variable(name).is_empty());
    if chosen || target != "x86_64-unknown-linux-gnu" || target != variable("HOST") {
        return false;
    }
    let sysroot = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("bin/gcc-ld/ld.lld").exists()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
