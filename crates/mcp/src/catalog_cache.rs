//! Stores the catalogue of each server for its next start, so that its tools are offered before it
//! is ready. There is one file for each settings entry, in a directory that only the owner can read.
//! The file name is a digest of the entry's identity, which includes the names of its variables and
//! headers, but not their values. A damaged file, or one of another format, is treated as missing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::catalog::ServerCatalog;
use super::credential_store::StoredLogin;
use base::environment::{Environment, private_dir, private_file};
use base::lock::lock;
use base::text;
use config::settings::{McpEntry, Transport};

/// The format of a file; one of another format is not read.
const FORMAT: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The number of entries that are retained, those used last.
const MAX_ENTRIES: usize = 200;
/// The total size of the retained entries, in bytes.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct StoredCatalog<T> {
    format: u32,
    catalog: T,
}

/// The stored catalogue of one settings entry.
pub(super) struct CatalogCache {
    pub directory: PathBuf,
    pub entry: McpEntry,
    /// The session's directory.
    pub cwd: PathBuf,
    /// True if there is a user who can be asked. Servers are informed of it, and may list other
    /// tools.
    pub is_attended: bool,
    /// The stored login, if it may have one.
    pub login: Option<StoredLogin>,
    pub environment: Environment,
    /// The tasks that write catalogues; the session waits for them when it ends.
    pub tasks: TaskTracker,
    /// The latest catalogue that is not written yet; `None` if all are.
    // A leaf lock around a value.
    pub unwritten: Mutex<Option<ServerCatalog>>,
    // Held during a write, by threads that do nothing else.
    pub writing: Mutex<()>,
}

impl CatalogCache {
    /// Reads the stored catalogue; `None` if there is none or it cannot be used. Blocks.
    pub(super) fn read(&self) -> Option<ServerCatalog> {
        let file = base::file::open_regular(&self.file()).ok()?;
        if file.metadata().ok()?.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, MAX_FILE_BYTES), &mut bytes).ok()?;
        let stored: StoredCatalog<ServerCatalog> = serde_json::from_slice(&bytes).ok()?;
        (stored.format == FORMAT).then(|| stored.catalog.limited())
    }

    /// Writes the catalogue in the background. If several wait, only the latest is written.
    pub(super) fn store(self: Arc<Self>, catalog: ServerCatalog) {
        *lock(&self.unwritten) = Some(catalog);
        let tasks = self.tasks.clone();
        let written = async move {
            let write = move || {
                let _writing = lock(&self.writing);
                let Some(catalog) = lock(&self.unwritten).take() else {
                    return;
                };
                if let Err(e) = self.write(&catalog) {
                    tracing::info!(
                        "the list of MCP server {} is not saved: {e}",
                        self.entry.name
                    );
                }
            };
            // A panic is already logged.
            base::task::spawn_blocking(write).await.ok();
        };
        base::task::spawn_in(&tasks, written);
    }

    fn write(&self, catalog: &ServerCatalog) -> io::Result<()> {
        let now = UNIX_EPOCH + Duration::from_millis(self.environment.now().0);
        let path = self.file();
        let bytes = serde_json::to_vec(&StoredCatalog {
            format: FORMAT,
            catalog,
        })?;
        private_dir(&self.directory)?;
        let known = base::file::open_regular(&path)
            .and_then(|file| file.metadata())
            .map_or(0, |meta| meta.len());
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if known == size && base::file::read_regular(&path)? == bytes {
            // The modification time records when a file was last used.
            return private_file().write(true).open(&path)?.set_modified(now);
        }
        // A temporary file has mode 0600 and replaces the old one atomically, so that a process
        // writing at the same time also leaves a complete file.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        io::Write::write_all(&mut file, &bytes)?;
        file.as_file().set_modified(now)?;
        file.persist(&path).map_err(|e| e.error)?;
        trim(&self.directory, MAX_ENTRIES, MAX_TOTAL_BYTES)
    }

    fn file(&self) -> PathBuf {
        let identity = identity(
            &self.entry,
            &self.cwd,
            self.is_attended,
            self.login.as_ref(),
        )
        .to_string();
        let digest = ring::digest::digest(&ring::digest::SHA256, identity.as_bytes());
        self.directory
            .join(format!("{}.json", text::hex(digest.as_ref())))
    }
}

