//! The references in a prompt: `@name` names a subagent to use; `@path` and the links of a client
//! name files and directories, which are read as the model would read them; the address of a
//! resource of an MCP server is read from the server.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;
use serde_json::json;

use crate::turn::insert::{self, PromptDraft};
use crate::turn::request::accepts;
use crate::turn::{TurnContext, step_context, tool_context};
use base::text::mark::tagged;
use base::text::mention::{LineRange, Mention, decoded, lines_of, mentions, with_lines};
use base::text::nearest;
use base::worktree::normal;
use events::{Event, Severity};
use mcp::resource::NamedResource;
use pictures::{self, Prepared};
use project::agent::Agents;
use prompts::CONTENTS_OF;
use providers::Model;
use tools::files::encoding::{EncodingHint, NotText, decode};
use tools::files::pdf;
use tools::files::read::attachment_mime_type;
use tools::files::search::walker;
use transcript::{Content, File, Text, attached};

/// The files that a prompt may attach. The model reads further ones itself if it needs them.
const MAX_FILES: usize = 20;
/// The bytes of text that the attached files may have.
const MAX_TEXT_BYTES: usize = 200_000;

/// The number of names without a file or an agent that are reported for a prompt.
const MAX_UNKNOWN: usize = 3;
/// The number of files in a directory among which a similar name is searched.
const MAX_SIBLINGS: usize = 2_000;

/// The number of files and directories among which a file of the same name is searched.
const MAX_WALKED: usize = 2_000;

/// The number of readings of names after an `@` that are looked up on the disk.
const MAX_LOOKUPS: usize = 4_000;
/// The number of readings that listing a directory counts as.
const LISTING_LOOKUPS: usize = 100;

/// The names that a mention may refer to.
#[derive(Clone, Copy)]
pub struct MentionContext<'a> {
    pub agents: &'a Agents,
    /// The directory of the session, in which paths begin.
    pub cwd: &'a Path,
    /// The root of the project.
    pub root: &'a Path,
    pub home: Option<&'a Path>,
}

impl<'a> MentionContext<'a> {
    fn of(turn: &'a TurnContext) -> Self {
        Self {
            agents: &turn.project.agents,
            cwd: &turn.project.context.cwd,
            root: &turn.project.context.worktree.root,
            home: turn.session.common.environment.home.as_deref(),
        }
    }
}

/// Adds the subagents that a prompt names, and a note that asks the model to use them. `filled` is
/// the text of a command in the prompt.
pub fn named(mut content: Vec<Content>, filled: Option<&str>, agents: &Agents) -> Vec<Content> {
    let known = |name: &str| agents.get(name).is_some_and(|agent| agent.is_subagent());
    let mut names: Vec<String> = Vec::new();
    for text in content.iter().filter_map(typed).chain(filled) {
        for name in mentions(text)
            .into_iter()
            .filter_map(|mention| named_by(mention, known))
        {
            if !names.iter().any(|other| other == name) {
                names.push(name.to_owned());
            }
        }
    }
    if names.is_empty() {
        return content;
    }
    let text = prompts::reminder::MENTION.replace("{agents}", &names.join(", "));
    content.extend(names.into_iter().map(|name| Content::Agent { name }));
    content.push(hidden_text(tagged(&text)));
    content
}

