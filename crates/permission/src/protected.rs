//! Files that no broad rule opens: secrets (reading asks), control files (changing them asks), and
//! our own keys and sessions (always denied).
//!
//! Their names are in `protected.txt`. Names are compared in lower case and without trailing
//! spaces, dots and control characters, because some file systems do the same.

use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::LazyLock;

/// A kind of protected file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    /// A file with keys or passwords: reading it asks.
    Secret,
    /// A control file, which determines what runs on this machine or what the agent may do:
    /// changing it asks.
    Control,
    /// The agent's own keys, sessions and grants, or the variables of a process: always denied.
    Own,
}

/// Normalises a name as the most lenient file system does: lower case, no trailing spaces and dots,
/// no invisible characters. A colon starts the name of a stream of the file, which is dropped.
pub(super) fn folded(name: &str) -> String {
    let file = name
        .split(':')
        .next()
        .filter(|file| !file.is_empty())
        .unwrap_or(name);
    let file = file.trim_end_matches(|c: char| c == '.' || c.is_whitespace() || c.is_control());
    if file.is_ascii() {
        return file.to_ascii_lowercase();
    }
    let visible = file.chars().filter(
        |c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
    );
    visible
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

/// The names of one section of `protected.txt`, which documents its own syntax.
#[derive(Debug, Default)]
struct Names {
    /// Names whose first component is plain, by that component.
    plain: HashMap<&'static str, Vec<Entry>>,
    wild: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    parts: Vec<PartPattern>,
    /// True if everything below it is included.
    folder: bool,
    /// The effect of a change, as a clause that "which" begins.
    effect: &'static str,
}

/// A plain component, or the start and the end of one with anything in between.
#[derive(Debug)]
struct PartPattern {
    start: &'static str,
    end: Option<&'static str>,
}

impl PartPattern {
    fn of(written: &'static str) -> Self {
        match written.split_once('*') {
            Some((start, end)) => Self {
                start,
                end: Some(end),
            },
            None => Self {
                start: written,
                end: None,
            },
        }
    }

    fn fits(&self, name: &str) -> bool {
        match self.end {
            Some(end) => {
                name.len() >= self.start.len() + end.len()
                    && name.starts_with(self.start)
                    && name.ends_with(end)
            }
            None => self.start == name,
        }
    }
}

/// The effect of changing a control file if its section states none.
const EFFECT: &str = "determines what runs on this machine";

static SECRET: LazyLock<Names> = LazyLock::new(|| Names::section("secret"));
static CONTROL: LazyLock<Names> = LazyLock::new(|| Names::section("control"));
static ELSEWHERE: LazyLock<Names> = LazyLock::new(|| Names::section("elsewhere"));

impl Names {
    fn section(wanted: &str) -> Self {
        let mut names = Self::default();
        let mut in_section = false;
        let mut effect = EFFECT;
        for line in include_str!("protected.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
        {
            if let Some(section) = line.strip_prefix('[') {
                in_section = section.trim_end_matches(']') == wanted;
                effect = EFFECT;
                continue;
            }
            if let Some(clause) = line.strip_prefix("which ") {
                effect = clause;
                continue;
            }
            if !in_section {
                continue;
            }
            for word in line.split_whitespace() {
                let folder = word.ends_with('/');
                let parts: Vec<&str> = word.trim_end_matches('/').split('/').collect();
                let first = parts[0];
                let parts = parts.into_iter().map(PartPattern::of).collect();
                let list = if first.contains('*') {
                    &mut names.wild
                } else {
                    names.plain.entry(first).or_default()
                };
                list.push(Entry {
                    parts,
                    folder,
                    effect,
                });
            }
        }
        names
    }

    /// Returns whether the end of a path, or one of its directories, is among these names.
    fn contains<P: AsRef<str>>(&self, path: &[P]) -> bool {
        self.find(path).is_some()
    }

    fn find<P: AsRef<str>>(&self, path: &[P]) -> Option<&Entry> {
        (0..path.len()).find_map(|at| {
            let rest = &path[at..];
            let first = rest[0].as_ref();
            let mut all = self
                .plain
                .get(first)
                .into_iter()
                .flatten()
                .chain(&self.wild);
            all.find(|entry| {
                (entry.folder || entry.parts.len() == rest.len())
                    && entry.parts.len() <= rest.len()
                    && entry
                        .parts
                        .iter()
                        .zip(rest)
                        .all(|(pattern, part)| pattern.fits(part.as_ref()))
            })
        })
    }
}

/// Returns whether a file with this name holds secrets.
pub(super) fn secret_name(name: &str) -> bool {
    // A backup copy holds the same secrets as the file.
    let whole = folded(name.trim_end_matches('~').trim_matches('#'));
    let mut name = whole.as_str();
    while let Some((start, "bak" | "old" | "orig" | "save" | "backup" | "swp" | "swo")) =
        name.rsplit_once('.')
    {
        name = start;
    }
    let is_swap_of_secret =
        name.len() < whole.len() && name.strip_prefix('.').is_some_and(secret_name);
    is_swap_of_secret || env_name(name) || private_key(name) || SECRET.contains(&[name])
}

/// Returns whether a folded name is `.env`, `x.env` or `.env.local`, and not an example that is
/// meant to be read.
fn env_name(name: &str) -> bool {
    const EXAMPLES: [&str; 5] = [
        ".env.example",
        ".env.sample",
        ".env.template",
        ".env.dist",
        ".env.defaults",
    ];
    (name.ends_with(".env") || name.contains(".env."))
        && !EXAMPLES.iter().any(|end| name.ends_with(end))
}

/// Returns whether a folded name is that of a private key: `id_rsa`, `id_rsa_work`,
/// `id_ed25519-github.old`, but not `id_rsa.pub` or `id_rsa.rs`.
fn private_key(name: &str) -> bool {
    let kind = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"]
        .iter()
        .find_map(|kind| name.strip_prefix(kind));
    kind.is_some_and(|rest| !rest.contains('.') && !rest.starts_with(char::is_alphabetic))
}

/// Returns whether a path holds secrets, which gives reading and changing a minimum verdict.
///
/// Decides by name alone, without reading the disk. `path` is absolute, or relative to any
/// directory.
pub fn secret(path: &Path) -> bool {
    let Some(name) = path.file_name() else {
        return false;
    };
    if secret_name(&name.to_string_lossy()) {
        return true;
    }
    // Most paths have no hidden directory and need not be split.
    if !path
        .iter()
        .any(|part| part.as_encoded_bytes().starts_with(b"."))
    {
        return false;
    }
    let parts = parts(path);
    let Some(name) = parts.last() else {
        return false;
    };
    let is_ssh_key = parts.iter().rev().nth(1).is_some_and(|dir| dir == ".ssh")
        && !name.ends_with(".pub")
        && !["known_hosts", "config", "authorized_keys"].contains(&name.as_str());
    is_ssh_key || SECRET.contains(&parts)
}

/// Files below a git directory that determine which programs git starts. The first one is a
/// directory.
pub const GIT: [&str; 5] = [
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "info/attributes",
];

/// Returns whether a path is a control file: changing it changes what runs without a question, here
/// or where the project is built, or what an agent may do. This gives editing a minimum verdict.
///
/// Decides by name alone, without reading the disk. `path` has its symlinks resolved; for a path in
/// the project it is the part below the root, for any other the whole path.
pub fn control(path: &Path) -> bool {
    let parts = parts(path);
    if is_plan_path(&parts) {
        return false;
    }
    let is_short_git_name = |part: &String| part.starts_with("git~");
    CONTROL.contains(&parts) || ELSEWHERE.contains(&parts) || parts.iter().any(is_short_git_name)
}

/// Returns the effect of changing a [`control`] file, as a clause that "which" begins: "git runs".
pub(super) fn effect(path: &Path) -> &'static str {
    let parts = parts(path);
    let entry = CONTROL.find(&parts).or_else(|| ELSEWHERE.find(&parts));
    entry.map_or(EFFECT, |entry| entry.effect)
}

/// Returns whether a control file affects only what runs where the project is built, after a push.
///
/// No sandbox of this machine can protect such a file, because git has to be able to check it out.
pub fn affects_builds_only(path: &Path) -> bool {
    let parts = parts(path);
    ELSEWHERE.contains(&parts) && !CONTROL.contains(&parts)
}

/// Returns whether a path is a control file of a git directory with any name. Reads the disk, but
/// only for the few names in question.
pub(super) fn in_git_dir(path: &Path) -> bool {
    let parts: Vec<String> = path
        .iter()
        .rev()
        .take(2)
        .map(|part| folded(&part.to_string_lossy()))
        .collect();
    let [name, above] = parts.as_slice() else {
        return false;
    };
    let levels = match (above.as_str(), name.as_str()) {
        ("hooks", _) | ("info", "attributes") => 2,
        (_, "config" | "config.worktree" | "commondir" | "hooks") => 1,
        _ => return false,
    };
    path.ancestors().nth(levels).is_some_and(is_git_dir)
}

fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").exists() && (dir.join("objects").is_dir() || dir.join("commondir").is_file())
}

