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

/// A name as the most forgiving file system compares it: what follows a colon is a stream of the file.
pub(super) fn folded(name: &str) -> String {
    let file = name.split(':').next().filter(|file| !file.is_empty()).unwrap_or(name);
    file.trim_end_matches(['.', ' ', '\t']).to_lowercase()
}

/// Whether a file of this name holds secrets.
pub(super) fn secret_name(name: &str) -> bool {
    const NAMES: [&str; 22] = [
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
    ];
    const ENDS: [&str; 8] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk"];
    // An editor's copy holds the same as the file.
    let name = folded(name.trim_end_matches('~').trim_matches('#'));
    env_name(&name) || NAMES.contains(&name.as_str()) || ENDS.iter().any(|end| name.ends_with(end))
}

/// `.env`, `x.env`, `.env.local`; not the examples that are meant to be read. `name` is folded.
fn env_name(name: &str) -> bool {
    const EXAMPLES: [&str; 5] = [".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"];
    (name.ends_with(".env") || name.contains(".env.")) && !EXAMPLES.iter().any(|end| name.ends_with(end))
}

/// Whether a resolved path holds secrets.
pub fn secret(path: &Path) -> bool {
    const TAILS: [&[&str]; 8] = [
        &[".aws", "credentials"],
        &[".aws", "config"],
        &[".kube", "config"],
        &[".docker", "config.json"],
        &[".config", "gh", "hosts.yml"],
        &[".config", "gcloud", "*"],
        &[".gnupg", "*"],
        &[".azure", "*"],
    ];
    let Some(name) = path.file_name() else { return false };
    if secret_name(&name.to_string_lossy()) {
        return true;
    }
    // Most paths go through no folder of that kind, and need not be taken apart.
    let within = |part: &std::ffi::OsStr| {
        let part = part.as_encoded_bytes();
        let heads: [&[u8]; 7] = [b".aws", b".kube", b".docker", b".config", b".gnupg", b".azure", b".ssh"];
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

/// Whether changing a path changes what runs on this machine or what an agent may do. The path is
/// resolved; the part below the project counts, and the whole path outside.
pub(super) fn control(path: &Path) -> bool {
    const FOLDERS: [&str; 16] = [
        ".git",
        ".husky",
        ".opencode",
        ".adjutant",
        ".claude",
        ".agents",
        ".codex",
        ".gemini",
        ".cursor",
        ".vscode",
        ".idea",
        ".zed",
        ".devcontainer",
        ".ssh",
        ".githooks",
        ".direnv",
    ];
    const FILES: [&str; 34] = [
        ".gitattributes",
        ".gitmodules",
        ".gitconfig",
        "opencode.json",
        "opencode.jsonc",
        "adjutant.json",
        "adjutant.jsonc",
        "agents.md",
        "claude.md",
        "claude.local.md",
        "context.md",
        "gemini.md",
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
    ];
    let parts = parts(path);
    let Some(name) = parts.last() else { return false };
    if plan(&parts) {
        return false;
    }
    parts.iter().any(|part| FOLDERS.contains(&part.as_str()))
        || FILES.contains(&name.as_str())
        || parts.windows(2).any(|pair| pair[0] == ".cargo" && pair[1].starts_with("config"))
        || parts
            .windows(2)
            .any(|pair| pair[0] == ".config" && ["opencode", "adjutant", "git", "fish"].contains(&&*pair[1]))
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
        ];
        let no = [".env.example", "environment", "src/env.rs", "/h/.ssh/work.pub", "config.json", "kube/config"];
        for path in yes {
            assert!(secret(Path::new(path)), "{path:?}");
        }
        for path in no {
            assert!(!secret(Path::new(path)), "{path:?}");
        }
    }

    #[test]
    fn control_files() {
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
        ];
        let no = [".opencode/plans/x.md", ".gitignore", "src/git/x.rs", "agents/x.md", ".github/x.yml"];
        for path in yes {
            assert!(control(Path::new(path)), "{path:?}");
        }
        for path in no {
            assert!(!control(Path::new(path)), "{path:?}");
        }
    }
}
