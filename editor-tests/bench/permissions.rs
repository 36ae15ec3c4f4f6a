//! From a command line to a verdict.

use std::path::PathBuf;
use std::sync::Arc;

use divan::{Bencher, black_box};
use permission::check::check_line;
use permission::plan::{CommandLine, SandboxCapabilities, plan_command};
use permission::{Action, PermissionContext, Policy, Rules, command_request, evaluate};

fn rules() -> Rules {
    Rules::built_in(&[("bash", "*", Action::Allow), ("bash", "rm *", Action::Deny)])
}

fn context() -> PermissionContext {
    let root = PathBuf::from("/tmp");
    let path = ["/usr/local/bin", "/usr/bin", "/bin"]
        .map(PathBuf::from)
        .to_vec();
    PermissionContext {
        cwd: root.clone(),
        root,
        path,
        ..PermissionContext::default()
    }
}

fn judge(bencher: Bencher<'_, '_>, line: &str) {
    let context = context();
    let rules = rules();
    bencher.bench(|| {
        evaluate(
            &rules,
            &Rules::default(),
            &command_request(black_box(line), &context),
        )
    });
}

/// Judges command lines that models run often.
#[divan::bench(args = ["ls -la src", "git diff --stat HEAD~1 | head -20", "cd src && FOO=1 npm run dev -- --watch > /tmp/out.log 2>&1"])]
fn typical(bencher: Bencher<'_, '_>, line: &str) {
    judge(bencher, line);
}

/// 64 KiB made to be slow: one piece over and over.
#[divan::bench(args = [
    "$(", "{ ", "ls;", "\\", "\"$(ls\"", "a|", "<<E\n", "eval ", "'a'\"b\"", "\"$x\" ", "$((1+", "$((1)) ", "((", "x[$x]=1 ",
    "{a,b}", "{a,", "*?", "[a]", "case x in x) ", "case x in a) ls;; esac;", "<<<x ", "a=b ", "${x:-", "${x[", "`ls`", ">f ",
    "cat f;", "$(ls)", "[[ a ]];", "f(){ a;};", "sh -c ls;", "xargs ", "sudo ", "ls \\\n", "if ls; then ls; fi;", "<(ls) ",
    "git diff;", "find . -exec ls {} +;", "cat f* ", "sed p;", "awk 1;", "for i in a b; do ls; done;", "parallel ", "docker run ", "awk '{a' ", "find . -exec ", "cd a;", "x=$x$x;",
    "{1..256} ", "tool ", "tool a/b;", "tmux new rm;", "python3 -c x;", "ssh h <<E\nx\nE\n", "true;", "# note\n", "declare -i n=1;",
])]
fn hostile(bencher: Bencher<'_, '_>, piece: &str) {
    judge(bencher, &piece.repeat((64 << 10) / piece.len()));
}

/// 64 KiB in which no word comes twice.
#[divan::bench(args = ["cat ", "touch ", "tool ", "a", "> f", "x=", "git diff ", "f*", "cd d"])]
fn hostile_counted(bencher: Bencher<'_, '_>, piece: &str) {
    let once = matches!(piece, "cat " | "touch " | "tool ");
    let separator = if once { " " } else { ";" };
    let mut line = String::new();
    for number in 0.. {
        if line.len() > 64 << 10 {
            break;
        }
        line.push_str(if number > 0 && once { "" } else { piece });
        line.push_str(&format!("{number}{separator}"));
    }
    judge(bencher, &line);
}

/// A policy's own tests: ten thousand lines of every kind.
#[divan::bench(sample_count = 10)]
fn check_10_000(bencher: Bencher<'_, '_>) {
    let policy = Arc::new(Policy {
        rules: rules(),
        context: context(),
        ..Policy::default()
    });
    let plan = |command: &str, policy: &Arc<Policy>| {
        let line = CommandLine::analyze(command, &policy.context);
        Ok(plan_command(line, policy, SandboxCapabilities::default()))
    };
    let lines = [
        r#"{"id":1,"bash":"git status && git diff | head"}"#,
        r#"{"id":2,"bash":"cd src && sudo rm -rf build; echo \"$x\" > log"}"#,
        r#"{"id":3,"permission":"edit","path":"src/main.rs"}"#,
        r#"{"id":4,"permission":"webfetch","url":"https://docs.example/a?b=c"}"#,
    ];
    bencher.bench(|| {
        (0..10_000)
            .map(|at| check_line(&policy, &[], plan, black_box(lines[at % lines.len()])).len())
            .sum::<usize>()
    });
}
