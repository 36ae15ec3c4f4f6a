//! The environment of the process: home, directories, variables, clock, randomness. It is read
//! once, at the start, and passed on, so that a test can pass a different one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A point in time, in milliseconds since 1970. It does not determine the order of records, which
/// have sequence numbers for that, because the clock may be set back.
///
/// As JSON it is a number in the store; RFC 3339, as exports have it, is read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimestampVisitor)
    }
}

struct TimestampVisitor;

impl Visitor<'_> for TimestampVisitor {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("milliseconds since 1970, or a date such as 2026-11-21T09:30:00.250Z")
    }

    fn visit_u64<E: serde::de::Error>(self, milliseconds: u64) -> Result<Timestamp, E> {
        Ok(Timestamp(milliseconds))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
        let date: Option<jiff::Timestamp> = text.parse().ok();
        let milliseconds = date.and_then(|date| u64::try_from(date.as_millisecond()).ok());
        let invalid = || E::invalid_value(Unexpected::Str(text), &self);
        milliseconds.map(Timestamp).ok_or_else(invalid)
    }
}

impl Timestamp {
    /// Returns ISO 8601 in UTC, as ACP requires: `2026-11-21T09:30:00Z`.
    pub fn iso(self) -> String {
        self.jiff().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns RFC 3339 in UTC with milliseconds: `2026-11-21T09:30:00.250Z`.
    pub fn precise(self) -> String {
        self.jiff().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
    }

    /// Returns the weekday and date in UTC, for the model: `Saturday, 2026-11-21`.
    pub fn day(self) -> String {
        self.jiff().strftime("%A, %Y-%m-%d").to_string()
    }

    fn jiff(self) -> jiff::Timestamp {
        i64::try_from(self.0)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .unwrap_or_default()
    }
}

/// The directories of adjutant. All end in `adjutant`, and may not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// The user's settings: `~/.config/adjutant`.
    pub config: PathBuf,
    /// Sessions, snapshots, keys: `~/.local/share/adjutant`.
    pub data: PathBuf,
    /// Logs: `~/.local/state/adjutant`.
    pub state: PathBuf,
    /// Data that can be fetched again: `~/.cache/adjutant`.
    pub cache: PathBuf,
}

/// The environment of this process, or the one that a test has made. Clones share the clock.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The user's home directory, if it has one.
    pub home: Option<PathBuf>,
    /// Adjutant's own directories.
    pub dirs: Dirs,
    /// The reason why nothing outlives this process, if the usual directories cannot be used.
    pub temporary: Option<String>,
    /// The executable of adjutant, for starting it again; `None` if it is not known, as in tests of
    /// the library.
    pub program: Option<PathBuf>,
    /// Entries removed from `PATH` because they are relative, and so would mean a different
    /// directory for each program.
    pub path_left_out: Arc<[PathBuf]>,
    /// The variables whose name and value are UTF-8. `PATH` has absolute entries only.
    vars: Arc<BTreeMap<String, String>>,
    clock: Arc<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    /// The last number that was used in an id.
    last: AtomicU64,
    /// The time that a test has set, in milliseconds; 0 means the system's time.
    fixed: AtomicU64,
}

