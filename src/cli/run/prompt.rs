//! The prompt of a run: the words of the command line, standard input, and files.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use protocol::acp::v1;

use super::UsageError;
use crate::cli::{input, terminal};
use tools::files::encoding::{EncodingHint, NotText, decode};

/// The largest prompt, in bytes.
pub(super) const MAX_PROMPT_BYTES: u64 = 16 << 20;

/// The time without input after which the user is notified that standard input is awaited.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the prompt as content blocks: the text, then the files. The text is the arguments of a
/// command, if there is one, and may be empty then.
///
/// # Errors
/// Returns [`UsageError`] if the prompt is empty, or a file cannot be sent.
pub(super) fn blocks(
    command: Option<&str>,
    words: &[String],
    files: &[PathBuf],
    quiet: bool,
) -> anyhow::Result<Vec<v1::ContentBlock>> {
    let words = if words == ["-"] {
        String::new()
    } else {
        words.join(" ")
    };
    let piped = piped().map_err(|e| UsageError(format!("{e:#}")))?;
    let piped = piped.trim_end();
    let text = match (words.trim().is_empty(), piped.trim().is_empty()) {
        (true, true) if command.is_some() => String::new(),
        (true, true) => {
            return Err(UsageError(
                "the prompt is empty; say what to do: adjutant run \"PROMPT\"".into(),
            )
            .into());
        }
        (true, false) => piped.to_owned(),
        (false, true) => words,
        (false, false) => format!("{words}\n\n{piped}"),
    };
    let text = match command {
        Some(name) => format!("/{name} {text}").trim_end().to_owned(),
        None => text,
    };
    let mut blocks = vec![text.into()];
    for path in files {
        let attached = file(path).map_err(|e| UsageError(format!("{e:#}")))?;
        if let Some(encoding) = attached.encoding
            && !quiet
        {
            terminal::print_note(&format!("note: {} is read as {encoding}", path.display()));
        }
        blocks.push(attached.block);
    }
    let size: usize = blocks.iter().map(size).sum();
    if u64::try_from(size).unwrap_or(u64::MAX) > MAX_PROMPT_BYTES {
        return Err(UsageError(format!(
            "the prompt and its files are larger than {} MiB in total",
            MAX_PROMPT_BYTES >> 20
        ))
        .into());
    }
    Ok(blocks)
}

/// Returns the contents of standard input, if it is a pipe or a file.
fn piped() -> anyhow::Result<String> {
    let stdin = io::stdin();
    if stdin.is_terminal() || !is_input(&stdin) {
        return Ok(String::new());
    }
    let (sender, read) = mpsc::channel();
    thread::spawn(move || sender.send(input::read(Path::new("-"), MAX_PROMPT_BYTES)));
    let text = match read.recv_timeout(SILENCE_TIMEOUT) {
        Err(RecvTimeoutError::Timeout) => {
            terminal::print_note(
                "note: waiting for the end of standard input; with `< /dev/null` there is none",
            );
            read.recv()
        }
        read => read.map_err(|_| mpsc::RecvError),
    };
    text.map_err(|_| anyhow!("standard input cannot be read"))?
}

/// Returns whether standard input can have contents. Devices such as `/dev/null` are empty or
/// endless.
fn is_input(stdin: &impl AsFd) -> bool {
    use rustix::fs::FileType as Kind;
    let kind = rustix::fs::fstat(stdin).map(|stat| Kind::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(Kind::RegularFile | Kind::Fifo | Kind::Socket))
}

/// A file of a prompt.
struct AttachedFile {
    block: v1::ContentBlock,
    /// The encoding of a text that is not UTF-8.
    encoding: Option<&'static str>,
}

impl AttachedFile {
    fn new(block: v1::ContentBlock) -> Self {
        Self {
            block,
            encoding: None,
        }
    }
}

/// Checks that files can be attached to a prompt that is typed later.
pub(super) fn check_files(files: &[PathBuf]) -> anyhow::Result<()> {
    for path in files {
        file(path).map_err(|e| UsageError(format!("{e:#}")))?;
    }
    Ok(())
}

