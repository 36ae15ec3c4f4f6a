//! The stored credentials of providers: keys, and tokens of logins.
//!
//! They are in `auth.json` in adjutant's data directory, in OpenCode's format, readable only by
//! its owner. [`Auth`] reads this file, and OpenCode's own one, which it never writes. If
//! `AUTH_CONTENT` is set, its value replaces both files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::entry::Login;
use crate::secret::Secret;
use base::environment::{Environment, private_dir, write_private_file};

/// The stored credential of a provider.
#[derive(Debug, Clone, PartialEq)]
pub enum Credential {
    /// An API key.
    Key(Secret),
    /// The result of an OAuth login.
    Tokens(OauthTokens),
}

/// The tokens of an OAuth login.
#[derive(Debug, Clone, PartialEq)]
pub struct OauthTokens {
    /// The access token, which requests carry.
    pub access: Secret,
    /// The refresh token, which is exchanged for the next access token; `None` if the server
    /// issued none.
    pub refresh: Option<Secret>,
    /// The expiry of the access token, in milliseconds since 1970; `None` if it does not expire.
    pub expires: Option<u64>,
    /// The OAuth server that issued the tokens.
    pub login: Login,
}

/// A credential in the list of [`Auth::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCredential {
    /// The provider's id.
    pub provider: String,
    /// For display: `key`, `login`, [`Auth::PLUGIN_LOGIN`] or `organisation without a token`.
    pub kind: &'static str,
    /// [`Auth::IN_ADJUTANT_FILE`], [`Auth::IN_OPENCODE_FILE`] or [`Auth::IN_VARIABLE`].
    pub location: &'static str,
}

/// The user's credentials, by provider.
#[derive(Clone, Default)]
pub struct Auth {
    /// The entries of the files, by the provider's id.
    entries: Map<String, Value>,
    /// True if the user has plugins, which may use logins that adjutant itself cannot use.
    has_plugin_logins: bool,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.entries.keys()).finish()
    }
}

impl Auth {
    /// Reads the credentials. A file that cannot be read or is not JSON counts as empty: a missing
    /// key is reported when a model is used.
    pub fn read(environment: &Environment) -> Self {
        if let Some(text) = environment.setting("AUTH_CONTENT") {
            return Self::parse(text);
        }
        let mut auth = Self::default();
        // OpenCode's file first, so that adjutant's entries replace its entries.
        for path in Self::opencode_path(environment)
            .into_iter()
            .chain([Self::path(environment)])
        {
            let text = text_of(&path);
            auth.entries.extend(Self::parse(&text).entries);
        }
        auth
    }

    fn opencode_path(environment: &Environment) -> Option<PathBuf> {
        Some(Self::opencode_data_dir(environment)?.join("auth.json"))
    }

    /// Returns OpenCode's data directory.
    pub fn opencode_data_dir(environment: &Environment) -> Option<PathBuf> {
        let data = environment.var("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.or_else(|| Some(environment.home.as_ref()?.join(".local/share")))?;
        Some(data.join("opencode"))
    }

    /// Returns the path of adjutant's `auth.json`.
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("auth.json")
    }

    /// Returns the files of stored credentials: for providers and for MCP servers, adjutant's and
    /// OpenCode's.
    pub fn credential_files(environment: &Environment) -> Vec<PathBuf> {
        let data = [
            Some(environment.dirs.data.clone()),
            Self::opencode_data_dir(environment),
        ];
        data.into_iter()
            .flatten()
            .flat_map(|data| [data.join("auth.json"), data.join("mcp-auth.json")])
            .collect()
    }

    /// Parses the text of an `auth.json`; returns no credentials if it is not a JSON object.
    pub fn parse(text: &str) -> Self {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let entries = map
            .into_iter()
            .map(|(id, value)| (id.trim_end_matches('/').to_owned(), value))
            .collect();
        Self {
            entries,
            has_plugin_logins: false,
        }
    }

    /// Returns the key of a provider; `None` if there is none, or only a login.
    pub fn key(&self, provider: &str) -> Option<Secret> {
        let entry = self.entries.get(provider)?;
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
        self.entries.get(provider)
    }

    /// Returns the tokens of a login that adjutant made; `None` for those of plugins and of
    /// OpenCode, whose entries do not name the OAuth server.
    pub fn tokens(&self, provider: &str) -> Option<OauthTokens> {
        let entry = self
            .entries
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
        const SECRET_FIELDS: [&str; 4] = ["key", "token", "access", "refresh"];
        self.entries.values().flat_map(move |entry| {
            SECRET_FIELDS
                .into_iter()
                .filter_map(|name| entry.get(name)?.as_str())
        })
    }

    /// Returns the tokens and secrets of logins at MCP servers, adjutant's and OpenCode's.
    pub fn mcp_server_secrets(environment: &Environment) -> Vec<String> {
        const SECRET_FIELDS: [(&str, &str); 3] = [
            ("tokens", "accessToken"),
            ("tokens", "refreshToken"),
            ("clientInfo", "clientSecret"),
        ];
        let data_dirs = [
            Some(environment.dirs.data.clone()),
            Self::opencode_data_dir(environment),
        ];
        let mut secrets = Vec::new();
        for data in data_dirs.into_iter().flatten() {
            let text = text_of(&data.join("mcp-auth.json"));
            let entries: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            for entry in entries.values() {
                for (object, field) in SECRET_FIELDS {
                    secrets.extend(entry[object][field].as_str().map(str::to_owned));
                }
            }
        }
        secrets
    }

