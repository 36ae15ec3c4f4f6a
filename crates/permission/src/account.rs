//! What belongs to the account that a server runs as, and not to one of its users: all of them share it, so that none
//! of them changes it for the others.

use std::sync::Arc;

/// Something that all users of a server share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountProperty {
    /// Keys of providers, and logins there.
    ProviderKeys,
    /// Logins at MCP servers.
    McpLogins,
    /// Which projects are trusted: what their files start runs as the account.
    Trust,
}

/// Whether a session or a connection may change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AccountAccess {
    /// It is the account's own, or its operator allows it.
    #[default]
    Allowed,
    /// It is this user's, who is one of several.
    Denied { user: Arc<str> },
}

impl AccountAccess {
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }

    /// Whether something may be changed.
    ///
    /// # Errors
    /// Why not and who can do it, in sentences for the user.
    pub fn check(&self, property: AccountProperty) -> Result<(), String> {
        let Self::Denied { user } = self else { return Ok(()) };
        let (what, how) = match property {
            AccountProperty::ProviderKeys => ("Keys of providers belong", "`adjutant auth logout PROVIDER`"),
            AccountProperty::McpLogins => ("Logins at MCP servers belong", "`adjutant mcp login NAME`"),
            AccountProperty::Trust => ("Trust in a project belongs", "`adjutant trust` in its directory"),
        };
        Err(format!(
            "{what} to the account that this server runs as, and all its users share it: {user} may not change it. The operator can, there, with {how}, and can let {user} with the setting `serve.account_users`."
        ))
    }
}
