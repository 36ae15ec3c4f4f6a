//! [`PluginLogin`], a login to a provider through one of the user's own plugins, with the methods of its
//! `auth` hook. The plugin names a URL to open or asks for text, through a [`LoginInterface`], and returns a
//! [`PluginCredential`], which the caller stores.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::client::Notifier;
use super::host::{ClientCall, HostListener, PluginHost, ScriptOrigin};
use super::inventory;
use super::load::{self, LoadPurpose};
use super::scripts::Scripts;
use super::tool::HostProvider;
use base::environment::Environment;
use base::text;
use base::worktree::Worktree;
use config::Settings;
use config::script::{ScriptEntry, ScriptKind};
use events::Severity;
use tools::BoxFuture;
use tools::scratch;

/// The time limit for listing the methods.
const METHODS_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for the user to complete a login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The maximum number of further fields that a login may have.
const MAX_FURTHER_FIELDS: usize = 20;
/// The maximum length of a further field, in bytes.
const MAX_FIELD_BYTES: usize = 4_000;

/// The user interface of a login through a plugin.
pub trait LoginInterface: Send + Sync {
    /// Asks for a line of input, which is hidden while it is typed if `is_secret`. Returns `None` if
    /// there is no answer. Blocks.
    fn ask(&self, question: &str, is_secret: bool) -> Option<String>;
    /// Shows a message.
    fn show(&self, text: &str);
}

/// The login methods that the user's own plugins offer for a provider.
pub struct PluginLogin {
    host: Arc<PluginHost>,
    /// The temporary directory of the host.
    scratch: PathBuf,
    /// The id of the provider.
    provider: String,
    /// The names of the methods, in the order of the plugins; never empty.
    pub methods: Vec<String>,
}

/// The credential that a plugin returned.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginCredential {
    /// The provider of the credential, which may differ from the requested one.
    pub provider: String,
    /// The entry in the format of OpenCode's `auth.json`.
    pub entry: Value,
}

impl PluginLogin {
    /// Returns the methods for a provider, or `None` if none of the user's own plugins has one.
    /// Plugins of the project are not used.
    ///
    /// # Errors
    /// Returns the reason why the plugins cannot be loaded or asked.
    pub async fn find(
        provider: &str,
        settings: &Settings,
        (environment, worktree, cwd): (&Environment, &Worktree, &Path),
        terminal: Arc<dyn LoginInterface>,
    ) -> Result<Option<Self>, String> {
        let own = |script: &&ScriptEntry| {
            ScriptOrigin::User.includes(script) && script.kind == ScriptKind::Plugin
        };
        let scripts: Vec<ScriptEntry> = settings.scripts.iter().filter(own).cloned().collect();
        if scripts.is_empty() {
            return Ok(None);
        }
        let settings = Arc::new(Settings {
            scripts: scripts.clone(),
            ..settings.clone()
        });
        let context = inventory::context_without_session(&settings, environment, worktree, cwd);
        let relay = Arc::new(LoginRelay(terminal));
        // The tools of the plugins are not called.
        let host_provider: Weak<dyn HostProvider> = Weak::<Scripts>::new();
        let files = (scripts.as_slice(), ScriptOrigin::User);
        let loaded = load::load(
            files,
            LoadPurpose::Login,
            relay.clone(),
            (&*relay, &host_provider),
            &context,
        )
        .await;
        let host = loaded.map_err(|e| e.to_string())?.host;
        let scratch = scratch::directory(environment, context.session.id.as_str());
        let mut login = Self {
            host,
            scratch,
            provider: provider.to_owned(),
            methods: Vec::new(),
        };
        let answer = login
            .host
            .request("methods", json!({ "provider": provider }), METHODS_TIMEOUT)
            .await;
        let methods = answer.map_err(|e| e.to_string())?;
        let labels = methods
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        login.methods = labels.map(text::title).collect();
        if login.methods.is_empty() {
            login.end().await;
            return Ok(None);
        }
        Ok(Some(login))
    }

    /// Logs in with the method at an index of `methods`.
    ///
    /// # Errors
    /// Returns the plugin's reason for a failure.
    pub async fn log_in(self, method: usize) -> Result<PluginCredential, String> {
        let params = json!({ "provider": self.provider, "at": method });
        let answer = self.host.request("login", params, LOGIN_TIMEOUT).await;
        self.end().await;
        PluginCredential::decode(&self.provider, &answer.map_err(|e| e.to_string())?)
    }

    async fn end(&self) {
        self.host.end();
        self.host.wait_until_ended().await;
        // The session existed only for the login.
        scratch::remove(&self.scratch);
    }
}

