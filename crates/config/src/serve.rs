//! The resolved settings of `adjutant serve`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::ServeConfig;
pub use super::file::ServeLimits;

/// The settings of `adjutant serve`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeSettings {
    /// The address to listen on, as written.
    pub listen: String,
    /// Directories that may be opened. `None`: any if only this machine can connect, otherwise
    /// none.
    pub roots: Option<Vec<PathBuf>>,
    pub tokens: Vec<TokenEntry>,
    pub token_file: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    pub proxy: Option<TrustedProxy>,
    /// Origins of web pages that may connect.
    pub origins: Vec<String>,
    /// Users who may change parts of the account; `*` for all.
    pub account_users: Vec<String>,
    /// The time that sessions outlive their connection.
    pub grace: Duration,
    /// The time that turns have to end when the server stops.
    pub drain: Duration,
    /// The command that creates the directory of a session; empty for none.
    pub workspace: Vec<String>,
    /// The arguments put before each command of an agent.
    pub exec: Vec<String>,
    pub limits: ServeLimits,
}

impl ServeSettings {
    /// The default address.
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

/// A configured access token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenEntry {
    pub name: String,
    /// In hexadecimal digits.
    pub sha256: String,
    pub user: Option<String>,
    pub roots: Option<Vec<PathBuf>>,
}

/// The files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of client certificates, if clients need one.
    pub clients: Option<PathBuf>,
}

/// A trusted proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxy {
    pub addresses: Vec<String>,
    /// The header that contains the user's name.
    pub user_header: Option<String>,
}

/// Resolves the settings of `adjutant serve`.
pub(super) fn entry(config: ServeConfig, home: Option<&Path>) -> ServeSettings {
    let path = |text: String| below(&text, home);
    let paths = |all: Vec<String>| all.iter().map(|text| below(text, home)).collect();
    let default = ServeSettings::default();
    let tokens = config
        .tokens
        .unwrap_or_default()
        .into_iter()
        .map(|token| TokenEntry {
            name: token.name.unwrap_or_default(),
            sha256: token.sha256.unwrap_or_default(),
            user: token.user,
            roots: token.roots.map(paths),
        });
    ServeSettings {
        listen: config.listen.unwrap_or(default.listen),
        roots: config.roots.map(paths),
        tokens: tokens.collect(),
        token_file: config.token_file.map(path),
        tls: config.tls.map(|tls| TlsFiles {
            certificate: tls.certificate.map(path).unwrap_or_default(),
            key: tls.key.map(path).unwrap_or_default(),
            clients: tls.clients.map(path),
        }),
        proxy: config.proxy.map(|proxy| TrustedProxy {
            addresses: proxy.addresses.unwrap_or_default(),
            user_header: proxy.user_header.map(|name| name.to_ascii_lowercase()),
        }),
        origins: config.origins.unwrap_or_default(),
        account_users: config.account_users.unwrap_or_default(),
        grace: config.grace.map_or(default.grace, Duration::from_secs),
        drain: config.drain.map_or(default.drain, Duration::from_secs),
        workspace: config.workspace.unwrap_or_default(),
        exec: config.exec.unwrap_or_default(),
        limits: config.limits,
    }
}

fn below(text: &str, home: Option<&Path>) -> PathBuf {
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}
