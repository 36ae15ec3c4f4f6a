//! Notes to the model in the user's place: synthetic parts the editor never shows. They are kept in
//! the history like everything else, so that a later request still begins with the same bytes.

use super::History;
use crate::message::{Content, Role, Text};
use crate::prompts;

/// What is to be said when `agent` answers next: once per switch, not on later turns.
pub fn switched(history: &History, agent: &str) -> Option<&'static str> {
    let last = history.messages.iter().rev().find_map(|m| match &m.role {
        Role::Assistant(assistant) if !assistant.summary => Some(assistant.agent.as_str()),
        _ => None,
    });
    match (last, agent) {
        (Some(last), agent) if last == agent => None,
        (_, "plan") => Some(prompts::mode("plan")),
        (Some("plan"), _) => Some(prompts::mode("build")),
        _ => None,
    }
}

/// A synthetic text as a part's content, in the tags that models know system notes by.
pub fn note(text: &str) -> Content {
    let text = format!("<system-reminder>\n{}\n</system-reminder>", text.trim());
    Content::Text(Text { text, synthetic: true, ..Text::default() })
}

#[cfg(test)]
mod tests {
    use super::super::next::tests::{assistant, user};
    use super::*;

    #[test]
    fn a_switch_is_said_once() {
        let spoke = |agent: &str| {
            let mut message = assistant(None, vec![]);
            if let Role::Assistant(a) = &mut message.role {
                a.agent = agent.into();
            }
            message
        };
        let history = |agents: &[&str]| {
            let mut messages = vec![user("hi", false)];
            messages.extend(agents.iter().map(|agent| spoke(agent)));
            History { messages }
        };
        let table = [
            (&[][..], "build", false),
            (&[][..], "plan", true),
            (&["build"][..], "plan", true),
            (&["build", "plan"][..], "plan", false),
            (&["plan"][..], "build", true),
            (&["plan", "build"][..], "build", false),
            (&["build"][..], "build", false),
        ];
        for (agents, next, said) in table {
            assert_eq!(switched(&history(agents), next).is_some(), said, "{agents:?} then {next}");
        }
    }
}
