//! Text as Markdown: code, lists, and sentences that Markdown shows unchanged.

/// Returns text as a code block, with a fence longer than any run of backticks in it.
pub fn code_block(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "{fence}{language}\n{}\n{fence}",
        text.trim_end_matches('\n')
    )
}

/// Escapes a sentence so that Markdown shows it unchanged: characters that open a construct, and
/// markers that could form a pair.
pub fn escape(sentence: &str) -> String {
    let pairs = |mark: char| sentence.matches(mark).count() > 1;
    let mut out = String::with_capacity(sentence.len());
    for c in sentence.chars() {
        if matches!(c, '<' | '[' | '\\') || (matches!(c, '*' | '_' | '`' | '~') && pairs(c)) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Returns a name as inline code, with delimiters longer than any run of backticks in it.
pub fn inline_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let mark = "`".repeat(longest + 1);
    let padding = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{mark}{padding}{text}{padding}{mark}")
}

/// Returns a list with one item for each line of Markdown.
pub fn list(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("- {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
