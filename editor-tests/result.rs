//! `adjutant run --schema`: what a script gets.

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
    command.args(["run", "--schema", "shape.json"]).args(more).arg("Where does it listen?");
    let output = command.current_dir(project.cwd()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(model.problems(), Vec::<String>::new(), "{output:?}");
    output
}

/// Work first, words in between, one result that does not fit: what is printed is JSON that does.
pub fn a_result_that_fits() {
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"port":{"type":"integer","maximum":65535}},"required":["port"]}"#;
    let script = r#"
text: Let me see.
call bash {"command":"echo 8080"}
---
text: It listens on 8080.
---
sees: Hand over the result now
call structured_output {"port":80800}
---
sees: "/port"
call structured_output {"port":8080}
"#;
    let output = run(schema, script, &[]);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), json!({ "port": 8080 }));
    let list = run(r#"{"type":"array"}"#, "call structured_output {\"result\":[1,2]}", &[]);
    assert_eq!(serde_json::from_slice::<Value>(&list.stdout).unwrap(), json!([1, 2]));
    let lines = run(r#"{"type":"object"}"#, "call structured_output {\"a\":1}", &["--format", "json"]);
    let last = String::from_utf8(lines.stdout).unwrap();
    assert!(last.contains(r#""_meta":{"adjutant":{"structured":{"a":1}}}"#), "{last}");
}

/// Words and nothing else, however often it is told: an error, and nothing on standard output.
pub fn no_result() {
    let output = run(r#"{"type":"object"}"#, &["text: It is 8080."; 4].join("\n---\n"), &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not give a result that fits"), "{output:?}");
    for wrong in ["{", r#"{"type":"nothing"}"#] {
        let output = run(wrong, "", &[]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("shape.json is no"), "{output:?}");
    }
}
