//! Installs the npm packages that settings name as plugins into adjutant's own cache. Only
//! `adjutant extensions install` does this.
//!
//! It takes two steps, so that the user sees the packages before they are fetched. [`plan`] has npm or bun
//! resolve the whole tree of a package and write a lock file, in which every entry must have a strong
//! digest. [`PlannedPackage::install`] then fetches exactly these archives, whose digests the package
//! manager checks, and runs none of their scripts. Both work in a directory of the cache, to which no
//! settings of a project apply.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use tempfile::TempDir;

use base::environment::{Environment, private_dir, write_private_file};
use base::text;
use config::package::{self, PackageRecord, PackageSpec, PinnedPackage, RECORD};
use sandbox::process::Program;

/// The time limit for each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum size of a lock file, in bytes.
const MAX_LOCK_BYTES: u64 = 64 << 20;

/// The directory for Bun's cache, below the staging directory.
const BUN_CACHE: &str = ".bun-cache";

/// The options of npm for both steps. npm prepares a dependency from a repository by installing in
/// a copy of it, where the repository's own settings choose the program that is run as git,
/// regardless of `--ignore-scripts`. So nothing comes from git: npm since 11.10 knows
/// `--allow-git`, and earlier versions find no git that can be started. The rest overrides what the
/// user's settings may say.
const NPM_OPTIONS: [&str; 11] = [
    "--ignore-scripts",
    "--allow-git=none",
    "--git=/dev/null",
    "--package-lock",
    "--no-global",
    "--no-workspaces",
    "--omit=dev",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
];

/// The keys of the dependencies in an entry of npm's lock file.
const DEPENDENCY_KEYS: [&str; 3] = ["dependencies", "optionalDependencies", "peerDependencies"];

/// The prefixes of digests that are strong enough to pin an archive. SHA-1 is not.
const STRONG_DIGESTS: [&str; 3] = ["sha512-", "sha384-", "sha256-"];

/// The program that resolves and fetches packages.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PackageManager {
    Npm(PathBuf),
    Bun(PathBuf),
}

/// A package whose tree is resolved. Only its lock file exists so far.
#[derive(Debug)]
pub struct PlannedPackage {
    /// The directory with the lock file, which becomes the installation.
    staging: TempDir,
    manager: PackageManager,
    /// The record of the installation, without the digest of the files.
    pub record: PackageRecord,
    /// The number of packages whose install scripts will not run.
    pub script_count: usize,
}

/// The resolved tree of a package.
#[derive(Debug, Default, PartialEq, Eq)]
struct PackageTree {
    /// The version of the requested package.
    version: String,
    packages: Vec<PinnedPackage>,
    /// The number of packages with install scripts.
    script_count: usize,
    /// The paths of packages for other systems, which must not be fetched.
    other_systems: Vec<String>,
}

/// Resolves the whole tree of a package. `written` is its entry in the settings.
///
/// # Errors
/// The tree cannot be resolved or is not pinned. The message continues a sentence that begins with the
/// package's name.
pub async fn plan(written: &str, environment: &Environment) -> Result<PlannedPackage, String> {
    let spec = PackageSpec::parse(written)
        .ok_or_else(|| "is not the name of a package in a registry".to_owned())?;
    let manager = PackageManager::find(environment)?;
    let staging = create_staging(&spec, environment)
        .map_err(|e| format!("cannot be installed: the cache cannot be written: {e}"))?;
    manager
        .run(&manager.resolve_arguments(), staging.path(), environment)
        .await?;
    let tree = manager.read_tree(staging.path(), &spec.name)?;
    Ok(PlannedPackage {
        staging,
        manager,
        script_count: tree.script_count,
        record: PackageRecord {
            spec: written.to_owned(),
            name: spec.name,
            version: tree.version,
            packages: tree.packages,
            files: String::new(),
        },
    })
}

