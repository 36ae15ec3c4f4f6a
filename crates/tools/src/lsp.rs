//! `lsp`: queries a file's language server and renames symbols; offered only if language servers
//! are enabled.
//!
//! Limits: 100 locations, 20 seconds.
//!
//! Queries are about a position, a file or the project, and results come with source lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::aliases::{Aliases, PATH_FIELDS};
use crate::edits::apply_patch;
use crate::edits::document::target;
use crate::files::buffer::{choose, is_misread};
use crate::files::disk;
use crate::files::encoding::{DecodedText, decode};
use crate::files::loaded_instructions::TouchedPath;
use crate::files::path::{Access, ResolvedPath};
use crate::files::read_tracker::TextFingerprint;
use crate::files::search::resolve_or_suggest;
use crate::{
    Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput,
    diagnostics, language,
};
use base::text;
use events::{Location, ToolKind};
use lsp::{
    Diagnostic, FileRange, LspClient, Navigation, Position, ReportedDiagnostics, Symbol, TextEdit,
    Units,
};
use permission::AccessRequest;

/// The maximum duration of a call, including the start of a server.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum time for a server to analyse a file before the query.
const ANALYSIS_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of positions, functions or diagnostics in a result.
const MAX_POSITIONS: usize = 100;
/// The maximum number of declarations of the project in a result, for each server.
const MAX_DECLARATIONS: usize = 10;
/// The maximum number of characters of a source line in a result.
const MAX_LINE_CHARS: usize = 200;
/// The maximum number of declarations of a file in a result.
const MAX_FILE_DECLARATIONS: usize = 500;
/// The maximum number of calls that are shown for each function.
const MAX_CALLS_SHOWN: usize = 5;
/// The number of lines shown of a definition.
const DEFINITION_LINES: u32 = 12;
/// The maximum size of a hover text, in bytes.
const MAX_HOVER_BYTES: usize = 8 << 10;

#[derive(Default)]
pub struct LspTool;

/// A kind of query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    #[serde(alias = "definition")]
    GoToDefinition,
    #[serde(alias = "references")]
    FindReferences,
    Hover,
    #[serde(alias = "documentSymbols")]
    DocumentSymbol,
    #[serde(alias = "workspaceSymbols")]
    WorkspaceSymbol,
    #[serde(alias = "implementation", alias = "implementations")]
    GoToImplementation,
    #[serde(alias = "prepareCallHierarchy", alias = "callers")]
    IncomingCalls,
    #[serde(alias = "callees")]
    OutgoingCalls,
    Diagnostics,
    Rename,
}

/// The arguments of the tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    pub operation: Operation,
    /// Without it, diagnostics are those of all known files
    pub file_path: Option<String>,
    pub line: Option<u32>,
    pub character: Option<u32>,
    /// The name on that line, in place of character
    pub symbol: Option<String>,
    /// Name that workspaceSymbol looks for
    pub query: Option<String>,
    /// For rename
    pub new_name: Option<String>,
}

/// A checked query, or a rename with its changes.
pub enum Ready {
    Query(Box<(Input, Option<ResolvedPath>)>),
    Rename(apply_patch::Ready),
}

