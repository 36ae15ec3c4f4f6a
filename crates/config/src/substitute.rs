//! `{env:NAME}` and `{file:path}` in a settings file, in values and in keys. They are filled in after the file was
//! read, so a value with quotes in it cannot break the file and every place stays right. Where a file is only
//! valid JSON once they are filled in (`"port": {env:PORT}`), the text is filled in first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{ConfigReader, ExternalValue};
use super::jsonc;
use super::node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use permission::protected;

/// How deep one file may include another.
const DEEPEST: usize = 8;

/// Reads a text and fills it in. Problems go to the disk's list; none where there is no value.
pub(crate) fn parse(
    text: &str,
    origin: &Arc<ConfigOrigin>,
    dir: Option<&Path>,
    disk: &mut ConfigReader<'_>,
) -> Option<Node> {
    let mut problems = Vec::new();
    let mut node = match jsonc::parse(text, origin, &mut problems) {
        Ok(node) => node,
        Err(problem) if text.contains("{env:") => match jsonc::parse(&quoted(text), origin, &mut problems) {
            Ok(node) => node,
            Err(_) => {
                disk.problems.push(problem);
                return None;
            }
        },
        Err(problem) => {
            disk.problems.push(problem);
            return None;
        }
    };
    disk.problems.append(&mut problems);
    if is_open(text) {
        let mut filler = Substitution { dir, disk, open: origin.path.iter().cloned().collect() };
        filler.node(&mut node, &mut Vec::new());
    }
    Some(node)
}

/// Whether there may be something to fill in.
fn is_open(text: &str) -> bool {
    text.contains("{env:") || text.contains("{file:")
}

/// Begins a text that stood outside of quotes: its value is a number or a switch.
const BARE: char = '\0';

