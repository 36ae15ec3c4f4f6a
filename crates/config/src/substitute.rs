//! `{env:NAME}` and `{file:path}` in a settings file, in values and in keys. They are substituted
//! after the file has been parsed, so that a value with quotes cannot break the file and every
//! location stays right. If a file is valid JSON only after substitution (`"port": {env:PORT}`),
//! such variables are quoted first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::jsonc;
use super::node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};
use super::reader::{ConfigReader, ExternalValue, SubstitutedText};
use permission::protected;

/// The maximum depth of files that include files.
const MAX_DEPTH: usize = 8;

/// Parses a text and substitutes in it. Problems are added to those of `reader`; `None` if there is
/// no value.
pub(crate) fn parse(
    text: &str,
    origin: &Arc<ConfigOrigin>,
    dir: Option<&Path>,
    reader: &mut ConfigReader<'_>,
) -> Option<Node> {
    let mut problems = Vec::new();
    let mut node = match jsonc::parse(text, origin, &mut problems) {
        Ok(node) => node,
        Err(problem) if text.contains("{env:") => {
            match jsonc::parse(&quote_variables(text), origin, &mut problems) {
                Ok(node) => node,
                Err(_) => {
                    reader.problems.push(problem);
                    return None;
                }
            }
        }
        Err(problem) => {
            reader.problems.push(problem);
            return None;
        }
    };
    reader.problems.append(&mut problems);
    if is_open(text) {
        let mut filler = Substitution {
            dir,
            reader,
            open: origin.path.iter().cloned().collect(),
        };
        filler.node(&mut node, &mut Vec::new());
    }
    Some(node)
}

/// Returns whether there may be something to substitute.
fn is_open(text: &str) -> bool {
    text.contains("{env:") || text.contains("{file:")
}

/// Marks a text that was unquoted in the file: its value is a number or a boolean.
const BARE: char = '\0';

/// Returns whether a key is the key or the address of a provider, whose missing variable is
/// reported when that provider is used.
fn is_reported_on_use(key_path: &[String]) -> bool {
    let [first, _, options, option @ ..] = key_path else {
        return false;
    };
    let is_named = match option {
        [key] => key == "apiKey" || key == "baseURL",
        [headers, name] => {
            headers == "headers"
                && providers::platform::has_key_header(&[(name.clone(), String::new())])
        }
        _ => false,
    };
    is_named && first == "provider" && options == "options"
}

/// Puts quotes around unquoted variables, so that they are substituted like all others.
fn quote_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_quoted = false;
    let mut is_escaped = false;
    let mut skip = 0;
    for (at, c) in text.char_indices() {
        if at < skip {
            continue;
        }
        let inner = text
            .get(at..)
            .and_then(|rest| rest.strip_prefix("{env:")?.split_once('}'))
            .map(|(name, _)| name);
        let name = inner.filter(|name| {
            !is_quoted && !name.contains(|c: char| matches!(c, '"' | '\\') || c.is_control())
        });
        if let Some(name) = name {
            out.push_str(&format!("\"\\u0000{{env:{name}}}\""));
            skip = at + "{env:}".len() + name.len();
            continue;
        }
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        out.push(c);
    }
    out
}

/// Parses an unquoted value: `null` unless it is a number or a boolean.
fn plain(text: &str) -> NodeValue {
    match text.trim() {
        "true" => NodeValue::Bool(true),
        "false" => NodeValue::Bool(false),
        text => text.parse().map_or(NodeValue::Null, NodeValue::Number),
    }
}

struct Substitution<'d, 'a> {
    dir: Option<&'d Path>,
    reader: &'d mut ConfigReader<'a>,
    /// The files that are being included, outermost first, to detect a file that includes itself.
    open: Vec<PathBuf>,
}

