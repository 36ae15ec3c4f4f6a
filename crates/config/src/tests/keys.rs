//! Tests of every key that a project's file may have, and of its effect in an untrusted project.

use serde_json::{Value as Json, json};

use super::*;
use crate::declare;

/// The effect of a key in an untrusted project's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyExample {
    Holds,
    /// It applies once the user has agreed.
    Withheld,
    Ignored,
    /// Depends on its content: its parts have their own rows, or it is an old spelling.
    Parts,
}

use KeyExample::{Holds, Ignored, Parts, Withheld};

/// Returns each key with a value and its effect. `<name>` is `build` for agents, `n` otherwise.
#[expect(clippy::too_many_lines, reason = "a table")]
fn table() -> Vec<(&'static str, Json, KeyExample)> {
    let text = || json!("x");
    let laxer = || json!({"doom_loop": "allow"});
    let mut table = vec![
        ("$schema", json!("https://opencode.ai/config.json"), Holds),
        ("model", json!("a/b"), Holds),
        ("small_model", json!("a/b"), Holds),
        ("default_agent", json!("build"), Withheld),
        ("agent", json!({"new": {"mode": "primary"}}), Withheld),
        ("agent.<name>.name", json!("PIan"), Withheld),
        ("agent.<name>.description", text(), Holds),
        ("agent.<name>.mode", json!("subagent"), Holds),
        ("agent.<name>.hidden", json!(true), Holds),
        ("agent.<name>.disable", json!(true), Holds),
        ("agent.<name>.model", json!("a/b"), Holds),
        ("agent.<name>.variant", text(), Holds),
        ("agent.<name>.prompt", text(), Holds),
        ("agent.<name>.temperature", json!(0.5), Holds),
        ("agent.<name>.top_p", json!(0.5), Holds),
        ("agent.<name>.color", json!("#ff0000"), Holds),
        ("agent.<name>.steps", json!(3), Holds),
        ("agent.<name>.options", json!({"a": 1}), Holds),
        ("agent.<name>.permission", laxer(), Withheld),
        ("agent.<name>.maxSteps", json!(3), Parts),
        ("agent.<name>.tools", json!({"doom_loop": true}), Withheld),
        ("permission", json!("allow"), Withheld),
        ("permission.$examples", json!({}), Parts),
        ("permission.$examples.allow", json!(["bash ls"]), Parts),
        ("permission.$examples.ask", json!(["bash ls"]), Parts),
        ("permission.$examples.deny", json!(["bash ls"]), Parts),
        (
            "provider",
            json!({"n": {"options": {"region": "evil.example/"}}}),
            Withheld,
        ),
        ("provider.<name>.name", text(), Holds),
        ("provider.<name>.id", text(), Withheld),
        ("provider.<name>.npm", text(), Withheld),
        (
            "provider.<name>.api",
            json!("https://evil.example"),
            Withheld,
        ),
        ("provider.<name>.env", json!(["X"]), Withheld),
        (
            "provider.<name>.login",
            json!({"clientId": "x", "tokenUrl": "https://evil.example"}),
            Withheld,
        ),
        ("provider.<name>.login.clientId", Json::Null, Parts),
        ("provider.<name>.login.authorizeUrl", Json::Null, Parts),
        ("provider.<name>.login.tokenUrl", Json::Null, Parts),
        ("provider.<name>.login.deviceUrl", Json::Null, Parts),
        ("provider.<name>.login.scopes", Json::Null, Parts),
        ("provider.<name>.whitelist", json!(["m"]), Holds),
        ("provider.<name>.blacklist", json!(["m"]), Holds),
        (
            "provider.<name>.options",
            json!({"resourceName": "evil.example/"}),
            Withheld,
        ),
        ("provider.<name>.options.apiKey", text(), Withheld),
        (
            "provider.<name>.options.baseURL",
            json!("https://evil.example"),
            Withheld,
        ),
        (
            "provider.<name>.options.enterpriseUrl",
            json!("https://evil.example"),
            Withheld,
        ),
        ("provider.<name>.options.setCacheKey", json!(true), Holds),
        (
            "provider.<name>.options.headers",
            json!({"a": "b"}),
            Withheld,
        ),
        ("provider.<name>.options.timeout", json!(1000), Holds),
        ("provider.<name>.options.headerTimeout", json!(1000), Holds),
        ("provider.<name>.options.chunkTimeout", json!(1000), Holds),
        (
            "provider.<name>.models",
            json!({"m": {"headers": {"a": "b"}}}),
            Withheld,
        ),
        ("provider.<name>.models.<name>.id", text(), Holds),
        ("provider.<name>.models.<name>.name", text(), Holds),
        ("provider.<name>.models.<name>.family", text(), Holds),
        ("provider.<name>.models.<name>.release_date", text(), Holds),
        (
            "provider.<name>.models.<name>.attachment",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.reasoning",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.temperature",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.tool_call",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.interleaved",
            json!(true),
            Holds,
        ),
        ("provider.<name>.models.<name>.cost", json!({}), Parts),
        ("provider.<name>.models.<name>.cost.input", json!(1), Holds),
        ("provider.<name>.models.<name>.cost.output", json!(1), Holds),
        (
            "provider.<name>.models.<name>.cost.cache_read",
            json!(1),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.cost.cache_write",
            json!(1),
            Holds,
        ),
        ("provider.<name>.models.<name>.limit", json!({}), Parts),
        (
            "provider.<name>.models.<name>.limit.context",
            json!(1000),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.limit.input",
            json!(1000),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.limit.output",
            json!(1000),
            Holds,
        ),
        ("provider.<name>.models.<name>.modalities", json!({}), Parts),
        (
            "provider.<name>.models.<name>.modalities.input",
            json!(["text"]),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.modalities.output",
            json!(["text"]),
            Holds,
        ),
        ("provider.<name>.models.<name>.status", json!("beta"), Holds),
        (
            "provider.<name>.models.<name>.provider",
            json!({"npm": "x"}),
            Withheld,
        ),
        (
            "provider.<name>.models.<name>.provider.npm",
            text(),
            Withheld,
        ),
        (
            "provider.<name>.models.<name>.provider.api",
            text(),
            Withheld,
        ),
        (
            "provider.<name>.models.<name>.options",
            json!({"a": 1}),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.experimental",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.open_weights",
            json!(true),
            Holds,
        ),
        ("provider.<name>.models.<name>.knowledge", text(), Holds),
        ("provider.<name>.models.<name>.last_updated", text(), Holds),
        (
            "provider.<name>.models.<name>.structured_output",
            json!(true),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.cost.context_over_200k",
            json!({}),
            Holds,
        ),
        ("provider.<name>.models.<name>.cost.tiers", json!([]), Holds),
        (
            "provider.<name>.models.<name>.cost.reasoning",
            json!(1),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.cost.input_audio",
            json!(1),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.cost.output_audio",
            json!(1),
            Holds,
        ),
        (
            "provider.<name>.models.<name>.headers",
            json!({"a": "b"}),
            Withheld,
        ),
        (
            "provider.<name>.models.<name>.variants",
            json!({"high": {"a": 1}}),
            Holds,
        ),
        // In addition to the user's lists, which a project never lifts: see `trusting`.
        ("disabled_providers", json!(["a"]), Holds),
        ("enabled_providers", json!(["a"]), Holds),
        ("mcp", json!({"n": {"enabled": true}}), Withheld),
        ("mcp.<name>.enabled", json!(false), Holds),
        ("instructions", json!(["../x.md"]), Withheld),
        ("command", json!({}), Parts),
        // A shell insert is withheld when the command is used.
        ("command.<name>.template", text(), Holds),
        ("command.<name>.description", text(), Holds),
        ("command.<name>.agent", json!("build"), Withheld),
        ("command.<name>.model", json!("a/b"), Holds),
        ("command.<name>.variant", text(), Holds),
        ("command.<name>.subtask", json!(true), Holds),
        ("command.<name>.argument-hint", json!("[file]"), Holds),
        ("skills", json!({}), Parts),
        ("skills.paths", json!(["~/x"]), Withheld),
        ("skills.urls", json!(["https://evil.example"]), Withheld),
        ("references", json!({"n": "/etc"}), Withheld),
        ("references.<name>.path", json!("/etc"), Withheld),
        (
            "references.<name>.repository",
            json!("https://evil.example"),
            Withheld,
        ),
        ("references.<name>.branch", text(), Withheld),
        ("references.<name>.hidden", json!(true), Withheld),
        (
            "references.<name>.git",
            json!("https://evil.example"),
            Parts,
        ),
        ("references.<name>.description", text(), Withheld),
        // It has no effect.
        ("shell", json!("/bin/zsh"), Holds),
        ("tool_output", json!({}), Parts),
        ("tool_output.max_lines", json!(10), Holds),
        ("tool_output.max_bytes", json!(1000), Holds),
        ("attachment", json!({}), Parts),
        ("attachment.image", json!({}), Parts),
        ("attachment.image.auto_resize", json!(true), Holds),
        ("attachment.image.max_width", json!(10), Holds),
        ("attachment.image.max_height", json!(10), Holds),
        ("attachment.image.max_base64_bytes", json!(10), Holds),
        // Used only without a project: see `session::prune`.
        ("sessions", json!({}), Parts),
        ("sessions.keep_days", json!(1), Holds),
        ("store", json!({"url": "postgres://localhost/x"}), Ignored),
        ("store.url", json!("postgres://localhost/x"), Ignored),
        ("store.namespace", text(), Ignored),
        ("store.lease_seconds", json!(9), Ignored),
        ("store.away_mib", json!(9), Ignored),
        ("store.away_minutes", json!(9), Ignored),
        ("compaction", json!({}), Parts),
        ("compaction.auto", json!(true), Holds),
        ("compaction.prune", json!(true), Holds),
        ("compaction.tail_turns", json!(1), Holds),
        ("compaction.preserve_recent_tokens", json!(1), Holds),
        ("compaction.reserved", json!(1), Holds),
        ("budget", json!({"steps": 9}), Ignored),
        ("budget.steps", json!(9), Ignored),
        ("budget.cost", json!(9), Ignored),
        ("serve", json!({"grace": 9}), Ignored),
        ("serve.listen", json!("0.0.0.0:1"), Ignored),
        ("serve.roots", json!(["/"]), Ignored),
        ("serve.tokens", json!([{"name": "x"}]), Ignored),
        ("serve.token_file", text(), Ignored),
        ("serve.tls", json!({"key": "x"}), Ignored),
        ("serve.tls.certificate", text(), Ignored),
        ("serve.tls.key", text(), Ignored),
        ("serve.tls.clients", text(), Ignored),
        ("serve.proxy", json!({"user_header": "x"}), Ignored),
        ("serve.proxy.addresses", json!(["10.0.0.1"]), Ignored),
        ("serve.proxy.user_header", text(), Ignored),
        ("serve.origins", json!(["https://a.b"]), Ignored),
        ("serve.account_users", json!(["*"]), Ignored),
        ("serve.grace", json!(9), Ignored),
        ("serve.drain", json!(9), Ignored),
        ("serve.workspace", json!(["make"]), Ignored),
        ("serve.exec", json!(["env"]), Ignored),
        ("serve.limits", json!({"sessions": 9}), Ignored),
        ("serve.limits.connections", json!(9), Ignored),
        ("serve.limits.user_connections", json!(9), Ignored),
        ("serve.limits.user_sessions", json!(9), Ignored),
        ("serve.limits.sessions", json!(9), Ignored),
        ("serve.limits.user_turns", json!(9), Ignored),
        ("serve.limits.message_bytes", json!(2048), Ignored),
        ("file_encoding", json!("gbk"), Holds),
        ("snapshot", json!(false), Holds),
        ("subagent_depth", json!(2), Holds),
        ("steer", json!(true), Holds),
        ("trust", json!("all"), Ignored),
        ("sandbox", json!("off"), Withheld),
        ("sandbox.mode", json!("auto"), Withheld),
        ("sandbox.writable", json!(["/"]), Withheld),
        ("sandbox.network", json!(true), Withheld),
        ("approvals", json!("sandboxed"), Withheld),
        ("sandbox.unattended", json!(true), Withheld),
        ("sandbox.hide", json!(["~/x"]), Ignored),
        ("sandbox.show", json!(["aws"]), Ignored),
        ("environment", json!({"pass": ["X"]}), Ignored),
        ("environment.pass", json!(["X"]), Ignored),
        ("environment.drop", json!(["X"]), Ignored),
        ("webfetch", json!({"private": ["localhost"]}), Withheld),
        ("webfetch.private", json!(["localhost"]), Withheld),
        ("formatter", json!(true), Withheld),
        // An entry that disables one means nothing if the user has enabled none.
        ("formatter.<name>.disabled", json!(true), Ignored),
        (
            "hook",
            json!({"n": {"on": "prompt", "command": ["x"]}}),
            Withheld,
        ),
        ("hook.<name>.on", json!("prompt"), Withheld),
        ("hook.<name>.tool", text(), Withheld),
        ("hook.<name>.pattern", text(), Withheld),
        ("hook.<name>.format", json!("claude"), Withheld),
        ("hook.<name>.disabled", json!(true), Holds),
        ("hooks", json!({}), Parts),
        // The files it names need trust themselves.
        ("hooks.claude", json!(true), Holds),
        ("replace_tools", json!(["bash"]), Ignored),
        ("lsp", json!(true), Withheld),
        ("lsp.<name>.disabled", json!(true), Ignored),
        ("lsp.<name>.initialization", json!({}), Withheld),
        ("watcher", json!({}), Parts),
        ("watcher.ignore", json!(["x"]), Holds),
        ("logLevel", json!("DEBUG"), Holds),
        ("username", text(), Holds),
        ("experimental", json!({}), Parts),
        ("experimental.continue_loop_on_deny", json!(true), Holds),
        ("experimental.mcp_timeout", json!(1000), Holds),
        ("experimental.mcp_budget", json!(1000), Holds),
        ("experimental.primary_tools", json!(["x"]), Holds),
        ("experimental.batch_tool", json!(true), Holds),
        ("experimental.disable_paste_summary", json!(true), Holds),
        ("experimental.openTelemetry", json!(true), Holds),
        ("experimental.policies", json!([]), Holds),
        ("plugin", json!(["x"]), Holds),
        ("server", json!({}), Parts),
        ("server.port", json!(1), Holds),
        ("server.hostname", text(), Holds),
        ("server.mdns", json!(true), Holds),
        ("server.mdnsDomain", text(), Holds),
        ("server.cors", json!(["x"]), Holds),
        ("share", json!("auto"), Holds),
        ("autoupdate", json!(true), Holds),
        ("enterprise", json!({}), Parts),
        ("enterprise.url", text(), Holds),
        ("theme", text(), Holds),
        ("keybinds", json!({}), Holds),
        ("tui", json!({}), Holds),
        ("layout", text(), Holds),
        (
            "mode",
            json!({"plan": {"permission": {"edit": "allow"}}}),
            Withheld,
        ),
        ("tools", json!({"doom_loop": true}), Withheld),
        ("autoshare", json!(true), Parts),
        ("reference", json!({"n": "/etc"}), Withheld),
    ];
    let whole = [
        "type",
        "command",
        "cwd",
        "environment",
        "url",
        "headers",
        "oauth",
        "timeout",
        "sampling",
        "log",
    ];
    let value = |key: &str| match key {
        "type" => json!("local"),
        "command" | "extensions" => json!(["x"]),
        "environment" | "headers" | "env" => json!({"A": "b"}),
        "oauth" => json!({}),
        "timeout" => json!(1000),
        "sampling" => json!(true),
        "log" => json!("debug"),
        _ => json!("x"),
    };
    let keys =
        |kind: &'static str, keys: &[&'static str]| -> Vec<(&'static str, Json, KeyExample)> {
            let rows = keys.iter().map(|key| {
                (
                    &*format!("{kind}.<name>.{key}").leak(),
                    value(key),
                    Withheld,
                )
            });
            rows.collect()
        };
    table.extend(keys("mcp", &whole));
    table.extend(keys("formatter", &["command", "environment", "extensions"]));
    table.extend(keys("lsp", &["command", "env", "extensions"]));
    table.extend(keys("hook", &["command", "environment", "timeout"]));
    for key in [
        "clientId",
        "clientSecret",
        "scope",
        "callbackPort",
        "redirectUri",
    ] {
        table.push((format!("mcp.<name>.oauth.{key}").leak(), Json::Null, Parts));
    }
    table
}

