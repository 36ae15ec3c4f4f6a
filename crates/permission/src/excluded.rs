//! The words of a command with which it excludes files. It uses none of these files, so a search of
//! its text for files leaves these words out.
//!
//! Only certain exclusions count: the literal words of a program whose meaning for them is known.

use std::ops::Range;

use super::shell::{CommandAnalysis, CommandUnit};
use super::wildcard::UNKNOWN;
use shell_parser::syntax::ShellCommandKind;

/// Programs with an option `--exclude=PATTERN` or `--exclude-dir=PATTERN` that does nothing to the
/// files. Not `rsync`, which can delete them (`--delete-excluded`), not `tar`, where the option has no
/// effect after the operands, and not `fd`, which may start a command with these words (`--exec`).
const WITH_EXCLUDE_OPTIONS: &[&str] = &["diff", "du", "egrep", "fgrep", "grep"];
/// The commands of git whose words after `--` are pathspecs.
const WITH_PATHSPECS: &[&str] = &["add", "diff", "grep", "log", "ls-files", "show", "status"];
/// The tests of `find` about a path.
const PATH_TESTS: &[&str] = &["-path", "-ipath", "-wholename", "-name", "-iname"];

/// Returns the text of a line without the words that its commands exclude. A line that is not
/// analysed as a whole stays as it is.
pub(super) fn text_without_excluded(line: &CommandAnalysis) -> String {
    let mut text = line.text.clone();
    if line.opaque.is_some() || line.is_incomplete {
        return text;
    }
    for unit in &line.units {
        let shorter = unit_text_without_excluded(unit);
        if shorter != unit.text {
            // Equal texts are equal commands, or stay as often as they are something else.
            text = text.replacen(&unit.text, &shorter, 1);
        }
    }
    text
}

/// Returns the text of a command without the words that it excludes.
pub(super) fn unit_text_without_excluded(unit: &CommandUnit) -> String {
    let mut text = unit.text.clone();
    let mut ranges = excluded_ranges(unit).unwrap_or_default();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.start));
    for range in ranges {
        if text.get(range.clone()).is_some() {
            text.replace_range(range, "");
        }
    }
    text
}

/// Returns the positions of the excluded words in the text of a command. `None` if its words are
/// not certain.
fn excluded_ranges(unit: &CommandUnit) -> Option<Vec<Range<usize>>> {
    let program = unit.argv.first()?.as_str();
    // A program around it may add words.
    if unit.layer > 0 || !unit.is_usual || unit.untrusted_program.is_some() || unit.opaque.is_some()
    {
        return None;
    }
    let excluded = match program {
        "find" => excluded_by_find(&unit.argv),
        "git" => excluded_by_git(&unit.argv),
        _ if WITH_EXCLUDE_OPTIONS.contains(&program) => excluded_by_option(&unit.argv),
        _ => Vec::new(),
    };
    if excluded.is_empty() {
        return None;
    }
    let script = shell_parser::parse(&unit.text, 0).ok()?;
    let [item] = script.list.as_slice() else {
        return None;
    };
    let [command] = item.commands.as_slice() else {
        return None;
    };
    let ShellCommandKind::Simple { words, .. } = &command.kind else {
        return None;
    };
    // With an expansion, words and arguments do not correspond.
    if words.len() != unit.argv.len() || unit.normalized.contains(UNKNOWN) {
        return None;
    }
    let range = |at: &usize| words.get(*at).map(|word| word.range.clone());
    excluded.iter().map(range).collect()
}

/// Returns the positions of the patterns after `-not -path`.
///
/// Only a plain conjunction is certain: with other operators, such as those of `-prune -o`, the
/// excluded files may be selected after all.
fn excluded_by_find(argv: &[String]) -> Vec<usize> {
    let is = |at: usize, words: &[&str]| argv.get(at).is_some_and(|word| words.contains(&&**word));
    let has_operators = (1..argv.len()).any(|at| is(at, &["-o", "-or", ",", "(", ")"]));
    if has_operators {
        return Vec::new();
    }
    // The words of a command and of a format are no tests.
    let begins_other = |at: &usize| is(*at, &["-exec", "-execdir", "-ok", "-okdir", "-fprintf"]);
    let end = (1..argv.len()).find(begins_other).unwrap_or(argv.len());
    // After an option, `!` may be its value: `-name ! -path x` selects x.
    let excludes = |at: &usize| {
        let is_negated = is(*at - 1, &["-not", "!"]);
        is(*at, PATH_TESTS) && is_negated && !argv[*at - 2].starts_with(['-', '!'])
    };
    let tests = (3..end).filter(excludes).map(|at| at + 1);
    tests.filter(|pattern| *pattern < end).collect()
}

