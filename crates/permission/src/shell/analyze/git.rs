//! Effects of git that its words do not show: programs that a repository's settings make it start,
//! aliases, and the paths among its words.

use super::Analyzer;
use crate::Access;
use crate::protected;
use crate::shell::disk::Cause;
use crate::shell::expand::{Arg, ShellState};
use crate::shell::names::among;
use crate::shell::programs;
use crate::shell::unit::{CommandUnit, Effect};

/// Returns the position of the subcommand among git's words.
pub(super) fn subcommand(args: &[Arg]) -> usize {
    let mut at = 0;
    while let Some(arg) = args.get(at)
        && arg.prefix().starts_with('-')
    {
        at += 1 + usize::from(
            arg.text()
                .is_some_and(|option| programs::takes_next("git", option)),
        );
    }
    at
}

/// Options of `log` and similar commands with which git reads no contents of files.
const COMMITS_ONLY: &str = "--oneline --graph --all --decorate --no-decorate --merges --no-merges --first-parent --reverse --branches \
    --tags --remotes --topo-order --date-order --abbrev-commit --no-color --no-patch --name-only --name-status \
    --left-right --follow --date --format --pretty";

/// Returns whether a command is part of every git, so that no alias can replace it.
fn is_built_in(name: &str) -> bool {
    /// Scripts by others, commands of new versions only, and commands that new versions drop.
    const NOT_ALL: [&str; 4] = ["filter-repo", "diff-pairs", "last-modified", "whatchanged"];
    programs::knows(&format!("git {name}")) && !NOT_ALL.contains(&name)
}

/// Returns whether a command may cause an event.
fn may_cause(cause: Cause, name: &str, args: &[Arg]) -> bool {
    if cause == Cause::Use {
        return true;
    }
    // An unknown command may cause every event.
    let Some(meets) = programs::meets(&format!("git {name}")) else {
        return true;
    };
    if cause == Cause::Index
        && meets.contains(&Cause::Object.name())
        && args.iter().any(names_the_index)
    {
        return true;
    }
    if cause == Cause::Contents && matches!(name, "log" | "reflog" | "stash") {
        return args.first().is_some_and(|arg| arg.is("show")) || !args.iter().all(commits_only);
    }
    meets.contains(&cause.name())
}

/// Returns whether a word may be a revision in the index, `:a.txt` or `:0:a.txt`, or announces such
/// revisions. git reads the index to resolve them.
fn names_the_index(arg: &Arg) -> bool {
    let Some(text) = arg.text() else { return true };
    let begins_revision = |at: usize| at == 0 || text[..at].ends_with(['.', '^', '=', '!']);
    among("--stdin --shared-index-path", text)
        || text.starts_with("--batch")
        || text.match_indices(':').any(|(at, _)| begins_revision(at))
}

/// Returns whether a word makes `log` show commits only: a known option, or no option.
fn commits_only(arg: &Arg) -> bool {
    let Some(text) = arg.text() else {
        return !arg.may_be_option();
    };
    let option = text.split('=').next().unwrap_or(text);
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let valued = [
        "--max-count",
        "--skip",
        "--since",
        "--until",
        "--after",
        "--before",
        "--author",
        "--grep",
    ];
    !text.starts_with('-')
        || text == "--"
        || among(COMMITS_ONLY, option)
        || valued.contains(&option)
        || text
            .strip_prefix("-n")
            .or(text.strip_prefix('-'))
            .is_some_and(is_number)
        || text == "-n"
}

