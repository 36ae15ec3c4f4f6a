//! What a git command does: reading, writing, or starting something for it.

use super::expand::Arg;
use super::git_config::Repository;
use super::options::Options;
use super::state::State;
use super::walk::Walk;
use super::{Effect, Unit};
use crate::permission::paths::Access;
use crate::permission::protected;

/// Options before the subcommand that take the next word.
const GLOBAL: [&str; 8] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env"];

const READS: [&str; 41] = [
    "diff",
    "log",
    "show",
    "status",
    "blame",
    "annotate",
    "shortlog",
    "grep",
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "cat-file",
    "describe",
    "name-rev",
    "merge-base",
    "diff-tree",
    "diff-index",
    "diff-files",
    "show-ref",
    "for-each-ref",
    "whatchanged",
    "range-diff",
    "cherry",
    "count-objects",
    "var",
    "version",
    "check-ignore",
    "check-attr",
    "check-ref-format",
    "check-mailmap",
    "show-branch",
    "show-index",
    "verify-pack",
    "patch-id",
    "stripspace",
    "get-tar-commit-id",
    "column",
    "fmt-merge-msg",
    "diff-pairs",
    "last-modified",
];

const WRITES: [&str; 48] = [
    "add",
    "stage",
    "commit",
    "checkout",
    "switch",
    "restore",
    "reset",
    "rm",
    "mv",
    "clean",
    "merge",
    "rebase",
    "pull",
    "push",
    "cherry-pick",
    "revert",
    "apply",
    "am",
    "init",
    "clone",
    "gc",
    "prune",
    "repack",
    "update-ref",
    "update-index",
    "filter-branch",
    "filter-repo",
    "replace",
    "pack-refs",
    "write-tree",
    "commit-tree",
    "mktree",
    "mktag",
    "read-tree",
    "checkout-index",
    "format-patch",
    "fast-import",
    "unpack-objects",
    "index-pack",
    "pack-objects",
    "rerere",
    "maintenance",
    "multi-pack-index",
    "commit-graph",
    "send-pack",
    "receive-pack",
    "update-server-info",
    "prune-packed",
];

/// Where the subcommand stands among git's words.
pub(super) fn subcommand(args: &[Arg]) -> usize {
    let mut at = 0;
    while let Some(arg) = args.get(at)
        && arg.prefix().starts_with('-')
    {
        at += 1 + usize::from(GLOBAL.iter().any(|option| arg.is(option)));
    }
    at
}

