//! Programs that run others, as far as their words are not data.

use super::read::ParsedArgs;
use super::table::{self, OptionEffect, Utility};
use super::{EffectCollector, RunEffect, ShellEffect, UnitEffect};
use crate::Access;
use crate::shell::expand::{Arg, StdinSource};
use crate::shell::unit::Effect;

/// Handles `NAME=value` before a program. Returns `false` if it took the words after it.
pub(super) fn settings_first(
    collector: &mut EffectCollector<'_>,
    program: &'static Utility,
    reading: &ParsedArgs,
    at: usize,
) -> bool {
    let mut at = at;
    while let Some(arg) = reading
        .operands
        .get(at)
        .filter(|arg| arg.prefix().contains('='))
    {
        if arg.is_several() {
            collector.set_opaque("a variable's value may continue with the name of a program");
        }
        if program.special == "env" {
            let name = arg.prefix().split('=').next().unwrap_or_default();
            collector.add(ShellEffect::Variable(name.to_owned()));
        } else {
            collector.set_opaque("variables are set for a program that runs as another user");
        }
        at += 1;
    }
    let rest = reading.operands.get(at..).unwrap_or_default();
    if !rest.is_empty() {
        collector.add(RunEffect::Run {
            words: rest.to_vec(),
            is_conditional: false,
        });
    } else if program.special == "env" {
        // It prints all variables, which may include secrets.
        collector.effect(Effect::Unproven);
    }
    false
}

pub(super) fn env(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) -> bool {
    for option in &reading.options {
        if matches!(&*option.name, "-u" | "--unset")
            && let Some(name) = &option.value
        {
            collector.add(UnitEffect::Unset(name.clone()));
        }
    }
    let Some(option) = reading
        .options
        .iter()
        .find(|option| option.does == Some(OptionEffect::Splits))
    else {
        if reading.operands.is_empty() {
            // It prints all variables, which may include secrets.
            collector.effect(Effect::Unproven);
        }
        return true;
    };
    match option.value.as_ref().and_then(Arg::text) {
        Some(text) if !text.contains(['\\', '$', '#']) => match split(text) {
            Some(words) => {
                let words = words.into_iter().map(Arg::exact);
                let all: Vec<Arg> = words.chain(reading.operands.iter().cloned()).collect();
                if let Some(env) = table::program("env") {
                    collector.program(env, &all);
                }
            }
            None => collector.set_opaque("a quote in the text it splits is not closed"),
        },
        _ => collector.set_opaque("it splits a text into a command"),
    }
    false
}

/// Splits a text like `env -S`, without escapes and variables. `None` if a quote is open.
fn split(text: &str) -> Option<Vec<String>> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == c => break,
                        inner => word.push(inner),
                    }
                }
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Handles an entry that several programs share. An option with a value in one of them may have
/// none in another, so the program may begin with the supposed value.
pub(super) fn runner(collector: &mut EffectCollector<'_>, reading: &ParsedArgs, args: &[Arg]) {
    for option in &reading.options {
        let Some(value) = &option.value else { continue };
        let Some(from) = option.next.checked_sub(1).and_then(|at| args.get(at..)) else {
            continue;
        };
        let is_separate = from
            .first()
            .is_some_and(|arg| arg.raw == value.raw && !arg.prefix().starts_with('-'));
        let is_program_char = |c: char| c.is_ascii_alphanumeric() || "_./+-".contains(c);
        let may_be_program = value.text().is_none_or(|text| {
            text.chars().all(is_program_char) && !text.starts_with(|c: char| c.is_ascii_digit())
        });
        if is_separate
            && option.name.len() == 2
            && option.does == Some(OptionEffect::Harmless)
            && may_be_program
        {
            collector.add(RunEffect::Run {
                words: from.to_vec(),
                is_conditional: true,
            });
        }
    }
}

/// Handles `setarch [architecture] [options] program`. Returns `false` if it took the words.
pub(super) fn setarch(collector: &mut EffectCollector<'_>, args: &[Arg]) -> bool {
    let Some(first) = args.first() else {
        return true;
    };
    let is_option = first.prefix().starts_with('-');
    if !is_option && first.text().is_none() {
        collector.set_opaque("which of its words is the program is not known");
    }
    if let Some(entry) = table::program("linux64") {
        collector.program(entry, if is_option { args } else { &args[1..] });
    }
    false
}

