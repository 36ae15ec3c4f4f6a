//! `adjutant doctor`: tries the parts of the installation, and reports which ones work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::project_context::ProjectContext;
use super::redaction::KnownKeys;
use super::terminal::style::{BAD, GOOD};
use super::{models, report};
use base::environment::Environment;
use config::settings::SandboxMode;
use config::trust::{Review, TrustKind};
use config::{Problem, ProblemSeverity};
use extensions::load::displayed_reason;
use extensions::scripts::Scripts;
use extensions::usage_stats;
use mcp::inventory::ReportedState;
use permission::credentials;
use providers::editor_endpoints::EditorEndpoints;
use providers::local::{self, WindowCheck};
use providers::registry::Registry;
use sandbox::process::Program;
use sandbox::{Level, ProvenSandbox, Sandbox};
use session::models::{ModelSources, without_tools};
use store::ListQuery;
use tools::files::hidden;
use transcript::ModelRef;

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write everything that a bug report needs into a new file, by default in the state directory.
    /// Keys are redacted.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    report: Option<Option<PathBuf>>,
    /// Add a recording of a connection (`adjutant acp --log-wire FILE`) to the report.
    #[arg(long, value_name = "FILE", requires = "report")]
    wire: Option<PathBuf>,
}

/// The findings, as text and as data.
#[derive(Default)]
struct DoctorReport {
    lines: Vec<String>,
    data: serde_json::Map<String, Value>,
    broken: Vec<String>,
    /// The optional programs that are not there.
    missing: Vec<&'static str>,
}

impl DoctorReport {
    fn say(&mut self, name: &str, text: &str) {
        self.lines.push(format!("{name:<12} {text}"));
    }

    fn keep(&mut self, key: &str, value: Value) {
        self.data.insert(key.into(), value);
    }

    /// Redacts the keys of this machine and of this directory's settings. Programs whose messages
    /// are reported may repeat them.
    fn redact(&mut self, environment: &Environment) {
        let mut known = KnownKeys::new(environment);
        known.read_project(Path::new("."));
        for text in self.lines.iter_mut().chain(&mut self.broken) {
            *text = known.redacted(text);
        }
        for value in self.data.values_mut() {
            known.redact(value);
        }
    }

    fn text(&self) -> String {
        let mut lines = self.lines.clone();
        if self.broken.is_empty() && self.missing.is_empty() {
            lines.push(format!("\n{WORKS}"));
        } else if self.broken.is_empty() {
            lines.push(format!("\n{WORKS_WITHOUT} {}.", self.missing.join(", ")));
        } else {
            lines.push(format!("\n{BROKEN}"));
            lines.extend(self.broken.iter().map(|what| format!("- {what}")));
        }
        lines.join("\n")
    }
}

/// Prints the report, or writes it into a file. Exit code 1 if something does not work, but
/// 0 for a file, which is written for just that.
pub(super) async fn doctor(args: &DoctorArgs, environment: &Environment) -> anyhow::Result<u8> {
    let report = examine(environment).await;
    if let Some(file) = &args.report {
        report::write(
            file.as_deref(),
            args.wire.as_deref(),
            report.text(),
            environment,
        )?;
        return Ok(0);
    }
    let code = u8::from(!report.broken.is_empty());
    if args.json {
        super::terminal::json(&serde_json::to_string_pretty(&Value::Object(report.data))?);
    } else {
        super::terminal::report(&report.text(), style_of, indent_of, environment);
    }
    Ok(code)
}

/// Tries everything.
async fn examine(environment: &Environment) -> DoctorReport {
    let mut report = DoctorReport::default();
    versions(&mut report, environment).await;
    directories(&mut report, environment);
    store(&mut report, environment).await;
    // The settings name everything else. If they cannot be read, the rest is skipped.
    match ProjectContext::read(Path::new("."), environment) {
        Ok(here) => {
            config(&mut report, &here, environment).await;
            sandbox(&mut report, &here, environment).await;
            hidden(&mut report, &here, environment);
            variables(&mut report, &here, environment);
            providers(&mut report, &here, environment).await;
            servers(&mut report, &here, environment).await;
            languages(&mut report, &here, environment);
            extensions(&mut report, &here, environment).await;
        }
        Err(e) => report.broken.push(format!("{e:#}")),
    }
    report.keep("broken", json!(report.broken));
    report.redact(environment);
    report
}

