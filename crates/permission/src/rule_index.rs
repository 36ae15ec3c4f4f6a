//! Finds the rules that may apply to a text, without comparing all of them.
//!
//! The rules found here are judged by `wildcard` afterwards: an extra rule costs time, a missing
//! rule would be a security hole. A rule's key is therefore text with which every match of its
//! pattern must begin or end, or that it must contain, compared ignoring case; of the three, the
//! one that the fewest rules share. Rules about addresses are found by the host as well.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};

use super::inner_index::InnerIndex;
use super::key_index::KeyIndex;
use super::rule_entry::{BUILT_IN, POSTURE};
use super::url::{self, Address, HostKey};
use super::wildcard::{self, UNKNOWN};
use super::{Action, Rule, first_word, written_line};
use base::lock::lock;

/// The maximum length of a key, in characters.
const MAX_KEY_CHARS: usize = 64;

/// The number of permissions per piece for which compiled patterns are cached.
const MAX_TABLES: usize = 256;

/// The index of a piece of a rule list, built on first use.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    permissions: OnceLock<PermissionIndex>,
    tables: Mutex<HashMap<Box<str>, Arc<PatternTable>>>,
}

/// The positions of rules by permission, ascending.
#[derive(Debug, Default)]
struct PermissionIndex {
    /// Plain permission keys, with `\` replaced by `/`.
    exact: HashMap<String, Vec<u32>>,
    wild: Vec<(Box<str>, Vec<u32>)>,
    /// The position of the last posture rule, and `true` if it denies.
    posture: Option<(usize, bool)>,
    /// The first rule from the settings that asks about or denies an effect that a command line may
    /// hide: in any sandbox, and only for commands that can change files.
    restricts_hidden: [Option<u32>; 2],
}

impl PermissionIndex {
    fn new(rules: &[Rule]) -> Self {
        let mut index = Self::default();
        let mut wild: HashMap<&str, Vec<u32>> = HashMap::new();
        for (at, rule) in (0..).zip(rules) {
            if rule.permission.contains(['*', '?']) {
                wild.entry(&rule.permission).or_default().push(at);
            } else {
                index
                    .exact
                    .entry(rule.permission.replace('\\', "/"))
                    .or_default()
                    .push(at);
            }
            if (rule.permission.as_str(), rule.pattern.as_str()) == POSTURE {
                index.posture = Some((at as usize, rule.action == Action::Deny));
            }
        }
        index.wild = wild
            .into_iter()
            .map(|(permission, places)| (permission.into(), places))
            .collect();
        let restrictions = |permission: &str| {
            let places = index.about(permission).into_iter();
            let rule = |at: &u32| rules.get(*at as usize);
            places.filter(move |at| rule(at).is_some_and(is_restriction))
        };
        let is_specific = |at: &u32| {
            rules
                .get(*at as usize)
                .is_some_and(|rule| rule.pattern != "*")
        };
        let hidden = restrictions("bash")
            .find(is_specific)
            .or_else(|| restrictions("read").next())
            .or_else(|| restrictions("external_directory").next());
        let edited = restrictions("edit").next();
        index.restricts_hidden = [hidden, edited];
        index
    }

    fn groups(&self, permission: &str) -> impl Iterator<Item = &Vec<u32>> {
        let exact = self.exact.get(&*permission.replace('\\', "/"));
        let wild = self
            .wild
            .iter()
            .filter(move |(wild, _)| wildcard::matches(wild, permission));
        exact.into_iter().chain(wild.map(|(_, places)| places))
    }

    fn about(&self, permission: &str) -> Vec<u32> {
        let mut places: Vec<u32> = self.groups(permission).flatten().copied().collect();
        places.sort_unstable();
        places
    }
}

/// Returns whether a rule from the settings asks or denies.
fn is_restriction(rule: &Rule) -> bool {
    rule.action != Action::Allow && rule.source != BUILT_IN
}

