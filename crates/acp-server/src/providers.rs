//! The requests of a client about the endpoints of model providers (`providers/list`, `providers/set`,
//! `providers/disable`), in all protocol versions. The endpoints are held in memory for the connection
//! only; the values of headers are never shown.

use std::sync::Arc;

use super::error::RequestError;
use super::server::Server;
use base::text;
use config::Settings;
use permission::Action;
use permission::account::AccountProperty;
use permission::url::Address;
use providers::custom_endpoint::{ApiType, CustomEndpoint};
use providers::editor_endpoints::{ConfigurableProvider, EditorEndpoint};
use providers::registry::Registry;

/// A request to set an endpoint, as the client sent it.
pub struct EndpointRequest {
    /// The id of the provider.
    pub provider: String,
    /// The name of the API that the endpoint speaks, as [`ApiType`] has it.
    pub api: String,
    pub base_url: String,
    /// Additional headers of each request, by name. Their values may be keys.
    pub headers: Vec<(String, String)>,
}

/// Lists the providers whose endpoints can be set; none if the settings forbid that.
///
/// # Errors
/// This user may not know the endpoints, or the settings cannot be read.
pub fn list(
    server: &Arc<Server>,
) -> impl Future<Output = Result<Vec<ConfigurableProvider>, RequestError>> + Send + 'static {
    let server = server.clone();
    async move {
        check_account(&server)?;
        let (settings, registry) = own_providers(&server).await?;
        if !settings.provider_changes.from_editor {
            return Ok(Vec::new());
        }
        Ok(registry.configurable().to_vec())
    }
}

/// Returns the settings and the providers, if the client may change their endpoints.
async fn changeable_providers(server: &Arc<Server>) -> Result<(Settings, Registry), RequestError> {
    check_account(server)?;
    let (settings, registry) = own_providers(server).await?;
    check_settings(&settings)?;
    Ok((settings, registry))
}

/// Sets the endpoint of a provider for this connection. The connection's sessions use it from their
/// next request to a model on.
///
/// # Errors
/// This user or the settings forbid it, or the provider, API, URL or a header is invalid.
pub fn set(
    server: &Arc<Server>,
    request: EndpointRequest,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let number = server.endpoints.next_change_number();
    let server = server.clone();
    async move {
        let (settings, registry) = changeable_providers(&server).await?;
        let provider = request.provider.clone();
        let endpoint = check_endpoint(&server, request, &settings, &registry)?;
        let endpoint = EditorEndpoint::Set(Arc::new(endpoint));
        server.endpoints.change(number, &provider, endpoint);
        use_endpoints(&server).await;
        Ok(())
    }
}

/// Disables a provider for this connection. Does nothing for an unknown provider, which is not used
/// anyway.
///
/// # Errors
/// This user or the settings forbid it.
pub fn disable(
    server: &Arc<Server>,
    provider: String,
) -> impl Future<Output = Result<(), RequestError>> + Send + 'static {
    let number = server.endpoints.next_change_number();
    let server = server.clone();
    async move {
        let (_, registry) = changeable_providers(&server).await?;
        if registry.supported_apis(&provider).is_some() {
            server
                .endpoints
                .change(number, &provider, EditorEndpoint::Disabled);
            use_endpoints(&server).await;
        }
        Ok(())
    }
}

/// Checks that this user may know and set endpoints: a server connects to them from its own network.
fn check_account(server: &Server) -> Result<(), RequestError> {
    let account = server.shared.account();
    account
        .check(AccountProperty::ModelEndpoints)
        .map_err(RequestError::Forbidden)
}

/// Checks that the settings allow editors to set endpoints.
fn check_settings(settings: &Settings) -> Result<(), RequestError> {
    if settings.provider_changes.from_editor {
        return Ok(());
    }
    Err(RequestError::Forbidden(
        "The settings forbid editors to set the endpoints of model providers. To allow it, remove `providers.from_editor` from your own settings; if your organisation has set it, ask there.".into(),
    ))
}

