//! Runs real git in hostile repositories: if git starts a program for a command, the rules must not
//! have allowed the command without a question.

use std::path::{Path, PathBuf};

use super::case_tables::{bash_rules, judge, plan_rules};
use super::{Action, PermissionContext};

/// The commands that are run in each repository.
const COMMANDS: [&str; 35] = [
    "git status --short",
    "git diff",
    "git diff HEAD~",
    "git diff --stat",
    "git diff --cached",
    "git diff --submodule=diff",
    "git diff-index HEAD",
    "git diff-files",
    "git diff-tree -p HEAD",
    "git log --oneline -3",
    "git log --name-status --since=2001-01-01",
    "git log -p -1",
    "git log -1 --patch-with-stat",
    "git log --remerge-diff -1",
    "git log -Gb",
    "git log -L1,1:a.txt",
    "git log --format=%G?",
    "git log --submodule=diff -p",
    "git log --alternate-refs --oneline",
    "git show",
    "git show HEAD:a.txt",
    "git blame a.txt",
    "git grep -n a",
    "git ls-files",
    "git ls-files -m",
    "git ls-files --recurse-submodules",
    "git cat-file -p HEAD:a.txt",
    "git describe --dirty --tags",
    "git for-each-ref --format='%(signature:grade)'",
    "git rev-list --objects HEAD",
    "git reflog -p",
    "git stash list -p",
    "git stash show",
    "git branch -v",
    "git archive --format=tgz HEAD",
];

/// A repository with two commits, a tag, a stash and a modified file.
const BASE: &str = r#"
git init -q -b main --template= . && mkdir -p .git/info
printf 'a\nb\n' > a.txt; printf 'x\n' > b.txt; git add .; git commit -qm one
echo c >> a.txt; git add .; git commit -qm two; git tag v1
echo d >> b.txt; git stash -q; echo new > u.txt
"#;

/// Settings that make git start a helper, which creates the file `$MARK`.
const SETUPS: [(&str, &str); 24] = [
    (
        "fsmonitor",
        r#"git config core.fsmonitor "touch $MARK; false""#,
    ),
    (
        "bad bytes",
        r#"printf '# \377\n[core]\n\tfsmonitor = "touch %s; false"\n' "$MARK" >> .git/config"#,
    ),
    (
        "continued comment",
        r#"printf '[core]\n# x \\\n\tfsmonitor = "touch %s; false"\n' "$MARK" >> .git/config"#,
    ),
    (
        "backslash at the end",
        r#"printf '[core]\n\tfsmonitor = touch %s\\' "$MARK" >> .git/config"#,
    ),
    (
        "mark of order",
        r#"{ printf '\357\273\277'; cat .git/config; } > c; mv c .git/config; git config core.fsmonitor "touch $MARK; false""#,
    ),
    (
        "joined line",
        r#"printf '[core] fsmon\\\n' > /dev/null; printf '[CORE]FsMonitor="touch \\\n%s;false"\n' "$MARK" >> .git/config"#,
    ),
    (
        "included",
        r#"printf '[core]\n\tfsmonitor = "touch %s; false"\n' "$MARK" > .git/more; git config include.path more"#,
    ),
    (
        "included perhaps",
        r#"printf '[core]\n\tfsmonitor = "touch %s; false"\n' "$MARK" > .git/more; git config "includeIf.onbranch:**.path" more"#,
    ),
    (
        "settings of a work tree",
        r#"git config extensions.worktreeConfig true; git config --worktree core.fsmonitor "touch $MARK; false""#,
    ),
    (
        "hook",
        r#"mkdir .git/hooks; printf '#!/bin/sh\ntouch %s\n' "$MARK" > .git/hooks/post-index-change; chmod +x .git/hooks/*"#,
    ),
    (
        "hooks elsewhere",
        r#"mkdir hk; printf '#!/bin/sh\ntouch %s\n' "$MARK" > hk/post-index-change; chmod +x hk/*; git config core.hooksPath hk"#,
    ),
    (
        "external diff",
        r#"echo z >> a.txt; git config diff.external "touch $MARK; true""#,
    ),
    (
        "diff driver",
        r#"echo z >> a.txt; echo '*.txt diff=x' > .git/info/attributes; git config diff.x.command "touch $MARK; true""#,
    ),
    (
        "textconv",
        r#"echo z >> a.txt; echo '*.txt diff=x' > .git/info/attributes; git config diff.x.textconv "touch $MARK; cat""#,
    ),
    (
        "clean",
        r#"echo '*.txt filter=x' > .git/info/attributes; git config filter.x.clean "touch $MARK; cat""#,
    ),
    (
        "smudge",
        r#"echo '*.txt filter=x' > .git/info/attributes; git config filter.x.smudge "touch $MARK; cat""#,
    ),
    (
        "filter process",
        r#"echo '*.txt filter=x' > .git/info/attributes; git config filter.x.process "touch $MARK; false""#,
    ),
    ("signatures", SIGNED),
    ("signatures in a log", "log"),
    (
        "objects elsewhere",
        r#"git config core.repositoryformatversion 1; git config extensions.partialClone origin; git config remote.origin.url .
        git config remote.origin.promisor true; git config remote.origin.uploadpack "touch $MARK; git-upload-pack"
        for o in $(git rev-parse HEAD:a.txt HEAD~:a.txt); do rm -f .git/objects/$(echo $o | sed 's#^..#&/#'); done"#,
    ),
    (
        "archive",
        r#"git config tar.tgz.command "touch $MARK; cat""#,
    ),
    (
        "refs of others",
        r#"git init -q --bare o.git; mkdir -p .git/objects/info; echo "$PWD/o.git/objects" > .git/objects/info/alternates
        git config core.alternateRefsCommand "touch $MARK; true""#,
    ),
    (
        "repository in it",
        r#"git init -q --template= sub; (cd sub; echo q > q; git add q; git commit -qm s; git config core.fsmonitor "touch $MARK; false")
        git add sub 2> /dev/null; git commit -qm sub"#,
    ),
    (
        "diff of a repository in it",
        r#"git init -q --template= sub; (cd sub; echo q > q; git add q; git commit -qm s); git add sub 2> /dev/null
        git commit -qm sub; echo z >> sub/q; git -C sub config diff.external "touch $MARK; true""#,
    ),
];

