//! `adjutant completions` and `adjutant man`: the command line for shells and for `man`.

use anyhow::Context as _;
use clap::{Command, ValueEnum};
use clap_complete::{Generator, generate};

use super::complete;

/// A shell that completes.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "it is called that")]
pub(super) enum Shell {
    Bash,
    Elvish,
    Fish,
    Nushell,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

pub(super) fn completions(shell: Shell, command: Command) -> anyhow::Result<u8> {
    let dynamic = shell
        .to_possible_value()
        .and_then(|shell| complete::script(shell.get_name()));
    if let Some(script) = dynamic {
        let script = script.context("the script cannot be made")?;
        super::terminal::exact(&String::from_utf8(script).context("the script is not text")?);
        return Ok(0);
    }
    // Nushell alone has no script that asks adjutant for candidates.
    let script = script(clap_complete_nushell::Nushell, command);
    super::terminal::exact(&String::from_utf8(script).context("the script is not text")?);
    Ok(0)
}

fn script(shell: impl Generator, mut command: Command) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut command, "adjutant", &mut script);
    script
}

/// Prints one page: adjutant, then each of its commands.
pub(super) fn manual(mut command: Command) -> anyhow::Result<u8> {
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    man.render(&mut page).context("the page cannot be made")?;
    for part in command
        .get_subcommands()
        .filter(|part| part.get_name() != "help")
    {
        let man = clap_mangen::Man::new(part.clone());
        man.render_name_section(&mut page)
            .and_then(|()| man.render_synopsis_section(&mut page))
            .and_then(|()| man.render_description_section(&mut page))
            .and_then(|()| man.render_options_section(&mut page))
            .context("the page cannot be made")?;
    }
    super::terminal::exact(&String::from_utf8(page).context("the page is not text")?);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_shell_has_a_completion_script() {
        for shell in Shell::value_variants() {
            let name = shell.to_possible_value().unwrap().get_name().to_owned();
            let script = match complete::script(&name) {
                Some(script) => script.unwrap(),
                None => script(clap_complete_nushell::Nushell, Cli::command()),
            };
            let script = String::from_utf8(script).unwrap();
            let word = if name == "nushell" {
                "sessions"
            } else {
                complete::VARIABLE
            };
            assert!(script.contains(word), "{word} is not in {script}");
        }
    }
}
