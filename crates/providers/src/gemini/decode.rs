//! Decodes the chunks of a generateContent answer.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::sse::Flow;
use crate::wire_format::{Decoder, deserialize_token_count, finish_once, single_entry};
use crate::{Delta, Error, FoundPage, error_classification};
use transcript::{Finish, Usage};

/// The decoder of one answer.
pub(super) struct GeminiDecoder {
    /// The provider's display name, for errors.
    server_name: String,
    /// The index of the next block.
    next_block: usize,
    /// The block to which text is appended, and its kind.
    open: Option<(usize, Kind)>,
    has_calls: bool,
    /// The counts of the last chunk: they come with every chunk, and only the last ones are passed
    /// on.
    usage: Option<Usage>,
    finish: Option<Finish>,
    /// True once the finish reason has been passed on.
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
}

impl GeminiDecoder {
    pub(super) fn new(server_name: &str) -> Self {
        Self {
            server_name: server_name.to_owned(),
            next_block: 0,
            open: None,
            has_calls: false,
            usage: None,
            finish: None,
            has_ended: false,
        }
    }

    fn new_block(&mut self) -> usize {
        self.next_block += 1;
        self.next_block - 1
    }

    fn decode_part(&mut self, mut part: GeminiPart, out: &mut Vec<Delta>) {
        let signature = part
            .signature
            .take()
            .map(|s| single_entry("thoughtSignature", s));
        if let Some(call) = part.call {
            self.open = None;
            self.has_calls = true;
            let index = self.new_block();
            out.push(Delta::Call {
                index,
                id: call.id.filter(|id| !id.is_empty()),
                name: call.name,
            });
            let args = call.args.unwrap_or_else(|| Value::Object(Map::new()));
            out.push(Delta::Arguments {
                index,
                json: args.to_string(),
            });
            out.extend(signature.map(|data| Delta::ProviderData { index, data }));
            return;
        }
        let kind = if part.thought {
            Kind::Thought
        } else {
            Kind::Text
        };
        match part.text {
            Some(text) => {
                let open = self
                    .open
                    .filter(|(_, open)| *open == kind)
                    .map(|(index, _)| index);
                // A signature may arrive after its text, in a part without text. If there was no
                // text at all, it needs a block that is stored although it shows nothing.
                if open.is_none() && text.is_empty() {
                    if let Some(mut data) = signature {
                        let index = self.new_block();
                        if kind == Kind::Text {
                            data.insert("plain".into(), true.into());
                        }
                        out.push(Delta::Reasoning { index, text });
                        out.push(Delta::ProviderData { index, data });
                    }
                    return;
                }
                let index = open.unwrap_or_else(|| self.new_block());
                self.open = Some((index, kind));
                if !text.is_empty() {
                    out.push(if part.thought {
                        Delta::Reasoning { index, text }
                    } else {
                        Delta::Text { index, text }
                    });
                }
                if let Some(data) = signature {
                    out.push(Delta::ProviderData { index, data });
                    // The following text is another part, with its own signature or none.
                    self.open = None;
                }
            }
            // Code that the provider ran, images, and future parts: stored whole.
            None if !part.rest.is_empty() => {
                self.open = None;
                let index = self.new_block();
                let mut whole = part.rest;
                whole.extend(signature.into_iter().flatten());
                out.push(Delta::Reasoning {
                    index,
                    text: String::new(),
                });
                out.push(Delta::ProviderData {
                    index,
                    data: single_entry("part", whole),
                });
            }
            None => {
                if let (Some(data), Some((index, _))) = (signature, self.open) {
                    out.push(Delta::ProviderData { index, data });
                }
            }
        }
    }
}