/// Returns the identity of an entry. Entries with different identities may list different tools.
fn identity(entry: &McpEntry, cwd: &Path, is_attended: bool, login: Option<&StoredLogin>) -> Value {
    let transport = match &entry.transport {
        Transport::Local {
            command,
            cwd: own,
            environment,
        } => {
            // The directory is part of a command's meaning: `npm run mcp`, or `npx` with packages
            // of the project.
            let directory = own
                .as_ref()
                .map_or_else(|| cwd.to_path_buf(), |own| cwd.join(own));
            let directory = directory.as_os_str().as_encoded_bytes();
            json!({ "command": command, "variables": names(environment), "directory": directory })
        }
        Transport::Remote {
            url,
            headers,
            oauth,
            sse,
        } => {
            let oauth = oauth.as_ref().map(|oauth| (&oauth.client_id, &oauth.scope));
            let logged_in = login.is_some_and(|login| login.login_in_own_file().is_some());
            json!({ "url": url, "headers": names(headers), "sse": sse, "oauth": oauth, "loggedIn": logged_in })
        }
        Transport::Editor { id } => json!({ "editor": id }),
    };
    json!({ "name": entry.name, "attended": is_attended, "sampling": entry.sampling, "transport": transport })
}

fn names(pairs: &[(String, String)]) -> Vec<String> {
    let mut names: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names
}

