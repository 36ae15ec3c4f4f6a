//! Full-text search of sessions. The hits are found in the sessions themselves, newest first; an
//! index only determines the sessions that need not be read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Error, Record, StoredSession};
use base::environment::Timestamp;
use base::lock::lock;
use transcript::{Content, Message, Part};

/// A session that contains the words.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub record: Record,
    /// The number of its messages that contain them; 0 if only the title does.
    pub messages: usize,
    /// The first occurrence with its context.
    pub excerpt: String,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchPage {
    /// The newest sessions first.
    pub hits: Vec<SearchHit>,
    /// The number of sessions that had to be read because they were not in the index.
    pub unindexed: usize,
    /// The number of these that the index never contains, because they are too large.
    pub too_large: usize,
    /// Set if the search ended before it had enough hits or had read all sessions.
    pub cut: Option<SearchCut>,
}

/// The point at which a search without an index ended: all its words are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCut {
    /// The number of sessions that were read, from the newest.
    pub sessions: usize,
    /// The last use of the oldest of them. Older sessions were not read.
    pub oldest: Timestamp,
}

/// The maximum number of sessions that are read, from the newest, if all words are too short for an
/// index.
pub(super) const MAX_UNINDEXED_READS: usize = 1000;

/// The minimum length of a word that an index can find, in letters.
pub(super) const MIN_INDEXED_LETTERS: usize = 3;

/// True if all words are too short for an index.
pub(super) fn are_short(words: &[String]) -> bool {
    words
        .iter()
        .all(|word| word.chars().nth(MIN_INDEXED_LETTERS - 1).is_none())
}

const EXCERPT_CONTEXT_BYTES: usize = 60;

/// Searches sessions for words, all of which must be in one message or in the title, in any case.
/// Returns at most `limit` hits, in the order of `records`. Blocks.
pub(super) fn search(
    read: &(dyn Fn(&Record) -> Result<StoredSession, Error> + Sync),
    records: &[Record],
    words: &[String],
    limit: usize,
) -> Vec<SearchHit> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, SearchHit)>> = Mutex::default();
    let search_next = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(record) = records.get(at) else {
            return;
        };
        if lock(&found).len() >= limit {
            return;
        }
        if let Some(hit) = search_session(record, read(record), words) {
            lock(&found).push((at, hit));
        }
    };
    let threads = std::thread::available_parallelism()
        .map_or(1, std::num::NonZero::get)
        .min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(search_next);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, hit)| hit).take(limit).collect()
}

/// Splits a query into words in lower case.
pub(super) fn split_words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_lowercase).collect()
}

/// Searches a session that was read; if it could not be read, only its title.
pub(super) fn search_session(
    record: &Record,
    read: Result<StoredSession, Error>,
    words: &[String],
) -> Option<SearchHit> {
    let stored = read.unwrap_or_else(|e| {
        tracing::debug!("not searched: {e}");
        StoredSession {
            record: record.clone(),
            messages: Vec::new(),
            damage: Vec::new(),
        }
    });
    hit(&stored, words)
}

fn hit(stored: &StoredSession, words: &[String]) -> Option<SearchHit> {
    let contains = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let texts: Vec<String> = stored
        .messages
        .iter()
        .map(text)
        .filter(|text| contains(text))
        .collect();
    let is_in_title = stored.record.title.as_deref().is_some_and(contains);
    let excerpt = match texts.first() {
        Some(text) => excerpt(text, &words[0]),
        None if is_in_title => String::new(),
        None => return None,
    };
    Some(SearchHit {
        record: stored.record.clone(),
        messages: texts.len(),
        excerpt,
    })
}

/// Returns the searchable texts of a session in lower case: its title, then its messages.
pub(super) fn texts(stored: &StoredSession) -> Vec<String> {
    let title = stored
        .record
        .title
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    std::iter::once(title)
        .chain(
            stored
                .messages
                .iter()
                .map(|message| text(message).to_lowercase()),
        )
        .collect()
}

/// Returns the searchable text of a message: the texts and the titles of calls.
fn text(message: &Message) -> String {
    let mut all = String::new();
    for text in message.parts.iter().filter_map(part_text) {
        all.push_str(text);
        all.push('\n');
    }
    all
}

/// Returns the searchable text of a part. No word extends over two parts.
pub(super) fn part_text(part: &Part) -> Option<&str> {
    match &part.content {
        Content::Text(text) if !text.synthetic => Some(&text.text),
        Content::Tool(call) => Some(&call.title),
        _ => None,
    }
}

/// Returns the first occurrence of a word with its context, on one line.
fn excerpt(text: &str, word: &str) -> String {
    let lower = text.to_lowercase();
    // The text in lower case may have a different length; the position is then approximate.
    let at = lower.find(word).unwrap_or(0).min(text.len());
    let start = text.floor_char_boundary(at.saturating_sub(EXCERPT_CONTEXT_BYTES));
    let end = text.ceil_char_boundary((at + word.len() + EXCERPT_CONTEXT_BYTES).min(text.len()));
    let middle: Vec<&str> = text[start..end].split_whitespace().collect();
    let before = if start > 0 { "…" } else { "" };
    let after = if end < text.trim_end().len() {
        "…"
    } else {
        ""
    };
    format!("{before}{}{after}", middle.join(" "))
}
