//! Environment variables that other programs receive: those that developer tools are known to need,
//! and those that the user names. Variables that look like keys or passwords are left out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;

use crate::environment::Environment;

/// The user's settings for variables: names, or patterns with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variables {
    /// Variables that are passed in addition to the usual ones. One that looks like a secret has to
    /// be named in full.
    pub pass: Vec<String>,
    /// Variables that are never passed.
    pub drop: Vec<String>,
}

/// Variables that tools are known to need: names and patterns, separated by spaces.
const PASSED_VARIABLES: &[&str] = &[
    // The user, the system, the language.
    "HOME USER LOGNAME SHELL PATH TMPDIR TEMP TMP TZ TZDIR LANG LANGUAGE LC_* LOCALE_ARCHIVE* LOCPATH",
    "HOSTNAME HOSTTYPE OSTYPE MACHTYPE XDG_* DISPLAY WAYLAND_DISPLAY WSL_* WSLENV MSYSTEM EMAIL",
    "DEBIAN_FRONTEND MANPATH INFOPATH TERMINFO TERMINFO_DIRS",
    // The appearance of output.
    "COLORTERM NO_COLOR FORCE_COLOR CLICOLOR* COLUMNS LINES LS_COLORS LSCOLORS GREP_COLOR* LESSCHARSET CI",
    "DEBUG VERBOSE LOG_LEVEL",
    // The network.
    "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY SSL_CERT_* NIX_SSL_CERT_FILE CURL_*",
    "REQUESTS_CA_BUNDLE AWS_CA_BUNDLE",
    // Version control.
    "GIT_AUTHOR_* GIT_COMMITTER_* GIT_CEILING_DIRECTORIES GIT_DISCOVERY_ACROSS_FILESYSTEM GIT_SSL_*",
    "GIT_SSH GIT_SSH_* HGENCODING",
    // Compilers and build tools.
    "CC CXX CPP LD AR NM AS RANLIB STRIP OBJCOPY FC CFLAGS CXXFLAGS CPPFLAGS LDFLAGS FFLAGS CPATH",
    "C_INCLUDE_PATH CPLUS_INCLUDE_PATH LIBRARY_PATH LD_LIBRARY_PATH DYLD_* PKG_CONFIG* ACLOCAL_PATH",
    "MAKEFLAGS MFLAGS CMAKE_* CTEST_* NINJA_* MESON_* CCACHE_* SCCACHE_* BAZEL* USE_BAZEL_VERSION SDKROOT",
    "DEVELOPER_DIR MACOSX_DEPLOYMENT_TARGET LLVM_* LIBCLANG_PATH BINDGEN_* OPENSSL_* ZSTD_* PROTOC* NIX_*",
    "IN_NIX_SHELL GUIX_* HOMEBREW_* SOURCE_DATE_EPOCH CUDA_* ROCM_* VULKAN_SDK",
    // Languages.
    "CARGO CARGO_* RUST* GO111MODULE GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOENV GOFLAGS GOARCH GOOS",
    "GOARM GOAMD64 GOPROXY GOSUMDB GONOSUMDB GONOSUMCHECK GOPRIVATE GOINSECURE GONOPROXY GOTOOLCHAIN",
    "GOWORK GODEBUG GOMAXPROCS GOTMPDIR GOEXPERIMENT CGO_* NODE_* NPM_* NVM_* FNM_* N_PREFIX VOLTA_*",
    "PNPM_* YARN_* BUN_* DENO_* COREPACK_* ELECTRON_* PLAYWRIGHT_* PUPPETEER_* CYPRESS_* CHROME_*",
    "TS_NODE_* TURBO_* NX_* VITE_* PYTHON* PYENV* VIRTUAL_ENV* PIP_* PIPX_* PIPENV_* POETRY_* PDM_* UV_*",
    "CONDA_* MAMBA_* TOX_* PYTEST_* MYPY* JUPYTER_* OMP_* OPENBLAS_* MKL_* TORCH_* TOKENIZERS_* JAVA_*",
    "JDK_* _JAVA_OPTIONS CLASSPATH MAVEN_* M2_HOME M2 GRADLE_* KOTLIN_* SBT_* SCALA_* COURSIER_* SDKMAN_*",
    "JENV_* ANDROID_* FLUTTER_* DART_* PUB_* GROOVY_HOME DOTNET_* NUGET_* MSBUILD* RUBY* GEM_* BUNDLE_*",
    "RBENV_* RAILS_* RACK_* PHP* COMPOSER_* PERL* PLENV_* LUA_* LUAROCKS_* GHC* CABAL_* STACK_* OPAM*",
    "OCAML* CAML_LD_LIBRARY_PATH ERL_* MIX_* HEX_* ELIXIR_* JULIA_* R_HOME R_LIBS* SWIFT* ZIG_* ASDF_*",
    "MISE_* DIRENV_* EMSDK* WASM* WASI_*",
    // Containers and machines.
    "DOCKER_* BUILDKIT_* COMPOSE_* CONTAINER_HOST KUBECONFIG MINIKUBE_* HELM_* TF_* AWS_PROFILE",
    "AWS_REGION AWS_DEFAULT_REGION GITHUB_ACTIONS GITHUB_WORKSPACE GITLAB_CI",
];