/// Adds the contents of a prompt's files and directories after the part that refers to them, each
/// once.
pub(super) async fn read(
    content: Vec<Content>,
    draft: &mut PromptDraft,
    turn: &TurnContext,
) -> Vec<Content> {
    let mut reader = Reader {
        seen: HashSet::new(),
        fetched: HashSet::new(),
        text: 0,
        left_out: Vec::new(),
    };
    let mut out = Vec::with_capacity(content.len());
    let mut unknown = Vec::new();
    // A subagent reads them itself.
    if content
        .iter()
        .any(|piece| matches!(piece, Content::Subtask { .. }))
    {
        return content;
    }
    for piece in content {
        let references = match &piece {
            // Only the address of a link to a file outside the project is sent, because
            // the client may have added it automatically; the model must ask to read
            // it.
            Content::File(file) if file.data.is_none() => {
                let inside = |found: &Reference| {
                    turn.project.context.worktree.contains(&normal(&found.path))
                };
                linked(file, &turn.project.context.cwd)
                    .filter(inside)
                    .into_iter()
                    .collect()
            }
            piece => typed(piece)
                .map(|text| mentioned(text, turn))
                .unwrap_or_default(),
        };
        let resources = resources(&piece, turn).await;
        if resources.is_empty()
            && let Some(text) = typed(&piece)
        {
            let names = unknown_names(text, &MentionContext::of(turn));
            unknown.extend(names.into_iter().map(|name| name.to_string()));
        }
        out.push(piece);
        if !(references.is_empty() && resources.is_empty()) {
            draft.set_text(turn, out.get(..1).unwrap_or_default());
        }
        for reference in references {
            out.extend(reader.read(reference, draft, turn).await);
        }
        for resource in resources {
            out.extend(reader.fetch(&resource, draft, turn).await);
        }
    }
    for why in unknown.into_iter().take(MAX_UNKNOWN) {
        warn(why.clone(), turn).await;
        out.push(hidden_text(tagged(&why)));
    }
    if !reader.left_out.is_empty() {
        let names = reader.left_out.join(", ");
        out.push(hidden_text(tagged(&format!(
            "Not included for lack of space; read them if you need them: {names}"
        ))));
    }
    out
}

/// Scales the pictures of a prompt to fit. If the model does not accept PDFs, their text is sent.
/// Files that cannot be sent are reported to the model and to the user.
pub(super) async fn fit_attachments(content: Vec<Content>, turn: &TurnContext) -> Vec<Content> {
    let mut out = Vec::with_capacity(content.len());
    for piece in content {
        match piece {
            Content::File(file) if pictures::is_picture(&file) && file.data.is_some() => {
                match pictures::fitting(file, turn.project.context.settings.images).await {
                    Ok(Prepared::File(file)) => out.push(Content::File(file)),
                    // It is data, so it must not become a note with the mark of the session.
                    Ok(Prepared::Text(source)) => out.push(hidden_text(source)),
                    Err(why) => {
                        warn(why.clone(), turn).await;
                        out.push(hidden_text(tagged(&why)));
                    }
                }
            }
            // A link has a name; a picture that the editor sends has none.
            Content::File(file) if pictures::is_picture(&file) && file.name.is_none() => {
                let why = pictures::left_out(&file, "is empty");
                warn(why.clone(), turn).await;
                out.push(hidden_text(tagged(&why)));
            }
            Content::File(file) => match pdf_text(&file, turn).await {
                Some(text) => out.push(hidden_text(text)),
                None => out.push(Content::File(file)),
            },
            other => out.push(other),
        }
    }
    if let Some(model) = model(turn) {
        for title in unsent(&out, &model) {
            warn(title, turn).await;
        }
    }
    out
}

