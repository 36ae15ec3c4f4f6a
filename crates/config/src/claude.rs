//! The hooks of Claude Code's `settings.json`, converted into entries of `hook`. Each entry has its
//! location, so that all rules for hooks apply to it, trust above all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::{ConfigOrigin, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};

/// Claude Code's events, with adjutant's names.
const EVENTS: &[(&str, &str)] = &[
    ("PreToolUse", "tool.before"),
    ("PostToolUse", "tool.after"),
    ("PermissionRequest", "permission"),
    ("UserPromptSubmit", "prompt"),
    ("Stop", "turn.end"),
    ("SessionStart", "session.start"),
    ("SessionEnd", "session.end"),
    ("PreCompact", "compaction"),
];

/// Claude Code's tools, with adjutant's names.
pub const TOOLS: &[(&str, &str)] = &[
    ("Bash", "bash"),
    ("BashOutput", "bash_output"),
    ("KillShell", "bash_stop"),
    ("Read", "read"),
    ("LS", "list"),
    ("Glob", "glob"),
    ("Grep", "grep"),
    ("Edit", "edit"),
    ("MultiEdit", "multiedit"),
    ("Write", "write"),
    ("WebFetch", "webfetch"),
    ("Task", "task"),
    ("TodoWrite", "todowrite"),
    ("Skill", "skill"),
];

/// Returns adjutant's name of an event of Claude Code.
pub(crate) fn event(name: &str) -> Option<&'static str> {
    let known = EVENTS.iter().find(|(theirs, _)| *theirs == name);
    known.map(|(_, ours)| *ours)
}

/// Returns the paths of Claude Code's files below a directory, the lower layer first.
pub(crate) fn files(dir: &Path) -> [PathBuf; 2] {
    ["settings.json", "settings.local.json"].map(|name| dir.join(".claude").join(name))
}

/// Converts the hooks of a Claude Code file. Unsupported parts are reported.
pub(crate) fn hooks(node: &Node, origin: &Arc<ConfigOrigin>, problems: &mut Vec<Problem>) -> Node {
    let mut hooks = HookConverter {
        origin,
        problems,
        found: Vec::new(),
    };
    for event in node.get("hooks").map(Node::entries).unwrap_or_default() {
        let Some((_, on)) = EVENTS
            .iter()
            .find(|(claude_name, _)| *claude_name == event.key)
        else {
            hooks.report(
                &event.at,
                &event.key,
                "no event here corresponds to this one; its hooks do not run",
            );
            continue;
        };
        let NodeValue::List(groups) = &event.node.value else {
            continue;
        };
        for group in groups {
            hooks.group(&event.key, on, group);
        }
    }
    let at = SourceLocation::whole_text(origin);
    let all = Node {
        value: NodeValue::Map(hooks.found),
        at: at.clone(),
    };
    let entry = MapEntry {
        key: "hook".into(),
        at: at.clone(),
        node: all,
    };
    Node {
        value: NodeValue::Map(vec![entry]),
        at,
    }
}

struct HookConverter<'a> {
    origin: &'a Arc<ConfigOrigin>,
    problems: &'a mut Vec<Problem>,
    found: Vec<MapEntry>,
}

