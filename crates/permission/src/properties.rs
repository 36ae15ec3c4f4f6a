//! Property tests of the analysis with generated commands.

use proptest::collection::vec;
use proptest::prelude::*;

use super::case_tables::{
    PathFixture, bash_rules, judge, plan_rules, rules_that_ask, rules_that_deny_rm,
};
use super::{Action, PermissionContext, Rules, command_request, evaluate};

/// Returns a place that does not exist, so that all cases can share it.
fn context() -> PermissionContext {
    let root = std::env::temp_dir();
    PermissionContext {
        cwd: root.join("nothing-here"),
        root: root.join("nothing-here"),
        path: ["/usr/bin", "/bin"].map(Into::into).to_vec(),
        ..PermissionContext::default()
    }
}

fn command() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec![
        "ls -la",
        "git diff",
        "rm victim.txt",
        "touch x",
        "cat a.txt",
        "echo hi",
        "RM x",
        "find . -name x",
        "sed -i s/a/b/ f",
        "git diff --output=x",
        "ls > f",
        "unknown-tool --x",
        "cat .env",
        "ls \"$x\"",
        "(ls)",
        "if true; then rm x; fi",
        "$x y",
        "ls $(rm x)",
        "sh -c 'rm x'",
        "find . -exec rm {} +",
        "git push",
        "python3 -c 'rm'",
        "LD_PRELOAD=x ls",
        "true",
        "! ls",
        "dd if=/dev/zero of=/dev/sda",
        "rm -rf /",
        "curl x",
        "ls /etc",
        "for f in a b; do cat $f; done",
        "ls ../x",
        "[ -f x ]",
    ]);
    plain.prop_map(str::to_owned)
}

const WRAPPERS: [&str; 28] = [
    "env",
    "env -i",
    "command",
    "exec",
    "builtin command",
    "nohup",
    "timeout 5",
    "timeout -k 1 5s",
    "nice",
    "nice -n 5",
    "ionice -c 3",
    "stdbuf -o0",
    "setsid",
    "time",
    "sudo",
    "sudo -u x",
    "doas",
    "xargs",
    "xargs -0 -n 1",
    "flock f",
    "strace -f",
    "unshare -r",
    "busybox",
    "noglob",
    "chroot /",
    "taskset 1",
    "eval",
    "env A=b",
];

fn rule_sets(context: &PermissionContext) -> [Rules; 4] {
    [
        rules_that_ask(context),
        rules_that_deny_rm(context),
        plan_rules(context),
        bash_rules(context, &[("*", Action::Allow)]),
    ]
}