/// Returns a sentence on each kind of files in a prompt that a model does not accept.
fn unsent(content: &[Content], model: &Model) -> Vec<String> {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for piece in content {
        let Content::File(file) = piece else { continue };
        if file.data.is_none() || accepts(model, &file.mime) {
            continue;
        }
        let kind = match file.mime.as_str() {
            "application/pdf" => "PDF",
            mime if mime.starts_with("image/") => "image",
            mime if mime.starts_with("audio/") => "audio file",
            _ => "file",
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let sentence = |(kind, count): (&str, usize)| {
        let many = match (kind, count) {
            ("file", 1) => "files of its type".to_owned(),
            ("file", _) => "files of their types".to_owned(),
            _ => format!("{kind}s"),
        };
        let files = if count == 1 {
            format!("The {kind} is")
        } else {
            format!("The {kind}s are")
        };
        format!("{files} not sent: {} does not accept {many}.", model.name)
    };
    kinds.into_iter().map(sentence).collect()
}

async fn warn(title: String, turn: &TurnContext) {
    let event = Event::Notice {
        severity: Severity::Warning,
        title,
        details: None,
    };
    turn.event_sender.event(event).await;
}

/// Returns the model that answers the prompt, if there is one.
fn model(turn: &TurnContext) -> Option<Arc<Model>> {
    let agent = step_context::chosen_agent(turn).ok()?;
    let model = step_context::chosen_model(turn, &agent);
    Some(turn.project.models.find(&model).ok()?.0)
}

/// Returns the text of an attached PDF, if the model does not accept PDFs.
async fn pdf_text(file: &File, turn: &TurnContext) -> Option<String> {
    if model(turn)?.pdf {
        return None;
    }
    let agent = step_context::chosen_agent(turn).ok()?;
    pdf::text_or_reason(
        file,
        &tool_context::call_context(turn, &agent, &turn.new_call_id()),
    )
    .await
}

/// Returns the resources of MCP servers that a part names: in its text, or as a link of the client.
async fn resources(piece: &Content, turn: &TurnContext) -> Vec<NamedResource> {
    let (link, text) = match piece {
        Content::File(file) if file.data.is_none() => (file.uri.as_deref(), None),
        piece => (None, typed(piece)),
    };
    let words = text
        .into_iter()
        .flat_map(|text| text.split(|c: char| c.is_whitespace() || c == '`'));
    let words = words.map(|word| word.trim_start_matches(['@', '(', '"', '\'', '<', '[']));
    let words = words.chain(
        text.into_iter()
            .flat_map(mentions)
            .flat_map(Mention::spellings),
    );
    tokio::select! {
        named = turn.session.common.servers.named_resources(link.into_iter().chain(words)) => named,
        () = turn.cancelled.cancelled() => Vec::new(),
    }
}

struct Reader {
    seen: HashSet<Reference>,
    fetched: HashSet<NamedResource>,
    text: usize,
    left_out: Vec<String>,
}

impl Reader {
    async fn read(
        &mut self,
        reference: Reference,
        draft: &mut PromptDraft,
        turn: &TurnContext,
    ) -> Vec<Content> {
        let path = reference.path.display().to_string();
        let lines = reference.lines;
        if turn.cancelled.is_cancelled() || self.seen.contains(&reference) {
            return Vec::new();
        }
        if self.seen.len() >= MAX_FILES || self.text >= MAX_TEXT_BYTES {
            self.left_out.push(path);
            return Vec::new();
        }
        self.seen.insert(reference);
        let agent = turn.project.agents.get(&turn.choice.borrow().agent);
        let Some(agent) = agent else {
            return Vec::new();
        };
        match insert::read_file(draft, turn, &agent, &path, lines).await {
            Ok(output) => {
                let shown = turn.project.context.worktree.relative(Path::new(&path));
                if let Some(why) = shortened(&shown, lines, &output.metadata) {
                    warn(why, turn).await;
                }
                self.text += output.text.len();
                let text = hidden_text(format!("{CONTENTS_OF}{path}:\n{}", output.text));
                let instructions = output.instructions;
                let notes = [output.note, instructions.introduction];
                let notes = notes.into_iter().filter(|note| !note.is_empty());
                let instructions = Some(instructions.text).filter(|text| !text.is_empty());
                std::iter::once(text)
                    .chain(notes.map(|note| hidden_text(tagged(&note))))
                    .chain(instructions.map(hidden_text))
                    .chain(output.attachments.into_iter().map(Content::File))
                    .collect()
            }
            Err(why) => vec![hidden_text(format!("{path} was not read: {why}."))],
        }
    }
}

impl Reader {
    /// Reads a resource of an MCP server.
    async fn fetch(
        &mut self,
        named: &NamedResource,
        draft: &mut PromptDraft,
        turn: &TurnContext,
    ) -> Vec<Content> {
        let NamedResource { server, uri } = named;
        if turn.cancelled.is_cancelled() || !self.fetched.insert(named.clone()) {
            return Vec::new();
        }
        if self.fetched.len() > MAX_FILES || self.text >= MAX_TEXT_BYTES {
            self.left_out.push(uri.clone());
            return Vec::new();
        }
        let agent = turn.project.agents.get(&turn.choice.borrow().agent);
        let Some(agent) = agent else {
            return Vec::new();
        };
        let reader = turn.session.common.servers.resource_reader();
        let input = json!({"server": server, "uri": uri});
        match insert::make_call(draft, turn, &agent, &reader, input).await {
            Ok(output) => {
                let max = MAX_TEXT_BYTES.saturating_sub(self.text);
                let text = base::text::head(&output.text, max);
                self.text += text.len();
                let text = hidden_text(format!(
                    "{CONTENTS_OF}{uri}, of the MCP server {server}:\n{text}"
                ));
                std::iter::once(text)
                    .chain(output.attachments.into_iter().map(Content::File))
                    .collect()
            }
            Err(why) => vec![hidden_text(format!(
                "{uri} of the MCP server {server} was not read: {why}."
            ))],
        }
    }
}

/// Returns a sentence for the user about a file of which the prompt has fewer lines than were mentioned.
/// The model reads it in the result of the call.
fn shortened(
    path: &str,
    lines: Option<LineRange>,
    facts: &serde_json::Map<String, serde_json::Value>,
) -> Option<String> {
    let first = facts.get("lineStart")?.as_u64()?;
    let last = facts.get("lineEnd")?.as_u64()?;
    let total = facts.get("totalLines")?.as_u64()?;
    let wanted = lines.map_or(Some(total), |lines| lines.last);
    if wanted.is_some_and(|wanted| wanted > total) {
        return Some(format!(
            "{path} has only {total} lines: lines {first}-{last} are in the prompt."
        ));
    }
    (last < wanted.unwrap_or(total)).then(|| {
        format!(
            "{path} is too long for the prompt: lines {first}-{last} of {total} are in it. The agent reads on if it needs more."
        )
    })
}

/// A file or a directory, as an absolute path, and the lines of it that are referred to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reference {
    path: PathBuf,
    lines: Option<LineRange>,
}

/// Returns a text typed by the user: not an attached file, and not a text that the user or the
/// model does not see.
fn typed(content: &Content) -> Option<&str> {
    match content {
        Content::Text(text)
            if !text.synthetic && !text.ignored && attached(&text.text).is_none() =>
        {
            Some(&text.text)
        }
        _ => None,
    }
}

/// Returns a text that the user does not see.
fn hidden_text(text: String) -> Content {
    Content::Text(Text {
        text: text.into(),
        synthetic: true,
        ..Text::default()
    })
}

fn named_by(mention: Mention<'_>, known: impl Fn(&str) -> bool) -> Option<&str> {
    mention.spellings().find(|name| known(name))
}

/// A mention of something that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    pub name: String,
    /// True if it can only be the name of a file: it is quoted, or has a slash or a full stop.
    pub is_path: bool,
    /// The most similar name that exists.
    near: Option<String>,
}

