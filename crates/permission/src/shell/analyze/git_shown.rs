//! Files with secrets that a git command shows although its words do not name them, as `git grep`
//! and `git diff` do. They depend on its options, revisions and paths, and on the disk.

use std::path::Path;

use super::Analyzer;
use crate::Action;
use crate::shell::disk::{NotKnown, ShownFiles};
use crate::shell::expand::{Arg, ShellState};
use crate::shell::names::among;
use crate::shell::unit::CommandUnit;
use crate::wildcard::{glob_to_wildcard, matches_folded};
use base::worktree::normal;

/// Options that count or name differences instead of showing them.
const WITHOUT_CONTENT: &str = "-s --no-patch --stat --numstat --shortstat --dirstat --summary --name-only --name-status \
    --raw --compact-summary --quiet --cumulative -X";
/// Options that show differences if the command does not by default.
const WITH_CONTENT: &str = "-p -u --patch -U --unified --patch-with-stat --patch-with-raw -c --cc --remerge-diff --dd \
    --word-diff --word-diff-regex --color-words -W --function-context --binary --full-diff";
/// Options of `git grep` that show no lines.
const GREP_NAMES: &str =
    "-l -L -c -q --files-with-matches --name-only --files-without-match --count --quiet";
/// Options that show commits which no word names.
const FROM_ELSEWHERE: &str = "--all --branches --tags --remotes --glob --reflog -g --walk-reflogs --stdin --not --bisect \
    --exclude --alternate-refs --boundary";
/// Options that skip commits: with them, `-1` is not the newest commit, but the newest that
/// matches.
const NARROWING: &str = "--skip -S -G --find-object --grep --grep-reflog --author --committer --since --since-as-filter \
    --after --until --before --max-age --min-age --merges --no-merges --min-parents --max-parents --diff-filter \
    --cherry-pick --cherry --left-only --right-only --simplify-by-decoration --ancestry-path --merge --remove-empty -L";
/// Short options whose value may be in the same word: of `git grep`, and of commands that show
/// differences.
const VALUED_BY_GREP: &str = "ABCOefm";
const VALUED: &str = "BCGLMOSUXln";

/// The words of a git command by kind.
struct Words<'a> {
    options: Vec<&'a str>,
    /// Words that are neither options nor paths after `--`.
    plain: Vec<&'a Arg>,
    paths: Vec<&'a Arg>,
    /// True if there is a `--`: then no word before it is a path.
    has_dashes: bool,
    /// The maximum number of commits that are shown.
    max_commits: Option<usize>,
    /// Short options whose value may be in the same word.
    valued: &'static str,
}

impl<'a> Words<'a> {
    fn of(name: &str, args: &'a [Arg]) -> Self {
        /// Options whose value is the next word.
        const NEXT: &str = "-n --max-count --skip --since --after --until --before --author --committer --grep --format \
            --date -S -G -O -e -f -A -B -C -m --threads --max-depth --context --after-context --before-context --prefix \
            -o --output --mtime --add-file --inter-hunk-context --diff-filter --exec";
        let dashes = args.iter().position(|arg| arg.is("--"));
        let end = dashes.unwrap_or(args.len());
        let mut words = Self {
            options: vec![],
            plain: vec![],
            paths: args.iter().skip(end + 1).collect(),
            has_dashes: dashes.is_some(),
            max_commits: None,
            valued: if name == "grep" {
                VALUED_BY_GREP
            } else {
                VALUED
            },
        };
        let mut is_value = false;
        for arg in &args[..end] {
            if is_value {
                is_value = false;
                if matches!(words.options.last(), Some(&("-n" | "--max-count"))) {
                    words.max_commits = arg.text().and_then(|text| text.parse().ok());
                }
            } else if arg.prefix().starts_with('-') && arg.prefix().len() > 1 {
                words.options.push(arg.prefix());
                is_value = among(NEXT, arg.prefix()) && !(name == "grep" && arg.is("-n"));
                words.max_commits = words.max_commits.or_else(|| count_of(arg.prefix()));
            } else {
                words.plain.push(arg);
            }
        }
        words
    }

    /// Returns whether one of these options is given, possibly within a cluster of short options.
    fn has(&self, names: &str) -> bool {
        let has_short = |option: &str| {
            let letters = option
                .strip_prefix('-')
                .filter(|rest| !rest.starts_with('-'))
                .unwrap_or_default();
            let own = letters
                .find(|c| self.valued.contains(c))
                .map_or(letters, |at| &letters[..=at]);
            own.chars()
                .any(|letter| among(names, &format!("-{letter}")))
        };
        let is_long = |option: &str| {
            option.starts_with("--") && among(names, option.split('=').next().unwrap_or(option))
        };
        self.options
            .iter()
            .any(|option| is_long(option) || has_short(option))
    }

