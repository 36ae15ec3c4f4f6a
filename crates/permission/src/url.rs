//! Judges addresses on the network. [`Address::read`] finds the host that a text refers to,
//! [`Address::access_request`] gives the minimum verdict on fetching, and `fits` compares an address
//! with a rule.
//!
//! Names are resolved elsewhere; [`forbidden_address`] judges the results.

mod secret_in_host;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AccessRequest, Action, Rule, wildcard};
use secret_in_host::{decoded, holds, looks_secret, names_secret, spells};

/// The key of the permission for addresses.
pub const PERMISSION: &str = "webfetch";

/// An address on the network that a call wants to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub url: url::Url,
    /// The host that the address refers to, in lower case and without the final dot.
    pub host: String,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// The reason why it is not valid, for the user.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.chars().any(base::text::is_deceptive) {
            return Err("it contains invisible characters".into());
        }
        if text.contains('\\') {
            return Err("it holds a backslash, which programs read in different ways".into());
        }
        let scheme = text
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err("only http and https addresses are fetched".into());
        }
        // A URL may not have the zone of an IPv6 address, but people and attackers write it.
        let plain = without_zone(text);
        let authority = plain.split_once("://").map_or("", |(_, rest)| {
            rest.split(['/', '?', '#', '\\']).next().unwrap_or_default()
        });
        if authority
            .rsplit('@')
            .next()
            .unwrap_or_default()
            .contains('%')
        {
            return Err("its host is escaped".into());
        }
        let url = url::Url::parse(&plain).map_err(|_| "it is not a valid address".to_owned())?;
        let host = url
            .host_str()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_ascii_lowercase();
        if host.is_empty() {
            return Err("it names no host".into());
        }
        Ok(Self { url, host })
    }

    /// Returns the access request for fetching the address.
    ///
    /// `secrets` are values that must not be sent; those shorter than 8 bytes are ignored.
    /// `private` are the hosts of this machine and network that may be fetched from nevertheless:
    /// `host` or `host:port`. No name is resolved.
    pub fn access_request(&self, secrets: &[String], private: &[String]) -> AccessRequest {
        let origin = self.url.origin().ascii_serialization();
        let mut request =
            AccessRequest::new(PERMISSION, self.url.as_str()).always(format!("{origin}/*"));
        request.minimum = self.minimum(secrets, private);
        request
    }

    /// Returns whether the settings allow to fetch from the host, whatever its name resolves to.
    pub fn is_named(&self, private: &[String]) -> bool {
        private.iter().any(|pattern| {
            let (wanted, port) = port_of(pattern);
            (port.is_none() || port == self.url.port_or_known_default())
                && labels(&wanted.to_ascii_lowercase(), &self.host)
        })
    }

    /// Returns whether the address is longer than those that people write, over all its parts
    /// together, since data can be spread over them. Escaped letters count once.
    fn is_long(&self) -> bool {
        let rest = decoded(self.url.path()).len()
            + self.url.query().map_or(0, |query| decoded(query).len());
        self.host.len() > MAX_PLAIN_HOST_BYTES || self.host.len() + rest > MAX_PLAIN_ADDRESS_BYTES
    }

    /// Returns the minimum verdict on fetching, with its reason.
    fn minimum(&self, secrets: &[String], private: &[String]) -> Option<(Action, String)> {
        let url = &self.url;
        let host = &self.host;
        if let Some(reason) = local_host(host)
            && !self.is_named(private)
        {
            return Some((Action::Deny, format!("{host} {reason}.")));
        }
        if secrets.iter().any(|secret| names_secret(host, secret)) {
            // A DNS lookup would already reveal it.
            return Some((
                Action::Deny,
                "its host name contains one of your secrets.".to_owned(),
            ));
        }
        let ask = |reason: String| Some((Action::Ask, reason));
        let whole = |reason: &str| ask(format!("{reason}: {url}"));
        let path_and_query = format!(
            "{}?{}#{}",
            url.path(),
            url.query().unwrap_or_default(),
            url.fragment().unwrap_or_default()
        );
        let user = format!("{}:{}", url.username(), url.password().unwrap_or_default());
        let sends = |secret: &String| {
            holds(&path_and_query, secret) || holds(&user, secret) || spells(host, secret)
        };
        if secrets.iter().any(sends) {
            return whole("it would send a secret");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return whole(&format!("it names a user; the host is {host}"));
        }
        if url.query().is_some_and(looks_secret) || self.is_long() {
            return whole("it would send a long text that may contain your data");
        }
        None
    }
}

