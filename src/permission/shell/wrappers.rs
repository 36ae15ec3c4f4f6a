//! Programs and builtins that run other programs: each layer is a unit of its own.

use super::expand::Arg;
use super::options::Options;
use super::scripts::is_shell;
use super::state::State;
use super::table::INTERPRETERS;
use super::variables::variable_danger;
use super::walk::{Input, Origin, Walk};
use super::{Action, Effect, Unit};
use crate::permission::paths::Access;
use crate::permission::wildcard::UNKNOWN;

/// A wrapper: its names, the letters and long options that take a value, how many words stand
/// between its options and the program, and whether it is known to do nothing by itself.
type Wrapper = (&'static [&'static str], &'static str, &'static [&'static str], usize, bool);

const WRAPPERS: [Wrapper; 24] = [
    (&["nohup"], "", &[], 0, true),
    (&["timeout", "gtimeout"], "ks", &["kill-after", "signal"], 1, true),
    (&["nice"], "n", &["adjustment"], 0, true),
    (&["ionice"], "cnpPu", &["class", "classdata", "pid"], 0, true),
    (&["stdbuf"], "ioe", &["input", "output", "error"], 0, true),
    (&["setsid"], "", &[], 0, true),
    (&["chrt"], "TPDp", &[], 1, false),
    (&["taskset"], "p", &[], 1, true),
    // Words of other shells, which mean nothing here and everything there.
    (&["noglob", "nocorrect", "not", "and", "or", "-"], "", &[], 0, true),
    (&["repeat"], "", &[], 1, true),
    (&["gosu", "su-exec"], "", &[], 1, false),
    (
        &["sudo"],
        "ugpCcDhrtTUR",
        &["user", "group", "prompt", "chdir", "host", "role", "type", "chroot", "close-from", "other-user"],
        0,
        false,
    ),
    (&["doas"], "uC", &[], 0, false),
    (
        &["unshare"],
        "RwSGl",
        &["root", "wd", "setuid", "setgid", "propagation", "map-user", "map-group", "map-users", "map-groups"],
        0,
        false,
    ),
    (&["nsenter"], "tSGrw", &["target", "setuid", "setgid"], 0, false),
    (&["chroot"], "", &["userspec", "groups"], 1, false),
    (&["strace", "ltrace"], "eoOpsSuPIbEaXln", &["output", "trace", "attach", "user"], 0, false),
    (&["fakeroot"], "lsibu", &["lib", "faked", "save-file", "load-file"], 0, false),
    (&["setarch", "linux32", "linux64"], "", &[], 0, true),
    (&["prlimit"], "po", &["pid", "output"], 0, true),
    (&["setpriv"], "", &["reuid", "regid", "groups", "inh-caps", "ambient-caps", "bounding-set"], 0, false),
    (&["dbus-run-session"], "", &["config-file", "dbus-daemon"], 0, false),
    (&["catchsegv", "unbuffer", "caffeinate"], "", &[], 0, false),
    (&["runcon"], "trul", &["type", "role", "user", "range"], 0, false),
];

/// Programs that run the words after some options and words we do not know well enough.
const LOOSE: [&str; 28] = [
    "bwrap",
    "firejail",
    "proot",
    "runuser",
    "su",
    "systemd-run",
    "cgexec",
    "numactl",
    "torsocks",
    "torify",
    "proxychains",
    "proxychains4",
    "xvfb-run",
    "aa-exec",
    "rlwrap",
    "valgrind",
    "perf",
    "hyperfine",
    "entr",
    "direnv",
    "mise",
    "uv",
    "npx",
    "pipx",
    "uvx",
    "parallel",
    "pkexec",
    "run0",
];

/// Programs one word of which says that the others are a program to run: their names, those words,
/// and whether it runs here, so that what it touches can be judged.
type Runner = (&'static [&'static str], &'static [&'static str], bool);

