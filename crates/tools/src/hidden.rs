//! What a command does not get to see: credentials, sockets of agents and services, and for agents that only read the
//! project's files that hold secrets. The table of rows is `permission/credentials.txt`; here is decided which of them
//! hold for one line, and what is said when it fails for want of one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ToolContext;
use base::environment::Environment;
use config::settings::SandboxSettings;
use permission::credentials::{CredentialRow, are_named, git_signs, is_mentioned, rows};
use permission::protected;
use permission::shell::JudgedLine;
use sandbox::Level;

/// How many entries of a project are looked at for files that hold secrets, and how many such files are hidden.
const MAX_ENTRIES: usize = 20_000;
const MAX_SECRETS: usize = 200;
/// Folders that hold what others wrote, or nothing to read.
const PASSED_BY: &[&str] = &[".git", ".hg", ".jj", "node_modules", "target", ".venv", "venv", "__pycache__"];

/// What is hidden from one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Files and folders that are not there for it.
    pub places: Vec<PathBuf>,
    /// What lies below one of them and is there all the same.
    pub shown: Vec<PathBuf>,
    /// The same as `places`, each with its row.
    rows: Vec<HiddenPlace>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HiddenPlace {
    place: PathBuf,
    /// None: the user hides it, or it is the project's.
    row: Option<&'static str>,
}

impl Hidden {
    /// Finds what is hidden from a line; from a program that is none of the model's lines, everything is.
    pub fn find(level: Level, wish: &SandboxSettings, line: Option<&JudgedLine>, context: &ToolContext) -> Self {
        let environment = &context.project.environment;
        let tree = &context.project.worktree;
        let signs = || git_signs(environment, &tree.git_dirs());
        let needed = essential(context);
        let may_hide = |place: &PathBuf| {
            !needed.iter().any(|path| path.starts_with(place))
                && !std::iter::once(&tree.root).chain(&tree.extra).any(|root| place.starts_with(root))
        };
        let mut hidden = Self::default();
        for row in rows() {
            let places: Vec<PathBuf> = row.locate(environment).into_iter().filter(may_hide).collect();
            let is_seen = wish.show.iter().any(|shown| shown == row.name)
                || line.is_some_and(|line| row.is_for(line, &signs) || are_named(line, &places, &context.policy.place));
            if is_seen {
                hidden.shown.extend(places);
            } else {
                hidden.rows.extend(places.into_iter().map(|place| HiddenPlace { place, row: Some(row.name) }));
            }
        }
        let own = |paths: &[String]| paths.iter().filter_map(|path| own_path(path, environment)).collect::<Vec<_>>();
        let show = own(&wish.show);
        hidden.rows.retain(|entry| !show.iter().any(|shown| entry.place.starts_with(shown)));
        hidden.shown.extend(show);
        let mut more = own(&wish.hide);
        more.retain(|place| !needed.iter().any(|path| path.starts_with(place)));
        if level == Level::ReadOnly {
            more.extend(std::iter::once(&tree.root).chain(&tree.extra).flat_map(|root| secrets(root)));
        }
        if let Some(line) = line {
            more.retain(|place| !are_named(line, std::slice::from_ref(place), &context.policy.place));
        }
        hidden.rows.extend(more.into_iter().map(|place| HiddenPlace { place, row: None }));
        hidden.settle(environment)
    }

    /// Leaves out what lies below something else that is hidden, and what is shown anyway.
    fn settle(mut self, environment: &Environment) -> Self {
        let all: BTreeSet<PathBuf> = self.rows.iter().map(|entry| entry.place.clone()).collect();
        // Those of other sessions; a command's own is mounted over it.
        let scratch = std::fs::canonicalize(super::scratch::above(environment)).ok();
        let above = |place: &Path| place.ancestors().skip(1).any(|above| all.contains(above));
        self.shown.retain(|place| above(place) && !all.contains(place));
        self.places = all.iter().filter(|place| !above(place)).cloned().chain(scratch).collect();
        self
    }

    /// Returns a place that a text could mean, as people write it.
    pub fn mentioned(&self, text: &str, environment: &Environment) -> Option<String> {
        let home = environment.home.as_deref();
        let found = self.rows.iter().find(|entry| is_mentioned(text, &entry.place, home));
        found.map(|entry| shown(&entry.place, environment))
    }

