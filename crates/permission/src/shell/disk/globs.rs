//! Matching of patterns with files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::wildcard::{self, glob_to_wildcard};

/// The maximum number of files that a pattern may match.
const MAX_MATCHES: usize = 512;
/// The maximum number of directory entries that are compared with one pattern.
const MAX_COMPARED: usize = 4_096;
/// The maximum number of directory entries that are read for one line.
const MAX_ENTRIES: usize = 16_384;

/// The matches of patterns; `None` if they cannot be determined.
type GlobMatches = HashMap<String, Option<Rc<[String]>>>;

/// The matches of the patterns of one line, by directory.
#[derive(Debug)]
pub(super) struct Globs {
    known: HashMap<PathBuf, GlobMatches>,
    /// The number of directory entries that may still be read.
    pub(super) entries: usize,
}

impl Default for Globs {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            entries: MAX_ENTRIES,
        }
    }
}

impl Globs {
    /// Returns the files that match a pattern in a directory. `None` if there are more than
    /// [`MAX_MATCHES`] or they cannot be determined. A pattern without a match is returned
    /// unchanged.
    pub(super) fn find(&mut self, pattern: &str, cwd: &Path) -> Option<Rc<[String]>> {
        if let Some(known) = self.known.get(cwd).and_then(|names| names.get(pattern)) {
            return known.clone();
        }
        let before = MAX_COMPARED.min(self.entries);
        let mut budget = before;
        let names: Option<Rc<[String]>> = glob(pattern, cwd, &mut budget).map(Into::into);
        self.entries -= before - budget;
        self.known
            .entry(cwd.to_path_buf())
            .or_default()
            .insert(pattern.to_owned(), names.clone());
        names
    }
}

fn glob(pattern: &str, cwd: &Path, budget: &mut usize) -> Option<Vec<String>> {
    let (start, rest) = match pattern.strip_prefix('/') {
        Some(rest) => (PathBuf::from("/"), rest),
        None => (cwd.to_path_buf(), pattern),
    };
    let shown = if pattern.starts_with('/') { "/" } else { "" };
    // The path of each candidate, its displayed form, and whether it was listed by its directory
    // and thus exists.
    let mut found = vec![(start, shown.to_owned(), true)];
    for (at, part) in rest.split('/').enumerate() {
        let mut next = vec![];
        let slash = if at == 0 { "" } else { "/" };
        let plain = !part.contains(['*', '?', '[']);
        let fitting = glob_to_wildcard(part);
        let dotted = part.starts_with('.');
        for (dir, shown, _) in &found {
            if plain {
                let part = part.replace('\\', "");
                next.push((dir.join(&part), format!("{shown}{slash}{part}"), false));
                continue;
            }
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                *budget = budget.checked_sub(1)?;
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if (dotted || !name.starts_with('.')) && wildcard::matches(&fitting, &name) {
                    next.push((dir.join(&*name), format!("{shown}{slash}{name}"), true));
                }
                if next.len() > MAX_MATCHES {
                    return None;
                }
            }
        }
        found = next;
    }
    let exists =
        |(path, _, listed): &(PathBuf, String, bool)| *listed || path.symlink_metadata().is_ok();
    let mut names: Vec<String> = found
        .into_iter()
        .filter(exists)
        .map(|(_, shown, _)| shown)
        .collect();
    if names.is_empty() {
        names.push(pattern.replace('\\', ""));
    }
    Some(names)
}
