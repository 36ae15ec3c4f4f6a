//! What `find` does with the files it finds. Its words are an expression: which files an action gets
//! hangs on the tests before it and on the signs between them, so that only those tests count that
//! every such file has passed.

use super::read::{GivenOption, ParsedArgs, end_of_command};
use super::table::{Does, Takes, Utility};
use super::{Deed, Judge, PickedFiles};
use crate::protected::secret_name;
use crate::shell::expand::Arg;
use crate::shell::names::among;
use crate::shell::unit::Effect;
use crate::{Access, Action};

/// Tests that leave files out.
const TESTS: &str = "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -atime -ctime -size -user \
    -perm -lname -samefile -inum -links";
/// Brackets within brackets; names of which a file may have one. With more nothing is certain.
const DEEPEST: usize = 32;
const NAMES: usize = 64;
/// With more directories or names it is not known which files a command gets.
const PLACES: usize = 8;
const SAMPLES: usize = 16;
/// Paths that are looked at for what is removed.
const REMOVED: usize = 128;

/// The directories that are searched, and what is certain of the files that each action gets: it is found
/// by where the word behind it stands.
#[derive(Debug)]
pub(super) struct Search {
    below: Vec<Arg>,
    actions: Vec<(usize, Passed)>,
}

/// What is certain of files that have passed some tests.
#[derive(Debug, Clone, Default)]
struct Passed {
    /// A test may have left out others.
    picks: bool,
    /// Their names fit one of these; none where nothing is known of them.
    names: Vec<Arg>,
}

impl Passed {
    fn named(mut self, name: &Arg) -> Self {
        if !self.fits_no_secret() {
            self.names = vec![name.clone()];
        }
        self
    }

    fn or(mut self, other: Self) -> Self {
        self.picks &= other.picks;
        if self.names.is_empty() || other.names.is_empty() || self.names.len() + other.names.len() > NAMES {
            self.names.clear();
        } else {
            self.names.extend(other.names);
        }
        self
    }

    fn fits_no_secret(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|name| name.text().is_some_and(names_no_secret))
    }
}

/// Whether a name pattern cannot name a file with secrets.
pub(in super::super) fn names_no_secret(pattern: &str) -> bool {
    const SAMPLES: [&str; 9] =
        [".env", ".env.local", "x.env", "id_rsa", "id_ed25519", "x.pem", "x.key", ".npmrc", "credentials.json"];
    !pattern.contains('[')
        && !SAMPLES.iter().any(|name| crate::wildcard::matches(pattern, name))
        && !secret_name(pattern)
}

/// The words of `find` behind the directories.
struct Expression<'a> {
    program: &'a Utility,
    args: &'a [Arg],
    at: usize,
    depth: usize,
    /// A word of it is not known, or it is nested too deeply: nothing is certain of any file.
    lost: bool,
    actions: Vec<(usize, Passed)>,
}

