//! Execution of words as a command: finds the file of the program, and applies the effects of a
//! builtin or program.

use super::{Analyzer, git, own};
use crate::shell::disk::Origin;
use crate::shell::expand::{Arg, ShellState, StdinSource, Value};
use crate::shell::names::among;
use crate::shell::programs::{self, CommandContext, ProgramEffect, ShellEffect};
use crate::shell::unit::{CommandUnit, Effect};
use crate::wildcard::UNKNOWN;

/// The maximum number of names of one file under which a command is judged; with more, its effect
/// is unknown.
const MAX_NAMES: usize = 8;

impl Analyzer<'_> {
    /// Analyses words that run as a command.
    pub(super) fn run(&mut self, args: &[Arg], mut unit: CommandUnit, state: &mut ShellState) {
        let index = self.reserve();
        unit.argv = args.iter().map(Arg::normal).collect();
        unit.normalized = unit.argv.join(" ");
        if let Some(arg) = args.iter().find(|arg| !arg.is_literal) {
            unit.catch_all_only
                .get_or_insert_with(|| format!("{} is computed at run time", arg.raw));
        }
        let Some(name) = args[0].text().map(str::to_owned) else {
            unit.set_opaque("the name of the program is computed");
            unit.effect = unit.effect.max(Effect::Unproven);
            for text in args[0].texts().unwrap_or_default() {
                unit.other_spellings.push(joined(text, &args[1..]));
            }
            if args[0].prefix().is_empty() && args.len() > 1 {
                // It may vanish, and then the next word is the program.
                unit.other_spellings
                    .push(joined(&args[1].normal(), &args[2..]));
            }
            self.add_paths_of_computed_program(&args[1..], &mut unit, state);
            self.fill(index, unit);
            return;
        };
        unit.program = Some(name.clone());
        let base = name.rsplit('/').next().unwrap_or(&name).to_owned();
        if !args[0].is_literal {
            // Its value is known here, but only rules that deny use it.
            unit.set_opaque("the name of the program is computed");
            unit.effect_at_least(Effect::Unproven);
            spellings(&base, args, &mut unit);
            own::judge(self.is_ours(&name, state), args, &mut unit);
            self.apply_minimums(&base, &args[1..], &mut unit, state);
            self.add_paths_of_computed_program(&args[1..], &mut unit, state);
            self.fill(index, unit);
            return;
        }
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "_./+:@%-[".contains(c);
        if name.starts_with("/proc/") || name.starts_with("/dev/") {
            unit.set_opaque(&format!("what {name} leads to is not known before it runs"));
        }
        if name.is_empty() || !name.chars().all(is_usual) {
            unit.set_opaque(&format!("{name:?} is an unusual name for a program"));
        }
        spellings(&base, args, &mut unit);
        let others = self.other_names(&name, &base, state);
        others
            .iter()
            .for_each(|other| spellings(other, args, &mut unit));
        unit.has_input = !matches!(self.frame.input, StdinSource::Nothing);
        unit.is_usual = !state.is_function(&name);
        if !programs::is_builtin(&name) {
            match self.disk.origin(&name, state) {
                Origin::Other => {
                    unit.is_usual = false;
                    unit.untrusted_program = Some(format!("{name} is not a program of the system"));
                    unit.effect_at_least(Effect::Unproven);
                }
                Origin::Missing => {
                    unit.untrusted_program = Some(format!("{name} is not found on PATH"))
                }
                Origin::System => {}
            }
        }
        if state.is_function(&name) {
            unit.catch_all_only
                .get_or_insert_with(|| format!("{name} is a function here"));
        }
        if let Some(reason) = &state.changed {
            unit.catch_all_only
                .get_or_insert_with(|| format!("what ran before changes what it means: {reason}"));
            unit.effect_at_least(Effect::Unproven);
        }
        let rest = &args[1..];
        let view = CommandContext {
            state,
            input: self.frame.input.clone(),
            has_selected_names: self.frame.selected_files.is_some(),
        };
        match programs::builtin(&base, rest, &view) {
            Some(effects) => self.builtin(&name, effects, rest, &mut unit, state),
            None => self.program(&base, rest, &mut unit, state),
        }
        for other in others.iter().filter(|other| programs::knows(other)) {
            self.program(other, rest, &mut unit, state);
        }
        if others.len() > MAX_NAMES {
            unit.set_opaque("it leads to a file that is many programs, and which one it is by this name is not known");
        }
        if state.is_function(&name) {
            self.call_function(&name, &mut unit, state);
        }
        own::judge(self.is_ours(&name, state), args, &mut unit);
        own::judge_texts(&mut unit);
        self.fill(index, unit);
    }

    /// Returns the system's names for the file of a program, if its own name is none of them: a
    /// link or a copy under another name has the effect of the file.
    fn other_names(&mut self, name: &str, base: &str, state: &ShellState) -> Vec<String> {
        if !name.contains('/')
            && (programs::is_builtin(name) || programs::knows(name) || state.is_function(name))
        {
            return vec![];
        }
        let mut names = self.disk.names_of_program(name, state);
        names.retain(|other| other != base);
        names
    }

    /// Applies the effects of a builtin of bash, if the name is one.
    fn builtin(
        &mut self,
        name: &str,
        effects: Vec<ProgramEffect>,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        /// Builtins that other shells do not have.
        const OF_BASH: &str =
            "builtin declare typeset pushd popd dirs let shopt source mapfile readarray enable";
        if name.contains('/') {
            // A file of that name, which changes no shell.
            let mut apart = state.clone();
            return effects
                .into_iter()
                .for_each(|effect| self.apply(effect, args, unit, &mut apart));
        }
        let before = state.directories();
        let set = |effect: &ProgramEffect| match effect {
            ProgramEffect::Shell(ShellEffect::Assign(name, _)) => Some(name.clone()),
            _ => None,
        };
        let assigned: Vec<String> = effects.iter().filter_map(set).collect();
        effects
            .into_iter()
            .for_each(|effect| self.apply(effect, args, unit, state));
        if self.frame.other_shell && among(OF_BASH, name) {
            state.keep_possible(&before);
            assigned
                .iter()
                .for_each(|name| state.set(name, Value::Foreign));
        }
        // A function of that name takes precedence.
        if state.is_function(name) && among("cd pushd popd", name) {
            state.forget_directory();
        }
    }

    /// Analyses words that a program joins and passes to a shell.
    pub(super) fn joined_text(
        &mut self,
        args: &[Arg],
        unit: &mut CommandUnit,
        apart: bool,
        state: &mut ShellState,
    ) {
        if args.is_empty() {
            return;
        }
        // Unknown parts are replaced by a word, which is enough for rules that deny.
        let words: Vec<String> = args
            .iter()
            .map(|arg| arg.normal().replace(UNKNOWN, "unknown"))
            .collect();
        let mut text = Arg::exact(words.join(" "));
        text.is_literal = args.iter().all(|arg| arg.is_literal);
        self.text(&text, unit, false, apart, state);
    }
}

