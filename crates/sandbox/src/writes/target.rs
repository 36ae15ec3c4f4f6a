//! The files that a stopped call affects. Their paths are read from the memory of the process, and
//! resolved as the kernel will resolve them.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::PendingWrite;
use super::filter::{FCHMODAT2, NUMBER, WRITING};
use super::kernel::Report;

/// The longest path that the kernel accepts, in bytes.
const MAX_PATH: usize = 4096;

/// The number of bytes that are read at once. A page ends at a multiple of it.
const CHUNK: usize = 256;

/// The number of symlinks that the kernel follows.
const MAX_LINKS: usize = 40;

/// The directory descriptor and the address of the path of calls that end in `at`.
type At = (u64, u64);

/// Returns the writes of a call, which may be none.
pub(super) fn writes(report: &Report) -> Vec<PendingWrite> {
    let caller = StoppedThread { pid: report.pid };
    caller
        .writes(report)
        .unwrap_or_else(|e| match e.raw_os_error() {
            // An invalid address or descriptor: the call will fail as well.
            Some(
                libc::EFAULT | libc::ENOENT | libc::ENAMETOOLONG | libc::ENOTDIR | libc::ESRCH,
            ) => Vec::new(),
            _ => vec![PendingWrite::Unknown],
        })
}

struct StoppedThread {
    pid: u32,
}