/// Creates a directory with a manifest that depends on the package alone.
fn create_staging(spec: &PackageSpec, environment: &Environment) -> std::io::Result<TempDir> {
    let cache = package::cache(environment);
    private_dir(&cache)?;
    let staging = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(&cache)?;
    let wanted = spec.wanted.as_deref().unwrap_or("latest");
    let manifest = json!({ "private": true, "dependencies": { &spec.name: wanted } });
    write_private_file(
        &staging.path().join("package.json"),
        manifest.to_string().as_bytes(),
    )?;
    Ok(staging)
}

fn read_lock(path: &Path) -> Result<String, String> {
    let missing = |e: std::io::Error| format!("has no lock file: {e}");
    let file = std::fs::File::open(path).map_err(missing)?;
    let mut text = String::new();
    file.take(MAX_LOCK_BYTES)
        .read_to_string(&mut text)
        .map_err(missing)?;
    Ok(text)
}

impl PlannedPackage {
    /// Fetches the packages of the tree, and replaces an earlier installation under the same name.
    ///
    /// # Errors
    /// The package cannot be installed. The message continues a sentence that begins with the
    /// package's name.
    pub async fn install(mut self, environment: &Environment) -> Result<PackageRecord, String> {
        self.manager
            .run(
                &self.manager.fetch_arguments(),
                self.staging.path(),
                environment,
            )
            .await?;
        let fetched = self
            .manager
            .read_tree(self.staging.path(), &self.record.name)?;
        let is_fetched = |path: &String| {
            std::fs::read_dir(self.staging.path().join(path))
                .is_ok_and(|mut entries| entries.next().is_some())
        };
        if fetched.packages != self.record.packages || fetched.other_systems.iter().any(is_fetched)
        {
            return Err("is not installed: what was fetched is not what was shown".to_owned());
        }
        let target = package::directory(environment, &self.record.spec);
        let manifest = ["node_modules", &self.record.name, "package.json"]
            .iter()
            .fold(self.staging.path().to_owned(), |dir, part| dir.join(part));
        if !manifest.is_file() {
            return Err("was fetched, but is not a package: it has no package.json".to_owned());
        }
        let done = base::task::spawn_blocking(move || {
            self.record.files = digest_of_files(&self.staging.path().join("node_modules"))?;
            move_into_place(self.staging, &target, &self.record)?;
            Ok(self.record)
        });
        let done: std::io::Result<PackageRecord> = done
            .await
            .unwrap_or_else(|e| Err(std::io::Error::other(e.to_string())));
        done.map_err(|e| format!("cannot be stored in the cache: {e}"))
    }
}

/// Moves an installation to its final directory, in place of an earlier one. The record is written
/// before, so that a package in that directory is complete.
fn move_into_place(staging: TempDir, target: &Path, record: &PackageRecord) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(record)?;
    write_private_file(&staging.path().join(RECORD), &text)?;
    let mut backup = None;
    if target.symlink_metadata().is_ok() {
        let parent = target.parent().unwrap_or(target);
        let replaced = tempfile::Builder::new()
            .prefix(".replaced-")
            .tempdir_in(parent)?;
        std::fs::rename(target, replaced.path().join("old"))?;
        backup = Some(replaced);
    }
    if let Err(e) = std::fs::rename(staging.path(), target) {
        if let Some(replaced) = &backup {
            std::fs::rename(replaced.path().join("old"), target)?;
        }
        return Err(e);
    }
    // The directory has another name now, which stays.
    let _ = staging.keep();
    Ok(())
}