/// The maximum lengths in bytes of an address, and of its host, that people write or copy.
const MAX_PLAIN_ADDRESS_BYTES: usize = 300;
const MAX_PLAIN_HOST_BYTES: usize = 100;

/// Returns whether a rule about fetching applies to an address. An allow is compared host by host;
/// an ask or a deny also with the text of the address.
pub(super) fn fits(rule: &Rule, address: &Address) -> bool {
    let matches_text = || {
        rule.action != Action::Allow
            && wildcard::matches_folded(&rule.pattern, address.url.as_str())
    };
    wildcard::matches(&rule.permission, PERMISSION)
        && (rule.pattern == "*"
            || names(&rule.pattern, &address.url, &address.host)
            || matches_text())
}

fn without_zone(text: &str) -> String {
    match (text.find('['), text.find(']')) {
        (Some(open), Some(close)) if open < close => match text[open..close].find('%') {
            Some(at) => format!("{}{}", &text[..open + at], &text[close..]),
            None => text.to_owned(),
        },
        _ => text.to_owned(),
    }
}

/// Returns the reason why a host is never fetched from, by its name or number alone.
fn local_host(host: &str) -> Option<&'static str> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return forbidden_address(address);
    }
    let local = ["localhost", "local", "internal", "home.arpa", "localdomain"];
    let named = local
        .iter()
        .any(|name| host == *name || host.ends_with(&format!(".{name}")));
    (named || !host.contains('.')).then_some("is a name of this machine or network")
}

/// Returns the reason why an IP address is never connected to: loopback, private, link-local,
/// metadata, multicast or reserved, even if it is embedded in another notation.
///
/// The caller checks every resolved address with this, again after each redirect.
pub fn forbidden_address(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => forbidden_v4(address),
        IpAddr::V6(address) => forbidden_v6(address),
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    let kind = match (a, b, c) {
        (127, ..) => "is this machine",
        (0, ..) => "is this network",
        (10, ..) | (192, 168, _) => "is on a private network",
        (172, 16..=31, _) => "is on a private network",
        (100, 64..=127, _) => "is on a provider's private network",
        (169, 254, _) => "is link-local; cloud machines keep their keys there",
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => {
            "is reserved"
        }
        // The host under a cloud's virtual machines, at a public address.
        (168, 63, 129) if d == 16 => "is a cloud machine's own host",
        (224..=255, ..) => "is not a single machine",
        _ => return None,
    };
    Some(kind)
}

/// Judges an embedded IPv4 address, in all translation formats, as that address. Of the rest, only
/// globally routed addresses may be contacted.
fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let kind = match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => "is this machine",
        // IPv4-mapped, and translated by NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return forbidden_embedded(high, low);
        }
        // IPv4-compatible, and translated by SIIT: not routed.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            forbidden_embedded(high, low).unwrap_or("is reserved")
        }
        [0x64, 0xff9b, ..] => "is translated within a network",
        // 6to4.
        [0x2002, high, low, ..] => {
            return forbidden_embedded(high, low).or_else(|| isatap(&segments));
        }
        // Teredo: the server, and the client with inverted bits.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            return forbidden_embedded(high, low)
                .or_else(|| forbidden_embedded(!client_high, !client_low));
        }
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x3ffe, ..] => {
            "is reserved"
        }
        [first, ..] if first & 0xe000 == 0x2000 => return isatap(&segments),
        [first, ..] if first & 0xfe00 == 0xfc00 => "is on a private network",
        [first, ..] if first & 0xff80 == 0xfe80 => "is link-local",
        [first, ..] if first & 0xff00 == 0xff00 => "is not a single machine",
        _ => "is reserved",
    };
    Some(kind)
}

