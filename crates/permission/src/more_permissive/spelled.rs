//! Example commands that rules know under names other than their words: a program without its path,
//! a command without the options before its first word, `git-push` and `python3.12`, and programs
//! that another program may start.
//!
//! A rule that asks or denies applies to all of these names; one that allows applies to the words,
//! and to the program without its path.

use std::collections::{BTreeMap, VecDeque};

use super::super::shell::{CommandAnalysis, CommandUnit, Effect};
use super::super::wildcard::{fold, readings, slash};
use super::super::written_line::quoted_words;
use super::super::{AccessRequest, Action, Rule, SandboxGuarantee};
use super::{Changed, content, distinct, of_command};

/// A pattern symbol for any run of characters without a blank.
const PATH: char = '\u{1}';

/// Returns a command for every pair of rules of which the first may allow what the second stops,
/// though no words match both; and one for every removed rule, under its former names.
pub(super) fn commands(
    rules: &[&Rule],
    changed: Option<&Changed<'_>>,
    posture: bool,
) -> Vec<AccessRequest> {
    let mut found = SharedRequests {
        posture,
        fresh: fresh(rules),
        quoted: BTreeMap::new(),
        requests: Vec::new(),
    };
    let allows = |rule: &&&Rule| rule.action == Action::Allow;
    let quoted: Vec<(&Rule, Vec<String>)> = rules
        .iter()
        .filter(allows)
        .filter_map(|rule| Some((*rule, quoted_words(&rule.pattern)?)))
        .collect();
    for (_, argv) in &quoted {
        let commands = found.quoted.entry(argv.join(" ")).or_default();
        commands.push(argv.clone());
    }
    let opens = |rule: &&&Rule| rule.action != Action::Deny && rule.pattern != "*";
    let stops = |rule: &&&Rule| rule.action != Action::Allow && rule.pattern != "*";
    let stops: BTreeMap<_, &Rule> = rules
        .iter()
        .filter(stops)
        .map(|rule| (content(rule), *rule))
        .collect();
    let named = |pattern: &str| {
        readings(pattern)
            .iter()
            .map(|text| Names::of(text))
            .collect::<Vec<_>>()
    };
    let stops: Vec<(&Rule, Names)> = stops
        .values()
        .flat_map(|rule| named(&rule.pattern).into_iter().map(|names| (*rule, names)))
        .collect();
    for (pattern, action) in distinct(
        rules
            .iter()
            .filter(opens)
            .map(|rule| (&rule.pattern, rule.action)),
    ) {
        let opens = named(pattern);
        for (rule, names) in &stops {
            if changed.is_none_or(|changed| changed.may_permit_more(pattern, rule)) {
                opens
                    .iter()
                    .for_each(|opens| found.pair(opens, action, names));
            }
        }
        let new =
            changed.is_none_or(|changed| changed.added.iter().any(|rule| rule.pattern == *pattern));
        if new && action == Action::Ask && posture {
            // One that asks is also an exception from the read-only posture.
            opens.iter().for_each(|opens| found.alone(opens));
        }
    }
    for (quoted, argv) in &quoted {
        let text = argv.join(" ");
        found.named(&text, vec![]);
        let opens = Names::of(&text);
        for (rule, names) in &stops {
            if changed.is_none_or(|changed| changed.may_permit_more(&quoted.pattern, rule)) {
                found.pair(&opens, Action::Allow, names);
            }
        }
    }
    for (rule, names) in &stops {
        if changed.is_none_or(|changed| {
            changed
                .removed
                .iter()
                .any(|removed| content(removed) == content(rule))
        }) {
            found.alone(names);
            found.add_possible_programs(&format!(
                "{} {}",
                found.fresh,
                plain(&names.pattern, found.fresh)
            ));
        }
    }
    found.requests
}

/// The names under which a rule knows commands.
struct Names {
    pattern: String,
    /// Patterns of commands that the rule matches by one of their names.
    written: Vec<String>,
    /// The pattern for other names of the program, if its name has variants.
    other: Option<String>,
}

