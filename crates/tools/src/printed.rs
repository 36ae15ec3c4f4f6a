//! What a program prints, as a terminal would show it, kept in bounds: memory holds the beginning and the
//! end of it, a file holds all of it once it is too long to be shown.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::screen::TerminalScreen;
use super::truncate::{KeepEnd, create, full, has_room, hint};
use base::environment::Environment;
use base::text;
use config::settings::OutputLimits;

/// The most that is kept of the output of one command, in bytes.
const FILED: u64 = 256 << 20;

/// Room for a file is asked for in pieces of this many bytes.
const PIECE: u64 = 8 << 20;

/// Output as it is kept: a fifth of what may be shown from the beginning, the rest from the end, all
/// of it in a file once it is too long to be shown.
pub(super) struct CapturedOutput {
    limits: OutputLimits,
    environment: Environment,
    /// What can still change. It is no part of the counts and ends below; in the file it stands last.
    screen: TerminalScreen,
    /// Everything, while it is short; then its beginning.
    head: Vec<u8>,
    /// Its end, and at most as much again before that.
    tail: Vec<u8>,
    total: u64,
    lines: usize,
    file: Option<(std::fs::File, PathBuf)>,
    filed: u64,
    /// How many bytes the file may have before room is asked for again.
    granted: u64,
    trouble: Option<String>,
}

pub(super) struct ShownOutput {
    pub(super) text: String,
    pub(super) hint: Option<String>,
    pub(super) path: Option<PathBuf>,
}

impl CapturedOutput {
    pub(super) fn new(limits: OutputLimits, environment: Environment) -> Self {
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

    fn long(&self, more: &[u8]) -> bool {
        let (bytes, lines) = (self.total + length(more), self.lines + breaks(more));
        bytes > u64::try_from(self.limits.bytes).unwrap_or(u64::MAX) || lines > self.limits.lines
    }

    /// Takes more of it. Gives what cannot change any more.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let done = self.screen.take(bytes);
        self.settle(&done);
        done
    }

