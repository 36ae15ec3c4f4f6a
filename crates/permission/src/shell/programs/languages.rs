//! Programs that get a program: shells, `sed`, `awk`, other languages. Shell text is analysed like
//! the line itself. Of other programs only plainly harmless ones are accepted; the rest is searched
//! for the names of denied programs, and may be denied.

use super::code;
use super::read::{GivenOption, ParsedArgs};
use super::table::{OptionEffect, Utility};
use super::{EffectCollector, ProgramEffect, RunEffect, UnitEffect};
use crate::Access;
use crate::shell::device;
use crate::shell::expand::{Arg, StdinSource};
use crate::shell::unit::Effect;

/// Handles a shell. Single-letter options form clusters, and `-c` takes the first word after all
/// options.
pub(super) fn shell(collector: &mut EffectCollector<'_>, args: &[Arg], foreign: bool) {
    let mut at = 0;
    let mut command = false;
    let mut stdin = false;
    while let Some(arg) = args.get(at)
        && arg.prefix().starts_with(['-', '+'])
    {
        let Some(text) = arg.text() else {
            return collector.set_opaque("its options are computed");
        };
        at += 1;
        if text.ends_with(['o', 'O']) && args.get(at).is_some_and(Arg::is_several) {
            return collector.set_opaque("its options are computed");
        }
        if text == "--" || text == "-" {
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            match name {
                "rcfile" | "init-file" => {
                    collector.set_opaque("it reads a start file");
                    at += usize::from(name == long);
                }
                "command" if foreign => command = true,
                "norc" | "noprofile" | "posix" | "login" | "restricted" | "verbose" | "version"
                | "help" => {}
                _ => collector.effect(Effect::Unproven),
            }
            continue;
        }
        if text.starts_with('-') {
            command |= text.contains('c');
            stdin |= text.contains('s');
            if text.contains('i') {
                collector.set_opaque("an interactive shell runs its start files");
            }
        }
        at += usize::from(text.ends_with(['o', 'O']));
    }
    if command {
        let Some(text) = args.get(at) else { return };
        if foreign {
            collector.set_opaque("it is not the language of bash");
            collector.add_foreign_code(Some(text));
        }
        return collector.add(RunEffect::Text {
            text: text.clone(),
            is_conditional: false,
        });
    }
    if !stdin && let Some(file) = args.get(at) {
        collector.effect(Effect::Unproven);
        let is_pipe = |text: &str| {
            device::is_harmless(text) || text.starts_with("/dev/fd/") || text.starts_with("/proc/")
        };
        if file.text().is_some_and(is_pipe) {
            collector.set_opaque("it reads its program from a pipe");
        }
        collector.set_may_be_denied("it runs a file, and what that does is not judged");
        return collector.uses(Access::Read, file);
    }
    match collector.context.input.clone() {
        StdinSource::Pipe => collector.set_opaque("it reads its program from a pipe or a file"),
        StdinSource::Text(Some(text)) => collector.add(RunEffect::Text {
            text: Arg::exact(text),
            is_conditional: false,
        }),
        StdinSource::Text(None) => collector.set_opaque("it reads a program that is computed"),
        StdinSource::Nothing => {}
    }
}

