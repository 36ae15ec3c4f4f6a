//! Questions: what is named is found by its definition, then by where it is used; everything else by words.

use std::collections::BTreeSet;

use serde_json::json;

use super::code::{self, CodeLine};
use super::order::{self, OrderToken, fenced, quoted};
use super::terms::{Terms, is_vague};
use super::turn::{OfflineTurn, OrStep, PlannedCall};

/// How many places are read for a question in words: of all files, and of one.
const READ: (usize, usize) = (8, 3);
/// How many of them are shown at most.
const PLACES: usize = 5;
/// How many lines are shown: above a definition, and from it on.
const SHOWN: (usize, usize) = (4, 12);
/// How many lines around a place are read for a question in words.
const AROUND: (usize, usize) = (25, 25);

/// What is asked for: identifiers, everything else that has a meaning, a file.
fn question(tokens: &[OrderToken]) -> (Vec<String>, Vec<String>, Option<String>) {
    let (mut names, mut words, mut path) = (Vec::new(), Vec::new(), None);
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.trim_end_matches('!').trim_end_matches("()");
        let marked = token.quoted || name != token.text || name.contains('_') || name.contains("::");
        // A capital begins a sentence, too.
        let capital = name.chars().skip(usize::from(at == 0 && tokens.len() > 2)).any(char::is_uppercase);
        let is_name = marked || (capital && name.contains(char::is_lowercase));
        let fits = |part: &str| part.chars().all(|c| c.is_alphanumeric() || "_$".contains(c)) && !part.is_empty();
        if token.is_path() {
            path = Some(token.text.trim_start_matches('@').to_owned());
        } else if is_name && name.split("::").flat_map(|part| part.split('.')).all(fits) {
            names.push(name.to_owned());
        } else {
            words.extend(code::words(&token.text).into_iter().filter(|word| !is_vague(word)));
        }
    }
    (names, words, path)
}

/// The one thing whose place is asked for, even where its word says nothing anywhere else: "where is main?"
fn sought(tokens: &[OrderToken]) -> Option<String> {
    const AROUND: &str =
        "where is are was the a an of defined declared implemented located definition find show me it this that";
    let mut left = tokens.iter().filter(|token| !AROUND.split(' ').any(|word| word == token.plain()));
    let asks = tokens.first().is_some_and(|first| ["where", "find"].contains(&first.plain().as_str()));
    let one = left.next().filter(|one| asks && one.text.chars().all(|c| c.is_alphanumeric() || c == '_'))?;
    left.next().is_none().then(|| one.text.clone())
}

