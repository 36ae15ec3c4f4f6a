//! `adjutant completions` and `adjutant man`: the command line for shells and for `man`.

use std::fmt::Write as _;
use std::io;

use anyhow::Context as _;
use clap::{Command, ValueEnum};
use clap_complete::{Generator, generate};
use clap_mangen::Man;

use super::complete;

/// A shell that completes.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "it is called that")]
pub(super) enum Shell {
    Bash,
    Elvish,
    Fish,
    Nushell,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

pub(super) fn completions(shell: Shell, command: Command) -> anyhow::Result<u8> {
    let dynamic = shell
        .to_possible_value()
        .and_then(|shell| complete::script(shell.get_name()));
    if let Some(script) = dynamic {
        let script = script.context("the script cannot be made")?;
        super::terminal::exact(&String::from_utf8(script).context("the script is not text")?);
        return Ok(0);
    }
    // Nushell alone has no script that asks adjutant for candidates.
    let script = script(clap_complete_nushell::Nushell, command);
    super::terminal::exact(&String::from_utf8(script).context("the script is not text")?);
    Ok(0)
}

fn script(shell: impl Generator, mut command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut command, "adjutant", &mut script);
    script
}

/// The page of the user manual with the table of variables.
const SETTINGS_PAGE: &str = include_str!("../../docs/settings.md");

/// The files of the manual page, each with its content.
const FILES: &[(&str, &str)] = &[
    (
        "~/.config/adjutant/adjutant.json, adjutant.jsonc",
        "Your settings. `adjutant config set` changes them, `adjutant config path` prints the path.",
    ),
    (
        "~/.config/opencode/opencode.json",
        "Settings of OpenCode, which are read before your own and never changed.",
    ),
    (
        "adjutant.json, opencode.json, .adjutant/, .opencode/",
        "Settings, agents, commands, skills, tools and plugins of a project. What runs programs or \
         loosens rules waits for `adjutant trust`.",
    ),
    (
        "AGENTS.md, CLAUDE.md",
        "Instructions of a project and of its directories.",
    ),
    (
        "~/.local/share/adjutant/",
        "Sessions, what is saved for an undo, keys and logins (auth.json), decisions about trust.",
    ),
    (
        "~/.local/state/adjutant/log/",
        "Logs of the last seven days, without keys and without the bodies of requests.",
    ),
    (
        "~/.cache/adjutant/",
        "The catalogue of models, fetched pages, plugins. Can be deleted.",
    ),
];

/// The examples of the manual page.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "adjutant run \"Why does the test of the parser fail?\"",
        "Answers in the current directory. At a terminal, it asks before anything that needs your permission.",
    ),
    (
        "git diff main | adjutant run --mode plan \"Review this change.\"",
        "Reads a prompt from a pipe; the mode plan changes nothing but its plan file.",
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

/// The exit codes of the manual page.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "Failed, or nothing was found."),
    ("2", "The command line is wrong."),
    (
        "3",
        "There is no complete answer: the model refused, or a limit was reached.",
    ),
    ("5", "Something was not permitted."),
    (
        "129, 130, 131, 143",
        "Hung up, interrupted, quit, terminated.",
    ),
];

/// Prints the manual page: adjutant and all its commands.
pub(super) fn manual(command: Command) -> anyhow::Result<u8> {
    let page = man_page(command).context("the page cannot be made")?;
    super::terminal::exact(&page);
    Ok(0)
}

fn man_page(mut command: Command) -> io::Result<String> {
    command.build();
    let man = Man::new(command.clone())
        .title("ADJUTANT")
        .manual("User manual");
    let mut head = Vec::new();
    man.render_title(&mut head)?;
    man.render_name_section(&mut head)?;
    man.render_synopsis_section(&mut head)?;
    man.render_description_section(&mut head)?;
    let mut page = String::from_utf8_lossy(&head).into_owned();
    page.push_str(".SH COMMANDS\n");
    for part in parts(&command) {
        push_command(&mut page, part)?;
    }
    push_section(&mut page, "ENVIRONMENT", &variables(SETTINGS_PAGE));
    push_section(&mut page, "FILES", &owned(FILES));
    push_section(&mut page, "EXIT STATUS", &owned(EXIT_CODES));
    push_section(&mut page, "EXAMPLES", &owned(EXAMPLES));
    page.push_str(".SH SEE ALSO\nThe user manual, in the directory docs of the repository.\n");
    Ok(page)
}

/// Returns the subcommands of a command, without `help`.
fn parts(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|part| part.get_name() != "help" && !part.is_hide_set())
}

/// Returns the name of a command with those of the commands above it.
fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// Returns a command without its option for help, which every command has.
fn without_help(command: &Command) -> Command {
    let command = command.clone();
    if command.get_arguments().any(|arg| arg.get_id() == "help") {
        return command.mut_arg("help", |arg| arg.hide(true));
    }
    command
}

