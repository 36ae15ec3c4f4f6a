//! Bounded capture of a program's output, rendered as by a terminal: memory holds the beginning and
//! the end, a file the whole output once it is too long to be shown.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::process::terminal_emulator::TerminalScreen;
use crate::truncate::{KeepEnd, create, ensure_space, full, hint, located};
use base::environment::Environment;
use base::text;
use config::settings::OutputLimits;

/// The maximum size of a command's output file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The number of bytes that may be written before free space is checked again.
const SPACE_CHECK_BYTES: u64 = 8 << 20;

/// Captured output: a fifth of the limit from the beginning, the rest from the end, and the whole
/// in a file once it is too long to be shown.
pub(crate) struct CapturedOutput {
    limits: OutputLimits,
    environment: Environment,
    /// Output that may still change. It is not included in the counts and ends below; in the file
    /// it comes last.
    screen: TerminalScreen,
    /// The whole output while it is short; then its beginning.
    head: Vec<u8>,
    /// The end of the output that is shown, and at most as many bytes before it.
    tail: Vec<u8>,
    /// The number of all bytes.
    total: u64,
    /// The number of all line breaks.
    lines: usize,
    /// The file with the whole output, and its path; `None` as long as there is none.
    file: Option<(std::fs::File, PathBuf)>,
    /// The number of bytes in the file; [`MAX_FILE_BYTES`] if no more are written.
    filed: u64,
    /// The size that the file may have before free space is checked again.
    granted: u64,
    /// The reason why the file is missing or incomplete.
    trouble: Option<String>,
}

/// The part of an output that is shown.
pub(crate) struct ShownOutput {
    pub(crate) text: String,
    /// A sentence on the file with the whole output, for the model; `None` if `text` is all of it.
    pub(crate) hint: Option<String>,
    /// The file with the whole output, if there is one.
    pub(crate) path: Option<PathBuf>,
}

impl CapturedOutput {
    pub(crate) fn new(limits: OutputLimits, environment: Environment) -> Self {
        Self {
            limits,
            environment,
            screen: TerminalScreen::default(),
            head: Vec::new(),
            tail: Vec::new(),
            total: 0,
            lines: 0,
            file: None,
            filed: 0,
            granted: 0,
            trouble: None,
        }
    }

    /// Returns whether the output exceeds the limits together with `more`.
    fn is_too_long(&self, more: &[u8]) -> bool {
        let bytes = self.total + length(more);
        let lines = self.lines + breaks(more);
        bytes > u64::try_from(self.limits.bytes).unwrap_or(u64::MAX) || lines > self.limits.lines
    }

