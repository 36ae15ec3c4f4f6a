//! One message per line, in and out.
//!
//! Input: a thread reads bytes and divides them into lines. A bad line (too long, not UTF-8) is an
//! *item*, never the end of the stream. `LinesCodec` of tokio-util reports it as an error, after
//! which `FramedRead` ends, so this decoder never fails.
//!
//! Output: everything that is written (replies, updates, our own requests) is appended to one buffer,
//! the [`Outbox`], and a single thread swaps the buffer out and writes it. This gives one total
//! order, no allocation per message, few writes under load (one write and flush per message was
//! measured to cost 100 times the CPU), and back-pressure counted in bytes: if the client stops
//! reading, callers of [`Outbox::send`] wait. Waiting callers take turns, line by line.
//!
//! The order is fixed when a line is enqueued, before its sender waits, and the outbox itself writes
//! the line. So a future that is not polled for a while, because its task waits for something else,
//! does not block the lines after it.
//!
//! Threads have half the latency of async stdio, and nothing has to be cancelled at exit. (A sender
//! could write a single line itself, with `RWF_NOWAIT`, which is 7 % faster. But a reader that uses
//! `splice` holds the pipe's lock while it waits for something else, and would block every sender.)
//! If the output is not a file, a task takes the lines from [`OutboxReader`] instead.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::codec::Decoder;

use crate::scan::{MemberScanner, SkippedMessage};

/// The length of the longest accepted input line in bytes, without the newline. Longer lines are
/// skipped and answered with one error. The TypeScript SDK has the same cap.
pub const MAX_LINE_BYTES: usize = 32 << 20;

/// The number of unwritten bytes above which [`Outbox::send`] waits. A line of one session may wait
/// behind this many bytes of others.
const SEND_LIMIT_BYTES: usize = 256 << 10;

/// The number of unwritten bytes above which the read loop pauses ([`Outbox::drained`]). Only a
/// client that sends many requests without reading the replies reaches it.
const READ_LIMIT_BYTES: usize = 16 << 20;

/// A line of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Valid UTF-8 (checked), without the line ending, not blank.
    Text(Bytes),
    /// A line that cannot be a message.
    Bad(BadLine),
}

/// The reason why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than [`MAX_LINE_BYTES`]. It was skipped, except for the members that are given here.
    #[error("the message is longer than {} MiB, which is the limit", MAX_LINE_BYTES >> 20)]
    TooLong(SkippedMessage),
    /// Not UTF-8. It is never decoded lossily.
    #[error("the line is not valid UTF-8")]
    NotUtf8,
}

/// A decoder that divides bytes into [`Line`]s. `\n` and `\r\n` end a line; blank lines are
/// skipped; a byte order mark at the very start is ignored.
#[derive(Debug)]
pub struct JsonLines {
    cap: usize,
    /// The number of bytes already searched for a newline.
    seen: usize,
    /// The scanner of a line that is too long, while it is skipped.
    skipping: Option<MemberScanner>,
    is_at_start: bool,
}

impl Default for JsonLines {
    fn default() -> Self {
        Self::with_cap(MAX_LINE_BYTES)
    }
}

impl JsonLines {
    /// Creates a decoder with another cap.
    pub fn with_cap(cap: usize) -> Self {
        Self {
            cap,
            seen: 0,
            skipping: None,
            is_at_start: true,
        }
    }

    /// Scans a piece of a line that is too long.
    fn skip(&mut self, mut piece: &[u8]) {
        if std::mem::take(&mut self.is_at_start) {
            piece = piece.strip_prefix(b"\xef\xbb\xbf").unwrap_or(piece);
        }
        self.skipping.get_or_insert_default().feed(piece);
    }

    /// Returns the skipped line, if there is one.
    fn skipped(&mut self) -> Option<Line> {
        self.skipping
            .take()
            .map(|scanner| Line::Bad(BadLine::TooLong(scanner.finish())))
    }

    fn line(&mut self, bytes: BytesMut) -> Option<Line> {
        let mut bytes = bytes.freeze();
        if std::mem::take(&mut self.is_at_start) && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes = bytes.slice(3..);
        }
        while let Some(b'\r' | b' ' | b'\t') = bytes.last() {
            bytes.truncate(bytes.len() - 1);
        }
        if bytes.is_empty() {
            return None;
        }
        Some(match std::str::from_utf8(&bytes) {
            Ok(_) => Line::Text(bytes),
            Err(_) => Line::Bad(BadLine::NotUtf8),
        })
    }
}

