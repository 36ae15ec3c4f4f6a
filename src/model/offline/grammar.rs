//! The grammar of orders, one function for each: from a piece of a sentence to an [`Order`], or to
//! a [`Question`].

use super::order::{Item, MOST_ORDERS, Order, Question, cut_at};
use super::path::{looks_like_path, path_with_lines, spoken_lines};
use super::sentence::{Masked, Span, SpanKind, clean, is_placeholder, polite, strip};
use super::words;

const SAY_COMMAND: &str = "say which command, in backticks: run `cargo test`";
const SAY_FILE: &str = "say in which file: replace `a` with `b` in `src/x.rs`";
const SAY_CONTENT: &str = "say what it should contain: create `notes.md` with `# Notes`";

/// Longer sentences, in bytes without what they quote, are no plain orders.
const LONGEST_ORDER: usize = 8_000;
/// A question's first words say what it is about.
const MOST_WORDS: usize = 400;

impl Masked {
    /// The order that a piece is, with the words it was given in; several where it names several
    /// files ("read a.rs and b.rs") or verbs ("read a.rs and run `x`"); none where it is no order.
    pub(super) fn items(&self, piece: &str) -> Option<Vec<Item>> {
        let piece = polite(piece);
        if piece.len() > LONGEST_ORDER {
            return None;
        }
        let clear = |part: &String| self.item(part).filter(|item| !matches!(item.order, Order::Unclear(_)));
        let parts = cut_at(piece, " and ");
        let each: Vec<Item> = parts.iter().filter_map(clear).collect();
        if each.len() > 1 && each.len() == parts.len() {
            return Some(each.into_iter().flat_map(|item| self.each_path(item, "")).collect());
        }
        Some(self.each_path(self.item(piece)?, piece))
    }

    fn item(&self, piece: &str) -> Option<Item> {
        let piece = polite(piece);
        Some(Item { words: self.words(piece), order: self.order(piece)? })
    }

    /// "read a.rs, b.rs" reads two files.
    fn each_path(&self, item: Item, piece: &str) -> Vec<Item> {
        if !matches!(item.order, Order::Read { lines: None, .. }) {
            return vec![item];
        }
        let paths = piece.split([' ', ',']).filter_map(|token| path_with_lines(&clean(&self.unmask(token))));
        let read = |(path, lines)| Item { words: format!("read {path}"), order: Order::Read { path, lines } };
        let reads: Vec<Item> = paths.map(read).take(MOST_ORDERS).collect();
        if reads.len() > 1 { reads } else { vec![item] }
    }

    /// The piece as a question among orders.
    pub(super) fn ask(&self, piece: &str) -> Item {
        Item { words: self.words(piece), order: Order::Ask(self.question(piece)) }
    }

    /// An order, if the piece is one.
    fn order(&self, piece: &str) -> Option<Order> {
        let piece = piece.trim();
        if let Some(command) = piece.strip_prefix("$ ").or_else(|| piece.strip_prefix('!')).map(str::trim)
            && !command.is_empty()
        {
            return Some(Order::Run { command: self.unmask(command) });
        }
        let (verb, rest) = piece.split_once(|c: char| c.is_whitespace() || c == ':').unwrap_or((piece, ""));
        let colon = piece[verb.len()..].starts_with(':');
        let rest = rest.trim();
        match verb.to_ascii_lowercase().as_str() {
            "read" | "show" | "open" | "cat" | "print" | "display" | "view" => self.read(rest),
            "look" => self.read(strip(rest, &["at "])?),
            "list" | "ls" | "dir" => self.list(rest),
            "find" | "grep" | "rg" => self.search(rest),
            "search" | "look-for" => self.search(strip(rest, &["for "]).unwrap_or(rest)),
            "glob" => Some(Order::Glob { pattern: self.unmask(rest.split_whitespace().next()?), path: None }),
            "run" | "execute" | "exec" => self.run(rest, colon),
            "replace" | "change" | "rename" | "substitute" => self.replace(rest),
            "remove" | "delete" if self.spans_in(rest).next().is_some() => self.remove(rest),
            "create" | "write" | "make" | "overwrite" | "add" => self.create(verb, rest),
            "append" => self.append(rest),
            "in" => {
                // "in `file` replace `a` with `b`"
                let (file, rest) = rest.split_once(|c: char| c.is_whitespace() || c == ',')?;
                let rest = rest.trim();
                let (verb, what) = rest.split_once(' ')?;
                let is_change = ["replace", "change", "rename"].contains(&verb.to_ascii_lowercase().as_str());
                is_change.then(|| self.replace(&format!("{what} in {file}"))).flatten()
            }
            _ => self.bare(piece),
        }
    }

