//! Diagnostics of language servers for the files that tools change: the errors that a change has
//! introduced, for the model in the result of the call, and for the user with its details. A server
//! is shown the present texts of its open files first, because the user and commands change them
//! too.
//!
//! A call waits for servers before it writes and afterwards, never longer than `BEFORE_TIMEOUT` and
//! `AFTER_TIMEOUT`; longer once, for a server that is starting.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::ToolContext;
use crate::files::disk;
use crate::files::encoding::decode;
use crate::language::{MAX_FILE_BYTES, START_TIMEOUT, peer, servers};
use base::task::spawn_blocking;
use base::text;
use base::text::shared::SharedText;
use lsp::{Diagnostic, LspClient, ReportedDiagnostics, ServerHandle, introduced_errors};
use permission::Action;
use permission::search_filter::SearchFilter;

/// The maximum time that a change waits for the diagnostics before it.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time to wait for the first diagnostics of a server that has just started.
const FIRST_DIAGNOSTICS_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time that a result waits for the diagnostics after the change.
const AFTER_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of errors per file in a result.
const MAX_ERRORS_PER_FILE: usize = 20;
/// The maximum number of files with errors in a result that the call has not changed.
const MAX_OTHER_FILES: usize = 5;
/// The maximum length of a message in a result, in characters.
const MAX_MESSAGE_CHARS: usize = 600;

/// The key of the errors in the metadata of a call.
pub const DIAGNOSTICS_KEY: &str = "diagnostics";

/// A file that is about to change.
#[derive(Debug, Clone)]
pub(super) struct PlannedChange {
    /// The path, with symlinks resolved.
    pub(super) real: PathBuf,
    /// The present text; `None` if the file does not exist.
    pub(super) old: Option<SharedText>,
    /// The new text; `None` if the file is about to be removed.
    pub(super) new: Option<SharedText>,
}

/// The diagnostics before a change, with which those after it are compared.
#[derive(Default)]
pub(super) struct Check {
    servers: Vec<CheckedServer>,
}

/// A server, the files shown to it, and its diagnostics.
struct CheckedServer {
    server: Arc<ServerHandle>,
    files: Vec<PlannedChange>,
    /// Files that the change may concern, with their texts.
    others: BTreeMap<PathBuf, String>,
    /// The diagnostics before the change, by file. Those of a file that is missing are unknown.
    known: BTreeMap<PathBuf, Vec<Diagnostic>>,
}

/// The errors that a change has introduced.
#[derive(Default)]
pub(super) struct LanguageFindings {
    /// The text for the model; may be empty.
    pub(super) text: String,
    /// The errors by file, for the editor.
    pub(super) errors: Map<String, Value>,
}

/// The errors that a change has introduced in a file.
struct Errors {
    /// True if the call has changed this file.
    is_changed: bool,
    /// True if they may be older than the change, because the diagnostics before it are unknown.
    may_be_old: bool,
    all: Vec<Diagnostic>,
}

impl Check {
    /// Collects the diagnostics of the servers for these files before the change.
    pub(super) async fn before(files: Vec<PlannedChange>, context: &ToolContext) -> Self {
        let mut checked: Vec<CheckedServer> = Vec::new();
        for file in files {
            let size = file
                .old
                .as_deref()
                .unwrap_or_default()
                .len()
                .max(file.new.as_deref().unwrap_or_default().len());
            if size > MAX_FILE_BYTES {
                continue;
            }
            for server in servers(&file.real, context).await {
                match checked
                    .iter_mut()
                    .find(|known| Arc::ptr_eq(&known.server, &server))
                {
                    Some(known) => known.files.push(file.clone()),
                    None => checked.push(CheckedServer {
                        server,
                        files: vec![file.clone()],
                        others: BTreeMap::new(),
                        known: BTreeMap::new(),
                    }),
                }
            }
        }
        let all = join_all(
            checked
                .iter_mut()
                .map(|server| server.collect_before(context)),
        );
        tokio::select! {
            _ = all => {}
            () = context.cancelled.cancelled() => {}
        }
        Self { servers: checked }
    }

    /// Collects the diagnostics after the change. `written` has the present texts of the written
    /// files.
    pub(super) async fn after(
        self,
        written: &[(PathBuf, SharedText)],
        context: &ToolContext,
    ) -> LanguageFindings {
        if self.servers.is_empty() {
            return LanguageFindings::default();
        }
        let until = Instant::now() + AFTER_TIMEOUT;
        let all = join_all(
            self.servers
                .iter()
                .map(|server| server.collect_after(written, until, context)),
        );
        let all = tokio::select! {
            all = all => all,
            () = context.cancelled.cancelled() => return LanguageFindings::default(),
        };
        let mut errors: BTreeMap<PathBuf, Errors> = BTreeMap::new();
        let mut notes = Vec::new();
        for (path, found) in all.into_iter().flat_map(|(found, note)| {
            notes.extend(note);
            found
        }) {
            match errors.get_mut(&path) {
                Some(known) => {
                    let fresh = found
                        .all
                        .into_iter()
                        .filter(|error| !known.all.contains(error))
                        .collect::<Vec<_>>();
                    known.all.extend(fresh);
                    known.may_be_old |= found.may_be_old;
                }
                None => drop(errors.insert(path, found)),
            }
        }
        findings(errors, notes, context)
    }
}

