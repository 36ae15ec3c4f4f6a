//! Faults while files are edited and restored: killed processes, refused system calls, users who
//! edit at the same time.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tools::files::disk;

use super::{Writer, memory_directory, tell};
use crate::client::Client;
use crate::model::{self, Model};
use crate::parallel::{repetitions, run_in_parallel};
use crate::project::Project;

/// Writes one of two contents over a file, again and again.
pub(super) fn overwrite(dir: &Path) {
    let path = dir.canonicalize().unwrap().join("target");
    let contents = [vec![b'a'; LARGE], vec![b'b'; LARGE]];
    tell("ready");
    for content in contents.iter().cycle() {
        disk::write(&path, content).unwrap();
    }
}

const LARGE: usize = 1 << 20;

/// FW01: a megabyte is written over another one, and the writer is killed.
pub(super) fn fw01_killed_edit_leaves_whole_files() {
    run_in_parallel(repetitions(500, 120), |number| {
        let dir = memory_directory();
        let path = dir.path().join("target");
        fs::write(&path, vec![b'a'; LARGE]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let attribute =
            rustix::fs::setxattr(&path, "user.kept", b"yes", rustix::fs::XattrFlags::empty())
                .is_ok();
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut writer = Writer::start("overwrite", "-", dir.path());
        writer.until("ready");
        thread::sleep(Duration::from_micros(random.u64(..20_000))); // the moment of the kill
        writer.kill();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), LARGE);
        assert!(content.iter().all(|byte| *byte == content[0]), "a mixture");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o751
        );
        if attribute {
            let mut value = [0_u8; 8];
            assert_eq!(
                rustix::fs::getxattr(&path, "user.kept", &mut value[..]).unwrap(),
                3
            );
        }
        disk::remove_leftovers(dir.path());
        assert_eq!(
            names(dir.path()),
            ["target"],
            "something unfinished was left"
        );
    });
}

/// FW01 with the agent itself: killed while it edits, it completes its record at the next start.
pub(super) fn fw01_agent_killed_during_an_edit_leaves_whole_files() {
    let old = "old words\n".repeat(40_000);
    let words =
        ["north", "south", "east", "west"].map(|way| format!("{way} words\n").repeat(40_000));
    run_in_parallel(repetitions(200, 40), |number| {
        let edits = words.windows(2).map(|pair| (&pair[0][..5], &pair[1][..5]));
        let edits: String = [("old", "north")]
            .into_iter()
            .chain(edits.map(|(from, to)| (from.trim(), to.trim())))
            .map(|(from, to)| {
                let call = json!({ "filePath": "f.txt", "oldString": from, "newString": to, "replaceAll": true });
                format!("call edit {call}\n")
            })
            .collect();
        let script = format!(
            "call read {{\"filePath\":\"f.txt\",\"limit\":1}}\n---\n{edits}---\ntext: Done.\n"
        );
        let model = Model::start(model::script(&script).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "edit": "allow" } }));
        project.write("f.txt", &old);
        let mut client = Client::new(project.clone());
        let session = client.open();
        client.prompt(2, &session, "Turn it around.");
        while !client.receive().to_string().contains("f.txt") {}
        let mut random = fastrand::Rng::with_seed(number as u64);
        thread::sleep(Duration::from_micros(random.u64(..400_000))); // the moment of the kill
        client.editor.signal(Signal::KILL);
        client.lost();
        let found = fs::read_to_string(project.path("f.txt")).unwrap();
        assert!(
            found == old || words.contains(&found),
            "{number}: a mixture of {} bytes",
            found.len()
        );
        let mut again = Client::new(project.clone());
        let load = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
        again.request(2, "session/load", &load);
        assert!(again.answer(2).0.get("result").is_some());
        assert_eq!(
            names(&project.cwd()),
            ["f.txt"],
            "{number}: something unfinished was left"
        );
        assert_eq!(fs::read_to_string(project.path("f.txt")).unwrap(), found);
        again.prompt(3, &session, "/undo");
        let (_, updates) = again.answer(3);
        assert!(
            fs::read_to_string(project.path("f.txt")).unwrap() == old,
            "{number}: {updates:?}"
        );
        again.leave();
    });
}

