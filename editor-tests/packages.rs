//! Plugins that are npm packages: the installation, its time, and the extent of a consent. The
//! registry is a mock on a loopback port. Skipped where there is no npm.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::project::Project;
use crate::web::Web;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 5] = [
    (
        "a package is fetched on request only, pinned, and part of the consent",
        a_package_is_fetched_on_request_only_pinned_and_part_of_the_consent,
    ),
    (
        "a flag does not answer about the project",
        a_flag_does_not_answer_about_the_project,
    ),
    (
        "a package that is not what the registry says is not installed",
        package_that_differs_from_the_registry_is_not_installed,
    ),
    (
        "nothing is fetched for a project that is not trusted",
        nothing_is_fetched_for_a_project_that_is_not_trusted,
    ),
    (
        "the settings of the project do not choose the registry",
        the_settings_of_the_project_do_not_choose_the_registry,
    ),
];

/// A mock registry under construction.
#[derive(Default)]
struct Registry {
    block: String,
}

/// The digest that the registry states for an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digest {
    Right,
    Wrong,
    /// SHA-1 only.
    Weak,
}

impl Registry {
    /// Adds a package with one file, `index.js`.
    fn package(mut self, manifest: &Value, code: &str, digest: Digest) -> Self {
        let name = manifest["name"].as_str().unwrap();
        let version = manifest["version"].as_str().unwrap();
        let archive = archive(&[
            ("package/package.json", &manifest.to_string()),
            ("package/index.js", code),
        ]);
        let of = |bytes: &[u8]| {
            let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
            format!("sha512-{}", STANDARD.encode(digest.as_ref()))
        };
        let sha1 = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &archive);
        let sha1: String = sha1
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let file = format!("{name}/-/archive-{version}.tgz");
        let mut dist = json!({ "tarball": format!("${{WEB}}/{file}"), "shasum": sha1 });
        match digest {
            Digest::Right => dist["integrity"] = of(&archive).into(),
            Digest::Wrong => dist["integrity"] = of(b"something else").into(),
            Digest::Weak => {}
        }
        let mut listed = manifest.clone();
        listed["dist"] = dist;
        let packument = json!({
            "name": name, "dist-tags": { "latest": version }, "versions": { version: listed },
        });
        let path = name.replace('/', "%2f");
        writeln!(self.block, "=== /{path} application/json\n{packument}").unwrap();
        let encoded = STANDARD.encode(&archive);
        writeln!(
            self.block,
            "=== /{file} application/octet-stream base64\n{encoded}"
        )
        .unwrap();
        self
    }

    fn start(&self) -> Web {
        Web::start(&self.block)
    }
}

/// Returns a gzipped tar archive.
fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, text) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", text.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(header);
        tar.extend(text.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

/// A plugin that needs another package, which has an install script.
fn hello(project: &Project, digest: Digest) -> Registry {
    let script = format!("touch {}", project.cwd().join("ran").display());
    let dependency = json!({ "name": "@some/dependency", "version": "2.0.0", "main": "index.js",
        "scripts": { "install": script, "postinstall": script }, "hasInstallScript": true });
    let plugin = json!({ "name": "opencode-hello", "version": "1.2.0", "main": "index.js",
        "dependencies": { "@some/dependency": "^2.0.0" } });
    let code = "exports.hello = async () => ({ tool: { hello: { description: require(\"@some/dependency\"), \
                args: {}, execute: async () => \"hello\" } } })";
    Registry::default()
        .package(&dependency, "module.exports = \"Says hello.\"", digest)
        .package(&plugin, code, Digest::Right)
}

/// Runs adjutant in the project, and returns its output and its exit code.
fn adjutant(project: &Project, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    let output = command
        .args(arguments)
        .current_dir(project.cwd())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    // A table is wrapped, which is not the subject here.
    let text = String::from_utf8(text).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    (words.join(" "), output.status.code())
}

fn installed(project: &Project) -> PathBuf {
    project.path("~/.cache/adjutant/plugins/opencode-hello")
}

fn has_npm() -> bool {
    let found = crate::on_path("npm");
    if !found {
        eprintln!("skipped: there is no npm");
    }
    found
}

fn set_up(project: &mut Project, settings: &Value, web: &Web) {
    project.write("opencode.json", &settings.to_string());
    project.set("npm_config_registry", Some(&web.base()));
}

fn a_package_is_fetched_on_request_only_pinned_and_part_of_the_consent() {
    if !has_npm() {
        return;
    }
    let mut project = Project::new();
    let web = hello(&project, Digest::Right).start();
    set_up(&mut project, &json!({ "plugin": ["opencode-hello"] }), &web);
    let (text, _) = adjutant(&project, &["extensions"]);
    assert!(
        text.contains("opencode-hello plugin not installed `adjutant extensions install` fetches it (opencode.json:1)"),
        "{text}"
    );
    // Without a terminal and without a word, it is only shown.
    let (text, code) = adjutant(&project, &["extensions", "install"]);
    let shown = "opencode-hello 1.2.0 with 1 package it needs (no version is named; this is the newest): \
                 package version integrity opencode-hello 1.2.0 sha512-";
    assert!(text.starts_with(shown), "{text}");
    assert!(text.contains("@some/dependency 2.0.0 sha512-"), "{text}");
    assert!(
        text.contains("One of them has an install script, which is not run."),
        "{text}"
    );
    assert!(text.contains("Nothing was installed"), "{text}");
    assert_eq!(code, Some(1));
    assert!(!installed(&project).exists());

    adjutant(&project, &["trust", "--yes"]);
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("Installed opencode-hello 1.2.0 with 1 package it needs."),
        "{text}"
    );
    assert!(!project.cwd().join("ran").exists(), "a script has run");
    let (text, _) = adjutant(&project, &["trust"]);
    assert!(text.contains("is trusted"), "{text}");
    assert!(
        text.contains("it is opencode-hello 1.2.0 with 1 package it needs"),
        "{text}"
    );
    let (text, code) = adjutant(&project, &["extensions"]);
    assert!(
        text.contains("opencode-hello plugin active tools hello;"),
        "{text}"
    );
    assert_eq!(code, Some(0), "{text}");
    let (text, code) = adjutant(&project, &["extensions", "install"]);
    assert!(text.contains("No plugin is missing"), "{text}");
    assert_eq!(code, Some(0));

    // A consent covers no plugin that the project names later.
    let settings = std::fs::read_to_string(project.cwd().join("opencode.json")).unwrap();
    let more = json!({ "plugin": ["opencode-hello", "opencode-other"] });
    project.write("opencode.json", &more.to_string());
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert!(
        text.contains("you have not trusted these plugins of this project: opencode-other."),
        "{text}"
    );
    assert_eq!(code, Some(1), "{text}");
    project.write("opencode.json", &settings);

    // A consent covers the contents of the record.
    let record = installed(&project).join("adjutant-package.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace("\"2.0.0\"", "\"2.0.1\"")).unwrap();
    let (text, _) = adjutant(&project, &["extensions"]);
    assert!(
        text.contains("opencode-hello plugin waits for trust"),
        "{text}"
    );
    std::fs::write(
        &record,
        std::fs::read_to_string(&record)
            .unwrap()
            .replace("\"2.0.1\"", "\"2.0.0\""),
    )
    .unwrap();
    let code = installed(&project).join("node_modules/@some/dependency/index.js");
    std::fs::write(code, "module.exports = \"Other.\"").unwrap();
    let (text, code) = adjutant(&project, &["extensions"]);
    assert!(
        text.contains("opencode-hello plugin failed its files in"),
        "{text}"
    );
    assert_eq!(code, Some(1));
}

