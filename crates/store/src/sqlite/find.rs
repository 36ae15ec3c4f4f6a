//! Search, and maintenance of the search index.
//!
//! A search asks the index for the current sessions that may contain the words, and reads those,
//! and all sessions that are not current. The result is the same as without the index, which only
//! saves reading. No other session is looked at, unless the search index is new or was lost.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::index::IndexReader;
use super::index_rows::updated;
use super::search_index::{SearchIndex, SearchedSession, is_open};
use super::{peek, session};
use crate::search::{self, SearchCut, SearchPage};
use crate::{Error, ListQuery, Record, ReplySender};
use base::environment::Timestamp;
use base::id::SessionId;

/// The maximum size of an indexed session's file, in bytes: indexing a larger one would take too
/// much memory, so a search reads it.
const MAX_INDEXED_BYTES: u64 = 16 << 20;

/// The numbers of sessions that are read, and indexed, at a time.
const READ_CHUNK: usize = 256;
const INDEX_CHUNK: usize = 16;

/// The number of texts above which words are frequent, and the number of the newest sessions that
/// are then read before the index is queried about all.
const FREQUENT_TEXTS: i64 = 1000;
const MAX_NEWEST_READS: usize = 64;

/// The size of the session files that are indexed for a search even if the process ends, in bytes.
/// Without it, processes that end after one search would read the same sessions every time.
const MIN_BYTES_PER_SEARCH: u64 = 4 << 20;

/// The ratio of waiting to working of the indexing thread: there may be years of sessions, and no
/// caller waits for it.
const IDLE_SHARE: u32 = 3;

/// The longest pause of the indexing thread, because the end of the process waits for it.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Starts a search on a new thread.
pub(super) fn start(
    dir: PathBuf,
    query: ListQuery,
    words: String,
    limit: usize,
    reply: ReplySender<SearchPage>,
) {
    // The receiver may have been dropped.
    let work = move || drop(reply.send(find(&dir, &query, &words, limit)));
    if let Err(e) = std::thread::Builder::new()
        .name("search".into())
        .spawn(work)
    {
        tracing::error!("no thread to search on: {e}");
    }
}

fn find(dir: &Path, query: &ListQuery, words: &str, limit: usize) -> Result<SearchPage, Error> {
    let words = search::split_words(words);
    if words.is_empty() {
        return Ok(SearchPage::default());
    }
    let search_index = SearchIndex::open(dir).unwrap_or_else(|e| {
        tracing::warn!("searching without the search index: {e}");
        None
    });
    let search = Search {
        dir,
        query,
        words: &words,
        limit,
        index: IndexReader::open(dir)?,
        search_index,
    };
    if search::are_short(&words) {
        return search.newest(search::MAX_UNINDEXED_READS);
    }
    if search.has_enough_in_newest() {
        let page = search.newest(MAX_NEWEST_READS)?;
        // It has enough hits, or there are no older sessions.
        if page.cut.is_none() {
            return Ok(page);
        }
    }
    search.all()
}

/// A search for words.
struct Search<'a> {
    dir: &'a Path,
    query: &'a ListQuery,
    words: &'a [String],
    limit: usize,
    index: IndexReader,
    search_index: Option<SearchIndex>,
}

