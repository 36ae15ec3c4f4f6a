//! Stored credentials: `auth.json` in the data directory, in OpenCode's format, readable only by
//! its owner. OpenCode's own file is read too and never written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::entry::Login;
use crate::secret::Secret;
use base::environment::{Environment, private_dir, write_private_file};

/// The stored credential of a provider.
#[derive(Debug, Clone, PartialEq)]
pub enum Credential {
    Key(Secret),
    Tokens(OauthTokens),
}

#[derive(Debug, Clone, PartialEq)]
pub struct OauthTokens {
    pub access: Secret,
    /// The refresh token, which is exchanged for the next access token.
    pub refresh: Option<Secret>,
    /// The expiry of the access token, in milliseconds since 1970.
    pub expires: Option<u64>,
    pub login: Login,
}

/// The user's credentials, by provider.
#[derive(Clone, Default)]
pub struct Auth {
    all: Map<String, Value>,
    /// Whether the user has plugins, which may use logins that adjutant itself cannot use.
    has_plugin_logins: bool,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Auth {
    /// Reads the credentials. A file that cannot be read or is not JSON counts as empty: a missing
    /// key is reported when a model is used.
    pub fn read(environment: &Environment) -> Self {
        if let Some(text) = environment.setting("AUTH_CONTENT") {
            return Self::parse(text);
        }
        let mut all = Self::default();
        for path in Self::their_path(environment)
            .into_iter()
            .chain([Self::path(environment)])
        {
            let text = text_of(&path);
            all.all.extend(Self::parse(&text).all);
        }
        all
    }

    fn their_path(environment: &Environment) -> Option<PathBuf> {
        Some(Self::their_data(environment)?.join("auth.json"))
    }

    /// Returns OpenCode's data directory.
    pub fn their_data(environment: &Environment) -> Option<PathBuf> {
        let data = environment.var("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.or_else(|| Some(environment.home.as_ref()?.join(".local/share")))?;
        Some(data.join("opencode"))
    }

    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("auth.json")
    }

    /// Returns the files of stored credentials: for providers and for MCP servers, adjutant's and
    /// OpenCode's.
    pub fn files(environment: &Environment) -> Vec<PathBuf> {
        let data = [
            Some(environment.dirs.data.clone()),
            Self::their_data(environment),
        ];
        data.into_iter()
            .flatten()
            .flat_map(|data| [data.join("auth.json"), data.join("mcp-auth.json")])
            .collect()
    }

    /// Parses the text of an `auth.json`.
    pub fn parse(text: &str) -> Self {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let all = map
            .into_iter()
            .map(|(id, value)| (id.trim_end_matches('/').to_owned(), value))
            .collect();
        Self {
            all,
            has_plugin_logins: false,
        }
    }

    pub fn key(&self, provider: &str) -> Option<Secret> {
        let entry = self.all.get(provider)?;
        let field = match entry.get("type")?.as_str()? {
            "api" => "key",
            "wellknown" => "token",
            // Copilot requires GitHub's own token, which OpenCode stores under this name.
            "oauth" if provider.starts_with("github-copilot") => "refresh",
            _ => return None,
        };
        entry
            .get(field)?
            .as_str()
            .filter(|key| !key.trim().is_empty())
            .map(|key| Secret::new(key.trim()))
    }

    /// Returns the entry of a provider, as it is in the file.
    pub fn entry(&self, provider: &str) -> Option<&Value> {
        self.all.get(provider)
    }

    /// Returns the tokens of a login that adjutant made.
    pub fn tokens(&self, provider: &str) -> Option<OauthTokens> {
        let entry = self
            .all
            .get(provider)
            .filter(|entry| entry.get("type").is_some_and(|kind| kind == "oauth"))?;
        let text = |name: &str| {
            entry
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let login = serde_json::from_value(entry.get("login")?.clone()).ok()?;
        Some(OauthTokens {
            access: Secret::new(text("access")?),
            refresh: text("refresh").map(Secret::new),
            expires: entry
                .get("expires")
                .and_then(Value::as_u64)
                .filter(|at| *at > 0),
            login,
        })
    }

    /// Returns all secret values of all entries.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let named = ["key", "token", "access", "refresh"];
        self.all.values().flat_map(move |entry| {
            named
                .into_iter()
                .filter_map(|name| entry.get(name)?.as_str())
        })
    }

    /// Returns the tokens and secrets of logins at MCP servers, adjutant's and OpenCode's.
    pub fn server_secrets(environment: &Environment) -> Vec<String> {
        let files = [
            Some(environment.dirs.data.clone()),
            Self::their_data(environment),
        ];
        let mut found = Vec::new();
        for data in files.into_iter().flatten() {
            let text = text_of(&data.join("mcp-auth.json"));
            let all: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            let named = [
                ("tokens", "accessToken"),
                ("tokens", "refreshToken"),
                ("clientInfo", "clientSecret"),
            ];
            let of = |entry: &Value| {
                named.map(|(part, name)| entry[part][name].as_str().map(str::to_owned))
            };
            found.extend(all.values().flat_map(of).flatten());
        }
        found
    }

    /// Returns whether there is a key, or a login that yields one.
    pub fn has(&self, provider: &str) -> bool {
        self.key(provider).is_some() || self.tokens(provider).is_some()
    }

    /// Sets whether the user has plugins that may use other logins.
    #[must_use]
    pub fn with_plugin_logins(self, has_plugin_logins: bool) -> Self {
        Self {
            has_plugin_logins,
            ..self
        }
    }

    /// Returns whether there is a login that only a plugin may be able to use; whether one can is
    /// known when a model is used.
    pub fn may_serve_plugin(&self, provider: &str) -> bool {
        self.has_plugin_logins && !self.has(provider) && self.is_login(provider)
    }

    fn is_login(&self, provider: &str) -> bool {
        self.is_of_kind(provider, "oauth")
    }

    fn is_of_kind(&self, provider: &str, wanted: &str) -> bool {
        self.entry(provider)
            .and_then(|entry| entry.get("type"))
            .is_some_and(|kind| kind == wanted)
    }

    /// The location of adjutant's file, for display.
    pub const OURS: &str = "in adjutant's auth.json";
    /// The location of OpenCode's file, for display.
    pub const THEIRS: &str = "in OpenCode's auth.json";
    /// The variable that replaces both files, for display.
    pub const VARIABLE: &str = "in AUTH_CONTENT";

    /// The kind of a login that a plugin made, and uses.
    pub const PLUGIN_LOGIN: &str = "login of a plugin";

    /// Returns provider, kind (`key` or `login`) and location of every usable credential,
    /// adjutant's first.
    pub fn places(environment: &Environment) -> Vec<(String, &'static str, &'static str)> {
        let of = |auth: Self, source: &'static str| -> Vec<_> {
            // A login made by a plugin is used by that plugin.
            let is_of_plugin = |id: &String| source == Self::OURS && auth.is_login(id);
            // The defaults of an organisation apply without a token, too.
            let is_open = |id: &String| auth.is_of_kind(id, "wellknown");
            let usable = auth
                .all
                .keys()
                .filter(|id| auth.has(id) || is_of_plugin(id) || is_open(id));
            let kind = |id: &String| match (auth.key(id), auth.tokens(id)) {
                (Some(_), _) => "key",
                (None, Some(_)) => "login",
                (None, None) if is_open(id) => "organisation without a token",
                (None, None) => Self::PLUGIN_LOGIN,
            };
            usable.map(|id| (id.clone(), kind(id), source)).collect()
        };
        if let Some(text) = environment.setting("AUTH_CONTENT") {
            return of(Self::parse(text), Self::VARIABLE);
        }
        let read = |path: PathBuf| Self::parse(&text_of(&path));
        let mut all = of(read(Self::path(environment)), Self::OURS);
        all.extend(
            Self::their_path(environment)
                .into_iter()
                .flat_map(|path| of(read(path), Self::THEIRS)),
        );
        all
    }

