//! What is ours in a request or a response: `_meta.adjutant`, the same in every version of the protocol.

use serde_json::{Map, Value};

pub const OWN: &str = "adjutant";
/// In a prompt: the JSON Schema that its result must fit.
pub const SCHEMA: &str = "schema";
/// In the answer to it: the result.
pub const STRUCTURED: &str = "structured";
/// In a prompt: words for the end of the system prompt.
pub const SYSTEM: &str = "system";
/// In a prompt: tools by name, each true or false.
pub const TOOLS: &str = "tools";
/// In a prompt: its name, whatever it is; sent once more under the same name it is not begun once more.
pub const IDEMPOTENCY_KEY: &str = "idempotencyKey";
/// In the answer to a prompt, or in the data of its error: the server is about to stop, and the turn ended at a step,
/// or did not begin. On another one it goes on.
pub const HANDED_OVER: &str = "handedOver";
/// In the answer to a prompt: true where the turn ended because a call was rejected.
pub const REJECTED: &str = "rejected";
/// In the answer to a question, beside a no: what the user says instead.
pub const WORDS: &str = "words";
/// In the capabilities of a client of ours: nobody is there to answer questions.
pub const ALONE: &str = "alone";
/// In a load: true where nothing was said in the session, so that it is not kept. It begins then, under its old id.
pub const UNSAID: &str = "unsaid";
/// In a fork: the message, or a part of it, that the new session's history ends before.
pub const BEFORE: &str = "before";
/// In a list of sessions: how much a session changed in the files.
pub const CHANGED: &str = "changed";
/// In the answer to a list of sessions: the list is being made again, and so many sessions of so many are in it.
pub const FILLING: &str = "filling";

/// In a question to a client that says it is alone: why it is asked, and the settings that would have allowed it.
pub const UNATTENDED: &str = "unattended";

/// A `_meta`, in any version.
pub type Meta = Map<String, Value>;

/// A `_meta` with something of ours.
pub fn own(key: &str, value: Value) -> Meta {
    let ours = Map::from_iter([(key.to_owned(), value)]);
    Map::from_iter([(OWN.to_owned(), Value::Object(ours))])
}

/// Our members of a `_meta`: under our name, or flat under both names, `adjutant.schema`.
pub fn of_ours<'a>(meta: Option<&'a Meta>, key: &str) -> Option<&'a Value> {
    let nested = || meta?.get(OWN)?.get(key);
    nested().or_else(|| meta?.get(&format!("{OWN}.{key}")))
}

/// What a prompt may say of ours.
const OF_A_PROMPT: [&str; 4] = [SCHEMA, SYSTEM, TOOLS, IDEMPOTENCY_KEY];

/// Returns what is wrong with the flat keys of a prompt, if anything is: one that is not known would be ignored, and
/// one that is there twice could mean either.
pub fn wrong_in_prompt(meta: Option<&Meta>) -> Option<String> {
    let meta = meta?;
    meta.iter().find_map(|(name, flat)| {
        let key = name.strip_prefix(OWN)?.strip_prefix('.')?;
        let nested = meta.get(OWN).and_then(|ours| ours.get(key));
        if !OF_A_PROMPT.contains(&key) {
            let known = OF_A_PROMPT.map(|known| format!("{OWN}.{known}")).join(", ");
            return Some(format!("_meta.{name} is not known; what a prompt may say is {known}"));
        }
        nested.filter(|nested| *nested != flat).map(|_| format!("_meta.{name} is there twice, with two values"))
    })
}

/// What the user says beside a no: the protocol has no place for it.
pub fn words(meta: Option<&Meta>) -> Option<String> {
    let words = of_ours(meta, WORDS)?.as_str()?.trim();
    (!words.is_empty()).then(|| words.to_owned())
}
