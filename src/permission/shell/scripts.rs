//! Programs that are given a program: shells, interpreters, `sed`, `awk`, `find`. Shell text is
//! taken apart like the line itself; other languages are searched for the names of denied programs,
//! and what else they do is not judged.

use super::expand::Arg;
use super::options::Options;
use super::parse::slice;
use super::state::State;
use super::syntax::{Command, Kind, Script};
use super::table::INTERPRETERS;
use super::touch::device;
use super::walk::{Input, Walk};
use super::{Effect, Unit};
use crate::permission::paths::Access;

const SHELLS: [&str; 12] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "posh", "yash", "fish", "pwsh"];

/// Whether a name is a shell's.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

impl Walk<'_> {
    /// Shells, interpreters, `sed` and `awk`; false for everything else.
    pub(super) fn script(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if SHELLS.contains(&name) {
            unit.carrier = true;
            self.shell(name, args, unit, state);
        } else if matches!(name, "sed" | "gsed" | "ssed") {
            self.sed(args, unit, state);
        } else if matches!(name, "awk" | "gawk" | "mawk" | "nawk" | "original-awk") {
            unit.carrier = true;
            self.awk(args, unit, state);
        } else if let Some((_, texts, values)) =
            INTERPRETERS.iter().find(|(names, ..)| names.contains(&name) || names.contains(&family))
        {
            unit.carrier = true;
            self.interpreter(name, texts, values, args, unit, state);
        } else {
            return false;
        }
        true
    }

    fn shell(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        // Single-letter options cluster, and `-c` takes the first word after all of them.
        let mut at = 0;
        let (mut command, mut stdin) = (false, false);
        while let Some(arg) = args.get(at)
            && (arg.prefix().starts_with(['-', '+']))
        {
            let Some(text) = arg.text() else {
                unit.opaque("its options are computed");
                return;
            };
            at += 1;
            if text == "--" || text == "-" {
                break;
            }
            if text.starts_with("--") {
                let takes = matches!(text, "--rcfile" | "--init-file");
                if takes || text.starts_with("--rcfile=") || text.starts_with("--init-file=") {
                    unit.opaque("it reads a start file");
                }
                command |= name == "fish" && text == "--command";
                at += usize::from(takes);
                continue;
            }
            if text.starts_with('-') {
                command |= text.contains('c');
                stdin |= text.contains('s');
                if text.contains('i') {
                    unit.opaque("an interactive shell runs its start files");
                }
            }
            if text.ends_with(['o', 'O']) {
                at += 1;
            }
        }
        if command {
            let Some(text) = args.get(at) else { return };
            if matches!(name, "fish" | "pwsh") {
                unit.opaque("it is not the language of bash");
                unit.texts.extend(text.text().map(str::to_owned));
            }
            self.text(&text.clone(), unit, false, true, state);
            return;
        }
        if let Some(file) = args.get(at).filter(|_| !stdin) {
            unit.effect_at_least(Effect::Unproven);
            if file
                .text()
                .is_some_and(|text| device(text) || text.starts_with("/dev/fd/") || text.starts_with("/proc/"))
            {
                unit.opaque("it reads its program from a pipe");
            }
            unit.doubt("it runs a file, and what that does is not judged");
            self.touch(Access::Read, &file.clone(), unit, state);
            return;
        }
        match self.stdin() {
            Input::Pipe => unit.opaque("it reads its program from a pipe or a file"),
            Input::Text(Some(text)) => self.text(&Arg::exact(text), unit, false, true, state),
            Input::Text(None) => unit.opaque("it reads a program that is computed"),
            Input::Nothing => {}
        }
    }

    fn interpreter(
        &mut self,
        name: &str,
        texts: &[&str],
        values: &str,
        args: &[Arg],
        unit: &mut Unit,
        state: &mut State,
    ) {
        unit.effect_at_least(Effect::Unproven);
        let mut given = false;
        let mut operand = None;
        let mut at = 0;
        while at < args.len() {
            let arg = &args[at];
            let text = arg.prefix();
            at += 1;
            if !text.starts_with('-') || text == "-" {
                operand = Some(arg.clone());
                break;
            }
            // `-i`, `-pi`, `-i.bak`: files are edited in place. After these letters come values.
            let letters = text[1..].split(['I', 'M', 'm', 'C', 'D', 'F', 'x', 'e', 'E', 'r', '-']).next();
            if matches!(name, "perl" | "ruby") && letters.is_some_and(|letters| letters.contains('i')) {
                unit.effect = Effect::Writes;
            }
            // `-c text`, `-ctext`, `-lne text`.
            let short = text.starts_with('-') && !text.starts_with("--");
            let option = texts.iter().find(|option| text == **option || text.starts_with(&format!("{option}=")));
            let cluster = short && texts.iter().any(|option| option.len() == 2 && text.contains(&option[1..]));
            if option.is_some() || cluster {
                given = true;
                let attached = texts.iter().find(|option| option.len() == 2 && text.starts_with(**option));
                let shown = option.or(attached).copied().unwrap_or(text.get(..8).unwrap_or(text));
                unit.danger(shown);
                match args.get(at).filter(|_| !text.contains('=')) {
                    Some(program) => {
                        match program.text() {
                            Some(text) => unit.texts.push(text.to_owned()),
                            None => unit.opaque("the program it runs is computed"),
                        }
                        at += 1;
                    }
                    None if arg.known() => {}
                    None => unit.opaque("the program it runs is computed"),
                }
                unit.texts.push(text.to_owned());
                continue;
            }
            if short && text.len() == 2 && values.contains(&text[1..]) {
                at += 1;
            }
        }
        let from_input =
            operand.as_ref().is_none_or(|arg| arg.is("-") || arg.text().is_some_and(|text| text.starts_with("/dev/")))
                && !given;
        if from_input {
            match self.stdin() {
                Input::Pipe => {
                    let asks = args
                        .iter()
                        .any(|arg| matches!(arg.text(), Some("--version" | "-V" | "--help" | "-h" | "-v" | "-m")));
                    if !asks {
                        unit.opaque("it reads its program from a pipe or a file");
                    }
                }
                Input::Text(Some(text)) => {
                    unit.broad_only.get_or_insert_with(|| "its program is in its input".into());
                    unit.texts.push(text);
                }
                Input::Text(None) => unit.opaque("it reads a program that is computed"),
                Input::Nothing => {}
            }
        }
        let pipe = |text: &str| text.starts_with("/dev/") || text.starts_with("/proc/");
        if operand.as_ref().and_then(Arg::text).is_some_and(pipe) && !given {
            unit.opaque("it reads its program from a pipe");
        }
        if unit.texts.iter().any(|text| super::code::starts_computed(text)) {
            unit.doubt(&format!("the program {name} is given starts others whose names it computes"));
        }
        for text in unit.texts.clone() {
            if let Some(name) = secret_in(&text) {
                Self::secret(unit, &name, &format!("its program names {name}, which may hold keys or passwords"));
            }
        }
        // Editors and databases take commands among their words and from their input.
        self.stranger(args, unit, state);
    }

    fn sed(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        // The suffix of -i is attached, so `i` takes no word of its own; what follows it in a cluster
        // is the suffix.
        let in_place = |arg: &Arg| {
            let text = arg.prefix();
            let short = text.starts_with('-') && !text.starts_with("--");
            (short && text[1..].split(['e', 'f']).next().is_some_and(|flags| flags.contains('i')))
                || (text.len() > 3
                    && (text.starts_with("--i") && "--in-place".starts_with(text.split('=').next().unwrap_or(text))))
        };
        let edits = args.iter().take_while(|arg| !arg.is("--")).any(in_place);
        let rest: Vec<Arg> =
            args.iter().filter(|arg| !in_place(arg) || arg.prefix().contains(['e', 'f'])).cloned().collect();
        let options = Options::read(&rest, "efl", &["expression", "file", "line-length"]);
        let mut effect = if options.unknown { Effect::Unproven } else { Effect::Reads };
        let mut scripts: Vec<Arg> =
            options.all(&["-e", "--expression"]).filter_map(|flag| flag.value.clone()).collect();
        let files = options.all(&["-f", "--file"]).filter_map(|flag| flag.value.clone()).collect::<Vec<_>>();
        for file in &files {
            effect = effect.max(Effect::Unproven);
            unit.doubt("it runs a file of commands");
            self.touch(Access::Read, file, unit, state);
        }
        let mut operands = options.operands.clone();
        if scripts.is_empty() && files.is_empty() && !operands.is_empty() {
            scripts.push(operands.remove(0));
        }
        for script in &scripts {
            let Some(text) = script.text() else {
                effect = effect.max(Effect::Unproven);
                if !script.literal {
                    unit.doubt("its program is computed, and sed can run commands");
                }
                continue;
            };
            unit.texts.push(text.to_owned());
            match sed_commands(text) {
                None => effect = effect.max(Effect::Unproven),
                Some(found) => {
                    for deed in found {
                        match deed {
                            Deed::Write(file) => {
                                unit.danger("w");
                                self.touch_text(Access::Edit, &file, unit, state);
                                if !device(&file) {
                                    unit.effect = Effect::Writes;
                                }
                            }
                            Deed::Read(file) => self.touch_text(Access::Read, &file, unit, state),
                            Deed::Run(command) => {
                                unit.danger("e");
                                effect = effect.max(Effect::Unproven);
                                if !command.is_empty() {
                                    self.text(&Arg::exact(command), unit, true, true, state);
                                }
                            }
                            Deed::RunInput => {
                                unit.danger("e");
                                effect = effect.max(Effect::Unproven);
                                unit.carrier = true;
                            }
                        }
                    }
                }
            }
        }
        if !effect.eq(&Effect::Reads) || unit.effect == Effect::Writes {
            unit.carrier = true;
        } else {
            unit.texts.clear();
        }
        unit.effect_at_least(effect);
        for file in &operands {
            self.touch(Access::Read, file, unit, state);
            if edits {
                self.touch(Access::Edit, file, unit, state);
            }
        }
        if edits {
            unit.danger("-i");
            unit.effect = Effect::Writes;
        }
    }

    fn awk(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let long = [
            "file",
            "field-separator",
            "assign",
            "include",
            "load",
            "source",
            "exec",
            "profile",
            "dump-variables",
            "pretty-print",
            "lint",
        ];
        let (options, at) = Options::leading(args, "FvfieElW", &long);
        let mut effect = if options.unknown { Effect::Unproven } else { Effect::Reads };
        let mut programs: Vec<Arg> = options.all(&["-e", "--source"]).filter_map(|flag| flag.value.clone()).collect();
        let files: Vec<Arg> = options
            .all(&["-f", "--file", "-E", "--exec", "-i", "--include", "-l", "--load"])
            .filter_map(|flag| flag.value.clone())
            .collect();
        for file in &files {
            if file.is("inplace") {
                effect = Effect::Writes;
            } else {
                effect = effect.max(Effect::Unproven);
                unit.doubt("it runs a file of commands");
                self.touch(Access::Read, file, unit, state);
            }
        }
        for flag in options.all(&["-o", "-p", "-d", "--profile", "--pretty-print", "--dump-variables"]) {
            unit.danger(&flag.name);
            effect = Effect::Writes;
        }
        if options.has(&["-W"]) {
            // The long options of POSIX spelling, `exec=file` among them.
            unit.danger("-W");
            unit.doubt("`-W` may name a file of commands");
            effect = effect.max(Effect::Unproven);
        }
        let mut operands = args.get(at..).unwrap_or_default().to_vec();
        if programs.is_empty() && files.is_empty() && !operands.is_empty() {
            programs.push(operands.remove(0));
        }
        for program in &programs {
            let Some(text) = program.text() else {
                effect = effect.max(Effect::Unproven);
                unit.doubt("its program is computed, and awk can run commands");
                continue;
            };
            let deeds = awk_deeds(text);
            if deeds.runs {
                unit.danger("system");
                unit.texts.push(text.to_owned());
                effect = effect.max(Effect::Unproven);
                if deeds.computed {
                    unit.doubt("the command awk runs is computed");
                }
                // What a command within reads is not followed; a secret's name is seen.
                let words = text.split(|c: char| c.is_whitespace() || "\"'();|<>,".contains(c));
                let secret =
                    |word: &&str| crate::permission::protected::secret_name(word.rsplit('/').next().unwrap_or(word));
                if let Some(name) = words.filter(|word| !word.is_empty()).find(secret) {
                    Self::secret(unit, name, &format!("its program names {name}, which may hold keys or passwords"));
                }
            }
            for file in deeds.writes {
                unit.danger(">");
                match file {
                    Some(file) => {
                        self.touch_text(Access::Edit, &file, unit, state);
                        if !device(&file) {
                            effect = Effect::Writes;
                        }
                    }
                    None => {
                        effect = effect.max(Effect::Unproven);
                        unit.floor(crate::permission::Action::Ask, "which file awk writes is not known");
                    }
                }
            }
            for file in deeds.reads {
                match file {
                    Some(file) => self.touch_text(Access::Read, &file, unit, state),
                    None => {
                        effect = effect.max(Effect::Unproven);
                        unit.floor(crate::permission::Action::Ask, "which file awk reads is not known");
                    }
                }
            }
            if text.contains("ARGV") {
                unit.floor(crate::permission::Action::Ask, "its program chooses the files it reads by itself");
            }
        }
        unit.effect_at_least(effect);
        for file in operands.iter().filter(|arg| !arg.prefix().contains('=')) {
            self.touch(Access::Read, file, unit, state);
        }
    }

    /// `find`: paths, then an expression that may run programs, remove or write.
    pub(super) fn find(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let mut effect = Effect::Reads;
        let mut at = 0;
        while let Some(arg) = args.get(at) {
            let text = arg.prefix();
            if matches!(text, "-H" | "-L" | "-P") || text.starts_with("-O") {
                at += 1;
            } else if text == "-D" {
                at += 2;
            } else if text.starts_with(['-', '(', ')', '!', ',']) {
                break;
            } else {
                if !arg.known() && arg.may_be_option() {
                    effect = Effect::Unproven;
                }
                self.touch(Access::List, arg, unit, state);
                at += 1;
            }
        }
        let named = args
            .windows(2)
            .any(|pair| (pair[0].is("-name") || pair[0].is("-iname")) && pair[1].text().is_some_and(names_no_secret));
        while let Some(arg) = args.get(at) {
            at += 1;
            let Some(text) = arg.text() else {
                effect = effect.max(Effect::Unproven);
                continue;
            };
            match text {
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    unit.danger(text);
                    unit.carrier = true;
                    let end = args[at..].iter().enumerate().position(|(index, arg)| {
                        arg.is(";") || (arg.is("+") && index > 0 && args[at + index - 1].is("{}"))
                    });
                    let end = end.map_or(args.len(), |end| at + end);
                    let fill = |arg: &Arg| match arg.text() {
                        Some(text) if text.contains("{}") && named => Arg::exact(text.replace("{}", "./found")),
                        Some(text) if text.contains("{}") => Arg::filled(text, "{}"),
                        _ => arg.clone(),
                    };
                    let mut inner: Vec<Arg> = args[at..end].iter().map(fill).collect();
                    inner.iter_mut().filter(|arg| arg.is("./found")).for_each(|arg| arg.literal = false);
                    let mut below = state.clone();
                    if text.ends_with("dir") {
                        below.cwd.clear();
                    }
                    self.inner(&inner, unit, false, &mut below);
                    at = end + 1;
                }
                "-delete" => {
                    unit.danger(text);
                    unit.destroys = true;
                    effect = Effect::Writes;
                }
                "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                    unit.danger(text);
                    effect = Effect::Writes;
                    if let Some(file) = args.get(at).cloned() {
                        self.touch(Access::Edit, &file, unit, state);
                    }
                    at += 1;
                }
                "-files0-from" => {
                    if let Some(file) = args.get(at).cloned() {
                        self.touch(Access::Read, &file, unit, state);
                    }
                    at += 1;
                }
                "-name" | "-iname" | "-path" | "-ipath" | "-regex" | "-iregex" | "-type" | "-newer" | "-size"
                | "-mtime" | "-maxdepth" | "-mindepth" | "-perm" | "-user" | "-group" | "-printf" => at += 1,
                _ => {}
            }
        }
        unit.effect_at_least(effect);
    }
}

