use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::objects::Objects;
use super::{
    ComparisonLimits, ContentUnavailable, Preparation, PreparationEnd, Tracker, Untracked,
    WriteJournal, WriterProbe,
};
use base::id::CallId;
use base::lock::lock;

struct Fixture {
    _dir: tempfile::TempDir,
    root: PathBuf,
    data: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let root = base.join("root");
        let data = base.join("data");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&data).unwrap();
        Self {
            _dir: dir,
            root,
            data,
        }
    }

    fn tracker(&self) -> Arc<Tracker> {
        Arc::new(Tracker::new(&self.data, &self.root, None))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Waits for the next tick of the file system's clock.
fn pass_a_tick(fixture: &Fixture) {
    let path = fixture.data.join("clock");
    let now = || {
        fs::write(&path, "").unwrap();
        fs::metadata(&path).unwrap().modified().unwrap()
    };
    let before = now();
    while now() <= before {}
}

/// Returns the changes that `work` makes: path, old state, new state.
fn changes_of(fixture: &Fixture, tracker: &Arc<Tracker>, work: impl FnOnce()) -> Vec<String> {
    let go = AtomicBool::new(false);
    let mark = tracker.mark(&go).unwrap();
    work();
    let shown = |state: Option<&transcript::FileState>| match state {
        None => "nothing".to_owned(),
        Some(state) => match tracker.content(state) {
            Ok(bytes) => format!("{:?} {:?}", state.kind, String::from_utf8_lossy(&bytes)),
            Err(e) => e.to_string(),
        },
    };
    let changes = tracker.since(&mark, &go).unwrap();
    let line = |change: &transcript::FileChange| {
        let path = Path::new(&change.path).strip_prefix(&fixture.root).unwrap();
        format!(
            "{}: {} -> {}",
            path.display(),
            shown(change.old.as_ref()),
            shown(change.new.as_ref())
        )
    };
    changes.iter().map(line).collect()
}

#[test]
fn comparison_finds_every_kind_of_change() {
    let fixture = Fixture::new();
    for name in [
        "same",
        "edited",
        "gone",
        "deep/er/f",
        "mode",
        "touched",
        "moved",
        "becomes-link",
        "swapped",
    ] {
        fixture.write(name, name);
    }
    let path = |name: &str| fixture.root.join(name);
    symlink("edited", path("link")).unwrap();
    let tracker = fixture.tracker();
    let found = changes_of(&fixture, &tracker, || {
        fixture.write("edited", "EDITED");
        fs::remove_file(path("gone")).unwrap();
        fs::remove_dir_all(path("deep")).unwrap();
        fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fixture.write("touched", "touched");
        fs::rename(path("moved"), path("elsewhere")).unwrap();
        fs::remove_file(path("becomes-link")).unwrap();
        symlink("same", path("becomes-link")).unwrap();
        fs::remove_file(path("link")).unwrap();
        symlink("mode", path("link")).unwrap();
        fixture.write("new/in/new", "x");
        fs::remove_file(path("swapped")).unwrap();
        fixture.write("swapped/now-a-directory", "d");
    });
    assert_eq!(
        found,
        [
            "becomes-link: Plain \"becomes-link\" -> Link \"same\"",
            "deep/er/f: Plain \"deep/er/f\" -> nothing",
            "edited: Plain \"edited\" -> Plain \"EDITED\"",
            "elsewhere: nothing -> Plain \"moved\"",
            "gone: Plain \"gone\" -> nothing",
            "link: Link \"edited\" -> Link \"mode\"",
            "mode: Plain \"mode\" -> Program \"mode\"",
            "moved: Plain \"moved\" -> nothing",
            "new/in/new: nothing -> Plain \"x\"",
            "swapped: Plain \"swapped\" -> nothing",
            "swapped/now-a-directory: nothing -> Plain \"d\"",
        ]
    );
    assert_eq!(changes_of(&fixture, &tracker, || {}), Vec::<String>::new());
    // A change that is reverted is not a change.
    assert_eq!(
        changes_of(&fixture, &tracker, || {
            fixture.write("same", "other");
            fixture.write("same", "same");
        }),
        Vec::<String>::new()
    );
}

/// Changes a file within one tick of the clock, without changing its length. Repeats it many times,
/// because the timing is a matter of luck.
#[test]
fn change_within_one_clock_tick_is_found() {
    let fixture = Fixture::new();
    fixture.write("f", "0000");
    let tracker = fixture.tracker();
    for n in 1..60 {
        let old = format!("{:04}", n - 1);
        let new = format!("{n:04}");
        let found = changes_of(&fixture, &tracker, || fixture.write("f", &new));
        assert_eq!(found, [format!("f: Plain {old:?} -> Plain {new:?}")]);
        let name = format!("new-{n}");
        assert_eq!(
            changes_of(&fixture, &tracker, || fixture.write(&name, "")),
            [format!("{name}: nothing -> Plain \"\"")]
        );
    }
}

#[test]
fn ignored_files_are_not_recorded() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*.log\n/build/\n");
    fixture.write("sub/.gitignore", "!keep.log\nsecret\n");
    for name in [
        "a.log",
        "build/out",
        "sub/keep.log",
        "sub/secret",
        "sub/seen",
        ".git/config",
        "mod/.git",
        "mod/f",
    ] {
        fixture.write(name, "1");
    }
    let tracker = fixture.tracker();
    let found = changes_of(&fixture, &tracker, || {
        for name in [
            "a.log",
            "build/out",
            "sub/keep.log",
            "sub/secret",
            "sub/seen",
            ".git/config",
            "mod/.git",
            "mod/f",
        ] {
            fixture.write(name, "2");
        }
        fixture.write("new.log", "2");
        fixture.write("sub/secret.d/f", "2");
    });
    assert_eq!(
        found,
        [
            "mod/f: Plain \"1\" -> Plain \"2\"",
            "sub/keep.log: Plain \"1\" -> Plain \"2\"",
            "sub/secret.d/f: nothing -> Plain \"2\"",
            "sub/seen: Plain \"1\" -> Plain \"2\"",
        ]
    );
    pass_a_tick(&fixture);
    // A file that is not ignored any more was not created, and a file that is ignored now was not
    // removed.
    let found = changes_of(&fixture, &tracker, || {
        fixture.write("sub/.gitignore", "seen\n");
        fixture.write("sub/made", "3");
    });
    assert_eq!(
        found,
        [
            "sub/.gitignore: Plain \"!keep.log\\nsecret\\n\" -> Plain \"seen\\n\"",
            "sub/made: nothing -> Plain \"3\""
        ]
    );
    let found = changes_of(&fixture, &tracker, || fixture.write("sub/secret", "4"));
    assert_eq!(found, ["sub/secret: Plain \"2\" -> Plain \"4\""]);
    pass_a_tick(&fixture);
    // A renamed file that was ignored before was not created.
    let found = changes_of(&fixture, &tracker, || {
        fs::rename(fixture.root.join("a.log"), fixture.root.join("a.txt")).unwrap()
    });
    assert_eq!(found, Vec::<String>::new());
}

