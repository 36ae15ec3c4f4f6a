use futures_util::StreamExt;

use super::*;
use crate::custom_endpoint::CustomEndpoint;
use crate::editor_endpoints::EditorEndpoint;
use crate::scripted::{ScriptedAnswer, ScriptedProvider};
use crate::wire_format::single_entry;
use crate::{Delta, Error, Request, request};
use transcript::Finish;

fn environment(vars: &[(&str, &str)]) -> Environment {
    let vars = vars
        .iter()
        .chain(&[("HOME", "/proc/nobody")])
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
    Environment::from_vars(vars.collect())
}

fn model(key: &str) -> ModelEntry {
    ModelEntry {
        key: key.into(),
        ..Default::default()
    }
}

fn provider(id: &str, models: &[&str]) -> ProviderEntry {
    ProviderEntry {
        id: id.into(),
        base_url: Some("http://127.0.0.1:9/v1".into()),
        models: models.iter().map(|key| model(key)).collect(),
        ..Default::default()
    }
}

const CATALOGUE: &str = r#"{"acme": {"name": "Acme", "env": ["ACME_KEY"], "api": "http://127.0.0.1:9/v1", "models": {
    "gpt-5": {"id": "gpt-5", "release_date": "2025-08-07"},
    "gpt-5-nano": {"id": "gpt-5-nano", "release_date": "2025-08-07"},
    "gpt-4-nano": {"id": "gpt-4-nano", "release_date": "2025-01-01"},
    "soon": {"id": "soon", "status": "alpha"},
    "thinker": {"id": "thinker", "reasoning": true}}},
    "opencode": {"env": ["OPENCODE_API_KEY"], "api": "https://opencode.example/v1", "models": {
        "big-pickle": {"id": "big-pickle", "cost": {"input": 0, "output": 0}},
        "dear": {"id": "dear", "cost": {"input": 1, "output": 2}}}},
    "gitlab": {"env": ["GITLAB_TOKEN"], "npm": "gitlab-ai-provider", "models": {"m": {"id": "m"}}}}"#;

