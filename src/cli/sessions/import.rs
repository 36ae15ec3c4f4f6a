//! `adjutant sessions import`: sessions that adjutant or OpenCode exported, and OpenCode's data
//! directory.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use super::{MAX_IMPORT_BYTES, line};
use crate::cli::{input, say, terminal};
use base::environment::Environment;
use base::text;
use store::opencode::{self, DataDirectory, FoundSession};
use store::{Record, Store, StreamedSession};

/// The first bytes of an SQLite database.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// Imports a session from a file, or all sessions of OpenCode's data.
pub(in crate::cli) async fn import(
    store: &Store,
    environment: &Environment,
    path: &Path,
    cwd: Option<&Path>,
) -> anyhow::Result<u8> {
    let cwd = cwd
        .map(|cwd| {
            std::fs::canonicalize(cwd).with_context(|| format!("{} cannot be found", cwd.display()))
        })
        .transpose()?;
    if path != Path::new("-") && (path.is_dir() || is_database(path)?) {
        if cwd.is_some() {
            bail!(
                "--cwd is for a file with one session; `adjutant sessions move OLD NEW` moves those of a directory"
            );
        }
        return import_all(store, environment, path).await;
    }
    let Opened { feed, left_out } = opened(path)?;
    let id = feed.record.id.clone();
    let is_copy = id.is_well_formed() && store.contains(&id).await?;
    let record = import_one(store, environment, feed, cwd).await?;
    if is_copy {
        terminal::print_note(&format!(
            "Session {id} is here already; this is a copy of it."
        ));
    }
    say(&format!("imported {}", line(&record, true)));
    // Only now have all messages been read.
    report_left_out(&left_out.list());
    if !record.cwd.is_dir() {
        let cwd = record.cwd.display();
        say(&format!(
            "Its directory {cwd} does not exist; import it again with --cwd to choose another, or move it: adjutant sessions move {cwd} DIRECTORY"
        ));
    }
    Ok(0)
}

fn is_database(path: &Path) -> anyhow::Result<bool> {
    let mut first = Vec::new();
    input::open(path)?
        .take(SQLITE_MAGIC.len() as u64)
        .read_to_end(&mut first)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(first == SQLITE_MAGIC)
}

/// Imports one session, under another id if its own is taken.
async fn import_one(
    store: &Store,
    environment: &Environment,
    mut feed: StreamedSession,
    cwd: Option<PathBuf>,
) -> anyhow::Result<Record> {
    // The sessions of subagents are not in the file, nor is the parent.
    feed.record.parent = None;
    feed.record.title = feed.record.title.as_deref().map(session::title::tidy);
    if let Some(cwd) = cwd {
        feed.record.cwd = cwd;
    }
    if !feed.record.id.is_well_formed() || store.contains(&feed.record.id).await? {
        feed = store::renamed(feed, environment);
    }
    let record = feed.record.clone();
    store.import(feed).await?;
    Ok(record)
}

struct Opened {
    feed: StreamedSession,
    left_out: opencode::Omitted,
}

/// Opens an exported session. One message of adjutant's own format at a time is in memory, unless
/// it is read from standard input.
fn opened(file: &Path) -> anyhow::Result<Opened> {
    let (own, text): (_, Box<dyn Fn() -> anyhow::Result<Vec<u8>>>) = if file == Path::new("-") {
        let text = input::standard(MAX_IMPORT_BYTES)?;
        let again = text.clone();
        (
            export::json::import(move || Ok(Cursor::new(text.clone()))),
            Box::new(move || Ok(again.to_vec())),
        )
    } else {
        // Opening first reports an unreadable file before anything else is read.
        input::open(file)?;
        (
            export::json::import(|| input::open(file).map_err(io::Error::other)),
            Box::new(move || input::bytes(file, MAX_IMPORT_BYTES)),
        )
    };
    let error = match own {
        Ok(feed) => {
            return Ok(Opened {
                feed,
                left_out: opencode::Omitted::default(),
            });
        }
        Err(error) => error,
    };
    let members = serde_json::from_slice::<Map<String, Value>>(&text()?);
    let Some(members) = members.ok().filter(opencode::is_export) else {
        return Err(error.into());
    };
    let (feed, left_out) = opencode::import(members)?;
    Ok(Opened { feed, left_out })
}

/// Imports every session of OpenCode's data that is not here yet.
async fn import_all(store: &Store, environment: &Environment, path: &Path) -> anyhow::Result<u8> {
    let temporary = tempfile::tempdir_in(environment.tmp())
        .or_else(|_| tempfile::tempdir())
        .context("no temporary directory")?;
    let data = {
        let path = path.to_path_buf();
        let into = temporary.path().to_path_buf();
        base::task::spawn_blocking(move || DataDirectory::open(&path, &into)).await??
    };
    let data = Arc::new(data);
    let mut counts = ImportCounts::default();
    for found in data.sessions() {
        if !found.id.is_well_formed() {
            counts.fail(found, "its id is not one of a session");
            continue;
        }
        if store.contains(&found.id).await? {
            counts.present += 1;
            continue;
        }
        let reader = data.clone();
        let one = found.clone();
        let read = base::task::spawn_blocking(move || reader.read(&one)).await?;
        let mut feed = match read {
            Ok(feed) => feed,
            Err(e) => {
                counts.fail(found, &e.to_string());
                continue;
            }
        };
        feed.record.title = feed.record.title.as_deref().map(session::title::tidy);
        let record = feed.record.clone();
        match store.import(feed).await {
            Ok(()) => counts.add(&record),
            Err(e) => counts.fail(found, &e.to_string()),
        }
    }
    counts.report();
    report_left_out(&data.left_out());
    Ok(u8::from(counts.failed > 0))
}

/// The results of an import of many sessions.
#[derive(Default)]
struct ImportCounts {
    own: usize,
    subagents: usize,
    present: usize,
    failed: usize,
    /// The directories that do not exist, with their numbers of sessions.
    gone: BTreeMap<PathBuf, usize>,
}

impl ImportCounts {
    fn add(&mut self, record: &Record) {
        if record.parent.is_some() {
            self.subagents += 1;
            return;
        }
        self.own += 1;
        say(&format!("imported {}", line(record, true)));
        if !record.cwd.is_dir() {
            *self.gone.entry(record.cwd.clone()).or_default() += 1;
        }
    }

    fn fail(&mut self, found: &FoundSession, why: &str) {
        self.failed += 1;
        terminal::print_note(&format!("{} is not imported: {why}", found.id));
    }

    fn report(&self) {
        let mut parts = vec![format!("imported {}", text::count(self.own, "session"))];
        if self.subagents > 0 {
            parts.push(format!("and {} of subagents", self.subagents));
        }
        say(&parts.join(" "));
        if self.present > 0 {
            say(&format!(
                "{} had been imported before and {} unchanged; delete one to import it again",
                text::count(self.present, "session"),
                if self.present == 1 { "is" } else { "are" },
            ));
        }
        for (directory, count) in &self.gone {
            let directory = directory.display();
            say(&format!(
                "{directory} does not exist ({}); after a move: adjutant sessions move {directory} DIRECTORY",
                text::count(*count, "session")
            ));
        }
    }
}

/// Names the parts that were not imported, because adjutant has no place for them.
fn report_left_out(left_out: &[(String, usize)]) {
    if left_out.is_empty() {
        return;
    }
    let list = left_out
        .iter()
        .map(|(name, count)| format!("{name} ({count})"));
    say(&format!(
        "not imported: {}",
        list.collect::<Vec<_>>().join(", ")
    ));
}