fn joined(first: &str, rest: &[Arg]) -> String {
    let mut text = first.to_owned();
    for arg in rest {
        text.push(' ');
        text.push_str(&arg.normal());
    }
    text
}

/// Adds the spellings under which a rule that denies or asks may know a command: by its base name,
/// and without the options before its first word.
fn spellings(base: &str, args: &[Arg], unit: &mut CommandUnit) {
    let rest = &args[1..];
    let mut rests: Vec<&[Arg]> = vec![rest];
    if rest
        .first()
        .is_some_and(|arg| arg.prefix().starts_with('-'))
    {
        let plain = rest
            .iter()
            .position(|arg| !arg.prefix().starts_with('-'))
            .unwrap_or(rest.len());
        rests.push(&rest[plain..]);
        rests.push(rest.get(plain + 1..).unwrap_or_default());
        if base == "git" {
            rests.push(&rest[git::subcommand(rest).min(rest.len())..]);
        }
    }
    for rest in rests {
        unit.other_spellings.push(joined(base, rest));
    }
    // git's own directory has its sub-commands as programs.
    if let Some(command) = base.strip_prefix("git-") {
        unit.other_spellings
            .push(joined(&format!("git {command}"), rest));
    }
    // python3.12 is python.
    let family = programs::family(base);
    if family != base && programs::is_language(family) {
        unit.other_spellings.push(joined(family, rest));
    }
    if unit.normalized.contains(UNKNOWN) {
        unit.other_spellings.retain(|name| !name.is_empty());
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::Action::{Allow, Ask, Deny};
    use crate::case_tables::{PathFixture, judge, rules_that_deny_rm};

    #[test]
    fn program_is_judged_by_the_file_it_leads_to() {
        let lab = PathFixture::new();
        let root = &lab.context.root;
        for (target, link) in [
            ("/bin/rm", "r"),
            ("r", "again"),
            ("/bin/rm", "ls"),
            ("/bin/cat", "c"),
            ("/bin/sh", "shell"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for (from, to) in [("/bin/rm", "copied"), ("/bin/cat", "copied-cat")] {
            std::fs::copy(from, root.join(to)).unwrap();
        }
        let rules = rules_that_deny_rm(&lab.context);
        let table = [
            ("./r a.txt", Deny),
            ("./again a.txt", Deny),
            ("src/../r a.txt", Deny),
            ("cd src; ../r deep/f", Deny),
            ("env ./r a.txt", Deny),
            ("./copied a.txt", Deny),
            ("./ls a.txt", Deny),
            ("./shell -c 'rm a.txt'", Deny),
            ("./c .env", Ask),
            ("./copied-cat .env", Ask),
            ("./c a.txt", Allow),
            ("./script.sh", Allow),
            ("/bin/ls a.txt", Allow),
            ("/bin/rm a.txt", Deny),
        ];
        for (line, wanted) in table {
            assert_eq!(judge(&rules, line, &lab.context).action, wanted, "{line}");
        }
    }
}