impl Decoder for JsonLines {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, src: &mut BytesMut) -> io::Result<Option<Line>> {
        loop {
            let newline = memchr::memchr(b'\n', &src[self.seen..]).map(|n| n + self.seen);
            let Some(end) = newline else {
                if self.skipping.is_some() || src.len() > self.cap {
                    self.skip(src);
                    *src = BytesMut::new();
                }
                self.seen = src.len();
                return Ok(None);
            };
            self.seen = 0;
            let mut line = src.split_to(end + 1);
            line.truncate(end);
            if line.len() > (1 << 20) {
                // The rest must not keep the allocation of the large line alive.
                *src = BytesMut::from(&src[..]);
            }
            if self.skipping.is_some() || line.len() > self.cap {
                self.skip(&line);
            }
            if let Some(skipped) = self.skipped() {
                return Ok(Some(skipped));
            }
            if let Some(line) = self.line(line) {
                return Ok(Some(line));
            }
        }
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> io::Result<Option<Line>> {
        if let Some(line) = self.decode(src)? {
            return Ok(Some(line));
        }
        self.seen = 0;
        if let Some(skipped) = self.skipped() {
            return Ok(Some(skipped));
        }
        // An unterminated last line is treated like any other.
        let rest = src.split();
        Ok(self.line(rest))
    }
}

/// Starts the thread that reads `input`. Lines arrive in order, and the channel closes at the end
/// of input. The channel is short because a line may be large.
pub fn read(input: impl Read + Send + 'static) -> mpsc::Receiver<Line> {
    let (tx, rx) = mpsc::channel(4);
    let reader = move || {
        let mut input = input;
        let mut decoder = JsonLines::default();
        let mut buffer = BytesMut::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let n = match input.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    tracing::warn!("reading input failed: {e}");
                    break;
                }
            };
            buffer.extend_from_slice(&chunk[..n]);
            while let Ok(Some(line)) = decoder.decode(&mut buffer) {
                if tx.blocking_send(line).is_err() {
                    return;
                }
            }
        }
        if let Ok(Some(line)) = decoder.decode_eof(&mut buffer) {
            // If the receiver is dropped, the connection is closing, and the line is not needed.
            tx.blocking_send(line).ok();
        }
    };
    if let Err(e) = thread::Builder::new().name("read".into()).spawn(reader) {
        tracing::error!("no thread to read input with: {e}");
    }
    rx
}

/// The queue of lines to be written, in order. Clones refer to the same queue.
#[derive(Debug, Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // A std mutex, held for an append or a swap, never across an await.
    state: Mutex<State>,
    filled: Condvar,
    /// Wakes the task that takes lines from [`OutboxReader`]; `None` if a thread writes.
    pulled: Option<Notify>,
    /// Notified when lines were written, or the outbox ended.
    changed: Notify,
    /// Notified when the other side stopped reading. It is separate from `changed`, so that tasks
    /// which wait only for this are not woken by each line.
    broke: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The lines that the writer takes next, each with its newline.
    queued: Vec<u8>,
    /// The number of bytes that the writer has taken and not yet written.
    writing: usize,
    /// Lines above the limit, in the order of their numbers.
    waiting: VecDeque<Waiting>,
    /// The number of the next waiting line.
    next: u64,
    /// True once [`Outbox::close`] is called: no more lines are accepted.
    is_closed: bool,
    /// True if the other side does not read any more.
    is_broken: bool,
    /// True if the writer has ended after `is_closed`.
    is_finished: bool,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    line: Vec<u8>,
    queued: oneshot::Sender<()>,
}

impl State {
    fn append(&mut self, line: &[u8]) {
        self.queued.extend_from_slice(line);
        self.queued.push(b'\n');
    }

    fn is_below_limit(&self) -> bool {
        self.queued.len() + self.writing < SEND_LIMIT_BYTES
    }

    /// Queues waiting lines up to the limit.
    fn admit(&mut self) {
        while self.is_below_limit()
            && let Some(Waiting { line, queued, .. }) = self.waiting.pop_front()
        {
            self.append(&line);
            // The waiting task may just have been dropped.
            queued.send(()).ok();
        }
    }
}

/// A handle to a line that has its place in the order of writing. Dropping it before [`LineSlot::queued`] has
/// returned withdraws the line, unless it is already queued.
#[derive(Debug)]
pub struct LineSlot {
    outbox: Outbox,
    number: u64,
    /// `None` if the line is queued, or never will be.
    queued: Option<oneshot::Receiver<()>>,
}

