//! Redaction of keys in texts for others: the log of a connection, the report of `adjutant doctor`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use base::child_environment::is_secret;
use base::environment::Environment;
use base::worktree::Worktree;
use config::{ConfigFingerprint, Settings, mcp};
use providers::auth::Auth;
use tools::web::webfetch::secrets;

/// Shorter values are not redacted: they occur in ordinary text.
const MIN_KEY_BYTES: usize = 8;

/// The method by which a client sets the endpoint of a model provider.
const SET_ENDPOINT: &str = "providers/set";

/// The text in place of a key.
const REDACTED: &str = "(redacted)";

/// The keys that are known: of the environment, of logins at providers and servers, of settings,
/// and those that a client named. A key that was replaced stays known.
pub(super) struct KnownKeys {
    environment: Environment,
    keys: KeyList,
    /// The state of the files of logins when they were last read.
    logins: ConfigFingerprint,
    /// The directories whose settings were read, with the state of their files.
    projects: Vec<(PathBuf, ConfigFingerprint)>,
}

impl KnownKeys {
    pub(super) fn new(environment: &Environment) -> Self {
        let mut known = Self {
            environment: environment.clone(),
            keys: KeyList::default(),
            logins: ConfigFingerprint::default(),
            projects: Vec::new(),
        };
        known.read_logins(&Settings::default());
        known
    }

    /// Adds the keys of the settings of a directory, unless they are known and unchanged.
    pub(super) fn read_project(&mut self, dir: &Path) {
        let at = self.projects.iter().position(|(known, _)| known == dir);
        if let Some(at) = at
            && !self.projects[at].1.is_stale()
        {
            return;
        }
        // A wrong directory is answered by the session.
        let Ok(cwd) = std::fs::canonicalize(dir) else {
            return;
        };
        let worktree = Worktree::find(&cwd, &[], self.environment.home.as_deref());
        let loaded = config::load(&self.environment, &worktree, &cwd);
        self.read_logins(&loaded.settings);
        match at {
            Some(at) => self.projects[at].1 = loaded.fingerprint,
            None => self.projects.push((dir.to_owned(), loaded.fingerprint)),
        }
    }

    /// Adds the keys of logins and settings that changed since they were read.
    pub(super) fn refresh(&mut self) {
        if self.logins.is_stale() {
            self.read_logins(&Settings::default());
        }
    }

    /// Adds the keys of changed settings, which costs more than [`KnownKeys::refresh`].
    pub(super) fn refresh_projects(&mut self) {
        let dirs: Vec<PathBuf> = self.projects.iter().map(|(dir, _)| dir.clone()).collect();
        for dir in dirs {
            self.read_project(&dir);
        }
    }

    fn read_logins(&mut self, settings: &Settings) {
        // Before the files are read, so that a change in the meantime is noticed.
        let mut state = ConfigFingerprint::default();
        for file in Auth::credential_files(&self.environment) {
            // A file that cannot be examined cannot be read either.
            state.record_metadata(&file).ok();
        }
        self.logins = state;
        self.keys.add(secrets(settings, &self.environment));
    }

    /// Adds the keys in a message of the client: the variables and headers of its servers and
    /// providers.
    pub(super) fn add_from(&mut self, message: &Value) {
        let mut found = Vec::new();
        named_keys(message, &mut found);
        found.extend(endpoint_keys(message));
        self.keys.add(found);
    }

    /// Returns a text with the known keys redacted.
    pub(super) fn redacted(&self, text: &str) -> String {
        self.keys.redacted(text)
    }

    /// Redacts the known keys in all texts, and every value whose name marks it as a key: that of a
    /// member, or that of a variable or header (`{"name": …, "value": …}`).
    pub(super) fn redact(&self, value: &mut Value) {
        blank_endpoint(value);
        self.keys.redact(value);
    }
}

/// Keys without duplicates.
#[derive(Default)]
struct KeyList(Vec<String>);

