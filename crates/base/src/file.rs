//! Reading files that somebody else may have put there: only regular ones are opened.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a file for reading if it is a regular one. Opening a pipe would wait for its other end, and opening a device
/// can have effects, or give bytes without end.
///
/// # Errors
/// The system's, and [`io::ErrorKind::InvalidInput`] for what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(other());
    }
    // Something else may have taken its place.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(other()) }
}

/// Reads a regular file.
///
/// # Errors
/// As [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_regular(path)?, &mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file that is text.
///
/// # Errors
/// As [`open_regular`], and [`io::ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_regular(path)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_regular_only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(path("text"), "a").unwrap();
        std::fs::write(path("bytes"), b"\xff").unwrap();
        std::os::unix::fs::symlink("text", path("link")).unwrap();
        for special in [path("pipe"), dir.path().to_path_buf(), "/dev/zero".into()] {
            assert_eq!(read_regular(&special).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{special:?}");
        }
        assert_eq!(
            (read_regular_text(&path("link")).unwrap().as_str(), read_regular(&path("bytes")).unwrap()),
            ("a", vec![0xff])
        );
        assert_eq!(read_regular_text(&path("bytes")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_regular(&path("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
