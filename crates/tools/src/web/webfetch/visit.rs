//! Sends HTTP requests to the web. A name is resolved once, its IP addresses are judged, and the
//! connection goes to exactly those addresses, so that a name server cannot return a harmless
//! address first and another later. Redirects are never followed here.

use std::error::Error as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::header::{ACCEPT, ACCEPT_LANGUAGE};

use base::environment::Environment;
use permission::url::{Address, forbidden_address};
use providers::http;
use providers::http::resolver::{FilteredResolver, ForbiddenAddress, check_addresses, lookup_host};

/// The maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The clients, each created at its first use, because reading certificates takes milliseconds.
#[derive(Default)]
pub(super) struct Web {
    /// The client for public addresses only.
    public: OnceLock<ClientResult>,
    /// The client for the hosts that the user has named, whatever their addresses.
    named: OnceLock<ClientResult>,
    /// The client for requests through a proxy, which resolves names itself.
    proxied: OnceLock<ClientResult>,
    /// The proxies of the environment.
    proxies: OnceLock<Matcher>,
}

/// A client, or the reason why it could not be created.
type ClientResult = Result<reqwest::Client, String>;

/// The client that a request needs, see [`Web`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Egress {
    Public,
    Named,
    Proxied,
}

impl Web {
    /// Requests a page. `named`: the settings name its host, so that any IP address of it is
    /// allowed.
    ///
    /// # Errors
    /// The reason, as the end of a sentence.
    pub(super) async fn get(
        self: &Arc<Self>,
        environment: &Environment,
        address: &Address,
        named: bool,
        accept: &'static str,
    ) -> Result<reqwest::Response, String> {
        let way = self.egress(address, named).await?;
        let web = self.clone();
        let environment = environment.clone();
        let client = base::task::spawn_blocking(move || web.client(way, &environment));
        let client = client.await.map_err(|e| e.to_string())??;
        let request = client
            .get(address.url.clone())
            .header(ACCEPT, accept)
            .header(ACCEPT_LANGUAGE, "en-US,en;q=0.9");
        request.send().await.map_err(|e| describe_error(&e))
    }

    /// Returns the client that a request needs. For a proxy, the host's IP addresses are judged
    /// here.
    async fn egress(&self, address: &Address, named: bool) -> Result<Egress, String> {
        let matcher = self.proxies.get_or_init(Matcher::from_system);
        let proxied = address
            .url
            .as_str()
            .parse()
            .is_ok_and(|uri| matcher.intercept(&uri).is_some());
        if !proxied {
            return Ok(if named { Egress::Named } else { Egress::Public });
        }
        if !named && let Ok(found) = lookup_host(address.host.clone()).await {
            // If only the proxy can resolve the name, the proxy decides.
            check_addresses(&address.host, &found, forbidden_address).map_err(|e| e.to_string())?;
        }
        Ok(Egress::Proxied)
    }

    /// Returns a client, which is created at its first use.
    fn client(&self, way: Egress, environment: &Environment) -> ClientResult {
        let made = match way {
            Egress::Public => self.public.get_or_init(|| {
                let guard = FilteredResolver {
                    lookup: Arc::new(|host| Box::pin(lookup_host(host))),
                    why_forbidden: forbidden_address,
                };
                build(
                    http::client_builder(environment)?
                        .no_proxy()
                        .dns_resolver(guard),
                )
            }),
            Egress::Named => self
                .named
                .get_or_init(|| build(http::client_builder(environment)?.no_proxy())),
            Egress::Proxied => self
                .proxied
                .get_or_init(|| build(http::client_builder(environment)?)),
        };
        made.clone()
    }
}

/// Creates a client with the options that all have in common.
fn build(builder: reqwest::ClientBuilder) -> ClientResult {
    builder
        .user_agent(concat!(
            "Mozilla/5.0 (compatible; adjutant/",
            env!("CARGO_PKG_VERSION"),
            ")"
        ))
        .connect_timeout(CONNECT_TIMEOUT)
        .referer(false)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|e| http::format_causes(&e))
}

