//! The increments of a model's answer ([`Delta`]), independent of the wire format. A decoder of a
//! wire format makes them, the session assembles them to a message.

use serde_json::{Map, Value};

use transcript::model_message::FoundPage;
use transcript::{Finish, Usage};

/// One increment of an answer. `index` identifies a block (text, reasoning or call); the wire format
/// chooses it. Increments with the same index continue the same block. The order of the blocks is
/// the order of their first increments. No increment ends a block: all blocks end with the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More text for the user.
    Text { index: usize, text: String },
    /// More of the model's reasoning.
    Reasoning {
        index: usize,
        /// Text to append; empty if the block has only opaque content.
        text: String,
    },
    /// The start of a call.
    Call {
        index: usize,
        /// The provider's id of the call, if it sends one.
        id: Option<String>,
        /// The name of the tool.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        index: usize,
        /// JSON text to append.
        json: String,
    },
    /// Opaque data of a block that must be sent back to the provider unchanged (a signature, an
    /// encrypted item, an id). Several of one block are merged key by key.
    ProviderData {
        index: usize,
        data: Map<String, Value>,
    },
    /// Pages found by the provider's own search.
    FoundPages(Vec<FoundPage>),
    /// The token counts so far. Each one replaces the one before.
    Usage(Usage),
    /// The reason why the answer ended. An answer without it was cut off.
    Finish(Finish),
}

/// Formats an answer as text for table tests: one line per block and fact.
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
    let mut usage = None;
    let mut finish = None;
    let mut found = Vec::new();
    for delta in deltas {
        let index = match delta {
            Delta::FoundPages(pages) => {
                found.extend(pages);
                continue;
            }
            Delta::Text { index, .. }
            | Delta::Reasoning { index, .. }
            | Delta::Call { index, .. }
            | Delta::Arguments { index, .. }
            | Delta::ProviderData { index, .. } => *index,
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
            Delta::ProviderData { data, .. } => block.provider.extend(data.clone()),
            Delta::FoundPages(_) | Delta::Usage(_) | Delta::Finish(_) => {}
        }
    }
    let mut out = String::new();
    for index in order {
        let block = &blocks[&index];
        let _ = writeln!(
            out,
            "{index} {} {}",
            block.kind,
            block.words.replace('\n', "\\n")
        );
        if !block.provider.is_empty() {
            let _ = writeln!(
                out,
                "{index} provider {}",
                Value::Object(block.provider.clone())
            );
        }
    }
    for page in found {
        let _ = writeln!(
            out,
            "found {} <{}> {:?} {:?}",
            page.title, page.url, page.date, page.extract
        );
    }
    if let Some(u) = usage {
        let _ = writeln!(
            out,
            "usage {} {} {} {} {}",
            u.input, u.output, u.reasoning, u.cache_read, u.cache_write
        );
    }
    if let Some(finish) = finish {
        let _ = writeln!(out, "finish {finish:?}");
    }
    out.trim_end().to_owned()
}
