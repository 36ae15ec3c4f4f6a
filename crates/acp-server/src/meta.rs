//! Adjutant's own members of requests and responses, `_meta.adjutant`, which are the same in every
//! protocol version: their keys, functions that read and build a `_meta`, and the [`Restrictions`] that
//! a client can set for a session.

use std::path::Path;

use serde_json::{Map, Value};

use base::approvals::Approvals;
use permission::rule::modern;

/// The key of the object with adjutant's members in a `_meta`.
pub const META_KEY: &str = "adjutant";
/// In a prompt: the JSON Schema of the result.
pub const SCHEMA: &str = "schema";
/// In the response to a prompt with a schema: the result.
pub const STRUCTURED: &str = "structured";
/// In a prompt: text for the end of the system prompt.
pub const SYSTEM: &str = "system";
/// In a prompt: tools by name, each `true` or `false`.
pub const TOOLS: &str = "tools";
/// In a prompt: a unique key. A prompt that is sent again with the same key does not begin a second
/// turn.
pub const IDEMPOTENCY_KEY: &str = "idempotencyKey";
/// In the response to a prompt, or in the data of its error: the server is about to stop, and the
/// turn ended after a step or did not begin. It continues on another server.
pub const HANDED_OVER: &str = "handedOver";
/// In the data of the error of a request to open a session: `true` if another request opens the
/// session at the moment, or a subagent works in it. The request can be sent again.
pub const IN_USE: &str = "inUse";
/// In the response to a prompt: `true` if the turn ended because a call was rejected.
pub const REJECTED: &str = "rejected";
/// In the response to a prompt: `true` if the offline model, or a built-in command, could not
/// fulfil the request.
pub const NOT_DONE: &str = "notDone";
/// In the answer to a question, next to a rejection: the user's comment.
pub const COMMENT: &str = "words";
/// In the capabilities of adjutant's own clients: no user is present to answer questions.
pub const ALONE: &str = "alone";
/// In the capabilities of adjutant's own clients: notices are not shown, so they are shown later.
pub const QUIET: &str = "quiet";
/// In the capabilities of adjutant's own clients: a chosen model is for its session only, and the
/// project's next session does not begin with it.
pub const SESSION_MODEL: &str = "sessionModel";
/// In the capabilities of adjutant's own clients: a question is short, and its details are in
/// [`DETAILS`], for a user who asks for them.
pub const ASKS_FOR_DETAILS: &str = "asksForDetails";
/// In a request that opens a session: permissions that it does not have, or about which it asks,
/// each `deny` or `ask`, or an object of patterns. It can only be stricter than the user's rules.
pub const PERMISSION: &str = "permission";
/// In a request that opens a session: `ask`, to be asked about every change.
pub const APPROVALS: &str = "approvals";
/// In a load: `true` if the session has no prompt yet, so that it is not stored. It is created
/// again under its old id.
pub const UNPROMPTED: &str = "unsaid";
/// In a load: `true` if the client's server was lost, and may have the session until its lease
/// ends. That is awaited; the session of a process that renews its lease is not taken over.
pub const AWAITS_LEASE: &str = "awaitsLease";
/// In a fork: the message, or the part of a message, before which the new session's history ends.
pub const FORK_BEFORE: &str = "before";
/// In a list of sessions: the extent of a session's file changes.
pub const CHANGED: &str = "changed";
/// In a list of sessions: the description of a session's work, if there is one.
pub const SUMMARY: &str = "summary";
/// In the response to a list of sessions: the list is being rebuilt, with the number of sessions in
/// it and in total.
pub const FILLING: &str = "filling";
/// In a diff of a part of a file: the number of lines before the old and the new text.
pub const LINES_BEFORE: &str = "linesBefore";
/// In the end of a compaction: the tokens of the context before and, estimated, after it.
pub const COMPACTED: &str = "compacted";

/// In a question to a client without a user: the reason for the question, and the settings that
/// would have allowed the call.
pub const UNATTENDED: &str = "unattended";

/// In a question without an "always": the reason why it is not offered.
pub const WHY_NOT_ALWAYS: &str = "whyNotAlways";

/// In a question to a client that asks for details: `sandbox`, the restrictions of the command's
/// sandbox, and `always`, the grant that "always" would store, with `text`, `permissions` and `agent`.
pub const DETAILS: &str = "details";

/// A `_meta` object of any version.
pub type Meta = Map<String, Value>;