impl LineSlot {
    /// Waits until the line is queued, which may already be the case.
    pub async fn queued(&mut self) {
        if let Some(queued) = &mut self.queued {
            // A closing outbox drops the sender.
            queued.await.ok();
            self.queued = None;
        }
    }

    /// Withdraws the line. Returns `false` if it is already queued, so that the other side will
    /// read it.
    pub fn withdraw(&mut self) -> bool {
        if self.queued.take().is_none() {
            return false;
        }
        let mut state = self.outbox.lock();
        let at = state
            .waiting
            .binary_search_by_key(&self.number, |waiting| waiting.number);
        at.is_ok_and(|at| state.waiting.remove(at).is_some())
    }
}

impl Drop for LineSlot {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Outbox {
    /// Starts the only thread that writes to `output`.
    pub fn start(output: impl Write + Send + 'static) -> Self {
        let outbox = Self::with(None);
        let shared = outbox.shared.clone();
        let writer = thread::Builder::new()
            .name("write".into())
            .spawn(move || write(&shared, output));
        if let Err(e) = writer {
            tracing::error!("no thread to write output with: {e}");
            outbox.lock().is_broken = true;
        }
        outbox
    }

    /// Creates an outbox without a thread, and the end from which its lines are taken.
    pub fn without_thread() -> (Self, OutboxReader) {
        let outbox = Self::with(Some(Notify::new()));
        let outgoing = OutboxReader {
            shared: outbox.shared.clone(),
        };
        (outbox, outgoing)
    }

    fn with(pulled: Option<Notify>) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            filled: Condvar::new(),
            pulled,
            changed: Notify::new(),
            broke: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Queues one line (without its newline) without waiting. Only for the read loop, which must
    /// never wait for the writer; all others use [`Outbox::send`]. Drops the line if the outbox is
    /// closed or broken.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.is_closed || state.is_broken {
            return;
        }
        let was_empty = state.queued.is_empty();
        state.append(line);
        drop(state);
        if was_empty {
            self.shared.wake();
        }
    }

    /// Queues one line. Waits while more than 256 KiB are unwritten.
    pub async fn send(&self, line: Vec<u8>) {
        self.place(line).queued().await;
    }

    /// Assigns a place to one line without waiting. Queues the line at once if fewer than 256 KiB are
    /// unwritten and no line waits, otherwise puts it after the waiting ones.
    pub fn place(&self, line: Vec<u8>) -> LineSlot {
        let mut state = self.lock();
        let number = state.next;
        let mut slot = LineSlot {
            outbox: self.clone(),
            number,
            queued: None,
        };
        if state.is_closed
            || state.is_broken
            || (state.is_below_limit() && state.waiting.is_empty())
        {
            drop(state);
            self.push(&line);
            return slot;
        }
        let (queued, queued_receiver) = oneshot::channel();
        state.next += 1;
        state.waiting.push_back(Waiting {
            number,
            line,
            queued,
        });
        slot.queued = Some(queued_receiver);
        slot
    }

    /// Waits while more than 16 MiB are unwritten, unless the outbox is closed or broken.
    pub async fn drained(&self) {
        let is_drained = |state: &State| {
            let unwritten = state.queued.len() + state.writing;
            unwritten < READ_LIMIT_BYTES || state.is_broken || state.is_closed
        };
        self.until(&self.shared.changed, is_drained).await;
    }

    /// Waits until the other side has closed its end of the output.
    pub async fn broken(&self) {
        self.until(&self.shared.broke, |state| state.is_broken)
            .await;
    }

    /// Closes the queue, discards the lines that wait for room, and waits until all queued lines are
    /// written or cannot be written.
    pub async fn close(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_closed = true;
            std::mem::take(&mut state.waiting)
        };
        // Wakes their senders, which must not happen under the lock.
        drop(waiting);
        self.shared.wake();
        self.until(&self.shared.changed, |state| {
            state.is_finished || state.is_broken
        })
        .await;
    }

    async fn until(&self, notify: &Notify, done: impl Fn(&State) -> bool) {
        loop {
            let changed = notify.notified();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread or task that writes.
    fn wake(&self) {
        match &self.pulled {
            None => self.filled.notify_one(),
            Some(pulled) => pulled.notify_one(),
        }
    }

    /// Records that the taken lines were written.
    fn written(&self) {
        let mut state = self.lock();
        state.writing = 0;
        state.admit();
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that the other side does not read any more.
    fn break_off(&self) {
        let mut state = self.lock();
        state.is_broken = true;
        state.queued = Vec::new();
        state.waiting.clear();
        state.writing = 0;
        drop(state);
        self.changed.notify_waiters();
        self.broke.notify_waiters();
    }
}

/// The end of an outbox from which a task takes lines. Dropping it breaks the outbox.
#[derive(Debug)]
pub struct OutboxReader {
    shared: Arc<Shared>,
}

impl OutboxReader {
    /// Waits for queued lines, and returns them, each with a newline at its end. The call
    /// confirms that the lines of the previous call are written. Returns `None` if the outbox is closed and
    /// empty. Cancel-safe: dropping the future loses no lines.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        if self.shared.lock().writing > 0 {
            self.shared.written();
        }
        loop {
            {
                let mut state = self.shared.lock();
                if !state.queued.is_empty() {
                    let taken = std::mem::take(&mut state.queued);
                    state.writing = taken.len();
                    return Some(taken);
                }
                if state.is_closed {
                    state.is_finished = true;
                    drop(state);
                    self.shared.changed.notify_waiters();
                    return None;
                }
            }
            match &self.shared.pulled {
                Some(pulled) => pulled.notified().await,
                // `Outbox::without_thread` always sets it.
                None => return None,
            }
        }
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.shared.break_off();
    }
}

