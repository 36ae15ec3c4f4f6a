//! Probes of a command in a sandbox, one a row: as root and as an ordinary user, with every
//! mechanism of this machine, in `plan` and in `build`, with and without the network.
//!
//! All probes of one setting run in one command. A setting that this machine does not support is
//! skipped, and reported on standard output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::editor::Editor;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{elsewhere, only, turn, why};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 6] = [
    ("probes pass (bwrap with landlock)", || {
        every_probe(BWRAP_AND_LANDLOCK, false)
    }),
    ("probes pass (bwrap)", || every_probe("bwrap", false)),
    ("probes pass (landlock)", || every_probe("landlock", false)),
    (
        "probes pass as an ordinary user (bwrap with landlock)",
        || every_probe(BWRAP_AND_LANDLOCK, true),
    ),
    ("probes pass as an ordinary user (bwrap)", || {
        every_probe("bwrap", true)
    }),
    ("probes pass as an ordinary user (landlock)", || {
        every_probe("landlock", true)
    }),
];

/// Landlock inside bubblewrap, as adjutant uses them if both work.
const BWRAP_AND_LANDLOCK: &str = "bwrap with landlock";

/// Settings in which a row holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProbeSetup {
    Everywhere,
    /// For an agent that only reads.
    Plan,
    /// For one that edits.
    Build,
    /// Without the network.
    Offline,
    /// With it.
    Online,
    /// For one that edits, under bubblewrap.
    Bwrap,
    /// For one that edits, under Landlock alone.
    Landlock,
    /// adjutant is run by root.
    Root,
}

use ProbeSetup::{Build, Bwrap, Everywhere, Landlock, Offline, Online, Plan, Root};

const CAN: bool = true;
const CANNOT: bool = false;

/// A name, a line for bash, the settings, and whether it succeeds. `$AGENT` is adjutant's process,
/// `$OTHER` an unrelated one of the same user, `$OUT` a directory that is not a temporary one,
/// `$PORT` a port of this machine with a listener.
type Row = (&'static str, &'static str, ProbeSetup, bool);

const FILES: &[Row] = &[
    ("write outside", "echo x > $OUT/made", Everywhere, CANNOT),
    ("append outside", "echo x >> $OUT/file", Everywhere, CANNOT),
    ("remove outside", "rm $OUT/file", Everywhere, CANNOT),
    (
        "move outside",
        "echo x > a1 && mv a1 $OUT/a1",
        Everywhere,
        CANNOT,
    ),
    (
        "link in and write",
        "ln $OUT/file a2 && echo x >> a2",
        Everywhere,
        CANNOT,
    ),
    (
        "symlink in and write",
        "ln -sf $OUT/file a3; echo x >> a3",
        Everywhere,
        CANNOT,
    ),
    ("directory outside", "mkdir $OUT/folder", Everywhere, CANNOT),
    ("mode outside", "chmod 777 $OUT/file", Plan, CANNOT),
    (
        "mode outside under bwrap",
        "chmod 777 $OUT/file",
        Bwrap,
        CANNOT,
    ),
    (
        "time outside",
        "touch -d 2001-01-01 $OUT/file",
        Plan,
        CANNOT,
    ),
    ("device", "mknod $TMPDIR/device c 1 3", Everywhere, CANNOT),
    (
        "kernel's settings",
        "f=/proc/sys/kernel/core_pattern; v=$(cat $f) && echo \"$v\" > $f",
        Everywhere,
        CANNOT,
    ),
    (
        "cgroups",
        "mkdir /sys/fs/cgroup/unified/adjutant-probe || mkdir /sys/fs/cgroup/adjutant-probe",
        Everywhere,
        CANNOT,
    ),
    ("write the project", "echo x > made", Plan, CANNOT),
    (
        "write the project, to build it",
        "echo x > made && rm made",
        Build,
        CAN,
    ),
    (
        "write a temporary file",
        "echo x > $TMPDIR/made && rm $TMPDIR/made",
        Everywhere,
        CAN,
    ),
    ("adjutant's keys", "echo x >> $DATA/auth.json", Plan, CANNOT),
];

