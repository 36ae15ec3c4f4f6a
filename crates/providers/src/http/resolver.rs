//! A DNS resolver that refuses forbidden IP addresses ([`FilteredResolver`]).
//!
//! A name is resolved once, and the connection goes to exactly the checked addresses, so that a
//! name server cannot return a harmless address for the check and another one for the connection.
//! An IP address in a URL does not reach a resolver; callers check it themselves.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A function that resolves a name to addresses.
pub type Lookup = Arc<
    dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>
        + Send
        + Sync,
>;

/// Resolves a host name, or an IP address in brackets, with the system's resolver. The results have
/// port 0, which reqwest replaces by the port of the URL.
///
/// # Errors
/// The error of the system's resolver.
pub async fn lookup_host(host: String) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok(tokio::net::lookup_host((bare, 0)).await?.collect())
}

/// A resolver that fails for names with forbidden addresses.
pub struct FilteredResolver {
    pub lookup: Lookup,
    /// Returns the reason why an address must not be connected to, as the end of a sentence after
    /// "which"; `None` if the address is allowed.
    pub why_forbidden: fn(IpAddr) -> Option<&'static str>,
}

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let found = (self.lookup)(host.clone());
        let why_forbidden = self.why_forbidden;
        Box::pin(async move {
            let found = found.await?;
            check_addresses(&host, &found, why_forbidden)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The error for a name with a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("{host} resolves to {address}, which {why}")]
pub struct ForbiddenAddress {
    host: String,
    address: IpAddr,
    why: &'static str,
}

/// Checks the addresses of a host name.
///
/// # Errors
/// [`ForbiddenAddress`] for the first forbidden address.
pub fn check_addresses(
    host: &str,
    found: &[SocketAddr],
    why_forbidden: fn(IpAddr) -> Option<&'static str>,
) -> Result<(), ForbiddenAddress> {
    let bad = found
        .iter()
        .find_map(|address| Some((address.ip(), why_forbidden(address.ip())?)));
    bad.map_or(Ok(()), |(address, why)| {
        Err(ForbiddenAddress {
            host: host.to_owned(),
            address,
            why,
        })
    })
}
