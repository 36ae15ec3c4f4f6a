//! `websearch`: searches the web; offered only if a [search engine](#web-searches) is available.
//!
//! Limits: 8 results by default, at most 20; 25 seconds, or 120 if the model's provider searches.
//!
//! The engine is the user's, with its key, or else the search of the model's provider.
//!
//! To add an engine, add an entry to `ENGINES`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::aliases::Aliases;
use crate::web::webfetch::secrets;
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::environment::Environment;
use base::text;
use events::{Sample, SampleRequest, SessionRequest, ToolKind};
use permission::AccessRequest;
use providers::FoundPage;
use providers::http::HttpClient;
use providers::request::{ModelInput as Asked, ModelMessage};

/// The maximum duration of a search by an engine.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(25);
/// The maximum duration of a search by the model's provider, which reads pages.
const PROVIDER_SEARCH_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum length of the provider's answer, in tokens.
const MAX_ANSWER_TOKENS: u64 = 4_000;
/// The maximum size of an engine's answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The default number of results.
const DEFAULT_RESULTS: u32 = 8;
/// The maximum number of results that a call may request.
const MAX_RESULTS: u32 = 20;
/// The maximum length of an extract, in characters.
const MAX_EXTRACT_CHARS: usize = 1_200;
/// The maximum length of a query, in characters.
const MAX_QUERY_CHARS: usize = 500;

/// A search engine: its URL and the format of its answers.
#[derive(Debug)]
struct SearchEngine {
    name: &'static str,
    /// The environment variables that may hold its key, or the URL of the user's own engine.
    keys: &'static [&'static str],
    /// The URL, with the placeholders `{query}`, `{count}` and, for the user's own engine,
    /// `{base}`.
    url: &'static str,
    /// The body of a POST, with the values `{query}` and `{count}`; empty for GET.
    body: &'static str,
    /// The header for the key, and the prefix of the key in it; `None` if no key is sent.
    header: Option<(&'static str, &'static str)>,
    /// The JSON pointer to the list of results.
    list: &'static str,
    /// The names of title, URL, date and extract in each result.
    fields: [&'static str; 4],
}

/// The engines, in the order of preference.
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

/// The arguments of the tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    pub query: String,
    /// 8 by default, 20 at most
    pub num_results: Option<u32>,
}

/// A checked search.
pub struct Ready {
    by: Searcher,
    query: String,
    /// The number of results.
    count: u32,
}

/// The service that searches.
#[derive(Debug, Clone)]
enum Searcher {
    /// An engine with its key, or with the URL of the user's own engine.
    Engine(&'static SearchEngine, String),
    /// The provider of the session's model.
    Provider,
}

/// Returns whether a search is possible; `provider_searches` returns whether the model's provider
/// can search.
pub fn is_available(environment: &Environment, provider_searches: impl FnOnce() -> bool) -> bool {
    match chosen(environment) {
        Some(Searcher::Engine(..)) => true,
        Some(Searcher::Provider) => provider_searches(),
        None => false,
    }
}

/// Returns the engine that the user named (`model` for the model's provider), otherwise the first
/// engine with a key, otherwise the model's provider. `None` if the named engine has no key.
fn chosen(environment: &Environment) -> Option<Searcher> {
    let key = |engine: &'static SearchEngine| {
        let key = engine
            .keys
            .iter()
            .find_map(|name| environment.var(name))
            .map(str::trim);
        Some(Searcher::Engine(
            engine,
            key.filter(|key| !key.is_empty())?.to_owned(),
        ))
    };
    let named = environment
        .setting("WEBSEARCH_PROVIDER")
        .map(str::to_lowercase);
    if named.as_deref() == Some("model") {
        return Some(Searcher::Provider);
    }
    match named.and_then(|named| ENGINES.iter().find(|engine| engine.name == named)) {
        Some(engine) => key(engine),
        None => ENGINES.iter().find_map(key).or(Some(Searcher::Provider)),
    }
}

