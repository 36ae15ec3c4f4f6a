//! `adjutant agents`: who can speak here.

use std::path::Path;

use anyhow::anyhow;

use super::place::Here;
use crate::agent::show;
use crate::environment::Environment;

/// What to do with the agents.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List them with mode, model and source (also without a word).
    List,
    /// Print one agent with its effective rules in order, each with where it was written.
    Show {
        /// The agent's name.
        name: String,
    },
}

pub(super) fn agents(verb: &Verb, environment: &Environment) -> anyhow::Result<u8> {
    let here = Here::read(Path::new("."), environment)?;
    match verb {
        Verb::List => super::say(&show::list(&here.agents)),
        Verb::Show { name } => {
            let agent = here.agents.get(name).ok_or_else(|| {
                let names: Vec<&str> = here.agents.all().map(|agent| agent.name.as_str()).collect();
                anyhow!("there is no agent \"{name}\"; there are: {}", names.join(", "))
            })?;
            super::say(&show::show(&agent));
        }
    }
    Ok(0)
}
