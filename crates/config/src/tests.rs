//! Tests of settings on reader: layers, bad input, trust, old spellings, three realistic set-ups.

mod bad_input;
mod keys;
mod layering;
mod trusting;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::trust::{Decision, TrustKind, TrustStore};
use super::*;
use base::environment::{Environment, Timestamp};
use base::worktree::Worktree;
use permission::{Action, Rules};

/// A home and a project in one temporary directory.
struct ConfigFixture {
    dir: tempfile::TempDir,
    vars: BTreeMap<String, String>,
    written: RefCell<Vec<PathBuf>>,
    environments: RefCell<BTreeMap<BTreeMap<String, String>, Environment>>,
}

impl ConfigFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir_all(real.join("home/.config")).unwrap();
        std::fs::create_dir_all(real.join("work/repo/.git")).unwrap();
        std::fs::create_dir_all(real.join("work/repo/sub")).unwrap();
        let vars = BTreeMap::from([
            ("HOME".to_owned(), real.join("home").display().to_string()),
            (
                "OPENCODE_TEST_MANAGED_CONFIG_DIR".to_owned(),
                real.join("managed").display().to_string(),
            ),
        ]);
        Self {
            dir,
            vars,
            written: RefCell::default(),
            environments: RefCell::default(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        std::fs::canonicalize(self.dir.path()).unwrap().join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        self.written.borrow_mut().push(path);
        self
    }

    /// Restores the initial state: creating a fixture takes longer than all the tested code.
    fn clear(&mut self, vars: &BTreeMap<String, String>) {
        for path in self.written.borrow_mut().drain(..) {
            std::fs::remove_file(path).unwrap();
        }
        self.vars.clone_from(vars);
    }

    fn var(&mut self, name: &str, value: &str) {
        self.vars.insert(name.into(), value.into());
    }

    fn environment(&self) -> Environment {
        let mut environments = self.environments.borrow_mut();
        environments
            .entry(self.vars.clone())
            .or_insert_with(|| Environment::from_vars(self.vars.clone()))
            .clone()
    }

    fn worktree(&self) -> Worktree {
        Worktree::find(&self.path("work/repo"), &[], None)
    }

    fn load(&self) -> LoadedSettings {
        load(
            &self.environment(),
            &self.worktree(),
            &self.path("work/repo/sub"),
        )
    }

    fn trust(&self) {
        let environment = self.environment();
        let loaded = self.load();
        TrustStore::open(&environment)
            .decide(&self.worktree().root, &loaded.trust, true, Timestamp(1))
            .unwrap();
    }
}

fn reports(loaded: &LoadedSettings) -> Vec<String> {
    loaded
        .problems
        .iter()
        .map(|problem| format!("{}: {problem}", problem.severity.as_str()))
        .collect()
}

