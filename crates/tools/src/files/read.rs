//! `read`: reads a file or directory; an image, PDF or audio file if the model accepts it; for other
//! models the text of a PDF, if `pdftotext` is installed.
//!
//! Limits: 2,000 lines of 2,000 characters, images 50 MiB (resized according to `attachment.image`;
//! BMP and TIFF are converted to PNG), PDFs and audio files 20 MiB.

mod large;

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::aliases::{Aliases, FieldValue, PATH_FIELDS};
use crate::files::buffer::{choose, is_misread};
use crate::files::disk;
use crate::files::encoding::{self, DecodedText, NotText};
use crate::files::loaded_instructions::TouchedPath;
use crate::files::path::{Access, PathKind, ResolvedPath};
use crate::files::read_tracker::{KnownFile, TextFingerprint};
use crate::files::search::{resolve_or_suggest, run_blocking, suggest_similar_paths};
use crate::{CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput, language};
use base::text;
use events::{Location, ToolKind};
use permission::AccessRequest;
use permission::path_gate::listing;
use transcript::File;

/// The maximum number of characters of a line that are shown at once.
const MAX_LINE_CHARS: usize = 2_000;
/// The default number of lines.
const DEFAULT_LINES: usize = 2_000;
/// The number of lines in the preview that the metadata of a result has.
const PREVIEW_LINES: usize = 20;
/// The assumed length of a line's number with its colon and the line break, in bytes.
const LINE_NUMBER_BYTES: usize = 8;
/// The maximum size of an image, in bytes; it is reduced later.
const MAX_IMAGE_BYTES: usize = 50 << 20;
/// The maximum size of a PDF or an audio file, in bytes.
const MAX_PDF_OR_AUDIO_BYTES: usize = 20 << 20;

/// Names of the path in tools that list a directory.
pub(crate) const LISTED_DIRECTORY_FIELDS: &[&str] =
    &["directory", "dir", "folder", "dirpath", "directorypath"];

#[derive(Default)]
pub struct ReadTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Path of the file or directory
    pub file_path: String,
    /// First line, from 1; -100 for the last 100
    pub offset: Option<i64>,
    /// Number of lines (default 2000)
    pub limit: Option<u64>,
    /// First character of each line
    pub column: Option<u64>,
}

/// A path, and the part of it to show.
#[derive(Debug)]
pub struct Ready {
    path: ResolvedPath,
    part: Excerpt,
}

/// The requested part of a file or directory.
#[derive(Debug, Clone, Copy)]
struct Excerpt {
    /// The first line, from 1; if negative, counted from the end.
    offset: i64,
    /// The maximum number of lines.
    limit: usize,
    /// The first character of each line, from 1.
    column: usize,
}

impl Excerpt {
    /// Returns the number of the first line, from 1, in a text with `total` lines.
    fn first(self, total: usize) -> usize {
        let size = usize::try_from(self.offset.unsigned_abs()).unwrap_or(usize::MAX);
        if self.offset < 0 {
            total.saturating_sub(size) + 1
        } else {
            size.max(1)
        }
    }
}

