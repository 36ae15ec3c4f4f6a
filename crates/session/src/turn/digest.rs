//! The input of a summary: the choice of the messages that are summarised, and their transcript.
//! Pure.

use super::view::VisibleHistory;
use super::{request, size};
use base::text;
use transcript::{CallState, Content, Message, Role};

/// The bytes of a call's arguments and of its result in the transcript; the later values are used
/// if the transcript does not fit otherwise.
const CALL_BYTES: [usize; 3] = [2_000, 400, 80];

/// The minimum and maximum of tokens that are not summarised, if the window allows it.
const TAIL_TOKENS: (u64, u64) = (2_000, 8_000);

/// Returns the tokens that may remain without a summary: as set by the user, or else a quarter of
/// the usable ones.
pub fn tail_budget(usable: u64, wanted: Option<u64>) -> u64 {
    wanted
        .unwrap_or((usable / 4).clamp(TAIL_TOKENS.0, TAIL_TOKENS.1))
        .min(usable / 3)
}

/// Returns the index in a view at which the tail begins: the latest messages that fit the budget,
/// from at most `turns` turns, and none from before the last compaction. Returns the number of
/// messages if the tail is empty.
pub fn find_tail(view: &VisibleHistory<'_>, budget: u64, turns: u32) -> usize {
    let mut from = view.messages.len();
    let mut taken = 0;
    let mut prompts = 0;
    for (index, message) in view
        .messages
        .iter()
        .enumerate()
        .skip(view.before_compaction)
        .rev()
    {
        taken += size::message(message);
        if taken > budget || prompts >= turns {
            break;
        }
        prompts += u32::from(message.is_prompt());
        from = index;
    }
    from
}

/// Renders messages as plain text of at most `available` bytes: first results are cut, then the middle
/// is left out.
pub fn transcript(messages: &[&Message], available: usize) -> String {
    let mut whole = String::new();
    for limit in CALL_BYTES {
        whole = messages
            .iter()
            .map(|message| render_message(message, limit))
            .collect();
        if whole.len() <= available {
            return whole;
        }
    }
    let half = available / 2;
    let missing = whole.len().saturating_sub(2 * half);
    format!(
        "{}\n\n[{missing} bytes are left out here]\n\n{}",
        text::head(&whole, half),
        text::tail(&whole, half)
    )
}

fn render_message(message: &Message, limit: usize) -> String {
    let who = match message.role {
        Role::User(_) => "user",
        Role::Assistant(_) => "assistant",
    };
    let mut out = String::new();
    let mut say = |who: &str, text: &str| {
        let text = text.trim();
        if !text.is_empty() {
            out += &format!("[{who}]\n{text}\n\n");
        }
    };
    for part in message.answer() {
        match &part.content {
            Content::Text(text) if !text.ignored => say(who, &text.text),
            Content::Reasoning(reasoning) => {
                say("assistant, thinking", &shorten(&reasoning.text, limit))
            }
            Content::File(file) => say(who, &request::left_out(file)),
            Content::Agent { name } => say(who, &format!("@{name}")),
            Content::Tool(call) => {
                say(
                    "tool",
                    &format!("{} {}", call.tool, shorten(&call.input.to_string(), limit)),
                );
                match &call.state {
                    CallState::Completed(done) if done.cleared.is_some() => {
                        say("result", "(cleared)")
                    }
                    CallState::Completed(done) => say("result", &shorten(&done.output, limit)),
                    CallState::Failed { error, .. } => {
                        say("result, failed", &shorten(error, limit))
                    }
                    CallState::Pending => say("result", request::INTERRUPTED),
                    CallState::Running { printed, .. } => {
                        say(
                            "result",
                            &shorten(&request::interrupted(printed.as_deref()), limit),
                        );
                    }
                }
            }
            _ => {}
        }
    }
    out
}

fn shorten(whole: &str, limit: usize) -> String {
    let head = text::head(whole, limit);
    match whole.len() - head.len() {
        0 => whole.to_owned(),
        missing => format!("{head}… [{missing} more bytes]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::History;
    use super::super::next::tests::{assistant, call, compaction, summary, user};
    use super::super::view::visible_history;
    use super::*;
    use transcript::{Completed, Finish};

    fn printed(bytes: usize) -> Message {
        let done = Completed {
            output: "x".repeat(bytes).into(),
            ..Completed::default()
        };
        assistant(
            Some(Finish::ToolCalls),
            vec![call("c", "bash", json!({}), CallState::Completed(done))],
        )
    }

    #[test]
    fn tail_is_the_latest_that_fits() {
        let hi = || user("hi", false);
        let table: Vec<(&str, Vec<Message>, u64, u32, usize)> = vec![
            (
                "all of it",
                vec![hi(), printed(40), hi(), printed(40)],
                1_000,
                2,
                0,
            ),
            (
                "one turn",
                vec![hi(), printed(40), hi(), printed(40)],
                1_000,
                1,
                2,
            ),
            ("no turns", vec![hi(), printed(40)], 1_000, 0, 2),
            (
                "a turn is split",
                vec![hi(), printed(4_000), printed(40), printed(40)],
                100,
                2,
                2,
            ),
            ("too large", vec![hi(), printed(4_000)], 100, 2, 2),
            (
                "nothing from before the last compaction",
                vec![
                    hi(),
                    printed(40),
                    compaction(true, Some("a")),
                    summary(),
                    printed(40),
                ],
                1_000,
                2,
                1,
            ),
        ];
        for (name, mut messages, budget, turns, expected) in table {
            messages[1].id = base::id::MessageId::new("a");
            let history = History::from(messages);
            let mut view = visible_history(&history);
            if view.summary.is_some() {
                // The prompt and the message before the compaction, which the next
                // summary includes.
                assert_eq!((view.before_compaction, view.messages.len()), (2, 3));
                view.messages.remove(0);
                view.before_compaction = 1;
            }
            assert_eq!(find_tail(&view, budget, turns), expected, "{name}");
        }
    }

    #[test]
    fn transcript_is_cut_to_its_size() {
        let messages = [
            user("fix it", false),
            printed(9_000),
            assistant(Some(Finish::Stop), vec![]),
        ];
        let messages: Vec<&Message> = messages.iter().collect();
        let whole = transcript(&messages, 100_000);
        assert!(
            whole.starts_with("[user]\nfix it\n\n[tool]\nbash {}\n\n[result]\nxxx"),
            "{whole}"
        );
        assert!(whole.contains("… [7000 more bytes]"), "{whole}");
        for limit in [3_000, 1_000, 300, 60] {
            let text = transcript(&messages, limit);
            assert!(text.len() <= limit + 60, "{limit}: {}", text.len());
        }
        assert!(transcript(&messages, 60).contains("bytes are left out here"));
    }
}