/// Checks that a flag is not an answer about the project, and that the answer is about the plugins
/// that it names.
fn a_flag_does_not_answer_about_the_project() {
    if !has_npm() {
        return;
    }
    let mut project = Project::new();
    let web = hello(&project, Digest::Right).start();
    set_up(&mut project, &json!({ "plugin": ["opencode-hello"] }), &web);
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("Not installed, because this project is not trusted: opencode-hello."),
        "{text}"
    );
    assert!(!text.contains("integrity"), "{text}");
    let (text, code) = adjutant(&project, &["trust", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Trusted: these may be fetched"), "{text}");
    let other = json!({ "plugin": ["opencode-hello", "opencode-other"] });
    project.write("opencode.json", &other.to_string());
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert!(text.contains("Not installed, because"), "{text}");
    assert_eq!(code, Some(1), "{text}");
    assert!(!installed(&project).exists());
}

fn package_that_differs_from_the_registry_is_not_installed() {
    if !has_npm() {
        return;
    }
    for (digest, why) in [
        (Digest::Wrong, "opencode-hello is not installed: npm:"),
        (
            Digest::Weak,
            "opencode-hello needs @some/dependency 2.0.0, for which the registry has no digest that pins it.",
        ),
    ] {
        let mut project = Project::new();
        let web = hello(&project, digest).start();
        set_up(&mut project, &json!({ "plugin": ["opencode-hello"] }), &web);
        adjutant(&project, &["trust", "--yes"]);
        let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
        assert!(text.contains(why), "{text}");
        assert_eq!(code, Some(1));
        assert!(!installed(&project).exists());
    }
}

fn nothing_is_fetched_for_a_project_that_is_not_trusted() {
    if !has_npm() {
        return;
    }
    let mut project = Project::new();
    let web = hello(&project, Digest::Right).start();
    let settings = json!({ "plugin": ["opencode-hello"],
        "hook": { "log": { "on": "turn.end", "command": ["true"] } } });
    set_up(&mut project, &settings, &web);
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert!(
        text.contains("Not installed, because this project is not trusted: opencode-hello."),
        "{text}"
    );
    assert_eq!(code, Some(1));
    assert!(!project.path("~/.cache/adjutant/plugins").exists());
    let (text, _) = adjutant(&project, &["trust", "--yes"]);
    assert!(
        text.contains("This plugin is not installed: opencode-hello."),
        "{text}"
    );
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    let (text, _) = adjutant(&project, &["extensions"]);
    assert!(text.contains("log hook active"), "{text}");
    assert!(text.contains("opencode-hello plugin active"), "{text}");
}

fn the_settings_of_the_project_do_not_choose_the_registry() {
    if !has_npm() {
        return;
    }
    let mut project = Project::new();
    let web = hello(&project, Digest::Right).start();
    set_up(&mut project, &json!({ "plugin": ["opencode-hello"] }), &web);
    project.set("npm_config_registry", None);
    project.write("~/.npmrc", &format!("registry={}/\n", web.base()));
    project.write(".npmrc", "registry=http://127.0.0.1:9/\n");
    project.write("package.json", "{}");
    adjutant(&project, &["trust", "--yes"]);
    let (text, code) = adjutant(&project, &["extensions", "install", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Installed opencode-hello"), "{text}");
}