const CONTROL: &[Row] = &[
    ("a hook", "echo x > .git/hooks/pre-commit", Bwrap, CANNOT),
    (
        "a hook, reported",
        "echo x > .git/hooks/pre-commit",
        Landlock,
        CAN,
    ),
    ("git's settings", "git config a.b c", Bwrap, CANNOT),
    (
        "git's attributes that were not there",
        "echo '* filter=x' > .git/info/attributes",
        Bwrap,
        CANNOT,
    ),
    (
        "a submodule's settings",
        "echo x >> .git/modules/m/config",
        Bwrap,
        CANNOT,
    ),
    ("move hooks away", "mv .git/hooks .git/h", Bwrap, CANNOT),
    ("move .git away", "mv .git g", Bwrap, CANNOT),
    ("move info away", "mv .git/info .git/i", Bwrap, CANNOT),
    ("move modules away", "mv .git/modules .git/m", Bwrap, CANNOT),
    ("instructions", "echo x >> AGENTS.md", Bwrap, CANNOT),
    (
        "instructions replaced",
        "echo x > a4; mv a4 AGENTS.md",
        Bwrap,
        CANNOT,
    ),
    (
        "an agent's settings",
        "echo x >> .claude/settings.json",
        Bwrap,
        CANNOT,
    ),
    (
        "move an agent's settings away",
        "mv .claude c",
        Bwrap,
        CANNOT,
    ),
    (
        "an editor's tasks",
        "echo x > .vscode/tasks.json",
        Bwrap,
        CANNOT,
    ),
    ("move cargo's settings away", "mv .cargo c", Bwrap, CANNOT),
    (
        "a commit",
        "echo x > b1 && git add b1 && git -c user.name=A -c user.email=a@b commit -qm x b1",
        Build,
        CAN,
    ),
];

const PROCESSES: &[Row] = &[
    (
        "no new privileges",
        "grep -q 'NoNewPrivs:.*1' /proc/self/status",
        Everywhere,
        CAN,
    ),
    (
        "system calls are filtered",
        "grep -q 'Seccomp:.*2' /proc/self/status",
        Everywhere,
        CAN,
    ),
    (
        "capabilities",
        "grep -E '^Cap(Prm|Eff|Inh|Amb):' /proc/self/status | grep -qv 0000000000000000",
        Everywhere,
        CANNOT,
    ),
    (
        "capability bounding set",
        "grep ^CapBnd: /proc/self/status | grep -qv 0000000000000000",
        Root,
        CANNOT,
    ),
    (
        "adjutant's variables",
        "cat /proc/$AGENT/environ",
        Everywhere,
        CANNOT,
    ),
    (
        "anybody's variables",
        "cat /proc/[0-9]*/environ | grep -qa the-secret'-'value",
        Everywhere,
        CANNOT,
    ),
    (
        "adjutant's memory",
        "head -c 1 /proc/$AGENT/mem",
        Everywhere,
        CANNOT,
    ),
    (
        "adjutant's memory map",
        "cat /proc/$AGENT/maps | grep -q .",
        Everywhere,
        CANNOT,
    ),
    (
        "adjutant's files",
        "readlink /proc/$AGENT/fd/0",
        Everywhere,
        CANNOT,
    ),
    (
        "adjutant's root",
        "ls /proc/$AGENT/root/",
        Everywhere,
        CANNOT,
    ),
    (
        "another's variables",
        "cat /proc/$OTHER/environ | grep -q .",
        Everywhere,
        CANNOT,
    ),
    (
        "write through another process's root",
        "echo x > /proc/$OTHER/root/$OUT/made",
        Everywhere,
        CANNOT,
    ),
    ("signal 0 to adjutant", "kill -0 $AGENT", Everywhere, CANNOT),
    ("continue adjutant", "kill -CONT $AGENT", Everywhere, CANNOT),
    ("stop adjutant", "kill -STOP $AGENT", Everywhere, CANNOT),
    ("kill adjutant", "kill -9 $AGENT", Everywhere, CANNOT),
    (
        "kill adjutant's group",
        "kill -9 -- -$AGENT",
        Everywhere,
        CANNOT,
    ),
    (
        "kill by name",
        "pkill -CONT -x adjutant",
        Everywhere,
        CANNOT,
    ),
    ("kill another", "kill -9 $OTHER", Everywhere, CANNOT),
    (
        "kill a child",
        "sleep 60 & kill -9 $!; wait $!; [ $? = 137 ]",
        Everywhere,
        CAN,
    ),
    ("a user namespace", "unshare -Ur true", Everywhere, CANNOT),
    ("a mount namespace", "unshare -m true", Everywhere, CANNOT),
    (
        "another's limits",
        "prlimit --pid $OTHER --nofile=20:20",
        Everywhere,
        CANNOT,
    ),
    ("one's own limits", "ulimit -n 20", Everywhere, CAN),
];

