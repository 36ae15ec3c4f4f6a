use super::super::{PermissionContext, SandboxGuarantee, command_request};
use super::*;
use Action::{Allow, Ask, Deny};

fn rules(rules: &[(&str, &str, Action)]) -> Rules {
    let rule = |(permission, pattern, action): &(&str, &str, Action)| Rule {
        permission: (*permission).into(),
        pattern: (*pattern).into(),
        action: *action,
        source: "test".into(),
    };
    rules.iter().map(rule).collect()
}

#[test]
fn more_permissive_rules_are_found() {
    type Rows = &'static [(&'static str, &'static str, Action)];
    // The rules before, the rules that are added, whether those are more permissive.
    let table: [(Rows, Rows, bool); 39] = [
        // A command in quotes is the same command.
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "'rm' x", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Deny)],
            &[("bash", "'/bin/rm' x", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("bash", "git push *", Ask)],
            &[("bash", "git-push 'x y'", Allow)],
            true,
        ),
        (
            &[("bash", "*", Ask), ("bash", "echo 'a b' c", Allow)],
            &[("bash", "echo a 'b c'", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "echo 'a b' x", Allow)],
            false,
        ),
        (&[("bash", "*", Ask)], &[("ba?h", "*", Allow)], true),
        (&[("*", "*", Ask)], &[("server_*", "*", Allow)], true),
        (&[("*", "*", Allow)], &[("server_*", "*", Allow)], false),
        (
            &[("*", "*", Allow), ("edit", "*", Ask)],
            &[("ed?t", "*", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("edit", "*", Ask)],
            &[("web*", "*", Allow)],
            false,
        ),
        (&[("edit", "src/*", Deny)], &[("edit", "*", Ask)], false),
        (
            &[("*", "*", Allow), ("edit", "src/*", Deny)],
            &[("edit", "src/a*", Ask)],
            true,
        ),
        (
            &[("*", "*", Allow), ("edit", "src/*", Deny)],
            &[("edit", "lib/*", Ask)],
            false,
        ),
        (
            &[("*", "*", Allow), ("edit", "a*", Ask)],
            &[("edit", "*b", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("edit", "a", Ask)],
            &[("edit", "?", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("edit", "a", Ask)],
            &[("edit", "??", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow)],
            &[("bash", "git push*", Ask), ("edit", "*", Deny)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "npm test", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "/bin/r*", Allow)],
            true,
        ),
        // A program that another one starts is judged on its own, and a rule about the other one
        // does not apply to it.
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "xargs *", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "npm *", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "docker *", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Deny)],
            &[("bash", "docker *", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "docker run * rm *", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("bash", "rm *", Ask)],
            &[("bash", "*", Allow)],
            true,
        ),
        // A read-only agent still asks if the user's rules ask.
        (
            &[("bash", "*", Ask)],
            &[("posture", "read-only", Deny)],
            false,
        ),
        (
            &[("bash", "*", Deny)],
            &[("posture", "read-only", Deny)],
            false,
        ),
        (
            &[("*", "*", Allow), ("bash", "*a*", Deny)],
            &[("posture", "read-only", Deny)],
            false,
        ),
        (
            &[("*", "*", Allow), ("edit", "src/*", Deny)],
            &[("posture", "read-only", Deny)],
            true,
        ),
        // The posture applies to every command, not to those whose text is like its pattern.
        (
            &[
                ("*", "*", Allow),
                ("posture", "read-only", Deny),
                ("bash", "read-only*", Deny),
            ],
            &[("posture", "read-only", Allow)],
            true,
        ),
        (
            &[("bash", "*", Allow), ("posture", "read-only", Deny)],
            &[("posture", "read-only", Allow)],
            true,
        ),
        (
            &[
                ("*", "*", Allow),
                ("bash", "*", Deny),
                ("bash", "git*", Allow),
            ],
            &[("bash", "git*", Ask)],
            true,
        ),
        // A secret is asked about until a rule names it.
        (&[("*", "*", Allow)], &[("read", "src/*", Allow)], true),
        (&[("*", "*", Allow)], &[("read", "*", Allow)], false),
        (
            &[("webfetch", "*", Ask)],
            &[("webfetch", "https://*.example.org/*", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("webfetch", "https://a.org/x*", Ask)],
            &[("webfetch", "*.org", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("webfetch", "https://a.org/*", Ask)],
            &[("webfetch", "b.org", Allow)],
            false,
        ),
        (
            &[("*", "*", Allow), ("webfetch", "*secret*", Ask)],
            &[("webfetch", "b.org", Allow)],
            true,
        ),
        (
            &[("*", "*", Allow), ("webfetch", "*", Deny)],
            &[("webf*", "http://x:8080/", Ask)],
            true,
        ),
    ];
    for (before, after, wanted) in table {
        let before = rules(before);
        let with = before.clone().then(&rules(after));
        let found = find_more_permissive(&with, &[&before], Allow);
        assert_eq!(
            found.is_some(),
            wanted,
            "{before:?} then {after:?}: {found:?}"
        );
    }
    let ask = rules(&[("*", "*", Ask)]);
    let deny = rules(&[("*", "*", Deny)]);
    assert!(
        find_more_permissive(&ask, &[&ask, &deny], Allow).is_none(),
        "the most permissive of the others counts"
    );
    assert!(
        find_more_permissive(&ask, &[], Allow).is_some(),
        "where there was nothing, everything was denied"
    );
    assert!(
        find_more_permissive(&rules(&[("*", "*", Allow)]), &[&ask], Deny).is_none(),
        "only what was denied"
    );
}