impl Tool for ReadTool {
    const NAME: &'static str = "read";
    const DESCRIPTION: &'static str = include_str!("read.md");
    const KIND: ToolKind = ToolKind::Read;
    const CONCURRENT: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::reading(
        "Reading a file or directory; patterns are paths relative to the project.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "view",
            "readfile",
            "viewfile",
            "openfile",
            "open",
            "cat",
            "fileread",
            "getfilecontents",
            "strreplaceeditor",
            "strreplacebasededittool",
            "list",
            "ls",
            "listdir",
            "listdirectory",
            "listfiles",
            "dir",
        ],
        // `ignore` of other agents' `list` has no effect: all entries are shown.
        field_values: &[
            FieldValue::ignored("command", "view"),
            FieldValue::ignored("ignore", "*"),
        ],
        fields: &[
            ("filePath", PATH_FIELDS),
            ("filePath", LISTED_DIRECTORY_FIELDS),
            (
                "offset",
                &[
                    "start",
                    "startline",
                    "line",
                    "from",
                    "fromline",
                    "lineoffset",
                ],
            ),
            (
                "limit",
                &[
                    "lines",
                    "maxlines",
                    "numlines",
                    "count",
                    "linecount",
                    "linelimit",
                ],
            ),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let path = context.absolute(&input.file_path);
        let offset = input
            .offset
            .filter(|offset| *offset >= 0)
            .map(|offset| offset.unsigned_abs().max(1));
        let part = match (offset, input.limit) {
            (None, limit) if let Some(from_end) = input.offset => {
                let from_end = from_end.unsigned_abs();
                match limit.map(|limit| limit.max(1)) {
                    Some(limit) if limit < from_end => {
                        format!(" ({limit} of the last {from_end} lines)")
                    }
                    _ => format!(" (last {from_end} lines)"),
                }
            }
            (None, None) => String::new(),
            (offset, Some(limit)) => {
                let first = offset.unwrap_or(1);
                match first.saturating_add(limit.max(1)) - 1 {
                    last if last == first => format!(":{first}"),
                    last => format!(":{first}-{last}"),
                }
            }
            (Some(first), None) => format!(":{first}-"),
        };
        let line = offset.and_then(|n| u32::try_from(n).ok());
        CallDescription {
            title: text::title(&format!("Read {}{part}", context.relative(&path))),
            locations: vec![Location {
                path: base::worktree::normal(&path),
                line,
            }],
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let resolved_path = resolve_or_suggest(context, &input.file_path, Access::Read).await?;
        let mut requests = resolved_path.real.requests(Access::Read);
        requests.extend(listing(&context.policy, &resolved_path.real));
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let offset = input.offset.unwrap_or(1);
        let limit = input.limit.map_or(DEFAULT_LINES, size).max(1);
        let column = size(input.column.unwrap_or(1)).max(1);
        Ok((
            requests,
            Ready {
                path: resolved_path,
                part: Excerpt {
                    offset,
                    limit,
                    column,
                },
            },
        ))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let Ready {
            path: resolved_path,
            part,
        } = ready;
        resolved_path.check_unchanged()?;
        if resolved_path.real.kind == PathKind::Directory {
            return directory(&resolved_path, part);
        }
        let bytes = match disk::read(&resolved_path.real.path) {
            Ok(bytes) => Some(bytes),
            Err(disk::Error::Missing) => None,
            Err(disk::Error::TooLarge(_)) => {
                return large_file(resolved_path, part, &context).await;
            }
            Err(e) => {
                return Err(Failure::ForModel(format!(
                    "Cannot read {}: {e}.",
                    resolved_path.shown
                )));
            }
        };
        if let Some(bytes) = &bytes
            && let Some(mime) = attachment_mime_type(bytes)
                .or_else(|| empty_image_mime_type(bytes, &resolved_path.path))
        {
            return attachment(&resolved_path, bytes, mime);
        }
        let buffer = context.read_buffer(&resolved_path.path).await;
        let buffer = buffer.filter(|text| !text.is_empty());
        let (saved, source) = match bytes {
            None if buffer.is_none() => return Err(missing(&resolved_path, &context).await),
            None => (None, None),
            Some(bytes) => {
                let DecodedText { text, source } = decode(&resolved_path, bytes, &context)?;
                (Some(text), source)
            }
        };
        let known = context.session.seen.known(&resolved_path.real.path);
        let disk = saved.as_deref().map(TextFingerprint::of);
        let buffer = buffer.filter(|text| !is_misread(text, source.as_deref(), disk));
        let disk_alone = if buffer.is_none() { disk } else { None };
        let text = match (buffer, saved) {
            (Some(buffer), Some(saved)) => choose(buffer, saved, known.as_ref()),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => String::new(),
        };
        let notes = [
            source.as_deref().and_then(encoding::EncodedSource::note),
            encoding::format_note(&text),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let note = (!notes.is_empty()).then(|| notes.join("\n"));
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let total = text.lines().count();
        let lines = text.lines().skip(part.first(total) - 1);
        let output = page(
            &resolved_path,
            lines,
            total,
            part,
            context.limits.bytes,
            note,
        )?;
        language::open_in_background(&resolved_path.real.path, text, &context).await;
        let fingerprint = disk_alone.unwrap_or_else(|| TextFingerprint::of(text));
        context.session.seen.record(
            &resolved_path.real.path,
            KnownFile::of(text, fingerprint, disk),
        );
        Ok(output)
    }
}

/// Reads lines of a file that is larger than [`disk::MAX_FILE_BYTES`], without loading all of it.
async fn large_file(
    resolved_path: ResolvedPath,
    part: Excerpt,
    context: &ToolContext,
) -> Result<ToolOutput, Failure> {
    let path = resolved_path.real.path.clone();
    let cancelled = context.cancelled.clone();
    let window = match run_blocking(context, move || {
        large::read_excerpt(&path, part, &cancelled)
    })
    .await?
    {
        Ok(Some(window)) => window,
        Ok(None) => return Err(Failure::Cancelled),
        Err(e) => {
            return Err(Failure::ForModel(format!(
                "Cannot read {}: {e}.",
                resolved_path.shown
            )));
        }
    };
    if window.sample.contains(&0) || encoding::has_mostly_control_chars(&window.sample) {
        return Err(Failure::ForModel(format!(
            "Cannot read binary file: {}",
            resolved_path.shown
        )));
    }
    let text = match std::str::from_utf8(&window.bytes) {
        Ok(text) => text.to_owned(),
        // The window is decoded on its own, without the rest of the file.
        Err(_) => decode(&resolved_path, window.bytes.clone(), context)
            .map(|decoded| decoded.text)
            .unwrap_or_else(|_| String::from_utf8_lossy(&window.bytes).into_owned()),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut note =
        "(This file is too large to be edited here; commands such as sed can.)".to_owned();
    if window.is_cut {
        note += &format!(
            "\n(The line is longer than {} MiB; the rest of it cannot be read here.)",
            large::MAX_STORED_BYTES >> 20
        );
    }
    if text.lines().count()
        < part
            .limit
            .min(window.total.saturating_sub(window.first - 1))
        && window.bytes.is_empty()
    {
        return Err(Failure::ForModel(format!(
            "{} changed while it was read. Read it again.",
            resolved_path.shown
        )));
    }
    let part = Excerpt {
        offset: i64::try_from(window.first).unwrap_or(i64::MAX),
        ..part
    };
    page(
        &resolved_path,
        text.lines(),
        window.total,
        part,
        context.limits.bytes,
        Some(note),
    )
}

/// Returns the byte offset of character `index`, or the length of the text if it is shorter.
fn char_offset(text: &str, index: usize) -> usize {
    // No character is shorter than a byte.
    if index >= text.len() {
        return text.len();
    }
    text.char_indices()
        .nth(index)
        .map_or(text.len(), |(at, _)| at)
}

/// Formats the requested part of a file with line numbers. `lines` begin with the first line of the
/// part, `total` is the number of lines of the file, and `max_bytes` is the maximum size of the
/// result, which has at least one line.
fn page<'a>(
    resolved_path: &ResolvedPath,
    lines: impl Iterator<Item = &'a str>,
    total: usize,
    part: Excerpt,
    max_bytes: usize,
    note: Option<String>,
) -> Result<ToolOutput, Failure> {
    let Excerpt { limit, column, .. } = part;
    let offset = part.first(total);
    if offset > total && !(offset == 1 && total == 0) {
        return Err(Failure::ForModel(format!(
            "Offset {offset} is out of range for {} ({}).",
            resolved_path.shown,
            text::count(total, "line")
        )));
    }
    let mut numbered = String::new();
    let mut display = String::new();
    let mut preview = String::new();
    let mut next = offset;
    let mut capped = false;
    for line in lines.take(limit) {
        let rest = &line[char_offset(line, column - 1)..];
        let end = char_offset(rest, MAX_LINE_CHARS);
        let shown = &rest[..end];
        let tail = if end == rest.len() {
            String::new()
        } else {
            format!(
                "... (line {next} has {} characters; read on with offset={next}, limit=1, column={})",
                line.chars().count(),
                column.saturating_add(MAX_LINE_CHARS)
            )
        };
        if numbered.len() + shown.len() + tail.len() + LINE_NUMBER_BYTES > max_bytes
            && next > offset
        {
            capped = true;
            break;
        }
        let from = display.len();
        display.extend([shown, &tail, "\n"]);
        let line = &display[from..];
        numbered.extend([&*next.to_string(), ": ", line]);
        if next < offset + PREVIEW_LINES {
            preview.push_str(line);
        }
        next += 1;
    }
    let last = next - 1;
    let note = note.map(|note| format!("\n{note}")).unwrap_or_default();
    let path = resolved_path.path.display();
    let truncated = last < total;
    let end = ending(part, total, last, capped.then_some(max_bytes));
    Ok(ToolOutput {
        text: format!(
            "<path>{path}</path>\n<type>file</type>\n<content>\n{numbered}\n{end}{note}\n</content>"
        ),
        display: Some(display),
        cut: true,
        metadata: facts(json!({
            "preview": preview, "truncated": truncated, "type": "file",
            "lineStart": offset, "lineEnd": last, "totalLines": total,
        })),
        touched: vec![TouchedPath::File(resolved_path.path.clone())],
        shows_whole_file: offset == 1 && last == total && column == 1,
        ..ToolOutput::default()
    })
}

/// Describes the lines that are shown, those that are not, and how to continue. `max_bytes` is the
/// maximum size of a result, if that has ended this one at line `last`.
fn ending(part: Excerpt, total: usize, last: usize, max_bytes: Option<usize>) -> String {
    let offset = part.first(total);
    let column = part.column;
    let columns = if column > 1 {
        format!(", from column {column}")
    } else {
        String::new()
    };
    if offset == 1 && last == total {
        return format!("(End of file - total {total} lines{columns})");
    }
    let lines = |from: usize, to: usize| {
        (from <= to).then(|| {
            if from == to {
                format!("line {from}")
            } else {
                format!("lines {from}-{to}")
            }
        })
    };
    let left: Vec<String> = lines(1, offset - 1)
        .into_iter()
        .chain(lines(last + 1, total))
        .collect();
    let why = max_bytes
        .map(|max_bytes| format!("; at most {} KB are shown at once", max_bytes >> 10))
        .unwrap_or_default();
    let on = if last < total {
        format!(" Use offset={} to continue.", last + 1)
    } else {
        " End of file.".into()
    };
    format!(
        "(Showing lines {offset}-{last} of {total}{columns}. Left out: {}{why}.{on})",
        left.join(" and ")
    )
}

/// Lists the requested part of a directory.
fn directory(resolved_path: &ResolvedPath, part: Excerpt) -> Result<ToolOutput, Failure> {
    let refused =
        |e: disk::Error| Failure::ForModel(format!("Cannot list {}: {e}.", resolved_path.shown));
    let mut entries = Vec::new();
    for (name, folder) in disk::list(&resolved_path.real.path).map_err(refused)? {
        entries.push(format!(
            "{}{}",
            text::escaped(&name.to_string_lossy()),
            if folder { "/" } else { "" }
        ));
    }
    entries.sort_by_key(|name| (name.to_lowercase(), name.clone()));
    let total = entries.len();
    let offset = part.first(total);
    let limit = part.limit;
    if offset > total && offset > 1 {
        return Err(Failure::ForModel(format!(
            "Offset {offset} is out of range for this directory ({total} entries)."
        )));
    }
    let shown: Vec<&str> = entries
        .iter()
        .skip(offset - 1)
        .take(limit)
        .map(String::as_str)
        .collect();
    let last = offset - 1 + shown.len();
    let list: String = shown.iter().map(|name| format!("{name}\n")).collect();
    let entries = text::without_tags(&list, &["entries"]);
    let end = if shown.len() == total {
        format!("({total} entries)")
    } else {
        format!(
            "(Showing {} of {total} entries. Use 'offset' parameter to read beyond entry {last})",
            shown.len()
        )
    };
    let path = resolved_path.path.display();
    Ok(ToolOutput {
        text: format!(
            "<path>{path}</path>\n<type>directory</type>\n<entries>\n{entries}\n{end}\n</entries>"
        ),
        display: Some(list),
        metadata: facts(
            json!({ "type": "directory", "truncated": last < total, "totalEntries": total }),
        ),
        touched: vec![TouchedPath::Directory(resolved_path.path.clone())],
        ..ToolOutput::default()
    })
}

/// Returns an image, a PDF or an audio file as an attachment.
fn attachment(
    resolved_path: &ResolvedPath,
    bytes: &[u8],
    mime: &str,
) -> Result<ToolOutput, Failure> {
    let (kind, most) = match mime {
        "application/pdf" => ("PDF", MAX_PDF_OR_AUDIO_BYTES),
        mime if mime.starts_with("audio/") => ("audio", MAX_PDF_OR_AUDIO_BYTES),
        _ => ("image", MAX_IMAGE_BYTES),
    };
    if bytes.len() > most {
        return Err(Failure::ForModel(format!(
            "{} has {} MiB; the limit for {kind} files is {} MiB. Make a smaller copy first.",
            resolved_path.shown,
            bytes.len() >> 20,
            most >> 20
        )));
    }
    let name = resolved_path
        .path
        .file_name()
        .map(|name| text::escaped(&name.to_string_lossy()));
    let file = File {
        mime: mime.into(),
        name,
        uri: None,
        data: Some(STANDARD.encode(bytes)),
        is_rejected: false,
    };
    Ok(ToolOutput {
        attachments: vec![file],
        touched: vec![TouchedPath::File(resolved_path.path.clone())],
        ..ToolOutput::text(format!(
            "{} ({mime}, {})",
            text::capitalised(kind),
            text::count(bytes.len(), "byte")
        ))
    })
}

/// Returns the MIME type of an empty file that has the name of an image. Read as text, it would look
/// like an empty text file.
fn empty_image_mime_type(bytes: &[u8], path: &Path) -> Option<&'static str> {
    if !bytes.is_empty() {
        return None;
    }
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        "bmp" => Some("image/bmp"),
        "tif" | "tiff" => Some("image/tiff"),
        "ico" => Some("image/x-icon"),
        "heic" | "heif" => Some("image/heic"),
        "avif" => Some("image/avif"),
        _ => None,
    }
}

