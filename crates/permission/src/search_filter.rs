//! Filters the results of searches: a file is shown only if reading it would be allowed.
//!
//! A search asks the user nothing, so files that would need a question are left out and counted.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::decide::{Decider, decide_pattern};
use super::hardlinks::{self, FileId, LinkedFiles};
use super::locate::{Located, below_dir, relative, roots};
use super::{Access, Action, PermissionContext, Policy, Rules, evaluate, protected};
use base::text;

/// The number of left-out files that are named.
const MAX_NAMED_FILES: usize = 3;

/// A filter that judges files by name; the searched directory itself has been judged before.
#[derive(Debug)]
pub struct SearchFilter {
    policy: Policy,
    /// The rules and the grants, followed by the rules of the session that ask. Empty if there are
    /// none of these.
    with_asks: Rules,
}

impl SearchFilter {
    /// Creates a filter with those of the rules and grants that are about reading.
    pub fn new(policy: &Policy) -> Self {
        let context: PermissionContext = policy.context.clone();
        let rules = rules_about_reading(&policy.rules);
        let grants = rules_about_reading(&policy.grants);
        let asks = rules_about_reading(&policy.ask_rules);
        let with_asks = if asks.is_empty() {
            Rules::default()
        } else {
            rules.clone().then(&grants).then(&asks)
        };
        Self {
            policy: Policy {
                rules,
                grants,
                context,
                ..Policy::default()
            },
            with_asks,
        }
    }

    /// Returns the verdict on showing the content of a file. `path` has its symlinks resolved.
    pub fn judge(&self, path: &Path) -> Action {
        let linked = if hardlinks::has_other_names(path) {
            self.linked()
        } else {
            HashSet::new()
        };
        self.reader_with(linked).judge(path)
    }

    /// Returns a reader for judging many files, directory by directory.
    pub fn reader(&self) -> SearchFilterReader<'_> {
        self.reader_with(self.linked())
    }

    fn reader_with(&self, linked: HashSet<FileId>) -> SearchFilterReader<'_> {
        SearchFilterReader {
            filter: self,
            folder: PathBuf::new(),
            plain: None,
            linked,
        }
    }

    fn linked(&self) -> HashSet<FileId> {
        LinkedFiles::of(&self.policy.context).unreadable()
    }

    /// Returns the name of a file for people and rules.
    pub fn name(&self, path: &Path) -> String {
        relative(path, &self.policy.context)
    }
}

fn rules_about_reading(rules: &Rules) -> Rules {
    rules
        .iter()
        .filter(|rule| rule.is_about_reading())
        .cloned()
        .collect()
}

/// Judges files, and caches the directory of the last one.
#[derive(Debug)]
pub struct SearchFilterReader<'s> {
    filter: &'s SearchFilter,
    folder: PathBuf,
    plain: Option<PlainFolder>,
    /// Files with secrets that have a second name.
    linked: HashSet<FileId>,
}

impl SearchFilterReader<'_> {
    /// Returns the verdict on showing the content of a file. `path` has its symlinks resolved.
    ///
    /// A rule that asks about every file hides none of them: the search itself has been asked
    /// about.
    pub fn judge(&mut self, path: &Path) -> Action {
        let filter = self.filter;
        let Policy { rules, grants, .. } = &filter.policy;
        let action = self.judge_under(rules, grants, path);
        if action != Action::Allow || filter.with_asks.is_empty() {
            return action;
        }
        // A denial is final: no question lifts it.
        self.judge_under(&filter.with_asks, &Rules::default(), path)
    }

    fn judge_under(&mut self, rules: &Rules, grants: &Rules, path: &Path) -> Action {
        let filter = self.filter;
        let context = &filter.policy.context;
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return self.judge_fully(rules, grants, path);
        };
        if hardlinks::is_among(&self.linked, path) {
            return self.judge_fully(rules, grants, path);
        }
        if folder != self.folder {
            self.folder = folder.into();
            self.plain = PlainFolder::of(folder, context);
        }
        let Some(name) = self.plain.as_mut().and_then(|plain| plain.file(name)) else {
            return self.judge_fully(rules, grants, path);
        };
        match decide_pattern(rules, grants, "read", name) {
            (Action::Ask, Decider::Rule(Some(rule))) if rule.pattern != "*" => Action::Ask,
            (Action::Ask, _) => Action::Allow,
            (action, _) => action,
        }
    }

    fn judge_fully(&self, rules: &Rules, grants: &Rules, path: &Path) -> Action {
        let context = &self.filter.policy.context;
        let mut strictest = Action::Allow;
        let mut located = Located::seen(path, context);
        if located.protected.is_none() && hardlinks::is_among(&self.linked, path) {
            located.protected = std::fs::metadata(path)
                .ok()
                .and_then(|file| LinkedFiles::of(context).protection(&file));
        }
        for request in located.requests(Access::Read) {
            let verdict = evaluate(rules, grants, &request);
            let is_specific = request.minimum.is_some()
                || verdict
                    .rule
                    .as_ref()
                    .is_some_and(|rule| rule.pattern != "*");
            match verdict.action {
                Action::Deny => return Action::Deny,
                Action::Ask if request.permission == "read" && is_specific => {
                    strictest = Action::Ask
                }
                Action::Ask | Action::Allow => {}
            }
        }
        strictest
    }
}

