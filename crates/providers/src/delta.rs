//! What comes from a model, piece by piece, in nobody's dialect.

use serde_json::{Map, Value};

use transcript::{Finish, Usage};

/// A piece of an answer. Blocks (text, reasoning, calls) are told apart by `index`, which the
/// provider file chooses: the same index continues the same block, blocks end when the answer
/// does, and their order is the order of their first piece.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text {
        index: usize,
        text: String,
    },
    Reasoning {
        index: usize,
        /// To be appended; may be empty where a block has only opaque content.
        text: String,
    },
    /// A call begins or is named.
    Call {
        index: usize,
        /// The provider's id for it, where it gives one.
        id: Option<String>,
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        index: usize,
        /// JSON text to be appended.
        json: String,
    },
    /// Something of a block that must go back to the provider untouched (a signature, an encrypted
    /// item, an id); merged key by key.
    Provider {
        index: usize,
        data: Map<String, Value>,
    },
    /// Pages that the provider's own search has found.
    Found(Vec<FoundPage>),
    /// What was counted so far; the last one holds.
    Usage(Usage),
    /// Why it stopped. Without one the answer was cut off.
    Finish(Finish),
}

/// A page of the web, as far as it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPage {
    pub title: String,
    pub url: String,
    pub date: String,
    pub extract: String,
}

/// An answer as text, one line per block and fact, for tables of cases.
#[cfg(test)]
pub(super) fn lines(deltas: &[Delta]) -> String {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    #[derive(Default)]
    struct Block {
        kind: &'static str,
        words: String,
        provider: Map<String, Value>,
    }
    let mut blocks: BTreeMap<usize, Block> = BTreeMap::new();
    let mut order = Vec::new();
    let (mut usage, mut finish, mut found) = (None, None, Vec::new());
    for delta in deltas {
        let index = match delta {
            Delta::Found(pages) => {
                found.extend(pages);
                continue;
            }
            Delta::Text { index, .. }
            | Delta::Reasoning { index, .. }
            | Delta::Call { index, .. }
            | Delta::Arguments { index, .. }
            | Delta::Provider { index, .. } => *index,
            Delta::Usage(counted) => {
                usage = Some(*counted);
                continue;
            }
            Delta::Finish(reason) => {
                finish = Some(*reason);
                continue;
            }
        };
        if !order.contains(&index) {
            order.push(index);
        }
        let block = blocks.entry(index).or_default();
        match delta {
            Delta::Text { text, .. } => {
                block.kind = "text";
                block.words.push_str(text);
            }
            Delta::Reasoning { text, .. } => {
                block.kind = "reasoning";
                block.words.push_str(text);
            }
            Delta::Call { id, name, .. } => {
                block.kind = "call";
                block.words = format!("{} {name} {}", id.as_deref().unwrap_or("-"), block.words);
            }
            Delta::Arguments { json, .. } => block.words.push_str(json),
            Delta::Provider { data, .. } => block.provider.extend(data.clone()),
            Delta::Found(_) | Delta::Usage(_) | Delta::Finish(_) => {}
        }
    }
    let mut out = String::new();
    for index in order {
        let block = &blocks[&index];
        let _ = writeln!(out, "{index} {} {}", block.kind, block.words.replace('\n', "\\n"));
        if !block.provider.is_empty() {
            let _ = writeln!(out, "{index} provider {}", Value::Object(block.provider.clone()));
        }
    }
    for page in found {
        let _ = writeln!(out, "found {} <{}> {:?} {:?}", page.title, page.url, page.date, page.extract);
    }
    if let Some(u) = usage {
        let _ = writeln!(out, "usage {} {} {} {} {}", u.input, u.output, u.reasoning, u.cache_read, u.cache_write);
    }
    if let Some(finish) = finish {
        let _ = writeln!(out, "finish {finish:?}");
    }
    out.trim_end().to_owned()
}
