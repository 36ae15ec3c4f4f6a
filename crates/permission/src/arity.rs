//! Tables of the number of words that name the action of a command: `git commit -m x` is `git
//! commit`, `npm run dev --x` is `npm run dev`.

const ONE: [&str; 25] = [
    "cat", "cd", "chmod", "chown", "cp", "echo", "env", "export", "grep", "kill", "killall", "ln",
    "ls", "mkdir", "mv", "ps", "pwd", "rm", "rmdir", "sleep", "source", "tail", "touch", "unset",
    "which",
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

/// Commands of which each is a question of its own: their effect depends on later words, or cannot
/// be undone.
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

/// Commands that use the network and only read.
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

/// Modules of Python that check a project and run nothing but its tests.
const CHECKERS: &[&str] = &[
    "black", "flake8", "isort", "mypy", "pylint", "pytest", "ruff", "unittest",
];

/// Programs that work with containers.
const CONTAINERS: &[&str] = &[
    "docker",
    "podman",
    "nerdctl",
    "finch",
    "container",
    "docker-compose",
    "lxc",
    "incus",
];

/// Further programs whose first word alone does not name the action; see [`TWO`].
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
    let begins_with = |text: &str| {
        words
            .iter()
            .copied()
            .take(text.split(' ').count())
            .eq(text.split(' '))
    };
    known.iter().any(|text| begins_with(text))
}

/// Returns the words that name the action of a command, by the longest known prefix.
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

/// Returns the prefix that "always" may grant, or `None` if the command is too short or its prefix
/// does not determine its effect.
pub fn granted<'w, 's>(words: &'w [&'s str]) -> Option<&'w [&'s str]> {
    if begins_like(words, EACH) && !begins_like(words, ONLINE) {
        return None;
    }
    words.get(..length(words))
}

/// Returns whether the second word is a sub-command, of a program that also accepts the name of a
/// program there.
pub fn is_subcommand(words: &[&str]) -> bool {
    begins_like(words, SUBCOMMANDS)
}

/// Returns whether "always" may be offered for a command that uses the network: for its prefix, or
/// for exactly its words.
pub fn may_go_online(words: &[&str]) -> bool {
    // The destination of a push is not part of its words.
    begins_like(words, ONLINE)
        || matches!(words, ["git", command, ..] if *command != "push" && !command.starts_with('-'))
}

/// Returns whether the prefix of a command determines its effect: no later word starts another
/// program, uses the network or works in a container.
pub fn is_granted_by_beginning(words: &[&str], network: bool) -> bool {
    let Some((name, rest)) = words.split_first() else {
        return false;
    };
    let has_option = |options: &[&str]| {
        rest.iter()
            .any(|word| options.iter().any(|option| word.starts_with(option)))
    };
    let starts_others = match *name {
        "go" => has_option(&[
            "-exec",
            "--exec",
            "-toolexec",
            "--toolexec",
            "-vettool",
            "--vettool",
        ]),
        "make" | "gmake" | "ninja" | "just" => {
            let targets = rest
                .iter()
                .filter(|word| !word.starts_with('-') && !word.contains('='))
                .count();
            targets > 1
                || has_option(&[
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

/// Returns whether a module of Python checks a project and runs nothing but its tests.
pub fn is_checker(module: &str) -> bool {
    CHECKERS.contains(&module)
}

/// Returns whether a command starts a program in a container. Only the first words are checked,
/// since options with values may precede the sub-command.
pub fn runs_in_container(words: &[&str]) -> bool {
    const STARTS: [&str; 9] = [
        "run", "exec", "create", "start", "attach", "up", "build", "play", "debug",
    ];
    let Some((name, rest)) = words.split_first() else {
        return false;
    };
    // `docker --context c compose -f f.yml run x`
    CONTAINERS.contains(name) && rest.iter().take(8).any(|word| STARTS.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{granted, prefix};

    #[test]
    fn prefixes_name_the_action() {
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
        for command in [
            "git",
            "make",
            "gh pr",
            "gh api /x",
            "npm publish",
            "kubectl delete pod",
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(granted(&words), None, "{command}");
        }
    }
}
