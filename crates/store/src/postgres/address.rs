//! The address of the database and the options of the connection.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use base::store_location::DatabaseLocation;

/// The protection of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Privacy {
    /// Not encrypted: the URL requests that, or the connection does not leave this machine.
    Plain,
    /// TLS. The certificate is checked against an authority's file or the system's authorities.
    Tls(Option<String>),
}

/// The contents of an address, `postgresql://…`.
#[derive(Debug)]
pub(super) struct DatabaseAddress {
    pub(super) config: Config,
    pub(super) privacy: Privacy,
    pub(super) namespace: String,
    pub(super) lease: Duration,
}

/// The longest time that a statement or a connection may take before the database counts as
/// unreachable.
pub(super) const DATABASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Parses the address of a database.
///
/// # Errors
/// Returns the problem in words for the user, never with the password.
pub(super) fn parse(location: &DatabaseLocation) -> Result<DatabaseAddress, String> {
    let (base, query) = location.url.split_once('?').unwrap_or((&location.url, ""));
    if !["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| base.starts_with(scheme))
    {
        return Err("the address of the store has to begin with postgres://".into());
    }
    let mut mode = None;
    let mut authority = None;
    let mut other_pairs = Vec::new();
    let mut namespace = location.namespace.clone();
    let mut lease = location.lease;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sslmode" => mode = Some(value.to_owned()),
            "sslrootcert" => authority = Some(value.replace("%2F", "/")),
            "namespace" => namespace = value.to_owned(),
            "lease" => {
                let seconds = value
                    .parse()
                    .map_err(|_| "lease has to be a number of seconds".to_owned())?;
                lease = Duration::from_secs(seconds);
            }
            _ => other_pairs.push(pair),
        }
    }
    let bare = if other_pairs.is_empty() {
        base.to_owned()
    } else {
        format!("{base}?{}", other_pairs.join("&"))
    };
    let mut config: Config = bare
        .parse()
        .map_err(|e| format!("the address of the store cannot be read: {e}"))?;
    let privacy = match mode.as_deref() {
        Some("disable") => Privacy::Plain,
        Some("require" | "verify-ca" | "verify-full") => Privacy::Tls(authority),
        None if config.get_hosts().iter().all(is_local) => Privacy::Plain,
        None => Privacy::Tls(authority),
        Some(_) => return Err("sslmode has to be disable, require or verify-full".into()),
    };
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if namespace.is_empty() || namespace.len() > 40 || !namespace.chars().all(plain) {
        return Err("store.namespace has to be of small letters, digits and _, 40 at most".into());
    }
    if let Some(user) = &location.user {
        let digest = ring::digest::digest(&ring::digest::SHA256, user.as_bytes());
        let name: String = digest
            .as_ref()
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        namespace = format!("{namespace}_{name}");
    }
    config.ssl_mode(if privacy == Privacy::Plain {
        SslMode::Disable
    } else {
        SslMode::Require
    });
    config
        .application_name("adjutant")
        .keepalives_idle(Duration::from_secs(30))
        .tcp_user_timeout(DATABASE_TIMEOUT);
    config.connect_timeout(
        config
            .get_connect_timeout()
            .copied()
            .unwrap_or(DATABASE_TIMEOUT)
            .min(DATABASE_TIMEOUT),
    );
    if config.get_hosts().len() > 1 {
        // Of a standby and its primary, select the one that accepts writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let lease = lease.max(Duration::from_secs(1));
    Ok(DatabaseAddress {
        config,
        privacy,
        namespace,
        lease,
    })
}

/// True if a host is this machine.
fn is_local(host: &Host) -> bool {
    match host {
        #[cfg(unix)]
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_connection_is_plain_by_default() {
        let table = [
            ("postgres://u@localhost/d", Ok(Privacy::Plain)),
            ("postgres://u@127.0.0.1:5433/d", Ok(Privacy::Plain)),
            ("postgres:///d?host=/run/pg", Ok(Privacy::Plain)),
            (
                "postgres://u@localhost/d?sslmode=require",
                Ok(Privacy::Tls(None)),
            ),
            ("postgres://u@db.example/d", Ok(Privacy::Tls(None))),
            (
                "postgres://u@localhost,db.example/d",
                Ok(Privacy::Tls(None)),
            ),
            (
                "postgres://u@db.example/d?sslmode=verify-full&sslrootcert=/ca.pem",
                Ok(Privacy::Tls(Some("/ca.pem".into()))),
            ),
            (
                "postgres://u@db.example/d?sslmode=disable",
                Ok(Privacy::Plain),
            ),
            ("postgres://u@db.example/d?sslmode=prefer", Err("sslmode")),
            ("mysql://u@db.example/d", Err("postgres://")),
            ("postgres://u@localhost/d?namespace=a;b", Err("namespace")),
            ("postgres://u:secret@localhost:x/d", Err("cannot be read")),
        ];
        for (url, expected) in table {
            let read = parse(&DatabaseLocation::new(url)).map(|address| address.privacy);
            match expected {
                Ok(privacy) => assert_eq!(read, Ok(privacy), "{url}"),
                Err(words) => {
                    let message = read.unwrap_err();
                    assert!(
                        message.contains(words) && !message.contains("secret"),
                        "{url}: {message}"
                    );
                }
            }
        }
    }
}
