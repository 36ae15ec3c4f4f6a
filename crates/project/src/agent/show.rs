//! Agents as text, for `adjutant agents` and `adjutant agents show NAME`.

use std::fmt::Write as _;

use super::{Agent, Agents, Mode};
use permission::Action;

/// Lists the agents, one per line: modes first, in their order, then subagents, then hidden ones.
pub fn list(agents: &Agents) -> String {
    let modes = agents.modes();
    let listed = |name: &str| modes.iter().any(|agent| agent.name == name);
    let mut rest: Vec<_> = agents
        .all()
        .filter(|agent| !listed(&agent.name))
        .cloned()
        .collect();
    rest.sort_by(|a, b| (a.hidden, &a.name).cmp(&(b.hidden, &b.name)));
    let rows: Vec<[String; 5]> = modes
        .iter()
        .chain(&rest)
        .map(|agent| {
            let mode = if agent.hidden {
                format!("{}, hidden", agent.mode.as_str())
            } else {
                agent.mode.as_str().into()
            };
            let default = if agent.name == agents.default().name {
                " (default)"
            } else {
                ""
            };
            [
                format!("{}{default}", agent.name),
                mode,
                model(agent).unwrap_or_else(|| "-".into()),
                agent.source.clone(),
                one_line(agent.description.as_deref().unwrap_or_default(), 60),
            ]
        })
        .collect();
    table(&["name", "mode", "model", "source", "description"], &rows)
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
        one_line(agent.description.as_deref().unwrap_or_default(), 200),
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
    text.push_str("\nRules, in order; the last one that fits decides, a deny is not lifted by a broader allow:\n");
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

fn one_line(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max_chars {
        return line;
    }
    format!(
        "{}...",
        line.chars()
            .take(max_chars.saturating_sub(3))
            .collect::<String>()
            .trim_end()
    )
}

/// Formats a table: columns as wide as their widest entry, separated by two spaces.
fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain(head.get(column).map(|cell| cell.len()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    };
    line(&mut head.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}