impl std::fmt::Display for UnknownName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} names no file here.", mentioned_as(&self.name))?;
        if let Some(near) = &self.near {
            write!(f, " Did you mean {}?", mentioned_as(near))?;
        }
        Ok(())
    }
}

/// Returns the mention of a name, quoted if it has blanks.
fn mentioned_as(name: &str) -> String {
    if name.contains(char::is_whitespace) {
        return format!("@\"{name}\"");
    }
    format!("@{name}")
}

/// Returns the mentions that name neither an agent nor an existing file, but were meant to: they are
/// quoted, look like the name of a file, or are similar to an existing name. Anything else may be a
/// word of another kind, such as a package, a decorator or a person.
pub fn unknown_names(text: &str, context: &MentionContext<'_>) -> Vec<UnknownName> {
    let is_agent = |name: &str| context.agents.get(name).is_some();
    let is_other = |mention: &Mention<'_>| {
        named_by(*mention, is_agent).is_some()
            || mention.spellings().any(|word| word.contains("://"))
            || mentioned_by(*mention, context, MAX_LOOKUPS).0.is_some()
    };
    let all = mentions(text).into_iter().take(MAX_FILES);
    // Walked once, and only if a name is not found otherwise.
    let files = OnceCell::new();
    all.filter(|mention| !is_other(mention))
        .filter_map(|mention| {
            let word = mention
                .spellings()
                .find(|word| word.ends_with(char::is_alphanumeric))?;
            let agents = context.agents.all();
            let agents = agents.filter(|agent| agent.is_subagent());
            let (path, _) = with_lines(word);
            let near_agent = || nearest(word, agents.map(|agent| agent.name.as_str()));
            let near = near_path(path, context.cwd)
                .or_else(|| near_agent().map(str::to_owned))
                .filter(|near| near != word)
                .or_else(|| {
                    let is_name = !path.contains('/') && is_file_name(path);
                    is_name
                        .then(|| files.get_or_init(|| all_files(context.cwd)))
                        .and_then(|files| only_file_named(path, files))
                });
            let is_directory = mention
                .spellings()
                .any(|longer| is_directory_of(longer, word));
            let is_meant = near.is_some()
                || mention.is_quoted()
                || is_directory
                || is_file_name(path)
                || ["~/", "./", "../"]
                    .iter()
                    .any(|start| path.starts_with(start));
            let is_path = mention.is_quoted() || word.contains(['/', '.']) || is_directory;
            is_meant.then(|| UnknownName {
                name: word.to_owned(),
                is_path,
                near,
            })
        })
        .collect()
}

