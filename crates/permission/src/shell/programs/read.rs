//! Parses the words of a program by its entry.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::table::{Opt, OptionEffect, Utility, ValueForm};
use crate::shell::expand::Arg;

/// An option among the words of a program.
#[derive(Debug)]
pub(super) struct GivenOption {
    /// The name, `-o` or `--output`; for an abbreviation, one of its possible meanings.
    pub(super) name: Rc<str>,
    /// `None` if the entry does not list the option.
    pub(super) does: Option<OptionEffect>,
    pub(super) value: Option<Arg>,
    /// The position of the next word, for options that continue there.
    pub(super) next: usize,
}

impl GivenOption {
    /// Returns the value, or an unknown word if there is none.
    pub(super) fn value_or_unknown(&self) -> Arg {
        self.value
            .clone()
            .unwrap_or_else(|| Arg::unknown(&self.name))
    }
}

/// The words of a program, divided into options and operands.
#[derive(Debug, Default)]
pub(super) struct ParsedArgs {
    pub(super) options: Vec<GivenOption>,
    pub(super) operands: Vec<Arg>,
    /// An unknown word may be an option.
    pub(super) may_have_unknown_option: bool,
    /// A word may be any number of unknown words.
    pub(super) may_have_unknown_words: bool,
    /// The names that were given. The first flag is true if a name was given without a value as an
    /// unlisted option, the second if as a listed one.
    names: BTreeMap<Rc<str>, [bool; 2]>,
}

impl ParsedArgs {
    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.names.contains_key(*name))
    }
}

pub(super) fn read(program: &Utility, args: &[Arg]) -> ParsedArgs {
    let mut reader = Reader {
        program,
        args,
        at: 0,
        reading: ParsedArgs::default(),
    };
    if program.may_begin_with_bundle {
        reader.bundle();
    }
    while let Some(arg) = args.get(reader.at) {
        if arg.is("--") && !program.has_whole_word_options {
            reader
                .reading
                .operands
                .extend(args[reader.at + 1..].iter().cloned());
            break;
        }
        reader.seen(arg);
        let text = arg.prefix();
        if reader.keyed(text) {
            continue;
        }
        if !text.starts_with('-') || arg.is("-") {
            reader.reading.may_have_unknown_option |= arg.may_be_option() && !arg.is("-");
            if program.options_end_at_operand {
                reader
                    .reading
                    .operands
                    .extend(args[reader.at..].iter().cloned());
                break;
            }
            reader.reading.operands.push(arg.clone());
            reader.at += 1;
            continue;
        }
        reader.at += 1;
        if program.exact.iter().any(|exact| arg.is(exact)) {
            reader.give(text, Some(OptionEffect::Harmless), None);
        } else if program.has_whole_word_options {
            reader.whole(arg);
        } else if text.starts_with("--") {
            reader.long(arg);
        } else {
            reader.letters(arg, 1);
        }
    }
    reader.reading
}

struct Reader<'a> {
    program: &'a Utility,
    args: &'a [Arg],
    at: usize,
    reading: ParsedArgs,
}

