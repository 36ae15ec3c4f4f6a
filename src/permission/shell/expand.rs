//! What the words of a command become: their values where they are certain, and where they are not,
//! how much of their beginning is.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::state::{State, Value};
use super::syntax::{Body, Piece, Script, Word};
use super::walk::Walk;
use crate::permission::wildcard::UNKNOWN;

/// How many words one word may become.
const MOST: usize = 512;
/// How many words the braces of one line may make.
const MADE: usize = 2_048;
/// How many names in directories one pattern is compared with.
const GLOBBED: usize = 4_096;

/// One word of a command after expansion. It is handed around a lot, so a copy shares its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arg {
    /// As it was written.
    pub(super) raw: Rc<str>,
    values: Rc<Values>,
    /// Nothing in it was computed: no variable, pattern or substitution.
    pub(super) literal: bool,
    spread: Spread,
}

/// How many words it becomes. A pattern always stands for as many as there are files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spread {
    One,
    /// Any number, each of which is one of its values.
    Names,
    /// Any number, none too, and only the first begins as its value does: what is not quoted is split.
    Words,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    Exact(String),
    /// One of these.
    OneOf(Vec<String>),
    /// A file name pattern; escaped with backslashes.
    Pattern(String),
    /// Begins like this, and goes on in a way that is not known.
    Unknown(String),
}

impl Arg {
    pub(super) fn exact(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { raw: text.as_str().into(), values: Rc::new(Values::Exact(text)), literal: true, spread: Spread::One }
    }

    /// A text in which something will be replaced before it runs. What stands around that is known,
    /// and enough for rules that deny; a single word is unknown altogether.
    pub(super) fn filled(text: &str, mark: &str) -> Self {
        if text.contains([' ', '\n', ';']) {
            let values = Rc::new(Values::Exact(text.replace(mark, "./found")));
            Self { raw: text.into(), values, literal: false, spread: Spread::One }
        } else {
            Self { spread: Spread::One, ..Self::unknown(text) }
        }
    }

    /// Some file of the project whose name is no secret's.
    pub(super) fn found() -> Self {
        let values = Rc::new(Values::Exact("./found".into()));
        Self { raw: "…".into(), values, literal: false, spread: Spread::One }
    }

    /// Any number of such words.
    pub(super) fn repeated(self) -> Self {
        Self { spread: self.spread.max(Spread::Names), ..self }
    }

    /// Any number of words behind each other, nobody knows which.
    pub(super) fn is_words(&self) -> bool {
        self.spread == Spread::Words
    }

    /// More words than one, or fewer.
    pub(super) fn is_several(&self) -> bool {
        self.spread != Spread::One || self.pattern().is_some()
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(*self.values, Values::Unknown(_))
    }

    /// Words of which nothing is known.
    pub(super) fn unknown(raw: &str) -> Self {
        let values = Rc::new(Values::Unknown(String::new()));
        Self { raw: raw.into(), values, literal: false, spread: Spread::Words }
    }

    /// The value, where there is exactly one.
    pub(super) fn text(&self) -> Option<&str> {
        match &*self.values {
            Values::Exact(text) => Some(text),
            _ => None,
        }
    }

    /// All values it can have, where they are known without looking at the disk.
    pub(super) fn texts(&self) -> Option<&[String]> {
        match &*self.values {
            Values::Exact(text) => Some(std::slice::from_ref(text)),
            Values::OneOf(texts) => Some(texts),
            _ => None,
        }
    }