/// Returns whether a path may lead out of the project.
fn may_leave(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

/// Splits an alias into words as git does; `None` if git refuses it.
fn split_alias(text: &str) -> Option<Vec<String>> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match (c, quote) {
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            ('\\', open) if open != Some('\'') => {
                word.get_or_insert_default().push(letters.next()?)
            }
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

impl Analyzer<'_> {
    /// Records the effects of a command in its repository that its words do not show.
    pub(super) fn in_repository(
        &mut self,
        name: &str,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        self.helpers(name, args, unit, state);
        self.shown_by_git(name, args, unit, state);
    }

    /// Records the programs that settings make this command start. A trusted project may start
    /// programs.
    fn helpers(&mut self, name: &str, args: &[Arg], unit: &mut CommandUnit, state: &ShellState) {
        if programs::meets(&format!("git {name}"))
            .is_some_and(|meets| meets.contains(&"no-repository"))
        {
            return;
        }
        let trusted = self.context.is_trusted;
        if !trusted && (state.cwd.is_empty() || self.disk.too_many_repositories(state.cwd.len())) {
            unit.set_opaque("which repository it works in is not known");
        }
        // Showing the settings is not known to be harmless, but starts nothing.
        let looks = unit.effect == Effect::Reads || name == "config";
        let mut meanings = vec![];
        let mut guesses = None;
        for cwd in &state.cwd {
            let found = self.disk.repository(cwd);
            let helper = found
                .helpers
                .iter()
                .find(|(cause, _)| !looks || may_cause(**cause, name, args));
            if let Some((_, helper)) = helper
                && !trusted
            {
                unit.set_unconfined_effect(&format!(
                    "this repository makes `git {name}` run a program: {helper}"
                ));
            }
            if !trusted && !cwd.is_dir() {
                // A command that creates the directory may create a repository in it, with any
                // settings.
                unit.catch_all_only
                    .get_or_insert_with(|| "which repository it works in is not known".into());
                unit.effect_at_least(Effect::Unproven);
            }
            if !is_built_in(name) {
                let top = found.top.clone().unwrap_or_else(|| cwd.clone());
                let values = found.aliases.get(&name.to_lowercase());
                meanings.extend(
                    values
                        .into_iter()
                        .flatten()
                        .map(|meaning| (meaning.clone(), top.clone())),
                );
                guesses = guesses.or_else(|| found.autocorrects.clone());
            }
        }
        let shows_submodules = !trusted
            && args
                .iter()
                .filter(|arg| arg.prefix().starts_with("--submodule"))
                .any(|arg| !matches!(arg.text(), Some("--submodule=log" | "--submodule=short")));
        if shows_submodules && looks {
            unit.set_unconfined_effect(
                "it shows other repositories in this one, and their settings are not known",
            );
        }
        if meanings.is_empty() && !is_built_in(name) {
            // A rule for `git *` was not meant for an unknown command: a rule has to name it.
            unit.add_dangerous_option(name);
            if let Some(setting) = guesses
                && self.disk.find_on_path(&format!("git-{name}")).is_none()
            {
                unit.set_unconfined_effect(&format!(
                    "git does not know {name}, and runs what it takes it for: {setting}"
                ));
            }
        }
        for (meaning, top) in meanings {
            let mut inner = state.clone();
            if meaning.starts_with('!') {
                inner.cwd = vec![top];
            }
            self.alias(&meaning, args, unit, &mut inner);
        }
    }

    /// Records the files among git's words. Outside the project they need permission; secrets are
    /// secrets in every revision.
    pub(super) fn git_paths(&mut self, args: &[Arg], unit: &mut CommandUnit, state: &ShellState) {
        for arg in args {
            let Some(text) = arg.text() else { continue };
            let left_out = [":!", ":^", ":(exclude)"]
                .iter()
                .any(|start| text.starts_with(start));
            let path = text.rsplit(':').next().unwrap_or(text);
            let name = path.rsplit('/').next().unwrap_or(path);
            let names =
                !text.starts_with('-') && !left_out && !text.contains(' ') && !text.contains("://");
            if names && protected::secret_name(name) {
                unit.add_secret(path, &format!("{path} may hold keys or passwords"));
            }
            // `-O/a/file`: the value of a short option.
            let text = match text.strip_prefix('-') {
                Some(rest)
                    if rest
                        .get(1..)
                        .is_some_and(|value| value.starts_with(['/', '.'])) =>
                {
                    &rest[1..]
                }
                _ => text,
            };
            if may_leave(text) || text.starts_with("file://") {
                self.disk.record_text_use(Access::List, text, unit, state);
            } else if let Some((option, value)) = text.split_once('=')
                && option.starts_with('-')
                && (value.starts_with('.') || may_leave(value))
                && !value.contains(' ')
            {
                let value = value.to_owned();
                self.disk.record_text_use(Access::List, &value, unit, state);
            }
        }
    }

    fn alias(
        &mut self,
        meaning: &str,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        unit.effect_at_least(Effect::Unproven);
        if let Some(command) = meaning.strip_prefix('!') {
            // The command gets the words after the alias.
            let quoted = |arg: &Arg| Some(format!(" '{}'", arg.text()?.replace('\'', "'\\''")));
            match args.iter().map(quoted).collect::<Option<String>>() {
                Some(rest) => self.text(
                    &Arg::exact(format!("{command}{rest}")),
                    unit,
                    false,
                    true,
                    state,
                ),
                None => {
                    unit.set_opaque("what a short name is given is computed");
                    self.text(&Arg::exact(command), unit, false, true, state);
                }
            }
            return;
        }
        let Some(words) = split_alias(meaning) else {
            return unit.set_opaque("the meaning of this short name cannot be read");
        };
        let words = std::iter::once("git".to_owned())
            .chain(words)
            .map(Arg::exact);
        let words: Vec<Arg> = words.chain(args.iter().cloned()).collect();
        self.run_nested(&words, unit, false, state);
    }
}

#[cfg(test)]
mod tests {
    use super::split_alias;
    use crate::shell::disk::Cause;
    use crate::shell::programs;

    #[test]
    fn events_in_the_table_are_known() {
        let causes = [
            Cause::Index,
            Cause::Refresh,
            Cause::Contents,
            Cause::Signature,
            Cause::Object,
            Cause::Archive,
        ];
        let known: Vec<&str> = causes
            .iter()
            .map(|cause| cause.name())
            .chain(["no-repository"])
            .collect();
        let table = include_str!("../programs/git.txt");
        let fields = table
            .lines()
            .filter_map(|line| line.trim().strip_prefix("meets:"));
        let unknown: Vec<&str> = fields
            .flat_map(str::split_whitespace)
            .filter(|word| *word != "nothing" && !known.contains(word))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert_eq!(
            programs::meets("git status"),
            Some(["index", "refresh", "object", "contents"].as_slice())
        );
        assert_eq!(programs::meets("git remote"), Some([].as_slice()));
        assert_eq!(programs::meets("git push"), None);
    }

    #[test]
    fn revision_in_the_index_is_recognised() {
        let seen = [
            ":a.txt",
            ":0:a.txt",
            "HEAD..:a.txt",
            "^:a.txt",
            "--contains=:a.txt",
            "--batch-check",
            "--stdin",
        ];
        let none = [
            "HEAD:a.txt",
            "HEAD",
            "--format=%(refname:short)",
            "main@{upstream}",
            "a.txt",
        ];
        for (words, wanted) in [(&seen[..], true), (&none, false)] {
            for word in words {
                assert_eq!(
                    super::names_the_index(&super::Arg::exact(*word)),
                    wanted,
                    "{word}"
                );
            }
        }
    }

    #[test]
    fn aliases_are_split_as_by_git() {
        let table: [(&str, Option<&[&str]>); 8] = [
            ("push origin", Some(&["push", "origin"])),
            ("\"push\" 'a b'", Some(&["push", "a b"])),
            ("pu'sh'", Some(&["push"])),
            ("p\\u\"s\\\"h\"", Some(&["pus\"h"])),
            (
                "-c user.name='x y' push",
                Some(&["-c", "user.name=x y", "push"]),
            ),
            ("log ''", Some(&["log", ""])),
            ("push 'x", None),
            ("push \\", None),
        ];
        for (text, wanted) in table {
            let wanted = wanted.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
            assert_eq!(split_alias(text), wanted, "{text}");
        }
    }
}