/// Returns the digest of all files below a directory: their paths and contents, and the targets of
/// links.
fn digest_of_files(dir: &Path) -> std::io::Result<String> {
    let mut whole = Context::new(&SHA256);
    let mut pending = vec![PathBuf::new()];
    let mut files = BTreeMap::new();
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(dir.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push(path);
            } else {
                files.insert(path, kind.is_symlink());
            }
        }
    }
    let mut buffer = vec![0; 64 << 10];
    for (path, is_link) in files {
        let mut one = Context::new(&SHA256);
        if is_link {
            let target = std::fs::read_link(dir.join(&path))?;
            one.update(target.as_os_str().as_encoded_bytes());
        } else {
            let mut file = std::fs::File::open(dir.join(&path))?;
            loop {
                let count = file.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                one.update(buffer.get(..count).unwrap_or_default());
            }
        }
        whole.update(path.as_os_str().as_encoded_bytes());
        whole.update(&[0, u8::from(is_link)]);
        whole.update(one.finish().as_ref());
    }
    Ok(text::hex(whole.finish().as_ref()))
}

/// Returns whether the files of an installation are still those that were installed.
///
/// # Errors
/// The files cannot be read.
pub(crate) fn is_unchanged(
    record: &PackageRecord,
    environment: &Environment,
) -> std::io::Result<bool> {
    let dir = package::directory(environment, &record.spec).join("node_modules");
    Ok(digest_of_files(&dir)? == record.files)
}

impl PackageManager {
    /// Reads the tree of the lock file in a directory.
    fn read_tree(&self, dir: &Path, name: &str) -> Result<PackageTree, String> {
        let malformed =
            |e: &dyn std::fmt::Display| format!("has a lock file that is not JSON: {e}");
        match self {
            Self::Npm(_) => {
                let lock = read_lock(&dir.join("package-lock.json"))?;
                let lock = serde_json::from_str(&lock).map_err(|e| malformed(&e))?;
                npm_tree(&lock, name)
            }
            Self::Bun(_) => {
                let lock = read_lock(&dir.join("bun.lock"))?;
                let lock = jsonc_parser::parse_to_serde_value(&lock, &Default::default());
                bun_tree(&lock.map_err(|e| malformed(&e))?, name)
            }
        }
    }

    /// Finds npm, or otherwise bun, on `PATH`.
    fn find(environment: &Environment) -> Result<Self, String> {
        let on_path = |name: &str| base::executable::find(name, search_path(environment));
        on_path("npm")
            .map(Self::Npm)
            .or_else(|| on_path("bun").map(Self::Bun))
            .ok_or_else(|| "cannot be installed: there is neither npm nor bun on PATH".to_owned())
    }

    /// Returns the arguments for writing the lock file.
    fn resolve_arguments(&self) -> Vec<&'static str> {
        match self {
            Self::Npm(_) => [&["install", "--package-lock-only"][..], &NPM_OPTIONS].concat(),
            Self::Bun(_) => vec!["install", "--lockfile-only", "--ignore-scripts"],
        }
    }

    /// Returns the arguments for fetching exactly the packages of the lock file.
    fn fetch_arguments(&self) -> Vec<&'static str> {
        match self {
            // `npm ci` refuses lock files that npm itself has written, if an optional package for
            // another system is missing in the registry.
            Self::Npm(_) => [&["install"][..], &NPM_OPTIONS].concat(),
            Self::Bun(_) => vec!["install", "--frozen-lockfile", "--ignore-scripts"],
        }
    }

    /// Runs the package manager in a directory.
    async fn run(
        &self,
        arguments: &[&str],
        dir: &Path,
        environment: &Environment,
    ) -> Result<(), String> {
        let (program, name) = match self {
            Self::Npm(path) => (path, "npm"),
            Self::Bun(path) => (path, "bun"),
        };
        let mut variables = variables(environment);
        // Bun does not check its cache again.
        let cache = dir.join(BUN_CACHE);
        variables.insert("BUN_INSTALL_CACHE_DIR".into(), cache.clone().into());
        let ran = Program::new(program, dir, variables)
            .args(arguments.iter().copied())
            .run(STEP_TIMEOUT)
            .await
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::TimedOut => format!(
                    "is not installed: {name} did not end within {} minutes",
                    STEP_TIMEOUT.as_secs() / 60
                ),
                _ => format!("is not installed: {name} did not run: {e}"),
            })?;
        if ran.status.success() {
            // There is none with npm.
            std::fs::remove_dir_all(&cache).ok();
            return Ok(());
        }
        let printed = [ran.stderr, ran.stdout].concat();
        let printed = String::from_utf8_lossy(&printed);
        if printed.contains("spawn /dev/null") {
            return Err("is not installed: it needs a package from git".to_owned());
        }
        Err(format!(
            "is not installed: {name}: {}",
            failure_reason(&printed)
        ))
    }
}