    /// A prompt that is only a path, or the question which files match a pattern.
    fn bare(&self, piece: &str) -> Option<Order> {
        let mut tokens = piece.split_whitespace();
        let token = tokens.next()?;
        let is_one = tokens.next().is_none();
        let is_fence = self.spans_in(token).any(|span| span.kind != SpanKind::Code);
        if is_one && !is_fence {
            let text = clean(&self.unmask(token));
            if let Some((path, lines)) = path_with_lines(&text)
                && (token.starts_with('@') || !text.contains(char::is_whitespace))
            {
                return Some(Order::Read { path, lines });
            }
        }
        let lower = piece.to_ascii_lowercase();
        if lower.starts_with("which files") || lower.starts_with("what files") {
            let pattern = piece.split_whitespace().map(|t| clean(&self.unmask(t))).find(|t| t.contains('*'))?;
            return Some(Order::Glob { pattern: deep(&pattern), path: None });
        }
        let what_is_in = ["what is in ", "what's in ", "whats in "].iter().find_map(|s| strip(&lower, &[s]))?;
        let place = &piece[piece.len() - what_is_in.len()..];
        let text = clean(&self.unmask(strip(place, &["the "]).unwrap_or(place)));
        let text = text.trim_end_matches(" directory").trim_end_matches(" folder").trim_end_matches('?');
        let (path, lines) = path_with_lines(text)?;
        let is_directory = path.ends_with('/') || !path.rsplit('/').next().is_some_and(|name| name.contains('.'));
        Some(if is_directory { Order::List { path: Some(path) } } else { Order::Read { path, lines } })
    }

    fn read(&self, rest: &str) -> Option<Order> {
        let rest = strip(rest, &["me "]).unwrap_or(rest);
        let span_path = self.spans_in(rest).find(|span| span.kind != SpanKind::Fence && looks_like_path(&span.text));
        let (path, mut lines) = match span_path {
            Some(span) => path_with_lines(span.text.trim()).unwrap_or((span.text.trim().to_owned(), None)),
            None => rest.split([' ', ',', '\n']).find_map(|token| path_with_lines(&clean(token)))?,
        };
        lines = lines.or_else(|| spoken_lines(rest));
        let extra = rest.split_whitespace().filter(|token| path_with_lines(&clean(token)).is_none());
        let content = extra.filter(|word| {
            let word = word.to_ascii_lowercase();
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            let filler =
                ["file", "files", "lines", "line", "contents", "content", "contains", "first", "please", "entire"];
            !word.is_empty()
                && !word.chars().any(is_placeholder)
                && !words::is_stop(word)
                && !filler.contains(&word)
                && !word.starts_with(|c: char| c.is_ascii_digit())
        });
        // "show how the router in src/a.rs picks a route" is a question with a path in it.
        (content.count() <= 1).then_some(Order::Read { path, lines })
    }

    fn list(&self, rest: &str) -> Option<Order> {
        let filler = [
            "files",
            "file",
            "directory",
            "directories",
            "folder",
            "folders",
            "contents",
            "content",
            "current",
            "project",
            "root",
        ];
        let left: Vec<String> = rest
            .split_whitespace()
            .map(|token| clean(&self.unmask(token)))
            .filter(|word| {
                !word.is_empty()
                    && !words::is_stop(&word.to_ascii_lowercase())
                    && !filler.contains(&word.to_ascii_lowercase().as_str())
            })
            .collect();
        match left.as_slice() {
            [] => Some(Order::List { path: None }),
            [one] if one.contains('*') => Some(Order::Glob { pattern: deep(one), path: None }),
            [one] if one == "." => Some(Order::List { path: None }),
            [one] => Some(Order::List { path: Some(one.trim_start_matches('@').to_owned()) }),
            _ => None,
        }
    }

