//! Who speaks. An agent is a prompt, a model and rules; which of them there are is decided by
//! [`registry`] from the built-in ones and the settings. Nothing here asks a model.

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

pub use config::settings::Mode;
pub use registry::Agents;

use permission::Rules;
use transcript::ModelRef;

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// What it is called: `build`, `team/reviewer`. Also the id of its mode.
    pub name: String,
    /// What people see: its own label, else its name.
    pub label: String,
    pub description: Option<String>,
    pub mode: Mode,
    /// Pickers leave it out.
    pub hidden: bool,
    /// It comes with the program.
    pub native: bool,
    /// `#RRGGBB` or a name.
    pub color: Option<String>,
    pub model: Option<ModelRef>,
    /// The reasoning effort it uses with that model.
    pub variant: Option<String>,
    /// Its system prompt, in place of the one for the model's family.
    pub prompt: Option<Arc<str>>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// Sent to the provider with every request.
    pub options: Map<String, Value>,
    /// How many steps one prompt may take.
    pub steps: Option<u32>,
    /// What it may do: all layers in order, each rule with its source.
    pub rules: Rules,
    /// Where it comes from: `built in`, or the file that last said something about it.
    pub source: String,
}

impl Agent {
    /// Whether the user can choose it.
    pub fn is_mode(&self) -> bool {
        self.mode != Mode::Subagent && !self.hidden
    }

    /// Whether a session can be led by it: a hidden one is chosen by its name.
    pub fn can_lead(&self) -> bool {
        self.mode != Mode::Subagent && !self.is_internal()
    }

    /// Whether another agent can start it; a hidden one is not offered, and started by its name.
    pub fn is_subagent(&self) -> bool {
        self.mode != Mode::Primary && !self.is_internal()
    }

    /// It titles and summarises, and speaks to nobody.
    fn is_internal(&self) -> bool {
        self.native && self.hidden
    }
}