/// Describes the error of a request.
pub(super) fn describe_error(e: &reqwest::Error) -> String {
    let mut next = e.source();
    while let Some(cause) = next {
        if let Some(forbidden) = cause.downcast_ref::<ForbiddenAddress>() {
            return forbidden.to_string();
        }
        next = cause.source();
    }
    http::format_causes(e)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;
    use std::net::{IpAddr, SocketAddr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use providers::http::resolver::Lookup;

    // A home directory in which nothing can be created.
    fn environment() -> Environment {
        Environment::from_vars(BTreeMap::from([(
            "HOME".to_owned(),
            "/proc/nobody".to_owned(),
        )]))
    }

    /// A server that sends the same answer to every connection and closes it.
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    async fn server(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 2048];
                let _ = stream.read(&mut request).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    fn guarded(lookup: Lookup) -> Arc<Web> {
        // 127.0.0.1 represents a public address, 127.0.0.2 for a private one.
        let forbidden =
            |ip: IpAddr| (ip == IpAddr::from([127, 0, 0, 2])).then_some("is on a private network");
        let builder = http::client_builder(&environment())
            .unwrap()
            .no_proxy()
            .dns_resolver(FilteredResolver {
                lookup,
                why_forbidden: forbidden,
            });
        let web = Web::default();
        web.public.set(build(builder)).unwrap();
        web.proxies
            .set(Matcher::builder().build())
            .map_err(drop)
            .unwrap();
        Arc::new(web)
    }

    fn address(text: String) -> Address {
        Address::read(&text).unwrap()
    }

    /// U26: the first lookup returns a harmless address, the second does not. There is no second
    /// lookup while the first connection is in use; a later one is judged like the first.
    #[tokio::test]
    async fn connection_goes_to_the_judged_address() {
        let port =
            server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi").await;
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let web = guarded(Arc::new(move |_| {
            let last = if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                1
            } else {
                2
            };
            Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, last], 0))]) })
        }));
        let page = address(format!("http://rebinding.example:{port}/"));
        let response = web.get(&environment(), &page, false, "*/*").await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hi");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let again = web
            .get(&environment(), &page, false, "*/*")
            .await
            .unwrap_err();
        assert_eq!(
            again,
            "rebinding.example resolves to 127.0.0.2, which is on a private network"
        );
    }

    /// U25, and the mixed case: one bad address is enough.
    #[tokio::test]
    async fn name_with_private_address_is_refused() {
        for inside in [vec![2], vec![1, 2], vec![2, 1]] {
            let found: Vec<SocketAddr> = inside
                .iter()
                .map(|last| ([127, 0, 0, *last], 0).into())
                .collect();
            let web = guarded(Arc::new(move |_| {
                let found = found.clone();
                Box::pin(async move { Ok(found) })
            }));
            let refused = web
                .get(
                    &environment(),
                    &address("http://inside.example/".into()),
                    false,
                    "*/*",
                )
                .await;
            assert!(
                refused
                    .unwrap_err()
                    .contains("127.0.0.2, which is on a private network")
            );
        }
        let name = |text: &str| forbidden_address(text.parse().unwrap()).is_some();
        assert!(name("127.0.0.1") && name("10.1.2.3") && name("::1") && name("::ffff:127.0.0.1"));
    }

    #[tokio::test]
    async fn unknown_name_is_reported() {
        let web = guarded(Arc::new(|_| {
            Box::pin(async { Err(io::Error::other("no such host")) })
        }));
        let refused = web
            .get(
                &environment(),
                &address("http://nowhere.example/".into()),
                false,
                "*/*",
            )
            .await;
        assert_eq!(refused.unwrap_err(), "no such host");
    }

    #[tokio::test]
    async fn named_hosts_and_proxies_have_their_own_clients() {
        let web = Web::default();
        let matcher = Matcher::builder()
            .all("http://127.0.0.1:9")
            .no("a.example")
            .build();
        web.proxies.set(matcher).map_err(drop).unwrap();
        let way = async |url: &str, named| web.egress(&address(url.to_owned()), named).await;
        assert_eq!(way("http://a.example/", false).await, Ok(Egress::Public));
        assert_eq!(way("http://a.example/", true).await, Ok(Egress::Named));
        assert_eq!(way("http://b.invalid/", false).await, Ok(Egress::Proxied));
        // A name that resolves to a private address here is refused, with or without a proxy.
        assert!(way("http://127.0.0.1/", false).await.is_err());
        assert_eq!(way("http://127.0.0.1/", true).await, Ok(Egress::Proxied));
    }
}
