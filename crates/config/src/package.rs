//! npm packages that settings name as plugins: their names, and the place in adjutant's own cache
//! where `adjutant extensions install` puts them. This module reads what is there and fetches
//! nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::node::SourceLocation;
use base::environment::Environment;

/// The file that describes an installed package, in its own directory of the cache. It is written
/// last, so a directory without it is not an installation.
pub const RECORD: &str = "adjutant-package.json";

/// The maximum size of a record, in bytes.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// The name of a package in a registry, with the version, range or tag that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageSpec {
    pub name: String,
    /// `None` for the newest version.
    pub wanted: Option<String>,
}

impl PackageSpec {
    /// Parses `name`, `name@1.2` or `@scope/name@latest`. Returns `None` for anything else, such as
    /// an address or a repository.
    pub fn parse(spec: &str) -> Option<Self> {
        let (name, wanted) = match spec.char_indices().skip(1).find(|(_, c)| *c == '@') {
            Some((at, _)) => (&spec[..at], Some(&spec[at + 1..])),
            None => (spec, None),
        };
        let part = |part: &str| {
            let starts = part.starts_with(|c: char| c.is_ascii_alphanumeric());
            let fits = |c: char| c.is_ascii_alphanumeric() || "._~-".contains(c);
            starts && part.chars().all(fits) && part.len() <= 128
        };
        let is_name = match name.strip_prefix('@') {
            Some(scoped) => scoped
                .split_once('/')
                .is_some_and(|(scope, name)| part(scope) && part(name)),
            None => part(name),
        };
        let is_version = |wanted: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || ".^~<>=+-_*".contains(c);
            !wanted.is_empty() && wanted.len() <= 64 && wanted.chars().all(fits)
        };
        (is_name && wanted.is_none_or(is_version)).then(|| Self {
            name: name.to_owned(),
            wanted: wanted.map(str::to_owned),
        })
    }
}

/// A package of an installed tree, as the registry's answer pins it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPackage {
    pub name: String,
    pub version: String,
    /// The digest of its archive, such as `sha512-…`.
    pub integrity: String,
}

/// The description of an installed package and of everything that came with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageRecord {
    /// The package as the settings name it.
    pub spec: String,
    pub name: String,
    pub version: String,
    /// All packages of the tree, this one first.
    pub packages: Vec<PinnedPackage>,
    /// The digest of all installed files.
    pub files: String,
}

impl PackageRecord {
    /// Reads the record of a directory in the cache.
    pub fn read(dir: &Path) -> Option<Self> {
        let path = dir.join(RECORD);
        let bytes = base::file::read_small(&path, MAX_RECORD_BYTES).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns the text that a consent covers: each package with its digest, and the digest of the
    /// files.
    pub(crate) fn content(&self) -> String {
        let pinned = |package: &PinnedPackage| {
            format!(
                "{} {} {}\n",
                package.name, package.version, package.integrity
            )
        };
        let tree: String = self.packages.iter().map(pinned).collect();
        format!("{}\n{tree}{}\n", self.spec, self.files)
    }

    /// Describes the package for a list: the version, and the number of packages.
    pub fn summary(&self) -> String {
        let others = base::text::count(self.packages.len().saturating_sub(1), "package");
        format!("{} {} with {others} it needs", self.name, self.version)
    }
}

/// A package that settings name as a plugin and that is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPackage {
    /// The package as the settings name it.
    pub spec: String,
    /// True if a project's file names it.
    pub project: bool,
    pub location: SourceLocation,
}

/// A custom tool or plugin that is not loaded because of the way the settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableScript {
    /// `true` for a file of another program, which is not a mistake.
    pub is_foreign: bool,
    pub kind: super::script_kind::ScriptKind,
    pub name: String,
    pub why: String,
    pub location: SourceLocation,
}

/// Returns the directory of all packages that adjutant has installed.
pub fn cache(environment: &Environment) -> PathBuf {
    environment.dirs.cache.join("plugins")
}

/// Returns the directory of an installed package, as named in the settings. The package itself is
/// below `node_modules` in it.
pub fn directory(environment: &Environment, spec: &str) -> PathBuf {
    cache(environment).join(spec.replace('/', "+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_registry_are_packages() {
        let table = [
            ("oh-my-openagent", Some(("oh-my-openagent", None))),
            ("a@1.2.3", Some(("a", Some("1.2.3")))),
            ("@s/a", Some(("@s/a", None))),
            ("@s/a@latest", Some(("@s/a", Some("latest")))),
            ("a@^1.0.0-beta.2", Some(("a", Some("^1.0.0-beta.2")))),
            ("", None),
            ("..", None),
            ("@", None),
            ("@s", None),
            ("@s/../a", None),
            ("a/b", None),
            ("a@", None),
            ("a@../b", None),
            ("a@npm:b@1", None),
            ("a@file:x", None),
            ("github:a/b", None),
            ("git+https://x/y.git", None),
            ("https://x/y.tgz", None),
            ("--registry=x", None),
        ];
        for (spec, wanted) in table {
            let parsed = PackageSpec::parse(spec);
            let parsed = parsed
                .as_ref()
                .map(|spec| (spec.name.as_str(), spec.wanted.as_deref()));
            assert_eq!(parsed, wanted, "{spec}");
        }
    }
}
