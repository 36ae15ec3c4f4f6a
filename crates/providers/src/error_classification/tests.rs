use super::*;

fn name(error: &Error) -> &'static str {
    match error {
        Error::RateLimited { .. } => "rate",
        Error::Overloaded { .. } => "busy",
        Error::ContextOverflow(_) => "overflow",
        Error::Auth(_) => "auth",
        Error::NoKey(_) => "keyless",
        Error::WaitsForTrust(_) => "withheld",
        Error::Quota(_) => "quota",
        Error::BadRequest(_) => "bad",
        Error::ImageRejected(_) => "image",
        Error::ContentFiltered(_) => "filtered",
        Error::UntrustedServer(_) => "untrusted",
        Error::ConnectionRefused(_) => "refused",
        Error::Unreachable(_) => "unreachable",
        Error::Network(_) | Error::LocalNetwork(_) => "network",
        Error::Timeout(_) => "stalled",
        Error::InvalidAnswer(_) => "garbled",
        Error::AnswerTooLarge(_) => "too much",
        Error::WebPage(_) => "web page",
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn responses_are_classified() {
    let cases: &[(u16, &str, &str)] = &[
        // Rate limits.
        (
            429,
            r#"{"error":{"message":"Rate limit reached for gpt-5 on tokens per min (TPM)","type":"tokens","code":"rate_limit_exceeded"}}"#,
            "rate",
        ),
        (
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}"#,
            "rate",
        ),
        (
            429,
            r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"23s"}]}}]"#,
            "rate",
        ),
        (429, "", "rate"),
        (400, r#"{"message":"Too many requests, slow down"}"#, "rate"),
        // Busy.
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "busy",
        ),
        (
            503,
            "upstream connect error or disconnect/reset before headers",
            "busy",
        ),
        (
            500,
            r#"{"error":{"message":"The server had an error while processing your request","type":"server_error"}}"#,
            "busy",
        ),
        (502, "<html><title>502 Bad Gateway</title></html>", "busy"),
        (504, "", "busy"),
        (408, "", "busy"),
        // A rejected image.
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5590912 bytes > 5242880 bytes"}}"#,
            "image",
        ),
        (
            400,
            r#"{"error":{"message":"You uploaded an unsupported image. Please make sure your image is valid.","code":"invalid_image_format"}}"#,
            "image",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"Unable to process input image. Please retry or report"}}"#,
            "image",
        ),
        (
            404,
            r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
            "image",
        ),
        (
            400,
            r#"{"error":{"message":"model: llama3 is not a multimodal model"}}"#,
            "image",
        ),
        (
            500,
            r#"{"error":{"message":"image input is not supported - hint: you may need to provide the mmproj"}}"#,
            "image",
        ),
        (
            400,
            r#"{"error":{"message":"the image generation tool is unknown"}}"#,
            "bad",
        ),
        // A conversation that is too long, in a dozen variants.
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 212319 tokens > 200000 maximum"}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again."}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            "overflow",
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"message":"Please reduce the length of the messages or completion."}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"message":"Input is too long for requested model."}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144"}}"#,
            "overflow",
        ),
        (
            400,
            r#"{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough: the prompt is greater than the context length"}"#,
            "overflow",
        ),
        (
            422,
            r#"{"message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}"#,
            "overflow",
        ),
        (
            400,
            r#"{"base_resp":{"status_code":2013},"error":{"message":"invalid params, context window exceeds limit (2013)"}}"#,
            "overflow",
        ),
        // Authentication.
        (
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-***","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            "auth",
        ),
        (
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            "auth",
        ),
        (
            403,
            r#"{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}"#,
            "auth",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
            "auth",
        ),
        (403, "<!DOCTYPE html><html>blocked</html>", "auth"),
        // Quota.
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            "quota",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
            "quota",
        ),
        (
            402,
            r#"{"error":{"message":"Insufficient credits","code":402}}"#,
            "quota",
        ),
        (
            402,
            r#"{"error":{"message":"Insufficient Balance"}}"#,
            "quota",
        ),
        (
            429,
            r#"{"type":"error","error":{"type":"FreeUsageLimitError","message":"Free usage exceeded"}}"#,
            "quota",
        ),
        // Filters.
        (
            400,
            r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","code":"content_filter","status":400}}"#,
            "filtered",
        ),
        (
            400,
            r#"{"error":{"code":"content_policy_violation","message":"Your request was rejected"}}"#,
            "filtered",
        ),
        // Invalid requests.
        (
            400,
            r#"{"error":{"message":"Invalid schema for function 'x'","type":"invalid_request_error"}}"#,
            "bad",
        ),
        (
            404,
            r#"{"error":{"message":"The model `gpt-9` does not exist or you do not have access to it.","code":"model_not_found"}}"#,
            "bad",
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
            "bad",
        ),
        (404, "404 page not found", "bad"),
        (
            400,
            r#"{"error":{"message":"registry.ollama.ai/library/gemma3:1b does not support tools","type":"api_error","param":null,"code":null}}"#,
            "bad",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"Unsupported parameter: 'top_k'\"}}"}}}"#,
            "bad",
        ),
        (
            400,
            r#"{"error":{"message":"The model is overloaded, please retry your request","type":"api_error"}}"#,
            "busy",
        ),
        (
            422,
            r#"{"detail":[{"loc":["body","messages"],"msg":"field required"}]}"#,
            "bad",
        ),
        (
            422,
            r#"{"detail":[{"loc":["body","tools",3,"function","parameters"],"msg":"no array"}]}"#,
            "bad",
        ),
        (301, "", "bad"),
        (407, "", "network"),
    ];
    for (status, body, expected) in cases {
        let error = classify_response("Acme", *status, &HeaderMap::new(), body, Timestamp(0));
        assert_eq!(name(&error), *expected, "{status} {body}: {error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("Acme answered {status}")),
            "{error}"
        );
    }
}