/// Variables that make a shell run or change something before the first command, and those that
/// make programs load other code. They are passed only if the user names them in full.
const CODE_LOADING: &[&str] = &[
    "BASH_* ENV SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 CDPATH GLOBIGNORE IFS LD_PRELOAD LD_AUDIT",
    "POSIXLY_CORRECT",
];

/// Lists of directories that programs load code from. A relative entry would mean a different
/// directory for each command.
const DIRECTORY_LISTS: &[&str] = &[
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "PYTHONPATH",
    "PERL5LIB",
    "RUBYLIB",
    "NODE_PATH",
];

/// Variables set by adjutant or by every shell, which are not worth reporting as left out.
const UNREPORTED_VARIABLES: &[&str] = &[
    "_ SHLVL PWD OLDPWD TERM PAGER GIT_PAGER MANPAGER EDITOR VISUAL GIT_EDITOR GIT_TERMINAL_PROMPT",
    "ADJUTANT_* OPENCODE_*",
];

/// Variables for projects that are not trusted. With them, git commands that only read start no
/// program that the repository's settings name, and git works in a bare repository only if its
/// directory is given explicitly.
pub const GIT_UNTRUSTED: [(&str, &str); 5] = [
    ("GIT_CONFIG_COUNT", "2"),
    ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
    ("GIT_CONFIG_VALUE_0", "false"),
    ("GIT_CONFIG_KEY_1", "safe.bareRepository"),
    ("GIT_CONFIG_VALUE_1", "explicit"),
];

/// Variables for every program unless the user has set them: output appears when it is printed, and
/// no program advertises its own update.
const PLAIN_OUTPUT_VARIABLES: [(&str, &str); 4] = [
    ("PYTHONUNBUFFERED", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("NPM_CONFIG_UPDATE_NOTIFIER", "false"),
    ("NO_UPDATE_NOTIFIER", "1"),
];

/// Variables for every program, because no user is present to answer, to edit or to turn pages.
const NON_INTERACTIVE: [(&str, &str); 10] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Keeps `git status` from writing.
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("TERM", "dumb"),
];

impl Variables {
    /// Returns the environment of a program that is started for a model.
    pub fn for_model_program(&self, environment: &Environment) -> BTreeMap<OsString, OsString> {
        let non_interactive = NON_INTERACTIVE
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let quiet = PLAIN_OUTPUT_VARIABLES
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        quiet
            .chain(self.for_chosen_program(environment))
            .chain(non_interactive)
            .collect()
    }

    /// Returns the environment of a program that the user or the editor has chosen, such as an MCP
    /// server.
    pub fn for_chosen_program(&self, environment: &Environment) -> BTreeMap<OsString, OsString> {
        let path = environment.path();
        let path = path
            .iter()
            .map(|dir| dir.as_os_str())
            .collect::<Vec<_>>()
            .join(std::ffi::OsStr::new(":"));
        let passed = environment
            .vars()
            .filter(|(name, value)| self.passes(name, value));
        let passed = passed.map(|(name, value)| (name.into(), self.cleaned(name, value).into()));
        passed.chain([("PATH".into(), path)]).collect()
    }

