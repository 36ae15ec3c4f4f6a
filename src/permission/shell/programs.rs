//! What common programs do with their words: which options make a reader write or run something,
//! which operands are files, what is known to change nothing.

use super::expand::Arg;
use super::options::Options;
use super::state::State;
use super::table::{NETWORK, Program, READERS, Use, WRITERS, Writer};
use super::walk::{BEGINNING, GIVEN, Input, NESTED, Walk};
use super::{Effect, Unit};
use crate::permission::paths::Access;
use crate::permission::protected;

/// Programs we know little about, but this: their first word is an order to themselves, not a program
/// to run.
const WORDED: [&str; 38] = [
    "apk",
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "bun",
    "bzr",
    "cargo",
    "conda",
    "dnf",
    "doctl",
    "docker",
    "flyctl",
    "gcloud",
    "gh",
    "glab",
    "gsutil",
    "heroku",
    "helm",
    "hg",
    "jj",
    "kubectl",
    "mamba",
    "npm",
    "pacman",
    "pip",
    "pip3",
    "pnpm",
    "podman",
    "rclone",
    "snap",
    "svn",
    "terraform",
    "vercel",
    "yarn",
    "yum",
    "zypper",
];

/// Whether what a command does hangs on its options more than on its first words, so that a grant of
/// the first words would be too wide.
pub(super) fn options_decide(normal: &str) -> bool {
    let name = normal.split(' ').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or(name);
    let turns = READERS.iter().any(|program| program.names.contains(&name) && !program.turns.is_empty());
    turns || matches!(name, "find" | "sed" | "awk" | "gawk" | "mawk" | "tar" | "git" | "dd" | "xargs" | "env")
}

