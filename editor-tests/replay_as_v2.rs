//! Runs the pages again with a client that speaks version 2 of the protocol.
//!
//! The client's messages are translated into version 2; the output must satisfy that version's
//! schema and invariants, use up the model's script, leave the files of the page, and have the same
//! summary as the page: responses and errors, stop reasons, texts, calls and their results,
//! questions and their options.
//!
//! Pages about features that version 2 lacks or reports elsewhere are skipped. Every second one of
//! the others is run, chosen by its name; `ADJUTANT_BOTH=all` runs all.

use std::path::Path;

use serde_json::{Value, json};

/// Features of version 1 only, and texts about exact lines: pages that contain one are skipped.
const ALONE: &[&str] = &[
    "ADJUTANT_ACP_V2",
    "in version 2",
    "Wire cases: ",
    "\nraw ",
    "with fs",
    "clientCapabilities",
    "session/set_model",
    "editor unanswered",
    "# close stdin",
    "# kill",
    "# signal",
    "# spoil",
    "# files may",
    "$/cancel_request",
    "\"protocolVersion\":0",
    // The awaited text differs in version 2, or comes earlier.
    "# wait for \"id\"",
    "# wait for {",
    "# wait for \"sessionUpdate\"",
    "# wait for tool_call",
    "# wait for stopReason",
    "# wait for \"stopReason\"",
    "# wait for agent_thought_chunk",
    "# wait for usage_update",
];

/// Pages that are left out by their names, and why.
const NAMED: &[&str] = &[
    // Version 2 has no answer to an empty prompt but an error.
    "turns/empty-prompt",
    // It takes long enough once.
    "turns/long-line-output",
    // It waits for the output of a terminal, which is base64.
    "turns/cancel-command",
    // They wait for an update that version 2 has in another one, or in the response.
    "config/agent-gone",
    "config/agents-of-other-programs",
    // They wait for the progress of a call, in the order of version 1.
    "permissions/swapped",
    "permissions/swapped-patch",
    // It waits for an update that version 2 need not send.
    "sessions/mode-with-a-model",
    // Version 1 shows the compaction as text.
    "sessions/import-from-opencode",
    // It waits for the calls of a subagent in the call that has started it.
    "tasks/subagent",
    // It gives a server over the older HTTP with events, which version 2 has not.
    "servers/declared-by-editor",
];

/// Folders whose pages speak the protocol in both versions.
const FOLDERS: [&str; 9] = [
    "turns",
    "tasks",
    "permissions",
    "sessions",
    "background",
    "failures",
    "long",
    "servers",
    "config",
];

/// Returns whether a page is run in version 2 as well.
pub fn chosen(path: &Path) -> bool {
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let second = name.bytes().map(usize::from).sum::<usize>() % 2 == 0;
    let all = std::env::var_os("ADJUTANT_BOTH").is_some_and(|value| value == "all");
    FOLDERS.contains(&&*folder)
        && (all || second)
        && text.contains("\"session/prompt\"")
        && !ALONE.iter().any(|alone| text.contains(alone))
        && !NAMED.contains(&&*format!("{folder}/{name}"))
}

/// Translates a client's message into version 2.
pub fn translated(message: &mut Value) {
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let params = &mut message["params"];
    let other = match &*method {
        "initialize" if params["protocolVersion"] != 2 => {
            *params = json!({ "protocolVersion": 2, "info": { "name": "page", "version": "1" }, "capabilities": {} });
            None
        }
        "session/load" => {
            params["replayFrom"] = json!({ "type": "start" });
            Some("session/resume")
        }
        "session/set_mode" => {
            *params = json!({ "sessionId": params["sessionId"], "configId": "mode", "type": "id", "value": params["modeId"] });
            Some("session/set_config_option")
        }
        "session/set_config_option" => {
            let kind = if params["value"].is_boolean() {
                "boolean"
            } else {
                "id"
            };
            params["type"] = kind.into();
            None
        }
        "authenticate" => Some("auth/login"),
        "logout" => Some("auth/logout"),
        _ => None,
    };
    if let Some(other) = other {
        message["method"] = other.into();
    }
}

/// Summary of some lines that does not depend on the version.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Stop reasons.
    ends: Vec<String>,
    /// Errors that were answered: the request's id and the code.
    errors: Vec<String>,
    /// Text of the model, without surrounding spaces.
    said: String,
    /// The calls: name, last title, last status.
    calls: Vec<[String; 3]>,
    /// The answers offered to each question.
    questions: Vec<String>,
    /// Some of a call is left open by `…`, or subagents have sessions of their own: the page shows
    /// only those of their calls that were asked about.
    open: bool,
}