    /// Says what a command that failed may have missed, for the model.
    pub fn blame(&self, printed: &str, command: &str, environment: &Environment) -> Option<String> {
        let home = environment.home.as_deref();
        let row_of = |entry: &HiddenPlace| rows().iter().find(|row| Some(row.name) == entry.row);
        let says = |text: &str, entry: &HiddenPlace| {
            let below = home.and_then(|home| entry.place.strip_prefix(home).ok());
            text.contains(&*entry.place.to_string_lossy())
                || below.is_some_and(|below| text.contains(&format!("~/{}", below.display())))
                || below.is_some_and(|below| text.contains(&format!("$HOME/{}", below.display())))
        };
        // Most programs name a file of the project by its name alone.
        let denied = |entry: &&HiddenPlace| {
            let name = entry.place.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            let lines = printed.lines().filter(|line| line.contains("ermission denied"));
            let mut words = lines.flat_map(|line| line.split([' ', ':', '/', '\'', '"']));
            entry.row.is_none() && words.any(|word| word == name)
        };
        let find = |is: &dyn Fn(&&HiddenPlace) -> bool| self.rows.iter().find(is);
        let missed = find(&|entry| says(printed, entry))
            .or_else(|| find(&|entry| says(command, entry)))
            .or_else(|| find(&denied))
            .or_else(|| find(&|entry| row_of(entry).is_some_and(|row| row.is_missed(printed))))?;
        let place = shown(&missed.place, environment);
        Some(match row_of(missed) {
            Some(row) => format!("`{place}` is hidden from commands here; {}", who_sees(row)),
            None => format!("`{place}` is hidden from commands here; one that names it, and is allowed, sees it."),
        })
    }
}

/// Says who sees a row, for people and models.
pub fn who_sees(row: &CredentialRow) -> String {
    let programs: Vec<&str> = row
        .programs
        .iter()
        .map(|program| match *program {
            "git:remote" => "git with other machines",
            "git:sign" => "git that signs",
            program => program,
        })
        .collect();
    let own = match programs.as_slice() {
        [] => "a line that names it, and is allowed, sees it".to_owned(),
        programs => format!(
            "a line of {} and plain filters sees it, and so does one that names it, and is allowed",
            programs.join(", ")
        ),
    };
    format!("{own}. The user can show it to all commands: \"sandbox\": {{ \"show\": [\"{}\"] }}.", row.name)
}

/// What must not be hidden, nor anything above it.
fn essential(context: &ToolContext) -> Vec<PathBuf> {
    let environment = &context.project.environment;
    let tree = &context.project.worktree;
    let own = [environment.tmp(), environment.dirs.data.clone(), "/tmp".into(), "/usr/bin".into(), "/etc".into()];
    let all = own.into_iter().chain(environment.home.clone()).chain([tree.root.clone()]).chain(tree.extra.clone());
    let all = all.chain(tree.git_dirs()).chain(environment.path()).chain(environment.program.clone());
    all.map(|path| std::fs::canonicalize(&path).unwrap_or(path)).collect()
}

/// A path of the user's settings, if there is something.
fn own_path(path: &str, environment: &Environment) -> Option<PathBuf> {
    let path = match (path.strip_prefix("~/"), &environment.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    path.is_absolute().then(|| std::fs::canonicalize(path).ok()).flatten()
}

/// A path as people write it.
pub fn shown(place: &Path, environment: &Environment) -> String {
    let home = environment.home.as_deref().and_then(|home| std::fs::canonicalize(home).ok());
    let below = home.and_then(|home| place.strip_prefix(home).ok().map(Path::to_owned));
    let text = below.map_or_else(|| place.display().to_string(), |below| format!("~/{}", below.display()));
    base::text::title(&text)
}

/// The files of a directory tree that hold secrets by their names.
fn secrets(root: &Path) -> Vec<PathBuf> {
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
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() {
                if !PASSED_BY.iter().any(|name| entry.file_name() == *name) {
                    folders.push(path);
                }
            } else if kind.is_file() && protected::secret(path.strip_prefix(root).unwrap_or(&path)) {
                found.push(path);
            }
        }
    }
    found
}
