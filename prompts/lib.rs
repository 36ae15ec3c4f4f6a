//! All texts that adjutant sends to models, as constants. Each text is a Markdown file in this
//! directory.

pub mod agent {
    //! System prompts of built-in agents, and the tasks given to those that work in the background.

    pub const COMPACTION_TASK: &str = include_str!("agent/compaction-task.md").trim_ascii_end();
    pub const COMPACTION: &str = include_str!("agent/compaction.md");
    pub const CREATE: &str = include_str!("agent/create.md");
    pub const EXPLORE: &str = include_str!("agent/explore.md");
    pub const SCOUT: &str = include_str!("agent/scout.md");
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

pub mod tool {
    //! Descriptions of tools.

    pub const APPLY_PATCH: &str = include_str!("tool/apply_patch.md");
    pub const BASH: &str = include_str!("tool/bash.md");
    pub const BASH_OUTPUT: &str = include_str!("tool/bash_output.md");
    pub const BASH_STOP: &str = include_str!("tool/bash_stop.md");
    pub const CALL_MCP_TOOL: &str = include_str!("tool/call_mcp_tool.md");
    pub const EDIT: &str = include_str!("tool/edit.md");
    pub const GLOB: &str = include_str!("tool/glob.md");
    pub const GREP: &str = include_str!("tool/grep.md");
    pub const INVALID: &str = include_str!("tool/invalid.md");
    pub const LIST: &str = include_str!("tool/list.md");
    pub const LIST_MCP_RESOURCE_TEMPLATES: &str =
        include_str!("tool/list_mcp_resource_templates.md");
    pub const LIST_MCP_RESOURCES: &str = include_str!("tool/list_mcp_resources.md");
    pub const LSP: &str = include_str!("tool/lsp.md");
    pub const MULTIEDIT: &str = include_str!("tool/multiedit.md");
    pub const PLAN_ENTER: &str = include_str!("tool/plan_enter.md");
    pub const PLAN_EXIT: &str = include_str!("tool/plan_exit.md");
    pub const QUESTION: &str = include_str!("tool/question.md");
    pub const READ: &str = include_str!("tool/read.md");
    pub const READ_MCP_RESOURCE: &str = include_str!("tool/read_mcp_resource.md");
    pub const SEARCH_MCP_TOOLS: &str = include_str!("tool/search_mcp_tools.md");
    pub const SKILL: &str = include_str!("tool/skill.md");
    pub const STRUCTURED_OUTPUT: &str = include_str!("tool/structured_output.md");
    pub const TASK: &str = include_str!("tool/task.md");
    pub const TODOREAD: &str = include_str!("tool/todoread.md");
    pub const TODOWRITE: &str = include_str!("tool/todowrite.md");
    pub const WEBFETCH: &str = include_str!("tool/webfetch.md");
    pub const WEBSEARCH: &str = include_str!("tool/websearch.md");
    pub const WRITE: &str = include_str!("tool/write.md");
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
    format!(
        "{}\n{}",
        provider.trim_ascii_end(),
        include_str!("tools.md")
    )
}
