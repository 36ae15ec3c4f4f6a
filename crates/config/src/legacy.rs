//! Old spellings, rewritten into the current ones so that no other module has to know them. The
//! declaration reports them (`x-instead`), unless the value rather than the key is old.

use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use super::rules::{meant_permission, modern_permission, permission_of_tool};

/// Keys of OpenCode's second format that have another place in this one.
const MOVED: &[(&[&str], &[&str])] = &[
    (&["mcp", "servers"], &["mcp"]),
    (&["mcp", "timeout"], &["experimental", "mcp_timeout"]),
    (&["snapshots"], &["snapshot"]),
    (&["media"], &["attachment"]),
    (&["compaction", "keep"], &["compaction", "tail_turns"]),
    (&["compaction", "buffer"], &["compaction", "reserved"]),
    (&["experimental", "subagent_depth"], &["subagent_depth"]),
];

/// Keys of the second format that have no effect here.
const UNUSED: &[&str] = &["plugins", "websearch", "warming"];

fn later_format(node: &Node, new: &str, old: &str) -> Problem {
    let text = format!("\"{new}\" belongs to a later format of OpenCode; it is read as \"{old}\"");
    Problem::note(ProblemCode::LaterFormat, &node.at, new, text)
}

/// Returns whether a value belongs to the second format: a server may well be named "servers".
fn is_later(path: &[&str], node: &Node) -> bool {
    match path {
        ["mcp", "servers"] => {
            !node.entries().is_empty()
                && !["type", "command", "url", "enabled"]
                    .iter()
                    .any(|key| node.get(key).is_some())
        }
        ["mcp", "timeout"] | ["compaction", _] => matches!(node.value, NodeValue::Number(_)),
        _ => true,
    }
}

fn remove(node: &mut Node, path: &[&str]) {
    match path {
        [] => {}
        [key] => {
            node.take(key);
        }
        [key, rest @ ..] => {
            if let Some(inner) = node
                .entries_mut()
                .and_then(|all| all.iter_mut().find(|entry| entry.key == *key))
            {
                remove(&mut inner.node, rest);
            }
        }
    }
}

/// Sets a value unless there is one.
fn put(node: &mut Node, path: &[&str], value: Node) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    if node.get(key).is_none() {
        let at = value.at.clone();
        node.set(
            key,
            at.clone(),
            if rest.is_empty() {
                value.clone()
            } else {
                Node::empty(at)
            },
        );
    }
    if let Some(inner) = node
        .entries_mut()
        .and_then(|all| all.iter_mut().find(|entry| entry.key == *key))
    {
        put(&mut inner.node, rest, value);
    }
}

/// The key of ours among the providers of OpenCode's coming second format.
const OWN_PROVIDERS: [&str; 2] = ["providers", "from_editor"];

/// Takes our own key out of `providers`, unless it is a provider of that name. Returns its value,
/// and the location of `providers`.
fn take_own_providers(node: &mut Node) -> Option<(Node, SourceLocation)> {
    let entries = node.entries();
    let providers = entries.iter().find(|entry| entry.key == OWN_PROVIDERS[0])?;
    let at = providers.at.clone();
    let own = node.at(&OWN_PROVIDERS)?.clone();
    if matches!(own.value, NodeValue::Map(_)) {
        return None;
    }
    remove(node, &OWN_PROVIDERS);
    let is_empty = node
        .get("providers")
        .is_some_and(|rest| rest.entries().is_empty());
    if is_empty {
        node.take("providers");
    }
    Some((own, at))
}

