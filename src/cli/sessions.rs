//! `adjutant sessions`: what was said and done before.

mod files;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::place::Here;
use super::{input, terminal};
use crate::environment::{Environment, Timestamp};
use crate::export;
use crate::id::SessionId;
use crate::message::{CallState, Content, Role};
use crate::session::prune::{self, Prune};
use crate::store::{self, Record, Store, Stored};

/// The largest export that is taken in, in bytes.
const LARGEST: u64 = 256 << 20;

/// What to do with the sessions. A session is named by its id, by the beginning of it, or by `last`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List the sessions of this project, newest first (also without a word).
    List {
        /// Of every project.
        #[arg(long)]
        all: bool,
        /// How many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// One JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Print a conversation as Markdown.
    Show {
        /// The session.
        id: String,
    },
    /// Find sessions whose title or words hold all of these words.
    Search {
        /// The words, in whatever case.
        #[arg(required = true)]
        words: Vec<String>,
        /// In every project.
        #[arg(long)]
        all: bool,
        /// How many at most.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Write a session as JSON, which can be imported, or as an HTML page to read and to pass on.
    Export {
        /// The session.
        id: String,
        /// json or html.
        #[arg(long, default_value = "json")]
        format: Format,
        /// The file; without one, standard output.
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
    /// Take in a session that was exported as JSON.
    Import {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// The directory it belongs to from now on.
        #[arg(long)]
        cwd: Option<PathBuf>,
    },
    /// Take the last turn of a session back, its changes of files included. Exit code 1 when files were
    /// left alone because they have changed since.
    Revert {
        /// The session.
        id: String,
        /// Go back to before this message, or the step this part belongs to.
        #[arg(long)]
        to: Option<String>,
        /// Set files back that have changed since as well.
        #[arg(long)]
        force: bool,
        /// Bring back what was taken back last.
        #[arg(long, conflicts_with_all = ["to", "force"])]
        redo: bool,
    },
    /// Print what a session changed in the files, as a unified diff.
    Diff {
        /// The session.
        #[arg(default_value = "last")]
        id: String,
        /// Only how many lines of each file.
        #[arg(long)]
        stat: bool,
    },
    /// Give a session a title, which stays.
    Rename {
        /// The session.
        id: String,
        /// The title.
        #[arg(required = true)]
        title: Vec<String>,
    },
    /// Delete sessions, with those they delegated to.
    Delete {
        /// The sessions.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Delete the sessions of every project that were not used for so many days, and those in which
    /// nothing was ever said.
    Prune {
        /// The days; without a number, the setting `sessions.keep_days`.
        #[arg(long)]
        days: Option<u64>,
        /// Only say what would be deleted.
        #[arg(long)]
        dry_run: bool,
    },
}

/// What a session is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Json,
    Html,
}

pub(super) async fn sessions(verb: Verb, environment: &Environment) -> anyhow::Result<u8> {
    let store = Store::start(&environment.dirs.data);
    let done = carry_out(verb, &store, environment).await;
    store.stop().await;
    done
}

async fn carry_out(verb: Verb, store: &Store, environment: &Environment) -> anyhow::Result<u8> {
    match verb {
        Verb::List { all, limit, json } => list(store, environment, all, limit, json).await,
        Verb::Show { id } => {
            let id = find(store, &id, environment).await?;
            let stored = shown(store.peek(&id).await?);
            super::say(&show(&stored, &store.children(&id).await?));
            Ok(0)
        }
        Verb::Search { words, all, limit } => {
            let records = records(store, environment, all).await?;
            let (dir, words) = (store.dir().to_path_buf(), words.join(" "));
            let hits = tokio::task::spawn_blocking(move || store::search(&dir, records, &words, limit)).await?;
            for hit in &hits {
                super::say(&line(&hit.record, all));
                if hit.messages > 0 {
                    super::say(&format!("    {} ({})", hit.excerpt, crate::text::count(hit.messages, "message")));
                }
            }
            if hits.is_empty() {
                super::say("Nothing was found.");
            }
            Ok(u8::from(hits.is_empty()))
        }
        Verb::Export { id, format, output } => {
            let id = find(store, &id, environment).await?;
            let stored = store.peek(&id).await?;
            let home = environment.home.as_ref().map(|home| home.display().to_string());
            let text = match format {
                Format::Json => export::json::export(&stored),
                Format::Html => export::html::page(&shown(stored), home.as_deref()),
            };
            match output {
                None if format == Format::Json => terminal::json(&text),
                None => super::say(&text),
                Some(file) => {
                    let written = crate::environment::private_note(&file, text.as_bytes());
                    written.with_context(|| format!("{} cannot be written", file.display()))?;
                }
            }
            Ok(0)
        }
        Verb::Import { file, cwd } => import(store, environment, &file, cwd.as_deref()).await,
        Verb::Revert { id, to, force, redo } => {
            let id = find(store, &id, environment).await?;
            let way = if redo { files::Way::Forth } else { files::Way::Back { to, force } };
            files::revert(store, environment, &id, way).await
        }
        Verb::Diff { id, stat } => {
            let id = find(store, &id, environment).await?;
            files::diff(store, environment, &id, stat).await
        }
        Verb::Rename { id, title } => {
            let id = find(store, &id, environment).await?;
            let title = crate::session::title::tidy(&title.join(" "));
            if title.is_empty() {
                bail!("a title has words");
            }
            store.rename(&id, &title).await?;
            Ok(0)
        }
        Verb::Delete { ids } => {
            for id in ids {
                let id = find(store, &id, environment).await?;
                store.delete(&id).await?;
                super::say(&format!("deleted {id}"));
            }
            Ok(0)
        }
        Verb::Prune { days, dry_run } => {
            let keep = match days {
                Some(days) => Some(days),
                None => prune::keep_days(environment),
            };
            let pruned = prune::prune(store, environment.now(), &Prune { keep_days: keep, dry: dry_run }).await?;
            let word = if dry_run { "would delete" } else { "deleted" };
            for record in &pruned.gone {
                super::say(&format!("{word} {}", line(record, true)));
            }
            for (id, why) in &pruned.kept {
                super::say(&format!("kept {id}: {why}"));
            }
            super::say(&format!("{word} {}", crate::text::count(pruned.gone.len(), "session")));
            if keep.is_none() {
                super::say("Nothing is too old: neither --days nor the setting sessions.keep_days says when that is.");
            }
            Ok(0)
        }
    }
}

async fn list(store: &Store, environment: &Environment, all: bool, limit: usize, json: bool) -> anyhow::Result<u8> {
    let mut records = records(store, environment, all).await?;
    let more = records.len().saturating_sub(limit);
    records.truncate(limit);
    for record in &records {
        if json {
            terminal::json(&serde_json::to_string(record)?);
        } else {
            super::say(&line(record, all));
        }
    }
    if records.is_empty() && !json {
        super::say(if all {
            "There are no sessions."
        } else {
            "There are no sessions here; --all lists those of every project."
        });
    }
    if more > 0 && !json {
        super::say(&format!("… and {more} more; --limit shows them"));
    }
    Ok(0)
}

/// The sessions of this project or of all, newest first. A session never prompted is none yet.
async fn records(store: &Store, environment: &Environment, all: bool) -> anyhow::Result<Vec<Record>> {
    let root = match all {
        true => None,
        false => Some(Here::read(Path::new("."), environment)?.worktree.root),
    };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(None, after, 1000).await?;
        let here = |record: &Record| root.as_ref().is_none_or(|root| record.cwd.starts_with(root));
        found.extend(page.sessions.into_iter().filter(|record| here(record) && record.updated > record.created));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// A session by its id, a beginning that only one has, or `last`.
async fn find(store: &Store, name: &str, environment: &Environment) -> anyhow::Result<SessionId> {
    let exact = SessionId::new(name);
    if exact.is_well_formed() && store.peek(&exact).await.is_ok() {
        return Ok(exact);
    }
    let records = records(store, environment, name != "last").await?;
    if name == "last" {
        return records.first().map(|record| record.id.clone()).ok_or_else(|| anyhow!("there are no sessions here"));
    }
    let fitting: Vec<&Record> = records.iter().filter(|record| record.id.as_str().starts_with(name)).collect();
    match fitting.as_slice() {
        [one] => Ok(one.id.clone()),
        // A damaged one is in no list; the store says what is wrong with it.
        [] if exact.is_well_formed() => {
            Err(store.peek(&exact).await.err().map_or_else(|| anyhow!("there is no session {name}"), Into::into))
        }
        [] => bail!("there is no session {name}; `adjutant sessions list --all` shows those there are"),
        several => bail!("{} sessions begin with {name}; write more of the id", several.len()),
    }
}

async fn import(store: &Store, environment: &Environment, file: &Path, cwd: Option<&Path>) -> anyhow::Result<u8> {
    let text = input::read(file, LARGEST)?;
    let mut stored = export::json::import(&text)?;
    // What it delegated to is not in the file, nor is who delegated to it.
    stored.record.parent = None;
    stored.record.title = stored.record.title.as_deref().map(crate::session::title::tidy);
    if let Some(cwd) = cwd {
        stored.record.cwd = std::fs::canonicalize(cwd).with_context(|| format!("{} is not there", cwd.display()))?;
    }
    if !stored.record.id.is_well_formed() {
        stored = store::renamed(&stored, environment);
    }
    match store.import(stored.clone()).await {
        Ok(()) => {}
        Err(store::Error::Taken(_)) => {
            stored = store::renamed(&stored, environment);
            store.import(stored.clone()).await?;
        }
        Err(e) => return Err(e.into()),
    }
    super::say(&format!("imported {}", line(&stored.record, true)));
    if !stored.record.cwd.is_dir() {
        let cwd = stored.record.cwd.display();
        super::say(&format!("Its directory {cwd} is not here; --cwd gives it another one."));
    }
    Ok(0)
}

fn line(record: &Record, place: bool) -> String {
    let title = record.title.as_deref().unwrap_or("(no title)");
    let when = day(record.updated);
    let place = if place { format!("  {}", record.cwd.display()) } else { String::new() };
    format!("{}  {when}  {title}{place}", record.id)
}

fn day(at: Timestamp) -> String {
    at.iso().replace('T', " ").get(..16).unwrap_or_default().to_owned()
}

/// Without what is undone.
fn shown(mut stored: Stored) -> Stored {
    stored.messages.truncate(store::visible(&stored.messages, &stored.record.undone));
    stored
}

/// A conversation as Markdown.
fn show(stored: &Stored, children: &[SessionId]) -> String {
    let record = &stored.record;
    let mut out = format!(
        "# {}\n\n{}  {}  {}\n",
        record.title.as_deref().unwrap_or("(no title)"),
        record.id,
        day(record.updated),
        record.cwd.display()
    );
    for damage in &stored.damage {
        out += &format!("\n> {damage}\n");
    }
    for message in &stored.messages {
        let mut text = String::new();
        for part in &message.parts {
            match &part.content {
                Content::Text(words) if !words.synthetic && !words.text.trim().is_empty() => {
                    text += &format!("\n{}\n", words.text.trim());
                }
                Content::Tool(call) => {
                    let state = match &call.state {
                        CallState::Completed(_) => "",
                        CallState::Failed { .. } => " — failed",
                        CallState::Pending | CallState::Running { .. } => " — not ended",
                    };
                    text += &format!("\n- {}{state}\n", call.title);
                }
                Content::File(file) => {
                    text += &format!(
                        "\n(attached: {})\n",
                        file.name.as_deref().or(file.uri.as_deref()).unwrap_or(&file.mime)
                    );
                }
                _ => {}
            }
        }
        match &message.role {
            Role::User(_) if !text.is_empty() => out += &format!("\n## You\n{text}"),
            Role::Assistant(assistant) => {
                if let Some(fault) = &assistant.fault {
                    text += &format!("\n> {}\n", fault.message);
                }
                out += &text;
            }
            Role::User(_) => {}
        }
    }
    for child in children {
        out += &format!("\nDelegated: {child}\n");
    }
    out
}