    fn search(&self, rest: &str) -> Option<Order> {
        let lower = rest.to_ascii_lowercase();
        let first = lower.split_whitespace().next().unwrap_or_default();
        if rest.is_empty()
            || ["where", "how", "what", "who", "why", "when", "which", "out", "a", "any"].contains(&first)
        {
            return None;
        }
        if let Some(pattern) = rest
            .split_whitespace()
            .map(|token| clean(&self.unmask(token)))
            .find(|t| t.contains('*') && !t.contains(' '))
            && self.spans_in(rest).all(|span| span.text.contains('*'))
        {
            let (_, path) = self.in_path(rest);
            return Some(Order::Glob { pattern: deep(&pattern), path });
        }
        let (what, path) = self.in_path(rest);
        for named in ["files named ", "files called ", "file named ", "file called ", "the file ", "file ", "files "] {
            if let Some(name) = strip(&what.to_ascii_lowercase(), &[named]) {
                let name = clean(&self.unmask(&what[what.len() - name.len()..]));
                let one = !name.is_empty() && !name.contains(char::is_whitespace);
                return one.then(|| Order::Glob { pattern: format!("**/*{name}*"), path });
            }
        }
        let span = self.spans_in(&what).find(|span| span.kind != SpanKind::Fence);
        let text = match span {
            Some(span) => span.text.clone(),
            None => {
                let text = what.trim_end_matches(['?', '.', '!']).trim();
                let count = text.split_whitespace().count();
                if count == 0 || count > 3 || words::is_stop(first) {
                    return None;
                }
                text.to_owned()
            }
        };
        let usable = !text.trim().is_empty() && !text.contains('\n');
        usable.then_some(Order::Search { text, path })
    }

    /// Cuts " in PATH" off the end.
    fn in_path(&self, rest: &str) -> (String, Option<String>) {
        let cut = rest.rfind(" in ").or_else(|| rest.rfind(" under "));
        if let Some(at) = cut {
            let (what, place) = rest.split_at(at);
            let place = place.trim_start_matches(" in ").trim_start_matches(" under ");
            let place = strip(place, &["the directory ", "the folder ", "the file ", "directory ", "folder ", "the "])
                .unwrap_or(place);
            let text = clean(&self.unmask(place.trim()));
            let is_span = self.spans_in(place).next().is_some();
            let is_path = is_span || looks_like_path(&text) || text.split_whitespace().count() == 1;
            if is_path && !text.is_empty() {
                let everywhere = ["project", "repo", "repository", "code", "codebase", "files", ".", "here"];
                let path = (!everywhere.contains(&text.as_str())).then(|| text.trim_start_matches('@').to_owned());
                return (what.to_owned(), path);
            }
        }
        (rest.to_owned(), None)
    }

    fn run(&self, rest: &str, colon: bool) -> Option<Order> {
        let rest =
            strip(rest, &["the command ", "this command ", "the command: ", "command ", "this: "]).unwrap_or(rest);
        if let Some(span) = self.spans_in(rest).find(|span| !span.text.trim().is_empty())
            && (!colon || rest.chars().next().is_some_and(is_placeholder))
        {
            return Some(Order::Run { command: span.text.trim().to_owned() });
        }
        let command = self.unmask(rest);
        let command = command.trim().trim_end_matches('.');
        let program = command.split_whitespace().next()?;
        let one = PROGRAMS.contains(&program) || program.starts_with("./");
        let is_command = colon || (one && !command.contains(" and "));
        Some(if is_command { Order::Run { command: command.to_owned() } } else { Order::Unclear(SAY_COMMAND) })
    }

    fn replace(&self, rest: &str) -> Option<Order> {
        let lower = rest.to_ascii_lowercase();
        let once = lower.contains("first ");
        let spans: Vec<&Span> = self.spans_in(rest).collect();
        let joint = [" with ", " by ", " to ", " into "].iter().any(|joint| lower.contains(joint));
        if !joint {
            return None;
        }
        let (old, new, file) = match spans.as_slice() {
            [old, new, file] => (old.text.clone(), new.text.clone(), Some(file.text.clone())),
            [old, new] => (old.text.clone(), new.text.clone(), self.last_path(rest)),
            _ => {
                // Single words without quotes: "replace foo with bar in src/x.rs".
                let tokens: Vec<String> = rest.split_whitespace().map(|token| self.unmask(token)).collect();
                let joint =
                    tokens.iter().position(|t| ["with", "by", "to"].contains(&t.to_ascii_lowercase().as_str()))?;
                let file = self.last_path(rest)?;
                let old = joint.checked_sub(1).and_then(|at| tokens.get(at))?;
                let new = tokens.get(joint + 1)?;
                let short = tokens.len() <= 9;
                if !short || tokens.get(joint + 2).is_none_or(|t| t != "in") {
                    return None;
                }
                (old.clone(), new.clone(), Some(file))
            }
        };
        let Some(path) = file.map(|file| clean(&file)).filter(|file| !file.is_empty()) else {
            return Some(Order::Unclear(SAY_FILE));
        };
        (!old.is_empty()).then_some(Order::Replace { old, new, path, once })
    }

