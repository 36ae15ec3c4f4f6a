//! Tests of malformed answers and bad connections, for every wire format. The turn handles invalid
//! arguments and unknown tools; see the test pages `turns/bad-arguments` and `turns/unknown-tool`.

use serde_json::{Value, json};

use super::WIRE_FORMATS;
use super::delta::lines;
use super::request_target::RequestTarget;
use super::sse::{Flow, SseParser};
use super::surrogates::SurrogateJoiner;
use super::wire_format::{Decoder, WireFormat, WireSamples};
use super::{Delta, Error};

/// A wire format with samples of its answers.
struct AnswerFormat {
    name: &'static str,
    wire: &'static dyn WireFormat,
    samples: WireSamples,
}

/// Returns all wire formats; each test here runs for each of them.
fn formats() -> Vec<AnswerFormat> {
    let format = |wire: &'static dyn WireFormat| AnswerFormat {
        name: wire.name(),
        wire,
        samples: wire.samples(),
    };
    WIRE_FORMATS.iter().copied().map(format).collect()
}

impl AnswerFormat {
    /// Serializes an answer with the given line ending, and `between` after each event.
    fn bytes(&self, events: &[Value], ending: &str, between: &str) -> Vec<u8> {
        let mut out = String::new();
        for event in events {
            let name = event
                .get("type")
                .and_then(Value::as_str)
                .map(|name| format!("event: {name}{ending}"));
            out += &format!(
                "{}data: {event}{ending}{ending}{between}",
                name.unwrap_or_default()
            );
        }
        if self.samples.done {
            out += &format!("data: [DONE]{ending}{ending}");
        }
        out.into_bytes()
    }

    /// Decodes bytes that arrive in packets of `size`.
    fn read(&self, bytes: &[u8], size: usize) -> Result<(Vec<Delta>, bool), Error> {
        let decoder = self.wire.decoder(&RequestTarget {
            name: "Acme".into(),
            ..RequestTarget::default()
        });
        let mut decoder = SurrogateJoiner::new(decoder);
        let mut parser = SseParser::default();
        let mut out = Vec::new();
        for packet in bytes.chunks(size) {
            if parser.push::<Error>(packet, |name, data| decoder.decode(name, data, &mut out))?
                == Flow::Done
            {
                return Ok((out, true));
            }
        }
        let done =
            parser.end::<Error>(|name, data| decoder.decode(name, data, &mut out))? == Flow::Done;
        if !done {
            decoder.end(&mut out)?;
        }
        Ok((out, done))
    }

    fn lines(&self, bytes: &[u8], size: usize) -> String {
        match self.read(bytes, size) {
            Ok((deltas, _)) => lines(&deltas),
            Err(e) => format!("error: {e}"),
        }
    }
}

