//! Applies the effects of programs: records them in the unit, locates paths, and walks nested
//! commands one layer deeper.

use super::Analyzer;
use super::budget::BEGINNING;
use crate::Access;
use crate::protected::Protected;
use crate::shell::expand::{Arg, ShellState, StdinSource, is_quiet, variable_danger};
use crate::shell::names::among;
use crate::shell::programs::{
    self, CommandContext, PathEffect, ProgramEffect, RunEffect, SelectedFiles, ShellEffect,
    UnitEffect,
};
use crate::shell::unit::{CommandUnit, Effect};
use crate::{Action, arity, protected};
use shell_parser::syntax::{Piece, Script};

/// Unknown programs whose first word is a sub-command, not a program to run.
const WORDED: &str = "apk apt apt-get aws az brew bun bzr cargo conda dnf doctl docker flyctl gcloud gh glab gsutil heroku helm \
    hg jj kubectl mamba npm pacman pip pip3 pnpm podman rclone snap svn terraform vercel yarn yum zypper";

/// The maximum number of patterns of one program that are checked for options, and of directories
/// that it enters.
const MAX_PATTERNS: usize = 64;
const MAX_ENTERED: usize = 32;

impl Analyzer<'_> {
    /// Applies the effects of a program that is not a builtin.
    pub(super) fn program(
        &mut self,
        name: &str,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let view = CommandContext {
            state,
            input: self.frame.input.clone(),
            has_selected_names: self.frame.selected_files.is_some(),
        };
        if !programs::takes_any(name) {
            self.hidden_options(args, unit, state);
        }
        // Redirections do not count as the program's own effect.
        let outer = std::mem::replace(&mut unit.effect, Effect::Reads);
        let mut inner = state.clone();
        let mut entered = 0;
        let named = state.is_function(name) && !programs::knows(name);
        for effect in programs::effects_of(name, args, &view) {
            match effect {
                // The effect of a function was judged at its definition.
                ProgramEffect::CommandUnit(UnitEffect::Effect(_)) if named => {}
                ProgramEffect::Shell(ShellEffect::Enter(dir)) => {
                    entered += 1;
                    let effect = if entered > MAX_ENTERED {
                        ShellEffect::UnknownDirectory
                    } else {
                        ShellEffect::Enter(dir)
                    };
                    self.apply_to_shell(effect, unit, &mut inner);
                    // A program that cannot enter a directory ends; the shell itself (`cd`)
                    // continues in the current directory.
                    inner.on_failure = None;
                }
                effect => self.apply(effect, args, unit, &mut inner),
            }
        }
        unit.effect_at_least(outer);
    }

    /// Records patterns that match a file whose name is an option.
    fn hidden_options(&mut self, args: &[Arg], unit: &mut CommandUnit, state: &ShellState) {
        let before = args.iter().take_while(|arg| !arg.is("--"));
        let may_be_option = |arg: &&Arg| arg.prefix().is_empty() || arg.prefix().starts_with('-');
        let patterns = before.filter(may_be_option).filter_map(Arg::pattern);
        for pattern in patterns.take(MAX_PATTERNS) {
            for cwd in &state.cwd {
                match self.disk.glob(pattern, cwd) {
                    Some(names)
                        if names
                            .iter()
                            .any(|name| name.starts_with('-') && name != pattern) =>
                    {
                        unit.set_opaque(&format!("{pattern} names a file whose name is an option"));
                    }
                    Some(_) => {}
                    None => unit.set_may_be_denied(&format!(
                        "{pattern} may name a file whose name is an option"
                    )),
                }
            }
        }
    }

    /// Applies only the effects that hold under any rules, for a program with a computed but known
    /// name.
    pub(super) fn apply_minimums(
        &mut self,
        name: &str,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let view = CommandContext {
            state,
            input: self.frame.input.clone(),
            has_selected_names: false,
        };
        let mut inner = state.clone();
        for effect in programs::effects_of(name, args, &view) {
            let is_minimum = matches!(
                effect,
                ProgramEffect::CommandUnit(UnitEffect::Minimum(..))
                    | ProgramEffect::Path(PathEffect::ChangeTree { .. })
            );
            if is_minimum {
                self.apply(effect, args, unit, &mut inner);
            }
        }
    }

    pub(super) fn apply(
        &mut self,
        effect: ProgramEffect,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        match effect {
            ProgramEffect::CommandUnit(effect) => record(effect, unit),
            ProgramEffect::Path(effect) => self.apply_to_paths(effect, args, unit, state),
            ProgramEffect::Shell(effect) => self.apply_to_shell(effect, unit, state),
            ProgramEffect::Run(effect) => self.run_programs(effect, args, unit, state),
        }
    }

    fn apply_to_paths(
        &mut self,
        effect: PathEffect,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        match effect {
            PathEffect::Use(access, arg) => {
                self.disk.record_use(access, &arg, unit, state);
                if unit
                    .program
                    .as_deref()
                    .is_some_and(|name| name.rsplit('/').next() == Some("mkdir"))
                {
                    self.disk.record_created(&arg, state);
                }
            }
            PathEffect::Entry(arg, to) => self.remove_or_move(&arg, to.as_ref(), unit, state),
            PathEffect::Copy {
                from,
                to,
                link,
                keeps_links,
            } => self.copy_to_target(&from, &to, link, keeps_links, unit, state),
            PathEffect::ChangeTree {
                paths: args,
                asks_if_unknown,
            } => {
                self.disk.judge_removal(&args, unit, state, asks_if_unknown);
                args.iter().for_each(|arg| {
                    self.disk
                        .add_uses_below(Access::Edit, arg, &[], &[], unit, state)
                });
            }
            PathEffect::ReadTree(arg, picks) => {
                self.disk
                    .record_secret_below(&arg, &picks.only, &picks.not, unit, state);
                self.disk
                    .add_uses_below(Access::Read, &arg, &picks.only, &picks.not, unit, state);
            }
            PathEffect::Unpacks
                if state
                    .cwd
                    .iter()
                    .any(|cwd| self.context.root.starts_with(cwd) || cwd.join(".git").exists()) =>
            {
                unit.ask_about_unknown_files("the files it writes are named in the archive");
            }
            PathEffect::Link(arg) => self.disk.record_link(&arg, state),
            PathEffect::CopyTree { from, to } => {
                self.disk.ask_about_copies_below(&from, &to, unit, state)
            }
            PathEffect::Patches(files) => self.disk.ask_about_patches(&files, unit, state),
            PathEffect::Reaches(destination) => {
                unit.destination = self.disk.pin_destination(destination, state)
            }
            PathEffect::ChangesSelected(SelectedFiles {
                directories,
                patterns,
            }) => {
                self.disk
                    .ask_about_changes_below(&directories, &patterns, unit, state);
                directories.iter().for_each(|arg| {
                    self.disk
                        .add_uses_below(Access::Edit, arg, &patterns, &[], unit, state)
                });
            }
            PathEffect::MayLeaveProject(words) => {
                self.add_paths_outside(words.as_deref().unwrap_or(args), unit, state)
            }
            PathEffect::GitPaths(words) => self.git_paths(&words, unit, state),
            PathEffect::Unpacks => {}
        }
    }

    fn apply_to_shell(
        &mut self,
        effect: ShellEffect,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        match effect {
            ShellEffect::Enter(arg) => self.disk.chdir(Some(&arg), unit, state),
            ShellEffect::Home => self.disk.chdir(None, unit, state),
            ShellEffect::UnknownDirectory => state.forget_directory(),
            ShellEffect::Physical => state.is_physical = true,
            ShellEffect::Assign(name, value) => {
                self.expanding(&Script::default(), state, |words| {
                    words.assign_variable(&name, &value)
                });
                state.set(&name, value);
            }
            ShellEffect::Integer(name) => self.expander.integer(name),
            ShellEffect::Computes(text) => {
                self.expanding(&Script::default(), state, |words| {
                    words.computes(&[Piece::Text(text)])
                });
            }
            ShellEffect::Changed(reason) => state.set_changed(&reason),
            ShellEffect::Variable(name) => {
                if let Some(reason) = variable_danger(&name) {
                    let reason = format!("{name} {reason}");
                    if is_quiet(&name) {
                        unit.set_opaque_by_variable(&reason)
                    } else {
                        unit.set_opaque(&reason)
                    }
                }
                unit.effect_at_least(Effect::Unproven);
                unit.catch_all_only
                    .get_or_insert_with(|| format!("{name} is set"));
                state.set_changed("a variable is set for it");
            }
        }
    }

    fn run_programs(
        &mut self,
        effect: RunEffect,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        match effect {
            RunEffect::Run {
                words,
                is_conditional,
            } => self.run_nested(&words, unit, is_conditional, state),
            RunEffect::RunOn(words, selected_files) => {
                let from = self.units.len();
                self.run_nested(&words, unit, false, state);
                self.change_selected_files(from, &selected_files, state);
            }
            RunEffect::Text {
                text,
                is_conditional,
            } => self.text(&text, unit, is_conditional, true, state),
            RunEffect::TextInThisShell(text) => {
                let before = state.directories();
                self.text(&text, unit, false, false, state);
                state.merge_outcomes();
                // It may run any number of times.
                if state.directories() != before {
                    state.forget_directory();
                }
            }
            RunEffect::DeferredText(text) => self.set_trap(&text, args, unit, state),
            RunEffect::Eval(words) => self.joined_text(&words, unit, false, state),
            RunEffect::Shell(words) => self.joined_text(&words, unit, true, state),
            RunEffect::RemoteShell(words) => self.remote_shell(&words, unit, state),
            RunEffect::UnknownProgram(words) => {
                self.unknown_program(words.as_deref().unwrap_or(args), unit, state)
            }
            RunEffect::Repository { command, args } => {
                self.in_repository(&command, &args, unit, state)
            }
        }
    }

    /// Asks about the units from index `from` on that change selected files, if one of those may be
    /// a control file, and records the uses of them so that rules apply.
    pub(super) fn change_selected_files(
        &mut self,
        from: usize,
        selected_files: &SelectedFiles,
        state: &ShellState,
    ) {
        let found = Arg::found();
        let name = found.prefix().trim_start_matches("./");
        let uses = |unit: &CommandUnit, permission: &str| {
            let mut used = unit
                .path_uses
                .iter()
                .filter(|path_use| path_use.permission == permission);
            used.any(|path_use| {
                path_use
                    .patterns
                    .iter()
                    .any(|path| path.rsplit('/').next() == Some(name))
            })
        };
        for unit in self.units.iter_mut().skip(from) {
            if uses(unit, "edit") {
                self.disk.ask_about_changes_below(
                    &selected_files.directories,
                    &selected_files.patterns,
                    unit,
                    state,
                );
            }
            for (permission, access) in [("edit", Access::Edit), ("read", Access::Read)] {
                if !uses(unit, permission) {
                    continue;
                }
                for arg in &selected_files.directories {
                    self.disk.add_uses_below(
                        access,
                        arg,
                        &selected_files.patterns,
                        &[],
                        unit,
                        state,
                    );
                }
            }
        }
    }

    /// Records that a file or link is removed or moved.
    fn remove_or_move(
        &mut self,
        arg: &Arg,
        to: Option<&Arg>,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        if self.disk.record_link_use(arg, unit, state) {
            if let Some(to) = to {
                self.disk.record_link(to, state);
            }
            return;
        }
        if to.is_some() {
            self.disk.record_use(Access::Read, arg, unit, state);
        }
        self.disk.record_use(Access::Edit, arg, unit, state);
        if to.is_some() {
            // The entries below it move with it.
            self.disk
                .add_uses_below(Access::Edit, arg, &[], &[], unit, state);
        }
        self.disk.record_removed(arg, state);
    }

    /// Records the paths among the words of a program with a computed name.
    pub(super) fn add_paths_of_computed_program(
        &mut self,
        args: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        for text in args
            .iter()
            .filter_map(Arg::text)
            .filter(|text| !text.starts_with('-'))
        {
            let name = text.rsplit('/').next().unwrap_or(text);
            if text.contains('/')
                || text == ".."
                || protected::secret_name(name)
                || protected::control(std::path::Path::new(text))
            {
                self.disk.record_guessed_use(text, unit, state);
            }
        }
    }

    /// Analyses the text of a shell that runs on another system.
    fn remote_shell(&mut self, words: &[Arg], unit: &mut CommandUnit, state: &mut ShellState) {
        let is_shell = |arg: &Arg| {
            arg.text()
                .is_some_and(|text| programs::is_shell(text.rsplit('/').next().unwrap_or(text)))
        };
        let is_text_option = |arg: &Arg| {
            arg.prefix().starts_with('-')
                && !arg.prefix().starts_with("--")
                && arg.prefix().contains('c')
        };
        let Some(at) = words.iter().position(is_shell) else {
            return;
        };
        let text = words[at..]
            .iter()
            .position(is_text_option)
            .and_then(|flag| words.get(at + flag + 1))
            .cloned();
        if let Some(text) = text {
            self.text(&text, unit, true, true, state);
        }
    }

    /// Records words and values of options that lead out of the project, whatever they mean.
    fn add_paths_outside(&mut self, args: &[Arg], unit: &mut CommandUnit, state: &ShellState) {
        for text in args.iter().filter_map(Arg::text) {
            let value = match text.strip_prefix('-') {
                Some(option) => match option.split_once('=') {
                    Some((_, value)) => value,
                    None => option
                        .strip_prefix(|c: char| c.is_ascii_alphabetic())
                        .unwrap_or_default(),
                },
                None => text,
            };
            // `-v from:to`, `key=value`
            for part in value
                .split([':', '=', ',', '@'])
                .filter(|part| !part.contains(char::is_whitespace))
            {
                if part == ".."
                    || part.starts_with("../")
                    || (part.starts_with('/') && !part.starts_with("//"))
                {
                    self.disk.record_guessed_use(part, unit, state);
                }
            }
        }
    }

    /// Records the possible effects of an unknown program: paths among its words, words and texts
    /// that may be commands, and the text of its standard input.
    fn unknown_program(&mut self, args: &[Arg], unit: &mut CommandUnit, state: &ShellState) {
        if let StdinSource::Text(Some(text)) = self.frame.input.clone() {
            if self.budget.allows_search(text.len()) {
                unit.foreign_code.push(text);
            } else {
                unit.set_may_be_denied("the text it reads is too long to be searched again");
            }
        }
        // `cargo rm` does not start `rm`.
        let name = unit
            .program
            .as_deref()
            .map_or("", |name| name.rsplit('/').next().unwrap_or(name))
            .to_owned();
        let name = name.as_str();
        let first: Vec<&str> = std::iter::once(name)
            .chain(
                args.iter()
                    .take(4)
                    .map(|arg| arg.text().unwrap_or_default()),
            )
            .collect();
        let named_words = arity::prefix(&first).len().saturating_sub(1);
        let subcommand_end = args
            .iter()
            .position(|arg| !arg.prefix().starts_with('-'))
            .map_or(0, |at| at + 1);
        let own = if among(WORDED, name) {
            named_words.max(subcommand_end)
        } else {
            named_words
        };
        for text in args
            .iter()
            .skip(own)
            .filter_map(Arg::text)
            .filter(|text| !text.contains(' '))
        {
            unit.unknown_program_words
                .extend(names_in(text).map(str::to_owned));
        }
        let analysed = if self.budget.allows_words(args.len()) {
            args.len()
        } else {
            unit.set_unconfined_effect("it has more words than are examined");
            args.len().min(BEGINNING)
        };
        for arg in &args[..analysed] {
            let Some(text) = arg.text().map(str::to_owned) else {
                if arg.pattern().is_some_and(|pattern| {
                    pattern
                        .rsplit('/')
                        .next()
                        .is_some_and(|name| name.starts_with('.'))
                }) {
                    self.disk.record_use(Access::Read, arg, unit, state);
                }
                continue;
            };
            if text.contains([' ', ';', '|', '&', '\n']) || text.contains("$(") {
                self.add_protected_names(&text, name, unit);
                unit.foreign_code.push(text);
                continue;
            }
            // `key=file`, `FILE:name,mode`
            let is_address = text.contains("://");
            let parts: Vec<String> = if is_address {
                vec![]
            } else {
                text.split(['=', '@', ':', ','])
                    .map(str::to_owned)
                    .collect()
            };
            for candidate in std::iter::once(text).chain(parts) {
                let name = candidate.rsplit('/').next().unwrap_or_default();
                if candidate.contains(['(', ')']) {
                    self.add_protected_names(&candidate, name, unit);
                    continue;
                }
                let is_address = candidate.contains("://") && !candidate.contains("/..");
                if (candidate.contains('/') && !is_address)
                    || candidate == ".."
                    || protected::secret_name(name)
                    || protected::control(std::path::Path::new(&candidate))
                {
                    let path_start = if candidate.starts_with('-') {
                        candidate.find(['/', '.'])
                    } else {
                        None
                    };
                    let start = path_start.unwrap_or(0);
                    self.disk
                        .record_guessed_use(&candidate[start..], unit, state);
                }
            }
        }
    }

    /// Records the protected files that a text names, if an unknown program may execute the text.
    fn add_protected_names(&self, text: &str, name: &str, unit: &mut CommandUnit) {
        /// Programs that get prose, which names files without using them.
        const PROSE: &str = "bzr gh glab hg jj notify-send svn tea";
        if among(PROSE, name) {
            return;
        }
        let with_path = programs::protected_in(text, true).filter(|(path, _)| path.contains('/'));
        let in_call = || {
            if text.contains('(') {
                programs::protected_in(text, false)
            } else {
                None
            }
        };
        match with_path.or_else(in_call) {
            Some((path, Protected::Secret)) => {
                unit.add_secret(
                    &path,
                    &format!(
                        "it is given a text that names {path}, which may hold keys or passwords"
                    ),
                );
            }
            Some((path, _)) => {
                let reason = format!(
                    "it is given a text that names {path}, which determines what runs here"
                );
                unit.set_minimum(Action::Ask, &reason);
            }
            None => {}
        }
    }

    /// Records the target of a copy or a link. If it is a directory, the sources' names in it are
    /// written.
    fn copy_to_target(
        &mut self,
        from: &[Arg],
        to: &Arg,
        link: bool,
        keeps_links: bool,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        self.disk.record_use(Access::Edit, to, unit, state);
        let directory = to
            .text()
            .is_some_and(|text| state.cwd.iter().any(|cwd| cwd.join(text).is_dir()));
        if !directory {
            if link || keeps_links {
                self.disk.record_link(to, state);
            }
            return;
        }
        for (dir, text) in from
            .iter()
            .filter_map(|arg| Some((to.text()?, arg.text()?)))
        {
            let name = text
                .trim_end_matches('/')
                .rsplit('/')
                .next()
                .unwrap_or_default();
            let path = format!("{}/{name}", dir.trim_end_matches('/'));
            self.disk.record_text_use(Access::Edit, &path, unit, state);
            if link || keeps_links {
                self.disk.record_link(&Arg::exact(path), state);
            }
        }
    }
}

