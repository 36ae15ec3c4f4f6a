//! Every word the model reads that we wrote lies in `prompts/`; this maps names to texts. The description of a
//! tool is named by the tool itself.

/// What a model is told where its wire cannot say it otherwise: in place of an attachment it cannot
/// read, before the attachments of a tool's result, as a tool that stands for none, and where a provider is to search
/// the web.
pub fn wire(name: &str) -> &'static str {
    let text = match name {
        "empty" => include_str!("../prompts/wire/empty.md"),
        "unreadable" => include_str!("../prompts/wire/unreadable.md"),
        "from-result" => include_str!("../prompts/wire/from-result.md"),
        "noop" => include_str!("../prompts/wire/noop.md"),
        "search" => include_str!("../prompts/wire/search.md"),
        _ => "",
    };
    text.trim_end()
}

/// What stands before a path and what was read there, where a prompt refers to it.
pub const CONTENTS_OF: &str = "Contents of ";

/// The system prompt of a built-in agent that has one; `x-task` is what it is asked each time.
pub fn agent(name: &str) -> &'static str {
    match name {
        "explore" => include_str!("../prompts/agent/explore.md"),
        "scout" => include_str!("../prompts/agent/scout.md"),
        "compaction" => include_str!("../prompts/agent/compaction.md"),
        "compaction-task" => include_str!("../prompts/agent/compaction-task.md"),
        "title" => include_str!("../prompts/agent/title.md"),
        "create" => include_str!("../prompts/agent/create.md"),
        _ => "",
    }
}

/// What stands above the list of skills.
pub fn skills() -> &'static str {
    include_str!("../prompts/skills.md").trim_ascii_end()
}

fn provider(family: &str) -> &'static str {
    match family {
        "anthropic" => include_str!("../prompts/provider/anthropic.md"),
        "beast" => include_str!("../prompts/provider/beast.md"),
        "gpt" => include_str!("../prompts/provider/gpt.md"),
        "gpt6" => include_str!("../prompts/provider/gpt6.md"),
        "codex" => include_str!("../prompts/provider/codex.md"),
        "gemini" => include_str!("../prompts/provider/gemini.md"),
        "kimi" => include_str!("../prompts/provider/kimi.md"),
        "muse" => include_str!("../prompts/provider/muse.md"),
        "trinity" => include_str!("../prompts/provider/trinity.md"),
        _ => include_str!("../prompts/provider/default.md"),
    }
}

/// The prompt of a model family as a whole: its own words, then what it shares with the others.
pub fn family(family: &str) -> String {
    format!("{}\n{}", provider(family).trim_ascii_end(), include_str!("../prompts/tools.md"))
}

/// What a mode's agent is told once when the session switches to it; empty for most.
pub fn mode(name: &str) -> &'static str {
    match name {
        "plan" => include_str!("../prompts/mode/plan.md"),
        "build" => include_str!("../prompts/mode/build.md"),
        _ => "",
    }
}

/// The template of a built-in command.
pub fn command(name: &str) -> &'static str {
    match name {
        "init" => include_str!("../prompts/command/init.md"),
        "review" => include_str!("../prompts/command/review.md"),
        _ => "",
    }
}

/// What the model is told between the user's words.
pub fn reminder(name: &str) -> &'static str {
    match name {
        "steps" => include_str!("../prompts/reminder/steps.md"),
        "interrupted" => include_str!("../prompts/reminder/interrupted.md"),
        "continue" => include_str!("../prompts/reminder/continue.md"),
        "mention" => include_str!("../prompts/reminder/mention.md"),
        "subtask" => include_str!("../prompts/reminder/subtask.md"),
        "structured" => include_str!("../prompts/reminder/structured.md"),
        "cut-off" => include_str!("../prompts/reminder/cut-off.md"),
        "summary" => include_str!("../prompts/reminder/summary.md"),
        "host-lost" => include_str!("../prompts/reminder/host-lost.md"),
        "go-on" => include_str!("../prompts/reminder/go-on.md"),
        "loaded" => include_str!("../prompts/reminder/loaded.md"),
        "todos" => include_str!("../prompts/reminder/todos.md"),
        "background" => include_str!("../prompts/reminder/background.md"),
        "server-failed" => include_str!("../prompts/reminder/server-failed.md"),
        "running" => include_str!("../prompts/reminder/running.md"),
        "no-prompt" => include_str!("../prompts/reminder/no-prompt.md"),
        "resource-changed" => include_str!("../prompts/reminder/resource-changed.md"),
        "user-spoke" => include_str!("../prompts/reminder/user-spoke.md"),
        _ => "",
    }
}
