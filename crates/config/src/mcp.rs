//! Resolved MCP servers, and checks of their addresses.

use std::net::IpAddr;
use std::time::Duration;

use super::file::{McpLog, OAuth};

#[derive(Debug, Clone)]
pub struct McpEntry {
    pub name: String,
    pub enabled: bool,
    /// The timeout of starting it and listing its tools.
    pub timeout: Duration,
    /// The time that a call may take without progress, if its entry sets it.
    pub call_timeout: Option<Duration>,
    /// True if it may request answers from a model (sampling).
    pub sampling: bool,
    /// The minimum severity of its log messages, if its entry sets it.
    pub log: Option<McpLog>,
    pub transport: Transport,
    /// The location of its last mention, for display.
    pub source: String,
}

/// Servers are equal if they are reached and treated in the same way; a different position in the
/// file does not matter.
impl PartialEq for McpEntry {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            name,
            enabled,
            timeout,
            call_timeout,
            sampling,
            log,
            transport,
            source: _,
        } = self;
        *name == other.name
            && *enabled == other.enabled
            && *timeout == other.timeout
            && *call_timeout == other.call_timeout
            && *sampling == other.sampling
            && *log == other.log
            && *transport == other.transport
    }
}

/// The connection to an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    Local {
        /// The program and its arguments; never empty.
        command: Vec<String>,
        /// Its working directory, relative to the session's directory.
        cwd: Option<String>,
        environment: Vec<(String, String)>,
    },
    Remote {
        url: String,
        headers: Vec<(String, String)>,
        /// The settings for logins. `None` disables logins.
        oauth: Option<OAuth>,
        /// True if only the older HTTP with server-sent events is supported.
        sse: bool,
    },
    /// A server that lives in the editor, over its connection. Only an editor can give one; the
    /// settings have none.
    Editor {
        /// The editor's id of the server.
        id: String,
    },
}

/// Returns the reason why a server cannot be used at this address, if any: it is invalid, or
/// secrets in the request could be read in transit.
pub fn refused(url: &str, headers: &[(String, String)]) -> Option<String> {
    let parsed = match url::Url::parse(url) {
        Ok(parsed) => parsed,
        Err(e) => return Some(format!("it is not a URL ({e}); write https://HOST/PATH")),
    };
    match parsed.scheme() {
        "https" => None,
        "http" => {
            let secret = headers
                .iter()
                .map(|(name, _)| name)
                .find(|name| is_secret(name));
            let secret = match secret {
                Some(name) => format!("the header {name}"),
                None if parsed.password().is_some() => "the password in its address".to_owned(),
                None => return None,
            };
            let why = "would be sent unencrypted to a public host; use https";
            (!is_local_network(&parsed)).then(|| format!("{secret} {why}"))
        }
        other => Some(format!(
            "a server cannot be reached over {other}:; write https: or http:"
        )),
    }
}

/// Returns whether the address is on this machine or in its local network, so that no third party
/// is in between.
pub fn is_local_network(url: &url::Url) -> bool {
    let host = url
        .host_str()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        // A name without a dot is local to the network.
        Err(_) => {
            !host.contains('.')
                || [".localhost", ".local", ".internal"]
                    .iter()
                    .any(|end| host.ends_with(end))
        }
    }
}

/// Returns whether the value of this header is a secret of the server.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "cookie", "key", "token", "secret", "password"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insecure_and_invalid_addresses_are_refused() {
        let bearer = [("Authorization".to_owned(), "Bearer x".to_owned())];
        let plain = [("X-Team".to_owned(), "a".to_owned())];
        let table: [(&str, &[_], Option<&str>); 12] = [
            ("https://mcp.example/", &bearer, None),
            ("http://mcp.example/", &plain, None),
            (
                "http://mcp.example/",
                &bearer,
                Some("the header Authorization would be sent unencrypted"),
            ),
            (
                "http://u:p@mcp.example/",
                &[],
                Some("the password in its address would be sent"),
            ),
            ("http://127.0.0.1:8000/mcp", &bearer, None),
            ("http://[::1]:8000/mcp", &bearer, None),
            ("http://localhost/mcp", &bearer, None),
            ("http://10.1.2.3/mcp", &bearer, None),
            ("http://8.8.8.8/mcp", &bearer, Some("unencrypted")),
            ("http://gateway/mcp", &bearer, None),
            ("ftp://mcp.example/", &[], Some("over ftp:; write https:")),
            ("https://", &[], Some("it is not a URL (empty host)")),
        ];
        for (url, headers, expected) in table {
            let reason = refused(url, headers);
            match (expected, &reason) {
                (None, None) => {}
                (Some(part), Some(reason)) if reason.contains(part) => {}
                _ => panic!("{url}: {reason:?}"),
            }
        }
    }
}