impl Reader<'_> {
    /// Records that a word may be split into options and words.
    fn seen(&mut self, arg: &Arg) {
        self.reading.may_have_unknown_option |= arg.is_any_number_of_words();
        self.reading.may_have_unknown_words |= arg.is_any_number_of_words();
    }

    fn give(&mut self, name: &str, does: Option<OptionEffect>, value: Option<Arg>) {
        let name = self
            .reading
            .names
            .get_key_value(name)
            .map_or_else(|| name.into(), |(known, _)| known.clone());
        let seen = self.reading.names.entry(Rc::clone(&name)).or_default();
        // A repetition without a value adds nothing.
        let alone = value.is_none() && !matches!(does, Some(OptionEffect::Until));
        if alone && std::mem::replace(&mut seen[usize::from(does.is_some())], true) {
            return;
        }
        self.reading.options.push(GivenOption {
            name,
            does,
            value,
            next: self.at,
        });
        if matches!(does, Some(OptionEffect::Until)) {
            let end = end_of_command(self.args, self.at);
            // One of its words may be its end.
            self.args
                .get(self.at..end)
                .unwrap_or_default()
                .iter()
                .for_each(|arg| self.seen(arg));
            self.at = self.at.max(end);
        }
    }

    /// Takes the next word as a value.
    fn next(&mut self) -> Option<Arg> {
        let value = self.args.get(self.at).cloned();
        if let Some(value) = &value {
            self.seen(value);
            // If a pattern matches several files, the first is the value. `find` refuses the
            // others, unless one has the name of an option.
            self.reading.may_have_unknown_option |=
                value.is_several() && self.program.special != "find";
        }
        self.at += usize::from(value.is_some());
        value
    }

    /// Parses `of=file`: a name without a dash that the entry lists.
    fn keyed(&mut self, text: &str) -> bool {
        let Some((name, _)) = text.split_once('=') else {
            return false;
        };
        if name.starts_with('-') || name.len() <= 1 {
            return false;
        }
        let Some(option) = self.program.option(name) else {
            return false;
        };
        let value = self.args[self.at].after(name.len() + 1);
        self.at += 1;
        self.give(name, Some(option.does), Some(value));
        true
    }

    /// Parses `xf a.tar`: letters without a dash, whose values follow in order.
    fn bundle(&mut self) {
        let Some(text) = self
            .args
            .first()
            .and_then(Arg::text)
            .filter(|text| !text.starts_with('-'))
        else {
            return;
        };
        self.at = 1;
        for letter in text.chars() {
            let option = self.program.option(letter.encode_utf8(&mut [0; 4]));
            let takes_value = option.is_some_and(|option| option.takes == ValueForm::Value);
            let value = if takes_value { self.next() } else { None };
            self.give(
                &format!("-{letter}"),
                option.map(|option| option.does),
                value,
            );
        }
    }

    /// Parses `-name value`, or a letter with an attached value if no such name is known.
    fn whole(&mut self, arg: &Arg) {
        let text = arg.prefix();
        let (name, attached) = match text.split_once('=') {
            Some((name, _)) => (name, Some(arg.after(name.len() + 1))),
            None => (text, None),
        };
        self.reading.may_have_unknown_option |= !arg.known() && attached.is_none();
        if let Some(option) = self.program.option(name) {
            let value = match (attached, option.takes) {
                (Some(value), _) => Some(value),
                (None, ValueForm::Value) if option.does != OptionEffect::Until => self.next(),
                (None, _) => None,
            };
            // A file and a format, which may look like an option.
            self.at += usize::from(name == "-fprintf");
            return self.give(name, Some(option.does), value);
        }
        let short = text
            .get(..2)
            .and_then(|short| Some((short, self.program.option(short)?)));
        if let Some((short, option)) =
            short.filter(|(_, option)| option.takes != ValueForm::Nothing)
        {
            self.give(short, Some(option.does), Some(arg.after(2)));
            let number = arg
                .text()
                .is_some_and(|text| text[2..].bytes().all(|byte| byte.is_ascii_digit()));
            if number && !text[2..].is_empty() {
                return;
            }
        }
        self.give(name, None, attached);
    }

    fn long(&mut self, arg: &Arg) {
        let text = arg.prefix();
        let (name, value) = match text.split_once('=') {
            Some((name, _)) => (name, Some(arg.after(name.len() + 1))),
            None => (text, None),
        };
        self.reading.may_have_unknown_option |= !arg.known() && value.is_none();
        let exact = self.program.option(name);
        let meant: Vec<(&str, Opt)> = match exact {
            Some(option) => vec![(name, option)],
            // `--` followed by an unknown text may be any option, which `unknown` records.
            None if name == "--" => vec![],
            None => self.program.meant(name).collect(),
        };
        let any_takes = |wanted| meant.iter().any(|(_, option)| option.takes == wanted);
        let takes = any_takes(ValueForm::Value);
        let second = any_takes(ValueForm::Second);
        if second {
            self.next();
        }
        let value = value.or_else(|| if takes || second { self.next() } else { None });
        for (name, option) in &meant {
            // The program refuses an ambiguous abbreviation; its harmful meanings count
            // nevertheless.
            if meant.len() <= 4 || option.does != OptionEffect::Harmless {
                self.give(name, Some(option.does), value.clone());
            }
        }
        if exact.is_none() {
            // Abbreviated or unknown, so its effect is not certain.
            self.give(name, None, if meant.is_empty() { value } else { None });
        }
    }

    /// Parses `-abc`, `-ofile`, `-o file`, from the byte `from` on.
    fn letters(&mut self, arg: &Arg, from: usize) {
        let text = arg.prefix();
        let letters = text.get(from..).unwrap_or_default();
        if letters.is_empty() {
            // `-` followed by an unknown text.
            self.reading.may_have_unknown_option = true;
            return;
        }
        let word = text.split('=').next().unwrap_or_default();
        if word.len() > 2
            && let Some(option) = self.program.option(word)
        {
            let attached = text.contains('=').then(|| arg.after(word.len() + 1));
            let value = attached.or_else(|| {
                if option.takes == ValueForm::Value {
                    self.next()
                } else {
                    None
                }
            });
            return self.give(word, Some(option.does), value);
        }
        if self.program.option("#").is_some()
            && arg.known()
            && letters.bytes().all(|byte| byte.is_ascii_digit())
        {
            return self.give("-#", Some(OptionEffect::Harmless), None);
        }
        for (offset, letter) in letters.char_indices() {
            if let Some((name, option)) = self.program.pair(&letters[offset..]) {
                let tail =
                    Some(arg.after(from + offset + name.len() - 1)).filter(|tail| !tail.is(""));
                let value = tail.or_else(|| self.next());
                return self.give(name, Some(option.does), value);
            }
            let name = format!("-{letter}");
            let end = from + offset + letter.len_utf8();
            let tail = || Some(arg.after(end)).filter(|tail| !tail.is(""));
            let Some(option) = self.program.option(&name[1..]) else {
                let digit = letter.is_ascii_digit() && self.program.option("#").is_some();
                self.give(&name, digit.then_some(OptionEffect::Harmless), None);
                continue;
            };
            match option.takes {
                ValueForm::Nothing if option.does == OptionEffect::Until => {
                    // `-xrm`: the command begins in the same word.
                    return self.give(&name, Some(option.does), tail());
                }
                ValueForm::Nothing => self.give(&name, Some(option.does), None),
                ValueForm::Attached => return self.give(&name, Some(option.does), tail()),
                ValueForm::Value | ValueForm::Second => {
                    let value = tail().or_else(|| self.next());
                    return self.give(&name, Some(option.does), value);
                }
            }
        }
        self.reading.may_have_unknown_option |= !arg.known();
    }
}

