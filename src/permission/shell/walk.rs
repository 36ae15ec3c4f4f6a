//! Walks a command line in the order it runs and notes everything that acts. It carries along what
//! later parts depend on: the directory, the values of variables, functions, and whether something
//! has changed what words mean. Where a branch may or may not be taken, both outcomes stay possible.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

use super::expand::Arg;
use super::git_config::Repository;
use super::judge;
use super::origin::Origins;
use super::parse;
use super::state::{Input, State, Value, either, unsettle};
use super::syntax::{Assign, Command, Item, Kind, List, Operator, Piece, Redirect, Script, Unreadable, Word};
use super::touch::device;
use super::variables::{harmless, holds_code, variable_danger};
use super::{Action, Effect, Line, Unit};
use crate::permission::paths::{Access, Folders, Located};
use crate::permission::{Place, unread};

/// Units of one line; more are not looked at.
const BUDGET: usize = 1_000;
/// Uses of paths in one line, and places on the disk that are looked up for them.
pub(super) const USES: usize = 2_000;
pub(super) const LOOKUPS: usize = 500;
/// How much text within texts is taken apart, in bytes.
pub(super) const NESTED: usize = 32 << 10;
/// How many words are handed down to programs that other programs run; of what comes then, only the
/// beginning is looked at.
const HANDED: usize = 4_000;
/// How many names in directories are looked at for one line.
const ENTRIES: usize = 16_384;
pub(super) const BEGINNING: usize = 32;
/// How many words of programs that are not known are looked at.
pub(super) const GIVEN: usize = 4_000;
/// How many parts of a text that cannot be read are looked at.
const GUESSES: usize = 64;
/// Texts within texts: `eval`, `sh -c`, wrappers.
const LAYERS: usize = 8;

/// Which file a program's name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The shell itself.
    Builtin,
    /// A file on `PATH` outside the project.
    System,
    /// Some other file.
    Other,
    /// No file on `PATH`.
    Missing,
}

/// What was found for a text in a directory; none where it cannot be told.
type PerFolder<T> = HashMap<PathBuf, HashMap<String, Option<Rc<T>>>>;

pub(super) struct Walk<'p> {
    pub(super) place: &'p Place,
    pub(super) units: Vec<Unit>,
    opaque: Option<String>,
    /// Texts that were too long to be taken apart, or could not be read.
    unread: Vec<String>,
    /// How many bytes of text within texts were taken apart.
    pub(super) nested: usize,
    /// How many words were handed down, and how many given to programs that are not known.
    handed: usize,
    pub(super) given: usize,
    /// How many names in directories may still be looked at.
    pub(super) entries: usize,
    pub(super) origins: Origins,
    /// Links that the line itself makes, or may make.
    pub(super) links: Vec<PathBuf>,
    /// Below this many programs and texts the present one runs.
    layer: usize,
    carried: bool,
    /// How deep the walk is, over all texts.
    depth: usize,
    input: Input,
    /// The names that come through the pipe were picked by a pattern that fits no secret.
    pub(super) picked: bool,
    /// Paths that were looked up already; the disk is asked once.
    pub(super) located: PerFolder<Located>,
    /// How many places that were.
    pub(super) lookups: usize,
    /// Directories that were looked up already.
    pub(super) folders: Folders,
    pub(super) globbed: PerFolder<[String]>,
    /// How many words the line's braces made.
    pub(super) made: usize,
    pub(super) losses: HashMap<PathBuf, super::floor::Loss>,
    /// Variables that somewhere in the line get the integer attribute.
    pub(super) numbers: HashSet<String>,
    /// Variables that somewhere get what nobody knows.
    pub(super) foreign: HashSet<String>,
    /// Some variable is given text that runs something when bash computes with it.
    pub(super) coded: bool,
    /// How many uses of paths were noted.
    pub(super) touched: usize,
    /// The repositories git would work in, by directory; each is looked for once.
    pub(super) repositories: HashMap<PathBuf, Rc<Repository>>,
}

