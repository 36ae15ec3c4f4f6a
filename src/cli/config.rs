//! `adjutant config`: what the settings are, where each comes from, and what is wrong with them.

use std::path::Path;

use super::place::Here;
use crate::config;
use crate::environment::Environment;

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
        super::say(&config::schema_text());
        return Ok(0);
    }
    let here = Here::read(Path::new("."), environment)?;
    match verb {
        Verb::Check => {
            super::say(&config::check(&here.loaded, &here.problems));
            Ok(u8::from(here.loaded.has_errors()))
        }
        Verb::Show | Verb::Schema => {
            super::say(&config::show(&here.loaded));
            Ok(0)
        }
    }
}