#[test]
fn answer_is_independent_of_packets_and_line_endings() {
    for format in &formats() {
        let mut events = (format.samples.text)("Grüße, 漢字 🦀\n\"so\"");
        events.extend((format.samples.call)(1, "c1", "read", r#"{"path":"ä🦀"}"#));
        events.extend((format.samples.end)(true));
        let plain = format.bytes(&events, "\n", "");
        let whole = format.lines(&plain, plain.len());
        assert!(
            whole.contains("text Grüße, 漢字 🦀") && whole.contains("finish ToolCalls"),
            "{}: {whole}",
            format.name
        );
        for ending in ["\n", "\r\n", "\r"] {
            for between in ["", ": a comment\n\n", ":\n", "retry: 5\nid: 7\n\n"] {
                let mut bytes = format.bytes(&events, ending, &between.replace('\n', ending));
                for mark in [false, true] {
                    if mark {
                        bytes.splice(0..0, "\u{feff}".bytes());
                    }
                    for size in [1, 2, 3, 5, 1000] {
                        let read = format.lines(&bytes, size);
                        assert_eq!(
                            read, whole,
                            "{} {ending:?} {between:?} by {size}, mark {mark}",
                            format.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn event_over_several_lines_is_one_event() {
    for format in &formats() {
        let events: Vec<Value> = (format.samples.text)("words")
            .into_iter()
            .chain((format.samples.end)(false))
            .collect();
        let plain = format.bytes(&events, "\n", "");
        let spread = String::from_utf8(plain.clone())
            .unwrap()
            .replace("data: {", "data: {\ndata: ");
        assert_eq!(
            format.lines(spread.as_bytes(), 4),
            format.lines(&plain, 4),
            "{}",
            format.name
        );
    }
}

#[test]
fn event_of_ten_megabytes_is_text() {
    let long = "x".repeat(10 << 20);
    for format in &formats() {
        let events: Vec<Value> = (format.samples.text)(&long)
            .into_iter()
            .chain((format.samples.end)(false))
            .collect();
        let (deltas, _) = format
            .read(&format.bytes(&events, "\n", ""), 64 << 10)
            .unwrap();
        let length: usize = deltas
            .iter()
            .map(|delta| {
                if let Delta::Text { text, .. } = delta {
                    text.len()
                } else {
                    0
                }
            })
            .sum();
        assert_eq!(length, long.len(), "{}", format.name);
    }
}

#[test]
fn events_after_the_end_are_ignored() {
    for format in &formats() {
        let mut events: Vec<Value> = (format.samples.text)("words")
            .into_iter()
            .chain((format.samples.end)(false))
            .collect();
        let before = format.lines(&format.bytes(&events, "\n", ""), 1000);
        events.extend((format.samples.text)("more"));
        let mut after = format.bytes(&events, "\n", "");
        if format.samples.done {
            // In this format the `[DONE]` line is the end.
            after = format.bytes(&events[..events.len() - 1], "\n", "");
            after.extend(format.bytes(&(format.samples.text)("more"), "\n", ""));
        }
        // Gemini's streams only end with the connection: events may follow a finish reason.
        let expected = if format.name == "gemini" {
            before.replace("words", "wordsmore")
        } else {
            before
        };
        assert_eq!(format.lines(&after, 1000), expected, "{}", format.name);
    }
}

#[test]
fn answer_without_end_is_an_error() {
    for format in &formats() {
        let mut events = (format.samples.text)("words");
        events.extend((format.samples.call)(1, "c1", "read", r#"{"path":"#));
        let mut cut = format.bytes(&events, "\n", "");
        if format.samples.done {
            cut.truncate(cut.len() - "data: [DONE]\n\n".len());
        }
        let error = format.read(&cut, 1000).expect_err(format.name);
        assert!(
            matches!(error, Error::InvalidAnswer(_)),
            "{}: {error}",
            format.name
        );
    }
}

/// Tests characters that are cut between their UTF-16 surrogates.
#[test]
fn halves_of_characters_are_joined_or_replaced() {
    let rows: &[(&str, &[&str], &str)] = &[
        (
            "over two events",
            &["words FIRST", "SECOND more"],
            "words 😀 more",
        ),
        (
            "alone in their events",
            &["words ", "FIRST", "SECOND", "!"],
            "words 😀!",
        ),
        ("two in a row", &["FIRST", "SECONDFIRST", "SECOND"], "😀😀"),
        ("a first one only", &["words FIRST"], "words \u{fffd}"),
        (
            "a first one, then text",
            &["words FIRST", "more"],
            "words \u{fffd}more",
        ),
        ("a second one only", &["words ", "SECOND"], "words \u{fffd}"),
        ("the wrong order", &["SECOND", "FIRST"], "\u{fffd}\u{fffd}"),
    ];
    for format in &formats() {
        for (name, pieces, expected) in rows {
            let mut events: Vec<Value> = pieces
                .iter()
                .flat_map(|piece| (format.samples.text)(piece))
                .collect();
            if format.name == "messages" {
                // All pieces in one block.
                events.retain(|event| event["type"] == "content_block_delta");
            }
            events.extend((format.samples.end)(false));
            let bytes = String::from_utf8(format.bytes(&events, "\n", ""))
                .unwrap()
                .replace("FIRST", "\\ud83d")
                .replace("SECOND", "\\ude00");
            let read = format.lines(bytes.as_bytes(), 1000);
            let text = read.lines().next().unwrap_or_default();
            assert_eq!(
                text,
                format!("0 text {expected}"),
                "{}, {name}",
                format.name
            );
        }
    }
}

/// Tests impossible counts: the answer is still complete, and sums of counts do not overflow.
#[test]
fn invalid_counts_do_not_lose_the_answer() {
    for format in &formats() {
        for odd in [
            json!(-1),
            json!(1.5),
            json!("12"),
            json!(null),
            json!(u64::MAX),
            json!(1e300),
        ] {
            let mut events = (format.samples.text)("words");
            events.push((format.samples.counts)(&odd));
            events.extend((format.samples.end)(false));
            let (deltas, _) = format
                .read(&format.bytes(&events, "\n", ""), 1000)
                .expect(format.name);
            assert!(
                lines(&deltas).contains("words"),
                "{} {odd}: {deltas:?}",
                format.name
            );
            for delta in &deltas {
                if let Delta::Usage(usage) = delta {
                    assert!(
                        usage.context() < 1 << 50,
                        "{} {odd}: {usage:?}",
                        format.name
                    );
                }
            }
        }
    }
}

/// Tests partial JSON, unexpected JSON and other text: an error that quotes it, never an answer.
#[test]
fn event_of_another_format_is_an_error() {
    for format in &formats() {
        for odd in ["{\"half\": ", "oops", "<html>", "\u{0}"] {
            let bytes = format!("data: {odd}\n\n");
            let error = format.read(bytes.as_bytes(), 1000).expect_err(format.name);
            assert!(
                matches!(&error, Error::InvalidAnswer(text) if text.contains("Acme")),
                "{} {odd}: {error}",
                format.name
            );
        }
        for odd in ["null", "[]", "7", "{}", "{\"type\":\"unheard_of\"}"] {
            let bytes = format!("data: {odd}\n\n");
            let read = format.lines(bytes.as_bytes(), 1000);
            assert!(read.starts_with("error: "), "{} {odd}: {read}", format.name);
        }
    }
}

/// The id, the tool and the arguments of a call.
type Called = (&'static str, &'static str, &'static str);

/// Tests that arguments are passed on as text, even if they are invalid: the turn reports the
/// mistake to the model.
#[test]
fn invalid_calls_are_passed_on() {
    let rows: &[(&str, &[Called])] = &[
        ("not JSON", &[("c1", "read", "oops {")]),
        ("not an object", &[("c1", "read", "[1,2]")]),
        ("a text", &[("c1", "read", "\"path\"")]),
        ("no such tool", &[("c1", "no such tool", "{}")]),
        (
            "one id for two calls",
            &[("same", "read", "{\"a\":1}"), ("same", "read", "{\"a\":2}")],
        ),
        (
            "no ids",
            &[("", "read", "{\"a\":1}"), ("", "read", "{\"a\":2}")],
        ),
    ];
    for format in &formats() {
        for (name, calls) in rows {
            let mut events = Vec::new();
            for (at, (id, tool, arguments)) in calls.iter().enumerate() {
                events.extend((format.samples.call)(at, id, tool, arguments));
            }
            events.extend((format.samples.end)(true));
            let read = format.lines(&format.bytes(&events, "\n", ""), 7);
            let blocks: Vec<&str> = read
                .lines()
                .filter(|line| line.contains(" call "))
                .collect();
            assert_eq!(blocks.len(), calls.len(), "{}, {name}: {read}", format.name);
            for (block, (_, tool, arguments)) in blocks.iter().zip(*calls) {
                let quoted = json!(arguments).to_string();
                let arguments = block.ends_with(arguments) || block.ends_with(&quoted);
                assert!(
                    block.contains(tool) && arguments,
                    "{}, {name}: {block}",
                    format.name
                );
            }
        }
    }
}