#[test]
fn every_old_spelling_works_and_is_reported() {
    let mut fixture = ConfigFixture::new();
    fixture.var("ADJUTANT_TRUST", "all");
    fixture.copy("legacy", "work/repo");
    let loaded = fixture.load();
    let reports = reports(&loaded);
    let settings = &loaded.settings;
    let agent = |name: &str| {
        settings
            .agents
            .iter()
            .find(|agent| agent.name == name)
            .unwrap_or_else(|| panic!("{name}: {reports:#?}"))
    };
    let rules = |rules: &Rules| {
        rules
            .iter()
            .map(|rule| format!("{} {} {:?}", rule.permission, rule.pattern, rule.action))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rules(&settings.permission),
        ["edit * Ask", "webfetch * Deny", "list * Allow"]
    );
    assert_eq!(agent("careful").mode, Some(settings::Mode::Primary));
    assert_eq!(agent("careful").steps, Some(7));
    assert_eq!(
        rules(&agent("careful").rules),
        ["edit * Deny", "bash * Allow"]
    );
    assert_eq!(agent("old-mode").mode, Some(settings::Mode::Primary));
    assert_eq!(agent("old-mode").steps, Some(3));
    assert_eq!(
        rules(&agent("docs/writer").rules),
        ["bash * Deny", "edit docs/* Allow"]
    );
    assert_eq!(
        agent("docs/writer").options.get("reasoningEffort"),
        Some(&serde_json::json!("low"))
    );
    assert_eq!(settings.references[0].name, "design");
    assert_eq!(settings.commands[0].name, "old");
    assert_eq!(loaded.tree().get("share").unwrap().to_json(), "auto");
    for expected in [
        "\"tools\" is an old spelling",
        "\"maxSteps\" is an old spelling",
        "\"mode\" is an old spelling",
        "\"autoshare\" is an old spelling",
        "\"reference\" is an old spelling",
        "the folder \"mode\" is an old place",
        "\"patch\" is an old name for \"edit\"",
        "\"ls\" is an old name for \"list\"",
    ] {
        assert!(
            reports
                .iter()
                .any(|line| line.starts_with("deprecated: ") && line.contains(expected)),
            "{expected}\n{reports:#?}"
        );
    }
    assert!(!loaded.has_errors(), "{reports:#?}");
    let text = check(&loaded, &loaded.problems);
    assert!(text.contains("old spellings"), "{text}");
}

impl ConfigFixture {
    fn copy(&self, fixture: &str, to: &str) {
        fn copy(from: &Path, to: &Path) {
            std::fs::create_dir_all(to).unwrap();
            for entry in std::fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                // Dotted names are stored without their dot, so that no tool mistakes them for its
                // own files.
                let name = name
                    .strip_prefix("dot-")
                    .map_or(name.clone(), |rest| format!(".{rest}"));
                if entry.file_type().unwrap().is_dir() {
                    copy(&entry.path(), &to.join(name));
                } else {
                    std::fs::copy(entry.path(), to.join(name)).unwrap();
                }
            }
        }
        copy(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../editor-tests/fixtures")
                .join(fixture),
            &self.path(to),
        );
    }
}

