//! Answers to questions: a named identifier is found by its definition, then by its uses;
//! everything else by search terms.

use std::collections::BTreeSet;

use serde_json::json;

use super::code::{self, CodeLine};
use super::order::{self, OrderToken, fenced, quoted};
use super::terms::{Terms, is_stopword};
use super::turn::{OfflineTurn, OrStep, PlannedCall};

/// The maximum number of passages read for a question in words: in all files, and in one.
const MAX_READ: (usize, usize) = (8, 3);
/// The maximum number of passages shown.
const MAX_SHOWN: usize = 5;
/// The number of lines shown: above a definition, and from it on.
const SHOWN_LINES: (usize, usize) = (4, 12);
/// The number of lines read for a question in words: above a match, and from it on.
const READ_LINES: (usize, usize) = (25, 25);

/// The parts of a question.
struct Question {
    names: Vec<String>,
    words: Vec<String>,
    path: Option<String>,
}

/// Splits a question into identifiers, other meaningful words, and a file.
fn question(tokens: &[OrderToken]) -> Question {
    let mut names = Vec::new();
    let mut words = Vec::new();
    let mut path = None;
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.trim_end_matches('!').trim_end_matches("()");
        let is_marked =
            token.quoted || name != token.text || name.contains('_') || name.contains("::");
        // A capital letter may just begin the sentence.
        let is_capital = name
            .chars()
            .skip(usize::from(at == 0 && tokens.len() > 2))
            .any(char::is_uppercase);
        let is_name = is_marked || (is_capital && name.contains(char::is_lowercase));
        let fits = |part: &str| {
            part.chars()
                .all(|c| c.is_alphanumeric() || "_$".contains(c))
                && !part.is_empty()
        };
        if token.is_path() {
            path = Some(token.text.trim_start_matches('@').to_owned());
        } else if is_name && name.split("::").flat_map(|part| part.split('.')).all(fits) {
            names.push(name.to_owned());
        } else {
            words.extend(
                code::words(&token.text)
                    .into_iter()
                    .filter(|word| !is_stopword(word)),
            );
        }
    }
    Question { names, words, path }
}

/// Returns the only word whose location is requested, even if it is too vague in other questions:
/// "where is main?"
fn requested_name(tokens: &[OrderToken]) -> Option<String> {
    const FILLERS: &str = "where is are was the a an of defined declared implemented located definition find show me it this that";
    let mut left = tokens
        .iter()
        .filter(|token| !FILLERS.split(' ').any(|word| word == token.plain()));
    let asks_for_location = tokens
        .first()
        .is_some_and(|first| ["where", "find"].contains(&first.plain().as_str()));
    if !asks_for_location {
        return None;
    }
    let one = left
        .next()
        .filter(|one| one.text.chars().all(|c| c.is_alphanumeric() || c == '_'))?;
    left.next().is_none().then(|| one.text.clone())
}

/// Answers a question; returns `None` if there is none.
pub(super) fn answer(turn: &OfflineTurn, tokens: &[OrderToken]) -> OrStep<Option<String>> {
    let Question {
        mut names,
        mut words,
        path,
    } = question(tokens);
    if names.is_empty() && words.is_empty() && path.is_none() {
        names.extend(requested_name(tokens));
    }
    // A single word is taken for a name.
    if let ([name, ..], []) | ([], [name]) = (&*names, &*words) {
        if let Some(found) = by_name(turn, name)? {
            return Ok(Some(found));
        }
        words.extend(names.drain(..).flat_map(|name| code::words(&name)));
    }
    match path {
        Some(path) if words.is_empty() => order::read(turn, &path).map(Some),
        _ if words.is_empty() => Ok(None),
        _ => by_words(turn, Terms::of(&names, &words)).map(Some),
    }
}

