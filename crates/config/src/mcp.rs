//! MCP servers, as they are meant, and the addresses that none may have.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};

use super::file::{McpLog, OAuth};

#[derive(Debug, Clone)]
pub struct McpEntry {
    pub name: String,
    pub enabled: bool,
    /// How long starting it and listing its tools may take.
    pub timeout: Duration,
    /// How long a call may take without a word, where its entry says so.
    pub call_timeout: Option<Duration>,
    /// Whether it may have a model asked.
    pub sampling: bool,
    /// From which severity on it is to tell what it logs, where its entry says so.
    pub log: Option<McpLog>,
    pub transport: Transport,
    /// Where it was last said something about, for people.
    pub source: String,
}

/// A server is another one when it is reached or treated otherwise, not when its entry has moved in its file.
impl PartialEq for McpEntry {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, enabled, timeout, call_timeout, sampling, log, transport, source: _ } = self;
        (name, enabled, timeout, call_timeout) == (&other.name, &other.enabled, &other.timeout, &other.call_timeout)
            && (sampling, log, transport) == (&other.sampling, &other.log, &other.transport)
    }
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    Local {
        /// The program and its arguments; never empty.
        command: Vec<String>,
        /// Where it runs, relative to the session's directory.
        cwd: Option<String>,
        environment: Vec<(String, String)>,
    },
    Remote {
        url: String,
        headers: Vec<(String, String)>,
        /// How to log in; none never tries.
        oauth: Option<OAuth>,
        /// Only the older HTTP with server-sent events is spoken there.
        sse: bool,
    },
}

/// Why a server is not called at this address, if it is not: it is none, or everybody on the way could read
/// what is secret in the request.
pub fn refused(url: &str, headers: &[(String, String)]) -> Option<String> {
    let parsed = match url::Url::parse(url) {
        Ok(parsed) => parsed,
        Err(e) => return Some(format!("it is not a URL ({e}); write https://HOST/PATH")),
    };
    match parsed.scheme() {
        "https" => None,
        "http" => {
            let secret = headers.iter().map(|(name, _)| name).find(|name| is_secret(name));
            let secret = match secret {
                Some(name) => format!("the header {name}"),
                None if parsed.password().is_some() => "the password in its address".to_owned(),
                None => return None,
            };
            let why = "would be sent unencrypted to a public host; use https";
            (!is_near(&parsed)).then(|| format!("{secret} {why}"))
        }
        other => Some(format!("a server cannot be reached over {other}:; write https: or http:")),
    }
}

/// Whether nobody else is on the way to this address: it is on this machine or in its network.
pub fn is_near(url: &url::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        // A name without a dot is one of the network's own.
        Err(_) => !host.contains('.') || [".localhost", ".local", ".internal"].iter().any(|end| host.ends_with(end)),
    }
}

/// Whether what this header holds is for the server alone.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "cookie", "key", "token", "secret", "password"].iter().any(|word| name.contains(word))
}

/// Puts a server into a settings file, whose other contents and comments stay as they are.
///
/// # Errors
/// Where the file cannot be read or written, or has a server of this name.
pub fn add(path: &Path, name: &str, entry: &serde_json::Value) -> Result<(), String> {
    let text = match base::file::read_regular_text(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "{}\n".to_owned(),
        Err(e) => return Err(e.to_string()),
    };
    let root = CstRootNode::parse(&text, &ParseOptions::default()).map_err(|e| format!("it is not JSON: {e}"))?;
    let all = root.object_value_or_create().ok_or("it is not a JSON object")?;
    let servers = all.object_value_or_create("mcp").ok_or("its \"mcp\" is not an object")?;
    if servers.get(name).is_some() {
        return Err(format!("it already has a server \"{name}\""));
    }
    servers.append(name, input(entry));
    let failed = |e: std::io::Error| e.to_string();
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
    std::io::Write::write_all(&mut file, root.to_string().as_bytes()).map_err(failed)?;
    file.persist(path).map(drop).map_err(|e| failed(e.error))
}

/// As the library takes values.
fn input(value: &serde_json::Value) -> CstInputValue {
    use serde_json::Value;
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => {
            CstInputValue::Object(all.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let bearer = [("Authorization".to_owned(), "Bearer x".to_owned())];
        let plain = [("X-Team".to_owned(), "a".to_owned())];
        let table: [(&str, &[_], Option<&str>); 12] = [
            ("https://mcp.example/", &bearer, None),
            ("http://mcp.example/", &plain, None),
            ("http://mcp.example/", &bearer, Some("the header Authorization would be sent unencrypted")),
            ("http://u:p@mcp.example/", &[], Some("the password in its address would be sent")),
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
            let said = refused(url, headers);
            match (expected, &said) {
                (None, None) => {}
                (Some(part), Some(said)) if said.contains(part) => {}
                _ => panic!("{url}: {said:?}"),
            }
        }
    }
}
