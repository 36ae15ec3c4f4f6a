//! [`PluginHandlers`] answers the calls that plugins make through OpenCode's client. Calls without a
//! counterpart in adjutant fail with their name. [`SessionState`] is the state of the session that these
//! calls read and change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::host::{ClientCall, HostListener};
use super::subagents::{self, PluginAccess, Subagents};
use base::environment::Environment;
use base::id::SessionId;
use base::lock::lock;
use base::text;
use config::Settings;
use config::builtin::AGENTS;
use config::settings::{AgentEntry, Mode};
use events::Severity;
use providers::auth::Auth;
use providers::catalog::Catalog;
use providers::platform;
use tools::BoxFuture;
use tools::todos::Todos;

/// The state of a session that plugins read and change. The mutexes are leaf locks.
#[derive(Debug, Default)]
pub(super) struct SessionState {
    pub(super) conversation: Mutex<Conversation>,
    /// The status of the session in OpenCode's format; `None` if it is idle.
    pub(super) status: Mutex<Option<Value>>,
    /// A plugin subscribes to events.
    pub(super) has_subscriber: Mutex<bool>,
    /// Texts of plugins for the model, to be added to the next prompt.
    pub(super) notes: Mutex<Vec<String>>,
    /// Prompts of plugins with which the session continues after the turn.
    pub(super) prompts: Mutex<Vec<PluginPrompt>>,
    /// Access to the running turn and to the operations of the session.
    pub(super) access: PluginAccess,
}

/// A prompt of a plugin for its own session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginPrompt {
    /// The name of the plugin's file, for display.
    pub plugin: String,
    pub text: String,
}

/// The maximum number of notes and prompts that wait.
const MAX_NOTES: usize = 20;
/// The maximum length of a note or a prompt, in bytes.
const MAX_NOTE_BYTES: usize = 20_000;

/// The maximum size of a `.git/HEAD` that is read, in bytes.
const MAX_HEAD_BYTES: u64 = 4 << 10;

/// The receiver of notices about plugins, which also counts their calls.
pub(super) trait Notifier: Send + Sync {
    /// Shows a notice to the user. `details` may be a JavaScript stack.
    fn notify(&self, severity: Severity, title: String, details: Option<String>);
    /// Records a failure of a plugin outside of a hook.
    fn record_failure(&self, file: &str, why: String);
    /// Sends an event in OpenCode's format to the plugins.
    fn send_event(&self, kind: &'static str, properties: &Value);
    /// Starts to send the events of the session to the hosts whose plugins subscribe to them.
    fn start_event_feeds(&self);
}

/// The handlers of the calls that the plugins of one host make through OpenCode's client.
pub(super) struct PluginHandlers {
    pub(super) notifier: Weak<dyn Notifier>,
    pub(super) session_state: Arc<SessionState>,
    /// The id of the session.
    pub(super) session: String,
    /// The working directory of the session.
    pub(super) directory: PathBuf,
    /// The root of the project.
    pub(super) worktree: PathBuf,
    pub(super) settings: Arc<Settings>,
    pub(super) environment: Environment,
    pub(super) todos: Arc<Todos>,
    /// The host runs the user's own files, and none of the project.
    pub(super) is_users_host: bool,
    pub(super) subagents: Subagents,
}

/// The methods of `session` that do something.
const SESSION_ACTIONS: [&str; 6] = [
    "create",
    "prompt",
    "promptAsync",
    "abort",
    "update",
    "delete",
];

/// The error for a call about another session.
const OTHER_SESSION: &str = "a plugin can access only its own session";

impl HostListener for PluginHandlers {
    fn answer_client_call(
        self: Arc<Self>,
        mut client_call: ClientCall,
    ) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            client_call.file = self.attributed_file(client_call.file);
            let method = client_call.method.clone();
            let answer = match method
                .strip_prefix("session.")
                .filter(|method| SESSION_ACTIONS.contains(method))
            {
                Some(method) => self.clone().perform_action(method, client_call).await,
                None => {
                    let handlers = self.clone();
                    // Some of the calls read files.
                    let answer =
                        base::task::spawn_blocking(move || handlers.answer_query(&client_call))
                            .await;
                    answer.unwrap_or_else(|e| Some(Err(e.to_string())))
                }
            };
            match answer {
                Some(Ok(data)) => json!({ "data": data }),
                Some(Err(why)) => json!({ "error": { "message": why } }),
                None => {
                    let method = text::title(&method);
                    self.notify(
                        Severity::Info,
                        format!("A plugin called client.{method}, which adjutant does not have."),
                    );
                    json!({ "none": format!("adjutant has no client.{method}") })
                }
            }
        })
    }

    fn record_subscription(&self) {
        *lock(&self.session_state.has_subscriber) = true;
        if let Some(notifier) = self.notifier.upgrade() {
            notifier.start_event_feeds();
        }
    }

    fn report_error(&self, params: &Value) {
        let text_of = |key: &str| params.get(key).and_then(Value::as_str).map(text::title);
        let Some(notifier) = self.notifier.upgrade() else {
            return;
        };
        let file = params
            .get("file")
            .and_then(Value::as_str)
            .map(|file| text::title(&self.attributed_file(file.to_owned())));
        let subject = file.as_ref().map_or_else(
            || "A plugin".to_owned(),
            |file| format!("The plugin {file}"),
        );
        let hook = text_of("hook")
            .map(|hook| format!(" in {hook}"))
            .unwrap_or_default();
        let why = text_of("message").unwrap_or_default();
        if let Some(file) = file {
            notifier.record_failure(&file, why.clone());
        }
        let stack = params
            .get("stack")
            .and_then(Value::as_str)
            .map(str::to_owned);
        notifier.notify(
            Severity::Warning,
            format!("{subject} failed{hook}: {why}"),
            stack,
        );
    }
}