/// Sorts by score, the highest first; items of equal score by their own order.
fn ranked<T: Ord>(items: impl IntoIterator<Item = T>, score: impl Fn(&T) -> f64) -> Vec<(f64, T)> {
    let mut ranked: Vec<(f64, T)> = items.into_iter().map(|item| (score(&item), item)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    ranked
}

fn grep(pattern: String) -> PlannedCall {
    ("grep", json!({"pattern": pattern}))
}

/// Answers with the definitions and uses of a name; returns `None` if it does not occur.
fn by_name(turn: &OfflineTurn, name: &str) -> OrStep<Option<String>> {
    let last = name.rsplit([':', '.']).next().unwrap_or(name);
    let word = format!(r"{}\b", last.replace('$', r"\$"));
    let say = format!(
        "Looking for the definition of {} and for its uses.",
        quoted(name)
    );
    let found = turn.calls(
        &say,
        vec![grep(code::defining(&word)), grep(format!(r"\b{word}"))],
    )?;
    let is_definition = |line: &CodeLine| {
        line.definition()
            .is_some_and(|definition| definition.name == last)
    };
    let defined = turn.found(&found[0]).into_iter().filter(is_definition);
    let defined = ranked(defined, definition_score);
    let used = turn.found(&found[1]);
    let used = used
        .into_iter()
        .filter(|line| !defined.iter().any(|(_, other)| other == line));
    let used = ranked(used, |line| {
        line.worth() * if line.is_minor() { 0.5 } else { 1.0 }
    });
    let list =
        |head: &str, lines: &[(f64, CodeLine)]| match items(lines.iter().map(|(_, line)| line)) {
            items if items.is_empty() => items,
            items => format!("\n\n{head}:\n{items}"),
        };
    let Some(((score, best), others)) = defined.split_first() else {
        let none = format!("I found no definition of {}.", quoted(last));
        return Ok((!used.is_empty()).then(|| none + &list("It stands in", &used)));
    };
    let code = read(turn, &[best], SHOWN_LINES)?
        .iter()
        .find(|found| found.head() == best)
        .map(|found| found.shown(1));
    // Several definitions may be equally likely.
    let is_clear = others.iter().all(|(next, _)| score - next > 0.2);
    let head = if is_clear {
        "The best match is"
    } else {
        "One of several definitions is"
    };
    let place = format!("{head} `{}:{}`.\n\n", best.path, best.number);
    Ok(Some(
        place + &code.unwrap_or_default() + &list("Also defined", others) + &list("Used", &used),
    ))
}

/// Lists lines, one entry each.
fn items<'a>(lines: impl Iterator<Item = &'a CodeLine>) -> String {
    let text = |line: &CodeLine| quoted(&base::text::cut_chars(line.text.trim(), 140));
    lines
        .take(5)
        .map(|line| format!("\n- `{}:{}`: {}", line.path, line.number, text(line)))
        .collect()
}

/// Returns the likelihood that a definition of a name is the requested one.
fn definition_score(line: &CodeLine) -> f64 {
    let Some(definition) = line.definition() else {
        return 0.0;
    };
    let is = |kinds: &str| kinds.split(' ').any(|kind| kind == definition.kind);
    let name = code::words(&definition.name);
    let file = code::words(line.stem());
    let is_type =
        is("struct enum union trait type class interface protocol record object macro_rules!");
    let kind = f64::from(u8::from(is_type)) * 0.2
        - f64::from(u8::from(is("mod module namespace #"))) * 0.5;
    let matches_file =
        u8::from(name == file) + u8::from(file.iter().all(|word| name.contains(word)));
    let depth = (line.indent() as f64 / 10.0).min(1.2);
    kind + f64::from(matches_file) * 0.75 + f64::from(definition.visibility)
        - depth
        - 5.0 * (1.0 - line.worth())
}

/// Answers with the passages that contain most of the terms.
fn by_words(turn: &OfflineTurn, mut terms: Terms) -> OrStep<String> {
    let names = terms.patterns().into_iter().chain([terms.pairs(r"\w*")]);
    let patterns = names
        .map(|name| code::defining(&format!(r"\w*(?:{name})")))
        .chain([terms.pairs(".*")]);
    let patterns: BTreeSet<String> = patterns.map(|pattern| format!("(?i){pattern}")).collect();
    let wanted = patterns.into_iter().map(grep).collect();
    let found = turn.calls(&format!("Looking for {}.", terms.listed()), wanted)?;
    let lines: BTreeSet<CodeLine> = found.iter().flat_map(|done| turn.found(done)).collect();
    terms.weigh(&lines);
    let likely = |line: &&CodeLine| {
        Passage {
            lines: vec![CodeLine::clone(line)],
            ..Passage::default()
        }
        .score(&terms)
    };
    let mut places: Vec<&CodeLine> = Vec::new();
    for (_, line) in ranked(&lines, likely) {
        let same: Vec<&&CodeLine> = places
            .iter()
            .filter(|other| other.path == line.path)
            .collect();
        let is_near = same
            .iter()
            .any(|other| other.number.abs_diff(line.number) < READ_LINES.0);
        if places.len() < MAX_READ.0 && same.len() < MAX_READ.1 && !is_near {
            places.push(line);
        }
    }
    let passages: BTreeSet<Passage> = read(turn, &places, READ_LINES)?.into_iter().collect();
    let mut scored = ranked(&passages, |passage| passage.score(&terms));
    // A definition that is in two of the passages is shown once.
    let mut heads = BTreeSet::new();
    scored.retain(|(_, passage)| heads.insert(passage.head()));
    let Some((best, _)) = scored.first().filter(|(best, _)| *best > 0.0) else {
        let none = format!("I found no code about {}. I compare words.", terms.listed());
        return Ok(format!("{none}\n{}", items(places.into_iter())));
    };
    let is_clear = scored.iter().skip(1).all(|(next, _)| *best > 1.4 * next);
    let head = if is_clear {
        "The best match first"
    } else {
        "No place stands out; these have most of the words"
    };
    let scored = scored.iter().filter(|(score, _)| *score > 0.3 * best);
    let entries = scored
        .take(MAX_SHOWN)
        .zip(1..)
        .map(|((_, passage), number)| passage.shown(number));
    Ok(format!(
        "{head}:\n\n{}",
        entries.collect::<Vec<_>>().join("\n\n")
    ))
}

