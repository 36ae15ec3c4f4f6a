//! Tests of layers: their order, and how two are joined.

use super::*;

/// A layer: its name, and a function that writes a model's name into it.
type LayeredCase = (&'static str, fn(&mut ConfigFixture, &str));

const LAYERS: &[LayeredCase] = &[
    ("remote", |fixture, json| {
        fixture.write(
            "home/.local/share/adjutant/auth.json",
            r#"{"https://org.example": {"type": "wellknown", "key": "K", "token": "t"}}"#,
        );
        fixture.write(
            "home/.cache/adjutant/well-known/https---org-example.json",
            json,
        );
    }),
    ("opencode config.json", |fixture, json| {
        fixture.write("home/.config/opencode/config.json", json);
    }),
    ("opencode.json", |fixture, json| {
        fixture.write("home/.config/opencode/opencode.json", json);
    }),
    ("opencode.jsonc", |fixture, json| {
        fixture.write("home/.config/opencode/opencode.jsonc", json);
    }),
    ("adjutant.json", |fixture, json| {
        fixture.write("home/.config/adjutant/adjutant.json", json);
    }),
    ("adjutant.jsonc", |fixture, json| {
        fixture.write("home/.config/adjutant/adjutant.jsonc", json);
    }),
    ("OPENCODE_CONFIG", |fixture, json| {
        fixture.write("one.json", json);
        let path = fixture.path("one.json").display().to_string();
        fixture.var("OPENCODE_CONFIG", &path);
    }),
    ("ADJUTANT_CONFIG", |fixture, json| {
        fixture.write("two.json", json);
        let path = fixture.path("two.json").display().to_string();
        fixture.var("ADJUTANT_CONFIG", &path);
    }),
    ("root opencode.json", |fixture, json| {
        fixture.write("work/repo/opencode.json", json);
    }),
    ("root opencode.jsonc", |fixture, json| {
        fixture.write("work/repo/opencode.jsonc", json);
    }),
    ("root adjutant.json", |fixture, json| {
        fixture.write("work/repo/adjutant.json", json);
    }),
    ("root adjutant.jsonc", |fixture, json| {
        fixture.write("work/repo/adjutant.jsonc", json);
    }),
    ("sub opencode.json", |fixture, json| {
        fixture.write("work/repo/sub/opencode.json", json);
    }),
    ("sub adjutant.jsonc", |fixture, json| {
        fixture.write("work/repo/sub/adjutant.jsonc", json);
    }),
    ("~/.opencode", |fixture, json| {
        fixture.write("home/.opencode/opencode.json", json);
    }),
    ("~/.adjutant", |fixture, json| {
        fixture.write("home/.adjutant/adjutant.json", json);
    }),
    ("root .opencode json", |fixture, json| {
        fixture.write("work/repo/.opencode/opencode.json", json);
    }),
    ("root .opencode jsonc", |fixture, json| {
        fixture.write("work/repo/.opencode/opencode.jsonc", json);
    }),
    ("root .adjutant", |fixture, json| {
        fixture.write("work/repo/.adjutant/adjutant.json", json);
    }),
    ("sub .opencode", |fixture, json| {
        fixture.write("work/repo/sub/.opencode/opencode.json", json);
    }),
    ("sub .adjutant", |fixture, json| {
        fixture.write("work/repo/sub/.adjutant/adjutant.jsonc", json);
    }),
    ("OPENCODE_CONFIG_DIR", |fixture, json| {
        fixture.write("three/opencode.json", json);
        let path = fixture.path("three").display().to_string();
        fixture.var("OPENCODE_CONFIG_DIR", &path);
    }),
    ("ADJUTANT_CONFIG_DIR", |fixture, json| {
        fixture.write("four/adjutant.json", json);
        let path = fixture.path("four").display().to_string();
        fixture.var("ADJUTANT_CONFIG_DIR", &path);
    }),
    ("OPENCODE_CONFIG_CONTENT", |fixture, json| {
        fixture.var("OPENCODE_CONFIG_CONTENT", json)
    }),
    ("ADJUTANT_CONFIG_CONTENT", |fixture, json| {
        fixture.var("ADJUTANT_CONFIG_CONTENT", json)
    }),
    ("managed opencode", |fixture, json| {
        fixture.write("managed/opencode.json", json);
    }),
    ("managed adjutant", |fixture, json| {
        fixture.write("managed/adjutant.jsonc", json);
    }),
];

#[test]
fn higher_layer_wins() {
    let mut fixture = ConfigFixture::new();
    let vars = fixture.vars.clone();
    for (low, (low_name, low_layer)) in LAYERS.iter().enumerate() {
        for (high_name, high_layer) in &LAYERS[low + 1..] {
            fixture.clear(&vars);
            // The lower layer also sets another key, which stays.
            low_layer(
                &mut fixture,
                r#"{"model": "p/low", "small_model": "p/small"}"#,
            );
            high_layer(&mut fixture, r#"{"model": "p/high"}"#);
            let loaded = fixture.load();
            let model = loaded
                .settings
                .model
                .as_ref()
                .map(|model| model.model.as_str());
            assert_eq!(
                model,
                Some("high"),
                "{high_name} over {low_name}: {:?}",
                reports(&loaded)
            );
            assert_eq!(
                loaded.settings.small_model.unwrap().model,
                "small",
                "{low_name} below {high_name}"
            );
        }
    }
}

#[test]
fn permission_variable_wins_over_everything() {
    for (name, layer) in LAYERS {
        let mut fixture = ConfigFixture::new();
        layer(
            &mut fixture,
            r#"{"permission": {"bash": "ask", "edit": "ask"}}"#,
        );
        fixture.var("OPENCODE_PERMISSION", r#"{"bash": "deny"}"#);
        let rules = fixture.load().settings.permission;
        let of = |key: &str| {
            rules
                .iter()
                .rev()
                .find(|rule| rule.permission == key)
                .map(|rule| (rule.action, rule.source.clone()))
        };
        assert_eq!(
            of("bash").unwrap(),
            (Action::Deny, "OPENCODE_PERMISSION:1".into()),
            "{name}"
        );
        assert_eq!(of("edit").unwrap().0, Action::Ask, "{name}");
    }
}

#[test]
fn organisation_defaults_are_read_from_fetched_file() {
    let fixture = ConfigFixture::new();
    let auth = r#"{"https://org.example/": {"type": "wellknown", "key": "ORG_TOKEN", "token": "secret"}, "acme": {"type": "api", "key": "k"}}"#;
    fixture.write("home/.local/share/opencode/auth.json", auth);
    let remotes = remote::organisations(&fixture.environment());
    assert_eq!(remotes.len(), 1);
    assert_eq!(
        remotes[0].address,
        "https://org.example/.well-known/opencode"
    );
    assert!(
        fixture.load().settings.providers.is_empty(),
        "nothing was fetched yet, and loading does not wait for it"
    );
    let answer = r#"{"config": {"model": "o/one", "provider": {"o": {"options": {"apiKey": "{env:ORG_TOKEN}"}}}},
        "remote_config": {"url": "https://org.example/more", "headers": {"A": "b"}}}"#;
    let answer = remote::DefaultsAnswer::read(answer).unwrap();
    assert_eq!(
        answer.further,
        Some((
            "https://org.example/more".into(),
            vec![("A".into(), "b".into())]
        ))
    );
    let more = remote::DefaultsAnswer::read(r#"{"model": "o/two"}"#).unwrap();
    std::fs::create_dir_all(remotes[0].file.parent().unwrap()).unwrap();
    std::fs::write(
        &remotes[0].file,
        remote::merge_answers(&answer, Some(&more)).to_string(),
    )
    .unwrap();
    let settings = fixture.load().settings;
    assert_eq!(settings.model.unwrap().model, "two");
    assert_eq!(
        settings.providers[0]
            .api_key
            .as_ref()
            .map(settings::Secret::expose),
        Some("secret")
    );
    assert!(
        remote::DefaultsAnswer::read("<html>")
            .unwrap_err()
            .contains("web page")
    );
}

#[test]
fn unreachable_rule_is_reported() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "home/.config/opencode/opencode.json",
        r#"{"permission": {"bash": {"git log *": "allow", "git *": "ask", "rm *": "deny", "r*": "allow", "*": "ask"}, "edit": "allow"},
            "agent": {"x": {"permission": {"my_tool": "ask", "my_*": "allow", "*": "deny"}}}}"#,
    );
    let reports: Vec<String> = reports(&fixture.load())
        .into_iter()
        .map(|line| line.split_once("json:").unwrap().1.to_owned())
        .collect();
    assert_eq!(
        reports,
        [
            "1:26: permission.bash.git log *: this rule never decides: the later rule \"git *\" matches everything it matches; move it after that one",
            "2:44: agent.x.permission.my_tool: this rule never decides: the later rule \"my_*\" matches everything it matches; move it after that one",
            "1:86: permission.bash.r*: bash \"r*\": allow does not lift \"rm *\": deny, which is narrower",
            "1:86: permission.bash.r*: bash \"r*\": allow also matches every longer word that begins with it; \"r *\" matches only the word",
        ]
    );
}

