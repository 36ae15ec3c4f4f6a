//! What a command line names to be read: regular files and standard input, up to a size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, OFlags};

/// Reads a text from a file, or from standard input for `-`. Errors as of [`file`].
pub(super) fn read(path: &Path, most: u64) -> anyhow::Result<String> {
    if path != Path::new("-") {
        return file(path, most);
    }
    let bytes = bounded(io::stdin().lock(), "standard input", most)?;
    String::from_utf8(bytes).context("standard input cannot be read")
}

/// Reads a text from a file.
///
/// # Errors
/// As of [`bytes`], and where it is not text.
pub(super) fn file(path: &Path, most: u64) -> anyhow::Result<String> {
    String::from_utf8(bytes(path, most)?).with_context(|| format!("{} cannot be read", path.display()))
}

/// Reads a file.
///
/// # Errors
/// Why it cannot be read: it is not there, no regular file (which could wait for ever, or never end), or
/// larger than `most` bytes.
pub(super) fn bytes(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let name = path.display().to_string();
    bounded(open(path)?, &name, most)
}

/// Opens a file.
///
/// # Errors
/// The file is not there, or is no regular one.
pub(super) fn open(path: &Path) -> anyhow::Result<File> {
    let name = path.display().to_string();
    // Opening a pipe waits for its other end, and opening a device may do things.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).with_context(|| format!("{name} cannot be read"))?;
    let file = File::from(file);
    if !file.metadata().with_context(|| format!("{name} cannot be read"))?.is_file() {
        bail!("{name} cannot be read: it is not a regular file");
    }
    Ok(file)
}

/// Reads standard input to its end, as often as it is wanted.
pub(super) fn standard(most: u64) -> anyhow::Result<Arc<[u8]>> {
    Ok(bounded(io::stdin().lock(), "standard input", most)?.into())
}

fn bounded(from: impl Read, name: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes).with_context(|| format!("{name} cannot be read"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        bail!("{name} is larger than {} MiB, the most that is read", most >> 20);
    }
    Ok(bytes)
}