/// Sums lines up. `prompts`: the ids of requests that begin turns.
pub fn summary(lines: &[Value], prompts: &[Value]) -> Summary {
    let mut sum = Summary::default();
    let mut ids: Vec<String> = Vec::new();
    let mut children: Vec<&Value> = Vec::new();
    for line in lines {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if line.get("method").is_none() {
            if let Some(reason) = line["result"]["stopReason"].as_str() {
                sum.ends.push(reason.into());
            } else if line.get("error").is_some() {
                if prompts.contains(&line["id"]) {
                    // A prompt that was cancelled while it waited was never part of the
                    // conversation: version 2 answers with an error.
                    let cancelled = line["error"]["code"] == json!(-32800);
                    sum.ends
                        .push(if cancelled { "cancelled" } else { "error" }.into());
                } else {
                    sum.errors
                        .push(format!("{} {}", line["id"], line["error"]["code"]));
                }
            }
            continue;
        }
        match line["method"].as_str() {
            Some("session/request_permission") => {
                let options = line["params"]["options"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let ids: Vec<String> = options
                    .iter()
                    .map(|option| text(&option["optionId"]))
                    .collect();
                sum.questions.push(ids.join(" "));
            }
            Some("elicitation/create") => sum.questions.push("form".into()),
            _ => {}
        }
        let update = &line["params"]["update"];
        if update["sessionUpdate"] == "subagent_update" {
            sum.open = true;
            // Later lines about a subagent that has ended are those of a client that opens it.
            let child = &update["sessionId"];
            children.retain(|known| *known != child);
            if update["state"]["state"] != "idle" {
                children.push(child);
            }
        }
        if children.contains(&&line["params"]["sessionId"]) {
            continue;
        }
        match update["sessionUpdate"].as_str() {
            Some("state_update") if !update["stopReason"].is_null() => {
                sum.ends.push(text(&update["stopReason"]))
            }
            Some("agent_message_chunk") => sum
                .said
                .push_str(update["content"]["text"].as_str().unwrap_or_default()),
            Some("tool_call" | "tool_call_update") => {
                sum.open |= update.get("…").is_some() || update["toolCallId"] == "…";
                let id = format!("{} {}", line["params"]["sessionId"], update["toolCallId"]);
                let at = ids
                    .iter()
                    .position(|known| *known == id)
                    .unwrap_or_else(|| {
                        ids.push(id);
                        sum.calls
                            .push([text(&update["name"]), String::new(), "pending".into()]);
                        ids.len() - 1
                    });
                let call = &mut sum.calls[at];
                if let Some(title) = update["title"].as_str() {
                    call[1] = title.into();
                }
                if let Some(status) = update["status"].as_str() {
                    let cancelled = update["_meta"]["adjutant"]["cancelled"] == json!(true);
                    call[2] = if cancelled {
                        "cancelled".into()
                    } else {
                        status.into()
                    };
                }
            }
            _ => {}
        }
    }
    // Calls that run side by side come in any order, and so do answers.
    sum.calls.sort();
    sum.questions.sort();
    sum.errors.sort();
    sum
}

/// Returns the differences of two summaries. `…` stands for anything.
pub fn differences(page: &Summary, received: &Summary) -> Vec<String> {
    let open = |text: &str| text.contains('…');
    let mut out = Vec::new();
    let mut tell = |what: &str, page: String, received: String| {
        if page != received {
            out.push(format!(
                "{what}: the page has\n  {page}\nand in version 2 there is\n  {received}"
            ));
        }
    };
    tell(
        "ends of turns",
        format!("{:?}", page.ends),
        format!("{:?}", received.ends),
    );
    tell(
        "errors",
        format!("{:?}", page.errors),
        format!("{:?}", received.errors),
    );
    if !open(&page.said) {
        tell("what is said", page.said.clone(), received.said.clone());
    }
    if !page.open
        && !received.open
        && !page
            .calls
            .iter()
            .any(|call| call[0].is_empty() || call.iter().any(|text| open(text)))
    {
        tell(
            "calls",
            format!("{:?}", page.calls),
            format!("{:?}", received.calls),
        );
    }
    // Where a page leaves the answers open, as many questions must be asked.
    let vague = page
        .questions
        .iter()
        .any(|text| text.is_empty() || open(text));
    let shown = |questions: &Vec<String>| {
        if vague {
            questions.len().to_string()
        } else {
            format!("{questions:?}")
        }
    };
    tell(
        "questions",
        shown(&page.questions),
        shown(&received.questions),
    );
    out
}
