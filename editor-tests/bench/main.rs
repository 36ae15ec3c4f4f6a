//! Benchmarks of the parts that must be fast, one file per area. Run them with
//! `cargo bench`, some of them with `cargo bench NAME`.

#![expect(
    clippy::disallowed_methods,
    reason = "benchmarks start programs and choose their environment"
)]
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]
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
#[path = "../history.rs"]
mod history;
#[path = "../model.rs"]
mod mock_provider;
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
        store::print_figures();
    }
    let has_argument = |word: &str| arguments.iter().any(|argument| argument == word);
    if has_argument("asked") {
        asked::print_figures(has_argument("reasons"), has_argument("rows"));
    }
    if has_argument("backends") {
        store::compare_backends();
    }
}