fn write(shared: &Shared, mut output: impl Write) {
    let mut taken = Vec::new();
    loop {
        {
            let mut state = shared.lock();
            while state.queued.is_empty() && !state.is_closed {
                state = shared
                    .filled
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if state.queued.is_empty() {
                state.is_finished = true;
                drop(state);
                shared.changed.notify_waiters();
                return;
            }
            taken.clear();
            // A burst must not occupy memory for the life of the connection.
            taken.shrink_to(256 << 10);
            std::mem::swap(&mut taken, &mut state.queued);
            state.writing = taken.len();
            state.admit();
        }
        let written = output.write_all(&taken).and_then(|()| output.flush());
        if let Err(e) = written {
            tracing::info!("the other side stopped reading: {e}");
            shared.break_off();
            return;
        }
        shared.written();
    }
}

/// Redirects standard output. The returned file is a private duplicate for the protocol, and fd 1
/// refers to standard error from now on, so that no print of a dependency or child can corrupt the
/// stream.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "the stream of the protocol")]
pub fn take_stdout() -> io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    let private = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
    rustix::stdio::dup2_stdout(io::stderr().as_fd())?;
    Ok(std::fs::File::from(private))
}

/// Returns standard output for the protocol. On this system, only the ban on printing protects the
/// stream.
#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "the stream of the protocol")]
pub fn take_stdout() -> io::Result<io::Stdout> {
    Ok(io::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(cap: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = JsonLines::with_cap(cap);
        let mut buffer = BytesMut::new();
        let mut out = Vec::new();
        let show = |line| match line {
            Line::Text(text) => String::from_utf8(text.to_vec()).unwrap_or_default(),
            Line::Bad(BadLine::TooLong(skipped)) => {
                format!("TooLong {}", skipped.id.as_deref().unwrap_or("-"))
            }
            Line::Bad(BadLine::NotUtf8) => "NotUtf8".to_owned(),
        };
        for chunk in chunks {
            buffer.extend_from_slice(chunk);
            while let Ok(Some(line)) = decoder.decode(&mut buffer) {
                out.push(show(line));
            }
        }
        while let Ok(Some(line)) = decoder.decode_eof(&mut buffer) {
            out.push(show(line));
        }
        out
    }

    #[test]
    fn lines_are_divided_independently_of_chunks() {
        assert_eq!(
            cut(64, &[b"{\"a\"", b":1}\r\n\n", b"  \n", b"{}\n{}"]),
            ["{\"a\":1}", "{}", "{}"]
        );
    }

    #[test]
    fn bad_lines_do_not_end_the_stream() {
        assert_eq!(
            cut(
                4,
                &[b"a\xff\n", b"123", b"456", b"789\n", b"ok\n", b"12345"]
            ),
            ["NotUtf8", "TooLong -", "ok", "TooLong -"]
        );
    }

    #[test]
    fn id_of_long_line_is_found_independently_of_chunks() {
        let text = format!(
            "\u{feff}{{\"params\":\"{}\",\"id\":7}}\n{{}}\n",
            "a".repeat(3000)
        );
        let (start, end) = text.as_bytes().split_at(2500);
        assert_eq!(cut(2000, &[text.as_bytes()]), ["TooLong 7", "{}"]);
        assert_eq!(cut(2000, &[start, end]), ["TooLong 7", "{}"]);
        assert_eq!(
            cut(2000, &text.as_bytes().chunks(7).collect::<Vec<_>>()),
            ["TooLong 7", "{}"]
        );
    }

    #[test]
    fn byte_order_mark_is_ignored_only_at_the_start() {
        assert_eq!(
            cut(64, &[b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n"]),
            ["{}", "\u{feff}{}"]
        );
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    async fn waiting_senders_take_turns() {
        let (theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        let flooding = Arc::new(Notify::new());
        let own = outbox.clone();
        let begun = flooding.clone();
        let flood = tokio::spawn(async move {
            let line = vec![b'a'; 100 << 10];
            for n in 0..40 {
                // The outbox is full by then: this line waits.
                if n == 3 {
                    begun.notify_one();
                }
                own.send(line.clone()).await;
            }
        });
        flooding.notified().await;
        let other = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(b"b".to_vec()).await }
        });
        // The line takes its place in the order before anything is read.
        tokio::task::yield_now().await;
        let reader = thread::spawn(move || {
            let lines = io::BufRead::lines(io::BufReader::new(theirs));
            lines
                .map(|line| line.unwrap().remove(0))
                .collect::<String>()
        });
        other.await.unwrap();
        flood.await.unwrap();
        outbox.close().await;
        let order = reader.join().unwrap();
        assert_eq!(order.len(), 41);
        assert_eq!(order.find('b'), Some(4), "{order}");
    }

    /// A regression test for a whole process that was blocked by one line whose task was not
    /// polled.
    #[tokio::test]
    async fn unpolled_slot_does_not_block_later_lines() {
        let (theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        // Fills the pipe and the outbox.
        while outbox.place(vec![b'a'; 100 << 10]).queued.is_none() {}
        let mut unpolled: Vec<LineSlot> = (0..100).map(|_| outbox.place(b"b".to_vec())).collect();
        let withdrawn = outbox.place(b"c".to_vec());
        let mut last = outbox.place(b"d".to_vec());
        drop(withdrawn);
        assert!(unpolled.remove(7).withdraw());
        let reader = thread::spawn(move || {
            let lines = io::BufRead::lines(io::BufReader::new(theirs));
            lines
                .map(|line| line.unwrap().remove(0))
                .collect::<String>()
        });
        // The slots before it were not polled.
        last.queued().await;
        assert!(!unpolled[0].withdraw());
        outbox.close().await;
        drop(outbox);
        assert_eq!(
            reader.join().unwrap().trim_start_matches('a'),
            format!("{}d", "b".repeat(99))
        );
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    async fn outgoing_returns_lines_in_order() {
        let (outbox, mut outgoing) = Outbox::without_thread();
        outbox.push(b"a");
        outbox.push(b"b");
        assert_eq!(outgoing.next().await.as_deref(), Some(&b"a\nb\n"[..]));
        let sender = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(vec![b'c'; SEND_LIMIT_BYTES]).await }
        });
        assert_eq!(
            outgoing.next().await.map(|taken| taken.len()),
            Some(SEND_LIMIT_BYTES + 1)
        );
        // The line counts as unwritten until the next call.
        let mut full = outbox.place(b"d".to_vec());
        assert!(full.queued.is_some());
        assert_eq!(outgoing.next().await.as_deref(), Some(&b"d\n"[..]));
        full.queued().await;
        sender.await.unwrap();
        outbox.push(b"e");
        let closed = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.close().await }
        });
        tokio::task::yield_now().await;
        assert_eq!(outgoing.next().await.as_deref(), Some(&b"e\n"[..]));
        assert_eq!(outgoing.next().await, None);
        closed.await.unwrap();
        let broken = tokio::spawn(async move { outbox.broken().await });
        tokio::task::yield_now().await;
        drop(outgoing);
        broken.await.unwrap();
    }

    #[tokio::test]
    async fn sender_waits_when_reader_stops() {
        let (mut theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        let line = vec![b'x'; 75 << 10];
        let mut sent = 0;
        // The pipe has a capacity of 64 KiB, the outbox one of a little more than 256 KiB.
        while tokio::time::timeout(
            std::time::Duration::from_millis(50),
            outbox.send(line.clone()),
        )
        .await
        .is_ok()
        {
            sent += 1;
        }
        assert!((3..8).contains(&sent), "{sent} lines were taken");
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all.len()
        });
        outbox.close().await;
        drop(outbox);
        assert_eq!(reader.join().unwrap(), sent * (line.len() + 1));
    }
}