/// Returns the MIME type of a file by its first bytes, if it is of a kind that models can process.
pub fn attachment_mime_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
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
        // The size of the file, four bytes that are zero, and the offset of the pixels.
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, _, _, 0, 0, ..] => Some("image/bmp"),
        // The number of images is not zero.
        [0, 0, 1, 0, count, 0, ..] if *count > 0 => Some("image/x-icon"),
        // Not converted, but named to the user and the model.
        [
            _,
            _,
            _,
            _,
            b'f',
            b't',
            b'y',
            b'p',
            b'a',
            b'v',
            b'i',
            b'f' | b's',
            ..,
        ] => Some("image/avif"),
        [
            _,
            _,
            _,
            _,
            b'f',
            b't',
            b'y',
            b'p',
            b'h',
            b'e',
            b'i' | b'v',
            _,
            ..,
        ]
        | [
            _,
            _,
            _,
            _,
            b'f',
            b't',
            b'y',
            b'p',
            b'm',
            b'i',
            b'f',
            b'1',
            ..,
        ] => Some("image/heic"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
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
            b'A',
            b'V',
            b'E',
            ..,
        ] => Some("audio/wav"),
        [b'I', b'D', b'3', 2..=4, ..] => Some("audio/mpeg"),
        [b'f', b'L', b'a', b'C', 0, ..] => Some("audio/flac"),
        [b'O', b'g', b'g', b'S', 0, ..] => Some("audio/ogg"),
        _ => None,
    }
}