impl Environment {
    /// Reads the environment of the process. If `HOME` is missing, uses the user database, because
    /// some editors start agents with little more than `PATH`. Creates the directories, or uses
    /// temporary ones if that fails.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn read() -> Self {
        let vars = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let program = std::env::current_exe().ok();
        Self {
            program,
            ..Self::new(vars, etcetera_home())
        }
        .with_usable_directories()
    }

    /// Returns an environment with exactly these variables, without reading or creating anything on
    /// this machine.
    pub fn from_vars(vars: BTreeMap<String, String>) -> Self {
        Self::new(vars, None)
    }

    fn new(mut vars: BTreeMap<String, String>, account_home: Option<PathBuf>) -> Self {
        let mut path_left_out = Vec::new();
        if let Some(path) = vars.get_mut("PATH") {
            // A relative entry would mean a different directory for each program.
            let (absolute, relative): (Vec<&str>, Vec<&str>) =
                path.split(':').partition(|dir| dir.starts_with('/'));
            path_left_out.extend(relative.into_iter().map(PathBuf::from));
            *path = absolute.join(":");
        }
        let home = absolute_path(&vars, "HOME").or(account_home);
        let chosen = Dirs::of_user(&vars, home.as_deref());
        let temporary = chosen
            .is_none()
            .then(|| "there is no home directory".to_owned());
        let tmp = || absolute_path(&vars, "TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        let dirs = chosen.unwrap_or_else(|| Dirs::below(&tmp()));
        let path_left_out = path_left_out.into();
        Self {
            home,
            dirs,
            temporary,
            program: None,
            path_left_out,
            vars: Arc::new(vars),
            clock: Arc::default(),
        }
    }

    /// Creates the directories that are written to. If that fails, uses directories below the
    /// temporary directory, and stores the reason in [`Environment::temporary`].
    fn with_usable_directories(mut self) -> Self {
        if self.temporary.is_some() {
            return self;
        }
        if let Err(e) =
            make_writable(&self.dirs.data).and_then(|()| make_writable(&self.dirs.state))
        {
            self.temporary = Some(format!("{} is not writable: {e}", self.dirs.data.display()));
            let temporary = Dirs::below(&self.tmp());
            self.dirs = Dirs {
                config: self.dirs.config,
                ..temporary
            };
        }
        self
    }

    /// Returns the value of a variable, or `None` if it is unset or empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// Returns the directories in which programs are looked up, all absolute. They are the same for
    /// adjutant, for the analysis of commands and for every program that is started.
    pub fn path(&self) -> Vec<PathBuf> {
        self.var("PATH")
            .unwrap_or("/usr/local/bin:/usr/bin:/bin")
            .split(':')
            .map(PathBuf::from)
            .collect()
    }

    /// Returns the value of a variable of adjutant by either of its names: `ADJUTANT_x`, otherwise
    /// `OPENCODE_x`.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.var(&format!("ADJUTANT_{name}"))
            .or_else(|| self.var(&format!("OPENCODE_{name}")))
    }

    /// Returns the same environment with one variable set.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut vars = (*self.vars).clone();
        vars.insert(name.into(), value.into());
        Self {
            vars: Arc::new(vars),
            ..self.clone()
        }
    }

    /// Returns all variables, for child processes.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vars
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the directory for short-lived files.
    pub fn tmp(&self) -> PathBuf {
        self.var("TMPDIR")
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
            .unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks for the time"
    )]
    pub fn now(&self) -> Timestamp {
        let fixed = self.clock.fixed.load(Ordering::Relaxed);
        if fixed > 0 {
            return Timestamp(fixed);
        }
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Stops the clock at a time.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_now(&self, now: Timestamp) {
        self.clock.fixed.store(now.0, Ordering::Relaxed);
    }

    /// Returns the text of a new id. It is unique, and greater than all earlier ones of this
    /// process with the same prefix, even if the clock is set back; see [`crate::id`].
    pub fn fresh(&self, prefix: &str) -> String {
        let earliest = self.now().0 << 16;
        let next = |last: u64| Some(earliest.max(last + 1));
        let last = self
            .clock
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or(0);
        let number = earliest.max(last + 1);
        let tail: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(10)
            .collect();
        format!("{prefix}_{number:016x}{tail}")
    }
}

impl Dirs {
    /// Returns the user's directories by the XDG specification, or `None` if there is no home
    /// directory for one of them.
    fn of_user(vars: &BTreeMap<String, String>, home: Option<&Path>) -> Option<Self> {
        Some(Self {
            config: xdg_dir(vars, home, "XDG_CONFIG_HOME", ".config")?,
            data: xdg_dir(vars, home, "XDG_DATA_HOME", ".local/share")?,
            state: xdg_dir(vars, home, "XDG_STATE_HOME", ".local/state")?,
            cache: xdg_dir(vars, home, "XDG_CACHE_HOME", ".cache")?,
        })
    }

    /// Returns directories of this user below a temporary directory.
    fn below(tmp: &Path) -> Self {
        let base = tmp.join(format!("adjutant-{}", rustix::process::getuid().as_raw()));
        Self {
            config: base.join("config"),
            data: base.join("data"),
            state: base.join("state"),
            cache: base.join("cache"),
        }
    }
}

