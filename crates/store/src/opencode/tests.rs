use serde_json::{Value, json};

use super::convert::{self, Converter};
use super::*;
use transcript::{CallState, Content, FailureCause, FaultKind, Finish, LineOffsets};

fn info(more: &Value) -> Value {
    let mut info = json!({"id": "ses_00000001", "directory": "/work", "time": {"created": 5}});
    for (key, value) in more.as_object().unwrap() {
        info[key] = value.clone();
    }
    info
}

fn message(info: &Value, parts: Vec<Value>) -> (Option<Message>, Vec<(String, usize)>) {
    let left_out = Omitted::default();
    let record = convert::record(&self::info(&json!({})), &left_out).unwrap();
    let message = Converter::new(&record, None, left_out.clone()).message(info, parts);
    (message, left_out.list())
}

#[test]
fn title_is_left_to_adjutant_if_opencode_gave_none() {
    for (title, kept) in [
        ("Lamps", Some("Lamps")),
        ("New session - 2026-01-05T10:00:00.000Z", None),
        ("Child session - 2026-01-05T10:00:00.000Z", None),
        ("New session - a plan", Some("New session - a plan")),
        ("", None),
    ] {
        let record = convert::record(&info(&json!({"title": title})), &Omitted::default()).unwrap();
        assert_eq!(record.title.as_deref(), kept, "{title}");
    }
}

#[test]
fn session_without_id_or_directory_is_refused() {
    for broken in [
        json!({}),
        json!({"id": "ses_00000001"}),
        json!({"id": "ses_00000001", "directory": "relative"}),
        json!({"directory": "/work"}),
        json!([]),
    ] {
        assert!(
            convert::record(&broken, &Omitted::default()).is_err(),
            "{broken}"
        );
    }
}

#[test]
fn model_is_read_in_each_spelling() {
    for (name, info, model) in [
        (
            "user",
            json!({"model": {"providerID": "p", "modelID": "a/b"}}),
            Some("p/a/b"),
        ),
        (
            "session",
            json!({"model": {"providerID": "p", "id": "m"}}),
            Some("p/m"),
        ),
        (
            "assistant",
            json!({"providerID": "p", "modelID": "m"}),
            Some("p/m"),
        ),
        ("none", json!({"id": "msg_1", "providerID": "p"}), None),
    ] {
        let found = convert::model(&info).map(|model| model.to_string());
        assert_eq!(found.as_deref(), model, "{name}");
    }
    let variant = json!({"model": {"providerID": "p", "modelID": "m", "variant": "high"}});
    assert_eq!(
        convert::model(&variant).unwrap().effort.as_deref(),
        Some("high")
    );
}

#[test]
fn hunks_of_a_diff_become_changes() {
    let edit = "Index: a\n====\n--- a\n+++ a\n@@ -3,3 +3,2 @@\n x\n-y\n-z\n+w\n@@ -9,1 +8,1 @@\n-p\n\\ No newline at end of file\n+q\n";
    let changes = patch::changes("/work/a", edit);
    let texts: Vec<(&str, &str)> = changes
        .iter()
        .map(|change| (change.old.as_deref().unwrap(), change.new.as_str()))
        .collect();
    assert_eq!(texts, [("x\ny\nz\n", "x\nw\n"), ("p\n", "q\n")]);
    assert_eq!(changes[1].part, Some(LineOffsets { old: 8, new: 7 }));
    let new = patch::changes("/work/a", "--- /dev/null\n+++ a\n@@ -0,0 +1,1 @@\n+x\n");
    assert_eq!((new[0].old.clone(), new[0].part), (None, None));
    assert!(patch::changes("/work/a", "no diff").is_empty());
    assert!(patch::changes("/work/a", "@@ -x +y @@").is_empty());
}

#[test]
fn states_of_calls_are_translated() {
    let state = |state: Value| {
        let part =
            json!({"id": "prt_1", "type": "tool", "tool": "bash", "callID": "c", "state": state});
        let info = json!({"id": "msg_1", "role": "assistant"});
        let message = message(&info, vec![part]).0.unwrap();
        let Content::Tool(call) = message.parts[0].content.clone() else {
            panic!("no call");
        };
        assert_eq!(call.call.as_str(), "call_1");
        call.state
    };
    let done = state(
        json!({"status": "completed", "output": "o", "metadata": {"exit": 3}, "time": {"compacted": 7}}),
    );
    let CallState::Completed(done) = done else {
        panic!("not completed");
    };
    assert_eq!((&*done.output, done.cleared.map(|at| at.0)), ("o", Some(7)));
    assert_eq!(done.facts.exit.unwrap().code, Some(3));
    let failed = state(json!({"status": "error", "error": "no"}));
    assert_eq!(failed.cause(), Some(FailureCause::Error));
    let aborted =
        state(json!({"status": "error", "error": "x", "metadata": {"interrupted": true}}));
    assert_eq!(aborted.cause(), Some(FailureCause::Cancelled));
    let running = state(json!({"status": "running", "metadata": {"output": "so far"}}));
    assert!(
        matches!(running, CallState::Running { printed: Some(printed), .. } if &*printed == "so far")
    );
    assert_eq!(state(json!({"status": "pending"})), CallState::Pending);
}