/// Decodes the bytes of a file.
///
/// # Errors
/// The bytes are binary, or in an unsupported encoding; the message is for the model.
fn decode(
    resolved_path: &ResolvedPath,
    bytes: Vec<u8>,
    context: &ToolContext,
) -> Result<DecodedText, Failure> {
    let hint = || context.encoding_hints().of(&resolved_path.real.path);
    let decoded = encoding::decode(bytes, hint).map_err(|why| {
        Failure::ForModel(match why {
            NotText::Binary => format!("Cannot read binary file: {}", resolved_path.shown),
            NotText::Unsupported(name) => format!(
                "Cannot read {}: it is {name}, which is not supported. Convert it with iconv.",
                resolved_path.shown
            ),
        })
    })?;
    if encoding::has_mostly_control_chars(decoded.text.as_bytes()) {
        return Err(Failure::ForModel(format!(
            "Cannot read binary file: {}",
            resolved_path.shown
        )));
    }
    Ok(decoded)
}

/// Returns the error for a missing file, with similar paths.
async fn missing(resolved_path: &ResolvedPath, context: &ToolContext) -> Failure {
    let instead = suggest_similar_paths(context, &resolved_path.real.path).await;
    Failure::ForModel(format!(
        "File not found: {}{instead}",
        text::escaped(&resolved_path.path.display().to_string())
    ))
}