#[test]
fn too_many_patterns_count_as_more_permissive() {
    let many: Vec<(String, String, Action)> = ('a'..='p')
        .map(|c| ("edit".to_owned(), format!("*{c}{c}{c}*"), Ask))
        .collect();
    let many: Vec<(&str, &str, Action)> = many
        .iter()
        .map(|(a, b, c)| (a.as_str(), b.as_str(), *c))
        .collect();
    let before = rules(&[("*", "*", Allow)]);
    let with = rules(&many);
    assert!(
        find_more_permissive(&with, &[&before], Allow).is_some_and(|found| found.pattern.is_none())
    );
}

/// If any random access request gets a more permissive verdict, the comparison finds one.
#[test]
fn random_more_permissive_needs_are_found() {
    let mut random = fastrand::Rng::with_seed(13);
    let dir = tempfile::tempdir().unwrap();
    let context = PermissionContext {
        cwd: dir.path().into(),
        root: dir.path().into(),
        ..PermissionContext::default()
    };
    let keys = [
        "*", "bash", "ba?h", "edit", "e*", "read", "webfetch", "web*", "x_y", "?_*", "posture",
    ];
    let texts = [
        "*", "a", "a*", "*a", "?", "a?", "*a*", "b", "A*", "a *", "a b", "b a", "/x/a", "*/a",
        "a/*", "",
    ];
    let hosts = [
        "a.org",
        "*.org",
        "https://a.org/*",
        "*a*",
        "http://a.org:80/b",
        "*",
        "https://*/b",
    ];
    let asked = ["bash", "edit", "read", "webfetch", "x_y", "question"];
    let lines = [
        "a", "b a", "a b", "/x/a", "/x/a b", "a > b", "b; a", "ls", "ls a", "ls $x", "cat $x a",
        "touch a", "b $(a)", "$x a",
    ];
    let urls = [
        "https://a.org/",
        "http://a.org/b",
        "https://b.a.org/ab",
        "https://b.org/a",
        "http://a.org:81/",
    ];
    let mut judged = 0;
    let mut found = 0;
    while judged < 20_000 {
        let mut some = |most: usize| {
            let random_rule = |random: &mut fastrand::Rng| {
                let key = keys[random.usize(..keys.len())];
                let pattern = match key {
                    "posture" => "read-only",
                    "webfetch" | "web*" => hosts[random.usize(..hosts.len())],
                    _ => texts[random.usize(..texts.len())],
                };
                (key, pattern, [Allow, Ask, Deny][random.usize(..3)])
            };
            let count = random.usize(..=most);
            rules(
                &(0..count)
                    .map(|_| random_rule(&mut random))
                    .collect::<Vec<_>>(),
            )
        };
        let mut before = some(5);
        let project = some(3);
        if random.bool() {
            before = rules(&[("*", "*", Allow)]).then(&before);
        }
        let with = before.clone().then(&project);
        let verdict = find_more_permissive(&with, &[&before], Allow);
        found += usize::from(verdict.is_some());
        for _ in 0..25 {
            judged += 1;
            let key = asked[random.usize(..asked.len())];
            let word = |random: &mut fastrand::Rng| -> String {
                (0..random.usize(..4))
                    .map(|_| ['a', 'b', 'A', ' ', '/', 'z'][random.usize(..6)])
                    .collect()
            };
            let request = match key {
                "bash" => {
                    let request = command_request(lines[random.usize(..lines.len())], &context);
                    let found = [
                        SandboxGuarantee::None,
                        SandboxGuarantee::READ_ONLY,
                        SandboxGuarantee::WORKSPACE,
                    ];
                    AccessRequest {
                        guarantee: found[random.usize(..found.len())],
                        ..request
                    }
                }
                "webfetch" => AccessRequest::new(key, urls[random.usize(..urls.len())]),
                "read" if random.bool() => AccessRequest {
                    minimum: Some((Ask, String::new())),
                    ..AccessRequest::new(key, word(&mut random))
                },
                _ => AccessRequest::new(key, word(&mut random)),
            };
            let judge = |rules: &Rules| evaluate(rules, &Rules::default(), &request).action;
            let is_more_permissive = judge(&with) < judge(&before);
            assert!(
                !is_more_permissive || verdict.is_some(),
                "{before:?}\nthen {project:?}\non {request:?}"
            );
        }
    }
    assert!(found > 100 && found < 780, "{found}");
}

