//! Credentials and services that are hidden from commands, and the commands that see them
//! nevertheless.
//!
//! `credentials.txt` is the table, and documents its own syntax. A row is visible to a line that
//! consists of the row's programs and plain filters, and to a line that names one of its files,
//! which asks. A line that starts anything else sees no row, because that program could read all of
//! them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::shell::{CommandAnalysis, CommandUnit, Effect};
use base::environment::Environment;

/// Git commands that contact other machines.
const REMOTE: &[&str] = &[
    "fetch",
    "pull",
    "push",
    "clone",
    "ls-remote",
    "submodule",
    "remote",
    "lfs",
    "annex",
    "fetch-pack",
    "send-pack",
];
/// Git commands that sign if this is configured.
const SIGNING: &[&str] = &[
    "commit",
    "tag",
    "merge",
    "rebase",
    "cherry-pick",
    "revert",
    "am",
    "pull",
    "push",
];
/// The part of a file that is read to recognise a private key, in bytes.
const KEY_HEAD: u64 = 512;
/// The maximum number of files per directory that are checked.
const MAX_FILES: usize = 256;

/// A row of the table.
#[derive(Debug, Default)]
pub struct CredentialRow {
    /// The name in the setting `sandbox.show`.
    pub name: &'static str,
    /// A description for people.
    pub description: &'static str,
    /// The programs that see it.
    pub programs: Vec<&'static str>,
    /// The files and directories to hide.
    places: Vec<&'static str>,
    /// The directories in which files are hidden if their content is a private key.
    keys: Vec<&'static str>,
    /// The environment variables that name further places.
    variables: Vec<&'static str>,
    /// The messages of programs that lack this credential.
    signs: Vec<&'static str>,
}

static ROWS: LazyLock<Vec<CredentialRow>> = LazyLock::new(|| {
    let mut rows: Vec<CredentialRow> = Vec::new();
    for line in include_str!("credentials.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            rows.push(CredentialRow {
                name,
                ..CredentialRow::default()
            });
            continue;
        }
        let (Some(row), Some((key, value))) = (rows.last_mut(), line.split_once(": ")) else {
            continue;
        };
        let words = || value.split_whitespace().collect();
        match key {
            "about" => row.description = value,
            "places" => row.places = words(),
            "keys" => row.keys = words(),
            "variables" => row.variables = words(),
            "programs" => row.programs = words(),
            "signs" => row.signs = value.split(" | ").collect(),
            _ => {}
        }
    }
    rows
});

/// Returns the table.
pub fn rows() -> &'static [CredentialRow] {
    &ROWS
}

impl CredentialRow {
    /// Returns the files of this row that exist on this machine, with symlinks resolved and without
    /// duplicates. `homes` are the user's home directories ([`homes`]).
    pub fn locate(&self, environment: &Environment, homes: &[PathBuf]) -> Vec<PathBuf> {
        let mut found = BTreeSet::new();
        let mut add = |path: PathBuf| {
            // Resolving a path asks for each of its components, and most paths do not exist.
            if path.symlink_metadata().is_ok()
                && let Ok(path) = std::fs::canonicalize(path)
            {
                found.insert(path);
            }
        };
        self.places
            .iter()
            .flat_map(|path| spelled(path, environment, homes))
            .flat_map(matching)
            .for_each(&mut add);
        self.keys
            .iter()
            .flat_map(|path| spelled(path, environment, homes))
            .flat_map(private_keys)
            .for_each(&mut add);
        self.variables
            .iter()
            .flat_map(|variable| named_by(variable, environment))
            .for_each(&mut add);
        if self.name == "agents" {
            add(environment.dirs.data.join("auth.json"));
        }
        found.into_iter().collect()
    }

    /// Returns whether a line consists of programs that need this row, and plain filters. `signs`
    /// returns whether git is configured to sign.
    pub fn is_for(&self, line: &CommandAnalysis, signs: &dyn Fn() -> bool) -> bool {
        if line.opaque.is_some() || !line.unparsed_texts.is_empty() {
            return false;
        }
        let mut needed = false;
        for unit in &line.units {
            if unit.opaque.is_some() {
                return false;
            }
            if self.is_for_unit(unit, signs) {
                needed = true;
                continue;
            }
            let is_redirection = unit.program.is_none() && !unit.path_uses.is_empty();
            // Git commands that are not remote are part of git itself.
            let is_git = self
                .programs
                .iter()
                .any(|program| program.starts_with("git:"))
                && unit.untrusted_program.is_none()
                && unit.program.as_deref() == Some("git");
            if unit.effect != Effect::Reads && !is_redirection && !is_git {
                return false;
            }
        }
        needed
    }