impl RuleIndex {
    fn permissions(&self, rules: &[Rule]) -> &PermissionIndex {
        self.permissions.get_or_init(|| PermissionIndex::new(rules))
    }

    pub(super) fn last_about(&self, rules: &[Rule], permission: &str) -> Option<usize> {
        let groups = self.permissions(rules).groups(permission);
        groups
            .filter_map(|places| places.last())
            .max()
            .map(|at| *at as usize)
    }

    pub(super) fn posture(&self, rules: &[Rule]) -> Option<(usize, bool)> {
        self.permissions(rules).posture
    }

    /// Returns a rule from the settings that asks about or denies an effect that a command line may
    /// hide. `edits`: the command can change files.
    pub(super) fn restriction_of_hidden<'r>(
        &self,
        rules: &'r [Rule],
        edits: bool,
    ) -> Option<&'r Rule> {
        let [hidden, edited] = self.permissions(rules).restricts_hidden;
        let place = if edits { hidden.or(edited) } else { hidden }?;
        rules.get(place as usize)
    }

    /// Returns the compiled patterns of the rules about a permission.
    pub(super) fn table(&self, rules: &[Rule], permission: &str) -> Arc<PatternTable> {
        let mut tables = lock(&self.tables);
        if let Some(table) = tables.get(permission) {
            return table.clone();
        }
        let mut table = PatternTable::new(rules, self.permissions(rules).about(permission));
        if permission == url::PERMISSION {
            table.add_hosts(rules);
        }
        let table = Arc::new(table);
        if tables.len() >= MAX_TABLES {
            tables.clear();
        }
        tables.insert(permission.into(), table.clone());
        table
    }
}

/// The compiled patterns of the rules about one permission. Rules are identified by their positions
/// in a piece.
#[derive(Debug, Default)]
pub(super) struct PatternTable {
    all: Vec<u32>,
    /// Rules with the pattern `*`.
    catch_all: Vec<u32>,
    /// Other rules by the beginning of their matches, or by the ending, reversed.
    beginnings: KeyIndex,
    endings: KeyIndex,
    /// Other rules by a text that their matches contain.
    inner: InnerIndex,
    /// Rules that allow a command with quotes, by its words joined by single spaces.
    quoted: HashMap<String, Vec<u32>>,
    /// Rules that consist of wildcards.
    open: Vec<u32>,
    /// Rules about addresses by the hosts that they may name; empty for other permissions.
    hosts: HashMap<HostKey, Vec<u32>>,
    /// Rules that ask or deny, by their first word in lower case.
    words: KeyIndex,
    /// Rules that ask or deny and begin with no word.
    wordless: Vec<u32>,
    /// The first characters of the first words of denies.
    letters: BTreeSet<char>,
    /// The names of denied commands, in lower case.
    denied_names: KeyIndex,
}

impl PatternTable {
    fn new(rules: &[Rule], places: Vec<u32>) -> Self {
        let mut table = Self::default();
        let mut keys = Vec::new();
        for at in places {
            let Some(rule) = rules.get(at as usize) else {
                continue;
            };
            table.all.push(at);
            if let Some(name) = denied_name(rule) {
                table.denied_names.insert(&name, at);
            }
            if rule.pattern == "*" {
                table.catch_all.push(at);
                continue;
            }
            keys.push((
                at,
                [
                    pattern_beginning(&rule.pattern),
                    pattern_ending(&rule.pattern),
                    pattern_inside(&rule.pattern),
                ],
            ));
            if rule.action == Action::Allow {
                if let Some(words) = written_line::quoted_words(&rule.pattern) {
                    table.quoted.entry(words.join(" ")).or_default().push(at);
                }
                continue;
            }
            let word = lower(first_word::beginning(&rule.pattern));
            if rule.action == Action::Deny {
                table.letters.extend(word.chars().next());
            }
            if word.is_empty() {
                table.wordless.push(at);
            } else {
                table.words.insert(&word, at);
            }
        }
        table.add_keys(keys);
        table
    }