/// Appends a command, and then the commands below it.
fn push_command(page: &mut String, command: &Command) -> io::Result<()> {
    let _ = writeln!(page, ".SS \"{}\"", escaped(full_name(command)));
    let man = Man::new(without_help(command));
    let sections = [
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    for (at, section) in sections.into_iter().enumerate() {
        let mut text = Vec::new();
        section(&man, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        // Each section has a heading, and definitions that the page has already.
        let is_body = |line: &&str| {
            ![".SH ", ".ie ", ".el "]
                .iter()
                .any(|start| line.starts_with(start))
        };
        let mut lines = text.lines().filter(is_body).peekable();
        if at > 0 && lines.peek().is_some() {
            page.push_str(".PP\n");
        }
        for line in lines {
            page.push_str(line);
            page.push('\n');
        }
    }
    for part in parts(command) {
        push_command(page, part)?;
    }
    Ok(())
}

/// Appends a section of terms, each with its explanation.
fn push_section(page: &mut String, heading: &str, entries: &[(String, String)]) {
    let _ = writeln!(page, ".SH \"{heading}\"");
    for (term, explanation) in entries {
        let _ = writeln!(page, ".TP\n\\fB{}\\fR", escaped(term));
        let _ = writeln!(page, "{}", escaped(&explanation.replace('`', "")));
    }
}

fn owned(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries
        .iter()
        .map(|(term, text)| ((*term).to_owned(), (*text).to_owned()))
        .collect()
}

/// Escapes a line of text for roff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) {
        format!("\\&{line}")
    } else {
        line
    }
}

/// Returns the variables and their effects from the table of the user manual, as plain text.
fn variables(page: &str) -> Vec<(String, String)> {
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| variable |"))
        .skip(2)
        .take_while(|line| line.starts_with("| "));
    let row = |line: &str| {
        let line = line.trim_start_matches("| ").trim_end_matches(" |");
        let (names, effect) = line.split_once(" | ")?;
        Some((plain(names), plain(effect)))
    };
    rows.filter_map(row).collect()
}

/// Removes the marks of Markdown: of code, and the targets of links.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let link = after.split_once("](");
        let Some((label, target)) = link else {
            plain.push('[');
            rest = after;
            continue;
        };
        plain.push_str(label);
        rest = target.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain.replace('`', "")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::{Cli, understands};
    use super::*;

    #[test]
    fn every_shell_has_a_completion_script() {
        for shell in Shell::value_variants() {
            let name = shell.to_possible_value().unwrap().get_name().to_owned();
            let script = match complete::script(&name) {
                Some(script) => script.unwrap(),
                None => script(clap_complete_nushell::Nushell, Cli::command()),
            };
            let script = String::from_utf8(script).unwrap();
            let word = if name == "nushell" {
                "sessions"
            } else {
                complete::VARIABLE
            };
            assert!(script.contains(word), "{word} is not in {script}");
        }
    }

    #[test]
    fn manual_page_describes_every_command_once() {
        fn names(command: &Command, all: &mut Vec<String>) {
            for part in parts(command) {
                all.push(full_name(part).to_owned());
                names(part, all);
            }
        }
        let mut command = Cli::command();
        command.build();
        let mut all = Vec::new();
        names(&command, &mut all);
        assert!(
            all.contains(&"adjutant sessions export".to_owned()),
            "{all:?}"
        );
        let page = man_page(Cli::command()).unwrap();
        for name in all {
            let heading = format!(".SS \"{}\"\n", escaped(&name));
            assert_eq!(page.matches(&heading).count(), 1, "{name}");
        }
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "COMMANDS",
            "\"ENVIRONMENT\"",
            "\"FILES\"",
            "\"EXIT STATUS\"",
            "\"EXAMPLES\"",
            "SEE ALSO",
        ];
        assert_eq!(headings, expected);
        assert!(page.contains("\\fBADJUTANT_TRUST=all\\fR\ntrusts every project\n"));
        assert!(
            !page.contains("](") && !page.contains("`ADJUTANT"),
            "{page}"
        );
    }

    #[test]
    fn examples_are_understood() {
        for (example, _) in EXAMPLES {
            let start = example.find("adjutant").unwrap();
            let words = crate::repository::pages::words(&example[start..]);
            assert_eq!(understands(&words), Ok(()), "{example}");
        }
    }

    #[test]
    fn markdown_becomes_plain_text() {
        for (text, expected) in [
            ("like `a` and `b`", "like a and b"),
            ("see [the page](a.md#b), then", "see the page, then"),
            ("a [list", "a [list"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }
}
