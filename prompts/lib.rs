//! The prompts and reminders that adjutant sends to models, and the answers of the offline model,
//! as constants. Each text is a Markdown file in this directory.

pub mod agent {
    //! System prompts of built-in agents, and the tasks given to those that work in the background.

    pub const COMPACTION_TASK: &str = include_str!("agent/compaction-task.md").trim_ascii_end();
    pub const COMPACTION: &str = include_str!("agent/compaction.md");
    pub const CREATE: &str = include_str!("agent/create.md");
    pub const EXPLORE: &str = include_str!("agent/explore.md");
    pub const SCOUT: &str = include_str!("agent/scout.md");
    pub const SUMMARY: &str = include_str!("agent/summary.md");
    pub const TITLE: &str = include_str!("agent/title.md");
}

pub mod command {
    //! Templates of built-in commands.

    pub const INIT: &str = include_str!("command/init.md");
    pub const REVIEW: &str = include_str!("command/review.md");
}

pub mod mode {
    //! Notes for the model when the session switches to another mode.

    pub const BUILD: &str = include_str!("mode/build.md").trim_ascii_end();
    pub const PLAN: &str = include_str!("mode/plan.md").trim_ascii_end();
}

pub mod offline {
    //! Answers of the offline model.

    pub const CONNECT: &str = include_str!("offline/connect.md");
    pub const HELP: &str = include_str!("offline/help.md");
    pub const UNABLE: &str = include_str!("offline/unable.md");
}

pub mod reminder {
    //! Notes to the model between messages of the user.

    pub const BACKGROUND: &str = include_str!("reminder/background.md").trim_ascii_end();
    pub const CONTINUE: &str = include_str!("reminder/continue.md").trim_ascii_end();
    pub const CUT_OFF: &str = include_str!("reminder/cut-off.md").trim_ascii_end();
    pub const GO_ON: &str = include_str!("reminder/go-on.md").trim_ascii_end();
    pub const HOST_LOST: &str = include_str!("reminder/host-lost.md").trim_ascii_end();
    pub const INTERRUPTED: &str = include_str!("reminder/interrupted.md").trim_ascii_end();
    pub const LOADED: &str = include_str!("reminder/loaded.md").trim_ascii_end();
    pub const MENTION: &str = include_str!("reminder/mention.md").trim_ascii_end();
    pub const NO_PROMPT: &str = include_str!("reminder/no-prompt.md").trim_ascii_end();
    pub const RESOURCE_CHANGED: &str =
        include_str!("reminder/resource-changed.md").trim_ascii_end();
    pub const RUNNING: &str = include_str!("reminder/running.md").trim_ascii_end();
    pub const SERVER_FAILED: &str = include_str!("reminder/server-failed.md").trim_ascii_end();
    pub const STEPS: &str = include_str!("reminder/steps.md").trim_ascii_end();
    pub const STRUCTURED: &str = include_str!("reminder/structured.md").trim_ascii_end();
    pub const SUBTASK: &str = include_str!("reminder/subtask.md").trim_ascii_end();
    pub const SUMMARY: &str = include_str!("reminder/summary.md").trim_ascii_end();
    pub const TODOS: &str = include_str!("reminder/todos.md").trim_ascii_end();
    pub const USER_SPOKE: &str = include_str!("reminder/user-spoke.md").trim_ascii_end();
}

pub mod wire {
    //! Texts that replace content which a provider's API cannot express: attachments that the model
    //! cannot read, attachments of a tool result, a placeholder tool, and web searches by a
    //! provider.

    pub const EMPTY: &str = include_str!("wire/empty.md").trim_ascii_end();
    pub const FROM_RESULT: &str = include_str!("wire/from-result.md").trim_ascii_end();
    pub const NOOP: &str = include_str!("wire/noop.md").trim_ascii_end();
    pub const SEARCH: &str = include_str!("wire/search.md").trim_ascii_end();
    pub const UNREADABLE: &str = include_str!("wire/unreadable.md").trim_ascii_end();
}

/// The heading of the list of skills.
pub const SKILLS: &str = include_str!("skills.md").trim_ascii_end();

/// The text before a path and its contents, when a prompt refers to a file.
pub const CONTENTS_OF: &str = "Contents of ";

/// Returns the system prompt for a family of models. Names of tools in braces are filled in by the
/// caller.
pub fn family(family: &str) -> String {
    let provider = match family {
        "anthropic" => include_str!("provider/anthropic.md"),
        "beast" => include_str!("provider/beast.md"),
        "gpt" => include_str!("provider/gpt.md"),
        "gpt6" => include_str!("provider/gpt6.md"),
        "codex" => include_str!("provider/codex.md"),
        "gemini" => include_str!("provider/gemini.md"),
        "kimi" => include_str!("provider/kimi.md"),
        "muse" => include_str!("provider/muse.md"),
        "trinity" => include_str!("provider/trinity.md"),
        _ => include_str!("provider/default.md"),
    };
    // Models of this family are asked to make one call at a time.
    let parallel = match family {
        "trinity" => "",
        _ => include_str!("parallel.md"),
    };
    format!(
        "{}\n{parallel}{}",
        provider.trim_ascii_end(),
        include_str!("tools.md")
    )
}
