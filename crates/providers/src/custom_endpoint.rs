//! An endpoint that an editor sets for a provider ([`CustomEndpoint`]): an address, an API
//! ([`ApiType`]) and headers with credentials. [`CustomEndpoint::new`] checks them; nothing from the
//! user's settings or environment is inserted.

use reqwest::header::{HeaderName, HeaderValue};

use crate::secret::Secret;

/// The maximum number of headers of an endpoint.
const MAX_HEADERS: usize = 64;
/// The maximum length of an address or of a header's value, in bytes.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Headers that belong to the connection or to the body.
const RESERVED_HEADERS: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "upgrade",
];

/// The API of an endpoint, with the names of ACP's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiType {
    Anthropic,
    OpenAi,
    Azure,
    Vertex,
    Bedrock,
    Gemini,
}

impl ApiType {
    const ALL: [Self; 6] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::Azure,
        Self::Vertex,
        Self::Bedrock,
        Self::Gemini,
    ];

    /// Returns the name in the protocol. ACP does not define names that begin with `_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Azure => "azure",
            Self::Vertex => "vertex",
            Self::Bedrock => "bedrock",
            Self::Gemini => "_gemini",
        }
    }

    /// Returns the API with this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }

    /// Returns the API that an SDK package uses; OpenAI's for unknown packages.
    pub fn from_package(npm: Option<&str>) -> Self {
        match npm {
            Some("@ai-sdk/anthropic") => Self::Anthropic,
            Some("@ai-sdk/azure") => Self::Azure,
            Some("@ai-sdk/amazon-bedrock") => Self::Bedrock,
            Some("@ai-sdk/google") => Self::Gemini,
            Some(npm) if npm.starts_with("@ai-sdk/google-vertex") => Self::Vertex,
            _ => Self::OpenAi,
        }
    }

    /// Returns the APIs that an endpoint for a provider with this API may have: this one first,
    /// then those that gateways translate to it.
    pub fn endpoint_apis(self) -> Vec<Self> {
        let others = [Self::OpenAi, Self::Anthropic];
        std::iter::once(self)
            .chain(others.into_iter().filter(|other| *other != self))
            .collect()
    }

    /// Returns the SDK package of the API's wire format.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Anthropic => "@ai-sdk/anthropic",
            Self::OpenAi => "@ai-sdk/openai-compatible",
            Self::Azure => "@ai-sdk/azure",
            Self::Vertex => "@ai-sdk/google-vertex",
            Self::Bedrock => "@ai-sdk/amazon-bedrock",
            Self::Gemini => "@ai-sdk/google",
        }
    }
}

/// An endpoint that an editor has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomEndpoint {
    pub api: ApiType,
    /// The address without the path of a method, and without secrets.
    pub base_url: String,
    /// The headers of each request, with their credentials: name in lower case, value.
    pub(crate) headers: Vec<(String, Secret)>,
    /// True if requests may only connect to public IP addresses.
    pub public_only: bool,
}

impl CustomEndpoint {
    /// Checks the parts of an endpoint, and creates it.
    ///
    /// # Errors
    /// The field with the fault and the remedy, for the editor; never a value.
    pub fn new(
        api: ApiType,
        base_url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let base_url = check_address(base_url)?;
        let mut known: Vec<(String, Secret)> = Vec::new();
        for (name, value) in headers {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                "headers: a name contains characters that are not allowed in a header".to_owned()
            })?;
            let name = header.as_str().to_owned();
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(format!(
                    "headers.{name}: the connection sets this header; leave it out"
                ));
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!(
                    "headers.{name}: the value is longer than {MAX_VALUE_BYTES} bytes"
                ));
            }
            if HeaderValue::from_str(value.trim()).is_err() {
                return Err(format!(
                    "headers.{name}: the value contains characters that are not allowed in a header"
                ));
            }
            if known.iter().any(|(other, _)| *other == name) {
                return Err(format!(
                    "headers.{name}: the header is named twice; names are the same in any case"
                ));
            }
            known.push((name, Secret::new(value.trim())));
        }
        if known.len() > MAX_HEADERS {
            return Err(format!("headers: there are more than {MAX_HEADERS}"));
        }
        // The editor sends a map, whose order may differ each time.
        known.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Self {
            api,
            base_url,
            headers: known,
            public_only: false,
        })
    }

    /// Returns the values that errors and recordings must not contain: those of the headers, with
    /// and without a scheme (`Bearer …`).
    pub fn secrets(&self) -> Vec<Secret> {
        const MIN_SECRET_BYTES: usize = 6;
        let mut all: Vec<&str> = Vec::new();
        for (_, value) in &self.headers {
            let value = value.expose();
            all.push(value);
            all.extend(value.split_once(' ').map(|(_, key)| key.trim()));
        }
        all.retain(|value| value.len() >= MIN_SECRET_BYTES);
        // A value that contains another one is replaced as a whole.
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        all.into_iter().map(Secret::new).collect()
    }
}

