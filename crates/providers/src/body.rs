//! Builds the JSON body of a request: the options first, the conversation last, so that consecutive
//! requests begin with the same bytes.
//!
//! A wire format creates a [`RequestBody`], appends its fields, and finishes it with the list of
//! [`Element`]s of the conversation. The bytes of elements that do not change are taken from the
//! preceding request ([`super::request::BodyCache`]), so that each step of a long conversation
//! encodes only the new messages.

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Map, Value};

use super::request::ModelMessage;
use super::request::cache::{CachedBody, ElementEnd, ReusableBody};
use super::request_target::RequestTarget;
use super::wire_format::merge;
use super::{Error, Request, optional_fields};

/// A body under construction.
pub struct RequestBody {
    /// The JSON text so far, without the closing brace.
    bytes: Vec<u8>,
    /// True if it has no fields yet.
    is_empty: bool,
}

/// One element of the list that represents a conversation in a wire format.
pub struct Element<T> {
    /// The number of leading messages of the request that are encoded up to and including this
    /// element.
    pub message_count: usize,
    /// True if messages that are added later leave the element unchanged.
    pub is_final: bool,
    /// The element, which is serialised as one item of the list.
    pub value: T,
}

impl RequestBody {
    /// Creates a body from the fields of `head`. The user's options are merged over them, except
    /// for those named in `reserved`, which belong to the conversation. Then fields with the value
    /// `null` are removed, and those that the provider rejects (`params.omitted`).
    ///
    /// # Errors
    /// [`Error::BadRequest`] if a value cannot be encoded as JSON.
    pub fn new(
        mut head: Map<String, Value>,
        options: &Map<String, Value>,
        reserved: &[&str],
        request: &Request,
    ) -> Result<Self, Error> {
        for (name, value) in options {
            if !reserved.contains(&name.as_str()) {
                merge(head.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        head.retain(|_, value| !value.is_null());
        optional_fields::remove_fields(&mut head, &request.params.omitted);
        let mut bytes = serde_json::to_vec(&head).map_err(unencodable)?;
        bytes.pop();
        Ok(Self {
            bytes,
            is_empty: head.is_empty(),
        })
    }

    /// Appends a field.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the value cannot be encoded as JSON.
    pub fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.append_name(name)?;
        serde_json::to_writer(&mut self.bytes, value).map_err(unencodable)
    }

    /// Appends the name of a field and the colon.
    fn append_name(&mut self, name: &str) -> Result<(), Error> {
        if !self.is_empty {
            self.bytes.push(b',');
        }
        self.is_empty = false;
        serde_json::to_writer(&mut self.bytes, name).map_err(unencodable)?;
        self.bytes.push(b':');
        Ok(())
    }

    /// Appends the conversation as the list `name`, and returns the complete body. Reuses the bytes
    /// that the body of the preceding request has in common with it, and stores the body for the
    /// next request.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if an element cannot be encoded as JSON.
    pub fn finish<T: Serialize>(
        mut self,
        name: &str,
        elements: &[Element<T>],
        request: &Request,
        target: &RequestTarget,
    ) -> Result<Bytes, Error> {
        self.append_name(name)?;
        self.bytes.push(b'[');
        let head = self.bytes.len();
        let reusable = request
            .body_cache
            .take(request, target)
            .filter(|reusable| reusable.cached.body.starts_with(&self.bytes));
        let (mut ends, earlier) = match reusable {
            Some(ReusableBody {
                mut cached,
                common_messages,
            }) => {
                let is_unchanged = |(end, element): &(&ElementEnd, &Element<T>)| {
                    element.is_final
                        && element.message_count == end.message_count
                        && element.message_count <= common_messages
                };
                let pairs = cached.ends.iter().zip(elements);
                let unchanged = pairs.take_while(is_unchanged).count();
                cached.ends.truncate(unchanged);
                (cached.ends, Some(cached.body))
            }
            None => (Vec::new(), None),
        };
        // The cached body is of use only if at least one element can be reused.
        let (earlier, begin) = match (ends.last(), earlier) {
            (Some(end), Some(body)) => (Some(body), end.at),
            _ => (None, head),
        };
        let mut bytes = if earlier.is_some() {
            Vec::new()
        } else {
            self.with_capacity_for(request)
        };
        let before = if earlier.is_some() { begin } else { 0 };
        for (index, element) in elements.iter().enumerate().skip(ends.len()) {
            if index > 0 {
                bytes.push(b',');
            }
            serde_json::to_writer(&mut bytes, &element.value).map_err(unencodable)?;
            if element.is_final && ends.len() == index {
                ends.push(ElementEnd {
                    message_count: element.message_count,
                    at: before + bytes.len(),
                });
            }
        }
        bytes.extend_from_slice(b"]}");
        let body = match earlier {
            None => Bytes::from(bytes),
            Some(earlier) => {
                // The preceding request is no longer being sent, so its buffer can usually grow in
                // place.
                let grown = earlier.try_into_mut();
                let mut whole = grown.unwrap_or_else(|shared| BytesMut::from(&shared[..begin]));
                whole.truncate(begin);
                whole.extend_from_slice(&bytes);
                whole.freeze()
            }
        };
        request.body_cache.put(CachedBody {
            target: target.clone(),
            ends,
            body: body.clone(),
        });
        Ok(body)
    }

    /// Returns the bytes with reserved space for the messages of the request, to avoid
    /// reallocations.
    fn with_capacity_for(self, request: &Request) -> Vec<u8> {
        let mut bytes = self.bytes;
        let length: usize = request.messages.iter().map(ModelMessage::length).sum();
        // Line breaks and quotation marks are escaped as two bytes.
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
        Arc::new(Model::unknown(ModelRef {
            provider: "p".into(),
            model: name.into(),
            effort: None,
        }))
    }

    #[test]
    fn options_override_head_but_not_conversation() {
        let head = json!({"model": "m", "stream": true, "a": {"b": 1, "c": 2}});
        let options = json!({"a": {"b": 3}, "stream": null, "messages": [], "d": 4, "top_k": 5});
        let written = |head: Value, options: Value| {
            let options = options.as_object().unwrap();
            let mut request = request(&[]);
            request.params.omitted = vec!["top_k"];
            let head = head.as_object().unwrap().clone();
            let body = RequestBody::new(head, options, &["messages"], &request).unwrap();
            body.finish(
                "messages",
                &elements(&["x"], 0),
                &request,
                &RequestTarget::default(),
            )
            .unwrap()
        };
        assert_eq!(
            written(head, options),
            r#"{"model":"m","a":{"b":3,"c":2},"d":4,"messages":["x"]}"#
        );
        assert_eq!(written(json!({}), json!({})), r#"{"messages":["x"]}"#);
    }

    fn request(texts: &[&str]) -> Request {
        Request {
            model: model("m"),
            system: vec!["s".into()],
            messages: texts
                .iter()
                .map(|text| ModelMessage::User(vec![ModelInput::Text((*text).into())]))
                .collect(),
            tools: Vec::new(),
            must_call: false,
            params: ModelParams::default(),
            session: String::new(),
            body_cache: BodyCache::default(),
        }
    }

    /// Makes an element of each message; the last `changeable` ones are not final.
    fn elements<'a>(texts: &[&'a str], changeable: usize) -> Vec<Element<&'a str>> {
        let element = |(at, text): (usize, &&'a str)| Element {
            message_count: at + 1,
            is_final: at + changeable < texts.len(),
            value: *text,
        };
        texts.iter().enumerate().map(element).collect()
    }