/// The first quoted text in a program that is the name of a file with secrets.
fn secret_in(program: &str) -> Option<String> {
    let mut names =
        program.split(['\'', '"', '`']).skip(1).filter(|part| part.len() < 200 && !part.contains([' ', '(', '\n']));
    let secret = |path: &&str| crate::permission::protected::secret_name(path.rsplit('/').next().unwrap_or(path));
    names.find(secret).map(str::to_owned)
}

/// Whether a command is a `find` below the project that prints only names that fit a harmless
/// pattern, for what reads them.
pub(super) fn picks_no_secrets(script: &Script, command: &Command) -> bool {
    let Kind::Simple { assigns, words } = &command.kind else { return false };
    let texts: Vec<&str> = words.iter().map(|word| slice(script, &word.range)).collect();
    let plain = |text: &&str| {
        text.trim_matches(['\'', '"']).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-*/+".contains(&byte))
    };
    let named = texts
        .windows(2)
        .any(|pair| matches!(pair[0], "-name" | "-iname") && names_no_secret(pair[1].trim_matches(['\'', '"'])));
    let below = texts.iter().skip(1).take_while(|text| !text.starts_with('-'));
    texts.first() == Some(&"find")
        && assigns.is_empty()
        && named
        && texts.iter().all(plain)
        && !texts
            .iter()
            .any(|text| matches!(*text, "-o" | "-or" | "-not" | "-printf" | "-fprintf" | "-exec" | "-L" | "-follow"))
        && below.clone().all(|text| !text.starts_with('/') && !text.contains(".."))
}

