//! The log of a connection, for reports of errors: both directions with times, one JSON object per
//! line. Keys are blanked, so that the file can be shown to others.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use base::environment::{Environment, private_log_at};
use base::lock::locked;
use base::variables::is_secret;
use config::mcp;
use providers::auth::Auth;

/// The variable with the same effect as `--log-wire`.
pub(super) const VARIABLE: &str = "ADJUTANT_WIRE";

/// Shorter values are not blanked: they occur in ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// The longest line that is logged as a whole, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The text in place of a key.
const BLANK: &str = "(blanked)";

/// A log of both directions of a connection.
#[derive(Clone)]
pub(super) struct WireLog(Arc<LogState>);

struct LogState {
    // A leaf lock around the file.
    file: Mutex<File>,
    environment: Environment,
    secrets: Vec<String>,
}

impl WireLog {
    /// Opens a log, which only this user can read, also if the file exists already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn open(path: &Path, environment: &Environment) -> io::Result<Self> {
        let file = private_log_at(path)?;
        Ok(Self(Arc::new(LogState {
            file: Mutex::new(file),
            environment: environment.clone(),
            secrets: secrets(environment),
        })))
    }

    /// Returns an input whose lines are logged.
    pub(super) fn input<R: Read>(&self, inner: R) -> Tapped<R> {
        self.tap(inner, "client")
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
        let message = if line.len() < length {
            // A cut line is no JSON, so the names of its members would not blank their values.
            Value::from(format!("(a line of {length} bytes)"))
        } else {
            logged(&String::from_utf8_lossy(line), &state.secrets)
        };
        let entry = json!({ "time": time, "from": from, "message": message });
        // The connection goes on if the disk is full.
        writeln!(locked(&state.file), "{entry}").ok();
    }
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

/// Returns the keys that are known: of the environment, and of logins at providers and servers.
fn secrets(environment: &Environment) -> Vec<String> {
    let mut all: Vec<String> = environment
        .vars()
        .filter(|(name, _)| is_secret(name))
        .map(|(_, value)| value.to_owned())
        .collect();
    all.extend(Auth::read(environment).secrets().map(str::to_owned));
    all.extend(Auth::server_secrets(environment));
    all.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
    // A key that contains another one is blanked as a whole.
    all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    all
}

/// Returns a line as it is logged: as JSON if it is, with keys blanked.
fn logged(line: &str, secrets: &[String]) -> Value {
    let mut value = serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()));
    blank(&mut value, secrets);
    value
}

/// Returns whether a member or header of this name is likely to hold a key.
fn names_secret(name: &str) -> bool {
    const ENDS: [&str; 4] = ["authorization", "privatekey", "secretkey", "accesskey"];
    let lower = name.to_ascii_lowercase();
    is_secret(name) || ENDS.iter().any(|end| lower.ends_with(end))
}

/// Blanks the known keys in all texts, and every value whose name marks it as a key: that of a
/// member, or that of a variable or header (`{"name": …, "value": …}`).
fn blank(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => {
            for secret in secrets {
                if text.contains(secret.as_str()) {
                    *text = text.replace(secret.as_str(), BLANK);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| blank(item, secrets)),
        Value::Object(members) => {
            let names_key = members
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| names_secret(name) || mcp::is_secret(name));
            for (name, item) in members {
                if item.is_string() && (names_secret(name) || names_key && name == "value") {
                    *item = BLANK.into();
                } else {
                    blank(item, secrets);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_blanked_by_value_and_by_name() {
        let secrets = ["sk-12345678-long".to_owned(), "sk-12345678".to_owned()];
        let table = [
            (r#"{"a":"x sk-12345678 y"}"#, r#"{"a":"x (blanked) y"}"#),
            (r#"{"a":["sk-12345678-long"]}"#, r#"{"a":["(blanked)"]}"#),
            (
                r#"{"env":[{"name":"API_KEY","value":"abc"},{"name":"HOME","value":"/h"}]}"#,
                r#"{"env":[{"name":"API_KEY","value":"(blanked)"},{"name":"HOME","value":"/h"}]}"#,
            ),
            (
                r#"{"headers":[{"name":"Authorization","value":"Bearer abc"}]}"#,
                r#"{"headers":[{"name":"Authorization","value":"(blanked)"}]}"#,
            ),
            (r#"{"API_TOKEN":"abc"}"#, r#"{"API_TOKEN":"(blanked)"}"#),
            ("no JSON sk-12345678", r#""no JSON (blanked)""#),
        ];
        for (line, wanted) in table {
            assert_eq!(logged(line, &secrets).to_string(), wanted);
        }
    }
}