/// Returns the variables for the package manager. npm passes the settings of a project, and so its
/// registry, to the programs that it starts; they are left out if it has started adjutant.
fn variables(environment: &Environment) -> BTreeMap<OsString, OsString> {
    let is_below_npm = environment.var("npm_execpath").is_some();
    let is_from_npm = |name: &str| name.to_ascii_lowercase().starts_with("npm_");
    environment
        .vars()
        .filter(|(name, _)| !(is_below_npm && is_from_npm(name)))
        .map(|(name, value)| (name.into(), value.into()))
        .chain(std::env::join_paths(search_path(environment)).map(|path| ("PATH".into(), path)))
        .collect()
}

/// Returns the directories of programs, without a project's own, which npm puts in front when it
/// starts adjutant and which may contain another `npm` or `node`.
fn search_path(environment: &Environment) -> Vec<PathBuf> {
    let mut path = environment.path();
    path.retain(|dir| !dir.ends_with("node_modules/.bin"));
    path
}

/// Returns the reason for a failure from the output of npm or bun: the first lines with more than an
/// error code.
fn failure_reason(printed: &str) -> String {
    const MAX_LINES: usize = 2;
    let lines = printed.lines().map(|line| {
        let line = line.trim();
        ["npm error", "npm ERR!", "error:"]
            .iter()
            .find_map(|prefix| line.strip_prefix(prefix))
            .unwrap_or(line)
            .trim()
    });
    let informative = lines.filter(|line| {
        let is_code = line.starts_with("code ") || line.starts_with("A complete log");
        !line.is_empty() && !is_code
    });
    let lines: Vec<&str> = informative.take(MAX_LINES).collect();
    if lines.is_empty() {
        return "it failed and does not say why".to_owned();
    }
    text::title(&lines.join("; "))
}

/// Reads the tree of a lock file of npm.
fn npm_tree(lock: &Value, name: &str) -> Result<PackageTree, String> {
    let entries = lock
        .get("packages")
        .and_then(Value::as_object)
        .ok_or_else(|| "has a lock file without packages".to_owned())?;
    let mut tree = PackageTree::default();
    for (path, entry) in entries {
        let Some((_, placed)) = path.rsplit_once("node_modules/") else {
            continue;
        };
        let field = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let is = |key: &str| entry.get(key).and_then(Value::as_bool) == Some(true);
        // Packages inside an archive are pinned with it, and are not fetched.
        let is_fetched = !(field("resolved").is_empty() && field("integrity").is_empty());
        if is("inBundle") && !is_fetched {
            continue;
        }
        if !is_for_this_machine(entry) {
            tree.other_systems.push(path.clone());
            continue;
        }
        let named = Some(field("name"))
            .filter(|name| !name.is_empty())
            .unwrap_or(placed);
        if is("link") {
            return Err(not_in_registry(named));
        }
        check_dependencies(entry)?;
        tree.script_count += usize::from(is("hasInstallScript"));
        if *path == format!("node_modules/{name}") {
            tree.version = field("version").to_owned();
        }
        let package = check_pinned(
            named,
            field("version"),
            field("integrity"),
            field("resolved"),
        )?;
        tree.packages.push(package);
    }
    tree.sorted(name)
}

/// Returns the error for a dependency that is not a package of a registry.
fn not_in_registry(name: &str) -> String {
    format!(
        "needs {}, which is not a package of a registry",
        text::title(name)
    )
}

