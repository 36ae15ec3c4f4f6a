//! Reads the inputs named on a command line: regular files and standard input, up to a size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, OFlags};

/// Reads a text from a file, or from standard input for `-`. Errors are those of [`file`].
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
/// Returns the errors of [`bytes`], and an error if the file is not text.
pub(super) fn file(path: &Path, most: u64) -> anyhow::Result<String> {
    String::from_utf8(bytes(path, most)?)
        .with_context(|| format!("{} cannot be read", path.display()))
}

/// Reads a file.
///
/// # Errors
/// Returns an error if the file does not exist, is not a regular file (which could block, or never
/// end), or is larger than `most` bytes.
pub(super) fn bytes(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let name = path.display().to_string();
    bounded(open(path)?, &name, most)
}

/// Opens a file.
///
/// # Errors
/// Returns an error if the file does not exist, or is not a regular file.
pub(super) fn open(path: &Path) -> anyhow::Result<File> {
    let name = path.display().to_string();
    // Opening a pipe waits for its other end, and opening a device may have effects.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .with_context(|| format!("{name} cannot be read"))?;
    let file = File::from(file);
    if !file
        .metadata()
        .with_context(|| format!("{name} cannot be read"))?
        .is_file()
    {
        bail!("{name} cannot be read: it is not a regular file");
    }
    Ok(file)
}

/// Reads standard input to its end, into a buffer that can be read several times.
pub(super) fn standard(most: u64) -> anyhow::Result<Arc<[u8]>> {
    Ok(bounded(io::stdin().lock(), "standard input", most)?.into())
}

fn bounded(from: impl Read, name: &str, most: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name} cannot be read"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        bail!(
            "{name} is larger than {} MiB, the most that is read",
            most >> 20
        );
    }
    Ok(bytes)
}