impl Tool for WebsearchTool {
    const NAME: &'static str = "websearch";
    const DESCRIPTION: &'static str = include_str!("websearch.md");
    const KIND: ToolKind = ToolKind::Fetch;
    const CONCURRENT: bool = true;
    const AVAILABILITY: Availability = Availability::PerStep;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::reading(
        "Searching the web; patterns are queries.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &["searchweb", "googlesearch", "internetsearch"],
        field_values: &[],
        fields: &[
            ("query", &["q", "search", "searchterm", "searchquery"]),
            ("numResults", &["count", "maxresults", "limit"]),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: text::title(&format!("Search the web: {}", input.query)),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let query = input.query.split_whitespace().collect::<Vec<_>>().join(" ");
        if query.is_empty() || query.chars().count() > MAX_QUERY_CHARS {
            return Err(Failure::ForModel(format!(
                "A query is one line of at most {MAX_QUERY_CHARS} characters."
            )));
        }
        let environment = &context.project.environment;
        let known = secrets(&context.project.settings, environment);
        if known
            .iter()
            .any(|secret| secret.len() >= 8 && query.contains(secret.as_str()))
        {
            return Err(Failure::for_model(
                "The query contains one of the user's keys, so it was not sent.",
            ));
        }
        let Some(by) = chosen(environment) else {
            return Err(Failure::for_model(
                "No search engine is available: the one that the user chose has no key.",
            ));
        };
        let count = input
            .num_results
            .unwrap_or(DEFAULT_RESULTS)
            .clamp(1, MAX_RESULTS);
        let request = AccessRequest::new(Self::NAME, query.as_str()).always(query.as_str());
        Ok((vec![request], Ready { by, query, count }))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        let (name, timeout) = match &ready.by {
            Searcher::Engine(engine, _) => (engine.name, SEARCH_TIMEOUT),
            Searcher::Provider => ("The model's provider", PROVIDER_SEARCH_TIMEOUT),
        };
        let asked = tokio::time::timeout(timeout, ready.search(&context));
        let answer = tokio::select! {
            answer = asked => answer.unwrap_or_else(|_| Err(format!("{name} did not answer within {} s", timeout.as_secs()))),
            () = context.cancelled.cancelled() => return Err(Failure::Cancelled),
        };
        let failed = |why: String| {
            Failure::ForModel(format!("The search failed: {}.", why.trim_end_matches('.')))
        };
        Ok(ToolOutput::text(answer.map_err(failed)?))
    }
}

impl Ready {
    /// Searches, and returns the results as text for the model. The error is the reason, as the end
    /// of a sentence.
    async fn search(&self, context: &ToolContext) -> Result<String, String> {
        match &self.by {
            Searcher::Engine(engine, key) => {
                let answer = self
                    .query_engine(engine, key, &context.project.environment)
                    .await?;
                Ok(shown(&engine.pages(&answer), self.count))
            }
            Searcher::Provider => {
                let sample = self.search_by_provider(context).await?;
                let pages = merged(sample.found);
                let (words, _) = text::visible(sample.text.trim());
                let cut = if sample.cut { " It was cut off." } else { "" };
                Ok(if words.is_empty() {
                    shown(&pages, self.count)
                } else if pages.is_empty() {
                    format!(
                        "No page was found. Answer of {}:{cut}\n{words}",
                        sample.model
                    )
                } else {
                    let pages = shown(&pages, self.count);
                    format!(
                        "Summary of the pages below by {}:{cut}\n{words}\n\n{pages}",
                        sample.model
                    )
                })
            }
        }
    }

    /// Searches through the provider of the session's model.
    async fn search_by_provider(&self, context: &ToolContext) -> Result<Sample, String> {
        let (reply, answer) = oneshot::channel();
        let wanted = SampleRequest {
            system: Some(prompts::wire::SEARCH.into()),
            messages: vec![ModelMessage::User(vec![Asked::Text(
                format!("Search the web for: {}", self.query).into(),
            )])],
            max_output: MAX_ANSWER_TOKENS,
            search: true,
            temperature: None,
            reply,
        };
        let request = SessionRequest::Sample(Box::new(wanted));
        context
            .client
            .session_requests
            .send(request)
            .await
            .map_err(|_| no_model())?;
        answer.await.unwrap_or_else(|_| Err(no_model()))
    }

