//! The parts of programs that are not data: words whose meaning depends on other words, and values
//! in small languages of their own.

use std::path::Path;

use super::read::{GivenOption, ParsedArgs};
use super::table::{self, Operand, OptionEffect, Utility};
use super::{
    EffectCollector, NameSelection, PathEffect, RunEffect, ShellEffect, UnitEffect, languages,
    network, recursive, rename, wrapper,
};
use crate::protected::control;
use crate::shell::expand::{Arg, StdinSource};
use crate::shell::unit::Effect;
use crate::{Access, Action};

/// Adds the other name of a compressed file: `x.gz` becomes `x`, and `x` becomes `x.gz`, or has the
/// given suffix.
fn add_other_names(collector: &mut EffectCollector<'_>, arg: &Arg, suffix: Option<Arg>) {
    let Some(name) = arg.text() else { return };
    if let Some((plain, _)) = name.rsplit_once('.') {
        collector.uses(Access::Edit, &Arg::exact(plain));
    }
    match suffix.as_ref().map(Arg::text) {
        Some(Some(suffix)) => collector.uses(Access::Edit, &Arg::exact(format!("{name}{suffix}"))),
        Some(None) => collector.uses(Access::Edit, &Arg::unknown(name)),
        None => {}
    }
}

/// Handles the special parts of a program. Returns `false` if the words have no further roles.
pub(super) fn words(
    collector: &mut EffectCollector<'_>,
    program: &'static Utility,
    reading: &ParsedArgs,
    args: &[Arg],
) -> bool {
    let operands = reading.operands.as_slice();
    let value = |names: &[&str]| {
        reading
            .options
            .iter()
            .find(|option| names.contains(&&*option.name))
            .and_then(|option| option.value.clone())
    };
    match program.special {
        "shell" => languages::shell(collector, args, false),
        "foreign shell" => languages::shell(collector, args, true),
        "sed" => languages::sed(collector, reading),
        "awk" => languages::awk(collector, reading),
        "language" => languages::language(collector, program, reading, args),
        "env" => return wrapper::env(collector, reading),
        "xargs" => wrapper::xargs(collector, reading),
        "runner" => wrapper::runner(collector, reading, args),
        "setarch" => return wrapper::setarch(collector, args),
        "git" => return git(collector, program, reading),
        // The shell on the other machine reads the input.
        "ssh" => {
            if let StdinSource::Text(Some(text)) = collector.context.input.clone() {
                collector.add(UnitEffect::ForeignCode(text));
            }
        }
        "git diff" => {
            if no_index(reading) {
                operands.iter().for_each(|arg| {
                    recursive::reads_below(collector, arg, NameSelection::default())
                });
            }
        }
        // A rule for `git diff*` was not meant for this command.
        "danger" => {
            collector.add_dangerous_option(program.name.split(' ').nth(1).unwrap_or_default())
        }
        "git config" => return git_config(collector, operands),
        // An expression determines the new names of the files.
        "rename" => {
            operands
                .iter()
                .filter_map(Arg::text)
                .for_each(|text| collector.names_files(text, true));
            rename::rename(collector, reading);
        }
        "git apply" => collector.add(PathEffect::Patches(operands.to_vec())),
        "compress" => operands
            .iter()
            .for_each(|arg| add_other_names(collector, arg, value(&["-S", "--suffix"]))),
        "unpack" | "archive" => archive(collector, program, reading),
        // It runs in the repositories that a setting names, wherever they are.
        "each repository" => {
            collector.add(ShellEffect::UnknownDirectory);
            collector.add(RunEffect::Run {
                words: std::iter::once(Arg::exact("git"))
                    .chain(operands.iter().cloned())
                    .collect(),
                is_conditional: false,
            });
        }
        "patch" => {
            if operands.is_empty() {
                collector.add(UnitEffect::Unknown(
                    "the files it changes are named in the patch".to_owned(),
                ));
            }
        }
        "flock" => return wrapper::flock(collector, operands, value(&["-c", "--command"])),
        "script" if value(&["-c", "--command"]).is_none() => {
            collector.set_opaque("it starts an interactive shell")
        }
        "commands" | "parallel" => return wrapper::input_commands(collector, program, operands),
        "rsync" if args.iter().any(|arg| arg.prefix().starts_with("--del")) => {
            let to = operands.last().cloned();
            collector.add(PathEffect::ChangeTree {
                paths: to.into_iter().collect(),
                asks_if_unknown: true,
            });
        }
        "curl" => network::curl(collector, program, reading),
        "wget" => network::wget(collector, reading),
        "git push" => network::push(collector, reading),
        "sockets" => sockets(collector, args),
        "make" => make(collector, reading, args),
        "diskutil" => {
            let verbs = ["erase", "partition", "zero", "random", "secure", "reformat"];
            if operands
                .first()
                .and_then(Arg::text)
                .is_some_and(|verb| verbs.iter().any(|start| verb.starts_with(start)))
            {
                collector.add(UnitEffect::Minimum(
                    Action::Deny,
                    "it writes to whole disks".to_owned(),
                ));
            }
        }
        _ => reader(collector, program, reading, args),
    }
    !matches!(
        program.special,
        "sed" | "awk" | "language" | "shell" | "foreign shell" | "xargs"
    )
}