/// A directory of the project in which the file name alone decides about reading, as in nearly all
/// directories.
///
/// The other facts that [`Located::seen`] finds out are the same for all its files.
#[derive(Debug)]
struct PlainFolder {
    /// The directory's path relative to the project, followed by the name of the last judged file.
    name: String,
    /// The length of the directory's part of `name`.
    directory_len: usize,
}

impl PlainFolder {
    /// Returns `None` if each file has to be judged fully: outside the project, in hidden
    /// directories, and in or above our own data.
    fn of(dir: &Path, context: &PermissionContext) -> Option<Self> {
        let in_project =
            roots(context).any(|root| *root == context.root) && dir.starts_with(&context.root);
        let is_own = !context.data_dir.as_os_str().is_empty()
            && (below_dir(dir, &context.data_dir) || below_dir(&context.data_dir, dir));
        let is_hidden = dir
            .iter()
            .any(|part| part.as_encoded_bytes().starts_with(b"."));
        if !in_project || is_own || is_hidden || dir.starts_with("/proc") {
            return None;
        }
        let name = match relative(dir, context) {
            root if root == "." => String::new(),
            name => format!("{name}/"),
        };
        Some(Self {
            directory_len: name.len(),
            name,
        })
    }

    /// Returns the path of a file relative to the project, or `None` if the file has to be judged
    /// fully.
    fn file(&mut self, name: &OsStr) -> Option<&str> {
        let name = name
            .to_str()
            .filter(|name| !name.starts_with('.') && !name.contains('\\'))?;
        if protected::secret_name(name) {
            return None;
        }
        self.name.truncate(self.directory_len);
        self.name.push_str(name);
        Some(&self.name)
    }
}

/// The files that a search has left out.
#[derive(Debug, Default)]
pub struct Omitted {
    asked: usize,
    denied: usize,
    /// The first names, in order, of the files that would need a question.
    names: BTreeSet<String>,
}

impl Omitted {
    /// Counts a file; a denied one is not named.
    pub fn add(&mut self, action: Action, name: impl FnOnce() -> String) {
        match action {
            Action::Allow => {}
            Action::Deny => self.denied += 1,
            Action::Ask => {
                self.asked += 1;
                self.names.insert(name());
                if self.names.len() > MAX_NAMED_FILES {
                    self.names.pop_last();
                }
            }
        }
    }

    /// Adds the counts of another search.
    pub fn merge(&mut self, other: Self) {
        self.asked += other.asked;
        self.denied += other.denied;
        self.names.extend(other.names);
        while self.names.len() > MAX_NAMED_FILES {
            self.names.pop_last();
        }
    }

