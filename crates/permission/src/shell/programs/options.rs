//! Options of builtins as getopt parses them: clusters of letters, attached or separate values,
//! abbreviated long names.

use crate::shell::expand::Arg;

/// The parsed options of a program.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) flags: Vec<Flag>,
    /// An unknown word may be an option.
    pub(super) unknown: bool,
}

/// An option, `-o` or `--output`, with its value.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: String,
    pub(super) value: Option<Arg>,
}

impl Options {
    /// Parses the options before the first operand, and returns the operand's position. `short` are
    /// the letters that take a value, `long` the names that take one in the next word.
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

    /// Parses an option at `at`. Returns `false` if there is none.
    fn one(&mut self, args: &[Arg], at: &mut usize, short: &str, long: &[&str]) -> bool {
        let arg = &args[*at];
        let text = arg.prefix().to_owned();
        let Some(rest) = text
            .strip_prefix('-')
            .filter(|rest| !rest.is_empty() || !arg.is("-"))
        else {
            return false;
        };
        if text == "-" {
            // `-` followed by an unknown text may be any option.
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
            let value = if takes {
                args.get(*at).cloned().inspect(|_| *at += 1)
            } else {
                value
            };
            self.flags.push(Flag {
                name: format!("--{name}"),
                value,
            });
            return true;
        }
        for (offset, letter) in rest.char_indices() {
            let name = format!("-{letter}");
            if short.contains(letter) {
                let tail = arg.after(1 + offset + letter.len_utf8());
                let value = if tail.is("") {
                    args.get(*at).cloned().inspect(|_| *at += 1)
                } else {
                    Some(tail)
                };
                self.flags.push(Flag { name, value });
                return true;
            }
            self.flags.push(Flag { name, value: None });
        }
        self.unknown |= !arg.known();
        true
    }

    /// Returns the first of these options; long ones may be abbreviated.
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
        names
            .iter()
            .any(|name| *name == self.name || (long && name.starts_with(&self.name)))
    }
}
