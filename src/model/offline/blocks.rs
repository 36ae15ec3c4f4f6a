//! What a file is made of: definitions, told by their looks in any usual language, the comments on
//! them, and which of them answer a question.

use super::order::Question;
use super::places::{Weights, Window, is_import, literal_score, worth};
use super::words::{Found, Terms};

/// A line that gives something its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// `fn`, `struct`, `class` … as the language says it; `section` for a heading.
    pub(super) kind: String,
    /// The name.
    pub(super) name: String,
}

/// Words that may stand before the one that says what is defined.
const BEFORE: &[&str] = &[
    "pub",
    "export",
    "default",
    "async",
    "static",
    "public",
    "private",
    "protected",
    "internal",
    "final",
    "abstract",
    "unsafe",
    "inline",
    "declare",
    "virtual",
    "override",
    "extern",
    "sealed",
    "partial",
    "open",
    "data",
    "suspend",
    "constexpr",
    "readonly",
    "local",
    "typedef",
];
const DEFINES: &[&str] = &[
    "fn",
    "struct",
    "enum",
    "trait",
    "type",
    "const",
    "static",
    "impl",
    "mod",
    "macro_rules!",
    "class",
    "interface",
    "def",
    "func",
    "function",
    "module",
    "object",
    "record",
    "namespace",
    "#define",
    "union",
    "protocol",
    "let",
    "var",
    "fun",
];

/// What a line defines, in any of the usual languages. By its looks: nothing is parsed.
/// In prose only headings define something, elsewhere they are comments.
pub(super) fn definition(line: &str, prose: bool) -> Option<Definition> {
    let indent = line.len() - line.trim_start().len();
    let text = line.trim();
    if prose {
        let title = text.trim_start_matches('#').strip_prefix(' ').filter(|_| indent == 0 && text.starts_with('#'))?;
        return Some(Definition { kind: "section".into(), name: title.trim().to_owned() });
    }
    let mut words = text.split_whitespace().peekable();
    let mut word = words.next()?;
    loop {
        let head = word.split('(').next().unwrap_or(word);
        let followed = |next: Option<&&str>| next.is_some_and(|next| DEFINES.contains(next) || BEFORE.contains(next));
        // `static` alone defines, before another word it only qualifies.
        let skipped = BEFORE.contains(&head) && (word != "static" || followed(words.peek()));
        let const_fn = word == "const" && words.peek().is_some_and(|next| ["fn", "unsafe", "async"].contains(next));
        let abi = word.starts_with('"') && text.contains("fn ");
        if !(skipped || const_fn || abi) {
            break;
        }
        word = words.next()?;
    }
    // Generics may follow the word without a space.
    let (word, generics) = match word.split_once('<') {
        Some(("impl", _)) => ("impl", text.split_once('<').map_or("", |(_, generics)| generics)),
        _ => (word, ""),
    };
    if DEFINES.contains(&word) {
        let local = ["let", "var"].contains(&word) || (word == "const" && !line.contains(':'));
        if local && indent > 0 {
            return None;
        }
        let rest: Vec<&str> = words.collect();
        let rest = rest.join(" ");
        if word == "mod" && rest.ends_with(';') {
            return None;
        }
        let rest = match word {
            // Go's receiver, Rust's parameters of an impl.
            "func" if rest.starts_with('(') => {
                rest.split_once(')').map_or(rest.as_str(), |(_, rest)| rest).trim().to_owned()
            }
            "impl" => {
                let whole = if generics.is_empty() { rest.as_str() } else { generics };
                let whole =
                    if generics.is_empty() { whole } else { whole.split_once("> ").map_or(whole, |(_, rest)| rest) };
                let name = whole.trim_end_matches('{').trim();
                return (!name.is_empty()).then(|| Definition { kind: "impl".into(), name: name.to_owned() });
            }
            _ => rest,
        };
        let name: String = rest
            .trim_start_matches(['*', '&'])
            .chars()
            .take_while(|c| c.is_alphanumeric() || "_$".contains(*c))
            .collect();
        let kind = word.trim_start_matches('#').trim_end_matches("_rules!").to_owned();
        return (!name.is_empty()).then_some(Definition { kind, name });
    }
    // C and its family: a name with parameters and a body, at the left edge.
    let brace = text.ends_with('{') && indent == 0;
    let head = text.split('(').next()?;
    let name = head.trim_end().rsplit([' ', '*', ':']).next()?;
    let plausible = brace && head.len() < text.len() && head.trim().contains(' ') && !name.is_empty();
    let control = ["if", "for", "while", "switch", "match", "else", "return", "describe", "it"]
        .contains(&head.split_whitespace().next()?);
    let simple = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (plausible && !control && simple).then(|| Definition { kind: "function".into(), name: name.to_owned() })
}