/// Handles an interpreter of a language other than that of a shell.
pub(super) fn language(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    args: &[Arg],
) {
    let mut is_program_given = false;
    let mut texts = vec![];
    for option in &reading.options {
        match option.does {
            Some(OptionEffect::Program) => {
                is_program_given = true;
                collector.add_dangerous_option(&option.name);
                match option.value.as_ref().map(Arg::text) {
                    Some(Some(text)) => texts.push(text.to_owned()),
                    Some(None) => collector.set_opaque("the program it runs is computed"),
                    None => {}
                }
            }
            Some(OptionEffect::Module) => {
                is_program_given = true;
                collector.add_dangerous_option(&option.name);
                // A module may take its words as a program.
                let words = reading.operands.iter().filter_map(Arg::text);
                texts.extend(
                    words
                        .filter(|text| text.contains(['(', '=', ';']))
                        .map(str::to_owned),
                );
            }
            _ => {}
        }
    }
    let operand = reading.operands.first();
    let is_device = |text: &str| text.starts_with("/dev/") || text.starts_with("/proc/");
    let no_file = operand
        .is_none_or(|arg| arg.is("-") || arg.text().is_some_and(|text| text.starts_with("/dev/")));
    let interactive = reading
        .options
        .iter()
        .any(|option| option.does == Some(OptionEffect::Interactive));
    let from_input = (no_file && !is_program_given) || interactive;
    if from_input {
        match collector.context.input.clone() {
            StdinSource::Pipe => collector.set_opaque("it reads its program from a pipe or a file"),
            StdinSource::Text(Some(text)) => {
                collector.add(UnitEffect::CatchAllOnly(
                    "its program is in its input".to_owned(),
                ));
                texts.push(text);
            }
            StdinSource::Text(None) => collector.set_opaque("it reads a program that is computed"),
            StdinSource::Nothing => {}
        }
    } else if collector.context.input == StdinSource::Pipe
        && reading.options.iter().any(may_read_input)
    {
        collector.set_may_be_denied("it may read more of its program from its input");
    }
    if operand.and_then(Arg::text).is_some_and(is_device) && !is_program_given {
        collector.set_opaque("it reads its program from a pipe");
    }
    if program.has_whole_word_options {
        // Editors, debuggers and databases have languages of their own, and also read commands from
        // the input, whatever file they open.
        collector.add_unknown_program(args);
        if !no_file && !is_program_given && collector.context.input == StdinSource::Pipe {
            collector.set_opaque("it reads commands from a pipe or a file");
        }
        if !texts.is_empty() {
            collector.set_may_be_denied(&format!(
                "the program {} is given may start others",
                program.name
            ));
        }
    } else if !texts
        .iter()
        .all(|text| code::is_harmless(text, &collector.called))
    {
        collector.set_may_be_denied(&format!(
            "the program {} is given is not known to start no others",
            program.name
        ));
    }
    for text in texts {
        collector.names_files(&text, program.has_whole_word_options);
        collector.add(UnitEffect::ForeignCode(text));
    }
    add_backups(collector, reading, &reading.operands);
    if program.has_whole_word_options {
        // Any word may be a command of an editor or database.
        args.iter()
            .filter_map(Arg::text)
            .for_each(|text| collector.names_files(text, true));
        if let StdinSource::Text(Some(text)) = collector.context.input.clone() {
            collector.names_files(&text, true);
        }
    }
    if !program.has_whole_word_options {
        // Other languages have no further commands among their words: these count as words of an
        // unknown program.
        collector.add_unknown_program(args);
    }
}

/// Returns whether an option is unknown, or a module that may read commands: `-a`, `-m code`.
fn may_read_input(option: &GivenOption) -> bool {
    match option.does {
        None => true,
        Some(OptionEffect::Module) => option
            .value
            .as_ref()
            .is_none_or(|module| !module.is("json.tool")),
        _ => false,
    }
}

/// Returns the programs, and the remaining words. Adds the effects of program files.
fn programs<'r>(
    collector: &mut EffectCollector<'_>,
    reading: &'r ParsedArgs,
) -> (Vec<Arg>, &'r [Arg]) {
    let given_as = |does| {
        reading
            .options
            .iter()
            .filter(move |option| option.does == Some(does))
    };
    let mut programs: Vec<Arg> = given_as(OptionEffect::Program)
        .filter_map(|option| option.value.clone())
        .collect();
    let mut operands = reading.operands.as_slice();
    // With a module, the first word is still the program.
    let files = given_as(OptionEffect::File).next().is_some();
    for option in given_as(OptionEffect::File).chain(given_as(OptionEffect::Module)) {
        if option.value.as_ref().is_some_and(|file| file.is("inplace")) {
            collector.effect(Effect::Writes);
            continue;
        }
        collector.effect(Effect::Unproven);
        collector.add_dangerous_option(&option.name);
        collector.set_may_be_denied("it runs a file of commands");
        if let Some(file) = &option.value {
            let is_pipe = |text: &str| {
                device::is_harmless(text) || text.starts_with("/dev/") || text.starts_with("/proc/")
            };
            if file.text().is_some_and(is_pipe) {
                collector.set_opaque("it reads its program from a pipe");
            }
            collector.uses(Access::Read, file);
        }
    }
    if programs.is_empty()
        && !files
        && let Some((first, rest)) = operands.split_first()
    {
        programs.push(first.clone());
        operands = rest;
    }
    (programs, operands)
}