fn forbidden_embedded(high: u16, low: u16) -> Option<&'static str> {
    forbidden_v4(v4_from(high, low))
}

/// Judges an address whose lower half contains an IPv4 address in the format of ISATAP.
fn isatap(segments: &[u16; 8]) -> Option<&'static str> {
    match segments {
        [.., 0 | 0x200, 0x5efe, high, low] => forbidden_v4(v4_from(*high, *low)),
        _ => None,
    }
}

fn v4_from(high: u16, low: u16) -> Ipv4Addr {
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

/// Returns whether a pattern matches an address. The pattern is a host or an address; its host is
/// compared label by label.
fn names(pattern: &str, url: &url::Url, host: &str) -> bool {
    let (scheme, authority, path) = divided(pattern);
    let (wanted, port) = port_of(authority);
    // Without a port, the scheme's default applies.
    let same_port = port == url.port() || (port.is_some() && port == url.port_or_known_default());
    let sent = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let same_path = path.is_empty() || path == "/" && sent == "/" || wildcard::matches(path, &sent);
    scheme.is_none_or(|scheme| scheme == "*" || scheme.eq_ignore_ascii_case(url.scheme()))
        && same_port
        && same_path
        && (scheme.is_some() && wanted == "*" || labels(&wanted.to_ascii_lowercase(), host))
}

/// Divides a pattern into its scheme, if it has one, its host with its port, and its path.
fn divided(pattern: &str) -> (Option<&str>, &str, &str) {
    let (scheme, rest) = pattern
        .split_once("://")
        .map_or((None, pattern), |(scheme, rest)| (Some(scheme), rest));
    let cut = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(cut);
    (scheme, authority, path)
}

/// A property of the hosts that a pattern may name, by which rules are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum HostKey {
    /// They end with these labels.
    Ending(String),
    /// They have this number of labels.
    Labels(usize),
    Any,
}

impl HostKey {
    /// Returns the key of a pattern: a host for which [`names`] is true has the property.
    pub(super) fn of_pattern(pattern: &str) -> Self {
        let (_, authority, _) = divided(pattern);
        let (wanted, _) = port_of(authority);
        // The labels after the last one with a wildcard.
        let after_wildcard = wanted.rfind(['*', '?', '\\']).map_or(0, |at| {
            wanted[at..]
                .find('.')
                .map_or(wanted.len(), |dot| at + dot + 1)
        });
        let ending = &wanted[after_wildcard..];
        if !ending.is_empty() {
            Self::Ending(ending.to_ascii_lowercase())
        } else if wanted == "*" || wanted.starts_with("*.") {
            Self::Any
        } else {
            Self::Labels(wanted.split('.').count())
        }
    }

    /// Returns the keys of all patterns that may name a host.
    pub(super) fn of_host(host: &str) -> impl Iterator<Item = Self> {
        let inner = host.match_indices('.').map(|(at, _)| &host[at + 1..]);
        let endings = inner
            .chain([host])
            .map(|ending| Self::Ending(ending.to_owned()));
        endings.chain([Self::Labels(host.split('.').count()), Self::Any])
    }
}

/// Splits a host and its port.
fn port_of(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (host, port.parse().ok())
        }
        _ => (authority, None),
    }
}

