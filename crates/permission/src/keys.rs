//! The permissions that settings may name, generated from the tools:
//! `BLESS=1 cargo test -p tools generated` writes this file.

/// The known keys of a permission object, with their subjects. MCP servers add more.
#[rustfmt::skip]
pub const PERMISSIONS: &[(&str, &str)] = &[
    ("*", "Every tool that has no rule of its own."),
    ("read", "Reading a file or directory; patterns are paths relative to the project."),
    ("glob", "Finding files by name; patterns are globs."),
    ("grep", "Searching in files; patterns are the expressions searched for."),
    ("edit", "Changing files with edit, multiedit, write and apply_patch; patterns are paths."),
    ("bash", "Running commands; patterns are command lines, judged one command at a time."),
    ("lsp", "Querying a language server."),
    ("task", "Starting a subagent; patterns are agent names."),
    ("skill", "Loading a skill; patterns are skill names."),
    ("question", "Asking you a question."),
    ("plan_enter", "Proposing to switch to planning."),
    ("plan_exit", "Proposing to leave planning."),
    ("webfetch", "Fetching a page; patterns are hosts or URLs."),
    ("websearch", "Searching the web; patterns are queries."),
    ("todowrite", "Updating the todo list."),
    ("list", "Listing a directory, in addition to `read`; patterns are paths."),
    ("todoread", "Reading the todo list."),
    ("codesearch", "Searching public code."),
    ("external_directory", "Accessing anything outside the project; patterns are directories."),
    ("doom_loop", "Continuing when the model repeats itself."),
];

/// The permissions of agents that only look for something.
#[rustfmt::skip]
pub const READ_ONLY_PERMISSIONS: &[&str] = &[
    "read",
    "glob",
    "grep",
    "bash",
    "lsp",
    "webfetch",
    "websearch",
    "list",
    "codesearch",
    "external_directory",
    "doom_loop",
];