/// Pruning does not change the result.
#[test]
fn pruned_comparison_equals_full_comparison() {
    let mut random = fastrand::Rng::with_seed(17);
    let keys = [
        "*", "bash", "bash", "bash", "b*", "edit", "e*", "read", "webfetch", "x_?", "posture",
    ];
    let texts = [
        "*",
        "git push *",
        "git push*",
        "* push",
        "git *",
        "rm *",
        "*rm*",
        "/bin/*",
        "g?t *",
        "RM x",
        "read-only*",
    ];
    let hosts = ["a.org", "*.org", "https://a.org/*", "*", "*a*"];
    let mut more_permissive = 0;
    let mut agents = 0;
    for _ in 0..250 {
        let mut some = |most: usize| {
            let count = random.usize(..=most);
            let random_rule = |random: &mut fastrand::Rng| {
                let key = keys[random.usize(..keys.len())];
                let pattern = match key {
                    "posture" => "read-only",
                    "webfetch" => hosts[random.usize(..hosts.len())],
                    _ => texts[random.usize(..texts.len())],
                };
                (key, pattern, [Allow, Ask, Deny][random.usize(..3)])
            };
            rules(
                &(0..count)
                    .map(|_| random_rule(&mut random))
                    .collect::<Vec<_>>(),
            )
        };
        let user = some(4);
        let random_rule = some(2);
        let other = some(2);
        let project = some(3);
        let base = rules(&[("*", "*", [Allow, Ask][random.usize(..2)])]).then(&user);
        // Two agents of the user, the first with the project's rules in between or after its own.
        let before = [base.clone().then(&random_rule), base.clone().then(&other)];
        let mut with = before[0].clone().then(&project);
        if random.bool() {
            with = base.then(&project).then(&random_rule);
        }
        // A rule is removed or moved to the end.
        if random.usize(..4) == 0 && with.len() > 1 {
            let mut all: Vec<Rule> = with.iter().cloned().collect();
            let rule = all.remove(random.usize(..all.len()));
            if random.bool() {
                all.push(rule);
            }
            with = all.into();
        }
        let without: Vec<&Rules> = before.iter().take(random.usize(1..3)).collect();
        agents += usize::from(without.len() > 1);
        let quick = find(&with, &without, Allow, true);
        let whole = find(&with, &without, Allow, false);
        more_permissive += usize::from(whole.is_some());
        assert!(
            quick.is_some() == whole.is_some(),
            "{before:?}\nthen {with:?}\n{quick:?} but {whole:?}"
        );
    }
    assert!(
        (20..230).contains(&more_permissive) && agents > 40,
        "{more_permissive} {agents}"
    );
}