/// Prevents that a data directory inside the project is recorded in itself, again and again.
#[test]
fn own_data_is_not_recorded() {
    let mut fixture = Fixture::new();
    fixture.data = fixture.root.join("home/data");
    fs::create_dir_all(&fixture.data).unwrap();
    fixture.write("f", "1");
    let tracker = fixture.tracker();
    assert_eq!(
        changes_of(&fixture, &tracker, || fixture.write("f", "2")),
        ["f: Plain \"1\" -> Plain \"2\""]
    );
    assert_eq!(
        changes_of(&fixture, &tracker, || fixture.write("home/data/x", "2")),
        Vec::<String>::new()
    );
}

/// The first reading is not limited to the time that a call waits, and a call waits no longer than
/// that for it.
#[test]
fn project_is_read_in_advance() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let tracker = fixture.tracker();
    *lock(&tracker.preparation) = Preparation::Running;
    let off = tracker.mark(&AtomicBool::new(false)).unwrap_err();
    assert_eq!(off, Untracked::Preparing(fixture.root.clone()));
    assert_eq!(
        [tracker.must_notify(&off), tracker.must_notify(&off)],
        [true, false]
    );
    let never = Untracked::ManyFiles(fixture.root.clone());
    assert!(
        tracker.must_notify(&never),
        "another reason is said as well"
    );
    drop(PreparationEnd(&tracker));
    let changed = changes_of(&fixture, &tracker, || fixture.write("a", "2"));
    assert_eq!(changed, ["a: Plain \"1\" -> Plain \"2\""]);

    let tracker = fixture.tracker();
    tracker.prepare(&AtomicBool::new(false));
    assert!(tracker.covers(&fixture.root.join("a")));
    // A second session of the project does not read it again.
    tracker.prepare(&AtomicBool::new(true));
    assert_eq!(*lock(&tracker.preparation), Preparation::Ended);
    let changed = changes_of(&fixture, &tracker, || fixture.write("a", "3"));
    assert_eq!(changed, ["a: Plain \"2\" -> Plain \"3\""]);
}