    /// Returns the names of variables that no program receives, without those that are not worth
    /// reporting.
    pub fn left_out<'e>(&self, environment: &'e Environment) -> Vec<&'e str> {
        let left_out = environment
            .vars()
            .filter(|(name, value)| !any(UNREPORTED_VARIABLES, name) && !self.passes(name, value));
        left_out.map(|(name, _)| name).collect()
    }

    /// Returns whether programs receive a variable with this value.
    fn passes(&self, name: &str, value: &str) -> bool {
        if any(&self.drop, name) {
            return false;
        }
        if self.is_named(name) {
            return true;
        }
        let is_listed = any(PASSED_VARIABLES, name) || any(&self.pass, name);
        is_listed && !any(CODE_LOADING, name) && !is_secret(name) && !holds_secret(value)
    }

    /// Returns whether the user named the variable in full.
    fn is_named(&self, name: &str) -> bool {
        self.pass.iter().any(|pass| pass == name)
    }

    /// Removes relative entries from a list of directories, unless the user named the variable in
    /// full.
    fn cleaned(&self, name: &str, value: &str) -> String {
        if !DIRECTORY_LISTS.contains(&name) || self.is_named(name) {
            return value.to_owned();
        }
        value
            .split(':')
            .filter(|dir| dir.starts_with('/'))
            .collect::<Vec<_>>()
            .join(":")
    }
}

/// Returns whether one of the patterns matches a name. Case is ignored, because of names like
/// `http_proxy`.
fn any(patterns: &[impl AsRef<str>], name: &str) -> bool {
    let mut all = patterns
        .iter()
        .flat_map(|pattern| pattern.as_ref().split_ascii_whitespace());
    all.any(|pattern| matches_pattern(pattern.as_bytes(), name.as_bytes()))
}

/// Returns whether a pattern matches a whole name. `*` matches any number of bytes, also none.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let star = pattern.iter().position(|byte| *byte == b'*');
    let Some(star) = star else {
        return pattern.eq_ignore_ascii_case(name);
    };
    let has_prefix = name
        .get(..star)
        .is_some_and(|start| start.eq_ignore_ascii_case(&pattern[..star]));
    if !has_prefix {
        return false;
    }
    let rest = &pattern[star + 1..];
    rest.is_empty() || (star..=name.len()).any(|at| matches_pattern(rest, &name[at..]))
}

/// Returns whether a variable of this name is likely to hold a secret.
pub fn is_secret(name: &str) -> bool {
    /// The ends of words anywhere in a name.
    const SECRET_WORDS: &str = "TOKEN TOKENS SECRET SECRETS PASSWORD PASSWD PASSPHRASE CREDENTIAL CREDENTIALS APIKEY COOKIE KEYS AUTH";
    /// Whole words at the end of a name.
    const SECRET_LAST_WORDS: &str = "KEY PAT SK PWD PASS DSN PSK JWT NETRC";
    /// The ends of whole names.
    const SECRET_SUFFIXES: &str = "_CONNECTION_STRING _CONFIG_CONTENT DATABASE_URL";
    /// Pieces anywhere in a name that a user chooses, which is seldom divided into words:
    /// `TF_VAR_dbpass`.
    const SECRET_PARTS: &str = "PASS KEY SECRET TOKEN CRED PWD AUTH";
    let name = name.to_ascii_uppercase();
    let has_secret_part = |own: &str| SECRET_PARTS.split(' ').any(|part| own.contains(part));
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    !matches!(&*name, "PWD" | "OLDPWD")
        && (words().any(|word| SECRET_WORDS.split(' ').any(|end| word.ends_with(end)))
            || words()
                .next_back()
                .is_some_and(|word| SECRET_LAST_WORDS.split(' ').any(|last| word == last))
            || SECRET_SUFFIXES.split(' ').any(|end| name.ends_with(end))
            || name.strip_prefix("TF_VAR_").is_some_and(has_secret_part)
            || name.strip_prefix("BUNDLE_").is_some_and(is_host_credential))
}