/// Tests that a message about a full context window needs three things: too much, of the input,
/// counted in tokens.
#[test]
fn full_context_window_is_recognised() {
    let full = [
        "The input (40321 tokens) is longer than the model's context length (32768 tokens).",
        "The prompt (total length 9000) is too long to fit into the model (context length 8192).",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        "Prompt exceeds max length",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4130",
        "Trying to keep the first 5000 tokens when context the overflows.",
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        "This conversation does not fit into the window: 9000 tokens",
    ];
    let other = [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens",
        "Invalid 'input[3].id': string too long. Expected a string with maximum length 64, but got a string with length 70 instead.",
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64.",
        "thinking.budget_tokens: Input should be greater than or equal to 1024",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "Too many images in the prompt: 30 exceeds the limit of 20",
        "tools: 129 exceeds the maximum of 128",
    ];
    for (words, expected) in full
        .map(|words| (words, "overflow"))
        .into_iter()
        .chain(other.map(|words| (words, "bad")))
    {
        let body = serde_json::json!({ "error": { "message": words } });
        let error = classify_response(
            "Acme",
            400,
            &HeaderMap::new(),
            &body.to_string(),
            Timestamp(0),
        );
        assert_eq!(name(&error), expected, "{words}: {error}");
        let inside = classify_event(
            "Acme",
            &serde_json::json!({ "message": words, "type": "invalid_request_error" }),
        );
        assert_eq!(name(&inside), expected, "{words}: {inside}");
    }
}