/// Checks that everything that an entry of npm's lock file needs is named as a package of a
/// registry. An archive at any other address would be shown under the name and version that it
/// gives itself.
fn check_dependencies(entry: &Value) -> Result<(), String> {
    let dependencies = DEPENDENCY_KEYS
        .iter()
        .filter_map(|key| entry.get(key).and_then(Value::as_object))
        .flatten();
    for (name, wanted) in dependencies {
        let wanted = wanted.as_str().unwrap_or_default();
        if !wanted.starts_with("npm:") && wanted.contains([':', '/']) {
            return Err(format!(
                "needs {} from {}, which is not a package of a registry",
                text::title(name),
                text::title(wanted)
            ));
        }
    }
    Ok(())
}

/// Reads the tree of a lock file of bun. A package of a registry is a list of its name and version,
/// the address if it is another registry's, what it needs, and its digest.
fn bun_tree(lock: &Value, name: &str) -> Result<PackageTree, String> {
    let entries = lock
        .get("packages")
        .and_then(Value::as_object)
        .ok_or_else(|| "has a lock file without packages".to_owned())?;
    let mut tree = PackageTree::default();
    for (path, entry) in entries {
        let field = |at: usize| entry.get(at).and_then(Value::as_str).unwrap_or_default();
        let (named, version) = field(0).rsplit_once('@').unwrap_or((path, ""));
        if entry
            .get(2)
            .is_some_and(|about| !is_for_this_machine(about))
        {
            continue;
        }
        if entry.as_array().is_none_or(|entry| entry.len() != 4) {
            return Err(not_in_registry(named));
        }
        if path == name {
            tree.version = version.to_owned();
        }
        tree.packages
            .push(check_pinned(named, version, field(3), field(1))?);
    }
    tree.sorted(name)
}

/// Checks that an archive is pinned by a strong digest, and is fetched over a secure connection.
fn check_pinned(
    name: &str,
    version: &str,
    integrity: &str,
    address: &str,
) -> Result<PinnedPackage, String> {
    if !(address.is_empty() || is_secure(address)) {
        return Err(format!(
            "needs {} from {}, which is not an https address of a registry",
            text::title(name),
            text::title(address)
        ));
    }
    if !STRONG_DIGESTS
        .iter()
        .any(|digest| integrity.starts_with(digest))
    {
        return Err(format!(
            "needs {} {}, for which the registry has no digest that pins it",
            text::title(name),
            text::title(version)
        ));
    }
    Ok(PinnedPackage {
        name: name.to_owned(),
        version: version.to_owned(),
        integrity: integrity.to_owned(),
    })
}

/// Returns whether an address is reached over TLS, or on this machine.
fn is_secure(address: &str) -> bool {
    let on_this_machine = ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| {
        address
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_prefix(host))
            .is_some_and(|rest| rest.starts_with([':', '/']))
    });
    address.starts_with("https://") || on_this_machine
}

/// Returns whether an entry of a lock file is installed on this system. Lock files have the
/// variants of a package for all systems.
fn is_for_this_machine(entry: &Value) -> bool {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let allows = |key: &str, own: &str| {
        let listed: Vec<&str> = match entry.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one],
            _ => return true,
        };
        let excluded = listed
            .iter()
            .any(|name| name.strip_prefix('!').is_some_and(|name| name == own));
        let only: Vec<&&str> = listed
            .iter()
            .filter(|name| !name.starts_with('!'))
            .collect();
        !excluded && (only.is_empty() || only.iter().any(|name| **name == own))
    };
    allows("os", system) && allows("cpu", processor)
}

impl PackageTree {
    /// Sorts the packages, the named one first, and removes duplicates.
    ///
    /// # Errors
    /// The named one is not among them.
    fn sorted(mut self, name: &str) -> Result<Self, String> {
        if self.version.is_empty() {
            return Err("is not in its own lock file".to_owned());
        }
        let version = self.version.clone();
        self.packages.sort_by(|a, b| {
            let key = |package: &PinnedPackage| {
                let is_other = package.name != name || package.version != version;
                (is_other, package.name.clone(), package.version.clone())
            };
            key(a).cmp(&key(b))
        });
        self.packages.dedup();
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tree: Result<PackageTree, String>) -> Result<String, String> {
        let tree = tree?;
        let packages: Vec<String> = tree
            .packages
            .iter()
            .map(|package| format!("{} {}", package.name, package.version))
            .collect();
        Ok(format!(
            "{}: {}; {}",
            tree.version,
            packages.join(", "),
            tree.script_count
        ))
    }

