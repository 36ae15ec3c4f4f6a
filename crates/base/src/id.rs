//! Identifiers: opaque, unique, sortable by the moment they were made.
//!
//! Text of every id: a prefix that says what it names, `_`, 16 hexadecimal digits that only ever
//! grow within a process (milliseconds and a counter), 10 random letters. Order of *records* is
//! the store's sequence number; the digits merely make listings pleasant.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            #[serde(transparent)]
            pub struct $name(Arc<str>);

            impl $name {
                /// What the text of a fresh one starts with.
                pub const PREFIX: &'static str = $prefix;

                /// Takes the text over as it is; nothing is checked.
                pub fn new(text: impl Into<Arc<str>>) -> Self {
                    Self(text.into())
                }

                /// The text, shared.
                pub fn share(&self) -> Arc<str> {
                    self.0.clone()
                }

                pub fn as_str(&self) -> &str {
                    &self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(&self.0)
                }
            }
        )*
    };
}

ids! {
    /// A session: one history, one cwd.
    SessionId = "ses";
    /// A message of a history.
    MessageId = "msg";
    /// A part of a message.
    PartId = "prt";
    /// One use of a tool. Providers name calls as they like, so this is our own name for it.
    CallId = "call";
}

impl SessionId {
    /// Whether this could be an id of ours. Anything else is never looked for on disk: an editor
    /// may send a path.
    pub fn is_well_formed(&self) -> bool {
        let rest = self.0.strip_prefix("ses_");
        rest.is_some_and(|rest| (8..=64).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric()))
    }
}
