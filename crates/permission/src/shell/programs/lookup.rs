//! Lookups by the name of a program.

#[cfg(test)]
use super::table::OptionEffect;
use super::table::{self, Operand, ValueForm};
use crate::shell::names::among;

/// Programs of which several versions are installed in parallel, with a version in the name. In
/// other names digits have another meaning: `id3` is not `id`.
const FAMILIES: &str = "R Rscript awk bash c++ cc clang clang++ clang-cpp clang-format clang-tidy clangd cpp dash emacs \
    erl expect flang g++ gawk gcc gcc-ar gcc-nm gcc-ranlib gcov gdb gfortran ghc go gofmt gpg guile ipython irb java \
    javac jruby ksh ld.lld lld lldb lua luajit mawk node nodejs openssl perl php pip psql pydoc pypy pytest python \
    racket ruby runghc rustc sqlite tclsh vim wish zsh";

/// Returns the name without its version: `python` for `python3.12`, `gcc` for `gcc-13`, `mkfs` for
/// `mkfs.ext4`.
pub(crate) fn family(name: &str) -> &str {
    if name.starts_with("ld-linux") || name.starts_with("ld-musl") {
        return "ld.so";
    }
    if name.starts_with("mkfs.") {
        return "mkfs";
    }
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has_version = plain.len() < name.len();
    let plain = if has_version {
        plain.strip_suffix('-').unwrap_or(plain)
    } else {
        plain
    };
    if among(FAMILIES, plain) || plain.starts_with("llvm-") {
        plain
    } else {
        name
    }
}

/// Returns whether no option of a program can do harm.
pub(in crate::shell) fn takes_any(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.accepts_any_option)
}

/// Returns whether there is an entry for a name.
pub(in crate::shell) fn knows(name: &str) -> bool {
    table::program(name).is_some() || table::program(family(name)).is_some()
}

/// Returns the events that a git command causes, for which a repository's settings may start a
/// program; `None` if unknown.
pub(in crate::shell) fn meets(name: &str) -> Option<&'static [&'static str]> {
    table::program(name)?.meets.as_deref()
}

/// Returns whether a program takes the word after this option as its value.
pub(in crate::shell) fn takes_next(name: &str, option: &str) -> bool {
    let letter = option.strip_prefix('-').filter(|rest| rest.len() == 1);
    let found = table::program(name).and_then(|program| program.option(letter.unwrap_or(option)));
    found.is_some_and(|found| found.takes == ValueForm::Value)
}

/// Returns the files that a program runs without being given their names.
pub(in crate::shell) fn runs_of_itself(name: &str) -> &'static [&'static str] {
    match name {
        "make" | "gmake" => &["Makefile", "makefile", "GNUmakefile"],
        "just" => &["justfile", "Justfile", ".justfile"],
        "ninja" => &["build.ninja"],
        "npm" | "npx" | "yarn" | "pnpm" | "bun" => &["package.json"],
        _ => &[],
    }
}

/// Returns whether a program is a shell.
pub(in crate::shell) fn is_shell(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.special.ends_with("shell"))
}

/// Returns whether a program is an interpreter of a language.
pub(crate) fn is_language(name: &str) -> bool {
    table::program(name).is_some_and(|program| program.special == "language")
}

/// Returns whether a program runs other programs, or texts, that are among its words.
pub(crate) fn carries(name: &str) -> bool {
    const CARRIERS: [&str; 19] = [
        "eval", "exec", "command", "builtin", "trap", "coproc", "then", "do", "else", "elif", "if",
        "while", "until", "!", "source", "alias", "jobs", "fd", "fdfind",
    ];
    CARRIERS.contains(&name)
        || table::program(name).is_some_and(|program| {
            program.runs()
                || program.roles.contains(&Operand::Command) && name != "git" && name != "systemctl"
                || matches!(
                    program.special,
                    "shell" | "foreign shell" | "find" | "sed" | "awk" | "env" | "xargs"
                )
        })
}

/// Returns whether the name of an entry can be typed. The name of a mode cannot: only other entries
/// refer to it.
#[cfg(test)]
fn is_typed(name: &str) -> bool {
    !["to the screen", " of a ", " with", "bisect"]
        .iter()
        .any(|part| name.contains(part))
}

/// Returns every program that runs the words or texts after it, with the number of words in
/// between.
#[cfg(test)]
pub(crate) fn wrappers() -> Vec<(&'static str, usize)> {
    let runs_words = |role: &Operand| {
        matches!(
            role,
            Operand::Program | Operand::Tails | Operand::Shell | Operand::Shells
        )
    };
    let typed = table::all().filter(|(name, _)| is_typed(name));
    let mut all: Vec<(&str, usize)> = typed
        .filter_map(|(name, program)| {
            let at = program.roles.iter().position(runs_words)?;
            Some((
                name,
                program.roles[..at]
                    .iter()
                    .filter(|role| **role != Operand::Settings)
                    .count(),
            ))
        })
        .collect();
    all.sort_unstable();
    all
}

/// Returns every program that runs the words after it, with the required words in between and with
/// its options.
#[cfg(test)]
pub(crate) fn beginnings() -> Vec<String> {
    let mut all = vec![];
    for (name, program) in table::all().filter(|(name, _)| is_typed(name)) {
        let Some(at) = program
            .roles
            .iter()
            .position(|role| matches!(role, Operand::Program | Operand::Tails))
        else {
            continue;
        };
        let between = " 1".repeat(
            program.roles[..at]
                .iter()
                .filter(|role| **role != Operand::Settings)
                .count(),
        );
        all.push(format!("{name}{between}"));
        for (option, known) in program
            .options()
            .filter(|(_, option)| option.takes == ValueForm::Value)
        {
            let selects_mode = |entry: &(Vec<&str>, &str)| {
                entry
                    .0
                    .iter()
                    .any(|known| known.trim_start_matches('-') == option.trim_start_matches('-'))
            };
            if known.does == OptionEffect::Runs
                || known.does == OptionEffect::Splits
                || program.modes.iter().any(selects_mode)
            {
                continue;
            }
            if option.starts_with("--") {
                all.push(format!("{name} {option}=1{between}"));
                all.push(format!("{name} {option} 1{between}"));
            } else if !program.has_whole_word_options {
                all.push(format!("{name} -{option} 1{between}"));
            }
        }
        if !program.has_whole_word_options && name != "-" {
            all.push(format!("{name} --{between}"));
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_is_the_name_without_a_version() {
        let table = [
            ("python3.12", "python"),
            ("python3", "python"),
            ("gcc-13", "gcc"),
            ("perl5.36.0", "perl"),
            ("clang++-15", "clang++"),
            ("mkfs.ext4", "mkfs"),
            ("ld-linux-x86-64.so.2", "ld.so"),
            ("clang-format-18", "clang-format"),
            ("llvm-objdump-15", "llvm-objdump"),
            ("gfortran-13", "gfortran"),
            ("go1.22", "go"),
            ("pytest-3", "pytest"),
            ("id3", "id3"),
            ("seq24", "seq24"),
            ("git2", "git2"),
            ("uname26", "uname26"),
            ("cat-", "cat-"),
            ("python-", "python-"),
            ("3", "3"),
        ];
        for (name, wanted) in table {
            assert_eq!(family(name), wanted, "{name}");
        }
        for name in ["id3", "seq24", "git2", "uname2", "ls-1.2"] {
            assert!(!knows(name), "{name}");
        }
    }
}