    /// Sends the query to an engine. Returns its answer.
    async fn query_engine(
        &self,
        engine: &SearchEngine,
        key: &str,
        environment: &Environment,
    ) -> Result<Value, String> {
        let encoded: String = reqwest::Url::parse_with_params("http://x/", [("q", &self.query)])
            .map_err(|e| e.to_string())?
            .query()
            .and_then(|query| query.strip_prefix("q="))
            .unwrap_or_default()
            .to_owned();
        let url = engine
            .url
            .replace("{base}", key.trim_end_matches('/'))
            .replace("{query}", &encoded)
            .replace("{count}", &self.count.to_string());
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json"));
        if let Some((name, before)) = engine.header {
            let mut value = HeaderValue::from_str(&format!("{before}{key}")).map_err(|_| {
                "its key contains characters that are not allowed in a key".to_owned()
            })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let (method, body) = if engine.body.is_empty() {
            (Method::GET, Vec::new())
        } else {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            (Method::POST, self.body(engine)?)
        };
        let environment = environment.clone();
        // Reading certificates takes milliseconds, so it runs on a thread of its own.
        let client = base::task::spawn_blocking(move || {
            let client = HttpClient::new(&environment);
            client.load_certificates();
            Arc::new(client)
        });
        let client = client.await.map_err(|e| e.to_string())?;
        let answer = client
            .exchange(engine.name, &method, &url, headers, body, MAX_ANSWER_BYTES)
            .await;
        let response = answer.map_err(|e| e.to_string().trim_end_matches('.').to_owned())?;
        if !response.status.is_success() {
            let message = text::title(&String::from_utf8_lossy(&response.body));
            return Err(format!(
                "{} answered {}: {message}",
                engine.name, response.status
            ));
        }
        serde_json::from_slice(&response.body)
            .map_err(|_| format!("{} answered with something that is not JSON", engine.name))
    }

    /// Returns the body of a POST.
    fn body(&self, engine: &SearchEngine) -> Result<Vec<u8>, String> {
        let mut body: Value = serde_json::from_str(engine.body).map_err(|e| e.to_string())?;
        for value in body
            .as_object_mut()
            .into_iter()
            .flat_map(|body| body.values_mut())
        {
            match value.as_str() {
                Some("{query}") => *value = json!(self.query),
                Some("{count}") => *value = json!(self.count),
                _ => {}
            }
        }
        Ok(body.to_string().into_bytes())
    }
}

/// Returns the error if the session cannot send a request to its model.
fn no_model() -> String {
    "there is no model to ask now".to_owned()
}

impl SearchEngine {
    /// Reads the results of an answer.
    fn pages(&self, answer: &Value) -> Vec<FoundPage> {
        let results = answer
            .pointer(self.list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let page = |result: &Value| {
            let [title, url, date, extract] = self.fields.map(|name| {
                let text = result.get(name).and_then(Value::as_str).unwrap_or_default();
                text.to_owned()
            });
            FoundPage {
                title,
                url,
                date,
                extract,
            }
        };
        results.map(page).collect()
    }
}

/// Merges results for the same page.
fn merged(found: Vec<FoundPage>) -> Vec<FoundPage> {
    let mut pages: Vec<FoundPage> = Vec::new();
    for page in found {
        let Some(known) = pages.iter_mut().find(|known| known.url == page.url) else {
            pages.push(page);
            continue;
        };
        for (known, more) in [(&mut known.title, page.title), (&mut known.date, page.date)] {
            if known.is_empty() {
                *known = more;
            }
        }
        if !known.extract.contains(&page.extract) {
            known.extract = format!("{} {}", known.extract, page.extract);
        }
    }
    pages
}

/// Formats the first `count` pages as data for the model.
fn shown(pages: &[FoundPage], count: u32) -> String {
    let mut out = String::new();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    for page in pages
        .iter()
        .filter(|page| !page.url.trim().is_empty())
        .take(count)
    {
        let lines = [
            one_line(&page.title, 200),
            one_line(&page.url, 2_000),
            Some(one_line(&page.date, 40))
                .filter(|date| !date.is_empty())
                .map(|date| format!("Date: {date}"))
                .unwrap_or_default(),
            one_line(&page.extract, MAX_EXTRACT_CHARS),
        ];
        let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let _ = writeln!(out, "{}\n", lines.join("\n"));
    }
    if out.is_empty() {
        "No search results found. Please try a different query.".into()
    } else {
        out.trim_end().to_owned()
    }
}

/// Puts a text on one line of at most `max_chars` visible characters.
fn one_line(text: &str, max_chars: usize) -> String {
    let words = text::visible(text)
        .0
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    text::cut_chars(&words, max_chars)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::erase;
    use crate::test::{TestProject, call};

    fn environment(vars: &[(&str, &str)]) -> Environment {
        let vars = vars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Environment::from_vars(BTreeMap::from_iter(vars))
    }

    #[test]
    fn own_engine_is_queried() {
        let name = |vars: &[(&str, &str)]| {
            chosen(&environment(vars)).map(|by| match by {
                Searcher::Engine(engine, _) => engine.name,
                Searcher::Provider => "provider",
            })
        };
        assert_eq!(name(&[]), Some("provider"));
        assert_eq!(name(&[("KAGI_API_KEY", " ")]), Some("provider"));
        assert_eq!(
            name(&[
                ("KAGI_API_KEY", "k"),
                ("ADJUTANT_WEBSEARCH_PROVIDER", "model")
            ]),
            Some("provider")
        );
        assert!(
            !is_available(&environment(&[]), || false) && is_available(&environment(&[]), || true)
        );
        assert!(is_available(&environment(&[("KAGI_API_KEY", "k")]), || {
            false
        }));
        assert_eq!(
            name(&[("BRAVE_SEARCH_API_KEY", "k"), ("SEARXNG_URL", "http://s")]),
            Some("brave")
        );
        let both = [("EXA_API_KEY", "k"), ("KAGI_API_KEY", "k")];
        assert_eq!(name(&both), Some("exa"));
        assert_eq!(
            name(&[both[0], both[1], ("OPENCODE_WEBSEARCH_PROVIDER", "Kagi")]),
            Some("kagi")
        );
        assert_eq!(
            name(&[both[0], ("ADJUTANT_WEBSEARCH_PROVIDER", "kagi")]),
            None,
            "the named one has no key"
        );
    }

    #[test]
    fn each_engine_gets_its_request_format() {
        for engine in ENGINES {
            let by = Searcher::Engine(engine, "k".into());
            let ready = Ready {
                by,
                query: "a \"b\"".into(),
                count: 3,
            };
            if engine.body.is_empty() {
                assert!(engine.url.contains("{query}"), "{}", engine.name);
            } else {
                let body: Value = serde_json::from_slice(&ready.body(engine).unwrap()).unwrap();
                assert_eq!(body["query"], "a \"b\"", "{}", engine.name);
                assert!(body.to_string().contains(":3"), "{}: {body}", engine.name);
            }
            let [title, url, date, extract] = engine.fields;
            let result = json!({title: "T\u{202e}", url: "https://a.example", date: "2026-01-02", extract: "one\n two"});
            let mut answer = json!([result, {"t": 1}]);
            for key in engine.list.trim_start_matches('/').split('/').rev() {
                answer = json!({key: answer});
            }
            let wanted = "T\nhttps://a.example\nDate: 2026-01-02\none two";
            assert_eq!(shown(&engine.pages(&answer), 3), wanted, "{}", engine.name);
            assert!(
                shown(&engine.pages(&json!({"error": 1})), 3).starts_with("No search results"),
                "{}",
                engine.name
            );
        }
    }

    #[test]
    fn duplicate_pages_are_merged() {
        let page = |title: &str, url: &str, date: &str, extract: &str| FoundPage {
            title: title.into(),
            url: url.into(),
            date: date.into(),
            extract: extract.into(),
        };
        let found = vec![
            page("A", "https://a.example", "May", ""),
            page("B", "https://b.example", "", ""),
            page("", "https://a.example", "", "One."),
            page("A", "https://a.example", "", "Two."),
            page("A", "https://a.example", "", "One."),
            page("nowhere", "", "", "x"),
        ];
        let wanted = "A\nhttps://a.example\nDate: May\nOne. Two.\n\nB\nhttps://b.example";
        assert_eq!(shown(&merged(found), 8), wanted);
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    async fn search_returns_pages() {
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
                lines.push(
                    String::from_utf8_lossy(&request[..read])
                        .lines()
                        .next()
                        .unwrap()
                        .to_owned(),
                );
                let answer = answer.replace(r"\r\n", "\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            lines
        });
        let fixture = TestProject::new();
        let mut context = fixture.context();
        let project = Arc::make_mut(&mut context.project);
        project.environment = project
            .environment
            .with("SEARXNG_URL", &url)
            .with("A_TOKEN", "hunter2hunter2");
        let tool = erase(WebsearchTool);
        let (requests, output) = call(&tool, json!({"query": " ä  & b "}), &context)
            .await
            .unwrap();
        assert_eq!(
            (
                requests[0].permission.as_str(),
                requests[0].patterns[0].as_str()
            ),
            ("websearch", "ä & b")
        );
        assert_eq!(output.text, "T\nhttps://a.example\nx");
        let failure = call(&tool, json!({"query": "c"}), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("searxng answered 403 Forbidden: nope"),
            "{failure}"
        );
        assert_eq!(
            served.await.unwrap()[0],
            "GET /search?q=%C3%A4+%26+b&format=json HTTP/1.1"
        );
        let failure = call(&tool, json!({"query": "what is hunter2hunter2"}), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("it was not sent"), "{failure}");
        assert!(call(&tool, json!({"query": "  "}), &context).await.is_err());
    }
}
