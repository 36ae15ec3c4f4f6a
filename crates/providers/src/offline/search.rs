//! Answers questions about one name ([`answer`]): searches for its definition with the tool `grep`,
//! and shows the code with the tool `read`.

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use serde_json::json;

use super::instruction::{InstructionToken, code_span, content_lines, fenced, read};
use super::turn::{EarlyEnd, OfflineResult, OfflineTurn, unable};

/// The maximum number of places shown.
const MAX_SHOWN: usize = 2;
/// The number of lines read above a definition.
const LINES_ABOVE: usize = 4;
/// The number of lines read from the first line of a definition on.
const LINES_FROM: usize = 12;

/// A pattern for the lines that define `NAME`, in the common languages. Its alternatives are:
/// definitions with a keyword; constants, whose name is not followed by another one (as in "static
/// void main("); variables outside of functions; functions without a keyword, as in C and Java.
pub(super) const DEFINITION: &str = concat!(
    r"^\s*(?:#\[[^\]]*\]\s*)?(?:(?:pub(?:\([^)]*\))?|export|default|async|unsafe|extern|static|public|private|",
    r"protected|internal|final|abstract|inline|declare|virtual|override|sealed|partial|data|suspend|constexpr|",
    r#"readonly|local|typedef|const|"[^"]*")\s+)*"#,
    r"(?:(?:fn|struct|enum|union|trait|type|macro_rules!|class|interface|def|func|function|fun|module|object|",
    r"record|namespace|protocol|#define)\s+(?:\([^)]*\)\s*|self\.|\*)?NAME(?:[^.\w$]|$)",
    r"|(?:const|static)\s+(?:mut\s+)?NAME\s*(?:[^\s\w]|$))",
    r"|^(?:export\s+)?(?:let|var|val)\s+NAME\b",
    r"|^(?:\s*(?:public|private|protected|internal|static)\s)?[A-Za-z_][\w:<>,*&\[\] ]*[\s*&]NAME\s*",
    r"\([^;=]*[{(,)]\s*$",
);

/// A line that contains a definition.
struct Definition {
    path: String,
    /// The line number, from 1.
    number: usize,
    text: String,
}

/// Answers a question.
pub(super) fn answer(
    turn: &OfflineTurn<'_>,
    tokens: &[InstructionToken<'_>],
) -> OfflineResult<String> {
    /// Words that are not the name asked about. Some mean all of the code, and so no part of it.
    const FILLERS: &str = "where what which is are was am does do the a an of i it this that find show me live lives \
        defined declared implemented located definition can you project repository repo codebase code program app \
        application package library software directory folder files everything";
    /// The words of a prompt that asks to see a file.
    const READERS: &str = "read open print cat view see look at in inside content contents text please could would \
        now first again line lines about tell";
    let words: Vec<&InstructionToken<'_>> = tokens
        .iter()
        .filter(|token| !token.is_one_of(FILLERS))
        .collect();
    if let Some(path) = tokens.iter().find(|token| token.is_path()) {
        let mut others = words
            .iter()
            .filter(|token| token.text != path.text && !token.is_one_of(READERS));
        if others.next().is_some() {
            let path = code_span(path.text);
            return Err(unable(&format!(
                "I can show {path}, but I do not understand the rest of this instruction."
            )));
        }
        return read(turn, path.text.trim_start_matches('@'));
    }
    let is_only_word =
        words.len() == 1 && (tokens.len() > 1 || words[0].text.starts_with(char::is_uppercase));
    if let Some(name) = words.iter().find_map(|token| name(token, is_only_word)) {
        definitions(turn, name)
    } else if words.len() < 2 {
        Err(EarlyEnd::Unable(prompts::offline::HELP.trim().to_owned()))
    } else {
        Err(unable(
            "I look up a single name, and cannot tell which word of this question is one. Put it in quotation marks.",
        ))
    }
}

/// Returns the name in a token; `None` if it may be an ordinary word. It is a name if it is the only
/// word of the question (`is_only_word`), quoted, followed by `()`, or spelt as in code.
fn name<'a>(token: &InstructionToken<'a>, is_only_word: bool) -> Option<&'a str> {
    let name = token.text.trim_end_matches("()");
    let is_marked = token.quoted || name != token.text || name.contains('_') || name.contains("::");
    let has_inner_capital = name.chars().skip(1).any(char::is_uppercase);
    let is_name =
        is_only_word || is_marked || has_inner_capital && name.contains(char::is_lowercase);
    let fits = |c: char| c.is_alphanumeric() || "_$:.".contains(c);
    (is_name && name.ends_with(char::is_alphanumeric) && name.chars().all(fits)).then_some(name)
}