    /// Splits the plain words into revisions and paths.
    fn split(&self, is_revision: &mut dyn FnMut(&str) -> bool) -> (Vec<&'a str>, Vec<&'a Arg>) {
        let mut revisions = vec![];
        let mut paths = vec![];
        for (at, arg) in self.plain.iter().enumerate() {
            let revision = if paths.is_empty() { arg.text() } else { None };
            match revision {
                Some(text) if self.has_dashes || is_revision(text) => revisions.push(text),
                _ => paths.extend_from_slice(&self.plain[at..=at]),
            }
        }
        paths.extend(&self.paths);
        (revisions, paths)
    }

    /// Returns the words that may be revisions or paths.
    fn undecided(&self, name: &str) -> &[&'a Arg] {
        let has_pattern = name == "grep" && !self.has("-e -f");
        match name {
            "diff" | "difftool" | "diff-index" | "diff-tree" | "show" | "log" | "whatchanged"
            | "format-patch" | "grep"
                if !self.has_dashes =>
            {
                self.plain
                    .get(usize::from(has_pattern)..)
                    .unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Returns the number of commits to read: `None`, which means all, if the shown ones need not
    /// be the first.
    fn max_commits_of(&self, paths: &[&Arg]) -> Option<usize> {
        if paths.is_empty() && !self.has(NARROWING) {
            self.max_commits
        } else {
            None
        }
    }
}

/// Returns whether a word that is neither a file nor a readable revision may still be a revision:
/// `@{u}`, `HEAD^{commit}`, `:/text`. git fails on any other word, except on a pattern of paths and
/// on a path after a colon, which is judged as a path.
fn may_be_revision(name: &str, text: &str, is_file: &dyn Fn(&str) -> bool) -> bool {
    let is_magic = [":(", ":!", ":^"]
        .iter()
        .any(|start| text.starts_with(start))
        || text == ":/";
    let is_pattern = text.contains(['*', '?', '[']) && !text.contains(['@', '^', '~', '{', ':']);
    if is_magic || is_pattern {
        return false;
    }
    let end = text.rsplit('}').next().unwrap_or(text);
    if text.starts_with(":/") {
        return true;
    }
    match end.rsplit_once(':') {
        // A directory is compared or searched with all its files; `git show` shows only their
        // names.
        Some((_, path)) => name != "show" && !is_file(path),
        None => true,
    }
}

/// Returns the files that a git command shows, with the paths that it is limited to. `None` if it
/// shows no contents of files, or only of files that its words name. `shows_stash` is a setting of
/// git with which `git stash show` shows more than names.
fn shown<'a>(
    name: &str,
    words: &Words<'a>,
    shows_stash: bool,
    is_revision: &mut dyn FnMut(&str) -> bool,
) -> Option<(Vec<ShownFiles>, Vec<&'a Arg>)> {
    let head = || "HEAD".to_owned();
    let patch = words.has(WITH_CONTENT);
    let by_default = patch || !words.has(WITHOUT_CONTENT);
    let every = |list: Vec<ShownFiles>| Some((list, words.paths.clone()));
    match name {
        "grep" if !words.has(GREP_NAMES) && !words.has("--no-index") => {
            let pattern = usize::from(!words.has("-e -f"));
            let plain = words.plain.iter().skip(pattern).copied().collect();
            let rest = Words {
                options: vec![],
                plain,
                paths: words.paths.clone(),
                ..*words
            };
            let (revisions, paths) = rest.split(is_revision);
            let trees = revisions
                .iter()
                .map(|revision| ShownFiles::Tree((*revision).to_owned()));
            let shown: Vec<ShownFiles> = trees.collect();
            Some((
                if shown.is_empty() {
                    vec![ShownFiles::Tracked]
                } else {
                    shown
                },
                paths,
            ))
        }
        "diff" | "difftool" if by_default && !words.has("--no-index") => {
            let (revisions, paths) = words.split(is_revision);
            Some((
                vec![difference(&revisions, words.has("--cached --staged"))],
                paths,
            ))
        }
        "diff-index" if patch => {
            let (revisions, paths) = words.split(is_revision);
            Some((vec![difference(&revisions, words.has("--cached"))], paths))
        }
        "diff-files" if patch => every(vec![ShownFiles::Unstaged]),
        "diff-tree" if patch => {
            let (revisions, paths) = words.split(is_revision);
            let shown = match revisions.as_slice() {
                _ if words.has("--stdin") => ShownFiles::Unknown,
                [one] if !one.contains("..") => ShownFiles::Change((*one).to_owned()),
                revisions => difference(revisions, false),
            };
            Some((vec![shown], paths))
        }
        "show" if by_default => {
            let (mut revisions, paths) = words.split(is_revision);
            // The text after a colon is a path, which is judged as a named one.
            revisions.retain(|revision| !revision.contains(':'));
            if revisions.is_empty() && words.plain.is_empty() {
                revisions.push("HEAD");
            }
            let everywhere = words.has(FROM_ELSEWHERE).then_some(ShownFiles::Everything);
            Some((
                revisions
                    .into_iter()
                    .map(changes)
                    .chain(everywhere)
                    .collect(),
                paths,
            ))
        }
        "log" | "whatchanged" | "reflog" if patch || words.has("-L") => {
            Some(logged(name, words, is_revision))
        }
        "format-patch" => Some(formatted(words, is_revision)),
        "stash" => stashed(words, shows_stash),
        "am" | "rebase" if words.has("--show-current-patch") => every(vec![ShownFiles::Unknown]),
        "archive" if !words.has("--remote --list -l") => {
            let tree = words.plain.first().map_or_else(head, |arg| arg.normal());
            Some((
                vec![ShownFiles::Tree(tree)],
                words
                    .plain
                    .iter()
                    .skip(1)
                    .chain(&words.paths)
                    .copied()
                    .collect(),
            ))
        }
        "cat-file" => {
            let is_batch = |option: &&str| {
                option.starts_with("--batch") && !option.starts_with("--batch-check")
            };
            let blobs = words
                .plain
                .iter()
                .filter_map(|arg| arg.text())
                .filter(|text| !text.contains(':'));
            let named = blobs
                .filter(|text| is_revision(text))
                .map(|text| ShownFiles::Change(text.to_owned()));
            let all = words
                .options
                .iter()
                .any(is_batch)
                .then_some(ShownFiles::Unknown);
            every(named.chain(all).collect())
        }
        _ if shows_head(name, words) => every(vec![ShownFiles::Since(head())]),
        "range-diff" | "diff-pairs" => every(vec![ShownFiles::Unknown]),
        "fast-export" if !words.has("--no-data") => {
            every(vec![ShownFiles::Tracked, ShownFiles::Everything])
        }
        _ => None,
    }
}

/// Returns the files that a list of commits shows.
fn logged<'a>(
    name: &str,
    words: &Words<'a>,
    is_revision: &mut dyn FnMut(&str) -> bool,
) -> (Vec<ShownFiles>, Vec<&'a Arg>) {
    let (revisions, mut paths) = words.split(is_revision);
    let max_commits = words.max_commits_of(&paths);
    // All changes of a commit are shown although it was selected by a path; and with `--follow`, a
    // file under its former names.
    if words.has("--full-diff --follow -L") {
        paths.clear();
    }
    let shown = if words.has(FROM_ELSEWHERE) || name == "reflog" {
        ShownFiles::Everything
    } else if words.has("-L") {
        ShownFiles::Unknown
    } else {
        history(&revisions, max_commits)
    };
    (vec![shown], paths)
}

/// Returns the files that patches of commits show.
fn formatted<'a>(
    words: &Words<'a>,
    is_revision: &mut dyn FnMut(&str) -> bool,
) -> (Vec<ShownFiles>, Vec<&'a Arg>) {
    let (revisions, paths) = words.split(is_revision);
    let shown = match (revisions.as_slice(), words.max_commits_of(&paths)) {
        _ if words.has(FROM_ELSEWHERE) => ShownFiles::Everything,
        ([since], None) if !since.contains("..") && words.max_commits.is_none() => {
            ShownFiles::History(vec!["HEAD".to_owned()], vec![(*since).to_owned()], None)
        }
        (revisions, max_commits) => history(revisions, max_commits),
    };
    (vec![shown], paths)
}

