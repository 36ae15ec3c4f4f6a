//! Which files a pattern names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::wildcard::{self, generous};

/// How many names a pattern may name.
const MOST: usize = 512;
/// How many names in directories one pattern is compared with.
const COMPARED: usize = 4_096;
/// How many names in directories are looked at for one line.
const ENTRIES: usize = 16_384;

/// What patterns name; none where it cannot be told.
type Named = HashMap<String, Option<Rc<[String]>>>;

/// What the patterns of one line name, by directory.
#[derive(Debug)]
pub(super) struct Globs {
    known: HashMap<PathBuf, Named>,
    /// How many names in directories may still be looked at.
    pub(super) entries: usize,
}

impl Default for Globs {
    fn default() -> Self {
        Self { known: HashMap::new(), entries: ENTRIES }
    }
}

impl Globs {
    /// The files a pattern names from a directory, at most [`MOST`]; none where there are more or it
    /// cannot be told. A pattern that names nothing stands for itself.
    pub(super) fn find(&mut self, pattern: &str, cwd: &Path) -> Option<Rc<[String]>> {
        if let Some(known) = self.known.get(cwd).and_then(|names| names.get(pattern)) {
            return known.clone();
        }
        let before = COMPARED.min(self.entries);
        let mut budget = before;
        let names: Option<Rc<[String]>> = glob(pattern, cwd, &mut budget).map(Into::into);
        self.entries -= before - budget;
        self.known.entry(cwd.to_path_buf()).or_default().insert(pattern.to_owned(), names.clone());
        names
    }
}

fn glob(pattern: &str, cwd: &Path, budget: &mut usize) -> Option<Vec<String>> {
    let (start, rest) = match pattern.strip_prefix('/') {
        Some(rest) => (PathBuf::from("/"), rest),
        None => (cwd.to_path_buf(), pattern),
    };
    let shown = if pattern.starts_with('/') { "/" } else { "" };
    // Where each is, how it is shown, and whether a directory named it, so that it is there.
    let mut found = vec![(start, shown.to_owned(), true)];
    for (at, part) in rest.split('/').enumerate() {
        let mut next = vec![];
        let slash = if at == 0 { "" } else { "/" };
        let plain = !part.contains(['*', '?', '[']);
        let (fitting, dotted) = (generous(part), part.starts_with('.'));
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
                if next.len() > MOST {
                    return None;
                }
            }
        }
        found = next;
    }
    let there = |(path, _, listed): &(PathBuf, String, bool)| *listed || path.symlink_metadata().is_ok();
    let mut names: Vec<String> = found.into_iter().filter(there).map(|(_, shown, _)| shown).collect();
    if names.is_empty() {
        names.push(pattern.replace('\\', ""));
    }
    Some(names)
}
