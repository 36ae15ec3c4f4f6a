//! What a message says of itself that is too long to be kept: its bytes are looked at as they are skipped, and only
//! the members of the message itself count, wherever they stand.

/// The longest name or id that is looked at, in bytes.
const MAX_MEMBER: usize = 256;

/// What is known of a message that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkippedMessage {
    /// Its raw id, if it has one.
    pub id: Option<String>,
    /// It has a result or an error, and no method.
    pub is_response: bool,
}

/// Looks at the members of an object of which never more than a piece is there.
#[derive(Debug, Default)]
pub(crate) struct MemberScanner {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// What comes is the value of this member of the message; none: its name.
    name: Option<Vec<u8>>,
    /// The name or the value so far; none where it is of no interest, or too long.
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
                // Most of a long message is one string.
                let Some(skipped) = memchr::memchr2(b'"', b'\\', rest) else { return };
                self.string(rest[skipped]);
                rest = &rest[skipped + 1..];
                continue;
            }
            self.byte(byte);
            rest = after;
        }
    }

    fn string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            return self.string(byte);
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.member = (byte == b'{').then(Vec::new);
                } else {
                    self.keep(byte);
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                } else {
                    self.keep(byte);
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
                self.keep(byte);
            }
        }
    }

    fn is_at(&self, name: &[u8]) -> bool {
        self.name.as_deref() == Some(name)
    }

    fn keep(&mut self, byte: u8) {
        match &mut self.member {
            Some(member) if member.len() < MAX_MEMBER => member.push(byte),
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

    pub(crate) fn found(self) -> SkippedMessage {
        SkippedMessage { id: self.id, is_response: self.has_outcome && !self.has_method }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_skipped_its_id_is_found_wherever_it_stands() {
        let long = format!("{{\"id\":8,\"x\":[\"\\\\\\\"}}{}\",{{\"id\":9}}]}}", "é".repeat(2000));
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
            ("behind a result", format!(r#"{{"result":{long},"id":3}}"#), Some("3"), true),
            ("an error", format!(r#"{{"id":3,"error":{long}}}"#), Some("3"), true),
            ("both", format!(r#"{{"id":3,"method":"a","result":{long}}}"#), Some("3"), false),
            ("notification", format!(r#"{{"method":"a","params":{long}}}"#), None, false),
            ("an id that is an object", format!(r#"{{"id":{{"a":1}},"params":{long}}}"#), Some(r#"{"a":1}"#), false),
            ("the first of two", format!(r#"{{"id":1,"params":{long},"id":2}}"#), Some("1"), false),
            ("a value that looks like it", format!(r#"{{"method":"id","x":{long},"y":"id"}}"#), None, false),
            ("cut within the id", r#"{"jsonrpc":"2.0","id":12"#.to_owned(), None, false),
            ("cut within the params", format!(r#"{{"id":7,"params":{}"#, &long[..long.len() - 1]), Some("7"), false),
            ("a long id", format!(r#"{{"id":"{}","method":"a"}}"#, "x".repeat(300)), None, false),
            ("a list", format!(r#"[{{"id":7,"method":"a","params":{long}}}]"#), None, false),
            ("no message", "a:\"id\":7,".repeat(1000), None, false),
            ("closed too often", "}}}]]],\"id\":7,{".to_owned(), None, false),
        ];
        for (name, text, id, is_response) in table {
            let wanted = SkippedMessage { id: id.map(str::to_owned), is_response };
            for size in [1, 3, 1000, text.len()] {
                let mut scanner = MemberScanner::default();
                text.as_bytes().chunks(size).for_each(|chunk| scanner.feed(chunk));
                assert_eq!(scanner.found(), wanted, "{name}, {size} at a time");
            }
        }
    }
}
