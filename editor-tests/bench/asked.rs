//! Counts of the permission questions per command and per task of a working model.

use std::collections::{BTreeMap, BTreeSet};

use crate::agent_commands::{MACHINES, RULE_SETS, Rows, tasks};

/// Prints the figures without a sandbox and in each, with `reasons` why, and with `rows` which
/// lines.
#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
pub fn print_figures(with_reasons: bool, with_rows: bool) {
    let rows = Rows::read();
    let all: BTreeSet<&str> = rows
        .rows
        .iter()
        .filter_map(|row| row.id.split('#').next())
        .collect();
    println!(
        "asked about, of {} commands in {} tasks:",
        rows.rows.len(),
        all.len()
    );
    println!(
        "{:<18}{:<14}{:>10}{:>10}",
        "rules", "sandbox", "commands", "tasks"
    );
    for (at, set) in RULE_SETS.iter().enumerate() {
        for machine in MACHINES {
            let questions = rows.questions(at, machine);
            println!(
                "{:<18}{:<14}{:>10}{:>10}",
                set.name,
                machine,
                questions.len(),
                tasks(&questions)
            );
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for question in &questions {
                *counts.entry(question.reason.as_str()).or_default() += 1;
            }
            if !with_reasons {
                counts.clear();
            }
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (reason, count) in counts.iter().take(40) {
                println!("    {count:>5}  {reason}");
            }
            let shown = if with_rows { &questions[..] } else { &[] };
            for question in shown {
                println!(
                    "    {}: {}\n        {:?}",
                    question.row.id, question.reason, question.row.line
                );
            }
        }
    }
}
