//! Program text in languages other than that of a shell. It is not parsed. It is harmless if every
//! word in it is known to start nothing, or starts a program whose literal name follows, so that
//! rules that deny can find it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;

use crate::protected::{self, Protected};
use crate::shell::names::among;

/// The maximum length of a program that is checked, in bytes.
pub(super) const MAX_LENGTH: usize = 4 << 10;

/// Words that start nothing, in the languages of common interpreters.
static QUIET: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let lines = include_str!("quiet.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).collect()
});

/// Functions that start the program named by their first argument.
const STARTS: &str = "system run call check_call check_output getoutput execSync execFileSync spawnSync Popen popen exec";

/// Interpreters in which `exec` evaluates a text.
const EVALUATING: &str = "python pypy ipython";
/// Interpreters in which `%x(…)` is a command, with any delimiters.
const RUBY: &str = "ruby jruby";
/// Interpreters in which a bracket after another one is not a call.
const LISPS: &str = "emacs guile sbcl clisp racket";

/// Returns the first name of a protected file in a text, secrets before control files: in quotes,
/// with concatenated texts counted as one, or `anywhere`.
pub(crate) fn protected_in(text: &str, anywhere: bool) -> Option<(String, Protected)> {
    if !text.contains(['.', '_', '/']) && !text.chars().any(char::is_uppercase) {
        return None;
    }
    let readings = if anywhere {
        vec![text.to_owned()]
    } else {
        joined(text)
    };
    let parts = readings
        .iter()
        .flat_map(|text| text.split(['\'', '"', '`']).enumerate());
    // Outside of quotes, a word that begins with a dot is a path only if it contains a slash.
    let is_path = |word: &str| word.starts_with(['.', '~', '/']) && word.contains('/');
    let words: Vec<&str> = parts
        .flat_map(|(at, part)| {
            let quoted = anywhere || at % 2 == 1;
            let words = part.split(|c: char| c.is_whitespace() || "()[]{};|<>&=,:@".contains(c));
            words.filter(move |word| {
                !word.is_empty() && word.len() < 200 && (quoted || is_path(word))
            })
        })
        .collect();
    let bare = |word: &str| {
        word.trim_start_matches('+')
            .trim_start_matches("./")
            .to_owned()
    };
    let find = |protected: Protected, is: fn(&Path) -> bool| {
        words
            .iter()
            .map(|word| bare(word))
            .find(|word| is(Path::new(word)))
            .map(|word| (word, protected))
    };
    find(Protected::Secret, protected::secret)
        .or_else(|| find(Protected::Control, protected::control))
}

/// Returns a program as written; with adjacent or concatenated texts joined; and with texts that
/// are joined to a path by `,` or `/`.
fn joined(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split(['\'', '"']).collect();
    let join = |between: fn(&str) -> Option<&'static str>| {
        let mut out = parts[0].to_owned();
        let mut joined = false;
        for (at, part) in parts.iter().enumerate().skip(1) {
            let is_between_texts = at % 2 == 0 && at + 1 < parts.len();
            let sign = if is_between_texts {
                between(part.trim())
            } else {
                None
            };
            match sign {
                Some(sign) => out.push_str(sign),
                None if joined => out.push_str(part),
                None => {
                    out.push('"');
                    out.push_str(part);
                }
            }
            joined = sign.is_some();
        }
        out
    };
    let near = join(|sign| matches!(sign, "" | "+" | "." | ".." | "<>" | "++").then_some(""));
    let path = join(|sign| matches!(sign, "," | "/" | "), Path(").then_some("/"));
    vec![text.to_owned(), near, path]
}

/// Returns whether a command is literal, and its words start no other program.
pub(super) fn is_plain(command: &str) -> bool {
    let is_plain_char = |c: char| c.is_ascii_alphanumeric() || " ._-/=".contains(c);
    let name = command.trim_start().split(' ').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    !name.is_empty()
        && command.chars().all(is_plain_char)
        && !super::carries(name)
        && !super::is_language(super::family(name))
}

/// Returns whether a program text starts only literal commands. `language` is the interpreter.
pub(super) fn is_harmless(text: &str, language: &str) -> bool {
    if text.len() > MAX_LENGTH {
        return false;
    }
    let mut rest = text;
    let mut before = None;
    // The last two characters, without spaces.
    let mut last = [None; 2];
    while let Some(c) = rest.chars().next() {
        if c == '(' && calls_a_value(last) && !among(LISPS, language) {
            return false;
        }
        if !c.is_whitespace() {
            last = [last[1], Some(c)];
        }
        match c {
            // A command in some languages, a text in others.
            '`' => return false,
            '\'' | '"' => {
                let Some(after) = skip_text(rest, c, before) else {
                    return false;
                };
                rest = after;
                before = Some(c);
                continue;
            }
            '%' if among(RUBY, language)
                && rest[1..].starts_with('x')
                && !rest[2..].starts_with(is_letter) =>
            {
                return false;
            }
            // Computed names, and files that are commands.
            '@' | '|' if rest[1..].starts_with(['{', '"', '\'']) => return false,
            '[' if before.is_some_and(|c: char| c.is_alphanumeric() || c == ')' || c == ']')
                && called_after_bracket(rest) =>
            {
                return false;
            }
            c if c.is_alphabetic() || c == '_' => {
                let end = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                let starts = among(STARTS, word);
                let quiet = word.chars().count() == 1 || QUIET.contains(word);
                // A name with this sign is a command, in perl and ruby.
                let opens = word == "open" && text.contains(['|', '\\']);
                let evaluates = word == "exec" && among(EVALUATING, language);
                if (starts && !plain_call(after)) || (!starts && !quiet) || opens || evaluates {
                    return false;
                }
                before = word.chars().next_back();
                last[1] = before;
                rest = after;
                continue;
            }
            _ => {}
        }
        before = Some(c);
        rest = &rest[c.len_utf8()..];
    }
    true
}