    /// Indexes rules by the beginning, the ending or the inside of their matches, whichever the
    /// fewest rules share.
    fn add_keys(&mut self, keys: Vec<(u32, [String; 3])>) {
        let mut counts: [HashMap<&str, usize>; 3] = Default::default();
        for (_, of_rule) in &keys {
            for (counts, key) in counts.iter_mut().zip(of_rule) {
                *counts.entry(key).or_default() += 1;
            }
        }
        let mut inner = Vec::new();
        for (at, of_rule) in &keys {
            let shared = |kind: usize| {
                let key = of_rule[kind].as_str();
                let rules = counts[kind].get(key).copied().unwrap_or_default();
                (!key.is_empty()).then_some(rules)
            };
            let best = (0..counts.len())
                .filter_map(|kind| Some((shared(kind)?, kind)))
                .min();
            match best {
                None => self.open.push(*at),
                Some((_, 0)) => self.beginnings.insert(&of_rule[0], *at),
                Some((_, 1)) => self.endings.insert(&of_rule[1], *at),
                Some(_) => inner.push((of_rule[2].as_str(), *at)),
            }
        }
        self.inner = InnerIndex::new(inner);
    }

    /// Indexes rules about addresses by the host.
    fn add_hosts(&mut self, rules: &[Rule]) {
        for at in &self.all {
            if let Some(rule) = rules.get(*at as usize) {
                let key = HostKey::of_pattern(&rule.pattern);
                self.hosts.entry(key).or_default().push(*at);
            }
        }
    }

    /// Adds the rules that may name the host of an address.
    fn find_host(&self, host: &str, found: &mut Vec<u32>) {
        for key in HostKey::of_host(host) {
            found.extend(self.hosts.get(&key).into_iter().flatten());
        }
    }

    fn find(&self, key: &TextKey<'_>, found: &mut Vec<u32>) {
        self.beginnings.find(&key.beginning, found);
        self.endings.find(&key.ending, found);
        if !self.inner.is_empty() {
            self.inner.find(key.folded(), found);
        }
        found.extend(self.quoted.get(&*key.text).into_iter().flatten());
        found.extend(&self.open);
    }

    /// Adds the rules that may match a text whose middle is unknown.
    fn find_unknown(&self, key: &TextKey<'_>, found: &mut Vec<u32>) {
        for (keys, text) in [
            (&self.beginnings, &key.beginning),
            (&self.endings, &key.ending),
        ] {
            keys.find(text, found);
            keys.find_longer(text, found);
        }
        // The unknown middle may contain anything.
        found.extend(self.inner.all());
        found.extend(&self.open);
    }

    /// Adds the rules that may apply to a command that begins at one of these words.
    fn find_tails(&self, tails: &TailKeys, found: &mut Vec<u32>) {
        // An entirely unknown word may be any word, so the others add nothing.
        let any = tails.words.get(&(String::new(), false));
        let words = any.map_or_else(|| tails.words.iter().collect(), |any| vec![any]);
        for (word, is_whole) in words {
            self.words.find(word, found);
            if !is_whole {
                self.words.find_longer(word, found);
            }
        }
        if tails.is_long {
            found.extend(&self.wordless);
        }
    }
}

/// Returns the name with which a denied command begins, in lower case and without leading
/// wildcards.
pub(super) fn denied_name(rule: &Rule) -> Option<String> {
    if rule.action != Action::Deny {
        return None;
    }
    let pattern = rule.pattern.trim_start_matches(['*', ' ']);
    let word = pattern
        .split([' ', '*', '?'])
        .next()
        .unwrap_or_default()
        .rsplit('/')
        .next()
        .unwrap_or_default();
    (!word.is_empty()).then(|| word.to_lowercase())
}

