//! Projects that the tables of paths and command lines expect, for the tests of this crate and of
//! its dependents.

#![expect(clippy::unwrap_used, reason = "it is part of tests")]

use std::path::PathBuf;

use super::PermissionContext;

/// A workspace as the tables expect it, next to a directory `out` that does not belong to it.
pub struct PathFixture {
    _dir: tempfile::TempDir,
    pub context: PermissionContext,
    pub out: PathBuf,
}

impl Default for PathFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl PathFixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("ws");
        let out = top.join("out");
        let home = top.join("home");
        for folder in [
            root.join("src/deep"),
            root.join(".git/hooks"),
            out.clone(),
            home.clone(),
            root.join("..hidden"),
        ] {
            std::fs::create_dir_all(folder).unwrap();
        }
        for file in [
            "a.txt",
            "b.txt",
            "victim.txt",
            "list",
            "x",
            "script.sh",
            "src/deep/f",
            ".env",
            ".env.example",
            "..hidden/f",
        ] {
            std::fs::write(root.join(file), "alpha\n").unwrap();
        }
        std::fs::write(root.join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        std::fs::write(out.join("secret"), "s").unwrap();
        std::fs::write(out.join("secret.txt"), "s").unwrap();
        std::os::unix::fs::symlink("../out", root.join("link")).unwrap();
        std::os::unix::fs::symlink("../out/secret", root.join("linkf")).unwrap();
        std::os::unix::fs::symlink("src", root.join("inlink")).unwrap();
        let context = PermissionContext {
            cwd: root.clone(),
            root,
            home: Some(home),
            path: ["/usr/local/bin", "/usr/bin", "/bin"]
                .map(PathBuf::from)
                .to_vec(),
            data_dir: top.join("data/adjutant"),
            ..PermissionContext::default()
        };
        Self {
            _dir: dir,
            context,
            out,
        }
    }

    /// Creates a workspace with the further files that `path_cases_more.csv` expects.
    pub fn with_more() -> Self {
        use std::os::unix::fs::symlink;
        let lab = Self::new();
        let path = |name: &str| lab.context.root.join(name);
        for file in ["AGENTS.md", "server.key", "new dir x"] {
            std::fs::write(path(file), "x\n").unwrap();
        }
        for (to, link) in [
            ("loop", "loop"),
            ("src", "two"),
            ("two", "three"),
            (".env", "plain.txt"),
            ("AGENTS.md", "notes.txt"),
            (".env", ".env.sample"),
            ("pipes/p", "pipe-link"),
        ] {
            symlink(to, path(link)).unwrap();
        }
        std::fs::create_dir(path("pipes")).unwrap();
        nix::unistd::mkfifo(&path("pipes/p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        lab
    }
}

/// Parses a CSV file and returns its records without the header.
pub fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = vec![vec![String::new()]];
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        let record = records.last_mut().unwrap();
        match c {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                record.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(String::new()),
            '\n' if !quoted => records.push(vec![String::new()]),
            '\r' if !quoted => {}
            c => record.last_mut().unwrap().push(c),
        }
    }
    records.retain(|record| record.len() > 1);
    records.remove(0);
    records
}

/// Creates the workspace for a row of the table of paths, with the spellings if the row covers
/// several names. `crates/tools/src/gate.rs` runs the rows.
pub fn path_fixture(id: &str) -> (PathFixture, Vec<String>) {
    let mut lab = PathFixture::new();
    let root = lab.context.root.clone();
    let inputs: Vec<String> = match id {
        "P12" => {
            std::os::unix::fs::symlink("missing", root.join("dang_in")).unwrap();
            vec!["dang_in".into()]
        }
        "P13" | "P14" => {
            std::fs::create_dir_all(root.join(".opencode/plans")).unwrap();
            vec![]
        }
        "P38" => {
            std::fs::create_dir_all(root.join("%2e%2e")).unwrap();
            vec![]
        }
        "P39" => vec!["C:\\x".into(), "\\\\host\\share\\x".into()],
        "P41" => {
            lab.context.root = "/".into();
            lab.context.cwd = "/".into();
            vec!["/x".into(), format!("{}/a.txt", root.display())]
        }
        "P40" => {
            let name = root.file_name().unwrap().to_str().unwrap().to_uppercase();
            vec![root.with_file_name(name).join("a.txt").display().to_string()]
        }
        "P43" => {
            // A submodule: its `.git` leads elsewhere, but the project is unchanged.
            std::fs::create_dir_all(root.join("sub")).unwrap();
            std::fs::write(root.join("sub/.git"), "gitdir: ../../out\n").unwrap();
            std::fs::write(root.join("sub/f"), "x\n").unwrap();
            vec!["sub/f".into(), root.join("sub/f").display().to_string()]
        }
        "P104" => ["a.txt", "b.txt", "../out/x", "src/new", "list"].map(str::to_owned).to_vec(),
        "P57" => vec![".env ".into()],
        "P63" => ".envrc .netrc .npmrc .pypirc id_ed25519 k.pem .git-credentials .aws/credentials .kube/config .docker/config.json"
            .split(' ')
            .map(str::to_owned)
            .collect(),
        "P65" => vec!["/proc/self/environ".into(), "/proc/1/environ".into(), "/proc/1/root/etc/hosts".into()],
        "P66" => ["auth.json", "sessions/x.db", "grants.json"]
            .map(|name| lab.context.data_dir.join(name).display().to_string())
            .to_vec(),
        "P72" => vec!["opencode.json".into(), ".opencode/x".into(), ".opencode/agent/y.md".into()],
        "P73" => vec!["AGENTS.md".into(), "CLAUDE.md".into()],
        "P75" => vec![".gitattributes".into(), ".gitmodules".into()],
        "P77" => vec![".opencode/opencode.json".into()],
        "P80" => {
            nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            vec!["fifo".into()]
        }
        "P81" => vec!["/dev/zero".into(), "/dev/random".into()],
        "P82" => vec!["/dev/stdin".into(), "/dev/fd/3".into(), "/proc/self/fd/3".into()],
        "P83" => {
            std::os::unix::net::UnixListener::bind(root.join("sock")).unwrap();
            vec!["sock".into()]
        }
        "P85" => {
            std::fs::write(root.join("a.txt\n"), "x\n").unwrap();
            vec!["a.txt\n".into()]
        }
        "P86" => {
            std::fs::write(root.join("\x1b]0;x\x07.md"), "x\n").unwrap();
            vec!["\x1b]0;x\x07.md".into()]
        }
        "P89" => vec!["a\0b".into()],
        "P92" => {
            std::fs::hard_link(lab.out.join("secret"), root.join("hard")).unwrap();
            vec!["hard".into()]
        }
        "P103" => vec!["a*.txt".into()],
        "P108" => vec!["link/secret".into()],
        _ => vec![],
    };
    (lab, inputs)
}
