//! Shortens tool results for the model: by default to 2,000 lines and 50 KiB. The whole of a longer
//! result is stored in a file that the model may read. Every result passes through [`finish`].

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::{ToolContext, ToolOutput};
use base::environment::{Dirs, Environment, private_dir, private_file};
use base::text;
use config::settings::OutputLimits;
use transcript::CallFacts;

/// The age at which files with whole results are removed.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The maximum total size of all stored results, in bytes.
pub const MAX_STORED_BYTES: u64 = 512 << 20;

/// A result that was written to within this time may still grow, so it is not removed to free
/// space.
const IN_USE_GRACE: Duration = Duration::from_secs(10 * 60);

/// The part of a long result that remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepEnd {
    /// The beginning.
    #[default]
    Head,
    /// The end, as for the output of commands.
    Tail,
}

/// A text that was cut to the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncation {
    /// The part of the text that remains.
    pub shown: String,
    /// The size of the omitted part; `None` if the text is complete.
    pub missing: Option<Remainder>,
}

/// The size of the omitted part of a text, in the more informative unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remainder {
    /// Whole lines.
    Lines(usize),
    /// Bytes, if a line was cut.
    Bytes(usize),
}

impl std::fmt::Display for Remainder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Lines(n) => write!(f, "...{} truncated...", text::count(n, "line")),
            Self::Bytes(n) => write!(f, "...{} truncated...", text::count(n, "byte")),
        }
    }
}

/// Returns whether a text exceeds the limits. [`finish`] and [`finish_failure`] store such a text in a
/// file.
pub fn is_too_long(text: &str, limits: OutputLimits) -> bool {
    text.len() > limits.bytes || text.split_inclusive('\n').count() > limits.lines
}

/// Cuts a text to whole lines within the limits; within a line if less than half of the limit would
/// remain, for instance next to a very long line.
pub fn cut(text: &str, limits: OutputLimits, keep: KeepEnd) -> Truncation {
    if !is_too_long(text, limits) {
        return Truncation {
            shown: text.to_owned(),
            missing: None,
        };
    }
    let lines = text.split_inclusive('\n').count();
    let mut taken = 0;
    let mut bytes = 0;
    let mut take = |line: &str| {
        let fits = taken < limits.lines && bytes + line.len() <= limits.bytes;
        if fits {
            taken += 1;
            bytes += line.len();
        }
        fits
    };
    match keep {
        KeepEnd::Head => text
            .split_inclusive('\n')
            .take_while(|line| take(line))
            .for_each(drop),
        KeepEnd::Tail => text
            .split_inclusive('\n')
            .rev()
            .take_while(|line| take(line))
            .for_each(drop),
    }
    if bytes < limits.bytes / 2 && taken < limits.lines {
        let shown = match keep {
            KeepEnd::Head => text::head(text, limits.bytes),
            KeepEnd::Tail => text::tail(text, limits.bytes),
        };
        return Truncation {
            shown: shown.to_owned(),
            missing: Some(Remainder::Bytes(text.len() - shown.len())),
        };
    }
    let shown = match keep {
        KeepEnd::Head => &text[..bytes],
        KeepEnd::Tail => &text[text.len() - bytes..],
    };
    Truncation {
        shown: shown.to_owned(),
        missing: Some(Remainder::Lines(lines - taken)),
    }
}

