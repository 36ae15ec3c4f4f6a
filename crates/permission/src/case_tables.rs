//! Table tests of rules and "always" on real command lines, and the rules that other tests share.
//!
//! The tables of command lines in `crates/project/data` need agents, and are judged in
//! `crates/project/src/agent/tables.rs`.

use std::path::{Path, PathBuf};

use super::command_request::request_of;
use super::rule;
use super::shell::analyze;
pub(super) use super::testing::{PathFixture, records};
use super::{Action, PermissionContext, Policy, Rules, Verdict, command_request, evaluate};

fn base(context: &PermissionContext) -> Rules {
    rule::base(
        &context.data_dir,
        Path::new("/scratch-of-the-session"),
        &[] as &[PathBuf],
    )
}

pub(super) fn bash_rules(context: &PermissionContext, rules: &[(&str, Action)]) -> Rules {
    base(context).then(&Rules::written("bash", rules))
}

pub(super) fn rules_that_ask(context: &PermissionContext) -> Rules {
    bash_rules(
        context,
        &[
            ("*", Action::Ask),
            ("git diff*", Action::Allow),
            ("ls*", Action::Allow),
        ],
    )
}

pub(super) fn rules_that_deny_rm(context: &PermissionContext) -> Rules {
    bash_rules(context, &[("*", Action::Allow), ("rm*", Action::Deny)])
}

pub(super) fn plan_rules(context: &PermissionContext) -> Rules {
    let edits = Rules::built_in(&[
        ("edit", "*", Action::Deny),
        ("edit", ".opencode/plans/*.md", Action::Allow),
    ]);
    base(context).then(&edits).then(&Rules::read_only())
}

pub(super) fn judge(rules: &Rules, command: &str, context: &PermissionContext) -> Verdict {
    evaluate(rules, &Rules::default(), &command_request(command, context))
}

#[test]
fn invariants_hold_for_corpus_and_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../editor-tests/fuzz/corpus/judge");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| std::fs::read(entry.path()).unwrap());
    let mut lines: Vec<String> = files
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    assert!(lines.len() >= 40, "{}", lines.len());
    for table in [
        include_str!("../data/permission_cases.csv"),
        include_str!("../data/permission_cases_more.csv"),
    ] {
        lines.extend(
            records(table)
                .iter()
                .map(|row| serde_json::from_str::<String>(&row[2]).unwrap()),
        );
    }
    let broken: Vec<String> = lines
        .iter()
        .filter_map(|line| Some(format!("{line:?}: {}", super::invariants::broken(line)?)))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A directory that is too broad is not a project, wherever the home directory is.
#[test]
fn home_directory_is_no_project() {
    let lab = PathFixture::new();
    let home = lab.context.home.clone().unwrap();
    std::fs::write(home.join("f"), "").unwrap();
    let context = PermissionContext {
        root: home.clone(),
        cwd: home,
        ..lab.context.clone()
    };
    assert_eq!(
        judge(&rules_that_deny_rm(&context), "cat f", &context).action,
        Action::Ask
    );
    assert_eq!(
        judge(&rules_that_deny_rm(&context), "ls > g", &context).action,
        Action::Ask
    );
}

/// "Always" stores exactly the shown pattern, which has a wildcard only if that is safe.
#[test]
fn always_grants_shown_patterns_only() {
    let lab = PathFixture::new();
    let table: [(&str, &[&str]); 20] = [
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
        ("python3 -c 'print(1)'", &[]),
        ("curl -L https://x.test", &[]),
        ("ls > f", &[]),
        ("ls *.txt", &[]),
        ("git -c a.b=c diff", &[]),
        // Reading in the directory, not the command.
        ("cat /etc/passwd", &["/etc/*"]),
        ("X=1 ls", &[]),
    ];
    for (command, always) in table {
        assert_eq!(
            command_request(command, &lab.context).always,
            always,
            "{command}"
        );
    }
    let reading = command_request("cat /etc/passwd", &lab.context);
    assert!(reading.grants_reading, "{reading:?}");
    let writing = command_request("tee /etc/passwd", &lab.context);
    assert!(writing.always.is_empty(), "{writing:?}");
    let wide = [
        "git diff *",
        "find *",
        "sed *",
        "sort *",
        "git log *",
        "tail *",
        "python3 x.py *",
    ];
    let wide: Rules = wide.iter().map(|pattern| rule_for(pattern)).collect();
    let all = bash_rules(&lab.context, &[("*", Action::Ask)]);
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
        let verdict = evaluate(&all, &wide, &command_request(command, &lab.context));
        assert_eq!(verdict.action, Action::Ask, "{command}: {verdict:?}");
    }
    let grants = Rules::from(vec![rule_for("git diff --stat")]);
    let context = &lab.context;
    let ask = bash_rules(context, &[("*", Action::Ask)]);
    let verdict =
        |command: &str| evaluate(&ask, &grants, &command_request(command, context)).action;
    assert_eq!(verdict("git  diff '--stat'"), Action::Allow);
    assert_eq!(verdict("git diff --stat > f"), Action::Ask);
    assert_eq!(verdict("git diff --stat; ls"), Action::Ask);
    assert_eq!(verdict("git diff"), Action::Ask);
}