/// Returns whether a spelling is the name of a word with the slash of a directory.
fn is_directory_of(spelling: &str, word: &str) -> bool {
    spelling.strip_suffix('/') == Some(word)
}

/// A mention of lines that a file does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingLines {
    mention: String,
    total: usize,
}

impl std::fmt::Display for MissingLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total = base::text::count(self.total, "line");
        write!(
            f,
            "{} begins after the end of the file, which has {total}.",
            mentioned_as(&self.mention)
        )
    }
}

/// Returns the mentions of lines after the end of an existing file. Long files are not read.
pub fn missing_lines(text: &str, context: &MentionContext<'_>) -> Vec<MissingLines> {
    /// The size of a file whose lines are counted.
    const MAX_BYTES: u64 = 4 << 20;
    let all = mentions(text).into_iter().take(MAX_FILES);
    all.filter_map(|mention| {
        let Reference { path, lines } = mentioned_by(mention, context, MAX_LOOKUPS).0?;
        let first = lines?.first;
        let file = std::fs::metadata(&path).ok()?;
        if !file.is_file() || file.len() > MAX_BYTES {
            return None;
        }
        let total = String::from_utf8_lossy(&std::fs::read(&path).ok()?)
            .lines()
            .count();
        let word = mention
            .spellings()
            .find(|word| with_lines(word).1 == lines)?;
        let is_missing = usize::try_from(first).is_ok_and(|first| first > total.max(1));
        is_missing.then(|| MissingLines {
            mention: word.to_owned(),
            total,
        })
    })
    .collect()
}

/// Returns the reasons why mentioned files cannot be sent: they are neither text nor of a kind that
/// models read.
pub fn unreadable_files(text: &str, context: &MentionContext<'_>) -> Vec<String> {
    let all = mentions(text).into_iter().take(MAX_FILES);
    let why = |mention| {
        let Reference { path, .. } = mentioned_by(mention, context, MAX_LOOKUPS).0?;
        let word = mention
            .spellings()
            .find(|word| word.ends_with(char::is_alphanumeric))?;
        is_binary(&path).then(|| format!("{} is a binary file.", mentioned_as(word)))
    };
    all.filter_map(why).collect()
}

/// Returns whether a file is neither text nor a picture, a PDF or audio, by its beginning.
fn is_binary(path: &Path) -> bool {
    const SAMPLE_BYTES: u64 = 4096;
    if !path.is_file() {
        return false;
    }
    let mut sample = Vec::new();
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    if file.take(SAMPLE_BYTES).read_to_end(&mut sample).is_err() {
        return false;
    }
    attachment_mime_type(&sample).is_none()
        && matches!(decode(sample, EncodingHint::default), Err(NotText::Binary))
}

/// Returns whether a word ends like the name of a file: `main.rs` and `.env`, not `v1.2`.
fn is_file_name(word: &str) -> bool {
    /// The most characters after the full stop.
    const MAX_EXTENSION_CHARS: usize = 5;
    let name = Path::new(word).file_name().unwrap_or_default();
    if let Some(hidden) = name.to_string_lossy().strip_prefix('.')
        && hidden.starts_with(char::is_alphabetic)
    {
        return true;
    }
    let Some(extension) = Path::new(word).extension() else {
        return false;
    };
    let extension = extension.to_string_lossy();
    extension.len() <= MAX_EXTENSION_CHARS
        && extension.chars().all(char::is_alphanumeric)
        && extension.starts_with(char::is_alphabetic)
}

