//! A directory to work in: a project, a home, a temporary directory, and an environment without
//! anything of the machine that runs the tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
#[cfg(target_os = "linux")]
use tokio::net::unix::pipe::Receiver;

use crate::database::{self, Database};

/// A variable that every process of a test inherits; a process that has it afterwards is a
/// leftover. Commands inherit variables with such a name.
const MARKER: &str = "CARGO_ADJUTANT_TEST";

thread_local! {
    /// Whether processes started on this thread store their sessions in a database.
    static IN_DATABASE: Cell<bool> = const { Cell::new(false) };
}

/// Pages that run again with a database, which cover the states of a session. None of them kills an
/// agent and loads its session at once: its lease would not have expired yet.
pub const DATABASE_PAGES: &[&str] = &[
    "sessions/archive",
    "sessions/close",
    "sessions/fork",
    "sessions/fork-at-a-message",
    "sessions/list",
    "sessions/list-changes",
    "sessions/load-and-prompt",
    "sessions/modes",
    "sessions/reopened-without-prompt",
    "sessions/resume",
    "sessions/title-meanwhile",
    "sessions/undo",
];

/// Runs `work`; projects that it creates store their sessions in a database.
pub fn in_database<T>(work: impl FnOnce() -> T) -> T {
    IN_DATABASE.set(true);
    let done = work();
    IN_DATABASE.set(false);
    done
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Returns the present time, or one just after the last returned one.
fn later_time() -> SystemTime {
    static LAST: Mutex<SystemTime> = Mutex::new(SystemTime::UNIX_EPOCH);
    let mut last = LAST.lock().unwrap();
    *last = SystemTime::now().max(*last + Duration::from_micros(1));
    *last
}

/// A temporary project. Removed when dropped.
pub struct Project {
    root: PathBuf,
    vars: BTreeMap<String, String>,
    // Last, so that it is dropped after everything above.
    _directory: TempDir,
}

impl Project {
    /// Returns an empty project with an empty home.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("adjutant-test-")
            .tempdir()
            .unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["home", "project", "tmp"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        let vars = [
            ("HOME", root.join("home").display().to_string()),
            ("PATH", path),
            ("TMPDIR", root.join("tmp").display().to_string()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_CONFIG_SYSTEM", "/dev/null".into()),
            // Requests to any other machine fail here.
            ("http_proxy", "http://127.0.0.1:9".into()),
            ("https_proxy", "http://127.0.0.1:9".into()),
            ("no_proxy", "127.0.0.1,localhost".into()),
            ("ADJUTANT_DISABLE_MODELS_FETCH", "1".into()),
            // No page depends on local servers or on the administrator's settings.
            ("ADJUTANT_LOCAL_SERVERS", "none".into()),
            (
                "ADJUTANT_TEST_MANAGED_CONFIG_DIR",
                root.join("managed").display().to_string(),
            ),
            // A page need not answer requests that are not its subject.
            ("ADJUTANT_DISABLE_TITLES", "1".into()),
            (MARKER, format!("{}-{number}", std::process::id())),
        ];
        let mut vars: BTreeMap<String, String> = vars
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if (IN_DATABASE.get() || database::wanted())
            && let Some(database) = Database::get()
        {
            vars.insert("ADJUTANT_STORE".into(), database.fresh(15));
        }
        Self {
            root,
            vars,
            _directory: directory,
        }
    }

    /// Returns the session's directory.
    pub fn cwd(&self) -> PathBuf {
        self.root.join("project")
    }

    /// Returns the placeholders `${CWD}`, `${HOME}` and `${TMP}` with their paths.
    pub fn names(&self) -> [(&'static str, String); 3] {
        [
            ("${CWD}", "project"),
            ("${HOME}", "home"),
            ("${TMP}", "tmp"),
        ]
        .map(|(name, directory)| (name, self.root.join(directory).display().to_string()))
    }

    /// Returns a path of a transcript: `~/x` is in the home, `tmp:x` in the temporary directory,
    /// anything else in the project.
    pub fn path(&self, text: &str) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(rest) => self.root.join("home").join(rest),
            None => match text.strip_prefix("tmp:") {
                Some(rest) => self.root.join("tmp").join(rest),
                None => self.root.join("project").join(text),
            },
        }
    }

    /// Writes a file and creates the directories above it. Its time is later than that of every
    /// file written before, even if the system's file times are coarse.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = fs::File::create(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_modified(later_time()).unwrap();
    }

    /// Copies a folder of `fixtures/` into the project; `dot-x` in it becomes `.x`.
    pub fn fixture(&self, name: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("editor-tests/fixtures")
            .join(name);
        let mut folders = vec![(from, self.cwd())];
        while let Some((from, to)) = folders.pop() {
            fs::create_dir_all(&to).unwrap();
            for entry in fs::read_dir(&from).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                let to = to.join(
                    name.strip_prefix("dot-")
                        .map_or(name.clone(), |rest| format!(".{rest}")),
                );
                if entry.path().is_dir() {
                    folders.push((entry.path(), to));
                } else {
                    fs::copy(entry.path(), to).unwrap();
                }
            }
        }
    }

    /// Returns a variable of the environment.
    pub fn variable(&self, name: &str) -> &str {
        self.vars.get(name).map_or("", String::as_str)
    }

    /// Sets a variable of the environment, or removes it.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.vars.insert(name.into(), value.into()),
            None => self.vars.remove(name),
        };
    }

    /// Makes the project a git repository with one commit of its files.
    pub fn git(&self) {
        for arguments in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "--all"],
            &[
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@example.org",
                "commit",
                "--quiet",
                "-m",
                "first",
                "--allow-empty",
            ],
        ] {
            let mut git = self.command("git");
            assert!(
                git.args(arguments)
                    .current_dir(self.cwd())
                    .status()
                    .unwrap()
                    .success(),
                "git {arguments:?}"
            );
        }
    }

    /// Runs a line in a shell in the project; returns its output.
    pub fn shell(&self, line: &str) -> String {
        let mut shell = self.command("bash");
        let output = shell
            .args(["--norc", "-ec", line])
            .current_dir(self.cwd())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Writes the user's own OpenCode settings. Commands run without a sandbox, because its
    /// restrictions differ from machine to machine. `sandbox.rs` tests the sandbox.
    pub fn settings(&self, more: &Value) {
        self.write(
            "~/.config/opencode/opencode.json",
            &without_sandbox(more).to_string(),
        );
    }

    /// Selects the mock provider at `base` as the model in the user's own OpenCode settings. `more`
    /// is merged over it.
    pub fn provider(&self, base: &str, more: &Value) {
        let mut settings = json!({
            "$schema": "https://opencode.ai/config.json",
            "model": "bench/bench-model",
            "provider": { "bench": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "bench",
                "options": { "baseURL": format!("{base}/v1"), "apiKey": "a-key" },
                "models": { "bench-model": { "name": "Bench", "limit": { "context": 100_000, "output": 8_000 } } },
            } },
        });
        merge(&mut settings, more);
        let text = serde_json::to_string_pretty(&without_sandbox(&settings)).unwrap();
        self.write("~/.config/opencode/opencode.json", &text);
    }

    /// Returns a command with the project's environment and nothing else.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().envs(&self.vars).stdin(Stdio::null());
        command
    }

    /// Returns the command lines of the processes of this project that still run.
    pub fn leftovers(&self) -> Vec<String> {
        self.processes().into_iter().map(|(_, line)| line).collect()
    }

    /// Waits until no process of this project whose command line `meant` accepts is left. Returns
    /// those that are left after the timeout.
    pub fn left_after(&self, timeout: Duration, meant: impl Fn(&str) -> bool) -> Vec<String> {
        let end = Instant::now() + timeout;
        loop {
            let left: Vec<(i32, String)> = self
                .processes()
                .into_iter()
                .filter(|(_, line)| meant(line))
                .collect();
            let time = end.saturating_duration_since(Instant::now());
            if left.is_empty() || time.is_zero() {
                return left.into_iter().map(|(_, line)| line).collect();
            }
            // Wait until the first of them ends. If it has ended already, look again.
            #[cfg(target_os = "linux")]
            if let Some(first) = left.iter().find_map(|(pid, _)| ending(*pid)) {
                crate::runtime::block_on(async {
                    // Not a pipe, but it is awaited in the same way.
                    let first = Receiver::from_owned_fd_unchecked(first).unwrap();
                    tokio::time::timeout(time, first.readable()).await.is_ok()
                });
            }
        }
    }

    /// Kills the processes of this project that still run.
    pub fn end_leftovers(&self) {
        for (pid, _) in self.processes() {
            if let Some(pid) = Pid::from_raw(pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }

    /// Returns the processes of this project, which are recognized by their environment or by
    /// their directory, with their command lines.
    fn processes(&self) -> Vec<(i32, String)> {
        let marker = format!("{MARKER}={}", self.vars[MARKER]);
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for process in processes.flatten() {
            let Some(pid) = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let process = process.path();
            let marked = fs::read(process.join("environ")).is_ok_and(|variables| {
                variables
                    .split(|b| *b == 0)
                    .any(|variable| variable == marker.as_bytes())
            });
            let inside =
                fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.root));
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line)
                .replace('\0', " ")
                .trim()
                .to_owned();
            // A process that is ending has no command line any more.
            if (marked || inside) && !line.is_empty() {
                found.push((pid, line));
            }
        }
        found
    }
}

/// Turns the sandbox off, unless the settings choose. The key is the last one, so that the others
/// keep their lines.
fn without_sandbox(settings: &Value) -> Value {
    let mut settings = settings.as_object().cloned().unwrap_or_default();
    settings.entry("sandbox").or_insert_with(|| "off".into());
    Value::Object(settings)
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) if !more.is_null() => *into = more.clone(),
        _ => {}
    }
}

/// Returns a descriptor that becomes readable when the process ends; `None` if there is no such
/// process.
#[cfg(target_os = "linux")]
fn ending(pid: i32) -> Option<rustix::fd::OwnedFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}
