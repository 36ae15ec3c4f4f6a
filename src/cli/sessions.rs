//! `adjutant sessions`: lists, shows and manages sessions.

mod document;
mod files;
mod fleet;
mod import;
mod relocate;
mod rows;
mod show;
mod summary;

use std::collections::HashSet;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;

use clap_complete::{ArgValueCandidates, CompletionCandidate};

use super::complete;
use super::listing;
use super::project_context::ProjectContext;
use super::reply;
use super::terminal;
use base::environment::Environment;
use base::id::SessionId;
use base::lock::lock;
use export::conversation::{self, CallDetail, minute};
use rows::{SessionRow, line};
use session::prune;
use session::revert::RevertPoint;
use session::user_store::StoreSettings;
use store::{
    self, ListQuery, LockHolder, Record, SessionPage, Store, StoredSession, StreamedSession,
};

/// The number of unindexed sessions above which the user is notified of the slow search.
const SLOW_SEARCH_SESSIONS: usize = 200;

/// The same number of sessions that are too large for the index: reading one of them takes as long
/// as reading many others.
const SLOW_LARGE_SESSIONS: usize = 5;

/// The largest export that is imported, in bytes.
const MAX_IMPORT_BYTES: u64 = 256 << 20;

/// Options of `adjutant sessions`. A session is named by its id, the beginning of it, or `last`.
pub(super) type Args = super::CommandOrList<Verb, Listing>;

