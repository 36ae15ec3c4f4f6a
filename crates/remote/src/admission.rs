//! Admission of clients. A page in the user's browser can reach this machine too, under any host
//! name. So a request must name this machine, and must not come from a page that is not in
//! `serve.origins`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::http::request::Parts;

use super::slots::SocketSlot;
use super::tokens::{Tokens, is_user, real};
use config::settings::{ServeSettings, TrustedProxy};

/// An admitted client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name in the log.
    pub name: String,
    pub user: Option<String>,
    /// The directories that may be opened; `None` allows any.
    pub roots: Option<Arc<[PathBuf]>>,
}

/// The reason why a client is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub status: StatusCode,
    /// The message for the client's operator.
    pub why: String,
}

/// The facts about a connection before its first request.
#[derive(Debug, Clone)]
pub struct Caller {
    pub address: SocketAddr,
    /// The SHA-256 of the client's certificate.
    pub certificate: Option<[u8; 32]>,
    /// The place among the open sockets, held as long as this exists. `None` if there was none
    /// left: then only monitoring requests are served.
    pub slot: Option<SocketSlot>,
}

/// The rules of admission.
pub struct Admission {
    /// Only clients on this machine can connect.
    loopback: bool,
    origins: Vec<String>,
    tokens: Tokens,
    proxy: Option<Proxy>,
    roots: Option<Arc<[PathBuf]>>,
    /// Every client has a certificate of the configured authority.
    certified: bool,
}

struct Proxy {
    addresses: Vec<IpAddr>,
    user_header: Option<String>,
}

impl Admission {
    /// Creates the rules for a server that listens at an address.
    ///
    /// # Errors
    /// The settings do not allow a server at that address, or one of them is invalid.
    pub fn new(settings: &ServeSettings, listen: SocketAddr) -> Result<Self, String> {
        let tokens = Tokens::new(&settings.tokens, settings.token_file.as_deref())?;
        let loopback = listen.ip().is_loopback();
        let proxy = settings.proxy.as_ref().map(proxy).transpose()?;
        let certified = settings
            .tls
            .as_ref()
            .is_some_and(|tls| tls.clients.is_some());
        let named = proxy
            .as_ref()
            .is_some_and(|proxy| proxy.user_header.is_some());
        if !loopback {
            if settings.tls.is_none() && proxy.is_none() {
                return Err(format!(
                    "{listen} can be reached from other machines: give it a certificate (serve.tls), or name the proxy in front of it (serve.proxy.addresses)"
                ));
            }
            if !tokens.are_wanted() && !certified && !named {
                return Err(format!(
                    "{listen} can be reached from other machines: configure who may connect (serve.token_file, serve.tokens, serve.tls.clients, or serve.proxy.user_header)"
                ));
            }
        }
        let roots = settings
            .roots
            .as_deref()
            .map(real)
            .transpose()
            .map_err(|why| format!("serve.roots {why}"))?;
        let own = settings.tokens.iter().any(|token| token.roots.is_some());
        // If other machines can connect, only configured directories are served.
        let roots = if loopback || roots.is_some() {
            roots
        } else {
            Some(Arc::from([]))
        };
        if roots.as_deref().is_some_and(<[PathBuf]>::is_empty)
            && !own
            && settings.token_file.is_none()
        {
            return Err("serve.roots says which directories may be opened, and it is empty".into());
        }
        Ok(Self {
            loopback,
            origins: settings.origins.clone(),
            tokens,
            proxy,
            roots,
            certified,
        })
    }

    /// Returns whether all clients on this machine may connect.
    pub fn is_open(&self) -> bool {
        !self.tokens.are_wanted() && !self.certified && self.named().is_none()
    }