impl Expression<'_> {
    fn is(&self, signs: &[&str]) -> bool {
        self.args.get(self.at).and_then(Arg::text).is_some_and(|text| signs.contains(&text))
    }

    /// Options of `find` itself, then the directories.
    fn skip_places(&mut self) {
        while let Some(text) = self.args.get(self.at).and_then(Arg::text) {
            match text {
                "-H" | "-L" | "-P" => self.at += 1,
                "-D" => self.at += 2,
                _ if text.starts_with("-O") => self.at += 1,
                _ => break,
            }
        }
        while let Some(arg) = self.args.get(self.at)
            && !arg.prefix().starts_with(['-', '(', '!', ')', ','])
        {
            let sign = |text: &String| text.starts_with(['-', '(', '!']);
            self.lost |= arg.is_words() || arg.texts().is_some_and(|texts| texts.iter().any(sign));
            self.at += 1;
        }
    }

    fn read(&mut self) {
        self.skip_places();
        loop {
            self.list(&Passed::default());
            if self.at >= self.args.len() {
                break;
            }
            // A bracket that nothing opened.
            self.lost = true;
            self.at += 1;
        }
        if self.lost {
            self.actions.iter_mut().for_each(|(_, passed)| *passed = Passed::default());
        }
    }

    /// What stands between commas is done one after the other; the last decides.
    fn list(&mut self, before: &Passed) -> Passed {
        let mut passed = self.either(before);
        while self.is(&[","]) {
            self.at += 1;
            passed = self.either(before);
        }
        passed
    }

    fn either(&mut self, before: &Passed) -> Passed {
        let mut passed = self.all(before);
        while self.is(&["-o", "-or"]) {
            self.at += 1;
            passed = passed.or(self.all(before));
        }
        passed
    }

    fn all(&mut self, before: &Passed) -> Passed {
        let mut passed = before.clone();
        while self.at < self.args.len() && !self.is(&[",", ")", "-o", "-or"]) {
            let mut negated = false;
            while self.is(&["!", "-not"]) {
                self.at += 1;
                negated = true;
            }
            if self.at < self.args.len() {
                let after = self.one(&passed);
                // What fails a test may be called anything.
                passed = if negated { passed } else { after };
            }
        }
        passed
    }

    fn one(&mut self, before: &Passed) -> Passed {
        let arg = &self.args[self.at];
        self.at += 1;
        if arg.is("(") {
            return self.bracket(before);
        }
        let Some(text) = arg.text() else {
            self.lost = true;
            return before.clone();
        };
        let Some(option) = self.program.option(text) else { return before.clone() };
        match option.does {
            Does::Until => {
                self.actions.push((self.at, before.clone()));
                self.at = self.at.max(end_of_command(self.args, self.at));
                return before.clone();
            }
            Does::Destroys => self.actions.push((self.at, before.clone())),
            _ => {}
        }
        let value = self.args.get(self.at).filter(|_| option.takes == Takes::Value);
        self.at += usize::from(value.is_some()) + usize::from(text == "-fprintf");
        // Where the directories stand in a file, nobody knows where the files lie.
        self.lost |= value.is_some_and(Arg::is_words) || text == "-files0-from";
        let mut passed = before.clone();
        passed.picks |= among(TESTS, text) && (text == "-empty" || !fits_everything(value));
        match value {
            Some(name) if matches!(text, "-name" | "-iname") => passed.named(name),
            _ => passed,
        }
    }

    fn bracket(&mut self, before: &Passed) -> Passed {
        if self.depth >= DEEPEST {
            self.lost = true;
            return before.clone();
        }
        self.depth += 1;
        let passed = self.list(before);
        self.depth -= 1;
        self.at += usize::from(self.is(&[")"]));
        passed
    }
}

fn fits_everything(value: Option<&Arg>) -> bool {
    value.is_some_and(|arg| arg.text().or(arg.pattern()).is_some_and(|text| text.chars().all(|c| "*./".contains(c))))
}

/// What is to be judged before its options are: what it removes.
pub(super) fn find(judge: &mut Judge<'_>, program: &Utility, reading: &ParsedArgs, args: &[Arg]) {
    for (at, arg) in args.iter().enumerate().filter(|(_, arg)| arg.text().is_none() && arg.may_be_option()) {
        let value = at.checked_sub(1).is_some_and(|before| args[before].prefix().starts_with('-'));
        if !value || arg.pattern().is_none() {
            judge.effect(Effect::Unproven);
        }
    }
    let sign = |arg: &&Arg| !arg.prefix().starts_with(['(', ')', '!', ',']);
    let mut below: Vec<Arg> = reading.operands.iter().filter(sign).cloned().collect();
    if below.is_empty() {
        below.push(Arg::exact("."));
    }
    let mut expression = Expression { program, args, at: 0, depth: 0, lost: false, actions: vec![] };
    expression.read();
    let search = Search { below, actions: expression.actions };
    let mut everything = false;
    for (next, passed) in &search.actions {
        let deletes = args[next - 1].is("-delete");
        if deletes {
            removed(judge, &search.below, passed);
        }
        if deletes && !passed.names.is_empty() {
            let (below, names) = (search.below.clone(), passed.names.clone());
            judge.add(Deed::ChangesPicked(PickedFiles { below, names }));
        }
        everything |= !passed.picks && (deletes || args.get(*next).is_some_and(is_destroyer));
    }
    if everything {
        judge.add(Deed::Lost(search.below.clone(), true));
    }
    judge.search = Some(search);
}

