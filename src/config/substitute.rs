//! `{env:NAME}` and `{file:path}` in a settings file. They are filled in after the file was read, so
//! a value with quotes in it cannot break the file and every place stays right. Where a file is only
//! valid JSON once they are filled in (`"port": {env:PORT}`), the text is filled in first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{ConfigReader, ExternalValue};
use super::jsonc;
use super::node::{ConfigOrigin, Layer, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};

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
        Err(problem) if text.contains("{env:") => match jsonc::parse(&bare(text, disk), origin, &mut problems) {
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
    if text.contains("{env:") || text.contains("{file:") {
        let mut filler = Substitution { dir, disk, open: origin.path.iter().cloned().collect() };
        filler.node(&mut node, &mut Vec::new());
    }
    Some(node)
}

/// The text with the variables in it that stand outside of quotes: a number or a switch.
fn bare(text: &str, disk: &ConfigReader<'_>) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    let mut skip = 0;
    for (at, c) in text.char_indices() {
        if at < skip {
            continue;
        }
        let inner = text.get(at..).and_then(|rest| rest.strip_prefix("{env:")?.split_once('}')).map(|(name, _)| name);
        if let Some(name) = inner.filter(|_| !quoted) {
            let value = disk.environment.var(name.trim()).unwrap_or_default();
            let plain = value.parse::<f64>().is_ok_and(f64::is_finite) || matches!(value, "true" | "false");
            out.push_str(if plain { value } else { "null" });
            skip = at + "{env:}".len() + name.len();
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out
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
            NodeValue::Text(text) if text.contains("{env:") || text.contains("{file:") => {
                let dir = self.dir.map(Path::to_path_buf);
                *text = self.fill(text, dir.as_deref(), &node.at, way);
            }
            NodeValue::List(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    way.push(index.to_string());
                    self.node(node, way);
                    way.pop();
                }
            }
            NodeValue::Map(entries) => {
                for entry in entries {
                    way.push(entry.key.clone());
                    self.node(&mut entry.node, way);
                    way.pop();
                }
            }
            _ => {}
        }
    }

    fn fill(&mut self, text: &str, dir: Option<&Path>, at: &SourceLocation, way: &[String]) -> String {
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
            self.disk.uses.push(ExternalValue { at: at.clone(), key: way.join("."), what: format!("{{env:{name}}}") });
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

    fn file(&mut self, path: &str, dir: Option<&Path>, at: &SourceLocation, way: &[String]) -> String {
        let home = self.disk.environment.home.clone();
        let full = match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.unwrap_or(Path::new("/")).join(path),
        };
        let full = crate::worktree::normal(&full);
        let wrong = |code, text: String, hint: Option<String>| {
            let mut problem = Problem::error(code, at, way.join("."), text);
            problem.hint = hint;
            problem
        };
        let resolved = std::fs::canonicalize(&full).unwrap_or_else(|_| full.clone());
        if at.origin.project && !self.disk.worktree.contains(&resolved) {
            let what = format!("{{file:{}}}", full.display());
            self.disk.uses.push(ExternalValue { at: at.clone(), key: way.join("."), what });
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
            Ok(Some(text)) => {
                let text = text.trim();
                if !text.contains("{file:") {
                    return text.to_owned();
                }
                self.open.push(full.clone());
                // Only files are filled in further: words like {env:NAME} in a prompt stay words.
                let mut out = String::new();
                let mut rest = text;
                while let Some(start) = rest.find("{file:") {
                    let Some(len) = rest[start..].find('}') else { break };
                    out.push_str(&rest[..start]);
                    let inner = rest[start + 6..start + len].trim().to_owned();
                    out.push_str(&self.file(&inner, full.parent(), at, way));
                    rest = &rest[start + len + 1..];
                }
                out.push_str(rest);
                self.open.pop();
                out
            }
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
