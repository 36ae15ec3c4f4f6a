//! Model servers on this machine. They are looked for only if no provider is configured, all at
//! once, and for a limited time.
//!
//! `ADJUTANT_LOCAL_SERVERS` selects the servers, for users whose server has another port and for
//! those who do not want the search. It contains ports of this machine and no addresses, so nothing
//! leaves the machine because of it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::http::HttpClient;
use crate::entry::{ModelEntry, ProviderEntry};
use base::environment::Environment;

/// The time limit of the whole search.
pub const MOMENT: Duration = Duration::from_millis(100);

/// A server that may run on this machine.
#[derive(Debug, Clone)]
pub struct Local {
    pub id: &'static str,
    pub name: &'static str,
    pub port: u16,
    /// The command that starts it.
    start: &'static str,
}

/// The variable that selects the servers to look for, instead of all at their usual ports.
pub const VARIABLE: &str = "ADJUTANT_LOCAL_SERVERS";

/// The value of [`VARIABLE`] for none.
pub const NONE: &str = "none";

/// The known servers, at their usual ports.
const SERVERS: &[Local] = &[
    Local {
        id: "ollama",
        name: "Ollama",
        port: 11434,
        start: "ollama serve",
    },
    Local {
        id: "lmstudio",
        name: "LM Studio",
        port: 1234,
        start: "lms server start",
    },
    Local {
        id: "llama.cpp",
        name: "llama.cpp",
        port: 8080,
        start: "llama-server",
    },
    Local {
        id: "vllm",
        name: "vLLM",
        port: 8000,
        start: "vllm serve",
    },
];

/// Returns whether a provider of this name is one of the known local servers.
pub fn is_known(id: &str) -> bool {
    SERVERS.iter().any(|server| server.id == id)
}

/// Returns the command that starts the local server of a provider, known by its name or its port.
pub fn start_command(provider: &str, base_url: &str) -> Option<&'static str> {
    let url = reqwest::Url::parse(base_url).ok();
    let port = url.and_then(|url| url.port());
    let named = SERVERS.iter().find(|server| server.id == provider);
    let found = named.or_else(|| SERVERS.iter().find(|server| Some(server.port) == port))?;
    // Other programs use the ports of llama.cpp and vLLM as well.
    let is_certain = named.is_some() || found.port != 8080 && found.port != 8000;
    is_certain.then_some(found.start)
}

/// Returns the servers to look for: those that [`VARIABLE`] names, otherwise all at their usual
/// ports.
///
/// # Errors
/// A sentence for the user if the variable is invalid.
pub fn servers(environment: &Environment) -> Result<Vec<Local>, String> {
    let Some(list) = environment.var(VARIABLE) else {
        return Ok(SERVERS.to_vec());
    };
    if list.trim() == NONE {
        return Ok(Vec::new());
    }
    list.split(',').map(|entry| server(entry.trim())).collect()
}

/// Parses `NAME=PORT`; a name alone means its usual port.
fn server(entry: &str) -> Result<Local, String> {
    let (name, port) = entry
        .split_once('=')
        .map_or((entry, None), |(name, port)| (name, Some(port)));
    let usual = SERVERS
        .iter()
        .find(|server| server.id == name)
        .ok_or_else(|| {
            let names: Vec<&str> = SERVERS.iter().map(|server| server.id).collect();
            format!(
                "{VARIABLE}: there is no server \"{name}\"; write {NONE}, or some of {}",
                names.join(", ")
            )
        })?;
    let port = match port {
        None => usual.port,
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            format!(
                "{VARIABLE}: \"{port}\" is no port of {name}; write {name}={}, for example",
                usual.port
            )
        })?,
    };
    Ok(Local {
        port,
        ..usual.clone()
    })
}

/// Requests the models of each server. Servers that do not answer in time, or not with a list of
/// models, are left out.
pub async fn find(client: &HttpClient, servers: &[Local]) -> Vec<ProviderEntry> {
    let end = Instant::now() + MOMENT;
    let requests = servers.iter().map(|server| async move {
        let base_url = format!("http://127.0.0.1:{}/v1", server.port);
        let url = format!("{base_url}/models");
        let body = timeout_at(end, client.get(server.name, &url, &[], 1 << 20))
            .await
            .ok()?
            .ok()?;
        let models = models(&body);
        (!models.is_empty()).then(|| ProviderEntry {
            id: server.id.into(),
            name: Some(server.name.into()),
            base_url: Some(base_url),
            models,
            ..ProviderEntry::default()
        })
    });
    join_all(requests).await.into_iter().flatten().collect()
}