const SIGNED: &str = r#"printf '#!/bin/sh\ntouch %s\n' "$MARK" > .git/gpg; chmod +x .git/gpg; git config gpg.program "$PWD/.git/gpg"
    t=$(git write-tree); printf 'tree %s\nauthor x <x@x> 1 +0000\ncommitter x <x@x> 1 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nm\n' $t > .git/co
    git update-ref refs/heads/main $(git hash-object -t commit -w .git/co)"#;

/// Runs every command in a fresh copy of the repository, and returns the indices of those that
/// created the mark.
#[expect(
    clippy::disallowed_methods,
    reason = "what git really starts is the measure here"
)]
fn started(dir: &Path, setup: &str) -> Vec<usize> {
    let each: String = COMMANDS.iter().enumerate().map(|(at, command)| {
        format!("rm -rf \"$MARK\" work; cp -a base work; cd work; touch -d yesterday a.txt; {command} > /dev/null 2>&1 < /dev/null; cd ..; if [ -e \"$MARK\" ]; then echo {at}; fi\n")
    }).collect();
    let script = format!(
        "mkdir base; cd base\n{BASE}\n{setup}\ncd ..\n{each}rm -rf work; cp -a base work\n"
    );
    let mut bash = std::process::Command::new("bash");
    bash.env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", dir)
        .env("MARK", dir.join("mark"));
    bash.env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        bash.env(format!("GIT_{who}_NAME"), "x")
            .env(format!("GIT_{who}_EMAIL"), "x@example.org");
    }
    let ran = bash
        .args(["--norc", "-c", &script])
        .current_dir(dir)
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success(),
        "{setup}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    printed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

fn context(dir: &Path) -> PermissionContext {
    let root = dir.join("work").canonicalize().unwrap();
    let path = ["/usr/local/bin", "/usr/bin", "/bin"]
        .map(PathBuf::from)
        .to_vec();
    PermissionContext {
        cwd: root.clone(),
        root,
        home: Some(dir.to_owned()),
        path,
        data_dir: dir.join("data"),
        ..PermissionContext::default()
    }
}

