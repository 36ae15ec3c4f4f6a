//! `adjutant stats`: tokens and cost by day, model and project.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{say, terminal};
use base::environment::{Environment, Timestamp};
use base::id::SessionId;
use base::listing;
use base::text;
use base::worktree::Worktree;
use export::chart;
use session::turn::add_costs;
use store::{ListQuery, Record, Store};
use transcript::{Assistant, Message, Usage};

const DAY_MILLISECONDS: u64 = 24 * 60 * 60 * 1000;

/// The most days that can be counted: a century.
const MAX_DAYS: u64 = 36_500;

/// Options of `adjutant stats`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Count only the last N days, including today; days begin at midnight UTC
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_DAYS))]
    days: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The usage of steps.
#[derive(Debug, Clone, Default, PartialEq)]
struct StepUsage {
    steps: usize,
    usage: Usage,
    /// In US dollars; `None` if no price is known.
    cost: Option<f64>,
}

impl StepUsage {
    fn add(&mut self, usage: &Usage, cost: Option<f64>) {
        self.steps += 1;
        // Imported sessions may state any number.
        let add = |sum: &mut u64, tokens: u64| *sum = sum.saturating_add(tokens);
        add(&mut self.usage.input, usage.input);
        add(&mut self.usage.output, usage.output);
        add(&mut self.usage.reasoning, usage.reasoning);
        add(&mut self.usage.cache_read, usage.cache_read);
        add(&mut self.usage.cache_write, usage.cache_write);
        self.cost = add_costs(self.cost, cost);
    }

    fn json(&self) -> Value {
        json!({
            "steps": self.steps,
            "input": self.usage.input,
            "output": self.usage.output,
            "reasoning": self.usage.reasoning,
            "cacheRead": self.usage.cache_read,
            "cacheWrite": self.usage.cache_write,
            "cost": self.cost,
        })
    }
}

/// The use of models in all sessions.
#[derive(Debug, Default)]
struct Stats {
    sessions: usize,
    all: StepUsage,
    days: BTreeMap<String, StepUsage>,
    models: BTreeMap<String, StepUsage>,
    projects: BTreeMap<String, StepUsage>,
}

impl Stats {
    fn add(&mut self, step: &Step, project: &str) {
        let Step {
            day,
            model,
            usage,
            cost,
        } = step;
        for used in [
            &mut self.all,
            self.days.entry(day.clone()).or_default(),
            self.models.entry(model.clone()).or_default(),
            self.projects.entry(project.to_owned()).or_default(),
        ] {
            used.add(usage, *cost);
        }
    }
}

/// One request to a model.
struct Step {
    day: String,
    model: String,
    usage: Usage,
    /// In US dollars, without subagents; `None` if no price is known.
    cost: Option<f64>,
}

/// The cost of a subagent's step.
struct ChildCost {
    created: Timestamp,
    cost: f64,
}

pub(super) async fn stats(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let store = session::user_store::open_store(environment);
    let from = args
        .days
        .map(|days| first_millisecond(environment.now(), days));
    let done = collect(&store, environment, from).await;
    store.stop().await;
    let stats = done?;
    if args.json {
        terminal::json(&format!("{:#}", as_json(&stats, from)));
    } else {
        print(&stats, from);
    }
    Ok(0)
}

/// Returns the beginning of the day that is so many days back, today being the first.
fn first_millisecond(now: Timestamp, days: u64) -> Timestamp {
    let today = now.0 - now.0 % DAY_MILLISECONDS;
    Timestamp(today.saturating_sub((days - 1).saturating_mul(DAY_MILLISECONDS)))
}

