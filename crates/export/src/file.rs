//! The files of exports, which replace no others.

use std::fs::File;
use std::io;
use std::path::Path;

use super::Format;
use base::environment::private_file;
use base::text;

/// Creates a file that only its owner can read.
///
/// # Errors
/// `AlreadyExists` if there is anything else than a directory, and other errors of the system;
/// [`reason`] describes them.
pub fn create(path: &Path) -> io::Result<File> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    private_file().write(true).create_new(true).open(path)
}

/// Creates a file like [`create`], or opens a device or a pipe that exists in its place: for a user
/// at a terminal, who can end the wait for a reader of the pipe.
///
/// # Errors
/// Same as [`create`].
pub fn create_or_open_device(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_device(path) => {
            private_file().write(true).open(path)
        }
        created => created,
    }
}

/// Returns the format of a new file by the ending of its name. `name` is the file's.
///
/// # Errors
/// The reason, if no format has that ending.
pub fn format(path: &Path, name: &str) -> Result<Format, String> {
    if let Some(format) = Format::of_file(path) {
        return Ok(format);
    }
    if path.is_dir() {
        return Err(reason(&io::ErrorKind::IsADirectory.into(), name));
    }
    Err(format!(
        "the format of {name} is not known; name a file that ends in .json, .md or .html"
    ))
}

/// Returns whether a path is neither a file nor a directory, and exists.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Describes why a file was not written. `name` is the file's.
pub fn reason(e: &io::Error, name: &str) -> String {
    match e.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{name} exists, and is not overwritten; name another file")
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            format!("the directory of {name} does not exist")
        }
        io::ErrorKind::IsADirectory => format!("{name} is a directory; name a file in it"),
        _ => format!("{name} cannot be written: {e}"),
    }
}

/// Describes a file that was written: its format and its size. `name` is the file's.
pub fn written(format: Format, name: &str, bytes: u64) -> String {
    format!("{name} ({}, {})", format.as_str(), size(bytes))
}

/// Returns a size in the unit that fits it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => text::count(usize::try_from(bytes).unwrap_or(usize::MAX), "byte"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn no_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, "mine").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&there, &link).unwrap();
        let table = [
            (there.clone(), "exists, and is not overwritten"),
            (link, "exists, and is not overwritten"),
            (dir.path().to_owned(), "is a directory"),
            (dir.path().join("a/b"), "the directory of it does not exist"),
            (there.join("b"), "the directory of it does not exist"),
        ];
        for (path, expected) in table {
            let why = reason(&create(&path).unwrap_err(), "it");
            assert!(why.contains(expected), "{}: {why}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
        create(&dir.path().join("new")).unwrap();
    }

    #[test]
    fn only_a_terminal_exports_to_devices() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), &link] {
            let why = create(path).unwrap_err();
            assert_eq!(
                why.kind(),
                io::ErrorKind::AlreadyExists,
                "{}",
                path.display()
            );
        }
        let mut nowhere = create_or_open_device(Path::new("/dev/null")).unwrap();
        nowhere.write_all(b"x").unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, "mine").unwrap();
        let why = create_or_open_device(&there).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn ending_without_a_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let why = format(dir.path(), "it").unwrap_err();
        assert!(why.contains("is a directory"), "{why}");
        for name in ["a.pdf", "a", "a."] {
            let why = format(&dir.path().join(name), name).unwrap_err();
            assert!(why.ends_with("ends in .json, .md or .html"), "{why}");
        }
    }

    #[test]
    fn size_of_a_file_is_readable() {
        for (bytes, expected) in [
            (1, "a.md (Markdown, 1 byte)"),
            (999, "a.md (Markdown, 999 bytes)"),
            (1_001, "a.md (Markdown, 2 kB)"),
            (1_000_000, "a.md (Markdown, 1.0 MB)"),
            (123_456_789, "a.md (Markdown, 123.4 MB)"),
        ] {
            assert_eq!(written(Format::Markdown, "a.md", bytes), expected);
        }
    }
}