/// Programs that adjutant uses if they are installed, with the consequence if they are not.
const OPTIONAL_PROGRAMS: &[(&str, &str)] = &[
    (
        "git",
        "references to repositories cannot be cloned, and commands that use git fail",
    ),
    ("bash", "commands run in sh"),
    (
        "bwrap",
        "the strongest sandbox cannot be used; install the package bubblewrap",
    ),
];

/// The column of the texts, after the names.
const DOCTOR_COLUMN: usize = 13;
/// The last line of a report without faults, its beginning if optional programs are missing, and
/// the line before the faults.
const WORKS: &str = "Everything works.";
const WORKS_WITHOUT: &str = "Works; not found:";
const BROKEN: &str = "Does not work:";

/// Returns the style of a line of the report.
fn style_of(line: &str) -> anstyle::Style {
    match line {
        WORKS => GOOD,
        BROKEN => BAD,
        _ if line.starts_with(WORKS_WITHOUT) => GOOD,
        _ if line.starts_with("- ") => BAD,
        _ => anstyle::Style::new(),
    }
}

/// Returns the indent of the further lines of a long line of the report.
fn indent_of(line: &str) -> usize {
    if line.starts_with("- ") {
        2
    } else {
        DOCTOR_COLUMN
    }
}

async fn versions(report: &mut DoctorReport, environment: &Environment) {
    let version = env!("CARGO_PKG_VERSION");
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let kernel = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    report.say("adjutant", &format!("{version}, {system}, kernel {kernel}"));
    let program = environment
        .program
        .as_ref()
        .map(|path| path.display().to_string());
    report.keep("version", json!(version));
    report.keep(
        "system",
        json!({ "name": system, "kernel": kernel, "program": program }),
    );
    for (key, without) in OPTIONAL_PROGRAMS {
        if *key == "bwrap" && !cfg!(target_os = "linux") {
            continue;
        }
        let limit = Duration::from_secs(5);
        let program = Program::with_environment(key, Path::new("/"), environment);
        let ran = program.args(["--version"]).run(limit).await;
        let summary = match ran {
            Ok(ran) if ran.status.success() => {
                let text = String::from_utf8_lossy(&ran.stdout)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                report.say(key, &text);
                Some(text)
            }
            _ => {
                report.say(key, &format!("not found: {without}"));
                report.missing.push(*key);
                None
            }
        };
        report.keep(key, json!(summary));
    }
}

fn directories(report: &mut DoctorReport, environment: &Environment) {
    let dirs = &environment.dirs;
    let mut list = Vec::new();
    let all = [
        ("config", &dirs.config, false),
        ("data", &dirs.data, true),
        ("state", &dirs.state, true),
        ("cache", &dirs.cache, false),
        ("temporary", &environment.tmp(), true),
    ];
    for (name, path, needed) in all {
        let writable = writable(path);
        let summary = match (path.is_dir(), writable) {
            (true, true) => "",
            (true, false) => " (cannot be written)",
            (false, true) => " (does not exist yet)",
            (false, false) => " (cannot be created)",
        };
        report.say(name, &format!("{}{summary}", path.display()));
        list.push(
            json!({ "name": name, "path": path, "exists": path.is_dir(), "writable": writable }),
        );
        if needed && !writable {
            report.broken.push(format!(
                "{} cannot be written, so no session can be saved there",
                path.display()
            ));
        }
    }
    if let Some(why) = &environment.temporary {
        report.broken.push(format!(
            "sessions are saved in a temporary directory only: {why}"
        ));
    }
    report.keep("directories", Value::Array(list));
}

