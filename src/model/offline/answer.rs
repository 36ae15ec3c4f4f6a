//! How answers look: fences, citations, reasons for what was not done.

use super::blocks::{Definition, Extract};
use super::view::{Done, View};
use super::words::quoted;

/// A fenced block that holds whatever is in it.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// What an editor calls the language of a file, by its ending.
pub(super) fn language(path: &str) -> &'static str {
    let ending =
        path.rsplit(['/', '\\']).next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, ending)| ending);
    match ending {
        "rs" => "rust",
        "py" => "python",
        "js" | "mjs" | "cjs" => "javascript",
        "jsx" => "jsx",
        "ts" | "mts" => "typescript",
        "tsx" => "tsx",
        "go" => "go",
        "java" => "java",
        "kt" => "kotlin",
        "swift" => "swift",
        "rb" => "ruby",
        "php" => "php",
        "cs" => "csharp",
        "c" | "h" => "c",
        "cc" | "cpp" | "cxx" | "hpp" => "cpp",
        "sh" | "bash" => "bash",
        "toml" => "toml",
        "json" | "jsonc" => "json",
        "yaml" | "yml" => "yaml",
        "md" => "markdown",
        "html" => "html",
        "css" => "css",
        "sql" => "sql",
        "lua" => "lua",
        "zig" => "zig",
        "ex" | "exs" => "elixir",
        "hs" => "haskell",
        _ => "",
    }
}

/// Lines without the indentation they have in common.
pub(super) fn dedented(lines: &[(u64, String)]) -> String {
    let filled = lines.iter().filter(|(_, text)| !text.trim().is_empty());
    let common = filled.map(|(_, text)| text.len() - text.trim_start_matches([' ', '\t']).len()).min().unwrap_or(0);
    let cut = lines.iter().map(|(_, text)| super::sentence::clip(text.get(common..).unwrap_or_default(), 160));
    cut.collect::<Vec<_>>().join("\n")
}

/// One place with its lines, as an entry of the answer.
pub(super) fn cited(view: &View, number: usize, extract: &Extract) -> String {
    let path = view.relative(&extract.path);
    let mut head = format!("{number}. `{path}:{}`", extract.line);
    if let Some(what) = extract.what.as_ref().map(named) {
        let inside = if extract.inside { "in " } else { "" };
        head.push_str(&format!(" — {inside}{what}"));
    }
    format!("{head}\n\n{}", fenced(language(&path), &dedented(&extract.lines)))
}

/// "`fn matches`", "the section “Set-up”".
pub(super) fn named(what: &Definition) -> String {
    match what.kind.as_str() {
        "section" => format!("the section “{}”", what.name),
        "function" => quoted(&format!("{}()", what.name)),
        kind => quoted(&format!("{kind} {}", what.name)),
    }
}

/// Why a call did nothing, in one sentence that a log reader understands without context.
/// `what` says what was to be done: "running `x`".
pub(super) fn not_done(what: &str, done: &Done) -> String {
    if done.missing {
        return format!("Not done: {what}, because the `{}` tool is not offered in this mode.", done.name);
    }
    let reason = reason(&done.text);
    if is_denial(&done.text) {
        return format!(
            "Not done: {what} was not allowed ({reason}). Nothing was changed, and I will not try it again."
        );
    }
    format!("Not done: {what} failed ({reason}).")
}

/// Whether a failure means that the user or a rule said no.
pub(super) fn is_denial(text: &str) -> bool {
    let text = text.to_lowercase();
    let says =
        ["reject", "denied", "deny", "denies", "not allowed", "not permitted", "permission", "forbid", "refused by"];
    says.iter().any(|word| text.contains(word))
}

fn reason(text: &str) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason was given");
    super::sentence::clip(first.trim_end_matches(['.', ':']), 300)
}

/// "1 line", "2 lines".
pub(super) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 {
        ""
    } else if what.ends_with("ch") {
        "es"
    } else {
        "s"
    };
    format!("{number} {what}{plural}")
}
