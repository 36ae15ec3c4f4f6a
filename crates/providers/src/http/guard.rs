//! Connections to judged addresses only. A name is resolved once, its addresses are judged, and the
//! connection goes to exactly those addresses, so that a name server cannot return a harmless
//! address first and another later.

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

/// Resolves a name, or an address in brackets. The port is replaced by that of the address.
///
/// # Errors
/// The resolver's.
pub async fn lookup_host(host: String) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    Ok(tokio::net::lookup_host((bare, 0)).await?.collect())
}

/// A resolver that fails for names with forbidden addresses.
pub struct ConnectionGuard {
    pub lookup: Lookup,
    /// Returns the reason why an address is never connected to.
    pub forbidden: fn(IpAddr) -> Option<&'static str>,
}

impl Resolve for ConnectionGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let found = (self.lookup)(host.clone());
        let forbidden = self.forbidden;
        Box::pin(async move {
            let found = found.await?;
            judged(&host, &found, forbidden)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The error for a name with a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("{host} leads to {address}, which {why}")]
pub struct ForbiddenAddress {
    host: String,
    address: IpAddr,
    why: &'static str,
}

/// Checks the addresses of a name.
///
/// # Errors
/// At least one of the addresses is forbidden.
pub fn judged(
    host: &str,
    found: &[SocketAddr],
    forbidden: fn(IpAddr) -> Option<&'static str>,
) -> Result<(), ForbiddenAddress> {
    let bad = found
        .iter()
        .find_map(|address| Some((address.ip(), forbidden(address.ip())?)));
    bad.map_or(Ok(()), |(address, why)| {
        Err(ForbiddenAddress {
            host: host.to_owned(),
            address,
            why,
        })
    })
}