fn registry(configured: Vec<ProviderEntry>, vars: &[(&str, &str)]) -> Registry {
    let environment = environment(vars);
    Registry::new(RegistrySources {
        configured,
        local: Vec::new(),
        catalog: &Arc::new(Catalog::parse(CATALOGUE).unwrap()),
        disabled: &["off".into()],
        enabled: None,
        includes_keyless: false,
        auth: &Auth::parse(r#"{"kept":{"type":"api","key":"k"}}"#),
        environment: &environment,
        client: Arc::new(HttpClient::new(&environment)),
        public_client: Arc::new(HttpClient::new(&environment)),
        editor: &EditorEndpoints::default(),
        offline: ScriptedProvider::new([ScriptedAnswer::text("nobody")]),
    })
}

fn names(registry: &Registry) -> Vec<String> {
    registry.models().iter().map(|m| m.id.to_string()).collect()
}

fn wanted(name: &str) -> ModelRef {
    ModelRef::parse(name).unwrap()
}

#[test]
fn providers_are_ranked_by_configuration_and_key() {
    let bare = registry(Vec::new(), &[("GITLAB_TOKEN", "of something else")]);
    assert_eq!(names(&bare), ["offline/offline"]);
    assert!(bare.is_offline_only());
    assert_eq!(bare.default_model().id.to_string(), "offline/offline");

    let by_key = registry(Vec::new(), &[("ACME_KEY", "k")]);
    let all = [
        "acme/gpt-4-nano",
        "acme/gpt-5",
        "acme/gpt-5-nano",
        "acme/thinker",
        "offline/offline",
    ];
    assert_eq!(names(&by_key), all);
    assert_eq!(by_key.default_model().id.model, "gpt-5");
    assert_eq!(
        by_key.small_model(&wanted("acme/gpt-5")).unwrap().model,
        "gpt-5-nano"
    );

    let narrowed = ProviderEntry {
        whitelist: Some(vec!["gpt-5".into(), "mine".into()]),
        ..provider("acme", &["mine"])
    };
    let narrowed = registry(
        vec![narrowed, provider("off", &["x"])],
        &[("ACME_KEY", "k")],
    );
    assert_eq!(
        names(&narrowed),
        ["acme/gpt-5", "acme/mine", "offline/offline"]
    );

    // A configured provider precedes one that merely has a key in the environment.
    let own = registry(
        vec![provider("own", &["a", "b-latest", "c"])],
        &[("ACME_KEY", "k")],
    );
    assert_eq!(own.default_model().id.to_string(), "own/b-latest");
}

#[test]
fn missing_model_is_reported_with_similar_names() {
    let registry = registry(
        vec![provider("own", &["qwen3-coder:30b"])],
        &[("ACME_KEY", "k")],
    );
    let near = |name: &str| registry.find(&wanted(name)).err().unwrap();
    assert_eq!(near("acme/gtp-5").nearest[0], "acme/gpt-5");
    assert_eq!(near("own/qwen3-coder").nearest, ["own/qwen3-coder:30b"]);
    assert_eq!(near("amce/gpt-5").nearest[0], "acme/gpt-5");
    assert!(near("x/completely-different-thing").nearest.is_empty());
    for (name, expected) in [
        ("gpt-5", "acme/gpt-5"),
        ("qwen3", "own/qwen3-coder:30b"),
        ("nano", "acme/gpt-5-nano"),
        ("nanno", "acme/gpt-5-nano"),
        ("qwne3-codr", "own/qwen3-coder:30b"),
        ("acme", "acme/gpt-5"),
    ] {
        assert_eq!(registry.nearest(name)[0], expected, "{name}");
    }
    let text = near("acme/gtp-5").to_string();
    assert!(
        text.starts_with("There is no model \"acme/gtp-5\" here. Did you mean acme/gpt-5"),
        "{text}"
    );
}

#[test]
fn unsupported_effort_is_left_out() {
    let mut tuned = model("tuned");
    tuned.reasoning = Some(true);
    tuned.variants = vec![
        ("low".into(), None),
        ("huge".into(), Some(single_entry("budget", 9))),
    ];
    let configured = ProviderEntry {
        models: vec![tuned],
        ..provider("own", &[])
    };
    let registry = registry(vec![configured], &[("ACME_KEY", "k")]);
    let efforts = |name: &str| registry.find(&wanted(name)).unwrap().0.efforts.clone();
    assert_eq!(efforts("acme/gpt-5"), [""; 0]);
    assert_eq!(efforts("acme/thinker"), ["low", "medium", "high"]);
    assert_eq!(efforts("own/tuned"), ["medium", "high", "huge"]);
    let chosen = |effort: &str| ModelRef {
        effort: Some(effort.into()),
        ..wanted("own/tuned")
    };
    assert_eq!(
        registry
            .find(&chosen("huge"))
            .unwrap()
            .0
            .id
            .effort
            .as_deref(),
        Some("huge")
    );
    assert_eq!(registry.find(&chosen("low")).unwrap().0.id.effort, None);
}

fn stream(registry: &Registry, name: &str) -> crate::AnswerStream {
    let (model, provider) = registry.find(&wanted(name)).unwrap();
    provider.stream(Arc::new(Request {
        model,
        system: Vec::new(),
        messages: vec![request::ModelMessage::User(vec![
            request::ModelInput::Text("hi".into()),
        ])],
        tools: Vec::new(),
        must_call: false,
        params: request::ModelParams::default(),
        session: String::new(),
        body_cache: request::BodyCache::default(),
    }))
}

#[tokio::test]
async fn unusable_provider_reports_the_missing_setting() {
    let nowhere = ProviderEntry {
        base_url: None,
        ..provider("nowhere", &["m"])
    };
    let half = ProviderEntry {
        base_url: Some("http://${SOME_HOST}/v1".into()),
        ..provider("half", &["m"])
    };
    let acme = ProviderEntry {
        base_url: Some("https://acme.example/v1".into()),
        ..provider("acme", &[])
    };
    let registry = registry(vec![acme, nowhere, half, provider("open", &[])], &[]);
    let cases = [
        (
            "acme/gpt-5",
            "There is no key for Acme. Set ACME_KEY, or run `adjutant auth login acme`.",
        ),
        (
            "nowhere/m",
            "The provider \"nowhere\" has no address. Set provider.nowhere.options.baseURL in the configuration.",
        ),
        (
            "half/m",
            "The address of the provider \"half\" needs the variable SOME_HOST, which is not set.",
        ),
    ];
    for (name, expected) in cases {
        let error = stream(&registry, name).next().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    // A provider without a list of models accepts any name; this one does not exist at all.
    let error = stream(&registry, "open/whatever")
        .next()
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        Error::ConnectionRefused(
            "open is not running at 127.0.0.1:9. The address is http://127.0.0.1:9/v1/chat/completions. \
             Start it, correct provider.open.options.baseURL in the configuration, or choose another model (`adjutant models`)."
                .into()
        )
    );
    let answer: Vec<_> = stream(&registry, "offline/offline").collect().await;
    assert_eq!(answer.last(), Some(&Ok(Delta::Finish(Finish::Stop))));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a task of a test")]
async fn keys_are_redacted_in_errors() {
    let reply = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 31\r\nconnection: close\r\n\r\nIncorrect API key: sk-secret-k1";
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
        let _ = socket.write_all(reply.as_bytes()).await;
    });
    let own = ProviderEntry {
        base_url: Some(base.clone()),
        api_key: Some(Secret::new("sk-secret-k1")),
        ..provider("own", &["m"])
    };
    let error = stream(&registry(vec![own], &[]), "own/m")
        .next()
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error,
        Error::Auth(format!(
            "own answered 401 Unauthorized: Incorrect API key: [key]. The request went to {base}/chat/completions \
             with the key from the settings."
        ))
    );
}