impl StoppedThread {
    fn writes(&self, report: &Report) -> io::Result<Vec<PendingWrite>> {
        const HERE: u64 = libc::AT_FDCWD.cast_unsigned() as u64;
        let [a, b, c, d, e, _] = report.arguments;
        let number = report.nr.cast_unsigned() & NUMBER;
        match i64::from(number) {
            libc::SYS_openat => self.file_at((a, b), follows(c)),
            libc::SYS_openat2 => {
                let flags = self.number(c)?;
                if flags & u64::from(WRITING) == 0 {
                    return Ok(Vec::new());
                }
                self.file_at((a, b), follows(flags))
            }
            libc::SYS_truncate => self.file_at((HERE, a), true),
            libc::SYS_unlinkat => self.file_at((a, b), false),
            libc::SYS_mknodat => self.file_at((a, b), false),
            libc::SYS_symlinkat => self.file_at((b, c), false),
            libc::SYS_linkat => self.file_at((c, d), false),
            libc::SYS_fchmodat => self.file_at((a, b), true),
            FCHMODAT2 if self.text(b)?.is_empty() => self.open_file(a),
            FCHMODAT2 => self.file_at((a, b), d & libc::AT_SYMLINK_NOFOLLOW as u64 == 0),
            libc::SYS_fchmod => self.open_file(a),
            libc::SYS_renameat2 => {
                self.rename((a, b), (c, d), e & u64::from(libc::RENAME_EXCHANGE) != 0)
            }
            #[cfg(not(target_arch = "riscv64"))]
            libc::SYS_renameat => self.rename((a, b), (c, d), false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => self.rename((HERE, a), (HERE, b), false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.file_at((HERE, a), follows(b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat | libc::SYS_chmod => self.file_at((HERE, a), true),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink | libc::SYS_mknod => self.file_at((HERE, a), false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link | libc::SYS_symlink => self.file_at((HERE, b), false),
            _ => Ok(Vec::new()),
        }
    }

    fn file_at(&self, at: At, follow: bool) -> io::Result<Vec<PendingWrite>> {
        Ok(self.file(self.path(at)?, follow))
    }

    fn file(&self, path: PathBuf, follow: bool) -> Vec<PendingWrite> {
        let real = real(&path, follow);
        real.map(|path| PendingWrite::File {
            path,
            pid: self.pid,
        })
        .into_iter()
        .collect()
    }

    /// Returns a write to a file that the process has open.
    fn open_file(&self, descriptor: u64) -> io::Result<Vec<PendingWrite>> {
        Ok(self.file(self.opened(descriptor)?, false))
    }

    fn rename(&self, from: At, to: At, exchange: bool) -> io::Result<Vec<PendingWrite>> {
        let from = real(&self.path(from)?, false);
        let to = real(&self.path(to)?, false);
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(Vec::new());
        };
        if is_directory(&from) || (exchange && is_directory(&to)) {
            return Ok(vec![PendingWrite::Directory { from, to, exchange }]);
        }
        Ok([from, to]
            .map(|path| PendingWrite::File {
                path,
                pid: self.pid,
            })
            .into())
    }

    /// Returns an absolute path, as adjutant sees the same file. Symlinks are not resolved.
    fn path(&self, (directory, address): At) -> io::Result<PathBuf> {
        let path = PathBuf::from(self.text(address)?);
        if path.as_os_str().is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        if path.is_absolute() {
            return Ok(path);
        }
        // The kernel reads only the lower 32 bits.
        let descriptor = directory as u32 as i32;
        let base = if descriptor == libc::AT_FDCWD {
            std::fs::read_link(format!("/proc/{}/cwd", self.pid))?
        } else {
            self.opened(directory)?
        };
        Ok(base.join(path))
    }

    fn opened(&self, descriptor: u64) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{}", self.pid, descriptor as u32))
    }

    /// Reads the text at an address, up to its NUL.
    fn text(&self, address: u64) -> io::Result<OsString> {
        let mut text = Vec::new();
        let mut at = usize::try_from(address).unwrap_or_default();
        while text.len() < MAX_PATH {
            let mut chunk = [0; CHUNK];
            // The next page may not be mapped.
            let len = CHUNK - at % CHUNK;
            let read = self.read(at, chunk.get_mut(..len).unwrap_or_default())?;
            let chunk = chunk.get(..read).unwrap_or_default();
            if let Some(end) = memchr::memchr(0, chunk) {
                text.extend_from_slice(&chunk[..end]);
                if text.len() >= MAX_PATH {
                    return Err(too_long());
                }
                return Ok(OsString::from_vec(text));
            }
            text.extend_from_slice(chunk);
            at += read;
        }
        Err(too_long())
    }

    fn number(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(usize::try_from(address).unwrap_or_default(), &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn read(&self, base: usize, to: &mut [u8]) -> io::Result<usize> {
        let remote = [RemoteIoVec {
            base,
            len: to.len(),
        }];
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap_or_default());
        match process_vm_readv(pid, &mut [IoSliceMut::new(to)], &remote)? {
            0 => Err(io::Error::from_raw_os_error(libc::EFAULT)),
            read => Ok(read),
        }
    }
}

fn is_directory(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|data| data.is_dir())
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::ENAMETOOLONG)
}

/// Returns whether an open follows a symlink in the last component of its path.
fn follows(flags: u64) -> bool {
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    !(has(libc::O_NOFOLLOW) || has(libc::O_CREAT) && has(libc::O_EXCL))
}

/// Returns a path with symlinks in its directories resolved; with `follow`, also one in its last
/// component. Returns `None` if the directory does not exist, and for devices and files of `/proc`,
/// whose changes are not recorded.
fn real(path: &Path, follow: bool) -> Option<PathBuf> {
    if path.starts_with("/proc") || path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return None;
    }
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let dir = path.parent()?;
        let name = path.file_name()?;
        let resolved = std::fs::canonicalize(dir).ok()?.join(name);
        match std::fs::read_link(&resolved) {
            Ok(target) if follow => path = resolved.parent()?.join(target),
            _ => return Some(resolved),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_are_resolved_as_by_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "").unwrap();
        let links = [
            ("l", "d/f"),
            ("up", "d"),
            ("d/back", "../l"),
            ("new", "d/none"),
            ("round", "round"),
        ];
        for (name, target) in links {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        }
        let table = [
            ("d/f", true, Some("d/f")),
            ("l", true, Some("d/f")),
            ("l", false, Some("l")),
            ("up/../l", true, Some("d/f")),
            ("up/f", false, Some("d/f")),
            ("d/back", true, Some("d/f")),
            // A file that is created through a symlink.
            ("new", true, Some("d/none")),
            ("round", true, None),
            ("none/f", true, None),
        ];
        for (path, follow, expected) in table {
            let expected = expected.map(|path| root.join(path));
            assert_eq!(real(&root.join(path), follow), expected, "{path}");
        }
        assert_eq!(real(Path::new("/dev/null"), true), None);
    }

    #[test]
    fn text_is_read_up_to_nul() {
        let caller = StoppedThread {
            pid: std::process::id(),
        };
        for len in [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 7] {
            let text = std::ffi::CString::new(vec![b'x'; len]).unwrap();
            let read = caller.text(text.as_ptr() as u64).unwrap();
            assert_eq!(read.as_encoded_bytes(), text.as_bytes());
        }
        let long = std::ffi::CString::new(vec![b'x'; MAX_PATH + 1]).unwrap();
        assert_eq!(
            caller
                .text(long.as_ptr() as u64)
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENAMETOOLONG)
        );
        assert_eq!(
            caller.text(8).unwrap_err().raw_os_error(),
            Some(libc::EFAULT)
        );
    }
}
