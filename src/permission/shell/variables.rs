//! Which variables change what commands mean, and arithmetic, which evaluates what variables hold.

use super::state::{State, Value};
use super::syntax::{Body, Piece, Script};
use super::walk::Walk;

impl Walk<'_> {
    /// An arithmetic expression: its substitutions, and the variables whose text it evaluates.
    pub(super) fn arithmetic(&mut self, script: &Script, pieces: &[Piece], state: &mut State) {
        for piece in pieces {
            match piece {
                Piece::Command { body, .. } => {
                    match body {
                        Body::Inline(inline) => self.substitution(script, &inline.list, state),
                        Body::Apart(script) => self.substitution(script, &script.list, state),
                    }
                    self.opaque("a command's output is computed with, which could run more");
                }
                Piece::Process(inline) => self.process(script, &inline.list, state),
                Piece::Arithmetic(inner) => self.arithmetic(script, inner, state),
                Piece::Parameter { inner, .. } => self.arithmetic(script, inner, state),
                Piece::Quoted(text) if holds_code(text) => {
                    self.opaque("a number is computed from text that holds a command")
                }
                _ => {}
            }
        }
        self.arithmetic_names(pieces, state);
    }

    /// `i=0;` at the beginning of `for ((…))`: it is assigned before anything else is computed.
    pub(super) fn counter(&mut self, head: &[Piece], state: &mut State) {
        let Some(Piece::Text(text)) = head.first() else { return };
        let Some((name, value)) = text.split_once(';').and_then(|(first, _)| first.split_once('=')) else { return };
        let (name, value) = (name.trim(), value.trim());
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(letters) && is_number(value) {
            self.assigns_danger(name);
            state.set(name, Value::Harmless);
        }
    }

    /// The variables in an expression: their text is evaluated, and may be assigned.
    pub(super) fn arithmetic_names(&mut self, pieces: &[Piece], state: &mut State) {
        let mut names: Vec<String> = vec![];
        for piece in pieces {
            match piece {
                Piece::Text(text) | Piece::Quoted(text) => {
                    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                    names.extend(
                        words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())).map(str::to_owned),
                    );
                }
                // A length, and what the shell counts.
                Piece::Parameter { operator, .. } if operator.starts_with('#') => {}
                Piece::Parameter { name, operator, .. } if operator.is_empty() => {
                    names.extend((!["?", "#", "$", "!"].contains(&name.as_str())).then(|| name.clone()));
                }
                Piece::Parameter { .. } | Piece::Command { .. } => {
                    self.opaque("a number is computed from text that may hold a command");
                }
                _ => {}
            }
        }
        for name in names {
            self.assigns_danger(&name);
            let known = match state.value(&name) {
                Some(Value::Known(texts)) => texts.iter().all(|text| is_number(text)),
                Some(Value::Harmless) => true,
                _ => false,
            };
            if !known {
                self.opaque("a number is computed from a variable whose text may hold a command");
            }
            let assigned =
                pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(['=', '+', '-'])));
            if assigned {
                state.set(&name, Value::Harmless);
            }
        }
    }

    /// A value that a variable is given. One with the integer attribute, or that always has it,
    /// computes with whatever it is given; so does every variable of the line that may get the
    /// attribute before the assignment runs, which is settled in [`Walk::numbers_settled`].
    pub(super) fn given_to(&mut self, name: &str, value: &Value, state: &mut State) {
        match value {
            Value::Known(texts) => {
                self.coded |= texts.iter().any(|text| holds_code(text));
                if !self.is_integer(name) {
                    return;
                }
                if texts.iter().any(|text| holds_code(text)) {
                    self.opaque("a number is computed from text that holds a command");
                }
                let pieces: Vec<Piece> = texts.iter().map(|text| Piece::Text(text.clone())).collect();
                self.arithmetic_names(&pieces, state);
            }
            Value::Foreign if self.is_integer(name) => {
                self.opaque("a number is computed from text that may hold a command");
            }
            Value::Foreign => drop(self.foreign.insert(name.to_owned())),
            Value::Harmless => {}
        }
    }

    fn is_integer(&self, name: &str) -> bool {
        matches!(name, "RANDOM" | "SRANDOM" | "SECONDS" | "LINENO" | "HISTCMD" | "OPTIND")
            || self.numbers.contains(name)
    }

    /// After the whole line: functions and loops run in another order than they are written.
    pub(super) fn numbers_settled(&mut self) {
        let foreign = self.numbers.iter().any(|name| self.foreign.contains(name));
        if foreign || (self.coded && !self.numbers.is_empty()) {
            self.opaque("a number may be computed from text that holds a command");
        }
    }

    pub(super) fn assigned_by_expansion(&mut self, name: &str, state: &mut State) {
        self.assigns_danger(name);
        self.given_to(name, &Value::Foreign, state);
        state.set(name, Value::Foreign);
    }

    pub(super) fn assigns_danger(&mut self, name: &str) {
        if let Some(reason) = variable_danger(name) {
            self.opaque(&format!("{name} {reason}"));
        }
    }
}

