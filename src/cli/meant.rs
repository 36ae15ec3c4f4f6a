//! Command lines that adjutant does not have, and their meaning: words and options of other
//! programs, a prompt without `run`, and misspelt commands.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use base::text;

/// The meaning of a command line that cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandRemedy {
    /// Another command line that does the same.
    Words(Vec<OsString>),
    /// The command to use instead. It is only named, because it asks a model or needs more words.
    Advice(String),
}

/// Words of other programs that mean a command here, among which the meaning of a misspelt word is
/// sought. Those that take a prompt are not among them, because a prompt may begin with any word.
const OTHER_WORDS: &[&str] = &[
    "version", "login", "logout", "explain", "continue", "resume", "init", "review", "undo",
    "revert", "export", "import", "usage", "cost", "settings", "plugins", "update", "upgrade",
];

/// Further such words, if they are alone: with more words they begin a prompt.
const LONE_WORDS: &[&str] = &["chat", "exec", "tui", "quit", "exit", "list"];

/// The commands that continue a session.
const CONTINUE: &str = "`adjutant run -c` continues the last session of this project, `adjutant run -s ID` another one, with a prompt or \
     as a conversation; `adjutant sessions` lists them";

/// The longest prompt that is repeated in a message, in characters.
const MAX_PROMPT_CHARS: usize = 60;

/// Options of other programs, each with the advice for `adjutant run`.
const RUN_OPTIONS: &[(&[&str], &str)] = &[
    (
        &["--output", "--output-format", "-o"],
        "`--format result` prints one JSON object with the answer, its session and its cost; `--format json` all messages",
    ),
    (
        &["--resume", "-r", "--session-id"],
        "`--session ID` continues a session, `--continue` the last one of this project",
    ),
    (
        &[
            "--dangerously-skip-permissions",
            "--dangerously-bypass-approvals-and-sandbox",
            "--yolo",
            "--full-auto",
            "--yes",
            "-y",
            "--auto",
        ],
        "`--allow` allows everything that is asked about; rules that deny stay in force",
    ),
    (
        &["--print", "-p", "--prompt"],
        "`adjutant run \"PROMPT\"` prints the answer already",
    ),
    (
        &["--allowedTools", "--allowed-tools", "--allow-tools"],
        "`--tools NAME,NAME` offers only these tools; rules in the settings allow calls without a question",
    ),
    (
        &["--disallowedTools", "--disallowed-tools"],
        "`--without NAME,NAME` offers all tools except these",
    ),
    (
        &["--append-system-prompt", "--system-prompt"],
        "`--system TEXT` adds to the system prompt",
    ),
    (
        &["--permission-mode", "--approval-mode", "-a"],
        "`--mode plan` changes nothing but its plan; `approvals` in the settings controls how much is asked",
    ),
    (
        &["--max-turns", "--max-budget-usd"],
        "`budget` in the settings limits a turn, in steps or US dollars",
    ),
    (
        &["--output-schema", "--json-schema"],
        "`--schema FILE` asks for JSON that fits a schema",
    ),
    (
        &["--cd", "-C", "--dir"],
        "`--cwd DIR` is the directory to work in",
    ),
    (
        &["--image", "-i", "--attach"],
        "`--file FILE` attaches a text, an image or a PDF",
    ),
];

/// Returns the advice about an option of another program, if the parser has rejected it after
/// `run`.
pub(super) fn run_option(error: &clap::Error, first: Option<&OsStr>) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument || first != Some(OsStr::new("run")) {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    advice_about_option(option)
}

/// Returns the advice about an option of another program.
fn advice_about_option(option: &str) -> Option<String> {
    let name = option_name(option);
    let (_, advice) = RUN_OPTIONS
        .iter()
        .find(|(names, _)| names.contains(&name))?;
    Some(format!("run has no option {name}: {advice}"))
}

/// Returns the advice about an option in place of the command, if it is one of
/// `run`.
fn option_without_run(option: &str) -> Option<String> {
    let name = option_name(option);
    let command = super::Cli::command();
    let run = command.find_subcommand("run")?;
    let is_named = |argument: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => argument
            .get_short()
            .is_some_and(|short| name == format!("-{short}")),
    };
    let argument = run.get_arguments().find(is_named)?;
    let value = match argument.get_value_names() {
        Some([value, ..]) if argument.get_action().takes_values() => format!(" {value}"),
        _ => String::new(),
    };
    Some(format!(
        "{name} is an option of run: `adjutant run {name}{value} \"PROMPT\"`"
    ))
}