pub(super) fn xargs(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    let marks = ["-I", "-i", "--replace", "-J"];
    let replaced = reading
        .options
        .iter()
        .find(|option| marks.contains(&&*option.name))
        .map(|option| {
            option
                .value
                .as_ref()
                .and_then(Arg::text)
                .filter(|text| !text.is_empty())
                .unwrap_or("{}")
                .to_owned()
        });
    let fill = |arg: &Arg| match &replaced {
        Some(mark) if arg.text().is_some_and(|text| text.contains(mark.as_str())) => {
            Arg::filled(arg.text().unwrap_or_default(), mark)
        }
        _ => arg.clone(),
    };
    let mut words: Vec<Arg> = reading.operands.iter().map(fill).collect();
    if words.is_empty() {
        return;
    }
    if replaced.is_none() {
        words.push(if collector.context.has_selected_names {
            Arg::found().repeated()
        } else {
            Arg::unknown("…")
        });
    } else if collector.context.has_selected_names {
        words
            .iter_mut()
            .filter(|arg| arg.is_unknown())
            .for_each(|arg| *arg = Arg::found());
    }
    collector.add(RunEffect::Run {
        words,
        is_conditional: false,
    });
}

/// Handles programs that read commands from their input. Returns `false` if it took the words.
pub(super) fn input_commands(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    operands: &[Arg],
) -> bool {
    match collector.context.input.clone() {
        StdinSource::Nothing => {}
        StdinSource::Text(Some(text)) if ["su", "runuser"].contains(&program.name) => {
            collector.add(RunEffect::Text {
                text: Arg::exact(text),
                is_conditional: false,
            });
        }
        StdinSource::Text(Some(text)) => {
            collector.set_may_be_denied("it reads commands from its input");
            collector.add(UnitEffect::ForeignCode(text));
        }
        StdinSource::Pipe | StdinSource::Text(None) => {
            collector.set_opaque("it reads commands from its input")
        }
    }
    match program.name {
        "su" | "runuser" => user(collector, operands),
        "parallel" => parallel(collector, operands),
        _ => true,
    }
}

pub(super) fn flock(
    collector: &mut EffectCollector<'_>,
    operands: &[Arg],
    text: Option<Arg>,
) -> bool {
    operands
        .first()
        .into_iter()
        .for_each(|lock| collector.uses(Access::Edit, lock));
    let rest = operands.get(1..).unwrap_or_default();
    let has_option = rest
        .first()
        .is_some_and(|arg| arg.is("-c") || arg.is("--command"));
    let after = if has_option {
        rest.get(1).cloned()
    } else {
        None
    };
    match text.or(after) {
        Some(text) => collector.add(RunEffect::Text {
            text,
            is_conditional: false,
        }),
        None if !rest.is_empty() => collector.add(RunEffect::Run {
            words: rest.to_vec(),
            is_conditional: false,
        }),
        None => {}
    }
    false
}

/// Handles `su bob -c text`: options are also allowed after the user.
fn user(collector: &mut EffectCollector<'_>, operands: &[Arg]) -> bool {
    let texts = operands.windows(2).filter(|pair| {
        pair[0].is("-c") || pair[0].is("--command") || pair[0].is("--session-command")
    });
    for pair in texts {
        collector.add(RunEffect::Text {
            text: pair[1].clone(),
            is_conditional: false,
        });
    }
    for arg in operands {
        if let Some(at) = ["--command=", "--session-command="]
            .iter()
            .find(|start| arg.prefix().starts_with(**start))
        {
            collector.add(RunEffect::Text {
                text: arg.after(at.len()),
                is_conditional: false,
            });
        }
    }
    true
}

fn parallel(collector: &mut EffectCollector<'_>, operands: &[Arg]) -> bool {
    let end = operands
        .iter()
        .position(|arg| arg.prefix().starts_with(":::"))
        .unwrap_or(operands.len());
    if end == 0 {
        // `parallel ::: text`: each is a command.
        for text in operands
            .iter()
            .filter(|arg| !arg.prefix().starts_with(":::"))
        {
            collector.add(RunEffect::Text {
                text: text.clone(),
                is_conditional: false,
            });
        }
        return false;
    }
    let mut words = operands[..end].to_vec();
    words.push(Arg::unknown("…"));
    collector.add(UnitEffect::MayStartProgram(operands.to_vec()));
    collector.add(RunEffect::Run {
        words,
        is_conditional: false,
    });
    false
}