/// Reads the sessions that were used since `from`, one at a time.
async fn collect(
    store: &Store,
    environment: &Environment,
    from: Option<Timestamp>,
) -> anyhow::Result<Stats> {
    store.wait_until_filled().await?;
    let query = ListQuery {
        limit: usize::MAX - 1,
        ..ListQuery::default()
    };
    let mut stats = Stats::default();
    let mut unreadable = 0;
    for record in store.list_where(query).await?.sessions {
        if from.is_some_and(|from| record.updated < from) {
            continue;
        }
        let project = project(&record, environment);
        let mut waiting: VecDeque<SessionId> = [record.id.clone()].into();
        let mut seen = HashSet::new();
        let mut steps = 0;
        while let Some(id) = waiting.pop_front() {
            if !seen.insert(id.clone()) {
                continue;
            }
            let children = store.children(&id).await?;
            let costs = children_costs(store, &children).await?;
            waiting.extend(children);
            let Ok(feed) = store.stream(&id).await else {
                unreadable += 1;
                continue;
            };
            let begun = from.unwrap_or_default().max(feed.record.created);
            let read = move || {
                let mut steps = Vec::new();
                for message in feed {
                    let message = message?;
                    if message.created >= begun {
                        steps.extend(step(&message, &costs));
                    }
                }
                Ok::<_, store::Error>(steps)
            };
            let Ok(found) = base::task::spawn_blocking(read).await? else {
                unreadable += 1;
                continue;
            };
            steps += found.len();
            for step in found {
                stats.add(&step, &project);
            }
        }
        stats.sessions += usize::from(steps > 0);
    }
    if unreadable > 0 {
        terminal::print_note(&format!(
            "{} could not be read and {} not counted",
            text::count(unreadable, "session"),
            if unreadable == 1 { "is" } else { "are" }
        ));
    }
    Ok(stats)
}

/// Returns the costs of the steps of subagents. Their steps include those of their own subagents.
/// The costs of one that cannot be read remain with the session that started it.
async fn children_costs(store: &Store, children: &[SessionId]) -> anyhow::Result<Vec<ChildCost>> {
    let mut costs = Vec::new();
    for child in children {
        let Ok(feed) = store.stream(child).await else {
            continue;
        };
        let read = move || {
            let cost = |message: Result<Message, store::Error>| {
                message
                    .map(|message| {
                        Some(ChildCost {
                            created: message.created,
                            cost: message.assistant()?.cost?,
                        })
                    })
                    .transpose()
            };
            feed.filter_map(cost).collect::<Result<Vec<_>, _>>()
        };
        costs.extend(base::task::spawn_blocking(read).await?.unwrap_or_default());
    }
    Ok(costs)
}

/// Returns the use of a message that answers, without that of the subagents it started: their
/// sessions are counted separately.
fn step(message: &Message, children: &[ChildCost]) -> Option<Step> {
    let Assistant {
        model,
        usage,
        cost,
        completed,
        ..
    } = message.assistant()?;
    if *usage == Usage::default() && cost.is_none() {
        return None;
    }
    let until = completed.unwrap_or(message.created);
    let delegated: f64 = children
        .iter()
        .filter(|child| (message.created..=until).contains(&child.created))
        .map(|child| child.cost)
        .sum();
    Some(Step {
        day: day(message.created),
        model: model.to_string(),
        usage: *usage,
        // Sessions of OpenCode do not include the cost of their subagents.
        cost: cost.map(|cost| {
            if cost >= delegated {
                cost - delegated
            } else {
                cost
            }
        }),
    })
}

fn day(at: Timestamp) -> String {
    at.iso().get(..10).unwrap_or_default().to_owned()
}

/// Returns the root of a session's project.
fn project(record: &Record, environment: &Environment) -> String {
    let root = if record.cwd.exists() {
        Worktree::find(&record.cwd, &[], environment.home.as_deref()).root
    } else {
        PathBuf::from(&record.cwd)
    };
    root.display().to_string()
}

fn as_json(stats: &Stats, from: Option<Timestamp>) -> Value {
    let list = |key: &str, entries: &BTreeMap<String, StepUsage>| -> Value {
        let encode = |(name, used): (&String, &StepUsage)| {
            let mut value = used.json();
            value[key] = name.as_str().into();
            value
        };
        entries.iter().map(encode).collect()
    };
    json!({
        "from": from.map(day),
        "sessions": stats.sessions,
        "total": stats.all.json(),
        "days": list("day", &stats.days),
        "models": list("model", &stats.models),
        "projects": list("project", &stats.projects),
    })
}