/// Cuts a result to the limits for the model. The whole text is stored in a file, whose path is
/// added to the note. Titles become one line.
pub fn finish(mut output: ToolOutput, context: &ToolContext) -> ToolOutput {
    output.title = text::title(&output.title);
    // A tool that has cut its result has cut its display as well.
    if !output.cut
        && let Some(display) = output.display.take()
    {
        let cut = cut(&display, context.limits, output.keep);
        output.display = Some(match (cut.missing, output.keep) {
            (None, _) => cut.shown,
            (Some(missing), KeepEnd::Head) => {
                format!("{}\n{missing}", cut.shown.trim_end_matches('\n'))
            }
            (Some(missing), KeepEnd::Tail) => format!("{missing}\n{}", cut.shown),
        });
    }
    let text = std::mem::take(&mut output.text);
    output.text = if output.cut {
        text
    } else {
        shorten(text, output.keep, context, |hint, path| {
            output.facts.output_path = path.or(output.facts.output_path.take());
            output
                .metadata
                .insert(CallFacts::TRUNCATED.into(), Value::Bool(true));
            output.note = if output.note.is_empty() {
                hint
            } else {
                format!("{hint}\n{}", output.note)
            };
        })
    };
    output.cut = true;
    if output.facts.output_path.is_some() && context.call.can_explore && !output.note.is_empty() {
        let (first, rest) = output.note.split_once('\n').unwrap_or((&output.note, ""));
        let apart = if rest.is_empty() { "" } else { "\n" };
        output.note = format!("{first} {EXPLORE}{apart}{rest}");
    }
    output.text = context.session.mark.data(output.text);
    if !output.heading.is_empty() {
        let text = match output.text.trim() {
            "" => "(no output)",
            _ => &output.text,
        };
        output.text = format!("{}\n\n{text}", output.heading);
    }
    let instructions = std::mem::take(&mut output.instructions);
    if !instructions.is_empty() {
        let apart = if output.note.is_empty() { "" } else { "\n" };
        output.note = format!("{}{apart}{}", output.note, instructions.introduction);
    }
    if !output.note.is_empty() {
        let data = output.text.trim_end_matches('\n');
        let between = if data.is_empty() { "" } else { "\n\n" };
        let noted = format!("{data}{between}{}", context.session.mark.note(&output.note));
        // People see the result without the note.
        output.display = Some(output.display.take().unwrap_or_else(|| data.to_owned()));
        output.text = noted;
    }
    if !instructions.is_empty() {
        let text = instructions.quoted(&context.session.mark);
        output.text = format!("{}\n\n{text}", output.text);
    }
    output
}

/// Cuts a text to the limits. If it is too long, the whole text is stored in a file, and `on_cut`
/// gets a sentence about the file and its path, or a sentence on the error and `None`.
fn shorten(
    text: String,
    keep: KeepEnd,
    context: &ToolContext,
    on_cut: impl FnOnce(String, Option<PathBuf>),
) -> String {
    let cut = cut(&text, context.limits, keep);
    let Some(missing) = cut.missing else {
        return text;
    };
    match store(&text, context) {
        Ok(path) => on_cut(hint(&path), Some(path)),
        Err(e) => on_cut(format!("The rest could not be saved: {e}."), None),
    }
    match keep {
        KeepEnd::Head => format!("{}\n\n{missing}", cut.shown.trim_end_matches('\n')),
        KeepEnd::Tail => format!("{missing}\n\n{}", cut.shown.trim_end_matches('\n')),
    }
}

/// Cuts the reason for a failure, or a further text of a result, like a result, since servers and
/// programs may send long ones. Adds a sentence on the file with the whole text.
pub fn finish_failure(why: String, context: &ToolContext) -> String {
    let mut stored = None;
    let shown = shorten(why, KeepEnd::Head, context, |hint, path| {
        // People read the reason of a failure as well.
        stored = Some(path.map_or(hint, |path| located(&path)));
    });
    let shown = context.session.mark.data(shown);
    stored.map_or(shown.clone(), |hint| format!("{shown}\n\n{hint}"))
}

/// The sentence on the alternative to reading the file, for agents that may delegate.
const EXPLORE: &str = "The agent explore can search it for you.";

/// Returns the sentences on the file with the whole text and on its use, for the model.
pub fn hint(path: &Path) -> String {
    format!("{} Search that file, or read parts of it.", located(path))
}

/// Returns the sentence on the file with the whole text, for the model and for people.
pub(crate) fn located(path: &Path) -> String {
    format!("The full output is in {}.", path.display())
}

/// Stores a whole result in a file.
///
/// # Errors
/// The system's error if the file cannot be written.
pub fn store(text: &str, context: &ToolContext) -> io::Result<PathBuf> {
    if !ensure_space(
        &context.project.environment,
        u64::try_from(text.len()).unwrap_or(u64::MAX),
    ) {
        return Err(full());
    }
    let (mut file, path) = create(&context.project.environment)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}

