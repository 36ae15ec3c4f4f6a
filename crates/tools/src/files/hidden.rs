//! Paths that are hidden from commands: credentials, sockets of agents and services, and for
//! read-only agents the project's files that hold secrets. `crates/permission/src/credentials.txt`
//! has the rows; this module selects those for a command line, and explains a failure that a hidden
//! path may have caused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::environment::Environment;
use base::worktree::Worktree;
use config::settings::SandboxSettings;
use permission::credentials::{CredentialRow, are_named, git_signs, homes, is_mentioned, rows};
use permission::protected;
use permission::shell::CommandAnalysis;
use sandbox::Level;

/// The maximum number of entries of a project that are searched for secrets.
const MAX_ENTRIES: usize = 20_000;
/// The maximum number of a project's files that are hidden.
const MAX_SECRETS: usize = 200;
/// Directories of third-party or generated files, which are not searched.
const SKIPPED_DIRECTORIES: &[&str] = &[
    ".git",
    ".hg",
    ".jj",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
];

/// The paths that are hidden from a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenPaths {
    /// The hidden files and directories, none of them below another one.
    pub paths: Vec<PathBuf>,
    /// Visible paths below hidden ones.
    pub shown: Vec<PathBuf>,
    /// The hidden paths with their rows, nested ones included.
    rows: Vec<HiddenPath>,
}

/// A hidden path, and the reason why it is hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HiddenPath {
    path: PathBuf,
    /// The name of its row in `credentials.txt`; `None` if the path is from the user's settings or
    /// the project.
    row: Option<&'static str>,
}

impl HiddenPaths {
    /// Determines the paths that are hidden from a command line. Without a `line`, for a program
    /// that the model has not called, every row is hidden unless the settings show it.
    pub fn find(
        level: Level,
        settings: &SandboxSettings,
        line: Option<&CommandAnalysis>,
        environment: &Environment,
        tree: &Worktree,
    ) -> Self {
        let signs = || git_signs(environment, &tree.git_dirs());
        let needed = essential(environment, tree);
        let may_hide = |path: &PathBuf| {
            !needed.iter().any(|needed| needed.starts_with(path))
                && !std::iter::once(&tree.root)
                    .chain(&tree.extra)
                    .any(|root| path.starts_with(root))
        };
        let mut hidden = Self::default();
        let homes = homes(environment);
        for row in rows() {
            let places: Vec<PathBuf> = row
                .locate(environment, &homes)
                .into_iter()
                .filter(may_hide)
                .collect();
            let is_seen = settings.show.iter().any(|shown| shown == row.name)
                || line.is_some_and(|line| {
                    row.is_for(line, &signs) || are_named(line, &places, &tree.root)
                });
            if is_seen {
                hidden.shown.extend(places);
            } else {
                hidden
                    .rows
                    .extend(places.into_iter().map(|path| HiddenPath {
                        path,
                        row: Some(row.name),
                    }));
            }
        }
        let own = |paths: &[String]| {
            paths
                .iter()
                .filter_map(|path| own_path(path, environment))
                .collect::<Vec<_>>()
        };
        let show = own(&settings.show);
        hidden
            .rows
            .retain(|entry| !show.iter().any(|shown| entry.path.starts_with(shown)));
        hidden.shown.extend(show);
        let mut more = own(&settings.hide);
        more.retain(|path| !needed.iter().any(|needed| needed.starts_with(path)));
        if level == Level::ReadOnly {
            more.extend(
                std::iter::once(&tree.root)
                    .chain(&tree.extra)
                    .flat_map(|root| find_secrets(root)),
            );
        }
        if let Some(line) = line {
            more.retain(|path| !are_named(line, std::slice::from_ref(path), &tree.root));
        }
        hidden
            .rows
            .extend(more.into_iter().map(|path| HiddenPath { path, row: None }));
        hidden.without_nested(environment)
    }

    /// Sets the hidden paths, without those below other ones, and omits visible paths that need no
    /// exception.
    fn without_nested(mut self, environment: &Environment) -> Self {
        let all: BTreeSet<PathBuf> = self.rows.iter().map(|entry| entry.path.clone()).collect();
        // The directories of other sessions; the command's own is mounted over this.
        let scratch = std::fs::canonicalize(crate::scratch::parent_directory(environment)).ok();
        let above = |path: &Path| path.ancestors().skip(1).any(|above| all.contains(above));
        self.shown.retain(|path| above(path) && !all.contains(path));
        self.paths = all
            .iter()
            .filter(|path| !above(path))
            .cloned()
            .chain(scratch)
            .collect();
        self
    }

    /// Returns a hidden path that a text may refer to, in the form for people.
    pub fn find_mention(&self, text: &str, environment: &Environment) -> Option<String> {
        let home = environment.home.as_deref();
        let found = self
            .rows
            .iter()
            .find(|entry| is_mentioned(text, &entry.path, home));
        found.map(|entry| display_path(&entry.path, environment))
    }

