//! The long run, whole: a thousand steps with five summaries and 20 MB of output, eight sessions at
//! once, a cancel in a flood, and what MCP servers cost. Printed, because what matters is a curve.
//! Run it with `cargo bench --bench long`, or some of it with one of the names in `main` after it:
//! `cargo bench --bench long flood`.

#![expect(
    clippy::disallowed_methods,
    reason = "benchmarks start programs and choose their environment"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "for whoever runs them"
)]
#![expect(
    unreachable_pub,
    dead_code,
    reason = "the benchmarks use a part of the mocks of the tests"
)]

#[path = "../database.rs"]
mod database;
#[path = "../editor.rs"]
mod editor;
#[path = "../long_run.rs"]
mod long_run;
#[path = "../model.rs"]
mod model;
#[path = "../project.rs"]
mod project;
#[path = "../runtime.rs"]
mod runtime;
mod servers;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::long_run::{Client, Shape};
use crate::model::Model;

fn main() {
    let sections: [(&str, fn()); 4] = [
        ("steps", steps),
        ("flood", flood),
        ("eight", eight),
        ("servers", servers::print_figures),
    ];
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            section();
        }
    }
}

fn steps() {
    let shape = Shape {
        steps: 1_000,
        compactions: 5,
        subagents: 50,
        bytes: 20_000,
    };
    let report = long_run::run(shape, false, 100);
    println!("\nlong run: {shape:?}");
    println!(
        "  ended {}, {} summaries told, damage {:?}",
        report.end, report.compactions, report.damage
    );
    println!("  {:?}", report.kept);
    // From the end of the model's answer to the next request: the tool, the store, the request.
    println!(
        "  a step, from the model's last word to the agent's knowing its next request, to the first line of that,"
    );
    println!("  and its CPU time; medians of twenty:");
    for at in [10, 100, 160, 180, 500, 840, 900, 990] {
        let around = &report.steps[at - 10..at + 10];
        let gap = median(around.iter().map(|step| step.gap).collect());
        let received = median(around.iter().map(|step| step.received).collect());
        let used = median(
            report.used[at - 10..at + 10]
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .collect(),
        );
        let bytes = around.iter().map(|step| step.bytes).sum::<usize>() / around.len();
        let kib = bytes >> 10;
        println!(
            "    around step {at:4}: {gap:7.2?}, {received:7.2?}, {used:7.2?} used, requests of {kib:5} KiB"
        );
    }
    for look in &report.looks {
        println!(
            "  after {:4} steps: {:3} MiB resident, {:3} MiB PSS, {} open files, {} threads",
            look.steps,
            look.resident >> 20,
            look.share >> 20,
            look.files,
            look.threads
        );
    }
}

fn flood() {
    // At the beginning, while the sessions' files are created, and when there is much to store.
    for lines in [50, 500] {
        let mut cancels: Vec<Duration> = (0..9).map(|_| cancel_in_a_flood(lines)).collect();
        cancels.sort_unstable();
        let median = median(cancels.clone());
        println!(
            "cancel of one session after {lines} lines of the flood of seven others: median {median:.1?} of {cancels:.1?}"
        );
    }
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

fn eight() {
    let mut runs: Vec<(Duration, Duration)> = (0..3).map(|_| eight_sessions()).collect();
    runs.sort_by_key(|(one, eight)| one.as_micros() * 1_000 / eight.as_micros().max(1));
    for (one, eight) in runs {
        let ratio = one.as_secs_f64() / eight.as_secs_f64();
        println!(
            "CPU time of eight sessions: in one process {one:.2?}, in eight {eight:.2?}: {ratio:.2}"
        );
    }
}

/// Measures the time to cancel one session while seven others are flooded with text.
fn cancel_in_a_flood(lines: usize) -> Duration {
    let flood = format!(
        "text: {}\n",
        "the same words over and over again, ".repeat(8)
    )
    .repeat(20_000);
    let script = format!(
        "text: Waiting.\nhang\n---\n{}",
        vec![flood; 7].join("---\n")
    );
    let model = Model::unwatched(model::script(&script).unwrap());
    let project = Shape {
        steps: 1,
        compactions: 0,
        subagents: 0,
        bytes: 160,
    }
    .project(&model);
    let mut client = Client::new(&project);
    let sessions: Vec<String> = (0..8).map(|_| client.open(&project)).collect();
    client.prompt(100, &sessions[0]);
    while client.receive()["params"]["update"]["content"]["text"] != "Waiting." {}
    for (n, session) in sessions.iter().enumerate().skip(1) {
        client.prompt(100 + n as u64, session);
    }
    let mut over = 0;
    for _ in 0..lines {
        let line = client
            .editor
            .receive(Duration::from_secs(120))
            .expect("the agent says nothing any more");
        over += (101..108)
            .filter(|id| line.contains(&format!("\"id\":{id},")))
            .count();
    }
    let start = Instant::now();
    let cancel = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": sessions[0] } });
    client.editor.send(&cancel.to_string());
    // Reads only as much as needed: the agent is measured, not this reader.
    let next = || {
        let line = client
            .editor
            .receive(Duration::from_secs(120))
            .expect("the agent says nothing any more");
        (100..108).find(|id| line.contains(&format!("\"id\":{id},")))
    };
    let took = loop {
        match next() {
            Some(100) => break start.elapsed(),
            Some(_) => over += 1,
            None => {}
        }
    };
    assert!(over < 4, "the flood was over before the cancel was heard");
    while over < 7 {
        over += usize::from(next().is_some());
    }
    drop(client.editor.finish());
    took
}

/// Measures the CPU time of eight sessions in one process, and of eight processes with one
/// each.
fn eight_sessions() -> (Duration, Duration) {
    (together(8), (0..8).map(|_| together(1)).sum())
}

fn together(sessions: usize) -> Duration {
    let shape = Shape {
        steps: 60,
        compactions: 0,
        subagents: 0,
        bytes: 4_000,
    };
    let model =
        Model::unwatched(model::script(&vec![shape.script(); sessions].join("---\n")).unwrap());
    let project = shape.project(&model);
    let mut client = Client::new(&project);
    let ids: Vec<String> = (0..sessions).map(|_| client.open(&project)).collect();
    for (n, session) in ids.iter().enumerate() {
        client.prompt(100 + n as u64, session);
    }
    let mut left = sessions;
    while left > 0 {
        left -= usize::from(client.receive()["id"].as_u64().is_some_and(|id| id >= 100));
    }
    // The time of ended threads is counted only when their process ends.
    let before = of_children();
    drop(client.editor.finish());
    of_children() - before
}

/// Returns the CPU time of ended child processes.
fn of_children() -> Duration {
    // In hundredths of a second, on every Linux.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields
        .skip(13)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}