/// "Always" names the action of a project's tool: its sub-command, target, script or package, and
/// nothing wider.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn always_for_project_tools_names_their_action() {
    let lab = PathFixture::new();
    let config = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x.test/r\n";
    std::fs::write(lab.context.root.join(".git/config"), config).unwrap();
    let context = &lab.context;
    // As if every program were installed.
    let request = |command: &str| {
        let mut line = analyze(command, context);
        line.units
            .iter_mut()
            .filter(|unit| unit.runner.is_none())
            .for_each(|unit| unit.untrusted_program = None);
        request_of(line.into())
    };
    // A command, the patterns of "always", a command that they grant, one that they do not grant.
    let table = [
        ("yarn test --x", "yarn test *", "yarn test a", "yarn build"),
        (
            "yarn run build",
            "yarn run build *",
            "yarn run build -w",
            "yarn run deploy",
        ),
        (
            "pnpm run dev",
            "pnpm run dev *",
            "pnpm run dev -- --port 1",
            "pnpm dlx x",
        ),
        ("bun test", "bun test *", "bun test a.ts", "bun x.ts"),
        (
            "bun run dev",
            "bun run dev *",
            "bun run dev -w",
            "bun run y",
        ),
        (
            "uv sync",
            "uv sync *",
            "uv sync --all-extras",
            "uv pip list",
        ),
        (
            "uv run pytest -q",
            "uv run pytest *",
            "uv run pytest -x tests",
            "uv run ruff",
        ),
        (
            "uv run python3 x.py",
            "uv run python3 x.py *, python3 x.py *",
            "uv run python3 x.py 1",
            "uv run python3 y.py",
        ),
        (
            "uvx ruff check",
            "uvx ruff *",
            "uvx ruff format .",
            "uvx black",
        ),
        (
            "pip install -r r.txt",
            "pip install *",
            "pip install x",
            "pip download x",
        ),
        (
            "go test ./...",
            "go test *",
            "go test -run X ./a",
            "go run x.go",
        ),
        (
            "go run ./cmd/x",
            "go run ./cmd/x *",
            "go run ./cmd/x -v",
            "go run ./cmd/y",
        ),
        ("pytest -q tests", "pytest *", "pytest", "pytester"),
        (
            "python3 -m pytest -q",
            "python3 -m pytest *",
            "python3 -m pytest -x",
            "python3 -m http.server",
        ),
        (
            "gh pr view 12",
            "gh pr view *",
            "gh pr view 13",
            "gh pr merge 13",
        ),
        ("gh api /x", "gh api /x", "gh api /x", "gh api -X DELETE /x"),
        (
            "git checkout main",
            "git checkout main",
            "git checkout main",
            "git checkout HEAD -- src",
        ),
        (
            "git restore a.txt",
            "git restore a.txt",
            "git restore a.txt",
            "git restore src",
        ),
        (
            "git switch x",
            "git switch *",
            "git switch -c y",
            "git checkout y",
        ),
        (
            "cargo test",
            "cargo test *",
            "cargo test --release",
            "cargo run",
        ),
        ("cargo run", "cargo run", "cargo run", "cargo run --bin x"),
        (
            "cargo publish",
            "cargo publish",
            "cargo publish",
            "cargo publish --allow-dirty",
        ),
        ("make test", "make test *", "make test -j4", "make deploy"),
        ("make", "make", "make", "make deploy"),
        ("npx tsc --noEmit", "npx tsc *", "npx tsc -w", "npx eslint"),
        (
            "kubectl get pods",
            "kubectl get *",
            "kubectl get svc -n x",
            "kubectl delete pod x",
        ),
        (
            "kubectl logs -f x",
            "kubectl logs *",
            "kubectl logs y",
            "kubectl get pods",
        ),
        (
            "kubectl delete pod x",
            "kubectl delete pod x",
            "kubectl delete pod x",
            "kubectl delete pod y",
        ),
        (
            "curl -s 'https://x.test/a?b'",
            "curl https://x.test",
            "curl https://x.test/c",
            "curl https://x.test.evil/c",
        ),
        (
            "curl -s http://x.test:80",
            "curl http://x.test:80",
            "curl -H 'A: b' http://x.test:80/",
            "curl http://x.test/",
        ),
        (
            "git push origin",
            "git push origin https://x.test/r",
            "git push -u origin",
            "git remote set-url origin https://y.test; git push other",
        ),
        (
            "git fetch origin",
            "git fetch origin",
            "git fetch origin",
            "git fetch https://y.test/x",
        ),
        ("pip3 list", "pip3 list *", "pip3 list -o", "pip3 install x"),
        (
            "python3 -m timeit pass",
            "python3 -m timeit pass",
            "python3 -m timeit pass",
            "python3 -m timeit x",
        ),
        (
            "python3 -m pip list",
            "python3 -m pip list",
            "python3 -m pip list",
            "python3 -m pip install x",
        ),
        (
            "docker-compose ps",
            "docker-compose ps *",
            "docker-compose ps -a",
            "docker-compose run x",
        ),
        ("docker ps", "docker ps *", "docker ps -a", "docker rm x"),
    ];
    let ask = bash_rules(context, &[("*", Action::Ask)]);
    let mut wrong = vec![];
    for (command, wanted, held, other) in table {
        let always = request(command).always;
        let grants: Rules = always.iter().map(|pattern| rule_for(pattern)).collect();
        let verdict = |command: &str| evaluate(&ask, &grants, &request(command)).action;
        let got = (
            always.join(", "),
            verdict(command),
            verdict(held),
            verdict(other),
        );
        if got != (wanted.to_owned(), Action::Allow, Action::Allow, Action::Ask) {
            wrong.push(format!("{command}: {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for command in [
        "curl -o f https://x.test/",
        "curl -L https://x.test/",
        "curl -T a.txt https://x.test/",
        "curl -d @a.txt https://x.test/",
        "curl -K a.txt https://x.test/",
        "curl https://x.test/ https://y.test/",
        "curl --proxy y.test https://x.test/",
        "curl 'https://x.test\\@y.test/'",
        "curl https://me@x.test/",
        "curl https://{x,y}.test/",
        "curl $URL",
        "git push -f origin",
        "git push origin +main",
        "git push origin :main",
        "git push --tags origin",
        "git push https://x.test/y",
        "docker run x",
        "docker exec x ls",
        "docker compose run x ls",
        "docker container exec x ls",
        "make test --eval=x",
        "make test deploy",
        "make test -f x.mk",
        "make test 'X=$(shell rm a)'",
        "go test -exec ./x ./...",
        "curl -X DELETE https://x.test/",
        "curl -d a=1 https://x.test/",
        "git -C sub push origin",
        "cd src; git push origin",
        "docker --context c run x",
        "npx eslint ../x",
    ] {
        let grants = [
            "curl https://x.test",
            "git push origin https://x.test/r",
            "make test *",
            "go test *",
            "npx eslint *",
        ]
        .map(rule_for);
        let request = request(command);
        let granted = evaluate(&ask, &Rules::from(Vec::from(grants)), &request).action;
        let wide = request
            .always
            .iter()
            .any(|pattern| !request.patterns.contains(pattern));
        assert!(
            granted == Action::Ask && !wide,
            "{command}: {:?}",
            request.always
        );
    }
}

/// Discarding all uncommitted changes is asked about in spite of grants.
#[test]
fn grant_does_not_cover_the_whole_project() {
    let lab = PathFixture::new();
    let ask = bash_rules(&lab.context, &[("*", Action::Ask)]);
    let grants: Rules = ["git checkout *", "git restore *", "git switch *"]
        .map(rule_for)
        .into_iter()
        .collect();
    for command in [
        "git checkout -f x",
        "git restore .",
        "git checkout .",
        "git switch --discard-changes x",
    ] {
        assert_eq!(
            evaluate(&ask, &grants, &command_request(command, &lab.context)).action,
            Action::Ask,
            "{command}"
        );
    }
}

/// "Always" is not offered if the same question would come again.
#[test]
fn always_is_not_offered_for_a_recurring_question() {
    let lab = PathFixture::new();
    let edits = |action| {
        bash_rules(&lab.context, &[("*", Action::Ask)])
            .then(&Rules::built_in(&[("edit", "*", action)]))
    };
    let is_answered = |rules: &Rules, command: &str| {
        let policy = Policy {
            rules: rules.clone(),
            ..Policy::default()
        };
        policy.is_answered_by_always(&command_request(command, &lab.context))
    };
    assert!(is_answered(&edits(Action::Ask), "ls -la"));
    assert!(is_answered(&edits(Action::Allow), "mkdir -p made"));
    assert!(!is_answered(&edits(Action::Ask), "mkdir -p made"));
    assert!(is_answered(&edits(Action::Allow), "ls | wc"));
    assert!(!is_answered(&edits(Action::Allow), "ls > f"));
}

fn rule_for(pattern: &str) -> super::Rule {
    super::Rule {
        permission: "bash".into(),
        pattern: pattern.into(),
        action: Action::Allow,
        source: "grant".into(),
    }
}

/// An allow in the user's spelling, with quotes, means exactly the words of that command.
#[test]
fn allow_with_quotes_covers_exactly_its_words() {
    let lab = PathFixture::new();
    let quotes = "leave the quotes out";
    // The pattern that is allowed, the command, the verdict, and a part of its reason.
    let table = [
        (
            "git commit -m 'x y'",
            "git commit -m 'x y'",
            Action::Allow,
            "",
        ),
        (
            "git commit -m 'x y'",
            "git  commit -m \"x y\"",
            Action::Allow,
            "",
        ),
        (
            "git commit -m \"x y\"",
            "git commit -m x\\ y",
            Action::Allow,
            "",
        ),
        (
            "git commit -m 'x y'",
            "ls; git commit -m 'x y'",
            Action::Allow,
            "",
        ),
        ("grep -r 'foo' src", "grep -r foo src", Action::Allow, ""),
        ("git commit -m 'x y'", "git commit -m x y", Action::Ask, ""),
        (
            "git commit -m 'x y'",
            "git commit -m 'x y' --amend",
            Action::Ask,
            "",
        ),
        (
            "git commit -m 'x y'",
            "git commit '-m x' y",
            Action::Ask,
            "",
        ),
        (
            "git commit -m 'x y'",
            "git commit -m \"x $Y\"",
            Action::Ask,
            "",
        ),
        (
            "git commit -m 'x y'",
            "git commit -m 'X Y'",
            Action::Ask,
            "",
        ),
        ("'git' log x", "git log x", Action::Allow, ""),
        ("'git' log x", "/usr/bin/git log x", Action::Ask, ""),
        (
            "git commit -m '*'",
            "git commit -m 'x y'",
            Action::Ask,
            quotes,
        ),
        (
            "git commit -m '*'",
            "git commit -m '*'",
            Action::Ask,
            quotes,
        ),
        ("git commit -m *", "git commit -m 'x y'", Action::Allow, ""),
        (
            "echo hi > x",
            "echo hi > x",
            Action::Ask,
            "output is a file",
        ),
        (
            "echo 'hi' > x",
            "echo 'hi' > x",
            Action::Ask,
            "output is a file",
        ),
        (
            "git log | head",
            "git log | head",
            Action::Ask,
            "one rule for each",
        ),
    ];
    for (pattern, command, wanted, part) in table {
        let rules = bash_rules(
            &lab.context,
            &[
                ("*", Action::Ask),
                ("ls", Action::Allow),
                (pattern, Action::Allow),
            ],
        );
        let request = command_request(command, &lab.context);
        let verdict = evaluate(&rules, &Rules::default(), &request);
        assert_eq!(
            verdict.action, wanted,
            "{pattern} on {command}: {verdict:?}"
        );
        let reason = verdict.reason.unwrap_or_default();
        assert!(reason.contains(part), "{pattern} on {command}: {reason}");
    }
}
