//! What plugins ask through OpenCode's client, and what they are answered. Only what has a meaning here is answered; any
//! other call fails with its name.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::host::{ClientCall, Listener};
use super::subagents::{self, Loans, Subagents};
use base::environment::Environment;
use base::id::SessionId;
use base::lock::locked;
use base::text;
use config::Settings;
use config::builtin::AGENTS;
use events::Severity;
use providers::auth::Auth;
use providers::catalog::Catalog;
use providers::platform;
use tools::BoxFuture;
use tools::todos::Todos;

/// What is heard of a session, for plugins that ask. Leaf locks.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) conversation: Mutex<Conversation>,
    /// It works on a prompt.
    pub(super) busy: Mutex<bool>,
    /// One of them subscribes to events.
    pub(super) listens: Mutex<bool>,
    /// What plugins want the model told with the next prompt.
    pub(super) notes: Mutex<Vec<String>>,
    /// What they want it to go on with, and which of them.
    pub(super) prompts: Mutex<Vec<PluginPrompt>>,
    pub(super) loans: Loans,
}

/// A plugin's prompt for the session it hooks into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginPrompt {
    /// The file, for people.
    pub plugin: String,
    pub words: String,
}

/// The most notes that wait, and the longest of them in bytes.
const NOTES: usize = 20;
const NOTE: usize = 20_000;

/// Whoever tells the user of what plugins do, and counts it.
pub(super) trait Teller: Send + Sync {
    fn tell(&self, severity: Severity, title: String, details: Option<String>);
    /// A plugin failed outside of a hook.
    fn failed(&self, file: &str, why: String);
    /// Plugins are to hear of something.
    fn happened(self: Arc<Self>, kind: &'static str, properties: Value);
}

/// Who hears what plugins say through OpenCode's client.
pub(super) struct Ears {
    pub(super) teller: Weak<dyn Teller>,
    pub(super) knowledge: Arc<Knowledge>,
    pub(super) session: String,
    pub(super) directory: PathBuf,
    pub(super) worktree: PathBuf,
    pub(super) settings: Arc<Settings>,
    pub(super) environment: Environment,
    pub(super) todos: Arc<Todos>,
    /// The host runs what is the user's own, and nothing else.
    pub(super) own: bool,
    pub(super) subagents: Subagents,
}

/// What plugins may have done in a session.
const ACTS: [&str; 6] = ["create", "prompt", "promptAsync", "abort", "update", "delete"];

/// Why a plugin is told nothing of a session.
const OTHERS: &str = "adjutant shows a plugin no session but its own";

impl Listener for Ears {
    fn client(self: Arc<Self>, mut asked: ClientCall) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            asked.file = self.called(asked.file);
            let way = asked.way.clone();
            let answer = match way.strip_prefix("session.").filter(|what| ACTS.contains(what)) {
                Some(what) => self.clone().acts(what, asked).await,
                None => {
                    let ears = self.clone();
                    // Some of it reads files.
                    let looked = base::task::spawn_blocking(move || ears.looks(&asked)).await;
                    looked.unwrap_or_else(|e| Some(Err(e.to_string())))
                }
            };
            match answer {
                Some(Ok(data)) => json!({ "data": data }),
                Some(Err(why)) => json!({ "error": { "message": why } }),
                None => {
                    let way = text::title(&way);
                    self.tell(Severity::Info, format!("A plugin called client.{way}, which adjutant does not have."));
                    json!({ "none": format!("adjutant has no client.{way}") })
                }
            }
        })
    }

    fn listens(&self) {
        *locked(&self.knowledge.listens) = true;
    }

    fn failed(&self, params: &Value) {
        let words = |key: &str| params.get(key).and_then(Value::as_str).map(text::title);
        let Some(teller) = self.teller.upgrade() else { return };
        let file = params.get("file").and_then(Value::as_str).map(|file| text::title(&self.called(file.to_owned())));
        let who = file.as_ref().map_or_else(|| "A plugin".to_owned(), |file| format!("The plugin {file}"));
        let hook = words("hook").map(|hook| format!(" in {hook}")).unwrap_or_default();
        let why = words("message").unwrap_or_default();
        if let Some(file) = file {
            teller.failed(&file, why.clone());
        }
        let stack = params.get("stack").and_then(Value::as_str).map(str::to_owned);
        teller.tell(Severity::Warning, format!("{who} failed{hook}: {why}"), stack);
    }
}