    pub(super) fn pattern(&self) -> Option<&str> {
        match &*self.values {
            Values::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }

    pub(super) fn known(&self) -> bool {
        matches!(*self.values, Values::Exact(_))
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.text() == Some(text)
    }

    /// The certain beginning.
    pub(super) fn prefix(&self) -> &str {
        match &*self.values {
            Values::Exact(text) | Values::Unknown(text) => text,
            Values::Pattern(pattern) => &pattern[..pattern.find(['*', '?', '[', '\\']).unwrap_or(pattern.len())],
            Values::OneOf(_) => "",
        }
    }

    pub(super) fn may_be_option(&self) -> bool {
        self.is_words()
            || match &*self.values {
                Values::Exact(text) => text.starts_with('-'),
                Values::OneOf(texts) => texts.iter().any(|text| text.starts_with('-')),
                Values::Pattern(_) | Values::Unknown(_) => {
                    let prefix = self.prefix();
                    prefix.is_empty() || prefix.starts_with('-')
                }
            }
    }

    /// The value without its first `count` bytes, which belong to the certain beginning.
    pub(super) fn after(&self, count: usize) -> Self {
        let cut = |text: &str| text.get(count..).unwrap_or_default().to_owned();
        let values = match &*self.values {
            Values::Exact(text) => Values::Exact(cut(text)),
            Values::Unknown(text) => Values::Unknown(cut(text)),
            Values::Pattern(text) => Values::Pattern(cut(text)),
            Values::OneOf(texts) => Values::OneOf(texts.iter().map(|text| cut(text)).collect()),
        };
        let raw = match &values {
            Values::Exact(text) => text.as_str().into(),
            _ => self.raw.clone(),
        };
        Self { raw, values: Rc::new(values), literal: self.literal, spread: self.spread }
    }

    /// The word for rules to be compared with.
    pub(super) fn normal(&self) -> String {
        match &*self.values {
            Values::Exact(text) => text.clone(),
            _ => format!("{}{UNKNOWN}", self.prefix()),
        }
    }
}

/// A piece of a word after its substitutions were looked at.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Text(String),
    Glob(char),
    Brace(char),
    Values(Vec<String>),
    /// What belongs to one word.
    Unknown,
    /// What is split into words.
    Words,
}