/// Returns whether a setting of Bundler holds the credentials for a host: dots of the host name are
/// double underscores, which some other settings have too.
fn is_host_credential(setting: &str) -> bool {
    const SETTINGS: &str = "BUILD LOCAL MIRROR DISABLE_LOCAL_BRANCH_CHECK";
    setting
        .split_once("__")
        .is_some_and(|(first, _)| SETTINGS.split(' ').all(|known| known != first))
}

/// Returns the secrets in the arguments of a command, each with the index of its argument, of which
/// it is the end: values of options, variables and headers whose names suggest a secret (`--token
/// abc`, `--api-key=abc`, `API_KEY=abc`, `Authorization: Bearer abc`), and arguments that look like
/// keys.
pub fn secret_arguments(arguments: &[String]) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_value = false;
    for (at, argument) in arguments.iter().enumerate() {
        if std::mem::take(&mut is_value) {
            found.push((at, argument.as_str()));
            continue;
        }
        let option = argument
            .strip_prefix('-')
            .map(|option| option.trim_start_matches('-').replace('-', "_"));
        let is_named = |name: &str| is_secret(&name.trim_start_matches('-').replace('-', "_"));
        is_value = option.is_some_and(|option| !option.contains(['=', ':']) && is_secret(&option));
        // The value of a header may contain an equals sign.
        let header = argument
            .split_once(": ")
            .filter(|(name, _)| is_header_secret(name));
        let value = match (header, argument.split_once('=')) {
            (Some((name, value)), _) => Some(without_scheme(name, value)),
            (None, Some((name, value))) if is_named(name) => Some(value),
            _ => holds_secret(argument).then_some(argument.as_str()),
        };
        found.extend(
            value
                .filter(|value| !value.is_empty())
                .map(|value| (at, value)),
        );
    }
    found
}

/// Returns whether the value of the header `name` is a secret. The name may follow an option:
/// `--header=Authorization`.
fn is_header_secret(name: &str) -> bool {
    let name = name.rsplit('=').next().unwrap_or(name);
    name.to_ascii_lowercase().ends_with("authorization") || is_secret(&name.replace('-', "_"))
}

/// Returns the value of a header without the name of an authentication scheme (`Bearer …`).
fn without_scheme<'v>(name: &str, value: &'v str) -> &'v str {
    let value = value.trim();
    if !name.to_ascii_lowercase().ends_with("authorization") {
        return value;
    }
    value
        .split_once(' ')
        .map_or(value, |(_, credentials)| credentials.trim_start())
}

/// Returns the arguments of a command for display, with `hidden` in place of secrets. An argument
/// may be a command line itself, as that of `sh -c`.
pub fn shown_arguments(arguments: &[String], hidden: &str) -> Vec<String> {
    let secrets: BTreeMap<usize, &str> = secret_arguments(arguments).into_iter().collect();
    let shown = |(at, argument): (usize, &String)| match secrets.get(&at) {
        Some(secret) => {
            let end = argument.trim_end().len() - secret.trim_end().len();
            format!("{}{hidden}", &argument[..end])
        }
        None if argument.contains(char::is_whitespace) => shown_command_line(argument, hidden),
        None => argument.clone(),
    };
    arguments.iter().enumerate().map(shown).collect()
}

/// Returns a command line for display, with `hidden` in place of the secrets in its arguments. The
/// rest is unchanged, with its quotes and blanks.
pub fn shown_command_line(line: &str, hidden: &str) -> String {
    let words = words_of_line(line);
    let arguments: Vec<String> = words.iter().map(|(_, word)| word.clone()).collect();
    let mut shown = String::new();
    let mut end = 0;
    for ((range, word), argument) in words.iter().zip(shown_arguments(&arguments, hidden)) {
        let written = &line[range.clone()];
        shown.push_str(&line[end..range.start]);
        if argument == *word {
            shown.push_str(written);
        } else if let Some(quote @ ('"' | '\'')) = written.chars().next() {
            shown.push(quote);
            shown.push_str(&argument);
            shown.push(quote);
        } else {
            shown.push_str(&argument);
        }
        end = range.end;
    }
    shown.push_str(&line[end..]);
    shown
}