/// What a call gives: data, or why not; none where there is no such call.
type Given = Option<Result<Value, String>>;

impl Ears {
    /// What a file of this host is called: it cannot give itself the name of another's.
    fn called(&self, file: String) -> String {
        let one =
            |name: &str| self.settings.scripts.iter().any(|script| script.name == name && script.project != self.own);
        if one(&file) { file } else { "(of another name)".into() }
    }

    fn tell(&self, severity: Severity, title: String) {
        if let Some(teller) = self.teller.upgrade() {
            teller.tell(severity, title, None);
        }
    }

    /// Calls that change nothing but a login.
    fn looks(&self, ClientCall { file, way, options }: &ClientCall) -> Given {
        match way.split_once('.') {
            Some(("session", what)) => self.about_session(what, options),
            Some(("auth", "set")) if self.own => self.renews(options),
            Some(("auth", "set")) => Some(Err("only a plugin of the user's own may renew a login".to_owned())),
            Some(("adjutant", "auth")) => self.login(file, options),
            _ => self.about_place(way, options),
        }
    }

    /// Calls about everything but sessions and logins.
    fn about_place(&self, way: &str, options: &Value) -> Given {
        let words = |at: &str| options.pointer(at).and_then(Value::as_str).map(|words| text::cut_chars(words, 2_000));
        let said = |key: &str| words(&format!("/body/{key}")).or_else(|| words(&format!("/{key}")));
        let project = || json!({ "id": "project", "worktree": self.worktree, "time": { "created": 0 } });
        Some(Ok(match way {
            "app.log" => {
                let (service, message) = (said("service").unwrap_or_default(), said("message").unwrap_or_default());
                tracing::info!("extension {}: {}", text::title(&service), text::title(&message));
                json!(true)
            }
            "tui.showToast" => {
                let message = said("message").unwrap_or_default();
                let title = said("title").map_or(message.clone(), |title| format!("{title}: {message}"));
                let severity = match said("variant").as_deref() {
                    Some("error") => Severity::Error,
                    Some("warning") => Severity::Warning,
                    _ => Severity::Info,
                };
                self.tell(severity, text::title(&title));
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
            "config.get" => seen_settings(&self.settings),
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
                let head = std::fs::read_to_string(self.worktree.join(".git/HEAD")).unwrap_or_default();
                json!({ "branch": head.trim().strip_prefix("ref: refs/heads/") })
            }
            "mcp.status" => json!({}),
            "lsp.status" | "formatter.status" => json!([]),
            _ => return None,
        }))
    }

    /// The agents that come with the program, and those of the settings.
    fn agents(&self) -> Value {
        let of = |name: &str, description: &str| json!({ "name": name, "description": description, "mode": "all", "permission": {}, "tools": {}, "options": {} });
        let own = &self.settings.agents;
        let built = AGENTS.iter().filter(|built| own.iter().all(|agent| agent.name != built.name));
        let configured = own.iter().map(|agent| of(&agent.name, agent.description.as_deref().unwrap_or_default()));
        built.map(|built| of(built.name, built.description)).chain(configured).collect()
    }

    /// Providers of the settings, as far as they are not secret.
    fn providers(&self) -> Value {
        let one = |provider: &providers::entry::ProviderEntry| provider_of(provider);
        self.settings.providers.iter().map(one).collect()
    }

