//! What is seen of processes from outside, by `/proc` and the mark that we give to what we start.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::Pid;

use base::environment::Environment;

/// The variable that marks our children: our process id, a colon, the name of the work.
pub const MARK: &str = "ADJUTANT_CHILD";

/// Processes that descend from one, are in its group, or carry a mark; the dead left out. Linux
/// only; elsewhere none are found.
pub(super) fn family(root: Option<Pid>, marked: impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let ids: Vec<i32> = processes().filter(|id| *id != own).collect();
    let seen: BTreeMap<i32, ProcessStat> = ids.iter().filter_map(|id| Some((*id, ProcessStat::look(*id)?))).collect();
    let root = root.map(|root| root.as_raw_nonzero().get());
    let descends = |id: i32| {
        let up = |id: &i32| seen.get(id).map(|process| process.parent).filter(|parent| *parent > 0);
        // As many steps as there are processes: a number that is used again cannot make a circle.
        std::iter::successors(up(&id), up).take(seen.len()).any(|parent| Some(parent) == root)
    };
    let alive = seen.iter().filter(|(_, process)| !process.dead);
    let ours = alive.filter(|(id, process)| Some(process.group) == root || descends(**id) || carries(**id, &marked));
    ours.filter_map(|(id, _)| Pid::from_raw(*id)).collect()
}

/// Whether a process was started with a mark of this kind, as far as its variables are seen.
fn carries(id: i32, marked: impl Fn(&[u8]) -> bool) -> bool {
    let prefix = format!("{MARK}=");
    let environ = read_some(&format!("/proc/{id}/environ"));
    environ.split(|byte| *byte == 0).any(|entry| entry.strip_prefix(prefix.as_bytes()).is_some_and(&marked))
}

/// The numbers of all processes, as far as the system shows them.
pub(super) fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What this process is called in the list of processes, whatever its file is called.
const NAME: &std::ffi::CStr = c"adjutant";

/// Gives this process the name that [`is_ours`] knows it by (Linux).
pub fn be_known() {
    #[cfg(target_os = "linux")]
    if let Err(e) = rustix::thread::set_name(NAME) {
        tracing::info!("this process keeps the name of its file: {e}");
    }
}

/// Whether this process was started by a program of ours, however many lie between: it carries the mark,
/// or one of its ancestors does, or is called as we are, or is this very program, also by another name. The
/// mark can be taken off, ancestors cannot, as far as they are seen and live (Linux).
pub fn is_ours(environment: &Environment) -> bool {
    let exe = |id: i32| {
        let path = std::fs::read_link(format!("/proc/{id}/exe")).ok()?.to_string_lossy().into_owned();
        // A program that was replaced since.
        Some(path.strip_suffix(" (deleted)").map_or(path.clone(), str::to_owned))
    };
    let file = |id: i32| std::fs::metadata(format!("/proc/{id}/exe")).ok().map(|file| (file.dev(), file.ino()));
    // What a sandbox hides of those outside it leaves their names.
    let named = |id: i32| read_some(&format!("/proc/{id}/comm")).trim_ascii_end() == NAME.to_bytes();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let this = exe(own).zip(file(own));
    let is_this =
        |id: i32| this.as_ref().is_some_and(|(path, inode)| exe(id).as_ref() == Some(path) || file(id) == Some(*inode));
    let same = |id: i32| named(id) || is_this(id) || carries(id, |_| true);
    let up = |id: &i32| ProcessStat::look(*id).map(|process| process.parent).filter(|parent| *parent > 0);
    environment.var(MARK).is_some() || std::iter::successors(up(&own), up).take(1_000).any(same)
}

/// What is seen of a process from outside.
pub(super) struct ProcessStat {
    parent: i32,
    pub(super) group: i32,
    /// It has ended, and its parent has not taken note.
    pub(super) dead: bool,
}

impl ProcessStat {
    /// From the fields of its `stat` after the name, which may hold anything.
    pub(super) fn look(id: i32) -> Option<Self> {
        let stat = read_some(&format!("/proc/{id}/stat"));
        let text = String::from_utf8_lossy(&stat);
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        Some(Self { dead, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

fn read_some(path: &str) -> Vec<u8> {
    // Most fits into a page, and is read at once.
    let mut bytes = Vec::with_capacity(4096);
    if let Ok(file) = File::open(path) {
        // What cannot be read belongs to someone else, or is gone.
        io::Read::read_to_end(&mut io::Read::take(file, 4 << 20), &mut bytes).ok();
    }
    bytes
}
