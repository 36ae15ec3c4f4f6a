//! Client messages that wait while the server is behind.

use std::collections::VecDeque;

use bytes::Bytes;

/// Lines of the client that wait until the server has acknowledged earlier ones.
#[derive(Default)]
pub(super) struct WaitingLines {
    pub(super) lines: VecDeque<Bytes>,
    /// Their size in bytes, with overhead.
    pub(super) bytes: usize,
}

impl WaitingLines {
    /// The overhead of a line in bytes.
    const LINE_BYTES: usize = 64;

    pub(super) fn push_back(&mut self, line: Bytes) {
        self.bytes += line.len() + Self::LINE_BYTES;
        self.lines.push_back(line);
    }

    pub(super) fn pop_front(&mut self) -> Option<Bytes> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len() + Self::LINE_BYTES;
        Some(line)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}