/// Returns the existing path below a directory whose names are most similar to those of a path.
/// Names in other directories are not searched.
fn near_path(word: &str, folder: &Path) -> Option<String> {
    let mut near = PathBuf::new();
    for part in Path::new(word).components() {
        let Component::Normal(part) = part else {
            return None;
        };
        let part = part.to_str()?;
        if !folder.join(&near).join(part).exists() {
            let siblings = names_in(&folder.join(&near))?;
            let names = || siblings.iter().map(String::as_str);
            near.push(with_stem(part, names()).or_else(|| nearest(part, names()))?);
        } else {
            near.push(part);
        }
    }
    near.to_str().map(str::to_owned)
}

/// Returns the files below a directory that are not ignored, as paths below it; none if there are more
/// than are searched, because the only one of a name is not known then.
fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (number, entry) in walker(folder).build().flatten().enumerate() {
        if number >= MAX_WALKED {
            return Vec::new();
        }
        if entry.file_type().is_some_and(|kind| kind.is_file())
            && let Ok(path) = entry.path().strip_prefix(folder)
        {
            files.push(path.to_owned());
        }
    }
    files
}

/// Returns the only file that has a name, in any capitals.
fn only_file_named(name: &str, files: &[PathBuf]) -> Option<String> {
    let mut named = files.iter().filter(|path| {
        let own = path.file_name();
        own.is_some_and(|own| own.eq_ignore_ascii_case(name))
    });
    let only = named.next()?;
    if named.next().is_some() {
        return None;
    }
    only.to_str().map(str::to_owned)
}

/// Returns the names in a directory, as many as are compared.
fn names_in(folder: &Path) -> Option<Vec<String>> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    Some(names.take(MAX_SIBLINGS).collect())
}

/// Returns the word in capitals that a mention is, such as `README`, and its range of lines. Any
/// other word may be one of a pasted text, such as `@param`.
fn word_in_capitals(mention: Mention<'_>) -> Option<(&str, Option<LineRange>)> {
    let word = mention
        .spellings()
        .find(|word| word.ends_with(char::is_alphanumeric))?;
    let (word, lines) = with_lines(word);
    // Scripts without case, such as Chinese, count as capitals; a number does not.
    let is_in_capitals = word.contains(char::is_alphabetic) && !word.contains(char::is_lowercase);
    (is_in_capitals && !word.contains(['/', '.'])).then_some((word, lines))
}

/// Returns the file in the session's directory that a word in capitals names without its ending, if
/// it is the only one.
fn without_ending(
    word: &str,
    lines: Option<LineRange>,
    context: &MentionContext<'_>,
) -> Option<Reference> {
    let names = names_in(context.cwd)?;
    let name = with_stem(word, names.iter().map(String::as_str))?;
    let path = context.cwd.join(name);
    (name.starts_with(word) && path.is_file()).then_some(Reference { path, lines })
}

/// Returns the only name that consists of a word, in any case, and an ending.
fn with_stem<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let has_stem = |name: &&str| {
        let stem = Path::new(name).file_stem();
        stem.is_some_and(|stem| stem.eq_ignore_ascii_case(word))
    };
    let mut named = names.filter(has_stem);
    let first = named.next()?;
    named.next().is_none().then_some(first)
}

/// Returns the existing files that a text mentions, relative to the session's directory, the
/// project's root or the home directory.
fn mentioned(text: &str, turn: &TurnContext) -> Vec<Reference> {
    // Limited, because each is looked up on the disk and a pasted text may have any number of
    // them.
    let mut left = MAX_LOOKUPS;
    let mut all = Vec::new();
    for mention in mentions(text) {
        let (found, lookups) = mentioned_by(mention, &MentionContext::of(turn), left);
        left = left.saturating_sub(lookups);
        all.extend(found);
    }
    all
}