impl Walk<'_> {
    /// Expands the words of a command. Substitutions in them are walked on the way.
    pub(super) fn expand(&mut self, script: &Script, words: &[Word], state: &mut State) -> Vec<Arg> {
        let mut args = vec![];
        for word in words {
            for piece in &word.array {
                self.expand(script, std::slice::from_ref(piece), state);
            }
            self.expand_word(script, word, state, &mut args);
        }
        args
    }

    /// The value of a word that stays one word: an assignment's, a redirection's target.
    pub(super) fn single(&mut self, script: &Script, word: &Word, state: &mut State) -> Arg {
        let raw = super::parse::slice(script, &word.range).into();
        let parts = self.parts(script, &word.pieces, state, false);
        let literal = literal(&word.pieces);
        let plain = |part: Part| match part {
            Part::Brace(c) => Part::Text(c.to_string()),
            part => part,
        };
        let parts: Vec<Part> = parts.into_iter().map(plain).collect();
        Arg { raw, values: Rc::new(values(&parts)), literal, spread: Spread::One }
    }

    fn expand_word(&mut self, script: &Script, word: &Word, state: &mut State, args: &mut Vec<Arg>) {
        let raw = super::parse::slice(script, &word.range);
        // Most words are one text.
        if let [Piece::Text(text) | Piece::Quoted(text)] = word.pieces.as_slice() {
            let values = Rc::new(Values::Exact(text.clone()));
            args.push(Arg { raw: raw.into(), values, literal: true, spread: Spread::One });
            return;
        }
        let mut parts = self.parts(script, &word.pieces, state, true);
        let literal = literal(&word.pieces);
        // An unquoted variable alone becomes as many words as it holds.
        if let [Part::Values(texts)] = parts.as_slice()
            && let [Piece::Parameter { quoted: false, .. }] = word.pieces.as_slice()
            && let [text] = texts.as_slice()
        {
            for field in text.split([' ', '\t', '\n']).filter(|field| !field.is_empty()) {
                let values = if field.contains(['*', '?', '[']) {
                    Values::Pattern(field.to_owned())
                } else {
                    Values::Exact(field.to_owned())
                };
                args.push(Arg { raw: field.into(), values: Rc::new(values), literal: false, spread: Spread::One });
            }
            return;
        }
        if vanishes(&parts) && word.pieces.iter().any(|piece| matches!(piece, Piece::Parameter { quoted: false, .. })) {
            parts = vec![Part::Words];
        }
        if !parts.iter().any(|part| matches!(part, Part::Brace(_))) {
            args.push(Arg { raw: raw.into(), values: Rc::new(values(&parts)), literal, spread: spread(&parts) });
            return;
        }
        match Some(&parts).filter(|_| self.made < MADE).and_then(|parts| braces(parts)) {
            Some(words) => {
                self.made += words.len() - 1;
                let many = words.len() > 1;
                for parts in words {
                    let spread = if vanishes(&parts) { Spread::Words } else { spread(&parts) };
                    let values = values(&parts);
                    let raw = match (&values, many) {
                        (Values::Exact(text), true) => text.as_str().into(),
                        _ => raw.into(),
                    };
                    args.push(Arg { raw, values: Rc::new(values), literal, spread });
                }
            }
            None => args.push(Arg { literal: false, ..Arg::unknown(raw) }),
        }
    }

    /// `splits`: an unquoted value is split at blanks and matched against file names here.
    pub(super) fn parts(&mut self, script: &Script, pieces: &[Piece], state: &mut State, splits: bool) -> Vec<Part> {
        let mut parts = vec![];
        for piece in pieces {
            parts.push(match piece {
                Piece::Text(text) | Piece::Quoted(text) => Part::Text(text.clone()),
                Piece::Glob(c) => Part::Glob(*c),
                Piece::Brace(c) => Part::Brace(*c),
                Piece::Tilde(user) => self.tilde(user, state),
                Piece::Parameter { name, operator, inner, quoted } => {
                    let part = self.parameter(script, name, operator, inner, state);
                    match part {
                        Part::Values(texts)
                            if splits
                                && !quoted
                                && (pieces.len() > 1 || texts.len() > 1)
                                && texts.iter().any(|text| breaks(text)) =>
                        {
                            Part::Words
                        }
                        Part::Unknown if splits && (!quoted || is_list(piece)) && !is_number(name, operator, state) => {
                            Part::Words
                        }
                        part => part,
                    }
                }
                Piece::Command { body, quoted } => {
                    match body {
                        Body::Inline(inline) => self.substitution(script, &inline.list, state),
                        Body::Apart(script) => self.substitution(script, &script.list, state),
                    }
                    if splits && !quoted { Part::Words } else { Part::Unknown }
                }
                Piece::Arithmetic(inner) => {
                    self.arithmetic(script, inner, state);
                    Part::Unknown
                }
                Piece::Process(inline) => {
                    self.process(script, &inline.list, state);
                    Part::Text("/dev/fd/63".into())
                }
            });
        }
        parts
    }

    fn tilde(&self, user: &str, state: &State) -> Part {
        match (user, &self.place.home) {
            ("", Some(home)) if !state.assigned("HOME") => Part::Text(home.display().to_string()),
            // Where somebody's home lies is not known; a name nobody has stays as it is written.
            _ => Part::Unknown,
        }
    }

    fn parameter(&mut self, script: &Script, name: &str, operator: &str, inner: &[Piece], state: &mut State) -> Part {
        // What stands inside runs whether or not its value is used.
        self.parts(script, inner, state, false);
        if operator.ends_with("@P") {
            self.opaque("`@P` runs the text of a variable");
        } else if operator.starts_with('!')
            && !(operator.ends_with('*') || operator.ends_with("@]") || operator == "!@")
        {
            self.opaque("`${!…}` reads a variable whose name is computed");
        }
        if operator.starts_with(['=']) || operator.starts_with(":=") {
            self.assigned_by_expansion(name, state);
        }
        if !operator.is_empty() {
            return Part::Unknown;
        }
        match state.value(name) {
            Some(Value::Known(texts)) => Part::Values(texts.clone()),
            Some(_) => Part::Unknown,
            None => match (name, &self.place.home) {
                ("HOME", Some(home)) => Part::Values(vec![home.display().to_string()]),
                ("PWD", _) if state.cwd.len() == 1 => Part::Values(vec![state.cwd[0].display().to_string()]),
                _ => Part::Unknown,
            },
        }
    }

    /// The files a pattern names from a directory, at most [`MOST`]; none where there are more or it
    /// cannot be told. A pattern that names nothing stands for itself.
    pub(super) fn glob(&mut self, pattern: &str, cwd: &Path) -> Option<Rc<[String]>> {
        if let Some(known) = self.globbed.get(cwd).and_then(|names| names.get(pattern)) {
            return known.clone();
        }
        let before = GLOBBED.min(self.entries);
        let mut budget = before;
        let names: Option<Rc<[String]>> = glob(pattern, cwd, &mut budget).map(Into::into);
        self.entries -= before - budget;
        self.globbed.entry(cwd.to_path_buf()).or_default().insert(pattern.to_owned(), names.clone());
        names
    }
}