impl CheckedServer {
    /// Asks the server for the diagnostics before the change.
    async fn collect_before(&mut self, context: &ToolContext) {
        let Ok(peer) = peer(&self.server, Instant::now() + START_TIMEOUT, context).await else {
            return;
        };
        let warm = peer.is_warm();
        let until = Instant::now()
            + if warm {
                BEFORE_TIMEOUT
            } else {
                FIRST_DIAGNOSTICS_TIMEOUT
            };
        refresh(&peer, context).await;
        let there: Vec<PathBuf> = self
            .files
            .iter()
            .filter(|file| file.old.is_some())
            .map(|file| file.real.clone())
            .collect();
        for file in &self.files {
            if let Some(old) = &file.old {
                peer.show(&file.real, old);
            }
        }
        for file in &self.files {
            let Some(old) = &file.old else { continue };
            if !warm {
                // While tsserver loads a project, it does not find uses in other files.
                peer.wait_until_analysed(&file.real, until).await;
            }
            let concerned = peer
                .affected_files(&file.real, old, file.new.as_deref(), until)
                .await;
            let wanted: Vec<PathBuf> = concerned
                .into_iter()
                .filter(|path| !there.contains(path))
                .collect();
            self.others.extend(readable_texts(wanted, context).await);
        }
        for (path, text) in &self.others {
            peer.show(path, text);
        }
        self.known = peer.published();
        let others: Vec<PathBuf> = self.others.keys().cloned().collect();
        for ReportedDiagnostics { path, all } in peer.diagnose(&there, &others, until).await {
            match all {
                Some(all) => drop(self.known.insert(path, all)),
                None => drop(self.known.remove(&path)),
            }
        }
    }

    /// Asks the server for the diagnostics after the change. Returns the introduced errors by file,
    /// and a note for the model if the server did not report in time.
    async fn collect_after(
        &self,
        written: &[(PathBuf, SharedText)],
        until: Instant,
        context: &ToolContext,
    ) -> (Vec<(PathBuf, Errors)>, Option<String>) {
        let Ok(peer) = peer(&self.server, until, context).await else {
            return (Vec::new(), None);
        };
        let mut first = Vec::new();
        let mut news = Vec::new();
        for file in &self.files {
            match written.iter().find(|(path, _)| *path == file.real) {
                Some((path, now)) => {
                    peer.show(path, now);
                    first.push(path.clone());
                    news.push((path.clone(), if file.old.is_some() { 2 } else { 1 }));
                }
                None if file.new.is_none() => news.push((file.real.clone(), 3)),
                None => {}
            }
        }
        peer.changed(&news);
        let others: Vec<PathBuf> = self.others.keys().cloned().collect();
        let mut reported = peer.diagnose(&first, &others, until).await;
        let silent = reported
            .iter()
            .any(|reported| reported.all.is_none() && first.contains(&reported.path));
        // Published diagnostics of further files.
        let more = peer
            .published()
            .into_iter()
            .filter(|(path, _)| !first.contains(path) && !others.contains(path));
        reported.extend(more.map(|(path, all)| ReportedDiagnostics {
            path,
            all: Some(all),
        }));
        let mut found = Vec::new();
        for ReportedDiagnostics { path, all } in reported {
            let Some(all) = all else { continue };
            let file = self.files.iter().find(|file| file.real == path);
            let old = file.map_or(Some(""), |file| file.old.as_deref());
            let now = written
                .iter()
                .find(|(written, _)| *written == path)
                .map_or("", |(_, now)| now.as_str());
            let known = self.known.get(&path);
            let may_be_old = file.is_some() && old.is_some() && known.is_none();
            // Without diagnostics from before the change, new errors of another file cannot be
            // distinguished from old ones.
            if file.is_none() && known.is_none() && self.others.contains_key(&path) {
                continue;
            }
            let before = known.map(Vec::as_slice).unwrap_or_default();
            let all = match file {
                Some(_) => introduced_errors(before, &all, old.unwrap_or_default(), now),
                None => introduced_errors(before, &all, "", ""),
            };
            if !all.is_empty() {
                found.push((
                    path,
                    Errors {
                        is_changed: file.is_some(),
                        may_be_old,
                        all,
                    },
                ));
            }
        }
        let name = self.server.name();
        let note = silent.then(|| format!("The language server {name} did not report in time."));
        (
            found,
            note.filter(|note| context.session.language.record_notice(note)),
        )
    }
}