/// The result of a call: data, or an error. `None` if there is no such call.
type CallResult = Option<Result<Value, String>>;

impl PluginHandlers {
    /// Returns the file that a call is attributed to: the named one if this host runs it. A file
    /// cannot claim the name of another host's file.
    fn attributed_file(&self, file: String) -> String {
        let is_file_of_host = |name: &str| {
            self.settings
                .scripts
                .iter()
                .any(|script| script.name == name && script.project != self.is_users_host)
        };
        if is_file_of_host(&file) {
            file
        } else {
            "(of another name)".into()
        }
    }

    fn notify(&self, severity: Severity, title: String) {
        if let Some(notifier) = self.notifier.upgrade() {
            notifier.notify(severity, title, None);
        }
    }

    /// Answers calls that change nothing, or only a login.
    fn answer_query(
        &self,
        ClientCall {
            file,
            method,
            options,
        }: &ClientCall,
    ) -> CallResult {
        match method.split_once('.') {
            Some(("session", method)) => self.answer_about_session(method, options),
            Some(("auth", "set")) if self.is_users_host => self.renew_login(options),
            Some(("auth", "set")) => Some(Err(
                "only a plugin of the user's own may renew a login".to_owned()
            )),
            Some(("adjutant", "auth")) => self.find_login(file, options),
            _ => self.answer_about_project(method, options),
        }
    }