#[test]
fn saved_index_is_used_by_next_process() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let tracker = fixture.tracker();
    drop(tracker.mark(&AtomicBool::new(false)).unwrap());
    tracker.save();
    fixture.write("a", "2");
    fixture.write("b", "2");
    let tracker = fixture.tracker();
    // Changes between the processes are not attributed.
    assert_eq!(changes_of(&fixture, &tracker, || {}), Vec::<String>::new());
    let both = changes_of(&fixture, &tracker, || fixture.write("b", "3"));
    assert_eq!(both, ["b: Plain \"2\" -> Plain \"3\""]);
    fs::write(fixture.data.join("snapshots").join("x"), "").unwrap();
    let index = walk(&fixture.data)
        .into_keys()
        .find(|path| path.ends_with("index.json"))
        .unwrap();
    fs::write(index, "garbage").unwrap();
    assert_eq!(
        changes_of(&fixture, &fixture.tracker(), || fixture.write("b", "4")),
        ["b: Plain \"3\" -> Plain \"4\""]
    );
}

#[test]
fn marks_see_only_later_changes() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let tracker = fixture.tracker();
    let go = AtomicBool::new(false);
    let first = tracker.mark(&go).unwrap();
    fixture.write("a", "2");
    let second = tracker.mark(&go).unwrap();
    fixture.write("b", "1");
    assert_eq!(tracker.since(&second, &go).unwrap().len(), 1);
    drop(second);
    assert_eq!(tracker.since(&first, &go).unwrap().len(), 2);
    drop(first);
    let third = tracker.mark(&go).unwrap();
    assert_eq!(tracker.since(&third, &go).unwrap(), []);
}

#[test]
fn comparison_is_stopped_while_another_session_reads_files() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let tracker = fixture.tracker();
    let mark = tracker.mark(&AtomicBool::new(false)).unwrap();
    let stop = Arc::<AtomicBool>::default();
    let (sender, result) = std::sync::mpsc::channel();
    let reading = tracker.inner.lock();
    let stopped = (tracker.clone(), stop.clone());
    std::thread::spawn(move || {
        let (tracker, stop) = stopped;
        let compared = tracker.since(&mark, &stop);
        drop(mark);
        sender.send(compared).unwrap();
    });
    stop.store(true, Ordering::Relaxed);
    let compared = result.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(compared.unwrap_err(), Untracked::Stopped);
    drop(reading);
    assert!(!tracker.has_marks());
}

#[test]
fn cancelled_comparison_reports_nothing_false() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("d/b", "1");
    let tracker = fixture.tracker();
    let go = AtomicBool::new(false);
    let stop = AtomicBool::new(true);
    assert_eq!(tracker.mark(&stop).unwrap_err(), Untracked::Stopped);
    let mark = tracker.mark(&go).unwrap();
    fixture.write("a", "2");
    fs::remove_dir_all(fixture.root.join("d")).unwrap();
    assert_eq!(tracker.since(&mark, &stop).unwrap_err(), Untracked::Stopped);
    let found: Vec<_> = tracker
        .since(&mark, &go)
        .unwrap()
        .into_iter()
        .map(|change| change.new.is_some())
        .collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn large_content_is_reported_as_not_stored() {
    let fixture = Fixture::new();
    let large = |byte: &str| byte.repeat(usize::try_from(super::MAX_FILE_BYTES).unwrap() + 1);
    fixture.write("large", &large("a"));
    let tracker = fixture.tracker();
    let found = changes_of(&fixture, &tracker, || fixture.write("large", &large("b")));
    assert_eq!(
        found,
        [format!(
            "large: {} -> {}",
            ContentUnavailable::NotStored,
            ContentUnavailable::NotStored
        )]
    );
    let named = tracker
        .record_file(&fixture.root.join("large"))
        .unwrap()
        .unwrap();
    assert_eq!(tracker.content(&named).unwrap().len(), large("b").len());
    let home = Tracker::new(&fixture.data, &fixture.root, Some(&fixture.root.join("me")));
    let off = Arc::new(home).mark(&AtomicBool::new(false)).unwrap_err();
    assert_eq!(off, Untracked::Everything(fixture.root.clone()));
}

