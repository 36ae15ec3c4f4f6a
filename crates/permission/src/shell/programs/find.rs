//! The actions of `find`. Its words are an expression: the files that an action gets depend on the
//! tests before it and on the operators, so only the tests count that every such file has passed.

use super::read::{GivenOption, ParsedArgs, end_of_command};
use super::table::{OptionEffect, Utility, ValueForm};
use super::{EffectCollector, PathEffect, RunEffect, SelectedFiles, ShellEffect, UnitEffect};
use crate::protected::secret_name;
use crate::shell::expand::Arg;
use crate::shell::names::among;
use crate::shell::unit::Effect;
use crate::{Access, Action};

/// Tests that exclude files.
const TESTS: &str = "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -atime -ctime -size -user \
    -perm -lname -samefile -inum -links";
/// The maximum nesting of brackets, and the maximum number of names that a file may have. Beyond
/// them nothing is certain.
const MAX_DEPTH: usize = 32;
const MAX_NAMES: usize = 64;
/// The maximum numbers of directories and of names with which the files of a command are known.
const MAX_PLACES: usize = 8;
const MAX_SAMPLES: usize = 16;
/// The maximum number of removed paths that are recorded.
const MAX_REMOVED: usize = 128;

/// The searched directories, and the certain properties of the files that each action gets. An
/// action is identified by the position of the next word.
#[derive(Debug)]
pub(super) struct Search {
    below: Vec<Arg>,
    actions: Vec<(usize, PassedTests)>,
}

/// The certain properties of files that have passed some tests.
#[derive(Debug, Clone, Default)]
struct PassedTests {
    /// A test may have excluded other files.
    excludes_others: bool,
    /// Patterns of which their names match one; empty if nothing is known about the names.
    names: Vec<Arg>,
}

impl PassedTests {
    fn named(mut self, name: &Arg) -> Self {
        if !self.fits_no_secret() {
            self.names = vec![name.clone()];
        }
        self
    }

    fn or(mut self, other: Self) -> Self {
        self.excludes_others &= other.excludes_others;
        if self.names.is_empty()
            || other.names.is_empty()
            || self.names.len() + other.names.len() > MAX_NAMES
        {
            self.names.clear();
        } else {
            self.names.extend(other.names);
        }
        self
    }

    fn fits_no_secret(&self) -> bool {
        !self.names.is_empty()
            && self
                .names
                .iter()
                .all(|name| name.text().is_some_and(names_no_secret))
    }
}

/// Returns whether a name pattern matches no file with secrets.
pub(in super::super) fn names_no_secret(pattern: &str) -> bool {
    const SAMPLES: [&str; 9] = [
        ".env",
        ".env.local",
        "x.env",
        "id_rsa",
        "id_ed25519",
        "x.pem",
        "x.key",
        ".npmrc",
        "credentials.json",
    ];
    !pattern.contains('[')
        && !SAMPLES
            .iter()
            .any(|name| crate::wildcard::matches(pattern, name))
        && !secret_name(pattern)
}

/// The words of `find` after the directories.
struct Expression<'a> {
    program: &'a Utility,
    args: &'a [Arg],
    at: usize,
    depth: usize,
    /// True if a word is unknown, or the nesting too deep: then nothing is certain about any file.
    is_uncertain: bool,
    actions: Vec<(usize, PassedTests)>,
}