/// Answers a question; none where nothing is asked.
pub(super) fn answer(turn: &OfflineTurn, tokens: &[OrderToken]) -> OrStep<Option<String>> {
    let (mut names, mut words, path) = question(tokens);
    if names.is_empty() && words.is_empty() && path.is_none() {
        names.extend(sought(tokens));
    }
    // One word alone is taken for a name.
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

/// By merit, the highest first; what has the same merit keeps its own order.
fn ranked<T: Ord>(items: impl IntoIterator<Item = T>, merit: impl Fn(&T) -> f64) -> Vec<(f64, T)> {
    let mut ranked: Vec<(f64, T)> = items.into_iter().map(|item| (merit(&item), item)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    ranked
}

fn grep(pattern: String) -> PlannedCall {
    ("grep", json!({"pattern": pattern}))
}

/// Where a name is defined and used; none where it does not occur.
fn by_name(turn: &OfflineTurn, name: &str) -> OrStep<Option<String>> {
    let last = name.rsplit([':', '.']).next().unwrap_or(name);
    let word = format!(r"{}\b", last.replace('$', r"\$"));
    let say = format!("Looking for the definition of {} and for its uses.", quoted(name));
    let found = turn.calls(&say, vec![grep(code::defining(&word)), grep(format!(r"\b{word}"))])?;
    let is_it = |line: &CodeLine| line.definition().is_some_and(|what| what.name == last);
    let (defined, used) = (turn.found(&found[0]), turn.found(&found[1]));
    let defined = ranked(defined.into_iter().filter(is_it), merit);
    let used = used.into_iter().filter(|line| !defined.iter().any(|(_, other)| other == line));
    let used = ranked(used, |line| line.worth() * if line.is_minor() { 0.5 } else { 1.0 });
    let list = |head: &str, lines: &[(f64, CodeLine)]| match items(lines.iter().map(|(_, line)| line)) {
        items if items.is_empty() => items,
        items => format!("\n\n{head}:\n{items}"),
    };
    let Some(((merit, best), others)) = defined.split_first() else {
        let none = format!("I found no definition of {}.", quoted(last));
        return Ok((!used.is_empty()).then(|| none + &list("It stands in", &used)));
    };
    let code = read(turn, &[best], SHOWN)?.iter().find(|found| found.head() == best).map(|found| found.shown(1));
    // With several that are as likely there is no best one.
    let alone = others.iter().all(|(next, _)| merit - next > 0.2);
    let head = if alone { "The best match is" } else { "One of several definitions is" };
    let place = format!("{head} `{}:{}`.\n\n", best.path, best.number);
    Ok(Some(place + &code.unwrap_or_default() + &list("Also defined", others) + &list("Used", &used)))
}

/// Entries of an answer: one line each.
fn items<'a>(lines: impl Iterator<Item = &'a CodeLine>) -> String {
    let text = |line: &CodeLine| quoted(&base::text::cut_chars(line.text.trim(), 140));
    lines.take(5).map(|line| format!("\n- `{}:{}`: {}", line.path, line.number, text(line))).collect()
}

/// How likely it is that a definition of a name is the one that is asked for.
fn merit(line: &CodeLine) -> f64 {
    let Some(what) = line.definition() else { return 0.0 };
    let is = |kinds: &str| kinds.split(' ').any(|kind| kind == what.kind);
    let (name, file) = (code::words(&what.name), code::words(line.stem()));
    let is_type = is("struct enum union trait type class interface protocol record object macro_rules!");
    let kind = f64::from(u8::from(is_type)) * 0.2 - f64::from(u8::from(is("mod module namespace #"))) * 0.5;
    let called = f64::from(u8::from(name == file) + u8::from(file.iter().all(|word| name.contains(word)))) * 0.75;
    let deep = (line.indent() as f64 / 10.0).min(1.2);
    kind + called + f64::from(what.visible) - deep - 5.0 * (1.0 - line.worth())
}

/// The places that have most of the words.
fn by_words(turn: &OfflineTurn, mut terms: Terms) -> OrStep<String> {
    let names = terms.patterns().into_iter().chain([terms.pairs(r"\w*")]);
    let wanted = names.map(|name| code::defining(&format!(r"\w*(?:{name})"))).chain([terms.pairs(".*")]);
    let wanted: BTreeSet<String> = wanted.map(|pattern| format!("(?i){pattern}")).collect();
    let wanted = wanted.into_iter().map(grep).collect();
    let found = turn.calls(&format!("Looking for {}.", terms.listed()), wanted)?;
    let lines: BTreeSet<CodeLine> = found.iter().flat_map(|done| turn.found(done)).collect();
    terms.weigh(&lines);
    let likely = |line: &&CodeLine| Passage { lines: vec![CodeLine::clone(line)], ..Passage::default() }.score(&terms);
    let mut places: Vec<&CodeLine> = Vec::new();
    for (_, line) in ranked(&lines, likely) {
        let same: Vec<&&CodeLine> = places.iter().filter(|other| other.path == line.path).collect();
        let near = same.iter().any(|other| other.number.abs_diff(line.number) < AROUND.0);
        if places.len() < READ.0 && same.len() < READ.1 && !near {
            places.push(line);
        }
    }
    let passages: BTreeSet<Passage> = read(turn, &places, AROUND)?.into_iter().collect();
    let mut scored = ranked(&passages, |passage| passage.score(&terms));
    // What stands in two of the parts that were read is told once.
    let mut heads = BTreeSet::new();
    scored.retain(|(_, passage)| heads.insert(passage.head()));
    let Some((best, _)) = scored.first().filter(|(best, _)| *best > 0.0) else {
        let none = format!("I found no code about {}. I compare words.", terms.listed());
        return Ok(format!("{none}\n{}", items(places.into_iter())));
    };
    let clear = scored.iter().skip(1).all(|(next, _)| *best > 1.4 * next);
    let head = if clear { "The best match first" } else { "No place stands out; these have most of the words" };
    let scored = scored.iter().filter(|(score, _)| *score > 0.3 * best);
    let entries = scored.take(PLACES).zip(1..).map(|((_, passage), number)| passage.shown(number));
    Ok(format!("{head}:\n\n{}", entries.collect::<Vec<_>>().join("\n\n")))
}

/// The definitions that stand around some lines: so many lines above and below.
fn read(turn: &OfflineTurn, lines: &[&CodeLine], (above, below): (usize, usize)) -> OrStep<Vec<Passage>> {
    let call = |line: &&CodeLine| {
        let offset = line.number.saturating_sub(above).max(1);
        ("read", json!({"filePath": line.path, "offset": offset, "limit": above + below}))
    };
    let done = turn.calls("Reading the best places.", lines.iter().map(call).collect())?;
    Ok(done.iter().filter_map(|done| turn.lines(done)).flat_map(|lines| passages(&lines)).collect())
}

/// A definition with what stands above it and in it.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Passage {
    lines: Vec<CodeLine>,
    /// The line that defines, by its place among them.
    head: usize,
    /// The line that opens what it stands in.
    outer: String,
}