/// Finds no programs that write files.
pub(super) const NO_PROBE: WriterProbe = WriterProbe {
    has_writer: |_| None,
    programs: Vec::new,
};

/// A large file that a program changes is stored if the file system makes clones.
#[test]
fn large_file_is_stored_if_blocks_are_shared() {
    let fixture = Fixture::new();
    let size = usize::try_from(super::MAX_FILE_BYTES).unwrap() + 1;
    let path = fixture.root.join("large");
    fixture.write("large", &"a".repeat(size));
    let tracker = fixture.tracker();
    let journal = WriteJournal::new(tracker.clone(), NO_PROBE);
    let call = CallId::new("call");
    journal.touch(&path, 0, false, &call);
    fixture.write("large", &"b".repeat(size));
    journal.finish(&call);
    let changes = journal.take().files;
    let [change] = &changes[..] else {
        panic!("{changes:?}");
    };
    let expected = if super::file::cloned(&path).is_ok() {
        Ok(vec![b'a'; size])
    } else {
        Err(ContentUnavailable::NotStored)
    };
    let old = tracker.content(change.old.as_ref().unwrap());
    assert!(old == expected);
}

#[test]
fn damaged_content_is_reported() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let text = "x".repeat(10_000);
    for text in ["", "short", &text] {
        let state = tracker.store(text.as_bytes()).unwrap();
        assert_eq!(tracker.content(&state).unwrap(), text.as_bytes());
        let file = walk(&fixture.data)
            .into_keys()
            .find(|path| path.ends_with(&state.hash[2..]))
            .unwrap();
        let stored = fs::read(&file).unwrap();
        fs::write(&file, &stored[..stored.len() - 1]).unwrap();
        assert_eq!(
            tracker.content(&state),
            Err(ContentUnavailable::Damaged),
            "{}",
            text.len()
        );
        fs::remove_file(&file).unwrap();
        assert_eq!(tracker.content(&state), Err(ContentUnavailable::NotFound));
    }
}

/// Checks that neither the content nor the times of the user's repository change.
#[test]
fn repository_is_not_modified() {
    let fixture = Fixture::new();
    for name in [
        ".git/HEAD",
        ".git/index",
        ".git/refs/heads/main",
        ".git/objects/aa/bb",
        ".git/info/exclude",
        "f",
    ] {
        fixture.write(name, "f\n");
    }
    let stamps = |root: &Path| {
        let of = |path: &PathBuf| {
            let data = fs::metadata(path).unwrap();
            (
                fs::read(path).unwrap(),
                data.modified().unwrap(),
                std::os::unix::fs::MetadataExt::ctime_nsec(&data),
            )
        };
        walk(root)
            .into_keys()
            .map(|path| (path.clone(), of(&path)))
            .collect::<Vec<_>>()
    };
    let before = stamps(&fixture.root.join(".git"));
    let tracker = fixture.tracker();
    // Files that `.git/info/exclude` names are ignored.
    assert_eq!(
        changes_of(&fixture, &tracker, || fixture.write("f", "2")),
        Vec::<String>::new()
    );
    tracker.save();
    assert_eq!(stamps(&fixture.root.join(".git")), before);
}

fn walk(root: &Path) -> BTreeMap<PathBuf, ()> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            if entry.path().is_dir() {
                waiting.push(entry.path())
            } else {
                found.insert(entry.path(), ()).unwrap_or(())
            }
        }
    }
    found
}

/// Runs git in the project, without the settings of a user or the system.
#[expect(
    clippy::disallowed_methods,
    reason = "the repository is made by git itself"
)]
fn git(fixture: &Fixture, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", &fixture.data);
    git.env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args);
    let ran = git.current_dir(&fixture.root).output().unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
}

/// Waits until everything that was written before is settled in the index.
fn wait_until_settled(fixture: &Fixture) {
    for _ in 0..12 {
        pass_a_tick(fixture);
    }
}