    /// Calls about the session, and those that plugins have beside it: there is no other.
    fn about_session(&self, what: &str, options: &Value) -> Given {
        let known = &self.knowledge;
        let id = session_of(options);
        let limit = options.pointer("/query/limit").or_else(|| options.get("limit")).and_then(Value::as_u64);
        let limit = limit.and_then(|n| n.try_into().ok()).unwrap_or(usize::MAX);
        let child = id.filter(|id| self.subagents.knows(id));
        if !matches!(what, "list" | "status") && child.is_none() && id.is_some_and(|id| id != self.session) {
            return Some(Err(OTHERS.to_owned()));
        }
        let children =
            || self.subagents.list().into_iter().map(|(id, title)| self.info(&id, &title)).collect::<Vec<_>>();
        Some(Ok(match (what, child) {
            ("get", Some(child)) => self.info(child, &self.subagents.title(child)),
            ("messages", Some(child)) => self.subagents.messages(child, limit),
            ("children" | "todo", Some(_)) => json!([]),
            ("get", None) => self.info(&self.session, &locked(&known.conversation).title()),
            ("list", _) => {
                let own = self.info(&self.session, &locked(&known.conversation).title());
                std::iter::once(own).chain(children()).collect()
            }
            ("children", None) => children().into(),
            ("status", _) => {
                let own = Some(self.session.clone()).filter(|_| *locked(&known.busy));
                let busy = own.into_iter().chain(self.subagents.busy()).map(|id| (id, json!({ "type": "busy" })));
                busy.collect::<Map<_, _>>().into()
            }
            ("todo", None) => json!(self.todos.get()),
            ("messages", None) => locked(&known.conversation).messages(limit),
            ("message", None) => {
                let message = options.pointer("/path/messageID").or_else(|| options.get("messageID"));
                let found = locked(&known.conversation).message(message.and_then(Value::as_str).unwrap_or_default());
                return Some(found.ok_or_else(|| "there is no such message".to_owned()));
            }
            _ => return None,
        }))
    }

    /// A session, as OpenCode's client shows it.
    fn info(&self, id: &str, title: &str) -> Value {
        let parent = Some(&self.session).filter(|own| *own != id);
        json!({
            "id": id, "parentID": parent, "directory": self.directory, "projectID": "project", "version": "1",
            "title": title, "time": { "created": 0, "updated": 0 },
        })
    }

    /// Calls that do something in the session, or in one that plugins have beside it.
    async fn acts(self: Arc<Self>, what: &str, ClientCall { file, options, .. }: ClientCall) -> Given {
        let body = options.get("body").unwrap_or(&options);
        let id = session_of(&options);
        let child = id.filter(|id| self.subagents.knows(id));
        let parent = body.get("parentID").and_then(Value::as_str).filter(|_| what == "create");
        if child.is_none() && id.or(parent).is_some_and(|id| id != self.session) {
            return Some(Err(OTHERS.to_owned()));
        }
        let no_reply = body.get("noReply").and_then(Value::as_bool) == Some(true);
        let title = body.get("title").and_then(Value::as_str).map(str::trim).filter(|title| !title.is_empty());
        match (what, child) {
            ("create", _) => {
                let id = self.environment.fresh(SessionId::PREFIX);
                let made = self.subagents.create(&id, title.unwrap_or_default());
                Some(made.map(|()| self.info(&id, &self.subagents.title(&id))))
            }
            ("update", _) => Some(self.renames(child, title)),
            ("abort", _) => Some(Ok(json!(self.stops(&file, child)))),
            ("delete", Some(child)) => {
                self.stops(&file, Some(child));
                Some(Ok(json!(self.subagents.forget(child))))
            }
            ("prompt" | "promptAsync", Some(child)) if no_reply => {
                let noted = self.subagents.note(child, subagents::words(body));
                Some(noted.map(|()| self.heard(child, body)))
            }
            ("prompt", Some(child)) => Some(self.works((child, &file), body).await),
            ("promptAsync", Some(child)) => {
                let (ears, child, file, body) = (self.clone(), child.to_owned(), file.clone(), body.clone());
                base::task::spawn(async move { ears.works((&child, &file), &body).await });
                Some(Ok(Value::Null))
            }
            ("prompt" | "promptAsync", None) => Some(self.takes(&file, body, no_reply)),
            _ => None,
        }
    }

    /// Has a subagent work, and lets plugins hear when it has ended.
    async fn works(&self, (child, file): (&str, &str), body: &Value) -> Result<Value, String> {
        let loans = &self.knowledge.loans;
        let answer = self.subagents.prompt((child, &text::title(file)), body, loans, &self.environment).await;
        if let Some(teller) = self.teller.upgrade() {
            if let Err(why) = &answer {
                let error = json!({ "name": "UnknownError", "data": { "message": why } });
                teller.clone().happened("session.error", json!({ "sessionID": child, "error": error }));
            }
            teller.happened("session.idle", json!({ "sessionID": child }));
        }
        answer
    }

    /// Gives a session another title.
    fn renames(&self, child: Option<&str>, title: Option<&str>) -> Result<Value, String> {
        let title = title.ok_or("a session has a title, and nothing else that a plugin may change")?;
        let title = text::cut_chars(&text::title(title), 200);
        match (child, self.knowledge.loans.door.get()) {
            (Some(child), _) => self.subagents.rename(child, &title),
            (None, Some(door)) => door.rename(&title),
            (None, None) => return Err("there is no session here".into()),
        }
        Ok(self.info(child.unwrap_or(&self.session), &title))
    }