/// Converts a JSON object to metadata.
fn facts(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{EditorReply, TestProject};

    async fn read(context: &ToolContext, input: Value) -> Result<ToolOutput, Failure> {
        let (_, output) = crate::test::call(&crate::erase(ReadTool), input, context).await?;
        Ok(output)
    }

    #[tokio::test]
    async fn large_file_is_read_by_lines() {
        let fixture = TestProject::new();
        let lines = |range: std::ops::Range<usize>| {
            range.map(|n| format!("line {n:>20}\n")).collect::<String>()
        };
        let most = usize::try_from(disk::MAX_FILE_BYTES).unwrap();
        let total = most / lines(1..2).len() + 1_000;
        fixture.write("log", lines(1..total + 1));
        let context = fixture.context();
        let last = format!(
            "{total}: line {total:>20}\n\n(Showing lines {}-{total} of {total}.",
            total - 1
        );
        let table = [
            (
                json!({"filePath": "log", "limit": 2}),
                "1: line                    1\n2: line ",
            ),
            (
                json!({"filePath": "log", "offset": 2_000_000, "limit": 2}),
                "2000000: line              2000000\n2000001: line              2000001\n\n(Showing lines 2000000-2000001 of ",
            ),
            (json!({"filePath": "log", "offset": -2}), &last),
            (
                json!({"filePath": "log", "limit": 2}),
                "too large to be edited here",
            ),
        ];
        for (input, wanted) in table {
            let text = read(&context, input.clone()).await.unwrap().text;
            assert!(text.contains(wanted), "{input}: {text}");
        }
        let beyond = read(&context, json!({"filePath": "log", "offset": total + 1})).await;
        assert!(matches!(beyond, Err(Failure::ForModel(why)) if why.contains("out of range")));
        context.cancelled.cancel();
        let cancelled = read(&context, json!({"filePath": "log"})).await;
        assert!(matches!(cancelled, Err(Failure::Cancelled)));
    }

    #[tokio::test]
    async fn files_are_numbered_and_paged() {
        let fixture = TestProject::new();
        fixture.write("f", "a\r\nb\nc\n");
        fixture.write("empty", "");
        fixture.write("long", format!("{}\nend\n", "é".repeat(2_001)));
        fixture.write(
            "big",
            (0..9_000)
                .map(|n| format!("line {n}\n"))
                .collect::<String>(),
        );
        let context = fixture.context();
        let path = fixture.cwd().join("f").display().to_string();
        let text = read(&context, json!({"filePath": path}))
            .await
            .unwrap()
            .text;
        assert_eq!(
            text,
            format!(
                "<path>{path}</path>\n<type>file</type>\n<content>\n1: a\n2: b\n3: c\n\n(End of file - total 3 lines)\n</content>"
            )
        );
        let table = [
            (
                json!({"filePath": "f", "offset": 2, "limit": 1}),
                "\n2: b\n\n(Showing lines 2-2 of 3. Left out: line 1 and line 3. Use offset=3 to continue.)\n",
            ),
            (json!({"filePath": "f", "offset": 0}), "\n1: a\n"),
            (
                json!({"filePath": "f", "offset": -2}),
                "\n2: b\n3: c\n\n(Showing lines 2-3 of 3. Left out: line 1. End of file.)\n",
            ),
            (
                json!({"filePath": "f", "offset": -9, "limit": 1}),
                "\n1: a\n\n(Showing lines 1-1 of 3.",
            ),
            (
                json!({"filePath": "empty"}),
                "<content>\n\n(End of file - total 0 lines)",
            ),
            (
                json!({"filePath": "long"}),
                "é... (line 1 has 2001 characters; read on with offset=1, limit=1, column=2001)\n2: end\n",
            ),
            (
                json!({"filePath": "long", "offset": 1, "limit": 1, "column": 2001}),
                "\n1: é\n\n(Showing lines 1-1 of 2, from column 2001. Left out: line 2. Use offset=2 to continue.)\n",
            ),
            (
                json!({"filePath": "long", "column": 3000}),
                "\n1: \n2: \n\n(End of file - total 2 lines, from column 3000)\n",
            ),
            (
                json!({"filePath": "f", "offset": 3}),
                "\n3: c\n\n(Showing lines 3-3 of 3. Left out: lines 1-2. End of file.)\n",
            ),
            (
                json!({"filePath": "big", "limit": 9000}),
                "; at most 50 KB are shown at once. Use offset=",
            ),
            (
                json!({"filePath": "big"}),
                "2000: line 1999\n\n(Showing lines 1-2000 of 9000. Left out: lines 2001-9000. Use offset=2001 to continue.)",
            ),
        ];
        for (input, expected) in table {
            let output = read(&context, input.clone()).await.unwrap();
            assert!(output.text.contains(expected), "{input}: {}", output.text);
            assert!(output.text.len() <= (50 << 10) + 400);
        }
        let failure = read(&context, json!({"filePath": "f", "offset": 9}))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(failure, "Offset 9 is out of range for f (3 lines).");
    }

    #[tokio::test]
    async fn binary_files_images_and_directories_are_handled() {
        let fixture = TestProject::new();
        fixture.write_bytes("p.txt", b"\x89PNG\r\n\x1a\nrest");
        fixture.write_bytes("d.pdf", b"%PDF-1.7\n%\xe2\xe3");
        fixture.write_bytes("bin", b"\x7fELF\0\0");
        fixture.write_bytes("a.wav", b"RIFF\x24\0\0\0WAVEfmt ");
        fixture.write_bytes("latin", b"caf\xe9 cr\xe8me\n");
        fixture.write_bytes("wide", b"\xff\xfea\0\n\0");
        fixture.write("sub/x", "");
        fixture.write("Readme.md", "");
        let context = fixture.context();
        let output = read(&context, json!({"filePath": "p.txt"})).await.unwrap();
        assert_eq!(
            (output.text.as_str(), output.attachments[0].mime.as_str()),
            ("Image (image/png, 12 bytes)", "image/png")
        );
        fixture.write("empty.PNG", "");
        let output = read(&context, json!({"filePath": "empty.PNG"}))
            .await
            .unwrap();
        assert_eq!(
            (output.text.as_str(), output.attachments[0].data.as_deref()),
            ("Image (image/png, 0 bytes)", Some(""))
        );
        std::fs::remove_file(fixture.cwd().join("empty.PNG")).unwrap();
        for (bytes, mime) in [
            (b"\0\0\x01\0\x01\0\x10\x10".as_slice(), "image/x-icon"),
            (b"\0\0\0\x18ftypheic\0\0\0\0", "image/heic"),
            (b"\0\0\0\x1cftypavif\0\0\0\0", "image/avif"),
        ] {
            fixture.write_bytes("picture", bytes);
            let output = read(&context, json!({"filePath": "picture"}))
                .await
                .unwrap();
            assert_eq!(output.attachments[0].mime, mime);
        }
        std::fs::remove_file(fixture.cwd().join("picture")).unwrap();
        let output = read(&context, json!({"filePath": "a.wav"})).await.unwrap();
        assert_eq!(
            (output.text.as_str(), output.attachments[0].mime.as_str()),
            ("Audio (audio/wav, 16 bytes)", "audio/wav")
        );
        let output = read(&context, json!({"filePath": "d.pdf"})).await.unwrap();
        assert_eq!(
            (output.text.as_str(), output.attachments[0].mime.as_str()),
            ("PDF (application/pdf, 12 bytes)", "application/pdf")
        );
        let text = read(&context, json!({"filePath": "latin"}))
            .await
            .unwrap()
            .text;
        assert!(
            text.contains("1: café crème\n") && text.contains("not UTF-8"),
            "{text}"
        );
        let text = read(&context, json!({"filePath": "wide"}))
            .await
            .unwrap()
            .text;
        assert!(text.contains("1: a\n"), "{text}");
        let text = read(&context, json!({"filePath": "."})).await.unwrap().text;
        assert!(
            text.contains(
                "<entries>\n.git/\na.wav\nbin\nd.pdf\nlatin\np.txt\nReadme.md\nsub/\nwide\n\n(9 entries)\n</entries>"
            ),
            "{text}"
        );
        let failure = read(&context, json!({"filePath": "bin"}))
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(failure, "Cannot read binary file: bin");
        let failure = read(&context, json!({"filePath": "readme"}))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.ends_with("Did you mean one of these?\nReadme.md"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn too_large_attachment_is_refused_with_its_limit() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let table: [(&str, &[u8], usize, &str); 3] = [
            (
                "a.png",
                b"\x89PNG\r\n\x1a\n",
                51 << 20,
                "a.png has 51 MiB; the limit for image files is 50 MiB. Make a smaller copy first.",
            ),
            (
                "a.pdf",
                b"%PDF-1.7\n",
                21 << 20,
                "a.pdf has 21 MiB; the limit for PDF files is 20 MiB. Make a smaller copy first.",
            ),
            (
                "a.wav",
                b"RIFF\x24\0\0\0WAVEfmt ",
                21 << 20,
                "a.wav has 21 MiB; the limit for audio files is 20 MiB. Make a smaller copy first.",
            ),
        ];
        for (name, start, size, expected) in table {
            let mut bytes = start.to_vec();
            bytes.resize(size, 0);
            fixture.write_bytes(name, &bytes);
            let failure = read(&context, json!({"filePath": name})).await.unwrap_err();
            assert_eq!(failure.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn unsaved_text_is_read() {
        let fixture = TestProject::new();
        fixture.write("f", "saved\n");
        let (context, editor) = fixture.with_editor(EditorReply::Saves);
        editor.type_into(&fixture.cwd().join("f"), "unsaved\n");
        assert!(
            read(&context, json!({"filePath": "f"}))
                .await
                .unwrap()
                .text
                .contains("1: unsaved\n")
        );
        // An empty answer may mean that there is no such buffer.
        editor.type_into(&fixture.cwd().join("f"), "");
        assert!(
            read(&context, json!({"filePath": "f"}))
                .await
                .unwrap()
                .text
                .contains("1: saved\n")
        );
        assert!(
            read(&context, json!({"filePath": "missing"}))
                .await
                .is_err()
        );
    }

    #[test]
    fn title_shows_the_requested_lines() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let table = [
            (json!({"filePath": "src/lib.rs"}), "Read src/lib.rs", None),
            (
                json!({"filePath": "src/lib.rs", "offset": 10, "limit": 31}),
                "Read src/lib.rs:10-40",
                Some(10),
            ),
            (
                json!({"filePath": "src/lib.rs", "limit": 5}),
                "Read src/lib.rs:1-5",
                None,
            ),
            (
                json!({"filePath": "src/lib.rs", "offset": -100}),
                "Read src/lib.rs (last 100 lines)",
                None,
            ),
            (
                json!({"filePath": "src/lib.rs", "offset": -100, "limit": 20}),
                "Read src/lib.rs (20 of the last 100 lines)",
                None,
            ),
            (
                json!({"filePath": "/x\n\u{1b}[1m", "offset": 3}),
                "Read /x\\n\\x1b[1m:3-",
                Some(3),
            ),
        ];
        for (input, title, line) in table {
            let description = ReadTool::describe(&serde_json::from_value(input).unwrap(), &context);
            assert_eq!(description.title, title);
            assert_eq!(description.locations[0].line, line);
        }
    }
}