/// Takes a command line apart.
pub(super) fn walk(command: &str, place: &Place) -> Line {
    let mut walk = Walk {
        place,
        units: vec![],
        opaque: None,
        unread: vec![],
        nested: 0,
        handed: 0,
        given: 0,
        entries: ENTRIES,
        origins: Origins::default(),
        links: vec![],
        layer: 0,
        carried: false,
        depth: 0,
        input: Input::Nothing,
        picked: false,
        located: HashMap::new(),
        lookups: 0,
        folders: Folders::default(),
        made: 0,
        globbed: HashMap::new(),
        losses: HashMap::new(),
        numbers: HashSet::new(),
        foreign: HashSet::new(),
        coded: false,
        touched: 0,
        repositories: HashMap::new(),
    };
    let mut state = State { cwd: vec![place.cwd.clone()], ..State::default() };
    match parse::script(command, 0) {
        Ok(script) => walk.list(&script, &script.list, &mut state),
        Err(reason) => {
            walk.opaque(&reason.to_string());
            // Bash runs what comes before the line it cannot read.
            let (script, rest) = parse::beginning(command).unwrap_or_default();
            walk.list(&script, &script.list, &mut state);
            let rest = if script.list.is_empty() { command } else { rest };
            walk.unread.push(rest.to_owned());
            if matches!(reason, Unreadable::Syntax | Unreadable::Unclosed) {
                walk.guess(rest, &mut state);
            }
        }
    }
    walk.numbers_settled();
    walk.names_settled();
    walk.made_settled(command);
    if walk.full() {
        walk.opaque(&Unreadable::TooMany.to_string());
        walk.unread.push(command.to_owned());
    }
    Line { text: command.into(), units: walk.units, opaque: walk.opaque, unread: walk.unread }
}

