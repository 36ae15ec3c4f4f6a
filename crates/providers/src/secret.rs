//! Texts that are never shown ([`Secret`]), such as keys, and their redaction from other texts.

/// A text that is never shown, such as a key. Its `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text. Only for sending it to the provider, and for redaction.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Returns a text with `[key]` in place of the secrets, except for those that are so short that they
/// may be ordinary words.
pub fn without_secrets(text: &str, secrets: &[Secret]) -> String {
    const MIN_SECRET_BYTES: usize = 6;
    let secrets = secrets.iter().map(Secret::expose);
    secrets
        .filter(|secret| secret.len() >= MIN_SECRET_BYTES)
        .fold(text.to_owned(), |text, secret| {
            text.replace(secret, "[key]")
        })
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("sk-abc")), "[secret]");
    }
}