    /// Nothing more comes. Gives what could have changed.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let done = self.screen.end();
        self.settle(&done);
        done
    }

    /// What can still change, as it is now.
    pub(super) fn live(&self) -> Vec<u8> {
        self.screen.live()
    }

    fn settle(&mut self, bytes: &[u8]) {
        let was_long = self.long(&[]);
        self.total += length(bytes);
        self.lines += breaks(bytes);
        // Before there is a file, nothing is filed.
        self.file_away(bytes);
        if was_long {
            self.keep_end(bytes);
        } else {
            self.head.extend_from_slice(bytes);
            if self.long(&[]) {
                self.spill();
            }
        }
        self.file_live();
    }

    /// What can still change stands at the end of the file, for whoever looks at it meanwhile.
    fn file_live(&mut self) {
        let Some((file, _)) = self.file.as_ref().filter(|_| self.filed < FILED) else { return };
        let live = self.screen.live();
        let written = file.write_all_at(&live, self.filed).and_then(|()| file.set_len(self.filed + length(&live)));
        if let Err(e) = written {
            self.trouble = Some(e.to_string());
            self.filed = FILED;
        }
    }

    /// From here on a file holds everything, however short it is.
    pub(super) fn file_all(&mut self) {
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

    /// The file that holds everything, if there is one.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(_, path)| path.clone())
    }

    /// Where all of it is, as far as it was kept: a sentence for the model.
    pub(super) fn whole(&self) -> String {
        let mut whole = match (&self.file, &self.trouble) {
            (Some((_, path)), None) => hint(path),
            (Some((_, path)), Some(trouble)) if self.granted > 0 => {
                format!("The beginning of the output is in {}; the rest was not kept: {trouble}.", path.display())
            }
            (_, trouble) => format!("The full output could not be kept: {}.", trouble.as_deref().unwrap_or_default()),
        };
        if self.total > FILED && self.trouble.is_none() {
            whole.push_str(&format!(" Of {} MiB the first {} MiB were kept there.", self.total >> 20, FILED >> 20));
        }
        whole
    }

    /// How much of it may be shown.
    pub(super) fn limits(&self) -> OutputLimits {
        self.limits
    }

    /// It has become too long: from here on the file holds everything, memory both ends.
    fn spill(&mut self) {
        self.file_all();
        let all = std::mem::take(&mut self.head);
        let first = all.len().min(self.limits.bytes / 5);
        self.head = all[..first].to_vec();
        self.keep_end(&all[first..]);
    }

    /// A write to the page cache, in pieces of at most 64 KiB: not worth a thread.
    fn file_away(&mut self, bytes: &[u8]) {
        let room = usize::try_from(FILED.saturating_sub(self.filed)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        let wanted = self.filed + u64::try_from(bytes.len()).unwrap_or_default();
        if self.file.is_some() && wanted > self.granted {
            if !has_room(&self.environment, PIECE) {
                self.trouble.get_or_insert_with(|| full().to_string());
                self.filed = FILED;
                return;
            }
            self.granted = wanted + PIECE;
        }
        if let Some((file, _)) = &mut self.file {
            match file.write_all(bytes) {
                Ok(()) => self.filed += u64::try_from(bytes.len()).unwrap_or_default(),
                Err(e) => {
                    self.trouble = Some(e.to_string());
                    self.filed = FILED;
                }
            }
        }
    }

    fn keep_end(&mut self, bytes: &[u8]) {
        let most = self.most();
        let bytes = &bytes[bytes.len().saturating_sub(most)..];
        if self.tail.len() + bytes.len() > 2 * most {
            let over = (self.tail.len() + bytes.len()).saturating_sub(most).min(self.tail.len());
            self.tail.drain(..over);
        }
        self.tail.extend_from_slice(bytes);
    }

    /// How much of the end is shown.
    fn most(&self) -> usize {
        self.limits.bytes - self.limits.bytes / 5
    }

    /// What is to be shown of it now.
    pub(super) fn kept(&self) -> ShownOutput {
        let live = self.live();
        if !self.long(&live) {
            let all = [&self.head[..], &live].concat();
            let text = String::from_utf8_lossy(&all);
            let text = text::head(&text, self.limits.bytes).to_owned();
            return ShownOutput { text, hint: None, path: None };
        }
        let end = [&self.tail[..], &live].concat();
        // What can still change may be what makes it too long.
        let (head, end) = match self.long(&[]) {
            true => (&self.head[..], end),
            false => {
                let (head, rest) = self.head.split_at(self.head.len().min(self.limits.bytes / 5));
                (head, [rest, &end].concat())
            }
        };
        let tail = &end[end.len().saturating_sub(self.most())..];
        let few = self.limits.lines / 5;
        let head = whole_lines(head, few.max(1), KeepEnd::Head);
        let tail = whole_lines(tail, (self.limits.lines - few).max(1), KeepEnd::Tail);
        let shown = length(head) + length(tail);
        let missing = (self.total + length(&live)).saturating_sub(shown);
        // What is no UTF-8 grows when it becomes text.
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let first = self.limits.bytes / 5;
        let text = format!(
            "{}\n\n...{missing} bytes truncated...\n\n{}",
            text::head(&head, first).trim_end_matches('\n'),
            text::tail(&tail, self.limits.bytes - first)
        );
        ShownOutput { text, hint: Some(self.whole()), path: self.path() }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn breaks(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// At most `lines` lines from one end, cut between characters and, where there is a line break to
/// cut at that does not cost half of it, between lines.
fn whole_lines(bytes: &[u8], lines: usize, keep: KeepEnd) -> &[u8] {
    let breaks: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    match keep {
        KeepEnd::Head => {
            let last = breaks.last().filter(|last| **last >= bytes.len() / 2);
            let at = breaks.get(lines - 1).or(last).copied();
            let mut end = at.unwrap_or(bytes.len());
            while end > 0 && end < bytes.len() && bytes[end] & 0xc0 == 0x80 {
                end -= 1;
            }
            // An unfinished character at the very end of what was kept.
            if at.is_none() {
                let start = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
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
            let start = if total > lines { breaks.get(total - lines - 1) } else { first };
            // A single long line has no break to begin at, except its own end.
            let mut start = start.copied().filter(|start| *start < bytes.len()).unwrap_or(0);
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

    /// Eight programs that print without end fill what all outputs may take together, and not the disk.
    #[test]
    fn what_is_kept_is_bounded_in_sum() {
        use super::super::truncate::{ALL_KEPT, folder};
        let stage = super::super::test::TestProject::new();
        let environment = stage.context().project.environment;
        let old = folder(&environment.dirs).join("old");
        base::environment::private_dir(old.parent().unwrap()).unwrap();
        let sparse = |path: &std::path::Path, size: u64| std::fs::File::create(path).unwrap().set_len(size).unwrap();
        sparse(&old, ALL_KEPT - (20 << 20));
        let limits = OutputLimits { lines: 10, bytes: 1 << 10 };
        let print = |mib: usize| {
            let mut printed = CapturedOutput::new(limits, environment.clone());
            (0..mib).for_each(|_| drop(printed.take(&vec![b'y'; 1 << 20])));
            printed
        };
        let printed = print(30);
        let filed = std::fs::metadata(printed.path().unwrap()).unwrap().len();
        assert!((8 << 20..=20 << 20).contains(&filed), "{filed}");
        let hint = printed.kept().hint.unwrap();
        assert!(hint.starts_with("The beginning of the output is in ") && hint.contains("512 MiB"), "{hint}");
        // What nobody writes to any more makes room.
        std::fs::File::options().write(true).open(&old).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(print(30).kept().hint.unwrap().starts_with("The full output is in "));
        assert!(!old.exists());
    }

    #[test]
    fn both_ends_are_kept() {
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
            assert_eq!(whole_lines(bytes, *lines, *keep), *expected, "{bytes:?} {lines} {keep:?}");
        }
    }
}
