//! How many words of a command say what it does: `git commit -m x` is `git commit`,
//! `npm run dev --x` is `npm run dev`.

const ONE: [&str; 25] = [
    "cat", "cd", "chmod", "chown", "cp", "echo", "env", "export", "grep", "kill", "killall", "ln", "ls", "mkdir", "mv",
    "ps", "pwd", "rm", "rmdir", "sleep", "source", "tail", "touch", "unset", "which",
];

const TWO: [&str; 76] = [
    "tar",
    "node",
    "ruby",
    "bazel",
    "brew",
    "bun",
    "cargo",
    "cdk",
    "cf",
    "cmake",
    "composer",
    "consul",
    "crictl",
    "deno",
    "docker",
    "eksctl",
    "firebase",
    "flyctl",
    "git",
    "go",
    "gradle",
    "helm",
    "heroku",
    "hugo",
    "ip",
    "kind",
    "kubectl",
    "kustomize",
    "make",
    "mc",
    "minikube",
    "mongosh",
    "mysql",
    "mvn",
    "ng",
    "npm",
    "nvm",
    "nx",
    "openssl",
    "pip",
    "pipenv",
    "pnpm",
    "poetry",
    "podman",
    "psql",
    "pulumi",
    "pyenv",
    "python",
    "rake",
    "rbenv",
    "redis-cli",
    "rustup",
    "serverless",
    "skaffold",
    "sls",
    "sst",
    "swift",
    "systemctl",
    "terraform",
    "tmux",
    "turbo",
    "ufw",
    "vault",
    "vercel",
    "volta",
    "wp",
    "yarn",
    "bundle",
    "dotnet",
    "just",
    "mise",
    "uv",
    "zig",
    "mix",
    "stack",
    "cabal",
];

const THREE: [&str; 50] = [
    "aws",
    "az",
    "bun run",
    "bun x",
    "cargo add",
    "cargo run",
    "consul kv",
    "deno task",
    "doctl",
    "docker builder",
    "docker compose",
    "docker container",
    "docker image",
    "docker network",
    "docker volume",
    "eksctl create",
    "gcloud",
    "gh",
    "go mod",
    "go run",
    "go tool",
    "git config",
    "git remote",
    "git stash",
    "ip addr",
    "ip link",
    "ip netns",
    "ip route",
    "kind create",
    "kubectl kustomize",
    "kubectl rollout",
    "mc admin",
    "npm exec",
    "npm init",
    "npm run",
    "npm view",
    "openssl req",
    "openssl x509",
    "pnpm dlx",
    "pnpm exec",
    "pnpm run",
    "podman container",
    "podman image",
    "pulumi stack",
    "sfdx",
    "terraform workspace",
    "vault auth",
    "vault kv",
    "uv pip",
    "yarn workspace",
];

const THREE_MORE: [&str; 2] = ["yarn dlx", "yarn run"];

/// Commands of which each one is a question of its own: what they do stands behind these words, or cannot be undone.
const EACH: &[&str] = &[
    "bun publish",
    "cargo publish",
    "docker system",
    "gcloud",
    "gh api",
    "gh gist",
    "gh repo",
    "gh secret",
    "git clean",
    "git worktree",
    "kubectl",
    "npm owner",
    "npm publish",
    "npx",
    "oc",
    "pnpm publish",
    "poetry publish",
    "terraform state",
    "uv publish",
    "yarn npm",
    "yarn publish",
];

/// Sub-commands of programs that also run other programs.
const SUBCOMMANDS: &[&str] = &[
    "bun add",
    "bun build",
    "bun install",
    "bun pm",
    "bun remove",
    "bun run",
    "bun test",
    "bun update",
    "uv add",
    "uv build",
    "uv lock",
    "uv pip",
    "uv remove",
    "uv sync",
    "uv tree",
    "uv venv",
];

/// Commands that use the network and only show what is there.
const ONLINE: &[&str] = &[
    "kubectl get",
    "kubectl describe",
    "kubectl logs",
    "kubectl explain",
    "oc get",
    "oc describe",
    "oc logs",
    "oc explain",
];

/// Modules of Python that look at a project and run nothing but its tests.
const CHECKERS: &[&str] = &["black", "flake8", "isort", "mypy", "pylint", "pytest", "ruff", "unittest"];

/// Programs that work with containers.
const CONTAINERS: &[&str] = &["docker", "podman", "nerdctl", "finch", "container", "docker-compose", "lxc", "incus"];