impl PluginCredential {
    /// Decodes the credential that a plugin returned. Fails if it is none.
    fn decode(provider: &str, answer: &Value) -> Result<Self, String> {
        let text = |key: &str| {
            answer
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.trim().is_empty())
        };
        let mut entry = Map::new();
        let known: &[&str] = match (text("key"), text("access").or(text("refresh"))) {
            (Some(key), _) => {
                entry.extend([
                    ("type".to_owned(), "api".into()),
                    ("key".to_owned(), key.trim().into()),
                ]);
                let metadata = answer
                    .get("metadata")
                    .and_then(Value::as_object)
                    .filter(|all| !all.is_empty());
                entry.extend(
                    metadata.map(|all| ("metadata".to_owned(), Value::Object(all.clone()))),
                );
                return Ok(Self {
                    provider: text("provider").unwrap_or(provider).to_owned(),
                    entry: entry.into(),
                });
            }
            (None, Some(_)) => &["type", "provider", "access", "refresh", "expires", "login"],
            (None, None) => return Err("the plugin gave neither a key nor tokens".into()),
        };
        let whole_milliseconds = |milliseconds: f64| {
            Duration::try_from_secs_f64(milliseconds / 1e3)
                .ok()?
                .as_millis()
                .try_into()
                .ok()
        };
        let expires: u64 = answer
            .get("expires")
            .and_then(Value::as_f64)
            .and_then(whole_milliseconds)
            .unwrap_or_default();
        entry.extend([
            ("type".to_owned(), "oauth".into()),
            (
                "refresh".to_owned(),
                text("refresh").unwrap_or_default().into(),
            ),
            (
                "access".to_owned(),
                text("access").unwrap_or_default().into(),
            ),
            ("expires".to_owned(), expires.into()),
        ]);
        let further = answer
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, value)| {
                !known.contains(&name.as_str())
                    && value
                        .as_str()
                        .is_some_and(|value| value.len() <= MAX_FIELD_BYTES)
            });
        entry.extend(
            further
                .take(MAX_FURTHER_FIELDS)
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        Ok(Self {
            provider: text("provider").unwrap_or(provider).to_owned(),
            entry: entry.into(),
        })
    }
}

/// Passes the questions and messages of plugins on to the user during a login.
struct LoginRelay(Arc<dyn LoginInterface>);

impl HostListener for LoginRelay {
    fn answer_client_call(self: Arc<Self>, client_call: ClientCall) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            let text = |at: &str| {
                client_call
                    .options
                    .pointer(at)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            match client_call.method.as_str() {
                "adjutant.ask" => {
                    let question = text("/question");
                    let terminal = self.0.clone();
                    let is_secret =
                        client_call.options.get("secret").and_then(Value::as_bool) == Some(true);
                    let answer =
                        base::task::spawn_blocking(move || terminal.ask(&question, is_secret))
                            .await;
                    json!({ "data": answer.ok().flatten() })
                }
                "adjutant.say" => {
                    self.0.show(&text("/words"));
                    json!({ "data": true })
                }
                "tui.showToast" => {
                    self.0.show(&text("/body/message"));
                    json!({ "data": true })
                }
                "app.log" => json!({ "data": true }),
                method => {
                    json!({ "none": format!("adjutant has no client.{} while it logs in", text::title(method)) })
                }
            }
        })
    }

    fn record_subscription(&self) {}

    fn report_error(&self, _: &Value) {}
}

impl Notifier for LoginRelay {
    fn notify(&self, severity: Severity, title: String, _: Option<String>) {
        if severity != Severity::Info {
            self.0.show(&title);
        }
    }

    fn record_failure(&self, _: &str, _: String) {}

    fn send_event(&self, _: &'static str, _: &Value) {}

    fn start_event_feeds(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_of_a_plugin_becomes_an_auth_entry() {
        let table = [
            (
                json!({ "type": "success", "key": " k " }),
                Ok(("p", json!({ "type": "api", "key": "k" }))),
            ),
            (
                json!({ "key": "k", "provider": "q", "metadata": { "region": "eu" } }),
                Ok((
                    "q",
                    json!({ "type": "api", "key": "k", "metadata": { "region": "eu" } }),
                )),
            ),
            (
                json!({
                    "type": "success", "refresh": "r", "access": "a", "expires": 12.5, "accountId": "1",
                    "login": "ours", "odd": [1], "provider": "",
                }),
                Ok((
                    "p",
                    json!({ "type": "oauth", "refresh": "r", "access": "a", "expires": 12, "accountId": "1" }),
                )),
            ),
            (
                json!({ "refresh": "r" }),
                Ok((
                    "p",
                    json!({ "type": "oauth", "refresh": "r", "access": "", "expires": 0 }),
                )),
            ),
            (
                json!({ "type": "success" }),
                Err("the plugin gave neither a key nor tokens".to_owned()),
            ),
            (
                json!(null),
                Err("the plugin gave neither a key nor tokens".to_owned()),
            ),
        ];
        for (answer, wanted) in table {
            let wanted = wanted.map(|(provider, entry)| PluginCredential {
                provider: provider.into(),
                entry,
            });
            assert_eq!(PluginCredential::decode("p", &answer), wanted, "{answer}");
        }
    }
}