/// Something to show: lines of a file, and the one to point at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Extract {
    /// The file.
    pub(super) path: String,
    /// The line to point at, counted from 1.
    pub(super) line: u64,
    /// The lines to show, one after the other.
    pub(super) lines: Vec<(u64, String)>,
    /// What is defined there, or what it stands in.
    pub(super) what: Option<Definition>,
    /// The line stands inside of it, and does not define it.
    pub(super) inside: bool,
    /// What its author says about it: one sentence.
    pub(super) says: Option<String>,
    /// More is better.
    pub(super) score: f64,
}

/// A shown extract is at most this long.
const LONGEST: usize = 14;

/// The blocks of a window that are to the point, best first.
pub(super) fn extracts(
    window: &Window,
    terms: &Terms,
    weights: &Weights,
    question: &Question,
    most: usize,
) -> Vec<Extract> {
    let factor = worth(&window.path, terms, question.prose);
    let lines = &window.lines;
    let text = is_prose(&window.path);
    let stem = file_stem(&window.path);
    let mut candidates: Vec<Extract> = Vec::new();
    let mut container: Option<(usize, String)> = None;
    let mut in_tests = false;
    for block in blocks(lines, text) {
        let Some((_, head)) = lines.get(block.head) else { continue };
        if container.as_ref().is_some_and(|(deep, _)| indent(head) <= *deep) {
            container = None;
        }
        in_tests |= head.trim_start().starts_with("mod tests {");
        let what = definition(head, text);
        let outer = container.as_ref().map_or("", |(_, name)| name.as_str());
        let inner = what.as_ref().map_or("", |what| what.name.as_str());
        let path = format!("{stem} {outer} {inner}");
        let judged = judge(lines, &block, terms, weights, inner, &path);
        if let Some(what) = what.as_ref().filter(|what| CONTAINERS.contains(&what.kind.as_str())) {
            container = Some((indent(head), what.name.clone()));
        }
        let Judged { mut score, line: Some(best) } = judged else { continue };
        if in_tests || lines[block.start..block.head].iter().any(|(_, line)| line.trim() == "#[test]") {
            score *= if terms.terms.iter().any(|term| term.stem == "test") { 1.0 } else { 0.25 };
        }
        score *= match what.as_ref().map(|what| what.kind.as_str()) {
            None => 0.7,
            // The line that opens one says nothing that its members do not say better.
            Some("impl" | "mod" | "namespace" | "module") if block.end - block.start == 1 => continue,
            Some("impl" | "mod" | "namespace" | "module") => 0.5,
            Some("fn" | "def" | "func" | "function" | "fun" | "macro") if question.how => 1.2,
            Some("struct" | "enum" | "trait" | "type" | "class" | "interface" | "record" | "section")
                if question.what =>
            {
                1.2
            }
            Some(_) => 1.0,
        };
        // One that only calls its namesake answers less than the namesake.
        let name = what.as_ref().filter(|what| block.end - block.head <= 3 && what.kind.starts_with('f'));
        let calls = |what: &&Definition| {
            let call = format!("{}(", what.name);
            lines[(block.head + 1).min(block.end)..block.end].iter().any(|(_, line)| line.contains(&call))
        };
        if name.filter(calls).is_some() {
            score *= 0.7;
        }
        // Point at the definition when it is what was asked for, or when it is close by; else at
        // the line with the words.
        let named = terms.found(inner).own != 0;
        let anchor = if what.is_some() && (named || best < block.head + LONGEST) { block.head } else { best };
        let Some((line, _)) = lines.get(anchor) else { continue };
        candidates.push(Extract {
            path: window.path.clone(),
            line: *line,
            lines: shown(lines, &block, anchor),
            says: says(lines, &block),
            what,
            inside: anchor != block.head,
            score: score * factor,
        });
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.line.cmp(&b.line)));
    candidates.truncate(most);
    candidates
}