    fn is_for_unit(&self, unit: &CommandUnit, signs: &dyn Fn() -> bool) -> bool {
        if unit.untrusted_program.is_some() {
            return false;
        }
        let Some(program) = unit.program.as_deref() else {
            return false;
        };
        let name = program
            .strip_prefix("/usr/bin/")
            .or_else(|| program.strip_prefix("/bin/"))
            .unwrap_or(program);
        if self.programs.contains(&name) {
            return true;
        }
        if name != "git" {
            return false;
        }
        let Some(command) = git_command(&unit.normalized) else {
            return false;
        };
        let requests = |use_of_git: &str| self.programs.contains(&use_of_git);
        let is_sign_option = |word: &str| {
            word.starts_with("-S")
                || word.starts_with("--gpg-sign")
                || command == "tag" && ["-s", "--sign"].contains(&word)
        };
        let signed = || unit.normalized.split(' ').any(is_sign_option);
        requests("git:remote") && REMOTE.contains(&command)
            || requests("git:sign") && SIGNING.contains(&command) && (signed() || signs())
    }

    /// Returns whether the output of a program shows that it lacks this credential.
    pub fn is_missing_in(&self, printed: &str) -> bool {
        self.signs.iter().any(|sign| printed.contains(sign))
    }
}

/// Returns the subcommand of a git command line.
pub fn git_command(normal: &str) -> Option<&str> {
    let mut words = normal.split(' ').skip(1);
    loop {
        match words.next()? {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--config-env" => {
                words.next();
            }
            word if word.starts_with('-') => {}
            word => return Some(word),
        }
    }
}

/// Returns whether git is configured to sign, by the user's settings or by one of these git
/// directories.
pub fn git_signs(environment: &Environment, git_dirs: &[PathBuf]) -> bool {
    let homes = homes(environment);
    let own = homes
        .iter()
        .flat_map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
    let other = environment
        .var("XDG_CONFIG_HOME")
        .map(|dir| Path::new(dir).join("git/config"));
    let files = own
        .chain(other)
        .chain(git_dirs.iter().map(|dir| dir.join("config")));
    files
        .filter_map(|file| base::file::read_regular_text(&file).ok())
        .any(|text| text.to_lowercase().contains("gpgsign"))
}

/// Returns whether a line names one of these places or its parent directory. `root` is the project.
pub fn are_named(line: &CommandAnalysis, places: &[PathBuf], root: &Path) -> bool {
    let touched = line
        .units
        .iter()
        .flat_map(|unit| &unit.path_uses)
        .flat_map(|path_use| match &path_use.outside {
            Some(outside) => vec![outside.path.as_path()],
            None => path_use.patterns.iter().map(Path::new).collect(),
        });
    touched.map(|path| root.join(path)).any(|path| {
        let is_folder_of = |hidden: &PathBuf| {
            hidden.is_file() && hidden.parent() == Some(&path) && is_specific(&path)
        };
        places
            .iter()
            .any(|hidden| path.starts_with(hidden) || is_folder_of(hidden))
    })
}

/// Returns whether a directory is hidden and belongs to one program: `~/.ssh`, not the home
/// directory.
fn is_specific(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".")
        && ![".config", ".local", ".cache"]
            .iter()
            .any(|shared| name == *shared)
}

/// Returns whether a text could refer to a place: by its path, its path below the home directory,
/// its hidden directory there, or otherwise its name.
pub fn is_mentioned(text: &str, hidden: &Path, home: Option<&Path>) -> bool {
    let contains = |part: &OsStr| text.contains(&*part.to_string_lossy());
    let below = home.and_then(|home| hidden.strip_prefix(home).ok());
    let folder = below
        .and_then(|below| below.iter().next())
        .filter(|part| part.as_encoded_bytes().starts_with(b"."));
    let specific = folder.filter(|part| {
        ![".config", ".local", ".cache"]
            .iter()
            .any(|shared| part == shared)
    });
    let is_named = match specific {
        Some(folder) => contains(folder),
        None => hidden
            .file_name()
            .is_some_and(|name| name.len() > 3 && contains(name)),
    };
    is_named
        || contains(hidden.as_os_str())
        || below.is_some_and(|below| contains(below.as_os_str()))
}

