//! The pages once more, with an editor that speaks version 2 of the protocol.
//!
//! What the page's editor says is said in the words of version 2; what comes out must obey that version's schema and
//! laws, use up the model's script, leave the files as the page says, and come to the same as the page's lines:
//! which answers there are and which errors, how turns end, what is said, which calls are made and how they end, what
//! is asked and which answers are offered.
//!
//! Left out are pages about something that version 2 does not have or says in another place. Of the others every
//! second one is run, by its name; `ADJUTANT_BOTH=all` runs all.

use std::path::Path;

use serde_json::{Value, json};

/// What only version 1 has, or what is about the very lines: pages that mention it are left out.
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
    // What is waited for is said in other words, or earlier.
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
    "turns/half-a-gigabyte",
    // It waits for what a terminal prints, which is base64.
    "turns/cancel-command",
    // They wait for how far a call is, in the order in which version 1 says it.
    "permissions/swapped",
    "permissions/swapped-patch",
    // It waits for an update that version 2 need not send.
    "sessions/mode-with-a-model",
    // It gives a server over the older HTTP with events, which version 2 has not.
    "servers/given",
];

/// Folders whose pages speak the protocol in both versions.
const FOLDERS: [&str; 8] = ["turns", "tasks", "permissions", "sessions", "background", "failures", "long", "servers"];

/// Whether a page is run in version 2 as well.
pub fn chosen(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let second = name.bytes().map(usize::from).sum::<usize>() % 2 == 0;
    let all = std::env::var_os("ADJUTANT_BOTH").is_some_and(|value| value == "all");
    FOLDERS.contains(&&*folder)
        && (all || second)
        && text.contains("\"session/prompt\"")
        && !ALONE.iter().any(|alone| text.contains(alone))
        && !NAMED.contains(&&*format!("{folder}/{name}"))
}

/// What an editor says, in the words of version 2.
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
            let kind = if params["value"].is_boolean() { "boolean" } else { "id" };
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

/// What some lines come to, whichever version they are of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How turns ended.
    ends: Vec<String>,
    /// Errors that were answered: the request's id and the code.
    errors: Vec<String>,
    /// What the model said, without what surrounds it.
    said: String,
    /// The calls: name, last title, last status.
    calls: Vec<[String; 3]>,
    /// The answers offered to each question.
    questions: Vec<String>,
    /// Some of a call is left open by `…`.
    open: bool,
}

/// Sums lines up. `prompts`: the ids of requests that begin turns.
pub fn summary(lines: &[Value], prompts: &[Value]) -> Summary {
    let mut sum = Summary::default();
    let mut ids: Vec<String> = Vec::new();
    for line in lines {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if line.get("method").is_none() {
            if let Some(reason) = line["result"]["stopReason"].as_str() {
                sum.ends.push(reason.into());
            } else if line.get("error").is_some() {
                if prompts.contains(&line["id"]) {
                    // A prompt that was cancelled while it waited never was part of the conversation: version 2 says
                    // so with an error.
                    let cancelled = line["error"]["code"] == json!(-32800);
                    sum.ends.push(if cancelled { "cancelled" } else { "error" }.into());
                } else {
                    sum.errors.push(format!("{} {}", line["id"], line["error"]["code"]));
                }
            }
            continue;
        }
        match line["method"].as_str() {
            Some("session/request_permission") => {
                let options = line["params"]["options"].as_array().cloned().unwrap_or_default();
                let ids: Vec<String> = options.iter().map(|option| text(&option["optionId"])).collect();
                sum.questions.push(ids.join(" "));
            }
            Some("elicitation/create") => sum.questions.push("form".into()),
            _ => {}
        }
        let update = &line["params"]["update"];
        match update["sessionUpdate"].as_str() {
            Some("state_update") if !update["stopReason"].is_null() => sum.ends.push(text(&update["stopReason"])),
            Some("agent_message_chunk") => sum.said.push_str(update["content"]["text"].as_str().unwrap_or_default()),
            Some("tool_call" | "tool_call_update") => {
                sum.open |= update.get("…").is_some() || update["toolCallId"] == "…";
                let id = format!("{} {}", line["params"]["sessionId"], update["toolCallId"]);
                let at = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                    ids.push(id);
                    sum.calls.push([text(&update["name"]), String::new(), "pending".into()]);
                    ids.len() - 1
                });
                let call = &mut sum.calls[at];
                if let Some(title) = update["title"].as_str() {
                    call[1] = title.into();
                }
                if let Some(status) = update["status"].as_str() {
                    let cancelled = update["_meta"]["adjutant"]["cancelled"] == json!(true);
                    call[2] = if cancelled { "cancelled".into() } else { status.into() };
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

/// Where two sums differ. `…` stands for anything.
pub fn differences(page: &Summary, heard: &Summary) -> Vec<String> {
    let open = |text: &str| text.contains('…');
    let mut out = Vec::new();
    let mut tell = |what: &str, page: String, heard: String| {
        if page != heard {
            out.push(format!("{what}: the page has\n  {page}\nand in version 2 there is\n  {heard}"));
        }
    };
    tell("ends of turns", format!("{:?}", page.ends), format!("{:?}", heard.ends));
    tell("errors", format!("{:?}", page.errors), format!("{:?}", heard.errors));
    if !open(&page.said) {
        tell("what is said", page.said.clone(), heard.said.clone());
    }
    if !page.open && !page.calls.iter().any(|call| call[0].is_empty() || call.iter().any(|text| open(text))) {
        tell("calls", format!("{:?}", page.calls), format!("{:?}", heard.calls));
    }
    // Where a page leaves the answers open, as many questions must be asked.
    let vague = page.questions.iter().any(|text| text.is_empty() || open(text));
    let shown = |questions: &Vec<String>| if vague { questions.len().to_string() } else { format!("{questions:?}") };
    tell("questions", shown(&page.questions), shown(&heard.questions));
    out
}