/// Creates an empty file for a whole result, readable only by its owner.
///
/// # Errors
/// The system's error if it cannot be created.
pub fn create(environment: &Environment) -> io::Result<(File, PathBuf)> {
    let dir = folder(&environment.dirs);
    private_dir(&dir)?;
    let path = dir.join(environment.fresh("tool"));
    Ok((
        private_file().write(true).create_new(true).open(&path)?,
        path,
    ))
}

/// Returns whether `more` bytes of results can be stored. Removes the oldest results if necessary.
pub fn ensure_space(environment: &Environment, more: u64) -> bool {
    let now = Duration::from_millis(environment.now().0);
    let entries = std::fs::read_dir(folder(&environment.dirs))
        .into_iter()
        .flatten()
        .flatten();
    let mut files: Vec<(Duration, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let data = entry.metadata().ok()?;
            Some((
                age(&data, now).unwrap_or_default(),
                data.len(),
                entry.path(),
            ))
        })
        .collect();
    files.sort_unstable_by_key(|(age, ..)| *age);
    let mut sum: u64 = files.iter().map(|(_, size, _)| size).sum();
    while sum.saturating_add(more) > MAX_STORED_BYTES
        && let Some((_, size, path)) = files.pop_if(|(age, ..)| *age > IN_USE_GRACE)
    {
        if std::fs::remove_file(path).is_ok() {
            sum -= size;
        }
    }
    sum.saturating_add(more) <= MAX_STORED_BYTES
}

/// Returns the error for a result that is not stored for lack of space.
pub fn full() -> io::Error {
    io::Error::other(format!(
        "the saved outputs have reached their limit of {} MiB",
        MAX_STORED_BYTES >> 20
    ))
}

/// Returns the directory of whole results.
pub fn folder(dirs: &Dirs) -> PathBuf {
    dirs.data.join("tool-output")
}

/// The interval between searches for old files, over all processes.
pub const CLEANUP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Removes whole results and sessions' temporary files that are older than a week, unless that was
/// done within the hour or another process is doing it. Files that cannot be removed are tried
/// again the next time.
pub fn clean(environment: &Environment) {
    let path = environment.dirs.data.join(STAMP);
    // Without the directory there is nothing to remove.
    let Ok(stamp) = private_file()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
    else {
        return;
    };
    // A process that does not get the lock has nothing to do.
    if stamp.try_lock().is_err() {
        return;
    }
    if let Err(e) = clean_if_due(environment, &stamp) {
        tracing::warn!("{}: {e}", path.display());
    }
    // Closing the file would not release it while a process that is being started has a copy.
    stamp.unlock().ok();
}

/// Removes old results, unless that was done within the hour according to the locked `stamp`.
fn clean_if_due(environment: &Environment, mut stamp: &File) -> io::Result<()> {
    let now = Duration::from_millis(environment.now().0);
    let last = stamp
        .metadata()
        .ok()
        .filter(|data| data.len() > 0)
        .and_then(|data| age(&data, now));
    if last.is_some_and(|age| age < CLEANUP_INTERVAL) {
        return Ok(());
    }
    remove_old(environment);
    stamp.write_all(b"looked")?;
    stamp.set_modified(UNIX_EPOCH + now)
}

/// The file whose modification time is that of the last search. It is locked during a search.
const STAMP: &str = ".cleaned";

/// Returns the time since a file was modified; `None` if that is in the future. `now` counts from
/// the epoch.
fn age(data: &std::fs::Metadata, now: Duration) -> Option<Duration> {
    now.checked_sub(data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?)
}

