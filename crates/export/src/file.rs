//! The files of exports, which replace no others.

use std::fs::File;
use std::io;
use std::path::Path;

use base::environment::private_file;

/// Creates a file that only its owner can read. A device or a pipe that exists is opened, so that it
/// can take the place of a file.
///
/// # Errors
/// `AlreadyExists` if there is a file, and other errors of the system; [`reason`] describes them.
pub fn create(path: &Path) -> io::Result<File> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match private_file().write(true).create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_device(path) => {
            private_file().write(true).open(path)
        }
        created => created,
    }
}

/// Returns whether a path is neither a file nor a directory, and exists.
fn is_device(path: &Path) -> bool {
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
        let mut nowhere = create(Path::new("/dev/null")).unwrap();
        nowhere.write_all(b"x").unwrap();
    }
}