impl Search<'_> {
    /// True if so many texts have the words that the newest sessions are probably enough hits.
    /// They never are for a higher limit; reading them first would read them twice.
    fn has_enough_in_newest(&self) -> bool {
        let is_frequent = |index: &SearchIndex| {
            index
                .is_frequent(self.words, FREQUENT_TEXTS)
                .unwrap_or_default()
        };
        self.limit <= MAX_NEWEST_READS && self.search_index.as_ref().is_some_and(is_frequent)
    }

    /// Reads the newest sessions, at most `count`.
    fn newest(&self, count: usize) -> Result<SearchPage, Error> {
        let written = self.index.written()?;
        let known = self.known(|index| KnownWords::read(index, None));
        let mut listed = self.index.listed(self.query, count.saturating_add(1))?;
        let has_more = listed.len() > count;
        listed.truncate(count);
        let oldest = listed.last().map(|(_, updated)| *updated);
        let mut page = self.read(&known.sessions_to_read(&written, listed))?;
        if has_more && page.hits.len() < self.limit {
            page.cut = oldest.map(|updated| SearchCut {
                sessions: count,
                oldest: Timestamp(u64::try_from(updated).unwrap_or_default()),
            });
        }
        Ok(page)
    }

    /// Reads the sessions that the search index yields, and those that it does not know.
    fn all(&self) -> Result<SearchPage, Error> {
        // The order matters: a session that is neither being written nor outdated when the search
        // index is read has had no further message before the search began.
        let written = self.index.written()?;
        let known = self.known(|index| KnownWords::read(index, Some(self.words)));
        let listed = match known.candidates(&written) {
            Some(ids) => self.index.listed_among(self.query, ids)?,
            None => self.index.listed(self.query, usize::MAX)?,
        };
        self.read(&known.sessions_to_read(&written, listed))
    }

    fn known(&self, read: impl Fn(&SearchIndex) -> Result<KnownWords, Error>) -> KnownWords {
        let Some(index) = &self.search_index else {
            return KnownWords::default();
        };
        index.read(read).unwrap_or_else(|e| {
            tracing::warn!("searching without the search index: {e}");
            KnownWords::default()
        })
    }

    /// Reads sessions until enough of them contain the words.
    fn read(&self, sessions: &SessionsToRead) -> Result<SearchPage, Error> {
        let mut page = SearchPage {
            unindexed: sessions.unindexed.len(),
            too_large: sessions
                .unindexed
                .iter()
                .filter(|id| is_too_large(self.dir, &SessionId::new(id.as_str())))
                .count(),
            ..SearchPage::default()
        };
        let read = |record: &Record| peek::peek(self.dir, &record.id, Some(record.clone()));
        for ids in sessions.wanted.chunks(READ_CHUNK) {
            let left = self.limit.saturating_sub(page.hits.len());
            if left == 0 {
                break;
            }
            let records = ids
                .iter()
                .filter_map(|id| self.index.record(id).transpose())
                .collect::<Result<Vec<Record>, Error>>()?;
            page.hits
                .extend(search::search(&read, &records, self.words, left));
        }
        Ok(page)
    }
}

/// The answer of the search index to a query.
#[derive(Default)]
struct KnownWords {
    indexed: IndexedSessions,
    /// The sessions that may contain the words; `None` if all may.
    with: Option<HashSet<String>>,
}

/// The sessions whose present texts are in the search index.
enum IndexedSessions {
    /// All except these.
    AllExcept(HashSet<String>),
    /// Those whose last use was at these times. The index is new, or has been lost.
    Only(HashMap<String, i64>),
}

impl Default for IndexedSessions {
    fn default() -> Self {
        Self::Only(HashMap::new())
    }
}

/// The sessions that a search has to read.
struct SessionsToRead {
    /// The newest first.
    wanted: Vec<String>,
    /// Those of them that are merely not in the search index.
    unindexed: Vec<String>,
}

impl KnownWords {
    /// Reads the state of the index, and unless `words` is `None` the sessions with these words.
    fn read(index: &SearchIndex, words: Option<&[String]>) -> Result<Self, Error> {
        let indexed = match index.outdated()? {
            Some(outdated) => IndexedSessions::AllExcept(outdated),
            None => IndexedSessions::Only(index.current()?),
        };
        let with = match words {
            Some(words) => index.with(words)?,
            None => None,
        };
        Ok(Self { indexed, with })
    }

    /// Returns the only sessions that may contain the words; `None` if others may.
    fn candidates<'a>(&'a self, written: &'a HashSet<String>) -> Option<HashSet<&'a str>> {
        let (IndexedSessions::AllExcept(outdated), Some(with)) = (&self.indexed, &self.with) else {
            return None;
        };
        let ids = with.iter().chain(outdated).chain(written);
        Some(ids.map(String::as_str).collect())
    }

    fn has_present_texts(&self, id: &str, updated: i64) -> bool {
        match &self.indexed {
            IndexedSessions::AllExcept(outdated) => !outdated.contains(id),
            IndexedSessions::Only(times) => times.get(id) == Some(&updated),
        }
    }