    /// Answers calls about anything except sessions and logins.
    fn answer_about_project(&self, method: &str, options: &Value) -> CallResult {
        let text_at = |pointer: &str| {
            options
                .pointer(pointer)
                .and_then(Value::as_str)
                .map(|text| text::cut_chars(text, 2_000))
        };
        let text_of =
            |key: &str| text_at(&format!("/body/{key}")).or_else(|| text_at(&format!("/{key}")));
        let project =
            || json!({ "id": "project", "worktree": self.worktree, "time": { "created": 0 } });
        Some(Ok(match method {
            "app.log" => {
                let service = text_of("service").unwrap_or_default();
                let message = text_of("message").unwrap_or_default();
                tracing::info!("extension {}: {}", text::title(&service), text::title(&message));
                json!(true)
            }
            "tui.showToast" => {
                let message = text_of("message").unwrap_or_default();
                let title = text_of("title").map_or(message.clone(), |title| format!("{title}: {message}"));
                let severity = match text_of("variant").as_deref() {
                    Some("error") => Severity::Error,
                    Some("warning") => Severity::Warning,
                    _ => Severity::Info,
                };
                self.notify(severity, text::title(&title));
                json!(true)
            }
            "app.agents" => self.agents(),
            "command.list" => self
                .settings
                .commands
                .iter()
                .map(|command| {
                    json!({
                        "name": command.name, "description": command.description, "template": command.template,
                    })
                })
                .collect(),
            "config.get" => visible_settings(&self.settings),
            "config.providers" => json!({ "providers": self.providers(), "default": {} }),
            "provider.list" => {
                let all = self.providers();
                let ids: Vec<_> = self.settings.providers.iter().map(|provider| &provider.id).collect();
                json!({ "all": all, "default": {}, "connected": ids })
            }
            "path.get" => json!({
                "directory": self.directory, "worktree": self.worktree, "state": self.environment.dirs.state,
                "config": self.environment.dirs.config, "home": self.environment.home,
            }),
            "project.current" => project(),
            "project.list" => json!([project()]),
            "vcs.get" => {
                let head = self.worktree.join(".git/HEAD");
                let head = base::file::read_small_text(&head, MAX_HEAD_BYTES).unwrap_or_default();
                json!({ "branch": head.trim().strip_prefix("ref: refs/heads/") })
            }
            "mcp.status" => json!({}),
            "lsp.status" | "formatter.status" => json!([]),
            _ => return None,
        }))
    }

    /// Returns the built-in agents and those of the settings.
    fn agents(&self) -> Value {
        let own = &self.settings.agents;
        let built = AGENTS
            .iter()
            .filter(|built| own.iter().all(|agent| agent.name != built.name));
        let built = built.map(|built| {
            let about = (built.description, built.mode, built.hidden);
            encode_agent(built.name, about, None)
        });
        let configured = own.iter().filter(|agent| !agent.disable).map(|entry| {
            let base = AGENTS.iter().find(|built| built.name == entry.name);
            let mode = entry.mode.or(base.map(|built| built.mode));
            let hidden = entry.hidden.or(base.map(|built| built.hidden));
            let description = entry.description.as_deref();
            let description = description.or(base.map(|built| built.description));
            let about = (
                description.unwrap_or_default(),
                mode.unwrap_or(Mode::All),
                hidden.unwrap_or_default(),
            );
            encode_agent(&entry.name, about, Some(entry))
        });
        built.chain(configured).collect()
    }

    /// Returns the providers of the settings, without secrets.
    fn providers(&self) -> Value {
        self.settings
            .providers
            .iter()
            .map(encode_provider)
            .collect()
    }

    /// Answers calls about the plugins' own session and the sessions of their subagents. Other
    /// sessions are not visible.
    fn answer_about_session(&self, method: &str, options: &Value) -> CallResult {
        let state = &self.session_state;
        let id = named_session(options);
        let limit = options
            .pointer("/query/limit")
            .or_else(|| options.get("limit"))
            .and_then(Value::as_u64);
        let limit = limit.and_then(|n| n.try_into().ok()).unwrap_or(usize::MAX);
        let child = id.filter(|id| self.subagents.contains(id));
        if !matches!(method, "list" | "status")
            && child.is_none()
            && id.is_some_and(|id| id != self.session)
        {
            return Some(Err(OTHER_SESSION.to_owned()));
        }
        let children = || {
            self.subagents
                .list()
                .into_iter()
                .map(|(id, title)| self.encode_session(&id, &title))
                .collect::<Vec<_>>()
        };
        Some(Ok(match (method, child) {
            ("get", Some(child)) => self.encode_session(child, &self.subagents.title(child)),
            ("messages", Some(child)) => self.subagents.messages(child, limit),
            ("children" | "todo", Some(_)) => json!([]),
            ("get", None) => self.encode_session(&self.session, &lock(&state.conversation).title()),
            ("list", _) => {
                let own = self.encode_session(&self.session, &lock(&state.conversation).title());
                std::iter::once(own).chain(children()).collect()
            }
            ("children", None) => children().into(),
            ("status", _) => {
                let own = lock(&state.status).clone();
                let own = own.map(|status| (self.session.clone(), status));
                let children = self.subagents.busy_ids().into_iter();
                let children = children.map(|id| (id, json!({ "type": "busy" })));
                own.into_iter()
                    .chain(children)
                    .collect::<Map<_, _>>()
                    .into()
            }
            ("todo", None) => json!(self.todos.get()),
            ("messages", None) => lock(&state.conversation).messages(limit),
            ("message", None) => {
                let message = options
                    .pointer("/path/messageID")
                    .or_else(|| options.get("messageID"));
                let found = lock(&state.conversation)
                    .message(message.and_then(Value::as_str).unwrap_or_default());
                return Some(found.ok_or_else(|| "there is no such message".to_owned()));
            }
            _ => return None,
        }))
    }