    /// Stores a key or a login in adjutant's file; `None` removes it. Other entries are preserved,
    /// even if other processes change the file at the same time.
    ///
    /// # Errors
    /// The error of the system if the file cannot be written; the file is then unchanged.
    pub fn keep(path: &Path, provider: &str, credential: Option<&Credential>) -> io::Result<()> {
        let entry = credential.map(|credential| match credential {
            Credential::Key(key) => json!({"type": "api", "key": key.expose()}),
            Credential::Tokens(tokens) => json!({"type": "oauth", "access": tokens.access.expose(),
                "refresh": tokens.refresh.as_ref().map_or("", Secret::expose), "expires": tokens.expires.unwrap_or(0),
                "login": tokens.login}),
        });
        Self::change(path, |map| match entry {
            Some(entry) => drop(map.insert(provider.to_owned(), entry)),
            None => drop(map.shift_remove(provider)),
        })
    }

    /// Returns the providers whose keys or logins adjutant has stored itself, by id.
    pub fn stored(environment: &Environment) -> Vec<String> {
        Self::places(environment)
            .into_iter()
            .filter(|(_, _, source)| *source == Self::OURS)
            .map(|(id, ..)| id)
            .collect()
    }

    /// Removes all entries of adjutant's file.
    ///
    /// # Errors
    /// Same as [`Auth::keep`].
    pub fn forget_all(environment: &Environment) -> io::Result<()> {
        let path = Self::path(environment);
        if path.exists() {
            Self::change(&path, Map::clear)
        } else {
            Ok(())
        }
    }

    /// Changes a file of secrets atomically, under a lock against concurrent changes. The file is
    /// only accessible to its owner.
    ///
    /// # Errors
    /// Same as [`Auth::keep`].
    pub fn change(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) -> io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        private_dir(dir)?;
        let lock = dir.join("auth.lock");
        write_private_file(&lock, b"")?;
        let lock = std::fs::File::open(lock)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
        let mut map: Map<String, Value> = match base::file::read_regular_text(path) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Map::new(),
            Err(e) => return Err(e),
        };
        change(&mut map);
        // A temporary file is created with mode 0600, and replaces the old one atomically.
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(&serde_json::to_vec_pretty(&map)?)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|e| e.error)
    }
}

/// Reads a file of secrets; returns an empty text if that fails. Reading a pipe would wait for its
/// writer.
fn text_of(path: &Path) -> String {
    if path.is_file() {
        base::file::read_regular_text(path).unwrap_or_default()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_every_kind_of_entry() {
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
        assert!(Auth::parse("oops").all.is_empty());
    }

    #[test]
    fn stored_key_is_readable_by_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/auth.json");
        Auth::keep(&path, "a", Some(&Credential::Key(Secret::new("k")))).unwrap();
        Auth::keep(&path, "b", Some(&Credential::Key(Secret::new("l")))).unwrap();
        Auth::keep(&path, "a", None).unwrap();
        let auth = Auth::parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(
            (auth.all.len(), auth.all["b"]["type"].as_str()),
            (1, Some("api"))
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        std::fs::write(&path, "damaged").unwrap();
        assert!(Auth::keep(&path, "a", None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "damaged");
    }
}
