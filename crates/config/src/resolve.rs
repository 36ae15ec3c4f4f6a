//! Resolution of settings: a joined, checked tree becomes [`Settings`].

use std::sync::Arc;
use std::time::Duration;

use super::file::{self, ConfigFile, OAuthChoice, TimeoutConfig};
use super::node::{Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use super::rules;
use super::settings::{
    AgentEntry, CommandEntry, CompactionSettings, InstructionEntry, Login, McpEntry, ModelEntry,
    ModelFamily, Price, ProviderEntry, Rates, ReferenceEntry, SandboxSettings, Secret, Settings,
    TelemetrySettings, Transport,
};
use super::{formatter, hook, language_server};
use base::child_environment::Variables;
use base::environment::Environment;
use base::text;
use transcript::ModelRef;

/// Resolves a joined tree.
pub(crate) fn settings(
    tree: &Node,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> Settings {
    // Each layer fits on its own. If they do not fit together, the offending keys are left out.
    let file: ConfigFile = super::decode::fitting(tree, problems);
    let home = environment.home.as_deref();
    let mut resolver = Resolver {
        tree,
        problems,
        foreign_models: Vec::new(),
    };
    let open_telemetry = file.experimental.open_telemetry;
    let mut settings = Settings {
        general: file.general,
        tool_output: file.tool_output,
        images: file.attachment.image,
        sessions: file.sessions,
        store: file.store.as_ref().and_then(super::store::database),
        compaction: compaction(file.compaction, environment),
        budget: file.budget,
        provider_changes: file.providers,
        webfetch: file.webfetch,
        experimental: file.experimental,
        model: resolver.model(&file.model, &["model"]),
        small_model: resolver.model(&file.small_model, &["small_model"]),
        default_agent: file.default_agent.filter(|name| !name.is_empty()),
        default_agent_location: tree.get("default_agent").map(|node| node.at.clone()),
        agents_location: tree.get("agent").map(|node| node.at.clone()),
        permission: tree
            .get("permission")
            .map(|node| rules::rules(node, home))
            .unwrap_or_default(),
        trust_all: file.trust == Some(file::TrustConfig::All),
        sandbox: tree.get("sandbox").map(sandbox).unwrap_or_default().into(),
        variables: file
            .environment
            .map(|variables| Variables {
                pass: variables.pass.unwrap_or_default(),
                drop: variables.drop.unwrap_or_default(),
            })
            .unwrap_or_default(),
        ..Settings::default()
    };
    for (name, agent) in file.agent.into_iter().flat_map(|agents| agents.0) {
        settings
            .agents
            .push(agent_entry(&mut resolver, name, agent, home));
    }
    for (id, provider) in file.provider.into_iter().flat_map(|providers| providers.0) {
        settings.providers.push(resolver.provider(id, provider));
    }
    for (name, server) in file.mcp.into_iter().flat_map(|servers| servers.0) {
        settings.mcp.extend(resolver.mcp(name, server));
    }
    settings.file_encoding = resolver.file_encoding(file.file_encoding.as_deref());
    settings.formatters = resolver.complete_entries(
        "formatter",
        "formatter",
        "$FILE",
        formatter::entries(file.formatter),
    );
    settings.language_servers = resolver.complete_entries(
        "lsp",
        "language server",
        "--stdio",
        language_server::entries(file.lsp),
    );
    for (name, written) in file.hook.into_iter().flat_map(|hooks| hooks.0) {
        settings.hooks.extend(resolver.hook(name, written));
    }
    for (name, command) in file.command.into_iter().flat_map(|commands| commands.0) {
        settings.commands.extend(resolver.command(name, command));
    }
    resolver.report_foreign_models();
    settings.instructions = instructions(tree);
    if let Some(skills) = file.skills {
        settings.skills.paths = skills.paths.unwrap_or_default();
        settings.skills.urls = skills.urls.unwrap_or_default();
    }
    if let Some(serve) = file.serve {
        settings.serve = super::serve::entry(serve, environment.home.as_deref());
    }
    settings.telemetry = resolver.telemetry(file.telemetry, open_telemetry);
    let references = file
        .references
        .into_iter()
        .flat_map(|references| references.0);
    settings.references = references
        .map(|(name, written)| reference(name, written))
        .collect();
    settings
}

/// Returns the settings of compaction, with the variables that switch parts of it off.
fn compaction(written: CompactionSettings, environment: &Environment) -> CompactionSettings {
    let is_disabled = |variable| environment.setting(variable).is_some_and(is_on);
    CompactionSettings {
        auto: written.auto && !is_disabled("DISABLE_AUTOCOMPACT"),
        prune: written.prune && !is_disabled("DISABLE_PRUNE"),
        ..written
    }
}

fn instructions(tree: &Node) -> Vec<InstructionEntry> {
    let Some(NodeValue::List(nodes)) = tree.get("instructions").map(|node| &node.value) else {
        return Vec::new();
    };
    let entry = |node: &Node| {
        let text = node.as_text()?.trim().to_owned();
        Some(InstructionEntry {
            text,
            project: node.at.origin.project,
            location: node.at.clone(),
        })
    };
    nodes
        .iter()
        .filter_map(entry)
        .filter(|instruction| !instruction.text.is_empty())
        .collect()
}

fn reference(name: String, written: file::ReferenceConfig) -> ReferenceEntry {
    match written {
        file::ReferenceConfig::Path(path) => ReferenceEntry {
            name,
            path: Some(path),
            ..ReferenceEntry::default()
        },
        file::ReferenceConfig::Full(full) => ReferenceEntry {
            name,
            path: full.path,
            repository: full.repository,
            branch: full.branch,
            description: full.description,
            hidden: full.hidden.unwrap_or(false),
        },
    }
}

/// Resolves a checked value of `sandbox`.
pub(crate) fn sandbox(node: &Node) -> SandboxSettings {
    let mode = match node.get("mode").unwrap_or(node).as_text() {
        Some("required") => file::SandboxMode::Required,
        Some("off") => file::SandboxMode::Off,
        _ => file::SandboxMode::Auto,
    };
    let list = |key: &str| match node.get(key).map(|node| &node.value) {
        Some(NodeValue::List(list)) => list
            .iter()
            .filter_map(Node::as_text)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    let on = |key: &str| node.get(key).and_then(Node::as_bool);
    SandboxSettings {
        mode,
        writable: list("writable"),
        network: on("network"),
        unattended: on("unattended") != Some(false),
        hide: list("hide"),
        show: list("show"),
    }
}

/// Returns whether the value of a switch variable means "on".
pub(crate) fn is_on(value: &str) -> bool {
    !matches!(
        value.to_ascii_lowercase().as_str(),
        "0" | "false" | "no" | "off"
    )
}

fn agent_entry(
    resolver: &mut Resolver<'_>,
    name: String,
    agent: file::AgentConfig,
    home: Option<&std::path::Path>,
) -> AgentEntry {
    let node = resolver.tree.at(&["agent", &name]);
    let model = resolver.model_or_family(&agent.model, &["agent", &name, "model"]);
    AgentEntry {
        label: agent.name.filter(|label| *label != name),
        description: agent.description,
        mode: agent.mode,
        hidden: agent.hidden,
        disable: agent.disable.unwrap_or(false),
        model: model.model,
        family: model.family,
        variant: agent.variant,
        prompt: agent
            .prompt
            .map(|prompt| Arc::from(prompt.trim()))
            .filter(|prompt: &Arc<str>| !prompt.is_empty()),
        temperature: agent.temperature,
        top_p: agent.top_p,
        color: agent.color,
        steps: agent.steps,
        options: agent.options.unwrap_or_default(),
        rules: node
            .and_then(|node| node.get("permission"))
            .map(|node| rules::rules(node, home))
            .unwrap_or_default(),
        source: node
            .map(|node| node.at.origin.name.clone())
            .unwrap_or_default(),
        name,
    }
}

/// The joined tree, to look up the locations of further problems.
struct Resolver<'a> {
    tree: &'a Node,
    problems: &'a mut Vec<Problem>,
    /// The words of other programs in place of models, with their locations.
    foreign_models: Vec<(String, SourceLocation)>,
}

/// The word of other programs for the session's model.
const INHERIT: &str = "inherit";

/// The model of an agent or a command.
struct OwnModel {
    model: Option<ModelRef>,
    family: Option<ModelFamily>,
}

impl Resolver<'_> {
    fn report(&mut self, code: ProblemCode, path: &[&str], text: String, hint: Option<&str>) {
        let at = self.tree.at(path).map_or(&self.tree.at, |node| &node.at);
        let mut problem = Problem::error(code, at, path.join("."), text);
        problem.hint = hint.map(str::to_owned);
        self.problems.push(problem);
    }

    /// Returns the export of traces and metrics. It is off if its address cannot be used, because
    /// they must not go to another one.
    fn telemetry(
        &mut self,
        written: Option<file::TelemetryConfig>,
        open_telemetry: Option<bool>,
    ) -> TelemetrySettings {
        let written = written.unwrap_or_default();
        let mut telemetry = TelemetrySettings {
            enabled: written.enabled.or(open_telemetry).unwrap_or(false),
            endpoint: written.endpoint,
            headers: written.headers.unwrap_or_default().0,
            content: written.content.unwrap_or(false),
        };
        // An address of another type was removed when the file was checked.
        let is_removed = self.problems.iter().any(|problem| {
            problem.code == ProblemCode::WrongValue
                && problem.key == "telemetry.endpoint"
                && !problem.location.origin.project
        });
        if is_removed && telemetry.endpoint.is_none() {
            telemetry.enabled = false;
        }
        let is_address = |text: &String| {
            let rest = text
                .strip_prefix("http://")
                .or_else(|| text.strip_prefix("https://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains([' ', '?', '#']))
        };
        if let Some(endpoint) = telemetry.endpoint.take_if(|text| !is_address(text)) {
            telemetry.enabled = false;
            self.report(
                ProblemCode::WrongValue,
                &["telemetry", "endpoint"],
                format!(
                    "\"{}\" is not the address of a collector, so nothing is sent",
                    text::escaped(&endpoint)
                ),
                Some("write it as http://localhost:4318"),
            );
        }
        telemetry
    }

    /// Returns the named encoding of files; reports a problem if there is none of that name.
    fn file_encoding(&mut self, label: Option<&str>) -> Option<&'static encoding_rs::Encoding> {
        let label = label?;
        let found = encoding_rs::Encoding::for_label_no_replacement(label.as_bytes());
        if found.is_none() {
            self.report(
                ProblemCode::WrongValue,
                &["file_encoding"],
                format!("there is no encoding \"{}\"", text::escaped(label)),
                Some("use a name of the Encoding Standard, such as gbk, shift_jis, euc-kr, windows-1251, latin1 or utf-16le"),
            );
        }
        found
    }

    /// Returns the known or completely described programs; reports a problem for each of the
    /// others.
    fn complete_entries<T>(
        &mut self,
        key: &str,
        kind: &str,
        argument: &str,
        (all, incomplete): (Vec<T>, Vec<String>),
    ) -> Vec<T> {
        for name in incomplete {
            let text =
                format!("adjutant does not know this {kind}; it needs a command and extensions");
            let hint =
                format!("\"command\": [\"program\", \"{argument}\"], \"extensions\": [\".x\"]");
            self.report(ProblemCode::Incomplete, &[key, &name], text, Some(&hint));
        }
        all
    }

    fn source(&self, path: &[&str]) -> String {
        self.tree
            .at(path)
            .map(|node| node.at.short())
            .unwrap_or_default()
    }

    /// Returns the model of an agent or a command: a certain one, or what other programs write in
    /// its place.
    fn model_or_family(&mut self, text: &Option<String>, path: &[&str]) -> OwnModel {
        let word = text.as_deref().unwrap_or_default().trim();
        let family = ModelFamily::parse(word);
        if family.is_none() && word != INHERIT {
            return OwnModel {
                model: self.model(text, path),
                family: None,
            };
        }
        let location = self.tree.at(path).map_or(&self.tree.at, |node| &node.at);
        self.foreign_models
            .push((word.to_owned(), location.clone()));
        OwnModel {
            model: None,
            family,
        }
    }

    /// Reports the models of [`Self::model_or_family`] that other programs write, all in one note.
    fn report_foreign_models(&mut self) {
        let Some((_, first)) = self.foreign_models.first() else {
            return;
        };
        let count = self.foreign_models.len();
        let mut words: Vec<&str> = self
            .foreign_models
            .iter()
            .map(|(word, _)| word.as_str())
            .collect();
        words.sort_unstable();
        words.dedup();
        let files = if count == 1 {
            "this agent or command names".to_owned()
        } else {
            format!("{count} agents and commands name")
        };
        let text = format!(
            "{files} a model as another program does ({}): the newest model of that family answers, if the provider in use has one, otherwise the session's model",
            words.join(", ")
        );
        self.problems.push(Problem::note(
            ProblemCode::OldSpelling,
            first,
            "model",
            text,
        ));
    }

    fn model(&mut self, text: &Option<String>, path: &[&str]) -> Option<ModelRef> {
        let text = text
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())?;
        let model = ModelRef::parse(text);
        if model.is_none() {
            let text =
                format!("expected provider/model, such as \"openai/gpt-5\", found \"{text}\"");
            self.report(
                ProblemCode::WrongValue,
                path,
                text,
                Some("`adjutant models` lists the models"),
            );
        }
        model
    }

    fn provider(&mut self, id: String, provider: file::ProviderConfig) -> ProviderEntry {
        let source = self.source(&["provider", &id]);
        let options = provider.options.unwrap_or_default();
        let mut to = ProviderEntry {
            catalog_id: provider.id.filter(|known| *known != id),
            name: provider.name,
            npm: provider.npm,
            base_url: options
                .base_url
                .filter(|url| !url.is_empty())
                .or(provider.api),
            api_key: options
                .api_key
                .filter(|key| !key.is_empty())
                .map(Secret::new),
            env: provider.env.unwrap_or_default(),
            login: provider.login.map(|login| Login {
                client_id: login.client_id,
                authorize_url: login.authorize_url,
                token_url: login.token_url,
                device_url: login.device_url,
                scopes: login.scopes,
            }),
            headers: options.headers.unwrap_or_default().0,
            cache_key: options.set_cache_key,
            whitelist: provider.whitelist,
            blacklist: provider.blacklist.unwrap_or_default(),
            options: options.rest,
            source,
            ..ProviderEntry::default()
        };
        if let Some(url) = options.enterprise_url {
            to.options.insert("enterpriseUrl".into(), url.into());
        }
        for (from, to) in [
            (options.timeout, &mut to.timeouts.total),
            (options.header_timeout, &mut to.timeouts.first_byte),
            (options.chunk_timeout, &mut to.timeouts.idle),
        ] {
            match from {
                Some(TimeoutConfig::Milliseconds(0)) | Some(TimeoutConfig::Limited(false)) => {
                    *to = None
                }
                Some(TimeoutConfig::Milliseconds(ms)) => *to = Some(Duration::from_millis(ms)),
                Some(TimeoutConfig::Limited(true)) | None => {}
            }
        }
        to.models = provider
            .models
            .unwrap_or_default()
            .0
            .into_iter()
            .map(|(key, model)| one_model(key, model))
            .collect();
        to.id = id;
        to
    }

    fn mcp(&mut self, name: String, server: file::McpConfig) -> Option<McpEntry> {
        let path = ["mcp", name.as_str()];
        let kind = server.kind.or(match (&server.command, &server.url) {
            (Some(_), None) => Some(file::McpKind::Local),
            (None, Some(_)) => Some(file::McpKind::Remote),
            _ => None,
        });
        let transport = match kind {
            None => {
                // No problem if an entry only disables a server that another layer no longer has.
                if server.enabled != Some(false) {
                    self.report(
                        ProblemCode::Incomplete,
                        &path,
                        "expected \"type\": local with a command, or remote with a url".into(),
                        None,
                    );
                }
                return None;
            }
            Some(file::McpKind::Local) => match server.command {
                Some(command) if command.first().is_some_and(|program| !program.is_empty()) => {
                    Transport::Local {
                        command,
                        cwd: server.cwd,
                        environment: server.environment.unwrap_or_default().0,
                    }
                }
                _ => {
                    self.report(
                        ProblemCode::Incomplete,
                        &path,
                        "a local server needs a command, as a list".into(),
                        Some("\"command\": [\"program\", \"argument\"]"),
                    );
                    return None;
                }
            },
            Some(file::McpKind::Remote) => match server.url {
                Some(url) => {
                    let headers = server.headers.unwrap_or_default().0;
                    if let Some(why) = super::mcp::refused(&url, &headers) {
                        self.report(ProblemCode::WrongValue, &["mcp", &name, "url"], why, None);
                        return None;
                    }
                    let oauth = match server.oauth {
                        Some(OAuthChoice::Switch(false)) => None,
                        Some(OAuthChoice::Settings(oauth)) => Some(oauth),
                        Some(OAuthChoice::Switch(true)) | None => {
                            Some(super::settings::OAuth::default())
                        }
                    };
                    Transport::Remote {
                        url,
                        headers,
                        oauth,
                        sse: false,
                    }
                }
                None => {
                    self.report(
                        ProblemCode::Incomplete,
                        &path,
                        "a remote server needs a url".into(),
                        None,
                    );
                    return None;
                }
            },
        };
        let source = self.source(&path);
        let call_timeout = server
            .timeout
            .filter(|ms| *ms > 0)
            .map(Duration::from_millis);
        let timeout = call_timeout.unwrap_or(Duration::from_secs(30));
        Some(McpEntry {
            name,
            enabled: server.enabled.unwrap_or(true),
            timeout,
            call_timeout,
            sampling: server.sampling.unwrap_or(false),
            log: server.log,
            transport,
            source,
        })
    }

    fn hook(&mut self, name: String, written: file::HookConfig) -> Option<hook::HookEntry> {
        let path = ["hook", name.as_str()];
        let project = self
            .tree
            .at(&path)
            .is_some_and(|node| node.at.origin.project);
        let source = self.source(&path);
        match hook::entry(name.clone(), written, project, source) {
            Ok(hook) => hook,
            Err(why) => {
                self.report(
                    ProblemCode::Incomplete,
                    &path,
                    why.into(),
                    Some("\"on\": \"tool.after\", \"command\": [\"program\"]"),
                );
                None
            }
        }
    }

    fn command(&mut self, name: String, command: file::CommandConfig) -> Option<CommandEntry> {
        let path = ["command", name.as_str()];
        let Some(template) = command
            .template
            .filter(|template| !template.trim().is_empty())
        else {
            self.report(
                ProblemCode::Incomplete,
                &path,
                "a command needs a template".into(),
                Some("\"template\": \"what is sent\""),
            );
            return None;
        };
        let model = self.model_or_family(&command.model, &["command", &name, "model"]);
        Some(CommandEntry {
            template,
            description: command.description,
            agent: command.agent,
            model: model.model,
            family: model.family,
            variant: command.variant,
            subtask: command.subtask,
            hint: command.argument_hint.filter(|hint| !hint.trim().is_empty()),
            source: self.source(&path),
            location: self.tree.at(&path).map(|node| node.at.clone()),
            untrusted: false,
            has_untrusted_agent: false,
            name,
        })
    }
}

fn price(cost: file::CostConfig) -> Price {
    let rates = |input: Option<f64>, output: Option<f64>, read, write| {
        Rates::new(input.unwrap_or(0.0), output.unwrap_or(0.0), read, write)
    };
    let tier = |size: u64, cost: &serde_json::Value| {
        let of = |name: &str| cost.get(name).and_then(serde_json::Value::as_f64);
        (
            size,
            rates(
                of("input"),
                of("output"),
                of("cache_read"),
                of("cache_write"),
            ),
        )
    };
    let tiers = cost.tiers.iter().flatten();
    let mut longer: Vec<_> = tiers
        .filter_map(|tiered| Some(tier(tiered.pointer("/tier/size")?.as_u64()?, tiered)))
        .collect();
    if longer.is_empty() {
        longer.extend(
            cost.context_over_200k
                .as_ref()
                .map(|over| tier(200_000, over)),
        );
    }
    longer.sort_by_key(|(size, _)| *size);
    Price {
        base: rates(cost.input, cost.output, cost.cache_read, cost.cache_write),
        long_requests: longer,
    }
}

fn one_model(key: String, model: file::ModelConfig) -> ModelEntry {
    let limit = model.limit.unwrap_or_default();
    let price = model.cost.map(price);
    let variants = model
        .variants
        .unwrap_or_default()
        .0
        .into_iter()
        .map(|(name, mut options)| {
            let disabled =
                options.remove("disabled").and_then(|value| value.as_bool()) == Some(true);
            (name, (!disabled).then_some(options))
        });
    let reasoning_field = match &model.interleaved {
        Some(serde_json::Value::String(field)) => Some(field.clone()),
        Some(serde_json::Value::Object(object)) => object
            .get("field")
            .and_then(|field| field.as_str())
            .map(str::to_owned),
        Some(serde_json::Value::Bool(true)) => Some("reasoning_content".to_owned()),
        _ => None,
    };
    let provider = model.provider.unwrap_or_default();
    ModelEntry {
        key,
        id: model.id,
        name: model.name,
        attachment: model.attachment,
        reasoning: model.reasoning,
        temperature: model.temperature,
        tool_call: model.tool_call,
        reasoning_field,
        release_date: model.release_date,
        price,
        efforts: None,
        context: limit.context.filter(|n| *n > 0),
        has_own_window: false,
        input: limit.input.filter(|n| *n > 0),
        output: limit.output.filter(|n| *n > 0),
        modalities: model.modalities.and_then(|modalities| modalities.input),
        status: model.status,
        npm: provider.npm,
        api: provider.api,
        options: model.options.unwrap_or_default(),
        headers: model.headers.unwrap_or_default().0,
        variants: variants.collect(),
    }
}
