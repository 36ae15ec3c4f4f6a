//! Agents: a prompt, a model and permission rules under a name. [`registry`] creates them from the
//! built-in ones and the settings. This module makes no model requests.

pub mod create;
pub mod registry;
pub mod show;
#[cfg(test)]
#[cfg(unix)]
mod tables;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use config::settings::{Mode, ModelFamily};
pub use registry::Agents;

use permission::Rules;
use transcript::ModelRef;

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The name, such as `build` or `team/reviewer`; also the id of its mode.
    pub name: String,
    /// The displayed name: its label, otherwise its name.
    pub label: String,
    pub description: Option<String>,
    pub mode: Mode,
    /// True if it is left out of pickers.
    pub hidden: bool,
    /// True if it is built in.
    pub native: bool,
    /// `#RRGGBB` or a name.
    pub color: Option<String>,
    pub model: Option<ModelRef>,
    /// The family of models that it uses, in place of a certain model.
    pub family: Option<ModelFamily>,
    /// The reasoning effort that it uses with that model.
    pub variant: Option<String>,
    /// The system prompt, in place of the one for the model's family.
    pub prompt: Option<Arc<str>>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// Sent to the provider with every request.
    pub options: Map<String, Value>,
    /// The maximum number of steps of one prompt.
    pub steps: Option<u32>,
    /// The rules of all layers in order, each with its source.
    pub rules: Rules,
    /// The source: `built in`, or the file that last mentioned the agent.
    pub source: String,
}

impl Agent {
    /// Returns whether the user can choose it.
    pub fn is_mode(&self) -> bool {
        self.mode != Mode::Subagent && !self.hidden
    }

    /// Returns whether it can lead a session: a hidden agent is chosen by its name.
    pub fn can_lead(&self) -> bool {
        self.mode != Mode::Subagent && !self.is_internal()
    }

    /// Returns whether another agent can start it. A hidden agent is not offered, but can be
    /// started by its name.
    pub fn is_subagent(&self) -> bool {
        self.mode != Mode::Primary && !self.is_internal()
    }

    /// Returns whether it is for titles and summaries only.
    fn is_internal(&self) -> bool {
        self.native && self.hidden
    }
}