/// Returns an object with a value at the end of a path of keys.
fn at(path: &[&str], value: &Json) -> Json {
    path.iter()
        .rev()
        .fold(value.clone(), |value, key| json!({ *key: value }))
}

#[test]
fn every_project_key_is_harmless_or_withheld() {
    let table = table();
    // The keys of rules are judged, whatever they are.
    let rows = declare::keys::rows()
        .into_iter()
        .filter(|row| !row.key.starts_with("permission.") || row.key.starts_with("permission.$"));
    let missing: Vec<String> = rows
        .map(|row| row.key)
        .filter(|key| !table.iter().any(|(known, ..)| known == key))
        .collect();
    assert!(
        missing.is_empty(),
        "the table has no row for these keys: {missing:?}"
    );
    let known: Vec<String> = declare::keys::rows()
        .into_iter()
        .map(|row| row.key)
        .collect();
    let mut place = ConfigFixture::new();
    let vars = place.vars.clone();
    let mut wrong = Vec::new();
    for (key, value, worth) in &table {
        assert!(known.iter().any(|known| known == key), "there is no {key}");
        if *worth == Parts {
            continue;
        }
        place.clear(&vars);
        place.write(
            "home/.config/adjutant/adjutant.json",
            r#"{"default_agent": "plan"}"#,
        );
        let name = if key.starts_with("agent.") {
            "build"
        } else {
            "n"
        };
        let path: Vec<&str> = key
            .split('.')
            .map(|part| if part == "<name>" { name } else { part })
            .collect();
        let written = at(&path, value);
        place.write("work/repo/opencode.json", written.to_string());
        let loaded = place.load();
        let found = loaded.tree().at(&path).map(|node| node.to_json());
        let is_present = if *worth == Holds {
            found.is_some()
        } else {
            found.as_ref() == Some(value)
        };
        let needs_trust = !loaded.trust.items.is_empty();
        if (needs_trust, is_present) != (*worth == Withheld, *worth == Holds) {
            wrong.push(format!(
                "{written}: {worth:?}, but {:?}, {found:?}, {:?}",
                loaded.trust.items,
                reports(&loaded)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A project's settings of a program that it disables are not used if the user's settings, which
/// come later, enable it.
#[test]
fn program_disabled_by_project_does_not_run_with_projects_command() {
    let mut place = ConfigFixture::new();
    let files = [
        r#"{"mcp": {"db": {"enabled": false, "type": "local", "command": ["./evil"]}}}"#,
        r#"{"lsp": {"db": {"disabled": true, "command": ["./evil"], "extensions": [".x"]}}}"#,
        r#"{"formatter": {"db": {"disabled": true, "command": ["./evil"], "extensions": [".x"]}}}"#,
    ];
    for text in files {
        place.write("work/repo/opencode.json", text);
        place.vars.remove("ADJUTANT_CONFIG_CONTENT");
        assert!(place.load().trust.items.is_empty(), "{text}");
        place.var(
            "ADJUTANT_CONFIG_CONTENT",
            r#"{"mcp": {"db": {"enabled": true}}, "lsp": {"db": {"disabled": false}}, "formatter": {"db": {"disabled": false}}}"#,
        );
        let loaded = place.load();
        assert!(!loaded.trust.items.is_empty(), "{text}");
        let tree = loaded.tree().to_json().to_string();
        assert!(!tree.contains("evil"), "{tree}");
    }
}

/// An object enables the usual formatters and language servers, but not a project's object that
/// only disables some, and not before the user has agreed.
#[test]
fn disabling_one_program_enables_no_other() {
    let table = [
        (
            "{}",
            r#"{"formatter": {"other": {"disabled": true}}, "lsp": {"other": {"disabled": true}}}"#,
            false,
            "",
        ),
        (
            r#"{"formatter": false, "lsp": false}"#,
            r#"{"formatter": {}, "lsp": {}}"#,
            false,
            "",
        ),
        (
            r#"{"formatter": true, "lsp": true}"#,
            r#"{"formatter": {"gofmt": {"disabled": true}}}"#,
            true,
            "lsp",
        ),
        (
            r#"{"formatter": true, "lsp": true}"#,
            r#"{"lsp": {"gopls": {"disabled": true}}}"#,
            true,
            "lsp",
        ),
        (
            "{}",
            r#"{"lsp": {"y": {"command": ["./y"], "extensions": [".y"]}}}"#,
            false,
            "lsp lsp.y",
        ),
        (
            "{}",
            r#"{"formatter": {"y": {"command": ["./y"], "extensions": [".y"]}}}"#,
            false,
            "formatter formatter.y",
        ),
    ];
    for (user, project, on, withheld) in table {
        let mut place = ConfigFixture::new();
        place.write("work/repo/opencode.json", project);
        place.var("ADJUTANT_CONFIG_CONTENT", user);
        let loaded = place.load();
        let settings = &loaded.settings;
        let known = [
            !settings.formatters.is_empty(),
            !settings.language_servers.is_empty(),
        ];
        assert_eq!(known, [on, on], "{user} {project}");
        let keys: Vec<&str> = loaded
            .trust
            .items
            .iter()
            .map(|item| item.key.as_str())
            .collect();
        assert_eq!(keys.join(" "), withheld, "{user} {project}");
    }
}

/// Returns the root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Returns the fields that a source file declares, without those whose attributes explain why they
/// are not read.
fn fields(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join(path)).unwrap();
    let mut found = Vec::new();
    let mut explained = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            explained |= line.contains("x-status") || line.contains("x-instead");
        } else if let Some((name, _)) = line
            .strip_prefix("pub ")
            .and_then(|line| line.split_once(':'))
        {
            if !std::mem::take(&mut explained)
                && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            {
                found.push(name.to_owned());
            }
        } else if !line.starts_with("///") {
            explained = false;
        }
    }
    assert!(found.len() > 2, "{path}: {found:?}");
    found
}

/// Returns the text of all sources except tests whose path satisfies `counts`.
fn sources(counts: fn(&str) -> bool) -> String {
    let root = repository();
    let mut text = String::new();
    let mut folders = vec![root.join("src"), root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.contains("tests") && counts(&name) {
                let whole = std::fs::read_to_string(&path).unwrap();
                text.push_str(whole.split("#[cfg(test)]\nmod tests {").next().unwrap());
            }
        }
    }
    text
}

fn is_read(name: &str, text: &str) -> bool {
    // A call is a method of that name.
    let end =
        |at: usize| !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(');
    let field = format!(".{name}");
    text.match_indices(&field)
        .any(|(at, _)| end(at + field.len()))
        || text.contains(&format!("\"{name}\""))
}

/// Keys for editors, and objects whose keys all explain why they have no effect.
const EXPLAINED: [&str; 7] = [
    "schema",
    "attachment",
    "image",
    "client_secret",
    "scope",
    "callback_port",
    "redirect_uri",
];

/// An accepted key without effect explains that itself.
#[test]
fn every_key_is_read_or_explained() {
    let resolved = sources(|name| {
        [
            "lib.rs",
            "hook.rs",
            "store.rs",
            "script.rs",
            "resolve.rs",
            "legacy.rs",
            "layers.rs",
            "substitute.rs",
        ]
        .iter()
        .any(|file| name == format!("crates/config/src/{file}"))
    });
    let used = sources(|name| {
        ![
            "crates/config/src/settings.rs",
            "crates/providers/src/entry.rs",
            "crates/config/src/resolve.rs",
        ]
        .contains(&name)
    });
    let mut unread = Vec::new();
    for file in [
        "",
        "/agent",
        "/hook",
        "/limits",
        "/mcp",
        "/provider",
        "/sandbox",
    ] {
        let path = format!("crates/config/src/file{file}.rs");
        let all = fields(&path)
            .into_iter()
            .filter(|name| !EXPLAINED.contains(&name.as_str()));
        unread.extend(
            all.filter(|name| !is_read(name, &resolved))
                .map(|name| format!("{path}: {name}")),
        );
    }
    for path in [
        "crates/config/src/settings.rs",
        "crates/providers/src/entry.rs",
    ] {
        unread.extend(
            fields(path)
                .into_iter()
                .filter(|name| !is_read(name, &used))
                .map(|name| format!("{path}: {name}")),
        );
    }
    assert!(
        unread.is_empty(),
        "declared, and read by nobody: {unread:#?}"
    );
}

/// The table of settings in `crates/config/README.md` and the schema for checks agree with the
/// declarations. `BLESS=1` writes both.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
fn every_setting_is_listed() {
    let page = repository().join("crates/config/README.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- config:begin").unwrap();
    let (mark, rest) = rest.split_once("-->\n").unwrap();
    let (_, after) = rest.split_once("<!-- config:end -->").unwrap();
    let table = crate::table();
    let wanted = format!("{before}<!-- config:begin{mark}-->\n{table}<!-- config:end -->{after}");
    let lean = repository().join("crates/config/src/declare/lean.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(page, wanted).unwrap();
        std::fs::write(lean, lean_text()).unwrap();
    } else {
        assert!(
            std::fs::read_to_string(lean).unwrap() == lean_text(),
            "crates/config/src/declare/lean.json is not what the settings declare.\n\
             BLESS=1 cargo test -p config every_setting_is_listed writes it."
        );
        let differs = text
            .lines()
            .zip(wanted.lines())
            .find(|(has, wants)| has != wants);
        let (has, wants) = differs.unwrap_or(("", "more or fewer lines"));
        assert!(
            text == wanted,
            "crates/config/README.md does not list the settings as they are declared.\nIt has:  {has}\nwanted:  {wants}\n\
             BLESS=1 cargo test -p config every_setting_is_listed writes the table."
        );
    }
}