/// Returns whether a command shows differences from the last commit although that is not its
/// purpose.
fn shows_head(name: &str, words: &Words<'_>) -> bool {
    match name {
        "status" => words.has("-v --verbose"),
        "commit" => words.has("-v --verbose") && words.has("--dry-run"),
        "add" | "checkout" | "restore" | "reset" => words.has("-p --patch -i --interactive"),
        _ => false,
    }
}

/// Returns the files that `git diff` compares.
fn difference(revisions: &[&str], staged: bool) -> ShownFiles {
    match revisions {
        [] if staged => ShownFiles::Staged("HEAD".to_owned()),
        [] => ShownFiles::Unstaged,
        [one] => match (one.split_once("..."), one.split_once("..")) {
            (Some((from, to)), _) => {
                ShownFiles::SinceMergeBase(revision_or_head(from), revision_or_head(to))
            }
            (None, Some((from, to))) => {
                ShownFiles::Between(revision_or_head(from), revision_or_head(to))
            }
            (None, None) if staged => ShownFiles::Staged(revision_or_head(one)),
            (None, None) => ShownFiles::Since(revision_or_head(one)),
        },
        [one, other] => ShownFiles::Between(revision_or_head(one), revision_or_head(other)),
        // A merge of more than two commits.
        _ => ShownFiles::Unknown,
    }
}