/// Whether a name pattern cannot name a file with secrets.
fn names_no_secret(pattern: &str) -> bool {
    const SAMPLES: [&str; 9] =
        [".env", ".env.local", "x.env", "id_rsa", "id_ed25519", "x.pem", "x.key", ".npmrc", "credentials.json"];
    let plain = !pattern.contains('[');
    plain
        && !SAMPLES.iter().any(|name| crate::permission::wildcard::matches(pattern, name))
        && !crate::permission::protected::secret_name(pattern)
}

/// What a sed program does beyond printing.
#[derive(Debug, PartialEq, Eq)]
enum Deed {
    Write(String),
    Read(String),
    Run(String),
    RunInput,
}

/// Reads a sed program. None where it cannot be read, and may do anything.
fn sed_commands(text: &str) -> Option<Vec<Deed>> {
    let letters: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut deeds = vec![];
    let until = |at: &mut usize, end: char| -> Option<()> {
        let mut set = false;
        loop {
            let c = *letters.get(*at)?;
            *at += 1;
            match c {
                '\\' => *at += 1,
                '[' => set = true,
                ']' => set = false,
                '\n' => return None,
                c if c == end && !set => return Some(()),
                // A delimiter in a set ends it too, in some versions: read the shorter one.
                c if c == end => return Some(()),
                _ => {}
            }
        }
    };
    let line = |at: &mut usize| {
        let start = *at;
        while letters.get(*at).is_some_and(|c| *c != '\n') {
            *at += 1;
        }
        letters[start..*at].iter().collect::<String>().trim().to_owned()
    };
    while at < letters.len() {
        let c = letters[at];
        at += 1;
        match c {
            ' ' | '\t' | '\n' | ';' | '{' | '}' | '!' | ',' | '0'..='9' | '$' | '~' | '+' | '-' => {}
            '/' => {
                until(&mut at, '/')?;
                while letters.get(at).is_some_and(|c| matches!(c, 'I' | 'M')) {
                    at += 1;
                }
            }
            '\\' => {
                let end = *letters.get(at)?;
                at += 1;
                until(&mut at, end)?;
            }
            '#' => drop(line(&mut at)),
            's' | 'y' => {
                let end = *letters.get(at)?;
                if end.is_alphanumeric() || end == '\\' || end == '\n' {
                    return None;
                }
                at += 1;
                until(&mut at, end)?;
                until(&mut at, end)?;
                while let Some(flag) = letters.get(at) {
                    match flag {
                        'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => at += 1,
                        'e' => {
                            at += 1;
                            deeds.push(Deed::RunInput);
                        }
                        'w' => {
                            at += 1;
                            deeds.push(Deed::Write(line(&mut at)));
                        }
                        _ => break,
                    }
                }
            }
            'w' | 'W' => deeds.push(Deed::Write(line(&mut at))),
            'r' | 'R' => deeds.push(Deed::Read(line(&mut at))),
            'e' => {
                let command = line(&mut at);
                deeds.push(if command.is_empty() { Deed::RunInput } else { Deed::Run(command) });
            }
            'a' | 'i' | 'c' => {
                let mut continued = true;
                while continued {
                    let text = line(&mut at);
                    continued = text.ends_with('\\') && at < letters.len();
                    at += 1;
                }
            }
            'b' | 't' | 'T' | ':' => {
                while letters.get(at).is_some_and(|c| !matches!(c, '\n' | ';' | '}')) {
                    at += 1;
                }
            }
            'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'l' | 'n' | 'N' | 'p' | 'P' | 'q' | 'Q' | 'x' | 'z' | '=' | 'F' => {}
            _ => return None,
        }
    }
    Some(deeds)
}

