//! adjutant itself, started by an agent. Only the user may change permissions, so every subcommand
//! that is not known to be read-only is asked about under every rule set.

use super::Analyzer;
use crate::Action;
use crate::shell::disk::is_same_program;
use crate::shell::expand::{Arg, ShellState};
use crate::shell::unit::{CommandUnit, Effect};

/// Read-only subcommands, with their read-only verbs; `None` if all are.
const READ_ONLY: [(&str, Option<&[&str]>); 12] = [
    ("config", Some(&["show", "get", "path", "check", "schema"])),
    ("permissions", Some(&["list", "explain", "check"])),
    ("sessions", Some(&["list", "show", "search"])),
    ("agents", Some(&["list", "show"])),
    ("auth", Some(&["list"])),
    ("models", None),
    ("stats", None),
    ("skills", None),
    ("formatters", None),
    ("lsp", None),
    ("doctor", None),
    ("help", None),
];

/// Options with a directory as value, which may be named `adjutant`.
const DIRECTORY_OPTIONS: [&str; 6] = [
    "-C",
    "--directory",
    "--prefix",
    "--manifest-path",
    "--git-dir",
    "--work-tree",
];

/// Our other subcommands, and words that mean one. A test of the command line checks that the two
/// lists are complete.
const CHANGING: [&str; 13] = [
    "trust",
    "run",
    "chat",
    "acp",
    "serve",
    "connect",
    "mcp",
    "events",
    "extensions",
    "completions",
    "man",
    "login",
    "logout",
];

/// Returns whether a word is one of our subcommands.
pub(in crate::shell) fn is_subcommand(word: &str) -> bool {
    CHANGING.contains(&word) || READ_ONLY.iter().any(|(first, _)| *first == word)
}

impl Analyzer<'_> {
    /// Returns whether a program is adjutant, by its name or by its file, which may be a link or a
    /// copy.
    pub(super) fn is_ours(&mut self, name: &str, state: &ShellState) -> bool {
        if is_named(name) {
            return true;
        }
        let Some(program) = self.disk.program() else {
            return false;
        };
        if name.contains('/') {
            return state
                .cwd
                .iter()
                .any(|cwd| is_same_program(&cwd.join(name), program));
        }
        self.disk
            .find_on_path(name)
            .is_some_and(|found| is_same_program(&found.resolved, program))
    }
}

/// Returns whether a word names adjutant: alone, in a directory, or as a version or package of it.
fn is_named(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.strip_prefix("adjutant")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', '@', '=']))
}

/// Asks about a start of adjutant, under any name, by any other program, and by building and
/// starting it.
pub(super) fn judge(ours: bool, all: &[Arg], unit: &mut CommandUnit) {
    let args = &all[1..];
    let name = all[0].text().unwrap_or_default();
    let starts_change = |at: usize, computed: bool| {
        own_words(&args[at + 1..], computed).is_some_and(|words| !is_read_only(words))
    };
    let is_directory = |at: usize| {
        at.checked_sub(1)
            .is_some_and(|at| DIRECTORY_OPTIONS.iter().any(|option| args[at].is(option)))
    };
    let names_us = |at: usize| {
        args[at].text().is_some_and(is_named) && !is_directory(at) && starts_change(at, true)
    };
    let runs_build = |at: usize| {
        ["--", "run", "r"].iter().any(|word| args[at].is(word)) && starts_change(at, false)
    };
    let is_started = match name.rsplit('/').next().unwrap_or(name) {
        _ if ours => !is_read_only(args),
        "cargo" => (0..args.len()).any(|at| runs_build(at) || names_us(at)),
        // A program that only reads starts no program that it is not known to start.
        _ => unit.effect != Effect::Reads && (0..args.len()).any(names_us),
    };
    if is_started {
        unit.set_minimum(
            Action::Ask,
            "it is adjutant itself, and may change what you are asked about",
        );
    }
}

/// Asks about text that is not analysed, such as a program in another language, if it names
/// adjutant and a subcommand that changes permissions.
pub(super) fn judge_texts(unit: &mut CommandUnit) {
    const VERBS: [&str; 13] = [
        "trust",
        "revoke",
        "auth",
        "import",
        "move",
        "acp",
        "serve",
        "mcp",
        "login",
        "logout",
        "create",
        "run",
        "extensions",
    ];
    let names_change = |text: &String| {
        let words: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .collect();
        let sets = |pair: &[&str]| matches!(pair, ["config", "set" | "edit"]);
        words.contains(&"adjutant")
            && (VERBS.iter().any(|verb| words.contains(verb)) || words.windows(2).any(sets))
    };
    if unit.foreign_code.iter().any(names_change) || names_change(&unit.possible_starts.join(" ")) {
        unit.set_minimum(
            Action::Ask,
            "its text starts adjutant, and may change what you are asked about",
        );
    }
}

/// Returns the words from our first subcommand on, after options with their values. Without a
/// subcommand another program would not start us. If `computed` is true, computed words count as
/// a subcommand.
fn own_words(args: &[Arg], computed: bool) -> Option<&[Arg]> {
    let mut value = false;
    for (at, arg) in args.iter().enumerate() {
        let option = arg.prefix().starts_with('-');
        if !option && arg.text().map_or(computed, is_subcommand) {
            return args.get(at..);
        }
        if !option && !value {
            return None;
        }
        value = option && !arg.is("--");
    }
    None
}

