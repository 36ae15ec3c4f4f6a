//! Determines the files that a stopped call affects. Their paths are read from the memory of the
//! process, and resolved as the kernel will resolve them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::PendingWrite;
use super::filter::{FCHMODAT2, NUMBER_MASK, WRITE_FLAGS};
use super::kernel::Report;

/// The maximum length of a path that the kernel accepts, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// The maximum number of bytes that are read at once. A page ends at a multiple of it.
const CHUNK_BYTES: usize = 256;

/// The maximum number of symlinks that the kernel follows.
const MAX_LINKS: usize = 40;

/// The directory descriptor and the address of the path of calls that end in `at`.
type At = (u64, u64);

/// The descriptor of the current directory.
const HERE: u64 = libc::AT_FDCWD.cast_unsigned() as u64;

/// The attributes that contain access control lists.
const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// The length of a list of the permission bits alone, in bytes: four for its version, and eight each
/// for the owner, the group and others.
const BITS_LENGTH: u64 = 4 + 3 * 8;

/// Returns the writes of a call, which may be none.
pub(super) fn writes(report: &Report, directories: &mut Directories) -> Vec<PendingWrite> {
    let mut caller = StoppedThread {
        pid: report.pid,
        directories,
    };
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

/// The thread that made a stopped call.
struct StoppedThread<'a> {
    pid: u32,
    directories: &'a mut Directories,
}

