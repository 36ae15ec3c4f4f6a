//! The list of tools, and which of them an agent and a model get to see.

use std::sync::Arc;

use super::skill::Skill;
use super::task::Task;
use super::{AnyTool, Tool, erase};
use crate::model::Model;
use crate::permission::{Action, Need, Rules, evaluate};

/// The tools of a session, in the order they were added.
#[derive(Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<dyn AnyTool>>,
}

impl Registry {
    /// The tools that need nothing but files and processes.
    pub fn built_in() -> Self {
        Self {
            tools: vec![
                erase(super::invalid::Invalid),
                erase(super::bash::Bash),
                erase(super::bash_output::BashOutput),
                erase(super::bash_stop::BashStop),
                erase(super::read::Read),
                erase(super::list::List),
                erase(super::glob::Glob),
                erase(super::grep::Grep),
                erase(super::edit::Edit),
                erase(super::multiedit::Multiedit),
                erase(super::write::Write),
                erase(super::apply_patch::ApplyPatch),
                erase(Task::default()),
                erase(Skill::default()),
                erase(super::plan_enter::PlanEnter),
                erase(super::plan_exit::PlanExit),
                erase(super::question::Question),
                erase(super::webfetch::Webfetch::default()),
                erase(super::todowrite::Todowrite),
                erase(super::todoread::Todoread),
            ],
        }
    }

    /// Adds a tool. One of the same name that is there already stays: a tool from elsewhere never
    /// takes the place of a built-in one. Says whether it was added.
    pub fn add(&mut self, tool: Arc<dyn AnyTool>) -> bool {
        let new = self.find(tool.name()).is_none();
        if new {
            self.tools.push(tool);
        }
        new
    }

    /// The tool of exactly this name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn AnyTool>> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    /// All tools.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn AnyTool>> {
        self.tools.iter()
    }

    /// What is offered to a model, sorted by name: nothing that is denied altogether, and one way
    /// of editing, the one the model was trained on. `made` are the tools that were made for this step:
    /// those that know who asks.
    pub fn visible(&self, rules: &Rules, model: &Model, made: Vec<Arc<dyn AnyTool>>) -> Vec<Arc<dyn AnyTool>> {
        let patches = patches(&model.api_id);
        let may = |name: &str| evaluate(rules, &Rules::default(), &Need::new(name, "*")).action != Action::Deny;
        let offered = |tool: &&Arc<dyn AnyTool>| match tool.name() {
            "invalid" | Task::NAME | Skill::NAME => false,
            "apply_patch" => patches,
            "edit" | "multiedit" | "write" => !patches,
            // A general "allow" does not give these to agents that have no use for them.
            "plan_enter" | "plan_exit" | "question" => may(tool.name()),
            _ => true,
        };
        let mut tools: Vec<_> =
            self.tools.iter().filter(offered).filter(|tool| !rules.hides(tool.permission())).cloned().collect();
        tools.extend(made);
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        tools
    }
}

/// Whether a model edits with patches.
fn patches(model: &str) -> bool {
    model.contains("gpt-") && !model.contains("oss") && !model.contains("gpt-4")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ModelRef;

    fn names(rules: &[(&str, &str, Action)], model: &str) -> String {
        let model = Model::unknown(ModelRef::parse(&format!("p/{model}")).unwrap());
        let tools = Registry::built_in().visible(&Rules::built_in(rules), &model, Vec::new());
        tools.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_offered() {
        let all = "bash bash_output bash_stop edit glob grep list multiedit plan_enter plan_exit question read todoread todowrite webfetch write";
        let patch = "apply_patch bash bash_output bash_stop glob grep list plan_enter plan_exit question read todoread todowrite webfetch";
        let none =
            "bash bash_output bash_stop glob grep list plan_enter plan_exit question read todoread todowrite webfetch";
        let calm = "apply_patch bash bash_output bash_stop glob grep list question read todoread todowrite webfetch";
        type Case<'a> = (&'a [(&'a str, &'a str, Action)], &'a str, &'a str);
        let table: &[Case<'_>] = &[
            (&[], "claude-x", all),
            (&[], "gpt-5", patch),
            (&[], "gpt-oss-120b", all),
            (&[], "gpt-4.1", all),
            (&[("edit", "*", Action::Deny)], "claude-x", none),
            (
                &[("plan_exit", "*", Action::Deny), ("*", "*", Action::Allow), ("plan_enter", "*", Action::Deny)],
                "gpt-5",
                calm,
            ),
            (&[("edit", "*", Action::Deny), ("edit", "plans/*", Action::Allow)], "claude-x", all),
            (&[("bash", "rm *", Action::Deny)], "claude-x", all),
            (&[("*", "*", Action::Deny), ("read", "*", Action::Allow)], "claude-x", "read"),
        ];
        for (rules, model, expected) in table {
            assert_eq!(names(rules, model), *expected, "{rules:?} {model}");
        }
    }

    #[test]
    fn a_name_is_there_once() {
        let registry = Registry::built_in();
        assert!(registry.find("read").is_some() && registry.find("Read").is_none());
        assert!(!registry.clone().add(erase(super::super::bash::Bash)));
    }

    #[test]
    fn descriptions_and_schemas_are_short() {
        let registry = Registry::built_in();
        let mut size = 0;
        for tool in registry.all().filter(|tool| tool.name() != "invalid") {
            assert!(!tool.description().is_empty(), "{}", tool.name());
            let schema = tool.schema();
            assert_eq!(schema["type"], "object", "{}", tool.name());
            let text = schema.to_string();
            assert!(!text.contains("\"null\"") && !text.contains("$ref") && !text.contains("\"format\":\""), "{text}");
            size += tool.description().len() + text.len();
        }
        assert!(size < 14_000, "{size} bytes for all, apply_patch included");
    }
}
