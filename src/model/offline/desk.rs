//! The desk at which one prompt is worked off.
//!
//! The model keeps nothing between two requests, so every request repeats the work from the
//! prompt on: a call that was made already gives its recorded result, the first one that was not
//! ends the thinking with a [`Decision`]. Work can therefore be written as if calls just returned,
//! with `?` where the model has to wait.

use serde_json::{Value, json};

use super::view::{Done, View};

/// What is said and called now.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decision {
    /// Reasoning to be shown.
    pub(super) thought: String,
    /// Words.
    pub(super) text: String,
    /// Tools and their arguments; none ends the turn.
    pub(super) calls: Vec<(String, Value)>,
}

/// Ends the thinking for now.
pub(super) type Waits<T> = Result<T, Box<Decision>>;

/// One call that is wanted.
pub(super) type Wanted = (&'static str, Value);

/// A prompt never takes more steps than this, whatever the tools say.
const MOST_STEPS: usize = 60;

/// The work on one prompt.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    /// The request.
    pub(super) view: &'a View,
    next: usize,
    plan: Vec<Entry>,
    plan_changed: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    content: String,
    status: &'static str,
}

impl<'a> Desk<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self { view, next: 0, plan: Vec::new(), plan_changed: false }
    }

    /// Whether a tool may be called.
    pub(super) fn offers(&self, tool: &str) -> bool {
        self.view.tools.iter().any(|offered| offered == tool)
    }

    /// Makes calls side by side and gives their results, one for each, in order. Calls of tools
    /// that are not offered come back as missing.
    pub(super) fn step(&mut self, thought: &str, text: &str, wanted: Vec<Wanted>) -> Waits<Vec<Done>> {
        let count = wanted.len();
        let mut all: Vec<(String, Value)> = wanted.into_iter().map(|(name, args)| (name.to_owned(), args)).collect();
        let with_plan = self.plan_changed && self.offers("todowrite");
        self.plan_changed = false;
        if with_plan {
            all.push(("todowrite".to_owned(), self.todos()));
        }
        while let Some(recorded) = self.view.steps.get(self.next) {
            self.next += 1;
            // A step that another model made before the user switched to this one is passed over.
            if let Some(mut done) = matched(&all, recorded) {
                done.truncate(count);
                return Ok(done);
            }
        }
        let offered: Vec<(String, Value)> = all.iter().filter(|(name, _)| self.offers(name)).cloned().collect();
        if offered.is_empty() || self.view.steps.len() >= MOST_STEPS {
            return Ok(all.iter().take(count).map(missing).collect());
        }
        Err(Box::new(Decision { thought: thought.to_owned(), text: text.to_owned(), calls: offered }))
    }

    /// Makes one call.
    pub(super) fn call(&mut self, text: &str, tool: &'static str, arguments: Value) -> Waits<Done> {
        let fallback = missing(&(tool.to_owned(), arguments.clone()));
        let done = self.step("", text, vec![(tool, arguments)])?;
        Ok(done.into_iter().next().unwrap_or(fallback))
    }

    /// Lays a plan on the desk; it is shown with the next calls.
    pub(super) fn plan(&mut self, contents: impl IntoIterator<Item = String>) {
        self.plan = contents.into_iter().map(|content| Entry { content, status: "pending" }).collect();
        self.plan_changed = !self.plan.is_empty();
    }

    /// Notes how far an entry of the plan is; without a plan, nothing.
    pub(super) fn mark(&mut self, entry: usize, status: &'static str) {
        if let Some(entry) = self.plan.get_mut(entry)
            && entry.status != status
        {
            entry.status = status;
            self.plan_changed = true;
        }
    }

    /// Shows the plan as it is, where it changed since it was shown.
    pub(super) fn show_plan(&mut self, text: &str) -> Waits<()> {
        if self.plan_changed && self.offers("todowrite") {
            let _ = self.step("", text, Vec::new())?;
        }
        Ok(())
    }

    fn todos(&self) -> Value {
        let todo = |entry: &Entry| json!({"content": entry.content, "status": entry.status, "priority": "medium"});
        json!({"todos": self.plan.iter().map(todo).collect::<Vec<_>>()})
    }
}

/// The results of the wanted calls in a recorded step: by name and arguments, else by name; none
/// when the step has none of them.
fn matched(wanted: &[(String, Value)], recorded: &[Done]) -> Option<Vec<Done>> {
    let mut free: Vec<&Done> = recorded.iter().collect();
    let mut results: Vec<Option<Done>> = vec![None; wanted.len()];
    for exact in [true, false] {
        for ((name, arguments), result) in wanted.iter().zip(&mut results) {
            if result.is_some() {
                continue;
            }
            let fits = |done: &&Done| done.name == *name && (!exact || done.arguments == *arguments);
            if let Some(at) = free.iter().position(fits) {
                *result = Some(free.remove(at).clone());
            }
        }
    }
    let any = results.iter().any(Option::is_some);
    any.then(|| results.into_iter().zip(wanted).map(|(done, call)| done.unwrap_or_else(|| missing(call))).collect())
}

fn missing((name, arguments): &(String, Value)) -> Done {
    Done {
        name: name.clone(),
        arguments: arguments.clone(),
        text: format!("the `{name}` tool is not offered here"),
        failed: true,
        missing: true,
    }
}
