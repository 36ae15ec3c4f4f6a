//! Opens and reads files whose path may lead to something else: only regular files are accepted.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a regular file for reading and refuses everything else: opening a named pipe would block
/// until its other end is opened, opening a device can have side effects, and reading one may never
/// end. Follows symlinks.
///
/// # Errors
/// Returns the system's error, or [`io::ErrorKind::InvalidInput`] if the path is not a regular
/// file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    // The path may have been replaced since that check: open without blocking in case it is a pipe
    // now, and check the open file.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(not_regular());
    }
    Ok(file)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Reads a whole regular file into memory, without a size limit.
///
/// # Errors
/// Same as [`open_regular`], and errors of reading.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_regular(path)?, &mut bytes)?;
    Ok(bytes)
}

/// Reads a whole regular file into memory, if it has at most `max_bytes`.
///
/// # Errors
/// Same as [`open_regular`], errors of reading, and [`io::ErrorKind::FileTooLarge`].
pub fn read_small(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    if file.metadata()?.len() > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    io::Read::read_to_end(&mut io::Read::take(file, max_bytes + 1), &mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= max_bytes) {
        Ok(bytes)
    } else {
        Err(too_large())
    }
}

/// Reads a whole regular file as UTF-8 text, if it has at most `max_bytes`.
///
/// # Errors
/// Same as [`read_small`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_small_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    utf8(read_small(path, max_bytes)?)
}

/// Reads a whole regular file as UTF-8 text, without a size limit.
///
/// # Errors
/// Same as [`read_regular`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    utf8(read_regular(path)?)
}

fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Returns whether a directory is on a network file system. There memory cannot be shared with
/// processes of other machines, and a file that another machine removes or shortens can no longer
/// be read from memory: the attempt ends this process.
pub fn is_on_network(dir: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        /// NFS, SMB, CIFS, SMB2, 9P, AFS, Ceph.
        const NETWORKS: [u32; 7] = [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0x5346_414f,
            0x00c3_6400,
        ];
        // Compare the lower half: the type is signed on some machines.
        rustix::fs::statfs(dir).is_ok_and(|stat| {
            u32::try_from(stat.f_type & 0xffff_ffff).is_ok_and(|t| NETWORKS.contains(&t))
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(path("text"), "a").unwrap();
        std::fs::write(path("bytes"), b"\xff").unwrap();
        std::os::unix::fs::symlink("text", path("link")).unwrap();
        for special in [path("pipe"), dir.path().to_path_buf(), "/dev/zero".into()] {
            assert_eq!(
                read_regular(&special).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{special:?}"
            );
        }
        assert_eq!(read_regular_text(&path("link")).unwrap(), "a");
        assert_eq!(read_small_text(&path("link"), 1).unwrap(), "a");
        for (name, limit, kind) in [
            ("pipe", 1, io::ErrorKind::InvalidInput),
            ("text", 0, io::ErrorKind::FileTooLarge),
            ("bytes", 1, io::ErrorKind::InvalidData),
        ] {
            let failed = read_small_text(&path(name), limit).unwrap_err();
            assert_eq!(failed.kind(), kind, "{name}");
        }
        assert_eq!(read_regular(&path("bytes")).unwrap(), [0xff]);
        assert_eq!(
            read_regular_text(&path("bytes")).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert_eq!(
            read_regular(&path("none")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