/// Splits a command line into its words, each with its range: at blanks outside of quotes. A quote
/// that is not closed reaches to the end.
fn words_of_line(line: &str) -> Vec<(Range<usize>, String)> {
    let mut words = Vec::new();
    let mut current: Option<(usize, String)> = None;
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in line.char_indices() {
        if quote.is_none() && !is_escaped && c.is_whitespace() {
            words.extend(current.take().map(|(start, word)| (start..at, word)));
            continue;
        }
        let (_, word) = current.get_or_insert_with(|| (at, String::new()));
        if std::mem::take(&mut is_escaped) {
            word.push(c);
        } else if c == '\\' && quote != Some('\'') {
            is_escaped = true;
        } else if quote == Some(c) {
            quote = None;
        } else if quote.is_none() && matches!(c, '"' | '\'') {
            quote = Some(c);
        } else {
            word.push(c);
        }
    }
    words.extend(current.map(|(start, word)| (start..line.len(), word)));
    words
}

/// Returns whether a text seems to contain a key, an address with credentials, or an assignment to
/// a secret.
fn holds_secret(value: &str) -> bool {
    const STARTS: &str = "sk- sk_live_ sk_test_ rk_live_ pk_live_ ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- \
        xoxb- xoxp- xoxa- xapp- AKIA ASIA AIza ya29. npm_ pypi- hf_ SG. dop_v1_ shpat_ eyJ -----BEGIN AGE-SECRET-KEY-";
    let is_key =
        |word: &str| word.len() >= 16 && STARTS.split(' ').any(|start| word.starts_with(start));
    let words = value.split(|c: char| c.is_whitespace() || ",;\"'=:@&?|()".contains(c));
    // A directory may have a name like a key, but seldom with a digit in it.
    let mut pieces = words.flat_map(|word| word.split('/').enumerate());
    pieces.any(|(at, piece)| {
        is_key(piece) && (at == 0 || piece.contains(|c: char| c.is_ascii_digit()))
    }) || value.contains("-----BEGIN")
        || value
            .match_indices("://")
            .any(|(at, _)| has_credentials(&value[..at], &value[at + 3..]))
        || sets_secret(value)
}

/// Returns whether `rest`, the part of an address after `://`, begins with credentials. `before` is
/// the text before `://`, which ends with the scheme: an address of SSH may name a user.
fn has_credentials(before: &str, rest: &str) -> bool {
    let ends = |c: char| c.is_whitespace() || "/?#,|\"'".contains(c);
    let authority = rest.split(ends).next().unwrap_or(rest);
    let ssh = before.ends_with("ssh") || before.ends_with("sftp");
    match authority.rsplit_once('@') {
        Some((user, _)) => user.contains(':') || !ssh && !user.is_empty(),
        // The text after the colon is not a port: it is a password with a character that `ends`
        // splits at.
        None => authority.rsplit_once(':').is_some_and(|(_, port)| {
            !authority.ends_with(']')
                && !port.bytes().all(|byte| byte.is_ascii_digit())
                && rest.contains('@')
        }),
    }
}

