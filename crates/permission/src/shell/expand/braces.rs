//! `{a,b}` and `{1..3}`.

use super::ExpandedPiece;

/// How many words one word may become.
const MOST: usize = 512;

/// Brace expansion. None where there would be too many words.
pub(super) fn braces(parts: &[ExpandedPiece]) -> Option<Vec<Vec<ExpandedPiece>>> {
    let opens = parts.iter().filter(|part| matches!(part, ExpandedPiece::Brace('{'))).count();
    if opens == 0 {
        return Some(vec![plain(parts)]);
    }
    if opens > 24 {
        return None;
    }
    let Some((open, close, commas)) = first_brace(parts) else { return Some(vec![plain(parts)]) };
    let mut middles: Vec<Vec<ExpandedPiece>> = vec![];
    if commas.is_empty() {
        middles.extend(sequence(&parts[open + 1..close])?.into_iter().map(|text| vec![ExpandedPiece::Text(text)]));
    } else {
        let mut from = open + 1;
        for end in commas.iter().copied().chain([close]) {
            middles.extend(braces(&parts[from..end])?);
            from = end + 1;
        }
    }
    let tails = braces(&parts[close + 1..])?;
    if middles.len() * tails.len() > MOST {
        return None;
    }
    let head = plain(&parts[..open]);
    let join = |middle: &Vec<ExpandedPiece>, tail: &Vec<ExpandedPiece>| {
        head.iter().chain(middle).chain(tail).cloned().collect()
    };
    Some(middles.iter().flat_map(|middle| tails.iter().map(move |tail| join(middle, tail))).collect())
}

fn plain(parts: &[ExpandedPiece]) -> Vec<ExpandedPiece> {
    let plain = |part: &ExpandedPiece| match part {
        ExpandedPiece::Brace(c) => ExpandedPiece::Text(c.to_string()),
        part => part.clone(),
    };
    parts.iter().map(plain).collect()
}

/// The first brace that expands: where it opens and closes, and its commas; no commas: a sequence.
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
    let [ExpandedPiece::Text(text)] = parts else { return None };
    let (from, rest) = text.split_once("..")?;
    let to = rest.split("..").next()?;
    Some((from, to))
}

fn is_sequence(parts: &[ExpandedPiece]) -> bool {
    let number = |text: &str| text.parse::<i64>().is_ok();
    let letter = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    ends(parts).is_some_and(|(from, to)| (number(from) && number(to)) || (letter(from) && letter(to)))
}

/// The members of `{a..c}`. None where there are too many. A step is left out: more words than
/// there are do no harm.
fn sequence(parts: &[ExpandedPiece]) -> Option<Vec<String>> {
    let (from, to) = ends(parts)?;
    if let (Ok(a), Ok(b)) = (from.parse::<i64>(), to.parse::<i64>()) {
        if a.abs_diff(b) > 256 {
            return None;
        }
        return Some((a.min(b)..=a.max(b)).map(|number| number.to_string()).collect());
    }
    let (a, b) = (from.bytes().next()?, to.bytes().next()?);
    Some((a.min(b)..=a.max(b)).map(|byte| char::from(byte).to_string()).collect())
}