/// A rule that never decides within its own file is reported once, whatever the file is; two on one
/// line are two.
#[test]
fn unreachable_rule_is_reported_once() {
    let fixture = ConfigFixture::new();
    let head = "---\ndescription: x\npermission:\n  bash:\n    git log *: allow\n    git *: ask\n    make x: ask\n---\nx";
    fixture.write("work/repo/.opencode/agent/x.md", head);
    let of_agent = r#"{"permission": {"bash": {"cargo test *": "ask", "cargo *": "deny", "make x": "ask"}}, "agent": {"x": {"permission": {"bash": {"make *": "deny"}}}}}"#;
    fixture.write("work/repo/.opencode/opencode.json", of_agent);
    fixture.write(
        "work/repo/sub/.opencode/opencode.json",
        r#"{"permission": {"bash": {"make *": "deny"}}, "agent": {"x": {"permission": {"bash": {"make *": "deny"}}}}}"#,
    );
    let loaded = fixture.load();
    let never = loaded
        .problems
        .iter()
        .filter(|problem| problem.code == ProblemCode::UnreachableRule);
    let reports: Vec<String> = never
        .map(|problem| format!("{} {}", problem.location, problem.key))
        .collect();
    assert_eq!(
        reports,
        [
            ".opencode/opencode.json:1:26 permission.bash.cargo test *",
            ".opencode/agent/x.md:5:5 permission.bash.git log *",
            ".opencode/opencode.json:1:78 permission.bash.make x",
        ]
    );
}

