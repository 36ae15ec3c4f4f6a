//! The tools, prompts and instructions of a server. [`ServerCatalog`] is the server's own listing,
//! within limits, as it is stored for the next start. [`ServerOffer`] is the same with tools that a
//! session can call.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use rmcp::model::{Prompt, Tool};
use serde::{Deserialize, Serialize};

use super::READ_ONLY_TOOLS;
use super::reading::{ListReading, MAX_LISTED};
use base::text;
use events::{Event, Severity};
use tools::AnyTool;
use tools::registry::find_properties;

/// The longest description of a tool, and the longest instructions of a server, in characters.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 10_000;
/// The number of tools that a notice names per kind of change.
const MAX_NAMED: usize = 20;

/// The lists and instructions of a server, cut to the limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerCatalog {
    pub tools: Vec<Tool>,
    /// True if the server has more tools than these.
    #[serde(rename = "cut")]
    pub is_cut: bool,
    /// The tools that cannot be read: the name of each, or its place in the list, with the reason.
    #[serde(default)]
    pub unreadable: Vec<String>,
    pub prompts: Vec<Prompt>,
    /// True if the server completes arguments of prompts.
    #[serde(rename = "completes")]
    pub can_complete: bool,
    #[serde(rename = "resources")]
    pub has_resources: bool,
    /// True if the server reports changes of its resources.
    #[serde(rename = "subscribes")]
    pub can_subscribe: bool,
    pub instructions: Option<String>,
}

impl ServerCatalog {
    /// Applies the limits again, because another program may have written a stored catalog.
    pub(super) fn limited(self) -> Self {
        let mut tools = ListReading::new();
        tools.page(self.tools, None);
        let mut prompts = ListReading::new();
        prompts.page(self.prompts, None);
        let instructions = self
            .instructions
            .map(|text| text::cut_chars(&text, MAX_DESCRIPTION_CHARS));
        let mut unreadable = self.unreadable;
        unreadable.truncate(MAX_LISTED);
        Self {
            tools: tools.all,
            is_cut: self.is_cut || tools.is_cut,
            unreadable,
            prompts: prompts.all,
            instructions,
            ..self
        }
    }
}

/// The tools and prompts of a server that a session offers.
pub(super) struct ServerOffer {
    pub tools: Vec<OfferedTool>,
    /// True if it has more tools than are offered.
    pub is_cut: bool,
    /// The tools that cannot be read: the name of each, or its place in the list, with the reason.
    pub unreadable: Vec<String>,
    pub prompts: Vec<Prompt>,
    /// True if the server completes arguments of prompts.
    pub can_complete: bool,
    pub has_resources: bool,
    /// True if the server reports changes of its resources.
    pub can_subscribe: bool,
    pub instructions: Option<String>,
}

/// A tool of a server.
pub(super) struct OfferedTool {
    /// The name on the server; the model uses another.
    pub name_on_server: String,
    pub tool: Arc<dyn AnyTool>,
}

impl ServerOffer {
    /// Returns whether the server has a tool of this name.
    pub(super) fn has_tool(&self, name_on_server: &str) -> bool {
        self.tools
            .iter()
            .any(|tool| tool.name_on_server == name_on_server)
    }

    fn tools_by_name(&self) -> BTreeMap<&str, &dyn AnyTool> {
        self.tools
            .iter()
            .map(|tool| (tool.name_on_server.as_str(), tool.tool.as_ref()))
            .collect()
    }