/// Returns whether a text assigns a value to a secret, as options and properties do:
/// `-Ddb.password=x`, `--token x`.
fn sets_secret(value: &str) -> bool {
    let mut before = "";
    let mut words = value
        .split(|c: char| c.is_whitespace() || ";&?,".contains(c))
        .filter(|word| !word.is_empty());
    words.any(|word| {
        let option = std::mem::replace(&mut before, word);
        let set = word.split_once('=').is_some_and(|(name, given)| {
            let name = name
                .strip_prefix("-D")
                .or(name.strip_prefix("-P"))
                .unwrap_or(name);
            let given = given.trim_matches(['"', '\'']);
            is_secret(name.rsplit('.').next().unwrap_or(name))
                && !matches!(given, "" | "true" | "false")
        });
        set || option.starts_with("--")
            && !option.contains('=')
            && !word.starts_with('-')
            && is_secret(option)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pass: &[&str], drop: &[&str]) -> Variables {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Variables {
            pass: owned(pass),
            drop: owned(drop),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn only_harmless_variables_are_passed() {
        let usual = variables(&[], &[]);
        let key = "sk-1234567890abcdef";
        let table: [(&Variables, &str, &str, bool); 81] = [
            (&usual, "HOME", "/home/u", true),
            (&usual, "LC_ALL", "C", true),
            (&usual, "http_proxy", "http://proxy:3128", true),
            (&usual, "HTTP_PROXY", "http://u:p@proxy:3128", false),
            (&usual, "CARGO_HOME", "/c", true),
            (&usual, "CARGO_REGISTRY_TOKEN", "x", false),
            (
                &usual,
                "npm_config_registry",
                "https://registry.example",
                true,
            ),
            (&usual, "npm_config__authToken", "x", false),
            (&usual, "NPM_CONFIG_USERCONFIG", "/x", true),
            (
                &usual,
                "PIP_INDEX_URL",
                "https://u:p@pypi.example/simple",
                false,
            ),
            (&usual, "PIP_INDEX_URL", "https://pypi.example/simple", true),
            (&usual, "TOKENIZERS_PARALLELISM", "false", true),
            (&usual, "XDG_SESSION_ID", "1", true),
            (&usual, "GIT_AUTHOR_NAME", "A", true),
            (&usual, "GIT_DIR", "/x", false),
            (&usual, "GIT_EXTERNAL_DIFF", "x", false),
            (&usual, "GIT_CONFIG_COUNT", "1", false),
            (&usual, "DOCKER_AUTH_CONFIG", "{}", false),
            (&usual, "DOCKER_PASSWORD", "x", false),
            (&usual, "VITE_KEY", "x", false),
            (&usual, "NODE_OPTIONS", key, false),
            (&usual, "MY_PROJECT_ROOT", "/p", false),
            (&usual, "OPENAI_API_KEY", "x", false),
            (&usual, "PGPASSWORD", "x", false),
            (&usual, "DATABASE_URL", "postgres://localhost/x", false),
            (&usual, "AZURE_DEVOPS_EXT_PAT", "x", false),
            (&usual, "CLERK_SK", "x", false),
            (&usual, "REDISCLI_AUTH", "x", false),
            (&usual, "SSH_AUTH_SOCK", "/run/x", false),
            (&usual, "BASH_ENV", "x", false),
            (&usual, "BASH_FUNC_x%%", "() { :; }", false),
            (&usual, "LD_PRELOAD", "/x.so", false),
            (&usual, "PS4", "$(x)", false),
            (&usual, "ADJUTANT_CONFIG", "x", false),
            (
                &usual,
                "BUNDLE_GITHUB__COM",
                "user:ghp_abcdefghijklmnopqrst",
                false,
            ),
            (&usual, "BUNDLE_GEMS__EXAMPLE__COM", "user:hunter2", false),
            (
                &usual,
                "BUNDLE_BUILD__NOKOGIRI",
                "--use-system-libraries",
                true,
            ),
            (&usual, "BUNDLE_PATH", "vendor/bundle", true),
            (&usual, "TF_VAR_dbpass", "hunter2", false),
            (&usual, "TF_VAR_sshkey", "x", false),
            (&usual, "TF_VAR_privatekey", "x", false),
            (&usual, "TF_VAR_mytokenvalue", "x", false),
            (&usual, "TF_VAR_region", "eu-west-1", true),
            (&usual, "MAVEN_OPTS", "-Xmx2g -Ddb.password=hunter2", false),
            (&usual, "MAVEN_OPTS", "-Xmx2g -Dpassword=hunter2", false),
            (
                &usual,
                "GRADLE_OPTS",
                "-Dorg.gradle.daemon=false -PsigningKey='x' -Dkey=hunter2",
                false,
            ),
            (
                &usual,
                "GRADLE_OPTS",
                "-Dorg.gradle.daemon=false -Dorg.gradle.jvmargs=-Xmx4g",
                true,
            ),
            (
                &usual,
                "JAVA_TOOL_OPTIONS",
                "-Djavax.net.ssl.keyStorePassword=changeit",
                false,
            ),
            (
                &usual,
                "JAVA_TOOL_OPTIONS",
                "-Djdk.http.auth.tunneling.disabledSchemes=\"\"",
                true,
            ),
            (&usual, "NPM_CONFIG_X", "--token hunter2", false),
            (
                &usual,
                "PIP_INDEX_URL",
                "https://token@pypi.example/simple",
                false,
            ),
            (
                &usual,
                "PIP_INDEX_URL",
                "https://u:p/w@pypi.example/simple",
                false,
            ),
            (
                &usual,
                "PIP_EXTRA_INDEX_URL",
                "https://a.example/simple https://t@b.example/simple",
                false,
            ),
            (&usual, "GOPROXY", "https://proxy.golang.org,direct", true),
            (
                &usual,
                "GOPROXY",
                "https://proxy.golang.org,https://token@go.example|direct",
                false,
            ),
            (&usual, "GOPROXY", "http://[::1]:3000/x,http://[::1]", true),
            (&usual, "DOCKER_HOST", "ssh://deploy@build.example", true),
            (
                &usual,
                "DOCKER_HOST",
                "ssh://deploy:pw@build.example",
                false,
            ),
            (
                &usual,
                "CARGO_REGISTRIES_X_INDEX",
                "ssh://git@git.example/index.git",
                true,
            ),
            (
                &usual,
                "npm_config_registry",
                "https://registry.npmjs.org/@scope/name@1.2.3",
                true,
            ),
            (
                &usual,
                "npm_config_registry",
                "https://npm.example/_auth/ghp_abcdefghij0123456789/",
                false,
            ),
            (
                &usual,
                "NPM_CONFIG_PREFIX",
                "/home/u/npm_global_packages",
                true,
            ),
            (&usual, "CARGO_HTTP_PROXY", "host:8080", true),
            (&usual, "CARGO_X", "-----BEGIN RSA PRIVATE KEY-----", false),
            (
                &usual,
                "RUSTFLAGS",
                "-C target-cpu=native --cfg tokio_unstable -L native=/x",
                true,
            ),
            (
                &usual,
                "NODE_OPTIONS",
                "--max-old-space-size=4096 --require ./x.js",
                true,
            ),
            (&usual, "PYTEST_ADDOPTS", "-k token -q --color=yes", true),
            (&usual, "DOCKER_BUILDKIT", "1", true),
            (
                &usual,
                "LS_COLORS",
                "rs=0:di=01;34:ln=01;36:*.tar=01;31",
                true,
            ),
            (&variables(&["MY_*"], &[]), "MY_PROJECT_ROOT", "/p", true),
            (&variables(&["my_*"], &[]), "MY_PROJECT_ROOT", "/p", true),
            (&variables(&["MY_*"], &[]), "MY_TOKEN", "x", false),
            (&variables(&["MY_*"], &[]), "MY_PLACE", key, false),
            (&variables(&["*"], &[]), "ANYTHING", "x", true),
            (
                &variables(&["*", "SSH_AUTH_SOCK"], &[]),
                "SSH_AUTH_SOCK",
                "/run/x",
                true,
            ),
            (&variables(&["*"], &[]), "BASH_ENV", "x", false),
            (&variables(&["*_ROOT"], &[]), "MY_PROJECT_ROOT", "/p", true),
            (&variables(&["*_ROOT"], &[]), "MY_ROOT_DIR", "/p", false),
            (&variables(&["MY_TOKEN"], &[]), "MY_TOKEN", key, true),
            (&variables(&["MY_TOKEN"], &["MY_*"]), "MY_TOKEN", key, false),
            (&variables(&[], &["CARGO*"]), "CARGO_HOME", "/c", false),
        ];
        for (variables, name, value, wanted) in table {
            assert_eq!(
                variables.passes(name, value),
                wanted,
                "{name}={value} {variables:?}"
            );
        }
    }

    #[test]
    fn relative_entries_of_directory_lists_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let vars = [
            ("HOME", &*home.path().display().to_string()),
            ("PATH", ".:/usr/bin::bin:/bin:~/bin"),
            ("LD_LIBRARY_PATH", ":/opt/lib"),
            ("PYTHONPATH", "src:/p"),
            ("OTHER", "x"),
            ("GH_TOKEN", "x"),
            ("SHLVL", "1"),
            ("BASH_ENV", "/x"),
            ("MAVEN_OPTS", "-Dpassword=x"),
        ];
        let vars = vars
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let environment = Environment::from_vars(vars);
        let env = variables(&[], &[]).for_model_program(&environment);
        let get = |name: &str| {
            env.get(std::ffi::OsStr::new(name))
                .and_then(|value| value.to_str())
        };
        assert_eq!(get("PATH"), Some("/usr/bin:/bin"));
        assert_eq!(environment.var("PATH"), Some("/usr/bin:/bin"));
        assert_eq!(get("LD_LIBRARY_PATH"), Some("/opt/lib"));
        assert_eq!(get("PYTHONPATH"), Some("/p"));
        let named = variables(&["PYTHONPATH", "PATH"], &[]).for_chosen_program(&environment);
        assert_eq!(named[std::ffi::OsStr::new("PYTHONPATH")], "src:/p");
        assert_eq!(named[std::ffi::OsStr::new("PATH")], "/usr/bin:/bin");
        assert_eq!(
            variables(&[], &[]).left_out(&environment),
            ["BASH_ENV", "GH_TOKEN", "MAVEN_OPTS", "OTHER"]
        );
    }

    #[test]
    fn secrets_in_arguments_are_found_and_hidden() {
        let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
        let table = [
            ("server|--token|abc|--port|1", "server|--token|…|--port|1"),
            ("server|--api-key=abc|-v", "server|--api-key=…|-v"),
            ("server|-api_key|abc", "server|-api_key|…"),
            (
                "server|--keyboard|us|token|x",
                "server|--keyboard|us|token|x",
            ),
            ("server|--token", "server|--token"),
            ("server|--token=", "server|--token="),
            (
                "docker|-e|API_KEY=abc|-e|HOME=/h",
                "docker|-e|API_KEY=…|-e|HOME=/h",
            ),
            (
                "mcp-remote|--header|Authorization: Bearer abc",
                "mcp-remote|--header|Authorization: Bearer …",
            ),
            (
                "mcp-remote|--header=X-Api-Key: abc",
                "mcp-remote|--header=X-Api-Key: …",
            ),
            (
                "curl|-H|Authorization: Token YWJj=|-H|X-Auth-Token: a=b=",
                "curl|-H|Authorization: Token …|-H|X-Auth-Token: …",
            ),
            ("curl|-H|Cookie: a=1; b=2", "curl|-H|Cookie: …"),
            ("server|sk-1234567890abcdef", "server|…"),
            ("npx|-y|@scope/server@1.2", "npx|-y|@scope/server@1.2"),
            ("sh|-c|server --token abc", "sh|-c|…"),
        ];
        for (line, shown) in table {
            assert_eq!(
                shown_arguments(&words(line), "…").join("|"),
                shown,
                "{line}"
            );
        }
    }

    #[test]
    fn secrets_of_a_command_line_are_hidden() {
        for (line, shown) in [
            ("notify --token abc $FILE", "notify --token … $FILE"),
            ("server --password 'a b' -v", "server --password '…' -v"),
            (
                "curl -H 'Authorization: Bearer abc' x",
                "curl -H 'Authorization: Bearer …' x",
            ),
            (
                "curl -H \"X-Api-Key: abc\"  https://x",
                "curl -H \"X-Api-Key: …\"  https://x",
            ),
            ("API_KEY=abc  server", "API_KEY=…  server"),
            ("server --token a\\ b c", "server --token … c"),
            ("server --token 'abc", "server --token '…'"),
            ("sh -c \"notify --token abc $FILE\"", "sh -c \"…\""),
            ("echo  'two  blanks' a\\'b ", "echo  'two  blanks' a\\'b "),
            ("", ""),
        ] {
            assert_eq!(shown_command_line(line, "…"), shown, "{line}");
        }
    }
}