/// Returns whether a file can be created in a directory, or in its nearest existing ancestor.
fn writable(path: &Path) -> bool {
    match path.ancestors().find(|path| path.is_dir()) {
        Some(dir) if dir == path => tempfile::tempfile_in(dir).is_ok(),
        Some(dir) => rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok(),
        None => false,
    }
}

async fn store(report: &mut DoctorReport, environment: &Environment) {
    /// The number of sessions that are counted.
    const MAX_COUNTED_SESSIONS: usize = 10_000;
    let store = session::user_store::open_store(environment);
    // The same query as for a client, so that it fails in the same cases.
    let query = ListQuery {
        archived: Some(false),
        limit: MAX_COUNTED_SESSIONS,
        ..ListQuery::default()
    };
    let looked = store.wait_until_filled().await;
    let summary = match looked.and(store.list_where(query).await) {
        Ok(page) => {
            let count = page.sessions.len();
            let more = if page.next.is_some() {
                "more than "
            } else {
                ""
            };
            report.say("sessions", &format!("{more}{count} stored"));
            json!({ "sessions": count, "problem": null })
        }
        Err(e) => {
            report.say("sessions", &e.to_string());
            report.broken.push(e.to_string());
            json!({ "sessions": null, "problem": e.to_string() })
        }
    };
    let summary = match store.backend_state().await {
        Ok(about) => {
            let details: String = about
                .details
                .iter()
                .map(|detail| format!(", {detail}"))
                .collect();
            report.say(
                "store",
                &format!("{} at {}{details}", about.kind, about.location),
            );
            let mut summary = summary;
            summary["kind"] = json!(about.kind);
            summary["place"] = json!(about.location);
            summary["details"] = json!(about.details);
            summary
        }
        Err(_) => summary,
    };
    store.stop().await;
    report.keep("store", summary);
}

async fn config(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let sources = ModelSources::new(environment);
    let problems = here.every_problem_and_missing_models(&sources).await;
    let count = |severity: ProblemSeverity| {
        problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    };
    let errors = count(ProblemSeverity::Error);
    let warnings = count(ProblemSeverity::Warning);
    let other = problems.len() - errors - warnings;
    let files: Vec<PathBuf> = here.loaded.files();
    let summary = match (errors, warnings) {
        (0, 0) => "nothing is wrong".to_owned(),
        _ => {
            let errors = base::text::count(errors, "error");
            let warnings = base::text::count(warnings, "warning");
            format!("{errors}, {warnings}; `adjutant config check` shows them")
        }
    };
    report.say(
        "settings",
        &format!("{} read; {summary}", base::text::count(files.len(), "file")),
    );
    report.keep(
        "config",
        json!({ "files": files, "errors": errors, "warnings": warnings, "notes": other }),
    );
    if errors > 0 {
        report.broken.push(format!(
            "{} in the settings: see `adjutant config check`",
            base::text::count(errors, "error")
        ));
    }
    if let Some(problem) = here.loaded.settings.unread.first() {
        report.say("denies", &problem.until_fixed());
        if errors == 0 {
            report.broken.push(format!(
                "a deny in the settings may have no effect: {problem}"
            ));
        }
    }
    report.keep(
        "unread",
        json!(
            here.loaded
                .settings
                .unread
                .iter()
                .map(Problem::to_json)
                .collect::<Vec<_>>()
        ),
    );
    let trust = here.loaded.trust.notice();
    if let Some(notice) = &trust {
        report.say("trust", notice);
    }
    report.keep("withheld", json!(trust));
}