impl Substitution<'_, '_> {
    fn node(&mut self, node: &mut Node, key_path: &mut Vec<String>) {
        match &mut node.value {
            NodeValue::Text(text) if is_open(text) => {
                let filled = self.fill(text.trim_start_matches(BARE), &node.at, key_path);
                node.value = if text.starts_with(BARE) {
                    plain(&filled)
                } else {
                    NodeValue::Text(filled)
                };
            }
            NodeValue::List(nodes) => {
                for (index, node) in nodes.iter_mut().enumerate() {
                    key_path.push(index.to_string());
                    self.node(node, key_path);
                    key_path.pop();
                }
            }
            NodeValue::Map(entries) => {
                let mut is_changed = false;
                for entry in entries.iter_mut() {
                    key_path.push(entry.key.clone());
                    if is_open(&entry.key) {
                        entry.key = self.fill(&entry.key, &entry.at, key_path);
                        is_changed = true;
                    }
                    self.node(&mut entry.node, key_path);
                    key_path.pop();
                }
                if is_changed {
                    self.drop_duplicates(entries, key_path);
                }
            }
            _ => {}
        }
    }

    /// Removes keys that are equal after substitution: the first is used, as in a file with a
    /// duplicate key.
    fn drop_duplicates(&mut self, entries: &mut Vec<MapEntry>, key_path: &[String]) {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        entries.retain(|entry| {
            let Some(line) = seen.get(&entry.key) else {
                seen.insert(entry.key.clone(), entry.at.line);
                return true;
            };
            let key = [key_path, std::slice::from_ref(&entry.key)]
                .concat()
                .join(".");
            let text = format!("this key is already set in line {line}");
            let problem = Problem::error(ProblemCode::Duplicate, &entry.at, key, text);
            self.reader
                .problems
                .push(problem.hint("keep one of the two; until then the first one applies"));
            false
        });
    }

    fn fill(&mut self, text: &str, at: &SourceLocation, key_path: &[String]) -> String {
        let dir = self.dir;
        let first_use = self.reader.external_values.len();
        let mut out = String::with_capacity(text.len());
        let mut template = String::new();
        let mut rest = text;
        while let Some(start) = [rest.find("{env:"), rest.find("{file:")]
            .into_iter()
            .flatten()
            .min()
        {
            let Some(len) = rest[start..].find('}') else {
                break;
            };
            let inner = &rest[start + 1..start + len];
            out.push_str(&rest[..start]);
            template.push_str(&rest[..start]);
            match inner.split_once(':') {
                Some(("env", name)) => {
                    out.push_str(&self.variable(name.trim(), at, key_path));
                    template.push_str(&rest[start..=start + len]);
                }
                Some((_, path)) => {
                    let content = self.file(path.trim(), dir, at, key_path);
                    out.push_str(&content);
                    template.push_str(&content);
                }
                None => {}
            }
            rest = &rest[start + len + 1..];
        }
        out.push_str(rest);
        template.push_str(rest);
        for value in self.reader.external_values.iter_mut().skip(first_use) {
            if value.insert.starts_with("{env:") {
                value.text = Some(SubstitutedText {
                    text: out.clone(),
                    template: template.clone(),
                });
            }
        }
        out
    }

    fn variable(&mut self, name: &str, at: &SourceLocation, key_path: &[String]) -> String {
        if at.origin.project {
            let what = format!("{{env:{name}}}");
            self.reader.external_values.push(ExternalValue {
                at: at.clone(),
                key: key_path.join("."),
                insert: what,
                text: None,
                project_file: None,
            });
        }
        let token = self
            .reader
            .tokens
            .iter()
            .find(|(key, _)| key == name && at.origin.layer == Layer::Remote);
        if let Some((_, token)) = token {
            return token.clone();
        }
        match self.reader.environment.var(name) {
            Some(value) => {
                if is_reported_on_use(key_path) {
                    self.reader
                        .key_variables
                        .push((at.clone(), name.to_owned()));
                }
                value.to_owned()
            }
            None => {
                let text = format!("the environment variable {name} is not set");
                let severity = if is_reported_on_use(key_path) {
                    ProblemSeverity::Note
                } else {
                    ProblemSeverity::Warning
                };
                let code = ProblemCode::UnsetVariable;
                let problem = Problem::new(severity, code, at, key_path.join("."), text);
                self.reader.problems.push(
                    problem.hint("it counts as empty; editors started from a desktop do not see variables set in a shell's start file"),
                );
                String::new()
            }
        }
    }

