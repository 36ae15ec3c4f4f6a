//! FD04: power loss. Writes to a session's file and its log since the last flush may or may not be
//! on the disk, in any order, in sectors of 512 bytes. A file system between SQLite and the system
//! records the writes and flushes; then the power fails at random moments, and the session is
//! opened.
//!
//! `ADJUTANT_POWER=n` tries n states of each workload.

#![expect(
    unsafe_code,
    reason = "SQLite's file system is a table of C functions; only this test puts one in its place"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use rusqlite::ffi;

use super::session::{self, SessionFile};
use super::{faults, wal};
use crate::tests::message;
use crate::write::SessionWrite;
use transcript::Message;

const SECTOR: usize = 512;
const WORKLOADS: usize = 20;

/// An operation of SQLite on a file.
enum Operation {
    Write(usize, Vec<u8>),
    Truncate(usize),
    Sync,
}

/// The operations by the path of a session's file, with whether they concern the log. A leaf lock
/// around a map.
static TRACES: Mutex<BTreeMap<PathBuf, Vec<(bool, Operation)>>> = Mutex::new(BTreeMap::new());

fn traced<T>(path: &Path, look: impl FnOnce(&mut Vec<(bool, Operation)>) -> T) -> T {
    look(
        TRACES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(path.to_owned())
            .or_default(),
    )
}

/// Each of 20 workloads is cut off at 50 moments by default.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how long it looks is said from outside"
)]
fn fd04_completed_turns_survive_a_power_cut() {
    let states: usize = std::env::var("ADJUTANT_POWER")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(50);
    let [fixed, _] = faults::seeds();
    faults::in_two_threads(|half| {
        for workload in (half..WORKLOADS).step_by(2) {
            run_workload(fixed + workload as u64, states);
        }
    });
}

fn run_workload(seed: u64, states: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = faults::memory_dir();
    let id = faults::id();
    let mut file = SessionFile::open(dir.path(), &id, true).unwrap();
    file.write(&faults::entries(&[]), true).unwrap();
    drop(file);
    let path = session::path(dir.path(), &id);
    let first = fs::read(&path).unwrap();
    assert!(!wal::path(&path).exists(), "closed, it is one file");
    let mut file = SessionFile::open_through(path.clone(), &id, false, Some(vfs())).unwrap();
    // The number of operations after which messages were acknowledged as flushed, with their
    // number; and the numbers of written messages.
    let mut flushed = vec![(0, 0)];
    let mut written = vec![0];
    for _ in 0..60 {
        let word = |random: &mut fastrand::Rng| format!("{:x}", random.u128(..));
        let number = written.last().copied().unwrap();
        let some: Vec<Message> = (0..random.usize(1..6))
            .map(|at| {
                let text: String = (0..random.usize(1..200))
                    .map(|_| word(&mut random))
                    .collect();
                message(&format!("m{:04}", number + at), &[&text])
            })
            .collect();
        let flush = random.u32(..4) == 0;
        let entries: Vec<SessionWrite> = faults::entries(&some);
        file.write(&entries, flush).unwrap();
        written.push(number + some.len());
        if flush {
            flushed.push((
                traced(&path, |operations| operations.len()),
                number + some.len(),
            ));
        }
    }
    let operations = traced(&path, std::mem::take);
    drop(file);
    traced(&path, Vec::clear);
    let checkpoints = operations
        .iter()
        .filter(|(log, operation)| !log && matches!(operation, Operation::Sync))
        .count();
    assert!(
        checkpoints > 0,
        "the log was never brought into the database"
    );
    let mut moments: Vec<usize> = (0..states)
        .map(|_| random.usize(0..=operations.len()))
        .collect();
    moments.sort_unstable();
    // The durable state and the pending operations of the database and of its log.
    let mut safe = [first, Vec::new()];
    let mut pending: [Vec<&Operation>; 2] = [Vec::new(), Vec::new()];
    let beside = faults::memory_dir();
    let copy = beside.path().join("copy.db");
    let mut at = 0;
    for moment in moments {
        for (log, operation) in &operations[at..moment] {
            let index = usize::from(*log);
            match operation {
                Operation::Sync => pending[index]
                    .drain(..)
                    .for_each(|operation| apply(&mut safe[index], operation)),
                operation => pending[index].push(operation),
            }
        }
        at = moment;
        let flushed_count = flushed
            .iter()
            .rev()
            .find(|(then, _)| *then <= moment)
            .map_or(0, |(_, flushed_count)| *flushed_count);
        let images: Vec<Vec<u8>> = (0..2)
            .map(|index| after_power_cut(safe[index].clone(), &pending[index], &mut random))
            .collect();
        fs::write(&copy, &images[0]).unwrap();
        fs::write(wal::path(&copy), &images[1]).unwrap();
        let stored =
            SessionFile::open_at(copy.clone(), &id, false).and_then(|file| file.load(None));
        let stored = stored
            .unwrap_or_else(|e| panic!("seed {seed}, after {moment} of {}: {e}", operations.len()));
        let count = stored.messages.len();
        assert!(
            count >= flushed_count,
            "seed {seed}, after {moment}: {count} messages of {flushed_count} that were flushed"
        );
        assert!(
            written.contains(&count),
            "seed {seed}, after {moment}: {count} messages, a part of what was written at once"
        );
        for (number, message) in stored.messages.iter().enumerate() {
            assert_eq!(
                message.id.as_str(),
                format!("m{number:04}"),
                "seed {seed}, after {moment}"
            );
        }
        for left in [copy.clone(), wal::path(&copy)] {
            fs::remove_file(left).ok();
        }
    }
}

