//! `adjutant config`: what the settings are, where each comes from, and what is wrong with them.

use std::path::Path;

use super::place::Here;
use crate::config::{self, Severity};
use crate::environment::Environment;
use crate::session::models::Sources;

/// What to do with the settings.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Print the resolved settings with the source of each value (also without a word).
    Show,
    /// Say what is wrong, what is spelled in an old way, and what to write instead. Exit code 1 when
    /// a value is not used because it is wrong.
    Check,
    /// Print the JSON Schema of the settings, for editors.
    Schema,
}

pub(super) fn config(verb: &Verb, environment: &Environment) -> anyhow::Result<u8> {
    if matches!(verb, Verb::Schema) {
        super::terminal::json(&config::schema_text());
        return Ok(0);
    }
    let here = Here::read(Path::new("."), environment)?;
    match verb {
        Verb::Check => {
            let mut more = here.problems;
            more.extend(here.loaded.odd_rules(environment));
            // Models of providers without a key exist as well: only names nobody knows are wrong.
            let registry = Sources::new(environment).everyone(&here.loaded.settings);
            let known: Vec<String> = registry.models().iter().map(|model| model.id.to_string()).collect();
            more.extend(here.loaded.unknown_models(&|model| registry.find(model).is_ok(), &known));
            super::say(&config::check(&here.loaded, &more));
            let wrong = more.iter().any(|problem| problem.severity == Severity::Error);
            Ok(u8::from(wrong || here.loaded.has_errors()))
        }
        Verb::Show | Verb::Schema => {
            super::say(&config::show(&here.loaded));
            Ok(0)
        }
    }
}
