//! The defaults of an organisation (`.well-known/opencode`). Another crate fetches them after the
//! session has started; this module reads only the last fetched state, so that nothing waits for
//! the network.

use std::path::PathBuf;

use serde_json::Value;

use base::environment::Environment;

/// Defaults that are fetched periodically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDefaults {
    /// The address, `https://…/.well-known/opencode`.
    pub address: String,
    /// The variable that its settings may mention as `{env:NAME}`, with its value.
    pub token: Option<(String, String)>,
    /// The path to which the fetched settings are written: the `config` object alone.
    pub file: PathBuf,
}

/// Returns the files that store logins; the later one wins.
pub(crate) fn login_files(environment: &Environment) -> [PathBuf; 2] {
    let data = &environment.dirs.data;
    [
        data.with_file_name("opencode").join("auth.json"),
        data.join("auth.json"),
    ]
}

/// Returns the organisations that the user is logged in to: entries of type `wellknown` in
/// `auth.json`.
pub fn organisations(environment: &Environment) -> Vec<RemoteDefaults> {
    let mut found: Vec<RemoteDefaults> = Vec::new();
    for path in login_files(environment) {
        let Ok(text) = base::file::read_regular_text(&path) else {
            continue;
        };
        let Ok(Value::Object(entries)) = serde_json::from_str(&text) else {
            continue;
        };
        for (url, entry) in entries {
            let known = entry.get("type").and_then(Value::as_str) == Some("wellknown");
            let base = url.trim_end_matches('/');
            if !known || !is_private(base) {
                continue;
            }
            let text_of = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let name: String = base
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                .collect();
            let remote = RemoteDefaults {
                address: format!("{base}/.well-known/opencode"),
                token: text_of("key").zip(text_of("token")),
                file: environment
                    .dirs
                    .cache
                    .join("well-known")
                    .join(format!("{name}.json")),
            };
            found.retain(|other| other.address != remote.address);
            found.push(remote);
        }
    }
    found
}

/// Returns whether the defaults of an organisation were never fetched.
pub fn lacks_defaults(environment: &Environment) -> bool {
    organisations(environment)
        .iter()
        .any(|remote| !remote.file.exists())
}

impl RemoteDefaults {
    /// Substitutes the organisation's own token in a header. No other variable is substituted: a
    /// server must not choose the data that is sent to it.
    pub fn substitute_token(&self, value: &str) -> String {
        match &self.token {
            Some((name, token)) => value.replace(&format!("{{env:{name}}}"), token),
            None => value.to_owned(),
        }
    }
}

/// Returns whether the connection is protected against eavesdropping: `https`, or this machine.
pub fn is_private(address: &str) -> bool {
    let Some(rest) = address.strip_prefix("http://") else {
        return address.starts_with("https://");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = |port: &str| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|port| port.parse::<u16>().is_ok())
    };
    ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|name| host.strip_prefix(name).is_some_and(port))
}

/// The answer of an organisation's server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DefaultsAnswer {
    /// The settings; `None` if the answer has only an address with more.
    pub config: Option<Value>,
    /// An address with more settings, and the headers of the request. They are merged over
    /// `config`.
    pub further: Option<(String, Vec<(String, String)>)>,
}

impl DefaultsAnswer {
    /// Parses an answer: `{config, remote_config}`, or the settings themselves.
    ///
    /// # Errors
    /// The error, for display.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('<') {
            return Err(
                "the server answered with a web page: the login there may have expired".into(),
            );
        }
        let value: Value =
            serde_json::from_str(text).map_err(|e| format!("the answer is not JSON: {e}"))?;
        let Value::Object(object) = &value else {
            return Err("the answer is not an object".into());
        };
        let further = object.get("remote_config").and_then(|further| {
            let url = further.get("url")?.as_str()?.to_owned();
            let headers = further
                .get("headers")
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            let headers = headers
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
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

/// Merges the settings of an answer with those of the answer it refers to. The result is the
/// content for [`RemoteDefaults::file`].
pub fn merge_answers(first: &DefaultsAnswer, further: Option<&DefaultsAnswer>) -> Value {
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
    let mut config = first
        .config
        .clone()
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    if let Some(over) = further.and_then(|further| further.config.as_ref()) {
        merge_json(&mut config, over);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_sent_only_over_private_connections_and_alone() {
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
        let remote = RemoteDefaults {
            address: String::new(),
            token,
            file: PathBuf::new(),
        };
        assert_eq!(
            remote.substitute_token("Bearer {env:TOKEN} {env:HOME}"),
            "Bearer secret {env:HOME}"
        );
    }
}