    /// Returns sentences for the model, to follow a result; empty if no file was left out.
    pub fn to_message(&self) -> String {
        let mut text = String::new();
        if self.asked > 0 {
            let names: Vec<String> = self
                .names
                .iter()
                .map(|name| text::escaped(name).to_string())
                .collect();
            let mut names = names.join(", ");
            if self.asked > self.names.len() {
                names.push_str(&format!(" and {} more", self.asked - self.names.len()));
            }
            let files = text::count(self.asked, "file");
            text.push_str(&format!(
                "\n\n({files} left out, because reading needs permission: {names})"
            ));
        }
        if self.denied > 0 {
            let files = text::count(self.denied, "file");
            text.push_str(&format!(
                "\n\n({files} left out, because reading is not allowed)"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule;
    use super::*;

    fn filter(rules: &[(&str, &str, Action)]) -> SearchFilter {
        let context = PermissionContext {
            root: "/ws".into(),
            cwd: "/ws".into(),
            data_dir: "/data".into(),
            ..PermissionContext::default()
        };
        let own = Rules::built_in(rules);
        let own = own
            .iter()
            .map(|rule| super::super::Rule {
                source: "test".into(),
                ..rule.clone()
            })
            .collect();
        let rules = rule::base(&context.data_dir, Path::new("/tmp/x"), &[] as &[&Path]).then(&own);
        SearchFilter::new(&Policy {
            rules,
            context,
            ..Policy::default()
        })
    }

    #[test]
    fn files_are_judged_like_reads() {
        use Action::{Allow, Ask, Deny};
        type Row<'a> = (&'a [(&'a str, &'a str, Action)], &'a str, Action);
        let table: &[Row<'_>] = &[
            (&[], "/ws/a.rs", Allow),
            (&[], "/ws/.env", Ask),
            (&[], "/ws/.env.example", Allow),
            (&[], "/ws/deep/ID_RSA", Ask),
            (&[("read", ".env", Allow)], "/ws/.env", Allow),
            (&[("read", "*", Allow)], "/ws/.env", Ask),
            (&[("read", "secret/*", Deny)], "/ws/secret/x", Deny),
            (&[("read", "secret/*", Ask)], "/ws/secret/x", Ask),
            (&[("read", "*", Deny)], "/ws/a.rs", Deny),
            // The search itself was asked about.
            (&[("*", "*", Ask)], "/ws/a.rs", Allow),
            (&[("*", "*", Ask)], "/ws/.env", Ask),
            (&[], "/out/a.rs", Allow),
            (&[], "/out/key.pem", Ask),
            (
                &[("external_directory", "/out/private/*", Deny)],
                "/out/private/a",
                Deny,
            ),
            (&[], "/data/auth.json", Deny),
            (&[], "/data/tool-output/x", Allow),
        ];
        for (rules, path, wanted) in table {
            assert_eq!(
                filter(rules).judge(Path::new(path)),
                *wanted,
                "{rules:?} {path}"
            );
        }
    }

    #[test]
    fn files_that_the_session_asks_about_are_left_out() {
        use Action::{Allow, Ask, Deny};
        let usual = filter(&[("read", "no/*", Deny), ("read", ".env", Allow)]).policy;
        for (pattern, path, wanted) in [
            ("secret/*", "/ws/secret/x", Ask),
            ("secret/*", "/ws/a.rs", Allow),
            ("secret/*", "/ws/.env", Allow),
            ("no/*", "/ws/no/x", Deny),
            // The search itself was asked about.
            ("*", "/ws/a.rs", Allow),
        ] {
            let filter = SearchFilter::new(&Policy {
                grants: Rules::written("read", &[("secret/*", Allow)]),
                ask_rules: Rules::written("read", &[(pattern, Ask)]),
                ..usual.clone()
            });
            assert_eq!(filter.judge(Path::new(path)), wanted, "{pattern} {path}");
        }
    }

    proptest::proptest! {
        /// The verdict for a directory's files is the same as that of judging each file fully.
        #[test]
        fn files_of_a_plain_folder_are_judged_like_each_file(
            folder in "(/ws|/out|/data|/proc|/WS|/|)(/(a|B|[.]a|src|tool-output|root|[.]ssh|x y)){0,3}",
            names in proptest::collection::vec("[.]?(a|id_rsa|x|key|AGENTS|environ)[\\\\.~ ]?(env|pem|rs|A|md|)", 1..4),
            rules in proptest::collection::vec(
                (
                    "(read|external_directory|[*])",
                    "([*]|(src|a|/out|[*][*])?/?[*]?[.]?(env|rs|x|a|[*]|[?]))",
                    proptest::sample::select(vec![Action::Allow, Action::Ask, Action::Deny]),
                ),
                0..5,
            ),
        ) {
            let rules: Vec<_> = rules.iter().map(|(key, pattern, action)| (&**key, &**pattern, *action)).collect();
            let filter = filter(&rules);
            let mut reader = filter.reader();
            for name in names {
                let path = Path::new(&folder).join(name);
                let Policy { rules, grants, .. } = &filter.policy;
                let fully = reader.judge_fully(rules, grants, &path);
                proptest::prop_assert_eq!(reader.judge(&path), fully, "{:?}", path);
            }
        }
    }

    #[test]
    fn left_out_files_are_counted_and_named() {
        let mut out = Omitted::default();
        assert_eq!(out.to_message(), "");
        for name in ["d", "b", "a\n", "c"] {
            out.add(Action::Ask, || name.into());
        }
        out.add(Action::Deny, || unreachable!());
        let mut all = Omitted::default();
        all.merge(out);
        assert_eq!(
            all.to_message(),
            "\n\n(4 files left out, because reading needs permission: a\\n, b, c and 1 more)\n\n(1 file left out, because reading is not allowed)"
        );
    }
}