/// Rewrites keys of OpenCode's coming second format, before the tree is checked.
pub(crate) fn rewrite_later_format(node: &mut Node, problems: &mut Vec<Problem>) {
    let own = take_own_providers(node);
    for (new, old) in [
        ("agents", "agent"),
        ("commands", "command"),
        ("providers", "provider"),
    ] {
        if node.get(old).is_none()
            && let Some(mut entry) = node.take(new)
        {
            let text =
                format!("\"{new}\" belongs to a later format of OpenCode; it is read as \"{old}\"");
            problems.push(Problem::note(
                ProblemCode::LaterFormat,
                &entry.at,
                new,
                text,
            ));
            if old == "agent" {
                for agent in entry.node.entries_mut().into_iter().flatten() {
                    lower_agent(&mut agent.node);
                }
            }
            node.set(old, entry.at, entry.node);
        }
    }
    if let Some((own, at)) = own {
        if node.get("providers").is_none() {
            node.set("providers", at.clone(), Node::empty(at));
        }
        put(node, &OWN_PROVIDERS, own);
    }
    for key in ["agent", "mode"] {
        for agent in node
            .get_mut(key)
            .and_then(Node::entries_mut)
            .into_iter()
            .flatten()
        {
            agent_spellings(&mut agent.node, &format!("{key}.{}", agent.key), problems);
        }
    }
    for (new, old) in MOVED {
        let Some(found) = node.at(new).filter(|found| is_later(new, found)).cloned() else {
            continue;
        };
        remove(node, new);
        problems.push(later_format(&found, &new.join("."), &old.join(".")));
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
            problems.push(Problem::note(
                ProblemCode::LaterFormat,
                &entry.at,
                *key,
                text,
            ));
        }
    }
    if let Some(skills) = node
        .get("skills")
        .filter(|skills| matches!(skills.value, NodeValue::List(_)))
        .cloned()
    {
        let at = skills.at.clone();
        let entry = MapEntry {
            key: "paths".into(),
            at: at.clone(),
            node: skills,
        };
        node.set(
            "skills",
            at.clone(),
            Node {
                value: NodeValue::Map(vec![entry]),
                at,
            },
        );
    }
    if let Some(entry) = node
        .get("permissions")
        .map(|_| ())
        .and_then(|()| node.take("permissions"))
    {
        let text = "rules as a list belong to a later format of OpenCode; they are not used";
        problems.push(
            Problem::error(ProblemCode::LaterFormat, &entry.at, "permissions", text)
                .hint("write \"permission\": {\"edit\": \"ask\"}"),
        );
    }
}

/// Other spellings of an agent's keys in public configurations, with the current name.
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

/// Options of providers that public configurations put next to an agent's own keys.
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

