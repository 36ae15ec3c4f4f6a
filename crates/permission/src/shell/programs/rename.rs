//! `rename`: the program by Perl evaluates a Perl program for each name, usually a substitution;
//! that of util-linux replaces one text by another. It is unknown which of them is installed.

use super::read::ParsedArgs;
use super::table::OptionEffect;
use super::{EffectCollector, UnitEffect, code};
use crate::shell::expand::Arg;
use crate::shell::names::among;
use crate::shell::unit::Effect;

/// Handles the Perl program in the first word or in the values of `-e`.
pub(super) fn rename(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    let options = reading
        .options
        .iter()
        .filter(|option| option.does == Some(OptionEffect::Program));
    let mut programs: Vec<Arg> = options.filter_map(|option| option.value.clone()).collect();
    if programs.is_empty() {
        programs.extend(reading.operands.first().cloned());
    }
    for program in &programs {
        let Some(text) = program.text() else {
            collector.effect(Effect::Unproven);
            collector.set_may_be_denied("its program is computed, and Perl can run commands");
            continue;
        };
        collector.names_files(text, true);
        if is_plain_rename(text) {
            continue;
        }
        collector.effect(Effect::Unproven);
        collector.add(UnitEffect::RunsOtherPrograms);
        collector.add_foreign_code(Some(program));
        if !code::is_harmless(text, "perl") {
            collector.set_may_be_denied("the program it is given is not known to start no others");
        }
    }
}

/// Returns whether a program only changes names: a text for util-linux that contains no Perl
/// function, or a single substitution without computed parts.
fn is_plain_rename(text: &str) -> bool {
    const ACTS: &str = "eval require do readpipe system exec qx open unlink rmdir glob fork kill dump exit die chdir chroot \
        mkdir symlink link rename utime syscall sysopen dbmopen opendir";
    if text.chars().all(|c| is_word_char(c) || "-. ".contains(c)) {
        return !text
            .split(|c| !is_word_char(c))
            .any(|word| among(ACTS, word) || word.starts_with('q'));
    }
    let Some(rest) = ["s", "tr", "y"]
        .iter()
        .find_map(|name| text.strip_prefix(name))
    else {
        return false;
    };
    let Some(end) = rest.chars().next().filter(|c| "/|,!#:@%".contains(*c)) else {
        return false;
    };
    let parts: Vec<&str> = rest[1..].split(end).collect();
    let [from, to, flags] = parts.as_slice() else {
        return false;
    };
    // A variable may have a subscript, which may be computed; `$` alone is an end of line.
    let computes = |part: &str| {
        let is_end = |rest: &str| rest.is_empty() || rest.starts_with([')', '|']);
        let is_group = |rest: &str| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && !rest.contains(['[', '{', '-'])
        };
        part.contains('@')
            || part.contains("(?{")
            || part.contains("(??")
            || part.ends_with('\\')
            || part
                .match_indices('$')
                .any(|(at, _)| !is_end(&part[at + 1..]) && !is_group(&part[at + 1..]))
    };
    !computes(from) && !computes(to) && flags.chars().all(|c| "gimsxrcd".contains(c))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::is_plain_rename;

    #[test]
    fn plain_programs_only_rename() {
        for program in [
            "s/a/b/",
            "s/\\.txt$/.md/",
            "s/(a)(b)/$2$1/g",
            "y/A-Z/a-z/",
            "tr/a-z//d",
            ".htm",
            "foo",
            "s/^/x-/",
        ] {
            assert!(is_plain_rename(program), "{program}");
        }
        let others = [
            "system(\"rm x\")",
            "s/a/system(\"x\")/e",
            "s/a/@{[system(\"x\")]}/",
            "s/(?{ system(\"x\") })//",
            "s/a/$x[system(\"x\")]/",
            "s/a/b/;system(\"x\")",
            "readpipe",
            "eval",
            "x.readpipe",
            "qx",
            "s/a/${\\ system(\"x\")}/",
            "s\\a\\b\\",
        ];
        for program in others {
            assert!(!is_plain_rename(program), "{program}");
        }
    }
}
