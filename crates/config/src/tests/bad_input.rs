//! Tests of bad input: a mistake in a settings file is reported and affects no other setting.

use super::*;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn bad_input_is_reported_and_affects_only_itself() {
    // (name, the text of opencode.json, the expected report). The good key in the same file still
    // applies.
    let good = r#""small_model": "p/small""#;
    let table: Vec<(&str, String, &str)> = vec![
        (
            "syntax error",
            "{\"model\": \"a/b\",\n  \"x\" 1}".into(),
            "error: opencode.json:2:7: this is not valid JSON: expected colon",
        ),
        (
            "wrong type",
            format!("{{{good},\n  \"snapshot\": \"yes\"}}"),
            "error: opencode.json:2:15: snapshot: expected true or false, found \"yes\"",
        ),
        (
            "quoted switch",
            format!("{{{good},\n  \"snapshot\": \"true\"}}"),
            "found \"true\"; write true without quotes",
        ),
        (
            "wrong word",
            format!("{{{good}, \"agent\": {{\"a\": {{\"mode\": \"primry\"}}}}}}"),
            "agent.a.mode: expected one of primary, subagent, all, found \"primry\"; did you mean \"primary\"?",
        ),
        (
            "wrong action",
            format!("{{{good}, \"permission\": {{\"bash\": \"alow\"}}}}"),
            "permission.bash: expected one of allow, ask, deny or an object, found \"alow\"; did you mean \"allow\"?",
        ),
        (
            "wrong action in a nested rule",
            format!("{{{good}, \"permission\": {{\"bash\": {{\"x\": \"no\"}}}}}}"),
            "permission.bash.x: expected one of allow, ask, deny, found \"no\"",
        ),
        (
            "unknown key",
            format!("{{{good},\n \"permisson\": \"ask\"}}"),
            "warning: opencode.json:2:2: permisson: there is no such key; it is ignored; did you mean \"permission\"?",
        ),
        (
            "unknown nested key",
            format!("{{{good}, \"compaction\": {{\"autom\": true}}}}"),
            "compaction.autom: there is no such key; it is ignored; did you mean \"auto\"?",
        ),
        (
            "hook of another program",
            format!("{{{good}, \"hooks\": {{\"tool.after\": [{{\"run\": \"./x\"}}]}}}}"),
            "hooks.tool.after: there is no such key; it is ignored; a hook is written as \"hook\": {\"NAME\": {\"on\": \"tool.after\", \"command\": [\"PROGRAM\"]}}",
        ),
        (
            "hook of Claude Code",
            format!("{{{good}, \"hooks\": {{\"PreToolUse\": []}}}}"),
            "\"on\": \"tool.before\"",
        ),
        (
            "misspelt option",
            format!("{{{good}, \"agent\": {{\"a\": {{\"temprature\": 1}}}}}}"),
            "agent.a.temprature: there is no such key; it is ignored; did you mean \"temperature\"?",
        ),
        (
            "unknown encoding",
            format!("{{{good}, \"file_encoding\": \"gkb\"}}"),
            "file_encoding: there is no encoding \"gkb\"; use a name of the Encoding Standard",
        ),
        (
            "negative number",
            format!("{{{good}, \"subagent_depth\": -1}}"),
            "subagent_depth: expected 0 to 16, found -1",
        ),
        (
            "zero steps",
            format!("{{{good}, \"agent\": {{\"a\": {{\"steps\": 0}}}}}}"),
            "agent.a.steps: expected at least 1, found 0",
        ),
        (
            "wrong colour",
            format!("{{{good}, \"agent\": {{\"a\": {{\"color\": \"#12\"}}}}}}"),
            "agent.a.color: expected #RRGGBB or the name of a colour",
        ),
        (
            "model without provider",
            format!("{{{good}, \"model\": \"gpt-5\"}}"),
            "model: expected provider/model, such as \"openai/gpt-5\", found \"gpt-5\"",
        ),
        (
            "missing variable",
            format!("{{{good}, \"username\": \"{{env:NOPE_X}}\"}}"),
            "username: the environment variable NOPE_X is not set; it counts as empty",
        ),
        (
            "missing file",
            format!("{{{good}, \"username\": \"{{file:./nope.txt}}\"}}"),
            "username: {file:./nope.txt}: there is no file",
        ),
        (
            "file that includes itself",
            format!("{{{good}, \"username\": \"{{file:./opencode.json}}\"}}"),
            "username: {file:./opencode.json} includes itself: opencode.json -> opencode.json",
        ),
        (
            "duplicate key",
            format!("{{{good}, \"permission\": {{\"bash\": \"deny\", \"bash\": \"allow\"}}}}"),
            "permission.bash: this key is already set in line 1; keep one",
        ),
        (
            "rules of a later format",
            format!("{{{good}, \"permissions\": []}}"),
            "permissions: rules as a list belong to a later format",
        ),
        (
            "mcp without command",
            format!("{{{good}, \"mcp\": {{\"x\": {{\"type\": \"local\"}}}}}}"),
            "mcp.x: a local server needs a command",
        ),
        (
            "mcp with an unsupported scheme",
            format!("{{{good}, \"mcp\": {{\"x\": {{\"url\": \"ftp://x\"}}}}}}"),
            "mcp.x.url: a server cannot be reached over ftp:",
        ),
        (
            "mcp with a token over http",
            format!(
                "{{{good}, \"mcp\": {{\"x\": {{\"url\": \"http://m.example\", \"headers\": {{\"Authorization\": \"Bearer a\"}}}}}}}}"
            ),
            "mcp.x.url: the header Authorization would be sent unencrypted to a public host; use https",
        ),
        (
            "command without template",
            format!("{{{good}, \"command\": {{\"x\": {{}}}}}}"),
            "command.x: a command needs a template",
        ),
        (
            "not an object",
            "[]".into(),
            "error: opencode.json:1:1: expected an object, found a list",
        ),
        (
            "project that declares itself trusted",
            format!("{{{good}, \"trust\": \"all\"}}"),
            "trust: ignored: a project cannot declare itself trusted",
        ),
        (
            "deprecated key",
            format!("{{{good}, \"autoshare\": true}}"),
            "deprecated: opencode.json:1:28: autoshare: \"autoshare\" is an old spelling; it still works; write \"share\"",
        ),
        (
            "plugin that is not installed",
            format!("{{{good}, \"plugin\": [\"x\"]}}"),
            "warning: opencode.json:1:39: plugin: the plugin x is not installed, so it is not loaded; `adjutant extensions install` fetches it",
        ),
    ];
    for (name, text, expected) in table {
        let mut fixture = ConfigFixture::new();
        // Projects are trusted here: trust has its own tests.
        fixture.var("ADJUTANT_TRUST", "all");
        fixture.write("work/repo/opencode.json", &text);
        fixture.write("work/repo/adjutant.json", r#"{"default_agent": "plan"}"#);
        let loaded = fixture.load();
        let reports = reports(&loaded);
        assert!(
            reports.iter().any(|line| line.contains(expected)),
            "{name}: {expected}\n{reports:#?}"
        );
        assert_eq!(
            loaded.settings.default_agent.as_deref(),
            Some("plan"),
            "{name}"
        );
        let whole = matches!(name, "syntax error" | "not an object");
        assert_eq!(loaded.settings.small_model.is_some(), !whole, "{name}");
    }
}

/// Tries numbers out of range and lists with `null` for every key.
#[test]
fn bad_number_or_list_affects_only_its_key() {
    // Valid for no key that expects a whole number.
    const INVALID: [&str; 8] = [
        "-1",
        "0.5",
        "-0.5",
        "1e20",
        "-1e19",
        "1e300",
        "1e400",
        "18446744073709551616",
    ];
    // Valid for some keys.
    const EXTREME: [&str; 5] = ["4294967296", "18446744073709551615", "1e16", "1e19", "0"];
    // Keys with lists whose items are not checked.
    const UNCHECKED_LISTS: [&str; 2] = ["experimental.policies", "provider.n.models.n.cost.tiers"];
    let mut tried = (0, 0);
    for row in declare::keys::rows() {
        let key = row.key.replace("<name>", "n");
        let whole = row.kind.contains("whole number");
        let takes_number = row.kind.contains("number");
        let takes_list = row.kind.contains("list");
        let texts: Vec<&str> = if takes_number {
            INVALID.into_iter().chain(EXTREME).collect()
        } else if takes_list {
            vec!["[null]", "[null, \"x\"]", "[\"x\", null]"]
        } else {
            continue;
        };
        let must_be_reported = |text: &str| {
            if takes_number {
                text == "1e400" || whole && INVALID.contains(&text)
            } else {
                !UNCHECKED_LISTS.contains(&key.as_str())
            }
        };
        tried = (
            tried.0 + usize::from(takes_number),
            tried.1 + usize::from(!takes_number),
        );
        for text in texts {
            let keys: Vec<&str> = key.split('.').collect();
            let value = keys[1..].iter().rev().fold(text.to_owned(), |inner, key| {
                format!("{{\"{key}\": {inner}}}")
            });
            let file = format!("{{\"small_model\": \"p/small\", \"{}\": {value}}}", keys[0]);
            let origin = ConfigOrigin {
                name: "x".into(),
                path: None,
                layer: Layer::Global,
                project: false,
            };
            let mut problems = Vec::new();
            let mut node =
                jsonc::parse(&file, &std::sync::Arc::new(origin), &mut problems).unwrap();
            declare::ConfigSchema::settings().check(&mut node, "", &mut problems);
            let read = decode::decode::<file::ConfigFile>(&node);
            assert!(
                read.is_ok_and(|read| read.small_model.is_some()),
                "{file}: {node:?}"
            );
            let is_expected = |problem: &Problem| {
                problem.code == ProblemCode::WrongValue
                    && (problem.key == key || problem.key.starts_with(&format!("{key}.")))
            };
            assert!(
                problems.iter().any(is_expected) || !must_be_reported(text),
                "{file}: {problems:?}"
            );
        }
    }
    assert!(tried.0 > 30 && tried.1 > 30, "{tried:?}");
}

/// Tries invalid values in an untrusted project and in the user's own file.
#[test]
fn invalid_value_affects_no_other_setting() {
    let own = r#"{"agent": {"guard": {"permission": {"bash": "deny"}}}, "approvals": "ask",
        "hook": {"h": {"on": "prompt", "command": ["true"]}}, "disabled_providers": ["p"]}"#;
    let table = [
        (
            r#""agent": {"build": {"steps": 4294967296, "temperature": 1}}"#,
            "agent.build.steps: expected at most 4294967295, found 4294967296",
        ),
        (
            r#""agent": {"build": {"steps": 1e300}}"#,
            "agent.build.steps: expected at most 4294967295, found 1e+300",
        ),
        (
            r#""instructions": [null, "a.md"]"#,
            "instructions.0: expected a string, found null",
        ),
        (
            r#""disabled_providers": [null]"#,
            "disabled_providers.0: expected a string, found null",
        ),
        (
            r#""provider": {"n": {"options": {"timeout": 1e20}}}"#,
            "provider.n.options.timeout: expected at most 18446744073709551615, found 1e+20",
        ),
        (
            r#""experimental": {"mcp_timeout": -0.5}"#,
            "experimental.mcp_timeout: expected a whole number, found a number",
        ),
        (
            r#""tool_output": {"max_lines": 1e400}"#,
            "tool_output.max_lines: expected a whole number from 1, found \"1e400\"",
        ),
    ];
    for (text, expected) in table {
        for file in [
            "work/repo/opencode.json",
            "home/.config/opencode/config.json",
        ] {
            let fixture = ConfigFixture::new();
            fixture.write("home/.config/adjutant/adjutant.json", own);
            fixture.write(
                "managed/adjutant.json",
                r#"{"agent": {"plan": {"permission": {"webfetch": "deny"}}}}"#,
            );
            fixture.write(file, format!("{{\"small_model\": \"p/small\", {text}}}"));
            let loaded = fixture.load();
            let reports = reports(&loaded);
            let errors: Vec<&String> = reports
                .iter()
                .filter(|line| line.starts_with("error: "))
                .collect();
            assert!(
                errors.len() == 1 && errors[0].ends_with(expected),
                "{file} {text}: {reports:#?}"
            );
            let settings = &loaded.settings;
            let rules = |name: &str| {
                settings
                    .agents
                    .iter()
                    .find(|agent| agent.name == name)
                    .map(|agent| agent.rules.len())
            };
            assert_eq!(
                (rules("guard"), rules("plan")),
                (Some(1), Some(1)),
                "{file} {text}"
            );
            assert_eq!(
                (settings.hooks.len(), settings.general.approvals),
                (1, base::approvals::Approvals::Ask),
                "{file} {text}"
            );
            assert_eq!(settings.general.disabled_providers, ["p"], "{file} {text}");
            assert!(
                settings.small_model.is_some(),
                "{file} {text}: the rest of the file applies"
            );
            assert_eq!(loaded.trust.items, [], "{file} {text}");
        }
    }
}