/// The posture applies to every command, not to those whose text is like its pattern: if it
/// changes, nothing may be pruned.
#[test]
fn changed_posture_prunes_nothing() {
    let posture = ("posture", "read-only", Deny);
    let named = [
        ("bash", "*", Deny),
        ("bash", "git *", Allow),
        ("bash", "*read-only*", Deny),
    ];
    let before = rules(&[&named[..], &[posture]].concat());
    // The last rule keeps the key of the posture itself denied.
    let lifted = before.clone().then(&rules(&[
        ("posture", "read-only", Allow),
        ("p*", "*", Deny),
    ]));
    for with in [
        rules(&named),
        rules(&[&[posture], &named[..]].concat()),
        lifted,
    ] {
        for pruned in [true, false] {
            assert!(
                find(&with, &[&before], Allow, pruned).is_some(),
                "{with:?}, pruned: {pruned}"
            );
        }
    }
}

#[test]
fn other_names_of_commands_are_compared() {
    type Rows = &'static [(&'static str, Action)];
    let table: [(Rows, Rows, &str); 12] = [
        (
            &[("git push*", Ask)],
            &[("git -C sub push", Allow)],
            "git -C sub push",
        ),
        (
            &[("git push *", Ask)],
            &[("git -C * push*", Allow)],
            "git -C sub push",
        ),
        (
            &[("git push*", Ask)],
            &[("/usr/bin/git -C sub push", Allow)],
            "/usr/bin/git -C sub push",
        ),
        (&[("git push*", Ask)], &[("git-push*", Allow)], "git-push x"),
        (
            &[("python *", Ask)],
            &[("python3.12 x.py", Allow)],
            "python3.12 x.py",
        ),
        (
            &[("/usr/bin/*", Ask)],
            &[("sort *", Allow)],
            "/usr/bin/sort x",
        ),
        (
            &[("git -C *", Deny)],
            &[("git push*", Ask)],
            "git -C sub push",
        ),
        (
            &[("git sub *", Deny)],
            &[("git push*", Ask)],
            "git -C sub push",
        ),
        (
            &[("/usr/bin/*", Deny)],
            &[("sort *", Ask)],
            "/usr/bin/sort x",
        ),
        (
            &[("g?t?push", Ask)],
            &[("git -C sub push", Allow)],
            "git -C sub push",
        ),
        (&[("rm *", Ask)], &[("xargs rm *", Allow)], "xargs rm"),
        (&[("wc", Ask)], &[("wc -l", Allow)], "wc -l"),
    ];
    let context = PermissionContext {
        path: vec!["/usr/bin".into()],
        cwd: "/tmp".into(),
        root: "/tmp".into(),
        ..PermissionContext::default()
    };
    let mut weakened = 0;
    for (before, after, line) in table {
        let named = |rows: Rows| {
            rules(
                &rows
                    .iter()
                    .map(|(pattern, action)| ("bash", *pattern, *action))
                    .collect::<Vec<_>>(),
            )
        };
        let before = rules(&[("*", "*", Allow)]).then(&named(before));
        let with = before.clone().then(&named(after));
        assert!(
            find_more_permissive(&with, &[&before], Allow).is_some(),
            "{with:?}"
        );
        let judge = |rules: &Rules| {
            evaluate(rules, &Rules::default(), &command_request(line, &context)).action
        };
        weakened += usize::from(judge(&with) < judge(&before));
    }
    // The comparison may report more than real command lines show.
    assert!(weakened >= 2, "{weakened}");
}