pub(super) fn sed(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    let edits = reading
        .options
        .iter()
        .any(|option| option.does == Some(OptionEffect::Edits));
    let (programs, files) = programs(collector, reading);
    for program in &programs {
        let Some(text) = program.text() else {
            collector.effect(Effect::Unproven);
            collector.set_may_be_denied("its program is computed, and sed can run commands");
            continue;
        };
        let Some(effects) = sed_effects(text) else {
            collector.effect(Effect::Unproven);
            collector.add(UnitEffect::RunsOtherPrograms);
            collector.set_may_be_denied("its program is not plain, and sed can run commands");
            collector.add(UnitEffect::Unknown(
                "its program is not plain: which files it writes is not known".to_owned(),
            ));
            collector.add_foreign_code(Some(program));
            continue;
        };
        for (letter, text) in effects {
            collector.add(UnitEffect::RunsOtherPrograms);
            match letter {
                'w' => {
                    collector.add_dangerous_option("w");
                    collector.uses(Access::Edit, &Arg::exact(text));
                }
                'r' => collector.uses(Access::Read, &Arg::exact(text)),
                _ => {
                    collector.add_dangerous_option("e");
                    collector.effect(Effect::Unproven);
                    collector.add_foreign_code(Some(program));
                    if text.is_empty() {
                        collector.set_opaque("sed runs the lines that it reads");
                    } else {
                        collector.add(RunEffect::Text {
                            text: Arg::exact(text),
                            is_conditional: true,
                        });
                    }
                }
            }
        }
    }
    for file in files {
        collector.uses(Access::Read, file);
        if edits {
            collector.uses(Access::Edit, file);
        }
    }
    add_backups(collector, reading, files);
}

/// Adds the backups of `-i.old` and `-idir/*.old`. `*` in the suffix is the file's name; without
/// one the suffix follows the name.
fn add_backups(collector: &mut EffectCollector<'_>, reading: &ParsedArgs, files: &[Arg]) {
    let edits = reading
        .options
        .iter()
        .filter(|option| matches!(&*option.name, "-i" | "--in-place"));
    for suffix in edits
        .filter_map(|option| option.value.as_ref())
        .filter(|suffix| !suffix.is(""))
    {
        for file in files {
            let (Some(suffix), Some(file)) = (suffix.text(), file.text()) else {
                collector.uses(Access::Edit, &Arg::unknown(&suffix.raw));
                continue;
            };
            let (dir, name) = file
                .rsplit_once('/')
                .map_or(("", file), |(dir, name)| (dir, name));
            let backup = if suffix.contains('*') {
                suffix.replace('*', name)
            } else {
                format!("{name}{suffix}")
            };
            let is_complete = dir.is_empty() || (suffix.contains('/') && suffix.contains('*'));
            collector.uses(
                Access::Edit,
                &Arg::exact(if is_complete {
                    backup
                } else {
                    format!("{dir}/{backup}")
                }),
            );
        }
    }
}

/// Returns the effects of a plain sed program other than printing: the files it writes (`w`) and
/// reads (`r`), the commands it runs (`e`). `None` for all other programs.
fn sed_effects(text: &str) -> Option<Vec<(char, String)>> {
    let mut rest = text;
    let mut effects = vec![];
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            ' ' | '\t' | '\n' | ';' | '{' | '}' | '!' | ',' | '0'..='9' | '$' | '~' | '+' => {}
            '/' => {
                sed_text(&mut rest, '/')?;
                rest = rest.trim_start_matches(['I', 'M']);
            }
            '#' => drop(sed_line(&mut rest)),
            's' | 'y' => effects.extend(sed_substitution(&mut rest)?),
            'w' | 'W' => effects.push(('w', sed_line(&mut rest))),
            'r' | 'R' => effects.push(('r', sed_line(&mut rest))),
            'e' => effects.push(('e', sed_line(&mut rest))),
            // One line of text without continuation.
            'a' | 'i' | 'c' => {
                if sed_line(&mut rest).contains('\\') {
                    return None;
                }
            }
            'b' | 't' | 'T' | ':' => {
                let end = rest.find(['\n', ';', '}']).unwrap_or(rest.len());
                if !rest[..end]
                    .trim()
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric())
                    || (c == ':' && rest[end..].starts_with('}'))
                {
                    return None;
                }
                rest = &rest[end..];
            }
            'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'l' | 'n' | 'N' | 'p' | 'P' | 'q' | 'Q' | 'x'
            | 'z' | '=' | 'F' => {}
            _ => return None,
        }
    }
    Some(effects)
}

