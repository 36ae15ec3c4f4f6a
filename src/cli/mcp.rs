//! `adjutant mcp`: lists the MCP servers of this directory, logs in to them and calls their tools.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value, json};

use clap_complete::ArgValueCandidates;

use super::JsonListing;
use super::complete;
use super::listing::{self, ListEntry, UnusedEntry};
use super::project_context::ProjectContext;
use super::reply;
use super::terminal;
use base::environment::Environment;
use base::listing::EntryState;
use base::text;
use config::own_file;
use config::settings::{McpEntry, OAuth, Transport};
use config::trust::{TrustItem, TrustKind};
use events::{EventSender, FieldKind, FormPage, FormReply, FormRequest, TurnMessage};
use mcp::credential_store::StoredLogin;
use mcp::inventory::{ReportedState, ServerReport};
use mcp::login;
use mcp::{McpServers, McpSessionOptions};
use permission::{AccessRequest, Action, RequestEffect};
use providers::http::HttpClient;

/// Options of `adjutant mcp`.
pub(super) type Args = super::CommandOrList<Verb, JsonListing>;

impl Args {
    /// Returns whether it does something that only the user may do: log in or out, call a tool,
    /// change settings.
    pub(super) fn acts(&self) -> bool {
        !matches!(
            self.verb,
            None | Some(
                Verb::List(_) | Verb::Tools { .. } | Verb::Add(Addition { write: false, .. })
            )
        )
    }
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Connect to every server, and show which ones work (default)
    #[command(alias = "ls")]
    List(JsonListing),
    /// Log in to a remote server with a browser
    Login {
        /// Name of the server in the settings
        #[arg(add = ArgValueCandidates::new(complete::servers))]
        name: String,
        /// URL of a server that only your editor configures
        #[arg(long)]
        url: Option<String>,
    },
    /// Delete the stored login of a server
    Logout {
        /// Name of the server in the settings
        #[arg(add = ArgValueCandidates::new(complete::servers))]
        name: String,
    },
    /// List the tools of a server
    Tools {
        /// Name of the server in the settings
        #[arg(add = ArgValueCandidates::new(complete::servers))]
        name: String,
        /// Print JSON: a list with an object for each tool, with its schema
        #[arg(long)]
        json: bool,
    },
    /// Call a tool of a server, and print the result
    ///
    /// Asks first, unless the rules of the agent `build` allow the tool.
    Call {
        /// Name of the server in the settings
        #[arg(add = ArgValueCandidates::new(complete::servers))]
        name: String,
        /// Tool, as `adjutant mcp tools` lists it
        tool: String,
        /// Arguments of the tool, as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        /// Do not ask, and answer the server's own questions with the defaults it proposes
        #[arg(long)]
        allow: bool,
    },
    /// Print the settings for a new server, or write them
    ///
    /// For a program: `adjutant mcp add NAME -- PROGRAM ARGUMENT`. For a remote server:
    /// `adjutant mcp add NAME --url URL`.
    #[command(
        override_usage = "adjutant mcp add [OPTIONS] <NAME> -- <PROGRAM> [ARGUMENT]...\n       adjutant mcp add [OPTIONS] <NAME> --url <URL>"
    )]
    Add(Addition),
    /// Remove a server from adjutant's own settings file
    #[command(aliases = ["rm", "delete"])]
    Remove {
        /// Name of the server in the settings
        #[arg(add = ArgValueCandidates::new(complete::servers))]
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Addition {
    /// Name for the server; its tools are called NAME_tool
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// URL of a remote server
    #[arg(long, conflicts_with = "command", required_unless_present = "command")]
    url: Option<String>,
    /// Header to send with every request. Can be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// Environment variable for the program. Can be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url")]
    env: Vec<String>,
    /// Write them into adjutant's own settings file instead of printing them
    #[arg(long)]
    write: bool,
    /// Program that runs the server, and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

pub(super) async fn mcp(args: Args, environment: &Environment) -> anyhow::Result<u8> {
    match args.verb.unwrap_or(Verb::List(args.listing)) {
        Verb::List(JsonListing { json }) => list(json, environment).await,
        Verb::Login { name, url } => log_in(&name, url, environment).await,
        Verb::Logout { name } => log_out(&name, environment),
        Verb::Tools { name, json } => tools(&name, json, environment).await,
        Verb::Call {
            name,
            tool,
            arguments,
            allow,
        } => call(&name, &tool, &arguments, allow, environment).await,
        Verb::Add(addition) => add(&addition, environment),
        Verb::Remove { name } => remove(&name, environment),
    }
}

/// Returns the servers of a directory, not yet started.
pub(super) fn servers(here: &ProjectContext, environment: &Environment) -> McpServers {
    servers_for(here, environment, false)
}

/// Returns the servers of a directory; `is_attended` means that the user can answer their questions.
fn servers_for(here: &ProjectContext, environment: &Environment, is_attended: bool) -> McpServers {
    let client = Arc::new(HttpClient::new(environment));
    let catalog_dir = Some(mcp::catalog_dir(environment, None));
    let session = McpSessionOptions {
        is_attended,
        catalog_dir,
        ..McpSessionOptions::default()
    };
    McpServers::new(
        (&here.cwd, &[]),
        environment,
        &here.loaded.settings,
        client,
        session,
    )
}

async fn list(json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let servers = servers(&here, environment);
    let reports = servers.test_servers(&here.loaded.settings.mcp).await;
    servers.end().await;
    let unused = unused(&here);
    let trust = &here.loaded.trust;
    let withheld = listing::withheld(trust, TrustKind::Mcp, "mcp");
    let failed = reports
        .iter()
        .any(|report| matches!(report.state, ReportedState::Failed(_)))
        || !unused.is_empty();
    if json {
        let wrong = |server: &UnusedEntry| {
            json!({"name": server.name, "source": server.source, "place": null, "state": "invalid", "why": server.why,
                "milliseconds": 0, "tools": [], "prompts": [], "resources": []})
        };
        let waiting = |item: &TrustItem| {
            let name = item.key.strip_prefix("mcp.").unwrap_or(&item.key);
            json!({"name": name, "source": item.location.short(), "place": item.shown_detail(), "state": "untrusted",
                "why": trust.withheld_state().as_str(), "milliseconds": 0, "tools": [], "prompts": [], "resources": []})
        };
        let all = reports
            .iter()
            .map(data)
            .chain(unused.iter().map(wrong))
            .chain(trust.withheld(TrustKind::Mcp).map(waiting));
        let all: Vec<Value> = all.collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(u8::from(failed));
    }
    let mut entries: Vec<ListEntry> = reports.iter().map(entry).collect();
    entries.extend(unused.iter().map(ListEntry::failed));
    entries.extend(withheld);
    if entries.is_empty() {
        super::say("No MCP servers are configured here. `adjutant mcp add` prints what to write.");
    } else {
        super::say(&listing::list(&entries));
    }
    for report in &reports {
        if let Some(stderr) = written(report) {
            super::say(&stderr);
        }
    }
    if let Some(notice) = trust.notice() {
        super::say(&notice);
    }
    Ok(u8::from(failed))
}

/// Returns the output of a failed server, if it is more than the line that is in the list.
fn written(report: &ServerReport) -> Option<String> {
    let stderr = report.stderr.trim();
    if stderr.lines().count() < 2 {
        return None;
    }
    let lines = stderr
        .lines()
        .map(|line| format!("  {}", text::escaped(line)));
    let name = text::escaped(&report.name);
    Some(format!(
        "\n{name} wrote:\n{}",
        lines.collect::<Vec<_>>().join("\n")
    ))
}

/// Returns the entry of a server in the list.
fn entry(report: &ServerReport) -> ListEntry {
    let (state, about) = match &report.state {
        ReportedState::Connected => (EntryState::Active, format!("{}: ", state(report))),
        ReportedState::Disabled => (EntryState::Off, String::new()),
        ReportedState::NeedsLogin(why) => (EntryState::NeedsLogin, format!("{why}: ")),
        ReportedState::Failed(why) => (EntryState::Failed, format!("{why}: ")),
    };
    ListEntry {
        name: text::escaped(&report.name),
        state,
        about: text::escaped(&format!("{about}{} ({})", report.address, report.source)),
    }
}

/// Describes the state of a server in a few words.
pub(super) fn state(report: &ServerReport) -> String {
    match &report.state {
        ReportedState::Connected => {
            let kinds = [
                (report.tools.len(), "tool"),
                (report.prompts.len(), "prompt"),
                (report.resources.len(), "resource"),
            ];
            let counts = kinds
                .iter()
                .filter(|(n, what)| *n > 0 || *what == "tool")
                .map(|(n, what)| text::count(*n, what));
            let mut counts: Vec<String> = counts.collect();
            if report.is_cut {
                counts.push("more than the limit allows".to_owned());
            }
            if !report.unreadable.is_empty() {
                counts.push(unreadable(&report.unreadable));
            }
            let counts = counts.join(", ");
            format!("connected, {counts}, in {} ms", report.took.as_millis())
        }
        ReportedState::Disabled => "disabled".to_owned(),
        ReportedState::NeedsLogin(why) => text::title(why),
        ReportedState::Failed(why) => format!("failed: {}", text::title(why)),
    }
}

/// Describes the tools that cannot be read, and names the first of them.
fn unreadable(tools: &[String]) -> String {
    const MAX_NAMED: usize = 5;
    let named: Vec<String> = tools
        .iter()
        .take(MAX_NAMED)
        .map(|tool| text::title(tool))
        .collect();
    let more = match tools.len() - named.len() {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    let count = text::count(tools.len(), "tool");
    format!("{count} that cannot be read: {}{more}", named.join("; "))
}

pub(super) fn data(report: &ServerReport) -> Value {
    let (state, why) = match &report.state {
        ReportedState::Connected => ("connected", None),
        ReportedState::Disabled => ("disabled", None),
        ReportedState::NeedsLogin(why) => ("needs-login", Some(why)),
        ReportedState::Failed(why) => ("failed", Some(why)),
    };
    let tools: Vec<&str> = report.tools.iter().map(|tool| tool.name.as_str()).collect();
    json!({"name": report.name, "source": report.source, "place": report.address, "state": state, "why": why,
        "wrote": report.stderr,
        "milliseconds": u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX), "tools": tools,
        "unreadable": report.unreadable,
        "prompts": report.prompts, "resources": report.resources})
}

/// Returns the servers that are not used because their settings are invalid.
fn unused(here: &ProjectContext) -> Vec<UnusedEntry> {
    let inside = [
        ".command",
        ".url",
        ".type",
        ".headers",
        ".environment",
        ".cwd",
        ".oauth",
        ".timeout",
    ];
    let known = &here.loaded.settings.mcp;
    let is_known = |name: &str| known.iter().any(|entry| entry.name == name);
    listing::unused(&here.problems, "mcp", &inside, is_known)
}

/// Returns the error about a server of the project's settings that is off for lack of trust.
fn withheld(name: &str, here: &ProjectContext) -> Option<anyhow::Error> {
    let trust = &here.loaded.trust;
    let mut servers = trust.withheld(TrustKind::Mcp);
    let item = servers.find(|item| item.key.strip_prefix("mcp.") == Some(name))?;
    let place = item.location.short();
    Some(if trust.withheld_state() == EntryState::NotTrusted {
        anyhow!(
            "the MCP server \"{name}\" ({place}) is off, because you do not trust this project: \
             `adjutant trust` shows what it asks for and asks again"
        )
    } else {
        anyhow!(
            "the MCP server \"{name}\" ({place}) waits until you trust this project: `adjutant trust` \
             shows what it asks for and asks you"
        )
    })
}

/// Returns a server of the settings.
fn find<'a>(name: &str, here: &'a ProjectContext) -> anyhow::Result<&'a McpEntry> {
    let all = &here.loaded.settings.mcp;
    all.iter().find(|entry| entry.name == name).ok_or_else(|| {
        if let Some(why) = withheld(name, here) {
            return why;
        }
        let near = text::nearest(name, all.iter().map(|entry| entry.name.as_str()));
        let near = near
            .map(|near| format!(" Did you mean {near}?"))
            .unwrap_or_default();
        let trust = here
            .loaded
            .trust
            .notice()
            .map(|notice| format!(" {notice}"))
            .unwrap_or_default();
        if let Some(server) = unused(here).into_iter().find(|server| server.name == name) {
            return anyhow!("{name} is not used: {} ({})", server.why, server.source);
        }
        let list = if near.is_empty() && trust.is_empty() {
            " `adjutant mcp` lists them."
        } else {
            ""
        };
        anyhow!("the settings have no MCP server \"{name}\".{near}{trust}{list}")
    })
}