    /// Encodes a session as OpenCode's client shows it.
    fn encode_session(&self, id: &str, title: &str) -> Value {
        let parent = Some(&self.session).filter(|own| *own != id);
        json!({
            "id": id, "parentID": parent, "directory": self.directory, "projectID": "project", "version": "1",
            "title": title, "time": { "created": 0, "updated": 0 },
        })
    }

    /// Performs the calls in [`SESSION_ACTIONS`], in the plugins' own session or in that of a
    /// subagent.
    async fn perform_action(
        self: Arc<Self>,
        method: &str,
        ClientCall { file, options, .. }: ClientCall,
    ) -> CallResult {
        let body = options.get("body").unwrap_or(&options);
        let id = named_session(&options);
        let child = id.filter(|id| self.subagents.contains(id));
        let parent = if method == "create" {
            body.get("parentID").and_then(Value::as_str)
        } else {
            None
        };
        if child.is_none() && id.or(parent).is_some_and(|id| id != self.session) {
            return Some(Err(OTHER_SESSION.to_owned()));
        }
        let no_reply = body.get("noReply").and_then(Value::as_bool) == Some(true);
        let title = body
            .get("title")
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|title| !title.is_empty());
        match (method, child) {
            ("create", _) => {
                let id = self.environment.fresh(SessionId::PREFIX);
                let created = self.subagents.create(&id, title.unwrap_or_default());
                Some(created.map(|()| self.encode_session(&id, &self.subagents.title(&id))))
            }
            ("update", _) => Some(self.rename_session(child, title)),
            ("abort", _) => Some(Ok(json!(self.stop_session(&file, child)))),
            ("delete", Some(child)) => {
                self.stop_session(&file, Some(child));
                Some(Ok(json!(self.subagents.remove(child))))
            }
            ("prompt" | "promptAsync", Some(child)) if no_reply => {
                let added = self.subagents.add_note(child, subagents::prompt_text(body));
                Some(added.map(|()| self.encode_prompt(child, body)))
            }
            ("prompt", Some(child)) => Some(self.prompt_subagent((child, &file), body).await),
            ("promptAsync", Some(child)) => {
                let handlers = self.clone();
                let child = child.to_owned();
                let file = file.clone();
                let body = body.clone();
                base::task::spawn(
                    async move { handlers.prompt_subagent((&child, &file), &body).await },
                );
                Some(Ok(Value::Null))
            }
            ("prompt" | "promptAsync", None) => Some(self.queue_prompt(&file, body, no_reply)),
            _ => None,
        }
    }

    /// Prompts a subagent, and returns its answer. If it cannot be started, the plugins receive the
    /// events of its end here; a subagent that runs sends its own.
    async fn prompt_subagent(
        &self,
        (child, file): (&str, &str),
        body: &Value,
    ) -> Result<Value, String> {
        let access = &self.session_state.access;
        let answer = self
            .subagents
            .prompt((child, &text::title(file)), body, access, &self.environment)
            .await;
        if let (Err(why), Some(notifier)) = (&answer, self.notifier.upgrade()) {
            let error = json!({ "name": "UnknownError", "data": { "message": why } });
            notifier.send_event(
                "session.error",
                &json!({ "sessionID": child, "error": error }),
            );
            notifier.send_event("session.idle", &json!({ "sessionID": child }));
        }
        answer
    }

    /// Renames a session.
    fn rename_session(&self, child: Option<&str>, title: Option<&str>) -> Result<Value, String> {
        let title =
            title.ok_or("a session has a title, and nothing else that a plugin may change")?;
        let title = text::cut_chars(&text::title(title), 200);
        match (child, self.session_state.access.control.get()) {
            (Some(child), _) => self.subagents.rename(child, &title),
            (None, Some(control)) => control.rename(&title),
            (None, None) => return Err("there is no session here".into()),
        }
        Ok(self.encode_session(child.unwrap_or(&self.session), &title))
    }

    /// Stops the running turn of a session, as its user would. Returns whether one was running.
    fn stop_session(&self, file: &str, child: Option<&str>) -> bool {
        let Some(control) = self.session_state.access.control.get() else {
            return false;
        };
        match child {
            Some(child) => control.stop(&SessionId::new(child)),
            None if lock(&self.session_state.status).is_some() => {
                self.notify(
                    Severity::Info,
                    format!("The plugin {} stopped a turn.", text::title(file)),
                );
                control.cancel();
                true
            }
            None => false,
        }
    }

    /// Queues a prompt for the plugins' own session. With `no_reply`, the model receives it with the
    /// user's next prompt; otherwise the session continues with it after the turn. A plugin cannot
    /// start a turn.
    fn queue_prompt(&self, file: &str, body: &Value, no_reply: bool) -> Result<Value, String> {
        let prompt = subagents::prompt_text(body);
        let mut notes = lock(&self.session_state.notes);
        let mut prompts = lock(&self.session_state.prompts);
        if notes.len() + prompts.len() >= MAX_NOTES || prompt.len() > MAX_NOTE_BYTES {
            return Err("too many texts are queued for the model".to_owned());
        }
        if prompt.trim().is_empty() {
            return Ok(self.encode_prompt(&self.session, body));
        }
        if no_reply {
            notes.push(prompt);
        } else {
            prompts.push(PluginPrompt {
                plugin: text::title(file),
                text: prompt,
            });
        }
        Ok(self.encode_prompt(&self.session, body))
    }

    /// Encodes an accepted prompt as a message.
    fn encode_prompt(&self, session: &str, body: &Value) -> Value {
        json!({ "info": { "sessionID": session, "role": "user" }, "parts": body.get("parts") })
    }

    /// Renews a stored login. No other entry can be written, because any code in the host could make
    /// this call.
    fn renew_login(&self, options: &Value) -> CallResult {
        let id = options
            .pointer("/path/id")
            .or_else(|| options.get("providerID"))
            .and_then(Value::as_str)?
            .to_owned();
        let renewed = options.get("body").or_else(|| options.get("auth"))?.clone();
        let is_login = |entry: &Value| entry.get("type").is_some_and(|kind| kind == "oauth");
        if !is_login(&renewed)
            || !Auth::read(&self.environment)
                .entry(&id)
                .is_some_and(is_login)
        {
            return Some(Err(format!("only a stored login of {id} can be renewed")));
        }
        let written = Auth::change_file(&Auth::path(&self.environment), |all| {
            drop(all.insert(id, renewed))
        });
        Some(written.map(|()| json!(true)).map_err(|e| e.to_string()))
    }

    /// Returns the stored login of a provider, the provider and its base URL, for one of the user's own
    /// plugins that logs in there. A plugin of the project gets `null`.
    fn find_login(&self, file: &str, options: &Value) -> CallResult {
        let id = options.get("provider").and_then(Value::as_str)?;
        let auth = Auth::read(&self.environment);
        if !self.is_users_host {
            // Without a stored login there is nothing to protect.
            if auth.entry(id).is_none() {
                return Some(Ok(Value::Null));
            }
            let file = text::title(file);
            let id = text::title(id);
            let title = format!(
                "The plugin {file} may not use the login of {id}, because it is part of the project: put it into your own settings."
            );
            self.notify(Severity::Info, title);
            return Some(Ok(Value::Null));
        }
        let mut provider = Catalog::load(&self.environment)
            .find(id)
            .unwrap_or_default();
        provider.id = id.to_owned();
        if let Some(settings) = self
            .settings
            .providers
            .iter()
            .find(|provider| provider.id == id)
        {
            provider = provider.overlaid_with(settings);
        }
        let base = platform::usual_address(&provider, &self.environment);
        Some(Ok(json!({
            "auth": auth.entry(id), "provider": encode_provider(&provider), "base": base,
        })))
    }
}