fn option_name(option: &str) -> &str {
    option.split('=').next().unwrap_or(option)
}

/// Returns the command line for the page or the help of a command that a word of other programs
/// means: `man explain` is that of `permissions explain`.
fn page_of_other_word(verb: &str, words: &[OsString]) -> Option<CommandRemedy> {
    let words = match meaning_of_other_command(words.iter().cloned())? {
        CommandRemedy::Words(words) => words,
        advice @ CommandRemedy::Advice(_) => return Some(advice),
    };
    if verb == "help" {
        let asks = std::iter::once(OsString::from("--help"));
        return Some(CommandRemedy::Words(
            words.into_iter().chain(asks).collect(),
        ));
    }
    let is_name = |word: &OsString| !word.to_string_lossy().starts_with('-');
    let names = words.into_iter().take_while(is_name);
    let page = std::iter::once(OsString::from(verb)).chain(names);
    Some(CommandRemedy::Words(page.collect()))
}

/// Returns the meaning of a command line without the program's name. `None` if its first word has
/// none here.
pub(super) fn meaning_of_other_command(
    words: impl Iterator<Item = OsString>,
) -> Option<CommandRemedy> {
    let words: Vec<OsString> = words.collect();
    if let Some(words) = help_about_help(&words) {
        return Some(CommandRemedy::Words(words));
    }
    let (first, rest) = words.split_first()?;
    let first = first.to_str()?;
    let command = |words: &[&str]| {
        let words = words.iter().map(OsString::from);
        Some(CommandRemedy::Words(
            words.chain(rest.iter().cloned()).collect(),
        ))
    };
    let advice = |text: String| Some(CommandRemedy::Advice(text));
    match first {
        "version" | "-v" => return command(&["--version"]),
        "login" => return command(&["auth", "login"]),
        "logout" => return command(&["auth", "logout"]),
        "explain" => return command(&["permissions", "explain"]),
        "man" | "help"
            if OTHER_WORDS
                .iter()
                .chain(LONE_WORDS)
                .any(|word| rest.first().is_some_and(|name| name == word)) =>
        {
            return page_of_other_word(first, rest);
        }
        "chat" => return command(&["run", "--chat"]),
        "tui" | "repl" | "interactive" if rest.is_empty() => return command(&["run", "--chat"]),
        "exec" | "ask" | "prompt" | "-p" | "--print" | "--prompt" => {
            let prompt = quoted(rest);
            return advice(format!("`adjutant run {prompt}` answers one prompt"));
        }
        "-c" | "--continue" | "continue" | "resume" | "-r" | "--resume" => {
            return advice(CONTINUE.to_owned());
        }
        "session" | "sessions"
            if rest
                .first()
                .is_some_and(|verb| verb == "resume" || verb == "continue") =>
        {
            return advice(CONTINUE.to_owned());
        }
        _ => {}
    }
    let instead = match first {
        "init" => "`adjutant run --command init` lets a model write AGENTS.md",
        "review" => "`adjutant run --command review` reviews uncommitted changes",
        "undo" | "revert" => "`adjutant sessions revert ID` undoes the last turn of a session",
        "export" => "`adjutant sessions export ID` exports a session",
        "import" => "`adjutant sessions import FILE` imports a session",
        "usage" | "cost" | "costs" => "`adjutant stats` counts tokens and cost",
        "list" | "ls" if rest.is_empty() => {
            "`adjutant sessions` lists the sessions, `adjutant models` the models"
        }
        "quit" | "exit" if rest.is_empty() => {
            "there is nothing to leave: Ctrl-D ends a conversation, and `adjutant run \"PROMPT\"` ends with its answer"
        }
        "settings" => "`adjutant config` shows the settings",
        "plugins" | "plugin" | "hooks" | "tools" => {
            "`adjutant extensions` lists hooks, custom tools and plugins"
        }
        "update" | "upgrade" => {
            "adjutant does not update itself: install the new version as you installed this one"
        }
        _ => "",
    };
    if !instead.is_empty() {
        return advice(instead.to_owned());
    }
    if let Some(word) = near_other_word(first, rest) {
        let words = std::iter::once(word.into()).chain(rest.iter().cloned());
        return match meaning_of_other_command(words)? {
            CommandRemedy::Advice(text) => advice(text),
            CommandRemedy::Words(words) => advice(format!(
                "there is no command {first:?}; did you mean `adjutant {}`?",
                words.join(" ".as_ref()).display()
            )),
        };
    }
    if first.starts_with('-') {
        return option_without_run(first)
            .or_else(|| advice_about_option(first))
            .map(CommandRemedy::Advice);
    }
    let is_quoted = first.trim().contains(char::is_whitespace);
    let near = near_command(first);
    if !is_quoted && let Some(near) = near.as_deref().filter(|near| *near != first) {
        let words: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
        let command = format!("{near} {}", words.join(" "));
        return advice(format!(
            "there is no command {first:?}; did you mean `adjutant {}`?",
            command.trim_end()
        ));
    }
    let is_prompt = is_quoted || (rest.len() > 1 && near.is_none());
    if is_prompt {
        let prompt = quoted(&words);
        return advice(format!(
            "to give a prompt, write run before it: `adjutant run {prompt}`"
        ));
    }
    None
}