#[test]
fn local_server_needs_no_key() {
    let access = |base: &str| {
        let mine = ProviderEntry {
            base_url: Some(base.into()),
            env: vec!["MINE_KEY".into()],
            ..provider("mine", &["m"])
        };
        registry(vec![mine], &[])
            .providers()
            .iter()
            .find(|found| found.id == "mine")
            .unwrap()
            .access
            .clone()
    };
    for base in [
        "http://127.0.0.1:1234/v1",
        "http://localhost:1234/v1",
        "http://[::1]:1234/v1",
    ] {
        assert_eq!(access(base), KeySource::NotNeeded, "{base}");
    }
    for base in [
        "https://api.mine.example/v1",
        "http://localhost.example/v1",
        "http://10.0.0.1/v1",
    ] {
        assert!(matches!(access(base), KeySource::Missing(_)), "{base}");
    }
}

#[test]
fn known_provider_without_key_differs_from_unknown_one() {
    let registry = registry(vec![], &[]);
    let error = |name: &str| registry.find(&wanted(name)).err().unwrap().to_string();
    let keyless = "There is no key for Acme. Set ACME_KEY, or run `adjutant auth login acme`.";
    assert_eq!(
        error("acme/gpt-5"),
        format!("The model \"acme/gpt-5\" cannot be used. {keyless}")
    );
    assert!(
        error("nobody/m")
            .starts_with("There is no model \"nobody/m\" here, and no provider \"nobody\".")
    );
}