impl Names {
    fn of(pattern: &str) -> Self {
        let first = pattern.find(' ').unwrap_or(pattern.len());
        let mut written = vec![];
        // A question mark may match the blank as well.
        for (at, _) in pattern
            .match_indices([' ', '?'])
            .filter(|(at, _)| *at > 0 && *at <= first)
        {
            written.push(format!("{} -* {}", &pattern[..at], &pattern[at + 1..]));
        }
        if first == pattern.len() {
            written.push(format!("{pattern} -*"));
        }
        let below = [pattern.to_owned()].into_iter().chain(written.clone());
        written.extend(
            below
                .map(|written| format!("{PATH}/{written}"))
                .collect::<Vec<_>>(),
        );
        let (program, rest) = pattern.split_at(first);
        let program = program.rsplit('/').next().unwrap_or(program);
        let family =
            program.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '?' | '*'));
        let version = &program[family.len()..];
        let run = if program.ends_with('*') { "*" } else { "" };
        let other = match program.strip_prefix("git-") {
            Some(command) => Some(format!("git {command}{rest}")),
            None if version.trim_matches('*').is_empty() || family.is_empty() => None,
            None => Some(format!("{family}{run}{rest}")),
        };
        Self {
            pattern: pattern.to_owned(),
            written,
            other,
        }
    }
}

struct SharedRequests {
    posture: bool,
    /// A letter that is in no rule.
    fresh: char,
    /// The words of the commands that rules allow in quotes, by their text without quotes.
    quoted: BTreeMap<String, Vec<Vec<String>>>,
    requests: Vec<AccessRequest>,
}

impl SharedRequests {
    /// Adds commands that both rules match, at least one of them by a name other than the words.
    fn pair(&mut self, opens: &Names, action: Action, stops: &Names) {
        let path = format!("{PATH}/{}", opens.pattern);
        let spoken: Vec<&str> = match action {
            Action::Ask => opens.written.iter().map(String::as_str).collect(),
            _ => vec![&path],
        };
        let words = |names: &Names| plain(&names.pattern, self.fresh);
        let ours = words(opens);
        let theirs = words(stops);
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for written in &stops.written {
            found.extend(
                self.meet(&opens.pattern, written)
                    .map(|text| (text, vec![theirs.clone()])),
            );
        }
        for spoken in &spoken {
            found.extend(
                self.meet(spoken, &stops.pattern)
                    .map(|text| (text, vec![ours.clone()])),
            );
            if action == Action::Ask {
                for written in &stops.written {
                    found.extend(
                        self.meet(spoken, written)
                            .map(|text| (text, vec![ours.clone(), theirs.clone()])),
                    );
                }
            }
        }
        if let Some(name) = opens
            .other
            .as_ref()
            .and_then(|other| self.meet(other, &stops.pattern))
        {
            found.push((ours.clone(), vec![name]));
        }
        if let Some(name) = stops
            .other
            .as_ref()
            .and_then(|other| self.meet(other, &opens.pattern))
            && action == Action::Ask
        {
            found.push((theirs.clone(), vec![name]));
        }
        for (text, names) in found {
            self.named(&text, names);
        }
        // A program that the command may start comes after the command's name, and after the part
        // that the rule matches.
        let within = format!("* {}", stops.pattern);
        for spoken in [opens.pattern.as_str()].into_iter().chain(spoken) {
            if let Some(text) = self.meet(spoken, &within) {
                self.add_possible_programs(&text);
                break;
            }
        }
    }

    /// Adds a command that a rule knows under a name other than its words.
    fn alone(&mut self, names: &Names) {
        let name = plain(&names.pattern, self.fresh);
        let by = format!("{} {name}", self.fresh);
        self.named(&by, vec![name]);
    }

    fn named(&mut self, text: &str, names: Vec<String>) {
        for effect in [Effect::Reads, Effect::Unproven, Effect::Writes] {
            let mut unit = written(text, effect);
            unit.other_spellings.extend(names.iter().cloned());
            self.push(unit);
        }
    }

    /// Adds a command of whose words some may begin a program.
    fn add_possible_programs(&mut self, text: &str) {
        let unit = written(text, Effect::Unproven);
        let tails = text.split(' ').skip(1).map(str::to_owned).collect();
        self.push(CommandUnit {
            possible_starts: tails,
            ..unit
        });
        self.requests.push(of_command(CommandAnalysis {
            unparsed_texts: vec![text.to_owned()],
            ..CommandAnalysis::default()
        }));
    }

    /// Adds a command, and with the same text every command that a rule allows in quotes.
    fn push(&mut self, unit: CommandUnit) {
        for argv in self.quoted.get(&unit.text).cloned().unwrap_or_default() {
            self.push_command(CommandUnit {
                argv,
                ..unit.clone()
            });
        }
        self.push_command(unit);
    }

