//! Property tests of the rule index: the index finds the same rules as comparing all of them, and
//! the number of compared rules does not grow with the list.

use proptest::collection::vec;
use proptest::prelude::*;

use super::rule_index::{rules_compared_by, without_index};
use super::{
    AccessRequest, Action, PermissionContext, Rule, Rules, SandboxGuarantee, command_request,
    evaluate,
};

const PERMISSIONS: [&str; 9] = [
    "bash",
    "*",
    "b*",
    "edit",
    "read",
    "external_directory",
    "posture",
    "?ash",
    "ed\\it",
];

const PATTERNS: [&str; 44] = [
    "*",
    "git *",
    "git log *",
    "git log",
    "git push*",
    "git *force",
    "GIT *",
    "rm *",
    "rm",
    "rm -rf *",
    "RM*",
    "r? *",
    "*rm*",
    "* rm *",
    "*m x",
    "*/rm *",
    "/usr/bin/rm *",
    "bin/ x",
    "ls",
    "ls *",
    "ls*",
    "*.env",
    "*.env *",
    "**/.env",
    "src/**/*.rs",
    "src\\a*",
    "src/*",
    "SRC/A.RS",
    "**/a.rs",
    "a.rs",
    "/tmp/*",
    "*/x",
    "x",
    "?",
    "",
    " *",
    "  x",
    "* > *",
    "*;*",
    "*|*",
    "sh *",
    "python3 *",
    "read-only",
    "*\u{e9}*",
];

const LINES: [&str; 38] = [
    "ls",
    "ls -la x",
    "git log",
    "git log -1 | wc -l",
    "git push --force",
    "git $x",
    "$x",
    "$x y",
    "g$x log",
    "/bin/$x x",
    "rm x",
    "RM x",
    "rm -rf src; ls",
    "/usr/bin/rm x",
    "r'm' x",
    "sudo rm x",
    "sudo -u root $x rm x",
    "xargs rm",
    "xargs -I{} sh -c 'rm {}'",
    "find . -exec rm {} +",
    "find . -exec $x {} +",
    "env A=b rm x",
    "sh -c 'rm x; ls'",
    "sh -c \"rm $x\"",
    "eval \"$x\"",
    "cat .env",
    "cat src/a.rs > src/b.rs",
    "sed -i s/a/b/ src/a.rs",
    "echo x > $f",
    "python3 -c 'import os; os.system(\"rm x\")'",
    "python3 -c '\u{e9}'",
    "awk 'BEGIN { system(\"git push\") }'",
    "uv run rm x",
    "docker run image rm x",
    "tar --to-command='rm x' -xf a",
    "touch a b c d e f; (ls)",
    "if true; then rm x; fi",
    "ls <<< $(rm x) | \\\\ls",
];

fn context() -> PermissionContext {
    let root = std::env::temp_dir().join("nothing-here");
    PermissionContext {
        cwd: root.clone(),
        root,
        path: ["/usr/bin", "/bin"].map(Into::into).to_vec(),
        ..PermissionContext::default()
    }
}