/// Returns a `_meta` with one of adjutant's members.
pub fn with_member(key: &str, value: Value) -> Meta {
    let ours = Map::from_iter([(key.to_owned(), value)]);
    Map::from_iter([(META_KEY.to_owned(), Value::Object(ours))])
}

/// Returns a `_meta` with those of adjutant's members that have a value; `None` if none has one.
pub fn with_members<const N: usize>(members: [(&str, Option<Value>); N]) -> Option<Meta> {
    let present = members
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let ours = Map::from_iter(present);
    (!ours.is_empty()).then(|| Map::from_iter([(META_KEY.to_owned(), Value::Object(ours))]))
}

/// Returns one of adjutant's members of a `_meta`: nested (`adjutant: {schema}`) or flat
/// (`adjutant.schema`).
pub fn member<'a>(meta: Option<&'a Meta>, key: &str) -> Option<&'a Value> {
    let nested = || meta?.get(META_KEY)?.get(key);
    nested().or_else(|| meta?.get(&format!("{META_KEY}.{key}")))
}

/// The keys of the members that a prompt may have.
const PROMPT_KEYS: [&str; 4] = [SCHEMA, SYSTEM, TOOLS, IDEMPOTENCY_KEY];

/// Returns the problem of a prompt's flat keys (`adjutant.schema`); `None` if there is none. An unknown
/// key would be ignored, and a key that has another value in the nested form is ambiguous.
pub fn flat_key_problem(meta: Option<&Meta>) -> Option<String> {
    let meta = meta?;
    meta.iter().find_map(|(name, flat)| {
        let key = name.strip_prefix(META_KEY)?.strip_prefix('.')?;
        let nested = meta.get(META_KEY).and_then(|ours| ours.get(key));
        if !PROMPT_KEYS.contains(&key) {
            let known = PROMPT_KEYS
                .map(|known| format!("{META_KEY}.{known}"))
                .join(", ");
            return Some(format!(
                "_meta.{name} is not known; a prompt may contain {known}"
            ));
        }
        nested
            .filter(|nested| *nested != flat)
            .map(|_| format!("_meta.{name} appears twice, with different values"))
    })
}

/// The restrictions that a client sets for one session. They add to the user's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// The denied permissions, each with a pattern.
    pub denied: Vec<(String, String)>,
    /// The permissions about which the user is asked, each with a pattern.
    pub asked: Vec<(String, String)>,
    /// [`Approvals::Ask`] if the client wants to be asked about every change; otherwise `None`.
    pub approvals: Option<Approvals>,
}

impl Restrictions {
    /// Returns the same restrictions with names and patterns in the form of settings. `home` replaces
    /// `~` in paths.
    ///
    /// # Errors
    /// A name would restrict nothing. The message is for the client's author.
    pub fn as_settings(self, home: Option<&Path>) -> Result<Self, String> {
        let convert = |(permission, pattern): (String, String)| {
            config::denial(&permission, &pattern, home).map_err(|meant| {
                format!(
                    "_meta.{META_KEY}.{PERMISSION}.{permission} is not known: did you mean \"{meant}\"? Write \"{permission}*\" if it is a tool of a server"
                )
            })
        };
        Ok(Self {
            denied: self
                .denied
                .into_iter()
                .map(convert)
                .collect::<Result<_, _>>()?,
            asked: self
                .asked
                .into_iter()
                .map(convert)
                .collect::<Result<_, _>>()?,
            approvals: self.approvals,
        })
    }
}

/// Returns one of adjutant's members, nested or flat.
///
/// # Errors
/// It appears twice, with different values.
fn unique_member<'a>(meta: Option<&'a Meta>, key: &str) -> Result<Option<&'a Value>, String> {
    let found = member(meta, key);
    let flat = meta.and_then(|meta| meta.get(&format!("{META_KEY}.{key}")));
    match flat {
        Some(flat) if found != Some(flat) => Err(format!(
            "_meta.{META_KEY}.{key} appears twice, with different values"
        )),
        _ => Ok(found),
    }
}