fn glob(pattern: &str, cwd: &Path, budget: &mut usize) -> Option<Vec<String>> {
    let (start, rest) = match pattern.strip_prefix('/') {
        Some(rest) => (PathBuf::from("/"), rest),
        None => (cwd.to_path_buf(), pattern),
    };
    let shown = if pattern.starts_with('/') { "/" } else { "" };
    // Where each is, how it is shown, and whether a directory named it, so that it is there.
    let mut found = vec![(start, shown.to_owned(), true)];
    for (at, part) in rest.split('/').enumerate() {
        let mut next = vec![];
        let slash = if at == 0 { "" } else { "/" };
        let plain = !part.contains(['*', '?', '[']);
        let (fitting, dotted) = (generous(part), part.starts_with('.'));
        for (dir, shown, _) in &found {
            if plain {
                let part = part.replace('\\', "");
                next.push((dir.join(&part), format!("{shown}{slash}{part}"), false));
                continue;
            }
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                *budget = budget.checked_sub(1)?;
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if (dotted || !name.starts_with('.')) && crate::permission::wildcard::matches(&fitting, &name) {
                    next.push((dir.join(&*name), format!("{shown}{slash}{name}"), true));
                }
                if next.len() > MOST {
                    return None;
                }
            }
        }
        found = next;
    }
    let there = |(path, _, listed): &(PathBuf, String, bool)| *listed || path.symlink_metadata().is_ok();
    let mut names: Vec<String> = found.into_iter().filter(there).map(|(_, shown, _)| shown).collect();
    if names.is_empty() {
        names.push(pattern.replace('\\', ""));
    }
    Some(names)
}