/// A plain number: text that computing with it cannot make anything else of.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Text that runs something when bash computes with it.
pub(super) fn holds_code(text: &str) -> bool {
    text.contains("$(") || text.contains('`') || text.contains("${")
}

/// Variables that cannot make a program do something else.
pub(super) fn harmless(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "LANG",
        "LANGUAGE",
        "TZ",
        "NO_COLOR",
        "CI",
        "FORCE_COLOR",
        "CLICOLOR",
        "COLUMNS",
        "LINES",
        "TERM",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "DEBIAN_FRONTEND",
        "CARGO_TERM_COLOR",
    ];
    name.starts_with("LC_") || NAMES.contains(&name)
}

/// What the shell itself goes by.
const SHELL: [&str; 20] = [
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "HOME",
    "SHELL",
    "GLOBIGNORE",
    "EXECIGNORE",
    "POSIXLY_CORRECT",
    "BASH_XTRACEFD",
    "PWD",
    "OLDPWD",
];
const HELPERS: [&str; 98] = [
    "PAGER",
    "MANPAGER",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "LESS",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "PERLLIB",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONWARNINGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAKEFLAGS",
    "MAKEFILES",
    "RUSTC_WRAPPER",
    "RUSTC",
    "RUSTFLAGS",
    "CARGO_HOME",
    "RUSTC_WORKSPACE_WRAPPER",
    "CC",
    "CXX",
    "LD",
    "AR",
    "RIPGREP_CONFIG_PATH",
    "TAR_OPTIONS",
    "GZIP",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "MANOPT",
    "GREP_OPTIONS",
    "AWKPATH",
    "AWKLIBPATH",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "TMPPREFIX",
    "TERMINFO",
    "TERMCAP",
    "DOCKER_HOST",
    "KUBECONFIG",
    "GOFLAGS",
    "PHPRC",
    "LUA_INIT",
    "VIMINIT",
    "EXINIT",
    "GVIMINIT",
    "INPUTRC",
    "ZDOTDIR",
    "CLASSPATH",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "SBT_OPTS",
    "DOTNET_STARTUP_HOOKS",
    "COR_PROFILER",
    "CORECLR_PROFILER",
    "ELECTRON_RUN_AS_NODE",
    "FZF_DEFAULT_COMMAND",
    "CVS_RSH",
    "SVN_SSH",
    "HGRCPATH",
    "HGEDITOR",
    "HGMERGE",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "KRB5_CONFIG",
    "PYTHONUSERBASE",
    "PYTHONEXECUTABLE",
    "PKG_CONFIG_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "CCACHE_PREFIX",
    "GOROOT",
    "GOTOOLDIR",
    "CGO_CFLAGS",
    "PROMPT_DIRTRIM",
    "FPATH",
    "CHROME_PATH",
    "ERL_FLAGS",
    "JULIA_LOAD_PATH",
    "R_PROFILE",
];
/// What such names end with, whatever program they are for.
const ENDS: [&str; 9] =
    ["_PAGER", "_EDITOR", "_RSH", "_WRAPPER", "_HOOK", "_HOOKS", "_LAUNCHER", "_PRELOAD", "_ASKPASS"];

/// Why setting a variable changes what commands mean or run.
pub(crate) fn variable_danger(name: &str) -> Option<&'static str> {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if SHELL.contains(&name) || name.starts_with("BASH") {
        Some("changes how commands are found or read")
    } else if starts(&["LD_", "DYLD_", "GLIBC_", "MALLOC_"]) {
        Some("makes programs load other code")
    } else if starts(&["GIT_"]) {
        Some("changes what git does and starts")
    } else if HELPERS.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || starts(&["npm_config_", "NPM_CONFIG_", "CARGO_TARGET_", "CARGO_BUILD_", "PIP_", "UV_", "SSL_CERT_"])
    {
        Some("makes programs start helpers or read other settings")
    } else if name.to_ascii_uppercase().ends_with("_PROXY") {
        Some("sends network traffic elsewhere")
    } else {
        None
    }
}