const NETWORK: &[Row] = &[
    (
        "a connection",
        "echo x > /dev/tcp/127.0.0.1/$PORT",
        Offline,
        CANNOT,
    ),
    (
        "a datagram",
        "echo x > /dev/udp/127.0.0.1/$PORT",
        Offline,
        CANNOT,
    ),
    (
        "a connection, allowed",
        "echo x > /dev/tcp/127.0.0.1/$PORT",
        Online,
        CAN,
    ),
];

/// Programs that must work in `build`; each is run only if it works outside.
const TOOLS: &[(&str, &str)] = &[
    ("ls", "ls -la / /proc/self > /dev/null"),
    (
        "find, xargs, sort",
        "find . -name '*.c' -print0 | xargs -0 -P 2 wc -l | sort --parallel=2",
    ),
    ("job control", "set -m; sleep 0.01 & jobs; fg %1; wait"),
    ("timeout and nice", "timeout 5 nice true"),
    ("gcc", "gcc -O1 -o t1 hello.c -pthread && ./t1"),
    (
        "gcc with its leak checker",
        "gcc -fsanitize=address -o t2 hello.c -pthread && ./t2",
    ),
    (
        "make",
        "printf 'all:\\n\\ttrue\\n' > t3.mk && make -f t3.mk -j2",
    ),
    (
        "git",
        "git init -q t4 && cd t4 && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m x && git gc -q && git status",
    ),
    (
        "git clone",
        "git clone -q \"$PWD/$(git rev-parse --show-cdup)\" t5",
    ),
    (
        "git worktree",
        "git worktree add -q --detach t6 && git worktree remove t6",
    ),
    (
        "python",
        "python3 -c 'import threading, subprocess; t = threading.Thread(target=print); t.start(); t.join(); subprocess.run([\"true\"], check=True)'",
    ),
    (
        "python's pool",
        "python3 -c 'import multiprocessing as m; p = m.Pool(2); print(p.map(abs, [1, 2]))'",
    ),
    (
        "a terminal of its own",
        "python3 -c 'import pty; exit(pty.spawn([\"true\"]))'",
    ),
    (
        "node",
        "node -e 'require(\"child_process\").execSync(\"true\"); new (require(\"worker_threads\").Worker)(\"1\", { eval: true })'",
    ),
    ("rustc", "rustc -o t7 hello.rs && ./t7"),
    (
        "cargo",
        "cargo init -q --vcs none t8 && cd t8 && cargo build -q --offline",
    ),
    (
        "strace",
        "strace -f -o t9.txt sh -c 'echo x > t9' && test -s t9",
    ),
    (
        "Java's safepoints",
        "printf 'class T { public static void main(String[] a) throws Exception { for (int i = 0; i < 200; i++) { java.nio.file.Files.writeString(java.nio.file.Path.of(\"t12\"), \"x\"); if (i %% 50 == 0) System.gc(); } } }' > T.java && java -XX:+UseSerialGC T.java",
    ),
    (
        "Go's preemption",
        "gcc -O1 -pthread -o t13 storm.c && ./t13 && test -s t13.txt",
    ),
    ("a listener of its own", "python3 listen.py"),
    (
        "tar",
        "tar cf t10.tar hello.c && mkdir t10 && tar xf t10.tar -C t10",
    ),
    (
        "tar of another's files",
        "tar cf t11.tar --owner=1234 --group=1234 hello.c && mkdir t11 && tar xf t11.tar -C t11",
    ),
    ("perl", "perl -e 'exit(0)'"),
];