/// Returns the text with which every match of a pattern begins, folded by [`wildcard::fold`].
fn pattern_beginning(pattern: &str) -> String {
    let certain = &pattern[..pattern.find(['*', '?']).unwrap_or(pattern.len())];
    // A space before the last star may be missing.
    certain
        .trim_end_matches(' ')
        .chars()
        .take(MAX_KEY_CHARS)
        .map(wildcard::fold)
        .collect()
}

/// Returns the text with which every match of a pattern ends, reversed and folded.
fn pattern_ending(pattern: &str) -> String {
    let at = pattern.rfind(['*', '?']).map_or(0, |at| at + 1);
    let ending = &pattern[at..];
    // If `**/` matches nothing, the slash is missing too.
    let ending = if pattern[..at].ends_with("**") {
        ending.trim_start_matches(['/', '\\'])
    } else {
        ending
    };
    ending
        .chars()
        .rev()
        .take(MAX_KEY_CHARS)
        .map(wildcard::fold)
        .collect()
}

/// Returns the longest text that every match of a pattern contains, folded.
fn pattern_inside(pattern: &str) -> String {
    // A space before the last star may be missing, and the slash of a `**/` that matches nothing.
    let certain = pattern
        .split(['*', '?'])
        .map(|piece| piece.trim_end_matches(' ').trim_start_matches(['/', '\\']));
    let longest = certain.max_by_key(|piece| piece.len()).unwrap_or_default();
    longest
        .chars()
        .take(MAX_KEY_CHARS)
        .map(wildcard::fold)
        .collect()
}

fn lower(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// The keys of a text, by which the rules about it are found.
#[derive(Debug)]
pub(super) struct TextKey<'t> {
    text: Cow<'t, str>,
    beginning: String,
    /// The ending of the text, reversed.
    ending: String,
    /// The whole text, folded when it is first needed.
    folded: OnceCell<String>,
}

impl<'t> TextKey<'t> {
    pub(super) fn new(text: impl Into<Cow<'t, str>>) -> Self {
        let text = text.into();
        Self {
            beginning: Self::folded_beginning(&text),
            ending: Self::folded_ending(&text),
            text,
            folded: OnceCell::new(),
        }
    }

    /// Returns the key of a text with unknown words: the text before the first and after the last
    /// of them.
    fn around_unknown(text: &str) -> Option<TextKey<'static>> {
        let beginning = text.find(UNKNOWN)?;
        let ending = text.rfind(UNKNOWN)?;
        Some(TextKey {
            text: Cow::Borrowed(""),
            beginning: Self::folded_beginning(&text[..beginning]),
            ending: Self::folded_ending(&text[ending + UNKNOWN.len_utf8()..]),
            folded: OnceCell::new(),
        })
    }

    fn folded_beginning(text: &str) -> String {
        text.chars()
            .take(MAX_KEY_CHARS)
            .map(wildcard::fold)
            .collect()
    }

    fn folded_ending(text: &str) -> String {
        text.chars()
            .rev()
            .take(MAX_KEY_CHARS)
            .map(wildcard::fold)
            .collect()
    }

    fn folded(&self) -> &str {
        self.folded
            .get_or_init(|| self.text.chars().map(wildcard::fold).collect())
    }
}

/// The keys of a command that may begin at one of several words.
#[derive(Debug, Default)]
pub(super) struct TailKeys {
    /// Words in lower case, each with `true` if no part of it is unknown.
    words: BTreeSet<(String, bool)>,
    /// Set if so many words were compared that a rule without a first word counts as found.
    is_long: bool,
}

/// The keys of a part of a command line.
#[derive(Debug, Default)]
pub(super) struct UnitKeys<'t> {
    known: Vec<TextKey<'t>>,
    unknown: Vec<TextKey<'static>>,
    tails: TailKeys,
}