/// Creates a project whose contents are all in a pack of git.
fn packed(fixture: &Fixture) {
    for (path, text) in [
        ("same", "same"),
        ("edited", "edited"),
        ("gone", "gone"),
        ("deep/er/f", "deep"),
        ("mode", "mode"),
    ] {
        fixture.write(path, text);
    }
    symlink("edited", fixture.root.join("link")).unwrap();
    wait_until_settled(fixture);
    git(fixture, &["init", "-q"]);
    git(fixture, &["add", "."]);
    git(fixture, &["commit", "-qm", "all"]);
    git(fixture, &["gc", "-q"]);
    wait_until_settled(fixture);
    // The index is written again, so that it is younger than every file.
    git(fixture, &["update-index", "--index-version", "4"]);
}

/// Returns the number of stored contents.
fn stored_count(fixture: &Fixture) -> usize {
    fn files(dir: &Path) -> usize {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|entry| {
                if entry.path().is_dir() {
                    files(&entry.path())
                } else {
                    1
                }
            })
            .sum()
    }
    let projects = fs::read_dir(fixture.data.join("snapshots"))
        .into_iter()
        .flatten()
        .flatten();
    projects
        .map(|project| files(&project.path().join("objects")))
        .sum()
}

#[test]
fn content_in_git_is_copied_when_file_changes() {
    let fixture = Fixture::new();
    packed(&fixture);
    let path = |name: &str| fixture.root.join(name);
    let tracker = fixture.tracker();
    assert_eq!(changes_of(&fixture, &tracker, || ()), [""; 0]);
    assert_eq!(stored_count(&fixture), 0, "git has them all");
    let found = changes_of(&fixture, &tracker, || {
        fixture.write("edited", "EDITED");
        fixture.write("same", "same");
        fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(path("link")).unwrap();
        symlink("same", path("link")).unwrap();
        // Removing the repository also removes the contents in git.
        fs::remove_dir_all(path("deep")).unwrap();
        fs::remove_file(path("gone")).unwrap();
        fs::remove_dir_all(path(".git")).unwrap();
    });
    let wanted = [
        "deep/er/f: Plain \"deep\" -> nothing",
        "edited: Plain \"edited\" -> Plain \"EDITED\"",
        "gone: Plain \"gone\" -> nothing",
        "link: Link \"edited\" -> Link \"same\"",
        "mode: Plain \"mode\" -> Program \"mode\"",
    ];
    assert_eq!(found, wanted);
    // The contents are in the store from now on.
    assert_eq!(stored_count(&fixture), 6);
}

#[test]
fn content_in_git_is_verified_by_next_process() {
    let fixture = Fixture::new();
    packed(&fixture);
    assert_eq!(changes_of(&fixture, &fixture.tracker(), || ()), [""; 0]);
    assert_eq!(
        changes_of(&fixture, &fixture.tracker(), || fixture
            .write("edited", "1")),
        ["edited: Plain \"edited\" -> Plain \"1\""]
    );
    assert_eq!(stored_count(&fixture), 2);
    // Contents that git does not have any more are read before any change.
    fs::remove_dir_all(fixture.root.join(".git/objects")).unwrap();
    fs::create_dir_all(fixture.root.join(".git/objects")).unwrap();
    let found = changes_of(&fixture, &fixture.tracker(), || {
        fixture.write("same", "2");
        fs::remove_file(fixture.root.join("gone")).unwrap();
    });
    assert_eq!(
        found,
        [
            "gone: Plain \"gone\" -> nothing",
            "same: Plain \"same\" -> Plain \"2\""
        ]
    );
}