/// A program that gets signals as often as one of Go, whose runtime interrupts its threads by
/// SIGURG: a thread sends them while another one writes. Every call is repeated or continued.
const STORM: &str = r#"#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
static volatile int over;
static void ignore(int signal) { (void)signal; }
static void *storm(void *thread) {
    while (!over) {
        syscall(SYS_tgkill, getpid(), *(pid_t *)thread, SIGURG);
        usleep(50);
    }
    return 0;
}
int main(void) {
    struct sigaction action = { .sa_handler = ignore, .sa_flags = SA_RESTART };
    sigaction(SIGURG, &action, 0);
    pid_t self = syscall(SYS_gettid);
    pthread_t thread;
    if (pthread_create(&thread, 0, storm, &self)) return 1;
    for (int i = 0; i < 300; i++) {
        int file = open("t13.txt", O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (file < 0 || write(file, "x", 1) != 1) return 2;
        close(file);
    }
    over = 1;
    pthread_join(thread, 0);
    return 0;
}
"#;

/// A program that installs a filter with a listener of its own. A kernel allows one listener for a
/// process, so the call fails below ours (EBUSY), and succeeds without it. The program can write in
/// both cases.
const LISTENER: &str = r#"import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0):
    sys.exit("no new privileges: refused")
allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000), 8)
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow))
number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
listener = libc.syscall(number, 1, 1 << 3, ctypes.create_string_buffer(program, len(program)))
if listener < 0 and ctypes.get_errno() != errno.EBUSY:
    sys.exit(os.strerror(ctypes.get_errno()))
with open("t14.txt", "w") as file:
    file.write("x")
"#;

/// Tools that trace another process.
const TRACING: [&str; 2] = ["gcc with its leak checker", "strace"];

/// A system call: its name, its number with its arguments, and the settings in which it is refused.
type Call = (&'static str, &'static str, ProbeSetup);