async fn sandbox(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let wish = &here.loaded.settings.sandbox;
    let sandbox = Sandbox::new(environment);
    let mode = match wish.mode {
        SandboxMode::Auto => "auto",
        SandboxMode::Required => "required",
        SandboxMode::Off => "off",
    };
    report.keep("sandbox", json!({ "setting": mode }));
    for (key, level) in [
        ("readOnly", Level::ReadOnly),
        ("workspaceWrite", Level::WorkspaceWrite),
    ] {
        let network = wish.network.unwrap_or(level == Level::WorkspaceWrite);
        let (held, summary) = match wish.mode {
            SandboxMode::Off => (
                ProvenSandbox::none(level, vec![]),
                "off in the settings: commands can do whatever you can do, including ending adjutant"
                    .to_owned(),
            ),
            SandboxMode::Auto | SandboxMode::Required => {
                let held = (*sandbox.guarantees_of(level).await).clone();
                let summary = held.describe_restrictions(network);
                (held, summary)
            }
        };
        let kept = held.is_effective(network);
        report.say(
            "sandbox",
            &format!(
                "for agents that {}: {summary}",
                if key == "readOnly" {
                    "only read"
                } else {
                    "edit"
                }
            ),
        );
        let light = match level {
            Level::ReadOnly if held.mechanism.is_some() => {
                Some(sandbox.read_only_guarantees().await)
            }
            _ => None,
        };
        // A command that is known to be harmless needs less.
        if let Some(light) = light.filter(|light| light.mechanism != held.mechanism) {
            let summary = light.describe_restrictions(network);
            report.say("", &format!("  for their harmless commands: {summary}"));
        }
        if held.mechanism.is_some() && !held.is_complete() {
            report.say(
                "",
                "  not enough for `approvals: sandboxed`, which asks less",
            );
        }
        for (mechanism, why) in &held.failed {
            report.say("", &format!("  tried {}: {why}", mechanism.key()));
        }
        let failed: Vec<Value> = held
            .failed
            .iter()
            .map(|(mechanism, why)| json!({ "mechanism": mechanism.key(), "why": why }))
            .collect();
        let data = json!({
            "mechanism": held.mechanism.map(|mechanism| mechanism.key()),
            "told": summary,
            "network": network || !held.blocks_network,
            "controlFilesProtected": held.protects_control_files,
            "modesProtected": held.protects_modes,
            "signalsKept": held.blocks_signals,
            "whole": held.is_complete(),
            "failed": failed,
        });
        if let Some(Value::Object(all)) = report.data.get_mut("sandbox") {
            all.insert(key.into(), data);
        }
        if wish.mode == SandboxMode::Required && !kept {
            report.broken.push(format!(
                "a sandbox is required and none works for {} commands, so they are not run",
                level.as_str()
            ));
        }
    }
}

/// Reports the credentials that are hidden from commands, and the programs that see them.
fn hidden(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let wish = &here.loaded.settings.sandbox;
    let mechanism = report
        .data
        .get("sandbox")
        .and_then(|levels| levels["workspaceWrite"]["mechanism"].as_str());
    let can_hide = matches!(mechanism, Some("bwrap" | "seatbelt"));
    if !can_hide {
        report.say(
            "hidden",
            "nothing: no sandbox here can hide credentials from commands",
        );
    }
    let mut list = Vec::new();
    let homes = credentials::homes(environment);
    for row in credentials::rows() {
        let places: Vec<String> = row
            .locate(environment, &homes)
            .iter()
            .map(|path| hidden::display_path(path, environment))
            .collect();
        let is_shown = wish.show.iter().any(|shown| shown == row.name);
        if can_hide && !places.is_empty() {
            let seen = if is_shown {
                "visible to all commands, by `sandbox.show`".to_owned()
            } else {
                let setting = hidden::setting_that_shows(row);
                format!(
                    "{}. To show it to all commands: {setting}",
                    hidden::describe_visibility(row)
                )
            };
            report.say(
                "hidden",
                &format!(
                    "{}: {} ({}): {seen}",
                    row.name,
                    places.join(", "),
                    row.description
                ),
            );
        }
        list.push(json!({ "name": row.name, "about": row.description, "places": places, "programs": row.programs,
            "hidden": can_hide && !is_shown }));
    }
    let more = if can_hide { &wish.hide[..] } else { &[] };
    for path in more {
        report.say(
            "hidden",
            &format!("{}: by `sandbox.hide`", base::text::escaped(path)),
        );
    }
    for name in &wish.show {
        let is_path = name.starts_with('/') || name.starts_with("~/");
        if !is_path && credentials::rows().iter().all(|row| row.name != name) {
            report.broken.push(format!(
                "`sandbox.show` names {}, which is neither a name in this list nor a path",
                base::text::escaped(name)
            ));
        }
    }
    report.keep("hidden", json!(list));
}