fn apply(image: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Write(at, bytes) => {
            image.resize(image.len().max(at + bytes.len()), 0);
            image[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Operation::Truncate(size) => image.resize(*size, 0),
        Operation::Sync => {}
    }
}

/// Returns a file's contents after a power cut: each sector as it was written at some time since
/// the last flush, independent of the others.
fn after_power_cut(
    mut image: Vec<u8>,
    pending: &[&Operation],
    random: &mut fastrand::Rng,
) -> Vec<u8> {
    // Sometimes nearly all of it survives, sometimes nearly nothing.
    let share = [10, 50, 90, 100][random.usize(..4)];
    let mut fixed = BTreeMap::new();
    for operation in pending {
        match operation {
            Operation::Write(at, bytes) => {
                for sector in at / SECTOR..=(at + bytes.len() - 1) / SECTOR {
                    // Once a write of a sector is lost, so are the later ones.
                    let lost = fixed.entry(sector).or_insert(false);
                    *lost = *lost || random.usize(..100) >= share;
                    let from = (sector * SECTOR).max(*at);
                    let to = ((sector + 1) * SECTOR).min(at + bytes.len());
                    if !*lost {
                        apply(
                            &mut image,
                            &Operation::Write(from, bytes[from - at..to - at].to_vec()),
                        );
                    }
                }
            }
            Operation::Truncate(size) if random.usize(..100) < share => image.resize(*size, 0),
            Operation::Truncate(_) | Operation::Sync => {}
        }
    }
    image
}

/// Registers a file system that records the operations and passes them on to the default one.
/// Returns its name.
fn vfs() -> &'static str {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        // SAFETY: the default file system exists as long as the process, and the registered one is
        // never freed. The copy's functions are those of the default one, except for `xOpen`, whose
        // file is ours and is followed by the default one's.
        unsafe {
            let default_vfs = ffi::sqlite3_vfs_find(std::ptr::null());
            let mut own = *default_vfs;
            own.szOsFile += size_of::<Traced>() as c_int;
            own.zName = c"traced".as_ptr();
            own.pNext = std::ptr::null_mut();
            own.pAppData = (*default_vfs).pAppData;
            own.xOpen = Some(open);
            assert_eq!(
                ffi::sqlite3_vfs_register(Box::into_raw(Box::new(own)), 0),
                ffi::SQLITE_OK
            );
        }
    });
    "traced"
}

/// An open file: SQLite's part and ours. The default file system's file follows it in memory.
#[repr(C)]
struct Traced {
    file: ffi::sqlite3_file,
    traced_file: *mut TracedFile,
}

struct TracedFile {
    path: PathBuf,
    log: bool,
}

/// # Safety
/// `file` is one that [`open`] opened.
unsafe fn real(
    file: *mut ffi::sqlite3_file,
) -> (*mut ffi::sqlite3_file, &'static ffi::sqlite3_io_methods) {
    // SAFETY: `szOsFile` covers both, one after the other.
    unsafe {
        let real = file.cast::<Traced>().add(1).cast::<ffi::sqlite3_file>();
        (real, &*(*real).pMethods)
    }
}