impl Walk<'_> {
    /// A program that is neither a builtin nor a wrapper.
    pub(super) fn program(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        if NETWORK.contains(&name) {
            unit.network = true;
        }
        if name == "git" {
            self.git(args, unit, state);
            self.leaving(args, unit, state);
        } else if self.script(name, args, unit, state) {
        } else if let Some(program) = READERS.iter().find(|program| program.names.contains(&name)) {
            self.reader(name, program, args, unit, state);
            let long: Vec<Arg> = args.iter().filter(|arg| arg.prefix().starts_with("--")).cloned().collect();
            self.leaving(&long, unit, state);
        } else if let Some(program) = WRITERS.iter().find(|program| program.names.contains(&name)) {
            self.writer(name, program, args, unit, state);
            self.leaving(args, unit, state);
        } else if self.special(name, args, unit, state) {
            self.leaving(args, unit, state);
        } else {
            if !state.is_function(name) {
                unit.effect_at_least(Effect::Unproven);
            }
            self.stranger(args, unit, state);
            self.leaving(args, unit, state);
        }
    }

    /// Words and values of options, whatever they mean, that lead out of the project.
    pub(super) fn leaving(&mut self, args: &[Arg], unit: &mut Unit, state: &State) {
        for text in args.iter().filter_map(Arg::text) {
            let value = match text.strip_prefix('-') {
                Some(option) => match option.split_once('=') {
                    Some((_, value)) => value,
                    None => option.strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or_default(),
                },
                None => text,
            };
            // `-v from:to`, `key=value`
            for part in value.split([':', '=', ',', '@']).filter(|part| !part.contains(char::is_whitespace)) {
                if part == ".." || part.starts_with("../") || (part.starts_with('/') && !part.starts_with("//")) {
                    self.touch_guess(part, unit, state);
                }
            }
        }
    }

    /// A program we know nothing about: the paths among its words, the words and texts that may be
    /// commands, and the text it is given to read.
    pub(super) fn stranger(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        if let Input::Text(Some(text)) = self.stdin() {
            if self.nested + text.len() > NESTED {
                unit.doubt("the text it reads is too long to be searched again");
            } else {
                self.nested += text.len();
                unit.texts.push(text);
            }
        }
        // `cargo rm` starts no `rm`.
        let name = unit.program.as_deref().map_or("", |name| name.rsplit('/').next().unwrap_or(name));
        let first: Vec<&str> =
            std::iter::once(name).chain(args.iter().take(4).map(|arg| arg.text().unwrap_or_default())).collect();
        let own = crate::permission::arity::prefix(&first).len().saturating_sub(1);
        let order = args.iter().position(|arg| !arg.prefix().starts_with('-')).map_or(0, |at| at + 1);
        let own = if WORDED.contains(&name) { own.max(order) } else { own };
        for text in args.iter().skip(own).filter_map(Arg::text).filter(|text| !text.contains(' ')) {
            unit.words.extend(names_in(text).map(str::to_owned));
        }
        self.given += args.len();
        let looked_at = if self.given > GIVEN {
            unit.opaque("it has more words than are looked at");
            args.len().min(BEGINNING)
        } else {
            args.len()
        };
        for arg in &args[..looked_at] {
            let Some(text) = arg.text().map(str::to_owned) else {
                if arg
                    .pattern()
                    .is_some_and(|pattern| pattern.rsplit('/').next().is_some_and(|name| name.starts_with('.')))
                {
                    self.touch(Access::Read, arg, unit, state);
                }
                continue;
            };
            if text.contains([' ', ';', '|', '&', '\n']) || text.contains("$(") {
                unit.texts.push(text);
                continue;
            }
            let value = text.rsplit(['=', '@']).next().unwrap_or(&text).to_owned();
            for candidate in [text, value] {
                let name = candidate.rsplit('/').next().unwrap_or_default();
                if (candidate.contains('/') && !candidate.contains("://"))
                    || candidate == ".."
                    || protected::secret_name(name)
                {
                    let start = candidate.find(['/', '.']).filter(|_| candidate.starts_with('-')).unwrap_or(0);
                    self.touch_guess(&candidate[start..], unit, state);
                }
            }
        }
    }

    fn reader(&mut self, name: &str, program: &Program, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let options = Options::read(args, program.short, program.long);
        let mut effect = Effect::Reads;
        if let Some(flag) = options.find(program.turns) {
            unit.danger(&flag.name);
            effect = Effect::Unproven;
        }
        if options.unknown && !(program.turns.is_empty() && program.writes.is_empty()) {
            effect = Effect::Unproven;
        }
        for flag in options.all(program.writes) {
            let value = flag.value.clone().unwrap_or_else(|| Arg::unknown(&flag.name));
            self.touch(Access::Edit, &value, unit, state);
        }
        for flag in options.all(program.reads) {
            if let Some(value) = flag.value.clone() {
                self.touch(Access::Read, &value, unit, state);
            }
        }
        for flag in options.all(program.runs) {
            if let Some(value) = flag.value.clone() {
                if value.text().is_some_and(|text| text.contains(' ')) {
                    self.text(&value, unit, true, true, state);
                } else {
                    self.inner(&[value, Arg::unknown("…")], unit, true, &mut state.clone());
                }
            }
        }
        if matches!(name, "rg" | "ripgrep") {
            // What a glob names is searched though it is hidden.
            for glob in options.all(&["-g", "--glob", "--iglob"]).filter_map(|flag| flag.value.as_ref()) {
                let text = glob.text().or(glob.pattern()).unwrap_or_default();
                if !text.starts_with('!') && text.rsplit('/').next().is_some_and(|name| name.starts_with('.')) {
                    Self::secret(
                        unit,
                        text,
                        &format!("it reads hidden files named {text}, which may hold keys or passwords"),
                    );
                }
            }
        }
        if matches!(name, "jq" | "gojq") {
            // `--rawfile name file`
            for (at, _) in args.iter().enumerate().filter(|(_, arg)| arg.is("--rawfile") || arg.is("--slurpfile")) {
                if let Some(file) = args.get(at + 2) {
                    self.touch(Access::Read, file, unit, state);
                }
            }
        }
        let operands = options.operands.as_slice();
        match name {
            "uniq" => {}
            "file" if options.has(&["-C", "--compile"]) => effect = Effect::Writes,
            "date" if operands.iter().any(|arg| !arg.prefix().starts_with('+')) => effect = Effect::Unproven,
            "hostname" if !operands.is_empty() => effect = Effect::Unproven,
            "ps" if operands.iter().any(|arg| arg.text().is_none_or(|text| text.contains(['e', 'E']))) => {
                effect = Effect::Unproven
            }
            // It can print every variable.
            "jq" | "gojq" if args.iter().any(|arg| arg.prefix().contains("env") || arg.prefix().contains("$ENV")) => {
                effect = Effect::Unproven;
            }
            "yq" if args.iter().any(|arg| ["load", "env", "system"].iter().any(|word| arg.prefix().contains(word))) => {
                // It opens other files, prints variables, runs programs.
                effect = Effect::Unproven;
                unit.doubt("its program may read files and run programs");
            }
            "fd" | "fdfind" => {
                let names = ["-x", "-X", "--exec", "--exec-batch"];
                if let Some(flag) = options.find(&names) {
                    unit.danger("-x");
                    unit.carrier = true;
                    let apart = args.iter().position(|arg| names.iter().any(|name| arg.is(name)));
                    let mut inner: Vec<Arg> = match (apart, &flag.value) {
                        (Some(at), _) => args[at + 1..].to_vec(),
                        (None, value) => value.iter().cloned().collect(),
                    };
                    inner.push(Arg::unknown("…"));
                    self.inner(&inner, unit, false, &mut state.clone());
                } else if options.unknown {
                    effect = Effect::Unproven;
                }
                let elsewhere = options.all(&["--base-directory", "--search-path"]);
                for arg in operands.iter().skip(1).chain(elsewhere.filter_map(|flag| flag.value.as_ref())) {
                    self.touch(Access::List, arg, unit, state);
                }
            }
            "less" | "more" | "most" | "view" | "man" | "info" => {
                effect = Effect::Unproven;
                unit.texts
                    .extend(args.iter().filter_map(Arg::text).filter(|text| text.starts_with('+')).map(str::to_owned));
            }
            "zcat" | "zgrep" | "bzcat" | "xzcat" | "ldd" | "lsof" | "bat" | "batcat" => effect = Effect::Unproven,
            _ => {}
        }
        unit.effect_at_least(effect);
        let recursive = match name {
            "rg" | "ripgrep" => options.has(&["--hidden", "-u", "--no-ignore", "--unrestricted", "-."]),
            _ => options.has(&["-r", "-R", "--recursive", "--dereference-recursive"]),
        };
        let reads = |walk: &mut Self, arg: &Arg, unit: &mut Unit, state: &State| {
            walk.touch(Access::Read, arg, unit, state);
            if recursive {
                walk.below(arg, &options, unit, state);
            }
        };
        match program.operands {
            Use::Nothing => {}
            Use::List => operands.iter().for_each(|arg| self.touch(Access::List, arg, unit, state)),
            Use::Read => operands.iter().for_each(|arg| reads(self, arg, unit, state)),
            Use::TextThenRead => {
                let given = options.has(&["-e", "--regexp", "-f", "--file", "--from-file", "--files"]);
                let files = operands.get(usize::from(!given)..).unwrap_or_default();
                files.iter().for_each(|arg| reads(self, arg, unit, state));
                if recursive && files.is_empty() {
                    reads(self, &Arg::exact("."), unit, state);
                }
            }
            Use::Copy | Use::Edit => {
                if let [from, to, ..] = operands {
                    self.touch(Access::Read, from, unit, state);
                    self.touch(Access::Edit, to, unit, state);
                } else {
                    operands.iter().for_each(|arg| self.touch(Access::Read, arg, unit, state));
                }
            }
        }
    }

    /// Whether a directory that is read to its bottom holds secrets. Looks at no more than a few
    /// hundred names: a sample that finds what usually lies near the top.
    pub(super) fn below(&mut self, arg: &Arg, options: &Options, unit: &mut Unit, state: &State) {
        const SKIP: [&str; 6] = [".git", "node_modules", "target", "dist", "build", ".venv"];
        let picked = options.all(&["--include"]).filter_map(|flag| flag.value.as_ref()).collect::<Vec<_>>();
        let left_out = options.all(&["--exclude"]).filter_map(|flag| flag.value.as_ref()).collect::<Vec<_>>();
        let fits = |globs: &[&Arg], name: &str| {
            globs.iter().any(|glob| {
                let glob = glob.text().or(glob.pattern()).unwrap_or_default();
                crate::permission::wildcard::matches(glob, name)
            })
        };
        let (Some(text), [cwd]) = (arg.text(), state.cwd.as_slice()) else { return };
        let mut dirs = std::collections::VecDeque::from([cwd.join(text)]);
        let mut budget = 512_usize;
        while let Some(dir) = dirs.pop_front() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if budget == 0 {
                    return;
                }
                if self.entries == 0 {
                    unit.floor(crate::permission::Action::Ask, "it reads more directories than are looked at");
                    return;
                }
                budget -= 1;
                self.entries -= 1;
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if !SKIP.contains(&name.as_str()) {
                        dirs.push_back(entry.path());
                    }
                } else if protected::secret_name(&name)
                    && !fits(&left_out, &name)
                    && (picked.is_empty() || fits(&picked, &name))
                {
                    self.secret_below(&entry.path(), unit);
                    return;
                }
            }
        }
    }

    fn secret_below(&self, path: &std::path::Path, unit: &mut Unit) {
        let shown = path.strip_prefix(&self.place.root).unwrap_or(path).display().to_string();
        Self::secret(unit, &shown, &format!("it reads {shown} too, which may hold keys or passwords"));
    }

    /// Notes that a unit reads a secret that has no path of its own.
    pub(super) fn secret(unit: &mut Unit, shown: &str, reason: &str) {
        let mut need = crate::permission::Need::new("read", shown);
        need.floor = Some((crate::permission::Action::Ask, reason.to_owned()));
        unit.touches.push(need);
    }

    fn writer(&mut self, name: &str, program: &Writer, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let options = Options::read(args, program.short, program.long);
        unit.effect = Effect::Writes;
        unit.destroys = program.destroys;
        let mut operands = options.operands.clone();
        match name {
            "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" | "setcap" | "rename" | "prename"
                if !operands.is_empty() =>
            {
                operands.remove(0);
            }
            "mktemp" | "crontab" if options.has(&["-l", "-u", "--dry-run"]) => unit.effect = Effect::Unproven,
            "gzip" | "gunzip" | "bzip2" | "xz" | "zstd"
                if options.has(&["-c", "--stdout", "-l", "--list", "-t", "--test"]) =>
            {
                unit.effect = Effect::Reads;
                operands.iter().for_each(|arg| self.touch(Access::Read, arg, unit, state));
                return;
            }
            "split" | "csplit" => {
                if let Some(text) = options.find(&["--filter"]).and_then(|flag| flag.value.clone()) {
                    unit.carrier = true;
                    self.text(&text, unit, false, true, state);
                }
                if let Some(file) = operands.first().cloned() {
                    self.touch(Access::Read, &file, unit, state);
                }
                if let Some(prefix) = operands.get(1).cloned() {
                    self.touch(Access::Edit, &prefix, unit, state);
                }
            }
            "crontab" => unit.opaque("it changes what runs later"),
            "patch" => unit.texts.extend(args.iter().filter_map(Arg::text).map(str::to_owned)),
            _ => {}
        }
        if matches!(name, "dos2unix" | "unix2dos" | "prettier" | "gofmt" | "rustfmt" | "black" | "isort") {
            unit.effect = Effect::Unproven;
            self.stranger(args, unit, state);
            return;
        }
        let target = options.find(&["-t", "--target-directory"]).and_then(|flag| flag.value.clone());
        match program.operands {
            Use::Edit => {
                let entries = matches!(name, "rm" | "rmdir" | "unlink" | "mv" | "trash" | "trash-put" | "srm");
                let last = operands.len() - usize::from(name == "mv" && target.is_none() && !operands.is_empty());
                for (at, arg) in operands.iter().enumerate() {
                    if entries && at < last && self.touch_link(arg, unit, state) {
                        if let Some(to) = operands.last().filter(|_| name == "mv") {
                            self.links_to(to, state);
                        }
                        continue;
                    }
                    if name == "mv" {
                        self.touch(Access::Read, arg, unit, state);
                    }
                    self.touch(Access::Edit, arg, unit, state);
                }
            }
            Use::Copy => {
                let last = if target.is_none() { operands.pop() } else { target.clone() };
                for arg in &operands {
                    self.touch(Access::Read, arg, unit, state);
                    if options.has(&["-r", "-R", "-a", "--recursive", "--archive"]) {
                        self.below(arg, &Options::default(), unit, state);
                    }
                }
                if let Some(last) = last {
                    self.copied(name, &operands, &last, &options, unit, state);
                }
            }
            _ => {}
        }
        if let Some(target) = target.filter(|_| matches!(program.operands, Use::Edit)) {
            self.touch(Access::Edit, &target, unit, state);
        }
    }

    /// The target of a copy or a link: in a directory the names of the sources are written.
    fn copied(&mut self, name: &str, from: &[Arg], to: &Arg, options: &Options, unit: &mut Unit, state: &mut State) {
        self.touch(Access::Edit, to, unit, state);
        let directory = to.text().is_some_and(|text| state.cwd.iter().any(|cwd| cwd.join(text).is_dir()));
        if directory {
            for arg in from {
                if let (Some(dir), Some(text)) = (to.text(), arg.text()) {
                    let name = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                    let path = format!("{}/{name}", dir.trim_end_matches('/'));
                    self.touch_text(Access::Edit, &path, unit, state);
                    if links(options) {
                        self.links_to(&Arg::exact(path), state);
                    }
                }
            }
        }
        if name == "ln" || links(options) {
            if !directory {
                self.links_to(to, state);
            }
            if from.is_empty() {
                // `ln -s target` makes the link here.
                self.links_to(&Arg::unknown("."), state);
            }
        }
        if name == "ln" && directory {
            for arg in from {
                let name =
                    arg.text().map(|text| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned());
                if let (Some(dir), Some(name)) = (to.text(), name) {
                    self.links_to(&Arg::exact(format!("{}/{name}", dir.trim_end_matches('/'))), state);
                }
            }
        }
    }

    /// Programs with a language of options of their own.
    fn special(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        match name {
            "uniq" => {
                let options = Options::read(args, "fsw", &["skip-fields", "skip-chars", "check-chars"]);
                if let Some(input) = options.operands.first() {
                    self.touch(Access::Read, &input.clone(), unit, state);
                }
                if let Some(output) = options.operands.get(1) {
                    unit.danger("a second file");
                    self.touch(Access::Edit, &output.clone(), unit, state);
                }
                unit.effect_at_least(if options.unknown { Effect::Unproven } else { Effect::Reads });
            }
            "dd" => {
                unit.effect = Effect::Writes;
                unit.destroys = true;
                for arg in args {
                    if arg.prefix().starts_with("if=") {
                        self.touch(Access::Read, &arg.after(3), unit, state);
                    } else if arg.prefix().starts_with("of=") {
                        self.touch(Access::Edit, &arg.after(3), unit, state);
                    } else if arg.prefix().is_empty() {
                        self.touch(Access::Edit, arg, unit, state);
                    }
                }
                if !args.iter().any(|arg| arg.prefix().starts_with("of=") || arg.prefix().is_empty()) {
                    unit.effect = Effect::Reads;
                    unit.destroys = false;
                }
            }
            "printenv" => unit.effect_at_least(Effect::Unproven),
            "find" | "gfind" => self.find(args, unit, state),
            "tar" | "gtar" | "bsdtar" => self.tar(args, unit, state),
            "curl" | "wget" | "ssh" | "scp" | "sftp" | "rsync" | "nc" | "ncat" | "socat" | "openssl" => {
                self.network(name, args, unit, state);
            }
            "make" | "gmake" | "ninja" | "just" => {
                unit.effect_at_least(Effect::Unproven);
                let options = Options::read(args, "fCjIoWld", &["file", "makefile", "directory", "justfile"]);
                let piped = |text: &str| {
                    text == "-" || text.starts_with("/dev/") || text.starts_with("/proc/") || text.contains("/dev/fd/")
                };
                let files = options.all(&["-f", "--file", "--makefile", "--justfile"]);
                if files.filter_map(|flag| flag.value.as_ref()).any(|file| file.text().is_none_or(piped)) {
                    unit.opaque("its program comes from its input");
                }
                unit.texts.extend(
                    args.iter().filter_map(Arg::text).filter(|text| text.contains([' ', '='])).map(str::to_owned),
                );
                self.stranger(args, unit, state);
            }
            "at" | "batch" => unit.opaque("it runs its input later"),
            "zip" | "unzip" | "7z" | "cpio" | "ar" => {
                let lists = matches!(name, "unzip")
                    && args.iter().any(|arg| arg.is("-l") || arg.is("-p") || arg.is("-t") || arg.is("-Z"));
                unit.effect_at_least(if lists { Effect::Reads } else { Effect::Writes });
                let command = args
                    .windows(2)
                    .find(|pair| ["-TT", "--unzip-command", "--rsh-command"].iter().any(|option| pair[0].is(option)));
                if let Some(pair) = command {
                    self.text(&pair[1].clone(), unit, true, true, state);
                }
                let recursive = args.iter().any(|arg| arg.prefix().starts_with('-') && arg.prefix().contains('r'));
                for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
                    self.touch(Access::Read, arg, unit, state);
                    if name == "zip" && recursive {
                        self.below(arg, &Options::default(), unit, state);
                    }
                }
                if name != "zip" {
                    self.links_to(&Arg::unknown("."), state);
                }
            }
            "mkfs" | "wipefs" | "fdisk" | "parted" | "sgdisk" | "mkswap" => unit.effect = Effect::Writes,
            _ => return false,
        }
        true
    }
}

/// What in a word could be a program's name: what stands between signs, and of paths the end.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    text.split(move |c| !part(c))
        .map(|part| part.rsplit('/').next().unwrap_or(part))
        .filter(|name| !name.is_empty() && !name.starts_with('-'))
}

/// Options under which copies keep links.
fn links(options: &Options) -> bool {
    options.has(&["-s", "--symbolic", "-a", "-d", "-P", "-R", "-r", "--archive", "--no-dereference", "--recursive"])
}