    /// True if there is a key for the provider, or a login that yields a token.
    pub fn has(&self, provider: &str) -> bool {
        self.key(provider).is_some() || self.tokens(provider).is_some()
    }

    /// Returns these credentials with the flag that the user has plugins, which may use logins
    /// that adjutant itself cannot use.
    #[must_use]
    pub fn with_plugin_logins(self, has_plugin_logins: bool) -> Self {
        Self {
            has_plugin_logins,
            ..self
        }
    }

    /// True if there is a login that only a plugin may be able to use. Such a login is tried when
    /// a model is used.
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
    pub const IN_ADJUTANT_FILE: &str = "in adjutant's auth.json";
    /// The location of OpenCode's file, for display.
    pub const IN_OPENCODE_FILE: &str = "in OpenCode's auth.json";
    /// The variable that replaces both files, for display.
    pub const IN_VARIABLE: &str = "in AUTH_CONTENT";

    /// The kind of a login that a plugin made, and uses, for display.
    pub const PLUGIN_LOGIN: &str = "login of a plugin";

    /// Returns every usable credential, adjutant's first. Both files may have one for the same
    /// provider.
    pub fn list(environment: &Environment) -> Vec<StoredCredential> {
        if let Some(text) = environment.setting("AUTH_CONTENT") {
            return Self::parse(text).usable_credentials(Self::IN_VARIABLE);
        }
        let read = |path: PathBuf| Self::parse(&text_of(&path));
        let mut all = read(Self::path(environment)).usable_credentials(Self::IN_ADJUTANT_FILE);
        if let Some(path) = Self::opencode_path(environment) {
            all.extend(read(path).usable_credentials(Self::IN_OPENCODE_FILE));
        }
        all
    }

    /// Returns the usable credentials of one file, whose location is `location`.
    fn usable_credentials(&self, location: &'static str) -> Vec<StoredCredential> {
        // A login made by a plugin is used by that plugin.
        let is_of_plugin = |id: &str| location == Self::IN_ADJUTANT_FILE && self.is_login(id);
        // The defaults of an organisation apply without a token, too.
        let is_organisation = |id: &str| self.is_of_kind(id, "wellknown");
        let mut usable = Vec::new();
        for id in self.entries.keys() {
            if !self.has(id) && !is_of_plugin(id) && !is_organisation(id) {
                continue;
            }
            let kind = if self.key(id).is_some() {
                "key"
            } else if self.tokens(id).is_some() {
                "login"
            } else if is_organisation(id) {
                "organisation without a token"
            } else {
                Self::PLUGIN_LOGIN
            };
            usable.push(StoredCredential {
                provider: id.clone(),
                kind,
                location,
            });
        }
        usable
    }

    /// Stores the credential of a provider in adjutant's file; `None` removes it. Other entries are
    /// preserved, even if other processes change the file at the same time.
    ///
    /// # Errors
    /// The error of the system if the file cannot be written; the file is then unchanged.
    pub fn store(path: &Path, provider: &str, credential: Option<&Credential>) -> io::Result<()> {
        let entry = credential.map(|credential| match credential {
            Credential::Key(key) => json!({"type": "api", "key": key.expose()}),
            Credential::Tokens(tokens) => json!({"type": "oauth", "access": tokens.access.expose(),
                "refresh": tokens.refresh.as_ref().map_or("", Secret::expose), "expires": tokens.expires.unwrap_or(0),
                "login": tokens.login}),
        });
        Self::change_file(path, |map| match entry {
            Some(entry) => drop(map.insert(provider.to_owned(), entry)),
            None => drop(map.shift_remove(provider)),
        })
    }

    /// Returns the providers whose keys or logins adjutant has stored itself, by id.
    pub fn stored_providers(environment: &Environment) -> Vec<String> {
        Self::list(environment)
            .into_iter()
            .filter(|stored| stored.location == Self::IN_ADJUTANT_FILE)
            .map(|stored| stored.provider)
            .collect()
    }

    /// Removes all entries of adjutant's file.
    ///
    /// # Errors
    /// Same as [`Auth::store`].
    pub fn remove_all(environment: &Environment) -> io::Result<()> {
        let path = Self::path(environment);
        if path.exists() {
            Self::change_file(&path, Map::clear)
        } else {
            Ok(())
        }
    }

    /// Changes a file of secrets atomically, under a lock against concurrent changes. The file is
    /// only accessible to its owner.
    ///
    /// # Errors
    /// Same as [`Auth::store`].
    pub fn change_file(
        path: &Path,
        change: impl FnOnce(&mut Map<String, Value>),
    ) -> io::Result<()> {
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

/// Reads a file of secrets; returns an empty text if that fails, or if it is not a regular file,
/// because reading a pipe would wait for its writer.
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
        assert!(Auth::parse("oops").entries.is_empty());
    }

    #[test]
    fn stored_key_is_readable_by_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/auth.json");
        Auth::store(&path, "a", Some(&Credential::Key(Secret::new("k")))).unwrap();
        Auth::store(&path, "b", Some(&Credential::Key(Secret::new("l")))).unwrap();
        Auth::store(&path, "a", None).unwrap();
        let auth = Auth::parse(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(
            (auth.entries.len(), auth.entries["b"]["type"].as_str()),
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
        assert!(Auth::store(&path, "a", None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "damaged");
    }
}