/// What a block is worth, and which of its lines is most to the point; none has a word of it.
struct Judged {
    score: f64,
    line: Option<usize>,
}

/// Judges a block by its name, by the names it stands under (`path`: file, type, itself), by what
/// is said about it and by what is in it.
fn judge(lines: &[(u64, String)], block: &Block, terms: &Terms, weights: &Weights, name: &str, path: &str) -> Judged {
    let (named, under) = (terms.found(name), terms.found(path));
    let (mut about, mut body) = (Found::default(), Found::default());
    let mut best = (0.0, None);
    let (mut pairs, mut literal) = (0, 0.0_f64);
    for (at, (_, text)) in lines.iter().enumerate().take(block.end).skip(block.start) {
        let found = terms.found(text);
        let quoted = literal_score(text, terms);
        let score = weights.sum(&found) + found.pairs as f64 + quoted;
        if score > best.0 + 0.01 && !is_import(text) {
            best = (score, Some(at));
        }
        literal = literal.max(quoted);
        pairs = pairs.max(found.pairs);
        let into = if at < block.head { &mut about } else { &mut body };
        into.own |= found.own;
        into.kin |= found.kin;
    }
    let long = ((block.end - block.start) as f64 / 30.0).max(1.0);
    // What a member stands under is its own merit only where its name has part in it.
    let (standing, together) = if named.own == 0 { (0.5, 0) } else { (1.5, (named.pairs + under.pairs).min(2)) };
    let mut score = 3.0 * weights.sum(&named)
        + standing * weights.sum(&under)
        + 3.0 * together as f64
        + 1.5 * weights.sum(&about)
        + weights.sum(&body) / long.sqrt()
        + pairs.min(2) as f64
        + literal;
    // Two words of the question in one place say more than one word twice.
    let own = under.own | about.own | body.own;
    let kin = (under.kin | about.kin | body.kin) & !own;
    let covered = f64::from(own.count_ones()) + f64::from(kin.count_ones()) / 2.0;
    score *= 0.3 + 0.7 * covered / (terms.terms.len() as f64).max(1.0);
    Judged { score, line: best.1 }
}

/// The name of a file without its ending; of a file that is named like all others (`mod.rs`,
/// `index.ts`), the name of its directory.
pub(super) fn file_stem(path: &str) -> String {
    let mut parts = path.rsplit(['/', '\\']);
    let name = parts.next().unwrap_or(path);
    let stem = name.split('.').find(|part| !part.is_empty()).unwrap_or(name);
    match stem {
        "mod" | "index" | "lib" | "main" | "__init__" => parts.next().unwrap_or(stem).to_owned(),
        _ => stem.to_owned(),
    }
}

/// What holds members that are looked at one by one.
const CONTAINERS: &[&str] = &["impl", "mod", "class", "trait", "interface", "namespace", "module", "object"];

/// A definition with the comments above it, as positions in the lines: `start..end`, and the line
/// that defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    start: usize,
    head: usize,
    end: usize,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    ["//", "#[", "/*", "*", "--", "@", "\"\"\"", ";;", "<!--", "# ", "#!"].iter().any(|start| line.starts_with(start))
}

/// Cuts lines into blocks: each definition with what belongs to it, and what stands between.
fn blocks(lines: &[(u64, String)], prose: bool) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut loose = 0;
    let mut at = 0;
    while at < lines.len() {
        let text = lines[at].1.as_str();
        let Some(what) = definition(text, prose) else {
            at += 1;
            continue;
        };
        let mut start = at;
        while start > loose && !prose && is_comment(&lines[start - 1].1) && !lines[start - 1].1.starts_with("//!") {
            start -= 1;
        }
        if start > loose {
            blocks.push(Block { start: loose, head: loose, end: start });
        }
        // A container's members are blocks of their own.
        let container = CONTAINERS.contains(&what.kind.as_str());
        let end = if container { (at + 1).min(lines.len()) } else { end_of(lines, at, prose) };
        blocks.push(Block { start, head: at, end });
        loose = end;
        at = end;
    }
    if loose < lines.len() {
        blocks.push(Block { start: loose, head: loose, end: lines.len() });
    }
    blocks
}

