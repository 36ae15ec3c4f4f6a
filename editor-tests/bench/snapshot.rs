//! Costs of recording the files in a step that changes some, in a project of 20,000 files.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be set up may panic"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use divan::{Bencher, black_box};
use snapshot::Tracker;

/// 20,000 files of 2 KiB in 1,000 directories, three levels deep.
fn project(root: &Path) {
    for n in 0..1_000 {
        let dir = root.join(format!("area{}/part{}/dir{n}", n % 10, n % 100));
        fs::create_dir_all(&dir).unwrap();
        for m in 0..20 {
            fs::write(
                dir.join(format!("file{m}.rs")),
                format!("// {n} {m}\n").repeat(200),
            )
            .unwrap();
        }
    }
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::write(root.join(".gitignore"), "target/\n*.log\n/node_modules\n").unwrap();
}

struct Fixture {
    _dir: tempfile::TempDir,
    root: std::path::PathBuf,
    data: std::path::PathBuf,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let data = dir.path().join("data");
    project(&root);
    Fixture {
        root,
        data,
        _dir: dir,
    }
}

/// The same project, cloned: git has everything in a pack.
#[expect(
    clippy::disallowed_methods,
    reason = "the repository is made by git itself"
)]
fn cloned() -> Fixture {
    let fixture = fixture();
    let from = fixture.root.with_file_name("from");
    fs::remove_dir_all(fixture.root.join(".git")).unwrap();
    fs::rename(&fixture.root, &from).unwrap();
    let git = |dir: &Path, args: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        let args = [
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "-c",
                "gc.auto=0",
            ],
            args,
        ]
        .concat();
        assert!(
            git.args(args)
                .current_dir(dir)
                .output()
                .unwrap()
                .status
                .success()
        );
    };
    git(&from, &["init", "-q"]);
    git(&from, &["add", "."]);
    git(&from, &["commit", "-qm", "all"]);
    git(&from, &["gc", "-q"]);
    git(
        &from,
        &[
            "clone",
            "-q",
            "--no-local",
            ".",
            fixture.root.to_str().unwrap(),
        ],
    );
    // Git distrusts entries of files as new as the index: rewrite it, so that it is newer.
    std::thread::sleep(std::time::Duration::from_millis(50));
    git(&fixture.root, &["update-index", "--index-version", "4"]);
    fixture
}

fn step(tracker: &Arc<Tracker>) -> usize {
    let stop = AtomicBool::new(false);
    let mark = tracker.mark(&stop).unwrap();
    tracker.since(&mark, &stop).unwrap().len()
}

/// Before and after a step in which nothing changed.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn nothing_changed(bencher: Bencher<'_, '_>) {
    let fixture = fixture();
    let tracker = Arc::new(Tracker::new(&fixture.data, &fixture.root, None));
    step(&tracker);
    bencher.bench_local(|| step(black_box(&tracker)));
}

/// Before and after a step in which one file changed.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn one_file_changed(bencher: Bencher<'_, '_>) {
    let fixture = fixture();
    let tracker = Arc::new(Tracker::new(&fixture.data, &fixture.root, None));
    step(&tracker);
    let mut n = 0;
    bencher.bench_local(|| {
        let stop = AtomicBool::new(false);
        let mark = tracker.mark(&stop).unwrap();
        n += 1;
        fs::write(
            fixture.root.join("area1/part1/dir1/file1.rs"),
            format!("{n}"),
        )
        .unwrap();
        assert_eq!(tracker.since(&mark, &stop).unwrap().len(), 1);
    });
}

/// The first step in a new project: everything is read and stored.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn first_of_all(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(fixture).bench_local_values(|fixture| {
        step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None)));
        fixture
    });
}

/// The first step in a new clone: objects that git has are only referenced.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn first_in_a_clone(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(cloned).bench_local_values(|fixture| {
        step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None)));
        fixture
    });
}

/// The first step of a process in a clone that another one has seen.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn first_of_a_process_in_a_clone(bencher: Bencher<'_, '_>) {
    let fixture = cloned();
    step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None)));
    bencher.bench_local(|| step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None))));
}

/// The first step of a process in a project that another one has seen.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn first_of_a_process(bencher: Bencher<'_, '_>) {
    let fixture = fixture();
    step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None)));
    bencher.bench_local(|| step(&Arc::new(Tracker::new(&fixture.data, &fixture.root, None))));
}
