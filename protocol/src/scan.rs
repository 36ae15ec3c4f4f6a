//! A scanner for messages that are too long to be stored. It reads the bytes as they are skipped,
//! and recognizes only members of the message itself, in any order.

/// The length of the longest name or id that is read, in bytes.
const MAX_MEMBER_BYTES: usize = 256;

/// The known members of a skipped message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkippedMessage {
    /// The raw id, if it has one.
    pub id: Option<String>,
    /// True if it has a result or an error, and no method.
    pub is_response: bool,
}

/// A scanner for the members of an object that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct MemberScanner {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The name of the member whose value is being read, or `None` while a name is read.
    name: Option<Vec<u8>>,
    /// The name or value so far, or `None` if it is irrelevant or too long.
    member: Option<Vec<u8>>,
    id: Option<String>,
    has_method: bool,
    has_outcome: bool,
}

impl MemberScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if self.in_string && self.member.is_none() && !self.is_escaped {
                // Most bytes of a long message are in one string.
                let Some(skipped) = memchr::memchr2(b'"', b'\\', rest) else {
                    return;
                };
                self.scan_in_string(rest[skipped]);
                rest = &rest[skipped + 1..];
                continue;
            }
            self.scan(byte);
            rest = after;
        }
    }

    fn scan_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn scan(&mut self, byte: u8) {
        if self.in_string {
            self.append(byte);
            return self.scan_in_string(byte);
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.member = (byte == b'{').then(Vec::new);
                } else {
                    self.append(byte);
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                } else {
                    self.append(byte);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && self.name.is_none() => {
                self.name = self.member.take();
                self.has_method |= self.is_at(b"\"method\"");
                self.has_outcome |= self.is_at(b"\"result\"") || self.is_at(b"\"error\"");
                self.member = (self.is_at(b"\"id\"") && self.id.is_none()).then(Vec::new);
            }
            b',' if self.depth == 1 => {
                self.end_member();
                self.member = Some(Vec::new());
            }
            b' ' | b'\t' | b'\r' if self.depth <= 1 => {}
            byte => {
                self.in_string = byte == b'"';
                self.append(byte);
            }
        }
    }

    fn is_at(&self, name: &[u8]) -> bool {
        self.name.as_deref() == Some(name)
    }

    fn append(&mut self, byte: u8) {
        match &mut self.member {
            Some(member) if member.len() < MAX_MEMBER_BYTES => member.push(byte),
            _ => self.member = None,
        }
    }

    fn end_member(&mut self) {
        if self.name.take().is_some_and(|name| name == b"\"id\"")
            && let Some(value) = self.member.take()
        {
            self.id = String::from_utf8(value).ok();
        }
    }

    pub(crate) fn finish(self) -> SkippedMessage {
        SkippedMessage {
            id: self.id,
            is_response: self.has_outcome && !self.has_method,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_skipped_message_is_found() {
        let long = format!(
            "{{\"id\":8,\"x\":[\"\\\\\\\"}}{}\",{{\"id\":9}}]}}",
            "é".repeat(2000)
        );
        let table = [
            (
                "before the params",
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"a","params":{long}}}"#),
                Some("7"),
                false,
            ),
            (
                "behind them",
                format!(r#"{{"jsonrpc":"2.0","method":"a","params":{long},"id":"b\"c"}}"#),
                Some(r#""b\"c""#),
                false,
            ),
            (
                "behind them, blanks",
                format!(r#" {{ "params" : {long} , "method":"a", "id" : 12 }}"#),
                Some("12"),
                false,
            ),
            (
                "behind a result",
                format!(r#"{{"result":{long},"id":3}}"#),
                Some("3"),
                true,
            ),
            (
                "an error",
                format!(r#"{{"id":3,"error":{long}}}"#),
                Some("3"),
                true,
            ),
            (
                "both",
                format!(r#"{{"id":3,"method":"a","result":{long}}}"#),
                Some("3"),
                false,
            ),
            (
                "notification",
                format!(r#"{{"method":"a","params":{long}}}"#),
                None,
                false,
            ),
            (
                "an id that is an object",
                format!(r#"{{"id":{{"a":1}},"params":{long}}}"#),
                Some(r#"{"a":1}"#),
                false,
            ),
            (
                "the first of two",
                format!(r#"{{"id":1,"params":{long},"id":2}}"#),
                Some("1"),
                false,
            ),
            (
                "a value that looks like it",
                format!(r#"{{"method":"id","x":{long},"y":"id"}}"#),
                None,
                false,
            ),
            (
                "cut within the id",
                r#"{"jsonrpc":"2.0","id":12"#.to_owned(),
                None,
                false,
            ),
            (
                "cut within the params",
                format!(r#"{{"id":7,"params":{}"#, &long[..long.len() - 1]),
                Some("7"),
                false,
            ),
            (
                "a long id",
                format!(r#"{{"id":"{}","method":"a"}}"#, "x".repeat(300)),
                None,
                false,
            ),
            (
                "a list",
                format!(r#"[{{"id":7,"method":"a","params":{long}}}]"#),
                None,
                false,
            ),
            ("no message", "a:\"id\":7,".repeat(1000), None, false),
            (
                "closed too often",
                "}}}]]],\"id\":7,{".to_owned(),
                None,
                false,
            ),
        ];
        for (name, text, id, is_response) in table {
            let wanted = SkippedMessage {
                id: id.map(str::to_owned),
                is_response,
            };
            for size in [1, 3, 1000, text.len()] {
                let mut scanner = MemberScanner::default();
                text.as_bytes()
                    .chunks(size)
                    .for_each(|chunk| scanner.feed(chunk));
                assert_eq!(scanner.finish(), wanted, "{name}, {size} at a time");
            }
        }
    }
}
