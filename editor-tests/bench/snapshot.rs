//! What a step that acts pays for the record of the files, in a project of 20,000 files.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot begin says so by ending")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use adjutant::snapshot::Tracker;
use divan::{Bencher, black_box};

/// 20,000 files of 2 KiB in 1,000 directories, three levels deep.
fn project(root: &Path) {
    for n in 0..1_000 {
        let dir = root.join(format!("area{}/part{}/dir{n}", n % 10, n % 100));
        fs::create_dir_all(&dir).unwrap();
        for m in 0..20 {
            fs::write(dir.join(format!("file{m}.rs")), format!("// {n} {m}\n").repeat(200)).unwrap();
        }
    }
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::write(root.join(".gitignore"), "target/\n*.log\n/node_modules\n").unwrap();
}

struct Stage {
    _dir: tempfile::TempDir,
    root: std::path::PathBuf,
    data: std::path::PathBuf,
}

fn stage() -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let (root, data) = (dir.path().join("root"), dir.path().join("data"));
    project(&root);
    Stage { root, data, _dir: dir }
}

fn step(tracker: &Arc<Tracker>) -> usize {
    let go = AtomicBool::new(false);
    let mark = tracker.mark(&go).unwrap();
    tracker.since(&mark, &go).unwrap().len()
}

/// Before and after a step in which nothing changed.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn nothing_changed(bencher: Bencher<'_, '_>) {
    let stage = stage();
    let tracker = Arc::new(Tracker::new(&stage.data, &stage.root, None));
    step(&tracker);
    bencher.bench_local(|| step(black_box(&tracker)));
}

/// Before and after a step in which one file changed.
#[divan::bench(sample_count = 30, sample_size = 1)]
fn one_file_changed(bencher: Bencher<'_, '_>) {
    let stage = stage();
    let tracker = Arc::new(Tracker::new(&stage.data, &stage.root, None));
    step(&tracker);
    let mut n = 0;
    bencher.bench_local(|| {
        let go = AtomicBool::new(false);
        let mark = tracker.mark(&go).unwrap();
        n += 1;
        fs::write(stage.root.join("area1/part1/dir1/file1.rs"), format!("{n}")).unwrap();
        assert_eq!(tracker.since(&mark, &go).unwrap().len(), 1);
    });
}

/// The first step in a project that nobody has seen before: everything is read and kept.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn first_of_all(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(stage).bench_local_values(|stage| {
        step(&Arc::new(Tracker::new(&stage.data, &stage.root, None)));
        stage
    });
}

/// The first step of a process in a project that another one has seen.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn first_of_a_process(bencher: Bencher<'_, '_>) {
    let stage = stage();
    step(&Arc::new(Tracker::new(&stage.data, &stage.root, None)));
    bencher.bench_local(|| step(&Arc::new(Tracker::new(&stage.data, &stage.root, None))));
}