/// Returns whether a host pattern matches: each label alone, `*.` at the start for any number of
/// labels.
fn labels(pattern: &str, host: &str) -> bool {
    if let Some(tail) = pattern.strip_prefix("*.") {
        return host
            .strip_suffix(tail)
            .is_some_and(|head| head.ends_with('.') && head.len() > 1);
    }
    let pattern: Vec<&str> = pattern.split('.').collect();
    let host: Vec<&str> = host.split('.').collect();
    pattern.len() == host.len()
        && pattern
            .iter()
            .zip(host)
            .all(|(pattern, label)| wildcard::matches(pattern, label))
}

#[cfg(test)]
mod tests {
    use super::super::case_tables::records;
    use super::*;
    use crate::url_verdict::{UrlVerdict, judge_url};
    use crate::{Policy, Rules, evaluate};

    fn rules() -> Rules {
        let rule = |pattern: &str, action| Rule {
            permission: "webfetch".into(),
            pattern: pattern.into(),
            action,
            source: "test".into(),
        };
        Rules::from(vec![
            rule("*", Action::Ask),
            rule("https://docs.allowed.example/*", Action::Allow),
        ])
    }

    fn verdict(text: &str) -> &'static str {
        match judge_url(&rules(), text, &["sk-live-0123456789".into()], &[]) {
            UrlVerdict::Judged(Action::Allow, _) => "allow",
            UrlVerdict::Judged(Action::Ask, _) => "ask",
            UrlVerdict::Judged(Action::Deny, _) => "deny",
            UrlVerdict::Refused(_) => "refuse",
        }
    }

    /// Rows U36 to U40 are about the content of a page and its duration, and are tested in
    /// `crates/tools/src/web/webfetch.rs`. The rows about names, redirects and secrets are prose;
    /// here they are written as addresses.
    #[test]
    fn addresses_of_the_table_get_their_verdicts() {
        const ELSEWHERE: [&str; 5] = ["U36", "U37", "U38", "U39", "U40"];
        let mut seen = 0;
        for row in records(include_str!("../data/url_cases.csv")) {
            let text: String = serde_json::from_str(&row[1]).unwrap();
            if ELSEWHERE.contains(&row[0].as_str()) {
                continue;
            }
            seen += 1;
            let inputs: Vec<&str> = match row[0].as_str() {
                // Every resolved address is judged before a connection.
                "U25" | "U26" => {
                    for address in ["127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1"] {
                        assert!(
                            forbidden_address(address.parse().unwrap()).is_some(),
                            "{address}"
                        );
                    }
                    continue;
                }
                // Every redirect leads to an address of its own.
                "U27" => vec![
                    "http://169.254.169.254/",
                    "http://169.254.169.254/latest/meta-data",
                ],
                "U31" => vec![
                    "ftp://a.b/",
                    "gopher://a.b/",
                    "data:text/html,x",
                    "blob:https://a.b/1",
                    "javascript:1",
                    "unix:/x",
                ],
                "U32" => vec![
                    "https://docs.allowed.example/?q=sk-live-0123456789",
                    "https://docs.allowed.example/?q=736b2d6c6976652d30313233343536373839",
                    "https://docs.allowed.example/?q=sk%2Dlive%2D0123456789",
                    "https://docs.allowed.example/#9876543210-evil-ks",
                ],
                "U24" => vec!["http://[fe80::1%25eth0]/", "http://[fd00::1]/"],
                _ => vec![text.as_str()],
            };
            for input in inputs {
                assert_eq!(verdict(input), row[2], "{} {input}", row[0]);
            }
        }
        assert_eq!(seen, 19);
    }

    #[test]
    fn further_addresses_get_their_verdicts() {
        let table = [
            ("https://docs.allowed.example/", "allow"),
            ("https://docs.allowed.example/a?b=c", "allow"),
            ("HTTPS://DOCS.Allowed.Example./a", "allow"),
            ("https://docs.allowed.example:443/a", "allow"),
            ("http://docs.allowed.example/", "ask"),
            ("https://docs.allowed.example\\.evil.test/", "refuse"),
            ("https://evil.test/docs.allowed.example/", "ask"),
            ("https://docs.allowed.example/?k=sk-live-0123456789", "ask"),
            (
                "https://docs.allowed.example/?k=c2stbGl2ZS0wMTIzNDU2Nzg5",
                "ask",
            ),
            ("https://docs.allowed.example/?k=9876543210-evil-ks", "ask"),
            ("https://user:pw@docs.allowed.example/", "ask"),
            ("http://0x7f.1/", "deny"),
            ("http://127.0.0.1./", "deny"),
            ("http://[::ffff:10.0.0.1]/", "deny"),
            ("http://[64:ff9b::a9fe:a9fe]/", "deny"),
            ("http://[2002:7f00:1::]/", "deny"),
            ("http://169.254.169.254/latest", "deny"),
            ("http://metadata.google.internal/", "deny"),
            ("http://printer.local/", "deny"),
            ("http://router/", "deny"),
            ("http://100.100.1.1/", "deny"),
            ("http://[::]/", "deny"),
            ("http://0/", "deny"),
            ("http://0x7f000001/", "deny"),
            ("http://017700000001/", "deny"),
            ("http://127.0.0.1%00.docs.allowed.example/", "refuse"),
            ("http://[::127.0.0.1]/", "deny"),
            ("http://[fec0::1]/", "deny"),
            ("http://192.168.0.1.docs.allowed.example/", "ask"),
            ("http://docs.allowed.example:80/", "ask"),
            ("https://docs.allowed.example:8443/", "ask"),
            ("https://DOCS.ALLOWED.EXAMPLE@evil.test/", "ask"),
            ("https://xdocs.allowed.example/", "ask"),
            ("https://docs.allowed.example.:443/x", "allow"),
            ("https://docs.allowed.example/a/../../b", "allow"),
            ("https://docs\u{3002}allowed.example/", "allow"),
            ("https://evil.test?docs.allowed.example/", "ask"),
            ("https://evil.test#@docs.allowed.example/", "ask"),
            ("//docs.allowed.example/", "refuse"),
            ("docs.allowed.example", "refuse"),
            ("HTTP://LOCALHOST:3000/", "deny"),
            ("http://sub.localhost/", "deny"),
            ("http://224.0.0.1/", "deny"),
            ("http://255.255.255.255/", "deny"),
            ("view-source:https://docs.allowed.example/", "refuse"),
            ("data:text/plain,x", "refuse"),
            ("javascript:alert(1)", "refuse"),
            ("unix:/run/x", "refuse"),
            // A missing host is taken from the path, as browsers do.
            ("https:///x", "deny"),
            ("http://", "refuse"),
            ("https://docs.allowed.example\u{200b}/", "refuse"),
            ("https://sk-live-0123456789.docs.allowed.example/", "deny"),
        ];
        for (text, expected) in table {
            assert_eq!(verdict(text), expected, "{text}");
        }
    }

    /// An embedded IPv4 address is judged as that address; addresses that are not routed globally
    /// are denied.
    #[test]
    fn embedded_addresses_are_judged() {
        let inside = Ipv4Addr::new(169, 254, 169, 254);
        let outside = Ipv4Addr::new(93, 184, 215, 14);
        let wrap = |of: Ipv4Addr| {
            let [a, b, c, d] = of.octets();
            let high = u16::from_be_bytes([a, b]);
            let low = u16::from_be_bytes([c, d]);
            [
                [0, 0, 0, 0, 0, 0xffff, high, low],
                [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                [0x2002, high, low, 0, 0, 0, 0, 1],
                [0x2001, 0, high, low, 0, 0, !0x5db8, !0xd70e],
                [0x2001, 0, 0x5db8, 0xd70e, 0, 0, !high, !low],
                [0x2a00, 1, 2, 3, 0, 0x5efe, high, low],
                [0x2a00, 1, 2, 3, 0x200, 0x5efe, high, low],
                [0x2002, 0x5db8, 0xd70e, 0, 0, 0x5efe, high, low],
            ]
        };
        for segments in wrap(inside) {
            assert!(
                forbidden_address(Ipv6Addr::from(segments).into()).is_some(),
                "{}",
                Ipv6Addr::from(segments)
            );
        }
        for segments in wrap(outside) {
            assert_eq!(
                forbidden_address(Ipv6Addr::from(segments).into()),
                None,
                "{}",
                Ipv6Addr::from(segments)
            );
        }
        let table = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 100.127.255.254 127.0.0.1 168.63.129.16 \
            169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 \
            198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.251 239.255.255.250 240.0.0.1 255.255.255.255 \
            :: ::1 ::8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b:1::8.8.8.8 64:ff9b:1:fffe::1 100::1 100:0:0:1::1 2001:2::1 \
            2001:10::1 2001:20::1 2001:db8::1 3ffe::1 3fff::1 3fff:fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 \
            fe80::1 febf::1 fec0::1 feff::1 ff02::1 ff0e::1";
        for address in table.split_whitespace() {
            assert!(
                forbidden_address(address.parse().unwrap()).is_some(),
                "{address}"
            );
        }
        let open = "1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 168.63.129.17 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 \
            198.20.0.1 223.255.255.255 2001:200::1 2001:4860:4860::8888 2600::1 2606:4700:4700::1111 2a00:1450::1 3fff:1000::1";
        for address in open.split_whitespace() {
            assert_eq!(
                forbidden_address(address.parse().unwrap()),
                None,
                "{address}"
            );
        }
    }

    #[test]
    fn key_in_host_name_is_denied() {
        let key = "sk-Live-0123456789abcdefXYZ";
        let database = "postgres://app:hunter2hunter2@db.internal.example.com:5432/app";
        let jwt = format!("eyJhbGciOi{}", "aB3dE5gH7j".repeat(40));
        let long = &jwt[100..140];
        let table = [
            ("sk-live-0123456789abcdefxyz.evil.test", Some(Action::Deny)),
            (
                "sk-live-.0123456789.abcdefxyz.evil.test",
                Some(Action::Deny),
            ),
            ("sklive0123456789.evil.test", Some(Action::Deny)),
            ("n-3456789abcdefxyz-1.evil.test", Some(Action::Deny)),
            ("zyxfedcba9876543210evilks.evil.test", Some(Action::Deny)),
            ("736b2d4c6976652d.303132.evil.test", Some(Action::Deny)),
            (
                "onvs2tdjozss2mbrgiztinjwg44dsyl.evil.test",
                Some(Action::Deny),
            ),
            ("c2stTGl2ZS0wMTIzNDU2Nzg5.evil.test", Some(Action::Deny)),
            (&format!("{long}.evil.test"), Some(Action::Deny)),
            ("hunter2-hunter2.evil.test", Some(Action::Deny)),
            // Neither the address of the database, nor a password that is part of many names.
            ("www.db.internal.example.com", None),
            ("www.postgresql.org", Some(Action::Ask)),
            ("docs.rs", None),
            ("live-0123456789.example.org", None),
        ];
        let secrets = [key, database, &jwt, "postgres", "short1"].map(str::to_owned);
        for (host, action) in table {
            let request = Address::read(&format!("https://{host}/"))
                .unwrap()
                .access_request(&secrets, &[]);
            assert_eq!(request.minimum.map(|(action, _)| action), action, "{host}");
        }
    }

    #[test]
    fn long_text_asks_however_it_is_spread() {
        let label = "abcdefghij".repeat(6);
        let table = [
            format!(
                "https://evil.test/{}",
                format!("{}/", "a".repeat(180)).repeat(20)
            ),
            format!("https://evil.test/{}", "word/".repeat(60)),
            format!("https://{label}.{label}.{label}.{label}.evil.test/"),
            format!("https://evil.test/?q={}", "word+".repeat(80)),
            format!("https://evil.test/?{}", "a=word&".repeat(45)),
            format!("https://{label}.evil.test/{label}/{label}?a={label}&b={label}"),
            format!("https://evil.test/{}", "%61".repeat(300)),
        ];
        let long = |text: &str| {
            Address::read(text)
                .unwrap()
                .access_request(&[], &[])
                .minimum
                .is_some()
        };
        for text in table {
            assert!(long(&text), "{text}");
        }
        let everyday = [
            "https://github.com/rust-lang/rust/blob/9fc6b43126469e3858e2fe86cafb4f0fd5068869/compiler/rustc_hir_typeck/src/method/probe.rs#L1234-L1250",
            "https://raw.githubusercontent.com/microsoft/TypeScript/refs/heads/main/tests/baselines/reference/declarationEmitExpressionInExtends.types",
            "https://github.com/search?q=repo%3Arust-lang%2Frust+path%3Acompiler%2F+%22fn+probe_op%22+language%3ARust&type=code&p=2",
            "https://github.com/zed-industries/zed/issues?q=is%3Aissue+is%3Aopen+label%3Abug+sort%3Aupdated-desc+agent+client+protocol",
            "https://github.com/rust-lang/cargo/compare/a6c604d1b8a2f2a8ff1f3ba6092f9fda42f4b7e9...84709f085062cbf3c51fa507527c1b2334015178",
            "https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/concurrent/CompletableFuture.html#thenCombine(java.util.concurrent.CompletionStage,java.util.function.BiFunction)",
            "https://learn.microsoft.com/en-us/dotnet/api/microsoft.extensions.dependencyinjection.servicecollectionserviceextensions.addsingleton?view=net-9.0-pp&tabs=windows",
            "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-elasticloadbalancingv2-listenerrule-authenticateoidcconfig.html",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/gce-pd-csi-driver?hl=en#enabling_the_on_an_existing_cluster",
            "https://stackoverflow.com/questions/27791251/fatal-error-cannot-borrow-as-mutable-because-it-is-also-borrowed-as-immutable",
            "https://duckduckgo.com/?q=error%5BE0502%5D%3A+cannot+borrow+%60*self%60+as+mutable+because+it+is+also+borrowed+as+immutable+rust&ia=web",
            "https://www.google.com/search?q=site%3Adeveloper.mozilla.org+intersectionobserver+rootmargin+iframe+cross+origin&hl=en&num=20",
            "https://ja.wikipedia.org/wiki/%E6%97%A5%E6%9C%AC%E3%81%AE%E9%89%84%E9%81%93%E3%83%80%E3%82%A4%E3%83%A4%E6%94%B9%E6%AD%A3%E3%81%AE%E6%AD%B4%E5%8F%B2%E3%81%A8%E5%90%84%E5%9C%B0%E3%81%AE%E5%A4%89%E5%8C%96",
            "https://registry.npmjs.org/@typescript-eslint%2feslint-plugin",
            "https://ec2-203-0-113-25.ap-southeast-2.compute.amazonaws.com/health",
            "https://my-project-git-feature-long-branch-name-my-team.vercel.app/docs",
            "https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1/unstructured#Unstructured.SetManagedFields",
            "https://lists.freedesktop.org/archives/wayland-devel/2024-March/043500.html?q=presentation+time",
        ];
        for text in everyday {
            assert!(!long(text), "{text}");
        }
    }

    #[test]
    fn patterns_match_hosts() {
        use Action::{Allow, Ask, Deny};
        let rule = |(pattern, action): &(&str, Action)| Rule {
            permission: PERMISSION.into(),
            pattern: (*pattern).into(),
            action: *action,
            source: "test".into(),
        };
        type Case<'a> = (&'a [(&'a str, Action)], &'a str, Action);
        let table: &[Case<'_>] = &[
            (&[("*", Allow)], "https://a.example/", Allow),
            (&[], "https://a.example/", Ask),
            (&[("https://*", Allow)], "https://a.b.example/x", Allow),
            (&[("https://*", Allow)], "http://a.b.example/x", Ask),
            (&[("*.example", Allow)], "https://a.b.example/x", Allow),
            (&[("*.example", Allow)], "https://example/x", Deny),
            (&[("a.example", Allow)], "https://a.example:8443/", Ask),
            (
                &[("a.example:8443", Allow)],
                "https://a.example:8443/",
                Allow,
            ),
            // An ask or a deny also matches the text.
            (
                &[("*", Allow), ("*evil*", Deny)],
                "https://www.evil.example/",
                Deny,
            ),
            (
                &[("*", Allow), ("*EVIL*", Deny)],
                "https://www.evil.example/",
                Deny,
            ),
            (
                &[("*", Allow), ("*secret*", Ask)],
                "https://a.example/?q=secret",
                Ask,
            ),
            (&[("*good*", Allow)], "https://www.evil.example/good", Ask),
            // A broader later rule does not lift a deny, a narrower one does.
            (
                &[("*.b.example", Deny), ("*", Allow)],
                "https://a.b.example/",
                Deny,
            ),
            (
                &[
                    ("https://*.b.example/*", Deny),
                    ("https://a.b.example/*", Allow),
                ],
                "https://a.b.example/",
                Allow,
            ),
        ];
        for (rules, url, expected) in table {
            let rules: Rules = rules.iter().map(rule).collect();
            let UrlVerdict::Judged(action, _) = judge_url(&rules, url, &[], &[]) else {
                panic!("{url}")
            };
            assert_eq!(action, *expected, "{rules:?} {url}");
        }
    }

    #[test]
    fn private_hosts_are_fetched_by_name_only() {
        let private = [
            "localhost:3000".to_owned(),
            "*.corp.internal".into(),
            "[::1]".into(),
            "10.0.0.1".into(),
        ];
        let table = [
            ("http://localhost:3000/", true),
            ("http://localhost/", false),
            ("http://wiki.corp.internal/", true),
            ("http://corp.internal/", false),
            ("http://[::1]:8080/", true),
            ("http://10.0.0.1/", true),
            ("http://10.0.0.2/", false),
            ("http://127.0.0.1:3000/", false),
        ];
        for (url, open) in table {
            let request = Address::read(url).unwrap().access_request(&[], &private);
            assert_eq!(request.minimum.is_none(), open, "{url}");
            assert!(
                open == (evaluate(
                    &Rules::built_in(&[("*", "*", Action::Allow)]),
                    &Rules::default(),
                    &request
                )
                .action
                    == Action::Allow)
            );
        }
    }

    #[test]
    fn always_grants_a_single_host_and_no_secret() {
        let granted = |url: &str| {
            Address::read(url)
                .unwrap()
                .access_request(&["sk-live-0123456789".into()], &[])
        };
        let request = granted("https://a.example:8443/x?y");
        assert_eq!(request.always, ["https://a.example:8443/*"]);
        let policy = Policy {
            rules: Rules::built_in(&[(PERMISSION, "*", Action::Ask)]),
            ..Policy::default()
        };
        assert!(policy.is_answered_by_always(&request));
        assert!(!policy.is_answered_by_always(&granted("https://a.example/?q=sk-live-0123456789")));
        let grants = Rules::built_in(&[(PERMISSION, "https://a.example/*", Action::Allow)]);
        for (url, action) in [
            ("https://a.example/", Action::Allow),
            ("https://a.example/b/c?d", Action::Allow),
            ("http://a.example/", Action::Ask),
            ("https://a.example.evil.test/", Action::Ask),
            ("https://b.example/?https://a.example/", Action::Ask),
            ("https://a.example/?q=sk-live-0123456789", Action::Ask),
        ] {
            assert_eq!(
                evaluate(&policy.rules, &grants, &granted(url)).action,
                action,
                "{url}"
            );
        }
    }
}