/// Returns whether a path relative to the project is a plan, the only kind of file that a planning
/// agent writes.
pub fn is_plan(path: &Path) -> bool {
    let parts = parts(path);
    parts.len() == 3 && is_plan_path(&parts)
}

fn is_plan_path(parts: &[String]) -> bool {
    let [.., folder, plans, name] = parts else {
        return false;
    };
    [".opencode", ".adjutant"].contains(&folder.as_str())
        && ["plans", "plan"].contains(&plans.as_str())
        && name.ends_with(".md")
}

fn parts(path: &Path) -> Vec<String> {
    let normal = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(folded(&name.to_string_lossy())),
        _ => None,
    });
    normal.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognised_by_name() {
        let yes = [
            ".env",
            ".ENV",
            ".env ",
            ".env.",
            "prod.env",
            ".env.local",
            "a/.env.local",
            "k.pem",
            "/h/.aws/credentials",
            "/h/.kube/config",
            "/h/.ssh/work",
            "id_ed25519",
            ".Git-Credentials",
            "/h/.docker/config.json",
            "tls.key",
            "deploy/secrets.yml",
            ".npmrc",
            "id_rsa.bak",
            "server.pem.old",
            ".netrc.orig",
            ".id_ed25519.swp",
            ".env.bak",
            "/h/.cargo/credentials.toml",
            "/h/.password-store/mail/x.gpg",
            "/h/.config/git/credentials",
            "terraform.tfstate.backup",
            "id_rsa\n",
            "id_rsa\u{a0}",
            ".env\r",
            "id_rsa_work",
            "id_ed25519-github.old",
            "config/secrets.json",
            "secrets.toml",
            "secrets.enc.yaml",
            ".mylogin.cnf",
            "AuthKey_1.p8",
            ".vault_pass",
            ".vault_pass.txt",
            "/h/.claude/.credentials.json",
            "client_secret_1.apps.googleusercontent.com.json",
            ".dev.vars",
            "/h/.config/gh/hosts.yml",
        ];
        let no = [
            "a/credentials",
            "id_ed25519.pub",
            "src/config.json",
            ".env.example",
            "environment",
            "src/env.rs",
            "/h/.ssh/work.pub",
            "config.json",
            "kube/config",
            "notes.bak",
            ".env.example.bak",
            "Cargo.toml",
            "settings.xml",
            "id_rsa.rs",
            "id_rsa_work.pub",
            "id_rsafoo",
            "src/secrets.ts",
            "secrets.md",
            "client.json",
        ];
        for path in yes {
            assert!(secret(Path::new(path)), "{path:?}");
        }
        for path in no {
            assert!(!secret(Path::new(path)), "{path:?}");
        }
    }

    #[test]
    fn git_directory_of_any_name_has_control_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(root.join("meta/objects")).unwrap();
        std::fs::write(root.join("meta/HEAD"), "").unwrap();
        for (name, wanted) in [
            ("meta/config", true),
            ("meta/hooks/x", true),
            ("meta/info/attributes", true),
            ("meta/x", false),
            ("src/config", false),
        ] {
            assert_eq!(in_git_dir(&root.join(name)), wanted, "{name}");
        }
    }

    #[test]
    fn control_files_are_recognised_by_name() {
        let yes = [
            ".git/hooks/pre-commit",
            ".GIT/config",
            "sub/.git/config",
            ".opencode/opencode.json",
            "opencode.jsonc",
            "AGENTS.md",
            "docs/CLAUDE.md",
            ".vscode/settings.json",
            ".envrc",
            ".opencode/plans/x.json",
            ".opencode/plans/a/../../x.md/y",
            "/h/.config/adjutant/adjutant.json",
            "/h/.cache/adjutant/plugins/a@1/node_modules/a/index.js",
            "/h/main/.git/worktrees/w/config.worktree",
            "/h/main/.git/modules/m/hooks/post-checkout",
            ".claude/settings.json",
            ".cursor/rules/x.mdc",
            ".claude./settings.json",
            ".g\u{200c}it/config",
            "GIT~1/config",
            "agent\u{17f}.md",
            ".github/instructions/x.instructions.md",
            ".nvim.lua",
            "sub/.gdbinit",
            ".Rprofile",
            "/h/.config/systemd/user/x.service",
            ".claude.json",
            ".devcontainer.json",
            ".lefthook.yml",
            "lefthook-local.toml",
            ".lefthook/pre-commit/x.sh",
            ".pre-commit-config.yml",
            "AGENT.md",
            "sub/.rules",
            ".roomodes",
            ".roorules-code",
            "WARP.md",
            "x.code-workspace",
            ".tool-versions",
            "mise.local.toml",
            ".config/mise/config.toml",
            ".yarnrc",
            ".pnpmfile.cjs",
            ".mvn/extensions.xml",
            "gradle/wrapper/gradle-wrapper.properties",
            ".hg/hgrc",
            ".helix/languages.toml",
            ".openhands/setup.sh",
            "sub/.pdbrc",
        ];
        let no = [
            ".opencode/plans/x.md",
            ".gitignore",
            "src/git/x.rs",
            "agents/x.md",
            ".github/x.yml",
            ".github/ISSUE_TEMPLATE/bug.md",
            "package.json",
            "Makefile",
            "justfile",
            "build.rs",
            "gradle/libs.versions.toml",
            "README.md",
            "rules",
            "src/agent.rs",
        ];
        for path in yes {
            assert!(
                control(Path::new(path)) && !affects_builds_only(Path::new(path)),
                "{path:?}"
            );
        }
        for path in no {
            assert!(!control(Path::new(path)), "{path:?}");
        }
        let built = [
            ".github/workflows/x.yml",
            ".github/actions/a/action.yml",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
            "Jenkinsfile",
        ];
        for path in built {
            assert!(
                control(Path::new(path)) && affects_builds_only(Path::new(path)),
                "{path:?}"
            );
        }
    }
}
