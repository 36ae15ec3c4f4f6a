//! Notes to the model in the user's place: synthetic parts the editor never shows. They are kept in
//! the history like everything else, so that a later request still begins with the same bytes.

use super::{History, next};
use base::text::mark::tagged;
use transcript::{Call, CallState, Content, FailureCause, FaultKind, Finish, Message, Role, Text, ToolKind};

/// What is to be said when `agent` answers next: once per switch, not on later turns.
pub fn switched(history: &History, agent: &str) -> Option<String> {
    let last = history.messages.iter().rev().find_map(|m| match &m.role {
        Role::Assistant(assistant) if !assistant.summary => Some(assistant.agent.as_str()),
        _ => None,
    });
    match (last, agent) {
        (Some(last), agent) if last == agent => None,
        (_, agent) if mode(agent).is_some() => mode(agent).map(str::to_owned),
        (Some("plan"), _) => Some(match plan(history) {
            Some(file) => format!("{}\nThe plan is in {file}.", prompts::mode::BUILD),
            None => prompts::mode::BUILD.to_owned(),
        }),
        _ => None,
    }
}

/// What holds for an agent as long as it speaks.
pub fn mode(agent: &str) -> Option<&'static str> {
    (agent == "plan").then_some(prompts::mode::PLAN)
}

/// The file that the plan was last written to.
fn plan(history: &History) -> Option<String> {
    let calls = history.messages.iter().rev().flat_map(Message::calls);
    let mut written = calls.filter(|call| call.kind == ToolKind::Edit && matches!(call.state, CallState::Completed(_)));
    written.find_map(|call| {
        let paths = call.locations.iter().map(|location| location.path.display().to_string());
        paths.filter(|path| path.ends_with(".md")).find(|path| PLANS.iter().any(|folder| path.contains(folder)))
    })
}

/// Folders that plans are written to.
const PLANS: [&str; 4] = ["/.opencode/plans/", "/.opencode/plan/", "/.adjutant/plans/", "/adjutant/plans/"];
/// What is to be said with the prompt when what was before it did not run to its end: the process
/// died, or the user cancelled. The calls it happened to are named; each has a result that says so.
pub fn interrupted(history: &History) -> Option<String> {
    const NAMED: usize = 10;
    let (prompt, before) = history.messages.split_last()?;
    let last = before.iter().rev().find(|m| !m.is_summary() && m.compaction().is_none())?;
    let cut = last.calls().filter(|call| call.state.cause().is_some_and(FailureCause::is_interruption));
    let calls: Vec<String> = cut.take(NAMED).map(one).collect();
    // What was said on the way goes on where the turn before it stopped for it.
    let steered = prompt.parts.iter().any(|part| matches!(&part.content, Content::Text(text) if text.ignored));
    if !prompt.is_prompt() || steered {
        return None;
    }
    let why = match &last.role {
        // It never began to answer, or to go on.
        Role::User(_) => String::new(),
        Role::Assistant(a) => match &a.fault {
            Some(fault) if fault.kind == FaultKind::Interrupted => fault.message.clone(),
            Some(_) => return None,
            None if !calls.is_empty() => String::new(),
            // The results are there, and nothing came of them.
            None => waits(last).then(String::new)?,
        },
    };
    let mut note = prompts::reminder::INTERRUPTED.to_owned();
    if !why.is_empty() {
        note += &format!(" What happened: {why}");
    }
    if !calls.is_empty() {
        note += &format!("\n\nInterrupted calls:\n{}", calls.join("\n"));
    }
    Some(note)
}

/// An interrupted call as a line: one of a subagent with the id by which that can go on.
fn one(call: &Call) -> String {
    let title = Some(&call.title).filter(|title| **title != call.tool);
    let title = title.map(|title| format!(": {title}")).unwrap_or_default();
    let child = call.state.facts().and_then(|facts| facts.child.as_ref());
    let task = child.map(|child| format!(" (task_id {})", child.session)).unwrap_or_default();
    format!("- {}{title}{task}", call.tool)
}

/// Whether the model has not been asked again although its calls were made: the turn was cancelled or ended
/// before that. What the user rejected, or what was the result that was owed, ends a turn by itself.
fn waits(message: &Message) -> bool {
    let ends = |call: &Call| next::rejected(&call.state) || next::result(call).is_some();
    let length = message.assistant().is_some_and(|a| a.finish == Some(Finish::Length));
    message.calls().next().is_some() && !length && !message.calls().any(ends)
}

/// What the user said while a turn ran, as the model hears it: the words themselves stay in the
/// history as they were said, for the user alone.
pub fn spoken_meanwhile(content: &mut Vec<Content>) {
    let mut words = Vec::new();
    for content in content.iter_mut() {
        if let Content::Text(text) = content
            && !text.ignored
        {
            words.push(text.text.trim().to_owned());
            text.ignored = true;
        }
    }
    // Words of a command, which stand for what was typed, are heard once.
    content.retain(|content| !matches!(content, Content::Text(text) if text.synthetic && text.ignored));
    let words = words.join("\n\n");
    content.push(note(&format!("{}\n\n{words}", prompts::reminder::USER_SPOKE)));
}

/// A synthetic text as a part's content, in the tags that models know system notes by.
pub fn note(text: &str) -> Content {
    Content::Text(Text { text: tagged(text).into(), synthetic: true, ..Text::default() })
}

/// What stands in the place of the messages that were summarised.
pub fn summary(text: &str) -> String {
    tagged(&format!("{}\n\n<summary>\n{}\n</summary>", prompts::reminder::SUMMARY, text.trim()))
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
            History::from(messages)
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