#[test]
fn answers_are_translated_with_their_errors_and_reasons() {
    let answer = |more: Value| {
        let mut info = json!({"id": "msg_2", "role": "assistant", "parentID": "msg_1"});
        for (key, value) in more.as_object().unwrap() {
            info[key] = value.clone();
        }
        message(&info, vec![])
            .0
            .unwrap()
            .assistant()
            .unwrap()
            .clone()
    };
    assert_eq!(
        answer(json!({"finish": "content-filter"})).finish,
        Some(Finish::Refusal)
    );
    assert_eq!(
        answer(json!({"time": {"completed": 9}})).finish,
        Some(Finish::Other)
    );
    assert_eq!(answer(json!({})).finish, None);
    let fault = answer(
        json!({"error": {"name": "MessageAbortedError", "data": {"message": "gone"}}, "time": {"completed": 9}}),
    );
    assert_eq!(fault.finish, None);
    let fault = fault.fault.unwrap();
    assert_eq!(
        (fault.kind, fault.message.as_str()),
        (FaultKind::Interrupted, "gone")
    );
}

#[test]
fn things_without_a_place_are_counted() {
    let info = json!({"id": "msg_1", "role": "assistant", "structured": {"a": 1}});
    let parts = vec![
        json!({"id": "prt_1", "type": "step-start", "snapshot": "s"}),
        json!({"id": "prt_2", "type": "step-finish"}),
        json!({"id": "prt_3", "type": "patch", "files": []}),
        json!({"id": "prt_4", "type": "hologram"}),
        json!({"type": "text", "text": "no id"}),
        json!({"id": "prt_5", "type": "reasoning", "text": "r", "metadata": {"openai": {"itemId": "x"}}}),
        json!({"id": "prt_6", "type": "reasoning", "text": "r", "metadata": {"anthropic": {"signature": "s"}}}),
    ];
    let (message, left_out) = message(&info, parts);
    assert_eq!(message.unwrap().parts.len(), 2);
    let named: Vec<(&str, usize)> = left_out
        .iter()
        .map(|(name, count)| (&**name, *count))
        .collect();
    assert_eq!(
        named,
        [
            ("encrypted reasoning of models", 1),
            ("parts of the kind \"hologram\"", 1),
            ("states of files for OpenCode's undo", 2),
            ("structured answers", 1),
            ("unreadable messages and parts", 1),
        ]
    );
    let left_out = Omitted::default();
    let more = json!({
        "share": {"url": "https://example.org"},
        "metadata": {},
        "permission": [{"permission": "bash", "pattern": "*", "action": "allow"}, {"permission": "task", "pattern": "*", "action": "deny"}],
        "revert": {"messageID": "msg_1", "partID": "prt_1"},
    });
    let record = convert::record(&self::info(&more), &left_out).unwrap();
    assert_eq!(record.denied, [("task".to_owned(), "*".to_owned())]);
    assert_eq!(left_out.list().len(), 3, "{left_out:?}");
}

#[test]
fn ancestors_in_a_circle_end() {
    let id = |text: &str| SessionId::new(text);
    let parents = HashMap::from([
        (id("a"), Some(id("b"))),
        (id("b"), Some(id("a"))),
        (id("c"), Some(id("gone"))),
        (id("d"), Some(id("c"))),
    ]);
    assert_eq!(depth(&id("c"), &parents), 0);
    assert_eq!(depth(&id("d"), &parents), 1);
    assert!(depth(&id("a"), &parents) <= 4);
}

#[test]
fn session_has_the_name_of_its_file_and_no_missing_parent() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("storage/session/project");
    std::fs::create_dir_all(&folder).unwrap();
    let hostile = info(&json!({"id": "../../elsewhere", "parentID": "ses_missing1"}));
    std::fs::write(folder.join("ses_00000002.json"), hostile.to_string()).unwrap();
    let data = DataDirectory::open(dir.path(), dir.path()).unwrap();
    let feed = data.read(&data.sessions()[0]).unwrap();
    assert_eq!(feed.record.id.as_str(), "ses_00000002");
    assert_eq!(feed.record.parent, None);
}
