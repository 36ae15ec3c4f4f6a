//! `skill`: loads a skill.
//!
//! `crates/project/src/skill.rs` finds the skills of a session.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::Aliases;
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::text;
use events::ToolKind;
use permission::{AccessRequest, Rules};
use project::skill::{self, Skills};

/// The tool, created for every step with the skills that the agent may load.
#[derive(Default)]
pub struct SkillTool {
    skills: Arc<Skills>,
    /// The names of the skills that may be loaded.
    allowed: Vec<String>,
}

impl SkillTool {
    /// Creates the tool for a step of an agent with these rules; `None` if there is nothing to
    /// load.
    pub fn new(skills: &Arc<Skills>, rules: &Rules) -> Option<Self> {
        let allowed: Vec<String> = skills
            .allowed(rules)
            .map(|skill| skill.name.clone())
            .collect();
        (!allowed.is_empty()).then(|| Self {
            skills: skills.clone(),
            allowed,
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub name: String,
}

impl Tool for SkillTool {
    const NAME: &'static str = "skill";
    const DESCRIPTION: &'static str = include_str!("skill.md");
    const KIND: ToolKind = ToolKind::Read;
    const CONCURRENT: bool = true;
    const AVAILABILITY: Availability = Availability::PerStep;
    const KEEPS_OUTPUT: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::acting(
        "Loading a skill; patterns are skill names.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &["useskill", "loadskill", "readskill"],
        field_values: &[],
        fields: &[("name", &["skill", "skillname", "command"])],
    };
    type Input = Input;
    type Ready = skill::Skill;

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: text::title(&format!("Load skill {}", input.name)),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, skill::Skill), Failure> {
        let Some(skill) = self.skills.get(input.name.trim()) else {
            let name = text::title(&input.name);
            let there = self.allowed.join(", ");
            return Err(Failure::ForModel(format!(
                "There is no skill \"{name}\". There are: {there}."
            )));
        };
        let request =
            AccessRequest::new(Self::NAME, skill.name.as_str()).always(skill.name.as_str());
        Ok((vec![request], skill.clone()))
    }

    async fn run(&self, skill: skill::Skill, _: ToolContext) -> Result<ToolOutput, Failure> {
        let title = format!("Loaded skill: {}", skill.name);
        let metadata = Map::from_iter([
            ("name".to_owned(), Value::String(skill.name.clone())),
            (
                "dir".to_owned(),
                Value::String(skill.dir.display().to_string()),
            ),
        ]);
        let shown = skill.text.to_string();
        let loaded = base::task::spawn_blocking(move || skill.loaded()).await;
        let text = loaded.map_err(|e| Failure::Broken(e.to_string()))?;
        Ok(ToolOutput {
            title,
            text,
            display: Some(shown),
            metadata,
            ..ToolOutput::default()
        })
    }
}
