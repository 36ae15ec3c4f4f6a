//! The log of a connection, for bug reports: the lines of both directions with their times, as one
//! JSON object each. Known keys are redacted, so that the file can be shared.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::redaction::KnownKeys;
use base::environment::{Environment, private_log_at};
use base::lock::lock;

/// The environment variable with the same effect as `--log-wire`.
pub(super) const VARIABLE: &str = "ADJUTANT_WIRE";

/// The maximum length of a line that is logged completely, in bytes. Only the length of a longer
/// line is logged.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The name of the sender of the input in the log.
const CLIENT: &str = "client";

/// A log of both directions of a connection.
#[derive(Clone)]
pub(super) struct WireLog(Arc<LogState>);

struct LogState {
    environment: Environment,
    // A leaf lock: no other lock is taken while it is held.
    output: Mutex<LogOutput>,
}

struct LogOutput {
    file: File,
    keys: KnownKeys,
}

impl WireLog {
    /// Opens a log to append to it. Only its owner can read it, even if the file existed before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn open(path: &Path, environment: &Environment) -> io::Result<Self> {
        let file = private_log_at(path)?;
        let mut keys = KnownKeys::new(environment);
        keys.read_project(Path::new("."));
        Ok(Self(Arc::new(LogState {
            environment: environment.clone(),
            output: Mutex::new(LogOutput { file, keys }),
        })))
    }

    /// Returns a reader that logs the lines of the input.
    pub(super) fn input<R: Read>(&self, inner: R) -> LoggedStream<R> {
        self.wrap(inner, CLIENT)
    }

    /// Returns a writer that logs the lines of the output.
    pub(super) fn output<W: Write>(&self, inner: W) -> LoggedStream<W> {
        self.wrap(inner, "agent")
    }

    fn wrap<T>(&self, inner: T, from: &'static str) -> LoggedStream<T> {
        LoggedStream {
            inner,
            from,
            log: self.clone(),
            line: Vec::new(),
            length: 0,
        }
    }

    /// Logs a line of `length` bytes, of which `line` is the beginning.
    fn write(&self, from: &str, line: &[u8], length: usize) {
        let state = &self.0;
        let time = state.environment.now().precise();
        let mut output = lock(&state.output);
        let message = if line.len() < length {
            // A cut line is not JSON, so the keys in it could not be found by their names.
            Value::from(format!("(a line of {length} bytes, too long to be logged)"))
        } else {
            logged(&String::from_utf8_lossy(line), from, &mut output.keys)
        };
        let entry = json!({ "time": time, "from": from, "message": message });
        // A failure, such as a full disk, does not end the connection.
        writeln!(output.file, "{entry}").ok();
    }
}

/// Returns a line in the form that is logged: as a JSON value, or as a string if it is not JSON.
/// Redacts the known keys in it.
fn logged(line: &str, from: &str, keys: &mut KnownKeys) -> Value {
    let mut value = serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()));
    keys.refresh();
    if from == CLIENT {
        keys.refresh_projects();
        // A session uses the settings of its directory, and these may contain keys.
        if let Some(cwd) = value["params"]["cwd"].as_str() {
            keys.read_project(Path::new(cwd));
        }
        keys.add_from(&value);
    }
    keys.redact(&mut value);
    value
}

/// A reader or writer that logs its lines.
pub(super) struct LoggedStream<T> {
    inner: T,
    from: &'static str,
    log: WireLog,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The length of that line so far, in bytes.
    length: usize,
}

impl<T> LoggedStream<T> {
    /// Logs each line that these bytes complete.
    fn record(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let available = MAX_LINE_BYTES.saturating_sub(self.line.len());
            let ends = piece.ends_with(b"\n");
            let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line
                .extend_from_slice(&piece[..piece.len().min(available)]);
            self.length += piece.len();
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let length = std::mem::take(&mut self.length);
        self.log.write(self.from, &line, length);
    }
}

impl<R: Read> Read for LoggedStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.record(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && self.length > 0 {
            // The input ended without a line break.
            self.end_line();
        }
        Ok(n)
    }
}

impl<W: Write> Write for LoggedStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.record(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