/// Programs of which the first word alone says little, besides those of [`TWO`].
const WORDED: &[&str] = &[
    "apk",
    "apt",
    "apt-get",
    "bzr",
    "conda",
    "container",
    "crontab",
    "dnf",
    "docker-compose",
    "finch",
    "glab",
    "gmake",
    "gsutil",
    "hg",
    "incus",
    "jj",
    "lxc",
    "mamba",
    "nerdctl",
    "nix",
    "pacman",
    "pip3",
    "rclone",
    "snap",
    "svn",
    "yum",
    "zypper",
];

fn begins_like(words: &[&str], known: &[&str]) -> bool {
    let begins = |text: &str| words.iter().copied().take(text.split(' ').count()).eq(text.split(' '));
    known.iter().any(|text| begins(text))
}

/// The words that name what a command does; the longest known beginning decides.
pub fn prefix<'w, 's>(words: &'w [&'s str]) -> &'w [&'s str] {
    &words[..length(words).min(words.len())]
}

fn length(words: &[&str]) -> usize {
    let known = |count: usize| {
        let text = words.get(..count)?.join(" ");
        let text = text.as_str();
        if THREE.contains(&text) || THREE_MORE.contains(&text) {
            Some(3)
        } else if TWO.contains(&text) || WORDED.contains(&text) {
            Some(2)
        } else {
            ONE.contains(&text).then_some(1)
        }
    };
    [2, 1].into_iter().find_map(known).unwrap_or(1)
}

/// Returns the same for "always": none where there are fewer words, or where they do not say what would be granted.
pub fn granted<'w, 's>(words: &'w [&'s str]) -> Option<&'w [&'s str]> {
    let each = begins_like(words, EACH) && !begins_like(words, ONLINE);
    if each { None } else { words.get(..length(words)) }
}

/// Whether the second word is a sub-command, of a program that takes the name of another program there too.
pub fn is_subcommand(words: &[&str]) -> bool {
    begins_like(words, SUBCOMMANDS)
}

/// Whether something of a command that uses the network can be granted for good: its beginning, or all its words.
pub fn may_go_online(words: &[&str]) -> bool {
    // Where a push goes is not in its words.
    begins_like(words, ONLINE)
        || matches!(words, ["git", command, ..] if *command != "push" && !command.starts_with('-'))
}

/// Whether the beginning of a command can say what it does: nothing behind that starts another program, goes to the
/// network or works in a container.
pub fn is_granted_by_beginning(words: &[&str], network: bool) -> bool {
    let Some((name, rest)) = words.split_first() else { return false };
    let given = |options: &[&str]| rest.iter().any(|word| options.iter().any(|option| word.starts_with(option)));
    let starts_others = match *name {
        "go" => given(&["-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool"]),
        "make" | "gmake" | "ninja" | "just" => {
            let targets = rest.iter().filter(|word| !word.starts_with('-') && !word.contains('=')).count();
            targets > 1
                || given(&[
                    "-f",
                    "-C",
                    "-I",
                    "-E",
                    "--file",
                    "--makefile",
                    "--directory",
                    "--include",
                    "--eval",
                    "SHELL=",
                ])
        }
        _ => false,
    };
    !starts_others && !runs_in_container(words) && (!network || begins_like(words, ONLINE))
}

/// Whether a module of Python looks at a project and runs nothing but its tests.
pub fn is_checker(module: &str) -> bool {
    CHECKERS.contains(&module)
}

/// Whether it starts a program in a container, as far as the words before that may be options with their values.
pub fn runs_in_container(words: &[&str]) -> bool {
    const STARTS: [&str; 9] = ["run", "exec", "create", "start", "attach", "up", "build", "play", "debug"];
    let Some((name, rest)) = words.split_first() else { return false };
    // `docker --context c compose -f f.yml run x`
    CONTAINERS.contains(name) && rest.iter().take(8).any(|word| STARTS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{granted, prefix};

    #[test]
    fn prefixes() {
        let table = [
            ("git commit -m x", "git commit"),
            ("npm run dev --x", "npm run dev"),
            ("docker compose up", "docker compose up"),
            ("python a.py", "python a.py"),
            ("rm -rf x", "rm"),
            ("npm --silent run x", "npm --silent"),
            ("go run x.go y", "go run x.go"),
            ("kubectl get pods", "kubectl get"),
            ("mytool a b", "mytool"),
            ("gh pr list", "gh pr list"),
            ("yarn dlx x y", "yarn dlx x"),
        ];
        for (command, expected) in table {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(prefix(&words).join(" "), expected, "{command}");
            assert_eq!(granted(&words), Some(prefix(&words)), "{command}");
        }
        for command in ["git", "make", "gh pr", "gh api /x", "npm publish", "kubectl delete pod"] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(granted(&words), None, "{command}");
        }
    }
}