    /// Stops what runs in a session, as its user would. Says whether there is anything to be stopped.
    fn stops(&self, file: &str, child: Option<&str>) -> bool {
        let Some(door) = self.knowledge.loans.door.get() else { return false };
        match child {
            Some(child) => door.stop(&SessionId::new(child)),
            None if *locked(&self.knowledge.busy) => {
                self.tell(Severity::Info, format!("The plugin {} stopped a turn.", text::title(file)));
                door.cancel();
                true
            }
            None => false,
        }
    }

    /// Words for the model of the session, which reads them with the user's next prompt, or goes on with them once its
    /// turn is over. A plugin begins no turn.
    fn takes(&self, file: &str, body: &Value, no_reply: bool) -> Result<Value, String> {
        let words = subagents::words(body);
        let (mut notes, mut prompts) = (locked(&self.knowledge.notes), locked(&self.knowledge.prompts));
        if notes.len() + prompts.len() >= NOTES || words.len() > NOTE {
            return Err("too much waits to be told to the model".to_owned());
        }
        match words.trim().is_empty() {
            true => {}
            false if no_reply => notes.push(words),
            false => prompts.push(PluginPrompt { plugin: text::title(file), words }),
        }
        Ok(self.heard(&self.session, body))
    }

    /// A prompt that was taken, as a message.
    fn heard(&self, session: &str, body: &Value) -> Value {
        json!({ "info": { "sessionID": session, "role": "user" }, "parts": body.get("parts") })
    }

    /// Renews a login that there is. Nothing else can be put there: whatever runs in the host could ask for this.
    fn renews(&self, options: &Value) -> Given {
        let id = options.pointer("/path/id").or_else(|| options.get("providerID")).and_then(Value::as_str)?.to_owned();
        let fresh = options.get("body").or_else(|| options.get("auth"))?.clone();
        let is_login = |entry: &Value| entry.get("type").is_some_and(|kind| kind == "oauth");
        if !is_login(&fresh) || !Auth::read(&self.environment).entry(&id).is_some_and(is_login) {
            return Some(Err(format!("only a login of {id} that is kept can be renewed")));
        }
        let kept = Auth::change(&Auth::path(&self.environment), |all| drop(all.insert(id, fresh)));
        Some(kept.map(|()| json!(true)).map_err(|e| e.to_string()))
    }

    /// For a plugin of the user's own that logs in to a provider: what is kept of that login, what is known of the
    /// provider, and where it is.
    fn login(&self, file: &str, options: &Value) -> Given {
        let id = options.get("provider").and_then(Value::as_str)?;
        let auth = Auth::read(&self.environment);
        if !self.own {
            // What is not kept need not be kept from it.
            if auth.entry(id).is_none() {
                return Some(Ok(Value::Null));
            }
            let (file, id) = (text::title(file), text::title(id));
            let title = format!(
                "The plugin {file} may not use the login of {id}, for it is part of the project: put it into your own settings."
            );
            self.tell(Severity::Info, title);
            return Some(Ok(Value::Null));
        }
        let mut provider = Catalog::load(&self.environment).find(id).unwrap_or_default();
        provider.id = id.to_owned();
        if let Some(settings) = self.settings.providers.iter().find(|provider| provider.id == id) {
            provider = provider.overlaid_with(settings);
        }
        let base = platform::usual_address(&provider, &self.environment);
        Some(Ok(json!({
            "auth": auth.entry(id), "provider": provider_of(&provider), "base": base,
        })))
    }
}

/// The session that a call is about, where it names one.
fn session_of(options: &Value) -> Option<&str> {
    let at = |key: &str| options.pointer(&format!("/path/{key}")).or_else(|| options.get(key)).and_then(Value::as_str);
    at("id").or_else(|| at("sessionID"))
}

/// A provider and its models, as OpenCode shows them to plugins.
pub(super) fn provider_of(provider: &providers::entry::ProviderEntry) -> Value {
    let model = |model: &providers::entry::ModelEntry| {
        let rates = model.price.as_ref().map(|price| price.base).unwrap_or_default();
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

/// What a plugin sees of the settings.
pub(super) fn seen_settings(settings: &Settings) -> Value {
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
