//! Circles of modules inside a crate. Cargo has none between crates, and rustc allows them between
//! modules.
//!
//! A module counts with everything in its folder: if `a/x.rs` uses `b` and `b/y.rs` uses `a`, they
//! form a circle. A module and the modules in its folder may use each other. A name that an upper
//! module re-exports counts as a use of the module that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::sources::{File, TESTS, files, without_tests};

/// The beginning of unit tests that need Unix.
const UNIX_TESTS: &str = "#[cfg(test)]\n#[cfg(unix)]\nmod tests {";

/// The path of a module from the root of its crate, `["turn", "next"]`.
type Module<'f> = Vec<&'f str>;

/// Returns the source folder of a file's crate, and the path of its module.
fn module(path: &Path) -> Option<(&str, Module<'_>)> {
    let path = path.to_str()?.strip_suffix(".rs")?;
    let at = path.find("src/")? + "src".len();
    let parts: Vec<&str> = path[at + 1..].split('/').collect();
    match parts[..] {
        ["main"] => None,
        ["lib"] => Some((&path[..at], Vec::new())),
        _ => Some((&path[..at], parts)),
    }
}

/// Returns the paths of `a::{b, c::{d, e}}`: `a::b`, `a::c::d`, `a::c::e`.
fn spread(paths: &str) -> Vec<String> {
    let Some((start, rest)) = paths.split_once('{') else {
        return vec![paths.trim().to_owned()];
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let mut all = Vec::new();
    let mut depth = 0_usize;
    let mut from = 0;
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let part = inner[from..at].trim();
                from = at + 1;
                if !part.is_empty() {
                    let start = start.trim();
                    all.extend(spread(part).into_iter().map(|end| format!("{start}{end}")));
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns the imports of a text, each with whether it is re-exported.
fn imports(text: &str) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        let start = from + line.len() - line.trim_start().len();
        from += line.len();
        let public = line.trim_start().starts_with("pub");
        let visibility = match line.find("use ") {
            Some(end) if public => &line.trim_start()[..end + line.trim_start().len() - line.len()],
            _ => "",
        };
        let is_visibility = visibility == "pub "
            || visibility.starts_with("pub(")
                && visibility.find(") ") == Some(visibility.len() - 2);
        let rest = if is_visibility {
            &text[start + visibility.len()..]
        } else {
            &text[start..]
        };
        let tree = rest
            .strip_prefix("use ")
            .and_then(|rest| rest.split_once(';'));
        if let Some((tree, _)) = tree {
            found.extend(spread(tree).into_iter().map(|path| (public, path)));
        }
    }
    found
}

/// Returns the paths in a text that begin with `crate` or `super`, outside of its imports.
fn qualified_paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("//") {
            continue;
        }
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start) {
                let is_inner =
                    line[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
                let is_visibility = line[..at].ends_with("in ");
                if is_inner || is_visibility {
                    continue;
                }
                let end = line[at..].find(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
                found.push(line[at..end.map_or(line.len(), |end| at + end)].to_owned());
            }
        }
    }
    found
}

/// The modules of one crate, and the names that they re-export.
#[derive(Default)]
struct Crate<'f> {
    modules: BTreeMap<Module<'f>, &'f str>,
    exports: BTreeMap<(Module<'f>, String), String>,
}

