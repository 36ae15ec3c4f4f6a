//! What is known of a program by its name alone.

#[cfg(test)]
use super::table::Does;
use super::table::{self, Operand, Takes};

/// `python` for `python3.12`, `mkfs` for `mkfs.ext4`.
pub(in crate::permission::shell) fn family(name: &str) -> &str {
    if name.starts_with("ld-linux") || name.starts_with("ld-musl") {
        return "ld.so";
    }
    if name.starts_with("mkfs.") {
        return "mkfs";
    }
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// Whether no option of a program can do harm.
pub(in crate::permission::shell) fn takes_any(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.any)
}

/// Whether there is an entry for a name.
pub(in crate::permission::shell) fn knows(name: &str) -> bool {
    table::program(name).is_some() || table::program(family(name)).is_some()
}

/// What a git command does that a repository's settings may start a program for; none where nobody knows.
pub(in crate::permission::shell) fn meets(name: &str) -> Option<&'static [&'static str]> {
    table::program(name)?.meets.as_deref()
}

/// Whether a program takes the word after this option as its value.
pub(in crate::permission::shell) fn takes_next(name: &str, option: &str) -> bool {
    let letter = option.strip_prefix('-').filter(|rest| rest.len() == 1);
    let found = table::program(name).and_then(|program| program.option(letter.unwrap_or(option)));
    found.is_some_and(|found| found.takes == Takes::Value)
}

/// The files that a program runs without being given their names.
pub(in crate::permission::shell) fn runs_of_itself(name: &str) -> &'static [&'static str] {
    match name {
        "make" | "gmake" => &["Makefile", "makefile", "GNUmakefile"],
        "just" => &["justfile", "Justfile", ".justfile"],
        "ninja" => &["build.ninja"],
        "npm" | "npx" | "yarn" | "pnpm" | "bun" => &["package.json"],
        _ => &[],
    }
}

/// Whether a program is a shell.
pub(in crate::permission::shell) fn is_shell(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.special.ends_with("shell"))
}

/// Whether a program is an interpreter of a language.
pub(in crate::permission::shell) fn is_language(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.special == "language")
}

/// Whether a program runs others, or texts, that stand among its words.
pub(in crate::permission) fn carries(name: &str) -> bool {
    const WORDS: [&str; 19] = [
        "eval", "exec", "command", "builtin", "trap", "coproc", "then", "do", "else", "elif", "if", "while", "until",
        "!", "source", "alias", "jobs", "fd", "fdfind",
    ];
    WORDS.contains(&name)
        || table::program(name).is_some_and(|program| {
            program.runs()
                || program.words.contains(&Operand::Command) && name != "git" && name != "systemctl"
                || matches!(program.special, "shell" | "foreign shell" | "find" | "sed" | "awk" | "env" | "xargs")
        })
}

/// Every program that runs the words after it, with what has to stand between and with its options:
/// for what must hold for all of them.
#[cfg(test)]
pub(in crate::permission) fn beginnings() -> Vec<String> {
    let mut all = vec![];
    for (name, program) in table::all() {
        let Some(at) = program.words.iter().position(|role| matches!(role, Operand::Program | Operand::Tails)) else {
            continue;
        };
        if name.contains("to the screen")
            || name.contains(" of a ")
            || name.contains(" with")
            || name.contains("bisect")
        {
            continue;
        }
        let between = " 1".repeat(program.words[..at].iter().filter(|role| **role != Operand::Settings).count());
        all.push(format!("{name}{between}"));
        for (option, known) in program.options().filter(|(_, option)| option.takes == Takes::Value) {
            let mode = |entry: &(Vec<&str>, &str)| {
                entry.0.iter().any(|one| one.trim_start_matches('-') == option.trim_start_matches('-'))
            };
            if known.does == Does::Runs || known.does == Does::Splits || program.modes.iter().any(mode) {
                continue;
            }
            if option.starts_with("--") {
                all.push(format!("{name} {option}=1{between}"));
                all.push(format!("{name} {option} 1{between}"));
            } else if !program.whole {
                all.push(format!("{name} -{option} 1{between}"));
            }
        }
        if !program.whole && name != "-" {
            all.push(format!("{name} --{between}"));
        }
    }
    all.sort();
    all
}