/// Where a definition ends: after the line that closes it at its own indentation, or before the
/// next line that is indented no deeper.
fn end_of(lines: &[(u64, String)], head: usize, prose: bool) -> usize {
    let own = indent(&lines[head].1);
    if lines[head].1.trim_end().ends_with(';') {
        return head + 1;
    }
    let mut at = head + 1;
    while at < lines.len() {
        let text = lines[at].1.as_str();
        let trimmed = text.trim();
        if prose {
            if definition(text, true).is_some() {
                return at;
            }
        } else if !trimmed.is_empty() && indent(text) <= own {
            let body = lines[head..at].iter().any(|(_, line)| line.contains('{'));
            // The rest of a long signature: `) -> X`, `where`, the brace on a line of its own.
            let signature =
                !body && !trimmed.ends_with(';') && (trimmed.starts_with([')', '{']) || trimmed.starts_with("where"));
            let goes_on = trimmed.ends_with('{') && trimmed.starts_with([')', '}', ']']);
            if !signature && !goes_on {
                let closes = trimmed.starts_with(['}', ')', ']']) || trimmed == "end";
                return if closes { at + 1 } else { at };
            }
        }
        at += 1;
    }
    lines.len()
}

/// Which lines of a block to show around a line of it.
fn shown(lines: &[(u64, String)], block: &Block, anchor: usize) -> Vec<(u64, String)> {
    let (start, end) = if anchor == block.head && block.head > block.start {
        // Of a long comment the last lines, next to what they describe.
        (block.start.max(anchor.saturating_sub(5)), block.end)
    } else if anchor == block.head {
        (anchor, block.end)
    } else {
        (anchor.saturating_sub(3).max(block.start), block.end.min(anchor + 8))
    };
    let mut shown: Vec<(u64, String)> = lines[start..end].iter().take(LONGEST).cloned().collect();
    // A line of comment without words is blank, too, but the line pointed at stays.
    let pointed = lines.get(anchor).map(|(line, _)| *line);
    let blank = |line: &(u64, String)| {
        let text = line.1.trim();
        Some(line.0) != pointed
            && (text.is_empty() || ["//", "///", "//!", "*", "/**", "/*", "#", "--"].contains(&text))
    };
    let leading = shown.iter().take_while(|line| blank(line)).count();
    shown.drain(..leading);
    let trailing = shown.iter().rev().take_while(|line| blank(line)).count();
    shown.truncate(shown.len() - trailing);
    shown
}

/// The first sentence of the comment on a definition (or of the text below a heading).
fn says(lines: &[(u64, String)], block: &Block) -> Option<String> {
    let above = lines.get(block.start..block.head)?;
    let mut words: Vec<&str> = above.iter().filter_map(|(_, text)| comment_words(text)).collect();
    if words.is_empty() {
        let below = lines.get(block.head + 1).map(|(_, text)| text.trim())?;
        let docstring = below.strip_prefix("\"\"\"").map(|text| text.trim_end_matches("\"\"\""));
        words.extend(docstring.filter(|text| !text.is_empty()));
    }
    sentence(&words.join(" "))
}

/// The words of a line of comment; none for attributes and code.
fn comment_words(line: &str) -> Option<&str> {
    let line = line.trim();
    let words =
        ["///", "//!", "//", "/**", "/*", "*/", "* ", "# ", "-- "].iter().find_map(|start| line.strip_prefix(start));
    words.map(|words| words.trim_end_matches("*/").trim()).filter(|words| !words.is_empty())
}

/// The comment a file begins with, or the first paragraph of a text: its first two sentences.
pub(super) fn opening(window: &Window) -> Option<(u64, String)> {
    let mut words: Vec<String> = Vec::new();
    let mut first = None;
    let prose = is_prose(&window.path);
    for (line, text) in window.lines.iter().take(60) {
        let trimmed = text.trim();
        let said = if prose {
            let furniture = trimmed.starts_with(['#', '<', '[', '!', '|', '-', '=', '`', '>']);
            (!furniture && !trimmed.is_empty()).then_some(trimmed)
        } else if trimmed.starts_with("#!") || trimmed.starts_with("#[") {
            None
        } else {
            comment_words(text).or_else(|| {
                Some(trimmed.strip_prefix("\"\"\"")?.trim_end_matches("\"\"\"").trim()).filter(|s| !s.is_empty())
            })
        };
        match said {
            Some(said) => {
                first = first.or(Some(*line));
                words.push(said.to_owned());
            }
            None if !words.is_empty() => break,
            None if !prose && !trimmed.is_empty() && !trimmed.starts_with('#') => break,
            None => {}
        }
    }
    let text = words.join(" ");
    let one = sentence(&text)?;
    let two = text.get(one.len()..).and_then(|rest| sentence(rest.trim_start()));
    let both = two.map_or(one.clone(), |two| if one.len() + two.len() < 260 { format!("{one} {two}") } else { one });
    Some((first?, both))
}

