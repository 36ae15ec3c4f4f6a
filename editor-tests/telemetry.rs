//! Traces and metrics as a collector receives them, and the trace contexts that clients send and
//! servers get.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use serde_json::{Value, json};

use crate::client::Client;
use crate::loopback::Server;
use crate::model::{self, Model};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 9] = [
    (
        "turn becomes spans below the client's",
        turn_becomes_spans_below_the_clients,
    ),
    (
        "metrics count tokens, times and cost",
        metrics_count_tokens_times_and_cost,
    ),
    (
        "contents are sent only if the user asks",
        contents_are_sent_only_if_the_user_asks,
    ),
    ("standard variables are used", standard_variables_are_used),
    (
        "project cannot turn it on or redirect it",
        project_cannot_turn_it_on_or_redirect_it,
    ),
    (
        "collector that is away delays nothing",
        collector_that_is_away_delays_nothing,
    ),
    (
        "variables decide which traces are sampled",
        variables_decide_which_traces_are_sampled,
    ),
    (
        "exit in a turn leaves no span without a parent",
        exit_in_a_turn_leaves_no_span_without_a_parent,
    ),
    (
        "trace of the client reaches servers without telemetry",
        trace_of_the_client_reaches_servers_without_telemetry,
    ),
];

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// An MCP server that appends the lines it receives to `calls.txt`.
const SERVER: &str = r#"
said() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  printf '%s\n' "$line" >>calls.txt
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
  *'"method":"initialize"'*)
    said '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}}' ;;
  *'"method":"tools/list"'*) said '{"tools":[{"name":"find","inputSchema":{"type":"object"}}]}' ;;
  *'"method":"tools/call"'*) said '{"content":[{"type":"text","text":"Buy milk."}]}' ;;
  esac
done
"#;

/// Two steps: a call to a server and a subagent, which asks before it writes; then the answer.
const SCRIPT: &str = r#"in: Delegate.
call notes_find {"word":"milk"}
call task {"description":"write a file","prompt":"Write new.txt.","subagent_type":"general"}
usage 100 10
---
in: Write new.txt.
call write {"filePath":"new.txt","content":"secret words\n"}
---
in: Write new.txt.
sees: new.txt
text: Written.
---
in: Delegate.
sees: Written.
text: All done.
usage 200 20
"#;

fn collector() -> Server {
    Server::start(|_| (200, String::new(), String::new()))
}

/// Returns the settings of a user who sends to a collector.
fn settings(collector: &Server, more: &Value) -> Value {
    let headers = json!({ "x-literal": "100%41" });
    let mut telemetry =
        json!({ "enabled": true, "endpoint": collector.base(), "headers": headers });
    for (key, value) in more.as_object().into_iter().flatten() {
        telemetry[key] = value.clone();
    }
    json!({ "telemetry": telemetry })
}

