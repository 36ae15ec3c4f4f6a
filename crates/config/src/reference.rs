//! References: further directories and repositories that agents may read, and where each repository
//! is cloned.

use std::path::PathBuf;

use super::node::{MapEntry, Node};
use super::problem::{Problem, ProblemCode};
use super::settings::ReferenceEntry;
use base::environment::Environment;
use base::worktree::Worktree;

/// A repository to clone, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryClone {
    /// The URL passed to git: never an option or a remote helper.
    pub url: String,
    /// The branch or tag; `None` for the default branch.
    pub branch: Option<String>,
    /// The directory of the clone.
    pub dir: PathBuf,
}

impl ReferenceEntry {
    /// Returns the directory of the reference, or of its clone, which may not exist yet. `None` if
    /// its repository or branch is invalid.
    pub fn dir(&self, environment: &Environment, worktree: &Worktree) -> Option<PathBuf> {
        let Some(path) = self.path.as_deref() else {
            return self.repository_clone(environment).map(|clone| clone.dir);
        };
        Some(
            match (path.strip_prefix("~/"), environment.home.as_deref()) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => worktree.root.join(path),
            },
        )
    }

    /// Returns what to clone, and into which directory; clones nothing. `None` if the reference is
    /// a directory, or its repository or branch is invalid.
    pub fn repository_clone(&self, environment: &Environment) -> Option<RepositoryClone> {
        if self.path.is_some() {
            return None;
        }
        let repository = self.repository.as_deref()?.trim();
        let url = url(repository)?;
        let branch = self
            .branch
            .as_deref()
            .map(str::trim)
            .filter(|branch| !branch.is_empty());
        if branch.is_some_and(|branch| !is_ref(branch)) {
            return None;
        }
        let name = match branch {
            Some(branch) => format!("{url}@{branch}"),
            None => url.clone(),
        };
        let dir = environment
            .dirs
            .cache
            .join("references")
            .join(folder(&name));
        Some(RepositoryClone {
            url,
            branch: branch.map(str::to_owned),
            dir,
        })
    }
}

/// Reports the incomplete references in the merged settings, and those whose directory does not
/// exist, whose repository is invalid or whose branch is not a valid name.
pub(super) fn problems(
    tree: &Node,
    environment: &Environment,
    worktree: &Worktree,
) -> Vec<Problem> {
    let entries = tree
        .get("references")
        .map(Node::entries)
        .unwrap_or_default();
    let problem_of = |entry: &MapEntry| {
        let key = |name: &str| {
            format!(
                "references.{}{}{name}",
                entry.key,
                if name.is_empty() { "" } else { "." }
            )
        };
        let inner = |name| {
            entry
                .node
                .get(name)
                .and_then(|node| Some((node, node.as_text()?)))
        };
        let plain = entry
            .node
            .as_text()
            .map(|text| (&entry.node, text, key("")));
        if let Some((node, path, key)) =
            plain.or_else(|| inner("path").map(|(node, text)| (node, text, key("path"))))
        {
            let named = ReferenceEntry {
                path: Some(path.to_owned()),
                ..ReferenceEntry::default()
            };
            let dir = named
                .dir(environment, worktree)
                .filter(|dir| !dir.is_dir())?;
            let text = format!("there is no directory {}", dir.display());
            return Some(Problem::warning(
                ProblemCode::MissingFile,
                &node.at,
                key,
                text,
            ));
        }
        let Some((node, repository)) = inner("repository").or_else(|| inner("git")) else {
            let text = "nothing to read: give a path or a repository";
            return Some(Problem::warning(
                ProblemCode::Incomplete,
                &entry.at,
                key(""),
                text,
            ));
        };
        if url(repository.trim()).is_none() {
            let text = format!(
                "\"{repository}\" is not a repository; write owner/name, host/owner/name or a URL"
            );
            return Some(Problem::warning(
                ProblemCode::WrongValue,
                &node.at,
                key("repository"),
                text,
            ));
        }
        let (node, branch) = inner("branch").filter(|(_, branch)| !is_ref(branch.trim()))?;
        let text = format!("\"{branch}\" cannot be the name of a branch");
        Some(Problem::warning(
            ProblemCode::WrongValue,
            &node.at,
            key("branch"),
            text,
        ))
    };
    entries.iter().filter_map(problem_of).collect()
}

/// Returns the URL for git: `owner/name` is at GitHub, `host/owner/name` uses HTTPS.
fn url(repository: &str) -> Option<String> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['-', '.'])
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    if repository
        .bytes()
        .any(|b| b.is_ascii_control() || b == b' ')
    {
        return None;
    }
    let schemes = ["https://", "http://", "ssh://", "git://", "file://", "git@"];
    if schemes.iter().any(|scheme| repository.starts_with(scheme)) {
        let rest = schemes
            .iter()
            .find_map(|scheme| repository.strip_prefix(scheme))
            .unwrap_or_default();
        return (!rest.starts_with('-')).then(|| repository.to_owned());
    }
    let parts: Vec<&str> = repository.trim_end_matches(".git").split('/').collect();
    match parts.as_slice() {
        [owner, name] if plain(owner) && plain(name) => {
            Some(format!("https://github.com/{owner}/{name}.git"))
        }
        [host, owner, name] if plain(host) && host.contains('.') && plain(owner) && plain(name) => {
            Some(format!("https://{host}/{owner}/{name}.git"))
        }
        _ => None,
    }
}

/// Returns whether a word can name a branch or a tag and has no other meaning to git.
fn is_ref(branch: &str) -> bool {
    !branch.starts_with('-')
        && !branch.contains("..")
        && branch
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/'))
}

/// Returns a folder name that is recognisable and unique to a URL.
fn folder(name: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let short = base::text::hex(&digest.as_ref()[..6]);
    let last = name
        .trim_end_matches(".git")
        .rsplit(['/', ':'])
        .next()
        .unwrap_or_default();
    let plain: String = last
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    format!("{plain}-{short}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_becomes_url_and_folder() {
        let table = [
            (
                "tokio-rs/tokio",
                Some("https://github.com/tokio-rs/tokio.git"),
            ),
            (
                "codeberg.org/forgejo/forgejo",
                Some("https://codeberg.org/forgejo/forgejo.git"),
            ),
            (
                "https://example.org/a/b.git",
                Some("https://example.org/a/b.git"),
            ),
            ("git@example.org:a/b", Some("git@example.org:a/b")),
            ("file:///srv/a", Some("file:///srv/a")),
            ("ext::sh -c id", None),
            ("ext::id", None),
            ("--upload-pack=id", None),
            ("ssh://-oProxyCommand=id/x", None),
            ("-a/b", None),
            ("tokio", None),
            ("a/../b", None),
        ];
        for (written, expected) in table {
            assert_eq!(url(written).as_deref(), expected, "{written}");
        }
        for (branch, good) in [
            ("main", true),
            ("feature/x-1.2", true),
            ("--upload-pack=x", false),
            ("a..b", false),
        ] {
            assert_eq!(is_ref(branch), good, "{branch}");
        }
        assert_ne!(
            folder("https://a.example/x/y.git"),
            folder("https://b.example/x/y.git")
        );
    }
}
