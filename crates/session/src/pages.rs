//! The pages of the built-in commands that describe the session: `/status`, `/mcp`, `/skills`,
//! `/permissions`.

use crate::turn::{History, TurnContext, size, step_context};
use base::text;
use mcp::inventory::ServerStatus;
use permission::Rules;
use store::{Record, visible};
use transcript::ModelRef;

/// The longest description in a list, in characters.
const MAX_DESCRIPTION_CHARS: usize = 120;

/// Describes the session: mode, model, context, cost, approvals, sandbox, servers.
pub(super) async fn status(history: &mut History, record: &Record, turn: &TurnContext) -> String {
    let used = context_use(history, record);
    let choice = turn.choice.borrow().clone();
    let agent = turn.project.agents.get(&choice.agent);
    let model = step_context::resolve_model(&choice, agent.as_deref(), &turn.project.models);
    let known = turn.project.models.find(&model).ok();
    let window = known.as_ref().map(|(model, _)| model.window());
    let address = known.and_then(|(model, _)| model.editor_address.clone());
    let mut rows = vec![
        ("Mode", text::escaped(&choice.agent)),
        (
            "Model",
            model_row(&model, window.is_some(), address.as_deref()),
        ),
        ("Context", context_row(used, window)),
    ];
    if let Some(cost) = history.cost() {
        rows.push(("Cost", format!("${cost:.4}")));
    }
    rows.push(("Approvals", choice.approvals().as_str().to_owned()));
    rows.push(("Sandbox", sandbox(turn).await));
    let servers = turn.session.common.servers.statuses();
    if !servers.is_empty() {
        rows.push(("MCP servers", servers_row(&servers)));
    }
    let running = turn.session.shared.jobs.running().len();
    if running > 0 {
        rows.push(("Background", text::count(running, "command")));
    }
    list(rows.iter().map(|(name, value)| format!("{name}: {value}")))
}

/// The tokens of the visible messages.
#[derive(Debug, Clone, Copy)]
enum ContextUse {
    /// There are no messages.
    Empty,
    Counted(u64),
    /// An estimate without the system prompt and the tools: the provider has reported no usage.
    Estimated(u64),
}

fn context_use(history: &mut History, record: &Record) -> ContextUse {
    let hidden = history
        .messages
        .split_off(visible(&history.messages, &record.undone));
    let used = match size::used_tokens(history) {
        Some(counted) => ContextUse::Counted(counted),
        None if history.messages.is_empty() => ContextUse::Empty,
        None => ContextUse::Estimated(size::messages(history)),
    };
    history.messages.extend(hidden);
    used
}

/// Names the model, with the address that the editor has set for it.
fn model_row(model: &ModelRef, is_known: bool, address: Option<&str>) -> String {
    let name = text::escaped(&model.to_string());
    match address {
        Some(address) => format!("{name} at {}, set by the editor", text::escaped(address)),
        None if is_known => name,
        None => format!("{name} (not found)"),
    }
}

fn context_row(used: ContextUse, window: Option<u64>) -> String {
    let window = window.filter(|window| *window > 0);
    match (used, window) {
        (ContextUse::Counted(used), Some(window)) => {
            let left = window.saturating_sub(used);
            let percent = left * 100 / window;
            format!(
                "{} of {} tokens used, {percent} % left",
                text::thousands(used),
                text::thousands(window)
            )
        }
        (ContextUse::Counted(used), None) => format!("{} tokens used", text::thousands(used)),
        (ContextUse::Estimated(used), window) => {
            let window = window.map(|window| format!("{} tokens; ", text::thousands(window)));
            format!(
                "{}the provider has not counted those used, the messages take about {}",
                window.unwrap_or_default(),
                text::thousands(used)
            )
        }
        (ContextUse::Empty, Some(window)) => {
            format!("{} tokens, none used yet", text::thousands(window))
        }
        (ContextUse::Empty, None) => "none used yet".to_owned(),
    }
}

fn servers_row(servers: &[ServerStatus]) -> String {
    let ready = servers.iter().filter(|server| server.is_ready).count();
    if ready == servers.len() {
        return format!("{ready} connected");
    }
    let starting = servers.iter().filter(|server| server.is_starting).count();
    match starting {
        0 => format!("{ready} of {} connected (`/mcp`)", servers.len()),
        _ if starting == servers.len() => format!("{starting} still starting (`/mcp`)"),
        _ => format!(
            "{ready} of {} connected, {starting} still starting (`/mcp`)",
            servers.len()
        ),
    }
}

async fn sandbox(turn: &TurnContext) -> String {
    match step_context::chosen_agent(turn) {
        Ok(agent) => {
            let settings = &turn.project.context.settings;
            let sandbox_choice = turn
                .session
                .permissions
                .sandbox_choice
                .for_agent(&agent.rules, settings);
            text::escaped(&sandbox_choice.status().await)
        }
        Err(_) => "unknown, because the mode no longer exists".to_owned(),
    }
}