#[test]
fn content_that_git_may_convert_is_stored() {
    // The work after the commit, and the number of the five contents that are stored then.
    type Case = (&'static str, fn(&Fixture), usize);
    let table: [Case; 6] = [
        (
            "an untracked and an edited file",
            |fixture| {
                fixture.write("new", "new");
                fixture.write("edited", "EDITED");
            },
            2,
        ),
        (
            "a filter",
            |fixture| fixture.write("deep/.gitattributes", "*.x filter=lfs\n"),
            6,
        ),
        (
            "a filter in the repository's own attributes",
            |fixture| fixture.write(".git/info/attributes", "* filter=x"),
            5,
        ),
        (
            "another encoding",
            |fixture| fixture.write(".gitattributes", "f working-tree-encoding=UTF-16"),
            6,
        ),
        (
            "not in a pack",
            |fixture| {
                fixture.write("same", "loose");
                wait_until_settled(fixture);
                git(fixture, &["add", "."]);
                wait_until_settled(fixture);
                git(fixture, &["update-index", "--index-version", "3"]);
            },
            1,
        ),
        (
            "other line ends",
            |fixture| {
                git(fixture, &["config", "core.autocrlf", "true"]);
                fixture.write("same", "a\r\nb\r\n");
                git(fixture, &["add", "."]);
                git(fixture, &["commit", "-qm", "ends"]);
                git(fixture, &["gc", "-q"]);
                wait_until_settled(fixture);
                git(fixture, &["update-index", "--index-version", "3"]);
            },
            1,
        ),
    ];
    for (name, work, wanted) in table {
        let fixture = Fixture::new();
        packed(&fixture);
        work(&fixture);
        let before: BTreeMap<_, _> = ["same", "edited", "gone"]
            .map(|file| (file, fs::read_to_string(fixture.root.join(file)).unwrap()))
            .into();
        let tracker = fixture.tracker();
        assert_eq!(changes_of(&fixture, &tracker, || ()), [""; 0], "{name}");
        assert_eq!(stored_count(&fixture), wanted, "{name}");
        let found = changes_of(&fixture, &tracker, || {
            before.keys().for_each(|name| fixture.write(name, "other"))
        });
        let wanted: Vec<String> = ["edited", "gone", "same"]
            .map(|name| format!("{name}: Plain {:?} -> Plain \"other\"", before[name]))
            .into();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn changes_between_steps_are_saved_in_index() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let tracker = fixture.tracker();
    assert_eq!(changes_of(&fixture, &tracker, || ()), [""; 0]);
    pass_a_tick(&fixture);
    let saved = || {
        fs::read(
            Tracker::new(&fixture.data, &fixture.root, None)
                .dir
                .join("index.json"),
        )
        .unwrap()
    };
    let before = saved();
    fixture.write("a", "2");
    // The change is not attributed, but the next process need not find it again.
    assert_eq!(changes_of(&fixture, &tracker, || ()), [""; 0]);
    tracker.save();
    assert_ne!(saved(), before);
}

/// Puts a pipe in the place of an attributes file, on which reading would block.
#[test]
fn pipe_instead_of_attributes_is_not_read() {
    let fixture = Fixture::new();
    packed(&fixture);
    let pipe = fixture.root.join(".git/info/attributes");
    fs::create_dir_all(pipe.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        changes_of(&fixture, &fixture.tracker(), || fixture
            .write("edited", "1")),
        ["edited: Plain \"edited\" -> Plain \"1\""]
    );
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes a file older. Returns whether it exists.
fn make_older(path: &Path, days: u32) -> bool {
    let Ok(file) = fs::File::options().write(true).open(path) else {
        return false;
    };
    let then = file.metadata().unwrap().modified().unwrap() - DAY * days;
    file.set_modified(then).unwrap();
    true
}

/// Makes all contents older by some days.
fn pass_days(fixture: &Fixture, days: u32) {
    let is_ours = |part: std::path::Component<'_>| {
        part.as_os_str() == "objects" || part.as_os_str() == "packs"
    };
    let contents = walk(&fixture.data)
        .into_keys()
        .filter(|path| path.components().any(is_ours));
    contents.for_each(|path| assert!(make_older(&path, days)));
}

/// Compares the project in a new process, a day after the last cleaning.
fn clean(fixture: &Fixture) -> Arc<Tracker> {
    let tracker = fixture.tracker();
    fs::remove_file(tracker.dir.join("cleaned")).ok();
    drop(tracker.mark(&AtomicBool::new(false)).unwrap());
    tracker.save();
    tracker
}

#[test]
fn contents_are_removed_a_month_after_last_use() {
    // The event after which the content is not in a file any more.
    type Case = (&'static str, fn(&Fixture, &Tracker));
    let table: [Case; 5] = [
        ("it is named by an edit, and ignored", |fixture, tracker| {
            tracker.record_file(&fixture.root.join("ignored")).unwrap();
            fixture.write("ignored", "after");
        }),
        (
            "it is compared by an undo, and ignored",
            |fixture, tracker| {
                let state = tracker.record_file(&fixture.root.join("ignored")).unwrap();
                pass_days(fixture, 40);
                assert!(
                    tracker
                        .has_state(&fixture.root.join("ignored"), state.as_ref())
                        .unwrap()
                );
                fixture.write("ignored", "after");
            },
        ),
        ("it is replaced", |fixture, _| fixture.write("f", "after")),
        ("it is removed", |fixture, _| {
            fs::remove_file(fixture.root.join("f")).unwrap()
        }),
        ("its directory is removed", |fixture, _| {
            fs::remove_dir_all(fixture.root.join("d")).unwrap()
        }),
    ];
    for (event, work) in table {
        let fixture = Fixture::new();
        fixture.write(".ignore", "ignored\n");
        let name = if event.contains("ignored") {
            "ignored"
        } else if event.contains("directory") {
            "d/f"
        } else {
            "f"
        };
        fixture.write(name, "before");
        let tracker = clean(&fixture);
        let state = tracker
            .record_file(&fixture.root.join(name))
            .unwrap()
            .unwrap();
        let unused = tracker.store(b"unused").unwrap();
        // Another process works, a long time later.
        pass_days(&fixture, 40);
        work(&fixture, &fixture.tracker());
        let tracker = clean(&fixture);
        assert_eq!(
            tracker.content(&state).as_deref(),
            Ok(&b"before"[..]),
            "{event}"
        );
        assert_eq!(
            tracker.content(&unused),
            Err(ContentUnavailable::NotFound),
            "{event}"
        );
        pass_days(&fixture, 20);
        assert_eq!(
            clean(&fixture).content(&state).as_deref(),
            Ok(&b"before"[..]),
            "{event}, 20 days later"
        );
        pass_days(&fixture, 20);
        assert_eq!(
            clean(&fixture).content(&state),
            Err(ContentUnavailable::NotFound),
            "{event}, 40 days later"
        );
    }
}

/// Checks against a regression: an edit and a command in the same turn.
#[test]
fn edit_is_undoable_after_daily_cleaning() {
    let fixture = Fixture::new();
    fixture.write("f", "X");
    clean(&fixture);
    pass_days(&fixture, 40);
    let tracker = fixture.tracker();
    fs::remove_file(tracker.dir.join("cleaned")).unwrap();
    let old = tracker
        .record_file(&fixture.root.join("f"))
        .unwrap()
        .unwrap();
    fixture.write("f", "Y");
    let found = changes_of(&fixture, &tracker, || fixture.write("g", "by the command"));
    assert_eq!(found, ["g: nothing -> Plain \"by the command\""]);
    assert_eq!(tracker.content(&old).as_deref(), Ok(&b"X"[..]));
}

#[test]
fn content_used_during_removal_remains() {
    let fixture = Fixture::new();
    let dir = fixture.data.join("objects");
    let packs = fixture.data.join("packs");
    let first = Objects::new(dir.clone(), packs.clone());
    let other = Objects::new(dir.clone(), packs);
    let hash = first.put(b"x").unwrap();
    let path = dir.join(&hash[..2]).join(&hash[2..]);
    let limit = fs::metadata(&path).unwrap().modified().unwrap() - DAY * 30;
    assert!(make_older(&path, 40));
    // The content is stored again after the check whether it is wanted.
    other.clean(limit, |_| {
        first.put(b"x").unwrap();
        false
    });
    assert_eq!(first.get(&hash).as_deref(), Ok(&b"x"[..]));
    // A cleaning was killed after renaming the file.
    let aside = path.with_file_name(format!(".going-{}", &hash[2..]));
    fs::rename(&path, &aside).unwrap();
    assert!(first.has(&hash) && first.get(&hash).is_ok());
    other.clean(limit, |_| false);
    assert!(path.exists() && !aside.exists(), "it was used lately");
    // The content of a file that the index removes cannot be written again.
    assert!(make_older(&path, 40));
    fs::rename(&path, &aside).unwrap();
    first.mark_used(&hash);
    other.clean(limit, |_| false);
    assert!(path.exists() && !aside.exists(), "it is used now");
    assert!(make_older(&path, 40));
    fs::rename(&path, &aside).unwrap();
    other.clean(limit, |name| name == hash);
    assert!(path.exists() && !aside.exists(), "it is wanted");
    fs::rename(&path, &aside).unwrap();
    other.clean(limit, |_| false);
    assert!(!first.has(&hash) && !aside.exists());
}

/// Checks that an object that was reported as stored is available, whatever another process does at
/// the same moment.
#[test]
fn stored_content_survives_concurrent_cleaning() {
    let fixture = Fixture::new();
    let dir = fixture.data.join("objects");
    let packs = fixture.data.join("packs");
    let first = Objects::new(dir.clone(), packs.clone());
    let other = Objects::new(dir.clone(), packs);
    let hash = first.put(b"x").unwrap();
    let path = dir.join(&hash[..2]).join(&hash[2..]);
    let limit: SystemTime = fs::metadata(&path).unwrap().modified().unwrap() - DAY * 30;
    let is_over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                other.clean(limit, |_| false);
            }
        });
        let round = |_: &u32| {
            make_older(&path, 40);
            first.put(b"x").is_err() || first.get(&hash).is_err()
        };
        let lost = (0..2_000).filter(round).count();
        is_over.store(true, Ordering::Relaxed);
        lost
    });
    assert_eq!(lost, 0);
}