/// The text with quotes around the variables that stand outside of them, so that they are filled in like all others.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut skip = 0;
    for (at, c) in text.char_indices() {
        if at < skip {
            continue;
        }
        let inner = text.get(at..).and_then(|rest| rest.strip_prefix("{env:")?.split_once('}')).map(|(name, _)| name);
        let name = inner.filter(|name| !quoted && !name.contains(|c: char| matches!(c, '"' | '\\') || c.is_control()));
        if let Some(name) = name {
            out.push_str(&format!("\"\\u0000{{env:{name}}}\""));
            skip = at + "{env:}".len() + name.len();
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// A value that stood outside of quotes: nothing, where it is neither a number nor a switch.
fn plain(text: &str) -> NodeValue {
    match text.trim() {
        "true" => NodeValue::Bool(true),
        "false" => NodeValue::Bool(false),
        text => text.parse().map_or(NodeValue::Null, NodeValue::Number),
    }
}

struct Substitution<'d, 'a> {
    dir: Option<&'d Path>,
    disk: &'d mut ConfigReader<'a>,
    /// The files that are being filled in, outermost first: one that includes itself is a circle.
    open: Vec<PathBuf>,
}

impl Substitution<'_, '_> {
    fn node(&mut self, node: &mut Node, way: &mut Vec<String>) {
        match &mut node.value {
            NodeValue::Text(text) if is_open(text) => {
                let filled = self.fill(text.trim_start_matches(BARE), &node.at, way);
                node.value = if text.starts_with(BARE) { plain(&filled) } else { NodeValue::Text(filled) };
            }
            NodeValue::List(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    way.push(index.to_string());
                    self.node(node, way);
                    way.pop();
                }
            }
            NodeValue::Map(entries) => {
                let mut filled = false;
                for entry in entries.iter_mut() {
                    way.push(entry.key.clone());
                    if is_open(&entry.key) {
                        entry.key = self.fill(&entry.key, &entry.at, way);
                        filled = true;
                    }
                    self.node(&mut entry.node, way);
                    way.pop();
                }
                if filled {
                    self.drop_doubles(entries, way);
                }
            }
            _ => {}
        }
    }

    /// Keys that are the same once they are filled in: the first counts, as in a file that has it twice.
    fn drop_doubles(&mut self, entries: &mut Vec<MapEntry>, way: &[String]) {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        entries.retain(|entry| {
            let Some(line) = seen.get(&entry.key) else {
                seen.insert(entry.key.clone(), entry.at.line);
                return true;
            };
            let key = [way, std::slice::from_ref(&entry.key)].concat().join(".");
            let text = format!("this key is already set in line {line}");
            let problem = Problem::error(ProblemCode::Duplicate, &entry.at, key, text);
            self.disk.problems.push(problem.hint("keep one of the two; until then the first one counts"));
            false
        });
    }

    fn fill(&mut self, text: &str, at: &SourceLocation, way: &[String]) -> String {
        let dir = self.dir;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = [rest.find("{env:"), rest.find("{file:")].into_iter().flatten().min() {
            let Some(len) = rest[start..].find('}') else { break };
            let inner = &rest[start + 1..start + len];
            out.push_str(&rest[..start]);
            match inner.split_once(':') {
                Some(("env", name)) => out.push_str(&self.variable(name.trim(), at, way)),
                Some((_, path)) => out.push_str(&self.file(path.trim(), dir, at, way)),
                None => {}
            }
            rest = &rest[start + len + 1..];
        }
        out.push_str(rest);
        out
    }

    fn variable(&mut self, name: &str, at: &SourceLocation, way: &[String]) -> String {
        if at.origin.project {
            let what = format!("{{env:{name}}}");
            self.disk.uses.push(ExternalValue { at: at.clone(), key: way.join("."), what, within: None });
        }
        let token = self.disk.tokens.iter().find(|(key, _)| key == name && at.origin.layer == Layer::Remote);
        if let Some((_, token)) = token {
            return token.clone();
        }
        match self.disk.environment.var(name) {
            Some(value) => value.to_owned(),
            None => {
                let text = format!("the environment variable {name} is not set; it counts as empty");
                let problem = Problem::warning(ProblemCode::UnsetVariable, at, way.join("."), text);
                self.disk.problems.push(
                    problem.hint("editors started from a desktop do not see variables set in a shell's start file"),
                );
                String::new()
            }
        }
    }

    /// The text of a file with those in it that it names itself. Only files are filled in there: words like
    /// {env:NAME} in a prompt stay words.
    fn included(&mut self, text: &str, from: &Path, at: &SourceLocation, way: &[String]) -> String {
        self.open.push(from.to_path_buf());
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("{file:") {
            let Some(len) = rest[start..].find('}') else { break };
            out.push_str(&rest[..start]);
            let inner = rest[start + 6..start + len].trim().to_owned();
            out.push_str(&self.file(&inner, from.parent(), at, way));
            rest = &rest[start + len + 1..];
        }
        out.push_str(rest);
        self.open.pop();
        out
    }

    /// Why a file that the user's own settings come to is none that the user means: a file of the project's names it,
    /// or lies as a link where a variable's path, which begins in whatever project this is, says that a file is.
    fn misled(&self, full: &Path, resolved: &Path, at: &SourceLocation) -> Option<String> {
        let tree = self.disk.worktree;
        // The first that is open is the settings file itself.
        let includes = self.open.get(usize::from(at.origin.path.is_some())..).and_then(<[PathBuf]>::last);
        let written = includes.is_some_and(|file| tree.contains(file));
        let found = at.origin.path.is_none() && tree.contains(full);
        if !written && !found {
            return None;
        }
        if !tree.contains(resolved) {
            return Some(format!("this leads out of the project, to {}", resolved.display()));
        }
        let secret = protected::secret(resolved) && (written || !protected::secret(full));
        secret.then(|| format!("this leads to {}, which may hold keys or passwords", resolved.display()))
    }

    fn file(&mut self, path: &str, dir: Option<&Path>, at: &SourceLocation, way: &[String]) -> String {
        let home = self.disk.environment.home.clone();
        let full = match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.unwrap_or(Path::new("/")).join(path),
        };
        let full = base::worktree::normal(&full);
        let wrong = |code, text: String, hint: Option<String>| {
            let mut problem = Problem::error(code, at, way.join("."), text);
            problem.hint = hint;
            problem
        };
        let resolved = std::fs::canonicalize(&full).unwrap_or_else(|_| full.clone());
        if at.origin.project {
            let what = format!("{{file:{}}}", full.display());
            let within = self.disk.worktree.contains(&resolved).then(|| [full.clone(), resolved.clone()]);
            self.disk.uses.push(ExternalValue { at: at.clone(), key: way.join("."), what, within });
        } else if let Some(why) = self.misled(&full, &resolved, at) {
            let text = format!("{{file:{path}}}: {why}");
            self.disk.problems.push(wrong(ProblemCode::Link, text, Some("it counts as empty".into())));
            return String::new();
        }
        if self.open.iter().any(|open| *open == full || *open == resolved) {
            let chain: Vec<String> = self
                .open
                .iter()
                .chain([&full])
                .map(|path| self.disk.origin(path, at.origin.layer, false).name.clone())
                .collect();
            self.disk.problems.push(wrong(
                ProblemCode::Link,
                format!("{{file:{path}}} includes itself: {}", chain.join(" -> ")),
                Some("it counts as empty".into()),
            ));
            return String::new();
        }
        if self.open.len() > DEEPEST {
            self.disk.problems.push(wrong(
                ProblemCode::TooMuch,
                format!("{{file:{path}}} is included too deep; at most {DEEPEST} files"),
                None,
            ));
            return String::new();
        }
        match self.disk.try_read(&full, false) {
            Ok(Some(text)) => self.included(text.trim(), &full, at, way),
            Ok(None) => {
                self.disk.problems.push(wrong(
                    ProblemCode::MissingFile,
                    format!("{{file:{path}}}: there is no file {}", full.display()),
                    Some("it counts as empty".into()),
                ));
                String::new()
            }
            Err(refused) => {
                self.disk.problems.push(wrong(refused.code, format!("{{file:{path}}}: {}", refused.why), refused.hint));
                String::new()
            }
        }
    }
}
