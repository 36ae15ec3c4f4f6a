//! Brace expansion: `{a,b}` and `{1..3}`.

use super::ExpandedPiece;

/// The maximum number of words that one word may become.
const MAX_WORDS: usize = 512;

/// Expands braces. `None` if there would be too many words.
pub(super) fn braces(parts: &[ExpandedPiece]) -> Option<Vec<Vec<ExpandedPiece>>> {
    let opens = parts
        .iter()
        .filter(|part| matches!(part, ExpandedPiece::Brace('{')))
        .count();
    if opens == 0 {
        return Some(vec![plain(parts)]);
    }
    if opens > 24 {
        return None;
    }
    let Some((open, close, commas)) = first_brace(parts) else {
        return Some(vec![plain(parts)]);
    };
    let mut middles: Vec<Vec<ExpandedPiece>> = vec![];
    if commas.is_empty() {
        middles.extend(
            sequence(&parts[open + 1..close])?
                .into_iter()
                .map(|text| vec![ExpandedPiece::Text(text)]),
        );
    } else {
        let mut from = open + 1;
        for end in commas.iter().copied().chain([close]) {
            middles.extend(braces(&parts[from..end])?);
            from = end + 1;
        }
    }
    let tails = braces(&parts[close + 1..])?;
    if middles.len() * tails.len() > MAX_WORDS {
        return None;
    }
    let head = plain(&parts[..open]);
    let join = |middle: &Vec<ExpandedPiece>, tail: &Vec<ExpandedPiece>| {
        head.iter().chain(middle).chain(tail).cloned().collect()
    };
    Some(
        middles
            .iter()
            .flat_map(|middle| tails.iter().map(move |tail| join(middle, tail)))
            .collect(),
    )
}

fn plain(parts: &[ExpandedPiece]) -> Vec<ExpandedPiece> {
    let unbraced = |part: &ExpandedPiece| match part {
        ExpandedPiece::Brace(c) => ExpandedPiece::Text(c.to_string()),
        part => part.clone(),
    };
    parts.iter().map(unbraced).collect()
}

/// Returns the positions of the first braces that expand: the opening and the closing one, and the
/// commas. Without commas they are a sequence.
fn first_brace(parts: &[ExpandedPiece]) -> Option<(usize, usize, Vec<usize>)> {
    for open in 0..parts.len() {
        if !matches!(parts[open], ExpandedPiece::Brace('{')) {
            continue;
        }
        let mut depth = 0_usize;
        let mut commas = vec![];
        for (at, part) in parts.iter().enumerate().skip(open) {
            match part {
                ExpandedPiece::Brace('{') => depth += 1,
                ExpandedPiece::Brace(',') if depth == 1 => commas.push(at),
                ExpandedPiece::Brace('}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let sequence = commas.is_empty() && is_sequence(&parts[open + 1..at]);
                if !commas.is_empty() || sequence {
                    return Some((open, at, commas));
                }
                break;
            }
        }
    }
    None
}

fn ends(parts: &[ExpandedPiece]) -> Option<(&str, &str)> {
    let [ExpandedPiece::Text(text)] = parts else {
        return None;
    };
    let (from, rest) = text.split_once("..")?;
    let to = rest.split("..").next()?;
    Some((from, to))
}

fn is_sequence(parts: &[ExpandedPiece]) -> bool {
    ends(parts).is_some_and(|(from, to)| {
        (is_number(from) && is_number(to)) || (is_letter(from) && is_letter(to))
    })
}

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

fn is_letter(text: &str) -> bool {
    text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns the members of `{a..c}`, or `None` if there are too many. A step is ignored: additional
/// words do no harm.
fn sequence(parts: &[ExpandedPiece]) -> Option<Vec<String>> {
    let (from, to) = ends(parts)?;
    if let (Ok(a), Ok(b)) = (from.parse::<i64>(), to.parse::<i64>()) {
        if a.abs_diff(b) > 256 {
            return None;
        }
        return Some(
            (a.min(b)..=a.max(b))
                .map(|number| number.to_string())
                .collect(),
        );
    }
    let a = from.bytes().next()?;
    let b = to.bytes().next()?;
    Some(
        (a.min(b)..=a.max(b))
            .map(|byte| char::from(byte).to_string())
            .collect(),
    )
}