#[test]
fn team_with_many_agents_loads() {
    let fixture = ConfigFixture::new();
    fixture.copy("team", "work/repo");
    let loaded = fixture.load();
    assert_eq!(
        reports(&loaded),
        [
            "note: .opencode/command/ship/check.md:2:1: command.ship/check: not used until you trust this project: git status --short"
        ]
    );
    assert!(
        loaded.settings.agents.len() >= 20,
        "{}",
        loaded.settings.agents.len()
    );
    let names: Vec<&str> = loaded
        .settings
        .agents
        .iter()
        .map(|agent| agent.name.as_str())
        .collect();
    for name in [
        "review/security",
        "review/api",
        "write/tests",
        "ops/release/notes",
        "plan",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(
        loaded
            .settings
            .agents
            .iter()
            .all(|agent| agent.name == "plan" || agent.description.is_some())
    );
    assert!(
        loaded
            .settings
            .commands
            .iter()
            .any(|command| command.name == "ship/check")
    );
    assert_eq!(
        loaded.trust.decision,
        Decision::Unasked,
        "it has a shell insert"
    );
    assert_eq!(loaded.trust.items.len(), 1, "{}", loaded.trust.list());
}

#[test]
fn monorepo_layers_are_joined() {
    let fixture = ConfigFixture::new();
    fixture.copy("monorepo", "work/repo");
    std::fs::create_dir_all(fixture.path("work/repo/services/billing/src")).unwrap();
    let worktree = fixture.worktree();
    let in_dir = |dir: &str| load(&fixture.environment(), &worktree, &fixture.path(dir));
    let root = in_dir("work/repo");
    let web = in_dir("work/repo/apps/web");
    let billing = in_dir("work/repo/services/billing/src");
    let model = |loaded: &LoadedSettings| loaded.settings.model.clone().unwrap().to_string();
    assert_eq!(
        (model(&root), model(&web), model(&billing)),
        (
            "acme/base".into(),
            "acme/web".into(),
            "acme/billing-local".into()
        )
    );
    let prompt = |loaded: &LoadedSettings| {
        loaded
            .settings
            .agents
            .iter()
            .find(|agent| agent.name == "reviewer")
            .unwrap()
            .prompt
            .clone()
            .unwrap()
    };
    assert!(prompt(&root).contains("whole repository"));
    assert!(prompt(&web).contains("browser"), "the inner directory wins");
    assert!(prompt(&billing).contains("whole repository"));
    let agents = |loaded: &LoadedSettings| {
        loaded
            .settings
            .agents
            .iter()
            .map(|agent| agent.name.clone())
            .collect::<Vec<_>>()
    };
    assert!(
        agents(&billing).contains(&"ledger".to_owned())
            && !agents(&web).contains(&"ledger".to_owned())
    );
    let instructions = |loaded: &LoadedSettings| {
        loaded
            .settings
            .instructions
            .iter()
            .map(|entry| entry.text.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(instructions(&billing), ["docs/rules/*.md", "MONEY.md"]);
    let reviewer = web
        .settings
        .agents
        .iter()
        .find(|agent| agent.name == "reviewer")
        .unwrap();
    assert_eq!(reviewer.temperature, Some(0.1), "field by field");
    for loaded in [&root, &web, &billing] {
        assert_eq!(reports(loaded), Vec::<String>::new());
    }
}

#[test]
fn change_makes_settings_stale() {
    let fixture = ConfigFixture::new();
    fixture.write("work/repo/opencode.json", r#"{"model": "a/b"}"#);
    fixture.write(
        "work/repo/.opencode/agents/x.md",
        "---\ndescription: x\n---\nx",
    );
    let stale_after = |change: &dyn Fn()| {
        let loaded = fixture.load();
        assert!(!loaded.is_stale());
        change();
        loaded.is_stale()
    };
    assert!(stale_after(&|| {
        fixture.write("work/repo/opencode.json", r#"{"model": "a/longer"}"#);
    }));
    assert!(
        stale_after(&|| {
            fixture.write("work/repo/adjutant.json", "{}");
        }),
        "a new file"
    );
    assert!(
        stale_after(&|| {
            fixture.write("work/repo/.opencode/agents/y.md", "y");
        }),
        "a new agent"
    );
    assert!(
        stale_after(&|| {
            fixture.write("work/repo/sub/.opencode/opencode.json", "{}");
        }),
        "a new directory"
    );
    assert!(stale_after(&|| fixture.trust()) || fixture.load().trust.items.is_empty());
    assert!(stale_after(&|| std::fs::remove_file(
        fixture.path("work/repo/opencode.json")
    )
    .unwrap()));
    assert!(
        !stale_after(&|| {
            fixture.write("work/repo/src/main.rs", "x");
        }),
        "anything else"
    );
}

#[test]
fn shown_settings_have_sources_and_no_secrets() {
    let mut fixture = ConfigFixture::new();
    fixture.var("ADJUTANT_TRUST", "all");
    fixture.write("home/.config/opencode/opencode.json", "{\n  \"model\": \"a/b\",\n  \"provider\": {\"p\": {\"options\": {\"apiKey\": \"sk-hidden\", \"headers\": {\"X-Auth\": \"hidden\"}}}}\n}");
    fixture.write(
        "work/repo/opencode.json",
        "{\"permission\": {\"bash\": {\"git *\": \"allow\"}}, \"instructions\": [\"a.md\"]}",
    );
    let text = show(&fixture.load(), &[]);
    for line in [
        "model = \"a/b\"    # ~/.config/opencode/opencode.json:2",
        "provider.p.options.apiKey = (not shown)    # ~/.config/opencode/opencode.json:3",
        "permission.bash.\"git *\" = \"allow\"    # opencode.json:1",
        "instructions = [\"a.md\"]    # opencode.json:1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("hidden"), "{text}");
    let loaded = fixture.load();
    assert!(check(&loaded, &loaded.problems).contains("2 files read; nothing is wrong."));
}

#[test]
fn declaration_is_complete() {
    let keys: Vec<String> = declare::keys::rows()
        .into_iter()
        .map(|row| row.key)
        .collect();
    let known = "$schema shell logLevel server command skills references reference watcher snapshot plugin share autoshare \
                 autoupdate disabled_providers enabled_providers model small_model default_agent subagent_depth username mode agent \
                 provider mcp formatter lsp instructions layout permission tools attachment enterprise tool_output compaction experimental";
    for key in known.split_whitespace() {
        assert!(keys.iter().any(|row| row == key), "{key}");
    }
    for row in declare::keys::rows() {
        assert!(!row.text.is_empty() && !row.kind.is_empty(), "{row:?}");
    }
    let table = table();
    assert!(
        table.contains("| `steer` | true or false | applies | Text sent while a turn runs"),
        "{table}"
    );
    assert!(
        table.contains(
            "| `theme` | anything | applies | Colours of OpenCode's terminal interface. No effect: "
        ),
        "{table}"
    );
    for key in [
        "agent.<name>.permission",
        "agent.<name>.steps",
        "compaction.auto",
        "mcp.<name>.command",
        "provider.<name>.options.apiKey",
        "permission.bash",
    ] {
        assert!(keys.iter().any(|row| row == key), "{key}: {keys:#?}");
    }
    // The schema and the check accept the same files, because they have the same source.
    let schema = declare::schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(
        validator
            .is_valid(&serde_json::json!({"model": "a/b", "permission": {"bash": {"git *": "allow"}}, "lsp": true}))
    );
    assert!(!validator.is_valid(&serde_json::json!({"permission": {"bash": "maybe"}})));
    assert!(!validator.is_valid(&serde_json::json!({"modle": "a/b"})));
}

#[test]
fn two_hundred_agents_load_quickly() {
    let fixture = ConfigFixture::new();
    let prompt = "You look at one thing and say what you see.\n".repeat(40);
    for n in 0..200 {
        let text = format!(
            "---\ndescription: \"Agent {n}\"\nmode: subagent\ntemperature: 0.2\npermission:\n  edit: deny\n  bash:\n    \"git *\": allow\n---\n{prompt}"
        );
        fixture.write(
            &format!("work/repo/.opencode/agents/g{}/a{n}.md", n % 10),
            text,
        );
    }
    let environment = fixture.environment();
    let worktree = fixture.worktree();
    let begin = Instant::now();
    let loaded = load(&environment, &worktree, &worktree.root);
    let took = begin.elapsed();
    assert_eq!(loaded.settings.agents.len(), 200);
    // Not a benchmark, only a guard against quadratic time: unoptimised code on a busy machine.
    assert!(took.as_millis() < 2_000, "{took:?}");
}

#[test]
fn agent_spellings_are_accepted_and_unknown_keys_reported() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "home/.config/adjutant/adjutant.json",
        r##"{"agent": {"x": {"topP": 0.5, "maxTurns": 3, "systemPrompt": "Hi.", "enabled": false, "color": "blue",
            "reasoningEffort": "low", "tempo": 3, "options": {"anything": 1}}, "y": {"color": "#abc"}}}"##,
    );
    let loaded = fixture.load();
    let agent = &loaded.settings.agents[0];
    assert_eq!(
        (
            agent.top_p,
            agent.steps,
            agent.prompt.as_deref(),
            agent.disable
        ),
        (Some(0.5), Some(3), Some("Hi."), true)
    );
    assert_eq!(agent.color.as_deref(), Some("blue"));
    let options = serde_json::Value::Object(agent.options.clone());
    assert_eq!(
        options,
        serde_json::json!({"anything": 1, "reasoningEffort": "low"})
    );
    let unknown: Vec<&Problem> = loaded
        .problems
        .iter()
        .filter(|problem| problem.code == ProblemCode::UnknownKey)
        .collect();
    assert_eq!(
        (unknown.len(), unknown[0].key.as_str()),
        (1, "agent.x.tempo"),
        "{:?}",
        loaded.problems
    );
}

/// `providers` is also the name of providers in a later format of OpenCode.
#[test]
fn own_key_among_providers_of_the_later_format() {
    let fixture = ConfigFixture::new();
    let file = "home/.config/opencode/opencode.json";
    let gateway = r#""gw":{"options":{"baseURL":"http://127.0.0.1:9/v1"}}"#;
    for (providers, allowed, ids) in [
        (r#"{"from_editor":false}"#.to_owned(), false, vec![]),
        (r#"{"from_editor":"no"}"#.to_owned(), false, vec![]),
        (
            format!(r#"{{"from_editor":false,{gateway}}}"#),
            false,
            vec!["gw"],
        ),
        (format!("{{{gateway}}}"), true, vec!["gw"]),
    ] {
        fixture.write(file, format!(r#"{{"providers":{providers}}}"#));
        // A project cannot allow it again.
        let project = r#"{"providers":{"from_editor":true}}"#;
        fixture.write("work/repo/opencode.json", project);
        let settings = fixture.load().settings;
        assert_eq!(
            settings.provider_changes.from_editor, allowed,
            "{providers}"
        );
        let found: Vec<_> = settings
            .providers
            .iter()
            .map(|provider| &*provider.id)
            .collect();
        assert_eq!(found, ids, "{providers}");
    }
}

#[test]
fn command_names_itself_and_survives_bad_front_matter() {
    let fixture = ConfigFixture::new();
    let file = |name: &str| format!("home/.config/adjutant/command/{name}.md");
    fixture.write(
        &file("a"),
        "---\nname: fix\ndescription: Fixes.\n---\nFix it.",
    );
    fixture.write(&file("b"), "---\narguments: [a] [b]\n---\nDo $1.");
    let loaded = fixture.load();
    let commands: Vec<(&str, &str)> = loaded
        .settings
        .commands
        .iter()
        .map(|command| (command.name.as_str(), command.template.as_str()))
        .collect();
    assert_eq!(commands, [("fix", "Fix it."), ("b", "Do $1.")]);
    let problems: Vec<(ProblemCode, ProblemSeverity)> = loaded
        .problems
        .iter()
        .map(|problem| (problem.code, problem.severity))
        .collect();
    assert_eq!(
        problems,
        [(ProblemCode::Syntax, ProblemSeverity::Warning)],
        "{:?}",
        loaded.problems
    );
}

#[test]
fn unsupported_keys_are_reported_once() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "home/.config/adjutant/adjutant.json",
        r#"{"formatter": true, "lsp": false, "logLevel": "DEBUG", "shell": "/bin/zsh", "plugin": ["x"],
            "provider": {"p": {"models": {"m": {"experimental": true, "cost": {"context_over_200k": {"input": 1}}}}}}}"#,
    );
    let loaded = fixture.load();
    let mut named: Vec<(&str, &str)> = loaded
        .problems
        .iter()
        .map(|problem| (problem.key.as_str(), problem.code.as_str()))
        .collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            ("logLevel", "no-effect"),
            ("plugin", "missing-file"),
            ("provider.p.models.m.experimental", "no-effect"),
            ("shell", "no-effect"),
        ]
    );
}

#[test]
fn ineffective_variables_are_reported_once() {
    let mut fixture = ConfigFixture::new();
    fixture.var("OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS", "300000");
    fixture.var("OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX", "");
    let reports_of = |fixture: &ConfigFixture| {
        let loaded = fixture.load();
        assert!(
            loaded
                .problems
                .iter()
                .all(|problem| problem.code == ProblemCode::NoEffect),
            "{:?}",
            loaded.problems
        );
        loaded
            .problems
            .iter()
            .map(|problem| problem.location.origin.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reports_of(&fixture),
        ["OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS"]
    );
    fixture.var("OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX", "64000");
    assert_eq!(reports_of(&fixture).len(), 2);
}
