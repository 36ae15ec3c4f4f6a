//! `adjutant completions` and `adjutant man`: the command line for shells and for `man`.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::{Command, ValueEnum};
use clap_complete::{Generator, generate};

use super::command_page::{self, ArgumentEntry, CommandPage};
use super::complete;
use super::help::{self, EXAMPLES, SUBJECTS};

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

/// The paragraphs of the description of the manual page.
const DESCRIPTION: &[&str] = &[
    "adjutant is a coding agent: it lets a model read, edit and run what is in a directory, and asks you \
     before anything that needs your permission.",
    "In an editor that speaks the Agent Client Protocol, the editor starts \\fBadjutant acp\\fR, which is \
     also the default if standard input is not a terminal. At a terminal and in scripts, \\fBadjutant \
     run\\fR answers one prompt.",
    "A model needs a provider: a key in a variable such as \\fBANTHROPIC_API_KEY\\fR or stored by \
     \\fBadjutant auth login\\fR, or a server on this machine, such as Ollama. \\fBadjutant models\\fR \
     lists what is available. Without a model, a small offline program answers instead.",
    "Commands of the model run in a sandbox if this machine has one; \\fBadjutant doctor\\fR checks that, \
     and everything else. Each change to a file can be undone.",
];

/// Prints the manual page: adjutant and all its commands.
pub(super) fn manual() -> u8 {
    super::terminal::exact(&man_page(help::command()));
    0
}

fn man_page(mut command: Command) -> String {
    let mut page = format!(
        ".TH ADJUTANT 1 \"\" \"adjutant {}\" \"User manual\"\n\
         .\\\" No paragraph is stretched, and no word is divided.\n.ad l\n.nh\n",
        env!("CARGO_PKG_VERSION")
    );
    page.push_str(".SH NAME\nadjutant \\- a coding agent for editors and terminals\n");
    page.push_str(".SH SYNOPSIS\n");
    for (command, arguments) in [
        ("run", "[\\fIOPTION\\fR]... [\\fIPROMPT\\fR]..."),
        ("acp", "[\\fIOPTION\\fR]..."),
        (
            "\\fICOMMAND\\fB",
            "[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...",
        ),
    ] {
        let _ = writeln!(page, "\\fBadjutant {command}\\fR {arguments}\n.br");
    }
    page.push_str(
        "\\fBadjutant\\fR [\\fB\\-h\\fR|\\fB\\-\\-help\\fR|\\fB\\-V\\fR|\\fB\\-\\-version\\fR]\n",
    );
    page.push_str(".SH DESCRIPTION\n");
    page.push_str(&DESCRIPTION.join("\n.PP\n"));
    page.push('\n');
    page.push_str(".SH COMMANDS\n");
    for (subject, names) in SUBJECTS {
        let _ = writeln!(page, ".SS \"{subject}\"");
        for name in *names {
            let _ = writeln!(
                page,
                ".TP 13\n\\fB{name}\\fR\n{}",
                escaped(&help::purpose(&command, name))
            );
        }
    }
    push_section(&mut page, "EXAMPLES", &owned(EXAMPLES));
    page.push_str(
        ".SH OPTIONS\nEvery command has \\fB\\-h\\fR and \\fB\\-\\-help\\fR, which describe it.\n",
    );
    for command in command_page::pages(&mut command) {
        push_command(&mut page, &command);
    }
    push_section(&mut page, "FILES", &owned(FILES));
    push_section(&mut page, "ENVIRONMENT", &variables(SETTINGS_PAGE));
    push_section(&mut page, "EXIT STATUS", &owned(EXIT_CODES));
    page.push_str(
        ".SH SEE ALSO\nThe user manual in the directory docs of the source code: start.md to begin with, \
         commands.md for every command, keys.md for every setting, troubleshooting.md for messages.\n\
         .PP\n\\fBgit\\fR(1), \\fBbwrap\\fR(1), \\fBjq\\fR(1)\n",
    );
    page
}