/// Returns the revision, or `HEAD` if it is omitted.
fn revision_or_head(revision: &str) -> String {
    if revision.is_empty() {
        "HEAD".to_owned()
    } else {
        revision.to_owned()
    }
}

/// Returns the files that `git show` shows for one of its words.
fn changes(revision: &str) -> ShownFiles {
    if revision.contains("..") {
        history(&[revision], None)
    } else {
        ShownFiles::Change(revision.to_owned())
    }
}

fn history(revisions: &[&str], max_commits: Option<usize>) -> ShownFiles {
    let mut from = vec![];
    let mut without = vec![];
    for revision in revisions {
        match (revision.split_once(".."), revision.strip_prefix('^')) {
            (Some((before, after)), _) => {
                // For `...`, both sides are shown.
                let after = match after.strip_prefix('.') {
                    Some(after) => {
                        from.push(revision_or_head(before));
                        after
                    }
                    None => {
                        without.push(revision_or_head(before));
                        after
                    }
                };
                from.push(revision_or_head(after));
            }
            (None, Some(left_out)) => without.push(revision_or_head(left_out)),
            (None, None) => from.push(revision_or_head(revision)),
        }
    }
    if from.is_empty() {
        from.push("HEAD".to_owned());
    }
    ShownFiles::History(from, without, max_commits)
}

/// Returns the number of commits in `-3`, `-n3`, `--max-count=3`.
fn count_of(option: &str) -> Option<usize> {
    let digits = option
        .strip_prefix("--max-count=")
        .or(option.strip_prefix("-n"))
        .or(option.strip_prefix('-'))?;
    digits.parse().ok()
}

fn stashed<'a>(words: &Words<'a>, shows_stash: bool) -> Option<(Vec<ShownFiles>, Vec<&'a Arg>)> {
    let verb = words
        .plain
        .first()
        .and_then(|arg| arg.text())
        .unwrap_or_default();
    // Without an option only names are shown; with an option that selects no form, the differences.
    let has_options = !words.options.is_empty();
    let rest: Vec<&str> = words
        .plain
        .iter()
        .skip(1)
        .filter_map(|arg| arg.text())
        .collect();
    match verb {
        "show"
            if words.has(WITH_CONTENT)
                || !words.has(WITHOUT_CONTENT) && (shows_stash || has_options) =>
        {
            let stash = match rest.first() {
                Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    format!("stash@{{{number}}}")
                }
                Some(stash) => (*stash).to_owned(),
                None => "stash".to_owned(),
            };
            let mut shown = vec![ShownFiles::Between(format!("{stash}^1"), stash.clone())];
            if words.has("-u --include-untracked --only-untracked") {
                shown.push(ShownFiles::Tree(format!("{stash}^3")));
            }
            Some((shown, vec![]))
        }
        "list" if words.has(WITH_CONTENT) => {
            Some((vec![ShownFiles::Tracked, ShownFiles::Everything], vec![]))
        }
        "" | "push" | "save" if words.has("-p --patch") => {
            Some((vec![ShownFiles::Since("HEAD".to_owned())], vec![]))
        }
        _ => None,
    }
}

