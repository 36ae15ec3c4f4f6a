//! What the settings of `adjutant serve` mean.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::ServeConfig;

/// How editors on other machines are served.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeSettings {
    /// Where to listen, as it was written.
    pub listen: String,
    /// Directories that may be opened. None said: any, where only this machine can connect; elsewhere none.
    pub roots: Option<Vec<PathBuf>>,
    pub tokens: Vec<TokenEntry>,
    pub token_file: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub proxy: Option<TrustedProxy>,
    /// Origins of web pages that may connect.
    pub origins: Vec<String>,
    /// Users who may change what belongs to the account; `*`: all.
    pub account_users: Vec<String>,
    /// How long sessions outlive their connection.
    pub grace: Duration,
    /// How long turns may take to end when the server stops.
    pub drain: Duration,
    /// The command that makes the directory of a session; empty: none does.
    pub workspace: Vec<String>,
    /// What stands before each command of an agent.
    pub exec: Vec<String>,
    pub limits: ServeLimits,
}

impl ServeSettings {
    /// Where it listens unless told otherwise.
    pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4200);
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: Self::LISTEN.to_string(),
            roots: None,
            tokens: Vec::new(),
            token_file: None,
            tls: None,
            proxy: None,
            origins: Vec::new(),
            account_users: Vec::new(),
            grace: Duration::from_secs(3600),
            drain: Duration::from_secs(60),
            workspace: Vec::new(),
            exec: Vec::new(),
            limits: ServeLimits::default(),
        }
    }
}

/// A token, as far as it is known here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenEntry {
    pub name: String,
    /// In hexadecimal digits.
    pub sha256: String,
    pub user: Option<String>,
    pub roots: Option<Vec<PathBuf>>,
}

/// What TLS is served with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of those who connect, where they have to show a certificate.
    pub clients: Option<PathBuf>,
}

/// A proxy that is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxy {
    pub addresses: Vec<String>,
    /// The header in which it names the user.
    pub user_header: Option<String>,
}

/// How much one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    pub connections: usize,
    pub user_connections: usize,
    pub user_sessions: usize,
    pub sessions: usize,
    pub user_turns: usize,
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

/// From what was said to what it means.
pub(super) fn entry(said: ServeConfig, home: Option<&Path>) -> ServeSettings {
    let path = |text: String| below(&text, home);
    let paths = |all: Vec<String>| all.iter().map(|text| below(text, home)).collect();
    let default = ServeSettings::default();
    let tokens = said.tokens.unwrap_or_default().into_iter().map(|token| TokenEntry {
        name: token.name.unwrap_or_default(),
        sha256: token.sha256.unwrap_or_default(),
        user: token.user,
        roots: token.roots.map(paths),
    });
    let limits = said.limits.unwrap_or_default();
    let most = default.limits;
    ServeSettings {
        listen: said.listen.unwrap_or(default.listen),
        roots: said.roots.map(paths),
        tokens: tokens.collect(),
        token_file: said.token_file.map(path),
        tls: said.tls.map(|tls| TlsFiles {
            certificate: tls.certificate.map(path).unwrap_or_default(),
            key: tls.key.map(path).unwrap_or_default(),
            clients: tls.clients.map(path),
        }),
        proxy: said.proxy.map(|proxy| TrustedProxy {
            addresses: proxy.addresses.unwrap_or_default(),
            user_header: proxy.user_header.map(|name| name.to_ascii_lowercase()),
        }),
        origins: said.origins.unwrap_or_default(),
        account_users: said.account_users.unwrap_or_default(),
        grace: said.grace.map_or(default.grace, Duration::from_secs),
        drain: said.drain.map_or(default.drain, Duration::from_secs),
        workspace: said.workspace.unwrap_or_default(),
        exec: said.exec.unwrap_or_default(),
        limits: ServeLimits {
            connections: limits.connections.unwrap_or(most.connections),
            user_connections: limits.user_connections.unwrap_or(most.user_connections),
            user_sessions: limits.user_sessions.unwrap_or(most.user_sessions),
            sessions: limits.sessions.unwrap_or(most.sessions),
            user_turns: limits.user_turns.unwrap_or(most.user_turns),
            message_bytes: limits.message_bytes.unwrap_or(most.message_bytes).min(most.message_bytes),
        },
    }
}

fn below(text: &str, home: Option<&Path>) -> PathBuf {
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}
