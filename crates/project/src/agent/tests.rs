//! Tests of the registry: the agents of given settings, and their permissions.

use std::collections::BTreeMap;

use super::{Agents, Mode, show};
use base::environment::Environment;
use base::listing::EntryState;
use base::worktree::Worktree;
use config::builtin::AGENTS;
use permission::keys::PERMISSIONS;
use permission::{AccessRequest, Action, Rules, evaluate};

struct AgentFixture {
    _dir: tempfile::TempDir,
    environment: Environment,
    worktree: Worktree,
    agents: Agents,
    problems: Vec<String>,
}

/// Returns the agents under the user's settings.
fn agents(settings: &str) -> AgentFixture {
    let dir = tempfile::tempdir().unwrap();
    let real = std::fs::canonicalize(dir.path()).unwrap();
    std::fs::create_dir_all(real.join("home/.config/adjutant")).unwrap();
    std::fs::create_dir_all(real.join("repo/.git")).unwrap();
    std::fs::write(real.join("home/.config/adjutant/adjutant.json"), settings).unwrap();
    let vars = BTreeMap::from([
        ("HOME".to_owned(), real.join("home").display().to_string()),
        (
            "OPENCODE_TEST_MANAGED_CONFIG_DIR".to_owned(),
            real.join("managed").display().to_string(),
        ),
        ("TMPDIR".to_owned(), "/tmp".to_owned()),
    ]);
    let environment = Environment::from_vars(vars);
    let worktree = Worktree::find(&real.join("repo"), &[], None);
    let loaded = config::load(&environment, &worktree, &worktree.root);
    let (agents, problems) = Agents::build(&loaded.settings, &environment, &worktree);
    let problems = loaded
        .problems
        .iter()
        .chain(&problems)
        .map(ToString::to_string)
        .collect();
    AgentFixture {
        _dir: dir,
        environment,
        worktree,
        agents,
        problems,
    }
}

impl AgentFixture {
    fn verdict(&self, agent: &str, permission: &str, pattern: &str) -> Action {
        let agent = self
            .agents
            .get(agent)
            .unwrap_or_else(|| panic!("no agent {agent}"));
        evaluate(
            &agent.rules,
            &Rules::default(),
            &AccessRequest::new(permission, pattern),
        )
        .action
    }
}

/// Targets of permissions whose verdict depends on them.
const TARGETS: [(&str, &str); 13] = [
    ("read", "src/a.rs"),
    ("read", "conf/.env"),
    ("read", "conf/.env.example"),
    ("list", "src"),
    ("glob", "**/*.rs"),
    ("edit", "src/a.rs"),
    ("edit", ".opencode/plans/x.md"),
    ("edit", ".adjutant/plans/x.md"),
    ("task", "explore"),
    ("task", "general"),
    ("webfetch", "https://example.org"),
    ("external_directory", "/etc/*"),
    ("server_tool", "*"),
];

/// Returns every permission with the targets that are tested.
fn touched() -> Vec<(&'static str, &'static str)> {
    let other = PERMISSIONS
        .iter()
        .filter(|(key, _)| *key != "*" && !TARGETS.iter().any(|(own, _)| own == key))
        .map(|(key, _)| (*key, "*"));
    TARGETS.into_iter().chain(other).collect()
}