#[test]
fn large_file_is_read_in_pieces_with_the_same_state() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let path = fixture.root.join("f");
    let text = "a line\n".repeat(usize::try_from(super::MAX_FILE_BYTES).unwrap() / 7 + 10);
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    // Not stored yet, then stored already.
    let first = tracker.record_file(&path).unwrap();
    let state = first.clone().unwrap();
    assert_eq!(state.kind, transcript::FileKind::Program);
    assert_eq!(tracker.content(&state).unwrap(), text.as_bytes());
    assert_eq!(tracker.record_file(&path).unwrap(), first);
    assert!(tracker.has_state(&path, Some(&state)).unwrap());
    fs::write(&path, text.replacen('a', "b", 1)).unwrap();
    assert!(!tracker.has_state(&path, Some(&state)).unwrap());
    assert_ne!(tracker.record_file(&path).unwrap(), first);
}

#[test]
fn content_that_was_read_is_stored_if_the_file_still_has_it() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    fixture.write("f", "text\n");
    symlink("f", fixture.root.join("link")).unwrap();
    // A file, the text that was read, whether the file has it.
    let table = [
        ("f", "text\n", true),
        ("f", "text", false),
        ("f", "text\n\n", false),
        ("f", "TEXT\n", false),
        ("f", "", false),
        ("link", "f", false),
        ("none", "", false),
        (".", "", false),
    ];
    for (name, text, expected) in table {
        let path = fixture.root.join(name);
        let state = tracker.record_read_file(&path, text.as_bytes()).unwrap();
        assert_eq!(state.is_some(), expected, "{name} {text:?}");
        if expected {
            assert_eq!(state, tracker.record_file(&path).unwrap());
        }
    }
}

