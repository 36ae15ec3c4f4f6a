//! Converts content of a server for the model: texts, attachments (images and documents), and a
//! note for each omitted part.

use rmcp::model::{ContentBlock, ResourceContents};

use base::text;
use transcript::File;

/// The largest attachment, in bytes of base64, and the longest text of a resource, in bytes.
const MAX_ATTACHMENT_BYTES: usize = 14 << 20;
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Texts with their attachments.
#[derive(Default)]
pub(super) struct ServerContent {
    pub texts: Vec<String>,
    pub attachments: Vec<File>,
}

impl ServerContent {
    pub(super) fn text(&self) -> String {
        self.texts.join("\n\n")
    }

    fn attach(&mut self, mime: String, uri: Option<String>, data: String) {
        let known = mime.starts_with("image/") || mime == "application/pdf";
        if known && data.len() <= MAX_ATTACHMENT_BYTES {
            self.attachments.push(File {
                mime,
                name: None,
                uri,
                data: Some(data),
                is_rejected: false,
            });
        } else {
            self.texts.push(format!(
                "[{mime}, {} bytes in base64, left out]",
                data.len()
            ));
        }
    }

    /// Adds a content block of a tool result or a prompt.
    pub(super) fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text),
            ContentBlock::Image(image) => self.attach(image.mime_type, None, image.data),
            ContentBlock::Audio(audio) => {
                self.texts.push(format!("[{}, left out]", audio.mime_type))
            }
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { text, .. } => self.texts.push(text),
                ResourceContents::BlobResourceContents {
                    uri,
                    mime_type,
                    blob,
                    ..
                } => {
                    self.attach(
                        mime_type.unwrap_or_else(|| OCTET_STREAM.into()),
                        Some(uri),
                        blob,
                    );
                }
                _ => self.texts.push("[a resource of an unknown kind]".into()),
            },
            ContentBlock::ResourceLink(link) => {
                self.texts.push(format!("{}: {}", link.name, link.uri))
            }
            _ => self.texts.push("[content of an unknown kind]".into()),
        }
    }

    /// Adds the contents of a resource, preceded by its URI and MIME type.
    pub(super) fn resource(&mut self, contents: ResourceContents) {
        match contents {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => {
                let mime = mime_type.map_or_else(String::new, |mime| format!("\nMIME: {mime}"));
                let head = text::head(&text, MAX_TEXT_BYTES);
                let rest = match text.len() - head.len() {
                    0 => String::new(),
                    more => format!("\n[{more} more bytes are left out]"),
                };
                self.texts
                    .push(format!("Resource: {uri}{mime}\n{head}{rest}"));
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let mime = mime_type.unwrap_or_else(|| OCTET_STREAM.into());
                self.texts.push(format!("Resource: {uri}\nMIME: {mime}"));
                self.attach(mime, Some(uri), blob);
            }
            _ => self.texts.push("[a resource of an unknown kind]".into()),
        }
    }
}

const OCTET_STREAM: &str = "application/octet-stream";
