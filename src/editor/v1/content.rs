//! What the user put into a prompt, as parts of a message.

use protocol::acp::v1;

use crate::editor::error::Refusal;
use crate::message::{Content, File, Text, attach};

/// Turns content blocks into parts. What links lead to is read when the prompt's turn comes
/// (`session/mention.rs`).
///
/// # Errors
/// [`Refusal::Invalid`] for kinds of content that were not offered.
pub(super) fn parts(blocks: Vec<v1::ContentBlock>) -> Result<Vec<Content>, Refusal> {
    blocks.into_iter().map(part).collect()
}

fn part(block: v1::ContentBlock) -> Result<Content, Refusal> {
    let text = |text: String| Content::Text(Text { text, ..Text::default() });
    Ok(match block {
        v1::ContentBlock::Text(content) => text(content.text),
        v1::ContentBlock::Image(image) => Content::File(File {
            mime: image.mime_type,
            name: None,
            uri: image.uri,
            data: (!image.data.is_empty()).then_some(image.data),
        }),
        v1::ContentBlock::ResourceLink(link) => Content::File(File {
            mime: link.mime_type.unwrap_or_else(|| "application/octet-stream".into()),
            name: Some(link.name),
            uri: Some(link.uri),
            data: None,
        }),
        v1::ContentBlock::Resource(embedded) => match embedded.resource {
            v1::EmbeddedResourceResource::TextResourceContents(resource) => text(attach(&resource.uri, &resource.text)),
            v1::EmbeddedResourceResource::BlobResourceContents(resource) => Content::File(File {
                mime: resource.mime_type.unwrap_or_else(|| "application/octet-stream".into()),
                name: None,
                uri: Some(resource.uri),
                data: Some(resource.blob),
            }),
            _ => return Err(Refusal::Invalid("this kind of embedded resource is not known here".into())),
        },
        v1::ContentBlock::Audio(_) => {
            return Err(Refusal::Invalid("audio was not offered at the handshake; send text, images or files".into()));
        }
        _ => return Err(Refusal::Invalid("this kind of content is not known here".into())),
    })
}