    /// Checks the requirements of every request, including monitoring: it names this machine if
    /// only this machine can connect, and it does not come from a page that is not allowed.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_origin(&self, head: &Parts, caller: &Caller) -> Result<(), Denied> {
        let denied = |why: &str| {
            Err(Denied {
                status: StatusCode::FORBIDDEN,
                why: why.to_owned(),
            })
        };
        if self.loopback && !self.is_proxy(caller) && !names_loopback(head) {
            return denied(
                "this server is for this machine only: connect to it as localhost or 127.0.0.1",
            );
        }
        let Some(origin) = head.headers.get(ORIGIN) else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or_default();
        if self
            .origins
            .iter()
            .any(|known| known.trim_end_matches('/').eq_ignore_ascii_case(origin))
        {
            return Ok(());
        }
        let shown = base::text::title(origin);
        denied(&format!(
            "pages of {shown} may not connect; serve.origins says which may"
        ))
    }

    fn is_proxy(&self, caller: &Caller) -> bool {
        let from = caller.address.ip().to_canonical();
        self.proxy
            .as_ref()
            .is_some_and(|proxy| proxy.addresses.contains(&from))
    }

    /// Checks a client's credentials, and returns its identity.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn admit(&self, head: &Parts, caller: &Caller) -> Result<Identity, Denied> {
        self.check_origin(head, caller)?;
        let denied = |status, why: &str| {
            Err(Denied {
                status,
                why: why.to_owned(),
            })
        };
        let from = caller.address.ip().to_canonical();
        let by_proxy = self.is_proxy(caller);
        if self.proxy.is_some() && !by_proxy && !from.is_loopback() {
            return denied(
                StatusCode::FORBIDDEN,
                "only the proxy of serve.proxy.addresses may connect",
            );
        }
        if let Some(header) = self.named()
            && by_proxy
        {
            let name = head.headers.get(header).and_then(|name| name.to_str().ok());
            return match name.filter(|name| is_user(name)) {
                Some(name) => Ok(self.identity(name, Some(name.to_owned()))),
                None => denied(
                    StatusCode::UNAUTHORIZED,
                    "the header of the proxy does not name the user",
                ),
            };
        }
        self.by_credential(head, caller)
    }

    fn by_credential(&self, head: &Parts, caller: &Caller) -> Result<Identity, Denied> {
        let unauthorized = |why: &str| {
            Err(Denied {
                status: StatusCode::UNAUTHORIZED,
                why: why.to_owned(),
            })
        };
        let presented = bearer(&head.headers);
        let token = match (presented, &caller.certificate) {
            (Some(presented), _) => match self.tokens.find(presented) {
                None => {
                    return unauthorized("this token is not known here; it may have been replaced");
                }
                token => token,
            },
            (None, Some(certificate)) => self.tokens.find_hash(certificate),
            (None, None) => None,
        };
        match token {
            Some(token) => {
                let roots = token.roots.or_else(|| self.roots.clone());
                Ok(Identity {
                    name: token.name,
                    user: token.user,
                    roots,
                })
            }
            // The certificate was checked during the TLS handshake.
            None if self.certified && caller.certificate.is_some() => {
                Ok(self.identity("a certificate", None))
            }
            None if self.is_open() => Ok(self.identity("a user of this machine", None)),
            None => unauthorized("a token is needed: send it as \"Authorization: Bearer TOKEN\""),
        }
    }

    fn identity(&self, name: &str, user: Option<String>) -> Identity {
        Identity {
            name: name.to_owned(),
            user,
            roots: self.roots.clone(),
        }
    }

    fn named(&self) -> Option<&str> {
        self.proxy.as_ref()?.user_header.as_deref()
    }
}