impl Walk<'_> {
    pub(super) fn opaque(&mut self, reason: &str) {
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    fn full(&self) -> bool {
        self.units.len() >= BUDGET
    }

    pub(super) fn list(&mut self, script: &Script, list: &List, state: &mut State) {
        for item in list {
            if self.full() {
                return;
            }
            self.item(script, item, state);
        }
    }

    fn item(&mut self, script: &Script, item: &Item, state: &mut State) {
        let before = item.perhaps.then(|| state.cwd.clone());
        if item.background || item.commands.len() > 1 {
            let outer = self.input.clone();
            for (at, command) in item.commands.iter().enumerate() {
                if self.full() {
                    break;
                }
                if at > 0 {
                    self.input = Input::Pipe;
                    self.picked = picks_no_secrets(script, &item.commands[at - 1]);
                }
                self.command(script, command, &mut state.clone());
            }
            self.input = outer;
            self.picked = false;
        } else if let Some(command) = item.commands.first() {
            self.command(script, command, state);
        }
        if let Some(before) = before
            && before != state.cwd
        {
            state.cwd = either(&before, &state.cwd);
        }
    }

    fn command(&mut self, script: &Script, command: &Command, state: &mut State) {
        if self.depth > 2 * parse::DEPTH {
            self.opaque("it is nested too deeply");
            return;
        }
        self.depth += 1;
        if let Kind::Simple { assigns, words } = &command.kind {
            self.simple(script, command, assigns, words, state);
        } else {
            self.compound(script, command, state);
        }
        self.depth -= 1;
    }

    fn compound(&mut self, script: &Script, command: &Command, state: &mut State) {
        let outer = self.input.clone();
        for redirect in &command.redirects {
            let mut unit = self.unit(parse::slice(script, &redirect.range));
            unit.effect = Effect::Reads;
            self.redirect(script, redirect, &mut unit, state);
            if let Some(input) = self.given(script, redirect, state) {
                self.input = input;
            }
            if !unit.touches.is_empty() || unit.floor.is_some() || unit.effect != Effect::Reads {
                self.push(unit);
            }
        }
        let before = state.cwd.clone();
        match &command.kind {
            Kind::Simple { .. } => {}
            Kind::Group(list) => self.list(script, list, state),
            Kind::Subshell(list) => self.list(script, list, &mut state.clone()),
            Kind::Branches(lists) => {
                for list in lists {
                    self.list(script, list, state);
                    state.cwd = either(&before, &state.cwd);
                }
            }
            Kind::Loop(lists) => {
                for list in lists {
                    unsettle(list, state);
                }
                for list in lists {
                    self.list(script, list, state);
                }
            }
            Kind::For { name, words, body } => {
                let args = words.as_ref().map(|words| self.expand(script, words, state));
                unsettle(body, state);
                let members = self.members(args.as_deref(), state);
                self.given_to(name, &members, state);
                state.set(name, members);
                self.assigns_danger(name);
                self.list(script, body, state);
            }
            Kind::Arithmetic(pieces) => {
                self.arithmetic(script, pieces, state);
                self.quiet(script, command);
            }
            Kind::ArithmeticFor { head, body } => {
                // What the body leaves in the variables is computed with as well.
                self.counter(head, state);
                unsettle(body, state);
                self.arithmetic(script, head, state);
                self.list(script, body, state);
            }
            Kind::Case { word, arms } => {
                self.single(script, word, state);
                for (patterns, list) in arms {
                    for pattern in patterns {
                        self.single(script, pattern, state);
                    }
                    self.list(script, list, state);
                    state.cwd = either(&before, &state.cwd);
                }
            }
            Kind::Condition(words) => self.condition(script, command, words, state),
            Kind::Function { name, body } => self.function(script, name, body, state),
            Kind::Coprocess { name, body } => {
                // The descriptors become the variable's value.
                name.iter().for_each(|name| self.assigns_danger(name));
                self.command(script, body, &mut state.clone());
            }
        }
        if matches!(command.kind, Kind::Loop(_) | Kind::For { .. } | Kind::ArithmeticFor { .. }) {
            state.cwd = either(&before, &state.cwd);
        }
        self.input = outer;
    }

    /// A part that only computes.
    fn quiet(&mut self, script: &Script, command: &Command) {
        let mut unit = self.unit(parse::slice(script, &command.range));
        unit.effect = Effect::Reads;
        self.push(unit);
    }

    fn function(&mut self, script: &Script, name: &str, body: &Command, state: &mut State) {
        state.functions.insert(name.to_owned());
        let (calls, apart) = calls(body, name, script);
        if apart > 0 && calls > 1 {
            let mut unit = self.unit(parse::slice(script, &body.range));
            unit.floor(Action::Deny, "a function that starts itself over and over would stop the machine");
            self.push(unit);
        }
        let mut inner = State { called: true, ..state.clone() };
        // Whoever calls it decides what it reads.
        let outer = std::mem::replace(&mut self.input, Input::Pipe);
        self.command(script, body, &mut inner);
        self.input = outer;
        if inner.cwd != state.cwd {
            // The call changes the directory, from wherever it is made.
            state.cwd.clear();
        }
        if let Some(reason) = inner.changed {
            state.change(&reason);
        }
        for name in inner.vars.keys() {
            state.vars.insert(name.clone(), Value::Foreign);
        }
    }

    fn condition(&mut self, script: &Script, command: &Command, words: &[Word], state: &mut State) {
        let args: Vec<Arg> = words.iter().map(|word| self.single(script, word, state)).collect();
        let numeric = |arg: &Arg| ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"].contains(&&*arg.raw);
        let mut unit = self.unit(parse::slice(script, &command.range));
        unit.effect = Effect::Reads;
        let named = words.iter().zip(&args).skip(1).zip(&args).filter(|(_, before)| before.is("-v") || before.is("-R"));
        for ((word, _), _) in named {
            // A subscript in it would be computed.
            if !matches!(word.pieces.as_slice(), [Piece::Text(name)] if !name.contains('[')) {
                unit.opaque("which variable it asks for is computed");
            }
        }
        for (at, _) in args.iter().enumerate().filter(|(_, arg)| numeric(arg)) {
            let sides = words.get(at + 1).into_iter().chain(at.checked_sub(1).and_then(|left| words.get(left)));
            for word in sides {
                self.arithmetic_names(&word.pieces, state);
            }
            let code = |arg: &&Arg| arg.text().is_some_and(holds_code);
            if args
                .get(at + 1)
                .into_iter()
                .chain(at.checked_sub(1).and_then(|left| args.get(left)))
                .any(|arg| code(&arg))
            {
                unit.opaque("a number is computed from text that holds a command");
            }
        }
        self.push(unit);
    }

    /// What a loop's variable can hold.
    fn members(&mut self, args: Option<&[Arg]>, state: &State) -> Value {
        let Some(args) = args else { return Value::Foreign };
        let mut all = vec![];
        for arg in args {
            if let Some(texts) = arg.texts() {
                all.extend(texts.iter().cloned());
            } else if let (Some(pattern), [cwd]) = (arg.pattern(), state.cwd.as_slice()) {
                match self.glob(pattern, cwd) {
                    Some(names) if names.len() <= 64 => all.extend(names.iter().cloned()),
                    _ => return Value::Foreign,
                }
            } else {
                return Value::Foreign;
            }
        }
        if all.len() > 64 { Value::Foreign } else { Value::Known(all) }
    }

    /// A substitution: walked in a shell of its own.
    pub(super) fn substitution(&mut self, script: &Script, list: &List, state: &State) {
        self.depth += 1;
        if self.depth > 2 * parse::DEPTH {
            self.opaque("it is nested too deeply");
        } else {
            self.list(script, list, &mut state.clone());
        }
        self.depth -= 1;
    }

    /// A process substitution: `>(…)` reads what another program writes.
    pub(super) fn process(&mut self, script: &Script, list: &List, state: &State) {
        let outer = std::mem::replace(&mut self.input, Input::Pipe);
        self.substitution(script, list, state);
        self.input = outer;
    }

    fn unit(&self, text: &str) -> Unit {
        Unit {
            text: text.to_owned(),
            normal: text.to_owned(),
            layer: self.layer,
            carried: self.carried,
            ..Unit::default()
        }
    }

    pub(super) fn push(&mut self, unit: Unit) {
        if !self.full() {
            self.units.push(unit);
        }
    }

    fn simple(&mut self, script: &Script, command: &Command, assigns: &[Assign], words: &[Word], state: &mut State) {
        let mut unit = self.unit(parse::slice(script, &command.range));
        let alone = words.is_empty();
        unit.effect = Effect::Reads;
        for assign in assigns {
            // `IFS=: read …` splits one line and is forgotten.
            let splits =
                assign.name == "IFS" && words.first().is_some_and(|word| parse::slice(script, &word.range) == "read");
            if splits {
                self.single(script, &assign.value, state);
            } else {
                self.assignment(script, assign, alone, &mut unit, state);
            }
        }
        let args = self.expand(script, words, state);
        let outer = self.input.clone();
        for redirect in &command.redirects {
            if let Some(input) = self.given(script, redirect, state) {
                self.input = input;
            }
            self.redirect(script, redirect, &mut unit, state);
        }
        if args.is_empty() {
            // Words that vanish leave nothing to run; an assignment alone runs nothing either.
            if !command.redirects.is_empty() || unit.opaque.is_some() || !words.is_empty() {
                self.push(unit);
            }
        } else {
            let for_the_rest = args.len() == 1 && args[0].is("exec");
            self.run(&args, unit, state);
            if for_the_rest {
                return;
            }
        }
        self.input = outer;
    }

    fn assignment(&mut self, script: &Script, assign: &Assign, alone: bool, unit: &mut Unit, state: &mut State) {
        self.arithmetic(script, &assign.subscript, state);
        let value = self.single(script, &assign.value, state);
        if let Some(words) = &assign.array {
            self.expand(script, words, state);
        }
        let name = &assign.name;
        if let Some(reason) = variable_danger(name) {
            let reason = format!("{name} {reason}");
            unit.opaque(&reason);
            state.change(&reason);
        } else if !alone && !harmless(name) {
            unit.broad_only.get_or_insert_with(|| format!("{name} is set for it, and may change what it does"));
            unit.effect_at_least(Effect::Unproven);
        }
        let given = match value.texts() {
            Some(texts) => Value::Known(texts.to_vec()),
            None if matches!(assign.value.pieces.as_slice(), [Piece::Arithmetic(_)]) => Value::Harmless,
            None => Value::Foreign,
        };
        if assign.array.is_none() {
            self.given_to(name, &given, state);
        }
        if alone {
            let certain = assign.array.is_none() && !assign.append && assign.subscript.is_empty();
            let value = match given {
                Value::Known(_) if !certain => Value::Foreign,
                given => given,
            };
            state.set(name, value);
        }
    }

    /// What a redirection gives a program to read.
    fn given(&mut self, script: &Script, redirect: &Redirect, state: &mut State) -> Option<Input> {
        match redirect.operator {
            Operator::Read | Operator::ReadWrite | Operator::DuplicateIn => Some(Input::Pipe),
            Operator::HereString => {
                Some(Input::Text(self.single(script, &redirect.target, state).text().map(str::to_owned)))
            }
            Operator::HereDoc => {
                let body = script.heredocs.get(redirect.heredoc?)?.body.as_ref()?;
                let literal = |piece: &Piece| match piece {
                    Piece::Quoted(text) | Piece::Text(text) => Some(text.clone()),
                    _ => None,
                };
                let text: Option<Vec<String>> = body.pieces.iter().map(literal).collect();
                Some(Input::Text(text.map(|parts| parts.concat())))
            }
            Operator::Write | Operator::Duplicate => None,
        }
    }

    fn redirect(&mut self, script: &Script, redirect: &Redirect, unit: &mut Unit, state: &mut State) {
        // The descriptor's number becomes the variable's value.
        redirect.variable.iter().for_each(|name| self.assigns_danger(name));
        if redirect.operator == Operator::HereDoc {
            let body = redirect.heredoc.and_then(|index| script.heredocs.get(index)).and_then(|doc| doc.body.as_ref());
            if let Some(body) = body {
                self.parts(body, &body.pieces, state, false);
            }
            return;
        }
        let target = self.single(script, &redirect.target, state);
        let access = match redirect.operator {
            Operator::HereString | Operator::HereDoc => return,
            Operator::Read => Access::Read,
            Operator::Write | Operator::ReadWrite => Access::Edit,
            Operator::Duplicate | Operator::DuplicateIn => {
                let text = target.text().unwrap_or_default();
                let digits = text.trim_end_matches('-');
                if !text.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return;
                }
                if redirect.operator == Operator::Duplicate { Access::Edit } else { Access::Read }
            }
        };
        if let Some(text) = target.text() {
            if text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/") {
                unit.opaque("it opens a network connection");
                return;
            }
            if device(text) {
                return;
            }
        }
        unit.broad_only.get_or_insert_with(|| "it is redirected to or from a file".into());
        if access == Access::Edit && !target.literal {
            unit.effect_at_least(Effect::Unproven);
            unit.floor(Action::Ask, &format!("which file {} writes is not known", redirect_text(script, redirect)));
            return;
        }
        self.touch(access, &target, unit, state);
    }

    /// Runs words as a program inside the present one.
    pub(super) fn inner(&mut self, args: &[Arg], outer: &Unit, carried: bool, state: &mut State) {
        if args.is_empty() {
            return;
        }
        if outer.layer >= LAYERS {
            self.opaque("programs run programs too many times over");
            self.unread_words(args);
            return;
        }
        self.handed += args.len();
        let args = if self.handed > HANDED && args.len() > BEGINNING {
            self.opaque("it hands too many words to other programs");
            self.unread_words(&args[BEGINNING..]);
            &args[..BEGINNING]
        } else {
            args
        };
        let text = args.iter().map(|arg| &*arg.raw).collect::<Vec<_>>().join(" ");
        let unit = Unit {
            normal: text.clone(),
            text,
            layer: outer.layer + 1,
            carried: carried || outer.carried,
            effect: Effect::Reads,
            ..Unit::default()
        };
        self.depth += 1;
        self.run(args, unit, state);
        self.depth -= 1;
    }

    /// What may be commands in a text that cannot be read, quotes left out: nothing is allowed by it,
    /// but what would be denied is.
    fn guess(&mut self, text: &str, state: &mut State) {
        for segment in unread::commands(text).take(GUESSES) {
            let bare = unread::bare(segment);
            let command = bare.trim_start_matches(|c: char| c == '$' || c.is_whitespace());
            let command = parse::without_reserved(command);
            if let Ok(script) = parse::script(command, 0) {
                self.list(&script, &script.list, state);
            }
        }
    }

    /// Words that some program runs, too many or too deep to be judged: any of them may begin one.
    fn unread_words(&mut self, args: &[Arg]) {
        let length: usize = args.iter().map(|arg| arg.raw.len() + 1).sum();
        self.nested += length;
        // The same words come again one layer down; they are searched for once.
        if self.nested <= 4 * NESTED {
            let words: Vec<&str> = std::iter::once("exec").chain(args.iter().map(|arg| &*arg.raw)).collect();
            self.unread.push(words.join(" "));
        }
    }

    /// Runs a text as shell input: `sh -c`, `eval`. A shell of its own where `apart`.
    pub(super) fn text(&mut self, text: &Arg, unit: &mut Unit, carried: bool, apart: bool, state: &mut State) {
        if !text.literal {
            unit.opaque("the command it runs is computed");
        }
        let Some(texts) = text.texts() else { return };
        for text in texts {
            if unit.layer >= LAYERS || self.depth > parse::DEPTH {
                unit.opaque("texts run texts too many times over");
                self.unread.push(text.clone());
                return;
            }
            self.nested += text.len();
            if self.nested > NESTED {
                unit.opaque("the text it runs is too long to judge");
                self.unread.push(text.clone());
                continue;
            }
            let script = match parse::script(text, 0) {
                Ok(script) => script,
                Err(reason) => {
                    unit.opaque(&format!("the command it runs cannot be read: {reason}"));
                    unit.texts.push(text.clone());
                    self.unread.push(text.clone());
                    continue;
                }
            };
            let outer = (self.layer, self.carried, self.depth);
            self.layer = unit.layer + 1;
            self.carried = carried || unit.carried;
            self.depth += 4;
            if apart {
                self.list(&script, &script.list, &mut state.child());
            } else {
                self.list(&script, &script.list, state);
            }
            (self.layer, self.carried, self.depth) = outer;
        }
    }

    pub(super) fn stdin(&self) -> Input {
        self.input.clone()
    }

    /// Reserves the place of a unit whose inner ones come after it.
    pub(super) fn reserve(&mut self) -> usize {
        self.push(Unit::default());
        self.units.len() - 1
    }

    pub(super) fn fill(&mut self, index: usize, unit: Unit) {
        if let Some(slot) = self.units.get_mut(index) {
            *slot = unit;
        }
    }

    pub(super) fn changed(state: &State) -> Option<&str> {
        state.changed.as_deref()
    }
}

