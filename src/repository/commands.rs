//! The reference of commands in the user manual, generated from their declarations.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::cli::command_page::{self, ArgumentEntry, CommandPage, sentence};
use crate::cli::help;

const PAGE: &str = "docs/commands.md";

const BEGINNING: &str = "# Every command

<!-- BLESS=1 cargo test -p adjutant reference writes this page from the declarations of the commands. -->

The page about the [command line](command-line.md) explains `adjutant run` and the built-in commands
of a conversation.

Every command has `-h` and `--help`. The exit code is 0 for success, 1 for failure, 2 for an invalid
command line, unless the command says otherwise.
";

fn reference() -> String {
    let mut command = help::command();
    let all = command_page::pages(&mut command);
    let mut out = BEGINNING.to_owned();
    for (subject, names) in help::SUBJECTS {
        let links: Vec<String> = names
            .iter()
            .filter(|name| **name != "help")
            .map(|name| format!("[`{name}`](#adjutant-{name})"))
            .collect();
        let _ = write!(out, "\n- {subject}: {}", links.join(", "));
    }
    out.push('\n');
    for page in &all {
        push(page, &mut out);
    }
    out
}

fn push(page: &CommandPage, out: &mut String) {
    // A command is a part of the page, and the commands below it are parts of it.
    let level = page.name.split(' ').count();
    let _ = writeln!(out, "\n{} {}\n\n```text", "#".repeat(level), page.name);
    for form in &page.usage {
        let _ = writeln!(out, "{form}");
    }
    let _ = writeln!(out, "```\n\n{}", sentence(&page.purpose));
    for paragraph in &page.details {
        let _ = writeln!(out, "\n{}", sentence(paragraph));
    }
    if page.arguments.is_empty() {
        return;
    }
    out.push_str("\n| argument | meaning |\n|---|---|\n");
    for argument in &page.arguments {
        let _ = writeln!(out, "| `{}` | {} |", argument.term, meaning(argument));
    }
}

/// Returns the meaning of an argument and of its values, for the cell of a table.
fn meaning(argument: &ArgumentEntry) -> String {
    let mut meaning = sentence(&argument.help);
    let values = argument.values.iter().map(|(name, effect)| {
        if effect.is_empty() {
            return format!("`{name}`");
        }
        format!("`{name}` ({effect})")
    });
    let values: Vec<String> = values.collect();
    if !values.is_empty() {
        let _ = write!(meaning, " Values: {}.", values.join(", "));
    }
    meaning.replace('|', "\\|")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
fn reference_of_commands_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let expected = reference();
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "BLESS=1 cargo test -p adjutant reference writes {PAGE}"
    );
}