/// Removes the files that were used longest ago, down to both limits.
fn trim(directory: &Path, max_entries: usize, max_bytes: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // Another process may have removed it.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() {
            files.push((meta.modified()?, meta.len(), entry.path()));
        }
    }
    files.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0_u64;
    for (at, (_, size, path)) in files.iter().enumerate() {
        bytes = bytes.saturating_add(*size);
        // The latest file is retained regardless of its size.
        if at > 0 && (at >= max_entries || bytes > max_bytes) {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(transport: Transport) -> McpEntry {
        McpEntry {
            name: "a".into(),
            enabled: true,
            timeout: Duration::from_secs(1),
            call_timeout: None,
            sampling: false,
            log: None,
            transport,
            source: "a test".into(),
        }
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn local(command: &[&str], environment: &[(&str, &str)]) -> McpEntry {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        entry(Transport::Local {
            command,
            cwd: None,
            environment: pairs(environment),
        })
    }

    fn memory(directory: &Path, entry: McpEntry) -> Arc<CatalogCache> {
        let environment =
            Environment::from_vars([("HOME".to_owned(), directory.display().to_string())].into());
        Arc::new(CatalogCache {
            directory: directory.join("lists"),
            entry,
            cwd: directory.to_path_buf(),
            is_attended: true,
            login: None,
            environment,
            tasks: TaskTracker::new(),
            unwritten: Mutex::default(),
            writing: Mutex::default(),
        })
    }

    fn catalog(tool: &str) -> ServerCatalog {
        let tool = json!({ "name": tool, "inputSchema": { "type": "object", "b": 1, "a": 2.5 } });
        ServerCatalog {
            tools: vec![serde_json::from_value(tool).unwrap()],
            is_cut: false,
            unreadable: Vec::new(),
            prompts: Vec::new(),
            can_complete: true,
            has_resources: false,
            can_subscribe: false,
            instructions: Some("Be kind.".into()),
        }
    }

    #[test]
    fn identity_differs_for_another_entry() {
        let cwd = Path::new("/nowhere");
        let of = |entry: &McpEntry| identity(entry, cwd, true, None).to_string();
        let usual = local(&["npx", "x"], &[("KEY", "secret")]);
        let remote = |url: &str, headers: &[(&str, &str)]| {
            entry(Transport::Remote {
                url: url.into(),
                headers: pairs(headers),
                oauth: None,
                sse: false,
            })
        };
        let far = remote("https://a.example/", &[("X-Key", "secret")]);
        assert!(!of(&usual).contains("secret") && !of(&far).contains("secret"));
        // The value of a variable or a header, its limit and its place in the file make no other
        // entry.
        assert_eq!(of(&usual), of(&local(&["npx", "x"], &[("KEY", "other")])));
        assert_eq!(
            of(&far),
            of(&remote("https://a.example/", &[("X-Key", "other")]))
        );
        let later = McpEntry {
            timeout: Duration::from_secs(9),
            source: "elsewhere".into(),
            ..usual.clone()
        };
        assert_eq!(of(&usual), of(&later));
        let others = [
            local(&["npx", "y"], &[("KEY", "secret")]),
            local(&["npx", "x"], &[("OTHER", "secret")]),
            local(&["npx", "x"], &[]),
            McpEntry {
                name: "b".into(),
                ..usual.clone()
            },
            McpEntry {
                sampling: true,
                ..usual.clone()
            },
            entry(Transport::Local {
                command: vec!["npx".into(), "x".into()],
                cwd: Some("below".into()),
                environment: pairs(&[("KEY", "secret")]),
            }),
            far.clone(),
            remote("https://b.example/", &[("X-Key", "secret")]),
            remote("https://a.example/", &[("X-Other", "secret")]),
        ];
        for (at, other) in others.iter().enumerate() {
            assert!(of(&usual) != of(other), "{at}: {}", of(other));
        }
        let unattended = identity(&usual, cwd, false, None).to_string();
        assert!(of(&usual) != unattended);
    }

    #[test]
    fn identity_differs_after_login() {
        let home = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_vars([("HOME".to_owned(), home.path().display().to_string())].into());
        let url = "https://a.example/";
        let far = entry(Transport::Remote {
            url: url.into(),
            headers: Vec::new(),
            oauth: None,
            sse: false,
        });
        let of = |login: &StoredLogin| {
            identity(&far, Path::new("/nowhere"), true, Some(login)).to_string()
        };
        let login = StoredLogin::new("a", url, &environment);
        let logged_out = of(&login);
        std::fs::create_dir_all(&environment.dirs.data).unwrap();
        let stored = json!({ "a": { "serverUrl": url, "tokens": { "accessToken": "secret" } } });
        std::fs::write(login.path(), stored.to_string()).unwrap();
        assert!(of(&login) != logged_out && !of(&login).contains("secret"));
        login.remove().unwrap();
        assert_eq!(of(&login), logged_out);
    }

    #[test]
    fn identity_of_a_program_depends_on_its_directory() {
        let npx = local(&["npx", "-y", "x"], &[]);
        let of = |cwd: &str| identity(&npx, Path::new(cwd), true, None).to_string();
        assert!(of("/one") != of("/two"));
    }

    #[test]
    fn written_catalog_is_read_back_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let memory = memory(dir.path(), local(&["npx", "x"], &[]));
        assert_eq!(memory.read(), None);
        memory.write(&catalog("one")).unwrap();
        assert_eq!(memory.read(), Some(catalog("one")));
        let order = |catalog: &ServerCatalog| serde_json::to_string(catalog).unwrap();
        assert_eq!(
            memory.read().map(|read| order(&read)),
            Some(order(&catalog("one")))
        );
        memory.write(&catalog("two")).unwrap();
        assert_eq!(memory.read(), Some(catalog("two")));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(
                (mode(&memory.directory), mode(&memory.file())),
                (0o700, 0o600)
            );
        }
        for damaged in [
            &b"{\"format\":1,\"catalog\":{\"tools\":[{\"na"[..],
            b"\xff\xfe",
            b"[]",
            b"",
        ] {
            std::fs::write(memory.file(), damaged).unwrap();
            assert_eq!(memory.read(), None, "{damaged:?}");
        }
        let other = StoredCatalog {
            format: FORMAT + 1,
            catalog: catalog("two"),
        };
        std::fs::write(memory.file(), serde_json::to_vec(&other).unwrap()).unwrap();
        assert_eq!(memory.read(), None);
        memory.write(&catalog("three")).unwrap();
        assert_eq!(memory.read(), Some(catalog("three")));
    }

    #[tokio::test]
    async fn concurrent_stores_leave_one_complete_file() {
        let dir = tempfile::tempdir().unwrap();
        let both = [0, 1].map(|_| memory(dir.path(), local(&["npx", "x"], &[])));
        for n in 0..20 {
            for memory in &both {
                memory.clone().store(catalog(&format!("tool_{n}")));
            }
        }
        for memory in &both {
            memory.tasks.close();
            memory.tasks.wait().await;
        }
        assert_eq!(both[0].read(), Some(catalog("tool_19")));
        let left: Vec<_> = std::fs::read_dir(&both[0].directory).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn trim_retains_the_files_used_last() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["old", "older", "new"];
        for (name, age) in names.into_iter().zip([20, 30, 10]) {
            let path = dir.path().join(name);
            std::fs::write(&path, "0123456789").unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000 - age))
                .unwrap();
        }
        let left = || {
            let names = std::fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        trim(dir.path(), 3, 30).unwrap();
        assert_eq!(left(), ["new", "old", "older"]);
        trim(dir.path(), 3, 29).unwrap();
        assert_eq!(left(), ["new", "old"]);
        trim(dir.path(), 1, 100).unwrap();
        assert_eq!(left(), ["new"]);
        trim(dir.path(), 1, 5).unwrap();
        assert_eq!(left(), ["new"]);
    }
}