/// Skips a text with its delimiter. A delimiter within a set ends the text in some versions only.
fn sed_text(rest: &mut &str, end: char) -> Option<()> {
    let mut escaped = false;
    let mut set = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return None,
            c if c == end => {
                *rest = &rest[at + c.len_utf8()..];
                return (!set).then_some(());
            }
            '[' => set = true,
            ']' => set = false,
            _ => {}
        }
    }
    None
}

/// Consumes and returns the rest of the line.
fn sed_line(rest: &mut &str) -> String {
    let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
    *rest = after;
    line.trim().to_owned()
}

/// Parses the rest of `s` or `y`. The outer value is `None` if it is not plain, the inner one if it
/// only edits.
fn sed_substitution(rest: &mut &str) -> Option<Option<(char, String)>> {
    let end = rest
        .chars()
        .next()
        .filter(|c| c.is_ascii_punctuation() && *c != '\\')?;
    *rest = &rest[1..];
    sed_text(rest, end)?;
    sed_text(rest, end)?;
    *rest = rest.trim_start_matches(is_sed_flag);
    let effect = match rest.chars().next() {
        Some('w') => {
            *rest = &rest[1..];
            Some(('w', sed_line(rest)))
        }
        Some('e') => {
            *rest = rest[1..].trim_start_matches(is_sed_flag);
            Some(('e', String::new()))
        }
        _ => None,
    };
    (rest.is_empty() || rest.starts_with([' ', ';', '}', '\n', '#'])).then_some(effect)
}

fn is_sed_flag(c: char) -> bool {
    "gpiImM".contains(c) || c.is_ascii_digit()
}

pub(super) fn awk(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    let (programs, files) = programs(collector, reading);
    for program in &programs {
        let Some(text) = program.text() else {
            collector.effect(Effect::Unproven);
            collector.set_may_be_denied("its program is computed, and awk can run commands");
            continue;
        };
        match awk_effects(text) {
            AwkEffects::None => {}
            AwkEffects::Starts => {
                collector.add_dangerous_option("system");
                collector.effect(Effect::Unproven);
                collector.add_foreign_code(Some(program));
                collector.names_files(text, true);
                match started_commands(text) {
                    Some(commands) => {
                        commands.into_iter().for_each(|command| {
                            collector.add(RunEffect::Text {
                                text: Arg::exact(command),
                                is_conditional: true,
                            })
                        });
                    }
                    None => collector.set_opaque("the command awk runs is computed"),
                }
            }
            AwkEffects::Writes(file) => {
                collector.add_dangerous_option(">");
                collector.uses(Access::Edit, &Arg::exact(file));
            }
            AwkEffects::Unread => {
                collector.add_dangerous_option(">");
                collector.effect(Effect::Unproven);
                collector.add_foreign_code(Some(program));
                collector.set_may_be_denied("its program is not plain, and awk can run commands");
                collector.add(UnitEffect::Unknown(
                    "its program is not plain: which files it uses is not known".to_owned(),
                ));
            }
        }
    }
    let edits = collector.effects.iter().any(|effect| {
        matches!(
            effect,
            ProgramEffect::CommandUnit(UnitEffect::Effect(Effect::Writes))
        )
    });
    for file in files.iter().filter(|arg| !assigns(arg.prefix())) {
        collector.uses(if edits { Access::Edit } else { Access::Read }, file);
    }
}

