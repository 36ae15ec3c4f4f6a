//! A text with several owners, without copies.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that its clones share, and that is copied only when one of several owners changes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedText(Arc<String>);

impl SharedText {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text for changing it: in place if it has no other owner.
    pub fn to_mut(&mut self) -> &mut String {
        Arc::make_mut(&mut self.0)
    }

    /// Returns whether the texts are equal. Clones of each other are not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SharedText {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Arc::new(text))
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for SharedText {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<SharedText> for String {
    fn from(text: SharedText) -> Self {
        Arc::unwrap_or_clone(text.0)
    }
}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_text_is_copied_on_write() {
        let mut one = SharedText::from("a".repeat(100));
        let address = one.as_ptr();
        one.to_mut().truncate(10);
        assert_eq!(one.as_ptr(), address, "it has no other owner");
        let other = one.clone();
        assert_eq!(other.as_ptr(), address);
        one.to_mut().push('b');
        assert_eq!(&*one, "aaaaaaaaaab");
        assert_eq!(&*other, "aaaaaaaaaa");
        assert!(!one.is_same(&other));
        assert!(other.is_same(&"aaaaaaaaaa".into()));
    }
}