    /// Returns a notice about the tools that are new, gone or changed since the offer `before`, or
    /// `None` if there are none.
    pub(super) fn describe_changes(&self, server: &str, before: &Self) -> Option<Event> {
        let before = before.tools_by_name();
        let now = self.tools_by_name();
        let is_other = |(name, tool): &(&&str, &&dyn AnyTool)| {
            before.get(*name).is_some_and(|old| {
                old.description() != tool.description() || old.schema() != tool.schema()
            })
        };
        let kinds: [(&str, Vec<&str>); 3] = [
            (
                "new",
                now.keys()
                    .filter(|name| !before.contains_key(*name))
                    .copied()
                    .collect(),
            ),
            (
                "gone",
                before
                    .keys()
                    .filter(|name| !now.contains_key(*name))
                    .copied()
                    .collect(),
            ),
            (
                "changed",
                now.iter().filter(is_other).map(|(name, _)| *name).collect(),
            ),
        ];
        let kinds: Vec<_> = kinds
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .collect();
        if kinds.is_empty() {
            return None;
        }
        let counts: Vec<String> = kinds
            .iter()
            .map(|(kind, names)| format!("{} {kind}", names.len()))
            .collect();
        let named = kinds
            .iter()
            .map(|(kind, names)| format!("{}: {}.", text::capitalised(kind), join_names(names)));
        let server = text::title(server);
        let counts = counts.join(", ");
        Some(Event::Notice {
            severity: Severity::Info,
            title: format!("The tools of the MCP server {server} have changed: {counts}."),
            details: Some(named.collect::<Vec<_>>().join(" ")),
        })
    }
}

/// Returns the tools without name conflicts: of several tools of the same name, the first one, and
/// none with the name of one of adjutant's own tools.
pub(super) fn without_name_conflicts<'a>(
    offered: impl Iterator<Item = &'a Arc<dyn AnyTool>>,
) -> Vec<Arc<dyn AnyTool>> {
    let mut taken = HashSet::new();
    let is_own = |name: &str| find_properties(name).is_some() || READ_ONLY_TOOLS.contains(&name);
    offered
        .filter(|tool| {
            let name = tool.name();
            !is_own(name) && taken.insert(name)
        })
        .cloned()
        .collect()
}

/// Joins names for a notice, at most `MAX_NAMED`.
pub(super) fn join_names(names: &[&str]) -> String {
    let mut named: Vec<String> = names
        .iter()
        .take(MAX_NAMED)
        .map(|name| text::title(name))
        .collect();
    if names.len() > MAX_NAMED {
        named.push(format!("and {} more", names.len() - MAX_NAMED));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;

    use super::*;
    use events::ToolKind;
    use tools::{BoxFuture, CallDescription, Failure, PreparedCall, ToolContext};

    /// A tool that counts how often its name is read.
    struct CountedTool {
        name: String,
        reads: Arc<AtomicUsize>,
    }

    impl AnyTool for CountedTool {
        fn name(&self) -> &str {
            self.reads.fetch_add(1, Ordering::Relaxed);
            &self.name
        }

        fn description(&self) -> String {
            String::new()
        }

        fn schema(&self) -> Arc<Value> {
            Arc::default()
        }

        fn kind(&self) -> ToolKind {
            ToolKind::Other
        }

        fn concurrent(&self) -> bool {
            true
        }

        fn permission(&self) -> &str {
            &self.name
        }

        fn describe(&self, _: &Value, _: &ToolContext) -> Option<CallDescription> {
            None
        }

        fn prepare<'a>(
            &'a self,
            _: Value,
            _: &'a ToolContext,
        ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
            Box::pin(async { Err(Failure::for_model("not today")) })
        }
    }

    #[test]
    fn distinct_tools_are_found_by_reading_each_name_once() {
        for count in [100, 10_000] {
            let reads = Arc::<AtomicUsize>::default();
            let tool = |name: String| -> Arc<dyn AnyTool> {
                Arc::new(CountedTool {
                    name,
                    reads: reads.clone(),
                })
            };
            let names = |server: &str| -> Vec<String> {
                (0..count).map(|at| format!("{server}_{at}")).collect()
            };
            let offered = [names("a"), names("b"), names("a"), vec!["bash".to_owned()]];
            let offered: Vec<_> = offered.concat().into_iter().map(tool).collect();
            let found = without_name_conflicts(offered.iter());
            assert_eq!(reads.load(Ordering::Relaxed), offered.len());
            let found: Vec<&str> = found.iter().map(|tool| tool.name()).collect();
            assert!(found == [names("a"), names("b")].concat(), "{found:?}");
        }
    }
}