/// An ask about a program that may be started lifts no deny.
#[test]
fn ask_about_later_words_lifts_no_deny() {
    let context = PermissionContext {
        path: vec!["/usr/bin".into()],
        cwd: "/tmp".into(),
        root: "/tmp".into(),
        ..PermissionContext::default()
    };
    let table = [
        ("docker run image rm git push x", Deny),
        ("docker run image git push x", Ask),
        ("docker run image rm x", Deny),
        ("git push", Ask),
        ("docker run image x", Allow),
    ];
    let rules = rules(&[
        ("*", "*", Allow),
        ("bash", "rm *", Deny),
        ("bash", "git push *", Ask),
    ]);
    for (line, wanted) in table {
        let found = evaluate(&rules, &Rules::default(), &command_request(line, &context));
        assert_eq!(found.action, wanted, "{line}: {:?}", found.reason);
    }
    let before: Rules = rules.iter().take(2).cloned().collect();
    assert_eq!(
        find_more_permissive(&rules, &[&before], Allow),
        None,
        "a question more"
    );
}

/// If any line of words of random rules gets a more permissive verdict, the comparison finds one.
#[test]
fn random_spellings_are_compared() {
    let mut random = fastrand::Rng::with_seed(23);
    let context = PermissionContext {
        path: vec!["/usr/bin".into()],
        cwd: "/tmp".into(),
        root: "/tmp".into(),
        ..PermissionContext::default()
    };
    let words = [
        "git",
        "push",
        "-C",
        "sub",
        "rm",
        "xargs",
        "docker run i",
        "/usr/bin/rm",
        "sort",
        "-f",
        "git-push",
        "python3.1",
        "python",
        "*",
        "* ",
        "p?sh",
        "RM",
        "env",
        "sudo",
        "| sh",
        "; rm",
    ];
    let one = |random: &mut fastrand::Rng, wild: bool| -> String {
        let some = (0..random.usize(1..5)).map(|_| {
            loop {
                let word = words[random.usize(..words.len())];
                if wild || !word.contains(['*', '?']) {
                    break word;
                }
            }
        });
        let mut text = some.collect::<Vec<_>>().join(" ");
        if wild && random.bool() {
            text.push_str([" *", "*"][random.usize(..2)]);
        }
        text
    };
    let lines: Vec<String> = (0..600).map(|_| one(&mut random, false)).collect();
    let lines: Vec<AccessRequest> = lines
        .iter()
        .map(|line| command_request(line, &context))
        .collect();
    let mut unchanged_sets = 0;
    let mut stricter = 0;
    for _ in 0..400 {
        let mut some = |most: usize| {
            let count = random.usize(1..=most);
            let rows: Vec<(String, Action)> = (0..count)
                .map(|_| {
                    (
                        one(&mut random, true),
                        [Allow, Ask, Deny][random.usize(..3)],
                    )
                })
                .collect();
            rules(
                &rows
                    .iter()
                    .map(|(text, action)| ("bash", text.as_str(), *action))
                    .collect::<Vec<_>>(),
            )
        };
        let user = some(4);
        let project = some(3);
        let mut before = rules(&[("*", "*", [Allow, Ask][random.usize(..2)])]).then(&user);
        if random.usize(..5) == 0 {
            before = before.then(&Rules::read_only());
        }
        let with = before.clone().then(&project);
        let verdict = find_more_permissive(&with, &[&before], Allow);
        if verdict.is_some() {
            continue;
        }
        unchanged_sets += 1;
        for _ in 0..200 {
            let guarantee = if random.bool() {
                SandboxGuarantee::READ_ONLY
            } else {
                SandboxGuarantee::None
            };
            let request = AccessRequest {
                guarantee,
                ..lines[random.usize(..lines.len())].clone()
            };
            let judge = |rules: &Rules| evaluate(rules, &Rules::default(), &request).action;
            let was = judge(&before);
            let now = judge(&with);
            stricter += usize::from(was != now);
            assert!(
                now >= was,
                "{before:?}\nthen {project:?}\non {:?}: {was:?}, {now:?}",
                request.command.map(|line| line.text.clone())
            );
        }
    }
    assert!(
        unchanged_sets > 20 && stricter > 20,
        "{unchanged_sets} {stricter}"
    );
}
