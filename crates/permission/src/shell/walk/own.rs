//! adjutant itself, started by an agent. What is allowed is for the user to say, so whatever is not
//! known to only show something is asked about under every rule.

use super::Walk;
use crate::Action;
use crate::shell::disk::is_same_program;
use crate::shell::expand::{Arg, ShellState};
use crate::shell::unit::{Effect, Unit};

/// The words that only show something, with what may follow them; none: whatever follows.
const SHOWING: [(&str, Option<&[&str]>); 8] = [
    ("config", Some(&["show", "check", "schema"])),
    ("permissions", Some(&["list", "explain", "check"])),
    ("sessions", Some(&["list", "show", "search"])),
    ("agents", Some(&["list", "show"])),
    ("auth", Some(&["list"])),
    ("models", None),
    ("doctor", None),
    ("help", None),
];

/// Options whose value is a directory, which may be called as we are.
const PLACES: [&str; 6] = ["-C", "--directory", "--prefix", "--manifest-path", "--git-dir", "--work-tree"];

/// Words of ours that do more. With those above they are all that there are, which a test of the command line sees to.
const CHANGING: [&str; 9] = ["trust", "run", "acp", "serve", "connect", "mcp", "extensions", "completions", "man"];

/// Whether a word is a subcommand of ours.
pub fn is_subcommand(word: &str) -> bool {
    CHANGING.contains(&word) || SHOWING.iter().any(|(first, _)| *first == word)
}

impl Walk<'_> {
    /// Whether a program is adjutant, by its name or by what its file is: a link, or a copy.
    pub(super) fn is_ours(&mut self, name: &str, state: &ShellState) -> bool {
        let Some(program) = self.disk.program().filter(|_| !is_named(name)) else {
            return is_named(name);
        };
        if name.contains('/') {
            return state.cwd.iter().any(|cwd| is_same_program(&cwd.join(name), program));
        }
        self.disk.on_path(name).is_some_and(|(real, ..)| is_same_program(&real, program))
    }
}

/// Whether a word names adjutant: alone, in a directory, as a version or a package of it.
fn is_named(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.strip_prefix("adjutant").is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', '@', '=']))
}

/// Asks about adjutant, however it is named and whatever starts it, and about its being built and started.
pub(super) fn judge(ours: bool, all: &[Arg], unit: &mut Unit) {
    let args = &all[1..];
    let name = all[0].text().unwrap_or_default();
    let behind = |at: usize, computed: bool| begun(&args[at + 1..], computed).is_some_and(|words| !shows(words));
    let place = |at: usize| at.checked_sub(1).is_some_and(|at| PLACES.iter().any(|option| args[at].is(option)));
    let names = |at: usize| args[at].text().is_some_and(is_named) && !place(at) && behind(at, true);
    let begins = |at: usize| ["--", "run", "r"].iter().any(|word| args[at].is(word)) && behind(at, false);
    let started = match name.rsplit('/').next().unwrap_or(name) {
        _ if ours => !shows(args),
        "cargo" => (0..args.len()).any(|at| begins(at) || names(at)),
        // What only reads starts nothing that it is not known to start.
        _ => unit.effect != Effect::Reads && (0..args.len()).any(names),
    };
    if started {
        unit.floor(Action::Ask, "it is adjutant itself, and may change what you are asked about");
    }
}

/// Asks about what nobody takes apart, a program in another language say, where it names adjutant and
/// something of ours that changes what is allowed.
pub(super) fn told(unit: &mut Unit) {
    const VERBS: [&str; 11] =
        ["trust", "revoke", "auth", "import", "acp", "serve", "mcp", "login", "logout", "create", "run"];
    let names = |text: &String| {
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        words.contains(&"adjutant") && VERBS.iter().any(|verb| words.contains(verb))
    };
    if unit.texts.iter().any(names) || names(&unit.tails.join(" ")) {
        unit.floor(Action::Ask, "its text starts adjutant, and may change what you are asked about");
    }
}

/// The words from the first one of ours on, behind options with their values: only then is it us that another
/// program would start. Whether words that are `computed` count as ours.
fn begun(args: &[Arg], computed: bool) -> Option<&[Arg]> {
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

fn shows(args: &[Arg]) -> bool {
    let words: Option<Vec<&str>> = args.iter().map(Arg::text).collect();
    let Some(words) = words.filter(|words| !words.contains(&"--login")) else { return false };
    match words.as_slice() {
        ["--version" | "-V" | "--help" | "-h", ..] => true,
        [first, rest @ ..] => SHOWING.iter().find(|(word, _)| word == first).is_some_and(|(_, verbs)| {
            verbs.is_none_or(|verbs| rest.first().is_none_or(|verb| verbs.contains(verb) || *verb == "--help"))
        }),
        [] => false,
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::cases::{Lab, with};
    use crate::{Action, command_need, evaluate};

    #[test]
    fn an_agent_does_not_answer_for_the_user() {
        let mut lab = Lab::new();
        let program = lab.out.join("agent");
        std::fs::write(&program, "#!/bin/sh\necho one").unwrap();
        std::os::unix::fs::symlink(&program, lab.place.root.join("linked")).unwrap();
        for (name, content) in [("copy", "#!/bin/sh\necho one"), ("other", "#!/bin/sh\necho two")] {
            std::fs::write(lab.place.root.join(name), content).unwrap();
        }
        std::fs::hard_link(&program, lab.place.root.join("hard")).unwrap();
        lab.place.program = Some(program);
        let rules =
            with(&lab.place, &[("*", Action::Allow), ("adjutant *", Action::Allow), ("cargo *", Action::Allow)]);
        let asked = [
            "adjutant trust",
            "adjutant trust --yes",
            "./target/debug/adjutant trust --yes",
            "/usr/local/bin/adjutant permissions revoke bash",
            "adjutant auth login openai",
            "adjutant --login",
            "adjutant sessions import x.json",
            "adjutant agents create --name x",
            "adjutant run 'do it'",
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
        let verdict = |line: &str| evaluate(&rules, &crate::Rules::default(), &command_need(line, &lab.place)).action;
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
            let need = command_need(line, &lab.place);
            need.command.unwrap().units.iter().any(|unit| unit.floor.is_some())
        };
        for line in ["adjutant config check", "adjutant --version", "adjutant permissions list", "adjutant doctor"] {
            assert!(!reason(line), "{line}");
        }
    }
}
