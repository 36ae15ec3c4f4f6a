//! Parser of git configuration files, byte by byte as git reads them.

/// The state of the parser.
struct Parser<'t> {
    text: &'t [u8],
    at: usize,
}

impl Parser<'_> {
    /// Returns the next byte. At the end of the file a line end is implied.
    fn next(&mut self) -> u8 {
        let byte = match self.text.get(self.at..) {
            Some([b'\r', b'\n', ..]) => {
                self.at += 1;
                b'\n'
            }
            Some([byte, ..]) => *byte,
            _ => b'\n',
        };
        self.at += 1;
        byte
    }

    fn is_over(&self) -> bool {
        self.at > self.text.len()
    }

    /// Parses a section after `[`: its name in lower case, its subsection unchanged.
    fn section(&mut self) -> Result<String, &'static str> {
        let mut name = Vec::new();
        loop {
            match self.next() {
                _ if self.is_over() => return Err("a section does not end"),
                b']' => return Ok(lossy(&name)),
                byte if is_space(byte) => break,
                byte if is_key(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return Err("a section has an unusual name"),
            }
        }
        name.push(b'.');
        let mut byte = self.next();
        while byte != b'\n' && is_space(byte) {
            byte = self.next();
        }
        if byte != b'"' {
            return Err("a section has an unusual name");
        }
        loop {
            match self.next() {
                b'\n' => return Err("a section does not end"),
                b'"' => break,
                b'\\' => match self.next() {
                    b'\n' => return Err("a section does not end"),
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
        if self.next() == b']' {
            Ok(lossy(&name))
        } else {
            Err("a section does not end")
        }
    }

    /// Parses a value after `=`.
    fn value(&mut self) -> Result<String, &'static str> {
        let mut value = Vec::new();
        // The length of the value without trailing spaces.
        let mut trimmed = 0;
        let mut quoted = false;
        let mut comment = false;
        loop {
            match self.next() {
                b'\n' if quoted => return Err("a quote does not end"),
                b'\n' => {
                    value.truncate(trimmed);
                    return Ok(lossy(&value));
                }
                _ if comment => {}
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                }
                b';' | b'#' if !quoted => comment = true,
                b'"' => {
                    quoted = !quoted;
                    trimmed = value.len();
                }
                b'\\' => {
                    match self.next() {
                        b'\n' => continue,
                        b't' => value.push(b'\t'),
                        b'b' => value.push(8),
                        b'n' => value.push(b'\n'),
                        byte @ (b'\\' | b'"') => value.push(byte),
                        _ => return Err("a value has an unknown escape"),
                    }
                    trimmed = value.len();
                }
                byte => {
                    value.push(byte);
                    trimmed = value.len();
                }
            }
        }
    }
}

/// Returns the entries `section.subsection.key`, all but the subsection in lower case, with their
/// values; a key alone has the value `true`.
pub(super) fn entries(text: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    if text.contains(&0) {
        return Err("it holds a NUL byte");
    }
    let mut reader = Parser {
        text: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text),
        at: 0,
    };
    let mut entries = vec![];
    let mut section: Option<String> = None;
    loop {
        match reader.next() {
            b'\n' if reader.is_over() => return Ok(entries),
            byte if is_space(byte) => {}
            b'#' | b';' => while reader.next() != b'\n' {},
            b'[' => section = Some(reader.section()?),
            byte if byte.is_ascii_alphabetic() => {
                let mut key = vec![byte.to_ascii_lowercase()];
                let mut byte = reader.next();
                while is_key(byte) {
                    key.push(byte.to_ascii_lowercase());
                    byte = reader.next();
                }
                while matches!(byte, b' ' | b'\t') {
                    byte = reader.next();
                }
                let value = match byte {
                    b'\n' => "true".to_owned(),
                    b'=' => reader.value()?,
                    _ => return Err("a key has an unusual name"),
                };
                let section = section.as_deref().ok_or("a key precedes every section")?;
                entries.push((format!("{section}.{}", lossy(&key)), value));
            }
            _ => return Err("a line begins in an unusual way"),
        }
    }
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Returns whether git reads a byte as a space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file, and its settings as `git config --list -z` prints them; `None` if git refuses it.
    type Row<'t> = (&'t [u8], Option<&'t [(&'t str, &'t str)]>);

    #[test]
    fn files_are_parsed_as_by_git() {
        let table: [Row<'_>; 22] = [
            (b"[core]\n\tbare = false\n", Some(&[("core.bare", "false")])),
            (b"\xef\xbb\xbf[core]\nx=1", Some(&[("core.x", "1")])),
            (
                b"# \xff\n[core]\nfsmonitor = \"touch PWN; false\"\n",
                Some(&[("core.fsmonitor", "touch PWN; false")]),
            ),
            (
                b"[core]\n# x \\\n\tfsmonitor = y\n",
                Some(&[("core.fsmonitor", "y")]),
            ),
            (b"[core]\nfsmonitor = y\\", Some(&[("core.fsmonitor", "y")])),
            (
                b"[core]\nfsmonitor = a\\\n b ; c\n",
                Some(&[("core.fsmonitor", "a b")]),
            ),
            (b"[core] FSMonitor = a", Some(&[("core.fsmonitor", "a")])),
            (
                b"[Filter \"A.b\"]\nclean = x",
                Some(&[("filter.A.b.clean", "x")]),
            ),
            (
                b"[Filter.A.b]\nclean = x",
                Some(&[("filter.a.b.clean", "x")]),
            ),
            (b"[a \"x\\\"y]\"] k", Some(&[("a.x\"y].k", "true")])),
            (
                b"[a]k=\"  x  \"  # no\r\nl = \"#\" y\r\n",
                Some(&[("a.k", "  x  "), ("a.l", "# y")]),
            ),
            (b"[a]\nk = \\\"x\\\\ \\t\n", Some(&[("a.k", "\"x\\ \t")])),
            (b"[a]\nk =\n", Some(&[("a.k", "")])),
            (b"[a]\nk = \"x\ny\"\n", None),
            (b"[a]\nk = \\x\n", None),
            (b"[a]\nk_x = 1\n", None),
            (b"[a\nk = 1\n", None),
            (b"[a b]\nk = 1\n", None),
            (b"k = 1\n", None),
            (b"[a]\n1k = 1\n", None),
            (b"[a]\nk = 1\n\0", None),
            (b"", Some(&[])),
        ];
        for (text, wanted) in table {
            let read = entries(text).ok();
            let read = read
                .as_ref()
                .map(|all| all.iter().map(|(k, v)| (&**k, &**v)).collect::<Vec<_>>());
            assert_eq!(read.as_deref(), wanted, "{}", String::from_utf8_lossy(text));
        }
    }
}
