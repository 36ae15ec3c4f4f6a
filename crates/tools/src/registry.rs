//! The list of tools, and the selection for an agent and a model.

use std::sync::Arc;

use super::aliases::Aliases;
use super::{AnyTool, Availability, Tool, erase};
use permission::{AccessRequest, Action, Rules, evaluate};
use providers::Model;

/// The properties of a tool that do not depend on a call.
#[derive(Debug)]
pub struct ToolProperties {
    pub name: &'static str,
    pub permission: &'static str,
    pub offer: Availability,
    pub sweeps: bool,
    pub keeps_output: bool,
    pub keeps_input: bool,
    pub aliases: Aliases,
    make: fn() -> Arc<dyn AnyTool>,
}

const fn properties<T: Tool + Default>() -> ToolProperties {
    ToolProperties {
        name: T::NAME,
        permission: T::PERMISSION,
        offer: T::OFFER,
        sweeps: T::WRITES_UNNAMED_FILES,
        keeps_output: T::KEEPS_OUTPUT,
        keeps_input: T::KEEPS_INPUT,
        aliases: T::ALIASES,
        make: || erase(T::default()),
    }
}

pub static PROPERTIES: &[ToolProperties] = &[
    properties::<super::invalid::InvalidTool>(),
    properties::<super::bash::BashTool>(),
    properties::<super::bash_output::BashOutputTool>(),
    properties::<super::bash_stop::BashStopTool>(),
    properties::<super::read::ReadTool>(),
    properties::<super::list::ListTool>(),
    properties::<super::lsp::LspTool>(),
    properties::<super::glob::GlobTool>(),
    properties::<super::grep::GrepTool>(),
    properties::<super::edit::EditTool>(),
    properties::<super::write::WriteTool>(),
    properties::<super::apply_patch::ApplyPatchTool>(),
    properties::<super::task::TaskTool>(),
    properties::<super::skill::SkillTool>(),
    properties::<super::plan_enter::PlanEnterTool>(),
    properties::<super::plan_exit::PlanExitTool>(),
    properties::<super::question::QuestionTool>(),
    properties::<super::webfetch::WebfetchTool>(),
    properties::<super::websearch::WebsearchTool>(),
    properties::<super::todowrite::TodowriteTool>(),
    properties::<super::todoread::TodoreadTool>(),
];

/// Returns the properties of the tool of exactly this name; `None` for external tools.
pub fn find_properties(name: &str) -> Option<&'static ToolProperties> {
    PROPERTIES.iter().find(|tool| tool.name == name)
}

/// The tools of a session, in the order in which they were added.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    tools: Vec<Arc<dyn AnyTool>>,
}

impl ToolRegistry {
    /// Returns the tools that need nothing but files and processes.
    pub fn built_in() -> Self {
        Self {
            tools: PROPERTIES.iter().map(|tool| (tool.make)()).collect(),
        }
    }

    /// Returns the tool of exactly this name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn AnyTool>> {
        self.tools.iter()
    }

    /// Returns the tools that a model may call, sorted by name: no tool that is denied for
    /// everything, and only the kind of edit tools that the model was trained on. `made` are the
    /// tools that were created for this step.
    pub fn callable(
        &self,
        rules: &Rules,
        model: &Model,
        made: Vec<Arc<dyn AnyTool>>,
    ) -> Vec<Arc<dyn AnyTool>> {
        let patches = patches(&model.api_id);
        let by_name = |name: &str| {
            evaluate(rules, &Rules::default(), &AccessRequest::new(name, "*")).action
                != Action::Deny
        };
        let offered =
            |tool: &&Arc<dyn AnyTool>| match find_properties(tool.name()).map(|tool| tool.offer) {
                Some(Availability::PerStep) => false,
                Some(Availability::PatchModels) => patches,
                Some(Availability::OtherModels) => !patches,
                Some(Availability::ByName) => by_name(tool.name()),
                Some(Availability::Everyone | Availability::Unlisted) | None => true,
            };
        let mut tools: Vec<_> = self
            .tools
            .iter()
            .filter(offered)
            .filter(|tool| !rules.hides(tool.permission()))
            .cloned()
            .collect();
        tools.extend(made);
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        tools
    }
}

