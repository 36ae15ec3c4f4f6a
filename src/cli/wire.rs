//! The log of a connection, for reports of errors: both directions with times, one JSON object per
//! line. Keys are blanked, so that the file can be shown to others.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::blanking::KnownKeys;
use base::environment::{Environment, private_log_at};
use base::lock::locked;

/// The variable with the same effect as `--log-wire`.
pub(super) const VARIABLE: &str = "ADJUTANT_WIRE";

/// The longest line that is logged as a whole, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The sender of the text that is read.
const CLIENT: &str = "client";

/// A log of both directions of a connection.
#[derive(Clone)]
pub(super) struct WireLog(Arc<LogState>);

struct LogState {
    environment: Environment,
    // A leaf lock.
    output: Mutex<LogOutput>,
}

struct LogOutput {
    file: File,
    keys: KnownKeys,
}

impl WireLog {
    /// Opens a log, which only this user can read, also if the file exists already.
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

    /// Returns an input whose lines are logged.
    pub(super) fn input<R: Read>(&self, inner: R) -> Tapped<R> {
        self.tap(inner, CLIENT)
    }

    /// Returns an output whose lines are logged.
    pub(super) fn output<W: Write>(&self, inner: W) -> Tapped<W> {
        self.tap(inner, "agent")
    }

    fn tap<T>(&self, inner: T, from: &'static str) -> Tapped<T> {
        Tapped {
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
        let time = state.environment.now().iso();
        let mut output = locked(&state.output);
        let message = if line.len() < length {
            // A cut line is no JSON, so the names of its members would not blank their values.
            Value::from(format!("(a line of {length} bytes)"))
        } else {
            logged(&String::from_utf8_lossy(line), from, &mut output.keys)
        };
        let entry = json!({ "time": time, "from": from, "message": message });
        // The connection goes on if the disk is full.
        writeln!(output.file, "{entry}").ok();
    }
}

/// Returns a line as it is logged: as JSON if it is, with keys blanked.
fn logged(line: &str, from: &str, keys: &mut KnownKeys) -> Value {
    let mut value = serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()));
    keys.refresh();
    if from == CLIENT {
        keys.refresh_projects();
        // A session has the settings of its directory.
        if let Some(cwd) = value["params"]["cwd"].as_str() {
            keys.read_project(Path::new(cwd));
        }
        keys.learn(&value);
    }
    keys.blank(&mut value);
    value
}

/// An input or output with a log of its lines.
pub(super) struct Tapped<T> {
    inner: T,
    from: &'static str,
    log: WireLog,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The length of that line so far, in bytes.
    length: usize,
}

impl<T> Tapped<T> {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            let ends = piece.ends_with(b"\n");
            let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
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

impl<R: Read> Read for Tapped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.take(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && self.length > 0 {
            // The sender ended within a line.
            self.end_line();
        }
        Ok(n)
    }
}

impl<W: Write> Write for Tapped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.take(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