/// Returns `… help help` for `… help --help`: the parser's own command `help` has no options.
fn help_about_help(words: &[OsString]) -> Option<Vec<OsString>> {
    let (option, before) = words.split_last()?;
    if !(option == "--help" || option == "-h") || before.last()? != "help" {
        return None;
    }
    let mut words = before.to_vec();
    words.push("help".into());
    Some(words)
}

/// Quotes the words of a prompt for a shell; a long one, or one with special characters, is left to
/// the user.
fn quoted(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let prompt = words.join(" ");
    let is_plain = !prompt.is_empty()
        && prompt.chars().count() <= MAX_PROMPT_CHARS
        && !prompt.starts_with('-')
        && !prompt.contains(['"', '\\', '$', '`', '!', '\n']);
    if is_plain {
        format!("\"{prompt}\"")
    } else {
        "\"PROMPT\"".to_owned()
    }
}

/// Returns the command whose name is nearest to a word.
pub(super) fn near_command(word: &str) -> Option<String> {
    let command = super::Cli::command();
    let names: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    near_name(word, &names).map(str::to_owned)
}

/// Returns the word of another program that is nearest to the first one of a command line, unless a
/// command is nearer or a prompt begins with it.
fn near_other_word(first: &str, rest: &[OsString]) -> Option<&'static str> {
    if rest.len() > 1 || first.starts_with('-') {
        return None;
    }
    let command = super::Cli::command();
    let commands = command.get_subcommands().map(clap::Command::get_name);
    let lone = if rest.is_empty() { LONE_WORDS } else { &[] };
    let others = || OTHER_WORDS.iter().chain(lone).copied();
    let all: Vec<&str> = commands.chain(others()).collect();
    let near = near_name(first, &all)?;
    others().find(|word| *word == near)
}

/// Returns the advice about `mcp add` without the server, or with a program that has no `--` before
/// it.
pub(super) fn server_to_add(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return None;
    };
    let is_without_server = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            missing.iter().any(|name| name.starts_with("--url"))
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => !word.starts_with('-'),
        _ => false,
    };
    (is_without_server && usage.to_string().contains("adjutant mcp add")).then_some(
        "mcp add needs the server: `adjutant mcp add NAME -- PROGRAM ARGUMENT` adds a program, \
         `adjutant mcp add NAME --url URL` a remote server",
    )
}

/// Returns the name that begins with the word, or begins it, or is nearest to it.
fn near_name<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    /// The shortest word that is completed: a letter or two begin many names.
    const MIN_CHARS: usize = 3;
    let word = word.to_lowercase();
    let is_long = word.chars().count() >= MIN_CHARS;
    let begins = |name: &&&str| {
        let is_begun = name.len() >= MIN_CHARS && word.starts_with(**name);
        is_long && (name.starts_with(word.as_str()) || is_begun)
    };
    let beginning = names.iter().find(begins).copied();
    beginning.or_else(|| text::nearest(&word, names.iter().copied()))
}

/// Replaces the names that the parser proposes for a misspelt verb by the nearest one.
pub(super) fn with_near_name(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let proposed = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.clone(),
        Some(ContextValue::String(name)) => vec![name.clone()],
        _ => Vec::new(),
    };
    let mut proposed: Vec<&str> = proposed.iter().map(String::as_str).collect();
    // Of two that are equally near, the full name precedes its short form.
    proposed.sort_by_key(|name| std::cmp::Reverse(name.len()));
    // The parser's own proposals are of the command in which the word was found.
    let near = near_name(word, &proposed).map(str::to_owned);
    let near = near.filter(|near| near != word);
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(near) = near {
        let names = ContextValue::Strings(vec![near]);
        error.insert(ContextKind::SuggestedSubcommand, names);
    }
    error
}

