//! Logging in to a provider as a plugin of the user's own does it: by the ways of its `auth` hook. The plugin says
//! which address to open or what to type, and brings a key or tokens back; whoever calls this keeps them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::client::Teller;
use super::host::{ClientCall, Listener, PluginHost, ScriptOrigin};
use super::load::{self, LoadPurpose};
use super::scripts::Scripts;
use super::survey;
use super::tool::Home;
use base::environment::Environment;
use base::text;
use base::worktree::Worktree;
use config::Settings;
use config::script::{ScriptEntry, ScriptKind};
use events::Severity;
use tools::{BoxFuture, scratch};

/// How long plugins may take to say which ways they have, and the user for one of them.
const QUICK: Duration = Duration::from_secs(10);
const PATIENT: Duration = Duration::from_secs(15 * 60);
/// What a login may have beside its tokens, and the longest of it in bytes.
const BESIDES: usize = 20;
const BESIDE: usize = 4_000;

/// Whoever speaks with the user while a plugin logs in.
pub trait LoginDesk: Send + Sync {
    /// Asks for a line, which is not shown where it is secret. None where nobody answers. Blocks.
    fn ask(&self, question: &str, secret: bool) -> Option<String>;
    fn say(&self, words: &str);
}

/// The ways to log in to a provider that plugins of the user's own offer.
pub struct PluginLogin {
    host: Arc<PluginHost>,
    scratch: PathBuf,
    provider: String,
    /// What they are called, in their order; never empty.
    pub ways: Vec<String>,
}

/// What a plugin brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginCredential {
    /// The provider it is for, which may be another one.
    pub provider: String,
    /// As OpenCode's `auth.json` has it.
    pub entry: Value,
}

impl PluginLogin {
    /// The ways for a provider; none where no plugin of the user's own has any. Those of a project are not asked.
    ///
    /// # Errors
    /// Why the plugins cannot be asked.
    pub async fn offered(
        provider: &str,
        settings: &Settings,
        (environment, worktree, cwd): (&Environment, &Worktree, &Path),
        desk: Arc<dyn LoginDesk>,
    ) -> Result<Option<Self>, String> {
        let own = |script: &&ScriptEntry| ScriptOrigin::Own.covers(script) && script.kind == ScriptKind::Plugin;
        let scripts: Vec<ScriptEntry> = settings.scripts.iter().filter(own).cloned().collect();
        if scripts.is_empty() {
            return Ok(None);
        }
        let settings = Arc::new(Settings { scripts: scripts.clone(), ..settings.clone() });
        let context = survey::context(&settings, environment, worktree, cwd);
        let clerk = Arc::new(Clerk(desk));
        // Their tools are not called.
        let home: Weak<dyn Home> = Weak::<Scripts>::new();
        let files = (scripts.as_slice(), ScriptOrigin::Own);
        let loaded = load::load(files, LoadPurpose::Login, clerk.clone(), (&*clerk, &home), &context).await;
        let host = loaded.map_err(|e| e.to_string())?.host;
        let scratch = scratch::directory(environment, context.session.id.as_str());
        let mut login = Self { host, scratch, provider: provider.to_owned(), ways: Vec::new() };
        let answer = login.host.request("methods", json!({ "provider": provider }), QUICK).await;
        let ways = answer.map_err(|e| e.to_string())?;
        let labels = ways.as_array().into_iter().flatten().filter_map(Value::as_str);
        login.ways = labels.map(text::title).collect();
        if login.ways.is_empty() {
            login.end().await;
            return Ok(None);
        }
        Ok(Some(login))
    }

    /// Logs in by one of them.
    ///
    /// # Errors
    /// Why that did not work, in the plugin's words.
    pub async fn log_in(self, way: usize) -> Result<PluginCredential, String> {
        let params = json!({ "provider": self.provider, "at": way });
        let answer = self.host.request("login", params, PATIENT).await;
        self.end().await;
        PluginCredential::of(&self.provider, &answer.map_err(|e| e.to_string())?)
    }

    async fn end(&self) {
        self.host.end();
        self.host.gone().await;
        // Nothing is left of a session that was none.
        scratch::remove(&self.scratch);
    }
}