    /// Explains, for the model, that a command may have failed because a path is hidden. Returns
    /// `None` if neither its output nor the command line suggests that.
    pub fn explain_failure(
        &self,
        printed: &str,
        command: &str,
        environment: &Environment,
    ) -> Option<String> {
        let home = environment.home.as_deref();
        let matches_text = |text: &str, entry: &HiddenPath| {
            let below = home.and_then(|home| entry.path.strip_prefix(home).ok());
            text.contains(&*entry.path.to_string_lossy())
                || below.is_some_and(|below| text.contains(&format!("~/{}", below.display())))
                || below.is_some_and(|below| text.contains(&format!("$HOME/{}", below.display())))
        };
        // Most programs print only the name of a project file.
        let denied = |entry: &&HiddenPath| {
            let name = entry
                .path
                .file_name()
                .map(|name| name.to_string_lossy())
                .unwrap_or_default();
            let lines = printed
                .lines()
                .filter(|line| line.contains("ermission denied"));
            let mut words = lines.flat_map(|line| line.split([' ', ':', '/', '\'', '"']));
            entry.row.is_none() && words.any(|word| word == name)
        };
        let find = |is: &dyn Fn(&&HiddenPath) -> bool| self.rows.iter().find(is);
        let missed = find(&|entry| matches_text(printed, entry))
            .or_else(|| find(&|entry| matches_text(command, entry)))
            .or_else(|| find(&denied))
            .or_else(|| {
                find(&|entry| row_of(entry).is_some_and(|row| row.is_missing_in(printed)))
            })?;
        let shown_path = display_path(&missed.path, environment);
        Some(match row_of(missed) {
            Some(row) => format!(
                "`{shown_path}` is hidden from commands here, but {}. The user can show it to all commands: {}.",
                describe_visibility(row),
                setting_that_shows(row)
            ),
            None => format!(
                "`{shown_path}` is hidden from commands here; one that names it, and is allowed, sees it."
            ),
        })
    }
}

/// Returns the row of a hidden path, if it has one.
fn row_of(entry: &HiddenPath) -> Option<&'static CredentialRow> {
    rows().iter().find(|row| Some(row.name) == entry.row)
}

/// Describes which commands see the paths of a row.
pub fn describe_visibility(row: &CredentialRow) -> String {
    let programs: Vec<&str> = row
        .programs
        .iter()
        .map(|program| match *program {
            "git:remote" => "git with other machines",
            "git:sign" => "git that signs",
            program => program,
        })
        .collect();
    match programs.as_slice() {
        [] => "visible to an allowed command that names it".to_owned(),
        programs => format!(
            "visible to commands made of {} and plain filters, and to an allowed command that names it",
            programs.join(", ")
        ),
    }
}

/// Returns the setting that shows the paths of a row to all commands.
pub fn setting_that_shows(row: &CredentialRow) -> String {
    format!("\"sandbox\": {{ \"show\": [\"{}\"] }}", row.name)
}

/// Returns the paths that must not be hidden, nor their parents.
fn essential(environment: &Environment, tree: &Worktree) -> Vec<PathBuf> {
    let own = [
        environment.tmp(),
        environment.dirs.data.clone(),
        "/tmp".into(),
        "/usr/bin".into(),
        "/etc".into(),
    ];
    let all = own
        .into_iter()
        .chain(environment.home.clone())
        .chain([tree.root.clone()])
        .chain(tree.extra.clone());
    let all = all
        .chain(tree.git_dirs())
        .chain(environment.path())
        .chain(environment.program.clone());
    all.map(|path| std::fs::canonicalize(&path).unwrap_or(path))
        .collect()
}

/// Resolves a path of the user's settings, if it exists.
fn own_path(path: &str, environment: &Environment) -> Option<PathBuf> {
    let path = match (path.strip_prefix("~/"), &environment.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    path.is_absolute()
        .then(|| std::fs::canonicalize(path).ok())
        .flatten()
}

/// Returns a path in the form for people, with `~` for the home directory.
pub fn display_path(path: &Path, environment: &Environment) -> String {
    let home = environment
        .home
        .as_deref()
        .and_then(|home| std::fs::canonicalize(home).ok());
    let below = home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned));
    let text = below.map_or_else(
        || path.display().to_string(),
        |below| format!("~/{}", below.display()),
    );
    base::text::title(&text)
}

/// Returns the files of a directory tree whose names suggest secrets.
fn find_secrets(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    let mut left = MAX_ENTRIES;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if left == 0 || found.len() == MAX_SECRETS {
                tracing::info!(
                    "{}: not all files that hold secrets are hidden, there are too many files",
                    root.display()
                );
                return found;
            }
            left -= 1;
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                if !SKIPPED_DIRECTORIES
                    .iter()
                    .any(|name| entry.file_name() == *name)
                {
                    folders.push(path);
                }
            } else if kind.is_file() && protected::secret(path.strip_prefix(root).unwrap_or(&path))
            {
                found.push(path);
            }
        }
    }
    found
}