/// Tests that the remedy names the variables that have an effect, and only those.
#[test]
fn missing_key_names_the_variables_that_are_used() {
    /// A provider, the variables that are set, and the reason why it cannot be used.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], String);
    let bedrock = "There is no key for Amazon Bedrock. Set AWS_BEARER_TOKEN_BEDROCK, or run \
                   `adjutant auth login amazon-bedrock`.";
    let vertex = "There is no access to Vertex. Set GOOGLE_VERTEX_ACCESS_TOKEN to what `gcloud auth \
                  print-access-token` prints, or GOOGLE_VERTEX_API_KEY.";
    let claude = "There is no access to Claude on Vertex. Set GOOGLE_VERTEX_ACCESS_TOKEN to what \
                  `gcloud auth print-access-token` prints, and GOOGLE_VERTEX_PROJECT to your project.";
    let signature = [
        ("AWS_ACCESS_KEY_ID", "i"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let unused = "are set, but adjutant does not use them.";
    let account = [("GOOGLE_APPLICATION_CREDENTIALS", "/account.json")];
    let file = "GOOGLE_APPLICATION_CREDENTIALS is set, but adjutant does not use it.";
    let table: &[Case<'_>] = &[
        ("amazon-bedrock", &[], bedrock.to_owned()),
        (
            "amazon-bedrock",
            &signature,
            format!("{bedrock} AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY {unused}"),
        ),
        (
            "github-copilot",
            &[("GITHUB_TOKEN", "t")],
            "There is no key for GitHub Copilot. Run `adjutant auth login github-copilot`. \
             GITHUB_TOKEN is set, but adjutant does not use it."
                .into(),
        ),
        ("google-vertex", &[], vertex.to_owned()),
        ("google-vertex", &account, format!("{vertex} {file}")),
        (
            "google-vertex-anthropic",
            &account,
            format!("{claude} {file}"),
        ),
        (
            "google-vertex-anthropic",
            &[("GOOGLE_VERTEX_API_KEY", "k")],
            claude.to_owned(),
        ),
        (
            "azure",
            &[("AZURE_RESOURCE_NAME", "r")],
            "There is no key for Azure. Set AZURE_API_KEY, or run `adjutant auth login azure`.".into(),
        ),
        (
            "cloudflare-workers-ai",
            &[("CLOUDFLARE_ACCOUNT_ID", "a")],
            "There is no key for Cloudflare Workers AI. Set CLOUDFLARE_API_KEY, or run `adjutant auth \
             login cloudflare-workers-ai`."
                .into(),
        ),
        (
            "google",
            &[],
            "There is no key for Google. Set GOOGLE_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY or \
             GEMINI_API_KEY, or run `adjutant auth login google`."
                .into(),
        ),
    ];
    let catalog = Arc::new(Catalog::bundled());
    for (provider, vars, expected) in table {
        let environment = environment(vars);
        let listed = unconfigured(&catalog, Vec::new(), &environment);
        let name = format!("{provider}/m");
        let error = listed.find(&wanted(&name)).err().unwrap().to_string();
        assert_eq!(
            error,
            format!("The model \"{name}\" cannot be used. {expected}")
        );
        // The same sentences if the provider is in the settings.
        let configured = Registry::new(RegistrySources {
            configured: vec![ProviderEntry {
                id: (*provider).to_owned(),
                ..Default::default()
            }],
            local: Vec::new(),
            catalog: &catalog,
            disabled: &[],
            enabled: None,
            includes_keyless: false,
            auth: &Auth::parse("{}"),
            environment: &environment,
            client: Arc::new(HttpClient::new(&environment)),
            public_client: Arc::new(HttpClient::new(&environment)),
            editor: &EditorEndpoints::default(),
            offline: ScriptedProvider::new([ScriptedAnswer::text("nobody")]),
        });
        let access = configured
            .providers()
            .first()
            .map(|found| found.access.clone());
        assert_eq!(access, Some(KeySource::Missing(expected.clone())));
    }
}

/// Tests that a variable named as the remedy is one.
#[test]
fn token_of_vertex_is_a_key() {
    let catalog = Arc::new(Catalog::bundled());
    for variable in ["GOOGLE_VERTEX_ACCESS_TOKEN", "GOOGLE_VERTEX_API_KEY"] {
        let environment = environment(&[(variable, "t")]);
        let registry = unconfigured(&catalog, Vec::new(), &environment);
        let default = registry.default_model().id.to_string();
        assert!(
            default.starts_with("google-vertex"),
            "{variable}: {default}"
        );
    }
}

#[test]
fn login_of_a_plugin_is_no_missing_key() {
    let environment = environment(&[]);
    let with = |lent: bool| {
        Registry::new(RegistrySources {
            configured: Vec::new(),
            local: Vec::new(),
            catalog: &Arc::new(Catalog::parse(CATALOGUE).unwrap()),
            disabled: &[],
            enabled: None,
            includes_keyless: false,
            auth: &Auth::parse(r#"{"acme":{"type":"oauth","refresh":"r","access":"a"}}"#)
                .with_plugin_logins(lent),
            environment: &environment,
            client: Arc::new(HttpClient::new(&environment)),
            public_client: Arc::new(HttpClient::new(&environment)),
            editor: &EditorEndpoints::default(),
            offline: ScriptedProvider::new([ScriptedAnswer::text("nobody")]),
        })
    };
    let lent = with(true);
    let alone = with(false);
    assert!(lent.may_serve_plugin("acme") && lent.find(&wanted("acme/gpt-5")).is_ok());
    // It is not listed; it must be named.
    assert!(!names(&lent).contains(&"acme/gpt-5".to_owned()));
    assert!(!alone.may_serve_plugin("acme") && alone.find(&wanted("acme/gpt-5")).is_err());
}

#[test]
fn free_models_of_opencode_must_be_named() {
    let registry = registry(vec![], &[]);
    assert!(registry.find(&wanted("opencode/big-pickle")).is_ok());
    let missing = registry.find(&wanted("opencode/dear")).err().unwrap();
    assert!(
        missing.to_string().contains("Set OPENCODE_API_KEY"),
        "{missing}"
    );
    assert!(
        names(&registry)
            .iter()
            .all(|name| !name.starts_with("opencode/")),
        "never by itself"
    );
}

/// Returns the models of a user without settings for providers.
fn unconfigured(
    catalog: &Arc<Catalog>,
    local: Vec<ProviderEntry>,
    environment: &Environment,
) -> Registry {
    Registry::new(RegistrySources {
        configured: Vec::new(),
        local,
        catalog,
        disabled: &[],
        enabled: None,
        includes_keyless: false,
        auth: &Auth::parse("{}"),
        environment,
        client: Arc::new(HttpClient::new(environment)),
        public_client: Arc::new(HttpClient::new(environment)),
        editor: &EditorEndpoints::default(),
        offline: ScriptedProvider::new([ScriptedAnswer::text("nobody")]),
    })
}

/// Tests the choice for users with one key, for the best-known providers of the bundled catalogue,
/// and with two.
#[test]
fn default_model_is_one_that_a_person_would_choose() {
    let table = [
        ("ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5"),
        ("OPENAI_API_KEY", "openai/gpt-5.6"),
        ("GEMINI_API_KEY", "google/gemini-2.5-pro"),
        ("OPENROUTER_API_KEY", "openrouter/anthropic/claude-sonnet-5"),
        ("MISTRAL_API_KEY", "mistral/mistral-medium-latest"),
        ("GROQ_API_KEY", "groq/qwen/qwen3.6-27b"),
        ("XAI_API_KEY", "xai/grok-4.6"),
        ("DEEPSEEK_API_KEY", "deepseek/deepseek-v4-pro"),
        ("TOGETHER_API_KEY", "togetherai/moonshotai/Kimi-K3"),
        (
            "FIREWORKS_API_KEY",
            "fireworks-ai/accounts/fireworks/models/kimi-k3",
        ),
        ("CEREBRAS_API_KEY", "cerebras/gpt-oss-120b"),
        ("DEEPINFRA_API_KEY", "deepinfra/moonshotai/Kimi-K3"),
        ("COHERE_API_KEY", "cohere/command-a-plus-05-2026"),
        ("OPENCODE_API_KEY", "opencode/claude-sonnet-5"),
        ("AI_GATEWAY_API_KEY", "vercel/anthropic/claude-sonnet-5"),
        ("HF_TOKEN", "huggingface/moonshotai/Kimi-K3"),
        ("NVIDIA_API_KEY", "nvidia/moonshotai/kimi-k3"),
        ("DASHSCOPE_API_KEY", "alibaba-cn/kimi-k2.6"),
        ("MOONSHOT_API_KEY", "moonshotai/kimi-k3"),
        ("MINIMAX_API_KEY", "minimax/MiniMax-M3"),
        ("NEBIUS_API_KEY", "nebius/moonshotai/Kimi-K3"),
        ("NOVITA_API_KEY", "novita-ai/moonshotai/kimi-k3"),
        ("SILICONFLOW_API_KEY", "siliconflow/moonshotai/Kimi-K2.6"),
        ("VENICE_API_KEY", "venice/claude-sonnet-5"),
        ("BASETEN_API_KEY", "baseten/moonshotai/Kimi-K3"),
        ("CHUTES_API_KEY", "chutes/moonshotai/Kimi-K3-TEE"),
        ("SCALEWAY_API_KEY", "scaleway/glm-5.2"),
        ("REQUESTY_API_KEY", "requesty/claude-sonnet-5"),
        ("KIMI_API_KEY", "kimi-for-coding/k3"),
        ("OLLAMA_API_KEY", "ollama-cloud/kimi-k3"),
        ("GOOGLE_VERTEX_API_KEY", "google-vertex/gemini-2.5-pro"),
        ("ZHIPU_API_KEY", "zhipuai/glm-5.2"),
        ("GITHUB_TOKEN", "offline/offline"),
        (
            "ANTHROPIC_API_KEY GITHUB_TOKEN",
            "anthropic/claude-sonnet-5",
        ),
        (
            "ANTHROPIC_API_KEY OPENROUTER_API_KEY",
            "anthropic/claude-sonnet-5",
        ),
        (
            "ANTHROPIC_API_KEY AI_GATEWAY_API_KEY",
            "anthropic/claude-sonnet-5",
        ),
        ("OPENAI_API_KEY OPENROUTER_API_KEY", "openai/gpt-5.6"),
        (
            "MISTRAL_API_KEY OPENROUTER_API_KEY",
            "mistral/mistral-medium-latest",
        ),
        ("GEMINI_API_KEY GROQ_API_KEY", "google/gemini-2.5-pro"),
    ];
    let catalog = Arc::new(Catalog::bundled());
    for (variables, expected) in table {
        let set: Vec<_> = variables.split(' ').map(|name| (name, "k")).collect();
        let environment = environment(&set);
        let registry = unconfigured(&catalog, Vec::new(), &environment);
        assert_eq!(
            registry.default_model().id.to_string(),
            expected,
            "{variables}"
        );
    }
}

#[test]
fn local_model_without_tools_is_no_default() {
    let with = |models: Vec<ModelEntry>, vars: &[(&str, &str)]| {
        let environment = environment(vars);
        let ollama = ProviderEntry {
            id: "ollama".into(),
            base_url: Some("http://127.0.0.1:11434/v1".into()),
            models,
            ..ProviderEntry::default()
        };
        let catalog = Arc::new(Catalog::parse(CATALOGUE).unwrap());
        unconfigured(&catalog, vec![ollama], &environment)
    };
    let deaf = || ModelEntry {
        tool_call: Some(false),
        ..model("llama3.2:latest")
    };
    let default = |registry: &Registry| registry.default_model().id.to_string();
    assert_eq!(default(&with(vec![deaf()], &[])), "offline/offline");
    let both = with(vec![deaf(), model("qwen3-coder:30b")], &[]);
    assert_eq!(default(&both), "ollama/qwen3-coder:30b");
    assert!(both.is_only_local() && both.find(&wanted("ollama/llama3.2:latest")).is_ok());
    // A key was given on purpose.
    let keyed = with(vec![model("qwen3-coder:30b")], &[("ACME_KEY", "k")]);
    assert_eq!(default(&keyed), "acme/gpt-5");
    assert!(!keyed.is_only_local());
    let missing = keyed.find(&wanted("lmstudio/x")).err().unwrap().to_string();
    assert_eq!(
        missing,
        "The model \"lmstudio/x\" cannot be used. LM Studio does not answer at 127.0.0.1:1234: start it with \
         `lms server start`, or choose another model (`adjutant models`)."
    );
}

/// Returns the providers of a user with a key for Acme, with the changes of an editor.
fn with_editor(editor: &EditorEndpoints) -> Registry {
    let environment = environment(&[("ACME_KEY", "users-key")]);
    Registry::new(RegistrySources {
        configured: Vec::new(),
        local: Vec::new(),
        catalog: &Arc::new(Catalog::parse(CATALOGUE).unwrap()),
        disabled: &["opencode".into()],
        enabled: None,
        includes_keyless: false,
        auth: &Auth::parse("{}"),
        environment: &environment,
        client: Arc::new(HttpClient::new(&environment)),
        public_client: Arc::new(HttpClient::new(&environment)),
        editor,
        offline: ScriptedProvider::new([ScriptedAnswer::text("nobody")]),
    })
}

fn at_gateway() -> EditorEndpoint {
    let header = ("Authorization".to_owned(), "Bearer editors-key".to_owned());
    let endpoint = CustomEndpoint::new(ApiType::OpenAi, "https://gw.example/v1", [header]);
    EditorEndpoint::Set(Arc::new(endpoint.unwrap()))
}

#[test]
fn endpoint_of_the_editor_replaces_the_users() {
    let mine = with_editor(&EditorEndpoints::default());
    let facts = |registry: &Registry| registry.providers()[0].access.clone();
    assert_eq!(facts(&mine), KeySource::Variable("ACME_KEY".into()));
    let listed = |registry: &Registry| registry.configurable().to_vec();
    let acme = |current: Option<&str>| ConfigurableProvider {
        id: "acme".into(),
        supported: vec![ApiType::OpenAi, ApiType::Anthropic],
        current: current.map(|address| (ApiType::OpenAi, address.to_owned())),
    };
    assert_eq!(listed(&mine), [acme(Some("http://127.0.0.1:9/v1"))]);

    let moved = with_editor(&EditorEndpoints::default().with("acme", at_gateway()));
    assert_eq!(facts(&moved), KeySource::Editor);
    assert_eq!(listed(&moved), [acme(Some("https://gw.example/v1"))]);
    for name in ["acme/gpt-5", "acme/of-the-gateway"] {
        let (model, _) = moved.find(&wanted(name)).ok().unwrap();
        assert_eq!(
            model.editor_address.as_deref(),
            Some("https://gw.example/v1")
        );
    }

    let disabled = EditorEndpoints::default().with("acme", EditorEndpoint::Disabled);
    let off = with_editor(&disabled);
    assert_eq!(listed(&off), [acme(None)]);
    let error = off.find(&wanted("acme/gpt-5")).err().unwrap().to_string();
    assert_eq!(
        error,
        "The model \"acme/gpt-5\" cannot be used. The editor has disabled Acme for this connection."
    );
}

#[test]
fn endpoint_of_a_disabled_provider_is_not_used() {
    let editor = EditorEndpoints::default().with("opencode", at_gateway());
    let registry = with_editor(&editor);
    assert!(registry.find(&wanted("opencode/dear")).is_err());
}
