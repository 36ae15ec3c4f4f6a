//! Reads lines of a file that is too large for memory: piece by piece, storing only the requested
//! lines.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::Excerpt;
use crate::files::disk;

/// The number of bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The maximum number of bytes of the requested lines.
pub(super) const MAX_STORED_BYTES: usize = 16 << 20;

/// The requested lines of a file.
pub(super) struct FileExcerpt {
    /// The requested lines, from the first one on, as far as they fit.
    pub(super) bytes: Vec<u8>,
    /// The number of the first line, from 1.
    pub(super) first: usize,
    /// The number of lines of the file.
    pub(super) total: usize,
    /// The first bytes of the file, which show whether it is binary. Of a binary file, nothing else
    /// is read.
    pub(super) sample: Vec<u8>,
    /// True if `bytes` is only the beginning of a single line.
    pub(super) is_cut: bool,
}

/// Reads some lines of a file of any size. Returns `None` if cancelled.
///
/// # Errors
/// Same as [`disk::open`].
pub(super) fn read_excerpt(
    path: &Path,
    part: Excerpt,
    cancelled: &CancellationToken,
) -> Result<Option<FileExcerpt>, disk::Error> {
    let (mut file, _) = disk::open(path)?;
    let mut sample = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut sample)?;
    if sample.contains(&0) || crate::files::encoding::has_mostly_control_chars(&sample) {
        return Ok(Some(FileExcerpt {
            bytes: Vec::new(),
            first: 1,
            total: 0,
            sample,
            is_cut: false,
        }));
    }
    let Some(total) = count(&mut file, cancelled)? else {
        return Ok(None);
    };
    let first = part.first(total);
    // The file may have grown since.
    let end = first.saturating_add(part.limit).min(total + 1);
    let Some(mut bytes) = lines(&mut file, first..end, cancelled)? else {
        return Ok(None);
    };
    let mut is_cut = false;
    if bytes.len() >= MAX_STORED_BYTES && bytes.last() != Some(&b'\n') {
        // An incomplete last line is left for the next call, unless it is the only one.
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => bytes.truncate(end + 1),
            None => is_cut = true,
        }
    }
    Ok(Some(FileExcerpt {
        bytes,
        first,
        total,
        sample,
        is_cut,
    }))
}

/// Counts the lines; the last one may lack a line break. Returns `None` if cancelled.
fn count(file: &mut File, cancelled: &CancellationToken) -> io::Result<Option<usize>> {
    file.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut ends = 0;
    let mut last = b'\n';
    loop {
        if cancelled.is_cancelled() {
            return Ok(None);
        }
        match file.read(&mut piece)? {
            0 => return Ok(Some(ends + usize::from(last != b'\n'))),
            read => {
                ends += piece[..read].iter().filter(|byte| **byte == b'\n').count();
                last = piece[read - 1];
            }
        }
    }
}

/// Reads a range of lines, counted from 1, up to [`MAX_STORED_BYTES`]. Returns `None` if cancelled.
fn lines(
    file: &mut File,
    wanted: Range<usize>,
    cancelled: &CancellationToken,
) -> io::Result<Option<Vec<u8>>> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(PIECE_BYTES, file);
    let mut line = 1;
    let mut bytes = Vec::new();
    while line < wanted.end && bytes.len() < MAX_STORED_BYTES {
        if cancelled.is_cancelled() {
            return Ok(None);
        }
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            break;
        }
        let mut used = 0;
        while used < piece.len() && line < wanted.end {
            let rest = &piece[used..];
            let length = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let text = &rest[..length.unwrap_or(rest.len())];
            if line >= wanted.start {
                bytes.extend_from_slice(&text[..text.len().min(MAX_STORED_BYTES - bytes.len())]);
            }
            used += text.len();
            line += usize::from(length.is_some());
        }
        reader.consume(used);
    }
    Ok(Some(bytes))
}