    fn push_command(&mut self, unit: CommandUnit) {
        let request = of_command(CommandAnalysis {
            text: unit.text.clone(),
            units: vec![unit],
            ..CommandAnalysis::default()
        });
        if self.posture {
            self.requests.push(AccessRequest {
                guarantee: SandboxGuarantee::READ_ONLY,
                ..request.clone()
            });
        }
        self.requests.push(request);
    }

    fn meet(&self, one: &str, other: &str) -> Option<String> {
        if (other.starts_with(PATH) && !may_have_path(one))
            || (one.starts_with(PATH) && !may_have_path(other))
        {
            return None;
        }
        meet(one, other, self.fresh)
    }
}

/// Returns whether the program may have a path. No other word has one.
fn may_have_path(pattern: &str) -> bool {
    pattern
        .split(' ')
        .next()
        .is_some_and(|word| word.contains(['/', '\\', '*', '?', PATH]))
}

/// Returns a command with these words; its program is also known without its path.
pub(super) fn written(text: &str, effect: Effect) -> CommandUnit {
    let (program, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
    let base = program
        .rsplit_once('/')
        .map(|(_, base)| format!("{base}{rest}"));
    CommandUnit {
        text: text.to_owned(),
        normalized: text.to_owned(),
        program: (!program.is_empty()).then(|| program.to_owned()),
        other_spellings: base.into_iter().collect(),
        effect,
        ..CommandUnit::default()
    }
}

/// Returns the shortest text that matches a pattern.
fn plain(pattern: &str, fresh: char) -> String {
    pattern
        .chars()
        .filter(|c| *c != '*')
        .map(|c| if c == '?' { fresh } else { slash(c) })
        .collect()
}

/// Returns a letter that is in none of the rules.
fn fresh(rules: &[&Rule]) -> char {
    let letters = ('a'..='z').rev().chain('0'..='9');
    letters
        .into_iter()
        .find(|c| {
            !rules
                .iter()
                .any(|rule| rule.pattern.to_lowercase().contains(*c))
        })
        .unwrap_or('\u{e000}')
}

/// Returns a text that matches both patterns, ignoring case, spelled as in the first.
fn meet(one: &str, other: &str, fresh: char) -> Option<String> {
    let [one, other] =
        [one, other].map(|pattern| pattern.chars().map(slash).collect::<Vec<char>>());
    let wide = other.len() + 1;
    let mut from: Vec<Option<(usize, Option<char>)>> = vec![None; (one.len() + 1) * wide];
    let mut ahead = VecDeque::from([(0, 0)]);
    while let Some((a, b)) = ahead.pop_front() {
        if is_at_end(&one, a) && is_at_end(&other, b) {
            let mut text = Vec::new();
            let mut at = a * wide + b;
            while at > 0
                && let Some((before, letter)) = from[at]
            {
                text.extend(letter);
                at = before;
            }
            return Some(text.into_iter().rev().collect());
        }
        let mut go = |x: usize, y: usize, letter: Option<char>| {
            let slot = &mut from[x * wide + y];
            if slot.is_none() && (x, y) != (0, 0) {
                *slot = Some((a * wide + b, letter));
                ahead.push_back((x, y));
            }
        };
        let ours = one.get(a).copied();
        let theirs = other.get(b).copied();
        if is_run(ours) {
            go(a + 1, b, None);
        }
        if is_run(theirs) {
            go(a, b + 1, None);
        }
        let letter = |c: char| if c == '?' { fresh } else { c };
        match (ours, theirs) {
            (Some('*' | PATH), Some('*' | PATH))
            | (Some(PATH), Some(' '))
            | (Some(' '), Some(PATH)) => {}
            (Some('*' | PATH), Some(c)) => go(a, b + 1, Some(letter(c))),
            (Some(c), Some('*' | PATH)) => go(a + 1, b, Some(letter(c))),
            (Some('?'), Some(c)) | (Some(c), Some('?')) => go(a + 1, b + 1, Some(letter(c))),
            (Some(c), Some(d)) if fold(c) == fold(d) => go(a + 1, b + 1, Some(c)),
            _ => {}
        }
    }
    None
}

fn is_run(symbol: Option<char>) -> bool {
    matches!(symbol, Some('*' | PATH))
}

/// Returns whether nothing is left to match: a blank and a star at the end also match nothing.
fn is_at_end(pattern: &[char], at: usize) -> bool {
    at == pattern.len() || (at + 2 == pattern.len() && pattern[at..] == [' ', '*'])
}