/// Returns the home directory according to `HOME`, and that of the user database if it differs.
pub fn homes(environment: &Environment) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = environment.home.iter().cloned().collect();
    let user = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|entry| entry.get(2) == Some(&&*user));
    let listed = entry.and_then(|entry| entry.get(5).map(PathBuf::from));
    homes.extend(
        listed.filter(|home| home.is_absolute() && Some(home) != environment.home.as_ref()),
    );
    homes
}

/// Expands a place of the table to paths on this machine.
fn spelled(path: &str, environment: &Environment, homes: &[PathBuf]) -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw().to_string();
    let path = path.replace("UID", &user);
    if let Some(rest) = path.strip_prefix("~/") {
        return homes.iter().map(|home| home.join(rest)).collect();
    }
    if let Some(rest) = path.strip_prefix("TMP/") {
        return vec![environment.tmp().join(rest)];
    }
    if let Some(rest) = path.strip_prefix("RUN") {
        let usual = PathBuf::from(format!("/run/user/{user}"));
        let own = environment
            .var("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute());
        let dirs = own
            .into_iter()
            .filter(|own| *own != usual)
            .chain([usual.clone()]);
        return dirs
            .map(|dir| {
                if rest.is_empty() {
                    dir
                } else {
                    dir.join(&rest[1..])
                }
            })
            .collect();
    }
    vec![path.into()]
}

/// Expands a path whose last component may have a `*`.
fn matching(path: PathBuf) -> Vec<PathBuf> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let (Some((start, end)), Some(folder)) = (name.split_once('*'), path.parent()) else {
        return vec![path];
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |name: &str| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let fitting = entries.filter(|entry| fits(&entry.file_name().to_string_lossy()));
    fitting.map(|entry| entry.path()).take(MAX_FILES).collect()
}

/// Returns the files in a directory whose content is a private key.
fn private_keys(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_FILES);
    entries
        .map(|entry| entry.path())
        .filter(|path| is_private_key(path))
        .collect()
}

fn is_private_key(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut head = Vec::new();
    let read =
        base::file::open_regular(path).and_then(|file| file.take(KEY_HEAD).read_to_end(&mut head));
    let head = String::from_utf8_lossy(&head);
    read.is_ok() && (head.contains("PRIVATE KEY") || head.contains("PuTTY-User-Key-File"))
}