    /// Adds output. Returns the part of the output that cannot change any more since this call.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let done = self.screen.push_bytes(bytes);
        self.store(&done);
        done
    }

    /// Ends the capture. Returns the rest, which cannot change any more.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        let done = self.screen.end();
        self.store(&done);
        done
    }

    /// Returns the output that may still change, in its present state.
    pub(crate) fn live(&self) -> Vec<u8> {
        self.screen.live()
    }

    /// Stores output that cannot change any more.
    fn store(&mut self, bytes: &[u8]) {
        let was_long = self.is_too_long(&[]);
        self.total += length(bytes);
        self.lines += breaks(bytes);
        // Without a file this does nothing.
        self.file_away(bytes);
        if was_long {
            self.store_end(bytes);
        } else {
            self.head.extend_from_slice(bytes);
            if self.is_too_long(&[]) {
                self.spill();
            }
        }
        self.file_live();
    }

    /// Writes the output that may still change at the end of the file, for readers in the meantime.
    fn file_live(&mut self) {
        if self.filed >= MAX_FILE_BYTES {
            return;
        }
        let Some((file, _)) = self.file.as_ref() else {
            return;
        };
        let live = self.screen.live();
        let written = file
            .write_all_at(&live, self.filed)
            .and_then(|()| file.set_len(self.filed + length(&live)));
        if let Err(e) = written {
            self.trouble = Some(e.to_string());
            self.filed = MAX_FILE_BYTES;
        }
    }

    /// Creates the file, so that it holds the whole output from now on, however short it is.
    pub(crate) fn move_to_file(&mut self) {
        if self.file.is_some() || self.trouble.is_some() {
            return;
        }
        match create(&self.environment) {
            Ok(file) => self.file = Some(file),
            Err(e) => self.trouble = Some(e.to_string()),
        }
        let all = std::mem::take(&mut self.head);
        self.file_away(&all);
        self.head = all;
        self.file_live();
    }

    /// Returns the path of the file, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(_, path)| path.clone())
    }

    /// Returns the sentence on the file with the whole output, as far as it was stored, for the
    /// model.
    pub(crate) fn whole(&self) -> String {
        self.describe_location(hint)
    }

    /// Returns the sentence on the file with the whole output, for the model and for people.
    pub(crate) fn location(&self) -> String {
        self.describe_location(located)
    }

    /// Returns the sentence on the file. `stored_at` forms it for a path if everything was stored.
    fn describe_location(&self, stored_at: fn(&Path) -> String) -> String {
        let mut whole = match (&self.file, &self.trouble) {
            (Some((_, path)), None) => stored_at(path),
            (Some((_, path)), Some(trouble)) if self.granted > 0 => {
                format!(
                    "The beginning of the output is in {}; the rest could not be saved: {trouble}.",
                    path.display()
                )
            }
            (_, trouble) => format!(
                "The full output could not be saved: {}.",
                trouble.as_deref().unwrap_or_default()
            ),
        };
        if self.total > MAX_FILE_BYTES && self.trouble.is_none() {
            whole.push_str(&format!(
                " Of {} MiB, the first {} MiB were saved there.",
                self.total >> 20,
                MAX_FILE_BYTES >> 20
            ));
        }
        whole
    }

    /// Returns the limits of shown output.
    pub(crate) fn limits(&self) -> OutputLimits {
        self.limits
    }

    /// Moves the output to a file after it has become too long; memory then holds both ends.
    fn spill(&mut self) {
        self.move_to_file();
        let all = std::mem::take(&mut self.head);
        let first = all.len().min(self.limits.bytes / 5);
        self.head = all[..first].to_vec();
        self.store_end(&all[first..]);
    }

    /// Appends output to the file, if there is one. It goes to the page cache, in pieces of at most
    /// 64 KiB, which is not worth a thread.
    fn file_away(&mut self, bytes: &[u8]) {
        let available =
            usize::try_from(MAX_FILE_BYTES.saturating_sub(self.filed)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(available)];
        let wanted = self.filed + u64::try_from(bytes.len()).unwrap_or_default();
        if self.file.is_some() && wanted > self.granted {
            if !ensure_space(&self.environment, SPACE_CHECK_BYTES) {
                self.trouble.get_or_insert_with(|| full().to_string());
                self.filed = MAX_FILE_BYTES;
                return;
            }
            self.granted = wanted + SPACE_CHECK_BYTES;
        }
        if let Some((file, _)) = &mut self.file {
            match file.write_all(bytes) {
                Ok(()) => self.filed += u64::try_from(bytes.len()).unwrap_or_default(),
                Err(e) => {
                    self.trouble = Some(e.to_string());
                    self.filed = MAX_FILE_BYTES;
                }
            }
        }
    }

    /// Adds output to the stored end, and drops the part that is no longer shown.
    fn store_end(&mut self, bytes: &[u8]) {
        let most = self.max_tail_bytes();
        let bytes = &bytes[bytes.len().saturating_sub(most)..];
        if self.tail.len() + bytes.len() > 2 * most {
            let over = (self.tail.len() + bytes.len())
                .saturating_sub(most)
                .min(self.tail.len());
            self.tail.drain(..over);
        }
        self.tail.extend_from_slice(bytes);
    }

    /// Returns the maximum number of bytes of the end that are shown.
    fn max_tail_bytes(&self) -> usize {
        self.limits.bytes - self.limits.bytes / 5
    }

    /// Returns the part of the output to be shown now.
    pub(crate) fn shown_output(&self) -> ShownOutput {
        let live = self.live();
        if !self.is_too_long(&live) {
            let all = [&self.head[..], &live].concat();
            let text = String::from_utf8_lossy(&all);
            let text = text::head(&text, self.limits.bytes).to_owned();
            return ShownOutput {
                text,
                hint: None,
                path: None,
            };
        }
        let end = [&self.tail[..], &live].concat();
        // The output that may still change may be the reason why it is too long.
        let (head, end) = if self.is_too_long(&[]) {
            (&self.head[..], end)
        } else {
            let (head, rest) = self
                .head
                .split_at(self.head.len().min(self.limits.bytes / 5));
            (head, [rest, &end].concat())
        };
        let tail = &end[end.len().saturating_sub(self.max_tail_bytes())..];
        let few = self.limits.lines / 5;
        let head = whole_lines(head, few.max(1), KeepEnd::Head);
        let tail = whole_lines(tail, (self.limits.lines - few).max(1), KeepEnd::Tail);
        let shown = length(head) + length(tail);
        let missing = (self.total + length(&live)).saturating_sub(shown);
        // Invalid UTF-8 grows when it becomes text.
        let head = String::from_utf8_lossy(head);
        let tail = String::from_utf8_lossy(tail);
        let first = self.limits.bytes / 5;
        let text = format!(
            "{}\n\n...{missing} bytes truncated...\n\n{}",
            text::head(&head, first).trim_end_matches('\n'),
            text::tail(&tail, self.limits.bytes - first)
        );
        ShownOutput {
            text,
            hint: Some(self.whole()),
            path: self.path(),
        }
    }
}