/// Returns the existing file that a mention names, and the number of readings that were looked up,
/// at most `max`.
fn mentioned_by(
    mention: Mention<'_>,
    context: &MentionContext<'_>,
    max: usize,
) -> (Option<Reference>, usize) {
    let path_of = |word: &str| match (word.strip_prefix("~/"), context.home) {
        (Some(rest), Some(home)) => Some(home.join(rest)).filter(|path| path.exists()),
        _ => [context.cwd, context.root]
            .into_iter()
            .map(|folder| folder.join(word))
            .find(|path| path.exists()),
    };
    let existing = |word: &str| {
        // Three full stops are not a directory, and one or two end a sentence.
        let named = word.contains(char::is_alphanumeric) || matches!(word, "./" | "../");
        let whole = || path_of(word).map(|path| Reference { path, lines: None });
        let part = || {
            let (word, lines) = with_lines(word);
            path_of(word).map(|path| Reference { path, lines })
        };
        // Some clients write a path percent-encoded.
        let spelled = || {
            decoded(word)
                .and_then(|word| path_of(&word))
                .map(|path| Reference { path, lines: None })
        };
        let spelled_part = || {
            let (word, lines) = with_lines(word);
            decoded(word)
                .and_then(|word| path_of(&word))
                .map(|path| Reference { path, lines })
        };
        named
            .then(|| whole().or_else(part).or_else(spelled).or_else(spelled_part))
            .flatten()
    };
    let mut lookups = 0;
    let readings = mention.spellings().take(max);
    let found = readings.inspect(|_| lookups += 1).find_map(existing);
    if found.is_none()
        && lookups + LISTING_LOOKUPS <= max
        && let Some((word, lines)) = word_in_capitals(mention)
        && context.agents.get(word).is_none()
    {
        lookups += LISTING_LOOKUPS;
        return (without_ending(word, lines, context), lookups);
    }
    (found, lookups)
}

/// Returns the files and directories that a command's text mentions, in the form that
/// [`insert::read`] expects.
pub(super) fn files(text: &str, turn: &TurnContext) -> Vec<(String, Option<LineRange>)> {
    mentioned(text, turn)
        .into_iter()
        .map(|found| (found.path.display().to_string(), found.lines))
        .collect()
}