/// Returns the paths in the value of a variable.
fn named_by(variable: &str, environment: &Environment) -> Vec<PathBuf> {
    let (name, below) = variable.split_once('/').unwrap_or((variable, ""));
    let user = rustix::process::getuid().as_raw().to_string();
    let value = environment.var(name).unwrap_or_default();
    // `unix:///path` of docker, `unix:path=/path,guid=…` of D-Bus, lists of paths of Kubernetes.
    let paths = value
        .split([':', ',', ';', '='])
        .filter(|part| part.starts_with('/'));
    let paths = paths.map(|part| PathBuf::from(format!("/{}", part.trim_start_matches('/'))));
    paths
        .map(|path| {
            if below.is_empty() {
                path
            } else {
                path.join(below.replace("UID", &user))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::shell::analyze;
    use super::*;

    fn row(name: &str) -> &'static CredentialRow {
        rows().iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn every_row_is_complete() {
        let mut names = BTreeSet::new();
        for row in rows() {
            assert!(
                !row.description.is_empty() && names.insert(row.name),
                "{}",
                row.name
            );
            assert!(
                !row.places.is_empty() || !row.keys.is_empty(),
                "{}",
                row.name
            );
            let written = row.places.iter().chain(&row.keys);
            let starts = ["~/", "TMP/", "RUN", "/"];
            assert!(
                written
                    .clone()
                    .all(|path| starts.iter().any(|start| path.starts_with(start))),
                "{}",
                row.name
            );
        }
        assert!(rows().len() > 15);
    }

    #[test]
    fn credentials_are_located_by_variables() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let path = |name: &str| dir.join(name);
        for folder in ["home/.aws", "home/.ssh", "moved/kube", "cfg/gcloud", "run"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n";
        for (name, text) in [
            ("home/.ssh/work", key),
            ("home/.ssh/work.pub", "ssh-ed25519 AAAA"),
            ("home/.ssh/config", "Host x"),
            ("moved/kube/one", ""),
            ("moved/kube/two", ""),
            ("run/agent", ""),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        let shown = |name: &str| path(name).display().to_string();
        let vars = [
            ("HOME".to_owned(), shown("home")),
            (
                "KUBECONFIG".into(),
                format!("{}:{}", shown("moved/kube/one"), shown("moved/kube/two")),
            ),
            ("XDG_CONFIG_HOME".into(), shown("cfg")),
            (
                "DBUS_SESSION_BUS_ADDRESS".into(),
                format!("unix:path={},guid=1", shown("run/agent")),
            ),
        ];
        let environment = Environment::from_vars(vars.into());
        let own = |name: &str| {
            let places = row(name)
                .locate(&environment, &homes(&environment))
                .into_iter()
                .filter(|path| path.starts_with(&dir));
            places
                .map(|path| path.strip_prefix(&dir).unwrap().display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(own("aws"), ["home/.aws"]);
        assert_eq!(own("ssh-keys"), ["home/.ssh/work"]);
        assert_eq!(own("kubernetes"), ["moved/kube/one", "moved/kube/two"]);
        assert_eq!(own("gcloud"), ["cfg/gcloud"]);
        assert_eq!(own("user-services"), ["run/agent"]);
        assert!(own("azure").is_empty());
    }

    #[test]
    fn row_is_visible_to_its_own_programs_and_filters_only() {
        let lab = super::super::case_tables::PathFixture::new();
        // The line, whether git is configured to sign, the visible rows.
        let table: [(&str, bool, &[&str]); 16] = [
            ("aws s3 ls | head -3", false, &["aws"]),
            ("aws s3 ls > out.txt", false, &["aws"]),
            ("cd . && aws s3 ls", false, &["aws"]),
            ("aws s3 ls | python3 x.py", false, &[]),
            ("aws s3 ls; ./x", false, &[]),
            ("./aws s3 ls", false, &[]),
            ("python3 -c 'import boto3'", false, &[]),
            ("sh -c \"$X\" && aws s3 ls", false, &[]),
            (
                "git fetch origin",
                false,
                &["ssh-keys", "ssh-agent", "forges"],
            ),
            (
                "git -C . push origin main",
                false,
                &["ssh-keys", "ssh-agent", "forges"],
            ),
            ("git status", true, &[]),
            ("git commit -m x", false, &[]),
            (
                "git commit -m x",
                true,
                &["ssh-keys", "ssh-agent", "gnupg", "user-services"],
            ),
            (
                "git commit -S -m x",
                false,
                &["ssh-keys", "ssh-agent", "gnupg", "user-services"],
            ),
            (
                "kubectl get pods -o json | jq .items",
                false,
                &["kubernetes"],
            ),
            ("make deploy", true, &[]),
        ];
        for (text, signs, wanted) in table {
            let mut line = analyze(text, &lab.context);
            // Some of the programs may not be installed.
            for unit in &mut line.units {
                unit.untrusted_program
                    .take_if(|why| why.contains("not found"));
            }
            let seen: Vec<&str> = rows()
                .iter()
                .filter(|row| row.is_for(&line, &|| signs))
                .map(|row| row.name)
                .collect();
            assert_eq!(seen, wanted, "{text}: {:#?}", line.units);
        }
    }

    #[test]
    fn line_sees_credentials_that_it_names() {
        let lab = super::super::case_tables::PathFixture::new();
        let home = lab.context.home.clone().unwrap();
        let places = [home.join(".aws"), home.join(".ssh/id_work")];
        for folder in [".aws", ".ssh"] {
            std::fs::create_dir(home.join(folder)).unwrap();
        }
        std::fs::write(home.join(".ssh/id_work"), "").unwrap();
        for (text, named) in [
            ("cat ~/.aws/credentials", true),
            ("cd ~/.aws && cat config", true),
            ("ls -l ~/.ssh", true),
            ("ls -la ~", false),
            ("cat ~/.ssh/config", false),
            ("python3 -c 'open(\"~/.aws/config\")'", false),
        ] {
            assert_eq!(
                are_named(&analyze(text, &lab.context), &places, &lab.context.root),
                named,
                "{text}"
            );
        }
    }

    #[test]
    fn mentions_are_recognised_in_many_spellings() {
        let home = Path::new("/home/u");
        for (text, path, mentioned) in [
            ("open('/home/u/.aws/credentials')", "/home/u/.aws", true),
            ("Path.home() / '.aws' / 'credentials'", "/home/u/.aws", true),
            ("$HOME/.config/gcloud/x", "/home/u/.config/gcloud", true),
            ("cat ~/.ssh/id_work", "/home/u/.ssh/id_work", true),
            ("cat .config/app.toml", "/home/u/.config/op", false),
            ("pytest -q", "/home/u/.aws", false),
        ] {
            assert_eq!(
                is_mentioned(text, Path::new(path), Some(home)),
                mentioned,
                "{text}"
            );
        }
    }
}