/// A shell pattern as a wildcard. Sets are read generously: they match any letter, so that nothing a
/// set could name is missed.
fn generous(pattern: &str) -> String {
    let mut out = String::new();
    let mut letters = pattern.chars();
    while let Some(c) = letters.next() {
        match c {
            '\\' => out.extend(letters.next()),
            '[' => {
                let rest = letters.as_str();
                match rest.char_indices().skip(1).find(|(_, c)| *c == ']') {
                    Some((end, _)) => {
                        letters = rest[end + 1..].chars();
                        out.push('?');
                    }
                    None => out.push('['),
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// Whether an unquoted value would become several words or a pattern.
fn breaks(text: &str) -> bool {
    text.contains([' ', '\t', '\n', '*', '?', '['])
}

/// Whether a parameter is a number, which is never split.
fn is_number(name: &str, operator: &str, state: &State) -> bool {
    operator.is_empty() && (["?", "#", "$", "!"].contains(&name) || matches!(state.value(name), Some(Value::Harmless)))
}

/// Whether a parameter may become several words although it is quoted: `"$@"`, `"${a[@]}"`, and what
/// holds one.
fn is_list(piece: &Piece) -> bool {
    let Piece::Parameter { name, operator, inner, .. } = piece else { return false };
    name == "@" || operator.contains("[@]") || operator.ends_with('@') || inner.iter().any(is_list)
}

/// Whether nothing may be left of a word where it is not quoted.
fn vanishes(parts: &[Part]) -> bool {
    parts.iter().all(|part| matches!(part, Part::Values(texts) if texts.iter().any(String::is_empty)))
}

fn spread(parts: &[Part]) -> Spread {
    if parts.iter().any(|part| matches!(part, Part::Words)) { Spread::Words } else { Spread::One }
}

fn literal(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| matches!(piece, Piece::Text(_) | Piece::Quoted(_) | Piece::Brace(_) | Piece::Tilde(_)))
}

fn values(parts: &[Part]) -> Values {
    let pattern = parts.iter().any(|part| matches!(part, Part::Glob(_)));
    let mut texts = vec![String::new()];
    for part in parts {
        match part {
            Part::Text(text) if pattern => {
                for c in text.chars() {
                    if matches!(c, '*' | '?' | '[' | '\\') {
                        texts[0].push('\\');
                    }
                    texts[0].push(c);
                }
            }
            Part::Text(text) => texts.iter_mut().for_each(|all| all.push_str(text)),
            Part::Glob(c) | Part::Brace(c) => texts.iter_mut().for_each(|all| all.push(*c)),
            Part::Values(values) if !pattern && texts.len() * values.len() <= 64 && !values.is_empty() => {
                texts = texts.iter().flat_map(|all| values.iter().map(move |value| format!("{all}{value}"))).collect();
            }
            Part::Values(_) | Part::Unknown | Part::Words => {
                let prefix = if texts.len() == 1 { texts.remove(0) } else { String::new() };
                let prefix = if pattern {
                    prefix[..prefix.find(['*', '?', '[', '\\']).unwrap_or(prefix.len())].to_owned()
                } else {
                    prefix
                };
                return Values::Unknown(prefix);
            }
        }
    }
    texts.sort();
    texts.dedup();
    match texts.len() {
        1 if pattern => Values::Pattern(texts.remove(0)),
        1 => Values::Exact(texts.remove(0)),
        _ => Values::OneOf(texts),
    }
}

/// Brace expansion. None where there would be too many words.
fn braces(parts: &[Part]) -> Option<Vec<Vec<Part>>> {
    let opens = parts.iter().filter(|part| matches!(part, Part::Brace('{'))).count();
    if opens == 0 {
        return Some(vec![plain(parts)]);
    }
    if opens > 24 {
        return None;
    }
    let Some((open, close, commas)) = first_brace(parts) else { return Some(vec![plain(parts)]) };
    let mut middles: Vec<Vec<Part>> = vec![];
    if commas.is_empty() {
        middles.extend(sequence(&parts[open + 1..close])?.into_iter().map(|text| vec![Part::Text(text)]));
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
    let join = |middle: &Vec<Part>, tail: &Vec<Part>| head.iter().chain(middle).chain(tail).cloned().collect();
    Some(middles.iter().flat_map(|middle| tails.iter().map(move |tail| join(middle, tail))).collect())
}

fn plain(parts: &[Part]) -> Vec<Part> {
    let plain = |part: &Part| match part {
        Part::Brace(c) => Part::Text(c.to_string()),
        part => part.clone(),
    };
    parts.iter().map(plain).collect()
}

/// The first brace that expands: where it opens and closes, and its commas; no commas: a sequence.
fn first_brace(parts: &[Part]) -> Option<(usize, usize, Vec<usize>)> {
    for open in 0..parts.len() {
        if !matches!(parts[open], Part::Brace('{')) {
            continue;
        }
        let mut depth = 0_usize;
        let mut commas = vec![];
        for (at, part) in parts.iter().enumerate().skip(open) {
            match part {
                Part::Brace('{') => depth += 1,
                Part::Brace(',') if depth == 1 => commas.push(at),
                Part::Brace('}') => depth -= 1,
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

fn ends(parts: &[Part]) -> Option<(&str, &str)> {
    let [Part::Text(text)] = parts else { return None };
    let (from, rest) = text.split_once("..")?;
    let to = rest.split("..").next()?;
    Some((from, to))
}

fn is_sequence(parts: &[Part]) -> bool {
    let number = |text: &str| text.parse::<i64>().is_ok();
    let letter = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    ends(parts).is_some_and(|(from, to)| (number(from) && number(to)) || (letter(from) && letter(to)))
}

/// The members of `{a..c}`. None where there are too many. A step is left out: more words than
/// there are do no harm.
fn sequence(parts: &[Part]) -> Option<Vec<String>> {
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