/// Returns the local file that a link of the client refers to: a `file:` address, the path in a
/// client's own address (`zed:///agent/file?path=…`), or a plain path; with lines as `#L10:20`,
/// `#L10-L20` or `?start=10&end=20`.
fn linked(file: &File, cwd: &Path) -> Option<Reference> {
    let uri = file.uri.as_deref()?;
    let Ok(url) = Url::parse(uri) else {
        let (path, lines) = with_lines(uri);
        let spelled = || {
            decoded(path)
                .map(|path| cwd.join(path))
                .filter(|path| path.exists())
        };
        let path = Some(cwd.join(path))
            .filter(|path| path.exists())
            .or_else(spelled)
            .unwrap_or_else(|| cwd.join(path));
        return Some(Reference { path, lines });
    };
    let asked = |name: &str| {
        url.query_pairs()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    };
    let path = match url.scheme() {
        "file" => url.to_file_path().ok()?,
        "http" | "https" | "data" => return None,
        _ => asked("path")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())?,
    };
    let fragment = url
        .fragment()
        .and_then(|fragment| lines_of(fragment.strip_prefix('L')?, true));
    let query = || {
        let first = asked("start")?;
        let last = asked("end").unwrap_or_else(|| first.clone());
        lines_of(&format!("{first}-{last}"), false)
    };
    Some(Reference {
        path,
        lines: fragment.or_else(query),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_found() {
        let known = |name: &str| matches!(name, "explore" | "team/reviewer");
        let table: &[(&str, &[&str])] = &[
            ("@explore where is it?", &["explore"]),
            (
                "ask @explore, then (@team/reviewer).",
                &["explore", "team/reviewer"],
            ),
            ("@explore: go. @explore!", &["explore", "explore"]),
            ("see @src/lib.rs and @nobody", &[]),
            ("me@explore `@explore` @@explore a/@explore", &[]),
            ("@explorer @exploreé", &[]),
            ("@", &[]),
            ("„@explore“", &["explore"]),
            ("@explore帮我看看", &["explore"]),
            ("请用@explore，再说", &["explore"]),
            ("@explore's findings", &["explore"]),
        ];
        for (text, expected) in table {
            let names: Vec<&str> = mentions(text)
                .into_iter()
                .filter_map(|mention| named_by(mention, known))
                .collect();
            assert_eq!(names, *expected, "{text}");
        }
    }

    #[test]
    fn similar_paths_are_found_below_the_directory_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("src/cli")).unwrap();
        for name in ["src/cli/main.rs", "README.md", "two.md", "two.rs"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let table = [
            ("README", Some("README.md")),
            ("readme", Some("README.md")),
            ("two", None),
            ("scr/cli/main.rs", Some("src/cli/main.rs")),
            ("src/cli/mian.rs", Some("src/cli/main.rs")),
            ("src/cil/mainn.rs", Some("src/cli/main.rs")),
            ("types/node", None),
            ("../etc/passwd", None),
            ("/etc/paswd", None),
        ];
        for (word, expected) in table {
            assert_eq!(near_path(word, dir.path()).as_deref(), expected, "{word}");
        }
        let table = [
            ("main.rs", true),
            ("a/README.md", true),
            ("v1.2", false),
            ("types/node", false),
            ("Override", false),
            (".env", true),
            ("a/.gitignore", true),
            (".5", false),
        ];
        for (word, expected) in table {
            assert_eq!(is_file_name(word), expected, "{word}");
        }
    }

    #[test]
    fn user_learns_which_lines_are_missing() {
        let range = |first, last| Some(LineRange { first, last });
        let table = [
            ((1, 9, 9), None, None),
            ((2, 4, 9), range(2, Some(4)), None),
            ((2, 9, 9), range(2, None), None),
            (
                (2, 9, 9),
                range(2, Some(12)),
                Some("a has only 9 lines: lines 2-9 are in the prompt."),
            ),
            (
                (1, 7, 9),
                None,
                Some(
                    "a is too long for the prompt: lines 1-7 of 9 are in it. The agent reads on if it needs more.",
                ),
            ),
            (
                (2, 7, 9),
                range(2, Some(8)),
                Some(
                    "a is too long for the prompt: lines 2-7 of 9 are in it. The agent reads on if it needs more.",
                ),
            ),
        ];
        for ((first, last, total), lines, expected) in table {
            let facts = json!({ "lineStart": first, "lineEnd": last, "totalLines": total });
            let facts = facts.as_object().unwrap();
            assert_eq!(
                shortened("a", lines, facts).as_deref(),
                expected,
                "{lines:?}"
            );
        }
        assert_eq!(shortened("a", None, &serde_json::Map::new()), None);
    }

    #[test]
    fn links_refer_to_files_and_lines() {
        let lines = |first, last| {
            Some(LineRange {
                first,
                last: Some(last),
            })
        };
        let table = [
            ("file:///p/a.rs", Some(("/p/a.rs", None))),
            (
                "file:///p/a%20b.rs#L10:20",
                Some(("/p/a b.rs", lines(10, 20))),
            ),
            ("file:///p/a.rs#L10-L20", Some(("/p/a.rs", lines(10, 20)))),
            (
                "file:///p/a.rs?start=3&end=4",
                Some(("/p/a.rs", lines(3, 4))),
            ),
            ("file:///p/a.rs#heading", Some(("/p/a.rs", None))),
            (
                "zed:///agent/file?path=%2Fp%2Fa.rs#L3",
                Some(("/p/a.rs", lines(3, 3))),
            ),
            ("zed:///agent/thread/1", None),
            ("src/a.rs:3", Some(("/p/src/a.rs", lines(3, 3)))),
            ("/q/a.rs", Some(("/q/a.rs", None))),
            ("https://example.org/a.rs", None),
        ];
        for (uri, expected) in table {
            let file = File {
                mime: "text/plain".into(),
                name: None,
                uri: Some(uri.into()),
                data: None,
                is_rejected: false,
            };
            let found = linked(&file, Path::new("/p"));
            let expected = expected.map(|(path, lines)| Reference {
                path: path.into(),
                lines,
            });
            assert_eq!(found, expected, "{uri}");
        }
    }
}
