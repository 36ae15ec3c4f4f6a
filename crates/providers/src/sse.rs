//! A parser of server-sent events ([`SseParser`]) that accepts any packet boundaries and line
//! endings.
//!
//! It passes every event to a callback (the sink) instead of collecting them, so that a stream of
//! twenty thousand small events needs no allocation here. The rules are those of the HTML standard
//! (9.2.6), with two differences: the size of an event is limited, and an event that is incomplete
//! at the end of the stream is still delivered, because some servers omit the last empty line.

use memchr::memchr2;

/// The maximum size of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// The decision of the receiver of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More events are expected.
    More,
    /// The answer is complete; the rest is ignored.
    Done,
}

/// An event that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    #[error("an event is longer than {} MiB", MAX_EVENT_BYTES >> 20)]
    TooLong,
    #[error("an event is not valid UTF-8")]
    NotText,
}

/// The parser of one stream, with the state of an incomplete event.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The incomplete line.
    line: Vec<u8>,
    /// The value of the field `event`.
    name: Vec<u8>,
    /// The values of the fields `data`, as lines.
    data: Vec<u8>,
    has_data: bool,
    /// True directly after a carriage return, which a line feed may follow.
    is_after_cr: bool,
    /// True after the first line, which may begin with a byte order mark.
    has_begun: bool,
}

impl SseParser {
    /// Parses more bytes, and passes the name and the data of every complete event to the sink,
    /// until the sink returns [`Flow::Done`].
    ///
    /// # Errors
    /// The error of the sink, or [`InvalidEvent`]; the parser must not be used afterwards.
    pub fn push<E: From<InvalidEvent>>(
        &mut self,
        mut bytes: &[u8],
        mut sink: impl FnMut(&str, &str) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        if self.is_after_cr && !bytes.is_empty() {
            self.is_after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let line = &bytes[..end];
            let rest = &bytes[end + 1..];
            let flow = if self.line.is_empty() {
                self.parse_line(line, &mut sink)?
            } else {
                self.buffer(line)?;
                let mut whole = std::mem::take(&mut self.line);
                let flow = self.parse_line(&whole, &mut sink)?;
                whole.clear();
                self.line = whole;
                flow
            };
            bytes = match (bytes[end], rest) {
                (b'\r', []) => {
                    self.is_after_cr = true;
                    rest
                }
                (b'\r', [b'\n', rest @ ..]) => rest,
                _ => rest,
            };
            if flow == Flow::Done {
                return Ok(Flow::Done);
            }
        }
        self.buffer(bytes)?;
        Ok(Flow::More)
    }

    /// Ends the stream: passes the incomplete event to the sink, if there is one.
    ///
    /// # Errors
    /// Same as [`SseParser::push`].
    pub fn end<E: From<InvalidEvent>>(
        &mut self,
        mut sink: impl FnMut(&str, &str) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() && self.parse_line(&line, &mut sink)? == Flow::Done {
            return Ok(Flow::Done);
        }
        self.parse_line(b"", &mut sink)
    }

    /// Adds bytes to the incomplete line.
    fn buffer(&mut self, bytes: &[u8]) -> Result<(), InvalidEvent> {
        if self.line.len() + self.data.len() + bytes.len() > MAX_EVENT_BYTES {
            return Err(InvalidEvent::TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Parses a complete line.
    fn parse_line<E: From<InvalidEvent>>(
        &mut self,
        mut line: &[u8],
        sink: &mut impl FnMut(&str, &str) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        if !self.has_begun {
            self.has_begun = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(sink);
        }
        if let Some(value) = field(line, b"data") {
            if self.data.len() + value.len() > MAX_EVENT_BYTES {
                return Err(InvalidEvent::TooLong.into());
            }
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        } else if let Some(value) = field(line, b"event") {
            self.name.clear();
            self.name.extend_from_slice(value);
        } else if std::str::from_utf8(line).is_err() {
            // The damage may be in the name of a field, whose text would then be lost.
            return Err(InvalidEvent::NotText.into());
        }
        Ok(Flow::More)
    }

    /// Passes the event to the sink after its last line.
    fn dispatch<E: From<InvalidEvent>>(
        &mut self,
        sink: &mut impl FnMut(&str, &str) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        let flow = if self.has_data {
            let name = std::str::from_utf8(&self.name).map_err(|_| InvalidEvent::NotText)?;
            let data = std::str::from_utf8(&self.data).map_err(|_| InvalidEvent::NotText)?;
            sink(name, data)?
        } else {
            Flow::More
        };
        self.has_data = false;
        self.name.clear();
        self.data.clear();
        Ok(flow)
    }
}

/// Returns the value of a line if its field is `name`.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Result<Vec<String>, InvalidEvent> {
        let mut parser = SseParser::default();
        let mut seen = Vec::new();
        let mut sink = |name: &str, data: &str| {
            seen.push(format!("{name}|{data}"));
            Ok(if data == "[DONE]" {
                Flow::Done
            } else {
                Flow::More
            })
        };
        for piece in pieces {
            if parser.push::<InvalidEvent>(piece, &mut sink)? == Flow::Done {
                return Ok(seen);
            }
        }
        parser.end::<InvalidEvent>(&mut sink)?;
        Ok(seen)
    }

    #[test]
    fn events_are_independent_of_packets_and_line_endings() {
        let cases: &[(&str, &[&str])] = &[
            ("data: a\n\n", &["|a"]),
            ("data:a\n\ndata:  b\n\n", &["|a", "| b"]),
            ("event: x\ndata: a\n\ndata: b\n\n", &["x|a", "|b"]),
            ("data: a\ndata: b\ndata\n\n", &["|a\nb\n"]),
            (
                ": comment\n\n:\n\ndata: a\n: between\nid: 7\nretry: 9\nunknown: z\n\n",
                &["|a"],
            ),
            ("event: only a name\n\ndata: a\n\n", &["|a"]),
            ("data: äöü 漢字 🦀\n\n", &["|äöü 漢字 🦀"]),
            ("\u{feff}data: a\n\n", &["|a"]),
            ("data: left open", &["|left open"]),
            ("data: left open\n", &["|left open"]),
            ("database: no\n\n", &[]),
            (
                "data: a\n\ndata: [DONE]\n\ndata: after\n\n",
                &["|a", "|[DONE]"],
            ),
            ("\n\n\ndata: a\n\n\n\n", &["|a"]),
        ];
        for (text, expected) in cases {
            for ending in ["\n", "\r\n", "\r"] {
                let bytes = text.replace('\n', ending).into_bytes();
                for size in 1..=bytes.len() {
                    let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                    assert_eq!(
                        events(&pieces).unwrap(),
                        *expected,
                        "{text:?} with {ending:?} by {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn invalid_utf8_is_an_error() {
        assert_eq!(events(&[b"data: a\xff\n\n"]), Err(InvalidEvent::NotText));
        assert_eq!(events(&[b"data: \xf0\x9f\n\n"]), Err(InvalidEvent::NotText));
    }

    #[test]
    fn event_size_is_limited() {
        let large = |n: usize| [b"data: ".to_vec(), vec![b'x'; n << 20], b"\n\n".to_vec()].concat();
        let ten = large(10);
        let pieces: Vec<&[u8]> = ten.chunks(9973).collect();
        assert_eq!(events(&pieces).unwrap()[0].len(), (10 << 20) + 1);
        assert_eq!(events(&[&large(17)]), Err(InvalidEvent::TooLong));
        let many =
            b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(300_000);
        assert_eq!(events(&[&many]), Err(InvalidEvent::TooLong));
    }
}
