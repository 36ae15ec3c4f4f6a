//! `adjutant completions` and `adjutant man`: the command line for shells and for `man`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Command, ValueEnum};
use clap_complete::engine::ArgValueCandidates;
use clap_complete::{Generator, generate};

use super::command_page::{self, ArgumentEntry, CommandPage};
use super::complete;
use super::help::{self, EXAMPLES, SUBJECTS};
use super::meant::{self, CommandRemedy};
use base::environment::Environment;
use base::text;

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

/// The files of the program's page, each with its content.
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

/// The exit codes of the program's page.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "Failed, or nothing was found."),
    ("2", "The command line is wrong."),
    (
        "3",
        "There is no complete answer: the model refused, or a limit was reached.",
    ),
    (
        "5",
        "A call was not permitted and there is no answer; with `--strict`, even if there is one.",
    ),
    (
        "129, 130, 131, 143",
        "Hung up, interrupted, quit, terminated.",
    ),
];

/// The paragraphs of the description of the program's page.
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

/// Options of `adjutant man`.
#[derive(Debug, clap::Args)]
pub(super) struct ManualArgs {
    /// Command to describe, such as run or sessions export [default: the program and its list of
    /// commands]
    #[arg(conflicts_with = "output", add = ArgValueCandidates::new(complete::manual_pages))]
    command: Vec<String>,
    /// Write all pages into this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints a page of the manual, or writes all of them into a directory.
pub(super) fn manual(args: &ManualArgs, environment: &Environment) -> anyhow::Result<u8> {
    let pages = manual_pages(help::command());
    if let Some(dir) = &args.output {
        let shown = dir.display();
        std::fs::create_dir_all(dir).with_context(|| format!("{shown} cannot be created"))?;
        for page in &pages {
            let file = dir.join(format!("{}.1", page.name));
            std::fs::write(&file, &page.text)
                .with_context(|| format!("{} cannot be written", file.display()))?;
        }
        super::say(&format!(
            "{} written into {shown}",
            text::count(pages.len(), "page")
        ));
        return Ok(0);
    }
    let words = meant_words(&args.command);
    let page = page_of(&pages, &words)?;
    if !super::terminal::is_watched() {
        super::terminal::exact(&page.text);
        return Ok(0);
    }
    if show_with_man(&page)? {
        return Ok(0);
    }
    let command = command_at(help::command(), &words);
    let command = command.context("there is no such command")?;
    super::terminal::long_help(command, environment);
    Ok(0)
}

/// Returns the words of the command whose page is meant: a word of other programs may mean a command
/// here.
fn meant_words(words: &[String]) -> Vec<String> {
    let is_command = |word: &String| help::page_names().any(|name| name == word);
    if words.first().is_none_or(is_command) {
        return words.to_vec();
    }
    let line = std::iter::once("man").chain(words.iter().map(String::as_str));
    match meant::meaning_of_other_command(line.map(OsString::from)) {
        Some(CommandRemedy::Words(meant)) => {
            let meant = meant.iter().skip(1);
            meant
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        }
        Some(CommandRemedy::Advice(_)) | None => words.to_vec(),
    }
}

/// Returns the page of a command, which can be one below another command; that of the program
/// without words.
fn page_of(pages: &[ManualPage], words: &[String]) -> anyhow::Result<ManualPage> {
    let named = |name: &str| pages.iter().find(|page| page.name == name).cloned();
    let Some((first, below)) = words.split_first() else {
        return named(PROGRAM).context("there is no page of the program");
    };
    let page = named(&page_name(first)).with_context(|| {
        if let Some(near) = meant::near_command(first) {
            return format!("there is no command {first}; did you mean `adjutant man {near}`?");
        }
        let names: Vec<&str> = help::page_names().collect();
        format!(
            "there is no command {first}; there are {}",
            names.join(", ")
        )
    })?;
    if below.is_empty() {
        return Ok(page);
    }
    named(&page_name(&words.join("-"))).with_context(|| {
        let begin = format!("{PROGRAM} {first} ");
        let all = command_page::pages(&mut help::command());
        let names = all.iter().filter_map(|part| part.name.strip_prefix(&begin));
        let names: Vec<&str> = names.collect();
        if names.is_empty() {
            return format!("{first} has no commands below it");
        }
        format!(
            "{first} has no command {}; it has {}",
            below.join(" "),
            names.join(", ")
        )
    })
}

/// Returns the declaration of a command; that of the program without words.
fn command_at(mut command: Command, words: &[String]) -> Option<Command> {
    command.build();
    words.iter().try_fold(command, |command, word| {
        command.find_subcommand(word).cloned()
    })
}

/// Shows a page with the program `man`, which formats it and stops after each screen. Returns
/// whether that program exists and shows it.
fn show_with_man(page: &ManualPage) -> anyhow::Result<bool> {
    use tokio::signal::unix::{SignalKind, signal};
    // An interrupt is meant for the pager. Without a handler it would end this process first, next to a
    // pager that continues, and the file would remain.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let _context = runtime.enter();
    let _interrupts = signal(SignalKind::interrupt()).context("interrupts cannot be handled")?;
    // In a directory of its own, because the pager shows the name of the file.
    let directory =
        tempfile::tempdir().context("the page cannot be written into a temporary directory")?;
    let file = directory.path().join(format!("{}.1", page.name));
    std::fs::write(&file, &page.text)
        .context("the page cannot be written into a temporary directory")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the pager needs the terminal, and no limits"
    )]
    let status = std::process::Command::new("man").arg(&file).status();
    // A page that was interrupted was shown.
    Ok(status.is_ok_and(|status| status.code().is_none_or(|code| code == 0)))
}

