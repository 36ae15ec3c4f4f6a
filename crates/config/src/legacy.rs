//! Old spellings, rewritten into the modern ones so that nothing else has to know them. Telling the
//! user is the declaration's business (`x-instead`), except where a value rather than a key is old.

use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};

/// Keys of the second format that stand elsewhere in this one.
const MOVED: &[(&[&str], &[&str])] = &[
    (&["mcp", "servers"], &["mcp"]),
    (&["mcp", "timeout"], &["experimental", "mcp_timeout"]),
    (&["snapshots"], &["snapshot"]),
    (&["media"], &["attachment"]),
    (&["compaction", "keep"], &["compaction", "tail_turns"]),
    (&["compaction", "buffer"], &["compaction", "reserved"]),
    (&["experimental", "subagent_depth"], &["subagent_depth"]),
];

/// Keys of the second format that nothing here answers to.
const UNUSED: &[&str] = &["plugins", "websearch", "warming"];

/// Whether a value is the second format's: a server may well be called "servers".
fn is_later(way: &[&str], node: &Node) -> bool {
    match way {
        ["mcp", "servers"] => {
            !node.entries().is_empty()
                && !["type", "command", "url", "enabled"].iter().any(|key| node.get(key).is_some())
        }
        ["mcp", "timeout"] | ["compaction", _] => matches!(node.value, NodeValue::Number(_)),
        _ => true,
    }
}

fn remove(node: &mut Node, way: &[&str]) {
    match way {
        [] => {}
        [key] => {
            node.take(key);
        }
        [key, rest @ ..] => {
            if let Some(inner) = node.entries_mut().and_then(|all| all.iter_mut().find(|entry| entry.key == *key)) {
                remove(&mut inner.node, rest);
            }
        }
    }
}

/// Puts a value where nothing is said yet.
fn put(node: &mut Node, way: &[&str], value: Node) {
    let Some((key, rest)) = way.split_first() else { return };
    if node.get(key).is_none() {
        let at = value.at.clone();
        node.set(key, at.clone(), if rest.is_empty() { value.clone() } else { Node::empty(at) });
    }
    if let Some(inner) = node.entries_mut().and_then(|all| all.iter_mut().find(|entry| entry.key == *key)) {
        put(&mut inner.node, rest, value);
    }
}

/// Keys of OpenCode's coming second format, rewritten before the tree is checked.
pub(crate) fn renamed(node: &mut Node, problems: &mut Vec<Problem>) {
    for (new, old) in [("agents", "agent"), ("commands", "command"), ("providers", "provider")] {
        if node.get(old).is_none()
            && let Some(mut entry) = node.take(new)
        {
            let text = format!("\"{new}\" belongs to a later format of OpenCode; it is read as \"{old}\"");
            problems.push(Problem::note(ProblemCode::LaterFormat, &entry.at, new, text));
            if old == "agent" {
                for agent in entry.node.entries_mut().into_iter().flatten() {
                    lower_agent(&mut agent.node);
                }
            }
            node.set(old, entry.at, entry.node);
        }
    }
    for key in ["agent", "mode"] {
        for agent in node.get_mut(key).and_then(Node::entries_mut).into_iter().flatten() {
            agent_spellings(&mut agent.node, &format!("{key}.{}", agent.key), problems);
        }
    }
    let note = |node: &Node, new: &str, old: &str| {
        let text = format!("\"{new}\" belongs to a later format of OpenCode; it is read as \"{old}\"");
        Problem::note(ProblemCode::LaterFormat, &node.at, new, text)
    };
    for (new, old) in MOVED {
        let Some(found) = node.at(new).filter(|found| is_later(new, found)).cloned() else { continue };
        remove(node, new);
        problems.push(note(&found, &new.join("."), &old.join(".")));
        if *new == ["mcp", "servers"] {
            for server in found.entries() {
                put(node, &["mcp", &server.key], server.node.clone());
            }
        } else {
            put(node, old, found);
        }
    }
    for key in UNUSED {
        if let Some(entry) = node.take(key) {
            let text = format!("\"{key}\" belongs to a later format of OpenCode; it is not used");
            problems.push(Problem::note(ProblemCode::LaterFormat, &entry.at, *key, text));
        }
    }
    if let Some(skills) = node.get("skills").filter(|skills| matches!(skills.value, NodeValue::List(_))).cloned() {
        let at = skills.at.clone();
        let entry = MapEntry { key: "paths".into(), at: at.clone(), node: skills };
        node.set("skills", at.clone(), Node { value: NodeValue::Map(vec![entry]), at });
    }
    if let Some(entry) = node.get("permissions").map(|_| ()).and_then(|()| node.take("permissions")) {
        let text = "rules as a list belong to a later format of OpenCode; they are not used";
        problems.push(
            Problem::error(ProblemCode::LaterFormat, &entry.at, "permissions", text)
                .hint("write \"permission\": {\"edit\": \"ask\"}"),
        );
    }
}