/// System calls by their numbers on x86-64, which do nothing with these arguments. If they are
/// allowed, a kernel never answers with an error that counts as a refusal (EPERM, EACCES, ESRCH or
/// ENOSYS). `B`: memory of 4 KiB; `V`: a vector of 8 bytes of it; `A`: adjutant's process; `O`: the
/// other one.
const REFUSED: &[Call] = &[
    ("ptrace attach", "101 16 A 0 0", Everywhere),
    ("ptrace seize", "101 0x4206 A 0 0", Everywhere),
    ("ptrace at all", "101 0 0 0 0", Plan),
    ("process_vm_readv", "310 A V 1 V 1 0", Everywhere),
    ("process_vm_writev", "311 A V 1 V 1 0", Everywhere),
    ("pidfd_getfd", "438 -1 0 0", Everywhere),
    ("kcmp", "312 0 0 0 0 0", Everywhere),
    ("tgkill", "234 A A 0", Everywhere),
    ("tkill", "200 A 0", Everywhere),
    ("rt_sigqueueinfo", "129 A 0 B", Everywhere),
    ("prlimit64", "302 O 7 0 B", Everywhere),
    ("bpf", "321 99 0 0", Everywhere),
    ("perf_event_open", "298 0 0 0 0 0", Everywhere),
    ("userfaultfd", "323 1", Everywhere),
    ("keyctl", "250 0 -3 0", Everywhere),
    ("add_key", "248 0 0 0 0 0", Everywhere),
    ("request_key", "249 0 0 0 0", Everywhere),
    ("mount", "165 0 0 0 0 0", Everywhere),
    ("umount2", "166 0 0xffff", Everywhere),
    ("pivot_root", "155 0 0", Everywhere),
    ("chroot", "161 0", Everywhere),
    ("move_mount", "429 -1 0 -1 0 0xffff", Everywhere),
    ("open_tree", "428 -1 0 0xffffff", Everywhere),
    ("fsopen", "430 0 0xffff", Everywhere),
    ("fsmount", "432 -1 0xffff 0", Everywhere),
    ("mount_setattr", "442 -1 0 0xffffff 0 0", Everywhere),
    ("setns", "308 -1 0", Everywhere),
    ("io_uring_setup", "425 0 0", Everywhere),
    ("io_uring_enter", "426 -1 0 0 0 0", Everywhere),
    ("io_uring_register", "427 -1 0 0 0", Everywhere),
    ("init_module", "175 0 0 0", Everywhere),
    ("finit_module", "313 -1 0 0xffff", Everywhere),
    ("delete_module", "176 0 0", Everywhere),
    ("kexec_load", "246 0 99 0 0xffff", Everywhere),
    ("kexec_file_load", "320 -1 -1 0 0 0xffff", Everywhere),
    ("swapon", "167 0 0", Everywhere),
    ("swapoff", "168 0", Everywhere),
    ("reboot", "169 0 0 0 0", Everywhere),
    ("quotactl", "179 0 0 0 0", Everywhere),
    ("sethostname", "170 0 9999", Everywhere),
    ("setdomainname", "171 0 9999", Everywhere),
    ("syslog", "103 10 0 0", Everywhere),
    ("iopl", "172 9", Everywhere),
    ("ioperm", "173 0 0 0", Everywhere),
    ("open_by_handle_at", "304 -1 0 0", Everywhere),
    ("fanotify_init", "300 0x200 0", Everywhere),
    ("fanotify_mark", "301 -1 0 0 0 0", Everywhere),
    ("adjtimex", "159 B", Everywhere),
    ("clock_adjtime", "305 0 B", Everywhere),
    ("clock_settime", "227 99 B", Everywhere),
    ("settimeofday", "164 0 0", Everywhere),
    ("set attributes", "16 0 0x40086602 B", Everywhere),
    ("set attributes, 32 bits", "16 0 0x40046602 B", Everywhere),
    ("set extended attributes", "16 0 0x401c5820 B", Everywhere),
    ("type into a terminal", "16 0 0x5412 B", Everywhere),
    ("file_setattr", "469 -1 0 0 0 0", Everywhere),
    ("move_pages", "279 A 0 0 0 0 0", Everywhere),
    ("x32", "0x40000209 0 0 0 0", Everywhere),
    ("chmod", "90 0 0", Plan),
    ("fchmod", "91 -1 0", Plan),
    ("utimensat", "280 -1 0 0 0xffff", Plan),
    ("setxattr", "188 0 0 0 0 0", Plan),
    ("socket of this machine", "41 1 1 0", Plan),
    ("pair of sockets of the network", "41 2 1 0", Offline),
    ("socket of the network, version 6", "41 10 2 0", Offline),
    ("socket of this machine, offline", "41 1 1 0", Offline),
    ("netlink", "41 16 3 0", Offline),
    ("vsock", "41 40 1 0", Everywhere),
    ("packet socket", "41 17 3 0", Everywhere),
    ("AF_ALG socket", "41 38 5 0", Everywhere),
    ("raw", "41 2 3 1", Everywhere),
    ("bluetooth", "41 31 3 1", Everywhere),
    ("unshare mounts", "272 0x20000", Everywhere),
    ("unshare time", "272 0x80", Everywhere),
    ("clone3", "435 0 0", Everywhere),
    (
        "clone with a user namespace",
        "56 0x10000011 0 0 0 0",
        Everywhere,
    ),
    ("unshare user", "272 0x10000000", Everywhere),
];