/// Returns the message about a command or an option that does not exist, with the nearest one. `None`
/// for other errors, and for options that have an advice of their own.
pub(super) fn unknown_word(error: &clap::Error) -> Option<String> {
    let path = command_path(error)?;
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(all)) => all.first().cloned(),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let next = match text(ContextKind::SuggestedSubcommand) {
                Some(near) => format!("did you mean `{path} {near}`?"),
                None => format!("`{path} --help` lists the commands"),
            };
            let place = path.strip_prefix("adjutant ");
            let place = place.map_or(String::new(), |place| format!(" of {place}"));
            Some(format!("there is no command {word:?}{place}; {next}"))
        }
        ErrorKind::UnknownArgument => {
            let option = text(ContextKind::InvalidArg)?;
            if !option.starts_with('-') || is_advised_deletion(error, &option) {
                return None;
            }
            let next = match text(ContextKind::SuggestedArg) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("`{path} --help` lists the options"),
            };
            let name = path.strip_prefix("adjutant ").unwrap_or(&path);
            Some(format!("{name} has no option {option}; {next}"))
        }
        _ => None,
    }
}

/// Returns the command that an error is about, as its usage names it: `adjutant sessions list`.
fn command_path(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return None;
    };
    let usage = usage.to_string();
    let words = usage.lines().next()?.split_whitespace();
    let words = words.skip_while(|word| *word != "adjutant");
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let path: Vec<&str> = words
        .take_while(|word| is_name(word) && !word.starts_with('-'))
        .collect();
    (!path.is_empty()).then(|| path.join(" "))
}

/// Returns whether an option is one with which `sessions delete` is expected to find the sessions.
fn is_advised_deletion(error: &clap::Error, option: &str) -> bool {
    matches!(option, "--all" | "--days") && is_about_deletion(error)
}

/// Required arguments, each with the command that lists its values.
const MISSING_ARGUMENTS: &[(&str, &[&str], &str)] = &[
    (
        "sessions",
        &["<ID>", "<IDS>..."],
        "`adjutant sessions` lists the ids; `last` names the last session of this project",
    ),
    (
        "auth",
        &["<PROVIDER>"],
        "`adjutant auth list` lists the providers that have a key",
    ),
    (
        "config",
        &["<KEY>"],
        "`adjutant config` lists the settings and their names",
    ),
    (
        "agents",
        &["<NAME>"],
        "`adjutant agents` lists the names of the agents",
    ),
    (
        "mcp",
        &["<NAME>"],
        "`adjutant mcp` lists the names of the servers",
    ),
    (
        "permissions",
        &["<PERMISSION>"],
        "`adjutant permissions` lists what was granted",
    ),
    (
        "permissions",
        &["<--read <PATH>|--edit <PATH>|COMMAND>"],
        "write the command line in quotes: `adjutant permissions explain 'git push'`",
    ),
];