#[test]
fn invalid_number_in_agent_file_affects_only_its_key() {
    for (number, found) in [
        ("4294967296", "4294967296"),
        ("1e300", "1e+300"),
        (".inf", "\".inf\""),
        ("1e400", "\".inf\""),
        (".nan", "\".nan\""),
    ] {
        let fixture = ConfigFixture::new();
        let text = format!(
            "---\ndescription: x\nsteps: {number}\npermission: {{bash: deny}}\n---\nBe kind."
        );
        fixture.write("work/repo/.opencode/agent/x.md", text);
        let loaded = fixture.load();
        let reports = reports(&loaded);
        assert!(
            reports.len() == 1
                && reports[0].contains(":3:8: steps: expected")
                && reports[0].ends_with(&format!("found {found}")),
            "{number}: {reports:?}"
        );
        let agent = &loaded.settings.agents[0];
        assert_eq!(
            (agent.prompt.as_deref(), agent.steps, agent.rules.len()),
            (Some("Be kind."), None, 1),
            "{number}"
        );
    }
}

#[test]
fn scripts_need_trust_and_are_reported_if_not_loaded() {
    let mut fixture = ConfigFixture::new();
    fixture
        .write("work/repo/.opencode/tool/a.ts", "")
        .write("work/repo/.opencode/tools/b.js", "");
    fixture
        .write("work/repo/.opencode/tool/notes.md", "")
        .write("work/repo/.opencode/tool/a.d.ts", "");
    fixture.write(
        "work/repo/.opencode/plugin/p.js",
        "export const P = () => ({ \"tool.execute.before\": f, event: g })",
    );
    fixture
        .write("work/repo/node_modules/pkg/package.json", "{}")
        .write("work/repo/opencode.json", r#"{"plugin": ["pkg@1"]}"#);
    fixture.write("home/.config/opencode/plugins/own.mjs", "");
    let names = |loaded: &LoadedSettings| -> Vec<String> {
        loaded
            .settings
            .scripts
            .iter()
            .map(|script| script.name.clone())
            .collect()
    };
    let loaded = fixture.load();
    assert_eq!(names(&loaded), ["~/.config/opencode/plugins/own.mjs"]);
    let items: Vec<String> = loaded.trust.items.iter().map(ToString::to_string).collect();
    assert_eq!(
        items,
        [
            "custom tool or plugin .opencode/tool/a.ts: is loaded, and gives the model tools (.opencode/tool/a.ts)",
            "custom tool or plugin .opencode/tools/b.js: is loaded, and gives the model tools (.opencode/tools/b.js)",
            "custom tool or plugin .opencode/plugin/p.js: is loaded, and hooks into event, tool.execute.before (.opencode/plugin/p.js)",
            "custom tool or plugin pkg@1: is loaded, and may hook into everything (opencode.json:1)",
        ]
    );
    fixture.write("work/repo/.opencode/tool/a.ts", "other");
    assert_ne!(
        fixture.load().trust.digest,
        loaded.trust.digest,
        "the digest covers the contents of scripts"
    );
    fixture.var("ADJUTANT_TRUST", "all");
    assert_eq!(names(&fixture.load()).len(), 5);
    fixture.var("OPENCODE_PURE", "1");
    let loaded = fixture.load();
    // The list is the same as without the variable, so that an answer to it stays valid.
    assert_eq!((names(&loaded).len(), loaded.trust.items.len()), (0, 4));
    let reports = reports(&loaded);
    assert!(
        reports
            .iter()
            .any(|line| line.contains("p.js: not loaded: ADJUTANT_PURE")),
        "{reports:#?}"
    );
}

#[test]
fn package_in_project_needs_trust_even_if_user_names_it() {
    let mut fixture = ConfigFixture::new();
    fixture.write(
        "home/.config/opencode/opencode.json",
        r#"{"plugin": ["mine", "theirs"]}"#,
    );
    fixture.write("home/.config/opencode/node_modules/mine/package.json", "{}");
    fixture.write("work/repo/.opencode/node_modules/theirs/package.json", "{}");
    fixture.write("work/repo/.opencode/node_modules/mine/package.json", "{}");
    fixture
        .write("work/repo/node_modules/upward/package.json", "{}")
        .write("work/repo/x.js", "");
    fixture.var(
        "ADJUTANT_CONFIG_CONTENT",
        r#"{"plugin": ["upward", "./x.js"]}"#,
    );
    let seen = |loaded: &LoadedSettings| -> Vec<(String, bool)> {
        loaded
            .settings
            .scripts
            .iter()
            .map(|script| (script.name.clone(), script.project))
            .collect()
    };
    let loaded = fixture.load();
    assert_eq!(seen(&loaded), [("mine".to_owned(), false)]);
    assert_eq!(loaded.trust.items.len(), 3, "{:?}", loaded.trust.items);
    fixture.trust();
    assert_eq!(seen(&fixture.load()).len(), 4);
}

#[test]
fn unreadable_files_are_reported() {
    let fixture = ConfigFixture::new();
    fixture.write("work/repo/opencode.json", vec![b' '; 10 << 20]);
    fixture.write("work/repo/opencode.jsonc", b"{\"username\": \n\"\xff\"}");
    std::fs::create_dir_all(fixture.path("work/repo/adjutant.json")).unwrap();
    fixture.write("home/secret.json", "{}");
    std::os::unix::fs::symlink(
        fixture.path("home/secret.json"),
        fixture.path("work/repo/adjutant.jsonc"),
    )
    .unwrap();
    std::os::unix::fs::symlink("loop.json", fixture.path("work/repo/sub/loop.json")).unwrap();
    std::os::unix::fs::symlink("loop.json", fixture.path("work/repo/sub/opencode.json")).unwrap();
    std::os::unix::fs::symlink("gone.json", fixture.path("work/repo/sub/opencode.jsonc")).unwrap();
    let agents = fixture.path("work/repo/.opencode/agents");
    std::fs::create_dir_all(agents.join("deep")).unwrap();
    std::os::unix::fs::symlink("..", agents.join("deep/round")).unwrap();
    std::os::unix::fs::symlink(fixture.path("home"), agents.join("home")).unwrap();
    fixture.write(
        "work/repo/.opencode/agents/deep/good.md",
        "---\ndescription: good\n---\nGood.",
    );
    let loaded = fixture.load();
    let reports = reports(&loaded);
    for expected in [
        "error: opencode.json: this file has 10 MiB; at most 1 MiB is read",
        "error: opencode.jsonc:2:2: this file is not UTF-8",
        "error: adjutant.json: expected a file, found a directory",
        "error: adjutant.jsonc: this link leads out of the project",
        "error: sub/opencode.json: this file cannot be read: its links lead in a circle",
        "error: sub/opencode.jsonc: this file cannot be read: it is a link to something that does not exist",
        "warning: .opencode/agents/deep/round: this link leads in a circle",
        "error: .opencode/agents/home: this link leads out of the project",
    ] {
        assert!(
            reports.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{reports:#?}"
        );
    }
    assert_eq!(
        loaded
            .settings
            .agents
            .iter()
            .map(|agent| agent.name.as_str())
            .collect::<Vec<_>>(),
        ["deep/good"]
    );
}

#[test]
fn pipe_is_not_opened() {
    let fixture = ConfigFixture::new();
    let pipe = fixture.path("work/repo/opencode.json");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let loaded = fixture.load();
    assert!(
        reports(&loaded)[0].starts_with("error: opencode.json: expected a file, found a pipe"),
        "{:?}",
        reports(&loaded)
    );
}

#[test]
fn bad_agent_files_are_reported() {
    let fixture = ConfigFixture::new();
    for (name, text) in [
        ("plain", "You are plain."),
        ("open", "---\ndescription: x\nYou are open."),
        ("broken", "---\ndescription: [x\nmode: all\n---\nx"),
        ("words", "---\njust words\n---\nx"),
        (
            "wrong",
            "---\ndescription: x\nmode: primry\ntemperature: hot\n---\nWrong.",
        ),
        ("colon", "---\ndescription: Use when: always\n---\nColon."),
        ("twice", "---\ndescription: one\n---\nOne."),
    ] {
        fixture.write(&format!("work/repo/.opencode/agent/{name}.md"), text);
    }
    fixture.write(
        "work/repo/.opencode/agents/twice.md",
        "---\ndescription: two\n---\nTwo.",
    );
    let loaded = fixture.load();
    let reports = reports(&loaded);
    for expected in [
        "warning: .opencode/agent/plain.md: this agent has no front matter",
        "error: .opencode/agent/open.md:1:1: the front matter begins with --- and never ends",
        "error: .opencode/agent/broken.md:",
        "error: .opencode/agent/words.md:2:1: the front matter must be keys and values",
        "error: .opencode/agent/wrong.md:3:7: mode: expected one of primary, subagent, all, found \"primry\"; did you mean \"primary\"?",
        "error: .opencode/agent/wrong.md:4:14: temperature: expected a number, found \"hot\"",
        "warning: .opencode/agents/twice.md: agent.twice: there are two agents named \"twice\" here; .opencode/agent/twice.md is the other",
    ] {
        assert!(
            reports.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{reports:#?}"
        );
    }
    let agents: Vec<(&str, Option<&str>)> = loaded
        .settings
        .agents
        .iter()
        .map(|agent| (agent.name.as_str(), agent.prompt.as_deref()))
        .collect();
    let expected = [
        ("colon", Some("Colon.")),
        ("plain", Some("You are plain.")),
        ("twice", Some("Two.")),
        ("wrong", Some("Wrong.")),
    ];
    assert_eq!(agents, expected);
    assert_eq!(
        loaded.settings.agents[0].description.as_deref(),
        Some("Use when: always")
    );
}

#[test]
fn variables_and_files_in_values_are_substituted() {
    let mut fixture = ConfigFixture::new();
    fixture.var("KEY", "va\"lue");
    fixture.var("PORT_MS", "1234");
    fixture.var("ADJUTANT_TRUST", "all");
    fixture.write(
        "work/repo/notes/a.txt",
        " one \"quoted\" \n{file:./b.txt}\n",
    );
    fixture.write("work/repo/notes/b.txt", "two {env:KEY}");
    fixture.write(
        "work/repo/opencode.json",
        r#"{"provider": {"p": {"options": {"apiKey": "{env:KEY}", "timeout": {env:PORT_MS}}}}, "agent": {"a": {"prompt": "<{file:notes/a.txt}>"}}}"#,
    );
    let loaded = fixture.load();
    assert_eq!(reports(&loaded), Vec::<String>::new());
    assert_eq!(
        loaded.settings.providers[0]
            .api_key
            .as_ref()
            .map(settings::Secret::expose),
        Some("va\"lue")
    );
    assert_eq!(
        loaded.settings.providers[0].key_variable.as_deref(),
        Some("KEY")
    );
    assert_eq!(
        loaded.settings.providers[0]
            .timeouts
            .total
            .unwrap()
            .as_millis(),
        1234
    );
    assert_eq!(
        loaded.settings.agents[0].prompt.as_deref(),
        Some("<one \"quoted\" \ntwo {env:KEY}>")
    );
}

#[test]
fn variables_and_files_in_keys_are_substituted() {
    let mut fixture = ConfigFixture::new();
    fixture.var("WORK", "/srv/work");
    fixture.var("NAME", "reviewer");
    fixture.write("home/.config/adjutant/name.txt", "reviewer\n");
    let text = r#"{"permission": {"external_directory": {"{env:WORK}/*": "allow"}},
        "agent": {"{env:NAME}": {"description": "one"},
            "{file:name.txt}": {"description": "two"}, "other": {"description": "{env:NAME}"}}}"#;
    fixture.write("home/.config/adjutant/adjutant.json", text);
    let loaded = fixture.load();
    let rule = loaded.settings.permission.iter().next().unwrap();
    assert_eq!(
        (rule.pattern.as_str(), rule.action),
        ("/srv/work/*", Action::Allow)
    );
    let agents: Vec<(&str, Option<&str>)> = loaded
        .settings
        .agents
        .iter()
        .map(|agent| (agent.name.as_str(), agent.description.as_deref()))
        .collect();
    assert_eq!(
        agents,
        [("reviewer", Some("one")), ("other", Some("reviewer"))],
        "the first definition applies"
    );
    assert_eq!(
        reports(&loaded),
        [
            "error: ~/.config/adjutant/adjutant.json:3:13: agent.reviewer: this key is already set in line 2; keep one of the two; until then the first one applies"
        ]
    );

    // A project's substituted keys are removed with everything below them.
    std::fs::remove_file(fixture.path("home/.config/adjutant/adjutant.json")).unwrap();
    fixture.write(
        "work/repo/opencode.json",
        r#"{"agent": {"{env:NAME}": {"description": "one"}, "other": {"description": "two"}}}"#,
    );
    let names = |loaded: &LoadedSettings| -> Vec<String> {
        loaded
            .settings
            .agents
            .iter()
            .map(|agent| agent.name.clone())
            .collect()
    };
    let loaded = fixture.load();
    assert_eq!(names(&loaded), ["other"]);
    let items: Vec<String> = loaded.trust.items.iter().map(ToString::to_string).collect();
    assert_eq!(
        items,
        ["value from outside the project agent.{env:NAME}: {env:NAME} (opencode.json:1)"]
    );
    fixture.trust();
    assert_eq!(names(&fixture.load()), ["reviewer", "other"]);
}

#[test]
fn unquoted_variables_are_substituted() {
    let mut fixture = ConfigFixture::new();
    for (name, value) in [("HALF", "0.5"), ("ON", "true"), ("WORD", "x")] {
        fixture.var(name, value);
    }
    let text = r#"{"agent": {"a": {"temperature": {env:HALF}, "hidden": {env:ON}, "steps": {env:WORD}, "description": "d"}}}"#;
    let seen = |loaded: &LoadedSettings| {
        let agent = &loaded.settings.agents[0];
        (
            agent.temperature,
            agent.hidden,
            agent.steps,
            agent.description.clone(),
        )
    };
    fixture.write("home/.config/adjutant/adjutant.json", text);
    assert_eq!(
        seen(&fixture.load()),
        (Some(0.5), Some(true), None, Some("d".into()))
    );
    std::fs::remove_file(fixture.path("home/.config/adjutant/adjutant.json")).unwrap();
    fixture.write("work/repo/opencode.json", text);
    let loaded = fixture.load();
    assert_eq!(seen(&loaded), (None, None, None, Some("d".into())));
    assert_eq!(loaded.trust.items.len(), 3, "{}", loaded.trust.list());
    fixture.trust();
    assert_eq!(
        seen(&fixture.load()),
        (Some(0.5), Some(true), None, Some("d".into()))
    );
}

/// Relative paths in `ADJUTANT_CONFIG_CONTENT` name files of the project. These may not be links to
/// files outside or to secrets, and may not include such files.
#[test]
fn file_included_by_variable_does_not_lead_out_of_project() {
    let mut fixture = ConfigFixture::new();
    fixture
        .write("home/key", "secret")
        .write("work/repo/sub/note.txt", "note");
    fixture
        .write("work/repo/sub/.env", "KEY=1")
        .write("work/repo/sub/out.txt", "[{file:~/key}]");
    fixture
        .write("work/repo/sub/in.txt", "[{file:.env}{file:note.txt}]")
        .write("home/own.txt", "[{file:~/key}]");
    for (to, link) in [
        (fixture.path("home/key"), "link.txt"),
        (PathBuf::from(".env"), "env.txt"),
    ] {
        std::os::unix::fs::symlink(to, fixture.path("work/repo/sub").join(link)).unwrap();
    }
    let home = fixture.path("home/key").display().to_string();
    let table = [
        ("note.txt", Some("note"), ""),
        (
            "link.txt",
            None,
            "{file:link.txt}: this leads out of the project, to ",
        ),
        ("env.txt", None, "{file:env.txt}: this leads to "),
        (
            "out.txt",
            Some("[]"),
            "{file:~/key}: this leads out of the project, to ",
        ),
        ("in.txt", Some("[note]"), "{file:.env}: this leads to "),
        // The user may name these files.
        (".env", Some("KEY=1"), ""),
        ("~/key", Some("secret"), ""),
        ("~/own.txt", Some("[secret]"), ""),
        (home.as_str(), Some("secret"), ""),
    ];
    for (path, wanted, why) in table {
        fixture.var(
            "ADJUTANT_CONFIG_CONTENT",
            &format!(r#"{{"agent": {{"a": {{"prompt": "{{file:{path}}}"}}}}}}"#),
        );
        let loaded = fixture.load();
        assert_eq!(
            loaded.settings.agents[0].prompt.as_deref(),
            wanted,
            "{path}"
        );
        let reports = reports(&loaded);
        assert_eq!(
            reports.len(),
            usize::from(!why.is_empty()),
            "{path}: {reports:?}"
        );
        assert!(
            reports
                .iter()
                .all(|line| line.contains(&format!("agent.a.prompt: {why}"))),
            "{path}: {reports:?}"
        );
    }
}
