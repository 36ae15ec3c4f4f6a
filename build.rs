//! The program is linked to a fixed address on Linux. Else 82,000 addresses in its tables have to be set at every
//! start, which takes a millisecond and makes a megabyte of it this process's own; and each command in a sandbox starts
//! it once more. Stack, heap and libraries stay where chance puts them.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script of the target by variables")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // The static binaries of a release get `-C relocation-model=static` instead.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
