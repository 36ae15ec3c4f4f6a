//! `websearch`: what a search engine finds, by the user's own key. Offered only where there is one.
//!
//! To add an engine: an entry in `ENGINES`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::aliases::Aliases;
use super::webfetch::secrets;
use super::{CallDescription, Failure, Offer, Tool, ToolContext, ToolOutput};
use crate::environment::Environment;
use crate::event::Kind;
use crate::model::http::Client;
use crate::permission::Need;
use crate::text;

/// How long a search may take.
const PATIENCE: Duration = Duration::from_secs(25);
/// The largest answer, in bytes.
const LARGEST: usize = 4 << 20;
/// How many results are asked for, and at most.
const RESULTS: u32 = 8;
const MOST: u32 = 20;
/// How much of each is shown, in characters.
const EXTRACT: usize = 1_200;
/// The longest query, in characters: nothing longer is one.
const QUERY: usize = 500;

/// A search engine: where it is, and what its answers look like.
#[derive(Debug)]
struct SearchEngine {
    name: &'static str,
    /// The variables that may hold its key; for one of the user's own, its address.
    keys: &'static [&'static str],
    /// In it `{query}`, `{count}` and, for one of the user's own, `{base}` are filled in.
    url: &'static str,
    /// Sent with POST; without one it is asked with GET. `{query}` and `{count}` stand for values.
    body: &'static str,
    /// The header that carries the key, and what stands before it there.
    header: Option<(&'static str, &'static str)>,
    /// Where the list of results is, and in each of them the title, address, date and extract.
    list: &'static str,
    fields: [&'static str; 4],
}

/// In this order they are chosen where several have a key.
const ENGINES: &[SearchEngine] = &[
    SearchEngine {
        name: "exa",
        keys: &["EXA_API_KEY"],
        url: "https://api.exa.ai/search",
        body: r#"{"query":"{query}","numResults":"{count}","type":"auto","contents":{"text":{"maxCharacters":1200}}}"#,
        header: Some(("x-api-key", "")),
        list: "/results",
        fields: ["title", "url", "publishedDate", "text"],
    },
    SearchEngine {
        name: "tavily",
        keys: &["TAVILY_API_KEY"],
        url: "https://api.tavily.com/search",
        body: r#"{"query":"{query}","max_results":"{count}"}"#,
        header: Some(("authorization", "Bearer ")),
        list: "/results",
        fields: ["title", "url", "published_date", "content"],
    },
    SearchEngine {
        name: "brave",
        keys: &["BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"],
        url: "https://api.search.brave.com/res/v1/web/search?q={query}&count={count}",
        body: "",
        header: Some(("x-subscription-token", "")),
        list: "/web/results",
        fields: ["title", "url", "page_age", "description"],
    },
    SearchEngine {
        name: "kagi",
        keys: &["KAGI_API_KEY"],
        url: "https://kagi.com/api/v0/search?q={query}&limit={count}",
        body: "",
        header: Some(("authorization", "Bot ")),
        list: "/data",
        fields: ["title", "url", "published", "snippet"],
    },
    SearchEngine {
        name: "searxng",
        keys: &["SEARXNG_URL"],
        url: "{base}/search?q={query}&format=json",
        body: "",
        header: None,
        list: "/results",
        fields: ["title", "url", "publishedDate", "content"],
    },
];

#[derive(Default)]
pub struct WebsearchTool;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    pub query: String,
    /// 8 by default, 20 at most
    pub num_results: Option<u32>,
}

/// A search that may be made.
pub struct Ready {
    engine: &'static SearchEngine,
    key: String,
    query: String,
    count: u32,
}

/// Whether the user has a search engine.
pub fn offered(environment: &Environment) -> bool {
    chosen(environment).is_some()
}

/// The engine that the user named, else the first that has a key; with its key.
fn chosen(environment: &Environment) -> Option<(&'static SearchEngine, String)> {
    let key = |engine: &'static SearchEngine| {
        let key = engine.keys.iter().find_map(|name| environment.var(name)).map(str::trim);
        Some((engine, key.filter(|key| !key.is_empty())?.to_owned()))
    };
    let named = environment.setting("WEBSEARCH_PROVIDER").map(str::to_lowercase);
    match named.and_then(|named| ENGINES.iter().find(|engine| engine.name == named)) {
        Some(engine) => key(engine),
        None => ENGINES.iter().find_map(key),
    }
}