const RUNNERS: [Runner; 8] = [
    (&["poetry", "pipenv", "pdm", "rye", "hatch", "conda", "mamba", "pixi", "uv", "nix", "flatpak"], &["run"], true),
    (
        &["bundle", "npm", "pnpm", "yarn", "asdf", "rbenv", "pyenv", "opam", "mise", "direnv", "stack"],
        &["exec", "x", "dlx"],
        true,
    ),
    (&["perf"], &["stat", "record", "trace"], true),
    (&["docker", "podman", "nerdctl", "finch", "container"], &["run", "exec"], false),
    (&["docker-compose"], &["run", "exec"], false),
    (&["kubectl", "oc", "lxc", "incus"], &["exec", "run", "debug"], false),
    (&["distrobox", "toolbox"], &["run", "enter"], true),
    (&["snap"], &["run"], false),
];

impl Walk<'_> {
    /// Judges words that run as a command.
    pub(super) fn run(&mut self, args: &[Arg], mut unit: Unit, state: &mut State) {
        let index = self.reserve();
        unit.normal = args.iter().map(Arg::normal).collect::<Vec<_>>().join(" ");
        if let Some(arg) = args.iter().find(|arg| !arg.literal) {
            unit.broad_only.get_or_insert_with(|| format!("{} is computed when it runs", arg.raw));
        }
        let Some(name) = args[0].text().map(str::to_owned) else {
            unit.opaque("the name of the program is computed");
            unit.effect = unit.effect.max(Effect::Unproven);
            for text in args[0].texts().unwrap_or_default() {
                unit.names.push(joined(text, &args[1..]));
            }
            if args[0].prefix().is_empty() && args.len() > 1 {
                // It may vanish, and the next word is the program.
                unit.names.push(joined(&args[1].normal(), &args[2..]));
            }
            self.fill(index, unit);
            return;
        };
        unit.program = Some(name.clone());
        if !args[0].literal {
            // Its value is known here, but only rules that deny go by it.
            unit.opaque("the name of the program is computed");
            unit.effect_at_least(Effect::Unproven);
            spellings(name.rsplit('/').next().unwrap_or(&name), args, &mut unit);
            super::floor::judge(self, name.rsplit('/').next().unwrap_or(&name), &args[1..], &mut unit, state);
            self.fill(index, unit);
            return;
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_./+:@%-[".contains(c);
        if name.is_empty() || !name.chars().all(allowed) {
            unit.opaque(&format!("{name:?} is an unusual name for a program"));
        }
        let base = name.rsplit('/').next().unwrap_or(&name).to_owned();
        spellings(&base, args, &mut unit);
        let origin = self.origin(&name, state);
        match origin {
            Origin::Other => {
                unit.foreign = Some(format!("{name} is not a program of the system"));
                unit.effect_at_least(Effect::Unproven);
            }
            Origin::Missing => {
                unit.foreign = Some(format!("{name} is not found on PATH"));
            }
            Origin::Builtin | Origin::System => {}
        }
        if state.is_function(&name) {
            unit.broad_only.get_or_insert_with(|| format!("{name} is a function here"));
        }
        if let Some(reason) = Self::changed(state) {
            unit.broad_only.get_or_insert_with(|| format!("what ran before changes what it means: {reason}"));
            unit.effect_at_least(Effect::Unproven);
        }
        let rest = &args[1..];
        if !(self.builtin(&base, rest, &mut unit, state) || self.wrapper(&base, rest, &mut unit, state)) {
            self.program(&base, rest, &mut unit, state);
        }
        super::floor::judge(self, &base, rest, &mut unit, state);
        self.fill(index, unit);
    }

    fn wrapper(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        if let Some((_, short, long, skip, quiet)) = WRAPPERS.iter().find(|(names, ..)| names.contains(&name)) {
            let (options, mut at) = Options::leading(args, short, long);
            at += skip;
            while name == "sudo" && args.get(at).is_some_and(|arg| arg.text().is_some_and(|text| text.contains('='))) {
                unit.opaque("variables are set for a program that runs as another user");
                at += 1;
            }
            if name == "setarch" && args.get(at).is_some_and(|arg| arg.prefix().starts_with(['x', 'i', 'a', 'p', 's']))
            {
                at += 1;
            }
            unit.carrier = true;
            unit.effect_at_least(if *quiet && !options.unknown { Effect::Reads } else { Effect::Unproven });
            self.output_file(&options, unit, state);
            if options.unknown {
                unit.opaque("how its options end is not known");
            }
            let moves = ["-D", "--chdir", "-R", "--chroot", "--root", "-w", "--wd"];
            let mut inner = state.clone();
            if options.has(&moves) && ["sudo", "unshare"].contains(&name) {
                inner.cwd.clear();
            }
            if name == "chroot" {
                unit.floor(Action::Ask, "paths lead elsewhere under another root");
            }
            self.inner(args.get(at..).unwrap_or_default(), unit, false, &mut inner);
            if ["sudo", "doas"].contains(&name) && options.has(&["-s", "-i", "--shell", "--login", "-e", "--edit"]) {
                unit.opaque("it starts a shell or an editor");
            }
            return true;
        }
        let told = RUNNERS.iter().find(|(names, ..)| names.contains(&name)).and_then(|(_, words, here)| {
            let at = args.iter().position(|arg| words.iter().any(|word| arg.is(word)))?;
            Some((at + 1, *here))
        });
        if let Some((at, here)) = told {
            unit.carrier = true;
            unit.effect_at_least(Effect::Unproven);
            let rest = args.get(at..).unwrap_or_default();
            carried(if LOOSE.contains(&name) { args } else { rest }, unit);
            if here {
                let (options, skip) =
                    Options::leading(rest, "eopCtIDcn", &["event", "output", "with", "package", "name"]);
                if let Some(text) = options.find(&["-c", "--call"]).and_then(|flag| flag.value.clone()) {
                    self.text(&text, unit, true, true, state);
                }
                self.inner(rest.get(skip..).unwrap_or_default(), unit, true, &mut state.clone());
            } else {
                self.stranger(args, unit, state);
                self.leaving(args, unit, state);
                // The text of a shell in there is taken apart as well.
                let shell =
                    |arg: &Arg| arg.text().is_some_and(|text| is_shell(text.rsplit('/').next().unwrap_or(text)));
                if let Some(at) = rest.iter().position(shell) {
                    let flag = |arg: &Arg| {
                        arg.prefix().starts_with('-') && !arg.prefix().starts_with("--") && arg.prefix().contains('c')
                    };
                    let text = rest[at..].iter().position(flag).and_then(|flag| rest.get(at + flag + 1)).cloned();
                    if let Some(text) = text {
                        self.text(&text, unit, true, true, state);
                    }
                }
            }
            return true;
        }
        if LOOSE.contains(&name) {
            unit.carrier = true;
            unit.effect_at_least(Effect::Unproven);
            carried(args, unit);
            match name {
                "su" | "runuser" => {
                    let (options, at) = Options::leading(
                        args,
                        "cgGsCTw",
                        &["command", "group", "supp-group", "shell", "session-command"],
                    );
                    let rest =
                        Options::read(args.get(at..).unwrap_or_default(), "cgGsCTw", &["command", "session-command"]);
                    let names = ["-c", "--command", "--session-command"];
                    if let Some(text) =
                        options.find(&names).or_else(|| rest.find(&names)).and_then(|flag| flag.value.clone())
                    {
                        self.text(&text, unit, false, true, state);
                    } else if name == "runuser" && args.iter().any(|arg| arg.is("-u") || arg.is("--user")) {
                        let (_, at) = Options::leading(args, "uwgG", &["user", "group", "supp-group"]);
                        self.inner(args.get(at..).unwrap_or_default(), unit, false, &mut state.clone());
                    }
                }
                "entr" => {
                    let (options, at) = Options::leading(args, "", &[]);
                    let rest = args.get(at..).unwrap_or_default();
                    if options.has(&["-s"]) {
                        self.joined_text(rest, unit, true, &mut state.clone());
                    } else {
                        self.inner(rest, unit, false, &mut state.clone());
                    }
                }
                "hyperfine" => {
                    let options = Options::read(
                        args,
                        "wrmMpSusPDLn",
                        &["warmup", "runs", "min-runs", "max-runs", "shell", "export-json", "export-csv", "style"],
                    );
                    let carried = options.all(&["-p", "--prepare", "-s", "--setup", "-c", "--cleanup", "--conclude"]);
                    let mut texts: Vec<Arg> = carried.filter_map(|flag| flag.value.clone()).collect();
                    texts.extend(options.operands.iter().cloned());
                    for text in texts {
                        self.text(&text, unit, false, true, &mut state.clone());
                    }
                }
                "parallel" => {
                    let (_, at) = Options::leading(args, "jnNaIC", &["jobs", "arg-file", "colsep", "delay", "timeout"]);
                    let rest = args.get(at..).unwrap_or_default();
                    let end = rest.iter().position(|arg| arg.prefix().starts_with(":::")).unwrap_or(rest.len());
                    let mut inner: Vec<Arg> = rest[..end].to_vec();
                    inner.push(Arg::unknown("…"));
                    if end > 0 {
                        self.inner(&inner, unit, false, &mut state.clone());
                    }
                }
                "systemd-run" | "pkexec" | "run0" | "xvfb-run" | "proxychains" | "proxychains4" | "torsocks"
                | "torify" | "rlwrap" | "valgrind" | "firejail" | "aa-exec" => {
                    let (_, at) = Options::leading(args, "pufME", &["user", "unit", "property"]);
                    self.inner(args.get(at..).unwrap_or_default(), unit, false, &mut state.clone());
                }
                _ => {}
            }
            if matches!(name, "parallel" | "su" | "entr") && self.stdin() == Input::Pipe {
                unit.opaque("it reads commands from its input");
            }
            return true;
        }
        match name {
            "env" | "genv" => self.env(args, unit, state),
            "xargs" | "gxargs" => self.xargs(args, unit, state),
            "flock" => {
                let (options, at) = Options::leading(args, "wEc", &["timeout", "conflict-exit-code", "command"]);
                unit.effect_at_least(Effect::Unproven);
                let rest = args.get(at + 1..).unwrap_or_default();
                let after = rest.first().filter(|arg| arg.is("-c") || arg.is("--command")).and(rest.get(1));
                if let Some(text) = options.find(&["-c", "--command"]).and_then(|flag| flag.value.as_ref()).or(after) {
                    self.text(text, unit, false, true, state);
                } else {
                    self.inner(rest, unit, false, &mut state.clone());
                }
                unit.carrier = true;
            }
            "script" => {
                let options =
                    Options::read(args, "cEoOIBTtm", &["command", "echo", "log-in", "log-out", "log-io", "log-timing"]);
                unit.carrier = true;
                unit.effect_at_least(Effect::Unproven);
                match options.find(&["-c", "--command"]).and_then(|flag| flag.value.as_ref()) {
                    Some(text) => self.text(text, unit, false, true, state),
                    None => unit.opaque("it starts an interactive shell"),
                }
                for file in &options.operands {
                    self.touch(Access::Edit, file, unit, state);
                }
            }
            "busybox" | "toybox" => {
                unit.carrier = true;
                unit.effect_at_least(Effect::Unproven);
                self.inner(args, unit, false, &mut state.clone());
            }
            "watch" => {
                let (options, at) = Options::leading(args, "nq", &["interval", "equexit"]);
                unit.carrier = true;
                let rest = args.get(at..).unwrap_or_default();
                if options.has(&["-x", "--exec"]) {
                    self.inner(rest, unit, false, &mut state.clone());
                } else {
                    self.joined_text(rest, unit, true, &mut state.clone());
                }
            }
            "time" | "gtime" => {
                let (options, at) = Options::leading(args, "fo", &["format", "output"]);
                unit.carrier = true;
                self.output_file(&options, unit, state);
                self.inner(args.get(at..).unwrap_or_default(), unit, false, &mut state.clone());
            }
            name if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld.so") => {
                let (_, at) =
                    Options::leading(args, "", &["library-path", "preload", "audit", "argv0", "inhibit-rpath"]);
                unit.carrier = true;
                unit.effect_at_least(Effect::Unproven);
                self.inner(args.get(at..).unwrap_or_default(), unit, false, &mut state.clone());
            }
            _ => return false,
        }
        true
    }

    fn output_file(&mut self, options: &Options, unit: &mut Unit, state: &State) {
        for flag in options.all(&["-o", "--output"]) {
            if let Some(value) = flag.value.clone().filter(|value| value.prefix() != "L") {
                self.touch(Access::Edit, &value, unit, state);
            }
        }
    }

    fn env(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        unit.carrier = true;
        let (options, mut at) = Options::leading(args, "uCSaP", &["unset", "chdir", "split-string", "argv0"]);
        if options.unknown {
            unit.opaque("how its options end is not known");
        }
        if options.has(&["-S", "--split-string"]) {
            let text = options.find(&["-S", "--split-string"]).and_then(|flag| flag.value.as_ref());
            match text.and_then(Arg::text).map(|text| text.to_owned()) {
                Some(text) if !text.contains(['\\', '$', '#']) => match split(&text) {
                    Some(words) => {
                        let words = words.into_iter().map(Arg::exact);
                        let all: Vec<Arg> = words.chain(args.get(at..).unwrap_or_default().iter().cloned()).collect();
                        self.env(&all, unit, state);
                    }
                    None => unit.opaque("a quote in the text it splits is not closed"),
                },
                _ => unit.opaque("it splits a text into a command"),
            }
            return;
        }
        at += usize::from(args.get(at).is_some_and(|arg| arg.is("-")));
        let mut inner = state.clone();
        for name in options.all(&["-u", "--unset"]).filter_map(|flag| flag.value.as_ref()) {
            if name.text().is_none_or(|name| ["PATH", "HOME"].contains(&name)) {
                unit.opaque("it removes a variable that decides what runs");
            }
        }
        while let Some(arg) = args.get(at)
            && arg.prefix().contains('=')
        {
            let name = arg.prefix().split('=').next().unwrap_or_default();
            if let Some(reason) = variable_danger(name) {
                unit.opaque(&format!("{name} {reason}"));
            }
            unit.effect_at_least(Effect::Unproven);
            unit.broad_only.get_or_insert_with(|| format!("{name} is set"));
            inner.change("a variable is set for it");
            at += 1;
        }
        if let Some(dir) = options.find(&["-C", "--chdir"]).and_then(|flag| flag.value.clone()) {
            self.chdir(Some(&dir), unit, &mut inner);
        }
        let rest = args.get(at..).unwrap_or_default();
        if rest.is_empty() {
            // It prints every variable, secrets among them.
            unit.effect_at_least(Effect::Unproven);
        }
        self.inner(rest, unit, false, &mut inner);
    }

    fn xargs(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        unit.carrier = true;
        let long = ["arg-file", "delimiter", "max-lines", "max-args", "max-procs", "max-chars", "process-slot-var"];
        let (options, at) = Options::leading(args, "aEIJLnPsdR", &long);
        if options.unknown {
            unit.opaque("how its options end is not known");
        }
        if let Some(file) = options.find(&["-a", "--arg-file"]).and_then(|flag| flag.value.clone()) {
            self.touch(Access::Read, &file, unit, state);
        }
        let replaced = options.find(&["-I", "-i", "--replace", "-J"]).map(|flag| {
            flag.value.as_ref().and_then(Arg::text).filter(|text| !text.is_empty()).unwrap_or("{}").to_owned()
        });
        let fill = |arg: &Arg| match &replaced {
            Some(mark) if arg.text().is_some_and(|text| text.contains(mark.as_str())) => {
                Arg::filled(arg.text().unwrap_or_default(), mark)
            }
            _ => arg.clone(),
        };
        let mut inner: Vec<Arg> = args.get(at..).unwrap_or_default().iter().map(fill).collect();
        if inner.is_empty() {
            return;
        }
        let name = if self.picked { Arg::found() } else { Arg::unknown("…") };
        if replaced.is_none() {
            inner.push(name);
        } else if self.picked {
            inner.iter_mut().filter(|arg| arg.is_unknown()).for_each(|arg| *arg = Arg::found());
        }
        self.inner(&inner, unit, false, &mut state.clone());
    }

    /// Words that a program joins and hands to a shell.
    pub(super) fn joined_text(&mut self, args: &[Arg], unit: &mut Unit, apart: bool, state: &mut State) {
        if args.is_empty() {
            return;
        }
        // What is not known is replaced by a word: enough for rules that deny.
        let words: Vec<String> = args.iter().map(|arg| arg.normal().replace(UNKNOWN, "unknown")).collect();
        let mut text = Arg::exact(words.join(" "));
        text.literal = args.iter().all(|arg| arg.literal);
        self.text(&text, unit, false, apart, state);
    }
}