/// Returns a file with its contents: text, an image or a PDF. A directory is only linked.
fn file(path: &Path) -> anyhow::Result<AttachedFile> {
    let name = path.display();
    let whole = std::fs::canonicalize(path).with_context(|| format!("{name} cannot be read"))?;
    let uri = address(&whole)?;
    if whole.metadata().is_ok_and(|data| data.is_dir()) {
        let link = v1::ResourceLink::new(name.to_string(), uri);
        return Ok(AttachedFile::new(v1::ContentBlock::ResourceLink(link)));
    }
    let bytes = input::bytes(path, MAX_PROMPT_BYTES)?;
    if let Some(mime) = image(&bytes) {
        let image = v1::ImageContent::new(BASE64.encode(bytes), mime).uri(uri);
        return Ok(AttachedFile::new(v1::ContentBlock::Image(image)));
    }
    let mut encoding = None;
    let resource = if bytes.starts_with(b"%PDF-") {
        let blob = v1::BlobResourceContents::new(BASE64.encode(bytes), uri)
            .mime_type("application/pdf".to_owned());
        v1::EmbeddedResourceResource::BlobResourceContents(blob)
    } else {
        let decoded = decode(bytes, EncodingHint::default).map_err(|why| match why {
            NotText::Binary => {
                anyhow!("{name} is a binary file; attach a text, an image or a PDF")
            }
            NotText::Unsupported(encoding) => anyhow!(
                "{name} is a text in {encoding}; convert it first: iconv -f {encoding} -t UTF-8"
            ),
        })?;
        let source = decoded.source.filter(|source| !source.is_utf8());
        encoding = source.map(|source| source.name());
        let contents = v1::TextResourceContents::new(decoded.text, uri);
        v1::EmbeddedResourceResource::TextResourceContents(contents)
    };
    Ok(AttachedFile {
        block: v1::ContentBlock::Resource(v1::EmbeddedResource::new(resource)),
        encoding,
    })
}

fn image(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some("image/tiff"),
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, _, _, 0, 0, ..] => Some("image/bmp"),
        _ => None,
    }
}

fn address(path: &Path) -> anyhow::Result<String> {
    let url = reqwest::Url::from_file_path(path)
        .map_err(|()| anyhow!("{} has no address", path.display()))?;
    Ok(url.into())
}

/// Returns the size of a block in a message, in bytes.
fn size(block: &v1::ContentBlock) -> usize {
    match block {
        v1::ContentBlock::Text(text) => text.text.len(),
        v1::ContentBlock::Image(image) => image.data.len(),
        v1::ContentBlock::Resource(embedded) => match &embedded.resource {
            v1::EmbeddedResourceResource::TextResourceContents(text) => text.text.len(),
            v1::EmbeddedResourceResource::BlobResourceContents(blob) => blob.blob.len(),
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_becomes_a_block_of_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let block = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            file(&path).map(|file| serde_json::to_value(file.block).unwrap())
        };
        assert_eq!(block("a.rs", b"fn").unwrap()["resource"]["text"], "fn");
        assert_eq!(
            block("a b.png", b"\x89PNG\r\n").unwrap()["mimeType"],
            "image/png"
        );
        assert_eq!(
            block("a.bmp", b"BM\x4e\0\0\0\0\0\0\0\x36\0\0\0").unwrap()["mimeType"],
            "image/bmp"
        );
        assert!(
            block("a b.png", b"\x89PNG\r\n").unwrap()["uri"]
                .as_str()
                .unwrap()
                .ends_with("/a%20b.png")
        );
        assert_eq!(
            block("a.pdf", b"%PDF-1").unwrap()["resource"]["mimeType"],
            "application/pdf"
        );
        assert!(block("a.bin", b"\x7fELF\x02\x01\x01\0\0\0\xff\0").is_err());
        assert_eq!(
            block(
                "latin.txt",
                b"Stra\xdfe, \xfcber, caf\xe9, d\xe9j\xe0 vu, Gr\xfc\xdfe\n"
            )
            .unwrap()["resource"]["text"],
            "Straße, über, café, déjà vu, Grüße\n"
        );
        assert!(file(&dir.path().join("gone")).is_err());
        assert_eq!(
            serde_json::to_value(file(dir.path()).unwrap().block).unwrap()["type"],
            "resource_link"
        );
    }
}
