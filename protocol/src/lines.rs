//! One message per line, in and out.
//!
//! Input: a thread reads bytes and cuts them into lines. A bad line (too long, not UTF-8) is an
//! *item*, never the end of the stream: `LinesCodec` of tokio-util reports it as an error, after
//! which `FramedRead` ends, so this decoder never errs.
//!
//! Output: everything that is written — replies, updates, our own calls — is appended to one
//! buffer, the [`Outbox`], and a single thread swaps the buffer out and writes it. That gives one
//! total order, no allocation per message, few writes under load (measured: one write and flush
//! per message costs 100 times the CPU), and back-pressure counted in bytes: an editor that stops
//! reading stops whoever calls [`Outbox::send`]. Those who wait take turns, line by line.
//!
//! Whoever waits has handed the line over first. A place in the order is therefore never held by a
//! future: one that is not polled for a while, because its task waits for something else, keeps nobody
//! behind it waiting.
//!
//! Threads rather than async stdio: half the latency, and nothing to cancel at exit. (A line that comes alone could be
//! written by whoever has it, with `RWF_NOWAIT`: a fifteenth faster. But a reader that splices holds the pipe's lock
//! while it waits for somebody else, and then everything here would wait too.) Where lines go into something else than
//! a file, a task takes them from [`Outgoing`] instead.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::codec::Decoder;

use crate::scan::{MemberScanner, SkippedMessage};

/// Longest input line in bytes, the newline not counted. Longer lines are skipped and answered
/// with one error. The TypeScript SDK has the same cap.
pub const LINE_CAP: usize = 32 << 20;

/// Unwritten bytes above which [`Outbox::send`] waits. What one session says last is behind so much of
/// what others say.
const ROOM: usize = 256 << 10;

/// Unwritten bytes above which the read loop pauses ([`Outbox::drained`]). Only an editor that
/// floods us without reading gets there.
const FLOOD: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Valid UTF-8 (checked), without the line end, not blank.
    Text(Bytes),
    /// A line that cannot be a message.
    Bad(BadLine),
}

/// Why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Longer than [`LINE_CAP`]; it was skipped, and this is what it said of itself.
    #[error("the message is longer than {} MiB, which is the limit", LINE_CAP >> 20)]
    TooLong(SkippedMessage),
    /// Not UTF-8. Never decoded lossily.
    #[error("the line is not valid UTF-8")]
    NotUtf8,
}

/// Cuts bytes into [`Line`]s. `\n` ends a line, `\r\n` too; blank lines are skipped; a byte order
/// mark at the very start is ignored.
#[derive(Debug)]
pub struct JsonLines {
    cap: usize,
    /// Bytes already searched for a newline.
    seen: usize,
    /// What looks at a line that is too long while it is skipped.
    skipping: Option<MemberScanner>,
    at_start: bool,
}

impl Default for JsonLines {
    fn default() -> Self {
        Self::with_cap(LINE_CAP)
    }
}

impl JsonLines {
    /// A decoder with a cap of its own.
    pub fn with_cap(cap: usize) -> Self {
        Self { cap, seen: 0, skipping: None, at_start: true }
    }

    /// Looks at a piece of a line that is too long.
    fn skip(&mut self, piece: &[u8]) {
        let is_first = std::mem::take(&mut self.at_start);
        let piece = piece.strip_prefix(b"\xef\xbb\xbf").filter(|_| is_first).unwrap_or(piece);
        self.skipping.get_or_insert_default().feed(piece);
    }

    /// What the line that was skipped said of itself, if one was.
    fn skipped(&mut self) -> Option<Line> {
        self.skipping.take().map(|scanner| Line::Bad(BadLine::TooLong(scanner.found())))
    }

