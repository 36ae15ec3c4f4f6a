//! adjutant itself, started by an agent. What is allowed is for the user to say, so whatever is not
//! known to only show something is asked about under every rule.

use crate::permission::Action;
use crate::permission::shell::expand::Arg;
use crate::permission::shell::unit::Unit;

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

/// Words of ours that do more.
const CHANGING: [&str; 3] = ["trust", "run", "acp"];

/// Asks about adjutant, however it is named, and about its being built and started.
pub(super) fn judge(name: &str, args: &[Arg], unit: &mut Unit) {
    let ours = name == "adjutant" || name.starts_with("adjutant-") || name.starts_with("adjutant.");
    let started = match name {
        _ if ours => Some(args),
        "cargo" => {
            let begins = |arg: &Arg| arg.is("--") || arg.is("run") || arg.is("r");
            let mut rests = args.iter().enumerate().filter(|(_, arg)| begins(arg)).map(|(at, _)| &args[at + 1..]);
            rests.find(|rest| known(rest))
        }
        _ => None,
    };
    if started.is_some_and(|args| !shows(args)) {
        unit.floor(Action::Ask, "it is adjutant itself, and may change what you are asked about");
    }
}

/// Asks about what nobody takes apart, a program in another language say, where it names adjutant and
/// something of ours that changes what is allowed.
pub(super) fn told(unit: &mut Unit) {
    const VERBS: [&str; 5] = ["trust", "revoke", "auth", "import", "acp"];
    let names = |text: &String| {
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        words.contains(&"adjutant") && VERBS.iter().any(|verb| words.contains(verb))
    };
    if unit.texts.iter().any(names) || names(&unit.tails.join(" ")) {
        unit.floor(Action::Ask, "its text starts adjutant, and may change what you are asked about");
    }
}

/// Whether the first word is one of ours: only then is it us that cargo would start.
fn known(args: &[Arg]) -> bool {
    let ours = |word: &str| CHANGING.contains(&word) || SHOWING.iter().any(|(first, _)| *first == word);
    args.first().and_then(Arg::text).is_some_and(ours)
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
    use crate::permission::cases::{Lab, with};
    use crate::permission::{Action, command_need, evaluate};

    #[test]
    fn an_agent_does_not_answer_for_the_user() {
        let lab = Lab::new();
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
        ];
        let verdict =
            |line: &str| evaluate(&rules, &crate::permission::Rules::default(), &command_need(line, &lab.place)).action;
        for line in asked {
            assert_eq!(verdict(line), Action::Ask, "{line}");
        }
        for line in ["cargo run -- serve", "cargo test -- trust_is_kept"] {
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