/// Rewrites other spellings in an agent, before it is checked. `path` is the agent's path.
pub(crate) fn agent_spellings(agent: &mut Node, path: &str, problems: &mut Vec<Problem>) {
    let join = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    for (other, key) in AGENT_KEYS {
        if agent.get(key).is_some() {
            continue;
        }
        if let Some(entry) = agent.take(other) {
            let text = format!("\"{other}\" is another spelling; it works");
            problems.push(
                Problem::deprecated(&entry.at, join(other), text).hint(format!("write \"{key}\"")),
            );
            agent.set(key, entry.at, entry.node);
        }
    }
    if let Some(enabled) = agent.take("enabled")
        && let Some(is_enabled) = enabled.node.as_bool()
    {
        let text = "\"enabled\" is another spelling; it works";
        problems.push(
            Problem::deprecated(&enabled.at, join("enabled"), text).hint("write \"disable\""),
        );
        agent.set(
            "disable",
            enabled.at,
            Node {
                value: NodeValue::Bool(!is_enabled),
                at: enabled.node.at,
            },
        );
    }
    for option in AGENT_OPTIONS {
        let Some(entry) = agent.take(option) else {
            continue;
        };
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
    if let Some(model) = agent
        .get("model")
        .and_then(Node::as_text)
        .map(str::to_owned)
        && let Some((model, variant)) = model.split_once('#')
    {
        let at = agent
            .get("model")
            .map_or_else(|| agent.at.clone(), |node| node.at.clone());
        agent.set("model", at.clone(), Node::text(model, at.clone()));
        agent.set("variant", at.clone(), Node::text(variant, at));
    }
}

/// Rewrites old spellings in a checked tree.
pub(crate) fn rewrite(node: &mut Node, problems: &mut Vec<Problem>) {
    if let Some(mut modes) = node.take("mode") {
        for entry in modes.node.entries_mut().into_iter().flatten() {
            let at = entry.at.clone();
            entry
                .node
                .set("mode", at.clone(), Node::text("primary", at));
        }
        under(node, "agent", modes);
    }
    if let Some(reference) = node.take("reference") {
        under(node, "references", reference);
    }
    for reference in node
        .get_mut("references")
        .and_then(Node::entries_mut)
        .into_iter()
        .flatten()
    {
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
    let agents = node
        .entries_mut()
        .and_then(|entries| entries.iter_mut().find(|entry| entry.key == "agent"));
    for agent in agents
        .and_then(|agents| agents.node.entries_mut())
        .into_iter()
        .flatten()
    {
        self::agent(&mut agent.node, &format!("agent.{}", agent.key), problems);
    }
}

/// Rewrites old spellings in one agent.
pub(crate) fn agent(node: &mut Node, path: &str, problems: &mut Vec<Problem>) {
    if let Some(steps) = node.take("maxSteps")
        && node.get("steps").is_none()
    {
        node.set("steps", steps.at, steps.node);
    }
    if let Some(permission) = permission_of(node) {
        let path = if path.is_empty() {
            "permission".to_owned()
        } else {
            format!("{path}.permission")
        };
        keys(permission, &path, problems);
    }
    tools(node);
}

/// Merges an old key's entries under those of the new one.
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

/// Permissions of tools that act. An agent for another program has those that its list names.
const ACTING: [&str; 5] = ["edit", "bash", "webfetch", "websearch", "task"];

/// Permissions of tools that read files of the project. One of them in such a list means all.
const READING: [&str; 4] = ["read", "grep", "glob", "list"];

/// Rewrites the lists of tools in agents for another program, `tools: Read, Grep` and
/// `disallowedTools: Write`, as denied permissions. A list allows nothing: the other rules decide
/// about its tools. Those of MCP servers are denied only by name.
pub(crate) fn tool_lists(node: &mut Node, problems: &mut Vec<Problem>) {
    let mut rules: Option<Node> = None;
    for key in ["tools", "disallowedTools"] {
        let Some((at, names)) = take_names(node, key) else {
            continue;
        };
        let named: Vec<&str> = names
            .iter()
            .filter_map(|name| permission_of_tool(name))
            .collect();
        let is_missing = |permission: &&str| !named.contains(permission);
        let mut denied: Vec<String> = Vec::new();
        if key == "disallowedTools" {
            denied.extend(names.iter().filter_map(|name| denied_permission(name)));
        } else if !names.iter().any(|name| name == "*") {
            denied.extend(ACTING.into_iter().filter(is_missing).map(str::to_owned));
            if READING.iter().all(is_missing) {
                denied.extend(READING.into_iter().map(str::to_owned));
            }
        }
        let rules = rules.get_or_insert_with(|| Node::empty(at.clone()));
        for permission in denied {
            rules.set(&permission, at.clone(), Node::text("deny", at.clone()));
        }
        let text = "this is a list of tools as another program writes it: tools of adjutant that it leaves out, or forbids, are denied";
        problems.push(Problem::note(ProblemCode::OldSpelling, &at, key, text));
    }
    if let Some(rules) = rules {
        add_below(node, rules);
    }
}

/// Returns the permission to deny for a forbidden tool of another program. `None` if the tool is
/// one of that program without a counterpart, such as `BashOutput`.
fn denied_permission(name: &str) -> Option<String> {
    if let Some(tool) = name.strip_prefix("mcp__") {
        // `mcp__github` is the whole server.
        return Some(if tool.contains("__") {
            tool.replace("__", "_")
        } else {
            format!("{tool}_*")
        });
    }
    let meant = || meant_permission(&name.to_ascii_lowercase());
    if let Some(permission) = permission_of_tool(name).or_else(meant) {
        return Some(permission.to_owned());
    }
    // A tool of a plugin, for example. The rule is reported if no tool has the name.
    let is_plain = !name.contains(|c: char| c.is_ascii_uppercase());
    is_plain.then(|| name.to_owned())
}

/// Takes a list of names out of a node: a text with commas, or a list of texts. Leaves anything
/// else.
fn take_names(node: &mut Node, key: &str) -> Option<(SourceLocation, Vec<String>)> {
    let texts: Vec<&str> = match &node.get(key)?.value {
        NodeValue::Text(text) => vec![text],
        NodeValue::List(items) => items.iter().map(Node::as_text).collect::<Option<_>>()?,
        _ => return None,
    };
    let mut names = Vec::new();
    for text in texts {
        // A name may be followed by a pattern: `Bash(git diff:*, git log:*)`.
        let is_closed = text.matches('(').count() == text.matches(')').count();
        let mut depth = 0_usize;
        let parts = text.split(move |c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 || !is_closed) && (c == ',' || c.is_whitespace())
        });
        let name = |part: &str| part.split(['(', ')']).next().unwrap_or_default().to_owned();
        names.extend(parts.map(name).filter(|name| !name.is_empty()));
    }
    let entry = node.take(key)?;
    Some((entry.at, names))
}

/// Adds rules to a node, below the present `permission`.
fn add_below(node: &mut Node, rules: Node) {
    let at = rules.at.clone();
    if let Some(permission) = permission_of(node) {
        let over = std::mem::replace(permission, rules);
        super::node::merge(permission, over);
    } else {
        node.set("permission", at, rules);
    }
}

/// Rewrites `tools: {bash: false}` as `permission: {bash: "deny"}`, below the present `permission`.
fn tools(node: &mut Node) {
    let Some(tools) = node.take("tools") else {
        return;
    };
    let mut rules = Node::empty(tools.at.clone());
    for entry in tools.node.entries() {
        let action = if entry.node.as_bool() == Some(true) {
            "allow"
        } else {
            "deny"
        };
        let key = match entry.key.as_str() {
            "write" | "edit" | "patch" | "multiedit" | "apply_patch" => "edit",
            key => key,
        };
        rules.set(
            key,
            entry.at.clone(),
            Node::text(action, entry.node.at.clone()),
        );
    }
    add_below(node, rules);
}

