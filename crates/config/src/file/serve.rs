//! `adjutant serve` in a settings file.

use schemars::JsonSchema;
use serde::Deserialize;

/// What `adjutant serve` does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServeConfig {
    /// Where it listens, as `address:port`. Default: `127.0.0.1:4200`.
    pub listen: Option<String>,
    /// Directories that may be opened, with everything below them; `~/` is home. Symbolic links are followed before
    /// that is judged. Default: any, where only this machine can connect; none elsewhere.
    pub roots: Option<Vec<String>>,
    /// Who may connect: one for each token.
    pub tokens: Option<Vec<TokenConfig>>,
    /// A file with a line for each token. `adjutant serve --new-token NAME` adds one, which holds the digest alone, and
    /// shows the token once. The file is read again when it has changed.
    pub token_file: Option<String>,
    /// The certificate and the key to serve with.
    pub tls: Option<TlsConfig>,
    /// A proxy that stands before it and does what TLS would.
    pub proxy: Option<ProxyConfig>,
    /// Origins of web pages that may connect, such as `https://ide.example.com`. Default: none.
    pub origins: Option<Vec<String>>,
    /// Users who may change what belongs to the account that the server runs as, which all users share: provider keys,
    /// logins at MCP servers, trust in projects. `*`: all of them. Default: none; whoever connects without a user's name
    /// is the account itself.
    pub account_users: Option<Vec<String>>,
    /// How long the sessions of an editor that is gone are kept alive, with what runs in them, in seconds.
    /// Default: 3600.
    pub grace: Option<u64>,
    /// How long what runs may take to end, in seconds, when the server is told to stop. Default: 60.
    pub drain: Option<u64>,
    /// A command that makes the directory of a session, as a list; the session's id comes after its arguments. It
    /// prints the directory, on another host or a second time for the same session, too. Default: none, sessions work
    /// in the directory that the editor names.
    pub workspace: Option<Vec<String>>,
    /// What stands before each command that an agent runs, as a list, such as
    /// `["docker", "exec", "-w", "{cwd}", "agent-{session}"]`. Default: nothing.
    pub exec: Option<Vec<String>>,
    /// How much one may have.
    pub limits: Option<ServeLimitsConfig>,
}

/// Somebody who may connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TokenConfig {
    /// What the token is called in logs and errors.
    pub name: Option<String>,
    /// The token's SHA-256, in hexadecimal digits: the token itself stands nowhere.
    pub sha256: Option<String>,
    /// Whose it is. The sessions of a user are seen by tokens of this user only. Default: nobody's in particular.
    pub user: Option<String>,
    /// Directories that this token may open, in place of those of `serve.roots`.
    pub roots: Option<Vec<String>>,
}

/// What to serve with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// A file with the certificate and those above it, as PEM.
    pub certificate: Option<String>,
    /// A file with its key, as PEM.
    pub key: Option<String>,
    /// A file with authorities, as PEM: whoever connects shows a certificate of one of them.
    pub clients: Option<String>,
}

/// A proxy that stands before the server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProxyConfig {
    /// Addresses the proxy connects from. Nobody else is let in, this machine apart.
    pub addresses: Option<Vec<String>>,
    /// The header in which it says who connects, such as `x-forwarded-user`; then no token is needed. Default: none.
    pub user_header: Option<String>,
}

/// How much one may have.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServeLimitsConfig {
    /// Sockets in all, whatever is said over them, and connections that speak the protocol. No more than half of the
    /// files that the process may open. Default: 2000.
    #[schemars(range(min = 1))]
    pub connections: Option<usize>,
    /// Connections of one user that speak the protocol. Default: 200.
    #[schemars(range(min = 1))]
    pub user_connections: Option<usize>,
    /// Open sessions of one user, those included whose editor is gone. Default: 500.
    #[schemars(range(min = 1))]
    pub user_sessions: Option<usize>,
    /// Open sessions of one connection. Default: 100.
    #[schemars(range(min = 1))]
    pub sessions: Option<usize>,
    /// Prompts of one user that are worked on or wait. Default: 100.
    #[schemars(range(min = 1))]
    pub user_turns: Option<usize>,
    /// Bytes of one message. Default: 33554432.
    #[schemars(range(min = 1024, max = 33_554_432))]
    pub message_bytes: Option<usize>,
}