/// Words one of which begins a program, nobody knows which: each is named for rules that deny.
fn carried(args: &[Arg], unit: &mut Unit) {
    unit.texts.extend(args.iter().filter_map(Arg::text).filter(|text| text.contains(' ')).map(str::to_owned));
    unit.tails = args.iter().map(Arg::normal).collect();
}

/// The words of a text as `env -S` splits it; escapes and variables aside. None where a quote is open.
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

/// Whether a program runs others, or texts, that stand among its words.
pub(in crate::permission) fn carries(name: &str) -> bool {
    const MORE: [&str; 34] = [
        "env", "genv", "xargs", "gxargs", "flock", "script", "busybox", "toybox", "watch", "time", "gtime", "eval",
        "exec", "command", "builtin", "trap", "find", "gfind", "fd", "fdfind", "coproc", "then", "do", "else", "elif",
        "if", "while", "until", "!", "ssh", "source", "alias", "awk", "sed",
    ];
    MORE.contains(&name)
        || LOOSE.contains(&name)
        || is_shell(name)
        || WRAPPERS.iter().any(|(names, ..)| names.contains(&name))
        || RUNNERS.iter().any(|(names, ..)| names.contains(&name))
}

/// Every wrapper of the tables with what has to stand between it and a command, with and without its
/// options: for what must hold for all of them.
#[cfg(test)]
pub(in crate::permission) fn beginnings() -> Vec<String> {
    let mut all = vec![];
    for (names, short, long, skip, _) in &WRAPPERS {
        for name in *names {
            let between = " 1".repeat(*skip);
            all.push(format!("{name}{between}"));
            all.extend(short.chars().map(|letter| format!("{name} -{letter} 1{between}")));
            all.extend(long.iter().map(|option| format!("{name} --{option}=1{between}")));
            all.extend(long.iter().map(|option| format!("{name} --{option} 1{between}")));
            all.push(format!("{name} --{between}"));
        }
    }
    all.extend(LOOSE.iter().map(|name| (*name).to_owned()));
    for (names, words, _) in RUNNERS.iter().filter(|(.., here)| *here) {
        all.extend(names.iter().flat_map(|name| words.iter().map(move |word| format!("{name} {word}"))));
    }
    all
}

fn joined(first: &str, rest: &[Arg]) -> String {
    let mut text = first.to_owned();
    for arg in rest {
        text.push(' ');
        text.push_str(&arg.normal());
    }
    text
}

/// The spellings under which a rule that denies or asks may know a command: by its base name, and
/// without the options before its first word.
fn spellings(base: &str, args: &[Arg], unit: &mut Unit) {
    let rest = &args[1..];
    let mut rests: Vec<&[Arg]> = vec![rest];
    if rest.first().is_some_and(|arg| arg.prefix().starts_with('-')) {
        let plain = rest.iter().position(|arg| !arg.prefix().starts_with('-')).unwrap_or(rest.len());
        rests.push(&rest[plain..]);
        rests.push(rest.get(plain + 1..).unwrap_or_default());
        if base == "git" {
            rests.push(&rest[super::git::subcommand(rest).min(rest.len())..]);
        }
    }
    for rest in rests {
        unit.names.push(joined(base, rest));
    }
    // python3.12 is python.
    let family = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if family != base && INTERPRETERS.iter().any(|(names, ..)| names.contains(&family)) {
        unit.names.push(joined(family, rest));
    }
    if unit.normal.contains(UNKNOWN) {
        unit.names.retain(|name| !name.is_empty());
    }
}