    fn remove(&self, rest: &str) -> Option<Order> {
        let spans: Vec<&Span> = self.spans_in(rest).collect();
        let (old, file) = match spans.as_slice() {
            [old, file] if rest.contains(" from ") || rest.contains(" in ") => (old, Some(file.text.clone())),
            [old] if rest.contains(" from ") || rest.contains(" in ") => (old, self.last_path(rest)),
            _ => return Some(Order::Unclear("files are deleted only by a command: run `rm notes.md`")),
        };
        let path = clean(&file?);
        let usable = !old.text.is_empty() && !path.is_empty();
        usable.then(|| Order::Replace { old: old.text.clone(), new: String::new(), path, once: false })
    }

    /// The last token that is a path and no placeholder.
    fn last_path(&self, rest: &str) -> Option<String> {
        let after = rest.rfind(" in ").map(|at| &rest[at + 4..])?;
        let place = strip(after, &["the file ", "file ", "the "]).unwrap_or(after);
        let token = clean(&self.unmask(place.split_whitespace().next()?));
        (!token.is_empty()).then(|| token.trim_start_matches('@').to_owned())
    }

    fn create(&self, verb: &str, rest: &str) -> Option<Order> {
        let overwrite = verb.eq_ignore_ascii_case("overwrite");
        let lower = rest.to_ascii_lowercase();
        // "write `content` to `file`"
        if let Some(at) = lower.rfind(" to ").or_else(|| lower.rfind(" into "))
            && !verb.eq_ignore_ascii_case("create")
            && !verb.eq_ignore_ascii_case("make")
            && let Some(content) = self.spans_in(&rest[..at]).next()
        {
            let target = rest[at..].trim_start_matches(" to ").trim_start_matches(" into ");
            let path = clean(&self.unmask(strip(target, &["the file ", "a file ", "file "]).unwrap_or(target)));
            let usable = looks_like_path(&path) && !path.contains(char::is_whitespace);
            return usable.then(|| match verb.to_ascii_lowercase().as_str() {
                "add" => Order::Append { path, text: whole_lines(content) },
                _ => Order::Create { path, content: whole_lines(content), overwrite },
            });
        }
        if verb.eq_ignore_ascii_case("add") {
            return None;
        }
        let mut named = rest;
        while let Some(shorter) =
            strip(named, &["a ", "an ", "the ", "new ", "empty ", "text ", "file ", "file: ", "called ", "named "])
        {
            named = shorter;
        }
        let says_file = named.len() < rest.len() && lower.contains("file");
        let token = named.split_whitespace().next()?;
        let path = clean(&self.unmask(token.trim_end_matches(':'))).trim_start_matches('@').to_owned();
        let is_span = token.chars().next().is_some_and(is_placeholder);
        if path.contains(char::is_whitespace) || path.is_empty() || !(looks_like_path(&path) || (says_file && is_span))
        {
            return None;
        }
        let after = named[token.len()..].trim();
        const WITH: &[&str] = &[
            "with the content: ",
            "with the contents: ",
            "with the content ",
            "with the contents ",
            "with the text ",
            "with content ",
            "with: ",
            "with ",
            "containing: ",
            "containing ",
            "that contains ",
            "that says ",
            "saying ",
            "content: ",
            ": ",
        ];
        let body = strip(after, WITH).or_else(|| after.strip_prefix("with:")).unwrap_or(after).trim();
        if let Some(span) = self.spans_in(body).next() {
            return Some(Order::Create { path, content: whole_lines(span), overwrite });
        }
        let said = body.len() < after.len() || (token.ends_with(':') && !body.is_empty());
        if said && !body.is_empty() {
            return Some(Order::Create { path, content: format!("{}\n", self.unmask(body)), overwrite });
        }
        let empty = lower.starts_with("an empty ") || lower.starts_with("empty ");
        Some(if empty {
            Order::Create { path, content: String::new(), overwrite }
        } else {
            Order::Unclear(SAY_CONTENT)
        })
    }

    fn append(&self, rest: &str) -> Option<Order> {
        let at = rest.rfind(" to ")?;
        let text = self.spans_in(&rest[..at]).next()?;
        let target = &rest[at + 4..];
        let path = clean(&self.unmask(strip(target, &["the file ", "file ", "the end of "]).unwrap_or(target)));
        let usable = !path.is_empty() && !path.contains(char::is_whitespace);
        usable.then(|| Order::Append { path: path.trim_start_matches('@').to_owned(), text: whole_lines(text) })
    }