/// Adds the next step to the parser's message about a missing argument, or about an option with
/// which `sessions delete` is expected to find the sessions itself. `first` is the first word of
/// the command line.
pub(super) fn with_next_step(mut error: clap::Error, first: Option<&OsStr>) -> clap::Error {
    let first = first.and_then(OsStr::to_str).unwrap_or_default();
    let tip = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => {
            let is_missing = |name: &&str| missing.iter().any(|missing| missing == name);
            let listed = MISSING_ARGUMENTS
                .iter()
                .find(|(command, names, _)| *command == first && names.iter().any(is_missing));
            listed.map(|(_, _, tip)| *tip)
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(option)))
            if is_advised_deletion(&error, option) =>
        {
            Some(
                "`adjutant sessions prune --days N` deletes all sessions that were not used for N days",
            )
        }
        _ => None,
    };
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Returns whether a message of the parser is about `sessions delete`, and not about a command that
/// deletes nothing.
fn is_about_deletion(error: &clap::Error) -> bool {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return false;
    };
    usage.to_string().contains("adjutant sessions delete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_programs_lead_to_a_command() {
        let table: [(&[&str], &str); 52] = [
            (&["version"], "--version"),
            (&["help", "--help"], "help help"),
            (&["sessions", "help", "-h"], "sessions help help"),
            (
                &["explain", "rm -rf build"],
                "permissions explain rm -rf build",
            ),
            (&["explain", "ls", "-la"], "permissions explain ls -la"),
            (&["help", "explain"], "permissions explain --help"),
            (&["help", "login"], "auth login --help"),
            (&["man", "explain"], "man permissions explain"),
            (&["man", "version"], "man"),
            (&["help", "chat"], "run --chat --help"),
            (&["man", "chat"], "man run"),
            (&["help", "exec"], "`adjutant run \"PROMPT\"`"),
            (&["login", "openai"], "auth login openai"),
            (&["-p", "fix it"], "`adjutant run \"fix it\"`"),
            (&["chat"], "run --chat"),
            (&["chat", "-c", "fix it"], "run --chat -c fix it"),
            (&["tui"], "run --chat"),
            (&["sessions", "resume"], "`adjutant run -c"),
            (&["session", "continue", "last"], "`adjutant run -c"),
            (&["session", "rm", "last"], "`adjutant sessions rm last`?"),
            (&["exec", "echo $HOME"], "`adjutant run \"PROMPT\"`"),
            (&["-c"], "`adjutant run -c"),
            (&["resume"], "`adjutant run -c"),
            (&["init"], "--command init"),
            (&["veresion"], "did you mean `adjutant --version`?"),
            (&["versions"], "did you mean `adjutant --version`?"),
            (&["logn"], "did you mean `adjutant auth login`?"),
            (
                &["lgin", "openai"],
                "did you mean `adjutant auth login openai`?",
            ),
            (&["resum"], "`adjutant run -c"),
            (&["setings"], "`adjutant config`"),
            (
                &["chart", "the", "data"],
                "`adjutant run \"chart the data\"`",
            ),
            (&["model"], "did you mean `adjutant models`?"),
            (&["modls"], "did you mean `adjutant models`?"),
            (&["docter"], "did you mean `adjutant doctor`?"),
            (&["perm"], "did you mean `adjutant permissions`?"),
            (&["chatt"], "did you mean `adjutant run --chat`?"),
            (&["exce"], "`adjutant run \"PROMPT\"`"),
            (&["list"], "`adjutant sessions` lists"),
            (&["quit"], "nothing to leave"),
            (&["run the tests"], "`adjutant run \"run the tests\"`"),
            (
                &["list", "the", "files"],
                "`adjutant run \"list the files\"`",
            ),
            (&["-m", "x"], "`adjutant run -m PROVIDER/MODEL \"PROMPT\"`"),
            (&["--model=x", "hi"], "`adjutant run --model PROVIDER/MODEL"),
            (&["--allow", "hi"], "`adjutant run --allow \"PROMPT\"`"),
            (&["--yolo", "hi"], "run has no option --yolo: `--allow`"),
            (&["auth", "lgin"], ""),
            (&["fix the bug"], "`adjutant run \"fix the bug\"`"),
            (&["fix", "the", "bug"], "`adjutant run \"fix the bug\"`"),
            (
                &["sesions", "list", "--all"],
                "did you mean `adjutant sessions list --all`?",
            ),
            (&["session"], "did you mean `adjutant sessions`?"),
            (&["--unknown", "a", "b"], ""),
            (&[], ""),
        ];
        for (words, expected) in table {
            let meaning = match meaning_of_other_command(words.iter().map(OsString::from)) {
                Some(CommandRemedy::Words(words)) => {
                    words.join(" ".as_ref()).into_string().unwrap()
                }
                Some(CommandRemedy::Advice(advice)) => advice,
                None => String::new(),
            };
            assert_eq!(
                meaning.is_empty(),
                expected.is_empty(),
                "{words:?}: {meaning}"
            );
            assert!(meaning.contains(expected), "{words:?}: {meaning}");
        }
    }

    #[test]
    fn options_of_other_programs_lead_to_those_of_run() {
        let table = [
            (&["run", "--output", "json", "a"][..], "--format result"),
            (&["run", "--output-format=json", "a"], "--format result"),
            (&["run", "--yolo", "a"], "--allow"),
            (&["run", "-p", "a"], "prints the answer already"),
            (&["run", "-C", "x", "a"], "--cwd DIR"),
            (&["run", "--resume", "a"], "--session ID"),
            (&["run", "--nonsense", "a"], ""),
            (&["sessions", "--json-schema"], ""),
        ];
        for (words, expected) in table {
            let first = words.first().map(OsStr::new);
            let words = std::iter::once("adjutant").chain(words.iter().copied());
            let error = <super::super::Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let advice = run_option(&error, first).unwrap_or_default();
            assert_eq!(advice.is_empty(), expected.is_empty(), "{advice}");
            assert!(advice.contains(expected), "{advice}");
        }
        for name in RUN_OPTIONS.iter().flat_map(|(names, _)| *names) {
            let words = ["adjutant", "run", *name, "x"];
            let parsed = <super::super::Cli as clap::Parser>::try_parse_from(words);
            let error = parsed.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{name}: {error}");
        }
    }

    #[test]
    fn incomplete_server_is_explained() {
        let table: [(&[&str], bool); 7] = [
            (&["mcp", "add", "foo"], true),
            (&["mcp", "add"], true),
            (&["mcp", "add", "foo", "--write"], true),
            (&["mcp", "add", "foo", "npx", "server"], true),
            (&["mcp", "add", "foo", "--nonsense"], false),
            (&["mcp", "tools"], false),
            (&["sessions", "delete"], false),
        ];
        for (words, expected) in table {
            let words = std::iter::once("adjutant").chain(words.iter().copied());
            let error = <super::super::Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            assert_eq!(server_to_add(&error).is_some(), expected, "{error}");
        }
    }

    #[test]
    fn message_about_a_missing_argument_names_the_list() {
        let table = [
            (&["sessions", "delete"][..], "`last` names the last session"),
            (&["sessions", "rename"], "`adjutant sessions` lists the ids"),
            (&["sessions", "delete", "--all"], "prune --days N"),
            (&["sessions", "rm"], "`last` names the last session"),
            (&["sessions", "export", "--all"], "'-- --all'"),
            (&["auth", "logout"], "`adjutant auth list`"),
            (&["config", "get"], "`adjutant config` lists"),
            (&["agents", "show"], "`adjutant agents` lists"),
            (&["mcp", "tools"], "`adjutant mcp` lists"),
            (&["permissions", "revoke"], "what was granted"),
            (&["sessions", "search"], ""),
            (&["completions"], ""),
        ];
        for (words, expected) in table {
            let first = words.first().map(OsStr::new);
            let words = std::iter::once("adjutant").chain(words.iter().copied());
            let error = <super::super::Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let text = with_next_step(error, first).to_string();
            let tip = text.split_once("tip: ").map_or("", |(_, tip)| tip);
            assert_eq!(tip.is_empty(), expected.is_empty(), "{text}");
            assert!(tip.contains(expected), "{text}");
        }
    }

    #[test]
    fn unknown_words_are_reported_in_one_line() {
        let table = [
            (
                &["sessions", "lst"][..],
                "there is no command \"lst\" of sessions; did you mean `adjutant sessions list`?",
            ),
            (
                &["zzz"],
                "there is no command \"zzz\"; `adjutant --help` lists the commands",
            ),
            (
                &["sessions", "prune", "--dry-run", "--nope"],
                "sessions prune has no option --nope; `adjutant sessions prune --help` lists the options",
            ),
            (
                &["run", "--jsn", "hi"],
                "run has no option --jsn; did you mean --json?",
            ),
            (&["sessions", "delete", "--all"], ""),
            (&["config", "get"], ""),
        ];
        for (words, expected) in table {
            let words = std::iter::once("adjutant").chain(words.iter().copied());
            let error = <super::super::Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let message = unknown_word(&with_near_name(error)).unwrap_or_default();
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn tip_names_the_nearest_verb() {
        let table = [
            (&["sessions", "publish"][..], None),
            (&["mcp", "lst"], Some("'list'")),
            (&["mcp", "docter"], None),
        ];
        for (words, expected) in table {
            let words = std::iter::once("adjutant").chain(words.iter().copied());
            let error = <super::super::Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let text = with_near_name(error).to_string();
            let tip = text.lines().find(|line| line.contains("tip:"));
            match expected {
                Some(name) => assert!(tip.is_some_and(|tip| tip.contains(name)), "{text}"),
                None => {
                    let is_near = |tip: &str| tip.contains("revert") || tip.contains("doctor");
                    assert!(!tip.is_some_and(is_near), "{text}");
                }
            }
        }
    }
}