fn proxy(settings: &TrustedProxy) -> Result<Proxy, String> {
    let address = |text: &String| {
        text.parse()
            .map_err(|_| format!("serve.proxy.addresses: \"{text}\" is not an address"))
    };
    let addresses: Vec<IpAddr> = settings
        .addresses
        .iter()
        .map(address)
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(
            "serve.proxy.addresses says where the proxy connects from, and it is empty".into(),
        );
    }
    Ok(Proxy {
        addresses,
        user_header: settings.user_header.clone(),
    })
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns whether a request names this machine by a name that cannot be assigned to another one.
fn names_loopback(head: &Parts) -> bool {
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str().to_owned());
    let host = authority.or_else(|| head.headers.get(HOST)?.to_str().ok().map(str::to_owned));
    let Some(host) = host else { return false };
    let host = host
        .rsplit_once('@')
        .map_or(host.as_str(), |(_, host)| host);
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::super::tokens;
    use super::*;
    use config::settings::{TlsFiles, TokenEntry};

    fn caller(address: &str) -> Caller {
        Caller {
            address: format!("{address}:9").parse().unwrap(),
            certificate: None,
            slot: None,
        }
    }

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/acp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn on_loopback() -> Admission {
        Admission::new(&ServeSettings::default(), "127.0.0.1:1".parse().unwrap()).unwrap()
    }

    #[test]
    fn request_to_loopback_must_name_loopback() {
        let table = [
            (vec![("host", "localhost:4200")], true),
            (vec![("host", "LOCALHOST.")], true),
            (vec![("host", "127.0.0.1:4200")], true),
            (vec![("host", "127.9.9.9")], true),
            (vec![("host", "[::1]:4200")], true),
            (vec![("host", "evil.example")], false),
            (vec![("host", "localhost.evil.example")], false),
            (vec![("host", "evil.example@localhost")], true),
            (vec![("host", "localhost@evil.example")], false),
            (vec![("host", "10.0.0.1")], false),
            (vec![], false),
            (
                vec![("host", "localhost"), ("origin", "http://localhost:4200")],
                false,
            ),
            (vec![("host", "localhost"), ("origin", "null")], false),
            (
                vec![("host", "localhost"), ("origin", "https://evil.example")],
                false,
            ),
        ];
        for (headers, allowed) in table {
            let admitted = on_loopback().admit(&head(&headers), &caller("127.0.0.1"));
            assert_eq!(admitted.is_ok(), allowed, "{headers:?}: {admitted:?}");
        }
    }

    #[test]
    fn allowed_origin_may_connect() {
        let settings = ServeSettings {
            origins: vec!["https://ide.example/".into()],
            ..ServeSettings::default()
        };
        let admission = Admission::new(&settings, "127.0.0.1:1".parse().unwrap()).unwrap();
        let from = |origin| {
            admission.admit(
                &head(&[("host", "localhost"), ("origin", origin)]),
                &caller("127.0.0.1"),
            )
        };
        assert!(from("https://ide.example").is_ok());
        assert!(
            from("https://ide.example.evil")
                .unwrap_err()
                .why
                .contains("serve.origins")
        );
    }

    #[test]
    fn public_address_requires_tls_and_credentials() {
        let everywhere: SocketAddr = "0.0.0.0:1".parse().unwrap();
        let (_, line) = tokens::make("a", None).unwrap();
        let sha256 = line.split("sha256:").last().unwrap().to_owned();
        let token = TokenEntry {
            name: "a".into(),
            sha256,
            ..TokenEntry::default()
        };
        let tls = Some(TlsFiles::default());
        let proxy = Some(TrustedProxy {
            addresses: vec!["10.0.0.1".into()],
            user_header: None,
        });
        let roots = Some(vec![PathBuf::from("/")]);
        let base = ServeSettings::default;
        let refused = [
            (base(), "certificate"),
            (
                ServeSettings {
                    tokens: vec![token.clone()],
                    roots: roots.clone(),
                    ..base()
                },
                "certificate",
            ),
            (
                ServeSettings {
                    tls: tls.clone(),
                    roots: roots.clone(),
                    ..base()
                },
                "who may connect",
            ),
            (
                ServeSettings {
                    proxy: proxy.clone(),
                    roots: roots.clone(),
                    ..base()
                },
                "who may connect",
            ),
            (
                ServeSettings {
                    proxy: Some(TrustedProxy::default()),
                    ..base()
                },
                "it is empty",
            ),
            (
                ServeSettings {
                    tls: tls.clone(),
                    tokens: vec![token.clone()],
                    ..base()
                },
                "serve.roots",
            ),
            (
                ServeSettings {
                    tls: tls.clone(),
                    tokens: vec![token.clone()],
                    roots: Some(vec!["/no/such".into()]),
                    ..base()
                },
                "not a directory",
            ),
        ];
        for (settings, why) in refused {
            let found = Admission::new(&settings, everywhere)
                .err()
                .unwrap_or_default();
            assert!(found.contains(why), "{settings:?}: {found}");
        }
        for settings in [
            ServeSettings {
                tls,
                tokens: vec![token.clone()],
                roots: roots.clone(),
                ..base()
            },
            ServeSettings {
                proxy,
                tokens: vec![token],
                roots,
                ..base()
            },
        ] {
            assert!(
                Admission::new(&settings, everywhere).is_ok(),
                "{settings:?}"
            );
        }
    }

    #[test]
    fn user_name_is_taken_from_proxy_header() {
        let proxy = TrustedProxy {
            addresses: vec!["10.0.0.1".into()],
            user_header: Some("x-user".into()),
        };
        let settings = ServeSettings {
            proxy: Some(proxy),
            roots: Some(vec!["/".into()]),
            ..ServeSettings::default()
        };
        let admission = Admission::new(&settings, "0.0.0.0:1".parse().unwrap()).unwrap();
        let admitted =
            |headers: &[(&str, &str)], from: &str| admission.admit(&head(headers), &caller(from));
        let ada = admitted(&[("x-user", "ada")], "10.0.0.1").unwrap();
        assert_eq!(ada.user.as_deref(), Some("ada"));
        assert_eq!(
            admitted(&[], "10.0.0.1").unwrap_err().status,
            StatusCode::UNAUTHORIZED
        );
        assert_eq!(
            admitted(&[("x-user", "../ada")], "10.0.0.1")
                .unwrap_err()
                .status,
            StatusCode::UNAUTHORIZED
        );
        // Other clients cannot set the user name.
        assert_eq!(
            admitted(&[("x-user", "ada")], "10.0.0.2")
                .unwrap_err()
                .status,
            StatusCode::FORBIDDEN
        );
        assert_eq!(
            admitted(&[("x-user", "ada")], "127.0.0.1")
                .unwrap_err()
                .status,
            StatusCode::UNAUTHORIZED
        );
    }

    #[test]
    fn token_is_required_if_one_is_configured() {
        let (presented, line) = tokens::make("a", None).unwrap();
        let sha256 = line.split("sha256:").last().unwrap().to_owned();
        let entry = TokenEntry {
            name: "a".into(),
            sha256,
            user: Some("ada".into()),
            roots: None,
        };
        let settings = ServeSettings {
            tokens: vec![entry],
            ..ServeSettings::default()
        };
        let admission = Admission::new(&settings, "127.0.0.1:1".parse().unwrap()).unwrap();
        let with = |value: &str| {
            admission.admit(
                &head(&[("host", "localhost"), ("authorization", value)]),
                &caller("127.0.0.1"),
            )
        };
        assert_eq!(
            with(&format!("Bearer {presented}"))
                .unwrap()
                .user
                .as_deref(),
            Some("ada")
        );
        assert_eq!(with(&format!("bearer  {presented}")).unwrap().name, "a");
        assert_eq!(
            with(&format!("Basic {presented}")).unwrap_err().status,
            StatusCode::UNAUTHORIZED
        );
        assert!(with("Bearer x").unwrap_err().why.contains("not known"));
        let none = admission.admit(&head(&[("host", "localhost")]), &caller("127.0.0.1"));
        assert!(none.unwrap_err().why.contains("Authorization"));
    }
}