    /// The piece as a question.
    pub(super) fn question(&self, piece: &str) -> Question {
        let mut question = Question { text: self.words(piece), ..Question::default() };
        let mut plain = String::new();
        for token in piece.split_whitespace().take(MOST_WORDS) {
            let text = clean(&self.unmask(token));
            let is_span = token.chars().any(is_placeholder);
            let is_path = looks_like_path(&text) && !text.contains(char::is_whitespace);
            if is_path && question.paths.len() < 4 {
                let path = path_with_lines(&text).map_or(text, |(path, _)| path);
                question.paths.push(path.trim_start_matches('@').to_owned());
            } else if is_span {
                question.literals.extend(self.spans_in(token).map(|span| clip_literal(&span.text)));
            } else {
                plain.push_str(token);
                plain.push(' ');
            }
        }
        question.plain = plain.trim_end().to_owned();
        let lower = question.plain.to_ascii_lowercase();
        let first = lower.split_whitespace().next().unwrap_or_default();
        const WORK: &[&str] = &[
            "fix",
            "implement",
            "refactor",
            "add",
            "improve",
            "write",
            "rewrite",
            "create",
            "make",
            "change",
            "update",
            "migrate",
            "port",
            "optimize",
            "optimise",
            "convert",
            "build",
            "move",
            "rename",
            "extract",
            "delete",
            "remove",
            "clean",
            "document",
            "test",
            "debug",
            "review",
            "upgrade",
            "support",
            "introduce",
            "generate",
        ];
        question.work = WORK.contains(&first);
        question.how = ["how", "where", "when", "who"].contains(&first);
        question.what = ["what", "what's", "which", "describe", "explain"].contains(&first);
        const ABOUT: &[&str] = &[
            "what is this",
            "what does this project",
            "what does this repo",
            "what does this program",
            "what's this",
            "describe this",
            "explain this project",
            "explain this repo",
            "explain the project",
            "explain this codebase",
            "what is the project",
            "overview",
            "give me an overview",
            "summarize this project",
            "summarize this repo",
            "summarise this project",
            "tell me about this",
            "explain the codebase",
            "explain the architecture",
            "what does this codebase",
        ];
        question.overview = ABOUT.iter().any(|about| lower.starts_with(about)) && question.literals.is_empty();
        let prose = ["how do i ", "how can i ", "how to ", "what is ", "what's ", "how should i "];
        question.prose = prose.iter().any(|start| lower.starts_with(start))
            || ["readme", "documentation", "documented", "docs"].iter().any(|word| lower.contains(word));
        question
    }
}

/// Programs that a bare "run x" is believed for.
const PROGRAMS: &[&str] = &[
    "cargo",
    "rustc",
    "npm",
    "npx",
    "pnpm",
    "yarn",
    "bun",
    "deno",
    "node",
    "git",
    "ls",
    "pwd",
    "echo",
    "cat",
    "make",
    "just",
    "python",
    "python3",
    "pip",
    "uv",
    "pytest",
    "ruff",
    "go",
    "mvn",
    "gradle",
    "dotnet",
    "bash",
    "sh",
    "date",
    "uname",
    "whoami",
    "env",
    "printf",
    "sleep",
    "true",
    "false",
    "rg",
    "grep",
    "find",
    "head",
    "tail",
    "wc",
    "sort",
    "sed",
    "awk",
    "curl",
    "docker",
    "kubectl",
    "terraform",
    "ruby",
    "bundle",
    "rake",
    "php",
    "composer",
    "mix",
    "swift",
    "cmake",
    "ninja",
    "tsc",
    "eslint",
    "touch",
    "mkdir",
    "rm",
    "cp",
    "mv",
    "chmod",
    "diff",
    "tree",
    "du",
    "df",
    "ps",
    "gh",
    "zig",
    "nix",
    "id",
    "which",
    "test",
    "seq",
    "tee",
];

/// The content of a file: whole lines.
fn whole_lines(span: &Span) -> String {
    if span.text.is_empty() || span.text.ends_with('\n') { span.text.clone() } else { format!("{}\n", span.text) }
}

/// A pattern without a directory means: anywhere.
fn deep(pattern: &str) -> String {
    if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") }
}

fn clip_literal(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}