    #[test]
    fn lock_file_of_npm_must_pin_the_whole_tree() {
        let plain =
            json!({"version": "1.0.0", "integrity": "sha512-a", "resolved": "https://r/a.tgz"});
        let with = |path: &str, change: Value| {
            let mut entry = plain.clone();
            for (key, value) in change.as_object().unwrap() {
                entry[key] = value.clone();
            }
            json!({"packages": {"": {}, "node_modules/z": plain, path: entry}})
        };
        let table = [
            (
                "nested, and bundled",
                with(
                    "node_modules/z/node_modules/@s/b",
                    json!({"hasInstallScript": true}),
                ),
                Ok("1.0.0: z 1.0.0, @s/b 1.0.0; 1"),
            ),
            (
                "an alias",
                with("node_modules/b", json!({"name": "real"})),
                Ok("1.0.0: z 1.0.0, real 1.0.0; 0"),
            ),
            (
                "bundled",
                with(
                    "node_modules/b",
                    json!({"inBundle": true, "integrity": "", "resolved": ""}),
                ),
                Ok("1.0.0: z 1.0.0; 0"),
            ),
            (
                "bundled, but fetched",
                with("node_modules/b", json!({"inBundle": true})),
                Ok("1.0.0: z 1.0.0, b 1.0.0; 0"),
            ),
            (
                "bundled, but fetched without digest",
                with("node_modules/b", json!({"inBundle": true, "integrity": ""})),
                Err("needs b 1.0.0, for which the registry has no digest that pins it"),
            ),
            (
                "with a name for another package",
                with(
                    "node_modules/b",
                    json!({"dependencies": {"c": "npm:@s/c@1", "d": "^1 || >=2"}}),
                ),
                Ok("1.0.0: z 1.0.0, b 1.0.0; 0"),
            ),
            (
                "needs an archive at an address",
                with(
                    "node_modules/b",
                    json!({"optionalDependencies": {"lodash": "https://evil.example/l.tgz"}}),
                ),
                Err(
                    "needs lodash from https://evil.example/l.tgz, which is not a package of a registry",
                ),
            ),
            (
                "needs a repository",
                with("node_modules/b", json!({"dependencies": {"c": "a/c#1"}})),
                Err("needs c from a/c#1, which is not a package of a registry"),
            ),
            (
                "for another system",
                with("node_modules/b", json!({"os": ["plan9"], "integrity": ""})),
                Ok("1.0.0: z 1.0.0; 0"),
            ),
            (
                "without digest",
                with("node_modules/b", json!({"integrity": ""})),
                Err("needs b 1.0.0, for which the registry has no digest that pins it"),
            ),
            (
                "with a weak digest",
                with("node_modules/b", json!({"integrity": "sha1-a"})),
                Err("needs b 1.0.0, for which the registry has no digest that pins it"),
            ),
            (
                "from git",
                with(
                    "node_modules/b",
                    json!({"resolved": "git+ssh://git@github.com/a/b.git#1"}),
                ),
                Err(
                    "needs b from git+ssh://git@github.com/a/b.git#1, which is not an https address of a registry",
                ),
            ),
            (
                "in the clear",
                with(
                    "node_modules/b",
                    json!({"resolved": "http://localhost.example/b.tgz"}),
                ),
                Err(
                    "needs b from http://localhost.example/b.tgz, which is not an https address of a registry",
                ),
            ),
            (
                "a link",
                with("node_modules/b", json!({"link": true})),
                Err("needs b, which is not a package of a registry"),
            ),
            (
                "not itself",
                json!({"packages": {"node_modules/y": {}}}),
                Err("needs y , for which the registry has no digest that pins it"),
            ),
            ("empty", json!({}), Err("has a lock file without packages")),
        ];
        for (name, lock, wanted) in table {
            let found = listed(npm_tree(&lock, "z"));
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{name}");
        }
    }