/// Reports the environment variables that commands and servers do not receive.
fn variables(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let out = here.loaded.settings.variables.left_out(environment);
    let shown: Vec<String> = out.iter().map(|name| base::text::escaped(name)).collect();
    let summary = match shown.as_slice() {
        [] => "commands get every variable".to_owned(),
        names => format!(
            "commands do not get {} (list in `environment.pass` those that they should get)",
            names.join(", ")
        ),
    };
    report.say("environment", &summary);
    report.keep("environment", json!({ "leftOut": out }));
}

async fn providers(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let settings = &here.loaded.settings;
    let sources = ModelSources::new(environment);
    let configured = sources.configured(settings);
    let mut list = Vec::new();
    for facts in configured.providers() {
        let usable = facts.obstacle().is_none();
        let how = facts.describe();
        report.say("provider", &format!("{}: {how}", facts.id));
        list.push(json!({ "id": facts.id, "usable": usable, "access": how }));
    }
    let found = sources
        .with_local(settings, &EditorEndpoints::default())
        .await;
    let servers: Vec<String> = found.as_ref().map_or_else(Vec::new, |registry| {
        let fresh = |id: &str| configured.providers().iter().all(|facts| facts.id != id);
        let ids = registry.providers().iter().map(|facts| facts.id.clone());
        ids.filter(|id| local::is_known(id) && fresh(id)).collect()
    });
    if let Err(why) = local::servers_to_search(environment) {
        report.broken.push(why);
    }
    for id in &servers {
        let used = if configured.is_offline_only() {
            ""
        } else {
            "; used only where no other provider is configured"
        };
        report.say("provider", &format!("{id}: running on this machine{used}"));
    }
    if list.is_empty() && servers.is_empty() {
        report.say("provider", "none has a key; only the offline model answers");
    }
    report.keep("providers", Value::Array(list));
    report.keep("localServers", json!(servers));
    let registry = match found {
        Some(found) if configured.is_offline_only() || settings.model.is_some() => found,
        _ => configured,
    };
    let recent = models::recent_models(here, environment).await;
    let default = models::default_model(settings, &recent, &registry);
    default_model(report, &default, &registry).await;
}

/// The time limit of testing the server of the default model.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports the default model: whether its server answers and has it, whether it can call tools, and
/// whether its context window is large enough.
async fn default_model(report: &mut DoctorReport, wanted: &ModelRef, registry: &Registry) {
    let (model, provider) = match registry.find(wanted) {
        Ok(found) => found,
        Err(missing) => {
            report.say("model", &format!("{wanted} by default, which is missing"));
            report.keep(
                "model",
                json!({ "id": wanted.to_string(), "context": null, "works": false }),
            );
            return report.broken.push(format!("the default model: {missing}"));
        }
    };
    let context = model
        .context
        .map(|tokens| format!(", {} tokens of context", models::tokens(tokens)));
    let checked = provider.check(&model, SERVER_TIMEOUT).await;
    let text = format!("{wanted} by default{}", context.unwrap_or_default());
    report.say("model", &text);
    report.keep(
        "model",
        json!({ "id": wanted.to_string(), "context": model.context, "works": checked.is_ok() }),
    );
    if !model.tools && wanted.provider != Registry::OFFLINE {
        report.say("", &without_tools(&model.id));
    }
    if let Err(why) = checked {
        report
            .broken
            .push(format!("the default model {wanted}: {why}"));
    }
    match local::check_context_window(&model) {
        WindowCheck::Sufficient => {}
        WindowCheck::Unknown(text) | WindowCheck::Small(text) => report.say("", &text),
        WindowCheck::TooSmall(text) => report.broken.push(text),
    }
}