impl Args {
    /// Returns whether it imports or moves sessions.
    pub(super) fn is_for_the_user(&self) -> bool {
        matches!(self.verb, Some(Verb::Import { .. } | Verb::Move { .. }))
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Listing {
    /// Include every project
    #[arg(long)]
    all: bool,
    /// Show only sessions that are open in a process or have a queued prompt
    #[arg(long)]
    running: bool,
    /// Show at most this many [default: 50, with --json all]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = listing::limit,
        conflicts_with = "running"
    )]
    limit: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the sessions of this project, newest first (default)
    #[command(alias = "ls")]
    List(Listing),
    /// Show a conversation
    ///
    /// At a terminal it looks as in its runs; in a pipe it is Markdown.
    Show {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
        /// Show outputs and changes with all their lines
        #[arg(long, conflicts_with = "json")]
        full: bool,
        /// Print JSON: the session with its messages and the titles of its calls
        #[arg(long)]
        json: bool,
    },
    /// Describe the work of a session, in a few sentences for a pull request
    ///
    /// The agent `summary` writes it, with the model of the session unless the settings give it
    /// another. It is saved: the list of sessions and exports show it.
    Summary {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
    },
    /// Find sessions with a title or message that contains all the given words
    ///
    /// Exits with 1 if there is none.
    Search {
        /// Words of the title or the conversation, in any case
        #[arg(required = true)]
        words: Vec<String>,
        /// Include every project
        #[arg(long)]
        all: bool,
        /// Show at most this many [default: 20, with --json all]
        #[arg(short = 'n', long, value_name = "N", value_parser = listing::limit)]
        limit: Option<usize>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Export a session as JSON, Markdown, or an HTML page
    ///
    /// JSON can be imported again; the others are for reading. No file is overwritten without
    /// --force.
    Export {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
        /// Format [default: that of the extension .json, .md or .html, and JSON on standard output]
        #[arg(long)]
        format: Option<ExportFormat>,
        /// File to write [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Overwrite the file if it exists
        #[arg(long, requires = "output")]
        force: bool,
    },
    /// Import a session that was exported as JSON, or all sessions of OpenCode
    ///
    /// Takes what `adjutant sessions export` and `opencode export` write, and OpenCode's data
    /// directory, usually ~/.local/share/opencode. What cannot be imported is listed.
    Import {
        /// File to read, or a data directory of OpenCode; `-` for standard input
        file: PathBuf,
        /// Directory that the imported session will belong to
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
    },
    /// Reassign sessions to a directory that was moved or renamed
    ///
    /// Exits with 1 if some were not moved, because they are open elsewhere.
    Move {
        /// Directory that the sessions belong to; it need not exist any more
        old: PathBuf,
        /// Directory that they will belong to
        new: PathBuf,
    },
    /// Undo the last turn of a session with its changes to files, or redo it
    ///
    /// At a terminal, it asks first if the session is not named by its id. Exits with 1 if files were
    /// left alone because they have changed since.
    Revert {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
        /// Turn from which to undo, with everything after it: its number, from 1, or the id of a
        /// message; the id of a part means its step
        #[arg(long, value_name = "TURN")]
        to: Option<String>,
        /// Also restore files that have changed since
        #[arg(long)]
        force: bool,
        /// Redo the last undo
        #[arg(long, conflicts_with_all = ["to", "force"])]
        redo: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Restore an earlier version of a file
    ///
    /// Without a file, lists the files; without a version, lists the versions of the file. The
    /// replaced content is saved: `adjutant sessions revert ID --redo` restores it.
    Restore {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
        /// File, relative to the current directory or to the root of the project
        file: Option<PathBuf>,
        /// Version, by its number in the list
        version: Option<usize>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a session's changes as a unified diff
    Diff {
        /// Session: its id, the beginning of it, or `last`
        #[arg(default_value = "last", add = ArgValueCandidates::new(candidates))]
        id: String,
        /// Print only the number of changed lines of each file
        #[arg(long)]
        stat: bool,
        /// Print JSON: a list with an object for each file
        #[arg(long)]
        json: bool,
    },
    /// Rename a session
    Rename {
        /// Session: its id, the beginning of it, or `last`
        #[arg(add = ArgValueCandidates::new(candidates))]
        id: String,
        /// New title
        #[arg(required = true)]
        title: Vec<String>,
    },
    /// Delete sessions and their subagents' sessions
    ///
    /// At a terminal, it asks first.
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Sessions: ids, beginnings of ids, or `last`
        #[arg(required = true, add = ArgValueCandidates::new(candidates))]
        ids: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Wait for a queued prompt, and print its answer
    ///
    /// Exits as `adjutant run` would have.
    Wait {
        /// Session: its id, the beginning of it, or `last`
        #[arg(add = ArgValueCandidates::new(candidates))]
        id: String,
        /// Exit with 5 if a call was refused because no user could be asked, even if there is an
        /// answer
        #[arg(long)]
        strict: bool,
    },
    /// Cancel the running or queued prompt of a session, on any host
    ///
    /// Exits with 1 if there is none.
    Cancel {
        /// Session: its id, the beginning of it, or `last`
        #[arg(add = ArgValueCandidates::new(candidates))]
        id: String,
    },
    /// Delete empty and long unused sessions of every project
    ///
    /// At a terminal, it lists them and asks first.
    Prune {
        /// Delete what has not been used for this many days [default: the setting
        /// `sessions.keep_days`]
        #[arg(long, value_name = "N")]
        days: Option<u64>,
        /// Only print what would be deleted
        #[arg(long)]
        dry_run: bool,
        /// With --dry-run: print JSON, a list as that of `sessions list`
        #[arg(long, requires = "dry_run")]
        json: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ExportFormat {
    Json,
    Html,
    #[value(alias = "md")]
    Markdown,
}

impl From<ExportFormat> for export::Format {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Json => Self::Json,
            ExportFormat::Html => Self::Html,
            ExportFormat::Markdown => Self::Markdown,
        }
    }
}

/// Returns the format of an export. Standard output, and a device that takes the place of a file,
/// receive JSON if none is given.
fn export_format(
    given: Option<ExportFormat>,
    output: Option<&Path>,
) -> anyhow::Result<export::Format> {
    if let Some(format) = given {
        return Ok(format.into());
    }
    match output {
        Some(file) if !export::file::is_device(file) => {
            let name = file.display().to_string();
            export::file::format(file, &name)
                .map_err(|why| anyhow!("nothing was exported: {why}, or choose with --format"))
        }
        _ => Ok(export::Format::Json),
    }
}

pub(super) async fn sessions(args: Args, environment: &Environment) -> anyhow::Result<u8> {
    let verb = args.verb.unwrap_or(Verb::List(args.listing));
    let store = session::user_store::open_store(environment);
    let done = carry_out(verb, &store, environment).await;
    store.stop().await;
    done
}

#[expect(clippy::cognitive_complexity, reason = "an arm for each subcommand")]
async fn carry_out(verb: Verb, store: &Store, environment: &Environment) -> anyhow::Result<u8> {
    let here = Path::new(".");
    match verb {
        Verb::List(Listing {
            all,
            running: true,
            json,
            ..
        }) => fleet::running(store, environment, all, json).await,
        Verb::List(Listing {
            all, limit, json, ..
        }) => list(store, environment, all, limit_or(limit, 50, json), json).await,
        Verb::Show { id, full, json } => {
            let id = find(store, &id, here, environment).await?;
            show::show(store, environment, &id, full, json).await
        }
        Verb::Summary { id } => {
            let id = find(store, &id, here, environment).await?;
            summary::summary(store, environment, &id).await
        }
        Verb::Search {
            words,
            all,
            limit,
            json,
        } => {
            let limit = limit_or(limit, 20, json);
            search(store, environment, &words.join(" "), all, limit, json).await
        }
        Verb::Export {
            id,
            format,
            output,
            force,
        } => {
            let id = find(store, &id, here, environment).await?;
            let output = output.filter(|file| file.as_os_str() != "-");
            let format = export_format(format, output.as_deref())?;
            let target = output.map(|path| ExportTarget { path, force });
            export(store, environment, &id, format, target).await
        }
        Verb::Import { file, cwd } => {
            import::import(store, environment, &file, cwd.as_deref()).await
        }
        Verb::Move { old, new } => relocate::relocate(store, environment, &old, &new).await,
        Verb::Revert {
            id,
            to,
            force,
            redo,
            yes,
        } => {
            let is_last = id == LAST;
            let id = find(store, &id, here, environment).await?;
            let asks = is_last && !yes && !redo && terminal::can_ask();
            let point = revert_point(to);
            let turns = UndoneTurns::new(&point, force);
            if asks && !agrees_to_undo(store, environment, &id, turns).await? {
                return Ok(1);
            }
            let way = if redo {
                files::UndoDirection::Forth
            } else {
                files::UndoDirection::Back { point, force }
            };
            files::revert(store, environment, &id, way).await
        }
        Verb::Restore {
            id,
            file,
            version,
            json,
        } => {
            let id = find(store, &id, here, environment).await?;
            match (file, version) {
                (None, _) => files::list_recorded(store, &id, json).await,
                (Some(file), None) => {
                    files::list_versions(store, environment, &id, &file, json).await
                }
                (Some(file), Some(version)) => {
                    files::restore(store, environment, &id, &file, version, json).await
                }
            }
        }
        Verb::Diff { id, stat, json } => {
            let id = find(store, &id, here, environment).await?;
            files::diff(store, environment, &id, stat, json).await
        }
        Verb::Rename { id, title } => {
            let id = find(store, &id, here, environment).await?;
            let title = session::title::tidy(&title.join(" "));
            if title.is_empty() {
                bail!("the title is empty");
            }
            store.rename(&id, &title).await?;
            super::say(&format!("renamed {id}: {title}"));
            Ok(0)
        }
        Verb::Delete { ids, yes } => delete(store, environment, &ids, yes).await,
        Verb::Wait { id, strict } => {
            fleet::wait(store, &find(store, &id, here, environment).await?, strict).await
        }
        Verb::Cancel { id } => {
            fleet::cancel(store, &find(store, &id, here, environment).await?).await
        }
        Verb::Prune {
            days,
            dry_run,
            json,
            yes,
        } => {
            let days = days.or_else(|| StoreSettings::new(environment).keep_days());
            store.wait_until_filled().await?;
            if json {
                return list_prunable(store, environment, days).await;
            }
            prune_all(store, environment, days, dry_run, yes).await
        }
    }
}

async fn search(
    store: &Store,
    environment: &Environment,
    text: &str,
    all: bool,
    limit: usize,
    json: bool,
) -> anyhow::Result<u8> {
    let query = query(store, !all, Path::new("."), environment).await?;
    let store::SearchPage {
        mut hits,
        unindexed,
        too_large,
        cut,
    } = store.search(query, text, limit.saturating_add(1)).await?;
    let has_more = hits.len() > limit;
    hits.truncate(limit);
    let missing = unindexed.saturating_sub(too_large);
    if missing >= SLOW_SEARCH_SESSIONS {
        terminal::print_note(&format!(
            "{missing} sessions are not in the search index yet, and were read one by one."
        ));
    }
    if too_large >= SLOW_LARGE_SESSIONS {
        terminal::print_note(&format!(
            "{too_large} sessions are too large for the search index, and were read one by one."
        ));
    }
    if let Some(store::SearchCut { sessions, oldest }) = cut {
        terminal::print_note(&format!(
            "Words of one or two letters are searched only in the {sessions} newest sessions, back to {}; add a word of three letters to search all.",
            minute(oldest)
        ));
    }
    if json {
        let mut all = Vec::new();
        for hit in &hits {
            let undone = undone_turns(store, &hit.record).await;
            let mut entry = document::session(&hit.record, undone);
            entry["messages"] = json!(hit.messages);
            entry["excerpt"] = json!(hit.excerpt);
            all.push(entry);
        }
        terminal::json(&serde_json::to_string_pretty(&all)?);
        if has_more {
            terminal::print_note(&more_in_json(limit));
        }
        return Ok(u8::from(hits.is_empty()));
    }
    if hits.is_empty() {
        super::say(if all {
            "No matches."
        } else {
            "No matches in this project; --all searches every project."
        });
        return Ok(1);
    }
    let mut rows = Vec::new();
    for hit in hits {
        let undone_turns = undone_turns(store, &hit.record).await;
        rows.push(SessionRow {
            undone_turns,
            ..found_row(hit)
        });
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    rows::print(&rows, all, &words, store, environment).await?;
    if has_more {
        super::say(&more_sessions(limit));
    }
    Ok(0)
}

fn found_row(hit: store::SearchHit) -> SessionRow {
    let is_in_title = hit.messages == 0;
    // A terminal cuts the end of it.
    let note = format!(
        "{}: {}",
        base::text::count(hit.messages, "message"),
        hit.excerpt
    );
    SessionRow {
        note: (!is_in_title).then_some(note),
        ..SessionRow::from(hit.record)
    }
}

/// The number of times that an export is restarted because the session has changed. After that it
/// is read at once.
const MAX_EXPORT_TRIES: usize = 3;

async fn export(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    format: export::Format,
    target: Option<ExportTarget>,
) -> anyhow::Result<u8> {
    let text = match format {
        export::Format::Json => return export_json(store, id, target).await,
        export::Format::Html => {
            let home = environment.home.as_ref();
            let home = home.map(|home| home.display().to_string());
            let subagents = subagents(store, id).await?;
            export::html::page(store.peek(id).await?, subagents, home.as_deref())
        }
        export::Format::Markdown => {
            let stored = store.peek(id).await?;
            let children = store.children(id).await?;
            conversation::markdown(&stored, &children, CallDetail::Full)
        }
    };
    export_text(&text, format, target.as_ref())
}

/// Writes a session as JSON, into a temporary file first, so that the target is either complete or
/// unchanged.
async fn export_json(
    store: &Store,
    id: &SessionId,
    output: Option<ExportTarget>,
) -> anyhow::Result<u8> {
    let mut tries = 0;
    let (document, damage) = loop {
        let feed = match tries {
            MAX_EXPORT_TRIES => store.peek(id).await?.into(),
            _ => store.stream(id).await?,
        };
        tries += 1;
        let damage = feed.damage_log();
        match base::task::spawn_blocking(move || spooled(feed)).await? {
            Ok(document) => break (document, damage),
            Err(export::json::WriteError::Read(store::Error::Changed(_)))
                if tries <= MAX_EXPORT_TRIES => {}
            Err(e) => return Err(e).context("the session is not exported"),
        }
    };
    base::task::spawn_blocking(move || copy_document(document, output)).await??;
    let damage = std::mem::take(&mut *lock(&damage));
    damage
        .iter()
        .for_each(|damage| terminal::print_note(&format!("damaged: {damage}")));
    Ok(0)
}

/// Writes a session into an anonymous temporary file.
fn spooled(feed: StreamedSession) -> Result<std::fs::File, export::json::WriteError> {
    let io = |e: io::Error| export::json::WriteError::Write(serde_json::Error::io(e));
    let mut out = BufWriter::new(tempfile::tempfile().map_err(io)?);
    export::json::export(feed, &mut out)?;
    let mut file = out.into_inner().map_err(|e| io(e.into_error()))?;
    file.rewind().map_err(io)?;
    Ok(file)
}

fn copy_document(mut document: std::fs::File, output: Option<ExportTarget>) -> anyhow::Result<()> {
    let Some(target) = output else {
        let mut out = terminal::JsonWriter::new();
        let mut lines = BufReader::new(document).lines();
        let printed = lines
            .try_for_each(|line| out.line(&line?))
            .and_then(|()| out.end());
        return match printed {
            // The reader has closed the pipe.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed.context("the session was not written completely"),
        };
    };
    write_file(&target, export::Format::Json, |file| {
        io::copy(&mut document, file).map(drop)
    })
}

/// Returns the sessions of a session's subagents, and of theirs. An unreadable one is left out.
async fn subagents(store: &Store, id: &SessionId) -> anyhow::Result<Vec<StoredSession>> {
    let mut found = Vec::new();
    let mut known = HashSet::from([id.clone()]);
    let mut waiting = store.children(id).await?;
    while let Some(child) = waiting.pop() {
        // Damaged records may form a circle.
        if !known.insert(child.clone()) {
            continue;
        }
        waiting.extend(store.children(&child).await?);
        found.extend(store.peek(&child).await.ok());
    }
    Ok(found)
}

/// The file of an export.
struct ExportTarget {
    path: PathBuf,
    /// True if it is overwritten if it exists.
    force: bool,
}

/// Writes the file of an export, and reports it. A new file that could not be written completely is
/// removed: it would be in the way of the next export. An existing one is replaced at the end, so
/// that it is either as before or complete.
fn write_file(
    target: &ExportTarget,
    format: export::Format,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> anyhow::Result<()> {
    let path = target.path.as_path();
    let name = path.display().to_string();
    if target.force && path.is_file() {
        let size = replace(path, write).with_context(|| format!("{name} cannot be written"))?;
        let text = export::file::written(format, &name, size);
        terminal::print_note(&format!("exported to {text}"));
        return Ok(());
    }
    let mut file = export::file::create_or_open_device(path).map_err(|e| {
        let hint = if e.kind() == io::ErrorKind::AlreadyExists && path.is_file() {
            ", or overwrite it with --force"
        } else {
            ""
        };
        anyhow!(
            "nothing was exported: {}{hint}",
            export::file::reason(&e, &name)
        )
    })?;
    let written = write(&mut file).and_then(|()| file.flush());
    if written.is_err() && file.metadata().is_ok_and(|found| found.is_file()) {
        std::fs::remove_file(path).ok();
    }
    written.with_context(|| format!("{name} cannot be written"))?;
    if let Ok(found) = file.metadata()
        && found.is_file()
    {
        let what = export::file::written(format, &name, found.len());
        terminal::print_note(&format!("exported to {what}"));
    }
    Ok(())
}

/// Replaces a file by a new one. Returns its size in bytes.
fn replace(
    path: &Path,
    write: impl FnOnce(&mut std::fs::File) -> io::Result<()>,
) -> io::Result<u64> {
    // A link keeps its place, and the file that it leads to is replaced.
    let path = std::fs::canonicalize(path)?;
    let permissions = std::fs::metadata(&path)?.permissions();
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    write(file.as_file_mut())?;
    let file = file.persist(&path).map_err(|e| e.error)?;
    file.set_permissions(permissions)?;
    Ok(file.metadata()?.len())
}

fn export_text(
    text: &str,
    format: export::Format,
    output: Option<&ExportTarget>,
) -> anyhow::Result<u8> {
    let Some(target) = output else {
        super::say(text);
        return Ok(0);
    };
    write_file(target, format, |file| file.write_all(text.as_bytes()))?;
    Ok(0)
}

/// Deletes sessions. At a terminal, the user is asked first.
async fn delete(
    store: &Store,
    environment: &Environment,
    names: &[String],
    yes: bool,
) -> anyhow::Result<u8> {
    // All are found before any is deleted: `last` is another one afterwards.
    let mut ids: Vec<SessionId> = Vec::new();
    for name in names {
        let id = find(store, name, Path::new("."), environment).await?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    check_not_open(store, &ids).await?;
    if !yes && terminal::can_ask() {
        let mut rows = Vec::new();
        for id in &ids {
            // A damaged session can be deleted, too.
            match store.peek(id).await {
                Ok(stored) => rows.push(SessionRow::from(stored.record)),
                Err(_) => super::say(id.as_str()),
            }
        }
        rows::print(&rows, true, &[], store, environment).await?;
        if !agreed(ids.len(), environment)? {
            return Ok(1);
        }
    }
    for id in ids {
        // A damaged session can be deleted, too.
        let title = store.peek(&id).await.ok();
        let title = title.and_then(|stored| stored.record.title);
        store.delete(&id).await?;
        let title = title.map_or_else(String::new, |title| format!(": {title}"));
        super::say(&format!("deleted {id}{title}"));
    }
    Ok(0)
}

/// Checks that no other process has one of the sessions open, which could not be deleted.
async fn check_not_open(store: &Store, ids: &[SessionId]) -> anyhow::Result<()> {
    // Without the list, the deletion itself is refused.
    for open in store.list_busy_sessions().await.unwrap_or_default() {
        if open.state.is_some() || !ids.contains(&open.session) {
            continue;
        }
        let pid = open.host.map(|(_, pid)| pid);
        return Err(store::Error::Locked {
            id: open.session,
            holder: LockHolder::process(pid),
        }
        .into());
    }
    Ok(())
}

/// The turns that an undo takes back.
#[derive(Clone, Copy)]
enum UndoneTurns<'a> {
    Last,
    /// All from a turn on.
    FromTurn(usize),
    /// All from a message on.
    FromMessage(&'a str),
    /// The last one, or one whose undo has left files alone: they are restored then.
    Forced,
}

impl<'a> UndoneTurns<'a> {
    fn new(point: &'a RevertPoint, force: bool) -> Self {
        match point {
            RevertPoint::Turn(turn) => Self::FromTurn(*turn),
            RevertPoint::Before(message) => Self::FromMessage(message),
            RevertPoint::LastTurn if force => Self::Forced,
            RevertPoint::LastTurn => Self::Last,
        }
    }
}

/// Returns the point that `--to` names. A number is a turn: the ids of messages and parts begin with
/// a letter.
fn revert_point(to: Option<String>) -> RevertPoint {
    match to {
        None => RevertPoint::LastTurn,
        Some(to) => match to.parse() {
            Ok(turn) => RevertPoint::Turn(turn),
            Err(_) => RevertPoint::Before(to),
        },
    }
}

/// Asks whether to undo turns of the last session, which may be another one than the user means.
async fn agrees_to_undo(
    store: &Store,
    environment: &Environment,
    id: &SessionId,
    turns: UndoneTurns<'_>,
) -> anyhow::Result<bool> {
    let stored = store.peek(id).await?;
    let title = stored.record.title.as_deref().unwrap_or("(no title)");
    super::say(&format!(
        "session {id}: {}",
        base::text::escaped(&base::text::title(title))
    ));
    let question = match turns {
        UndoneTurns::FromTurn(turn) => {
            format!("Undo turn {turn} and all after it, with their changes to files? [y/N/?] ")
        }
        UndoneTurns::FromMessage(message) => format!(
            "Undo everything from {} on, with its changes to files? [y/N/?] ",
            base::text::escaped(message)
        ),
        UndoneTurns::Last => {
            let prompt = conversation::last_exchange(&stored);
            let prompt = prompt.map(|(prompt, _)| {
                format!(", \"{}\"", base::text::escaped(&base::text::title(&prompt)))
            });
            format!(
                "Undo its last turn{}, with its changes to files? [y/N/?] ",
                prompt.unwrap_or_default()
            )
        }
        UndoneTurns::Forced => {
            "Undo, and overwrite or delete files that were changed since? [y/N/?] ".to_owned()
        }
    };
    let explained = "y  undoes it; `adjutant sessions revert --redo` brings it back\n\
                     n  leaves it; `adjutant sessions` lists the other sessions";
    let ask = |words: &str| terminal::answer(words, environment);
    let answer = reply::yes_or_no(&question, explained, Some(false), ask)?;
    let agrees = answer.unwrap_or(false);
    if !agrees {
        super::say("Nothing was undone.");
    }
    Ok(agrees)
}

/// Asks whether to delete sessions.
fn agreed(count: usize, environment: &Environment) -> anyhow::Result<bool> {
    let question = format!("Delete {}? [y/N/?] ", base::text::count(count, "session"));
    let explained = "y  deletes the conversations and what they saved for an undo; that cannot be brought back\n\
                     n  leaves them";
    let ask = |words: &str| terminal::answer(words, environment);
    let answer = reply::yes_or_no(&question, explained, Some(false), ask)?;
    let agrees = answer.unwrap_or(false);
    if !agrees {
        super::say("Nothing was deleted.");
    }
    Ok(agrees)
}

/// Prints the sessions that would be deleted as JSON.
async fn list_prunable(
    store: &Store,
    environment: &Environment,
    keep_days: Option<u64>,
) -> anyhow::Result<u8> {
    let mut all = Vec::new();
    for found in prune::find_prunable(store, environment.now(), keep_days).await? {
        let undone = undone_turns(store, &found.record).await;
        all.push(document::session(&found.record, undone));
    }
    terminal::json(&serde_json::to_string_pretty(&all)?);
    Ok(0)
}

async fn prune_all(
    store: &Store,
    environment: &Environment,
    keep_days: Option<u64>,
    is_dry: bool,
    yes: bool,
) -> anyhow::Result<u8> {
    let asks = !yes && !is_dry && terminal::can_ask();
    let mut found = prune::find_prunable(store, environment.now(), keep_days).await?;
    let count = base::text::count(found.len(), "session");
    if keep_days.is_none() {
        super::say(
            "Only empty sessions are deleted: set --days, or sessions.keep_days in the settings.",
        );
    }
    if is_dry || asks {
        let records = found.iter().map(|found| found.record.clone());
        let rows: Vec<SessionRow> = records.map(SessionRow::from).collect();
        rows::print(&rows, true, &[], store, environment).await?;
    }
    if is_dry {
        super::say(&format!("would delete {count}"));
    } else {
        if asks && !found.is_empty() {
            if !agreed(found.len(), environment)? {
                return Ok(1);
            }
            // One that was used while the question waited stays, and one that is old by now was not
            // shown.
            let still = prune::find_prunable(store, environment.now(), keep_days).await?;
            found.retain(|shown| still.iter().any(|found| found.record.id == shown.record.id));
        }
        let pruned = prune::delete(store, found).await;
        if !asks {
            for record in &pruned.deleted {
                super::say(&format!("deleted {}", line(record, true)));
            }
        }
        for (id, why) in &pruned.failed {
            super::say(&format!("not deleted: {id}: {why}"));
        }
        let count = base::text::count(pruned.deleted.len(), "session");
        super::say(&format!("deleted {count}"));
    }
    Ok(0)
}

async fn list(
    store: &Store,
    environment: &Environment,
    all: bool,
    limit: usize,
    json: bool,
) -> anyhow::Result<u8> {
    let page = listed(
        store,
        ListQuery {
            limit,
            ..query(store, !all, Path::new("."), environment).await?
        },
    )
    .await?;
    for path in page.unreadable {
        terminal::print_note(&format!(
            "{} cannot be read, and its project is unknown; open its session for details",
            path.display()
        ));
    }
    let records = page.sessions;
    if json {
        let mut all = Vec::new();
        for record in &records {
            all.push(document::session(record, undone_turns(store, record).await));
        }
        terminal::json(&serde_json::to_string_pretty(&all)?);
        if page.next.is_some() {
            terminal::print_note(&more_in_json(all.len()));
        }
        return Ok(0);
    }
    let is_empty = records.is_empty();
    if is_empty {
        super::say(if all {
            "No sessions yet: `adjutant run \"PROMPT\"` starts one, and so does an editor."
        } else {
            "No sessions in this project; --all lists those of every project."
        });
    }
    let mut rows = Vec::new();
    for record in records {
        let undone_turns = undone_turns(store, &record).await;
        rows.push(SessionRow {
            undone_turns,
            ..listed_row(record)
        });
    }
    rows::print(&rows, all, &[], store, environment).await?;
    if !all {
        relocate::offer(store, environment).await;
    }
    if page.next.is_some() {
        super::say(&more_sessions(limit));
    }
    if !is_empty && terminal::is_watched() {
        super::say(
            "\n`adjutant sessions show ID` shows one, `adjutant run -s ID \"PROMPT\"` continues it.",
        );
    }
    Ok(0)
}

/// Returns the limit of a list. A script that gives none would not notice that entries are missing.
fn limit_or(given: Option<usize>, for_people: usize, json: bool) -> usize {
    /// More than there can be.
    const ALL: usize = i32::MAX as usize;
    match given {
        Some(limit) => limit,
        None if json => ALL,
        None => for_people,
    }
}

/// Returns the line after a list that has reached its limit.
fn more_sessions(limit: usize) -> String {
    format!(
        "… and more; --limit {} shows more of them",
        limit.saturating_mul(2)
    )
}

/// Returns the note next to a list in JSON that has reached its limit.
fn more_in_json(listed: usize) -> String {
    format!("there are more sessions than the {listed} listed; --limit N lists more")
}

/// Returns the row of a session, at a terminal with the beginning of its summary. Scripts get that
/// as JSON.
fn listed_row(record: Record) -> SessionRow {
    let note = if terminal::is_watched() {
        record.description().map(str::to_owned)
    } else {
        None
    };
    SessionRow {
        note,
        ..SessionRow::from(record)
    }
}

/// Returns the number of turns of a session that are undone and can be redone. Only sessions in
/// which something is undone are read.
async fn undone_turns(store: &Store, record: &Record) -> usize {
    if record.undone.is_empty() {
        return 0;
    }
    let stored = store.peek(&record.id).await;
    stored.map_or(0, |stored| count_undone(&stored))
}

/// Returns the number of turns of a session that are undone and can be redone. The end of a turn
/// counts as one.
fn count_undone(stored: &StoredSession) -> usize {
    let (turns, is_undone) = export::undone_turns(stored);
    turns.max(usize::from(is_undone))
}

/// The sessions of a project.
struct ProjectSessions {
    root: PathBuf,
    /// The name of the project on every machine, if machines share the store.
    name: Option<String>,
}

impl ProjectSessions {
    async fn of(store: &Store, dir: &Path, environment: &Environment) -> anyhow::Result<Self> {
        let worktree = ProjectContext::read(dir, environment)?.worktree;
        let name = store.is_shared().await.then(|| worktree.shared_name());
        Ok(Self {
            root: worktree.root,
            name,
        })
    }

    fn has(&self, record: &Record) -> bool {
        let below = || {
            record
                .shared_name
                .as_deref()?
                .strip_prefix(self.name.as_deref()?)
        };
        record.cwd.starts_with(&self.root)
            || below().is_some_and(|rest| rest.is_empty() || rest.starts_with("//"))
    }
}

/// Returns the query for the sessions of a directory's project, or for all sessions.
async fn query(
    store: &Store,
    is_project: bool,
    dir: &Path,
    environment: &Environment,
) -> anyhow::Result<ListQuery> {
    let query = ListQuery {
        is_recursive: is_project,
        ..ListQuery::default()
    };
    if !is_project {
        return Ok(query);
    }
    let project = ProjectSessions::of(store, dir, environment).await?;
    Ok(ListQuery {
        cwd: Some(project.root),
        shared_name: project.name,
        ..query
    })
}

/// The time limit of completions: a database may be away, and the shell waits.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// Completes the newest sessions of the project, with their titles.
pub(super) fn candidates() -> Vec<CompletionCandidate> {
    let environment = Environment::read();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let found = runtime
        .block_on(async { tokio::time::timeout(COMPLETION_TIMEOUT, newest(&environment)).await });
    runtime.shutdown_background();
    let found = found.ok().and_then(Result::ok);
    complete::candidates(found.unwrap_or_default())
}

/// Returns the ids and titles of the project's newest sessions, for completions. Waits for no
/// index.
async fn newest(environment: &Environment) -> anyhow::Result<Vec<(String, String)>> {
    const MAX_NEWEST: usize = 50;
    let store = session::user_store::open_store(environment);
    let query = ListQuery {
        limit: MAX_NEWEST,
        ..query(&store, true, Path::new("."), environment).await?
    };
    let sessions = store.list_where(query).await?.sessions.into_iter();
    let named = sessions.map(|record| (record.id.to_string(), record.title.unwrap_or_default()));
    Ok(named.collect())
}

/// Lists sessions after the index is complete, because a command at a terminal or in a script runs
/// only once.
async fn listed(store: &Store, query: ListQuery) -> Result<SessionPage, store::Error> {
    let mut page = store.list_where(query.clone()).await?;
    let mut is_notified = false;
    while page.filling.is_some() {
        if !is_notified {
            terminal::print_note("The list of sessions is being rebuilt; this may take a while.");
        }
        is_notified = true;
        store.wait_until_filled().await?;
        page = store.list_where(query.clone()).await?;
    }
    Ok(page)
}

/// The name of a project's most recent session.
pub(super) const LAST: &str = "last";

/// The beginning of every id, which may be left out.
const ID_PREFIX: &str = "ses_";

/// The number of matching ids above which they are not counted.
const MAX_MATCHING_IDS: usize = 100;

/// Returns the session with this id or unique beginning of an id, or the one named by [`LAST`].
pub(super) async fn find(
    store: &Store,
    name: &str,
    dir: &Path,
    environment: &Environment,
) -> anyhow::Result<SessionId> {
    let exact = SessionId::new(name);
    if exact.is_well_formed() && store.stream(&exact).await.is_ok() {
        return Ok(exact);
    }
    let is_last = name == LAST;
    let newest = listed(
        store,
        ListQuery {
            limit: 1,
            ..query(store, is_last, dir, environment).await?
        },
    )
    .await?;
    if is_last {
        return newest
            .sessions
            .into_iter()
            .next()
            .map(|record| record.id)
            .ok_or_else(|| {
                anyhow!(
                    "no sessions in this project; `adjutant sessions --all` lists those of every project"
                )
            });
    }
    // The first letters are the same in all ids.
    let beginning = if name.starts_with(ID_PREFIX) {
        name.to_owned()
    } else {
        format!("{ID_PREFIX}{name}")
    };
    match store
        .list_with_prefix(&beginning, MAX_MATCHING_IDS)
        .await?
        .as_slice()
    {
        [one] => Ok(one.clone()),
        // A damaged session is not in the index. The store returns the reason.
        [] => {
            if exact.is_well_formed()
                && let Err(reason) = store.peek(&exact).await
                && !matches!(reason, store::Error::NotFound(_))
            {
                return Err(reason.into());
            }
            bail!("there is no session {name}; `adjutant sessions --all` lists them")
        }
        several if several.len() == MAX_MATCHING_IDS => {
            bail!("many sessions begin with {name}; give more of the id")
        }
        several => {
            const MAX_NAMED: usize = 5;
            let named = several.iter().take(MAX_NAMED).map(SessionId::as_str);
            let more = if several.len() > MAX_NAMED {
                ", …"
            } else {
                ""
            };
            bail!(
                "{} sessions begin with {name}; give more of the id: {}{more}",
                several.len(),
                named.collect::<Vec<_>>().join(", ")
            )
        }
    }
}