/// Makes the system calls listed in `calls.txt`, one a line (`name|number argument ...`), and
/// prints whether each was refused.
const CALLER: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
vector = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
names = {"A": int(os.environ["AGENT"]), "O": int(os.environ["OTHER"]), "B": ctypes.addressof(buffer), "V": ctypes.addressof(vector)}
for line in open("calls.txt"):
    name, call = line.rstrip("\n").split("|")
    words = [names[w] if w in names else int(w, 0) for w in call.split()]
    ctypes.set_errno(0)
    done = libc.syscall(*[ctypes.c_long(w) for w in words])
    # The child of a successful clone.
    if words[0] == 56 and done == 0:
        os._exit(0)
    refused = done == -1 and ctypes.get_errno() in (errno.EPERM, errno.ESRCH, errno.EACCES, errno.ENOSYS)
    print("probe|%s|%s" % (name, "cannot" if refused else "can"), flush=True)
"#;

struct Setting<'a> {
    mechanism: &'a str,
    mode: &'a str,
    network: bool,
    root: bool,
}

impl Setting<'_> {
    fn holds(&self, condition: ProbeSetup) -> bool {
        match condition {
            Everywhere => true,
            Plan => self.mode == "plan",
            Build => self.mode == "build",
            Offline => !self.network,
            Online => self.network,
            Bwrap => self.mode == "build" && self.mechanism != "landlock",
            Landlock => self.mode == "build" && self.mechanism == "landlock",
            Root => self.root,
        }
    }
}

/// Reports the reason for a skipped probe.
fn skipped(why: &str) {
    report(&format!("skipped: {why}"));
}

#[expect(
    clippy::print_stdout,
    reason = "shows the skipped probes to the person who runs the tests"
)]
fn report(text: &str) {
    println!("{text}");
}

fn every_probe(mechanism: &str, ordinary: bool) {
    if !cfg!(target_os = "linux") {
        return skipped("these mechanisms are Linux's");
    }
    let root = rustix::process::geteuid().is_root();
    let become_nobody = ordinary && root;
    if ordinary && !root {
        return skipped("this is an ordinary user already");
    }
    if become_nobody && !Path::new("/usr/bin/setpriv").exists() {
        return skipped("there is no setpriv to become an ordinary user with");
    }
    for (mode, network) in [("plan", false), ("build", true), ("build", false)] {
        probe(
            &Setting {
                mechanism,
                mode,
                network,
                root: root && !ordinary,
            },
            become_nobody,
        );
    }
}

/// User id of `nobody`.
const NOBODY_UID: u32 = 65534;

fn give_away(path: &Path) {
    let data = fs::symlink_metadata(path).unwrap();
    lchown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    if data.is_dir() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            give_away(&entry.path());
        }
    }
}

/// Another process of the same user. Ended when dropped.
struct OtherProcess(Child);

impl Drop for OtherProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The targets of the probes, and the user who attacks.
struct Fixture {
    project: Project,
    model: Model,
    /// A directory that is not below a temporary directory.
    outside: TempDir,
    other: OtherProcess,
    listener: TcpListener,
    binary: PathBuf,
    /// Run by the user `nobody`.
    nobody: bool,
}