impl<'f> Crate<'f> {
    /// Returns the module of the item that a path names, if it is in this crate.
    fn resolve(&self, from: &[&'f str], path: &str, hops: usize) -> Option<Module<'f>> {
        let mut parts = path
            .split("::")
            .map(|part| part.trim().split(' ').next().unwrap_or(part));
        let mut at = from.to_vec();
        let mut part = parts.next()?;
        match part {
            "crate" => {
                at.clear();
                part = parts.next()?;
            }
            "self" => part = parts.next()?,
            "super" => {
                while part == "super" {
                    at.pop();
                    part = parts.next()?;
                }
            }
            _ => {
                self.child(&at, part)?;
            }
        }
        while let Some(child) = self.child(&at, part) {
            at = child;
            let Some(next) = parts.next() else {
                return Some(at);
            };
            part = next;
        }
        match self.exports.get(&(at.clone(), part.to_owned())) {
            Some(path) if hops > 0 => self.resolve(&at, path, hops - 1).or(Some(at)),
            _ => Some(at),
        }
    }

    fn child(&self, at: &[&'f str], name: &str) -> Option<Module<'f>> {
        let (child, _) = self.modules.iter().find(|(module, _)| {
            module
                .split_last()
                .is_some_and(|(last, up)| up == at && *last == name)
        })?;
        Some(child.clone())
    }

    /// Returns which module uses which, as neighbours in one folder.
    fn uses(&self) -> BTreeMap<Module<'f>, BTreeMap<&'f str, BTreeSet<&'f str>>> {
        let mut folders: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
        for (module, text) in &self.modules {
            let imported = imports(text).into_iter().map(|(_, path)| path);
            for path in imported.chain(qualified_paths(text)) {
                let Some(used) = self.resolve(module, &path, 4) else {
                    continue;
                };
                let shared = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(own), Some(other)) = (module.get(shared), used.get(shared)) {
                    let folder: &mut BTreeMap<_, BTreeSet<_>> =
                        folders.entry(module[..shared].to_vec()).or_default();
                    folder.entry(*own).or_default().insert(*other);
                }
            }
        }
        folders
    }
}

/// Returns everything that is reached from a module.
fn reached<'f>(uses: &BTreeMap<&'f str, BTreeSet<&'f str>>, from: &str) -> BTreeSet<&'f str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = uses.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = open.pop() {
        if seen.insert(module) {
            open.extend(uses.get(module).into_iter().flatten());
        }
    }
    seen
}

/// Returns the circles of all crates: a folder, and the modules in it that reach each other.
fn circles(files: &[File]) -> BTreeSet<(String, Vec<String>)> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for file in files {
        let text = without_tests(file, TESTS);
        let text = text.split(UNIX_TESTS).next().unwrap_or_default();
        let Some((source, module)) = module(&file.path) else {
            continue;
        };
        if text.is_empty() {
            continue;
        }
        let own = crates.entry(source).or_default();
        for (_, path) in imports(text).into_iter().filter(|(public, _)| *public) {
            let name = path.rsplit([':', ' ']).next().unwrap_or_default();
            own.exports
                .insert((module.clone(), name.to_owned()), path.clone());
        }
        own.modules.insert(module, text);
    }
    let mut found = BTreeSet::new();
    for (source, own) in &crates {
        for (folder, uses) in own.uses() {
            let place = [&[*source], &folder[..]].concat().join("/");
            for module in uses.keys() {
                let circle: Vec<String> = reached(&uses, module)
                    .into_iter()
                    .filter(|other| reached(&uses, other).contains(module))
                    .map(str::to_owned)
                    .collect();
                if circle.len() > 1 {
                    found.insert((place.clone(), circle));
                }
            }
        }
    }
    found
}

#[test]
fn modules_form_no_circle() {
    let found = circles(files());
    assert!(
        found.is_empty(),
        "move the shared items below both sides: {found:#?}"
    );
}

#[test]
fn circle_is_found_through_folders_and_exports() {
    let file = |path: &str, text: &str| File {
        path: path.into(),
        text: text.to_owned(),
    };
    /// A name, the paths and texts of files, and the modules of the circle in them.
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    );
    let table: [Case; 7] = [
        (
            "none",
            &[("a", "use crate::b::{self, C};"), ("b", "//! b")],
            &[],
        ),
        (
            "imports",
            &[("a", "use crate::{x, b::C};"), ("b", "use super::a;")],
            &["a", "b"],
        ),
        (
            "paths in code",
            &[
                ("a", "fn f() {\n    crate::b::g();\n}"),
                ("b", "use crate::a::f;"),
            ],
            &["a", "b"],
        ),
        (
            "a file in a folder",
            &[
                ("a", "//! a"),
                ("a/x", "use crate::b;"),
                ("b", "//! b"),
                ("b/y", "use super::super::a::z;"),
            ],
            &["a", "b"],
        ),
        (
            "a name that the root re-exports",
            &[
                ("a", "use crate::f;"),
                ("b", "use crate::a;"),
                ("lib", "pub use self::b::f;"),
            ],
            &["a", "b"],
        ),
        (
            "a module and its folder",
            &[("a", "use self::x::X;"), ("a/x", "use super::Y;")],
            &[],
        ),
        (
            "comments, tests and visibilities",
            &[
                (
                    "a",
                    "// crate::b\npub(in crate::b) struct X;\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}",
                ),
                ("b", "use crate::a;"),
            ],
            &[],
        ),
    ];
    for (name, sources, wanted) in table {
        let sources: Vec<File> = sources
            .iter()
            .map(|(path, text)| file(&format!("none/src/{path}.rs"), text))
            .collect();
        let found: Vec<String> = circles(&sources)
            .into_iter()
            .flat_map(|(_, all)| all)
            .collect();
        assert_eq!(found, wanted, "{name}");
    }
}