/// Reads the definitions around some lines: this many lines above each, and from it on.
fn read(
    turn: &OfflineTurn,
    lines: &[&CodeLine],
    (above, below): (usize, usize),
) -> OrStep<Vec<Passage>> {
    let call = |line: &&CodeLine| {
        let offset = line.number.saturating_sub(above).max(1);
        (
            "read",
            json!({"filePath": line.path, "offset": offset, "limit": above + below}),
        )
    };
    let done = turn.calls("Reading the best places.", lines.iter().map(call).collect())?;
    Ok(done
        .iter()
        .filter_map(|done| turn.lines(done))
        .flat_map(|lines| passages(&lines))
        .collect())
}

/// A definition with the comments above it and its body.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Passage {
    lines: Vec<CodeLine>,
    /// The index of the defining line in `lines`.
    head: usize,
    /// The text of the line that opens the enclosing definition.
    outer: String,
}

/// Splits lines into definitions, each up to the next one.
fn passages(lines: &[CodeLine]) -> Vec<Passage> {
    let above = |head: usize| {
        lines[..head]
            .iter()
            .rev()
            .take_while(|line| line.is_above())
            .count()
    };
    let heads: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].definition().is_some())
        .collect();
    let ends = heads
        .iter()
        .skip(1)
        .map(|next| next - above(*next))
        .chain([lines.len()]);
    let passage = |(head, end): (&usize, usize)| {
        let outer = heads
            .iter()
            .rev()
            .find(|outer| *outer < head && lines[**outer].indent() < lines[*head].indent());
        let outer = outer.map_or_else(String::new, |outer| lines[*outer].text.clone());
        Passage {
            lines: lines[head - above(*head)..end.max(head + 1)].to_vec(),
            head: above(*head),
            outer,
        }
    };
    heads.iter().zip(ends).map(passage).collect()
}

impl Passage {
    fn head(&self) -> &CodeLine {
        &self.lines[self.head]
    }

    /// Returns the relevance, from the name, the enclosing definition, the comments and the body.
    fn score(&self, terms: &Terms) -> f64 {
        let (kind, name) = self
            .head()
            .definition()
            .map_or_else(Default::default, |definition| {
                (definition.kind, definition.name)
            });
        let joined = |lines: &[CodeLine]| {
            lines
                .iter()
                .map(|line| line.text.as_str())
                .collect::<Vec<_>>()
                .join("\n")
        };
        let above = joined(&self.lines[..self.head]);
        let body = joined(&self.lines[self.head..self.lines.len().min(self.head + READ_LINES.1)]);
        let place = format!("{} {}", self.head().path, self.outer);
        let parts = [
            (3.0, name.as_str()),
            (1.2, &place),
            (1.5, &above),
            (1.0, &body),
        ];
        let parts = parts.map(|(factor, text)| (factor, terms.found(text)));
        let all = terms.found(
            &[&name, &place, &above, &body]
                .map(String::as_str)
                .join("\n"),
        );
        let whole = terms.sum(&vec![1.0; all.len()]);
        let together = parts[0]
            .1
            .iter()
            .filter(|found| **found > 0.5)
            .count()
            .saturating_sub(1) as f64;
        let sum: f64 = parts
            .iter()
            .map(|(factor, found)| factor * terms.sum(found))
            .sum();
        let minor = if ["impl", "mod"].contains(&kind.as_str()) || above.contains("test]") {
            0.4
        } else {
            1.0
        };
        (sum + 2.0 * together)
            * (0.2 + 0.8 * terms.sum(&all) / whole.max(0.1))
            * minor
            * self.head().worth()
    }

    /// Formats an entry of an answer: the location, and the code.
    fn shown(&self, number: usize) -> String {
        let part = &self.lines[self.head.saturating_sub(SHOWN_LINES.0)
            ..self.lines.len().min(self.head + SHOWN_LINES.1)];
        let filled = part
            .iter()
            .rposition(|line| !line.text.trim().is_empty())
            .map_or(0, |last| last + 1);
        let common = part
            .iter()
            .filter(|line| !line.text.trim().is_empty())
            .map(CodeLine::indent)
            .min()
            .unwrap_or(0);
        let text = part[..filled]
            .iter()
            .map(|line| line.text.get(common..).unwrap_or_default());
        format!(
            "{number}. `{}:{}`\n\n{}",
            self.head().path,
            self.head().number,
            fenced(&self.head().path, text)
        )
    }
}
