//! Results of `adjutant run --schema`.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::model::{self, Model};
use crate::project::Project;

/// Runs a prompt with a schema against a script.
fn run(schema: &str, script: &str, more: &[&str]) -> Output {
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    project.write("shape.json", schema);
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(["run", "--schema", "shape.json"])
        .args(more)
        .arg("Where does it listen?");
    let output = command
        .current_dir(project.cwd())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(model.problems(), Vec::<String>::new(), "{output:?}");
    output
}

/// Returns standard error without the line that names the session.
fn stderr_without_session(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr
        .lines()
        .filter(|line| !line.starts_with("session ses_"))
        .map(str::to_owned)
        .collect()
}

/// Works first, gives text in between, and one result that does not fit: the printed JSON fits.
pub fn a_result_that_fits() {
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"port":{"type":"integer","maximum":65535}},"required":["port"]}"#;
    let script = r#"
text: Let me see.
call bash {"command":"echo 8080"}
---
text: It listens on 8080.
---
sees: Return the result now
call structured_output {"port":80800}
---
sees: "/port"
call structured_output {"port":8080}
"#;
    let output = run(schema, script, &["--quiet"]);
    assert_eq!(
        (output.status.code(), stderr_without_session(&output)),
        (Some(0), vec![]),
        "{output:?}"
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        json!({ "port": 8080 })
    );
    let list = run(
        r#"{"type":"array"}"#,
        "call structured_output {\"result\":[1,2]}",
        &[],
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&list.stdout).unwrap(),
        json!([1, 2])
    );
    let lines = run(
        r#"{"type":"object"}"#,
        "call structured_output {\"a\":1}",
        &["--format", "json"],
    );
    let last = String::from_utf8(lines.stdout).unwrap();
    assert!(
        last.contains(r#""_meta":{"adjutant":{"structured":{"a":1}}}"#),
        "{last}"
    );
}

/// Gives text only, after every reminder: an error, and nothing on standard output.
pub fn no_result() {
    let output = run(
        r#"{"type":"object"}"#,
        &["text: It is 8080."; 4].join("\n---\n"),
        &[],
    );
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(1), 0),
        "{output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("did not give a result that fits"),
        "{output:?}"
    );
    // Results, and none of them fits.
    let wrong = ["call structured_output {\"port\":\"8080\"}"; 4].join("\n---\n");
    let output = run(
        r#"{"type":"object","properties":{"port":{"type":"integer"}}}"#,
        &wrong,
        &["--allow"],
    );
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(1), 0),
        "{output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("did not give a result that fits"),
        "{output:?}"
    );
}

/// Checks that an invalid schema is reported before any request.
pub fn no_schema() {
    let table = [
        ("{", "shape.json is not JSON"),
        ("", "shape.json is not JSON"),
        (r#"{"type":"nothing"}"#, "shape.json is not a JSON Schema"),
        (
            r#"["a"]"#,
            "shape.json is not a JSON Schema: a schema is an object",
        ),
        ("false", "nothing fits"),
        (
            r#"{"$ref":"https://example.com/port.json"}"#,
            "is not fetched; put what is referred to under \"$defs\"",
        ),
    ];
    for (schema, words) in table {
        let output = run(schema, "", &[]);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{output:?}"
        );
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(words),
            "{schema}: {output:?}"
        );
    }
    for (name, words) in [
        ("gone.json", "gone.json cannot be read"),
        (".", ". cannot be read"),
    ] {
        let project = Project::new();
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.args(["run", "--schema", name, "Where does it listen?"]);
        let output = command
            .current_dir(project.cwd())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{output:?}"
        );
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(words),
            "{output:?}"
        );
    }
}

/// A result that is not an object comes unwrapped, and its definitions reach the model. A turn that
/// ends in another way has no result: the exit code and standard error have the reason.
pub fn other_ends() {
    let ports =
        r##"{"type":"array","items":{"$ref":"#/$defs/port"},"$defs":{"port":{"type":"integer"}}}"##;
    let script = r##"
has: "$defs":{"port":{"type":"integer"}}
has: "result":{"type":"array","items":{"$ref":"#/$defs/port"}}
text: Here they are.
call structured_output {"result":[80,"443"]}
---
sees: "/1"
call structured_output {"result":[80,443]}
"##;
    let output = run(ports, script, &["--quiet"]);
    assert_eq!(
        (output.status.code(), stderr_without_session(&output)),
        (Some(0), vec![]),
        "{output:?}"
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        json!([80, 443])
    );
    // An answer in text that is the result and nothing else is accepted without another step.
    let object = r#"{"type":"object","required":["port"]}"#;
    let output = run(object, "text: \"{\\\"port\\\": 8080}\"", &["--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        json!({ "port": 8080 })
    );
    let object = r#"{"type":"object","required":["port"]}"#;
    let table = [
        (
            "text: It is\nfinish length\n---\ntext: on\nfinish length\n---\ntext: and on\nfinish length",
            3,
            "shape.json: the model's answers were cut off at its output limit",
        ),
        (
            "finish content_filter",
            3,
            "shape.json: the model refused to answer",
        ),
        (
            &format!(
                "call read {{\"filePath\":\"/etc/hostname\"}}{}",
                "\n---\ntext: It was not allowed.".repeat(4)
            ),
            1,
            "the model did not give a result that fits the schema: it answered with text",
        ),
        (
            &["call structured_output {\"result\":3}"; 4].join("\n---\n"),
            1,
            "The mistakes in its last one: \"port\" is a required property",
        ),
    ];
    for (script, code, words) in table {
        let output = run(object, script, &["--deny"]);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(code), 0),
            "{output:?}"
        );
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(words),
            "{script}: {output:?}"
        );
    }
}