fn redirect_text<'s>(script: &'s Script, redirect: &Redirect) -> &'s str {
    parse::slice(script, &redirect.range)
}

/// How often a function's body calls it, and how often in a pipeline or in the background.
fn calls(command: &Command, name: &str, script: &Script) -> (usize, usize) {
    fn walk(list: &List, name: &str, script: &Script, count: &mut (usize, usize)) {
        for item in list {
            for command in &item.commands {
                count_in(command, item.background || item.commands.len() > 1, name, script, count);
            }
        }
    }
    fn count_in(command: &Command, apart: bool, name: &str, script: &Script, count: &mut (usize, usize)) {
        match &command.kind {
            Kind::Simple { words, .. }
                if words.first().is_some_and(|word| parse::slice(script, &word.range) == name) =>
            {
                count.0 += 1;
                count.1 += usize::from(apart);
            }
            Kind::Group(list)
            | Kind::Subshell(list)
            | Kind::For { body: list, .. }
            | Kind::ArithmeticFor { body: list, .. } => {
                walk(list, name, script, count);
            }
            Kind::Branches(lists) | Kind::Loop(lists) => lists.iter().for_each(|list| walk(list, name, script, count)),
            _ => {}
        }
    }
    let mut count = (0, 0);
    count_in(command, false, name, script, &mut count);
    count
}

/// Whether a command is a `find` below the project that prints only names that fit a harmless
/// pattern, for what reads them.
fn picks_no_secrets(script: &Script, command: &Command) -> bool {
    let Kind::Simple { assigns, words } = &command.kind else { return false };
    let texts: Vec<&str> = words.iter().map(|word| parse::slice(script, &word.range)).collect();
    let plain = |text: &&str| {
        text.trim_matches(['\'', '"']).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-*/+".contains(&byte))
    };
    let named = texts
        .windows(2)
        .any(|pair| matches!(pair[0], "-name" | "-iname") && judge::names_no_secret(pair[1].trim_matches(['\'', '"'])));
    let below = texts.iter().skip(1).take_while(|text| !text.starts_with('-'));
    texts.first() == Some(&"find")
        && assigns.is_empty()
        && named
        && texts.iter().all(plain)
        && !texts
            .iter()
            .any(|text| matches!(*text, "-o" | "-or" | "-not" | "-printf" | "-fprintf" | "-exec" | "-L" | "-follow"))
        && below.clone().all(|text| !text.starts_with('/') && !text.contains(".."))
}