/// Returns the number of bytes.
fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Returns the number of line breaks.
fn breaks(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// Returns at most `lines` lines from one end, cut between characters, and between lines if there
/// is a line break that does not cost half of the bytes.
fn whole_lines(bytes: &[u8], lines: usize, keep: KeepEnd) -> &[u8] {
    let breaks: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    match keep {
        KeepEnd::Head => {
            let last = breaks.last().filter(|last| **last >= bytes.len() / 2);
            let at = breaks.get(lines - 1).or(last).copied();
            let mut end = at.unwrap_or(bytes.len());
            while end > 0 && end < bytes.len() && bytes[end] & 0xc0 == 0x80 {
                end -= 1;
            }
            // The bytes may end within a character.
            if at.is_none() {
                let start = bytes
                    .iter()
                    .rposition(|byte| byte & 0xc0 != 0x80)
                    .unwrap_or(0);
                if std::str::from_utf8(&bytes[start..end]).is_err() {
                    end = start;
                }
            }
            &bytes[..end]
        }
        KeepEnd::Tail => {
            let ended = bytes.last() == Some(&b'\n');
            let total = breaks.len() + usize::from(!ended);
            let first = breaks.first().filter(|first| **first <= bytes.len() / 2);
            let start = if total > lines {
                breaks.get(total - lines - 1)
            } else {
                first
            };
            // A single long line has no line break except its own end.
            let mut start = start
                .copied()
                .filter(|start| *start < bytes.len())
                .unwrap_or(0);
            while start < bytes.len() && bytes[start] & 0xc0 == 0x80 {
                start += 1;
            }
            &bytes[start..]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight programs that print without end must not exceed the total for all stored outputs.
    #[test]
    fn stored_outputs_are_bounded_in_sum() {
        use crate::truncate::{MAX_STORED_BYTES, folder};
        let fixture = crate::test::TestProject::new();
        let environment = fixture.context().project.environment.clone();
        let old = folder(&environment.dirs).join("old");
        base::environment::private_dir(old.parent().unwrap()).unwrap();
        let sparse =
            |path: &Path, size: u64| std::fs::File::create(path).unwrap().set_len(size).unwrap();
        sparse(&old, MAX_STORED_BYTES - (20 << 20));
        let limits = OutputLimits {
            lines: 10,
            bytes: 1 << 10,
        };
        let print = |mib: usize| {
            let mut printed = CapturedOutput::new(limits, environment.clone());
            (0..mib).for_each(|_| drop(printed.push_bytes(&vec![b'y'; 1 << 20])));
            printed
        };
        let printed = print(30);
        let filed = std::fs::metadata(printed.path().unwrap()).unwrap().len();
        assert!((8 << 20..=20 << 20).contains(&filed), "{filed}");
        let hint = printed.shown_output().hint.unwrap();
        assert!(
            hint.starts_with("The beginning of the output is in ") && hint.contains("512 MiB"),
            "{hint}"
        );
        // A file that is no longer written to is removed to free space.
        std::fs::File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        assert!(
            print(30)
                .shown_output()
                .hint
                .unwrap()
                .starts_with("The full output is in ")
        );
        assert!(!old.exists());
    }

    #[test]
    fn whole_lines_cuts_at_either_end() {
        let table: &[(&[u8], usize, KeepEnd, &[u8])] = &[
            (b"a\nb\nc\n", 2, KeepEnd::Head, b"a\nb\n"),
            (b"a\nb\nc", 9, KeepEnd::Head, b"a\nb\n"),
            (b"abc", 2, KeepEnd::Head, b"abc"),
            (b"ab\xc3", 2, KeepEnd::Head, b"ab"),
            (b"a\nb\nc\n", 2, KeepEnd::Tail, b"b\nc\n"),
            (b"a\nb\nc", 2, KeepEnd::Tail, b"b\nc"),
            (b"art\nbb\nc", 9, KeepEnd::Tail, b"bb\nc"),
            (b"a\nbbbbbb", 9, KeepEnd::Head, b"a\nbbbbbb"),
            (b"a\nbbbbb\xc3", 9, KeepEnd::Head, b"a\nbbbbb"),
            (b"a\nbbbbbb", 1, KeepEnd::Head, b"a\n"),
            (b"aaaaaa\nb\n", 9, KeepEnd::Tail, b"aaaaaa\nb\n"),
            (b"aaaaaa\nb\n", 1, KeepEnd::Tail, b"b\n"),
            (b"abc\n", 9, KeepEnd::Tail, b"abc\n"),
            (b"\xa9bc", 9, KeepEnd::Tail, b"bc"),
        ];
        for (bytes, lines, keep, expected) in table {
            assert_eq!(
                whole_lines(bytes, *lines, *keep),
                *expected,
                "{bytes:?} {lines} {keep:?}"
            );
        }
    }
}
