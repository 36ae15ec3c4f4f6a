//! The body of a call: the options first, the conversation last, so that the bytes of one request are
//! the beginning of the next one's. Where they are, they are kept and not written again: a long
//! conversation costs each step what is new in it.

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Map, Value};

use super::request::ModelMessage;
use super::request::cache::{CachedBody, ElementEnd};
use super::target::Target;
use super::wire::merge;
use super::{Error, Request};

/// A body that is being written.
pub struct RequestBody {
    bytes: Vec<u8>,
    empty: bool,
}

/// One value of the list that a conversation is on the wire.
pub struct Element<T> {
    /// It stands for the last of so many messages of the request.
    pub upto: usize,
    /// It stays as it is whatever is said next.
    pub settled: bool,
    pub value: T,
}

impl RequestBody {
    /// A body with these fields, with the user's options merged over them. A `null` takes a field
    /// out. Fields of the conversation itself cannot be overridden.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for what cannot be JSON.
    pub fn new(mut head: Map<String, Value>, options: &Map<String, Value>, reserved: &[&str]) -> Result<Self, Error> {
        for (name, value) in options {
            if !reserved.contains(&name.as_str()) {
                merge(head.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        head.retain(|_, value| !value.is_null());
        let mut bytes = serde_json::to_vec(&head).map_err(unencodable)?;
        bytes.pop();
        Ok(Self { bytes, empty: head.is_empty() })
    }

    /// One more field.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for what cannot be JSON.
    pub fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.name(name)?;
        serde_json::to_writer(&mut self.bytes, value).map_err(unencodable)
    }

    fn name(&mut self, name: &str) -> Result<(), Error> {
        if !self.empty {
            self.bytes.push(b',');
        }
        self.empty = false;
        serde_json::to_writer(&mut self.bytes, name).map_err(unencodable)?;
        self.bytes.push(b':');
        Ok(())
    }

    /// The conversation, and with it the whole. What the request before it has written of the same
    /// conversation is taken over.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for what cannot be JSON.
    pub fn finish<T: Serialize>(
        mut self,
        name: &str,
        elements: &[Element<T>],
        request: &Request,
        target: &Target,
    ) -> Result<Bytes, Error> {
        self.name(name)?;
        self.bytes.push(b'[');
        let head = self.bytes.len();
        let earlier = request.body_cache.take(request, target).filter(|(kept, _)| kept.body.starts_with(&self.bytes));
        let (mut ends, earlier) = match earlier {
            Some((mut kept, same)) => {
                let fits = |(end, element): &(&ElementEnd, &Element<T>)| {
                    element.settled && element.upto == end.upto && element.upto <= same
                };
                let fitting = kept.ends.iter().zip(elements).take_while(fits).count();
                kept.ends.truncate(fitting);
                (kept.ends, Some(kept.body))
            }
            None => (Vec::new(), None),
        };
        let (earlier, begin) = match (ends.last(), earlier) {
            (Some(end), Some(body)) => (Some(body), end.at),
            _ => (None, head),
        };
        let mut bytes = if earlier.is_some() { Vec::new() } else { self.with_room(request) };
        let before = if earlier.is_some() { begin } else { 0 };
        for (place, element) in elements.iter().enumerate().skip(ends.len()) {
            if place > 0 {
                bytes.push(b',');
            }
            serde_json::to_writer(&mut bytes, &element.value).map_err(unencodable)?;
            if element.settled && ends.len() == place {
                ends.push(ElementEnd { upto: element.upto, at: before + bytes.len() });
            }
        }
        bytes.extend_from_slice(b"]}");
        let body = match earlier {
            None => Bytes::from(bytes),
            Some(earlier) => {
                // Nobody sends it any more, so that it can grow where it is.
                let grown = earlier.try_into_mut();
                let mut whole = grown.unwrap_or_else(|shared| BytesMut::from(&shared[..begin]));
                whole.truncate(begin);
                whole.extend_from_slice(&bytes);
                whole.freeze()
            }
        };
        request.body_cache.put(CachedBody { target: target.clone(), ends, body: body.clone() });
        Ok(body)
    }

    /// With room for what the request holds, so that it need not be moved as it grows.
    fn with_room(self, request: &Request) -> Vec<u8> {
        let mut bytes = self.bytes;
        let length: usize = request.messages.iter().map(ModelMessage::length).sum();
        // Line ends and quotes take two bytes.
        bytes.reserve(length + length / 8 + 128 * request.messages.len());
        bytes
    }
}

fn unencodable(e: serde_json::Error) -> Error {
    Error::BadRequest(format!("The request could not be written as JSON: {e}."))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use serde::Serializer;
    use serde_json::json;

    use super::*;
    use crate::Model;
    use crate::request::{BodyCache, ModelInput, ModelParams};
    use transcript::ModelRef;

    fn model(name: &str) -> Arc<Model> {
        Arc::new(Model::unknown(ModelRef { provider: "p".into(), model: name.into(), effort: None }))
    }

    #[test]
    fn options_go_over_the_head_and_never_into_the_conversation() {
        let head = json!({"model": "m", "stream": true, "a": {"b": 1, "c": 2}});
        let options = json!({"a": {"b": 3}, "stream": null, "messages": [], "d": 4});
        let written = |head: Value, options: Value| {
            let options = options.as_object().unwrap();
            let body = RequestBody::new(head.as_object().unwrap().clone(), options, &["messages"]).unwrap();
            body.finish("messages", &elements(&["x"], 0), &request(&[]), &Target::default()).unwrap()
        };
        assert_eq!(written(head, options), r#"{"model":"m","a":{"b":3,"c":2},"d":4,"messages":["x"]}"#);
        assert_eq!(written(json!({}), json!({})), r#"{"messages":["x"]}"#);
    }

    fn request(words: &[&str]) -> Request {
        Request {
            model: model("m"),
            system: vec!["s".into()],
            messages: words.iter().map(|word| ModelMessage::User(vec![ModelInput::Text((*word).into())])).collect(),
            tools: Vec::new(),
            must_call: false,
            params: ModelParams::default(),
            session: String::new(),
            body_cache: BodyCache::default(),
        }
    }

    /// An element for each message, the last few not settled.
    fn elements<'a>(words: &[&'a str], unsettled: usize) -> Vec<Element<&'a str>> {
        let element = |(at, word): (usize, &&'a str)| Element {
            upto: at + 1,
            settled: at + unsettled < words.len(),
            value: *word,
        };
        words.iter().enumerate().map(element).collect()
    }

    /// Counts how often it is written.
    struct Counted<'a>(&'a str, &'a Cell<usize>);

    impl Serialize for Counted<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.1.set(self.1.get() + 1);
            self.0.serialize(serializer)
        }
    }

    #[test]
    fn what_is_the_same_is_not_written_again() {
        let target = || Target { base_url: "http://h".into(), ..Target::default() };
        type Change = fn(&mut Request, &mut Target, &mut Map<String, Value>);
        let nothing: Change = |_, _, _| {};
        /// Words before and after, how many are unsettled, what else changes; elements written.
        type Row<'a> = (&'a [&'a str], &'a [&'a str], usize, Change, usize);
        let table: &[Row<'_>] = &[
            (&["a", "b"], &["a", "b", "c", "d"], 0, nothing, 2),
            (&["a", "b"], &["a", "b"], 0, nothing, 0),
            (&["a", "b", "c"], &["a", "b", "c", "d"], 1, nothing, 2),
            (&["a", "b", "c"], &["a", "b", "c", "d"], 2, nothing, 3),
            (&["a", "b", "c"], &["a", "x", "c", "d"], 0, nothing, 3),
            (&["a", "b", "c"], &["a", "b"], 0, nothing, 0),
            (&["a", "b", "c"], &["a"], 0, nothing, 0),
            (&["a"], &["b", "a"], 0, nothing, 2),
            (&["a"], &["a", "b"], 1, nothing, 2),
            (&[], &["a"], 0, nothing, 1),
            (&["a"], &[], 0, nothing, 0),
            (&["a"], &["a", "b"], 0, |request, _, _| request.system[0].push('!'), 2),
            (&["a"], &["a", "b"], 0, |request, _, _| request.model = model("n"), 2),
            (&["a"], &["a", "b"], 0, |_, target, _| target.cache_key = Some(true), 2),
            (&["a"], &["a", "b"], 0, |_, _, head| drop(head.insert("x".into(), json!(1))), 2),
        ];
        for (n, (before, after, unsettled, change, written)) in table.iter().enumerate() {
            let count = Cell::new(0);
            let write = |words: &[&str], request: &Request, target: &Target, head: &Map<String, Value>| {
                count.set(0);
                let counted =
                    |e: Element<_>| Element { upto: e.upto, settled: e.settled, value: Counted(e.value, &count) };
                let elements: Vec<_> = elements(words, *unsettled).into_iter().map(counted).collect();
                RequestBody::new(head.clone(), &Map::new(), &[])
                    .unwrap()
                    .finish("m", &elements, request, target)
                    .unwrap()
            };
            let first = request(before);
            drop(write(before, &first, &target(), &Map::new()));
            let mut next = Request { body_cache: BodyCache::after(first), ..request(after) };
            let (mut there, mut head) = (target(), Map::new());
            change(&mut next, &mut there, &mut head);
            let body = write(after, &next, &there, &head);
            assert_eq!(count.get(), *written, "row {n}");
            // Asked again, only what is not settled is written; and nothing of it can be told from the bytes.
            assert_eq!(write(after, &next, &there, &head), body, "row {n}");
            assert_eq!(count.get(), (*unsettled).min(after.len()), "row {n}");
            assert_eq!(write(after, &next.clone(), &there, &head), body, "row {n}");
            assert_eq!(count.get(), after.len(), "row {n}");
        }
    }

    #[test]
    fn what_somebody_still_sends_does_not_change() {
        let first = request(&["a"]);
        let write = |words: &[&str], request: &Request| {
            let body = RequestBody::new(Map::new(), &Map::new(), &[]).unwrap();
            body.finish("m", &elements(words, 0), request, &Target::default()).unwrap()
        };
        let sent = write(&["a"], &first);
        let next = Request { body_cache: BodyCache::after(first), ..request(&["a", "b"]) };
        assert_eq!(write(&["a", "b"], &next), r#"{"m":["a","b"]}"#);
        assert_eq!(sent, r#"{"m":["a"]}"#);
    }
}
