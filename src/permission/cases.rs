//! The tables of `editor-tests/data` against the engine: every row is a promise about a class of
//! commands, paths or addresses.

use std::path::{Path, PathBuf};

use super::rule::{self, RuleValue};
use super::{Action, Place, Rules, Verdict, command_need, evaluate, settles};

/// A workspace as the tables expect it, beside a directory `out` that does not belong to it.
pub(super) struct Lab {
    _dir: tempfile::TempDir,
    pub(super) place: Place,
    pub(super) out: PathBuf,
}

impl Lab {
    pub(super) fn new() -> Self {
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
        let place = Place {
            cwd: root.clone(),
            root,
            home: Some(home),
            path: ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
            data: top.join("data/adjutant"),
            ..Place::default()
        };
        Self { _dir: dir, place, out }
    }

    /// The few commands the tables use to prepare a workspace.
    fn prepare(&self, setup: &str) {
        let path = |name: &str| self.place.root.join(name);
        for command in setup.split(';').map(str::trim).filter(|command| !command.is_empty()) {
            let words: Vec<&str> = command.split(' ').collect();
            match words.as_slice() {
                ["cp", from, to] => drop(std::fs::copy(path(from), path(to)).unwrap()),
                ["mkdir", "-p", dir] => std::fs::create_dir_all(path(dir)).unwrap(),
                ["echo", text, ">", file] => std::fs::write(path(file), text).unwrap(),
                ["ln", "-s", from, to] => std::os::unix::fs::symlink(from, path(to)).unwrap(),
                ["chmod", "+x", _] => {}
                ["git", "config", key, ..] => {
                    let value = setup.split_once(key).unwrap().1.trim().trim_matches('\'');
                    let (section, name) = key.rsplit_once('.').unwrap();
                    let text = format!("[{section}]\n\t{name} = \"{value}\"\n");
                    std::fs::write(path(".git/config"), text).unwrap();
                    return;
                }
                other => panic!("unknown preparation {other:?}"),
            }
        }
    }
}

/// The records of a CSV file, the first one left out.
pub(super) fn records(text: &str) -> Vec<Vec<String>> {
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

fn object(rules: &[(&str, Action)]) -> Vec<(String, RuleValue)> {
    let map = rules.iter().map(|(pattern, action)| ((*pattern).to_owned(), *action)).collect();
    vec![("bash".to_owned(), RuleValue::Map(map))]
}

fn base(place: &Place) -> Rules {
    rule::base(&place.data, Path::new("/scratch-of-the-session"), &[] as &[PathBuf])
}

pub(super) fn with(place: &Place, rules: &[(&str, Action)]) -> Rules {
    base(place).then(&rule::from_object(&object(rules), "test", None))
}

pub(super) fn r1(place: &Place) -> Rules {
    with(place, &[("*", Action::Ask), ("git diff*", Action::Allow), ("ls*", Action::Allow)])
}

pub(super) fn r2(place: &Place) -> Rules {
    with(place, &[("*", Action::Allow), ("rm*", Action::Deny)])
}

pub(super) fn plan(place: &Place) -> Rules {
    let edits = Rules::built_in(&[("edit", "*", Action::Deny), ("edit", ".opencode/plans/*.md", Action::Allow)]);
    base(place).then(&edits).then(&Rules::read_only())
}

pub(super) fn judge(rules: &Rules, command: &str, place: &Place) -> Verdict {
    evaluate(rules, &Rules::default(), &command_need(command, place))
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Ask => "ask",
        Action::Deny => "deny",
    }
}