/// Files that stand for those that are removed, so that rules about paths can speak about them.
fn removed(judge: &mut Judge<'_>, below: &[Arg], passed: &Passed) {
    let mut paths = places(below).flat_map(|place| samples(&place, passed));
    for path in paths.by_ref().take(REMOVED) {
        // Deeper down, too: what is a plan where it lies is none there.
        let (place, name) = path.rsplit_once('/').unwrap_or((".", &path));
        judge.uses(Access::Edit, &Arg::exact(format!("{place}/found/{name}")));
        judge.uses(Access::Edit, &Arg::exact(path.as_str()));
    }
    if paths.next().is_some() {
        judge.add(Deed::Floor(Action::Ask, "it removes files in more places than are looked at".to_owned()));
    }
}

fn is_destroyer(arg: &Arg) -> bool {
    let name = arg.text().map(|text| text.rsplit('/').next().unwrap_or(text));
    name.is_some_and(|name| ["rm", "shred", "unlink", "rmdir", "mv"].contains(&name))
}

/// The directories that are searched, as far as they are known.
fn places(below: &[Arg]) -> impl Iterator<Item = String> {
    let known = |arg: &Arg| arg.texts().map(<[String]>::to_vec).or_else(|| Some(vec![sample(arg.pattern()?)]));
    below.iter().filter_map(known).flatten().map(|place| place.trim_end_matches('/').to_owned())
}

/// Paths in a directory that files could have which passed the tests.
fn samples(place: &str, passed: &Passed) -> Vec<String> {
    let named = passed.names.iter().filter_map(|name| name.text().or(name.pattern()));
    let mut names: Vec<String> = named.map(sample).collect();
    if names.is_empty() {
        names.push("found".to_owned());
    }
    names.into_iter().map(|name| format!("{place}/{name}")).collect()
}

/// A name that fits a pattern.
fn sample(pattern: &str) -> String {
    pattern.replace('*', "found").replace('?', "x")
}

