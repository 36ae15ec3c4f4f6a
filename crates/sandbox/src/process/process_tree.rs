//! Finds the processes that programs of adjutant have started, by `/proc` and the mark in their
//! environment.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Pid;

use base::environment::Environment;

/// The environment variable that marks child processes. Its value is the id of adjutant's process,
/// a colon, and the name of the work.
pub const MARK: &str = "ADJUTANT_CHILD";

/// Returns the living processes that descend from `root`, are in its group, or carry a mark. Linux
/// only; elsewhere the result is empty.
pub(super) fn family(root: Option<Pid>, marked: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let ids: Vec<i32> = processes().filter(|id| *id != own).collect();
    let stats: BTreeMap<i32, ProcessStat> = ids
        .iter()
        .filter_map(|id| Some((*id, ProcessStat::read(*id)?)))
        .collect();
    let root = root.map(|root| root.as_raw_nonzero().get());
    let descends = |id: i32| {
        let parent_of = |id: &i32| {
            stats
                .get(id)
                .map(|process| process.parent)
                .filter(|parent| *parent > 0)
        };
        // At most as many steps as there are processes, because a reused id could form a cycle.
        std::iter::successors(parent_of(&id), parent_of)
            .take(stats.len())
            .any(|parent| Some(parent) == root)
    };
    let alive = stats.iter().filter(|(_, process)| !process.is_dead);
    let ours = alive.filter(|(id, process)| {
        Some(process.group) == root || descends(**id) || carries(**id, &marked)
    });
    ours.filter_map(|(id, _)| Pid::from_raw(*id)).collect()
}

/// Returns whether a process was started with a matching mark, as far as its variables are
/// readable.
fn carries(id: i32, marked: impl Fn(&[u8]) -> bool) -> bool {
    let prefix = format!("{MARK}=");
    let environ = read_some(&format!("/proc/{id}/environ"));
    environ
        .split(|byte| *byte == 0)
        .any(|entry| entry.strip_prefix(prefix.as_bytes()).is_some_and(&marked))
}

/// Returns the ids of all visible processes.
pub(super) fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name of this process in process lists, whatever the name of its file is.
const PROCESS_NAME: &std::ffi::CStr = c"adjutant";

/// Sets the process name that [`is_started_by_adjutant`] recognizes (Linux).
pub fn set_process_name() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::thread::set_name(PROCESS_NAME) {
        tracing::info!("this process keeps the name of its file: {e}");
    }
}

/// Returns whether this process was started by adjutant, directly or indirectly.
///
/// It carries the mark, or an ancestor carries it, has adjutant's process name or runs this
/// executable under any name. A process can remove the mark, but not its ancestors, as far as they
/// are visible and alive (Linux).
pub fn is_started_by_adjutant(environment: &Environment) -> bool {
    // The name is visible even if a sandbox hides the rest of a process outside.
    let named = |id: i32| {
        read_some(&format!("/proc/{id}/comm")).trim_ascii_end() == PROCESS_NAME.to_bytes()
    };
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let own_program = executable(own).zip(executable_inode(own));
    let is_this = |id: i32| {
        own_program.as_ref().is_some_and(|(path, inode)| {
            executable(id).as_ref() == Some(path) || executable_inode(id) == Some(*inode)
        })
    };
    let is_adjutant = |id: i32| named(id) || is_this(id) || carries(id, |_| true);
    let parent_of = |id: &i32| {
        ProcessStat::read(*id)
            .map(|process| process.parent)
            .filter(|parent| *parent > 0)
    };
    environment.var(MARK).is_some()
        || std::iter::successors(parent_of(&own), parent_of)
            .take(1_000)
            .any(is_adjutant)
}

/// Returns the path of a process's executable.
fn executable(id: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{id}/exe"))
        .ok()?
        .to_string_lossy()
        .into_owned();
    // The executable may have been replaced since.
    Some(
        path.strip_suffix(" (deleted)")
            .map_or(path.clone(), str::to_owned),
    )
}

/// Returns the device and inode of a process's executable.
fn executable_inode(id: i32) -> Option<(u64, u64)> {
    let data = std::fs::metadata(format!("/proc/{id}/exe")).ok()?;
    Some((data.dev(), data.ino()))
}

/// The public data of a process.
pub(super) struct ProcessStat {
    /// The id of its parent.
    parent: i32,
    /// The id of its process group.
    pub(super) group: i32,
    /// True if it has ended, and its parent has not collected its status.
    pub(super) is_dead: bool,
}

impl ProcessStat {
    /// Reads the data of a process; `None` if it is not visible.
    pub(super) fn read(id: i32) -> Option<Self> {
        let stat = read_some(&format!("/proc/{id}/stat"));
        let text = String::from_utf8_lossy(&stat);
        // After the name, which may contain any character.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        Some(Self {
            is_dead,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

/// Reads a file of `/proc`, up to 4 MiB; nothing if it cannot be read.
fn read_some(path: &str) -> Vec<u8> {
    // Most files fit into a page, and are read at once.
    let mut bytes = Vec::with_capacity(4096);
    if let Ok(file) = File::open(path) {
        // An unreadable process belongs to another user, or has ended.
        io::Read::read_to_end(&mut io::Read::take(file, 4 << 20), &mut bytes).ok();
    }
    bytes
}