impl Tool for LspTool {
    const NAME: &'static str = "lsp";
    const DESCRIPTION: &'static str = include_str!("lsp.md");
    const KIND: ToolKind = ToolKind::Search;
    const CONCURRENT: bool = false;
    const AVAILABILITY: Availability = Availability::PerStep;
    const PERMISSION_KEY: Option<PermissionKey> =
        Some(PermissionKey::reading("Querying a language server."));
    const ALIASES: Aliases = Aliases {
        tool_names: &["languageserver", "codeintelligence"],
        field_values: &[],
        fields: &[
            ("filePath", PATH_FIELDS),
            ("operation", &["action", "command", "method", "op"]),
            ("line", &["lineno", "linenumber", "row"]),
            ("character", &["column", "col", "char"]),
            ("symbol", &["name", "identifier", "symbolname"]),
            ("query", &["search"]),
            ("newName", &["renameto", "to"]),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    /// Returns whether the call may run in parallel; a rename may not, because it writes files.
    fn is_concurrent(input: &Input, _: &ToolContext) -> bool {
        input.operation != Operation::Rename
    }

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let path = input
            .file_path
            .as_deref()
            .map(|path| context.absolute(path));
        let location = path
            .as_ref()
            .map(|path| context.relative(path))
            .unwrap_or_default();
        let line = input
            .line
            .map(|line| format!(":{line}"))
            .unwrap_or_default();
        let (what, of) = match input.operation {
            Operation::GoToDefinition => ("Definition at", None),
            Operation::FindReferences => ("References of", None),
            Operation::Hover => ("Hover at", None),
            Operation::DocumentSymbol => ("Symbols of", None),
            Operation::WorkspaceSymbol => ("Symbols named", input.query.as_deref()),
            Operation::GoToImplementation => ("Implementations of", None),
            Operation::IncomingCalls => ("Calls of", None),
            Operation::OutgoingCalls => ("Calls from", None),
            Operation::Diagnostics if path.is_none() => ("Diagnostics of", Some("the project")),
            Operation::Diagnostics => ("Diagnostics of", None),
            Operation::Rename => ("Rename to", input.new_name.as_deref()),
        };
        let of = of.map_or_else(|| format!("{location}{line}"), str::to_owned);
        let locations = path
            .map(|path| Location {
                path: base::worktree::normal(&path),
                line: input.line,
            })
            .into_iter()
            .collect();
        CallDescription {
            title: text::title(&format!("{what} {of}")),
            locations,
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let mut requests = vec![AccessRequest::new(Self::NAME, "*").always("*")];
        let resolved_path = match &input.file_path {
            Some(path) => Some(resolve_or_suggest(context, path, Access::Read).await?),
            None => None,
        };
        requests.extend(
            resolved_path
                .iter()
                .flat_map(|resolved_path| resolved_path.real.requests(Access::Read)),
        );
        if input.operation != Operation::Rename {
            return Ok((requests, Ready::Query(Box::new((input, resolved_path)))));
        }
        let ready = prepare_rename(&input, resolved_path, context).await?;
        requests.extend(ready.requests());
        Ok((requests, Ready::Rename(ready)))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let (input, resolved_path) = match ready {
            Ready::Rename(ready) => return ready.apply(&context).await,
            Ready::Query(query) => *query,
        };
        let touched = resolved_path
            .iter()
            .map(|resolved_path| TouchedPath::File(resolved_path.path.clone()));
        let touched = touched.collect();
        tokio::select! {
            text = answer(&input, resolved_path, &context) => Ok(ToolOutput { touched, ..ToolOutput::text(text?) }),
            () = context.cancelled.cancelled() => Err(Failure::Cancelled),
        }
    }
}

/// Answers a query, as text for the model.
async fn answer(
    input: &Input,
    resolved_path: Option<ResolvedPath>,
    context: &ToolContext,
) -> Result<String, Failure> {
    let until = Instant::now() + CALL_TIMEOUT;
    match (input.operation, resolved_path) {
        (Operation::WorkspaceSymbol, resolved_path) => {
            find_declarations(input, resolved_path, until, context).await
        }
        (Operation::Diagnostics, None) => all_diagnostics(until, context).await,
        (_, None) => Err(Failure::for_model(
            "filePath is missing: the file to query.",
        )),
        (Operation::DocumentSymbol, Some(resolved_path)) => {
            let (peers, _) = ready_servers(&resolved_path, until, context).await?;
            let all =
                first_answer(&peers, |peer| peer.symbols(&resolved_path.real.path, until)).await?;
            Ok(outline(&all, &resolved_path))
        }
        (Operation::Diagnostics, Some(resolved_path)) => {
            let (peers, _) = ready_servers(&resolved_path, until, context).await?;
            let file = [resolved_path.real.path.clone()];
            let reported = futures_util::future::join_all(
                peers.iter().map(|peer| peer.diagnose(&file, &[], until)),
            )
            .await;
            let reported: Vec<ReportedDiagnostics> = reported.into_iter().flatten().collect();
            if reported.iter().all(|reported| reported.all.is_none()) {
                return Err(Failure::ForModel(format!(
                    "The language server did not report on {} in time.",
                    resolved_path.shown
                )));
            }
            Ok(list_diagnostics(reported, context)
                .unwrap_or_else(|| format!("No errors in {}.", resolved_path.shown)))
        }
        (operation, Some(resolved_path)) => {
            answer_at_position(operation, input, &resolved_path, until, context).await
        }
    }
}

/// Returns the working servers of a file, after they have received its present text, and that text.
async fn ready_servers(
    resolved_path: &ResolvedPath,
    until: Instant,
    context: &ToolContext,
) -> Result<(Vec<Arc<LspClient>>, String), Failure> {
    let refused =
        |e: disk::Error| Failure::ForModel(format!("Cannot read {}: {e}.", resolved_path.shown));
    let bytes = disk::read(&resolved_path.real.path).map_err(refused)?;
    let hint = || context.encoding_hints().of(&resolved_path.real.path);
    let DecodedText {
        text: saved,
        source,
    } = decode(bytes, hint).map_err(|_| language::no_server(&resolved_path.shown))?;
    let known = context.session.seen.known(&resolved_path.real.path);
    let text = match context
        .read_buffer(&resolved_path.path)
        .await
        .filter(|text| !text.is_empty())
        .filter(|text| !is_misread(text, source.as_deref(), Some(TextFingerprint::of(&saved))))
    {
        Some(buffer) => choose(buffer, saved, known.as_ref()),
        None => saved,
    };
    let mut peers = Vec::new();
    let mut why = Vec::new();
    for server in language::servers(&resolved_path.real.path, context).await {
        match language::peer(&server, until, context).await {
            Ok(peer) => {
                diagnostics::refresh(&peer, context).await;
                if peer.show(&resolved_path.real.path, &text) {
                    peer.wait_until_analysed(
                        &resolved_path.real.path,
                        until.min(Instant::now() + ANALYSIS_TIMEOUT),
                    )
                    .await;
                }
                peer.wait_until_idle(until).await;
                peers.push(peer);
            }
            Err(failed) => why.push(failed),
        }
    }
    match (peers.is_empty(), why.is_empty()) {
        (false, _) => Ok((peers, text)),
        (true, true) => Err(language::no_server(&resolved_path.shown)),
        (true, false) => Err(Failure::ForModel(format!(
            "The language server cannot be asked: {}.",
            why.join("; ")
        ))),
    }
}

/// Returns the first answer that is not empty; none if every answer is. If no server has answered,
/// the first error.
async fn first_answer<'p, T, F: Future<Output = Result<Vec<T>, String>>>(
    peers: &'p [Arc<LspClient>],
    request: impl Fn(&'p LspClient) -> F,
) -> Result<Vec<T>, Failure> {
    let mut failed = None;
    let mut answered = false;
    for peer in peers {
        match request(peer).await {
            Ok(all) if !all.is_empty() => return Ok(all),
            Ok(_) => answered = true,
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    match failed {
        Some(why) if !answered => Err(Failure::ForModel(format!(
            "The language server has no answer: {why}."
        ))),
        _ => Ok(Vec::new()),
    }
}

/// Converts the requested position to the server's units.
fn position(input: &Input, text: &str, peer: &LspClient, shown: &str) -> Result<Position, Failure> {
    let Some(line) = input.line.filter(|line| *line > 0) else {
        return Err(Failure::for_model(
            "line is missing: lines count from 1, as read shows them.",
        ));
    };
    let lines = text.lines().count();
    let Some(whole) = text
        .lines()
        .nth(usize::try_from(line - 1).unwrap_or(usize::MAX))
    else {
        return Err(Failure::ForModel(format!(
            "{shown} has only {}.",
            text::count(lines, "line")
        )));
    };
    let letter = match (&input.symbol, input.character) {
        (Some(symbol), _) => {
            let Some(at) = find_name(whole, symbol) else {
                let there = text::cut_chars(&text::escaped(whole.trim()), MAX_LINE_CHARS);
                return Err(Failure::ForModel(format!(
                    "Line {line} of {shown} has no {}: {there}",
                    text::title(symbol)
                )));
            };
            whole[..at].chars().count()
        }
        (None, Some(character)) => usize::try_from(character.max(1) - 1).unwrap_or(usize::MAX),
        // The default is the first name in the line.
        (None, None) => whole.chars().take_while(|c| c.is_whitespace()).count(),
    };
    Ok(Position {
        line: line - 1,
        character: peer.units().column(whole, letter),
    })
}

/// Returns the byte offset of a name in a line, preferably as a whole word.
fn find_name(line: &str, name: &str) -> Option<usize> {
    let alone = |at: &usize| {
        !is_name_part(line[..*at].chars().next_back())
            && !is_name_part(line[at + name.len()..].chars().next())
    };
    if name.is_empty() {
        return None;
    }
    line.match_indices(name)
        .map(|(at, _)| at)
        .find(alone)
        .or_else(|| line.find(name))
}

/// Returns whether a character can be part of a name.
fn is_name_part(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Answers a query about a position in a file.
async fn answer_at_position(
    operation: Operation,
    input: &Input,
    resolved_path: &ResolvedPath,
    until: Instant,
    context: &ToolContext,
) -> Result<String, Failure> {
    let (peers, text) = ready_servers(resolved_path, until, context).await?;
    let path = resolved_path.real.path.as_path();
    let at = |peer: &LspClient| position(input, &text, peer, &resolved_path.shown);
    // A wrong position is reported before any server is asked.
    peers.first().map(|peer| at(peer)).transpose()?;
    let at = |peer: &LspClient| at(peer).map_err(|e| e.to_string());
    let places = |what: Navigation| {
        first_answer(&peers, move |peer| {
            let position = at(peer);
            async move { peer.places(what, path, position?, until).await }
        })
    };
    match operation {
        Operation::Hover => {
            let request = |peer| {
                let position = at(peer);
                async move {
                    let hover = peer.hover(path, position?, until).await?;
                    Ok(Vec::from_iter(
                        Some(hover).filter(|hover| !hover.trim().is_empty()),
                    ))
                }
            };
            let hover = first_answer(&peers, request).await?.pop();
            let hover = hover.map(|hover| {
                text::head(text::visible(hover.trim()).0.as_str(), MAX_HOVER_BYTES).to_owned()
            });
            Ok(hover
                .unwrap_or_else(|| "The language server knows nothing about this place.".into()))
        }
        Operation::GoToDefinition => Ok(shown(
            places(Navigation::Definition).await?,
            DEFINITION_LINES,
            context,
        )
        .await),
        Operation::GoToImplementation => {
            Ok(shown(places(Navigation::Implementation).await?, 1, context).await)
        }
        Operation::FindReferences => {
            Ok(shown(places(Navigation::References).await?, 1, context).await)
        }
        _ => {
            let incoming = operation == Operation::IncomingCalls;
            let request = |peer| {
                let position = at(peer);
                async move { peer.calls(incoming, path, position?, until).await }
            };
            let all = first_answer(&peers, request).await?;
            Ok(calls(all, incoming, path, context).await)
        }
    }
}

/// Shows ranges with their source lines, sorted by file; `lines` is the number of lines for each.
async fn shown(mut places: Vec<FileRange>, lines: u32, context: &ToolContext) -> String {
    if places.is_empty() {
        return "No results.".into();
    }
    places.sort_by(|a, b| (&a.path, a.range.start).cmp(&(&b.path, b.range.start)));
    places.dedup();
    let total = places.len();
    places.truncate(MAX_POSITIONS);
    let files: BTreeSet<PathBuf> = places.iter().map(|range| range.path.clone()).collect();
    let texts = diagnostics::readable_texts(files.into_iter().collect(), context).await;
    let mut out = String::new();
    for range in &places {
        let name = text::escaped(&context.relative(&range.path));
        let start = range.range.start;
        let _ = write!(out, "{name}:{}:{}", start.line + 1, start.character + 1);
        let Some(text) = texts.get(&range.path) else {
            out.push('\n');
            continue;
        };
        let line = |n: u32| text.lines().nth(usize::try_from(n).unwrap_or(usize::MAX));
        let cut = |line: &str| text::cut_chars(&text::visible(line.trim_end()).0, MAX_LINE_CHARS);
        if lines == 1 {
            let _ = writeln!(
                out,
                ": {}",
                cut(line(start.line).unwrap_or_default()).trim_start()
            );
            continue;
        }
        out.push('\n');
        for n in start.line..start.line + lines {
            let Some(line) = line(n) else { break };
            let _ = writeln!(out, "{}: {}", n + 1, cut(line));
        }
    }
    if total > places.len() {
        let _ = writeln!(out, "... and {} more", total - places.len());
    }
    out.trim_end().to_owned()
}

/// Lists the callers or the called functions, each with the lines of the calls.
async fn calls(
    all: Vec<(Symbol, Vec<lsp::Range>)>,
    incoming: bool,
    asked: &Path,
    context: &ToolContext,
) -> String {
    if all.is_empty() {
        return "No calls were found.".into();
    }
    let mut out = String::new();
    for (symbol, ranges) in all.iter().take(MAX_POSITIONS) {
        let own = symbol.path.as_deref().unwrap_or(asked);
        let kind = symbol.kind();
        let name = text::title(&symbol.name);
        let own_path = text::escaped(&context.relative(own));
        let _ = writeln!(
            out,
            "{kind} {name} ({own_path}:{})",
            symbol.selection.start.line + 1
        );
        let file = if incoming { own } else { asked };
        let places = ranges
            .iter()
            .take(MAX_CALLS_SHOWN)
            .map(|range| FileRange {
                path: file.to_owned(),
                range: *range,
            })
            .collect();
        for line in shown(places, 1, context).await.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    out.trim_end().to_owned()
}

/// Lists the declarations of a file, one per line.
fn outline(all: &[Symbol], resolved_path: &ResolvedPath) -> String {
    if all.is_empty() {
        return format!("{} declares nothing.", resolved_path.shown);
    }
    let line = |symbol: &Symbol| {
        let first = symbol.range.start.line + 1;
        let last = symbol.range.end.line + 1;
        let lines = if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        };
        format!(
            "{}{} {} ({lines})",
            "  ".repeat(symbol.depth.min(8)),
            symbol.kind(),
            text::title(&symbol.name)
        )
    };
    let shown = all.iter().take(MAX_FILE_DECLARATIONS);
    let mut lines: Vec<String> = shown.map(line).collect();
    if all.len() > MAX_FILE_DECLARATIONS {
        lines.push(format!(
            "... and {} more",
            all.len() - MAX_FILE_DECLARATIONS
        ));
    }
    lines.join("\n")
}

/// Lists the declarations of the project that match the query.
async fn find_declarations(
    input: &Input,
    resolved_path: Option<ResolvedPath>,
    until: Instant,
    context: &ToolContext,
) -> Result<String, Failure> {
    /// The shown symbol kinds of the protocol: class, method, enum, interface, function, variable,
    /// constant, struct.
    const KINDS: [u8; 8] = [5, 6, 10, 11, 12, 13, 14, 23];
    let query = input
        .query
        .as_deref()
        .or(input.symbol.as_deref())
        .unwrap_or_default();
    let mut peers = Vec::new();
    if let Some(resolved_path) =
        resolved_path.filter(|resolved_path| resolved_path.real.path.is_file())
    {
        peers = ready_servers(&resolved_path, until, context).await?.0;
    } else {
        for server in context.session.language.used_servers() {
            peers.extend(server.peer(until).await.ok());
        }
    }
    if peers.is_empty() {
        return Err(Failure::for_model(
            "No language server runs yet: name any file of the language in filePath.",
        ));
    }
    let mut out = Vec::new();
    for peer in &peers {
        let Ok(all) = peer.find(query, until).await else {
            continue;
        };
        let wanted: Vec<Symbol> = all
            .into_iter()
            .filter(|symbol| KINDS.contains(&symbol.kind))
            .collect();
        for symbol in wanted.iter().take(MAX_DECLARATIONS) {
            let Some(path) = symbol.path.clone() else {
                continue;
            };
            let container = if symbol.container.is_empty() {
                String::new()
            } else {
                format!(" in {}", symbol.container)
            };
            let line = shown(
                vec![FileRange {
                    path,
                    range: symbol.selection,
                }],
                1,
                context,
            )
            .await;
            out.push(format!(
                "{} {}{}\n  {line}",
                symbol.kind(),
                text::title(&symbol.name),
                text::escaped(&container)
            ));
        }
        if wanted.len() > MAX_DECLARATIONS {
            out.push(format!("... and {} more", wanted.len() - MAX_DECLARATIONS));
        }
    }
    Ok(if out.is_empty() {
        format!("Nothing is declared under \"{}\".", text::title(query))
    } else {
        out.join("\n")
    })
}

/// Lists the known diagnostics of all files.
async fn all_diagnostics(until: Instant, context: &ToolContext) -> Result<String, Failure> {
    let servers = context.session.language.used_servers();
    if servers.is_empty() {
        return Err(Failure::for_model(
            "No language server runs yet: name a file in filePath.",
        ));
    }
    let mut reported = Vec::new();
    let mut looked = BTreeSet::new();
    for server in servers {
        let Ok(peer) = language::peer(&server, until, context).await else {
            continue;
        };
        diagnostics::refresh(&peer, context).await;
        let open: Vec<PathBuf> = peer.open().into_iter().map(|(path, _)| path).collect();
        reported.extend(peer.diagnose(&open, &[], until).await);
        looked.extend(open);
        let reports = peer.workspace_diagnostics(until).await.unwrap_or_default();
        let pushed = peer
            .published()
            .into_iter()
            .map(|(path, all)| ReportedDiagnostics {
                path,
                all: Some(all),
            });
        let more: Vec<ReportedDiagnostics> = reports
            .into_iter()
            .chain(pushed)
            .filter(|reported| !looked.contains(&reported.path))
            .collect();
        looked.extend(more.iter().map(|reported| reported.path.clone()));
        reported.extend(more);
    }
    let seen = text::count(looked.len(), "file");
    Ok(list_diagnostics(reported, context).map_or_else(
        || format!("No errors in the {seen} that the language servers have checked."),
        |found| format!("{found}\n({seen} looked at)"),
    ))
}

/// Lists the errors and warnings by file, errors first; `None` if there are none.
fn list_diagnostics(reported: Vec<ReportedDiagnostics>, context: &ToolContext) -> Option<String> {
    let mut files: BTreeMap<PathBuf, Vec<Diagnostic>> = BTreeMap::new();
    for ReportedDiagnostics { path, all } in reported {
        let known = files.entry(path).or_default();
        for diagnostic in all
            .unwrap_or_default()
            .into_iter()
            .filter(|diagnostic| diagnostic.severity <= 2)
        {
            if !known.contains(&diagnostic) {
                known.push(diagnostic);
            }
        }
    }
    let mut out = Vec::new();
    let mut left = MAX_POSITIONS;
    for (path, mut all) in files.into_iter().filter(|(_, all)| !all.is_empty()) {
        all.sort_by_key(|diagnostic| (diagnostic.severity, diagnostic.range.start));
        let total = all.len();
        all.truncate(left);
        left -= all.len();
        let name = text::escaped(&context.relative(&path));
        out.push(format!("<diagnostics file=\"{name}\">"));
        let severity = |diagnostic: &Diagnostic| {
            if diagnostic.is_error() {
                "ERROR"
            } else {
                "WARNING"
            }
        };
        out.extend(all.iter().map(|one| {
            format!(
                "{} {}",
                severity(one),
                diagnostics::position_and_message(one)
            )
        }));
        if total > all.len() {
            out.push(format!("... and {} more", total - all.len()));
        }
        out.push("</diagnostics>".into());
    }
    (!out.is_empty()).then(|| out.join("\n"))
}

/// Computes the changes of a rename, to be judged and shown like any edit.
async fn prepare_rename(
    input: &Input,
    resolved_path: Option<ResolvedPath>,
    context: &ToolContext,
) -> Result<apply_patch::Ready, Failure> {
    let Some(resolved_path) = resolved_path else {
        return Err(Failure::for_model(
            "filePath is missing: the file that contains the name.",
        ));
    };
    let Some(name) = input
        .new_name
        .as_deref()
        .map(str::trim)
        .filter(|name| !name.is_empty())
    else {
        return Err(Failure::for_model("newName is missing."));
    };
    let until = Instant::now() + CALL_TIMEOUT;
    let (peers, text) = ready_servers(&resolved_path, until, context).await?;
    let path = resolved_path.real.path.as_path();
    let all = first_answer(&peers, |peer| {
        let at = position(input, &text, peer, &resolved_path.shown).map_err(|e| e.to_string());
        async move {
            let edits = peer.rename(path, at?, name, until).await?;
            Ok(edits
                .into_iter()
                .map(|(path, edits)| (path, edits, peer.units()))
                .collect())
        }
    });
    let all: Vec<(PathBuf, Vec<TextEdit>, Units)> = all.await?;
    if all.iter().all(|(_, edits, _)| edits.is_empty()) {
        return Err(Failure::for_model(
            "There is nothing to rename at this place.",
        ));
    }
    let mut replaced = Vec::new();
    for (path, edits, units) in all {
        let mut document = target(context, &path.display().to_string()).await?;
        if !document.exists {
            return Err(document.missing(context).await);
        }
        document.check_quoted(context)?;
        let new = units.edited(&document.text, &edits);
        let new = new.map_err(|why| {
            Failure::ForModel(format!(
                "The server's answer for {} cannot be used: {why}.",
                document.path.shown
            ))
        })?;
        if document.text != *new {
            replaced.push((document, new));
        }
    }
    if replaced.is_empty() {
        return Err(Failure::ForModel(format!(
            "It is called {} already.",
            text::title(name)
        )));
    }
    apply_patch::Ready::of(replaced)
}
