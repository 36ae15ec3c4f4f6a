//! Words that are paths, and which lines of them are meant.

/// Names without an ending that are files all the same.
const BARE_NAMES: &[&str] =
    &["readme", "license", "makefile", "dockerfile", "changelog", "justfile", "gemfile", "rakefile", "procfile"];

/// Whether a word is written like a path.
pub(super) fn looks_like_path(text: &str) -> bool {
    let text = text.strip_prefix('@').unwrap_or(text).trim();
    if text.is_empty()
        || text.len() > 300
        || text.contains("://")
        || text.contains(['\n', '*', '(', '{', '<', '|', '"', '$', '='])
    {
        return false;
    }
    if BARE_NAMES.contains(&text.to_ascii_lowercase().as_str()) {
        return true;
    }
    let (path, _) = cut_lines(text);
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').is_some_and(|(stem, ending)| {
        let plausible = (1..=10).contains(&ending.len()) && ending.starts_with(|c: char| c.is_ascii_alphabetic());
        plausible && ending.chars().all(|c| c.is_ascii_alphanumeric()) && !["e", "i"].contains(&stem)
    });
    if path.contains('/') {
        let rooted = path.starts_with(['/', '.', '~']) || path.ends_with('/');
        let (head, tail) = path.split_once('/').unwrap_or((path, ""));
        // "and/or", "read/write": two plain words are prose unless the first is a usual directory.
        let usual =
            ["src", "lib", "test", "tests", "docs", "app", "crates", "packages", "cmd", "internal", "pkg", "bin"];
        return rooted || ending || usual.contains(&head) || tail.contains('/');
    }
    ending
}

/// `src/a.rs:10-20`, `src/a.rs#L10`: the path and the lines.
pub(super) fn path_with_lines(text: &str) -> Option<(String, Option<(u64, u64)>)> {
    if !looks_like_path(text) {
        return None;
    }
    let (path, lines) = cut_lines(text.strip_prefix('@').unwrap_or(text));
    Some((path.to_owned(), lines))
}

fn cut_lines(text: &str) -> (&str, Option<(u64, u64)>) {
    let Some((path, tail)) = text.rsplit_once(":").or_else(|| text.rsplit_once("#")) else { return (text, None) };
    let tail = tail.trim_start_matches('L');
    let (first, last) = tail.split_once('-').unwrap_or((tail, tail));
    match (first.parse::<u64>(), last.trim_start_matches('L').parse::<u64>()) {
        (Ok(first), Ok(last)) if !path.is_empty() => (path, Some((first.max(1), last.max(first).max(1)))),
        _ => (text, None),
    }
}

/// "lines 10-20", "lines 10 to 20", "line 7", "the first 30 lines".
pub(super) fn spoken_lines(rest: &str) -> Option<(u64, u64)> {
    let lower = rest.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty()).collect();
    let at = words.iter().position(|word| ["line", "lines"].contains(word))?;
    let number = |word: Option<&&str>| word.and_then(|word| word.trim_matches(['.', ',']).parse::<u64>().ok());
    if at >= 2 && words[at - 2] == "first" {
        return number(words.get(at - 1)).map(|count| (1, count.max(1)));
    }
    let range = words.get(at + 1)?;
    if let Some((first, last)) = range.split_once(['-', '\u{2013}']) {
        let (first, last) = (first.parse::<u64>().ok()?.max(1), last.parse::<u64>().ok()?);
        return Some((first, last.max(first)));
    }
    let first = number(Some(range))?.max(1);
    let joined = words.get(at + 2).is_some_and(|word| ["to", "and", "until", "through"].contains(word));
    let last = if joined { number(words.get(at + 3)).unwrap_or(first) } else { first };
    Some((first, last.max(first)))
}
