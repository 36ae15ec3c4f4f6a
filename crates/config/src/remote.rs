//! The defaults of an organisation (`.well-known/opencode`). Fetching is done elsewhere, after the
//! session has started; here only what was last fetched is read, so nothing ever waits for it.

use std::path::PathBuf;

use serde_json::Value;

use base::environment::Environment;

/// Defaults to be fetched from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDefaults {
    /// `https://…/.well-known/opencode`.
    pub address: String,
    /// The variable that its settings may mention as `{env:NAME}`, and its value.
    pub token: Option<(String, String)>,
    /// Where the settings are to be written once they are fetched: the `config` object alone.
    pub file: PathBuf,
}

/// The files that keep logins; the later one wins.
pub(crate) fn logins(environment: &Environment) -> [PathBuf; 2] {
    let data = &environment.dirs.data;
    [data.with_file_name("opencode").join("auth.json"), data.join("auth.json")]
}

/// The organisations that the user logged in to: entries of type `wellknown` in `auth.json`.
pub fn wanted(environment: &Environment) -> Vec<RemoteDefaults> {
    let mut found: Vec<RemoteDefaults> = Vec::new();
    for path in logins(environment) {
        // Reading a pipe would wait for its writer.
        if !path.is_file() {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let Ok(Value::Object(entries)) = serde_json::from_str(&text) else { continue };
        for (url, entry) in entries {
            let known = entry.get("type").and_then(Value::as_str) == Some("wellknown");
            let base = url.trim_end_matches('/');
            if !known || !is_private(base) {
                continue;
            }
            let word = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let name: String = base.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let remote = RemoteDefaults {
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

/// Whether the defaults of an organisation were never fetched.
pub fn lacks_defaults(environment: &Environment) -> bool {
    wanted(environment).iter().any(|remote| !remote.file.exists())
}

impl RemoteDefaults {
    /// A header of the organisation's with its own token in it. No other variable is filled in: what
    /// is sent to a server must not be that server's choice.
    pub fn filled(&self, value: &str) -> String {
        match &self.token {
            Some((name, token)) => value.replace(&format!("{{env:{name}}}"), token),
            None => value.to_owned(),
        }
    }
}

/// Whether nobody on the way can read along: `https`, or this machine.
pub fn is_private(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else { return address.starts_with("https://") };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = |port: &str| port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| host.strip_prefix(name).is_some_and(port))
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DefaultsAnswer {
    pub config: Option<Value>,
    /// An address with more of them, and the headers to ask with. They are laid over `config`.
    pub further: Option<(String, Vec<(String, String)>)>,
}

impl DefaultsAnswer {
    /// Reads an answer: `{config, remote_config}`, or the settings themselves.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('<') {
            return Err("the server answered with a web page: the login there may have expired".into());
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

/// The settings of an answer and of the one it led to, joined: what belongs into [`RemoteDefaults::file`].
pub fn joined(first: &DefaultsAnswer, further: Option<&DefaultsAnswer>) -> Value {
    fn merge_json(under: &mut Value, over: &Value) {
        match (under, over) {
            (Value::Object(under), Value::Object(over)) => {
                for (key, value) in over {
                    merge_json(under.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (under, over) => *under = over.clone(),
        }
    }
    let mut config = first.config.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    if let Some(over) = further.and_then(|further| further.config.as_ref()) {
        merge_json(&mut config, over);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_travel_unseen_and_alone() {
        let table = [
            ("https://org.example", true),
            ("http://org.example", false),
            ("http://localhost", true),
            ("http://localhost:8080/x", true),
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1/", true),
            ("http://localhost.evil.example", false),
            ("http://localhost:1@evil.example/", false),
            ("ftp://org.example", false),
        ];
        for (address, private) in table {
            assert_eq!(is_private(address), private, "{address}");
        }
        let token = Some(("TOKEN".to_owned(), "secret".to_owned()));
        let remote = RemoteDefaults { address: String::new(), token, file: PathBuf::new() };
        assert_eq!(remote.filled("Bearer {env:TOKEN} {env:HOME}"), "Bearer secret {env:HOME}");
    }
}