async fn log_in(name: &str, url: Option<String>, environment: &Environment) -> anyhow::Result<u8> {
    let (url, oauth) = match url {
        Some(url) => (url, OAuth::default()),
        None => {
            let here = ProjectContext::read(Path::new("."), environment)?;
            match &find(name, &here)?.transport {
                Transport::Local { .. } => {
                    bail!("{name} is a program on this machine; it has no login")
                }
                Transport::Editor { .. } => {
                    bail!("{name} is provided by an editor; it has no login")
                }
                Transport::Remote { oauth: None, .. } => {
                    bail!("\"oauth\" is false for {name} in the settings, so it has no login")
                }
                Transport::Remote {
                    url,
                    oauth: Some(oauth),
                    ..
                } => (url.clone(), oauth.clone()),
            }
        }
    };
    let stored = StoredLogin::new(name, &url, environment);
    let client = Arc::new(HttpClient::new(environment));
    let show = |address: &str| {
        super::auth::show_step(&format!(
            "Open this address in a browser on this machine:\n\n  {address}\n"
        ))
    };
    let login = login::log_in(name, &url, &oauth, &stored, &client, show);
    let instead = format!("run `adjutant mcp login {name}` in a terminal instead");
    let done = super::auth::await_browser_login(login, &instead).await?;
    done.map_err(|why| anyhow!("the login to {name} failed: {why}"))?;
    super::say(&format!(
        "{name}: logged in; saved in {}, readable only by you.",
        stored.path().display()
    ));
    Ok(0)
}