    fn sessions_to_read(
        &self,
        written: &HashSet<String>,
        listed: Vec<(String, i64)>,
    ) -> SessionsToRead {
        let mut wanted = Vec::new();
        let mut unindexed = Vec::new();
        for (id, updated) in listed {
            let is_written = written.contains(&id);
            let is_current = !is_written && self.has_present_texts(&id, updated);
            if !is_current && !is_written {
                unindexed.push(id.clone());
            }
            if !is_current || self.with.as_ref().is_none_or(|with| with.contains(&id)) {
                wanted.push(id);
            }
        }
        SessionsToRead { wanted, unindexed }
    }
}

/// True if a session is too large for the index.
fn is_too_large(dir: &Path, id: &SessionId) -> bool {
    file_bytes(dir, id) > MAX_INDEXED_BYTES
}

/// Returns the size of a session's file; 0 if there is none.
fn file_bytes(dir: &Path, id: &SessionId) -> u64 {
    std::fs::metadata(session::path(dir, id)).map_or(0, |file| file.len())
}

/// A handle to the indexing thread.
pub(super) struct Indexer {
    dir: PathBuf,
    jobs: Option<mpsc::Sender<IndexJob>>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

enum IndexJob {
    /// A session that has been closed.
    Session(SessionId),
    /// All sessions that are not current; slowly, unless a search has requested it.
    All { at_leisure: bool },
}

impl Indexer {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            jobs: None,
            thread: None,
            is_over: Arc::default(),
        }
    }

    /// Ends the thread after the session that it is reading; if a search has requested sessions,
    /// after [`MIN_BYTES_PER_SEARCH`] of them. All files are closed when this returns.
    pub(super) fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("taking sessions into the search index ended unexpectedly");
        }
    }

    /// Schedules the indexing of a closed session.
    pub(super) fn session(&mut self, id: &SessionId) {
        self.send(IndexJob::Session(id.clone()));
    }

    /// Schedules the indexing of all sessions that are not current.
    pub(super) fn all(&mut self, at_leisure: bool) {
        self.send(IndexJob::All { at_leisure });
    }

    fn send(&mut self, job: IndexJob) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        if self.jobs.is_none() {
            let (jobs, received) = mpsc::channel();
            let thread = IndexerThread {
                dir: self.dir.clone(),
                is_over: self.is_over.clone(),
            };
            match std::thread::Builder::new()
                .name("search index".into())
                .spawn(move || thread.run(&received))
            {
                Ok(thread) => (self.jobs, self.thread) = (Some(jobs), Some(thread)),
                Err(e) => tracing::warn!("the search index is not up to date: {e}"),
            }
        }
        // If the thread has ended, the sessions that are not in the index are read.
        self.jobs.as_ref().map(|jobs| jobs.send(job).ok());
    }
}

struct IndexerThread {
    dir: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl IndexerThread {
    fn run(&self, jobs: &mpsc::Receiver<IndexJob>) {
        while let Ok(job) = jobs.recv() {
            let is_over = self.is_over();
            let done = match job {
                IndexJob::All { at_leisure: false } => self.index_all(false),
                _ if is_over => continue,
                IndexJob::All { at_leisure: true } => self.index_all(true),
                IndexJob::Session(id) => self.index_one(id),
            };
            if let Err(e) = done {
                tracing::info!("the search index is not up to date: {e}");
            }
            if is_over {
                // One job is enough for all searches.
                return;
            }
        }
    }

    /// True if the process waits for the thread to end.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn index_one(&self, id: SessionId) -> Result<(), Error> {
        if !session::path(&self.dir, &id).exists() {
            return Ok(());
        }
        self.index_sessions(
            &IndexReader::open(&self.dir)?,
            &SearchIndex::open_or_make(&self.dir)?,
            &[id],
            false,
            0,
        )
        .map(drop)
    }

