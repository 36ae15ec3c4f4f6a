//! Disk lookups of an analysis: resolved paths, matches of patterns, the files of programs, losses,
//! and the programs that a repository's settings start. Each lookup is made once per line, and
//! their number is limited.

mod git_config;
mod git_file;
mod git_objects;
mod git_shown;
mod globs;
mod loss;
mod origin;
mod recursive;
mod used_paths;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) use git_config::{Cause, Repository};
pub use git_objects::root_commit;
use git_shown::TrackedSecrets;
pub(super) use git_shown::{NotKnown, ShownFiles};
use globs::Globs;
use loss::Loss;
use origin::Origins;
pub(super) use origin::{Origin, is_same_program};
use recursive::Listings;
use used_paths::Paths;

use crate::PermissionContext;
use crate::shell::expand::ShellState;

/// The maximum number of paths, and of program names, that are looked up for one line.
const MAX_LOOKUPS: usize = 500;
/// The maximum number of repositories that are read for one line.
const MAX_REPOSITORIES: usize = 64;

/// The lookups for one line, with their results.
#[derive(Debug)]
pub(super) struct Disk<'p> {
    context: &'p PermissionContext,
    /// Links that the line itself creates or may create.
    links: Vec<PathBuf>,
    /// Directories that the line removes or moves.
    gone: Vec<PathBuf>,
    /// The entries below directories.
    listings: Listings,
    paths: Paths,
    globs: Globs,
    origins: Origins,
    losses: HashMap<PathBuf, Loss>,
    /// The repositories that git would work in, by directory.
    repositories: HashMap<PathBuf, Rc<Repository>>,
    tracked: TrackedSecrets,
}

impl<'p> Disk<'p> {
    /// Returns adjutant's own executable.
    pub(super) fn program(&self) -> Option<&'p Path> {
        self.context.program.as_deref()
    }

    pub(super) fn new(context: &'p PermissionContext) -> Self {
        Self {
            context,
            links: vec![],
            gone: vec![],
            listings: Listings::default(),
            paths: Paths::default(),
            globs: Globs::default(),
            origins: Origins::default(),
            losses: HashMap::new(),
            repositories: HashMap::new(),
            tracked: TrackedSecrets::new(),
        }
    }

    /// Returns the files that match a pattern in a directory; `None` if they cannot be determined.
    pub(super) fn glob(&mut self, pattern: &str, cwd: &Path) -> Option<Rc<[String]>> {
        self.globs.find(pattern, cwd)
    }

    /// Returns a destination on the network in the form that "always" stores.
    ///
    /// For a remote of git, its address is added, because another remote may get that name later.
    /// `None` if the shell is not in the session's directory.
    pub(super) fn pin_destination(
        &mut self,
        destination: String,
        state: &ShellState,
    ) -> Option<String> {
        if state.cwd != [self.context.cwd.clone()] {
            return None;
        }
        let Some(remote) = destination.strip_prefix("git push ") else {
            return Some(destination);
        };
        let repository = self.repository(&state.cwd[0]);
        Some(format!("{destination} {}", repository.pushed_to(remote)?))
    }

    /// Returns the repository that git would work in.
    pub(super) fn repository(&mut self, cwd: &Path) -> Rc<Repository> {
        if let Some(found) = self.repositories.get(cwd) {
            return found.clone();
        }
        let found = Rc::new(Repository::find(cwd, self.context.home.as_deref()));
        self.repositories.insert(cwd.to_owned(), found.clone());
        found
    }

    /// Returns whether `more` repositories would exceed the limit.
    pub(super) fn too_many_repositories(&self, more: usize) -> bool {
        self.repositories.len() + more > MAX_REPOSITORIES
    }
}
