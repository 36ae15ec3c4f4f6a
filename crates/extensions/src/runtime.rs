//! The programs that can run the plugin host: the one that the user names, Bun, Node, or Deno.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde_json::{Map, json};

use base::environment::Environment;

/// The environment variable with the program that is tried first.
pub const RUNTIME_VARIABLE: &str = "ADJUTANT_NODE";

/// The source of the module that replaces OpenCode's package `@opencode-ai/plugin`.
pub(super) const STAND_IN: &str = include_str!("stand_in.mjs");

/// The packages that Deno replaces by that module.
const REPLACED: [&str; 3] = [
    "@opencode-ai/plugin",
    "@opencode-ai/plugin/tool",
    "@opencode-ai/sdk",
];

/// A program that may run the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runtime {
    pub(super) path: PathBuf,
    /// The options before the code.
    pub(super) args: Vec<String>,
}

/// Returns the programs to try, in order: that of [`RUNTIME_VARIABLE`], then those on `PATH`.
pub(super) fn runtimes(environment: &Environment) -> Vec<Runtime> {
    let dirs = environment.path();
    let chosen = environment
        .var(RUNTIME_VARIABLE)
        .filter(|name| !name.is_empty());
    let chosen = chosen.map(|name| {
        if name.contains('/') {
            PathBuf::from(name)
        } else {
            base::executable::find(name, &dirs).unwrap_or_else(|| name.into())
        }
    });
    let found = ["bun", "node", "deno"]
        .into_iter()
        .filter_map(|name| base::executable::find(name, &dirs));
    let mut all: Vec<Runtime> = Vec::new();
    for path in chosen.into_iter().chain(found) {
        let args = options(&path);
        if all.iter().all(|known| known.path != path) {
            all.push(Runtime { path, args });
        }
    }
    all
}

/// Returns the options before the code, by the name of the program. None of them installs packages.
fn options(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let words: &[&str] = if name.starts_with("bun") {
        &["--no-install", "-e"]
    } else if name.starts_with("deno") {
        return deno_options();
    } else {
        &["--input-type=module", "-e"]
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns Deno's options. It resolves names before the host runs, so it gets the replacement for
/// OpenCode's package as an import map.
fn deno_options() -> Vec<String> {
    let data = |kind: &str, text: &str| {
        let text = base64::engine::general_purpose::STANDARD.encode(text);
        format!("data:{kind};base64,{text}")
    };
    let replacement = data("text/javascript", STAND_IN);
    let imports: Map<_, _> = REPLACED
        .iter()
        .map(|name| ((*name).to_owned(), replacement.as_str().into()))
        .collect();
    let map = data(
        "application/json",
        &json!({ "imports": imports }).to_string(),
    );
    [
        "eval",
        "--quiet",
        "--no-config",
        "--no-remote",
        "--node-modules-dir=manual",
        &format!("--import-map={map}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_depend_on_the_name_of_the_program() {
        let first = |path: &str| options(Path::new(path)).swap_remove(0);
        assert_eq!(first("/opt/bun-1.2/bin/bun"), "--no-install");
        assert_eq!(first("/opt/node-22/bin/node"), "--input-type=module");
        assert_eq!(first("/usr/bin/nodejs"), "--input-type=module");
        assert_eq!(first("/usr/bin/deno"), "eval");
        // The longest argument that Linux takes.
        assert!(deno_options().iter().all(|word| word.len() < 128 << 10));
    }
}