fn is_read_only(args: &[Arg]) -> bool {
    let words: Option<Vec<&str>> = args.iter().map(Arg::text).collect();
    let Some(words) = words.filter(|words| !words.contains(&"--login")) else {
        return false;
    };
    match words.as_slice() {
        ["--version" | "-V" | "--help" | "-h", ..] => true,
        // A report is a new file, which has the end of the log in it.
        ["doctor", rest @ ..] => rest
            .iter()
            .all(|word| ["--json", "--help", "-h"].contains(word)),
        [first, rest @ ..] => READ_ONLY
            .iter()
            .find(|(word, _)| word == first)
            .is_some_and(|(_, verbs)| {
                verbs.is_none_or(|verbs| {
                    rest.first()
                        .is_none_or(|verb| verbs.contains(verb) || *verb == "--help")
                })
            }),
        [] => false,
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::case_tables::{PathFixture, bash_rules};
    use crate::{Action, command_request, evaluate};

    #[test]
    fn changing_permissions_by_a_command_asks() {
        let mut lab = PathFixture::new();
        let program = lab.out.join("agent");
        std::fs::write(&program, "#!/bin/sh\necho one").unwrap();
        std::os::unix::fs::symlink(&program, lab.context.root.join("linked")).unwrap();
        for (name, content) in [
            ("copy", "#!/bin/sh\necho one"),
            ("other", "#!/bin/sh\necho two"),
        ] {
            std::fs::write(lab.context.root.join(name), content).unwrap();
        }
        std::fs::hard_link(&program, lab.context.root.join("hard")).unwrap();
        lab.context.program = Some(program);
        let rules = bash_rules(
            &lab.context,
            &[
                ("*", Action::Allow),
                ("adjutant *", Action::Allow),
                ("cargo *", Action::Allow),
            ],
        );
        let asked = [
            "adjutant trust",
            "adjutant trust --yes",
            "./target/debug/adjutant trust --yes",
            "/usr/local/bin/adjutant permissions revoke bash",
            "adjutant auth login openai",
            "adjutant --login",
            "adjutant sessions import x.json",
            "adjutant sessions move a b",
            "adjutant sessions summary last",
            "perl -e 'system(\"adjutant sessions move a b\")'",
            "adjutant agents create --name x",
            "adjutant run 'do it'",
            "adjutant doctor --report",
            "adjutant doctor --report=x.txt",
            "adjutant doctor --rep x.txt --wire ~/.ssh/id_ed25519",
            "adjutant events",
            "adjutant events --session ses_1",
            "adjutant $x",
            "adjutant",
            "env A=b adjutant trust",
            "sh -c 'adjutant trust --yes'",
            "echo y | adjutant trust",
            "docker run image adjutant trust",
            "su bob <<< 'adjutant trust --yes'",
            "cargo run -- trust --yes",
            "cargo run -q --bin adjutant -- permissions revoke bash",
            "cargo run --bin adjutant trust --yes",
            "cargo run -q trust --yes",
            "npx adjutant trust --yes",
            "npx -y adjutant@latest trust",
            "uvx --from adjutant adjutant auth login",
            "rtk adjutant trust --yes",
            "some-wrapper -x /opt/bin/adjutant sessions import x.json",
            "npx adjutant $x",
            "cargo run -- mcp call server tool",
            "cargo run --bin adjutant -- mcp add x --write -- sh",
            "cargo run mcp login x",
            "rtk adjutant mcp login x",
            "cargo run -- extensions",
            "cargo run -- serve",
            "cargo run -- logout openai",
            "rtk adjutant login openai",
            "perl -e 'system(\"adjutant config set permission.bash allow\")'",
            "perl -e 'system(\"adjutant mcp call x y\")'",
            "node -e \"require('child_process').execSync('adjutant agents create x')\"",
            "./linked trust --yes",
            "./hard trust --yes",
            "./copy trust --yes",
            "exec ./linked trust",
            "env -u ADJUTANT_CHILD ./copy trust --yes",
            "(env -u ADJUTANT_CHILD setsid ./linked trust --yes >o2 2>&1 &); sleep 2",
            "cd src && ../copy permissions revoke bash",
        ];
        let verdict = |line: &str| {
            evaluate(
                &rules,
                &crate::Rules::default(),
                &command_request(line, &lab.context),
            )
            .action
        };
        for line in asked {
            assert_eq!(verdict(line), Action::Ask, "{line}");
        }
        let allowed = [
            "cargo run -- build",
            "cargo test -- trust_is_kept",
            "make -C adjutant run",
            "grep -rn adjutant trust",
            "./other trust --yes",
            "npx adjutant config check",
        ];
        for line in allowed {
            assert_eq!(verdict(line), Action::Allow, "{line}");
        }
        let reason = |line: &str| {
            let request = command_request(line, &lab.context);
            request
                .command
                .unwrap()
                .units
                .iter()
                .any(|unit| unit.minimum.is_some())
        };
        for line in [
            "adjutant config check",
            "adjutant --version",
            "adjutant permissions list",
            "adjutant doctor",
            "adjutant doctor --json",
        ] {
            assert!(!reason(line), "{line}");
        }
    }
}