fn rules(length: std::ops::Range<usize>) -> impl Strategy<Value = Rules> {
    let action = prop::sample::select(vec![Action::Allow, Action::Ask, Action::Deny]);
    let permission = prop_oneof![3 => Just("bash"), 2 => prop::sample::select(&PERMISSIONS[..])];
    let source = prop::sample::select(vec!["test", "built in"]);
    let rule = (
        permission,
        prop::sample::select(&PATTERNS[..]),
        action,
        source,
    );
    let rule = rule.prop_map(|(permission, pattern, action, source)| Rule {
        permission: permission.into(),
        pattern: pattern.into(),
        action,
        source: source.into(),
    });
    // In several pieces, as real lists are.
    vec(vec(rule, 1..40), length).prop_map(|pieces| {
        let pieces = pieces
            .into_iter()
            .map(|rules| rules.into_iter().collect::<Rules>());
        pieces.fold(Rules::default(), |all, piece| all.then(&piece))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn indexed_rules_give_the_verdict_of_all_rules(
        rules in rules(0..5),
        grants in rules(0..2),
        line in prop::sample::select(&LINES[..]),
        guarantee in prop::sample::select(vec![SandboxGuarantee::None, SandboxGuarantee::READ_ONLY, SandboxGuarantee::WORKSPACE]),
        isolated in any::<bool>(),
    ) {
        let request = AccessRequest { guarantee, is_isolated: isolated, ..command_request(line, &context()) };
        let wanted = without_index(|| evaluate(&rules, &grants, &request));
        prop_assert_eq!(evaluate(&rules, &grants, &request), wanted, "{}", line);
    }

    #[test]
    fn indexed_rules_give_the_verdict_of_all_rules_on_paths(
        rules in rules(0..5),
        grants in rules(0..2),
        permission in prop::sample::select(vec!["edit", "read", "bash", "posture", "ed/it", "other"]),
        text in prop_oneof![prop::sample::select(&PATTERNS[..]).prop_map(str::to_owned), "[a-z./ \\\\]{0,6}"],
    ) {
        let request = AccessRequest::new(permission, text);
        let wanted = without_index(|| evaluate(&rules, &grants, &request));
        prop_assert_eq!(evaluate(&rules, &grants, &request), wanted);
        prop_assert_eq!(rules.hides(permission), hides_simply(&rules, permission));
    }
}

const ADDRESS_PATTERNS: [&str; 22] = [
    "*",
    "a.example",
    "A.Example",
    "*.example",
    "*.a.example",
    "b*.a.example",
    "?.example",
    "a.*",
    "https://a.example/*",
    "https://a.example:8443/*",
    "http://*/x",
    "*://a.example",
    "*a.example*",
    "*secret*",
    "*/x",
    "https://a.example/x*",
    "a.example/x",
    "a.example:443",
    "example",
    "",
    "*.",
    "[::1]",
];

const ADDRESSES: [&str; 9] = [
    "https://a.example/",
    "https://a.example/x",
    "https://A.example./x?y=secret",
    "http://b.a.example/x",
    "https://bb.a.example:8443/SECRET",
    "https://other.example/a.example",
    "http://[2606:4700::1]/x",
    "https://user@a.example/",
    "no address",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn indexed_rules_give_the_verdict_of_all_rules_on_addresses(
        patterns in vec((prop::sample::select(&ADDRESS_PATTERNS[..]), 0..3_usize, prop::sample::select(vec!["webfetch", "*", "web*", "bash"])), 0..40),
        address in prop::sample::select(&ADDRESSES[..]),
    ) {
        let rule = |(pattern, action, permission): &(&str, usize, &str)| Rule {
            permission: (*permission).into(),
            pattern: (*pattern).into(),
            action: [Action::Allow, Action::Ask, Action::Deny][*action],
            source: "test".into(),
        };
        let rules: Rules = patterns.iter().map(rule).collect();
        let request = AccessRequest::new("webfetch", address);
        let wanted = without_index(|| evaluate(&rules, &rules, &request));
        prop_assert_eq!(evaluate(&rules, &rules, &request), wanted);
    }
}

fn hides_simply(rules: &Rules, permission: &str) -> bool {
    let last = rules
        .iter()
        .rfind(|rule| super::wildcard::matches(&rule.permission, permission));
    last.is_some_and(|rule| rule.pattern == "*" && rule.action == Action::Deny)
}

/// A line compares only the rules that may match it, whether there are 100 or 10,000.
#[test]
fn compared_rules_do_not_grow_with_the_list() {
    let of = |count: usize| {
        let patterns = [
            |at| format!("tool{at} *"),
            |at| format!("git log *{at}x"),
            |at| format!("*.kind{at}"),
            |at| format!("*word{at}x*"),
        ];
        let actions = [Action::Allow, Action::Ask, Action::Deny];
        let rule = |at: usize| Rule {
            permission: ["bash", "edit"][at % 2].into(),
            pattern: patterns[at / 2 % 4](at),
            action: actions[at / 2 % 3],
            source: "test".into(),
        };
        Rules::built_in(&[("*", "*", Action::Allow)]).then(&(0..count).map(rule).collect())
    };
    let lines = [
        "git log -1 | wc -l",
        "cat a.rs > b.rs",
        "sudo ls -la; tool7 x",
        "sh -c 'ls; tool9 x'",
    ];
    for line in lines {
        let request = AccessRequest {
            guarantee: SandboxGuarantee::WORKSPACE,
            ..command_request(line, &context())
        };
        let [few, many] = [100, 10_000].map(|count| {
            let rules = of(count);
            let grants = of(count);
            rules_compared_by(|| drop(evaluate(&rules, &grants, &request)))
        });
        assert!(
            few > 0 && many <= few + few / 10,
            "{line}: {few} of 100 rules, {many} of 10,000"
        );
        // The counter works: without the index nearly all rules are compared.
        let rules = of(10_000);
        let all = rules_compared_by(|| {
            drop(without_index(|| {
                evaluate(&rules, &Rules::default(), &request)
            }))
        });
        assert!(all > 3_000, "{line}: {all}");
    }
}

/// An address compares the rules about its host, and those whose text it contains.
#[test]
fn compared_rules_do_not_grow_with_the_list_of_addresses() {
    let of = |count: usize| -> Rules {
        let patterns = [
            |at| format!("https://site{at}.example/*"),
            |at| format!("*.part{at}.example"),
            |at| format!("*word{at}x*"),
            |at| format!("site{at}.example"),
        ];
        let actions = [Action::Allow, Action::Ask, Action::Deny];
        let rule = |at: usize| Rule {
            permission: "webfetch".into(),
            pattern: patterns[at % 4](at),
            action: actions[at / 4 % 3],
            source: "test".into(),
        };
        (0..count).map(rule).collect()
    };
    for address in ["https://docs.example/a", "https://a.part5.example/word6x"] {
        let request = AccessRequest::new("webfetch", address);
        let compared = [100, 10_000].map(|count| {
            let rules = of(count);
            rules_compared_by(|| drop(evaluate(&rules, &Rules::default(), &request)))
        });
        assert!(compared[1] <= compared[0] + 2, "{address}: {compared:?}");
    }
}