/// Reports the custom tools and plugins that do not load, or that prevent the use of a provider's
/// cache.
async fn extensions(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let settings = &here.loaded.settings;
    if settings.scripts.is_empty() {
        return;
    }
    let found = here
        .load_extension_inventory(Scripts::for_check(), environment)
        .await;
    let count = match settings.scripts.len() {
        1 => "1 custom tool or plugin".to_owned(),
        many => format!("{many} custom tools and plugins"),
    };
    let runtime = &found.report.runtime;
    let location = if runtime.is_empty() {
        ", not loaded".to_owned()
    } else {
        format!(", in {runtime}")
    };
    report.say("extensions", &format!("{count}{location}"));
    for why in &found.report.unusable_runtimes {
        report.say("extensions", &format!("not in {}", displayed_reason(why)));
    }
    report.broken.extend(
        found
            .failure
            .iter()
            .map(|why| format!("custom tools and plugins: {why}")),
    );
    for failure in &found.report.failures {
        let file = base::text::title(&failure.file);
        let why = displayed_reason(&failure.message);
        report.broken.push(format!("{file}: {why}"));
    }
    for (name, stats) in usage_stats::read(environment, &here.worktree.root) {
        if stats.has_unstable_prompt && settings.scripts.iter().any(|script| script.name == name) {
            let name = base::text::title(&name);
            report.broken.push(format!("{name} changes the system prompt each time although nothing else has changed, so no provider can cache it and each step costs more"));
        }
    }
}

async fn servers(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let servers = super::mcp::servers(here, environment);
    let tried = servers.test_servers(&here.loaded.settings.mcp).await;
    servers.end().await;
    for server in &tried {
        report.say(
            "MCP server",
            &format!("{}: {}", server.name, super::mcp::state(server)),
        );
        if let ReportedState::Failed(why) = &server.state {
            report.broken.push(format!(
                "the MCP server {}: {}",
                server.name,
                base::text::title(why)
            ));
        }
    }
    report.keep("mcpServers", tried.iter().map(super::mcp::data).collect());
}

/// Reports the language servers for files of this directory.
fn languages(report: &mut DoctorReport, here: &ProjectContext, environment: &Environment) {
    let settings = &here.loaded.settings;
    let mut list = Vec::new();
    let mut missing = Vec::new();
    for entry in &settings.language_servers {
        let ending = entry
            .extensions
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        let name = if ending.starts_with('.') {
            format!("file{ending}")
        } else {
            ending.to_owned()
        };
        match entry.run(&here.cwd.join(name), &here.worktree.root, environment) {
            Ok(None) => {}
            Ok(Some(run)) => {
                let program = run.command.0.display().to_string();
                report.say("languages", &format!("{}: {program}", entry.name));
                list.push(json!({ "name": entry.name, "program": program }));
            }
            Err(absent) => {
                if absent.install.is_none() {
                    let program = base::text::escaped(&absent.program);
                    report.broken.push(format!(
                        "the language server {}: no program {program}",
                        absent.name
                    ));
                }
                missing.push(absent.name);
            }
        }
    }
    let summary = match (settings.language_servers.is_empty(), settings.trusted) {
        (true, _) => "no language server is used (`lsp` in the settings turns them on)".to_owned(),
        (false, true) => format!("{} not installed", missing.len()),
        (false, false) => "none starts until this project is trusted (`adjutant trust`)".to_owned(),
    };
    report.say("languages", &summary);
    for (kind, section) in [
        (TrustKind::LanguageServer, "languages"),
        (TrustKind::Formatter, "formatters"),
    ] {
        withheld(report, &here.loaded.trust, kind, section);
    }
    report.keep(
        "languageServers",
        json!({ "found": list, "missing": missing, "trusted": settings.trusted }),
    );
}

/// Reports the items that are withheld until the project is trusted.
fn withheld(report: &mut DoctorReport, trust: &Review, kind: TrustKind, section: &str) {
    for item in trust.withheld(kind) {
        let state = trust.withheld_state();
        let line = format!(
            "{}: {}: {} ({})",
            item.key,
            state.as_str(),
            item.shown_detail(),
            item.location.short()
        );
        report.say(section, &base::text::escaped(&line));
    }
}