/// Returns whether the paths of a command, given from `from`, include a path below the top of a
/// working tree. A path that cannot be parsed includes all. Without paths, all are included, or
/// with `only_here` those below `from`.
fn includes_path(path: &str, specs: &[&Arg], from: &Path, top: &Path, only_here: bool) -> bool {
    let mut any = false;
    let mut only_left_out = true;
    for spec in specs {
        let Some(text) = spec.text().or(spec.pattern()) else {
            return true;
        };
        let left_out =
            text.starts_with(":!") || text.starts_with(":^") || text.starts_with(":(exclude)");
        let bare = text
            .strip_prefix(":/")
            .or(text.strip_prefix(":!"))
            .or(text.strip_prefix(":^"));
        let bare = bare
            .or(text.strip_prefix(":(exclude)"))
            .or(text.strip_prefix(":(top)"))
            .unwrap_or(text);
        if bare.starts_with(":(") || (left_out && bare.contains(['*', '?', '['])) {
            // Unsupported magic; an excluding pattern may exclude less than it seems.
            only_left_out &= left_out;
            any |= !left_out;
            continue;
        }
        let at_top = text.starts_with(":/") || text.starts_with(":(top)");
        let whole = normal(&if at_top {
            top.join(bare)
        } else {
            from.join(bare)
        });
        let spelled = whole
            .strip_prefix(top)
            .unwrap_or(&whole)
            .display()
            .to_string();
        let is_below = |dir: &str| {
            dir.is_empty()
                || path == dir
                || path
                    .strip_prefix(dir)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let fits = is_below(&spelled) || matches_folded(&glob_to_wildcard(&spelled), path);
        if left_out {
            if is_below(&spelled) {
                return false;
            }
        } else {
            only_left_out = false;
            any |= fits;
        }
    }
    let here = from
        .strip_prefix(top)
        .is_ok_and(|here| Path::new(path).starts_with(here));
    any || only_left_out && (here || !only_here)
}

/// Returns whether a command is limited to existing files by their names: it shows nothing else of
/// a history.
fn all_are_files(paths: &[&Arg], from: &Path) -> bool {
    let is_file = |arg: &&Arg| {
        arg.text().is_some_and(|text| {
            !text.starts_with(':') && !text.contains(['*', '?', '[']) && from.join(text).is_file()
        })
    };
    !paths.is_empty() && paths.iter().all(is_file)
}

impl Analyzer<'_> {
    /// Asks about a git command that shows a file with secrets which its words do not name.
    pub(super) fn shown_by_git(
        &mut self,
        name: &str,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let words = Words::of(name, args);
        for cwd in &state.cwd {
            let Some(top) = self
                .disk
                .work_tree(cwd)
                .and_then(|top| top.canonicalize().ok())
            else {
                continue;
            };
            let shows_stash = self.disk.repository(cwd).shows_stash;
            let disk = &mut self.disk;
            let mut is_revision = |word: &str| {
                let ends: Vec<&str> = word
                    .split("..")
                    .map(|end| end.trim_matches(['.', '^']))
                    .collect();
                !cwd.join(word).exists()
                    && ends
                        .iter()
                        .all(|end| end.is_empty() || disk.is_revision(&top, end))
            };
            let Some((mut all, mut paths)) = shown(name, &words, shows_stash, &mut is_revision)
            else {
                return;
            };
            let is_file = |path: &str| top.join(path).is_file() || cwd.join(path).is_file();
            let is_unread = |text: &str, is_revision: &mut dyn FnMut(&str) -> bool| {
                !cwd.join(text).exists()
                    && !is_revision(text)
                    && may_be_revision(name, text, &is_file)
            };
            let mut undecided = words.undecided(name).iter().filter_map(|arg| arg.text());
            if undecided.any(|text| is_unread(text, &mut is_revision)) {
                all.push(ShownFiles::Unknown);
                paths.clone_from(&words.paths);
            }
            if words.plain.iter().any(|arg| arg.text().is_none()) {
                // A computed word may name any commit.
                all.push(ShownFiles::Unknown);
            }
            let real = std::fs::canonicalize(cwd).unwrap_or_else(|_| cwd.clone());
            let only_here = matches!(name, "grep" | "archive");
            let wanted = |path: &str| includes_path(path, &paths, &real, &top, only_here);
            for shown in &all {
                match self.disk.secret_shown(&top, shown, &wanted) {
                    Ok(Some(path)) => {
                        unit.add_secret(
                            &path,
                            &format!("it shows {path}, which may hold keys or passwords"),
                        );
                        break;
                    }
                    Ok(None) => {}
                    Err(NotKnown::Index) => {
                        let why = "git's index cannot be read, so which files this shows is not known; a repository with \
                                   SHA-256 has such an index";
                        unit.set_minimum(Action::Ask, why);
                    }
                    // A path that is a file was not a directory with other files.
                    Err(NotKnown::History) if all_are_files(&paths, &real) => {}
                    Err(NotKnown::History) => {
                        let why = "its history has more commits than are examined, or some that cannot be read, so which \
                                   files this shows is not known";
                        unit.set_minimum(Action::Ask, why);
                    }
                }
            }
        }
    }
}
