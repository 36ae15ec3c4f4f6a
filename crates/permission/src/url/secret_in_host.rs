//! Detects a key or a password in an address, in any encoding.

use base64::Engine as _;
use percent_encoding::percent_decode_str;

/// The number of consecutive characters by which a key is recognised.
const MIN_RECOGNISED_CHARS: usize = 16;

/// Returns whether a host name reveals a key, whole or in parts, in any encoding and with dots
/// anywhere. A password that could be a word does not count: see [`spells`].
pub(super) fn names_secret(host: &str, secret: &str) -> bool {
    let secret = password(secret);
    let has_digit = secret.bytes().any(|byte| byte.is_ascii_digit());
    let has_letter = secret.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_varied = has_digit && has_letter;
    if secret.len() < 8 || !(is_varied || secret.len() >= MIN_RECOGNISED_CHARS) {
        return false;
    }
    let host = folded(host);
    let forms = [
        folded(secret),
        folded(secret).chars().rev().collect(),
        base::text::hex(secret.as_bytes()),
        base32(secret.as_bytes()),
        folded(&base64::engine::general_purpose::STANDARD_NO_PAD.encode(secret)),
    ];
    forms.iter().filter(|form| form.len() >= 8).any(|form| {
        let piece = form.len().min(MIN_RECOGNISED_CHARS);
        host.as_bytes()
            .windows(piece)
            .any(|window| memchr::memmem::find(form.as_bytes(), window).is_some())
    })
}

/// Returns whether a host name contains a secret that could be a word: `postgres` is in
/// `postgresql.org`.
pub(super) fn spells(host: &str, secret: &str) -> bool {
    let secret = folded(password(secret));
    secret.len() >= 8 && folded(host).contains(&secret)
}

/// Returns the secret part of a value: the password of an address with a user and a password,
/// otherwise the value.
fn password(value: &str) -> &str {
    let Some((_, rest)) = value.split_once("://") else {
        return value;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .and_then(|(named, _)| Some(named.split_once(':')?.1))
        .unwrap_or_default()
}

/// Returns the letters and digits in lower case, as far as a text can be part of a host name.
fn folded(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Encodes bytes as RFC 4648 base32, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut out = String::new();
    let mut bits = 0_u32;
    let mut pending = 0_u32;
    let mut push = |five: u32| out.push(char::from(LETTERS[five as usize & 31]));
    for byte in bytes {
        pending = pending << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            push(pending >> bits);
        }
        pending &= (1 << bits) - 1;
    }
    if bits > 0 {
        push(pending << (5 - bits));
    }
    out
}

/// Returns whether a text contains a secret: plain, percent-encoded, in hexadecimal, in base64 or
/// reversed.
pub(super) fn holds(text: &str, secret: &str) -> bool {
    if secret.len() < 8 {
        return false;
    }
    let decoded = decoded(text);
    let hex = base::text::hex(secret.as_bytes());
    let backwards: String = secret.chars().rev().collect();
    let engines = [
        base64::engine::general_purpose::STANDARD_NO_PAD,
        base64::engine::general_purpose::URL_SAFE_NO_PAD,
    ];
    decoded.contains(secret)
        || decoded.contains(&backwards)
        || text.to_ascii_lowercase().contains(&hex)
        || engines
            .iter()
            .any(|engine| decoded.contains(&engine.encode(secret)))
}

pub(super) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns whether a query contains a value that looks like a key.
pub(super) fn looks_secret(query: &str) -> bool {
    let is_dense = |value: &str| {
        let classes = [
            char::is_lowercase as fn(char) -> bool,
            char::is_uppercase,
            |c| c.is_ascii_digit(),
        ];
        value.len() >= 32
            && !value.contains(['+', ' ', '%'])
            && classes.iter().all(|class| value.contains(*class))
    };
    query
        .split('&')
        .any(|pair| is_dense(pair.split_once('=').map_or(pair, |(_, value)| value)))
}