/// Shows the likeliest definitions of a name with their code. First searches for the name itself,
/// because this is a readable pattern for the user; if there are more uses than a search shows,
/// searches with the pattern of definitions.
fn definitions(turn: &OfflineTurn<'_>, name: &str) -> OfflineResult<String> {
    let last = name.rsplit([':', '.']).next().unwrap_or(name);
    let word = last.replace('$', r"\$");
    let pattern = DEFINITION.replace("NAME", &word);
    let doing = format!("Looking for the definition of {}.", code_span(name));
    let uses = json!({"pattern": word, "word": true});
    let mut printed = turn.calls(doing, vec![("grep", uses)])?.concat();
    if is_cut(&printed) {
        let doing = "It is used often. Looking for its definitions only.".to_owned();
        let definitions = json!({"pattern": pattern});
        printed = turn.calls(doing, vec![("grep", definitions)])?.concat();
    }
    let mut found = matches(turn, &printed);
    let matcher = RegexMatcher::new(&pattern).ok();
    found.retain(|line| {
        let is_match = |matcher: &RegexMatcher| matcher.is_match(line.text.as_bytes());
        matcher
            .as_ref()
            .is_none_or(|matcher| is_match(matcher).unwrap_or(true))
    });
    found.sort_by_cached_key(Definition::rank);
    found.truncate(MAX_SHOWN);
    if found.is_empty() {
        let why = format!("I found no definition of {}.", code_span(last));
        return Err(unable(&why));
    }
    let first = |line: &Definition| line.number.saturating_sub(LINES_ABOVE).max(1);
    let call = |line: &Definition| {
        let offset = first(line);
        let limit = line.number.saturating_add(LINES_FROM) - offset;
        let given = json!({"filePath": line.path, "offset": offset, "limit": limit});
        ("read", given)
    };
    let read = turn.calls("Reading it.".to_owned(), found.iter().map(call).collect())?;
    let shown = found.iter().zip(&read).map(|(line, printed)| {
        let lines = content_lines(printed);
        let code = passage(&lines, line.number - first(line));
        format!(
            "`{}:{}`\n\n{}",
            line.path,
            line.number,
            fenced(&line.path, &code)
        )
    });
    Ok(shown.collect::<Vec<_>>().join("\n\n"))
}

/// True if the output of the tool `grep` has only some of the matches.
fn is_cut(printed: &str) -> bool {
    let heading = printed.lines().next().unwrap_or_default();
    heading.contains(" are shown, ")
}

/// Parses the output of the tool `grep`: `path:`, then `  Line n: text` for each match.
fn matches(turn: &OfflineTurn<'_>, printed: &str) -> Vec<Definition> {
    let mut found = Vec::new();
    let mut path = "";
    for line in printed.lines() {
        if let Some((number, text)) = line
            .strip_prefix("  Line ")
            .and_then(|rest| rest.split_once(": "))
        {
            found.extend(number.parse().ok().map(|number| Definition {
                path: turn.relative(path).to_owned(),
                number,
                text: text.to_owned(),
            }));
        } else if let Some(named) = line.strip_suffix(':') {
            // The heading of a file with many matches also has the number of shown ones.
            path = match named.rsplit_once(" (") {
                Some((path, part)) if part.contains(" of ") => path,
                _ => named,
            };
        }
    }
    found
}

impl Definition {
    /// Returns the sort key, which is lowest for the likeliest definition. In this order of
    /// precedence: sources before tests and prose, and those before generated files; public before
    /// private definitions; outer before inner ones.
    fn rank(&self) -> impl Ord + use<> {
        const UNLIKELY: [&str; 2] = [
            "test tests testdata fixtures mock bench benches examples html json md rst txt adoc",
            "node_modules vendor dist target generated lock map svg csv log",
        ];
        let parts = self.path.split(|c: char| !c.is_alphanumeric() && c != '_');
        let remoteness = parts
            .filter_map(|part| {
                UNLIKELY
                    .iter()
                    .position(|list| list.split(' ').any(|name| name == part))
            })
            .max();
        let is_public = ["pub", "export"]
            .iter()
            .any(|word| self.text.contains(word));
        (
            remoteness,
            !is_public,
            indent(&self.text),
            self.path.clone(),
            self.number,
        )
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns a definition: the comments and attributes above it, and its code up to the first line
/// that does not belong to it.
fn passage<'a>(lines: &[&'a str], head: usize) -> Vec<&'a str> {
    let starts = |line: &str, starts: &str| {
        let line = line.trim_start();
        starts.split(' ').any(|start| line.starts_with(start))
    };
    let margin = lines.get(head).map_or(0, |line| indent(line));
    let above = |line: &&&str| starts(line, "// #[ /* * -- @") && !starts(line, "//!");
    let below = |line: &&&str| {
        line.trim().is_empty()
            || indent(line) > margin
            || indent(line) == margin && starts(line, "{ } ( ) [ ] where end")
    };
    let (before, from) = lines.split_at_checked(head).unwrap_or_default();
    let start = before.len() - before.iter().rev().take_while(above).count();
    let end = head + 1 + from.iter().skip(1).take_while(below).count();
    let lines = lines.iter().take(end).skip(start);
    lines
        .map(|line| line.get(margin..).unwrap_or_default())
        .collect()
}
