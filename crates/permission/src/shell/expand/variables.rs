//! Environment variables that change the meaning of commands.

use crate::shell::names::among;

/// Returns whether a variable cannot change the effect of a program.
pub(crate) fn harmless(name: &str) -> bool {
    const HARMLESS_VARIABLES: &str = "LANG LANGUAGE TZ NO_COLOR CI FORCE_COLOR CLICOLOR COLUMNS LINES TERM RUST_BACKTRACE RUST_LOG \
        DEBIAN_FRONTEND CARGO_TERM_COLOR";
    name.starts_with("LC_") || among(HARMLESS_VARIABLES, name)
}

/// Variables that the shell itself uses.
const SHELL: &str = "PATH IFS ENV BASH_ENV SHELLOPTS BASHOPTS PS0 PS1 PS2 PS4 PROMPT_COMMAND CDPATH HOME SHELL GLOBIGNORE \
    EXECIGNORE POSIXLY_CORRECT BASH_XTRACEFD PWD OLDPWD";
const HELPERS: &str = "PAGER MANPAGER EDITOR VISUAL BROWSER LESSOPEN LESSCLOSE LESS PERL5LIB PERL5OPT PERL5DB PERLLIB PYTHONPATH \
    PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS NODE_OPTIONS NODE_PATH RUBYOPT \
    RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS MAKEFLAGS MAKEFILES RUSTC_WRAPPER RUSTC RUSTFLAGS \
    CARGO_HOME RUSTC_WORKSPACE_WRAPPER CC CXX LD AR RIPGREP_CONFIG_PATH TAR_OPTIONS GZIP XDG_CONFIG_HOME \
    XDG_CONFIG_DIRS XDG_DATA_HOME SSH_ASKPASS SUDO_ASKPASS MANOPT GREP_OPTIONS AWKPATH AWKLIBPATH GCONV_PATH \
    LOCPATH NLSPATH HOSTALIASES TMPPREFIX TERMINFO TERMCAP DOCKER_HOST KUBECONFIG GOFLAGS PHPRC LUA_INIT VIMINIT \
    EXINIT GVIMINIT INPUTRC ZDOTDIR CLASSPATH MAVEN_OPTS GRADLE_OPTS SBT_OPTS DOTNET_STARTUP_HOOKS COR_PROFILER \
    CORECLR_PROFILER ELECTRON_RUN_AS_NODE FZF_DEFAULT_COMMAND CVS_RSH SVN_SSH HGRCPATH HGEDITOR HGMERGE \
    OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES KRB5_CONFIG PYTHONUSERBASE PYTHONEXECUTABLE PKG_CONFIG_PATH \
    GCC_EXEC_PREFIX COMPILER_PATH CCACHE_PREFIX GOROOT GOTOOLDIR CGO_CFLAGS PROMPT_DIRTRIM FPATH CHROME_PATH \
    ERL_FLAGS ERL_AFLAGS ERL_ZFLAGS ERL_LIBS ELIXIR_ERL_OPTIONS JULIA_LOAD_PATH R_PROFILE R_PROFILE_USER R_ENVIRON \
    R_ENVIRON_USER ZIPOPT ZIP UNZIP UNZIPOPT RSYNC_CONNECT_PROG GNUMAKEFLAGS MFLAGS WGETRC SYSTEM_WGETRC CURL_HOME \
    AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE GNUPGHOME PSQLRC LESSKEY LESSKEYIN LESSKEY_CONTENT LESSKEYIN_SYSTEM \
    LESSKEY_SYSTEM ACKRC BAT_CONFIG_PATH TF_CLI_CONFIG_FILE KUBECTL_EXTERNAL_DIFF PHP_INI_SCAN_DIR GEMRC \
    NODE_REPL_EXTERNAL_MODULE TCLLIBPATH GUILE_LOAD_PATH EMACSLOADPATH MYSQL_HOME";
const PREFIXES: [&str; 10] = [
    "npm_config_",
    "NPM_CONFIG_",
    "CARGO_TARGET_",
    "CARGO_BUILD_",
    "PIP_",
    "UV_",
    "SSL_CERT_",
    "LUA_INIT",
    "LUA_PATH",
    "LUA_CPATH",
];
/// Suffixes of such names, for any program.
const ENDS: [&str; 9] = [
    "_PAGER",
    "_EDITOR",
    "_RSH",
    "_WRAPPER",
    "_HOOK",
    "_HOOKS",
    "_LAUNCHER",
    "_PRELOAD",
    "_ASKPASS",
];

/// Returns whether a variable makes programs load or read other files, but starts none that a rule
/// could be about. A program that loads such files runs code of the project anyway.
pub(crate) fn is_quiet(name: &str) -> bool {
    // With other settings, git and similar programs may start anything.
    name.starts_with("XDG_") && !name.starts_with("XDG_CONFIG_")
        || among(
            "PYTHONPATH PYTHONWARNINGS PYTHONHOME NODE_PATH RUBYLIB PERL5LIB",
            name,
        )
}

/// Returns the reason why setting a variable changes the meaning of commands.
pub fn variable_danger(name: &str) -> Option<&'static str> {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if among(SHELL, name) || name.starts_with("BASH") {
        Some("changes how commands are found or read")
    } else if starts(&["LD_", "DYLD_", "GLIBC_", "MALLOC_"]) {
        Some("makes programs load other code")
    } else if starts(&["GIT_"]) {
        Some("changes what git does and starts")
    } else if among(HELPERS, name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || starts(&PREFIXES)
    {
        Some("makes programs start helpers or read other settings")
    } else if name.to_ascii_uppercase().ends_with("_PROXY") {
        Some("sends network traffic elsewhere")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::variable_danger;

    #[test]
    fn variables_that_make_programs_start_others_are_dangerous() {
        let helpers = "ZIPOPT RSYNC_CONNECT_PROG GNUMAKEFLAGS WGETRC CURL_HOME AWS_CONFIG_FILE LUA_INIT_5_4 UNZIP LESSKEY_CONTENT";
        for name in helpers.split(' ') {
            assert!(variable_danger(name).is_some(), "{name}");
        }
        for name in "ZIPCODE AWS_REGION AWS_PROFILE XZ_OPT RUSTUP_TOOLCHAIN NODE_ENV".split(' ') {
            assert_eq!(variable_danger(name), None, "{name}");
        }
    }
}
