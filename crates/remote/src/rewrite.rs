//! Changes of members of JSON-RPC lines. Unchanged members keep their spelling, down to that of
//! numbers. The functions return `None` for a line of another shape.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use acp_server::meta::{IDEMPOTENCY_KEY, META_KEY};

/// The members of a JSON object, in their original spelling.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

/// Returns a line with changed members.
fn with(line: &[u8], change: impl FnOnce(&mut Members) -> Option<()>) -> Option<Bytes> {
    let mut members: Members = serde_json::from_slice(line).ok()?;
    change(&mut members)?;
    serde_json::to_vec(&members).ok().map(Bytes::from)
}

/// Returns a line with another id.
pub(super) fn with_id(line: &[u8], id: &str) -> Option<Bytes> {
    with(line, |message| {
        message.insert("id".into(), RawValue::from_string(id.to_owned()).ok()?);
        Some(())
    })
}

/// Changes an object that is a member; a missing one is created.
fn inside(
    members: &mut Members,
    name: &str,
    change: impl FnOnce(&mut Members) -> Option<()>,
) -> Option<()> {
    let mut inner = match members
        .get(name)
        .map(|value| value.get())
        .filter(|text| *text != "null")
    {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Members::new(),
    };
    change(&mut inner)?;
    members.insert(name.into(), to_raw_value(&inner).ok()?);
    Some(())
}

/// Returns a prompt with an idempotency key, or `None` if it has one already.
pub(super) fn with_key(line: &[u8], key: &str) -> Option<Bytes> {
    with(line, |message| {
        inside(message, "params", |params| {
            inside(params, "_meta", |meta| {
                if meta.contains_key(&format!("{META_KEY}.{IDEMPOTENCY_KEY}")) {
                    return None;
                }
                inside(meta, META_KEY, |own| {
                    if own.contains_key(IDEMPOTENCY_KEY) {
                        return None;
                    }
                    own.insert(IDEMPOTENCY_KEY.into(), to_raw_value(key).ok()?);
                    Some(())
                })
            })
        })
    })
}

/// Adds one of adjutant's members to the `_meta` of params. Does nothing if `_meta` is not an
/// object.
pub(super) fn with_own(params: &mut Members, key: &str, value: impl serde::Serialize) {
    inside(params, "_meta", |meta| {
        inside(meta, META_KEY, |own| {
            own.insert(key.into(), to_raw_value(&value).ok()?);
            Some(())
        })
    });
}

/// Returns an update with changed members.
pub(super) fn with_update(line: &[u8], changes: &[(&str, Value)]) -> Option<Bytes> {
    with(line, |message| {
        inside(message, "params", |params| {
            inside(params, "update", |update| {
                for (name, value) in changes {
                    update.insert((*name).into(), to_raw_value(value).ok()?);
                }
                Some(())
            })
        })
    })
}