impl Walk<'_> {
    pub(super) fn git(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let at = subcommand(args);
        let mut inner = state.clone();
        let mut elsewhere = false;
        for (index, arg) in args[..at.min(args.len())].iter().enumerate() {
            let Some(text) = arg.text() else {
                unit.opaque("its options are computed");
                continue;
            };
            let value = args.get(index + 1).cloned();
            match text {
                "-C" => {
                    elsewhere = true;
                    if let Some(dir) = value {
                        unit.danger("-C");
                        self.chdir(Some(&dir), unit, &mut inner);
                    }
                }
                "-c" | "--config-env" => {
                    unit.danger("-c");
                    let set = value.as_ref().map(|arg| arg.prefix().to_ascii_lowercase()).unwrap_or_default();
                    if !quiet_setting(&set) {
                        unit.opaque("a setting for this one command may start a program");
                        unit.texts.extend(value.as_ref().and_then(Arg::text).map(str::to_owned));
                    }
                }
                text if text.starts_with("--exec-path=")
                    || text.starts_with("--config-env=")
                    || text.starts_with("--super-prefix") =>
                {
                    unit.opaque("git is told to start programs from elsewhere");
                }
                text if text.starts_with("--git-dir") || text.starts_with("--work-tree") => {
                    elsewhere = true;
                    unit.danger(text.split('=').next().unwrap_or(text));
                    let dir = if text.contains('=') { Some(arg.after(text.find('=').unwrap_or(0) + 1)) } else { value };
                    if let Some(dir) = dir {
                        self.touch(Access::List, &dir, unit, state);
                        unit.opaque("another repository's settings decide what git starts");
                    }
                }
                _ => {}
            }
        }
        let Some(name) = args.get(at) else {
            unit.effect_at_least(Effect::Reads);
            return;
        };
        let Some(name) = name.text().map(str::to_owned) else {
            unit.effect_at_least(Effect::Unproven);
            return;
        };
        let rest: Vec<Arg> = args[at + 1..].to_vec();
        self.configured(&name, &rest, unit, &inner, elsewhere);
        self.subcommand(&name, &rest, unit, &mut inner);
        self.git_paths(&rest, unit, &inner);
    }

    /// What the repository's own settings make this command start.
    fn configured(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &State, elsewhere: bool) {
        if self.place.trusted || matches!(name, "version" | "help" | "check-ref-format" | "stripspace") {
            return;
        }
        let found = match state.cwd.as_slice() {
            [] => return unit.opaque("which repository it works in is not known"),
            [cwd] if !elsewhere && *cwd == self.place.cwd => {
                let (cwd, home) = (cwd.clone(), self.place.home.clone());
                self.repository.get_or_insert_with(|| Some(Repository::find(&cwd, home.as_deref()))).clone()
            }
            dirs => {
                dirs.iter().map(|cwd| Repository::find(cwd, self.place.home.as_deref())).reduce(|a, b| Repository {
                    diff: a.diff.or(b.diff),
                    tree: a.tree.or(b.tree),
                    hooks: a.hooks.or(b.hooks),
                    aliases: a.aliases.into_iter().chain(b.aliases).collect(),
                })
            }
        };
        let Some(found) = found else { return };
        let has = |names: &[&str]| args.iter().any(|arg| names.iter().any(|name| arg.is(name)));
        let shows_diff = matches!(
            name,
            "diff"
                | "show"
                | "blame"
                | "annotate"
                | "grep"
                | "add"
                | "commit"
                | "stash"
                | "checkout"
                | "status"
                | "restore"
                | "reset"
                | "switch"
                | "merge"
                | "rebase"
                | "archive"
                | "cat-file"
                | "diff-files"
                | "diff-index"
                | "diff-tree"
        ) || (name == "log"
            && has(&["-p", "--patch", "-u", "--stat", "--ext-diff", "-c", "--cc", "-G", "-S"]));
        let past = matches!(
            name,
            "log"
                | "shortlog"
                | "rev-parse"
                | "rev-list"
                | "show-ref"
                | "for-each-ref"
                | "cat-file"
                | "merge-base"
                | "branch"
                | "tag"
                | "remote"
                | "config"
        );
        let reads_only = READS.contains(&name) && name != "status";
        let helper = found
            .tree
            .filter(|_| !past)
            .or(found.diff.filter(|_| shows_diff))
            .or(found.hooks.filter(|_| !reads_only && !past));
        if let Some(helper) = helper {
            unit.opaque(&format!("this repository makes `git {name}` run a program: {helper}"));
        }
        if let Some(alias) = found.aliases.get(name)
            && !READS.contains(&name)
            && !WRITES.contains(&name)
        {
            self.alias(&alias.clone(), args, unit, &mut state.clone());
        }
    }

    fn alias(&mut self, alias: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        unit.effect_at_least(Effect::Unproven);
        if let Some(command) = alias.strip_prefix('!') {
            self.text(&Arg::exact(command), unit, false, true, state);
            return;
        }
        let mut words: Vec<Arg> = vec![Arg::exact("git")];
        words.extend(alias.split_whitespace().map(|word| Arg::exact(word.trim_matches(['"', '\'']))));
        words.extend(args.iter().cloned());
        self.inner(&words, unit, false, state);
    }

    fn subcommand(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let short = if matches!(name, "archive" | "format-patch" | "bundle") { "o" } else { "GSnLUeABCmtsjFbu" };
        let options = Options::read(
            args,
            short,
            &[
                "format",
                "pretty",
                "grep",
                "author",
                "since",
                "until",
                "output",
                "message",
                "upload-pack",
                "exec",
                "receive-pack",
            ],
        );
        let operands = options.operands.as_slice();
        let first = operands.first().and_then(Arg::text).unwrap_or_default();
        let unknown = if options.unknown { Effect::Unproven } else { Effect::Reads };
        // Whatever shows a difference takes it: `stash show`, `reflog` as well as `log`.
        if let Some(flag) = options.find(&["--output"]).filter(|flag| !flag.name.starts_with("--output-")) {
            unit.danger("--output");
            let file = flag.value.clone().unwrap_or_else(|| Arg::unknown("--output"));
            self.touch(Access::Edit, &file, unit, state);
        }
        if options.has(&["--help"]) {
            unit.effect_at_least(Effect::Unproven);
        }
        if args.iter().any(|arg| arg.prefix().contains("%G")) {
            // It asks a program of the settings about signatures.
            unit.danger("%G");
            unit.effect_at_least(Effect::Unproven);
        }
        match name {
            name if READS.contains(&name) => {
                unit.effect_at_least(unknown);
                for flag in options.all(&["--ext-diff", "--textconv", "--filters", "--show-signature"]) {
                    // Only helpers that somebody configured run; what the repository says was looked at.
                    unit.danger(&flag.name);
                    unit.effect_at_least(Effect::Unproven);
                }
                if name == "grep" {
                    for flag in options.all(&["-O", "--open-files-in-pager"]) {
                        unit.danger(&flag.name);
                        unit.effect_at_least(Effect::Unproven);
                        if let Some(value) = flag.value.clone() {
                            self.text(&value, unit, true, true, state);
                        }
                    }
                    if options.has(&["--no-index"]) {
                        unit.danger("--no-index");
                    }
                }
                if name == "diff" && options.has(&["--no-index"]) {
                    unit.danger("--no-index");
                    operands.iter().for_each(|arg| self.touch(Access::Read, arg, unit, state));
                }
                if name == "rev-parse" && options.has(&["--parseopt", "--sq-quote"]) {
                    unit.effect_at_least(Effect::Unproven);
                }
            }
            "branch" => {
                let writes = options.has(&[
                    "-d",
                    "-D",
                    "-m",
                    "-M",
                    "-c",
                    "-C",
                    "-f",
                    "-u",
                    "--delete",
                    "--move",
                    "--copy",
                    "--force",
                    "--set-upstream-to",
                    "--unset-upstream",
                    "--edit-description",
                ]);
                let lists = options.has(&[
                    "-l",
                    "--list",
                    "--contains",
                    "--no-contains",
                    "--merged",
                    "--no-merged",
                    "--points-at",
                    "--show-current",
                ]);
                unit.danger_if(writes, "-D");
                unit.effect_at_least(if writes || (!operands.is_empty() && !lists) { Effect::Writes } else { unknown });
            }
            "tag" => {
                let lists = options.has(&["-l", "--list", "--contains", "--merged", "--points-at", "-v", "--verify"]);
                let writes = options.has(&["-d", "--delete", "-f", "--force", "-a", "-s"]);
                unit.danger_if(writes, "-d");
                if options.has(&["-v", "--verify"]) {
                    unit.effect_at_least(Effect::Unproven);
                }
                unit.effect_at_least(if writes || (!operands.is_empty() && !lists) { Effect::Writes } else { unknown });
            }
            "stash" => unit.effect_at_least(if matches!(first, "list" | "show") { unknown } else { Effect::Writes }),
            "remote" => {
                let reads = operands.is_empty() || matches!(first, "get-url");
                unit.network |= matches!(first, "show" | "update" | "prune");
                unit.effect_at_least(match first {
                    _ if reads => unknown,
                    "show" => Effect::Unproven,
                    _ => Effect::Writes,
                });
            }
            "config" => {
                let reads = options.has(&["--get", "--get-all", "--get-regexp", "-l", "--list", "--get-urlmatch"])
                    || matches!(first, "get" | "list")
                    || (operands.len() == 1
                        && !options.has(&["--unset", "--unset-all", "--remove-section", "--edit", "-e", "--add"]));
                unit.danger_if(!reads, "config");
                unit.effect_at_least(if reads { Effect::Unproven } else { Effect::Writes });
                if !reads {
                    unit.floor(crate::permission::Action::Ask, "git's settings decide what it starts");
                }
            }
            "reflog" => unit.effect_at_least(if matches!(first, "" | "show" | "exists" | "list") {
                unknown
            } else {
                Effect::Writes
            }),
            "worktree" => unit.effect_at_least(if first == "list" { unknown } else { Effect::Writes }),
            "notes" => {
                unit.effect_at_least(if matches!(first, "" | "list" | "show") { unknown } else { Effect::Writes })
            }
            "symbolic-ref" => unit.effect_at_least(if operands.len() < 2 && !options.has(&["-d", "--delete"]) {
                unknown
            } else {
                Effect::Writes
            }),
            "sparse-checkout" => unit.effect_at_least(if first == "list" { unknown } else { Effect::Writes }),
            "bundle" => {
                unit.effect_at_least(if matches!(first, "verify" | "list-heads") { unknown } else { Effect::Writes })
            }
            "hash-object" => unit.effect_at_least(if options.has(&["-w"]) { Effect::Writes } else { Effect::Unproven }),
            "archive" => {
                if let Some(flag) = options.find(&["-o"]) {
                    unit.danger("--output");
                    let file = flag.value.clone().unwrap_or_else(|| Arg::unknown("--output"));
                    self.touch(Access::Edit, &file, unit, state);
                }
                let plain = |arg: &Arg| matches!(arg.text(), Some("tar" | "zip"));
                if options.all(&["--format"]).any(|flag| !flag.value.as_ref().is_some_and(plain)) {
                    // Others are made by a program of the settings.
                    unit.effect_at_least(Effect::Unproven);
                }
                unit.effect_at_least(if options.has(&["--remote", "--exec"]) { Effect::Unproven } else { unknown });
            }
            "bisect" => {
                unit.effect_at_least(match first {
                    "log" => unknown,
                    "view" | "visualize" => Effect::Unproven,
                    _ => Effect::Writes,
                });
                if first == "run" {
                    let at = args.iter().position(|arg| arg.is("run")).map_or(args.len(), |at| at + 1);
                    self.inner(&args[at..], unit, false, state);
                }
            }
            "submodule" => {
                unit.effect_at_least(if matches!(first, "" | "status" | "summary") {
                    Effect::Unproven
                } else {
                    Effect::Writes
                });
                if first == "foreach" {
                    let at = args.iter().position(|arg| arg.is("foreach")).map_or(args.len(), |at| at + 1);
                    let from = args[at..]
                        .iter()
                        .position(|arg| !arg.prefix().starts_with('-'))
                        .map_or(args.len(), |skip| at + skip);
                    self.joined_text(&args[from..], unit, true, state);
                }
            }
            "ls-remote" | "fetch" => {
                unit.network = true;
                unit.effect_at_least(if name == "fetch" { Effect::Writes } else { Effect::Unproven });
            }
            "clean" if options.has(&["-n", "--dry-run"]) => unit.effect_at_least(unknown),
            name if WRITES.contains(&name) => {
                unit.effect = Effect::Writes;
                unit.network |= matches!(name, "push" | "pull" | "clone");
                unit.destroys =
                    matches!(name, "clean" | "reset" | "checkout" | "restore" | "push" | "rm" | "prune" | "gc");
            }
            _ => {
                unit.effect_at_least(Effect::Unproven);
                unit.words
                    .extend(args.iter().filter_map(Arg::text).flat_map(super::programs::names_in).map(str::to_owned));
            }
        }
        if matches!(name, "difftool" | "mergetool") {
            // `git diff*` is written with other things in mind.
            unit.danger(name);
        }
        let runs: &[&str] = match name {
            "rebase" => &["-x", "--exec"],
            "filter-branch" => &[
                "--tree-filter",
                "--index-filter",
                "--env-filter",
                "--msg-filter",
                "--commit-filter",
                "--parent-filter",
                "--tag-name-filter",
                "--setup",
            ],
            "difftool" | "mergetool" => &["-x", "--extcmd"],
            "ls-remote" | "fetch" | "clone" | "pull" => &["--upload-pack", "-u"],
            "push" => &["--receive-pack", "--exec"],
            "archive" => &["--exec"],
            "send-email" => &["--smtp-server", "--to-cmd", "--cc-cmd", "--header-cmd"],
            _ => &[],
        };
        if !runs.is_empty() {
            let all = Options::read(
                args,
                "xu",
                &[
                    "exec",
                    "upload-pack",
                    "receive-pack",
                    "extcmd",
                    "tree-filter",
                    "index-filter",
                    "env-filter",
                    "msg-filter",
                    "commit-filter",
                    "parent-filter",
                    "tag-name-filter",
                    "setup",
                    "config",
                ],
            );
            for flag in all.all(runs) {
                unit.danger(&flag.name);
                if let Some(value) = flag.value.clone() {
                    self.text(&value, unit, true, true, state);
                }
            }
            // `ext::` addresses are commands, settings given to clone may be.
            let strange = args
                .iter()
                .any(|arg| arg.prefix().starts_with("ext::") || arg.is("-c") || arg.prefix().starts_with("--config"));
            if strange {
                unit.opaque("a command is hidden in an address or a setting");
                unit.texts.extend(args.iter().filter_map(Arg::text).map(str::to_owned));
            }
        }
    }

    /// The files among git's words: outside the project they need permission; secrets are secrets in
    /// every revision.
    fn git_paths(&mut self, args: &[Arg], unit: &mut Unit, state: &State) {
        for arg in args {
            let Some(text) = arg.text() else { continue };
            let path = text.rsplit(':').next().unwrap_or(text);
            let name = path.rsplit('/').next().unwrap_or(path);
            if !text.starts_with('-') && protected::secret_name(name) && !text.contains(' ') && !text.contains("://") {
                Self::secret(unit, path, &format!("{path} may hold keys or passwords"));
            }
            // `-O/a/file`: the value of a letter.
            let text = match text.strip_prefix('-') {
                Some(rest) if rest.get(1..).is_some_and(|value| value.starts_with(['/', '.'])) => &rest[1..],
                _ => text,
            };
            let outside = text.starts_with('/') || text.starts_with("../") || text == "..";
            if outside || text.starts_with("file://") {
                self.touch_text(Access::List, text, unit, state);
            } else if let Some((option, value)) = text.split_once('=')
                && option.starts_with('-')
                && value.starts_with(['/', '.'])
                && !value.contains(' ')
            {
                let value = value.to_owned();
                self.touch_text(Access::List, &value, unit, state);
            }
        }
    }
}

impl Unit {
    fn danger_if(&mut self, there: bool, option: &str) {
        if there {
            self.danger(option);
        }
    }
}

/// Settings that start nothing.
fn quiet_setting(set: &str) -> bool {
    let key = set.split('=').next().unwrap_or_default();
    [
        "color.",
        "user.name",
        "user.email",
        "advice.",
        "log.",
        "column.",
        "status.",
        "i18n.",
        "core.quotepath",
        "core.abbrev",
    ]
    .iter()
    .any(|start| key.starts_with(start))
        || matches!(
            set,
            "core.fsmonitor=false" | "core.pager=cat" | "safe.barerepository=explicit" | "core.hookspath=/dev/null"
        )
}