impl Decoder for GeminiDecoder {
    fn decode(&mut self, _event: &str, data: &str, out: &mut Vec<Delta>) -> Result<Flow, Error> {
        if data.trim() == "[DONE]" {
            return Ok(Flow::More);
        }
        let invalid_chunk = |e: &serde_json::Error| {
            let excerpt = error_classification::excerpt(data.as_bytes());
            Error::InvalidAnswer(format!(
                "{} sent something that is not a chunk of an answer ({e}): {excerpt}.",
                self.server_name
            ))
        };
        // Without `alt=sse`, or from a buffering proxy, all chunks arrive in one list.
        let chunks: Vec<Chunk> = if data.trim_start().starts_with('[') {
            serde_json::from_str(data).map_err(|e| invalid_chunk(&e))?
        } else {
            vec![serde_json::from_str(data).map_err(|e| invalid_chunk(&e))?]
        };
        for chunk in chunks {
            if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
                return Err(error_classification::classify_event(
                    &self.server_name,
                    &error,
                ));
            }
            let candidate = chunk
                .candidates
                .unwrap_or_default()
                .into_iter()
                .next()
                .unwrap_or_default();
            for part in candidate
                .content
                .and_then(|content| content.parts)
                .unwrap_or_default()
            {
                self.decode_part(part, out);
            }
            if let Some(usage) = chunk.usage {
                self.usage = Some(usage.to_usage());
            }
            if chunk
                .feedback
                .is_some_and(|feedback| feedback.block_reason.is_some())
            {
                self.finish = Some(Finish::Refusal);
            }
            let found = candidate
                .grounding_metadata
                .map(Grounding::pages)
                .unwrap_or_default();
            if !found.is_empty() {
                out.push(Delta::FoundPages(found));
            }
            let Some(reason) = candidate.finish_reason else {
                continue;
            };
            self.finish = Some(match reason.as_str() {
                "STOP" | "FINISH_REASON_UNSPECIFIED" if self.has_calls => Finish::ToolCalls,
                "STOP" | "FINISH_REASON_UNSPECIFIED" => Finish::Stop,
                "MAX_TOKENS" => Finish::Length,
                "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                | "IMAGE_SAFETY" => Finish::Refusal,
                // The model made an invalid call; a retry usually helps.
                "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
                    let detail = candidate.finish_message.unwrap_or_default();
                    return Err(Error::InvalidAnswer(
                        format!(
                            "{} made a call that cannot be read. {detail}",
                            self.server_name
                        )
                        .trim_end()
                        .to_owned(),
                    ));
                }
                _ => Finish::Other,
            });
        }
        Ok(Flow::More)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Error> {
        let Some(finish) = finish_once(&mut self.has_ended, self.finish, &self.server_name)? else {
            return Ok(());
        };
        out.extend(self.usage.map(Delta::Usage));
        out.push(Delta::Finish(finish));
        Ok(())
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    candidates: Option<Vec<Candidate>>,
    #[serde(default, rename = "usageMetadata")]
    usage: Option<UsageMetadata>,
    #[serde(default, rename = "promptFeedback")]
    feedback: Option<PromptFeedback>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Candidate {
    content: Option<GeminiContent>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    grounding_metadata: Option<Grounding>,
}

/// The results of Google's search, and the text of the answer that each supports.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Grounding {
    grounding_chunks: Vec<GroundingChunk>,
    grounding_supports: Vec<GroundingSupport>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GroundingChunk {
    web: Option<GroundingPage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GroundingPage {
    uri: String,
    title: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct GroundingSupport {
    segment: GroundingSegment,
    grounding_chunk_indices: Vec<usize>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GroundingSegment {
    text: String,
}

impl Grounding {
    fn pages(self) -> Vec<FoundPage> {
        let page = |chunk: GroundingChunk| {
            let web = chunk.web.unwrap_or_default();
            FoundPage {
                title: web.title,
                url: web.uri,
                ..FoundPage::default()
            }
        };
        let mut pages: Vec<FoundPage> = self.grounding_chunks.into_iter().map(page).collect();
        for support in self.grounding_supports {
            for at in support.grounding_chunk_indices {
                let Some(page) = pages.get_mut(at) else {
                    continue;
                };
                let space = if page.extract.is_empty() { "" } else { " " };
                page.extract
                    .push_str(&format!("{space}{}", support.segment.text));
            }
        }
        pages
    }
}

#[derive(Deserialize)]
struct GeminiContent {
    #[serde(default)]
    parts: Option<Vec<GeminiPart>>,
}

#[derive(Deserialize)]
struct GeminiPart {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    #[serde(default, rename = "thoughtSignature")]
    signature: Option<String>,
    #[serde(default, rename = "functionCall")]
    call: Option<FunctionCall>,
    /// All other fields: of code that the provider ran, and of parts of unknown types.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    #[serde(default)]
    block_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct UsageMetadata {
    #[serde(deserialize_with = "deserialize_token_count")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "deserialize_token_count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "deserialize_token_count")]
    cached_content_token_count: Option<u64>,
    #[serde(deserialize_with = "deserialize_token_count")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "deserialize_token_count")]
    thoughts_token_count: Option<u64>,
}

impl UsageMetadata {
    fn to_usage(&self) -> Usage {
        let [prompt, of_tools, cache_read, output, reasoning] = [
            self.prompt_token_count,
            self.tool_use_prompt_token_count,
            self.cached_content_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
        ]
        .map(Option::unwrap_or_default);
        Usage {
            input: (prompt + of_tools).saturating_sub(cache_read),
            output,
            reasoning,
            cache_read,
            cache_write: 0,
        }
    }
}