/// Encodes an agent as OpenCode's client shows it. `entry` is its entry in the settings.
fn encode_agent(
    name: &str,
    (description, mode, hidden): (&str, Mode, bool),
    entry: Option<&AgentEntry>,
) -> Value {
    let mut shown = json!({
        "name": name, "description": description, "mode": mode.as_str(), "hidden": hidden,
        "native": AGENTS.iter().any(|built| built.name == name), "permission": {}, "tools": {}, "options": {},
    });
    if let Some(entry) = entry {
        if let Some(color) = &entry.color {
            shown["color"] = color.as_str().into();
        }
        if let Some(model) = &entry.model {
            shown["model"] = json!({ "providerID": model.provider, "modelID": model.model });
        }
    }
    shown
}

/// Returns the id of the session that a call names, if it names one.
fn named_session(options: &Value) -> Option<&str> {
    let at = |key: &str| {
        options
            .pointer(&format!("/path/{key}"))
            .or_else(|| options.get(key))
            .and_then(Value::as_str)
    };
    at("id").or_else(|| at("sessionID"))
}

/// Encodes a provider and its models as OpenCode shows them to plugins.
pub(super) fn encode_provider(provider: &providers::entry::ProviderEntry) -> Value {
    let model = |model: &providers::entry::ModelEntry| {
        let rates = model
            .price
            .as_ref()
            .map(|price| price.base)
            .unwrap_or_default();
        let shown = json!({
            "id": model.key, "name": model.name, "providerID": provider.id,
            "api": { "id": model.id.as_ref().unwrap_or(&model.key), "npm": model.npm.as_ref().or(provider.npm.as_ref()), "url": provider.base_url },
            "cost": { "input": rates.input, "output": rates.output, "cache": { "read": rates.cache_read, "write": rates.cache_write } },
            "limit": { "context": model.context.unwrap_or(0), "output": model.output.unwrap_or(0) },
            "options": {}, "headers": {}, "status": "active",
        });
        (model.key.clone(), shown)
    };
    let models: Map<String, Value> = provider.models.iter().map(model).collect();
    json!({
        "id": provider.id, "name": provider.name.as_ref().unwrap_or(&provider.id), "source": "config", "env": provider.env,
        "options": {}, "npm": provider.npm, "models": models,
    })
}

/// Encodes the part of the settings that plugins may see.
pub(super) fn visible_settings(settings: &Settings) -> Value {
    let agents = settings.agents.iter().map(|agent| {
        let about = json!({ "description": agent.description, "model": agent.model.as_ref().map(ToString::to_string) });
        (agent.name.clone(), about)
    });
    let commands = settings.commands.iter().map(|command| {
        let about = json!({ "description": command.description, "template": command.template });
        (command.name.clone(), about)
    });
    json!({
        "model": settings.model.as_ref().map(ToString::to_string),
        "small_model": settings.small_model.as_ref().map(ToString::to_string),
        "agent": agents.collect::<Map<_, _>>(), "command": commands.collect::<Map<_, _>>(),
        "mcp": {}, "provider": {}, "permission": {}, "instructions": [], "tools": {},
        "plugin": settings.scripts.iter().map(|script| script.name.clone()).collect::<Vec<_>>(),
    })
}
