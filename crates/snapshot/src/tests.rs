use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::objects::Objects;
use super::{Missing, Tracker, Untracked};

struct Stage {
    _dir: tempfile::TempDir,
    root: PathBuf,
    data: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let (root, data) = (base.join("root"), base.join("data"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&data).unwrap();
        Self { _dir: dir, root, data }
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

/// Waits until the clock of the file system has gone on.
fn pass_a_tick(stage: &Stage) {
    let path = stage.data.join("clock");
    let now = || {
        fs::write(&path, "").unwrap();
        fs::metadata(&path).unwrap().modified().unwrap()
    };
    let before = now();
    while now() <= before {}
}

/// What `work` changes: path, what it was, what it is.
fn during(stage: &Stage, tracker: &Arc<Tracker>, work: impl FnOnce()) -> Vec<String> {
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
        let path = Path::new(&change.path).strip_prefix(&stage.root).unwrap();
        format!("{}: {} -> {}", path.display(), shown(change.old.as_ref()), shown(change.new.as_ref()))
    };
    changes.iter().map(line).collect()
}

#[test]
fn every_kind_of_change_is_found() {
    let stage = Stage::new();
    for name in ["same", "edited", "gone", "deep/er/f", "mode", "touched", "moved", "becomes-link", "swapped"] {
        stage.write(name, name);
    }
    let path = |name: &str| stage.root.join(name);
    symlink("edited", path("link")).unwrap();
    let tracker = stage.tracker();
    let found = during(&stage, &tracker, || {
        stage.write("edited", "EDITED");
        fs::remove_file(path("gone")).unwrap();
        fs::remove_dir_all(path("deep")).unwrap();
        fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        stage.write("touched", "touched");
        fs::rename(path("moved"), path("elsewhere")).unwrap();
        fs::remove_file(path("becomes-link")).unwrap();
        symlink("same", path("becomes-link")).unwrap();
        fs::remove_file(path("link")).unwrap();
        symlink("mode", path("link")).unwrap();
        stage.write("new/in/new", "x");
        fs::remove_file(path("swapped")).unwrap();
        stage.write("swapped/now-a-directory", "d");
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
    assert_eq!(during(&stage, &tracker, || {}), Vec::<String>::new());
    // There and back again is no change.
    assert_eq!(
        during(&stage, &tracker, || {
            stage.write("same", "other");
            stage.write("same", "same");
        }),
        Vec::<String>::new()
    );
}

/// A change within one tick of the clock, of the same length, is found: many times over, because it
/// is a matter of luck otherwise.
#[test]
fn a_quick_change_is_no_secret() {
    let stage = Stage::new();
    stage.write("f", "0000");
    let tracker = stage.tracker();
    for n in 1..60 {
        let (old, new) = (format!("{:04}", n - 1), format!("{n:04}"));
        let found = during(&stage, &tracker, || stage.write("f", &new));
        assert_eq!(found, [format!("f: Plain {old:?} -> Plain {new:?}")]);
        let name = format!("new-{n}");
        assert_eq!(during(&stage, &tracker, || stage.write(&name, "")), [format!("{name}: nothing -> Plain \"\"")]);
    }
}

#[test]
fn what_is_ignored_is_left_alone() {
    let stage = Stage::new();
    stage.write(".gitignore", "*.log\n/build/\n");
    stage.write("sub/.gitignore", "!keep.log\nsecret\n");
    for name in ["a.log", "build/out", "sub/keep.log", "sub/secret", "sub/seen", ".git/config", "mod/.git", "mod/f"] {
        stage.write(name, "1");
    }
    let tracker = stage.tracker();
    let found = during(&stage, &tracker, || {
        for name in ["a.log", "build/out", "sub/keep.log", "sub/secret", "sub/seen", ".git/config", "mod/.git", "mod/f"]
        {
            stage.write(name, "2");
        }
        stage.write("new.log", "2");
        stage.write("sub/secret.d/f", "2");
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
    pass_a_tick(&stage);
    // What comes into view was not made, and what goes out of view is not gone.
    let found = during(&stage, &tracker, || {
        stage.write("sub/.gitignore", "seen\n");
        stage.write("sub/made", "3");
    });
    assert_eq!(
        found,
        ["sub/.gitignore: Plain \"!keep.log\\nsecret\\n\" -> Plain \"seen\\n\"", "sub/made: nothing -> Plain \"3\""]
    );
    let found = during(&stage, &tracker, || stage.write("sub/secret", "4"));
    assert_eq!(found, ["sub/secret: Plain \"2\" -> Plain \"4\""]);
    pass_a_tick(&stage);
    // A hidden file that gets a name in view was somebody's before.
    let found = during(&stage, &tracker, || fs::rename(stage.root.join("a.log"), stage.root.join("a.txt")).unwrap());
    assert_eq!(found, Vec::<String>::new());
}

/// A home inside the project would otherwise be recorded in itself, ever again.
#[test]
fn our_own_things_are_not_recorded() {
    let mut stage = Stage::new();
    stage.data = stage.root.join("home/data");
    fs::create_dir_all(&stage.data).unwrap();
    stage.write("f", "1");
    let tracker = stage.tracker();
    assert_eq!(during(&stage, &tracker, || stage.write("f", "2")), ["f: Plain \"1\" -> Plain \"2\""]);
    assert_eq!(during(&stage, &tracker, || stage.write("home/data/x", "2")), Vec::<String>::new());
}

#[test]
fn what_was_known_outlives_the_process() {
    let stage = Stage::new();
    stage.write("a", "1");
    let tracker = stage.tracker();
    drop(tracker.mark(&AtomicBool::new(false)).unwrap());
    tracker.save();
    stage.write("a", "2");
    stage.write("b", "2");
    let tracker = stage.tracker();
    // What happened in between is nobody's.
    assert_eq!(during(&stage, &tracker, || {}), Vec::<String>::new());
    let both = during(&stage, &tracker, || stage.write("b", "3"));
    assert_eq!(both, ["b: Plain \"2\" -> Plain \"3\""]);
    fs::write(stage.data.join("snapshots").join("x"), "").unwrap();
    let index = walk(&stage.data).into_keys().find(|path| path.ends_with("index.json")).unwrap();
    fs::write(index, "garbage").unwrap();
    assert_eq!(during(&stage, &stage.tracker(), || stage.write("b", "4")), ["b: Plain \"3\" -> Plain \"4\""]);
}

#[test]
fn two_sessions_see_what_happened_since_their_own_marks() {
    let stage = Stage::new();
    stage.write("a", "1");
    let (tracker, go) = (stage.tracker(), AtomicBool::new(false));
    let first = tracker.mark(&go).unwrap();
    stage.write("a", "2");
    let second = tracker.mark(&go).unwrap();
    stage.write("b", "1");
    assert_eq!(tracker.since(&second, &go).unwrap().len(), 1);
    drop(second);
    assert_eq!(tracker.since(&first, &go).unwrap().len(), 2);
    drop(first);
    let third = tracker.mark(&go).unwrap();
    assert_eq!(tracker.since(&third, &go).unwrap(), []);
}

#[test]
fn broken_off_nothing_is_made_up() {
    let stage = Stage::new();
    stage.write("a", "1");
    stage.write("d/b", "1");
    let (tracker, go, stop) = (stage.tracker(), AtomicBool::new(false), AtomicBool::new(true));
    assert_eq!(tracker.mark(&stop).unwrap_err(), Untracked::Stopped);
    let mark = tracker.mark(&go).unwrap();
    stage.write("a", "2");
    fs::remove_dir_all(stage.root.join("d")).unwrap();
    assert_eq!(tracker.since(&mark, &stop).unwrap_err(), Untracked::Stopped);
    let found: Vec<_> = tracker.since(&mark, &go).unwrap().into_iter().map(|change| change.new.is_some()).collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn what_is_too_large_is_said_to_be() {
    let stage = Stage::new();
    let large = |byte: &str| byte.repeat(usize::try_from(super::LARGEST).unwrap() + 1);
    stage.write("large", &large("a"));
    let tracker = stage.tracker();
    let found = during(&stage, &tracker, || stage.write("large", &large("b")));
    assert_eq!(found, [format!("large: {} -> {}", Missing::NeverKept, Missing::NeverKept)]);
    let named = tracker.look(&stage.root.join("large")).unwrap().unwrap();
    assert_eq!(tracker.content(&named).unwrap().len(), large("b").len());
    let home = Tracker::new(&stage.data, &stage.root, Some(&stage.root.join("me")));
    let off = Arc::new(home).mark(&AtomicBool::new(false)).unwrap_err();
    assert_eq!(off, Untracked::Everything(stage.root.clone()));
}

#[test]
fn contents_are_not_believed() {
    let stage = Stage::new();
    let tracker = stage.tracker();
    let text = "x".repeat(10_000);
    for text in ["", "short", &text] {
        let state = tracker.keep(text.as_bytes()).unwrap();
        assert_eq!(tracker.content(&state).unwrap(), text.as_bytes());
        let file = walk(&stage.data).into_keys().find(|path| path.ends_with(&state.hash[2..])).unwrap();
        let kept = fs::read(&file).unwrap();
        fs::write(&file, &kept[..kept.len() - 1]).unwrap();
        assert_eq!(tracker.content(&state), Err(Missing::Damaged), "{}", text.len());
        fs::remove_file(&file).unwrap();
        assert_eq!(tracker.content(&state), Err(Missing::Gone));
    }
}

/// The user's repository is the user's: not a byte, not a time of it changes.
#[test]
fn a_repository_stays_as_it_is() {
    let stage = Stage::new();
    for name in [".git/HEAD", ".git/index", ".git/refs/heads/main", ".git/objects/aa/bb", ".git/info/exclude", "f"] {
        stage.write(name, "f\n");
    }
    let print = |root: &Path| {
        let of = |path: &PathBuf| {
            let data = fs::metadata(path).unwrap();
            (fs::read(path).unwrap(), data.modified().unwrap(), std::os::unix::fs::MetadataExt::ctime_nsec(&data))
        };
        walk(root).into_keys().map(|path| (path.clone(), of(&path))).collect::<Vec<_>>()
    };
    let before = print(&stage.root.join(".git"));
    let tracker = stage.tracker();
    // What .git/info/exclude names is ignored.
    assert_eq!(during(&stage, &tracker, || stage.write("f", "2")), Vec::<String>::new());
    tracker.save();
    assert_eq!(print(&stage.root.join(".git")), before);
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

/// Runs git in the project, without anybody's settings.
#[expect(clippy::disallowed_methods, reason = "the repository is made by git itself")]
fn git(stage: &Stage, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &stage.data);
    git.env("GIT_CONFIG_NOSYSTEM", "1").args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args);
    let ran = git.current_dir(&stage.root).output().unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
}

/// Everything that was written before is older than what the index remembers of it.
fn settle(stage: &Stage) {
    for _ in 0..12 {
        pass_a_tick(stage);
    }
}

/// A project of which git keeps everything in a pack.
fn packed(stage: &Stage) {
    for (path, text) in
        [("same", "same"), ("edited", "edited"), ("gone", "gone"), ("deep/er/f", "deep"), ("mode", "mode")]
    {
        stage.write(path, text);
    }
    symlink("edited", stage.root.join("link")).unwrap();
    settle(stage);
    git(stage, &["init", "-q"]);
    git(stage, &["add", "."]);
    git(stage, &["commit", "-qm", "all"]);
    git(stage, &["gc", "-q"]);
    settle(stage);
    // Written anew, so that no file is as young as it.
    git(stage, &["update-index", "--index-version", "4"]);
}

/// How many contents are kept beside the sessions.
fn kept(stage: &Stage) -> usize {
    fn files(dir: &Path) -> usize {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
    }
    let projects = fs::read_dir(stage.data.join("snapshots")).into_iter().flatten().flatten();
    projects.map(|project| files(&project.path().join("objects"))).sum()
}

#[test]
fn what_git_keeps_is_taken_from_it_when_it_changes() {
    let stage = Stage::new();
    packed(&stage);
    let path = |name: &str| stage.root.join(name);
    let tracker = stage.tracker();
    assert_eq!(during(&stage, &tracker, || ()), [""; 0]);
    assert_eq!(kept(&stage), 0, "git has them all");
    let found = during(&stage, &tracker, || {
        stage.write("edited", "EDITED");
        stage.write("same", "same");
        fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(path("link")).unwrap();
        symlink("same", path("link")).unwrap();
        // With the repository goes what git kept.
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
    // It is kept here from now on.
    assert_eq!(kept(&stage), 6);
}

#[test]
fn what_git_keeps_is_looked_for_again_by_the_next_process() {
    let stage = Stage::new();
    packed(&stage);
    assert_eq!(during(&stage, &stage.tracker(), || ()), [""; 0]);
    assert_eq!(
        during(&stage, &stage.tracker(), || stage.write("edited", "1")),
        ["edited: Plain \"edited\" -> Plain \"1\""]
    );
    assert_eq!(kept(&stage), 2);
    // What it does not have any more is read before anything else happens.
    fs::remove_dir_all(stage.root.join(".git/objects")).unwrap();
    fs::create_dir_all(stage.root.join(".git/objects")).unwrap();
    let found = during(&stage, &stage.tracker(), || {
        stage.write("same", "2");
        fs::remove_file(stage.root.join("gone")).unwrap();
    });
    assert_eq!(found, ["gone: Plain \"gone\" -> nothing", "same: Plain \"same\" -> Plain \"2\""]);
}

#[test]
fn what_git_may_store_otherwise_is_kept_here() {
    // What is done after the commit, and how many of the five contents are kept here then.
    type Case = (&'static str, fn(&Stage), usize);
    let table: [Case; 6] = [
        (
            "an untracked and an edited file",
            |stage| {
                stage.write("new", "new");
                stage.write("edited", "EDITED");
            },
            2,
        ),
        ("a filter", |stage| stage.write("deep/.gitattributes", "*.x filter=lfs\n"), 6),
        ("a filter beside the repository", |stage| stage.write(".git/info/attributes", "* filter=x"), 5),
        ("another encoding", |stage| stage.write(".gitattributes", "f working-tree-encoding=UTF-16"), 6),
        (
            "not in a pack",
            |stage| {
                stage.write("same", "loose");
                settle(stage);
                git(stage, &["add", "."]);
                settle(stage);
                git(stage, &["update-index", "--index-version", "3"]);
            },
            1,
        ),
        (
            "other line ends",
            |stage| {
                git(stage, &["config", "core.autocrlf", "true"]);
                stage.write("same", "a\r\nb\r\n");
                git(stage, &["add", "."]);
                git(stage, &["commit", "-qm", "ends"]);
                git(stage, &["gc", "-q"]);
                settle(stage);
                git(stage, &["update-index", "--index-version", "3"]);
            },
            1,
        ),
    ];
    for (what, work, wanted) in table {
        let stage = Stage::new();
        packed(&stage);
        work(&stage);
        let before: BTreeMap<_, _> =
            ["same", "edited", "gone"].map(|name| (name, fs::read_to_string(stage.root.join(name)).unwrap())).into();
        let tracker = stage.tracker();
        assert_eq!(during(&stage, &tracker, || ()), [""; 0], "{what}");
        assert_eq!(kept(&stage), wanted, "{what}");
        let found = during(&stage, &tracker, || before.keys().for_each(|name| stage.write(name, "other")));
        let wanted: Vec<String> = ["edited", "gone", "same"]
            .map(|name| format!("{name}: Plain {:?} -> Plain \"other\"", before[name]))
            .into();
        assert_eq!(found, wanted, "{what}");
    }
}

#[test]
fn what_the_user_changes_between_steps_is_remembered() {
    let stage = Stage::new();
    stage.write("a", "1");
    let tracker = stage.tracker();
    assert_eq!(during(&stage, &tracker, || ()), [""; 0]);
    pass_a_tick(&stage);
    let saved = || fs::read(Tracker::new(&stage.data, &stage.root, None).dir.join("index.json")).unwrap();
    let before = saved();
    stage.write("a", "2");
    // It is nobody's change, but the next process need not find it out again.
    assert_eq!(during(&stage, &tracker, || ()), [""; 0]);
    tracker.save();
    assert_ne!(saved(), before);
}

/// A list of attributes that nobody would ever have read to its end is no reason to wait.
#[test]
fn a_pipe_among_the_attributes_is_not_read() {
    let stage = Stage::new();
    packed(&stage);
    let pipe = stage.root.join(".git/info/attributes");
    fs::create_dir_all(pipe.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        during(&stage, &stage.tracker(), || stage.write("edited", "1")),
        ["edited: Plain \"edited\" -> Plain \"1\""]
    );
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes a file older. Whether it is there.
fn make_older(path: &Path, days: u32) -> bool {
    let Ok(file) = fs::File::options().write(true).open(path) else { return false };
    let then = file.metadata().unwrap().modified().unwrap() - DAY * days;
    file.set_modified(then).unwrap();
    true
}

/// Lets days pass for all contents.
fn pass_days(stage: &Stage, days: u32) {
    let is_ours = |part: std::path::Component<'_>| part.as_os_str() == "objects" || part.as_os_str() == "packs";
    let contents = walk(&stage.data).into_keys().filter(|path| path.components().any(is_ours));
    contents.for_each(|path| assert!(make_older(&path, days)));
}

/// Another process compares the project, a day after the last one cleaned.
fn clean(stage: &Stage) -> Arc<Tracker> {
    let tracker = stage.tracker();
    fs::remove_file(tracker.dir.join("cleaned")).ok();
    drop(tracker.mark(&AtomicBool::new(false)).unwrap());
    tracker.save();
    tracker
}

#[test]
fn contents_are_kept_from_their_last_use_on() {
    // What becomes of the file, and whether a use of its content is all that is done.
    type Case = (&'static str, fn(&Stage, &Tracker));
    let table: [Case; 5] = [
        ("it is named by an edit, and ignored", |stage, tracker| {
            tracker.look(&stage.root.join("ignored")).unwrap();
            stage.write("ignored", "after");
        }),
        ("it is compared by an undo, and ignored", |stage, tracker| {
            let state = tracker.look(&stage.root.join("ignored")).unwrap();
            pass_days(stage, 40);
            assert!(tracker.is(&stage.root.join("ignored"), state.as_ref()).unwrap());
            stage.write("ignored", "after");
        }),
        ("it is replaced", |stage, _| stage.write("f", "after")),
        ("it is removed", |stage, _| fs::remove_file(stage.root.join("f")).unwrap()),
        ("its directory is removed", |stage, _| fs::remove_dir_all(stage.root.join("d")).unwrap()),
    ];
    for (what, work) in table {
        let stage = Stage::new();
        stage.write(".ignore", "ignored\n");
        let name = if what.contains("ignored") {
            "ignored"
        } else if what.contains("directory") {
            "d/f"
        } else {
            "f"
        };
        stage.write(name, "before");
        let tracker = clean(&stage);
        let state = tracker.look(&stage.root.join(name)).unwrap().unwrap();
        let unused = tracker.keep(b"unused").unwrap();
        // Another process, long after.
        pass_days(&stage, 40);
        work(&stage, &stage.tracker());
        let tracker = clean(&stage);
        assert_eq!(tracker.content(&state).as_deref(), Ok(&b"before"[..]), "{what}");
        assert_eq!(tracker.content(&unused), Err(Missing::Gone), "{what}");
        pass_days(&stage, 20);
        assert_eq!(clean(&stage).content(&state).as_deref(), Ok(&b"before"[..]), "{what}, 20 days later");
        pass_days(&stage, 20);
        assert_eq!(clean(&stage).content(&state), Err(Missing::Gone), "{what}, 40 days later");
    }
}

/// What the issue was: an edit, and a command in the same turn.
#[test]
fn an_edit_can_be_undone_after_the_daily_cleaning() {
    let stage = Stage::new();
    stage.write("f", "X");
    clean(&stage);
    pass_days(&stage, 40);
    let tracker = stage.tracker();
    fs::remove_file(tracker.dir.join("cleaned")).unwrap();
    let old = tracker.look(&stage.root.join("f")).unwrap().unwrap();
    stage.write("f", "Y");
    let found = during(&stage, &tracker, || stage.write("g", "by the command"));
    assert_eq!(found, ["g: nothing -> Plain \"by the command\""]);
    assert_eq!(tracker.content(&old).as_deref(), Ok(&b"X"[..]));
}

#[test]
fn a_content_that_is_used_while_it_is_removed_stays() {
    let stage = Stage::new();
    let dir = stage.data.join("objects");
    let packs = stage.data.join("packs");
    let one = Objects::new(dir.clone(), packs.clone());
    let other = Objects::new(dir.clone(), packs);
    let hash = one.put(b"x").unwrap();
    let path = dir.join(&hash[..2]).join(&hash[2..]);
    let limit = fs::metadata(&path).unwrap().modified().unwrap() - DAY * 30;
    assert!(make_older(&path, 40));
    // It was looked at, and nobody wanted it: then somebody has it kept.
    other.clean(limit, |_| {
        one.put(b"x").unwrap();
        false
    });
    assert_eq!(one.get(&hash).as_deref(), Ok(&b"x"[..]));
    // A cleaning was killed when it had put it aside.
    let aside = path.with_file_name(format!(".going-{}", &hash[2..]));
    fs::rename(&path, &aside).unwrap();
    assert!(one.has(&hash) && one.get(&hash).is_ok());
    other.clean(limit, |_| false);
    assert!(path.exists() && !aside.exists(), "it was used lately");
    // What the index lets go of cannot be written anew.
    assert!(make_older(&path, 40));
    fs::rename(&path, &aside).unwrap();
    one.note_use(&hash);
    other.clean(limit, |_| false);
    assert!(path.exists() && !aside.exists(), "it is used now");
    assert!(make_older(&path, 40));
    fs::rename(&path, &aside).unwrap();
    other.clean(limit, |name| name == hash);
    assert!(path.exists() && !aside.exists(), "it is wanted");
    fs::rename(&path, &aside).unwrap();
    other.clean(limit, |_| false);
    assert!(!one.has(&hash) && !aside.exists());
}

/// Whatever two processes do at the same moment: what one was told is kept, it can have.
#[test]
fn one_cleans_while_another_keeps() {
    let stage = Stage::new();
    let dir = stage.data.join("objects");
    let packs = stage.data.join("packs");
    let one = Objects::new(dir.clone(), packs.clone());
    let other = Objects::new(dir.clone(), packs);
    let hash = one.put(b"x").unwrap();
    let path = dir.join(&hash[..2]).join(&hash[2..]);
    let limit: SystemTime = fs::metadata(&path).unwrap().modified().unwrap() - DAY * 30;
    let over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                other.clean(limit, |_| false);
            }
        });
        let round = |_: &u32| {
            make_older(&path, 40);
            one.put(b"x").is_err() || one.get(&hash).is_err()
        };
        let lost = (0..2_000).filter(round).count();
        over.store(true, Ordering::Relaxed);
        lost
    });
    assert_eq!(lost, 0);
}
