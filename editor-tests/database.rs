//! A PostgreSQL server of the tests' own: an ordinary user's, in a temporary directory, on a port
//! of loopback. It ends with the process that started it, however that ends.
//!
//! With `ADJUTANT_TEST_STORE=own` all pages keep their sessions in it; with an address they do in
//! that database; with `none` it is as if this machine had no PostgreSQL.

#![expect(
    clippy::disallowed_methods,
    reason = "a server has to be started, and where it is said from outside"
)]

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server that runs.
pub(crate) struct Database {
    /// Its address, to which `?…` can be added.
    pub(crate) url: String,
    pub(crate) dir: Option<PathBuf>,
    bin: PathBuf,
    // The server lives as long as its input.
    _watch: Option<Child>,
}

const VARIABLE: &str = "ADJUTANT_TEST_STORE";

/// The value of [`VARIABLE`] for no database at all.
const NO_DATABASE: &str = "none";

/// Returns whether all tests use a database.
pub(crate) fn wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|url| !url.is_empty() && url != NO_DATABASE)
}

/// Starts the server, waits for the end of its own input, and ends it. As root it becomes an
/// ordinary user, for the server refuses root.
const WATCH: &str = r#"
bin=$1 dir=$2 port=$3
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; else "$@"; fi; }
if [ "$(id -u)" = 0 ]; then chown nobody "$dir"; fi
cd "$dir"
as "$bin/initdb" -D "$dir/data" -U adjutant -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 || exit 1
echo "
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
port = $port
max_connections = 300" >>"$dir/data/postgresql.conf"
as "$bin/pg_ctl" -D "$dir/data" -l "$dir/server.log" -w start >>"$dir/log" 2>&1 || exit 1
echo ready
cat >/dev/null
for data in "$dir/data" "$dir/standby"; do
  if [ -d "$data" ]; then as "$bin/pg_ctl" -D "$data" -m immediate stop >>"$dir/log" 2>&1; fi
done
rm -rf "$dir"
"#;

/// Returns the directory of the server's programs.
fn programs() -> Option<PathBuf> {
    if std::env::var_os(VARIABLE).is_some_and(|url| url == NO_DATABASE) {
        return None;
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    found.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    found.into_iter().find(|dir| {
        ["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|name| dir.join(name).exists())
    })
}

impl Database {
    /// Returns the server of this process; `None`, reported once, without PostgreSQL.
    pub(crate) fn get() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<Database>> = OnceLock::new();
        let server = SERVER.get_or_init(|| {
            let started = Self::elsewhere().map_or_else(Self::start, Ok);
            started
                .inspect_err(|e| {
                    writeln!(
                        std::io::stderr(),
                        "skipped: what is kept in PostgreSQL is not tried here: {e}"
                    )
                    .ok();
                })
                .ok()
        });
        server.as_ref()
    }

    fn elsewhere() -> Option<Self> {
        let url = std::env::var(VARIABLE)
            .ok()
            .filter(|url| wanted() && url.starts_with("postgres"))?;
        Some(Self {
            url,
            dir: None,
            bin: PathBuf::new(),
            _watch: None,
        })
    }

    /// Starts one of its own.
    pub(crate) fn start() -> Result<Self, String> {
        let bin =
            programs().ok_or("there is no PostgreSQL (Debian: apt-get install postgresql)")?;
        let failed = |e: std::io::Error| e.to_string();
        let dir = tempfile::Builder::new()
            .prefix("adjutant-pg-")
            .tempdir()
            .map_err(failed)?
            .keep();
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .map_err(failed)?
            .port();
        let mut watch = Command::new("bash")
            .args(["-c", WATCH, "watch"])
            .args([&bin, &dir])
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut ready = String::new();
        let out = watch.stdout.take().ok_or("it has no output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut ready)
            .map_err(failed)?;
        if ready != "ready\n" {
            let log = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
            return Err(format!(
                "it does not start: {}{}",
                log("log"),
                log("server.log")
            ));
        }
        let url = format!("postgres://adjutant@127.0.0.1:{port}/postgres");
        Ok(Self {
            url,
            dir: Some(dir),
            bin,
            _watch: Some(watch),
        })
    }

    /// Returns the address of a new namespace with a short lease.
    pub(crate) fn fresh(&self, lease: u64) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let between = if self.url.contains('?') { '&' } else { '?' };
        format!(
            "{}{between}namespace=t{}_{count}&lease={lease}",
            self.url,
            std::process::id()
        )
    }

    /// Has the server do something, as `pg_ctl` calls it: `stop`, `start`.
    pub(crate) fn control(&self, words: &[&str]) {
        let Some(dir) = &self.dir else { return };
        let data = dir.join("data");
        let log = dir.join("server.log");
        let arguments = [
            "-D",
            data.to_str().unwrap_or_default(),
            "-l",
            log.to_str().unwrap_or_default(),
            "-w",
        ];
        self.program("pg_ctl", &[&arguments, words].concat());
    }

    /// Runs one of PostgreSQL's programs, as the server's user.
    pub(crate) fn program(&self, name: &str, words: &[&str]) {
        let Some(dir) = &self.dir else { return };
        let root = rustix::process::getuid().is_root();
        let program = self.bin.join(name);
        let mut command = Command::new(if root { Path::new("setpriv") } else { &program });
        if root {
            command
                .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
                .arg(&program);
        }
        // The server inherits open files, and would keep them open.
        let quiet = command
            .args(words)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let done = quiet.stderr(Stdio::null()).status();
        assert!(
            done.is_ok_and(|status| status.success()),
            "{name} {words:?}"
        );
    }
}