/// Other spellings of an agent's keys that public configurations use, and its modern name.
const AGENT_KEYS: &[(&str, &str)] = &[
    ("topP", "top_p"),
    ("max_steps", "steps"),
    ("maxTurns", "steps"),
    ("disabled", "disable"),
    ("system", "prompt"),
    ("systemPrompt", "prompt"),
    ("system_prompt", "prompt"),
    ("permissions", "permission"),
    ("colour", "color"),
];

/// Options of providers that public configurations write beside an agent's own keys.
const AGENT_OPTIONS: &[&str] = &[
    "reasoningEffort",
    "reasoning_effort",
    "reasoningSummary",
    "textVerbosity",
    "thinking",
    "include",
    "store",
    "topK",
    "top_k",
    "maxTokens",
    "max_tokens",
    "maxOutputTokens",
    "frequencyPenalty",
    "presencePenalty",
    "seed",
    "extraBody",
];

/// Rewrites other spellings in an agent, before it is checked. `way` leads to it.
pub(crate) fn agent_spellings(agent: &mut Node, way: &str, problems: &mut Vec<Problem>) {
    let join = |key: &str| if way.is_empty() { key.to_owned() } else { format!("{way}.{key}") };
    for (other, key) in AGENT_KEYS {
        if agent.get(key).is_some() {
            continue;
        }
        if let Some(entry) = agent.take(other) {
            let text = format!("\"{other}\" is another spelling; it works");
            problems.push(Problem::deprecated(&entry.at, join(other), text).hint(format!("write \"{key}\"")));
            agent.set(key, entry.at, entry.node);
        }
    }
    if let Some(enabled) = agent.take("enabled")
        && let Some(enabled_word) = enabled.node.as_bool()
    {
        let text = "\"enabled\" is another spelling; it works";
        problems.push(Problem::deprecated(&enabled.at, join("enabled"), text).hint("write \"disable\""));
        agent.set("disable", enabled.at, Node { value: NodeValue::Bool(!enabled_word), at: enabled.node.at });
    }
    for option in AGENT_OPTIONS {
        let Some(entry) = agent.take(option) else { continue };
        let text = format!("\"{option}\" is an option of the provider; it is sent");
        let problem = Problem::deprecated(&entry.at, join(option), text);
        problems.push(problem.hint("write it under \"options\"".to_owned()));
        if agent.get("options").is_none() {
            agent.set("options", entry.at.clone(), Node::empty(entry.at.clone()));
        }
        if let Some(options) = agent.get_mut("options")
            && options.get(option).is_none()
        {
            options.set(option, entry.at, entry.node);
        }
    }
}

fn lower_agent(agent: &mut Node) {
    for (new, old) in [("system", "prompt"), ("disabled", "disable")] {
        if agent.get(old).is_none()
            && let Some(entry) = agent.take(new)
        {
            agent.set(old, entry.at, entry.node);
        }
    }
    if let Some(request) = agent.take("request")
        && let Some(body) = request.node.get("body")
    {
        agent.set("options", request.at.clone(), body.clone());
    }
    if let Some(model) = agent.get("model").and_then(Node::as_text).map(str::to_owned)
        && let Some((model, variant)) = model.split_once('#')
    {
        let at = agent.get("model").map_or_else(|| agent.at.clone(), |node| node.at.clone());
        agent.set("model", at.clone(), Node::text(model, at.clone()));
        agent.set("variant", at.clone(), Node::text(variant, at));
    }
}

/// Old spellings, in a tree that was checked.
pub(crate) fn rewrite(node: &mut Node, problems: &mut Vec<Problem>) {
    if let Some(mut modes) = node.take("mode") {
        for entry in modes.node.entries_mut().into_iter().flatten() {
            let at = entry.at.clone();
            entry.node.set("mode", at.clone(), Node::text("primary", at));
        }
        under(node, "agent", modes);
    }
    if let Some(reference) = node.take("reference") {
        under(node, "references", reference);
    }
    for reference in node.get_mut("references").and_then(Node::entries_mut).into_iter().flatten() {
        if let Some(git) = reference.node.take("git")
            && reference.node.get("repository").is_none()
        {
            reference.node.set("repository", git.at, git.node);
        }
    }
    if let Some(share) = node.take("autoshare")
        && share.node.as_bool() == Some(true)
        && node.get("share").is_none()
    {
        node.set("share", share.at.clone(), Node::text("auto", share.at));
    }
    if let Some(permission) = permission_of(node) {
        keys(permission, "permission", problems);
    }
    tools(node);
    let agents = node.entries_mut().and_then(|entries| entries.iter_mut().find(|entry| entry.key == "agent"));
    for agent in agents.and_then(|agents| agents.node.entries_mut()).into_iter().flatten() {
        self::agent(&mut agent.node, &format!("agent.{}", agent.key), problems);
    }
}

/// Old spellings in one agent.
pub(crate) fn agent(node: &mut Node, way: &str, problems: &mut Vec<Problem>) {
    if let Some(steps) = node.take("maxSteps")
        && node.get("steps").is_none()
    {
        node.set("steps", steps.at, steps.node);
    }
    if let Some(permission) = permission_of(node) {
        let way = if way.is_empty() { "permission".to_owned() } else { format!("{way}.permission") };
        keys(permission, &way, problems);
    }
    tools(node);
}