    fn line(&mut self, bytes: BytesMut) -> Option<Line> {
        let mut bytes = bytes.freeze();
        if std::mem::take(&mut self.at_start) && bytes.starts_with(b"\xef\xbb\xbf") {
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
                // The tail must not keep the big line's allocation alive.
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
        // An unterminated last line is answered like any other.
        let rest = src.split();
        Ok(self.line(rest))
    }
}

/// Starts the thread that reads `input`; lines arrive in order, the channel closes at the end of
/// input. The channel is short because a line may be large.
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
            // Nobody listens any more: the connection is closing, the line has no one to go to.
            tx.blocking_send(line).ok();
        }
    };
    if let Err(e) = thread::Builder::new().name("read".into()).spawn(reader) {
        tracing::error!("no thread to read input with: {e}");
    }
    rx
}

/// Everything that is to be written, in order. Cloning gives another hand on the same queue.
#[derive(Debug, Clone)]
pub struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    // A std mutex: it is held for an append or a swap, never across an await.
    state: Mutex<State>,
    filled: Condvar,
    /// Where a task writes instead of a thread: what wakes it.
    pulled: Option<Notify>,
    /// Lines were written, or the outbox ended.
    changed: Notify,
    /// The other side stopped reading. Apart from `changed`, so that who waits for this alone is not woken by each line.
    broke: Notify,
}

#[derive(Debug, Default)]
struct State {
    queued: Vec<u8>,
    /// Bytes the writer has taken and not yet written.
    writing: usize,
    /// Lines for which there is no room yet, in the order of their numbers.
    waiting: VecDeque<Waiting>,
    next: u64,
    closed: bool,
    broken: bool,
    finished: bool,
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

    fn has_room(&self) -> bool {
        self.queued.len() + self.writing < ROOM
    }

    /// Queues what waits, as far as there is room for it.
    fn admit(&mut self) {
        while self.has_room()
            && let Some(Waiting { line, queued, .. }) = self.waiting.pop_front()
        {
            self.append(&line);
            // Whoever waited may have gone in this very moment.
            queued.send(()).ok();
        }
    }
}

/// The place of a line in the order in which lines are written. Dropping it before [`LineSlot::queued`]
/// has returned takes the line back, where it is not on its way yet.
#[derive(Debug)]
pub struct LineSlot {
    outbox: Outbox,
    number: u64,
    /// None: the line is queued, or never will be.
    queued: Option<oneshot::Receiver<()>>,
}

impl LineSlot {
    /// Waits until the line is queued; at once where there was room for it.
    pub async fn queued(&mut self) {
        if let Some(queued) = &mut self.queued {
            // An outbox that closes drops its end.
            queued.await.ok();
            self.queued = None;
        }
    }

    /// Takes the line back. False: it is queued, and the other side will read it.
    pub fn withdraw(&mut self) -> bool {
        if self.queued.take().is_none() {
            return false;
        }
        let mut state = self.outbox.lock();
        let at = state.waiting.binary_search_by_key(&self.number, |waiting| waiting.number);
        at.is_ok_and(|at| state.waiting.remove(at).is_some())
    }
}

impl Drop for LineSlot {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Outbox {
    /// Starts the one thread that writes to `output`.
    pub fn start(output: impl Write + Send + 'static) -> Self {
        let outbox = Self::with(None);
        let shared = outbox.shared.clone();
        let writer = thread::Builder::new().name("write".into()).spawn(move || write(&shared, output));
        if let Err(e) = writer {
            tracing::error!("no thread to write output with: {e}");
            outbox.lock().broken = true;
        }
        outbox
    }

    /// An outbox without a thread, and the end where its lines are taken out.
    pub fn pulled() -> (Self, Outgoing) {
        let outbox = Self::with(Some(Notify::new()));
        let outgoing = Outgoing { shared: outbox.shared.clone() };
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
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Queues one line (without its newline) without waiting. For the read loop, which must never
    /// wait for the writer; everyone else uses [`Outbox::send`].
    pub fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.closed || state.broken {
            return;
        }
        let was_empty = state.queued.is_empty();
        state.append(line);
        drop(state);
        if was_empty {
            self.shared.wake();
        }
    }

    /// Queues one line; waits while more than 256 KiB is unwritten.
    pub async fn send(&self, line: Vec<u8>) {
        self.place(line).queued().await;
    }

