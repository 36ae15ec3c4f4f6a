//! What plugins ask through OpenCode's client, and what they are answered. Only what has a meaning here is answered; any
//! other call fails with its name.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::host::Listener;
use crate::config::Settings;
use crate::config::builtin::AGENTS;
use crate::environment::Environment;
use crate::event::Severity;
use crate::lock::locked;
use crate::model::auth::Auth;
use crate::model::catalog::Catalog;
use crate::model::platform;
use crate::text;
use crate::tool::todos::Todos;

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
}

/// The most notes that wait, and the longest of them in bytes.
const NOTES: usize = 20;
const NOTE: usize = 20_000;

/// Whoever tells the user of what plugins do, and counts it.
pub(super) trait Teller: Send + Sync {
    fn tell(&self, severity: Severity, title: String, details: Option<String>);
    /// A plugin failed outside of a hook.
    fn failed(&self, file: &str, why: String);
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
}

impl Listener for Ears {
    fn client(&self, file: &str, way: &str, options: &Value) -> Value {
        let own = self.settings.scripts.iter().any(|script| script.name == file && !script.project);
        let answer = match way.split_once('.') {
            Some(("session", what)) => self.about_session(what, options),
            Some(("auth", "set")) if own => self.renews(options),
            Some(("adjutant", "auth")) => self.login(file, own, options),
            _ => self.about_place(way, options),
        };
        match answer {
            Some(Ok(data)) => json!({ "data": data }),
            Some(Err(why)) => json!({ "error": { "message": why } }),
            None => {
                let way = text::title(way);
                self.tell(Severity::Info, format!("A plugin called client.{way}, which adjutant does not have."));
                json!({ "none": format!("adjutant has no client.{way}") })
            }
        }
    }

    fn listens(&self) {
        *locked(&self.knowledge.listens) = true;
    }

    fn failed(&self, params: &Value) {
        let words = |key: &str| params.get(key).and_then(Value::as_str).map(text::title);
        let Some(teller) = self.teller.upgrade() else { return };
        let who = words("file").map_or_else(|| "A plugin".to_owned(), |file| format!("The plugin {file}"));
        let hook = words("hook").map(|hook| format!(" in {hook}")).unwrap_or_default();
        let why = words("message").unwrap_or_default();
        if let Some(file) = words("file") {
            teller.failed(&file, why.clone());
        }
        let stack = params.get("stack").and_then(Value::as_str).map(str::to_owned);
        teller.tell(Severity::Warning, format!("{who} failed{hook}: {why}"), stack);
    }
}

/// What a call gives: data, or why not; none where there is no such call.
type Given = Option<Result<Value, String>>;

impl Ears {
    fn tell(&self, severity: Severity, title: String) {
        if let Some(teller) = self.teller.upgrade() {
            teller.tell(severity, title, None);
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
        let one = |provider: &crate::config::provider::ProviderEntry| provider_of(provider);
        self.settings.providers.iter().map(one).collect()
    }

    /// Calls about the session: there is no other.
    fn about_session(&self, what: &str, options: &Value) -> Given {
        let known = &self.knowledge;
        let at =
            |key: &str| options.pointer(&format!("/path/{key}")).or_else(|| options.get(key)).and_then(Value::as_str);
        let id = at("id").or_else(|| at("sessionID"));
        if !matches!(what, "list" | "status") && id.is_some_and(|id| id != self.session) {
            return Some(Err("adjutant shows a plugin no session but its own".to_owned()));
        }
        let info = || {
            json!({
                "id": self.session, "directory": self.directory, "projectID": "project", "version": "1",
                "title": locked(&known.conversation).title(), "time": { "created": 0, "updated": 0 },
            })
        };
        Some(Ok(match what {
            "get" => info(),
            "list" => json!([info()]),
            "children" => json!([]),
            "status" if *locked(&known.busy) => json!({ &*self.session: { "type": "busy" } }),
            "status" => json!({}),
            "todo" => json!(self.todos.get()),
            "messages" => {
                let limit = options.pointer("/query/limit").or_else(|| options.get("limit")).and_then(Value::as_u64);
                locked(&known.conversation).messages(limit.and_then(|n| n.try_into().ok()).unwrap_or(usize::MAX))
            }
            "message" => {
                let found = locked(&known.conversation).message(at("messageID").unwrap_or_default());
                return Some(found.ok_or_else(|| "there is no such message".to_owned()));
            }
            "prompt" | "promptAsync" => return self.note(options),
            _ => return None,
        }))
    }

    /// Words for the model, which reads them with the user's next prompt. A plugin cannot prompt in the user's place.
    fn note(&self, options: &Value) -> Given {
        let body = options.get("body").unwrap_or(options);
        if body.get("noReply").and_then(Value::as_bool) != Some(true) {
            return None;
        }
        let parts = body.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
        let words = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n\n");
        let mut notes = locked(&self.knowledge.notes);
        if notes.len() >= NOTES || words.len() > NOTE {
            return Some(Err("too much waits to be told to the model".to_owned()));
        }
        if !words.trim().is_empty() {
            notes.push(words);
        }
        Some(Ok(json!({ "info": { "sessionID": self.session, "role": "user" }, "parts": parts })))
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
    fn login(&self, file: &str, own: bool, options: &Value) -> Given {
        let id = options.get("provider").and_then(Value::as_str)?;
        let auth = Auth::read(&self.environment);
        if !own {
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

/// A provider and its models, as OpenCode shows them to plugins.
fn provider_of(provider: &crate::config::provider::ProviderEntry) -> Value {
    let model = |model: &crate::config::provider::ModelEntry| {
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