impl<'t> UnitKeys<'t> {
    /// Builds the keys. `texts` are the spellings of the command; `tails` are words of which each
    /// may begin a command.
    pub(super) fn new(texts: impl Iterator<Item = &'t str>, tails: &[String]) -> Self {
        let mut keys = Self::default();
        texts.for_each(|text| keys.add(text.into()));
        for word in tails {
            let known = word.find(UNKNOWN);
            let part = known.map_or_else(
                || word.rsplit('/').next().unwrap_or(word),
                |known| &word[..known],
            );
            keys.tails.words.insert((lower(part), known.is_none()));
        }
        // The texts that a rule without a first word would be compared with.
        let mut wordless = Vec::new();
        let compared = |text: &str| {
            wordless.push(text.to_owned());
            false
        };
        keys.tails.is_long = first_word::begins_with("", tails, compared).is_some();
        wordless
            .into_iter()
            .for_each(|text| keys.add(Cow::Owned(text)));
        keys
    }

    fn add(&mut self, text: Cow<'t, str>) {
        self.unknown.extend(TextKey::around_unknown(&text));
        self.known.push(TextKey::new(text));
    }
}

/// The rules of a list that are about one permission.
#[derive(Debug, Default)]
pub(super) struct RulesAbout<'r> {
    pieces: Vec<PieceAbout<'r>>,
}

#[derive(Debug)]
struct PieceAbout<'r> {
    offset: usize,
    rules: &'r [Rule],
    table: Arc<PatternTable>,
}

/// A rule with its position in its list.
pub(super) type IndexedRule<'r> = (usize, &'r Rule);

impl<'r> RulesAbout<'r> {
    pub(super) fn add(&mut self, offset: usize, rules: &'r [Rule], table: Arc<PatternTable>) {
        if !table.all.is_empty() {
            self.pieces.push(PieceAbout {
                offset,
                rules,
                table,
            });
        }
    }