    /// Gives one line its place: behind those that wait already, while more than 256 KiB is unwritten.
    pub fn place(&self, line: Vec<u8>) -> LineSlot {
        let mut state = self.lock();
        let number = state.next;
        let mut place = LineSlot { outbox: self.clone(), number, queued: None };
        if state.closed || state.broken || (state.has_room() && state.waiting.is_empty()) {
            drop(state);
            self.push(&line);
            return place;
        }
        let (queued, place_is_queued) = oneshot::channel();
        state.next += 1;
        state.waiting.push_back(Waiting { number, line, queued });
        place.queued = Some(place_is_queued);
        place
    }

    /// Waits while more than 16 MiB is unwritten.
    pub async fn drained(&self) {
        let drained = |state: &State| state.queued.len() + state.writing < FLOOD || state.broken || state.closed;
        self.until(&self.shared.changed, drained).await;
    }

    /// Completes when the other side has closed its end of our output.
    pub async fn broken(&self) {
        self.until(&self.shared.broke, |state| state.broken).await;
    }

    /// Takes no more lines; completes when everything queued is written (or cannot be).
    pub async fn close(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.shared.wake();
        self.until(&self.shared.changed, |state| state.finished || state.broken).await;
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

    /// Tells whoever writes that there is something to be written.
    fn wake(&self) {
        match &self.pulled {
            None => self.filled.notify_one(),
            Some(pulled) => pulled.notify_one(),
        }
    }

    /// What was taken out is on its way.
    fn written(&self) {
        let mut state = self.lock();
        state.writing = 0;
        state.admit();
        drop(state);
        self.changed.notify_waiters();
    }

    /// The other side does not read any more.
    fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.queued = Vec::new();
        state.waiting.clear();
        state.writing = 0;
        drop(state);
        self.changed.notify_waiters();
        self.broke.notify_waiters();
    }
}

/// The end of an outbox where a task takes the lines out. The outbox is broken once this is dropped.
#[derive(Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
}

impl Outgoing {
    /// The lines that are queued, each with a newline at its end; waits for some. What was taken before counts as
    /// written from here on. None: the outbox is closed, and everything was taken out. Nothing is lost where this is
    /// dropped before it has ended.
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
                if state.closed {
                    state.finished = true;
                    drop(state);
                    self.shared.changed.notify_waiters();
                    return None;
                }
            }
            match &self.shared.pulled {
                Some(pulled) => pulled.notified().await,
                // Made by `Outbox::pulled`, it always has one.
                None => return None,
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.break_off();
    }
}

