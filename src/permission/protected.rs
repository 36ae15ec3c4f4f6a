//! Files that no broad rule opens: secrets (reading asks), files that decide what runs on this
//! machine (changing them asks), and our own keys and sessions (never). Names are compared in lower
//! case and without trailing blanks and dots, because some file systems do the same.

use std::path::{Component, Path};

/// Why a path is special.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    /// Holds keys or passwords: reading it asks.
    Secret,
    /// Changes what runs on this machine, or what the agent may do: changing it asks.
    Control,
    /// The agent's own keys, sessions and grants, or a process's variables: never.
    Own,
}

/// A name as the most forgiving file system compares it: letters in any case, trailing blanks and
/// dots gone, characters without a form gone. What follows a colon is a stream of the file.
pub(super) fn folded(name: &str) -> String {
    let file = name.split(':').next().filter(|file| !file.is_empty()).unwrap_or(name);
    let file = file.trim_end_matches(['.', ' ', '\t']);
    if file.is_ascii() {
        return file.to_ascii_lowercase();
    }
    let seen = file.chars().filter(
        |c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}'),
    );
    seen.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Whether a file of this name holds secrets.
pub(super) fn secret_name(name: &str) -> bool {
    const NAMES: [&str; 32] = [
        ".envrc",
        ".netrc",
        "_netrc",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".git-credentials",
        ".pgpass",
        ".my.cnf",
        ".htpasswd",
        ".vault-token",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "id_ecdsa_sk",
        "id_ed25519_sk",
        "credentials.json",
        "service-account.json",
        "secrets.yml",
        "secrets.yaml",
        "auth.json",
        ".boto",
        ".s3cfg",
        ".dockercfg",
        ".dockerconfigjson",
        ".terraformrc",
        "credentials.tfrc.json",
        "terraform.tfstate",
        "rclone.conf",
        "kubeconfig",
        "wallet.dat",
    ];
    const ENDS: [&str; 8] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk"];
    // An editor's or somebody's copy holds the same as the file.
    let whole = folded(name.trim_end_matches('~').trim_matches('#'));
    let mut name = whole.as_str();
    while let Some((start, "bak" | "old" | "orig" | "save" | "backup" | "swp" | "swo")) = name.rsplit_once('.') {
        name = start;
    }
    let swapped = name.len() < whole.len() && name.strip_prefix('.').is_some_and(secret_name);
    swapped || env_name(name) || NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// `.env`, `x.env`, `.env.local`; not the examples that are meant to be read. `name` is folded.
fn env_name(name: &str) -> bool {
    const EXAMPLES: [&str; 5] = [".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"];
    (name.ends_with(".env") || name.contains(".env.")) && !EXAMPLES.iter().any(|end| name.ends_with(end))
}

/// Whether a path holds secrets: the floor of reading, and of changing. By name alone, nothing is
/// looked up; `path` is absolute, or relative to anything.
pub fn secret(path: &Path) -> bool {
    const TAILS: [&[&str]; 15] = [
        &[".aws", "credentials"],
        &[".aws", "config"],
        &[".kube", "config"],
        &[".docker", "config.json"],
        &[".config", "gh", "hosts.yml"],
        &[".config", "gcloud", "*"],
        &[".gnupg", "*"],
        &[".azure", "*"],
        &[".cargo", "credentials"],
        &[".cargo", "credentials.toml"],
        &[".config", "git", "credentials"],
        &[".gem", "credentials"],
        &[".m2", "settings.xml"],
        &[".gradle", "gradle.properties"],
        &[".password-store", "*"],
    ];
    let Some(name) = path.file_name() else { return false };
    if secret_name(&name.to_string_lossy()) {
        return true;
    }
    // Most paths go through no folder of that kind, and need not be taken apart.
    let within = |part: &std::ffi::OsStr| {
        let part = part.as_encoded_bytes();
        let heads: [&[u8]; 12] = [
            b".aws",
            b".kube",
            b".docker",
            b".config",
            b".gnupg",
            b".azure",
            b".ssh",
            b".cargo",
            b".gem",
            b".m2",
            b".gradle",
            b".password-store",
        ];
        heads.iter().any(|head| part.len() >= head.len() && part[..head.len()].eq_ignore_ascii_case(head))
    };
    if !path.iter().any(within) {
        return false;
    }
    let parts = parts(path);
    let Some(name) = parts.last() else { return false };
    let tail = |tail: &&[&str]| {
        let any = tail.last() == Some(&"*");
        let fixed = if any { &tail[..tail.len() - 1] } else { tail };
        parts.windows(fixed.len()).enumerate().any(|(at, window)| {
            window.iter().zip(fixed).all(|(a, b)| a == b) && (any || at + fixed.len() == parts.len())
        })
    };
    let ssh = parts.iter().rev().nth(1).is_some_and(|dir| dir == ".ssh")
        && !name.ends_with(".pub")
        && !["known_hosts", "config", "authorized_keys"].contains(&name.as_str());
    ssh || TAILS.iter().any(tail)
}

/// Folders in which everything decides what runs on this machine or what an agent may do.
const FOLDERS: [&str; 27] = [
    ".git",
    ".husky",
    ".opencode",
    ".adjutant",
    ".claude",
    ".agents",
    ".codex",
    ".gemini",
    ".cursor",
    ".windsurf",
    ".clinerules",
    ".roo",
    ".continue",
    ".kiro",
    ".vscode",
    ".idea",
    ".zed",
    ".devcontainer",
    ".ssh",
    ".githooks",
    ".direnv",
    ".amazonq",
    ".augment",
    ".junie",
    ".qwen",
    ".trae",
    ".aider",
];

/// Files that do, wherever they lie.
const FILES: [&str; 53] = [
    ".gitattributes",
    ".gitmodules",
    ".gitconfig",
    "opencode.json",
    "opencode.jsonc",
    "adjutant.json",
    "adjutant.jsonc",
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "CONTEXT.md",
    "GEMINI.md",
    "copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
    ".mcp.json",
    "mcp.json",
    ".envrc",
    "mise.toml",
    ".mise.toml",
    "rust-toolchain.toml",
    "rust-toolchain",
    ".pre-commit-config.yaml",
    "lefthook.yml",
    "lefthook.yaml",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".npmrc",
    ".yarnrc.yml",
    ".bash_aliases",
    ".bash_logout",
    ".zlogout",
    ".inputrc",
    ".xprofile",
    ".xinitrc",
    ".xsessionrc",
    ".exrc",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".gdbinit",
    ".lldbinit",
    ".dir-locals.el",
    ".Rprofile",
    ".aider.conf.yml",
    ".goosehints",
];

/// What decides what git starts, below a git directory. The first is a folder.
pub const GIT: [&str; 5] = ["hooks", "config", "config.worktree", "commondir", "info/attributes"];

/// Whether changing a path changes what runs on this machine or what an agent may do: the floor of
/// editing. By name alone, nothing is looked up. `path` has its symlinks followed; of a path in the
/// project it is the part below the root, of any other all of it.
pub fn control(path: &Path) -> bool {
    let parts = parts(path);
    let Some(name) = parts.last() else { return false };
    if plan(&parts) {
        return false;
    }
    let any = |names: &[&str], name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    parts.iter().any(|part| any(&FOLDERS, part) || part.starts_with("git~"))
        || any(&FILES, name)
        || parts.windows(2).any(|pair| pair[0] == ".cargo" && pair[1].starts_with("config"))
        || parts.windows(2).any(|pair| match pair[0].as_str() {
            ".config" => {
                ["opencode", "adjutant", "git", "fish", "nvim", "autostart", "systemd"].contains(&pair[1].as_str())
            }
            ".github" => ["instructions", "prompts", "chatmodes", "agents"].contains(&pair[1].as_str()),
            _ => false,
        })
}

/// Whether a path decides what git starts in a git directory of any name. Looks at the disk, for the
/// few names that could.
pub(super) fn in_git_dir(path: &Path) -> bool {
    let parts: Vec<String> = path.iter().rev().take(2).map(|part| folded(&part.to_string_lossy())).collect();
    let [name, above] = parts.as_slice() else { return false };
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

/// Whether a path relative to the project is a plan: the one place a planning agent writes to.
pub fn is_plan(path: &Path) -> bool {
    let parts = parts(path);
    parts.len() == 3 && plan(&parts)
}

fn plan(parts: &[String]) -> bool {
    let [.., folder, plans, name] = parts else { return false };
    [".opencode", ".adjutant"].contains(&folder.as_str())
        && ["plans", "plan"].contains(&plans.as_str())
        && name.ends_with(".md")
}

fn parts(path: &Path) -> Vec<String> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(folded(&name.to_string_lossy())),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets() {
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
        ];
        for path in yes {
            assert!(secret(Path::new(path)), "{path:?}");
        }
        for path in no {
            assert!(!secret(Path::new(path)), "{path:?}");
        }
    }

    /// A git directory counts whatever its name is.
    #[test]
    fn git_directories_of_any_name() {
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
    fn control_files_by_name() {
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
        ];
        let no = [
            ".opencode/plans/x.md",
            ".gitignore",
            "src/git/x.rs",
            "agents/x.md",
            ".github/x.yml",
            ".github/workflows/x.yml",
        ];
        for path in yes {
            assert!(control(Path::new(path)), "{path:?}");
        }
        for path in no {
            assert!(!control(Path::new(path)), "{path:?}");
        }
    }
}
