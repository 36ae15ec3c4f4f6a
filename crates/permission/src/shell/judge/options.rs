//! Options of builtins, as getopt reads them: clusters of letters, values attached or apart, long names cut short.

use crate::shell::expand::Arg;

/// The words after a program's name, told apart.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) flags: Vec<Flag>,
    /// A word that is not known may be an option.
    pub(super) unknown: bool,
}

/// One option: `-o` or `--output`, and its value.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: String,
    pub(super) value: Option<Arg>,
}

impl Options {
    /// Reads the options before the first operand, and says where that stands. `short` are the letters
    /// that take a value, `long` the names that take one in the next word.
    pub(super) fn leading(args: &[Arg], short: &str, long: &[&str]) -> (Self, usize) {
        let mut options = Self::default();
        let mut at = 0;
        while at < args.len() {
            if args[at].is("--") {
                return (options, at + 1);
            }
            if !options.one(args, &mut at, short, long) {
                options.unknown |= args[at].may_be_option() && !args[at].is("-");
                break;
            }
        }
        options.unknown |= args[..at.min(args.len())].iter().any(Arg::is_several);
        (options, at)
    }

    /// Takes one option at `at`; false where there is none.
    fn one(&mut self, args: &[Arg], at: &mut usize, short: &str, long: &[&str]) -> bool {
        let arg = &args[*at];
        let text = arg.prefix().to_owned();
        let Some(rest) = text.strip_prefix('-').filter(|rest| !rest.is_empty() || !arg.is("-")) else { return false };
        if text == "-" {
            // `-` and something unknown after it: some option.
            self.unknown |= !arg.is("-");
            *at += 1;
            return true;
        }
        *at += 1;
        if let Some(name) = rest.strip_prefix('-') {
            let (name, value) = match name.split_once('=') {
                Some((name, _)) => (name, Some(arg.after(2 + name.len() + 1))),
                None => (name, None),
            };
            self.unknown |= !arg.known() && value.is_none();
            let takes = value.is_none() && !name.is_empty() && long.contains(&name);
            let value = if takes { args.get(*at).cloned().inspect(|_| *at += 1) } else { value };
            self.flags.push(Flag { name: format!("--{name}"), value });
            return true;
        }
        for (offset, letter) in rest.char_indices() {
            let name = format!("-{letter}");
            if short.contains(letter) {
                let tail = arg.after(1 + offset + letter.len_utf8());
                let value = if tail.is("") { args.get(*at).cloned().inspect(|_| *at += 1) } else { Some(tail) };
                self.flags.push(Flag { name, value });
                return true;
            }
            self.flags.push(Flag { name, value: None });
        }
        self.unknown |= !arg.known();
        true
    }

    /// The first of these options, long ones also where they are cut short.
    pub(super) fn find(&self, names: &[&str]) -> Option<&Flag> {
        self.flags.iter().find(|flag| flag.fits(names))
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.find(names).is_some()
    }
}

impl Flag {
    fn fits(&self, names: &[&str]) -> bool {
        let long = self.name.starts_with("--") && self.name.len() > 3;
        names.iter().any(|name| *name == self.name || (long && name.starts_with(&self.name)))
    }
}