impl KeyList {
    fn add(&mut self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            let written = Value::from(key.as_str()).to_string();
            // As it is inside of JSON: a private key has several lines.
            let inside = written[1..written.len() - 1].to_owned();
            for form in [key, inside] {
                if form.len() >= MIN_KEY_BYTES && !self.0.contains(&form) {
                    self.0.push(form);
                }
            }
        }
        // A key that contains another one is redacted as a whole.
        self.0.sort_by_key(|key| std::cmp::Reverse(key.len()));
    }

    fn redacted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for key in &self.0 {
            if text.contains(key.as_str()) {
                text = text.replace(key.as_str(), REDACTED);
            }
        }
        text
    }

    fn redact(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redacted(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Value::Object(members) => {
                // A name may hold a key, too: that of a map from keys to something.
                if members.keys().any(|name| self.redacted(name) != *name) {
                    let named = std::mem::take(members).into_iter();
                    *members = named
                        .map(|(name, item)| (self.redacted(&name), item))
                        .collect();
                }
                let names_key = members
                    .get("name")
                    .and_then(Value::as_str)
                    .is_some_and(|name| names_secret(name) || mcp::is_secret(name));
                for (name, item) in members {
                    if item.is_string() && (names_secret(name) || names_key && name == "value") {
                        *item = REDACTED.into();
                    } else {
                        self.redact(item);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a member, variable or header of this name is likely to hold a key.
fn names_secret(name: &str) -> bool {
    const ENDS: [&str; 4] = ["authorization", "privatekey", "secretkey", "accesskey"];
    let lower = name.to_ascii_lowercase();
    is_secret(name) || ENDS.iter().any(|end| lower.ends_with(end))
}

/// Redacts the headers of an endpoint that the client sets: each may be a key, whatever its name.
fn blank_endpoint(message: &mut Value) {
    if message["method"] != SET_ENDPOINT {
        return;
    }
    let params = message.get_mut("params").and_then(Value::as_object_mut);
    for (name, value) in params.into_iter().flatten() {
        if name != "headers" {
            continue;
        }
        match value {
            Value::Object(headers) => headers
                .values_mut()
                .for_each(|value| *value = REDACTED.into()),
            other => *other = REDACTED.into(),
        }
    }
}

/// Returns the values of the headers of an endpoint that the client sets, with and without the
/// scheme before the key (`Bearer …`).
fn endpoint_keys(message: &Value) -> Vec<String> {
    if message["method"] != SET_ENDPOINT {
        return Vec::new();
    }
    let headers = message["params"]["headers"].as_object();
    let values = headers.into_iter().flat_map(|headers| headers.values());
    values
        .filter_map(Value::as_str)
        .flat_map(|value| [Some(value), value.rsplit(' ').next()])
        .flatten()
        .map(str::to_owned)
        .collect()
}

/// Collects the values of variables and headers that are named like a key: of pairs (`{"name": …,
/// "value": …}`), and of the members of `env` and `headers`. A header's value counts without the
/// scheme before it (`Bearer …`).
fn named_keys(message: &Value, found: &mut Vec<String>) {
    let is_key = |name: &str| names_secret(name) || mcp::is_secret(name);
    let key = |value: &Value| Some(value.as_str()?.rsplit(' ').next()?.to_owned());
    match message {
        Value::Array(items) => items.iter().for_each(|item| named_keys(item, found)),
        Value::Object(members) => {
            if let Some(name) = members.get("name").and_then(Value::as_str)
                && let Some(value) = members.get("value")
                && is_key(name)
            {
                found.extend(key(value));
            }
            for part in ["env", "headers"] {
                let named = members.get(part).and_then(Value::as_object);
                for (name, value) in named.into_iter().flatten() {
                    if is_key(name) {
                        found.extend(key(value));
                    }
                }
            }
            members.values().for_each(|item| named_keys(item, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn list(keys: &[&str]) -> KeyList {
        let mut list = KeyList::default();
        list.add(keys.iter().map(|key| (*key).to_owned()));
        list
    }

    #[test]
    fn keys_are_redacted_by_value_and_by_name() {
        let keys = list(&[
            "sk-12345678",
            "sk-12345678-long",
            "short",
            "line one\nline two",
        ]);
        let table = [
            (r#"{"a":"x sk-12345678 y"}"#, r#"{"a":"x (redacted) y"}"#),
            (r#"{"a":["sk-12345678-long"]}"#, r#"{"a":["(redacted)"]}"#),
            (r#"{"a":"short"}"#, r#"{"a":"short"}"#),
            (
                r#"{"a":"line one\nline two","b":"{\"c\":\"line one\\nline two\"}"}"#,
                r#"{"a":"(redacted)","b":"{\"c\":\"(redacted)\"}"}"#,
            ),
            (
                r#"{"env":[{"name":"API_KEY","value":"abc"},{"name":"HOME","value":"/h"}]}"#,
                r#"{"env":[{"name":"API_KEY","value":"(redacted)"},{"name":"HOME","value":"/h"}]}"#,
            ),
            (
                r#"{"headers":[{"name":"Authorization","value":"Bearer abc"}]}"#,
                r#"{"headers":[{"name":"Authorization","value":"(redacted)"}]}"#,
            ),
            (r#"{"API_TOKEN":"abc"}"#, r#"{"API_TOKEN":"(redacted)"}"#),
            (
                r#"{"limits":{"b":1,"sk-12345678":{"a":"sk-12345678"},"c":2}}"#,
                r#"{"limits":{"b":1,"(redacted)":{"a":"(redacted)"},"c":2}}"#,
            ),
        ];
        for (line, wanted) in table {
            let mut value = serde_json::from_str(line).unwrap();
            keys.redact(&mut value);
            assert_eq!(value.to_string(), wanted);
        }
    }

    #[test]
    fn keys_of_later_logins_and_settings_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let project = dir.path().join("project");
        std::fs::create_dir_all(&project).unwrap();
        let environment = Environment::from_vars(BTreeMap::from([
            ("HOME".to_owned(), home.display().to_string()),
            ("SERVICE_TOKEN".to_owned(), "token-of-variable".to_owned()),
        ]));
        let mut known = KnownKeys::new(&environment);
        known.read_project(&project);
        let text = "token-of-variable key-of-login key-of-settings token-of-login";
        assert_eq!(
            known.redacted(text),
            "(redacted) key-of-login key-of-settings token-of-login"
        );

        std::fs::create_dir_all(&environment.dirs.data).unwrap();
        let logins = r#"{"a":{"type":"api","key":"key-of-login"}}"#;
        std::fs::write(environment.dirs.data.join("auth.json"), logins).unwrap();
        known.refresh();
        assert_eq!(
            known.redacted(text),
            "(redacted) (redacted) key-of-settings token-of-login"
        );

        let settings = r#"{"provider":{"a":{"options":{"apiKey":"key-of-settings"}}}}"#;
        let file = environment.dirs.config.join("adjutant.json");
        std::fs::create_dir_all(&environment.dirs.config).unwrap();
        std::fs::write(file, settings).unwrap();
        known.refresh_projects();
        // A refreshed token, while the old key may still be mentioned.
        let logins = r#"{"a":{"type":"oauth","access":"token-of-login"}}"#;
        std::fs::write(environment.dirs.data.join("auth.json"), logins).unwrap();
        known.refresh();
        assert_eq!(
            known.redacted(text),
            "(redacted) (redacted) (redacted) (redacted)"
        );
    }

    #[test]
    fn headers_of_an_endpoint_are_redacted_whatever_their_names() {
        let set = r#"{"method":"providers/set","params":{"baseUrl":"https://gw.example","headers":{"x-team":"a","x-any":"Bearer key-12345"}}}"#;
        let mut message = serde_json::from_str(set).unwrap();
        assert_eq!(
            endpoint_keys(&message),
            ["a", "a", "Bearer key-12345", "key-12345"]
        );
        blank_endpoint(&mut message);
        let wanted = r#"{"method":"providers/set","params":{"baseUrl":"https://gw.example","headers":{"x-team":"(redacted)","x-any":"(redacted)"}}}"#;
        assert_eq!(message, serde_json::from_str::<Value>(wanted).unwrap());
        let mut wrong =
            serde_json::json!({ "method": SET_ENDPOINT, "params": { "headers": "key" } });
        blank_endpoint(&mut wrong);
        assert_eq!(wrong["params"]["headers"], REDACTED);
    }

    #[test]
    fn keys_of_a_client_are_added() {
        let table = [
            (r#"{"name":"API_KEY","value":"k1"}"#, vec!["k1"]),
            (r#"{"name":"X-Auth","value":"Bearer k2"}"#, vec!["k2"]),
            (r#"{"a":[{"env":{"TOKEN":"k3","HOME":"/h"}}]}"#, vec!["k3"]),
            (r#"{"headers":{"Cookie":"k4"}}"#, vec!["k4"]),
            // Names of other things: a permission, a setting.
            (r#"{"key":"workspace","kind":"token"}"#, vec![]),
        ];
        for (message, wanted) in table {
            let mut found = Vec::new();
            named_keys(&serde_json::from_str(message).unwrap(), &mut found);
            assert_eq!(found, wanted, "{message}");
        }
    }
}