impl Expression<'_> {
    fn is(&self, signs: &[&str]) -> bool {
        self.args
            .get(self.at)
            .and_then(Arg::text)
            .is_some_and(|text| signs.contains(&text))
    }

    /// Skips the options of `find` itself, then the directories.
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
            let is_sign = |text: &String| text.starts_with(['-', '(', '!']);
            self.is_uncertain |= arg.is_any_number_of_words()
                || arg.texts().is_some_and(|texts| texts.iter().any(is_sign));
            self.at += 1;
        }
    }

    fn read(&mut self) {
        self.skip_places();
        loop {
            self.list(&PassedTests::default());
            if self.at >= self.args.len() {
                break;
            }
            // A closing bracket without an opening one.
            self.is_uncertain = true;
            self.at += 1;
        }
        if self.is_uncertain {
            self.actions
                .iter_mut()
                .for_each(|(_, passed)| *passed = PassedTests::default());
        }
    }

    /// Parses expressions separated by commas, which are evaluated in sequence; the last one
    /// determines the result.
    fn list(&mut self, before: &PassedTests) -> PassedTests {
        let mut passed = self.either(before);
        while self.is(&[","]) {
            self.at += 1;
            passed = self.either(before);
        }
        passed
    }

    fn either(&mut self, before: &PassedTests) -> PassedTests {
        let mut passed = self.all(before);
        while self.is(&["-o", "-or"]) {
            self.at += 1;
            passed = passed.or(self.all(before));
        }
        passed
    }

    fn all(&mut self, before: &PassedTests) -> PassedTests {
        let mut passed = before.clone();
        while self.at < self.args.len() && !self.is(&[",", ")", "-o", "-or"]) {
            let mut negated = false;
            while self.is(&["!", "-not"]) {
                self.at += 1;
                negated = true;
            }
            if self.at < self.args.len() {
                let after = self.one(&passed);
                // A file that fails a test may have any name.
                passed = if negated { passed } else { after };
            }
        }
        passed
    }

    fn one(&mut self, before: &PassedTests) -> PassedTests {
        let arg = &self.args[self.at];
        self.at += 1;
        if arg.is("(") {
            return self.bracket(before);
        }
        let Some(text) = arg.text() else {
            self.is_uncertain = true;
            return before.clone();
        };
        let Some(option) = self.program.option(text) else {
            return before.clone();
        };
        match option.does {
            OptionEffect::Until => {
                self.actions.push((self.at, before.clone()));
                self.at = self.at.max(end_of_command(self.args, self.at));
                return before.clone();
            }
            OptionEffect::Destroys => self.actions.push((self.at, before.clone())),
            _ => {}
        }
        let value = if option.takes == ValueForm::Value {
            self.args.get(self.at)
        } else {
            None
        };
        self.at += usize::from(value.is_some()) + usize::from(text == "-fprintf");
        // If a file lists the directories, the location of the files is unknown.
        self.is_uncertain |=
            value.is_some_and(Arg::is_any_number_of_words) || text == "-files0-from";
        let mut passed = before.clone();
        passed.excludes_others |=
            among(TESTS, text) && (text == "-empty" || !fits_everything(value));
        match value {
            Some(name) if matches!(text, "-name" | "-iname") => passed.named(name),
            _ => passed,
        }
    }

    fn bracket(&mut self, before: &PassedTests) -> PassedTests {
        if self.depth >= MAX_DEPTH {
            self.is_uncertain = true;
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
    value.is_some_and(|arg| {
        arg.text()
            .or(arg.pattern())
            .is_some_and(|text| text.chars().all(|c| "*./".contains(c)))
    })
}

/// Handles the parts of `find` that precede its options: the files that it removes.
pub(super) fn find(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    args: &[Arg],
) {
    for (at, arg) in args
        .iter()
        .enumerate()
        .filter(|(_, arg)| arg.text().is_none() && arg.may_be_option())
    {
        let value = at
            .checked_sub(1)
            .is_some_and(|before| args[before].prefix().starts_with('-'));
        if !value || arg.pattern().is_none() {
            collector.effect(Effect::Unproven);
        }
    }
    let is_place = |arg: &&Arg| !arg.prefix().starts_with(['(', ')', '!', ',']);
    let mut below: Vec<Arg> = reading.operands.iter().filter(is_place).cloned().collect();
    if below.is_empty() {
        below.push(Arg::exact("."));
    }
    let mut expression = Expression {
        program,
        args,
        at: 0,
        depth: 0,
        is_uncertain: false,
        actions: vec![],
    };
    expression.read();
    let search = Search {
        below,
        actions: expression.actions,
    };
    let mut everything = false;
    for (next, passed) in &search.actions {
        let deletes = args[next - 1].is("-delete");
        if deletes {
            add_removed(collector, &search.below, passed);
        }
        if deletes && !passed.names.is_empty() {
            let below = search.below.clone();
            let names = passed.names.clone();
            collector.add(PathEffect::ChangesSelected(SelectedFiles {
                directories: below,
                patterns: names,
            }));
        }
        everything |=
            !passed.excludes_others && (deletes || args.get(*next).is_some_and(is_destroyer));
    }
    if everything {
        collector.add(PathEffect::ChangeTree {
            paths: search.below.clone(),
            asks_if_unknown: true,
        });
    }
    collector.search = Some(search);
}

/// Adds examples of the removed files, so that rules about paths can match them.
fn add_removed(collector: &mut EffectCollector<'_>, below: &[Arg], passed: &PassedTests) {
    let mut paths = places(below).flat_map(|dir| samples(&dir, passed));
    for path in paths.by_ref().take(MAX_REMOVED) {
        // Also in a subdirectory, in which for example a plan file is no longer one.
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", &path));
        collector.uses(Access::Edit, &Arg::exact(format!("{dir}/found/{name}")));
        collector.uses(Access::Edit, &Arg::exact(path.as_str()));
    }
    if paths.next().is_some() {
        collector.add(UnitEffect::Minimum(
            Action::Ask,
            "it removes files in more places than are examined".to_owned(),
        ));
    }
}

fn is_destroyer(arg: &Arg) -> bool {
    let name = arg
        .text()
        .map(|text| text.rsplit('/').next().unwrap_or(text));
    name.is_some_and(|name| ["rm", "shred", "unlink", "rmdir", "mv"].contains(&name))
}

/// Returns the searched directories, as far as they are known.
fn places(below: &[Arg]) -> impl Iterator<Item = String> {
    let known = |arg: &Arg| {
        arg.texts()
            .map(<[String]>::to_vec)
            .or_else(|| Some(vec![sample(arg.pattern()?)]))
    };
    below
        .iter()
        .filter_map(known)
        .flatten()
        .map(|start| start.trim_end_matches('/').to_owned())
}

/// Returns example paths in a directory for files that have passed the tests.
fn samples(start: &str, passed: &PassedTests) -> Vec<String> {
    let named = passed
        .names
        .iter()
        .filter_map(|name| name.text().or(name.pattern()));
    let mut names: Vec<String> = named.map(sample).collect();
    if names.is_empty() {
        names.push("found".to_owned());
    }
    names
        .into_iter()
        .map(|name| format!("{start}/{name}"))
        .collect()
}

/// Returns a name that matches a pattern.
fn sample(pattern: &str) -> String {
    pattern.replace('*', "found").replace('?', "x")
}

/// Adds a command that ends at `;` or `+`, with the found files among its words.
pub(super) fn add_terminated_command(
    collector: &mut EffectCollector<'_>,
    option: &GivenOption,
    args: &[Arg],
    ends: bool,
) {
    collector.add_dangerous_option(&option.name);
    collector.add(UnitEffect::RunsOtherPrograms);
    let end = if ends || args[option.next..].iter().any(|arg| arg.is(";")) {
        end_of_command(args, option.next)
    } else {
        args.len()
    };
    let mut words: Vec<Arg> = option.value.iter().cloned().collect();
    words.extend(
        args.get(option.next..end)
            .unwrap_or_default()
            .iter()
            .cloned(),
    );
    if ends && words.last().is_some_and(|arg| arg.is(";") || arg.is("+")) {
        words.pop();
    }
    let several = ends
        && end
            .checked_sub(1)
            .and_then(|last| args.get(last))
            .is_some_and(|arg| arg.is("+"));
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
    if option.name.ends_with("dir") {
        collector.add(ShellEffect::UnknownDirectory);
    }
    let search = if ends {
        collector.search.as_ref()
    } else {
        None
    };
    let passed = search.and_then(|search| {
        let (_, passed) = search
            .actions
            .iter()
            .find(|(next, _)| *next == option.next)?;
        let few =
            places(&search.below).nth(MAX_PLACES).is_none() && passed.names.len() <= MAX_SAMPLES;
        (few && passed.fits_no_secret()).then_some((&search.below, passed))
    });
    let Some((below, passed)) = passed else {
        let mut words = fill(None);
        if !ends {
            words.push(Arg::unknown("…"));
        }
        return collector.add(RunEffect::Run {
            words,
            is_conditional: false,
        });
    };
    let mut runs = vec![];
    for start in places(below) {
        let dir = Arg::exact(if start.is_empty() { "/" } else { &start });
        let selected_files = SelectedFiles {
            directories: vec![dir],
            patterns: passed.names.clone(),
        };
        runs.push(RunEffect::RunOn(
            fill(Some(&found(format!("{start}/found")))),
            selected_files,
        ));
        // Rules may match the name.
        let named = samples(&start, passed).into_iter().map(found);
        runs.extend(named.map(|found| RunEffect::Run {
            words: fill(Some(&found)),
            is_conditional: false,
        }));
    }
    if !below
        .iter()
        .all(|start| start.texts().is_some() || start.pattern().is_some())
    {
        let selected_files = SelectedFiles {
            directories: below.clone(),
            patterns: passed.names.clone(),
        };
        runs.push(RunEffect::RunOn(fill(Some(&Arg::found())), selected_files));
    }
    runs.into_iter().for_each(|run| collector.add(run));
}

/// Returns a word for a found file with an unknown name.
fn found(path: String) -> Arg {
    let mut found = Arg::exact(path);
    found.is_literal = false;
    found.raw = "…".into();
    found
}

#[cfg(test)]
mod tests {
    use crate::case_tables::{PathFixture, bash_rules, judge};
    use crate::{Action, Rules};

    /// Rules about paths apply to found files, although their paths are unknown.
    #[test]
    fn rules_about_paths_apply_to_found_files() {
        let lab = PathFixture::new();
        let rules = bash_rules(&lab.context, &[("*", Action::Allow)]).then(&Rules::built_in(&[
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
            assert_eq!(
                judge(&rules, line, &lab.context).action,
                Action::Deny,
                "{line}"
            );
        }
        let allowed = [
            "find src -name prod.yml -delete",
            "find private -name '*.txt'",
            "find config -name '*.txt' -exec cat {} +",
            "find src -name '*.txt' -exec cat {} +",
            "find private -name '*.txt' -exec echo {} +",
        ];
        for line in allowed {
            assert_eq!(
                judge(&rules, line, &lab.context).action,
                Action::Allow,
                "{line}"
            );
        }
    }

    /// Endless brackets and operators are not an expression, and are not parsed as one.
    #[test]
    fn endless_expression_asks() {
        let lab = PathFixture::new();
        let free = bash_rules(&lab.context, &[("*", Action::Allow)]);
        for (from, to) in [
            ("\\( ", " \\)"),
            ("! ", ""),
            ("-name x -o ", ""),
            ("\\) ", ""),
        ] {
            let line = format!("find . {} -delete {}", from.repeat(2_000), to.repeat(2_000));
            assert_eq!(
                judge(&free, &line, &lab.context).action,
                Action::Ask,
                "{}",
                &line[..40]
            );
        }
    }
}