/// Appends a command.
fn push_command(page: &mut String, command: &CommandPage) {
    let _ = writeln!(page, ".SS \"{}\"", escaped(&command.name));
    for form in &command.usage {
        let _ = writeln!(page, "\\fB{}\\fR\n.br", escaped(form));
    }
    let purpose = std::iter::once(&command.purpose);
    for paragraph in purpose.chain(&command.details) {
        let _ = writeln!(page, ".PP\n{}", prose(paragraph));
    }
    for argument in &command.arguments {
        push_argument(page, argument);
    }
}

fn push_argument(page: &mut String, argument: &ArgumentEntry) {
    let _ = writeln!(
        page,
        ".TP\n\\fB{}\\fR\n{}",
        escaped(&argument.term),
        prose(&argument.help)
    );
    if argument
        .values
        .iter()
        .all(|(_, meaning)| meaning.is_empty())
    {
        if !argument.values.is_empty() {
            let names: Vec<&str> = argument
                .values
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            let _ = writeln!(page, "Values: {}.", escaped(&names.join(", ")));
        }
        return;
    }
    page.push_str(".RS\n");
    for (name, meaning) in &argument.values {
        let _ = writeln!(
            page,
            ".TP 10\n\\fB{}\\fR\n{}",
            escaped(name),
            prose(meaning)
        );
    }
    page.push_str(".RE\n");
}

/// Returns a text of the declarations as sentences for roff: code in bold, with a full stop.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (number, piece) in escaped(&command_page::sentence(text))
        .split('`')
        .enumerate()
    {
        if number > 0 {
            out.push_str(if number % 2 == 1 { "\\fB" } else { "\\fR" });
        }
        out.push_str(piece);
    }
    out
}

/// Appends a section of terms, each with its explanation.
fn push_section(page: &mut String, heading: &str, entries: &[(String, String)]) {
    let _ = writeln!(page, ".SH \"{heading}\"");
    for (term, explanation) in entries {
        let _ = writeln!(page, ".TP\n\\fB{}\\fR", escaped(&term.replace('`', "")));
        let _ = writeln!(page, "{}", prose(explanation));
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

/// Removes the targets of the links of Markdown.
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
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_completion_script() {
        for shell in Shell::value_variants() {
            let name = shell.to_possible_value().unwrap().get_name().to_owned();
            let script = match complete::script(&name) {
                Some(script) => script.unwrap(),
                None => script(clap_complete_nushell::Nushell, help::command()),
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
        let page = man_page(help::command());
        let all = command_page::pages(&mut help::command());
        assert!(all.len() > 50, "{}", all.len());
        for CommandPage { name, .. } in all {
            let heading = format!(".SS \"{}\"\n", escaped(&name));
            assert_eq!(page.matches(&heading).count(), 1, "{name}");
        }
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .map(|heading| heading.trim_matches('"'))
            .collect();
        let expected = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "COMMANDS",
            "EXAMPLES",
            "OPTIONS",
            "FILES",
            "ENVIRONMENT",
            "EXIT STATUS",
            "SEE ALSO",
        ];
        assert_eq!(headings, expected);
        assert!(page.contains("\\fBADJUTANT_TRUST=all\\fR\ntrusts every project.\n"));
        assert!(!page.contains("](") && !page.contains('`'), "{page}");
    }

    #[test]
    fn declarations_become_sentences() {
        for (text, expected) in [
            ("Print `a-b` too", "Print \\fBa\\-b\\fR too."),
            ("It ends.", "It ends."),
            (".hidden", "\\&.hidden."),
            ("Number [default: 4]", "Number [default: 4]"),
        ] {
            assert_eq!(prose(text), expected);
        }
    }

    #[test]
    fn markdown_becomes_plain_text() {
        for (text, expected) in [
            ("see [the page](a.md#b), then", "see the page, then"),
            ("a [list", "a [list"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }
}
