//! The command line with its help: the commands by subject, and examples.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::{Cli, terminal};

/// The commands by subject.
pub(crate) const SUBJECTS: &[(&str, &[&str])] = &[
    ("Work", &["run", "acp", "serve", "connect", "events"]),
    ("Earlier work", &["sessions", "stats"]),
    ("Permissions", &["permissions", "trust"]),
    (
        "Setting up",
        &[
            "auth",
            "models",
            "config",
            "agents",
            "skills",
            "mcp",
            "extensions",
            "formatters",
            "lsp",
        ],
    ),
    ("Other", &["doctor", "completions", "man", "help"]),
];

/// The examples of the help and of the manual page, each with its effect.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "adjutant run \"Why does the parser test fail?\"",
        "Answers in the current directory. At a terminal, it asks before anything that needs your permission.",
    ),
    ("adjutant chat", "Holds a conversation at the terminal."),
    (
        "adjutant run \"Explain @src/main.rs:10-40\"",
        "Includes lines of a file in the prompt.",
    ),
    (
        "git diff main | adjutant run --mode plan \"Review this change.\"",
        "Reads a text from a pipe; the mode plan changes nothing but its plan file.",
    ),
    (
        "adjutant run --continue \"Now update the documentation.\"",
        "Continues the last session of the project.",
    ),
    (
        "adjutant run --format result \"Fix the lint.\" | jq -r .cost",
        "Prints one JSON object for a script.",
    ),
    (
        "adjutant auth login openrouter --key < key.txt",
        "Stores a key without a terminal.",
    ),
    (
        "adjutant config set model anthropic/claude-sonnet-4-5",
        "Sets the default model.",
    ),
    (
        "adjutant sessions export last --output session.html",
        "Writes a conversation as a page.",
    ),
    (
        "adjutant permissions explain 'git push origin main'",
        "Explains whether a command is allowed, and by which rule.",
    ),
];

/// The further indentation of a long line of an option.
const OPTION_INDENT: usize = 15;

/// The width to which the last sentence of the help is wrapped, in a wide window too.
const MAX_PROSE_COLUMNS: usize = 80;

/// Returns the command line of the program.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let columns = terminal::columns();
    let subjects = subjects(&command, columns);
    let examples = examples(&command);
    let header = command.get_styles().get_header();
    let option = |line: &str| terminal::folded(line, columns, OPTION_INDENT);
    let options = format!(
        "{header}Options:{header:#}\n{}\n{}",
        option("  -h, --help     Print help; after a command, help for that command"),
        option("  -V, --version  Print the version")
    );
    let pages = "`adjutant help COMMAND` describes a command; `adjutant man COMMAND` shows its manual page. \
                 NO_COLOR=1 turns colours off, CLICOLOR_FORCE=1 shows them in a pipe, too.";
    let pages = terminal::folded(pages, columns.min(MAX_PROSE_COLUMNS), 0);
    command
        .help_template(format!(
            "{{about-section}}\n{{usage-heading}} {{usage}}\n\n{subjects}{examples}\n{options}\n\n{pages}\n"
        ))
        .mut_subcommand("run", |run| {
            let examples = self::examples(&run);
            run.after_help(examples)
        })
}

/// Returns the names of the commands that have a page in the manual.
pub(super) fn page_names() -> impl Iterator<Item = &'static str> {
    let names = SUBJECTS.iter().flat_map(|(_, names)| *names).copied();
    names.filter(|name| *name != "help")
}

/// Formats the commands with their purposes, by subject.
fn subjects(command: &Command, columns: usize) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let names = SUBJECTS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for (subject, names) in SUBJECTS {
        let _ = writeln!(out, "{header}{subject}:{header:#}");
        for name in *names {
            let purpose = purpose(command, name);
            let line = format!(
                "  {literal}{name}{literal:#}{:1$}{purpose}",
                "",
                width - name.len() + 2
            );
            out.push_str(&terminal::folded(&line, columns, width + 2));
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// Returns the purpose of a command in one line.
pub(super) fn purpose(command: &Command, name: &str) -> String {
    // The parser adds this command later.
    if name == "help" {
        return "Describe a command".to_owned();
    }
    let part = command.find_subcommand(name).and_then(Command::get_about);
    part.map(ToString::to_string).unwrap_or_default()
}

/// Formats those examples that use a command.
fn examples(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let mut out = format!("{header}Examples:{header:#}\n");
    let is_part = |example: &str| {
        command.get_name() == "adjutant"
            || example.contains(&format!("adjutant {} ", command.get_name()))
    };
    for (example, _) in EXAMPLES.iter().filter(|(example, _)| is_part(example)) {
        let _ = writeln!(out, "  {example}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::understands;
    use super::*;

    #[test]
    fn every_command_has_one_subject() {
        let command = Cli::command();
        let mut named: Vec<&str> = SUBJECTS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        named.sort_unstable();
        let mut all: Vec<&str> = command
            .get_subcommands()
            .filter(|part| !part.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        all.sort_unstable();
        assert_eq!(named, all);
    }

    #[test]
    fn help_fits_the_terminal() {
        for columns in [40, 80] {
            let subjects = subjects(&Cli::command(), columns);
            let width = |line: &str| textwrap::core::display_width(line);
            let wide: Vec<&str> = subjects
                .lines()
                .filter(|line| width(line) > columns)
                .collect();
            assert_eq!(wide, Vec::<&str>::new());
            let is_long = columns == 80 && subjects.lines().count() > SUBJECTS.len() * 2 + 22;
            assert!(!is_long, "a purpose is longer than a line:\n{subjects}");
        }
    }

    #[test]
    fn examples_are_understood() {
        for (example, _) in EXAMPLES {
            let start = example.find("adjutant").unwrap();
            let words = crate::repository::pages::words(&example[start..]);
            assert_eq!(understands(&words), Ok(()), "{example}");
        }
    }
}
