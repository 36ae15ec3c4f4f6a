//! Model servers on this machine. Looked for only when nothing else is configured, all at once,
//! and never for longer than a moment.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::http::HttpClient;
use crate::config::settings as said;

/// How long all of the looking may take.
pub const MOMENT: Duration = Duration::from_millis(100);

/// A server that may run here.
#[derive(Debug, Clone)]
pub struct Local {
    pub id: &'static str,
    pub name: &'static str,
    pub port: u16,
}

/// The servers people run, at their usual ports.
pub const SERVERS: &[Local] = &[
    Local { id: "ollama", name: "Ollama", port: 11434 },
    Local { id: "lmstudio", name: "LM Studio", port: 1234 },
    Local { id: "llama.cpp", name: "llama.cpp", port: 8080 },
    Local { id: "vllm", name: "vLLM", port: 8000 },
];

/// Asks each server for its models. Those that do not answer in time, or with something else, are
/// not there.
pub async fn find(client: &HttpClient, servers: &[Local]) -> Vec<said::ProviderEntry> {
    let end = Instant::now() + MOMENT;
    let looks = servers.iter().map(|server| async move {
        let base_url = format!("http://127.0.0.1:{}/v1", server.port);
        let url = format!("{base_url}/models");
        let body = timeout_at(end, client.get(server.name, &url, &[], 1 << 20)).await.ok()?.ok()?;
        let models = models(&body);
        (!models.is_empty()).then(|| said::ProviderEntry {
            id: server.id.into(),
            name: Some(server.name.into()),
            base_url: Some(base_url),
            models,
            ..said::ProviderEntry::default()
        })
    });
    join_all(looks).await.into_iter().flatten().collect()
}

/// The models in an OpenAI-like list that can hold a conversation.
fn models(body: &[u8]) -> Vec<said::ModelEntry> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    let entries = list.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let model = |entry: &Value| {
        let key = entry.get("id")?.as_str().filter(|id| !id.is_empty())?;
        let lower = key.to_lowercase();
        if ["embed", "rerank", "whisper"].iter().any(|kind| lower.contains(kind)) {
            return None;
        }
        let context = ["/max_model_len", "/meta/n_ctx", "/max_context_length", "/context_length"];
        let context = context.iter().find_map(|path| entry.pointer(path)).and_then(Value::as_u64);
        Some(said::ModelEntry { key: key.into(), context, ..said::ModelEntry::default() })
    };
    entries.iter().filter_map(model).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::environment::Environment;

    async fn server(answer: Option<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        crate::task::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 1024]).await;
            match answer {
                Some(body) => {
                    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = socket.write_all(text.as_bytes()).await;
                }
                None => std::future::pending().await,
            }
        });
        port
    }

    #[tokio::test]
    async fn those_that_answer_are_found_and_the_others_not_waited_for() {
        let list = r#"{"object":"list","data":[{"id":"qwen:7b"},{"id":"nomic-embed-text"},{"id":"","x":1},{"id":"b","max_model_len":4096}]}"#;
        let servers = [
            Local { id: "a", name: "A", port: server(Some(list)).await },
            Local { id: "b", name: "B", port: server(None).await },
            Local { id: "c", name: "C", port: server(Some("<html>")).await },
            Local { id: "d", name: "D", port: 1 },
        ];
        let client = HttpClient::new(&Environment::from_vars(BTreeMap::new()));
        let begun = Instant::now();
        let found = find(&client, &servers).await;
        assert!(begun.elapsed() < MOMENT * 5, "{:?}", begun.elapsed());
        assert_eq!(found.len(), 1);
        let models: Vec<_> = found[0].models.iter().map(|m| (m.key.as_str(), m.context)).collect();
        assert_eq!(models, [("qwen:7b", None), ("b", Some(4096))]);
        assert_eq!(found[0].base_url.as_deref(), Some(format!("http://127.0.0.1:{}/v1", servers[0].port).as_str()));
    }
}
