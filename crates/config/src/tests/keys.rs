//! Tests of every key that a project's file may have, and of its effect in an untrusted project.

use serde_json::{Value as Json, json};

use super::*;
use crate::declare;

/// The effect of a key in an untrusted project's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Applies,
    /// It applies once the user has agreed.
    Waits,
    Ignored,
}

use Effect::{Applies, Ignored, Waits};

/// Returns values of keys for which a generated value shows nothing. `<name>` is `build` for
/// agents, `n` otherwise.
fn examples() -> Vec<(&'static str, Json)> {
    let named = |value: Json| json!({ "n": value });
    vec![
        ("$schema", json!("https://opencode.ai/config.json")),
        ("model", json!("a/b")),
        ("small_model", json!("a/b")),
        ("default_agent", json!("build")),
        ("agent.<name>.name", json!("PIan")),
        ("agent.<name>.mode", json!("subagent")),
        ("agent.<name>.model", json!("a/b")),
        ("agent.<name>.color", json!("#ff0000")),
        ("agent.<name>.options", json!({"a": 1})),
        ("agent.<name>.permission", json!({"doom_loop": "allow"})),
        ("permission", json!("allow")),
        (
            "provider.<name>.login",
            json!({"clientId": "x", "tokenUrl": "https://evil.example"}),
        ),
        ("provider.<name>.models.<name>.interleaved", json!(true)),
        ("provider.<name>.models.<name>.experimental", json!(true)),
        ("provider.<name>.models.<name>.options", json!({"a": 1})),
        (
            "provider.<name>.models.<name>.cost.context_over_200k",
            json!({}),
        ),
        (
            "provider.<name>.models.<name>.variants",
            json!({"high": {"a": 1}}),
        ),
        (
            "provider.<name>.models.<name>.provider",
            json!({"npm": "x"}),
        ),
        ("mcp", named(json!({"enabled": true}))),
        ("mcp.<name>.enabled", json!(false)),
        ("instructions", json!(["../x.md"])),
        ("command.<name>.agent", json!("build")),
        ("command.<name>.model", json!("a/b")),
        ("skills.paths", json!(["~/x"])),
        ("skills.urls", json!(["https://evil.example"])),
        ("references", named(json!("/etc"))),
        ("references.<name>.path", json!("/etc")),
        ("store", json!({"url": "postgres://localhost/x"})),
        ("providers", json!({"from_editor": false})),
        ("budget", json!({"steps": 9})),
        ("serve", json!({"grace": 9})),
        ("trust", json!("all")),
        ("sandbox", json!("off")),
        ("sandbox.writable", json!(["/"])),
        ("environment", json!({"pass": ["X"]})),
        ("hook", named(json!({"on": "prompt", "command": ["x"]}))),
        ("lsp.<name>.initialization", json!({})),
    ]
}

/// Returns values whose effect differs from the stated one of their key, or whose key states none.
fn special_cases() -> Vec<(&'static str, Json, Effect)> {
    let named = |value: Json| json!({ "n": value });
    let plan = json!({"plan": {"permission": {"edit": "allow"}}});
    vec![
        ("agent", json!({"new": {"mode": "primary"}}), Waits),
        ("agent.<name>.tools", json!({"doom_loop": true}), Waits),
        (
            "provider",
            named(json!({"options": {"region": "evil.example/"}})),
            Waits,
        ),
        (
            "provider.<name>.options",
            json!({"resourceName": "evil.example/"}),
            Waits,
        ),
        (
            "provider.<name>.models",
            json!({"m": {"headers": {"a": "b"}}}),
            Waits,
        ),
        ("webfetch", json!({"private": ["localhost"]}), Waits),
        // An entry that disables one means nothing if the user has enabled none.
        ("formatter.<name>.disabled", json!(true), Ignored),
        ("lsp.<name>.disabled", json!(true), Ignored),
        ("mode", plan, Waits),
        ("tools", json!({"doom_loop": true}), Waits),
        ("reference", named(json!("/etc")), Waits),
    ]
}

/// Objects that count as a whole.
const WHOLE: [&str; 3] = ["permission.", "provider.<name>.login.", "mcp.<name>.oauth."];

/// Returns an object with a value at the end of a path of keys.
fn at(path: &[&str], value: &Json) -> Json {
    path.iter()
        .rev()
        .fold(value.clone(), |value, key| json!({ *key: value }))
}

