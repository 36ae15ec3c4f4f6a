//! What is different between two texts. Everything that shows or uses changes asks here, so that one is shown alike
//! everywhere, and the comparison is compiled once.

use std::time::Duration;

use similar::{Algorithm, DiffOp, TextDiff, capture_diff_slices};

/// How long the fewest changes are looked for. After that there are more of them than there need be, and all are right.
const LIMIT: Duration = Duration::from_millis(200);

/// The lines that differ.
pub fn lines<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, str> {
    TextDiff::configure().timeout(LIMIT).diff_lines(old, new)
}

/// The pieces that differ, of texts that are cut into pieces already.
pub fn pieces(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    capture_diff_slices(Algorithm::Myers, old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_have_little_in_common() {
        let text = |step: u64| (0..50_000).map(|n| format!("{}\n", n * n * step % 1_009)).collect::<String>();
        let (old, new) = (text(7_919), text(104_729));
        let diff = lines(&old, &new);
        let mut becomes = String::new();
        for change in diff.iter_all_changes().filter(|change| change.new_index().is_some()) {
            becomes += change.value();
        }
        assert!(becomes == new);
    }
}
