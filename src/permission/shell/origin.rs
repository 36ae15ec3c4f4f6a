//! Which file a program's name means.

use std::path::{Path, PathBuf};

use super::state::State;
use super::walk::{LOOKUPS, Origin, Walk};

impl Walk<'_> {
    /// Which file a name means.
    pub(super) fn origin(&mut self, name: &str, state: &State) -> Origin {
        if let Some(origin) = self.origins.get(name) {
            return *origin;
        }
        // The disk is asked a few times for each; a line with so many programs is not looked up to its end.
        let origin = if self.origins.len() >= LOOKUPS { Origin::Other } else { self.look_up(name, state) };
        self.origins.insert(name.to_owned(), origin);
        origin
    }

    fn look_up(&self, name: &str, state: &State) -> Origin {
        let outside = |path: &Path| {
            let roots = std::iter::once(&self.place.root).chain(&self.place.extra);
            !roots.into_iter().any(|root| path.starts_with(root)) && !path.starts_with(&self.place.cwd)
        };
        let on_path = |name: &str| {
            let dirs = self.place.path.iter().filter(|dir| dir.is_absolute());
            dirs.map(|dir| dir.join(name))
                .find(|path| path.is_file())
                .and_then(|path| Some((path.canonicalize().ok()?, path)))
        };
        if let Some((_, base)) = name.rsplit_once('/') {
            let path = match state.cwd.as_slice() {
                [cwd] => cwd.join(name),
                _ if name.starts_with('/') => PathBuf::from(name),
                _ => return Origin::Other,
            };
            let same = name.starts_with('/')
                && path
                    .canonicalize()
                    .is_ok_and(|path| on_path(base).is_some_and(|(real, _)| real == path && outside(&real)));
            return if same { Origin::System } else { Origin::Other };
        }
        if super::table::BUILTINS.contains(&name) {
            return Origin::Builtin;
        }
        // An entry of PATH inside the project, or none at all, means a file of the project.
        match on_path(name) {
            Some((real, path)) if outside(&real) && outside(&path) => Origin::System,
            Some(_) => Origin::Other,
            None => Origin::Missing,
        }
    }
}
