//! The description of a command for the manual page and for the reference of the user manual, from
//! its declaration.

use clap::{Arg, Command};

use super::help::SUBJECTS;

/// A command with its arguments.
pub(crate) struct CommandPage {
    /// Its name, after those of the commands above it.
    pub(crate) name: String,
    /// The forms of its command line.
    pub(crate) usage: Vec<String>,
    /// Its purpose, in one line.
    pub(crate) purpose: String,
    /// Further paragraphs.
    pub(crate) details: Vec<String>,
    pub(crate) arguments: Vec<ArgumentEntry>,
}

/// An argument or an option of a command.
pub(crate) struct ArgumentEntry {
    /// All its spellings, with its value.
    pub(crate) term: String,
    pub(crate) help: String,
    /// The values that it takes, with their meanings.
    pub(crate) values: Vec<(String, String)>,
}

/// Returns the pages of all commands by subject, each before those of the commands below it.
pub(crate) fn pages(command: &mut Command) -> Vec<CommandPage> {
    command.build();
    let names = SUBJECTS.iter().flat_map(|(_, names)| *names);
    let mut all = Vec::new();
    for part in names.filter_map(|name| command.find_subcommand(name)) {
        push(part, &mut all);
    }
    all
}

fn push(command: &Command, all: &mut Vec<CommandPage>) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    all.push(CommandPage::of(command));
    for part in command.get_subcommands() {
        push(part, all);
    }
}

/// Ends the text of a declaration with a full stop, unless it has an end.
pub(crate) fn sentence(text: &str) -> String {
    let has_end = text.is_empty() || text.ends_with(['.', ':', ']', '…']);
    format!("{text}{}", if has_end { "" } else { "." })
}

impl CommandPage {
    fn of(command: &Command) -> Self {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").lines();
        let purpose = command.get_about().map(ToString::to_string);
        let details = command.get_long_about().map(ToString::to_string);
        let details = details.unwrap_or_default();
        let arguments = command.get_arguments();
        Self {
            name: name.to_owned(),
            usage: usage.map(|form| form.trim().to_owned()).collect(),
            purpose: purpose.unwrap_or_default(),
            details: details
                .split("\n\n")
                .skip(1)
                .map(|paragraph| paragraph.replace('\n', " "))
                .collect(),
            arguments: arguments
                .filter(|arg| !arg.is_hide_set() && !is_common(arg))
                .map(ArgumentEntry::of)
                .collect(),
        }
    }
}

/// Returns whether every command has this option.
fn is_common(arg: &Arg) -> bool {
    !arg.is_positional() && matches!(arg.get_id().as_str(), "help" | "version")
}

impl ArgumentEntry {
    fn of(arg: &Arg) -> Self {
        let help = arg.get_long_help().or_else(|| arg.get_help());
        let mut help = help
            .map(ToString::to_string)
            .unwrap_or_default()
            .replace('\n', " ");
        let takes_values = arg.get_action().takes_values();
        let default: Vec<_> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        if takes_values && !default.is_empty() {
            help = format!("{help} [default: {}]", default.join(", "));
        }
        let values = if takes_values {
            arg.get_possible_values()
        } else {
            Vec::new()
        };
        let values = values.iter().filter(|value| !value.is_hide_set());
        Self {
            term: term(arg),
            help: help.trim().to_owned(),
            values: values
                .map(|value| {
                    let meaning = value.get_help().map(ToString::to_string);
                    (value.get_name().to_owned(), meaning.unwrap_or_default())
                })
                .collect(),
        }
    }
}

/// Returns the spellings of an argument, with its value after the last one.
fn term(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let aliases = aliases.iter().map(|alias| format!("--{alias}"));
    // The longest spelling with the value, or the name of an argument that has no option.
    let main = arg.to_string();
    let spellings = short.into_iter().chain(aliases).chain([main]);
    spellings.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_described_by_its_declaration() {
        let mut command = crate::cli::help::command();
        let all = pages(&mut command);
        let of = |name: &str| all.iter().find(|page| page.name == name).unwrap();
        let run = of("adjutant run");
        assert_eq!(run.usage, ["adjutant run [OPTIONS] [PROMPT]..."]);
        assert_eq!(
            run.purpose,
            "Answer one prompt, or hold a conversation at a terminal"
        );
        let entry = |term: &str| run.arguments.iter().find(|entry| entry.term == term);
        assert!(entry("-f, --file <FILE>").is_some());
        assert!(entry("--agent, --mode <NAME>").is_some());
        assert!(entry("[PROMPT]...").is_some());
        assert_eq!(entry("--format <FORMAT>").unwrap().values.len(), 3);
        assert!(
            entry("--cwd <DIR>")
                .unwrap()
                .help
                .ends_with(" [default: .]")
        );
        assert!(entry("--allow").unwrap().values.is_empty());
        assert!(
            !run.arguments
                .iter()
                .any(|entry| entry.term.contains("--help"))
        );
        // The version of a file is not an option of every command.
        let restore = of("adjutant sessions restore");
        assert!(
            restore
                .arguments
                .iter()
                .any(|entry| entry.term == "[VERSION]")
        );
        assert_eq!(of("adjutant mcp add").usage.len(), 2);
    }
}