fn print(stats: &Stats, from: Option<Timestamp>) {
    let since = from.map_or_else(String::new, |from| format!(" since {}", day(from)));
    if stats.all.steps == 0 {
        say(&format!("No model was used{since}."));
        return;
    }
    say(&format!(
        "{}, {}, {}{since}",
        text::count(stats.sessions, "session"),
        text::count(stats.all.steps, "step"),
        stats
            .all
            .cost
            .map_or_else(|| "no price known".to_owned(), chart::money),
    ));
    for (title, entries, is_by_cost) in [
        ("day", &stats.days, false),
        ("model", &stats.models, true),
        ("project", &stats.projects, true),
    ] {
        let mut rows: Vec<(&String, &StepUsage)> = entries.iter().collect();
        if is_by_cost {
            rows.sort_by(|(_, a), (_, b)| {
                let dollars = |used: &StepUsage| used.cost.unwrap_or_default();
                dollars(b)
                    .total_cmp(&dollars(a))
                    .then(b.usage.context().cmp(&a.usage.context()))
            });
        }
        say(&format!("\n{}", table(title, &rows)));
    }
}

/// Formats a cost for a table.
fn money(cost: Option<f64>) -> String {
    cost.map_or_else(|| "-".to_owned(), chart::money)
}

/// Formats the use of models by one property, in the width of the terminal: a long name is cut at
/// its start, and in a narrow terminal each name has a line of its own.
fn table(title: &str, rows: &[(&String, &StepUsage)]) -> String {
    /// The columns after the name.
    const NUMBERS: usize = 49;
    /// The narrowest column of names.
    const MIN_NAME: usize = 16;
    let available =
        listing::terminal_width().map_or(usize::MAX, |width| width.saturating_sub(NUMBERS));
    if available < MIN_NAME {
        return lines(rows);
    }
    let rows: Vec<(String, &StepUsage)> = rows
        .iter()
        .map(|(name, used)| (listing::shortened_start(name, available), *used))
        .collect();
    let width = rows
        .iter()
        .map(|(name, _)| listing::width(name))
        .chain([title.len()])
        .max()
        .unwrap_or_default();
    let mut out = format!(
        "{title:width$}  {:>6}  {:>8}  {:>8}  {:>8}  {:>9}",
        "steps", "input", "cached", "output", "cost"
    );
    for (name, used) in rows {
        let input = used.usage.input + used.usage.cache_write;
        let output = used.usage.output + used.usage.reasoning;
        let name = format!("{name}{}", " ".repeat(width - listing::width(&name)));
        out += &format!(
            "\n{name}  {:>6}  {:>8}  {:>8}  {:>8}  {:>9}",
            used.steps,
            text::thousands(input),
            text::thousands(used.usage.cache_read),
            text::thousands(output),
            money(used.cost),
        );
    }
    out
}

/// Formats the use of models without columns.
fn lines(rows: &[(&String, &StepUsage)]) -> String {
    let line = |(name, used): &(&String, &StepUsage)| {
        let input = used.usage.input + used.usage.cache_write;
        let output = used.usage.output + used.usage.reasoning;
        format!(
            "{name}\n  {}, {}\n  {} in, {} cached, {} out",
            text::count(used.steps, "step"),
            money(used.cost),
            text::thousands(input),
            text::thousands(used.usage.cache_read),
            text::thousands(output),
        )
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_at_midnight_and_include_today() {
        let noon = Timestamp(10 * DAY_MILLISECONDS + DAY_MILLISECONDS / 2);
        assert_eq!(first_millisecond(noon, 1), Timestamp(10 * DAY_MILLISECONDS));
        assert_eq!(first_millisecond(noon, 3), Timestamp(8 * DAY_MILLISECONDS));
        assert_eq!(first_millisecond(noon, 99), Timestamp(0));
    }
}