fn log_out(name: &str, environment: &Environment) -> anyhow::Result<u8> {
    let stored = StoredLogin::new(name, "", environment);
    let (ours, theirs) = stored.entries_for_name();
    if ours {
        stored
            .remove()
            .with_context(|| format!("{} cannot be written", stored.path().display()))?;
        super::say(&format!("{name}: forgotten."));
    }
    if theirs {
        super::say(&format!(
            "OpenCode has a login for {name} too, which adjutant uses and does not change; `opencode mcp logout {name}` removes it."
        ));
    } else if !ours {
        bail!("no login is stored for \"{name}\"");
    }
    Ok(0)
}

async fn tools(name: &str, json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let entry = find(name, &here)?.clone();
    let servers = servers(&here, environment);
    let reports = servers
        .test_servers(&[McpEntry {
            enabled: true,
            ..entry
        }])
        .await;
    servers.end().await;
    let Some(report) = reports.first() else {
        return Ok(1);
    };
    if !matches!(report.state, ReportedState::Connected) {
        bail!("{name}: {}", state(report));
    }
    if json {
        let encode_tool = |tool: &mcp::inventory::ToolReport| json!({"name": tool.name_on_server, "tool": tool.name, "description": tool.description, "inputSchema": tool.schema});
        let all: Vec<Value> = report.tools.iter().map(encode_tool).collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    for tool in &report.tools {
        let first = tool.description.lines().next().unwrap_or_default();
        super::say(&format!("{}: {}", tool.name_on_server, text::title(first)));
    }
    Ok(0)
}

async fn call(
    name: &str,
    tool: &str,
    arguments: &str,
    allow: bool,
    environment: &Environment,
) -> anyhow::Result<u8> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments)
        .context("the arguments are not a JSON object, such as '{\"word\": \"milk\"}'")?;
    let here = ProjectContext::read(Path::new("."), environment)?;
    let entry = find(name, &here)?.clone();
    let person = terminal::question::has_user();
    let servers = servers_for(&here, environment, allow || person);
    let reports = servers
        .test_servers(&[McpEntry {
            enabled: true,
            ..entry
        }])
        .await;
    let Some(report) = reports.first() else {
        return Ok(1);
    };
    if !matches!(report.state, ReportedState::Connected) {
        bail!("{name}: {}", state(report));
    }
    let Some(found) = report
        .tools
        .iter()
        .find(|known| known.name_on_server == tool || known.name == tool)
    else {
        let near = text::nearest(
            tool,
            report
                .tools
                .iter()
                .map(|known| known.name_on_server.as_str()),
        );
        let near = near
            .map(|near| format!(" Did you mean {near}?"))
            .unwrap_or_default();
        bail!("{name} has no tool \"{tool}\".{near}");
    };
    let policy = super::permissions::policy("build", &here, environment)?;
    let verdict = policy.judge(&AccessRequest {
        effect: RequestEffect::Unknown,
        ..AccessRequest::new(&found.name, "*")
    });
    let denied = verdict.action == Action::Deny;
    // Without the reason, a question about an allowed tool is a riddle.
    let note = match &verdict.reason {
        Some(reason) if verdict.action == Action::Ask => {
            Some(format!("note: {}: {reason}", found.name))
        }
        _ => None,
    };
    let may = if verdict.action == Action::Ask && person && !allow {
        let shown = text::title(&Value::Object(arguments.clone()).to_string());
        let reason = note.map(|note| note + "\n").unwrap_or_default();
        agree(
            &format!(
                "{reason}Call {} of {name} with {shown}? [y/N/?]",
                found.name_on_server
            ),
            "y  calls it this once; n  does not",
            environment,
        )?
    } else {
        if let Some(note) = note {
            terminal::print_note(&note);
        }
        verdict.action == Action::Allow || (verdict.action == Action::Ask && allow)
    };
    if !may {
        terminal::print_note(&format!(
            "adjutant: {} is not allowed{}",
            found.name,
            if denied {
                " by the rules"
            } else {
                "; --allow allows it"
            }
        ));
        servers.end().await;
        return Ok(5);
    }
    let (event_sender, mut up) = EventSender::new();
    let done = {
        let calling = servers.call(name, &found.name_on_server, arguments, event_sender);
        tokio::pin!(calling);
        loop {
            tokio::select! {
                done = &mut calling => break done,
                Some(message) = up.recv() => if let TurnMessage::AskForm(form) = message {
                    answer(*form, allow, environment);
                },
            }
        }
    };
    servers.end().await;
    match done {
        Ok(output) => {
            super::say(&output.text);
            for file in &output.attachments {
                super::say(&format!(
                    "[{}, {} bytes in base64]",
                    file.mime,
                    file.data.as_ref().map_or(0, String::len)
                ));
            }
            Ok(0)
        }
        Err(why) => bail!("{why}"),
    }
}

