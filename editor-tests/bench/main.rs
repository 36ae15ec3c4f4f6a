//! Benchmarks of what must be fast, one file per area. Run them with
//! `cargo bench`, some of them with `cargo bench NAME`.

#![expect(
    clippy::disallowed_methods,
    reason = "benchmarks start programs and choose their environment"
)]
#![expect(clippy::unwrap_used, reason = "for whoever runs them")]
#![expect(
    unreachable_pub,
    dead_code,
    reason = "the benchmarks use a part of the mocks of the tests"
)]

#[path = "../agent_commands.rs"]
mod agent_commands;
mod asked;
mod config;
#[path = "../database.rs"]
mod database;
#[path = "../editor.rs"]
mod editor;
#[path = "../model.rs"]
mod fake;
#[path = "../history.rs"]
mod history;
mod model;
mod permissions;
#[path = "../project.rs"]
mod project;
#[path = "../runtime.rs"]
mod runtime;
mod sandbox;
mod snapshot;
mod store;

fn main() {
    divan::main();
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if std::env::args().any(|argument| argument == "--bench")
        && (arguments.is_empty()
            || arguments
                .iter()
                .any(|argument| "store".contains(argument.as_str())))
    {
        store::figures();
    }
    let says = |word: &str| arguments.iter().any(|argument| argument == word);
    if says("asked") {
        asked::figures(says("reasons"), says("rows"));
    }
    if says("backends") {
        store::side_by_side();
    }
}