#[test]
fn restricted_agent_can_read_stored_results() {
    let settings = r#"{"agent": {
        "narrow": {"permission": {"*": "deny", "bash": "allow"}},
        "named": {"permission": {"*": "deny", "bash": "allow", "read": "deny", "external_directory": "deny"}},
        "nothing": {"permission": {"*": "deny"}}
    }}"#;
    let set = agents(settings);
    let output = set.environment.dirs.data.join("tool-output/x");
    let shown = set.worktree.relative(&output);
    let may = |agent: &str| {
        let outside = set.verdict(agent, "external_directory", &output.display().to_string());
        [
            outside,
            set.verdict(agent, "read", &shown),
            set.verdict(agent, "read", "a.txt"),
        ]
    };
    assert_eq!(may("narrow"), [Action::Allow, Action::Allow, Action::Deny]);
    assert_eq!(may("named"), [Action::Deny, Action::Deny, Action::Deny]);
    assert_eq!(may("nothing"), [Action::Deny, Action::Deny, Action::Deny]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
fn built_in_agents_have_expected_permissions() {
    let set = agents("{}");
    let names = AGENTS.map(|agent| agent.name);
    let mut table = format!("permission target {}\n", names.join(" "));
    for (permission, target) in touched() {
        let verdicts = names.map(|agent| match set.verdict(agent, permission, target) {
            Action::Allow => "allow",
            Action::Ask => "ask",
            Action::Deny => "deny",
        });
        table += &format!("{permission} {target} {}\n", verdicts.join(" "));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/agent/permissions.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(
        table, expected,
        "BLESS=1 cargo test -p project built_in_agents writes the table"
    );
    let data = |tail: &str| set.environment.dirs.data.join(tail).display().to_string();
    for agent in ["build", "plan", "explore"] {
        assert_eq!(
            set.verdict(agent, "external_directory", &data("tool-output/x")),
            Action::Allow,
            "{agent}"
        );
    }
    assert_eq!(
        set.verdict("plan", "external_directory", &data("plans/x.md")),
        Action::Allow
    );
    assert_eq!(
        set.verdict(
            "plan",
            "edit",
            &set.worktree
                .relative(&set.environment.dirs.data.join("plans/x.md"))
        ),
        Action::Allow
    );
    assert_eq!(set.verdict("build", "doom_loop", "bash"), Action::Ask);
    assert_eq!(set.verdict("explore", "doom_loop", "bash"), Action::Ask);
    let home = set.environment.home.clone().unwrap();
    let registry = home.join(".cargo/registry/src/x").display().to_string();
    assert_eq!(
        set.verdict("scout", "external_directory", &registry),
        Action::Allow
    );
    assert_eq!(
        set.verdict("explore", "external_directory", &registry),
        Action::Ask
    );
    for agent in ["plan", "explore", "scout"] {
        let rules = &set.agents.get(agent).unwrap().rules;
        assert!(
            rules
                .iter()
                .any(|rule| (rule.permission.as_str(), rule.action) == ("posture", Action::Deny)),
            "{agent}"
        );
    }
}

#[test]
fn users_rules_tighten_built_in_agents_and_never_loosen_them() {
    for settings in [
        r#"{"permission": "allow"}"#,
        r#"{"permission": {"*": "allow", "edit": "allow", "task": "allow", "todowrite": "allow"}}"#,
        r#"{"permission": {"edit": {"*": "allow", "src/*": "allow"}, "task": {"general": "allow"}}}"#,
        r#"{"permission": {"*": "ask"}}"#,
        r#"{"permission": {"to*": "allow", "e*": "allow", "t*": "allow"}}"#,
    ] {
        let set = agents(settings);
        let plain = agents("{}");
        for agent in [
            "plan",
            "general",
            "explore",
            "scout",
            "compaction",
            "summary",
            "title",
        ] {
            let loosened = |(permission, pattern): &&(&str, &str)| {
                plain.verdict(agent, permission, pattern) == Action::Deny
                    && set.verdict(agent, permission, pattern) != Action::Deny
            };
            // The user may lift the general denies of questions and mode changes.
            let must_stay = |(permission, _): &&(&str, &str)| {
                !matches!(*permission, "question" | "plan_enter" | "plan_exit")
                    || agent != "plan" && agent != "general"
            };
            let touched = touched();
            let loosened: Vec<_> = touched.iter().filter(loosened).filter(must_stay).collect();
            assert!(
                loosened.is_empty(),
                "{agent} under {settings}: {loosened:?}"
            );
        }
    }
    let strict = agents(
        r#"{"permission": {"bash": "deny", "webfetch": "ask", "read": {"secret/*": "deny"}, "edit": "deny", "external_directory": "deny"}}"#,
    );
    for agent in ["build", "plan", "explore", "scout"] {
        assert_eq!(strict.verdict(agent, "bash", "ls"), Action::Deny, "{agent}");
        assert_eq!(
            strict.verdict(agent, "webfetch", "https://x"),
            Action::Ask,
            "{agent}"
        );
        assert_eq!(
            strict.verdict(agent, "read", "secret/x"),
            Action::Deny,
            "{agent}"
        );
        assert_eq!(
            strict.verdict(agent, "edit", ".opencode/plans/x.md"),
            Action::Deny,
            "{agent}"
        );
        assert_eq!(
            strict.verdict(agent, "external_directory", "/etc/x"),
            Action::Deny,
            "{agent}"
        );
    }
    let own = agents(
        r#"{"agent": {"plan": {"permission": {"edit": {"docs/*": "allow"}}}, "explore": {"permission": {"skill": "allow"}}}}"#,
    );
    assert_eq!(own.verdict("plan", "edit", "docs/x"), Action::Allow);
    assert_eq!(own.verdict("plan", "edit", "src/x"), Action::Deny);
    assert_eq!(own.verdict("explore", "skill", "x"), Action::Allow);
}

#[test]
fn modes_begin_with_default() {
    let set = agents(
        r#"{"default_agent": "plan", "agent": {"zed": {"mode": "all"}, "alpha": {"mode": "primary"}, "sub": {"mode": "subagent"}, "ghost": {"hidden": true}}}"#,
    );
    let modes: Vec<String> = set
        .agents
        .modes()
        .iter()
        .map(|agent| agent.name.clone())
        .collect();
    assert_eq!(modes, ["plan", "alpha", "build", "zed"]);
    let rules = &set.agents.get("plan").unwrap().rules;
    let subagents: Vec<String> = set
        .agents
        .subagents_for(rules)
        .iter()
        .map(|agent| agent.name.clone())
        .collect();
    assert_eq!(
        subagents,
        ["explore", "ghost", "scout", "sub", "zed"],
        "plan may not start general"
    );
    assert!(set.problems.is_empty(), "{:?}", set.problems);
}

#[test]
fn impossible_default_is_reported() {
    let table = [
        (
            r#"{"default_agent": "biuld"}"#,
            "build",
            "there is no agent \"biuld\"; build is used; did you mean \"build\"?",
        ),
        (
            r#"{"default_agent": "explore"}"#,
            "build",
            "\"explore\" is a subagent, so no session can start with it; build is used; choose one of build, plan",
        ),
        (
            r#"{"default_agent": "title"}"#,
            "build",
            "the agent \"title\" is hidden",
        ),
        (
            r#"{"default_agent": "build", "agent": {"build": {"disable": true}}}"#,
            "plan",
            "there is no agent \"build\"; plan is used",
        ),
    ];
    for (settings, used, expected) in table {
        let set = agents(settings);
        assert_eq!(set.agents.default().name, used, "{settings}");
        assert!(
            set.problems[0].starts_with("~/.config/adjutant/adjutant.json:1:19: default_agent: "),
            "{:?}",
            set.problems
        );
        assert!(set.problems[0].contains(expected), "{:?}", set.problems);
    }
}

#[test]
fn there_is_always_a_selectable_agent() {
    let set = agents(
        r#"{"agent": {"build": {"disable": true, "temperature": 0.3}, "plan": {"disable": true}}}"#,
    );
    assert_eq!(set.agents.default().name, "build");
    assert_eq!(set.agents.default().temperature, Some(0.3));
    assert!(
        set.problems
            .iter()
            .any(|problem| problem.contains("no agent is left")),
        "{:?}",
        set.problems
    );
    let set = agents(
        r#"{"agent": {"build": {"disable": true}, "mine": {"mode": "all", "prompt": "I."}}}"#,
    );
    assert_eq!(
        (set.agents.default().name.as_str(), set.problems.len()),
        ("plan", 0),
        "the first that can be chosen"
    );
}

#[test]
fn settings_change_built_in_agent_field_by_field() {
    let set = agents(
        r##"{"agent": {"explore": {"model": "a/b/c", "variant": "high", "color": "#aabbcc", "steps": 9, "reasoningEffort": "low", "options": {"x": 1}, "name": "Finder"}}}"##,
    );
    let explore = set.agents.get("explore").unwrap();
    assert_eq!(explore.mode, Mode::Subagent);
    assert!(explore.prompt.is_some() && explore.description.is_some() && explore.native);
    assert_eq!(explore.model.as_ref().unwrap().model, "b/c");
    assert_eq!((explore.label.as_str(), explore.steps), ("Finder", Some(9)));
    assert_eq!(
        serde_json::Value::Object(explore.options.clone()),
        serde_json::json!({"x": 1, "reasoningEffort": "low"})
    );
    assert_eq!(explore.source, "~/.config/adjutant/adjutant.json");
}

#[test]
fn agents_are_listed_and_shown() {
    let set = agents(
        r#"{"model": "a/b", "agent": {"mine": {"description": "Does  one\nthing", "model": "a/b", "permission": {"bash": {"rm *": "deny"}}}}}"#,
    );
    let off = (
        "off".to_owned(),
        EntryState::Off,
        "opencode.json:1".to_owned(),
    );
    let list = show::list(
        &set.agents,
        |name| {
            let is_mine = name == "mine";
            is_mine
                .then(|| "its looser rules wait".to_owned())
                .into_iter()
                .collect()
        },
        &[off],
    );
    let names: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        names,
        [
            "name",
            "build",
            "mine",
            "plan",
            "explore",
            "general",
            "scout",
            "compaction",
            "summary",
            "title",
            "off"
        ]
    );
    assert!(
        list.lines()
            .any(|line| line.starts_with("build (default)  primary          active")),
        "{list}"
    );
    let words: Vec<&str> = list.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("Does one thing. Its looser rules"), "{list}");
    let text = show::show(&set.agents.get("mine").unwrap());
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("deny bash rm * ~/.config/adjutant/adjutant.json:1"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("allow") && line.ends_with("built in")),
        "{text}"
    );
}

#[test]
fn command_for_unknown_agent_is_reported() {
    let set = agents(r#"{"command": {"x": {"template": "y", "agent": "plam"}}}"#);
    assert!(
        set.problems[0].contains(
            "command.x.agent: there is no agent \"plam\"; the session's agent answers; did you mean \"plan\"?"
        ),
        "{:?}",
        set.problems
    );
}

#[test]
fn agent_for_summaries_is_hidden_unless_the_settings_show_it() {
    for (settings, hidden) in [
        (r#"{"agent": {"summary": {"model": "a/b"}}}"#, true),
        (
            r#"{"agent": {"summary": {"model": "a/b", "hidden": false}}}"#,
            false,
        ),
    ] {
        assert_eq!(
            agents(settings).agents.get("summary").unwrap().hidden,
            hidden,
            "{settings}"
        );
    }
    assert!(agents("{}").agents.get("summary").unwrap().hidden);
}