impl Tool for WebsearchTool {
    const NAME: &'static str = "websearch";
    const DESCRIPTION: &'static str = include_str!("../../prompts/tool/websearch.md");
    const KIND: Kind = Kind::Fetch;
    const CONCURRENT: bool = true;
    const OFFER: Offer = Offer::PerStep;
    const ALIASES: Aliases = Aliases {
        also: &["searchweb", "googlesearch", "internetsearch"],
        says: &[],
        fields: &[
            ("query", &["q", "search", "searchterm", "searchquery"]),
            ("numResults", &["count", "maxresults", "limit"]),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription { title: text::title(&format!("Search the web: {}", input.query)), locations: Vec::new() }
    }

    async fn prepare(&self, input: Input, context: &ToolContext) -> Result<(Vec<Need>, Ready), Failure> {
        let query = input.query.split_whitespace().collect::<Vec<_>>().join(" ");
        if query.is_empty() || query.chars().count() > QUERY {
            return Err(Failure::Tell(format!("A query is one line of at most {QUERY} characters.")));
        }
        let environment = &context.project.environment;
        let known = secrets(&context.project.settings, environment);
        if known.iter().any(|secret| secret.len() >= 8 && query.contains(secret.as_str())) {
            return Err(Failure::tell("The query contains a key of the user's; it was not sent."));
        }
        let Some((engine, key)) = chosen(environment) else {
            return Err(Failure::tell("There is no search engine: none has a key."));
        };
        let count = input.num_results.unwrap_or(RESULTS).clamp(1, MOST);
        let need = Need::new(Self::NAME, query.as_str()).always(query.as_str());
        Ok((vec![need], Ready { engine, key, query, count }))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let name = ready.engine.name;
        let asked = tokio::time::timeout(PATIENCE, ready.ask(&context.project.environment));
        let answer = tokio::select! {
            answer = asked => answer.unwrap_or_else(|_| Err(format!("{name} did not answer within {} s", PATIENCE.as_secs()))),
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        let answer = answer.map_err(|why| Failure::Tell(format!("The search failed: {why}.")))?;
        Ok(ToolOutput::text(ready.engine.shown(&answer, ready.count)))
    }
}

impl Ready {
    async fn ask(&self, environment: &Environment) -> Result<Value, String> {
        let engine = self.engine;
        let encoded: String = reqwest::Url::parse_with_params("http://x/", [("q", &self.query)])
            .map_err(|e| e.to_string())?
            .query()
            .and_then(|query| query.strip_prefix("q="))
            .unwrap_or_default()
            .to_owned();
        let url = engine
            .url
            .replace("{base}", self.key.trim_end_matches('/'))
            .replace("{query}", &encoded)
            .replace("{count}", &self.count.to_string());
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json"));
        if let Some((name, before)) = engine.header {
            let mut value = HeaderValue::from_str(&format!("{before}{}", self.key))
                .map_err(|_| "its key has characters that no key has".to_owned())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let (method, body) = if engine.body.is_empty() {
            (Method::GET, Vec::new())
        } else {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            (Method::POST, self.body()?)
        };
        let environment = environment.clone();
        // Reading certificates takes milliseconds that nobody should wait for.
        let client = tokio::task::spawn_blocking(move || {
            let client = Client::new(&environment);
            client.warm();
            Arc::new(client)
        });
        let client = client.await.map_err(|e| e.to_string())?;
        let answer = client.exchange(engine.name, &method, &url, headers, body, LARGEST).await;
        let (status, _, body) = answer.map_err(|e| e.to_string().trim_end_matches('.').to_owned())?;
        if !status.is_success() {
            let said = text::title(&String::from_utf8_lossy(&body));
            return Err(format!("{} answered {status}: {said}", engine.name));
        }
        serde_json::from_slice(&body).map_err(|_| format!("{} answered with something that is not JSON", engine.name))
    }

    fn body(&self) -> Result<Vec<u8>, String> {
        let mut body: Value = serde_json::from_str(self.engine.body).map_err(|e| e.to_string())?;
        for value in body.as_object_mut().into_iter().flat_map(|body| body.values_mut()) {
            match value.as_str() {
                Some("{query}") => *value = json!(self.query),
                Some("{count}") => *value = json!(self.count),
                _ => {}
            }
        }
        Ok(body.to_string().into_bytes())
    }
}

impl SearchEngine {
    /// The results, as data for the model.
    fn shown(&self, answer: &Value, count: u32) -> String {
        let mut out = String::new();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let results = answer.pointer(self.list).and_then(Value::as_array).into_iter().flatten();
        let field = |result: &Value, at: usize| {
            let said = result.get(self.fields[at]).and_then(Value::as_str).unwrap_or_default();
            text::visible(said).0.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for result in results.filter(|result| !field(result, 1).is_empty()).take(count) {
            let _ = writeln!(out, "{}\n{}", text::cut_chars(&field(result, 0), 200), field(result, 1));
            let date = field(result, 2);
            if !date.is_empty() {
                let _ = writeln!(out, "Date: {}", text::cut_chars(&date, 40));
            }
            let _ = writeln!(out, "{}\n", text::cut_chars(&field(result, 3), EXTRACT));
        }
        if out.is_empty() {
            "No search results found. Please try a different query.".into()
        } else {
            out.trim_end().to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::erase;
    use super::super::test::{TestProject, call};
    use super::*;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Environment::from_vars(BTreeMap::from_iter(vars))
    }

    #[test]
    fn the_users_own_engine_is_asked() {
        let name = |vars: &[(&str, &str)]| chosen(&environment(vars)).map(|(engine, _)| engine.name);
        assert_eq!(name(&[]), None);
        assert_eq!(name(&[("KAGI_API_KEY", " ")]), None);
        assert_eq!(name(&[("BRAVE_SEARCH_API_KEY", "k"), ("SEARXNG_URL", "http://s")]), Some("brave"));
        let both = [("EXA_API_KEY", "k"), ("KAGI_API_KEY", "k")];
        assert_eq!(name(&both), Some("exa"));
        assert_eq!(name(&[both[0], both[1], ("OPENCODE_WEBSEARCH_PROVIDER", "Kagi")]), Some("kagi"));
        assert_eq!(name(&[both[0], ("ADJUTANT_WEBSEARCH_PROVIDER", "kagi")]), None, "the named one has no key");
    }

    #[test]
    fn each_engine_is_asked_and_read_in_its_way() {
        for engine in ENGINES {
            let ready = Ready { engine, key: "k".into(), query: "a \"b\"".into(), count: 3 };
            if engine.body.is_empty() {
                assert!(engine.url.contains("{query}"), "{}", engine.name);
            } else {
                let body: Value = serde_json::from_slice(&ready.body().unwrap()).unwrap();
                assert_eq!(body["query"], "a \"b\"", "{}", engine.name);
                assert!(body.to_string().contains(":3"), "{}: {body}", engine.name);
            }
            let [title, url, date, extract] = engine.fields;
            let result =
                json!({title: "T\u{202e}", url: "https://a.example", date: "2026-01-02", extract: "one\n two"});
            let mut answer = json!([result, {"t": 1}]);
            for key in engine.list.trim_start_matches('/').split('/').rev() {
                answer = json!({key: answer});
            }
            let wanted = "T\nhttps://a.example\nDate: 2026-01-02\none two";
            assert_eq!(engine.shown(&answer, 3), wanted, "{}", engine.name);
            assert!(engine.shown(&json!({"error": 1}), 3).starts_with("No search results"), "{}", engine.name);
        }
    }

    #[tokio::test]
    async fn a_search_is_made() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let mut lines = Vec::new();
            for answer in [
                r#"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"results":[{"title":"T","url":"https://a.example","content":"x"}]}"#,
                r"HTTP/1.1 403 No\r\ncontent-length: 4\r\n\r\nnope",
            ] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 2048];
                let read = stream.read(&mut request).await.unwrap();
                lines.push(String::from_utf8_lossy(&request[..read]).lines().next().unwrap().to_owned());
                let answer = answer.replace(r"\r\n", "\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            lines
        });
        let stage = TestProject::new();
        let mut context = stage.context();
        context.project.environment =
            context.project.environment.with("SEARXNG_URL", &url).with("A_TOKEN", "hunter2hunter2");
        let tool = erase(WebsearchTool);
        let (needs, output) = call(&tool, json!({"query": " ä  & b "}), &context).await.unwrap();
        assert_eq!((needs[0].permission.as_str(), needs[0].patterns[0].as_str()), ("websearch", "ä & b"));
        assert_eq!(output.text, "T\nhttps://a.example\nx");
        let failure = call(&tool, json!({"query": "c"}), &context).await.unwrap_err().to_string();
        assert!(failure.contains("searxng answered 403 Forbidden: nope"), "{failure}");
        assert_eq!(served.await.unwrap()[0], "GET /search?q=%C3%A4+%26+b&format=json HTTP/1.1");
        let failure = call(&tool, json!({"query": "what is hunter2hunter2"}), &context).await.unwrap_err().to_string();
        assert!(failure.contains("it was not sent"), "{failure}");
        assert!(call(&tool, json!({"query": "  "}), &context).await.is_err());
    }
}