    #[test]
    fn lock_file_of_bun_must_pin_the_whole_tree() {
        let table = [
            (
                r#"{"packages": {"z": ["z@1.0.0", "", {}, "sha512-a"], "b": ["@s/b@2.0.0", "", {"os": "linux"}, "sha512-b"],},}"#,
                if cfg!(target_os = "linux") {
                    Ok("1.0.0: z 1.0.0, @s/b 2.0.0; 0")
                } else {
                    Ok("1.0.0: z 1.0.0; 0")
                },
            ),
            (
                r#"{"packages": {"z": ["z@github:a/z#1", {}, "a-z-1"]}}"#,
                Err("needs z, which is not a package of a registry"),
            ),
            (
                r#"{"packages": {"z": ["z@1.0.0", "http://r.example/z.tgz", {}, "sha512-a"]}}"#,
                Err(
                    "needs z from http://r.example/z.tgz, which is not an https address of a registry",
                ),
            ),
        ];
        for (lock, wanted) in table {
            let lock = jsonc_parser::parse_to_serde_value(lock, &Default::default()).unwrap();
            let found = listed(bun_tree(&lock, "z"));
            assert_eq!(found.as_deref().map_err(String::as_str), wanted);
        }
    }

    #[test]
    fn reason_is_taken_from_the_output() {
        let npm = "npm error code E404\nnpm error 404 Not Found - GET http://r/x - not found\nnpm error 404\n";
        assert_eq!(
            failure_reason(npm),
            "404 Not Found - GET http://r/x - not found; 404"
        );
        assert_eq!(
            failure_reason("error: x failed to resolve\n"),
            "x failed to resolve"
        );
        assert_eq!(failure_reason("\n"), "it failed and does not say why");
    }

    #[test]
    fn settings_that_npm_passes_on_are_left_out() {
        let named = |vars: &[(&str, &str)]| {
            let vars = vars
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let variables = variables(&Environment::from_vars(vars.collect()));
            variables.contains_key(&OsString::from("npm_config_registry"))
        };
        let registry = ("npm_config_registry", "http://evil.example");
        assert!(named(&[registry]));
        assert!(!named(&[registry, ("npm_execpath", "/usr/bin/npm")]));
    }

    #[test]
    fn programs_of_projects_are_not_found() {
        let path = "/p/node_modules/.bin:/usr/bin";
        let environment = Environment::from_vars([("PATH".to_owned(), path.to_owned())].into());
        assert_eq!(search_path(&environment), [PathBuf::from("/usr/bin")]);
        let variables = variables(&environment);
        assert_eq!(
            variables.get(&OsString::from("PATH")),
            Some(&"/usr/bin".into())
        );
    }

    #[test]
    fn digest_covers_names_contents_and_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), "1").unwrap();
        std::os::unix::fs::symlink("a/b", dir.path().join("l")).unwrap();
        let mut seen = vec![digest_of_files(dir.path()).unwrap()];
        assert_eq!(digest_of_files(dir.path()).unwrap(), seen[0]);
        std::fs::write(dir.path().join("a/b"), "2").unwrap();
        seen.push(digest_of_files(dir.path()).unwrap());
        std::fs::rename(dir.path().join("a/b"), dir.path().join("a/c")).unwrap();
        seen.push(digest_of_files(dir.path()).unwrap());
        std::fs::remove_file(dir.path().join("l")).unwrap();
        std::os::unix::fs::symlink("a/c", dir.path().join("l")).unwrap();
        seen.push(digest_of_files(dir.path()).unwrap());
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }
}