fn write(shared: &Shared, mut output: impl Write) {
    let mut taken = Vec::new();
    loop {
        {
            let mut state = shared.lock();
            while state.queued.is_empty() && !state.closed {
                state = shared.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.queued.is_empty() {
                state.finished = true;
                drop(state);
                shared.changed.notify_waiters();
                return;
            }
            taken.clear();
            // A burst must not pin its memory for the life of the connection.
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

/// Takes standard output away from the rest of the process: the returned file is the private
/// duplicate the protocol writes to, and fd 1 from now on points at standard error, so that no
/// stray print of any dependency or child can corrupt the stream.
#[cfg(unix)]
pub fn take_stdout() -> io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    let private = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
    rustix::stdio::dup2_stdout(io::stderr().as_fd())?;
    Ok(std::fs::File::from(private))
}

/// Takes standard output for the protocol. Here the process keeps only the promise not to print.
#[cfg(not(unix))]
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
            Line::Bad(BadLine::TooLong(skipped)) => format!("TooLong {}", skipped.id.as_deref().unwrap_or("-")),
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
    fn lines_are_cut_wherever_the_chunks_end() {
        assert_eq!(cut(64, &[b"{\"a\"", b":1}\r\n\n", b"  \n", b"{}\n{}"]), ["{\"a\":1}", "{}", "{}"]);
    }

    #[test]
    fn bad_lines_are_items_and_the_stream_goes_on() {
        assert_eq!(
            cut(4, &[b"a\xff\n", b"123", b"456", b"789\n", b"ok\n", b"12345"]),
            ["NotUtf8", "TooLong -", "ok", "TooLong -"]
        );
    }

    #[test]
    fn line_too_long_its_id_is_found_in_whatever_pieces_it_comes() {
        let text = format!("\u{feff}{{\"params\":\"{}\",\"id\":7}}\n{{}}\n", "a".repeat(3000));
        let (start, end) = text.as_bytes().split_at(2500);
        assert_eq!(cut(2000, &[text.as_bytes()]), ["TooLong 7", "{}"]);
        assert_eq!(cut(2000, &[start, end]), ["TooLong 7", "{}"]);
        assert_eq!(cut(2000, &text.as_bytes().chunks(7).collect::<Vec<_>>()), ["TooLong 7", "{}"]);
    }

    #[test]
    fn a_byte_order_mark_is_ignored_at_the_start_only() {
        assert_eq!(cut(64, &[b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n"]), ["{}", "\u{feff}{}"]);
    }

    #[tokio::test]
    async fn those_who_wait_take_turns() {
        let (theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        let (flooding, own) = (Arc::new(Notify::new()), outbox.clone());
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
        // It waits in its turn before anything is read.
        tokio::task::yield_now().await;
        let reader = thread::spawn(move || {
            let lines = io::BufRead::lines(io::BufReader::new(theirs));
            lines.map(|line| line.unwrap().remove(0)).collect::<String>()
        });
        other.await.unwrap();
        flood.await.unwrap();
        outbox.close().await;
        let order = reader.join().unwrap();
        assert_eq!(order.len(), 41);
        assert_eq!(order.find('b'), Some(4), "{order}");
    }

    /// What kept a whole process silent: a line of somebody who looks elsewhere.
    #[tokio::test]
    async fn who_is_not_polled_keeps_nobody_waiting() {
        let (theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        // Fills the pipe and the outbox.
        while outbox.place(vec![b'a'; 100 << 10]).queued.is_none() {}
        let mut asleep: Vec<LineSlot> = (0..100).map(|_| outbox.place(b"b".to_vec())).collect();
        let taken_back = outbox.place(b"c".to_vec());
        let mut last = outbox.place(b"d".to_vec());
        drop(taken_back);
        assert!(asleep.remove(7).withdraw());
        let reader = thread::spawn(move || {
            let lines = io::BufRead::lines(io::BufReader::new(theirs));
            lines.map(|line| line.unwrap().remove(0)).collect::<String>()
        });
        // Nobody has looked at the places before it.
        last.queued().await;
        assert!(!asleep[0].withdraw());
        outbox.close().await;
        drop(outbox);
        assert_eq!(reader.join().unwrap().trim_start_matches('a'), format!("{}d", "b".repeat(99)));
    }

    #[tokio::test]
    async fn a_task_takes_lines_as_a_thread_would_write_them() {
        let (outbox, mut outgoing) = Outbox::pulled();
        outbox.push(b"a");
        outbox.push(b"b");
        assert_eq!(outgoing.next().await.as_deref(), Some(&b"a\nb\n"[..]));
        let waits = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.send(vec![b'c'; ROOM]).await }
        });
        assert_eq!(outgoing.next().await.map(|taken| taken.len()), Some(ROOM + 1));
        // It counts as unwritten until the next is asked for.
        let mut full = outbox.place(b"d".to_vec());
        assert!(full.queued.is_some());
        assert_eq!(outgoing.next().await.as_deref(), Some(&b"d\n"[..]));
        full.queued().await;
        waits.await.unwrap();
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
    async fn a_reader_that_stops_stops_the_sender() {
        let (mut theirs, ours) = io::pipe().unwrap();
        let outbox = Outbox::start(ours);
        let line = vec![b'x'; 75 << 10];
        let mut sent = 0;
        // The pipe holds 64 KiB, the outbox a little more than 256 KiB.
        while tokio::time::timeout(std::time::Duration::from_millis(50), outbox.send(line.clone())).await.is_ok() {
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