/// Answers a form of a server: at the terminal, field by field, or with its defaults if the user
/// must not be asked.
fn answer(form: FormRequest, allow: bool, environment: &Environment) {
    let FormRequest {
        requester,
        message,
        page,
        reply,
        ..
    } = form;
    let answer = match (&page, allow) {
        (FormPage::Fields(_), true) => page.accepted(|_| Vec::new()),
        (FormPage::Url(_), true) => FormReply::Declined,
        (page, false) => {
            fill(&requester, &message, page, environment).unwrap_or(FormReply::Cancelled)
        }
    };
    // The call may have ended.
    reply.send(answer).ok();
}

fn fill(
    requester: &str,
    message: &str,
    page: &FormPage,
    environment: &Environment,
) -> anyhow::Result<FormReply> {
    let ask = |text: &str| -> anyhow::Result<String> {
        let line = terminal::answer(&format!("{} ", text::shown(text)), environment)?;
        Ok(line.context("the input has ended")?.trim().to_owned())
    };
    let fields = match page {
        FormPage::Url(url) => {
            let question = format!(
                "{requester}: {message}\n  {url}\nOpen it in a browser, then answer [y/N/?]"
            );
            let agreed = agree(
                &question,
                "y  says that you have done what it asks; n  declines",
                environment,
            )?;
            return Ok(if agreed {
                page.accepted(|_| Vec::new())
            } else {
                FormReply::Declined
            });
        }
        FormPage::Fields(fields) => fields,
    };
    if !agree(
        &format!("{requester}: {message}\nAnswer it? [y/N/?]"),
        "y  shows its fields one by one; n  declines",
        environment,
    )? {
        return Ok(FormReply::Declined);
    }
    let mut filled: HashMap<&str, Vec<String>> = HashMap::new();
    for field in fields {
        let text = field
            .description
            .as_ref()
            .map(|text| format!(" ({text})"))
            .unwrap_or_default();
        let hint = match &field.kind {
            FieldKind::Switch(_) => " y/n".to_owned(),
            FieldKind::SingleChoice(options, _) | FieldKind::MultipleChoice(options, _) => {
                let all: Vec<&str> = options.iter().map(|option| option.value.as_str()).collect();
                format!(" {{{}}}", all.join(", "))
            }
            _ => String::new(),
        };
        let default = field
            .kind
            .default()
            .map(|value| format!(" [{value}]"))
            .unwrap_or_default();
        let line = ask(&format!("{}{text}{hint}{default}:", field.title))?;
        let answers: Vec<String> = match field.kind {
            FieldKind::MultipleChoice(..) => {
                line.split(',').map(|word| word.trim().to_owned()).collect()
            }
            _ => vec![line],
        };
        filled.insert(
            &field.key,
            answers
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect(),
        );
    }
    Ok(page.accepted(|key| filled.get(key).cloned().unwrap_or_default()))
}