/// Reads the restrictions that a client sets for a session.
///
/// # Errors
/// A value is not a restriction. The message is for the client's author.
pub fn restrictions(meta: Option<&Meta>) -> Result<Restrictions, String> {
    let mut all = Restrictions::default();
    match unique_member(meta, APPROVALS)? {
        None => {}
        Some(value) if value == Approvals::Ask.as_str() => all.approvals = Some(Approvals::Ask),
        Some(_) => {
            return Err(format!(
                "_meta.{META_KEY}.{APPROVALS} can only be \"ask\" here; the user chooses anything else"
            ));
        }
    }
    let permissions = match unique_member(meta, PERMISSION)? {
        None => return Ok(all),
        Some(Value::Object(permissions)) => permissions,
        Some(_) => {
            return Err(format!(
                "_meta.{META_KEY}.{PERMISSION} is an object of permissions"
            ));
        }
    };
    for (permission, value) in permissions {
        let mut restrict = |pattern: &str, value: &Value| {
            let current = modern(permission).unwrap_or(permission);
            let restricted = (current.to_owned(), pattern.to_owned());
            match value.as_str() {
                Some("deny") => all.denied.push(restricted),
                Some("ask") => all.asked.push(restricted),
                _ => {
                    return Err(format!(
                        "_meta.{META_KEY}.{PERMISSION}.{permission} can only be \"deny\" or \"ask\", or patterns with these: a session is never less strict than the user's rules"
                    ));
                }
            }
            Ok(())
        };
        match value {
            Value::Object(patterns) => {
                for (pattern, value) in patterns {
                    restrict(pattern, value)?;
                }
            }
            value => restrict("*", value)?,
        }
    }
    Ok(all)
}

/// Returns the user's comment on a rejection, which the protocol has no field for.
pub fn comment(meta: Option<&Meta>) -> Option<String> {
    let text = member(meta, COMMENT)?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_documented() {
        let table = include_str!("../../../protocol/README.md");
        let members = include_str!("meta.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""))
            .filter_map(|(name, value)| Some((name, value.strip_suffix("\";")?)))
            .filter(|(name, _)| *name != "META_KEY");
        let missing: Vec<&str> = members
            .map(|(_, value)| value)
            .filter(|value| !table.contains(&format!("`{META_KEY}.{value}`")))
            .collect();
        assert_eq!(missing, [""; 0], "in the table of protocol/README.md");
    }

    #[test]
    fn restrictions_can_only_deny_or_ask() {
        let of = |ours: Value| {
            let meta = Map::from_iter([(META_KEY.to_owned(), ours)]);
            restrictions(Some(&meta))
        };
        let denied = |all: &[(&str, &str)], approvals| {
            let denied = all
                .iter()
                .map(|(one, pattern)| ((*one).into(), (*pattern).into()));
            Ok(Restrictions {
                denied: denied.collect(),
                asked: Vec::new(),
                approvals,
            })
        };
        let asks = of(json!({ "permission": { "bash": { "git push*": "ask", "*": "deny" } } }));
        let asks = asks.unwrap();
        assert_eq!(asks.denied, [("bash".to_owned(), "*".to_owned())]);
        assert_eq!(asks.asked, [("bash".to_owned(), "git push*".to_owned())]);
        assert_eq!(of(json!({})), denied(&[], None));
        assert_eq!(
            of(
                json!({ "permission": { "bash": "deny", "edit": { "*.lock": "deny" } }, "approvals": "ask" })
            ),
            denied(&[("bash", "*"), ("edit", "*.lock")], Some(Approvals::Ask))
        );
        // Old names deny the permission that they stand for.
        assert_eq!(
            of(json!({ "permission": { "multiedit": "deny" } })),
            denied(&[("edit", "*")], None)
        );
        for wrong in [
            json!({ "permission": { "bash": "allow" } }),
            json!({ "permission": { "bash": { "ls *": "allow" } } }),
            json!({ "permission": "deny" }),
            json!({ "approvals": "sandboxed" }),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
        let twice = json!({
            "adjutant": { "permission": {} }, "adjutant.permission": { "bash": "deny" },
        });
        assert!(restrictions(twice.as_object()).is_err());
    }

    #[test]
    fn restrictions_are_read_as_settings() {
        let of = |permission: &str, pattern: &str| {
            let all = Restrictions {
                denied: vec![(permission.into(), pattern.into())],
                asked: vec![(permission.into(), pattern.into())],
                approvals: None,
            };
            let read = all.as_settings(Some(Path::new("/h")))?;
            assert_eq!(read.denied, read.asked);
            Ok::<_, String>(read.denied[0].clone())
        };
        let table = [
            (("bash", "rm -rf"), ("bash", "rm -rf *")),
            (("write", "*.lock"), ("edit", "*.lock")),
            (("read", "~/x"), ("read", "/h/x")),
            (("github_merge", "*"), ("github_merge", "*")),
        ];
        for ((permission, pattern), (name, read)) in table {
            assert_eq!(of(permission, pattern), Ok((name.into(), read.into())));
        }
        for unknown in ["Bash", "shell"] {
            assert!(of(unknown, "*").is_err(), "{unknown}");
        }
    }
}
