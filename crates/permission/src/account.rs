//! Properties of the account that a server runs as, and the right to change them. All users of the
//! server share these properties, so no user may change them for the others.

use std::sync::Arc;

/// A property that all users of a server share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountProperty {
    /// API keys and logins of providers.
    ProviderKeys,
    /// Logins at MCP servers.
    McpLogins,
    /// The files of the account, outside of what tools may write.
    ExportedFiles,
    /// The endpoints of providers, which requests go to from the server's network.
    ModelEndpoints,
    /// The set of trusted projects, whose files start programs as the account.
    Trust,
}

/// The right of a session or a connection to change properties of the account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AccountAccess {
    /// The user owns the account, or its operator allows it.
    #[default]
    Allowed,
    /// This user is one of several.
    Denied { user: Arc<str> },
}

impl AccountAccess {
    pub fn is_allowed(&self) -> bool {
        *self == Self::Allowed
    }

    /// Checks whether a property may be changed.
    ///
    /// # Errors
    /// The reason and the way to change it, in sentences for the user.
    pub fn check(&self, property: AccountProperty) -> Result<(), String> {
        let Self::Denied { user } = self else {
            return Ok(());
        };
        let (what, how) = match property {
            AccountProperty::ProviderKeys => (
                "Keys of providers belong",
                "`adjutant auth logout PROVIDER`",
            ),
            AccountProperty::McpLogins => {
                ("Logins at MCP servers belong", "`adjutant mcp login NAME`")
            }
            AccountProperty::ExportedFiles => {
                ("Files of exports belong", "`adjutant sessions export ID`")
            }
            AccountProperty::ModelEndpoints => (
                "Endpoints of providers, which requests go to from the network of this server, belong",
                "the setting `provider.NAME.options.baseURL`",
            ),
            AccountProperty::Trust => (
                "Trust in a project belongs",
                "`adjutant trust` in its directory",
            ),
        };
        Err(format!(
            "{what} to the account that this server runs as, and all its users share it: {user} may not change it. The operator can, there, with {how}, and can let {user} with the setting `serve.account_users`."
        ))
    }
}
