//! Converts the content blocks of prompts to message parts, and files back to content blocks.

use protocol::acp::v1;

use crate::error::RequestError;
use crate::tool_call_view::MAX_ATTACHED_BYTES;
use transcript::{Content, File, Text, attach};

/// Converts content blocks to message parts. Links are read when the prompt's turn begins
/// (`crates/session/src/mention.rs`).
///
/// # Errors
/// [`RequestError::Invalid`] for a kind of content that is not among the prompt capabilities.
pub(super) fn decode_parts(blocks: Vec<v1::ContentBlock>) -> Result<Vec<Content>, RequestError> {
    blocks.into_iter().map(decode_part).collect()
}

fn decode_part(block: v1::ContentBlock) -> Result<Content, RequestError> {
    let text = |text: String| {
        Content::Text(Text {
            text: text.into(),
            ..Text::default()
        })
    };
    Ok(match block {
        v1::ContentBlock::Text(content) => text(content.text),
        v1::ContentBlock::Image(image) => Content::File(File {
            mime: image.mime_type,
            name: None,
            uri: image.uri,
            data: (!image.data.is_empty()).then_some(image.data),
            is_rejected: false,
        }),
        v1::ContentBlock::ResourceLink(link) => Content::File(File {
            mime: link
                .mime_type
                .unwrap_or_else(|| "application/octet-stream".into()),
            name: Some(link.name),
            uri: Some(link.uri),
            data: None,
            is_rejected: false,
        }),
        v1::ContentBlock::Resource(embedded) => match embedded.resource {
            v1::EmbeddedResourceResource::TextResourceContents(resource) => {
                text(attach(&resource.uri, &resource.text))
            }
            v1::EmbeddedResourceResource::BlobResourceContents(resource) => Content::File(File {
                mime: resource
                    .mime_type
                    .unwrap_or_else(|| "application/octet-stream".into()),
                name: None,
                uri: Some(resource.uri),
                data: Some(resource.blob),
                is_rejected: false,
            }),
            _ => {
                return Err(RequestError::Invalid(
                    "this kind of embedded resource is not supported".into(),
                ));
            }
        },
        v1::ContentBlock::Audio(audio) => Content::File(File {
            mime: audio.mime_type,
            name: None,
            uri: None,
            data: (!audio.data.is_empty()).then_some(audio.data),
            is_rejected: false,
        }),
        _ => {
            return Err(RequestError::Invalid(
                "this kind of content is not supported".into(),
            ));
        }
    })
}

/// Encodes a file: an image or audio as such, a file without data as a link. Data that is too large
/// or of another type becomes a line of text with its name.
pub(super) fn encode_file(file: &File) -> v1::ContentBlock {
    let name = || {
        file.name
            .clone()
            .or_else(|| file.uri.clone())
            .unwrap_or_else(|| file.mime.clone())
    };
    match (&file.data, &file.uri) {
        // The length of the base64 text.
        (Some(data), _) if data.len() > MAX_ATTACHED_BYTES => {
            v1::ContentBlock::from(format!("[{} is attached]", name()))
        }
        (Some(data), uri) if file.mime.starts_with("image/") => v1::ContentBlock::Image(
            v1::ImageContent::new(data.as_str(), file.mime.as_str()).uri(uri.clone()),
        ),
        (Some(data), None) if file.mime.starts_with("audio/") => {
            v1::ContentBlock::Audio(v1::AudioContent::new(data.as_str(), file.mime.as_str()))
        }
        (Some(_), _) => v1::ContentBlock::from(format!("[{} is attached]", name())),
        (None, Some(uri)) => {
            v1::ContentBlock::ResourceLink(v1::ResourceLink::new(name(), uri.as_str()))
        }
        (None, None) => v1::ContentBlock::from(format!("[{}]", name())),
    }
}