/// Returns the `permission` of a node as an object: a single action becomes the default for
/// everything.
fn permission_of(node: &mut Node) -> Option<&mut Node> {
    let entries = node.entries_mut()?;
    let permission = &mut entries
        .iter_mut()
        .find(|entry| entry.key == "permission")?
        .node;
    if let NodeValue::Text(_) = permission.value {
        let at = permission.at.clone();
        let inner = permission.clone();
        *permission = Node {
            value: NodeValue::Map(vec![MapEntry {
                key: "*".into(),
                at: at.clone(),
                node: inner,
            }]),
            at,
        };
    }
    Some(permission)
}

/// Renames permission keys that tools no longer use.
fn keys(permission: &mut Node, path: &str, problems: &mut Vec<Problem>) {
    let Some(entries) = permission.entries_mut() else {
        return;
    };
    let mut renamed: Vec<(String, SourceLocation, Node)> = Vec::new();
    entries.retain_mut(|entry| {
        let Some(modern) = modern_permission(&entry.key) else {
            return true;
        };
        let text = format!(
            "\"{}\" is an old name for \"{modern}\"; it still works",
            entry.key
        );
        let problem = Problem::deprecated(&entry.at, format!("{path}.{}", entry.key), text);
        problems.push(problem.hint(format!("write \"{modern}\"")));
        renamed.push((modern.into(), entry.at.clone(), entry.node.clone()));
        false
    });
    for (key, at, node) in renamed {
        match entries.iter_mut().find(|entry| entry.key == key) {
            // Two spellings of one key: the stricter of two plain actions is used.
            Some(entry) => {
                let action = |node: &Node| node.as_text().and_then(super::rules::action);
                if action(&node) > action(&entry.node) && action(&entry.node).is_some() {
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

    /// A new permission must be denied to agents for another program whose list of tools leaves it
    /// out, unless it neither changes nor reveals anything.
    #[test]
    fn permissions_are_acting_reading_or_harmless() {
        let harmless = [
            "*",
            "lsp",
            "skill",
            "question",
            "plan_enter",
            "plan_exit",
            "todowrite",
            "todoread",
            "codesearch",
            "external_directory",
            "doom_loop",
        ];
        let mut listed = [&ACTING[..], &READING[..], &harmless[..]].concat();
        let mut all: Vec<&str> = permission::keys::PERMISSIONS
            .iter()
            .map(|(key, _)| *key)
            .collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    #[test]
    fn second_format_is_read_as_first() {
        let table = [
            (
                r#"{"mcp":{"servers":{"db":{"type":"local"}}}}"#,
                r#"{"mcp":{"db":{"type":"local"}}}"#,
                1,
            ),
            (
                r#"{"mcp":{"servers":{"type":"local"}}}"#,
                r#"{"mcp":{"servers":{"type":"local"}}}"#,
                0,
            ),
            (
                r#"{"mcp":{"timeout":5}}"#,
                r#"{"mcp":{},"experimental":{"mcp_timeout":5}}"#,
                1,
            ),
            (r#"{"snapshots":false}"#, r#"{"snapshot":false}"#, 1),
            (
                r#"{"snapshots":false,"snapshot":true}"#,
                r#"{"snapshot":true}"#,
                1,
            ),
            (
                r#"{"media":{"image":{}}}"#,
                r#"{"attachment":{"image":{}}}"#,
                1,
            ),
            (
                r#"{"compaction":{"keep":3,"buffer":9}}"#,
                r#"{"compaction":{"tail_turns":3,"reserved":9}}"#,
                2,
            ),
            (
                r#"{"compaction":{"keep":{"a":1}}}"#,
                r#"{"compaction":{"keep":{"a":1}}}"#,
                0,
            ),
            (
                r#"{"experimental":{"subagent_depth":2}}"#,
                r#"{"experimental":{},"subagent_depth":2}"#,
                1,
            ),
            (r#"{"websearch":{},"warming":1,"plugins":[]}"#, "{}", 3),
        ];
        let origin = Arc::new(ConfigOrigin {
            name: "x".into(),
            path: None,
            layer: Layer::Inline,
            project: false,
        });
        for (text, wanted, notes) in table {
            let mut problems = Vec::new();
            let mut node = super::super::jsonc::parse(text, &origin, &mut problems).unwrap();
            rewrite_later_format(&mut node, &mut problems);
            let wanted: serde_json::Value = serde_json::from_str(wanted).unwrap();
            assert_eq!((node.to_json(), problems.len()), (wanted, notes), "{text}");
            assert!(
                problems
                    .iter()
                    .all(|problem| problem.severity == ProblemSeverity::Note)
            );
        }
    }
}