    /// Indexes all sessions that are not current, newest first. Only one process at a time does
    /// this.
    fn index_all(&self, at_leisure: bool) -> Result<(), Error> {
        let path = self.dir.join("search.lock");
        let unwritable = super::unwritable_file(&path);
        let alone = base::environment::private_file()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(&unwritable)?;
        if alone.try_lock().is_err() {
            return Ok(());
        }
        self.index_remaining(at_leisure)
    }

    fn index_remaining(&self, at_leisure: bool) -> Result<(), Error> {
        let index = IndexReader::open(&self.dir)?;
        let words = SearchIndex::open_or_make(&self.dir)?;
        let left = match words.outdated()? {
            Some(outdated) if !at_leisure => outdated,
            // A power cut may have undone the last changes of either index.
            _ => compare(&index, &words)?,
        };
        // Ids begin with the time.
        let mut left: Vec<SessionId> = left.into_iter().map(SessionId::new).collect();
        left.sort_unstable_by(|one, other| other.as_str().cmp(one.as_str()));
        let mut required_bytes = if at_leisure { 0 } else { MIN_BYTES_PER_SEARCH };
        for ids in left.chunks(INDEX_CHUNK) {
            required_bytes =
                self.index_sessions(&index, &words, ids, at_leisure, required_bytes)?;
            let is_over = self.is_over() && required_bytes == 0;
            if is_over || !words.is_in_place() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Indexes sessions, at least `required_bytes` of them even if the process ends. Returns the
    /// bytes that are still required.
    fn index_sessions(
        &self,
        index: &IndexReader,
        words: &SearchIndex,
        ids: &[SessionId],
        at_leisure: bool,
        required_bytes: u64,
    ) -> Result<u64, Error> {
        let began = Instant::now();
        let pause = |took: Duration| {
            // Other writers get a turn even if a search waits for the index.
            let pause = if at_leisure {
                (took * IDLE_SHARE).min(MAX_PAUSE)
            } else {
                took / 10
            };
            std::thread::sleep(if self.is_over() {
                Duration::ZERO
            } else {
                pause
            });
        };
        let read = |id: &SessionId| {
            let changes = words.changes(id).ok()?;
            if is_open(&self.dir, id) || is_too_large(&self.dir, id) {
                return None;
            }
            let record = index.record(id.as_str()).ok().flatten()?;
            let stored = peek::peek(&self.dir, id, Some(record.clone())).ok()?;
            let updated = updated(&record);
            Some(SearchedSession {
                id: id.clone(),
                updated,
                changes,
                texts: search::texts(&stored),
            })
        };
        let mut sessions = Vec::new();
        let mut left_bytes = required_bytes;
        for id in ids {
            if self.is_over() && left_bytes == 0 {
                break;
            }
            // A session that cannot be indexed does not count.
            if let Some(session) = read(id) {
                left_bytes = left_bytes.saturating_sub(file_bytes(&self.dir, id));
                sessions.push(session);
            }
        }
        if self.is_over() && required_bytes == 0 {
            return Ok(0);
        }
        words.put(&sessions, &pause)?;
        pause(began.elapsed());
        Ok(left_bytes)
    }
}

/// Compares the search index with all sessions and their files. Returns the outdated sessions.
fn compare(index: &IndexReader, words: &SearchIndex) -> Result<HashSet<String>, Error> {
    words.remove_gone()?;
    let is_partial = index.is_partial()?;
    let current = words.current()?;
    let listed = index.listed(&ListQuery::default(), usize::MAX)?;
    let different: Vec<&str> = listed
        .iter()
        .filter(|(id, updated)| current.get(id) != Some(updated))
        .map(|(id, _)| id.as_str())
        .collect();
    words.add_outdated(&different)?;
    if !is_partial {
        words.mark_complete()?;
    }
    Ok(different.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::index::SessionIndex;
    use super::super::search_index;
    use super::*;
    use crate::Store;
    use crate::tests::{message, record, write};

    fn index_all_sessions(dir: &Path) {
        let thread = IndexerThread {
            dir: dir.to_owned(),
            is_over: Arc::default(),
        };
        thread.index_remaining(false).unwrap();
    }

    /// Returns the sessions that a search for a word reads, and the number of them that are not in
    /// the index.
    fn reads(dir: &Path, word: &str) -> (Vec<String>, usize) {
        let index = IndexReader::open(dir).unwrap();
        let written = index.written().unwrap();
        let words = SearchIndex::open_or_make(dir).unwrap();
        let known = KnownWords::read(&words, Some(&[word.to_owned()])).unwrap();
        let listed = match known.candidates(&written) {
            Some(ids) => index.listed_among(&ListQuery::default(), ids),
            None => index.listed(&ListQuery::default(), usize::MAX),
        };
        let sessions = known.sessions_to_read(&written, listed.unwrap());
        (sessions.wanted, sessions.unindexed.len())
    }

    /// Enlarges a session's file. SQLite ignores bytes after the last page of its file.
    fn set_file_bytes(dir: &Path, id: &SessionId, bytes: u64) {
        std::fs::OpenOptions::new()
            .append(true)
            .open(session::path(dir, id))
            .unwrap()
            .set_len(bytes)
            .unwrap();
    }

    async fn hits(store: &Store, words: &str) -> Vec<String> {
        let page = store.search(ListQuery::default(), words, 10).await.unwrap();
        page.hits
            .into_iter()
            .map(|hit| hit.record.id.to_string())
            .collect()
    }

    async fn session_with_text(store: &Store, n: u64, words: &str) {
        let record = record(&format!("ses_0000000{n}"), "/w", 10 + n);
        store.create(&record).await.unwrap();
        write(store, &record, &[message("m", &[words])]).await;
        store.write_record(&record).await;
        store.await_written(&record.id).await;
    }

    #[tokio::test]
    async fn search_reads_matching_and_open_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for (n, words) in [
            (0, "a zebra"),
            (1, "a horse"),
            (2, "another Zebra"),
            (3, "a zebra as well"),
        ] {
            session_with_text(&store, n, words).await;
        }
        for n in 0..3 {
            store
                .close(&SessionId::new(format!("ses_0000000{n}")))
                .await;
        }
        store.list(None, None, 1).await.unwrap();
        index_all_sessions(dir.path());
        let zebras = ["ses_00000003", "ses_00000002", "ses_00000000"];
        let open = ["ses_00000003"];
        assert_eq!(
            reads(dir.path(), "zebra"),
            (zebras.map(str::to_owned).to_vec(), 0)
        );
        assert_eq!(
            reads(dir.path(), "giraffe"),
            (open.map(str::to_owned).to_vec(), 0)
        );
        assert_eq!(
            reads(dir.path(), "is").0.len(),
            4,
            "too short to be looked for"
        );
        assert_eq!(hits(&store, "ZEBRA").await, zebras);
        // Its title contains its id.
        assert_eq!(hits(&store, "title ses_00000001").await, ["ses_00000001"]);
    }

    #[test]
    fn search_looks_at_no_other_session() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = SessionIndex::open(dir.path()).unwrap();
        let words = SearchIndex::open_or_make(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        let put = |index: &SessionIndex, n: u64| {
            let record = record(&format!("ses_{n:08}"), "/w", n);
            index.put(&record, 1).unwrap();
            std::fs::write(session::path(dir.path(), &record.id), "").unwrap();
            SearchedSession {
                updated: updated(&record),
                id: record.id,
                changes: 0,
                texts: vec![if n == 7 { "a zebra" } else { "a horse" }.to_owned()],
            }
        };
        let looked_at = |word: &str| {
            let known = KnownWords::read(&words, Some(&[word.to_owned()])).unwrap();
            let written = IndexReader::open(dir.path()).unwrap().written().unwrap();
            let candidates = known.candidates(&written);
            candidates.map(|ids| {
                let mut ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
                ids.sort_unstable();
                ids
            })
        };
        let sessions: Vec<SearchedSession> = (0..300).map(|n| put(&index, n)).collect();
        words.put(&sessions, &|_| {}).unwrap();
        index_all_sessions(dir.path());
        assert_eq!(looked_at("zebra"), None, "the list may lack sessions");
        index.complete(dir.path()).unwrap();
        index_all_sessions(dir.path());
        assert_eq!(looked_at("zebra"), Some(vec!["ses_00000007".to_owned()]));
        assert_eq!(looked_at("giraffe"), Some(vec![]));
        let [added, changed, written] = [300, 8, 9].map(|n| SessionId::new(format!("ses_{n:08}")));
        put(&index, 300);
        words.add_outdated(&[added.as_str()]).unwrap();
        words.mark_changed(&changed).unwrap();
        index.mark_written(&written).unwrap();
        let different = [&changed, &written, &added].map(ToString::to_string);
        assert_eq!(looked_at("giraffe"), Some(different.to_vec()));
        index.unmark_written(&written).unwrap();
        let different = [&changed, &added].map(ToString::to_string);
        assert_eq!(looked_at("giraffe"), Some(different.to_vec()));
    }

    #[test]
    fn newest_sessions_are_read_first_if_they_may_be_enough() {
        let dir = tempfile::tempdir().unwrap();
        let index = SessionIndex::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        let record = record("ses_00000001", "/w", 1);
        index.put(&record, 1).unwrap();
        std::fs::write(session::path(dir.path(), &record.id), "").unwrap();
        let mut texts = vec!["a zebra".to_owned(); FREQUENT_TEXTS as usize + 1];
        texts.push("a giraffe".to_owned());
        let session = SearchedSession {
            updated: updated(&record),
            id: record.id,
            changes: 0,
            texts,
        };
        let words = SearchIndex::open_or_make(dir.path()).unwrap();
        words.put(&[session], &|_| {}).unwrap();
        let table = [
            ("frequent", "zebra", MAX_NEWEST_READS, true),
            ("frequent, high limit", "zebra", MAX_NEWEST_READS + 1, false),
            ("rare", "giraffe", MAX_NEWEST_READS, false),
        ];
        for (name, word, limit, expected) in table {
            let search = Search {
                dir: dir.path(),
                query: &ListQuery::default(),
                words: &[word.to_owned()],
                limit,
                index: IndexReader::open(dir.path()).unwrap(),
                search_index: SearchIndex::open(dir.path()).unwrap(),
            };
            assert_eq!(search.has_enough_in_newest(), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn search_reads_names_of_files_if_the_directory_has_changed() {
        let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (dir, n) in [(&dir, 0), (&other, 1), (&other, 2)] {
            let store = Store::start(dir.path());
            session_with_text(&store, n, "a zebra").await;
            store.stop().await;
        }
        // Too large to be scanned at once.
        rusqlite::Connection::open(dir.path().join("index.db"))
            .unwrap()
            .execute_batch(
                "CREATE TABLE filling (x); INSERT INTO filling VALUES (randomblob(1000000));",
            )
            .unwrap();
        let set_time = |seconds| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let sessions = std::fs::File::open(dir.path().join("sessions")).unwrap();
            sessions.set_modified(time).unwrap();
        };
        let copy = |n: u64| {
            let id = SessionId::new(format!("ses_0000000{n}"));
            let [from, to] = [&other, &dir].map(|dir| session::path(dir.path(), &id));
            std::fs::copy(from, to).unwrap();
        };
        let zebras = async || {
            let store = Store::start(dir.path());
            let found = hits(&store, "zebra").await;
            store.stop().await;
            found
        };
        set_time(1);
        assert_eq!(zebras().await, ["ses_00000000"]);
        copy(1);
        set_time(1);
        assert_eq!(zebras().await, ["ses_00000000"], "the names were read");
        set_time(2);
        assert_eq!(zebras().await, ["ses_00000001", "ses_00000000"]);
        copy(2);
        assert_eq!(
            zebras().await,
            ["ses_00000002", "ses_00000001", "ses_00000000"]
        );
    }

    #[tokio::test]
    async fn search_finds_later_messages_and_no_deleted_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for n in 0..2 {
            session_with_text(&store, n, "a horse").await;
            store
                .close(&SessionId::new(format!("ses_0000000{n}")))
                .await;
        }
        store.list(None, None, 1).await.unwrap();
        index_all_sessions(dir.path());
        let id = SessionId::new("ses_00000000");
        let record = store.load(&id).await.unwrap().record;
        write(&store, &record, &[message("later", &["a giraffe"])]).await;
        store.await_written(&id).await;
        assert_eq!(hits(&store, "giraffe").await, [id.to_string()]);
        // The indexer skips an open session.
        index_all_sessions(dir.path());
        write(&store, &record, &[message("latest", &["an ibex"])]).await;
        store.close(&id).await;
        assert_eq!(hits(&store, "ibex").await, [id.to_string()]);
        index_all_sessions(dir.path());
        assert_eq!(reads(dir.path(), "ibex"), (vec![id.to_string()], 0));
        // A process that ends without closing its sessions marks them as changed too.
        let other = Store::start(dir.path());
        store.stop().await;
        write(&other, &record, &[message("at last", &["a yak"])]).await;
        other.stop().await;
        let store = Store::start(dir.path());
        assert_eq!(hits(&store, "yak").await, [id.to_string()]);
        store.delete(&id).await.unwrap();
        assert_eq!(hits(&store, "giraffe").await, Vec::<String>::new());
        let words = SearchIndex::open(dir.path()).unwrap().unwrap();
        assert_eq!(
            words.with(&["giraffe".to_owned()]).unwrap(),
            Some(HashSet::new())
        );
        assert_eq!(
            words.current().unwrap().into_keys().collect::<Vec<_>>(),
            ["ses_00000001"]
        );
    }

    #[tokio::test]
    async fn search_indexes_sessions_even_if_the_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for n in 0..8 {
            session_with_text(&store, n, "a zebra").await;
            store
                .close(&SessionId::new(format!("ses_0000000{n}")))
                .await;
        }
        store.stop().await;
        for n in 0..8 {
            let id = SessionId::new(format!("ses_0000000{n}"));
            set_file_bytes(dir.path(), &id, MIN_BYTES_PER_SEARCH / 2);
        }
        search_index::discard(dir.path()).unwrap();
        for process in 1..=4 {
            let mut indexer = Indexer::new(dir.path().to_owned());
            indexer.all(true);
            indexer.all(false);
            indexer.end();
            let (_, unindexed) = reads(dir.path(), "zebra");
            assert!(unindexed <= 8 - 2 * process, "{unindexed} after {process}");
        }
    }

    #[tokio::test]
    async fn session_too_large_for_the_index_is_read_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for n in 0..2 {
            session_with_text(&store, n, "a zebra").await;
            store
                .close(&SessionId::new(format!("ses_0000000{n}")))
                .await;
        }
        store.stop().await;
        let large = SessionId::new("ses_00000000");
        set_file_bytes(dir.path(), &large, MAX_INDEXED_BYTES + 1);
        std::fs::remove_file(dir.path().join("search.db")).ok();
        index_all_sessions(dir.path());
        let store = Store::start(dir.path());
        let page = store
            .search(ListQuery::default(), "zebra", 10)
            .await
            .unwrap();
        assert_eq!((page.hits.len(), page.unindexed, page.too_large), (2, 1, 1));
        store.stop().await;
    }

    #[test]
    fn search_for_short_words_ends_with_cut() {
        let dir = tempfile::tempdir().unwrap();
        let index = SessionIndex::open(dir.path()).unwrap();
        let put = |n: u64, title: &str| {
            let record = Record {
                title: Some(title.into()),
                ..record(&format!("ses_{n:08}"), "/w", n)
            };
            index.put(&record, 1).unwrap();
        };
        (1..=search::MAX_UNINDEXED_READS as u64 + 1).for_each(|n| put(n, "some of it"));
        put(0, "only xy");
        let found = |words: &str| find(dir.path(), &ListQuery::default(), words, 9).unwrap();
        let cut = Some(SearchCut {
            sessions: search::MAX_UNINDEXED_READS,
            oldest: Timestamp(2),
        });
        let page = found("xy");
        assert_eq!((page.hits.len(), page.cut), (0, cut));
        // If enough is found before the cut, or a word is long enough, no cut is reported.
        let page = found("of");
        assert_eq!((page.hits.len(), page.cut), (9, None));
        let page = found("xy only");
        assert_eq!((page.hits.len(), page.cut), (1, None));
    }
}