/// Returns whether awk reads a word as an assignment. A word with any other character before the
/// `=` is a file.
fn assigns(word: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty()
            && name.chars().all(is_name_char)
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[derive(Debug, PartialEq, Eq)]
enum AwkEffects {
    None,
    Starts,
    /// Writes this file and starts nothing.
    Writes(String),
    Unread,
}

/// Classifies an awk program. Words are searched everywhere; operators are ignored if they plainly
/// compare or select.
fn awk_effects(text: &str) -> AwkEffects {
    let contains_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if text.len() > code::MAX_LENGTH
        || contains_any(&["ARGV", "SYMTAB", "PROCINFO", "@"])
        || (text.contains("getline") && text.contains('<'))
    {
        return AwkEffects::Unread;
    }
    if contains_any(&["system", "ENVIRON", "getline"]) {
        return if text.contains('>') {
            AwkEffects::Unread
        } else {
            AwkEffects::Starts
        };
    }
    if !text.contains(['|', '>']) {
        return AwkEffects::None;
    }
    let Some(bare) = without_texts(text) else {
        return AwkEffects::Unread;
    };
    let pipes = bare.replace("||", "").contains('|');
    let writes = bare
        .match_indices("print")
        .any(|(at, _)| outside_brackets(statement(&bare[at..])).contains('>'));
    match (pipes, writes) {
        (false, false) => AwkEffects::None,
        (true, false) => AwkEffects::Starts,
        (false, true) => {
            // A single file whose name is a text at the end of its statement.
            let after = text
                .split_once('>')
                .map(|(_, after)| after.trim_start_matches('>').trim_start())
                .unwrap_or_default();
            let file = after
                .strip_prefix('"')
                .and_then(|after| after.split_once('"'));
            match file {
                Some((file, rest))
                    if !file.contains('\\')
                        && !rest.contains('>')
                        && (rest.trim().is_empty()
                            || rest.trim_start().starts_with([';', '}', '\n'])) =>
                {
                    AwkEffects::Writes(file.to_owned())
                }
                _ => AwkEffects::Unread,
            }
        }
        (true, true) => AwkEffects::Unread,
    }
}

/// Returns the first statement of an awk program without texts. A newline ends it only after a
/// token that can end an expression; otherwise the statement continues on the next line.
fn statement(text: &str) -> &str {
    let ends = |(at, sign): &(usize, char)| {
        let ends_expression =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | ')' | ']' | '}');
        let before = text[..*at]
            .trim_end_matches([' ', '\t', '\r'])
            .chars()
            .next_back();
        let continues = text[*at..]
            .trim_start()
            .starts_with(['>', '|', '&', ',', '?', ':']);
        matches!(sign, ';' | '}') || (before.is_some_and(ends_expression) && !continues)
    };
    let end = text
        .char_indices()
        .filter(|(_, c)| matches!(c, ';' | '}' | '\n'))
        .find(ends);
    end.map_or(text, |(at, _)| &text[..at])
}

fn outside_brackets(text: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// Removes the texts and patterns of an awk program. `None` if a slash may be a division or start a
/// pattern, or if a set in a pattern contains a delimiter.
fn without_texts(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            '"' => {
                out.push('"');
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => drop(letters.next()?),
                        '\n' => return None,
                        _ => {}
                    }
                }
            }
            '#' => return None,
            '/' => match out.trim_end().chars().next_back() {
                None | Some('{' | '}' | '(' | ',' | ';' | '!' | '~' | '&' | '|') => loop {
                    match letters.next()? {
                        '/' => {
                            out.push('"');
                            break;
                        }
                        '\\' => drop(letters.next()?),
                        '[' | '\n' => return None,
                        _ => {}
                    }
                },
                Some(c) if c.is_alphanumeric() || c == '_' || c == ')' || c == ']' => out.push('/'),
                _ => return None,
            },
            c => out.push(c),
        }
    }
    Some(out)
}