/// Returns whether a bracket after these two characters calls the result of another call or a
/// subscript: `f()(x)`, `x[0](y)`. The function that `(function () { … })(x)` calls is literal.
fn calls_a_value(last: [Option<char>; 2]) -> bool {
    matches!(last, [_, Some(']')]) || matches!(last, [before, Some(')')] if before != Some('}'))
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Skips a text in quotes; `None` if a part of it may be computed.
fn skip_text(rest: &str, quote: char, before: Option<char>) -> Option<&str> {
    // `f'{…}'`
    let computed = before.is_some_and(char::is_alphabetic);
    let mut escaped = false;
    let mut last = None;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' if computed || matches!(last, Some('$' | '@' | '#')) => return None,
            '(' if last == Some('$') => return None,
            c if c == quote => return Some(&rest[at + 1..]),
            _ => {}
        }
        last = Some(c);
    }
    None
}

/// Returns whether the result of a subscript is called: `x['ex' + 'ec'](…)`.
fn called_after_bracket(rest: &str) -> bool {
    rest.find(']')
        .is_some_and(|end| rest[end + 1..].trim_start().starts_with('('))
        && rest[1..].trim_start().starts_with(['\'', '"'])
}

/// Returns whether the first argument of a call is a single text without escapes, or a list that
/// begins with one, without concatenation.
fn plain_call(rest: &str) -> bool {
    if !rest.starts_with(['(', ' ']) {
        return false;
    }
    let rest = rest
        .trim_start()
        .trim_start_matches(['(', '[', '{'])
        .trim_start();
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return false;
    };
    let inner = &rest[1..];
    let Some(end) = inner.find(quote) else {
        return false;
    };
    let text = &inner[..end];
    let after = inner[end + 1..].trim_start();
    is_plain(text) && (after.is_empty() || after.starts_with([')', ',', ']', ';', '}', '\n']))
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn harmless_programs_start_literal_commands_only() {
        let harmless = [
            "print(1)",
            "console.log(1+1)",
            "require('./package.json').version",
            "import json;print(json.load(open('package.json'))['name'])",
            "import os; os.system('touch x')",
            "import subprocess;subprocess.run(['touch', 'x'], check=True)",
            "system(\"touch x\")",
            "system \"touch\", \"x\";",
            "require('child_process').execSync('touch x')",
            "s/a/b/",
            "print \"the system\";",
            "print('please run (it) now, or eval it')",
            "print if /a/",
            "(function () { console.log(1) })(2)",
            "my %x = (a => 1); print $x{a}",
        ];
        for text in harmless {
            assert!(is_harmless(text, "perl"), "{text}");
        }
        assert!(is_harmless("exec(\"touch x\")", "ruby"));
        assert!(is_harmless("(print 1) (print 2)", "emacs"));
        let unseen = [
            "import os; os.system('r' + 'm x')",
            "import os; os.system(\"\\x72m x\")",
            "import os; os.system(f'{a}m x')",
            "import os; os.system(c)",
            "import os; f=os.system; f(\"r\"+\"m x\")",
            "from os import system as s; s(\"r\"+\"m x\")",
            "import subprocess as s; s.run([x, 'y'])",
            "exec(open('x').read())",
            "eval('x')",
            "getattr(os, 'sys' + 'tem')('x')",
            "__import__('os').system('x')",
            "system(\"r\" . \"m x\")",
            "system($x)",
            "exec pack('H*', '726d')",
            "require('child_process')['exec' + 'Sync']('x')",
            "require('child_process').execSync(`${a}m x`)",
            "system('r' 'm x')",
            "import subprocess; subprocess.run(['sh', '-c', 'r' + 'm x'])",
            "import os; os.system('echo cm0= | base64 -d | sh')",
            "$c=\"r\".\"m x\"; `$c`",
            "$c=\"r\".\"m x\"; qx{$c}",
            "$c=\"r\".\"m x\"; open(F,\"$c|\")",
            "$c=\"r\".\"m x|\"; open(F,$c)",
            "\"#{a}m x\"; \"@{[1]}\"",
        ];
        for text in unseen {
            assert!(!is_harmless(text, "perl"), "{text}");
        }
        let of_one = [
            (
                "python",
                "exec(\"from os import system as x\"); x(\"r\"+\"m x\")",
            ),
            ("pypy", "exec('print')"),
            ("python", "import os;vars(os).get('sys'+'tem')('r'+'m x')"),
            (
                "node",
                "Object.values(require('child_process'))[3]('rm'+' x')",
            ),
            ("ruby", "print %x(#{\"r\"+\"m x\"})"),
            ("ruby", "%x!#{\"r\"+\"m x\"}!"),
        ];
        for (language, text) in of_one {
            assert!(!is_harmless(text, language), "{language}: {text}");
        }
    }
}