impl HookConverter<'_> {
    fn report(&mut self, at: &SourceLocation, event: &str, text: &str) {
        self.problems.push(Problem::note(
            ProblemCode::NoEffect,
            at,
            format!("hooks.{event}"),
            text,
        ));
    }

    fn group(&mut self, event: &str, on: &str, group: &Node) {
        let matcher = group
            .get("matcher")
            .and_then(Node::as_text)
            .unwrap_or_default();
        let about_tools = ["tool.before", "tool.after", "permission"].contains(&on);
        let tools = match tools(matcher) {
            _ if !about_tools => {
                if !["", "*"].contains(&matcher) {
                    let text =
                        "a matcher applies to tools only; these hooks run on every such event";
                    self.report(&group.at, event, text);
                }
                None
            }
            Some(tools) => tools,
            None => {
                let text = "this matcher is not understood: names, *, .* and | are; these hooks run for every tool";
                self.report(&group.at, event, text);
                None
            }
        };
        let Some(NodeValue::List(all)) = group.get("hooks").map(|node| &node.value) else {
            return;
        };
        for hook in all {
            let kind = hook.get("type").and_then(Node::as_text);
            let is_command = kind.is_none_or(|kind| kind == "command");
            let command = if is_command {
                hook.get("command").and_then(Node::as_text)
            } else {
                None
            };
            let Some(command) = command else {
                let kind = base::text::title(kind.unwrap_or("nothing"));
                self.report(
                    &hook.at,
                    event,
                    &format!("only hooks of type \"command\" run, not \"{kind}\""),
                );
                continue;
            };
            self.hook(event, on, tools.as_deref(), command, hook);
        }
    }

    fn hook(&mut self, event: &str, on: &str, tools: Option<&str>, command: &str, hook: &Node) {
        let at = &hook.at;
        let text = |key: &str, text: &str| MapEntry {
            key: key.into(),
            at: at.clone(),
            node: Node::text(text, at.clone()),
        };
        let argv = ["sh", "-c", command]
            .map(|word| Node::text(word, at.clone()))
            .into();
        let command = MapEntry {
            key: "command".into(),
            at: at.clone(),
            node: Node {
                value: NodeValue::List(argv),
                at: at.clone(),
            },
        };
        let mut entries = vec![text("on", on), command, text("format", "claude")];
        entries.extend(tools.map(|tools| text("tool", tools)));
        if let Some(NodeValue::Number(seconds)) = hook.get("timeout").map(|node| &node.value)
            && let Some(seconds) = seconds
                .as_u64()
                .filter(|seconds| (1..=600).contains(seconds))
        {
            let node = Node {
                value: NodeValue::Number((seconds * 1_000).into()),
                at: at.clone(),
            };
            entries.push(MapEntry {
                key: "timeout".into(),
                at: at.clone(),
                node,
            });
        }
        let name = format!("{} {event} {}", self.origin.name, self.found.len() + 1);
        let node = Node {
            value: NodeValue::Map(entries),
            at: at.clone(),
        };
        self.found.push(MapEntry {
            key: name,
            at: at.clone(),
            node,
        });
    }
}

/// Converts a matcher into adjutant's names of tools: `Edit|Write` becomes `edit|write`. The inner
/// `None` means all tools, the outer one a regular expression that is not supported.
#[expect(clippy::option_option, reason = "all tools, or not understood")]
fn tools(matcher: &str) -> Option<Option<String>> {
    if ["", "*", ".*"].contains(&matcher) {
        return Some(None);
    }
    let tool = |name: &str| {
        let name = name
            .trim()
            .trim_start_matches('^')
            .trim_end_matches('$')
            .replace(".*", "*");
        let plain = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "_-*".contains(c));
        plain.then(
            || match TOOLS.iter().find(|(claude_name, _)| *claude_name == name) {
                Some((_, own_name)) => (*own_name).to_owned(),
                None => match name.strip_prefix("mcp__") {
                    Some(server) => server.replace("__", "_"),
                    None => name,
                },
            },
        )
    };
    let all: Option<Vec<String>> = matcher.split('|').map(tool).collect();
    Some(Some(all?.join("|")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Layer;

    #[test]
    fn matcher_becomes_tool_names() {
        let table = [
            ("", Some(None)),
            ("*", Some(None)),
            ("Bash", Some(Some("bash"))),
            ("Edit|MultiEdit|Write", Some(Some("edit|multiedit|write"))),
            ("mcp__github__.*", Some(Some("github_*"))),
            ("^Notebook.*$", Some(Some("Notebook*"))),
            ("(Edit|Write)", None),
            ("[A-Z]+", None),
        ];
        for (matcher, wanted) in table {
            assert_eq!(
                tools(matcher),
                wanted.map(|all| all.map(str::to_owned)),
                "{matcher}"
            );
        }
    }

    #[test]
    fn claude_hooks_become_entries() {
        let text = r#"{"hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check", "timeout": 5}]}],
            "Stop": [{"matcher": "x", "hooks": [{"type": "prompt", "prompt": "Done?"}, {"command": "say done"}]}],
            "Notification": []}}"#;
        let origin = Arc::new(ConfigOrigin {
            name: "f".into(),
            path: None,
            layer: Layer::Project,
            project: true,
        });
        let mut problems = Vec::new();
        let node = crate::jsonc::parse(text, &origin, &mut problems).unwrap();
        let hooks = hooks(&node, &origin, &mut problems);
        let wanted = serde_json::json!({"hook": {
            "f PreToolUse 1": {"on": "tool.before", "command": ["sh", "-c", "./check"], "format": "claude",
                "tool": "bash", "timeout": 5000},
            "f Stop 2": {"on": "turn.end", "command": ["sh", "-c", "say done"], "format": "claude"}}});
        assert_eq!(hooks.to_json(), wanted);
        let reported: Vec<String> = problems
            .iter()
            .map(|problem| format!("{} {}", problem.location.line, problem.key))
            .collect();
        assert_eq!(
            reported,
            ["3 hooks.Stop", "3 hooks.Stop", "4 hooks.Notification"]
        );
    }
}