/// Removes whole results and sessions' temporary files that are older than [`MAX_AGE`].
fn remove_old(environment: &Environment) {
    let now = Duration::from_millis(environment.now().0);
    let is_old = |path: &Path| {
        std::fs::symlink_metadata(path)
            .ok()
            .and_then(|data| age(&data, now))
            .is_some_and(|age| age > MAX_AGE)
    };
    let entries = std::fs::read_dir(folder(&environment.dirs))
        .into_iter()
        .flatten()
        .flatten();
    for path in entries
        .map(|entry| entry.path())
        .filter(|path| is_old(path))
    {
        std::fs::remove_file(path).ok();
    }
    crate::scratch::clean(environment, is_old);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;
    use base::environment::Timestamp;

    #[test]
    fn cut_keeps_whole_lines_of_one_end() {
        let limits = |lines, bytes| OutputLimits { lines, bytes };
        let table = [
            ("", 2, 10, KeepEnd::Head, "", None),
            ("a\nb", 2, 10, KeepEnd::Head, "a\nb", None),
            ("a\nb\n", 2, 4, KeepEnd::Head, "a\nb\n", None),
            (
                "a\nb\nc",
                2,
                10,
                KeepEnd::Head,
                "a\nb\n",
                Some(Remainder::Lines(1)),
            ),
            (
                "a\nb\nc",
                2,
                10,
                KeepEnd::Tail,
                "b\nc",
                Some(Remainder::Lines(1)),
            ),
            (
                "aaa\nbbb\nccc\n",
                9,
                8,
                KeepEnd::Head,
                "aaa\nbbb\n",
                Some(Remainder::Lines(1)),
            ),
            (
                "aaa\nbbb\nccc\n",
                9,
                9,
                KeepEnd::Tail,
                "bbb\nccc\n",
                Some(Remainder::Lines(1)),
            ),
            (
                "a\nbbbbbbbbbbbb\n",
                9,
                8,
                KeepEnd::Head,
                "a\nbbbbbb",
                Some(Remainder::Bytes(7)),
            ),
            (
                "aaaaaaaaaaaa\nb\n",
                9,
                8,
                KeepEnd::Tail,
                "aaaaa\nb\n",
                Some(Remainder::Bytes(7)),
            ),
            (
                "a\nbbbbbbbbbbbb\n",
                1,
                8,
                KeepEnd::Head,
                "a\n",
                Some(Remainder::Lines(1)),
            ),
            ("äöü", 9, 3, KeepEnd::Head, "ä", Some(Remainder::Bytes(4))),
            ("äöü", 9, 3, KeepEnd::Tail, "ü", Some(Remainder::Bytes(4))),
        ];
        for (text, lines, bytes, keep, shown, missing) in table {
            let expected = Truncation {
                shown: shown.into(),
                missing,
            };
            assert_eq!(
                cut(text, limits(lines, bytes), keep),
                expected,
                "{text:?} {lines} {bytes} {keep:?}"
            );
        }
    }

    #[test]
    fn long_result_names_explore_where_the_agent_may_start_it() {
        let fixture = TestProject::new();
        for can_explore in [true, false] {
            let mut context = fixture.context();
            context.call.can_explore = can_explore;
            let named = |lines: usize| {
                let text = "line\n".repeat(lines);
                finish(ToolOutput::text(text), &context)
                    .text
                    .contains(EXPLORE)
            };
            assert_eq!(named(3000), can_explore);
            assert!(!named(3));
        }
    }

    #[test]
    fn long_results_are_stored_and_expire() {
        let fixture = TestProject::new();
        let context = fixture.context();
        let whole: String = (0..3000).map(|n| format!("line {n}\n")).collect();
        let output = finish(
            ToolOutput {
                title: "a\nb".into(),
                ..ToolOutput::text(whole.clone())
            },
            &context,
        );
        assert_eq!(output.title, "a\\nb");
        assert!(output.text.starts_with("line 0\n"));
        assert!(
            output
                .text
                .contains("line 1999\n\n...1000 lines truncated...\n\n<system-reminder mark=")
        );
        let path = output.facts.output_path.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            std::fs::metadata(path.parent().unwrap())
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        clean(&context.project.environment);
        assert!(path.exists());
        context.project.environment.set_now(Timestamp(
            context.project.environment.now().0 + 8 * 24 * 3_600_000,
        ));
        // Another process is searching.
        let stamp = File::options()
            .write(true)
            .open(context.project.environment.dirs.data.join(STAMP))
            .unwrap();
        stamp.lock().unwrap();
        clean(&context.project.environment);
        assert!(path.exists());
        stamp.unlock().unwrap();
        clean(&context.project.environment);
        assert!(!path.exists());
        // The last search was within the hour.
        std::fs::write(&path, "old").unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(UNIX_EPOCH)
            .unwrap();
        clean(&context.project.environment);
        assert!(path.exists());
        context
            .project
            .environment
            .set_now(Timestamp(context.project.environment.now().0 + 3_600_000));
        clean(&context.project.environment);
        assert!(!path.exists());
    }
}