/// Lays an old key's entries under those of the new one.
fn under(node: &mut Node, key: &str, old: MapEntry) {
    match node.take(key) {
        Some(new) => {
            let mut joined = old.node;
            super::node::merge(&mut joined, new.node);
            node.set(key, new.at, joined);
        }
        None => node.set(key, old.at, old.node),
    }
}

/// `tools: {bash: false}` becomes `permission: {bash: "deny"}`, under what `permission` says.
fn tools(node: &mut Node) {
    let Some(tools) = node.take("tools") else { return };
    let mut rules = Node::empty(tools.at.clone());
    for entry in tools.node.entries() {
        let action = if entry.node.as_bool() == Some(true) { "allow" } else { "deny" };
        let key = match entry.key.as_str() {
            "write" | "edit" | "patch" | "multiedit" | "apply_patch" => "edit",
            key => key,
        };
        rules.set(key, entry.at.clone(), Node::text(action, entry.node.at.clone()));
    }
    if let Some(permission) = permission_of(node) {
        let over = std::mem::replace(permission, rules);
        super::node::merge(permission, over);
    } else {
        node.set("permission", tools.at, rules);
    }
}

/// The `permission` of a node as an object: a single action is the default for everything.
fn permission_of(node: &mut Node) -> Option<&mut Node> {
    let entries = node.entries_mut()?;
    let permission = &mut entries.iter_mut().find(|entry| entry.key == "permission")?.node;
    if let NodeValue::Text(_) = permission.value {
        let at = permission.at.clone();
        let inner = permission.clone();
        *permission =
            Node { value: NodeValue::Map(vec![MapEntry { key: "*".into(), at: at.clone(), node: inner }]), at };
    }
    Some(permission)
}

/// Permission keys that tools no longer ask under.
fn keys(permission: &mut Node, way: &str, problems: &mut Vec<Problem>) {
    let Some(entries) = permission.entries_mut() else { return };
    let mut renamed: Vec<(String, SourceLocation, Node)> = Vec::new();
    entries.retain_mut(|entry| {
        let modern = match entry.key.as_str() {
            "patch" | "multiedit" | "write" | "apply_patch" => "edit",
            "ls" => "list",
            _ => return true,
        };
        let text = format!("\"{}\" is an old name for \"{modern}\"; it still works", entry.key);
        let problem = Problem::deprecated(&entry.at, format!("{way}.{}", entry.key), text);
        problems.push(problem.hint(format!("write \"{modern}\"")));
        renamed.push((modern.into(), entry.at.clone(), entry.node.clone()));
        false
    });
    for (key, at, node) in renamed {
        match entries.iter_mut().find(|entry| entry.key == key) {
            // Two spellings of one thing: the stricter of two plain actions counts.
            Some(entry) => {
                let strict = |node: &Node| node.as_text().and_then(super::rules::action);
                if strict(&node) > strict(&entry.node) && strict(&entry.node).is_some() {
                    entry.node = node;
                }
            }
            None => entries.push(MapEntry { key, at, node }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::node::{ConfigOrigin, Layer};
    use super::super::problem::ProblemSeverity;
    use super::*;

    #[test]
    fn the_second_format_is_read_as_the_first() {
        let table = [
            (r#"{"mcp":{"servers":{"db":{"type":"local"}}}}"#, r#"{"mcp":{"db":{"type":"local"}}}"#, 1),
            (r#"{"mcp":{"servers":{"type":"local"}}}"#, r#"{"mcp":{"servers":{"type":"local"}}}"#, 0),
            (r#"{"mcp":{"timeout":5}}"#, r#"{"mcp":{},"experimental":{"mcp_timeout":5}}"#, 1),
            (r#"{"snapshots":false}"#, r#"{"snapshot":false}"#, 1),
            (r#"{"snapshots":false,"snapshot":true}"#, r#"{"snapshot":true}"#, 1),
            (r#"{"media":{"image":{}}}"#, r#"{"attachment":{"image":{}}}"#, 1),
            (r#"{"compaction":{"keep":3,"buffer":9}}"#, r#"{"compaction":{"tail_turns":3,"reserved":9}}"#, 2),
            (r#"{"compaction":{"keep":{"a":1}}}"#, r#"{"compaction":{"keep":{"a":1}}}"#, 0),
            (r#"{"experimental":{"subagent_depth":2}}"#, r#"{"experimental":{},"subagent_depth":2}"#, 1),
            (r#"{"websearch":{},"warming":1,"plugins":[]}"#, "{}", 3),
        ];
        let origin = Arc::new(ConfigOrigin { name: "x".into(), path: None, layer: Layer::Inline, project: false });
        for (text, wanted, notes) in table {
            let mut problems = Vec::new();
            let mut node = super::super::jsonc::parse(text, &origin, &mut problems).unwrap();
            renamed(&mut node, &mut problems);
            let wanted: serde_json::Value = serde_json::from_str(wanted).unwrap();
            assert_eq!((node.to_json(), problems.len()), (wanted, notes), "{text}");
            assert!(problems.iter().all(|problem| problem.severity == ProblemSeverity::Note));
        }
    }
}