/// Returns whether a model edits with patches.
fn patches(model: &str) -> bool {
    model.contains("gpt-") && !model.contains("oss") && !model.contains("gpt-4")
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::file::PERMISSIONS;
    use transcript::ModelRef;

    fn names(rules: &[(&str, &str, Action)], model: &str) -> String {
        let model = Model::unknown(ModelRef::parse(&format!("p/{model}")).unwrap());
        let tools = ToolRegistry::built_in().callable(&Rules::built_in(rules), &model, Vec::new());
        tools
            .iter()
            .filter(|tool| tool.listed())
            .map(|tool| tool.name())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// A rule for a name that models use for a tool applies to that tool.
    #[test]
    fn rules_know_the_names_that_models_use() {
        let acts = [
            "bash",
            "edit",
            "read",
            "list",
            "glob",
            "grep",
            "webfetch",
            "websearch",
            "task",
            "skill",
            "lsp",
        ];
        let tools = PROPERTIES
            .iter()
            .filter(|tool| acts.contains(&tool.name) || tool.permission == "edit");
        let names = tools.flat_map(|tool| tool.aliases.also);
        let unknown: Vec<_> = names
            .filter(|name| config::meant_permission(name).is_none())
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn tools_are_offered_by_rules_and_model() {
        const DENY: Action = Action::Deny;
        const ALLOW: Action = Action::Allow;
        type Case<'a> = (&'a [(&'a str, &'a str, Action)], &'a str, &'a str, &'a str);
        // Rules, a model, tools that it gets, tools that it does not get.
        let table: &[Case<'_>] = &[
            (
                &[],
                "claude-x",
                "edit write bash",
                "apply_patch list lsp websearch task structured_output",
            ),
            (&[], "gpt-5", "apply_patch bash", "edit write list"),
            (&[], "gpt-oss-120b", "edit write", "apply_patch"),
            (&[], "gpt-4.1", "edit write", "apply_patch"),
            (
                &[("edit", "*", DENY)],
                "claude-x",
                "bash read",
                "edit write",
            ),
            (
                &[
                    ("plan_exit", "*", DENY),
                    ("*", "*", ALLOW),
                    ("plan_enter", "*", DENY),
                ],
                "gpt-5",
                "apply_patch read question",
                "plan_enter plan_exit",
            ),
            (
                &[("edit", "*", DENY), ("edit", "plans/*", ALLOW)],
                "claude-x",
                "edit write",
                "",
            ),
            (
                &[("bash", "rm *", DENY)],
                "claude-x",
                "bash bash_output",
                "",
            ),
            (
                &[("*", "*", DENY), ("read", "*", ALLOW)],
                "claude-x",
                "read",
                "bash edit question",
            ),
        ];
        for (rules, model, offered, missing) in table {
            let names = names(rules, model);
            let has = |name: &str| names.split(' ').any(|other| other == name);
            assert!(offered.split(' ').all(has), "{rules:?} {model}: {names}");
            assert!(!missing.split(' ').any(has), "{rules:?} {model}: {names}");
            assert!(names.split(' ').is_sorted());
        }
    }

    #[test]
    fn tool_names_are_unique() {
        let registry = ToolRegistry::built_in();
        assert!(registry.find("read").is_some() && registry.find("Read").is_none());
        let names: std::collections::BTreeSet<&str> =
            registry.all().map(|tool| tool.name()).collect();
        assert_eq!(names.len(), PROPERTIES.len());
    }

    /// A description, and a permission that settings may name, belong to a tool.
    #[test]
    fn each_tool_has_description_and_known_permission() {
        for tool in PROPERTIES.iter().filter(|tool| tool.name != "invalid") {
            let file = format!("{}/src/{}.md", env!("CARGO_MANIFEST_DIR"), tool.name);
            let words = std::fs::read_to_string(&file).unwrap();
            let first = words.lines().next().unwrap();
            assert!(
                (tool.make)().description().starts_with(first),
                "{file} is not what the model reads"
            );
            let named = PERMISSIONS.iter().any(|(key, _)| *key == tool.permission);
            assert!(
                named,
                "settings cannot name the permission {}",
                tool.permission
            );
        }
    }

    #[test]
    fn descriptions_and_schemas_are_short() {
        let registry = ToolRegistry::built_in();
        let mut size = 0;
        for tool in registry.all().filter(|tool| tool.name() != "invalid") {
            assert!(!tool.description().is_empty(), "{}", tool.name());
            let schema = tool.schema();
            assert_eq!(schema["type"], "object", "{}", tool.name());
            let text = schema.to_string();
            assert!(
                !text.contains("\"null\"")
                    && !text.contains("$ref")
                    && !text.contains("\"format\":\""),
                "{text}"
            );
            size += tool.description().len() + text.len();
        }
        assert!(size < 14_000, "{size} bytes for all, apply_patch included");
    }
}