/// The definitions among lines, each up to the next.
fn passages(lines: &[CodeLine]) -> Vec<Passage> {
    let above = |head: usize| lines[..head].iter().rev().take_while(|line| line.is_above()).count();
    let heads: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].definition().is_some()).collect();
    let ends = heads.iter().skip(1).map(|next| next - above(*next)).chain([lines.len()]);
    let passage = |(head, end): (&usize, usize)| {
        let outer = heads.iter().rev().find(|outer| *outer < head && lines[**outer].indent() < lines[*head].indent());
        let outer = outer.map_or_else(String::new, |outer| lines[*outer].text.clone());
        Passage { lines: lines[head - above(*head)..end.max(head + 1)].to_vec(), head: above(*head), outer }
    };
    heads.iter().zip(ends).map(passage).collect()
}

impl Passage {
    fn head(&self) -> &CodeLine {
        &self.lines[self.head]
    }

    /// What it is worth, by its name, by what it stands in, by what is said of it and by what is in it.
    fn score(&self, terms: &Terms) -> f64 {
        let (kind, name) = self.head().definition().map_or_else(Default::default, |what| (what.kind, what.name));
        let joined = |lines: &[CodeLine]| lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
        let above = joined(&self.lines[..self.head]);
        let body = joined(&self.lines[self.head..self.lines.len().min(self.head + AROUND.1)]);
        let place = format!("{} {}", self.head().path, self.outer);
        let parts = [(3.0, name.as_str()), (1.2, &place), (1.5, &above), (1.0, &body)];
        let parts = parts.map(|(factor, text)| (factor, terms.found(text)));
        let all = terms.found(&[&name, &place, &above, &body].map(String::as_str).join("\n"));
        let whole = terms.sum(&vec![1.0; all.len()]);
        let together = parts[0].1.iter().filter(|found| **found > 0.5).count().saturating_sub(1) as f64;
        let sum: f64 = parts.iter().map(|(factor, found)| factor * terms.sum(found)).sum();
        let minor = if ["impl", "mod"].contains(&kind.as_str()) || above.contains("test]") { 0.4 } else { 1.0 };
        (sum + 2.0 * together) * (0.2 + 0.8 * terms.sum(&all) / whole.max(0.1)) * minor * self.head().worth()
    }

    /// An entry of an answer: the place, and the code.
    fn shown(&self, number: usize) -> String {
        let part = &self.lines[self.head.saturating_sub(SHOWN.0)..self.lines.len().min(self.head + SHOWN.1)];
        let filled = part.iter().rposition(|line| !line.text.trim().is_empty()).map_or(0, |last| last + 1);
        let common = part.iter().filter(|line| !line.text.trim().is_empty()).map(CodeLine::indent).min().unwrap_or(0);
        let text = part[..filled].iter().map(|line| line.text.get(common..).unwrap_or_default());
        format!("{number}. `{}:{}`\n\n{}", self.head().path, self.head().number, fenced(&self.head().path, text))
    }
}