/// Calls of the system that a write needs, and how each may be refused.
const CALLS: [&str; 5] = ["openat2", "create", "write", "fchmod", "rename"];
const REASONS: [i32; 6] = [
    libc::EIO,
    libc::ENOSPC,
    libc::EACCES,
    libc::EDQUOT,
    libc::EROFS,
    libc::EMFILE,
];

/// Returns the system library's text for an error number; the texts differ between systems.
fn reason(errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno).to_string();
    error
        .split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Writes over a file, after a call of the system was taken from this process for good.
pub(super) fn write_without(what: &str, dir: &Path) {
    let path = dir.canonicalize().unwrap().join("target");
    let (call, errno) = what.split_once('-').unwrap();
    let errno: i32 = errno.parse().unwrap();
    match call {
        "size" => {
            use rustix::process::{Resource, Rlimit, setrlimit};
            setrlimit(
                Resource::Fsize,
                Rlimit {
                    current: u64::try_from(errno).ok().map(|kib| kib * 1024),
                    maximum: None,
                },
            )
            .unwrap();
        }
        "openat2" => super::forbid(&[(libc::SYS_openat2, None)], errno),
        "create" => super::forbid(
            &[(libc::SYS_openat, Some((2, libc::O_CREAT as u64)))],
            errno,
        ),
        "write" => super::forbid_above(libc::SYS_write, 2, errno),
        "fchmod" => super::forbid(&[(libc::SYS_fchmod, None)], errno),
        "rename" => super::forbid(
            &[(libc::SYS_renameat, None), (libc::SYS_renameat2, None)],
            errno,
        ),
        call => panic!("{call}?"),
    }
    match disk::write(&path, &vec![b'n'; 40 << 10]) {
        Ok(()) => tell("written"),
        Err(e) => tell(&format!("refused: {e}")),
    }
}

/// FW02: fails every system call of a write in every way, and fills the disk after every number of
/// bytes. The old file is unchanged, and the reason is reported.
pub(super) fn fw02_refused_write_is_reported() {
    let calls = CALLS
        .iter()
        .flat_map(|call| REASONS.map(|errno| (format!("{call}-{errno}"), reason(errno))));
    let sizes = (0..40).map(|kib| (format!("size-{kib}"), reason(libc::EFBIG)));
    let cases: Vec<(String, String)> = calls.chain(sizes).collect();
    run_in_parallel(cases.len(), |number| {
        let (case, why) = &cases[number];
        let dir = memory_directory();
        let path = dir.path().join("target");
        fs::write(&path, "old words\n").unwrap();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$0\""])
            .arg(std::env::current_exe().unwrap());
        let output = Writer::run(command, "write-without", case, dir.path()).rest();
        assert!(
            output.starts_with("refused: ") && output.contains(why.as_str()),
            "{case}: {output}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "old words\n", "{case}");
        assert_eq!(
            names(dir.path()),
            ["target"],
            "{case}: something unfinished was left"
        );
    });
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Changes by a user between a turn and its undo.
const USERS: [&str; 20] = [
    "true",
    "echo mine >> b.txt",
    "echo mine > c.txt",
    "rm d.txt",
    "rm a.txt",
    "git add -A",
    "git add -A; git commit -qm user",
    "git checkout -qb other; echo mine >> d.txt",
    "git stash -q",
    "mkdir -p ignored; echo mine > ignored/y; echo mine > z.log",
    "echo mine > n/mine.txt",
    "chmod +x a.txt",
    "rm a.txt; ln -s b.txt a.txt",
    "mv n/new.txt n/renamed.txt",
    "mv b.txt moved.txt",
    "echo mine > o.txt",
    "git checkout -q -- a.txt",
    "git reset -q --hard; git clean -qfd",
    "echo mine >> b.txt; git add b.txt; echo more >> b.txt",
    "printf 'a\\nold\\nb\\n' > a.txt; git tag here; git branch there",
];

