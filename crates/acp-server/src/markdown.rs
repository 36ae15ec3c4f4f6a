//! Words of ours, and of commands, as Markdown that shows them as they are.

/// Text as a block of code in a language, with a fence that nothing in it closes.
pub fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// A sentence as Markdown that shows it as it is: marks that could pair, or begin something, are escaped.
pub fn plainly(sentence: &str) -> String {
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

/// A name as code within a sentence, whatever letters it has.
pub fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let mark = "`".repeat(longest + 1);
    let room = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{mark}{room}{text}{room}{mark}")
}

/// Lines of Markdown as a list.
pub fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
}
