//! Converts lines to another indentation, also between tabs and spaces. Pure.

/// Returns the spaces and tabs at the beginning of a line.
pub(crate) fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Gives new lines the indentation of their destination. The mapping between indentations is
/// derived from the old lines and the lines found.
pub(crate) fn reindent(new: &str, old: &[&str], found: &[&str]) -> String {
    let filled = |lines: &[&str]| -> Vec<String> {
        lines
            .iter()
            .filter(|line| !line.trim().is_empty())
            .map(|line| indentation(line).to_owned())
            .collect()
    };
    // Lines with equal text are paired first; then lines at the same position.
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for (old, found) in old.iter().zip(found) {
        let from = indentation(old);
        let to = indentation(found);
        if old.trim() == found.trim()
            && !old.trim().is_empty()
            && !pairs.iter().any(|(seen, _)| *seen == from)
        {
            pairs.push((from, to));
        }
    }
    if pairs.is_empty()
        && let (Some(from), Some(to)) = (filled(old).first(), filled(found).first())
    {
        let from = from.len();
        let to = to.len();
        pairs.push((
            &old[first_filled(old)][..from],
            &found[first_filled(found)][..to],
        ));
    }
    if pairs.iter().all(|(from, to)| from == to) {
        return new.to_owned();
    }
    // The model quoted the old text without its indentation, but wrote the new one with it.
    if let Some((from, to)) = pairs.iter().min_by_key(|(from, _)| from.len())
        && to.len() > from.len()
        && filled(&new.split('\n').collect::<Vec<_>>())
            .iter()
            .all(|has| has.starts_with(to))
    {
        return new.to_owned();
    }
    let mut out = String::with_capacity(new.len());
    for (n, line) in new.split('\n').enumerate() {
        if n > 0 {
            out.push('\n');
        }
        if line.trim().is_empty() {
            continue;
        }
        let has = indentation(line);
        out.push_str(&translate(has, &pairs));
        out.push_str(&line[has.len()..]);
    }
    out
}

/// Returns the index of the first line that is not blank, or 0.
fn first_filled(lines: &[&str]) -> usize {
    lines
        .iter()
        .position(|line| !line.trim().is_empty())
        .unwrap_or(0)
}

/// Converts one indentation to that of the file.
fn translate(has: &str, pairs: &[(&str, &str)]) -> String {
    if let Some((_, to)) = pairs.iter().find(|(from, _)| *from == has) {
        return (*to).to_owned();
    }
    // Convert the longest known prefix, and the rest step by step.
    let base = pairs
        .iter()
        .filter(|(from, _)| has.starts_with(from))
        .max_by_key(|(from, _)| from.len());
    if let Some((from, to)) = base {
        return format!("{to}{}", convert_rest(&has[from.len()..], pairs));
    }
    // If it is less than any known one, reduce the smallest known one accordingly.
    let Some((from, to)) = pairs.iter().min_by_key(|(from, _)| from.len()) else {
        return has.to_owned();
    };
    let less = convert_rest(&from[has.len().min(from.len())..], pairs).len();
    to[..to.len().saturating_sub(less)].to_owned()
}

/// Converts further indentation between the model's and the file's use of spaces and tabs.
fn convert_rest(rest: &str, pairs: &[(&str, &str)]) -> String {
    if consists_of(rest, b' ') && pairs.iter().any(|(_, to)| consists_of(to, b'\t')) {
        let width = tab_width(
            pairs
                .iter()
                .map(|(from, to)| (from.len(), to.len()))
                .collect(),
        );
        return "\t".repeat(rest.len().div_ceil(width));
    }
    if consists_of(rest, b'\t') && pairs.iter().any(|(_, to)| consists_of(to, b' ')) {
        let width = tab_width(
            pairs
                .iter()
                .map(|(from, to)| (to.len(), from.len()))
                .collect(),
        );
        return " ".repeat(rest.len() * width);
    }
    rest.to_owned()
}

fn consists_of(text: &str, byte: u8) -> bool {
    !text.is_empty() && text.bytes().all(|b| b == byte)
}

/// Returns the number of spaces for a tab: derived from the differences between two lines,
/// otherwise from a single line, otherwise four.
fn tab_width(pairs: Vec<(usize, usize)>) -> usize {
    let further = pairs.iter().flat_map(|a| {
        pairs
            .iter()
            .map(move |b| (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1)))
    });
    let whole =
        |(blanks, tabs): (usize, usize)| (tabs > 0 && blanks >= tabs).then(|| blanks / tabs);
    further
        .filter_map(whole)
        .min()
        .or_else(|| pairs.iter().copied().filter_map(whole).min())
        .unwrap_or(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_the_indentation_of_their_destination() {
        // New text, the quoted text, the text in the file, result.
        let table: &[(&str, &[&str], &[&str], &str)] = &[
            ("a\n  b", &["a"], &["a"], "a\n  b"),
            ("a\n  b\n\nc", &["a"], &["    a"], "    a\n      b\n\n    c"),
            ("  a\n    b", &["  a"], &["a"], "a\n  b"),
            (
                "if x {\n    y\n}",
                &["if x {", "    z"],
                &["\tif x {", "\t\tz"],
                "\tif x {\n\t\ty\n\t}",
            ),
            (
                "f\n  g\n    h",
                &["f", "  x"],
                &["f", "\tx"],
                "f\n\tg\n\t\th",
            ),
            (
                "f\n\tg\n\t\th",
                &["f", "\tx"],
                &["f", "  x"],
                "f\n  g\n    h",
            ),
            ("  a\nb", &["  a"], &["      a"], "      a\n    b"),
            ("    a\n      b", &["a"], &["    a"], "    a\n      b"),
        ];
        for (new, old, found, expected) in table {
            assert_eq!(
                reindent(new, old, found),
                *expected,
                "{new:?} {old:?} {found:?}"
            );
        }
    }
}