    /// Returns the last rule with the pattern `*`.
    pub(super) fn catch_all(&self) -> Option<&'r Rule> {
        self.pieces
            .iter()
            .rev()
            .find_map(|piece| piece.rules.get(*piece.table.catch_all.last()? as usize))
    }

    /// Returns all rules that may match a text, in order.
    pub(super) fn fitting(&self, text: &str) -> Vec<IndexedRule<'r>> {
        let key = TextKey::new(text);
        self.collect(|table, found| {
            found.extend(&table.catch_all);
            table.find(&key, found);
        })
    }

    /// Returns all rules that may apply to an address, in order: by its host, or by its text.
    pub(super) fn fitting_address(&self, address: &Address) -> Vec<IndexedRule<'r>> {
        let key = TextKey::new(address.url.as_str());
        self.collect(|table, found| {
            found.extend(&table.catch_all);
            table.find_host(&address.host, found);
            table.find(&key, found);
        })
    }

    /// Returns all rules that may apply to a part of a command line or to a program that it may
    /// start.
    pub(super) fn may_apply(&self, keys: &UnitKeys<'_>) -> Vec<IndexedRule<'r>> {
        self.collect(|table, found| {
            found.extend(&table.catch_all);
            keys.known.iter().for_each(|key| table.find(key, found));
            table.find_tails(&keys.tails, found);
        })
    }

    /// Returns all rules that may apply to the part once its unknown words are known, except those
    /// with the pattern `*`.
    pub(super) fn may_apply_once_known(&self, keys: &UnitKeys<'_>) -> Vec<IndexedRule<'r>> {
        self.collect(|table, found| {
            keys.unknown
                .iter()
                .for_each(|key| table.find_unknown(key, found));
            table.find_tails(&keys.tails, found);
        })
    }

    /// Returns the denies that may begin with a word.
    pub(super) fn denies_beginning_with(&self, word: &str) -> Vec<IndexedRule<'r>> {
        let word = lower(word);
        let first = word.chars().next();
        if !is_index_disabled()
            && !self
                .pieces
                .iter()
                .any(|piece| first.is_some_and(|c| piece.table.letters.contains(&c)))
        {
            return Vec::new();
        }
        let mut rules = self.collect(|table, found| table.words.find(&word, found));
        rules.retain(|(_, rule)| rule.action == Action::Deny && rule.pattern != "*");
        rules
    }

    /// Returns the denies that begin with no word and may match a text.
    pub(super) fn wordless_denies(&self, text: &str) -> Vec<IndexedRule<'r>> {
        if self
            .pieces
            .iter()
            .all(|piece| piece.table.wordless.is_empty())
        {
            return Vec::new();
        }
        let key = TextKey::new(text);
        let mut rules = self.collect(|table, found| table.find(&key, found));
        let is_wordless =
            |rule: &Rule| rule.pattern != "*" && first_word::beginning(&rule.pattern).is_empty();
        rules.retain(|(_, rule)| rule.action == Action::Deny && is_wordless(rule));
        rules
    }

    /// Returns whether a rule denies a command by its name.
    pub(super) fn denies_names(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| !piece.table.denied_names.is_empty())
    }

    /// Returns whether a word is the name of a denied command.
    pub(super) fn denies_name(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        self.pieces
            .iter()
            .any(|piece| piece.table.denied_names.has(&word))
    }

    /// Returns the alphabetically first name of a denied command that is a whole word in a
    /// lower-case text.
    pub(super) fn denied_name_in(&self, text: &str) -> Option<&str> {
        let mut found: Option<&str> = None;
        let mut before = None;
        for (at, c) in text.char_indices() {
            let begins = !before.replace(c).is_some_and(is_word_char);
            if !begins {
                continue;
            }
            for piece in &self.pieces {
                let is_whole_word = |name: &&str| {
                    !text[at + name.len()..]
                        .chars()
                        .next()
                        .is_some_and(is_word_char)
                };
                let names = piece
                    .table
                    .denied_names
                    .beginnings_of(&text[at..])
                    .filter(is_whole_word);
                found = names.chain(found).min();
            }
        }
        found
    }

    fn collect(&self, find: impl Fn(&PatternTable, &mut Vec<u32>)) -> Vec<IndexedRule<'r>> {
        let mut rules = Vec::new();
        let mut found = Vec::new();
        for piece in &self.pieces {
            found.clear();
            if is_index_disabled() {
                found.extend(&piece.table.all);
            } else {
                find(&piece.table, &mut found);
            }
            found.sort_unstable();
            found.dedup();
            count_compared(found.len());
            let placed =
                |at: &u32| Some((piece.offset + *at as usize, piece.rules.get(*at as usize)?));
            rules.extend(found.iter().filter_map(placed));
        }
        rules
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(not(test))]
fn count_compared(_: usize) {}

#[cfg(not(test))]
fn is_index_disabled() -> bool {
    false
}

#[cfg(test)]
pub(super) use counted::{count_compared, is_index_disabled, rules_compared_by, without_index};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
        static INDEX_DISABLED: Cell<bool> = const { Cell::new(false) };
    }

    pub(in super::super) fn count_compared(rules: usize) {
        COMPARED.set(COMPARED.get() + rules);
    }

    pub(in super::super) fn is_index_disabled() -> bool {
        INDEX_DISABLED.get()
    }

    /// Returns the number of rules that `work` compares on this thread.
    pub(in super::super) fn rules_compared_by(work: impl FnOnce()) -> usize {
        COMPARED.set(0);
        work();
        COMPARED.get()
    }

    /// Runs `work` with all rules compared instead of the index.
    pub(in super::super) fn without_index<T>(work: impl FnOnce() -> T) -> T {
        struct ResetOnDrop;
        impl Drop for ResetOnDrop {
            fn drop(&mut self) {
                INDEX_DISABLED.set(false);
            }
        }
        INDEX_DISABLED.set(true);
        let _reset = ResetOnDrop;
        work()
    }
}
