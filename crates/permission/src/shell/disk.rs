//! What a line looks up on the disk: where paths lead, which files a pattern names, which file a
//! program's name means, what would be lost, what a repository's settings start. Each is looked up once
//! for a line, and not more than a line may.

mod below;
mod git_config;
mod git_file;
mod git_objects;
mod git_shown;
mod globs;
mod loss;
mod origin;
mod touch;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use below::Listings;
pub(super) use git_config::{Cause, Repository};
use git_shown::TrackedSecrets;
pub(super) use git_shown::{NotKnown, ShownFiles};
use globs::Globs;
use loss::Loss;
use origin::Origins;
pub(super) use origin::{Origin, is_same_program};
use touch::Paths;

use crate::PermissionContext;
use crate::shell::expand::ShellState;

/// Paths, and names of programs, that are looked up for one line.
const LOOKUPS: usize = 500;
/// Repositories that are looked at for one line.
const REPOSITORIES: usize = 64;

#[derive(Debug)]
pub(super) struct Disk<'p> {
    place: &'p PermissionContext,
    /// Links that the line itself makes, or may make.
    links: Vec<PathBuf>,
    /// Directories that it removes or moves.
    gone: Vec<PathBuf>,
    /// What lies below directories.
    listings: Listings,
    paths: Paths,
    globs: Globs,
    origins: Origins,
    losses: HashMap<PathBuf, Loss>,
    /// The repositories git would work in, by directory.
    repositories: HashMap<PathBuf, Rc<Repository>>,
    tracked: TrackedSecrets,
}

impl<'p> Disk<'p> {
    /// adjutant's own file.
    pub(super) fn program(&self) -> Option<&'p Path> {
        self.place.program.as_deref()
    }

    pub(super) fn new(place: &'p PermissionContext) -> Self {
        Self {
            place,
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

    /// The files a pattern names from a directory; none where it cannot be told.
    pub(super) fn glob(&mut self, pattern: &str, cwd: &Path) -> Option<Rc<[String]>> {
        self.globs.find(pattern, cwd)
    }

    /// The repository that git would work in.
    /// Returns a place on the network as "always" stores it: of a remote of git with its address, because another may be
    /// given that name later. None elsewhere than in the directory of the session.
    pub(super) fn pinned(&mut self, place: String, state: &ShellState) -> Option<String> {
        if state.cwd != [self.place.cwd.clone()] {
            return None;
        }
        let Some(remote) = place.strip_prefix("git push ") else { return Some(place) };
        let repository = self.repository(&state.cwd[0]);
        Some(format!("{place} {}", repository.pushed_to(remote)?))
    }

    pub(super) fn repository(&mut self, cwd: &Path) -> Rc<Repository> {
        if let Some(found) = self.repositories.get(cwd) {
            return found.clone();
        }
        let found = Rc::new(Repository::find(cwd, self.place.home.as_deref()));
        self.repositories.insert(cwd.to_owned(), found.clone());
        found
    }

    /// Whether these are more repositories than are looked at.
    pub(super) fn too_many_repositories(&self, more: usize) -> bool {
        self.repositories.len() + more > REPOSITORIES
    }
}