/// Asks for a yes. An empty answer is a no.
fn agree(question: &str, explained: &str, environment: &Environment) -> anyhow::Result<bool> {
    let question = format!("{} ", text::shown(question));
    let ask = |words: &str| terminal::answer(words, environment);
    Ok(reply::yes_or_no(&question, explained, Some(false), ask)?.unwrap_or(false))
}

fn add(addition: &Addition, environment: &Environment) -> anyhow::Result<u8> {
    let Addition {
        name,
        url,
        header,
        env,
        write,
        command,
    } = addition;
    let pairs = |all: &[String], between: char, form: &str| -> anyhow::Result<Map<String, Value>> {
        let pair = |one: &String| {
            let (name, value) = one
                .split_once(between)
                .ok_or_else(|| anyhow!("\"{one}\" is not of the form {form}"))?;
            Ok((name.trim().to_owned(), Value::from(value.trim())))
        };
        all.iter().map(pair).collect()
    };
    let mut entry = Map::new();
    match url {
        Some(url) => {
            let headers = pairs(header, ':', "'NAME: VALUE'")?;
            let given: Vec<_> = headers
                .iter()
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect();
            if let Some(why) = config::mcp::refused(url, &given) {
                bail!("--url {url}: {why}");
            }
            entry.insert("type".into(), "remote".into());
            entry.insert("url".into(), url.as_str().into());
            if !headers.is_empty() {
                entry.insert("headers".into(), headers.into());
            }
        }
        None => {
            entry.insert("type".into(), "local".into());
            entry.insert("command".into(), command.clone().into());
            let variables = pairs(env, '=', "NAME=VALUE")?;
            if !variables.is_empty() {
                entry.insert("environment".into(), variables.into());
            }
        }
    }
    let whole = json!({"mcp": {name: entry}});
    if !write {
        super::say(&serde_json::to_string_pretty(&whole)?);
        return Ok(0);
    }
    let path = own_file::path(environment);
    own_file::add_server(&path, name, &Value::Object(entry))
        .map_err(|why| anyhow!("{}: {why}", path.display()))?;
    super::say(&format!("{name}: written into {}.", path.display()));
    Ok(0)
}

/// Removes a server from adjutant's own file. Other files are the user's to change.
fn remove(name: &str, environment: &Environment) -> anyhow::Result<u8> {
    let path = own_file::path(environment);
    let removed =
        own_file::remove_server(&path, name).map_err(|why| anyhow!("{}: {why}", path.display()))?;
    let here = ProjectContext::read(Path::new("."), environment)?;
    if !removed {
        let source = &find(name, &here)?.source;
        bail!("{name} is set in {source}, which adjutant does not change: remove it there");
    }
    super::say(&format!("{name}: removed from {}.", path.display()));
    let servers = &here.loaded.settings.mcp;
    if let Some(other) = servers.iter().find(|entry| entry.name == name) {
        super::say(&format!(
            "{} still has a server of this name.",
            other.source
        ));
    } else if StoredLogin::new(name, "", environment).entries_for_name().0 {
        super::say(&format!(
            "Its login is still stored: `adjutant mcp logout {name}` deletes it."
        ));
    }
    Ok(0)
}