impl PluginCredential {
    fn of(provider: &str, said: &Value) -> Result<Self, String> {
        let words = |key: &str| said.get(key).and_then(Value::as_str).filter(|words| !words.trim().is_empty());
        let mut entry = Map::new();
        let known: &[&str] = match (words("key"), words("access").or(words("refresh"))) {
            (Some(key), _) => {
                entry.extend([("type".to_owned(), "api".into()), ("key".to_owned(), key.trim().into())]);
                let metadata = said.get("metadata").and_then(Value::as_object).filter(|all| !all.is_empty());
                entry.extend(metadata.map(|all| ("metadata".to_owned(), Value::Object(all.clone()))));
                return Ok(Self { provider: words("provider").unwrap_or(provider).to_owned(), entry: entry.into() });
            }
            (None, Some(_)) => &["type", "provider", "access", "refresh", "expires", "login"],
            (None, None) => return Err("the plugin gave neither a key nor tokens".into()),
        };
        let whole = |at: f64| Duration::try_from_secs_f64(at / 1e3).ok()?.as_millis().try_into().ok();
        let expires: u64 = said.get("expires").and_then(Value::as_f64).and_then(whole).unwrap_or_default();
        entry.extend([
            ("type".to_owned(), "oauth".into()),
            ("refresh".to_owned(), words("refresh").unwrap_or_default().into()),
            ("access".to_owned(), words("access").unwrap_or_default().into()),
            ("expires".to_owned(), expires.into()),
        ]);
        let besides = said.as_object().into_iter().flatten().filter(|(name, value)| {
            !known.contains(&name.as_str()) && value.as_str().is_some_and(|value| value.len() <= BESIDE)
        });
        entry.extend(besides.take(BESIDES).map(|(name, value)| (name.clone(), value.clone())));
        Ok(Self { provider: words("provider").unwrap_or(provider).to_owned(), entry: entry.into() })
    }
}

/// Passes on what plugins say and ask while they log in.
struct Clerk(Arc<dyn LoginDesk>);

impl Listener for Clerk {
    fn client(self: Arc<Self>, asked: ClientCall) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            let words = |at: &str| asked.options.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
            match asked.way.as_str() {
                "adjutant.ask" => {
                    let (question, desk) = (words("/question"), self.0.clone());
                    let secret = asked.options.get("secret").and_then(Value::as_bool) == Some(true);
                    let answer = base::task::spawn_blocking(move || desk.ask(&question, secret)).await;
                    json!({ "data": answer.ok().flatten() })
                }
                "adjutant.say" => {
                    self.0.say(&words("/words"));
                    json!({ "data": true })
                }
                "tui.showToast" => {
                    self.0.say(&words("/body/message"));
                    json!({ "data": true })
                }
                "app.log" => json!({ "data": true }),
                way => json!({ "none": format!("adjutant has no client.{} while it logs in", text::title(way)) }),
            }
        })
    }

    fn listens(&self) {}

    fn failed(&self, _: &Value) {}
}

impl Teller for Clerk {
    fn tell(&self, severity: Severity, title: String, _: Option<String>) {
        if severity != Severity::Info {
            self.0.say(&title);
        }
    }

    fn failed(&self, _: &str, _: String) {}

    fn happened(self: Arc<Self>, _: &'static str, _: Value) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_brought_back() {
        let table = [
            (json!({ "type": "success", "key": " k " }), Ok(("p", json!({ "type": "api", "key": "k" })))),
            (
                json!({ "key": "k", "provider": "q", "metadata": { "region": "eu" } }),
                Ok(("q", json!({ "type": "api", "key": "k", "metadata": { "region": "eu" } }))),
            ),
            (
                json!({
                    "type": "success", "refresh": "r", "access": "a", "expires": 12.5, "accountId": "1",
                    "login": "ours", "odd": [1], "provider": "",
                }),
                Ok(("p", json!({ "type": "oauth", "refresh": "r", "access": "a", "expires": 12, "accountId": "1" }))),
            ),
            (
                json!({ "refresh": "r" }),
                Ok(("p", json!({ "type": "oauth", "refresh": "r", "access": "", "expires": 0 }))),
            ),
            (json!({ "type": "success" }), Err("the plugin gave neither a key nor tokens".to_owned())),
            (json!(null), Err("the plugin gave neither a key nor tokens".to_owned())),
        ];
        for (said, wanted) in table {
            let wanted = wanted.map(|(provider, entry)| PluginCredential { provider: provider.into(), entry });
            assert_eq!(PluginCredential::of("p", &said), wanted, "{said}");
        }
    }
}