impl Fixture {
    fn new(setting: &Setting<'_>, nobody: bool) -> Option<Self> {
        let outside = elsewhere()?;
        fs::write(outside.path().join("file"), "untouched").unwrap();
        let call = json!({ "command": "bash attack.sh", "description": "Probe" });
        let model =
            Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.")).unwrap());
        let mut project = Project::new();
        project.provider(
            &model.base(),
            &json!({ "sandbox": { "mode": "auto", "network": setting.network }, "permission": { "bash": "allow" } }),
        );
        if setting.mechanism != BWRAP_AND_LANDLOCK {
            only(&mut project, setting.mechanism);
        }
        project.set("PROBE_API_KEY", Some("the-secret-value"));
        // rustup looks for toolchains in the home directory, which the test replaces.
        if let Some(rustup) = std::env::home_dir()
            .map(|home| home.join(".rustup"))
            .filter(|path| path.is_dir())
        {
            project.set("RUSTUP_HOME", rustup.to_str());
        }
        for (path, text) in [
            ("AGENTS.md", "Be brief.\n"),
            (".claude/settings.json", "{}\n"),
            (".vscode/settings.json", "{}\n"),
            (".cargo/config.toml", ""),
            (
                "hello.c",
                "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
            ),
            (
                "hello.rs",
                "fn main() { std::thread::spawn(|| println!(\"hello\")).join().unwrap(); }\n",
            ),
            ("call.py", CALLER),
            ("storm.c", STORM),
            ("listen.py", LISTENER),
        ] {
            project.write(path, text);
        }
        project.git();
        project.write(".git/modules/m/HEAD", "ref: refs/heads/main\n");
        project.write(".git/modules/m/config", "");
        fs::remove_file(project.path(".git/info/attributes")).ok();
        let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_adjutant"));
        if nobody {
            // The binary may be in a directory that only root can read.
            let copy = project.path("tmp:adjutant");
            // Copied by `cp`: a program that another test starts meanwhile would inherit our
            // descriptor, and running the copy would fail with ETXTBSY.
            assert!(
                Command::new("cp")
                    .args([&binary, &copy])
                    .status()
                    .unwrap()
                    .success()
            );
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
            binary = copy;
            give_away(project.cwd().parent().unwrap());
            give_away(outside.path());
        }
        let mut sleep = Command::new("sleep");
        sleep
            .arg("600")
            .env("ANOTHERS", "variable")
            .stdin(Stdio::null());
        let other = OtherProcess(as_user(&mut sleep, nobody).spawn().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Some(Self {
            project,
            model,
            outside,
            other,
            listener,
            binary,
            nobody,
        })
    }

    /// Returns the tools that work outside of a sandbox.
    fn tools(&self) -> Vec<(&'static str, &'static str)> {
        let works = |(name, line): &(&'static str, &'static str)| {
            let mut bash = self.project.command("bash");
            let line = format!(
                "mkdir tried && cp hello.* storm.c listen.py tried && cd tried && ({line}) > /dev/null 2>&1"
            );
            bash.args(["-c", &line]).current_dir(self.project.cwd());
            let works = as_user(&mut bash, self.nobody).status().unwrap().success();
            fs::remove_dir_all(self.project.path("tried")).ok();
            if !works {
                skipped(&format!(
                    "{name} does not work here without a sandbox either"
                ));
            }
            works
        };
        TOOLS.iter().copied().filter(works).collect()
    }

    /// Writes the script that tries everything; returns the expected results.
    fn script(&self, setting: &Setting<'_>) -> BTreeMap<String, bool> {
        let mut wanted = BTreeMap::new();
        let mut script = format!(
            "export OTHER={} OUT={} PORT={} AGENT=\"$(cat agent)\" DATA={}\n",
            self.other.0.id(),
            self.outside.path().display(),
            self.listener.local_addr().unwrap().port(),
            self.project.path("~/.local/share/adjutant").display(),
        );
        script.push_str("try() { if timeout 60 bash -c \"$2\" > /dev/null 2>&1; then echo \"probe|$1|can\"; else echo \"probe|$1|cannot\"; fi; }\n");
        let mut row = |name: &str, line: &str, can: bool| {
            let quoted = |text: &str| text.replace('\'', "'\\''");
            writeln!(script, "try '{}' '{}'", quoted(name), quoted(line)).unwrap();
            wanted.insert(name.to_owned(), can);
        };
        for (name, line, condition, can) in [FILES, CONTROL, PROCESSES, NETWORK].concat() {
            if setting.holds(condition) {
                row(name, line, can);
            }
        }
        if setting.mode == "build" && setting.network {
            for (name, line) in self.tools() {
                // A tracer could take over bubblewrap's own process, unless Landlock forbids it.
                row(
                    &format!("tool: {name}"),
                    line,
                    setting.mechanism != "bwrap" || !TRACING.contains(&name),
                );
            }
        }
        if cfg!(target_arch = "x86_64") && Path::new("/usr/bin/python3").exists() {
            let mut calls = String::new();
            for (name, call, _) in REFUSED
                .iter()
                .filter(|(_, _, condition)| setting.holds(*condition))
            {
                writeln!(calls, "call: {name}|{call}").unwrap();
                wanted.insert(format!("call: {name}"), false);
            }
            self.project.write("calls.txt", &calls);
            script.push_str("/usr/bin/python3 call.py\n");
        } else {
            skipped("system calls are made with python, by their numbers on x86-64");
        }
        script.push_str("echo all tried\n");
        if self.nobody {
            // All other processes of `nobody` belong to these tests.
            script.push_str("kill -9 -1\n");
        }
        self.project.write("attack.sh", &script);
        if self.nobody {
            give_away(&self.project.cwd());
        }
        wanted
    }
}

fn as_user(command: &mut Command, nobody: bool) -> &mut Command {
    if nobody {
        command.uid(NOBODY_UID).gid(NOBODY_UID);
    }
    command
}

fn probe(setting: &Setting<'_>, nobody: bool) {
    let Some(fixture) = Fixture::new(setting, nobody) else {
        return skipped("there is no directory to write in but temporary ones");
    };
    let proven = sandbox_report(
        &fixture,
        if setting.mode == "plan" {
            "readOnly"
        } else {
            "workspaceWrite"
        },
    );
    if setting.mechanism == BWRAP_AND_LANDLOCK && proven["mechanism"] != "bwrap" {
        return skipped("bubblewrap is not here");
    }
    if proven["mechanism"].is_null() {
        why(&proven, setting.mechanism.split(' ').next().unwrap());
        return skipped(&format!(
            "{} does not hold here: {}",
            setting.mechanism, proven["failed"]
        ));
    }
    let wanted = fixture.script(setting);
    let Fixture {
        project,
        model,
        outside,
        mut other,
        binary,
        listener: _listener,
        ..
    } = fixture;
    let editor = if nobody {
        let line = format!(
            "exec setpriv --reuid {NOBODY_UID} --regid {NOBODY_UID} --clear-groups {} acp",
            binary.display()
        );
        Editor::start_through(&project, &line)
    } else {
        Editor::start(&project)
    };
    project.write("agent", &editor.pid().to_string());
    let mut client = Client::of(Arc::new(project), editor);
    let session = client.open();
    // Whatever was done to adjutant, it answers.
    turn(&mut client, &session, setting.mode);
    assert!(
        other.0.try_wait().unwrap().is_none(),
        "the other process was ended"
    );
    client.leave();

    let sees = model.requests().last().unwrap().to_string();
    assert!(sees.contains("all tried"), "{sees}");
    let lines = sees
        .split("\\n")
        .filter_map(|line| line.split_once("probe|")?.1.split_once('|'));
    let found: BTreeMap<&str, bool> = lines.map(|(name, how)| (name, how == "can")).collect();
    let wrong: Vec<String> = wanted
        .iter()
        .filter(|(name, can)| found.get(name.as_str()) != Some(can))
        .map(|(name, can)| format!("{name}: wanted {can}, found {:?}", found.get(name.as_str())))
        .collect();
    let setting = format!(
        "{}, {}, network {}",
        setting.mechanism, setting.mode, setting.network
    );
    assert!(wrong.is_empty(), "{setting}:\n{}", wrong.join("\n"));
    assert_eq!(
        fs::read_to_string(outside.path().join("file")).unwrap(),
        "untouched"
    );
    report(&format!("{setting}: {} probes", wanted.len()));
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Returns the report of `adjutant doctor` to that user on the sandbox at a level.
fn sandbox_report(fixture: &Fixture, level: &str) -> Value {
    let mut doctor = fixture.project.command(&fixture.binary);
    doctor
        .args(["doctor", "--json"])
        .current_dir(fixture.project.cwd());
    let output = as_user(&mut doctor, fixture.nobody).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    report["sandbox"][level].clone()
}
