//! The defaults of an organisation (`.well-known/opencode`). Fetching is done elsewhere, after the
//! session has started; here only what was last fetched is read, so nothing ever waits for it.

use std::path::PathBuf;

use serde_json::Value;

use crate::environment::Environment;

/// Defaults to be fetched from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// `https://…/.well-known/opencode`.
    pub address: String,
    /// The variable that its settings may mention as `{env:NAME}`, and its value.
    pub token: Option<(String, String)>,
    /// Where the settings are to be written once they are fetched: the `config` object alone.
    pub file: PathBuf,
}

/// The organisations that the user logged in to: entries of type `wellknown` in `auth.json`.
pub fn wanted(environment: &Environment) -> Vec<Remote> {
    let ours = environment.dirs.data.join("auth.json");
    let theirs = environment.dirs.data.with_file_name("opencode").join("auth.json");
    let mut found: Vec<Remote> = Vec::new();
    for path in [theirs, ours] {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let Ok(Value::Object(entries)) = serde_json::from_str(&text) else { continue };
        for (url, entry) in entries {
            let known = entry.get("type").and_then(Value::as_str) == Some("wellknown");
            let base = url.trim_end_matches('/');
            if !known || !(base.starts_with("https://") || base.starts_with("http://localhost")) {
                continue;
            }
            let word = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let name: String = base.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let remote = Remote {
                address: format!("{base}/.well-known/opencode"),
                token: word("key").zip(word("token")),
                file: environment.dirs.cache.join("well-known").join(format!("{name}.json")),
            };
            found.retain(|other| other.address != remote.address);
            found.push(remote);
        }
    }
    found
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// Settings.
    pub config: Option<Value>,
    /// An address with more of them, and the headers to ask with. They are laid over `config`.
    pub further: Option<(String, Vec<(String, String)>)>,
}

impl Answer {
    /// Reads an answer: `{config, remote_config}`, or the settings themselves.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('<') {
            return Err("the server answered with a web page: the login there may have run out".into());
        }
        let value: Value = serde_json::from_str(text).map_err(|e| format!("the answer is not JSON: {e}"))?;
        let Value::Object(object) = &value else { return Err("the answer is not an object".into()) };
        let further = object.get("remote_config").and_then(|further| {
            let url = further.get("url")?.as_str()?.to_owned();
            let headers = further.get("headers").and_then(Value::as_object).into_iter().flatten();
            let headers = headers.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
            Some((url, headers.collect()))
        });
        let config = match object.get("config") {
            Some(config) => Some(config.clone()).filter(Value::is_object),
            None if further.is_none() => Some(value.clone()),
            None => None,
        };
        Ok(Self { config, further })
    }
}

/// The settings of an answer and of the one it led to, joined: what belongs into [`Remote::file`].
pub fn joined(first: &Answer, further: Option<&Answer>) -> Value {
    fn lay(under: &mut Value, over: &Value) {
        match (under, over) {
            (Value::Object(under), Value::Object(over)) => {
                for (key, value) in over {
                    lay(under.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (under, over) => *under = over.clone(),
        }
    }
    let mut config = first.config.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    if let Some(over) = further.and_then(|further| further.config.as_ref()) {
        lay(&mut config, over);
    }
    config
}