/// The name of the page of the program.
const PROGRAM: &str = "adjutant";

/// Returns the name of the page of a command.
fn page_name(command: &str) -> String {
    format!("{PROGRAM}-{command}")
}

/// A page of the manual, of section 1.
#[derive(Clone)]
struct ManualPage {
    name: String,
    text: String,
}

/// Returns the page of the program, and one of each command. That of a command with others below it
/// describes them as well.
fn manual_pages(mut command: Command) -> Vec<ManualPage> {
    let mut pages = vec![ManualPage {
        name: PROGRAM.to_owned(),
        text: program_page(&command),
    }];
    let all = command_page::pages(&mut command);
    for page in &all {
        let name = page.name.replace(' ', "-");
        let below = format!("{} ", page.name);
        let parts: Vec<&CommandPage> = all
            .iter()
            .filter(|page| page.name.starts_with(&below))
            .collect();
        pages.push(ManualPage {
            text: subcommand_page(&name, page, &parts),
            name,
        });
    }
    pages
}

/// Begins a page.
fn heading(name: &str, purpose: &str) -> String {
    format!(
        ".TH {} 1 \"\" \"adjutant {}\" \"User manual\"\n\
         .\\\" No paragraph is stretched, and no word is divided.\n.ad l\n.nh\n\
         .SH NAME\n{} \\- {}\n",
        escaped(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escaped(name),
        escaped(purpose)
    )
}

/// Refers to the page of a command.
fn reference(command: &str) -> String {
    format!("\\fB{}\\fR(1)", escaped(&page_name(command)))
}

fn program_page(command: &Command) -> String {
    let mut page = heading(PROGRAM, "a coding agent for editors and terminals");
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
    page.push_str(
        ".SH COMMANDS\nEach command has a page of its own, such as \\fBadjutant\\-run\\fR(1); \
         \\fBadjutant man\\fR \\fICOMMAND\\fR shows it.\n",
    );
    for (subject, names) in SUBJECTS {
        let _ = writeln!(page, ".SS \"{subject}\"");
        for name in *names {
            let _ = writeln!(
                page,
                ".TP 13\n\\fB{name}\\fR\n{}",
                escaped(&help::purpose(command, name))
            );
        }
    }
    push_section(&mut page, "EXAMPLES", &owned(EXAMPLES));
    page.push_str(
        ".SH OPTIONS\nEvery command has \\fB\\-h\\fR and \\fB\\-\\-help\\fR, which describe it.\n",
    );
    push_section(&mut page, "FILES", &owned(FILES));
    push_section(&mut page, "ENVIRONMENT", &variables(SETTINGS_PAGE));
    push_section(&mut page, "EXIT STATUS", &owned(EXIT_CODES));
    let names = SUBJECTS.iter().flat_map(|(_, names)| *names);
    let commands: Vec<String> = names
        .filter(|name| **name != "help")
        .map(|name| reference(name))
        .collect();
    let _ = writeln!(
        page,
        ".SH \"SEE ALSO\"\n{},\n\\fBgit\\fR(1), \\fBbwrap\\fR(1), \\fBjq\\fR(1)",
        commands.join(",\n")
    );
    page
}

/// Returns the page of a command. `parts` are the commands below it.
fn subcommand_page(name: &str, command: &CommandPage, parts: &[&CommandPage]) -> String {
    let mut page = heading(name, &command.purpose);
    page.push_str(".SH SYNOPSIS\n");
    push_usage(&mut page, command);
    page.push_str(".SH DESCRIPTION\n");
    let (details, status) = split_exit_status(&command.details);
    push_description(&mut page, &command.purpose, &details);
    let (options, positional): (Vec<&ArgumentEntry>, Vec<&ArgumentEntry>) = command
        .arguments
        .iter()
        .partition(|argument| argument.term.starts_with('-'));
    if !positional.is_empty() {
        page.push_str(".SH ARGUMENTS\n");
    }
    for argument in positional {
        push_argument(&mut page, argument);
    }
    page.push_str(".SH OPTIONS\n");
    for argument in options {
        push_argument(&mut page, argument);
    }
    let help = if parts.is_empty() {
        "Print help."
    } else {
        "Print help (of a subcommand, if it follows one)."
    };
    let _ = writeln!(page, ".TP\n\\fB\\-h, \\-\\-help\\fR\n{help}");
    if !parts.is_empty() {
        page.push_str(".SH COMMANDS\n");
    }
    for part in parts {
        push_command(&mut page, part);
    }
    let examples: Vec<(String, String)> = owned(EXAMPLES)
        .into_iter()
        .filter(|(example, _)| example.contains(&format!("{} ", command.name)))
        .collect();
    if !examples.is_empty() {
        push_section(&mut page, "EXAMPLES", &examples);
    }
    if !status.is_empty() {
        push_section(&mut page, "EXIT STATUS", &status);
    }
    page.push_str(".SH \"SEE ALSO\"\n");
    if let Some((above, _)) = name.rsplit_once('-').filter(|(above, _)| *above != PROGRAM) {
        let _ = writeln!(page, "\\fB{}\\fR(1),", escaped(above));
    }
    page.push_str("\\fBadjutant\\fR(1), for files, variables and exit codes\n");
    page
}

/// Splits the paragraphs of a description into those that stay, and the exit codes in them.
fn split_exit_status(details: &[String]) -> (Vec<String>, Vec<(String, String)>) {
    const LIST: &str = "Exit codes: ";
    const AS_RUN: &str = "Exits as `adjutant run`";
    const FAILED: &str = "Exits with 1 ";
    let mut others = Vec::new();
    let mut status = Vec::new();
    for paragraph in details {
        if paragraph.starts_with(LIST) || paragraph.starts_with(AS_RUN) {
            status = owned(EXIT_CODES);
            continue;
        }
        let Some((before, cause)) = paragraph.split_once(FAILED) else {
            others.push(paragraph.clone());
            continue;
        };
        if !before.trim().is_empty() {
            others.push(before.trim().to_owned());
        }
        status = vec![
            ("0".to_owned(), "Done.".to_owned()),
            ("1".to_owned(), text::capitalised(cause)),
            ("2".to_owned(), "The command line is wrong.".to_owned()),
        ];
    }
    (others, status)
}

/// Appends a command below the command of a page.
fn push_command(page: &mut String, command: &CommandPage) {
    let _ = writeln!(page, ".SS \"{}\"", escaped(&command.name));
    push_usage(page, command);
    page.push_str(".PP\n");
    push_description(page, &command.purpose, &command.details);
    for argument in &command.arguments {
        push_argument(page, argument);
    }
}

fn push_usage(page: &mut String, command: &CommandPage) {
    for form in &command.usage {
        // The name of the command is bold; its arguments are not.
        let (name, arguments) = match form.strip_prefix(&command.name) {
            Some(arguments) => (command.name.as_str(), arguments),
            None => (form.as_str(), ""),
        };
        let _ = writeln!(page, "\\fB{}\\fR{}\n.br", escaped(name), escaped(arguments));
    }
}

fn push_description(page: &mut String, purpose: &str, details: &[String]) {
    let details = details.iter().map(String::as_str);
    let paragraphs: Vec<String> = std::iter::once(purpose).chain(details).map(prose).collect();
    let _ = writeln!(page, "{}", paragraphs.join("\n.PP\n"));
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

/// Escapes a line of text for roff, which reads ASCII only.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    let line: String = line
        .chars()
        .map(|c| {
            if c.is_ascii() {
                c.to_string()
            } else {
                format!("\\[u{:04X}]", u32::from(c))
            }
        })
        .collect();
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
        // A cell of Markdown escapes the line between two cells.
        let line = line.replace("\\|", "|");
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

    /// Returns the headings of the sections of a page.
    fn headings(page: &str) -> Vec<&str> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        lines.map(|heading| heading.trim_matches('"')).collect()
    }

    #[test]
    fn manual_describes_every_command_on_its_page() {
        let pages = manual_pages(help::command());
        let all = command_page::pages(&mut help::command());
        assert!(all.len() > 50, "{}", all.len());
        for CommandPage { name, purpose, .. } in all {
            let own = name.replace(' ', "-");
            let page = pages.iter().find(|known| known.name == own).unwrap();
            let entry = format!("{} \\- {}\n", escaped(&own), escaped(&purpose));
            assert_eq!(page.text.matches(&entry).count(), 1, "{name}");
            assert!(page.text.is_ascii(), "{name}");
            if let Some((above, _)) = name.rsplit_once(' ').filter(|(above, _)| *above != PROGRAM) {
                let above = above.replace(' ', "-");
                let above = pages.iter().find(|known| known.name == above).unwrap();
                let entry = format!(".SS \"{}\"\n", escaped(&name));
                assert_eq!(above.text.matches(&entry).count(), 1, "{name}");
            }
        }
        for ManualPage { name, text } in &pages[1..] {
            let headings = headings(text);
            let begins = headings.starts_with(&["NAME", "SYNOPSIS", "DESCRIPTION"]);
            assert!(begins && headings.ends_with(&["SEE ALSO"]), "{headings:?}");
            let options = text.split(".SH OPTIONS").nth(1).unwrap();
            let options = options.split(".SH ").next().unwrap();
            let has_argument = ["[", "<"].map(|mark| format!(".TP\n\\fB{mark}"));
            assert!(
                !has_argument.iter().any(|start| options.contains(start)),
                "{options}"
            );
            assert!(options.contains("Print help"), "{name}");
        }
        for name in help::page_names() {
            let entry = format!("\\fB{}\\fR(1)", escaped(&page_name(name)));
            assert!(pages[0].text.contains(&entry), "{name}");
        }
        let run = &pages
            .iter()
            .find(|page| page.name == "adjutant-run")
            .unwrap()
            .text;
        for expected in [
            ".SH SYNOPSIS\n\\fBadjutant run\\fR [OPTIONS] [PROMPT]...\n",
            ".SH ARGUMENTS\n.TP\n\\fB[PROMPT]...\\fR\n",
            ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nDone.\n",
        ] {
            assert!(run.contains(expected), "{run}");
        }
        assert!(!run.contains("Exit codes:"), "{run}");
    }

    #[test]
    fn command_below_another_one_has_a_page() {
        let pages = manual_pages(help::command());
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let page = page_of(&pages, &words("sessions export")).unwrap();
        assert_eq!(page.name, "adjutant-sessions-export");
        assert!(
            page.text
                .contains("adjutant\\-sessions\\-export \\- Export a session"),
            "{}",
            page.text
        );
        assert!(
            page.text.contains("\\fBadjutant\\-sessions\\fR(1),\n"),
            "{}",
            page.text
        );
        for (line, expected) in [
            ("chat", "adjutant-run"),
            ("explain", "adjutant-permissions-explain"),
        ] {
            let page = page_of(&pages, &meant_words(&words(line))).unwrap();
            assert_eq!(page.name, expected, "{line}");
        }
        for (line, expected) in [
            ("nothing", "there is no command nothing; there are run, acp"),
            (
                "sesions",
                "there is no command sesions; did you mean `adjutant man sessions`?",
            ),
            ("run fast", "run has no commands below it"),
            ("sessions exprt", "sessions has no command exprt; it has "),
        ] {
            let Err(error) = page_of(&pages, &words(line)) else {
                panic!("{line} has a page");
            };
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        for command in command_page::pages(&mut help::command()) {
            let words: Vec<String> = words(&command.name)[1..].to_vec();
            assert!(page_of(&pages, &words).is_ok(), "{}", command.name);
            assert!(
                command_at(help::command(), &words).is_some(),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn page_of_the_program_has_its_sections() {
        let page = &manual_pages(help::command())[0].text;
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
        assert_eq!(headings(page), expected);
        assert!(page.contains("\\fBADJUTANT_TRUST=all\\fR\ntrusts every project.\n"));
        assert!(!page.contains("](") && !page.contains('`'), "{page}");
    }

    /// An escaped backslash makes roff show the escape sequence as text.
    #[test]
    fn pages_show_no_escapes() {
        for page in manual_pages(help::command()) {
            let shown: Vec<&str> = page
                .text
                .lines()
                .filter(|line| line.contains("\\e"))
                .collect();
            assert_eq!(shown, Vec::<&str>::new(), "{}", page.name);
        }
    }

    #[test]
    fn pages_refer_to_no_file_of_the_source_code() {
        for page in manual_pages(help::command()) {
            let see_also = page.text.split("SEE ALSO").nth(1).unwrap();
            assert!(!see_also.contains(".md"), "{}", page.name);
        }
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