/// Tests that a call does not wait for all of another session's reading, which may take a minute.
#[test]
fn mark_gives_up_while_another_session_reads() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let reading = tracker.inner.lock();
    let marked = std::thread::scope(|scope| {
        let mark = || tracker.mark(&AtomicBool::new(false)).err();
        scope.spawn(mark).join().unwrap()
    });
    assert_eq!(marked, Some(Untracked::Preparing(fixture.root.clone())));
    drop(reading);
    assert!(tracker.mark(&AtomicBool::new(false)).is_ok());
}

/// Tests that a call may change more files than can be read within the limit of finding them.
#[test]
fn reading_changed_files_has_a_limit_of_its_own() {
    let hour = Duration::from_secs(3600);
    let compared = |total: Duration, is_changed: bool| {
        let fixture = Fixture::new();
        let tracker = fixture.tracker();
        let go = AtomicBool::new(false);
        let _mark = tracker.mark(&go).unwrap();
        if is_changed {
            (0..100).for_each(|at| fixture.write(&format!("new-{at}"), "2"));
        }
        let limits = ComparisonLimits {
            examination: hour,
            total,
        };
        let compared = tracker.compare(&mut tracker.inner.lock(), &go, limits);
        compared.map_err(|off| matches!(off, Untracked::Slow(_)))
    };
    assert_eq!(compared(Duration::ZERO, true), Err(true));
    assert_eq!(compared(Duration::ZERO, false), Ok(()));
    assert_eq!(compared(hour, true), Ok(()));
    let after_call = ComparisonLimits::AFTER_CALL;
    assert!(after_call.total > after_call.examination);
}