/// Whether a file is text for people.
pub(super) fn is_prose(path: &str) -> bool {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path).to_lowercase();
    name.starts_with("readme") || [".md", ".rst", ".txt", ".adoc", ".mdx"].iter().any(|ending| name.ends_with(ending))
}

/// The definitions in a window that stand furthest left, with their lines.
pub(super) fn outline(window: &Window, most: usize) -> Vec<(u64, Definition)> {
    let mut found: Vec<(usize, u64, Definition)> = Vec::new();
    let prose = is_prose(&window.path);
    let mut fence = false;
    for (line, text) in &window.lines {
        if text.trim_start().starts_with("```") {
            fence = !fence;
        }
        if text.trim_start().starts_with("mod tests {") {
            break;
        }
        if let Some(what) = definition(text, prose).filter(|_| !fence) {
            found.push((indent(text), *line, what));
        }
    }
    let deepest = if found.iter().filter(|(indent, ..)| *indent == 0).count() >= 3 { 0 } else { 4 };
    found.into_iter().filter(|(indent, ..)| *indent <= deepest).map(|(_, line, what)| (line, what)).take(most).collect()
}

/// The first sentence of a text, at most about 200 characters.
fn sentence(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.match_indices(". ").map(|(at, _)| at).find(|at| {
        // "e.g. ", "i.e. " end nothing.
        let before = &text[..*at];
        !before.ends_with("e.g") && !before.ends_with("i.e") && !before.ends_with("etc")
    });
    let sentence = end.map_or(text.as_str(), |end| &text[..=end]);
    (!sentence.is_empty()).then(|| super::sentence::clip(sentence, 220))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions() {
        let table = [
            ("pub(crate) async fn ask(&self) -> X {", "fn ask"),
            ("    pub const fn len() {", "fn len"),
            ("pub const LIMIT: usize = 3;", "const LIMIT"),
            ("impl<T: Tool> AnyTool for Erased<T> {", "impl AnyTool for Erased<T>"),
            ("export default class Foo extends Bar {", "class Foo"),
            ("export const handler = async () => {", "const handler"),
            ("def run(self):", "def run"),
            ("func (s *Server) Serve(l net.Listener) error {", "func Serve"),
            ("int main(int argc, char **argv) {", "function main"),
            ("## How it works", "section How it works"),
            ("macro_rules! ids {", "macro ids"),
            ("# no heading", ""),
            ("#define MAX 3", "define MAX"),
            ("mod wildcard;", ""),
            ("    let x = 3;", ""),
            ("if (x) {", ""),
            ("// fn no", ""),
            ("", ""),
        ];
        for (line, expected) in table {
            let found =
                definition(line, line.starts_with("## ")).map(|d| format!("{} {}", d.kind, d.name)).unwrap_or_default();
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_block_is_a_definition_with_its_comments() {
        let text = "//! File.\n\nuse a;\n\n/// Does it.\n/// Well.\n#[inline]\nfn a(\n    x: u8,\n) -> u8\nwhere\n    u8: Copy,\n{\n    x\n}\n\nstruct B;\n";
        let lines: Vec<(u64, String)> = text.lines().zip(1..).map(|(text, n)| (n, text.to_owned())).collect();
        let cut: Vec<(usize, usize, usize)> = blocks(&lines, false).iter().map(|b| (b.start, b.head, b.end)).collect();
        assert_eq!(cut, [(0, 0, 4), (4, 7, 15), (15, 15, 16), (16, 16, 17)]);
        assert_eq!(says(&lines, &Block { start: 4, head: 7, end: 15 }).as_deref(), Some("Does it."));
        let window = Window { path: "a.rs".into(), lines, ..Window::default() };
        assert_eq!(opening(&window), Some((1, "File.".into())));
    }
}
