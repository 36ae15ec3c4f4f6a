//! Identifiers: opaque, unique, sortable by the time of their creation.
//!
//! The text of an id is a prefix that names its type, `_`, 16 hexadecimal digits that only grow
//! within a process (milliseconds and a counter), and 10 random letters or digits. The order of
//! *records* is the store's sequence number; the digits merely make listings readable.

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
                /// The beginning of the text of generated ids.
                pub const PREFIX: &'static str = $prefix;

                /// Wraps a text without checking it.
                pub fn new(text: impl Into<Arc<str>>) -> Self {
                    Self(text.into())
                }

                /// Returns the text, shared.
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
    /// A session: one history, one working directory.
    SessionId = "ses";
    /// A message of a history.
    MessageId = "msg";
    /// A part of a message.
    PartId = "prt";
    /// One use of a tool. Providers choose their own ids of calls, so this one is adjutant's.
    CallId = "call";
}

impl SessionId {
    /// Returns whether the text has the form of a session id. Other texts are never looked up on
    /// disk, because an editor may send a path.
    pub fn is_well_formed(&self) -> bool {
        let rest = self.0.strip_prefix("ses_");
        rest.is_some_and(|rest| {
            (8..=64).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        })
    }
}