#[test]
fn error_events_are_classified() {
    let cases = [
        (
            r#"{"type":"overloaded_error","message":"Overloaded"}"#,
            "busy",
        ),
        (
            r#"{"type":"api_error","message":"Internal server error"}"#,
            "busy",
        ),
        (r#"{"code":429,"message":"Rate limited upstream"}"#, "rate"),
        (
            r#"{"code":502,"message":"Upstream died","metadata":{"provider_name":"x"}}"#,
            "busy",
        ),
        (
            r#"{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}"#,
            "overflow",
        ),
        (
            r#"{"code":"insufficient_quota","message":"quota"}"#,
            "quota",
        ),
        (r#"{"code":"rate_limit_exceeded","message":"slow"}"#, "rate"),
        (
            r#"{"type":"invalid_request_error","message":"messages.3: tool_use ids must be unique"}"#,
            "bad",
        ),
        (
            r#"{"type":"invalid_request_error","message":"prompt is too long: 2 tokens > 1 maximum"}"#,
            "overflow",
        ),
        (
            r#"{"type":"authentication_error","message":"key revoked"}"#,
            "auth",
        ),
        (r#""what a strange error""#, "busy"),
        ("{}", "busy"),
    ];
    for (body, expected) in cases {
        let error = classify_event("Acme", &serde_json::from_str(body).unwrap());
        assert_eq!(name(&error), expected, "{body}: {error}");
        assert!(error.to_string().starts_with("Acme broke off"), "{error}");
    }
}

#[test]
fn requested_wait_is_parsed() {
    let now = Timestamp(1_795_252_200_000);
    type Row<'a> = (&'a [(&'a str, &'a str)], Option<u64>);
    let cases: &[Row<'_>] = &[
        (&[("retry-after", "7")], Some(7000)),
        (&[("retry-after", "0.5")], Some(500)),
        (
            &[("retry-after-ms", "250"), ("retry-after", "7")],
            Some(250),
        ),
        (
            &[("retry-after", "Sat, 21 Nov 2026 09:10:20 GMT")],
            Some(20_000),
        ),
        (&[("retry-after", "Sat, 21 Nov 2020 09:10:20 GMT")], None),
        (&[("retry-after", "2147483647")], Some(1_000_000_000_000)),
        (&[("retry-after", "-5")], None),
        (&[("retry-after", "NaN")], None),
        (&[("retry-after", "soon")], None),
        (&[], None),
    ];
    for (headers, expected) in cases {
        let mut map = HeaderMap::new();
        for (name, value) in *headers {
            map.insert(*name, value.parse().unwrap());
        }
        let error = classify_response("Acme", 429, &map, "", now);
        assert_eq!(
            error.retry_after().map(|w| w.as_millis() as u64),
            *expected,
            "{headers:?}"
        );
    }
    let mut map = HeaderMap::new();
    map.insert("retry-after", "10800".parse().unwrap());
    assert!(
        classify_response("Acme", 429, &map, "", now)
            .to_string()
            .ends_with("It asks to wait 3 hours.")
    );
}

#[test]
fn excerpt_is_short_and_escaped() {
    let page = format!("<html>\u{1b}[31m{}</html>", "x".repeat(5000));
    let error = classify_response("Acme", 500, &HeaderMap::new(), &page, Timestamp(0)).to_string();
    assert!(error.len() < 400 && !error.contains('\u{1b}'), "{error}");
    let long = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "y".repeat(5000));
    assert!(
        classify_response("Acme", 400, &HeaderMap::new(), &long, Timestamp(0))
            .to_string()
            .len()
            < 800
    );
}

#[test]
fn message_names_the_part_of_the_request() {
    let table = [
        (
            r#"{"detail":[{"loc":["body","tools",3,"function","parameters"],"msg":"no array"}]}"#,
            "body.tools.3.function.parameters: no array.",
        ),
        (r#"{"detail":[{"msg":"no array"}]}"#, "no array."),
        (
            r#"{"error":{"message":"No array.","param":"tools[3].function.parameters"}}"#,
            "No array (tools[3].function.parameters).",
        ),
        (
            r#"{"error":{"message":"Invalid 'tools[3].name': no.","param":"tools[3].name"}}"#,
            "Invalid 'tools[3].name': no.",
        ),
        (
            r#"{"error":{"message":"No number.","param":"temperature"}}"#,
            "No number.",
        ),
    ];
    for (body, wanted) in table {
        let error =
            classify_response("Acme", 400, &HeaderMap::new(), body, Timestamp(0)).to_string();
        let message = error.strip_prefix("Acme answered 400 Bad Request: ");
        assert_eq!(message, Some(wanted), "{body}: {error}");
    }
}