/// Returns a project with the server of notes, and a model that follows the script.
fn project(more: &Value) -> (Project, Model) {
    let model = Model::start(model::script(SCRIPT).unwrap());
    let project = Project::new();
    project.write("server.sh", SERVER);
    let mut settings = json!({
        "mcp": { "notes": { "type": "local", "command": ["sh", "server.sh"] } },
        "permission": { "edit": "ask" },
        "provider": { "bench": { "models": { "bench-model": { "cost": { "input": 10, "output": 100 } } } } },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        settings[key] = value.clone();
    }
    project.provider(&model.base(), &settings);
    (project, model)
}

/// Runs the turn of the script, below a span of the client, and ends the process.
fn run(project: Project) -> (Arc<Project>, Vec<Value>) {
    let mut client = Client::capable(project, &json!({ "session": { "notices": {} } }));
    let session = client.open();
    let meta = json!({
        "traceparent": format!("00-{TRACE}-{SPAN}-01"), "tracestate": "editor=1", "baggage": "user=ann",
    });
    let prompt = json!([{ "type": "text", "text": "Delegate." }]);
    client.request(
        2,
        "session/prompt",
        &json!({ "sessionId": session, "prompt": prompt, "_meta": meta }),
    );
    let mut messages = Vec::new();
    loop {
        let message = client.receive();
        if message["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            client.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome }));
        } else if message["id"] == 2 {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        }
        messages.push(message);
    }
    (client.leave(), messages)
}

/// A span, in the terms of the tests.
#[derive(Debug)]
struct Span {
    name: String,
    trace: String,
    id: String,
    parent: String,
    state: String,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, Value>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plain(value: Option<AnyValue>) -> Value {
    match value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text.into(),
        Some(Any::IntValue(number)) => number.into(),
        Some(Any::DoubleValue(number)) => number.into(),
        Some(Any::ArrayValue(list)) => list
            .values
            .into_iter()
            .map(|one| plain(Some(one)))
            .collect(),
        _ => Value::Null,
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, Value> {
    pairs
        .into_iter()
        .map(|pair| (pair.key, plain(pair.value)))
        .collect()
}

/// Returns the bodies that were sent to a path.
fn bodies(collector: &Server, path: &str) -> Vec<Vec<u8>> {
    collector
        .received()
        .into_iter()
        .filter(|request| request.path() == path)
        .inspect(|request| {
            assert_eq!(
                request.header("content-type"),
                Some("application/x-protobuf")
            );
        })
        .map(|request| request.bytes)
        .collect()
}

/// Returns the attributes of the process and the spans that a collector has received.
fn spans(collector: &Server) -> (BTreeMap<String, Value>, Vec<Span>) {
    let mut resource = BTreeMap::new();
    let mut spans = Vec::new();
    for body in bodies(collector, "/v1/traces") {
        let sent = ExportTraceServiceRequest::decode(&*body).unwrap();
        for group in sent.resource_spans {
            resource = attributes(group.resource.unwrap().attributes);
            for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(Span {
                    name: span.name,
                    trace: hex(&span.trace_id),
                    id: hex(&span.span_id),
                    parent: hex(&span.parent_span_id),
                    state: span.trace_state,
                    start: span.start_time_unix_nano,
                    end: span.end_time_unix_nano,
                    attributes: attributes(span.attributes),
                });
            }
        }
    }
    (resource, spans)
}

/// Returns the names of the spans from one up to the client's.
fn path(spans: &[Span], span: &Span) -> String {
    let mut names = vec![span.name.clone()];
    let mut above = &span.parent;
    while let Some(parent) = spans.iter().find(|other| other.id == *above) {
        names.push(parent.name.clone());
        above = &parent.parent;
    }
    names.push(above.clone());
    names.join(" < ")
}

fn turn_becomes_spans_below_the_clients() {
    let collector = collector();
    let (project, model) = project(&settings(&collector, &json!({})));
    let (project, _) = run(project);
    assert_eq!(model.problems(), Vec::<String>::new());
    let (resource, spans) = spans(&collector);
    assert_eq!(resource["service.name"], "adjutant");
    for request in collector.received() {
        assert_eq!(request.header("x-literal"), Some("100%41"));
    }
    let mut paths: Vec<String> = spans.iter().map(|span| path(&spans, span)).collect();
    paths.sort();
    let turn = format!("invoke_agent build < {SPAN}");
    let child = format!("invoke_agent general < execute_tool task < step < {turn}");
    let mut expected = vec![
        turn.clone(),
        format!("step < {turn}"),
        format!("chat bench-model < step < {turn}"),
        format!("execute_tool notes_find < step < {turn}"),
        format!("execute_tool task < step < {turn}"),
        format!("step < {turn}"),
        format!("chat bench-model < step < {turn}"),
        child.clone(),
        format!("step < {child}"),
        format!("chat bench-model < step < {child}"),
        format!("execute_tool write < step < {child}"),
        format!("question < execute_tool write < step < {child}"),
        format!("step < {child}"),
        format!("chat bench-model < step < {child}"),
    ];
    expected.sort();
    assert_eq!(paths, expected);
    for span in &spans {
        assert_eq!(
            (span.trace.as_str(), span.state.as_str()),
            (TRACE, "editor=1")
        );
        assert!(span.start <= span.end, "{span:?}");
    }
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let turn = named("invoke_agent build");
    for (key, value) in [
        ("gen_ai.operation.name", json!("invoke_agent")),
        ("gen_ai.agent.name", json!("build")),
        ("gen_ai.provider.name", json!("bench")),
        ("gen_ai.request.model", json!("bench-model")),
        ("gen_ai.usage.input_tokens", json!(300)),
        ("gen_ai.usage.output_tokens", json!(30)),
        ("adjutant.turn.outcome", json!("ended")),
        ("adjutant.turn.steps", json!(2)),
        ("adjutant.cost.usd", json!(0.006)),
    ] {
        assert_eq!(turn.attributes.get(key), Some(&value), "{key}: {turn:?}");
    }
    let question = named("question");
    assert_eq!(question.attributes["adjutant.question.permission"], "edit");
    assert_eq!(question.attributes["adjutant.question.reply"], "once");
    let first = spans
        .iter()
        .find(|span| span.attributes.get("gen_ai.usage.input_tokens") == Some(&json!(100)))
        .unwrap();
    assert_eq!(first.name, "chat bench-model");
    assert_eq!(
        first.attributes["gen_ai.response.finish_reasons"],
        json!(["tool_calls"])
    );
    assert!(first.attributes["gen_ai.response.time_to_first_chunk"].is_f64());
    // The server learns the span of the call, in the client's trace.
    let call = called(&project);
    let find = named("execute_tool notes_find");
    assert_eq!(
        call["params"]["_meta"]["traceparent"],
        format!("00-{TRACE}-{}-01", find.id)
    );
    assert_eq!(call["params"]["_meta"]["tracestate"], "editor=1");
    assert_eq!(call["params"]["_meta"]["baggage"], "user=ann");
}

/// Returns the call that the server of notes has received.
fn called(project: &Project) -> Value {
    let calls = std::fs::read_to_string(project.path("calls.txt")).unwrap();
    let line = calls
        .lines()
        .find(|line| line.contains(r#""method":"tools/call""#))
        .unwrap();
    serde_json::from_str(line).unwrap()
}

fn metrics_count_tokens_times_and_cost() {
    let collector = collector();
    let (project, _model) = project(&settings(&collector, &json!({})));
    run(project);
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for body in bodies(&collector, "/v1/metrics") {
        let sent = ExportMetricsServiceRequest::decode(&*body).unwrap();
        let scopes = sent
            .resource_metrics
            .into_iter()
            .flat_map(|group| group.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            match metric.data.unwrap() {
                Data::Histogram(histogram) => {
                    for point in histogram.data_points {
                        let pairs = attributes(point.attributes);
                        let kind = pairs.get("gen_ai.token.type").and_then(Value::as_str);
                        let name = format!("{} {}", metric.name, kind.unwrap_or_default());
                        *sums.entry(name.clone()).or_default() += point.sum.unwrap();
                        *counts.entry(name).or_default() += point.count;
                    }
                }
                Data::Sum(sum) => {
                    for point in sum.data_points {
                        use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
                        if let Some(Number::AsDouble(value)) = point.value {
                            *sums.entry(metric.name.clone()).or_default() += value;
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(sums["gen_ai.client.token.usage input"], 300.0, "{sums:?}");
    assert_eq!(sums["gen_ai.client.token.usage output"], 30.0, "{sums:?}");
    assert!((sums["adjutant.cost"] - 0.006).abs() < 1e-9, "{sums:?}");
    for (name, count) in [
        ("gen_ai.client.operation.duration ", 4),
        ("gen_ai.client.operation.time_to_first_chunk ", 4),
        ("gen_ai.invoke_agent.duration ", 2),
        ("gen_ai.execute_tool.duration ", 3),
    ] {
        assert_eq!(counts.get(name), Some(&count), "{name}: {counts:?}");
    }
}

fn contents_are_sent_only_if_the_user_asks() {
    let table = [(json!({}), false), (json!({ "content": true }), true)];
    for (more, is_sent) in table {
        let collector = collector();
        let (project, _model) = project(&settings(&collector, &more));
        run(project);
        let (_, spans) = spans(&collector);
        let all = format!("{spans:?}");
        for words in ["Delegate.", "All done.", "Buy milk.", "secret words"] {
            assert_eq!(all.contains(words), is_sent, "{words}: {all}");
        }
    }
}

fn standard_variables_are_used() {
    let collector = collector();
    let experimental = json!({ "experimental": { "openTelemetry": true } });
    let (mut sending, _model) = project(&experimental);
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b".to_owned()),
        ("OTEL_SERVICE_NAME", "assistant".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=blue".to_owned()),
    ] {
        sending.set(name, Some(&value));
    }
    run(sending);
    let (resource, spans) = spans(&collector);
    assert!(!spans.is_empty());
    assert_eq!(
        (&resource["service.name"], &resource["team"]),
        (&json!("assistant"), &json!("blue"))
    );
    for request in collector.received() {
        assert_eq!(request.header("x-key"), Some("a b"));
    }
    let before = collector.received().len();
    let (mut disabled, _model) = project(&experimental);
    disabled.set("OTEL_EXPORTER_OTLP_ENDPOINT", Some(&collector.base()));
    disabled.set("OTEL_SDK_DISABLED", Some("true"));
    run(disabled);
    assert_eq!(collector.received().len(), before);
}

fn variables_decide_which_traces_are_sampled() {
    let table = [
        // The client's trace is sampled.
        ("parentbased_always_off", true),
        ("always_off", false),
        ("traceidratio", false),
    ];
    for (sampler, is_sent) in table {
        let collector = collector();
        let (mut sending, _model) = project(&settings(&collector, &json!({})));
        sending.set("OTEL_TRACES_SAMPLER", Some(sampler));
        sending.set("OTEL_TRACES_SAMPLER_ARG", Some("0.0001"));
        let (project, _) = run(sending);
        let (_, spans) = spans(&collector);
        assert_eq!(!spans.is_empty(), is_sent, "{sampler}: {spans:?}");
        // Servers learn the decision, and metrics count all turns.
        let call = called(&project);
        let parent = call["params"]["_meta"]["traceparent"].as_str().unwrap();
        let flags = if is_sent { "-01" } else { "-00" };
        assert!(parent.ends_with(flags), "{sampler}: {parent}");
        assert!(!bodies(&collector, "/v1/metrics").is_empty(), "{sampler}");
    }
}

fn exit_in_a_turn_leaves_no_span_without_a_parent() {
    let collector = collector();
    let script =
        "in: Wait.\ncall notes_find {\"word\":\"milk\"}\n---\nin: Wait.\ntext: I wait.\nhang\n";
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.write("server.sh", SERVER);
    let mut all = settings(&collector, &json!({}));
    all["mcp"] = json!({ "notes": { "type": "local", "command": ["sh", "server.sh"] } });
    project.provider(&model.base(), &all);
    let mut client = Client::capable(project, &json!({ "session": { "notices": {} } }));
    let session = client.open();
    let prompt = json!([{ "type": "text", "text": "Wait." }]);
    client.request(
        2,
        "session/prompt",
        &json!({ "sessionId": session, "prompt": prompt }),
    );
    while client.receive()["params"]["update"]["sessionUpdate"] != "agent_message_chunk" {}
    client.leave();
    let (_, spans) = spans(&collector);
    let named = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!(named("invoke_agent build"), 1, "{spans:?}");
    assert_eq!(named("chat bench-model"), 2, "{spans:?}");
    for span in &spans {
        let is_first = span.name == "invoke_agent build";
        let has_parent = spans.iter().any(|other| other.id == span.parent);
        assert_eq!(has_parent, !is_first, "{span:?}");
        assert!(span.start <= span.end, "{span:?}");
    }
}

fn project_cannot_turn_it_on_or_redirect_it() {
    let own = collector();
    let foreign = collector();
    let demand = json!({
        "telemetry": { "enabled": true, "endpoint": foreign.base(), "content": true },
        "experimental": { "openTelemetry": true },
    });
    for (settings, is_on) in [(json!({}), false), (settings(&own, &json!({})), true)] {
        let (project, _model) = project(&settings);
        project.write("opencode.json", &demand.to_string());
        let (_, messages) = run(project);
        let notices = messages
            .iter()
            .filter(|message| {
                message
                    .to_string()
                    .contains("which traces are sent, and where")
            })
            .count();
        assert_eq!(notices, 1, "{messages:#?}");
        assert_eq!(!own.received().is_empty(), is_on);
        assert!(foreign.received().is_empty());
    }
}

fn collector_that_is_away_delays_nothing() {
    // Accepts connections, and answers none of them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for address in [silent.local_addr().unwrap(), gone] {
        let telemetry = json!({ "enabled": true, "endpoint": format!("http://{address}") });
        let (project, _model) = project(&json!({ "telemetry": telemetry }));
        let started = Instant::now();
        let (project, messages) = run(project);
        // Less than the time that a batch may take.
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        let shown = messages
            .iter()
            .any(|message| message.to_string().contains("traces"));
        assert!(!shown, "{messages:#?}");
        if address == gone {
            let log = project.shell("cat ~/.local/state/adjutant/log/*.log");
            let lines = log
                .lines()
                .filter(|line| line.contains("traces and metrics cannot be sent"));
            assert_eq!(lines.count(), 1, "{log}");
        }
    }
}

fn trace_of_the_client_reaches_servers_without_telemetry() {
    let (project, _model) = project(&json!({}));
    let (project, _) = run(project);
    let meta = &called(&project)["params"]["_meta"];
    assert_eq!(meta["traceparent"], format!("00-{TRACE}-{SPAN}-01"));
    assert_eq!(meta["tracestate"], "editor=1");
    assert_eq!(meta["baggage"], "user=ann");
}
