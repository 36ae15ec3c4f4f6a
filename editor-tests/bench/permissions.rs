//! From a command line to a verdict.

use std::path::PathBuf;

use adjutant::permission::{Action, Place, Rules, command_need, evaluate};
use divan::{Bencher, black_box};

fn judge(bencher: Bencher<'_, '_>, line: &str) {
    let root = PathBuf::from("/tmp");
    let place = Place { cwd: root.clone(), root, ..Place::default() };
    let rules = Rules::built_in(&[("bash", "*", Action::Allow), ("bash", "rm *", Action::Deny)]);
    bencher.bench(|| evaluate(&rules, &Rules::default(), &command_need(black_box(line), &place)));
}

/// What a model writes all day.
#[divan::bench(args = ["ls -la src", "git diff --stat HEAD~1 | head -20", "cd src && FOO=1 npm run dev -- --watch > /tmp/out.log 2>&1"])]
fn typical(bencher: Bencher<'_, '_>, line: &str) {
    judge(bencher, line);
}

/// 64 KiB made to be slow.
#[divan::bench(args = ["$(", "{ ", "ls;", "\\", "\"$(ls\"", "a|", "<<E\n", "eval "])]
fn hostile(bencher: Bencher<'_, '_>, piece: &str) {
    judge(bencher, &piece.repeat((64 << 10) / piece.len()));
}
