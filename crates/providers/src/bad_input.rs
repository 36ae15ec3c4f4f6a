//! Answers as bad servers and bad connections send them, for every wire: one table, and what comes
//! out of each row. What the loop makes of arguments that are no object and of tools that do not
//! exist is shown by the pages `turns/bad-arguments` and `turns/unknown-tool`.

use serde_json::{Value, json};

use super::anthropic::Messages;
use super::chat::Chat;
use super::delta::lines;
use super::gemini::Gemini;
use super::responses::Responses;
use super::sse::{Flow, SseParser};
use super::target::Target;
use super::wire::Wire;
use super::{Delta, Error};

/// The pieces of an answer in one dialect, as server-sent events.
struct Dialect {
    name: &'static str,
    wire: &'static dyn Wire,
    /// Words in block 0.
    text: fn(&str) -> Vec<Value>,
    /// A call: block, id, tool, arguments as text.
    call: fn(usize, &str, &str, &str) -> Vec<Value>,
    /// The end; whether there were calls.
    end: fn(bool) -> Vec<Value>,
    /// Whether a last line says that nothing follows.
    done: bool,
}

const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "chat",
        wire: &Chat,
        text: |text| vec![json!({"choices": [{"index": 0, "delta": {"content": text}}]})],
        call: |at, id, tool, arguments| {
            let call = json!({"index": at, "id": id, "function": {"name": tool, "arguments": arguments}});
            vec![json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})]
        },
        end: |calls| {
            let why = if calls { "tool_calls" } else { "stop" };
            vec![json!({"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})]
        },
        done: true,
    },
    Dialect {
        name: "messages",
        wire: &Messages,
        text: |text| {
            vec![
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                json!({"type": "content_block_stop", "index": 0}),
            ]
        },
        call: |at, id, tool, arguments| {
            let block = json!({"type": "tool_use", "id": id, "name": tool, "input": {}});
            vec![
                json!({"type": "content_block_start", "index": at, "content_block": block}),
                json!({"type": "content_block_delta", "index": at, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
                json!({"type": "content_block_stop", "index": at}),
            ]
        },
        end: |calls| {
            let why = if calls { "tool_use" } else { "end_turn" };
            vec![json!({"type": "message_delta", "delta": {"stop_reason": why}}), json!({"type": "message_stop"})]
        },
        done: false,
    },
    Dialect {
        name: "responses",
        wire: &Responses,
        text: |text| {
            let of = |kind: &str, rest: Value| {
                let mut event = json!({"type": kind, "output_index": 0, "content_index": 0, "item_id": "msg_1"});
                event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
                event
            };
            vec![of("response.output_text.delta", json!({"delta": text}))]
        },
        call: |at, id, tool, arguments| {
            let item = json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": tool, "arguments": arguments});
            vec![json!({"type": "response.output_item.done", "output_index": at, "item": item})]
        },
        end: |_| vec![json!({"type": "response.completed", "response": {"status": "completed"}})],
        done: false,
    },
    Dialect {
        name: "gemini",
        wire: &Gemini,
        text: |text| vec![json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})],
        call: |_, id, tool, arguments| {
            // Here arguments are a value: what is not JSON can only come as a text.
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
            vec![
                json!({"candidates": [{"content": {"parts": [{"functionCall": {"id": id, "name": tool, "args": arguments}}]}}]}),
            ]
        },
        end: |_| vec![json!({"candidates": [{"finishReason": "STOP"}]})],
        done: false,
    },
];

impl Dialect {
    /// The bytes of an answer, with this ending of lines.
    fn bytes(&self, events: &[Value], ending: &str, between: &str) -> Vec<u8> {
        let mut out = String::new();
        for event in events {
            let name = event.get("type").and_then(Value::as_str).map(|name| format!("event: {name}{ending}"));
            out += &format!("{}data: {event}{ending}{ending}{between}", name.unwrap_or_default());
        }
        if self.done {
            out += &format!("data: [DONE]{ending}{ending}");
        }
        out.into_bytes()
    }

    /// What is read of bytes that come in packets of this size.
    fn read(&self, bytes: &[u8], size: usize) -> Result<(Vec<Delta>, bool), Error> {
        let mut decoder = self.wire.decoder(&Target { name: "Acme".into(), ..Target::default() });
        let (mut parser, mut out) = (SseParser::default(), Vec::new());
        for packet in bytes.chunks(size) {
            if parser.push::<Error>(packet, |name, data| decoder.decode(name, data, &mut out))? == Flow::Done {
                return Ok((out, true));
            }
        }
        let done = parser.end::<Error>(|name, data| decoder.decode(name, data, &mut out))? == Flow::Done;
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
fn however_it_is_cut_and_ended_it_is_the_same() {
    for dialect in DIALECTS {
        let mut events = (dialect.text)("Grüße, 漢字 🦀\n\"so\"");
        events.extend((dialect.call)(1, "c1", "read", r#"{"path":"ä🦀"}"#));
        events.extend((dialect.end)(true));
        let plain = dialect.bytes(&events, "\n", "");
        let whole = dialect.lines(&plain, plain.len());
        assert!(
            whole.contains("text Grüße, 漢字 🦀") && whole.contains("finish ToolCalls"),
            "{}: {whole}",
            dialect.name
        );
        for ending in ["\n", "\r\n", "\r"] {
            for between in ["", ": a comment\n\n", ":\n", "retry: 5\nid: 7\n\n"] {
                let mut bytes = dialect.bytes(&events, ending, &between.replace('\n', ending));
                for mark in [false, true] {
                    if mark {
                        bytes.splice(0..0, "\u{feff}".bytes());
                    }
                    for size in [1, 2, 3, 5, 1000] {
                        let read = dialect.lines(&bytes, size);
                        assert_eq!(read, whole, "{} {ending:?} {between:?} by {size}, mark {mark}", dialect.name);
                    }
                }
            }
        }
    }
}

#[test]
fn one_event_over_several_lines_is_one_event() {
    for dialect in DIALECTS {
        let events: Vec<Value> = (dialect.text)("words").into_iter().chain((dialect.end)(false)).collect();
        let plain = dialect.bytes(&events, "\n", "");
        let spread = String::from_utf8(plain.clone()).unwrap().replace("data: {", "data: {\ndata: ");
        assert_eq!(dialect.lines(spread.as_bytes(), 4), dialect.lines(&plain, 4), "{}", dialect.name);
    }
}

#[test]
fn ten_megabytes_in_one_event_are_words() {
    let long = "x".repeat(10 << 20);
    for dialect in DIALECTS {
        let events: Vec<Value> = (dialect.text)(&long).into_iter().chain((dialect.end)(false)).collect();
        let (deltas, _) = dialect.read(&dialect.bytes(&events, "\n", ""), 64 << 10).unwrap();
        let words: usize =
            deltas.iter().map(|delta| if let Delta::Text { text, .. } = delta { text.len() } else { 0 }).sum();
        assert_eq!(words, long.len(), "{}", dialect.name);
    }
}

#[test]
fn what_comes_after_the_end_does_not_count() {
    for dialect in DIALECTS {
        let mut events: Vec<Value> = (dialect.text)("words").into_iter().chain((dialect.end)(false)).collect();
        let before = dialect.lines(&dialect.bytes(&events, "\n", ""), 1000);
        events.extend((dialect.text)("more"));
        let mut after = dialect.bytes(&events, "\n", "");
        if dialect.done {
            // There the last line is the end.
            after = dialect.bytes(&events[..events.len() - 1], "\n", "");
            after.extend(dialect.bytes(&(dialect.text)("more"), "\n", ""));
        }
        // Gemini's streams have no end but the connection's: a finish reason may be followed.
        let expected = if dialect.name == "gemini" { before.replace("words", "wordsmore") } else { before };
        assert_eq!(dialect.lines(&after, 1000), expected, "{}", dialect.name);
    }
}

#[test]
fn an_answer_without_its_end_is_cut_off() {
    for dialect in DIALECTS {
        let mut events = (dialect.text)("words");
        events.extend((dialect.call)(1, "c1", "read", r#"{"path":"#));
        let mut cut = dialect.bytes(&events, "\n", "");
        if dialect.done {
            cut.truncate(cut.len() - "data: [DONE]\n\n".len());
        }
        let error = dialect.read(&cut, 1000).expect_err(dialect.name);
        assert!(matches!(error, Error::Garbled(_)), "{}: {error}", dialect.name);
    }
}

/// A text cut in the middle of a character of two UTF-16 units.
#[test]
fn half_a_character_is_marked() {
    for dialect in DIALECTS {
        let events: Vec<Value> = (dialect.text)("words HALF").into_iter().chain((dialect.end)(false)).collect();
        let bytes = String::from_utf8(dialect.bytes(&events, "\n", "")).unwrap().replace("HALF", "\\ud83d");
        let read = dialect.lines(bytes.as_bytes(), 1000);
        assert!(read.contains("words \u{fffd}"), "{}: {read}", dialect.name);
    }
}

/// Counts that cannot be: the answer is there all the same, and whoever adds them up does not overflow.
#[test]
fn odd_counts_spoil_no_answer() {
    for dialect in DIALECTS {
        for odd in [json!(-1), json!(1.5), json!("12"), json!(null), json!(u64::MAX), json!(1e300)] {
            let counts = match dialect.name {
                "chat" => json!({"choices": [], "usage": {
                    "prompt_tokens": odd, "completion_tokens": odd, "total_tokens": odd,
                    "prompt_tokens_details": {"cached_tokens": odd, "cache_write_tokens": odd},
                    "completion_tokens_details": {"reasoning_tokens": odd}}}),
                "messages" => json!({"type": "message_start", "message": {"usage": {
                    "input_tokens": odd, "output_tokens": odd, "cache_read_input_tokens": odd,
                    "cache_creation_input_tokens": odd, "output_tokens_details": {"thinking_tokens": odd}}}}),
                "responses" => json!({"type": "response.completed", "response": {"status": "completed", "usage": {
                    "input_tokens": odd, "output_tokens": odd,
                    "input_tokens_details": {"cached_tokens": odd, "cache_write_tokens": odd},
                    "output_tokens_details": {"reasoning_tokens": odd}}}}),
                _ => json!({"usageMetadata": {
                    "promptTokenCount": odd, "toolUsePromptTokenCount": odd, "cachedContentTokenCount": odd,
                    "candidatesTokenCount": odd, "thoughtsTokenCount": odd}}),
            };
            let mut events = (dialect.text)("words");
            let ends = dialect.name == "responses";
            events.push(counts);
            events.extend(if ends { Vec::new() } else { (dialect.end)(false) });
            let (deltas, _) = dialect.read(&dialect.bytes(&events, "\n", ""), 1000).expect(dialect.name);
            assert!(lines(&deltas).contains("words"), "{} {odd}: {deltas:?}", dialect.name);
            for delta in &deltas {
                if let Delta::Usage(usage) = delta {
                    assert!(usage.context() < 1 << 50, "{} {odd}: {usage:?}", dialect.name);
                }
            }
        }
    }
}

/// Half JSON, other JSON, and none: an error that quotes what came, never words.
#[test]
fn what_is_no_event_of_the_dialect_is_an_error_or_nothing() {
    for dialect in DIALECTS {
        for odd in ["{\"half\": ", "oops", "<html>", "\u{0}"] {
            let bytes = format!("data: {odd}\n\n");
            let error = dialect.read(bytes.as_bytes(), 1000).expect_err(dialect.name);
            assert!(matches!(&error, Error::Garbled(text) if text.contains("Acme")), "{} {odd}: {error}", dialect.name);
        }
        for odd in ["null", "[]", "7", "{}", "{\"type\":\"unheard_of\"}"] {
            let bytes = format!("data: {odd}\n\n");
            let read = dialect.lines(bytes.as_bytes(), 1000);
            assert!(read.starts_with("error: "), "{} {odd}: {read}", dialect.name);
        }
    }
}

/// An id, a tool, arguments.
type Called = (&'static str, &'static str, &'static str);

/// Arguments as text, whatever they are: the loop tells the model what was wrong with them.
#[test]
fn calls_come_through_as_they_are() {
    let rows: &[(&str, &[Called])] = &[
        ("not JSON", &[("c1", "read", "oops {")]),
        ("not an object", &[("c1", "read", "[1,2]")]),
        ("a text", &[("c1", "read", "\"path\"")]),
        ("no such tool", &[("c1", "no such tool", "{}")]),
        ("one id for two calls", &[("same", "read", "{\"a\":1}"), ("same", "read", "{\"a\":2}")]),
        ("no ids", &[("", "read", "{\"a\":1}"), ("", "read", "{\"a\":2}")]),
    ];
    for dialect in DIALECTS {
        for (name, calls) in rows {
            let mut events = Vec::new();
            for (at, (id, tool, arguments)) in calls.iter().enumerate() {
                events.extend((dialect.call)(at, id, tool, arguments));
            }
            events.extend((dialect.end)(true));
            let read = dialect.lines(&dialect.bytes(&events, "\n", ""), 7);
            let blocks: Vec<&str> = read.lines().filter(|line| line.contains(" call ")).collect();
            assert_eq!(blocks.len(), calls.len(), "{}, {name}: {read}", dialect.name);
            for (block, (_, tool, arguments)) in blocks.iter().zip(*calls) {
                let quoted = json!(arguments).to_string();
                let arguments = block.ends_with(arguments) || block.ends_with(&quoted);
                assert!(block.contains(tool) && arguments, "{}, {name}: {block}", dialect.name);
            }
        }
    }
}
