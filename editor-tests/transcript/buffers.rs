//! Open buffers of a page's client.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Open buffers of the client, which answers requests about files automatically.
#[derive(Default)]
pub(super) struct Buffers {
    /// Texts that differ from the disk.
    pub(super) texts: BTreeMap<PathBuf, String>,
    pub(super) refuse_writes: bool,
}

impl Buffers {
    pub(super) fn answer(&mut self, method: &str, params: &Value) -> Option<Value> {
        let path = PathBuf::from(params["path"].as_str().unwrap_or_default());
        match method {
            "fs/read_text_file" => {
                let text = self
                    .texts
                    .get(&path)
                    .cloned()
                    .or_else(|| fs::read_to_string(&path).ok());
                Some(match text {
                    Some(text) => json!({ "result": { "content": text } }),
                    None => json!({ "error": { "code": -32002, "message": "Resource not found" } }),
                })
            }
            "fs/write_text_file" if self.refuse_writes => {
                Some(json!({ "error": { "code": -32603, "message": "the buffer is read-only" } }))
            }
            "fs/write_text_file" => {
                let text = params["content"].as_str().unwrap_or_default();
                self.texts.remove(&path);
                Some(match fs::write(&path, text) {
                    Ok(()) => json!({ "result": null }),
                    Err(e) => json!({ "error": { "code": -32603, "message": e.to_string() } }),
                })
            }
            _ => None,
        }
    }
}