/// A command that goes on to `;` or `+`, with the files that were found among its words.
pub(super) fn until(judge: &mut Judge<'_>, given: &GivenOption, args: &[Arg], ends: bool) {
    judge.danger(&given.name);
    judge.add(Deed::Carrier);
    let end = if ends || args[given.next..].iter().any(|arg| arg.is(";")) {
        end_of_command(args, given.next)
    } else {
        args.len()
    };
    let mut words: Vec<Arg> = given.value.iter().cloned().collect();
    words.extend(args.get(given.next..end).unwrap_or_default().iter().cloned());
    if ends && words.last().is_some_and(|arg| arg.is(";") || arg.is("+")) {
        words.pop();
    }
    let several = ends && end.checked_sub(1).and_then(|last| args.get(last)).is_some_and(|arg| arg.is("+"));
    let fill = |found: Option<&Arg>| -> Vec<Arg> {
        let fill = |arg: &Arg| {
            let filled = match (arg.text(), found) {
                (Some("{}"), Some(found)) => found.clone(),
                (Some(text), _) if ends && text.contains("{}") => Arg::filled(text, "{}"),
                _ => return arg.clone(),
            };
            if several { filled.repeated() } else { filled }
        };
        words.iter().map(fill).collect()
    };
    if given.name.ends_with("dir") {
        judge.add(Deed::Astray);
    }
    let search = judge.search.as_ref().filter(|_| ends);
    let passed = search.and_then(|search| {
        let (_, passed) = search.actions.iter().find(|(next, _)| *next == given.next)?;
        let few = places(&search.below).nth(PLACES).is_none() && passed.names.len() <= SAMPLES;
        (few && passed.fits_no_secret()).then_some((&search.below, passed))
    });
    let Some((below, passed)) = passed else {
        let mut words = fill(None);
        if !ends {
            words.push(Arg::unknown("…"));
        }
        return judge.add(Deed::Run(words, false));
    };
    let mut runs = vec![];
    for place in places(below) {
        let dir = Arg::exact(if place.is_empty() { "/" } else { &place });
        let picked = PickedFiles { below: vec![dir], names: passed.names.clone() };
        runs.push(Deed::RunOn(fill(Some(&found(format!("{place}/found")))), picked));
        // Rules may speak about the name.
        let named = samples(&place, passed).into_iter().map(found);
        runs.extend(named.map(|found| Deed::Run(fill(Some(&found)), false)));
    }
    if !below.iter().all(|place| place.texts().is_some() || place.pattern().is_some()) {
        let picked = PickedFiles { below: below.clone(), names: passed.names.clone() };
        runs.push(Deed::RunOn(fill(Some(&Arg::found())), picked));
    }
    runs.into_iter().for_each(|run| judge.add(run));
}

/// A file that is found, whatever it is called.
fn found(path: String) -> Arg {
    let mut found = Arg::exact(path);
    found.literal = false;
    found.raw = "…".into();
    found
}

#[cfg(test)]
mod tests {
    use crate::cases::{Lab, judge, with};
    use crate::{Action, Rules};

    /// Rules about paths speak about the files that are found, whose paths nobody knows.
    #[test]
    fn rules_about_paths_hold_for_what_is_found() {
        let lab = Lab::new();
        let rules = with(&lab.place, &[("*", Action::Allow)]).then(&Rules::built_in(&[
            ("edit", "config/*", Action::Deny),
            ("edit", "*/only.yml", Action::Deny),
            ("read", "private/*", Action::Deny),
            ("read", "*.secret", Action::Deny),
        ]));
        let denied = [
            "find config -name prod.yml -delete",
            "find src config/ -name 'x*' -delete",
            "find config -mtime +3 -delete",
            "find src -name only.yml -delete",
            "find config -name prod.yml -exec rm {} +",
            "find src -name only.yml -exec rm {} \\;",
            "find private -name '*.txt' -exec cat {} +",
            "find src private -name '*.txt' -exec cat {} \\;",
            "find src -name '*.secret' -exec cat {} +",
            "find private/deep \\( -name '*.rs' -o -name '*.txt' \\) -exec head {} +",
        ];
        for line in denied {
            assert_eq!(judge(&rules, line, &lab.place).action, Action::Deny, "{line}");
        }
        let allowed = [
            "find src -name prod.yml -delete",
            "find private -name '*.txt'",
            "find config -name '*.txt' -exec cat {} +",
            "find src -name '*.txt' -exec cat {} +",
            "find private -name '*.txt' -exec echo {} +",
        ];
        for line in allowed {
            assert_eq!(judge(&rules, line, &lab.place).action, Action::Allow, "{line}");
        }
    }

    /// Brackets and signs without end are no expression, and not read as one.
    #[test]
    fn what_nobody_can_read_is_asked_about() {
        let lab = Lab::new();
        let free = with(&lab.place, &[("*", Action::Allow)]);
        for (from, to) in [("\\( ", " \\)"), ("! ", ""), ("-name x -o ", ""), ("\\) ", "")] {
            let line = format!("find . {} -delete {}", from.repeat(2_000), to.repeat(2_000));
            assert_eq!(judge(&free, &line, &lab.place).action, Action::Ask, "{}", &line[..40]);
        }
    }
}