#[derive(Debug, Default)]
struct AwkDeeds {
    runs: bool,
    /// A command it runs is no plain text.
    computed: bool,
    /// None: which file is computed.
    writes: Vec<Option<String>>,
    reads: Vec<Option<String>>,
}

/// Finds in an awk program what runs commands and what writes. Strings, patterns and comments aside.
fn awk_deeds(text: &str) -> AwkDeeds {
    let letters: Vec<char> = text.chars().collect();
    let mut deeds = AwkDeeds::default();
    let mut at = 0;
    let (mut printing, mut depth) = (false, 0_usize);
    // Whether a value stands before, so that `/` divides.
    let mut value = false;
    while at < letters.len() {
        let c = letters[at];
        match c {
            '"' => {
                at = string_end(&letters, at);
                value = true;
                continue;
            }
            '/' if !value => {
                at += 1;
                while at < letters.len() && letters[at] != '/' && letters[at] != '\n' {
                    at += if letters[at] == '\\' { 2 } else { 1 };
                }
                value = true;
            }
            '#' => {
                while at < letters.len() && letters[at] != '\n' {
                    at += 1;
                }
                continue;
            }
            c if c.is_alphabetic() || c == '_' || c == '@' => {
                let start = at;
                while at < letters.len() && (letters[at].is_alphanumeric() || letters[at] == '_' || letters[at] == '@')
                {
                    at += 1;
                }
                let word: String = letters[start..at].iter().collect();
                value = true;
                match word.as_str() {
                    "system" => {
                        deeds.runs = true;
                        deeds.computed |= !literal_after(&letters, at, true);
                    }
                    "print" | "printf" => {
                        (printing, depth, value) = (true, 0, false);
                    }
                    "ENVIRON" | "SYMTAB" | "PROCINFO" => deeds.runs = true,
                    "in" | "return" | "else" | "do" => value = false,
                    "getline" => deeds.reads.extend(target(&letters, at, '<')),
                    word if word.contains('@') => (deeds.runs, deeds.computed) = (true, true),
                    _ => {}
                }
                continue;
            }
            '(' | '[' => {
                depth += 1;
                value = false;
            }
            ')' | ']' => {
                depth = depth.saturating_sub(1);
                value = true;
            }
            '|' if letters.get(at + 1) == Some(&'|') => {
                at += 1;
                value = false;
            }
            '|' => {
                deeds.runs = true;
                let at = if letters.get(at + 1) == Some(&'&') { at + 1 } else { at };
                let rest: String = letters[at + 1..].iter().take(40).collect();
                let gets = rest.trim_start().starts_with("getline");
                let before: String = letters[..at].iter().collect();
                let plain = if gets {
                    // One text, at the beginning of a statement or a bracket.
                    let text = before.trim_end().trim_end_matches('&').trim_end();
                    text.strip_suffix('"').and_then(|text| text.rsplit_once('"')).is_some_and(|(head, text)| {
                        let head = head.trim_end();
                        !text.contains('\\') && (head.is_empty() || head.ends_with(['(', '{', ';', '\n', '!']))
                    })
                } else {
                    literal_after(&letters, at + 1, false)
                };
                deeds.computed |= !plain;
            }
            '>' if printing && depth == 0 => {
                let from = if letters.get(at + 1) == Some(&'>') { at + 1 } else { at };
                deeds.writes.push(target(&letters, from, '>').unwrap_or(None));
                at = from;
                value = false;
            }
            ';' | '}' | '\n' | '{' => {
                printing = false;
                value = false;
            }
            c if c.is_whitespace() => {}
            c if c.is_ascii_digit() || c == '$' || c == '.' => value = c != '$',
            _ => value = false,
        }
        at += 1;
    }
    deeds
}