fn check(table: &str) {
    let mut wrong = vec![];
    let rows = records(table);
    assert!(rows.len() > 20);
    for row in &rows {
        let [id, class, input, _, context, setup, r1_want, r1_also, r2_want, r2_also, plan_want, ..] = row.as_slice()
        else {
            panic!("{row:?}")
        };
        let lab = Lab::new();
        lab.prepare(setup);
        let command: String = serde_json::from_str(input).unwrap();
        let command = command.replace("/OUT", &lab.out.display().to_string());
        let place = &lab.place;
        let mut expect = |set: &str, rules: &Rules, want: &str, also: &str| {
            let verdict = judge(rules, &command, place);
            let got = name(verdict.action);
            if !want.is_empty() && got != want && got != also {
                wrong.push(format!("{id} {class} {set}: {got}, wanted {want}: {command:?} {:?}", verdict.reason));
            }
        };
        if class == "floor" {
            let reason = row.last().unwrap();
            let want = reason.split(' ').next().unwrap();
            assert!(["allow", "ask", "deny"].contains(&want), "{context}");
            expect("all allowed", &with(place, &[("*", Action::Allow)]), want, "");
        } else {
            expect("R1", &r1(place), r1_want, r1_also);
            expect("R2", &r2(place), r2_want, r2_also);
            expect("PLAN", &plan(place), plan_want, "");
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn the_table_of_commands() {
    check(include_str!("../../editor-tests/data/permission_cases.csv"));
}

/// What the table of paths prepares, and the spellings it uses for several names at once.
fn path_lab(id: &str) -> (Lab, Vec<String>) {
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
            std::fs::write(root.join("sub/f"), "").unwrap();
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
            rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            vec!["fifo".into()]
        }
        "P81" => vec!["/dev/zero".into(), "/dev/random".into()],
        "P82" => vec!["/dev/stdin".into(), "/dev/fd/3".into(), "/proc/self/fd/3".into()],
        "P83" => {
            std::os::unix::net::UnixListener::bind(root.join("sock")).unwrap();
            vec!["sock".into()]
        }
        "P85" => {
            std::fs::write(root.join("a.txt\n"), "").unwrap();
            vec!["a.txt\n".into()]
        }
        "P86" => {
            std::fs::write(root.join("\x1b]0;x\x07.md"), "").unwrap();
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

/// The strictest verdict over several paths that one call uses.
fn strictest(rules: &Rules, access: super::paths::Access, paths: &[String], place: &Place) -> &'static str {
    use super::paths::{PathVerdict, judge_path};
    let verdicts = paths.iter().map(|path| match judge_path(rules, access, path, place) {
        PathVerdict::Judged(action, _) => action,
        PathVerdict::Refused(_) => Action::Ask,
    });
    name(verdicts.max().unwrap())
}

/// Rows that no judgement of one path can show are run in `tool/rows.rs`.
#[test]
fn the_table_of_paths() {
    const ELSEWHERE: [&str; 4] = ["P67", "P107", "P111", "P112"];
    let mut wrong = vec![];
    let mut seen = 0;
    for row in records(include_str!("../../editor-tests/data/path_cases.csv")) {
        let [id, _, input, _, read_want, edit_want, plan_want, also, ..] = row.as_slice() else { panic!("{row:?}") };
        if ELSEWHERE.contains(&id.as_str()) {
            continue;
        }
        let (lab, mut inputs) = path_lab(id);
        if id == "P40" && !Path::new(&inputs[0]).exists() {
            // This volume tells letters apart, so the other spelling is another place, and asks.
            assert_eq!(strictest(&base(&lab.place), super::paths::Access::Read, &inputs, &lab.place), "ask");
            continue;
        }
        seen += 1;
        if matches!(id.as_str(), "P100" | "P101") {
            let pattern = input.trim_start_matches("glob ").trim_matches('"');
            let roots = super::paths::glob_roots(pattern);
            assert_eq!(strictest(&base(&lab.place), super::paths::Access::List, &roots, &lab.place), *read_want);
            continue;
        }
        if id == "P104" {
            let one = |rules: &Rules| strictest(rules, super::paths::Access::Edit, &inputs, &lab.place);
            assert_eq!((one(&base(&lab.place)), one(&plan(&lab.place))), (edit_want.as_str(), plan_want.as_str()));
            continue;
        }
        if inputs.is_empty() {
            inputs.push(input.replace("/WS", &lab.place.root.display().to_string()));
        }
        for input in &inputs {
            use super::paths::{Access, PathVerdict, judge_path};
            let mut expect = |set: &str, rules: &Rules, access, want: &str| {
                let got = match judge_path(rules, access, input, &lab.place) {
                    PathVerdict::Judged(action, _) => name(action),
                    PathVerdict::Refused(_) => "refuse",
                };
                if want != "—" && got != want && (also.is_empty() || got != also) {
                    wrong.push(format!("{id} {set}: {got}, wanted {want}: {input:?}"));
                }
            };
            expect("read", &base(&lab.place), Access::Read, read_want);
            expect("edit", &base(&lab.place), Access::Edit, edit_want);
            expect("plan", &plan(&lab.place), Access::Edit, plan_want);
        }
    }
    assert!(seen >= 53, "{seen}");
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn more_commands() {
    let lab = Lab::new();
    let place = &lab.place;
    let mut wrong = vec![];
    for row in records(include_str!("../../editor-tests/data/permission_cases_more.csv")) {
        let [id, class, input, wants @ .., _] = row.as_slice() else { panic!("{row:?}") };
        let command: String = serde_json::from_str(input).unwrap();
        let command = command.replace("/OUT", &lab.out.display().to_string());
        let sets = match class.as_str() {
            "floor" => vec![("all allowed", with(place, &[("*", Action::Allow)]))],
            _ => vec![("R1", r1(place)), ("R2", r2(place)), ("PLAN", plan(place))],
        };
        for ((set, rules), want) in sets.iter().zip(wants) {
            let verdict = judge(rules, &command, place);
            if name(verdict.action) != want {
                wrong.push(format!(
                    "{id} {set}: {}, wanted {want}: {command:?} {:?}",
                    name(verdict.action),
                    verdict.reason
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn more_paths() {
    use super::paths::{Access, PathVerdict, judge_path};
    let lab = Lab::new();
    let place = &lab.place;
    std::os::unix::fs::symlink("loop", place.root.join("loop")).unwrap();
    for file in ["AGENTS.md", "server.key", "new dir x"] {
        std::fs::write(place.root.join(file), "").unwrap();
    }
    std::os::unix::fs::symlink("src", place.root.join("two")).unwrap();
    std::os::unix::fs::symlink("two", place.root.join("three")).unwrap();
    std::os::unix::fs::symlink(".env", place.root.join("plain.txt")).unwrap();
    std::os::unix::fs::symlink("AGENTS.md", place.root.join("notes.txt")).unwrap();
    std::os::unix::fs::symlink(".env", place.root.join(".env.sample")).unwrap();
    std::fs::create_dir(place.root.join("pipes")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, place.root.join("pipes/p"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    std::os::unix::fs::symlink("pipes/p", place.root.join("pipe-link")).unwrap();
    let mut wrong = vec![];
    for row in records(include_str!("../../editor-tests/data/path_cases_more.csv")) {
        let [id, class, input, read, edit, planned, _] = row.as_slice() else { panic!("{row:?}") };
        let input: String = serde_json::from_str(input).unwrap();
        let input = input.replace("/WS", &place.root.display().to_string());
        if class == "multi" {
            let roots = super::paths::glob_roots(&input);
            let got = strictest(&base(place), Access::List, &roots, place);
            if got != read {
                wrong.push(format!("{id}: {got}, wanted {read}: {input:?}"));
            }
            continue;
        }
        let sets = [
            ("read", base(place), Access::Read, read),
            ("edit", base(place), Access::Edit, edit),
            ("plan", plan(place), Access::Edit, planned),
        ];
        for (set, rules, access, want) in sets {
            let got = match judge_path(&rules, access, &input, place) {
                PathVerdict::Judged(action, _) => name(action),
                PathVerdict::Refused(_) => "refuse",
            };
            if got != want {
                wrong.push(format!("{id} {set}: {got}, wanted {want}: {input:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the fuzzer is fed and what it found, and every row of the tables, under the laws it checks.
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
    let place = Place { root: home.clone(), cwd: home, ..lab.place.clone() };
    assert_eq!(judge(&r2(&place), "cat f", &place).action, Action::Ask);
    assert_eq!(judge(&r2(&place), "ls > g", &place).action, Action::Ask);
}

/// What "always" stores is exactly what is shown, and only where it is exact.
#[test]
fn what_always_grants() {
    let lab = Lab::new();
    let table: [(&str, &[&str]); 15] = [
        ("tail -3 a.txt", &["tail *"]),
        ("cargo-of-nowhere test", &["cargo-of-nowhere test"]),
        ("./x a b", &["./x a b"]),
        ("ls -la", &["ls *"]),
        ("rm victim.txt", &["rm victim.txt"]),
        ("git diff --stat", &["git diff --stat"]),
        ("ls | wc", &[]),
        ("sudo ls", &[]),
        ("python3 x.py", &[]),
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
    let lasting = |rules: &Rules, command: &str| settles(rules, &Rules::default(), &command_need(command, &lab.place));
    assert!(lasting(&edits(Action::Ask), "ls -la"));
    assert!(lasting(&edits(Action::Allow), "mkdir -p made"));
    assert!(!lasting(&edits(Action::Ask), "mkdir -p made"));
    assert!(!lasting(&edits(Action::Allow), "ls | wc"));
}

fn rule_for(pattern: &str) -> super::Rule {
    super::Rule { permission: "bash".into(), pattern: pattern.into(), action: Action::Allow, source: "grant".into() }
}

/// The programs that really started when the table was made: where everything is allowed without a
/// question, each of them was found. Programs started by other programs by themselves aside.
#[test]
fn every_program_that_started_was_found() {
    const BY_ITSELF: [&str; 6] = ["G34", "G13", "D31", "H21", "H38", "E13"];
    let mut wrong = vec![];
    let mut seen = 0;
    for row in records(include_str!("../../editor-tests/data/permission_cases.csv")) {
        let (id, class, started) = (&row[0], &row[1], &row[12]);
        if class == "floor" || BY_ITSELF.contains(&id.as_str()) {
            continue;
        }
        let lab = Lab::new();
        lab.prepare(&row[5]);
        let command: String = serde_json::from_str(&row[2]).unwrap();
        let verdict = judge(&with(&lab.place, &[("*", Action::Allow)]), &command, &lab.place);
        if verdict.action != Action::Allow {
            continue;
        }
        seen += 1;
        let found: Vec<String> = verdict
            .units
            .iter()
            .filter_map(|unit| Some(unit.program.as_ref()?.rsplit('/').next()?.to_owned()))
            .collect();
        for program in started.split(' ').filter(|program| !program.is_empty() && *program != "sh") {
            // A builtin started as a program, an interpreter's own child: named in the text.
            if !found.iter().any(|name| name == program) && !command.contains(program) {
                wrong.push(format!("{id}: {program} started, found {found:?}: {command}"));
            }
        }
    }
    assert!(seen > 60, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