/// Checks an address and returns it without a slash at its end. If it has no path, `/v1` is added,
/// because most APIs have it.
///
/// # Errors
/// The description of a valid address, for the editor.
fn check_address(text: &str) -> Result<String, String> {
    const FORM: &str = "baseUrl must be an http or https address without user, query and fragment, such as https://gateway.example.com/v1";
    if text.len() > MAX_VALUE_BYTES {
        return Err(FORM.to_owned());
    }
    let url = reqwest::Url::parse(text.trim()).map_err(|_| FORM.to_owned())?;
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    // `${VAR}` in addresses of settings is replaced from the user's environment.
    if !is_plain || !is_web || text.contains("${") {
        return Err(FORM.to_owned());
    }
    let base = url.as_str().trim_end_matches('/');
    Ok(if url.path() == "/" {
        format!("{base}/v1")
    } else {
        base.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base: &str, headers: &[(&str, &str)]) -> Result<CustomEndpoint, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CustomEndpoint::new(ApiType::OpenAi, base, headers)
    }

    #[test]
    fn addresses_are_plain() {
        let table = [
            ("https://gw.example/v1", Some("https://gw.example/v1")),
            ("https://gw.example/v1/", Some("https://gw.example/v1")),
            ("https://gw.example", Some("https://gw.example/v1")),
            (
                "http://127.0.0.1:8080/openai",
                Some("http://127.0.0.1:8080/openai"),
            ),
            ("https://user:secret@gw.example/v1", None),
            ("https://gw.example/v1?key=secret", None),
            ("https://gw.example/v1#secret", None),
            ("https://gw.example/${HOME}", None),
            ("file:///etc/passwd", None),
            ("gw.example/v1", None),
            ("", None),
        ];
        for (text, wanted) in table {
            let base = endpoint(text, &[]).map(|endpoint| endpoint.base_url);
            assert_eq!(base.as_deref().ok(), wanted, "{text}");
            let complaint = base.err().unwrap_or_default();
            assert!(!complaint.contains("secret"), "{complaint}");
        }
    }

    #[test]
    fn headers_are_checked_without_their_values() {
        let base = "https://gw.example/v1";
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        let table: [(&[(&str, &str)], &str); 5] = [
            (&[("a b", "secret")], "a name contains characters"),
            (&[("x-key", "secret\nsecret")], "headers.x-key: the value"),
            (&[("Host", "secret")], "headers.host: the connection sets"),
            (&[("x-key", &long)], "longer than"),
            (&[("X-Key", "secret"), ("x-key", "secret")], "named twice"),
        ];
        for (headers, wanted) in table {
            let complaint = endpoint(base, headers).unwrap_err();
            assert!(complaint.contains(wanted), "{complaint}");
            assert!(!complaint.contains("secret"), "{complaint}");
        }
    }

    #[test]
    fn secrets_are_values_with_and_without_scheme() {
        let endpoint = endpoint(
            "https://gw.example/v1",
            &[("authorization", "Bearer sk-123456"), ("x-team", "a")],
        )
        .unwrap();
        let secrets: Vec<_> = endpoint.secrets();
        let secrets: Vec<_> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(secrets, ["Bearer sk-123456", "sk-123456"]);
        assert!(!format!("{endpoint:?}").contains("sk-123456"));
    }
}