/// Whether one text without escapes stands at `at`, in brackets or up to the end of the statement.
fn literal_after(letters: &[char], at: usize, brackets: bool) -> bool {
    let rest: Vec<char> = letters[at.min(letters.len())..].iter().skip_while(|c| c.is_whitespace()).copied().collect();
    let rest = match (brackets, rest.split_first()) {
        (true, Some(('(', rest))) => rest,
        (true, _) => return false,
        (false, _) => rest.as_slice(),
    };
    let start = rest.iter().position(|c| !c.is_whitespace()).unwrap_or(rest.len());
    if rest.get(start) != Some(&'"') {
        return false;
    }
    let end = string_end(rest, start);
    let after = rest[end..].iter().find(|c| !matches!(c, ' ' | '\t'));
    !rest[start..end].contains(&'\\')
        && match after {
            Some(')') => true,
            after => !brackets && after.is_none_or(|c| matches!(c, ';' | '}' | '\n' | '#')),
        }
}

fn string_end(letters: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < letters.len() && letters[at] != '"' {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(letters.len())
}

/// The file after a redirection sign at `at`, or after blanks: none where there is no sign, inner
/// none where the file is not a plain string followed by an end.
fn target(letters: &[char], at: usize, sign: char) -> Option<Option<String>> {
    let mut at = at;
    let skip = |at: &mut usize| {
        while letters.get(*at).is_some_and(|c| *c == ' ' || *c == '\t') {
            *at += 1;
        }
    };
    skip(&mut at);
    if sign == '<' {
        // `getline line < "file"`
        while letters.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
            at += 1;
        }
        skip(&mut at);
    }
    if letters.get(at) != Some(&sign) {
        return None;
    }
    at += 1;
    skip(&mut at);
    if letters.get(at) != Some(&'"') {
        return Some(None);
    }
    let end = string_end(letters, at);
    let text: String = letters[at + 1..end.saturating_sub(1).max(at + 1)].iter().collect();
    let mut after = end;
    skip(&mut after);
    let ends = letters.get(after).is_none_or(|c| matches!(c, ';' | '}' | '\n' | ')' | '#'));
    Some((ends && !text.contains('\\')).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_programs() {
        let table: [(&str, Option<Vec<Deed>>); 10] = [
            ("s/a/b/g", Some(vec![])),
            ("1,5p;10q", Some(vec![])),
            ("/x/,/y/{s|a|b|;d}", Some(vec![])),
            ("w PWN", Some(vec![Deed::Write("PWN".into())])),
            ("s/a/b/w out", Some(vec![Deed::Write("out".into())])),
            ("s/.*/date/e", Some(vec![Deed::RunInput])),
            ("1e touch PWN", Some(vec![Deed::Run("touch PWN".into())])),
            ("$r /etc/passwd", Some(vec![Deed::Read("/etc/passwd".into())])),
            ("a text w x", Some(vec![])),
            ("s/a", None),
        ];
        for (program, deeds) in table {
            assert_eq!(sed_commands(program), deeds, "{program}");
        }
    }

    #[test]
    fn awk_programs() {
        let plain = ["{print $1}", "$1 > 5 {print}", "/a|b/ {n++} END {print n}", "{print ($1 > 2)}", "a || b"];
        for program in plain {
            let deeds = awk_deeds(program);
            assert!(!deeds.runs && deeds.writes.is_empty(), "{program}: {deeds:?}");
        }
        for program in ["BEGIN{system(\"x\")}", "{print | \"sh\"}", "{\"ls\" | getline}", "BEGIN{print ENVIRON[\"X\"]}"]
        {
            assert!(awk_deeds(program).runs, "{program}");
        }
        assert_eq!(awk_deeds("{print 1 > \"out\"}").writes, [Some("out".to_owned())]);
        assert_eq!(awk_deeds("{print 1 >> $2}").writes, [None]);
        assert_eq!(awk_deeds("{while ((getline l < \".env\") > 0) print l}").reads, [Some(".env".to_owned())]);
    }
}