#[test]
fn invisible_characters_are_removed_from_project_agents() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "work/repo/.opencode/agent/x.md",
        "---\ndescription: x\n---\nBe\u{e0041}\u{200b} kind.",
    );
    let loaded = fixture.load();
    assert_eq!(
        loaded.settings.agents[0].prompt.as_deref(),
        Some("Be kind.")
    );
    assert_eq!(
        reports(&loaded),
        ["warning: .opencode/agent/x.md: 2 invisible characters were removed from this file"]
    );
}

#[test]
fn project_settings_can_be_disabled() {
    let mut fixture = ConfigFixture::new();
    fixture.write("work/repo/opencode.json", r#"{"model": "a/b"}"#);
    fixture.write(
        "work/repo/.opencode/agent/x.md",
        "---\ndescription: x\n---\nx",
    );
    fixture.var("OPENCODE_DISABLE_PROJECT_CONFIG", "1");
    let loaded = fixture.load();
    assert!(loaded.settings.model.is_none() && loaded.settings.agents.is_empty());
}

#[test]
fn lists_replace_except_two() {
    let fixture = ConfigFixture::new();
    fixture.write(
        "home/.config/opencode/opencode.json",
        r#"{"instructions": ["a.md", "b.md"], "plugin": ["x@1", "y"], "disabled_providers": ["p", "q"],
            "permission": {"*": "ask", "bash": {"git *": "allow"}}, "agent": {"build": {"options": {"a": 1}, "temperature": 0.5}}}"#,
    );
    fixture.write(
        "work/repo/opencode.json",
        r#"{"instructions": ["b.md", "c.md"], "plugin": ["x@2"], "disabled_providers": ["r"],
            "permission": {"bash": {"rm *": "deny"}, "*": "deny"}, "agent": {"build": {"options": {"b": 2}}}}"#,
    );
    let loaded = fixture.load();
    let instructions: Vec<&str> = loaded
        .settings
        .instructions
        .iter()
        .map(|entry| entry.text.as_str())
        .collect();
    assert_eq!(instructions, ["a.md", "b.md", "c.md"]);
    assert_eq!(
        loaded.tree().get("plugin").unwrap().to_json(),
        serde_json::json!(["y", "x@2"])
    );
    assert_eq!(
        loaded.settings.general.disabled_providers,
        ["r", "p", "q"],
        "a project adds to the user's"
    );
    let build = &loaded.settings.agents[0];
    assert_eq!(
        serde_json::Value::Object(build.options.clone()),
        serde_json::json!({"a": 1, "b": 2})
    );
    assert_eq!(build.temperature, Some(0.5));
    let rules: Vec<String> = loaded
        .settings
        .permission
        .iter()
        .map(|rule| {
            format!(
                "{} {} {:?} {}",
                rule.permission, rule.pattern, rule.action, rule.source
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            "* * Deny opencode.json:2",
            "bash git * Allow ~/.config/opencode/opencode.json:2",
            "bash rm * Deny opencode.json:2"
        ]
    );
}
