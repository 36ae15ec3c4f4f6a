//! The `/words` of a session.

use crate::command;
use crate::config::settings::{self, Settings};
use crate::event;

/// The commands of a session: built in, then the settings'.
#[derive(Debug, Clone, Default)]
pub struct Commands(Vec<settings::Command>);

impl Commands {
    /// What the settings say, and what comes with the program.
    pub fn new(settings: &Settings) -> Self {
        Self(command::list(settings))
    }

    /// For the editor's list.
    pub fn list(&self) -> Vec<event::Command> {
        let one = |command: &settings::Command| event::Command {
            name: command.name.clone(),
            description: command.description.clone().unwrap_or_default(),
            hint: hint(&command.template),
        };
        self.0.iter().map(one).collect()
    }

    /// What is sent in the place of a text that begins with a known command; none for every other
    /// text. Shell inserts are not run: each leaves a note in its place.
    pub fn expand(&self, text: &str) -> Option<String> {
        let (name, arguments) = command::typed(text.trim_start())?;
        let command = self.0.iter().find(|command| command.name == name)?;
        Some(command::expand(&command.template, arguments).filled(&[]))
    }
}

/// Whether something may follow the command.
fn hint(template: &str) -> Option<String> {
    let takes = template.contains("$ARGUMENTS") || template.contains("$1");
    takes.then(|| "arguments".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_are_commands() {
        let commands = Commands::new(&Settings::default());
        assert!(commands.expand("/review the last commit").unwrap().contains("the last commit"));
        for text in ["/usr/bin/foo crashes, why?", "/nothing", "say /init", "/"] {
            assert_eq!(commands.expand(text), None, "{text}");
        }
    }
}
