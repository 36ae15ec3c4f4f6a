//! Notes to the model in the user's place: synthetic parts the editor never shows. They are kept in
//! the history like everything else, so that a later request still begins with the same bytes.

use super::History;
use crate::message::{CallState, Content, Kind, Message, Role, Text};
use crate::prompts;

/// What is to be said when `agent` answers next: once per switch, not on later turns.
pub fn switched(history: &History, agent: &str) -> Option<String> {
    let last = history.messages.iter().rev().find_map(|m| match &m.role {
        Role::Assistant(assistant) if !assistant.summary => Some(assistant.agent.as_str()),
        _ => None,
    });
    match (last, agent) {
        (Some(last), agent) if last == agent => None,
        (_, "plan") => Some(prompts::mode("plan").to_owned()),
        (Some("plan"), _) => Some(match plan(history) {
            Some(file) => format!("{}\nThe plan is in {file}.", prompts::mode("build").trim_end()),
            None => prompts::mode("build").to_owned(),
        }),
        _ => None,
    }
}

/// The file that the plan was last written to.
fn plan(history: &History) -> Option<String> {
    let calls = history.messages.iter().rev().flat_map(Message::calls);
    let mut written = calls.filter(|call| call.kind == Kind::Edit && matches!(call.state, CallState::Completed(_)));
    written.find_map(|call| {
        let paths = call.locations.iter().map(|location| location.path.display().to_string());
        paths.filter(|path| path.ends_with(".md")).find(|path| PLANS.iter().any(|folder| path.contains(folder)))
    })
}

/// Folders that plans are written to.
const PLANS: [&str; 4] = ["/.opencode/plans/", "/.opencode/plan/", "/.adjutant/plans/", "/adjutant/plans/"];

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
