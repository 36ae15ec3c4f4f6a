//! Agents as text, for `adjutant agents` and `adjutant agents show NAME`.

use std::fmt::Write as _;

use super::{Agent, Agents, Mode};
use base::listing::{EntryState, shortened, table, terminal_width};
use base::text;
use permission::{Action, Rule};

/// An agent that is not used: its name, its state and the reason.
pub type UnusedAgent = (String, EntryState, String);

/// Lists the agents: modes first, in their order, then subagents, then hidden ones, then those that
/// are not used. `remarks` returns further facts about an agent, such as rules that wait for
/// trust. A description is shortened to the width of a terminal, and complete otherwise.
pub fn list(
    agents: &Agents,
    remarks: impl Fn(&str) -> Vec<String>,
    unused: &[UnusedAgent],
) -> String {
    let width = terminal_width();
    let modes = agents.modes();
    let listed = |name: &str| modes.iter().any(|agent| agent.name == name);
    let mut rest: Vec<_> = agents
        .all()
        .filter(|agent| !listed(&agent.name))
        .cloned()
        .collect();
    rest.sort_by(|a, b| (a.hidden, &a.name).cmp(&(b.hidden, &b.name)));
    let default = agents.default();
    let mut rows: Vec<[String; 5]> = modes
        .iter()
        .chain(&rest)
        .map(|agent| {
            row(
                agent,
                agent.name == default.name,
                &remarks(&agent.name),
                width,
            )
        })
        .collect();
    rows.extend(unused.iter().map(|(name, state, about)| {
        [
            name.clone(),
            "-".into(),
            state.as_str().into(),
            "-".into(),
            about.clone(),
        ]
    }));
    table(&["name", "mode", "state", "model", "about"], &rows)
}

fn row(agent: &Agent, is_default: bool, remarks: &[String], width: Option<usize>) -> [String; 5] {
    let mode = if agent.hidden {
        format!("{}, hidden", agent.mode.as_str())
    } else {
        agent.mode.as_str().into()
    };
    let default = if is_default { " (default)" } else { "" };
    let model = model(agent).unwrap_or_else(|| "-".into());
    let mut about = one_line(agent.description.as_deref().unwrap_or_default());
    if let Some(width) = width {
        about = shortened(&about, width);
    }
    if !remarks.is_empty() {
        if !about.is_empty() && !about.ends_with(['.', '!', '?', '…', '。']) {
            about.push('.');
        }
        about.push(' ');
        about.push_str(&text::capitalised(&remarks.join("; ")));
        about.push('.');
    }
    about.push_str(&format!(" ({})", agent.source));
    [
        format!("{}{default}", agent.name),
        mode,
        EntryState::Active.as_str().into(),
        model,
        about.trim().to_owned(),
    ]
}

/// Returns the agents as JSON for programs, by name.
pub fn to_json(agents: &Agents, remarks: impl Fn(&str) -> Vec<String>) -> Vec<serde_json::Value> {
    let default = agents.default();
    let encode_agent = |agent: &Agent| {
        serde_json::json!({
            "name": agent.name,
            "state": EntryState::Active.code(),
            "mode": agent.mode.as_str(),
            "default": agent.name == default.name,
            "hidden": agent.hidden,
            "model": model(agent),
            "description": agent.description,
            "source": agent.source,
            "remarks": remarks(&agent.name),
        })
    };
    let mut all: Vec<&Agent> = agents.all().map(AsRef::as_ref).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.into_iter().map(encode_agent).collect()
}

/// Returns one agent as JSON, as in [`to_json`], with its rules in the order of evaluation.
pub fn one_to_json(
    agents: &Agents,
    agent: &Agent,
    remarks: impl Fn(&str) -> Vec<String>,
) -> serde_json::Value {
    let mut one = to_json(agents, remarks)
        .into_iter()
        .find(|one| one["name"] == agent.name.as_str())
        .unwrap_or_default();
    let rule = |rule: &Rule| {
        serde_json::json!({ "permission": rule.permission, "pattern": rule.pattern,
            "action": rule.action, "source": rule.source })
    };
    one["rules"] = agent.rules.iter().map(rule).collect();
    one
}

/// Returns the model of an agent, or the family of its models.
fn model(agent: &Agent) -> Option<String> {
    let family = || agent.family.map(|family| family.as_str().to_owned());
    agent
        .model
        .as_ref()
        .map(ToString::to_string)
        .or_else(family)
}

/// Describes one agent; its rules are in the order of evaluation, each with its source.
pub fn show(agent: &Agent) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", agent.name);
    let mut fact = |key: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {key}: {value}");
        }
    };
    if agent.label != agent.name {
        fact("label", agent.label.clone());
    }
    fact(
        "description",
        one_line(agent.description.as_deref().unwrap_or_default()),
    );
    let users = match agent.mode {
        Mode::Primary => "a mode you can choose",
        Mode::Subagent => "started by other agents",
        Mode::All => "a mode you can choose, and started by other agents",
    };
    fact(
        "mode",
        format!(
            "{} ({})",
            agent.mode.as_str(),
            if agent.hidden { "hidden" } else { users }
        ),
    );
    fact(
        "model",
        model(agent).unwrap_or_else(|| "the session's".into()),
    );
    fact("variant", agent.variant.clone().unwrap_or_default());
    fact(
        "temperature",
        agent.temperature.map(|n| n.to_string()).unwrap_or_default(),
    );
    fact(
        "top_p",
        agent.top_p.map(|n| n.to_string()).unwrap_or_default(),
    );
    fact(
        "steps",
        agent
            .steps
            .map_or_else(|| "no limit of its own".into(), |n| n.to_string()),
    );
    fact("color", agent.color.clone().unwrap_or_default());
    if !agent.options.is_empty() {
        fact(
            "options",
            serde_json::Value::Object(agent.options.clone()).to_string(),
        );
    }
    let prompt = agent
        .prompt
        .as_ref()
        .map(|prompt| format!("{} characters of its own", prompt.chars().count()));
    fact(
        "prompt",
        prompt.unwrap_or_else(|| "the one for the model's family".into()),
    );
    fact("source", agent.source.clone());
    text.push_str("\nRules, in order; the last one that matches decides, and a broader allow does not lift a deny:\n");
    let rows: Vec<[String; 4]> = agent
        .rules
        .iter()
        .map(|rule| {
            let action = match rule.action {
                Action::Allow => "allow",
                Action::Ask => "ask",
                Action::Deny => "deny",
            };
            [
                action.into(),
                rule.permission.clone(),
                rule.pattern.clone(),
                rule.source.clone(),
            ]
        })
        .collect();
    text.push_str(&table(
        &["verdict", "permission", "pattern", "source"],
        &rows,
    ));
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