/// Returns the commands that an awk program starts if each of them is literal.
fn started_commands(text: &str) -> Option<Vec<&str>> {
    let command = |after: &'_ str| -> Option<(usize, usize)> {
        let inner = after.trim_start().strip_prefix('"')?;
        let start = after.len() - inner.len();
        let end = inner.find('"')?;
        (!inner[..end].contains('\\')).then_some((start, start + end))
    };
    let mut found = vec![];
    for (at, word) in text.match_indices("system") {
        let after = text[at + word.len()..].trim_start().strip_prefix('(')?;
        let (start, end) = command(after)?;
        after[end + 1..].trim_start().strip_prefix(')')?;
        found.push(&after[start..end]);
    }
    let mut rest = text;
    while let Some(at) = rest.find('|') {
        if let Some(after) = rest[at..].strip_prefix("||") {
            rest = after;
            continue;
        }
        let after = rest[at + 1..].trim_start_matches('&');
        let before = rest[..at].trim_end();
        let getline = after.trim_start().starts_with("getline");
        if getline {
            let inner = before.strip_suffix('"')?;
            let start = inner.rfind('"')?;
            let joined = inner[..start].trim_end().chars().next_back();
            if joined.is_some_and(|c| !matches!(c, '{' | '(' | ';' | '\n' | '!' | '}')) {
                return None;
            }
            found.push(&inner[start + 1..]);
            rest = after;
        } else {
            let (start, end) = command(after)?;
            let next = after[end + 1..].trim_start_matches([' ', '\t']);
            if !(next.is_empty() || next.starts_with([';', '}', '\n', ')'])) {
                return None;
            }
            // A command that executes its input may run the printed text.
            let command = &after[start..end];
            if !code::is_plain(command) {
                return None;
            }
            found.push(command);
            rest = &after[end + 1..];
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_programs_are_classified() {
        let plain = [
            "s/a/b/g",
            "1,5p;10q",
            "/x/,/y/{s|a|b|;d}",
            "a text w x",
            "$!N;s/\\n/ /",
            ":a;N;ba",
        ];
        for program in plain {
            assert_eq!(sed_effects(program), Some(vec![]), "{program}");
        }
        let table = [
            ("w PWN", ('w', "PWN")),
            ("s/a/b/w out", ('w', "out")),
            ("s/.*/date/e", ('e', "")),
            ("1e touch PWN", ('e', "touch PWN")),
            ("$r /etc/passwd", ('r', "/etc/passwd")),
        ];
        for (program, (letter, text)) in table {
            assert_eq!(
                sed_effects(program),
                Some(vec![(letter, text.to_owned())]),
                "{program}"
            );
        }
        for program in [
            "s/a",
            "a foo\\\ne rm x",
            "s/[/]/x/",
            "k",
            "s/a/b/x",
            ":a}e rm x",
        ] {
            assert_eq!(sed_effects(program), None, "{program}");
        }
    }

    #[test]
    fn awk_assigns_to_names_alone() {
        for word in ["a=1", "_a9=/x", "FS=,"] {
            assert!(assigns(word), "{word}");
        }
        for word in ["./a=b/../../notes", "1=x", "=x", "a b=x", "a"] {
            assert!(!assigns(word), "{word}");
        }
    }

    #[test]
    fn awk_programs_are_classified() {
        let plain = [
            "{print $1}",
            "$1 > 5 {print}",
            "/a|b/ {n++} END {print n}",
            "{print ($1 > 2)}",
            "a || b",
            "{s+=$1/2}",
        ];
        for program in plain {
            assert_eq!(awk_effects(program), AwkEffects::None, "{program}");
        }
        for program in [
            "BEGIN{system(\"x\")}",
            "{print | \"sh\"}",
            "{\"ls\" | getline}",
            "BEGIN{print ENVIRON[\"X\"]}",
        ] {
            assert_eq!(awk_effects(program), AwkEffects::Starts, "{program}");
        }
        let continued = [
            "BEGIN{print \"a\",\n\"b\" > \"out\"}",
            "BEGIN{print \"a\" \\\n\"b\" > \"out\"}",
            "BEGIN{print 1 ||\n2 > \"out\"}",
            "BEGIN{print 1 && \n\n2 > \"out\"}",
        ];
        for program in ["{print 1 > \"out\"}"].iter().chain(&continued) {
            assert_eq!(
                awk_effects(program),
                AwkEffects::Writes("out".into()),
                "{program}"
            );
        }
        assert_eq!(awk_effects("{print $1\nif ($2 > 1) n++}"), AwkEffects::None);
        let unread = [
            "{print 1 >> $2}",
            "{while ((getline l < \".env\") > 0) print l}",
            "BEGIN{i=1;i++ / 2; print \"x\" > \"f\"; i / 2}",
            "/[/\"]/ {} {print > \"x\"} #\"",
            "BEGIN{ARGV[1]=\"x\"}",
            "BEGIN{print 1 && # no\n2 > \"f\"}",
        ];
        for program in unread {
            assert_eq!(awk_effects(program), AwkEffects::Unread, "{program}");
        }
        let plain = [
            ("BEGIN{system(\"touch x\")}", "touch x"),
            ("{print | \"sort -n\"}", "sort -n"),
            ("{\"date\" | getline d}", "date"),
        ];
        for (program, command) in plain {
            assert_eq!(started_commands(program), Some(vec![command]), "{program}");
        }
        let computed = [
            "BEGIN{system(c)}",
            "{print | \"so\" \"rt\"}",
            "{system(\"a\" $1)}",
            "{a = \"r\" \"m x\" | getline}",
            "{print | c}",
            "{print | \"sh\"}",
        ];
        for program in computed {
            assert_eq!(started_commands(program), None, "{program}");
        }
    }
}