    /// A text that counts its serializations.
    struct Counted<'a>(&'a str, &'a Cell<usize>);

    impl Serialize for Counted<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.1.set(self.1.get() + 1);
            self.0.serialize(serializer)
        }
    }

    #[test]
    fn unchanged_elements_are_not_encoded_again() {
        let target = || RequestTarget {
            base_url: "http://h".into(),
            ..RequestTarget::default()
        };
        type Change = fn(&mut Request, &mut RequestTarget, &mut Map<String, Value>);
        let nothing: Change = |_, _, _| {};
        /// The messages before and after, the number of elements that are not final, another
        /// change, and the expected number of encoded elements.
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
            (
                &["a"],
                &["a", "b"],
                0,
                |request, _, _| request.system[0].push('!'),
                2,
            ),
            (
                &["a"],
                &["a", "b"],
                0,
                |request, _, _| request.model = model("n"),
                2,
            ),
            (
                &["a"],
                &["a", "b"],
                0,
                |_, target, _| target.cache_key = Some(true),
                2,
            ),
            (
                &["a"],
                &["a", "b"],
                0,
                |_, _, head| drop(head.insert("x".into(), json!(1))),
                2,
            ),
        ];
        for (n, (before, after, changeable, change, written)) in table.iter().enumerate() {
            let count = Cell::new(0);
            let write = |texts: &[&str],
                         request: &Request,
                         target: &RequestTarget,
                         head: &Map<String, Value>| {
                count.set(0);
                let counted = |e: Element<_>| Element {
                    message_count: e.message_count,
                    is_final: e.is_final,
                    value: Counted(e.value, &count),
                };
                let elements: Vec<_> = elements(texts, *changeable)
                    .into_iter()
                    .map(counted)
                    .collect();
                RequestBody::new(head.clone(), &Map::new(), &[], request)
                    .unwrap()
                    .finish("m", &elements, request, target)
                    .unwrap()
            };
            let first = request(before);
            drop(write(before, &first, &target(), &Map::new()));
            let mut next = Request {
                body_cache: BodyCache::after(first),
                ..request(after)
            };
            let mut changed_target = target();
            let mut head = Map::new();
            change(&mut next, &mut changed_target, &mut head);
            let body = write(after, &next, &changed_target, &head);
            assert_eq!(count.get(), *written, "row {n}");
            // A repeated request only encodes the elements that are not final, and has the same
            // bytes.
            assert_eq!(write(after, &next, &changed_target, &head), body, "row {n}");
            assert_eq!(count.get(), (*changeable).min(after.len()), "row {n}");
            assert_eq!(
                write(after, &next.clone(), &changed_target, &head),
                body,
                "row {n}"
            );
            assert_eq!(count.get(), after.len(), "row {n}");
        }
    }

    #[test]
    fn body_in_use_is_not_modified() {
        let first = request(&["a"]);
        let write = |texts: &[&str], request: &Request| {
            let body = RequestBody::new(Map::new(), &Map::new(), &[], request).unwrap();
            body.finish("m", &elements(texts, 0), request, &RequestTarget::default())
                .unwrap()
        };
        let sent = write(&["a"], &first);
        let next = Request {
            body_cache: BodyCache::after(first),
            ..request(&["a", "b"])
        };
        assert_eq!(write(&["a", "b"], &next), r#"{"m":["a","b"]}"#);
        assert_eq!(sent, r#"{"m":["a"]}"#);
    }
}
