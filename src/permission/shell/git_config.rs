//! The configuration of a repository, as far as it makes git start programs. git itself is not
//! started.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Settings of one repository.
#[derive(Debug, Clone, Default)]
pub(super) struct Repository {
    /// What makes `git diff` and its like start something.
    pub(super) diff: Option<String>,
    /// What makes any look at the working tree start something.
    pub(super) tree: Option<String>,
    /// What runs where an index is written.
    pub(super) hooks: Option<String>,
    /// Short names and what they stand for.
    pub(super) aliases: HashMap<String, String>,
}

impl Repository {
    /// Looks for the repository a directory belongs to and reads what it and the user configured.
    pub(super) fn find(cwd: &Path, home: Option<&Path>) -> Self {
        let mut repository = Self::default();
        for file in home.iter().flat_map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]) {
            let mut users = Self::default();
            users.read(&file);
            repository.aliases.extend(users.aliases);
        }
        if let Some(dir) = directory(cwd) {
            let common = std::fs::read_to_string(dir.join("commondir")).ok();
            let shared = common.map_or_else(|| dir.clone(), |common| dir.join(common.trim()));
            repository.read(&shared.join("config"));
            repository.read(&dir.join("config.worktree"));
            let hook = shared.join("hooks/post-index-change");
            if hook.exists() {
                repository.hooks = Some("the hook post-index-change".into());
            }
        }
        repository
    }

    fn read(&mut self, file: &Path) {
        let Ok(text) = std::fs::read_to_string(file) else { return };
        for (key, value) in entries(&text) {
            let name = key.rsplit('.').next().unwrap_or_default();
            let set = !value.is_empty();
            let section = key.split('.').next().unwrap_or_default();
            let told = || Some(format!("{key} = {value}"));
            match (section, name) {
                ("alias", _) => drop(self.aliases.insert(name.to_owned(), value)),
                ("diff", "external" | "command" | "textconv") if set => self.diff = told(),
                ("filter", "clean" | "smudge" | "process") if set => self.diff = told(),
                ("core", "fsmonitor")
                    if set
                        && !["true", "false", "yes", "no", "on", "off", "0", "1"]
                            .contains(&&*value.to_ascii_lowercase()) =>
                {
                    self.tree = told();
                }
                ("core", "hookspath") if set => self.hooks = told(),
                ("core", "worktree" | "sshcommand" | "gitproxy" | "askpass" | "alternaterefscommand") if set => {
                    self.tree = told()
                }
                ("include" | "includeif", "path") => self.tree = told(),
                ("extensions", "worktreeconfig") => {}
                _ => {}
            }
        }
    }
}

/// The `.git` directory a place belongs to; also a bare repository, which git takes as well.
fn directory(cwd: &Path) -> Option<PathBuf> {
    for dir in cwd.ancestors() {
        let dot = dir.join(".git");
        if dot.is_dir() {
            return Some(dot);
        }
        if let Ok(text) = std::fs::read_to_string(&dot)
            && let Some(target) = text.trim().strip_prefix("gitdir:")
        {
            return Some(dir.join(target.trim()));
        }
        if dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir() {
            return Some(dir.to_path_buf());
        }
    }
    None
}

/// `section.sub.key` in lower case (the middle as it is) and the value, quotes and comments removed.
fn entries(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut entries = vec![];
    let mut section = String::new();
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((head, after)) = rest.split_once(']') else { continue };
            section = match head.split_once(char::is_whitespace) {
                Some((name, sub)) => format!("{}.{}", name.to_ascii_lowercase(), sub.trim().trim_matches('"')),
                None => head.to_ascii_lowercase(),
            };
            line = after.trim();
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        entries.push((format!("{section}.{}", key.trim().to_ascii_lowercase()), unquoted(value.trim())));
    }
    entries
}

fn unquoted(value: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let mut letters = value.chars();
    while let Some(c) = letters.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => out.extend(letters.next()),
            '#' | ';' if !quoted => break,
            c => out.push(c),
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_starts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        let write = |text: &str| std::fs::write(dir.path().join(".git/config"), text).unwrap();
        let read = || Repository::find(&dir.path().join("sub"), None);
        write("[core]\n\tbare = false\n\tfsmonitor = true ; ours\n[diff]\n\texternal =\n");
        assert!(read().diff.is_none() && read().tree.is_none());
        write("[diff]\n\texternal = \"touch PWN;:\"\n");
        assert_eq!(read().diff.unwrap(), "diff.external = touch PWN;:");
        write("[Core] FSMonitor = touch x\n[Filter \"A.b\"]\nclean = x\n[alias]\n\tst = !rm \\\n x");
        assert_eq!(read().tree.unwrap(), "core.fsmonitor = touch x");
        assert_eq!(read().diff.unwrap(), "filter.A.b.clean = x");
        assert_eq!(read().aliases["st"], "!rm  x");
    }
}
