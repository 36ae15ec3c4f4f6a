//! Finding sessions by their words. What is found is read in the sessions themselves, newest first: an index only says
//! which ones need not be read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Error, Record, StoredSession};
use base::environment::Timestamp;
use base::lock::locked;
use transcript::{Content, Message, Part};

/// A session with the words in it.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub record: Record,
    /// How many of its messages have them; none when only the title does.
    pub messages: usize,
    /// The first place, with the words around it.
    pub excerpt: String,
}

/// What a search has found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchPage {
    /// The newest sessions first.
    pub hits: Vec<SearchHit>,
    /// How many sessions were not in the index, so that they had to be read.
    pub unindexed: usize,
    /// The search ended before it had found enough or had looked everywhere.
    pub cut: Option<SearchCut>,
}

/// The place where a search ended for which no index says where to look: all its words are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCut {
    /// How many sessions were read, the newest.
    pub sessions: usize,
    /// When the last of them was last used. What is older was not read.
    pub oldest: Timestamp,
}

/// How many sessions are read, the newest, for words that are too short for an index.
pub(super) const MAX_UNAIDED: usize = 1000;

/// How many letters a word has at least that an index finds parts of.
pub(super) const INDEXED_LETTERS: usize = 3;

/// Whether no index helps to find these words.
pub(super) fn are_short(words: &[String]) -> bool {
    words.iter().all(|word| word.chars().nth(INDEXED_LETTERS - 1).is_none())
}

const AROUND: usize = 60;

/// Searches sessions for words, all of which must be in a message or in the title, in whatever case.
/// The hits come in the order of `records`; `limit` of them at most. Blocks.
pub(super) fn search(
    read: &(dyn Fn(&Record) -> Result<StoredSession, Error> + Sync),
    records: &[Record],
    words: &[String],
    limit: usize,
) -> Vec<SearchHit> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, SearchHit)>> = Mutex::default();
    let look = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(record) = records.get(at) else { return };
        if locked(&found).len() >= limit {
            return;
        }
        if let Some(hit) = looked(record, read(record), words) {
            locked(&found).push((at, hit));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(look);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, hit)| hit).take(limit).collect()
}

/// The words of a question, as they are compared.
pub(super) fn wanted(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_lowercase).collect()
}

/// Whether a session that was read has the words; of one that cannot be read, whether its title has.
pub(super) fn looked(record: &Record, read: Result<StoredSession, Error>, words: &[String]) -> Option<SearchHit> {
    let stored = read.unwrap_or_else(|e| {
        tracing::debug!("not searched: {e}");
        StoredSession { record: record.clone(), messages: Vec::new(), damage: Vec::new() }
    });
    hit(&stored, words)
}

fn hit(stored: &StoredSession, words: &[String]) -> Option<SearchHit> {
    let contains = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let texts: Vec<String> = stored.messages.iter().map(text).filter(|text| contains(text)).collect();
    let titled = stored.record.title.as_deref().is_some_and(contains);
    let excerpt = match texts.first() {
        Some(text) => excerpt(text, &words[0]),
        None if titled => String::new(),
        None => return None,
    };
    Some(SearchHit { record: stored.record.clone(), messages: texts.len(), excerpt })
}

/// The texts in which a session's words are looked for, as they are compared: its title, then its messages.
pub(super) fn texts(stored: &StoredSession) -> Vec<String> {
    let title = stored.record.title.as_deref().unwrap_or_default().to_lowercase();
    std::iter::once(title).chain(stored.messages.iter().map(|message| text(message).to_lowercase())).collect()
}

/// What a person would remember of a message: what was said, and what was done.
fn text(message: &Message) -> String {
    let mut all = String::new();
    for text in message.parts.iter().filter_map(part_text) {
        all.push_str(text);
        all.push('\n');
    }
    all
}

/// Returns what a part has of its message's text. No word goes from one part into the next.
pub(super) fn part_text(part: &Part) -> Option<&str> {
    match &part.content {
        Content::Text(text) if !text.synthetic => Some(&text.text),
        Content::Tool(call) => Some(&call.title),
        _ => None,
    }
}

/// The first place of a word, on one line.
fn excerpt(text: &str, word: &str) -> String {
    let lower = text.to_lowercase();
    // Lower case may be longer or shorter; then the place is near enough.
    let at = lower.find(word).unwrap_or(0).min(text.len());
    let start = text.floor_char_boundary(at.saturating_sub(AROUND));
    let end = text.ceil_char_boundary((at + word.len() + AROUND).min(text.len()));
    let middle: Vec<&str> = text[start..end].split_whitespace().collect();
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < text.trim_end().len() { "…" } else { "" });
    format!("{before}{}{after}", middle.join(" "))
}
