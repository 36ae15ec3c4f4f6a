//! Which variables change what commands mean.

use crate::permission::shell::names::among;

/// Variables that cannot make a program do something else.
pub(crate) fn harmless(name: &str) -> bool {
    const NAMES: &str = "LANG LANGUAGE TZ NO_COLOR CI FORCE_COLOR CLICOLOR COLUMNS LINES TERM RUST_BACKTRACE RUST_LOG \
        DEBIAN_FRONTEND CARGO_TERM_COLOR";
    name.starts_with("LC_") || among(NAMES, name)
}

/// What the shell itself goes by.
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
    ERL_FLAGS JULIA_LOAD_PATH R_PROFILE";
/// What such names end with, whatever program they are for.
const ENDS: [&str; 9] =
    ["_PAGER", "_EDITOR", "_RSH", "_WRAPPER", "_HOOK", "_HOOKS", "_LAUNCHER", "_PRELOAD", "_ASKPASS"];

/// Why setting a variable changes what commands mean or run.
pub(crate) fn variable_danger(name: &str) -> Option<&'static str> {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if among(SHELL, name) || name.starts_with("BASH") {
        Some("changes how commands are found or read")
    } else if starts(&["LD_", "DYLD_", "GLIBC_", "MALLOC_"]) {
        Some("makes programs load other code")
    } else if starts(&["GIT_"]) {
        Some("changes what git does and starts")
    } else if among(HELPERS, name)
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
