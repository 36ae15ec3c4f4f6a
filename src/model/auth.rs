//! Keys that were given once: `auth.json` in the data directory, in OpenCode's format, readable by
//! its owner alone. OpenCode's own file is read too and never written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::wire::Secret;
use crate::environment::{Environment, private_dir};

/// What is known of the user's accounts, by provider.
#[derive(Clone, Default)]
pub struct Auth(Map<String, Value>);

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Auth {
    /// Reads what there is. A file that cannot be read or is no JSON counts as empty: a key that is
    /// missing is noticed, and named, when a model is asked.
    pub fn read(environment: &Environment) -> Self {
        if let Some(text) = environment.setting("AUTH_CONTENT") {
            return Self::parse(text);
        }
        let theirs = environment.var("XDG_DATA_HOME").map(PathBuf::from);
        let theirs = theirs.or_else(|| Some(environment.home.as_ref()?.join(".local/share")));
        let theirs = theirs.map(|data| data.join("opencode/auth.json"));
        let mut all = Self::default();
        for path in theirs.into_iter().chain([Self::path(environment)]) {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            all.0.extend(Self::parse(&text).0);
        }
        all
    }

    /// Where ours is.
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("auth.json")
    }

    /// Reads the text of an `auth.json`.
    pub fn parse(text: &str) -> Self {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        Self(map.into_iter().map(|(id, value)| (id.trim_end_matches('/').to_owned(), value)).collect())
    }

    /// The key for a provider.
    pub fn key(&self, provider: &str) -> Option<Secret> {
        let entry = self.0.get(provider)?;
        let field = match entry.get("type")?.as_str()? {
            "api" => "key",
            "wellknown" => "token",
            _ => return None,
        };
        entry.get(field)?.as_str().filter(|key| !key.trim().is_empty()).map(|key| Secret::new(key.trim()))
    }

    /// Whether there is a key, or something that gives one.
    pub fn has(&self, provider: &str) -> bool {
        self.key(provider).is_some()
    }

    /// The providers something is known for, and of what kind it is: `api`, `oauth`, `wellknown`.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(id, entry)| (id.as_str(), entry.get("type").and_then(Value::as_str).unwrap_or("unknown")))
    }

    /// Keeps a key in our file; none forgets it. What else is in the file stays.
    ///
    /// # Errors
    /// The system's, where the file cannot be written; it is then as it was.
    pub fn keep(path: &Path, provider: &str, key: Option<&Secret>) -> io::Result<()> {
        let mut map: Map<String, Value> = match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Map::new(),
            Err(e) => return Err(e),
        };
        match key {
            Some(key) => map.insert(provider.to_owned(), json!({"type": "api", "key": key.expose()})),
            None => map.shift_remove(provider),
        };
        let dir = path.parent().unwrap_or(Path::new("."));
        private_dir(dir)?;
        // A temporary file is made with mode 0600, and takes the old one's place in one step.
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec_pretty(&map)?)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|e| e.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_kind() {
        let auth = Auth::parse(
            r#"{"a": {"type": "api", "key": " k1 "}, "b": {"type": "oauth", "access": "x"},
                "https://c/": {"type": "wellknown", "key": "V", "token": "t"}, "d": {"type": "api", "key": ""}, "e": 7}"#,
        );
        let key = |id: &str| auth.key(id).map(|k| k.expose().to_owned());
        assert_eq!(key("a").as_deref(), Some("k1"));
        assert_eq!(key("https://c").as_deref(), Some("t"));
        for none in ["b", "d", "e", "f"] {
            assert_eq!(key(none), None, "{none}");
        }
        assert!(!format!("{auth:?}").contains("k1"));
        assert_eq!(Auth::parse("oops").entries().count(), 0);
    }

    #[test]
    fn a_key_is_kept_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/auth.json");
        Auth::keep(&path, "a", Some(&Secret::new("k"))).unwrap();
        Auth::keep(&path, "b", Some(&Secret::new("l"))).unwrap();
        Auth::keep(&path, "a", None).unwrap();
        let auth = Auth::parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(auth.entries().collect::<Vec<_>>(), [("b", "api")]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, "damaged").unwrap();
        assert!(Auth::keep(&path, "a", None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "damaged");
    }
}