/// Returns the end of the command that begins at `at`: after `;` or after `{} +`, otherwise at the
/// last word.
pub(super) fn end_of_command(args: &[Arg], at: usize) -> usize {
    let rest = args.get(at..).unwrap_or_default();
    let end = rest.iter().enumerate().position(|(index, arg)| {
        arg.is(";") || (arg.is("+") && index > 0 && rest[index - 1].is("{}"))
    });
    end.map_or(args.len(), |end| at + end + 1)
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    fn given(program: &Utility, words: &[&str]) -> Vec<(Option<OptionEffect>, Option<String>)> {
        let args: Vec<Arg> = words.iter().map(|word| Arg::exact(*word)).collect();
        let value = |option: GivenOption| {
            (
                option.does,
                option
                    .value
                    .and_then(|value| value.text().map(str::to_owned)),
            )
        };
        read(program, &args)
            .options
            .into_iter()
            .map(value)
            .collect()
    }

    /// In no program, an option that matters is read as harmless in any of its spellings.
    #[test]
    fn harmful_options_are_recognised_in_every_spelling() {
        let mut seen = 0;
        for (name, program) in table::all() {
            for (option, known) in program
                .options()
                .filter(|(_, option)| option.does != OptionEffect::Harmless)
            {
                let does = |words: &[&str], what: Option<OptionEffect>| {
                    let found = given(program, words);
                    assert!(
                        found.iter().any(|(does, _)| *does == what),
                        "{name} {words:?}: {found:?}"
                    );
                };
                seen += 1;
                if let Some(long) = option.strip_prefix("--")
                    && !program.has_whole_word_options
                {
                    does(&[option, "x"], Some(known.does));
                    does(&[&format!("{option}=x")], Some(known.does));
                    for cut in (1..long.len()).map(|end| &option[..end + 2]) {
                        if program.option(cut).is_none() {
                            does(&[cut, "x"], None);
                            does(&[cut, "x"], Some(known.does));
                        }
                    }
                } else if option.len() == 1
                    && known.takes == ValueForm::Value
                    && !program.has_whole_word_options
                {
                    for words in [
                        &[&*format!("-{option}x")][..],
                        &[&format!("-{option}"), "x"],
                    ] {
                        assert!(
                            given(program, words).contains(&(Some(known.does), Some("x".into()))),
                            "{name} {words:?}"
                        );
                    }
                }
            }
        }
        assert!(seen > 500, "{seen}");
    }
}