/// Writes a word in one of its many spellings.
fn spelled(word: &str, how: &[u8]) -> String {
    let letters = word.chars().zip(how.iter().cycle());
    letters
        .map(|(c, how)| match how % 6 {
            0 => format!("'{c}'"),
            1 => format!("\"{c}\""),
            2 => format!("\\{c}"),
            3 => format!("$'\\x{:02x}'", u32::from(c)),
            4 => format!("{c}\\\n"),
            _ => c.to_string(),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn strictest_part_of_a_line_decides(a in command(), b in command(), joint in 0..5_usize) {
        let context = context();
        let joint = ["; ", " & ", " && ", " || ", "\n"][joint];
        for rules in rule_sets(&context) {
            let parts = [&a, &b].map(|part| judge(&rules, part, &context).action);
            let whole = judge(&rules, &format!("{a}{joint}{b}"), &context).action;
            prop_assert_eq!(whole, parts[0].max(parts[1]), "{}{}{}", a, joint, b);
        }
    }

    #[test]
    fn pipe_is_no_weaker_than_its_parts(a in command(), b in command()) {
        let context = context();
        for rules in rule_sets(&context) {
            let parts = [&a, &b].map(|part| judge(&rules, part, &context).action);
            prop_assert!(judge(&rules, &format!("{a} | {b}"), &context).action >= parts[0].max(parts[1]), "{} | {}", a, b);
        }
    }

    #[test]
    fn wrapper_never_weakens_a_verdict(command in command(), wrappers in vec(0..WRAPPERS.len(), 1..4)) {
        let context = context();
        // Only simple commands can follow a wrapper as words.
        prop_assume!(!command.starts_with(['(', '!', '[']) && !command.starts_with("if") && !command.starts_with("for") && !command.contains("LD_"));
        let words: Vec<&str> = wrappers.iter().map(|index| WRAPPERS[*index]).collect();
        let wrapped = format!("{} {command}", words.join(" "));
        for rules in rule_sets(&context) {
            let before = judge(&rules, &command, &context);
            let after = judge(&rules, &wrapped, &context);
            prop_assert!(after.action >= before.action, "{:?} became {:?}: {}", before.action, after.action, wrapped);
        }
        let text = command.replace('\'', "'\\''");
        let texts = [format!("sh -c '{text}'"), format!("bash -lc '{text}'"), format!("f() {{ {command}; }}; f"), format!("({command})")];
        for wrapped in texts {
            for rules in rule_sets(&context) {
                let before = judge(&rules, &command, &context);
                let after = judge(&rules, &wrapped, &context);
                prop_assert!(after.action >= before.action, "{:?} became {:?}: {}", before.action, after.action, wrapped);
            }
        }
    }

    #[test]
    fn spelling_does_not_lift_a_deny(how in vec(any::<u8>(), 3..9), blanks in 1..4_usize) {
        let context = context();
        let rules = rules_that_deny_rm(&context);
        let gap = " ".repeat(blanks);
        let line = format!("{gap}{}{gap}\t{}", spelled("rm", &how), spelled("victim", &how));
        prop_assert_eq!(judge(&rules, &line, &context).action, Action::Deny, "{}", line);
    }

    #[test]
    fn more_denies_never_weaken(command in command(), patterns in vec(prop::sample::select(vec!["rm*", "git *", "*x*", "ls", "cat *", "* > *", "*"]), 1..4), allow in prop::sample::select(vec!["ls*", "git diff*", "*", "rm*"])) {
        let context = context();
        let mut rules = bash_rules(&context, &[("*", Action::Ask), (allow, Action::Allow)]);
        let mut before = judge(&rules, &command, &context).action;
        let fewer = bash_rules(&context, &[("*", Action::Ask)]);
        if allow != "*" {
            prop_assert!(judge(&fewer, &command, &context).action >= before, "{} without {}", command, allow);
        }
        for pattern in patterns {
            rules = rules.then(&bash_rules(&PermissionContext::default(), &[]).then(&Rules::from(vec![super::Rule { permission: "bash".into(), pattern: pattern.into(), action: Action::Deny, source: "test".into() }])));
            // The built-in rules in between allow nothing that a deny covers.
            rules = rules.iter().filter(|rule| rule.source != "built in" || rule.permission != "*").cloned().collect();
            let after = judge(&rules, &command, &context).action;
            prop_assert!(after >= before, "{} with {}: {:?} after {:?}", command, pattern, after, before);
            before = after;
        }
    }

    #[test]
    fn grant_never_overrides_a_deny(command in command()) {
        let context = context();
        let grants = Rules::from(vec![super::Rule { permission: "*".into(), pattern: "*".into(), action: Action::Allow, source: "grant".into() }]);
        for rules in rule_sets(&context) {
            let request = command_request(&command, &context);
            let without = evaluate(&rules, &Rules::default(), &request).action;
            let with = evaluate(&rules, &grants, &request).action;
            prop_assert!(without != Action::Deny || with == Action::Deny, "{}", command);
        }
    }

    #[test]
    fn quoted_words_are_unchanged(words in vec("[a-zA-Z0-9_./$*?\\[\\]{}~\"'\\\\ ;&|<>()!#-]{1,8}", 1..5)) {
        let context = context();
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let request = command_request(&format!("prog {}", quoted.join(" ")), &context);
        let line = request.command.unwrap();
        prop_assert!(line.opaque.is_none());
        prop_assert_eq!(&line.units[0].normalized, &format!("prog {}", words.join(" ")));
    }

    #[test]
    fn random_text_never_panics(bytes in vec(prop::sample::select(b" \t\n;|&<>()${}[]'\"`\\*?~!#=+-:@%/ablsrmx01EOF\xc3\xa9".to_vec()), 0..160)) {
        let text = String::from_utf8_lossy(&bytes);
        let context = context();
        for rules in [rules_that_ask(&context), rules_that_deny_rm(&context)] {
            judge(&rules, &text, &context);
        }
    }
}

/// Constructs that run the command in them. `@` is the command, `Q` the command as a single quoted
/// word.
const AROUND: [&str; 40] = [
    "sh -c Q",
    "bash -lc Q",
    "bash -ec Q x y",
    "eval Q",
    "eval @",
    "command @",
    "exec @",
    "exec -a ls @",
    "builtin eval Q",
    "env -S Q",
    "env A=1 @",
    "env -i -u X @",
    "env - @",
    "xargs @",
    "xargs -0 -n 1 @",
    "xargs sh -c Q",
    "find . -exec @ {} +",
    "find . -name x -exec sh -c Q ';'",
    "flock f @",
    "flock f -c Q",
    "script -qc Q f",
    "su -c Q",
    "su x -c Q",
    "runuser -u x -- @",
    "watch Q",
    "watch -x @",
    "parallel @ ::: a",
    "hyperfine Q",
    "trap Q EXIT",
    "busybox @",
    "time @",
    "nohup nice @",
    "( @ )",
    "{ @; }",
    "if true; then @; fi",
    "while @; do :; done",
    "f() { @; }; f",
    "ls $( @ )",
    "cat <( @ )",
    "true && @ &",
];

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// No nesting of wrappers and constructs, in any order, lets a denied command be allowed.
#[test]
fn nested_denied_command_is_never_allowed() {
    let context = context();
    let sets = [rules_that_deny_rm(&context), plan_rules(&context)];
    let denied = ["rm victim.txt", "/bin/rm -rf src", "r''m x", "A=1 rm x"];
    let beginnings = super::shell::programs::beginnings();
    assert!(beginnings.len() > 150, "{}", beginnings.len());
    let mut wrong = vec![];
    let mut check = |line: &str| {
        for (rules, set) in sets.iter().zip(["R2", "PLAN"]) {
            if judge(rules, line, &context).action == Action::Allow {
                wrong.push(format!("{set}: {line}"));
            }
        }
    };
    for command in &denied[..3] {
        for start in &beginnings {
            check(&format!("{start} {command}"));
        }
        for container in ["docker run --rm x", "podman exec x", "kubectl exec pod --"] {
            check(&format!("{container} {command}"));
            check(&format!("{container} sh -c {}", quoted(command)));
            check(&format!("{container} xargs bash -lc {}", quoted(command)));
        }
    }
    // Pseudorandom nesting, the same every time. Text that begins with `-` is an option to most
    // programs.
    let beginnings: Vec<&String> = beginnings
        .iter()
        .filter(|start| !start.starts_with('-'))
        .collect();
    let mut random = 1_u64;
    let mut below = |bound: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % bound
    };
    for _ in 0..3_000 {
        let mut line = denied[below(denied.len())].to_owned();
        for _ in 0..1 + below(5) {
            let is_simple = !line.starts_with(['(', '{', 'A'])
                && !["if ", "while ", "f()", "true", "time "]
                    .iter()
                    .any(|start| line.starts_with(start));
            line = match below(3) {
                0 if is_simple => format!("{} {line}", beginnings[below(beginnings.len())]),
                _ => {
                    let around = AROUND[below(AROUND.len())];
                    // `eval` removes one layer of quotes.
                    if around == "eval @" && (!is_simple || line.contains(['\'', '"'])) {
                        continue;
                    }
                    // `env -S` is not a shell: it only splits words and removes quotes.
                    if around == "env -S Q" && (!is_simple || line.contains(['<', '(', ';', '\\']))
                    {
                        continue;
                    }
                    let takes_words = around.contains('@')
                        && !around.starts_with(['(', '{', 'i', 'w', 't', 'l', 'c'])
                        && !around.starts_with("f()");
                    let needs_shell = takes_words && !is_simple;
                    let inner = if needs_shell {
                        format!("sh -c {}", quoted(&line))
                    } else {
                        line.clone()
                    };
                    around.replace('@', &inner).replace('Q', &quoted(&inner))
                }
            };
        }
        check(&line);
    }
    assert!(
        wrong.is_empty(),
        "{} lines\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

/// Endless nesting is refused, not analysed.
#[test]
fn deep_nesting_is_opaque() {
    let context = context();
    let rules = rules_that_deny_rm(&context);
    let many = 20_000;
    let bombs = [
        "(",
        "((",
        "{ ",
        "$(",
        "`",
        "$((",
        "${x:-",
        "\"$(",
        "if ",
        "while ",
        "<(",
        "[[ ( ",
        "case x in x) ",
        "!",
        "{a,",
        "x=(",
        "f() { ",
    ];
    for bomb in bombs {
        let text = format!("ls; {}", bomb.repeat(many / bomb.len()));
        assert!(
            judge(&rules, &text, &context).action >= Action::Ask,
            "{bomb}"
        );
    }
    let mut text = "rm x".to_owned();
    for _ in 0..12 {
        text = format!(
            "sh -c {}",
            format_args!("'{}'", text.replace('\'', "'\\''"))
        );
    }
    assert!(judge(&rules, &text, &context).action >= Action::Ask);
}

/// A line with more commands than are judged one by one is never allowed; a deny in the rest is
/// still found.
#[test]
fn line_with_too_many_commands_is_not_allowed() {
    let context = context();
    let denies = rules_that_deny_rm(&context);
    let free = bash_rules(&context, &[("*", Action::Allow)]);
    let many = 5_000;
    let table = [
        ("ls;".repeat(many), Action::Ask),
        ("ls|".repeat(many) + "cat", Action::Ask),
        ("ls;".repeat(many) + "rm victim", Action::Deny),
        ("ls|".repeat(many) + "rm victim", Action::Deny),
        ("rm victim;".to_owned() + &"ls;".repeat(many), Action::Deny),
        (
            "(".to_owned() + &"ls;".repeat(many) + "RM victim)",
            Action::Deny,
        ),
        ("ls >f ".repeat(many) + "\nrm victim", Action::Deny),
        ("`ls` ".repeat(many) + "\nrm victim", Action::Deny),
        ("a=b ".repeat(many) + "\nrm victim", Action::Deny),
        ("eval ".repeat(many) + "rm victim", Action::Deny),
        ("xargs ".repeat(many) + "rm victim", Action::Deny),
        ("docker run ".repeat(many) + "rm victim", Action::Deny),
        ("parallel ".repeat(many) + "rm victim", Action::Deny),
        ("xargs ".repeat(many) + "ls", Action::Ask),
        (
            format!("bash <<'E'\n{}rm victim\nE", "ls\n".repeat(many)),
            Action::Deny,
        ),
        (format!("sudo rm {}", "a ".repeat(many)), Action::Deny),
    ];
    for (line, wanted) in table {
        let shown = &line[..40];
        assert_eq!(judge(&denies, &line, &context).action, wanted, "{shown}");
        assert_eq!(judge(&free, &line, &context).action, Action::Ask, "{shown}");
    }
}

/// Harmless text around a denied command, even beyond every limit, does not lift the deny.
#[test]
fn padding_does_not_lift_a_deny() {
    let context = context();
    let rules = bash_rules(
        &context,
        &[
            ("*", Action::Allow),
            ("rm*", Action::Deny),
            ("git push*", Action::Deny),
        ],
    );
    let paddings = [
        "true;".repeat(2_000),
        "true;".repeat(30_000),
        "ls\n".repeat(1_500),
        "# a note\n".repeat(200),
        "# a note, but a long one\n".repeat(8_000),
        format!("echo {}\n", "a".repeat(150_000)),
        format!("echo {}\n", "a ".repeat(20_000)),
        format!(
            "cat {}\n",
            (0..6_000).map(|at| format!("f{at} ")).collect::<String>()
        ),
        format!(
            "touch {}\n",
            (0..6_000).map(|at| format!("f{at} ")).collect::<String>()
        ),
        format!("tool {}\n", "a ".repeat(20_000)),
        "x=1\n".repeat(3_000),
        "ls >/dev/null\n".repeat(1_500),
        "echo $(true)\n".repeat(1_500),
        "echo {1..200}\n".repeat(200),
        "cat <<'E'\ntext\nE\n".repeat(1_200),
        "if true; then ls; fi\n".repeat(600),
        "sh -c 'true'\n".repeat(600),
        format!("sh -c '{}'\n", "true;".repeat(9_000)),
        format!("nohup {} ls\n", "nice ".repeat(12)),
        format!("{}ls{}\n", "(".repeat(60), ")".repeat(60)),
    ];
    let denied = [
        "rm victim.txt",
        "/bin/rm -rf src",
        "r''m x",
        "A=1 rm x",
        "sudo -u root rm x",
        "sh -c 'rm x'",
        "find . -name x -exec rm {} +",
        "if true; then rm x; fi",
        "(rm x)",
        "ls | xargs rm",
        "git push --force",
    ];
    let hidden = ["$(echo rm) x", "X=rm; $X x", "eval $Y", "cat list | sh"];
    for (row, padding) in paddings.iter().enumerate() {
        let shown = &padding[..padding.len().min(30)];
        for (at, command) in denied
            .iter()
            .enumerate()
            .filter(|(at, _)| (row + at) % 3 == 0)
        {
            let line = match (row + at / 3) % 3 {
                0 => format!("{padding}{command}"),
                1 => format!("{command}\n{padding}"),
                _ => format!("{padding}{command}\n{padding}"),
            };
            let verdict = judge(&rules, &line, &context);
            assert_eq!(
                verdict.action,
                Action::Deny,
                "{command} beside {shown}: {:?}",
                verdict.reason
            );
        }
        let command = hidden[row % hidden.len()];
        assert!(
            judge(&rules, &format!("{padding}{command}"), &context).action >= Action::Ask,
            "{command} after {shown}"
        );
    }
}

/// The same holds for commands that no rule can allow.
#[test]
fn padding_does_not_allow_a_catastrophe() {
    let context = context();
    let free = bash_rules(&context, &[("*", Action::Allow)]);
    let paddings = [
        "true;".repeat(2_000),
        "true;".repeat(30_000),
        "# a note, but a long one\n".repeat(8_000),
    ];
    let lost = [
        "rm -rf /",
        "sudo rm -rf --no-preserve-root /",
        "dd if=x of=/dev/sda",
        "mkfs.ext4 /dev/sda1",
        "sh -c 'rm -rf /*'",
    ];
    for padding in &paddings {
        for command in lost {
            for line in [
                format!("{padding}{command}"),
                format!("{command}\n{padding}"),
            ] {
                assert_eq!(
                    judge(&free, &line, &context).action,
                    Action::Deny,
                    "{command}"
                );
            }
        }
        assert_eq!(
            judge(&free, &format!("{padding}rm -rf src/x"), &context).action,
            Action::Ask
        );
    }
}

/// A deny of an edit holds even after more paths than are located.
#[test]
fn many_paths_do_not_lift_a_deny() {
    let context = context();
    let edits = Rules::from(vec![super::Rule {
        permission: "edit".into(),
        pattern: "secret/*".into(),
        action: Action::Deny,
        source: "test".into(),
    }]);
    let rules = bash_rules(&context, &[("*", Action::Allow)]).then(&edits);
    for count in [10, 600, 2_500, 6_000] {
        let names: String = (0..count).map(|at| format!("f{at} ")).collect();
        assert_eq!(
            judge(&rules, &format!("touch {names} secret/x"), &context).action,
            Action::Deny,
            "{count}"
        );
        assert_eq!(
            judge(&rules, &format!("cp {names} ./secret/x"), &context).action,
            Action::Deny,
            "{count}"
        );
        let wanted = if count < 500 {
            Action::Allow
        } else {
            Action::Ask
        };
        assert_eq!(
            judge(&rules, &format!("touch {names}"), &context).action,
            wanted,
            "{count}"
        );
    }
}

/// Uses the sizes of the requirement. The times apply to a release build, so they are not measured
/// here.
#[test]
fn long_lines_terminate() {
    let lab = PathFixture::new();
    let rules = rules_that_deny_rm(&lab.context);
    let lines = [
        "true;",
        "ls|",
        "a&",
        "x=1;",
        "echo a b c;",
        "$(ls)",
        "{a,b}",
        "\"$x\"",
        "ls >/dev/null;",
        "'a'\"b\"",
        "cat a.txt;",
        "*",
    ];
    for part in lines {
        let line = part.repeat(65_536 / part.len());
        judge(&rules, &line, &lab.context);
    }
    assert_eq!(
        judge(&rules, &"a".repeat(200_000), &lab.context).action,
        Action::Ask
    );
}
