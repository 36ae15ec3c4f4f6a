//! The log: a file in the state directory, filtered by `ADJUTANT_LOG` (a level, or directives of
//! tracing-subscriber). `ADJUTANT_LOG_FORMAT=json` writes each line as a JSON object. Nothing is
//! logged to standard output or error. Entries contain shapes and names, never bodies or keys.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use base::environment::{Environment, private_dir, private_file};
use base::text;

/// Starts logging. Warnings and errors are logged by default, and more if `ADJUTANT_LOG` selects
/// it. Logging ends when the guard is dropped. Returns `None` if the file cannot be created,
/// because the program works without a log.
pub(super) fn start(environment: &Environment) -> Option<WorkerGuard> {
    let dir = environment.dirs.state.join("log");
    private_dir(&dir).ok()?;
    let json = environment.var("ADJUTANT_LOG_FORMAT") == Some("json");
    let file = Daily {
        environment: environment.clone(),
        dir,
        json,
        open: None,
    };
    // The default queue takes 4 MB of memory at once.
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(1024)
        .finish(file);
    let log = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(false);
    let directives = environment.var("ADJUTANT_LOG").map(EnvFilter::try_new);
    match directives {
        directives if json => {
            let filter = directives
                .and_then(Result::ok)
                .unwrap_or_else(|| EnvFilter::new("warn"));
            log.json()
                .flatten_event(true)
                .with_env_filter(filter)
                .try_init()
        }
        Some(Ok(filter)) => log.with_env_filter(filter).try_init(),
        // Without valid directives, the expensive filter is not needed.
        Some(Err(_)) | None => log.with_max_level(LevelFilter::WARN).try_init(),
    }
    .ok()?;
    // Panics are caught and answered, so from this point on they belong in the log instead of standard
    // error.
    std::panic::set_hook(Box::new(|info| tracing::error!("panic: {info}")));
    Some(guard)
}

/// Returns the log of the last day that has one.
pub(super) fn newest(environment: &Environment) -> Option<PathBuf> {
    let dir = environment.dirs.state.join("log");
    let newest = names(&dir).pop()?;
    Some(dir.join(newest))
}

/// Returns the names of the logs in a directory, oldest first.
fn names(dir: &Path) -> Vec<OsString> {
    let ours = |name: &str| name.starts_with("adjutant.") && name.ends_with(".log");
    let mut names: Vec<OsString> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_str().is_some_and(ours))
        .collect();
    names.sort();
    names
}

/// The number of files that are retained, one per day.
const MAX_FILES: usize = 7;

/// A log file per day, readable by its owner only. Text is cleaned like all output, because logs
/// are read at a terminal. JSON is for programs and has its own escapes.
struct Daily {
    environment: Environment,
    dir: PathBuf,
    json: bool,
    /// The day and its file.
    open: Option<(String, File)>,
}

impl Daily {
    fn file(&mut self) -> io::Result<&mut File> {
        let day = self
            .environment
            .now()
            .iso()
            .get(..10)
            .unwrap_or_default()
            .to_owned();
        if self.open.as_ref().is_none_or(|(opened, _)| *opened != day) {
            let path = self.dir.join(format!("adjutant.{day}.log"));
            let file = private_file().create(true).append(true).open(path)?;
            self.open = Some((day, file));
            self.forget();
        }
        self.open
            .as_mut()
            .map(|(_, file)| file)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes all but the newest files.
    fn forget(&self) {
        for name in names(&self.dir).iter().rev().skip(MAX_FILES) {
            std::fs::remove_file(self.dir.join(name)).ok();
        }
    }
}

impl Write for Daily {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.json {
            self.file()?.write_all(line)?;
        } else {
            self.file()?
                .write_all(text::shown(&String::from_utf8_lossy(line)).as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |(_, file)| file.flush())
    }
}