/// Returns the models of an OpenAI-like list that can hold a conversation.
fn models(body: &[u8]) -> Vec<ModelEntry> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    let entries = list
        .get("data")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let model = |entry: &Value| {
        let key = entry.get("id")?.as_str().filter(|id| !id.is_empty())?;
        let lower = key.to_lowercase();
        if ["embed", "rerank", "whisper"]
            .iter()
            .any(|kind| lower.contains(kind))
        {
            return None;
        }
        let context = [
            "/max_model_len",
            "/meta/n_ctx",
            "/max_context_length",
            "/context_length",
        ];
        let context = context
            .iter()
            .find_map(|path| entry.pointer(path))
            .and_then(Value::as_u64);
        Some(ModelEntry {
            key: key.into(),
            context,
            ..ModelEntry::default()
        })
    };
    entries.iter().filter_map(model).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn server(answer: Option<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        base::task::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 1024]).await;
            match answer {
                Some(body) => {
                    let text = format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = socket.write_all(text.as_bytes()).await;
                }
                None => std::future::pending().await,
            }
        });
        port
    }

    #[test]
    fn servers_follow_the_variable() {
        let of = |value: &str| {
            let vars = BTreeMap::from([(VARIABLE.to_owned(), value.to_owned())]);
            let found = servers(&Environment::from_vars(vars))?;
            Ok::<_, String>(
                found
                    .iter()
                    .map(|server| (server.id, server.port))
                    .collect::<Vec<_>>(),
            )
        };
        let usual = [
            ("ollama", 11434),
            ("lmstudio", 1234),
            ("llama.cpp", 8080),
            ("vllm", 8000),
        ];
        assert_eq!(of("").unwrap(), usual);
        assert_eq!(of("none").unwrap(), []);
        assert_eq!(
            of("vllm=8001, ollama").unwrap(),
            [("vllm", 8001), ("ollama", 11434)]
        );
        for (value, why) in [
            (
                "olama=1",
                "there is no server \"olama\"; write none, or some of ollama, lmstudio, llama.cpp, vllm",
            ),
            ("ollama=0", "\"0\" is no port of ollama; write ollama=11434"),
            ("vllm=10.0.0.1:80", "is no port of vllm"),
            ("ollama,", "there is no server \"\""),
        ] {
            let error = of(value).unwrap_err();
            assert!(
                error.starts_with("ADJUTANT_LOCAL_SERVERS: ") && error.contains(why),
                "{value}: {error}"
            );
        }
    }

    #[test]
    fn start_command_is_that_of_the_server() {
        let table = [
            ("ollama", "http://127.0.0.1:99/v1", Some("ollama serve")),
            ("mine", "http://localhost:11434/v1", Some("ollama serve")),
            ("mine", "http://localhost:1234/v1", Some("lms server start")),
            ("mine", "http://localhost:8080/v1", None),
            ("vllm", "http://localhost:8080/v1", Some("vllm serve")),
            ("mine", "http://localhost/v1", None),
        ];
        for (provider, base, expected) in table {
            assert_eq!(start_command(provider, base), expected, "{provider} {base}");
        }
    }

    #[tokio::test]
    async fn slow_servers_are_not_waited_for() {
        let list = r#"{"object":"list","data":[{"id":"qwen:7b"},{"id":"nomic-embed-text"},{"id":"","x":1},{"id":"b","max_model_len":4096}]}"#;
        let servers = [
            Local {
                id: "a",
                name: "A",
                port: server(Some(list)).await,
                start: "",
            },
            Local {
                id: "b",
                name: "B",
                port: server(None).await,
                start: "",
            },
            Local {
                id: "c",
                name: "C",
                port: server(Some("<html>")).await,
                start: "",
            },
            Local {
                id: "d",
                name: "D",
                port: 1,
                start: "",
            },
        ];
        let client = HttpClient::new(&Environment::from_vars(BTreeMap::new()));
        let begun = Instant::now();
        let found = find(&client, &servers).await;
        assert!(begun.elapsed() < MOMENT * 5, "{:?}", begun.elapsed());
        assert_eq!(found.len(), 1);
        let models: Vec<_> = found[0]
            .models
            .iter()
            .map(|m| (m.key.as_str(), m.context))
            .collect();
        assert_eq!(models, [("qwen:7b", None), ("b", Some(4096))]);
        assert_eq!(
            found[0].base_url.as_deref(),
            Some(format!("http://127.0.0.1:{}/v1", servers[0].port).as_str())
        );
    }
}