/// Returns whether `git diff` compares two files or directories as they are, which it also does if
/// one of them is outside the repository.
fn no_index(reading: &ParsedArgs) -> bool {
    let is_outside = |arg: &Arg| {
        arg.prefix().starts_with('/') || arg.prefix().split('/').any(|part| part == "..")
    };
    reading.has(&["--no-index"])
        || (reading.operands.len() == 2 && reading.operands.iter().any(is_outside))
}

/// Handles programs that only read unless their words are unusual.
fn reader(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    args: &[Arg],
) {
    let operands = reading.operands.as_slice();
    match program.special {
        "rg" => recursive::ripgrep(collector, program, reading),
        "diff" => recursive::diff(collector, reading),
        "jq" if reading.has(&["-f", "--from-file"]) => {
            collector.add_dangerous_option("-f");
            collector.effect(Effect::Unproven);
        }
        "jq" if operands.first().is_some_and(imports) => {
            collector.add_dangerous_option("import");
            collector.effect(Effect::Unproven);
            collector.uses(Access::Read, &Arg::unknown("a module"));
        }
        // It can print all variables.
        "jq" if args
            .iter()
            .any(|arg| arg.prefix().contains("env") || arg.prefix().contains("$ENV")) =>
        {
            collector.effect(Effect::Unproven);
        }
        // It opens other files, prints variables, runs programs.
        "yq" if args.iter().any(|arg| {
            !arg.known()
                || ["load", "env", "system"]
                    .iter()
                    .any(|word| arg.prefix().contains(word))
        }) =>
        {
            collector.effect(Effect::Unproven);
            collector.set_may_be_denied("its program may read files and run programs");
        }
        "ps" if operands
            .iter()
            .any(|arg| arg.text().is_none_or(|text| text.contains(['e', 'E']))) =>
        {
            collector.effect(Effect::Unproven);
        }
        // `@file` is a file of options.
        "binutils" if operands.iter().any(|arg| arg.prefix().starts_with('@')) => {
            collector.add_dangerous_option("@");
            collector.effect(Effect::Unproven);
        }
        "pager" => {
            for arg in operands.iter().filter(|arg| arg.prefix().starts_with('+')) {
                collector.effect(Effect::Unproven);
                collector.add_foreign_code(Some(arg));
                // A position to start at; anything else may be a command that starts a program or
                // saves a file.
                if arg.text().is_none_or(|text| {
                    !text
                        .chars()
                        .all(|c| c.is_ascii_digit() || "+%GF".contains(c))
                }) {
                    collector.add_dangerous_option("+");
                }
            }
        }
        _ => {}
    }
}

