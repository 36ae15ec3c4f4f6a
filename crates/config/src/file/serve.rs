//! `adjutant serve` in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

/// The settings of `adjutant serve`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServeConfig {
    /// The address it listens on, as `address:port`. Default: `127.0.0.1:4200`.
    pub listen: Option<String>,
    /// Directories that may be opened, with everything below them; `~/` is home. Symbolic links are
    /// followed first. Default: any directory if only this machine can connect, otherwise none.
    pub roots: Option<Vec<String>>,
    /// The tokens of clients that may connect.
    pub tokens: Option<Vec<TokenConfig>>,
    /// A file with a line for each token. `adjutant serve --new-token NAME` adds a line with the
    /// token's digest, and prints the token once. The file is read again when it changes.
    pub token_file: Option<String>,
    /// The server's certificate and key.
    pub tls: Option<TlsConfig>,
    /// A proxy in front of the server that provides TLS.
    pub proxy: Option<ProxyConfig>,
    /// Origins of web pages that may connect, such as `https://ide.example.com`. Default: none.
    pub origins: Option<Vec<String>>,
    /// Users who may change the provider keys and endpoints, MCP logins and trust decisions of the
    /// account that the server runs as; all users share these. `*`: all users. Default: none. A
    /// client without a user name acts as the account itself.
    pub account_users: Option<Vec<String>>,
    /// The time, in seconds, for which the sessions of a disconnected editor and their work stay
    /// alive. Default: 3600.
    pub grace: Option<u64>,
    /// The time, in seconds, that running turns get to end when the server stops. Default: 60.
    pub drain: Option<u64>,
    /// A command that creates the directory of a session, as a list; the session's id is appended
    /// to its arguments. It prints the directory; for the same session, it prints one with the same
    /// files even if it runs again or on another host. Default: none; sessions work in the
    /// directory that the editor names.
    pub workspace: Option<Vec<String>>,
    /// A prefix of each command that an agent runs, as a list, such as
    /// `["docker", "exec", "-w", "{cwd}", "agent-{session}"]`. Default: nothing.
    pub exec: Option<Vec<String>>,
    /// Limits of clients and users.
    pub limits: ServeLimits,
}

/// A token that may connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenConfig {
    /// The name of the token in logs and errors.
    pub name: Option<String>,
    /// The token's SHA-256, in hexadecimal digits. The token itself is not stored.
    pub sha256: Option<String>,
    /// The user that the token belongs to. The sessions of a user are seen by tokens of this user
    /// only. Default: no particular user.
    pub user: Option<String>,
    /// Directories that this token may open, in place of those of `serve.roots`.
    pub roots: Option<Vec<String>>,
}

/// The certificate and key of the server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// A file with the certificate and those above it, as PEM.
    pub certificate: Option<String>,
    /// A file with its key, as PEM.
    pub key: Option<String>,
    /// A file with authorities, as PEM: clients need a certificate from one of them.
    pub clients: Option<String>,
}

/// A proxy in front of the server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProxyConfig {
    /// The addresses the proxy connects from. All other addresses except this machine's are
    /// refused.
    pub addresses: Option<Vec<String>>,
    /// The header in which it names the user, such as `x-forwarded-user`; no token is needed then.
    /// Default: none.
    pub user_header: Option<String>,
}

/// Limits of clients and users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServeLimits {
    /// The maximum number of sockets, and of connections that speak the protocol. At most half of
    /// the files that the process may open. Default: 2000.
    #[schemars(range(min = 1))]
    pub connections: usize,
    /// The maximum number of connections of one user. Default: 200.
    #[schemars(range(min = 1))]
    pub user_connections: usize,
    /// The maximum number of open sessions of one user, including those of disconnected editors.
    /// Default: 500.
    #[schemars(range(min = 1))]
    pub user_sessions: usize,
    /// The maximum number of open sessions of one connection. Default: 100.
    #[schemars(range(min = 1))]
    pub sessions: usize,
    /// The maximum number of running and waiting prompts of one user. Default: 100.
    #[schemars(range(min = 1))]
    pub user_turns: usize,
    /// The maximum size of a message, in bytes. Default: 33554432.
    #[schemars(range(min = 1024, max = 33_554_432))]
    pub message_bytes: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 2_000,
            user_connections: 200,
            user_sessions: 500,
            sessions: 100,
            user_turns: 100,
            message_bytes: 32 << 20,
        }
    }
}