/// Returns every file below a directory, as a user would tell it from another: mode, words, where
/// it leads.
fn tree(root: &Path, of_git: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if !of_git && name == ".git" {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                found.insert(
                    name,
                    format!("-> {}", fs::read_link(&path).unwrap().display()),
                );
            } else {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o111;
                found.insert(name, format!("{mode:o} {:?}", fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// FW08: the agent has changed files, by edits or by a command; the user does something; the turn
/// is undone. Files that are still as the agent left them are as before, all others are as the user
/// left them, and the repository is unchanged, byte by byte. The redo restores exactly the undone
/// changes.
pub(super) fn fw08_undo_preserves_a_users_changes() {
    run_in_parallel(USERS.len() * 2, |number| {
        let user = USERS[number / 2];
        let by_command = number % 2 == 1;
        let case = format!(
            "{user}; changed by {}",
            if by_command { "a command" } else { "edits" }
        );
        let calls = if by_command {
            let line = "sed -i s/old/new/ a.txt b.txt; mkdir n; echo new > n/new.txt; rm o.txt";
            format!("call bash {}\n---\n", json!({ "command": line }))
        } else {
            let edit = |name: &str| {
                let call = json!({ "filePath": name, "oldString": "old", "newString": "new" });
                format!("call edit {call}\n")
            };
            let reads = ["a.txt", "b.txt"]
                .map(|name| format!("call read {}\n", json!({ "filePath": name })));
            let write = json!({ "filePath": "n/new.txt", "content": "new\n" });
            let edits = format!("{}{}call write {write}\n", edit("a.txt"), edit("b.txt"));
            format!("{}---\n{edits}---\n", reads.concat())
        };
        let model = Model::start(model::script(&format!("{calls}text: Done.\n")).unwrap());
        let mut project = Project::new();
        for who in ["AUTHOR", "COMMITTER"] {
            project.set(&format!("GIT_{who}_NAME"), Some("A"));
            project.set(&format!("GIT_{who}_EMAIL"), Some("a@example.org"));
        }
        let project = Arc::new(project);
        project.provider(
            &model.base(),
            &json!({ "permission": { "bash": "allow", "edit": "allow" } }),
        );
        for name in ["a.txt", "b.txt", "d.txt", "o.txt"] {
            project.write(name, "a\nold\nb\n");
        }
        project.write(".gitignore", "*.log\nignored/\n");
        project.git();
        let before = tree(&project.cwd(), false);
        let mut client = Client::new(project.clone());
        let session = client.open();
        client.prompt(2, &session, "Renew it.");
        assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
        let left = tree(&project.cwd(), false);
        assert_eq!(
            left.len(),
            before.len() + usize::from(!by_command),
            "{case}: {left:?}"
        );
        project.shell(user);
        let users = tree(&project.cwd(), false);
        let repository = tree(&project.path(".git"), true);
        client.prompt(3, &session, "/undo");
        let text = client
            .answer(3)
            .1
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        let after = tree(&project.cwd(), false);
        let paths = before.keys().chain(left.keys()).chain(users.keys());
        for path in paths {
            let was = before.get(path);
            let agents = left.get(path);
            let now = users.get(path);
            // No sandbox watches the command, so all that it changed is left, and named.
            let expected = if now == agents && !by_command {
                was
            } else {
                now
            };
            assert_eq!(after.get(path), expected, "{case}: {path}: {text}");
            let conflict = was != agents && now != was && (by_command || now != agents);
            assert!(
                !conflict || text.contains(&format!("`{path}`")),
                "{case}: {path} is not named: {text}"
            );
        }
        assert_eq!(
            after
                .keys()
                .filter(|path| !users.contains_key(*path) && !before.contains_key(*path))
                .count(),
            0
        );
        client.prompt(4, &session, "/redo");
        client.answer(4);
        assert_eq!(tree(&project.cwd(), false), users, "{case}: the redo");
        assert_eq!(
            tree(&project.path(".git"), true),
            repository,
            "{case}: the repository"
        );
        client.leave();
        assert_eq!(model.problems(), Vec::<String>::new());
    });
}

/// Number of files that the killed undo restores.
const FILES: usize = 50;

fn revert(project: &Project, more: &[&str]) -> Command {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(["sessions", "revert", "last"])
        .args(more)
        .current_dir(project.cwd());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// FW10: an undo of fifty files is killed. Each file is old or new; the undo can be finished, or
/// taken back.
pub(super) fn fw10_killed_undo_is_completed() {
    let kills = repetitions(200, 48);
    let halves = std::sync::atomic::AtomicUsize::new(0);
    let unfinished = std::sync::atomic::AtomicUsize::new(0);
    run_in_parallel(4, |part| {
        let files = (1..=FILES)
            .map(|n| format!(" f{n}.txt"))
            .collect::<String>();
        let call = json!({ "command": format!("sed -i s/old/new/{files}") });
        let model =
            Model::start(model::script(&format!("call bash {call}\n---\ntext: Done.\n")).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
        let content = |word: &str| format!("{word} words\n").repeat(2_000);
        for n in 1..=FILES {
            // Each line has the word, so that a mixture would be seen.
            project.write(
                &format!("f{n}.txt"),
                &content("old").replacen("old", &format!("{n} old"), 1),
            );
        }
        let all = |word: &str| {
            let texts = (1..=FILES)
                .map(|n| fs::read_to_string(project.path(&format!("f{n}.txt"))).unwrap());
            texts
                .filter(|text| text.lines().next().is_some_and(|line| line.contains(word)))
                .count()
        };
        let sizes: Vec<u64> = (1..=FILES)
            .map(|n| {
                fs::metadata(project.path(&format!("f{n}.txt")))
                    .unwrap()
                    .len()
            })
            .collect();
        let mut client = Client::new(project.clone());
        let session = client.open();
        client.prompt(2, &session, "Renew it.");
        assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
        client.leave();
        assert_eq!(all("new"), FILES);
        let mut random = fastrand::Rng::with_seed(part as u64);
        for kill in 0..kills / 4 {
            let mut undo = revert(&project, &["--force"]).spawn().unwrap();
            // Every second kill comes when the first file is set back, the others at any moment.
            let first = project.path("f1.txt");
            let is_begun = || fs::read_to_string(&first).is_ok_and(|text| text.contains("old"));
            if kill % 4 < 2 {
                while !is_begun() && undo.try_wait().unwrap().is_none() {
                    thread::yield_now();
                }
            } else {
                thread::sleep(Duration::from_micros(random.u64(10_000..160_000))); // the moment of the kill
            }
            undo.kill().ok();
            undo.wait().unwrap();
            for (n, size) in (1..=FILES).zip(&sizes) {
                let text = fs::read_to_string(project.path(&format!("f{n}.txt"))).unwrap();
                assert_eq!(
                    text.len() as u64,
                    *size,
                    "{part}, {kill}: f{n}.txt is not whole"
                );
            }
            let old = all("old");
            let new = all("new");
            assert_eq!(old + new, FILES);
            halves.fetch_add(
                usize::from(old > 0 && new > 0),
                std::sync::atomic::Ordering::Relaxed,
            );
            let taken_back = kill % 2 == 1 && old > 0;
            let output = revert(
                &project,
                if taken_back {
                    &["--redo"]
                } else {
                    &["--force"]
                },
            )
            .output()
            .unwrap();
            let wanted = if taken_back { "new" } else { "old" };
            assert_eq!(
                all(wanted),
                FILES,
                "{part}, {kill}, {old} old: {}",
                words(&output)
            );
            unfinished.fetch_add(
                usize::from(output.status.success()),
                std::sync::atomic::Ordering::Relaxed,
            );
            if !taken_back {
                let output = revert(&project, &["--redo"]).output().unwrap();
                assert_eq!(all("new"), FILES, "{part}, {kill}: {}", words(&output));
            }
            let left: Vec<String> = names(&project.cwd())
                .into_iter()
                .filter(|name| !name.starts_with('f'))
                .collect();
            assert_eq!(left, Vec::<String>::new(), "something unfinished was left");
        }
    });
    let halves = halves.into_inner();
    assert!(
        halves > 0,
        "no kill came half-way; {} were finished",
        unfinished.into_inner()
    );
}