/// Returns the positions of the pathspecs that exclude. Before `--`, such a word may be the value of
/// an option, and other commands may change or remove the files that they do not exclude.
fn excluded_by_git(argv: &[String]) -> Vec<usize> {
    let has_pathspecs = argv
        .get(1)
        .is_some_and(|command| WITH_PATHSPECS.contains(&command.as_str()));
    let Some(end) = argv.iter().position(|word| word == "--") else {
        return Vec::new();
    };
    if !has_pathspecs {
        return Vec::new();
    }
    let excludes = |word: &str| {
        [":!", ":^", ":(exclude"]
            .iter()
            .any(|start| word.starts_with(start))
    };
    (end + 1..argv.len())
        .filter(|at| excludes(&argv[*at]))
        .collect()
}

/// Returns the positions of the options that exclude, with their pattern in the same word.
fn excluded_by_option(argv: &[String]) -> Vec<usize> {
    let excludes =
        |word: &str| word.starts_with("--exclude=") || word.starts_with("--exclude-dir=");
    let end = argv.iter().position(|word| word == "--");
    (1..end.unwrap_or(argv.len()))
        .filter(|at| excludes(&argv[*at]))
        .collect()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::PathFixture;
    use super::super::shell::analyze;
    use super::*;

    #[test]
    fn only_words_that_certainly_exclude_are_left_out() {
        let lab = PathFixture::new();
        // The line, and whether its text without excluded words still names the file.
        let table = [
            ("find . -not -path './.git/*' | xargs grep x", false),
            ("find . ! -path './.git/*' -print0 | xargs -0 grep x", false),
            ("find . -type f -not -name .git | xargs grep x", false),
            ("find . -not -name a -not -name .git | xargs grep x", false),
            ("grep -rl --exclude-dir=.git x . | xargs grep y", false),
            (
                "find . -type f -not -path './.git/*' -exec sed -i s/a/b/ {} +",
                false,
            ),
            ("git grep x -- ':!.git/config'", false),
            ("git grep x -- ':(exclude).git/config'", false),
            // Selected after all.
            ("find . -path ./.git -prune -o -print | xargs grep x", true),
            ("find . -name .git -prune -o -type f | xargs cat", true),
            ("find . -path ./.git -prune -o -depth -type f -print", true),
            ("find . -not -name '!' -path ./.git | xargs cat", true),
            ("find . -printf '!' -path ./.git -print", true),
            ("find . -fprintf /dev/null ! -path ./.git -print", true),
            ("find . -exec ./gen.sh -not -path .git/config \\;", true),
            ("tar c . --exclude=.git | cat", true),
            ("rsync -a --delete-excluded --exclude=.git a/ b/", true),
            ("find . -path './.git/*' | xargs grep x", true),
            ("find . -not -not -path './.git/*' | xargs grep x", true),
            (
                "find . -not -path './.git/*' -o -print | xargs grep x",
                true,
            ),
            ("find . -not \\( -not -path './.git/*' \\)", true),
            ("find . -path ./.git -prune", true),
            ("find . -path ./.git -prune -print -o -print", true),
            ("find . -not -path ./.git -prune -o -print", true),
            ("find . -name x -path ./.git -prune -o -print", true),
            ("find . -not -path ./.git/config; cat .git/config", true),
            ("find .git -not -path './.git/*'", true),
            // Another program, other words, or words that are not known.
            ("find() { cat $3; }; find . -not -path .git/config", true),
            ("xargs find . -not -path .git/config", true),
            (
                "sh -c \"find . -not -path .git/config\"; find . -not -path .git/config",
                true,
            ),
            ("find . $X -not -path .git/config", true),
            ("cat -not -path .git/config", true),
            ("grep x -- --exclude-dir=.git/config", true),
            ("grep -e --exclude-dir .git/config", true),
            ("git grep x -- .git/config", true),
            ("git grep -f ':!.git/config'", true),
            ("git stash push -- ':!.git/config'", true),
            ("fd -x ./gen.sh --exclude=.git/config", true),
            ("find . -not -path .git/config | sh '", true),
        ];
        for (line, is_named) in table {
            let text = text_without_excluded(&analyze(line, &lab.context));
            assert_eq!(text.contains(".git"), is_named, "{line}: {text}");
        }
    }
}