/// # Safety
/// See [`real`].
unsafe fn note(file: *mut ffi::sqlite3_file, operation: Operation) {
    // SAFETY: it was allocated when the file was opened, and is freed when it is closed.
    let traced_file = unsafe { &*(*file.cast::<Traced>()).traced_file };
    traced(&traced_file.path, |all| {
        all.push((traced_file.log, operation))
    });
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    static METHODS: OnceLock<ffi::sqlite3_io_methods> = OnceLock::new();
    // SAFETY: SQLite allocates `szOsFile` bytes. The default file system is called with itself.
    unsafe {
        let default_vfs = ffi::sqlite3_vfs_find(std::ptr::null());
        let traced = file.cast::<Traced>();
        (*traced).file.pMethods = std::ptr::null();
        let Some(open) = (*default_vfs).xOpen else {
            return ffi::SQLITE_CANTOPEN;
        };
        let _ = vfs;
        let opened = open(default_vfs, name, traced.add(1).cast(), flags, out);
        if opened != ffi::SQLITE_OK {
            return opened;
        }
        let path = if name.is_null() {
            String::new()
        } else {
            CStr::from_ptr(name).to_string_lossy().into_owned()
        };
        let log = path.ends_with("-wal");
        let path = PathBuf::from(path.trim_end_matches("-wal"));
        (*traced).traced_file = Box::into_raw(Box::new(TracedFile { path, log }));
        (*traced).file.pMethods = METHODS.get_or_init(methods);
    }
    ffi::SQLITE_OK
}

/// Returns methods of version 1, without shared memory, which a session's file does not need
/// because only one process has it open.
fn methods() -> ffi::sqlite3_io_methods {
    /// Defines a function that passes its arguments on.
    macro_rules! pass {
        ($method:ident $(, $name:ident: $kind:ty)*) => {{
            unsafe extern "C" fn pass(file: *mut ffi::sqlite3_file $(, $name: $kind)*) -> c_int {
                // SAFETY: SQLite calls it for files that were opened here.
                unsafe {
                    let (real, methods) = real(file);
                    methods.$method.map_or(ffi::SQLITE_IOERR, |method| method(real $(, $name)*))
                }
            }
            Some(pass)
        }};
    }
    unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
        // SAFETY: see above; the file is not used afterwards.
        unsafe {
            drop(Box::from_raw((*file.cast::<Traced>()).traced_file));
            let (real, methods) = real(file);
            methods
                .xClose
                .map_or(ffi::SQLITE_IOERR, |close| close(real))
        }
    }
    unsafe extern "C" fn write(
        file: *mut ffi::sqlite3_file,
        bytes: *const c_void,
        length: c_int,
        at: i64,
    ) -> c_int {
        // SAFETY: see above; `bytes` has `length` bytes.
        unsafe {
            let all = std::slice::from_raw_parts(bytes.cast::<u8>(), length as usize);
            note(file, Operation::Write(at as usize, all.to_vec()));
            let (real, methods) = real(file);
            methods
                .xWrite
                .map_or(ffi::SQLITE_IOERR, |write| write(real, bytes, length, at))
        }
    }
    unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
        // SAFETY: see above.
        unsafe {
            note(file, Operation::Truncate(size as usize));
            let (real, methods) = real(file);
            methods
                .xTruncate
                .map_or(ffi::SQLITE_IOERR, |truncate| truncate(real, size))
        }
    }
    unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
        // SAFETY: see above.
        unsafe {
            note(file, Operation::Sync);
            let (real, methods) = real(file);
            methods
                .xSync
                .map_or(ffi::SQLITE_IOERR, |sync| sync(real, flags))
        }
    }
    ffi::sqlite3_io_methods {
        iVersion: 1,
        xClose: Some(close),
        xRead: pass!(xRead, bytes: *mut c_void, length: c_int, at: i64),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: pass!(xFileSize, size: *mut i64),
        xLock: pass!(xLock, level: c_int),
        xUnlock: pass!(xUnlock, level: c_int),
        xCheckReservedLock: pass!(xCheckReservedLock, out: *mut c_int),
        xFileControl: pass!(xFileControl, op: c_int, argument: *mut c_void),
        xSectorSize: pass!(xSectorSize),
        xDeviceCharacteristics: pass!(xDeviceCharacteristics),
        xShmMap: None,
        xShmLock: None,
        xShmBarrier: None,
        xShmUnmap: None,
        xFetch: None,
        xUnfetch: None,
    }
}