impl StoppedThread<'_> {
    /// Returns the writes of the call.
    fn writes(&mut self, report: &Report) -> io::Result<Vec<PendingWrite>> {
        let [a, b, c, d, e, _] = report.arguments;
        let number = report.nr.cast_unsigned() & NUMBER_MASK;
        match i64::from(number) {
            libc::SYS_openat => self.file_at((a, b), follows(c)),
            libc::SYS_openat2 => {
                let flags = self.number(c)?;
                if flags & u64::from(WRITE_FLAGS) == 0 {
                    return Ok(Vec::new());
                }
                self.file_at((a, b), follows(flags))
            }
            libc::SYS_truncate => self.file_at((HERE, a), true),
            libc::SYS_unlinkat => self.file_at((a, b), false),
            libc::SYS_mknodat => self.file_at((a, b), false),
            libc::SYS_symlinkat => self.link_at((b, c)),
            libc::SYS_linkat => self.file_at((c, d), false),
            libc::SYS_fchmodat => self.file_at((a, b), true),
            FCHMODAT2 if self.text(b)?.is_empty() => self.open_file(a),
            FCHMODAT2 => self.file_at((a, b), follows_at(d)),
            libc::SYS_fchmod => self.open_file(a),
            libc::SYS_utimensat => self.times_at((a, b), d),
            libc::SYS_setxattr => self.access_list(a, true, b, d),
            libc::SYS_lsetxattr => self.access_list(a, false, b, d),
            libc::SYS_removexattr => self.access_list(a, true, b, 0),
            libc::SYS_lremovexattr => self.access_list(a, false, b, 0),
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
            libc::SYS_link => self.file_at((HERE, b), false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => self.link_at((HERE, b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime | libc::SYS_utimes => self.times_at((HERE, a), 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => self.times_at((a, b), 0),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a write to the file at a path.
    fn file_at(&mut self, at: At, follow: bool) -> io::Result<Vec<PendingWrite>> {
        let path = self.path(at)?;
        Ok(self.file(&path, follow))
    }

    /// Returns the creation of a symlink, which may lead to another directory.
    fn link_at(&mut self, at: At) -> io::Result<Vec<PendingWrite>> {
        let writes = self.file_at(at, false);
        self.directories.forget();
        writes
    }

    /// Returns a write to the file at an absolute path; with `follow`, a symlink there is followed.
    fn file(&mut self, path: &Path, follow: bool) -> Vec<PendingWrite> {
        let file = self.directories.resolved(path, follow);
        file.map(|file| file.into_write(self.pid))
            .into_iter()
            .collect()
    }

    /// Returns a write to a file that the process has open.
    fn open_file(&mut self, descriptor: u64) -> io::Result<Vec<PendingWrite>> {
        let path = self.opened(descriptor)?;
        Ok(self.file(&path, false))
    }

    /// Returns a change of times. A descriptor without a path is a file that the process has open.
    fn times_at(&mut self, at: At, flags: u64) -> io::Result<Vec<PendingWrite>> {
        let (descriptor, address) = at;
        let file = if address == 0 || self.text(address)?.is_empty() {
            let path = self.opened(descriptor)?;
            self.directories.resolved(&path, false)
        } else {
            let path = self.path(at)?;
            self.directories.resolved(&path, follows_at(flags))
        };
        Ok(file
            .map(|file| PendingWrite::Times { path: file.path })
            .into_iter()
            .collect())
    }

    /// Returns a change of an access control list; `size` is that of the new one. A list without
    /// named users and groups consists of the permission bits, so it changes only these.
    fn access_list(
        &mut self,
        address: u64,
        follow: bool,
        name: u64,
        size: u64,
    ) -> io::Result<Vec<PendingWrite>> {
        let name = self.text(name)?;
        if !ACCESS_LISTS.iter().any(|list| name == *list) {
            return Ok(Vec::new());
        }
        let path = self.path((HERE, address))?;
        let Some(file) = self.directories.resolved(&path, follow) else {
            return Ok(Vec::new());
        };
        let mut writes = Vec::new();
        let has_list =
            rustix::fs::lgetxattr(&file.path, name.as_os_str(), &mut [0_u8; 0][..]).is_ok();
        if has_list || size > BITS_LENGTH {
            let path = file.path.clone();
            writes.push(PendingWrite::AccessList { path });
        }
        if !file.is_directory() {
            writes.push(file.into_write(self.pid));
        }
        Ok(writes)
    }

    /// Returns the writes of a rename: to both files, or of a directory.
    fn rename(&mut self, from: At, to: At, exchange: bool) -> io::Result<Vec<PendingWrite>> {
        let from = self.path(from)?;
        let to = self.path(to)?;
        let from = self.directories.resolved(&from, false);
        let to = self.directories.resolved(&to, false);
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(Vec::new());
        };
        if from.is_directory() || (exchange && to.is_directory()) {
            self.directories.forget();
            return Ok(vec![PendingWrite::Directory {
                from: from.path,
                to: to.path,
                exchange,
            }]);
        }
        Ok([from, to].map(|file| file.into_write(self.pid)).into())
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

    /// Returns the path of an open file of the process.
    fn opened(&self, descriptor: u64) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{}", self.pid, descriptor as u32))
    }

    /// Reads the text at an address, up to its NUL.
    fn text(&self, address: u64) -> io::Result<OsString> {
        let mut text = Vec::new();
        let mut at = usize::try_from(address).unwrap_or_default();
        while text.len() < MAX_PATH_BYTES {
            let mut chunk = [0; CHUNK_BYTES];
            // The next page may not be mapped.
            let len = CHUNK_BYTES - at % CHUNK_BYTES;
            let read = self.read(at, chunk.get_mut(..len).unwrap_or_default())?;
            let chunk = chunk.get(..read).unwrap_or_default();
            if let Some(end) = memchr::memchr(0, chunk) {
                text.extend_from_slice(&chunk[..end]);
                if text.len() >= MAX_PATH_BYTES {
                    return Err(too_long());
                }
                return Ok(OsString::from_vec(text));
            }
            text.extend_from_slice(chunk);
            at += read;
        }
        Err(too_long())
    }

    /// Reads the number at an address.
    fn number(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(usize::try_from(address).unwrap_or_default(), &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads memory of the process from an address on. Returns the number of bytes, at least one.
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

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::ENAMETOOLONG)
}

/// Returns whether an open follows a symlink in the last component of its path.
fn follows(flags: u64) -> bool {
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    !(has(libc::O_NOFOLLOW) || has(libc::O_CREAT) && has(libc::O_EXCL))
}

/// Returns whether a call that ends in `at` follows a symlink in the last component of its path.
fn follows_at(flags: u64) -> bool {
    flags & u64::from(libc::AT_SYMLINK_NOFOLLOW.cast_unsigned()) == 0
}

/// The canonical paths of directories, for a short time: commands write many files in few
/// directories.
///
/// A path is reused only if it still leads to the same directory, because a link may have changed
/// late, or by a process of another command.
#[derive(Debug)]
pub(super) struct Directories {
    known: HashMap<PathBuf, KnownDirectory>,
    /// The time before which nothing is added, because a change of a link has not happened yet.
    begin: Instant,
    /// The time until which `known` is valid.
    end: Instant,
}

/// A directory whose canonical path is known.
#[derive(Debug)]
struct KnownDirectory {
    /// The path without symlinks.
    canonical: PathBuf,
    /// The device and the inode.
    identity: (u64, u64),
}

/// The time for which the canonical path of a directory is reused. Links that the command itself
/// changes take effect at once.
const REUSE_INTERVAL: Duration = Duration::from_millis(20);

/// The time that a reported change of a link may take to happen.
const CHANGE_INTERVAL: Duration = Duration::from_millis(2);

/// The maximum number of directories whose canonical paths are reused.
const MAX_DIRECTORIES: usize = 1_000;

impl Directories {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            known: HashMap::new(),
            begin: now,
            end: now,
        }
    }

    /// Discards all paths, because a directory or a link is about to change.
    fn forget(&mut self) {
        self.known.clear();
        self.begin = Instant::now() + CHANGE_INTERVAL;
    }

    /// Returns the path of a directory without symlinks.
    fn canonical(&mut self, dir: &Path) -> Option<PathBuf> {
        let now = Instant::now();
        if now >= self.end || self.known.len() >= MAX_DIRECTORIES {
            self.known.clear();
            self.end = now + REUSE_INTERVAL;
        }
        let found = rustix::fs::stat(dir).ok()?;
        let identity = (found.st_dev, found.st_ino);
        if let Some(known) = self.known.get(dir)
            && known.identity == identity
        {
            return Some(known.canonical.clone());
        }
        let canonical = std::fs::canonicalize(dir).ok()?;
        if now >= self.begin {
            let known = KnownDirectory {
                canonical: canonical.clone(),
                identity,
            };
            self.known.insert(dir.to_owned(), known);
        }
        Some(canonical)
    }

    /// Returns a path with symlinks in its directories resolved; with `follow`, also one in its
    /// last component. Returns `None` if the directory does not exist, and for devices and files of
    /// `/proc`, whose changes are not recorded.
    fn resolved(&mut self, path: &Path, follow: bool) -> Option<ResolvedPath> {
        if path.starts_with("/proc") || path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return None;
        }
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let dir = path.parent()?;
            let name = path.file_name()?;
            let resolved = self.canonical(dir)?.join(name);
            let kind = match rustix::fs::lstat(&resolved) {
                Ok(data) => Some(FileType::from_raw_mode(data.st_mode)),
                Err(Errno::NOENT) => None,
                // As a file that exists, which is then looked at.
                Err(_) => Some(FileType::Unknown),
            };
            if kind == Some(FileType::Symlink) {
                if follow {
                    path = resolved.parent()?.join(std::fs::read_link(&resolved).ok()?);
                    continue;
                }
                // It may be about to be removed or replaced.
                self.forget();
            }
            return Some(ResolvedPath {
                path: resolved,
                kind,
            });
        }
        None
    }
}

/// A path as the kernel will resolve it.
struct ResolvedPath {
    path: PathBuf,
    /// The kind of the file; `None` if it does not exist.
    kind: Option<FileType>,
}

impl ResolvedPath {
    fn is_directory(&self) -> bool {
        self.kind == Some(FileType::Directory)
    }

    /// Returns the write of a process to it.
    fn into_write(self, pid: u32) -> PendingWrite {
        PendingWrite::File {
            path: self.path,
            pid,
            is_new: self.kind.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

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
        let mut directories = Directories::new();
        let mut real = |path: &Path, follow| {
            let resolved = directories.resolved(path, follow)?;
            Some((resolved.path, resolved.kind.is_none()))
        };
        for (path, follow, expected) in table {
            let expected = expected.map(|path| (root.join(path), path == "d/none"));
            assert_eq!(real(&root.join(path), follow), expected, "{path}");
        }
        assert_eq!(real(Path::new("/dev/null"), true), None);
    }

    #[test]
    fn canonical_directories_are_forgotten_when_a_link_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["one", "other"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let link = root.join("link");
        std::os::unix::fs::symlink("one", &link).unwrap();
        let mut directories = Directories::new();
        // The test may be slow.
        directories.end = Instant::now() + Duration::from_secs(3600);
        let mut real = |path: &Path| directories.resolved(path, false).unwrap().path;
        assert_eq!(real(&link.join("f")), root.join("one/f"));
        // The report of its removal.
        assert_eq!(real(&link), link);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("other", &link).unwrap();
        assert_eq!(real(&link.join("f")), root.join("other/f"));
    }

    #[test]
    fn canonical_directory_is_not_reused_after_a_late_change() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        for name in ["one", "other"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let link = root.join("link");
        let mut directories = Directories::new();
        directories.end = Instant::now() + Duration::from_secs(3600);
        for target in ["one", "other", "one"] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            let resolved = directories.resolved(&link.join("f"), false).unwrap();
            assert_eq!(resolved.path, root.join(target).join("f"));
            assert!(directories.known.contains_key(&link));
            // By another process, without a report to these directories.
            std::fs::remove_file(&link).unwrap();
        }
    }

    #[test]
    fn calls_that_set_times_name_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let file = std::fs::File::create(root.join("f")).unwrap();
        std::os::unix::fs::symlink("f", root.join("link")).unwrap();
        let open_dir = std::fs::File::open(&root).unwrap();
        let text =
            |path: &Path| std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        let absolute = text(&root.join("link"));
        let relative = text(Path::new("link"));
        let address = |text: &std::ffi::CStr| text.as_ptr() as u64;
        let here = u64::from(libc::AT_FDCWD.cast_unsigned());
        let below = u64::from(open_dir.as_raw_fd().cast_unsigned());
        let opened = u64::from(file.as_raw_fd().cast_unsigned());
        let flag = |flag: i32| u64::from(flag.cast_unsigned());
        let no_follow = flag(libc::AT_SYMLINK_NOFOLLOW);
        let empty_path = flag(libc::AT_EMPTY_PATH);
        let table = [
            (libc::SYS_utimensat, [here, address(&absolute), 0, 0], "f"),
            (libc::SYS_utimensat, [below, address(&relative), 0, 0], "f"),
            (
                libc::SYS_utimensat,
                [below, address(&relative), 0, no_follow],
                "link",
            ),
            (libc::SYS_utimensat, [opened, 0, 0, 0], "f"),
            (
                libc::SYS_utimensat,
                [opened, address(c""), 0, empty_path],
                "f",
            ),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_utime, [address(&absolute), 0, 0, 0], "f"),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_utimes, [address(&absolute), 0, 0, 0], "f"),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_futimesat, [below, address(&relative), 0, 0], "f"),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_futimesat, [opened, 0, 0, 0], "f"),
        ];
        for (call, [a, b, c, d], name) in table {
            let report = Report {
                id: 0,
                pid: std::process::id(),
                nr: i32::try_from(call).unwrap(),
                arguments: [a, b, c, d, 0, 0],
            };
            let expected = PendingWrite::Times {
                path: root.join(name),
            };
            assert_eq!(
                writes(&report, &mut Directories::new()),
                [expected],
                "{report:?}"
            );
        }
    }

    #[test]
    fn only_extended_access_lists_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let path = root.join("f");
        std::fs::write(&path, "").unwrap();
        let text = |text: &str| std::ffi::CString::new(text).unwrap();
        let paths = [&path, &root].map(|path| text(path.to_str().unwrap()));
        let [file, directory] = paths.each_ref().map(|path| path.as_ptr() as u64);
        let names = [
            "system.posix_acl_access",
            "system.posix_acl_default",
            "user.x",
        ]
        .map(text);
        let [access, default, other] = names.each_ref().map(|name| name.as_ptr() as u64);
        let list = || PendingWrite::AccessList { path: path.clone() };
        let write = || PendingWrite::File {
            path: path.clone(),
            pid: std::process::id(),
            is_new: false,
        };
        let of_directory = || PendingWrite::AccessList { path: root.clone() };
        let table = [
            (libc::SYS_setxattr, file, access, 44, vec![list(), write()]),
            (libc::SYS_lsetxattr, file, access, 44, vec![list(), write()]),
            (libc::SYS_setxattr, file, access, 28, vec![write()]),
            (libc::SYS_removexattr, file, access, 0, vec![write()]),
            (libc::SYS_lremovexattr, file, access, 0, vec![write()]),
            (
                libc::SYS_setxattr,
                directory,
                default,
                44,
                vec![of_directory()],
            ),
            (libc::SYS_setxattr, directory, access, 28, vec![]),
            (libc::SYS_setxattr, file, other, 44, vec![]),
            (libc::SYS_removexattr, file, other, 0, vec![]),
        ];
        for (call, path, name, size, expected) in table {
            let report = Report {
                id: 0,
                pid: std::process::id(),
                nr: i32::try_from(call).unwrap(),
                arguments: [path, name, 0, size, 0, 0],
            };
            let writes = writes(&report, &mut Directories::new());
            assert_eq!(writes, expected, "{report:?}");
        }
    }

    #[test]
    fn text_is_read_up_to_nul() {
        let caller = StoppedThread {
            pid: std::process::id(),
            directories: &mut Directories::new(),
        };
        for len in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7] {
            let text = std::ffi::CString::new(vec![b'x'; len]).unwrap();
            let read = caller.text(text.as_ptr() as u64).unwrap();
            assert_eq!(read.as_encoded_bytes(), text.as_bytes());
        }
        let long = std::ffi::CString::new(vec![b'x'; MAX_PATH_BYTES + 1]).unwrap();
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