/// Checks that the user has not disabled a provider: an endpoint would have no effect.
fn check_enabled(provider: &str, settings: &Settings) -> Result<(), RequestError> {
    let is_in = |list: &[String]| list.iter().any(|id| id == provider);
    let general = &settings.general;
    let why = if is_in(&general.disabled_providers) {
        "`disabled_providers` names it"
    } else if general
        .enabled_providers
        .as_deref()
        .is_some_and(|only| !is_in(only))
    {
        "`enabled_providers` does not name it"
    } else {
        return Ok(());
    };
    Err(RequestError::Forbidden(format!(
        "The settings disable the provider \"{}\": {why}. Change that setting to use an endpoint of the editor's for it.",
        text::title(provider)
    )))
}

/// Reads the settings and the providers, with the endpoints of this connection.
async fn own_providers(server: &Arc<Server>) -> Result<(Settings, Registry), RequestError> {
    let server = server.clone();
    let read = base::task::spawn_blocking(move || {
        let endpoints = server.endpoints.current();
        server.shared.own_providers(&endpoints)
    });
    read.await.map_err(|e| RequestError::Failed {
        message: format!("The providers could not be read: {e}."),
        advice: None,
    })
}

/// Checks a requested endpoint. No error contains the value of a header.
fn check_endpoint(
    server: &Server,
    request: EndpointRequest,
    settings: &Settings,
    registry: &Registry,
) -> Result<CustomEndpoint, RequestError> {
    let EndpointRequest {
        provider,
        api,
        base_url,
        headers,
    } = request;
    check_enabled(&provider, settings)?;
    let Some(supported) = registry.supported_apis(&provider) else {
        return Err(RequestError::Invalid(format!(
            "There is no provider \"{}\" whose endpoint can be set; providers/list lists them",
            text::title(&provider)
        )));
    };
    let known = ApiType::from_name(&api).filter(|api| supported.contains(api));
    let Some(api) = known else {
        let names: Vec<&str> = supported.iter().map(|api| api.name()).collect();
        return Err(RequestError::Invalid(format!(
            "{provider} cannot be asked with the API \"{}\"; it supports: {}",
            text::title(&api),
            names.join(", ")
        )));
    };
    let mut endpoint =
        CustomEndpoint::new(api, &base_url, headers).map_err(RequestError::Invalid)?;
    if server.user_sessions().is_some() {
        endpoint.public_only = !is_allowed_host(&endpoint.base_url, &settings.webfetch.private)?;
    }
    Ok(endpoint)
}

/// Returns whether the setting `webfetch.private` names the host of a URL, so that it may be a host of
/// the server's own network. `false` if it is a public host.
///
/// # Errors
/// The URL is invalid, or its host is neither public nor named.
fn is_allowed_host(base_url: &str, private: &[String]) -> Result<bool, RequestError> {
    let refused = |why: &str| {
        RequestError::Forbidden(format!(
            "The address cannot be set: {why} On a server it must be a public one, or that of a host in its setting `webfetch.private`."
        ))
    };
    let address = Address::read(base_url).map_err(|why| refused(&format!("{why}.")))?;
    match address.access_request(&[], private).minimum {
        Some((Action::Deny, why)) => Err(refused(&why)),
        _ => Ok(address.is_named(private)),
    }
}

/// Has all sessions of the connection use the endpoints that are set by now.
async fn use_endpoints(server: &Arc<Server>) {
    for session in server.session_handles() {
        server.use_endpoints(&session).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_servers_network_are_refused_unless_named() {
        let private = ["llm.internal".to_owned(), "127.0.0.1:8080".to_owned()];
        let table = [
            ("https://gw.example.com/v1", Ok(false)),
            ("https://llm.internal/v1", Ok(true)),
            ("http://127.0.0.1:8080/v1", Ok(true)),
            ("http://127.0.0.1:9/v1", Err(())),
            ("http://[::1]/v1", Err(())),
            ("http://169.254.169.254/v1", Err(())),
            ("http://10.0.0.1/v1", Err(())),
            ("http://localhost/v1", Err(())),
            ("http://db.internal/v1", Err(())),
        ];
        for (address, wanted) in table {
            let named = is_allowed_host(address, &private).map_err(|_| ());
            assert_eq!(named, wanted, "{address}");
        }
    }
}