/// Records the effects that concern only the unit.
fn record(effect: UnitEffect, unit: &mut CommandUnit) {
    match effect {
        UnitEffect::Effect(effect) => unit.effect_at_least(effect),
        UnitEffect::MayStartProgram(words) => {
            let texts = words
                .iter()
                .filter_map(Arg::text)
                .filter(|text| text.contains(' '));
            unit.foreign_code.extend(texts.map(str::to_owned));
            unit.possible_starts.extend(words.iter().map(Arg::normal));
        }
        UnitEffect::ForeignCode(text) => unit.foreign_code.push(text),
        UnitEffect::GitSubcommand(words) => {
            unit.unknown_program_words.extend(
                words
                    .iter()
                    .filter_map(Arg::text)
                    .flat_map(names_in)
                    .map(str::to_owned),
            );
        }
        UnitEffect::Unset(name)
            if name
                .text()
                .is_none_or(|name| ["PATH", "HOME", "TMPDIR"].contains(&name)) =>
        {
            unit.set_opaque("it removes a variable that determines what runs");
        }
        UnitEffect::DangerousOption(option) => unit.add_dangerous_option(&option),
        UnitEffect::Opaque(reason) => unit.set_opaque(&reason),
        UnitEffect::MayBeDenied(reason) => unit.set_may_be_denied(&reason),
        UnitEffect::CatchAllOnly(reason) => drop(unit.catch_all_only.get_or_insert(reason)),
        UnitEffect::Minimum(action, reason) => unit.set_minimum(action, &reason),
        UnitEffect::CodeVariable(reason) => unit.set_opaque_by_variable(&reason),
        UnitEffect::Unknown(reason) => unit.ask_about_unknown_files(&reason),
        UnitEffect::NotPreventedBySandbox(reason) => unit.set_unconfined_effect(&reason),
        UnitEffect::Secret(shown, reason) => unit.add_secret(&shown, &reason),
        UnitEffect::RunsOtherPrograms => unit.runs_other_programs = true,
        UnitEffect::Network => unit.uses_network = true,
        UnitEffect::Destroys => unit.destroys = true,
        UnitEffect::Unset(_) => {}
    }
}

/// Returns the parts of a word that may be a program's name: the text between punctuation, without
/// directories.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let is_name_char = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    text.split(move |c| !is_name_char(c))
        .map(|part| part.rsplit('/').next().unwrap_or(part))
        .filter(|name| !name.is_empty() && !name.starts_with('-'))
}