/// Lists the MCP servers of the session with their states.
pub(super) fn servers(turn: &TurnContext) -> String {
    server_list(&turn.session.common.servers.statuses())
}

fn server_list(servers: &[ServerStatus]) -> String {
    if servers.is_empty() {
        return "No MCP servers are configured. The setting `mcp` adds one.".to_owned();
    }
    list(servers.iter().map(|server| {
        let offer = [(server.tools, "tool"), (server.prompts, "prompt")];
        let offer = offer
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, noun)| format!(", {}", text::count(n, noun)));
        format!(
            "{}: {}{}",
            text::escaped(&server.name),
            text::title(&server.state),
            offer.collect::<String>()
        )
    }))
}

/// Lists the skills that the session's mode may load.
pub(super) fn skills(turn: &TurnContext) -> String {
    let rules = step_context::chosen_agent(turn)
        .map(|agent| agent.rules.clone())
        .unwrap_or_default();
    let skills = &turn.project.system_prompt_parts.skills;
    let line = |skill: &project::skill::Skill| {
        let name = text::escaped(&skill.name);
        match &skill.description {
            Some(description) => {
                let description = text::cut_chars(&text::title(description), MAX_DESCRIPTION_CHARS);
                format!("{name}: {description}")
            }
            None => format!("{name}: loaded only by name"),
        }
    };
    let lines: Vec<String> = skills.allowed(&rules).map(line).collect();
    if lines.is_empty() {
        return "This mode has no skills.".to_owned();
    }
    list(lines)
}

/// Lists the approvals and the grants made with "always".
pub(super) fn permissions(turn: &TurnContext) -> String {
    let approvals = turn.choice.borrow().approvals();
    format!(
        "Approvals: {}.\n\n{}",
        approvals.as_str(),
        grant_list(&turn.session.permissions.grants.all())
    )
}

fn grant_list(grants: &[(String, Rules)]) -> String {
    let line = |agent: &str, rule: &permission::Rule| {
        let pattern = rule.pattern.replace('`', "'");
        format!(
            "{} `{pattern}` ({})",
            text::escaped(&rule.permission),
            text::escaped(agent)
        )
    };
    let lines: Vec<String> = grants
        .iter()
        .flat_map(|(agent, rules)| rules.iter().map(move |rule| line(agent, rule)))
        .collect();
    if lines.is_empty() {
        return "Nothing was granted with \"always\" in this project.".to_owned();
    }
    format!(
        "Granted with \"always\" in this project:\n\n{}\n\n`adjutant permissions revoke PERMISSION` revokes grants for sessions opened later.",
        list(lines)
    )
}

fn list(lines: impl IntoIterator<Item = String>) -> String {
    let lines: Vec<String> = lines.into_iter().map(|line| format!("- {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_described_by_what_is_known() {
        let table = [
            (
                ContextUse::Counted(25_000),
                Some(100_000),
                "25k of 100k tokens used, 75 % left",
            ),
            (
                ContextUse::Counted(300),
                Some(200),
                "300 of 200 tokens used, 0 % left",
            ),
            (ContextUse::Counted(5), Some(0), "5 tokens used"),
            (ContextUse::Counted(5), None, "5 tokens used"),
            (
                ContextUse::Estimated(5),
                Some(200),
                "200 tokens; the provider has not counted those used, the messages take about 5",
            ),
            (
                ContextUse::Estimated(5),
                None,
                "the provider has not counted those used, the messages take about 5",
            ),
            (ContextUse::Empty, Some(200), "200 tokens, none used yet"),
            (ContextUse::Empty, None, "none used yet"),
        ];
        for (used, window, wanted) in table {
            assert_eq!(context_row(used, window), wanted, "{used:?} {window:?}");
        }
    }

    #[test]
    fn servers_are_listed_with_their_states() {
        let server = |name: &str, state: &str, is_ready, tools| ServerStatus {
            name: name.into(),
            state: state.into(),
            is_ready,
            is_starting: state == "starting",
            tools,
            prompts: 0,
        };
        let both = [
            server("a", "connected", true, 1),
            server("b", "failed: no such\nprogram", false, 0),
        ];
        let listed = server_list(&both);
        assert!(listed.starts_with("- a: connected, 1 tool\n- b: failed: no such"));
        assert_eq!(listed.lines().count(), 2, "{listed}");
        assert_eq!(servers_row(&both), "1 of 2 connected (`/mcp`)");
        assert_eq!(servers_row(&both[..1]), "1 connected");
        assert_eq!(
            servers_row(&[server("a", "starting", false, 0)]),
            "1 still starting (`/mcp`)"
        );
        let mut all = both.to_vec();
        all.push(server("c", "starting", false, 0));
        assert_eq!(
            servers_row(&all),
            "1 of 3 connected, 1 still starting (`/mcp`)"
        );
        assert!(server_list(&[]).contains("No MCP servers"));
    }
}