/// Returns the indices of the commands that plan mode, or a rule for all git commands, allows.
fn allowed(context: &PermissionContext) -> Vec<usize> {
    let rules = [
        plan_rules(context),
        bash_rules(context, &[("*", Action::Ask), ("git *", Action::Allow)]),
    ];
    let is_allowed = |command: &str| {
        rules
            .iter()
            .any(|rules| judge(rules, command, context).action == Action::Allow)
    };
    (0..COMMANDS.len())
        .filter(|at| is_allowed(COMMANDS[*at]))
        .collect()
}

#[test]
fn git_commands_that_start_programs_are_not_allowed() {
    let mut wrong = vec![];
    for (name, setup) in SETUPS {
        let signed = format!("{SIGNED}\ngit config log.showSignature true");
        let setup = if setup == "log" { &signed } else { setup };
        let dir = tempfile::tempdir().unwrap();
        let started = started(dir.path(), setup);
        assert!(
            !started.is_empty(),
            "{name}: nothing was started, so nothing is shown"
        );
        let allowed = allowed(&context(dir.path()));
        wrong.extend(
            started
                .iter()
                .filter(|at| allowed.contains(at))
                .map(|at| format!("{name}: {}", COMMANDS[*at])),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn git_commands_that_start_nothing_are_allowed() {
    let usual = r#"git config user.name é; printf '[user]\n\tname = \351\n' >> .git/config; git config core.splitIndex true
        git config remote.origin.url git@example.org:x/y; git config credential.helper store
        git config alias.st status; git config core.hooksPath hk; mkdir hk; touch hk/pre-commit; git config core.sshCommand 'ssh -i k'
        git config merge.ours.driver true; git config core.editor vim; git config branch.main.remote origin
        git init -q --template= sub; (cd sub; echo q > q; git add q; git commit -qm s); git add sub 2> /dev/null; git commit -qm sub"#;
    // A driver for files that no attribute assigns to it.
    let driver = "git config diff.x.textconv cat";
    let shown = [
        "git log --oneline -3",
        "git log --name-status --since=2001-01-01",
        "git branch -v",
        "git rev-list --objects HEAD",
    ];
    let own = [
        "git diff --submodule=diff",
        "git log --submodule=diff -p",
        "git log --format=%G?",
        "git for-each-ref --format='%(signature:grade)'",
        "git archive --format=tgz HEAD",
        "git stash show",
        "git describe --dirty --tags",
        "git log --alternate-refs --oneline",
        "git log --remerge-diff -1",
    ];
    for (setup, wanted) in [(usual, None), (driver, Some(shown))] {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(started(dir.path(), setup), Vec::<usize>::new());
        let allowed = allowed(&context(dir.path()));
        for (at, command) in COMMANDS.iter().enumerate() {
            if wanted.map_or(!own.contains(command), |wanted| wanted.contains(command)) {
                assert!(allowed.contains(&at), "{command}");
            }
        }
    }
}

#[test]
fn git_aliases_are_judged_by_their_expansion() {
    let dir = tempfile::tempdir().unwrap();
    started(
        dir.path(),
        r#"git config alias.p '"push"'; git config alias.q '-C . push'; git config alias.r '-c user.name=x push'
        git config alias.s '!git'; git config alias.t '!f() { git push "$@"; }; f'; git config alias.last-modified push
        git config alias.u 'push \'; git config alias.st status; printf '[alias]\n\tv = push # x \\\n' >> .git/config"#,
    );
    for trusted in [false, true] {
        let context = PermissionContext {
            is_trusted: trusted,
            ..context(dir.path())
        };
        let rules = bash_rules(
            &context,
            &[("*", Action::Allow), ("git push*", Action::Deny)],
        );
        let table = [
            ("git p origin", Action::Deny),
            ("git P origin", Action::Deny),
            ("git q", Action::Deny),
            ("git r", Action::Deny),
            ("git s push origin", Action::Deny),
            ("git t origin", Action::Deny),
            ("git v", Action::Deny),
            (
                "git for-each-repo --config=my.repo push origin",
                Action::Deny,
            ),
            ("git init --template=t", Action::Ask),
            ("git last-modified", Action::Deny),
            ("git u", Action::Ask),
            ("git st", Action::Allow),
            ("git ST -s", Action::Allow),
        ];
        for (command, wanted) in table {
            assert_eq!(
                judge(&rules, command, &context).action,
                wanted,
                "{command} {trusted}"
            );
        }
    }
}