/// Sends the present texts of the open files to a server, since the user and commands change them
/// too.
pub(super) async fn refresh(peer: &LspClient, context: &ToolContext) {
    let open = peer.open();
    let paths = open.iter().map(|(path, _)| path.clone()).collect();
    let now = readable_texts(paths, context).await;
    let mut gone = Vec::new();
    for (path, _) in open {
        match now.get(&path) {
            Some(text) => drop(peer.show(&path, text)),
            None => gone.push((path, 3)),
        }
    }
    peer.changed(&gone);
}

/// Returns the texts, by path, of those files that are in the project, that the agent may read, and
/// that are text of at most [`MAX_FILE_BYTES`].
pub(super) async fn readable_texts(
    paths: Vec<PathBuf>,
    context: &ToolContext,
) -> BTreeMap<PathBuf, String> {
    if paths.is_empty() {
        return BTreeMap::new();
    }
    let filter = SearchFilter::new(&context.policy);
    let tree = context.project.worktree.clone();
    let hints = context.encoding_hints();
    let read = move |path: PathBuf| {
        let small = std::fs::metadata(&path).is_ok_and(|data| data.len() <= MAX_FILE_BYTES as u64);
        if !small || !tree.contains(&path) || filter.judge(&path) != Action::Allow {
            return None;
        }
        let text = decode(disk::read(&path).ok()?, || hints.of(&path))
            .ok()?
            .text;
        let text = text
            .strip_prefix('\u{feff}')
            .map(str::to_owned)
            .unwrap_or(text);
        Some((path, text))
    };
    spawn_blocking(move || paths.into_iter().filter_map(read).collect())
        .await
        .unwrap_or_default()
}

/// Builds the text for the model and the facts for the editor.
fn findings(
    errors: BTreeMap<PathBuf, Errors>,
    notes: Vec<String>,
    context: &ToolContext,
) -> LanguageFindings {
    let mut found = LanguageFindings::default();
    let (changed, others): (Vec<_>, Vec<_>) = errors
        .into_iter()
        .partition(|(_, errors)| errors.is_changed);
    let may_be_old = changed.iter().any(|(_, errors)| errors.may_be_old);
    if !changed.is_empty() {
        let before = if may_be_old {
            " (they may have been there before)"
        } else {
            ""
        };
        let which = if changed.len() == 1 {
            "this file"
        } else {
            "these files"
        };
        let _ = write!(
            found.text,
            "\n\nThe language server reports errors in {which}{before}:"
        );
    }
    for (path, errors) in &changed {
        found
            .text
            .push_str(&block(&context.relative(path), &errors.all));
    }
    if !others.is_empty() {
        found
            .text
            .push_str("\n\nErrors that this change causes in other files:");
    }
    for (path, errors) in others.iter().take(MAX_OTHER_FILES) {
        found
            .text
            .push_str(&block(&context.relative(path), &errors.all));
    }
    if others.len() > MAX_OTHER_FILES {
        let _ = write!(
            found.text,
            "\n... and in {}",
            text::count(others.len() - MAX_OTHER_FILES, "more file")
        );
    }
    for note in notes {
        let _ = write!(found.text, "\n\n{note}");
    }
    let shown = changed.iter().chain(others.iter().take(MAX_OTHER_FILES));
    found.errors = shown
        .map(|(path, errors)| {
            let all = errors
                .all
                .iter()
                .take(MAX_ERRORS_PER_FILE)
                .map(Diagnostic::to_json)
                .collect();
            (path.display().to_string(), Value::Array(all))
        })
        .collect();
    found
}

/// Returns the errors of a file as a block of text for the model.
fn block(name: &str, errors: &[Diagnostic]) -> String {
    let mut text = format!("\n<diagnostics file=\"{}\">\n", text::escaped(name));
    for error in errors.iter().take(MAX_ERRORS_PER_FILE) {
        let _ = writeln!(text, "ERROR {}", position_and_message(error));
    }
    if errors.len() > MAX_ERRORS_PER_FILE {
        let _ = writeln!(text, "... and {} more", errors.len() - MAX_ERRORS_PER_FILE);
    }
    text.push_str("</diagnostics>");
    text
}

/// Returns the position and the message of a diagnostic in one line that cannot end a block.
pub(super) fn position_and_message(diagnostic: &Diagnostic) -> String {
    let message: Vec<&str> = diagnostic
        .message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let message = text::cut_chars(&text::escaped(&message.join("; ")), MAX_MESSAGE_CHARS)
        .replace("</", "< /");
    let start = diagnostic.range.start;
    format!("[{}:{}] {message}", start.line + 1, start.character + 1)
}

impl LanguageFindings {
    /// Adds the findings to the result of a call.
    pub(super) fn join(self, output: &mut crate::ToolOutput) {
        output.text.push_str(&self.text);
        if !self.errors.is_empty() {
            output
                .metadata
                .insert(DIAGNOSTICS_KEY.into(), Value::Object(self.errors));
        }
    }
}