/// Returns adjutant's directory below the one in a variable, otherwise below a default in the home
/// directory.
fn xdg_dir(
    vars: &BTreeMap<String, String>,
    home: Option<&Path>,
    name: &str,
    default: &str,
) -> Option<PathBuf> {
    let base = absolute_path(vars, name).or_else(|| Some(home?.join(default)))?;
    Some(base.join("adjutant"))
}

/// Returns the path in a variable, or `None` if it is unset or relative.
fn absolute_path(vars: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    vars.get(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Returns the home directory in `HOME`, otherwise in the user database. `/` is the home directory
/// of accounts without one.
fn etcetera_home() -> Option<PathBuf> {
    etcetera::home_dir()
        .ok()
        .filter(|p| p.is_absolute() && p != Path::new("/"))
}

/// Creates a directory with mode 0700 and checks that a file can be created in it.
fn make_writable(dir: &Path) -> io::Result<()> {
    private_dir(dir)?;
    tempfile::tempfile_in(dir).map(drop)
}

/// Creates a directory with mode 0700, and its missing parents. An existing directory gets this
/// mode too.
///
/// # Errors
/// Errors of the system.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    // Missing parents get this mode too, as the XDG specification requires.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Returns options that create a file with mode 0600 from the start, whatever the umask is.
pub fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a small file that only its owner can read from its first byte, even if it replaces a file
/// that others can read.
///
/// # Errors
/// Errors of the system.
pub fn write_private_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut create_private_file(path)?, bytes)
}

/// Opens a file and truncates it, with the guarantee of [`write_private_file`].
///
/// # Errors
/// Errors of the system.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let file = private_file()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        close_to_others(&file, &metadata)?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file to append to it. Only its owner can read the appended text, even if the file exists
/// and others could read it.
///
/// # Errors
/// Errors of the system.
pub fn private_log_at(path: &Path) -> io::Result<File> {
    let file = private_file().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        close_to_others(&file, &metadata)?;
    }
    Ok(file)
}

/// Removes the permissions of the group and of others from a file.
#[cfg(unix)]
fn close_to_others(file: &File, metadata: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        file.set_permissions(PermissionsExt::from_mode(mode & 0o700))
    }
}

#[cfg(not(unix))]
fn close_to_others(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        let home = tempfile::tempdir().unwrap();
        Environment::from_vars(BTreeMap::from([(
            "HOME".into(),
            home.path().display().to_string(),
        )]))
    }

    #[test]
    fn ids_grow_when_clock_jumps() {
        let environment = environment();
        let mut last = String::new();
        for moment in [5_000, 4_000, 1, 1 << 36, 1 << 36, 6_000] {
            environment.set_now(Timestamp(moment));
            let id = environment.fresh("ses");
            assert!(id > last, "{id} after {last}");
            assert!(crate::id::SessionId::new(id.as_str()).is_well_formed());
            last = id;
        }
    }

    #[cfg(unix)]
    #[test]
    fn private_note_over_readable_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("note");
        std::fs::write(&path, "a longer text that was there before").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        write_private_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn timestamp_is_formatted_in_utc() {
        assert_eq!(Timestamp(1_795_252_200_000).iso(), "2026-11-21T09:10:00Z");
        assert_eq!(Timestamp(1_795_252_200_000).day(), "Saturday, 2026-11-21");
    }

    #[test]
    fn environment_from_vars_touches_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let environment = Environment::from_vars(BTreeMap::from([(
            "HOME".into(),
            home.display().to_string(),
        )]));
        assert_eq!(environment.dirs.data, home.join(".local/share/adjutant"));
        assert!(!home.exists());
        assert!(environment.with_usable_directories().dirs.data.is_dir());
        assert_eq!(Environment::from_vars(BTreeMap::new()).home, None);
    }

    #[test]
    fn unwritable_home_falls_back_to_temporary_directories() {
        let vars = BTreeMap::from([
            ("HOME".into(), "/proc/nowhere".into()),
            ("TMPDIR".into(), "/tmp".into()),
        ]);
        let environment = Environment::from_vars(vars).with_usable_directories();
        assert!(environment.temporary.is_some());
        assert!(environment.dirs.data.starts_with("/tmp"));
        assert_eq!(
            environment.dirs.config,
            Path::new("/proc/nowhere/.config/adjutant")
        );
    }
}