/// Every key states its effect in an untrusted project, itself or around it, and has that effect.
#[test]
fn every_project_key_has_its_stated_effect() {
    let rows = declare::keys::rows();
    let examples = examples();
    let special = special_cases();
    let known = |key: &str| rows.iter().any(|row| row.key == key);
    let mut cases = special.clone();
    let mut missing = Vec::new();
    for row in &rows {
        let is_special = special.iter().any(|(key, ..)| *key == row.key);
        let is_within = WHOLE.iter().any(|whole| row.key.starts_with(whole));
        let inner = format!("{}.", row.key);
        let has_inner = rows.iter().any(|other| other.key.starts_with(&inner));
        let effect = match row.effect.as_deref() {
            _ if is_special || is_within => continue,
            Some("parts") if has_inner => continue,
            Some("applies") => Applies,
            Some(text) if text.starts_with("waits") => Waits,
            Some(text) if text.starts_with("user: ") || text.starts_with("machine: ") => Ignored,
            // An old spelling.
            None if row.text.starts_with("Old spelling") => continue,
            other => {
                missing.push(format!("{}: {other:?} is no effect", row.key));
                continue;
            }
        };
        let own = examples.iter().find(|(key, _)| *key == row.key);
        match own.map(|(_, value)| value).or(row.example.as_ref()) {
            Some(value) => cases.push((row.key.as_str(), value.clone(), effect)),
            None if effect == Applies || has_inner => {}
            None => missing.push(format!("{}: a value is needed in examples()", row.key)),
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let of_tables = examples.iter().map(|(key, _)| key);
    let unknown: Vec<&&str> = of_tables.filter(|key| !known(key)).collect();
    assert!(unknown.is_empty(), "there are no such keys: {unknown:?}");

    let mut fixture = ConfigFixture::new();
    let vars = fixture.vars.clone();
    let mut wrong = Vec::new();
    for (key, value, effect) in &cases {
        fixture.clear(&vars);
        fixture.write(
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
        fixture.write("work/repo/opencode.json", written.to_string());
        let loaded = fixture.load();
        let found = loaded.tree().at(&path).map(|node| node.to_json());
        let is_present = if *effect == Applies {
            found.is_some()
        } else {
            found.as_ref() == Some(value)
        };
        let needs_trust = !loaded.trust.items.is_empty();
        if (needs_trust, is_present) != (*effect == Waits, *effect == Applies) {
            wrong.push(format!(
                "{written}: {effect:?}, but {:?}, {found:?}, {:?}",
                loaded.trust.items,
                reports(&loaded)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A default that a description names is the one that is used.
#[test]
fn described_defaults_are_the_real_ones() {
    let wrong: Vec<String> = declare::keys::rows()
        .into_iter()
        .filter(|row| row.default.is_boolean() || row.default.is_number())
        .filter(|row| {
            row.text.contains("Default: ")
                && !row.text.contains(&format!("Default: {}.", row.default))
        })
        .map(|row| format!("{}: {}", row.key, row.default))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A project's settings of a program that it disables are not used if the user's settings, which
/// come later, enable it.
#[test]
fn program_disabled_by_project_does_not_run_with_projects_command() {
    let mut fixture = ConfigFixture::new();
    let files = [
        r#"{"mcp": {"db": {"enabled": false, "type": "local", "command": ["./evil"]}}}"#,
        r#"{"lsp": {"db": {"disabled": true, "command": ["./evil"], "extensions": [".x"]}}}"#,
        r#"{"formatter": {"db": {"disabled": true, "command": ["./evil"], "extensions": [".x"]}}}"#,
    ];
    for text in files {
        fixture.write("work/repo/opencode.json", text);
        fixture.vars.remove("ADJUTANT_CONFIG_CONTENT");
        assert!(fixture.load().trust.items.is_empty(), "{text}");
        fixture.var(
            "ADJUTANT_CONFIG_CONTENT",
            r#"{"mcp": {"db": {"enabled": true}}, "lsp": {"db": {"disabled": false}}, "formatter": {"db": {"disabled": false}}}"#,
        );
        let loaded = fixture.load();
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
        let mut fixture = ConfigFixture::new();
        fixture.write("work/repo/opencode.json", project);
        fixture.var("ADJUTANT_CONFIG_CONTENT", user);
        let loaded = fixture.load();
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
    for file in ["", "/agent", "/hook", "/mcp", "/provider", "/sandbox"] {
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
        "crates/config/src/file/general.rs",
        "crates/config/src/file/limits.rs",
        "crates/config/src/settings.rs",
        "crates/providers/src/entry.rs",
    ] {
        unread.extend(
            fields(path)
                .into_iter()
                // It is another spelling of `telemetry.enabled`, read when settings are resolved.
                .filter(|name| name != "open_telemetry" && !is_read(name, &used))
                .map(|name| format!("{path}: {name}")),
        );
    }
    assert!(unread.is_empty(), "declared, but never read: {unread:#?}");
}

/// The lists of keys in the manual and the schema for checks agree with the declarations. `BLESS=1`
/// writes them.
#[test]
fn every_setting_is_listed() {
    let user_keys = user_only().into_iter().map(|key| format!("`{key}`"));
    let user_keys: Vec<String> = user_keys.collect();
    bless("crates/config/src/declare/lean.json", |_| lean_text());
    bless("docs/keys.md", |page| with_part(page, "config", &table()));
    bless("docs/settings.md", |page| {
        with_part(page, "user keys", &format!("{}\n", user_keys.join(", ")))
    });
}

/// Returns a page with its generated part.
fn with_part(page: &str, name: &str, part: &str) -> String {
    let (before, rest) = page.split_once(&format!("<!-- {name}:begin")).unwrap();
    let (mark, rest) = rest.split_once("-->\n").unwrap();
    let end = format!("<!-- {name}:end -->");
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}<!-- {name}:begin{mark}-->\n{part}{end}{after}")
}

/// Compares a file with its generated content, or writes it.
#[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
fn bless(path: &str, generate: impl Fn(&str) -> String) {
    let file = repository().join(path);
    let text = std::fs::read_to_string(&file).unwrap();
    let wanted = generate(&text);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file, wanted).unwrap();
        return;
    }
    let mut lines = text.lines().zip(wanted.lines());
    let differs = lines.find(|(has, wants)| has != wants);
    let (has, wants) = differs.unwrap_or(("", "more or fewer lines"));
    assert!(
        text == wanted,
        "{path} is not what the settings declare.\nIt has:  {has}\nwanted:  {wants}\n\
         BLESS=1 cargo test -p config every_setting_is_listed writes it."
    );
}
