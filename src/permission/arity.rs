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

const THREE: [&str; 45] = [
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
];

const THREE_MORE: [&str; 2] = ["yarn dlx", "yarn run"];

/// The words that name what a command does; the longest known beginning decides.
pub fn prefix<'w, 's>(words: &'w [&'s str]) -> &'w [&'s str] {
    let known = |count: usize| {
        let text = words.get(..count)?.join(" ");
        let text = text.as_str();
        if THREE.contains(&text) || THREE_MORE.contains(&text) {
            Some(3)
        } else if TWO.contains(&text) {
            Some(2)
        } else {
            ONE.contains(&text).then_some(1)
        }
    };
    let count = [2, 1].into_iter().find_map(known).unwrap_or(1);
    &words[..count.min(words.len())]
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn prefixes() {
        let table = [
            ("git commit -m x", "git commit"),
            ("npm run dev --x", "npm run dev"),
            ("docker compose up", "docker compose up"),
            ("python a.py", "python a.py"),
            ("rm -rf x", "rm"),
            ("npm --silent run x", "npm --silent"),
            ("git", "git"),
            ("mytool a b", "mytool"),
            ("gh pr list", "gh pr list"),
            ("yarn dlx x y", "yarn dlx x"),
        ];
        for (command, expected) in table {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(prefix(&words).join(" "), expected, "{command}");
        }
    }
}