/// Returns whether a program of jq reads modules. It names them at the beginning; text after a
/// comment may begin a line of its own.
fn imports(program: &Arg) -> bool {
    const IMPORT_KEYWORDS: [&str; 3] = ["import", "include", "modulemeta"];
    let text = program.prefix();
    let reads = IMPORT_KEYWORDS
        .iter()
        .flat_map(|word| text.match_indices(word))
        .any(|(at, word)| {
            let before = text[..at].trim_end();
            let after = &text[at + word.len()..];
            let is_first = before.is_empty()
                || before.ends_with(';')
                || before.contains('#')
                || word == "modulemeta";
            is_first && !text[..at].ends_with(is_word_char) && !after.starts_with(is_word_char)
        });
    reads || (!program.known() && text.chars().all(|c| is_word_char(c) || c.is_whitespace()))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Handles a format of git. One that shows signatures starts a program to verify them, and the name
/// of a format in the settings may be such a one.
pub(super) fn formats(collector: &mut EffectCollector<'_>, option: &GivenOption) {
    const BUILT_IN_FORMATS: [&str; 9] = [
        "oneline",
        "short",
        "medium",
        "full",
        "fuller",
        "reference",
        "email",
        "raw",
        "mboxrd",
    ];
    let Some(value) = &option.value else { return };
    let is_plain = value.text().is_some_and(|text| {
        (&*option.name == "--sort"
            || text.contains('%')
            || BUILT_IN_FORMATS.contains(&text)
            || text.starts_with("format:")
            || text.starts_with("tformat:"))
            && !text.contains("%G")
            && !text.contains("signature")
    });
    if !is_plain {
        collector.add_dangerous_option(if value.prefix().contains("%G") {
            "%G"
        } else {
            &option.name
        });
        collector.effect(Effect::Unproven);
    }
}

/// Handles `git -c key=value`: accepts settings that start nothing.
pub(super) fn settings(collector: &mut EffectCollector<'_>, option: &GivenOption) {
    const HARMLESS_GIT_SETTINGS: [&str; 12] = [
        "color.",
        "user.name",
        "user.email",
        "advice.",
        "log.date",
        "log.decorate",
        "log.abbrevcommit",
        "column.",
        "status.",
        "i18n.",
        "core.quotepath",
        "core.abbrev",
    ];
    const PAIRS: [&str; 4] = [
        "core.fsmonitor=false",
        "core.pager=cat",
        "safe.barerepository=explicit",
        "core.hookspath=/dev/null",
    ];
    collector.add_dangerous_option("-c");
    let set = option
        .value
        .as_ref()
        .map(|arg| arg.prefix().to_ascii_lowercase())
        .unwrap_or_default();
    let key = set.split('=').next().unwrap_or_default();
    if !HARMLESS_GIT_SETTINGS
        .iter()
        .any(|start| key.starts_with(start))
        && !PAIRS.contains(&set.as_str())
    {
        collector.set_opaque("a setting for this one command may start a program");
        collector.add_foreign_code(option.value.as_ref());
    }
}

/// Handles `ssh -o Key=value`: accepts settings that start and write nothing. The key ends at a
/// blank or `=`, as in ssh.
pub(super) fn ssh_option(collector: &mut EffectCollector<'_>, option: &GivenOption) {
    #[rustfmt::skip]
    const HARMLESS_SSH_OPTIONS: [&str; 56] = [
        "addkeystoagent", "addressfamily", "batchmode", "bindaddress", "bindinterface", "canonicaldomains",
        "canonicalizefallbacklocal", "canonicalizehostname", "canonicalizemaxdots", "casignaturealgorithms",
        "checkhostip", "ciphers", "clearallforwardings", "compression", "connectionattempts", "connecttimeout",
        "escapechar", "exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "gatewayports",
        "gssapiauthentication", "gssapidelegatecredentials", "hashknownhosts", "hostbasedauthentication",
        "hostkeyalgorithms", "hostkeyalias", "hostname", "identitiesonly", "ipqos", "kbdinteractiveauthentication",
        "kexalgorithms", "localforward", "loglevel", "macs", "nohostauthenticationforlocalhost",
        "numberofpasswordprompts", "passwordauthentication", "port", "preferredauthentications", "proxyjump",
        "pubkeyauthentication", "rekeylimit", "remoteforward", "requesttty", "sendenv", "serveralivecountmax",
        "serveraliveinterval", "sessiontype", "stricthostkeychecking", "tcpkeepalive", "updatehostkeys", "user",
        "verifyhostkeydns", "visualhostkey",
    ];
    const WRITES: [&str; 3] = ["userknownhostsfile", "controlpath", "globalknownhostsfile"];
    let Some(value) = &option.value else { return };
    let text = value.prefix();
    let start = text.len() - text.trim_start().len();
    let end = text[start..]
        .find(|c: char| c == '=' || c.is_whitespace())
        .map_or(text.len(), |at| at + start);
    let key = text[start..end].to_ascii_lowercase();
    let rest = value.after((end + 1).min(text.len()));
    if key.is_empty() || !value.known() {
        collector.set_opaque("its settings are computed");
    } else if WRITES.contains(&key.as_str()) {
        collector.add_dangerous_option("-o");
        collector.uses(Access::Edit, &rest);
    } else if key == "identityfile" {
        collector.uses(Access::Read, &rest);
    } else if !HARMLESS_SSH_OPTIONS.contains(&key.as_str()) {
        collector.add_dangerous_option("-o");
        collector.add(RunEffect::Text {
            text: rest,
            is_conditional: true,
        });
    }
}

/// Handles the target of a copy or a link, after the other words.
pub(super) fn copy(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    at: usize,
) {
    const LINKS: [&str; 12] = [
        "-s",
        "--symbolic",
        "--symbolic-link",
        "-a",
        "-d",
        "-P",
        "-R",
        "-r",
        "--archive",
        "--no-dereference",
        "--recursive",
        "-l",
    ];
    let keeps_links = reading.has(&LINKS);
    let from = reading.operands[..at].to_vec();
    if reading.has(&["-r", "-R", "-a", "--recursive", "--archive"]) {
        from.iter().for_each(|arg| {
            collector.add(PathEffect::ReadTree(arg.clone(), NameSelection::default()))
        });
        collector.add(PathEffect::CopyTree {
            from: from.clone(),
            to: reading.operands[at].clone(),
        });
    }
    let link = program.name == "ln";
    if from.is_empty() {
        // `ln -s target` creates the link here.
        collector.uses(Access::Read, &reading.operands[at]);
        collector.add(PathEffect::Link(Arg::unknown(".")));
    }
    collector.add(PathEffect::Copy {
        from,
        to: reading.operands[at].clone(),
        link,
        keeps_links,
    });
}

/// Asks about operands of `git checkout`, `restore` and `rm` that name all files.
pub(super) fn lost(
    collector: &mut EffectCollector<'_>,
    role: Operand,
    arg: &Arg,
    reading: &ParsedArgs,
) {
    let everything = [".", "./", ":/", "*", ":(top)"]
        .iter()
        .any(|text| arg.is(text))
        || arg.pattern().is_some();
    if everything && (role == Operand::Lost || reading.has(&["-r"])) {
        let reason = if role == Operand::Lost {
            "uncommitted changes are lost for good"
        } else {
            "every file is removed"
        };
        collector.add(UnitEffect::Minimum(Action::Ask, reason.to_owned()));
    }
}

/// Handles a word that selects another entry, with the words after it.
pub(super) fn command(
    collector: &mut EffectCollector<'_>,
    program: &'static Utility,
    arg: &Arg,
    rest: &[Arg],
) {
    let Some(name) = arg.text() else {
        collector.effect(Effect::Unproven);
        collector.add(UnitEffect::GitSubcommand(rest.to_vec()));
        return;
    };
    let called = format!("{} {name}", collector.called);
    if let Some(entry) = table::program(&called) {
        collector.called = called;
        return collector.program(entry, rest);
    }
    collector.effect(Effect::Unproven);
    let mut all = vec![arg.clone()];
    all.extend(rest.iter().cloned());
    if program.special == "git" || program.name.starts_with("git ") {
        collector.add(UnitEffect::GitSubcommand(rest.to_vec()));
    } else {
        if program.runs_other_programs {
            collector.add(UnitEffect::MayStartProgram(all.clone()));
        }
        collector.add_unknown_program(&all);
        collector.leaves(&all);
    }
}

fn git(
    collector: &mut EffectCollector<'_>,
    program: &'static Utility,
    reading: &ParsedArgs,
) -> bool {
    let Some(name) = reading.operands.first() else {
        return false;
    };
    let Some(command) = name.text() else {
        collector.effect(Effect::Unproven);
        return false;
    };
    let rest = reading.operands[1..].to_vec();
    if rest.iter().any(|arg| arg.is("--help")) {
        collector.effect(Effect::Unproven);
    }
    self::command(collector, program, name, &rest);
    // These commands replace the contents of the files that they name.
    if matches!(
        command,
        "checkout" | "restore" | "mv" | "rm" | "checkout-index"
    ) {
        rest.iter()
            .filter(is_control)
            .for_each(|arg| collector.uses(Access::Edit, arg));
    }
    // The programs that the repository's settings start depend on the command's own effects.
    collector.add(RunEffect::Repository {
        command: command.to_owned(),
        args: rest.clone(),
    });
    collector.add(PathEffect::GitPaths(rest));
    false
}

fn is_control(arg: &&Arg) -> bool {
    arg.text().is_some_and(|text| control(Path::new(text)))
}

fn git_config(collector: &mut EffectCollector<'_>, operands: &[Arg]) -> bool {
    // `git config name` shows it, `git config name value` sets it.
    let first = operands.first().and_then(Arg::text).unwrap_or_default();
    let known = table::program(&format!("git config {first}")).is_some();
    let shows = operands.len() == 1 && first.contains('.');
    if !known && !shows {
        collector.add_dangerous_option("config");
        collector.effect(Effect::Writes);
        collector.add(UnitEffect::Minimum(
            Action::Ask,
            "git's settings decide what it starts".to_owned(),
        ));
    }
    known
}

fn archive(collector: &mut EffectCollector<'_>, program: &Utility, reading: &ParsedArgs) {
    let is_file_option = |option: &&GivenOption| matches!(&*option.name, "-f" | "--file");
    let is_remote = |text: &str| text.contains(':');
    let archive = reading
        .options
        .iter()
        .find(is_file_option)
        .and_then(|option| option.value.as_ref());
    if archive.and_then(Arg::text).is_some_and(is_remote) && !reading.has(&["--force-local"]) {
        collector.add(UnitEffect::Network);
        collector.effect(Effect::Unproven);
    }
    if collector.called == "cpio" && collector.all.iter().any(copies_out) {
        collector.add(UnitEffect::Unknown(
            "the files it reads are named in its input".to_owned(),
        ));
    }
    if program.special == "unpack" {
        collector.uses(Access::Edit, &Arg::exact("."));
        let is_packing = |arg: &Arg| {
            arg.is("a")
                || ["-o", "r", "-r", "q", "-q", "l", "t"]
                    .iter()
                    .any(|word| arg.prefix().starts_with(word))
        };
        let packs_instead =
            !matches!(program.name, "tar" | "unzip") && collector.all.iter().any(is_packing);
        let named = reading
            .operands
            .iter()
            .skip(usize::from(program.name == "unzip"));
        let renamed = reading.has(&["--transform", "--xform"]);
        if renamed
            || !packs_instead
                && (named.clone().next().is_none() || named.clone().any(|arg| !arg.known()))
        {
            collector.add(PathEffect::Unpacks);
        }
        reading
            .operands
            .iter()
            .filter(is_control)
            .for_each(|arg| collector.uses(Access::Edit, arg));
        collector.add(PathEffect::Link(Arg::unknown(".")));
    }
}

/// Returns whether cpio reads the names of the files to copy from its input: `cpio -o`, `cpio
/// -pdm`.
fn copies_out(arg: &Arg) -> bool {
    let text = arg.prefix();
    match text.strip_prefix("--") {
        Some(long) => {
            !long.is_empty()
                && ["create", "pass-through"]
                    .iter()
                    .any(|name| name.starts_with(long))
        }
        None => text.starts_with('-') && text.contains(['o', 'p']),
    }
}

/// Handles programs that connect files, sockets and other programs.
fn sockets(collector: &mut EffectCollector<'_>, args: &[Arg]) {
    for arg in args {
        let text = arg.prefix().to_ascii_lowercase();
        let starts = ["exec", "system", "shell"]
            .iter()
            .any(|word| text.contains(word));
        if starts
            || ["-e", "-c", "--sh-exec"]
                .iter()
                .any(|option| text == *option)
            || !arg.known()
        {
            collector.add(UnitEffect::NotPreventedBySandbox(
                "it hands a program to the network".to_owned(),
            ));
        }
        collector.add_foreign_code(Some(arg));
    }
}

fn make(collector: &mut EffectCollector<'_>, reading: &ParsedArgs, args: &[Arg]) {
    let is_pipe =
        |text: &str| text == "-" || text.starts_with("/dev/") || text.starts_with("/proc/");
    for option in &reading.options {
        match option.does {
            Some(OptionEffect::File) => {
                if option
                    .value
                    .as_ref()
                    .is_none_or(|file| file.text().is_none_or(is_pipe))
                {
                    collector.set_opaque("its program comes from its input");
                }
                if let Some(file) = &option.value {
                    collector.uses(Access::Read, file);
                }
            }
            Some(OptionEffect::Program) => {
                collector.add_dangerous_option(&option.name);
                collector
                    .set_may_be_denied("it is given a makefile, and what that runs is not judged");
                collector.add_foreign_code(option.value.as_ref());
            }
            _ => {}
        }
    }
    for text in args
        .iter()
        .filter_map(Arg::text)
        .filter(|text| text.contains([' ', '=']))
    {
        collector.add(UnitEffect::ForeignCode(text.to_owned()));
        if text.contains("SHELL=") || text.contains("$(") {
            collector.set_may_be_denied("a variable of it decides what it starts");
        }
    }
}
