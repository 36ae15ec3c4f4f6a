//! The tables of `editor-tests/data` about paths against the engine: every row is a promise about a
//! class of paths. The tables of command lines need agents, and are in `agent/tables.rs`.

use std::path::{Path, PathBuf};

use super::approve::settles;
use super::rule;
use super::{Action, PermissionContext, Rules, Verdict, command_need, evaluate};
use crate::approvals::Approvals;

/// A workspace as the tables expect it, beside a directory `out` that does not belong to it.
pub(crate) struct Lab {
    _dir: tempfile::TempDir,
    pub(crate) place: PermissionContext,
    pub(super) out: PathBuf,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (root, out, home) = (top.join("ws"), top.join("out"), top.join("home"));
        for folder in [root.join("src/deep"), root.join(".git/hooks"), out.clone(), home.clone(), root.join("..hidden")]
        {
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
        let place = PermissionContext {
            cwd: root.clone(),
            root,
            home: Some(home),
            path: ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
            data: top.join("data/adjutant"),
            ..PermissionContext::default()
        };
        Self { _dir: dir, place, out }
    }

    /// With what the rows of `path_cases_more.csv` find there.
    pub(crate) fn with_more() -> Self {
        use std::os::unix::fs::symlink;
        let lab = Self::new();
        let path = |name: &str| lab.place.root.join(name);
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

/// The records of a CSV file, the first one left out.
pub(crate) fn records(text: &str) -> Vec<Vec<String>> {
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

fn base(place: &PermissionContext) -> Rules {
    rule::base(&place.data, Path::new("/scratch-of-the-session"), &[] as &[PathBuf])
}

pub(super) fn with(place: &PermissionContext, rules: &[(&str, Action)]) -> Rules {
    base(place).then(&Rules::written("bash", rules))
}

pub(super) fn r1(place: &PermissionContext) -> Rules {
    with(place, &[("*", Action::Ask), ("git diff*", Action::Allow), ("ls*", Action::Allow)])
}

pub(super) fn r2(place: &PermissionContext) -> Rules {
    with(place, &[("*", Action::Allow), ("rm*", Action::Deny)])
}

pub(super) fn plan(place: &PermissionContext) -> Rules {
    let edits = Rules::built_in(&[("edit", "*", Action::Deny), ("edit", ".opencode/plans/*.md", Action::Allow)]);
    base(place).then(&edits).then(&Rules::read_only())
}

pub(super) fn judge(rules: &Rules, command: &str, place: &PermissionContext) -> Verdict {
    evaluate(rules, &Rules::default(), &command_need(command, place))
}

/// What the table of paths prepares, and the spellings it uses for several names at once. The rows are
/// run in `tool/gate.rs`.
pub(crate) fn path_lab(id: &str) -> (Lab, Vec<String>) {
    let mut lab = Lab::new();
    let root = lab.place.root.clone();
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
            lab.place.root = "/".into();
            lab.place.cwd = "/".into();
            vec!["/x".into(), format!("{}/a.txt", root.display())]
        }
        "P40" => {
            let name = root.file_name().unwrap().to_str().unwrap().to_uppercase();
            vec![root.with_file_name(name).join("a.txt").display().to_string()]
        }
        "P43" => {
            // A submodule: its `.git` leads elsewhere, and the project stays where it is.
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
            .map(|name| lab.place.data.join(name).display().to_string())
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

#[test]
fn laws_hold_for_everything_seen() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("editor-tests/fuzz/corpus/judge");
    let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| std::fs::read(entry.path()).unwrap());
    let mut lines: Vec<String> = files.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    assert!(lines.len() >= 40, "{}", lines.len());
    for table in [
        include_str!("../../editor-tests/data/permission_cases.csv"),
        include_str!("../../editor-tests/data/permission_cases_more.csv"),
    ] {
        lines.extend(records(table).iter().map(|row| serde_json::from_str::<String>(&row[2]).unwrap()));
    }
    let broken: Vec<String> =
        lines.iter().filter_map(|line| Some(format!("{line:?}: {}", super::laws::broken(line)?))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A directory that holds everything is no project, wherever the home directory lies.
#[test]
fn a_home_is_no_project() {
    let lab = Lab::new();
    let home = lab.place.home.clone().unwrap();
    std::fs::write(home.join("f"), "").unwrap();
    let place = PermissionContext { root: home.clone(), cwd: home, ..lab.place.clone() };
    assert_eq!(judge(&r2(&place), "cat f", &place).action, Action::Ask);
    assert_eq!(judge(&r2(&place), "ls > g", &place).action, Action::Ask);
}

/// What "always" stores is exactly what is shown, and only where it is exact.
#[test]
fn what_always_grants() {
    let lab = Lab::new();
    let table: [(&str, &[&str]); 21] = [
        ("tail -3 a.txt", &["tail *"]),
        ("cargo-of-nowhere test", &["cargo-of-nowhere test"]),
        ("./x a b", &["./x a b"]),
        ("ls -la", &["ls *"]),
        ("rm victim.txt", &["rm victim.txt"]),
        ("git diff --stat", &["git diff *"]),
        ("git --no-pager log -1", &["git --no-pager log -1"]),
        ("find . -name x", &["find *"]),
        ("find . -name x -delete", &["find . -name x -delete"]),
        ("sed -n 1p a.txt", &["sed *"]),
        ("tar tf a.tar", &["tar tf *"]),
        ("ls | wc", &["ls *", "wc *"]),
        ("env ls -l", &["env ls -l", "ls -l"]),
        ("npx tsc", &["npx tsc", "tsc"]),
        ("python3 -c 'print(1)'", &[]),
        ("curl https://x.test", &[]),
        ("ls > f", &[]),
        ("ls *.txt", &[]),
        ("git -c a.b=c diff", &[]),
        ("cat /etc/passwd", &[]),
        ("X=1 ls", &[]),
    ];
    for (command, always) in table {
        assert_eq!(command_need(command, &lab.place).always, always, "{command}");
    }
    let wide = ["git diff *", "find *", "sed *", "sort *", "git log *", "tail *", "python3 x.py *"];
    let wide = Rules(wide.iter().map(|pattern| rule_for(pattern)).collect());
    let all = with(&lab.place, &[("*", Action::Ask)]);
    for command in [
        "git diff --output=x",
        "git log --ext-diff",
        "git push",
        "find . -delete",
        "find . -exec rm x ;",
        "sed -i s/a/b/ a.txt",
        "sed 'w x' a.txt",
        "sort -o x a.txt",
        "sort --compress-program=x a.txt",
        "python3 y.py",
        "python3 -c 'import os'",
    ] {
        let verdict = evaluate(&all, &wide, &command_need(command, &lab.place));
        assert_eq!(verdict.action, Action::Ask, "{command}: {verdict:?}");
    }
    let grants = Rules(vec![rule_for("git diff --stat")]);
    let place = &lab.place;
    let ask = with(place, &[("*", Action::Ask)]);
    let verdict = |command: &str| evaluate(&ask, &grants, &command_need(command, place)).action;
    assert_eq!(verdict("git  diff '--stat'"), Action::Allow);
    assert_eq!(verdict("git diff --stat > f"), Action::Ask);
    assert_eq!(verdict("git diff --stat; ls"), Action::Ask);
    assert_eq!(verdict("git diff"), Action::Ask);
}

/// "Always" is not offered where the same question would come again.
#[test]
fn what_would_be_asked_again_is_not_granted_for_good() {
    let lab = Lab::new();
    let edits = |action| with(&lab.place, &[("*", Action::Ask)]).then(&Rules::built_in(&[("edit", "*", action)]));
    let lasting = |rules: &Rules, command: &str| {
        settles(None, Approvals::Default, rules, &Rules::default(), &command_need(command, &lab.place))
    };
    assert!(lasting(&edits(Action::Ask), "ls -la"));
    assert!(lasting(&edits(Action::Allow), "mkdir -p made"));
    assert!(!lasting(&edits(Action::Ask), "mkdir -p made"));
    assert!(lasting(&edits(Action::Allow), "ls | wc"));
    assert!(!lasting(&edits(Action::Allow), "ls > f"));
}

fn rule_for(pattern: &str) -> super::Rule {
    super::Rule { permission: "bash".into(), pattern: pattern.into(), action: Action::Allow, source: "grant".into() }
}
