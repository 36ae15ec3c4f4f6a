//! The increments of a model's answer, independent of the wire format.

use serde_json::{Map, Value};

use transcript::model_message::FoundPage;
use transcript::{Finish, Usage};

/// One increment of an answer. `index` identifies the block (text, reasoning or call) and is chosen
/// by the wire format. Increments with the same index continue the same block; all blocks end with
/// the answer; the order of the blocks is the order of their first increments.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text {
        index: usize,
        text: String,
    },
    Reasoning {
        index: usize,
        /// Text to append; may be empty if a block has only opaque content.
        text: String,
    },
    /// The start of a call.
    Call {
        index: usize,
        /// The provider's id of the call, if it sends one.
        id: Option<String>,
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        index: usize,
        /// JSON text to append.
        json: String,
    },
    /// Opaque data of a block that must be sent back to the provider unchanged (a signature, an
    /// encrypted item, an id); merged key by key.
    Provider {
        index: usize,
        data: Map<String, Value>,
    },
    /// Pages found by the provider's own search.
    Found(Vec<FoundPage>),
    /// The token counts so far; the last ones are final.
    Usage(Usage),
    /// The reason for the end. Without it, the answer was cut off.
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