    /// Returns the text of a file with the files that it includes. Only files are substituted in
    /// it: text like {env:NAME} in a prompt stays unchanged.
    fn included(
        &mut self,
        text: &str,
        from: &Path,
        at: &SourceLocation,
        key_path: &[String],
    ) -> String {
        self.open.push(from.to_path_buf());
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("{file:") {
            let Some(len) = rest[start..].find('}') else {
                break;
            };
            out.push_str(&rest[..start]);
            let inner = rest[start + 6..start + len].trim().to_owned();
            out.push_str(&self.file(&inner, from.parent(), at, key_path));
            rest = &rest[start + len + 1..];
        }
        out.push_str(rest);
        self.open.pop();
        out
    }

    /// Returns the reason why the user did not choose the target of a file in the user's own
    /// settings, if so: a file of the project names it, or the path is in a variable, which applies
    /// to every project, and leads to a link in the project.
    fn unintended_target(
        &self,
        full: &Path,
        resolved: &Path,
        at: &SourceLocation,
    ) -> Option<String> {
        let tree = self.reader.worktree;
        // The first open file is the settings file itself.
        let includes = self
            .open
            .get(usize::from(at.origin.path.is_some())..)
            .and_then(<[PathBuf]>::last);
        let is_named_by_project = includes.is_some_and(|file| tree.contains(file));
        let is_in_project = at.origin.path.is_none() && tree.contains(full);
        if !is_named_by_project && !is_in_project {
            return None;
        }
        if !tree.contains(resolved) {
            return Some(format!(
                "this leads out of the project, to {}",
                resolved.display()
            ));
        }
        let is_secret =
            protected::secret(resolved) && (is_named_by_project || !protected::secret(full));
        is_secret.then(|| {
            format!(
                "this leads to {}, which may hold keys or passwords",
                resolved.display()
            )
        })
    }

    fn file(
        &mut self,
        path: &str,
        dir: Option<&Path>,
        at: &SourceLocation,
        key_path: &[String],
    ) -> String {
        let home = self.reader.environment.home.clone();
        let full = match (path.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.unwrap_or(Path::new("/")).join(path),
        };
        let full = base::worktree::normal(&full);
        let problem_of = |code, text: String, hint: Option<String>| {
            let mut problem = Problem::error(code, at, key_path.join("."), text);
            problem.hint = hint;
            problem
        };
        let resolved = std::fs::canonicalize(&full).unwrap_or_else(|_| full.clone());
        if at.origin.project {
            let what = format!("{{file:{}}}", full.display());
            let within = self
                .reader
                .worktree
                .contains(&resolved)
                .then(|| [full.clone(), resolved.clone()]);
            self.reader.external_values.push(ExternalValue {
                at: at.clone(),
                key: key_path.join("."),
                insert: what,
                text: None,
                project_file: within,
            });
        } else if let Some(why) = self.unintended_target(&full, &resolved, at) {
            let text = format!("{{file:{path}}}: {why}");
            self.reader.problems.push(problem_of(
                ProblemCode::Link,
                text,
                Some("it counts as empty".into()),
            ));
            return String::new();
        }
        if self
            .open
            .iter()
            .any(|open| *open == full || *open == resolved)
        {
            let chain: Vec<String> = self
                .open
                .iter()
                .chain([&full])
                .map(|path| {
                    self.reader
                        .origin(path, at.origin.layer, false)
                        .name
                        .clone()
                })
                .collect();
            self.reader.problems.push(problem_of(
                ProblemCode::Link,
                format!("{{file:{path}}} includes itself: {}", chain.join(" -> ")),
                Some("it counts as empty".into()),
            ));
            return String::new();
        }
        if self.open.len() > MAX_DEPTH {
            self.reader.problems.push(problem_of(
                ProblemCode::TooMuch,
                format!("{{file:{path}}} is included too deep; at most {MAX_DEPTH} files"),
                None,
            ));
            return String::new();
        }
        match self.reader.try_read(&full, false) {
            Ok(Some(text)) => self.included(text.trim(), &full, at, key_path),
            Ok(None) => {
                self.reader.problems.push(problem_of(
                    ProblemCode::MissingFile,
                    format!("{{file:{path}}}: there is no file {}", full.display()),
                    Some("it counts as empty".into()),
                ));
                String::new()
            }
            Err(refused) => {
                self.reader.problems.push(problem_of(
                    refused.code,
                    format!("{{file:{path}}}: {}", refused.why),
                    refused.hint,
                ));
                String::new()
            }
        }
    }
}
